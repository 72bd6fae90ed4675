"""What InfoNCE is worth on the toy: three seeds, at equal budget, beside what anybody would try
first.

For each seed (of the videos, the weights and the order) and each of two views, frames (`rgb`) and
frame differences (`residual`): a random encoder, InfoNCE in the batch, and cross-entropy with the
labels. On differences, where InfoNCE works, also SimSiam, InfoNCE with a queue of 512 keys, and
InfoNCE with one part left out: without augmentation (query and key are one and the same clip,
unchanged) and without negatives (only the own key, pulled closer). Beside these chance and a colour
histogram. Within a view all are trained from the same weights, on the same batches, with the same
optimizer, schedule and number of steps: those of the recipes `infonce-toy-rgb` and
`infonce-toy-residual`. Each encoder is measured by retrieval on test videos (clean protocol), and
by how its features spread.

    python benchmarks/infonce.py --seeds 10 11 12 --out results/infonce-toy.json

The recipes were chosen on other seeds. What was started and killed goes on with the same
command."""

import json
import statistics
import tempfile
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import measurement
import torch
from result_files import SeedResults, Stamp, plain, settings_of
from torch import Tensor, nn
from torch.nn import functional as F

from vssl_nb.data import augmentation as augment
from vssl_nb.data import toy
from vssl_nb.data.dataset import TrainClips, VideoCache
from vssl_nb.data.sampling import random_clips
from vssl_nb.data.manifest import Manifest, read
from vssl_nb.data.views import Views
from vssl_nb.measure.health import std
from vssl_nb.measure.retrieval import chance, histogram, retrieval_recall
from vssl_nb.config import Recipe
from vssl_nb.methods.recipes import find, override
from vssl_nb.nets.backbones import create
from vssl_nb.nets.heads import Projection
from vssl_nb.runs.evaluation import run_features
from vssl_nb.runs.experiment import resolve
from vssl_nb.ssl.memory import l2_normalize, named_clips
from vssl_nb.training.loop import TrainingState, fit, loader, make_optimizer
from vssl_nb.training.machine import Machine, keep_memory

LEARNERS = {
    "residual": (
        "random",
        "infonce",
        "queue",
        "unchanged",
        "no-negatives",
        "simsiam",
        "cross-entropy",
    ),
    "rgb": ("random", "infonce", "cross-entropy"),
}


class CrossEntropy(nn.Module):
    "Labels, the usual way: a linear layer on the features of the query clip."

    def __init__(self, encoder: nn.Module, view: str, classes: int):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(encoder.dim, classes)
        self.view = view
        for p in self.head.parameters():
            nn.init.zeros_(p)

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        q, _ = named_clips(batch, self.view)
        z = self.head(self.encoder(q))
        top1 = (z.argmax(1) == batch["label"]).float().mean()
        return F.cross_entropy(z, batch["label"]), {"top1": top1}

    def after_step(self, batch: dict[str, Tensor]) -> None:
        pass


class NoNegatives(nn.Module):
    "InfoNCE without its denominator: bring the two clips of a video together, and nothing else."

    def __init__(self, encoder: nn.Module, view: str, seed: int, dim: int = 128):
        super().__init__()
        self.encoder = encoder
        self.projection = Projection(encoder.dim, encoder.dim, dim, seed + 1)
        self.view = view

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        q, k = (
            l2_normalize(self.projection(self.encoder(x))) for x in named_clips(batch, self.view)
        )
        return 1 - (q * k).sum(1).mean(), {}

    def after_step(self, batch: dict[str, Tensor]) -> None:
        pass


class SimSiam(nn.Module):
    "Predict one clip from the other, whose side is held still (Chen and He 2021); both ways round."

    def __init__(self, encoder: nn.Module, view: str, seed: int, dim: int = 128, hidden: int = 32):
        super().__init__()
        self.encoder = encoder
        head = Projection(encoder.dim, encoder.dim, dim, seed + 1)
        self.projection = nn.Sequential(head, nn.BatchNorm1d(dim, affine=False))
        self.predictor = Projection(dim, hidden, dim, seed + 2)
        self.view = view

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        a, b = (self.projection(self.encoder(x)) for x in named_clips(batch, self.view))
        one = F.cosine_similarity(self.predictor(a), b.detach()).mean()
        other = F.cosine_similarity(self.predictor(b), a.detach()).mean()
        return -(one + other) / 2, {}

    def after_step(self, batch: dict[str, Tensor]) -> None:
        pass


def method_of(name: str, recipe: Recipe, classes: int) -> nn.Module:
    "What learns in one line of the table."
    encoder = partial(create, recipe.backbone, seed=recipe.seed)
    if name == "queue":
        return resolve(override(recipe, queue=512)).method
    if name == "simsiam":
        return SimSiam(encoder(), recipe.view, recipe.seed)
    if name == "no-negatives":
        return NoNegatives(encoder(), recipe.view, recipe.seed)
    if name == "cross-entropy":
        return CrossEntropy(encoder(), recipe.view, classes)
    return resolve(recipe).method


