"""A recipe becomes objects once: fields meet the functions that take them, also in a method from
outside; weights reach all that a method declares.
"""

import inspect
import math
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from torch import nn

from vssl_nb.config import Augment, Sampling
from vssl_nb.fields import RecipeError
from vssl_nb.data import augmentation as augment, toy
from vssl_nb.data.dataset import TrainClips
from vssl_nb.data.manifest import read
from vssl_nb.data.sampling import random_clips
from vssl_nb.methods.recipes import find, override
from vssl_nb.nets.backbones import create
from vssl_nb.runs.experiment import BlankVideos, PlateauSchedule, resolve, training_draw
from vssl_nb.runs.pretraining import initialise_networks, pretrain, training_notes
from vssl_nb.ssl.memory import momentum_copy, named_clips
from vssl_nb.training.checkpoints import load, read_encoder
from vssl_nb.training.loop import TrainError, TrainingState, fit
from vssl_nb.training.machine import Machine

QUIET = Machine("cpu", progress=False)


def parameters(function):
    return set(inspect.signature(function).parameters)


def test_every_field_has_a_function_that_takes_it():
    assert {f.name for f in fields(Sampling)} - {"same"} <= parameters(random_clips)
    assert "same" in parameters(TrainClips)
    still = parameters(augment.draw_appearance)
    assert {f.name for f in fields(Augment)} - {"augmentation"} <= parameters(augment.draw) | still
    disturbance = {f.name for f in fields(Augment)} & still
    assert disturbance == {"appearance", "appearance_clips", "windows", "strength", "window_frames"}
    keywords = [training_draw(find(name)).keywords for name in ("infonce-toy-rgb", "moquad-toy")]
    assert [disturbance & {*k} for k in keywords] == [set(), disturbance]
    assert [find(name).sampling.span for name in ("infonce-toy-rgb", "moquad-toy")] == [16, 31]


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return read(toy.make(tmp_path_factory.mktemp("toy") / "videos", size="tiny", progress=False))


def test_one_step_with_the_parts_of_a_recipe(manifest):
    recipe = override(find("infonce-toy-rgb"), batch=8, epochs=2, length=4)
    experiment = resolve(recipe, manifest, QUIET)
    batch = experiment.views(next(iter(experiment.batches)))
    loss, logs = experiment.method(batch)
    loss.backward()
    experiment.optimizer.step()
    assert batch["rgb"].shape == (8, 2, 3, 4, 32, 32) and {"top1", "top5"} <= {*logs}
    assert len(experiment.clips) == len(manifest.select("train"))
    assert {field: rate(0.0) for field, rate in experiment.schedules.items()} == {"lr": 0.0}
    assert experiment.optimizer.param_groups[0]["lr"] == recipe.learning.lr
    assert experiment.networks == {"encoder": experiment.exported}


def test_nothing_large_is_made_before_it_is_asked_for(manifest):
    experiment = resolve(override(find("infonce-laptop-rgb"), dim_hidden=10**9), manifest, QUIET)
    assert experiment.view_options and experiment.schedules and "method" not in vars(experiment)


def test_experiments_on_videos_that_need_not_exist():
    experiment = resolve(override(find("iic-toy"), batch=8), BlankVideos(1000), QUIET)
    batch = experiment.views(next(iter(experiment.batches)))
    assert len(batch["label"]) == 8 and experiment.method(batch)[0].isfinite()
    shapes = [t.shape for t in experiment.method.state_dict().values()]
    assert any(1000 in shape for shape in shapes), "a bank with a row for each video"
    with pytest.raises(TypeError):
        experiment.manifest


def test_what_does_not_fit_is_refused(manifest):
    with pytest.raises(TrainError, match="batch=5000"):
        resolve(override(find("infonce-toy-rgb"), batch=5000), manifest, QUIET).method
    with pytest.raises(RecipeError, match="queue=4"):
        resolve(override(find("infonce-toy-rgb"), batch=8, queue=4), manifest, QUIET).method
    with pytest.raises(ValueError, match="did you mean 'tiny'"):
        resolve(override(find("infonce-toy-rgb"), backbone="tinny"), manifest, QUIET).method


# -- schedules


def factors(at, **changes):
    "Field of the optimizer -> its factors at these epochs."
    schedules = resolve(override(find("infonce-toy-rgb"), **changes)).schedules
    return {field: [schedule(epoch) for epoch in at] for field, schedule in schedules.items()}


def test_a_cosine_ends_at_its_floor():
    at = (0.0, 1.0, 2.0, 6.0, 10.0)
    plain = factors(at, epochs=10, warmup=2.0)["lr"]
    raised = factors(at, epochs=10, warmup=2.0, lr_floor=0.2)["lr"]
    assert plain == pytest.approx([0, 0.5, 1, 0.5, 0]) == factors(at, epochs=10, warmup=2.0)["lr"]
    assert raised == pytest.approx([0, 0.5, 1, 0.6, 0.2])


def test_weight_decay_follows_a_cosine_of_its_own(manifest):
    changes = dict(epochs=4, weight_decay=0.04, weight_decay_end=0.4, optimizer="adamw", batch=8)
    assert factors((0, 2, 4), **changes)["weight_decay"] == pytest.approx([1, 5.5, 10])
    recipe = override(find("infonce-toy-rgb"), **changes)
    experiment = resolve(recipe, manifest, QUIET)
    run = TrainingState(experiment.method, experiment.optimizer)
    decays = []
    for _ in fit(run, experiment.batches, experiment.views, experiment.schedules):
        decays.append(run.opt.param_groups[0]["weight_decay"])
    share = (len(decays) - 1) / len(decays)
    last = 0.4 + (0.04 - 0.4) * (1 + math.cos(math.pi * share)) / 2
    assert decays[0] == 0.04 and decays[-1] == pytest.approx(last)
    with pytest.raises(RecipeError, match="weight_decay_end=0.4"):
        override(recipe, weight_decay=0.0)


