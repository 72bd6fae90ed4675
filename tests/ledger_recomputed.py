"""The verdicts of the claims ledger once more, from its rule alone (DESIGN.md, The claims ledger).

Written from the rule, `claims.csv`, `readings.csv` and the numbers of each seed in `claims.json`,
before a look at the code that the ledger itself is judged with. What each part implements, and
what was taken where the rule is silent:

`read`      "A claim is a chain of links (a < b), and a verdict belongs to a claim, a reading and
            a world." The chain of a reading stands before that of its claim.
`learned`   "one arm above its untrained encoder by its interval": R@1 less R@1 of random weights,
            paired by seed, lower end of the 95 % interval above 0, in any arm of the chain that
            has both. Silent: no such numbers. Taken: not measured, so the gate stands open.
`premise`   "by seed, in multiples of chance, on the untreated arm". Silent: how many seeds.
            Taken: every one. It comes after *learned*, in the order of the rule.
`compare`   "Differences are paired by seed: exact sign-flip test and interval, Student's t only
            where neither arm is bimodal." Silent: what t decides where both may be had. Taken:
            the exact test is the rule; fewer than six seeds cannot reach 5 % by it, and there
            t is taken, if neither arm is bimodal; else the interval has no end.
`bimodal`   Silent: what that is. Taken: the widest gap between neighbours is wider than 95 % of
            uniform samples of this size have.
`holm`      "Within a chain Holm, alike for both sides": two-sided p of all links of a row, a link
            holds or fails at 5 % by the sign of its mean difference.
`hochberg`  "over the ledger Benjamini-Hochberg; both verdicts are shown". Silent: over what.
            Taken: one p for every row that has passed both gates, since Holm has paid for the
            links of a row and none is paid for twice. The p of a row (`standing`) is that of the
            verdict it is nearest to: to hold, the largest Holm p of its links, to fail, the
            smallest of a link that points the other way.
`conclude`  holds: every link does. fails: a link does. Else *no difference above x*: x is the
            largest size of a difference that the 95 % interval (of a single link) leaves open,
            over the links that are undecided. Silent: the level; whether a bound has one side.
            "Where the paper's own gain would take more than 64 seeds, the bound is the verdict":
            taken as the verdict of a test that decides nothing, which has no other here, and so
            the planned seeds change none. A link that is decided keeps its verdict.
            *not run*: a row without seeds. *nothing was learned*, *premise not met*: the gates.

`Choices` came after the comparison with the ledger: three places where the rule is silent and the
ledger takes another way. The defaults are those taken before it.
"""

import csv
import json
import math
from dataclasses import dataclass
from itertools import product
from math import comb

import numpy as np

LEVEL = 0.05
STOPPED = "not run", "nothing was learned", "premise not met"


@dataclass(frozen=True)
class Choices:
    "What is taken where the rule is silent."

    least: int = 1  # seeds; a row with fewer has not run
    share: float = 1.0  # of the seeds that must have the premise
    over: str = "rows"  # Benjamini-Hochberg: one p a row, after Holm; or "links", with p before it


def rows_of(path):
    "The rows of a table whose first lines are comments."
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def links_of(chain):
    "`a < b < c; d < e` as pairs."
    parts = [[name.strip() for name in part.split(" < ")] for part in chain.split(";")]
    return [pair for part in parts for pair in zip(part, part[1:])]


def read(claims_csv, readings_csv, claims_json):
    "Every reading with its links, the bounds of its premise and its numbers."
    chains = {row["number"]: row["chain"] for row in rows_of(claims_csv)}
    with open(claims_json, encoding="utf-8") as file:
        lines = json.load(file)["lines"]
    for row in rows_of(readings_csv):
        key = row["number"], row["reading"], row["world"]
        least, most = (float(row[name]) if row[name] else None for name in ("least", "most"))
        links = links_of(row["chain"] or chains[row["number"]])
        yield key, links, (least, most), lines[", ".join(key)]


# Two samples, paired by seed


def bimodal(values):
    "Whether the widest gap between neighbours is one that one uniform sample in twenty has."
    values = np.sort(values)
    if len(values) < 3 or values[0] == values[-1]:
        return False
    widest, gaps = np.diff(values).max() / np.ptp(values), len(values) - 1
    terms = (
        (-1) ** (j + 1) * comb(gaps, j) * max(0, 1 - j * widest) ** (gaps - 1)
        for j in range(1, gaps + 1)
    )
    return sum(terms) < LEVEL


def within(t, freedom):
    "The chance that |T| stays below t, for whole degrees of freedom."
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    total, term = 0.0, cosine if odd else 1.0
    for step in range(1 + odd, freedom, 2):
        total += term
        term *= cosine**2 * step / (step + 1)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def student(difference):
    "Two-sided p and 95 % interval of a mean by Student's t."
    count, mean = len(difference), difference.mean()
    error = difference.std(ddof=1) / math.sqrt(count)
    if error == 0:
        return float(mean == 0), (mean, mean)
    low, high = 0.0, 1e6
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle, count - 1) < 1 - LEVEL else (low, middle)
    p = 1 - within(abs(mean) / error, count - 1)
    return p, (mean - low * error, mean + low * error)


def flipped(difference):
    "Two-sided p of a mean under all changes of sign, and the interval of all means not rejected."
    count = len(difference)
    signs = np.array(list(product((1, -1), repeat=count)))
    sums = signs @ difference
    p = float(np.mean(np.abs(sums) >= abs(difference.sum()) - 1e-9))
    chosen = signs[(signs > 0).any(1)] > 0
    means = np.sort(chosen @ difference / chosen.sum(1))  # between neighbours one share in 2^n
    outside = int(LEVEL / 2 * 2**count)
    if outside < 1:
        return p, (-math.inf, math.inf)
    return p, (means[outside - 1], means[-outside])


