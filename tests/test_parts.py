"""A recipe becomes objects once: fields meet the functions that take them, also in a method from
outside.
"""

import inspect
from dataclasses import fields

import pytest

from vssl_nb.data import augmentation as augment, toy
from vssl_nb.data.dataset import TrainClips
from vssl_nb.data.sampling import random_clips
from vssl_nb.data.manifest import read
from vssl_nb.config import Augment, RecipeError, Sampling
from vssl_nb.methods.recipes import find, override
from vssl_nb.runs.parts import build, build_method, training_draw
from vssl_nb.training.loop import TrainError


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
    parts = build(recipe, manifest)
    batch = parts.views(next(iter(parts.batches)))
    loss, logs = parts.method(batch)
    loss.backward()
    parts.optimizer.step()
    assert batch["rgb"].shape == (8, 2, 3, 4, 32, 32) and {"top1", "top5"} <= {*logs}
    assert len(parts.clips) == len(manifest.select("train")) and parts.schedule(0.0) == 0.0
    assert parts.optimizer.param_groups[0]["lr"] == recipe.learning.lr


def test_parts_for_videos_that_need_not_exist():
    parts = build(override(find("iic-toy"), batch=8), 1000)
    batch = parts.views(next(iter(parts.batches)))
    assert parts.clips is None and len(batch["label"]) == 8 and parts.method(batch)[0].isfinite()
    shapes = [t.shape for t in parts.method.state_dict().values()]
    assert any(1000 in shape for shape in shapes), "a bank with a row for each video"


def test_parts_refuse_what_does_not_fit(manifest):
    with pytest.raises(TrainError, match="larger than the"):
        build(override(find("infonce-toy-rgb"), batch=5000), manifest)
    with pytest.raises(RecipeError, match="smaller than batch"):
        build(override(find("infonce-toy-rgb"), batch=8, queue=4), manifest)
    with pytest.raises(ValueError, match="did you mean"):
        build_method(override(find("infonce-toy-rgb"), backbone="tinny"))
