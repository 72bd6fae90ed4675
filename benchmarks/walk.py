"""The way of somebody with a folder of clips, on 17, 80 and 491 real ones, with interruptions.

    python benchmarks/walk.py --data JHMDB --out results/walk-jhmdb.json

JHMDB, split 1: the first 17, 80 and 491 training clips, whole recordings, once in a folder for each
class (*labelled*) and once side by side without names (*flat*). In each of the six folders the
commands of README and how-tos follow each other: manifest, own-videos, search, explore, spans,
features as Parquet, a program, verdict and report. Every command runs twice, in two copies of the
folder: to its end, and once stopped by Ctrl-C after a part of that time (drawn between 0.2 and 0.8
for each command, seed 0; half of it where it was over before) and then run again.

The same command goes on after the last whole folder. Kept for each: seconds of the whole run and of
the second one, exit code at the interruption (130), tracebacks, hidden files that were left behind,
and whether the second copy has what the first one has. A training of own videos has a budget of
time, so that its weights differ; the rest is compared by content."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measurement
import numpy as np
from own_clips import nested
from result_files import SeedResults, Stamp, rule, settings_of

from vssl_nb.data.manifest import Manifest, open_data

SIZES = (17, 80, 491)
ENCODER = "published:efficientnet-lite0@spread"
MINUTES = "1"  # of own-videos
LOCKS = (".jsonl", ".lock")  # hidden files that are meant to stay


@dataclass(frozen=True)
class Step:
    "A command of the way, and the file that it makes."

    name: str
    words: tuple[str, ...]  # {query}: the first video
    made: str  # a file, relative to the place
    again: tuple[str, ...] = ()  # further words after an interruption
    compare: bool = True  # is the content the same in both copies?


WAY = (
    Step("manifest", ("manifest", "clips"), "clips/manifest.csv"),
    Step(
        "own-videos",
        ("pretrain", "own-videos", "--data", "clips", "--minutes", MINUTES, "--out", "run"),
        "run/encoder.safetensors",
        again=("--resume",),
        compare=False,
    ),
    Step(
        "search",
        ("search", "{query}", "--data", "clips", "--encoder", ENCODER, "--out", "search.csv"),
        "search.csv",
    ),
    Step(
        "explore",
        ("explore", "clips", "--out", "explore.html", "explore.csv"),
        "explore.csv",
    ),
    Step(
        "spans",
        (
            "search",
            "{query}@0-1",
            "--spans",
            "--data",
            "clips",
            "--encoder",
            "run",
            "--out",
            "spans.csv",
        ),
        "spans.csv",
        compare=False,  # of the run, which differs
    ),
    Step(
        "parquet",
        ("extract", ENCODER, "--data", "clips", "--out", "features.parquet"),
        "features.parquet",
    ),
    Step("program", ("convert", "run", "encoder.onnx"), "encoder.onnx", compare=False),
    Step("verdict", ("verdict", "run"), "run/verdict.txt", compare=False),
    Step("report", ("report", "run"), "run/report.html", compare=False),
)


# ---- folders


def lay_out(
    manifest: Manifest,
    rows: list[int],
    place: Path,
    labelled: bool,
) -> str:  # the first video, relative to the place
    "The clips in `place/clips`, as links to the same bytes."
    videos = []
    for number, row in enumerate(rows):
        source = manifest.root / manifest.rows[row].video
        name = f"{manifest.rows[row].label}/{source.name}" if labelled else f"{number:04d}.mp4"
        target = place / "clips" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        videos.append(f"clips/{name}")
    return videos[0]


def left_behind(place: Path) -> list[str]:
    "Hidden files of a write that was not finished."
    hidden = [f for f in place.rglob(".*") if f.is_file() and f.suffix not in LOCKS]
    return sorted(str(f.relative_to(place)) for f in hidden)


def content(file: Path) -> Any:
    "Of a table, what does not depend on the machine's last digit."
    if not file.exists():
        return None
    if file.suffix == ".parquet":
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(file).to_pydict()
        return {
            name: np.round(np.array(column, float), 3).tolist() if name == "x" else column
            for name, column in table.items()
        }
    # distances of features that were computed in other batches
    return re.sub(r"(\d\.\d\d)\d+", r"\1", file.read_text(encoding="utf-8"))


# ---- commands


def words_of(step: Step, query: str) -> list[str]:
    program = str(Path(sys.executable).with_name("vssl-nb"))
    return [program, *(word.replace("{query}", query) for word in step.words)]


def finish(words: list[str], place: Path) -> tuple[float, int, str]:  # seconds, exit code, messages
    began = time.monotonic()
    done = subprocess.run(words, cwd=place, capture_output=True, text=True)
    return time.monotonic() - began, done.returncode, done.stdout + done.stderr


def interrupt(
    words: list[str],
    place: Path,
    seconds: float,  # after which Ctrl-C comes
) -> tuple[int, str]:  # exit code, messages
    process = subprocess.Popen(
        words,
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
        text, _ = process.communicate()
    return process.returncode, text


def interrupt_at_work(
    words: list[str],
    place: Path,
    seconds: float,  # after which Ctrl-C comes; half of it where the command was over before
) -> tuple[int, str]:  # exit code, messages
    before = place.with_name("before")
    shutil.copytree(place, before)
    for _ in range(4):
        code, text = interrupt(words, place, seconds)
        if code != 0:
            break
        seconds /= 2
        shutil.rmtree(place)
        shutil.copytree(before, place)
    shutil.rmtree(before)
    return code, text


def walk(
    manifest: Manifest,
    rows: list[int],
    labelled: bool,
    home: Path,
) -> list[dict[str, Any]]:  # a record a command
    "All commands in two copies of a folder, one of them interrupted."
    rng = np.random.default_rng(0)
    whole, broken = home / "whole", home / "broken"
    for place in (whole, broken):
        query = lay_out(manifest, rows, place, labelled)

    records = []
    for step in WAY:
        words = words_of(step, query)
        seconds, code, text = finish(words, whole)
        stopped, first = interrupt_at_work(words, broken, seconds * rng.uniform(0.2, 0.8))
        left = left_behind(broken)
        begun = (broken / "run" / "recipe.json").exists()
        further = step.again if begun and stopped else ()
        again, last, second = finish([*words, *further], broken)
        same = None
        if step.compare:
            same = content(whole / step.made) == content(broken / step.made)
        records.append(
            {
                "command": step.name,
                "seconds": round(seconds, 1),
                "exit": code,
                "stopped": stopped,
                "left": left,
                "seconds_again": round(again, 1),
                "exit_again": last,
                "made": (whole / step.made).exists() and (broken / step.made).exists(),
                "same": same,
                "tracebacks": sum(t.count("Traceback") for t in (text, first, second)),
                "message": "" if code == 0 else text.strip().splitlines()[-1],
            }
        )
        print(records[-1], flush=True)
    return records


def main() -> None:
    parser = measurement.parser(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of JHMDB")
    parser.add_argument("--out", type=Path, required=True, help="a .json file for the results")
    parser.add_argument("--runs", type=Path, default=Path("runs/walk"), help="folder of the copies")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="clips of a folder")
    arguments = parser.parse_args()

    # a shell lets its background jobs ignore Ctrl-C, and what they start inherits that
    signal.signal(signal.SIGINT, signal.default_int_handler)
    manifest = open_data(arguments.data)
    order = nested(manifest)
    stamp = Stamp(__file__, settings_of(arguments, without=("sizes",)))
    results = SeedResults(arguments.out, stamp, asked={}, further={"rule": rule(__file__)})
    for clips in arguments.sizes:
        for labelled in (False, True):
            folder = results.entry(clips=clips, labelled=labelled)
            if folder["rows"]:
                continue
            home = arguments.runs / f"{clips}-{'labelled' if labelled else 'flat'}"
            shutil.rmtree(home, ignore_errors=True)
            folder["rows"] = walk(manifest, order[:clips], labelled, home.resolve())
            results.keep()
            shutil.rmtree(home)


if __name__ == "__main__":
    main()
