"""Will it fit, how long will it take, and will it get through its first step? Counted before a GPU is booked.

A step is walked twice at its full size, with tensors that have a shape and no numbers. `dry_run`: views, forward
pass, optimizer and memory on a pretended `cuda` device, which finds tensors on the wrong device and waits for the
device. `trace_step`: the whole step, backward by autograd's own engine on the CPU; counts its bytes and its FLOP.
"""
import copy
import os
import traceback
import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry

from ..data.manifest import Manifest
from ..methods.recipes import Recipe, override
from ..nets.backbones import cost, create
from ..ssl.memory import Memory, Queue
from ..training.loop import TrainingState, fit, never_learned, prepare, shared_memory, take_step
from ..training.machine import DTYPES, Machine, checkpoint_activations
from .own import seconds_per_step
from .parts import BlankBatches, Parts, build, training_device

# Tensors without numbers

aten = torch.ops.aten
# change their arguments and return nothing; torch has no rule for their shapes
_NO_RULE = (aten._fused_sgd_.default, aten._fused_sgd_.tensor_lr, aten.record_stream.default)

@cache
def _fake()->FakeTensorMode: # one: tensors outlive the walk that made them
    # autograd starts its threads now: one for a device that is pretended later would forbid forks
    torch.zeros(1, requires_grad=True).sum().backward()
    return FakeTensorMode()

def without_numbers(
    x:Tensor,
    device:str|torch.device, # 'cpu', or a 'cuda' that need not exist
    **options, # of `torch.empty_like`: dtype, memory_format
)->Tensor: # of the shape and the strides of `x`; takes no memory
    "A tensor that has a device and a shape, and no numbers."
    like = torch.empty_like(x.detach(), device='meta', **options)
    with _fake(): made = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=device)
    return nn.Parameter(made, x.requires_grad) if isinstance(x, nn.Parameter) else made

def _all_without_numbers(batch:dict[str,Any], device:str)->dict[str,Any]:
    return {k: without_numbers(x, device) if isinstance(x, Tensor) else x for k,x in batch.items()}

def _by_shape(func, args, kwargs)->Any:
    def shape(x): return x if isinstance(x, FakeTensor) else _fake().from_tensor(x)
    args, kwargs = tree_map_only(Tensor, shape, (args, kwargs))
    with _fake(): return func(*args, **kwargs)

def _by_ones(func, args, kwargs)->Any: # what comes out depends on numbers: let all of them be 1
    if func._schema.is_mutable: return args[0]
    def ones(x): return torch.ones((), dtype=x.dtype).expand(x.shape)
    device = next(x.device for x in tree_leaves((args, kwargs)) if isinstance(x, FakeTensor))
    args, kwargs = tree_map_only(Tensor, ones, (args, kwargs))
    return tree_map_only(Tensor, lambda x: without_numbers(x, device), func(*args, **kwargs))

# A pretended GPU

class WaitForDevice(RuntimeError):
    "On a GPU, the CPU would stand still here until all that came before is done."

class WrongDevice(RuntimeError):
    "A tensor of the CPU among those of the GPU."

def _line()->str: # the innermost one that is neither torch's nor of this module
    inside = os.path.dirname(torch.__file__), __file__, '<frozen'
    for f in reversed(traceback.extract_stack()):
        if not f.filename.startswith(inside):
            return f'{os.path.basename(f.filename)}, line {f.lineno}' + (f': {f.line}' if f.line else '')
    return 'torch itself'

