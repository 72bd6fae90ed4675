"""A row of a paper's table goes in; the runs that it needs come out, trained, measured, beside the
paper.
"""

import re
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..config import Recipe, override_known, read_fields, read_lines
from ..fields import RecipeError
from ..data import toy
from ..data.manifest import Manifest, open_data, read
from ..measure.protocols import PROTOCOLS
from ..methods.recipes import COTRAININGS, find, flat_fields, override
from ..names import did_you_mean
from ..runs.budget import seconds_per_step
from ..runs.cotraining import column, run_state
from ..runs.evaluation import measure_probe, open_trained, retrieve, retrieve_two_streams
from ..runs.finetuning import TRAININGS, finetune
from ..runs.experiment import resolve
from ..training.loop import TrainError
from ..training.run_folder import read_json, write_json
from ..training.machine import Machine
from .published import ROWS, Published
from .report import dataset_of
from .tasks import Task, at_once, quietly, train_run

# -- the tables of the papers


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
        words: list[Any] = [self.recipe]
        for field_name, value in self.changes:
            words.append(field_name)
            words += value if isinstance(value, tuple) else [value]
        return re.sub(r"[^\w.]+", "-", "-".join(map(str, words)))

    def needs(self) -> list["Run"]:  # each once, behind those it begins with; itself the last
        "All that is to be trained."
        runs = []
        for other in (self.encoder, self.sampler):
            if other:
                runs += other.needs()
        return list(dict.fromkeys([*runs, self]))

    def made(
        self,
        seed: int = 0,
        # fields and their values, for every recipe that has them
        changes: Mapping[str, Any] | None = None,
    ) -> Recipe:
        "The recipe as it will be trained."
        recipe = override(find(self.recipe), **dict(self.changes), seed=seed)
        return override_known(recipe, changes)


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

    def needs(
        self,
        small: bool,  # on toy videos?
    ) -> list[Run]:
        "All that is to be trained for this row."
        run = self.small if small and self.small else self.full
        return run.needs()


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
        key = (self.paper, self.table, row.method, row.setting)
        return [
            r
            for r in ROWS
            if (r.paper, r.table, r.method, r.setting) == key
            and r.pretrain in ("", row.pretrain)
            and row.backbone in ("", r.backbone)
        ]


# recipe on toy videos that no co-training names -> recipe that gives the first weights, if any
TOY_STARTS = {
    "ubernce-toy-rgb": "infonce-toy-rgb",
    "infonce-toy-rgb-longer": "infonce-toy-rgb",
    "infonce-toy-flow": "",
}


def starts_of_cotrainings() -> dict[str, tuple[str, str]]:
    "Recipe -> the recipes whose runs give its first weights and its sampler, '' for none."
    phases = [phase for phases in COTRAININGS.values() for phase in phases]
    return {phase.recipe: (phase.start, phase.sampler) for phase in phases}


def chain(
    recipe: str,
    changes: str = "",  # 'epochs=5 beta=.1'
    encoder: str = "",  # recipe whose run gives the first weights; '': as co-trainings have it
    sampler: str = "",  # recipe whose run mines
) -> Run:
    "A training, with those that it begins with."
    if not encoder:
        usual = (TOY_STARTS.get(recipe, ""), "")
        encoder, sampler = starts_of_cotrainings().get(recipe, usual)
    return Run(
        recipe,
        tuple(read_fields(changes).items()),
        chain(encoder) if encoder else None,
        chain(sampler) if sampler else None,
    )


def read_tables() -> dict[str, Table]:  # 'cpr:table1' -> table
    "The tables of tables.csv, a row a line."
    tables: dict[str, Table] = {}
    for line in read_lines("papers/tables.csv"):
        # 'appendix table 2': appendix2
        short = line["table"].replace(" ", "").replace("xtable", "x")
        name = f"{line['paper']}:{short}".lower()
        if name not in tables:
            tables[name] = Table(line["paper"], line["table"], line["about"], (), name)
        small = chain(line["toy"], line["toy_changes"]) if line["toy"] else None
        row = TableRow(
            line["name"],
            line["method"],
            chain(line["recipe"], line["changes"], line["encoder"], line["sampler"]),
            small,
            line["setting"],
            line["pretrain"] or "UCF101",
            line["backbone"],
        )
        tables[name] = replace(tables[name], rows=(*tables[name].rows, row))
    return tables


