"""Will it fit, how long will it take, and will it get through its first step? Counted before a GPU is booked.

A step is walked twice at its full size, with tensors that have a shape and no numbers. `dry_run`: all but the
backward pass on a pretended `cuda` device, which finds tensors on the wrong device and waits for the device.
`trace_step`: the whole step on the CPU, backward by autograd itself; counts its bytes and its FLOP.
"""

import copy, math, os, time, traceback, weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry

from ..data.manifest import Manifest
from ..measure.features import clips_together
from ..measure.protocols import Protocol
from ..methods.recipes import RECIPES, flat_fields, override
from ..config import Recipe
from ..ssl.memory import Memory, Queue
from ..training.loop import TrainingState, fit, never_learned, prepare, shared_memory, take_step
from ..distributed import apart, world_size
from ..training.machine import (
    DTYPES,
    Machine,
    MachineError,
    backend_settings,
    checkpoint_activations,
)
from ..training.machine import free_memory
from .parts import Parts, build, method_numbers, training_device


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


def _all_without_numbers(batch: dict[str, Any], device: str) -> dict[str, Any]:
    return {k: without_numbers(x, device) if isinstance(x, Tensor) else x for k, x in batch.items()}


def _by_ones(
    func,
    args,
    kwargs,
) -> Any:  # what comes out depends on numbers: let all of them be 1
    if func._schema.is_mutable:
        return args[0]

    def ones(x):
        return torch.ones((), dtype=x.dtype).expand(x.shape)

    device = next(x.device for x in tree_leaves((args, kwargs)) if isinstance(x, FakeTensor))
    args, kwargs = tree_map_only(Tensor, ones, (args, kwargs))
    return tree_map_only(Tensor, lambda x: without_numbers(x, device), func(*args, **kwargs))


class WaitForDevice(RuntimeError):
    "On a GPU, the CPU would wait here until all before is done."


class WrongDevice(RuntimeError):
    "A tensor of the CPU among those of the GPU."


def _line() -> str:  # the innermost one that is neither torch's nor of this module
    inside = os.path.dirname(torch.__file__), __file__, "<frozen"
    f = next(f for f in reversed(traceback.extract_stack()) if not f.filename.startswith(inside))
    return f"{os.path.basename(f.filename)}, line {f.lineno}: {f.line}"


# or a stream; a wait for one of them is a wait for one thing, and not for all that came before
class _Event:
    def __init__(self, *args, **kwargs):
        pass

    def record(self, *args) -> bool:
        return True

    synchronize = query = wait_stream = wait_event = record

    def elapsed_time(self, other) -> float:
        return 0.0


# what `module.to` does, with new parameters instead of new memory in the old ones: make optimizers
# afterwards
@torch.no_grad()
def _apply(module: nn.Module, fn, recurse: bool = True) -> nn.Module:
    for m in module.modules() if recurse else (module,):
        for name, p in m._parameters.items():
            if p is not None and (x := fn(p)) is not p:
                m._parameters[name] = nn.Parameter(x, p.requires_grad)
        m._buffers.update({name: None if b is None else fn(b) for name, b in m._buffers.items()})
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


