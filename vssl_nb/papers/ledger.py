"""The ledger: what the papers claim, how each claim is read, what was measured here, and the
verdicts that follow.

`claims.csv` has the claims, `readings.csv` how each is read and in which world it is judged, and
`results/claims.json` the numbers of each seed, which `benchmarks/ledger.py` writes from the stored
outcomes. Verdicts are not stored: `papers.verdicts` derives them.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ..config import read_lines
from .verdicts import (
    FAILS,
    HOLDS,
    LEAST_SEEDS,
    NOT_RUN,
    OPEN,
    Arm,
    Link,
    Premise,
    ClaimVerdict,
    in_unit,
    judge_claim,
    judge_together,
)

LEDGER = Path(__file__).parents[2] / "results" / "claims.json"
PLANNED_SEEDS = 8  # that each reading is planned with
MOST_SEEDS = 64  # where the paper's own gain takes more, the bound is the verdict


# -- claims


@dataclass(frozen=True)
class Claim:
    "What a text claims, as links a < b between named numbers."

    number: int  # in the ledger
    chain: str  # 'a < b < c', several separated by '; '
    paper: str = ""  # 'CPR', ...
    where: str = ""  # table, figure or section
    metric: str = ""  # of the paper
    # the paper's numbers in the place of the names; '–' for a chain: it prints none
    printed: str = ""

    @property
    def gains(self) -> dict[tuple[str, str], float]:  # (a, b) -> what it prints for b - a
        "Of the links for which the paper prints numbers."
        gains = {}
        for chain, printed in zip_longest(
            self.chain.split("; "), self.printed.split("; "), fillvalue=""
        ):
            names = chain.split(" < ")
            values = [float(x) for x in printed.split(" < ") if x not in ("", "–")]
            for link, a, b in zip(zip(names, names[1:]), values, values[1:]):
                gains[link] = round(b - a, 2)
        return gains


def _claim(
    line: Mapping[str, str],  # of claims.csv
) -> Claim:
    values: dict[str, Any] = dict(line)
    return Claim(**values | {"number": int(line["number"])})


CLAIMS = {c.number: c for c in map(_claim, read_lines("papers/claims.csv"))}


# -- readings


@dataclass(frozen=True)
class Stored:
    "Where a number of each seed lies in a file of results; or a constant."

    row: str = ""
    view: str = ""
    budget: int = 0
    metric: str = "r1"  # 'fifths>0': what lies deeper
    constant: float | None = None


@dataclass(frozen=True)
class Number:
    "A number of each seed: a stored one, a mean of several, or a difference of two."

    parts: tuple[Stored, ...]
    is_difference: bool = False

    def of(
        self,
        values: Sequence[float],  # of the parts
    ) -> float:
        if self.is_difference:
            return values[0] - values[1]
        return sum(values) / len(values)


@dataclass(frozen=True)
class Reading:
    "A claim, how it is read, and the world in which it is judged: a line of readings.csv."

    number: int  # of the claim
    reading: str  # 'as printed', 'as released', 'ours: …'
    world: str
    chain: str  # its links: those of the claim, if it has no others
    measure: str  # what the arms are compared by, with its unit
    unit: str  # of differences: 'points', or that of the number itself
    source: str  # file of results, and the world of its records
    arms: Mapping[str, Number]  # name in the chain ->
    untrained: tuple[str, Stored] | None  # source and number; None: none is named
    premise: tuple[Stored, Stored] | None  # a and b: the premise is a / b
    rests_on: str  # the premise in words
    least: float
    most: float
    cost: tuple[str, tuple[Stored, ...]] | None  # runs that a further seed takes, if not the arms'
    note: str

    @property
    def claim(self) -> Claim:
        return CLAIMS[self.number]

    @property
    def name(self) -> str:
        return f"{self.number}, {self.reading}, {self.world}"

    @property
    def is_ours(self) -> bool:
        "Is it our form of what the paper describes?"
        return self.reading.startswith("ours")


def stored(
    text: str,  # 'coclr/rgb/2', 'ProViCo@fifths>0', '0.125'
) -> Stored:
    "Where a number lies."
    try:
        return Stored(constant=float(text))
    except ValueError:
        place, _, metric = text.strip().partition("@")
    row, view, budget, *_ = [*place.split("/"), "", ""]
    return Stored(row, view, int(budget or 0), metric or "r1")


def _number(text: str) -> Number:
    if " - " in text:
        return Number(tuple(map(stored, text.split(" - "))), True)
    return Number(tuple(map(stored, text.split(" + "))))


def _elsewhere(
    text: str,  # 'experiment plain: untrained/rgb/1', or a number of the same source
    source: str,
) -> tuple[str, tuple[Stored, ...]]:
    place, colon, rows = text.rpartition(": ")
    return (place if colon else source), tuple(map(stored, rows.split("; ")))


def _reading(line: Mapping[str, str]) -> Reading:
    arms = {}
    for part in line["arms"].split("; "):
        name, _, stands_for = part.partition(" = ")
        arms[name] = _number(stands_for)
    source, untrained, premise = line["source"], None, None
    if line["untrained"]:
        place, (row,) = _elsewhere(line["untrained"], source)
        untrained = place, row
    if line["premise"]:
        a, b = line["premise"].split(" : ")
        premise = stored(a), stored(b)
    number = int(line["number"])
    return Reading(
        number=number,
        reading=line["reading"],
        world=line["world"],
        chain=line["chain"] or CLAIMS[number].chain,
        measure=line["measure"],
        unit=line["unit"],
        source=source,
        arms=arms,
        untrained=untrained,
        premise=premise,
        rests_on=line["rests_on"],
        least=float(line["least"] or "-inf"),
        most=float(line["most"] or "inf"),
        cost=_elsewhere(line["cost"], source) if line["cost"] else None,
        note=line["note"],
    )


READINGS = tuple(map(_reading, read_lines("papers/readings.csv")))


# -- the file


@dataclass(frozen=True)
class LedgerRow:
    "A reading with its numbers."

    reading: Reading
    arms: Mapping[str, Arm]  # none: not run
    premise: Premise | None
    seeds: tuple[int, ...] = ()
    planned: tuple[int | None, ...] = ()  # seeds for the paper's gain, of each link
    # 0 to 1, of the seeds that are there at the paper's gain, of each link alone
    power: tuple[float | None, ...] = ()
    hours: float = 0.0  # of a core, for the seeds that are missing
    budget: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # arm -> currencies
    rule: tuple[str, ...] = ()  # commits
    runs: tuple[str, ...] = ()  # commits
    is_stamped: bool = True  # does a digest of the code lie beside the numbers?

    @property
    def claim(self) -> Claim:
        return self.reading.claim

    @property
    def lacks_premise(self) -> bool:
        "Would the planned seeds miss the premise, even if all further ones had it?"
        return self.premise is not None and self.premise.is_lost(PLANNED_SEEDS)

    @property
    def is_measured(self) -> bool:
        "Was an untrained encoder measured beside an arm?"
        return any(arm.is_measured for arm in self.arms.values())


def _row(path: Path, reading: Reading, kept: Mapping[str, Any]) -> LedgerRow:
    try:
        arms = {
            name: Arm(*(tuple(arm[k]) for k in ("values", "r1", "untrained")))
            for name, arm in kept["arms"].items()
        }
        premise = None
        if kept["premise"] is not None:
            premise = Premise(tuple(kept["premise"]), reading.least, reading.most)
        return LedgerRow(
            reading,
            arms,
            premise,
            tuple(kept["seeds"]),
            tuple(kept["planned"]),
            tuple(kept["power"]),
            kept["hours"],
            kept["budget"],
            tuple(kept["rule"]),
            tuple(kept["runs"]),
            kept["stamped"],
        )
    except (KeyError, TypeError, AttributeError) as e:
        raise ValueError(
            f"{path}: the line {reading.name!r} is not whole ({e!r}); write the ledger again with "
            "benchmarks/ledger.py"
        ) from None


def read_rows(
    path: str | Path = LEDGER,
    numbers: Iterable[int] = tuple(CLAIMS),  # of the claims to show
) -> list[LedgerRow]:  # all readings of these claims, also those that were not run
    "The ledger. `ValueError` for a file that is missing or is none of this version."
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path}: there is no ledger; it lies in results/ of a clone") from None
    except ValueError as e:
        raise ValueError(f"{path}: not readable as JSON ({e}); take the one of the clone") from e
    lines = content.get("lines") if isinstance(content, dict) else None
    if not isinstance(lines, dict):
        raise ValueError(f"{path}: has no lines; write the ledger again with benchmarks/ledger.py")
    unknown = lines.keys() - {r.name for r in READINGS}
    if unknown:
        raise ValueError(
            f"{path}: {min(unknown)!r} is no reading of this version; write the ledger again with "
            "benchmarks/ledger.py"
        )
    wanted = [r for r in READINGS if r.number in {*numbers}]
    return [
        _row(path, r, lines[r.name]) if r.name in lines else LedgerRow(r, {}, None) for r in wanted
    ]


def verdicts_of(
    rows: Sequence[LedgerRow],
) -> list[tuple[ClaimVerdict, ClaimVerdict]]:  # alone, and over the whole ledger
    "The verdict of each row. `ValueError` for a row whose arms do not have the same seeds."
    alone = [judge_claim(row.reading.chain, row.arms, row.premise) for row in rows]
    return list(zip(alone, judge_together(alone)))


# -- for people


def link_text(
    link: Link,
    unit: str = "points",
    printed: float | None = None,  # the paper's difference; None: it prints none
    planned: int | None = None,  # seeds for it; None: more than MOST_SEEDS
    power: float | None = None,  # 0 to 1, of the seeds that are there; None: not computed
) -> str:
    "A link with its interval, and what the paper prints."

    def shown(x: float) -> str:
        return in_unit(x, unit, "+")

    kind = "mean" if link.test == "signs flipped" else "median"
    median = f", median {shown(link.median)}" if kind == "mean" else ""
    text = (
        f"{link.a} < {link.b}: {kind} {shown(link.estimate)} ({shown(link.low)} to "
        f"{shown(link.high)}){median}, p {link.adjusted:.3f}"
    )
    if printed is None:
        return text
    seeds = planned or f"more than {MOST_SEEDS}"
    text += f"; the paper {printed:+g}, which takes {seeds} seeds"
    if power is None:
        return text
    return f"{text} (power of these {len(link.differences)}: {100 * power:.0f} %)"


def _failed_text(row: LedgerRow) -> str:  # '' where no seed has failed
    "How many seeds of each arm are not above their untrained encoder."
    if row.arms and not row.is_measured:
        return "not measured: no untrained encoder of this world"
    parts = []
    for name, arm in row.arms.items():
        if arm.failed:
            low, high = (100 * x for x in arm.failed_interval)
            parts.append(f"{name} {arm.failed} of {len(arm.r1)} ({low:.0f} to {high:.0f} %)")
    return ", ".join(parts)


def _premise_text(row: LedgerRow) -> str:  # '' where a claim rests on nothing else
    "What a claim rests on, its bounds, and how many seeds have it."
    reading = row.reading
    if row.premise is None:
        return reading.rests_on
    bounds = []
    if reading.least > -math.inf:
        bounds.append(f"at least {reading.least:g}")
    if reading.most < math.inf:
        bounds.append(f"at most {reading.most:g}")
    values = ", ".join(f"{x:.2g}" for x in row.premise.values)
    met = f"{row.premise.met} of {len(row.seeds)} seeds ({values})"
    return f"{reading.rests_on}, {' and '.join(bounds)}: {met}"


def _seeds_text(row: LedgerRow) -> str:
    "The seeds that are there, and what those that are missing take."
    there = ", ".join(map(str, row.seeds)) or "none"
    if not row.hours:
        return there
    hours = f"{row.hours:.1f} hours of a core" if row.hours >= 0.05 else "minutes of a core"
    if row.lacks_premise:
        return f"{there}; {PLANNED_SEEDS} in a world that has the premise take {hours}"
    return f"{there}; {PLANNED_SEEDS} take {hours} more"


def _budget_text(row: LedgerRow) -> str:
    "What the arms have cost, helpers included: the median of seeds."
    parts = []
    for name, spent in row.budget.items():
        if not spent:
            continue  # a constant
        words = [f"{spent[k]:,.0f} {word}" for k, word in CURRENCIES.items() if k in spent]
        parts.append(f"{name}: {', '.join(words)}")
    return "\n".join(parts)


# of a line of the file -> in words
CURRENCIES = {
    "steps": "steps",
    "drawn": "clips drawn",
    "forward": "forward",
    "gradient": "with gradient",
    "cpu_seconds": "seconds of a core",
    "seconds": "seconds",
}
LEDGER_COLUMNS = (
    "#",
    "source",
    "claim",
    "reading",
    "world",
    "verdict",
    "over the ledger",
    "b − a, 95 % interval",
    "failed seeds",
    "premise",
    "seeds",
    "budget",
    "rule and runs",
    "note",
)
SHORT_COLUMNS = (
    "#",
    "claim",
    "reading",
    "world",
    "verdict",
    "b − a, 95 % interval",
    "seeds",
    "over the ledger",
    "note",
)


def _cells(row: LedgerRow, alone: ClaimVerdict, together: ClaimVerdict) -> dict[str, str]:
    claim, reading = row.claim, row.reading
    of_paper = f" (paper: {claim.metric})" if claim.metric != reading.measure else ""
    because = f": {alone.because}" if alone.because else ""
    links = [
        link_text(link, reading.unit, claim.gains.get((link.a, link.b)), seeds, power)
        for link, seeds, power in zip(alone.links, row.planned, row.power)
    ]
    commits = "; ".join(
        text
        for text in (
            f"rule {', '.join(row.rule)}" if row.rule else "",
            f"runs {', '.join(row.runs)}" if row.runs else "",
            "" if row.is_stamped else "of before stamps",
        )
        if text
    )
    return {
        "#": str(claim.number),
        "source": f"{claim.paper}, {claim.where}",
        "claim": f"{reading.measure}{of_paper}: {reading.chain}",
        "reading": reading.reading,
        "world": reading.world,
        "verdict": f"{alone.text(reading.unit)}{because}",
        "over the ledger": together.text(reading.unit),
        "b − a, 95 % interval": "\n".join(links),
        "failed seeds": _failed_text(row),
        "premise": _premise_text(row),
        "seeds": _seeds_text(row),
        "budget": _budget_text(row),
        "rule and runs": commits,
        "note": reading.note,
    }


def table_rows(
    path: str | Path = LEDGER,
    numbers: Iterable[int] = tuple(CLAIMS),
) -> list[dict[str, str]]:  # column -> text, lines separated by '\n'
    "The ledger as lines of a table; verdicts over the ledger count all of its rows."
    every, shown = read_rows(path), {*numbers}
    return [
        _cells(row, alone, together)
        for row, (alone, together) in zip(every, verdicts_of(every))
        if row.reading.number in shown
    ]


def markdown_table(
    path: str | Path = LEDGER,
    numbers: Iterable[int] = tuple(CLAIMS),
    columns: Sequence[str] = LEDGER_COLUMNS,  # those to show
) -> str:
    "The ledger as a Markdown table."

    def line(words: Iterable[str]) -> str:
        return f"| {' | '.join(words)} |".replace("\n", "<br>")

    lines = [line(columns), "|---" * len(columns) + "|"]
    lines += [line(row[c] for c in columns) for row in table_rows(path, numbers)]
    return "\n".join(lines)


def plain_text(
    path: str | Path = LEDGER,
    numbers: Iterable[int] = tuple(CLAIMS),
) -> str:
    "The ledger for a terminal: a line for each row, and below it what it rests on."
    lines = []
    for row in table_rows(path, numbers):
        lines.append(f"{row['#']:>2}  {row['source']}: {row['claim']}")
        lines.append(f"    {row['reading']}, {row['world']}: {row['verdict']}")
        for column in LEDGER_COLUMNS[6:]:
            lines += [f"    {column}: {text}" for text in row[column].split("\n") if text]
    return "\n".join(lines)


def main_rows(path: str | Path = LEDGER) -> Iterator[tuple[LedgerRow, ClaimVerdict, ClaimVerdict]]:
    """Of each claim its main line, with its verdict alone and over the ledger: of the readings that
    are not ours the first one that was judged (holds, fails, or no difference above x), else the
    first one that was run, else the first one.
    """
    rows = read_rows(path)
    lines: dict[int, list[tuple[LedgerRow, ClaimVerdict, ClaimVerdict]]] = {}
    for row, (alone, together) in zip(rows, verdicts_of(rows)):
        if not row.reading.is_ours:
            lines.setdefault(row.reading.number, []).append((row, alone, together))

    for of_claim in lines.values():
        judged = [line for line in of_claim if line[1].word in (HOLDS, FAILS, OPEN)]
        run = [line for line in of_claim if line[1].word != NOT_RUN]
        yield (judged or run or of_claim)[0]


def counted_verdicts(path: str | Path = LEDGER) -> str:
    "How many claims have which verdict, by the main reading of each, in a sentence."
    words = Counter(alone.word for _, alone, _ in main_rows(path))
    parts = ", ".join(f"{word}: {n}" for word, n in words.most_common())
    rest = f"not run: fewer than {LEAST_SEEDS} seeds"
    return f"{words.total()} claims, each in its main reading: {parts} ({rest})."
