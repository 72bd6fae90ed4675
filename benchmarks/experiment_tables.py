"""The table of the README and its differences, from the file of the one experiment alone.

    python benchmarks/experiment_tables.py --results results/experiment.json

prints them; a test compares the README with what is printed."""

import argparse
import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiment_rule import DIFFERENCES, Comparison, Line, differences_of, interval, seeds_of
from measurement import stop

Results = Mapping[str, Any]


@dataclass(frozen=True)
class Shown:
    "A line of the README's table."

    name: str
    learns_from: str
    line: Line


README_ROWS = (
    Shown("untrained", "nothing: random weights", Line("untrained")),
    Shown("InfoNCE", "finds the other clip of its video among those of others", Line("infonce")),
    Shown(
        "UberNCE",
        "the same, with a slow copy and a queue; labels choose the positives",
        Line("ubernce"),
    ),
    Shown(
        "CoCLR",
        "slow copy and queue, too; a network on differences chooses the positives",
        Line("coclr"),
    ),
    Shown("CMC", "must match its own differences, in the same network", Line("cmc")),
    Shown("IIC", "the same, and clips broken in time are negatives", Line("iic")),
    Shown(
        "InfoNCE, on differences",
        "as InfoNCE, but sees differences of frames alone",
        Line("infonce", "residual"),
    ),
)

# the README has each of these differences with its interval
README_DIFFERENCES = (
    (Line("infonce"), Line("untrained")),
    (Line("infonce", budget=4), Line("untrained")),
    (Line("iic"), Line("cmc")),
    (Line("cmc"), Line("bank")),
    (Line("bank, shuffled"), Line("bank")),
    (Line("iic, patches"), Line("iic")),
    (Line("iic", budget=2), Line("cmc", budget=2)),
    (Line("iic", budget=4), Line("cmc", budget=4)),
    (Line("coclr"), Line("queue")),
    (Line("coclr", budget=2), Line("queue", budget=2)),
    (Line("coclr, own key kept"), Line("queue")),
    (Line("itself"), Line("queue")),
    (Line("untrained differences"), Line("coclr")),
    (Line("coclr", budget=2), Line("untrained differences", budget=2)),
    (Line("iic", world="both"), Line("infonce", world="both")),
    (Line("iic", world="both"), Line("infonce", DIFFERENCES, world="both")),
)


def read_results(file: Path) -> Results:
    "The file of the one experiment."
    if not file.is_file():
        stop(f"{file}: there is no such file; benchmarks/experiment.py --out {file} makes it")
    read: Results = json.loads(file.read_text(encoding="utf-8"))
    return read


def percents(
    results: Results,
    line: Line,
    metric: str = "r1",
) -> list[float]:  # of the seeds in order; none where it was not run
    "The numbers of a line."
    found = seeds_of(results["records"], line, metric)
    return [100 * found[seed] for seed in sorted(found)]


def readme_table(results: Results) -> str:  # Markdown
    "Medians of the seeds, and R@1 of each of them from the lowest to the highest."
    lines = [
        "| encoder | learns from | scene, % | motion, % | R@1, % | R@1 of each seed |",
        "| :-- | :-- | --: | --: | --: | :-- |",
    ]
    for row in README_ROWS:
        numbers = {m: percents(results, row.line, m) for m in ("scene", "motion", "r1")}
        medians = " | ".join(f"{statistics.median(values):.0f}" for values in numbers.values())
        each = " ".join(f"{x:.0f}" for x in sorted(numbers["r1"]))
        lines.append(f"| {row.name} | {row.learns_from} | {medians} | {each} |")
    return "\n".join(lines)


def currencies(results: Results) -> str:
    "What the trained rows of the table have taken, helpers included."
    parts = []
    for row in README_ROWS:
        records = [
            r
            for r in results["records"]
            if (r["row"], r["view"], r["budget"], r["world"])
            == (row.line.row, row.line.view, row.line.budget, row.line.world)
        ]
        whole = [r["whole"] for r in records if "whole" in r]
        if whole:
            steps = round(statistics.median(w["steps"] for w in whole))
            clips = round(statistics.median(w["gradient"] for w in whole))
            seconds = statistics.median(w["cpu_seconds"] for w in whole)
            parts.append(f"{row.name} {steps:,} steps, {clips:,} clips, {seconds:.0f} s")
    return "; ".join(parts)


def signed(points: float) -> str:  # with the sign of typography
    return f"{points:.1f}".replace("-", "−")


def difference(
    results: Results,
    a: Line,
    b: Line,
) -> str:  # '40.0 points (29.2 to 49.4)'
    "R@1 of a minus that of b: the mean over the seeds, paired, and its interval."
    paired = [100 * d for d in differences_of(results["records"], Comparison("", a, b))]
    low, high = interval(paired)
    return f"{signed(statistics.fmean(paired))} points ({signed(low)} to {signed(high)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--results", type=Path, default=Path("results/experiment.json"))
    a = parser.parse_args()
    results = read_results(a.results)
    print(readme_table(results), currencies(results), sep="\n\n", end="\n\n")
    for a, b in README_DIFFERENCES:
        print(f"{a} - {b}: {difference(results, a, b)}")


if __name__ == "__main__":
    main()
