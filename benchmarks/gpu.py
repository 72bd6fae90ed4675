"""Everything that waits for a GPU, in one command: `make gpu`.

    python benchmarks/gpu.py                     # all that is missing of this GPU
    python benchmarks/gpu.py --minutes 25        # what fits into so many, and no longer
    python benchmarks/gpu.py --only checks step  # some
    python benchmarks/gpu.py --list              # plan and what is done; without a GPU, too

The most telling jobs come first.
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
`input` is what a core of its machine decodes and augments.

What an H200 gave in 15 minutes on 27 November 2026 (16 cores of a Xeon, driver 580.159.04, torch
2.11.0, Python 3.12.3, commit a1e1cf82). Files with `partial` in their name were written from what
a script had printed before its time ended; in them `float32` among the speeds is that of
convolutions with TF32, and `clips_per_s` counts videos.

- `checks-…`: the alarm reported no wait of the CPU for the GPU in two steps of two recipes. Loss
  and gradient norm beside the CPU: `infonce-laptop-rgb`, 16 videos, within 0.2 %;
  `infonce-ucf101-rgb`, S3D, 8 videos, loss within 4.4 % and gradient norm within 6.8 % (in bfloat16
  12.3 %). Convolutions used TF32, PyTorch's default, so this is no comparison in float32; `checks`
  now runs both.
- `cells-…`: the `#| cuda` cells of the page on augmentation pass. Those of the page on the loop
  failed at a cell that forks processes, which is mended and was not run again.
- `step-…`: InfoNCE with S3D, 32 videos, two clips of each of 32 x 128 x 128, the fastest of ten
  steps of one process each, without decoding and views. The step with all switches reached 9.7 % of
  the ideal speed, for which each tensor is written once. The sum of its operations, each at the
  measured speed of the GPU, was computed by `runs.budget.trace_step`. Where the time goes was not
  measured; `step` now writes the profile first. CoCLR's sampler takes 15.0 ms alone, mining 0.5;
  MoQuad's 195.7 ms are those of four clips a video with its views (23 ms).
- `flow-…`: TV-L1 at 320 x 240, not compiled, 79 pairs a second; OpenCV's on eight threads in the
  same run 9.4; OpenCV's DIS, another method, 212. Printed, in no file: DIS by `vssl-nb flow`, 16
  processes, 708 clips of 112 px, 1,209 pairs a second.
- `input-…`: one process decodes and crops 56.8 videos a second, 81.7 of transcoded copies. Through
  a loader on four cores one worker gave 32 and two 49 (transcoded 63 and 62), while other jobs ran
  beside them.
- `memory-…`: beside what `budget` computes, 62 to 176 MB more in eleven small steps (of 123 to 574
  MB), 60 MB more in one of 3.7 GB. The workspaces of the libraries are not computed, and
  `largest_batch` leaves 1 GB and a tenth for them.

Not measured: `torch.compile` of S3D, ProViCo's step, TV-L1 compiled. The evidence on JHMDB with S3D
was begun with eight trainings a seed and three seeds, six at a time, beside the measurement of
memory; 6 of the 24 ended in four and a half minutes, so no row of its table is complete."""

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
from typing import Any

import measurement
import torch
from measurement import portable
from result_files import Stamp, write_results

from vssl_nb.config import Recipe
from vssl_nb.methods.recipes import find, override
from vssl_nb.runs.experiment import BlankVideos, resolve
from vssl_nb.runs.trace import dry_run, trace_step
from vssl_nb.training.loop import TrainingState, fit
from vssl_nb.training.machine import DTYPES, Machine

HERE = Path(__file__).parent
ROOT = HERE.parent
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
WORKERS = max((os.cpu_count() or 1) - 2, 1)  # that decode
REAL_MINUTES = 60
CELLS = ("library/augmentation", "library/tvl1", "library/loop")  # pages
GPU = ("--device", "cuda")

# JHMDB: 708 copies of 112 px, hardly longer than 16 frames with stride 2; 491 videos to train on in
# split 1
S3D = dict(backbone="s3d", size=112)
EPOCHS, SEEDS, VIDEOS = 300, 3, 491
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
# recipe and videos of a batch whose steps are checked
CHECKED = (("infonce-laptop-rgb", 16), ("infonce-ucf101-rgb", 8))


# ---- the plan


@dataclass(frozen=True)
class Job:
    "A script, and the file that it writes."

    file: Path
    command: list
    minutes: float
    guess: bool = True  # else by the budget, or as many as it is given
    needs: str = ""  # the option without which it cannot run


def budget() -> dict[str, dict[str, Any]]:
    tables = json.loads((ROOT / "results" / "budget.json").read_text())
    return {row["name"]: row for row in tables["rows"] + tables["finetunings"]}


