"From no data at all to trained encoders, a table, pictures and a page."

import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

from .. import show
from ..config import Recipe, override_known
from ..data import toy
from ..data.dataset import TestClips
from ..data.flow import extract_flow
from ..data.manifest import Manifest, read
from ..data.views import image_to_flow
from ..measure.motion_descriptors import BY_HAND
from ..methods.recipes import find, to_dict
from ..papers.report import cell, html, table
from ..papers.reproduce import TOY_STARTS
from ..papers.tasks import Task, at_once, decoded_videos, quietly, train_run
from ..runs.cotraining import column, cotrain, cotraining_phases, curve
from ..runs.evaluation import baselines, retrieve
from ..training.run_folder import read_json, write_json
from ..training.machine import Machine, fastest_dtype

# columns of the table -> heading
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
    out = Path(out)
    began = time.monotonic()
    machine = Machine("cpu", fastest_dtype(torch.device("cpu")), progress=False)
    changes = dict(changes or {}) | {"seed": seed}
    phases = [recipe for _, recipe in cotraining_phases("coclr-toy", changes)]
    beside = {override_known(find(name), changes): start for name, start in TOY_STARTS.items()}
    recipes = [*phases, *beside]

    data = toy.make(out / "toy", size, seed, progress=progress)
    printed = RowPrinter()
    floor = baselines(phases[0], read(data), which=("chance", *BY_HAND), machine=machine)
    printed.add(floor)
    extract_flow(data, "dis", codec="small", progress=progress)
    manifest = read(data)

    tasks = training_tasks_of_demo(phases, beside, out, data, machine, changes)
    compared = {f"{recipe.name}, measured": recipe for recipe in beside}
    for name, recipe in compared.items():
        tasks[name] = _task(retrieve, data, machine, (recipe.name,), source=out / recipe.name)
    unstarted = [recipe for recipe, start in beside.items() if not start]
    fresh = {f"{recipe.view}, untrained": recipe for recipe in (*phases[:2], *unstarted)}
    for name, recipe in fresh.items():
        tasks[name] = _task(measure_untrained, data, machine, recipe=recipe)

    def look(done):
        known = list(floor)
        for rows in done.values():
            if isinstance(rows, list):  # a task that trains returns its folder
                known += rows
        printed.add(known[len(printed) :])

    results = at_once(
        tasks,
        processes or min(2, os.cpu_count() or 1),
        [out / recipe.name for recipe in recipes],
        sum(steps_of(recipe, manifest) for recipe in recipes),
        progress,
        look,
    )
    decoded_videos.cache_clear()  # where this process has done the work itself
    rows = list(floor)
    for name in (*fresh, "cotrained", *compared):
        rows += results[name]
    write_json(out / "results.json", rows)
    write_page(out, rows, manifest, phases, recipes)
    seconds = time.monotonic() - began
    page = f"{out / 'report.html'}, {seconds:.0f} s in all"
    print("", table(rows, "text", SHOWN), "", story(rows), page, sep="\n")
    return rows


class RowPrinter:
    "Prints the R@1 of each row as it becomes known."

    def __init__(self):
        self.printed = 0

    def __len__(self) -> int:
        return self.printed

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        for row in rows:
            text = f"R@1 {cell('r1', row['r1']):>5} %  {row['name']}, {row['view']}"
            tqdm.write(text.rstrip(", "))
        self.printed += len(rows)


# -- tasks


def training_tasks_of_demo(
    phases: Sequence[Recipe],  # of the co-training
    beside: Mapping[Recipe, str],  # further recipes -> the recipe whose run gives the first weights
    out: Path,
    data: Path,
    machine: Machine,
    changes: Mapping[str, Any],
) -> dict[str, Task]:
    "The trainings, in the order of urgency: what fills the gaps comes last."
    tasks: dict[str, Task] = {}

    def add_training(recipe, start=""):
        tasks[recipe.name] = _task(
            train_run,
            data,
            machine,
            (start,) if start else (),
            recipe=recipe,
            folder=out / recipe.name,
            begin=out / start if start else None,
        )

    for recipe in phases[:2]:  # InfoNCE on both views
        add_training(recipe)
    # goes on from these, and measures all phases
    both = tuple(tasks)
    tasks["cotrained"] = _task(
        cotrain, data, machine, both, name="coclr-toy", out=out, changes=changes
    )
    for recipe, start in beside.items():
        add_training(recipe, start)
    return tasks


def _task(
    work: Callable,
    data: Path,  # a manifest
    machine: Machine,
    after: tuple[str, ...] = (),  # names of tasks
    **given,  # further arguments of `work`
) -> Task:
    return Task(partial(quietly, work, data=data, machine=machine, **given), (), after)


def measure_untrained(
    recipe: Recipe,
    data: Path,
    machine: Machine,
) -> list[dict[str, Any]]:  # one row
    "What the network of a recipe finds before it is trained."
    # nothing to save: Ctrl-C may end it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return baselines(recipe, read(data), which=("random",), machine=machine)
    finally:
        signal.signal(signal.SIGINT, before)


