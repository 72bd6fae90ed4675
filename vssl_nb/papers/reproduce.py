"""A row of a paper's table goes in; the runs that it needs come out, trained, measured, beside the paper.

Also the demo: from no data at all to trained encoders, a table and pictures."""

import multiprocessing, os, re, shutil, signal, statistics, sys, tempfile, time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tqdm.auto import tqdm

from .. import show
from ..data import toy
from ..data.dataset import TestClips, VideoCache
from ..data.flow import extract_flow
from ..data.manifest import Manifest, open_data, read
from ..data.views import image_to_flow
from ..measure.protocols import PROTOCOLS
from ..methods.recipes import COTRAININGS, find, flat_fields, override, to_dict
from ..config import Recipe, RecipeError
from ..names import did_you_mean
from ..progress import progress_bar
from ..runs.cotraining import column, cotrain, cotraining_phases, curve, run_state
from ..runs.evaluation import baselines, measure_probe, open_trained, retrieve, retrieve_two_streams
from ..runs.finetuning import TRAININGS, finetune
from ..runs.budget import seconds_per_step
from ..runs.experiment import resolve
from ..runs.pretraining import pretrain
from ..config import override_known, read_fields, read_lines
from ..training.loop import TrainError, read_json, write_json
from ..training.machine import Machine, fastest_dtype
from .published import ROWS, Published
from .report import cell, dataset_of, html, table


class Task(NamedTuple):
    "Work for another process."

    function: Callable  # of a module
    arguments: tuple[Any, ...]
    after: tuple[str, ...] = ()  # names of the tasks that have to be done before


def _alone() -> None:  # in a new process
    torch.set_num_threads(1)
    # while training `stop_signals` listens, and the run is saved
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _deaf(*signals: int) -> Iterator[None]:
    before = {s: signal.signal(s, signal.SIG_IGN) for s in signals}
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def _logged_steps(run: Path) -> int:
    return (
        max(0, len(log.read_bytes().splitlines()) - 1) if (log := run / "steps.csv").exists() else 0
    )


def at_once(
    # the first that are ready are begun first; none stands before one of its `after`
    tasks: Mapping[str, Task],
    processes: int = 2,  # 1: in this process, one after the other
    runs: Sequence[Path] = (),  # run folders, for the bar
    total: int = 0,  # the steps that `runs` come to, for the bar
    progress: bool = True,
    # called every second with the results so far
    look: Callable[[dict[str, Any]], None] = lambda done: None,
) -> dict[str, Any]:  # the result of each
    """Several tasks at a time; raises what the first of them raised, or ValueError where one cannot
    begin.
    """
    names, done = list(tasks), dict[str, Any]()
    for i, (name, t) in enumerate(tasks.items()):
        if late := [a for a in t.after if a not in names[:i]]:
            raise ValueError(
                f"the task '{name}' waits for '{late[0]}', which does not stand before it"
            )
    if processes == 1:
        for n, t in tasks.items():
            done[n] = t.function(*t.arguments)
            look(done)
        return done
    waiting, running = dict(tasks), dict[Future[Any], str]()
    context = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
    # once, and not for seconds in every process
    context.set_forkserver_preload(["torch._dynamo", __name__])
    pool = ProcessPoolExecutor(processes, context, _alone)
    with pool, progress_bar(total=total, desc="training", unit="step", disable=not progress) as bar:
        try:
            while waiting or running:
                ready = [n for n, t in waiting.items() if done.keys() >= set(t.after)]
                for n in ready[: processes - len(running)]:
                    task = waiting.pop(n)
                    # a process that starts now inherits it: Ctrl-C must not hit one that is still
                    # importing
                    with _deaf(signal.SIGINT):
                        running[pool.submit(task.function, *task.arguments)] = n
                for f in wait(running, 1, FIRST_COMPLETED).done:
                    done[running.pop(f)] = f.result()
                bar.update(sum(map(_logged_steps, runs)) - bar.n)
                look(done)
        except KeyboardInterrupt:
            # a second signal must not end the processes while they save their runs
            with _deaf(signal.SIGINT, signal.SIGTERM):
                # SIGTERM reached this one alone
                for p in multiprocessing.active_children():
                    p.terminate()
                pool.shutdown(cancel_futures=True)
            raise
        finally:
            pool.shutdown(cancel_futures=True)
    return {n: done[n] for n in tasks}


