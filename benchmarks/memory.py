"""Computed memory of a training step against what small real runs take; and the table of every
training.

    python benchmarks/memory.py --out results/memory-cpu.json
    python benchmarks/memory.py --table --out results/budget.json
    python benchmarks/memory.py --device cuda --out results/memory-gpu.json   # waits for a GPU

Three backbones, two batches each, with and without recomputation, on blank clips, two optimizer
steps by the loop itself. On a CPU each case runs in fresh processes of two kinds, which know
nothing of what is computed:

    measured:   peak of the resident memory (VmHWM) in the second step, less what was resident before the run
                began; freed memory goes back to the system at once (MALLOC_MMAP_THRESHOLD_, and `keep_memory`
                is left out)
    allocator:  peak of the bytes that torch's allocator reports to the profiler

Two threads: with one, torch takes a convolution on the CPU that unfolds its input (200 MB more for
`small`). On a GPU, `measured` is torch.cuda.max_memory_allocated of the second step, and `reserved`
what the caching allocator had taken from the device.
"""

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))
from step import command  # noqa: E402

SIZES = {"tiny": (16, 64), "small": (16, 112), "s3d": (16, 64)}  # frames and side
BATCHES = {"tiny": (8, 32), "small": (4, 8), "s3d": (4, 8)}
CASES = [
    dict(backbone=b, batch=n, again=a) for b in SIZES for n, a in product(BATCHES[b], (False, True))
]


def recipe_of(case: dict, batch: int | None = None):
    from vssl_nb.methods.recipes import find, override

    length, size = SIZES[case["backbone"]]
    return override(
        find("infonce-laptop-rgb"),
        backbone=case["backbone"],
        length=length,
        size=size,
        batch=batch or case["batch"],
    )


def status(name: str) -> int:
    "A line of /proc/self/status, bytes."
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def train(recipe, again: bool, device: str, dtype: str, after_step) -> None:
    "Two steps of the loop itself."
    import torch
    from vssl_nb.runs.parts import build
    from vssl_nb.training.loop import TrainingState, fit
    from vssl_nb.training.machine import DTYPES, checkpoint_activations

    parts = build(recipe, 100, torch.device(device))
    checkpoint_activations(parts.method.encoder, again)
    batches, order = parts.batches, parts.batches.batch_sampler
    order.total = order.per_epoch = 2
    # memory that is really used
    batches.frames = lambda shape: torch.full(shape, 7, dtype=torch.uint8)
    if device == "cuda":
        batches.pin = lambda x: x.pin_memory()
    run = TrainingState(parts.method, parts.optimizer)
    for result in fit(run, batches, parts.views, parts.schedule, device, DTYPES[dtype]):
        result.read()
        after_step()


def resident(case: dict) -> dict:
    "The peak of a process in the second step."
    peaks: list[int] = []

    def step():
        peaks.append(status("VmHWM"))
        forget_peak()

    gc.collect()
    forget_peak()
    before = status("VmRSS")
    train(recipe_of(case), case["again"], "cpu", "float32", step)
    return {"measured": peaks[-1] - before}


def allocated(case: dict) -> dict:
    "The peak of the allocator over both steps."
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as p:
        train(recipe_of(case), case["again"], "cpu", "float32", lambda: None)
    seen = p.profiler.kineto_results.events()  # type: ignore[union-attr]
    events = [(e.start_ns(), e.nbytes()) for e in seen if e.name() == "[memory]"]
    now = most = 0
    for _, n in sorted(events):
        now += n
        most = max(most, now)
    return {"allocator": most}


def on_gpu(case: dict) -> dict:
    "The peak of torch's allocator on a GPU in the second step."
    import torch

    peaks: list[int] = []

    def step():
        torch.cuda.synchronize()
        peaks.append(torch.cuda.max_memory_allocated())
        torch.cuda.reset_peak_memory_stats()

    train(recipe_of(case), case["again"], "cuda", "bfloat16", step)
    return {"measured": peaks[-1], "reserved": torch.cuda.max_memory_reserved()}


