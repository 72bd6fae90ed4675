"Training on your own videos: a recipe fitted to them, the machine and the time, and a verdict."

import math
import shlex
import statistics
import sys
import time
from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..config import Recipe
from ..fields import RecipeError
from ..data.manifest import Manifest, open_data
from ..data.video import VideoError, crop_resize
from ..distributed import is_main
from ..methods.recipes import flat_fields, from_dict, override
from ..nets.backbones import create
from ..processors import usable_processors
from ..runs.budget import seconds_per_step
from ..runs.checks import errors_of
from ..runs.experiment import resolve
from ..runs.pretraining import earlier_run, pretrain
from ..training.run_folder import read_json
from ..training.machine import Machine
from .label_free import STILL_PIXELS, moving_share
from .recommendation import (
    ALIKE,
    MOSTLY_STILL_SAMPLE,
    paper_hours,
    published_is_installed,
    recommend,
)
from .verdict import Verdict, give_verdict

# -- what the videos of a folder are like

SAMPLED_VIDEOS = 24  # whose motion and similarity are looked at
SAMPLED_FRAMES = 4  # of each, evenly spread
SAMPLED_SIDE = 32  # px


@dataclass(frozen=True)
class VideoFacts:
    "What the training videos of a folder are like."

    videos: int  # how many
    frames: int  # nine of ten videos have at least so many
    fps: float  # median frames per second; 0: no file has it
    side: int  # median of the shorter side, px
    still: float  # share of the sampled videos in which nothing moves, 0 to 1
    # median distance of frames of one video over that of different videos, 0 to 1
    similarity: float


