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

import argparse
import bisect
import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path

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
from vssl_nb.training.checkpoints import write_whole

STAGES = (1, 3, 5, 7)
BATCH, VIDEOS = 32, 720  # of the toy recipes; training videos of the toy
LEAST_SEEDS, MOST_SEEDS = 8, 64
# Power of a plan, so that four planned links of five are found: links whose pilot shows too small a
# spread by
# luck are planned sooner than others, and have less.
POWER = 0.9
WHY: dict[tuple[int, str], str] = {
    (
        1,
        "supported",
    ): "InfoNCE can tell the videos apart by their looks, which do not show the class here; "
    "the positives of labels have other looks.",
    (
        2,
        "supported",
    ): "In the mean CoCLR is even above UberNCE (43.0 and 36.6): differences show no "
    "background. An encoder on them learns the motions earlier than one on frames, and chooses the "
    "positives.",
    (
        3,
        "contradicted",
    ): "Ahead of frames on every seed, behind motion on every seed. Both streams count "
    "alike in the sum, and frames alone are right on 8 % of the test videos, motion alone on 40 %.",
    (
        4,
        "open",
    ): "From frames that CoCLR has taught (R@1 39 %), three stages are ahead of one on seven seeds "
    "of eight, and seven stages behind it on six. From frames of InfoNCE, which are hardly above "
    "chance, five and seven stages collapse on two seeds of three.",
    (5, "open"): "Seeds disagree; from frames of InfoNCE one of three collapses with 0.5.",
    (6, "open"): "Seeds disagree; both stay about fifty points below IIC without a miner.",
    (
        7,
        "contradicted",
    ): "From frames with R@1 39 %, more stages mine worse, from five on on every seed. "
    "From frames with R@1 78 % (three seeds) precision rose to five stages on every seed.",
    (
        8,
        "supported",
    ): "The frames learn while the cascade mines with them, too; one stage mines with the "
    "frozen differences only.",
    (9, "open"): "A fifth of the mined rows is right, and IIC with them is lower on every seed.",
    (
        10,
        "open",
    ): "Lower on four seeds of eight, higher on one. With 32 classes both end near chance (R@1 8 "
    "and 5 %, chance 3 %), so that little was learned that could be compared.",
    (
        11,
        "open",
    ): "At equal clips all rungs end near chance, 14 to 18 %, at this budget. Own negatives take "
    "the nearest video of the scene from 95 to 78 % of the conflicts in the mean, and seeds "
    "disagree.",
    (
        12,
        "open",
    ): "In a world without colours all three stay near chance at this budget: nothing was learned "
    "that could be compared.",
    (
        13,
        "open",
    ): "With four directions as classes (cw or ccw, two ways to spin) all three stay near chance, "
    "25 %, at this budget: nothing was learned that could be compared.",
    (14, "open"): "Seeds differ by less than three points: of 124 negatives beta picks one or six.",
    (
        15,
        "open",
    ): "The looks mislead in this world, so a task about looks cannot help; it takes its "
    "epochs from the others.",
    (
        16,
        "open",
    ): "With the appearance task the own negatives end nearer: the looks they share came first.",
    (17, "supported"): "MoQuad loses 23 points of the classes by background (96 to 73 %). Of the "
    "classes by motion it gains none: both are right on a quarter of these four, as by guessing.",
    (
        18,
        "open",
    ): "No map of the network `tiny` lies on what moves more than its area does, trained or "
    "random: its last map has few places, and each sees most of the clip.",
    (19, "open"): "The largest beta costs 15 to 29 points. Between 1e-5 and 1e-4 seeds disagree.",
    (
        20,
        "supported",
    ): "Ahead on seven seeds of eight. With five samples ten pairs a video are mined in the "
    "mean, and 17 % of them are right; with ten samples four, and 49 %.",
    (
        21,
        "supported",
    ): "A second clip is worth 15 to 28 points: without it, samples of one clip are the "
    "positives. A batch of 8 in place of 32 costs on six seeds of eight; its interval nearly "
    "includes zero.",
    (22, "open"): "Two of five mined pairs are right, and seeds disagree on what they are worth.",
    (
        23,
        "contradicted",
    ): "Lower on six seeds of eight, higher on one: the samples scatter alike for all "
    "videos and add noise to the means.",
    (
        24,
        "supported",
    ): "The surest fifth is ahead on seven seeds of eight. Spoiled videos are the exception: "
    "the variance ranks them as the more certain ones (AUROC .14 to .27).",
    (25, "open"): "Seeds disagree: mixing moves the variance by less than the seeds differ.",
    (26, "contradicted"): "A masked video is more certain on every seed.",
    (
        27,
        "open",
    ): "Ahead by five to ten points on four seeds of eight, by less than one or behind on four.",
    (
        28,
        "supported",
    ): "Without broken clips the frames stay near chance; with them R@1 is far above it.",
}


