"""The papers' numbers with their sources, what the texts claim, and which claims are supported.

Every number of the papers' tables, of the released READMEs and of users' reports is in
`published.csv`: a line is a printed row on one task and dataset; `work` (the method under one name
over all papers) is left out where it is the printed name, and so is `kind` where a number is
quoted. The claims are in `claims.csv`.
"""

import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ..config import read_lines
from ..extras import require

# -- what was published


@dataclass(frozen=True)
class Published:
    "One number as it is printed, with its setting."

    paper: str  # whose table it is in, or whose code was run
    table: str  # 'table 6', 'text', 'README', 'issue #54'
    method: str  # name of the row as printed
    task: str  # 'retrieval', 'linear', 'finetune', 'scratch' or 'mining'
    test: str  # dataset measured on
    # 'r1', 'r5', ..., 'top1', 'pmr', 'cmr': percent; 'classes': a number of classes
    metric: str
    value: float  # as printed
    work: str = ""  # the method under one name over all papers
    kind: str = "quoted"  # 'own', 'quoted', 'release' or 'user'
    setting: str = ""  # what else tells the row from others of its table
    pretrain: str = ""  # dataset pretrained on; '': not given
    backbone: str = ""
    frames: int | None = None  # of a clip
    size: int | None = None  # side of a clip, pixels
    view: str = ""  # 'rgb', 'flow', 'residual' or 'rgb+flow'; '': not given
    split: int | None = None  # of the test dataset; None: not given
    protocol: str = ""  # where the paper or its code defines the measurement
    ablation: bool = False  # from a table that varies settings
    note: str = ""

    @property
    def source(self) -> str:  # 'CPR, table 1'
        "Where it is printed."
        released = "released " if self.table == "README" else ""
        return f"{self.paper}, {released}{self.table}"

    @property
    def input(self) -> str:  # '16x112'; '' where nothing is said
        "Frames and side of a clip."
        return "x".join(str(n) for n in (self.frames, self.size) if n)


# columns of published.csv
METRICS = ("r1", "r5", "r10", "r20", "r50", "top1", "pmr", "cmr", "classes")


def _numbers_of(
    line: dict[str, str],  # of published.csv
) -> list[Published]:  # a number for each metric
    values = {metric: line.pop(metric) for metric in METRICS}
    known: dict[str, Any] = {"work": line["method"]}
    known |= {k: v for k, v in line.items() if v}
    for name in ("frames", "size", "split"):
        if line[name]:
            known[name] = int(line[name])
    known["ablation"] = line["ablation"] == "yes"
    return [
        Published(metric=metric, value=float(value), **known)
        for metric, value in values.items()
        if value
    ]


def _read_published() -> tuple[Published, ...]:
    rows: list[Published] = []
    for line in read_lines("papers/published.csv"):
        rows += _numbers_of(line)
    return tuple(rows)


ROWS = _read_published()


# heading -> what a line of the table has there
HEADINGS = {
    "source": "source",
    "method": "method",
    "setting": "setting",
    "pretrained": "pretrain",
    "backbone": "backbone",
    "view": "view",
    "input": "input",
}


def markdown(
    rows: Iterable[Published],  # in the order to show them
) -> str:  # Markdown, a line per printed row
    "Published numbers as a table; what all its lines share stands above it. `ValueError` for none."
    lines: dict[tuple[str, ...], dict[str, str]] = {}  # its first cells -> column -> number
    for r in rows:
        key = tuple(getattr(r, name) for name in HEADINGS.values())
        lines.setdefault(key, {})[f"{r.test} {r.task} {r.metric}"] = f"{r.value:g}"
    if not lines:
        raise ValueError("there are no published numbers to put in a table")

    heads = list(HEADINGS)
    filled = [i for i in range(len(heads)) if any(key[i] for key in lines)]
    shared = []
    if len(lines) > 1:
        shared = [i for i in filled if i > 1 and len({key[i] for key in lines}) == 1]
    apart = [i for i in filled if i not in shared]
    columns = list(dict.fromkeys(c for numbers in lines.values() for c in numbers))

    table = [
        [heads[i] for i in apart] + columns,
        [":---"] * len(apart) + ["---:"] * len(columns),
    ]
    for key, numbers in lines.items():
        cells = [key[i] or "–" for i in apart]
        table.append(cells + [numbers.get(c, "–") for c in columns])
    text = "\n".join("| " + " | ".join(cells) + " |" for cells in table)
    if not shared:
        return text
    first = next(iter(lines))
    common = ", ".join(f"{heads[i]} {first[i]}" for i in shared)
    return f"All: {common}\n\n{text}"


