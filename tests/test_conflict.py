"""Queries with the scene of a training video and the motion of another class, and what is counted
of them.
"""

import contextlib
import io
import json
import math
from collections import Counter
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from vssl_nb.app import cli
from vssl_nb.data import toy
from vssl_nb.data.manifest import find_videos, read, write
from vssl_nb.measure.features import Features
from vssl_nb.measure.health import conflict_shares, wilson
from vssl_nb.measure.protocols import Protocol
from vssl_nb.methods.recipes import find, override
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.training.machine import Machine


def settings(size="demo", **more):
    return dict(size=size, shape=asdict(toy.SIZES[size]), seed=5) | toy.DEFAULTS | more


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    "A tiny toy, its conflicts, and a run on it."
    root = tmp_path_factory.mktemp("conflict")
    toy.make(root / "toy", "tiny", 5, workers=1, progress=False)
    toy.make_conflict(root / "toy", 1, progress=False)
    recipe = override(
        find("infonce-toy-residual"), epochs=1, batch=16, length=4, warmup=0.0, test_clips=1
    )
    pretrain(recipe, root / "toy", root / "run", machine=Machine("cpu", progress=False))
    return root


def drawn(jobs):
    return [toy.video(**(arguments | dict(frames=40))).astype(float) for _, arguments in jobs]


def motion_of(
    video,  # (T, S, S, 3)
):  # (6,)
    "What turns within ten frames, from pixels: where the sprite's middle is, and how large it is."
    cover = np.abs(video - np.median(video, 0)).max(-1) > 25  # (T, S, S)
    size = cover.sum((1, 2)).clip(1)
    grid = np.arange(cover.shape[1])
    series = [
        (cover.sum(1) * grid).sum(1) / size,
        (cover.sum(2) * grid).sum(1) / size,
        np.sqrt(size),
    ]
    t = np.arange(len(video))

    def at(period):
        "Complex amplitudes of x, y and size."
        wave = np.exp(2j * np.pi * t / period) * np.hanning(len(t))
        return np.array([(s - s.mean()) @ wave for s in series]) / len(t)

    x, y, _ = max((at(p) for p in (9, 9.5, 10, 10.5, 11)), key=lambda z: np.abs(z[:2]).sum())
    a = max((at(p)[2] for p in (9, 10, 11)), key=abs)
    return np.array([abs(x), abs(y), (x * y.conj()).real, (x * y.conj()).imag, 4 * abs(a)])


def test_a_conflict_has_the_scene_of_one_video_and_the_motion_of_another_class():
    """By pixels: the middle of all frames is that of its scene, what turns is what turns in its
    other class.
    """
    plan = [
        (row, arguments) for row, arguments in toy.plan_toy(settings()) if row.split1 == "train"
    ]
    known = [job for job in plan if job[1]["seed"][2] < 12 and job[1]["take"] == 0]
    queries = [
        job for job in toy.plan_conflict(settings()) if job[1]["seed"][2] < 4 and job[0].split1
    ]
    assert len(queries) == 8 * 3
    videos, asked = drawn(known), drawn(queries)
    still = [np.median(v, 0) for v in videos]
    moves = np.array([motion_of(v) for v in videos])
    scale = moves.std(0)
    scene = motion = old = 0
    for (row, _), video in zip(queries, asked):
        looks = np.median(video, 0)
        near = min(range(len(known)), key=lambda i: np.abs(still[i] - looks).mean())
        scene += known[near][0].source == row.source
        d = np.abs((moves - motion_of(video)) / scale).sum(1)
        d[[r.source == row.source for r, _ in known]] = np.inf
        like = known[int(d.argmin())][0].label
        motion += like == row.label
        old += like == row.source.split("/")[0]
    assert scene == len(queries), scene
    assert motion >= 0.8 * len(queries) and old <= 0.1 * len(queries), (motion, old)


def test_conflicts_are_planned_evenly():
    plan = toy.plan_conflict(settings())
    for split in ("split1", "split2", "split3"):
        rows = [row for row, _ in plan if getattr(row, split)]
        assert len(rows) == 360 and {getattr(r, split) for r in rows} == {"test"}
        trained = {
            row.source for row, _ in toy.plan_toy(settings()) if getattr(row, split) == "train"
        }
        assert {r.source for r in rows} == trained
        pairs = Counter((r.source.split("/")[0], r.label) for r in rows)
        assert len(pairs) == 56 and max(pairs.values()) - min(pairs.values()) <= 1
    assert all(row.source.split("/")[0] != row.label for row, _ in plan)
    takes = {arguments["take"] for _, arguments in plan}
    assert takes == {toy.SIZES["demo"].takes}  # no video of the dataset has it
    tied = {row.source: a["background"] for row, a in toy.plan_toy(settings(bias=1.0))}
    assert all(
        a["background"] == tied[row.source] for row, a in toy.plan_conflict(settings(bias=1.0))
    )