class PretendedGPU(TorchDispatchMode):
    "Inside, `cuda` is there: its tensors have shapes and no numbers. Those of the CPU are real."

    def __init__(
        self,
        strict: bool = True,  # raise WaitForDevice; False: note it, and what is read is 1
    ):
        super().__init__()
        self.strict, self.patches = strict, ExitStack()
        self.waits: dict[str, None] = {}  # what made the CPU wait, with its line; in this order
        # storage -> a tensor in it, which keeps the address taken
        self.pinned: dict[int, Tensor] = {}

    def __enter__(self):
        def synchronize(device=None):
            self.wait("torch.cuda.synchronize")

        def debug(
            mode,
        ):  # torch's own switch for an error at a wait
            self.strict = mode in ("error", 2)

        cuda: Any = dict(
            _lazy_init=lambda: None,
            is_available=lambda: True,
            is_bf16_supported=lambda *a, **k: True,
            device_count=lambda: 1,
            current_device=lambda: 0,
            set_device=lambda device: None,
            get_device_name=lambda device=None: "a pretended GPU",
            get_device_properties=lambda device=None: SimpleNamespace(total_memory=GPUS["80 GB"]),
            Stream=_Event,
            Event=_Event,
            stream=nullcontext,
            current_stream=lambda device=None: _Event(),
            synchronize=synchronize,
            set_sync_debug_mode=debug,
            _sleep=lambda cycles: None,
        )
        with _fake():
            pass  # tells torch that a device may be named without a driver
        self.patches.callback(
            torch._C._set_only_lift_cpu_tensors, torch._C._only_lift_cpu_tensors()
        )
        # torch.tensor(…, device='cuda') comes by as a copy
        torch._C._set_only_lift_cpu_tensors(True)
        enter, leave = torch.no_grad.__enter__, torch.no_grad.__exit__
        for change in (
            mock.patch.multiple(torch.cuda, **cuda),
            mock.patch.object(nn.Module, "_apply", _apply),
            mock.patch.object(torch.autograd, "backward", _backward),
            mock.patch.object(Tensor, "record_stream", lambda x, stream: None),
            # where operations that are made of others come by as a whole
            mock.patch.multiple(torch.inference_mode, __enter__=enter, __exit__=leave),
        ):
            self.patches.enter_context(change)
        return super().__enter__()

    def __exit__(self, *error):
        self.patches.close()
        return super().__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        host = [x for x in tensors if not isinstance(x, FakeTensor)]
        to = torch.device(kwargs.get("device") or "meta").type  # meta: none is named
        if to != "cuda" and len(host) == len(tensors):
            sizes = sorted(x.numel() for x in tensors)[-2:]
            pairs = torch.Tag.pointwise in func.tags and math.prod(sizes) > 2**26
            if not func._schema.is_mutable and (pairs or not sizes):
                with _fake():
                    new = func(*args, **kwargs)  # perhaps too large to be real
                if getattr(new, "nbytes", 0) > 2**28:
                    return new
            return self._on_cpu(func, args, kwargs)
        if to == "cuda" or any(x.is_cuda for x in tensors):  # else those of `trace_step`
            aten = torch.ops.aten
            if func is aten.copy_.default and host:
                return self._copy(*args, **kwargs)
            if func is aten._to_copy.default and (host or to == "cpu"):
                return self._move(*args, **kwargs)
            if any(x.ndim for x in host):
                raise WrongDevice(f"{func} is given tensors of the CPU and of the GPU at {_line()}")
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

    def wait(
        self,
        reason: str,
    ) -> None:  # the CPU waits here
        if self.strict:
            raise WaitForDevice(f"{reason} at {_line()}") from None
        self.waits[f"{reason} at {_line()}"] = None

    def pin(
        self,
        x: Tensor,
    ) -> Tensor:  # let memory of the CPU count as pinned
        self.pinned[x.untyped_storage()._cdata] = x
        return x

    @torch.no_grad()
    def _on_cpu(self, func, args, kwargs) -> Any:
        if func is torch.ops.aten.is_pinned.default:
            return args[0].untyped_storage()._cdata in self.pinned
        if func is torch.ops.aten._pin_memory.default:
            return self.pin(args[0].clone())
        pin = kwargs.pop("pin_memory", None)
        made = func(*args, **kwargs)
        return self.pin(made) if pin else made

    def _copy(
        self,
        into: Tensor,  # this or `x` is of the CPU
        x: Tensor,  # this or `into` is of the CPU
        non_blocking: bool = False,
    ) -> Tensor:
        way, host = ("to", x) if isinstance(into, FakeTensor) else ("from", into)
        if not (non_blocking and host.untyped_storage()._cdata in self.pinned):
            self.wait(f"a copy {way} the GPU that is not from pinned memory and non_blocking")
        return into if way == "to" else into.fill_(1)

    def _move(
        self, x: Tensor, device, dtype=None, non_blocking=False, memory_format=None, **_
    ) -> Tensor:
        # from the GPU, torch makes the new tensor in pinned memory
        into = (
            self.pin(torch.empty(x.shape, dtype=dtype or x.dtype))
            if isinstance(x, FakeTensor)
            else without_numbers(
                x, device, dtype=dtype, memory_format=memory_format or torch.preserve_format
            )
        )
        return self._copy(into, x, non_blocking)


