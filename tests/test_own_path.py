"""The way of somebody with a folder of videos: a manifest that keeps up with it, a recipe that fits
it, a verdict that is right, and the commands of the README one after the other.
"""

import contextlib
import io
import json
import shlex
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import warm
from vssl_nb.app import cli, launch
from vssl_nb.data import manifest, toy
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.training.machine import Machine
from vssl_nb.data.manifest import read, write
from vssl_nb.methods.recipes import find, from_dict, override
from vssl_nb.app.verdict import give_verdict
from vssl_nb.data.video import encode, probe

QUIET = Machine(device="cpu", progress=False)


def call(*args) -> tuple[int, str, str]:
    "A command in this process: exit code, what it printed, what it said on stderr."
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        code = cli.main([str(a) for a in args])
    return code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def videos(tmp_path_factory) -> Path:
    "64 toy videos in folders of classes, without a manifest."
    place = tmp_path_factory.mktemp("own")
    made = read(toy.make(place / "toy", size="tiny", workers=1, progress=False))
    for i, row in enumerate(made.rows):
        there = place / "videos" / row.label / f"{i}.mp4"
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(made.file(i), there)
    return place / "videos"


@pytest.fixture
def folder(videos, tmp_path) -> Path:
    return Path(shutil.copytree(videos, tmp_path / "videos"))


# the manifest


def test_a_killed_scan_goes_on_where_it_was(folder, tmp_path, monkeypatch):
    log = folder / manifest.SCAN_LOG
    slow = (
        "import time\nfrom vssl_nb.data import manifest, video as o\nreal = o.probe\n"
        "o.probe = lambda file: (time.sleep(.05), real(file))[1]\n"
        f"manifest.update_manifest({str(folder)!r}, workers=1, progress=False)"
    )
    (tmp_path / "slow.py").write_text(slow)
    run = warm.Command([], script=tmp_path / "slow.py")
    while run.poll() is None and not (log.exists() and log.read_bytes().count(b"\n") > 9):
        time.sleep(0.02)
    run.kill()
    assert run.wait() == -signal.SIGKILL and not (folder / "manifest.csv").exists()
    looked = []
    monkeypatch.setattr("vssl_nb.data.video.probe", lambda file: looked.append(file) or probe(file))
    code, out, _ = call("manifest", folder)
    assert code == 0 and "64 videos, 8 classes" in out, out
    assert 0 < len(looked) <= 64 - 10 and not log.exists()


def test_what_a_person_typed_survives_every_update(folder):
    assert call("manifest", folder, "--split", ".25")[0] == 0
    rows = list(read(folder).rows)
    typed = [
        r.__class__(
            **vars(r) | {"label": f"typed {i % 2}", "source": f"film {i // 2}", "split1": ""}
        )
        for i, r in enumerate(rows)
    ]
    write(folder, typed, {"remark": [f"remark {i}" for i in range(len(rows))]})
    (folder / rows[0].video).unlink()
    shutil.copy(folder / rows[1].video, folder / "new.mp4")
    code, out, _ = call("manifest", folder)
    assert code == 0 and "1 added: new.mp4" in out
    assert f"1 are gone, 1 since last time: {rows[0].video}" in out
    now = {r.video: r for r in read(folder).rows}
    for was in typed[1:]:
        assert now[was.video] == was
    assert (now[rows[0].video].status, now[rows[0].video].label) == ("is gone", "typed 0")
    lines = (folder / "manifest.csv").read_text().splitlines()
    assert (
        lines[0].endswith(",remark") and lines[5].endswith(",remark 4") and lines[-1].endswith(",")
    )
    code, out, _ = call("manifest", folder, "--split", ".25")
    parts = {}
    for r in read(folder).rows:
        parts.setdefault(r.source, set()).add(r.split1)
    assert code == 0 and all(len(p) == 1 for p in parts.values())
    assert set().union(*parts.values()) == {"train", "test"}
    before = (folder / "manifest.csv").read_bytes()
    assert "nothing has changed" in call("manifest", folder)[1]
    assert (folder / "manifest.csv").read_bytes() == before


