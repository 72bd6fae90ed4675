"""What a page cannot carry about classification: spoiled test sets, real frames, processes,
scikit-learn.
"""

import dataclasses
import inspect
import io
import json
import os
import shutil
import signal
import time
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch.nn.functional import interpolate, normalize

import warm
from vssl_nb.app import cli
from vssl_nb.data import augmentation as augment, manifest, toy
from vssl_nb.data.prepare import prepare_dataset
from vssl_nb.nets import backbones, heads
from vssl_nb.measure import features, protocols, retrieval, windows
from vssl_nb.methods import supervised
from vssl_nb.training.checkpoints import load
from vssl_nb.distributed import run_distributed
from vssl_nb.measure.classify import (
    PROBES,
    Linear,
    LinearProbe,
    accuracy,
    classification_row,
    classify,
    hold_out,
    hold_out_rows,
    linear_probe,
    load_classifier,
    load_predictions,
    predict_videos,
    save_predictions,
    softmax_regression,
    two_stream,
)
from vssl_nb.measure.features import ProtocolClips, all_clips, clip_batch
from vssl_nb.measure.protocols import protocol
from vssl_nb.methods.recipes import find, override
from vssl_nb.methods.supervised import Classifier
from vssl_nb.measure.splits import name_lost
from vssl_nb.runs.evaluation import EvaluatedEncoder, measure_probe
from vssl_nb.runs.finetuning import TRAININGS, measure_finetuned, open_session, predict, preset
from vssl_nb.runs.finetuning import fitted, starting_point, training_and_validation_rows
from vssl_nb.runs.experiment import resolve
from vssl_nb.training.machine import Machine
from vssl_nb.data.video import decode, encode
from vssl_nb.data.views import Views

torch.set_num_threads(1)
VIDEOS = manifest.test_videos()
real = pytest.mark.skipif(
    VIDEOS is None or not (VIDEOS / "ucf101").is_dir(),
    reason="there are no real clips: name their folder in VSSL_TEST_VIDEOS, "
    "or put them into ../shared/videos beside the repository",
)
QUIET = Machine("cpu", cache=64, progress=False)


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    return manifest.read(
        toy.make(tmp_path_factory.mktemp("toy") / "toy", "tiny", workers=1, progress=False)
    )


@pytest.fixture(scope="module")
def spoiled(clips, tmp_path_factory):
    "The toy with other pixels in every test video of split 1, and other labels on them."
    root = tmp_path_factory.mktemp("spoiled") / "toy"
    shutil.copytree(clips.root, root)
    tests = clips.select("test", 1)
    rows, g = list(clips.rows), np.random.default_rng(0)
    for r, other in zip(tests, tests[3:] + tests[:3]):
        rows[r] = dataclasses.replace(rows[r], label=clips.rows[other].label)
        encode(root / rows[r].video, g.integers(0, 256, (40, 32, 32, 3), dtype=np.uint8), fps=25)
    found = manifest.read(manifest.write(root / "manifest.csv", rows))
    assert found.labels == clips.labels
    assert [found.label_id(r) for r in tests] != [clips.label_id(r) for r in tests]
    assert not torch.equal(decode(found.file(tests[0])), decode(clips.file(tests[0])))
    assert torch.equal(
        decode(found.file(clips.select("train", 1)[0])),
        decode(clips.file(clips.select("train", 1)[0])),
    )
    return found


def small(name, **fields):
    "A preset at the size of the toy, two epochs long."
    return preset(
        name,
        **{
            "length": 4,
            "stride": 1,
            "size": 16,
            "batch": 16,
            "epochs": 2,
            "share": 0.3,
            "warmup": 0.0,
            "testing": protocol(clips=2, average="softmax"),
        }
        | fields,
    )


def begun(m, view="residual", seed=0):
    encoder = backbones.create("tiny", seed=seed)
    head = heads.make_head("gaussian", encoder.dim, None, 16)
    recipe = override(find("infonce-toy-rgb"), view=view)
    return EvaluatedEncoder(m, encoder, "tiny", view=view, heads={"gaussian": head}, recipe=recipe)


def net(training, view="residual", seed=0):
    t = begun(None, view, seed)
    return Classifier(t.encoder, 8, view, seed, t.heads["gaussian"], **vars(training.method))


@pytest.fixture
def train(tmp_path):
    "Weights, looks and chosen epoch of a training; with steps to stop at, it is resumed each time."

    def train(m, how, *stops, machine=QUIET):
        out = tmp_path / str(len(list(tmp_path.iterdir())))
        for stop in (*stops, None):
            s = open_session(begun(m), how, machine=machine)
            if (out / "last.pt").exists():
                s.load(load(out / "last.pt"))
            s.train(out, max_steps=stop)
        s.keep_best()
        return (
            {k: v.clone() for k, v in s.classifier.state_dict().items()},
            s.history,
            s.best.get("epoch"),
        )

    return train


