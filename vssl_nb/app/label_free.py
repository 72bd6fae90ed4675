"""Measured without labels: held-out clips of training videos, and one frozen frame in place of a
clip.
"""

import math
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.utils.data import DataLoader

from ..data.dataset import collate
from ..data.sampling import even_clips
from ..measure.features import extract_clips
from ..measure.health import UNCHANGED, Reordered, knn_chance, knn_r1, rankme, reorder, std
from ..measure.fixed_clips import FixedClips
from ..measure.motion_descriptors import describe_motion, missing_flow
from ..nets.backbones import create
from ..runs.evaluation import EvaluatedEncoder
from ..runs.hub import PICTURES_OF_A_VIDEO, HubEncoder
from ..runs.experiment import resolve
from ..training.machine import Machine, init_worker

FEWEST = 10  # videos with a sibling, or with a label, to be spoken of
FEWEST_READ = 32  # videos that are encoded however long it takes

# share of pixels, of 255 levels: what changes less does not move
STILL_PIXELS = 0.002
STILL_LEVELS = 12.0


def moving_share(
    frames: np.ndarray,  # (T, H, W, 3) uint8
) -> float:  # 0 (a still) to 1
    "Share of the pixels that change in the course of a clip."
    grey = frames.astype(np.float32).mean(-1)
    return float((grey.max(0) - grey.min(0) > STILL_LEVELS).mean())


# -- numbers


def centred_similarity(
    x: Tensor,  # (N, D)
    y: Tensor,  # (M, D)
) -> Tensor:  # (N, M) float64
    "Cosines after the mean of y is taken off."
    mean = y.double().mean(0)
    return normalize(x.double() - mean, dim=1) @ normalize(y.double() - mean, dim=1).T


def instance_recall(
    q: Tensor,  # (N, D) of one clip of each video
    k: Tensor,  # (N, D) of another clip of each video
) -> Tensor:  # (N,)
    """Is the nearest clip one of the same video? 1 where no clip of another is as near; a tie is
    lost.
    """
    sim = centred_similarity(q, k)
    as_near = sim >= sim.diagonal()[:, None]
    return (as_near.sum(1) == 1).double()


