"""S3D on the full-size toy: does a real run on one GPU learn, how fast, and where does its time go?

    python benchmarks/toy_full.py --videos /tmp/toyfull --out results/toyfull-h200.json --minutes 12

Writes the 9600 toy videos of 128 px if they are not there, pretrains `infonce-toyfull-residual` in
pieces until `--minutes` of training have passed, and after each piece measures R@1 on a sixth of
the videos, always the same. Stopped, it goes on where it was when it is started again. The result
is a JSON file with the curve, the random encoder beside it, the time split of the steps, machine,
versions and recipe, and a picture of the curve."""

import csv
import json
import statistics
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import measurement
from result_files import Stamp, settings_of, write_results

from vssl_nb import show
from vssl_nb.data import toy
from vssl_nb.data.manifest import Manifest, read, write
from vssl_nb.config import Recipe
from vssl_nb.methods.recipes import find, override
from vssl_nb.runs.evaluation import baselines, retrieve
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.training.run_folder import read_json
from vssl_nb.training.machine import Machine

FIRST_STEPS = 20  # warm up and measure the speed


def part_of(
    manifest: Manifest,
    share: int,  # one of so many sources
) -> Path:
    "A manifest of a part of the sources, both splits, beside the whole one; names alone decide."
    rows = [row for row in manifest.rows if zlib.crc32(row.source.encode()) % share == 0]
    return write(manifest.root / "sixth.csv", rows)


class Training:
    "A training in pieces, with a measurement after each."

    def __init__(self, recipe: Recipe, data: Path, a: Any):
        self.recipe, self.data, self.a = recipe, data, a
        self.few = part_of(read(data), a.share)
        self.machine = Machine(a.device, workers=a.workers)
        self.options = dict(
            device=a.device, dtype=a.dtype, workers=a.workers, compile=a.compile, save_minutes=1e9
        )
        if a.out.exists() and a.run.exists():
            self.results = json.loads(a.out.read_text())
        else:
            rows = baselines(recipe, self.few, which=("random",), machine=self.machine)
            self.results = {"curve": [], "random": rows[0]}

    def card(self) -> dict[str, Any]:
        if (self.a.run / "card.json").exists():
            return read_json(self.a.run / "card.json", "a run")
        return {"step": 0, "seconds": 0.0, "finished": False}

    def go_on(self, steps: int) -> float:  # steps a second
        "Train so many steps."
        before, run = self.card(), self.a.run
        last = before["step"] + steps
        pretrain(self.recipe, self.data, run, resume=run.exists(), max_steps=last, **self.options)
        now = self.card()
        return (now["step"] - before["step"]) / (now["seconds"] - before["seconds"])

    def measure(self) -> None:
        "A point of the curve."
        card = self.card()
        row = retrieve(self.a.run, data=self.few, walls=0, machine=self.machine)[0]
        point = {
            "step": card["step"],
            "epoch": card["step"] / card["schedule"]["steps_per_epoch"],
            "minutes": card["seconds"] / 60,
        }
        point |= {k: row[k] for k in ("r1", "r5", "r10")}
        self.results["curve"].append(point)
        print(point, flush=True)

    def median_seconds(self) -> dict[str, float]:
        "Of the parts of a step."
        with (self.a.run / "times.csv").open() as f:
            times = list(csv.DictReader(f))
        parts = [name for name in times[0] if name != "step"]
        return {k: statistics.median(float(t[k]) for t in times[-200:]) for k in parts}

    def keep(self, stamp: Stamp, speed: float) -> None:
        learning = self.recipe.learning
        self.results |= stamp.head() | {
            "how": self.options,
            "recipe": asdict(self.recipe),
            "card": self.card(),
            "median_seconds": self.median_seconds(),
            "videos_per_s": speed * learning.batch * learning.accumulate,
        }
        write_results(self.a.out, self.results)

    def is_over(self) -> bool:
        card = self.card()
        return card["finished"] or card["seconds"] >= 60 * self.a.minutes

    def all(self, stamp: Stamp) -> None:
        "Train until the minutes are over or the run has ended."
        speed = 0.0
        while not self.is_over():
            is_first = speed == 0
            steps = FIRST_STEPS if is_first else round(60 * self.a.every * speed)
            speed = self.go_on(max(FIRST_STEPS, steps))
            if not is_first:
                self.measure()
            self.keep(stamp, speed)


def draw(results: dict[str, Any], name: str, file: Path) -> None:
    "The curve, beside the random encoder."
    steps = [point["step"] for point in results["curve"]]
    r1 = [point["r1"] for point in results["curve"]]
    lines = {
        "InfoNCE": (steps, r1),
        "random encoder": ([steps[0], steps[-1]], [results["random"]["r1"]] * 2),
    }
    minutes = results["card"]["seconds"] / 60
    show.save_picture(show.curves(lines, "step", "R@1", f"{name}, {minutes:.0f} minutes"), file)


def main():
    p = measurement.parser(__doc__)
    p.add_argument("--videos", required=True, help="folder for the toy videos")
    p.add_argument("--size", default="full", help="of the toy; tiny tries the script out")
    p.add_argument("--recipe", default="infonce-toyfull-residual")
    p.add_argument(
        "--set",
        nargs="*",
        default=[],
        metavar="FIELD=VALUE",
        help="changes of the recipe, e.g. batch=64",
    )
    p.add_argument("--run", type=Path, default=Path("runs/toyfull"))
    p.add_argument("--minutes", type=float, default=12, help="of training in all")
    p.add_argument(
        "--every", type=float, default=2, help="minutes of training between two measurements"
    )
    p.add_argument("--share", type=int, default=6, help="measure on every n-th source")
    p.add_argument("--device", default="auto")
    p.add_argument("--dtype", default="bfloat16")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--workers", type=int, default=14)
    p.add_argument("--out", type=Path, required=True, help=".json file")
    a = p.parse_args()

    split = [pair.split("=", 1) for pair in a.set]
    recipe = override(find(a.recipe), **{name: json.loads(value) for name, value in split})
    data = toy.make(a.videos, size=a.size)
    training = Training(recipe, data, a)
    training.all(Stamp(__file__, settings_of(a), training.machine.place().type))
    results = training.results
    if results["curve"]:
        draw(results, recipe.name, a.out.with_suffix(".png"))
    shown = {k: results[k] for k in ("median_seconds", "videos_per_s", "random")}
    print(json.dumps(shown, indent=1))


if __name__ == "__main__":
    main()
