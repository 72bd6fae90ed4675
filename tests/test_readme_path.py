"""The README's section "For your own videos": its blocks, command by command, one after the other.

The commands are read from README.md, so that what is tested is what is promised. What is changed is
what they cost: `QUICK` and `SMALL`. The first block trains nothing. For the other two the videos
lie in one folder, and somebody fills in the labels between the blocks, or in a folder for each
class; of 17 videos the first training is interrupted once. The clips are tiny; of 17 videos in
folders of classes they are real ones, where there are some.
"""

import contextlib
import io
import json
import re
import shlex
import shutil
import signal
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from vssl_nb.app import cli, launch
from vssl_nb.data import manifest, video
from vssl_nb.training import run_folder

ROOT = Path(__file__).parent.parent
VIDEOS = manifest.test_videos()
REAL = VIDEOS is not None and (VIDEOS / "ucf101").is_dir()
CLASSES = ("Archery", "BabyCrawling", "Basketball")
# command, pattern, replacement: how long something takes
QUICK = (("pretrain", r"--minutes \S+", "--minutes 0.1"), ("finetune", r"epochs=\d+", "epochs=2"))
SMALL = {
    "pretrain": " --epochs 3 --backbone tiny --size 16 --workers 0 --quiet --device cpu",
    "finetune": " --workers 0 --quiet --device cpu",
}


def blocks() -> list[list[str]]:
    "The commands of the section, block by block."
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    part = re.search(r"^## For your own videos\n(.*?)^#{2,3} ", text, re.M | re.S)
    assert part, 'README.md has no section "For your own videos"'
    listed = [
        [re.sub(r"\s+#.*", "", line) for line in block.splitlines() if re.match(r"[^#\s]", line)]
        for block in re.findall(r"^```sh\n(.*?)^```", part[1], re.M | re.S)
    ]
    assert len(listed) == 3
    environment, install = (listed[0].pop(0) for _ in range(2))
    assert environment.endswith("activate") and install.startswith("pip install '.[published")
    assert all(line.startswith("vssl-nb ") for block in listed for line in block), listed
    return listed


def quick(line: str) -> list[str]:
    "The arguments behind `vssl-nb`, with less to do."
    name = line.split()[1]
    for command, pattern, new in QUICK:
        if name == command:
            line = re.sub(pattern, new, line)
    return shlex.split(line + SMALL.get(name, ""))[1:]