class PretendedGPU(TorchDispatchMode):
    "Inside, `cuda` is there: its tensors have shapes and no numbers. Those of the CPU are real."
    def __init__(self,
        strict:bool=True, # raise WaitForDevice; False: note the wait, and every number that is read is 1
    ):
        super().__init__()
        self.strict, self.patches = strict, ExitStack()
        self.operations = 0 # on the GPU, views of tensors counted; without the backward pass
        self.waits:dict[str,None] = {} # what made the CPU wait, with its line; in this order
        self.pinned:dict[int,Tensor] = {} # storage -> a tensor in it, which keeps the address taken

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if torch.is_inference_mode_enabled() and func.namespace=='aten' and func._can_decompose():
            return self._decomposed(func, args, kwargs) # elsewhere torch has done that by now
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        host = [x for x in tensors if not isinstance(x, FakeTensor)]
        to = torch.device(kwargs.get('device') or 'meta').type # meta: none is named
        if to!='cuda' and len(host)==len(tensors): return self._on_cpu(func, args, kwargs)
        self.operations += 1
        if func in _NO_RULE: return None
        if to=='cuda' or any(x.is_cuda for x in tensors): # else those of `trace_step`
            if func is aten.copy_.default and host: return self._copy(*args, **kwargs)
            if func is aten._to_copy.default and (host or to=='cpu'): return self._move(*args, **kwargs)
            if any(x.ndim for x in host):
                raise WrongDevice(f'{func} is given tensors of the CPU and of the GPU at {_line()}')
        try: return _by_shape(func, args, kwargs)
        except DataDependentOutputException: self.wait('a number is read from the GPU')
        except DynamicOutputShapeException: self.wait(f'{func}: how much comes out depends on numbers')
        return _by_ones(func, args, kwargs)

    def __enter__(self):
        _pretend(self)
        return super().__enter__()

    def __exit__(self, *error):
        self.patches.close()
        return super().__exit__(*error)

    def wait(self, reason:str)->None:
        "The CPU waits here."
        message = f'{reason} at {_line()}'
        if self.strict: raise WaitForDevice(message) from None
        self.waits[message] = None

    def is_pinned(self, x:Tensor)->bool: return x.untyped_storage()._cdata in self.pinned
    def pin(self, x:Tensor)->Tensor:
        "Let memory of the CPU count as pinned."
        self.pinned[x.untyped_storage()._cdata] = x
        return x

    def _decomposed(self, func, args, kwargs):
        TorchDispatchMode.__enter__(self) # what it is made of comes by here, too
        try: return func.decompose(*args, **kwargs)
        finally: TorchDispatchMode.__exit__(self, None, None, None)

    @torch.no_grad()
    def _on_cpu(self, func, args, kwargs)->Any:
        if func is aten.is_pinned.default: return self.is_pinned(args[0])
        if func is aten._pin_memory.default: return self.pin(args[0].clone())
        pin = kwargs.pop('pin_memory', None)
        made = func(*args, **kwargs)
        return self.pin(made) if pin else made

    def _copy(self, into:Tensor, x:Tensor, non_blocking:bool=False)->Tensor: # one of the two is of the CPU
        up = isinstance(into, FakeTensor)
        if not (non_blocking and self.is_pinned(x if up else into)):
            self.wait(f'a copy {"to" if up else "from"} the GPU that is not from pinned memory and non_blocking')
        return into if up else into.fill_(1)

    def _move(self, x:Tensor, device, dtype=None, non_blocking=False, memory_format=None, **_)->Tensor:
        if isinstance(x, FakeTensor): # torch makes the new tensor in pinned memory
            if not non_blocking: self.wait('a copy from the GPU that is not non_blocking')
            return self.pin(torch.ones(x.shape, dtype=dtype or x.dtype))
        if not (non_blocking and self.is_pinned(x)):
            self.wait('a copy to the GPU that is not from pinned memory and non_blocking')
        return without_numbers(x.detach(), device, dtype=dtype,
            memory_format=memory_format or torch.preserve_format)

class _Event: # or a stream; a wait for one of them is a wait for one thing, and not for all that came before
    def __init__(self, *args, **kwargs): pass
    def record(self, *args)->bool: return True
    synchronize = query = wait_stream = wait_event = record
    def elapsed_time(self, other)->float: return 0.

