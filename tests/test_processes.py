"What only whole processes can show: kills, signals, the command line, and what importing costs."

import contextlib
import io
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import warm
from vssl_nb.app import cli
from vssl_nb import distributed
from vssl_nb.data import manifest
from vssl_nb.data.video import encode
from vssl_nb.nets import batchnorm
from vssl_nb.training.checkpoints import load

SMALL = [
    "infonce-toy-residual",
    "--epochs",
    "4",
    "--batch",
    "8",
    "--queue",
    "24",
    "--warmup",
    "0.5",
    "--workers",
    "0",
    "--device",
    "cpu",
    "--quiet",
    "--cache",
    "64",
    "--length",
    "4",
]


def call(*args, cwd):
    return warm.run(args, cwd)


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    "A folder with toy videos and one finished run."
    there = tmp_path_factory.mktemp("place")
    assert call("toy", "videos", "--size", "tiny", cwd=there).returncode == 0
    done = call("pretrain", *SMALL, "--data", "videos", "--out", "whole", cwd=there)
    assert done.returncode == 0, done.stderr
    return there


def lines(run):
    return (run / "steps.csv").read_text() if (run / "steps.csv").exists() else ""


def test_simclr_with_lars_is_killed_and_goes_on(place):
    "The recipe of the toy by its name, with the optimizer of MoQuad."
    small = [
        "pretrain",
        "simclr-toy-rgb",
        "--optimizer",
        "lars",
        "--lr",
        "1",
        "--epochs",
        "2",
        "--batch",
        "8",
        "--warmup",
        "0.5",
        "--length",
        "4",
        "--workers",
        "0",
        "--device",
        "cpu",
        "--quiet",
        "--data",
        "videos",
        "--save-minutes",
        "0",
    ]
    done = call(*small, "--out", "simclr", cwd=place)
    assert done.returncode == 0, done.stderr
    kept = json.loads((place / "simclr" / "recipe.json").read_text())
    assert (kept["method"]["name"], kept["learning"]["optimizer"]) == ("simclr", "lars")
    out = place / "simclr-killed"
    process = warm.Command([*small, "--out", out.name], place)
    until = time.monotonic() + 300
    while lines(out).count("\n") <= 3 and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    process.kill()
    process.wait()
    assert 3 < lines(out).count("\n") < lines(place / "simclr").count("\n")
    resumed = call(*small, "--out", out.name, "--resume", cwd=place)
    assert resumed.returncode == 0, resumed.stderr
    assert same(load(out / "last.pt"), load(place / "simclr" / "last.pt"))
    assert load(out / "last.pt")["opt"]["state"][0].keys() == {"momentum_buffer"}


@pytest.mark.parametrize("after", [2, 9, 17])
def test_sigkill_then_resume_ends_where_the_unbroken_run_ends(place, after):
    "Killed without warning after so many logged steps, with a checkpoint at every step."
    out = place / f"killed{after}"
    command = ["pretrain", *SMALL, "--data", "videos", "--out", out.name, "--save-minutes", "0"]
    process = warm.Command(command, place)
    until = time.monotonic() + 300
    while lines(out).count("\n") <= after and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    process.kill()
    process.wait()
    assert lines(out).count("\n") < lines(place / "whole").count("\n"), (
        "the run was over before it could be killed"
    )
    resumed = call(*command, "--resume", cwd=place)
    assert resumed.returncode == 0, resumed.stderr
    assert same(load(out / "last.pt"), load(place / "whole" / "last.pt"))
    assert lines(out) == lines(place / "whole")
    assert not list(out.glob(".*")), "a half-written file was left behind"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_polite_signal_saves_and_says_how_to_go_on(place, number):
    out = place / f"asked{number}"
    command = ["pretrain", *SMALL, "--data", "videos", "--out", out.name, "--workers", "1"]
    process = warm.Command(command, place)
    until = time.monotonic() + 300
    while lines(out).count("\n") < 3 and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    os.killpg(process.pid, number)  # as a terminal does: the workers hear it too
    _, said = process.communicate(timeout=300)
    # as shells have it: what follows with && does not run
    assert process.returncode == 128 + number, said
    assert "go on with --resume" in said and "Traceback" not in said
    assert 0 < load(out / "last.pt")["step"] < load(place / "whole" / "last.pt")["step"]
    assert call(*command, "--resume", cwd=place).returncode == 0
    assert same(load(out / "last.pt"), load(place / "whole" / "last.pt"))


