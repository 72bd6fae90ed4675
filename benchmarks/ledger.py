"""Write the ledger of claims from the stored outcomes.

    python benchmarks/ledger.py

reads `results/` and writes `results/claims.json`: for each line of `vssl_nb/papers/readings.csv`
the numbers of each seed, of its untrained encoder and of its premise, what the arms have cost, the
seeds that the paper's own gain would take, the power of those that are there, the hours of a core
for seeds that are missing, and the commits of rule and runs. Verdicts are not written: they follow
from the numbers (`vssl_nb.papers.verdicts`). The order of files, records and stamps does not
matter, and the same results give the same bytes, in every clone. Whether the code has changed since
the runs is no part of the file: `python tests/house.py stale` lists that.

A reading whose numbers are not all there yet has those of the seeds that are; the next call, after
the next seeds, has more of them. Two kinds of files are read: that of the one experiment, with
records and stamps, and older ones, with seeds and their rows (`distances-toy-*.json`: a file a
seed)."""

import bisect
import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from typing import Any

import measurement
import numpy as np
from scipy.special import chdtri, nctdtr, stdtrit
from stamps import stamps_of

from vssl_nb.papers.ledger import (
    CURRENCIES,
    LEDGER,
    MOST_SEEDS,
    READINGS,
    PLANNED_SEEDS,
    Number,
    Reading,
    Stored,
    counted_verdicts,
    plain_text,
)
from vssl_nb.measure.paired import sign_flip, sign_test
from vssl_nb.papers.verdicts import DECIDED, Arm, Premise, chain_links, compare_arms
from vssl_nb.training.run_folder import write_json

DIGITS = 4
PERCENT = 100  # shares are stored as 0 to 1
POWER = 0.9  # of a plan
DRAWS = 400  # of a power
LEAST_PILOT = 3  # seeds that tell a spread
FIRST_LOOK = 0.15  # of the epochs: ProViCo mines from there on (benchmarks/distances.py)

Record = Mapping[str, Any]
Seen = dict[str, Any]  # what a line of the file has of a reading


# ---- files of results


@lru_cache
def results_of(file: Path) -> dict[str, Any]:  # {}: there is no such file
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def inside(record: Any, metric: str) -> float | None:  # None: it has none
    """What lies in a record: 'r1', 'fifths>0', 'by_class>scene*' (a mean of those that are so
    named; with ! before it, of the others).
    """
    for name in metric.split(">"):
        if record is None:
            return None
        if isinstance(record, list):
            record = record[int(name)]
        elif any(c in name for c in "*!"):
            wanted = not name.startswith("!")
            record = statistics.mean(
                v for k, v in sorted(record.items()) if fnmatch(k, name.strip("!")) == wanted
            )
        else:
            record = record.get(name)
    return record


class Source:
    "Numbers by seed."

    def records(self, place: Stored) -> dict[int, Record]:  # by seed
        raise NotImplementedError

    def untrained(self, place: Stored) -> Stored | None:
        "Random weights on the same videos and view."
        return None

    def commits(self, places: Iterable[Stored]) -> tuple[list[str], list[str]]:  # rule, runs
        raise NotImplementedError

    @property
    def is_stamped(self) -> bool:
        "Does a digest of the code of the runs lie beside the numbers?"
        raise NotImplementedError

    def spent(self, place: Stored) -> list[Record]:
        "What the runs of a row have cost, helpers included."
        return [*self.records(place).values()]

    def seconds_of_a_seed(self, place: Stored) -> float:
        "Of a core, the median of the seeds that are there."
        values = [r.get("cpu_seconds", r.get("seconds", 0.0)) for r in self.records(place).values()]
        return statistics.median(values) if values else 0.0

    def number(self, place: Stored, seed: int) -> float | None:
        if place.constant is not None:
            return place.constant
        return inside(self.records(place).get(seed), place.metric)

    def seeds(self, places: Iterable[Stored]) -> set[int]:
        "Those that have all of these numbers."
        every: set[int] | None = None
        for place in places:
            if place.constant is None:
                has = {s for s in self.records(place) if self.number(place, s) is not None}
                every = has if every is None else every & has
        return every or set()