def jhmdb_minutes() -> float:
    "Of all trainings on JHMDB on an A100, by the budget; steps alone."
    rows = budget()
    seconds = 0.0  # of a video in all trainings of an epoch
    for recipe, share in ON_JHMDB.values():
        row = rows[recipe]
        seconds += share * CLIP * row["seconds"] / row["batch"]
    return SEEDS * EPOCHS * VIDEOS / 60 * seconds


class Plan:
    "Jobs of one GPU."

    def __init__(
        self,
        name: str,  # of the GPU
        out: Path,  # folder of the results
        scratch: Path,  # for videos, runs and logs
    ):
        self.name, self.out, self.scratch = name, out, scratch

    def file(self, title: str, kind: str = "json") -> Path:
        return self.out / f"{title}-{self.name}.{kind}"

    def script(
        self,
        title: str,
        minutes: float,
        script: str,
        *options: Any,
        guess: bool = True,
        needs: str = "",
    ) -> Job:
        "A script of this folder."
        file = self.file(title)
        command = [sys.executable, HERE / script, *options, "--out", file]
        return Job(file, command, minutes, guess, needs)

    def toy(self, title: str, script: str, run: str) -> Job:
        "Trainings on the toy."
        rows = budget()
        minutes = 60 * sum(rows[recipe]["hours"] for recipe in TRAINED[title])
        places = ("--videos", self.scratch / "toyfull", "--run", self.scratch / run)
        return self.script(title, minutes, script, *places, *GPU, "--compile", guess=False)

    def evidence(self, title: str, minutes: float, data: Path | None, *options: Any) -> Job:
        "Trainings on real clips."
        machine = (*GPU, "--dtype", "bfloat16", "--workers", WORKERS, "--cache", 2048)
        places = ("--data", data, "--folder", self.scratch / title)
        changes = ("--changes", json.dumps(S3D))
        return self.script(
            title,
            minutes,
            "evidence.py",
            *places,
            *machine,
            *changes,
            *options,
            guess=False,
            needs="" if data else f"--{title} MANIFEST",
        )

    def cells(self, page: str) -> Job:
        "The cells of a page that need a GPU."
        test = Path(sys.executable).with_name("nbdev_test")
        notebook = ROOT / "nbs" / f"{page}.ipynb"
        command = [test, "--path", notebook, "--flags", "cuda", "--do_print", "--n_workers", "0"]
        return Job(self.file(f"cells-{Path(page).name}", "txt"), command, 1)

    def checks(self) -> Job:
        file = self.file("checks")
        return Job(file, [sys.executable, HERE / "gpu.py", "--checks", file], 3)


def jobs(
    name: str,  # of the GPU
    out: Path,
    scratch: Path,
    ucf101: Path | None = None,  # manifests
    jhmdb: Path | None = None,
) -> dict[str, Job]:  # by name, the most telling first
    "What is to be done."
    plan = Plan(name, out, scratch)
    once = ("--rounds", 1)
    step = (*GPU, "--profile", "--first", *once, "--only", "all, float32", FAST)
    methods = (*GPU, *once, "--only", FAST, "--sizes", 128)
    videos = ("--videos", ucf101.parent) if ucf101 else ()
    compiled = (*GPU, "--first", *once, "--only", COMPILED)
    flow = ("--second", "flow", "--epochs", EPOCHS, "--seeds", *range(SEEDS), "--only", *ON_JHMDB)
    return {
        "checks": plan.checks(),
        "step": plan.script("step", 2, "step.py", *step),
        "methods": plan.script("methods", 3, "step.py", *methods),
        "memory": plan.script("memory", 4, "memory.py", *GPU),
        "input": plan.script("input", 3, "input.py", *videos),
        **{f"cells-{Path(page).name}": plan.cells(page) for page in CELLS},
        "flow": plan.script("flow", 6, "flow.py", *GPU),
        "compile": plan.script("compile", 6, "step.py", *compiled),
        "jhmdb": plan.evidence("jhmdb", jhmdb_minutes(), jhmdb, *flow),
        "toyfull": plan.toy("toyfull", "toy_full.py", "toyfull-run"),
        "ucf101": plan.evidence("ucf101", REAL_MINUTES, ucf101, "--minutes", REAL_MINUTES),
        "cotrain": plan.toy("cotrain", "cotrain_full.py", "cotrain-run"),
        "switches": plan.script("switches", 30, "step.py", *GPU),
    }


# ---- doing it


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