# -- the published numbers of a recipe

# column of published.csv -> a word in the name of a recipe or of a backbone -> as printed. r3d18iic
# and the three behind it are names of ours for networks that share one in the tables
WORDS: dict[str, dict[str, str]] = {
    "work": {
        "infonce": "InfoNCE",
        "ubernce": "UberNCE",
        "coclr": "CoCLR",
        "cpr": "CPR",
        "iic": "IIC",
        "simclr": "SimCLR",
        "moquad": "MoQuad",
        "provico": "ProViCo",
    },
    "pretrain": {
        "ucf101": "UCF101",
        "hmdb51": "HMDB51",
        "k400": "Kinetics-400",
        "kinetics400": "Kinetics-400",
        "ssv2": "Something-Something V2",
    },
    "view": {
        "rgb": "rgb",
        "flow": "flow",
        "residual": "residual",
        "twostream": "rgb+flow",
    },
    "backbone": {
        "s3d": "S3D",
        "s3dg": "S3D-G",
        "r3d18": "R3D-18",
        "r3d50": "R3D-50",
        "r2plus1d18": "R(2+1)D",
        "r2plus1d": "R(2+1)D",
        "r21d18": "R(2+1)D",
        "r3d": "R3D",
        "c3d": "C3D",
        "r3d18iic": "R3D",
        "r2plus1diic": "R(2+1)D",
        "r3d18slow": "R3D-18",
        "r3d50cvrl": "R3D-50",
    },
}

# task of a row of results -> as published.csv has it
TASKS = {
    "retrieval": "retrieval",
    "linear": "linear",
    "probe": "linear",
    "finetune": "finetune",
    "scratch": "scratch",
    "mining": "mining",
}


def parts(
    name: str,  # of a recipe
) -> dict[str, str]:  # 'work', 'pretrain', 'view', 'backbone'; '': it has none
    "What the name of a recipe tells, in the words of the tables."
    words = re.split("[-_ ]", name.lower())
    named = {}
    for kind, known in WORDS.items():
        printed = [known[w] for w in words if w in known]
        named[kind] = printed[0] if printed else ""
    if {"iic", "cpr"} <= set(words):
        named["work"] = "IIC+CPR"
    return named


def match(
    name: str,  # of a recipe, such as 'infonce-ucf101-rgb'
    task: str = "retrieval",  # a key of TASKS
    metric: str = "r1",
    test: str = "",  # dataset measured on; '': the one pretrained on, for Kinetics-400 UCF101
    view: str = "",  # of the run, where the name has none
    backbone: str = "",  # likewise
) -> list[Published]:  # the nearest first; empty where nothing was published
    "The published numbers of the setting of a recipe. `ValueError` for an unknown task."
    if task not in TASKS:
        raise ValueError(f"task={task!r} is unknown; there are: {', '.join(TASKS)}")
    named = parts(name)
    work = named["work"]
    pretrain = named["pretrain"]
    if not work or not pretrain:
        return []
    view = view or named["view"]
    plain = re.sub("[-_]", "", backbone).lower()
    backbone = WORDS["backbone"].get(plain, backbone) or named["backbone"]
    if not test:
        test = "UCF101" if pretrain == "Kinetics-400" else pretrain

    def has_view(r: Published) -> bool:
        if not view or r.view == view:
            return True
        return not r.view and "+" not in view

    key = (work, TASKS[task], metric, test)
    rows = [
        r
        for r in ROWS
        if (r.work, r.task, r.metric, r.test) == key
        and pretrain in r.pretrain.split("/")
        and (not backbone or r.backbone in (backbone, ""))
        and has_view(r)
    ]
    whole = [r for r in rows if not r.ablation]
    plain_rows = [r for r in rows if not r.setting]
    return sorted(whole or plain_rows or rows, key=_distance)


