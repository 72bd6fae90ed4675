"`vssl-nb mine` from the outside: two short runs, what they would mine, and what is refused."

import csv
import json
import math
import statistics
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

import warm
from vssl_nb.app import cli
from vssl_nb.data import toy
from vssl_nb.data.manifest import read
from vssl_nb.measure.features import Features
from vssl_nb.measure.protocols import protocol
from vssl_nb.methods.recipes import find, override
from vssl_nb.runs.cotraining import (
    compare_miners,
    contrastive_network,
    measure_mining,
    mining_networks,
)
from vssl_nb.runs.cotraining import quality_rows
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.ssl.mining import Cascade, TopK
from vssl_nb.training.checkpoints import load
from vssl_nb.training.machine import Machine

QUIET = Machine("cpu", workers=0, progress=False)
SMALL = {"length": 4, "size": 16}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("mine")
    toy.make(root / "toy", "tiny", progress=False)
    for view in ("rgb", "residual"):
        recipe = override(find(f"infonce-toy-{view}"), epochs=1, batch=16, warmup=0.0, **SMALL)
        pretrain(recipe, root / "toy", root / view, machine=QUIET)
    return root


def mine(place, *args):
    return warm.run(["mine", *args, "--device", "cpu", "--workers", "0"], cwd=place)