def run(
    command: list,
    log: Path,
    seconds: float,  # until the clock stops it
) -> tuple[int, bool]:  # exit code; was it stopped?
    "Run a command, whose output becomes a log."
    is_stopped = False
    with log.open("w") as f:
        process = subprocess.Popen(
            [str(word) for word in command], stdout=f, stderr=f, start_new_session=True
        )
        try:
            process.wait(None if math.isinf(seconds) else seconds)
        except subprocess.TimeoutExpired:
            is_stopped = True
        finally:
            if process.poll() is None:
                stop(process)
    return process.returncode, is_stopped


def do(
    name: str,
    job: Job,
    scratch: Path,
    seconds: float = math.inf,  # until the clock stops it
) -> bool:  # is its file there?
    "Run one job; what a test prints becomes its file, if it passed."
    log, begin = scratch / f"{name}.log", time.monotonic()
    code, is_stopped = run(job.command, log, seconds)
    is_good = code == 0 and not is_stopped
    if is_good and job.file.suffix == ".txt":
        about = {
            "what": " ".join(map(str, job.command)),
            "date": time.strftime("%Y-%m-%d"),
            "machine": measurement.machine("cuda"),
        }
        job.file.write_text(portable(json.dumps(about, indent=1) + "\n" + log.read_text()))
    if not is_good and job.file.exists():
        job.file.replace(job.file.with_stem(f"{job.file.stem}-partial"))

    is_good = is_good and job.file.exists()
    if is_good:
        end = "done"
    elif is_stopped:
        end = "STOPPED by the clock"
    else:
        end = f"FAILED, exit code {code}"
    took = f"{time.monotonic() - begin:.0f} s"
    print(f"{name:20}{end} in {took}; {job.file if is_good else log}", flush=True)
    return is_good


def demand(
    step: Path,  # results of `step`
    supply: Path,  # results of `input`
) -> str:
    "How many cores of this machine feed its GPU."
    rows = json.loads(step.read_text())["switches"]
    takes = max(row["clips_per_s"] for row in rows if "clips_per_s" in row)
    gives = json.loads(supply.read_text())["samples_per_s"]["worker, original"]
    return (
        f"the fastest step takes {takes:.0f} samples of two clips a second, a core makes "
        f"{gives:.0f}: {takes / gives:.1f} cores feed this GPU"
    )


# ---- `checks`


def alarm(mode: str) -> None:
    "PyTorch's own alarm for waits: 'default' is silent, 'error' raises."
    torch.cuda.set_sync_debug_mode(mode)


def two_steps(
    recipe: Recipe,
    device: str,
    dtype: str,
    tf32: bool = False,  # in convolutions of float32, on a GPU
) -> tuple[list[dict[str, float]], int | None]:
    "Two steps of a recipe on blank clips: loss and gradient norm of each, and bytes at most."
    gpu = device == "cuda"
    g = torch.Generator().manual_seed(0)
    experiment = resolve(recipe, BlankVideos(64), Machine(device))
    batches: Any = experiment.batches
    order = batches.batch_sampler
    order.total = order.per_epoch = 2
    batches.frames = lambda shape: torch.randint(256, shape, generator=g, dtype=torch.uint8)
    batches.pin = torch.Tensor.pin_memory if gpu else (lambda x: x)
    training = TrainingState(experiment.method, experiment.optimizer)
    results = []
    try:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=tf32):
            steps = fit(
                training,
                batches,
                experiment.views,
                experiment.schedules,
                device,
                DTYPES[dtype],
            )
            for result in steps:
                if gpu:
                    alarm("default")
                results.append(result.read())
                if gpu:
                    alarm("error")  # the first step sets up; in the second, a wait raises
    finally:
        if gpu:
            alarm("default")
    most = torch.cuda.max_memory_allocated() if gpu else None
    return [{k: r[k] for k in ("loss", "grad_norm")} for r in results], most