def test_copies_are_on_one_side_of_a_split(folder):
    "Files with the same bytes, under other names and in other classes."
    first = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*.mp4"))[:9]
    for i, name in enumerate(first):
        shutil.copy(folder / name, folder / f"copy {i}.mp4")
    code, out, _ = call("manifest", folder, "--split", ".25")
    assert code == 0 and "copies, byte by byte: " in out, out
    assert (
        "and 6 more; new ones count as one recording" in out and "test videos are copies" not in out
    )
    rows = {r.video: r for r in read(folder).rows}
    for i, name in enumerate(first):
        a, b = rows[name], rows[f"copy {i}.mp4"]
        assert (a.source, a.split1) == (b.source, b.split1)
    before = (folder / "manifest.csv").read_bytes()
    assert call("manifest", folder)[0] == 0 and (folder / "manifest.csv").read_bytes() == before
    # by hand: two pairs are torn apart, and the recordings that somebody named stay as they are
    other = {"train": "test", "test": "train"}
    torn = [
        replace(r, source=f"film {r.video}", split1=other[r.split1])
        if r.video[5:6] in "01" and r.video.startswith("copy")
        else r
        for r in rows.values()
    ]
    write(folder, torn)
    code, out, _ = call("manifest", folder)
    names = out.split("split 1: test videos are copies of training videos, byte by byte: ")[
        1
    ].splitlines()[0]
    assert (
        code == 0 and names.count(" = ") == 2 and "copy 0.mp4" in names and "copy 1.mp4" in names
    ), out
    assert names.endswith("; their answers are known, so empty split1 on one side")
    assert [*read(folder).rows] == torn


@pytest.mark.parametrize("share", ["0", "1", "-0.1", "20", "nan"])
def test_a_split_of_nonsense_is_refused(folder, share):
    code, out, err = call("manifest", folder, "--split", share)
    assert (code, out) == (2, "") and "is not a share between 0 and 1" in err
    assert not [p for p in folder.iterdir() if p.is_file()]


# training


def test_a_folder_without_manifest_or_split_is_trained_on_and_says_so(folder, tmp_path):
    small = [
        "--epochs",
        "1",
        "--batch",
        "8",
        "--workers",
        "0",
        "--device",
        "cpu",
        "--quiet",
        "--length",
        "99",
    ]
    long = next(folder.rglob("*.mp4"))
    encode(long, np.zeros((99, 32, 32, 3), np.uint8))
    code, out, err = call(
        "pretrain", "infonce-toy-residual", "--data", folder, "--out", tmp_path / "run", *small
    )
    assert code == 0, err
    assert "manifest.csv" in err
    assert "no split is filled" in err and "all 64 readable videos" in err
    assert "63 of 64 videos are shorter" in err and "99 frames" in err
    told = json.loads((tmp_path / "run" / "card.json").read_text())["manifest"]
    assert (told["train"], told["split_filled"], told["shorter_than_a_clip"]) == (64, False, 63)
    again = call("retrieve", tmp_path / "run", "--device", "cpu")
    assert again[0] == 2 and "--split 0.2" in again[2]
    # too late for this run: it has seen all of them
    assert call("manifest", folder, "--split", ".25")[0] == 0
    leaks = call("retrieve", tmp_path / "run", "--data", folder, "--device", "cpu")
    assert leaks[0] == 2 and "was trained on all videos, before a split was cut" in leaks[2], leaks


def test_a_finished_run_takes_more_epochs_and_says_what_that_means(folder, tmp_path):
    run = [
        "pretrain",
        "infonce-toy-residual",
        "--data",
        folder,
        "--out",
        tmp_path / "run",
        "--batch",
        "8",
        "--workers",
        "0",
        "--device",
        "cpu",
        "--quiet",
    ]
    assert call(*run, "--epochs", "1")[0] == 0
    code, _, err = call(*run, "--epochs", "2", "--resume")
    assert code == 0, err
    assert "is finished after 1 epochs and goes on to 2" in err, err
    card = json.loads((tmp_path / "run" / "card.json").read_text())
    assert (card["finished"], card["step"], card["extended"]) == (
        True,
        16,
        [{"epochs": 1, "step": 8}],
    )
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["learning"]["epochs"] == 2
    assert "was started with epochs=2, not 1" in call(*run, "--epochs", "1", "--resume")[2]
    assert "was started with lr" in call(*run, "--epochs", "3", "--lr", ".1", "--resume")[2]


def test_own_videos_keeps_what_was_given_resumes_and_stays_in_its_time(folder, tmp_path):
    run = [
        "pretrain",
        "own-videos",
        "--data",
        folder,
        "--out",
        tmp_path / "run",
        "--workers",
        "0",
        "--device",
        "cpu",
        "--quiet",
        "--backbone",
        "tiny",
        "--size",
        "32",
    ]
    launch.BEGAN = time.monotonic()  # of the process, which began long ago
    code, out, err = call(*run, "--minutes", ".08")
    assert code == 0 and "Verdict" in out, err
    kept = from_dict(json.loads((tmp_path / "run" / "recipe.json").read_text()))
    assert (kept.backbone, kept.size, kept.method.queue) == ("tiny", 32, 0) and len(
        kept.reasons
    ) >= 5
    assert all(line in err for line in kept.reasons) and (tmp_path / "run" / "health.csv").exists()
    assert not any(line.startswith(("size", "backbone")) for line in kept.reasons)
    held = call(*run, "--minutes", ".08")
    assert held[0] == 2 and "holds a run already" in held[2] and len(held[2].splitlines()) == 1
    assert call(*run, "--minutes", ".08", "--resume")[0] == 0
    assert from_dict(json.loads((tmp_path / "run" / "recipe.json").read_text())) == kept
    assert "was started with size=32, not 48" in call(*run[:-1], "48", "--resume")[2]
    refused = call("pretrain", "infonce-toy-rgb", "--data", folder, "--minutes", "3")
    assert refused[0] == 2 and "only own-videos" in refused[2]
    assert "must be above 0" in call(*run[:5], tmp_path / "other", "--minutes", "0")[2]
    assert not (tmp_path / "other").exists()


