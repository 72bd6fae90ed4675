"""Computed memory of a training step against what small real runs take; and the table of every
training.

    python benchmarks/memory.py --out results/memory-cpu.json
    python benchmarks/memory.py --table --out results/budget.json
    python benchmarks/memory.py --device cuda --out results/memory-gpu.json   # waits for a GPU

Three backbones, two batches each, with and without recomputation, on blank clips, two optimizer
steps by the loop itself. On a CPU each case runs in fresh processes of two kinds, which know
nothing of what is computed:

    measured:   peak of the resident memory (VmHWM) in the second step, less what was resident
                before the run began; freed memory goes back to the system at once
                (MALLOC_MMAP_THRESHOLD_, and `keep_memory` is left out)
    allocator:  peak of the bytes that torch's allocator reports to the profiler

Two threads: with one, torch takes a convolution on the CPU that unfolds its input (200 MB more for
`small`). On a GPU, `measured` is torch.cuda.max_memory_allocated of the second step, and `reserved`
what the caching allocator had taken from the device.
"""

import argparse
import gc
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import measurement
import torch
from measurement import forget_peak, in_own_process, memory_now
from result_files import Stamp, settings_of, write_results
from torch.profiler import ProfilerActivity, profile

from vssl_nb.methods.recipes import RECIPES, find, override
from vssl_nb.config import Recipe
from vssl_nb.runs.budget import VIDEOS, plan
from vssl_nb.runs.experiment import BlankVideos, resolve
from vssl_nb.runs.finetuning import TRAININGS
from vssl_nb.runs.trace import trace_step
from vssl_nb.training import loop
from vssl_nb.training.loop import TrainingState, fit
from vssl_nb.training.machine import DTYPES, Machine

SIZES = {"tiny": (16, 64), "small": (16, 112), "s3d": (16, 64)}  # frames and side
BATCHES = {"tiny": (8, 32), "small": (4, 8), "s3d": (4, 8)}
THREADS = 2
CASES = [
    dict(backbone=backbone, batch=batch, again=again)
    for backbone in SIZES
    for batch, again in product(BATCHES[backbone], (False, True))
]


def recipe_of(
    case: dict[str, Any],
    batch: int | None = None,  # that of the case if not given
) -> Recipe:
    length, size = SIZES[case["backbone"]]
    return override(
        find("infonce-laptop-rgb"),
        backbone=case["backbone"],
        length=length,
        size=size,
        batch=batch or case["batch"],
    )


def train(
    recipe: Recipe,
    again: bool,  # recompute activations?
    device: str,
    dtype: str,
    after_step: Callable[[], None],
) -> None:
    "Two steps of the loop itself."
    machine = Machine(device, activation_checkpointing=again)
    experiment = resolve(recipe, BlankVideos(100), machine)
    batches: Any = experiment.batches
    order = batches.batch_sampler
    order.total = order.per_epoch = 2
    # memory that is really used
    batches.frames = lambda shape: torch.full(shape, 7, dtype=torch.uint8)
    if device == "cuda":
        batches.pin = lambda x: x.pin_memory()
    run = TrainingState(experiment.method, experiment.optimizer)
    steps = fit(run, batches, experiment.views, experiment.schedules, device, DTYPES[dtype])
    for result in steps:
        result.read()
        after_step()


# ---- one measurement, in a process of its own


def resident(case: dict[str, Any]) -> dict[str, int]:
    "The peak of a process in the second step."
    peaks: list[int] = []

    def look():
        peaks.append(memory_now("VmHWM"))
        forget_peak()

    gc.collect()
    forget_peak()
    before = memory_now("VmRSS")
    train(recipe_of(case), case["again"], "cpu", "float32", look)
    return {"measured": peaks[-1] - before}


