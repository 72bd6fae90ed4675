"The benchmark scripts run and write what they say; how fast anything is, is not a test."

import argparse
import importlib
import json
import math
import re
import shlex
import statistics
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import nbformat
import numpy as np
import pytest
import torch
from torch.nn import functional

import warm
from vssl_nb.data import toy
from vssl_nb.data.manifest import read
from vssl_nb.data.views import flow_to_image
from vssl_nb.papers.reproduce import at_once
from vssl_nb.ssl import memory as momentum

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"
FEW = toy.Size(4, 1, 20, 32)  # half as many toy videos as tiny, of half as many frames
HANGS = 3600  # seconds after which a script is taken for one that never ends


@pytest.fixture(autouse=True)
def scripts_can_be_imported(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)


def words_of(options, changes):
    "The words of a command line; changes are fields of recipes, given as JSON."
    words = shlex.split(options)
    return [*words, "--changes", json.dumps(changes)] if changes else words


def script(name, options, cwd, **changes):
    file = BENCHMARKS / f"{name}.py"
    return warm.run(words_of(options, changes), cwd, timeout=HANGS, script=file)


def on_few(name, options, cwd, more="", **changes):
    """A script that makes its own toy videos, with `FEW` as tiny ones, and with more lines before
    it begins.
    """
    text = (BENCHMARKS / f"{name}.py").read_text()
    assert re.search(r'\nif __name__ == "__main__":\n    (main\(\)|sys.exit\(main\(\)\))\n$', text)
    (cwd / "few.py").write_text(
        f"""import importlib, sys
sys.path.insert(0, {str(BENCHMARKS)!r})
from vssl_nb.data import toy
toy.SIZES["tiny"] = toy.{FEW}
script = importlib.import_module({name!r})
{more}
if __name__ == "__main__":  # and in no process that it starts
    script.main()
"""
    )
    return warm.run(words_of(options, changes), cwd, timeout=HANGS, script=cwd / "few.py")


def written(done, file):
    "The results that a script has written."
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text())


# ---- speed and memory


def test_waits(tmp_path):
    "Each process of a command is looked at, and the innermost function that has a stage counts."
    code = (
        "import time, torch\nx, end = torch.rand(9, 9, requires_grad=True), time.monotonic() + 2\n"
        "while time.monotonic() < end: (x @ x).sum().backward()"
    )
    page = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    nbformat.write(page, tmp_path / "page.ipynb")
    options = f"--videos {tmp_path} --only page --page page.ipynb --out out.json"
    done = script("waits", options, tmp_path)
    waits = written(done, tmp_path / "out.json")["waits"]["page"]
    assert waits["processes"] == 2  # and a kernel
    assert waits["stages"]["imports"] > 0 and waits["stages"]["backward"] > 0
    assert 0 < waits["to_first"] <= waits["seconds"]
    assert sum(waits["stages"].values()) == pytest.approx(1, abs=0.02)


# of a device that is given, and not measured
SPEEDS = {"float32": 1e12, "bfloat16": 2e12, "bytes": 1e11}
GIVEN_SPEEDS = f"""real = script.child
script.child = lambda work, o: {SPEEDS} if work == "speeds" else real(work, o)"""


def test_step(tmp_path):
    options = (
        "--device cpu --backbone tiny --clip 8 16 16 --batch 2 --only 'all, float32' --rounds 1 "
        "--steps 1 --sizes 1 --out out.json"
    )
    done = on_few("step", options, tmp_path, more=GIVEN_SPEEDS)
    out = written(done, tmp_path / "out.json")
    assert [r["variant"] for r in out["switches"]] == ["plain", "all, float32"]
    assert [r["batch"] for r in out["by_batch"]] == [1]
    assert all(r["seconds"] > 0 and r["memory_GB"] > 0 for r in out["switches"])
    assert {"cpu", "cores", "threads", "torch", "python"} <= out["machine"].keys()
    assert out["speeds"] == SPEEDS
    plain = out["switches"][0]
    assert f"{1000 * plain['seconds']:.1f}" in done.stdout
    assert [m["queue"] for m in out["coclr"]] == [2048, 16384]
    for m in out["coclr"]:
        assert m["ratio"] * m["infonce"] == pytest.approx(m["coclr"])
        assert min(m[part] for part in ("sampler", "mining", "infonce")) > 0


def test_a_line_of_the_step_table():
    "By hand, for two videos whose fastest step takes half a second."
    step = importlib.import_module("step")
    o = {"backbone": "tiny", "clip": [8, 16, 16], "batch": 2}
    measured = {"seconds": [0.7, 0.5], "memory": 3e9, "warmup": 4.0}
    line = step.row("one", o, measured, 2.0, SPEEDS)
    assert (line["seconds"], line["ratio"], line["clips_per_s"]) == (0.5, 4.0, 4.0)
    assert (line["memory_GB"], line["first_s"]) == (3.0, 4.0)
    least = step.bound(o, SPEEDS)
    assert line["of_flops"] == 2 * least["flops"] and line["of_bytes"] == 2 * least["bytes"]
    assert line["of_bound"] == 2 * max(least["flops"], least["bytes"])
    assert step.row("one", o, {"failed": "no"}, None, SPEEDS)["failed"] == "no"


def test_the_bound_of_a_step():
    "Twice the batch, twice the products; in bfloat16 they take half as long here."
    step = importlib.import_module("step")
    o = {"backbone": "tiny", "clip": [8, 16, 16], "batch": 2}
    one, two = step.bound(o, SPEEDS), step.bound(o | {"batch": 4}, SPEEDS)
    half = step.bound(o | {"dtype": "bfloat16"}, SPEEDS)
    assert two["flops"] == pytest.approx(2 * one["flops"])
    assert half["flops"] == pytest.approx(one["flops"] / 2)
    # Adam and the momentum update stay
    assert one["bytes"] < two["bytes"] < 2 * one["bytes"] and half["bytes"] < one["bytes"]


