"The benchmark scripts run and write what they say; how fast anything is, is not a test."

import argparse
import importlib
import json
import math
import statistics
import sys
import time
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from safetensors import safe_open
from scipy import stats

import warm
from vssl_nb.data import toy
from vssl_nb.runs.cotraining import mining_candidates
from vssl_nb.training.machine import Machine
from vssl_nb.data.manifest import read
from vssl_nb.data.views import flow_to_image
from vssl_nb.methods.recipes import find
from vssl_nb.papers.published import CLAIMS, read_ledger, verdict
from vssl_nb.papers.reproduce import at_once

ROOT = Path(__file__).parent.parent


FEW = toy.Size(4, 1, 20, 32)  # half as many toy videos as tiny, of half as many frames


def script(name, *args, cwd):
    return warm.run(args, cwd, script=ROOT / "benchmarks" / name)


def on_few(name, *args, cwd, more=""):
    """A script that makes its own toy videos, with `FEW` as tiny ones, and with more lines before
    it begins.
    """
    home = str(ROOT / "benchmarks")
    # what it does by itself
    assert (ROOT / "benchmarks" / f"{name}.py").read_text().endswith(": main()\n")
    (cwd / "few.py").write_text(f"""import importlib, sys
sys.path.insert(0, {home!r})
from vssl_nb.data import toy
toy.SIZES['tiny'] = toy.{FEW}
script = importlib.import_module({name!r})
{more}
if __name__ == '__main__': script.main() # and in no process that it starts
""")
    return warm.run(args, cwd, script=cwd / "few.py")


