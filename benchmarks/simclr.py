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

import json
import statistics
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import measurement
import torch
from infonce import row
from result_files import SeedResults, Stamp, plain, settings_of

from vssl_nb.data import toy
from vssl_nb.data.dataset import VideoCache
from vssl_nb.data.manifest import read
from vssl_nb.config import Recipe
from vssl_nb.methods.recipes import find, override
from vssl_nb.training.machine import keep_memory

MEANS = ("r1", "std", "loss", "top1", "steps")


def cases(
    batches: list[int],  # the first is the one of the comparison
) -> list[tuple[str, str, int]]:
    "Name, view, batch."
    first, *more = batches
    larger = [("simclr", "residual", batch) for batch in more]
    return [
        ("simclr", "residual", first),
        ("infonce-one", "residual", first),
        *larger,
        ("simclr", "rgb", first),
    ]


def recipe_of(name: str, view: str, batch: int, seed: int, changes: dict[str, Any]) -> Recipe:
    "That of the toy, with another batch and the rate that goes with it."
    method = name.removesuffix("-one")
    recipe = override(find(f"{method}-toy-{view}"), seed=seed, test_clips=3, **changes)
    if name == "infonce-one":
        recipe = override(recipe, momentum=None)
    rate = recipe.learning.lr * (batch / recipe.learning.batch) ** 0.5
    return override(recipe, batch=batch, lr=rate)


def add_rows(
    seed: int,
    wanted: list[tuple[str, str, int]],  # cases
    size: str,
    changes: dict[str, Any],
    results: SeedResults,
) -> None:
    "Rows of one seed; those that are there already are not made again."
    rows = results.entry(seed=seed)["rows"]
    known = {(r["name"], r["view"], r["batch"]) for r in rows}
    with tempfile.TemporaryDirectory() as folder:
        manifest = read(toy.make(folder, size, seed, progress=False))
        cache = VideoCache(manifest, 2**31)
        for case in wanted:
            if case in known:
                continue
            name, view, batch = case
            new = row(name, recipe_of(name, view, batch, seed, changes), manifest, cache)
            rows.append(new | {"batch": batch})
            results.keep()
            print(
                f"seed {seed}, {view}, {name}, batches of {batch}: R@1 {new['r1']:.1%}", flush=True
            )


def summary(seeds: list[dict[str, Any]]) -> dict[str, Any]:
    "One line for each case: R@1 of the seeds, their mean and their range."
    lines: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for seed in seeds:
        for r in seed["rows"]:
            lines.setdefault((r["name"], r["view"], r["batch"]), []).append(r)

    table = []
    for (name, view, batch), rows in lines.items():
        line = {"name": name, "view": view, "batch": batch}
        line |= {k: statistics.fmean(r[k] for r in rows) for k in MEANS}
        r1 = [r["r1"] for r in rows]
        table.append(line | {"lowest": min(r1), "highest": max(r1)})
    return {"summary": table}


def main():
    p = measurement.parser(__doc__)
    p.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12])
    p.add_argument("--batches", type=int, nargs="+", default=[32, 8, 128], help="videos in a batch")
    p.add_argument("--size", default="demo", choices=["tiny", "demo"])
    p.add_argument(
        "--changes", type=json.loads, default={}, help="fields to change in all recipes, as JSON"
    )
    p.add_argument("--out", type=Path, required=True, help="a .json file for the results")
    a = p.parse_args()
    torch.set_num_threads(1)
    keep_memory()

    every = cases(a.batches)
    recipes = {
        f"{name} {view} {batch}": plain(asdict(recipe_of(name, view, batch, 0, a.changes)))
        for name, view, batch in every
    }
    stamp = Stamp(__file__, settings_of(a))
    results = SeedResults(a.out, stamp, {"recipes": recipes}, summary=summary)
    for view in ("residual", "rgb"):
        wanted = [case for case in every if case[1] == view]
        for seed in a.seeds:
            add_rows(seed, wanted, a.size, a.changes, results)
    results.keep()
    for line in summary(results.seeds)["summary"]:
        print(
            f"{line['name']:>11} {line['view']:<9} {line['batch']:>4} R@1 {line['r1']:.1%} "
            f"({line['lowest']:.1%} to {line['highest']:.1%})"
        )


if __name__ == "__main__":
    main()