def test_speeds_are_those_of_known_work(monkeypatch):
    "What takes a second: a product of 1,536 x 1,536, and a copy of 256 MiB."
    step = importlib.import_module("step")
    monkeypatch.setattr(step, "fastest", lambda work, rounds, device: (1.0, None))
    speeds = step.speeds({"device": "cpu"})
    convolution = 2 * 512 * (8 * 512 * 4 * 32 * 32)
    assert speeds["float32"] == speeds["bfloat16"] == max(2 * 1536**3, convolution)
    assert speeds["bytes"] == 2 * 4 * 2**26


def test_the_plain_momentum_update():
    step = importlib.import_module("step")
    slow, fast, ours = (torch.nn.Linear(3, 2) for _ in range(3))
    ours.load_state_dict(slow.state_dict())
    step.one_by_one(slow, fast, 0.9)
    momentum.ema_update(ours, fast, 0.9)
    assert torch.allclose(slow.weight, ours.weight) and torch.allclose(slow.bias, ours.bias)


def test_quadruples_and_distributions(tmp_path):
    options = (
        "--device cpu --backbone tiny --clip 8 16 16 --batch 4 --rounds 1 --steps 1 --quadruples "
        "--distributions --out out.json"
    )
    out = written(script("step", options, tmp_path), tmp_path / "out.json")
    assert "switches" not in out
    [row] = out["moquad"]
    assert row["share"] * row["seconds"] == pytest.approx(row["sampling"] + row["rad"])
    assert min(row[part] for part in ("seconds", "sampling", "rad", "views")) > 0
    [row] = out["provico"]
    assert row["of_all"] == 24 * row["seconds"]  # 96 videos in the place of 4
    assert row["share"] * row["of_all"] == pytest.approx(row["loss"])
    # a few tensors of all pairs of samples
    assert 960 * 960 * 4 * 3 < row["saved_MB"] * 1e6 < 960 * 960 * 4 * 30


def test_input(tmp_path):
    options = "--count 4 --rounds 1 --samples 10 --rows 3000 --workers 3 --out out.json"
    out = written(script("input", options, tmp_path), tmp_path / "out.json")
    speed = out["samples_per_s"]
    baseline = "PIL per frame (baseline)"
    assert set(speed) == {
        baseline,
        "worker, original",
        "worker, transcoded",
        "end to end, original",
        "end to end, transcoded",
    }
    assert out["videos"] == 4 and len(out["memory_MB"]) == 10
    for name, rate in speed.items():  # of one round, its median
        assert out["ratio"][name] == pytest.approx(rate / speed[baseline])
    jumps, many, ahead = (out[k] for k in ("keyframes", "rows", "shared"))
    assert jumps["frames_decoded"]["with"] + 32 >= 64
    assert jumps["frames_decoded"]["without"] > 100
    rates = jumps["samples_per_s"]["decode"]
    assert jumps["ratio"]["decode"] * rates["without"] == pytest.approx(rates["with"])
    seconds = many["seconds"]
    assert many["rows"] == 3000
    assert many["ratio"] * seconds["columns"] == pytest.approx(seconds["lines"])
    assert ahead["GB"] < ahead["bound_GB"] < ahead["four_batches_a_worker_GB"]
    if "small" in ahead:
        # what others have in shared memory counts, too
        assert ahead["small"]["measured_MB"] >= 0 < ahead["small"]["bound_MB"]


def test_frames_from_a_keyframe_on():
    "Every eighth frame is one; a jump saves more than four frames."
    frames_decoded = importlib.import_module("input").frames_decoded
    together, apart = np.array([9, 10]), np.array([1, 100])
    assert frames_decoded([together]) == {"without": 11.0, "with": 3.0}
    assert frames_decoded([apart]) == {"without": 101.0, "with": 2.0 + 5.0}


def test_features(tmp_path):
    "Ours and the baseline give the same features, in rounds of their own."
    options = "--cases small --count 3 --rounds 1 --out out.json --set"
    small = json.dumps({"length": 8, "size": 32})
    done = script("features", f"{options} {shlex.quote(small)}", tmp_path)
    out = written(done, tmp_path / "out.json")
    rows = {r["way"]: r for r in out["rows"]}
    assert list(rows) == [
        "one video at a time (baseline)",
        "baseline, channels last, memory kept",
        "ours",
        "ours, bfloat16",
    ]
    assert rows["ours"]["apart"] < 1e-4 < rows["ours, bfloat16"]["apart"] < 0.2
    for r in rows.values():
        assert r["videos"] == 3 and r["over_earlier"] is None
        assert r["videos_per_s"] * r["seconds"] == pytest.approx(3)


def test_flow(tmp_path):
    "The step of the solver is compiled; the networks that sort for the median are traced."
    step_alone = """import torch
whole = torch.compile
def compile(f, **options):
    return whole(f, **options if f.__name__ == "_step" else options | {"backend": "eager"})
torch.compile = compile"""
    options = "--few 2 --rounds 1 --threads 1 --short-sides 48 --out out.json"
    done = on_few("flow", options, tmp_path, more=step_alone)
    out = written(done, tmp_path / "out.json")
    ways = {r["way"]: r for r in out["rows"]}
    baseline = ways["OpenCV (baseline)"]
    assert {"ours, CPU", "ours, compiled, CPU"} <= set(ways)
    assert {r["size"] for r in out["rows"]} == {"64 x 48"}
    for r in out["rows"]:
        assert r["ratio"] * baseline["pairs_per_s"] == pytest.approx(r["pairs_per_s"])
    assert ways["ours, CPU"]["apart"] < 0.05  # equal accuracy, or the ratio says nothing
    assert ways["ours, CPU"]["of_bound"] > 0
    assert out["days"]["Kinetics-400"] / out["days"]["UCF101"] == pytest.approx(25)
    done = script("flow", f"--videos {tmp_path}", tmp_path)
    assert done.returncode == 1
    assert str(tmp_path) in done.stderr and ".mp4" in done.stderr