def largest_difference(ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> float:
    "Of a number, as a share of theirs."
    return max(
        abs(a[k] - b[k]) / max(abs(b[k]), 1e-6)
        for a, b in zip(ours, theirs, strict=True)
        for k in b
    )


def check(recipe: Recipe, batch: int) -> dict[str, Any]:
    "Steps of a recipe on the GPU, beside the CPU and beside what was computed."
    torch.cuda.reset_peak_memory_stats()
    here, most = two_steps(recipe, "cuda", "float32")
    cpu, _ = two_steps(recipe, "cpu", "float32")
    tf32, _ = two_steps(recipe, "cuda", "float32", tf32=True)  # as PyTorch has it
    half, _ = two_steps(recipe, "cuda", "bfloat16")
    experiment = resolve(recipe)
    return {
        "batch": batch,
        "cuda": here,
        "cpu": cpu,
        "tf32": tf32,
        "bfloat16": half,
        "apart": largest_difference(here, cpu),
        "bytes": most,
        "bytes_computed": int(trace_step(experiment, "float32").total.max()),
        "waits": dry_run(experiment).waits,
    }


def checks(out: Path) -> None:
    "Waits, numbers and memory of real steps, beside what was known without a GPU."
    stamp = Stamp(__file__, {"recipes": CHECKED}, "cuda")
    rows = {}
    for name, batch in CHECKED:
        groups = {"groups": 2} if "ucf101" in name else {}
        recipe = override(find(name), batch=batch, **groups)
        row = check(recipe, batch)
        rows[name] = row
        print(
            f"{name}: no wait in a step; {row['apart']:.1e} from the CPU; "
            f"{row['bytes'] / 1e9:.2f} GB, {row['bytes_computed'] / 1e9:.2f} were computed"
        )
    what = {"what": "benchmarks/gpu.py --checks"}
    write_results(out, stamp.head() | what | {"recipes": rows})


# ---- the command line


def refusal(a: argparse.Namespace, is_gpu: bool) -> str:
    "Why the command cannot run; '' where it can."
    if not is_gpu and not a.list:
        return "there is no GPU here; `vssl-nb dry-run` shows what can be known without one"
    for file in (a.ucf101, a.jhmdb):
        if file and not file.is_file():
            return f"{file}: there is no such manifest; `vssl-nb manifest FOLDER` writes one"
    if a.minutes <= 0:
        return f"--minutes {a.minutes:g}: give a number above 0"
    return ""


def hindrance(job: Job, left: float) -> str:
    "Why a job is not begun; '' where it waits."
    if job.file.exists():
        return "is done"
    if job.needs:
        return f"needs {job.needs}"
    if job.minutes > left:
        return f"does not fit into {max(left, 0):.0f} min"
    return ""


def print_job(title: str, job: Job, state: str) -> None:
    takes = f"{'~' if job.guess else ' '}{job.minutes:4.0f} min"
    print(f"{title:20}{takes}  {state or 'waits'}; {job.file}")


def print_plan(todo: dict[str, Job], minutes: float) -> None:
    planned = 0.0
    for title, job in todo.items():
        state = hindrance(job, minutes - planned)
        planned += 0 if state else job.minutes
        print_job(title, job, state)


def do_all(todo: dict[str, Job], minutes: float, scratch: Path) -> bool:  # did all end well?
    began = time.monotonic()
    is_good = True
    for title, job in todo.items():
        left = minutes - (time.monotonic() - began) / 60
        state = hindrance(job, left)
        if state:
            print_job(title, job, state)
        elif not do(title, job, scratch, 60 * left):
            is_good = False
    return is_good


def main() -> int:
    p = measurement.parser(__doc__)
    p.add_argument("--only", nargs="*", help="jobs, by name")
    p.add_argument("--list", action="store_true", help="print the plan and stop")
    p.add_argument(
        "--minutes", type=float, default=math.inf, help="begin what fits, and stop after so many"
    )
    p.add_argument("--ucf101", type=Path, help="manifest of real clips, beside their folders")
    p.add_argument("--jhmdb", type=Path, help="manifest of JHMDB, with flow")
    p.add_argument("--out", type=Path, default=ROOT / "results")
    p.add_argument(
        "--scratch", type=Path, default=ROOT / "runs" / "gpu", help="for videos, runs and logs"
    )
    p.add_argument("--checks", type=Path, help=argparse.SUPPRESS)
    a = p.parse_args()
    is_gpu = torch.cuda.is_available()
    if a.checks and is_gpu:
        checks(a.checks)
        return 0
    reason = refusal(a, is_gpu)
    if reason:
        print(reason, file=sys.stderr)
        return 2

    device = torch.cuda.get_device_name().lower() if is_gpu else "gpu"
    name = re.sub("[^a-z0-9]+", "-", device).strip("-")
    every = jobs(name, a.out, a.scratch, a.ucf101, a.jhmdb)
    unknown = [title for title in a.only or () if title not in every]
    if unknown:
        print(f"there is no job {unknown[0]!r}; take some of {', '.join(every)}", file=sys.stderr)
        return 2
    todo = {title: job for title, job in every.items() if not a.only or title in a.only}
    if a.list:
        print_plan(todo, a.minutes)
        return 0

    for folder in (a.scratch, a.out):
        folder.mkdir(parents=True, exist_ok=True)
    is_good = do_all(todo, a.minutes, a.scratch)
    step, supply = every["step"].file, every["input"].file
    if step.exists() and supply.exists():
        print(demand(step, supply))
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
