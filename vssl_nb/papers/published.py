"""The papers' numbers with their sources, what the texts claim, and which claims are supported here.

Every number of the papers' tables, of the released READMEs and of users' reports is in `published.csv`: a
line is a printed row on one task and dataset; `work` (the method under one name over all papers) is left out
where it is the printed name, and so is `kind` where a number is quoted. The claims are in `claims.csv`."""

import json, math, re, statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ..config import read_lines


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
    def source(self) -> str:
        return f"{self.paper}, {'released ' if self.table == 'README' else ''}{self.table}"


# columns of published.csv
METRICS = ("r1", "r5", "r10", "r20", "r50", "top1", "pmr", "cmr", "classes")


def _published(
    line: dict[str, str],
) -> list[Published]:  # a number for each metric
    values = {m: line.pop(m) for m in METRICS}
    known: dict[str, Any] = {"work": line["method"]} | {k: v for k, v in line.items() if v}
    known |= {k: int(line[k]) for k in ("frames", "size", "split") if line[k]}
    known["ablation"] = line["ablation"] == "yes"
    return [Published(metric=m, value=float(v), **known) for m, v in values.items() if v]


ROWS: tuple[Published, ...] = tuple(
    r for line in read_lines("papers/published.csv") for r in _published(line)
)


def markdown(
    rows: Iterable[Published],  # in the order to show them
) -> str:  # Markdown, a line per printed row
    "Published numbers as a table; what all its lines share stands above it. `ValueError` for none."
    rows = list(rows)
    if not rows:
        raise ValueError("there are no published numbers to put in a table")
    heads = ("source", "method", "setting", "pretrained", "backbone", "view", "input")
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for r in rows:
        key = (
            r.source,
            r.method,
            r.setting,
            r.pretrain,
            r.backbone,
            r.view,
            "x".join(str(n) for n in (r.frames, r.size) if n),
        )
        lines.setdefault(key, {})[f"{r.test} {r.task} {r.metric}"] = f"{r.value:g}"
    columns = list(dict.fromkeys(c for values in lines.values() for c in values))
    filled = [i for i in range(len(heads)) if any(line[i] for line in lines)]
    shared = [
        i for i in filled if i > 1 and len(lines) > 1 and len({line[i] for line in lines}) == 1
    ]
    where = [i for i in filled if i not in shared]
    table = [[heads[i] for i in where] + columns, [":---"] * len(where) + ["---:"] * len(columns)]
    table += [
        [line[i] or "–" for i in where] + [values.get(c, "–") for c in columns]
        for line, values in lines.items()
    ]
    common = ", ".join(f"{heads[i]} {next(iter(lines))[i]}" for i in shared)
    return f"All: {common}\n\n" * bool(shared) + "\n".join(
        "| " + " | ".join(line) + " |" for line in table
    )


