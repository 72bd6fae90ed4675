"""Everything that waits for a GPU, in one command: `make gpu`.

    python benchmarks/gpu.py                         # all that is missing of this GPU, the most telling first
    python benchmarks/gpu.py --minutes 25            # what fits into so many, and no longer
    python benchmarks/gpu.py --only checks step      # some
    python benchmarks/gpu.py --list                  # the plan, and what is done; without a GPU, too

`--ucf101` and `--jhmdb` name the manifests of real clips (that of JHMDB with flow: `vssl-nb flow
--method dis`) for the jobs that train on them; with make: `make gpu JHMDB=jhmdb/manifest.csv`.

The plan has minutes for every job. Those of trainings on the toy and on JHMDB are computed for an
A100 (`results/budget.json`): steps alone, without videos and measuring. `ucf101` takes an hour, by
its own clock. The others (~) are guesses after a first look at an H200 with 16 cores, in which
`checks` took two minutes, a page of cells 41 s, and `torch.compile` of S3D had not ended after
three minutes.

Every job writes one file into results/, named after the GPU, with machine, versions and recipe in
it; a job whose file is there is not done again. One that the clock stops, or that is killed, begins
again or, if it trains, goes on where it was; what it had measured is kept as `...-partial`. What a
job prints is kept in runs/gpu/<job>.log. Exit code 1 if a job failed; the others are done all the
same.

`checks` is the one to look at first. It trains two steps of a recipe with PyTorch's own alarm for
waits switched on, compares them with the same steps on the CPU, and the memory they took with what
`budget` computed. `step` is the step beside the released loop, and beside what the GPU could do at
most, and where its time goes; `methods` are the same for other batches, CoCLR, MoQuad and ProViCo;
`input` is what a core of its machine decodes and augments."""

import argparse
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from step import machine, portable  # noqa: E402

HERE = Path(__file__).parent
TRAINED = {
    "toyfull": ("infonce-toyfull-residual",),
    "cotrain": (
        "infonce-toyfull-rgb",
        "infonce-toyfull-flow",
        "coclr-toyfull-rgb-cycle1",
        "coclr-toyfull-flow-cycle1",
        "ubernce-toyfull-rgb",
    ),
}
FAST, COMPILED = "all, bfloat16", "all, bfloat16, compile"
# JHMDB: 708 copies of 112 px, hardly longer than 16 frames with stride 2; 491 videos to train on in
# split 1
S3D = dict(backbone="s3d", size=112)
EPOCHS, SEEDS, VIDEOS, REAL_MINUTES = 300, 3, 491, 60
WORKERS = max((os.cpu_count() or 1) - 2, 1)  # that decode
CLIP = 16 * 112**2 / (32 * 128**2)  # as much of a clip of the recipes for UCF101
# of benchmarks/evidence.py: training -> recipe whose step costs as much, share of the epochs
ON_JHMDB = {
    "infonce, half": ("infonce-ucf101-rgb", 0.5),
    "infonce, half, flow": ("infonce-ucf101-flow", 0.5),
    "infonce": ("infonce-ucf101-rgb", 0.5),
    "infonce, flow": ("infonce-ucf101-flow", 0.5),
    "ubernce": ("ubernce-ucf101-rgb", 0.5),
    "coclr": ("coclr-ucf101-rgb-cycle1", 0.5),
    "coclr, flow": ("coclr-ucf101-flow-cycle1", 0.5),
    "infonce, one schedule": ("infonce-ucf101-rgb", 1.0),
    "labels": ("coclr_finetune", 1.0),
}


@dataclass(frozen=True)
class Job:
    "A script, and the file that it writes."

    file: Path
    command: list
    minutes: float
    guess: bool = True  # else by the budget, or as many as it is given
    needs: str = ""  # the option without which it cannot run


def budget() -> dict[str, dict]:
    found = json.loads((HERE.parent / "results" / "budget.json").read_text())
    return {r["name"]: r for r in found["rows"] + found["finetunings"]}