def test_the_global_random_state_changes_nothing(place):
    program = place / "seeded.py"
    program.write_text(
        "import random, sys, numpy, torch; torch.manual_seed(99); numpy.random.seed(99); "
        "random.seed(99); from vssl_nb import main; sys.exit(main())"
    )
    done = warm.run(
        ["pretrain", *SMALL, "--data", "videos", "--out", "seeded", "--workers", "2"],
        place,
        script=program,
    )
    assert done.returncode == 0, done.stderr
    assert same(load(place / "seeded" / "last.pt"), load(place / "whole" / "last.pt"))


def test_retrieve_and_report(place):
    done = call("retrieve", "whole", "--workers", "0", cwd=place)
    assert done.returncode == 0, done.stderr
    assert all(
        word in done.stdout
        for word in ("chance", "colour histogram", "random tiny", "infonce-toy-residual", "R@1")
    )
    *beside, row = json.loads((place / "whole" / "results.json").read_text())
    assert {r["name"] for r in beside} >= {"chance", "colour histogram"}
    assert {"name", "method", "view", "r1", "r5", "r10", "seconds", "run"} <= row.keys()
    assert f"{100 * row['r1']:.1f}" in done.stdout
    assert list((place / "whole" / "figures").glob("neighbours-*.png"))
    assert call("report", "whole", cwd=place).returncode == 0
    assert 'src="http' not in (place / "whole" / "report.html").read_text()


class Bomb:
    "Unpickling this makes a file."

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def folder_without_videos(place):
    (place / "novideos").mkdir(exist_ok=True)
    (place / "novideos" / "notes.txt").write_text("hello")


def manifest_of(place, name, change):
    "A copy of the toy videos whose manifest was changed by hand."
    there = place / name
    if not there.exists():
        shutil.copytree(place / "videos", there)
    text = (there / "manifest.csv").read_text().splitlines()
    (there / "manifest.csv").write_text("\n".join(change(text)) + "\n")


def without_column(rows, name):
    at = rows[0].split(",").index(name)
    return [",".join(c for i, c in enumerate(r.split(",")) if i != at) for r in rows]


def without_labels(rows):
    at = rows[0].split(",").index("label")
    return [
        rows[0],
        *[",".join("" if i == at else c for i, c in enumerate(r.split(","))) for r in rows[1:]],
    ]