def _pretend(gpu:PretendedGPU)->None: # until `gpu.patches` closes
    def synchronize(device=None): gpu.wait('torch.cuda.synchronize')
    def debug(mode): gpu.strict = mode in ('error', 2) # torch's own switch for an error at a wait
    cuda = dict(_lazy_init=lambda: None, is_available=lambda: True, is_bf16_supported=lambda *a, **k: True,
        device_count=lambda: 1, current_device=lambda: 0, set_device=lambda device: None,
        get_device_name=lambda device=None: 'a pretended GPU', Stream=_Event, Event=_Event,
        stream=nullcontext, current_stream=lambda device=None: _Event(), synchronize=synchronize,
        set_sync_debug_mode=debug, _sleep=lambda cycles: None)
    with _fake(): pass # tells torch that a device may be named without a driver
    gpu.patches.callback(torch._C._set_only_lift_cpu_tensors, torch._C._only_lift_cpu_tensors())
    torch._C._set_only_lift_cpu_tensors(True) # torch.tensor(…, device='cuda') comes by as a copy
    for change in (mock.patch.multiple(torch.cuda, **cuda), mock.patch.object(nn.Module, '_apply', _apply),
            mock.patch.object(torch.autograd, 'backward', _backward)): gpu.patches.enter_context(change)

_engine = torch.autograd.backward

def _backward(tensors, *args, **kwargs)->None:
    "Gradients without numbers for all leaves: the engine, written in C++, would look for a driver."
    roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not roots[0].is_cuda: return _engine(tensors, *args, **kwargs)
    nodes = {x.grad_fn for x in roots}
    following = [*nodes]
    for node in following:
        leaf = getattr(node, 'variable', None)
        if leaf is not None and leaf.grad is None: leaf.grad = torch.zeros_like(leaf)
        new = {before for before,_ in node.next_functions if before is not None} - nodes
        nodes |= new
        following += new

# what `module.to` does, with new parameters instead of new memory in the old ones: make optimizers afterwards
@torch.no_grad()
def _apply(module:nn.Module, fn, recurse:bool=True)->nn.Module:
    moved:dict[int,Any] = {} # shared parameters stay shared
    def new(x):
        if x is None or (y := fn(x)) is x: return x
        return moved.setdefault(id(x), nn.Parameter(y, x.requires_grad) if isinstance(x, nn.Parameter) else y)
    for m in module.modules() if recurse else (module,):
        for table in (m._parameters, m._buffers): table.update({name: new(x) for name,x in table.items()})
    return module

# The first steps

def _parts(recipe:Recipe, videos:int, steps:int, checkpointing:bool)->Parts:
    "The parts of a training of so many steps, on videos that need not exist."
    parts = build(recipe, videos, classes=101)
    checkpoint_activations(parts.method.encoder, checkpointing) # type: ignore[arg-type]
    parts.batches.batch_sampler.total = parts.batches.batch_sampler.per_epoch = steps
    if parts.views.live: # one iteration of the solver of flow takes as much as the next
        parts.views.live = partial(replace(parts.views.live, warps=1, inner=2), compiled=False) # type: ignore
    return parts

def _state(parts:Parts, device:str, step:int=0)->TrainingState:
    "Method and optimizer on a device, without numbers."
    def layout(x): return torch.channels_last_3d if x.ndim==5 else torch.preserve_format
    tensors = (*parts.method.parameters(), *parts.method.buffers())
    memo = {id(x): without_numbers(x, device, memory_format=layout(x)) for x in tensors}
    return TrainingState(*copy.deepcopy((parts.method, parts.optimizer), memo), step)

@dataclass(frozen=True)
class DryRun:
    "What the first steps on a GPU would do."
    operations:tuple[int,...] # that each step gives to the device, views counted; without the backward pass
    learned:tuple[bool,...] # has the step a loss?
    logs:tuple[str,...] # what the method reports in the last step
    waits:tuple[str,...] # where the CPU waits for the GPU within a step, with the line

    def __str__(self):
        quiet = '' if all(self.learned) else ' (no loss in the first: a queue has to fill)'
        waits = 'but the CPU waits' if self.waits else 'and the CPU never waits'
        return '\n'.join([f'{len(self.learned)} steps, every tensor in its place, {waits}{quiet}; '
            f'it reports {", ".join(self.logs)}', *(f'warning: in every step {w}' for w in self.waits)])

