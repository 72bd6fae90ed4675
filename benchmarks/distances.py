"""Which distance between videos finds the right positives, and when?

Figure 1 of ProViCo's appendix: during training, precision and recall of the pairs that each
distance would mine, on batches with as many videos of every class. The paper takes 11 classes of
UCF101 and 8 videos of each (88 videos, 308 pairs of one class), measures every 20 epochs, and
begins at epoch 40, after the 30 without mining.

    python benchmarks/distances.py                            # toy videos, ten epochs
    python benchmarks/distances.py --data toy21 --seed 21 --epochs 12 --every 3 --batch 32
    python benchmarks/distances.py --data ../shared/videos/ucf101_more --classes paper \\
        --videos 24 --epochs 40 --every 20 --out results/distances-cpu.json

One ProViCo is trained (recipe `provico-toy` with the paper's stage without mining, mined by the
Bhattacharyya distance; its training batches are drawn at random, not balanced), stopped every so
many epochs, and asked. All distances see the same Gaussians of the same videos: two clips spread
over a training video make one Gaussian, in evaluation mode, and Monte-Carlo distances draw the same
K embeddings. The curves are the mean over several balanced batches that share no video, all pairs
of a batch counted together.

A pair is mined if its distance is below the threshold. Here that is the mean distance of the videos
of the batch from themselves (appendix Eq. 9), for each distance its own; --threshold gives all of
them a fixed one, as the .15 of section 4.2, which only means something for the Bhattacharyya
distance. *Bhattacharyya, exact* is the limit of infinitely many embeddings, in closed form: the
mean squared distance of two Gaussians is that of their means plus both total variances. (With the
distance of the means alone every video would be 0 from itself, and Eq. 9 would mine nothing.) The
divergences take one variance a video, the geometric mean, as the paper's formulas do."""

import math
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import measurement
import numpy as np
import torch
from result_files import Stamp, settings_of, write_results
from torch import Tensor, nn

from vssl_nb.data import manifest, toy
from vssl_nb.measure.gaussian import VideoGaussians, draw_videos, video_gaussians
from vssl_nb.measure.protocols import Protocol, protocol
from vssl_nb.methods.provico import positive_pairs
from vssl_nb.config import Recipe
from vssl_nb.methods.recipes import find, override
from vssl_nb.nets.heads import bhattacharyya, kl, log_uncertainty, squared_distances
from vssl_nb.runs.experiment import resolve
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.ssl.pairs import distances, mining_logs
from vssl_nb.training.checkpoints import read_encoder, read_heads
from vssl_nb.training.machine import Machine

PAPER = (  # appendix B.2, footnote 2
    "ApplyEyeMakeup",
    "Archery",
    "BabyCrawling",
    "BalanceBeam",
    "BandMarching",
    "BaseballPitch",
    "Basketball",
    "BenchPress",
    "Biking",
    "GolfSwing",
    "SkyDiving",
)
EXACT = "bhattacharyya, exact"
NAMES = (EXACT, "bhattacharyya", "euclidean", "kl", "jensen_shannon", "wasserstein")
INSTANCE_STAGE = 0.15  # of the epochs; section 4.2: 30 of 200


def all_distances(
    mu: Tensor,  # (B, D) means
    s: Tensor,  # (B, D) log-variances
    z: Tensor,  # (B, K, D) embeddings
) -> dict[str, Tensor]:  # (B, B) of each name
    "Every distance between the videos of a batch."
    own = torch.eye(len(mu), dtype=torch.bool)
    u = log_uncertainty(s)
    total = s.exp().sum(1)
    squared = torch.cdist(mu, mu).pow(2) + total[:, None] + total

    every = {}
    for name in NAMES:
        if name == EXACT:
            every[name] = bhattacharyya(squared, u, u, 1 / (4 * mu.shape[1]))
        elif name == "kl":
            every[name] = kl(squared_distances(z, z, own), u, u)
        else:
            every[name] = distances(z, z, u, u, own, name)
    return every


