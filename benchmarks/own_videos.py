"""Does `vssl-nb pretrain own-videos` keep to its minutes, and what does its verdict say?

    python benchmarks/own_videos.py folder:3 other:5 --out results/own-videos-cpu.json

Each argument is a folder of videos and the minutes it gets. Every run is a whole command in a
process of its own, from the start of Python to the last line of the verdict; what it chose, and
why, is read from its run folder. The load of the machine is noted before and after: other work
makes steps slower, and the time is to be kept all the same."""

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from step import machine  # noqa: E402


def one(folder: Path, minutes: float, out: Path, more: list[str]) -> dict:
    "One command, and what its run folder says."
    load, began = os.getloadavg(), time.monotonic()
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "vssl_nb.cli",
            "pretrain",
            "own-videos",
            "--data",
            folder,
            "--out",
            out,
            "--minutes",
            str(minutes),
            "--quiet",
            *more,
        ],
        text=True,
        capture_output=True,
    )
    seconds = time.monotonic() - began
    if done.returncode:
        sys.exit(done.stderr)
    read = {
        name: json.loads((out / f"{name}.json").read_text())
        for name in ("recipe", "card", "verdict")
    }
    recipe, card = read["recipe"], read["card"]
    chosen = (
        {k: recipe[k] for k in ("view", "backbone", "size")}
        | {k: recipe["sampling"][k] for k in ("length", "stride")}
        | {k: recipe["method"][k] for k in ("queue", "momentum")}
        | {k: recipe["learning"][k] for k in ("batch", "epochs", "warmup")}
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
        "chosen": chosen,
        "reasons": recipe["reasons"],
        "verdict": read["verdict"],
        "options": more,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", help="FOLDER:MINUTES")
    parser.add_argument("--out", type=Path, default=Path("own-videos-cpu.json"))
    parser.add_argument(
        "--set", nargs="*", default=[], help="further options of the command, without --: size=32"
    )
    args = parser.parse_args()
    more = [word for pair in args.set for word in ("--" + pair.split("=")[0], pair.split("=")[1])]
    rows = []
    for run in args.runs:
        folder, minutes = run.rsplit(":", 1)
        with tempfile.TemporaryDirectory() as place:
            rows.append(one(Path(folder), float(minutes), Path(place) / "run", more))
        r = rows[-1]
        print(
            f"{r['folder']}: {r['videos']} videos, {r['seconds']:.0f} s of "
            f"{60 * r['minutes']:.0f}, "
            f"{r['steps']} steps, {r['verdict']['sentences'][0]}"
        )
    args.out.write_text(
        json.dumps(
            {
                "what": "benchmarks/own_videos.py",
                "date": str(datetime.date.today()),
                "machine": machine("cpu"),
                "rows": rows,
            },
            indent=1,
            ensure_ascii=False,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