def _parts(recipe: Recipe, videos: int, steps: int, checkpointing: bool) -> Parts:
    "The parts of a training of so many steps, on videos of 101 classes that need not exist."
    wide = any(v > 2**16 for v, _ in method_numbers(recipe).values())  # a queue, a layer
    parts = build(recipe, videos, within=partial(torch.device, "meta") if wide else nullcontext)
    checkpoint_activations(parts.method.encoder, checkpointing)  # type: ignore[arg-type]
    parts.batches.batch_sampler.total = parts.batches.batch_sampler.per_epoch = steps
    if parts.views.live:  # one iteration of the solver of flow takes as much as the next
        parts.views.live = partial(replace(parts.views.live, warps=1, inner=2), compiled=False)  # type: ignore
    return parts


def _state(parts: Parts, device: str, step: int = 0) -> TrainingState:
    "Method and optimizer on a device, without numbers."

    def layout(x):
        return torch.channels_last_3d if x.ndim == 5 else torch.preserve_format

    tensors = (*parts.method.parameters(), *parts.method.buffers())
    memo = {id(x): without_numbers(x, device, memory_format=layout(x)) for x in tensors}
    return TrainingState(*copy.deepcopy((parts.method, parts.optimizer), memo), step)


@dataclass(frozen=True)
class DryRun:
    "What the first steps on a GPU would do."

    learned: tuple[bool, ...]  # has the step a loss?
    logs: tuple[str, ...]  # what the method reports in the last step
    waits: tuple[str, ...]  # where the CPU waits for the GPU within a step, with the line

    def __str__(self):
        quiet = "" if all(self.learned) else " (no loss in the first: a queue has to fill)"
        waits = "but the CPU waits" if self.waits else "and the CPU never waits"
        return "\n".join(
            [
                f"{len(self.learned)} steps, every tensor in its place, {waits}{quiet}; it reports "
                f"{', '.join(self.logs)}",
                *(f"warning: the CPU waits for the GPU: {w}" for w in self.waits),
            ]
        )


def dry_run(
    recipe: Recipe,
    dtype: str = "bfloat16",  # of the forward pass, a key of `machine.DTYPES`
    # compute activations twice instead of keeping them
    activation_checkpointing: bool = False,
    videos: int = 9537,  # to train on: the size of a memory bank (UCF101, split 1)
) -> DryRun:
    """The first two steps of a recipe at its full size on a pretended GPU.

    WrongDevice names the line.
    """
    parts = _parts(recipe, videos, 2, activation_checkpointing)
    learned, waits = list[bool](), dict[str, None]()
    with PretendedGPU(strict=False) as gpu:
        run, parts.batches.pin = _state(parts, "cuda"), gpu.pin
        prepare(run, torch.device("cuda"))
        gpu.waits.clear()  # to set up may wait
        for step in fit(
            run,
            parts.batches,
            parts.views,
            parts.schedule,
            "cuda",
            DTYPES[dtype],
            clip_norm=parts.clip_norm,
        ):
            waits |= gpu.waits
            learned.append(step.loss is not None)
            for m in run.method.modules():
                if isinstance(m, Queue):
                    m.came = m.size  # full
            step.read()
            gpu.waits.clear()  # who reads what a step brings may wait
    return DryRun(tuple(learned), tuple(step.logs), tuple(waits))


HELD = (
    "weights",
    "momentum",
    "gradients",
    "optimizer",
    "queue",
    "inputs",
    "activations",
    "transient",
)
# NVIDIA's datasheet of the A100, SXM with 80 GB: dense FLOP a second (float32 without TF32), bytes
# a second
A100 = {"bfloat16": 312e12, "float32": 19.5e12, "bandwidth": 2.039e12}


