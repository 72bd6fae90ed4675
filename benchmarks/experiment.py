"""The one experiment: every method in one table, at one setting, from one command.

Each row changes one thing of its base, or a few (`--list` prints them;
`benchmarks/experiment_rows.py` is the table). World: the plain toy, 720 training videos, 240 test
videos, 360 conflicts, and `both`, whose classes are a motion and a kind of scene. One encoder
(tiny; a small transformer in the last rows), clips of 16 frames, batches of 8 videos, one
projection where a method has no head of its own, one augmentation and protocol; float32, one
thread. The budget is counted in clips that the measured encoder draws (17,280), and what a training
takes is written in five currencies: clips drawn, forward and with gradient, optimizer steps,
seconds of a core; `whole` includes its helpers. The rate of most methods and up to two settings of
their own are chosen by the same search on seed 30, R@1 on its test videos: three rates, then each
own setting at the best rate; another value is taken where it gains 4 points or more. A row that
changes another thing keeps the rate of its base. Seeds 41 to 48 chose nothing.
`benchmarks/experiment_rule.py` has what is judged; it was changed once after runs of seed 30, and
its commit is older than the first run of the seeds 41 to 48.

    python benchmarks/experiment.py --out results/experiment.json --jobs 2
    python benchmarks/experiment.py --out results/experiment.json --pictures runs/pictures
    python benchmarks/experiment.py --out results/experiment.json --table
    python benchmarks/experiment.py --list

The first command goes on where it was killed, also in the middle of a training; its runs lie in
`runs/experiment`. Turns: 0 the search alone, 1 the core rows for all seeds, 2 the other rows, 3 the
core rows with two and four times the budget, 4 the world `both`; each begins with the search of its
rows. The file is whole after each training; beside it (.npz) lie the five training videos nearest
to each test video and to each conflict, and the answers of the probe, from which every share can be
computed again. Where code or recipes are no longer those of the file, the command says which digest
differs and ends; `--mixed` goes on with other code, and each record names the call that made it."""

import json
import os
import signal
import statistics
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import measurement
from experiment_outcomes import key_of, read_outcomes, write_outcomes
from experiment_rows import (
    MARGIN,
    PASSES,
    RATES,
    ROWS,
    SEARCH_SEED,
    SEEDS,
    SETTING,
    WORLDS,
    Chosen,
    Row,
    Training,
    all_helpers,
    choices,
    default_of,
    helpers_of,
    recipe_of,
    search_needs,
    steps_of,
    trainings_of,
    with_helpers,
)
from experiment_rule import judge, names_unknown
from experiment_worker import (
    Diverged,
    NotFinished,
    Task,
    begin,
    begin_below,
    clips_of_a_step,
    digest_of,
    folder_of,
    perform,
)
from measurement import stop
from run_folders import is_finished
from result_files import Stamp, plain, rule, settings_of, write_results
from stamps import changed_modules, imported_modules

from vssl_nb.config import Recipe
from vssl_nb.methods.recipes import to_dict

TURNS = (0, 1, 2, 3, 4)
VIDEOS = {"plain": 720, "both": 704}  # to train on, of the size demo
CURRENCIES = ("steps", "drawn", "forward", "gradient", "cpu_seconds")
IN_SEARCH = ("r1", "scene", "motion", "probe", "rank", *CURRENCIES)
# for the plan, on a busy core: a clip forward, what a gradient adds, a step; beginning and
# measuring of a run
PLAN_MS = {"forward": 1.8, "gradient": 1.3}
PLAN_STEP_MS = 45.0
PLAN_SECONDS = 12.0


# ---- the file


