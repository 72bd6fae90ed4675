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

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import measurement
from intervals import seed_interval
from measurement import stop

from vssl_nb import show

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
SEEDS = {  # experiment of worlds.py -> how many seeds, from 41 on
    "stages": 8,
    "spoiled": 8,
    "spoiled-0": 4,
    "spoiled-40": 4,
    "bias-0": 3,
    "bias-25": 4,
    "bias-50": 3,
    "bias-75": 3,
    "bias-90": 3,
}
LEAST_SEEDS = 3
WIDTH, HEIGHT = 310, 210  # px of a panel

Row = dict[str, Any]
SeedRows = list[dict[str, Row]]  # of each seed: name of a run -> row


def world_command(experiment: str, seeds: int) -> list[str]:
    return ["worlds.py", experiment, "--seeds", *(str(41 + i) for i in range(seeds))]


SCRIPTS = {  # file of results -> script and options
    "cascade-toy": ["cascade.py"],
    "iic-toy": ["iic.py"],
    **{f"world-{name}": world_command(name, n) for name, n in SEEDS.items()},
}


@dataclass(frozen=True)
class Level:
    "An effect at one level of its premise."

    label: str  # of the x axis
    values: list[float]  # of the seeds


@dataclass(frozen=True)
class Panel:
    "An effect at all levels."

    title: str
    premise: str  # what the x axis turns up
    effect: str  # what the y axis measures
    levels: list[Level]
    chance: float = 0.0


def seeds_of(
    file: Path,
    key: str = "run",  # the column of the name
) -> SeedRows:
    if not file.is_file():
        return []
    seeds = json.loads(file.read_text())["seeds"]
    return [{row[key]: row for row in seed["rows"]} for seed in seeds]


def r1(row: Row) -> float:
    return row["r1"]


def gap(
    seeds: SeedRows,
    a: str,  # name of a run
    b: str,
    number: Callable[[Row], float] = r1,
) -> list[float]:
    "Points by which b is ahead of a, where a seed has both."
    return [100 * (number(s[b]) - number(s[a])) for s in seeds if a in s and b in s]


def mean_r1(seeds: SeedRows, name: str) -> float:
    return 100 * sum(s[name]["r1"] for s in seeds) / len(seeds) if seeds else 0.0


def panels_of_provico(results: Path) -> list[Panel]:
    files = {0: "world-spoiled-0", 20: "world-spoiled", 40: "world-spoiled-40"}
    shares = {share: seeds_of(results / f"{name}.json") for share, name in files.items()}
    premise = "spoiled training videos, %"
    gains = [
        Level(f"{share}", gap(seeds, "no weights", "ProViCo")) for share, seeds in shares.items()
    ]
    areas = [
        Level(f"{share}", [s["ProViCo"]["auroc"] for s in seeds if "ProViCo" in s])
        for share, seeds in shares.items()
    ]
    return [
        Panel(
            "ProViCo: gain by the weights of Eq. 10", premise, "R@1, difference in points", gains
        ),
        Panel(
            "ProViCo: is a spoiled clip less certain?", premise, "AUROC of the variance", areas, 0.5
        ),
    ]


def panel_of_moquad(results: Path) -> Panel:
    levels = []
    for bias in (0, 25, 50, 75, 90):
        seeds = seeds_of(results / f"world-bias-{bias}.json")
        levels.append(Level(f"{bias}", gap(seeds, "SimCLR", "MoQuad")))
    return Panel(
        "MoQuad: gain over SimCLR",
        "training backgrounds that tell the class, %",
        "R@1, difference in points",
        levels,
    )


def panel_of_cpr(results: Path) -> Panel:
    first = seeds_of(results / "cascade-toy.json")
    stages = seeds_of(results / "world-stages.json")
    # seeds, the frames it begins with, one stage, three stages
    comparisons = (
        (first, "infonce, rgb", "s=1, r=0.6", "s=3, r=0.6"),
        (stages, "taught", "s=1", "s=3"),
        (first, "s=1, r=0.6", "s=1, r=0.6, cycle 2", "s=3, r=0.6, cycle 2"),
    )
    levels = [
        Level(f"{mean_r1(seeds, start):.0f}", gap(seeds, one, three))
        for seeds, start, one, three in comparisons
    ]
    return Panel(
        "CPR: gain of three stages over CoCLR",
        "R@1 of the frames it begins with, %",
        "R@1, difference in points",
        levels,
    )


