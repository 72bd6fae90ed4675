"""A run with a Gaussian head from the command line: match probability beside cosine, and doubtful
videos.
"""

import csv
import json
import os
import re
import shutil

import numpy as np
import pytest
import torch
from scipy.stats import gmean

from vssl_nb.app import cli
from vssl_nb.measure.gaussian import corrupted_uncertainty
from vssl_nb.nets.heads import make_head
from vssl_nb.training.checkpoints import export_encoder, read_encoder, read_heads
from vssl_nb.runs.evaluation import BASELINES, baselines, measure_encoder, open_trained, retrieve
from vssl_nb.runs.evaluation import retrieve_two_streams
from vssl_nb.training.machine import Machine
from vssl_nb.data.manifest import read
from vssl_nb.measure.gaussian import draw_videos, gaussian_pairs
from vssl_nb.measure.features import open_encoder
from vssl_nb.measure.retrieval import centre_and_normalise
from vssl_nb.data.video import decode

QUIET = Machine("cpu", progress=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    "Toy videos and two runs: `plain`, and `run` with a Gaussian head."
    there = tmp_path_factory.mktemp("uncertainty")
    before = os.getcwd()
    os.chdir(there)
    try:
        assert cli.main(["toy", "videos", "--size", "tiny"]) == 0
        assert (
            cli.main(
                [
                    "pretrain",
                    "infonce-toy-residual",
                    "--data",
                    "videos",
                    "--epochs",
                    "1",
                    "--batch",
                    "8",
                    "--queue",
                    "32",
                    "--warmup",
                    "0",
                    "--length",
                    "4",
                    "--workers",
                    "0",
                    "--quiet",
                    "--out",
                    "plain",
                ]
            )
            == 0
        )
    finally:
        os.chdir(before)
    shutil.copytree(there / "plain", there / "run")
    encoder, about = read_encoder(there / "run" / "encoder.safetensors")
    about = {k: v for k, v in about.items() if k not in ("heads", "sha256")}
    head = make_head("gaussian", encoder.dim, None, 16, 3)
    with torch.no_grad():  # weights of an untrained g_sigma may be zero
        for p in head.parameters():
            if p.ndim == 2:
                p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(1)) / 10)
    export_encoder(there / "run" / "encoder.safetensors", encoder, about, heads={"gaussian": head})
    return there


@pytest.fixture
def here(place, monkeypatch):
    monkeypatch.chdir(place)
    return place


def call(capsys, *args, code=0):
    found = cli.main([str(a) for a in args])
    said = capsys.readouterr()
    assert found == code, said.err
    return said


def wrong(capsys, *args):
    "The one sentence of a refusal."
    said = call(capsys, *args, code=2)
    assert not said.out and re.fullmatch(r"vssl-nb: [^\n]+\n", said.err), said
    return said.err


def clip_gaussians(place, video, clips=10):
    "Means and variances of the clips of a video, in double precision, one clip at a time."
    encoder, prepare = open_encoder(place / "run", clips=clips)
    head = read_heads(place / "run" / "encoder.safetensors")["gaussian"]
    with torch.no_grad():
        g = [head(encoder(x[None]))[0] for x in prepare(video)]
    return np.array([x[0].double().numpy() for x in g]), np.exp(
        np.array([x[1].double().numpy() for x in g])
    )


def two_by_two(mu, var):
    "Moments of the mixtures of two consecutive clips."
    m = np.array([(mu[i] + mu[i + 1]) / 2 for i in range(0, len(mu), 2)])
    v = np.array(
        [(var[i] + var[i + 1]) / 2 + ((mu[i] - mu[i + 1]) / 2) ** 2 for i in range(0, len(mu), 2)]
    )
    return m, v


def test_retrieve_prints_match_probability_beside_cosine(here, capsys):
    said = call(capsys, "retrieve", "run", "--workers", "0", "--device", "cpu").out
    assert "clean, cosine of means" in said and "clean, match probability" in said

    def kept():  # but for what every run is measured beside
        rows = json.loads((here / "run" / "results.json").read_text())
        return [r for r in rows if r["method"] not in BASELINES]

    rows = {r["protocol"]["name"]: r for r in kept()}
    assert [*rows] == ["clean", "clean, cosine of means", "clean, match probability"]
    assert [r["protocol"]["metric"] for r in rows.values()] == ["cosine", "cosine", "match"]
    assert all(r["queries"] == 16 and r["gallery"] == 48 and "r5" in r for r in rows.values())
    assert len(list((here / "run" / "figures").glob("neighbours-*.png"))) == 2
    again = retrieve("run", machine=QUIET)
    assert again == kept()  # nothing twice, nothing else


