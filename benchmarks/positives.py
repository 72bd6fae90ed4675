"""What is the choice of positives worth, when nothing else changes?

All learn on the frames of the toy, from the same InfoNCE encoder, with the same queue, momentum
encoder, temperature, batches, schedule and number of steps: those of the recipe
`coclr-toy-rgb-cycle1`. They differ in who counts as a positive:

    own             the own key: InfoNCE with a queue
    frames          also the keys that the learning network itself finds most alike (CoCLR with
                    `miner_options=view=rgb`: it mines for itself)
    differences     also those that a frozen InfoNCE encoder finds most alike on frame
                    differences: CoCLR
    labels          also those of the same class: UberNCE, log of a sum (`form=mil_nce`)
    labels, mean    the same with the mean of logs (`form=supcon`)
    labels, dropped `labels`, and the own key is dropped as CoCLR drops it

The two that mine drop the own key in nine of ten steps, as the recipe does, and count siblings as
positives (the labels do, too). Retrieval on test videos, clean protocol. `mined` is the share of
mined keys that have the query's class, in the first and in the last epoch.

    python benchmarks/positives.py --seeds 21 22 23 --out results/positives-toy.json

What was started and killed goes on with the same command; the coins of `labels, dropped` begin anew
then, so delete a run of it that was killed if you want these numbers to the digit."""

import json
import statistics
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import measurement
from result_files import Stamp, settings_of, write_results
from run_folders import by_epoch, logged, steps_of

from vssl_nb.data import toy
from vssl_nb.data.dataset import VideoCache
from vssl_nb.data.manifest import read
from vssl_nb.methods import ubernce
from vssl_nb.methods.coclr import coin, without_own_key
from vssl_nb.config import Recipe
from vssl_nb.methods.recipes import find, override
from vssl_nb.papers.reproduce import Task, at_once
from vssl_nb.runs.evaluation import retrieve
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.training.machine import Machine, keep_memory

LIKE = "coclr-toy-rgb-cycle1"
STARTS = ("infonce-toy-rgb", "infonce-toy-residual")
# who chooses -> the recipe of the method, and what it has besides the settings of LIKE
CHOICES: dict[str, tuple[str, dict[str, Any]]] = {
    "own": ("infonce-toy-rgb-longer", {}),
    "frames": (LIKE, {"miner_options": ("view=rgb",)}),
    "differences": (LIKE, {}),
    "labels": ("ubernce-toy-rgb", {"form": "mil_nce"}),
    "labels, dropped": ("ubernce-toy-rgb", {"form": "mil_nce"}),
    "labels, mean": ("ubernce-toy-rgb", {"form": "supcon"}),
}


def recipe_of(choice: str, seed: int, changes: dict[str, Any]) -> Recipe:
    "The recipe of a choice, with the budget and the memory of LIKE."
    name, settings = CHOICES[choice]
    like = override(find(LIKE), **changes)
    memory = {k: getattr(like.method, k) for k in ("queue", "momentum", "temperature")}
    learning = {
        k: getattr(like.learning, k) for k in ("batch", "epochs", "warmup", "lr", "weight_decay")
    }
    shared = memory | learning | {"test_clips": like.test_clips}
    return override(find(name), seed=seed, **shared, **settings)


def train(
    recipe: Recipe,
    home: Path,  # of the seed
    name: str,  # of the run
    # network -> run that it begins with: the encoder, and what mines
    networks: Mapping[str, Path] = {},
) -> dict[str, Any]:
    "R@1, and of a run that mines how many of its keys are right; in another process."
    run = home / name
    began = time.process_time()
    machine = Machine("cpu", cache=VideoCache(read(home / "toy"), 2**31), progress=False)
    pretrain(recipe, home / "toy", run, (run / "recipe.json").exists(), machine, networks=networks)
    row = {"name": name, "r1": retrieve(run, machine=machine, walls=0)[0]["r1"]}
    steps = steps_of(run)
    row |= {"steps": len(steps), "cpu_seconds": round(time.process_time() - began, 1)}
    if "mined" in steps[0]:
        epochs = by_epoch(steps)
        row["mined"] = [statistics.fmean(logged(e, "mined")) for e in (epochs[0], epochs[-1])]
    return row


