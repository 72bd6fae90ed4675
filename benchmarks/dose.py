"""What an effect of a paper does while its premise is turned up: one panel an effect, from
`results/`.

    python benchmarks/dose.py --out nbs/images/dose.png

draws the panels whose results are there, and trains nothing. A point is the mean of the difference
of two runs of the same seed, with its 95 % interval over the seeds (paired t). The results come
from `benchmarks/worlds.py` (ProViCo at 0, 20, 40 % spoiled videos; MoQuad at five shares of
misleading backgrounds), `benchmarks/cascade.py` (CPR) and `benchmarks/iic.py`.

    python benchmarks/dose.py --train --results runs/dose --out runs/dose/dose.png

makes everything again: it runs these scripts for all results that the folder lacks, two at a time,
and draws. It takes some four hours of one core, or two hours of two, and goes on where it was
stopped."""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from conflict import interval, stop  # noqa: E402

from vssl_nb import show  # noqa: E402

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
SEEDS = {
    "stages": 8,
    "spoiled": 8,
    "spoiled-0": 4,
    "spoiled-40": 4,
    "bias-0": 3,
    "bias-25": 4,
    "bias-50": 3,
    "bias-75": 3,
    "bias-90": 3,
}  # experiment of worlds.py -> seeds, from 41
SCRIPTS = {"cascade-toy": ["cascade.py"], "iic-toy": ["iic.py"]} | {
    f"world-{name}": [
        "worlds.py",
        name,
        # file of results -> command
        "--seeds",
        *(str(41 + i) for i in range(n)),
    ]
    for name, n in SEEDS.items()
}


@dataclass(frozen=True)
class Level:
    "An effect at one level of its premise."

    label: str  # of the x axis
    values: list[float]  # of the seeds


@dataclass(frozen=True)
class Panel:
    title: str
    premise: str  # what the x axis turns up
    effect: str  # what the y axis measures
    levels: list[Level]
    chance: float = 0.0


def seeds_of(
    path: Path,
    key: str = "run",
) -> list[dict[str, Any]]:  # of each seed: name of a run -> row
    if not path.is_file():
        return []
    return [{r[key]: r for r in seed["rows"]} for seed in json.loads(path.read_text())["seeds"]]


def gap(
    rows: list[dict], a: str, b: str, get: Callable[[dict], float] = lambda r: r["r1"]
) -> list[float]:
    "Points by which b is ahead of a, where a seed has both."
    return [100 * (get(r[b]) - get(r[a])) for r in rows if a in r and b in r]


def panels(results: Path) -> list[Panel]:
    "All panels, also those without results."
    spoiled = {
        share: seeds_of(results / f"world-spoiled{'' if share == 20 else f'-{share}'}.json")
        for share in (0, 20, 40)
    }
    bias = {b: seeds_of(results / f"world-bias-{b}.json") for b in (0, 25, 50, 75, 90)}
    iic = seeds_of(results / "iic-toy.json", "name")
    cascade, stages = (
        seeds_of(results / f"{name}.json") for name in ("cascade-toy", "world-stages")
    )

    def frames(row):
        return row["r1"]["rgb"]

    broken = (("own row out", "stored, no gradient"), ("iic", "current, with gradient"))
    points, share = "R@1, difference in points", "spoiled training videos, %"
    return [
        Panel(
            "ProViCo: gain by the weights of Eq. 10",
            share,
            points,
            [Level(f"{k}", gap(r, "no weights", "ProViCo")) for k, r in spoiled.items()],
        ),
        Panel(
            "ProViCo: is a spoiled clip less certain?",
            share,
            "AUROC of the variance",
            [
                Level(f"{k}", [s["ProViCo"]["auroc"] for s in r if "ProViCo" in s])
                for k, r in spoiled.items()
            ],
            0.5,
        ),
        Panel(
            "MoQuad: gain over SimCLR",
            "training backgrounds that tell the class, %",
            points,
            [Level(f"{k}", gap(r, "SimCLR", "MoQuad")) for k, r in bias.items()],
        ),
        Panel(
            "CPR: gain of three stages over CoCLR",
            "R@1 of the frames it begins with, %",
            points,
            [
                Level(f"{mean_r1(rows, start):.0f}", gap(rows, a, b))
                for rows, start, a, b in (
                    (cascade, "infonce, rgb", "s=1, r=0.6", "s=3, r=0.6"),
                    (stages, "taught", "s=1", "s=3"),
                    (cascade, "s=1, r=0.6", "s=1, r=0.6, cycle 2", "s=3, r=0.6, cycle 2"),
                )
            ],
        ),
        Panel(
            "IIC: gain by broken clips as negatives",
            "kind of broken clips",
            "R@1 of frames, difference",
            [Level(words, gap(iic, "not broken", name, frames)) for name, words in broken],
        ),
    ]


