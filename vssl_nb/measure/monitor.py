"The health of an encoder while it trains: measured on a few training videos, written to health.csv"

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ..arguments import positive
from ..data.manifest import Manifest
from ..distributed import is_main
from ..training.run_folder import StepLog
from ..training.loop import StepResult
from .features import device_of
from .fixed_clips import FixedClips
from .health import health, knn_chance
from .protocols import Protocol


def choose_videos(
    manifest: Manifest,
    split: int = 1,  # 1, 2 or 3
    videos: int = 256,  # at most so many
) -> list[int]:  # rows of the manifest, ascending
    """Two sources of each class first, then more sources, then more of each; labelled ones if there
    are any.
    """
    if videos < 2:
        raise ValueError(
            f"videos={videos!r} is too few to compare; take at least 2, better 2 for each class"
        )
    rows = manifest.select("train", split)
    rows = [r for r in rows if manifest.label_id(r) >= 0] or rows
    videos_of_source: dict[int, int] = {}  # so far
    number_of: dict[int, dict[int, int]] = {}  # class -> source -> its number within the class

    def turn(row):
        label = manifest.label_id(row)
        source = manifest.source_id(row)
        earlier = videos_of_source.get(source, 0)
        videos_of_source[source] = earlier + 1
        numbers = number_of.setdefault(label, {})
        number = numbers.setdefault(source, len(numbers))
        return earlier, number // 2, label, number

    return sorted(sorted(rows, key=turn)[:videos])


class HealthMonitor:
    "A few training videos on which an encoder is measured now and then; none of the test part."

    def __init__(
        self,
        manifest: Manifest,
        split: int = 1,  # 1, 2 or 3
        view: str = "rgb",  # what the encoder sees: 'rgb', 'flow' or 'residual'
        *,
        length: int = 16,  # as in `Protocol`
        stride: int = 1,  # as in `Protocol`
        size: int = 112,  # as in `Protocol`; the largest square
        pad: str = "first",  # as in `Protocol`
        clips: int = 2,  # of each video, spread evenly
        videos: int = 256,  # at most, see `choose_videos`
        # MiB that the clips may take; fewer videos where they would not fit
        memory: int = 512,
        every: int = 1,  # epochs from one measurement to the next
        # of `FixedClips` and `Views`: batch, workers; residual, live, mean, std, ...
        **options,
    ):
        positive(every=every)
        room = memory * 2**20 // (clips * length * size * size * 3)  # videos
        if room < 2:
            raise ValueError(
                f"memory={memory} MiB does not hold two videos of {clips} clips of "
                f"{length}x{size}x{size}; allow more"
            )
        self.every = every
        self.train = choose_videos(manifest, split, min(videos, room))
        p = Protocol(clips=clips, length=length, stride=stride, size=size, pad=pad)
        self.clips = FixedClips(manifest, self.train, view, p, **options)
        # row -> label and source
        self.ids = {r: (manifest.label_id(r), manifest.source_id(r)) for r in self.train}
        try:
            self.chance = knn_chance(*torch.tensor([*self.ids.values()]).T)
        except ValueError:
            # without labels, or classes of two sources, they are of no use
            self.ids = {}

    def due(
        self,
        tick: StepResult,
    ) -> bool:  # has an epoch just ended after which to measure?
        return tick.last and (tick.epoch + 1) % self.every == 0

    def measure(
        self,
        encoder: nn.Module,  # clips (B, 3, T, H, W) -> (B, D), on any device
    ) -> dict[str, float]:
        "`health` of the encoder, and seconds; changes nothing."
        began = time.perf_counter()
        x, rows = self.clips.features(encoder)
        label = source = None
        if self.ids:
            label, source = torch.tensor([self.ids[r] for r in rows]).T
        row = health(x, label, source)
        row["seconds"] = round(time.perf_counter() - began, 4)
        return row


@contextmanager
def health_log(
    out: Any,  # the run folder
    step: int,  # the run goes on from here; later lines are cut
    monitor: HealthMonitor | None,  # None: nothing is measured
    encoder: nn.Module,  # of the method, the same object throughout
    # where to measure before the first step; the encoder comes back
    device: str | torch.device = "cpu",
    # returns: to be called after every step; the line it wrote
) -> Iterator[Callable[[StepResult], dict[str, float] | None]]:
    "health.csv of a run: step, epoch (epochs finished), and what the monitor measures."
    alone = monitor is not None and len(monitor.train) < 2
    if monitor and alone and is_main():
        print(
            f"{monitor.clips.manifest.path}: one video alone has a label, so that health.csv has "
            "nothing to compare and is left out; label one more, or none",
            file=sys.stderr,
        )
    if monitor is None or alone or not is_main():
        yield lambda result: None
        return
    with StepLog(out, step, "health.csv", "health/") as log:

        def write(step, epoch):
            row = {"step": step, "epoch": epoch} | monitor.measure(encoder)
            log.write(row)
            return row

        def after_step(result):
            return write(result.step, result.epoch + 1) if monitor.due(result) else None

        if step == 0:
            home = device_of(encoder)
            encoder.to(device)
            try:
                write(0, 0)
            finally:
                encoder.to(home)
        yield after_step