def test_recall_is_that_of_loops(here):
    "Eq. 9 by numpy, from the same points; R@k by sorting."
    t = open_trained("run")
    head = read_heads(here / "run" / "encoder.safetensors")["gaussian"]
    from vssl_nb.runs.experiment import resolve

    q, g = gaussian_pairs(
        t.encoder,
        head,
        t.manifest,
        view=t.view,
        protocol=t.protocol(clips=4),
        machine=QUIET,
        **resolve(t.recipe).view_options,
    )[1]
    for i in (0, 7):  # and the Gaussians are those of the clips
        m, v = two_by_two(*clip_gaussians(here, t.manifest.file(q.row[i].item()), 4))
        assert np.allclose(q.mu[i], m, atol=1e-4) and np.allclose(q.s[i].exp(), v, rtol=1e-3)
    z, y = (draw_videos(x).double().numpy() for x in (q, g))
    a, b = head.a.item(), head.b.item()
    p = np.array(
        [
            [
                (1 / (1 + np.exp(a * np.linalg.norm(x[:, None] - w[None], axis=2) - b))).mean()
                for w in y
            ]
            for x in z
        ]
    )
    order = np.argsort(-p, axis=1, kind="stable")
    row = retrieve(t, fields=dict(clips=4), machine=QUIET)[2]
    for k in (1, 5, 10):
        right = [any(g.label[j] == q.label[i] for j in order[i, :k]) for i in range(len(q))]
        assert row[f"r{k}"] == pytest.approx(np.mean(right), abs=1e-6)


def test_the_protocol_of_the_paper(here, capsys):
    said = call(
        capsys, "retrieve", "run", "--protocol", "provico", "--workers", "0", "--device", "cpu"
    ).out
    assert "match probability of distributions" in said
    rows = [r["protocol"] for r in json.loads((here / "run" / "results.json").read_text())][-2:]
    assert [(r["name"], r["metric"]) for r in rows] == [
        ("provico, cosine of means", "cosine"),
        ("provico", "match"),
    ]
    assert "has no Gaussian head" in wrong(capsys, "retrieve", "plain", "--protocol", "provico")
    assert not (here / "plain" / "results.json").exists()
    maps = retrieve("run", fields=dict(feature="maps"), machine=QUIET)
    assert len(maps) == 1  # the head does not act on maps
    assert len(retrieve("run", fields=dict(windows="sliding", clips=1), machine=QUIET)) == 3


def test_what_has_no_distributions(here):
    t, encoder = open_trained("plain"), torch.nn.AdaptiveAvgPool3d(1)
    assert [r["protocol"]["name"] for r in retrieve(t, machine=QUIET)] == ["clean"]
    for ask in (
        lambda: measure_encoder(
            torch.nn.Sequential(encoder, torch.nn.Flatten()),
            "videos",
            "mean",
            "provico",
            fields=dict(size=32),
            machine=QUIET,
        ),
        lambda: retrieve_two_streams("plain", open_trained("run"), "provico", machine=QUIET),
    ):
        with pytest.raises(ValueError, match="distributions|Gaussian head") as e:
            ask()
        assert "\n" not in str(e.value)
    pair = t.pairs(t.protocol("provico"), (1,), machine=QUIET)[1]
    with pytest.raises(ValueError, match="these are features"):
        centre_and_normalise(*pair)
    assert len(baselines(t.recipe, "videos", which=("chance",))) == 1


def test_ranks_any_folder(here, capsys):
    """A folder without a manifest, with a file that is no video; the variance of each by loops over
    clips.
    """
    own = here / "my own vidéos"
    own.mkdir()
    m = read(here / "videos")
    for i in (0, 9, 30, 50):
        shutil.copy(m.file(i), own / f"№ {i}.mp4")
    (own / "broken.mp4").write_bytes(b"no video")
    said = call(
        capsys, "uncertainty", "run", "--data", own, "--out", "doubt.csv", "--device", "cpu"
    )
    with open("doubt.csv", newline="", encoding="utf-8") as f:
        rows = list(csv.DictReader(f))
    assert [r["rank"] for r in rows] == ["1", "2", "3", "4", ""]
    assert rows[-1]["video"].endswith("broken.mp4") and rows[-1]["status"] != "ok"
    assert "unreadable: " in said.err and "broken.mp4" in said.err
    expected = {}
    for path in own.glob("№*"):
        mu, var = clip_gaussians(here, path)
        m2, v2 = two_by_two(mu, var)
        expected[path.name] = (
            gmean(v2.ravel()),
            m2.var(0).sum() / (m2.var(0).sum() + v2.mean(0).sum()),
        )
    found = {
        os.path.basename(r["video"]): (float(r["uncertainty"]), float(r["between"]))
        for r in rows[:-1]
    }
    assert [*found] == sorted(expected, key=lambda n: -expected[n][0])
    for name, pair in found.items():
        assert pair == pytest.approx(expected[name], rel=2e-3)
    lines = said.out.splitlines()
    assert len(lines) == 6 and lines[-1] == "doubt.csv" and [*found][0] in lines[1]


