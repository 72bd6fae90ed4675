"""The table of the one experiment as the lessons show it, and a row of it trained on a page.

`results/experiment.json` has up to eight seeds of each row, made by `benchmarks/experiment.py`, and
`results/course.json` has the recipes of SEED. A lesson shows the rows that it and the lessons
before it have added, and trains one of them anew: the same videos, weights and order of clips, with
one thread in float32, so that the number on the page is the stored one up to the last digits of a
processor. A network of an earlier row that a row needs lies in `results/course`. These files belong
to the repository: an installed package alone has no table.
"""

import csv
import hashlib
import itertools
import json
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ..config import Recipe, difference, from_dict, override
from ..data import toy
from ..data.dataset import VideoCache
from ..data.manifest import Manifest, read
from ..files import exclusive_lock
from ..measure.conflicts import conflict_parts
from ..measure.features import Features, extract
from ..measure.health import conflict_shares
from ..measure.retrieval import compare_features
from ..methods.recipes import to_dict
from ..training.checkpoints import load
from ..training.loop import TrainingState, fit
from ..training.machine import Machine
from ..runs.evaluation import EvaluatedEncoder, open_trained, untrained_encoder
from ..runs.experiment import resolve
from ..runs.pretraining import pretrain
from .lesson_tables import (
    CHANCE,
    DIFFERENCES,
    FRAMES,
    SEES,
    CellTable,
    Difference,
    DifferenceTable,
    LessonRow,
    LessonTable,
    Trials,
)

ROOT = Path(__file__).resolve().parents[2]  # of a clone
RESULTS = ROOT / "results" / "experiment.json"
RECIPE_FILE = ROOT / "results" / "course.json"
NETWORK_FOLDER = ROOT / "results" / "course"  # a folder for each network that a row needs
SEED = 41  # of the rows that the lessons train
CACHE = 2**31  # bytes of decoded videos

# lesson -> the rows that it adds to the table, each with the view that it learns from
LESSONS: dict[str, tuple[tuple[str, str], ...]] = {
    "01": (
        ("chance", FRAMES),
        ("histogram", FRAMES),
        ("untrained", FRAMES),
    ),
    "02": (),
    "03": (),
    "04": (("infonce", FRAMES),),
    "05": (("slow copy", FRAMES), ("queue", FRAMES)),
    "06": (("byol", FRAMES),),
    "07": (("ubernce", FRAMES),),
    "08": (("untrained", DIFFERENCES), ("infonce", DIFFERENCES)),
    "09": (("itself", FRAMES), ("untrained differences", FRAMES)),
    "10": (("coclr", FRAMES),),
    "11": (("coclr, again", FRAMES), ("cascade", FRAMES)),
    "12": (("cmc", FRAMES), ("bank, shuffled", FRAMES), ("iic", FRAMES)),
    "13": (("moquad 0", FRAMES), ("moquad 3", FRAMES)),
    "14": (),
    "15": (("provico", FRAMES),),
    "16": (),
    "17": (("lejepa", FRAMES), ("lejepa", DIFFERENCES)),
    "18": (
        ("transformer", FRAMES),
        ("masked pixels", FRAMES),
        ("masked features", FRAMES),
        ("masked motion", FRAMES),
    ),
    "19": (),
    "20": (),
    "21": (),
}
# how a row is written where people read it
WRITTEN = {
    "chance": "chance",
    "histogram": "colour histogram",
    "untrained": "untrained",
    "infonce": "InfoNCE",
    "slow copy": "InfoNCE + slow copy",
    "queue": "InfoNCE + queue",
    "byol": "BYOL",
    "ubernce": "UberNCE (labels)",
    "itself": "mined by itself",
    "untrained differences": "mined by untrained differences",
    "coclr": "CoCLR",
    "coclr, again": "CoCLR, run twice",
    "cascade": "CoCLR + CPR",
    "cmc": "CMC: second view",
    "bank, shuffled": "shuffled clips alone",
    "iic": "IIC: both",
    "moquad 0": "MoQuad, rung 0",
    "moquad 1": "MoQuad, rung 1",
    "moquad 2": "MoQuad, rung 2",
    "moquad 3": "MoQuad, rung 3",
    "provico": "ProViCo",
    "lejepa": "LeJEPA",
    "transformer": "InfoNCE, transformer",
    "untrained transformer": "untrained, transformer",
    "masked pixels": "masked pixels",
    "masked features": "masked features",
    "masked motion": "masked motion",
    "ubernce, own key dropped": "UberNCE, own key dropped",
    "supcon": "UberNCE, mean of logs",
    "supcon, own key dropped": "UberNCE, mean of logs, own key dropped",
    "coclr, own key kept": "CoCLR, own key kept",
    "coclr, begun": "CoCLR, begun with InfoNCE",
    "coclr, second phase": "CoCLR, second phase",
    "coclr, both streams": "CoCLR, both streams",
    "cmc, released": "CMC, released loss",
    "bank, repeated": "repeated clips alone",
    "bank, reversed": "reversed clips alone",
    "bank, patches": "exchanged quarters alone",
    "iic, patches": "IIC, exchanged quarters",
    "iic, released, length 1": "IIC, released loss, length 1",
}
# rows and views that a short table keeps
LANDMARKS = (
    ("chance", FRAMES),
    ("untrained", FRAMES),
    ("infonce", FRAMES),
    ("infonce", DIFFERENCES),
    ("coclr", FRAMES),
    ("iic", FRAMES),
)