def seeds_needed(gain: float, spread: float, pilot: int) -> int | None:
    """Seeds with which a 95 % interval leaves zero out in four cases of five, if the gain is true;
    at least LEAST_SEEDS, None: more than MOST_SEEDS. The spread is that of the differences of a
    pilot of so many seeds. Few seeds tell a spread badly, so the power is averaged over the spreads
    that it may come from."""
    spreads = spread * np.sqrt((pilot - 1) / chdtri(pilot - 1, (np.arange(64) + 0.5) / 64)) + 1e-9

    def power(n):
        return (
            1
            - nctdtr(
                n - 1, np.minimum(gain * math.sqrt(n) / spreads, 30), stdtrit(n - 1, 0.975)
            ).mean()
        )

    n = LEAST_SEEDS + bisect.bisect_left(range(LEAST_SEEDS, MOST_SEEDS + 1), POWER, key=power)
    return n if n <= MOST_SEEDS else None


def planned(claim: Claim, numbers: dict[str, list[float]]) -> list[int | None]:
    "Seeds for each link; None: the paper prints no gain, or it takes more than MOST_SEEDS."
    spreads = [
        statistics.stdev(y - x for x, y in zip(numbers[a], numbers[b])) for a, b, _ in claim.links
    ]
    pilot = len(next(iter(numbers.values())))
    return [
        gain and seeds_needed(gain, spread, pilot)
        for (_, _, gain), spread in zip(claim.links, spreads)
    ]


def row_of(numbers, premise, videos, clips, equal_clips=None, *doses) -> dict:
    """What a benchmark measured for a claim. The numbers are lists over the seeds; the premise is
    one, too, or the number itself, or None: not measured; videos and clips are what the compared
    runs saw of them; a dose is the premise at another level, and the numbers there."""

    def mean(x):
        return None if x is None else round(statistics.mean(x) if isinstance(x, list) else x, 3)

    def rounded(numbers):
        return {k: [round(x, 3) for x in v] for k, v in numbers.items()}

    budget = [
        f"equal {kind} ({min(x):,})"
        if min(x) == max(x)
        else f"{kind} from {min(x):,} to {max(x):,}"
        for kind, x in (("videos", videos), ("clips", clips))
    ]
    others = [("equal clips", premise, equal_clips)] if equal_clips else []
    others += [(f"premise {mean(dose[0]):.3g}", *dose) for dose in doses]
    if not equal_clips and min(clips) != max(clips):
        budget += ["not run at equal clips"]
    return {
        "numbers": rounded(numbers),
        "premise": mean(premise),
        "budget": ", ".join(budget),
        "others": [[where, mean(level), rounded(values)] for where, level, values in others],
    }


def by_name(
    found: dict,
    key: str,
) -> list[dict]:  # of each seed: name -> row
    return [{r[key]: r for r in seed["rows"]} for seed in found["seeds"]]


