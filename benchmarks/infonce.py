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

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import vssl_nb
from vssl_nb.data import toy, clips as augment
from vssl_nb.nets.backbones import create
from vssl_nb.nets.heads import Projection
from vssl_nb.data.clips import TrainClips, VideoCache, random_clips
from vssl_nb.runs.evaluation import run_features
from vssl_nb.runs.parts import build_method, lr_schedule, training_clips, view_options
from vssl_nb.measure.health import std
from vssl_nb.training.machine import Machine, keep_memory
from vssl_nb.data.manifest import read
from vssl_nb.ssl.memory import l2_normalize, named_clips
from vssl_nb.training.loop import make_optimizer
from vssl_nb.methods.recipes import find, override
from vssl_nb.measure.retrieval import chance, histogram, retrieval_recall
from vssl_nb.training.loop import TrainingState, fit, loader
from vssl_nb.data.views import Views

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
        self.encoder, self.head, self.view = encoder, nn.Linear(encoder.dim, classes), view
        for p in self.head.parameters():
            nn.init.zeros_(p)

    def forward(self, batch):
        z = self.head(self.encoder(named_clips(batch, self.view)[0]))
        return F.cross_entropy(z, batch["label"]), {
            "top1": (z.argmax(1) == batch["label"]).float().mean()
        }

    def after_step(self, batch):
        pass


class NoNegatives(nn.Module):
    "InfoNCE without its denominator: bring the two clips of a video together, and nothing else."

    def __init__(self, encoder: nn.Module, view: str, seed: int, dim: int = 128):
        super().__init__()
        self.encoder, self.view = encoder, view
        self.projection = Projection(encoder.dim, encoder.dim, dim, seed + 1)

    def forward(self, batch):
        q, k = (
            l2_normalize(self.projection(self.encoder(x))) for x in named_clips(batch, self.view)
        )
        return 1 - (q * k).sum(1).mean(), {}

    def after_step(self, batch):
        pass


class SimSiam(nn.Module):
    "Predict one clip from the other, whose side is held still (Chen and He 2021); both ways round."

    def __init__(self, encoder: nn.Module, view: str, seed: int, dim: int = 128, hidden: int = 32):
        super().__init__()
        self.encoder, self.view = encoder, view
        head = Projection(encoder.dim, encoder.dim, dim, seed + 1)
        self.projection = nn.Sequential(head, nn.BatchNorm1d(dim, affine=False))
        self.predictor = Projection(dim, hidden, dim, seed + 2)

    def forward(self, batch):
        a, b = (self.projection(self.encoder(x)) for x in named_clips(batch, self.view))
        agree = [
            F.cosine_similarity(self.predictor(x), y.detach()).mean() for x, y in ((a, b), (b, a))
        ]
        return -sum(agree) / 2, {}

    def after_step(self, batch):
        pass


def learner(name: str, recipe, manifest, cache):
    "Method and training clips of one line of the table."
    clips = training_clips(recipe, manifest, cache)
    encoder = partial(create, recipe.backbone, seed=recipe.seed)
    if name == "queue":
        return build_method(override(recipe, queue=512)), clips
    if name == "simsiam":
        return SimSiam(encoder(), recipe.view, recipe.seed), clips
    if name == "no-negatives":
        return NoNegatives(encoder(), recipe.view, recipe.seed), clips
    if name == "cross-entropy":
        return CrossEntropy(encoder(), recipe.view, len(manifest.labels)), clips
    if name == "unchanged":
        nothing = dict(area=(1.0, 1.0), aspect=(1.0, 1.0), flip=0.0, jitter=0.0, grey=0.0, blur=0.0)
        still = partial(augment.draw, size=recipe.size, **nothing)
        window = partial(
            random_clips, clips=2, length=recipe.sampling.length, stride=recipe.sampling.stride
        )
        rows = manifest.select("train")
        clips = TrainClips(
            manifest, rows, window, still, recipe.size, recipe.seed, cache=cache, same=1.0
        )
    return build_method(recipe), clips