def video_facts(
    manifest: Manifest,
    rows: Sequence[int],  # the training videos
) -> VideoFacts:
    "Length and size of all videos, motion and similarity of 24, spread evenly."
    table = [manifest.rows[r] for r in rows]
    lengths = sorted(r.frames for r in table)
    rates = [r.fps for r in table if r.fps] or [0.0]
    sample = _sampled_frames(manifest, rows)
    still = sum(moving_share(frames) < STILL_PIXELS for frames in sample)
    return VideoFacts(
        videos=len(rows),
        frames=lengths[len(table) // 10],
        fps=statistics.median(rates),
        side=int(statistics.median(min(r.width, r.height) for r in table)),
        still=still / max(len(sample), 1),
        similarity=_similarity(sample),
    )


def _sampled_frames(
    manifest: Manifest,
    rows: Sequence[int],  # the training videos
) -> list[np.ndarray]:  # each (T, 32, 32, 3) uint8, T at most 4
    "Small frames of some videos; those that cannot be read are left out."
    picked = np.linspace(0, len(rows) - 1, min(SAMPLED_VIDEOS, len(rows))).round().astype(int)
    sample = []
    for row in dict.fromkeys(rows[i] for i in picked):
        last = manifest.rows[row].frames - 1
        numbers = {round(i * last / (SAMPLED_FRAMES - 1)) for i in range(SAMPLED_FRAMES)}
        with suppress(VideoError):
            frames = manifest.decode(row, sorted(numbers))
            height, width = frames.shape[1:3]
            side = min(height, width)
            box = ((height - side) // 2, (width - side) // 2, side, side)
            sample.append(crop_resize(frames, box, (SAMPLED_SIDE, SAMPLED_SIDE)).numpy())
    return sample


def _similarity(
    sample: Sequence[np.ndarray],  # of `_sampled_frames`
) -> float:  # 0 to 1
    "Median distance of frames of one video over that of different videos."
    videos = [frames.reshape(len(frames), -1).astype(np.float64) for frames in sample]

    def distance(a, b):
        return float(np.sqrt(((a - b) ** 2).mean()))

    within = [distance(v[0], v[-1]) for v in videos if len(v) > 1]
    between = []
    for i, a in enumerate(videos):
        between += [distance(a[0], b[-1]) for b in videos[i + 1 :]]
    if not (within and between):
        return 0.0
    ratio = float(np.median(within) / max(np.median(between), 1e-9))
    return min(1.0, ratio)


# -- a recipe for a folder: each number with its reason


class Choices:
    "Fields of a recipe, chosen one after the other, each with its reason; fields in `given` stay."

    def __init__(
        self,
        recipe: Recipe,
        given: Set[str] = frozenset(),  # names of fields that somebody has chosen
    ):
        self.base = recipe
        self.given = given
        self.fields = flat_fields(recipe)
        self.chosen: dict[str, Any] = {}
        self.reasons: list[str] = []

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def choose(
        self,
        reason: str,  # '': a first guess
        **fields,  # name -> value
    ) -> None:
        "Set fields that nobody has chosen."
        fields = {k: v for k, v in fields.items() if k not in self.given}
        self.fields = self.fields | fields
        self.chosen = self.chosen | fields
        names = ", ".join(f"{k}={v!r}" for k, v in fields.items())
        if names and reason:
            self.reasons.append(f"{names}: {reason}")

    @property
    def recipe(self) -> Recipe:
        return override(self.base, **self.chosen)

    @property
    def videos_of_step(self) -> int:
        return self["batch"] * self["accumulate"]


def fit_view(c: Choices, facts: VideoFacts) -> None:
    "The view, from what moves in the videos."
    if facts.still >= MOSTLY_STILL_SAMPLE:
        view = "rgb"
        reason = (
            f"in {100 * facts.still:.0f} % of the videos looked at nothing moves, so frame "
            "differences would be empty"
        )
    elif facts.similarity > ALIKE:
        view = "residual"
        reason = (
            "frames of different videos look nearly as alike as frames of one video (a fixed "
            "camera?), so what differs is the motion: the encoder sees differences of frames"
        )
    else:
        view = "rgb"
        reason = (
            "the videos look different from one another, and frames hold all of that; train "
            "another run with --view residual to learn from motion alone"
        )
    c.choose(reason, view=view)


def fit_clip(c: Choices, facts: VideoFacts) -> None:
    "Length and stride, from the videos, for the backbone. `RecipeError`."
    fps = facts.fps or 25.0
    name = c["backbone"]
    with errors_of(f"the backbone {name}"):
        least = getattr(create(name), "min_clip", (2,))[0]  # frames
    widest = max(1, round(fps / 12.5))
    strides = [s for s in range(widest, 0, -1) if 15 * s + 1 <= facts.frames]
    if strides:
        stride, length = strides[0], 16
    else:
        stride, length = 1, max(least, min(16, facts.frames))
    span = (length - 1) * stride + 1
    reason = (
        f"a clip of {span} frames, {span / fps:.1f} s at {fps:g} frames a second; nine of ten "
        f"videos have {facts.frames} frames or more"
    )
    if facts.frames < span:
        reason += f", and {name} takes no clip below {least}: shorter videos are filled up"
    c.choose(reason, length=length, stride=stride)
    if c["length"] < least:
        raise RecipeError(
            f"length={c['length']}: is too short for {name}, which takes clips of {least} frames "
            f"or more; give --length {least}"
        )


def fit_batch(
    c: Choices,
    videos: int,  # to train on
    gpu: bool,
) -> None:
    "Batch and queue, from the number of videos."
    if videos < 128:
        most = 32
    else:
        most = 64 if gpu and videos >= 512 else 16
    batch = videos // math.ceil(videos / most)  # so that few are left over at the end of an epoch
    if batch < videos:
        reason = (
            f"{videos} videos, {videos // batch} steps an epoch, over which they are dealt out "
            "anew each time"
        )
    else:
        reason = f"all {videos} videos in one step"
    c.choose(reason, batch=batch)
    fit_queue(c, videos)


def fit_queue(
    c: Choices,
    videos: int,  # to train on
) -> None:
    "The queue: of no more than half of the videos."
    batch = c["batch"]
    if "queue" in c.given or "queue" not in c.fields:
        queue = c.fields.get("queue", 0)
        if queue > videos:
            c.reasons.append(
                f"queue={queue} was asked for: with {videos} videos each is its own negative "
                f"about {queue / videos:.0f} times"
            )
        return
    queue = min(2048, videos // 2) // batch * batch if videos >= 128 else 0
    if queue:
        own_keys = 100 * queue**2 / (2 * videos * videos)
        reason = (
            f"keys of earlier steps, of no more than half of the {videos} videos: a longer queue "
            "would hold a video's own older keys as its negatives (now "
            f"{own_keys:.0f} % of the time)"
        )
    else:
        reason = (
            f"with {videos} videos a queue would hold a video's own older keys as its negatives, "
            f"so each is compared with the {batch - 1} others of its batch"
        )
    c.choose(reason, queue=queue)


CPU_SIZES = (112, 96, 80, 64, 48)  # px, for a CPU
# of the time for training that is filled; the rest is for measuring the features
TRAINED_SHARE = 0.9
ENOUGH_EPOCHS = 100  # more epochs than this are worth less than larger pictures
MOST_EPOCHS = 1000


def fit_size(
    c: Choices,
    facts: VideoFacts,
    manifest: Manifest,
    machine: Machine,
    gpu: bool,
    seconds: float,  # to train in
) -> float:  # seconds of a step
    "The size of the pictures, on a CPU the largest with time for enough epochs."

    def measured():
        experiment = resolve(c.recipe, manifest, machine)
        return seconds_per_step(experiment, min(8.0, seconds / 30))

    first = max(32, min(112 if gpu else 64, facts.side // 16 * 16))
    c.choose("", size=first)
    step = measured()
    if gpu or "size" in c.given:
        c.choose("what this network is meant for", size=first)
        return step

    decoding = min(0.8 * step, decoding_seconds(c, manifest, machine))
    steps_per_epoch = max(1, facts.videos // c.videos_of_step)

    def epochs(size):
        computing = (step - decoding) * (size / first) ** 2
        return seconds / (steps_per_epoch * (decoding + computing))

    sizes = [s for s in CPU_SIZES if s <= max(facts.side, 48) and epochs(s) >= ENOUGH_EPOCHS]
    if sizes:
        size = max(sizes)
        reason = f"the largest pictures with which there is time for {ENOUGH_EPOCHS} epochs"
    elif first == 64 and epochs(48) > 1.5 * epochs(64):
        size = 48
        reason = "small pictures, so that there is time for more epochs"
    else:
        size = first
        reason = "what this network is meant for; smaller pictures would save little time"
    share = 100 * decoding / step
    c.choose(f"{reason} ({share:.0f} % of a step goes into decoding)", size=size)
    return step if size == first else measured()


def decoding_seconds(c: Choices, manifest: Manifest, machine: Machine) -> float:
    "What it takes to decode, cut and scale the videos of a step, measured on twelve."
    clips = resolve(c.recipe, manifest, machine).clips
    began = time.monotonic()
    n = min(12, len(clips))
    for i in range(n):
        clips[0, i * len(clips) // n]
    per_video = (time.monotonic() - began) / n
    return per_video * c.videos_of_step / min(usable_processors(), machine.workers or 1)


def fit_epochs(
    c: Choices,
    videos: int,  # to train on
    step: float,  # seconds of one
    seconds: float,  # to train in
    minutes: float,  # for everything
) -> None:
    "Epochs that fit into the time, and what depends on their number."
    per_epoch = max(1, videos // c.videos_of_step)
    epochs = max(1, min(MOST_EPOCHS, int(seconds / (per_epoch * step))))
    if epochs == MOST_EPOCHS:
        reason = "more would not help so few videos"
    else:
        steps = "step" if per_epoch == 1 else "steps"
        reason = (
            f"{per_epoch} {steps} an epoch, {step:.2f} s for each step (measured), and "
            f"{max(seconds, 0) / 60:.1f} of {minutes:g} min to train in"
        )
    c.choose(reason, epochs=epochs)
    c.choose(
        "a twentieth of the epochs in which the learning rate climbs",
        warmup=round(c["epochs"] / 20, 2),
    )
    if "momentum" in c.fields:
        steps = c["epochs"] * per_epoch
        c.choose(
            f"the slow encoder follows within a tenth of the {steps} steps",
            momentum=round(min(0.99, max(0.9, 1 - 10 / steps)), 3),
        )


def verdict_seconds(minutes: float) -> float:
    "What is kept of the minutes for the verdict at the end."
    return max(6 * minutes, min(40.0, 15 * minutes))


def fit_recipe(
    recipe: Recipe,  # `own-videos`, perhaps with some fields changed
    manifest: Manifest,
    machine: Machine = Machine(),
    minutes: float = 20.0,  # for everything, to the verdict
    given: Set[str] = frozenset(),  # as of `learn_own_videos`
    began: float | None = None,  # as of `learn_own_videos`
) -> Recipe:  # with `reasons`
    "The recipe for a folder, a machine and a time; steps are taken to measure. `RecipeError`."
    if not (math.isfinite(minutes) and minutes > 0):
        raise RecipeError(f"--minutes {minutes:g}: must be above 0; 20 is a good beginning")
    began = began or time.monotonic()
    c = Choices(recipe, set(given))
    rows = manifest.select("train", c["split"])
    if len(rows) < 4:
        raise RecipeError(
            f"{manifest.path}: has {len(rows)} readable training videos, and learning by "
            "comparison needs at least 4 (better 100 and more); add videos"
        )

    def seconds_left():
        elapsed = time.monotonic() - began
        return TRAINED_SHARE * (60 * minutes - verdict_seconds(minutes) - elapsed)

    gpu = resolve(recipe, manifest, machine).device.type == "cuda"
    facts = video_facts(manifest, rows)
    if gpu:
        c.choose("S3D, the network of the CoCLR paper: there is a GPU", backbone="s3d")
    else:
        c.choose("a small network, because there is no GPU", backbone="small")
    if machine.dtype == "bfloat16":
        c.reasons.append(
            "dtype=bfloat16: in forward passes, as this processor has instructions for it"
        )
    fit_view(c, facts)
    fit_clip(c, facts)
    fit_batch(c, len(rows), gpu)
    step = fit_size(c, facts, manifest, machine, gpu, max(1.0, seconds_left()))
    fit_epochs(c, len(rows), step, seconds_left(), minutes)
    recommendation = recommend(
        videos=len(rows),
        still=facts.still,
        similarity=facts.similarity,
        hours=paper_hours(step, c.videos_of_step),
        minutes=minutes,
        installed=published_is_installed(),
        data=shlex.quote(str(manifest.root)),
    )
    c.reasons += recommendation.sentences
    return override(c.recipe, reasons=tuple(c.reasons))


# -- fitted, trained, judged


def learn_own_videos(
    recipe: Recipe,  # `own-videos`, perhaps with fields changed
    data,  # a folder of videos, or a manifest
    out,  # the run folder
    minutes: float = 20.0,  # for everything
    given: Set[str] = frozenset(),  # fields that are to stay as they are in `recipe`
    # go on with the run that is there, with the numbers that were chosen for it
    resume: bool = False,
    machine: Machine = Machine(),
    # epochs from one measurement of the features to the next; 0: four to eight in all
    health_every: int = 0,
    began: float | None = None,  # time.monotonic() from which the minutes count; None: now
    **options,  # of `pretrain`: networks, accepted, ...
) -> Verdict | None:  # of the first process
    "Fit a recipe to a folder, a machine and a time; train it; give the verdict. `ValueError`."
    began = began or time.monotonic()
    out = Path(out)
    manifest = open_data(data, machine.progress)
    if resume:
        recipe = _recipe_of_run(out, recipe, given)
    else:
        earlier_run(out, False)  # refuses before anything is measured
        recipe = fit_recipe(recipe, manifest, machine, minutes, given, began)
        if is_main():
            print(*recipe.reasons, sep="\n", file=sys.stderr)

    looks = 8 if minutes >= 10 else 4
    every = health_every or max(1, recipe.learning.epochs // looks)
    kept = verdict_seconds(minutes)
    pretrain(
        recipe,
        data,
        out,
        resume,
        machine,
        until=began + 60 * minutes - kept,
        health_every=every,
        **options,
    )
    if not is_main():
        return None
    left = 60 * minutes - (time.monotonic() - began)
    seconds = max(kept / 3, 0.7 * left)
    return give_verdict(out, data, machine, seconds=seconds, published=published_is_installed())


def _recipe_of_run(
    run: Path,  # a run folder
    recipe: Recipe,  # as of `learn_own_videos`
    given: Set[str],  # as of `learn_own_videos`
) -> Recipe:
    "The recipe of a run that goes on, with the fields that were given this time."
    file = run / "recipe.json"
    stored = from_dict(read_json(file, "a run that could be resumed"), str(file))
    fields = flat_fields(recipe)
    return override(stored, **{k: fields[k] for k in given if k in fields})
