"IIC from the outside: trained, killed and resumed, measured, mined with, walked at full size."

import csv
import json

import pytest
import torch

import warm
from vssl_nb.app import cli
from vssl_nb.data import toy
from vssl_nb.training.checkpoints import load
from vssl_nb.runs.experiment import resolve
from vssl_nb.runs.trace import dry_run
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.training.machine import Machine
from vssl_nb.measure.features import VIEW_OPTIONS, encoder_views, open_encoder
from vssl_nb.methods.recipes import RECIPES
from vssl_nb.fields import RecipeError
from vssl_nb.config import TrainingVideos
from vssl_nb.methods.recipes import find, override, refuse_unfit
from vssl_nb.data.views import Views

QUIET = Machine("cpu", workers=0, progress=False)
SHORT = (
    "--epochs",
    "2",
    "--batch",
    "16",
    "--warmup",
    "0",
    "--negatives",
    "20",
    "--length",
    "4",
    "--size",
    "16",
    "--device",
    "cpu",
    "--workers",
    "0",
    "--quiet",
)


def run(place, *words):
    return warm.run(words, cwd=place)


def log(folder):
    with (folder / "steps.csv").open(newline="") as f:
        return list(csv.DictReader(f))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("iic")
    toy.make(root / "toy", "tiny", progress=False)
    done = run(
        root,
        "pretrain",
        "iic-cpr-toy",
        "--data",
        "toy",
        "--out",
        "cpr",
        "--topk",
        0,
        2,
        "--normalisation",
        "none",
        *SHORT,
    )
    assert done.returncode == 0, done.stderr
    return root


def test_trained_from_the_command_line(place):
    rows = log(place / "cpr")
    assert [float(r["positives"]) for r in rows] == [1, 1, 1, 3, 3, 3]  # nobody, then two
    # `iic-toy` compares directions
    assert all(float(r["norm"]) == pytest.approx(1, abs=1e-4) for r in rows)
    assert any(r["mined"] not in ("", "nan") for r in rows[3:]) and float(rows[-1]["cmr"]) >= 0
    state = load(place / "cpr" / "last.pt")["method"]
    assert state["bank.keys"].shape == (48, 128) and bool(state["bank.valid"].all())
    assert {"bank.keys", "bank.keys_1", "bank.keys_2"} <= set(state)


def test_a_killed_run_ends_where_an_unbroken_one_ends(place):
    recipe = override(
        find("iic-toy"), epochs=2, batch=16, warmup=0.0, negatives=20, length=4, size=16
    )
    pretrain(recipe, place / "toy", place / "whole", machine=QUIET)
    pretrain(recipe, place / "toy", place / "cut", machine=QUIET, max_steps=4)
    pretrain(recipe, place / "toy", place / "cut", True, QUIET)
    a, b = (load(place / n / "last.pt")["method"] for n in ("whole", "cut"))
    assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_what_it_looks_at_is_written_down(place):
    "Un-normalised frames are what the encoder sees afterwards, too."
    about = open_encoder(place / "cpr")[1].about
    assert {"mean", "std"} <= set(VIEW_OPTIONS) and list(about["mean"]) == [0, 0, 0]
    how = encoder_views(about)
    clips = torch.full((1, 1, 3, 4, 8, 8), 100 / 255)
    seen = Views(("rgb",), **how).from_floats(clips)["rgb"]
    assert torch.allclose(seen, clips)
    done = run(place, "retrieve", "cpr", "--device", "cpu", "--workers", "0")
    assert done.returncode == 0, done.stderr


def test_both_views_of_one_network_mine(place):
    done = run(
        place,
        "mine",
        "cpr",
        "--miners",
        "topk",
        "cascade,stages=2,order=paper",
        "--topk",
        2,
        "--out",
        "found.json",
        "--device",
        "cpu",
        "--workers",
        "0",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("48 candidates; residual mines for rgb")
    assert [q["views"] for q in json.loads((place / "found.json").read_text())] == [
        ["residual", "rgb"]
    ] * 2


@pytest.mark.parametrize(
    "words, says",
    [
        (("--second-view", "rgb"), "view and second_view are both 'rgb'"),
        (("--length", 3), "no four parts"),
        (("--topk", 47), "is too many: of 48 training videos"),
        (("--intra", "rotate"), "intra"),
        (("--clips", 2), "iic takes 1 clips of each video (x)"),
        (("--negatives", 0), "negatives=0"),
        (("--bn", "split", "--groups", 3), "does not divide into groups=3"),
    ],
)
def test_what_is_refused(place, words, says, capsys, monkeypatch):
    monkeypatch.chdir(place)
    code = cli.main(
        [
            "pretrain",
            "iic-cpr-toy",
            "--data",
            "toy",
            "--out",
            "no",
            "--batch",
            "16",
            "--device",
            "cpu",
            "--workers",
            "0",
            *map(str, words),
        ]
    )
    told = capsys.readouterr().err
    assert code == 2 and says in told and "Traceback" not in told, told
    assert not (place / "no").exists()


NAMES = [n for n in RECIPES if n.startswith("iic-")]


def test_the_released_recipes():
    "b11, number by number."
    assert len(NAMES) == 8
    for name in NAMES:
        r = find(name)
        if "ucf101" not in name:
            continue
        learning, method = r.learning, r.method
        assert (r.backbone, r.size, r.sampling.length, r.normalisation) == (
            "r3d18_iic",
            112,
            16,
            "none",
        )
        assert (
            learning.optimizer,
            learning.lr,
            learning.sgd_momentum,
            learning.weight_decay,
            learning.batch,
        ) == ("sgd", 0.01, 0.9, 1e-4, 16)
        assert learning.epochs == 240 * learning.cycles and learning.drops == (45, 90, 125, 160)
        assert (method.negatives, method.temperature, method.bank_momentum) == (1024, 0.07, 0.5)
        assert not (method.normalise or method.intra_gradient or method.mask_own or method.head)
        assert r.augment.area == (pytest.approx(0.573, abs=1e-3),) * 2 and r.augment.flip == 0
    assert [find(f"iic-ucf101-{n}").views for n in ("residual", "flow-u", "flow")] == [
        ("rgb", "residual"),
        ("rgb", "flow_u"),
        ("rgb", "flow_v"),
    ]
    assert find("iic-ucf101-residual").residual == "wrapped"


@pytest.mark.parametrize(
    "name", ["iic-ucf101-residual", "iic-ucf101-flow", "iic-cpr-ucf101-residual"]
)
def test_at_full_size(name):
    seen = dry_run(resolve(override(find(name), backbone="tiny", batch=4)))
    assert (
        seen.learned == (True, True) and ("cmr" in seen.logs) == ("cpr" in name) and not seen.waits
    )


def test_a_bank_that_is_too_small_to_mine_from():
    videos = TrainingVideos("m.csv", ("a", "b", "c"), (0, 0, 1), (0, 0, 1))
    recipe = override(find("iic-cpr-toy"), batch=2, topk=[1])
    refuse_unfit(recipe, videos)
    with pytest.raises(RecipeError, match="up to 2 share the source"):
        refuse_unfit(override(recipe, topk=[1, 2]), videos)
    refuse_unfit(override(recipe, topk=[9], miner=None), videos)  # nobody mines
