"""Where does the time go in five things that people wait for?

The demo; the first training of a folder of clips; features and retrieval of a data set; a search
with a new file; a page of the course. Each is the command that a user types, with its processes,
and a thread in every process notes ten times a tenth of a second what its main thread does: the
innermost function of STAGES.

    python benchmarks/waits.py --videos ../shared/videos/ucf101_more --out results/waits-cpu.json

A training of `--minutes` stands for the 20 minutes of the README (its length is set by the clock:
only the shares count). Seconds are wall time, and `to_first` is the time to the first line that is
no heading: the first row of the demo, the first file that is looked at. A stage has its share of
the seconds of all processes of the command, waiting left out, so that two processes count twice.

In `results/waits-cpu.json`, on two cores of a shared AMD EPYC, networks forward and backward are
63 % of the demo and 53 % of the training of own videos; colours, blur and normalisation, which are
compiled, 5 and 4 % (12 and 9 % before that); cropping and drawing of clips 16 and 11 %; decoding 4
and 25 %, in retrieval 39 %; the search is imports (86 %). The demo took 289 s there, in a slow hour
of the machine. The looking takes time itself."""

import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import measurement
from result_files import Stamp, settings_of, write_results

JOBS = ("demo", "pretrain", "retrieve", "search", "page")
PROGRAM = (sys.executable, "-m", "vssl_nb.app.cli")
PAGE = Path(__file__).parents[1] / "nbs" / "lessons" / "04_infonce.ipynb"


def sampling_folder(home: Path) -> Path:
    "A folder that Python looks into when it starts, and where each process writes its stages."
    folder = home / "looks"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "from pathlib import Path\n"
        f"sys.path.append({str(Path(__file__).parent)!r})\n"
        "import stack_samples\n"
        f"stack_samples.sample(Path({str(folder)!r}))\n"
    )
    return folder


def watched(command: Sequence[Any], home: Path) -> dict[str, Any]:
    "Run a command, all of whose processes are looked at."
    folder = sampling_folder(home)
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    environment = {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYTHONUNBUFFERED": "1",
    }
    began = time.monotonic()
    process = subprocess.Popen(
        [str(word) for word in command],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=home,
    )
    first, lines = None, []
    for line in process.stdout:
        lines.append(line)
        if first is None and line.strip():
            first = round(time.monotonic() - began, 1)
    seconds = time.monotonic() - began
    if process.wait():
        sys.exit(f"{command}: {''.join(lines[-5:])}")

    processes = [json.loads(file.read_text()) for file in folder.glob("*.json")]
    stages: collections.Counter[str] = collections.Counter()
    for p in processes:
        stages.update(p["stages"])
    stages.pop("waiting", None)
    busy = sum(stages.values())
    words = [Path(word).name if "/" in str(word) else str(word) for word in command]
    return {
        "command": " ".join(words),
        "seconds": round(seconds, 1),
        "to_first": first,
        "busy_seconds": round(busy, 1),
        "cpu_seconds": round(sum(p["cpu"] for p in processes), 1),
        "processes": len(processes),
        "stages": {name: round(s / busy, 3) for name, s in stages.most_common()},
    }


def two_folders(videos: Path, clips: int, home: Path) -> Path:
    "Copies: `all` of the clips, and of `clips` of them `few`; returns one that is not in `few`."
    shutil.copytree(videos, home / "all")
    files = sorted(f for f in (home / "all").rglob("*") if f.suffix in (".avi", ".mp4"))
    new = files[-1]
    for file in set(measurement.evenly_spread(files, clips)) - {new}:
        folder = home / "few" / file.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder)
    return new


class Waits:
    "The things that people wait for, in one folder."

    def __init__(self, home: Path, a: Any):
        self.home, self.a = home, a
        self.rows: dict[str, dict[str, Any]] = {}

    def prepare(self, *command: Any) -> None:
        "What is not looked at."
        words = [*PROGRAM, *map(str, command)]
        subprocess.run(words, cwd=self.home, check=True, stdout=subprocess.DEVNULL)

    def job(self, name: str, *command: Any) -> None:
        row = watched(command, self.home)
        self.rows[name] = row
        most = ", ".join(f"{k} {v:.0%}" for k, v in list(row["stages"].items())[:7])
        print(
            f"{name:10}{row['seconds']:8.1f} s, first line {row['to_first']} s; {most}", flush=True
        )

    def own_videos(self) -> None:
        "A training; retrieval and search take its run."
        a = self.a
        new = two_folders(a.videos.resolve(), a.clips, self.home)
        for folder in ("few", "all"):
            self.prepare("manifest", folder, "--split", ".3")
        own = (*PROGRAM, "pretrain", "own-videos", "--data", "few", "--out", "run")
        self.job("pretrain", *own, "--minutes", a.minutes)
        if "retrieve" in a.only:
            self.job("retrieve", *PROGRAM, "retrieve", "run", "--data", "all")
        if "search" in a.only:
            search = ("search", new, "--data", "few", "--encoder", "run")
            self.prepare(*search)  # has the index made
            shutil.copy(new, self.home / "few" / "new.mp4")
            self.job("search", *PROGRAM, *search)

    def page(self) -> None:
        execute = (sys.executable, "-m", "nbconvert", "--execute", "--to", "notebook")
        self.job("page", *execute, self.a.page.resolve(), "--output-dir", ".")

    def all(self) -> None:
        only = {*self.a.only}
        if "demo" in only:
            self.job("demo", *PROGRAM, "demo", "--out", "demo")
        if {"pretrain", "retrieve", "search"} & only:
            self.own_videos()
        if "page" in only:
            self.page()


def main():
    p = measurement.parser(__doc__)
    p.add_argument(
        "--videos", type=Path, required=True, help="a folder of classes; the clips are copied"
    )
    p.add_argument("--clips", type=int, default=250, help="of the training and of the search")
    p.add_argument("--minutes", type=float, default=3, help="of the training")
    p.add_argument("--page", type=Path, default=PAGE)
    p.add_argument("--only", nargs="+", choices=JOBS, default=JOBS)
    p.add_argument("--out", type=Path)
    a = p.parse_args()
    stamp = Stamp(__file__, settings_of(a, without=("page",)) | {"page": a.page.stem})
    with tempfile.TemporaryDirectory() as home:
        waits = Waits(Path(home), a)
        waits.all()
    videos = a.videos.resolve()
    results = {
        "clips": len([*videos.rglob("*.avi"), *videos.rglob("*.mp4")]),
        "minutes": a.minutes,
        "page": a.page.stem,
        "waits": waits.rows,
    }
    write_results(a.out, stamp.head() | results)


if __name__ == "__main__":
    main()