KINDS = ("own", "quoted", "release", "user")  # the nearest to a paper's own number first


def _distance(r: Published) -> tuple:
    "How far a number is from the one that a run should be set beside."
    return (
        not r.view,
        KINDS.index(r.kind),
        not r.method.endswith("†"),
        "first version" in r.setting,
        bool(r.setting),
    )


# -- claims


@dataclass(frozen=True)
class Claim:
    "What a text claims, as links a < b between named numbers, and what that rests on."

    number: int  # in the ledger
    chain: str  # 'a < b < c', several separated by '; '
    paper: str = ""  # 'CPR', ...
    where: str = ""  # table, figure or section
    metric: str = ""  # of the paper
    measure: str = ""  # ours: another word where it is another number
    # the paper's numbers in the place of the names; '–' for a chain: it prints none
    printed: str = ""
    premise: str = ""  # a number without which the claim cannot be true here
    least: float = -math.inf  # of the premise
    most: float = math.inf  # likewise
    world: str = ""  # data that meet the premise
    dose: str = ""  # what turns the premise up, or why nothing did

    @property
    def links(self) -> list[tuple[str, str, float | None]]:  # (a, b, what it prints for b - a)
        "Neighbours in a chain."
        links: list[tuple[str, str, float | None]] = []
        chains = self.chain.split("; ")
        for chain, printed in zip_longest(chains, self.printed.split("; "), fillvalue=""):
            names = chain.split(" < ")
            values = [float(x) for x in printed.split(" < ") if x not in ("", "–")]
            gains: list[float | None] = [round(b - a, 2) for a, b in zip(values, values[1:])]
            if not gains:
                gains = [None] * (len(names) - 1)
            links += zip(names[:-1], names[1:], gains, strict=True)
        return links

    def meets(
        self,
        value: float | None,  # None: not measured
    ) -> bool:
        "Whether a premise of this size is enough."
        return value is not None and self.least <= value <= self.most


def _claim(
    line: dict[str, Any],  # of claims.csv
) -> Claim:
    values = dict(line)
    values["number"] = int(line["number"])
    values["least"] = float(line["least"] or "-inf")
    values["most"] = float(line["most"] or "inf")
    return Claim(**values)


CLAIMS = {c.number: c for c in map(_claim, read_lines("papers/claims.csv"))}


@dataclass(frozen=True)
class Link:
    """a < b over seeds: the mean of b - a with its 95 % interval (Student's t, differences paired
    by seed).
    """

    a: str
    b: str
    mean: float
    low: float
    high: float
    outcome: str  # 'supported' above zero, 'contradicted' below, else 'open'

    def __str__(self):
        return (
            f"{self.a} < {self.b}: {self.mean:+.3g} ({self.low:+.3g} to {self.high:+.3g}), "
            f"{self.outcome}"
        )


def judge_links(
    claim: Claim,
    # name in the chain -> a number for each seed, all in one order
    numbers: Mapping[str, Sequence[float]],
    premise: bool = True,  # whether the data meet it; if not, no interval decides
) -> list[Link]:
    "The links of a claim with their intervals. `ValueError` for fewer than three seeds."
    stdtrit = require("scipy.special", "claims").stdtrit

    wrong = _fault(claim, numbers)
    if wrong:
        raise ValueError(
            f"claim {claim.number}: {wrong}; an interval takes a number for each of three seeds "
            f'or more, for every name in "{claim.chain}"'
        )
    seeds = len(next(iter(numbers.values())))
    t = float(stdtrit(seeds - 1, 0.975))
    links = []
    for a, b, _ in claim.links:
        differences = [y - x for x, y in zip(numbers[a], numbers[b])]
        mean = statistics.mean(differences)
        half = t * statistics.stdev(differences) / math.sqrt(seeds)
        if not premise or abs(mean) <= half:
            outcome = "open"
        else:
            outcome = "supported" if mean > 0 else "contradicted"
        links.append(Link(a, b, mean, mean - half, mean + half, outcome))
    return links