BOTH_STREAMS = "coclr, both streams"  # measured on frames and differences together


class CourseError(ValueError):
    "A row or a file of the one experiment that is not there."


def recipe_digest(recipe: Recipe) -> str:  # 12 hexadecimal digits
    "Of all that decides a training; name, words and reasons are left out."
    data = {k: v for k, v in to_dict(recipe).items() if k not in ("name", "about", "reasons")}
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:12]


# ---- the table


@lru_cache(maxsize=1)
def stored_records() -> tuple[dict[str, Any], ...]:
    "All records of the one experiment, a row, view, budget and seed each. `CourseError`."
    if not RESULTS.exists():
        raise CourseError(
            f"{RESULTS}: there is no such file; the lessons read it from a clone of the repository"
        )
    return tuple(json.loads(RESULTS.read_text(encoding="utf-8"))["records"])


def seeds_of(
    row: str,  # of the table
    view: str = FRAMES,
    budget: int = 1,  # times the standard one
    world: str = "plain",
) -> list[dict[str, Any]]:  # of each seed, in order
    "The stored records of a row. `CourseError`."
    wanted = {"row": row, "view": view, "budget": budget, "world": world}
    records = [r for r in stored_records() if wanted.items() <= r.items()]
    if not records:
        names = sorted({r["row"] for r in stored_records()})
        raise CourseError(
            f"row={row!r}, view={view!r}, budget={budget}, world={world!r}: is not in {RESULTS}; "
            f"the rows are {', '.join(names)}"
        )
    return sorted(records, key=lambda r: r["seed"])


def median_of(
    row: str,
    metric: str = "r1",  # 'r1', 'r5', 'scene', 'motion' or 'probe'
    view: str = FRAMES,
    **where,  # budget and world, as of `seeds_of`
) -> float:  # percent
    "The median over the seeds of a row. `CourseError`."
    return statistics.median(100 * r[metric] for r in seeds_of(row, view, **where))


def lesson_table(
    lesson: str,  # two digits; the table ends with the rows that it adds
) -> LessonTable:
    "The table so far. `CourseError`."
    rows = []
    for name, added in _up_to(lesson).items():
        rows += [_table_row(row, view, name == lesson) for row, view in added]
    return LessonTable(tuple(rows))


def added_rows(
    lesson: str,  # two digits
    beside: Sequence[tuple[str, str]] = (),  # further rows and views, above the added ones
) -> LessonTable:
    "The rows that a lesson adds, below chance, random weights and InfoNCE. `CourseError`."
    *before, (_, added) = _up_to(lesson).items()
    known = {row for _, rows in before for row in rows}
    views = dict.fromkeys(view for _, view in added)
    landmarks = [("chance", FRAMES)]
    landmarks += [(row, view) for view in views for row in ("untrained", "infonce")]
    old = [*(row for row in landmarks if row in known), *beside]
    rows = [_table_row(*row, False) for row in old] + [_table_row(*row, True) for row in added]
    return LessonTable(tuple(rows))


