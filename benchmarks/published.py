"""What a published encoder of pictures is worth on 60, 250 and 491 real clips.

    python benchmarks/published.py --data JHMDB --cache features.npz --out FILE.json
    python benchmarks/published.py --data UCF101 --cache f.npz --clips 0 --seeds 3 --out FILE.json

The second is on the clips of `evidence.py`, nine classes of UCF101 in copies of short side 72, all
761 to train on.

JHMDB, split 1 (21 actions of half a second to 1.3 s; 217 test clips of 88 recordings), of whose 491
training clips 60, 250 and all are there, as in `own_clips.py`: nested, whole recordings. The
encoder is EfficientNet-Lite0 with weights of ImageNet (`published:efficientnet-lite0`), frozen,
float32, on eight frames that are spread evenly over a clip, as its processor makes them (224 px).
Rows: chance, a colour histogram, motion by hand, both together, the mean of the eight features,
their spread over time, both side by side, and that with motion by hand (cosines are added).

Is it worth to train something on top? *A temporal head*: convolutions over the time of the eight
features, 256 units, trained by InfoNCE on the training clips that are there: two clips of a video
are four of its eight frames each, drawn anew in every epoch. It is measured as it is drawn
(`untrained`) and after training, on all eight frames, `--seeds` seeds each. Nothing was chosen on
these clips: width, rate, temperature and epochs are the first that were tried.

Measured: R@1 (cosine, centred on the training clips that are there), right or wrong kept for each
test clip. Intervals of 95 %: a bootstrap of the test recordings (and of the seeds of a head), eight
times with other draws, of which the widest ends are taken. Two rows are compared on the same draws;
a difference whose interval includes 0 is open."""

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import measurement
import numpy as np
import torch
from intervals import Bootstrap, middle_95
from own_clips import nested
from result_files import Stamp, rule, settings_of, write_results
from torch import Tensor, nn
from torch.nn import functional

from vssl_nb.data.manifest import Manifest, open_data
from vssl_nb.data.sampling import even_clips
from vssl_nb.measure.features import Features, restrict
from vssl_nb.measure.motion_descriptors import BY_HAND, HandMadeFeatures, joined_features
from vssl_nb.measure.protocols import Protocol
from vssl_nb.measure.retrieval import centre_and_normalise, chance, nearest_neighbours
from vssl_nb.runs.hub import TIME, HubEncoder, load_hub
from vssl_nb.training.machine import Machine

ENCODER = "published:efficientnet-lite0"
SIZES = (60, 250, 0)  # 0: all clips
FRAMES = 8  # of a clip
COLOURS, MOTION, COLOURS_AND_MOTION = BY_HAND.values()
BOTH = "published, mean and spread"
HEAD, UNTRAINED_HEAD = "head by InfoNCE on published", "untrained head on published"
BOOTSTRAPS = 8  # with other draws

Pair = tuple[Features, Features]  # query, gallery


# ---- features of frames, computed once


@torch.inference_mode()
def frame_features(
    manifest: Manifest,
    encoder: HubEncoder,
    cache: Path,  # .npz: read where it is there, else written
) -> Features:  # x (N, 8, D): of all videos
    "Features of eight frames of each video, evenly spread."
    rows = manifest.select("all", 1)
    if not cache.exists():
        network = encoder.model.to(memory_format=torch.channels_last)
        began = time.process_time()
        made = []
        for row in rows:
            frames = even_clips(manifest.rows[row].frames, clips=FRAMES, length=1)[:, 0]
            x = encoder.prepare(manifest.decode(row, frames.tolist()))
            y = network(x.contiguous(memory_format=torch.channels_last))
            made.append(y.pooler_output.flatten(1).numpy())
            if len(made) % 50 == 0:
                print(f"{len(made)} of {len(rows)} videos", flush=True)
        seconds = time.process_time() - began
        cache.parent.mkdir(parents=True, exist_ok=True)
        np.savez(cache, x=np.stack(made), sha256=manifest.sha256, seconds=seconds)

    kept = np.load(cache)
    if str(kept["sha256"]) != manifest.sha256:
        raise ValueError(f"{cache}: is of another manifest; name another --cache")
    return Features(
        x=torch.from_numpy(kept["x"]),
        label=torch.tensor([manifest.label_id(row) for row in rows]),
        row=torch.tensor(rows),
        source=torch.tensor([manifest.source_id(row) for row in rows]),
        protocol=Protocol("eight frames", clips=FRAMES, length=1, size=224),
        key={"manifest": manifest.sha256, "part": "all", "split": "1"},
    )