@lru_cache(maxsize=1)  # a process decodes each video once, for all its tasks
def _decoded(path: Path, sha256: str) -> VideoCache:
    return VideoCache(read(path), 2**31)


def _silent(
    work: Callable,
    data: Path,
    machine: Machine,
    **given: Any,
) -> Any:  # a task beside others
    m = read(data)
    machine = replace(machine, progress=False, cache=_decoded(m.path, m.sha256))
    return work(data=data, machine=machine, **given)


def _trained(
    recipe: Recipe,
    data: Path,
    machine: Machine,
    folder: Path,
    begin: Path | None = None,
    miner: Path | None = None,
) -> Path:
    pretrain(
        recipe,
        data,
        folder,
        (folder / "recipe.json").exists(),
        machine,
        networks={"encoder": begin, "sampler": miner},
    )
    if run_state(folder) != "finished":
        raise TrainError(f"{folder}: was stopped; the same command goes on")
    return folder


# --- the tables of the papers ---


@dataclass(frozen=True)
class Run:
    "A training that a row of a table needs, and those that it begins with."

    recipe: str  # name
    changes: tuple[tuple[str, Any], ...] = ()  # fields of the recipe and their values
    encoder: "Run|None" = None  # whose weights it begins with
    sampler: "Run|None" = None  # whose network mines for it

    @property
    def name(self) -> str:  # of its folder
        "The recipe and what is changed of it."
        words = [w for k, v in self.changes for w in (k, *(v if isinstance(v, tuple) else (v,)))]
        return re.sub(r"[^\w.]+", "-", "-".join(map(str, (self.recipe, *words))))

    # every run once, each behind those it begins with; itself the last
    def needs(self) -> list["Run"]:
        "All that is to be trained."
        before = [r for other in (self.encoder, self.sampler) if other for r in other.needs()]
        return list(dict.fromkeys([*before, self]))

    def made(self, seed: int = 0, changes: Mapping[str, Any] | None = None) -> Recipe:
        "The recipe as it will be trained; `changes` hold for every recipe that has such a field."
        return override_known(override(find(self.recipe), **dict(self.changes), seed=seed), changes)


@dataclass(frozen=True)
class TableRow:
    "A row of a published table."

    name: str  # as it is typed: 's=3'
    method: str  # as it is printed; with `setting` it finds the numbers in `published.ROWS`
    full: Run  # what the paper trained
    small: Run | None = None  # the same question on toy videos; None: they cannot answer it
    setting: str = ""
    pretrain: str = "UCF101"  # dataset, as printed
    backbone: str = ""  # as printed; '': the table has one

    def needs(self, small: bool) -> list[Run]:
        return ((self.small if small else None) or self.full).needs()


@dataclass(frozen=True)
class Table:
    "A table of a paper, as far as it can be trained here."

    paper: str  # as `published` writes it
    table: str
    about: str  # its question
    rows: tuple[TableRow, ...]
    name: str  # as it is typed: 'cpr:table1'

    def printed(self, row: TableRow) -> list[Published]:
        "The paper's numbers of a row."
        return [
            r
            for r in ROWS
            if (r.paper, r.table, r.method, r.setting)
            == (self.paper, self.table, row.method, row.setting)
            and r.pretrain in ("", row.pretrain)
            and row.backbone in ("", r.backbone)
        ]


_STARTS = {p.recipe: (p.start, p.sampler) for phases in COTRAININGS.values() for p in phases}
BESIDE = {
    "ubernce-toy-rgb": "infonce-toy-rgb",
    "infonce-toy-rgb-longer": "infonce-toy-rgb",
    "infonce-toy-flow": "",
}  # recipe of the demo -> run that gives the first weights


def _run(
    recipe: str,
    changes: str = "",  # 'epochs=5 beta=.1'
    encoder: str = "",
    sampler: str = "",
) -> Run:
    "A training, with those that it begins with."
    begin = (encoder, sampler) if encoder else _STARTS.get(recipe, (BESIDE.get(recipe, ""), ""))
    return Run(
        recipe,
        tuple(read_fields(changes).items()),
        *(_run(name) if name else None for name in begin),
    )