MINED = ["pretrain", "coclr-toy-rgb-cycle1", *SMALL[1:], "--data", "videos"]
MISTAKES = {
    # what the user did: (prepare, arguments, words of the sentence)
    "folder that is not there": (
        None,
        ["pretrain", *SMALL, "--data", "nowhere", "--out", "bad"],
        ["nowhere"],
    ),
    "folder without videos": (
        folder_without_videos,
        ["manifest", "novideos"],
        ["novideos", "video"],
    ),
    "folder without a manifest": (
        folder_without_videos,
        ["pretrain", *SMALL, "--data", "novideos", "--out", "bad"],
        ["novideos", "has no video"],
    ),
    "empty manifest": (
        lambda p: manifest_of(p, "m0", lambda rows: [""]),
        ["pretrain", *SMALL, "--data", "m0", "--out", "bad"],
        ["m0", "manifest.csv"],
    ),
    "missing column": (
        lambda p: manifest_of(p, "m1", lambda rows: without_column(rows, "source")),
        ["pretrain", *SMALL, "--data", "m1", "--out", "bad"],
        ["m1", "source"],
    ),
    "path outside the folder": (
        lambda p: manifest_of(
            p,
            "m2",
            lambda rows: [rows[0], "../../etc/passwd" + rows[1][rows[1].index(",") :], *rows[2:]],
        ),
        ["pretrain", *SMALL, "--data", "m2", "--out", "bad"],
        ["../../etc/passwd", "line 2"],
    ),
    "unknown split word": (
        lambda p: manifest_of(
            p, "m3", lambda rows: [rows[0], *[r.replace("train", "trian") for r in rows[1:]]]
        ),
        ["pretrain", *SMALL, "--data", "m3", "--out", "bad"],
        ["trian"],
    ),
    "no video in the split": (
        lambda p: manifest_of(
            p, "m4", lambda rows: [rows[0], *[r.replace("train", "test") for r in rows[1:]]]
        ),
        ["pretrain", *SMALL, "--data", "m4", "--out", "bad"],
        ["train", "split1"],
    ),
    "unknown recipe": (
        None,
        ["pretrain", "infonce-toy-rbg", "--data", "videos", "--out", "bad"],
        ["did you mean 'infonce-toy-rgb'"],
    ),
    "unknown field": (
        None,
        ["pretrain", *SMALL, "--data", "videos", "--out", "bad", "--temprature", "1"],
        ["did you mean 'temperature'"],
    ),
    "wrong type": (
        None,
        ["pretrain", *SMALL, "--data", "videos", "--out", "bad", "--lr", "fast"],
        ["--lr fast", "not a number"],
    ),
    "batch larger than the data": (
        None,
        ["pretrain", *SMALL, "--data", "videos", "--out", "bad", "--batch", "5000", "--queue", "0"],
        ["5000", "larger"],
    ),
    "batch larger than the queue": (
        None,
        ["pretrain", *SMALL, "--data", "videos", "--out", "bad", "--queue", "4"],
        ["queue"],
    ),
    "zero epochs": (
        None,
        ["pretrain", *SMALL, "--data", "videos", "--out", "bad", "--epochs", "0", "--warmup", "0"],
        ["epochs"],
    ),
    "a GPU that is not there": (
        None,
        ["pretrain", *SMALL, "--data", "videos", "--out", "bad", "--device", "cuda:7"],
        ["cuda:7", "--device cpu"],
    ),
    "a device that does not exist": (
        None,
        ["pretrain", *SMALL, "--data", "videos", "--out", "bad", "--device", "gpu"],
        ["gpu"],
    ),
    "a clip of no frames": (
        None,
        ["pretrain", *SMALL, "--data", "videos", "--out", "bad", "--length", "0"],
        ["length"],
    ),
    "a run that is there": (
        None,
        ["pretrain", *SMALL, "--data", "videos", "--out", "whole"],
        ["whole", "--resume"],
    ),
    "a file where the run should go": (
        lambda p: (p / "file").write_text(""),
        ["pretrain", *SMALL, "--data", "videos", "--out", "file"],
        ["file"],
    ),
    "resume of nothing": (
        None,
        ["pretrain", *SMALL, "--data", "videos", "--out", "bad", "--resume"],
        ["bad"],
    ),
    "resume with another recipe": (
        None,
        ["pretrain", *SMALL, "--data", "videos", "--out", "whole", "--resume", "--lr", "0.5"],
        ["lr=0.002", "0.5"],
    ),
    "labels for UberNCE": (
        lambda p: manifest_of(p, "m5", lambda rows: without_labels(rows)),
        ["pretrain", "ubernce-toy-rgb", *SMALL[1:], "--data", "m5", "--out", "bad"],
        ["m5", "ubernce", "label"],
    ),
    "UberNCE without a queue": (
        None,
        [
            "pretrain",
            "ubernce-toy-rgb",
            *SMALL[1:],
            "--queue",
            "0",
            "--data",
            "videos",
            "--out",
            "bad",
        ],
        ["memory of 0 keys"],
    ),
    "mining without a miner": (
        None,
        [*MINED, "--out", "bad"],
        ["--sampler", "residual", "vssl-nb cotrain"],
    ),
    "a miner that is not there": (
        None,
        [*MINED, "--out", "bad", "--sampler", "nowhere"],
        ["nowhere", "name a run folder"],
    ),
    "a miner of the same view": (
        None,
        [
            "pretrain",
            "coclr-toy-residual-cycle1",
            *SMALL[1:],
            "--data",
            "videos",
            "--out",
            "bad",
            "--sampler",
            "whole",
        ],
        ["--sampler whole", "view='residual'", "needs 'rgb'"],
    ),
    "a miner of another backbone": (
        None,
        [*MINED, "--out", "bad", "--sampler", "whole", "--backbone", "small", "--length", "8"],
        ["--sampler whole", "backbone='tiny'"],
    ),
    "a miner of another size": (
        None,
        [*MINED, "--out", "bad", "--sampler", "whole", "--size", "48"],
        ["--sampler whole", "size=32"],
    ),
    "a miner of other features": (
        None,
        [*MINED, "--out", "bad", "--sampler", "whole", "--dim", "64"],
        ["--sampler whole", "dim=128"],
    ),
    "a start of another view": (
        None,
        [*MINED, "--out", "bad", "--sampler", "whole", "--init-from", "whole"],
        ["--init-from whole", "view='residual'"],
    ),
    "more positives than the queue": (
        None,
        [*MINED, "--out", "bad", "--sampler", "whole", "--topk", "24"],
        ["topk=24", "queue"],
    ),
    "mining in a batch larger than the queue": (
        None,
        [*MINED, "--out", "bad", "--sampler", "whole", "--batch", "32"],
        ["queue=24", "batch=32", "enlarge the queue"],
    ),
    "flow that is not there": (
        None,
        [
            "pretrain",
            "coclr-ucf101-rgb-cycle1",
            "--data",
            "videos",
            "--out",
            "bad",
            "--sampler",
            "whole",
            "--device",
            "cpu",
        ],
        ["no stored flow", "vssl-nb flow"],
    ),
    "co-training without flow": (
        None,
        ["cotrain", "coclr-ucf101", "--data", "videos", "--out", "bad"],
        ["no stored flow", "vssl-nb flow"],
    ),
    "unknown co-training": (
        None,
        ["cotrain", "coclr-toi", "--data", "videos", "--out", "bad"],
        ["did you mean 'coclr-toy'"],
    ),
    "co-training with a queue too small": (
        None,
        [
            "cotrain",
            "coclr-toy",
            "--data",
            "videos",
            "--out",
            "bad",
            "--set",
            "queue=12",
            "batch=8",
        ],
        ["topk=20", "queue"],
    ),
    "measure a folder that is no run": (
        folder_without_videos,
        ["retrieve", "novideos"],
        ["novideos"],
    ),
    "measure on no data": (None, ["retrieve", "whole", "--data", "nowhere"], ["nowhere"]),
    "report of nothing": (folder_without_videos, ["report", "novideos"], ["novideos"]),
    "unknown command": (None, ["retrieval"], ["did you mean 'retrieve'"]),
    "toy over other files": (
        folder_without_videos,
        ["toy", "novideos", "--size", "tiny"],
        ["novideos"],
    ),
    "a split of nonsense": (
        None,
        ["manifest", "videos", "--split", "20"],
        ["not a share between 0 and 1"],
    ),
}