def over_time(
    frames: Features,  # x (N, T, D)
    time: str,  # of `hub.TIME`
) -> Features:  # x (N, D), or (N, 2D)
    return replace(frames, x=TIME[time](frames.x))


# ---- a head on cached features


class TemporalHead(nn.Module):
    "Two convolutions over time, then the mean: features of frames (B, T, D) -> (B, units)."

    def __init__(self, dim: int, seed: int, units: int = 256):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.first = nn.Conv1d(dim, units, 3, padding=1)
            self.second = nn.Conv1d(units, units, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.relu(self.first(x.transpose(1, 2)))
        return self.second(hidden).mean(2)


def standardised(
    frames: Features,  # of all videos
    there: Features,  # the training videos that there are
) -> Features:
    "Each number with mean 0 and spread 1 over the frames of the videos that there are."
    flat = there.x.flatten(0, 1)
    spread = flat.std(0).clamp(min=1e-6)
    return replace(frames, x=(frames.x - flat.mean(0)) / spread)


def info_nce(
    one: Tensor,  # (B, D)
    other: Tensor,  # (B, D) of the same videos
    temperature: float = 0.1,
) -> Tensor:
    "Which of the other clips is of the same video? In both directions."
    one, other = functional.normalize(one, dim=1), functional.normalize(other, dim=1)
    similarity = one @ other.T / temperature
    same = torch.arange(len(one))
    return (
        functional.cross_entropy(similarity, same) + functional.cross_entropy(similarity.T, same)
    ) / 2


def train_head(
    head: TemporalHead,
    x: Tensor,  # (N, T, D) of the training videos that there are
    seed: int,
    epochs: int = 60,
    batch: int = 60,
) -> None:
    "InfoNCE on two halves of the frames of each video, drawn anew in every epoch."
    drawn = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-3, weight_decay=1e-5)
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=drawn)
        for rows in order.split(batch):
            if len(rows) < 2:
                continue
            frames = torch.rand(len(rows), x.shape[1], generator=drawn).argsort(1)
            half = x.shape[1] // 2
            views = (frames[:, :half].sort(1).values, frames[:, half:].sort(1).values)
            one, other = (head(x[rows[:, None], at]) for at in views)
            loss = info_nce(one, other)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@torch.no_grad()
def with_head(head: TemporalHead, frames: Features) -> Features:
    return replace(frames, x=head(frames.x))


# ---- rows


def right_answers(pair: Pair) -> list[int]:  # 1 or 0 for each test video
    "Is the nearest training video of the same class?"
    query, gallery = pair
    near = nearest_neighbours(*centre_and_normalise(query, gallery), 1)[0][:, 0]
    return (gallery.label[near] == query.label).int().tolist()


class Clips:
    "The clips of a number of training videos, and the rows on them."

    def __init__(self, manifest: Manifest, clips: int, frames: Features, hand: HandMadeFeatures):
        self.manifest, self.hand, self.frames = manifest, hand, frames
        self.there = sorted(nested(manifest)[: clips or None])

    def few(self, gallery: Features) -> Features:
        "Of the training videos those that are there."
        return gallery.take(torch.isin(gallery.row, torch.tensor(self.there)))

    def pair(self, features: Features) -> Pair:  # of all videos
        query, gallery = (restrict(features, self.manifest, part) for part in ("test", "train"))
        return query, self.few(gallery)

    def by_hand(self) -> dict[str, Pair]:
        "Centred on the clips that are there, as everything else."
        colours = self.pair(self.hand.colours)
        motion = joined_features(*(self.pair(stream) for stream in self.hand.motion))
        return {
            COLOURS: colours,
            MOTION: motion,
            COLOURS_AND_MOTION: joined_features(colours, motion),
        }

    def rows(self, seeds: int) -> dict[str, dict[str, Any]]:  # with `r1`: a list of each seed
        pairs = self.by_hand()
        pairs |= {
            f"published, {name}": self.pair(over_time(self.frames, time))
            for name, time in (("mean", "mean"), ("spread", "spread"), ("mean and spread", "both"))
        }
        pairs[f"{BOTH}, and motion by hand"] = joined_features(pairs[BOTH], pairs[MOTION])
        rows = {name: {"r1": [right_answers(pair)]} for name, pair in pairs.items()}
        return rows | self.heads(seeds)

    def heads(self, seeds: int) -> dict[str, dict[str, Any]]:
        frames = standardised(self.frames, self.pair(self.frames)[1])
        x = self.pair(frames)[1].x
        rows: dict[str, dict[str, Any]] = {
            UNTRAINED_HEAD: {"r1": [], "seconds": []},
            HEAD: {"r1": [], "seconds": []},
        }
        for seed in range(seeds):
            head = TemporalHead(x.shape[2], seed)
            rows[UNTRAINED_HEAD]["r1"].append(right_answers(self.pair(with_head(head, frames))))
            began = time.process_time()
            train_head(head, x, seed)
            rows[HEAD]["seconds"].append(round(time.process_time() - began, 1))
            rows[HEAD]["r1"].append(right_answers(self.pair(with_head(head, frames))))
        return rows