PAPER_TABLES: dict[str, Table] = {}  # 'cpr:table1' -> table
for _line in read_lines("papers/tables.csv"):
    _row = TableRow(
        _line["name"],
        _line["method"],
        _run(*(_line[k] for k in ("recipe", "changes", "encoder", "sampler"))),
        _run(_line["toy"], _line["toy_changes"]) if _line["toy"] else None,
        _line["setting"],
        _line["pretrain"] or "UCF101",
        _line["backbone"],
    )
    # appendix2
    _name = f"{_line['paper']}:{_line['table'].replace(' ', '').replace('xtable', 'x')}".lower()
    _table = PAPER_TABLES.get(
        _name, Table(_line["paper"], _line["table"], _line["about"], (), _name)
    )
    PAPER_TABLES[_name] = replace(_table, rows=(*_table.rows, _row))


def find_rows(
    name: str,  # 'cpr:table1', or with a row 'cpr:table1:s=3'
) -> tuple[Table, list[TableRow]]:
    "A table and the chosen rows; RecipeError names the nearest."
    paper, number, row, *_ = *name.split(":", 2), "", ""
    key = f"{paper}:{number}".lower()
    if key not in PAPER_TABLES:
        raise RecipeError(
            f"there is no table {name!r} to reproduce; {did_you_mean(key, PAPER_TABLES)}"
        )
    rows = [r for r in PAPER_TABLES[key].rows if not row or r.name == row]
    if not rows:
        raise RecipeError(
            f"{key} has no row {row!r}; "
            + did_you_mean(row, [r.name for r in PAPER_TABLES[key].rows])
        )
    return PAPER_TABLES[key], rows


# task of a number -> the names of what may measure it
MEASURED_BY = {
    "retrieval": {*PROTOCOLS, "provico, cosine of means"},
    "linear": {*TRAININGS},
    # mean of the log over the last epoch (CPR, table 4)
    "finetune": {*TRAININGS},
    "mining": {"last_epoch"},
}


def measured_numbers(
    paper_table: Table,  # of `PAPER_TABLES`
    row: TableRow,  # of that table of `PAPER_TABLES`
) -> list[Published]:  # each with the protocol or preset that will measure it
    """A row's numbers on the data that it is trained on.

    RecipeError where there is none, or no protocol.
    """
    name, printed, data = (
        f"{paper_table.name}:{row.name}",
        paper_table.printed(row),
        row.full.made().dataset,
    )
    here = [r for r in printed if r.test == data]
    if not here:
        raise RecipeError(
            f"{name}: the row is trained on {data} and measured on "
            f"{printed[0].test}; train {row.full.recipe} with vssl-nb pretrain, and measure it "
            "with vssl-nb "
            "retrieve or finetune --data"
        )
    for r in here:
        if r.protocol not in MEASURED_BY.get(r.task, ()):
            raise RecipeError(
                f"{name}: nothing "
                f"measures its {r.task} {r.metric}: there is no protocol {r.protocol!r}; name "
                "another "
                "in the column protocol of papers/published.csv"
            )
    return here


def list_rows(
    name: str = "",  # as of `find_rows`; '': all tables
) -> list[str]:  # a line for each
    """The rows of the tables, each with the protocols of its numbers, or the reason why it is
    refused.
    """
    lines = []
    for t, rows in [find_rows(name)] if name else [(t, t.rows) for t in PAPER_TABLES.values()]:
        for row in rows:
            try:
                measures = dict.fromkeys(
                    f"{r.test} {r.task}: {r.protocol}" for r in measured_numbers(t, row)
                )
            except RecipeError as e:
                measures = {f"refused: {e}": None}
            lines.append(f"{t.name}:{row.name}  {'; '.join(measures)}")
    return lines


