"""Write what the benchmarks of the toy say into the ledger of claims, `claims.json`, beside their
results.

    python benchmarks/claims.py

reads `results/` and writes the whole ledger anew: numbers over seeds, the premise of each claim as
it was measured, how many videos and clips the compared runs saw, and how many seeds it would take
to see what the paper prints. A benchmark whose file is not there leaves its claims out. The
verdicts are not written: they follow from the numbers (`vssl_nb.papers.published`). The sentences
below are for the verdicts that were met; where numbers change a verdict, its sentence says that
nobody has looked at it yet.

All files are of seeds that chose no setting (`results/README.md`). A benchmark that was run after
its premise, its world and its seeds were written down names the commit that has them in `rule`."""

import bisect
import json
import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import measurement
import numpy as np
from scipy.special import chdtri, nctdtr, stdtrit

from vssl_nb.papers.published import (
    CLAIMS,
    LEDGER,
    Claim,
    judge_links,
    ledger_count,
    ledger_text,
    verdict,
)
from vssl_nb.training.run_folder import write_json

STAGES = (1, 3, 5, 7)
BATCH, VIDEOS = 32, 720  # of the toy recipes; training videos of the toy
LEAST_SEEDS, MOST_SEEDS = 8, 64
# Power of a plan, so that four planned links of five are found: links whose pilot shows too small a
# spread by luck are planned sooner than others, and have less.
POWER = 0.9
NOBODY = "Nobody has looked at this verdict yet."
# claim -> the verdict that was met, and why
WHY: dict[int, tuple[str, str]] = {
    1: (
        "supported",
        "InfoNCE can tell the videos apart by their looks, which do not show the class here; the "
        "positives of labels have other looks.",
    ),
    2: (
        "supported",
        "In the mean CoCLR is even above UberNCE (43.0 and 36.6): differences show no background. "
        "An encoder on them learns the motions earlier than one on frames, and chooses the "
        "positives.",
    ),
    3: (
        "contradicted",
        "Ahead of frames on every seed, behind motion on every seed. Both streams count alike in "
        "the sum, and frames alone are right on 8 % of the test videos, motion alone on 40 %.",
    ),
    4: (
        "open",
        "From frames that CoCLR has taught (R@1 39 %), three stages are ahead of one on seven "
        "seeds of eight, and seven stages behind it on six. From frames of InfoNCE, which are "
        "hardly above chance, five and seven stages collapse on two seeds of three.",
    ),
    5: (
        "open",
        "Seeds disagree; from frames of InfoNCE one of three collapses with 0.5.",
    ),
    6: (
        "open",
        "Seeds disagree; both stay about fifty points below IIC without a miner.",
    ),
    7: (
        "contradicted",
        "From frames with R@1 39 %, more stages mine worse, from five on on every seed. From "
        "frames with R@1 78 % (three seeds) precision rose to five stages on every seed.",
    ),
    8: (
        "supported",
        "The frames learn while the cascade mines with them, too; one stage mines with the frozen "
        "differences only.",
    ),
    9: (
        "open",
        "A fifth of the mined rows is right, and IIC with them is lower on every seed.",
    ),
    10: (
        "open",
        "Lower on four seeds of eight, higher on one. With 32 classes both end near chance (R@1 8 "
        "and 5 %, chance 3 %), so that little was learned that could be compared.",
    ),
    11: (
        "open",
        "At equal clips all rungs end near chance, 14 to 18 %, at this budget. Own negatives take "
        "the nearest video of the scene from 95 to 78 % of the conflicts in the mean, and seeds "
        "disagree.",
    ),
    12: (
        "open",
        "In a world without colours all three stay near chance at this budget: nothing was learned"
        " that could be compared.",
    ),
    13: (
        "open",
        "With four directions as classes (cw or ccw, two ways to spin) all three stay near chance,"
        " 25 %, at this budget: nothing was learned that could be compared.",
    ),
    14: (
        "open",
        "Seeds differ by less than three points: of 124 negatives beta picks one or six.",
    ),
    15: (
        "open",
        "The looks mislead in this world, so a task about looks cannot help; it takes its epochs "
        "from the others.",
    ),
    16: (
        "open",
        "With the appearance task the own negatives end nearer: the looks they share came first.",
    ),
    17: (
        "supported",
        "MoQuad loses 23 points of the classes by background (96 to 73 %). Of the classes by "
        "motion it gains none: both are right on a quarter of these four, as by guessing.",
    ),
    18: (
        "open",
        "No map of the network `tiny` lies on what moves more than its area does, trained or "
        "random: its last map has few places, and each sees most of the clip.",
    ),
    19: (
        "open",
        "The largest beta costs 15 to 29 points. Between 1e-5 and 1e-4 seeds disagree.",
    ),
    20: (
        "supported",
        "Ahead on seven seeds of eight. With five samples ten pairs a video are mined in the mean,"
        " and 17 % of them are right; with ten samples four, and 49 %.",
    ),
    21: (
        "supported",
        "A second clip is worth 15 to 28 points: without it, samples of one clip are the "
        "positives. A batch of 8 in place of 32 costs on six seeds of eight; its interval nearly "
        "includes zero.",
    ),
    22: (
        "open",
        "Two of five mined pairs are right, and seeds disagree on what they are worth.",
    ),
    23: (
        "contradicted",
        "Lower on six seeds of eight, higher on one: the samples scatter alike for all videos and "
        "add noise to the means.",
    ),
    24: (
        "supported",
        "The surest fifth is ahead on seven seeds of eight. Spoiled videos are the exception: the "
        "variance ranks them as the more certain ones (AUROC .14 to .27).",
    ),
    25: (
        "open",
        "Seeds disagree: mixing moves the variance by less than the seeds differ.",
    ),
    26: (
        "contradicted",
        "A masked video is more certain on every seed.",
    ),
    27: (
        "open",
        "Ahead by five to ten points on four seeds of eight, by less than one or behind on four.",
    ),
    28: (
        "supported",
        "Without broken clips the frames stay near chance; with them R@1 is far above it.",
    ),
}