def compare(first, second):
    "The test of second over first: its name, p, 95 % interval and the mean difference."
    first, second = np.array(first), np.array(second)
    difference = second - first
    few = 2 ** (1 - len(difference)) > LEVEL
    if few and len(difference) > 1 and not bimodal(first) and not bimodal(second):
        name, (p, interval) = "t", student(difference)
    else:
        name, (p, interval) = "sign flips", flipped(difference)
    return {
        "test": name,
        "seeds": len(difference),
        "mean": float(difference.mean()),
        "interval": tuple(map(float, interval)),
        "p": float(p),
    }


# Many tests


def holm(p):
    "Adjusted by Holm: the smallest times all, the next times one less, never falling."
    order, adjusted = np.argsort(p), np.empty(len(p))
    steps = np.array(p)[order] * (len(p) - np.arange(len(p)))
    adjusted[order] = np.minimum(1, np.maximum.accumulate(steps))
    return adjusted.tolist()


def hochberg(p):
    "Adjusted by Benjamini and Hochberg: each times all, over its rank, never rising from above."
    order, adjusted = np.argsort(p), np.empty(len(p))
    steps = np.array(p)[order] * len(p) / (1 + np.arange(len(p)))
    adjusted[order] = np.minimum(1, np.minimum.accumulate(steps[::-1])[::-1])
    return adjusted.tolist()


# Two gates and six verdicts


def learned(arms):
    "Whether an arm is above its untrained encoder by its interval; None: nothing to tell by."
    both = [arm for arm in arms if arm["r1"] and len(arm["r1"]) == len(arm["untrained"])]
    if not both:
        return None
    return any(compare(arm["untrained"], arm["r1"])["interval"][0] > 0 for arm in both)


def premise_met(values, least, most, share):
    "Whether so many of the seeds keep the bounds; None: no premise."
    if not values or (least is None and most is None):
        return None
    low = -math.inf if least is None else least
    high = math.inf if most is None else most
    return sum(low <= value <= high for value in values) >= share * len(values)


def decide(link, p):
    "The verdict of a link at 5 %: holds, fails, or neither."
    if p > LEVEL or link["mean"] == 0:
        return "undecided"
    return "holds" if link["mean"] > 0 else "fails"


def standing(links):
    "The p that a row has in the ledger: of the nearer of *holds* and *fails*, after Holm."
    holds = max(link["holm"] if link["mean"] > 0 else 1.0 for link in links)
    fails = min(link["holm"] if link["mean"] < 0 else 1.0 for link in links)
    return min(holds, fails)


def bounded(links):
    "The verdict by the bound: the largest difference that the intervals of the links leave open."
    return "no difference above x", max(abs(end) for link in links for end in link["interval"])


def conclude(links, which="verdict"):
    "The verdict of a chain from those of its links, and the x of *no difference above x*."
    said = [link[which] for link in links]
    if "fails" in said:
        return "fails", None
    if all(one == "holds" for one in said):
        return "holds", None
    return bounded([link for link in links if link[which] == "undecided"])


def gates(links, bounds, line, choices):
    "What ends a row before its verdict, and what both gates said."
    if len(line["seeds"]) < choices.least:
        return "not run", None, None
    names = {name for link in links for name in link}
    knows = learned([line["arms"][name] for name in sorted(names)])
    rests = premise_met(line["premise"], *bounds, choices.share)
    stopped = "nothing was learned" if knows is False else None
    stopped = stopped or ("premise not met" if rests is False else None)
    return stopped, knows, rests


def over_rows(rows):
    "Benjamini-Hochberg with one p a row: a row that it does not reject has its bound."
    for row, q in zip(rows, hochberg([standing(row["links"]) for row in rows])):
        row["q"] = q
        if q > LEVEL and row["verdict"] in ("holds", "fails"):
            row["after"], row["x_after"] = bounded(row["links"])


def over_links(rows):
    "Benjamini-Hochberg with the p of each link, as if no chain had been."
    links = [link for row in rows for link in row["links"]]
    for link, q in zip(links, hochberg([link["p"] for link in links])):
        link["q"], link["after"] = q, decide(link, q)
    for row in rows:
        row["after"], row["x_after"] = conclude(row["links"], "after")


def verdicts(claims_csv, readings_csv, claims_json, choices=Choices()):
    """For every (claim, reading, world): `verdict` and `x` by Holm alone, `after` and `x_after`
    with Benjamini-Hochberg over the ledger, both gates, and the links with their tests."""
    table = {}
    for key, links, bounds, line in read(claims_csv, readings_csv, claims_json):
        stopped, knows, rests = gates(links, bounds, line, choices)
        tests = []
        if line["seeds"]:
            values = {name: line["arms"][name]["values"] for link in links for name in link}
            tests = [{"link": link, **compare(*(values[name] for name in link))} for link in links]
        for link, p in zip(tests, holm([link["p"] for link in tests])):
            link["holm"], link["verdict"] = p, decide(link, p)
        verdict, x = (stopped, None) if stopped else conclude(tests)
        row = {"verdict": verdict, "x": x, "after": verdict, "x_after": x, "q": None}
        table[key] = {**row, "learned": knows, "premise": rests, "links": tests}
    family = [row for row in table.values() if row["verdict"] not in STOPPED]
    {"rows": over_rows, "links": over_links}[choices.over](family)
    return table