def of_story(found: dict) -> dict[int, dict]:
    "Claims 1 to 3: runs on frames that make the same number of steps from the same weights."
    rows = [{(r["name"], r["view"]): r for r in seed["rows"]} for seed in found["seeds"]]

    def each(name, view="rgb"):
        return [100 * r[name, view]["r1"] for r in rows]

    infonce, uber = each("infonce-toy-rgb-longer"), each("ubernce-toy-rgb")
    frames, motion = each("coclr-toy-rgb-cycle1"), each("coclr-toy-residual-cycle1", "residual")
    steps = [
        rows[0][name]["step"]
        for name in (("coclr-toy-rgb-cycle1", "rgb"), ("coclr-toy-residual-cycle1", "residual"))
    ]
    seen = [BATCH * steps[0]]
    both = [BATCH * n for n in (*steps, sum(steps))]
    first = zip(each("infonce-toy-rgb"), each("infonce-toy-residual", "residual"))
    return {
        1: row_of(
            {"InfoNCE": infonce, "UberNCE": uber},
            [100 * r["chance", ""]["r1"] for r in rows],
            seen,
            [2 * n for n in seen],
        ),
        2: row_of(
            {
                "InfoNCE": infonce,
                "CoCLR": frames,
                "halfway to UberNCE": [(a + b) / 2 for a, b in zip(infonce, uber)],
            },
            [other - own for own, other in first],
            seen,
            [2 * n for n in seen],
        ),
        3: row_of(
            {
                "frames": frames,
                "motion": motion,
                "both streams": each("coclr-toy-rgb-cycle1", "rgb+residual"),
            },
            None,
            both,
            [2 * n for n in both],
        ),
    }