PAPER_TABLES = read_tables()


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
    table = PAPER_TABLES[key]
    rows = [r for r in table.rows if not row or r.name == row]
    if not rows:
        near = did_you_mean(row, [r.name for r in table.rows])
        raise RecipeError(f"{key} has no row {row!r}; {near}")
    return table, rows


# task of a number -> the names of what may measure it
MEASURED_BY = {
    "retrieval": {*PROTOCOLS, "provico, cosine of means"},
    "linear": {*TRAININGS},
    "finetune": {*TRAININGS},
    # mean of the log over the last epoch (CPR, table 4)
    "mining": {"last_epoch"},
}


def measured_numbers(
    paper_table: Table,  # of `PAPER_TABLES`
    row: TableRow,  # of that table
) -> list[Published]:  # each with the protocol or preset that will measure it
    """A row's numbers on the data that it is trained on.

    RecipeError where there is none, or no protocol.
    """
    name = f"{paper_table.name}:{row.name}"
    data = row.full.made().dataset
    printed = paper_table.printed(row)
    numbers = [r for r in printed if r.test == data]
    if not numbers:
        raise RecipeError(
            f"{name}: the row is trained on {data} and measured on {printed[0].test}; train "
            f"{row.full.recipe} with vssl-nb pretrain, and measure it with vssl-nb retrieve or "
            "finetune --data"
        )
    for r in numbers:
        if r.protocol not in MEASURED_BY.get(r.task, ()):
            raise RecipeError(
                f"{name}: nothing measures its {r.task} {r.metric}: there is no protocol "
                f"{r.protocol!r}; name another in the column protocol of papers/published.csv"
            )
    return numbers


def list_rows(
    name: str = "",  # as of `find_rows`; '': all tables
) -> list[str]:  # a line for each
    """The rows of the tables, each with the protocols of its numbers, or the reason why it is
    refused.
    """
    tables = [find_rows(name)] if name else [(t, t.rows) for t in PAPER_TABLES.values()]
    lines = []
    for table, rows in tables:
        for row in rows:
            try:
                numbers = measured_numbers(table, row)
                measures = dict.fromkeys(f"{r.test} {r.task}: {r.protocol}" for r in numbers)
            except RecipeError as e:
                measures = {f"refused: {e}": None}
            lines.append(f"{table.name}:{row.name}  {'; '.join(measures)}")
    return lines


def list_tables(
    out: str | Path,  # folder that may hold finished runs of `reproduce`
) -> list[str]:  # a text of two lines for each
    "Every table of the papers that has a plan, and what it needs."
    return [_describe_table(table, Path(out)) for table in PAPER_TABLES.values()]


def _describe_table(table: Table, out: Path) -> str:
    runs = {run for row in table.rows for run in row.needs(False)}
    trainings = "training" if len(runs) == 1 else "trainings"
    data = ", ".join(sorted({run.made().dataset for run in runs}))
    on_toy = sum(row.small is not None for row in table.rows)
    kept = out.glob(f"*{table.name.replace(':', '-')}/table.json")
    folders = ", ".join(sorted(str(file.parent) for file in kept)) or "–"
    rows = " ".join(row.name for row in table.rows)
    return (
        f"{table.name:18} {len(runs):>2} {trainings} on {data}; toy: {on_toy} of "
        f"{len(table.rows)} rows; here: {folders}\n    {table.about}: {rows}"
    )


# -- the plan of a reproduction


@dataclass(frozen=True)
class Planned:
    "One training of a plan on this machine."

    run: Run
    recipe: Recipe
    folder: Path  # its run folder
    seed: int
    steps: int
    seconds: float  # for all steps; 0: finished

    def __str__(self) -> str:
        time = f"{self.seconds / 60:,.0f} min" if self.seconds else "finished"
        return f"{self.folder}  {self.steps:,} steps  {time}"


@dataclass(frozen=True)
class Reproduction:
    "Rows of a table, what they are trained on, and the trainings that they need."

    table: Table
    rows: Sequence[TableRow]
    small: bool  # on toy videos?
    out: Path  # folder of all that is kept
    data: Mapping[int, Path]  # seed -> manifest
    plan: Sequence[Planned]  # in the order of training
    machine: Machine

    def __str__(self) -> str:
        trainings = "training" if len(self.plan) == 1 else "trainings"
        hours = sum(p.seconds for p in self.plan) / 3600
        total = f"{len(self.plan)} {trainings}, {hours:.1f} hours of training, one after the other"
        return "\n".join([*map(str, self.plan), total])