class Results:
    "The file of results, whole after each training; several threads may add to it."

    def __init__(
        self,
        file: Path,
        stamp: Stamp,
        size: str,  # of the toy
        mixed: bool,  # go on though the code has changed
    ):
        self.file, self.stamp, self.size = file, stamp, size
        self.lock = threading.Lock()
        before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        self.stamps: list[dict[str, Any]] = before.get("stamps", [])
        self.search: list[dict[str, Any]] = before.get("search", [])
        self.outcomes = read_outcomes(file)
        # a record without its outcomes is made again
        self.records: list[dict[str, Any]] = [
            r
            for r in before.get("records", [])
            if r["row"] == "chance" or key_of(r) in self.outcomes
        ]
        self.modules: dict[str, str] = {}
        self.mine: dict[str, Any] | None = None  # the stamp of this call, once it has added
        self.refuse(before, mixed)

    def refuse(self, before: Mapping[str, Any], mixed: bool) -> None:
        "End where the file is of another size or code, naming the digests."
        if before and before["size"] != self.size:
            stop(f"{self.file}: is of size {before['size']}, not {self.size}; name another --out")
        modules = {k: v for s in self.stamps for k, v in s["modules"].items()}
        changed = changed_modules(modules)
        if changed and not mixed:
            now = imported_modules()
            words = [f"{name} ({modules[name]}, now {now.get(name, 'gone')})" for name in changed]
            stop(
                f"{self.file}: the code of {', '.join(words)} has changed since; go back to commit "
                f"{self.stamps[-1]['head']}, name another --out, or go on with --mixed"
            )

    def of(self, training: Training, seed: int, view: str = "") -> dict[str, Any] | None:
        "A record; '': of the view that was trained."
        wanted = asdict(training) | {"seed": seed, "view": view or training.view}
        for record in self.records:
            if all(record[k] == value for k, value in wanted.items()):
                return record
        return None

    def add(
        self,
        made: dict[str, Any],  # from `perform`
        helpers: list[Training],
    ) -> None:
        "Add the records of a training, and write the file."
        with self.lock:
            self.modules |= made["modules"]
            for record, kept in zip(made["records"], made["outcomes"]):
                record |= {"stamp": self.number()}
                if "steps" in record or helpers:
                    record["whole"] = self.whole(record, helpers)
                    record["helpers"] = [t.name for t in helpers]
                self.records = [r for r in self.records if key_of(r) != key_of(record)]
                self.records.append(record)
                if kept:
                    self.outcomes[key_of(record)] = kept
            write_outcomes(self.file, self.outcomes)
            self.write()

    def whole(self, record: dict[str, Any], helpers: list[Training]) -> dict[str, Any]:
        "The currencies of a training and of all its helpers."
        every = [record, *(self.of(t, record["seed"]) for t in helpers)]
        rows = [r for r in every if r and "steps" in r]
        return {k: round(sum(r[k] for r in rows), 1) for k in CURRENCIES}

    def number(self) -> int:  # of the stamp of this call
        if self.mine is None:
            self.mine = {}
            self.stamps.append(self.mine)
        return len(self.stamps) - 1

    def tried(self, line: dict[str, Any], modules: dict[str, str]) -> None:
        "Add a line of the search, and write the file."
        with self.lock:
            self.modules |= modules
            self.search.append(line | {"stamp": self.number()})
            self.write()

    def write(self) -> None:
        "Records in the order of the table, whoever was first."
        order = {name: i for i, name in enumerate(ROWS)}
        self.records.sort(
            key=lambda r: (r["world"], order[r["row"]], r["view"], r["budget"], r["seed"])
        )
        self.search.sort(key=lambda line: (order[line["row"]], line["view"], line["tried"]))
        if self.mine is not None:
            self.mine.clear()
            head = self.stamp.head()
            head["modules"] = without_recipes(head["modules"] | self.modules)
            self.mine.update(head)
        head = {"what": "benchmarks/experiment.py", "size": self.size}
        head |= {"setting": plain(SETTING), "worlds": WORLDS, "rates": RATES}
        head["rows"] = {name: described(row) for name, row in ROWS.items()}
        whole = head | {"stamps": self.stamps, "search": self.search, "records": self.records}
        # a number that is none has no place in JSON
        write_results(self.file, whole)


def without_recipes(
    modules: dict[str, str],  # of the library -> digest
) -> dict[str, str]:
    "Of recipes each record has a digest of its own: one more recipe changes none of the others."
    return {k: v for k, v in modules.items() if not k.startswith("vssl_nb.methods.recipes")}