@dataclass(frozen=True, eq=False)
class Trace:
    "A step, operation by operation."

    parts: np.ndarray  # of str: 'inputs', 'forward', 'backward' or 'update'
    flops: np.ndarray  # 2 for each multiply-add of products and convolutions
    traffic: np.ndarray  # bytes read and written; views cost nothing
    # for each of HELD, the bytes that are alive after each operation
    alive: dict[str, np.ndarray]
    raw: int = 0  # bytes of a batch as it comes to the device

    @property
    def total(self) -> np.ndarray:
        return np.sum([*self.alive.values()], axis=0)

    def peak(
        self,
        ahead: bool = True,
    ) -> dict[str, int]:  # for each of HELD, bytes
        """What is alive at the worst moment; with the next batch, which is there all the time on a
        GPU.
        """
        worst = {k: int(v[self.total.argmax()]) for k, v in self.alive.items()}
        return worst | {"inputs": worst["inputs"] - (not ahead) * self.raw}

    def bound(
        self,
        dtype: str,  # of the products
    ) -> float:  # seconds
        """What an A100 takes at least: of every operation, the slower of computing and moving
        (roofline).
        """
        return float(np.maximum(self.flops / A100[dtype], self.traffic / A100["bandwidth"]).sum())


class MemoryWatch(TorchDispatchMode):
    "Records what each operation allocates, frees, reads, writes and computes."

    def __init__(
        self,
        kind: type[Tensor] = FakeTensor,  # of the tensors that count; Tensor: all of them
    ):
        super().__init__()
        self.kind, self.parts = kind, ["setup"]  # of the step
        self.operations: list[tuple[int, int, int]] = []  # part, FLOP, bytes read and written
        # bytes; born and died: operation, part of the step; held: one of HELD, if it was named
        self.storages: list[SimpleNamespace] = []
        # address -> storage, and a weak reference to it
        self.alive: dict[int, tuple[SimpleNamespace, Any]] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        out, given = (
            [x for x in tree_leaves(t) if isinstance(x, self.kind)] for t in (made, (args, kwargs))
        )
        if not out and not given:
            return made
        places = {x.untyped_storage()._cdata for x in given}
        view = not func._schema.is_mutable and all(
            x.untyped_storage()._cdata in places for x in out
        )
        count = flop_registry.get(func._overloadpacket)
        flop = int(count(*args, **kwargs, out_val=made)) if count else 0
        # a view touches nothing
        traffic = 0 if view else sum(x.numel() * x.itemsize for x in out + given)
        self.operations.append((len(self.parts) - 1, flop, traffic))
        for x in (*out, *given):
            self.storage(x)
        return made

    def storage(self, x: Tensor) -> SimpleNamespace:
        "The memory of a tensor; from now on it is followed."
        at, now = x.untyped_storage(), (max(0, len(self.operations) - 1), len(self.parts) - 1)
        if (key := at._cdata) not in self.alive:
            new = SimpleNamespace(bytes=at.nbytes(), born=now, died=None, held="")

            def gone(_):
                self.alive.pop(key)
                new.died = len(self.operations), len(self.parts) - 1

            self.storages.append(new)
            self.alive[key] = new, weakref.ref(at, gone)
        return self.alive[key][0]

    def holds(
        self,
        tensors: Iterable[Any],
        held: str,  # one of HELD
    ) -> None:
        "Name what some tensors are for."
        for x in tensors:
            if isinstance(x, self.kind):
                self.storage(x).held = held

    def trace(
        self,
        begin: int = 0,  # the first operation of the step
        raw: int = 0,  # as of `Trace`
    ) -> Trace:
        """What was recorded, by what it is for: as it was named, or as it outlived the part that
        made it.
        """
        n, outlive = len(self.operations), {"inputs": "inputs", "forward": "activations"}
        change = {held: np.zeros(n + 1, dtype=np.int64) for held in HELD}
        for s in self.storages:
            (born, part), (died, last) = s.born, s.died or (n, -1)
            held = s.held or last != part and outlive.get(self.parts[part]) or "transient"
            change[held][born] += s.bytes
            change[held][died] -= s.bytes
        parts, flops, traffic = zip(*self.operations[begin:])
        return Trace(
            np.array(self.parts)[[*parts]],
            np.array(flops, float),
            np.array(traffic, float),
            {k: v.cumsum()[begin:n] for k, v in change.items()},
            raw,
        )


# of `torch.nn.functional`: what autocast treats otherwise on a GPU than on a CPU; puts it into
# float32?
AUTOCAST = dict.fromkeys(
    ("max_pool3d", "avg_pool3d", "adaptive_avg_pool3d", "adaptive_max_pool3d"), False
) | dict.fromkeys(("layer_norm", "group_norm", "softmax", "log_softmax"), True)