def jhmdb_minutes() -> float:
    "Of all trainings on JHMDB on an A100, by the budget; steps alone."
    rows = budget()

    def seconds(
        name,
    ):  # of a video
        return CLIP * rows[name]["seconds"] / rows[name]["batch"]

    return (
        SEEDS
        * EPOCHS
        * VIDEOS
        / 60
        * sum(share * seconds(name) for name, share in ON_JHMDB.values())
    )


def jobs(
    name: str,
    out: Path,
    scratch: Path,
    ucf101: Path | None = None,
    jhmdb: Path | None = None,
) -> dict[str, Job]:  # by name, the most telling first
    "What is to be done; `name` is the GPU."

    def file(job, kind="json"):
        return out / f"{job}-{name}.{kind}"

    def job(title, minutes, script, *options, guess=True, needs=""):
        return Job(
            file(title),
            [sys.executable, HERE / script, *options, "--out", file(title)],
            minutes,
            guess,
            needs,
        )

    def toy(title, script, run):
        hours = sum(budget()[recipe]["hours"] for recipe in TRAINED[title])
        return job(
            title,
            60 * hours,
            script,
            "--videos",
            scratch / "toyfull",
            "--run",
            scratch / run,
            "--device",
            "cuda",
            "--compile",
            guess=False,
        )

    def evidence(title, minutes, data, *options):
        return job(
            title,
            minutes,
            "evidence.py",
            "--data",
            data,
            "--device",
            "cuda",
            "--dtype",
            "bfloat16",
            "--folder",
            scratch / title,
            "--changes",
            json.dumps(S3D),
            "--workers",
            WORKERS,
            "--cache",
            2048,
            *options,
            guess=False,
            needs="" if data else f"--{title} MANIFEST",
        )

    test = Path(sys.executable).with_name("nbdev_test")
    cells = ["library/augmentation", "lessons/02_motion", "library/loop"]
    gpu = ("--device", "cuda")
    return {
        "checks": Job(
            file("checks"), [sys.executable, HERE / "gpu.py", "--checks", file("checks")], 3
        ),
        "step": job(
            "step",
            2,
            "step.py",
            *gpu,
            "--profile",
            "--first",
            "--rounds",
            1,
            "--only",
            "all, float32",
            FAST,
        ),
        "methods": job(
            "methods", 3, "step.py", *gpu, "--rounds", 1, "--only", FAST, "--sizes", 128
        ),
        "memory": job("memory", 4, "memory.py", *gpu),
        "input": job("input", 3, "input.py", *(("--videos", ucf101.parent) if ucf101 else ())),
        **{
            f"cells-{Path(page).name}": Job(
                file(f"cells-{Path(page).name}", "txt"),
                [
                    test,
                    "--path",
                    HERE.parent / "nbs" / f"{page}.ipynb",
                    "--flags",
                    "cuda",
                    "--do_print",
                    "--n_workers",
                    "0",
                ],
                1,
            )
            for page in cells
        },
        "flow": job("flow", 6, "flow.py", *gpu),
        "compile": job("compile", 6, "step.py", *gpu, "--first", "--rounds", 1, "--only", COMPILED),
        "jhmdb": evidence(
            "jhmdb",
            jhmdb_minutes(),
            jhmdb,
            "--second",
            "flow",
            "--epochs",
            EPOCHS,
            "--seeds",
            *range(SEEDS),
            "--only",
            *ON_JHMDB,
        ),
        "toyfull": toy("toyfull", "toy_full.py", "toyfull-run"),
        "ucf101": evidence("ucf101", REAL_MINUTES, ucf101, "--minutes", REAL_MINUTES),
        "cotrain": toy("cotrain", "cotrain_full.py", "cotrain-run"),
        "switches": job("switches", 30, "step.py", *gpu),
    }


def stop(
    process: subprocess.Popen,  # which leads its group
) -> None:
    "Let a job save what it has, and end it with all that it has started."
    for sent, patience in ((signal.SIGTERM, 60), (signal.SIGKILL, None)):
        os.killpg(process.pid, sent)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
        return


