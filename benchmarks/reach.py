"""What does it take until CoCLR lifts frames on real video, above a colour histogram?

    python benchmarks/evidence.py --data MANIFEST --folder runs/evidence
    python benchmarks/reach.py --data MANIFEST --like runs/evidence --out results/reach.json

The evidence run says what there is with all videos, epochs and pixels. Here each of the three is
made smaller, one at a time, for four of its trainings: InfoNCE on frames and on differences, longer
InfoNCE, and CoCLR on frames mined by the differences. Fewer videos are whole recordings, a part of
those of each class, and the smaller part lies within the larger one. Fewer videos in as many epochs
and as many videos in fewer epochs are the same number of steps, so the two say whether it is new
videos or more steps that help. Fewer training videos are also fewer to find a neighbour among, so
the encoder that saw all of them is measured in each part as well (*whole*), and what a doubling of
videos brings to the training is the line through the differences to it.

For each of the three a line through R@1 over the logarithm of what was changed says what a doubling
brings, with a 95 % interval (bootstrap over recordings and seeds, as in the evidence run), and how
many doublings the histogram is away from CoCLR. A line is not a law: the answer is how far, not
whether. The folder goes on where it stands.

What came out (`results/reach.json`): a doubling of the videos brings CoCLR 6.5 points of R@1 (0.3
to 13.4), and 1.7 (-1.3 to 4.7) where the same videos are searched; how much of it is the larger
gallery is open. More epochs or pixels were not shown to help. UberNCE, the same training with the
right positives, has an R@1 of 46.9 % on frames (the histogram: 41.5 %; the difference was not
tested). Of what CoCLR mines 19 % is right."""

import csv
import json
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measurement
import numpy as np
import torch
from evidence import (
    Conditions,
    Encoder,
    Measurement,
    encoders,
    intervals,
    machine_of,
    percent,
    recipe_of,
    right_by_neighbour,
    run_of,
    trained,
)
from intervals import Bootstrap, middle_95
from result_files import Stamp, write_results
from run_folders import by_epoch, logged, steps_of

from vssl_nb.data.manifest import Manifest, open_data
from vssl_nb.papers.reproduce import Task, at_once
from vssl_nb.runs.evaluation import open_trained
from vssl_nb.training.run_folder import read_json
from vssl_nb.training.machine import keep_memory

# shares of the evidence run's
CHANGES = {"videos": (0.25, 0.5), "epochs": (0.25, 0.5), "pixels": (0.5, 0.75)}
SAME_GALLERY = "coclr, same gallery"
LEAST_EPOCHS = 2
COLUMNS = ("r1", "r1_interval", "r1_gap", "r1_gap_interval")

Rows = dict[str, list[Measurement]]  # encoder -> its seeds


@dataclass(frozen=True)
class Point:
    "What is changed, and to how much."

    changed: str  # 'videos', 'epochs' or 'pixels'
    to: float
    changes: dict[str, Any]  # fields of the recipe
    epochs: int
    share: float  # of the videos

    def task(self, encoder: str, seed: int) -> tuple[str, float, str, int]:
        "The name of a training."
        return self.changed, self.to, encoder, seed

    def home(self, reach: Path) -> Path:
        "The folder of its runs."
        return reach / f"{self.changed}-{self.to:g}"


def compared(plan: dict[str, Any]) -> list[Encoder]:
    """The trainings that are repeated: CoCLR on frames, and what it begins with and is compared
    with.
    """
    every = {e.name: e for e in encoders(plan["asked"].get("second", "residual"))}
    coclr = every["coclr"]
    return [every[name] for name in (coclr.start, coclr.sampler, "infonce", "coclr")]


def names_of(plan: dict[str, Any]) -> list[str]:
    return [e.name for e in compared(plan)]


def shared_recipe(plan: dict[str, Any]):
    "What all trainings of the evidence run share."
    return recipe_of(compared(plan)[0], plan["epochs"], 0, plan["asked"]["changes"])


# ---- parts of the videos


def part_of(manifest: Manifest, share: float, split: int) -> set[int]:
    """Rows of a share of the recordings of each class: the first of an order that is always the
    same.
    """
    classes: dict[str, dict[str, list[int]]] = {}
    for i in manifest.select("train", split):
        row = manifest.rows[i]
        classes.setdefault(row.label, {}).setdefault(row.source, []).append(i)

    rows, rng = set[int](), np.random.default_rng(0)
    for label in sorted(classes):
        order = rng.permutation(sorted(classes[label]))
        count = max(round(share * len(order)), 1)
        for source in order[:count]:
            rows.update(classes[label][source])
    return rows