Row = dict[str, Any]
Numbers = dict[str, list[float]]  # name in the chain of a claim -> one number of each seed
Premise = list[float] | float | None  # one number of each seed, the same for all, not measured


def why(number: int, outcome: str) -> str:
    "The sentence on a verdict."
    met, sentence = WHY[number]
    return sentence if outcome == met else NOBODY


# ---- how many seeds it takes


def seeds_needed(
    gain: float,  # if it is true
    spread: float,  # of the differences of a pilot
    pilot: int,  # its seeds
) -> int | None:  # at least LEAST_SEEDS; None: more than MOST_SEEDS
    """Seeds with which a 95 % interval leaves zero out in nine cases of ten.

    Few seeds tell a spread badly, so the power is averaged over the spreads that it may come from.
    """
    quantiles = (np.arange(64) + 0.5) / 64
    spreads = spread * np.sqrt((pilot - 1) / chdtri(pilot - 1, quantiles)) + 1e-9

    def power(n: int) -> float:
        distance = np.minimum(gain * math.sqrt(n) / spreads, 30)
        return 1 - nctdtr(n - 1, distance, stdtrit(n - 1, 0.975)).mean()

    counts = range(LEAST_SEEDS, MOST_SEEDS + 1)
    n = LEAST_SEEDS + bisect.bisect_left(counts, POWER, key=power)
    return n if n <= MOST_SEEDS else None


def planned(claim: Claim, numbers: Numbers) -> list[int | None]:
    "Seeds for each link; None: the paper prints no gain, or it takes more than MOST_SEEDS."
    pilot = len(next(iter(numbers.values())))
    counts = []
    for a, b, gain in claim.links:
        spread = statistics.stdev(y - x for x, y in zip(numbers[a], numbers[b]))
        counts.append(gain and seeds_needed(gain, spread, pilot))
    return counts


# ---- the row of a claim