def _up_to(lesson: str) -> dict[str, tuple[tuple[str, str], ...]]:
    "The lessons up to one, and the rows that each adds."
    if lesson not in LESSONS:
        raise CourseError(f"lesson={lesson!r}: give two digits, one of {', '.join(LESSONS)}")
    return {name: rows for name, rows in LESSONS.items() if name <= lesson}


def rows_table(
    *rows: tuple[str, str],  # row and view
    budget: int = 1,  # times the standard one
    world: str = "plain",
) -> LessonTable:
    "Some rows of the experiment, in this order. `CourseError`."
    return LessonTable(tuple(_table_row(*row, False, budget, world) for row in rows), world)


def _seen(row: str, view: str) -> str:
    "Which view a row is measured on, in words; '' of what sees neither."
    if row in ("chance", "histogram"):
        return ""
    return "both" if row == BOTH_STREAMS else SEES[view]


def _written(row: str, budget: int = 1) -> str:
    "The name of a row on a page; with more than the standard budget its times: 'CoCLR ×2'."
    return WRITTEN.get(row, row) + (f" ×{budget}" if budget > 1 else "")


def _table_row(
    row: str,
    view: str,
    new: bool,  # added by the lesson
    budget: int = 1,
    world: str = "plain",
) -> LessonRow:
    records = seeds_of(row, view, budget, world)

    def median(metric: str) -> float:
        return 100 * statistics.median(r[metric] for r in records)

    whole = [r["whole"] for r in records if "whole" in r]
    return LessonRow(
        _written(row, budget),
        _seen(row, view),
        tuple(100 * r["r1"] for r in records),
        median("scene"),
        median("motion"),
        round(statistics.median(w["steps"] for w in whole)) if whole else 0,
        statistics.median(w["cpu_seconds"] for w in whole) if whole else 0.0,
        new,
        (row, view) in LANDMARKS,
        CHANCE[world],
    )


# ---- differences


def difference_of(
    a: str,  # a row
    b: str,  # another row
    metric: str = "r1",  # 'r1', 'r5', 'scene', 'motion' or 'probe'
    views: tuple[str, str] = (FRAMES, FRAMES),  # of a and b
    budgets: tuple[int, int] = (1, 1),  # of a and b
    world: str = "plain",
) -> Difference:
    "What the seeds of two rows differ by; the interval of the exact test. `CourseError`."
    lines = [seeds_of(row, view, n, world) for row, view, n in zip((a, b), views, budgets)]
    by_seed = [{r["seed"]: 100 * r[metric] for r in line} for line in lines]
    shared = sorted(by_seed[0].keys() & by_seed[1].keys())
    first, second = (
        _written(row, budget)
        + ("" if views == (FRAMES, FRAMES) or row == BOTH_STREAMS else f" on {SEES[view]}")
        for row, view, budget in zip((a, b), views, budgets)
    )
    paired = tuple(by_seed[0][s] - by_seed[1][s] for s in shared)
    return Difference(first, second, metric, paired, world)


def differences(
    *given: Difference,  # of `difference_of`
) -> DifferenceTable:
    "Several differences as one table."
    return DifferenceTable(given)


def tried(
    row: str,  # whose settings were searched
    view: str = FRAMES,
) -> Trials:
    "What the search of a row's settings has measured, on a seed of its own. `CourseError`."
    file = json.loads(RESULTS.read_text(encoding="utf-8"))
    trials = tuple(t for t in file["search"] if (t["row"], t["view"]) == (row, view))
    if not trials:
        raise CourseError(f"row={row!r}, view={view!r}: its settings were not searched")
    return Trials(f"{WRITTEN.get(row, row)} on {SEES[view]}", trials)


def cells(
    rows: Mapping[tuple[str, str], str],  # (line, column) -> row; the first one is compared with
) -> CellTable:
    "Rows on frames in two directions. `CourseError`."
    base = next(iter(rows.values()))
    r1 = {key: [100 * r["r1"] for r in seeds_of(row)] for key, row in rows.items()}
    gains = {key: difference_of(row, base) for key, row in rows.items() if row != base}
    return CellTable(r1, gains)


