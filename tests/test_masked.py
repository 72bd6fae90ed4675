"""Masked clips beside `transformers`, with the same small weights; several processes; resume."""

import csv
import json

import pytest
import torch
from torch.nn import functional as F

from vssl_nb.data import toy
from vssl_nb.distributed import run_distributed
from vssl_nb.fields import RecipeError
from vssl_nb.methods.masked import MaskedPrediction
from vssl_nb.methods.recipes import find, override
from vssl_nb.nets.backbones import create
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.ssl.tubelets import patchify
from vssl_nb.training.checkpoints import load, read_encoder
from vssl_nb.training.loop import TrainError

QUIET = dict(device="cpu", workers=0, progress=False)
SMALL = dict(dim=48, depth=2, heads=2, ratio=4)
PREDICTOR = dict(predictor_dim=24, predictor_depth=2, predictor_heads=2)


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("transformers", reason="not installed: pip install 'vssl_nb[hf]'")


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos") / "toy"
    return toy.make(folder, size="tiny", progress=False)


def clips_of(B=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(B, 3, 8, 32, 32, generator=generator)


def smooth_clips(B):
    "Clips whose pixels follow from their neighbours: eight numbers a clip, stretched."
    generator = torch.Generator().manual_seed(0)
    coarse = torch.randn(B, 3, 2, 2, 2, generator=generator)
    return torch.nn.functional.interpolate(coarse, size=(8, 32, 32), mode="trilinear")


def shuffled_weights(module, seed):
    "Weights and biases away from their starting values, so that none may be left out."
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(torch.randn(p.shape, generator=generator) * 0.1)


def linear_state(ours, theirs):
    return {f"{ours}.weight": theirs.weight, f"{ours}.bias": theirs.bias}


def qkv_state(ours, attention):
    "One layer for queries, keys and values here, three there; VideoMAE's keys have no bias."
    parts = (attention.query, attention.key, attention.value)
    biases = [torch.zeros(len(p.weight)) if p.bias is None else p.bias for p in parts]
    weight = torch.cat([p.weight for p in parts])
    return {f"{ours}.qkv.weight": weight, f"{ours}.qkv.bias": torch.cat(biases)}


def videomae_block(ours, layer):
    return (
        qkv_state(ours, layer.attention.attention)
        | linear_state(f"{ours}.out", layer.attention.output.dense)
        | linear_state(f"{ours}.norm1", layer.layernorm_before)
        | linear_state(f"{ours}.norm2", layer.layernorm_after)
        | linear_state(f"{ours}.mlp.0", layer.intermediate.dense)
        | linear_state(f"{ours}.mlp.2", layer.output.dense)
    )


def vjepa_block(ours, layer):
    return (
        qkv_state(ours, layer.attention)
        | linear_state(f"{ours}.out", layer.attention.proj)
        | linear_state(f"{ours}.norm1", layer.norm1)
        | linear_state(f"{ours}.norm2", layer.norm2)
        | linear_state(f"{ours}.mlp.0", layer.mlp.fc1)
        | linear_state(f"{ours}.mlp.2", layer.mlp.fc2)
    )


@pytest.mark.parametrize("normalise", [True, False])
def test_videomae_loss_and_gradient_are_those_of_transformers(tf, normalise):
    config = tf.VideoMAEConfig(
        image_size=32,
        patch_size=8,
        num_frames=8,
        tubelet_size=2,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=192,
        decoder_hidden_size=24,
        decoder_num_hidden_layers=2,
        decoder_num_attention_heads=2,
        decoder_intermediate_size=96,
        use_mean_pooling=False,
        layer_norm_eps=1e-5,
        norm_pix_loss=normalise,
    )
    theirs = tf.VideoMAEForPreTraining(config).eval()
    shuffled_weights(theirs, 1)
    encoder = create("vit_toy", seed=0, **SMALL, places="sequence")
    ours = MaskedPrediction(
        encoder, seed=5, mask="tube", mask_ratio=0.75, normalise=normalise, **PREDICTOR
    )
    model = theirs.videomae
    state = linear_state("encoder.tubelets.conv", model.embeddings.patch_embeddings.projection)
    for i, layer in enumerate(model.encoder.layer):
        state |= videomae_block(f"encoder.block{i}", layer)
    state |= linear_state("encoder.norm", model.layernorm)
    state |= {
        "predictor.embed.weight": theirs.encoder_to_decoder.weight,
        "predictor.embed.bias": torch.zeros(24),
        "predictor.mask_token": theirs.mask_token[0],
    }
    for i, layer in enumerate(theirs.decoder.decoder_layers):
        state |= videomae_block(f"predictor.blocks.{i}", layer)
    state |= linear_state("predictor.norm", theirs.decoder.norm)
    state |= linear_state("predictor.head", theirs.decoder.head)
    ours.load_state_dict(state)

    # theirs takes ImageNet's normalisation back before it compares; ours predicts what it is given
    x = clips_of()
    if not normalise:
        mean, std = (torch.tensor(v) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
        pixels = patchify(x, (2, 8, 8)) * std + mean
        ours.targets = lambda _: pixels.flatten(2)
    batch = {"rgb": x[:, None], "step": 7}
    (mask,) = ours.masks(len(x), (4, 4, 4), batch)
    hidden = torch.zeros(len(x), 64, dtype=torch.bool).scatter(1, mask.hidden, True)
    assert hidden.sum(1).tolist() == [48] * 3
    wanted = theirs(x.transpose(1, 2), bool_masked_pos=hidden).loss
    loss, _ = ours(batch)
    torch.testing.assert_close(loss, wanted, rtol=1e-5, atol=1e-5)

    loss.backward()
    wanted.backward()
    for mine, other in (
        (ours.encoder.tubelets.conv, model.embeddings.patch_embeddings.projection),
        (ours.encoder.block0.mlp[0], model.encoder.layer[0].intermediate.dense),
        (ours.predictor.head, theirs.decoder.head),
    ):
        torch.testing.assert_close(mine.weight.grad, other.weight.grad, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(
        ours.predictor.mask_token.grad, theirs.mask_token.grad[0], rtol=1e-4, atol=1e-6
    )


def test_vjepa_loss_is_that_of_the_predictor_of_transformers(tf):
    config = tf.VJEPA2Config(
        patch_size=8,
        crop_size=32,
        frames_per_clip=8,
        tubelet_size=2,
        hidden_size=48,
        num_attention_heads=2,
        num_hidden_layers=2,
        mlp_ratio=4.0,
        layer_norm_eps=1e-5,
        drop_path_rate=0.0,
        pred_hidden_size=24,
        pred_num_attention_heads=2,
        pred_num_hidden_layers=2,
        pred_num_mask_tokens=2,
        pred_zero_init_mask_tokens=False,
    )
    theirs = tf.VJEPA2Model(config).eval()
    shuffled_weights(theirs, 1)
    encoder = create("vit_toy", seed=0, **SMALL, places="rotary_released")
    fields = dict(target="features", mask="blocks", prediction_loss="l1")
    fields |= dict(block_counts=(2, 1), block_shares=(0.2, 0.5))
    ours = MaskedPrediction(encoder, seed=5, momentum=0.998, **fields, **PREDICTOR)
    state = linear_state(
        "encoder.tubelets.conv", theirs.encoder.embeddings.patch_embeddings.proj
    ) | linear_state("encoder.norm", theirs.encoder.layernorm)
    for i, layer in enumerate(theirs.encoder.layer):
        state |= vjepa_block(f"encoder.block{i}", layer)
    state |= {k.replace("encoder.", "momentum_encoder.", 1): v for k, v in state.items()}
    predictor = theirs.predictor
    state["predictor.mask_token"] = predictor.embeddings.mask_tokens.flatten(0, 2)
    state |= linear_state("predictor.embed", predictor.embeddings.predictor_embeddings)
    for i, layer in enumerate(predictor.layer):
        state |= vjepa_block(f"predictor.blocks.{i}", layer)
    state |= linear_state("predictor.norm", predictor.layernorm)
    state |= linear_state("predictor.head", predictor.proj)
    ours.load_state_dict(state)

    x = clips_of()
    batch = {"rgb": x[:, None], "step": 7}
    losses = []
    with torch.no_grad():
        target = theirs.encoder(x.transpose(1, 2)).last_hidden_state
        target = F.layer_norm(target, (48,))
        for number, mask in enumerate(ours.masks(len(x), (4, 4, 4), batch)):
            index = mask.visible[..., None].expand(-1, -1, 48)
            z = theirs.encoder.embeddings(x.transpose(1, 2)).gather(1, index)
            for layer in theirs.encoder.layer:
                z, _ = layer(z, mask.visible)
            z = theirs.encoder.layernorm(z)
            # its class encodes the whole clip and cuts afterwards: give it ours at their places
            full = torch.zeros_like(target).scatter(1, index, z)
            embeddings = predictor.embeddings
            tokens, places = embeddings(
                z.new_zeros(len(x), 64, 48).scatter(1, index, z).gather(1, index),
                [mask.visible],
                [mask.hidden],
                mask_index=number,
            )
            z = tokens
            for layer in predictor.layer:
                z, _ = layer(z, places)
            z = predictor.proj(predictor.layernorm(z)[:, mask.visible.shape[1] :])
            if number == 1:  # the class itself takes its mask token 1
                whole = predictor(full, [mask.visible], [mask.hidden]).last_hidden_state
                torch.testing.assert_close(whole, z, rtol=1e-5, atol=1e-5)
            hidden = mask.hidden[..., None].expand(-1, -1, 48)
            losses.append((z - target.gather(1, hidden)).abs().mean())
        loss, _ = ours(batch)
    torch.testing.assert_close(loss, torch.stack(losses).mean(), rtol=1e-5, atol=1e-5)


FEATURES = dict(target="features", momentum=0.9, momentum_schedule="linear", prediction_loss="l1")
TOY = dict(mask="random", mask_ratio=0.75, **PREDICTOR)


def five_steps(target, n):
    from vssl_nb.distributed import gather, rank

    fields = FEATURES if target == "features" else {}
    method = MaskedPrediction(create("vit_toy", seed=1, dim=24, depth=1, heads=2), **TOY, **fields)
    opt = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.1)
    share, losses = slice(rank() * 8 // n, (rank() + 1) * 8 // n), []
    for step in range(5):
        x = clips_of(8, seed=step)[share, None]
        loss, _ = method({"rgb": x, "step": step})
        loss.backward()
        for p in method.parameters():
            if p.grad is not None:
                p.grad = gather(p.grad[None]).mean(0)  # as DDP does
        opt.step()
        opt.zero_grad()
        method.after_step({"progress": step / 5})
        losses.append(gather(loss.detach()[None]).mean().item())
    return losses, {k: v.detach().clone() for k, v in method.state_dict().items()}


@pytest.mark.parametrize("target", ["pixels", "motion", "features"])
def test_a_target_is_learned_by_heart(target):
    "Eight smooth clips, one mask: more than half of the variance is explained."
    fields = FEATURES if target == "features" else {"target": target}
    method = MaskedPrediction(create("vit_toy", seed=1, dim=24, depth=1, heads=2), **TOY, **fields)
    opt = torch.optim.AdamW([p for p in method.parameters() if p.requires_grad], 3e-3)
    x = smooth_clips(8)
    for _ in range(100):
        loss, logs = method({"rgb": x[:, None], "step": 0})
        loss.backward()
        opt.step()
        opt.zero_grad()
        method.after_step({"progress": 0.0})
    assert logs["explained"] > 0.5


@pytest.mark.parametrize("target", ["pixels", "features"])
def test_two_processes_do_what_one_does(target):
    losses, state = five_steps(target, 1)
    for found, other in run_distributed(five_steps, 2, target, 2):
        assert found == pytest.approx(losses, rel=1e-5)
        for name, weight in state.items():
            torch.testing.assert_close(other[name], weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["masked-toy-pixels", "masked-toy-features", "masked-toy-motion"])
def test_a_resumed_training_ends_with_the_same_bits(name, videos, tmp_path):
    recipe = override(find(name), epochs=2, batch=8, length=8, test_clips=1)
    whole = pretrain(recipe, videos, tmp_path / "whole", **QUIET)
    part = pretrain(recipe, videos, tmp_path / "part", max_steps=3, **QUIET)
    pretrain(recipe, videos, part, resume=True, **QUIET)
    a, b = (load(run / "last.pt") for run in (whole, part))
    for key, value in a["method"].items():
        assert torch.equal(value, b["method"][key]), key
    rows = [list(csv.DictReader((run / "steps.csv").open())) for run in (whole, part)]
    assert [r["loss"] for r in rows[0]] == [r["loss"] for r in rows[1]]
    assert len(rows[0]) > 3
    exported = read_encoder(whole / "encoder.safetensors", outside=True)[0].state_dict()
    name = recipe.method.exported
    assert all(torch.equal(v, a["method"][f"{name}.{k}"]) for k, v in exported.items())
    assert json.loads((whole / "card.json").read_text())["finished"]


def test_an_encoder_without_tokens_is_refused(videos, tmp_path):
    recipe = override(find("masked-toy-pixels"), backbone="tiny")
    with pytest.raises(TrainError, match="has no 'tokens'.*vit_toy"):
        pretrain(recipe, videos, tmp_path / "run", **QUIET)


@pytest.mark.parametrize(
    "message, fields",
    [
        ("give momentum a number", dict(target="features")),
        ("target='pixels' has none", dict(momentum=0.99)),
        ("has no slow copy", dict(exported="momentum_encoder")),
        ("give as many of both", dict(block_counts=(8,))),
        ("a multiple of predictor_heads=4", dict(predictor_dim=50, predictor_heads=4)),
        ("mask_ratio=1.0 must be", dict(mask_ratio=1.0)),
        ("mask='tubes' is not one of", dict(mask="tubes")),
    ],
)
def test_fields_that_do_not_fit_are_refused(message, fields):
    with pytest.raises(RecipeError, match=message):
        override(find("masked-toy-pixels"), **fields)


def test_masks_that_hide_nothing_or_all_are_refused():
    x = {"rgb": clips_of()[:, None]}
    small = create("vit_toy", seed=0)
    with pytest.raises(ValueError, match="mask_ratio=0.01 hides 0 of 16 places"):
        MaskedPrediction(small, mask="tube", mask_ratio=0.01, **PREDICTOR)(x)
    with pytest.raises(ValueError, match="a block of 1% of 4 x 4 tubelets covers none"):
        MaskedPrediction(small, mask="blocks", block_shares=(0.01, 0.5), **PREDICTOR)(x)


def test_the_predictor_needs_no_layer_of_its_own_for_other_encoders():
    "An encoder of another shape: the number of pixels and of tokens follow from it."
    encoder = create("vit_toy", seed=0, tubelet=(4, 4, 8), grid=8)
    method = MaskedPrediction(encoder, mask="random", mask_ratio=0.5, **PREDICTOR)
    loss, logs = method({"rgb": clips_of()[:, None]})
    assert method.predictor.head.out_features == 3 * 4 * 4 * 8
    assert loss.isfinite() and set(logs) == {"explained", "spread"}