# ---- intervals


def widest(intervals: list[list[float]]) -> list[float]:
    low, high = zip(*intervals)
    return [min(low), max(high)]


def with_intervals(
    rows: dict[str, dict[str, Any]],
    source: list[int],  # recording of each test video
    draws: int = 4000,
) -> list[dict[str, Any]]:
    "R@1 of each row, and its difference to others on the same draws."
    bootstraps = [Bootstrap(source, draws, seed) for seed in range(BOOTSTRAPS)]
    shares = {name: [b.share(row["r1"]) for b in bootstraps] for name, row in rows.items()}
    compared = (COLOURS, MOTION, COLOURS_AND_MOTION, BOTH)
    table = []
    for name, row in rows.items():
        line: dict[str, Any] = {"name": name, "seeds": len(row["r1"]), "r1": shares[name][0][0]}
        line["r1_interval"] = widest([middle_95(draw) for _, draw in shares[name]])
        if row.get("seconds"):
            line["seconds"] = float(np.mean(row["seconds"]))
        line["above"] = {
            other: {
                "r1": shares[name][0][0] - shares[other][0][0],
                "r1_interval": widest(
                    [middle_95(a - b) for (_, a), (_, b) in zip(shares[name], shares[other])]
                ),
            }
            for other in compared
            if other != name
        }
        table.append(line | {"right": row["r1"]})
    return table


def main() -> None:
    p = measurement.parser(__doc__)
    p.add_argument("--data", type=Path, required=True, help="a manifest with labels and a split")
    p.add_argument("--cache", type=Path, required=True, help=".npz of features; made where missing")
    p.add_argument("--encoder", default=ENCODER, help="of pictures, as vssl-nb retrieve names it")
    p.add_argument("--clips", type=int, nargs="+", default=[*SIZES], help="how many; 0: all")
    p.add_argument("--seeds", type=int, default=4, help="of the head")
    p.add_argument("--out", type=Path, required=True, help="a .json file")
    a = p.parse_args()
    try:
        torch.set_num_threads(1)
        manifest = open_data(a.data)
        settings = settings_of(a, without=("cache",))
        stamp = Stamp(__file__, settings | {"data": manifest.sha256})
        frames = frame_features(manifest, load_hub(a.encoder), a.cache)
        hand = HandMadeFeatures(manifest, Machine("cpu", progress=False))
        sizes = []
        for n in sorted(a.clips, key=lambda n: n or len(manifest.rows)):
            clips = Clips(manifest, n, frames, hand)
            query, gallery = clips.pair(frames)
            rows = clips.rows(a.seeds)
            table = with_intervals(rows, query.source.tolist())
            sizes.append(
                {
                    "clips": len(gallery),
                    "recordings": len(gallery.source.unique()),
                    "chance": chance(query.label, gallery.label, [1])[1],
                    "rows": table,
                }
            )
            for line in table:
                low, high = line["r1_interval"]
                print(
                    f"{len(gallery)} clips: {line['r1']:.1%} ({low:.1%} to {high:.1%})",
                    line["name"],
                )
        results = {
            "rule": rule(__file__),
            "encoder": a.encoder,
            "manifest_sha256": manifest.sha256,
            "test": len(query),
            "test_recordings": len(query.source.unique()),
            "row": query.row.tolist(),
            "source": query.source.tolist(),
            "seconds_of_features": float(np.load(a.cache)["seconds"]),
            "sizes": sizes,
        }
        write_results(a.out, stamp.head() | results)
    except (ValueError, OSError) as e:
        print(e, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
