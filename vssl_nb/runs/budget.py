"Will it fit, and how long will it take? The memory, the traffic and the FLOPs of a training step, counted before a GPU is booked."

import inspect
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.data import default_collate
from torch.utils.flop_counter import flop_registry

from ..nets.backbones import cost, create
from .parts import build_method, flow_is_live, training_draw, view_options
from ..training.machine import DTYPES, Machine, checkpoint_activations
from ..ssl.memory import Memory, Queue
from ..training.loop import make_optimizer
from ..names import load_object
from .pretended_gpu import PretendedGPU
from ..methods.recipes import Recipe, override
from ..training.loop import ResumableBatchSampler, TrainingState, never_learned, prefetch, prepare
from ..training.loop import shared_memory, take_step
from ..data.views import Views, streams, tvl1_live

class MemoryWatch(TorchDispatchMode):
    "Writes down what each operation on a device allocates, frees, reads, writes and computes."
    def __init__(self,
        device:str='cuda', # type of the device whose tensors count: pretended ones, or real ones of the CPU
    ):
        super().__init__()
        self.device, self.parts = device, ['setup']
        self.operations:list[tuple[int,str,int,int]] = [] # part, name, FLOP, bytes read and written
        self.events:list[tuple[int,int,int,int]] = [] # operation, storage, bytes that came or went, part
        self.known:dict[int,str] = {} # storage -> what it holds, where somebody said it
        self.alive:dict[int,tuple[int,Any]] = {} # address -> storage, and who tells when it is freed

    def enter(self, part:str)->None:
        "From here on, operations belong to this part of the step."
        self.parts.append(part)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        out, given = ([x for x in tree_leaves(t) if isinstance(x, Tensor) and x.device.type==self.device]
            for t in (made, (args, kwargs)))
        if out or given: _note(self, func, out, given, partial(_flops, func, args, kwargs, made))
        return made

    def storage(self, x:Tensor)->int: # a number of its own, although addresses are used again
        "Which memory a tensor lies in; from now on it is followed."
        at = x.untyped_storage()
        key, new, n = at._cdata, len(self.events), at.nbytes()
        if key in self.alive: return self.alive[key][0]
        def gone(_):
            self.alive.pop(key)
            self.events.append((len(self.operations), new, -n, len(self.parts) - 1))
        self.alive[key] = new, weakref.ref(at, gone)
        self.events.append((max(0, len(self.operations) - 1), new, n, len(self.parts) - 1))
        return new

    def holds(self, tensors:Iterable[Tensor], what:str)->None: # one of `HELD`
        "Say what some tensors are."
        for x in tensors:
            if x.device.type==self.device: self.known[self.storage(x)] = what

def _flops(func, args, kwargs, made)->int:
    count = flop_registry.get(func._overloadpacket)
    return int(count(*args, **kwargs, out_val=made)) if count else 0

# a view touches nothing: what it makes lies where what it was given lies
def _note(watch:MemoryWatch, func, out:list[Tensor], given:list[Tensor], flops:Callable[[], int])->None:
    places = {x.untyped_storage()._cdata for x in given}
    view = not func._schema.is_mutable and all(x.untyped_storage()._cdata in places for x in out)
    traffic = 0 if view else sum(x.numel()*x.itemsize for x in out + given)
    watch.operations.append((len(watch.parts) - 1, func._overloadpacket.__name__, flops(), traffic))
    for x in (*out, *given): watch.storage(x)

HELD = ('weights', 'momentum', 'gradients', 'optimizer', 'queue', 'inputs', 'activations', 'transient')

@dataclass(frozen=True, eq=False)
class Trace:
    "A step, operation by operation."
    parts:list[str] # 'inputs', 'forward', 'backward' or 'update'
    names:list[str] # of the operations, such as 'convolution'
    flops:np.ndarray # 2 for each multiply-add of products and convolutions
    traffic:np.ndarray # bytes read and written; views cost nothing
    alive:dict[str,np.ndarray] # for each of HELD, the bytes that are alive after each operation

    @property
    def total(self)->np.ndarray: return np.sum([*self.alive.values()], axis=0)

    def sums(self, of:np.ndarray)->dict[str,float]: # part -> sum over its operations
        "How much of it falls to each part."
        parts = np.array(self.parts)
        return {part: float(of[parts==part].sum()) for part in dict.fromkeys(self.parts)}