def balanced(
    label: list[int],  # of each video
    per_class: int,  # videos of a class in a batch
    batches: int,  # at most
    seed: int = 0,
) -> list[list[int]]:
    "Positions of the videos of each batch, equally many of every class; no video is in two."
    rng = np.random.default_rng((seed, 0))
    positions = defaultdict(list)
    for i, c in enumerate(label):
        positions[c].append(i)
    smallest = min(len(v) for v in positions.values())
    if smallest < per_class:
        raise SystemExit(f"--per-class {per_class}: the smallest class has {smallest} videos")

    order = [rng.permutation(v).tolist() for _, v in sorted(positions.items())]
    made = []
    for n in range(min(batches, smallest // per_class)):
        part = slice(n * per_class, (n + 1) * per_class)
        made.append([i for videos in order for i in videos[part]])
    return made


def mean_of_defined(values: list[float]) -> float | None:
    "Where no pair was mined, precision is not defined."
    defined = [x for x in values if not math.isnan(x)]
    return sum(defined) / len(defined) if defined else None


def mined(
    g: VideoGaussians,
    z: Tensor,  # (N, K, D) embeddings
    batches: list[list[int]],  # positions
    threshold: float | None,  # None: the mean distance of the videos from themselves
) -> dict[str, dict[str, float | None]]:
    "Precision, recall and number of mined pairs of each distance, the mean over batches."
    logs: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in NAMES}
    for batch in batches:
        own = torch.eye(len(batch), dtype=torch.bool)
        every = all_distances(g.mu[batch, 0], g.s[batch, 0], z[batch])
        for name, distance in every.items():
            positive = positive_pairs(distance, own, threshold)
            for k, v in mining_logs(positive, own, g.label[batch]).items():
                logs[name][k].append(v.item())
    return {name: {k: mean_of_defined(v) for k, v in of.items()} for name, of in logs.items()}


def part_of(data: Path, home: Path, classes: list[str], videos: int) -> Path:
    "A table of the first so many training videos of some classes, beside links to them."
    m = manifest.read(data)
    home.mkdir(parents=True)
    taken: dict[str, int] = defaultdict(int)
    rows = []
    for i in m.select("train", 1):
        row = m.rows[i]
        if row.label not in classes or taken[row.label] == videos:
            continue
        taken[row.label] += 1
        link = home / Path(row.video).parts[0]
        if not link.is_symlink():
            link.symlink_to((m.root / link.name).resolve())
        rows.append(replace(row, flow=""))
    return manifest.write(home / "manifest.csv", rows)


class Curves:
    "Precision and recall of every distance over a training."

    def __init__(
        self,
        m: manifest.Manifest,
        rows: list[int],  # its training videos
        batches: list[list[int]],
        recipe: Recipe,
        a: Any,  # the command line
        folder: Path,  # for the run
    ):
        self.m, self.rows, self.batches, self.recipe = m, rows, batches, recipe
        self.seed, self.threshold, self.run = a.seed, a.threshold, folder / "run"
        self.machine = Machine(a.device, progress=False, cache=512)
        self.table: list[dict[str, Any]] = []

    def protocol(self) -> Protocol:
        sampling = self.recipe.sampling
        return protocol("clean", clips=2, length=sampling.length, size=self.recipe.size)

    def look(self, epoch: int, encoder: nn.Module, head: nn.Module) -> None:
        "What each distance would mine now."
        g = video_gaussians(
            encoder,
            head,
            self.m,
            self.rows,
            self.recipe.view,
            self.protocol(),
            machine=self.machine,
            **resolve(self.recipe).view_options,
        )
        if g.dropped:
            raise SystemExit(f"{len(g.dropped)} videos cannot be read")
        z = draw_videos(g, self.recipe.method.samples, self.seed)
        for name, row in mined(g, z, self.batches, self.threshold).items():
            self.table.append({"epoch": epoch, "distance": name} | row)
            shown = [
                f"{k} {'     -' if row[k] is None else format(row[k], '6.3f')}"
                for k in ("precision", "recall", "mined")
            ]
            print(f"epoch {epoch:4}  {name:22} {'  '.join(shown)}", flush=True)

    def train(self, epoch: int) -> None:
        "Train to the end of an epoch, and look."
        step = epoch * (len(self.rows) // self.recipe.learning.batch)
        is_begun = self.run.exists()
        run = pretrain(
            self.recipe,
            self.m.path,
            self.run,
            resume=is_begun,
            machine=self.machine,
            max_steps=step,
        )
        file = run / "encoder.safetensors"
        encoder, about = read_encoder(file)
        assert about["step"] == step
        self.look(epoch, encoder, read_heads(file)["gaussian"])


def measure(a: Any, folder: Path) -> None:
    stamp = Stamp(__file__, settings_of(a), a.device)
    per_class = a.per_class or (8 if a.data else 3)
    data = Path(a.data) if a.data else toy.make(folder / "toy", a.toy, progress=False)
    whole = manifest.read(data)
    labels = sorted({whole.rows[i].label for i in whole.select("train", 1)})
    wanted = list(PAPER) if a.classes == ["paper"] else a.classes or labels
    classes = [c for c in wanted if c in labels]
    if not classes:
        raise SystemExit(f"--classes: {data} has none of them")

    m = manifest.read(part_of(data, folder / "data", classes, a.videos))
    rows = m.select("train", 1)
    batches = balanced([m.label_id(r) for r in rows], per_class, a.batches, a.seed)
    recipe = override(
        find("provico-toy"),
        epochs=a.epochs,
        batch=a.batch or len(batches[0]),
        seed=a.seed,
        instance_stage=INSTANCE_STAGE,
        warmup=a.epochs / 10,  # section 4.2: 20 of 200
    )
    print(
        f"{len(classes)} of {len(wanted)} classes, {len(rows)} videos; "
        f"{len(batches)} batches of {len(batches[0])}",
        flush=True,
    )

    curves = Curves(m, rows, batches, recipe, a, folder)
    method = resolve(recipe).method.eval()
    curves.look(0, method.encoder, method.head)
    for epoch in [*range(a.every, a.epochs, a.every), a.epochs]:
        curves.train(epoch)
    chance = (per_class - 1) / (len(batches[0]) - 1)
    print(f"any pair: precision {chance:.3f}")
    results = {
        "recipe": recipe.name,
        "backbone": recipe.backbone,
        "classes": classes,
        "not_there": [c for c in wanted if c not in classes],
        "videos": len(rows),
        "batches": len(batches),
        "batch": len(batches[0]),
        "per_class": per_class,
        "epochs": a.epochs,
        "seed": a.seed,
        "threshold": "appendix Eq. 9" if a.threshold is None else a.threshold,
        "chance": chance,
        "curves": curves.table,
    }
    write_results(a.out, stamp.head() | results)


def main():
    p = measurement.parser(__doc__)
    p.add_argument("--data", help="a manifest or its folder; toy videos if not given")
    p.add_argument("--toy", default="tiny", help="size of the toy")
    p.add_argument(
        "--classes", nargs="*", help="names, or 'paper': those of appendix B.2 that are there"
    )
    p.add_argument(
        "--videos", type=int, default=10**9, help="training videos of each class at most"
    )
    p.add_argument("--per-class", type=int, help="videos of a class in a batch; 8 (paper), toy: 3")
    p.add_argument("--batches", type=int, default=4, help="balanced batches to measure on, at most")
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--every", type=int, default=5, help="epochs between two looks")
    p.add_argument(
        "--batch", type=int, help="videos of a training batch; not given: as a balanced one"
    )
    p.add_argument("--threshold", type=float, help="for all distances; appendix Eq. 9 if not given")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--device", default="cpu")
    p.add_argument("--out", type=Path, help="a .json file for the results")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(a, Path(folder))


if __name__ == "__main__":
    main()