def explained_by_colours(
    x: Tensor,  # (N, D)
    frames: Tensor,  # (N, H, W, 3) uint8
) -> float:  # R², 0 to 1
    """The share of the variance of the similarities of pairs of videos that colour histograms
    explain.
    """
    # (N, H*W), four levels a channel
    bins = (frames.long() // 64 @ torch.tensor([16, 4, 1])).flatten(1)
    histograms = torch.stack([torch.bincount(b, minlength=64) for b in bins]).double().sqrt()
    pairs = torch.triu_indices(len(x), len(x), 1).unbind()
    similarity = torch.stack([centred_similarity(z, z)[pairs] for z in (x, histograms)])
    if similarity.var(1, correction=0).min() < 1e-12:
        return 0.0
    return float(torch.corrcoef(similarity)[0, 1] ** 2)


def explained_by_motion(
    x: Tensor,  # (N, D)
    motion: Tensor,  # (N, E) of `motion_of_clips`
) -> float:  # R², 0 to 1
    "The share of the variance of the similarities of pairs of videos that motion by hand explains."
    pairs = torch.triu_indices(len(x), len(x), 1).unbind()
    similarity = torch.stack([centred_similarity(z, z)[pairs] for z in (x, motion)])
    if similarity.var(1, correction=0).min() < 1e-12:
        return 0.0
    return float(torch.corrcoef(similarity)[0, 1] ** 2)


def colours_of_clips(
    clips: Tensor,  # (B, V, T, H, W, 3) uint8
) -> Tensor:  # (B, 512)
    "Square root of the share of pixels in each cell of the colour cube, eight levels a channel."
    # (B, pixels)
    cells = (clips.long() // 32 @ torch.tensor([64, 8, 1])).flatten(1)
    counts = torch.stack([torch.bincount(video, minlength=512) for video in cells])
    return (counts / counts.sum(1, keepdim=True)).sqrt()


def motion_of_clips(
    clips: Tensor,  # (B, V, T, H, W, 3) uint8
) -> list[Tensor]:  # (B, 128), and where OpenCV is installed (B, 162)
    "Motion by hand, its mean over the clips of a video."
    with_flow = clips.shape[2] > 1 and not missing_flow()
    parts = describe_motion(clips.flatten(0, 1), with_flow)
    return [x.unflatten(0, clips.shape[:2]).mean(1) for x in parts]


def side_by_side(
    *parts: Tensor,  # (N, D) each
) -> Tensor:  # (N, sum of D)
    "Features whose cosine is the mean of those of the parts, each centred."
    unit = [normalize(x.double() - x.double().mean(0), dim=1) for x in parts]
    return torch.cat(unit, 1)


def nearest_others(
    x: Tensor,  # (N, D)
    k: int,
) -> Tensor:  # (N, k) indices
    "The k nearest of each, itself left out."
    return centred_similarity(x, x).fill_diagonal_(-torch.inf).topk(k).indices


def neighbour_agreement(
    x: Tensor,  # (N, D)
    y: Tensor,  # (N, E) of the same videos
    k: int = 5,
) -> float:  # 0 to 1
    "Of the k nearest videos by one kind of feature, the share that is among those by the other."
    by_x = nearest_others(x, k)
    by_y = nearest_others(y, k)
    both = by_x[:, :, None] == by_y[:, None, :]
    return float(both.double().sum((1, 2)).mean() / k)


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
    first = neighbour_agreement(clips[:, 0], frozen[:, 1], k)
    second = neighbour_agreement(clips[:, 1], frozen[:, 0], k)
    still = (first + second) / 2 - chance
    return min(1.0, max(0.0, still / moving))


# -- features of a trained encoder, and of random ones beside it

UNSEEN_EPOCH = 10**6  # the training never comes so far: its clips are other ones
ROWS_TOGETHER = 16  # videos of one batch


def encode_videos(
    t: EvaluatedEncoder,
    device: torch.device,
    most: int,  # videos
    machine: Machine,
    seconds: float,  # after so many no further videos are encoded, once there are FEWEST_READ
    # returns: the rows that can be read, and by name what follows; N: networks
) -> tuple[list[int], dict[str, Tensor]]:
    "Features of videos by the trained network and random ones."
    # augmented (B, N, 2R, D): R pairs of clips as in training; plain (B, N, 2, D): first and last
    # clip; frozen (B, N, 2, D): their middle frame, T times, not of flow; frame (B, H, W, 3) uint8;
    # moving (B,)
    began = time.monotonic()
    random = [create(t.about["backbone"], seed=t.about["seed"] + s) for s in range(2)]
    networks = [n.to(device).eval() for n in (cast(nn.Module, t.encoder), *random)]
    experiment = resolve(t.recipe, t.manifest, machine)
    clips = experiment.clips
    chosen = _labelled_first(t, len(clips), clips.rows)[:most]
    draws = 2 if len(chosen) > 64 else 4  # few videos are measured more often
    groups = [p.tolist() for p in np.array_split(chosen, math.ceil(len(chosen) / ROWS_TOGETHER))]
    # a batch has every video in each draw: none of one video alone
    keys = [[(UNSEEN_EPOCH + d, i) for d in range(draws) for i in group] for group in groups]
    batches = DataLoader(
        clips,
        batch_sampler=keys,
        num_workers=machine.workers,
        collate_fn=collate,
        worker_init_fn=init_worker,
        generator=torch.Generator(),
    )
    kept: list[int] = []
    parts: list[dict[str, Tensor]] = []
    for group, raw in zip(groups, batches):  # (draws*rows, V, ...)
        rows = [clips.rows[i] for i in group]
        bad = {row for row, _ in raw.pop("bad")}  # others came in their place
        if len({*rows} - bad) < 2:
            continue
        part, dropped = _unaugmented(t, networks, [r for r in rows if r not in bad])
        read = [i for i, r in enumerate(rows) if r not in bad | dropped]
        on_device = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in raw.items()}
        x = experiment.views(on_device)[t.view]
        with torch.no_grad():
            z = torch.stack([n(x.flatten(0, 1)).float().cpu() for n in networks], 1)
        z = z.unflatten(0, (draws, len(rows), x.shape[1]))  # (draws, rows, V, N, D)
        part["augmented"] = z.permute(1, 3, 0, 2, 4).flatten(2, 3)[read]
        kept += [rows[i] for i in read]
        parts.append(part)
        if time.monotonic() - began > seconds and len(kept) >= FEWEST_READ:
            break
    _refuse_few(t, kept, chosen)
    return kept, {name: torch.cat([p[name] for p in parts]) for name in parts[0]}


def _labelled_first(
    t: EvaluatedEncoder,
    n: int,  # training videos
    rows: Sequence[int],  # of the manifest, for each of them
) -> list[int]:  # numbers of training videos
    "The training videos in a random order, those with a label first."
    order = np.random.default_rng(t.about["seed"]).permutation(n)
    return sorted(order.tolist(), key=lambda i: t.manifest.label_id(rows[i]) < 0)


def _unaugmented(
    t: EvaluatedEncoder,
    networks: Sequence[nn.Module],
    rows: list[int],  # of the manifest
) -> tuple[dict[str, Tensor], set[int]]:  # what `encode_videos` returns; the unreadable rows
    "Features of the first and the last clip of videos, as they are and frozen."
    from_rgb = t.view in ("rgb", "residual")
    fixed = FixedClips(
        t.manifest,
        rows,
        "rgb" if from_rgb else t.view,
        t.protocol("clean", clips=2),
        **UNCHANGED if from_rgb else t.views,
    )

    def features(order: str) -> Tensor:  # (B, N, 2, D)
        each = []
        for network in networks:
            if from_rgb:
                network = Reordered(network, order, t.view, **t.views)
            each.append(fixed.features(network)[0])
        return torch.stack(each, 1)

    part = {"plain": features("as-is")}
    pixels = torch.cat([b["clips" if "clips" in b else "flow"] for b in fixed.kept])[:, 0]
    part["frame"] = pixels[:, pixels.shape[1] // 2]
    part["moving"] = torch.tensor([moving_share(clip.numpy()) for clip in pixels])
    if from_rgb:
        part |= _by_hand(torch.cat([b["clips"] for b in fixed.kept]))
        part["frozen"] = features("static")
    return part, {*fixed.dropped}


def _by_hand(
    clips: Tensor,  # (B, V, T, H, W, 3) uint8
) -> dict[str, Tensor]:  # `colours`, `change` and, with OpenCV, `directions`
    motion = dict(zip(("change", "directions"), motion_of_clips(clips)))
    return {"colours": colours_of_clips(clips)} | motion


class _Beside(nn.Module):
    "Two networks on clips and on their middle frame, T times: four features in a row."

    def __init__(self, *networks: HubEncoder):
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.prepare = networks[0].prepare

    def forward(
        self,
        x: Tensor,  # (B, 3, T, H, W)
    ) -> Tensor:  # (B, 4D)
        frozen = reorder(x, "static")
        return torch.cat([n(clip) for n in self.networks for clip in (x, frozen)], 1)


def encode_foreign(
    t: EvaluatedEncoder,
    most: int,  # as of `encode_videos`
    machine: Machine,  # as of `encode_videos`
    seconds: float,  # as of `encode_videos`
) -> tuple[list[int], dict[str, Tensor]]:
    """As `encode_videos`, of an encoder of another library: nobody knows the clips that it was
    trained on.
    """
    began = time.monotonic()
    m = t.manifest
    p = t.protocol(clips=2)
    both = _Beside(t.encoder, t.encoder.untrained(0))
    order = np.random.default_rng(0).permutation(m.select("train", t.split)).tolist()
    rows = sorted(order, key=lambda r: m.label_id(r) < 0)[:most]  # labelled videos first
    kept: dict[int, Tensor] = {}
    for row, x in extract_clips(both, m, rows, t.view, p, batch=8, machine=machine, **t.views):
        if isinstance(x, Tensor):
            kept[row] = x  # (2, 4D)
        if time.monotonic() - began > seconds and len(kept) >= FEWEST_READ:
            break
    _refuse_few(t, kept, rows)
    small = replace(p, clips=1, crops="centre", size=64)
    fixed = FixedClips(m, [*kept], "rgb", small, **UNCHANGED)
    fixed.decoded(both)
    clips = torch.cat([b["clips"] for b in fixed.kept])[:, 0]  # (B, T, 64, 64, 3)
    z = torch.stack([*kept.values()]).unflatten(2, (2, 2, -1))  # (B, 2, networks, frozen?, D)
    plain, frozen = z.transpose(1, 2).unbind(3)
    features = {
        "plain": plain,
        "frozen": frozen,
        "frame": clips[:, clips.shape[1] // 2],
        "moving": torch.tensor([moving_share(clip.numpy()) for clip in clips]),
    }
    return [*kept], features | _by_hand(clips[:, None])


def encode_pictures(
    t: EvaluatedEncoder,
    encoder: HubEncoder,  # of pictures
    rows: Sequence[int],  # of the manifest
    seconds: float,  # None comes back where it would take longer
    # returns: (B, D) of all videos
) -> Tensor | None:
    "What an encoder of pictures makes of eight frames of each video, spread evenly."
    began = time.monotonic()
    made: list[Tensor] = []
    pictures = PICTURES_OF_A_VIDEO["length"]
    with torch.inference_mode():
        for row in rows:
            frames = even_clips(t.manifest.rows[row].frames, clips=pictures, length=1)[:, 0]
            x = encoder.prepare(t.manifest.decode(row, frames.tolist()))
            made.append(encoder(x.transpose(0, 1)[None])[0])
            elapsed = time.monotonic() - began
            if elapsed * len(rows) / len(made) > seconds and len(made) >= 4:
                return None
    return torch.stack(made)


def _refuse_few(t: EvaluatedEncoder, kept: Collection[int], chosen: Collection[int]) -> None:
    if len(kept) < 4:
        raise ValueError(
            f"{t.manifest.path}: {len(kept)} of {len(chosen)} training videos can be read, and a "
            "verdict takes four; bring the files back, or run `vssl-nb manifest` to mark them"
        )


# -- everything that decides a verdict


def measure_videos(
    t: EvaluatedEncoder,
    rows: Sequence[int],  # of the manifest
    features: dict[str, Tensor],  # of `encode_videos`
) -> dict[str, Any]:  # name -> number; *_random: by random weights
    "Everything that decides a verdict."
    n = len(rows)
    plain = features["plain"][:, 0]
    random = features["plain"][:, 1]
    means = [z.mean(1) for z in features["plain"].unbind(1)]  # of each network
    recall = torch.stack(
        [_paired_recall(z) for z in features.get("augmented", features["plain"]).unbind(1)]
    )  # (networks, B)
    gain = recall[0] - recall[1:].mean(0)
    total = normalize(means[0].double(), dim=1).sum(0).square().sum()
    numbers: dict[str, Any] = {
        "videos": n,
        "trained_on": len(t.manifest.select("train", t.split)),
        "test_videos": sum(getattr(r, f"split{t.split}") == "test" for r in t.manifest.rows),
        "step": t.about.get("step"),
        **_beside_random("found_again", recall.mean(1).tolist()),
        "distinct": len(features["frame"].flatten(1).unique(dim=0)),  # the others are copies
        "gain": float(gain.mean()),
        "gain_error": float(gain.std() / math.sqrt(n)),
        "chance": 1 / n,
        "mean_cosine": float((total - n) / (n * (n - 1))),
        "std": std(plain.flatten(0, 1)),
        "std_random": std(random.flatten(0, 1)),
        "rankme": rankme(plain.flatten(0, 1) - plain.flatten(0, 1).mean(0)),
        "still_videos": float((features["moving"] < STILL_PIXELS).double().mean()),
        "by_colours": explained_by_colours(means[0], features["frame"]),
    }
    numbers |= _measure_frames(features)
    untrained = _need_no_training(features)
    if "motion" in untrained:
        numbers["by_motion"] = explained_by_motion(means[0], untrained["motion"])
    return numbers | _measure_sources_and_labels(t, rows, means, untrained)


def _need_no_training(features: dict[str, Tensor]) -> dict[str, Tensor]:
    "Features that stand beside the encoder: colours, motion by hand, both, a published encoder."
    names: tuple[str, ...] = ("colours", "published")
    untrained = {k: features[k] for k in names if k in features}
    motion = [features[k] for k in ("change", "directions") if k in features]
    if motion:
        untrained["motion"] = side_by_side(*motion)
        untrained["colours_and_motion"] = side_by_side(features["colours"], untrained["motion"])
    return untrained


def _paired_recall(
    z: Tensor,  # (B, 2R, D): R pairs of clips
) -> Tensor:  # (B,)
    "Instance recall, its mean over pairs and directions."
    recalls = []
    for a, b in zip(z[:, ::2].unbind(1), z[:, 1::2].unbind(1)):
        recalls += [instance_recall(a, b), instance_recall(b, a)]
    return torch.stack(recalls).mean(0)


def _beside_random(
    name: str,
    values: Sequence[float],  # of the trained network, and of random ones
) -> dict[str, float]:
    "A number, and the mean of random weights beside it."
    random = values[1:]
    return {name: values[0], f"{name}_random": sum(random) / len(random)}


def _measure_frames(features: dict[str, Tensor]) -> dict[str, float | None]:
    "How much of what each network calls alike it finds in a frozen frame."
    if "frozen" not in features:
        return {"one_frame": None, "one_frame_random": None}
    pairs = zip(features["plain"].unbind(1), features["frozen"].unbind(1))
    shares = [frozen_share(clips, frozen) for clips, frozen in pairs]
    random = [share for share in shares[1:] if share is not None]
    return {
        "one_frame": shares[0],
        "one_frame_random": sum(random) / len(random) if random else None,
    }


def _measure_sources_and_labels(
    t: EvaluatedEncoder,
    rows: Sequence[int],  # of the manifest
    means: Sequence[Tensor],  # (B, D) of each network
    untrained: Mapping[str, Tensor],  # (B, D) of what needs no training, by name
) -> dict[str, Any]:
    "How often the nearest video is of the same source, and of the same label, where some have one."
    source = torch.tensor([t.manifest.source_id(r) for r in rows])
    label = torch.tensor([t.manifest.label_id(r) for r in rows])
    labelled = label >= 0
    numbers: dict[str, Any] = {"labelled": int(labelled.sum())}
    has_sibling = (source[:, None] == source).sum(1) > 1
    if has_sibling.any():

        def sibling_r1(z: Tensor) -> float:
            similarity = centred_similarity(z, z).fill_diagonal_(-torch.inf)
            nearest = similarity.argmax(1)[has_sibling]
            return float((source[nearest] == source[has_sibling]).double().mean())

        recalls = [sibling_r1(z) for z in means]
        numbers |= {"siblings": int(has_sibling.sum())} | _beside_random("sibling_r1", recalls)
        numbers |= {f"sibling_r1_{name}": sibling_r1(z) for name, z in untrained.items()}
    if numbers["labelled"] < FEWEST:
        return numbers
    with suppress(ValueError):  # no class has two sources
        numbers["label_chance"] = knn_chance(label[labelled], source[labelled])
        recalls = [knn_r1(z[labelled], label[labelled], source[labelled]) for z in means]
        numbers |= _beside_random("label_r1", recalls)
        for name, z in untrained.items():
            recall = knn_r1(z[labelled], label[labelled], source[labelled])
            numbers[f"label_r1_{name}"] = recall
    return numbers