def test_mining(tmp_path):
    options = "--keys 256 --batch 4 --dim 8 --stages 4 --rounds 1 --device cpu --out out.json"
    done = script("mining", options, tmp_path)
    [row] = written(done, tmp_path / "out.json")["rows"]
    assert row["keys"] == 256 and row["agree"] > 0.99
    seconds = row["seconds"]
    assert row["ratio"] * seconds["ours"] == pytest.approx(seconds["query by query"])
    assert set(row["peak_bytes"]) == set(seconds)
    assert f"{row['ratio']:.1f} times as long" in done.stdout


def test_match_probability(tmp_path):
    options = "--sizes 3x5 --dim 8 --mixtures 2 --points 3 --rounds 1 --device cpu --out out.json"
    done = script("match_probability", options, tmp_path)
    out = written(done, tmp_path / "out.json")
    [row] = out["rows"]
    assert row["apart"] < 1e-3
    assert row["pairs_per_second"] * row["seconds"]["ours"] == pytest.approx(15)
    assert set(row["peak_bytes"]) == set(row["seconds"]) == {"ours", "at once", "cosine"}
    assert out["ucf101_computed"]["bytes"] > row["computed_bytes"] > 0 and "UCF101" in done.stdout


def test_trainings(tmp_path):
    options = (
        f"--baseline {ROOT} --rounds 1 --steps 2 --size tiny --only 'ProViCo, frames' "
        "--out out.json"
    )
    out = written(script("trainings", options, tmp_path), tmp_path / "out.json")
    [r] = out["recipes"]
    assert r["recipe"] == "provico-toy-trainings" and r["same_weights"]  # of one checkout
    assert r["ratios"] == [r["ratio"]]
    assert r["ratio"] * r["baseline"]["in_an_hour"] == pytest.approx(r["now"]["in_an_hour"])
    assert out["commits"]["baseline"] == out["commits"]["now"]
    assert out["machine"]["threads"] == 1


def test_trainings_see_the_same_clips():
    "Those of a recipe that begins with another one are shared by both."
    trainings = importlib.import_module("trainings")

    def clips_of_a_video(name):
        recipe = trainings.recipe_of(name)
        assert recipe.learning.batch == trainings.BATCH
        return recipe.learning.epochs * recipe.sampling.clips

    clips = {name: clips_of_a_video(name) for name in trainings.TRAININGS}
    clips["CoCLR, frames"] += clips_of_a_video("begun, frames")
    assert {*clips.values()} == {2 * trainings.EPOCHS}
    assert clips_of_a_video("InfoNCE, differences") == 2 * trainings.EPOCHS


def test_trainings_in_an_hour():
    "Six seconds to begin, 1,440 videos in a second each, and two steps of 77: 1,600 seconds."
    in_an_hour = importlib.import_module("trainings").in_an_hour
    assert in_an_hour({"start": 6.0, "step": 77.0, "video": 1.0}, 2) == 3600 / 1600


def test_row(tmp_path):
    options = "--rounds 1 --steps 2 --size tiny --out out.json"
    out = written(on_few("row", options, tmp_path), tmp_path / "out.json")
    assert [way["way"] for way in out["ways"]] == [
        "3-D, decoded",
        "3-D, kept",
        "2-D, decoded",
        "2-D, kept",
    ]
    assert out["clips"] == out["steps"] * 8 * 2 and out["whole"] is None
    for way in out["ways"]:
        assert way["row"] == pytest.approx(way["start"] + out["steps"] * way["step"])
        assert way["ratio"] == pytest.approx(out["ways"][0]["row"] / way["row"])
    assert out["same_losses"] and out["apart"] < 1e-2
    assert out["machine"]["threads"] == 1 and out["recipe"]["name"] == "infonce-toy-rgb"


def test_own_videos(tmp_path, monkeypatch):
    monkeypatch.setitem(toy.SIZES, "tiny", FEW)
    toy.make(tmp_path / "videos", size="tiny", workers=1, progress=False)
    options = (
        f"{tmp_path / 'videos'}:0.05 --out out.json "
        "--set size=32 backbone=tiny workers=0 device=cpu"
    )
    done = script("own_videos", options, tmp_path)
    [row] = written(done, tmp_path / "out.json")["rows"]
    assert row["kept"] == (row["seconds"] <= 3) or row["seconds"] == 3.0  # it is rounded
    assert row["steps"] <= row["of_steps"]
    assert row["chosen"]["size"] == 32 and row["reasons"]
    assert row["verdict"]["sentences"][0] in done.stdout


# ---- trainings on the toy


def test_toy_full(tmp_path):
    # ends when the run does
    options = (
        "--videos v --run r --minutes 60 --every 0.01 --out out.json --size tiny --share 1 "
        "--device cpu --dtype float32 --workers 0 --set 'backbone=\"tiny\"' size=32 length=8 "
        "batch=8 queue=64 epochs=8 test_clips=1"
    )
    out = written(on_few("toy_full", options, tmp_path), tmp_path / "out.json")
    assert out["card"]["finished"]
    assert out["curve"][-1]["step"] == out["card"]["step"] == 24
    assert (tmp_path / "out.png").exists()
    assert all(0 <= c["r1"] <= c["r5"] <= c["r10"] <= 1 for c in out["curve"])
    assert set(out["median_seconds"]) == {"data", "views", "forward", "backward", "update"}


def test_cotrain_full(tmp_path):
    options = (
        "--videos v --run r --out out.json --size tiny --flow dis --device cpu --dtype float32 "
        "--workers 0 --set 'backbone=\"tiny\"' size=32 length=4 batch=8 queue=24 topk=5 groups=1 "
        "epochs=1 test_clips=1"
    )
    rows = written(on_few("cotrain_full", options, tmp_path), tmp_path / "out.json")["rows"]
    assert [(r["method"], r["view"]) for r in rows] == [
        ("infonce", "rgb"),
        ("infonce", "flow"),
        ("coclr", "rgb"),
        ("coclr", "flow"),
        ("coclr", "rgb+flow"),
        ("ubernce", "rgb"),
    ]
    assert all(0 <= r["mined"] <= 1 for r in rows if "+" not in r["view"])