@pytest.fixture(scope="module")
def told(place):
    "All mistakes, one after another: name -> (code, stderr)."
    for prepare, *_ in MISTAKES.values():
        if prepare:
            prepare(place)
    before = snapshot(place)
    answers = {}
    with contextlib.chdir(place):
        for name, (_, args, _) in MISTAKES.items():
            with contextlib.redirect_stderr(io.StringIO()) as said:
                code = cli.main(args)
            answers[name] = code, said.getvalue()
    assert snapshot(place) == before, "a mistake left something behind or changed something"
    return answers


def snapshot(place):
    return {
        str(p.relative_to(place)): p.stat().st_mtime_ns
        for p in sorted(place.rglob("*"))
        if p.is_file()
    }


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_gets_one_sentence(told, name):
    code, said = told[name]
    said = [
        line for line in said.splitlines() if line and not line.startswith(("videos:", "features"))
    ]
    assert code == 2, said
    # one sentence; bad rows of a manifest are listed below it
    assert said[0].startswith("vssl-nb: ") and all(line.startswith("  ") for line in said[1:]), said
    for word in MISTAKES[name][2]:
        assert word in "\n".join(said), said


@pytest.mark.parametrize(
    "damage, word",
    [
        ("flip", "damaged"),
        ("cut", "not a checkpoint"),
        ("bomb", "could run code"),
        ("pickle", "not a checkpoint"),
        ("foreign", "another method"),
    ],
)
def test_a_bad_checkpoint_is_refused_and_runs_nothing(place, damage, word):
    out = Path(shutil.copytree(place / "whole", place / f"bad-{damage}"))
    raw = bytearray((out / "last.pt").read_bytes())
    if damage == "flip":
        raw[len(raw) // 2] ^= 4
    if damage == "cut":
        raw = raw[:-2000]
    if damage == "pickle":
        raw = bytearray(pickle.dumps(Bomb(place / "exploded")))
    (out / "last.pt").write_bytes(raw)
    if damage == "bomb":
        torch.save({"method": Bomb(place / "exploded")}, out / "last.pt")
    if damage == "foreign":
        torch.save({"method": {"w": torch.ones(2)}, "opt": {}, "step": 3}, out / "last.pt")
    before = snapshot(out)
    done = call("pretrain", *SMALL, "--data", "videos", "--out", out.name, "--resume", cwd=place)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and word in done.stderr, (
        done.stderr
    )
    assert not (place / "exploded").exists()
    assert snapshot(out) == before


def test_videos_shorter_than_a_clip_are_padded(place):
    "All but one, without which nothing but filling would be trained on."
    there = Path(shutil.copytree(place / "videos", place / "one long"))
    m = manifest.read(there)
    long = m.select("train", 1)[0]
    encode(m.file(long), np.zeros((100, 32, 32, 3), np.uint8))
    frames = {i: 100 if i == long else row.frames for i, row in enumerate(m.rows)}
    manifest.write(there, [replace(row, frames=frames[i]) for i, row in enumerate(m.rows)])
    done = call(
        "pretrain",
        *SMALL,
        "--data",
        "one long",
        "--out",
        "short",
        "--length",
        "100",
        "--epochs",
        "1",
        cwd=place,
    )
    assert done.returncode == 0, done.stderr


def test_a_video_that_breaks_is_replaced_and_many_stop_the_run(place):
    there = Path(shutil.copytree(place / "videos", place / "breaking"))
    files = sorted(there.rglob("*.mp4"))
    m = manifest.read(there)
    m.file(m.select("train", 1)[0]).write_bytes(b"")
    few = call("pretrain", *SMALL, "--data", "breaking", "--out", "few", cwd=place)
    # said once, in the first of four epochs
    assert few.returncode == 0 and few.stderr.count("unreadable") == 1, few.stderr
    assert len(json.loads((place / "few" / "card.json").read_text())["unreadable"]) == 1
    for f in files:
        f.write_bytes(b"not a video")
    many = call("pretrain", *SMALL, "--data", "breaking", "--out", "many", cwd=place)
    assert many.returncode == 2 and "Traceback" not in many.stderr, many.stderr
    again = call("manifest", "breaking", cwd=place)
    assert again.returncode == 2 and "none of the" in again.stderr, again.stderr


def test_importing_the_library_needs_no_notebook_tools():
    names = [
        str(p.relative_to(Path(__file__).parent.parent).with_suffix("")).replace(os.sep, ".")
        for p in Path(__file__).parent.parent.glob("vssl_nb/**/*.py")
        if p.name != "__init__.py"
    ]
    program = f"""
import importlib, sys
for name in {names}: importlib.import_module(name)
tools = {{'nbdev', 'fastcore', 'execnb', 'IPython', 'ipywidgets', 'jupyterlab', 'pytest'}}
print(sorted({{m.split('.')[0] for m in sys.modules}} & (tools | {{'lightly'}})))
"""
    # tqdm.auto asks for ipywidgets and takes the plain bar where there is none
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.modules.update(IPython=None, ipywidgets=None)\n" + program,
        ],
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("[]", "['IPython', 'ipywidgets']"), done.stdout


