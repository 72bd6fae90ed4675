"""The attentive probe: its network, what it looks at, and that no test video has a say."""

import dataclasses
from pathlib import Path

import pytest
import torch

from vssl_nb.data import manifest
from vssl_nb.data.views import Views
from vssl_nb.nets import backbones
from vssl_nb.measure import classify, features, protocols
from vssl_nb.runs.evaluation import measure_encoder, measure_probe, EvaluatedEncoder
from vssl_nb.training.loop import TrainError
from vssl_nb.training.machine import Machine

QUIET = Machine("cpu", workers=0, progress=False)
SEEN = protocols.protocol("clean", clips=1, length=1, size=4)


class Found(torch.nn.Module):
    "Each pixel is a token: its colour, and five zeros."

    def tokens(self, x):
        return torch.nn.functional.pad(x.flatten(2).transpose(1, 2), (0, 5))

    def forward(self, x):
        return self.tokens(x).mean(1)


def rare_tokens(
    videos=90,
    spoiled=False,  # is the test part of other labels and pixels?
    classes="abc",
):
    """Videos of one frame of 4 x 4 pixels: red is 255 in one, whose green is the class.

    The others are noise. The mean over pixels buries the class, and a query that looks for red
    finds it.
    """
    g = torch.Generator().manual_seed(3)
    rows, frames = [], []
    for i in range(videos):
        x = torch.randint(0, 256, (1, 4, 4, 3), generator=g, dtype=torch.uint8)
        x[..., 0] = 0
        place = torch.randint(0, 16, (1,), generator=g).item()
        x[0, place // 4, place % 4] = torch.tensor([255, (40, 128, 215)[i % 3], 128])
        test = i >= 2 * videos // 3
        frames.append(255 - x if test and spoiled else x)
        label = classes[(i + (test and spoiled)) % len(classes)]
        rows.append(
            manifest.Row(
                f"{i}.mp4", label, str(i), "test" if test else "train", frames=1, width=4, height=4
            )
        )

    class Listed(manifest.Manifest):
        def decode(self, row, numbers, stream="clips"):
            return frames[row][[0] * len(list(numbers))]

    return Listed(Path("rare/manifest.csv"), rows)


def see_tokens(m, room=2**20, encoder=None, clips=1):
    p = dataclasses.replace(SEEN, clips=clips)
    return classify.VideoTokens(encoder or Found(), m, "rgb", p, room, machine=QUIET)


RARE = classify.AttentiveProbe(heads=1, epochs=60, batch=20, lrs=(1e-2,), selection="last")


def test_an_attentive_probe_finds_what_a_mean_buries():
    m = rare_tokens()
    pred, rate, tried = classify.attentive_probe(see_tokens(m), settings=RARE)
    x = features.extract(Found(), m, "all", protocol=SEEN, machine=QUIET)
    train, test = (features.restrict(x, m, part) for part in ("train", "test"))
    mean = classify.accuracy(classify.classify(classify.linear_probe(train), test, m.labels))[
        "top1"
    ]
    assert classify.accuracy(pred)["top1"] > 0.9 > mean + 0.2 and (rate, tried) == (1e-2, {})
    assert pred.row.tolist() == list(range(60, 90))
    torch.testing.assert_close(pred.p.sum(1), torch.ones(30).double())


def test_an_attentive_probe_never_looks_at_test_videos():
    """Other labels and pixels of the test part change not one bit; the rate is chosen on held-out
    videos.
    """
    two = dataclasses.replace(RARE, epochs=2, lrs=(1e-2, 1e-4), selection="validation")
    (a, rate, tried), (b, *same) = (
        classify.attentive_probe(see_tokens(rare_tokens(spoiled=x)), settings=two)
        for x in (False, True)
    )
    assert a.key["probe"] == b.key["probe"] and same == [rate, tried] and {*tried} == {1e-2, 1e-4}
    assert not torch.equal(a.p, b.p) and not torch.equal(a.label, b.label)
    assert tried[rate] == max(tried.values())
    other = classify.attentive_probe(see_tokens(rare_tokens()), settings=two, seed=1)[0]
    assert other.key["probe"] != a.key["probe"]


def test_tokens_that_do_not_fit_are_made_again():
    m, count = rare_tokens(12), []

    class Counted(Found):
        def tokens(self, x):
            count.append(len(x))
            return super().tokens(x)

    tokens, small = see_tokens(m, encoder=Counted()), see_tokens(m, 16 * 8 * 4 * 5, Counted())
    order = [7, 2, 9, 0, 11, 3]
    for t in (tokens, small):
        first, again = [*t(order)], [*t(order[::-1])]
        assert [r for r, _ in first] == order and [r for r, _ in again] == order[::-1]
        assert all(torch.equal(x, dict(again)[r]) for r, x in first)
        for r, x in first:
            want = Views("rgb")({"clips": m.decode(r, [0])[None, None]})["rgb"][:, 0]
            assert torch.equal(x, Found().tokens(want)[0])
    assert len(tokens.kept) == 6 > len(small.kept) > 0
    once = len(count)
    [*tokens(order)]
    assert len(count) == once
    several = [*see_tokens(m, clips=3)(order)]
    assert several[0][1].shape == (3 * 16, 8)


def test_padding_changes_nothing():
    "Videos of different numbers of tokens, one by one and together."
    net = classify.AttentiveClassifier(12, 4, classify.AttentiveProbe(heads=5), seed=2)
    assert net.heads == 4  # the largest that divides 12
    g = torch.Generator().manual_seed(0)
    some = [torch.randn(n, 12, generator=g) for n in (3, 7, 1)]
    x = torch.nn.utils.rnn.pad_sequence(some, True, 9.0)
    there = torch.arange(7) < torch.tensor([[3], [7], [1]])
    torch.testing.assert_close(net(x, there), torch.cat([net(y[None]) for y in some]))


def test_the_network_is_that_of_transformers():
    """V-JEPA 2's pooler, which has no projection behind the attention: here one that changes
    nothing.
    """
    tf = pytest.importorskip("transformers", reason="not installed: pip install 'vssl_nb[hf]'")
    from transformers.models.vjepa2.modeling_vjepa2 import VJEPA2AttentivePooler

    theirs = VJEPA2AttentivePooler(
        tf.VJEPA2Config(
            hidden_size=12,
            num_attention_heads=3,
            num_pooler_layers=0,
            layer_norm_eps=1e-5,
            mlp_ratio=4.0,
        )
    )
    net = classify.AttentiveClassifier(12, 4, classify.AttentiveProbe(heads=3))
    layer = theirs.cross_attention_layer
    with torch.no_grad():
        theirs.query_tokens.copy_(net.query[None])
        net.proj.weight.copy_(torch.eye(12))
    for a, b in (
        (layer.layer_norm1, net.norm1),
        (layer.layer_norm2, net.norm2),
        (layer.cross_attn.q_proj, net.q),
        (layer.cross_attn.k_proj, net.k),
        (layer.cross_attn.v_proj, net.v),
        (layer.mlp.fc1, net.mlp[0]),
        (layer.mlp.fc2, net.mlp[2]),
    ):
        a.load_state_dict(b.state_dict())
    x = torch.randn(2, 6, 12, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(net.pool(x), theirs.eval()(x), rtol=0, atol=1e-6)


def test_what_an_attentive_probe_refuses():
    with pytest.raises(
        ValueError, match="lrs=.* must be numbers above 0, and a single one for 'last'"
    ):
        classify.AttentiveProbe(selection="last")
    with pytest.raises(ValueError, match="selection must be .validation. or .last., not .test."):
        classify.AttentiveProbe(selection="test")
    with pytest.raises(
        ValueError, match="Flatten has no `tokens` and no `maps`, .*; give it one of"
    ):
        see_tokens(rare_tokens(3), encoder=torch.nn.Flatten())
    with pytest.raises(ValueError, match="all training videos of split 1 have one class"):
        classify.attentive_probe(see_tokens(rare_tokens(classes="a")), settings=RARE)


def test_rows_of_an_attentive_probe(tmp_path, monkeypatch):
    """From an encoder with tokens, and from a network of ours, whose tokens are the positions of
    its maps.
    """
    monkeypatch.setitem(
        classify.ATTENTIVE_PROBES, "attentive_probe", dataclasses.replace(RARE, epochs=1)
    )
    rows = measure_encoder(
        Found(),
        rare_tokens(),
        "found",
        SEEN,
        probe_with="attentive_probe",
        out=tmp_path,
        with_baselines=False,
        walls=0,
        machine=QUIET,
    )
    row = rows[-1]
    assert (row["task"], row["gallery"], row["queries"], row["chosen"]) == ("probe", 60, 30, 1e-2)
    assert 0 <= row["top1"] <= 1 and sum(map(sum, row["confusion"])) == 30
    net = backbones.create("tiny", seed=0)
    tokens = classify.VideoTokens(
        net,
        rare_tokens(9),
        "rgb",
        dataclasses.replace(SEEN, clips=2, length=8, size=32),
        machine=QUIET,
    )
    x = dict(tokens([3]))[3]
    one = features.extract(
        net,
        tokens.manifest,
        "all",
        protocol=dataclasses.replace(SEEN, clips=2, length=8, size=32),
        machine=QUIET,
    )
    assert x.shape[1] == net.dim and len(x) > 2
    # the feature of a network is the mean of its tokens
    torch.testing.assert_close(x.mean(0), one.x[3])
    stored = EvaluatedEncoder(rare_tokens(), None, "stored", features=one)
    with pytest.raises(
        TrainError, match="stored: a file of features has no tokens; take clean_probe"
    ):
        measure_probe(stored, "vjepa_probe", machine=QUIET)
