"""Training on your own videos: a recipe fitted to them, machine and time, and a verdict without
labels.
"""

import math, os, shlex, statistics, sys, time
from collections.abc import Collection, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.utils.data import DataLoader

from .. import show
from ..data.dataset import collate
from ..data.manifest import Manifest, open_data
from ..data.video import VideoError, crop_resize
from ..measure.features import extract_clips
from ..measure.fixed_clips import FixedClips
from ..measure.health import (
    UNCHANGED,
    Reordered,
    knn_chance,
    knn_r1,
    rankme,
    reorder,
    std,
)
from ..config import Recipe, RecipeError
from ..methods.recipes import flat_fields, from_dict, override
from ..nets.backbones import create
from ..files import write_whole
from ..config import read_lines
from ..distributed import is_main
from ..training.loop import read_json, write_json
from ..training.machine import Machine, init_worker
from ..runs.budget import seconds_per_step
from ..runs.evaluation import EvaluatedEncoder, open_trained
from ..runs.hub import HubEncoder
from ..runs.parts import blame, training_clips, training_device, training_views
from ..runs.pretraining import earlier_run, pretrain

# -- a recipe for a folder: what its videos are like, and each number with its reason

# share of pixels, of 255 levels: what changes less does not move
STILL_PIXELS, STILL_LEVELS = 0.002, 12.0


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


def moving_share(
    frames: np.ndarray,  # (T, H, W, 3) uint8
) -> float:  # 0 (a still) to 1
    "Share of the pixels that change in the course of a clip."
    x = frames.astype(np.float32).mean(-1)
    return float((x.max(0) - x.min(0) > STILL_LEVELS).mean())


