"""What the strongest simple baselines make of the videos on which MoQuad and ProViCo are measured.

For each seed the toy of `benchmarks/moquad.py` (backgrounds that give the class away in training
alone) and that of `benchmarks/provico.py`, and on each of them, from frame differences and for as
many epochs as the method has there: a random encoder, InfoNCE in the batch, SimCLR, and SimSiam.
Settings are those of the recipes `infonce-toy-residual` and `simclr-toy-residual`; nothing was
tuned for these videos. Retrieval on test videos, clean protocol, with as many clips of a video as
the method's own benchmark takes.

    python benchmarks/beside.py --seeds 21 22 23 --out results/beside-toy.json

What was started and killed goes on with the same command, after the last finished training."""

import statistics
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import measurement
from infonce import row
from result_files import SeedResults, Stamp, settings_of

from vssl_nb.data import toy
from vssl_nb.data.dataset import VideoCache
from vssl_nb.data.manifest import read
from vssl_nb.methods.recipes import find, override
from vssl_nb.training.machine import keep_memory


@dataclass(frozen=True)
class Toy:
    "The toy videos of a method's benchmark."

    recipe: str  # the one that says how long
    test_clips: int  # of a test video
    options: dict[str, Any] = field(default_factory=dict)  # of `toy.make`


TOYS = {
    "moquad": Toy("moquad-toy-rung3", 3, dict(bias=0.9, contrast=0.15)),
    "provico": Toy("provico-toy", 4),
}
LEARNERS = {
    "random": "infonce-toy-residual",
    "infonce": "infonce-toy-residual",
    "simclr": "simclr-toy-residual",
    "simsiam": "infonce-toy-residual",
}


def add_rows(
    method: str,
    seed: int,
    size: str,
    changes: dict[str, int],
    results: SeedResults,
) -> None:
    "All rows of one seed; those that are there already are not made again."
    rows = results.entry(method=method, seed=seed)["rows"]
    known = {row["name"] for row in rows}
    missing = [name for name in LEARNERS if name not in known]
    if not missing:
        return

    like = TOYS[method]
    epochs = dict(epochs=find(like.recipe).learning.epochs) | changes
    with tempfile.TemporaryDirectory() as folder:
        manifest = read(toy.make(folder, size, seed, progress=False, **like.options))
        cache = VideoCache(manifest, 2**31)
        for name in missing:
            recipe = override(find(LEARNERS[name]), seed=seed, test_clips=like.test_clips, **epochs)
            new = row(name, recipe, manifest, cache) | {"epochs": recipe.learning.epochs}
            rows.append(new)
            results.keep()
            print(f"{method}, seed {seed}, {name}: R@1 {new['r1']:.1%}", flush=True)


def main():
    p = measurement.parser(__doc__)
    p.add_argument(
        "--seeds", nargs="+", type=int, default=[21, 22, 23], help="those of the methods"
    )
    p.add_argument("--methods", nargs="+", choices=[*TOYS], default=[*TOYS])
    p.add_argument("--size", default="demo", help="of the toy")
    p.add_argument("--set", nargs="*", default=[], help="whole numbers to change, such as epochs=2")
    p.add_argument(
        "--out",
        type=Path,
        default=Path("results/beside-toy.json"),
        help="kept, so that it can go on",
    )
    a = p.parse_args()
    keep_memory()

    changes = measurement.whole_numbers(a.set)
    results = SeedResults(
        a.out,
        Stamp(__file__, settings_of(a)),
        asked={"size": a.size, "changes": changes},
        further={"toys": {method: TOYS[method].options for method in a.methods}},
    )
    for method in a.methods:
        for seed in a.seeds:
            add_rows(method, seed, a.size, changes, results)

    for method in a.methods:
        of_method = [s["rows"] for s in results.seeds if s["method"] == method]
        for name in LEARNERS:
            r1 = [row["r1"] for rows in of_method for row in rows if row["name"] == name]
            each = ", ".join(f"{100 * x:.1f}" for x in r1)
            print(f"{method}, {name}: mean R@1 {statistics.mean(r1):.1%} ({each})")


if __name__ == "__main__":
    main()