def test_moquad(tmp_path):
    options = (
        "--seeds 1 --size tiny --runs r --set epochs=3 batch=8 length=4 test_clips=1 "
        "--only ladder warm-up --out"
    )
    done = on_few("moquad", f"{options} out.json", tmp_path)
    [seed] = written(done, tmp_path / "out.json")["seeds"]
    rows = {r["run"]: r for r in seed["rows"]}
    ladder = ["SimCLR", "+AD-Pos", "+Intra-Neg", "+AD-Intra-Neg"]
    longer = [f"{name}, equal clips" for name in ladder[:-1]]
    warm_up = ["20 %", "40 %", "60 %"]
    assert list(rows) == [*ladder, *warm_up, "SimCLR, rate of the others", *longer]
    assert [rows[n]["clips_of_a_video"] for n in ladder] == [2, 2, 3, 4]
    # the same videos, and next the same clips
    assert len({rows[n]["steps"] for n in ladder}) == 1
    whole = rows["+AD-Intra-Neg"]["clips_seen"]
    assert all(rows[name]["clips_seen"] == whole for name in longer)
    assert rows["60 %"]["clips_seen"] < rows["20 %"]["clips_seen"] < whole
    assert [len(rows[n]["rank_positive"]) for n in ("SimCLR", longer[0])] == [3, 6]
    assert rows["60 %"]["rank_n"][0] is None and rows["60 %"]["rank_n"][-1] is not None
    for r in rows.values():
        assert ("rank_n" in r) == (r["clips_of_a_video"] > 2)
        assert ("rank_nn" in r) == (r["clips_of_a_video"] > 3)
        for column in ("rank_positive", "rank_n", "rank_nn"):
            assert all(0 <= x <= 1 for x in r.get(column, ()) if x is not None)
    assert seed["beside"]["chance"] == 0.125 and 0 <= seed["beside"]["random"] <= 1
    # nothing is trained twice
    again = on_few("moquad", f"{options} again.json", tmp_path)
    assert written(again, tmp_path / "again.json")["seeds"][0]["rows"] == seed["rows"]
    look = on_few("looking", "--seeds 1 --runs r --reference '40 %' --out look.json", tmp_path)
    [seen] = written(look, tmp_path / "look.json")["seeds"]
    assert list(seen["focus"]) == ["SimCLR", "MoQuad", "random"]
    for f in seen["focus"].values():
        assert 0 <= f["on_motion"] <= f["at_most"] <= 1 and f["of_area"] < 0.2
    assert {r["class"] for r in seen["classes"]} == set(seen["groups"]) == set(seen["frozen"])
    for group, gain in seen["gain"].items():
        gains = [r["after"] - r["before"] for r in seen["classes"] if r["group"] == group]
        assert gain == pytest.approx(statistics.mean(gains))


def test_provico(tmp_path):
    options = (
        "--seeds 1 --size tiny --runs r --set epochs=2 batch=16 --only 'with mining' N=1 --out"
    )
    done = script("provico", f"{options} out.json", tmp_path)
    [seed] = written(done, tmp_path / "out.json")["seeds"]
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
    again = script("provico", f"{options} again.json --collect", tmp_path)
    assert written(again, tmp_path / "again.json")["seeds"] == [seed]


def test_distances(tmp_path):
    options = "--epochs 2 --every 1 --batches 1 --out out.json"
    out = written(on_few("distances", options, tmp_path), tmp_path / "out.json")
    assert [r["epoch"] for r in out["curves"]] == [0] * 6 + [1] * 6 + [2] * 6
    assert len({r["distance"] for r in out["curves"]}) == 6
    assert out["batch"] == 24 and out["per_class"] == 3 and out["chance"] == 2 / 23
    for r in out["curves"]:
        assert 0 <= r["recall"] <= 1 and (r["precision"] is None or 0 <= r["precision"] <= 1)


def test_mined_pairs_are_those_of_a_slow_loop():
    "Each distance from its formula in the appendix, one pair of embeddings after another."
    distances = importlib.import_module("distances")
    B, K, D, g = 6, 4, 3, torch.Generator().manual_seed(0)
    mu, s = torch.randn(B, D, generator=g), torch.randn(B, D, generator=g) - 1
    label = [0, 0, 0, 1, 1, 1]
    videos = distances.VideoGaussians(mu[:, None], s[:, None], torch.tensor(label), torch.arange(B))
    z = mu[:, None] + (s / 2).exp()[:, None] * torch.randn(B, K, D, generator=g)
    var = s.mean(1).exp().tolist()

    def squared(i, j):
        total, pairs = 0.0, 0
        for k in range(K):
            for m in range(K):
                if i != j or k != m:
                    total += float(((z[i, k] - z[j, m]) ** 2).sum())
                    pairs += 1
        return total / pairs

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
    mined = distances.mined(videos, z, [[*range(B)]], None)
    fixed = distances.mined(videos, z, [[*range(B)]], 1.0)
    assert list(mined) == list(slow)
    for name, f in slow.items():
        own = sum(f(i, i) for i in range(B)) / B
        for limit, ours in ((own, mined[name]), (1.0, fixed[name])):
            near = [(i, j) for i in range(B) for j in range(B) if i != j and f(i, j) < limit]
            right = sum(label[i] == label[j] for i, j in near)
            assert ours["mined"] == pytest.approx(len(near) / B), name
            assert ours["recall"] == pytest.approx(right / 12)
            assert ours["precision"] == (pytest.approx(right / len(near)) if near else None)
    assert any(r["mined"] for r in mined.values())
    assert any(r["precision"] not in (None, 1) for r in mined.values())


def test_balanced_batches():
    distances = importlib.import_module("distances")
    label = [0] * 7 + [1] * 9 + [2] * 6
    batches = distances.balanced(label, 3, 9)
    assert len(batches) == 2 and len({i for b in batches for i in b}) == 18
    assert all(sorted(label[i] for i in b) == [0] * 3 + [1] * 3 + [2] * 3 for b in batches)
    assert batches == distances.balanced(label, 3, 9) != distances.balanced(label, 3, 9, seed=1)


