"""What a run leaves to be used: an encoder and a classifier, from the library and from the command
line.
"""

import contextlib
import csv
import io
import json
import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import warm
from vssl_nb.runs import evaluation
from vssl_nb.data import manifest, toy
from vssl_nb.data.video import decode
from vssl_nb.data.views import Views
from vssl_nb.measure.protocols import protocol
from vssl_nb.nets import backbones
from vssl_nb.training.checkpoints import export_encoder
from vssl_nb.measure.classify import (
    VideoClassifier,
    export_classifier,
    linear_probe,
    load_classifier,
    load_predictions,
    predict_videos,
    write_predictions,
)
from vssl_nb.app.cli import main
from vssl_nb.measure.features import (
    ProtocolClips,
    all_clips,
    as_manifest,
    clip_batch,
    extract,
    open_encoder,
    videos_of,
)
from vssl_nb.training.machine import Machine

SMALL = [
    "--epochs",
    "1",
    "--batch",
    "8",
    "--queue",
    "24",
    "--warmup",
    "0.5",
    "--test-clips",
    "3",
    "--length",
    "4",
    "--size",
    "16",
    "--workers",
    "0",
    "--device",
    "cpu",
    "--quiet",
    "--cache",
    "64",
]
SHORT = [
    "--set",
    "epochs=2",
    "batch=8",
    "drops=(1,)",
    "--workers",
    "0",
    "--device",
    "cpu",
    "--quiet",
    "--cache",
    "64",
]
QUIET = Machine("cpu", progress=False)
ROOT = Path(__file__).parents[1]


def process(*args, cwd):
    return warm.run(args, cwd)


def call(*args, cwd):
    "The same without the seconds that a process takes to begin."
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*map(str, args)])
    return SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())