def allocated(case: dict[str, Any]) -> dict[str, int]:
    "The peak of the allocator over both steps."
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as p:
        train(recipe_of(case), case["again"], "cpu", "float32", lambda: None)
    events = [e for e in p.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = most = 0
    for event in sorted(events, key=lambda e: (e.start_ns(), e.nbytes())):
        now += event.nbytes()
        most = max(most, now)
    return {"allocator": most}


def on_gpu(case: dict[str, Any]) -> dict[str, int]:
    "The peak of torch's allocator on a GPU in the second step."
    peaks: list[int] = []

    def look():
        torch.cuda.synchronize()
        peaks.append(torch.cuda.max_memory_allocated())
        torch.cuda.reset_peak_memory_stats()

    train(recipe_of(case), case["again"], "cuda", "bfloat16", look)
    return {"measured": peaks[-1], "reserved": torch.cuda.max_memory_reserved()}


WAYS = {"resident": resident, "allocated": allocated, "on_gpu": on_gpu}


def child(o: dict[str, Any]) -> None:
    "One measurement; what libraries load on first use is there before it begins."
    torch.set_num_threads(THREADS)
    with mock.patch.object(loop, "keep_memory", lambda: False):
        if o["way"] != "on_gpu":
            train(recipe_of(o, 2), o["again"], "cpu", "float32", lambda: None)
        print(json.dumps(WAYS[o["way"]](o)))


# ---- all of them


def measure(case: dict[str, Any], way: str) -> dict[str, int]:
    "Run a child."
    environment = {"MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": str(THREADS)}
    return in_own_process(__file__, "--child", case | {"way": way}, environment)


def computed(case: dict[str, Any], device: str) -> int:
    "Bytes of a step, without taking one."
    gpu = device == "cuda"
    experiment = resolve(recipe_of(case))
    trace = trace_step(experiment, "bfloat16" if gpu else "float32", case["again"])
    return sum(trace.peak(gpu).values())


def compare(
    device: str,
    cases: list[dict[str, Any]],
    keep: Callable[[list], None] = lambda rows: None,  # called after each case
) -> list[dict[str, Any]]:
    "What is computed, beside what is measured."
    rows = []
    for case in cases:
        title = f"{case['backbone']} {case['batch']}{' recomputed' if case['again'] else ''}"
        row = {"case": title} | case | {"computed": computed(case, device)}
        for way in ("on_gpu",) if device == "cuda" else ("resident", "allocated"):
            row |= measure(case, way)
        rows.append(row)
        print(
            f"{title:22} computed {row['computed'] / 1e6:8.1f} MB, "
            f"measured {row['measured'] / 1e6:8.1f} MB "
            f"({row['computed'] / row['measured'] - 1:+.1%})",
            flush=True,
        )
        keep(rows)
    return rows


def table(
    recipes: list[tuple[Recipe, int | None]],  # and how many videos; None: those of its dataset
    kept: list[dict[str, Any]],  # rows that are not made again
) -> list[dict[str, Any]]:
    "The plan of each; those that differ in name, data or views of one size share traces."
    rows = []
    known = {row["name"]: row for row in kept}
    for recipe, videos in recipes:
        if recipe.name in known:
            rows.append(known[recipe.name])
            continue
        row = plan(resolve(recipe, BlankVideos(videos)))
        rows.append(row)
        print(f"{recipe.name:28} {row['memory']:8.2f} GB {row['batches']}", flush=True)
    return rows


def tables(
    before: dict[str, Any],  # results whose rows are kept; empty: all are made
) -> dict[str, list[dict[str, Any]]]:
    "Of every recipe, and of every fine-tuning of an S3D on UCF101 split 1."
    s3d, videos = find("infonce-ucf101-rgb"), VIDEOS["UCF101"]
    trainings = [
        (replace(training.recipe(s3d), name=training.name), training.learned(videos))
        for training in TRAININGS.values()
    ]
    return {
        "rows": table([(recipe, None) for recipe in RECIPES.values()], before.get("rows", [])),
        "finetunings": table(trainings, before.get("finetunings", [])),
    }


def main():
    p = measurement.parser(__doc__)
    p.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    p.add_argument("--only", nargs="*", help="backbones")
    p.add_argument(
        "--table",
        action="store_true",
        help="the plan of every recipe and fine-tuning instead; measures nothing",
    )
    p.add_argument("--new", action="store_true", help="of the table: rows that --out lacks")
    p.add_argument("--out", type=Path, help="a .json file for the results")
    p.add_argument("--child", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.child:
        child(json.loads(a.child))
        return

    stamp = Stamp(__file__, settings_of(a, without=("child",)), a.device, THREADS)

    def keep(rows):
        "At once: what was measured stays when the clock stops the rest."
        write_results(a.out, stamp.head() | {"rows": rows})

    if a.table:
        before = json.loads(a.out.read_text()) if a.new and a.out.exists() else {}
        of_before = {k: before[k] for k in ("date", "commit", "machine", "kept") if k in before}
        kept = {"kept": of_before} if of_before else {}
        write_results(a.out, stamp.head() | kept | tables(before))
    else:
        cases = [c for c in CASES if not a.only or c["backbone"] in a.only]
        compare(a.device, cases, keep)


if __name__ == "__main__":
    main()
