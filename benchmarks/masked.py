"""What do masked clips teach, beside InfoNCE on the same transformer? And do they save labels?

Two parts, on the plain toy (`demo`: 720 training and 240 test videos, 360 conflicts), float32, one
thread.

**tokens**, seed 30, on which the settings were chosen: every training of PLAN at the budget (17,280
clips drawn), on both views; masked pixels (tubes), motion (tubes) and InfoNCE also at four times of
it, on frames, InfoNCE on differences, too; pixels also on the larger tubelets of 2 x 8 x 8 in
batches of 4. Measured are R@1, which training video is nearest to a conflict (one of its scene,
one of its motion), a linear and an attentive probe, and how much of what is hidden was explained in
the last fifth of the steps.

**labels**, seeds 51 to 58: a classifier on differences, where a network from scratch learns, is
fine-tuned from masked pixels (tubes) and from scratch, with 8, 32 and all 90 labels a class, for
STEPS steps each; the last step is tested on one clip of each test video. The transformer has the
larger tubelets, 2 x 8 x 8. Planned before the first run: the difference of both starts in each
seed, with the interval of Student's t, for each number of labels; no other comparison. (Seeds 50
to 52 were tried in other forms: on frames nothing was learned from scratch in 150 steps.)

    python benchmarks/masked.py --out results/masked-toy.json
    python benchmarks/masked.py --budgets 4 --views rgb --only 'pixels, tubes' 'motion, tubes' \\
        InfoNCE --out results/masked-toy.json
    python benchmarks/masked.py --backbone vit_toy --set batch=4 --views rgb \\
        --only 'pixels, random' 'pixels, tubes' --folder runs/masked-coarse \\
        --out results/masked-coarse-toy.json
    python benchmarks/masked.py --part labels --out results/masked-labels-toy.json

All go on where they were killed, also in the middle of a training; runs lie in `runs/masked`."""

import argparse
import json
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import measurement
import numpy as np
import torch
from intervals import seed_interval
from measurement import stop
from result_files import SeedResults, Stamp, digest, rule, settings_of
from run_folders import folder_name, last_fifth, logged, mean_logged, steps_of, trained

from vssl_nb.config import Recipe
from vssl_nb.data import toy
from vssl_nb.data.dataset import VideoCache
from vssl_nb.data.manifest import Manifest, read, write
from vssl_nb.measure.classify import (
    AttentiveProbe,
    VideoTokens,
    accuracy,
    attentive_probe,
    classify,
    linear_probe,
)
from vssl_nb.measure.features import extract, restrict
from vssl_nb.measure.health import conflict_shares
from vssl_nb.measure.protocols import Protocol
from vssl_nb.measure.retrieval import retrieval_recall
from vssl_nb.methods.recipes import find, override, to_dict
from vssl_nb.rng import generator
from vssl_nb.runs.evaluation import EvaluatedEncoder, open_trained, untrained_encoder
from vssl_nb.runs.finetuning import finetune
from vssl_nb.training.machine import Machine, keep_memory

CLIPS = 17_280  # of the budget, drawn from the training videos
VIEWS = {"rgb": "frames", "residual": "differences"}
LABELS = (8, 32, 90)  # a class
STEPS = 180  # of a fine-tuning, rounded to whole epochs
PARTS_OF_A_CURVE = 20  # of the steps of a training
BATCH = 16  # of a fine-tuning


# of the transformer, as the masked recipes have it
TRANSFORMER = dict(
    backbone="vit_toy_fine", optimizer="adamw", lr=1e-3, weight_decay=0.05, clip_norm=1.0
)


@dataclass(frozen=True)
class Training:
    "One kind of training."

    recipe: str
    changes: dict[str, Any] = field(default_factory=dict)


PLAN = {
    "pixels, tubes": Training("masked-toy-pixels"),
    "pixels, random": Training("masked-toy-pixels", dict(mask="random")),
    "features, tubes": Training("masked-toy-features"),
    "motion, tubes": Training("masked-toy-motion"),
    "InfoNCE": Training("infonce-toy-rgb", TRANSFORMER),
}
# what a fine-tuning begins with
STARTS = {"scratch": ("pixels, tubes", 0), "pixels": ("pixels, tubes", 1)}


def recipe_of(
    name: str,  # of PLAN
    view: str,
    budget: int,  # times CLIPS; 0: nothing is learned
    seed: int,
    videos: int,  # to train on
    changes: dict[str, Any],  # of a trial: batch, length, ...
) -> Recipe:
    "The recipe of a training, which draws `budget` times CLIPS clips."
    training = PLAN[name]
    recipe = override(find(training.recipe), view=view, seed=seed, test_clips=3, **training.changes)
    epochs = max(1, round(budget * CLIPS / videos / recipe.sampling.clips))
    if not budget:  # the weights that every training of this seed begins with
        changes = changes | dict(lr=0.0, epochs=1)
    fields = dict(name=f"masked-{recipe.name}", epochs=epochs) | changes
    return override(recipe, **fields)


