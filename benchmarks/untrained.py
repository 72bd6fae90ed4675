"""R@1 of encoders with random weights in the worlds of `benchmarks/worlds.py`.

    python benchmarks/untrained.py --out results/untrained-worlds.json

A ledger asks of each reading whether anything was learned: is an arm above its untrained encoder?
The experiments of `worlds.py` did not measure one. Here it is, on the same videos, on the view of
their runs and with their protocol; nothing is trained. In the world `directions` differences are
measured, too: `world-directions.json` has them, and they must be the same. A seed takes two
minutes of a core."""

import json
import shutil
from pathlib import Path
from typing import Any

import measurement
from result_files import SeedResults, Stamp, settings_of
from worlds import EXPERIMENTS, SEEDS, untrained

from vssl_nb.data import toy
from vssl_nb.data.manifest import read

# experiment -> views
VIEWS = {
    "spoiled": ("residual",),
    "scenes": ("rgb",),
    "shapes": ("rgb",),
    "directions": ("rgb", "residual"),
    "texture": ("rgb",),
    "looks": ("rgb",),
}


def add_rows(seed: int, a: Any, results: SeedResults) -> None:
    "The worlds of a seed that are not there yet; the videos are removed again."
    rows = results.entry(seed=seed)["rows"]
    known = {(row["run"], row["view"]) for row in rows}
    for name in a.worlds:
        home = a.runs / name / f"seed{seed}"
        for view in VIEWS[name]:
            if (name, view) in known:
                continue
            folder = toy.make(
                home, a.size, seed, workers=1, progress=False, **EXPERIMENTS[name].world
            )
            measured = untrained(view)(home, read(folder), seed, {})
            row = {"run": name, "view": view, "r1": measured[f"untrained, {view}"]}
            rows.append(row | {"chance": measured["chance"]})
            results.keep()
            print(f"seed {seed}, {name}, {view}: R@1 {100 * row['r1']:.1f}", flush=True)
        shutil.rmtree(home, ignore_errors=True)


def main() -> None:
    p = measurement.parser(__doc__)
    p.add_argument("--seeds", type=int, nargs="+", default=[*SEEDS])
    p.add_argument("--worlds", nargs="+", default=[*VIEWS], choices=[*VIEWS], help="these alone")
    p.add_argument("--size", default="demo", choices=["tiny", "demo"], help="of the toy")
    p.add_argument("--runs", type=Path, default=Path("runs/untrained"), help="folder of videos")
    p.add_argument("--out", type=Path, required=True, help="a .json file for the results")
    a = p.parse_args()
    worlds = {name: json.loads(json.dumps(EXPERIMENTS[name].world)) for name in VIEWS}
    stamp = Stamp(__file__, settings_of(a, without=("seeds", "worlds")))
    results = SeedResults(a.out, stamp, {"size": a.size, "worlds": worlds})
    for seed in a.seeds:
        add_rows(seed, a, results)


if __name__ == "__main__":
    main()
