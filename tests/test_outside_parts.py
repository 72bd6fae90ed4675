"""Packages of somebody else in `outside/`: a masked method, and a view with an option.

None of our files changes for them. `test_outside.py` does the same through the command line, and
`test_other_methods.py` has LeJEPA with clips of two sizes.
"""

import csv
import importlib
from pathlib import Path

import pytest
import torch

from vssl_nb.contracts import Encoder, Method
from vssl_nb.data import toy
from vssl_nb.data.views import Views
from vssl_nb.methods.recipes import override
from vssl_nb.nets.backbones import create
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.training.checkpoints import load, read_encoder

QUIET = dict(device="cpu", workers=0, progress=False)


@pytest.fixture(scope="module")
def packages():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent / "outside"))
        yield importlib.import_module


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos") / "toy"
    return toy.make(folder, size="tiny", progress=False)


def numbers(run, column):
    with (run / "steps.csv").open() as file:
        return [float(row[column]) for row in csv.DictReader(file)]


def test_a_masked_method_learns(packages, videos, tmp_path):
    recipe = packages("masked.recipes").masked
    encoder = create("masked.method:two_blocks", seed=1)
    method = packages("masked.method").Masked(encoder, "residual", 0, 0.25, 0.9)
    assert isinstance(method, Method) and isinstance(encoder, Encoder)
    assert [name for name in encoder.blocks if name.startswith("block")] == ["block0", "block1"]

    run = pretrain(override(recipe, epochs=6), videos, tmp_path / "run", **QUIET)
    loss = numbers(run, "loss")
    assert sum(loss[-4:]) < 0.9 * sum(loss[:4])


def test_the_slow_copy_begins_with_the_weights_of_the_run(packages, videos, tmp_path):
    recipe = packages("masked.recipes").masked
    first = pretrain(recipe, videos, tmp_path / "first", **QUIET)
    # a rate of 0, so that what the networks begin with is what they end with
    still = override(recipe, lr=0.0, epochs=1, momentum=1.0)
    second = pretrain(still, videos, tmp_path / "second", networks={"encoder": first}, **QUIET)
    begun = load(second / "last.pt")["method"]
    given = load(first / "last.pt")["method"]
    names = [name for name in given if name.startswith("encoder.")]
    assert len(names) > 10
    for name in names:
        assert torch.equal(begun[name], given[name]), name
        copy = name.replace("encoder.", "target.", 1)
        assert torch.equal(begun[copy], given[name]), f"{copy} kept its random weights"


def test_the_slow_copy_is_exported_and_weight_decay_has_a_schedule(packages, videos, tmp_path):
    recipe = override(packages("masked.recipes").masked, weight_decay=0.04, weight_decay_end=0.4)
    run = pretrain(recipe, videos, tmp_path / "run", **QUIET)
    exported = read_encoder(run / "encoder.safetensors", outside=True)[0].state_dict()
    state = load(run / "last.pt")
    for name, weight in exported.items():
        assert torch.equal(weight, state["method"][f"target.{name}"]), name
    assert not torch.equal(exported["norm.weight"], state["method"]["encoder.norm.weight"])
    decay = {group["weight_decay"] for group in state["opt"]["param_groups"]}
    assert len(decay) == 1 and 0.3 < decay.pop() <= 0.4


def test_a_view_without_a_word_about_its_option(packages):
    packages("brightness")
    clips = torch.rand(2, 1, 3, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    made = Views("brightness:brightness").from_floats(clips)["brightness:brightness"]
    assert torch.allclose(made, (clips.mean(2, keepdim=True) - 0.5).expand_as(clips))


def test_a_view_with_an_option(packages):
    packages("brightness")
    clips = torch.rand(2, 1, 3, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    name = "brightness:brightness"
    plain = Views(name).from_floats(clips)[name]
    strong = Views((name, "rgb"), gain=3.0).from_floats(clips)
    assert torch.allclose(strong[name], 3 * plain)
    assert torch.equal(strong["rgb"], Views("rgb").from_floats(clips)["rgb"])
    with pytest.raises(ValueError, match="gian"):
        Views(name, gian=3.0)