def dry_run(
    recipe:Recipe,
    dtype:str='bfloat16', # of the forward pass, a key of `machine.DTYPES`
    activation_checkpointing:bool=False, # compute activations twice instead of keeping them
    videos:int=9537, # to train on: the size of a memory bank (UCF101, split 1)
)->DryRun:
    "The first two steps of a recipe at its full size on a pretended GPU. WrongDevice names the line."
    parts, device = _parts(recipe, videos, 2, activation_checkpointing), torch.device('cuda')
    operations, learned, waits = [0], [], dict[str,None]()
    with PretendedGPU(strict=False) as gpu:
        run, parts.batches.pin = _state(parts, 'cuda'), gpu.pin
        prepare(run, device, channels_last=True, compile=False)
        gpu.waits.clear() # setting up may wait, and so may who reads what a step brings
        gpu.operations = 0
        for step in fit(run, parts.batches, parts.views, parts.schedule, device, DTYPES[dtype],
                clip_norm=parts.clip_norm):
            waits |= gpu.waits
            operations.append(gpu.operations)
            learned.append(step.loss is not None)
            for m in run.method.modules():
                if isinstance(m, Queue): _fill(m)
            step.read()
            step.clock.read()
            gpu.waits.clear()
            gpu.operations = 0
    return DryRun(tuple(operations[1:]), tuple(learned), tuple(step.logs), tuple(waits))

def _fill(queue:Queue)->None: # at once, instead of in the many steps that it takes
    ids = torch.arange(queue.size, device=queue.keys.device)
    queue.push({v: queue[v].clone() for v in queue.views}, label=ids, source=ids, row=ids)

# What a step allocates, moves and computes

HELD = ('weights', 'momentum', 'gradients', 'optimizer', 'queue', 'inputs', 'activations', 'transient')

@dataclass(frozen=True, eq=False)
class Trace:
    "A step, operation by operation."
    parts:np.ndarray # of str: 'inputs', 'forward', 'backward' or 'update'
    flops:np.ndarray # 2 for each multiply-add of products and convolutions
    traffic:np.ndarray # bytes read and written; views cost nothing
    alive:dict[str,np.ndarray] # for each of HELD, the bytes that are alive after each operation
    raw:int=0 # bytes of a batch as it comes to the device

    @property
    def total(self)->np.ndarray: return np.sum([*self.alive.values()], axis=0)

class MemoryWatch(TorchDispatchMode):
    "Records what each operation on a device allocates, frees, reads, writes and computes."
    def __init__(self,
        device:str='cpu', # type of the device whose tensors count
    ):
        super().__init__()
        self.device, self.parts = device, ['setup']
        self.operations:list[tuple[int,int,int]] = [] # part, FLOP, bytes read and written
        # bytes; born and died: operation, part of the step; held: one of HELD, if it was named
        self.storages:list[SimpleNamespace] = []
        self.alive:dict[int,tuple[SimpleNamespace,Any]] = {} # address -> storage, and a weak reference to it

    def enter(self, part:str, device:str='cpu')->None:
        "From here on, operations on this device belong to this part of the step."
        self.parts.append(part)
        self.device = device

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        out, given = ([x for x in tree_leaves(t) if isinstance(x, Tensor) and x.device.type==self.device]
            for t in (made, (args, kwargs)))
        if not out and not given: return made
        places = {x.untyped_storage()._cdata for x in given}
        view = not func._schema.is_mutable and all(x.untyped_storage()._cdata in places for x in out)
        count = flop_registry.get(func._overloadpacket)
        self.operations.append((len(self.parts) - 1, int(count(*args, **kwargs, out_val=made)) if count else 0,
            0 if view else sum(x.numel()*x.itemsize for x in out + given))) # a view touches nothing
        for x in (*out, *given): self.storage(x)
        return made

    def storage(self, x:Tensor)->SimpleNamespace:
        "The memory of a tensor; from now on it is followed."
        at, now = x.untyped_storage(), (max(0, len(self.operations) - 1), len(self.parts) - 1)
        if at._cdata not in self.alive:
            self.storages.append(SimpleNamespace(bytes=at.nbytes(), born=now, died=None, held=''))
            self._follow(at, self.storages[-1])
        return self.alive[at._cdata][0]

    def _follow(self, at:Any, storage:SimpleNamespace)->None:
        def gone(_, key=at._cdata):
            self.alive.pop(key)
            storage.died = len(self.operations), len(self.parts) - 1
        self.alive[at._cdata] = storage, weakref.ref(at, gone)

    def exchange(self, x:Tensor, new:Tensor)->None:
        "Let `new` lie in the memory of `x`, which is about to go."
        storage, _ = self.storage(x), self.alive.pop(x.untyped_storage()._cdata)
        self._follow(new.untyped_storage(), storage)

    def holds(self, tensors:Iterable[Tensor], held:str)->None: # one of HELD
        "Name what some tensors are for."
        for x in tensors: self.storage(x).held = held

    def trace(self,
        begin:int=0, # the first operation of the step
        raw:int=0, # as of `Trace`
    )->Trace:
        "What was recorded, by what it is for: as it was named, or as it outlived the part that made it."
        n, outlive = len(self.operations), {'inputs': 'inputs', 'forward': 'activations'}
        change = {held: np.zeros(n + 1, dtype=np.int64) for held in HELD}
        for s in self.storages:
            (born, part), (died, last) = s.born, s.died or (n, -1)
            held = s.held or last!=part and outlive.get(self.parts[part]) or 'transient'
            change[held][born] += s.bytes
            change[held][died] -= s.bytes
        parts, flops, traffic = zip(*self.operations[begin:])
        return Trace(np.array(self.parts)[[*parts]], np.array(flops, float), np.array(traffic, float),
            {k: v.cumsum()[begin:n] for k,v in change.items()}, raw)