# the verdict

PULL = """
from dataclasses import dataclass
from typing import ClassVar
from torch import nn
import torch.nn.functional as F

@dataclass(frozen=True)
class Pull:
    name:ClassVar[str] = 'pull'
    method:ClassVar[str] = 'pull_all:PullAll'

class PullAll(nn.Module):
    "All clips shall be alike."
    def __init__(self, encoder, view, seed):
        super().__init__()
        self.encoder, self.view = encoder, view
    def forward(self, batch):
        z = F.normalize(self.encoder(batch[self.view].flatten(0, 1)), dim=1)
        return (1 - z @ z.T).mean(), {}
    def after_step(self, batch): pass
"""


def test_the_verdict_of_a_run_that_learned_and_of_one_that_collapsed(videos, tmp_path, monkeypatch):
    (tmp_path / "pull_all.py").write_text(PULL)
    monkeypatch.syspath_prepend(str(tmp_path))
    recipe = override(find("infonce-toy-residual"), batch=16, epochs=16)
    runs = {
        "learned": recipe,
        "collapsed": override(recipe, method="pull_all:Pull", lr=0.006, epochs=10, length=4),
        "untrained": override(recipe, epochs=1, lr=0.0, length=4),
    }
    said = {}
    for name, r in runs.items():
        pretrain(r, videos, tmp_path / name, machine=QUIET)
        said[name] = give_verdict(tmp_path / name, machine=QUIET)
    assert [v.learned for v in said.values()] == ["yes", "no", "no"], said
    assert [v.collapsed for v in said.values()] == [False, True, False], said
    assert str(said["learned"]).split("\n")[1].startswith("  It learned.")
    assert "Do not use this encoder" in str(said["collapsed"])
    # motion alone tells the toy's videos apart
    assert said["learned"].numbers["by_colours"] < 0.3
    assert said["learned"].numbers["one_frame"] == 0 and "frozen frame has none" in str(
        said["learned"]
    )
    look = next(s for s in said["learned"].advice if s.startswith("Look at it: vssl-nb "))
    monkeypatch.chdir(tmp_path)
    code, out, err = call(
        *shlex.split(look)[4:], "--clips", "1", "--device", "cpu", "--workers", "0"
    )
    assert code == 0 and (tmp_path / "wall.html").exists() and out.count(".mp4") > 10, (look, err)
    page = tmp_path / "collapsed" / "report.html"
    assert call("report", tmp_path / "collapsed")[0] == 0 and "IT HAS COLLAPSED" in page.read_text()


def test_the_verdict_of_videos_that_do_not_move(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "stills").mkdir()
    for i in range(24):
        coarse = rng.integers(30, 220, (6, 6, 3)).repeat(8, 0).repeat(8, 1).astype(np.uint8)
        encode(tmp_path / "stills" / f"{i}.mp4", np.stack([coarse] * 24))
    launch.BEGAN = time.monotonic()
    code, out, err = call(
        "pretrain",
        "own-videos",
        "--data",
        tmp_path / "stills",
        "--out",
        tmp_path / "run",
        "--minutes",
        ".1",
        "--backbone",
        "tiny",
        "--size",
        "32",
        "--workers",
        "0",
        "--device",
        "cpu",
        "--quiet",
    )
    assert code == 0, err
    assert "nothing moves, so frame differences would be empty" in err
    found = json.loads((tmp_path / "run" / "verdict.json").read_text())
    assert (
        found["still"] and found["numbers"]["still_videos"] == 1 and "nothing about motion" in out
    )
    assert found["numbers"]["one_frame"] > 0.9
    assert "an encoder of images" in out


def test_processes_of_torchrun_do_not_fit_one_by_one(tmp_path, capsys, monkeypatch):
    told = dict(RANK=0, LOCAL_RANK=0, WORLD_SIZE=2, MASTER_ADDR="localhost", MASTER_PORT=1)
    for name, value in told.items():
        monkeypatch.setenv(name, str(value))
    (tmp_path / "videos").mkdir()
    where = ["--data", str(tmp_path / "videos"), "--out", str(tmp_path / "r")]
    assert cli.main(["pretrain", "own-videos", *where]) == 2
    assert "own-videos: start it without torchrun" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()
