"""VideoMAE and V-JEPA 2 of `transformers`, and VideoMAE as released, in our transformer: the same
features, and trained on from there.
"""

import csv
import json

import pytest
import torch
from test_masked import shuffled_weights
from torch import nn

from vssl_nb.app import cli
from vssl_nb.data import toy
from vssl_nb.methods.supervised import Classifier
from vssl_nb.nets.backbones import BACKBONES, Backbone, VideoViT, create
from vssl_nb.runs import vit_weights
from vssl_nb.training.checkpoints import CheckpointError, read_encoder
from vssl_nb.training.loop import TrainError, make_optimizer

tf = pytest.importorskip("transformers", reason="not installed: pip install 'vssl_nb[hf]'")
MEAN = [0.485, 0.456, 0.406]
SIDE = {"height": 32, "width": 32}
VIDEOMAE = dict(
    image_size=32,
    patch_size=8,
    num_frames=16,
    hidden_size=96,
    num_hidden_layers=3,
    num_attention_heads=3,
    intermediate_size=192,
    decoder_hidden_size=24,
    decoder_num_hidden_layers=1,
    decoder_num_attention_heads=2,
    use_mean_pooling=False,
)
VJEPA2 = dict(
    patch_size=8,
    crop_size=32,
    frames_per_clip=16,
    hidden_size=96,
    num_attention_heads=3,
    num_hidden_layers=3,
    mlp_ratio=2.0,
    pred_hidden_size=24,
    pred_num_attention_heads=2,
    pred_num_hidden_layers=1,
)
QUIET = ["--device", "cpu", "--workers", "0", "--quiet"]


def saved(folder, kind="VideoMAEForPreTraining", std=(0.229, 0.224, 0.225), **fields):
    "A model with weights away from where it begins, and its processor."
    with torch.random.fork_rng():
        if "JEPA" in kind:
            model = tf.VJEPA2Model(tf.VJEPA2Config(**VJEPA2 | fields))
            processor = tf.VJEPA2VideoProcessor(crop_size=32)
        else:
            model = getattr(tf, kind)(tf.VideoMAEConfig(**VIDEOMAE | fields))
            processor = tf.VideoMAEImageProcessor(
                size={"shortest_edge": 32}, crop_size=SIDE, image_mean=MEAN, image_std=list(std)
            )
    shuffled_weights(model, 2)
    for part in (model, processor):
        part.save_pretrained(folder)
    return model.eval()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    "Toy videos, and a VideoMAE in the shape of the toy's transformer."
    folder = tmp_path_factory.mktemp("weights")
    toy.make(folder / "toy", size="tiny", progress=False)
    saved(folder / "videomae")
    return folder