# operations of `torch.nn.functional` that autocast treats otherwise on a GPU than on a CPU
AS_GIVEN = ('max_pool3d', 'avg_pool3d', 'adaptive_avg_pool3d', 'adaptive_max_pool3d') # on a GPU as they come
IN_FLOAT32 = ('layer_norm', 'group_norm', 'softmax', 'log_softmax') # on a GPU

@contextmanager
def _cpu_as_gpu()->Iterator[None]:
    "Let tensors of the CPU that have no numbers go through a step as those of a GPU would."
    def as_on_gpu(name, real):
        def operation(x, *args, **kwargs):
            if not torch.is_autocast_enabled('cpu'): return real(x, *args, **kwargs)
            with torch.autocast('cpu', enabled=False):
                return real(x.float() if name in IN_FLOAT32 else x, *args, **kwargs)
        return operation
    def numpy(x, **options): return to_numpy(torch.ones_like(x, device='cpu') if isinstance(x, FakeTensor) else x)
    to_numpy = Tensor.numpy
    changed = {name: as_on_gpu(name, getattr(F, name)) for name in (*AS_GIVEN, *IN_FLOAT32)}
    with (mock.patch.multiple(F, **changed), mock.patch.object(Tensor, 'numpy', numpy),
            PretendedGPU(strict=False)): yield

STEPS = 3 # that a method may take before its first loss
LENGTH = 100 # steps of a training whose last ones are traced: where there are stages, the last is the method

@lru_cache(64)
def _trace(recipe:Recipe, dtype:str, checkpointing:bool, videos:int)->Trace:
    parts, watch = _parts(recipe, videos, LENGTH, checkpointing), MemoryWatch()
    raw = next(iter(parts.batches))
    with _cpu_as_gpu():
        run = _state(parts, 'cpu', LENGTH - STEPS)
        with watch:
            _begin(run, watch)
            for _ in range(STEPS):
                begin = len(watch.operations)
                if _traced_step(run, watch, parts, raw, dtype):
                    return watch.trace(begin, sum(x.nbytes for x in raw.values() if isinstance(x, Tensor)))
    raise never_learned(run)

def _learn(run:TrainingState)->list[Tensor]: return [p for g in run.opt.param_groups for p in g['params']]

