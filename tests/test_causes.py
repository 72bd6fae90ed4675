"""Options that isolate causes: one view or two, own negatives without a second view, and positives
that are as often right as those of a miner.
"""

from collections import Counter

import numpy as np
import pytest
import torch

from vssl_nb.config import TrainingVideos, refuse_unfit
from vssl_nb.data import toy
from vssl_nb.fields import RecipeError
from vssl_nb.methods.iic import IIC
from vssl_nb.methods.recipes import find, override
from vssl_nb.nets.backbones import create
from vssl_nb.runs.experiment import BlankVideos, resolve
from vssl_nb.ssl.broken_clips import intra_negatives, intra_order, sampled_ids
from vssl_nb.ssl.mining import as_if_mined
from vssl_nb.training.machine import Machine

QUIET = Machine("cpu", progress=False)
NAMES = tuple(f"{n}.mp4" for n in range(40))
VIDEOS = TrainingVideos("manifest.csv", NAMES, (0,) * 40, tuple(range(40)))
PLAIN = dict(normalise=True, intra_gradient=True, negatives=9, dim=8, head="projection")


def small(**fields):
    return IIC(create("tiny", widths=(4, 6), strides=((2, 2), (2, 2))), 12, **PLAIN | fields)


def clips(n=1, seed=0):
    x = torch.randn(4, n, 3, 4, 8, 8, generator=torch.Generator().manual_seed(seed))
    return {"rgb": x, "residual": x.flip(3), "index": torch.arange(4), "step": 3}


def unit(x):
    return x / x.norm(dim=1, keepdim=True)


def test_a_single_view_is_compared_with_rows_of_its_own():
    method, batch = small(second_view=None, intra="shuffle"), clips()
    assert method.bank.views == ("rgb", "intra")
    loss, _ = method(batch)

    x = batch["rgb"][:, 0]
    q = unit(method.projection(method.encoder(x)))
    broken = intra_negatives(x, intra_order("shuffle", 4, 4, 0, 3), "shuffle")
    n = unit(method.projection(method.encoder(broken)))
    twin = small(second_view=None, intra="shuffle")  # the rows before
    ids = sampled_ids(batch["index"], 12, 9, 0, 3)
    expected = 0.0
    for i in range(4):
        own = [q[i] @ twin.bank["rgb"][j] for j in ids[i]]
        other = [q[i] @ n[i], *(q[i] @ twin.bank["intra"][j] for j in ids[i, 1:])]
        logits = torch.stack(own + other) / 0.07
        expected = expected - logits.log_softmax(0)[0] / 4
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)


def test_without_broken_clips_the_second_view_alone_is_compared():
    method = small(intra=None)
    loss, logs = method(clips())
    assert method.bank.views == ("rgb", "residual") and logs["intra"] == 0
    loss.backward()
    assert all(p.grad is not None for p in method.parameters())


def test_reversed_clips_go_backwards():
    x = clips()["rgb"][:, 0]
    assert torch.equal(intra_negatives(x, intra_order("reverse", 4, 4, 0, 3), "reverse"), x.flip(2))


def test_a_sampled_negative_is_the_second_clip():
    method = small(second_view=None, intra="sampled")
    assert method.settings.clips == ("x", "n")
    encoded = method.encode(clips(2), (0, 3, 0))
    expected = method.features(clips(2)["rgb"][:, 1])
    assert torch.allclose(encoded["intra"], expected, atol=1e-5)

    recipe = override(
        find("iic-toy"),
        intra="sampled",
        second_view=None,
        clips=2,
        motion="speed",
        motion_clips=(1,),
        batch=8,
    )
    experiment = resolve(recipe, BlankVideos(40), QUIET)
    loss, _ = experiment.method(experiment.views(next(iter(experiment.batches))))
    assert loss.isfinite()
    with pytest.raises(RecipeError, match="motion_clips"):
        refuse_unfit(override(recipe, motion_clips=(0,)), VIDEOS)


