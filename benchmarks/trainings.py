"""How many toy trainings does a core do in an hour, now and at an earlier commit?

Four recipes with the settings of `benchmarks/conflict.py`: 720 videos of 32 px, the tiny backbone,
batches of 8 videos, one thread, forward passes in bfloat16, videos kept in memory. The earlier
commit is a checkout of this repository; each of the two has a process of its own, and they take
turns.

    git worktree add ../earlier COMMIT
    python benchmarks/trainings.py --baseline ../earlier --out results/trainings-cpu.json

Each round goes on with a training of one epoch, once for a few steps and once for more, in
processor seconds of all threads: the difference gives the seconds of a step, the rest those of the
start. Then features of the test videos are made. A whole training is its start, all of its steps,
and the features of all 1,440 videos and queries; decoding is not in it (once a seed), nor Python's
start. The weights of both are compared."""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from conflict import recipe_of  # noqa: E402
from step import machine  # noqa: E402

from vssl_nb.data import toy  # noqa: E402
from vssl_nb.data.clips import VideoCache  # noqa: E402
from vssl_nb.data.manifest import read  # noqa: E402
from vssl_nb.measure.features import extract  # noqa: E402
from vssl_nb.runs.evaluation import open_trained  # noqa: E402
from vssl_nb.runs.pretraining import pretrain  # noqa: E402
from vssl_nb.training.checkpoints import digest, load  # noqa: E402
from vssl_nb.training.machine import Machine  # noqa: E402

RECIPES = ("InfoNCE, frames", "MoQuad rung 3, frames", "ProViCo, frames", "CoCLR, frames")
# CoCLR's weights, and what mines for it
BEGINNINGS = ("begun, frames", "InfoNCE, differences")
SEED, FEW, MEASURED = 31, 5, 1440


def folder(home: Path, name: str) -> Path:
    return home / name.replace(", ", "-").replace(" ", "-")


def prepare(home: Path, size: str, names: list[str]) -> dict[str, int]:
    "Make the videos and, of each recipe, the run to go on with; name -> steps of a whole training."
    manifest = read(toy.make(home / "toy", size, SEED, workers=1, progress=False))
    toy.make_conflict(home / "toy", 1, progress=False)
    options, total = (
        Machine("cpu", "bfloat16", cache=VideoCache(manifest, 2**31), progress=False),
        {},
    )
    for name in (*(BEGINNINGS if "CoCLR, frames" in names else ()), *names):
        recipe, runs = recipe_of(name, SEED, 12, {}), {}
        if name.startswith("CoCLR"):
            runs = dict(zip(("init_from", "sampler"), (folder(home, b) for b in BEGINNINGS)))
        epoch = len(manifest.select("train")) // recipe.learning.batch
        pretrain(recipe, home / "toy", folder(home, name), False, options, max_steps=epoch, **runs)
        total[name] = epoch * recipe.learning.epochs
    return {name: total[name] for name in names}


def serve(home: Path) -> None:
    """Answer questions, one a line: seconds of a start, of a step, of the features of a video; and
    weights.
    """
    options = Machine(
        "cpu", "bfloat16", cache=VideoCache(read(home / "toy"), 2**31), progress=False
    )
    answers, sys.stdout = sys.stdout, sys.stderr

    def trained(name: str, steps: int) -> tuple[float, str]:
        with tempfile.TemporaryDirectory(dir=home) as place:
            out = Path(shutil.copytree(folder(home, name), Path(place) / "run"))
            done = json.loads((out / "card.json").read_text())["step"]
            began = time.process_time()
            pretrain(
                recipe_of(name, SEED, 12, {}),
                home / "toy",
                out,
                True,
                options,
                max_steps=done + steps,
            )
            return time.process_time() - began, digest(load(out / "last.pt")["method"])

    for line in sys.stdin:
        name, steps = json.loads(line)
        short, long = trained(name, FEW), trained(name, FEW + steps)
        step = (long[0] - short[0]) / steps
        t = open_trained(folder(home, name))
        began = time.process_time()
        features = extract(
            t.encoder,
            options.cache.manifest,
            "test",
            1,
            t.view,
            t.protocol(),
            machine=options,
            **t.views,
        )
        answer = {
            "start": short[0] - FEW * step,
            "step": step,
            "weights": long[1],
            "video": (time.process_time() - began) / len(features),
        }
        print(json.dumps(answer), file=answers, flush=True)