def fewer(manifest: Manifest, share: float, split: int, reach: Path) -> Path:
    "A folder that shows the same files with a part of the training videos."
    folder = reach / f"videos-{share:g}"
    if (folder / "manifest.csv").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    for file in manifest.root.iterdir():
        link = folder / file.name
        if file.name != manifest.path.name and not link.exists():
            link.symlink_to(file.resolve())

    left_out = {*manifest.select("train", split)} - part_of(manifest, share, split)
    names = {manifest.rows[i].video for i in left_out}
    with manifest.path.open(newline="", encoding="utf-8") as f:
        head, *rows = csv.reader(f)
    kept = [row for row in rows if row[0] not in names]
    new = folder / "manifest.csv.new"
    with new.open("w", newline="", encoding="utf-8") as f:
        csv.writer(f, lineterminator="\n").writerows([head, *kept])
    new.replace(folder / "manifest.csv")
    return folder


def points(plan: dict[str, Any], size: int, changes: dict[str, Any]) -> list[Point]:
    "Smaller budgets than that of the evidence run."
    epochs = plan["epochs"]
    made = []
    for share in changes.get("videos", ()):
        made.append(Point("videos", round(share * plan["train"]), {}, epochs, share))
    for share in changes.get("epochs", ()):
        fewer_epochs = max(round(share * epochs), LEAST_EPOCHS)
        made.append(Point("epochs", fewer_epochs, {}, fewer_epochs, 1.0))
    for share in changes.get("pixels", ()):
        px = 16 * round(share * size / 16)
        made.append(Point("pixels", px, {"size": px}, epochs, 1.0))
    return made


# ---- what is measured


def mined_right(run: Path) -> float | None:
    "Share of the mined positives of the last epoch that have the class of the query."
    values = logged(by_epoch(steps_of(run))[-1], "mined")
    return float(np.mean(values)) if values else None


def whole_in(
    manifest: Manifest, share: float, split: int, run: Path, data: str, device: str
) -> list[int]:
    "Right or wrong for each test video, by the encoder of all videos, searching a part of them."
    t = open_trained(run, data)
    query, gallery = t.pairs(t.protocol(), (split,), machine=machine_of(device, 0))[split]
    kept = sorted(part_of(manifest, share, split))
    here = np.flatnonzero(np.isin(gallery.row, kept))
    return right_by_neighbour(query, gallery.take(here))


def summary(
    rows: Rows,
    runs: list[Path],  # that mine
) -> dict[str, Any]:
    "Mining precision, and R@1 of each encoder with its interval."
    table = {line["name"]: line for line in intervals(rows)}
    mined = [mined_right(run) for run in runs]
    known = [share for share in mined if share is not None]
    numbers: dict[str, Any] = {"mined": float(np.mean(known)) if known else None}
    for name, line in table.items():
        numbers[name] = {k: line[k] for k in COLUMNS if k in line}
    return numbers


def slope(
    xs: list[float],
    rows: list[list[Measurement]],  # of each x: the seeds
    draws: int = 2000,
) -> dict[str, Any]:
    "R@1 gained by a doubling, with its interval, from the same drawn recordings at all points."
    bootstrap = Bootstrap(rows[0][0]["source"], draws)
    x = np.log2(xs) - np.log2(xs).mean()
    shares = [bootstrap.share([seed["r1"] for seed in seeds]) for seeds in rows]
    mean = np.array([share for share, _ in shares])
    of_draws = np.stack([draw for _, draw in shares])
    return {
        "doubling": float(x @ mean / (x @ x)),
        "interval": middle_95(x @ of_draws / (x @ x)),
    }


def answer(changed: str, line: dict[str, Any], ours: float, goal: float) -> str:
    "In words."
    low, high = line["interval"]
    searched = ", searching the same," if changed == "videos" else ""
    gain = (
        f"{changed}: a doubling{searched} brings {100 * line['doubling']:+.1f} points of R@1 "
        f"({100 * low:+.1f} to {100 * high:+.1f})"
    )
    if ours >= goal:
        return f"{gain}; the histogram is reached"
    if low <= 0 <= high:
        return f"{gain}: not told apart from nothing, so no distance can be given"
    if high < 0:
        return f"{gain}: more of it does not help here"
    doublings = (goal - ours) / line["doubling"]
    return f"{gain}; the histogram is {doublings:.1f} doublings away, if it goes on so"