def train(results: Path) -> None:
    """Run the scripts of all results that a folder lacks, two at a time; each goes on where it was
    stopped.
    """
    results.mkdir(parents=True, exist_ok=True)

    def run(name: str) -> bool:
        file, part = results / f"{name}.json", results / f"{name}.part.json"
        if file.exists():
            return True
        script, *more = SCRIPTS[name]
        runs = (
            []
            if script == "iic.py"
            else ["--runs", str(results / "runs" / script.removesuffix(".py"))]
        )
        code = subprocess.run(
            [sys.executable, HERE / script, *more, *runs, "--out", part]
        ).returncode
        if code == 0:
            part.replace(file)
        return code == 0

    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(run, SCRIPTS))
    if not all(done):
        stop(f"{results}: {done.count(False)} scripts did not end; the same command goes on")


def mean_r1(rows: list[dict], name: str) -> float:
    return 100 * sum(r[name]["r1"] for r in rows) / len(rows) if rows else 0.0


def picture(drawn: list[Panel]) -> show.Picture:
    "A row for every two panels."
    width, height, rows = 310, 210, -(-len(drawn) // 2)
    figure = show.Picture(
        figsize=(2 * width / show.DPI, rows * height / show.DPI), dpi=show.DPI, layout="constrained"
    )
    axes = figure.subplots(rows, 2, squeeze=False).flat
    # in this order: zip takes one of its first more than it gives
    for p, ax in zip(drawn, axes):
        means, halves = zip(*(interval(level.values) for level in p.levels))
        ax.errorbar(
            range(len(means)), means, yerr=halves, fmt="o", color="#2e75b6", ms=5, capsize=3, lw=1.2
        )
        ax.axhline(p.chance, color="grey", ls="--", lw=0.8)
        labels = [f"{x.label}\n({len(x.values)} seeds)" for x in p.levels]
        ax.set_xticks(range(len(means)), labels, fontsize=7)
        ax.set_xlim(-0.5, len(means) - 0.5)
        ax.tick_params(axis="y", labelsize=7)
        ax.set_title(p.title, fontsize=9)
        ax.set_xlabel(p.premise, fontsize=8)
        ax.set_ylabel(p.effect, fontsize=8)
    for ax in [*axes]:
        ax.set_axis_off()
    return figure


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    p.add_argument("--train", action="store_true", help="make the results that the folder lacks")
    p.add_argument("--out", type=Path, required=True, help="a .png file")
    a = p.parse_args()
    if a.train:
        train(a.results)
    every = [
        Panel(x.title, x.premise, x.effect, [v for v in x.levels if len(v.values) >= 3], x.chance)
        for x in panels(a.results)
    ]
    drawn = [x for x in every if len(x.levels) > 1]
    if not drawn:
        stop(f"{a.results}: no effect has two levels with three seeds; --train makes them")
    show.save_picture(picture(drawn), a.out)
    for x in drawn:
        print(
            f"{x.title} ({x.effect})",
            *(
                f"  {v.label}: {m:+.2f} ± {h:.2f}, {len(v.values)} seeds"
                for v in x.levels
                for m, h in [interval(v.values)]
            ),
            sep="\n",
        )
    for x in every:
        if x not in drawn:
            print(f"{x.title}: no results yet")


if __name__ == "__main__":
    main()