# ---- a row, live


@dataclass(frozen=True)
class CourseVideos:
    "The videos of the lessons, decoded once a page."

    folder: Path
    manifest: Manifest  # training and test videos
    conflicts: Manifest  # the same, and the conflicts as test videos
    cache: VideoCache = field(repr=False)
    conflict_cache: VideoCache = field(repr=False)


def is_test() -> bool:
    "Does this page run as a test? Then it trains for seconds on few videos."
    return "IN_TEST" in os.environ


@lru_cache(maxsize=1)
def course_videos(
    size: str = "",  # of the toy; '': 'demo', and 'tiny' where a page runs as a test
) -> CourseVideos:
    "The toy videos of SEED, written below `runs/course` where they are not there yet."
    size = size or ("tiny" if is_test() else "demo")
    folder = ROOT / "runs" / "course" / f"toy-{size}-{SEED}"
    manifest = read(toy.make(folder, size, SEED, workers=1, progress=False))
    conflicts = read(toy.make_conflict(folder, 1, progress=False))
    cache, conflict_cache = VideoCache(manifest, CACHE), VideoCache(conflicts, CACHE)
    # the first rows of both are the same: they are decoded once
    conflict_cache.kept = cache.kept
    return CourseVideos(folder, manifest, conflicts, cache, conflict_cache)


@dataclass(frozen=True)
class LiveRow:
    "A row that was trained on a page, beside the stored one; it displays itself."

    recipe: Recipe
    encoder: EvaluatedEncoder
    features: Mapping[str, Features]  # 'train', 'test' and 'conflict'
    r1: float  # percent
    scene: float  # percent
    motion: float  # percent
    seconds: float | None  # of its training, on the clock; None: not trained by this call
    stored: Mapping[str, Any] | None  # of the same seed; None: as a test, or of no row

    def __repr__(self) -> str:
        numbers = f"R@1 {self.r1:.1f} %, scene {self.scene:.1f} %, motion {self.motion:.1f} %"
        here = f"here:   {numbers}" + ("" if self.seconds is None else f", in {self.seconds:.0f} s")
        if self.stored is None:
            return here
        r1, scene, motion = (100 * self.stored[k] for k in ("r1", "scene", "motion"))
        stored = f"stored: R@1 {r1:.1f} %, scene {scene:.1f} %, motion {motion:.1f} %"
        return f"{here}\n{stored}\n{self._of_all_seeds()}"

    def _of_all_seeds(self) -> str:
        "What the other seeds of the row have: one seed may be its best or its worst."
        assert self.stored is not None
        where = {k: self.stored[k] for k in ("row", "view", "budget", "world")}
        r1 = [100 * r["r1"] for r in seeds_of(**where)]
        return (
            f"{len(r1)} seeds: R@1 {min(r1):.1f} to {max(r1):.1f} %, "
            f"median {statistics.median(r1):.1f} %"
        )


@lru_cache(maxsize=1)
def _course_recipes() -> Mapping[str, Mapping[str, Any]]:
    if not RECIPE_FILE.exists():
        raise CourseError(
            f"{RECIPE_FILE}: there is no such file; the lessons read it from a clone of the "
            "repository"
        )
    recipes: Mapping[str, Mapping[str, Any]] = json.loads(RECIPE_FILE.read_text(encoding="utf-8"))
    return recipes


def row_recipe(
    row: str,  # of the table
    view: str = FRAMES,
) -> Recipe:  # of SEED
    "The recipe of a row, with all that the search has chosen. `CourseError`."
    return from_dict(_stored_recipe(row, view)["recipe"], str(RECIPE_FILE))


def _stored_recipe(row: str, view: str) -> Mapping[str, Any]:
    name = f"{row}, {view}"
    if name not in _course_recipes():
        raise CourseError(
            f"row={row!r}, view={view!r}: is not in {RECIPE_FILE}; it has "
            f"{'; '.join(_course_recipes())}"
        )
    return _course_recipes()[name]


