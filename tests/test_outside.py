"""Somebody else's package, `outside/lab`: their own method, miner, view, backbone and recipe.

None of our files changes.
"""

import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import warm
from vssl_nb.data import toy
from vssl_nb.data.manifest import Row, write
from vssl_nb.runs.evaluation import measure_encoder
from vssl_nb.training.checkpoints import load
from vssl_nb.runs.pretraining import read_json

PACKAGE = Path(__file__).parent / "outside" / "lab"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A folder with their package and toy videos; commands start here, and nothing else says where
    it is.
    """
    there = tmp_path_factory.mktemp("outside")
    shutil.copytree(PACKAGE, there / "lab")
    toy.make(there / "videos", size="tiny", progress=False)
    return there


def vssl(lab, *args, code=0):
    "A command that starts in their folder, which is nowhere else on Python's path."
    done = warm.run(args, lab, {k: v for k, v in os.environ.items() if k != "IN_TEST"})
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


def steps(out):
    return (
        max(0, (out / "steps.csv").read_text().count("\n") - 1)
        if (out / "steps.csv").exists()
        else 0
    )


def equal(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def test_their_method_is_killed_resumed_measured_and_reported(lab):
    """Mirror on edges with torchvision's mc3_18: run folder, card, resume, retrieval and report
    like ours.
    """
    train = [
        "pretrain",
        "lab.recipes:mirror",
        "--data",
        "videos",
        "--device",
        "cpu",
        "--workers",
        "0",
        "--quiet",
        "--cache",
        "64",
    ]
    vssl(lab, *train, "--out", "runs/whole")
    out = lab / "runs" / "killed"
    life = warm.Command([*train, "--out", "runs/killed", "--save-minutes", "0"], lab)
    until = time.monotonic() + 300

    def begun():
        return (out / "last.pt").exists() and steps(out) >= 2

    while not begun() and life.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    life.send_signal(signal.SIGKILL)
    life.wait()
    whole = load(lab / "runs" / "whole" / "last.pt")
    assert 0 < load(out / "last.pt")["step"] < whole["step"], "killed too late to show anything"
    vssl(lab, *train, "--out", "runs/killed", "--resume")
    assert equal(load(out / "last.pt"), whole)
    settings = read_json(out / "recipe.json", "a run")["method"]
    assert settings == {"name": "lab.settings:MirrorSettings", "dim": 32, "momentum": 0.9}
    assert read_json(out / "card.json", "a run")["finished"]

    vssl(lab, "retrieve", "runs/killed", "--device", "cpu", "--workers", "0")
    row = [r for r in read_json(out / "results.json", "a run") if r["name"] == "mirror-lab"][0]
    assert (row["method"], row["view"], row["finished"]) == ("mirror", "lab.parts:gradient", True)
    assert 0 <= row["r1"] <= 1
    assert "mirror-lab" in vssl(lab, "report", "runs/killed")


def test_files_on_both_sides_of_a_split_are_named(tmp_path, caplog):
    """Features of somebody's own; no split is named, and one test video is a copy of a training
    video.
    """
    rows = [
        Row(
            f"{i}.mp4",
            label="ab"[i % 2],
            source=str(i),
            split1="train" if i < 4 else "test",
            frames=9,
            width=9,
            height=9,
        )
        for i in range(6)
    ]
    for i in range(6):
        (tmp_path / f"{i}.mp4").write_bytes(bytes([i % 4] * (20 if i < 5 else 10)))
    write(tmp_path, rows)
    x = np.random.default_rng(0).standard_normal((6, 3))
    np.savez(tmp_path / "f.npz", video=[r.video for r in rows], x=x)
    (result,) = measure_encoder(tmp_path / "f.npz", tmp_path, splits=(), with_baselines=False)
    assert (result["split"], result["queries"], result["gallery"]) == (1, 2, 4)
    assert "copies of training videos, byte by byte: 4.mp4 = 0.mp4; their answers" in caplog.text
    (tmp_path / "4.mp4").write_bytes(b"another one")
    caplog.clear()
    measure_encoder(tmp_path / "f.npz", tmp_path, splits=(), with_baselines=False)
    assert not caplog.text


def test_their_miner_and_view_in_our_method(lab):
    "CoCLR mines with a miner of theirs, which sees the similarities of every view."
    short = [
        "--epochs",
        "1",
        "--batch",
        "8",
        "--queue",
        "16",
        "--warmup",
        "0.5",
        "--length",
        "4",
        "--size",
        "16",
        "--data",
        "videos",
        "--device",
        "cpu",
        "--workers",
        "0",
        "--quiet",
    ]
    for view in ("rgb", "lab.parts:gradient"):
        vssl(
            lab, "pretrain", "infonce-toy-rgb", "--view", view, *short, "--out", f"runs/{view[-3:]}"
        )
    mine = [
        "pretrain",
        "coclr-toy-rgb-cycle1",
        "--mining-view",
        "lab.parts:gradient",
        "--miner",
        "lab.parts:MutualNearest",
        "--topk",
        "3",
        *short,
        "--init-from",
        "runs/rgb",
        "--sampler",
        "runs/ent",
    ]
    vssl(lab, *mine, "--miner-options", "view=lab.parts:gradient", "--out", "runs/mutual")
    vssl(lab, *mine[:4], *mine[6:], "--out", "runs/nearest")
    a, b = (load(lab / "runs" / n / "last.pt")["method"] for n in ("mutual", "nearest"))
    weights = (state["pair.projection.layers.0.weight"] for state in (a, b))
    assert not torch.equal(*weights), "the miner makes no difference"


@pytest.mark.parametrize(
    "args, words",
    [
        (
            ["--method", "lab.settings:Mirror"],
            [
                "'lab.settings:Mirror': lab.settings",
                "has no 'Mirror'",
                "did you mean 'MirrorSettings'?",
            ],
        ),
        (["--method", "nowhere:Settings"], ["there is no module 'nowhere'"]),
        (["--view", "lab.parts:gradiant"], ["did you mean 'gradient'?"]),
        (["--view", "residul"], ["did you mean 'residual'?"]),
        (["--backbone", "lab.parts:gradient"], ["seed"]),
        (
            ["--method", "lab.settings:ClashSettings"],
            ["a field 'cache', which is an option of pretrain"],
        ),
        (
            ["--method", "lab.settings:MirrorSettings", "--temperature", "3"],
            ["--temperature is a setting of another"],
        ),
        (["--head", "lab.parts:Head"], ["'lab.parts:Head': lab.parts", "has no 'Head'"]),
        (
            ["--method", "lab.settings:MirrorSettings", "--clips", "3"],
            ["mirror takes 2 clips of each video (one, two)"],
        ),
    ],
)
def test_what_is_wrong_with_their_parts_is_one_sentence(lab, args, words):
    said = vssl(
        lab,
        "pretrain",
        "infonce-toy-rgb",
        *args,
        "--data",
        "videos",
        "--device",
        "cpu",
        "--out",
        "runs/wrong",
        code=2,
    )
    assert all(w in said for w in words) and len(said.strip().splitlines()) == 1, said
    assert not (lab / "runs" / "wrong").exists()