def child(o: dict) -> None:
    "One measurement; what libraries load on first use is there before it begins."
    import torch
    from vssl_nb.training import loop

    torch.set_num_threads(2)
    with mock.patch.object(loop, "keep_memory", lambda: False):
        if o["way"] != "on_gpu":
            train(recipe_of(o, 2), o["again"], "cpu", "float32", lambda: None)
        print(
            json.dumps(
                {"resident": resident, "allocated": allocated, "on_gpu": on_gpu}[o["way"]](o)
            )
        )


def measure(case: dict, way: str) -> dict:
    "Run a child."
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "2"}
    command = [sys.executable, __file__, "--child", json.dumps(case | {"way": way})]
    done = subprocess.run(command, text=True, capture_output=True, env=env)
    if done.returncode:
        raise SystemExit(f"{case} {way}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def computed(case: dict, device: str) -> int:
    from vssl_nb.runs.budget import trace_step

    gpu = device == "cuda"
    trace = trace_step(recipe_of(case), "bfloat16" if gpu else "float32", case["again"])
    return sum(trace.peak(gpu).values())


def compare(
    device: str,
    cases: list[dict],
    keep=lambda rows: None,  # called after each case
) -> list[dict]:
    rows = []
    for case in cases:
        found = {
            "case": f"{case['backbone']} {case['batch']}{' recomputed' if case['again'] else ''}"
        } | case
        found["computed"] = computed(case, device)
        for way in ("on_gpu",) if device == "cuda" else ("resident", "allocated"):
            found |= measure(case, way)
        rows.append(found)
        print(
            f"{found['case']:22} computed {found['computed'] / 1e6:8.1f} MB, "
            f"measured {found['measured'] / 1e6:8.1f} MB "
            f"({found['computed'] / found['measured'] - 1:+.1%})",
            flush=True,
        )
        keep(rows)
    return rows


def table(recipes: list) -> list[dict]:
    """The plan of each (recipe, videos); those that differ in name, data or views of one size share
    traces.
    """
    from vssl_nb.runs.budget import plan

    rows = []
    for recipe, videos in recipes:
        rows.append(plan(recipe, videos=videos))
        print(f"{recipe.name:28} {rows[-1]['memory']:8.2f} GB {rows[-1]['batches']}", flush=True)
    return rows


def tables() -> dict[str, list[dict]]:
    "Of every recipe, and of every fine-tuning of an S3D on UCF101 split 1."
    from vssl_nb.methods.recipes import RECIPES, find
    from vssl_nb.runs.budget import VIDEOS
    from vssl_nb.runs.finetuning import TRAININGS

    s3d, n = find("infonce-ucf101-rgb"), VIDEOS["UCF101"]
    trainings = [(replace(t.recipe(s3d), name=t.name), t.learned(n)) for t in TRAININGS.values()]
    return {"rows": table([(r, None) for r in RECIPES.values()]), "finetunings": table(trainings)}


def machine(device: str) -> dict:
    import torch

    info = Path("/proc/cpuinfo")
    said = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":")[1].strip() for line in said if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "threads": 2,
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    p.add_argument("--only", nargs="*", help="backbones")
    p.add_argument(
        "--table",
        action="store_true",
        help="the plan of every recipe and fine-tuning instead; measures nothing",
    )
    p.add_argument("--out", help="a .json file for the results")
    p.add_argument("--child", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.child:
        child(json.loads(a.child))
        return
    cases = [c for c in CASES if not a.only or c["backbone"] in a.only]
    about = {
        "what": "benchmarks/memory.py",
        "date": time.strftime("%Y-%m-%d"),
        "command": command(),
        "machine": machine(a.device),
    }

    def keep(
        tables,
    ):  # at once: what was measured stays when the clock stops the rest
        if a.out:
            Path(a.out).write_text(json.dumps(about | tables, indent=1) + "\n")

    if a.table:
        keep(tables())
    else:
        compare(a.device, cases, lambda rows: keep({"rows": rows}))


if __name__ == "__main__":
    main()