def steps_of(recipe: Recipe, manifest: Manifest) -> int:
    "How many optimizer steps a recipe takes."
    videos = len(manifest.select("train"))
    return recipe.learning.epochs * (videos // recipe.learning.batch)


# -- the page


def write_page(
    out: Path,
    rows: Sequence[dict[str, Any]],  # of results.json
    manifest: Manifest,
    phases: Sequence[Recipe],  # of the co-training
    recipes: Sequence[Recipe],  # all that were trained
) -> None:
    "Write figures and report.html."
    figures = draw_figures(out, manifest, phases, recipes)
    shown = [{k: v for k, v in row.items() if k not in ("r20", "r50")} for row in rows]
    html(
        shown,
        figures,
        {recipe.name: to_dict(recipe) for recipe in recipes},
        out / "report.html",
        title="vssl_nb demo",
        note=story(rows),
        versions=read_json(out / phases[0].name / "card.json", "a run")["versions"],
    )


def draw_figures(
    out: Path,
    manifest: Manifest,
    phases: Sequence[Recipe],  # of the co-training
    recipes: Sequence[Recipe],  # all that were trained
) -> dict[str, Path]:  # caption -> file
    "The pictures of the page."
    infonce = [recipe.name for recipe in recipes if recipe.name.startswith("infonce")]

    def curves(name):  # of a column of steps.csv
        lines = {run: column(out / run, name) for run in infonce}
        return show.curves(lines, "step", name, smooth=20)

    folder = out / "figures"
    figures = {
        "A video of each class, and below it its optical flow: only the motion tells the class.": (
            show.save_picture(classes_figure(manifest), folder / "classes.png")
        ),
        "The loss of InfoNCE. Guessing among 32 costs log 32 = 3.5.": (
            show.save_picture(curves("loss"), folder / "loss.png")
        ),
        "How often a query finds its own key first, in training.": (
            show.save_picture(curves("top1"), folder / "top1.png")
        ),
        "R@1 after each phase of co-training, and the share of right positives among those that "
        "the phase learned from. The table has the share of right ones among those that the "
        "finished network chooses.": (
            show.save_picture(curve(out, [phase.name for phase in phases]), folder / "phases.png")
        ),
    }
    for recipe in recipes:
        caption = (
            f"{recipe.name}: test videos on the left, and their nearest training videos. A green "
            "frame means the same class."
        )
        wall = out / recipe.name / "figures" / f"neighbours-{manifest.sha256[:8]}.png"
        figures[caption] = Path(shutil.copy(wall, folder / f"neighbours-{recipe.name}.png"))
    return figures


def classes_figure(
    manifest: Manifest,
):  # Figure
    "A training video of each class, eight frames, 64 pixels wide, and below it its stored flow."
    first = {manifest.rows[i].label: i for i in reversed(manifest.select("train"))}
    names = [label for label in manifest.labels if label in first]
    clips = TestClips(
        manifest,
        [first[name] for name in names],
        clips=1,
        length=8,
        stride=2,
        size=64,
        load=("clips", "flow"),
    )
    items = [clips[i] for i in range(len(names))]
    flows = [image_to_flow(item["flow"][0]) for item in items]  # (T, 2, H, W) pixels
    longest = [float(flow.norm(dim=1).max()) for flow in flows]
    full_colour = max(longest, default=0) or 1.0
    strips, titles = [], []
    for name, item, flow in zip(names, items, flows):
        strips += [item["clips"][0], show.flow_colour(flow, full_colour)]
        titles += [name, "flow"]
    return show.strips(strips, titles)


def story(
    rows: Sequence[dict[str, Any]],  # of results.json
) -> str:  # a paragraph
    "The table in words."

    def r1(**row):
        share = [r["r1"] for r in rows if row.items() <= r.items()][-1]  # of the last cycle
        return f"{100 * share:.1f} %"

    sentences = [
        "R@1 is the share of test videos whose nearest training video shows the same motion.",
        f"Guessing reaches {r1(method='chance')}, a colour histogram {r1(method='histogram')}, "
        f"motion by hand {r1(method='motion')}, and both together "
        f"{r1(method='histogram+motion')}.",
    ]
    views = {"flow": "optical flow", "residual": "differences of frames", "rgb": "frames"}
    for view, words in views.items():
        sentences.append(
            f"InfoNCE on {words} reaches {r1(name=f'infonce-toy-{view}')} "
            f"(before training {r1(method='random', view=view)})."
        )
    sentences += [
        f"CoCLR on frames reaches {r1(method='coclr', view='rgb')}: a network that sees "
        "differences of frames chooses its positives.",
        f"InfoNCE on frames reaches {r1(name='infonce-toy-rgb-longer')} in as many steps, and "
        f"UberNCE, whose positives come from labels, {r1(name='ubernce-toy-rgb')}.",
        f"CoCLR on differences of frames reaches {r1(method='coclr', view='residual')}, and both "
        f"networks of CoCLR together reach {r1(method='coclr', view='rgb+residual')}.",
    ]
    return " ".join(sentences)