def _fault(
    claim: Claim,
    numbers: Mapping[str, Sequence[float]],  # as of `judge_links`
) -> str:  # '' where nothing is wrong
    "What keeps numbers from being judged."
    for name in (name for link in claim.links for name in link[:2]):
        if name not in numbers:
            return f"there is no number for {name!r}"
    counts = {len(values) for values in numbers.values()}
    if min(counts, default=0) < 3:
        return f"there are {min(counts, default=0)} seeds"
    if len(counts) > 1:
        return "some numbers come from more seeds than others"
    if not all(math.isfinite(x) for values in numbers.values() for x in values):
        return "a number is not finite"
    return ""


# -- the ledger: what was measured here

LEDGER = Path(__file__).parents[2] / "results" / "claims.json"
FIELDS = (
    "number",
    "chain",
    "numbers",
    "seeds",
    "planned",
    "fresh",
    "rule",
    "premise",
    "budget",
    "others",
    "why",
    "runs",
)  # of a row, as benchmarks/claims.py writes it


def read_ledger(
    path: str | Path = LEDGER,
) -> dict[int, dict[str, Any]]:  # number of a claim -> its row
    "What was measured. `ValueError` for a row without its runs, or from fewer than three seeds."
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path}: there is no ledger; it lies in results/ of a clone") from None
    except ValueError as e:
        raise ValueError(f"{path}: not readable as JSON ({e}); take the one of the clone") from e
    rows = content if isinstance(content, list) else [content]
    for i, row in enumerate(rows, 1):
        _check_row(Path(path), i, row)
    return {row["number"]: row for row in rows}


def _check_row(
    path: Path,  # of the ledger
    i: int,  # number of the row
    row: Any,
) -> None:
    "Refuse a row that is none of this version, or whose runs are missing. `ValueError`."
    lost = [k for k in FIELDS if not isinstance(row, dict) or k not in row]
    claim = None if lost else CLAIMS.get(row["number"])
    if claim is None or claim.chain != row["chain"]:
        wrong = f"has no {lost[0]}" if lost else "is no claim of this version"
        raise ValueError(
            f"{path}: row {i} {wrong}; write the ledger again with benchmarks/claims.py"
        )
    for run in row["runs"] or ("none is named",):
        if not path.with_name(run).is_file():
            raise ValueError(
                f"{path}: claim {claim.number} stands without its runs ({run}); put them beside "
                "the ledger and write it again with benchmarks/claims.py"
            )
    try:
        judge_links(claim, row["numbers"])
    except (AttributeError, TypeError, ValueError) as e:
        raise ValueError(f"{path}: {e}") from None


def verdict(
    claim: Claim,
    row: Mapping[str, Any] | None,
) -> tuple[str, str]:  # (outcome, why it is open)
    """Supported where all links are, contradicted where one is; open, too, where the data lack the
    premise.
    """
    if row is None:
        return "open", f"not run; it takes {claim.world}"
    if row["premise"] is None:
        return "open", f"the premise was not measured; it takes {claim.world}"
    if not claim.meets(row["premise"]):
        return "open", f"the world lacks the premise; it takes {claim.world}"
    outcomes = {link.outcome for link in judge_links(claim, row["numbers"])}
    if "contradicted" in outcomes:
        return "contradicted", ""
    if "open" in outcomes:
        return "open", "an interval includes zero"
    return "supported", ""


def _measured_cells(
    claim: Claim,
    row: Mapping[str, Any],  # of the ledger
) -> dict[str, str]:  # columns of `ledger_rows`
    "What a ledger has of a claim that was run."
    links = judge_links(claim, row["numbers"], claim.meets(row["premise"]))
    intervals = []
    for link, seeds, (_, _, gain) in zip(links, row["planned"], claim.links):
        planned = ""
        if gain:
            planned = f"; the paper: {gain:+.3g}, which takes {seeds or 'more than 64'} seeds"
        intervals.append(f"{link}{planned}")

    about_seeds = [str(min(map(len, row["numbers"].values())))]
    about_seeds.append(f"rule: {row['rule']}" if row["rule"] else "before the rule")
    if not row["fresh"]:
        about_seeds.append("settings chosen on these seeds")

    elsewhere = []
    for world, premise, values in row["others"]:
        for link in judge_links(claim, values, claim.meets(premise)):
            elsewhere.append(f"{world}: {link}{_lacking(claim, premise)}")
    return {
        "b − a, 95 % interval": "\n".join(intervals),
        "seeds": "; ".join(about_seeds),
        "budget": row["budget"],
        "elsewhere": "\n".join(elsewhere),
        "why": row["why"],
    }


