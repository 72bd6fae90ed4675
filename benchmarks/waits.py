"""Where does the time go in five things that people wait for?

The demo; the first training of a folder of clips; features and retrieval of a data set; a search
with a new file; a page of the course. Each is the command that a user types, with its processes,
and a thread in every process notes ten times a tenth of a second what its main thread does: the
innermost function of STAGES.

    python benchmarks/waits.py --videos ../shared/videos/ucf101_more --out results/waits-cpu.json

A training of `--minutes` stands for the 20 minutes of the README (its length is set by the clock:
only the shares count). Seconds are wall time, and `to_first` is the time to the first line that is
no heading: the first row of the demo, the first file that is looked at. A stage has its share of
the seconds of all processes of the command, waiting left out, so that two processes count twice."""

import argparse
import atexit
import collections
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

# part of a file's path, and functions of it (none: all) -> stage; the innermost frame that matches
# counts
STAGES = (
    ("/numba/", (), "compilation"),
    ("importlib", (), "imports"),
    ("/data/video.py", ("crop_resize",), "crop and scale"),
    ("/data/video.py", (), "decoding"),
    ("/data/clips.py", ("cut_clips", "taken"), "crop and scale"),
    ("/data/clips.py", ("_decoded", "_frames", "_flow_frames"), "decoding"),
    (
        "/data/clips.py",
        ("apply", "_by_frames", "disturb_appearance", "normalise"),
        "augmentation and views",
    ),
    ("/data/colours.py", (), "augmentation and views"),
    ("/data/clips.py", (), "windows and random numbers"),
    ("/data/toy.py", (), "toy videos"),
    ("/data/flow.py", (), "optical flow"),
    ("/data/manifest.py", (), "looking at files"),
    ("/data/views.py", (), "augmentation and views"),
    ("/torch/optim/", (), "optimiser"),
    ("/training/checkpoints.py", (), "checkpoints"),
    ("/torch/autograd/", (), "backward"),
    ("/nets/", (), "forward"),
    ("/ssl/", (), "loss and mining"),
    ("/methods/", (), "loss and mining"),
    ("/measure/retrieval.py", (), "retrieval"),
    ("/measure/health.py", (), "verdict"),
    ("/show.py", (), "pictures and pages"),
    ("/matplotlib/", (), "pictures and pages"),
    ("/papers/report.py", (), "pictures and pages"),
    ("/multiprocessing/", ("wait", "poll", "select", "join", "get"), "waiting"),
    ("/resource_tracker.py", (), "waiting"),
    ("/selectors.py", (), "waiting"),
    ("/threading.py", ("wait", "join"), "waiting"),
    ("/queue.py", (), "waiting"),
    ("/subprocess.py", (), "waiting"),
    ("/zmq/", (), "waiting"),
)
STEP = 0.01  # seconds between two looks
JOBS = ("demo", "pretrain", "retrieve", "search", "page")


def stage(frame) -> str:
    "What the innermost frame with a stage of its own does."
    while frame is not None:
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        for part, names, title in STAGES:
            if part in path and (not names or name in names):
                return title
        frame = frame.f_back
    return "other"


def sample(folder: Path) -> None:
    "Look at the main thread of this process, and of those it forks, until it ends."
    os.register_at_fork(after_in_child=lambda: watch(folder))  # threads are not copied
    watch(folder)


def watch(folder: Path) -> None:
    """A thread that looks; once a second it writes the stages so far, and the processor time of the
    process.
    """
    main, file = threading.main_thread().ident, folder / f"{os.getpid()}.json"
    ended, seconds = threading.Event(), collections.Counter()

    def write():
        file.with_suffix(".part").write_text(
            json.dumps({"cpu": time.process_time(), "stages": seconds})
        )
        file.with_suffix(".part").replace(file)

    def look():
        last = saved = time.monotonic()
        while not ended.wait(STEP):
            now = time.monotonic()
            seconds[stage(sys._current_frames().get(main))] += now - last
            last = now
            if now - saved >= 1:
                write()
                saved = now
        write()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    # a thread that runs on would abort the interpreter
    atexit.register(lambda: (ended.set(), thread.join()))


