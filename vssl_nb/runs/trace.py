"""A step of a training at its full size, with tensors that have a shape and no numbers.

It is walked in two ways. `dry_run`: all but the backward pass on a pretended `cuda` device, which
finds tensors on the wrong device and waits for the device. `trace_step`: the whole step on the CPU,
backward by autograd itself; counts its bytes and its FLOP.
"""

import copy
import weakref
from collections.abc import Iterable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from ..data.views import Views
from ..ssl.memory import Memory, Queue
from ..training.loop import StepResult, TrainingState, fit, never_learned, prepare, take_step
from ..training.machine import DTYPES, Machine
from .experiment import Experiment
from .pretended import PretendedGPU, all_without_numbers, tensors_within, without_numbers

# -- what is walked


def whole_numbers(
    settings: Any,  # of a method
) -> dict[str, tuple[int, int]]:  # field -> value and default
    "The fields of some settings that are whole numbers: lengths of queues, widths of layers."
    numbers = {}
    for f in fields(settings):
        value = getattr(settings, f.name)
        if type(value) is int:
            numbers[f.name] = (value, f.default if type(f.default) is int else 0)
    return numbers


def made_for_walking(
    bare: Experiment,  # on blank videos; stays as it is
    steps: int,  # of the training
) -> Experiment:
    "An experiment whose method is made, without memory where that would be large."
    experiment = replace(bare)
    numbers = whole_numbers(experiment.recipe.method).values()
    wide = any(value > 2**16 for value, _ in numbers)  # a queue, a layer
    with torch.device("meta") if wide else nullcontext():
        experiment.method

    order: Any = experiment.batches.batch_sampler
    order.total = order.per_epoch = steps
    return experiment


def views_for_walking(experiment: Experiment) -> Views:
    "Its views; one iteration of a solver of flow takes as much as the next."
    live: Any = experiment.view_options.get("live")
    if live is None:
        return experiment.views
    return experiment.views_with(live=partial(replace(live, warps=1, inner=2), compiled=False))


def state_without_numbers(
    experiment: Experiment,
    device: str,  # where its tensors pretend to be
    step: int = 0,  # optimizer steps taken so far
) -> TrainingState:
    "A copy of method and optimizer."

    def layout(x: Tensor) -> torch.memory_format:
        return torch.channels_last_3d if x.ndim == 5 else torch.preserve_format

    method, optimizer = experiment.method, experiment.optimizer
    tensors = (*method.parameters(), *method.buffers())
    memo = {id(x): without_numbers(x, device, memory_format=layout(x)) for x in tensors}
    return TrainingState(*copy.deepcopy((method, optimizer), memo), step)


def fill_queues(method: nn.Module) -> None:
    "Let queues count as full: a method may wait for that."
    for module in method.modules():
        if isinstance(module, Queue):
            module.came = module.size


def walked(
    experiment: Experiment,
    activation_checkpointing: bool,
    **fields,  # of the recipe, to change
) -> Experiment:  # nothing of it is made
    "What is walked in place of an experiment: the same on blank videos, on the CPU."
    machine = Machine("cpu", activation_checkpointing=activation_checkpointing)
    return replace(experiment.without_videos(**fields), machine=machine)


# -- on a pretended GPU


@dataclass(frozen=True)
class DryRun:
    "What the first steps on a GPU would do."

    learned: tuple[bool, ...]  # has the step a loss?
    logs: tuple[str, ...]  # what the method reports in the last step
    waits: tuple[str, ...]  # where the CPU waits for the GPU within a step, with the line

    def __str__(self):
        waits = "but the CPU waits" if self.waits else "and the CPU never waits"
        quiet = "" if all(self.learned) else " (no loss in the first: a queue has to fill)"
        lines = [
            f"{len(self.learned)} steps, every tensor in its place, {waits}{quiet}; it reports "
            f"{', '.join(self.logs)}"
        ]
        lines += [f"warning: the CPU waits for the GPU: {wait}" for wait in self.waits]
        return "\n".join(lines)


def dry_run(
    experiment: Experiment,
    dtype: str = "bfloat16",  # of the forward pass, a key of `machine.DTYPES`
    # compute activations twice instead of keeping them
    activation_checkpointing: bool = False,
) -> DryRun:
    """The first two steps of a training at its full size on a pretended GPU.

    WrongDevice names the line.
    """
    made = made_for_walking(walked(experiment, activation_checkpointing), 2)
    batches: Any = made.batches
    learned, waits = list[bool](), dict[str, None]()
    with PretendedGPU(strict=False) as gpu:
        run = state_without_numbers(made, "cuda")
        batches.pin = gpu.pin
        prepare(run, torch.device("cuda"))
        gpu.waits.clear()  # to set up may wait
        for step in fit(
            run,
            batches,
            views_for_walking(made),
            made.schedules,
            "cuda",
            DTYPES[dtype],
            clip_norm=made.clip_norm,
        ):
            waits |= gpu.waits
            learned.append(step.loss is not None)
            fill_queues(run.method)
            step.read()
            gpu.waits.clear()  # who reads what a step brings may wait
    return DryRun(tuple(learned), tuple(step.logs), tuple(waits))