class Experiment(Source):
    "The one experiment, in one of its worlds."

    def __init__(self, file: Path, world: str):
        self.file, self.results, self.world = file, results_of(file), world

    def records(self, place: Stored) -> dict[int, Record]:
        wanted = (self.world, place.row, place.view, place.budget)
        return {
            r["seed"]: r
            for r in self.results.get("records", ())
            if (r["world"], r["row"], r["view"], r["budget"]) == wanted
        }

    def untrained(self, place: Stored) -> Stored:
        return Stored("untrained", place.view, 1)

    def commits(self, places: Iterable[Stored]) -> tuple[list[str], list[str]]:
        stamps = [
            self.results["stamps"][r["stamp"]]
            for place in places
            for r in self.records(place).values()
            if "stamp" in r
        ]
        rule, runs = ({s[k] for s in stamps} for k in ("rule", "head"))
        return sorted(rule), sorted(runs)

    @property
    def is_stamped(self) -> bool:
        return True

    def spent(self, place: Stored) -> list[Record]:
        return [r["whole"] for r in self.records(place).values() if "whole" in r]

    def seconds_of_a_seed(self, place: Stored) -> float:
        """Of a row that is not there yet: that of the standard budget, as often, or that of the
        plain toy.
        """
        standard = Stored(place.row, place.view, 1)
        for records, times in (
            (self.records(place), 1),
            (self.records(standard), place.budget),
            (Experiment(self.file, "plain").records(standard), place.budget),
        ):
            values = [r.get("cpu_seconds", 0.0) for r in records.values()]
            if values:
                return times * statistics.median(values)
        return 0.0


class SeedFile(Source):
    "A file of seeds with rows, and other numbers by name, such as a premise."

    def __init__(self, file: Path):
        self.file, self.results = file, results_of(file)

    def records(self, place: Stored) -> dict[int, Record]:
        by_seed = {}
        for entry in self.results.get("seeds", ()):
            record = self.record(entry, place)
            if record is not None:
                by_seed[entry["seed"]] = record
        return by_seed

    def record(self, entry: Record, place: Stored) -> Record | None:
        for row in entry.get("rows", ()):
            if row["run"] == place.row and row.get("view", place.view) == (
                place.view or row.get("view", "")
            ):
                return row
        return entry.get(place.row)

    def commits(self, places: Iterable[Stored]) -> tuple[list[str], list[str]]:
        rule = self.results.get("rule")
        stamps = stamps_of(self.results)
        runs = {s["head"] for s in stamps} or committed([self.results])
        return [rule] if rule else [], sorted(runs)

    @property
    def is_stamped(self) -> bool:
        return bool(stamps_of(self.results))


class Looks(Source):
    "Files of one seed each: what distances would mine, at the first look after mining began."

    def __init__(self, folder: Path, name: str):
        self.files = sorted(folder.glob(f"{name}-*.json"))

    def records(self, place: Stored) -> dict[int, Record]:
        return {
            results["seed"]: next(
                look
                for look in results["curves"]
                if look["distance"] == place.row and look["epoch"] >= FIRST_LOOK * results["epochs"]
            )
            for results in map(results_of, self.files)
        }

    def commits(self, places: Iterable[Stored]) -> tuple[list[str], list[str]]:
        return [], sorted(committed(map(results_of, self.files)))

    @property
    def is_stamped(self) -> bool:
        return False


def committed(every: Iterable[Record]) -> set[str]:
    "Of results of before stamps: the commits in which they came."
    return {results["committed"] for results in every if "committed" in results}


def source_of(folder: Path, text: str) -> Source:  # 'experiment plain'
    name, _, world = text.partition(" ")
    if world:
        return Experiment(folder / f"{name}.json", world)
    file = folder / f"{name}.json"
    return SeedFile(file) if file.exists() else Looks(folder, name)


# ---- a line


def rounded(x: float) -> float:
    return round(x, DIGITS)