@pytest.mark.parametrize("precision", [0.2, 0.35, 0.5, 1.0])
def test_positives_are_right_as_often_as_asked_for(precision):
    rng = np.random.default_rng(0)
    same = torch.from_numpy(rng.random((6, 200)) < 0.3)
    closed = torch.from_numpy(rng.random((6, 200)) < 0.2)
    number = torch.from_numpy(rng.random((6, 200)))
    taken = as_if_mined(same, closed, number, 20, precision)
    assert not (taken & closed).any() and (taken.sum(1) == 20).all()
    assert ((taken & same).sum(1) == round(20 * precision)).all()
    again = as_if_mined(same, closed, torch.from_numpy(rng.random((6, 200))), 20, precision)
    assert not torch.equal(taken, again)


def test_ubernce_takes_no_more_keys_than_a_miner_would():
    recipe = override(find("ubernce-toy-rgb"), topk=4, precision=0.5, drop_own=1.0, queue=64)
    method = resolve(override(recipe, batch=8), BlankVideos(40, 4), QUIET).method.train()
    g = torch.Generator().manual_seed(0)
    for step in range(9):
        batch = {
            "rgb": torch.rand(8, 2, 3, 4, 16, 16, generator=g),
            "label": torch.arange(8) % 4,
            "source": torch.arange(8) + 8 * step,
            "row": torch.arange(8),
            "step": step,
        }
        loss, logs = method(batch)
        method.after_step(batch)
    assert logs["mined"] == 0.5 and logs["positives"] == 4 and loss.isfinite()
    with pytest.raises(RecipeError, match="topk=0 takes all"):
        refuse_unfit(override(find("ubernce-toy-rgb"), precision=0.5), VIDEOS)
    with pytest.raises(RecipeError, match="topk=600 is more than"):
        refuse_unfit(override(find("ubernce-toy-rgb"), topk=600), VIDEOS)


def test_where_a_class_is_motion_and_scene_a_conflict_keeps_the_kind_of_scene():
    settings = toy.configure("demo", 3, classes="both")
    plan = toy.plan_toy(settings)
    assert len(plan) == 960 and len({row.label for row, _ in plan}) == 16
    assert Counter(row.split1 for row, _ in plan) == {"train": 704, "test": 256}

    label_of = {row.source: row.label for row, _ in plan}
    queries = toy.plan_conflict(settings)
    for row, arguments in queries:
        motion, kind = label_of[row.source].split("_scene_")
        assert row.label.endswith(f"_scene_{kind}") and not row.label.startswith(f"{motion}_")
        assert arguments["scene"] == int(kind) - 1
    pairs = Counter((label_of[row.source], row.label) for row, _ in queries)
    assert len(pairs) == 48 and max(pairs.values()) - min(pairs.values()) <= 0
    # scenes of a kind differ from video to video
    first = [a for row, a in plan if row.label == "spin_scene_1" and a["take"] == 0][:2]
    stills = [toy.video(**a, at=[0])[0, :8].mean((0, 1)) for a in first]
    assert np.abs(stills[0] - stills[1]).max() > 2

    with pytest.raises(toy.ToyError, match="leave bias out"):
        toy.configure(classes="both", bias=0.5)


def test_conflicts_of_motions_are_those_of_before():
    settings = toy.configure("tiny", 5)
    labels = [*toy.CLASS_TABLES["motions"]]
    for row, arguments in toy.plan_conflict(settings):
        _, c, g = arguments["seed"]
        assert row.label == labels[(c + 1 + g % (len(labels) - 1)) % len(labels)]


def test_the_own_key_is_dropped_where_there_are_others():
    recipe = override(find("ubernce-toy-rgb"), drop_own=1.0, queue=8, batch=8)
    method = resolve(recipe, BlankVideos(40, 4), QUIET).method.train()
    match = torch.zeros(2, 9, dtype=torch.bool)
    match[:, 0] = match[0, 3] = True
    dropped, _ = method.positives(match, {"label": torch.zeros(2), "step": 0})
    assert dropped[:, 0].tolist() == [False, True] and dropped[0, 3]
    kept, _ = method.eval().positives(match, {"label": torch.zeros(2), "step": 0})
    assert torch.equal(kept, match)