def test_conflicts_lie_beside_the_dataset(place):
    """Which stays as it is; written once, completed after a kill, and hidden from whoever lists its
    videos.
    """
    whole = read(place / "toy" / "conflict.csv")
    assert len(whole.select("train")) == 48 and len(whole.select("test")) == 24

    def bare(r):
        return replace(r, split2="", split3="")

    assert [bare(whole.rows[r]) for r in whole.select("train")] == [
        bare(r) for r in read(place / "toy").rows if r.split1 == "train"
    ]
    assert not any(v.startswith(".") for v in find_videos(place / "toy"))
    lost, kept = (place / "toy" / whole.rows[r].video for r in whole.select("test")[:2])
    bytes_, stamp = lost.read_bytes(), kept.stat().st_mtime_ns
    lost.unlink()
    toy.make_conflict(place / "toy", 1, progress=False)
    assert lost.read_bytes() == bytes_ and kept.stat().st_mtime_ns == stamp


def features(x, label, source, first=0):
    x = torch.tensor(x, dtype=torch.float32)
    rows = torch.arange(first, first + len(x))
    return Features(x, torch.tensor(label), rows, torch.tensor(source), Protocol(centre="none"))


def test_shares_are_those_of_a_slow_loop():
    rng = np.random.default_rng(0)
    label, source = rng.integers(0, 4, 30), np.arange(30) // 2
    label[1::2] = label[::2]  # two videos of a source are of one class
    x = rng.normal(size=(30, 3))
    of = rng.choice(30, 20)
    other = (label[of] + rng.integers(1, 4, 20)) % 4
    query = x[of] + rng.normal(size=(20, 3))
    shares = conflict_shares(features(query, other, source[of], 30), features(x, label, source))
    count, chance = Counter(), Counter()
    for q, s, c in zip(query, source[of], other):
        best = max(range(30), key=lambda i: q @ x[i] / np.linalg.norm(x[i]))
        for i in range(30):
            kind = "neither"
            if source[i] == s:
                kind = "scene"
            elif label[i] == c:
                kind = "motion"
            count[kind] += i == best
            chance[kind] += 1
    assert count.total() == 20 and min(count[k] for k in shares) > 0
    for k, (share, low, high, guess) in shares.items():
        assert share == pytest.approx(count[k] / 20) and guess == pytest.approx(chance[k] / 600)
        assert (low, high) == pytest.approx(wilson(share, 20))
    assert sum(v[0] for v in shares.values()) == pytest.approx(1)


def test_intervals_are_wilsons():
    "Its ends are where the observed share is 1.96 standard deviations of the end away."
    for share, n in ((0.5, 10), (0.1, 360), (0.0, 24), (1.0, 24)):
        low, high = wilson(share, n)
        assert 0 <= low <= share <= high <= 1 and high - low > 0
        for end in {low, high} - {0.0, 1.0}:
            assert abs(share - end) == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / n))
    # Newcombe 1998 has this method's rows
    assert wilson(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)


def test_what_is_no_conflict_is_refused():
    gallery = features(np.eye(4), [0, 0, 1, 1], [0, 0, 1, 1])
    assert conflict_shares(features(np.eye(4)[:1], [1], [0], 4), gallery)["scene"][0] == 1
    for label, source in ((0, 0), (2, 0), (1, 7)):  # own class, unknown class, unknown scene
        with pytest.raises(ValueError, match="1 of 1 queries are no conflict"):
            conflict_shares(features(np.eye(4)[:1], [label], [source], 4), gallery)


def run(*args):
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = cli.main([*map(str, args), "--workers", "0", "--device", "cpu"])
    return code, out.getvalue(), errors.getvalue()


def test_a_run_is_measured_from_the_command_line(place):
    code, out, errors = run("retrieve", place / "run", "--conflict")
    assert code == 0, errors
    kept = json.loads((place / "run" / "conflict.json").read_text())
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line}
    for k in ("scene", "motion", "neither"):
        share, low, high, guess = kept[k]
        numbers = [f"{100 * v:.1f}" for v in (share, low, high, guess)]
        assert lines[k][1:] == [*numbers[:2], "to", *numbers[2:]]
    assert kept["scene"][3] == pytest.approx(2 / 48) and kept["motion"][3] == pytest.approx(1 / 8)


def test_other_videos_have_no_conflicts(place, tmp_path):
    "One sentence, exit code 2, and nothing is written."
    (tmp_path / "films").mkdir()
    rows = [replace(r, video=f"{r.label}-{i}.mp4") for i, r in enumerate(read(place / "toy").rows)]
    write(tmp_path / "films", rows)

    def tree():
        return [sorted(p.name for p in root.rglob("*")) for root in (place, tmp_path)]

    before = tree()
    drawing = json.loads((place / "toy" / "toy.json").read_text()) | {"drawing": 0}
    for words, args in (
        ("has no toy.json of toy videos", [place / "run", "--data", tmp_path / "films"]),
        ("leave it out", [place / "run", "--second", place / "run"]),
        ("leave it out", [place / "run", "--splits", "1", "2"]),
        ("measures a run folder", ["infonce-toy-rgb", "--data", place / "toy"]),
    ):
        code, out, errors = run("retrieve", *args, "--conflict")
        assert (code, out, len(errors.splitlines())) == (2, "", 1) and words in errors, errors
    assert tree() == before
    (tmp_path / "films" / "toy.json").write_text(json.dumps(drawing))
    with pytest.raises(toy.ToyError, match="another version"):
        toy.make_conflict(tmp_path / "films")
    for text in ("[]", '{"seed": 1}', "{", "3"):
        (tmp_path / "films" / "toy.json").write_text(text)
        with pytest.raises(toy.ToyError, match="has no toy.json of toy videos"):
            toy.make_conflict(tmp_path / "films")