def described(row: Row) -> dict[str, Any]:
    "A row for whoever reads the file."
    return {
        "group": row.group,
        "changes": row.changes,
        "base": row.base,
        "method": row.method,
        "fields": plain(dict(row.fields)),
        "shown": row.shown,
    }


# ---- what a run of the script knows


@dataclass
class Run:
    "The command line, the results, and what has been chosen."

    a: Any
    results: Results
    chosen: dict[tuple[str, str], Chosen] = field(default_factory=dict)

    def home(self, world: str, seed: int) -> Path:
        return self.a.work / f"{world}-{self.a.size}" / f"seed{seed}"

    def recipe(
        self,
        training: Training,
        seed: int,
        chosen: Mapping[tuple[str, str], Chosen] | None = None,  # None: by the search
    ) -> Recipe:
        passes, changes = self.a.passes, self.a.changes
        return recipe_of(training, seed, chosen or self.chosen, passes, changes)

    def task(
        self,
        training: Training,
        seed: int,
        chosen: Mapping[tuple[str, str], Chosen] | None = None,
    ) -> Task:
        row, home = ROWS[training.row], self.home(training.world, seed)
        helpers = {net: self.recipe(t, seed) for net, t in helpers_of(training).items()}
        untrained = [
            to_dict(helpers[net])
            for net, t in helpers_of(training).items()
            if ROWS[t.row].kind == "untrained"
        ]
        return Task(
            training,
            seed,
            self.a.size,
            row.kind,
            to_dict(self.recipe(training, seed, chosen)),
            (training.view, *row.also),
            home.resolve(),
            {net: folder_of(home.resolve(), recipe) for net, recipe in helpers.items()},
            self.a.save_minutes,
            tuple(untrained),
        )


Do = Callable[[Task], dict[str, Any]]  # a task in the process of a thread -> what `perform` gives


# ---- the search


def lines_of_search(
    run: Run,
    row: Row,
    view: str,
) -> list[dict[str, Any]]:
    "What has been tried for a row."
    return [s for s in run.results.search if (s["row"], s["view"]) == (row.name, view)]


def search_row(
    run: Run,
    row: Row,
    view: str,
    do: Do,
) -> Chosen:
    "The rate, then each own setting at what is best so far; what is known is not tried again."
    best, most = default_of(row), -MARGIN
    for name, values in choices(row, tuple(run.a.rates)):
        for value in values:
            candidate = Chosen(
                value if name == "lr" else best.lr,
                dict(best.own) | ({} if name == "lr" else {name: value}),
            )
            r1 = try_out(run, row, view, candidate, do)
            if r1 >= most + MARGIN:
                best, most = candidate, r1
    return best


def try_out(
    run: Run,
    row: Row,
    view: str,
    candidate: Chosen,
    do: Do,
) -> float:  # R@1 on the test videos of the seed of the search
    "Train with some settings, unless it is known."
    training = Training("plain", row.name, view)
    chosen = run.chosen | {(row.name, view): candidate}
    task = run.task(training, SEARCH_SEED, chosen)
    recipe = run.recipe(training, SEARCH_SEED, chosen)
    known = lines_of_search(run, row, view)
    for line in known:
        if line["recipe"] == digest_of(recipe):
            return line["r1"]
    train_helpers(run, training, SEARCH_SEED, do)
    try:
        made = do(task)
        record = made["records"][0]
        numbers = {k: record[k] for k in IN_SEARCH}
    except Diverged as e:
        made, numbers = {"modules": {}}, {"r1": 0.0, "diverged": str(e)}
    run.results.tried(
        {
            "row": row.name,
            "view": view,
            "seed": SEARCH_SEED,
            "tried": len(known),
            "recipe": digest_of(recipe),
            "lr": candidate.lr,
            "own": plain(dict(candidate.own)),
        }
        | numbers,
        made["modules"],
    )
    own = ", ".join(f"{k} {v}" for k, v in candidate.own.items())
    print(
        f"search, {row.name}, {view}: rate {candidate.lr:g} {own} R@1 {numbers['r1']:.1%}",
        flush=True,
    )
    return numbers["r1"]


# ---- units of work, and who does them