def video_facts(
    manifest: Manifest,
    rows: Sequence[int],  # the training videos
) -> VideoFacts:
    "Length and size of all videos, motion and similarity of 24, spread evenly."
    at, sample = (
        np.linspace(0, len(rows) - 1, min(24, len(rows))).round().astype(int),
        list[np.ndarray](),
    )
    for row in dict.fromkeys(rows[i] for i in at):
        n = manifest.rows[row].frames
        with suppress(VideoError):
            # evenly spread
            frames = manifest.decode(row, sorted({round(i * (n - 1) / 3) for i in range(4)}))
            H, W, side = *frames.shape[1:3], min(frames.shape[1:3])
            sample.append(
                crop_resize(
                    frames, ((H - side) // 2, (W - side) // 2, side, side), (32, 32)
                ).numpy()
            )
    x = [v.reshape(len(v), -1).astype(np.float64) for v in sample]

    def distance(a, b):
        return float(np.sqrt(((a - b) ** 2).mean()))

    within = [distance(v[0], v[-1]) for v in x if len(v) > 1]
    between = [distance(a[0], b[-1]) for i, a in enumerate(x) for b in x[i + 1 :]]
    alike = float(np.median(within) / max(np.median(between), 1e-9)) if within and between else 0.0
    table = [manifest.rows[r] for r in rows]
    return VideoFacts(
        len(rows),
        sorted(r.frames for r in table)[len(table) // 10],
        statistics.median([r.fps for r in table if r.fps] or [0.0]),
        int(statistics.median(min(r.width, r.height) for r in table)),
        sum(moving_share(x) < STILL_PIXELS for x in sample) / max(len(sample), 1),
        min(1.0, alike),
    )


class _Choices:
    "Fields of a recipe, chosen one after the other, each with its reason; fields in `given` stay."

    def __init__(self, recipe: Recipe, given: Set[str] = frozenset()):
        self.base, self.given, self.fields = recipe, given, flat_fields(recipe)
        self.chosen, self.reasons = dict[str, Any](), list[str]()

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def choose(
        self,
        reason: str,  # '': a first guess
        **fields,
    ):
        fields = {k: v for k, v in fields.items() if k not in self.given}
        self.fields, self.chosen = self.fields | fields, self.chosen | fields
        names = ", ".join(f"{k}={v!r}" for k, v in fields.items())
        if names and reason:
            self.reasons.append(f"{names}: {reason}")

    @property
    def recipe(self) -> Recipe:
        return override(self.base, **self.chosen)

    @property
    def rows(self) -> int:
        return self["batch"] * self["accumulate"]  # videos of a step


def _fit_clip(c: _Choices, facts: VideoFacts):
    "View, length and stride, from the videos, for the backbone. `RecipeError`."
    if facts.still >= 0.8:
        c.choose(
            f"in {100 * facts.still:.0f} % of the videos looked at nothing moves, so "
            "frame differences would be empty",
            view="rgb",
        )
    elif facts.similarity > 0.6:
        c.choose(
            "frames of different videos look nearly as alike as frames of one "
            "video (a fixed camera?), so what differs is the motion: the encoder sees differences "
            "of frames",
            view="residual",
        )
    else:
        c.choose(
            "the videos look different from one another, and frames hold all of that; train "
            "another "
            "run with --view residual to learn from motion alone",
            view="rgb",
        )
    fps, name = facts.fps or 25.0, c["backbone"]
    # frames
    with blame(f"the backbone {name}"):
        least = getattr(create(name), "min_clip", (2,))[0]
    strides = [s for s in range(max(1, round(fps / 12.5)), 0, -1) if 15 * s + 1 <= facts.frames]
    stride, length = (strides[0], 16) if strides else (1, max(least, min(16, facts.frames)))
    span = (length - 1) * stride + 1
    c.choose(
        f"a clip of {span} frames, {span / fps:.1f} s at {fps:g} frames a second; nine of ten "
        "videos "
        f"have {facts.frames} frames or more"
        + f", and {name} takes no clip below {least}: shorter videos "
        "are filled up" * (facts.frames < span),
        length=length,
        stride=stride,
    )
    if c["length"] < least:
        raise RecipeError(
            f"length={c['length']}: is too short for {name}, which takes "
            f"clips of {least} frames or more; give --length {least}"
        )


def _fit_batch(c: _Choices, n: int, gpu: bool):
    "Batch and queue, from the number of videos."
    most = 32 if n < 128 else 64 if gpu and n >= 512 else 16
    batch = n // math.ceil(n / most)  # so that few are left over at the end of an epoch
    c.choose(
        f"{n} videos, {n // batch} steps an epoch, over which they are dealt out anew each time"
        if batch < n
        else f"all {n} videos in one step",
        batch=batch,
    )
    batch, given = c["batch"], c.fields.get("queue", 0)
    queue = min(2048, n // 2) // batch * batch if n >= 128 else 0
    if "queue" in c.given or "queue" not in c.fields:
        if given > n:
            c.reasons.append(
                f"queue={given} was asked for: with {n} videos each is its own "
                f"negative about {given / n:.0f} times"
            )
    elif queue:
        c.choose(
            f"keys of earlier steps, of no more than half of the {n} videos: a longer queue "
            "would hold a video's own older keys as its negatives (now "
            f"{100 * queue**2 / (2 * n * n):.0f} % of the "
            "time)",
            queue=queue,
        )
    else:
        c.choose(
            f"with {n} videos a queue would hold a video's own older keys as its negatives, so "
            f"each is compared with the {batch - 1} others of its batch",
            queue=0,
        )


CPU_SIZES = (112, 96, 80, 64, 48)  # px, for a CPU
# of the time for training that is filled; the rest is for measuring the features
TRAINED_SHARE = 0.9
ENOUGH_EPOCHS = 100  # more epochs than this are worth less than larger pictures
MOST_EPOCHS = 1000


def _fit_network(
    c: _Choices, facts: VideoFacts, manifest: Manifest, machine: Machine, gpu: bool, seconds: float
):
    "The size, on a CPU the largest with time for enough epochs; returns the seconds of a step."

    def measured():
        return seconds_per_step(c.recipe, manifest, machine, min(8.0, seconds / 30))

    first = max(32, min(112 if gpu else 64, facts.side // 16 * 16))
    c.choose("", size=first)
    step, per_epoch = measured(), max(1, facts.videos // c.rows)
    if gpu or "size" in c.given:
        c.choose("what this network is meant for", size=first)
        return step
    clips, began = training_clips(c.recipe, manifest), time.monotonic()
    n = min(12, len(clips))  # videos to decode, cut and scale
    for i in range(n):
        clips[0, i * len(clips) // n]
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    decoding = min(
        0.8 * step, (time.monotonic() - began) / n * c.rows / min(cores, machine.workers or 1)
    )

    def epochs(size):
        return seconds / (per_epoch * (decoding + (step - decoding) * (size / first) ** 2))

    sizes = [s for s in CPU_SIZES if s <= max(facts.side, 48) and epochs(s) >= ENOUGH_EPOCHS]
    size = max(sizes) if sizes else 48 if first == 64 and epochs(48) > 1.5 * epochs(64) else first
    reason = (
        f"the largest pictures with which there is time for {ENOUGH_EPOCHS} epochs"
        if sizes
        else "small pictures, so that there is time for more epochs"
        if size < first
        else "what this network is meant for; smaller pictures would save little time"
    )
    c.choose(f"{reason} ({100 * decoding / step:.0f} % of a step goes into decoding)", size=size)
    return step if size == first else measured()


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
    began, rows = began or time.monotonic(), manifest.select("train", flat_fields(recipe)["split"])
    if len(rows) < 4:
        raise RecipeError(
            f"{manifest.path}: has {len(rows)} readable training videos, and learning by "
            "comparison needs at least 4 (better 100 and more); add videos"
        )
    gpu = training_device(recipe, machine.device).type == "cuda"
    c, facts = _Choices(recipe, set(given)), video_facts(manifest, rows)

    def left():
        return TRAINED_SHARE * (
            60 * minutes - verdict_seconds(minutes) - (time.monotonic() - began)
        )

    c.choose(
        "S3D, the network of the CoCLR paper: there is a GPU"
        if gpu
        else "a small network, because there is no GPU",
        backbone="s3d" if gpu else "small",
    )
    if machine.dtype == "bfloat16":
        c.reasons.append(
            "dtype=bfloat16: in forward passes, as this processor has instructions for it"
        )
    _fit_clip(c, facts)  # as long as the backbone needs
    _fit_batch(c, len(rows), gpu)
    step = _fit_network(c, facts, manifest, machine, gpu, max(1.0, left()))
    seconds, per_epoch = left(), max(1, len(rows) // c.rows)
    epochs = max(1, min(MOST_EPOCHS, int(seconds / (per_epoch * step))))
    c.choose(
        "more would not help so few videos"
        if epochs == MOST_EPOCHS
        else f"{per_epoch} "
        f"step{'s' * (per_epoch != 1)} an epoch, {step:.2f} s for each step (measured), and "
        f"{max(seconds, 0) / 60:.1f} of {minutes:g} min to train in",
        epochs=epochs,
    )
    steps = c["epochs"] * per_epoch
    c.choose(
        "a twentieth of the epochs in which the learning rate climbs",
        warmup=round(c["epochs"] / 20, 2),
    )
    if "momentum" in c.fields:
        c.choose(
            f"the slow encoder follows within a tenth of the {steps} steps",
            momentum=round(min(0.99, max(0.9, 1 - 10 / steps)), 3),
        )
    return override(c.recipe, reasons=tuple(c.reasons))


# -- measured without labels: held-out clips of training videos, and one frozen frame in place of a
# clip


def _cosines(
    x: Tensor,  # (N, D)
    y: Tensor,  # (M, D)
) -> Tensor:  # (N, M) float64, centred by the mean of y
    mean = y.double().mean(0)
    return normalize(x.double() - mean, dim=1) @ normalize(y.double() - mean, dim=1).T


def instance_recall(
    q: Tensor,  # (N, D) of one clip of each video
    k: Tensor,  # (N, D) of another clip of each video
) -> Tensor:  # (N,)
    """Is the nearest clip one of the same video? 1 where no clip of another is as near; a tie is
    lost.
    """
    sim = _cosines(q, k)
    return ((sim >= sim.diagonal()[:, None]).sum(1) == 1).double()


def explained_by_colours(
    x: Tensor,  # (N, D)
    frames: Tensor,  # (N, H, W, 3) uint8
) -> float:  # R², 0 to 1
    """The share of the variance of the similarities of pairs of videos that colour histograms
    explain.
    """
    # (N, H*W), four levels a channel
    bins = (frames.long() // 64 @ torch.tensor([16, 4, 1])).flatten(1)
    pairs = torch.triu_indices(len(x), len(x), 1).unbind()
    hist = torch.stack([torch.bincount(b, minlength=64) for b in bins]).double().sqrt()
    similarity = torch.stack([_cosines(z, z)[pairs] for z in (x, hist)])
    if similarity.var(1, correction=0).min() < 1e-12:
        return 0.0
    return float(torch.corrcoef(similarity)[0, 1] ** 2)


def neighbour_agreement(
    x: Tensor,  # (N, D)
    y: Tensor,  # (N, E) of the same videos
    k: int = 5,
) -> float:  # 0 to 1
    "Of the k nearest videos by one kind of feature, the share that is among those by the other."
    near = [_cosines(z, z).fill_diagonal_(-torch.inf).topk(k).indices for z in (x, y)]
    return float((near[0][:, :, None] == near[1][:, None, :]).double().sum((1, 2)).mean() / k)


def frozen_share(
    clips: Tensor,  # (N, 2, D): two moments of each video
    frozen: Tensor,  # (N, 2, D): a frame of each, T times
    # returns: 0 to 1; None where not even two moments of a video have the same neighbours
) -> float | None:
    "The share of its nearest neighbours that an encoder finds without motion."
    if clips.var(0).sum() < 1e-12:
        return None  # all the same
    if frozen.var(0).sum() < 1e-12:
        return 0.0  # differences of one frame: nothing is left
    k = max(1, min(5, (len(clips) - 1) // 4))  # neighbours; fewer where there are few videos
    chance = k / (len(clips) - 1)
    moving = neighbour_agreement(clips[:, 0], clips[:, 1], k) - chance
    if moving < 0.1:
        return None
    still = (
        neighbour_agreement(clips[:, 0], frozen[:, 1], k)
        + neighbour_agreement(clips[:, 1], frozen[:, 0], k)
    ) / 2 - chance
    return min(1.0, max(0.0, still / moving))


UNSEEN_EPOCH = 10**6  # the training never comes so far: its clips are other ones


def _encode_videos(
    t: EvaluatedEncoder,
    device: torch.device,
    most: int,
    machine: Machine,
    seconds: float,
    # returns: the rows that can be read, and by name what follows; N: networks
) -> tuple[list[int], dict[str, Tensor]]:
    """Features of videos by the trained network and random ones, until the time is over, of 32 at
    least.
    """
    # augmented (B, N, 2R, D): R pairs of clips as in training; plain (B, N, 2, D): first and last
    # clip;
    # frozen (B, N, 2, D): their middle frame, T times, not of flow; frame (B, H, W, 3) uint8;
    # moving (B,)
    began, views = time.monotonic(), training_views(t.recipe)
    random = [create(t.about["backbone"], seed=t.about["seed"] + s) for s in range(2)]
    networks = [n.to(device).eval() for n in (cast(nn.Module, t.encoder), *random)]
    from_rgb, ends = t.view in ("rgb", "residual"), t.protocol("clean", clips=2)
    clips, kept, parts = (
        training_clips(t.recipe, t.manifest),
        list[int](),
        list[dict[str, Tensor]](),
    )
    # labelled videos first
    order = np.random.default_rng(t.about["seed"]).permutation(len(clips))
    chosen = sorted(order.tolist(), key=lambda i: t.manifest.label_id(clips.rows[i]) < 0)[:most]
    draws = 2 if len(chosen) > 64 else 4  # few videos are measured more often
    # none of one video
    few = [p.tolist() for p in np.array_split(chosen, math.ceil(len(chosen) / 16))]
    keys = [[(UNSEEN_EPOCH + d, i) for d in range(draws) for i in part] for part in few]
    batches = DataLoader(
        clips,
        batch_sampler=keys,
        num_workers=machine.workers,
        collate_fn=collate,
        worker_init_fn=init_worker,
        generator=torch.Generator(),
    )
    for part, raw in zip(few, batches):  # (draws*rows, V, ...)
        # others came in their place
        rows, bad = [clips.rows[i] for i in part], {r for r, _ in raw.pop("bad")}
        if len({*rows} - bad) < 2:
            continue
        fixed = FixedClips(
            t.manifest,
            [r for r in rows if r not in bad],
            "rgb" if from_rgb else t.view,
            ends,
            **UNCHANGED if from_rgb else t.views,
        )

        def of_fixed(order):
            return torch.stack(
                [
                    fixed.features(Reordered(n, order, t.view, **t.views) if from_rgb else n)[0]
                    for n in networks
                ],
                1,
            )

        plain = of_fixed("as-is")
        at = [i for i, r in enumerate(rows) if r not in bad | {*fixed.dropped}]
        x = views({k: v.to(device) if isinstance(v, Tensor) else v for k, v in raw.items()})[t.view]
        with torch.no_grad():
            z = torch.stack([n(x.flatten(0, 1)).float().cpu() for n in networks], 1)
        pixels = torch.cat([b["clips" if "clips" in b else "flow"] for b in fixed.kept])[:, 0]
        z = z.unflatten(0, (draws, len(rows), x.shape[1])).permute(1, 3, 0, 2, 4).flatten(2, 3)[at]
        kept += [rows[i] for i in at]
        parts.append(
            {
                "augmented": z,
                "plain": plain,
                "frame": pixels[:, pixels.shape[1] // 2],
                "moving": torch.tensor([moving_share(c.numpy()) for c in pixels]),
                **({"frozen": of_fixed("static")} if from_rgb else {}),
            }
        )
        if time.monotonic() - began > seconds and len(kept) >= 32:
            break
    _refuse_few(t, kept, chosen)
    return kept, {name: torch.cat([p[name] for p in parts]) for name in parts[0]}


class _Beside(nn.Module):
    "Two networks on clips and on their middle frame, T times: four features in a row."

    def __init__(self, *networks: HubEncoder):
        super().__init__()
        self.networks, self.prepare = nn.ModuleList(networks), networks[0].prepare

    def forward(
        self,
        x: Tensor,  # (B, 3, T, H, W)
    ) -> Tensor:  # (B, 4D)
        return torch.cat([n(clip) for n in self.networks for clip in (x, reorder(x, "static"))], 1)


def _encode_foreign(
    t: EvaluatedEncoder, most: int, machine: Machine, seconds: float
) -> tuple[list[int], dict[str, Tensor]]:
    """As `_encode_videos`, of an encoder of another library: nobody knows the clips that it was
    trained on.
    """
    began, m, kept = time.monotonic(), t.manifest, dict[int, Tensor]()
    p, both = t.protocol(clips=2), _Beside(t.encoder, t.encoder.untrained(0))
    order = np.random.default_rng(0).permutation(m.select("train", t.split)).tolist()
    rows = sorted(order, key=lambda r: m.label_id(r) < 0)[:most]  # labelled videos first
    for row, x in extract_clips(both, m, rows, t.view, p, batch=8, machine=machine, **t.views):
        if isinstance(x, Tensor):
            kept[row] = x  # (2, 4D)
        if time.monotonic() - began > seconds and len(kept) >= 32:
            break
    _refuse_few(t, kept, rows)
    raw = FixedClips(m, [*kept], "rgb", replace(p, clips=1, crops="centre", size=64), **UNCHANGED)
    raw.decoded(both)
    clips = torch.cat([b["clips"] for b in raw.kept])[:, 0]  # (B, T, 64, 64, 3)
    plain, frozen = torch.stack([*kept.values()]).unflatten(2, (2, 2, -1)).transpose(1, 2).unbind(3)
    return [*kept], {
        "plain": plain,
        "frozen": frozen,
        "frame": clips[:, clips.shape[1] // 2],
        "moving": torch.tensor([moving_share(c.numpy()) for c in clips]),
    }


def _refuse_few(t: EvaluatedEncoder, kept: Collection[int], chosen: Collection[int]) -> None:
    if len(kept) < 4:
        raise ValueError(
            f"{t.manifest.path}: {len(kept)} of {len(chosen)} training videos can "
            "be read, and a verdict takes four; bring the files back, or run `vssl-nb manifest` "
            "to mark them"
        )


def measure_videos(
    t: EvaluatedEncoder, rows: Sequence[int], x: dict[str, Tensor]
) -> dict[str, Any]:
    """Everything that decides a verdict, from what `_encode_videos` returns; *_random: by random
    weights.
    """
    n, plain = len(rows), x["plain"][:, 0]

    def paired(
        z,  # (B, 2R, D)
    ):  # (B,) mean over draws and directions
        pairs = list(zip(z[:, ::2].unbind(1), z[:, 1::2].unbind(1)))
        return torch.stack([instance_recall(*p) for a, b in pairs for p in ((a, b), (b, a))]).mean(
            0
        )

    # (networks, B)
    recall = torch.stack([paired(z) for z in x.get("augmented", x["plain"]).unbind(1)])
    gain, mean = recall[0] - recall[1:].mean(0), [z.mean(1) for z in x["plain"].unbind(1)]
    frozen = (
        [frozen_share(*z) for z in zip(x["plain"].unbind(1), x["frozen"].unbind(1))]
        if "frozen" in x
        else [None]
    )
    others = [v for v in frozen[1:] if v is not None]

    def compared(name, values):
        return {name: values[0], f"{name}_random": sum(values[1:]) / len(values[1:])}

    numbers: dict[str, Any] = {
        "videos": n,
        "trained_on": len(t.manifest.select("train", t.split)),
        "test_videos": sum(getattr(r, f"split{t.split}") == "test" for r in t.manifest.rows),
        "step": t.about.get("step"),
        **compared("found_again", recall.mean(1).tolist()),
        "distinct": len(x["frame"].flatten(1).unique(dim=0)),  # the others are copies
        "gain": float(gain.mean()),
        "gain_error": float(gain.std() / math.sqrt(n)),
        "chance": 1 / n,
        "mean_cosine": float(
            (normalize(mean[0].double(), dim=1).sum(0).square().sum() - n) / (n * (n - 1))
        ),
        "std": std(plain.flatten(0, 1)),
        "std_random": std(x["plain"][:, 1].flatten(0, 1)),
        "rankme": rankme(plain.flatten(0, 1) - plain.flatten(0, 1).mean(0)),
        "still_videos": float((x["moving"] < STILL_PIXELS).double().mean()),
        "by_colours": explained_by_colours(mean[0], x["frame"]),
        "one_frame": frozen[0],
        "one_frame_random": sum(others) / len(others) if others else None,
    }
    source, label = torch.tensor(
        [(t.manifest.source_id(r), t.manifest.label_id(r)) for r in rows]
    ).T
    some, numbers["labelled"] = label >= 0, int((label >= 0).sum())
    having = (source[:, None] == source).sum(1) > 1  # a sibling
    nearest = [_cosines(z, z).fill_diagonal_(-torch.inf).argmax(1)[having] for z in mean]
    if having.any():
        numbers |= {"siblings": int(having.sum())} | compared(
            "sibling_r1", [float((source[i] == source[having]).double().mean()) for i in nearest]
        )
    if numbers["labelled"] < FEWEST:
        return numbers
    with suppress(ValueError):  # no class has two sources
        numbers["label_chance"] = knn_chance(label[some], source[some])
        numbers |= compared("label_r1", [knn_r1(z[some], label[some], source[some]) for z in mean])
    return numbers


# -- the verdict in words

# gain over random weights, spread, share of videos that do not move, share of neighbours by a
# frozen frame
LEARNED, COLLAPSED, MOSTLY_STILL, BY_A_FRAME = 0.05, 0.03, 0.8, 0.7
FEWEST = 10  # videos with a sibling, or with a label, to be spoken of


@dataclass(frozen=True)
class Verdict:
    "What came of a run, in plain language, and the numbers behind it."

    learned: str  # yes, a little, unclear, no; not measured
    collapsed: bool
    still: bool  # do most of the videos not move?
    sentences: tuple[str, ...]  # what was measured
    advice: tuple[str, ...]  # what to do next
    numbers: dict[str, Any]  # of `measure_videos`

    def __str__(self) -> str:
        return "\n".join(
            [
                "Verdict",
                *(f"  {s}" for s in self.sentences),
                "What next",
                *(f"  {s}" for s in self.advice),
            ]
        )


TEXTS = read_lines("app/verdict.csv")


def judge(
    numbers: dict[str, Any],
    view: str,
    finished: bool = True,  # has the training come to its end?
    run: str = "RUN",  # as commands name the run
    data: str = "FOLDER",  # as commands name the videos
    video: str = "VIDEO",  # as commands name one of the videos
) -> Verdict:
    "From the numbers of `measure_videos`, and the view of the encoder, to words."
    n, p = numbers, {k: f"{100 * v:.0f} %" for k, v in numbers.items() if isinstance(v, float)}
    # the same pictures have the same features: that is no collapse
    copies = 2 * n["distinct"] <= n["videos"]
    # below a third of the spread of random weights, or one direction
    collapsed = not copies and (n["std"] < max(COLLAPSED, n["std_random"] / 3) or n["rankme"] < 1.5)
    sure = n["gain"] > 2.6 * n["gain_error"]  # one in two hundred by chance
    learned = (
        "no"
        if collapsed or n["gain"] < 0.02
        else "unclear"
        if not sure
        else "yes"
        if n["gain"] >= LEARNED
        else "a little"
    )
    if copies:
        learned = "unclear"
    if foreign := n["step"] is None:
        learned = "not measured"
    still, frame = n["still_videos"] >= MOSTLY_STILL, n["one_frame"]
    motion, labelled = frame == 0 and view == "residual", "label_r1" in n
    facts = {
        learned.replace(" ", "_"): True,
        view: True,
        "finished": finished,
        "collapsed": collapsed,
        "foreign": foreign,
        "lively": not (collapsed or still or copies),
        "still": still,
        "copies": copies,
        "partly_still": 0.2 < n["still_videos"] < MOSTLY_STILL,
        "easy": n["found_again_random"] > 0.9,
        "no_frame": frame is None,
        "only_motion": motion,
        "frame": frame is not None and not motion,
        "by_frame": view == "rgb" and (frame or 0.0) >= BY_A_FRAME,
        "siblings": n.get("siblings", 0) >= FEWEST,
        "labels": labelled,
        "few_labels": n["labelled"] > 0 and not labelled,
        "shown": learned in ("yes", "a little"),
        "tested": n["test_videos"],
        "all_labels": labelled and n["labelled"] == n["videos"],
    }
    words = {
        "n": n,
        "p": p,
        "run": run,
        "data": data,
        "video": video,
        "fewest": FEWEST,
        "beside": f" (random weights: {p.get('one_frame_random')})"
        * (n["one_frame_random"] is not None),
        "amount": next(
            (
                word
                for least, word in (
                    (0.9, "Nearly all"),
                    (BY_A_FRAME, "Most"),
                    (0.3, "Some"),
                    (0.0, "Hardly any"),
                )
                if (frame or 0.0) >= least
            )
        ),
    }

    def texts(part):
        return tuple(
            t["text"].format_map(words)
            for t in TEXTS
            if t["part"] == part
            and all(
                bool(facts.get(name.removeprefix("not-"))) != name.startswith("not-")
                for name in t["when"].split()
            )
        )

    words["result"] = " ".join((*texts("result"), ""))
    return Verdict(learned, collapsed, still, texts("sentence"), texts("advice"), n)


def give_verdict(
    run,  # a run folder with an encoder, or the name of one of another library
    data=None,  # a manifest or its folder; None: the one it was trained on
    machine: Machine = Machine(),
    most: int = 128,  # videos to encode
    seconds: float = 120.0,  # after so many no further videos are encoded
    # folder for verdict.json, verdict.txt and a picture; None: the run folder, where there is one
    out=None,
) -> Verdict:
    "What a run has learned, kept as files. `ValueError`."
    began, t = time.monotonic(), open_trained(run, data)
    folder = Path(out) if out else t.run
    # refuses flow that would take too long
    device = t.run and training_device(t.recipe, machine.device)
    try:
        rows, x = (
            _encode_videos(t, device, most, machine, seconds)
            if device
            else _encode_foreign(t, most, machine, seconds)
        )
        m, names = t.manifest, [run]
        if m.path.is_file():
            names += [m.root, m.rows[rows[0]].video]
        verdict = judge(
            measure_videos(t, rows, x),
            t.view,
            t.card.get("finished", True),
            *(shlex.quote(str(name)) for name in names),
        )
    except (ValueError, RuntimeError, OSError) as e:  # the training is not lost
        # of a worker: the last line
        reason = [type(e).__name__, *str(e).strip().splitlines()][-1]
        rows, again = (
            [],
            shlex.join(
                (
                    "vssl-nb",
                    "verdict",
                    str(run),
                    "--data",
                    str(t.manifest.path),
                    *("--out", str(out)) * (out is not None),
                )
            ),
        )
        verdict = Verdict(
            "not measured",
            False,
            False,
            (f"Nothing is measured: {reason}",),
            (f"The encoder is kept. Mend this, and run: {again}",),
            {},
        )
    if not folder:
        return verdict
    write_json(
        folder / "verdict.json", vars(verdict) | {"seconds": round(time.monotonic() - began, 1)}
    )
    write_whole(folder / "verdict.txt", lambda f: f.write(f"{verdict}\n".encode()))
    if not rows:
        return verdict
    # a frame of six videos, and of the four that the encoder finds most like each
    mean, at = (
        x["plain"][:, 0].mean(1),
        np.linspace(0, len(rows) - 1, min(6, len(rows))).round().astype(int),
    )
    near = (
        _cosines(mean, mean)
        .fill_diagonal_(-torch.inf)[at]
        .topk(min(4, len(rows) - 1))
        .indices.tolist()
    )
    picture = show.strips(
        [x["frame"][[i, *js]] for i, js in zip(at, near)],
        [t.manifest.rows[rows[i]].video for i in at],
    )
    show.save_picture(picture, folder / "figures" / "nearest-videos.png")
    return verdict


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
    **options,  # of `pretrain`: init_from, accepted, ...
) -> Verdict | None:  # of the first process
    "Fit a recipe to a folder, a machine and a time; train it; give the verdict. `ValueError`."
    began, out = began or time.monotonic(), Path(out)
    manifest = open_data(data, machine.progress)
    if resume:
        file, fields = out / "recipe.json", flat_fields(recipe)
        stored = from_dict(read_json(file, "a run that could be resumed"), str(file))
        recipe = override(stored, **{k: fields[k] for k in given if k in fields})
    else:
        earlier_run(out, False)  # refuses before anything is measured
        recipe = fit_recipe(recipe, manifest, machine, minutes, given, began)
        if is_main():
            print(*flat_fields(recipe)["reasons"], sep="\n", file=sys.stderr)
    every = health_every or max(1, flat_fields(recipe)["epochs"] // (8 if minutes >= 10 else 4))
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
    left = 60 * minutes - (time.monotonic() - began)
    return (
        give_verdict(out, data, machine, seconds=max(kept / 3, 0.7 * left)) if is_main() else None
    )