def _as_on_gpu(real, in_float32: bool, x: Tensor, *args, **kwargs) -> Any:
    if not torch.is_autocast_enabled("cpu"):
        return real(x, *args, **kwargs)
    with torch.autocast("cpu", enabled=False):
        return real(x.float() if in_float32 else x, *args, **kwargs)


STEPS = 3  # that a method may take before its first loss
# steps of a training whose last ones are traced: where there are stages, the last is the method
LENGTH = 100


@lru_cache(64)
def _trace(recipe: Recipe, dtype: str, checkpointing: bool, videos: int) -> Trace:
    "Of one step; its views are made on the pretended GPU, for a CPU makes them in another way."
    parts, watch = _parts(recipe, videos, LENGTH, checkpointing), MemoryWatch()
    raw, seen = next(iter(parts.batches)), list[Any]()
    run = _state(parts, "cpu", LENGTH - STEPS)

    def upload():
        batch = _all_without_numbers(raw, "cuda")
        watch.holds(batch.values(), "inputs")
        return batch

    def views(
        batch,
    ):  # those on the GPU live as long as their copies on the CPU, which count for 0
        watch.parts.append("inputs")
        seen.append(parts.views(batch))
        copies = _all_without_numbers(seen[0], "cpu")
        for x in copies.values():
            if isinstance(x, Tensor):
                watch.storage(x).bytes = 0
        return copies

    def model(batch):
        watch.parts.append("forward")
        answer = run.method(batch)
        watch.parts.append("backward")
        return answer

    network = cast(nn.Module, model)
    autocast: Any = {
        k: partial(_as_on_gpu, getattr(nn.functional, k), v) for k, v in AUTOCAST.items()
    }
    with mock.patch.multiple(nn.functional, **autocast), PretendedGPU(strict=False), watch:
        # as after many steps; and what every tensor is for
        learn = [p for g in run.opt.param_groups for p in g["params"]]
        for p in learn:
            p.grad = torch.zeros_like(p)
        run.opt.step()  # makes the state of the optimizer
        run.opt.zero_grad()
        watch.holds((x for s in run.opt.state.values() for x in s.values()), "optimizer")
        # unless it learns
        watch.holds((*run.method.buffers(), *run.method.parameters()), "momentum")
        for m in run.method.modules():
            if isinstance(m, Memory):
                watch.holds(m.buffers(), "queue")
            elif any(p.requires_grad for p in m.parameters(recurse=False)):
                watch.holds((*m.buffers(False), *m.parameters(False)), "weights")
            if isinstance(m, Queue):
                m.came = m.size  # full

        def update(*_):
            watch.holds((p.grad for p in learn), "gradients")
            watch.parts.append("update")

        run.opt.register_step_pre_hook(update)
        ahead = upload()  # noqa: F841 (the next batch is there already)
        for _ in range(STEPS):
            seen.clear()
            begin = len(watch.operations)
            step = take_step(
                run,
                network,
                iter(upload, None),
                parts.batches,
                views,
                parts.schedule,
                torch.device("cpu"),
                DTYPES[dtype],
                parts.clip_norm,
            )
            if step.loss is not None:
                return watch.trace(
                    begin, sum(x.nbytes for x in raw.values() if isinstance(x, Tensor))
                )
    raise never_learned(run)


def trace_step(
    recipe: Recipe,
    dtype: str = "bfloat16",
    activation_checkpointing: bool = False,  # as of `dry_run`
    videos: int = 9537,  # as of `dry_run`
    batch: int | None = None,  # videos of a step; those of the recipe if None
) -> Trace:
    "One step of a recipe at its full size; a few seconds, and nothing when asked again."
    same = dict(name="", about="", dataset="any", epochs=1, drops=()) | (
        {"batch": batch} if batch else {}
    )
    return _trace(override(recipe, **same), dtype, activation_checkpointing, videos)


# as their names say, in units of 10^9; what devices report is a little more
GPUS = {"24 GB": 24 * 10**9, "40 GB": 40 * 10**9, "80 GB": 80 * 10**9, "141 GB": 141 * 10**9}