class World:
    "The videos of a seed, and what is trained and measured on them."

    def __init__(self, seed: int, home: Path, a: argparse.Namespace):
        self.seed, self.home, self.changes = seed, home, measurement.whole_numbers(a.set)
        self.manifest = read(toy.make(home / "toy", a.size, seed, workers=1, progress=False))
        self.cache = VideoCache(self.manifest, 2**31)
        self.videos = len(self.manifest.select("train"))
        self.a = a

    def machine(
        self,
        manifest: Manifest | None = None,  # whose first rows are those of the world
    ) -> Machine:
        "One thread, and videos that are decoded once."
        cache = self.cache
        if manifest:
            cache = VideoCache(manifest, 2**31)
            cache.kept = self.cache.kept
        return Machine("cpu", cache=cache, progress=False)

    def recipe(self, name: str, view: str, budget: int) -> Recipe:
        recipe = recipe_of(name, view, budget, self.seed, self.videos, self.changes)
        return override(recipe, backbone=self.a.backbone)

    def train(self, name: str, view: str, budget: int) -> tuple[Path, dict[str, Any]]:
        "A finished run, and its steps, clips and seconds."
        recipe = self.recipe(name, view, budget)
        run = self.home / folder_name(f"{name}, {view}, {budget}")
        card = trained(recipe, self.home / "toy", run, self.machine())
        return run, {
            "steps": card["step"],
            "clips": card["step"] * recipe.learning.batch * recipe.sampling.clips,
            "seconds": round(card["seconds"], 1),
        }


# ---- what the tokens know


def measured(world: World, conflicts: Manifest, t: EvaluatedEncoder) -> dict[str, Any]:
    "R@1, conflicts, and two probes of a frozen encoder."
    protocol = t.protocol()
    machine = world.machine(conflicts)
    every = extract(t.encoder, conflicts, "all", 1, t.view, protocol, machine=machine, **t.views)
    query, gallery = (restrict(every, conflicts, part) for part in ("test", "train"))
    position = {row: i for i, row in enumerate(every.row.tolist())}
    ordinary = every.take([position[row] for row in world.manifest.select("test")])
    shares = conflict_shares(query, gallery)
    options = dict(batch=64, machine=world.machine(), **t.views)
    tokens = VideoTokens(t.encoder, world.manifest, t.view, protocol, 2**31, **options)
    attentive, _, _ = attentive_probe(
        tokens, settings=AttentiveProbe(lrs=(1e-3,), selection="last")
    )
    linear = linear_probe(gallery)
    return {
        "r1": round(retrieval_recall(ordinary, gallery, (1,))[1], 6),
        "scene": round(shares["scene"][0], 6),
        "motion": round(shares["motion"][0], 6),
        "linear": round(accuracy(classify(linear, ordinary, world.manifest.labels))["top1"], 6),
        "attentive": round(accuracy(attentive)["top1"], 6),
    }


def curve_of(
    steps: list[dict[str, str]],  # of a training
    column: str,
) -> list[float]:  # none, where the column has no numbers
    "The mean of a column over each of PARTS_OF_A_CURVE parts of the steps."
    parts = np.array_split(logged(steps, column), PARTS_OF_A_CURVE)
    return [round(float(part.mean()), 4) for part in parts if len(part)]


def tokens_part(world: World, rows: list[dict[str, Any]], results: SeedResults) -> None:
    "Every training of PLAN on both views at both budgets, and untrained encoders."
    conflicts = read(toy.make_conflict(world.home / "toy", 1, progress=False))

    def add(name: str, view: str, budget: int, t: EvaluatedEncoder, **more: Any) -> None:
        row = dict(run=name, view=view, budget=budget, **more) | measured(world, conflicts, t)
        rows.append(row)
        results.keep()
        print(json.dumps(row), flush=True)

    for budget in world.a.budgets:
        for view in world.a.views:
            for name in ("untrained", *world.a.only):
                budget_of_row = 0 if name == "untrained" else budget
                if any(
                    (r["run"], r["view"], r["budget"]) == (name, view, budget_of_row) for r in rows
                ):
                    continue
                if name == "untrained":
                    t = untrained_encoder(world.recipe("pixels, random", view, 1), world.manifest)
                    add(name, view, 0, t)
                    continue
                run, cost = world.train(name, view, budget)
                steps = steps_of(run)
                more = {
                    "explained": mean_logged(last_fifth(steps), "explained"),
                    "curve": curve_of(steps, "explained"),
                }
                add(name, view, budget, open_trained(run), **cost, **more)


# ---- labels


def with_labels(world: World, n: int) -> Path:
    "A manifest in which `n` training videos of each class have a label; the test part is whole."
    file = world.home / "toy" / f"labels-{n}.csv"
    if file.exists():
        return file
    rng = generator("order", world.seed, n)
    train = set(world.manifest.select("train"))
    by_class: dict[str, list[int]] = {}
    for i in sorted(train):
        by_class.setdefault(world.manifest.rows[i].label, []).append(i)
    kept = {int(i) for rows in by_class.values() for i in rng.permutation(rows)[:n]}
    rows = [
        replace(row, split1="" if i in train - kept else row.split1)
        for i, row in enumerate(world.manifest.rows)
    ]
    write(file, rows)
    return file