@dataclass(frozen=True)
class Unit:
    "Work of one process in one go."

    name: str
    needs: tuple[str, ...]  # names of units that must have ended
    work: Callable[[Do], None]


def search_units(run: Run, wanted: list[Training]) -> list[Unit]:
    "A unit for each row and view that a training needs, in an order that can be followed."
    units: dict[str, Unit] = {}

    def add(row: Row, view: str) -> None:
        name = f"search {row.name} {view}"
        if name in units:
            return
        needs = [pair for pair in search_needs(row, view) if pair != (row.name, view)]
        for other, other_view in needs:
            add(ROWS[other], other_view)

        def work(do: Do) -> None:
            run.chosen[row.name, view] = search_row(run, row, view, do)

        units[name] = Unit(name, tuple(f"search {n} {v}" for n, v in needs), work)

    for training in wanted:
        if ROWS[training.row].kind == "training":
            for other, view in search_needs(ROWS[training.row], training.view):
                add(ROWS[other], view)
    return [*units.values()]


def training_units(run: Run, turn: int, seeds: list[int]) -> Iterator[Unit]:
    "A unit for each world and seed of a turn: its videos are decoded once."
    by_world: dict[str, list[Training]] = {}
    for training in wanted_of(turn, run.a.rows):
        by_world.setdefault(training.world, []).append(training)
    for world, trainings in by_world.items():
        for seed in seeds:

            def work(do: Do, seed: int = seed, trainings: list[Training] = trainings) -> None:
                for training in trainings:
                    train_once(run, training, seed, do)

            yield Unit(f"turn {turn} {world} {seed}", (), work)


def wanted_of(
    turn: int,
    rows: list[str],  # names; empty: all
) -> list[Training]:
    "The trainings of a turn, or those of some rows and of what helps them."
    trainings = trainings_of(turn)
    if not rows:
        return trainings
    return with_helpers([t for t in trainings if t.row in rows])


def train_helpers(run: Run, training: Training, seed: int, do: Do) -> None:
    "Those whose run folder is not there: of the search not all are searched, and a folder goes."
    for helper in all_helpers(training):
        task = run.task(helper, seed)
        if task.kind == "training" and not is_finished(task.folder):
            do(task)


def train_once(run: Run, training: Training, seed: int, do: Do) -> None:
    "A training and its records, unless they are there; ends where they are of another recipe."
    row = ROWS[training.row]
    recipe = digest_of(run.recipe(training, seed))
    views = (training.view, *row.also)
    known = [run.results.of(training, seed, view) for view in views]
    for record in known:
        if record is not None and record["recipe"] != recipe:
            stop(
                f"{run.results.file}: {training.name}, seed {seed} was made with the recipe "
                f"{record['recipe']}, and it is {recipe} now; name another --out"
            )
    if all(known):
        return
    train_helpers(run, training, seed, do)
    try:
        made = do(run.task(training, seed))
    except Diverged as e:  # no record: the table shows that a seed is missing
        print(f"seed {seed}, {training.name}: no result; {e}", flush=True)
        return
    run.results.add(made, all_helpers(training))
    for record in made["records"]:
        numbers = ", ".join(f"{k} {100 * record[k]:.1f}" for k in ("r1", "scene", "motion"))
        print(f"seed {seed}, {training.name} ({record['view']}): {numbers}", flush=True)


def follow(units: list[Unit], jobs: int) -> None:
    "All units, each after those that it needs, by so many processes; the first error ends all."
    waiting, done, failed = [*units], set[str](), list[BaseException]()
    names = {unit.name for unit in units}
    changed = threading.Condition()

    def next_unit() -> Unit | None:
        with changed:
            while waiting and not failed:
                for unit in waiting:
                    if all(n in done or n not in names for n in unit.needs):
                        waiting.remove(unit)
                        return unit
                changed.wait(1.0)
        return None

    def serve(do: Do) -> None:
        while (unit := next_unit()) is not None:
            try:
                unit.work(do)
            except BaseException as e:  # told to the main thread
                failed.append(e)
            with changed:
                done.add(unit.name)
                changed.notify_all()

    if jobs == 1:
        serve(perform)
    else:
        follow_in_processes(serve, jobs)
    if failed:
        raise failed[0]


