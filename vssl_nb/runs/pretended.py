"""A GPU that is not there: its tensors have no numbers, and what would go wrong on it is found.

Two tools that PyTorch documents for this, though under names with an underscore, do the work:
`FakeTensorMode` makes tensors without numbers, `TorchDispatchMode` sees every operation.
"""

import math
import os
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

PRETENDED_MEMORY = 80 * 10**9  # bytes


@cache
def _fake() -> FakeTensorMode:  # one: tensors outlive the walk that made them
    # autograd starts its threads now: one for a device that is pretended later would forbid forks
    torch.zeros(1, requires_grad=True).sum().backward()
    return FakeTensorMode(allow_non_fake_inputs=True)


def without_numbers(
    x: Tensor,
    device: Any,  # device that need not exist
    **options,  # of `empty_like`
) -> Tensor:
    "A tensor of this shape and these strides on a device, without numbers; takes no memory."
    like = torch.empty_like(x.detach(), device="meta", **options)
    with _fake():
        made = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=device)
    return nn.Parameter(made, x.requires_grad) if isinstance(x, nn.Parameter) else made


def all_without_numbers(
    batch: dict[str, Any],
    device: str,
) -> dict[str, Any]:  # its tensors there
    return {k: without_numbers(x, device) if isinstance(x, Tensor) else x for k, x in batch.items()}


def tensors_within(
    x: Any,  # arguments or results of an operation: tensors in lists, tuples and dicts
) -> Iterator[Tensor]:
    "All tensors, in their order."
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, dict):
        for value in x.values():
            yield from tensors_within(value)
    elif isinstance(x, (list, tuple)):
        for value in x:
            yield from tensors_within(value)