def watched(command: Sequence, home: Path) -> dict:
    "Run a command, all of whose processes are looked at."
    looks = home / "looks"
    shutil.rmtree(looks, ignore_errors=True)
    looks.mkdir(parents=True)
    (looks / "sitecustomize.py").write_text(
        "import sys\nfrom pathlib import Path\n"
        f"sys.path.append({str(Path(__file__).parent)!r})\nimport waits\n"
        f"waits.sample(Path({str(looks)!r}))\n"
    )
    paths = os.pathsep.join(filter(None, (str(looks), os.environ.get("PYTHONPATH"))))
    began, first, lines = time.monotonic(), None, []
    process = subprocess.Popen(
        [str(c) for c in command],
        env=os.environ | {"PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=home,
    )
    for line in process.stdout:
        lines.append(line)
        if first is None and line.strip():
            first = time.monotonic() - began
    seconds = time.monotonic() - began
    if process.wait():
        sys.exit(f"{command}: {''.join(lines[-5:])}")
    found: collections.Counter[str] = collections.Counter()
    processes = [json.loads(f.read_text()) for f in looks.glob("*.json")]
    for p in processes:
        found.update(p["stages"])
    busy = sum(v for k, v in found.items() if k != "waiting")
    return {
        "command": " ".join(Path(c).name if "/" in str(c) else str(c) for c in command),
        "seconds": round(seconds, 1),
        "to_first": first and round(first, 1),
        "busy_seconds": round(busy, 1),
        "cpu_seconds": round(sum(p["cpu"] for p in processes), 1),
        "processes": len(processes),
        "stages": {k: round(v / busy, 3) for k, v in found.most_common() if k != "waiting"},
    }


def two_folders(videos: Path, clips: int, home: Path) -> Path:
    "Copies: `all` of the clips, and of `clips` of them `few`; returns one that is not in `few`."
    shutil.copytree(videos, home / "all")
    files = sorted(f for f in (home / "all").rglob("*") if f.suffix in (".avi", ".mp4"))
    few, new = files[:: max(1, len(files) // clips)][:clips], files[-1]
    for f in set(few) - {new}:
        (home / "few" / f.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(f, home / "few" / f.parent.name)
    return new


def main(args=None):
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument(
        "--videos", type=Path, required=True, help="a folder of classes; the clips are copied"
    )
    p.add_argument("--clips", type=int, default=250, help="of the training and of the search")
    p.add_argument("--minutes", type=float, default=3, help="of the training")
    p.add_argument(
        "--page",
        type=Path,
        default=Path(__file__).parents[1] / "nbs" / "lessons" / "05_infonce.ipynb",
    )
    p.add_argument("--only", nargs="+", choices=JOBS, default=JOBS)
    p.add_argument("--out", type=Path)
    a = p.parse_args(args)
    from step import machine

    program, rows = [sys.executable, "-m", "vssl_nb.cli"], {}
    page, videos = a.page.resolve(), a.videos.resolve()
    with tempfile.TemporaryDirectory() as home:
        home = Path(home)

        def prepare(*command):
            subprocess.run([*program, *command], cwd=home, check=True, stdout=subprocess.DEVNULL)

        def job(name, *command):
            rows[name] = r = watched(command, home)
            print(
                f"{name:10}{r['seconds']:8.1f} s, first line {r['to_first']} s; "
                + ", ".join(f"{k} {v:.0%}" for k, v in list(r["stages"].items())[:7]),
                flush=True,
            )

        if "demo" in a.only:
            job("demo", *program, "demo", "--out", "demo")
        # the last two take the run of the first
        if {"pretrain", "retrieve", "search"} & {*a.only}:
            new = two_folders(videos, a.clips, home)
            for folder in ("few", "all"):
                prepare("manifest", folder, "--split", ".3")
            job(
                "pretrain",
                *program,
                "pretrain",
                "own-videos",
                "--data",
                "few",
                "--out",
                "run",
                "--minutes",
                a.minutes,
            )
        if "retrieve" in a.only:
            job("retrieve", *program, "retrieve", "run", "--data", "all")
        if "search" in a.only:
            prepare("search", new, "--data", "few", "--encoder", "run")  # has the index made
            shutil.copy(new, home / "few" / "new.mp4")
            job("search", *program, "search", new, "--data", "few", "--encoder", "run")
        if "page" in a.only:
            job(
                "page",
                sys.executable,
                "-m",
                "nbconvert",
                "--execute",
                "--to",
                "notebook",
                page,
                "--output-dir",
                ".",
            )
    out = {
        "what": "benchmarks/waits.py",
        "date": datetime.date.today().isoformat(),
        "machine": machine("cpu"),
        "clips": len([*videos.rglob("*.avi"), *videos.rglob("*.mp4")]),
        "minutes": a.minutes,
        "page": page.stem,
        "waits": rows,
    }
    if a.out:
        a.out.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
