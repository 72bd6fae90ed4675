"""Verdicts on what papers claim: chains of arms, compared over seeds in one world and one reading.

A claim is a chain of links a < b between *arms*: trainings, or numbers of them. A verdict belongs
to a claim, a reading (as printed, as released, ours) and a world, and follows from the numbers of
the seeds alone:

1. *not run*: an arm is missing, or there are fewer than LEAST_SEEDS seeds.
2. *premise not met*: fewer than SHARE of the seeds have what the claim rests on.
3. *nothing was learned*: no arm is above its untrained encoder, R@1, by its interval. Where no
   untrained encoder was measured, this gate is open, and the ledger shows that.
4. Each link: the differences b - a, paired by seed, by `sign_flip`; by `sign_test`, where an arm is
   *mixed*: in some seeds its R@1 is not above that of the untrained encoder (they have failed), and
   in others it is at least CLEAR times that. Within the claim p is adjusted by Holm's rule, and a
   link is decided where that is at most DECIDED.
5. *fails* where a link is decided against the claim; *holds* where all links are decided for it;
   else *no difference above x points*, where x is the farther end of the intervals that are open.

Over a whole ledger the p of all links are adjusted by the rule of Benjamini and Hochberg as well,
and a link has to pass both.

A decided link is one of a usual seed: eight seeds without a failure leave open that up to 37 % of
all seeds fail (`failed_interval`).
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..measure.paired import (
    benjamini_hochberg,
    count_interval,
    holm,
    order_interval,
    sign_flip,
    sign_test,
    subset_interval,
)

DECIDED = 0.05
LEAST_SEEDS = 6  # with fewer no choice of signs is rare enough
SHARE = 0.75  # of the seeds that must meet a premise
CLEAR = 2.0  # times R@1 of the untrained encoder: a seed that has clearly learned
HOLDS, FAILS, OPEN = "holds", "fails", "no difference above"
NOT_RUN, NO_PREMISE, NOT_LEARNED = "not run", "premise not met", "nothing was learned"
VERDICTS = (HOLDS, FAILS, OPEN, NOT_LEARNED, NO_PREMISE, NOT_RUN)


@dataclass(frozen=True)
class Arm:
    "A training, or a number of one, over seeds in one order."

    values: tuple[float, ...]  # what the claim compares
    # both percent; empty: not measured
    r1: tuple[float, ...] = ()
    untrained: tuple[float, ...] = ()  # R@1 of the same network with random weights

    @property
    def is_measured(self) -> bool:
        "Is there an untrained encoder beside it?"
        return bool(self.r1 and self.untrained)

    @property
    def failed(self) -> int:
        "Seeds that are not above the untrained encoder."
        return sum(x <= u for x, u in zip(self.r1, self.untrained))

    @property
    def failed_interval(self) -> tuple[float, float]:  # 0 to 1
        "95 %: the share of seeds that fail."
        return count_interval(self.failed, len(self.r1))

    @property
    def is_mixed(self) -> bool:
        "Have some seeds failed, and others clearly learned?"
        return self.failed > 0 and any(x >= CLEAR * u for x, u in zip(self.r1, self.untrained))

    @property
    def has_learned(self) -> bool:
        "Is it above the untrained encoder by its interval?"
        gains = [x - u for x, u in zip(self.r1, self.untrained)]
        return bool(gains) and subset_interval(gains)[0] > 0


@dataclass(frozen=True)
class Premise:
    "What a claim rests on, measured in each seed on an arm that the claim changes nothing of."

    values: tuple[float, ...]  # of each seed
    least: float = -math.inf
    most: float = math.inf

    @property
    def met(self) -> int:
        "So many seeds have it."
        return sum(self.least <= x <= self.most for x in self.values)

    @property
    def is_met(self) -> bool:
        return self.met >= SHARE * len(self.values)

    def is_lost(
        self,
        seeds: int,  # that are planned
    ) -> bool:
        "Would so many seeds miss it, even if all further ones had it?"
        missed = len(self.values) - self.met
        return seeds - missed < SHARE * seeds


@dataclass(frozen=True)
class Link:
    "a < b over seeds: b - a."

    a: str
    b: str
    differences: tuple[float, ...]  # of each seed
    test: str  # 'signs flipped' of the mean, 'signs' of the median
    estimate: float  # mean or median, whichever is tested
    median: float
    low: float  # 95 %, of the same test
    high: float
    p: float  # alone
    adjusted: float  # within the claim, by Holm's rule
    over_all: float = 0.0  # of all links of a ledger, by Benjamini and Hochberg's rule

    @property
    def outcome(self) -> str:  # 'for', 'against' or 'open'
        if max(self.adjusted, self.over_all) > DECIDED:
            return "open"
        return "for" if self.estimate > 0 else "against"

    @property
    def bound(self) -> float:
        "A difference that is larger than this, in either direction, is rejected."
        return max(abs(self.low), abs(self.high))


@dataclass(frozen=True)
class ClaimVerdict:
    "Of a claim in one reading and one world."

    word: str  # one of VERDICTS
    links: tuple[Link, ...] = ()
    bound: float | None = None  # x of 'no difference above x points'
    because: str = ""  # what is missing, or what was not met

    def __str__(self) -> str:
        return self.text("points")

    def text(
        self,
        unit: str,  # of the differences
    ) -> str:
        "The word, with its bound."
        if self.bound is None:
            return self.word
        return f"{self.word} {in_unit(self.bound, unit)} {unit}"


def in_unit(x: float, unit: str, sign: str = "") -> str:
    "A number with as many digits as its unit takes."
    return f"{x:{sign}.1f}" if unit == "points" else f"{x:{sign}.2f}"


def chain_links(
    chain: str,  # 'a < b < c', several separated by '; '
) -> list[tuple[str, str]]:
    "Neighbours."
    links: list[tuple[str, str]] = []
    for part in chain.split("; "):
        names = part.split(" < ")
        links += zip(names, names[1:])
    return links


def compare_arms(
    a: str,
    b: str,
    arms: Mapping[str, Arm],
) -> Link:  # not yet adjusted
    "Two arms, paired by seed."
    differences = tuple(y - x for x, y in zip(arms[a].values, arms[b].values, strict=True))
    median = statistics.median(differences)
    if arms[a].is_mixed or arms[b].is_mixed:
        estimate = median
        p, (low, high), test = sign_test(differences), order_interval(differences), "signs"
    else:
        estimate = statistics.mean(differences)
        p, (low, high) = sign_flip(differences), subset_interval(differences)
        test = "signs flipped"
    return Link(a, b, differences, test, estimate, median, low, high, p, p)


def judge_claim(
    chain: str,  # of the claim
    arms: Mapping[str, Arm],
    premise: Premise | None = None,  # None: the claim rests on nothing else
) -> ClaimVerdict:
    "The verdict on one claim alone. `ValueError` where arms do not have the same seeds."
    pairs = chain_links(chain)
    missing = [name for pair in pairs for name in pair if name not in arms]
    if missing:
        return ClaimVerdict(NOT_RUN, because=f"{missing[0]} is missing")
    named = [arms[name] for pair in pairs for name in pair]
    counts = {len(arm.values) for arm in named}
    counts |= {len(x) for arm in named for x in (arm.r1, arm.untrained) if x}
    counts |= {len(premise.values)} if premise else set()
    if len(counts) > 1:
        raise ValueError(f"{chain}: arms and premise have {sorted(counts)} seeds; give all alike")
    seeds = counts.pop()
    if seeds < LEAST_SEEDS:
        return ClaimVerdict(NOT_RUN, because=f"{seeds} seeds of at least {LEAST_SEEDS}")

    raw = [compare_arms(a, b, arms) for a, b in pairs]
    links = tuple(replace(x, adjusted=p) for x, p in zip(raw, holm([x.p for x in raw])))
    if premise and not premise.is_met:
        return ClaimVerdict(NO_PREMISE, links, because=f"{premise.met} of {seeds} seeds have it")
    measured = [arm for arm in named if arm.is_measured]
    if measured and not any(arm.has_learned for arm in measured):
        because = "no arm is shown to be above its untrained encoder"
        return ClaimVerdict(NOT_LEARNED, links, because=because)
    return _from_links(links)


def _from_links(links: tuple[Link, ...]) -> ClaimVerdict:
    outcomes = [link.outcome for link in links]
    if "against" in outcomes:
        return ClaimVerdict(FAILS, links)
    if "open" not in outcomes:
        return ClaimVerdict(HOLDS, links)
    return ClaimVerdict(OPEN, links, bound=max(x.bound for x in links if x.outcome == "open"))


def judge_together(
    verdicts: Sequence[ClaimVerdict],  # of a whole ledger
) -> list[ClaimVerdict]:  # in the same order
    "The same verdicts where the p of all judged links are adjusted together."
    judged = [v for v in verdicts if v.word in (HOLDS, FAILS, OPEN)]
    adjusted = iter(benjamini_hochberg([link.p for v in judged for link in v.links]))
    return [
        _from_links(tuple(replace(link, over_all=next(adjusted)) for link in v.links))
        if v.word in (HOLDS, FAILS, OPEN)
        else v
        for v in verdicts
    ]
