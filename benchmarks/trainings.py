"""How many toy trainings does a core do in an hour, now and at an earlier commit?

Four recipes of the toy: 720 videos of 32 px, the tiny backbone, one thread, forward passes in
bfloat16, videos kept in memory, batches of 8 videos at half the rate. A training sees EPOCHS times
two clips of each training video, also where a recipe takes three or four clips of a video. The
earlier commit is a checkout of this repository; each of the two has a process of its own, and they
take turns.

    git worktree add ../earlier COMMIT
    python benchmarks/trainings.py --baseline ../earlier --out results/trainings-cpu.json

Each round goes on with a training of one epoch, once for a few steps and once for more, in
processor seconds of all threads: the difference gives the seconds of a step, the rest those of the
start. Then features of the test videos are made. A whole training is its start, all of its steps,
and the features of all 1,440 videos and queries; decoding is not in it (once a seed), nor Python's
start. The weights of both are compared.

In `results/trainings-cpu.json`, on a machine that was busy with other work, the four recipes make
1.06 to 1.11 times as many trainings as the earlier commit (medians; single rounds 0.96 to 1.17),
with the same weights to the bit."""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import measurement
from result_files import Stamp, commit_of, settings_of, write_results
from run_folders import folder_name

from vssl_nb.config import Recipe
from vssl_nb.data import toy
from vssl_nb.data.dataset import VideoCache
from vssl_nb.data.manifest import read
from vssl_nb.measure.features import extract
from vssl_nb.methods.recipes import find, override
from vssl_nb.runs.evaluation import open_trained
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.training.checkpoints import digest, load
from vssl_nb.training.machine import Machine

SEED = 31
EPOCHS = 12
BATCH = 8
FEW = 5  # steps of the shorter training
MEASURED = 1440  # videos and queries


@dataclass(frozen=True)
class Training:
    "A recipe, and its share of the clips."

    recipe: str
    share: float = 1.0
    changes: Mapping[str, Any] = field(default_factory=dict)


TRAININGS = {
    "InfoNCE, frames": Training("infonce-toy-rgb"),
    "MoQuad rung 3, frames": Training("moquad-toy-rung3"),
    "ProViCo, frames": Training("provico-toy", changes=dict(view="rgb")),
    "CoCLR, frames": Training("coclr-toy-rgb-cycle1", 2 / 3),
}
# CoCLR's weights, and what mines for it
BEGINNINGS = {
    "begun, frames": Training("infonce-toy-rgb", 1 / 3),
    "InfoNCE, differences": Training("infonce-toy-residual"),
}


def recipe_of(name: str) -> Recipe:
    "A recipe with the epochs in which it sees its share of the clips."
    training = (TRAININGS | BEGINNINGS)[name]
    recipe = override(find(training.recipe), seed=SEED, test_clips=3, **training.changes)
    rate = recipe.learning.lr * (BATCH / recipe.learning.batch) ** 0.5
    epochs = EPOCHS * training.share * 2 / recipe.sampling.clips
    settings = dict(batch=BATCH, lr=rate, epochs=round(epochs))
    return override(recipe, name=f"{recipe.name}-trainings", **settings)


def machine_of(home: Path) -> Machine:
    "One process of a CPU in bfloat16, all videos kept in memory."
    cache = VideoCache(read(home / "toy"), 2**31)
    return Machine("cpu", "bfloat16", cache=cache, progress=False)


def prepare(
    home: Path,
    size: str,  # of the toy
    names: list[str],  # of recipes
) -> dict[str, int]:  # of each: steps of a whole training
    "Make the videos and, of each recipe, the run to go on with."
    manifest = read(toy.make(home / "toy", size, SEED, workers=1, progress=False))
    toy.make_conflict(home / "toy", 1, progress=False)
    machine = machine_of(home)
    steps = {}
    beginnings = BEGINNINGS if "CoCLR, frames" in names else ()
    for name in (*beginnings, *names):
        recipe = recipe_of(name)
        networks = {}
        if name.startswith("CoCLR"):
            weights, sampler = (home / folder_name(b) for b in BEGINNINGS)
            networks = {"encoder": weights, "sampler": sampler}
        epoch = len(manifest.select("train")) // recipe.learning.batch
        out = home / folder_name(name)
        pretrain(recipe, home / "toy", out, False, machine, max_steps=epoch, networks=networks)
        steps[name] = epoch * recipe.learning.epochs
    return {name: steps[name] for name in names}


# ---- a process of one checkout


def continued(home: Path, name: str, steps: int, machine: Machine) -> tuple[float, str]:
    "Seconds of a start and some steps of a training that goes on, and a digest of its weights."
    with tempfile.TemporaryDirectory(dir=home) as folder:
        out = Path(shutil.copytree(home / folder_name(name), Path(folder) / "run"))
        done = json.loads((out / "card.json").read_text())["step"]
        recipe = recipe_of(name)
        began = time.process_time()
        pretrain(recipe, home / "toy", out, True, machine, max_steps=done + steps)
        return time.process_time() - began, digest(load(out / "last.pt")["method"])