def same(a, b):
    return a[1:] == b[1:] and all(torch.equal(v, b[0][k]) for k, v in a[0].items())


@pytest.mark.parametrize("name", list(TRAININGS))
def test_no_test_video_has_a_say_in_any_training_preset(clips, spoiled, name, train):
    how = small(name)
    assert preset(name).selection != "test"
    assert same(train(clips, how), train(spoiled, how))


def test_a_preset_that_names_a_clip_keeps_it(clips):
    "Length, stride, size and padding; ours have those of the encoder, as they say."
    coclr, iic, loop = (32, 1, 128, "first"), (16, 1, 112, "first"), (224, "loop")
    named = {
        "coclr_linear": coclr,
        "coclr_finetune": coclr,
        "coclr_scratch": coclr,
        "cpr_finetune": coclr,
        "iic_finetune": iic,
        "moquad_finetune": (16, 2, *loop),
        "moquad_linear": (32, 2, *loop),
        "provico_finetune": iic,
        "provico_linear": iic,
        "videomae_finetune": (16, 4, 224, "first"),
        "videomae_finetune_ssv2": (16, 2, 224, "first"),
        "videomae_finetune_small": (16, 4, 224, "first"),
        "videomae_finetune_ssv2_small": (16, 2, 224, "first"),
    }
    for name in TRAININGS:
        how = starting_point("infonce-toy-residual", name, clips)[1]
        clip = (how.sampling.length, how.sampling.stride, how.size, how.sampling.pad)
        fits = name in ("clean_linear", "clean_finetune", "scratch")
        assert clip == ((16, 1, 32, "first") if fits else named[name.removesuffix("_held_out")]), (
            name
        )
        test = how.testing
        assert clip == (test.length, test.stride, test.size, test.pad)
        assert (how.clip == "encoder") == fits == ("clip=encoder" in str(how))
        shorter = starting_point("infonce-toy-residual", name, clips, fields={"length": 8})[1]
        assert shorter.sampling.length == 8 and shorter.size == how.size


def test_presets_of_moquad_and_provico_train_on_all_videos(clips):
    train = clips.select("train", 1)
    for name in ("moquad_finetune", "moquad_linear", "provico_finetune", "provico_linear"):
        ours = preset(f"{name}_held_out")
        assert preset(name) == dataclasses.replace(ours, name=name, selection="last")
        assert training_and_validation_rows(clips, preset(name), 1, 0) == (train, [])
        assert 0 < len(training_and_validation_rows(clips, ours, 1, 0)[1]) < len(train)


@pytest.mark.parametrize("name", ["clean_finetune", "iic_finetune"])
def test_the_official_mode_does_look_so_the_test_above_can_fail(
    clips, spoiled, name, caplog, train
):
    how = small(name, selection="test", share=1.0)
    there, here = train(spoiled, how), train(clips, how)
    assert here[1] != there[1]
    assert "TEST VIDEOS" in caplog.text and "TEST VIDEOS" in str(how)
    row = classification_row(predict(net(how), clips, how, machine=QUIET), how, name="x")
    assert row["official"] is True and "test" in row["protocol"] and row["selection"] == "test"
    # the rows that are looked at are test rows, and nothing else is
    assert set(open_session(begun(clips), how).rows) == set(clips.select("test", 1))
    assert not set(open_session(begun(clips), small(name)).rows) & set(clips.select("test", 1))


def extracted(m, part):
    see = protocols.protocol("clean", clips=2, length=8, size=32)
    return features.extract(
        backbones.create("tiny"), m, part, 1, "residual", see, machine=Machine(progress=False)
    )


def test_no_test_video_has_a_say_in_any_probe(clips, spoiled):
    (train, test), (train2, test2) = (
        [extracted(m, part) for part in ("train", "test")] for m in (clips, spoiled)
    )
    assert torch.equal(train.x, train2.x) and not torch.equal(test.x, test2.x)

    def tensors(p):
        return [v for v in vars(p).values() if isinstance(v, torch.Tensor)]

    for name, how in PROBES.items():
        assert how.selection == "validation"
        a, b = linear_probe(train, how), linear_probe(train2, how)
        assert (a.chosen, a.tried) == (b.chosen, b.tried), name
        assert all(torch.equal(x, y) for x, y in zip(tensors(a), tensors(b))), name
        peek = dataclasses.replace(how, selection="test")
        assert linear_probe(train, peek, test).tried != linear_probe(train, peek, test2).tried, name