def line_of(folder: Path, reading: Reading) -> Seen:
    "The numbers of a reading, by the seeds that have all of them."
    source = source_of(folder, reading.source)
    places = [p for number in reading.arms.values() for p in number.parts]
    seeds = source.seeds([*places, *(reading.premise or ())])
    order = sorted(seeds)
    arms = {name: arm_of(folder, reading, number, order) for name, number in reading.arms.items()}
    rule, runs = source.commits(p for p in places if p.constant is None) if seeds else ([], [])
    premise = premise_of(source, reading, order)
    return {
        "arms": arms if seeds else {},
        "premise": premise,
        "seeds": order,
        "planned": planned(reading, {name: arm["values"] for name, arm in arms.items()}),
        "power": powers(reading, arms),
        "hours": hours_missing(folder, reading, seeds_to_keep(reading, premise, len(order))),
        "budget": {n: spent(source, number) for n, number in reading.arms.items()} if seeds else {},
        "rule": rule,
        "runs": runs,
        "stamped": source.is_stamped,
    }


def arm_of(
    folder: Path,
    reading: Reading,
    number: Number,
    seeds: Sequence[int],
) -> dict[str, list[float]]:
    "What an arm is compared by, its R@1 and that of its untrained encoder."
    source = source_of(folder, reading.source)
    scale = PERCENT if reading.unit == "points" else 1

    def values(at: Callable[[int, Stored], float | None]) -> list[float]:  # of each seed
        made = []
        for seed in seeds:
            parts = [at(seed, place) for place in number.parts]
            if None in parts:
                return []  # not measured, if one seed lacks it
            made.append(rounded(statistics.mean(x for x in parts if x is not None)))
        return made

    def compared(seed: int) -> float:
        parts = [source.number(place, seed) for place in number.parts]
        return rounded(scale * number.of([x for x in parts if x is not None]))

    def r1(seed: int, place: Stored) -> float | None:
        x = None if place.constant is not None else inside(source.records(place).get(seed), "r1")
        return x if x is None else PERCENT * x

    def untrained(seed: int, place: Stored) -> float | None:
        if reading.untrained:
            beside, row = source_of(folder, reading.untrained[0]), reading.untrained[1]
        else:
            beside, random = source, source.untrained(place)
            if random is None or place.constant is not None:
                return None
            row = random
        x = beside.number(row, seed)
        return x if x is None else PERCENT * x

    return {
        "values": [compared(seed) for seed in seeds],
        "r1": values(r1),
        "untrained": values(untrained),
    }


def premise_of(
    source: Source,
    reading: Reading,
    seeds: Sequence[int],
) -> list[float] | None:  # of each seed
    if not reading.premise or not seeds:
        return None
    quotients = []
    for seed in seeds:
        a, b = (source.number(place, seed) for place in reading.premise)
        quotients.append(rounded((a or 0.0) / max(b or 0.0, 1e-9)))
    return quotients


def spent(source: Source, number: Number) -> dict[str, float]:
    "What an arm has cost: the median of seeds, all its runs together."
    total: dict[str, float] = {}
    rows = {(p.row, p.view, p.budget): p for p in number.parts if p.constant is None}
    for place in rows.values():
        records = source.spent(place)
        for currency in CURRENCIES:
            values = [r[currency] for r in records if currency in r]
            if values:
                total[currency] = round(total.get(currency, 0) + statistics.median(values), 1)
    return total


def seeds_to_keep(
    reading: Reading,
    premise: Sequence[float] | None,  # of each seed that is there
    seeds: int,  # that are there
) -> int:
    """Those that can stay where the planned seeds are completed: none, where the premise would be
    missed even if all others had it. Then another world is needed, with seeds of its own.
    """
    if premise is None:
        return seeds
    is_lost = Premise(tuple(premise), reading.least, reading.most).is_lost(PLANNED_SEEDS)
    return 0 if is_lost else seeds


def hours_missing(folder: Path, reading: Reading, seeds: int) -> float:
    "Hours of a core for the seeds that a reading lacks, by what the others have taken."
    if seeds >= PLANNED_SEEDS:
        return 0.0
    source, places = reading.cost or (
        reading.source,
        tuple(p for number in reading.arms.values() for p in number.parts),
    )
    rows = {(p.row, p.view, p.budget): p for p in places if p.constant is None}
    seconds = sum(source_of(folder, source).seconds_of_a_seed(p) for p in rows.values())
    return round((PLANNED_SEEDS - seeds) * seconds / 3600, 2)