def test_waits(tmp_path):
    "Each process of a command is looked at, and the innermost function that has a stage counts."
    code = (
        "import time, torch\nx, end = torch.rand(9, 9, requires_grad=True), time.monotonic() + 2\n"
        "while time.monotonic() < end: (x @ x).sum().backward()"
    )
    page = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    nbformat.write(page, tmp_path / "page.ipynb")
    done = script(
        "waits.py",
        "--videos",
        tmp_path,
        "--only",
        "page",
        "--page",
        "page.ipynb",
        "--out",
        "out.json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    page = json.loads((tmp_path / "out.json").read_text())["waits"]["page"]
    # and a kernel
    assert page["processes"] == 2 and page["cpu_seconds"] > 2 and page["stages"]["imports"] > 0
    assert (
        page["stages"]["backward"] * page["busy_seconds"] > 0.5
        and 0 < page["to_first"] <= page["seconds"]
    )
    assert sum(page["stages"].values()) == pytest.approx(1, abs=0.02)


def test_step(tmp_path):
    done = script(
        "step.py",
        "--device",
        "cpu",
        "--backbone",
        "tiny",
        "--clip",
        8,
        16,
        16,
        "--batch",
        2,
        "--only",
        "all, float32",
        "--rounds",
        1,
        "--steps",
        1,
        "--sizes",
        1,
        "--out",
        "out.json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    out = json.loads((tmp_path / "out.json").read_text())
    assert [r["variant"] for r in out["switches"]] == ["plain", "all, float32"]
    assert [r["batch"] for r in out["by_batch"]] == [1]
    plain, ours = out["switches"]
    assert plain["ratio"] == 1 and ours["ratio"] == plain["seconds"] / ours["seconds"]
    for r in out["switches"]:
        assert r["of_bound"] == max(r["of_flops"], r["of_bytes"])
        assert r["clips_per_s"] == 2 / r["seconds"]
    assert {"cpu", "cores", "threads", "torch", "python"} <= out["machine"].keys()
    assert f"{1000 * plain['seconds']:.1f}" in done.stdout
    assert [m["queue"] for m in out["coclr"]] == [2048, 16384]
    for m in out["coclr"]:
        assert m["ratio"] == m["coclr"] / m["infonce"]
        assert m["sampler_share"] == m["sampler"] / m["coclr"]
        assert m["mining_share"] == m["mining"] / m["coclr"]


def test_toy_full(tmp_path):
    how = [
        "--size",
        "tiny",
        "--set",
        'backbone="tiny"',
        "size=32",
        "length=8",
        "batch=8",
        "queue=64",
        "epochs=8",
        "test_clips=1",
        "--share",
        1,
        "--device",
        "cpu",
        "--dtype",
        "float32",
        "--workers",
        0,
    ]
    # ends when the run does
    done = on_few(
        "toy_full",
        "--videos",
        "v",
        "--run",
        "r",
        "--minutes",
        60,
        "--every",
        0.01,
        "--out",
        "out.json",
        *how,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    out = json.loads((tmp_path / "out.json").read_text())
    assert out["card"]["finished"]
    assert out["curve"][-1]["step"] == out["card"]["step"] == 24
    assert (tmp_path / "out.png").exists()
    assert all(0 <= c["r1"] <= c["r5"] <= c["r10"] <= 1 for c in out["curve"])
    assert set(out["median_seconds"]) == {"data", "views", "forward", "backward", "update"}


def test_input(tmp_path):
    done = script(
        "input.py",
        "--count",
        4,
        "--rounds",
        1,
        "--samples",
        10,
        "--rows",
        3000,
        "--workers",
        3,
        "--out",
        "out.json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    out = json.loads((tmp_path / "out.json").read_text())
    speed = out["samples_per_s"]
    assert set(speed) == {
        "PIL per frame (baseline)",
        "worker, original",
        "worker, transcoded",
        "end to end, original",
        "end to end, transcoded",
    }
    assert out["videos"] == 4
    assert all(
        out["ratio"][k] == pytest.approx(v / speed["PIL per frame (baseline)"])
        for k, v in speed.items()
    )  # of one round, its median
    assert len(out["memory_MB"]) == 10
    jumps, many, ahead = (out[k] for k in ("keyframes", "rows", "shared"))
    assert 64 <= jumps["frames_decoded"]["with"] + 32 and jumps["frames_decoded"]["without"] > 100
    assert (
        jumps["ratio"]["decode"]
        == jumps["samples_per_s"]["decode"]["with"] / jumps["samples_per_s"]["decode"]["without"]
    )
    assert (
        many["rows"] == 3000
        and many["ratio"] == many["seconds"]["lines"] / many["seconds"]["columns"]
    )
    assert ahead["GB"] < ahead["bound_GB"] < ahead["four_batches_a_worker_GB"]
    if "small" in ahead:
        assert 0 < ahead["small"]["measured_MB"] < 2 * ahead["small"]["bound_MB"]


def test_flow(tmp_path):
    "The step of the solver is compiled; the networks that sort for the median are traced."
    step_alone = """import torch
whole = torch.compile
torch.compile = lambda f, **how: whole(f, **how | ({} if f.__name__ == '_step' else {'backend': 'eager'}))"""
    done = on_few(
        "flow",
        "--few",
        2,
        "--rounds",
        1,
        "--threads",
        1,
        "--short-sides",
        48,
        "--out",
        "out.json",
        cwd=tmp_path,
        more=step_alone,
    )
    assert done.returncode == 0, done.stderr
    out = json.loads((tmp_path / "out.json").read_text())
    ways = {r["way"]: r for r in out["rows"]}
    assert {"OpenCV (baseline)", "ours, CPU", "ours, compiled, CPU"} <= set(ways)
    assert {r["size"] for r in out["rows"]} == {"64 x 48"}
    assert all(
        r["ratio"] == r["pairs_per_s"] / ways["OpenCV (baseline)"]["pairs_per_s"]
        for r in out["rows"]
    )
    assert ways["ours, CPU"]["apart"] < 0.05  # equal accuracy, or the ratio says nothing
    assert 0 < ways["ours, CPU"]["of_bound"] < 1
    assert (
        abs(out["days"]["Kinetics-400"] / out["days"]["UCF101"] - 25) < 1e-9
        and "not run" in done.stdout
    )
    done = script("flow.py", "--videos", tmp_path, cwd=tmp_path)
    assert done.returncode == 1
    assert (
        done.stderr
        == f"{tmp_path}: has no videos; name a folder with .avi, .mp4, .mkv or .webm files\n"
    )


def test_cotrain_full(tmp_path):
    how = [
        "--size",
        "tiny",
        "--flow",
        "dis",
        "--set",
        'backbone="tiny"',
        "size=32",
        "length=4",
        "batch=8",
        "queue=24",
        "topk=5",
        "groups=1",
        "epochs=1",
        "test_clips=1",
        "--device",
        "cpu",
        "--dtype",
        "float32",
        "--workers",
        0,
    ]
    done = on_few(
        "cotrain_full", "--videos", "v", "--run", "r", "--out", "out.json", *how, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [(r["method"], r["view"]) for r in rows] == [
        ("infonce", "rgb"),
        ("infonce", "flow"),
        ("coclr", "rgb"),
        ("coclr", "flow"),
        ("coclr", "rgb+flow"),
        ("ubernce", "rgb"),
    ]
    assert all(0 <= r["mined"] <= 1 for r in rows if "+" not in r["view"])


def test_story(tmp_path):
    changes = json.dumps(dict(epochs=2, batch=8, length=4, queue=24, test_clips=1, warmup=0.5))
    done = on_few(
        "story",
        "--seeds",
        1,
        "--folder",
        "f",
        "--size",
        "tiny",
        "--changes",
        changes,
        "--out",
        "out.json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    [found] = json.loads((tmp_path / "out.json").read_text())["seeds"]
    r1 = {r["name"]: r["r1"] for r in found["rows"] if "+" not in r["view"]}
    holds, co, longer = found["story"]["CoCLR >= longer InfoNCE + 20 points"]
    assert (co, longer) == (r1["coclr-toy-rgb-cycle1"], r1["infonce-toy-rgb-longer"])
    assert holds == (co >= longer + 0.2)
    assert "cross-entropy" in r1 and f"{r1['ubernce-toy-rgb']:.1%}" in done.stdout
    assert set(found["streams"]) == {"frames", "differences", "both"}
    assert all(0 <= x["whitened"] <= 1 for x in found["streams"].values())
    assert all(
        1 < found["streams"][n]["effective"] < found["streams"][n]["dimensions"]
        for n in ("frames", "differences")
    )
    assert f"{found['streams']['both']['whitened']:.1%}" in done.stdout
    own_key(tmp_path, changes, co)
    features_of_story(tmp_path)


def own_key(folder, changes, trained):
    "Run where the story was: the recipe's share is what the story measured, and trains nothing."
    drop = find("coclr-toy-rgb-cycle1").method.drop_own
    done = on_few(
        "own_key",
        "--story",
        "f",
        "--seeds",
        1,
        "--drop",
        0,
        drop,
        "--changes",
        changes,
        "--out",
        "own.json",
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads((folder / "own.json").read_text())["rows"]
    assert [r["drop_own"] for r in rows] == [0, drop] and rows[1]["r1"] == [trained]
    assert (
        f"R@1 {rows[0]['r1'][0]:.1%}" in done.stdout
        and (folder / "f" / "seed1" / "own-0.0" / "last.pt").exists()
    )
    assert not (folder / "f" / "seed1" / f"own-{drop}").exists()


def features_of_story(folder):
    "What is kept as bytes is what the encoders give."
    done = on_few(
        "story_features",
        "--story",
        "f",
        "--seed",
        1,
        "--videos",
        8,
        "--out",
        "x.safetensors",
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    with safe_open(folder / "x.safetensors", "pt") as f:
        kept, scale = {k: f.get_tensor(k) for k in f.keys()}, json.loads(f.metadata()["scale"])
    x = {k: kept[k].float() * scale[k] / 127 for k in scale}
    for k, v in x.items():
        assert torch.allclose(v.norm(dim=-1), torch.ones(()), atol=0.05), k
    quiet = Machine("cpu", progress=False)
    again = mining_candidates(folder / "f" / "seed1" / "infonce-toy-residual", machine=quiet)
    assert torch.allclose(x["miner.train"], again.x, atol=scale["miner.train"] / 250)
    assert kept["train.row"].tolist() == again.row.tolist() and len(kept["pair.row"]) == 8


def test_positives(tmp_path):
    "All begin alike and differ in who is a positive; what is finished is not trained again."
    how = [
        "--seeds",
        1,
        "--size",
        "tiny",
        "--processes",
        1,
        "--folder",
        "f",
        "--out",
        "out.json",
        "--changes",
        json.dumps(dict(epochs=2, batch=8, length=4, queue=24, test_clips=1, warmup=0.5)),
    ]
    done = on_few("positives", *how, "--choices", "own", "frames", "labels, dropped", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [seed] = json.loads((tmp_path / "out.json").read_text())["seeds"]
    rows = {r["name"]: r for r in seed["rows"]}
    assert list(rows) == [
        "infonce-toy-rgb",
        "infonce-toy-residual",
        "own",
        "frames",
        "labels, dropped",
    ]
    assert len({r["steps"] for r in rows.values()}) == 1 and all(
        0 <= r["r1"] <= 1 for r in rows.values()
    )
    assert [n for n, r in rows.items() if "mined" in r] == ["frames"]
    assert all(0 <= x <= 1 for x in rows["frames"]["mined"])
    before = (tmp_path / "f" / "seed1" / "own" / "last.pt").stat().st_mtime_ns
    again = on_few("positives", *how, "--choices", "own", cwd=tmp_path)
    assert (
        json.loads((tmp_path / "out.json").read_text())["seeds"][0]["rows"][2]["r1"]
        == rows["own"]["r1"]
    ), again.stderr
    assert (tmp_path / "f" / "seed1" / "own" / "last.pt").stat().st_mtime_ns == before


def test_positives_without_the_own_key(monkeypatch):
    "In most steps a row that has others loses its own key, and a row that has none keeps it."
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from vssl_nb.methods import ubernce

    monkeypatch.setattr(ubernce, "with_labels", ubernce.with_labels)  # put back at the end
    importlib.import_module("positives").drop_own_keys(0)
    x, label = torch.eye(2), torch.tensor([0, 1])
    own = torch.stack(
        [ubernce.with_labels(x, x, label, x, torch.tensor([0, 0]))[1][:, 0] for _ in range(40)]
    )
    assert own[:, 1].all() and 0 < own[:, 0].sum() < 15


def test_whitened_features_do_not_depend_on_how_they_were_mixed(monkeypatch):
    "Any invertible mixture of the directions gives the same cosines; the floor keeps noise short."
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    whitened, g = importlib.import_module("story").whitened, torch.Generator().manual_seed(0)
    q, x, mix = (torch.randn(n, 6, generator=g, dtype=torch.float64) for n in (5, 40, 6))
    a, b = (whitened(q @ m, x @ m, floor=0) for m in (torch.eye(6, dtype=torch.float64), mix))
    assert torch.allclose(a[0] @ a[1].T, b[0] @ b[1].T, atol=1e-8)
    flat = x * torch.tensor([1, 1, 1, 1, 1, 1e-6])
    last = [whitened(flat, flat, floor=floor)[0][:, -1].abs().max() for floor in (0.01, 0)]
    assert last[0] < 1e-3 < last[1]


def test_effective_dimensions(monkeypatch):
    "Features along the axes of d dimensions, each as often, fill d; copies of one fill 1."
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    effective = importlib.import_module("story").effective
    for d in (1, 3, 8):
        axes = torch.eye(8)[:d]
        assert abs(effective(5 * torch.cat([axes, -axes]), axes) - d) < 1e-5


def test_infonce(tmp_path):
    how = [
        "--size",
        "tiny",
        "--changes",
        json.dumps(dict(epochs=1, batch=8, length=4, warmup=0.5)),
        "--out",
        "out.json",
    ]
    done = on_few("infonce", "--seeds", 1, *how, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first = (tmp_path / "out.json").read_text()
    out = json.loads(first)
    rows = {(r["name"], r["view"]): r for r in out["seeds"][0]["rows"]}
    assert len(rows) == 12 and all(0 <= r["r1"] <= r["r5"] <= r["r10"] <= 1 for r in rows.values())
    trained = [r for (name, _), r in rows.items() if name not in ("chance", "histogram", "random")]
    # equal budget
    assert len({r["steps"] for r in trained}) == 1 and rows["random", "rgb"]["steps"] == 0
    means = {(r["name"], r["view"]): r["r1"] for r in out["summary"]}
    assert means == {who: r["r1"] for who, r in rows.items()}
    # nothing is left to do
    assert on_few("infonce", "--seeds", 1, *how, cwd=tmp_path).returncode == 0
    again = json.loads((tmp_path / "out.json").read_text())
    assert again["seeds"] == out["seeds"]


def test_simclr(tmp_path):
    how = [
        "--size",
        "tiny",
        "--changes",
        json.dumps(dict(epochs=1, length=4, warmup=0.5)),
        "--batches",
        8,
        4,
        16,
        "--out",
        "out.json",
    ]
    done = on_few("simclr", "--seeds", 1, *how, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    out = json.loads((tmp_path / "out.json").read_text())
    rows = {(r["name"], r["view"], r["batch"]): r for r in out["seeds"][0]["rows"]}
    assert [b for name, view, b in rows if (name, view) == ("simclr", "residual")] == [8, 4, 16]
    steps = {b: r["steps"] for (name, _, b), r in rows.items() if name == "simclr"}
    assert steps[4] >= 2 * steps[8] >= 4 * steps[16] > 0  # as many clips, fewer steps
    rates = {name: r["learning"]["lr"] for name, r in out["recipes"].items()}
    assert rates["simclr residual 16"] == 2 * rates["simclr residual 4"]
    assert out["recipes"]["infonce-one residual 8"]["method"]["momentum"] is None
    # nothing is left to do
    assert on_few("simclr", "--seeds", 1, *how, cwd=tmp_path).returncode == 0
    again = json.loads((tmp_path / "out.json").read_text())
    assert again["seeds"] == out["seeds"] and again["summary"] == out["summary"]


def test_mining(tmp_path):
    done = script(
        "mining.py",
        "--keys",
        256,
        "--batch",
        4,
        "--dim",
        8,
        "--stages",
        4,
        "--rounds",
        1,
        "--device",
        "cpu",
        "--out",
        "out.json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert row["keys"] == 256 and row["agree"] > 0.99
    assert row["ratio"] == row["seconds"]["query by query"] / row["seconds"]["ours"] > 0
    assert set(row["peak_bytes"]) == set(row["seconds"])
    assert f"{row['ratio']:.1f} times as long" in done.stdout


def test_match_probability(tmp_path):
    done = script(
        "match_probability.py",
        "--sizes",
        "3x5",
        "--dim",
        8,
        "--mixtures",
        2,
        "--points",
        3,
        "--rounds",
        1,
        "--device",
        "cpu",
        "--out",
        "out.json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    out = json.loads((tmp_path / "out.json").read_text())
    (row,) = out["rows"]
    assert row["apart"] < 1e-3 and row["pairs_per_second"] == 15 / row["seconds"]["ours"] > 0
    assert set(row["peak_bytes"]) == set(row["seconds"]) == {"ours", "at once", "cosine"}
    assert out["ucf101_computed"]["bytes"] > row["computed_bytes"] > 0 and "UCF101" in done.stdout


def test_cascade(tmp_path):
    "Cascades of one and three stages, each ratio and both cycles."
    less = """script.STAGES = script.STAGES[:3] # as many as 24 videos make
def few(runs): return {name: run for name, run in runs.items() if run[0] < 5}
script.RUNS, script.AGAIN = few(script.RUNS), few(script.AGAIN)"""
    how = [
        "--seeds",
        1,
        "--size",
        "tiny",
        "--runs",
        "r",
        "--set",
        "epochs=2",
        "batch=8",
        "queue=24",
        "topk=2",
        "length=4",
        "test_clips=1",
    ]
    done = on_few("cascade", *how, "--out", "out.json", cwd=tmp_path, more=less)
    assert done.returncode == 0, done.stderr
    (seed,) = json.loads((tmp_path / "out.json").read_text())["seeds"]
    rows = {r["run"]: r for r in seed["rows"]}
    assert [r["stages"] for r in seed["rows"][2:]] == [1, 3, 3, 3, 1, 3]
    assert all(
        len(r["pmr_by_epoch"]) == 2 and r["pmr_by_epoch"][-1] == r["mined"]
        for r in seed["rows"][2:]
    )
    for r in seed["rows"][2:]:  # the median that was logged, from the classes
        a, b = (f(r["class_cmr_source"]) for f in (statistics.median_low, statistics.median_high))
        assert a - 1e-4 <= r["cmr"] <= b + 1e-4 and len(r["class_cmr_video"]) == len(
            r["class_cmr_source"]
        )
    assert all(0 <= r[c] <= 1 for r in seed["rows"][2:] for c in ("r1", "mined", "mined_r1", "cmr"))
    assert len({r["steps"] for r in seed["rows"][2:]}) == 1  # the same budget
    assert [f["stages"] for f in seed["frozen"]] == [1, 3, 5]
    # nothing is trained twice
    again = on_few("cascade", *how, "--out", "again.json", cwd=tmp_path, more=less)
    assert again.returncode == 0, again.stderr
    other = json.loads((tmp_path / "again.json").read_text())["seeds"][0]
    assert {r["run"]: r for r in other["rows"]} == rows


def test_own_videos(tmp_path, monkeypatch):
    monkeypatch.setitem(toy.SIZES, "tiny", FEW)
    toy.make(tmp_path / "videos", size="tiny", workers=1, progress=False)
    done = script(
        "own_videos.py",
        f"{tmp_path / 'videos'}:0.05",
        "--out",
        "out.json",
        "--set",
        "size=32",
        "backbone=tiny",
        "workers=0",
        "device=cpu",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    row = json.loads((tmp_path / "out.json").read_text())["rows"][0]
    assert row["kept"] == (row["seconds"] <= 3) and row["steps"] <= row["of_steps"]
    assert (
        row["chosen"]["size"] == 32
        and row["reasons"]
        and row["verdict"]["sentences"][0] in done.stdout
    )


def test_moquad(tmp_path):
    how = [
        "--seeds",
        1,
        "--size",
        "tiny",
        "--runs",
        "r",
        "--set",
        "epochs=3",
        "batch=8",
        "length=4",
        "test_clips=1",
        "--only",
        "ladder",
        "warm-up",
    ]
    done = on_few("moquad", *how, "--out", "out.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (seed,) = json.loads((tmp_path / "out.json").read_text())["seeds"]
    rows = {r["run"]: r for r in seed["rows"]}
    ladder = ["SimCLR", "+AD-Pos", "+Intra-Neg", "+AD-Intra-Neg"]
    assert list(rows) == [
        *ladder,
        "20 %",
        "40 %",
        "60 %",
        "SimCLR, rate of the others",
        *(f"{n}, equal clips" for n in ladder[:-1]),
    ]
    assert [rows[n]["clips_of_a_video"] for n in ladder] == [2, 2, 3, 4]
    # the same videos, and next the same clips
    assert len({rows[n]["steps"] for n in ladder}) == 1
    whole = rows["+AD-Intra-Neg"]["clips_seen"]
    assert all(rows[f"{n}, equal clips"]["clips_seen"] == whole for n in ladder[:-1])
    assert rows["60 %"]["clips_seen"] < rows["20 %"]["clips_seen"] < whole
    assert [len(r["rank_positive"]) for r in (rows["SimCLR"], rows["SimCLR, equal clips"])] == [
        3,
        6,
    ]
    assert rows["60 %"]["rank_n"][0] is None and rows["60 %"]["rank_n"][-1] is not None
    for r in rows.values():
        assert ("rank_n" in r, "rank_nn" in r) == (
            r["clips_of_a_video"] > 2,
            r["clips_of_a_video"] > 3,
        )
        shares = [
            x for c in ("rank_positive", "rank_n", "rank_nn") for x in r.get(c, ()) if x is not None
        ]
        assert all(0 <= x <= 1 for x in shares)
    assert seed["beside"]["chance"] == 0.125 and 0 <= seed["beside"]["random"] <= 1
    # nothing is trained twice
    again = on_few("moquad", *how, "--out", "again.json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert json.loads((tmp_path / "again.json").read_text())["seeds"][0]["rows"] == seed["rows"]
    look = on_few(
        "looking",
        "--seeds",
        1,
        "--runs",
        "r",
        "--reference",
        "40 %",
        "--out",
        "look.json",
        cwd=tmp_path,
    )
    assert look.returncode == 0, look.stderr
    (found,) = json.loads((tmp_path / "look.json").read_text())["seeds"]
    assert list(found["focus"]) == ["SimCLR", "MoQuad", "random"]
    for f in found["focus"].values():
        assert 0 <= f["on_motion"] <= f["at_most"] <= 1 and f["of_area"] < 0.2
    assert {r["class"] for r in found["classes"]} == set(found["groups"]) == set(found["frozen"])
    for group, gain in found["gain"].items():
        mine = [r["after"] - r["before"] for r in found["classes"] if r["group"] == group]
        assert abs(gain - statistics.mean(mine)) < 1e-9


def test_errors(tmp_path):
    done = script("errors.py", "--count", 4, "--out", "out.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    out = json.loads((tmp_path / "out.json").read_text())
    seconds = [r["seconds"] for r in out["rows"]]
    assert out["errors"] == len(seconds) == len({r["command"] for r in out["rows"]}) == 4
    assert out["median_s"] == statistics.median(seconds) and out["range_s"] == [
        min(seconds),
        max(seconds),
    ]
    assert out["above_1_s"] == sum(s > 1 for s in seconds)
    assert (
        "4 errors: median " in done.stdout and {"cpu", "torch", "python"} <= out["machine"].keys()
    )


def test_trainings(tmp_path):
    done = script(
        "trainings.py",
        "--baseline",
        ROOT,
        "--rounds",
        1,
        "--steps",
        2,
        "--size",
        "tiny",
        "--only",
        "ProViCo, frames",
        "--out",
        "out.json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    out = json.loads((tmp_path / "out.json").read_text())
    [r] = out["recipes"]
    assert r["recipe"] == "provico-toy-conflict" and r["same_weights"]  # of one checkout
    for k in ("baseline", "now"):
        x = r[k]
        assert x["in_an_hour"] == 3600 / (x["start"] + r["steps"] * x["step"] + 1440 * x["video"])
    assert r["ratios"] == [r["ratio"]] == [r["now"]["in_an_hour"] / r["baseline"]["in_an_hour"]]
    assert out["commits"]["baseline"] == out["commits"]["now"] and out["machine"]["threads"] == 1


def test_the_errors_that_were_measured():
    "A hundred, with a median below a second."
    out = json.loads((ROOT / "results" / "errors-cpu.json").read_text())
    assert out["errors"] == 100 and out["median_s"] < 1


def ledger_of(folder, monkeypatch, **files):
    "What benchmarks/claims.py writes of made-up results: number of a claim -> (outcome, row)."
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    for name, told in files.items():
        (folder / f"{name.replace('_', '-')}.json").write_text(
            json.dumps({"what": "made up", "machine": {}, "date": "-"} | told)
        )
    importlib.import_module("claims").write_ledger(folder)
    return {
        n: (verdict(CLAIMS[n], r)[0], r) for n, r in read_ledger(folder / "claims.json").items()
    }


def outcomes(ledger):
    return {n: outcome for n, (outcome, _) in ledger.items()}


def test_claims_of_the_story(tmp_path, monkeypatch):
    def row(name, r1, view="rgb"):
        return {"name": name, "view": view, "r1": r1, "step": 10}

    def seed(n):
        return {
            "seed": n,
            "rows": [
                row("infonce-toy-rgb-longer", 0.2),
                row("ubernce-toy-rgb", 0.8),
                row("coclr-toy-rgb-cycle1", 0.5 + 0.01 * n),
                row("coclr-toy-residual-cycle1", 0.7, "residual"),
                row("coclr-toy-rgb-cycle1", 0.6, "rgb+residual"),
                row("chance", 0.125, ""),
                row("infonce-toy-rgb", 0.3),
                row("infonce-toy-residual", 0.6, "residual"),
            ],
        }

    ledger = ledger_of(
        tmp_path, monkeypatch, story_toy_fresh={"seeds": [seed(n) for n in (1, 2, 3)]}
    )
    # 1 to 3 points: not with three seeds
    assert outcomes(ledger) == {1: "supported", 2: "open", 3: "open"}
    claim = ledger[2][1]
    assert claim["numbers"] == {
        "InfoNCE": [20.0] * 3,
        "CoCLR": [51.0, 52.0, 53.0],
        "halfway to UberNCE": [50.0] * 3,
    }
    assert (claim["premise"], claim["seeds"], claim["runs"]) == (
        30.0,
        [1, 2, 3],
        ["story-toy-fresh.json"],
    )
    assert claim["budget"] == "equal videos (320), equal clips (640)"
    claim = ledger[3][1]
    assert claim["numbers"]["both streams"] == [60.0] * 3 and claim["premise"] is None
    assert (
        claim["budget"] == "videos from 320 to 640, clips from 640 to 1,280, not run at equal clips"
    )


def test_claims_of_moquad(tmp_path, monkeypatch):
    names = [
        "SimCLR",
        "+AD-Pos",
        "+Intra-Neg",
        "+AD-Intra-Neg",
        "reverse",
        "shuffle",
        "alpha 1.5",
        "20 %",
    ]
    names += [f"{name}, equal clips" for name in names[:3]]

    def row(name, i, n):
        return {
            "run": name,
            "r1": 0.05 * i + 0.01 * n,
            "rank_n": [None, 0.2, 0.3 + 0.02 * i],
            "steps": 5,
            "clips_seen": 640 if "equal" in name or i > 2 else 320,
        }

    def seed(n):
        return {
            "seed": n,
            "rows": [row(name, i, n) for i, name in enumerate(names)],
            "beside": {"chance": 0.125, "histogram": 0.4},
        }

    moquad = {"seeds": [seed(n) for n in (1, 2, 3)]}
    beside = {
        "seeds": [
            {"method": m, "rows": [{"name": "random", "r1": r1}]}
            for m, r1 in (("moquad", 0.2), ("provico", 0.9))
        ]
    }  # R@1 of an untrained encoder
    looking = {
        "runs": {"SimCLR": "SimCLR", "MoQuad": "20 %"},
        "seeds": [
            {
                "seed": n,
                "focus": {
                    "SimCLR": {"on_motion": 0.1},
                    "MoQuad": {"on_motion": 0.2 + 0.01 * n, "at_most": 0.6},
                },
                "gain": {"motion": 0.3 + 0.01 * n, "appearance": 0.1},
                "groups": {"a": "motion", "b": "appearance"},
            }
            for n in (1, 2, 3)
        ],
    }
    ledger = ledger_of(
        tmp_path, monkeypatch, moquad_toy=moquad, beside_toy=beside, looking_toy=looking
    )
    assert outcomes(ledger) == {
        11: "open",
        13: "contradicted",
        16: "supported",
        17: "supported",
        18: "supported",
    }  # of the others runs are missing; 11: the premise was not measured
    claim = ledger[11][1]
    ((where, premise, longer),) = claim["others"]
    assert (where, premise, claim["premise"]) == ("equal clips", None, None)
    assert (longer["SimCLR"], claim["numbers"]["SimCLR"]) == ([41.0, 42.0, 43.0], [1.0, 2.0, 3.0])
    assert longer["+AD-Intra-Neg"] == claim["numbers"]["+AD-Intra-Neg"] == [16.0, 17.0, 18.0]
    assert (
        claim["budget"] == "equal videos (160), clips from 320 to 640"
        and claim["planned"] == [8] * 3
    )
    # the last epoch
    assert ledger[16][1]["numbers"] == {"without warm-up": [42.0] * 3, "with warm-up": [44.0] * 3}
    assert (
        ledger[13][1]["numbers"]["speed"] == [16.0, 17.0, 18.0] and ledger[13][1]["premise"] == 1.6
    )


def world(experiment, premise, rows, **more):
    "Made-up results of benchmarks/worlds.py: run -> its numbers, of a seed."
    return {
        "experiment": experiment,
        "rule": "abc1234",
        "seeds": [
            {
                "seed": n,
                "premise": premise,
                "rows": [{"run": run, "clips": 800} | numbers(n) for run, numbers in rows.items()],
            }
            for n in (1, 2, 3)
        ],
    } | more


def test_claims_of_worlds(tmp_path, monkeypatch):
    def r1(x):
        return lambda n: {"r1": x + 0.001 * n}

    def sure(x):
        return lambda n: {
            "cosine": 0.3,
            "match": 0.4 + 0.001 * n,
            "fifths": [0.5 + 0.001 * n, 0.4, 0.3, 0.2, 0.1],
            "mixed": {"1": -1.0, "2": -1.0 + x + 0.001 * n},
            "masked": {"0.0": -1.0, "0.5": -2.0 + 0.001 * n},
        }

    letter = {
        name: r1(0.1 * i)
        for i, name in enumerate(
            (
                "beta 1e-1",
                "beta 1e-5",
                "small batch",
                "N=1",
                "beta 1e-4",
                "all pairs, K=5",
                "all pairs",
                "one pair a video",
                "without mining",
            )
        )
    }
    texture = {name: r1(x) for name, x in (("BE", 0.1), ("RAD intra", 0.3), ("RAD inter", 0.2))}
    ledger = ledger_of(
        tmp_path,
        monkeypatch,
        world_letter=world("letter", {"one pair a video, mined": 1.0}, letter),
        world_spoiled=world("spoiled", {"spoiled": 20}, {"ProViCo": sure(0.5)}),
        world_spoiled_0=world("spoiled-0", {"spoiled": 0}, {"ProViCo": sure(-0.5)}),
        world_spoiled_40=world("spoiled-40", {"spoiled": 40}, {"ProViCo": sure(1.0)}),
        world_texture=world("texture", {"colours, RAD intra": 0.6}, texture),
        world_directions=world(
            "directions",
            {"untrained, residual": 0.3, "chance": 0.2},
            {name: r1(x) for name, x in (("shuffle", 0.1), ("reverse", 0.2), ("speed", 0.3))},
        ),
        world_scenes=world(
            "scenes",
            {},
            {
                "SimCLR": lambda n: {"by_class": {"scene_1": 0.2, "spin": 0.2}},
                "MoQuad": lambda n: {"by_class": {"scene_1": 0.3, "spin": 0.5 + 0.01 * n}},
            },
        ),
    )
    assert outcomes(ledger) == {
        12: "open",
        13: "supported",
        17: "supported",
        20: "supported",
        21: "supported",
        22: "contradicted",
        23: "supported",
        24: "supported",
        25: "supported",
        26: "contradicted",
        19: "supported",
    }
    # more than half; times chance
    assert ledger[12][1]["premise"] == 60.0 and ledger[13][1]["premise"] == 1.5
    assert ledger[17][1]["numbers"] == {
        "appearance classes": [10.0] * 3,
        "motion classes": [31.0, 32.0, 33.0],
    }
    assert [(where, level) for where, level, _ in ledger[25][1]["others"]] == [
        ("premise 0", 0.0),
        ("premise 40", 40.0),
    ]
    assert ledger[25][1]["others"][0][2]["two videos mixed"] == [-1.499, -1.498, -1.497]
    assert {r["rule"] for _, r in ledger.values()} == {"abc1234"} and ledger[26][1][
        "premise"
    ] == 20.0
    assert ledger[21][1]["budget"].endswith("equal clips (800)")


def test_an_earlier_row_of_a_claim_is_kept_as_a_dose(tmp_path, monkeypatch):
    def run(name, r1, view="rgb"):
        return {"run": name, "view": view, "r1": r1, "clips": 960, "conflict": {"scene": [0.9]}}

    def runs(n, least):
        return [
            *(run(f"MoQuad rung {i}, frames", least + 0.1 * i + 0.001 * n) for i in range(4)),
            run("InfoNCE, frames", 0.2),
            run("CoCLR, frames", 0.6 + 0.001 * n),
            run("UberNCE, frames", 0.7),
            run("InfoNCE, differences", 0.8, "residual"),
            run("CoCLR, differences", 0.7, "residual"),
        ]

    moquad = {
        "seeds": [
            {
                "seed": n,
                "beside": {"chance": 0.125, "histogram": 0.4},
                "rows": [
                    {"run": name, "r1": 0.5, "steps": 5, "clips_seen": 640}
                    for name in ("SimCLR", "+AD-Pos", "+Intra-Neg", "+AD-Intra-Neg")
                ],
            }
            for n in (1, 2, 3)
        ]
    }
    ledger = ledger_of(
        tmp_path,
        monkeypatch,
        moquad_toy=moquad,
        beside_toy={"seeds": []},
        looking_toy={
            "runs": {"SimCLR": "SimCLR", "MoQuad": "SimCLR"},
            "seeds": [
                {
                    "seed": n,
                    "groups": {},
                    "focus": {k: {"on_motion": 0.1, "at_most": 0.2} for k in ("SimCLR", "MoQuad")},
                    "gain": {},
                }
                for n in (1, 2, 3)
            ],
        },
        conflict_toy={
            "seeds": [
                {
                    "seed": n,
                    "rows": runs(n, 0.1),
                    "streams": {
                        "rgb": 0.6,
                        "residual": 0.7,
                        "both": 0.71 + 0.001 * n,
                        "only_one": 0.25,
                    },
                }
                for n in range(8)
            ]
        },
    )
    assert {n: outcome for n, (outcome, _) in ledger.items() if n < 12} == {
        1: "supported",
        2: "supported",
        3: "supported",
        11: "supported",
    }
    assert ledger[3][1]["premise"] == 25.0 and ledger[3][1]["numbers"]["both streams"][-1] == 71.7
    assert "clips from 960 to 1,920" in ledger[3][1]["budget"]
    row = ledger[11][1]
    assert (row["premise"], row["seeds"], row["runs"]) == (90.0, [*range(8)], ["conflict-toy.json"])
    assert row["others"] == [
        [
            "moquad-toy, 3 seeds",
            None,
            {name: [50.0] * 3 for name in ("SimCLR", "+AD-Pos", "+Intra-Neg", "+AD-Intra-Neg")},
        ]
    ]
    assert row["budget"] == "videos from 240 to 480, equal clips (960)"


def test_worlds(tmp_path):
    "Two runs of an experiment on tiny videos; a second call makes nothing again."
    options = [
        "letter",
        "--seeds",
        1,
        "--size",
        "tiny",
        "--runs",
        "r",
        "--only",
        "beta 1e-4",
        "one pair a video",
        "--changes",
        json.dumps(dict(epochs=2, batch=8, length=4)),
        "--out",
        "out.json",
    ]
    done = on_few("worlds", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    out = json.loads((tmp_path / "out.json").read_text())
    (seed,) = out["seeds"]
    rows = {r["run"]: r for r in seed["rows"]}
    assert (
        seed["premise"]
        == {"one pair a video, mined": 1.0}
        == {"one pair a video, mined": rows["one pair a video"]["mined"]}
        and len({r["clips"] for r in rows.values()}) == 1
    )
    for r in rows.values():
        assert all(0 <= r[k] <= 1 for k in ("r1", "cosine", "match")) and len(r["fifths"]) == 5
        assert r["mixed"]["1"] == r["masked"]["0.0"] != r["mixed"]["2"] and len(r["by_class"]) == 8
    assert on_few("worlds", *options, cwd=tmp_path).returncode == 0
    assert json.loads((tmp_path / "out.json").read_text())["seeds"] == [seed]
    other = on_few(
        "worlds", *options[:-3], json.dumps(dict(epochs=3)), "--out", "out.json", cwd=tmp_path
    )
    assert other.returncode == 2 and "other settings" in other.stderr
    other = script("worlds.py", "letter", "--only", "beta 7", "--out", "out.json", cwd=tmp_path)
    assert (other.returncode, other.stderr.split(";")[0]) == (
        2,
        "--only: 'beta 7' is no run of letter",
    )


def test_premises_and_measures_of_worlds(tmp_path, monkeypatch):
    """What only some experiments call: colours of positives, an untrained encoder, conflicts of a
    run.
    """
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    worlds = importlib.import_module("worlds")
    manifest = read(toy.make(tmp_path / "toy", "tiny", 1, progress=False))
    shares = worlds.colours_of_positives(tmp_path, manifest, 1, {})
    assert [*shares] == ["colours, BE", "colours, RAD intra", "colours, RAD inter"]
    # a frame of its own video, of another one
    assert shares["colours, BE"] > shares["colours, RAD inter"]
    first = worlds.untrained("residual")(tmp_path, manifest, 1, {})
    assert first["chance"] == 1 / 8 and 0 <= first["untrained, residual"] <= 1
    done = script(
        "worlds.py",
        "quadruple",
        "--seeds",
        1,
        "--size",
        "tiny",
        "--runs",
        "r",
        "--only",
        "MoQuad",
        "--changes",
        json.dumps(dict(epochs=2, batch=16, length=4, warmup=0.5)),
        "--out",
        "q.json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "q.json").read_text())["seeds"][0]["rows"]
    assert sum(row["conflict"].values()) == pytest.approx(1, abs=1e-4) and 0 <= row["rank_n"] <= 1


def test_the_ledger_follows_from_its_results(tmp_path, monkeypatch):
    "No number of it is typed: written again from the files beside it, it is the same."
    found = ROOT / "results"
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    claims = importlib.import_module("claims")
    for name in {f"{name}.json" for _, names in claims.SOURCES for name in names}:
        if (found / name).exists():
            (tmp_path / name).write_bytes((found / name).read_bytes())
    claims.write_ledger(tmp_path)
    assert (tmp_path / "claims.json").read_bytes() == (found / "claims.json").read_bytes()
    ledger = read_ledger(found / "claims.json")
    assert not [n for n, row in ledger.items() if "Nobody has looked" in row["why"]]
    assert ledger.keys() == CLAIMS.keys()


def test_seeds_are_planned_from_the_spread_of_a_pilot(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    claims = importlib.import_module("claims")
    needed = claims.seeds_needed
    # an endless pilot knows the spread: the power of a t test, computed by simulation
    n, random = needed(2.0, 3.0, 10_001), np.random.default_rng(0)

    def power(seeds):
        d = random.normal(2.0, 3.0, (20_000, seeds))
        return (
            abs(d.mean(1)) > stats.t.ppf(0.975, seeds - 1) * d.std(1, ddof=1) / seeds**0.5
        ).mean()

    assert power(n - 2) < claims.POWER - 0.005 < power(n)
    assert n < needed(2.0, 3.0, 8) < needed(2.0, 3.0, 5)  # a pilot of few seeds knows it badly
    assert (needed(9.0, 0.1, 3), needed(9.0, 0.0, 3), needed(0.1, 9.0, 8)) == (8, 8, None)


def test_quadruples_and_distributions(tmp_path):
    done = script(
        "step.py",
        "--device",
        "cpu",
        "--backbone",
        "tiny",
        "--clip",
        8,
        16,
        16,
        "--batch",
        4,
        "--rounds",
        1,
        "--steps",
        1,
        "--quadruples",
        "--distributions",
        "--out",
        "out.json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    out = json.loads((tmp_path / "out.json").read_text())
    assert "switches" not in out
    (row,) = out["moquad"]
    assert row["share"] == (row["sampling"] + row["rad"]) / row["seconds"] > 0
    (row,) = out["provico"]
    assert (
        row["of_all"] == row["seconds"] * 96 / 4 and row["share"] == row["loss"] / row["of_all"] > 0
    )
    # a few tensors of all pairs of samples
    assert 960 * 960 * 4 * 3 < row["saved_MB"] * 1e6 < 960 * 960 * 4 * 30


def test_provico(tmp_path):
    how = [
        "--seeds",
        1,
        "--size",
        "tiny",
        "--runs",
        "r",
        "--set",
        "epochs=2",
        "batch=16",
        "--only",
        "with mining",
        "N=1",
    ]
    done = script("provico.py", *how, "--out", "out.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (seed,) = json.loads((tmp_path / "out.json").read_text())["seeds"]
    rows = {r["run"]: r for r in seed["rows"]}
    assert list(rows) == ["with mining", "N=1"]
    for name, r in rows.items():
        assert all(0 <= r[k] <= 1 for k in ("r1", "r5", "cosine", "match"))
        assert r["training"]["epoch"] == [1, 2] and 0 <= r["training"]["knn_r1"][1] <= 1
        assert ("bins" in r) == (name != "N=1")
    r = rows["with mining"]
    assert len(r["bins"]) == 5 and abs(statistics.mean(r["bins"]) - r["match"]) < 0.1
    assert r["mixed"]["1"] == r["masked"]["0.0"] and len(set(r["mixed"].values())) == 5
    # trains nothing
    again = script("provico.py", *how, "--collect", "--out", "again.json", cwd=tmp_path)
    assert json.loads((tmp_path / "again.json").read_text())["seeds"] == [seed], again.stderr


def test_distances(tmp_path):
    done = on_few(
        "distances", "--epochs", 2, "--every", 1, "--batches", 1, "--out", "out.json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    out = json.loads((tmp_path / "out.json").read_text())
    assert [r["epoch"] for r in out["curves"]] == [0] * 6 + [1] * 6 + [2] * 6
    assert len({r["distance"] for r in out["curves"]}) == 6
    assert out["batch"] == 24 and out["per_class"] == 3 and out["chance"] == 2 / 23
    for r in out["curves"]:
        assert 0 <= r["recall"] <= 1 and (r["precision"] is None or 0 <= r["precision"] <= 1)


def test_mined_pairs_are_those_of_a_slow_loop():
    "Each distance from its formula in the appendix, one pair of embeddings after another."
    sys.path.insert(0, str(ROOT / "benchmarks"))
    distances = importlib.import_module("distances")
    B, K, D, g = 6, 4, 3, torch.Generator().manual_seed(0)
    mu, s = torch.randn(B, D, generator=g), torch.randn(B, D, generator=g) - 1
    label = [0, 0, 0, 1, 1, 1]
    videos = distances.VideoGaussians(mu[:, None], s[:, None], torch.tensor(label), torch.arange(B))
    z = mu[:, None] + (s / 2).exp()[:, None] * torch.randn(B, K, D, generator=g)
    var = s.mean(1).exp().tolist()

    def squared(i, j):
        pairs = [(k, l) for k in range(K) for l in range(K) if i != j or k != l]
        return sum(float(((z[i, k] - z[j, l]) ** 2).sum()) for k, l in pairs) / len(pairs)

    def exact(i, j):
        return float(((mu[i] - mu[j]) ** 2).sum() + s[i].exp().sum() + s[j].exp().sum())

    def bhattacharyya(i, j, d):
        a, b = var[i], var[j]
        return (math.log((a / b + b / a + 2) / 4) + d / (4 * D) / (a + b)) / 4

    def kl(i, j):
        return (math.log(var[j] / var[i]) + var[i] / var[j] + squared(i, j) / var[j] - 1) / 2

    slow = {
        "bhattacharyya, exact": lambda i, j: bhattacharyya(i, j, exact(i, j)),
        "bhattacharyya": lambda i, j: bhattacharyya(i, j, squared(i, j)),
        "euclidean": squared,
        "kl": kl,
        "jensen_shannon": lambda i, j: (kl(i, j) + kl(j, i)) / 2,
        "wasserstein": lambda i, j: squared(i, j) + (var[i] ** 0.5 - var[j] ** 0.5) ** 2,
    }
    found = distances.mined(videos, z, [[*range(B)]], None)
    fixed = distances.mined(videos, z, [[*range(B)]], 1.0)
    assert list(found) == list(slow)
    for name, f in slow.items():
        own = sum(f(i, i) for i in range(B)) / B
        for limit, ours in ((own, found[name]), (1.0, fixed[name])):
            near = [(i, j) for i in range(B) for j in range(B) if i != j and f(i, j) < limit]
            right = sum(label[i] == label[j] for i, j in near)
            assert ours["mined"] == pytest.approx(len(near) / B), name
            assert ours["recall"] == pytest.approx(right / 12)
            assert ours["precision"] == (pytest.approx(right / len(near)) if near else None)
    assert any(r["mined"] for r in found.values())
    assert any(r["precision"] not in (None, 1) for r in found.values())


def test_balanced_batches():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    distances = importlib.import_module("distances")
    label = [0] * 7 + [1] * 9 + [2] * 6
    batches = distances.balanced(label, 3, 9)
    assert len(batches) == 2 and len({i for b in batches for i in b}) == 18
    assert all(sorted(label[i] for i in b) == [0] * 3 + [1] * 3 + [2] * 3 for b in batches)
    assert batches == distances.balanced(label, 3, 9) != distances.balanced(label, 3, 9, seed=1)


def test_claims_of_provico(tmp_path, monkeypatch):
    def row(name, r1):
        return {
            "run": name,
            "r1": r1,
            "cosine": 0.6,
            "match": 0.7,
            "bins": [0.5, 0.4, 0.3],
            "mixed": {"1": -5.0, "2": -4.0},
            "masked": {"0.0": -5.0, "0.2": -6.0, "0.8": -5.0},
            "mined": 2.0,
        }

    def seed(n):
        return {
            "seed": n,
            "rows": [row("with mining", 0.5 + 0.01 * n), row("without mining", 0.4)],
            "beside": {"chance": 0.125},
        }

    curves = [
        {"epoch": e, "distance": d, "precision": x, "mined": m}
        for e, *xs in ((0, 1.0, 0.0), (3, 0.1, 0.2), (6, 0.9, 0.1))
        for d, x, m in zip(("euclidean", "bhattacharyya"), xs, (5.0, 4.0))
    ]
    distances = {
        f"distances_toy_{n}": {"seed": n, "epochs": 12, "videos": 720, "curves": curves}
        for n in range(21, 29)
    }
    provico = {"seeds": [seed(n) for n in (1, 2, 3)]}
    ledger = ledger_of(tmp_path, monkeypatch, provico_toy=provico, **distances)
    # no training clip is spoiled, so 23 to 26 are open whatever their intervals
    assert outcomes(ledger) == {
        22: "supported",
        23: "open",
        24: "open",
        25: "open",
        26: "open",
        27: "supported",
    }
    assert ledger[26][1]["numbers"] == {"whole": [-5.0] * 3, "masked": [-5.5] * 3}
    # the first look after mining began
    assert ledger[27][1]["numbers"]["Euclidean"] == [10.0] * 8
    assert [ledger[n][1]["premise"] for n in (22, 27)] == [2.0, 4.0]
    assert ledger[27][1]["seeds"] == [*range(21, 29)]


EVIDENCE = dict(backbone="tiny", size=32, length=4, batch=8, queue=24, test_clips=1, negatives=16)


def evidence_plan(folder, data, monkeypatch):
    "The script's module, and the plan that it keeps in a folder: what does not fit is refused."
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    evidence, manifest = importlib.import_module("evidence"), read(data)
    machine = evidence.machine_of("cpu", 0, "float32")
    times = evidence.timed(manifest, evidence.encoders("residual"), EVIDENCE, machine, 0.05)
    monkeypatch.setattr(evidence, "timed", lambda *_: times)

    def plan(minutes):
        asked = argparse.Namespace(
            folder=folder,
            minutes=minutes,
            seeds=[0, 1],
            changes=EVIDENCE,
            second="residual",
            dry_run=False,
            only=None,
            dtype="float32",
            epochs=None,
        )
        return evidence.plan_of(asked, manifest, machine, 2)

    with pytest.raises(ValueError, match="or fewer --seeds"):
        plan(0.01)
    assert not folder.exists()
    assert plan(60.0)["epochs"] > 4 and plan(60.0) == json.loads((folder / "plan.json").read_text())
    with pytest.raises(ValueError, match="was planned with other minutes"):
        plan(9.0)
    return evidence, manifest, machine


def main_of(name, *args, monkeypatch, capsys):
    "A script in this process, also its tasks: exit code, stdout, stderr."
    module = importlib.import_module(name)
    monkeypatch.setattr(
        module, "at_once", lambda tasks, n, *more, **kw: at_once(tasks, 1, *more, **kw)
    )
    monkeypatch.setattr(sys, "argv", [name, *map(str, args)])
    try:
        code = module.main() or 0
    except SystemExit as e:
        code = e.code
    return code, *capsys.readouterr()


def test_evidence(tmp_path, monkeypatch, capsys):
    """Killed in the middle, the same command ends with every row; what does not fit is one
    sentence.

    Four epochs, the least; of the second seed only what `reach.py` opens is trained, the rest is
    made up. Two processes until it is killed, then this one."""
    home = tmp_path / "ev"
    monkeypatch.setitem(toy.SIZES, "tiny", FEW)
    data = toy.make(tmp_path / "toy", "tiny", progress=False)
    evidence, manifest, machine = evidence_plan(home, data, monkeypatch)
    plan = json.loads((home / "plan.json").read_text()) | {"epochs": 4}
    (home / "plan.json").write_text(json.dumps(plan))
    random = evidence.floor(manifest, "residual", EVIDENCE, machine, home)["random"][0]
    both = evidence.both("residual", evidence.encoders("residual"))
    some = evidence.chosen("flow", ["coclr", "labels"])
    assert [e.name for e in some] == ["infonce, half", "infonce, half, flow", "coclr", "labels"]
    assert not evidence.both("flow", some) and evidence.chosen("flow", None) == evidence.encoders(
        "flow"
    )
    repeated = [e.name for e in importlib.import_module("reach").compared(plan)]
    for name in [*(e.name for e in evidence.encoders("residual")), *both]:
        if name in repeated:
            continue
        place = f"both-{both[name][0]}" if name in both else name
        folder = home / "seed1" / place.replace(", ", "-")
        folder.mkdir(parents=True)
        (folder / "measured.json").write_text(json.dumps(random))
    how = ["--data", "toy", "--seeds", 0, 1, "--folder", "ev", "--changes", json.dumps(EVIDENCE)]
    whole = [*how, "--minutes", 60, "--out", "out.json"]
    first = warm.Command(whole, tmp_path, script=ROOT / "benchmarks" / "evidence.py")
    while "coclr, seed 0" not in first.stdout and first.poll() is None:
        time.sleep(0.02)
    first.kill_all()
    assert not (tmp_path / "out.json").exists()
    monkeypatch.chdir(tmp_path)
    here = dict(monkeypatch=monkeypatch, capsys=capsys)
    code, printed, wrong = main_of("evidence", *whole, **here)
    assert code == 0, wrong
    out = json.loads((tmp_path / "out.json").read_text())
    assert json.loads((home / "plan.json").read_text()) == plan and len(out["rows"]) == 20
    rows = {r["name"]: r for r in out["rows"]}
    for name, r in rows.items():
        for w in ("r1", "probe", "few"):
            low, high = r[f"{w}_interval"]
            assert low - 1e-9 <= r[w] <= high + 1e-9, (name, w)
    one = [json.loads(f.read_text()) for f in sorted(home.glob("seed*/simclr/measured.json"))]
    assert rows["simclr"]["r1"] == pytest.approx(
        statistics.mean(statistics.mean(x["r1"]) for x in one)
    )
    gap = rows["simclr"]["r1"] - rows["infonce, one schedule"]["r1"]
    assert rows["simclr"]["r1_gap"] == pytest.approx(gap) and "coclr, both" in printed
    assert {n for n, r in rows.items() if r["against"] == "infonce, one schedule"} == {
        *evidence.ONE_SCHEDULE
    }
    assert (
        rows["coclr"]["clips"]
        == rows["infonce"]["clips"]
        == rows["infonce, one schedule"]["clips"] / 2
    )
    for more, says in (
        (("--minutes", 9), "was planned with other minutes"),
        (("--epochs", 2), "give 4 or more"),
        (("--only", "coclr"), "with other minutes, only"),
        (("--only", "none"), "'none' is no training"),
    ):
        code, _, wrong = main_of("evidence", *how, *more, **here)
        assert code == 2 and says in wrong, (more, wrong)
    code, _, wrong = main_of(
        "reach",
        "--data",
        "toy",
        "--like",
        "ev",
        "--changes",
        json.dumps({"videos": [0.5]}),
        "--out",
        "reach.json",
        **here,
    )
    assert code == 0, wrong
    told = json.loads((tmp_path / "reach.json").read_text())
    assert [r["what"] for r in told["rows"]] == ["videos"] * 2 and told["rows"][1]["to"] == plan[
        "train"
    ]
    half = home / "reach" / "videos-0.5"
    assert len(read(half).select("train")) < plan["train"]
    assert read(half).select("test") and told["rows"][1]["coclr"]["r1"] == rows["coclr"]["r1"]


def test_intervals_of_the_evidence(monkeypatch):
    """A bootstrap of independent videos has the spread of the binomial; alike rows differ by
    nothing.
    """
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    evidence = importlib.import_module("evidence")
    right = torch.rand(400, generator=torch.Generator().manual_seed(0)) < 0.4
    seed = {
        "row": [],
        "source": list(range(400)),
        "seconds": 1.0,
        "clips": 0,
        **{w: right.int().tolist() for w in ("r1", "probe", "few")},
    }
    a, b = evidence.intervals({"infonce": [seed, seed], "coclr": [seed, seed]})
    share = right.float().mean().item()
    half = 1.96 * math.sqrt(share * (1 - share) / 400)
    assert a["r1_interval"] == pytest.approx([share - half, share + half], abs=0.01)
    assert b["r1_gap_interval"] == [0, 0] and "open" in evidence.verdict(b)
    together = seed | {
        "source": [i // 20 for i in range(400)],
        "r1": [int(i // 20 < 8) for i in range(400)],
    }
    wide = evidence.intervals({"infonce": [together]})[0]["r1_interval"]
    assert wide[1] - wide[0] > 6 * half  # recordings that fail together count once


def test_reach(monkeypatch):
    """A line through what doubles has the slope of what was put in; smaller parts lie within larger
    ones.
    """
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    reach = importlib.import_module("reach")
    gen = torch.Generator().manual_seed(0)
    u = torch.rand(2000, generator=gen)
    found = [
        [{"source": list(range(2000)), "r1": (u < p).int().tolist()}] * 2 for p in (0.3, 0.4, 0.5)
    ]
    line = reach.slope([16, 32, 64], found)
    assert line["doubling"] == pytest.approx(0.1, abs=0.015)
    assert line["interval"][0] < line["doubling"] < line["interval"][1] < 0.13
    assert "2.0 doublings away" in reach.answer(
        "pixels", {"doubling": 0.1, "interval": [0.05, 0.15]}, 0.3, 0.5
    )
    assert "not told apart" in reach.answer(
        "pixels", {"doubling": 0.1, "interval": [-0.05, 0.15]}, 0.3, 0.5
    )
    assert "does not help" in reach.answer(
        "pixels", {"doubling": -0.1, "interval": [-0.2, -0.05]}, 0.3, 0.5
    )


def test_parts_of_the_videos(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    reach = importlib.import_module("reach")
    m = read(toy.make(tmp_path / "toy", "tiny", progress=False))
    small, large, all_ = (reach.part_of(m, share, 1) for share in (0.25, 0.5, 1.0))
    assert small < large < all_ == {*m.select("train")}
    assert len({m.rows[i].label for i in small}) == len(m.labels)
    sources = {m.source_id(i) for i in large}
    assert large == {i for i in all_ if m.source_id(i) in sources}  # whole recordings
    part = read(reach.fewer(m, 0.5, 1, tmp_path / "home"))
    assert [part.rows[i].video for i in part.select("train")] == [
        m.rows[i].video for i in sorted(large)
    ]
    assert len(part.select("test")) == len(m.select("test")) and part.decode(0, [0]).shape[0] == 1


def test_motion_by_hand(monkeypatch):
    """Flow to the right votes for the first direction, flow down for the third; what stands still
    has its own.
    """
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    evidence = importlib.import_module("evidence")
    flow = torch.zeros(3, 2, 4, 6, 6)  # (clip, u and v, T, H, W) px
    flow[0, 0], flow[1, 1] = 5.0, 5.0
    pictures = flow_to_image(flow.movedim(2, 1)).movedim(-1, 1) / 255
    votes = evidence.FlowDirections()(pictures).unflatten(1, (9, 2, 3, 3))
    assert votes.flatten(2).sum(-1).argmax(1).tolist() == [0, 2, 8]
    assert torch.allclose(votes.flatten(1).norm(dim=1), torch.ones(3))
    still, moves = torch.zeros(1, 3, 8, 8, 8), torch.zeros(1, 3, 8, 8, 8)
    moves[:, :, 4:, :2, 6:] = -1.0
    energy = evidence.MotionEnergy()
    assert energy(still).sum() == 0
    assert energy(moves).unflatten(1, (8, 4, 4)).nonzero()[:, 1:].tolist() == [
        [t, 0, 3] for t in range(4, 8)
    ]


def test_flow_directions(monkeypatch):
    """A square that moves to the right votes for the right where it is; what stands still votes for
    that.
    """
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    own_clips = importlib.import_module("own_clips")
    x = torch.zeros(2, 3, 8, 96, 96)
    texture = torch.rand(3, 24, 24, generator=torch.Generator().manual_seed(0))
    for t in range(8):  # px: 2 a frame, and 0
        for i, speed in enumerate((2, 0)):
            x[i, :, t, 36:60, 40 + speed * t : 64 + speed * t] = texture
    votes = own_clips.FlowDirections()(x).unflatten(1, (9, 2, 3, 3))  # direction, when, where
    assert votes[0, :8].sum((1, 2, 3)).argmax() == 0 and votes[0, 0].sum() > 9 * votes[0, 1:8].sum()
    assert votes[0, 0].sum(0).sum(1).argmax() == 1 and votes[1, :8].max() < 0.01


def test_own_clips(tmp_path, monkeypatch, capsys):
    """Killed between two trainings, the same command goes on; parts are nested, whole recordings,
    all classes.
    """
    monkeypatch.setitem(toy.SIZES, "tiny", FEW)
    data = toy.make(tmp_path / "toy", "tiny", progress=False)
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    own_clips = importlib.import_module("own_clips")
    monkeypatch.chdir(tmp_path)
    changes = dict(backbone="tiny", size=32, length=4, batch=8, queue=0, test_clips=1)
    how = [
        "--data",
        "toy",
        "--given",
        "toy",
        "--steps",
        2,
        "--side",
        32,
        "--folder",
        "r",
        "--changes",
        json.dumps(changes),
    ]

    def main(*more):
        monkeypatch.setattr(sys, "argv", ["own_clips", *map(str, [*how, *more])])
        try:
            return own_clips.main(), *capsys.readouterr()
        except SystemExit as e:
            return e.code, *capsys.readouterr()

    code, _, wrong = main("--clips", 12, 0, "--seeds", 1, "--out", "a.json")
    assert code is None, wrong
    (tmp_path / "r" / "SimCLR-12-random-0" / "measured.json").unlink()
    code, said, wrong = main("--clips", 12, 0, "--seeds", 2, "--out", "b.json")
    assert code is None and said.count("seed 1") == 6, wrong
    a, b = (json.loads((tmp_path / name).read_text()) for name in ("a.json", "b.json"))
    few, whole = b["sizes"]
    assert [few["clips"], whole["clips"]] == [12, len(read(data).select("train"))]
    assert [r["seeds"] for r in few["rows"]] == [1] * 5 + [2] * 6
    for r, s in zip(whole["rows"], a["sizes"][1]["rows"]):
        assert (r["r1"], r["probe"]) == (s["r1"], s["probe"])
    parts = [
        {read(tmp_path / "r" / n).rows[i].video for i in read(tmp_path / "r" / n).select("train")}
        for n in ("clips-12", "clips-all")
    ]
    assert (
        parts[0] < parts[1] and len({r.label for r in read(tmp_path / "r" / "clips-12").rows}) == 8
    )
    assert main("--clips", 99, "--out", "c.json")[0] == 2
    # the rule of advice, on made-up right and wrong of 100 recordings
    right = {own_clips.HISTOGRAM: 20, own_clips.MOTION: 25, "a bit above": 26, "far above": 60}
    table = own_clips.intervals(
        {
            name: [
                {
                    "source": [*range(100)],
                    "steps": 0,
                    "videos_seen": 0,
                    "seconds": 0.0,
                    "train_seconds": 0.0,
                    **dict.fromkeys(
                        own_clips.MEASURES, [int(i * 37 % 100 < n) for i in range(100)]
                    ),
                }
            ]
            for name, n in right.items()
        }
    )
    low, high = table[2]["above"][own_clips.MOTION]["r1_interval"]
    assert low <= 0 < high and own_clips.advice(table) == ["far above"]
    assert own_clips.advice(table[:3]) == [own_clips.MOTION]
    above = table[3]["above"][own_clips.HISTOGRAM]
    half = 1.96 * math.sqrt(0.4 * 0.6 / 100)  # nested: the difference is a share of 40 of 100
    assert above["r1"] == pytest.approx(0.4)
    assert above["r1_interval"] == pytest.approx([0.4 - half, 0.4 + half], abs=0.02)