def _begin(run:TrainingState, watch:MemoryWatch)->None: # as after many steps; and what every tensor is for
    for p in _learn(run): p.grad = torch.zeros_like(p)
    run.opt.step() # makes the state of the optimizer
    run.opt.zero_grad()
    watch.holds((x for s in run.opt.state.values() for x in s.values() if isinstance(x, Tensor)), 'optimizer')
    watch.holds((*run.method.buffers(), *run.method.parameters()), 'momentum') # unless it learns
    for m in run.method.modules():
        if isinstance(m, Memory): watch.holds(m.buffers(), 'queue')
        elif any(p.requires_grad for p in m.parameters(recurse=False)):
            watch.holds((*m.buffers(False), *m.parameters(False)), 'weights')
        if isinstance(m, Queue): m.came = m.size # full

def _traced_step(run:TrainingState, watch:MemoryWatch, parts:Parts, raw:dict[str,Any], dtype:str)->bool:
    "One step; views are made on the pretended GPU, for on a CPU they are made in another way. Is there a loss?"
    def stream(): # the next batch is there already; what augments is read on the CPU
        following = None
        while True:
            here, following = following, _all_without_numbers(raw, 'cuda')
            watch.holds((x for x in following.values() if isinstance(x, Tensor)), 'inputs')
            if here: yield here
    def views(batch):
        watch.enter('inputs', 'cuda')
        made = parts.views(batch)
        watch.device = ''
        moved = _all_without_numbers(made, 'cpu')
        for k,x in made.items():
            if isinstance(x, Tensor): watch.exchange(x, moved[k])
        return moved
    def model(batch):
        watch.enter('forward')
        answer = run.method(batch)
        watch.enter('backward')
        return answer
    def update(*_):
        watch.holds((p.grad for p in _learn(run) if p.grad is not None), 'gradients')
        watch.enter('update')
    watch.enter('inputs', '')
    hook = run.opt.register_step_pre_hook(update)
    step = take_step(run, model, stream(), parts.batches, views, parts.schedule, # type: ignore[arg-type]
        torch.device('cpu'), DTYPES[dtype], parts.clip_norm)
    hook.remove()
    return step.loss is not None

def trace_step(
    recipe:Recipe,
    dtype:str='bfloat16', # of the forward pass, a key of `machine.DTYPES`
    activation_checkpointing:bool=False, # compute activations twice instead of keeping them
    batch:int|None=None, # videos; those of the recipe if None
    videos:int=9537, # to train on: the size of a memory bank (UCF101, split 1)
)->Trace:
    "One step of a recipe at its full size; a few seconds, and nothing when asked again."
    # as far as a step is concerned
    same = dict(name='', about='', dataset='any', epochs=1, drops=()) | ({'batch': batch} if batch else {})
    return _trace(override(recipe, **same), dtype, activation_checkpointing, videos)

# Memory and time

class StepMemory(dict[str,int]):
    "Bytes that are alive at the worst moment of a step, for each of HELD."
    @property
    def total(self)->int: return sum(self.values())

    def __str__(self):
        parts = sorted(((n, k) for k,n in self.items() if n >= 5e-3*self.total), reverse=True)
        return f'{_in_gb(self.total)}: ' + ', '.join(f'{k} {_in_gb(n)}' for n,k in parts)

def _in_gb(n:float)->str: return f'{n/1e9:.2f} GB' if n >= 1e8 else f'{n/1e6:.1f} MB'

def memory(
    recipe:Recipe, dtype:str='bfloat16', activation_checkpointing:bool=False, # as of `trace_step`
    batch:int|None=None, videos:int=9537,
    ahead:bool=True, # is the next batch there during the step? On a GPU it is
)->StepMemory:
    "The memory of a training step at its worst moment, without what `room_for_tensors` sets aside."
    trace = trace_step(recipe, dtype, activation_checkpointing, batch, videos)
    worst = StepMemory({k: int(v[trace.total.argmax()]) for k,v in trace.alive.items()})
    if not ahead: worst['inputs'] -= trace.raw # it is there all the time: the worst moment stays
    return worst

# as their names say, in units of 10^9; what devices report is a little more
GPUS = {'24 GB': 24*10**9, '40 GB': 40*10**9, '80 GB': 80*10**9, '141 GB': 141*10**9}

