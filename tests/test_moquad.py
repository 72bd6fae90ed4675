"""MoQuad from the command line, and the options that its page gives for the rows of the paper's
tables.
"""

import csv
import json
import re
import shlex
from unittest import mock

import pytest
import torch
import warm
from house import NBS, cells

from vssl_nb.app.cli import parse
from vssl_nb.training.checkpoints import load
from vssl_nb.distributed import run_distributed
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.runs.experiment import BlankVideos, resolve
from vssl_nb.training.machine import Machine
from vssl_nb.runs.trace import dry_run, trace_step
from vssl_nb.data.manifest import read
from vssl_nb.methods import moquad
from vssl_nb.methods.simclr import SimCLR
from vssl_nb.nets.backbones import create
from vssl_nb.papers.reproduce import find_rows
from vssl_nb.methods.recipes import RECIPES, difference
from vssl_nb.fields import RecipeError
from vssl_nb.config import TrainingVideos
from vssl_nb.methods.recipes import find, override, refuse_unfit
from vssl_nb.training.loop import loader

SMALL = [
    "--epochs",
    "5",
    "--batch",
    "8",
    "--warmup",
    "0.5",
    "--test-clips",
    "1",
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
VIDEOS = TrainingVideos("m.csv", ("a", "b"), (0, 1), (0, 1))


def call(*args, cwd):
    return warm.run(args, cwd)


def options_of_the_page():
    "The table of the dossier: (paper, row, options)."
    text = "\n".join(
        c["source"] for c in cells(NBS / "dossiers/moquad.ipynb") if c["cell_type"] == "markdown"
    )
    return re.findall(r"^\| (table \d) \| (.*?) \| `(--.*?)` \|$", text, re.M)


ROWS = options_of_the_page()


@pytest.mark.parametrize("table, row, options", ROWS, ids=[f"{t}, {r}" for t, r, _ in ROWS])
def test_options_of_the_page(table, row, options):
    "Each is accepted by the command line, fits together, and changes something."
    name = "moquad-k400-r3d50" if "800" in row else "moquad-ucf101-r3d18"
    made = parse("pretrain", [name, "--data", "x", *shlex.split(options)]).recipe
    refuse_unfit(made, VIDEOS)
    changed = difference(find(name), made)
    assert changed and {f"--{f.replace('_', '-')}" for f in changed} == set(
        re.findall("--[a-z-]+", options)
    )


def test_simclr_with_one_and_with_two_anchors():
    "Its one-sided form is rung 0 of the ladder; the two-sided one is another loss."

    def trained(kind, **fields):
        method = kind(create("tiny", seed=1, widths=(4, 6), strides=((2, 2), (2, 2))), **fields)
        loss, _ = method(
            {"rgb": torch.randn(4, 2, 3, 4, 16, 16, generator=torch.Generator().manual_seed(0))}
        )
        loss.backward()
        return [loss.detach(), *(p.grad for p in method.parameters())]

    one = trained(SimCLR, symmetric=False)
    rung = trained(moquad.MoQuad, **vars(find("moquad-toy-rung0").method))
    assert len(one) == len(rung) > 8 and all(
        torch.allclose(a, b, atol=1e-6) for a, b in zip(one, rung)
    )
    assert abs(trained(SimCLR)[0] - one[0]) > 1e-3
    both = [find(f"simclr-ucf101-r3d18{more}") for more in ("", "-one-sided")]
    assert [r.method.symmetric for r in both] == [True, False]
    assert {*difference(*both)} == {"name", "symmetric"}
    two, one = find_rows("moquad:table4")[1][:2]  # each on the toy as on UCF101
    for row, symmetric in (two, True), (one, False):
        for r in row.full.made(), row.small.made():
            assert getattr(r.method, "symmetric", False) is symmetric and r.sampling.clips == 2


def test_every_row_of_the_ablations_is_there():
    found = [(t, r) for t, r, _ in ROWS]
    assert len(found) == len(set(found)) == 17
    assert [sum(t == f"table {n}" for t, _ in found) for n in (1, 4, 5, 6)] == [2, 4, 4, 7]
    ladder = [
        parse("pretrain", ["moquad-toy", "--data", "x", *shlex.split(o)]).recipe
        for t, _, o in ROWS
        if t == "table 4"
    ]
    for i, recipe in enumerate(ladder):  # the same options make the ladder of the toy
        assert {*difference(recipe, find(f"moquad-toy-rung{i}"))} <= {
            "name",
            *(["lr"] if i == 0 else []),
        }


def test_the_papers_numbers():
    ours = {name: r for name, r in RECIPES.items() if re.match("moquad-(ucf101|k400|ssv2)", name)}
    assert len(ours) == 9
    for name, r in ours.items():
        how = r.learning
        assert (how.batch, how.lr, how.optimizer, how.schedule) == (256, 3.2, "lars", "cosine")
        assert (r.size, r.sampling.length, r.sampling.clips, r.sampling.motion) == (
            224,
            16,
            4,
            "speed",
        )
        assert (r.augment.appearance, r.augment.windows, r.augment.strength) == (
            "rad_inter",
            5,
            (0.1, 0.5),
        )
        assert (r.method.alpha, r.method.beta, r.method.appearance_task) == (1.5, 0.01, 0.2)
        assert how.epochs == (800 if "ucf101" in name else 200)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    "A folder with biased toy videos and one finished run."
    there = tmp_path_factory.mktemp("moquad")
    assert call("toy", "videos", "--size", "tiny", "--bias", "0.9", cwd=there).returncode == 0
    done = call("pretrain", "moquad-toy", *SMALL, "--data", "videos", "--out", "whole", cwd=there)
    assert done.returncode == 0, done.stderr
    return there


def rows(run):
    return list(csv.DictReader((run / "steps.csv").open(newline="")))


def test_pretrain(place):
    "The appearance task takes the first fifth; after it there are ranks of intra-negatives."
    logged = rows(place / "whole")
    assert len(logged) == 30
    early = [r["rank_n"] == "nan" and r["rank_nn"] == "nan" for r in logged]
    assert early == [i < 6 for i in range(30)]
    assert all(
        1 <= float(r[c]) <= 31 for r in logged[6:] for c in ("rank_positive", "rank_n", "rank_nn")
    )
    # one of 2B-1 candidates
    assert all(1 <= float(r["rank_positive"]) <= 15 for r in logged[:6])
    recipe = json.loads((place / "whole" / "recipe.json").read_text())
    assert recipe["method"]["name"] == "moquad" and recipe["sampling"]["motion_clips"] == [2, 3]
    done = call("retrieve", "whole", "--workers", "0", cwd=place)
    assert done.returncode == 0 and "moquad-toy" in done.stdout, done.stderr


@pytest.mark.parametrize("stop", [4, 6, 11])
def test_resume_in_either_stage(place, stop):
    recipe = override(
        find("moquad-toy"), epochs=5, batch=8, warmup=0.5, test_clips=1, length=4, size=16
    )
    how = dict(device="cpu", progress=False, cache=64, workers=0)
    out = pretrain(recipe, place / "videos", place / f"stopped{stop}", max_steps=stop, **how)
    assert load(out / "last.pt")["step"] == stop
    pretrain(recipe, place / "videos", out, resume=True, **how)
    one, other = (load(run / "last.pt")["method"] for run in (out, place / "whole"))
    assert all(torch.equal(v, other[k]) for k, v in one.items())
    assert (out / "steps.csv").read_text() == (place / "whole" / "steps.csv").read_text()


def test_refusals(place):
    for options, says in (
        (["--intra-negatives", "n"], "use clips=3"),
        (["--motion", "none"], "motion_clips"),
        (["--motion", "shuffle"], "needs clips at two speeds"),
        (["--batch", "1"], "batch=1"),
        (["--accumulate", "2"], "would compare, and normalise"),
    ):
        asked = ["pretrain", "moquad-toy", *SMALL, *options, "--data", "videos", "--out", "refused"]
        done = call(*asked, cwd=place)
        assert done.returncode == 2 and says in done.stderr, done.stderr
        assert "Traceback" not in done.stderr and not (place / "refused").exists()


def test_one_video_in_a_process_has_no_donor(place):
    "Two processes with a batch of two: each has a single video, and RAD needs another one."
    recipe = override(find("moquad-toy"), epochs=1, batch=2, warmup=0.5)

    def here():
        pretrain(recipe, place / "videos", place / "alone", device="cpu", progress=False, workers=0)

    with pytest.raises(RuntimeError, match="a batch of 2 or more in each process"):
        run_distributed(here)
    assert not (place / "alone" / "recipe.json").exists()


def test_the_positive_is_disturbed_as_the_recipe_says(place):
    "On every rung: which clips carry a still image, and which have the other speed."
    manifest = read(place / "videos")
    for i, looks in enumerate(([0, 0], [0, 1], [0, 1, 0], [0, 1, 0, 1])):
        clips = resolve(override(find(f"moquad-toy-rung{i}"), batch=8), manifest).clips
        batch = next(iter(loader(clips, 8, 1)))
        mix = batch["augment"].get("mix", torch.zeros(8, len(looks)))
        assert torch.equal(mix > 0, torch.tensor(looks).bool().expand(8, -1))
        assert mix.max() <= 0.7


def test_an_augmentation_of_ones_own_need_not_know_of_still_images(place, monkeypatch, tmp_path):
    (tmp_path / "plain_pixels.py").write_text("""
from types import SimpleNamespace
from vssl_nb.data.augmentation import apply, centre

def draw(
    rng, clips, frames, height, width, *, size, colour, area, aspect, crop, flip, jitter,
    brightness, contrast, saturation, hue, grey, grey_mode, permute, blur, sigma, same=False,
):
    return centre(clips, frames, height, width, size=size)

pixels = SimpleNamespace(draw=draw, apply=apply)
""")
    monkeypatch.syspath_prepend(tmp_path)
    plain = override(find("moquad-toy-rung0"), augmentation="plain_pixels:pixels")
    assert resolve(plain, read(place / "videos")).clips[0, 0]["clips"].shape == (2, 16, 32, 32, 3)


def test_a_dry_run_walks_both_stages():
    with mock.patch.object(moquad, "quadruple_loss", wraps=moquad.quadruple_loss) as loss:
        seen = dry_run(resolve(find("moquad-toy")))
    assert seen.learned == (True, True) and not seen.waits
    appearance, quadruples = ((call.args[2], call.args[5] > 0) for call in loss.call_args_list)
    # the positive; are there hard negatives?
    assert (appearance, quadruples) == (("n", False), ("p", True))
    assert {"top1", "rank_positive", "rank_n", "rank_nn"} <= {*seen.logs}


def test_memory_is_that_of_quadruples():
    "Not of the appearance task, which comes first and encodes half of the clips."

    def flops(**changes):
        return trace_step(resolve(override(find("moquad-toy"), **changes)), "float32").flops.sum()

    assert flops() == pytest.approx(flops(appearance_task=0.0), rel=1e-3)
    assert flops() == pytest.approx(
        2
        * flops(
            intra_negatives=(),
            clips=2,
            motion="none",
            motion_clips=(),
            appearance_clips=(1,),
            appearance_task=0.0,
        ),
        rel=0.05,
    )


def test_own_negatives_come_in_one_order():
    with pytest.raises(RecipeError, match="in this order"):
        refuse_unfit(override(find("moquad-toy"), intra_negatives=("nn", "n")), VIDEOS)


def test_activations_computed_again_change_nothing_but_memory():
    """Synchronised BatchNorm counts a step once; loss, gradients and statistics are the same to the
    bit.
    """
    clips = torch.randn(2, 4, 3, 8, 32, 32, generator=torch.Generator().manual_seed(0))

    def two_steps(again):
        recipe = override(
            find("moquad-ucf101-r3d18"), batch=2, length=8, size=32, appearance_task=0.0
        )
        method = resolve(recipe, BlankVideos(2), Machine("cpu")).method.train()
        method.encoder.activation_checkpointing, kept, told = again, {}, []

        def pack(x):
            kept[x.untyped_storage().data_ptr()] = x
            return x

        for _ in range(2):
            kept.clear()
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
                loss, _ = method({"rgb": clips, "progress": 1.0})
            told.append(loss.detach())
            loss.backward()  # gradients of both steps add up
        return method, told, sum(x.untyped_storage().nbytes() for x in kept.values())

    (plain, losses, all_), (twice, losses_2, few) = two_steps(False), two_steps(True)
    assert torch.equal(torch.stack(losses), torch.stack(losses_2))
    for (name, p), q in zip(plain.named_parameters(), twice.parameters()):
        assert torch.equal(p.grad, q.grad), name
    for (name, b), c in zip(plain.named_buffers(), twice.buffers()):
        assert torch.equal(b, c), name
    counts = [b for name, b in twice.named_buffers() if name.endswith("num_batches_tracked")]
    assert len(counts) == 20 and all(int(n) == 2 for n in counts)
    assert few < 0.6 * all_, (few, all_)
    print(f"kept {all_ / 1e6:.0f} MB, with recomputation {few / 1e6:.0f} MB")


def test_a_batch_of_256_on_one_gpu():
    """The paper's batch in the table of page 43: S3D-G fits on a large GPU if computed again,
    R3D-18 on none.
    """
    table = {
        r["name"]: r
        for r in json.loads((NBS.parent / "results" / "budget.json").read_text())["rows"]
    }
    for name in ("moquad-ucf101-r3d18", "moquad-ucf101-s3dg"):
        r = table[name]
        assert r["batch"] == 256 and r["recomputed"] < 0.7 * r["memory"]
        assert r["batches"]["141 GB"][0] < 256  # activations kept, it fits on no single one
    assert (
        table["moquad-ucf101-r3d18"]["batches"]["141 GB"][1]
        < 256
        <= table["moquad-ucf101-s3dg"]["batches"]["141 GB"][1]
    )
