"ProViCo from the command line: it trains, goes on, exports its head, and says what it refuses."

import csv
import math
import re
import shlex

import pytest
import torch
import warm
from house import NBS, cells

from vssl_nb.runs.experiment import resolve
from vssl_nb.runs.trace import dry_run, trace_step
from vssl_nb.training.checkpoints import load, read_encoder, read_heads
from vssl_nb.app.cli import parse
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.nets.backbones import create
from vssl_nb.nets.heads import GaussianHead
from vssl_nb.methods.provico import ProViCo
from vssl_nb.methods.recipes import RECIPES, difference, find, override, refuse_unfit
from vssl_nb.config import TrainingVideos

SMALL = [
    "--epochs",
    "4",
    "--batch",
    "8",
    "--warmup",
    "0.5",
    "--test-clips",
    "2",
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


class Still(torch.nn.Module):
    "In place of an encoder."

    dim = 3

    def forward(self, x):
        return x.flatten(1)


def call(*args, cwd):
    return warm.run(args, cwd)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    "A folder with toy videos and one finished run."
    there = tmp_path_factory.mktemp("provico")
    assert call("toy", "videos", "--size", "tiny", cwd=there).returncode == 0
    done = call("pretrain", "provico-toy", *SMALL, "--data", "videos", "--out", "whole", cwd=there)
    assert done.returncode == 0, done.stderr
    return there


def test_pretrain(place):
    "Nothing is mined in the first quarter; the head is exported with the encoder."
    rows = list(csv.DictReader((place / "whole" / "steps.csv").open(newline="")))
    assert len(rows) == 24
    assert {"soft", "soft_own", "kl", "log_uncertainty", "mined", "precision", "recall"} <= rows[
        0
    ].keys()
    assert all(float(r["mined"]) == 0 for r in rows[:6])
    assert all(float(r["kl"]) >= 0 and -15 <= float(r["log_uncertainty"]) <= 15 for r in rows)
    head = read_heads(place / "whole" / "encoder.safetensors")["gaussian"]
    assert isinstance(head, GaussianHead) and head.dim == 64
    # both have learned
    assert head.a.item() > 0 and head.a.item() != 15 and head.b.item() != 15
    encoder, _ = read_encoder(place / "whole" / "encoder.safetensors")
    kept = load(place / "whole" / "last.pt")["method"]
    assert all(torch.equal(v, kept[f"head.{k}"]) for k, v in head.state_dict().items())
    mu, s = head(encoder(torch.zeros(2, 3, 16, 32, 32))).unbind(1)
    assert torch.allclose(mu.norm(dim=1), torch.ones(2)) and s.isfinite().all()


@pytest.mark.parametrize("stop", [5, 6, 17])
def test_resume_in_either_stage(place, stop):
    recipe = override(
        find("provico-toy"), epochs=4, batch=8, warmup=0.5, test_clips=2, length=4, size=16
    )
    how = dict(device="cpu", progress=False, cache=64, workers=0)
    out = pretrain(recipe, place / "videos", place / f"stopped{stop}", max_steps=stop, **how)
    pretrain(recipe, place / "videos", out, resume=True, **how)
    one, other = (load(run / "last.pt")["method"] for run in (out, place / "whole"))
    assert all(torch.equal(v, other[k]) for k, v in one.items())
    assert (out / "steps.csv").read_text() == (place / "whole" / "steps.csv").read_text()


def test_refusals(place):
    for options, says in (
        (["--clips", "3"], "use clips=2"),
        (["--samples", "1"], "samples"),
        (["--batch", "1"], "batch=1"),
        (["--accumulate", "2"], "would compare, and normalise"),
        (["--distance", "cosine"], "distance"),
        (["--threshold", "-1"], "threshold"),
        (["--dim-hidden", "8"], "no hidden layer"),
    ):
        done = call(
            "pretrain",
            "provico-toy",
            *SMALL,
            *options,
            "--data",
            "videos",
            "--out",
            "refused",
            cwd=place,
        )
        assert done.returncode == 2 and says in done.stderr, (options, done.stderr)
        assert "Traceback" not in done.stderr and not (place / "refused").exists()


def test_options_of_the_page():
    "Each is accepted by the command line, fits together, and changes something."
    text = "\n".join(
        c["source"] for c in cells(NBS / "dossiers/provico.ipynb") if c["cell_type"] == "markdown"
    )
    rows = re.findall(r"^\| ((?:appendix )?(?:table|figure) \d) \| .*? \| (`--.*?) \|$", text, re.M)
    assert len(rows) == 6
    for _, cell in rows:
        options = cell[1:].split("`")[0].replace("N", "3").replace("(", "")
        more = " ".join(re.findall(r"`(--[^`]*)`", cell)[1:])
        asked = ["provico-ucf101-r3d18", "--data", "x", *shlex.split(f"{options} {more}")]
        made = parse("pretrain", asked).recipe
        refuse_unfit(made, VIDEOS)
        assert difference(find("provico-ucf101-r3d18"), made)


def test_the_papers_numbers():
    ours = {name: r for name, r in RECIPES.items() if re.match("provico-(ucf101|k400)", name)}
    assert len(ours) == 5
    for name, r in ours.items():
        how, wide = r.learning, name.endswith("r3d50")
        assert (how.epochs, how.lr, how.optimizer) == (200, 1e-4, "adam")
        assert (how.schedule, how.warmup) == ("cosine", 20)
        assert (how.batch, r.size) == ((512, 224) if wide else (96, 112))
        assert (r.sampling.clips, r.sampling.length, r.sampling.stride) == (2, 16, 1)
        assert not any(
            (r.augment.flip, r.augment.jitter, r.augment.grey, r.augment.blur, r.augment.permute)
        )
        assert (r.method.samples, r.method.threshold, r.method.beta) == (10, 0.15, 1e-4)
        assert r.method.self_pairs  # Eqs. 6 and 9 as printed
        assert r.method.doubt == "total"  # with one direction beta has no effect: page 17
        with torch.device("meta"):
            net = create(r.backbone)
        millions = (
            sum(p.numel() for p in net.parameters()) + (not wide) * 400 * (net.dim + 1)
        ) / 1e6
        if "r2plus1d" not in name:
            assert round(millions, 1) == (31.7 if wide else 20.2), name
    toy = find("provico-toy").method  # the numbers in results/ are of it
    assert (toy.self_pairs, toy.doubt, toy.dim) == (False, "total", 64)


@pytest.mark.parametrize("threshold", [0.15, None])
def test_a_video_with_itself(threshold):
    """Far apart samples of a video: as printed its loss ends at log K, without the pairs k = k' it
    does not.
    """

    def of_itself(**how):
        method = ProViCo(Still(), samples=4, dim=8, variance=1e4, threshold=threshold, **how)
        loss, logs = method({"rgb": torch.ones(3, 2, 3, 1, 1, 1), "step": 0})
        loss.backward()
        assert all(p.grad.isfinite().all() for p in method.parameters())
        return logs["soft_own"].item()

    assert of_itself() == pytest.approx(math.log(4), rel=1e-3) and of_itself(self_pairs=False) > 100


def test_it_is_walked_and_measured_beforehand():
    assert {"soft", "kl", "log_uncertainty", "mined"} <= {
        *dry_run(resolve(find("provico-toy"))).logs
    }
    assert trace_step(resolve(find("provico-toy")), "float32").flops.sum() > 0
