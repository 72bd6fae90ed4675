"A pretended GPU: tensors on `cuda` that have shapes and no numbers, so that a training step can be walked through on a machine without one."

import os
import traceback
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from functools import cache
from itertools import count
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

class WaitForDevice(RuntimeError):
    "On a GPU, the CPU would wait here until all that came before is done."

class WrongDevice(RuntimeError):
    "A tensor of the CPU among those of the GPU."

def _asked()->str: # the line that is to blame: the innermost one that is not torch's, nor this page's
    torchs, here = os.path.dirname(torch.__file__), _asked.__code__.co_filename
    for f in reversed(traceback.extract_stack()):
        if not f.filename.startswith((torchs, '<frozen')) and f.filename!=here:
            return f'{os.path.basename(f.filename)}, line {f.lineno}' + (f': {f.line}' if f.line else '')
    return 'torch itself'

aten = torch.ops.aten
# change their arguments and return nothing; torch has not written down what they do to shapes
_NO_SHAPES = (aten._fused_sgd_.default, aten._fused_sgd_.tensor_lr)
_BY_MASK = (aten.nonzero.default, aten.index.Tensor)

@cache
def _fake()->FakeTensorMode: return FakeTensorMode() # one: tensors outlive the pretence that made them

class PretendedGPU(TorchDispatchMode):
    "Inside, `cuda` is there: its tensors have shapes and no numbers. Those of the CPU are real."
    def __init__(self,
        strict:bool=True, # raise where the CPU would wait; False: every number is 1 where it is read
    ):
        super().__init__()
        self.strict, self.operations = strict, 0 # on the GPU, views of tensors counted
        self.fake, self.patches = _fake(), ExitStack()
        self.pinned:dict[int,Tensor] = {} # storage -> a tensor in it, which keeps the address taken

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if torch.is_inference_mode_enabled() and func.namespace=='aten' and func._can_decompose():
            return self._part_by_part(func, args, kwargs) # elsewhere torch has done that by now
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        host = [x for x in tensors if not isinstance(x, FakeTensor)]
        to = torch.device(kwargs.get('device') or 'meta').type # meta: none is named
        if to!='cuda' and len(host)==len(tensors): return _on_cpu(self, func, args, kwargs)
        self.operations += 1
        if func is aten.copy_.default and host: return _copy(self, *args, **kwargs)
        if func is aten._to_copy.default and host: return _upload(self, *args, **kwargs)
        if func is aten._to_copy.default and to=='cpu': return _download(self, *args, **kwargs)
        if func in _NO_SHAPES: return None
        if any(x.ndim for x in host):
            raise WrongDevice(f'{func} is given tensors of the CPU and of the GPU at {_asked()}')
        if host: args, kwargs = tree_map_only(Tensor, self.as_fake, (args, kwargs))
        try:
            with self.fake: return func(*args, **kwargs)
        except DataDependentOutputException:
            if self.strict: raise WaitForDevice(f'a number is read from the GPU at {_asked()}') from None
            return {torch.bool: True, torch.float32: 1.}.get(args[0].dtype, 1)
        except DynamicOutputShapeException:
            if not self.strict and func in _BY_MASK: return _all_true(self, func, args)
            raise WaitForDevice(f'{func}: how much comes out depends on numbers at {_asked()}') from None

    def __enter__(self):
        _enter(self)
        return super().__enter__()

    def __exit__(self, *error):
        self.patches.close()
        return super().__exit__(*error)

    def _part_by_part(self, func, args, kwargs):
        TorchDispatchMode.__enter__(self) # what it is made of comes by here, too
        try: return func.decompose(*args, **kwargs)
        finally: TorchDispatchMode.__exit__(self, None, None, None)

    def as_fake(self, x:Tensor)->FakeTensor:
        return x if isinstance(x, FakeTensor) else self.fake.from_tensor(x)
    def is_pinned(self, x:Tensor)->bool: return x.untyped_storage()._cdata in self.pinned
    def pin(self, x:Tensor)->Tensor:
        "Let memory of the CPU count as pinned."
        self.pinned[x.untyped_storage()._cdata] = x
        return x

@torch.no_grad()
def _on_cpu(gpu:PretendedGPU, func, args, kwargs)->Any:
    if func is aten.is_pinned.default: return gpu.is_pinned(args[0])
    if func is aten._pin_memory.default: return gpu.pin(args[0].clone())
    pin = kwargs.pop('pin_memory', None)
    made = func(*args, **kwargs)
    return gpu.pin(made) if pin else made

_MUST = 'that is not from pinned memory and non_blocking'

def _copy(gpu:PretendedGPU, into:Tensor, x:Tensor, non_blocking:bool=False)->Tensor:
    up = isinstance(into, FakeTensor)
    if gpu.strict and not (non_blocking and gpu.is_pinned(x if up else into)):
        way = 'to the GPU' if up else 'from the GPU'
        raise WaitForDevice(f'a copy {way} {_MUST} at {_asked()}')
    return into if up else into.fill_(1)

def _upload(gpu:PretendedGPU, x:Tensor, **how)->Tensor:
    if gpu.strict and not (how.get('non_blocking') and gpu.is_pinned(x)):
        raise WaitForDevice(f'a copy to the GPU {_MUST} at {_asked()}')
    like = torch.empty_like(x, device='meta', dtype=how.get('dtype'), # the strides it will have
        memory_format=how.get('memory_format') or torch.preserve_format)
    with gpu.fake:
        return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=how['device'])

