"""What an effect of a paper does while its premise is turned up: one panel an effect, from
`results/`.

    python benchmarks/dose.py --out nbs/images/dose.png

draws the panels whose results are there, and trains nothing. A point is the mean of the difference
of two runs of the same seed, with its 95 % interval over the seeds (paired t). The results come
from `benchmarks/worlds.py` (ProViCo at 0, 20, 40 % spoiled videos; MoQuad at five shares of
misleading backgrounds; CPR from frames with an R@1 of 39 %) and from the one experiment (CPR from
other frames; IIC), the plain toy at its standard budget.

    python benchmarks/dose.py --train --results runs/dose --out runs/dose/dose.png

trains the worlds again: it runs the script for all results that the folder lacks, two at a time,
and draws. It takes some two hours of one core, or one hour of two, and goes on where it was
stopped."""

import json
import statistics
import subprocess
import sys
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
EXPERIMENT = RESULTS / "experiment.json"
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
# rows of the one experiment that panels compare, and the frames that they begin with
EXPERIMENT_ROWS = (
    "coclr",
    "coclr, again",
    "cascade",
    "cmc, released",
    "iic, released",
    "cmc",
    "iic",
)
LEAST_SEEDS = 3
WIDTH, HEIGHT = 310, 210  # px of a panel

Row = dict[str, Any]
SeedRows = list[dict[str, Row]]  # of each seed: name of a run -> row


def world_command(experiment: str, seeds: int) -> list[str]:
    return ["worlds.py", experiment, "--seeds", *(str(41 + i) for i in range(seeds))]


SCRIPTS = {  # file of results -> script and options
    f"world-{name}": world_command(name, n) for name, n in SEEDS.items()
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


def seeds_of(file: Path) -> SeedRows:
    "The rows of a world."
    if not file.is_file():
        return []
    seeds = json.loads(file.read_text())["seeds"]
    return [{row["run"]: row for row in seed["rows"]} for seed in seeds]


def experiment_seeds(file: Path) -> SeedRows:
    "The rows of the one experiment on frames of the plain toy, at the standard budget."
    if not file.is_file():
        return []
    seeds: dict[int, dict[str, Row]] = {}
    for record in json.loads(file.read_text())["records"]:
        if (record["world"], record["view"], record["budget"]) == ("plain", "rgb", 1):
            seeds.setdefault(record["seed"], {})[record["row"]] = record
    return [seeds[seed] for seed in sorted(seeds)]


def gap(
    seeds: SeedRows,
    a: str,  # name of a run
    b: str,
) -> list[float]:
    "Points of R@1 by which b is ahead of a, where a seed has both."
    return [100 * (s[b]["r1"] - s[a]["r1"]) for s in seeds if a in s and b in s]


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
            "ProViCo: gain by Eq. 10 (weight and price)",
            premise,
            "R@1, difference in points",
            gains,
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


def panel_of_cpr(results: Path, experiment: Path) -> Panel:
    # seeds, the frames it begins with, one stage, three stages
    comparisons = (
        (experiment_seeds(experiment), "coclr", "coclr, again", "cascade"),
        (seeds_of(results / "world-stages.json"), "taught", "s=1", "s=3"),
    )
    levels = []
    for seeds, start, one, three in comparisons:
        begun = [100 * s[start]["r1"] for s in seeds if {start, one, three} <= s.keys()]
        label = f"{statistics.fmean(begun):.0f}" if begun else ""
        levels.append(Level(label, gap(seeds, one, three)))
    return Panel(
        "CPR: gain of three stages over CoCLR",
        "R@1 of the frames it begins with, %",
        "R@1, difference in points",
        levels,
    )


def panel_of_iic(experiment: Path) -> Panel:
    seeds = experiment_seeds(experiment)
    levels = [
        Level("as released", gap(seeds, "cmc, released", "iic, released")),
        Level("length 1, gradient", gap(seeds, "cmc", "iic")),
    ]
    return Panel(
        "IIC: gain by broken clips as negatives",
        "form of IIC",
        "R@1 of frames, difference",
        levels,
    )


def panels(
    results: Path,  # folder of the worlds
    experiment: Path,  # file of the one experiment
) -> list[Panel]:
    "All panels, also those without results."
    return [
        *panels_of_provico(results),
        panel_of_moquad(results),
        panel_of_cpr(results, experiment),
        panel_of_iic(experiment),
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


def drawable(every: list[Panel]) -> list[Panel]:
    "Panels that have two levels with enough seeds, without their other levels."
    panels = []
    for panel in every:
        levels = [level for level in panel.levels if len(level.values) >= LEAST_SEEDS]
        if len(levels) > 1:
            panels.append(replace(panel, levels=levels))
    return panels


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
    p.add_argument("--results", type=Path, default=RESULTS, help="folder of the worlds")
    p.add_argument("--experiment", type=Path, default=EXPERIMENT, help="file of the one experiment")
    p.add_argument("--train", action="store_true", help="train the worlds that the folder lacks")
    p.add_argument("--out", type=Path, required=True, help="a .png file")
    a = p.parse_args()
    if a.train:
        train(a.results)

    every = panels(a.results, a.experiment)
    drawn = drawable(every)
    if not drawn:
        stop(f"{a.results}: no effect has two levels with three seeds; --train makes them")
    show.save_picture(picture(drawn), a.out)

    for panel in drawn:
        print_panel(panel)
    titles = {panel.title for panel in drawn}
    for panel in every:
        if panel.title not in titles:
            print(f"{panel.title}: no results yet")


if __name__ == "__main__":
    main()