def test_one_class_is_refused(clips):
    "100 % of one class is no result."
    rows = [dataclasses.replace(r, label="only") for r in clips.rows]
    for name in ("clean_finetune", "moquad_linear", "coclr_finetune"):
        with pytest.raises(
            ValueError, match="all 48 training videos of split 1 are of the class 'only'"
        ):
            training_and_validation_rows(manifest.with_rows(clips, rows), small(name), 1, 0)


def test_few_videos_get_a_batch_that_fits_them(clips):
    """Of 65 clips a batch of 32 made one step an epoch; papers' presets and what is given stay as
    they are.
    """

    def of(videos, name="clean_finetune", **given):
        return fitted(preset(name, **given), given, videos).learning

    assert {n: of(n).batch for n in (5, 17, 65, 80, 200, 500, 9537)} == {
        5: 2,
        17: 6,
        65: 8,
        80: 8,
        200: 16,
        500: 32,
        9537: 32,
    }
    assert of(65).drops == (60, 80) and of(65, epochs=10).drops == (6, 8)
    given = of(65, epochs=10, batch=32, drops=(7.0,))
    assert (given.batch, given.drops) == (32, (7,))
    for name in TRAININGS.keys() - {"clean_linear", "clean_finetune", "scratch"}:
        assert of(65, name, epochs=10) == preset(name, epochs=10).learning


def test_a_name_without_a_classifier_is_refused(tmp_path):
    (tmp_path / "card.json").write_text("{}")
    for run in (tmp_path, str(tmp_path)):
        with pytest.raises(
            ValueError, match="has no classifier.safetensors; make one: `vssl-nb probe"
        ):
            predict_videos(run, ["a.mp4"])
    for wrong in (None, backbones.create("tiny"), {"run": 1}):
        with pytest.raises(
            ValueError, match=f"classifier: is of the type {type(wrong).__name__}; give a"
        ):
            predict_videos(wrong, ["a.mp4"])


def test_features_that_are_no_numbers_are_refused():
    x = torch.eye(4)
    x[1, 2] = torch.nan
    with pytest.raises(ValueError, match="x: 1 of 4 features hold NaN or infinity"):
        softmax_regression(x, torch.tensor([0, 1, 0, 1]), 0.1)


