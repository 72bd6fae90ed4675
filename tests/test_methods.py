"What every method of ours keeps: settings are written once, and reach the class."

import subprocess
import sys
from dataclasses import fields

import pytest
import torch

from vssl_nb.methods.moquad import quadruple_loss
from vssl_nb.methods.recipes import METHODS, RECIPES, find, override
from vssl_nb.fields import RecipeError
from vssl_nb.nets.backbones import create
from vssl_nb.training.machine import Machine
from vssl_nb.runs.experiment import BlankVideos, resolve
from vssl_nb.ssl.losses import mil_nce, supcon, topk_accuracy

# one field of each method's own, with a value that is not its default
OTHER = {
    "infonce": dict(queue=64, temperature=0.2),
    "ubernce": dict(form="mil_nce"),
    "simclr": dict(dim=16),
    "byol": dict(momentum=0.5),
    "lejepa": dict(tradeoff=0.1, local_size=32),
    "masked": dict(mask="frames", predictor_depth=2),
    "coclr": dict(topk=3, drop_own=0.5),
    "iic": dict(negatives=8, intra="repeat"),
    "moquad": dict(alpha=2.0),
    "provico": dict(samples=4, doubt="none"),
    "supervised": dict(batchnorm=True, dropout=0.5),
}
# where it needs tokens
BACKBONE = {"masked": "vit_toy"}
# what its class is told of the dataset
MORE = {"iic": dict(videos=16), "supervised": dict(classes=4)}


def first_recipe(name):
    own = [r for r in RECIPES.values() if r.method.name == name]
    # of fine-tuning
    return own[0] if own else override(find("infonce-toy-rgb"), method=METHODS[name]())


def test_every_method_is_tried_here():
    assert OTHER.keys() == METHODS.keys()


@pytest.mark.parametrize("name", METHODS)
def test_settings_reach_the_method(name):
    """A class makes its settings from the fields it is given; the others have the default of the
    settings.
    """
    backbone = BACKBONE.get(name, "tiny")
    recipe = override(first_recipe(name), backbone=backbone, size=32, **OTHER[name])
    method = resolve(recipe, BlankVideos(16, 4), Machine("cpu")).method
    assert method.settings == recipe.method != METHODS[name]()
    networks = {k: create(backbone) for k in recipe.networks} | MORE.get(name, {})
    default = type(method)(**networks)
    assert default.settings == METHODS[name]()
    assert {p.name for p in fields(METHODS[name])} == vars(default.settings).keys()
    with pytest.raises(TypeError, match="temprature"):
        type(method)(**networks, temprature=1.0)
    wrong = {{"supervised": "samples", "masked": "predictor_depth"}.get(name, "dim"): 0}
    with pytest.raises(RecipeError, match="=0 must be 1 or more"):
        type(method)(**networks, **wrong)


@pytest.mark.parametrize("name", METHODS)
def test_an_encoder_that_is_assigned_is_the_one_that_learns(name):
    backbone = BACKBONE.get(name, "tiny")
    recipe = override(first_recipe(name), backbone=backbone, size=32, **OTHER[name])
    method = resolve(recipe, BlankVideos(16, 4), Machine("cpu")).method
    owner = getattr(method, "pair", method)
    owner.encoder = other = create(backbone, seed=9)
    assert method.encoder is other and sum(m is other for m in method.modules()) == 1


def test_recipes_are_read_without_torch():
    code = (
        "import sys; from vssl_nb.methods.recipes import RECIPES; assert len(RECIPES) >= 80; "
        "assert not {'torch', 'numpy'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_recipe_of_every_method_is_published_by_its_name():
    # has presets instead
    assert {r.method.name for r in RECIPES.values()} == METHODS.keys() - {"supervised"}
    assert all(find(name).name == name for name in RECIPES)


@pytest.mark.parametrize(
    "loss",
    [mil_nce, supcon, lambda sim, match, T: quadruple_loss(sim, {"p": match}, temperature=T)],
    ids=["mil_nce", "supcon", "quadruple_loss"],
)
@pytest.mark.parametrize("temperature", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_temperature_that_is_none_is_refused(loss, temperature):
    with pytest.raises(ValueError, match=rf"temperature={temperature} must be above 0"):
        loss(torch.eye(3), torch.eye(3) > 0, temperature)


def test_no_accuracy_of_similarities_that_are_none():
    """Not 100 %: a collapsed training would look perfect.

    It is no error, which would hide that of the loss.
    """
    sim, match = torch.eye(3), torch.eye(3) > 0
    assert topk_accuracy(sim, match, 1) == 1
    for i, j in ((0, 0), (0, 1)):  # the match, another candidate
        torn = sim.clone()
        torn[i, j] = torch.nan
        assert topk_accuracy(torn, match, 1).isnan()
    with pytest.raises(ValueError, match="k=0 is no number of guesses"):
        topk_accuracy(sim, match, 0)
