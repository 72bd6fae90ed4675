"Fine-tuning on embeddings drawn from the Gaussian of a video (ProViCo, appendix C.2)."

import json
from functools import partial
from pathlib import Path

import pytest
import torch

from vssl_nb.app import cli
from vssl_nb.nets import backbones
from vssl_nb.data import manifest, toy
from vssl_nb.nets.heads import make_head
from vssl_nb.training.checkpoints import load, read_heads
from vssl_nb.measure.classify import load_classifier, load_predictions, predict_videos
from vssl_nb.measure.features import ProtocolClips, all_clips, clip_batch
from vssl_nb.measure.protocols import protocol
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.runs.finetuning import as_video_classifier, finetune, predict, preset
from vssl_nb.nets.heads import mixture_moments
from vssl_nb.training.machine import Machine
from vssl_nb.methods.recipes import find, override
from vssl_nb.methods.supervised import Classifier
from vssl_nb.data.views import Views


def looks(**fields):
    return protocol("clean", average="softmax", **fields)


QUIET = Machine(device="cpu", progress=False, workers=0)
SHORT = dict(epochs=2, batch=8, length=8, size=32, testing=looks(clips=4), samples=3)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    "Toy videos, a run with a Gaussian head and one without."
    there = tmp_path_factory.mktemp("drawn")
    toy.make(there / "toy", "tiny", progress=False)
    how = dict(epochs=1, batch=8, warmup=0.5, test_clips=2)
    for name, more in (("provico-toy", {}), ("simclr-toy-residual", {})):
        pretrain(
            override(find(name), **how, **more),
            there / "toy",
            there / name,
            device="cpu",
            progress=False,
            workers=0,
        )
    return there


def net(name="provico_finetune", **fields):
    how = preset(name, **dict(length=8, size=32, samples=5, testing=looks(clips=4)) | fields)
    encoder = backbones.create("tiny", seed=1)
    head = make_head("gaussian", encoder.dim, None, 16, 3)
    return Classifier(encoder, 8, gaussian=head, **vars(how.method)), how


def clips(B=4, N=2):
    return torch.randn(B, N, 3, 8, 32, 32, generator=torch.Generator().manual_seed(0))


def louder(c):
    "Weights large enough that classes differ."
    torch.nn.init.normal_(c.fc.weight, generator=torch.Generator().manual_seed(1))
    return c


@pytest.mark.parametrize("name", ["provico_finetune", "provico_linear"])
def test_loss_is_that_of_a_slow_loop(name):
    import numpy as np

    c, how = net(name)
    assert how.method.mixture == 2 and preset(name).method.samples == 10
    louder(c).eval()
    x, y = clips(), torch.tensor([0, 3, 3, 7])
    loss, logs = c({"rgb": x, "label": y, "step": 9})
    rng = np.random.default_rng((0, 9, 0, 8))  # generator('samples', …)
    noise = torch.from_numpy(rng.standard_normal((4, 5, 16), dtype=np.float32))
    total, right = 0.0, 0
    for i in range(4):
        mu, s = c.gaussian(c.encoder(x[i])).unbind(1)
        mean, var = mu.mean(0), s.exp().mean(0) + mu.var(0, correction=0)
        p = torch.stack(
            [torch.softmax(c.fc(mean + var.sqrt() * noise[i, k]), 0) for k in range(5)]
        ).mean(0)
        total -= p[y[i]].log().item() / 4
        right += (p.argmax() == y[i]).item() / 4
    assert loss.item() == pytest.approx(total, rel=1e-5) and logs["top1"].item() == pytest.approx(
        right
    )
    assert c({"rgb": x, "label": y, "step": 10})[0].item() != loss.item()


def test_without_variance_it_is_the_classifier_on_the_mean():
    c, how = net()
    louder(c).eval()
    torch.nn.init.zeros_(c.gaussian.log_variance.weight)
    torch.nn.init.constant_(c.gaussian.log_variance.bias, -80.0)
    x, y = clips(N=1), torch.arange(4)
    loss = c({"rgb": x, "label": y})[0]
    assert torch.allclose(loss, torch.nn.functional.cross_entropy(c.logits(x[:, 0]), y), atol=1e-5)
    with torch.no_grad():
        # the same clip twice: no variance between clips either
        twice = x.expand(-1, 2, *x.shape[2:])[0]
        asked = as_video_classifier(c, how, list("abcdefgh")).probabilities(c.encoder(twice))
        assert torch.allclose(asked, c.logits(x[:1, 0]).softmax(1)[0].double(), atol=1e-6)


def test_what_learns():
    c, how = net()
    c.train()({"rgb": clips(), "label": torch.arange(4)})[0].backward()
    idle = {k for k, p in c.named_parameters() if p.grad is None}
    assert idle == {"gaussian.log_a", "gaussian.b"} and c.gaussian.log_variance.weight.grad.any()
    frozen, _ = net("provico_linear")
    frozen.train()({"rgb": clips(), "label": torch.arange(4)})[0].backward()
    assert {k for k, p in frozen.named_parameters() if p.grad is not None} == {
        "fc.weight",
        "fc.bias",
    }