# -- operation by operation

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
        at = self.total.argmax()
        worst = {name: int(size[at]) for name, size in self.alive.items()}
        if not ahead:
            worst["inputs"] -= self.raw
        return worst

    def bound(
        self,
        dtype: str,  # of the products
    ) -> float:  # seconds
        """What an A100 takes at least: of every operation, the slower of computing and moving
        (roofline).
        """
        computing = self.flops / A100[dtype]
        moving = self.traffic / A100["bandwidth"]
        return float(np.maximum(computing, moving).sum())


class MemoryWatch(TorchDispatchMode):
    "Records what each operation allocates, frees, reads, writes and computes."

    def __init__(
        self,
        kind: type[Tensor] = FakeTensor,  # of the tensors that count; Tensor: all of them
    ):
        super().__init__()
        self.kind = kind
        self.parts = ["setup"]  # of the step
        self.operations: list[tuple[int, int, int]] = []  # part, FLOP, bytes read and written
        # bytes; born and died: operation, part of the step; held: one of HELD, if it was named
        self.storages: list[SimpleNamespace] = []
        # id of a storage of torch -> its entry above, and a weak reference to it
        self.alive: dict[int, tuple[SimpleNamespace, Any]] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        out = [x for x in tensors_within(made) if isinstance(x, self.kind)]
        given = [x for x in tensors_within((args, kwargs)) if isinstance(x, self.kind)]
        if not out and not given:
            return made

        storages = {id(x.untyped_storage()) for x in given}
        within = all(id(x.untyped_storage()) in storages for x in out)
        view = within and not func._schema.is_mutable
        # a view touches nothing
        traffic = 0 if view else sum(x.numel() * x.itemsize for x in out + given)
        count = flop_registry.get(func.overloadpacket)
        flop = int(count(*args, **kwargs, out_val=made)) if count else 0
        self.operations.append((len(self.parts) - 1, flop, traffic))
        for x in (*out, *given):
            self.storage(x)
        return made

    def storage(self, x: Tensor) -> SimpleNamespace:
        "The memory of a tensor; from now on it is followed."
        memory = x.untyped_storage()
        key = id(memory)
        if key not in self.alive:
            now = max(0, len(self.operations) - 1), len(self.parts) - 1
            new = SimpleNamespace(bytes=memory.nbytes(), born=now, died=None, held="")

            def gone(_):
                self.alive.pop(key)
                new.died = len(self.operations), len(self.parts) - 1

            self.storages.append(new)
            self.alive[key] = new, weakref.ref(memory, gone)
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
        "What was recorded, by what it is for."
        n = len(self.operations)
        change = {held: np.zeros(n + 1, dtype=np.int64) for held in HELD}
        for s in self.storages:
            born, _ = s.born
            died, _ = s.died or (n, -1)
            held = self.held_for(s)
            change[held][born] += s.bytes
            change[held][died] -= s.bytes
        parts, flops, traffic = zip(*self.operations[begin:])
        return Trace(
            np.array(self.parts)[[*parts]],
            np.array(flops, float),
            np.array(traffic, float),
            {name: x.cumsum()[begin:n] for name, x in change.items()},
            raw,
        )

    def held_for(
        self,
        s: SimpleNamespace,  # of `storages`
    ) -> str:  # one of HELD
        "What memory is for: as it was named, or as it outlived the part that made it."
        if s.held:
            return s.held
        _, part = s.born
        _, last = s.died or (-1, -1)
        if last == part:
            return "transient"
        outlive = {"inputs": "inputs", "forward": "activations"}
        return outlive.get(self.parts[part], "transient")


# of `torch.nn.functional`: what autocast treats otherwise on a GPU than on a CPU; puts it into
# float32?
AUTOCAST = {
    "max_pool3d": False,
    "avg_pool3d": False,
    "adaptive_avg_pool3d": False,
    "adaptive_max_pool3d": False,
    "layer_norm": True,
    "group_norm": True,
    "softmax": True,
    "log_softmax": True,
}


def _as_on_gpu(real, in_float32: bool, x: Tensor, *args, **kwargs) -> Any:
    if not torch.is_autocast_enabled("cpu"):
        return real(x, *args, **kwargs)
    with torch.autocast("cpu", enabled=False):
        return real(x.float() if in_float32 else x, *args, **kwargs)


