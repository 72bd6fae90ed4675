"""Runs that move between houses: a file in the released layout in the middle, and the command line
around it.
"""

import io
import json
from contextlib import chdir, redirect_stderr, redirect_stdout

import pytest
import torch
from house import ROOT

from vssl_nb.app import cli
from vssl_nb.data import toy
from vssl_nb.data.manifest import read, write
from vssl_nb.app.convert import convert, save_released
from vssl_nb.app.sharing import from_pretrained
from vssl_nb.runs.released import load_released
from vssl_nb.training.checkpoints import CheckpointError, load, read_encoder
from vssl_nb.measure.classify import load_classifier
from vssl_nb.measure.protocols import Protocol
from vssl_nb.runs.finetuning import finetune
from vssl_nb.runs.pretraining import import_released, pretrain
from vssl_nb.methods.recipes import find, override
from vssl_nb.training.machine import Machine

OPTIONS = dict(device="cpu", workers=0, progress=False)
SMALL = dict(batch=8, epochs=2, test_clips=1, length=8, size=16)


def call(*args, cwd, code=0):
    "One command, in this process: what a fresh one does is tested elsewhere."
    out, err = io.StringIO(), io.StringIO()
    with chdir(cwd), redirect_stdout(out), redirect_stderr(err):
        result = cli.main([*map(str, args)])
    assert result == code, err.getvalue()
    assert code == 0 or (err.getvalue().count("\n") == 1 and "Traceback" not in err.getvalue()), (
        err.getvalue()
    )
    return (out if code == 0 else err).getvalue()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("bridge")
    m = read(toy.make(home / "videos", "tiny", progress=False))
    kept = [
        i
        for label in range(8)
        for part, n in (("train", 3), ("test", 1))
        for i in [i for i in m.select(part) if m.label_id(i) == label][:n]
    ]
    write(home / "videos", [m.rows[i] for i in kept])
    for view in ("rgb", "residual"):  # what CoCLR begins with
        recipe = override(find(f"infonce-toy-{view}"), queue=16, **SMALL | {"epochs": 1})
        pretrain(recipe, home / "videos", home / view, **OPTIONS)
    return home


def leaves(x, at=""):
    if isinstance(x, (dict, list, tuple)):
        for k, v in x.items() if isinstance(x, dict) else enumerate(x):
            yield from leaves(v, f"{at}.{k}")
    else:
        yield at, x