@pytest.mark.parametrize("crops", ["centre", "ten"])
def test_prediction_is_the_mean_of_a_slow_loop_wherever_a_video_stands(place, crops):
    m = manifest.read(place / "toy")
    c, how = net(testing=looks(clips=4, crops=crops))
    louder(c).eval()
    rows, n = m.select("test", 1)[:3], 1 if crops == "centre" else 10
    found = predict(c, m, how, rows=rows, seed=2, machine=QUIET)
    data = ProtocolClips(m, rows, how.testing)
    for v in range(3):
        with torch.no_grad():
            x = Views("rgb")(clip_batch(all_clips(data[v])))["rgb"][:, 0]
            said = c.gaussian(c.encoder(x)).unflatten(0, (4, n))
            noise = torch.randn(n, 2, 5, 16, generator=torch.Generator().manual_seed(2))
            p = torch.zeros(8).double()
            for crop in range(n):
                for pair in range(2):
                    mu, s = torch.stack([said[2 * pair + i][crop] for i in range(2)]).unbind(1)
                    mean, logvar = mixture_moments(mu, s)
                    for k in range(5):
                        z = mean + (logvar / 2).exp() * noise[crop, pair, k]
                        p += c.fc(z).double().softmax(0) / (10 * n)
        assert torch.allclose(found.p[v], p, atol=1e-5)
    other = partial(predict, c, m, how, seed=2)
    assert torch.equal(other(rows=rows[::-1], batch=1, machine=QUIET).p.flip(0), found.p)
    worker = Machine("cpu", workers=1, progress=False)
    assert torch.equal(other(rows=rows, batch=64, machine=worker).p, found.p)
    assert not torch.equal(predict(c, m, how, rows=rows, seed=3, machine=QUIET).p, found.p)


def test_a_run_is_repeated_resumed_and_asked(place):
    run = place / "provico-toy"
    row = finetune(run, "provico_finetune", fields=SHORT, out=place / "whole", machine=QUIET)
    again = finetune(run, "provico_finetune", fields=SHORT, out=place / "again", machine=QUIET)
    for stop in (2, 7, None):
        parts = finetune(
            run,
            "provico_finetune",
            fields=SHORT,
            out=place / "parts",
            machine=QUIET,
            resume=stop != 2,
            max_steps=stop,
        )

    def plain(r):
        return {k: v for k, v in r.items() if k not in ("seconds", "run")}

    assert plain(again) == plain(row) == plain(parts)
    kept, *others = (
        load(place / n / "last.pt")["run"]["method"] for n in ("whole", "again", "parts")
    )
    for other in others:
        assert all(torch.equal(v, other[k]) for k, v in kept.items())
    begun = read_heads(run / "encoder.safetensors")["gaussian"].state_dict()
    assert not torch.equal(kept["gaussian.mean.weight"], begun["mean.weight"])  # trained along
    assert torch.equal(kept["gaussian.b"], begun["b"])
    m = manifest.read(place / "toy")
    said = load_predictions(place / "whole" / "predictions.safetensors")
    asked = predict_videos(load_classifier(place / "whole"), [m.file(r) for r in said.row.tolist()])
    assert torch.allclose(asked.p, said.p, atol=1e-6)


def test_command_line(place, monkeypatch, capsys):
    monkeypatch.chdir(place)

    def call(*args):
        return cli.main(["finetune", *args, "--device", "cpu"]), capsys.readouterr().err

    code, errors = call(
        "provico-toy",
        "--preset",
        "provico_finetune",
        "--set",
        "epochs=1",
        "batch=8",
        "length=8",
        "size=32",
        "--workers",
        "0",
        "--out",
        "asked",
    )
    assert code == 0, errors
    (row,) = json.loads((place / "asked" / "results.json").read_text())
    assert (
        row["protocol"] == "provico_finetune"
        and (place / "asked" / "classifier.safetensors").exists()
    )
    for source, *more in (("simclr-toy-residual",), ("provico-toy", "--data", "toy")):
        given = source if not more else "infonce-toy-residual"
        code, errors = call(given, "--preset", "provico_finetune", *more)
        assert code == 2 and "has no Gaussian head" in errors, errors
        assert "Traceback" not in errors and len(errors.strip().splitlines()) == 1
    assert not list(Path(place).glob("*provico_finetune*"))


def test_refusals():
    for fields, words in (
        (dict(testing=looks(clips=3)), "mixture=2"),
        (dict(samples=0), "samples=0"),
        (dict(testing=protocol(average="logits")), "mixture=2"),
        (dict(testing=looks(windows="sliding")), "mixture=2"),
    ):
        with pytest.raises(ValueError, match=words):
            preset("provico_finetune", **fields)
    with pytest.raises(ValueError, match="from a Gaussian head"):
        Classifier(backbones.create("tiny"), 8, mixture=2)