def list_tables(
    out: str | Path,  # folder that may hold finished runs of `reproduce`
) -> list[str]:  # a text of two lines for each
    "Every table of the papers that has a plan, and what it needs."

    def text(t):
        runs = {r for row in t.rows for r in row.needs(False)}
        data = ", ".join(sorted({r.made().dataset for r in runs}))
        done = sorted(
            str(p.parent) for p in Path(out).glob(f"*{t.name.replace(':', '-')}/table.json")
        )
        return (
            f"{t.name:18} {len(runs):>2} training{'s' * (len(runs) != 1)} on {data}; toy: "
            f"{sum(bool(r.small) for r in t.rows)} of {len(t.rows)} rows; here: "
            f"{', '.join(done) or '–'}"
            f"\n    {t.about}: " + " ".join(r.name for r in t.rows)
        )

    return [text(t) for t in PAPER_TABLES.values()]


@dataclass(frozen=True)
class Planned:
    "One training of a plan on this machine."

    run: Run
    recipe: Recipe
    folder: Path  # its run folder
    steps: int
    seconds: float  # for all steps; 0: finished

    def __str__(self) -> str:
        return f"{self.folder}  {self.steps:,} steps  " + (
            f"{self.seconds / 60:,.0f} min" if self.seconds else "finished"
        )


def _step_seconds(recipe: Recipe, manifest: Manifest, machine: Machine) -> float:
    "Of one optimizer step here; of large networks on a CPU from a step with fewer videos."
    videos, factor = recipe.learning.batch, 1.0
    if machine.place().type == "cpu" and recipe.backbone not in ("tiny", "small") and videos > 4:
        recipe, factor = (
            override(recipe, batch=4, accumulate=1),
            videos * recipe.learning.accumulate / 4,
        )
    return seconds_per_step(resolve(recipe, manifest, machine), 0.5) * factor