def test_miners_are_compared(place):
    done = mine(
        place,
        "rgb",
        "--mining",
        "residual",
        "--miners",
        "topk",
        "cascade,stages=2,ratio=0.5",
        "topk,view=rgb",
        "--topk",
        3,
        "--out",
        "found.json",
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "48 candidates; residual mines for rgb"
    assert [line.split()[0] for line in lines[2:5]] == [
        "topk",
        "cascade,stages=2,ratio=0.5",
        "topk,view=rgb",
    ]
    found = json.loads((place / "found.json").read_text())
    assert [q["k"] for q in found] == [3, 3, 3] and all(0 <= q["pmr"] <= 1 for q in found)
    # the order as released ends with the mining view: with two stages that is a single look
    assert found[0]["pmr"] == found[1]["pmr"] and found[0]["class_cmr"] == found[1]["class_cmr"]
    assert (
        len(found[0]["class_cmr"]) == len(read(place / "toy").labels) and 0 <= found[0]["cmr"] <= 1
    )
    # alone, it mines for itself
    assert mine(place, "rgb", "--out", "alone.json").returncode == 0
    assert (
        json.loads((place / "alone.json").read_text())[0]["class_cmr"].keys()
        == found[0]["class_cmr"].keys()
    )


def test_the_network_that_mines_is_the_trained_one(place):
    for view in ("rgb", "residual"):
        kept, network = load(place / view / "last.pt")["method"], contrastive_network(place / view)
        for name, part in zip(("encoder", "projection"), network):
            learned = {
                k.partition(f"{name}.")[2]: v for k, v in kept.items() if f"pair.{name}." in k
            }
            assert learned.keys() == part.state_dict().keys()
            assert all(torch.equal(v, learned[k]) for k, v in part.state_dict().items())


def features(x, label, source):
    return Features(x, torch.tensor(label), torch.arange(len(label)), source, protocol())


@pytest.fixture(scope="module")
def views():
    "40 videos of 20 recordings and three classes, random features of two networks."
    g = torch.Generator().manual_seed(0)
    source = torch.randint(0, 20, (40,), generator=g)
    return {
        v: features(F.normalize(torch.randn(40, 6, generator=g)), (source % 3).tolist(), source)
        for v in ("flow", "rgb")
    }


def slowly(networks, miner, unit, classes):
    "PMR, R@1, R@k and CMR by loops over videos."
    first = next(iter(networks.values()))
    hits, right, nearest, any_right, n = set(), [], [], [], range(len(first))
    for i in n:
        sims = {
            v: torch.tensor([[(f.x[i] * f.x[j]).sum() for j in n]]) for v, f in networks.items()
        }
        same = torch.tensor([[bool(first.source[i] == first.source[j]) for j in n]])
        mask = miner(sims, same)
        taken = [j for j in n if mask[0, j] and not same[0, j]]
        ok = {j: bool(first.label[i] == first.label[j]) for j in taken}
        right += ok.values()
        any_right.append(any(ok.values()))
        nearest.append(ok[max(taken, key=lambda j: next(iter(sims.values()))[0, j])])
        hits |= {j for j in taken if ok[j]}

    def instances(videos, c):
        return {
            int(first.source[j]) if unit == "source" else j for j in videos if first.label[j] == c
        }

    cmr = [len(instances(hits, c)) / len(instances(n, c)) for c in range(classes)]
    return [sum(x) / len(x) for x in (right, nearest, any_right)], cmr


@pytest.mark.parametrize(
    "miner", [TopK(3), TopK(3, "rgb"), Cascade(2, 0.5, 3, "paper"), Cascade(3, 0.6, 3)]
)
@pytest.mark.parametrize("unit", ["source", "video"])
def test_quality_equals_loops_over_videos(views, miner, unit):
    q = measure_mining(views, miner, "abc", unit=unit)
    shares, cmr = slowly(views, miner, unit, 3)
    assert [q.pmr, q.r1, q.rk] == pytest.approx(shares, abs=1e-9)
    assert [*q.class_cmr.values()] == pytest.approx(cmr, abs=1e-6) and [*q.class_cmr] == list("abc")
    assert q.cmr == pytest.approx(statistics.median(cmr), abs=1e-6) and (q.candidates, q.k) == (
        40,
        3,
    )


def test_a_small_memory_is_drawn_once(views):
    small = measure_mining(views, TopK(3), "abc", memory=20)
    assert (small.candidates, small.k) == (20, 3)
    assert small == measure_mining(views, TopK(3), "abc", memory=20)
    assert measure_mining(views, TopK(3), "abc", memory=40) == measure_mining(views, TopK(3), "abc")


def test_videos_without_labels_count_neither_way(views):
    bare = {"flow": replace(views["flow"], label=torch.full((40,), -1))}
    q = measure_mining(bare, TopK(3))
    assert math.isnan(q.pmr) and math.isnan(q.r1) and math.isnan(q.cmr)
    with pytest.raises(ValueError, match="no training video has a label"):
        compare_miners(bare, [], ["topk"])
    label = views["flow"].label.clone()
    label[::3] = -1
    some = {"flow": replace(views["flow"], label=label)}
    source, x = some["flow"].source, some["flow"].x
    told = []
    for i in range(40):
        others = [j for j in range(40) if source[j] != source[i]]
        others = sorted(others, key=lambda j: -float(x[i] @ x[j]))[:3]
        told += [bool(label[i] == label[j]) for j in others if label[i] >= 0 and label[j] >= 0]
    assert measure_mining(some, TopK(3)).pmr == pytest.approx(sum(told) / len(told), abs=1e-9)


def test_what_cannot_be_compared(views, place):
    for miners, says in (
        (["topq"], "did you mean 'topk'"),
        (["topk,stages=7"], "does not take these options"),
    ):
        with pytest.raises(ValueError, match=says):
            compare_miners(views, "abc", miners)
    lost = views | {"rgb": views["rgb"].take(torch.arange(40) > 3)}
    with pytest.raises(ValueError, match="different videos"):
        measure_mining(lost, TopK(3), "abc")
    networks, labels = mining_networks(place / "rgb", machine=QUIET)
    # alone, it mines for itself
    assert list(networks) == ["rgb"] and labels == read(place / "toy").labels


def test_classes_are_compared_with_those_of_the_first(views):
    found = compare_miners(views, list("abc"), ["topk", "topk,view=rgb", "topk"], k=3)
    rows = quality_rows(found)
    assert "against" not in rows[0] and rows[2]["against"] == "won 0, lost 0, tied 3"
    won = sum(found[1].class_cmr[c] > found[0].class_cmr[c] for c in "abc")
    assert rows[1]["against"].startswith(f"won {won}, lost ")


def test_a_run_of_coclr_knows_who_mined_for_it(place):
    recipe = override(
        find("coclr-cpr-toy-rgb-cycle1"), epochs=2, batch=8, queue=32, topk=2, **SMALL
    )
    pretrain(
        recipe,
        place / "toy",
        place / "co",
        machine=QUIET,
        networks={"encoder": place / "rgb", "sampler": place / "residual"},
    )
    log = (place / "co" / "steps.csv").read_text().splitlines()
    cmr = [line.split(",")[log[0].split(",").index("cmr")] for line in log[1:]]
    assert any(c not in ("", "nan") and float(c) > 0 for c in cmr)
    done = mine(place, "co", "--miners", "cascade,stages=2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("48 candidates; residual mines for rgb")


def test_each_class_over_the_epochs(place):
    """`mining.csv` says of each class what `steps.csv` says of all; a stopped run ends with the
    same file.
    """
    recipe = override(
        find("coclr-cpr-toy-rgb-cycle1"), epochs=3, batch=8, queue=16, topk=2, **SMALL
    )
    networks = {"encoder": place / "rgb", "sampler": place / "residual"}
    given = {"machine": QUIET, "networks": networks}
    pretrain(recipe, place / "toy", place / "whole", **given)
    pretrain(recipe, place / "toy", place / "parts", max_steps=8, **given)
    pretrain(recipe, place / "toy", place / "parts", resume=True, machine=QUIET)
    assert (place / "parts" / "mining.csv").read_text() == (
        place / "whole" / "mining.csv"
    ).read_text()
    with (place / "whole" / "mining.csv").open(newline="") as f:
        classes = list(csv.DictReader(f))
    with (place / "whole" / "steps.csv").open(newline="") as f:
        steps = list(csv.DictReader(f))
    labels = read(place / "toy").labels
    assert list(classes[0]) == [
        "step",
        "epoch",
        *(f"{w}/{c}" for w in ("cmr", "pmr") for c in labels),
    ]
    assert [r["epoch"] for r in classes] == ["0", "1", "2"]
    for line in classes:
        epoch = [r for r in steps if r["epoch"] == line["epoch"]]
        assert line["step"] == epoch[-1]["step"]
        found = [float(line[f"cmr/{c}"]) for c in labels]
        assert (
            statistics.median_low(found) <= float(epoch[-1]["cmr"]) <= statistics.median_high(found)
        )
    # the queue is full, so each query takes two
    last = [r for r in steps if r["epoch"] == "2"]
    queries = Counter(r.label for r in read(place / "toy").rows if r.split1 == "train")
    mean = sum(float(classes[-1][f"pmr/{c}"]) * queries[c] for c in labels) / sum(queries.values())
    assert abs(mean - statistics.mean(float(r["mined"]) for r in last)) < 1e-6
    assert all(float(r["mined_r1"]) <= float(r["mined_rk"]) <= 1 for r in last)


def test_a_run_of_iic_tells_its_mining_too(place):
    recipe = override(find("iic-cpr-toy"), epochs=2, batch=8, negatives=16, topk=(1, 2), **SMALL)
    pretrain(recipe, place / "toy", place / "iic", machine=QUIET)
    with (place / "iic" / "mining.csv").open(newline="") as f:
        classes = list(csv.DictReader(f))
    with (place / "iic" / "steps.csv").open(newline="") as f:
        last = list(csv.DictReader(f))[-1]
    labels = read(place / "toy").labels
    found = [float(classes[-1][f"cmr/{c}"]) for c in labels]
    assert [r["epoch"] for r in classes] == ["0", "1"] and max(found) > 0
    assert statistics.median_low(found) <= float(last["cmr"]) <= statistics.median_high(found)
    assert all(0 <= float(classes[-1][f"pmr/{c}"]) <= 1 for c in labels)
    assert float(last["mined"]) <= float(last["mined_rk"]) <= 1


@pytest.mark.parametrize(
    "words, says",
    [
        (("rgb", "--miners", "topq"), "did you mean 'topk'?"),
        (("rgb", "--miners", "cascade"), "there is only"),
        (("rgb", "--mining", "residual", "--miners", "cascade,stages=9"), "use at most"),
        (
            ("rgb", "--mining", "residual", "--miners", "cascade,order=flow"),
            "asks for a view 'flow'",
        ),
        (("rgb", "--mining", "rgb"), "both look at rgb"),
        (("rgb", "--memory", "99"), "use 1 to 48"),
        (("rgb", "--topk", "0"), "--topk 0: must be 1 or more"),
        (("rgb", "--out", "x.txt"), "must end in .json"),
        (("nowhere",), "nowhere"),
        (("toy/manifest.csv",), "is a file; name the run folder"),
        (("rgb", "--mining", "toy"), "so toy is not a run"),
        (("rgb", "--data", "nowhere"), "nowhere"),
        (("rgb", "--out", "toy/manifest.csv/found.json"), "is a file, not a folder"),
    ],
)
def test_what_is_refused(place, words, says, capsys, monkeypatch):
    monkeypatch.chdir(place)
    before = {p for p in place.rglob("*") if "features" not in p.parts}
    code = cli.main(["mine", *words, "--device", "cpu", "--workers", "0"])
    told = capsys.readouterr().err
    assert code == 2 and says in told, told
    assert told.splitlines()[-1].startswith("vssl-nb: ") and "Traceback" not in told
    assert {p for p in place.rglob("*") if "features" not in p.parts} == before