def _lacking(claim: Claim, premise: float | None) -> str:  # '' where it is met
    if claim.meets(premise):
        return ""
    if premise is None:
        return " (its premise was not measured)"
    return " (it lacks the premise)"


def _bounds(claim: Claim) -> str:  # 'at least 12, at most 60'
    "What a premise takes."
    bounds = []
    if claim.least > -math.inf:
        bounds.append(f"at least {claim.least:g}")
    if claim.most < math.inf:
        bounds.append(f"at most {claim.most:g}")
    return ", ".join(bounds)


def ledger_rows(
    path: str | Path = LEDGER,
    numbers: Iterable[int] = tuple(CLAIMS),  # of the claims to show
) -> list[dict[str, str]]:  # column -> text, lines separated by '\n'
    "The ledger as lines of a table: every claim, also what was not run."
    ledger = read_ledger(path)
    rows = []
    for claim in (CLAIMS[n] for n in numbers):
        row = ledger.get(claim.number)
        measured = row is not None and row["premise"] is not None
        premise = f"{row['premise']:.3g}" if row and measured else "not measured"
        of_paper = f" (paper: {claim.metric})" if claim.metric != claim.measure else ""
        outcome, why = verdict(claim, row)
        cells = {
            "#": str(claim.number),
            "source": f"{claim.paper}, {claim.where}",
            "claim": f"{claim.measure}{of_paper}: {claim.chain}",
            "here": f"{outcome}: {why}" if why else outcome,
            "premise": f"{claim.premise}: {premise}, needed {_bounds(claim)}",
            "dose": claim.dose,
        }
        rows.append(cells | (_measured_cells(claim, row) if row else {}))
    return rows


LEDGER_COLUMNS = (
    "#",
    "source",
    "claim",
    "here",
    "b − a, 95 % interval",
    "seeds",
    "premise",
    "budget",
    "dose",
    "elsewhere",
    "why",
)


def ledger_markdown(
    path: str | Path = LEDGER,
    numbers: Iterable[int] = tuple(CLAIMS),
    columns: Sequence[str] = LEDGER_COLUMNS,  # those to show
) -> str:
    "The ledger as a Markdown table."

    def line(words):
        return f"| {' | '.join(words)} |".replace("\n", "<br>")

    lines = [line(columns), "|---" * len(columns) + "|"]
    for row in ledger_rows(path, numbers):
        lines.append(line(row.get(c, "") for c in columns))
    return "\n".join(lines)


def ledger_text(
    path: str | Path = LEDGER,
    numbers: Iterable[int] = tuple(CLAIMS),
) -> str:
    "The ledger for a terminal: a line for each claim, and below it what it rests on."
    lines = []
    for row in ledger_rows(path, numbers):
        lines.append(f"{row['#']:>2}  {row['source']}: {row['claim']}")
        lines.append(f"    {row['here']}")
        for column in LEDGER_COLUMNS[4:]:
            texts = row.get(column, "").split("\n")
            lines += [f"    {column}: {text}" for text in texts if text]
    return "\n".join(lines)


def ledger_count(path: str | Path = LEDGER) -> str:
    "How many claims are supported, contradicted and open, in a sentence."
    outcomes: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for row in ledger_rows(path):
        outcome, *why = row["here"].split(": ")
        outcomes[outcome] += 1
        if why:
            reasons[why[0].split(";")[0]] += 1
    because = ", ".join(f"{reason}: {n}" for reason, n in reasons.most_common())
    return (
        f"Of {len(CLAIMS)} claims {outcomes['supported']} are supported, "
        f"{outcomes['contradicted']} contradicted and {outcomes['open']} open ({because})."
    )