def plan_table(
    rows: Sequence[TableRow],
    small: bool,  # on toy videos?
    data: Mapping[int, Manifest],  # seed -> what to train on
    out: Path,
    machine: Machine = Machine(),
    changes: Mapping[str, Any] | None = None,  # fields, for every recipe that has them
) -> list[Planned]:  # in the order of training, each once
    """The trainings of these rows, with their time.

    RecipeError where a recipe does not fit this data.
    """
    runs = dict.fromkeys(r for row in rows for r in row.needs(small))
    made = [(seed, run, run.made(seed, changes)) for seed in data for run in runs]
    for seed, _, recipe in made:  # before any is timed
        manifest, split = data[seed], recipe.split
        n = {k: len(manifest.select(k, split)) for k in ("train", "test")}
        there = recipe.dataset if small else dataset_of(n | {"split": split})
        if there != recipe.dataset:
            raise RecipeError(
                f"{manifest.path}: has {n['train']:,} training and "
                f"{n['test']:,} test videos in split {split}, like "
                f"{there or 'no published dataset'}; "
                f"and {recipe.name} was trained on {recipe.dataset}; name its manifest, or --data "
                "toy"
            )
        resolve(recipe, data[seed], machine).refuse()
    plan, clock = [], dict[Any, float]()
    for seed, run, recipe in made:
        folder, learning, seconds = out / f"seed{seed}" / run.name, recipe.learning, 0.0
        videos = len(resolve(recipe, data[seed], machine).rows)
        steps = learning.epochs * (videos // (learning.batch * learning.accumulate))
        if run_state(folder) != "finished":
            # the clock goes by what a step computes, not by how many there are
            alike = replace(
                recipe,
                name="",
                about="",
                seed=0,
                learning=replace(learning, epochs=1, lr=1.0, drops=(), warmup=0.0),
            )
            if alike not in clock:
                clock[alike] = _step_seconds(recipe, data[seed], machine)
            seconds = steps * clock[alike]
        plan.append(Planned(run, recipe, folder, steps, seconds))
    return plan


def _measured_toy(
    folder: Path,
    data: Path,
    machine: Machine,
) -> dict[str, float]:  # 'retrieval r1' -> percent
    row = retrieve(folder, data=data, machine=machine, walls=0)[0]
    recalls = {f"retrieval r{k}": 100 * row[f"r{k}"] for k in (1, 5, 10)}
    return recalls | {"linear top1": 100 * measure_probe(folder, machine=machine)[0]["top1"]}


def _measured_as_printed(
    folder: Path,
    data: Path,
    machine: Machine,
    printed: Sequence[Published],
) -> dict[str, float]:  # 'finetune top1' -> percent
    "What the paper measured on this dataset, each number under its protocol."
    values, row = dict[str, float](), dict[str, Any]()
    for task, protocol, view in dict.fromkeys((r.task, r.protocol, r.view) for r in printed):
        if task == "mining":  # in the last epoch
            steps, epochs = column(folder, "epoch")
            begin = steps[epochs.index(epochs[-1])]
            row = {
                "pmr": statistics.fmean(v for s, v in zip(*column(folder, "mined")) if s >= begin)
            }
        elif task == "retrieval" and "+" in view:
            # IIC: one network, features of two views side by side (b11)
            t = open_trained(folder, data)
            first, second = (replace(t, view=v, folder=None) for v in t.recipe.encoder_views)
            row = retrieve_two_streams(first, second, protocol, joined="concat", machine=machine)[0]
        elif task == "retrieval":
            rows = retrieve(folder, protocol.split(",")[0], data=data, machine=machine, walls=0)
            # a Gaussian head gives several
            row = next(r for r in rows if r["protocol"]["name"] == protocol)
        else:
            out = folder.with_name(f"{folder.name}-{protocol}")
            # ProViCo, 4.5: K as in pretraining
            method = read_json(folder / "recipe.json", "a run")["method"]
            fields = {"samples": method["samples"]} if TRAININGS[protocol].method.mixture else {}
            row = (
                finetune(
                    folder,
                    protocol,
                    out=out,
                    resume=(out / "card.json").exists(),
                    machine=machine,
                    fields=fields,
                )
                or {}
            )
            if not row:
                raise TrainError(f"{out}: was stopped; the same command goes on")
        values |= {
            f"{task} {r.metric}": 100 * row[r.metric]
            for r in printed
            if (r.task, r.protocol) == (task, protocol)
        }
    return values


def pairs_alike(
    ours: Mapping[str, float],  # row -> number
    paper: Mapping[str, float],  # row -> number
) -> tuple[int, int]:  # of all pairs of rows that the paper orders: ordered likewise, and all
    "How many pairs of rows stand in the paper's order."
    rows = [r for r in paper if r in ours]
    pairs = [(a, b) for i, a in enumerate(rows) for b in rows[i + 1 :] if paper[a] != paper[b]]
    return sum(
        (ours[a] < ours[b]) == (paper[a] < paper[b]) and ours[a] != ours[b] for a, b in pairs
    ), len(pairs)


def beside_paper(
    paper_table: Table,
    rows: Sequence[TableRow],
    # row -> what was measured, for each seed
    values: Mapping[str, Sequence[Mapping[str, float]]],
) -> str:  # markdown
    "Ours and the paper's, column by column; mean and standard deviation over the seeds."
    printed = {r.name: measured_numbers(paper_table, r) for r in rows}
    paper = {
        n: {f"{p.task} {p.metric}": p.value for p in numbers} for n, numbers in printed.items()
    }
    test = " and ".join(dict.fromkeys(r.full.made().dataset for r in rows))
    columns = list(dict.fromkeys(c for r in rows for seed in values[r.name] for c in seed))
    ours = {c: {r.name: [s[c] for s in values[r.name] if c in s] for r in rows} for c in columns}

    def shown(x):
        if not x:
            return "–"
        return f"{statistics.fmean(x):.1f}" + (
            f" ± {statistics.stdev(x):.1f}" if len(x) > 1 else ""
        )

    lines = [
        "| row | " + " | ".join(f"{c} | paper, {test}: {c}" for c in columns) + " |",
        "| :-- |" + " --: |" * 2 * len(columns),
    ]
    for n in paper:
        cells = (f"{shown(ours[c][n])} | {paper[n].get(c, '–')}" for c in columns)
        lines.append(f"| {n} | " + " | ".join(cells) + " |")
    for c in columns:
        alike, pairs = pairs_alike(
            {n: statistics.fmean(x) for n, x in ours[c].items() if x},
            {n: v[c] for n, v in paper.items() if c in v},
        )
        if pairs:
            lines.append(
                f"\n{c}: {alike} of {pairs} pairs of rows stand in the order of the paper."
            )
    return "\n".join(lines)


def reproduce(
    name: str,  # 'cpr:table1' or 'cpr:table1:s=3'
    # 'toy', or the manifest (or its folder) of the dataset that the table was trained on
    data="toy",
    out="runs/reproduce",  # a folder; every table gets one in it
    seeds: Sequence[int] = (0,),  # of weights and order; of toy videos, too
    machine: Machine = Machine(),
    changes: Mapping[str, Any] | None = None,  # fields, for every recipe that has them
    size: str = "demo",  # of the toy
    dry: bool = False,  # plan and time the trainings; train nothing
    processes: int = 2,  # that train at a time on a CPU
) -> str:  # what to print
    "Train what a table needs, measure it, and set it beside the paper. RecipeError, TrainError."
    paper_table, rows = find_rows(name)
    small, key = str(data) == "toy", "-".join(name.lower().split(":")[:2])
    if small:
        lacking, rows = [r.name for r in rows if not r.small], [r for r in rows if r.small]
        if not rows:
            raise RecipeError(
                f"{name}: needs what the toy videos do not have; name the data of its "
                "paper with --data, or choose another row"
            )
        if lacking and machine.progress:
            print("not on the toy:", *lacking)
    printed = {} if small else {r.name: measured_numbers(paper_table, r) for r in rows}
    fields = {f for row in rows for r in row.needs(small) for f in flat_fields(r.made())}
    if unknown := [k for k in changes or {} if k not in fields]:
        raise RecipeError(
            f"--set {unknown[0]}: no "
            f"recipe of this table has that field; {did_you_mean(unknown[0], fields)}"
        )
    if not seeds or len({*seeds}) != len(seeds):
        raise RecipeError(f"--seeds {' '.join(map(str, seeds))}: name one or more, each once")
    out = Path(out) / (f"toy-{key}" if small else key)
    with tempfile.TemporaryDirectory() as scratch:  # a dry run writes nothing that stays
        home = Path(scratch) if dry else out
        paths = {
            s: toy.make(home / f"seed{s}" / "toy", size, s, progress=machine.progress)
            if small
            else Path(data)
            for s in seeds
        }
        manifests = {
            s: read(p) if small else open_data(p, machine.progress) for s, p in paths.items()
        }
        plan = plan_table(rows, small, manifests, out, machine, changes)
    summary = "\n".join(
        [
            *map(str, plan),
            f"{len(plan)} training{'s' * (len(plan) != 1)}, "
            f"{sum(p.seconds for p in plan) / 3600:.1f} hours of training, one after the other",
        ]
    )
    if dry:
        return summary
    if machine.progress:
        print(summary, flush=True)
    if machine.place().type != "cpu":
        processes = 1
    kept = out / "table.json"  # what is known
    known = read_json(kept, "a table") if kept.exists() else {}
    seed_of = {p.folder: int(p.folder.parent.name.removeprefix("seed")) for p in plan}
    tasks: dict[str, Task] = {}

    def add(name, p, after, work, **given):
        run = partial(_silent, work) if processes > 1 else work
        given |= {"data": paths[seed_of[p.folder]], "machine": machine, "folder": p.folder}
        tasks[name] = Task(partial(run, **given), (), after)

    for p in plan:  # behind those they begin with
        if not p.seconds:
            continue
        begin, miner = (
            p.folder.parent / r.name if r else None for r in (p.run.encoder, p.run.sampler)
        )
        after = tuple(str(f) for f in (begin, miner) if str(f) in tasks)
        add(str(p.folder), p, after, _trained, recipe=p.recipe, begin=begin, miner=miner)
    for row in rows:
        for p in plan:
            name = f"{row.name}, seed {seed_of[p.folder]}"
            if p.run != row.needs(small)[-1] or name in known:
                continue
            work = (
                _measured_toy if small else partial(_measured_as_printed, printed=printed[row.name])
            )
            add(name, p, (str(p.folder),) if p.seconds else (), work)

    def look(done):
        if new := {k: v for k, v in done.items() if isinstance(v, dict) and k not in known}:
            known.update(new)
            write_json(kept, known)

    at_once(
        tasks,
        processes,
        [p.folder for p in plan],
        sum(p.steps for p in plan),
        machine.progress,
        look,
    )
    text = beside_paper(
        paper_table,
        rows,
        {
            r.name: [known[n] for n in (f"{r.name}, seed {s}" for s in paths) if n in known]
            for r in rows
        },
    )
    (out / "table.md").write_text(text + "\n", encoding="utf-8")
    return f"{text}\n\n{out / 'table.md'}"


# --- the demo ---

SHOWN = {
    "name": "name",
    "view": "view",
    "protocol": "protocol",
    "r1": "R@1 %",
    "r5": "R@5 %",
    "r10": "R@10 %",
    "mined": "mined right %",
    "seconds": "seconds",
}


def classes_figure(
    manifest: Manifest,
):  # Figure
    "A training video of each class, eight frames, 64 pixels wide, and below it its stored flow."
    first = {manifest.rows[i].label: i for i in reversed(manifest.select("train"))}
    names = [label for label in manifest.labels if label in first]
    clips = TestClips(
        manifest,
        [first[n] for n in names],
        clips=1,
        length=8,
        stride=2,
        size=64,
        load=("clips", "flow"),
    )
    items = [clips[i] for i in range(len(names))]
    flows = [image_to_flow(c["flow"][0]) for c in items]  # (T, 2, H, W) pixels
    most = max((float(f.norm(dim=1).max()) for f in flows), default=0) or 1.0  # in full colour
    return show.strips(
        [x for c, f in zip(items, flows) for x in (c["clips"][0], show.flow_colour(f, most))],
        [title for name in names for title in (name, "flow")],
    )


def _untrained(
    recipe: Recipe,
    data: Path,
    machine: Machine,
) -> list[dict[str, Any]]:  # one row
    # nothing to save: Ctrl-C may end it
    listens = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return baselines(recipe, read(data), which=("random",), machine=machine)
    finally:
        signal.signal(signal.SIGINT, listens)


def demo(
    out="runs/demo",  # where everything goes
    size: str = "demo",  # of the toy dataset: 'tiny' or 'demo'
    seed: int = 0,  # of videos, weights and order
    changes: Mapping[str, Any] | None = None,  # fields to override in every recipe that has them
    # that train at a time; None: two, or one on a machine with one core
    processes: int | None = None,
    progress: bool = True,  # show bars
) -> list[dict[str, Any]]:  # the rows of results.json
    "Write videos, measure what needs no training, train, retrieve, and put it all on one page."
    out, began = Path(out), time.monotonic()
    changes = dict(changes or {}) | {"seed": seed}
    machine = Machine("cpu", fastest_dtype(torch.device("cpu")), progress=False)
    phases = [r for _, r in cotraining_phases("coclr-toy", changes)]
    beside = {override_known(find(n), changes): start for n, start in BESIDE.items()}
    recipes = [*phases, *beside]
    data = toy.make(out / "toy", size, seed, progress=progress)
    printed: list[dict[str, Any]] = []

    def write(
        rows,  # as they become known
    ):
        for row in rows:
            tqdm.write(
                f"R@1 {cell('r1', row['r1']):>5} %  {row['name']}, {row['view']}".rstrip(", ")
            )
            printed.append(row)

    floor = baselines(phases[0], read(data), which=("chance", "histogram"), machine=machine)
    write(floor)
    extract_flow(data, "dis", codec="small", progress=progress)
    manifest = read(data)
    # in the order of urgency: what fills the gaps comes last
    tasks: dict[str, Task] = {}

    def add(task, after, work, **given):
        tasks[task] = Task(partial(_silent, work, data=data, machine=machine, **given), (), after)

    def train(r, start=""):
        add(
            r.name,
            (start,) if start else (),
            _trained,
            recipe=r,
            folder=out / r.name,
            begin=out / start if start else None,
        )

    alone = phases[:2]  # InfoNCE on both views
    for r in alone:
        train(r)
    # measures them, too
    add("cotrained", tuple(tasks), cotrain, name="coclr-toy", out=out, changes=changes)
    for r, start in beside.items():
        train(r, start)
    compared = {f"{r.name}, measured": r for r in beside}
    for name, r in compared.items():
        add(name, (r.name,), retrieve, source=out / r.name)
    fresh = {
        f"{r.view}, untrained": r
        for r in (*alone, *(r for r, start in beside.items() if not start))
    }
    for name, r in fresh.items():
        add(name, (), _untrained, recipe=r)

    def look(
        done,  # a task that trains returns its folder
    ):
        known = [row for rows in (floor, *done.values()) if isinstance(rows, list) for row in rows]
        write(known[len(printed) :])

    steps = sum(
        r.learning.epochs * (len(manifest.select("train")) // r.learning.batch) for r in recipes
    )
    results = at_once(
        tasks,
        processes or min(2, os.cpu_count() or 1),
        [out / r.name for r in recipes],
        steps,
        progress,
        look,
    )
    _decoded.cache_clear()  # where this process has done the work itself
    rows = floor + [row for name in (*fresh, "cotrained", *compared) for row in results[name]]
    write_json(out / "results.json", rows)
    _demo_page(out, rows, manifest, phases, recipes)
    print(
        "",
        table(rows, "text", SHOWN),
        "",
        story(rows),
        f"{out / 'report.html'}, {time.monotonic() - began:.0f} s in all",
        sep="\n",
    )
    return rows


def _demo_page(
    out: Path,
    rows: Sequence[dict[str, Any]],
    manifest: Manifest,
    phases: Sequence[Recipe],
    recipes: Sequence[Recipe],
) -> None:
    "Write figures and report.html."

    def curves(
        log,  # a column of steps.csv
    ):
        return show.curves(
            {r.name: column(out / r.name, log) for r in recipes if r.name.startswith("infonce")},
            "step",
            log,
            smooth=20,
        )

    pictures = (
        (
            "classes",
            "One video per class: only the motion, below as stored optical flow, tells them apart.",
            classes_figure(manifest),
        ),
        ("loss", "The loss of InfoNCE (log 32 = 3.5 is what guessing costs).", curves("loss")),
        ("top1", "Pretext accuracy: how often a query finds its own key first.", curves("top1")),
        (
            "phases",
            "R@1 after each phase, and the share of positives mined for it that were right. (In "
            "the "
            "table: of those that the finished network mines.)",
            curve(out, [r.name for r in phases]),
        ),
    )
    figures = {
        caption: show.save_picture(p, out / "figures" / f"{file}.png")
        for file, caption, p in pictures
    }
    for r in recipes:
        wall = out / r.name / "figures" / f"neighbours-{manifest.sha256[:8]}.png"
        figures[
            f"Test videos and their nearest training videos, {r.name}: green is the same class."
        ] = Path(shutil.copy(wall, out / "figures" / f"neighbours-{r.name}.png"))
    html(
        [{k: v for k, v in r.items() if k not in ("r20", "r50")} for r in rows],
        figures,
        {r.name: to_dict(r) for r in recipes},
        out / "report.html",
        title="vssl_nb demo",
        note=story(rows),
        versions=read_json(out / phases[0].name / "card.json", "a run")["versions"],
    )


def story(
    rows: Sequence[dict[str, Any]],  # of results.json
) -> str:  # a paragraph
    "The table in words."

    def by(**row):
        return next(r["r1"] for r in rows if row.items() <= r.items())

    sentences = [
        f"Guessing finds a video of the same motion in {by(method='chance'):.1%} of cases, "
        f"a colour histogram in {by(method='histogram'):.1%}."
    ]
    for view, words in (
        ("flow", "optical flow"),
        ("residual", "frame differences"),
        ("rgb", "frames"),
    ):
        sentences.append(
            f"InfoNCE on {words} reaches {by(name=f'infonce-toy-{view}'):.1%} "
            f"({by(method='random', view=view):.1%} before training)."
        )
    coclr = {r["view"]: r["r1"] for r in rows if r["method"] == "coclr"}  # of the last cycle
    return " ".join(
        [
            *sentences,
            "Frames that learn from what frame differences find alike (CoCLR) reach "
            f"{coclr['rgb']:.1%}, where InfoNCE comes to {by(name='infonce-toy-rgb-longer'):.1%} "
            "in as many "
            "steps, and labels in the place of the other view (UberNCE) to "
            f"{by(name='ubernce-toy-rgb'):.1%}.",
            f"Both streams of CoCLR together: {coclr['rgb+residual']:.1%} "
            f"(frame differences alone {coclr['residual']:.1%}).",
        ]
    )