def trace_of(
    watch:MemoryWatch,
    begin:int=0, # the first operation of the step
)->Trace:
    "Sort what was written down."
    names = {'inputs': 'inputs', 'forward': 'activations'}
    born, died = ({s: part for _,s,n,part in watch.events if n*sign > 0} for sign in (1, -1))
    def holds(s):
        kept = names.get(watch.parts[born[s]]) if died.get(s)!=born[s] else None # by the part that made it
        return watch.known.get(s) or kept or 'transient'
    n = len(watch.operations)
    change = {what: np.zeros(n + 1, dtype=np.int64) for what in HELD}
    for i,s,size,_ in watch.events:
        if size: change[holds(s)][i] += size
    ops = watch.operations[begin:]
    flops, traffic = (np.array([o[i] for o in ops], dtype=float) for i in (2, 3))
    return Trace([watch.parts[o[0]] for o in ops], [o[1] for o in ops], flops, traffic,
        {k: v.cumsum()[begin:n] for k,v in change.items()})

def _blank(recipe:Recipe, batch:int)->dict[str,Any]: # one raw batch; a byte that is shown many times
    draw = training_draw(recipe)
    V, T, S, rng = recipe.sampling.clips, recipe.sampling.length, recipe.size, np.random.default_rng(0)
    sizes = {'clips': (batch,V,T,S,S,3), 'flow': (batch,V,T,S,S,3), 'pair': (batch,V,2,T,S,S)}
    load = streams(recipe.views, flow_is_live(recipe))
    ids, few = torch.arange(batch), min(batch, 128) # further videos are augmented as these are
    drawn = default_collate([draw(rng, V, T, 240, 320) for _ in range(few)])
    numbers = dict.fromkeys(('label', 'source', 'row', 'index'), ids)
    frames = {s: torch.zeros(1, dtype=torch.uint8).expand(sizes[s]) for s in load}
    return frames | numbers | {'bad': [], 'augment': {k: x[ids % few] for k,x in drawn.items()}}

def _method(recipe:Recipe, videos:int, checkpointing:bool)->tuple[Any, Views]:
    method: Any = build_method(recipe, videos)
    checkpoint_activations(method.encoder, checkpointing)
    # one iteration of the solver takes as much as the next
    live = partial(replace(tvl1_live, warps=1, inner=2), compiled=False)
    how = view_options(recipe) | ({'live': live} if flow_is_live(recipe) else {})
    return method, Views(recipe.views, **how, augmentation=recipe.augment.augmentation)

def _begun(method:Any, make_optimizer:Callable)->tuple[TrainingState, nn.Module]: # as after the first step
    method.to('cuda')
    run = TrainingState(method, make_optimizer(method))
    model = prepare(run, torch.device('cuda'), channels_last=True, compile=False)
    for p in _learn(run): p.grad = torch.zeros_like(p)
    run.opt.step() # the optimizer makes its state
    run.opt.zero_grad()
    for m in method.modules():
        if isinstance(m, Queue): m.came = m.size # full
    return run, model

def _learn(run:TrainingState)->list[Tensor]: return [p for g in run.opt.param_groups for p in g['params']]

def _say_what_is_there(watch:MemoryWatch, run:TrainingState)->None:
    method: Any = run.method
    learn = [m for m in method.modules() if any(p.requires_grad for p in m.parameters(recurse=False))]
    watch.holds((x for x in (*method.buffers(), *method.parameters())), 'momentum')
    watch.holds((x for m in learn for x in (*m.buffers(False), *m.parameters(False))), 'weights')
    for m in method.modules():
        if isinstance(m, Memory): watch.holds(m.buffers(), 'queue')
    watch.holds((x for s in run.opt.state.values() for x in s.values() if isinstance(x, Tensor)), 'optimizer')