def test_a_plateau_is_that_of_torch():
    ours = PlateauSchedule(2, 0.01)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 1.0)
    reference = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2, min_lr=0.01)
    losses = [3, 2, 2, 2, 2, 1, 1, 1, 1, 1, 0.9999999, 1, 1, 1, 0.5]
    for i, loss in enumerate(losses):
        ours.step(loss), reference.step(loss)
        assert ours(0.0) == optimizer.param_groups[0]["lr"]
        if i == 6:  # stopped, and gone on with
            state, ours = ours.state_dict(), PlateauSchedule(2, 0.01)
            ours.load_state_dict(state)
    assert ours(0.0) == pytest.approx(0.01)


def test_a_shortened_warmup_is_said(manifest):
    short = override(find("infonce-toy-rgb"), epochs=1, warmup=1.0, batch=8)
    (note,) = training_notes(resolve(short, manifest, QUIET))
    assert "warmup=1" in note and "--warmup" in note
    assert factors((0.25, 0.5), epochs=1, warmup=1.0)["lr"] == [0.5, 1.0]
    assert not training_notes(resolve(override(short, warmup=0.5), manifest, QUIET))


# -- a stranger's method


class Slow(nn.Module):
    "A prediction of what a slow copy says; the copy is exported."

    exported = "target"

    def __init__(self, encoder, view="rgb", seed=0):
        super().__init__()
        self.view = view
        self.encoder = encoder
        self.target = momentum_copy(encoder)[0]

    def copies(self):
        return {"encoder": [self.target]}

    def forward(self, batch):
        x, y = named_clips(batch, self.view, ("a", "b"))
        with torch.no_grad():
            wanted = self.target(y)
        return (self.encoder(x) - wanted).square().mean(), {}


class Forgetful(Slow):
    "The same, without a word of its copy."

    def copies(self):
        return {}


class Crooked(Slow):
    "The same, and something that is no copy."

    def copies(self):
        return {"encoder": [self.target, nn.Linear(2, 2)]}


@dataclass(frozen=True)
class SlowSettings:
    clips: ClassVar[tuple[str, ...]] = ("a", "b")
    name: ClassVar[str] = "slow"
    method: ClassVar[str] = f"{__name__}:Slow"


@dataclass(frozen=True)
class ForgetfulSettings(SlowSettings):
    method: ClassVar[str] = f"{__name__}:Forgetful"


@dataclass(frozen=True)
class CrookedSettings(SlowSettings):
    method: ClassVar[str] = f"{__name__}:Crooked"


@dataclass(frozen=True)
class TokenSettings(SlowSettings):
    encoder_needs: ClassVar[tuple[str, ...]] = ("mask_tokens",)


START = override(find("infonce-toy-rgb"), epochs=1, batch=8, queue=8, warmup=0.5)


@pytest.fixture(scope="module")
def start(manifest, tmp_path_factory):
    return pretrain(START, manifest.path, tmp_path_factory.mktemp("start") / "run", machine=QUIET)


def test_given_weights_reach_declared_copies_and_the_copy_is_exported(manifest, start, tmp_path):
    recipe = replace(START, method=SlowSettings())
    given = load(start / "last.pt")["method"]["pair.encoder.stages.0.0.weight"]
    experiment = resolve(recipe, manifest, QUIET)
    initialise_networks(experiment, {"encoder": start})
    for network in (experiment.method.encoder, experiment.method.target):
        assert torch.equal(network.state_dict()["stages.0.0.weight"], given)

    run = pretrain(
        recipe, manifest.path, tmp_path / "run", machine=QUIET, networks={"encoder": start}
    )
    exported, _ = read_encoder(run / "encoder.safetensors")
    trained = load(run / "last.pt")["method"]
    # the copy never moves here, and the encoder does
    assert torch.equal(exported.state_dict()["stages.0.0.weight"], given)
    assert torch.equal(trained["target.stages.0.0.weight"], given)
    assert not torch.equal(trained["encoder.stages.0.0.weight"], given)


@pytest.mark.parametrize(
    "settings, words", [(ForgetfulSettings(), "target"), (CrookedSettings(), "Linear")]
)
def test_copies_that_would_stay_random_are_refused(manifest, start, settings, words):
    experiment = resolve(replace(START, method=settings), manifest, QUIET)
    with pytest.raises(TrainError, match=rf"{words}.*copies\(\)|copies\(\).*{words}"):
        initialise_networks(experiment, {"encoder": start})


def test_a_network_that_the_recipe_does_not_name_is_refused(manifest, start):
    experiment = resolve(START, manifest, QUIET)
    with pytest.raises(TrainError, match="--sampler"):
        initialise_networks(experiment, {"sampler": start})


def test_a_backbone_without_what_the_method_needs_is_refused(monkeypatch):
    recipe = replace(START, method=TokenSettings())
    with pytest.raises(TrainError, match="backbone='tiny'.*mask_tokens.*slow.*give a backbone"):
        resolve(recipe).method

    def backbone(seed):
        return create("tiny", seed=seed)

    monkeypatch.setattr("vssl_nb.runs.experiment.BACKBONES", {"with-it": None})
    monkeypatch.setattr(
        "vssl_nb.runs.experiment.create",
        lambda name, seed=0: SimpleNamespace(mask_tokens=1) if name == "with-it" else backbone(0),
    )
    with pytest.raises(TrainError, match="use --backbone with-it"):
        resolve(recipe).method
