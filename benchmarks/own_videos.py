"""Does `vssl-nb pretrain own-videos` keep to its minutes, and what does its verdict say?

    python benchmarks/own_videos.py folder:3 other:5 --out results/own-videos-cpu.json

Each argument is a folder of videos and the minutes it gets. Every run is a whole command in a
process of its own, from the start of Python to the last line of the verdict; what it chose, and
why, is read from its run folder. The load of the machine is noted before and after: other work
makes steps slower, and the time is to be kept all the same.

What came out (`results/own-videos-cpu.json`, clips of UCF101, two cores with a load of up to 7).
*Finds*: how often a held-out clip finds its own video again, and how often random weights do.

    videos  minutes  took   steps  finds          verdict
        60        3  175 s     67  19 % (13 %)    it learned
       270        5  299 s    180  14 % (9 %)     not certain yet: more minutes"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import measurement
from result_files import Stamp, settings_of, write_results

# part of the recipe ('' is the recipe itself) -> fields that the command chooses
CHOSEN = {
    "": ("view", "backbone", "size"),
    "sampling": ("length", "stride"),
    "method": ("queue", "momentum"),
    "learning": ("batch", "epochs", "warmup"),
}


def chosen_in(recipe: dict[str, Any]) -> dict[str, Any]:
    chosen = {}
    for part, fields in CHOSEN.items():
        values = recipe[part] if part else recipe
        chosen |= {name: values[name] for name in fields}
    return chosen


def measure(folder: Path, minutes: float, out: Path, options: list[str]) -> dict[str, Any]:
    "One command, and what its run folder says."
    command = [sys.executable, "-m", "vssl_nb.app.cli", "pretrain", "own-videos", "--data", folder]
    command += ["--out", out, "--minutes", str(minutes), "--quiet", *options]
    load, began = os.getloadavg(), time.monotonic()
    done = subprocess.run(command, text=True, capture_output=True)
    seconds = time.monotonic() - began
    if done.returncode:
        sys.exit(done.stderr)

    recipe, card, verdict = (
        json.loads((out / f"{name}.json").read_text()) for name in ("recipe", "card", "verdict")
    )
    return {
        "folder": folder.name,
        "videos": card["manifest"]["train"],
        "minutes": minutes,
        "seconds": round(seconds, 1),
        "kept": seconds <= 60 * minutes,
        "load_before": load[0],
        "load_after": os.getloadavg()[0],
        "steps": card["step"],
        "of_steps": card["schedule"]["epochs"] * card["schedule"]["steps_per_epoch"],
        "chosen": chosen_in(recipe),
        "reasons": recipe["reasons"],
        "verdict": verdict,
        "options": options,
    }


def main():
    p = measurement.parser(__doc__)
    p.add_argument("folders", nargs="+", metavar="FOLDER:MINUTES")
    p.add_argument("--out", type=Path, default=Path("own-videos-cpu.json"))
    p.add_argument(
        "--set", nargs="*", default=[], help="further options of the command, without --: size=32"
    )
    a = p.parse_args()
    options: list[str] = []
    for pair in a.set:
        name, value = pair.split("=")
        options += [f"--{name}", value]

    stamp = Stamp(__file__, settings_of(a))
    rows = []
    for words in a.folders:
        folder, minutes = words.rsplit(":", 1)
        with tempfile.TemporaryDirectory() as home:
            row = measure(Path(folder), float(minutes), Path(home) / "run", options)
        rows.append(row)
        print(
            f"{row['folder']}: {row['videos']} videos, {row['seconds']:.0f} s of "
            f"{60 * row['minutes']:.0f}, {row['steps']} steps, {row['verdict']['sentences'][0]}"
        )
    write_results(a.out, stamp.head() | {"rows": rows})


if __name__ == "__main__":
    main()