def as_markdown(rows: list[dict[str, Any]], answers: list[str]) -> str:
    lines = [
        "| changed | to | differences, R@1 % | mined right % | InfoNCE as long | CoCLR | whole "
        "CoCLR |",
        "| :-- | --: | --: | --: | --: | --: | --: |",
    ]

    def share(x: float | None) -> str:
        return "–" if x is None else f"{100 * x:.1f}"

    for r in rows:
        differences, infonce, coclr = (
            percent(r[name], "r1") for name in ("infonce, half, residual", "infonce", "coclr")
        )
        lines.append(
            f"| {r['what']} | {r['to']:g} | {differences} | {share(r['mined'])} | {infonce} | "
            f"{coclr} | {share(r['whole'])} |"
        )
    return "\n".join([*lines, "", *(f"- {sentence}" for sentence in answers)])


# ---- all of it


def wanted_points(a: Any, plan: dict[str, Any], manifest: Manifest) -> list[Point]:
    "The points that are asked for; ValueError where the folder or the data cannot give them."
    if manifest.sha256 != plan["asked"]["data"]:
        raise ValueError(f"{a.like}: was made with another manifest than {manifest.path}")
    for seed in plan["seeds"]:
        for name in names_of(plan):
            run = run_of(a.like, seed, name)
            if not (run / "measured.json").exists():
                raise ValueError(
                    f"{run}: is not measured yet; let benchmarks/evidence.py finish first"
                )
    recipe = shared_recipe(plan)
    batch = recipe.learning.batch
    for share in a.changes.get("videos", ()):
        videos = len(part_of(manifest, share, recipe.split))
        if videos < batch:
            raise ValueError(
                f"{manifest.path}: a share of {share:g} of the recordings is {videos} videos, and "
                f"a batch is {batch}"
            )
    return points(plan, recipe.size, a.changes)


def tasks_of(
    a: Any,
    plan: dict[str, Any],
    manifest: Manifest,
    wanted: list[Point],
    reach: Path,
) -> dict[tuple, Task]:
    "A training for each point, seed and encoder."
    split = shared_recipe(plan).split
    tasks: dict[tuple, Task] = {}
    for seed in plan["seeds"]:
        for point in wanted:
            data = a.data
            if point.share != 1:
                data = str(fewer(manifest, point.share, split, reach))
            c = Conditions(
                data,
                plan["asked"]["changes"] | point.changes,
                a.device,
                workers=0 if a.processes > 1 else 2,
                dtype=plan["asked"].get("dtype", "float32"),
            )
            for e in compared(plan):
                after = tuple(point.task(name, seed) for name in (e.start, e.sampler) if name)
                arguments = (e, point.epochs, seed, point.home(reach), c)
                tasks[point.task(e.name, seed)] = Task(trained, arguments, after)
    return tasks