def started(checkout: Path, home: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), "--serve", str(home)],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"},
    )


def asked(process: subprocess.Popen, name: str, steps: int) -> dict:
    process.stdin.write(json.dumps([name, steps]) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def commit(checkout: Path) -> str:
    done = subprocess.run(
        ["git", "-C", checkout, "rev-parse", "--short", "HEAD"], text=True, capture_output=True
    )
    return done.stdout.strip()


def in_an_hour(r: dict, steps: int) -> float:
    return 3600 / (r["start"] + steps * r["step"] + MEASURED * r["video"])


def row_of(name: str, steps: int, rounds: list[tuple[dict, dict]]) -> dict:
    "Medians of both and of the ratio, and its range."
    row = {"recipe": recipe_of(name, SEED, 12, {}).name, "steps": steps}
    for i, which in enumerate(("baseline", "now")):
        row[which] = {
            k: statistics.median(r[i][k] for r in rounds) for k in ("start", "step", "video")
        }
        row[which]["in_an_hour"] = statistics.median(in_an_hour(r[i], steps) for r in rounds)
    ratios = sorted(in_an_hour(b, steps) / in_an_hour(a, steps) for a, b in rounds)
    return row | {
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "step_ratio": statistics.median(a["step"] / b["step"] for a, b in rounds),
        "same_weights": all(a["weights"] == b["weights"] for a, b in rounds),
    }


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--baseline", type=Path, help="a checkout of an earlier commit")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=40, help="steps that are timed in a round")
    p.add_argument("--only", nargs="+", choices=RECIPES, default=[*RECIPES])
    p.add_argument("--size", default="demo", choices=["tiny", "demo"], help="of the toy")
    p.add_argument("--out", type=Path, help="a .json file for the results")
    p.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.serve:
        return serve(a.serve)
    if not a.baseline or not a.out:
        p.error("give --baseline and --out")
    here = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        totals = prepare(home, a.size, a.only)
        both = [started(x.resolve(), home) for x in (a.baseline, here)]
        try:
            # decodes the videos; not counted
            for process in both:
                asked(process, a.only[0], a.steps)
            rounds = {name: [] for name in a.only}
            for i in range(a.rounds):
                for name in a.only:
                    pair = [asked(process, name, a.steps) for process in both[:: (-1) ** i]][
                        :: (-1) ** i
                    ]
                    rounds[name].append(tuple(pair))
                print(f"round {i + 1} of {a.rounds}", file=sys.stderr, flush=True)
        finally:
            for process in both:
                process.communicate()
    rows = [row_of(name, totals[name], rounds[name]) for name in a.only]
    print(f"{'recipe':30}{'ms/step':>9}{'now':>8}{'in an hour':>12}{'now':>8}{'ratio':>8}  range")
    for r in rows:
        old, new = r["baseline"], r["now"]
        print(
            f"{r['recipe']:30}{1000 * old['step']:>9.1f}{1000 * new['step']:>8.1f}{old['in_an_hour']:>12.1f}"
            f"{new['in_an_hour']:>8.1f}{r['ratio']:>8.2f}  {r['ratios'][0]:.2f} to "
            f"{r['ratios'][-1]:.2f}"
            f"{'' if r['same_weights'] else '  other weights'}"
        )
    a.out.write_text(
        json.dumps(
            {
                "what": "benchmarks/trainings.py",
                "date": time.strftime("%Y-%m-%d"),
                "machine": machine("cpu") | {"threads": 1},
                "commits": {"baseline": commit(a.baseline), "now": commit(here)},
                "size": a.size,
                "rounds": a.rounds,
                "timed_steps": a.steps,
                "recipes": rows,
            },
            indent=1,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