def step_seconds(recipe: Recipe, manifest: Manifest, machine: Machine) -> float:
    "Of one optimizer step here; of large networks on a CPU from a step with fewer videos."
    videos = recipe.learning.batch
    large = recipe.backbone not in ("tiny", "small") and videos > 4
    if machine.place().type != "cpu" or not large:
        return seconds_per_step(resolve(recipe, manifest, machine), 0.5)
    factor = videos * recipe.learning.accumulate / 4
    few = override(recipe, batch=4, accumulate=1)
    return seconds_per_step(resolve(few, manifest, machine), 0.5) * factor


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
    runs = dict.fromkeys(run for row in rows for run in row.needs(small))
    made = [(seed, run, run.made(seed, changes)) for seed in data for run in runs]
    for seed, _, recipe in made:  # before any is timed
        if not small:
            _refuse_other_data(recipe, data[seed])
        resolve(recipe, data[seed], machine).refuse()

    plan = []
    clock: dict[Recipe, float] = {}  # what is computed -> seconds of a step
    for seed, run, recipe in made:
        folder = out / f"seed{seed}" / run.name
        learning = recipe.learning
        videos = len(resolve(recipe, data[seed], machine).rows)
        steps = learning.epochs * (videos // (learning.batch * learning.accumulate))
        seconds = 0.0
        if run_state(folder) != "finished":
            # the clock goes by what a step computes, not by how many there are
            one_epoch = replace(learning, epochs=1, lr=1.0, drops=(), warmup=0.0)
            alike = replace(recipe, name="", about="", seed=0, learning=one_epoch)
            if alike not in clock:
                clock[alike] = step_seconds(recipe, data[seed], machine)
            seconds = steps * clock[alike]
        plan.append(Planned(run, recipe, folder, seed, steps, seconds))
    return plan


def _refuse_other_data(recipe: Recipe, manifest: Manifest) -> None:
    "Refuse data that are not those of the paper. RecipeError."
    split = recipe.split
    sizes = {part: len(manifest.select(part, split)) for part in ("train", "test")}
    dataset = dataset_of(sizes | {"split": split})
    if dataset != recipe.dataset:
        raise RecipeError(
            f"{manifest.path}: has {sizes['train']:,} training and {sizes['test']:,} test videos "
            f"in split {split}, like {dataset or 'no published dataset'}; and {recipe.name} was "
            f"trained on {recipe.dataset}; name its manifest, or --data toy"
        )


# -- the numbers of a run


def measure_toy(
    folder: Path,  # the run folder
    data: Path,
    machine: Machine,
) -> dict[str, float]:  # 'retrieval r1' -> percent
    "What a run on toy videos is measured by."
    row = retrieve(folder, data=data, machine=machine, walls=0)[0]
    numbers = {f"retrieval r{k}": 100 * row[f"r{k}"] for k in (1, 5, 10)}
    probe = measure_probe(folder, machine=machine)[0]
    return numbers | {"linear top1": 100 * probe["top1"]}


def measure_as_printed(
    folder: Path,  # the run folder
    data: Path,
    machine: Machine,
    printed: Sequence[Published],
) -> dict[str, float]:  # 'finetune top1' -> percent
    "What the paper measured on this dataset, each number under its protocol."
    values: dict[str, float] = {}
    for task, protocol, view in dict.fromkeys((r.task, r.protocol, r.view) for r in printed):
        if task == "mining":
            row = _mining_of_last_epoch(folder)
        elif task == "retrieval" and "+" in view:
            row = _retrieval_of_two_views(folder, data, machine, protocol)
        elif task == "retrieval":
            rows = retrieve(folder, protocol.split(",")[0], data=data, machine=machine, walls=0)
            # a Gaussian head gives several
            row = next(r for r in rows if r["protocol"]["name"] == protocol)
        else:
            row = _finetuned(folder, machine, protocol)
        for r in printed:
            if (r.task, r.protocol) == (task, protocol):
                values[f"{task} {r.metric}"] = 100 * row[r.metric]
    return values


def _mining_of_last_epoch(folder: Path) -> dict[str, float]:
    steps, epochs = column(folder, "epoch")
    begin = steps[epochs.index(epochs[-1])]
    mined = [value for step, value in zip(*column(folder, "mined")) if step >= begin]
    return {"pmr": statistics.fmean(mined)}


def _retrieval_of_two_views(
    folder: Path, data: Path, machine: Machine, protocol: str
) -> dict[str, Any]:
    "IIC: one network, features of two views side by side (b11)."
    t = open_trained(folder, data)
    first, second = (replace(t, view=view, folder=None) for view in t.recipe.encoder_views)
    return retrieve_two_streams(first, second, protocol, joined="concat", machine=machine)[0]


def _finetuned(
    folder: Path,
    machine: Machine,
    preset: str,
) -> dict[str, Any]:
    "A run fine-tuned as the paper did, from where the fine-tuning stands."
    out = folder.with_name(f"{folder.name}-{preset}")
    fields = {}
    method = read_json(folder / "recipe.json", "a run")["method"]
    if TRAININGS[preset].method.mixture:
        fields["samples"] = method["samples"]  # ProViCo, 4.5: K as in pretraining
    resume = (out / "card.json").exists()
    row = finetune(folder, preset, out=out, resume=resume, machine=machine, fields=fields)
    if not row:
        raise TrainError(f"{out}: was stopped; the same command goes on")
    return row


# -- beside the paper


def pairs_alike(
    ours: Mapping[str, float],  # row -> number
    paper: Mapping[str, float],  # row -> number
) -> tuple[int, int]:  # of all pairs of rows that the paper orders: ordered likewise, and all
    "How many pairs of rows stand in the paper's order."
    rows = [r for r in paper if r in ours]
    pairs = [(a, b) for i, a in enumerate(rows) for b in rows[i + 1 :] if paper[a] != paper[b]]
    alike = [ours[a] != ours[b] and (ours[a] < ours[b]) == (paper[a] < paper[b]) for a, b in pairs]
    return sum(alike), len(pairs)


def mean_and_spread(
    values: Sequence[float],  # one for each seed
) -> str:
    "'20.5 ± 0.7'; – for none."
    if not values:
        return "–"
    mean = f"{statistics.fmean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.1f}"


def beside_paper(
    paper_table: Table,
    rows: Sequence[TableRow],
    # row -> what was measured, for each seed
    values: Mapping[str, Sequence[Mapping[str, float]]],
) -> str:  # markdown
    "Ours and the paper's, column by column; mean and standard deviation over the seeds."
    paper: dict[str, dict[str, float]] = {}  # row -> column -> number
    for row in rows:
        numbers = measured_numbers(paper_table, row)
        paper[row.name] = {f"{p.task} {p.metric}": p.value for p in numbers}
    test = " and ".join(dict.fromkeys(r.full.made().dataset for r in rows))
    columns = list(dict.fromkeys(c for r in rows for seed in values[r.name] for c in seed))
    ours = {c: {r.name: [s[c] for s in values[r.name] if c in s] for r in rows} for c in columns}

    heads = [f"{c} | paper, {test}: {c}" for c in columns]
    lines = [
        f"| row | {' | '.join(heads)} |",
        "| :-- |" + " --: |" * 2 * len(columns),
    ]
    for name, printed in paper.items():
        cells = [f"{mean_and_spread(ours[c][name])} | {printed.get(c, '–')}" for c in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    for c in columns:
        means = {name: statistics.fmean(x) for name, x in ours[c].items() if x}
        alike, pairs = pairs_alike(means, {n: v[c] for n, v in paper.items() if c in v})
        if pairs:
            lines.append(
                f"\n{c}: {alike} of {pairs} pairs of rows stand in the order of the paper."
            )
    return "\n".join(lines)


# -- a reproduction from its name to its table


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
    small = str(data) == "toy"
    table, rows = find_rows(name)
    if small:
        rows = _rows_on_toy(name, rows, machine.progress)
    else:
        for row in rows:
            measured_numbers(table, row)  # refuses what nothing measures
    _refuse_changes(rows, small, changes or {})
    if not seeds or len({*seeds}) != len(seeds):
        raise RecipeError(f"--seeds {' '.join(map(str, seeds))}: name one or more, each once")

    key = table.name.replace(":", "-")
    home = Path(out) / (f"toy-{key}" if small else key)
    with tempfile.TemporaryDirectory() as scratch:  # a dry run writes nothing that stays
        toys = Path(scratch) if dry else home
        if small:
            paths = {
                seed: toy.make(toys / f"seed{seed}" / "toy", size, seed, progress=machine.progress)
                for seed in seeds
            }
            manifests = {seed: read(path) for seed, path in paths.items()}
        else:
            paths = {seed: Path(data) for seed in seeds}
            manifests = {seed: open_data(path, machine.progress) for seed, path in paths.items()}
        plan = plan_table(rows, small, manifests, home, machine, changes)
    reproduction = Reproduction(table, rows, small, home, paths, plan, machine)
    if dry:
        return str(reproduction)
    if machine.progress:
        print(reproduction, flush=True)
    if machine.place().type != "cpu":
        processes = 1
    known = train_and_measure(reproduction, processes)
    values: dict[str, list[dict[str, float]]] = {}
    for row in rows:
        names = [measurement_name(row, seed) for seed in seeds]
        values[row.name] = [known[name] for name in names if name in known]
    text = beside_paper(table, rows, values)
    file = home / "table.md"
    file.write_text(text + "\n", encoding="utf-8")
    return f"{text}\n\n{file}"


def _rows_on_toy(name: str, rows: Sequence[TableRow], progress: bool) -> list[TableRow]:
    "The rows that toy videos can answer. RecipeError for none."
    answered = [r for r in rows if r.small]
    if not answered:
        raise RecipeError(
            f"{name}: needs what the toy videos do not have; name the data of its paper with "
            "--data, or choose another row"
        )
    lacking = [r.name for r in rows if not r.small]
    if lacking and progress:
        print("not on the toy:", *lacking)
    return answered


def _refuse_changes(rows: Sequence[TableRow], small: bool, changes: Mapping[str, Any]) -> None:
    "Refuse a field that no recipe has. RecipeError."
    runs = [run for row in rows for run in row.needs(small)]
    fields = {name for run in runs for name in flat_fields(run.made())}
    for name in changes:
        if name not in fields:
            raise RecipeError(
                f"--set {name}: no recipe of this table has that field; "
                f"{did_you_mean(name, fields)}"
            )


def train_and_measure(
    reproduction: Reproduction,
    processes: int,  # at a time
) -> dict[str, dict[str, float]]:  # `measurement_name` -> number in percent, of all that is known
    "Do all that is not done yet; what is measured is kept in table.json."
    file = reproduction.out / "table.json"
    known = read_json(file, "a table") if file.exists() else {}
    tasks = training_tasks(reproduction, processes)
    tasks |= measuring_tasks(reproduction, processes, known)

    def keep(done):
        new = {k: v for k, v in done.items() if isinstance(v, dict) and k not in known}
        if new:
            known.update(new)
            write_json(file, known)

    plan = reproduction.plan
    folders = [p.folder for p in plan]
    steps = sum(p.steps for p in plan)
    at_once(tasks, processes, folders, steps, reproduction.machine.progress, keep)
    return known


def training_tasks(
    reproduction: Reproduction,
    processes: int,  # at a time
) -> dict[str, Task]:  # run folder -> its training
    "The trainings that are not finished, each behind those it begins with."
    tasks: dict[str, Task] = {}
    for planned in reproduction.plan:
        if not planned.seconds:
            continue
        home = planned.folder.parent
        begin = home / planned.run.encoder.name if planned.run.encoder else None
        miner = home / planned.run.sampler.name if planned.run.sampler else None
        work = partial(train_run, recipe=planned.recipe, begin=begin, miner=miner)
        after = tuple(str(folder) for folder in (begin, miner) if str(folder) in tasks)
        tasks[str(planned.folder)] = _task(reproduction, planned, work, processes, after)
    return tasks


def measuring_tasks(
    reproduction: Reproduction,
    processes: int,  # at a time
    known: Mapping[str, Any],  # what is measured already, by `measurement_name`
) -> dict[str, Task]:  # `measurement_name` -> the measurement
    "The measurements of the runs that rows name, each behind the training of its run."
    tasks: dict[str, Task] = {}
    for row in reproduction.rows:
        run = row.needs(reproduction.small)[-1]
        work: Callable = measure_toy
        if not reproduction.small:
            printed = measured_numbers(reproduction.table, row)
            work = partial(measure_as_printed, printed=printed)
        for planned in reproduction.plan:
            name = measurement_name(row, planned.seed)
            if planned.run == run and name not in known:
                after = (str(planned.folder),) if planned.seconds else ()
                tasks[name] = _task(reproduction, planned, work, processes, after)
    return tasks


def measurement_name(row: TableRow, seed: int) -> str:
    "What table.json calls the numbers of a row."
    return f"{row.name}, seed {seed}"


def _task(
    reproduction: Reproduction,
    planned: Planned,  # the training that it makes or measures
    work: Callable,  # with data, machine and folder
    processes: int,  # at a time
    after: tuple[str, ...],  # names of tasks
) -> Task:
    "Work on one run; beside others it is quiet."
    do = partial(quietly, work) if processes > 1 else work
    data = reproduction.data[planned.seed]
    function = partial(do, data=data, machine=reproduction.machine, folder=planned.folder)
    return Task(function, (), after)