def seconds_of_a_video(home: Path, name: str, machine: Machine) -> float:
    "Seconds in which the features of a test video are made."
    t = open_trained(home / folder_name(name))
    manifest, protocol = machine.cache.manifest, t.protocol()
    began = time.process_time()
    features = extract(t.encoder, manifest, "test", 1, t.view, protocol, machine=machine, **t.views)
    return (time.process_time() - began) / len(features)


def serve(home: Path) -> None:
    """Answer questions, one a line: seconds of a start, of a step, of the features of a video; and
    weights.
    """
    machine = machine_of(home)
    answers, sys.stdout = sys.stdout, sys.stderr  # what trains may print
    for line in sys.stdin:
        name, steps = json.loads(line)
        short, _ = continued(home, name, FEW, machine)
        long, weights = continued(home, name, FEW + steps, machine)
        step = (long - short) / steps
        answer = {
            "start": short - FEW * step,
            "step": step,
            "weights": weights,
            "video": seconds_of_a_video(home, name, machine),
        }
        print(json.dumps(answer), file=answers, flush=True)


def started(checkout: Path, home: Path) -> subprocess.Popen:
    "A process that has imported the library of a checkout."
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), "--serve", str(home)],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"},
    )


def ask(process: subprocess.Popen, name: str, steps: int) -> dict[str, Any]:
    process.stdin.write(json.dumps([name, steps]) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


# ---- both checkouts


def measure(
    home: Path,
    baseline: Path,  # a checkout
    names: list[str],  # of recipes
    a: Any,  # the command line
) -> dict[str, tuple[list[dict], list[dict]]]:  # of each: rounds of the baseline, and of this one
    "What both checkouts answer, in turn."
    processes = {
        "baseline": started(baseline.resolve(), home),
        "now": started(measurement.ROOT, home),
    }
    try:
        for process in processes.values():
            ask(process, names[0], a.steps)  # decodes the videos; not counted
        ways = {
            (name, which): partial(ask, process, name, a.steps)
            for name in names
            for which, process in processes.items()
        }
        rounds = measurement.in_turn(ways, a.rounds)
    finally:
        for process in processes.values():
            process.communicate()
    return {name: (rounds[name, "baseline"], rounds[name, "now"]) for name in names}


def in_an_hour(seconds: dict[str, Any], steps: int) -> float:
    "Trainings of so many steps that a core does in an hour."
    return 3600 / (seconds["start"] + steps * seconds["step"] + MEASURED * seconds["video"])


def medians_of(rounds: list[dict[str, Any]], steps: int) -> dict[str, float]:
    columns = {k: [r[k] for r in rounds] for k in ("start", "step", "video")}
    columns["in_an_hour"] = [in_an_hour(r, steps) for r in rounds]
    return measurement.medians(columns)


def row_of(
    name: str,
    steps: int,  # of a whole training
    baseline: list[dict[str, Any]],  # its rounds
    now: list[dict[str, Any]],
) -> dict[str, Any]:
    "Medians of both and of the ratio, and its range."
    pairs = list(zip(baseline, now, strict=True))
    ratios = sorted(in_an_hour(new, steps) / in_an_hour(old, steps) for old, new in pairs)
    return {
        "recipe": recipe_of(name).name,
        "steps": steps,
        "baseline": medians_of(baseline, steps),
        "now": medians_of(now, steps),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "step_ratio": statistics.median(old["step"] / new["step"] for old, new in pairs),
        "same_weights": all(old["weights"] == new["weights"] for old, new in pairs),
    }


def print_table(rows: list[dict[str, Any]]) -> None:
    print(f"{'recipe':30}{'ms/step':>9}{'now':>8}{'in an hour':>12}{'now':>8}{'ratio':>8}  range")
    for r in rows:
        old, new = r["baseline"], r["now"]
        print(
            f"{r['recipe']:30}{1000 * old['step']:>9.1f}{1000 * new['step']:>8.1f}"
            f"{old['in_an_hour']:>12.1f}{new['in_an_hour']:>8.1f}{r['ratio']:>8.2f}  "
            f"{r['ratios'][0]:.2f} to {r['ratios'][-1]:.2f}"
            f"{'' if r['same_weights'] else '  other weights'}"
        )


def main():
    p = measurement.parser(__doc__)
    p.add_argument("--baseline", type=Path, help="a checkout of an earlier commit")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=40, help="steps that are timed in a round")
    p.add_argument("--only", nargs="+", choices=[*TRAININGS], default=[*TRAININGS])
    p.add_argument("--size", default="demo", choices=["tiny", "demo"], help="of the toy")
    p.add_argument("--out", type=Path, help="a .json file for the results")
    p.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.serve:
        serve(a.serve)
        return
    if not a.baseline or not a.out:
        p.error("give --baseline and --out")

    stamp = Stamp(__file__, settings_of(a, without=("baseline", "serve")), threads=1)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        steps = prepare(home, a.size, a.only)
        rounds = measure(home, a.baseline, a.only, a)
    rows = [row_of(name, steps[name], *rounds[name]) for name in a.only]
    print_table(rows)
    commits = {"baseline": commit_of(a.baseline), "now": commit_of(measurement.ROOT)}
    results = {"commits": commits, "size": a.size, "rounds": a.rounds, "timed_steps": a.steps}
    write_results(a.out, stamp.head() | results | {"recipes": rows})


if __name__ == "__main__":
    main()