# autograd's engine frees what a node saved as soon as the node has run; walked by hand, nobody does
def _freed_when_used()->saved_tensors_hooks: return saved_tensors_hooks(lambda x: [x], lambda box: box.pop())

def _step(watch:MemoryWatch, run:TrainingState, model:nn.Module, views:Callable, stream, batches:Any,
    dtype:str):
    def enter(part):
        watch.holds((p.grad for p in _learn(run) if p.grad is not None), 'gradients')
        watch.enter(part)
    def see(raw):
        enter('inputs')
        return views(raw)
    def forward(batch):
        enter('forward')
        with _freed_when_used(): answer = model(batch)
        enter('backward')
        return answer
    update = run.opt.register_step_pre_hook(lambda *_: enter('update'))
    enter('inputs')
    watched: Any = forward
    gpu = torch.device('cuda')
    result = take_step(run, watched, stream, batches, see, lambda epoch: 1., gpu, DTYPES[dtype])
    update.remove()
    return result

STEPS = 3 # that a method may take before its first loss
LENGTH = 100 # steps of a training whose last ones are traced: where there are stages, the last is the method

@lru_cache(64)
def _trace(recipe:Recipe, dtype:str, checkpointing:bool, videos:int)->Trace:
    how = recipe.learning
    method, views = _method(recipe, videos, checkpointing)
    def opt(m): return make_optimizer(m, how.optimizer, how.lr, how.weight_decay, how.sgd_momentum)
    return trace_training(method, opt, views, _blank(recipe, how.batch), how.accumulate, dtype)

def trace_training(
    method:nn.Module, # moved to the pretended GPU in place
    make_optimizer:Callable[[nn.Module], torch.optim.Optimizer],
    views:Callable, # as in `fit`
    raw:dict[str,Any], # a batch as a loader gives it
    accumulate:int=1, # batches of one optimizer step
    dtype:str='bfloat16', # of the forward pass, a key of `machine.DTYPES`
)->Trace:
    "One step of any training, on a pretended GPU."
    size = len(raw['row'])
    order = ResumableBatchSampler(size*accumulate*LENGTH, size, 1, accumulate=accumulate)
    batches: Any = SimpleNamespace(batch_sampler=order, dataset=SimpleNamespace(note=lambda bad: None))
    with PretendedGPU(strict=False), MemoryWatch() as watch:
        run, model = _begun(method, make_optimizer)
        _say_what_is_there(watch, run)
        run.step = LENGTH - STEPS
        for _ in range(STEPS):
            begin = len(watch.operations)
            stream = prefetch([dict(raw) for _ in range(accumulate + 1)], torch.device('cuda'))
            if _step(watch, run, model, views, stream, batches, dtype).loss is not None: break
        else: raise never_learned(run)
    return trace_of(watch, begin)

def trace_step(
    recipe:Recipe,
    dtype:str='bfloat16', # of the forward pass, a key of `machine.DTYPES`
    activation_checkpointing:bool=False, # compute activations twice instead of keeping them
    batch:int|None=None, # videos; those of the recipe if None
    videos:int=9537, # to train on: the size of a memory bank (UCF101, split 1)
)->Trace:
    "One step of a recipe at its full size, on a pretended GPU; a few seconds, and nothing when asked again."
    same = dict(name='', about='', dataset='any', epochs=1, drops=()) # as far as a step is concerned
    kind = load_object(recipe.method.method, f'the method {recipe.method.name}')
    videos = videos if 'videos' in inspect.signature(kind).parameters else 0 # else it has no memory bank
    plain = override(recipe, **same, batch=batch or recipe.learning.batch)
    return _trace(plain, dtype, activation_checkpointing, videos)