def clips(B=2):
    return torch.randn(B, 3, 16, 32, 32, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
@pytest.mark.parametrize("kind", ["VideoMAEModel", "VideoMAEForPreTraining"])
def test_videomae_has_the_features_of_transformers(kind, tmp_path):
    model = saved(tmp_path, kind)
    weights = vit_weights.read_outside(f"hf:{tmp_path}")
    theirs = getattr(model, "videomae", model)
    wanted = theirs(clips().transpose(1, 2)).last_hidden_state
    torch.testing.assert_close(weights.network.tokens(clips()), wanted, rtol=1e-5, atol=1e-5)
    assert (wanted - wanted.mean(1, keepdim=True)).abs().max() > 0.1
    assert (weights.backbone, weights.length, weights.size) == ("vit_toy_videomae", 16, 32)
    # the bias of all keys changes nothing, so that it may learn
    with torch.no_grad():
        weights.network.block0.qkv.bias[96:192] += 1
    torch.testing.assert_close(weights.network.tokens(clips()), wanted, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_vjepa2_has_the_features_of_transformers(tmp_path, monkeypatch):
    small = Backbone(lambda: VideoViT(places="rotary_released", eps=1e-6), (16, 32, 32), "torch")
    monkeypatch.setitem(BACKBONES, "vit_toy_vjepa2", small)
    model = saved(tmp_path, "VJEPA2")
    weights = vit_weights.read_outside(f"hf:{tmp_path}")
    wanted = model(clips().transpose(1, 2), skip_predictor=True).last_hidden_state
    torch.testing.assert_close(weights.network.tokens(clips()), wanted, rtol=1e-5, atol=1e-5)
    assert weights.backbone == "vit_toy_vjepa2"


def released_names(model):
    "The state of a VideoMAEForPreTraining under the names of its authors' code."
    state = {}

    def layer(theirs, ours):
        state[f"{theirs}.weight"], state[f"{theirs}.bias"] = ours.weight, ours.bias

    def block(theirs, ours):
        a = ours.attention.attention
        state[f"{theirs}.attn.qkv.weight"] = torch.cat(
            [a.query.weight, a.key.weight, a.value.weight]
        )
        state[f"{theirs}.attn.q_bias"] = a.query.bias
        state[f"{theirs}.attn.v_bias"] = a.value.bias
        layer(f"{theirs}.attn.proj", ours.attention.output.dense)
        layer(f"{theirs}.norm1", ours.layernorm_before)
        layer(f"{theirs}.norm2", ours.layernorm_after)
        layer(f"{theirs}.mlp.fc1", ours.intermediate.dense)
        layer(f"{theirs}.mlp.fc2", ours.output.dense)

    encoder = model.videomae
    layer("encoder.patch_embed.proj", encoder.embeddings.patch_embeddings.projection)
    for i, ours in enumerate(encoder.encoder.layer):
        block(f"encoder.blocks.{i}", ours)
    layer("encoder.norm", encoder.layernorm)
    for i, ours in enumerate(model.decoder.decoder_layers):
        block(f"decoder.blocks.{i}", ours)
    state["encoder_to_decoder.weight"] = model.encoder_to_decoder.weight
    state["mask_token"] = model.mask_token
    return {k: x.detach() for k, x in state.items()}


@torch.no_grad()
def test_a_file_of_videomae_has_the_weights_of_transformers(home, tmp_path):
    model = tf.VideoMAEForPreTraining.from_pretrained(home / "videomae").eval()
    state, file = released_names(model), tmp_path / "checkpoint.pth"
    torch.save({"model": {f"module.{k}": x for k, x in state.items()}, "epoch": 799}, file)
    one = vit_weights.read_outside(file)
    other = vit_weights.read_outside(f"hf:{home / 'videomae'}")
    assert one.backbone == other.backbone
    for name, x in other.network.state_dict().items():
        assert torch.equal(one.network.state_dict()[name], x), name

    damaged = {k: x for k, x in state.items() if k != "encoder.blocks.1.attn.v_bias"}
    torch.save({"model": damaged}, file)
    with pytest.raises(CheckpointError, match="lacks encoder.blocks.1.attn.qkv.bias; take the"):
        vit_weights.read_outside(file)
    torch.save({"model": {k.removeprefix("encoder."): x for k, x in state.items()}}, file)
    with pytest.raises(CheckpointError, match="is no file of VideoMAE's pretraining"):
        vit_weights.read_outside(file)
    tuned = {k.removeprefix("encoder."): x for k, x in state.items()} | {
        "fc_norm.weight": torch.ones(96)
    }
    torch.save({"model": tuned}, file)
    with pytest.raises(CheckpointError, match="take the weights of its pretraining"):
        vit_weights.read_outside(file)


@pytest.mark.parametrize(
    "fields, message",
    [
        (dict(num_hidden_layers=2), "has dim=96, depth=2, .* as none of .*vit_base_videomae"),
        (dict(hidden_act="relu"), "has hidden_act='relu', and .* 'gelu'"),
        (dict(use_mean_pooling=True), "take the weights of its pretraining"),
        (dict(std=(0.5, 0.5, 0.5)), "its processor has mean .* those of ImageNet or none"),
    ],
)
def test_weights_that_do_not_fit_are_refused(fields, message, tmp_path):
    saved(tmp_path, "VideoMAEModel", **fields)
    with pytest.raises(CheckpointError, match=message):
        vit_weights.read_outside(f"hf:{tmp_path}")


def test_other_models_are_refused(tmp_path):
    with torch.random.fork_rng():
        config = tf.Dinov2Config(
            image_size=28, patch_size=14, hidden_size=12, num_hidden_layers=1, num_attention_heads=2
        )
        tf.Dinov2Model(config).save_pretrained(tmp_path)
    crop = {"height": 28, "width": 28}
    tf.BitImageProcessor(size={"shortest_edge": 28}, crop_size=crop).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="is a dinov2, and only VideoMAE and V-JEPA 2"):
        vit_weights.read_outside(f"hf:{tmp_path}")
    with pytest.raises(CheckpointError, match="only VideoMAE and V-JEPA 2 of transformers"):
        vit_weights.read_outside("timm:test_vit")


def test_weights_of_frames_are_none_of_differences(home):
    needs = {"name": "mine", "backbone": "vit_toy_videomae", "view": "residual"}
    with pytest.raises(TrainError, match="learned from frames .rgb., and mine needs residual"):
        vit_weights.outside_state(f"hf:{home / 'videomae'}", needs)


def steps_of(run):
    return [float(row["loss"]) for row in csv.DictReader((run / "steps.csv").open())]


def test_fine_tuning_begins_with_weights_of_transformers(home, tmp_path, capsys):
    source, out = f"hf:{home / 'videomae'}", tmp_path / "tuned"
    line = ["finetune", source, "--data", str(home / "toy"), "--out", str(out), *QUIET]
    fields = ["epochs=2", "batch=8", "layer_decay=0.75", "optimizer=adamw", "betas=0.9,0.95"]
    assert not cli.main([*line, "--activation-checkpointing", "--set", *fields])
    assert "top1" in capsys.readouterr().out.replace("top-1", "top1")
    card = json.loads((out / "card.json").read_text())
    assert card["given"] == source and card["finished"]
    assert card["training"]["method"]["layer_decay"] == 0.75
    assert steps_of(out)[-1] < steps_of(out)[0]
    row = json.loads((out / "results.json").read_text())[-1]
    assert row["name"] == "videomae" and row["task"] == "finetune"
    # it went on from these weights, and not far with so few steps
    before = vit_weights.read_outside(source).network.state_dict()
    encoder, about = read_encoder(out / "classifier.safetensors")
    assert (about["backbone"], about["size"]) == ("vit_toy_videomae", 32)
    moved = {k: (x - before[k]).abs().max().item() for k, x in encoder.state_dict().items()}
    assert 0 < max(moved.values()) < 0.05, moved

    assert not cli.main([*line, "--resume", "--set", *fields])
    assert cli.main([*line[:3], "nowhere"]) == 2
    assert cli.main(["finetune", source, *QUIET]) == 2
    assert "knows no data; name a manifest with --data" in capsys.readouterr().err
    other = [*line[2:4], "--out", str(tmp_path / "other"), *QUIET]
    assert cli.main(["finetune", source, *other, "--preset", "scratch"]) == 2
    assert "scratch begins with random ones" in capsys.readouterr().err
    assert cli.main(["finetune", "timm:test_vit", *other]) == 2
    assert "only VideoMAE and V-JEPA 2 of transformers" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
    assert not cli.main([*line, "--dry-run", "--resume", "--set", *fields])


def test_a_file_of_videomae_is_fine_tuned(home, tmp_path):
    model = tf.VideoMAEForPreTraining.from_pretrained(home / "videomae")
    file, out = tmp_path / "checkpoint.pth", tmp_path / "tuned"
    torch.save({"model": released_names(model)}, file)
    line = ["finetune", str(file), "--data", str(home / "toy"), "--out", str(out), *QUIET]
    line += ["--preset", "clean_linear"]
    assert not cli.main([*line, "--set", "epochs=1", "batch=8"])
    encoder, _ = read_encoder(out / "classifier.safetensors")
    before = vit_weights.read_outside(file).network.state_dict()
    assert all(torch.equal(x, before[k]) for k, x in encoder.state_dict().items())


def test_masked_pretraining_begins_with_weights_of_transformers(home, tmp_path, capsys):
    "And what it exports is probed and fine-tuned as every run is."
    source, out = f"hf:{home / 'videomae'}", tmp_path / "run"
    line = ["pretrain", "masked-toy-pixels", "--data", str(home / "toy"), "--init", source, *QUIET]
    line += ["--epochs", "2", "--batch", "8", "--lr", "1e-5", "--warmup", "0", "--out", str(out)]
    assert cli.main(line) == 2
    assert "use --backbone vit_toy_videomae" in capsys.readouterr().err
    assert not cli.main([*line, "--backbone", "vit_toy_videomae", "--activation-checkpointing"])
    card = json.loads((out / "card.json").read_text())
    assert card["given"]["encoder"]["run"] == source
    encoder, _ = read_encoder(out / "encoder.safetensors")
    before = vit_weights.read_outside(source).network.state_dict()
    moved = {k: (x - before[k]).abs().max().item() for k, x in encoder.state_dict().items()}
    assert 0 < max(moved.values()) < 1e-3, moved

    quiet = ["--workers", "0", "--device", "cpu"]
    assert not cli.main(["probe", str(out), "--preset", "vjepa_probe", *quiet])
    tuned = ["finetune", str(out), "--out", str(tmp_path / "tuned"), *QUIET]
    assert not cli.main([*tuned, "--set", "epochs=1", "batch=8", "layer_decay=0.75"])


def rates_by_hand(net, lr, decay):
    "VideoMAE, released code: layer numbers from 0 to depth + 1, and decay ** (depth + 1 - number)."
    depth = sum(name.startswith("block") for name, _ in net.named_children())
    rates = {}
    for name, p in net.named_parameters():
        if name.startswith("tubelets"):
            number = 0
        elif name.startswith("block"):
            number = int(name.split(".")[0].removeprefix("block")) + 1
        else:
            number = depth + 1
        rates[p] = lr * decay ** (depth + 1 - number)
    return rates


@pytest.mark.parametrize("decay_bias", [True, False])
def test_the_rates_of_layers_are_those_of_a_loop(decay_bias):
    net = create("vit_toy_videomae", depth=5)
    c = Classifier(net, 4, lr_encoder=0.1, layer_decay=0.75)
    opt = make_optimizer(c, "adamw", 0.2, 0.05, decay_bias=decay_bias, betas=(0.9, 0.95))
    found = {p: g["lr"] for g in opt.param_groups for p in g["params"]}
    wanted = rates_by_hand(net, 0.1, 0.75) | dict.fromkeys(c.fc.parameters(), 0.2)
    assert found == pytest.approx(wanted)
    assert len({*found.values()}) == 8
    assert all(g["betas"] == (0.9, 0.95) for g in opt.param_groups)


def test_other_networks_decay_by_block_too():
    net = create("tiny")
    c = Classifier(net, 4, lr_encoder=0.1, layer_decay=0.5)
    rates = {p: g["lr"] for g in c.parameter_groups() for p in g["params"]}
    for i, stage in enumerate(net.stages):
        for p in stage.parameters():
            assert rates[p] == pytest.approx(0.1 * 0.5 ** (4 - i))
    plain = nn.Linear(4, 4)
    plain.dim = 4
    with pytest.raises(ValueError, match="does not name its blocks in order"):
        Classifier(plain, 4, layer_decay=0.5)
    assert len(Classifier(plain, 4).parameter_groups()) == 1