@pytest.mark.parametrize(
    "name, changes",
    [
        ("infonce-toy-rgb", {"queue": 16}),
        ("ubernce-toy-rgb", {"queue": 16}),
        ("coclr-toy-rgb-cycle1", {"queue": 16, "topk": 3}),
        ("coclr-cpr-toy-rgb-cycle1", {"queue": 16, "topk": 3, "miner_options": ("stages=3",)}),
        ("iic-toy", {"negatives": 8}),
    ],
)
def test_a_training_moves_and_ends_where_it_would_have(home, tmp_path, name, changes):
    recipe = override(find(name), **SMALL | changes)
    networks = {"encoder": home / "rgb", "sampler": home / "residual"} if "coclr" in name else {}
    begin = {"networks": networks}
    whole = pretrain(recipe, home / "videos", tmp_path / "whole", **begin, **OPTIONS)
    total = load(whole / "last.pt")["step"]
    half = pretrain(
        recipe, home / "videos", tmp_path / "half", max_steps=total // 2 + 1, **begin, **OPTIONS
    )
    file = save_released(half, tmp_path / "half.tar")
    method = "cpr" if "cpr" in name else name.split("-")[0]
    r = load_released(file)
    assert (
        r.method == method
        and not r.report.unused
        and r.iteration == (None if method == "iic" else total // 2 + 1)
    )
    again = save_released(r, tmp_path / "again.tar")  # and through a second pair of hands
    moved = import_released(again, home / "videos", tmp_path / "moved", machine=Machine(**OPTIONS))
    pretrain(recipe, home / "videos", moved, resume=True, **OPTIONS)
    a, b = (dict(leaves(load(f / "last.pt"))) for f in (whole, moved))
    assert a.keys() == b.keys() and len(a) > 50
    for k, v in a.items():
        assert torch.equal(v, b[k]) if isinstance(v, torch.Tensor) else v == b[k], k
    states = {k for k in a if "exp_avg" in k or "momentum_buffer" in k}
    assert states and all(a[k].abs().sum() > 0 for k in states if "exp_avg" in k)


def test_without_optimizer_it_goes_elsewhere(home, tmp_path):
    "The moments of Adam are worth something: the comparison above can fail."
    recipe = override(find("infonce-toy-rgb"), queue=16, **SMALL)
    whole = pretrain(recipe, home / "videos", tmp_path / "whole", **OPTIONS)
    half = pretrain(recipe, home / "videos", tmp_path / "half", max_steps=4, **OPTIONS)
    file = save_released(half, tmp_path / "half.tar", optimizer=False)
    moved = import_released(file, home / "videos", tmp_path / "moved", machine=Machine(**OPTIONS))
    pretrain(recipe, home / "videos", moved, resume=True, **OPTIONS)
    key = "pair.projection.layers.0.weight"
    a, b = (load(f / "last.pt")["method"][key] for f in (whole, moved))
    assert not torch.equal(a, b)


def test_the_momentum_of_a_released_file_moves_at_the_start_of_the_step(home, tmp_path):
    """There (b2) before the keys are made, here after the step before: the first step here has the
    same keys.
    """
    r = load_released(save_released(home / "rgb", tmp_path / "ours.tar"))
    r.run.clear()
    file = save_released(r, tmp_path / "theirs.tar")
    recipe = override(find("infonce-toy-rgb"), queue=16, **SMALL)
    moved = import_released(
        file, home / "videos", tmp_path / "moved", recipe, machine=Machine(**OPTIONS)
    )
    old, new = (load(f / "last.pt")["method"] for f in (home / "rgb", moved))
    slow = [k for k in old if "momentum_encoder" in k]
    for k in slow:
        q = old[
            k.replace("momentum_encoder.0", "encoder").replace("momentum_encoder.1", "projection")
        ]
        still = "running_" in k or "num_batches" in k  # buffers stay
        torch.testing.assert_close(new[k], old[k] if still else 0.99 * old[k] + 0.01 * q)
        assert still or not torch.equal(new[k], old[k]), k
    assert len(slow) > 20 and all(torch.equal(new[k], old[k]) for k in old if "pair.encoder." in k)


@pytest.mark.parametrize(
    "preset, layer", [("coclr_linear", "final_fc.0"), ("coclr_finetune", "final_fc.1")]
)
def test_a_fine_tuned_run_is_written_with_its_moments(home, tmp_path, preset, layer):
    "The order of theirs: backbone, BatchNorm, layer; a frozen backbone has no moments."
    fields = dict(
        length=8,
        size=16,
        epochs=1,
        batch=8,
        selection="last",
        dropout=0.0,
        testing=Protocol("one clip", windows="middle", average="softmax"),
    )
    finetune(home / "rgb", preset, out=tmp_path / "run", fields=fields, machine=Machine(**OPTIONS))
    ours = load(tmp_path / "run" / "last.pt")["run"]
    file = torch.load(save_released(tmp_path / "run", tmp_path / "a.tar"), weights_only=True)
    state, linear = file["state_dict"], preset == "coclr_linear"
    tail = [k for k in state if not k.startswith("backbone.")]
    assert tail == [*state][-len(tail) :] and tail[-2:] == [f"{layer}.weight", f"{layer}.bias"]
    assert tail[0] == ("final_bn.weight" if linear else f"{layer}.weight")
    names = [
        k for k in state if not k.endswith(("running_mean", "running_var", "num_batches_tracked"))
    ]
    names = names[-4:] if linear else names
    groups, moments = file["optimizer"]["param_groups"], file["optimizer"]["state"]
    assert [g["params"] for g in groups] == [[i] for i in range(len(names))]
    assert {g["lr"] for g in groups} == ({0.1} if linear else {1e-3, 1e-4})
    # here the layers come first
    order = [*names[-4 if linear else -2 :], *(names[:-2] if not linear else [])]
    for i, k in enumerate(order):
        for name, x in ours["opt"]["state"][i].items():
            assert torch.equal(
                torch.as_tensor(x), torch.as_tensor(moments[names.index(k)][name])
            ), k
    r = load_released(save_released(tmp_path / "run", tmp_path / "b.tar", optimizer=False))
    assert (r.method, r.view, r.epoch, r.optimizer) == ("classifier", "rgb", 1, {})
    clips = torch.rand(2, 3, 8, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        want, got = (
            load_classifier(tmp_path / "run").scores(r.encoder(clips)),
            r.classifier.logits(clips),
        )
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-5)
        assert torch.equal(
            load_released(save_released(r, tmp_path / "c.tar")).classifier.logits(clips), got
        )
    with pytest.raises(
        ValueError, match="has method classifier, and infonce-toy-rgb has infonce; .* --init"
    ):
        import_released(
            tmp_path / "a.tar", home / "videos", tmp_path / "new", machine=Machine(**OPTIONS)
        )
    assert not (tmp_path / "new").exists()


def test_command_line(home):
    "There, measured, begun with, shared, and back; a mistake is one sentence."
    out = call("convert", "rgb", "mine-rgb.tar", cwd=home)
    assert "mine-rgb.tar" in out
    rows = call(
        "retrieve",
        "mine-rgb.tar",
        "--data",
        "videos",
        "--protocol",
        "coclr_official",
        "--set",
        "length=8",
        "size=16",
        "--out",
        "measured",
        "--workers",
        "0",
        "--no-baselines",
        cwd=home,
    )
    assert "mine-rgb" in rows
    results = json.loads((home / "measured" / "results.json").read_text())
    assert any(
        r["name"] == "mine-rgb" and r["protocol"]["name"] == "coclr_official" for r in results
    )
    call("convert", "mine-rgb.tar", "moved", "--data", "videos", cwd=home)
    assert json.loads((home / "moved" / "card.json").read_text())["finished"]
    call(
        "pretrain",
        "infonce-toy-rgb",
        "--data",
        "videos",
        "--init",
        "mine-rgb.tar",
        "--out",
        "begun",
        "--epochs",
        "1",
        "--batch",
        "8",
        "--queue",
        "16",
        "--length",
        "8",
        "--size",
        "16",
        "--workers",
        "0",
        "--quiet",
        "--device",
        "cpu",
        cwd=home,
    )
    given = json.loads((home / "begun" / "card.json").read_text())["given"]
    assert given["encoder"]["run"] == "mine-rgb.tar"
    call("convert", "mine-rgb.tar", "shared", cwd=home)
    files = sorted(p.name for p in (home / "shared").iterdir())
    assert files == ["README.md", "config.json", "model.safetensors"]
    net = torch.hub.load(str(ROOT), "encoder", str(home / "shared"), source="local")
    same = torch.hub.load(str(ROOT), "released", str(home / "mine-rgb.tar"), source="local")
    clips = torch.rand(2, 3, 16, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(net(clips), same(clips)) and same.released.method == "infonce"
    assert torch.hub.load(str(ROOT), "backbone", "tiny", source="local").dim == net.dim


def test_cotraining_begins_with_files(home):
    save_released(home / "rgb", home / "a-rgb.tar")
    save_released(home / "residual", home / "unnamed.tar")
    small = [
        "--workers",
        "0",
        "--quiet",
        "--device",
        "cpu",
        "--set",
        "epochs=1",
        "batch=8",
        "queue=16",
        "topk=3",
        "test_clips=1",
        "length=8",
        "size=16",
    ]
    call(
        "cotrain",
        "coclr-toy",
        "--data",
        "videos",
        "--out",
        "co",
        "--init",
        "a-rgb.tar",
        "residual=unnamed.tar",
        *small,
        cwd=home,
    )
    cards = {p.parent.name: json.loads(p.read_text()) for p in (home / "co").glob("*/card.json")}
    given = {n: c["given"]["encoder"]["run"] for n, c in cards.items()}
    begun = sorted(v for n, v in given.items() if n.startswith("infonce"))
    assert begun == ["a-rgb.tar", "unnamed.tar"], given
    words = call(
        "cotrain",
        "coclr-toy",
        "--data",
        "videos",
        "--out",
        "co2",
        "--init",
        "unnamed.tar",
        *small,
        cwd=home,
        code=2,
    )
    assert "does not say its view; write it as rgb=unnamed.tar" in words


def test_mistakes_on_the_command_line(home):
    (home / "short-rgb.tar").write_bytes(
        save_released(home / "rgb", home / "b-rgb.tar").read_bytes()[:5000]
    )
    r = load_released(home / "b-rgb.tar")
    r.run.clear()
    save_released(r, home / "bare.tar")
    for words, args in (
        ("damaged, or its end is missing", ["retrieve", "short-rgb.tar", "--data", "videos"]),
        ("say it with --view rgb", ["retrieve", "bare.tar", "--data", "videos"]),
        ("carries no recipe", ["convert", "bare.tar", "new", "--data", "videos"]),
        ("there is no", ["convert", "none.tar", "x.tar"]),
        ("is a run already", ["convert", "rgb", "new", "--data", "videos"]),
        ("--recipe makes a run", ["convert", "b-rgb.tar", "new", "--recipe", "infonce-toy-rgb"]),
        (
            "needs residual",
            [
                "pretrain",
                "infonce-toy-residual",
                "--data",
                "videos",
                "--batch",
                "8",
                "--init",
                "b-rgb.tar",
            ],
        ),
        (
            "damaged, or its end",
            [
                "pretrain",
                "infonce-toy-rgb",
                "--data",
                "videos",
                "--batch",
                "8",
                "--init",
                "short-rgb.tar",
            ],
        ),
    ):
        assert words in call(*args, cwd=home, code=2), args
    assert not (home / "new").exists()


def test_runs_without_a_layout(home, tmp_path):
    recipe = override(find("infonce-toy-rgb"), queue=0, **SMALL | {"epochs": 1})
    run = pretrain(recipe, home / "videos", tmp_path / "run", **OPTIONS)
    with pytest.raises(
        CheckpointError, match="has no queue, for which there is no released layout"
    ):
        save_released(run, tmp_path / "x.tar")
    with pytest.raises(CheckpointError, match="is no run folder"):
        save_released(tmp_path, tmp_path / "x.tar")


def test_what_does_not_go_on_is_refused(home, tmp_path):
    "Another queue or method, no recipe, a recipe that names code; nothing is left behind."
    file = save_released(home / "rgb", tmp_path / "c-rgb.tar")
    recipe, labels = (
        override(find(f"{name}-toy-rgb"), queue=16, **SMALL) for name in ("infonce", "ubernce")
    )

    def refused(words, file=file, recipe=None):
        with pytest.raises(ValueError, match=words):
            import_released(
                file, home / "videos", tmp_path / "new", recipe, machine=Machine(**OPTIONS)
            )
        assert not (tmp_path / "new").exists()

    refused("has queue 16, and infonce-toy-rgb has 64", recipe=override(recipe, queue=64))
    refused("has method infonce, and ubernce-toy-rgb has ubernce", recipe=labels)
    r = load_released(file)
    r.run["recipe"] = r.run["recipe"].replace('"tiny"', '"os:system"')
    refused(
        "names 'os:system', code that is not of this library",
        save_released(r, tmp_path / "evil.tar"),
    )
    r.run.clear()
    bare = save_released(r, tmp_path / "bare.tar")
    refused("carries no recipe; say which one with --recipe", bare)
    with pytest.raises(CheckpointError, match="--view rgb"):
        convert(bare, tmp_path / "x.safetensors")
    with pytest.raises(CheckpointError, match="is what is to be converted"):
        convert(bare, bare)


@torch.inference_mode()
def test_an_encoder_stays_itself_on_every_way(home, tmp_path):
    clips = torch.rand(2, 3, 16, 32, 32, generator=torch.Generator().manual_seed(0))
    want = read_encoder(home / "rgb" / "encoder.safetensors")[0](clips)
    convert(home / "rgb", tmp_path / "d-rgb.tar")
    for source in (home / "rgb", tmp_path / "d-rgb.tar"):
        for out in (tmp_path / "one.safetensors", tmp_path / "folder"):
            convert(source, out)
        assert torch.equal(read_encoder(tmp_path / "one.safetensors")[0](clips), want)
        assert torch.equal(from_pretrained(tmp_path / "folder")(clips), want)
    about = read_encoder(tmp_path / "one.safetensors")[1]
    assert (about["view"], about["source"], about["method"]) == ("rgb", "d-rgb.tar", "infonce")