def labels_part(world: World, rows: list[dict[str, Any]], results: SeedResults) -> None:
    "Fine-tuning from each start with each number of labels, equal steps."
    view = world.a.view
    for n in world.a.labels:
        data = with_labels(world, n)
        for start in world.a.starts:
            name, budget = STARTS[start]
            if any((r["start"], r["labels"]) == (start, n) for r in rows):
                continue
            source, _ = world.train(name, view, budget * world.a.start_budget)
            manifest = read(data)
            videos = len(manifest.select("train"))
            batch = min(BATCH, videos)
            fields = dict(
                selection="last",
                epochs=max(1, round(world.a.steps * batch / (videos // batch * batch))),
                batch=batch,
                optimizer="adamw",
                lr=1e-3,
                lr_encoder=1e-3,
                weight_decay=0.05,
                schedule="cosine",
                dropout=0.0,
                # a mirrored circle is one of another class
                flip=0.0,
                area=(0.7, 1.0),
                testing=Protocol("one clip", clips=1, average="softmax"),
            )
            out = world.home / folder_name(f"labels {n} {start}")
            began = time.monotonic()
            row = finetune(
                source,
                "clean_finetune",
                data,
                out,
                seed=world.seed,
                fields=fields,
                resume=(out / "card.json").exists(),
                machine=world.machine(manifest),
            )
            if row is None:
                stop(f"{out}: was stopped; the same command goes on")
            card = json.loads((out / "card.json").read_text())
            rows.append(
                {
                    "start": start,
                    "labels": n,
                    "steps": card["step"],
                    "top1": row["top1"],
                    "seconds": round(time.monotonic() - began, 1),
                }
            )
            results.keep()
            print(json.dumps({"seed": world.seed} | rows[-1]), flush=True)


def differences(seeds: list[dict[str, Any]]) -> dict[str, Any]:
    "The gain of each start over scratch, by number of labels: mean and half of its interval."
    summary: dict[str, Any] = {}
    for start in STARTS:
        if start == "scratch":
            continue
        for n in LABELS:
            gains = []
            for seed in seeds:
                by = {(r["start"], r["labels"]): r["top1"] for r in seed["rows"]}
                if {(start, n), ("scratch", n)} <= by.keys():
                    gains.append(100 * (by[start, n] - by["scratch", n]))
            if len(gains) >= 3:
                mean, half = seed_interval(gains)
                summary[f"{start}, {n}"] = [round(mean, 2), round(half, 2)]
    return {"gain_over_scratch": summary}


PARTS = {
    "tokens": ([30], tokens_part, "vit_toy_fine"),
    "labels": ([*range(51, 59)], labels_part, "vit_toy"),
}


def main(*words: str) -> None:
    parser = measurement.parser(__doc__)
    parser.add_argument("--part", choices=PARTS, default="tokens")
    parser.add_argument("--seeds", type=int, nargs="+", help="those of the part")
    parser.add_argument("--budgets", type=int, nargs="+", default=[1], help="times 17,280 clips")
    parser.add_argument("--starts", nargs="+", default=[*STARTS], choices=STARTS)
    parser.add_argument("--only", nargs="+", default=[*PLAN], choices=PLAN, help="trainings")
    parser.add_argument("--views", nargs="+", default=[*VIEWS], choices=VIEWS)
    parser.add_argument("--labels", type=int, nargs="+", default=[*LABELS], help="of a class")
    parser.add_argument("--steps", type=int, default=STEPS, help="of a fine-tuning")
    parser.add_argument("--view", default="residual", help="of the fine-tuning")
    parser.add_argument("--backbone", help="of all trainings; by default that of the part")
    parser.add_argument("--start-budget", type=int, default=1, help="of the masked starts")
    parser.add_argument("--size", default="demo", choices=toy.SIZES)
    parser.add_argument("--set", nargs="*", default=[], help="whole-number fields of the recipes")
    parser.add_argument("--folder", type=Path, default=Path("runs/masked"))
    parser.add_argument("--out", type=Path, required=True)
    a = parser.parse_args(words or None)
    seeds, part, backbone = PARTS[a.part]
    a.backbone = a.backbone or backbone
    seeds = a.seeds or seeds
    keep_memory()
    torch.set_num_threads(1)
    settings = settings_of(a, ("seeds", "budgets", "views", "only", "starts"))
    asked = {"part": a.part, "settings": digest(settings)}
    plan = {n: to_dict(recipe_of(n, "rgb", 1, 0, 720, {})) for n in PLAN}
    results = SeedResults(
        a.out,
        Stamp(__file__, settings),
        asked,
        {"rule": rule(__file__), "recipes": plan},
        differences if a.part == "labels" else lambda seeds: {},
    )
    for seed in seeds:
        world = World(seed, a.folder / f"seed-{seed}", a)
        part(world, results.entry(seed=seed)["rows"], results)
    results.keep()


if __name__ == "__main__":
    main()
