"""What is compared in the one experiment, written down before its first result.

Each comparison is a difference between two lines of the table, paired by seed: the exact sign-flip
test (two-sided), and the interval of the same test (95 %, of Hartigan's means of subsets). Within a
family p is adjusted by Holm's rule, alike for both signs. With eight seeds the smallest p is 2/256,
so that a family has at most six comparisons; else none of it could be told. A verdict is *higher*,
*lower* or *open*; medians and all seeds stand beside it. What no family names is described, and
not judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

LEVEL = 0.05
FRAMES, DIFFERENCES = "rgb", "residual"


@dataclass(frozen=True)
class Line:
    "A line of the table."

    row: str
    view: str = FRAMES
    budget: int = 1
    world: str = "plain"

    def __str__(self) -> str:
        words = {FRAMES: "frames", DIFFERENCES: "differences"}[self.view]
        times = f", x{self.budget}" if self.budget > 1 else ""
        world = "" if self.world == "plain" else f", world {self.world}"
        return f"{self.row} ({words}{times}{world})"


@dataclass(frozen=True)
class Comparison:
    "Is the first line above the second?"

    statement: str  # a sentence that is right where the first is higher
    a: Line
    b: Line
    metric: str = "r1"  # 'r1', 'scene', 'motion' or 'probe'


def _rows(
    world: str,
    *pairs: tuple[str, str, str],  # statement, row, row
    budget: int = 1,
) -> tuple[Comparison, ...]:  # on frames
    return tuple(
        Comparison(statement, *(Line(row, budget=budget, world=world) for row in (a, b)))
        for statement, a, b in pairs
    )


def _on_differences(*pairs: tuple[str, str, str]) -> tuple[Comparison, ...]:
    return tuple(
        Comparison(statement, Line(a, DIFFERENCES), Line(b, DIFFERENCES))
        for statement, a, b in pairs
    )


FAMILIES: dict[str, tuple[Comparison, ...]] = {
    "what turns frames to the motion": (
        *_rows(
            "plain",
            ("a second view in the same network raises R@1", "cmc", "bank"),
            ("clips broken in time raise R@1 without a second view", "bank, shuffled", "bank"),
            ("clips broken in time raise R@1 beside a second view", "iic", "cmc"),
            ("broken in time is better than broken in space", "bank, shuffled", "bank, patches"),
        ),
        # with the standard budget labels, too, are just leaving the scene (seed 30)
        *_rows(
            "plain",
            ("positives that another view chooses raise R@1", "coclr", "queue"),
            ("another view chooses better than the network itself", "coclr", "itself"),
            budget=2,
        ),
    ),
    "labels and the other view": (
        *_rows(
            "plain",
            ("dropping the own key raises R@1", "ubernce, own key dropped", "ubernce"),
            ("the logarithm of a sum is above the mean of logarithms", "ubernce", "supcon"),
        ),
        *_rows(
            "plain",
            ("labels raise R@1", "ubernce", "queue"),
            ("labels are above the other view", "ubernce", "coclr"),
            (
                "a trained network chooses better than a random one",
                "coclr",
                "untrained differences",
            ),
            budget=2,
        ),
        *_rows(
            "plain",
            ("labels are above the other view, four times the budget", "ubernce", "coclr"),
            budget=4,
        ),
    ),
    "time and memory on frames": (
        Comparison(
            "InfoNCE follows the scene less often than random weights",
            Line("untrained"),
            Line("infonce"),
            "scene",
        ),
        Comparison(
            "four times the budget lets InfoNCE follow the scene less often",
            Line("infonce"),
            Line("infonce", budget=4),
            "scene",
        ),
        Comparison(
            "four times the budget raises R@1 of InfoNCE",
            Line("infonce", budget=4),
            Line("infonce"),
        ),
        *_rows(
            "plain",
            ("a slow copy raises R@1", "slow copy", "infonce"),
            ("a queue raises R@1", "queue", "slow copy"),
        ),
    ),
    "changes of a clip, on differences": _on_differences(
        ("augmentation raises R@1", "infonce", "no augmentation"),
        ("clips of different times raise R@1", "infonce", "same frames"),
        ("crops raise R@1", "infonce", "no crop"),
        ("colours raise R@1", "infonce", "no colour"),
    ),
    "without negatives, on differences": _on_differences(
        ("InfoNCE is above BYOL", "infonce", "byol"),
        ("InfoNCE is above LeJEPA", "infonce", "lejepa"),
    ),
    "both: motion and scene": (
        *_rows("both", ("CoCLR gives frames more than frames alone have", "coclr", "infonce")),
        *(
            Comparison(
                f"{name} gives frames more than differences alone have",
                Line(row, world="both"),
                Line("infonce", DIFFERENCES, world="both"),
            )
            for name, row in (("CoCLR", "coclr"), ("CMC", "cmc"), ("IIC", "iic"))
        ),
        Comparison(
            "both streams are above the better one",
            Line("coclr, both streams", world="both"),
            Line("coclr", world="both"),
        ),
    ),
}


# ---- the test


def sign_flip(
    differences: Sequence[float],  # of each seed
) -> float:  # two-sided p
    "The share of all choices of signs whose mean is as far from 0."
    d = np.asarray(differences, float)
    n = len(d)
    signs = 1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
    sums = abs(signs @ d)
    return float((sums >= abs(d.sum()) - 1e-12 * max(abs(d).sum(), 1e-12)).mean())


def interval(
    differences: Sequence[float],  # of each seed
) -> tuple[float, float]:  # infinite where there are too few seeds
    "95 % or more: the shifts that the test does not reject (means of all subsets, Hartigan 1969)."
    d = np.asarray(differences, float)
    n = len(d)
    chosen = (np.arange(1, 2**n)[:, None] >> np.arange(n)) & 1
    means = np.sort(chosen @ d / chosen.sum(1))
    k = int(LEVEL / 2 * 2**n)
    if k < 1:
        return -np.inf, np.inf
    return float(means[k - 1]), float(means[-k])


def holm(ps: Sequence[float]) -> list[float]:
    "Adjusted p of a family, in its order."
    order = np.argsort(ps, kind="stable")
    adjusted, highest = [0.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[i]))
        adjusted[i] = highest
    return adjusted


# ---- the verdicts


def seeds_of(
    records: Sequence[Mapping[str, Any]],  # of the results
    line: Line,
    metric: str,
) -> dict[int, float]:  # seed -> number
    "The numbers of a line."
    wanted = {"world": line.world, "row": line.row, "view": line.view, "budget": line.budget}
    return {
        record["seed"]: record[metric]
        for record in records
        if all(record[k] == value for k, value in wanted.items())
    }


def differences_of(
    records: Sequence[Mapping[str, Any]],
    comparison: Comparison,
) -> list[float]:  # of the seeds that both lines have
    a, b = (seeds_of(records, line, comparison.metric) for line in (comparison.a, comparison.b))
    return [a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())]


def judge(
    records: Sequence[Mapping[str, Any]],
    seeds: int,  # that a verdict takes
) -> list[dict[str, Any]]:  # one for each comparison, in the order of the families
    "All comparisons whose lines have all seeds; a family waits for its last one."
    judged = []
    for family, comparisons in FAMILIES.items():
        found = [differences_of(records, c) for c in comparisons]
        whole = all(len(d) == seeds for d in found)
        adjusted = holm([sign_flip(d) for d in found]) if whole else [None] * len(found)
        for c, d, p in zip(comparisons, found, adjusted):
            line = {"family": family, "statement": c.statement, "a": str(c.a), "b": str(c.b)}
            line |= {"metric": c.metric, "seeds": len(d), "p_holm": p, "verdict": "not run"}
            if len(d) == seeds:
                line |= {"mean": float(np.mean(d)), "median": float(np.median(d))}
                line |= {"interval": interval(d), "p": sign_flip(d)}
            if p is not None:
                sign = "higher" if np.mean(d) > 0 else "lower"
                line["verdict"] = sign if p <= LEVEL else "open"
            judged.append(line)
    assert all(len(comparisons) <= 6 for comparisons in FAMILIES.values())
    return judged


def names_unknown(rows: Sequence[str]) -> set[str]:
    "Rows that a comparison names and the table lacks."
    named = {line.row for cs in FAMILIES.values() for c in cs for line in (c.a, c.b)}
    return named - {*rows}