def follow_in_processes(serve: Callable[[Do], None], jobs: int) -> None:
    "A thread for each process: it decides, and the process trains."
    context = get_context("spawn")
    pools = [ProcessPoolExecutor(1, context, begin_below, (os.getpid(),)) for _ in range(jobs)]
    threads = []
    try:
        for pool in pools:

            def do(task: Task, pool: ProcessPoolExecutor = pool) -> dict[str, Any]:
                return pool.submit(perform, task).result()

            thread = threading.Thread(target=serve, args=(do,))
            thread.start()
            threads.append(thread)
        for thread in threads:
            thread.join()
    finally:
        for pool in pools:
            pool.shutdown(cancel_futures=True)


# ---- the plan


def planned_seconds(
    run: Run,
    training: Training,
) -> tuple[int, float]:  # steps; seconds of a core
    "From what is measured of the row where there is something, else from the clips of a step."
    row = ROWS[training.row]
    videos = VIDEOS[training.world]
    if row.kind != "training":
        return 0, PLAN_SECONDS
    recipe = run.recipe(training, SEEDS[0])
    steps = steps_of(recipe, videos)
    found = [r for r in run.results.records if r["row"] == row.name and r["view"] == training.view]
    rates = [r["cpu_seconds"] / r["steps"] for r in found if r.get("steps")]
    if rates:
        return steps, steps * statistics.median(rates) + PLAN_SECONDS
    clips = clips_of_a_step(recipe)
    ms = PLAN_STEP_MS + sum(PLAN_MS[name] * clips[name] for name in PLAN_MS)
    return steps, steps * ms / 1000 + PLAN_SECONDS


def print_plan(run: Run) -> None:
    "Rows, what they change, and the hours of a core that they take."
    total = 0.0
    for turn in TURNS:
        seconds = 0.0
        if turn == 0:
            every = [t for n in TURNS[1:] for t in wanted_of(n, run.a.rows)]
            trained = [t for t in every if ROWS[t.row].kind == "training"]
            searched = {pair for t in trained for pair in search_needs(ROWS[t.row], t.view)}
            print("turn 0: the search, seed 30")
            for name, view in sorted(searched, key=lambda pair: [*ROWS].index(pair[0])):
                row = ROWS[name]
                tries = sum(len(v) for _, v in choices(row)) - len(row.own)
                seconds += tries * planned_seconds(run, Training("plain", name, view))[1]
            print(f"  {len(searched)} rows, {seconds / 3600:.1f} hours of a core")
            total += seconds
            continue
        print(f"turn {turn}")
        for t in wanted_of(turn, run.a.rows):
            steps, of_seed = planned_seconds(run, t)
            seconds += len(run.a.seeds) * of_seed
            row = ROWS[t.row]
            base = f"{row.base}: " if row.base else ""
            where = f"{t.world}, {t.view}, x{t.budget}"
            print(f"  {t.row:26} {where:20} {steps:5} steps {of_seed:5.0f} s  {base}{row.changes}")
        print(f"  {len(run.a.seeds)} seeds, {seconds / 3600:.1f} hours of a core")
        total += seconds
    print(f"in all {total / 3600:.1f} hours of a core")


def print_table(results: Results) -> None:
    "Medians of each line, and the verdicts."
    lines: dict[tuple, list[dict[str, Any]]] = {}
    for r in results.records:
        if ROWS[r["row"]].shown:
            lines.setdefault((r["world"], r["row"], r["view"], r["budget"]), []).append(r)
    for (world, row, view, budget), records in lines.items():
        numbers = " ".join(
            f"{k} {100 * statistics.median(r[k] for r in records):5.1f}"
            for k in ("r1", "scene", "motion")
        )
        print(f"{world:5} {row:26} {view:8} x{budget} {len(records)} seeds  {numbers}")
    for line in judge(results.records, len(SEEDS)):
        if line["verdict"] != "not run":
            low, high = (100 * x for x in line["interval"])
            print(
                f"{line['verdict']:7} {line['statement']}: {100 * line['mean']:.1f} points "
                f"({low:.1f} to {high:.1f}), p {line['p_holm']:.3f}"
            )