def panel_of_iic(results: Path) -> Panel:
    seeds = seeds_of(results / "iic-toy.json", "name")
    broken = {"own row out": "stored, no gradient", "iic": "current, with gradient"}

    def r1_of_frames(row: Row) -> float:
        return row["r1"]["rgb"]

    levels = [
        Level(label, gap(seeds, "not broken", name, r1_of_frames)) for name, label in broken.items()
    ]
    return Panel(
        "IIC: gain by broken clips as negatives",
        "kind of broken clips",
        "R@1 of frames, difference",
        levels,
    )


def panels(results: Path) -> list[Panel]:
    "All panels, also those without results."
    return [
        *panels_of_provico(results),
        panel_of_moquad(results),
        panel_of_cpr(results),
        panel_of_iic(results),
    ]


def make_results(
    name: str,  # of the file
    folder: Path,
) -> bool:  # is it there now?
    "Run the script of a file of results, if it is not there."
    file, part = folder / f"{name}.json", folder / f"{name}.part.json"
    if file.exists():
        return True
    script, *options = SCRIPTS[name]
    if script != "iic.py":  # which keeps no runs
        options += ["--runs", str(folder / "runs" / script.removesuffix(".py"))]
    done = subprocess.run([sys.executable, HERE / script, *options, "--out", part])
    if done.returncode:
        return False
    part.replace(file)
    return True


def train(results: Path) -> None:
    """Run the scripts of all results that a folder lacks, two at a time; each goes on where it was
    stopped.
    """
    results.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda name: make_results(name, results), SCRIPTS))
    if not all(done):
        stop(f"{results}: {done.count(False)} scripts did not end; the same command goes on")


def picture(drawn: list[Panel]) -> show.Picture:
    "A row for every two panels."
    rows = -(-len(drawn) // 2)
    size = (2 * WIDTH / show.DPI, rows * HEIGHT / show.DPI)
    figure = show.Picture(figsize=size, dpi=show.DPI, layout="constrained")
    axes = list(figure.subplots(rows, 2, squeeze=False).flat)
    for p, ax in zip(drawn, axes):
        means, halves = zip(*(seed_interval(level.values) for level in p.levels))
        x = range(len(means))
        ax.errorbar(x, means, yerr=halves, fmt="o", color="#2e75b6", ms=5, capsize=3, lw=1.2)
        ax.axhline(p.chance, color="grey", ls="--", lw=0.8)
        labels = [f"{level.label}\n({len(level.values)} seeds)" for level in p.levels]
        ax.set_xticks(x, labels, fontsize=7)
        ax.set_xlim(-0.5, len(means) - 0.5)
        ax.tick_params(axis="y", labelsize=7)
        ax.set_title(p.title, fontsize=9)
        ax.set_xlabel(p.premise, fontsize=8)
        ax.set_ylabel(p.effect, fontsize=8)
    for ax in axes[len(drawn) :]:
        ax.set_axis_off()
    return figure


def print_panel(panel: Panel) -> None:
    print(f"{panel.title} ({panel.effect})")
    for level in panel.levels:
        mean, half = seed_interval(level.values)
        print(f"  {level.label}: {mean:+.2f} ± {half:.2f}, {len(level.values)} seeds")


def main():
    p = measurement.parser(__doc__)
    p.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    p.add_argument("--train", action="store_true", help="make the results that the folder lacks")
    p.add_argument("--out", type=Path, required=True, help="a .png file")
    a = p.parse_args()
    if a.train:
        train(a.results)

    every = []
    for panel in panels(a.results):
        levels = [level for level in panel.levels if len(level.values) >= LEAST_SEEDS]
        every.append(replace(panel, levels=levels))
    drawn = [panel for panel in every if len(panel.levels) > 1]
    if not drawn:
        stop(f"{a.results}: no effect has two levels with three seeds; --train makes them")
    show.save_picture(picture(drawn), a.out)

    for panel in drawn:
        print_panel(panel)
    for panel in every:
        if panel not in drawn:
            print(f"{panel.title}: no results yet")


if __name__ == "__main__":
    main()