def autocast_of_gpu() -> ExitStack:
    "Inside, autocast on the CPU treats operations as it does on a GPU."
    stack = ExitStack()
    for name, in_float32 in AUTOCAST.items():
        real = getattr(nn.functional, name)
        changed = partial(_as_on_gpu, real, in_float32)
        stack.enter_context(mock.patch.object(nn.functional, name, changed))
    return stack


STEPS = 3  # that a method may take before its first loss
# steps of a training whose last ones are traced: where there are stages, the last is the method
LENGTH = 100


class Walk:
    "The last steps of a training on the CPU, watched; its views are made on the pretended GPU."

    def __init__(
        self,
        bare: Experiment,  # of `walked`
    ):
        self.experiment = made_for_walking(bare, LENGTH)
        self.make_views = views_for_walking(self.experiment)
        self.raw = next(iter(self.experiment.batches))
        self.run = state_without_numbers(self.experiment, "cpu", LENGTH - STEPS)
        self.watch = MemoryWatch()
        # the views of a step, which live as long as it does
        self.seen = list[dict[str, Any]]()

    def upload(self) -> dict[str, Any]:
        "The next batch on the device."
        batch = all_without_numbers(self.raw, "cuda")
        self.watch.holds(batch.values(), "inputs")
        return batch

    def views(self, batch: dict[str, Any]) -> dict[str, Any]:
        "Those that the GPU would make count, and their copies on the CPU count for 0."
        self.watch.parts.append("inputs")
        self.seen.append(self.make_views(batch))
        copies = all_without_numbers(self.seen[-1], "cpu")
        for x in copies.values():
            if isinstance(x, Tensor):
                self.watch.storage(x).bytes = 0
        return copies

    def model(self, batch: dict[str, Any]) -> Any:
        self.watch.parts.append("forward")
        answer = self.run.method(batch)
        self.watch.parts.append("backward")
        return answer

    def learning(self) -> list[nn.Parameter]:
        return [p for group in self.run.opt.param_groups for p in group["params"]]

    def update(self, *_) -> None:
        "Before the optimizer takes a step."
        self.watch.holds((p.grad for p in self.learning()), "gradients")
        self.watch.parts.append("update")

    def begin(self) -> None:
        "All is as after many steps, and it is known what every tensor is for."
        run, watch = self.run, self.watch
        for p in self.learning():
            p.grad = torch.zeros_like(p)
        run.opt.step()  # makes the state of the optimizer
        run.opt.zero_grad()
        watch.holds((x for s in run.opt.state.values() for x in s.values()), "optimizer")
        # unless it learns
        watch.holds((*run.method.buffers(), *run.method.parameters()), "momentum")
        for module in run.method.modules():
            if isinstance(module, Memory):
                watch.holds(module.buffers(), "queue")
            elif any(p.requires_grad for p in module.parameters(recurse=False)):
                watch.holds((*module.buffers(False), *module.parameters(False)), "weights")
        fill_queues(run.method)
        run.opt.register_step_pre_hook(self.update)

    def step(self, dtype: str) -> StepResult:
        "Take a step."
        self.seen.clear()
        return take_step(
            self.run,
            cast(nn.Module, self.model),
            iter(self.upload, None),
            self.experiment.batches,
            self.views,
            self.experiment.schedules,
            torch.device("cpu"),
            DTYPES[dtype],
            self.experiment.clip_norm,
        )


@lru_cache(64)
def _trace(
    bare: Experiment,  # of `walked`
    dtype: str,
) -> Trace:
    walk = Walk(bare)
    with autocast_of_gpu(), PretendedGPU(strict=False), walk.watch:
        walk.begin()
        ahead = walk.upload()  # noqa: F841 (the next batch is there already)
        for _ in range(STEPS):
            begin = len(walk.watch.operations)
            step = walk.step(dtype)
            if step.loss is not None:
                raw = sum(x.nbytes for x in walk.raw.values() if isinstance(x, Tensor))
                return walk.watch.trace(begin, raw)
    raise never_learned(walk.run)


def trace_step(
    experiment: Experiment,
    dtype: str = "bfloat16",  # as of `dry_run`
    activation_checkpointing: bool = False,  # as of `dry_run`
    batch: int | None = None,  # videos of a step; those of the recipe if None
) -> Trace:
    "One step of a training at its full size; a few seconds, and nothing when asked again."
    # fields that change nothing in a step, so that recipes share traces
    alike: dict[str, Any] = dict(name="", about="", dataset="any", epochs=1, drops=())
    if batch:
        alike["batch"] = batch
    return _trace(walked(experiment, activation_checkpointing, **alike), dtype)