def room_for_tensors(
    size:float, # of a device, bytes
)->float: # bytes
    "What is left of a GPU for the tensors of a step. Assumed, not measured."
    # a context with loaded kernels takes a few hundred MB, cuBLAS and cuDNN some more; workspaces grow with the
    # tensors; an allocator that is given the same sizes in every step loses little
    return max(0., size - 10**9)/1.1

def largest_batch(
    recipe:Recipe,
    size:float, # bytes of the device, such as GPUS['24 GB']
    dtype:str='bfloat16', activation_checkpointing:bool=False, # as of `trace_step`
    videos:int=9537, # to train on
)->int: # 0: not even the smallest fits
    "The largest batch of one device: a multiple of the BatchNorm groups, at most the queue and the videos."
    learning, groups = recipe.learning, getattr(recipe.method, 'groups', None) or 1
    most = min(getattr(recipe.method, 'queue', 0) or videos, videos//learning.accumulate)
    def fitting(batch): # of every operation it is known for how many videos it leaves room
        trace = trace_step(recipe, dtype, activation_checkpointing, batch, videos)
        grows = sum(trace.alive[k] for k in ('inputs', 'activations', 'transient')) # with the batch
        n = (room_for_tensors(size) - (trace.total - grows))*batch/np.maximum(grows, 1)
        return max(0, min(int(n.min()), most)//groups*groups)
    n = fitting(learning.batch)
    return n if n <= 32*learning.batch else min(n, fitting(n)) # far away, similarities count: B x B

# NVIDIA's datasheet of the A100, SXM with 80 GB: dense FLOP a second (float32 without TF32), bytes a second
A100 = {'bfloat16': 312e12, 'float32': 19.5e12, 'bandwidth': 2.039e12}
FRACTION = .5 # of the bound that a training reaches; an assumption, to be replaced by what you measure

def roofline(
    trace:Trace,
    dtype:str='bfloat16', # of the products
    gpu:dict[str,float]=A100, # FLOP a second of each type, and the bandwidth of its memory
)->np.ndarray: # seconds that each operation takes at least
    "The slower of computing and moving."
    return np.maximum(trace.flops/gpu[dtype], trace.traffic/gpu['bandwidth'])

# to train on, by the dataset of a recipe: split 1 of UCF101; Kinetics-400 as far as it can still be downloaded,
# about; the training parts of Something-Something V2 and of the two larger toys
VIDEOS = {'UCF101': 9537, 'Kinetics-400': 240_000, 'Something-Something V2': 168_913, 'toy': 720,
    'toyfull': 7200}

@dataclass(frozen=True)
class Plan:
    "What a recipe takes."
    name:str
    clip:float # GFLOP of one clip, forward
    step:float # GFLOP of one step, all networks forward and backward
    batch:int # of the recipe
    memory:float # GB of a step
    recomputed:float # GB with recomputation
    batches:dict[str,tuple[int,int]] # for each of GPUS the largest batch, without and with recomputation
    bound:float # seconds of a step on an A100, by its roofline
    steps:int|None # of the training; None where the videos are not known
    hours:float|None # likewise, at FRACTION of the bound

def plan(
    recipe:Recipe,
    dtype:str='bfloat16', # of the forward pass
    videos:int|None=None, # to train on; None: as many as its dataset has
)->Plan:
    "What a recipe takes; two traces, so some seconds for S3D."
    known = videos or VIDEOS.get(recipe.dataset)
    blank, trace = BlankBatches(recipe, n := known or 9537), trace_step(recipe, dtype, videos=n)
    order, (_,T,S) = blank.batch_sampler, blank.shape
    bound, steps = float(roofline(trace, dtype).sum()), order.total if known else None
    plain, twice = (memory(recipe, dtype, again, videos=n).total/1e9 for again in (False, True))
    fits: Any = {gpu: tuple(largest_batch(recipe, size, dtype, again, n) for again in (False, True))
        for gpu,size in GPUS.items()}
    return Plan(recipe.name, cost(create(recipe.backbone), (T, S, S)).flops/1e9, float(trace.flops.sum())/1e9,
        order.batch, plain, twice, fits, bound, steps, steps and steps*bound/FRACTION/3600)

CPU_GFLOP = 500 # of a step that is taken on a CPU to look at the clock: some ten seconds on two cores

def forecast(
    recipe:Recipe,
    dtype:str='bfloat16', activation_checkpointing:bool=False, # as of `dry_run`
    videos:int|None=None, # to learn from; None: as many as its dataset has
    manifest:Manifest|None=None, # then steps are taken on this machine, unless they are too large for it
    machine:Machine=Machine(),
)->str: # a few lines
    "What a training will do and take. WrongDevice names the line that would fail on a GPU."
    n, clip, learning = videos or VIDEOS.get(recipe.dataset), recipe.clip, recipe.learning
    first, p = dry_run(recipe, dtype, activation_checkpointing, n or 9537), plan(recipe, dtype, videos)
    def seconds(step): return f'{step:.3g} s a step' + (f', {_duration(p.steps*step)} in all' if p.steps else '')
    steps = (f'{p.steps//learning.epochs:,} steps, {p.steps:,} in all, on {n:,} videos' if p.steps
        else 'as many steps as the videos make')
    fits = ', '.join(f'{a}{f" or {b}"*(a!=b)} ({gpu})' for gpu,(a,b) in p.batches.items())
    lines = [f'{recipe.name}: {learning.epochs} epochs of {steps}, {p.batch*learning.accumulate} to a step; '
        f'{recipe.sampling.clips} clips of {clip["length"]} frames (stride {clip["stride"]}) of {clip["size"]} px, '
        f'{" and ".join(recipe.views)}; {recipe.backbone}, {recipe.method.name}; {learning.optimizer}, '
        f'learning rate {learning.lr:g}', f'first steps: {first}',
        f'memory of a step in {dtype}: {p.memory:.2f} GB, {p.recomputed:.2f} with --activation-checkpointing; '
        f'largest batch: {fits}',
        f'time on an A100: {seconds(p.bound/FRACTION)} (computed: {p.step:,.0f} GFLOP, at {FRACTION:.0%} of '
        'what its data sheet allows)']
    if manifest and (training_device(recipe, machine.device).type=='cuda' or p.step <= CPU_GFLOP):
        lines.append(f'time here: {seconds(seconds_per_step(recipe, manifest, machine, 4.))} (measured)')
    return '\n'.join(lines)

def _duration(s:float)->str:
    if s < 100: return f'{s:.2g} s' if s < 10 else f'{s:.0f} s'
    return f'{s/60:.0f} minutes' if s < 6000 else f'{s/3600:,.1f} hours'

def describe_budget(
    recipe:Recipe,
    machine:Machine,
    processes:int=1, # that share the batch, one device each
    videos:int=9537, # to train on
)->str: # a few lines
    "What a step of one process will take. Call it before the processes have found each other."
    batch, groups = recipe.learning.batch//processes, getattr(recipe.method, 'groups', None)
    one = override(recipe, batch=batch, **({'groups': max(1, groups//processes)} if groups else {}))
    cuda, options = machine.place().type=='cuda', (machine.dtype, machine.activation_checkpointing)
    trace, sizes = trace_step(one, *options, videos=videos), GPUS
    if cuda: sizes = {f'this {torch.cuda.get_device_name()}': torch.cuda.get_device_properties().total_memory}
    fits = ', '.join(f'{largest_batch(one, n, *options, videos)} ({gpu})' for gpu,n in sizes.items())
    again = 'with recomputation' if machine.activation_checkpointing else 'activations kept'
    lines = [f'memory of a step ({batch} videos, {machine.dtype}, {again}): '
        f'{memory(one, *options, videos=videos, ahead=cuda)}',
        f'largest batch: {fits}; {trace.flops.sum()/1e9:,.0f} GFLOP a step']
    _, shared = shared_memory(trace.raw, machine.workers)
    if shared: lines.append(f'shared memory of {machine.workers} workers: up to {_in_gb(shared)} in /dev/shm')
    return '\n'.join(lines)