@dataclass(frozen=True)
class Seen:
    "What the compared runs saw."

    videos: list[int]
    clips: list[int]

    @classmethod
    def of_clips(cls, clips: list[int], of_a_video: int = 2) -> "Seen":
        return cls([n // of_a_video for n in clips], clips)

    @classmethod
    def of_videos(cls, videos: list[int]) -> "Seen":
        return cls(videos, [2 * n for n in videos])

    def __str__(self) -> str:
        parts = []
        for kind, counts in (("videos", self.videos), ("clips", self.clips)):
            least, most = min(counts), max(counts)
            is_equal = least == most
            parts.append(
                f"equal {kind} ({least:,})" if is_equal else f"{kind} from {least:,} to {most:,}"
            )
        return ", ".join(parts)


@dataclass(frozen=True)
class Outcome:
    "What a benchmark measured for a claim."

    numbers: Numbers
    premise: Premise
    seen: Seen
    equal_clips: Numbers | None = None  # of runs with as many clips, where the others have not
    doses: list[tuple[Premise, Numbers]] = field(
        default_factory=list
    )  # other levels of the premise

    def row(self) -> Row:
        others = []
        if self.equal_clips:
            others.append(["equal clips", mean(self.premise), rounded(self.equal_clips)])
        for premise, numbers in self.doses:
            level = mean(premise)
            others.append([f"premise {level:.3g}", level, rounded(numbers)])
        budget = str(self.seen)
        if not self.equal_clips and min(self.seen.clips) != max(self.seen.clips):
            budget += ", not run at equal clips"
        return {
            "numbers": rounded(self.numbers),
            "premise": mean(self.premise),
            "budget": budget,
            "others": others,
        }


def mean(premise: Premise) -> float | None:
    if premise is None:
        return None
    return round(statistics.mean(premise) if isinstance(premise, list) else premise, 3)


def rounded(numbers: Numbers) -> Numbers:
    return {name: [round(x, 3) for x in values] for name, values in numbers.items()}


def r1(row: Row) -> float:
    return row["r1"]


class Runs:
    "The rows of a benchmark, by seed and by name."

    def __init__(
        self,
        results: Row,
        *columns: str,  # that name a row
    ):
        self.seeds = results["seeds"]
        self.rows: list[dict[Any, Row]] = []
        for seed in self.seeds:
            named = {tuple(row[c] for c in columns): row for row in seed["rows"]}
            if len(columns) == 1:
                named = {name: row for (name,), row in named.items()}
            self.rows.append(named)

    def of(self, name: Any) -> list[Row]:
        "One row of each seed."
        return [rows[name] for rows in self.rows]

    def first(self, name: Any) -> Row:
        "Of the first seed: steps and clips are those of all."
        return self.rows[0][name]

    def percent(self, name: Any, number: Callable[[Row], float] = r1) -> list[float]:
        return [100 * number(row) for row in self.of(name)]

    def have(self, names: Iterable[Any]) -> bool:
        "Are these runs there, for every seed?"
        return all(name in rows for name in names for rows in self.rows)


Outcomes = dict[int, Outcome]  # number of a claim ->


def halfway(low: list[float], high: list[float]) -> list[float]:
    return [(a + b) / 2 for a, b in zip(low, high)]


def gain(before: list[float], after: list[float]) -> list[float]:
    return [b - a for a, b in zip(before, after)]


# ---- the claims of each benchmark


def of_story(results: Row) -> Outcomes:
    "Claims 1 to 3: runs on frames that make the same number of steps from the same weights."
    runs = Runs(results, "name", "view")
    infonce = runs.percent(("infonce-toy-rgb-longer", "rgb"))
    uber = runs.percent(("ubernce-toy-rgb", "rgb"))
    coclr, differences = ("coclr-toy-rgb-cycle1", "rgb"), ("coclr-toy-residual-cycle1", "residual")
    frames, motion = runs.percent(coclr), runs.percent(differences)
    own = runs.percent(("infonce-toy-rgb", "rgb"))
    other = runs.percent(("infonce-toy-residual", "residual"))
    steps = [runs.first(name)["step"] for name in (coclr, differences)]
    one = Seen.of_videos([BATCH * steps[0]])
    two = Seen.of_videos([BATCH * n for n in (*steps, sum(steps))])
    both = runs.percent(("coclr-toy-rgb-cycle1", "rgb+residual"))
    return {
        1: Outcome({"InfoNCE": infonce, "UberNCE": uber}, runs.percent(("chance", "")), one),
        2: Outcome(
            {"InfoNCE": infonce, "CoCLR": frames, "halfway to UberNCE": halfway(infonce, uber)},
            gain(own, other),
            one,
        ),
        3: Outcome({"frames": frames, "motion": motion, "both streams": both}, None, two),
    }


def fifth_of_epochs(
    row: Row,
    last: bool,  # or the first
) -> float:
    "Mining precision, %, of the epochs in which something was mined."
    pmr = [x for x in row["pmr_by_epoch"] if x is not None]
    n = max(len(pmr) // 5, 1)
    return 100 * statistics.mean(pmr[-n:] if last else pmr[:n])


def rise(row: Row) -> float:
    "Of mining precision, in points."
    return fifth_of_epochs(row, True) - fifth_of_epochs(row, False)


def of_cascade(results: Row) -> Outcomes:
    """Claims 4, 5, 7, 8 and 10. The second cycle begins with frames that CoCLR has taught:
    stages are compared there, and the first cycle, from frames of InfoNCE, is the lower level of
    the dose."""
    runs = Runs(results, "run")

    def name(s: int, cycle: int) -> str:
        return f"s={s}, r=0.6, cycle 2" if cycle == 2 else f"s={s}, r=0.6"

    def stages(number: Callable[[Row], float], cycle: int) -> Numbers:
        return {f"s={s}": runs.percent(name(s, cycle), number) for s in STAGES}

    def over_training(cycle: int) -> Numbers:
        coclr, cpr = runs.of(name(1, cycle)), runs.of(name(3, cycle))
        return {
            "CPR, first epochs": [fifth_of_epochs(row, False) for row in cpr],
            "CPR, last epochs": [fifth_of_epochs(row, True) for row in cpr],
            "rise of CoCLR": [rise(row) for row in coclr],
            "rise of CPR": [rise(row) for row in cpr],
        }

    def pmr(row: Row) -> float:
        return row["mined"]

    def cmr(row: Row) -> float:
        return row["of_five"]["cmr"]

    # the start of either cycle
    frames, taught = runs.percent("infonce, rgb"), runs.percent(name(1, 1))
    first, second = (
        gain(start, runs.percent(name(3, cycle))) for cycle, start in ((1, frames), (2, taught))
    )
    steps = [row["steps"] for row in runs.rows[0].values() if row.get("steps")]
    seen = Seen.of_videos([BATCH * n for n in steps])
    ratios = {f"r={r}": runs.percent(f"s=3, r={r}") for r in (0.8, 0.5)}
    recall = {"CoCLR": runs.percent(name(1, 1), cmr), "CPR": runs.percent(name(3, 1), cmr)}
    return {
        4: Outcome(stages(r1, 2), taught, seen, doses=[(frames, stages(r1, 1))]),
        5: Outcome(ratios, frames, seen),
        7: Outcome(stages(pmr, 2), taught, seen, doses=[(frames, stages(pmr, 1))]),
        8: Outcome(over_training(1), first, seen, doses=[(second, over_training(2))]),
        10: Outcome(recall, recall["CoCLR"], seen),
    }


def of_iic(results: Row) -> Outcomes:
    "Claims 6, 9 and 28. A broken clip is one more that goes through the network."
    runs = Runs(results, "name")

    def frames(name: str) -> list[float]:
        return runs.percent(name, lambda row: row["r1"]["rgb"])

    mined = runs.percent("cascade, 1 to 5", lambda row: row["mined"])
    videos = BATCH * runs.first("iic")["steps"]
    two_clips = Seen.of_videos([videos])
    growing = frames("cascade, 1 to 5")
    return {
        6: Outcome(
            {"fixed k": frames("cascade, 5"), "k grows by cycle": growing}, mined, two_clips
        ),
        9: Outcome({"IIC": frames("iic"), "IIC+CPR": growing}, mined, two_clips),
        28: Outcome(
            {"no broken clips": frames("not broken"), "broken clips": frames("iic")},
            frames("histogram"),
            Seen([videos], [videos, 2 * videos]),
        ),
    }


# what several parts of the benchmark share
FULL, MINED, WARM = "+AD-Intra-Neg", "alpha 1.5", "20 %"
# claim -> name in its chain -> run of benchmarks/moquad.py
MOQUAD: dict[int, dict[str, str]] = {
    11: {name: name for name in ("SimCLR", "+AD-Pos", "+Intra-Neg", FULL)},
    12: {"BE": "BE", "RAD intra": "RAD intra", "RAD inter": FULL},
    13: {"shuffle": "shuffle", "reverse": "reverse", "speed": FULL},
    14: {
        "no mining": FULL,
        "alpha 1.5": MINED,
        "alpha 3": "alpha 3",
        "beta 0.05": "beta 0.05",
        "beta 0.01": MINED,
    },
    15: {"0 %": MINED, "20 %": WARM, "40 %": "40 %", "60 %": "60 %"},
    16: {"without warm-up": MINED, "with warm-up": WARM},
}


def late_rank(row: Row) -> float:
    "A share of the candidates, 0: the nearest; of the last fifth of the epochs."
    ranks = row["rank_n"]
    return statistics.mean(ranks[-max(len(ranks) // 5, 1) :])


def at_equal_clips(runs: Runs, names: dict[str, str]) -> Numbers | None:
    "The lower rungs again, with as many clips as the full quadruple; None: they were not run."
    longer = {}
    for name, run in names.items():
        equal = f"{run}, equal clips"
        longer[name] = equal if equal in runs.rows[0] else run
    if longer == names or not runs.have(longer.values()):
        return None
    return {name: runs.percent(run) for name, run in longer.items()}


def premises_of_moquad(results: Row, beside: Row) -> dict[int, Premise]:
    untrained = [
        8 * row["r1"]
        for seed in beside["seeds"]
        if seed["method"] == "moquad"
        for row in seed["rows"]
        if row["name"] == "random"
    ]
    histogram = [100 * seed["beside"]["histogram"] for seed in results["seeds"]]
    return {
        13: untrained,
        14: [100 * seed["beside"]["chance"] for seed in results["seeds"]],
        15: histogram,
        16: histogram,
    }


def of_moquad(results: Row, beside: Row) -> Outcomes:
    "Claims 11 to 16: those whose runs are there for every seed."
    runs = Runs(results, "run")
    premises = premises_of_moquad(results, beside)
    outcomes = {}
    for claim, names in MOQUAD.items():
        if not runs.have(names.values()):
            continue
        number = late_rank if claim == 16 else r1
        first = [runs.first(run) for run in names.values()]
        seen = Seen([BATCH * row["steps"] for row in first], [row["clips_seen"] for row in first])
        outcomes[claim] = Outcome(
            {name: runs.percent(run, number) for name, run in names.items()},
            premises.get(claim),
            seen,
            at_equal_clips(runs, names) if claim == 11 else None,
        )
    return outcomes


def of_looking(results: Row, moquad: Row) -> Outcomes:
    "Claims 17 (where both groups have classes on every seed) and 18."
    seeds, compared = results["seeds"], ("SimCLR", "MoQuad")
    runs = Runs(moquad, "run")
    first = [runs.first(results["runs"][name]) for name in compared]
    seen = Seen([BATCH * row["steps"] for row in first], [row["clips_seen"] for row in first])
    focus = {name: [100 * s["focus"][name]["on_motion"] for s in seeds] for name in compared}
    at_most = [100 * s["focus"]["MoQuad"]["at_most"] for s in seeds]
    outcomes = {18: Outcome(focus, at_most, seen)}
    if all({"motion", "appearance"} <= set(s["gain"]) for s in seeds):
        gains = {
            f"{group} classes": [100 * s["gain"][group] for s in seeds]
            for group in ("appearance", "motion")
        }
        still = [[*s["groups"].values()].count("appearance") for s in seeds]
        outcomes[17] = Outcome(gains, still, seen)
    return outcomes


PROVICO: dict[int, dict[str, str]] = {  # as MOQUAD, of benchmarks/provico.py
    20: {"K=5": "K=5", "K=10": "with mining"},
    21: {
        "N=1": "N=1",
        "N=2": "with mining",
        "small batch": "small batch",
        "large batch": "with mining",
    },
    22: {"without mining": "without mining", "with mining": "with mining"},
}
EPOCHS, DIM, SMALL = 12, 64, 8  # of provico-toy; the small batch


def videos_of_provico(run: str) -> int:
    batch = SMALL if run == "small batch" else BATCH
    return EPOCHS * (VIDEOS // batch) * batch


def clips_of_provico(run: str) -> int:
    return videos_of_provico(run) * (1 if run == "N=1" else 2)


def uncertainty(
    rows: list[Row],  # of a ProViCo
    bins: str,  # the column of accuracy by uncertainty, the surest first
    masked: Callable[[Row], float],
) -> dict[int, Numbers]:
    "What claims 23 to 26 compare."
    return {
        23: {
            "cosine": [100 * row["cosine"] for row in rows],
            "match probability": [100 * row["match"] for row in rows],
        },
        24: {
            "most uncertain": [100 * row[bins][-1] for row in rows],
            "most certain": [100 * row[bins][0] for row in rows],
        },
        25: {
            "one video": [row["mixed"]["1"] for row in rows],
            "two videos mixed": [row["mixed"]["2"] for row in rows],
        },
        26: {
            "whole": [row["masked"]["0.0"] for row in rows],
            "masked": [masked(row) for row in rows],
        },
    }


def mean_masked(row: Row) -> float:
    return statistics.mean(v for share, v in row["masked"].items() if float(share) > 0)


def half_masked(row: Row) -> float:
    return row["masked"]["0.5"]


def of_provico(results: Row) -> Outcomes:
    "Claims 20 to 26: those whose runs are there for every seed."
    runs = Runs(results, "run")
    base = runs.of("with mining")
    premises: dict[int, Any] = {
        20: 90,  # K(K-1) of K*K, K = 10
        21: BATCH * results["seeds"][0]["beside"]["chance"],
        22: [row.get("mined") for row in base],
    }
    outcomes = {}
    for claim, names in PROVICO.items():
        if runs.have(names.values()):
            outcomes[claim] = Outcome(
                {name: runs.percent(run) for name, run in names.items()},
                premises[claim],
                Seen(
                    [videos_of_provico(run) for run in names.values()],
                    [clips_of_provico(run) for run in names.values()],
                ),
            )
    seen = Seen.of_videos([videos_of_provico("with mining")])
    for claim, numbers in uncertainty(base, "bins", mean_masked).items():
        outcomes[claim] = Outcome(numbers, 0, seen)  # no training clip is spoiled
    return outcomes


def of_distances(*results: Row) -> Outcomes:
    "Claim 27: at the first look after mining has begun, .15 of the epochs in `distances.py`."

    def early(seed: Row, name: str) -> Row:
        return next(
            row
            for row in seed["curves"]
            if row["distance"] == name.lower() and row["epoch"] >= 0.15 * seed["epochs"]
        )

    names = ("Euclidean", "Bhattacharyya")
    precision = {
        name: [100 * (early(s, name)["precision"] or 0) for s in results] for name in names
    }
    mined = [min(early(s, name)["mined"] for name in names) for s in results]
    seen = Seen.of_videos([s["videos"] // BATCH * BATCH * s["epochs"] for s in results])
    return {27: Outcome(precision, mined, seen)}


VIEWS = {"rgb": "frames", "residual": "differences"}
# name in the chain of claim 11 -> run of benchmarks/conflict.py
RUNGS = {
    name: f"MoQuad rung {i}" for i, name in enumerate(("SimCLR", "+AD-Pos", "+Intra-Neg", FULL))
}


def of_conflict(results: Row) -> Outcomes:
    """Claims 1, 2, 3 and 11, at equal clips; the premise of 11 is what SimCLR, the lowest rung,
    goes by.
    """
    runs = Runs(results, "run", "view")

    def key(name: str, view: str = "rgb") -> tuple[str, str]:
        return f"{name}, {VIEWS[view]}", view

    def clips(name: str, view: str = "rgb") -> int:
        return runs.first(key(name, view))["clips"]

    infonce, uber = runs.percent(key("InfoNCE")), runs.percent(key("UberNCE"))
    coclr = runs.percent(key("CoCLR"))
    differences = runs.percent(key("InfoNCE", "residual"))
    seen = Seen.of_clips([clips("InfoNCE")])
    outcomes = {
        1: Outcome({"InfoNCE": infonce, "UberNCE": uber}, 100 / 8, seen),
        2: Outcome(
            {"InfoNCE": infonce, "CoCLR": coclr, "halfway to UberNCE": halfway(infonce, uber)},
            gain(infonce, differences),
            seen,
        ),
    }
    if all("streams" in seed for seed in runs.seeds):

        def streams(name: str) -> list[float]:
            return [100 * seed["streams"][name] for seed in runs.seeds]

        each = [clips("CoCLR", view) for view in VIEWS]
        outcomes[3] = Outcome(
            {
                "frames": streams("rgb"),
                "motion": streams("residual"),
                "both streams": streams("both"),
            },
            streams("only_one"),
            Seen.of_clips([*each, sum(each)]),
        )
    if runs.have(key(run) for run in RUNGS.values()):
        by_rung = [clips(run) for run in RUNGS.values()]
        of_a_video = (2, 2, 3, 4)
        outcomes[11] = Outcome(
            {name: runs.percent(key(run)) for name, run in RUNGS.items()},
            runs.percent(key("MoQuad rung 0"), lambda row: row["conflict"]["scene"][0]),
            Seen([n // clips for n, clips in zip(by_rung, of_a_video)], by_rung),
        )
    return outcomes


# ---- the claims of the worlds


class World:
    "The results of an experiment of `benchmarks/worlds.py`."

    def __init__(self, results: Row):
        self.runs = Runs(results, "run")
        self.seeds = results["seeds"]

    def clips(self, names: Iterable[str]) -> list[int]:
        return [self.runs.first(name)["clips"] for name in names]

    def premise(self, name: str) -> list[float]:
        return [100 * seed["premise"][name] for seed in self.seeds]

    def compare(
        self,
        names: dict[str, str],  # name in the chain -> run
        premise: Premise,
        of_a_video: int = 2,  # clips
        number: Callable[[Row], float] = r1,
    ) -> Outcome:
        "Runs by one of their numbers."
        return Outcome(
            {name: self.runs.percent(run, number) for name, run in names.items()},
            premise,
            Seen.of_clips(self.clips(names.values()), of_a_video),
        )


def same(*names: str) -> dict[str, str]:
    "Names in a chain that are names of runs."
    return {name: name for name in names}


def of_letter(world: World) -> Outcomes:
    base = "beta 1e-4"
    one, *others = world.clips(("N=1", "small batch", base))
    percent = world.runs.percent
    mined = [seed["premise"]["one pair a video, mined"] for seed in world.seeds]
    return {
        19: world.compare(same("beta 1e-1", base, "beta 1e-5"), 1e-1 * DIM),
        20: world.compare({"K=5": "all pairs, K=5", "K=10": "all pairs"}, 100),
        21: Outcome(
            {
                "N=1": percent("N=1"),
                "N=2": percent(base),
                "small batch": percent("small batch"),
                "large batch": percent(base),
            },
            BATCH / 8,
            Seen([one, *(n // 2 for n in others)], [one, *others]),
        ),
        22: world.compare(
            {"without mining": "without mining", "with mining": "one pair a video"}, mined
        ),
    }


def of_spoiled(world: World, *doses: World) -> Outcomes:
    def numbers(at: World) -> dict[int, Numbers]:
        return uncertainty(at.runs.of("ProViCo"), "fifths", half_masked)

    def level(at: World) -> float:
        return at.seeds[0]["premise"]["spoiled"]

    seen = Seen.of_clips(world.clips(["ProViCo"]))
    outcomes = {}
    for claim, compared in numbers(world).items():
        further = [(level(dose), numbers(dose)[claim]) for dose in doses]
        outcomes[claim] = Outcome(compared, level(world), seen, doses=further)
    return outcomes


def of_texture(world: World) -> Outcomes:
    names = same("BE", "RAD intra", "RAD inter")
    return {12: world.compare(names, world.premise("colours, RAD intra"), 4)}


def of_directions(world: World) -> Outcomes:
    times_chance = [
        seed["premise"]["untrained, residual"] / seed["premise"]["chance"] for seed in world.seeds
    ]
    return {13: world.compare(same("shuffle", "reverse", "speed"), times_chance, 4)}


def of_looks(world: World) -> Outcomes:
    premise = world.premise("k grows by cycle, pmr")
    return {
        6: world.compare(same("fixed k", "k grows by cycle"), premise, 1),
        9: world.compare({"IIC": "IIC", "IIC+CPR": "k grows by cycle"}, premise, 1),
    }


def of_scenes(world: World) -> Outcomes:
    def is_scene(label: str) -> bool:
        return label.startswith("scene")

    def gain_of(rows: dict[str, Row], scenes: bool) -> float:
        before, after = rows["SimCLR"]["by_class"], rows["MoQuad"]["by_class"]
        return statistics.mean(after[c] - x for c, x in before.items() if is_scene(c) == scenes)

    labels = world.runs.first("SimCLR")["by_class"]
    return {
        17: Outcome(
            {
                "appearance classes": [100 * gain_of(rows, True) for rows in world.runs.rows],
                "motion classes": [100 * gain_of(rows, False) for rows in world.runs.rows],
            },
            sum(is_scene(label) for label in labels),
            Seen.of_clips(world.clips(("SimCLR", "MoQuad")), 4),
        )
    }


def of_shapes(world: World) -> Outcomes:
    def cmr(row: Row) -> float:
        return row["of_five"]["cmr"]

    names = {"CoCLR": "s=1", "CPR": "s=3"}
    return {10: world.compare(names, world.runs.percent("s=1", cmr), number=cmr)}


def of_stages(world: World) -> Outcomes:
    stages, taught = same(*(f"s={s}" for s in STAGES)), world.premise("taught, r1")
    return {
        4: world.compare(stages, taught),
        5: world.compare(same("r=0.8", "r=0.5"), taught),
        7: world.compare(stages, taught, number=lambda row: row["pmr"]),
    }


WORLDS: dict[str, Callable[..., Outcomes]] = {
    "letter": of_letter,
    "spoiled": of_spoiled,
    "texture": of_texture,
    "directions": of_directions,
    "scenes": of_scenes,
    "looks": of_looks,
    "stages": of_stages,
    "shapes": of_shapes,
}


def of_world(*results: Row) -> Outcomes:
    "The claims of an experiment; further files are the same at other doses."
    return WORLDS[results[0]["experiment"]](*map(World, results))


# ---- the ledger

# where a claim is in several, its row is that of the last, and the others stand in it as doses
SOURCES: tuple[tuple[Callable[..., Outcomes], tuple[str, ...]], ...] = (
    (of_story, ("story-toy-fresh",)),
    (of_cascade, ("cascade-toy",)),
    (of_iic, ("iic-toy",)),
    (of_moquad, ("moquad-toy", "beside-toy")),
    (of_looking, ("looking-toy", "moquad-toy")),
    (of_provico, ("provico-toy",)),
    (of_distances, tuple(f"distances-toy-{seed}" for seed in range(21, 29))),
    (of_conflict, ("conflict-toy",)),
    (of_world, ("world-letter",)),
    (of_world, ("world-spoiled", "world-spoiled-0", "world-spoiled-40")),
    *(
        (of_world, (f"world-{name}",))
        for name in ("texture", "directions", "scenes", "looks", "stages", "shapes")
    ),
)


def as_others(claim: Claim, row: Row) -> list[list]:
    "An earlier row of a claim, as far as it has the runs that the claim compares."
    title = f"{row['runs'][0].removesuffix('.json')}, {len(row['seeds'])} seeds"
    wanted = {name for link in claim.links for name in link[:2]}
    levels = [[title, row["premise"], row["numbers"]], *row["others"]]
    return [level for level in levels if wanted <= level[2].keys()]


def files_of(folder: Path, names: tuple[str, ...], is_world: bool) -> list[Path]:
    "The files of a benchmark; empty where one is missing. Doses of a world may wait."
    files = [folder / f"{name}.json" for name in names]
    if is_world:
        files = files[:1] + [file for file in files[1:] if file.is_file()]
    return files if all(file.is_file() for file in files) else []


def seeds_of(results: list[Row]) -> list[int]:
    of_files = [result["seed"] for result in results if "seed" in result]
    return of_files or [seed["seed"] for seed in results[0]["seeds"]]


def ledger_row(claim: Claim, row: Row, results: list[Row], files: list[Path]) -> Row:
    "A row, with where it is from and what it means."
    judge_links(claim, row["numbers"])
    first = results[0]
    return {
        "number": claim.number,
        "source": f"{claim.paper}, {claim.where}",
        "metric": claim.metric,
        "measure": claim.measure,
        "chain": claim.chain,
        **row,
        "planned": planned(claim, row["numbers"]),
        "seeds": seeds_of(results),
        "fresh": True,
        "rule": first.get("rule"),
        "why": why(claim.number, verdict(claim, row)[0]),
        "how": f"{first['what']} on the toy videos",
        "runs": [file.name for file in files],
        "measured": {"machine": first["machine"], "date": first["date"]},
    }


def write_ledger(folder: Path) -> dict[int, Row]:
    """Write `claims.json` of the results in a folder.

    ValueError where numbers do not fit their claim.
    """
    rows: dict[int, Row] = {}
    for outcomes_of, names in SOURCES:
        files = files_of(folder, names, outcomes_of is of_world)
        if not files:
            continue
        results = [json.loads(file.read_text()) for file in files]
        for number, outcome in outcomes_of(*results).items():
            claim, row = CLAIMS[number], outcome.row()
            if number in rows:
                row["others"] += as_others(claim, rows[number])
            rows[number] = ledger_row(claim, row, results, files)
    write_json(folder / "claims.json", [rows[number] for number in sorted(rows)])
    return rows


def main():
    p = measurement.parser(__doc__)
    p.add_argument("--results", type=Path, default=LEDGER.parent, help="folder of the results")
    a = p.parse_args()
    rows = write_ledger(a.results)
    out = a.results / "claims.json"
    print(ledger_text(out, sorted(rows)), ledger_count(out), sep="\n\n")


if __name__ == "__main__":
    main()
