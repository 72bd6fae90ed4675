"""Will a training fit, and how long will it take? Counted before a GPU is booked."""

import copy
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from ..distributed import apart, world_size
from ..measure.features import clips_together
from ..measure.protocols import Protocol
from ..methods.recipes import RECIPES, flat_fields
from ..training.loop import TrainingState, fit, shared_memory
from ..training.machine import DTYPES, MachineError, backend_settings, free_memory
from .experiment import BlankVideos, Experiment
from .pretended import PretendedGPU, without_numbers
from .trace import MemoryWatch, dry_run, trace_step, whole_numbers

# as their names say, in units of 10^9; what devices report is a little more
GPUS = {"24 GB": 24 * 10**9, "40 GB": 40 * 10**9, "80 GB": 80 * 10**9, "141 GB": 141 * 10**9}
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

# -- a plan


def largest_batch(
    experiment: Experiment,
    size: float,  # bytes of the device, such as GPUS['24 GB']
    dtype: str = "bfloat16",  # as of `trace_step`
    activation_checkpointing: bool = False,  # as of `trace_step`
) -> int:  # 0: not even the smallest fits
    """The largest batch of one device: a multiple of the BatchNorm groups, at most the queue and
    the videos.
    """
    method, learning = experiment.recipe.method, experiment.recipe.learning
    videos = len(experiment.rows)
    groups = getattr(method, "groups", None) or 1
    most = min(getattr(method, "queue", 0) or videos, videos // learning.accumulate)
    # assumed: kernels take 1 GB; workspaces and holes grow with the tensors
    room = max(0.0, size - 10**9) / 1.1

    # of every operation it is known for how many videos it leaves room
    def fitting(batch: int) -> int:
        trace = trace_step(experiment, dtype, activation_checkpointing, batch)
        with_batch = sum(trace.alive[k] for k in ("inputs", "activations", "transient"))
        constant = trace.total - with_batch
        n = (room - constant) * batch / np.maximum(with_batch, 1)
        return max(0, min(int(n.min()), most) // groups * groups)

    n = fitting(learning.batch)
    # far away, similarities count: B x B
    return n if n <= 32 * learning.batch else min(n, fitting(n))


def on_its_dataset(experiment: Experiment) -> Experiment:
    "Blank videos of no known number become as many as the dataset of the recipe has."
    videos = experiment.videos
    if not isinstance(videos, BlankVideos) or videos.videos is not None:
        return experiment
    videos = replace(videos, videos=VIDEOS.get(experiment.recipe.dataset))
    return replace(experiment, videos=videos, rows=range(len(videos)))


def known_videos(experiment: Experiment) -> int | None:
    "How many videos there are to train on; None: not known."
    videos = experiment.videos
    return videos.videos if isinstance(videos, BlankVideos) else len(experiment.rows)


def plan(
    experiment: Experiment,
    dtype: str = "bfloat16",  # of the forward pass
) -> dict[str, Any]:  # plain values by name
    "What a training takes; two traces, so some seconds for S3D."
    experiment = on_its_dataset(experiment)
    recipe, learning = experiment.recipe, experiment.recipe.learning
    trace, again = (trace_step(experiment, dtype, a) for a in (False, True))
    seconds = trace.bound(dtype) / FRACTION
    videos, steps = known_videos(experiment), None
    if videos is not None:
        steps = learning.epochs * (videos // (learning.batch * learning.accumulate))
    return {
        "name": recipe.name,
        # GFLOP of one step, all networks forward and backward
        "step": float(trace.flops.sum()) / 1e9,
        "batch": learning.batch,
        "memory": trace.total.max() / 1e9,  # GB of a step
        "recomputed": again.total.max() / 1e9,  # GB with recomputation
        # for each of GPUS the largest batch, without and with recomputation
        "batches": {
            gpu: tuple(largest_batch(experiment, size, dtype, a) for a in (False, True))
            for gpu, size in GPUS.items()
        },
        "seconds": seconds,  # of a step on an A100, at FRACTION of its bound
        "steps": steps,  # of the training; None where the videos are not known
        "hours": None if steps is None else steps * seconds / 3600,
    }  # likewise


def seconds_per_step(
    experiment: Experiment,
    limit: float = 8.0,  # seconds of taking steps, after the first two
) -> float:
    "Seconds of an optimizer step here, decoding included. `MachineError`."
    longer = experiment.changed(epochs=experiment.recipe.learning.epochs + 40)  # 40 steps
    refuse_too_large(longer)
    steps: Any = fit(
        TrainingState(longer.method, longer.optimizer),
        longer.batches,
        longer.views,
        longer.schedules,
        longer.device,
        DTYPES[longer.machine.dtype],
        clip_norm=longer.clip_norm,
    )
    times = [time.monotonic()]
    with backend_settings(longer.machine):
        for result in steps:
            result.read()  # waits for the device
            times.append(time.monotonic())
            if len(times) > 3 and (times[-1] - times[2] > limit or len(times) > 40):
                break
    steps.close()
    # the first two wait for workers, or find batches prepared
    return float(np.diff(times)[2:].mean())


# -- for people


def in_gb(n: float) -> str:
    return f"{n / 1e9:.2f} GB" if n >= 1e8 else f"{n / 1e6:.1f} MB"


def duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds / 3600:,.3g} hours"


def forecast(
    experiment: Experiment,  # on a manifest, steps are taken, unless they are too large
    dtype: str = "bfloat16",  # as of `dry_run`
    activation_checkpointing: bool = False,  # as of `dry_run`
) -> str:  # a few lines
    "What a training will do and take. WrongDevice names the line that would fail on a GPU."
    experiment = on_its_dataset(experiment)
    first = dry_run(experiment, dtype, activation_checkpointing)
    planned = plan(experiment, dtype)
    total = planned["steps"]

    def taken(seconds: float) -> str:
        in_all = f", {duration(total * seconds)} in all" if total else ""
        return f"{seconds:.3g} s a step{in_all}"

    fits = []
    for gpu, (plain, recomputed) in planned["batches"].items():
        either = f"{plain}" if plain == recomputed else f"{plain} or {recomputed}"
        fits.append(f"{either} ({gpu})")
    lines = [
        describe_training(experiment, total),
        f"first steps: {first}",
        f"memory of a step in {dtype}: {planned['memory']:.2f} GB, {planned['recomputed']:.2f} "
        f"with --activation-checkpointing; largest batch: {', '.join(fits)}",
        f"time on an A100: {taken(planned['seconds'])} (computed: {planned['step']:,.0f} GFLOP, "
        f"at {FRACTION:.0%} of what its data sheet allows)",
    ]
    # a step of 500 GFLOP takes some ten seconds on two cores
    if not experiment.blank and (planned["step"] <= 500 or experiment.device.type == "cuda"):
        lines.append(f"time here: {taken(seconds_per_step(experiment, 4.0))} (measured)")
    return "\n".join(lines)


def describe_training(
    experiment: Experiment,
    total: int | None,  # steps; None: not known
) -> str:  # a line
    "What is trained, how long, on what, and by which rule."
    recipe, learning = experiment.recipe, experiment.recipe.learning
    steps = "as many steps as the videos make"
    if total is not None:
        videos = known_videos(experiment)
        steps = f"{total // learning.epochs:,} steps, {total:,} in all, on {videos:,} videos"
    clips = []
    for part in recipe.clip_sets.values():
        s = part.sampling
        clips.append(f"{s.clips} clips of {s.length} frames (stride {s.stride}) of {part.size} px")
    return (
        f"{recipe.name}: {learning.epochs} epochs of {steps}, "
        f"{learning.batch * learning.accumulate} to a step; {' and '.join(clips)}, "
        f"{' and '.join(recipe.views)}; {recipe.backbone}, {recipe.method.name}; "
        f"{learning.optimizer}, learning rate {learning.lr:g}"
    )


def describe_budget(
    experiment: Experiment,
    processes: int = 1,  # that share the batch, one device each
) -> str:  # a few lines
    "What a step of one process will take. Call it before the processes have found each other."
    machine, cuda = experiment.machine, experiment.device.type == "cuda"
    options = (machine.dtype, machine.activation_checkpointing)
    one = part_of(experiment, processes)
    trace = trace_step(one, *options)
    sizes: Mapping[str, float] = GPUS
    if cuda:
        memory = torch.cuda.get_device_properties().total_memory
        sizes = {f"this {torch.cuda.get_device_name()}": memory}
    fits = ", ".join(f"{largest_batch(one, n, *options)} ({gpu})" for gpu, n in sizes.items())

    peak = trace.peak(cuda)
    total = sum(peak.values())
    largest_first = sorted(((n, name) for name, n in peak.items()), reverse=True)
    held = ", ".join(f"{name} {in_gb(n)}" for n, name in largest_first if n >= 5e-3 * total)
    way = "with recomputation" if machine.activation_checkpointing else "activations kept"
    lines = [
        f"memory of a step ({one.recipe.learning.batch} videos, {machine.dtype}, {way}): "
        f"{in_gb(total)}: {held}",
        f"largest batch: {fits}; {trace.flops.sum() / 1e9:,.0f} GFLOP a step",
    ]
    _, shared = shared_memory(trace.raw, machine.workers)
    if shared > 0:
        lines.append(
            f"shared memory of {machine.workers} workers: up to {in_gb(shared)} in /dev/shm"
        )
    return "\n".join(lines)


# -- refusals

PIXEL = 3 * (1 + 4)  # bytes of a pixel of a clip: as it is read, and as a view


def part_of(experiment: Experiment, processes: int) -> Experiment:
    "What one of several processes does of each step, on blank videos."
    fields = {"batch": experiment.recipe.learning.batch // processes}
    groups = getattr(experiment.recipe.method, "groups", None)
    if groups:
        fields["groups"] = max(1, groups // processes)
    return experiment.without_videos(**fields)


def clip_bytes(experiment: Experiment) -> float:
    "Of the clips of a step, in one process."
    pixels = 0
    for part in experiment.recipe.clip_sets.values():
        s = part.sampling
        pixels += part.learning.batch * s.clips * s.length * part.size**2
    return pixels / world_size() * PIXEL


def refuse_too_large(experiment: Experiment) -> None:
    """Refuse, before anything of it is allocated, a step that cannot fit into the memory.

    `MachineError`.
    """
    machine, recipe = experiment.machine, experiment.recipe
    room = free_memory(experiment.device)

    def need(**changes) -> float:
        one = experiment.changed(**changes)
        if clip_bytes(one) > room:
            return clip_bytes(one)
        with apart():
            part = part_of(one, world_size())
            trace = trace_step(part, machine.dtype, machine.activation_checkpointing)
        return sum(trace.peak(experiment.device.type == "cuda").values())

    now, numbers = flat_fields(recipe), whole_numbers(recipe.method)
    usual = {name: default for name, (_, default) in numbers.items()}
    usual |= flat_fields(RECIPES.get(recipe.name, recipe))
    wider = max((n for name, (n, _) in numbers.items() if n > (usual[name] or 0)), default=0)
    # so little that it is not traced
    if 100 * clip_bytes(experiment) + 4 * (wider * recipe.learning.batch) ** 2 < room:
        return
    _refuse(recipe.name, need, now, usual, room)


def refuse_large_clips(
    encoder: nn.Module,
    p: Protocol,
    usual: Mapping[str, Any],  # the encoder's clip in training
    batch: int,  # clips that go through the encoder together
    device: torch.device,
) -> None:
    "The same for the clips that go through an encoder together when it is measured."
    room = free_memory(device)
    weights = (*encoder.parameters(), *encoder.buffers())

    def need(**changes) -> float:
        q = replace(p, **changes)
        shape = clips_together(device, q, batch), 3, q.length, q.size, q.size
        # with the numbers of the frames of a video
        clips = math.prod(shape) * PIXEL / 3 + 8 * q.clips * q.length
        if clips > room or 100 * clips < room:
            return clips

        watch, memo = MemoryWatch(), {id(x): without_numbers(x, "cpu") for x in weights}
        with PretendedGPU(strict=False), watch, torch.no_grad():
            pretended = copy.deepcopy(encoder, memo).eval()
            pretended(without_numbers(torch.empty(shape, device="meta"), "cpu"))
        return clips + watch.trace().total.max()

    now = {name: getattr(p, name) for name in ("clips", "length", "size")}
    _refuse(f"protocol {p.name}", need, now, usual or vars(Protocol()), room)


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

    def above(name: str) -> tuple[float, bool]:
        times = now[name] / max(1, usual.get(name) or 1)
        return times ** (2 if name == "size" else 1), name == "batch"

    large = [name for name, value in now.items() if type(value) is int and value > 1]
    for name in sorted(large, key=above, reverse=True):
        smaller = _fitting_value(name, need, now[name], usual.get(name) or 1, most, room)
        if smaller:
            value, less = smaller
            raise MachineError(
                f"{title}: {name}={now[name]} takes {in_gb(most)} of memory, and {in_gb(room)} are "
                f"free; {name}={value} fits ({in_gb(less)})"
            )
    raise MachineError(
        f"{title}: takes {in_gb(most)} of memory, and {in_gb(room)} are free; take a smaller "
        "backbone, or a machine with more"
    )


def _fitting_value(
    name: str,  # of a field
    need: Callable[..., float],  # as of `_refuse`
    value: int,  # that it has
    usual: int,
    most: float,  # bytes that it takes with this value
    room: float,  # bytes
) -> tuple[int, float] | None:  # value and bytes; None where no value helps
    "A value of a field with which a step fits."
    less = most
    while value > 1:
        # an eighth of the room, as clips are not all of a step; but no less than usual
        least, before = min(value - 1, usual), less
        aim = max(1, min(value - 1, value * room / less / 8))
        value = max(least, 2 ** int(math.log2(aim)))
        try:
            less = need(**{name: value})
        except Exception:
            return None  # something forbids so small a value
        if less <= room:
            return value, less
        if less == before:
            return None  # it takes none
    return None