@pytest.fixture(scope="module")
def tiny_clips(tmp_path_factory) -> list[tuple[str, Path]]:
    "80 clips of 6 frames, a class and a file each: squares of three colours that move."
    folder, rng, made = tmp_path_factory.mktemp("clips"), np.random.default_rng(0), []
    for i in range(80):
        frames = np.full((6, 32, 32, 3), rng.integers(0, 90, 3), np.uint8)
        for t in range(6):
            frames[t, i // 3 % 20 : i // 3 % 20 + 9, 2 * t : 2 * t + 9, i % 3] = 250
        made.append((CLASSES[i % 3], video.encode(folder / f"{CLASSES[i % 3]}_{i:02}.mp4", frames)))
    return made


def real_clips(number: int) -> list[tuple[str, Path]]:
    "So many clips, each of another recording of its class: the smallest files."
    found = []
    for name in CLASSES:
        by_source: dict[str, Path] = {}
        for p in sorted(
            (VIDEOS / "ucf101").rglob(f"v_{name}_*.avi"), key=lambda p: p.stat().st_size
        ):
            by_source.setdefault(re.search(r"_(g\d+)_", p.name)[1], p)
        found += [(name, p) for p in list(by_source.values())[: -(-number // 3)]]
    assert len(found) >= number, "too few clips of these classes"
    return found[:number]


def holiday(path: Path, clips: list[Path], seconds: float) -> None:
    "A longer video of one's own: clips one after another, again and again."
    frames = (
        torch.from_numpy(f)[None] for _ in range(99) for p in clips for f in video.iter_frames(p)
    )
    video.encode(path, torch.cat(list(islice(frames, int(25 * seconds)))), fps=25.0)


def run(args: list[str], code=0) -> tuple[str, str]:
    "A command in this process; what it printed, and its errors."
    launch.BEGAN = time.monotonic()  # of the process, which began long ago
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        got = cli.main(args)
    assert got == code, (args, got, out.getvalue(), err.getvalue())
    return out.getvalue(), err.getvalue()


def interrupted(args: list[str], monkeypatch) -> None:
    "Ctrl-C in the first step: what is there is saved, and the run is not finished."
    write = run_folder.StepLog.write

    def press(self, row):
        write(self, row)
        if self.path.name == "steps.csv":
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as m:
        m.setattr(run_folder.StepLog, "write", press)
        _, errors = run(args, 128 + signal.SIGINT)
    out = Path(args[args.index("--out") + 1])
    assert (out / "last.pt").exists() and "go on with --resume" in errors, errors
    assert not json.loads((out / "card.json").read_text())["finished"]


def made_by(args: list[str]) -> list[Path]:
    "What a command has to leave behind."
    inside = {
        "manifest": "manifest.csv",
        "report": "report.html",
        "retrieve": "results.json",
        "probe": "classifier.safetensors",
    }
    if args[0] in inside:
        return [Path(args[1]) / inside[args[0]]]
    out = Path(args[args.index("--out") + 1]) if "--out" in args else None
    if args[0] == "pretrain":
        return [out / "encoder.safetensors", out / "card.json", out / "verdict.txt"]
    if args[0] == "finetune":
        return [out / "classifier.safetensors"]
    return [out] if out else []


def test_without_training(tiny_clips, tmp_path, monkeypatch):
    "Map, wall and spans of a folder as it is, by the encoder that others trained."
    monkeypatch.chdir(tmp_path)
    for _, p in tiny_clips[:6]:
        Path("my_videos").mkdir(exist_ok=True)
        shutil.copy(p, "my_videos")
    holiday(Path("holiday.mp4"), [p for _, p in tiny_clips[:3]], 4.5)
    explore, *searches, extract = blocks()[0]
    run(quick(explore))
    printed = [run(quick(line))[0] for line in searches]
    run(quick(extract))
    for page in ("explore.html", "wall.html", "spans.html"):
        assert Path(page).stat().st_size > 10_000, page
    assert len(re.findall(r"\.mp4@[\d.]+-[\d.]+", printed[-1])) >= 6, printed
    assert len(Path("features.csv").read_text().splitlines()) in (6, 7)  # a head or none


@pytest.mark.parametrize("number", [17, 65, 80])
@pytest.mark.parametrize("labelled", [False, True], ids=["flat", "labelled"])
def test_both_blocks_one_after_the_other(labelled, number, tiny_clips, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    clips = real_clips(17) if labelled and number == 17 and REAL else tiny_clips[:number]
    for label, p in clips:
        to = Path("my_videos", label if labelled else "", p.name)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(p, to)
    holiday(Path("holiday.mp4"), [p for _, p in clips[:3]], 4.5)
    _, first, second = blocks()
    for line in [*first, *second]:
        if line == second[0] and not labelled:  # somebody fills the column by hand
            rows, label = manifest.read("my_videos").rows, {p.name: label for label, p in clips}
            manifest.write("my_videos", [replace(r, label=label[r.video]) for r in rows])
        args = quick(line)
        if args[0] == "pretrain" and line in first and number == 17:
            interrupted(args, monkeypatch)
            args = [*args, "--resume"]
        said, _ = run(args)
        assert said.strip() or args[0] == "pretrain", f"{line}: prints nothing"
        if args[0] == "predict":
            assert said.count("%") == len(CLASSES), said
        if args[0] == "finetune":
            assert all(f"clean_{n}, split 1" in said for n in ("probe", "finetune"))
        for path in made_by(args):
            assert path.exists() and path.stat().st_size, f"{line}: {path}"
    for name in ("mine", "labelled"):
        assert "not measured" not in Path(f"runs/{name}/verdict.txt").read_text()
    rows = json.loads(Path("runs/labelled/results.json").read_text())
    assert {r["method"] for r in rows if r["task"] == "retrieval"} >= {
        "chance",
        "histogram",
        "motion",
        "histogram+motion",
        "random",
    }
    page = Path("runs/report.html").read_text()
    assert page.count("colour histogram") == 1 and "test videos are few" in page
    assert not list(Path().rglob(".*.tmp*")), "half-written files were left behind"


def test_what_is_read_from_the_readme():
    "The commands that this section is about are there, and only what they cost is changed in them."
    lines = [line for block in blocks() for line in block]
    names = {line.split()[1] for line in lines}
    assert {
        *"explore manifest pretrain search report retrieve probe finetune predict".split()
    } <= names
    for line in lines:
        if line.split()[1] not in SMALL:
            assert quick(line) == shlex.split(line)[1:]
    assert quick("vssl-nb pretrain x --minutes 20")[:4] == "pretrain x --minutes 0.1".split()
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## For your own videos")[1]
    assert "twenty minutes" in section and {*re.findall(r"--minutes (\S+)", section)} == {"20"}