def talk(hide):
    """What the compiler takes of a network whose BatchNorm talks to another process; is the result
    the same?
    """
    from torch import nn

    if not hide:
        batchnorm.hide_from_compiler = lambda: None
    graphs = []

    def look(graph, inputs):
        graphs.append(graph)
        return graph.forward

    layer = batchnorm.group_batchnorm(nn.BatchNorm1d(2), "sync")
    x = torch.arange(8.0).view(4, 2).chunk(2)[distributed.rank()].clone().requires_grad_()
    net, weight = nn.Sequential(nn.ReLU(), layer, nn.Tanh()), torch.arange(4.0).view(2, 2)

    def both(f):
        return (y := f(x)).detach(), torch.autograd.grad((y * weight).sum(), x)[0]

    want, got = both(net), both(torch.compile(net, backend=look))
    taken = [str(n.target) for g in graphs for n in g.graph.nodes if n.op.startswith("call")]
    return {"taken": taken, "same": all(map(torch.allclose, want, got))}


def test_the_compiler_stays_out_of_the_conversation_of_processes(monkeypatch):
    "`hide_from_compiler` is called in time; without it the exchange ends up in the graph."
    # an earlier test of this process may have called it
    exchange = batchnorm._synchronised
    monkeypatch.setattr(batchnorm, "_synchronised", getattr(exchange, "__wrapped__", exchange))
    for hide in True, False:
        for found in distributed.run_distributed(talk, 2, hide):
            assert found["same"] or not hide
            talks = any(
                "autograd_function_apply" in name or "gather" in name for name in found["taken"]
            )
            assert talks != hide


def test_beside_a_gpu_processes_start_fresh(monkeypatch):
    """There a forked process cannot go backward; a function of a test, which nobody can import, is
    sent.
    """

    def child(height):
        x = torch.full((2, 3), distributed.rank() + 1.0, requires_grad=True)
        distributed.gather(x).backward(torch.full((4, 3), 10.0 ** distributed.rank()))
        return x.grad * height, hasattr(distributed, "of_the_parent")

    # which a fork inherits
    monkeypatch.setattr(distributed, "of_the_parent", True, raising=False)
    for gpu in (False, True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda gpu=gpu: gpu)
        (here, forked), (there, _) = distributed.run_distributed(child, 2, 2)
        assert (
            torch.equal(here, there)
            and torch.equal(here, torch.full((2, 3), 22.0))
            and forked is not gpu
        )
