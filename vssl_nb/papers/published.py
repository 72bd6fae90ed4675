"""The papers' numbers with their sources.

The numbers of the papers' tables, of the released READMEs and of users' reports are in
`published.csv`, but for those that its last lines name: a line is a printed row on one task and
dataset; `work` (the method under one name over all papers) is left out where it is the printed
name, and so is `kind` where a number is quoted. What the papers claim is in `papers.ledger`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..config import read_lines

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