def ok(*args, cwd):
    done = call(*args, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    "Toy videos, a run of each view with a probe, and a fine-tuned one."
    there = tmp_path_factory.mktemp("place")
    ok("toy", "videos", "--size", "tiny", cwd=there)
    for view in ("rgb", "residual"):
        ok(
            "pretrain",
            f"infonce-toy-{view}",
            *SMALL,
            "--data",
            "videos",
            "--out",
            f"runs/{view}",
            cwd=there,
        )
        said = ok("probe", f"runs/{view}", "--workers", "0", cwd=there)
        assert (
            f"use it: vssl-nb predict runs/{view} VIDEO" in said
            and "classifier.safetensors" in said
        )
    said = ok("finetune", "runs/residual", "--out", "runs/tuned", *SHORT, cwd=there)
    assert "runs/tuned/classifier.safetensors\nuse it: vssl-nb predict runs/tuned VIDEO" in said
    (there / "text.mp4").write_text("hello")
    return there


def example():
    "The code that the README shows for one's own code."
    text = (ROOT / "README.md").read_text().split("## As a library")[1]
    return re.search(r"```python\n(.*?)```", text, re.S)[1]


@pytest.mark.parametrize("view", ["rgb", "residual"])
def test_the_example_of_the_readme_gives_the_features_of_the_evaluation(
    place, tmp_path, view, monkeypatch
):
    m = manifest.read(place / "videos")
    row = m.select("test", 1)[2]
    shutil.copytree(place / "runs" / view, tmp_path / "runs" / "mine")
    (tmp_path / "videos").mkdir()
    shutil.copy(m.file(row), tmp_path / "videos" / "jump.mp4")
    monkeypatch.chdir(tmp_path)
    got = {}
    exec(example(), got)
    t = evaluation.open_trained(place / "runs" / view)
    p = t.protocol("clean")
    assert p.clips == 3 == len(got["clips"])
    theirs = extract(t.encoder, m, "test", 1, view, p, machine=QUIET, **t.views)
    at = theirs.row.tolist().index(row)
    torch.testing.assert_close(got["feature"], theirs.x[at], rtol=1e-5, atol=1e-5)
    assert not got["feature"].requires_grad and not got["encoder"].training


def test_an_encoder_of_one_view_is_not_fed_another(place):
    "What the example was before: RGB clips for an encoder of residuals, and other features."
    encoder, preprocess = open_encoder(place / "runs" / "residual")
    video = manifest.read(place / "videos").file(0)
    fed = open_encoder(place / "runs" / "rgb")[1](video)
    right = encoder(preprocess(video)).mean(0)
    assert (encoder(fed).mean(0) - right).norm() > 0.05 * right.norm()


@pytest.mark.parametrize("run", ["tuned", "residual", "rgb"])
def test_predictions_of_files_are_those_of_the_test(place, run):
    m, said = (
        manifest.read(place / "videos"),
        load_predictions(place / "runs" / run / "predictions.safetensors"),
    )
    found = predict_videos(
        load_classifier(place / "runs" / run), [m.file(r) for r in said.row.tolist()]
    )
    assert found.classes == said.classes and len(found) == len(said) > 10
    torch.testing.assert_close(found.p, said.p, rtol=0, atol=1e-5)


def test_command_line(place, tmp_path):
    m = manifest.read(place / "videos")
    said = load_predictions(place / "runs" / "tuned" / "predictions.safetensors")
    names = [m.rows[r].video for r in said.row.tolist()]
    done = process(
        "predict",
        "runs/tuned",
        *[f"videos/{n}" for n in names[:3]],
        "text.mp4",
        "--top",
        2,
        "--out",
        tmp_path / "x.csv",
        cwd=place,
    )
    assert done.returncode == 0 and "unreadable: text.mp4" in done.stderr, done.stderr
    first = next(line for line in done.stdout.splitlines() if line.startswith(f"videos/{names[0]}"))
    p, ids = said.p[0].sort(descending=True)
    for i in range(2):
        assert f"{m.labels[ids[i]]} {100 * p[i]:.1f} %" in first
    assert m.labels[ids[2]] not in first
    with (tmp_path / "x.csv").open(newline="") as f:
        rows = list(csv.DictReader(f))
    assert [r["status"] == "ok" for r in rows] == [True] * 3 + [False]
    for r, row in zip(said.p, rows[:3]):
        assert [float(row[c]) for c in m.labels] == pytest.approx(r.tolist(), abs=1e-5)
    # a folder, a file of a classifier, one video of a manifest
    shutil.copytree(m.file(0).parent, tmp_path / "loose")
    ok(
        "predict",
        place / "runs" / "tuned" / "classifier.safetensors",
        "--data",
        "loose",
        "--out",
        "y.csv",
        cwd=tmp_path,
    )
    with (tmp_path / "y.csv").open(newline="") as f:
        rows = list(csv.DictReader(f))
    assert len(rows) == len(list((tmp_path / "loose").glob("*.mp4")))
    assert names[4] in ok("predict", "runs/rgb", names[4], "--data", "videos", cwd=place)


def test_report_shows_the_place(place):
    said = ok("report", "runs", cwd=place)
    for run in ("tuned", "rgb", "residual"):
        assert f"vssl-nb predict runs/{run}/classifier.safetensors VIDEO" in said
    ok("retrieve", "runs/rgb", "--workers", "0", cwd=place)
    lacking = (
        "Not in this table: chance, a colour histogram, motion by hand and an untrained encoder. "
        "vssl-nb retrieve "
    )
    assert lacking not in ok("report", "runs", cwd=place)  # they were measured beside it
    file = place / "runs" / "rgb" / "results.json"
    rows = json.loads(file.read_text())
    file.write_text(json.dumps([r for r in rows if r["method"] not in evaluation.BASELINES]))
    assert lacking + "infonce-toy-rgb --data " in ok("report", "runs", cwd=place)
    ok("retrieve", "infonce-toy-rgb", "--data", "videos", "--workers", "0", cwd=place)
    assert lacking not in ok("report", "runs", cwd=place)


@pytest.mark.parametrize(
    "args, words",
    [
        (["predict", "runs/tuned"], "no video was named"),
        (["predict", "runs/none", "text.mp4"], "runs/none: there is no such file or folder"),
        (["predict", "videos", "text.mp4"], "videos: is not a run folder"),
        (
            ["predict", "runs/rgb/encoder.safetensors", "text.mp4"],
            "is an encoder, without a classifier",
        ),
        (["predict", "runs/tuned", "text.mp4"], "text.mp4: "),
        (["predict", "runs/tuned", "none.mp4"], "none.mp4: "),
        (["predict", "runs/tuned", "text.mp4", "--out", "x.txt"], "must end in .csv"),
        (["predict", "runs/tuned", "text.mp4", "--top", "0"], "--top 0"),
        (["predict", "runs/tuned", "none.mp4", "--data", "videos"], "has no video 'none.mp4'"),
        (["predict", "text.mp4", "text.mp4"], "text.mp4: not a safetensors file"),
        (["finetune", "runs/rgb", "--set", "epochs=2.5", "batch=8"], "epochs=2.5 is not"),
        (["finetune", "runs/rgb", "--set", "epochs=abc"], "epochs='abc' is not"),
        (["finetune", "runs/rgb", "--set", "epochs=0"], "epochs=0 must be 1 or more"),
        (["finetune", "runs/rgb", "--set", "lr=nan"], "lr="),
        (["finetune", "runs/rgb", "--set", "lr=-1.0"], "lr=-1.0 must be 0 or more"),
        (["finetune", "runs/rgb", "--set", "batch=None"], "batch=None is not"),
        (["retrieve", "runs/rgb", "--second", "runs/rgb"], "runs/rgb: is named twice"),
    ],
)
def test_wrong_use_is_one_sentence(place, args, words):
    done = call(*args, cwd=place)
    assert done.returncode == 2 and words in done.stderr, (done.returncode, done.stderr)
    assert len(done.stderr.strip().splitlines()) == 1 and "Traceback" not in done.stderr


def test_another_view_is_refused(place, tmp_path):
    "A classifier of flow, and videos without flow."
    c = load_classifier(place / "runs" / "rgb")
    flow = c.about | {"view": "flow", "flow": "stored"}
    export_classifier(
        tmp_path / "flow.safetensors",
        VideoClassifier(c.encoder, c.linear, c.classes, c.protocol, flow),
    )
    done = call("predict", tmp_path / "flow.safetensors", "--data", "videos", cwd=place)
    assert done.returncode == 2 and "ask for live flow (--flow live)" in done.stderr, done.stderr


def test_an_unfinished_fine_tuning_has_no_classifier_yet(place):
    row = evaluation.open_trained(place / "runs" / "rgb")
    from vssl_nb.runs.finetuning import finetune

    finetune(
        row.folder,
        fields={"epochs": 2, "batch": 8, "drops": (1,)},
        out=place / "runs" / "stopped",
        machine=QUIET,
        max_steps=2,
    )
    done = call("predict", "runs/stopped", "text.mp4", cwd=place)
    assert done.returncode == 2 and "was not finished: go on with" in done.stderr, done.stderr
    shutil.rmtree(place / "runs" / "stopped")


def test_a_process_that_is_refused_ends(place):
    "It left a traceback and live workers."
    done = process(
        "finetune",
        "runs/rgb",
        "--out",
        "runs/no",
        "--workers",
        "2",
        "--set",
        "epochs=2.5",
        "batch=8",
        cwd=place,
    )
    assert (done.returncode, "Traceback" in done.stderr, (place / "runs" / "no").exists()) == (
        2,
        False,
        False,
    )


def test_a_run_is_found_from_anywhere(place, tmp_path):
    "Begun with a relative path, measured from another folder; and moved together with its data."
    ok("retrieve", place / "runs" / "residual", "--workers", "0", "--no-baselines", cwd=tmp_path)
    shutil.copytree(place / "videos", tmp_path / "there" / "videos")
    moved = shutil.copytree(place / "runs" / "residual", tmp_path / "there" / "runs" / "residual")
    card = json.loads((moved / "card.json").read_text())
    assert os.path.isabs(card["manifest"]["path"]) and card["manifest"]["relative"] == os.path.join(
        "..", "..", "videos", "manifest.csv"
    )
    card["manifest"]["path"] = "/gone/manifest.csv"
    (moved / "card.json").write_text(json.dumps(card))
    assert evaluation.open_trained(moved).manifest.path.resolve().is_relative_to(tmp_path.resolve())
    shutil.rmtree(tmp_path / "there" / "videos")
    done = call("retrieve", moved, cwd=tmp_path)
    assert done.returncode == 2 and "say where that manifest is now" in done.stderr, done.stderr


# files of encoders and classifiers, without runs


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """An encoder of frame differences and a probe on it, in files; the toy, and three videos in no
    table.
    """
    there = tmp_path_factory.mktemp("kept")
    m = manifest.read(toy.make(there / "toy", "tiny", progress=False))
    mine = [
        shutil.copy(m.file(r), there / f"mine-{i}.mp4")
        for i, r in enumerate(m.select("test", 1)[1::6])
    ]
    (there / "notes.avi").write_text("not a video")
    see = protocol("clean", clips=4, length=16, size=32)
    about = {
        "backbone": "tiny",
        "view": "residual",
        "residual": "plain",
        "residual_scale": 0.1,
        "length": 16,
        "stride": 1,
        "size": 32,
        "clips": 4,
    }
    encoder, _ = open_encoder(
        export_encoder(there / "encoder.safetensors", backbones.create("tiny"), about)
    )
    train = extract(encoder, m, "train", 1, "residual", see, machine=QUIET, residual_scale=0.1)
    c = VideoClassifier(encoder, linear_probe(train), m.labels, see, about, name="probe")
    export_classifier(there / "classifier.safetensors", c)
    return SimpleNamespace(m=m, mine=mine, folder=there, about=about, see=see, c=c)


def other(kept, name, protocol=None, **changes):
    "The classifier in another file, with other metadata."
    c = kept.c
    return export_classifier(
        kept.folder / f"{name}.safetensors",
        VideoClassifier(c.encoder, c.linear, c.classes, protocol or kept.see, kept.about | changes),
    )


def refused(words, call, *args, **how):
    with pytest.raises(ValueError, match=re.escape(words)) as e:
        call(*args, **how)
    assert "\n" not in str(e.value)


def test_videos_without_a_table(kept):
    table = as_manifest([kept.mine[0], kept.folder / "notes.avi", decode(kept.mine[1])])
    assert [r.status == "ok" for r in table.rows] == [True, False, True]
    assert torch.equal(table.decode(2, [3, 0]), decode(kept.mine[1], [3, 0]))
    refused("none was named", as_manifest, [])
    refused("uint8 (F, H, W, 3)", as_manifest, [torch.zeros(4, 8, 8, 3)])
    refused("has no video 'none.mp4'", videos_of, kept.m.path, ["none.mp4"])
    assert [r.video for r in videos_of(kept.m.root, [kept.m.rows[3].video]).rows] == [
        kept.m.rows[3].video
    ]
    preprocess = open_encoder(kept.folder / "encoder.safetensors")[1]
    assert torch.equal(preprocess(decode(kept.mine[0])), preprocess(kept.mine[0]))
    refused("notes.avi", preprocess, kept.folder / "notes.avi")


def test_answers_of_files_frames_and_workers_are_the_same(kept):
    c = load_classifier(kept.folder / "classifier.safetensors")
    guess = predict_videos(c, [*kept.mine, kept.folder / "notes.avi", decode(kept.mine[0])])
    assert list(guess.dropped) == [3] and guess.row.tolist() == [0, 1, 2, 4]
    assert torch.equal(guess.p[0], guess.p[3])
    two = predict_videos(c, kept.mine, machine=Machine("cpu", workers=1, progress=False))
    assert torch.equal(two.p, guess.p[:3])
    names = [Path(p).name for p in kept.mine] + ["notes.avi", "frames"]
    write_predictions(kept.folder / "mine.csv", guess, names)
    rows = list(csv.DictReader((kept.folder / "mine.csv").open()))
    assert [r["predicted"] for r in rows[:3]] == [kept.m.labels[i] for i in guess.p[:3].argmax(1)]
    assert [float(rows[0][k]) for k in kept.m.labels] == pytest.approx(
        guess.p[0].tolist(), abs=1e-6
    )
    assert [r["status"] == "ok" for r in rows] == [True, True, True, False, True]
    assert rows[3]["predicted"] == "" and rows[3]["status"] == guess.dropped[3]
    refused("does not end in .csv", write_predictions, "x.txt", guess, names)


def test_ten_crops_are_averaged_as_by_a_loop(kept):
    ten = protocol(clips=2, crops="ten", length=16, size=32, average="softmax")
    c = load_classifier(other(kept, "ten", ten))
    item, total = ProtocolClips(as_manifest(kept.mine[:1]), [0], ten)[0], torch.zeros(8).double()
    with torch.no_grad():
        for x in Views("residual", residual_scale=0.1)(clip_batch(all_clips(item)))["residual"][
            :, 0
        ]:
            total += c.scores(c.encoder(x[None])).softmax(1)[0] / 20
    assert torch.allclose(predict_videos(c, kept.mine[:1]).p[0], total, atol=1e-6)


def test_flow_is_stored_or_asked_for(kept):
    bare = other(
        kept,
        "flow",
        protocol(clips=1, length=4, size=16, average="softmax"),
        view="flow",
        flow="stored",
        clips=1,
        length=4,
        size=16,
    )
    for ask in (
        lambda: predict_videos(load_classifier(bare), kept.mine[:1]),
        lambda: open_encoder(bare)[1](kept.mine[0]),
    ):
        refused("ask for live flow (--flow live)", ask)
    live = predict_videos(load_classifier(bare), kept.mine[:1], flow="live")
    network, see_flow = open_encoder(bare, flow="live")
    with torch.no_grad():
        p = load_classifier(bare).scores(network(see_flow(kept.mine[0]))).softmax(1)[0]
    assert torch.allclose(live.p[0], p, atol=1e-6)
    refused("flow must be 'stored' or 'live'", open_encoder, bare, flow="lives")


def test_files_that_are_no_classifier(kept):
    folder = kept.folder
    refused("is an encoder, without a classifier", load_classifier, folder / "encoder.safetensors")
    refused("there is no such file or folder", load_classifier, folder / "none")
    refused("is not a run folder", load_classifier, folder / "toy")
    refused("not a safetensors file", load_classifier, kept.mine[0])
    (folder / "run").mkdir()
    (folder / "run" / "card.json").write_text("{}")
    refused("`vssl-nb probe", load_classifier, folder / "run")
    (folder / "run" / "card.json").write_text('{"training": {}}')
    refused("was not finished", load_classifier, folder / "run")
    raw = bytearray((folder / "classifier.safetensors").read_bytes())
    raw[-3] ^= 64
    (folder / "rotten.safetensors").write_bytes(raw)
    refused("damaged", load_classifier, folder / "rotten.safetensors")
    foreign = other(kept, "foreign", view="os:system")
    for read in (load_classifier, open_encoder):
        refused("names 'os:system'", read, foreign)
    c = load_classifier(folder / "classifier.safetensors")
    refused("notes.avi:", predict_videos, c, [folder / "notes.avi"])
    refused("not one can be read", predict_videos, c, [folder / "notes.avi", folder / "none.avi"])
    export_encoder(folder / "mute.safetensors", c.encoder, {"backbone": "tiny", "view": "rgb"})
    refused(
        "length: the file of this encoder does not say it",
        open_encoder,
        folder / "mute.safetensors",
    )