def _with_tensors(
    change,  # tensor -> what takes its place
    x: Any,  # as of `tensors_within`
) -> Any:
    if isinstance(x, Tensor):
        return change(x)
    if isinstance(x, dict):
        return {k: _with_tensors(change, v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return type(x)([_with_tensors(change, v) for v in x])
    return x


def _by_ones(
    func,
    args,
    kwargs,
) -> Any:
    "The result of an operation whose outcome depends on numbers: let all of them be 1."
    if func._schema.is_mutable:
        return args[0]

    def ones(x: Tensor) -> Tensor:
        return torch.ones((), dtype=x.dtype).expand(x.shape)

    given = tensors_within((args, kwargs))
    device = next(x.device for x in given if isinstance(x, FakeTensor))
    args, kwargs = _with_tensors(ones, (args, kwargs))
    return _with_tensors(lambda x: without_numbers(x, device), func(*args, **kwargs))


class WaitForDevice(RuntimeError):
    "On a GPU, the CPU would wait here until all before is done."


class WrongDevice(RuntimeError):
    "A tensor of the CPU among those of the GPU."


def _line() -> str:
    "The innermost line that is neither torch's nor of this module."
    inside = os.path.dirname(torch.__file__), __file__, "<frozen"
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith(inside):
            return f"{os.path.basename(frame.filename)}, line {frame.lineno}: {frame.line}"
    return "an unknown line"


class _Event:
    "An event or a stream; a wait for one of them is a wait for one thing, not for all before it."

    def __init__(self, *args, **kwargs):
        pass

    def record(self, *args) -> bool:
        return True

    synchronize = query = wait_stream = wait_event = record

    def elapsed_time(self, other) -> float:
        return 0.0


@torch.no_grad()
def _apply(module: nn.Module, fn, recurse: bool = True) -> nn.Module:
    """What `module.to` does, with new parameters instead of new memory in the old ones: make
    optimizers afterwards.
    """
    for layer in module.modules() if recurse else (module,):
        for name, p in list(layer.named_parameters(recurse=False)):
            x = fn(p)
            if x is not p:
                setattr(layer, name, nn.Parameter(x, p.requires_grad))
        for name, b in list(layer.named_buffers(recurse=False)):
            setattr(layer, name, fn(b))
    return module


_engine = torch.autograd.backward


def _backward(loss: Tensor, *args, **kwargs) -> None:
    "Gradients without numbers for all leaves: on `cuda` the engine would look for a driver."
    if not loss.is_cuda:
        return _engine(loss, *args, **kwargs)

    nodes: list[Any] = [loss.grad_fn]
    known = {None, *nodes}
    for node in nodes:  # grows
        leaf = getattr(node, "variable", None)
        if leaf is not None and leaf.grad is None:
            leaf.grad = torch.zeros_like(leaf)
        before = {n for n, _ in node.next_functions} - known
        known |= before
        nodes += before


class _MadeOnCPU(TorchFunctionMode):
    "Numbers of Python come to the pretended device as a copy, and not by its driver."

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        device = kwargs.get("device")
        if func in (torch.tensor, torch.as_tensor, torch.asarray) and device is not None:
            if torch.device(device).type == "cuda":
                del kwargs["device"]
                return func(*args, **kwargs).to(device)
        return func(*args, **kwargs)


class PretendedGPU(TorchDispatchMode):
    "Inside, `cuda` is there: its tensors have shapes and no numbers. Those of the CPU are real."

    def __init__(
        self,
        strict: bool = True,  # raise WaitForDevice; False: note it, and what is read is 1
    ):
        super().__init__()
        self.strict = strict
        self.patches = ExitStack()
        self.waits: dict[str, None] = {}  # what made the CPU wait, with its line; in this order
        # address of a storage -> a tensor in it, which keeps the address taken
        self.pinned: dict[int, Tensor] = {}

    def __enter__(self):
        with _fake():
            pass  # tells torch that a device may be named without a driver
        enter, leave = torch.no_grad.__enter__, torch.no_grad.__exit__
        for change in (
            mock.patch.multiple(torch.cuda, **self._driver()),
            mock.patch.object(nn.Module, "_apply", _apply),
            mock.patch.object(torch.autograd, "backward", _backward),
            mock.patch.object(Tensor, "record_stream", lambda x, stream: None),
            # where operations that are made of others come by as a whole
            mock.patch.multiple(torch.inference_mode, __enter__=enter, __exit__=leave),
            _MadeOnCPU(),
        ):
            self.patches.enter_context(change)
        return super().__enter__()

    def __exit__(self, *error):
        self.patches.close()
        return super().__exit__(*error)

    def _driver(self) -> dict[str, Any]:
        "What `torch.cuda` answers."

        def synchronize(device=None):
            self.wait("torch.cuda.synchronize")

        # torch's own switch for an error at a wait
        def set_sync_debug_mode(mode):
            self.strict = mode in ("error", 2)

        return dict(
            _lazy_init=lambda: None,
            is_available=lambda: True,
            is_bf16_supported=lambda *a, **k: True,
            device_count=lambda: 1,
            current_device=lambda: 0,
            set_device=lambda device: None,
            get_device_name=lambda device=None: "a pretended GPU",
            get_device_properties=lambda device=None: SimpleNamespace(
                total_memory=PRETENDED_MEMORY
            ),
            Stream=_Event,
            Event=_Event,
            stream=nullcontext,
            current_stream=lambda device=None: _Event(),
            synchronize=synchronize,
            set_sync_debug_mode=set_sync_debug_mode,
            _sleep=lambda cycles: None,
        )

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        tensors = list(tensors_within((args, kwargs)))
        host = [x for x in tensors if not isinstance(x, FakeTensor)]
        to = torch.device(kwargs.get("device") or "meta").type  # meta: none is named
        if to != "cuda" and len(host) == len(tensors):
            return self._on_cpu(func, args, kwargs)
        # else those of `trace_step`
        if to == "cuda" or any(x.is_cuda for x in tensors):
            if func is torch.ops.aten.copy_.default and host:
                return self._copy(*args, **kwargs)
            if func is torch.ops.aten._to_copy.default and (host or to == "cpu"):
                return self._move(*args, **kwargs)
            if any(x.ndim for x in host):
                raise WrongDevice(f"{func} is given tensors of the CPU and of the GPU at {_line()}")
        return self._on_gpu(func, args, kwargs)

    def _on_gpu(self, func, args, kwargs) -> Any:
        "An operation on tensors without numbers."
        # changes its arguments, such as a fused optimizer
        if not func._schema.returns:
            return None
        try:
            with _fake():
                return func(*args, **kwargs)
        except DataDependentOutputException:
            self.wait("a number is read from the GPU")
        except DynamicOutputShapeException:
            self.wait(f"{func}: how much comes out depends on numbers")
        return _by_ones(func, args, kwargs)

    @torch.no_grad()
    def _on_cpu(self, func, args, kwargs) -> Any:
        "An operation on real tensors; what is too large to be real comes out without numbers."
        sizes = sorted(x.numel() for x in tensors_within((args, kwargs)))[-2:]
        pairs = torch.Tag.pointwise in func.tags and math.prod(sizes) > 2**26
        if not func._schema.is_mutable and (pairs or not sizes):
            with _fake():
                new = func(*args, **kwargs)
            if getattr(new, "nbytes", 0) > 2**28:
                return new

        if func is torch.ops.aten.is_pinned.default:
            return _address(args[0]) in self.pinned
        if func is torch.ops.aten._pin_memory.default:
            return self.pin(args[0].clone())
        pin = kwargs.pop("pin_memory", None)
        made = func(*args, **kwargs)
        return self.pin(made) if pin else made

    def wait(
        self,
        reason: str,
    ) -> None:
        "The CPU waits here."
        if self.strict:
            raise WaitForDevice(f"{reason} at {_line()}") from None
        self.waits[f"{reason} at {_line()}"] = None

    def pin(
        self,
        x: Tensor,  # of the CPU
    ) -> Tensor:
        "Let its memory count as pinned."
        self.pinned[_address(x)] = x
        return x

    def _copy(
        self,
        into: Tensor,  # this or `x` is of the CPU
        x: Tensor,  # this or `into` is of the CPU
        non_blocking: bool = False,
    ) -> Tensor:
        way, host = ("to", x) if isinstance(into, FakeTensor) else ("from", into)
        if not (non_blocking and _address(host) in self.pinned):
            self.wait(f"a copy {way} the GPU that is not from pinned memory and non_blocking")
        return into if way == "to" else into.fill_(1)

    def _move(
        self,
        x: Tensor,
        device,
        dtype=None,
        non_blocking=False,
        memory_format=None,
        **_,
    ) -> Tensor:
        if isinstance(x, FakeTensor):
            # from the GPU, torch makes the new tensor in pinned memory
            into = self.pin(torch.empty(x.shape, dtype=dtype or x.dtype))
        else:
            layout = memory_format or torch.preserve_format
            into = without_numbers(x, device, dtype=dtype, memory_format=layout)
        return self._copy(into, x, non_blocking)


def _address(x: Tensor) -> int:
    "Of its memory: torch gives the same object again as long as a tensor lies in it."
    return id(x.untyped_storage())