def do(
    name: str,
    job: Job,
    scratch: Path,
    seconds: float = math.inf,  # until the clock stops it
) -> bool:
    "Run one job; what a test prints becomes its file, if it passed."
    log, begin, late = scratch / f"{name}.log", time.monotonic(), False
    with log.open("w") as f:
        process = subprocess.Popen(
            list(map(str, job.command)), stdout=f, stderr=f, start_new_session=True
        )
        try:
            process.wait(None if math.isinf(seconds) else seconds)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            if process.poll() is None:
                stop(process)
    code = process.returncode
    good = code == 0 and not late
    if good and job.file.suffix == ".txt":
        about = {
            "what": " ".join(map(str, job.command)),
            "date": time.strftime("%Y-%m-%d"),
            "machine": machine("cuda"),
        }
        job.file.write_text(portable(json.dumps(about, indent=1) + "\n" + log.read_text()))
    if not good and job.file.exists():
        job.file.replace(job.file.with_stem(f"{job.file.stem}-partial"))
    good = good and job.file.exists()
    end = "done" if good else "STOPPED by the clock" if late else f"FAILED, exit code {code}"
    print(
        f"{name:20}{end} in {time.monotonic() - begin:.0f} s; {job.file if good else log}",
        flush=True,
    )
    return good


def demand(
    step: Path,  # results of `step`
    supply: Path,  # results of `input`
) -> str:
    "How many cores of this machine feed its GPU."
    rows = json.loads(step.read_text())["switches"]
    takes = max(r["clips_per_s"] for r in rows if "clips_per_s" in r)
    gives = json.loads(supply.read_text())["samples_per_s"]["worker, original"]
    return (
        f"the fastest step takes {takes:.0f} samples of two clips a second, a core makes "
        f"{gives:.0f}: "
        f"{takes / gives:.1f} cores feed this GPU"
    )


def two_steps(
    recipe,
    device: str,
    dtype: str,
    tf32: bool = False,  # in convolutions of float32, on a GPU
):
    "Two steps of a recipe on blank clips: loss and gradient norm of each, and bytes at most."
    import torch
    from vssl_nb.runs.parts import build
    from vssl_nb.training.loop import TrainingState, fit
    from vssl_nb.training.machine import DTYPES

    parts, g = build(recipe, 64, torch.device(device)), torch.Generator().manual_seed(0)
    batches, order = parts.batches, parts.batches.batch_sampler
    order.total = order.per_epoch = 2
    batches.frames = lambda shape: torch.randint(256, shape, generator=g, dtype=torch.uint8)
    batches.pin = torch.Tensor.pin_memory if device == "cuda" else (lambda x: x)
    run = TrainingState(parts.method, parts.optimizer)
    results = []
    try:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=tf32):
            for result in fit(run, batches, parts.views, parts.schedule, device, DTYPES[dtype]):
                if device == "cuda":
                    torch.cuda.set_sync_debug_mode("default")
                results.append(result.read())
                # the first step sets up; in the second, making the CPU wait raises
                if device == "cuda":
                    torch.cuda.set_sync_debug_mode("error")
    finally:
        if device == "cuda":
            torch.cuda.set_sync_debug_mode("default")
    most = torch.cuda.max_memory_allocated() if device == "cuda" else None
    return [{k: r[k] for k in ("loss", "grad_norm")} for r in results], most


