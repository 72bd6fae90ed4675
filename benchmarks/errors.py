"""Processor time of simple errors, from the start of Python to the sentence: each command in a new
process.

    python benchmarks/errors.py --out results/errors-cpu.json

A hundred misuses of the tables of `tests/misuses.py`, evenly spread over each: seven in ten by hand
(files that are not there, tables and runs that are none, names that do not exist), the others made
from the options (values out of their range, of another type, missing).
"""

import argparse
import importlib.metadata
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
from misuses import BY_HAND, fill, generated  # noqa: E402

from vssl_nb.cli import COMMANDS  # noqa: E402

BY_HAND_SHARE = 0.7


def spread(rows: list, count: int) -> list:
    "So many of the rows, from the first on, at equal distances."
    return [rows[i * len(rows) // count] for i in range(min(count, len(rows)))]


def chosen(count: int) -> list[list[str]]:
    "The commands, those by hand first."
    by_hand = round(BY_HAND_SHARE * count)
    made = [row for command in COMMANDS for row in generated(command)]
    return [args for _, args in spread(BY_HAND, by_hand) + spread(made, count - by_hand)]


def machine() -> dict:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(": ")[1] for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "torch": importlib.metadata.version("torch"),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def refused(args: list[str], place: Path) -> tuple[float, str]:
    "Processor seconds, user's and system's, and the sentence of a command."

    def spent():
        return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])

    before = spent()
    done = subprocess.run(
        [sys.executable, "-m", "vssl_nb.cli", *args],
        cwd=place,
        text=True,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    if done.returncode != 2:
        sys.exit(f"{' '.join(args)}: ended with {done.returncode}\n{done.stderr}")
    return spent() - before, done.stderr.splitlines()[-1]


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--count", type=int, default=100, help="errors")
    p.add_argument("--out", type=Path, help="a .json file")
    a = p.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as place:
        fill(Path(place))
        refused(["recipes", "none"], Path(place))  # compiles the modules
        for args in chosen(a.count):
            seconds, sentence = refused(args, Path(place))
            rows.append({"command": " ".join(args), "seconds": round(seconds, 3)})
            print(f"{seconds:5.2f} s  {' '.join(args)}: {sentence}", flush=True)
    seconds = [r["seconds"] for r in rows]
    out = {
        "what": "benchmarks/errors.py",
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "errors": len(rows),
        "median_s": statistics.median(seconds),
        "range_s": [min(seconds), max(seconds)],
        "above_1_s": sum(s > 1 for s in seconds),
        "rows": rows,
    }
    print(
        f"{len(rows)} errors: median {out['median_s']:.2f} s of a processor, from "
        f"{min(seconds):.2f} to "
        f"{max(seconds):.2f}, {out['above_1_s']} of them above 1 s"
    )
    if a.out:
        a.out.write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