# ---- the command


def refuse_unruled(a: Any) -> str:  # the commit of the rule
    "The rule must be in a commit before a seed that it speaks of is looked at."
    commit = rule(str(Path(__file__).with_name("experiment_rule.py")))
    judged = a.size == "demo" and {*a.seeds} & {*SEEDS} and a.turns != [0]
    if judged and not commit:
        stop("benchmarks/experiment_rule.py: differs from every commit; commit the rule first")
    return commit


def parse() -> Any:
    p = measurement.parser(__doc__)
    p.add_argument("--out", type=Path, help="a .json file for the results")
    p.add_argument("--work", type=Path, default=Path("runs/experiment"), help="folder of the runs")
    p.add_argument("--jobs", type=int, default=1, help="processes, one a core")
    p.add_argument("--rows", nargs="+", default=[], metavar="ROW", help="these and their helpers")
    p.add_argument("--seeds", type=int, nargs="+", default=[*SEEDS])
    p.add_argument("--turns", type=int, nargs="+", default=[*TURNS], choices=TURNS)
    p.add_argument("--search", action="store_true", help="the search alone: --turns 0")
    p.add_argument("--size", default="demo", choices=["tiny", "demo"], help="of the toy")
    p.add_argument("--passes", type=int, default=PASSES, help="epochs of a row with two clips")
    p.add_argument("--rates", type=float, nargs="+", default=[*RATES], help="to choose from")
    p.add_argument(
        "--changes", type=json.loads, default={}, help="fields to change in all recipes, as JSON"
    )
    p.add_argument("--save-minutes", type=float, default=2.0, help="between two checkpoints")
    p.add_argument("--mixed", action="store_true", help="go on though the code has changed")
    p.add_argument("--list", action="store_true", help="print rows and planned hours")
    p.add_argument("--table", action="store_true", help="print medians and verdicts")
    p.add_argument("--pictures", type=Path, metavar="DIR", help="draw from --out, train nothing")
    a = p.parse_args()
    if a.out is None and not a.list:
        p.error("give --out, a .json file for the results")
    unknown = [name for name in a.rows if name not in ROWS]
    if unknown:
        p.error(f"--rows {unknown[0]!r}: there are {', '.join(ROWS)}")
    if a.search:
        a.turns = [0]
    return a


def units_of(run: Run) -> Iterator[list[Unit]]:
    "The units of each turn, after the search of what it trains; with turn 0 alone all searches."
    if run.a.turns == [0]:
        yield search_units(run, [t for n in TURNS[1:] for t in wanted_of(n, run.a.rows)])
    for turn in filter(None, run.a.turns):
        yield search_units(run, wanted_of(turn, run.a.rows))
        yield [*training_units(run, turn, run.a.seeds)]


def main() -> None:
    a = parse()
    if a.pictures:
        import experiment_pictures  # matplotlib, which no process that trains needs

        for file in experiment_pictures.draw_all(a.out, a.pictures):
            print(file)
        return
    without = ("list", "table", "pictures", "jobs", "work", "save_minutes", "mixed", "turns")
    stamp = Stamp(__file__, settings_of(a, (*without, "rows", "seeds", "search")), threads=1)
    run = Run(a, Results(a.out or Path("none.json"), stamp, a.size, a.mixed or a.list))
    if a.list:
        print_plan(run)
        return
    if a.table:
        print_table(run.results)
        return
    unknown = names_unknown([*ROWS])
    assert not unknown, f"the rule names rows that there are not: {unknown}"
    stamp.fields["rule"] = refuse_unruled(a)
    begin()
    try:
        for units in units_of(run):
            follow(units, a.jobs)
    except NotFinished as e:
        stop(str(e))
    except KeyboardInterrupt as e:  # trainings have saved themselves
        print("stopped; the same command goes on", file=sys.stderr)
        raise SystemExit(128 + getattr(e, "signal", signal.SIGINT)) from None
    print_table(run.results)


if __name__ == "__main__":
    main()