def of_cascade(found: dict) -> dict[int, dict]:
    """Claims 4, 5, 7, 8 and 10. The second cycle begins with frames that CoCLR has taught:
    stages are compared there, and the first cycle, from frames of InfoNCE, is the lower level of
    the dose."""
    rows = by_name(found, "run")

    def each(run, get):
        return [get(r[run]) for r in rows]

    def r1(row):
        return 100 * row["r1"]

    def name(s, cycle):
        return f"s={s}, r=0.6" + ", cycle 2" * (cycle == 2)

    def stages(get, cycle):
        return {f"s={s}": each(name(s, cycle), get) for s in STAGES}

    def fifth(
        row,
        last,
    ):  # of the epochs in which something was mined
        pmr = [x for x in row["pmr_by_epoch"] if x is not None]
        n = max(len(pmr) // 5, 1)
        return 100 * statistics.mean(pmr[-n:] if last else pmr[:n])

    def rise(row):
        return fifth(row, True) - fifth(row, False)

    def over_training(cycle):
        cpr, coclr = name(3, cycle), name(1, cycle)
        return {
            "CPR, first epochs": each(cpr, lambda r: fifth(r, False)),
            "CPR, last epochs": each(cpr, lambda r: fifth(r, True)),
            "rise of CoCLR": each(coclr, rise),
            "rise of CPR": each(cpr, rise),
        }

    def cmr(row):
        return 100 * row["of_five"]["cmr"]

    # the start of either cycle
    frames, taught = each("infonce, rgb", r1), each(name(1, 1), r1)
    gain, again = (
        [b - a for a, b in zip(start, each(name(3, cycle), r1))]
        for cycle, start in ((1, frames), (2, taught))
    )
    seen = [BATCH * r["steps"] for r in rows[0].values() if r.get("steps")]
    clips = [2 * n for n in seen]
    return {
        4: row_of(stages(r1, 2), taught, seen, clips, None, (frames, stages(r1, 1))),
        5: row_of({f"r={r}": each(f"s=3, r={r}", r1) for r in (0.8, 0.5)}, frames, seen, clips),
        7: row_of(
            stages(lambda r: 100 * r["mined"], 2),
            taught,
            seen,
            clips,
            None,
            (frames, stages(lambda r: 100 * r["mined"], 1)),
        ),
        8: row_of(over_training(1), gain, seen, clips, None, (again, over_training(2))),
        10: row_of(
            {"CoCLR": each(name(1, 1), cmr), "CPR": each(name(3, 1), cmr)},
            each(name(1, 1), cmr),
            seen,
            clips,
        ),
    }


def of_iic(found: dict) -> dict[int, dict]:
    "Claims 6, 9 and 28. A broken clip is one more that goes through the network."
    rows = by_name(found, "name")

    def each(name):
        return [100 * r[name]["r1"]["rgb"] for r in rows]

    def mined(name):
        return [100 * r[name]["mined"] for r in rows]

    seen = [BATCH * rows[0]["iic"]["steps"]]
    return {
        6: row_of(
            {"fixed k": each("cascade, 5"), "k grows by cycle": each("cascade, 1 to 5")},
            mined("cascade, 1 to 5"),
            seen,
            [2 * n for n in seen],
        ),
        9: row_of(
            {"IIC": each("iic"), "IIC+CPR": each("cascade, 1 to 5")},
            mined("cascade, 1 to 5"),
            seen,
            [2 * n for n in seen],
        ),
        28: row_of(
            {"no broken clips": each("not broken"), "broken clips": each("iic")},
            each("histogram"),
            seen,
            [n for x in seen for n in (x, 2 * x)],
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


def of_moquad(found: dict, beside: dict) -> dict[int, dict]:
    "Claims 11 to 16: those whose runs are there for every seed."
    rows = by_name(found, "run")

    def late(
        row,
    ):  # a share of the candidates, 0: the nearest; of the last fifth of the epochs
        ranks = row["rank_n"]
        return 100 * statistics.mean(ranks[-max(len(ranks) // 5, 1) :])

    def each(names, get):
        return {name: [get(r[run]) for r in rows] for name, run in names.items()}

    def r1(row):
        return 100 * row["r1"]

    histogram = [100 * seed["beside"]["histogram"] for seed in found["seeds"]]
    untrained = [
        8 * r["r1"]
        for seed in beside["seeds"]
        if seed["method"] == "moquad"
        for r in seed["rows"]
        if r["name"] == "random"
    ]
    premise = {
        13: untrained,
        14: [100 * seed["beside"]["chance"] for seed in found["seeds"]],
        15: histogram,
        16: histogram,
    }

    def equal(
        names,
    ):  # the lower rungs again, with as many clips as the full quadruple
        runs = {
            name: run if f"{run}, equal clips" not in rows[0] else f"{run}, equal clips"
            for name, run in names.items()
        }
        return (
            each(runs, r1)
            if runs != names and all(run in r for r in rows for run in runs.values())
            else None
        )

    return {
        number: row_of(
            each(names, late if number == 16 else r1),
            premise.get(number),
            [BATCH * rows[0][run]["steps"] for run in names.values()],
            [rows[0][run]["clips_seen"] for run in names.values()],
            equal(names) if number == 11 else None,
        )
        for number, names in MOQUAD.items()
        if all(run in r for r in rows for run in names.values())
    }


def of_looking(found: dict, moquad: dict) -> dict[int, dict]:
    "Claims 17 (where both groups have classes on every seed) and 18."
    runs = by_name(moquad, "run")[0]
    compared = [runs[found["runs"][k]] for k in ("SimCLR", "MoQuad")]
    budget = dict(
        videos=[BATCH * r["steps"] for r in compared], clips=[r["clips_seen"] for r in compared]
    )
    focus = {
        k: [100 * s["focus"][k]["on_motion"] for s in found["seeds"]] for k in ("SimCLR", "MoQuad")
    }
    rows = {
        18: row_of(focus, [100 * s["focus"]["MoQuad"]["at_most"] for s in found["seeds"]], **budget)
    }
    if all({"motion", "appearance"} <= set(s["gain"]) for s in found["seeds"]):
        still = [[*s["groups"].values()].count("appearance") for s in found["seeds"]]
        rows[17] = row_of(
            {
                f"{k} classes": [100 * s["gain"][k] for s in found["seeds"]]
                for k in ("appearance", "motion")
            },
            still,
            **budget,
        )
    return rows


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


def of_provico(found: dict) -> dict[int, dict]:
    "Claims 20 to 26: those whose runs are there for every seed."
    rows = by_name(found, "run")

    def videos(run):
        batch = SMALL if run == "small batch" else BATCH
        return EPOCHS * (VIDEOS // batch) * batch

    premise = {
        20: 90,  # K(K-1) of K*K, K = 10
        21: BATCH * found["seeds"][0]["beside"]["chance"],
        22: [r["with mining"].get("mined") for r in rows],
    }
    told = {
        number: row_of(
            {name: [100 * r[run]["r1"] for r in rows] for name, run in names.items()},
            premise[number],
            [videos(run) for run in names.values()],
            [(2 - (run == "N=1")) * videos(run) for run in names.values()],
        )
        for number, names in PROVICO.items()
        if all(run in r for r in rows for run in names.values())
    }
    base = [r["with mining"] for r in rows]
    seen = videos("with mining")
    one = dict(premise=0, videos=[seen], clips=[2 * seen])  # no training clip is spoiled

    def masked(r):
        return statistics.mean(v for share, v in r["masked"].items() if float(share) > 0)

    return told | {
        23: row_of(
            {
                "cosine": [100 * r["cosine"] for r in base],
                "match probability": [100 * r["match"] for r in base],
            },
            **one,
        ),
        24: row_of(
            {
                "most uncertain": [100 * r["bins"][-1] for r in base],
                "most certain": [100 * r["bins"][0] for r in base],
            },
            **one,
        ),
        25: row_of(
            {
                "one video": [r["mixed"]["1"] for r in base],
                "two videos mixed": [r["mixed"]["2"] for r in base],
            },
            **one,
        ),
        26: row_of(
            {"whole": [r["masked"]["0.0"] for r in base], "masked": [masked(r) for r in base]},
            **one,
        ),
    }


def of_distances(*found: dict) -> dict[int, dict]:
    "Claim 27: at the first look after mining has begun, .15 of the epochs in `distances.py`."

    def early(seed, name):
        return next(
            r
            for r in seed["curves"]
            if r["distance"] == name.lower() and r["epoch"] >= 0.15 * seed["epochs"]
        )

    names = ("Euclidean", "Bhattacharyya")
    seen = [s["videos"] // BATCH * BATCH * s["epochs"] for s in found]
    return {
        27: row_of(
            {name: [100 * (early(s, name)["precision"] or 0) for s in found] for name in names},
            [min(early(s, name)["mined"] for name in names) for s in found],
            seen,
            [2 * n for n in seen],
        )
    }


def of_conflict(found: dict) -> dict[int, dict]:
    """Claims 1, 2, 3 and 11, at equal clips; the premise of 11 is what SimCLR, the lowest rung,
    goes by.
    """
    rows = [{(r["run"], r["view"]): r for r in seed["rows"]} for seed in found["seeds"]]

    def each(name, view="rgb", get=lambda r: r["r1"]):
        return [
            100 * get(r[f"{name}, {'frames' if view == 'rgb' else 'differences'}", view])
            for r in rows
        ]

    rungs = {
        name: f"MoQuad rung {i}" for i, name in enumerate(("SimCLR", "+AD-Pos", "+Intra-Neg", FULL))
    }
    clips = [rows[0]["InfoNCE, frames", "rgb"]["clips"]]
    infonce, uber = each("InfoNCE"), each("UberNCE")
    told = {
        1: row_of({"InfoNCE": infonce, "UberNCE": uber}, 100 / 8, [n // 2 for n in clips], clips),
        2: row_of(
            {
                "InfoNCE": infonce,
                "CoCLR": each("CoCLR"),
                "halfway to UberNCE": [(a + b) / 2 for a, b in zip(infonce, uber)],
            },
            [b - a for a, b in zip(infonce, each("InfoNCE", "residual"))],
            [n // 2 for n in clips],
            clips,
        ),
    }
    if all("streams" in s for s in found["seeds"]):

        def streams(name):
            return [100 * s["streams"][name] for s in found["seeds"]]

        each_clips = [
            rows[0][f"CoCLR, {v}", view]["clips"]
            for view, v in (("rgb", "frames"), ("residual", "differences"))
        ]
        both = [*each_clips, sum(each_clips)]
        told[3] = row_of(
            {
                "frames": streams("rgb"),
                "motion": streams("residual"),
                "both streams": streams("both"),
            },
            streams("only_one"),
            [n // 2 for n in both],
            both,
        )
    if not all((f"{run}, frames", "rgb") in r for run in rungs.values() for r in rows):
        return told
    seen = [rows[0][f"{run}, frames", "rgb"]["clips"] for run in rungs.values()]
    return told | {
        11: row_of(
            {name: each(run) for name, run in rungs.items()},
            each("MoQuad rung 0", get=lambda r: r["conflict"]["scene"][0]),
            [n // (2 + max(0, i - 1)) for i, n in enumerate(seen)],
            seen,
        )
    }


def of_world(*found: dict) -> dict[int, dict]:
    """The claims of an experiment of `benchmarks/worlds.py`; further files are the same at other
    doses.
    """
    one, *others = found
    rows = by_name(one, "run")

    def each(name, get=lambda r: r["r1"]):
        return [100 * get(r[name]) for r in rows]

    def seen(*names):
        return [rows[0][name]["clips"] for name in names]

    def premise(name):
        return [100 * s["premise"][name] for s in one["seeds"]]

    def row(numbers, level, runs, per_video=2, *doses):
        clips = seen(*runs)
        return row_of(numbers, level, [n // per_video for n in clips], clips, None, *doses)

    def by_runs(runs, level, per_video=2):
        return row({name: each(run) for name, run in runs.items()}, level, runs.values(), per_video)

    kind = one["experiment"]
    if kind == "letter":
        base, clips = "beta 1e-4", seen("N=1", "small batch", "beta 1e-4")
        return {
            19: by_runs({f"beta {b}": f"beta {b}" for b in ("1e-1", "1e-4", "1e-5")}, 1e-1 * DIM),
            20: by_runs({"K=5": "all pairs, K=5", "K=10": "all pairs"}, 100),
            21: row_of(
                {
                    "N=1": each("N=1"),
                    "N=2": each(base),
                    "small batch": each("small batch"),
                    "large batch": each(base),
                },
                BATCH / 8,
                [clips[0], *(n // 2 for n in clips[1:])],
                clips,
            ),
            22: by_runs(
                {"without mining": "without mining", "with mining": "one pair a video"},
                [s["premise"]["one pair a video, mined"] for s in one["seeds"]],
            ),
        }
    if kind == "spoiled":

        def of_dose(world):
            base = [r["ProViCo"] for r in by_name(world, "run")]
            return {
                23: {
                    "cosine": [100 * r["cosine"] for r in base],
                    "match probability": [100 * r["match"] for r in base],
                },
                24: {
                    "most uncertain": [100 * r["fifths"][-1] for r in base],
                    "most certain": [100 * r["fifths"][0] for r in base],
                },
                25: {
                    "one video": [r["mixed"]["1"] for r in base],
                    "two videos mixed": [r["mixed"]["2"] for r in base],
                },
                26: {
                    "whole": [r["masked"]["0.0"] for r in base],
                    "masked": [r["masked"]["0.5"] for r in base],
                },
            }

        levels = [(s["seeds"][0]["premise"]["spoiled"], of_dose(s)) for s in found]
        return {
            n: row(
                levels[0][1][n],
                levels[0][0],
                ["ProViCo"],
                2,
                *((level, dose[n]) for level, dose in levels[1:]),
            )
            for n in (23, 24, 25, 26)
        }
    if kind == "texture":
        return {
            12: by_runs(
                {name: name for name in ("BE", "RAD intra", "RAD inter")},
                premise("colours, RAD intra"),
                4,
            )
        }
    if kind == "directions":
        return {
            13: by_runs(
                {name: name for name in ("shuffle", "reverse", "speed")},
                [
                    s["premise"]["untrained, residual"] / s["premise"]["chance"]
                    for s in one["seeds"]
                ],
                4,
            )
        }
    if kind == "looks":
        return {
            6: by_runs(
                {name: name for name in ("fixed k", "k grows by cycle")},
                premise("k grows by cycle, pmr"),
                1,
            ),
            9: by_runs(
                {"IIC": "IIC", "IIC+CPR": "k grows by cycle"}, premise("k grows by cycle, pmr"), 1
            ),
        }
    if kind == "scenes":

        def gain(r, scene):
            return statistics.mean(
                r["MoQuad"]["by_class"][c] - x
                for c, x in r["SimCLR"]["by_class"].items()
                if c.startswith("scene") == scene
            )

        return {
            17: row(
                {
                    "appearance classes": [100 * gain(r, True) for r in rows],
                    "motion classes": [100 * gain(r, False) for r in rows],
                },
                sum(c.startswith("scene") for c in rows[0]["SimCLR"]["by_class"]),
                ["SimCLR", "MoQuad"],
                4,
            )
        }

    def cmr(r):
        return r["of_five"]["cmr"]

    if kind == "shapes":
        return {
            10: row(
                {"CoCLR": each("s=1", cmr), "CPR": each("s=3", cmr)},
                each("s=1", cmr),
                ["s=1", "s=3"],
            )
        }
    stages, taught = {f"s={s}": f"s={s}" for s in STAGES}, premise("taught, r1")
    return {
        4: by_runs(stages, taught),
        5: by_runs({"r=0.8": "r=0.8", "r=0.5": "r=0.5"}, taught),
        7: row({name: each(name, lambda r: r["pmr"]) for name in stages}, taught, stages),
    }


# where a claim is in several, its row is that of the last, and the others stand in it as doses
SOURCES: tuple[tuple[Callable[..., dict[int, dict]], tuple[str, ...]], ...] = (
    (of_story, ("story-toy-fresh",)),
    (of_cascade, ("cascade-toy",)),
    (of_iic, ("iic-toy",)),
    (of_moquad, ("moquad-toy", "beside-toy")),
    (of_looking, ("looking-toy", "moquad-toy")),
    (of_provico, ("provico-toy",)),
    (of_distances, tuple(f"distances-toy-{s}" for s in range(21, 29))),
    (of_conflict, ("conflict-toy",)),
    (of_world, ("world-letter",)),
    (of_world, ("world-spoiled", "world-spoiled-0", "world-spoiled-40")),
    *(
        (of_world, (f"world-{name}",))
        for name in ("texture", "directions", "scenes", "looks", "stages", "shapes")
    ),
)


def as_others(claim: Claim, row: dict) -> list:
    "An earlier row of a claim, as far as it has the runs that the claim compares."
    rows = [
        (
            f"{row['runs'][0].removesuffix('.json')}, {len(row['seeds'])} seeds",
            row["premise"],
            row["numbers"],
        ),
        *row["others"],
    ]
    return [list(r) for r in rows if all(name in r[2] for link in claim.links for name in link[:2])]


def write_ledger(folder: Path) -> dict[int, dict]:
    """Write `claims.json` of the results in a folder.

    ValueError where numbers do not fit their claim.
    """
    rows = {}
    for numbers_of, names in SOURCES:
        files = [folder / f"{name}.json" for name in names]
        # doses may wait
        if numbers_of is of_world:
            files = files[:1] + [f for f in files[1:] if f.is_file()]
        if not all(f.is_file() for f in files):
            continue
        found = [json.loads(f.read_text()) for f in files]
        seeds = [s["seed"] for s in found if "seed" in s] or [s["seed"] for s in found[0]["seeds"]]
        for number, row in numbers_of(*found).items():
            claim = CLAIMS[number]
            judge_links(claim, row["numbers"])
            outcome = verdict(claim, row)[0]
            if number in rows:
                row["others"] += as_others(claim, rows[number])
            rows[number] = {
                "number": number,
                "source": f"{claim.paper}, {claim.where}",
                "metric": claim.metric,
                "measure": claim.measure,
                "chain": claim.chain,
                **row,
                "planned": planned(claim, row["numbers"]),
                "seeds": seeds,
                "fresh": True,
                "rule": found[0].get("rule"),
                "why": WHY.get((number, outcome), "Nobody has looked at this verdict yet."),
                "how": f"{found[0]['what']} on the toy videos",
                "runs": [f.name for f in files],
                "measured": {"machine": found[0]["machine"], "date": found[0]["date"]},
            }
    text = json.dumps([rows[n] for n in sorted(rows)], indent=1, ensure_ascii=False) + "\n"
    write_whole(folder / "claims.json", lambda f: f.write(text.encode()))
    return rows


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--results", type=Path, default=LEDGER.parent, help="folder of the results")
    a = p.parse_args()
    rows = write_ledger(a.results)
    out = a.results / "claims.json"
    print(ledger_text(out, sorted(rows)), ledger_count(out), sep="\n\n")


if __name__ == "__main__":
    main()