# ---- how many seeds it takes


def seeds_needed(
    gain: float,  # if it is true
    spread: float,  # of the differences of a pilot
    pilot: int,  # its seeds
) -> int | None:  # at least PLANNED_SEEDS; None: more than MOST_SEEDS
    """Seeds with which a 95 % interval leaves zero out in nine cases of ten.

    Few seeds tell a spread badly, so the power is averaged over the spreads that it may come from.
    """
    quantiles = (np.arange(64) + 0.5) / 64
    spreads = spread * np.sqrt((pilot - 1) / chdtri(pilot - 1, quantiles)) + 1e-9

    def power(n: int) -> float:
        distance = np.minimum(gain * math.sqrt(n) / spreads, 30)
        return 1 - nctdtr(n - 1, distance, stdtrit(n - 1, 0.975)).mean()

    counts = range(PLANNED_SEEDS, MOST_SEEDS + 1)
    n = PLANNED_SEEDS + bisect.bisect_left(counts, POWER, key=power)
    return n if n <= MOST_SEEDS else None


def planned(
    reading: Reading,
    values: Mapping[str, Sequence[float]],  # of each arm
) -> list[int | None]:  # of each link; None: no printed gain, too few seeds, or over MOST_SEEDS
    "Seeds that the paper's own gain would take here."
    counts: list[int | None] = []
    for a, b in chain_links(reading.chain):
        differences = [y - x for x, y in zip(values[a], values[b])]
        gain, pilot = reading.claim.gains.get((a, b)), len(differences)
        known = gain is not None and pilot >= LEAST_PILOT
        counts.append(seeds_needed(gain, statistics.stdev(differences), pilot) if known else None)
    return counts


def power_of(
    differences: Sequence[float],  # of the seeds that are there
    gain: float,  # if it is true
    test: str,  # of a `Link`
) -> float:  # 0 to 1
    """How often as many seeds, spread as these are, decide a link alone for a gain.

    The differences, moved so that what is tested is the gain, are drawn with replacement DRAWS
    times; 8 seeds know their own spread badly, so this is no better than its first digit.
    """
    d = np.asarray(differences)
    n = len(d)
    middle = d.mean() if test == "signs flipped" else np.median(d)
    spread = (d - middle) * math.sqrt(n / (n - 1))
    drawn = np.random.default_rng(0).integers(n, size=(DRAWS, n))
    p_of = sign_flip if test == "signs flipped" else sign_test
    decided = 0
    for row in gain + spread[drawn]:
        centre = row.mean() if test == "signs flipped" else np.median(row)
        decided += bool(centre > 0 and p_of(row.tolist()) <= DECIDED)
    return round(decided / DRAWS, 2)


def powers(
    reading: Reading,
    arms: Mapping[str, Seen],
) -> list[float | None]:  # of each link; None: no printed gain, or too few seeds
    "The power of the seeds that are there at the paper's own gain."
    measured = {k: Arm(*(tuple(a[m]) for m in Arm.__annotations__)) for k, a in arms.items()}
    made: list[float | None] = []
    for a, b in chain_links(reading.chain):
        gain = reading.claim.gains.get((a, b))
        if gain is None or len(measured[a].values) < LEAST_PILOT:
            made.append(None)
            continue
        link = compare_arms(a, b, measured)
        made.append(power_of(link.differences, gain, link.test))
    return made


# ---- the file


def write_ledger(folder: Path) -> Path:
    out = folder / "claims.json"
    write_json(out, {"lines": {r.name: line_of(folder, r) for r in READINGS}})
    return out


def main() -> None:
    p = measurement.parser(__doc__)
    p.add_argument("--results", type=Path, default=LEDGER.parent, help="folder of the results")
    a = p.parse_args()
    out = write_ledger(a.results)
    print(plain_text(out), counted_verdicts(out), sep="\n\n")


if __name__ == "__main__":
    main()