def test_worlds(tmp_path):
    "Two runs of an experiment on tiny videos; a second call makes nothing again."
    options = (
        "letter --seeds 1 --size tiny --runs r --only 'beta 1e-4' 'one pair a video' --out out.json"
    )
    changes = dict(epochs=2, batch=8, length=4)
    out = written(on_few("worlds", options, tmp_path, **changes), tmp_path / "out.json")
    [seed] = out["seeds"]
    rows = {r["run"]: r for r in seed["rows"]}
    assert seed["premise"] == {"one pair a video, mined": 1.0}
    assert rows["one pair a video"]["mined"] == 1.0
    assert len({r["clips"] for r in rows.values()}) == 1
    for r in rows.values():
        assert all(0 <= r[k] <= 1 for k in ("r1", "cosine", "match")) and len(r["fifths"]) == 5
        assert r["mixed"]["1"] == r["masked"]["0.0"] != r["mixed"]["2"] and len(r["by_class"]) == 8
    again = on_few("worlds", options, tmp_path, **changes)
    assert written(again, tmp_path / "out.json")["seeds"] == [seed]
    other = on_few("worlds", options, tmp_path, **changes | dict(epochs=3))
    assert other.returncode == 2 and "recipes" in other.stderr
    other = script("worlds", "letter --only 'beta 7' --out out.json", tmp_path)
    assert other.returncode == 2 and "--only" in other.stderr


def test_premises_and_measures_of_worlds(tmp_path):
    """What only some experiments call: colours of positives, an untrained encoder, conflicts of a
    run.
    """
    worlds = importlib.import_module("worlds")
    manifest = read(toy.make(tmp_path / "toy", "tiny", 1, progress=False))
    shares = worlds.colours_of_positives(tmp_path, manifest, 1, {})
    assert [*shares] == ["colours, BE", "colours, RAD intra", "colours, RAD inter"]
    # a frame of its own video, of another one
    assert shares["colours, BE"] > shares["colours, RAD inter"]
    first = worlds.untrained("residual")(tmp_path, manifest, 1, {})
    assert first["chance"] == 1 / 8 and 0 <= first["untrained, residual"] <= 1
    options = "quadruple --seeds 1 --size tiny --runs r --only MoQuad --out q.json"
    done = script("worlds", options, tmp_path, epochs=2, batch=16, length=4, warmup=0.5)
    [row] = written(done, tmp_path / "q.json")["seeds"][0]["rows"]
    assert sum(row["conflict"].values()) == pytest.approx(1, abs=1e-4) and 0 <= row["rank_n"] <= 1


# ---- real clips


EVIDENCE = dict(backbone="tiny", size=32, length=4, batch=8, queue=24, test_clips=1, negatives=16)


def asked(folder, **options):
    "What `evidence.py` is called with."
    usual = dict(
        folder=folder,
        minutes=60.0,
        seeds=[0, 1],
        changes=EVIDENCE,
        second="residual",
        dry_run=False,
        only=None,
        dtype="float32",
        epochs=None,
    )
    return argparse.Namespace(**usual | options)


def test_the_plan_of_the_evidence(tmp_path, monkeypatch):
    "What a step takes is measured, and what fits is computed; what does not fit is refused."
    monkeypatch.setitem(toy.SIZES, "tiny", FEW)
    evidence = importlib.import_module("evidence")
    manifest = read(toy.make(tmp_path / "toy", "tiny", progress=False))
    machine = evidence.machine_of("cpu", 0, "float32")
    every, folder = evidence.encoders("residual"), tmp_path / "ev"
    times = evidence.timed(manifest, every, EVIDENCE, machine, 0.05)
    assert times["steps"].keys() == {e.name for e in every}
    assert min(*times["steps"].values(), times["video"]) > 0

    # a second for every step and every video: two seeds of 3 steps an epoch, two at a time
    given = {"steps": dict.fromkeys(times["steps"], 1.0), "video": 1.0}
    monkeypatch.setattr(evidence, "timed", lambda *arguments: given)
    stopped = SimpleNamespace(monotonic=lambda: 0.0, strftime=time.strftime)
    monkeypatch.setattr(evidence, "time", stopped)

    def plan(**options):
        return evidence.plan_of(asked(folder, **options), manifest, machine, 2)

    with pytest.raises(ValueError, match="--minutes: .* or fewer --seeds"):
        plan(minutes=1.0)
    assert not folder.exists()
    made = plan()
    videos, steps = made["train"] + made["test"], made["train"] // EVIDENCE["batch"]
    epoch = steps * sum(1.0 if e.whole else 0.5 for e in every)
    left = 0.9 * 3600 - videos * len(every)
    assert made["epochs"] == left // epoch
    assert plan() == json.loads((folder / "plan.json").read_text())
    with pytest.raises(ValueError, match="minutes; name another --folder"):
        plan(minutes=9.0)


def main_of(name, options, monkeypatch, capsys, **changes):
    "A script in this process, also its tasks: exit code, stdout, stderr."
    module = importlib.import_module(name)

    def one_by_one(tasks, processes, *more, **options):
        return at_once(tasks, 1, *more, **options)

    if hasattr(module, "at_once"):
        monkeypatch.setattr(module, "at_once", one_by_one)
    monkeypatch.setattr(sys, "argv", [name, *words_of(options, changes)])
    try:
        code = module.main() or 0
    except SystemExit as e:
        code = e.code
    return code, *capsys.readouterr()


def begin_evidence(tmp_path):
    """A plan of four epochs, the least; of the second seed only what `reach.py` opens is to be
    trained, the rest is made up.
    """
    evidence, home = importlib.import_module("evidence"), tmp_path / "ev"
    manifest = read(toy.make(tmp_path / "toy", "tiny", progress=False))
    machine = evidence.machine_of("cpu", 0, "float32")
    every = evidence.encoders("residual")
    plan = {
        "train": len(manifest.select("train")),
        "test": len(manifest.select("test")),
        "seeds": [0, 1],
        "trainings": 2 * len(every),
        "epochs": 4,
        "asked": evidence.asked_for(asked(home), manifest),
        "begun": "",
    }
    home.mkdir()
    (home / "plan.json").write_text(json.dumps(plan))
    random = evidence.floor(manifest, "residual", EVIDENCE, machine, home)["random"][0]
    repeated = [e.name for e in importlib.import_module("reach").compared(plan)]
    streams = evidence.both("residual", every)
    names = [e.name for e in every if e.name not in repeated]
    names += [f"both {of[0]}" for of in streams.values()]
    for name in names:
        run = evidence.run_of(home, 1, name)
        run.mkdir(parents=True)
        (run / "measured.json").write_text(json.dumps(random))
    return evidence, manifest, plan