def test_ranks_what_the_run_was_trained_on(here, capsys):
    lines = call(capsys, "uncertainty", "run", "--clips", "2", "--show", "6", "--device", "cpu").out
    assert len(lines.splitlines()) == 1 + 6 + 1 and "58 more" in lines
    every = call(capsys, "uncertainty", "run", "--clips", "2", "--show", "0", "--device", "cpu").out
    values = [float(line.split()[1]) for line in every.splitlines()[1:]]
    assert len(values) == 64 and values == sorted(values, reverse=True)


def test_refusals(here, capsys, monkeypatch):
    one = here / "one"
    one.mkdir(exist_ok=True)
    shutil.copy(read(here / "videos").file(0), one / "a.mp4")
    gone = here / "gone"
    gone.mkdir(exist_ok=True)
    for name in "ab":
        (gone / f"{name}.mp4").write_bytes(b"no video")
    before = sorted(here.rglob("*"))
    out = ["--out", "new.csv", "--device", "cpu"]
    for says, args in (
        ("has no Gaussian head", ["plain", *out]),
        ("nowhere", ["nowhere", *out]),
        ("elsewhere", ["run", "--data", "elsewhere", *out]),
        ("one video cannot be", ["run", "--data", one, *out]),
        ("not one of 2 videos can be read", ["run", "--data", gone, *out]),
        ("must end in .csv", ["run", "--out", "new.txt"]),
        ("--show -1", ["run", "--show", "-1"]),
        ("groups of 2", ["run", "--data", "videos", "--clips", "3", *out]),
        ("is a video", ["run", "--data", one / "a.mp4", *out]),
    ):
        assert says in wrong(capsys, "uncertainty", *args), args
    assert sorted(here.rglob("*")) == before  # nothing was written, not even a part
    (here / "kept.csv").write_text("as it was")

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("vssl_nb.files.os.fsync", full)
    said = call(
        capsys,
        "uncertainty",
        "run",
        "--clips",
        "2",
        "--out",
        "kept.csv",
        "--force",
        "--device",
        "cpu",
        code=2,
    )
    assert "No space left" in said.err and (here / "kept.csv").read_text() == "as it was"
    assert not list(here.glob(".kept*"))


def test_spoiled_videos_of_a_run(here):
    """Mixing at level 2 is, pixel by pixel, half of each of two videos; by one clip through the
    network.
    """
    t = open_trained("run")
    head = read_heads(here / "run" / "encoder.safetensors")["gaussian"]
    m, rows = t.manifest, t.manifest.select("test")[:6]
    p = t.protocol(clips=2)
    from vssl_nb.runs.experiment import resolve

    seen, found = corrupted_uncertainty(
        t.encoder,
        head,
        m,
        rows,
        t.view,
        p,
        (1, 2),
        (0.5,),
        machine=QUIET,
        **resolve(t.recipe).view_options,
    )
    assert sorted(seen) == sorted(rows)
    other = seen[1]
    encoder, prepare = open_encoder(here / "run", clips=2)
    a, b = (decode(m.file(r)) for r in (seen[0], other))

    def doubt(frames):
        with torch.no_grad():
            mu, s = head(encoder(prepare(frames))).unbind(1)
        return gmean(two_by_two(mu.double().numpy(), s.exp().double().numpy())[1].ravel())

    assert found["mixed"][1][0].item() == pytest.approx(doubt(a), rel=1e-3)
    if len(a) == len(b) == p.length:  # then both clips are the whole video
        assert found["mixed"][2][0].item() == pytest.approx(
            doubt(torch.cat([a[:8], b[8:]])), rel=1e-3
        )
    else:
        assert found["mixed"][2][0] != found["mixed"][1][0]