def train_start(seed: int, home: Path, name: str, changes: dict[str, Any]) -> dict[str, Any]:
    "An InfoNCE encoder that others begin with, or that mines."
    budget = {k: changes[k] for k in ("batch", "epochs", "test_clips") if k in changes}
    return train(override(find(name), seed=seed, **budget), home, name)


def drop_own_keys(seed: int) -> None:
    "From now on, in this process, UberNCE drops the own key by CoCLR's coin."
    usual, steps = ubernce.with_labels, count()

    def with_labels(*given):
        sim, positive = usual(*given)
        drop = coin(find(LIKE).method.drop_own, seed, next(steps))
        return sim, without_own_key(positive) if drop else positive

    ubernce.with_labels = with_labels


def train_choice(seed: int, home: Path, choice: str, changes: dict[str, Any]) -> dict[str, Any]:
    "The frames, with the positives of a choice."
    recipe = recipe_of(choice, seed, changes)
    networks = {"encoder": home / STARTS[0]}
    if "coclr" in recipe.name:
        networks["sampler"] = home / STARTS[1]

    usual = ubernce.with_labels
    if choice == "labels, dropped":
        drop_own_keys(seed)
    try:
        return train(recipe, home, choice, networks=networks)
    finally:
        ubernce.with_labels = usual


def tasks_of(a: Any) -> dict[str, Task]:
    "A task for each seed and run, those that others begin with first."
    tasks: dict[str, Task] = {}
    for seed in a.seeds:
        home = a.folder / f"seed{seed}"
        if not (home / "toy").exists():
            toy.make(home / "toy", a.size, seed, progress=False)
        for name in STARTS:
            tasks[f"{seed}, {name}"] = Task(train_start, (seed, home, name, a.changes))
        starts = tuple(f"{seed}, {name}" for name in STARTS)
        for choice in a.choices:
            arguments = (seed, home, choice, a.changes)
            tasks[f"{seed}, {choice}"] = Task(train_choice, arguments, starts)
    return tasks


def main():
    p = measurement.parser(__doc__)
    p.add_argument(
        "--seeds", type=int, nargs="+", default=[21, 22, 23], help="of videos, weights and order"
    )
    p.add_argument("--choices", nargs="+", choices=[*CHOICES], default=[*CHOICES])
    p.add_argument("--folder", type=Path, default=Path("runs/positives"), help="where the runs go")
    p.add_argument("--size", default="demo", help="of the toy")
    p.add_argument("--changes", type=json.loads, default={}, help="of the recipes, as JSON")
    p.add_argument("--processes", type=int, default=2, help="that train at a time")
    p.add_argument("--out", type=Path, help="a .json file")
    a = p.parse_args()
    keep_memory()

    def line(name, row):
        return f"seed {name}: R@1 {row['r1']:.1%}, {row['steps']} steps"

    stamp = Stamp(__file__, settings_of(a))
    tasks = tasks_of(a)
    done = at_once(tasks, a.processes, progress=False, look=measurement.announcer(line))
    seeds = [
        {"seed": s, "rows": [done[name] for name in tasks if name.startswith(f"{s}, ")]}
        for s in a.seeds
    ]
    for choice in a.choices:
        r1 = [done[f"{s}, {choice}"]["r1"] for s in a.seeds]
        each = ", ".join(f"{100 * x:.1f}" for x in r1)
        print(f"{choice}: mean R@1 {statistics.mean(r1):.1%} ({each})")
    settings = {"size": a.size, "like": LIKE, "changes": a.changes}
    write_results(a.out, stamp.head() | settings | {"seeds": seeds})


if __name__ == "__main__":
    main()