def test_frame_order(tmp_path):
    "Every share is that of the answers in the file; a second call trains nothing again."
    manifest = read(toy.make(tmp_path / "toy", "tiny", progress=False))
    options = "--data toy --epochs 4 --only infonce --seeds 0 1 --folder runs --out out.json"
    out = written(on_few("frame_order", options, tmp_path, **EVIDENCE), tmp_path / "out.json")
    tests = manifest.select("test")
    assert out["test"] == len(tests) and out["train"] == len(manifest.select("train"))
    assert out["recordings"] == len({*out["source"]}) and len(out["source"]) == len(tests)
    assert [r["name"] for r in out["rows"]] == ["random weights", "infonce"]
    for row in out["rows"]:
        for key, measured in (row["r1"] | {"probe": row["probe"]}).items():
            right = np.array(row["right"][key])
            assert right.shape == (2, len(tests))
            assert measured["share"] == pytest.approx(right.mean())
            low, high = measured["interval"]
            assert low <= measured["share"] <= high
        for order, lost in row["loses"].items():
            whole = row["r1"]["as they are"]["share"]
            assert lost["share"] == pytest.approx(whole - row["r1"][order]["share"])
    untrained, infonce = out["rows"]
    above = infonce["above random weights"]
    gap = infonce["probe"]["share"] - untrained["probe"]["share"]
    assert above["probe"]["share"] == pytest.approx(gap)
    assert len(out["begun with"]["infonce, half"]) == 2 and "above infonce" not in infonce
    weights = sorted(tmp_path.glob("runs/seed*/*/encoder.safetensors"))
    times = [f.stat().st_mtime_ns for f in weights]
    again = on_few("frame_order", options, tmp_path, **EVIDENCE)
    assert written(again, tmp_path / "out.json")["rows"] == out["rows"]
    assert len(weights) == 4 and [f.stat().st_mtime_ns for f in weights] == times
    for wrong, says in (
        (options.replace("--epochs 4", "--epochs 6"), "other epochs; name another --folder"),
        (options.replace("--only infonce", "--only 'infonce, residual'"), "sees no frames"),
        (options.replace("--seeds 0 1", "--seeds 0 0"), "named once"),
    ):
        refused = script("frame_order", wrong, tmp_path, **EVIDENCE)
        assert refused.returncode == 2 and says in refused.stderr, refused.stderr


def test_evidence(tmp_path, monkeypatch, capsys):
    """Killed in the middle, the same command ends with every row; what does not fit is one
    sentence.

    Two processes until it is killed, then this one.
    """
    monkeypatch.setitem(toy.SIZES, "tiny", FEW)
    evidence, manifest, plan = begin_evidence(tmp_path)
    home = tmp_path / "ev"
    options = "--data toy --seeds 0 1 --folder ev"
    whole = f"{options} --minutes 60 --out out.json"
    words = words_of(whole, EVIDENCE)
    first = warm.Command(words, tmp_path, script=BENCHMARKS / "evidence.py")
    while "coclr, seed 0" not in first.stdout and first.poll() is None:
        time.sleep(0.02)
    first.kill_all()
    assert not (tmp_path / "out.json").exists()

    monkeypatch.chdir(tmp_path)
    here = dict(monkeypatch=monkeypatch, capsys=capsys)
    code, printed, wrong = main_of("evidence", whole, **here, **EVIDENCE)
    assert code == 0, wrong
    out = json.loads((tmp_path / "out.json").read_text())
    assert json.loads((home / "plan.json").read_text()) == plan and len(out["rows"]) == 20
    rows = {r["name"]: r for r in out["rows"]}
    for name, r in rows.items():
        for measure in ("r1", "probe", "few"):
            low, high = r[f"{measure}_interval"]
            assert low - 1e-9 <= r[measure] <= high + 1e-9, (name, measure)
    files = sorted(home.glob("seed*/simclr/measured.json"))
    of_seeds = [statistics.mean(json.loads(f.read_text())["r1"]) for f in files]
    assert rows["simclr"]["r1"] == pytest.approx(statistics.mean(of_seeds))
    # what is kept of each video and seed gives means and intervals again
    bootstrap = importlib.import_module("intervals").Bootstrap(out["source"], 2000)
    middle = importlib.import_module("intervals").middle_95
    for r in rows.values():
        for measure, digits in r["right"].items():
            mean, draws = bootstrap.share([[*map(int, seed)] for seed in digits])
            assert r[measure] == pytest.approx(mean)
            assert r[f"{measure}_interval"] == pytest.approx(middle(draws))

    one_schedule = rows["infonce, one schedule"]
    gap = rows["simclr"]["r1"] - one_schedule["r1"]
    assert rows["simclr"]["r1_gap"] == pytest.approx(gap) and "coclr, both" in printed
    compared = {n for n, r in rows.items() if r["against"] == "infonce, one schedule"}
    assert compared == {*evidence.ONE_SCHEDULE}
    assert rows["coclr"]["clips"] == rows["infonce"]["clips"] == one_schedule["clips"] / 2

    halves = "infonce, half", "infonce, half, residual"
    trainings = {  # of whom a row takes the seconds
        "simclr": ("simclr",),
        "coclr": ("coclr", *halves),
        "coclr, residual": ("coclr, residual", "coclr", *halves),
        "infonce, both": ("infonce", "infonce, residual", *halves),
    }
    for name, parts in trainings.items():
        seconds = sum(rows[part]["seconds"] for part in parts)
        assert rows[name]["seconds_with_helpers"] == pytest.approx(seconds), name

    for more, says in (
        ("--minutes 9", "minutes; name another --folder"),
        ("--epochs 2", "--epochs 2"),
        ("--only coclr", "minutes, only"),
        ("--only none", "--only"),
    ):
        code, _, wrong = main_of("evidence", f"{options} {more}", **here, **EVIDENCE)
        assert code == 2 and says in wrong, (more, wrong)
    reach(home, plan, rows, **here)