def checks(out: Path):
    "Waits, numbers and memory of real steps, beside what was known without a GPU."
    import torch
    from vssl_nb.runs.budget import dry_run, trace_step
    from vssl_nb.methods.recipes import find, override

    found: dict = {
        "what": "benchmarks/gpu.py --checks",
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine("cuda"),
        "recipes": {},
    }
    for name, batch in (("infonce-laptop-rgb", 16), ("infonce-ucf101-rgb", 8)):
        recipe = override(find(name), batch=batch, **({"groups": 2} if "ucf101" in name else {}))
        torch.cuda.reset_peak_memory_stats()
        here, most = two_steps(recipe, "cuda", "float32")
        cpu, _ = two_steps(recipe, "cpu", "float32")
        fast, _ = two_steps(recipe, "cuda", "float32", tf32=True)  # as PyTorch has it
        half, _ = two_steps(recipe, "cuda", "bfloat16")
        computed = int(trace_step(recipe, "float32").total.max())
        apart = max(abs(a[k] - b[k]) / max(abs(b[k]), 1e-6) for a, b in zip(here, cpu) for k in b)
        found["recipes"][name] = {
            "batch": batch,
            "cuda": here,
            "cpu": cpu,
            "tf32": fast,
            "bfloat16": half,
            "apart": apart,
            "bytes": most,
            "bytes_computed": computed,
            "waits": dry_run(recipe).waits,
        }
        print(
            f"{name}: no wait in a step; {apart:.1e} from the CPU; {most / 1e9:.2f} GB, "
            f"{computed / 1e9:.2f} were computed"
        )
    out.write_text(json.dumps(found, indent=1) + "\n")


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--only", nargs="*", help="jobs, by name")
    p.add_argument("--list", action="store_true", help="print the plan and stop")
    p.add_argument(
        "--minutes", type=float, default=math.inf, help="begin what fits, and stop after so many"
    )
    p.add_argument("--ucf101", type=Path, help="manifest of real clips, beside their folders")
    p.add_argument("--jhmdb", type=Path, help="manifest of JHMDB, with flow")
    p.add_argument("--out", type=Path, default=HERE.parent / "results")
    p.add_argument(
        "--scratch",
        type=Path,
        default=HERE.parent / "runs" / "gpu",
        help="for videos, runs and logs",
    )
    p.add_argument("--checks", type=Path, help=argparse.SUPPRESS)
    a = p.parse_args()
    import torch

    here, began = torch.cuda.is_available(), time.monotonic()

    def stopped(why):
        print(why, file=sys.stderr)
        return 2

    if not here and not a.list:
        return stopped(
            "there is no GPU here; `vssl-nb dry-run` shows what can be known without one"
        )
    if a.checks:
        return checks(a.checks)
    if lost := next((f for f in (a.ucf101, a.jhmdb) if f and not f.is_file()), None):
        return stopped(f"{lost}: there is no such manifest; `vssl-nb manifest FOLDER` writes one")
    if a.minutes <= 0:
        return stopped(f"--minutes {a.minutes:g}: give a number above 0")
    name = re.sub("[^a-z0-9]+", "-", torch.cuda.get_device_name().lower() if here else "gpu").strip(
        "-"
    )
    todo = jobs(name, a.out, a.scratch, a.ucf101, a.jhmdb)
    if unknown := [j for j in a.only or () if j not in todo]:
        return stopped(f"there is no job {unknown[0]!r}; take some of {', '.join(todo)}")
    for folder in () if a.list else (a.scratch, a.out):
        folder.mkdir(parents=True, exist_ok=True)
    good, plan = True, 0.0  # minutes that are planned, with --list
    for title, job in todo.items():
        if a.only and title not in a.only:
            continue
        left = a.minutes - (plan if a.list else (time.monotonic() - began) / 60)
        state = (
            "is done"
            if job.file.exists()
            else f"needs {job.needs}"
            if job.needs
            else f"does not fit into {max(left, 0):.0f} min"
            if job.minutes > left
            else ""
        )
        if a.list or state:
            plan += 0 if state else job.minutes
            takes = f"{'~' if job.guess else ' '}{job.minutes:4.0f} min"
            print(f"{title:20}{takes}  {state or 'waits'}; {job.file}")
        else:
            good = do(title, job, a.scratch, 60 * left) and good
    if not a.list and todo["step"].file.exists() and todo["input"].file.exists():
        print(demand(todo["step"].file, todo["input"].file))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