@dataclass(frozen=True)
class StepMemory:
    "Bytes that are alive at the worst moment of a step."
    weights:int # of the networks that learn, with the statistics of BatchNorm
    momentum:int # networks that follow or are frozen: the momentum encoder, CoCLR's sampler
    gradients:int # of the weights
    optimizer:int # Adam: two numbers for each weight
    queue:int # keys with their labels, or a memory bank
    inputs:int # raw clips, those of the next batch, and the float views
    activations:int # kept by the forward pass for the backward pass
    transient:int # what comes and goes within a part of the step
    when:str='' # part of the step

    @property
    def total(self)->int: return sum(getattr(self, k) for k in HELD)

    def __str__(self):
        parts = sorted(((getattr(self, k), k) for k in HELD), reverse=True)
        return f'{_gb(self.total)}: ' + ', '.join(f'{k} {_gb(n)}' for n,k in parts if n >= 5e-3*self.total)

def _gb(n:float)->str: return f'{n/1e9:.2f} GB' if n >= 1e8 else f'{n/1e6:.1f} MB'

def worst_moment(trace:Trace)->StepMemory:
    "What is alive when most is."
    at = int(trace.total.argmax())
    return StepMemory(**{k: int(v[at]) for k,v in trace.alive.items()}, when=trace.parts[at])

def memory(
    recipe:Recipe, dtype:str='bfloat16', activation_checkpointing:bool=False, # as of `trace_step`
    batch:int|None=None, videos:int=9537,
    ahead:bool=True, # is the next batch there during the step? On a GPU it is
)->StepMemory:
    "The memory of a training step at its worst moment, without what `RESERVE` is for."
    found = worst_moment(trace_step(recipe, dtype, activation_checkpointing, batch, videos))
    if ahead: return found
    raw = _blank(recipe, batch or recipe.learning.batch).values()
    following = sum(x.nbytes for x in raw if isinstance(x, Tensor))
    return replace(found, inputs=found.inputs - following) # it is there all the time: the worst moment stays

# as their names say, in units of 10^9; what devices report is a little more
GPUS = {'24 GB': 24*10**9, '40 GB': 40*10**9, '80 GB': 80*10**9, '141 GB': 141*10**9}

@dataclass(frozen=True)
class Reserve:
    "What a GPU needs besides the tensors of a step. Assumed, not measured."
    fixed:int # CUDA context, kernels, libraries and their workspaces, bytes
    share:float # of the tensors: workspaces that grow with them, holes between blocks of the allocator

    def left(self, size:float)->float: # bytes of a device -> bytes for tensors
        return max(0., size - self.fixed)/(1 + self.share)

# a context with loaded kernels takes a few hundred MB, cuBLAS and cuDNN some more; an allocator that rounds
# to 2 MiB blocks and is given the same sizes in every step loses little, and a tenth is on the safe side
RESERVE = Reserve(fixed=10**9, share=.1)

GROW = ('inputs', 'activations', 'transient') # with the batch

def fitting_videos(
    trace:Trace,
    batch:int, # of its step, videos
    room:float, # bytes
)->int: # negative where not even the weights fit
    "How many videos have room in every moment of a step."
    grows = np.sum([trace.alive[k] for k in GROW], axis=0)
    return int(((room - (trace.total - grows))*batch/np.maximum(grows, 1)).min())