def test_cut_by_source_in_many_tables():
    "No source on both sides, no class lost, every class with two free sources is validated."
    g = np.random.default_rng(1)
    for trial in range(200):
        n = int(g.integers(4, 60))
        source = g.integers(0, max(2, n // 3), n).tolist()
        # sources of one class, or of several
        label = [s % 4 for s in source] if trial % 2 else g.integers(0, 4, n).tolist()
        share = float(g.uniform(0.05, 0.6))
        a, b = hold_out(label, source, share, trial)
        assert sorted(a + b) == list(range(n)) and not {source[i] for i in a} & {
            source[i] for i in b
        }
        assert {label[i] for i in a} == set(label)
        if trial % 2:
            for c in set(label):
                mine = {source[i] for i in range(n) if label[i] == c}
                assert (len(mine) > 1) == any(label[i] == c for i in b)
                largest = max(source.count(s) for s in mine)
                assert sum(label[i] == c for i in b) <= max(share * label.count(c), largest)


def test_the_cut_does_not_depend_on_the_order_of_the_rows():
    label, source = [0] * 6 + [1] * 6, [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]
    held = {source[i] for i in hold_out(label, source, 0.3)[1]}
    order = np.random.default_rng(0).permutation(12)
    val = hold_out([label[i] for i in order], [source[i] for i in order], 0.3)[1]
    assert held == {source[order[i]] for i in val}


@pytest.mark.parametrize("batchnorm", [False, True])
def test_the_probe_is_scikit_learns(batchnorm):
    g = torch.Generator().manual_seed(0)
    y = torch.arange(600) % 20
    x = torch.randn(600, 64, generator=g) + 3 * torch.randn(20, 64, generator=g)[y] + 5
    train = features.Features(
        x, y, torch.arange(600), torch.arange(600) // 2, protocols.protocol("clean")
    )
    for strength in (1e-2, 1e-4):
        ours = linear_probe(
            train, LinearProbe(batchnorm=batchnorm, selection="last", strengths=(strength,))
        )
        seen = normalize(x.double() - x.double().mean(0), dim=1)
        if batchnorm:
            seen = torch.from_numpy(StandardScaler().fit_transform(seen))
        # eps of BatchNorm is 1e-5, StandardScaler has none: compare through our own preparation
        assert torch.allclose(ours.prepare(x), seen, atol=1e-3 if not batchnorm else 0.05)
        theirs = LogisticRegression(C=1 / (strength * 600), tol=1e-10, max_iter=20000).fit(
            ours.prepare(x), y
        )
        assert np.allclose(ours.weight, theirs.coef_, atol=2e-3 * np.abs(theirs.coef_).max())
        assert np.allclose(
            ours.logits(x, 20).softmax(1), theirs.predict_proba(ours.prepare(x)), atol=1e-4
        )
        assert (ours.logits(x, 20).argmax(1).numpy() == theirs.predict(ours.prepare(x))).all()


def test_a_class_without_training_videos_gets_probability_zero():
    p = Linear(
        torch.eye(2).double(),
        torch.zeros(2).double(),
        torch.tensor([0, 2]),
        *torch.tensor([[0.0, 0], [0, 0], [1, 1]]).double(),
        False,
    )
    assert p.logits(torch.ones(1, 2), 4).softmax(1).tolist() == [[0.5, 0, 0.5, 0]]


def test_dropout_of_two_processes_is_that_of_one():
    encoder = torch.nn.Identity()
    encoder.dim = 5
    head = Classifier(encoder, 2, seed=3, dropout=0.5).train()

    def mask(rows, part=0):
        return head.mask(rows, {"step": 11, "part": part})

    whole = mask(8)
    with mock.patch.object(supervised, "world_size", lambda: 2):
        parts = []
        for r in range(2):
            with mock.patch.object(supervised, "rank", lambda: r):
                parts.append(mask(4))
    assert torch.equal(torch.cat(parts), whole)
    assert not torch.equal(mask(8, part=1), whole)


def test_the_first_weights_of_the_layer_are_those_of_the_source():
    """N(0, 0.01) and no bias in CoCLR (b10); PyTorch's default in IIC, whose code fills none by
    hand (b11).
    """
    encoder = torch.nn.Identity()
    encoder.dim = 512
    with torch.random.fork_rng():
        torch.manual_seed(3)
        theirs = torch.nn.Linear(512, 101)
    iic, coclr = (
        Classifier(encoder, 101, seed=3, **vars(preset(f"{name}_finetune").method)).fc
        for name in ("iic", "coclr")
    )
    assert "head_init=torch" in str(preset("iic_finetune")) and "warmup=5" in str(
        preset("moquad_linear")
    )
    for ours, want in zip(iic.parameters(), theirs.parameters()):
        torch.testing.assert_close(ours, want)
    assert abs(coclr.weight.std() / 0.01 - 1) < 0.02 and not coclr.bias.any()


def test_no_global_random_state_is_read_or_moved(clips, train):
    how = small("coclr_finetune")
    torch.manual_seed(1)
    np.random.seed(1)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    a = train(clips, how)
    assert (
        torch.equal(before[0], torch.get_rng_state())
        and (before[1] == np.random.get_state()[1]).all()
    )
    torch.manual_seed(2)
    assert same(a, train(clips, how))


def test_predictions_are_the_same_to_the_bit(clips, tmp_path):
    how = small(
        "coclr_finetune",
        testing=protocol(windows="sliding", crops="ten", jitter=0.5, average="softmax"),
    )
    c, rows = net(how, "rgb"), clips.select("test", 1)[:5]
    first = predict(c, clips, how, rows=rows, machine=QUIET)
    for batch, workers in ((1, 0), (7, 2), (1000, 1)):
        again = predict(
            c,
            clips,
            how,
            rows=rows,
            batch=batch,
            machine=Machine("cpu", workers=workers, progress=False),
        )
        assert torch.equal(again.p, first.p) and again.key == first.key
    # the official jitter has a seed
    assert not torch.equal(predict(c, clips, how, rows=rows, seed=1, machine=QUIET).p, first.p)
    back = load_predictions(save_predictions(first, tmp_path / "p.safetensors"))
    assert torch.equal(back.p, first.p)
    assert (back.key, back.classes, back.dropped) == (first.key, first.classes, first.dropped)
    raw = bytearray((tmp_path / "p.safetensors").read_bytes())
    raw[-9] ^= 1
    (tmp_path / "q.safetensors").write_bytes(raw)
    with pytest.raises(ValueError, match="damaged"):
        load_predictions(tmp_path / "q.safetensors")
    two = two_stream(first, predict(net(how, "residual", 1), clips, how, rows=rows, machine=QUIET))
    assert torch.allclose(two.p.sum(1), torch.ones(5).double()) and "stream 2 classifier" in two.key
    other = net(how, "rgb", 1)
    theirs = predict(other, clips, how, rows=rows[:1], machine=QUIET)
    assert theirs.key["classifier"] != first.key["classifier"]


def test_an_unreadable_video_is_left_out_and_named(clips, tmp_path):
    shutil.copytree(clips.root, tmp_path / "toy")
    m = manifest.read(tmp_path / "toy" / "manifest.csv")
    bad = m.select("test", 1)[2]
    m.file(bad).write_bytes(b"no video")
    how = small("clean_finetune")
    pred = predict(net(how), m, how, machine=QUIET)
    assert list(pred.dropped) == [bad] and len(pred) == 15 and bad not in pred.row
    assert classification_row(pred, how)["dropped"] == 1


def test_a_probe_names_the_videos_that_it_leaves_out(clips, tmp_path, caplog):
    shutil.copytree(clips.root, tmp_path / "toy")
    m = manifest.read(tmp_path / "toy" / "manifest.csv")
    gone = [m.select(part, 1)[1] for part in ("test", "train")]
    for r in gone:
        m.file(r).unlink()
    t = EvaluatedEncoder(m, backbones.create("tiny", seed=0), "mine")
    (row,) = measure_probe(t, fields=dict(clips=1, length=4, size=32), machine=QUIET)
    names = {m.rows[r].video for r in gone}
    assert {*row["dropped"]} == names and all(
        "no such file" in why for why in row["dropped"].values()
    )
    assert row["queries"] == len(m.select("test", 1)) - 1
    said = [r.getMessage() for r in caplog.records]
    assert all(any(s.startswith(f"left out: {name}: ") for s in said) for name in names)
    caplog.clear()
    name_lost(m, dict.fromkeys(range(8), "why"))
    assert len(caplog.records) == 6 and "3 more" in caplog.text


def test_a_stopped_training_ends_where_an_unbroken_one_ends(clips, train):
    for name in ("coclr_finetune", "clean_linear", "iic_finetune"):
        how = small(name, epochs=3, **({"patience": 0} if name == "iic_finetune" else {}))
        assert same(train(clips, how), train(clips, how, 1, 2, 3, 5))
        assert name != "iic_finetune" or open_session(begun(clips), how).plateau


def test_workers_do_not_change_a_training(clips, train):
    how = small("clean_finetune")
    assert same(train(clips, how), train(clips, how, machine=dataclasses.replace(QUIET, workers=2)))


# --- the command line, and several processes

PRESET = ["--set", "epochs=2", "batch=8", "drops=1,", "optimizer=sgd", "lr=1e-3", "lr_encoder=1e-3"]
SHORT = ["--device", "cpu", "--cache", "64", "--workers", "0"]


def call(*args, cwd):
    "A command in this process, which has imported PyTorch already: exit code and what it printed."
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        before = os.getcwd()
        os.chdir(cwd)
        try:
            code = cli.main([str(a) for a in args])
        finally:
            os.chdir(before)
    return SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())


def in_processes(n, *args, cwd):
    ranks = warm.launch(n, args, cwd)
    out, err = ("".join(texts) for texts in zip(*(rank.communicate() for rank in ranks)))
    return SimpleNamespace(
        returncode=max(abs(rank.returncode) for rank in ranks), stdout=out, stderr=err
    )


def call_in(cwd, args):
    done = call(*args, cwd=cwd)
    assert done.returncode == 0, done.stderr


def finetune(*more, preset="clean_finetune", out):
    return ["finetune", "run", "--preset", preset, "--out", out, *SHORT, *more, *PRESET]


def logged(out):
    return (out / "steps.csv").read_text().count("\n") if (out / "steps.csv").exists() else 0


def until(out, lines, alive):
    end = time.monotonic() + 300
    while logged(out) < lines and alive() and time.monotonic() < end:
        time.sleep(0.005)


def equal(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def row(out):
    return json.loads((out / "results.json").read_text())[0]


@pytest.fixture(scope="module")
def place(clips, tmp_path_factory):
    "A folder with toy videos, a pretrained run and one fine-tuning of it."
    there = tmp_path_factory.mktemp("place")
    shutil.copytree(clips.root, there / "videos")
    done = call(
        "pretrain",
        "infonce-toy-residual",
        "--epochs",
        1,
        "--batch",
        8,
        "--queue",
        24,
        "--warmup",
        0.5,
        "--length",
        4,
        "--size",
        16,
        *SHORT,
        "--quiet",
        "--data",
        "videos",
        "--out",
        "run",
        cwd=there,
    )
    assert done.returncode == 0, done.stderr
    done = call(*finetune(out="one"), cwd=there)
    assert done.returncode == 0 and "top-1" in done.stdout, done.stderr
    return there


@pytest.mark.parametrize("preset", ["clean_finetune", "clean_linear"])
def test_two_processes_end_where_one_ends(place, preset):
    "Weights, running statistics and validations within 1e-4 of one process; one folder, one row."
    if preset == "clean_linear":
        done = call(*finetune(preset=preset, out="one-linear"), cwd=place)
        assert done.returncode == 0, done.stderr
    one, two = (
        place / ("one" if preset == "clean_finetune" else "one-linear"),
        place / f"two-{preset}",
    )
    if preset == "clean_finetune":
        done = in_processes(2, *finetune(preset=preset, out=two.name), cwd=place)
        assert done.returncode == 0 and done.stdout.count("top-1 %") == 1, done.stderr
    # without a launcher
    else:
        run_distributed(call_in, 2, place, finetune(preset=preset, out=two.name))
    a, b = load(one / "last.pt"), load(two / "last.pt")
    assert a["run"]["step"] == b["run"]["step"]
    for k, v in a["run"]["method"].items():
        assert (b["run"]["method"][k] - v).float().norm() <= 1e-4 * v.float().norm() + 1e-6, k
    for x, y in zip(a["history"], b["history"], strict=True):
        assert abs(x["loss"] - y["loss"]) < 1e-4 * x["loss"]
        assert x["epoch"] == y["epoch"]
    p, q = (load_predictions(o / "predictions.safetensors") for o in (one, two))
    assert torch.equal(p.row, q.row) and torch.allclose(p.p, q.p, atol=1e-4)
    assert sorted(f.name for f in one.iterdir()) == sorted(f.name for f in two.iterdir())
    assert json.loads((two / "card.json").read_text())["processes"] == 2
    assert len(json.loads((two / "results.json").read_text())) == 1
    # one process goes on with what two have finished: it is measured once more
    if preset == "clean_finetune":
        before = row(two)
        again = call(*finetune("--resume", out=two.name), cwd=place)
        assert again.returncode == 0 and row(two) == before, again.stderr


def test_killed_and_resumed_is_unbroken(place):
    "SIGKILL twice, with a checkpoint at every step: the same checkpoint, log and row, bit for bit."
    out = place / "killed"
    for after, more in ((3, []), (7, ["--resume"])):
        args = finetune("--save-minutes", "0", *more, out="killed")
        process = get_context("fork").Process(target=call_in, args=(place, args))
        process.start()
        until(out, after, process.is_alive)
        process.kill()
        process.join()
        assert 0 < logged(out) < logged(place / "one"), "the run was over before it could be killed"
    done = call(*finetune("--resume", out="killed"), cwd=place)
    assert done.returncode == 0, done.stderr
    assert equal(load(out / "last.pt"), load(place / "one" / "last.pt"))
    assert (out / "steps.csv").read_text() == (place / "one" / "steps.csv").read_text()
    same = [k for k in row(out) if k not in ("seconds", "run")]
    assert [row(out)[k] for k in same] == [row(place / "one")[k] for k in same]
    assert not list(out.glob(".*")), "a half-written file was left behind"


def test_a_polite_signal_saves_and_says_how_to_go_on(place):
    out = place / "asked"
    process = warm.Command(finetune("--workers", "1", out="asked"), place)
    # in the first epoch: after it other processes start, and one that does not ignore the signal
    # yet dies
    until(out, 1, lambda: process.poll() is None)
    os.killpg(process.pid, signal.SIGTERM)
    told, said = process.communicate(timeout=300)
    assert process.returncode == 143 and not told, said  # as shells have it
    assert said.count("go on with --resume") == 1 and "Traceback" not in said
    step = load(out / "last.pt")["run"]["step"]
    assert (
        0 < step < load(place / "one" / "last.pt")["run"]["step"]
        and not (out / "results.json").exists()
    )
    done = call(*finetune(out="asked"), cwd=place)
    assert done.returncode == 2 and "holds a run already; add --resume" in done.stderr
    assert call(*finetune("--resume", out="asked"), cwd=place).returncode == 0
    assert equal(load(out / "last.pt"), load(place / "one" / "last.pt"))


def test_half_precision_and_less_memory(place):
    """bfloat16 trains near float32; activations computed twice change nothing; what cannot be done
    is refused.
    """
    for name, more in (
        ("half", ["--dtype", "bfloat16"]),
        ("twice", ["--activation-checkpointing"]),
    ):
        done = call(*finetune(*more, out=name), cwd=place)
        assert done.returncode == 0, done.stderr
    one, half, twice = (load(place / n / "last.pt") for n in ("one", "half", "twice"))
    assert equal(one, twice)
    w, h = (s["run"]["method"]["encoder.stages.0.0.weight"] for s in (one, half))
    assert 0 < (h - w).norm() < 0.05 * w.norm()
    assert abs(half["history"][-1]["loss"] - one["history"][-1]["loss"]) < 0.1
    assert json.loads((place / "half" / "card.json").read_text())["dtype"] == "bfloat16"
    with pytest.raises(RuntimeError, match="batch=8 does not divide over 3 processes"):
        run_distributed(call_in, 3, place, finetune(out="three"))
    assert not (place / "three").exists()


def test_iic_is_tested_on_the_windows_of_the_released_code():
    """ft_classify.py: 10 clips by linspace over all frames but the last, 112 of 128 px, the mean of
    logits.
    """
    how = preset("iic_finetune").testing
    for frames in (29, 187):
        # datasets/ucf101.py:118, 167
        released = [int(i - 8) for i in np.linspace(8, frames - 1 - 8, 10)]
        assert windows.clip_frames(how, frames)[:, 0].tolist() == released
    # 29.5, rounded to even
    assert windows.crop_boxes(how, 128, 171)[0].tolist() == [[8, 30, 112, 112]]
    assert how.average == "logits" and (how.length, how.size) == (16, 112)
    # on flow CoCLR's windows end with its last picture
    assert [p.testing.pictures for n, p in TRAININGS.items() if n[:3] in ("coc", "cpr")] == [
        "flow"
    ] * 4


@pytest.mark.parametrize(
    "recipe",
    [find("iic-ucf101-residual"), find("iic-cpr-ucf101-residual"), preset("iic_finetune")],
    ids=lambda r: r.name,
)
def test_iic_never_draws_the_last_start(recipe):
    """datasets/ucf101.py:126: randint(0, length - 16), where length is the number of frames less
    one.
    """
    one = manifest.Manifest(Path("made-up.csv"), [manifest.Row("a.mp4", frames=20)], "none")
    small_one = dataclasses.replace(find("iic-toy"), sampling=recipe.sampling)
    sample = resolve(small_one, one, rows=[0]).clips.sample
    rng = np.random.default_rng(0)
    assert {int(sample(20, rng)[0, 0]) for _ in range(300)} == set(range(20 - 1 - 16 + 1))


def test_iic_is_fine_tuned_on_unscaled_differences(clips, tmp_path, monkeypatch):
    "ft_classify.py: `--modality res` is the default, x - roll(x) over time, and the file says so."
    how, start = small("iic_finetune"), begun(clips, "rgb")
    s = open_session(start, how)
    x = torch.rand(1, 1, 3, 8, 4, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(s.experiment.views.from_floats(x)["residual"], x - x.roll(1, 3))
    assert s.classifier.view == "residual" and "view=residual, residual=rolled" in str(how)
    card = {"seconds": 0.0, "given": "run", "manifest": {"train": 48}}
    row = measure_finetuned(s, tmp_path, card)
    back = load_classifier(tmp_path / "classifier.safetensors")
    assert (
        row["view"] == "residual" and back.view == "residual" and back.about["residual"] == "rolled"
    )
    again = predict_videos(back, [clips.file(r) for r in clips.select("test", 1)])
    said = load_predictions(tmp_path / "predictions.safetensors")
    torch.testing.assert_close(again.p, said.p)
    # with --set, or of another preset: another view
    assert open_session(start, small("iic_finetune", view="rgb")).classifier.view == "rgb"
    assert (
        open_session(begun(clips), small("clean_finetune")).experiment.views.options["residual"]
        == "plain"
    )
    # the epoch is chosen on squares of the same size
    seen = []
    monkeypatch.setattr(s, "predict", lambda training, *rest: seen.append(training) or said)
    s.training = preset("iic_finetune", length=8, size=32)
    s.held_out()
    assert seen[0].testing.crop == 112 / 128


def made_up_features(rows, n, dim=3, scale=1.0):
    x = torch.randn(n, dim, generator=torch.Generator().manual_seed(rows)) * scale
    return features.Features(
        x,
        torch.arange(n) % 3,
        torch.arange(rows, rows + n),
        torch.arange(n),
        protocols.protocol("coclr_official"),
    )


def test_the_released_probe_looks_twenty_times_and_never_at_its_last_epoch():
    "feature_linear_probe.py:134-138: `if epoch % 5 == 0` on epochs counted from 0."
    how = dataclasses.replace(PROBES["coclr_probe"], selection="test")
    probe = linear_probe(made_up_features(0, 12), how, made_up_features(100, 9))
    assert list(probe.tried) == list(range(1, 100, 5)) and max(probe.tried) == 96
    ours = dataclasses.replace(how, first=0, epochs=12)
    assert list(linear_probe(made_up_features(0, 12), ours, made_up_features(100, 9)).tried) == [
        5,
        10,
        12,
    ]
    for selection, chosen in (("last", [100]), ("validation", list(range(1, 100, 5)))):
        also = linear_probe(made_up_features(0, 12), dataclasses.replace(how, selection=selection))
        assert also.chosen in chosen


@pytest.mark.parametrize("n", [9, 10, 12])  # a rest of one video, of two, none
def test_the_released_probe_is_a_loop_over_features_as_they_are(n):
    "`--normalize` is off; README's command has `--final_bn`; batches are whole but the last."
    how = dataclasses.replace(
        PROBES["coclr_probe"], batch=4, epochs=3, drops=(2,), selection="last"
    )
    train, test = made_up_features(0, n, scale=7.0), made_up_features(100, 6, scale=7.0)
    norm, fc = torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 3)
    torch.nn.init.zeros_(fc.bias)
    fc.weight.data.normal_(0, 0.01, generator=torch.Generator().manual_seed(5))
    opt = torch.optim.SGD([*norm.parameters(), *fc.parameters()], 1.0, 0.9, weight_decay=1e-3)
    for epoch in range(3):
        opt.param_groups[0]["lr"] = 0.1 if epoch >= 2 else 1.0
        order = torch.from_numpy(np.random.default_rng((5, epoch)).permutation(n))
        # BatchNorm needs two
        for part in [order[:4], order[4:]] if n == 9 else order.split(4):
            opt.zero_grad()
            torch.nn.functional.cross_entropy(fc(norm(train.x[part])), train.label[part]).backward()
            opt.step()
    with torch.no_grad():
        slow = fc(norm.eval()(test.x)).double()
    ours = linear_probe(train, how, seed=5).logits(test.x, 3)
    torch.testing.assert_close(ours, slow, rtol=1e-4, atol=1e-5)


@real
def test_ten_crop_of_a_real_frame_is_ten_pictures_cut_by_hand(tmp_path):
    """320 x 240, squares of 224 scaled to 128, in the released order: centre, corners, and the same
    mirrored.
    """
    file = sorted((VIDEOS / "ucf101").glob("*/*.avi"))[0]
    frames = decode(file, range(8))
    assert frames.shape[1:3] == (240, 320)
    m = manifest.Manifest(
        file.parent / "manifest.csv",
        [manifest.Row(file.name, "a", "a", "test", frames=8, width=320, height=240)],
        "0",
    )
    item = ProtocolClips(m, [0], protocol(clips=1, crops="ten", length=8, size=128))[0]
    seen = Views("rgb", mean=(0, 0, 0), std=(1, 1, 1))(clip_batch(all_clips(item)))["rgb"][:, 0]
    for i in range(10):
        top, left = [(8, 48), (0, 0), (0, 96), (16, 0), (16, 96)][i % 5]
        # b10: mirrored first, then cut
        turn = (lambda x: x.flip(2)) if i >= 5 else (lambda x: x)
        x = turn(turn(frames)[:, top : top + 224, left : left + 224])
        x = interpolate(x.permute(0, 3, 1, 2), (128, 128), mode="bilinear", antialias=True)
        x = (x.flip(3) if i >= 5 else x).permute(1, 0, 2, 3) / 255
        assert torch.equal(seen[i], x), i


def pixels_of(training):
    names = set(inspect.signature(augment.draw).parameters)
    return {k: v for k, v in dataclasses.asdict(training.augment).items() if k in names}


def test_training_clips_are_those_of_the_preset(clips):
    """IIC crops 210 px squares from 320 x 240 and never mirrors; CoCLR changes colours with
    probability .3.
    """
    g = np.random.default_rng(0)
    how = preset("iic_finetune")
    drawn = augment.draw(g, 50, 16, 240, 320, size=112, **pixels_of(how))
    assert (drawn["box"][:, 2:] == 210).all()
    assert not drawn["flip"].any()
    assert (drawn["hue"] == 0).all()
    assert (drawn["sigma"] == 0).all()
    pixels = pixels_of(preset("coclr_finetune"))
    jittered = (
        (augment.draw(g, 2000, 1, 240, 320, size=128, **pixels)["brightness"] != 1).float().mean()
    )
    assert abs(jittered - 0.3) < 0.04 and preset("iic_finetune").augment.flip == 0


@real
def test_probe_on_the_colours_of_real_clips(tmp_path):
    "Four classes of UCF101: end to end, with the sources of the official groups."
    for c in sorted((VIDEOS / "ucf101").glob("*/"))[2::2]:
        shutil.copytree(c, tmp_path / c.name)
    m = prepare_dataset("ucf101", tmp_path, VIDEOS / "ucfTrainTestlist", progress=False).manifest
    assert len(m.labels) == 4
    train, val = hold_out_rows(m, 1)
    assert not {m.rows[r].source for r in train} & {m.rows[r].source for r in val}
    assert {m.rows[r].label for r in val} == set(m.labels)
    parts = [
        retrieval.histogram(m, part, 1, frames=4, machine=Machine(progress=False))
        for part in ("train", "test")
    ]
    found = accuracy(classify(linear_probe(parts[0]), parts[1], m.labels))
    print(found)
    assert found["top1"] > 2 / 4