def recipe_changes(
    a: tuple[str, str],  # row and view
    b: tuple[str, str],  # another one
) -> dict[str, tuple[Any, Any]]:  # field -> (value in a, value in b)
    "What the recipes of two rows do not share, without their names. `CourseError`."
    differing = difference(row_recipe(*a), row_recipe(*b))
    return {k: v for k, v in differing.items() if k != "name"}


def train_row(
    row: str,  # of the table
    view: str = FRAMES,
) -> LiveRow:
    "Train a row with SEED, and measure it as the experiment does. `CourseError`."
    recipe = row_recipe(row, view)
    stored = next((r for r in seeds_of(row, view) if r["seed"] == SEED), None)
    if is_test():
        recipe, stored = override(recipe, epochs=1), None
    networks = {
        k: NETWORK_FOLDER / name for k, name in _stored_recipe(row, view)["networks"].items()
    }
    videos = course_videos()
    digest = recipe_digest(recipe)
    folder = videos.folder.parent / f"{recipe.name}-{videos.folder.name}-{digest}"
    # two pages may train the same row: the second one waits, and finds it trained
    with exclusive_lock(folder.with_name(f"{folder.name}.lock")), one_thread():
        begun = (folder / "last.pt").exists()  # an earlier page, or a kernel that was stopped
        start = time.monotonic()
        machine = Machine("cpu", cache=videos.cache, progress=False)
        pretrain(recipe, videos.folder, folder, begun, machine, networks=networks)
        seconds = None if begun else time.monotonic() - start
    return measure_row(recipe, open_trained(folder), seconds, stored)


def trained_method(
    live: LiveRow,  # of `train_row`
) -> nn.Module:  # in evaluation mode
    "The whole method of a row, with its projection and copies."
    videos = course_videos()
    machine = Machine("cpu", cache=videos.cache, progress=False)
    method = resolve(live.recipe, videos.manifest, machine).method
    method.load_state_dict(load(Path(live.encoder.folder) / "last.pt")["method"])
    return method.eval()


def logged(
    live: LiveRow,  # of `train_row`
    names: Sequence[str],  # columns of its log
) -> dict[str, list[float]]:  # name -> a number a step; nan where there is none
    "What a training has logged. `CourseError`."
    file = Path(live.encoder.folder) / "steps.csv"
    with open(file, encoding="utf-8", newline="") as lines:
        steps = [*csv.DictReader(lines)]
    lost = [name for name in names if name not in steps[0]]
    if lost:
        raise CourseError(f"{lost[0]!r}: is not logged; the columns are {', '.join(steps[0])}")
    return {name: [float(step[name] or "nan") for step in steps] for name in names}


def begun_training(
    recipe: Recipe,  # of `row_recipe`, or like it
    steps: int,  # of the optimizer
) -> tuple[nn.Module, list[dict[str, float]]]:
    "The first steps of a training with SEED: its method in training mode, and the log of each."
    videos = course_videos()
    machine = Machine("cpu", cache=videos.cache, progress=False)
    experiment = resolve(recipe, videos.manifest, machine)
    run = TrainingState(experiment.method, experiment.optimizer)
    with one_thread():
        taken = fit(run, experiment.batches, experiment.views, experiment.schedules)
        logs = [step.read() for step in itertools.islice(taken, 6 if is_test() else steps)]
    return experiment.method, logs


@dataclass(frozen=True)
class FreshKeys:
    "How often a key that is made now is nearer to a query than all keys of the queue."

    own: float  # 0 to 1: the own key
    other: float  # the key of a video of the batch before
    ages: torch.Tensor  # (queries,) batches since the nearest key of the queue was made; 0: newest