def reach(home, plan, rows, **here):
    "Half of the videos, beside the evidence run."
    options = "--data toy --like ev --out reach.json"
    code, _, wrong = main_of("reach", options, **here, videos=[0.5])
    assert code == 0, wrong
    out = json.loads((home.parent / "reach.json").read_text())
    assert [r["what"] for r in out["rows"]] == ["videos"] * 2
    assert out["rows"][1]["to"] == plan["train"]
    assert out["rows"][1]["coclr"]["r1"] == rows["coclr"]["r1"]
    half = read(home / "reach" / "videos-0.5")
    assert len(half.select("train")) < plan["train"] and half.select("test")


def test_trainings_that_are_chosen():
    "With those that they begin with or mine with; two streams where both are there."
    evidence = importlib.import_module("evidence")
    some = evidence.chosen("flow", ["coclr", "labels"])
    assert [e.name for e in some] == ["infonce, half", "infonce, half, flow", "coclr", "labels"]
    assert not evidence.both("flow", some)
    assert evidence.chosen("flow", None) == evidence.encoders("flow")


def test_intervals_of_the_evidence():
    "Rows that are alike differ by nothing; a shift is found with its sign."
    evidence = importlib.import_module("evidence")
    right = torch.rand(400, generator=torch.Generator().manual_seed(0)) < 0.4
    answers = {measure: right.int().tolist() for measure in evidence.MEASURES}
    seed = answers | {"row": [], "source": list(range(400)), "seconds": 1.0, "clips": 0}
    perfect = seed | {"r1": [1] * 400}
    rows = {"infonce": [seed, seed], "coclr": [seed, seed], "cpr": [perfect, perfect]}
    infonce, coclr, cpr = evidence.intervals(rows)
    share = right.float().mean().item()
    assert infonce["r1"] == pytest.approx(share) and "r1_gap" not in infonce
    assert coclr["r1_gap_interval"] == [0, 0] and "open" in evidence.verdict(coclr)
    assert cpr["r1_gap"] == pytest.approx(1 - share) and "more" in evidence.verdict(cpr)


def test_what_a_doubling_brings():
    "A line through what doubles has the slope of what was put in."
    slope = importlib.import_module("reach").slope
    u = torch.rand(2000, generator=torch.Generator().manual_seed(0))
    found = [
        [{"source": list(range(2000)), "r1": (u < p).int().tolist()}] * 2 for p in (0.3, 0.4, 0.5)
    ]
    line = slope([16, 32, 64], found)
    assert line["doubling"] == pytest.approx(0.1, abs=0.015)
    assert line["interval"][0] < line["doubling"] < line["interval"][1] < 0.13


def test_how_far_the_histogram_is():
    answer = importlib.import_module("reach").answer
    for low, high, words in (
        (0.05, 0.15, "2.0 doublings away"),
        (-0.05, 0.15, "not told apart"),
        (-0.2, -0.05, "does not help"),
    ):
        line = {"doubling": (low + high) / 2, "interval": [low, high]}
        assert words in answer("pixels", line, 0.3, 0.5)
    assert "reached" in answer("pixels", line, 0.6, 0.5)


def test_parts_of_the_videos(tmp_path):
    "Smaller parts lie within larger ones, whole recordings, all classes."
    reach = importlib.import_module("reach")
    m = read(toy.make(tmp_path / "toy", "tiny", progress=False))
    small, large, whole = (reach.part_of(m, share, 1) for share in (0.25, 0.5, 1.0))
    assert small < large < whole == {*m.select("train")}
    assert len({m.rows[i].label for i in small}) == len(m.labels)
    sources = {m.source_id(i) for i in large}
    assert large == {i for i in whole if m.source_id(i) in sources}
    part = read(reach.fewer(m, 0.5, 1, tmp_path / "home"))
    videos = [part.rows[i].video for i in part.select("train")]
    assert videos == [m.rows[i].video for i in sorted(large)]
    assert len(part.select("test")) == len(m.select("test")) and part.decode(0, [0]).shape[0] == 1


def test_motion_by_hand():
    """Flow to the right votes for the first direction, flow down for the third; what stands still
    has its own.
    """
    evidence = importlib.import_module("evidence")
    flow = torch.zeros(3, 2, 4, 6, 6)  # (clip, u and v, T, H, W) px
    flow[0, 0], flow[1, 1] = 5.0, 5.0
    pictures = flow_to_image(flow.movedim(2, 1)).movedim(-1, 1) / 255
    votes = evidence.StoredFlowDirections()(pictures).unflatten(1, (9, 2, 3, 3))
    assert votes.flatten(2).sum(-1).argmax(1).tolist() == [0, 2, 8]
    assert torch.allclose(votes.flatten(1).norm(dim=1), torch.ones(3))
    still, moves = torch.zeros(1, 3, 8, 8, 8), torch.zeros(1, 3, 8, 8, 8)
    moves[:, :, 4:, :2, 6:] = -1.0
    energy = evidence.ChangeEnergy()
    assert energy(still).sum() == 0
    assert energy(moves).unflatten(1, (8, 4, 4)).nonzero()[:, 1:].tolist() == [
        [t, 0, 3] for t in range(4, 8)
    ]