def clips_of(name: str, recipe: Recipe, manifest: Manifest, cache: VideoCache) -> TrainClips:
    "The clips that it learns from; `unchanged`: query and key are one and the same clip."
    if name != "unchanged":
        return resolve(recipe, manifest, Machine("cpu", cache=cache)).clips

    nothing = dict(area=(1.0, 1.0), aspect=(1.0, 1.0), flip=0.0, jitter=0.0, grey=0.0, blur=0.0)
    sampling = recipe.sampling
    return TrainClips(
        manifest,
        manifest.select("train"),
        partial(random_clips, clips=2, length=sampling.length, stride=sampling.stride),
        partial(augment.draw, size=recipe.size, **nothing),
        recipe.size,
        recipe.seed,
        cache=cache,
        same=1.0,
    )


def row(name: str, recipe: Recipe, manifest: Manifest, cache: VideoCache) -> dict[str, Any]:
    "Train (all but the random encoder), measure."
    began = time.process_time()
    learning = recipe.learning
    method = method_of(name, recipe, len(manifest.labels))
    clips = clips_of(name, recipe, manifest, cache)
    optimizer = make_optimizer(method, learning.optimizer, learning.lr, learning.weight_decay)
    run = TrainingState(method, optimizer)
    experiment = resolve(recipe, manifest, Machine("cpu", cache=cache, progress=False))
    logs: list[dict[str, float]] = [{}]
    if name != "random":
        batches = loader(clips, learning.batch, learning.epochs, recipe.seed)
        views = Views((recipe.view,), **experiment.view_options)
        logs = [tick.read() for tick in fit(run, batches, views, experiment.schedules["lr"])]

    query, gallery = (run_features(method.encoder, experiment, part) for part in ("test", "train"))
    # a collapse happens behind the projection
    projection = getattr(method, "projection", nn.Identity()).eval()
    with torch.no_grad():
        spread = std(projection(gallery.x))

    recall = retrieval_recall(query, gallery)
    result = {"name": name, "view": recipe.view}
    result |= {f"r{k}": share for k, share in recall.items()}
    result |= {"std": spread, "steps": run.step}
    for column in ("loss", "top1"):
        if column in logs[-1]:
            result[column] = statistics.fmean(log[column] for log in logs[-20:])
    return result | {"cpu_seconds": round(time.process_time() - began, 1)}


def untrained_rows(manifest: Manifest) -> list[dict[str, Any]]:
    "Chance and a colour histogram."
    quiet = Machine(progress=False)
    query, gallery = (histogram(manifest, part, machine=quiet) for part in ("test", "train"))
    guess = chance(query.label, gallery.label)
    colours = retrieval_recall(query, gallery)
    return [
        {"name": "chance", "view": ""} | {f"r{k}": share for k, share in guess.items()},
        {"name": "histogram", "view": "rgb"} | {f"r{k}": share for k, share in colours.items()},
    ]


def add_rows(seed: int, size: str, changes: dict[str, Any], results: SeedResults) -> None:
    "All rows of one seed; those that are there already are not made again."
    rows = results.entry(seed=seed)["rows"]
    known = {(r["name"], r["view"]) for r in rows}
    with tempfile.TemporaryDirectory() as folder:
        manifest = read(toy.make(folder, size, seed, progress=False))
        cache = VideoCache(manifest, 2**31)
        if ("histogram", "rgb") not in known:
            rows += untrained_rows(manifest)
            results.keep()
        for view, names in LEARNERS.items():
            recipe = override(find(f"infonce-toy-{view}"), seed=seed, test_clips=3, **changes)
            for name in names:
                if (name, view) in known:
                    continue
                new = row(name, recipe, manifest, cache)
                rows.append(new)
                results.keep()
                print(
                    f"seed {seed}, {view}, {name}: R@1 {new['r1']:.1%}, spread {new['std']:.2f}",
                    flush=True,
                )


def summary(seeds: list[dict[str, Any]]) -> dict[str, Any]:
    "One line for each learner: R@1 of the seeds, their mean and their range."
    lines: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for seed in seeds:
        for r in seed["rows"]:
            lines.setdefault((r["name"], r["view"]), []).append(r)

    table = []
    for (name, view), rows in lines.items():
        r1 = [r["r1"] for r in rows]
        line = {"name": name, "view": view, "r1": statistics.fmean(r1)}
        if "std" in rows[0]:
            line["std"] = statistics.fmean(r["std"] for r in rows)
        table.append(line | {"lowest": min(r1), "highest": max(r1)})
    return {"summary": table}


def main():
    p = measurement.parser(__doc__)
    p.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12])
    p.add_argument("--size", default="demo", choices=["tiny", "demo"])
    p.add_argument(
        "--changes", type=json.loads, default={}, help="fields to change in both recipes, as JSON"
    )
    p.add_argument("--out", type=Path, required=True, help="a .json file for the results")
    a = p.parse_args()
    torch.set_num_threads(1)
    keep_memory()

    recipes = {
        view: plain(asdict(override(find(f"infonce-toy-{view}"), test_clips=3, **a.changes)))
        for view in LEARNERS
    }
    stamp = Stamp(__file__, settings_of(a))
    results = SeedResults(a.out, stamp, {"recipes": recipes}, summary=summary)
    for seed in a.seeds:
        add_rows(seed, a.size, a.changes, results)
    results.keep()  # the summary too, where no row was missing
    for line in summary(results.seeds)["summary"]:
        print(
            f"{line['name']:>14} {line['view']:<9} R@1 {line['r1']:.1%} "
            f"({line['lowest']:.1%} to {line['highest']:.1%})"
        )


if __name__ == "__main__":
    main()