class Report:
    "What the trainings of all points say, beside the evidence run."

    def __init__(
        self,
        a: Any,  # the command line
        plan: dict[str, Any],
        wanted: list[Point],
        done: dict[tuple, Measurement],  # of the tasks
        manifest: Manifest,
    ):
        self.a, self.plan, self.wanted, self.done = a, plan, wanted, done
        self.names, self.seeds, self.reach = names_of(plan), plan["seeds"], a.like / "reach"
        recipe = shared_recipe(plan)
        self.full = {"videos": plan["train"], "epochs": plan["epochs"], "pixels": recipe.size}
        # right or wrong, of CoCLR that has seen all videos and searches a part of them
        self.whole = {
            point.to: [
                whole_in(
                    manifest,
                    point.share,
                    recipe.split,
                    run_of(a.like, seed, "coclr"),
                    a.data,
                    a.device,
                )
                for seed in self.seeds
            ]
            for point in wanted
            if point.changed == "videos"
        }

    def of_evidence(self) -> Rows:
        return {
            name: [
                read_json(run_of(self.a.like, seed, name) / "measured.json", "a run")
                for seed in self.seeds
            ]
            for name in self.names
        }

    def of_point(self, point: Point) -> Rows:
        return {
            name: [self.done[point.task(name, seed)] for seed in self.seeds] for name in self.names
        }

    def steps(self, changed: str) -> list[tuple[float, Rows, Path]]:
        "To how much, what was measured, and where the runs are; the evidence run last."
        steps = [
            (point.to, self.of_point(point), point.home(self.reach))
            for point in self.wanted
            if point.changed == changed
        ]
        return [*steps, (self.full[changed], self.of_evidence(), self.a.like)]

    def rows(self, changed: str) -> list[dict[str, Any]]:
        rows = []
        for to, measured, home in self.steps(changed):
            whole = self.whole.get(to) if changed == "videos" else None
            row = {"what": changed, "to": to}
            row["whole"] = None if whole is None else float(np.mean(whole))
            runs = [run_of(home, seed, "coclr") for seed in self.seeds]
            rows.append(row | summary(measured, runs))
        return rows

    def doublings(self, changed: str) -> dict[str, Any]:
        "What a doubling brings to each encoder."
        steps = self.steps(changed)
        xs = [to for to, _, _ in steps]
        lines = {
            name: slope(xs, [measured[name] for _, measured, _ in steps]) for name in self.names
        }
        if changed == "videos":
            lines[SAME_GALLERY] = slope(xs, [self.behind(to, m["coclr"]) for to, m, _ in steps])
        return lines

    def behind(self, to: float, seeds: list[Measurement]) -> list[Measurement]:
        "How far CoCLR is ahead of the one that has seen all videos and searches as many."
        whole = self.whole.get(to, [seed["r1"] for seed in seeds])
        return [seed | {"r1": np.subtract(seed["r1"], right)} for seed, right in zip(seeds, whole)]

    def results(self, goal: float) -> dict[str, Any]:
        rows, doublings, answers = [], {}, []
        for changed in self.a.changes:
            of_changed = self.rows(changed)
            lines = self.doublings(changed)
            line = lines.get(SAME_GALLERY, lines["coclr"])
            # the evidence run's is the last of all
            answers.append(answer(changed, line, of_changed[-1]["coclr"]["r1"], goal))
            rows += of_changed
            doublings[changed] = lines
        return {
            "plan": self.plan,
            "histogram": goal,
            "rows": rows,
            "doublings": doublings,
            "answers": answers,
        }


def run(
    a: Any,  # the command line
) -> str:  # markdown
    torch.set_num_threads(1)
    keep_memory()
    plan, floor = (read_json(a.like / f, "an evidence run") for f in ("plan.json", "floor.json"))
    manifest, reach = open_data(a.data), a.like / "reach"
    wanted = wanted_points(a, plan, manifest)
    tasks = tasks_of(a, plan, manifest, wanted, reach)
    device = machine_of(a.device, 0).place().type
    processes = a.processes if device == "cpu" else 1
    print(f"{len(tasks)} trainings, {processes} at a time", flush=True)

    stamp = Stamp(__file__, {"plan": plan, "changes": a.changes}, device)
    began = time.monotonic()

    def line(task, row):
        changed, to, name, seed = task
        minutes = (time.monotonic() - began) / 60
        r1 = statistics.mean(row["r1"])
        return f"{minutes:6.1f} min  {changed} {to:g}, {name}, seed {seed}: R@1 {r1:.1%}"

    homes = {(point.changed, point.to): point.home(reach) for point in wanted}
    runs = [run_of(homes[changed, to], seed, name) for changed, to, name, seed in tasks]
    look = measurement.announcer(line)
    done = at_once(tasks, processes, runs, progress=False, look=look)

    goal = float(np.mean(floor["colour histogram"][0]["r1"]))
    results = Report(a, plan, wanted, done, manifest).results(goal)
    write_results(a.out, stamp.head() | results)
    text = as_markdown(results["rows"], results["answers"])
    (reach / "table.md").write_text(text + "\n", encoding="utf-8")
    return text


def main() -> None:
    p = measurement.parser(__doc__)
    p.add_argument("--data", required=True, help="the manifest of the evidence run, or its folder")
    p.add_argument(
        "--like", type=Path, default=Path("runs/evidence"), help="folder of the evidence run"
    )
    p.add_argument(
        "--changes",
        type=json.loads,
        default=CHANGES,
        help="shares of the videos, epochs and pixels of the evidence run, as json",
    )
    p.add_argument("--processes", type=int, default=2, help="trainings at a time, on a CPU")
    p.add_argument("--device", default="auto")
    p.add_argument("--out", type=Path, help="a .json file")
    a = p.parse_args()
    try:
        print(run(a))
    except (ValueError, OSError) as e:
        print(e, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