def largest_batch(
    recipe: Recipe,
    size: float,  # bytes of the device, such as GPUS['24 GB']
    dtype: str = "bfloat16",  # as of `trace_step`
    activation_checkpointing: bool = False,  # as of `trace_step`
    videos: int = 9537,  # as of `trace_step`
) -> int:  # 0: not even the smallest fits
    """The largest batch of one device: a multiple of the BatchNorm groups, at most the queue and
    the videos.
    """
    method, learning = recipe.method, recipe.learning
    groups = getattr(method, "groups", None) or 1
    most = min(getattr(method, "queue", 0) or videos, videos // learning.accumulate)
    # assumed: kernels take 1 GB; workspaces and holes grow with the tensors
    room = max(0.0, size - 10**9) / 1.1

    def fitting(
        batch,
    ):  # of every operation it is known for how many videos it leaves room
        trace = trace_step(recipe, dtype, activation_checkpointing, videos, batch)
        # with the batch
        grows = sum(trace.alive[k] for k in ("inputs", "activations", "transient"))
        n = (room - (trace.total - grows)) * batch / np.maximum(grows, 1)
        return max(0, min(int(n.min()), most) // groups * groups)

    n = fitting(learning.batch)
    # far away, similarities count: B x B
    return n if n <= 32 * learning.batch else min(n, fitting(n))


# of the bound that a training reaches; one step of S3D on an H200: .18, in float32 .25
FRACTION = 0.2
# dataset of a recipe -> videos to train on: split 1 of UCF101; about what can still be had of
# Kinetics-400
VIDEOS = {
    "UCF101": 9537,
    "Kinetics-400": 240_000,
    "Something-Something V2": 168_913,
    "toy": 720,
    "toyfull": 7200,
}


def plan(
    recipe: Recipe,
    dtype: str = "bfloat16",  # of the forward pass
    videos: int | None = None,  # to train on; None: as many as its dataset has
) -> dict[str, Any]:  # plain values by name
    "What a recipe takes; two traces, so some seconds for S3D."
    known, learning = videos or VIDEOS.get(recipe.dataset), recipe.learning
    trace, again = (trace_step(recipe, dtype, a, known or 9537) for a in (False, True))
    seconds = trace.bound(dtype) / FRACTION
    steps = learning.epochs * (known // (learning.batch * learning.accumulate)) if known else None
    return {
        "name": recipe.name,
        # GFLOP of one step, all networks forward and backward
        "step": float(trace.flops.sum()) / 1e9,
        "batch": learning.batch,
        "memory": trace.total.max() / 1e9,  # GB of a step
        "recomputed": again.total.max() / 1e9,  # GB with recomputation
        # for each of GPUS the largest batch, without and with recomputation
        "batches": {
            gpu: tuple(largest_batch(recipe, size, dtype, a, known or 9537) for a in (False, True))
            for gpu, size in GPUS.items()
        },
        "seconds": seconds,  # of a step on an A100, at FRACTION of its bound
        "steps": steps,  # of the training; None where the videos are not known
        "hours": None if steps is None else steps * seconds / 3600,
    }  # likewise


def seconds_per_step(
    recipe: Recipe, manifest: Manifest, machine: Machine = Machine(), limit: float = 8.0
) -> float:
    """Seconds of an optimizer step, decoding included; steps are taken for `limit` s, after the
    first two.
    """
    # 40 steps
    device, epochs = training_device(recipe, machine.device), flat_fields(recipe)["epochs"] + 40
    refuse_too_large(recipe, len(manifest), device, machine)
    p = build(override(recipe, epochs=epochs), manifest, device, machine)
    times = [time.monotonic()]
    steps: Any = fit(
        TrainingState(p.method, p.optimizer),
        p.batches,
        p.views,
        p.schedule,
        device,
        DTYPES[machine.dtype],
        clip_norm=p.clip_norm,
    )
    with backend_settings(machine):
        for result in steps:
            result.read()  # waits for the device
            times.append(time.monotonic())
            if len(times) > 3 and (times[-1] - times[2] > limit or len(times) > 40):
                break
    steps.close()
    # the first two wait for workers, or find batches prepared
    return float(np.diff(times)[2:].mean())


def forecast(
    recipe: Recipe,
    dtype: str = "bfloat16",  # as of `dry_run`
    activation_checkpointing: bool = False,  # as of `dry_run`
    videos: int | None = None,  # to learn from; None: as many as its dataset has
    manifest: Manifest | None = None,  # where given, steps are taken, unless they are too large
    machine: Machine = Machine(),
) -> str:  # a few lines
    "What a training will do and take. WrongDevice names the line that would fail on a GPU."
    n, learning = videos or VIDEOS.get(recipe.dataset), recipe.learning
    first, p = (
        dry_run(recipe, dtype, activation_checkpointing, n or 9537),
        plan(recipe, dtype, videos),
    )
    total = p["steps"]

    def duration(s):
        return f"{s:.3g} s" if s < 100 else f"{s / 3600:,.3g} hours"

    def seconds(s):
        return f"{s:.3g} s a step" + (f", {duration(total * s)} in all" if total else "")

    steps = (
        "as many steps as the videos make"
        if total is None
        else f"{total // learning.epochs:,} steps, {total:,} in all, on {n:,} videos"
    )
    fits = ", ".join(f"{a}{f' or {b}' * (a != b)} ({gpu})" for gpu, (a, b) in p["batches"].items())
    clips = " and ".join(
        f"{group.sampling.clips} clips of {group.sampling.length} frames (stride "
        f"{group.sampling.stride}) of {group.size} px"
        for group in recipe.groups.values()
    )
    lines = [
        f"{recipe.name}: {learning.epochs} epochs of {steps}, "
        f"{learning.batch * learning.accumulate} to a "
        f"step; {clips}, {' and '.join(recipe.views)}; {recipe.backbone}, {recipe.method.name}; "
        f"{learning.optimizer}, learning rate {learning.lr:g}",
        f"first steps: {first}",
        f"memory of a step in {dtype}: {p['memory']:.2f} GB, {p['recomputed']:.2f} with "
        f"--activation-checkpointing; largest batch: {fits}",
        f"time on an A100: {seconds(p['seconds'])} (computed: {p['step']:,.0f} GFLOP, at "
        f"{FRACTION:.0%} of "
        "what its data sheet allows)",
    ]
    # a step of 500 GFLOP takes some ten seconds on two cores
    if manifest and (p["step"] <= 500 or training_device(recipe, machine.device).type == "cuda"):
        lines.append(
            f"time here: {seconds(seconds_per_step(recipe, manifest, machine, 4.0))} (measured)"
        )
    return "\n".join(lines)


def in_gb(n: float) -> str:
    return f"{n / 1e9:.2f} GB" if n >= 1e8 else f"{n / 1e6:.1f} MB"


def part_of(recipe: Recipe, processes: int) -> Recipe:
    "What one of several processes does of each step."
    groups = getattr(recipe.method, "groups", None)
    return override(
        recipe,
        batch=recipe.learning.batch // processes,
        **({"groups": max(1, groups // processes)} if groups else {}),
    )


PIXEL = 3 * (1 + 4)  # bytes of a pixel of a clip: as it is read, and as a view


def refuse_too_large(
    recipe: Recipe,
    videos: int,  # to train on
    device: torch.device,
    machine: Machine,  # precision and recomputation are read here
) -> None:
    """Refuse, before anything of it is allocated, a step that cannot fit into the memory.

    `MachineError`.
    """
    room, processes = free_memory(device), world_size()

    def clips(r):
        return (
            sum(
                r.learning.batch * g.sampling.clips * g.sampling.length * g.size**2
                for g in r.groups.values()
            )
            / processes
            * PIXEL
        )

    def need(**changes):
        one = override(recipe, **changes)
        if clips(one) > room:
            return clips(one)
        with apart():
            trace = trace_step(
                part_of(one, processes), machine.dtype, machine.activation_checkpointing, videos
            )
        return sum(trace.peak(device.type == "cuda").values())

    now, numbers = flat_fields(recipe), method_numbers(recipe)
    usual = {k: v for k, (_, v) in numbers.items()} | flat_fields(RECIPES.get(now["name"], recipe))
    wider = max((v for k, (v, _) in numbers.items() if v > (usual[k] or 0)), default=0)
    # so little that it is not traced
    if 100 * clips(recipe) + 4 * (wider * now["batch"]) ** 2 < room:
        return
    _refuse(now["name"], need, now, usual, room)


def refuse_large_clips(
    encoder: nn.Module,
    p: Protocol,
    usual: Mapping[str, Any],  # the encoder's clip in training
    batch: int,
    device: torch.device,
) -> None:
    "The same for the clips that go through an encoder together when it is measured."
    room, weights = free_memory(device), (*encoder.parameters(), *encoder.buffers())

    def need(**changes):
        q = replace(p, **changes)
        shape = clips_together(device, q, batch), 3, q.length, q.size, q.size
        # with the numbers of the frames of a video
        clips = math.prod(shape) * PIXEL / 3 + 8 * q.clips * q.length
        if clips > room or 100 * clips < room:
            return clips
        watch, memo = MemoryWatch(), {id(x): without_numbers(x, "cpu") for x in weights}
        with PretendedGPU(strict=False), watch, torch.no_grad():
            copy.deepcopy(encoder, memo).eval()(
                without_numbers(torch.empty(shape, device="meta"), "cpu")
            )
        return clips + watch.trace().total.max()

    _refuse(
        f"protocol {p.name}",
        need,
        {k: getattr(p, k) for k in ("clips", "length", "size")},
        usual or vars(Protocol()),
        room,
    )


def _refuse(
    title: str,
    need: Callable[..., float],  # bytes, with some fields changed
    now: Mapping[str, Any],  # fields
    usual: Mapping[str, Any],  # fields
    room: float,  # bytes
) -> None:
    """Name the field that is the furthest above its usual value, and a value of it that fits.

    `MachineError`.
    """
    try:
        most = need()
    except Exception:
        return  # the training finds the same error, and has words for it
    if most <= room:
        return

    def above(name):
        return (now[name] / max(1, usual.get(name) or 1)) ** (1 + (name == "size")), name == "batch"

    for name in sorted(
        (k for k, v in now.items() if type(v) is int and v > 1), key=above, reverse=True
    ):
        value, less = now[name], most
        while value > 1:
            # an eighth of the room, as clips are not all of a step; but no less than usual
            least, before = min(value - 1, usual.get(name) or 1), less
            value = max(least, 2 ** int(math.log2(max(1, min(value - 1, value * room / less / 8)))))
            try:
                less = need(**{name: value})
            except Exception:
                break  # something forbids so small a value
            if less <= room:
                raise MachineError(
                    f"{title}: {name}={now[name]} takes {in_gb(most)} of memory, "
                    f"and {in_gb(room)} are free; {name}={value} fits ({in_gb(less)})"
                )
            if less == before:
                break  # it takes none
    raise MachineError(
        f"{title}: takes {in_gb(most)} of memory, and {in_gb(room)} are free; take a smaller "
        "backbone, or a machine with more"
    )


def describe_budget(
    recipe: Recipe,
    machine: Machine,
    processes: int = 1,  # that share the batch, one device each
    videos: int = 9537,  # to train on
) -> str:  # a few lines
    "What a step of one process will take. Call it before the processes have found each other."
    one = part_of(recipe, processes)
    cuda, options = (
        machine.place().type == "cuda",
        (machine.dtype, machine.activation_checkpointing, videos),
    )
    trace, sizes = trace_step(one, *options), GPUS
    if cuda:
        sizes = {
            f"this {torch.cuda.get_device_name()}": torch.cuda.get_device_properties().total_memory
        }
    fits = ", ".join(f"{largest_batch(one, n, *options)} ({gpu})" for gpu, n in sizes.items())
    peak, (_, shared) = trace.peak(cuda), shared_memory(trace.raw, machine.workers)
    held = ", ".join(
        f"{k} {in_gb(n)}"
        for n, k in sorted(((n, k) for k, n in peak.items()), reverse=True)
        if n >= 5e-3 * sum(peak.values())
    )
    return "\n".join(
        [
            f"memory of a step ({one.learning.batch} videos, {machine.dtype}, "
            f"{'with recomputation' if machine.activation_checkpointing else 'activations kept'}): "
            f"{in_gb(sum(peak.values()))}: {held}",
            f"largest batch: {fits}; {trace.flops.sum() / 1e9:,.0f} GFLOP a step",
        ]
        + [f"shared memory of {machine.workers} workers: up to {in_gb(shared)} in /dev/shm"]
        * (shared > 0)
    )