def test_published(tmp_path, monkeypatch, capsys):
    """On made-up features of frames: the class stands in their mean in half of the numbers, and in
    their spread in the others; every row is what a loop over test clips finds.
    """
    published = importlib.import_module("published")
    monkeypatch.setitem(toy.SIZES, "tiny", FEW)
    m = read(toy.make(tmp_path / "toy", "tiny", progress=False))
    label = torch.tensor([m.label_id(row) for row in range(len(m.rows))])
    drawn = torch.Generator().manual_seed(0)
    x = 0.05 * torch.randn(len(m.rows), 8, 32, generator=drawn)
    x[:, :, :16] += functional.one_hot(label, 16)[:, None]
    x[:, ::2, 16:] += 2 * functional.one_hot(label, 16)[:, None]
    cache = tmp_path / "features.npz"
    np.savez(cache, x=x.numpy(), sha256=m.sha256, seconds=3.0)
    monkeypatch.setattr(published, "load_hub", lambda name: None)

    words = ["--data", tmp_path / "toy", "--cache", cache, "--clips", 12, 0, "--seeds", 2]
    out = tmp_path / "out.json"
    monkeypatch.setattr(sys, "argv", ["published.py", *map(str, [*words, "--out", out])])
    published.main()
    made = json.loads(out.read_text())
    few, whole = made["sizes"]
    assert [few["clips"], whole["clips"]] == [12, len(m.select("train"))]
    rows = {r["name"]: r for r in whole["rows"]}
    assert rows["published, mean"]["r1"] == rows["published, spread"]["r1"] == 1
    gap = rows["published, mean"]["above"]["colour histogram"]
    assert gap["r1"] == pytest.approx(1 - rows["colour histogram"]["r1"])
    low, high = gap["r1_interval"]
    assert low <= gap["r1"] <= high
    query, gallery = m.select("test"), m.select("train")
    mean = x.mean(1) - x.mean(1)[gallery].mean(0)
    near = [
        gallery[int(functional.cosine_similarity(mean[q], mean[gallery]).argmax())] for q in query
    ]
    right = [int(label[n] == label[q]) for n, q in zip(near, query)]
    assert rows["published, mean"]["right"] == [right] and made["row"] == query
    head = rows["head by InfoNCE on published"]
    assert head["seeds"] == len(head["right"]) == 2
    assert head["r1"] == pytest.approx(np.mean(head["right"]))

    np.savez(cache, x=x.numpy(), sha256="another", seconds=3.0)
    with pytest.raises(SystemExit):
        published.main()
    assert "another manifest" in capsys.readouterr().err


def test_a_head_learns_to_tell_videos_apart():
    published = importlib.import_module("published")
    drawn = torch.Generator().manual_seed(0)
    video = torch.randn(40, 1, 12, generator=drawn)
    x = video + torch.randn(40, 8, 12, generator=drawn)

    def loss(head):
        with torch.no_grad():
            return float(published.info_nce(head(x[:, :4]), head(x[:, 4:])))

    head, again = published.TemporalHead(12, 3, 16), published.TemporalHead(12, 3, 16)
    before = loss(head)
    published.train_head(head, x, 0, epochs=20)
    published.train_head(again, x, 0, epochs=20)
    assert loss(head) < 0.7 * before
    assert all(torch.equal(a, b) for a, b in zip(head.parameters(), again.parameters()))
    same = torch.eye(3)
    assert published.info_nce(same, same, 0.1) == pytest.approx(
        -math.log(math.e**10 / (math.e**10 + 2)), abs=1e-6
    )


def test_own_clips(tmp_path, monkeypatch, capsys):
    """Killed between two trainings, the same command goes on; parts are nested, whole recordings,
    all classes.
    """
    monkeypatch.setitem(toy.SIZES, "tiny", FEW)
    data = toy.make(tmp_path / "toy", "tiny", progress=False)
    monkeypatch.chdir(tmp_path)
    changes = dict(backbone="tiny", size=32, length=4, batch=8, queue=0, test_clips=1)

    def main(more):
        options = f"--data toy --given toy --steps 2 --side 32 --folder r {more}"
        return main_of("own_clips", options, monkeypatch, capsys, **changes)

    code, _, wrong = main("--clips 12 0 --seeds 1 --out a.json")
    assert code == 0, wrong
    (tmp_path / "r" / "SimCLR-12-random-0" / "measured.json").unlink()
    code, printed, wrong = main("--clips 12 0 --seeds 2 --out b.json")
    assert code == 0 and printed.count("seed 1") == 6, wrong
    a, b = (json.loads((tmp_path / name).read_text()) for name in ("a.json", "b.json"))
    few, whole = b["sizes"]
    assert [few["clips"], whole["clips"]] == [12, len(read(data).select("train"))]
    assert [r["seeds"] for r in few["rows"]] == [1] * 5 + [2] * 6
    for r, before in zip(whole["rows"], a["sizes"][1]["rows"], strict=True):
        assert (r["r1"], r["probe"]) == (before["r1"], before["probe"])

    small, large = (read(tmp_path / "r" / name) for name in ("clips-12", "clips-all"))
    videos = [{m.rows[i].video for i in m.select("train")} for m in (small, large)]
    assert videos[0] < videos[1]
    assert len({row.label for row in small.rows}) == 8
    assert main("--clips 99 --out c.json")[0] == 2


def test_advice_is_what_is_above_both_by_hand():
    "On made-up right and wrong of 100 recordings; the right ones of a name are nested."
    own_clips = importlib.import_module("own_clips")
    counts = {own_clips.HISTOGRAM: 20, own_clips.MOTION: 25, "a bit above": 26, "far above": 60}
    rows = {}
    for name, count in counts.items():
        right = [int(i * 37 % 100 < count) for i in range(100)]
        row = dict.fromkeys(("steps", "videos_seen", "seconds", "train_seconds"), 0)
        row |= dict.fromkeys(own_clips.MEASURES, right)
        rows[name] = [row | {"source": [*range(100)]}]
    table = own_clips.intervals(rows)
    low, high = table[2]["above"][own_clips.MOTION]["r1_interval"]
    assert low <= 0 < high and own_clips.advice(table) == ["far above"]
    assert own_clips.advice(table[:3]) == [own_clips.MOTION]
    above = table[3]["above"][own_clips.HISTOGRAM]
    half = 1.96 * math.sqrt(0.4 * 0.6 / 100)  # the difference is a share of 40 of 100
    assert above["r1"] == pytest.approx(0.4)
    assert above["r1_interval"] == pytest.approx([0.4 - half, 0.4 + half], abs=0.02)
