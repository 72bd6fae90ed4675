"""What is the choice of positives worth, when nothing else changes?

All learn on the frames of the toy, from the same InfoNCE encoder, with the same queue, momentum
encoder, temperature, batches, schedule and number of steps: those of the recipe
`coclr-toy-rgb-cycle1`. They differ in who counts as a positive:

    own             the own key: InfoNCE with a queue
    frames          also the keys that the learning network itself finds most alike (CoCLR with
                    `miner_options=view=rgb`: it mines for itself)
    differences     also those that a frozen InfoNCE encoder finds most alike on frame differences: CoCLR
    labels          also those of the same class: UberNCE, log of a sum (`form=mil_nce`)
    labels, mean    the same with the mean of logs (`form=supcon`)
    labels, dropped `labels`, and the own key is dropped as CoCLR drops it

The two that mine drop the own key in nine of ten steps, as the recipe does, and count siblings as
positives (the labels do, too). Retrieval on test videos, clean protocol. `mined` is the share of
mined keys that have the query's class, in the first and in the last epoch.

    python benchmarks/positives.py --seeds 21 22 23 --out results/positives-toy.json

What was started and killed goes on with the same command; the coins of `labels, dropped` begin anew
then, so delete a run of it that was killed if you want these numbers to the digit."""

import argparse
import json
import statistics
import sys
import time
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from step import machine  # noqa: E402

from vssl_nb.data import toy  # noqa: E402
from vssl_nb.data.clips import VideoCache  # noqa: E402
from vssl_nb.papers.reproduce import Task, at_once  # noqa: E402
from vssl_nb.runs.evaluation import retrieve  # noqa: E402
from vssl_nb.runs.pretraining import pretrain  # noqa: E402
from vssl_nb.training.machine import Machine, keep_memory  # noqa: E402
from vssl_nb.data.manifest import read  # noqa: E402
from vssl_nb.methods import ubernce  # noqa: E402
from vssl_nb.methods.coclr import coin, without_own_key  # noqa: E402
from vssl_nb.methods.recipes import Recipe, find, override  # noqa: E402

LIKE = "coclr-toy-rgb-cycle1"
STARTS = ("infonce-toy-rgb", "infonce-toy-residual")
# who chooses -> the recipe of the method, and what it has besides the settings of LIKE
CHOICES: dict[str, tuple[str, dict]] = {
    "own": ("infonce-toy-rgb-longer", {}),
    "frames": (LIKE, {"miner_options": ("view=rgb",)}),
    "differences": (LIKE, {}),
    "labels": ("ubernce-toy-rgb", {"form": "mil_nce"}),
    "labels, dropped": ("ubernce-toy-rgb", {"form": "mil_nce"}),
    "labels, mean": ("ubernce-toy-rgb", {"form": "supcon"}),
}


def recipe_of(choice: str, seed: int, changes: dict) -> Recipe:
    name, own = CHOICES[choice]
    like = override(find(LIKE), **changes)
    same = {k: getattr(like.method, k) for k in ("queue", "momentum", "temperature")}
    learning = {
        k: getattr(like.learning, k) for k in ("batch", "epochs", "warmup", "lr", "weight_decay")
    }
    return override(find(name), seed=seed, test_clips=like.test_clips, **same, **learning, **own)


def trained(recipe: Recipe, home: Path, name: str, **first) -> dict:
    "R@1, and of a run that mines how many of its keys are right; in another process."
    run, began = home / name, time.process_time()
    how = Machine("cpu", cache=VideoCache(read(home / "toy"), 2**31), progress=False)
    pretrain(recipe, home / "toy", run, (run / "recipe.json").exists(), how, **first)
    with open(run / "steps.csv") as f:
        head, *steps = (line.strip().split(",") for line in f)
    found = {
        "name": name,
        "r1": retrieve(run, machine=how, walls=0)[0]["r1"],
        "steps": len(steps),
        "cpu_seconds": round(time.process_time() - began, 1),
    }
    if "mined" in head:
        right, few = (
            [float(s[head.index("mined")]) for s in steps],
            len(steps) // recipe.learning.epochs,
        )
        # NaN while the queue fills: nothing is mined yet
        found["mined"] = [
            statistics.fmean(x for x in part if x == x) for part in (right[:few], right[-few:])
        ]
    return found


def begun(seed: int, home: Path, name: str, changes: dict) -> dict:
    same = {k: changes[k] for k in ("batch", "epochs", "test_clips") if k in changes}
    return trained(override(find(name), seed=seed, **same), home, name)


def drop_own_keys(seed: int) -> None:
    "From now on, in this process, UberNCE drops the own key by CoCLR's coin."
    match, steps = ubernce.with_labels, count()

    def with_labels(*given):
        sim, positive = match(*given)
        drop = coin(find(LIKE).method.drop_own, seed, next(steps))
        return sim, without_own_key(positive) if drop else positive

    ubernce.with_labels = with_labels


def chosen(seed: int, home: Path, choice: str, changes: dict) -> dict:
    recipe = recipe_of(choice, seed, changes)
    first = {"init_from": home / STARTS[0]} | (
        {"sampler": home / STARTS[1]} if "coclr" in recipe.name else {}
    )
    usual = ubernce.with_labels
    if choice == "labels, dropped":
        drop_own_keys(seed)
    try:
        return trained(recipe, home, choice, **first)
    finally:
        ubernce.with_labels = usual


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
    tasks: dict[str, Task] = {}
    for seed in a.seeds:
        home = a.folder / f"seed{seed}"
        if not (home / "toy").exists():
            toy.make(home / "toy", a.size, seed, progress=False)
        first = tuple(f"{seed}, {n}" for n in STARTS)
        tasks |= {f: Task(begun, (seed, home, n, a.changes)) for f, n in zip(first, STARTS)}
        tasks |= {
            f"{seed}, {c}": Task(chosen, (seed, home, c, a.changes), first) for c in a.choices
        }
    said = set()

    def look(done: dict):
        for k in done.keys() - said:
            said.add(k)
            print(f"seed {k}: R@1 {done[k]['r1']:.1%}, {done[k]['steps']} steps", flush=True)

    found = at_once(tasks, a.processes, progress=False, look=look)
    seeds = [
        {"seed": s, "rows": [found[k] for k in tasks if k.startswith(f"{s}, ")]} for s in a.seeds
    ]
    for c in a.choices:
        r1 = [r["r1"] for s in seeds for r in s["rows"] if r["name"] == c]
        print(
            f"{c}: mean R@1 {statistics.mean(r1):.1%} ({', '.join(f'{100 * x:.1f}' for x in r1)})"
        )
    if a.out:
        a.out.write_text(
            json.dumps(
                {
                    "what": "benchmarks/positives.py",
                    "date": time.strftime("%Y-%m-%d"),
                    "machine": machine("cpu"),
                    "size": a.size,
                    "like": LIKE,
                    "changes": a.changes,
                    "seeds": seeds,
                },
                indent=1,
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
