"""What SimCLR is worth on the toy, and what large batches buy it: three seeds, beside InfoNCE in
the batch.

On frame differences SimCLR is trained with batches of 8, 32 and 128 videos, for the same number of
epochs: all see the same clips, and a larger batch means fewer steps. The learning rate grows with
the square root of the batch, as is usual for Adam. `infonce-one` is InfoNCE without its momentum
encoder, so that it differs from SimCLR in its candidates only. On frames (`rgb`) SimCLR is trained
with the batch of its recipe. Weights, clips, optimizer, schedule and measurement are those of
`benchmarks/infonce.py`. Its rows for the same seeds are the neighbours of these and are not made
again: InfoNCE, chance, histogram, random encoder, SimSiam, cross-entropy.

    python benchmarks/simclr.py --seeds 10 11 12 --out results/simclr-toy.json

SimCLR's settings are those of InfoNCE; others were tried on seed 20. What was started and killed
goes on with the same command."""

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import torch

from vssl_nb.data import toy
from vssl_nb.data.clips import VideoCache
from vssl_nb.training.machine import keep_memory
from vssl_nb.data.manifest import read
from vssl_nb.methods.recipes import find, override

sys.path.insert(0, str(Path(__file__).parent))
from infonce import row  # noqa: E402
from step import machine  # noqa: E402


def cases(batches: list[int]) -> list[tuple[str, str, int]]:
    "Name, view, batch; the first batch is the one of the comparison."
    first, *more = batches
    return [
        ("simclr", "residual", first),
        ("infonce-one", "residual", first),
        *(("simclr", "residual", b) for b in more),
        ("simclr", "rgb", first),
    ]


def recipe_of(name: str, view: str, batch: int, seed: int, changes: dict):
    "That of the toy, with another batch and the rate that goes with it."
    one = {"momentum": None} if name == "infonce-one" else {}
    base = override(
        find(f"{name.split('-')[0]}-toy-{view}"), seed=seed, test_clips=3, **changes, **one
    )
    return override(base, batch=batch, lr=base.learning.lr * (batch / base.learning.batch) ** 0.5)


def of_seed(seed: int, wanted: list, size: str, changes: dict, done: list[dict], keep) -> None:
    "Rows of one seed; those that are there already are not made again."
    with tempfile.TemporaryDirectory() as folder:
        manifest = read(toy.make(folder, size, seed, progress=False))
        cache, have = (
            VideoCache(manifest, 2**31),
            {(r["name"], r["view"], r["batch"]) for r in done},
        )
        for name, view, batch in wanted:
            if (name, view, batch) in have:
                continue
            found = row(name, recipe_of(name, view, batch, seed, changes), manifest, cache)
            done.append({**found, "batch": batch})
            print(
                f"seed {seed}, {view}, {name}, batches of {batch}: R@1 {found['r1']:.1%}",
                flush=True,
            )
            keep()


def summary(seeds: list[dict]) -> list[dict]:
    "One line for each case: R@1 of the seeds, their mean and their range."
    lines: dict[tuple, list[dict]] = {}
    for s in seeds:
        for r in s["rows"]:
            lines.setdefault((r["name"], r["view"], r["batch"]), []).append(r)

    def one(rows):
        r1 = [r["r1"] for r in rows]
        mean = {
            k: statistics.fmean(r[k] for r in rows) for k in ("r1", "std", "loss", "top1", "steps")
        }
        return mean | {"lowest": min(r1), "highest": max(r1)}

    return [
        {"name": name, "view": view, "batch": batch, **one(rows)}
        for (name, view, batch), rows in lines.items()
    ]


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12])
    p.add_argument("--batches", type=int, nargs="+", default=[32, 8, 128], help="videos in a batch")
    p.add_argument("--size", default="demo", choices=["tiny", "demo"])
    p.add_argument(
        "--changes", type=json.loads, default={}, help="fields to change in all recipes, as JSON"
    )
    p.add_argument("--out", required=True, help="a .json file for the results")
    a = p.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    out = Path(a.out)
    every = cases(a.batches)
    recipes = {f"{n} {v} {b}": asdict(recipe_of(n, v, b, 0, a.changes)) for n, v, b in every}
    head = {
        "what": "benchmarks/simclr.py",
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine("cpu"),
        "recipes": recipes,
    }
    before = json.loads(out.read_text()) if out.exists() else {}
    same = before.get("recipes") == json.loads(json.dumps(recipes))
    seeds = [s for s in before.get("seeds", []) if same and s["seed"] in a.seeds]

    def keep():
        out.write_text(
            json.dumps(head | {"seeds": seeds, "summary": summary(seeds)}, indent=1) + "\n"
        )

    for view in ("residual", "rgb"):
        for seed in a.seeds:
            mine = next((s for s in seeds if s["seed"] == seed), None)
            if mine is None:
                seeds.append(mine := {"seed": seed, "rows": []})
            of_seed(seed, [c for c in every if c[1] == view], a.size, a.changes, mine["rows"], keep)
    keep()
    for r in summary(seeds):
        print(
            f"{r['name']:>11} {r['view']:<9} {r['batch']:>4} R@1 {r['r1']:.1%} "
            f"({r['lowest']:.1%} to {r['highest']:.1%})"
        )


if __name__ == "__main__":
    main()