# 'work', 'pretrain', 'view', 'backbone': word of a name -> as printed
WORDS: dict[str, dict[str, str]] = {}
for _line in read_lines("papers/words.csv"):
    WORDS.setdefault(_line["kind"], {})[_line["word"]] = _line["printed"]
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
    named = {
        kind: next((known[w] for w in words if w in known), "") for kind, known in WORDS.items()
    }
    return named | ({"work": "IIC+CPR"} if {"iic", "cpr"} <= set(words) else {})


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
    work, pretrain, view = named["work"], named["pretrain"], view or named["view"]
    known = WORDS["backbone"]
    backbone = known.get(re.sub("[-_]", "", backbone).lower(), backbone) or named["backbone"]
    if not work or not pretrain:
        return []
    test = test or ("UCF101" if pretrain == "Kinetics-400" else pretrain)
    rows = [
        r
        for r in ROWS
        if (r.work, r.task, r.metric, r.test) == (work, TASKS[task], metric, test)
        and pretrain in r.pretrain.split("/")
        and (not backbone or r.backbone in (backbone, ""))
        and (r.view == view or not view or not r.view and "+" not in view)
    ]
    whole = [r for r in rows if not r.ablation] or [r for r in rows if not r.setting] or rows
    return sorted(
        whole,
        key=lambda r: (
            not r.view,
            ("own", "quoted", "release", "user").index(r.kind),
            not r.method.endswith("†"),
            "first version" in r.setting,
            bool(r.setting),
        ),
    )


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
    # (a, b, what the paper prints for b - a)
    def links(self) -> list[tuple[str, str, float | None]]:
        "Neighbours in a chain."
        links: list[tuple[str, str, float | None]] = []
        for chain, printed in zip_longest(
            self.chain.split("; "), self.printed.split("; "), fillvalue=""
        ):
            names, values = (
                chain.split(" < "),
                [float(x) for x in printed.split(" < ") if x not in ("", "–")],
            )
            gains: list[float | None] = [round(b - a, 2) for a, b in zip(values, values[1:])]
            links += zip(names[:-1], names[1:], gains or [None] * (len(names) - 1), strict=True)
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
    bounds = {"least": float(line["least"] or "-inf"), "most": float(line["most"] or "inf")}
    return Claim(**line | bounds | {"number": int(line["number"])})


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
    from scipy.special import stdtrit

    lost = [x for link in claim.links for x in link[:2] if x not in numbers]
    n, values = (
        min(map(len, numbers.values()), default=0),
        [x for each in numbers.values() for x in each],
    )
    wrong = (
        f"there is no number for {lost[0]!r}"
        if lost
        else f"there are {n} seeds"
        if n < 3
        else "some numbers come from more seeds than others"
        if len(values) != n * len(numbers)
        else "a number is not finite"
        if not all(map(math.isfinite, values))
        else ""
    )
    if wrong:
        raise ValueError(
            f"claim {claim.number}: {wrong}; an interval takes a number for each of three seeds "
            f'or more, for every name in "{claim.chain}"'
        )
    links = []
    for a, b, _ in claim.links:
        d = [y - x for x, y in zip(numbers[a], numbers[b])]
        mean, half = (
            statistics.mean(d),
            float(stdtrit(n - 1, 0.975)) * statistics.stdev(d) / math.sqrt(n),
        )
        outcome = (
            "open"
            if not premise or abs(mean) <= half
            else "supported"
            if mean > 0
            else "contradicted"
        )
        links.append(Link(a, b, mean, mean - half, mean + half, outcome))
    return links


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
        rows = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path}: there is no ledger; it lies in results/ of a clone") from None
    except ValueError as e:
        raise ValueError(f"{path}: not readable as JSON ({e}); take the one of the clone") from e
    for i, row in enumerate(rows if isinstance(rows, list) else [rows], 1):
        lost = [k for k in FIELDS if not isinstance(row, dict) or k not in row]
        if lost or (claim := CLAIMS.get(row["number"])) is None or claim.chain != row["chain"]:
            wrong = f"has no {lost[0]}" if lost else "is no claim of this version"
            raise ValueError(
                f"{path}: row {i} {wrong}; write the ledger again with benchmarks/claims.py"
            )
        for run in row["runs"] or ("none is named",):
            if not Path(path).with_name(run).is_file():
                raise ValueError(
                    f"{path}: claim {claim.number} stands without its runs ({run}); "
                    "put them beside the ledger and write it again with benchmarks/claims.py"
                )
        try:
            judge_links(claim, row["numbers"])
        except (AttributeError, TypeError, ValueError) as e:
            raise ValueError(f"{path}: {e}") from None
    return {row["number"]: row for row in rows}


def verdict(
    claim: Claim,
    row: Mapping[str, Any] | None,
) -> tuple[str, str]:  # (outcome, why it is open)
    """Supported where all links are, contradicted where one is; open, too, where the data lack the
    premise.
    """
    if row is None:
        return "open", f"not run; it takes {claim.world}"
    if not claim.meets(row["premise"]):
        why = (
            "the premise was not measured"
            if row["premise"] is None
            else "the world lacks the premise"
        )
        return "open", f"{why}; it takes {claim.world}"
    outcomes = {link.outcome for link in judge_links(claim, row["numbers"])}
    if "contradicted" in outcomes:
        return "contradicted", ""
    return ("open", "an interval includes zero") if "open" in outcomes else ("supported", "")