def largest_batch(
    recipe:Recipe,
    size:float, # bytes of the device, such as GPUS['24 GB']
    dtype:str='bfloat16', activation_checkpointing:bool=False, # as of `trace_step`
    videos:int=9537, # to train on
    reserve:Reserve=RESERVE, # what to leave free
)->int: # 0: not even the smallest fits
    "The largest batch of one device: a multiple of the BatchNorm groups, at most the queue and the videos."
    method: Any = recipe.method
    groups, queue = getattr(method, 'groups', None) or 1, getattr(method, 'queue', 0)
    def fitting(batch):
        n = fitting_videos(trace_step(recipe, dtype, activation_checkpointing, batch, videos), batch,
            reserve.left(size))
        return max(0, min(n, queue or n, videos//recipe.learning.accumulate)//groups*groups)
    n = fitting(recipe.learning.batch)
    return n if n <= 32*recipe.learning.batch else min(n, fitting(n)) # far away, similarities count: B x B

def loader_memory(
    recipe:Recipe,
    workers:int, # processes that decode, for each process that computes
)->int: # bytes
    "Shared memory of the workers when all of them are as far ahead as `train.loader` lets them be."
    rows = recipe.learning.batch
    one = sum(x.nbytes for x in tree_leaves(_blank(recipe, 1)) if isinstance(x, Tensor))
    return shared_memory(rows*one, workers)[1]

@dataclass(frozen=True)
class Speeds:
    "What a device can do at best, per second."
    bfloat16:float # FLOP of matrix products, without sparsity
    float32:float # FLOP; 'highest' precision, not TF32
    bandwidth:float # bytes between memory and processors

A100 = Speeds(312e12, 19.5e12, 2.039e12) # NVIDIA, A100 datasheet: SXM with 80 GB

def roofline(
    trace:Trace,
    speeds:Speeds=A100,
    dtype:str='bfloat16', # of the products
)->np.ndarray: # seconds that each operation takes at least
    "The slower of computing and moving."
    return np.maximum(trace.flops/getattr(speeds, dtype), trace.traffic/speeds.bandwidth)

FRACTION = .5 # of the bound that a training reaches; an assumption, to be replaced by what you measure
# to train on, by the second word of a recipe's name: UCF101 split 1; Kinetics-400 as far as it can still be
# downloaded, about; the toy's train split
VIDEOS = dict(ucf101=9537, k400=240_000, toyfull=7200, toy=720)

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
    hours:float|None # of the training, at FRACTION of the bound; None where nobody knows the videos

def hours(recipe:Recipe, seconds:float, videos:int)->float: # of a step; to train on
    "Hours of a training."
    per_epoch = videos//(recipe.learning.batch*recipe.learning.accumulate)
    return recipe.learning.epochs*per_epoch*seconds/3600

def plan(recipe:Recipe, dtype:str='bfloat16')->Plan:
    "A row of the table: two walks, so ten seconds for S3D."
    known = VIDEOS.get((recipe.name.split('-') + [''])[1])
    videos, clip = known or 9537, (recipe.sampling.length, recipe.size, recipe.size)
    trace = trace_step(recipe, dtype, videos=videos)
    bound = float(roofline(trace, dtype=dtype).sum())
    plain, twice = (memory(recipe, dtype, again, videos=videos).total/1e9 for again in (False, True))
    fits: Any = {gpu: tuple(largest_batch(recipe, size, dtype, again, videos) for again in (False, True))
        for gpu,size in GPUS.items()}
    return Plan(recipe.name, cost(create(recipe.backbone), clip).flops/1e9, float(trace.flops.sum())/1e9,
        recipe.learning.batch, plain, twice, fits, bound, known and hours(recipe, bound/FRACTION, known))

def describe_budget(
    recipe:Recipe,
    machine:Machine,
    processes:int=1, # that share the batch, one device each
    videos:int=9537, # to train on
)->str: # a few lines
    "What a step of one process will take. Call it before the processes have found each other."
    one = _share(recipe, processes)
    cuda, how = machine.place().type=='cuda', (machine.dtype, machine.activation_checkpointing)
    found, trace = memory(one, *how, videos=videos, ahead=cuda), trace_step(one, *how, videos=videos)
    sizes = {f'this {torch.cuda.get_device_name()}': _device_bytes()} if cuda else GPUS
    fits = ', '.join(f'{largest_batch(one, n, *how, videos)} ({gpu})' for gpu,n in sizes.items())
    again = 'with recomputation' if machine.activation_checkpointing else 'activations kept'
    lines = [f'memory of a step ({one.learning.batch} videos, {machine.dtype}, {again}): {found}',
        f'largest batch: {fits}; {trace.flops.sum()/1e9:,.0f} GFLOP a step']
    if machine.workers:
        shared = loader_memory(one, machine.workers)
        lines.append(f'shared memory of {machine.workers} workers: up to {_gb(shared)} in /dev/shm')
    return '\n'.join(lines)

def _device_bytes()->int: return torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory

def _share(recipe:Recipe, processes:int)->Recipe: # what one of them computes
    if processes < 2: return recipe
    groups = getattr(recipe.method, 'groups', None)
    fewer = {'groups': max(1, groups//processes)} if groups else {}
    return override(recipe, batch=recipe.learning.batch//processes, **fewer)