def _all_true(gpu:PretendedGPU, func, args)->Tensor: # what a mask chooses when all its numbers are 1
    def places(mask): return [torch.zeros(mask.numel(), dtype=torch.long, device=mask.device)]*mask.ndim
    with gpu.fake:
        if func is aten.nonzero.default: return torch.stack(places(args[0]), 1)
        masks = [i is not None and i.dtype==torch.bool for i in args[1]]
        return func(args[0], [p for i,mask in zip(args[1], masks) for p in (places(i) if mask else [i])])

def _download(gpu:PretendedGPU, x:Tensor, **how)->Tensor:
    if gpu.strict and not how.get('non_blocking'): # torch takes pinned memory for one that is
        raise WaitForDevice(f'a copy from the GPU that is not non_blocking at {_asked()}')
    return gpu.pin(torch.ones(x.shape, dtype=how.get('dtype') or x.dtype))

class _Event:
    def __init__(self, *args, **kwargs): pass
    def record(self, *args): pass
    def synchronize(self): pass # whoever waits for an event asks for this one thing, and knows it
    def query(self)->bool: return True
    def elapsed_time(self, other)->float: return 0.

class _Stream(_Event):
    def wait_stream(self, other): pass
    def wait_event(self, event): pass

def _cuda(gpu:PretendedGPU)->dict[str,Any]: # what `torch.cuda` says inside
    def synchronize(device=None):
        if gpu.strict: raise WaitForDevice(f'torch.cuda.synchronize at {_asked()}')
    def debug(mode): gpu.strict = mode in ('error', 2) # torch's own way to ask for an error at a wait
    return dict(_lazy_init=lambda: None, is_available=lambda: True, is_bf16_supported=lambda *a, **k: True,
        device_count=lambda: 1, current_device=lambda: 0, set_device=lambda device: None,
        get_device_name=lambda device=None: 'a pretended GPU', Stream=_Stream, Event=_Event,
        stream=nullcontext, current_stream=lambda device=None: _Stream(), synchronize=synchronize,
        set_sync_debug_mode=debug, _sleep=lambda cycles: None)

@cache
def no_device_threads()->None:
    "Let autograd start its threads before a device is pretended: one for that device would forbid forks."
    torch.zeros(1, requires_grad=True).sum().backward()

def _enter(gpu:PretendedGPU)->None:
    no_device_threads()
    with gpu.fake: pass # tells torch that a device may be named without a driver
    lift = torch._C._only_lift_cpu_tensors() # torch.tensor(…, device='cuda') comes by as a copy
    torch._C._set_only_lift_cpu_tensors(True)
    gpu.patches.callback(torch._C._set_only_lift_cpu_tensors, lift)
    gpu.patches.enter_context(mock.patch.multiple(torch.cuda, **_cuda(gpu)))
    gpu.patches.enter_context(mock.patch.object(torch.autograd, 'backward', walk_backward))
    gpu.patches.enter_context(mock.patch.object(Tensor, 'record_stream', lambda x, stream: None))
    gpu.patches.enter_context(mock.patch.object(nn.Module, '_apply', _apply))

# what `module.to` does, with new parameters instead of new memory in the old ones: make optimizers afterwards
@torch.no_grad()
def _apply(module:nn.Module, fn, recurse:bool=True)->nn.Module:
    done:dict[int,Any] = {} # shared parameters stay shared
    for m in module.modules() if recurse else (module,):
        for name,p in m._parameters.items():
            if p is None or (moved := fn(p)) is p: continue
            m._parameters[name] = done.setdefault(id(p), nn.Parameter(moved, p.requires_grad))
        for name,b in m._buffers.items(): m._buffers[name] = None if b is None else fn(b)
    return module

_task = count(2**40)

@torch.no_grad()
def walk_backward(
    tensors:Tensor|Sequence[Tensor], # scalars
    *args, **kwargs, # of `torch.autograd.backward`: not used
)->None:
    "Fill `.grad` of every leaf that the tensors depend on, node by node; hooks are not called."
    # recomputed activations are kept under the number of the backward pass that asks for them
    with mock.patch.object(torch._C, '_current_graph_task_id', lambda task=next(_task): task):
        _walk([tensors] if isinstance(tensors, Tensor) else list(tensors))

def _walk(roots:list[Tensor])->None:
    found:dict[Any,dict[int,Tensor]] = {x.grad_fn: {x.output_nr: torch.ones_like(x)} for x in roots}
    waiting = _uses(list(found))
    ready = [node for node in found if not waiting.get(node)]
    while ready:
        node = ready.pop()
        grads = found.pop(node, {})
        if hasattr(node, 'variable'): # a leaf
            leaf = node.variable
            if grads: leaf.grad = grads[0].clone() if leaf.grad is None else leaf.grad + grads[0]
            continue
        given = [grads.get(i) for i in range(len(node._input_metadata))]
        made = (getattr(node, 'apply', node) if grads else lambda *g: None)(*given)
        made = made if isinstance(made, tuple) else (made,)*len(node.next_functions)
        for grad,(before,i) in zip(made, node.next_functions):
            if before is None: continue
            if grad is not None: _add(found.setdefault(before, {}), i, grad, before._input_metadata[i])
            waiting[before] -= 1
            if not waiting[before]: ready.append(before)

def _uses(roots:list)->dict[Any,int]: # node -> how many gradients it waits for
    uses, open_, seen = dict[Any,int](), list(roots), set(roots)
    while open_:
        for before,_ in open_.pop().next_functions:
            if before is None: continue
            uses[before] = uses.get(before, 0) + 1
            if before not in seen: open_.append(before)
            seen.add(before)
    return uses

def _add(grads:dict[int,Tensor], i:int, grad:Tensor, of)->None:
    # what was broadcast forward is summed backward
    if grad.shape!=of.shape: grad = grad.sum_to_size(of.shape)
    if grad.dtype!=of.dtype: grad = grad.to(of.dtype)
    grads[i] = grads[i] + grad if i in grads else grad