def row(name: str, recipe, manifest, cache) -> dict:
    "Train (all but the random encoder), measure."
    began, how = time.process_time(), recipe.learning
    method, clips = learner(name, recipe, manifest, cache)
    run = TrainingState(method, make_optimizer(method, how.optimizer, how.lr, how.weight_decay))
    logs: list[dict] = [{}]
    if name != "random":
        batches = loader(clips, how.batch, how.epochs, recipe.seed)
        views = Views((recipe.view,), **view_options(recipe))
        logs = [tick.read() for tick in fit(run, batches, views, lr_schedule(recipe))]
    machine = Machine("cpu", cache=cache, progress=False)
    found = [
        run_features(method.encoder, manifest, recipe, part, machine) for part in ("test", "train")
    ]
    last = {
        k: statistics.fmean(x[k] for x in logs[-20:]) for k in ("loss", "top1") if k in logs[-1]
    }
    head = getattr(method, "projection", nn.Identity()).eval()  # to where a collapse happens
    with torch.no_grad():
        spread = std(head(found[1].x))
    return {
        "name": name,
        "view": recipe.view,
        **{f"r{k}": v for k, v in retrieval_recall(*found).items()},
        "std": spread,
        "steps": run.step,
        **last,
        "cpu_seconds": round(time.process_time() - began, 1),
    }


def of_seed(seed: int, size: str, changes: dict, done: list[dict], keep) -> list[dict]:
    "All rows of one seed; those that are there already are not made again."
    with tempfile.TemporaryDirectory() as folder:
        manifest = read(toy.make(folder, size, seed, progress=False))
        cache, have = VideoCache(manifest, 2**31), {(r["name"], r["view"]) for r in done}
        if ("histogram", "rgb") not in have:
            quiet = Machine(progress=False)
            colours = [histogram(manifest, part, machine=quiet) for part in ("test", "train")]
            guess, hist = chance(colours[0].label, colours[1].label), retrieval_recall(*colours)
            for name, view, found in (("chance", "", guess), ("histogram", "rgb", hist)):
                done.append({"name": name, "view": view, **{f"r{k}": v for k, v in found.items()}})
            keep()
        for view, names in LEARNERS.items():
            recipe = override(find(f"infonce-toy-{view}"), seed=seed, test_clips=3, **changes)
            for name in names:
                if (name, view) in have:
                    continue
                done.append(row(name, recipe, manifest, cache))
                now = done[-1]
                said = f"R@1 {now['r1']:.1%}, spread {now['std']:.2f}"
                print(f"seed {seed}, {view}, {name}: {said}", flush=True)
                keep()
    return done


def summary(seeds: list[dict]) -> list[dict]:
    "One line for each learner: R@1 of the seeds, their mean and their range."
    lines: dict[tuple, list[dict]] = {}
    for s in seeds:
        for r in s["rows"]:
            lines.setdefault((r["name"], r["view"]), []).append(r)

    def one(rows):
        r1 = [r["r1"] for r in rows]
        mean = {k: statistics.fmean(r[k] for r in rows) for k in ("r1", "std") if k in rows[0]}
        return mean | {"lowest": min(r1), "highest": max(r1)}

    return [{"name": name, "view": view, **one(rows)} for (name, view), rows in lines.items()]


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12])
    p.add_argument("--size", default="demo", choices=["tiny", "demo"])
    p.add_argument(
        "--changes", type=json.loads, default={}, help="fields to change in both recipes, as JSON"
    )
    p.add_argument("--out", required=True, help="a .json file for the results")
    a = p.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    out = Path(a.out)
    where = {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": 1,
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "vssl_nb": vssl_nb.__version__,
    }
    recipes = {
        v: asdict(override(find(f"infonce-toy-{v}"), test_clips=3, **a.changes)) for v in LEARNERS
    }
    date = time.strftime("%Y-%m-%d")
    head = {"what": "benchmarks/infonce.py", "date": date, "machine": where, "recipes": recipes}
    before = json.loads(out.read_text()) if out.exists() else {}
    same = before.get("recipes") == json.loads(json.dumps(recipes))
    seeds = [s for s in before.get("seeds", []) if same and s["seed"] in a.seeds]

    def keep():
        found = head | {"seeds": seeds, "summary": summary(seeds)}
        out.write_text(json.dumps(found, indent=1) + "\n")

    for seed in a.seeds:
        mine = next((s for s in seeds if s["seed"] == seed), None)
        if mine is None:
            seeds.append(mine := {"seed": seed, "rows": []})
        of_seed(seed, a.size, a.changes, mine["rows"], keep)
        keep()  # the summary too, where no row was missing
    for r in summary(seeds):
        print(
            f"{r['name']:>14} {r['view']:<9} R@1 {r['r1']:.1%} ({r['lowest']:.1%} to "
            f"{r['highest']:.1%})"
        )


if __name__ == "__main__":
    main()