def _texts(
    claim: Claim,
    row: Mapping[str, Any],
) -> dict[str, str]:  # columns of `ledger_rows`
    links = judge_links(claim, row["numbers"], claim.meets(row["premise"]))
    seeds = [
        str(min(map(len, row["numbers"].values()))),
        f"rule: {row['rule']}" if row["rule"] else "before the rule",
        *([] if row["fresh"] else ["settings chosen on these seeds"]),
    ]
    plans = [
        f"; the paper: {gain:+.3g}, which takes {n or 'more than 64'} seeds" if gain else ""
        for n, (_, _, gain) in zip(row["planned"], claim.links)
    ]

    def lacking(value):
        return (
            ""
            if claim.meets(value)
            else " (its premise was not measured)"
            if value is None
            else " (it lacks the premise)"
        )

    others = [
        f"{where}: {link}{lacking(premise)}"
        for where, premise, values in row["others"]
        for link in judge_links(claim, values, claim.meets(premise))
    ]
    return {
        "b − a, 95 % interval": "\n".join(f"{link}{plan}" for link, plan in zip(links, plans)),
        "seeds": "; ".join(seeds),
        "budget": row["budget"],
        "elsewhere": "\n".join(others),
        "why": row["why"],
    }


def ledger_rows(
    path: str | Path = LEDGER,
    numbers: Iterable[int] = tuple(CLAIMS),  # of the claims to show
) -> list[dict[str, str]]:  # column -> text, lines separated by '\n'
    "The ledger as lines of a table: every claim, also what was not run."
    ledger, rows = read_ledger(path), []
    for claim in (CLAIMS[n] for n in numbers):
        row = ledger.get(claim.number)
        value = "not measured" if row is None or row["premise"] is None else f"{row['premise']:.3g}"
        bounds = f"at least {claim.least:g}, at most {claim.most:g}".replace("at least -inf, ", "")
        of_paper = f" (paper: {claim.metric})" if claim.metric != claim.measure else ""
        rows.append(
            {
                "#": str(claim.number),
                "source": f"{claim.paper}, {claim.where}",
                "claim": f"{claim.measure}{of_paper}: {claim.chain}",
                "here": ": ".join(filter(None, verdict(claim, row))),
                "premise": f"{claim.premise}: {value}, needed {bounds.replace(', at most inf', '')}",
                "dose": claim.dose,
                **(_texts(claim, row) if row else {}),
            }
        )
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

    return "\n".join(
        [
            line(columns),
            "|---" * len(columns) + "|",
            *(line(r.get(c, "") for c in columns) for r in ledger_rows(path, numbers)),
        ]
    )


def ledger_text(path: str | Path = LEDGER, numbers: Iterable[int] = tuple(CLAIMS)) -> str:
    "The ledger for a terminal: a line for each claim, and below it what it rests on."
    lines = []
    for r in ledger_rows(path, numbers):
        lines += [f"{r['#']:>2}  {r['source']}: {r['claim']}", f"    {r['here']}"]
        lines += [
            f"    {c}: {text}"
            for c in LEDGER_COLUMNS[4:]
            for text in r.get(c, "").split("\n")
            if text
        ]
    return "\n".join(lines)


def ledger_count(path: str | Path = LEDGER) -> str:
    "How many claims are supported, contradicted and open, in a sentence."
    verdicts = [r["here"].split(": ") for r in ledger_rows(path)]
    of, why = (
        Counter(x[0] for x in verdicts),
        Counter(x[1].split(";")[0] for x in verdicts if x[1:]),
    )
    return (
        f"Of {len(CLAIMS)} claims {of['supported']} are supported, {of['contradicted']} "
        "contradicted and "
        f"{of['open']} open ({', '.join(f'{reason}: {n}' for reason, n in why.most_common())})."
    )