@torch.no_grad()
def fresh_keys(
    recipe: Recipe,
    method: Any,  # with a `pair` and a `queue`, in training mode
    batches: int = 60,
) -> FreshKeys:
    "Queries of the first batches against fresh keys and a queue that stands still."
    videos = course_videos()
    machine = Machine("cpu", cache=videos.cache, progress=False)
    experiment = resolve(recipe, videos.manifest, machine)
    size, clips = method.queue.size, recipe.learning.batch
    age = (method.queue.pointer - 1 - torch.arange(size)) % size // clips
    own, other, ages = [], [], []
    before = None  # the keys of the batch before
    for raw in itertools.islice(experiment.batches, 3 if is_test() else batches):
        x = experiment.views(raw)[recipe.view]
        q, k = method.pair.queries(x[:, 0]), method.pair.keys(x[:, 1], raw)
        older = raw["row"][:, None] == method.queue.row  # keys of the query's own video
        sim = (q @ method.queue.keys.T).masked_fill(older, -torch.inf)
        nearest = sim.amax(1)
        own.append((q * k).sum(1) > nearest)
        if before is not None:
            other.append((q * before).sum(1) > nearest)
        ages.append(age[sim.argmax(1)])
        before = k
    own_share, other_share = (torch.cat(part).float().mean().item() for part in (own, other))
    return FreshKeys(own_share, other_share, torch.cat(ages).float())


def untrained_row(
    recipe: Recipe,  # its network, with random weights
) -> LiveRow:
    "The same without a training; the stored row is that of the convolutional network."
    recipe = override(recipe, seed=SEED)
    videos = course_videos()
    stored = None
    if not is_test() and recipe.backbone == row_recipe("infonce").backbone:
        stored = next(r for r in seeds_of("untrained", recipe.view) if r["seed"] == SEED)
    return measure_row(recipe, untrained_encoder(recipe, videos.manifest), None, stored)


def network_name(row: str, view: str) -> str:
    "The folder of a kept network, below `results/course`."
    return f"{row} {view}".replace(",", "").replace(" ", "-")


def opened_row(
    row: str,  # of the table
    view: str = FRAMES,
) -> LiveRow:
    "A row with its stored network; as a test with random weights. `CourseError`."
    recipe = row_recipe(row, view)
    videos = course_videos()
    opened = untrained_encoder(recipe, videos.manifest)
    stored = None
    if not is_test():
        file = NETWORK_FOLDER / network_name(row, view) / "last.pt"
        if not file.exists():
            raise CourseError(f"{file}: there is no such file; the network of {row!r} is not kept")
        weights = {k.removeprefix("pair."): x for k, x in load(file)["method"].items()}
        encoder = {k.removeprefix("encoder."): x for k, x in weights.items() if "encoder." in k}
        opened.encoder.load_state_dict(encoder)
        opened.encoder.eval()
        stored = next(r for r in seeds_of(row, view) if r["seed"] == SEED)
    return measure_row(recipe, opened, None, stored)


def measure_row(
    recipe: Recipe,
    encoder: EvaluatedEncoder,
    seconds: float | None,  # of its training, as of `LiveRow`
    stored: Mapping[str, Any] | None,
) -> LiveRow:
    "R@1, scene and motion, with the protocol of the recipe."
    videos = course_videos()
    machine = Machine("cpu", cache=videos.conflict_cache, progress=False)
    every = extract(
        encoder.encoder,
        videos.conflicts,
        "all",
        1,
        recipe.view,
        encoder.protocol(),
        machine=machine,
        **encoder.views,
    )
    parts = conflict_parts(every, videos.manifest, videos.conflicts)
    shares = conflict_shares(parts["conflict"], parts["train"])
    return LiveRow(
        recipe,
        encoder,
        parts,
        100 * compare_features(parts["test"], parts["train"], 1).recall((1,))[1],
        100 * shares["scene"][0],
        100 * shares["motion"][0],
        seconds,
        stored,
    )


@contextmanager
def one_thread() -> Iterator[None]:
    "PyTorch with one thread, as the stored rows were made: sums are added in one order."
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# ---- what a stored row retrieves


def stored_nearest(
    row: str,
    view: str = FRAMES,
    part: str = "conflict",  # or 'test'
    budget: int = 1,  # as of `seeds_of`
) -> np.ndarray:  # (queries, 5) positions among the training videos, the nearest first
    "The stored nearest training videos of SEED's test videos or conflicts. `CourseError`."
    file = RESULTS.with_suffix(".npz")
    key = f"plain/{row}/{view}/{budget}/{SEED}/{part}"
    with np.load(file) as arrays:
        if key not in arrays.files:
            raise CourseError(f"{file}: has no {key}")
        return arrays[key].astype(np.int64)
