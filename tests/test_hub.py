"""Encoders of other libraries: what they make is what their own model and processor make, called
directly.

The models are small ones of the real classes with random weights, saved to disk, because tests
fetch nothing.
"""

import json
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch.testing import assert_close
from torchvision import models

from vssl_nb.app import cli, label_free
from vssl_nb.app.search import choose_index, index_key
from vssl_nb.data import manifest, toy
from vssl_nb.measure.features import as_manifest, digest, encoder_protocol, extract
from vssl_nb.measure.protocols import Protocol, protocol
from vssl_nb.measure.windows import clip_frames
from vssl_nb.runs import hub
from vssl_nb.app.verdict import give_verdict
from vssl_nb.runs.evaluation import BASELINES, measure_encoder, open_trained
from vssl_nb.training.checkpoints import CheckpointError
from vssl_nb.training.machine import Machine

tf = pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install 'vssl_nb[hf]'"
)
timm = pytest.importorskip("timm", reason="timm is not installed: pip install 'vssl_nb[timm]'")
QUIET = Machine("cpu", workers=0, progress=False)
SMALL = dict(hidden_size=32, num_attention_heads=4, num_hidden_layers=2)
CROP = {"height": 32, "width": 32}
# folder -> its model, its processor, and what the processor makes of a clip
MODELS = {
    "vjepa2": lambda: (
        tf.VJEPA2Model(
            tf.VJEPA2Config(
                crop_size=32,
                frames_per_clip=8,
                pred_hidden_size=24,
                pred_num_attention_heads=4,
                pred_num_hidden_layers=1,
                **SMALL,
            )
        ),
        tf.VJEPA2VideoProcessor(crop_size=32),
    ),
    "videomae": lambda: (
        tf.VideoMAEModel(
            tf.VideoMAEConfig(image_size=32, num_frames=8, intermediate_size=64, **SMALL)
        ),
        tf.VideoMAEImageProcessor(size={"shortest_edge": 32}, crop_size=CROP),
    ),
    "dinov2": lambda: (
        tf.Dinov2Model(tf.Dinov2Config(image_size=42, patch_size=14, **SMALL)),
        tf.BitImageProcessor(size={"shortest_edge": 36}, crop_size={"height": 28, "width": 28}),
    ),
    "dinov3": lambda: (
        tf.DINOv3ViTModel(tf.DINOv3ViTConfig(image_size=32, intermediate_size=64, **SMALL)),
        tf.DINOv3ViTImageProcessor(size=CROP),
    ),
}


TIMM = {
    "timm-vit": "test_vit",
    "timm-resnet": "test_resnet",
    "timm-swin": "swin_tiny_patch4_window7_224",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    "Folders of the four models, three of timm and a text model, and toy videos."
    folder = tmp_path_factory.mktemp("hub")
    torch.manual_seed(0)
    for name, make in MODELS.items():
        for part in make():
            part.save_pretrained(folder / name)
    for name, architecture in TIMM.items():  # with settings that are not the defaults
        small = (
            dict(embed_dim=24, depths=(1, 1), num_heads=(2, 4), window_size=4)
            if "swin" in name
            else {}
        )
        if name != "timm-resnet":
            small |= {"img_size": 32}
        model = timm.create_model(
            architecture,
            num_classes=7,
            pretrained_cfg_overlay={
                "crop_pct": 0.8,
                "input_size": (3, 32, 32),
                "mean": (0.4, 0.5, 0.6),
                "std": (0.2, 0.3, 0.4),
            },
            **small,
        )
        timm.models.save_for_hf(model, folder / name, safe_serialization=True, model_args=small)
    tf.BertModel(tf.BertConfig(vocab_size=9, intermediate_size=32, **SMALL)).save_pretrained(
        folder / "bert"
    )
    toy.make(folder / "toy", "tiny", progress=False)
    return folder


def videos():
    "Three videos of different sizes, in memory."
    g = torch.Generator().manual_seed(1)
    return [
        torch.randint(0, 256, (12, h, w, 3), generator=g, dtype=torch.uint8)
        for h, w in ((40, 60), (64, 48), (33, 33))
    ]


def direct(
    name,
    model,
    processor,
    clip,  # (T, H, W, 3) uint8
):  # (D,)
    "The feature of a clip without any code of ours."
    frames = [f.numpy() for f in clip]
    if name == "vjepa2":
        x = processor(np.stack(frames), return_tensors="pt")["pixel_values_videos"]
        return model(x).last_hidden_state.mean(1)[0]
    x = processor(frames, return_tensors="pt")["pixel_values"]
    if name == "videomae":
        return model(x).last_hidden_state.mean(1)[0]
    return model(x).last_hidden_state[:, 0].mean(0)  # the class token of each frame


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_features_are_those_of_a_direct_call(name, place):
    t = open_trained(f"hf:{place / name}", as_manifest(videos()))
    p = t.protocol(clips=2, stride=1, length=8)
    got = extract(t.encoder, t.manifest, "all", 1, t.view, p, machine=QUIET, **t.views)
    kind, processor = (type(part) for part in MODELS[name]())
    model, processor = (
        kind.from_pretrained(place / name).eval(),
        processor.from_pretrained(place / name),
    )
    for video, x in zip(videos(), got.x):
        numbers = map(torch.from_numpy, clip_frames(p, len(video)))
        clips = [direct(name, model, processor, video[n]) for n in numbers]
        assert_close(x, torch.stack(clips).mean(0), rtol=0, atol=1e-5)
        assert (x - got.x.mean(0)).abs().max() > 1e-3, "all videos have one feature"
    if name == "vjepa2":
        assert model.config.frames_per_clip == t.protocol().length == 8


@pytest.mark.parametrize("name", TIMM)
@torch.no_grad()
def test_features_of_timm_are_those_of_a_direct_call(name, place):
    "Of pictures that its own transform makes; nothing of the folder is left out."
    t = open_trained(f"timm:{place / name}", as_manifest(videos()))
    p = t.protocol(clips=2, length=3)
    got = extract(t.encoder, t.manifest, "all", 1, t.view, p, machine=QUIET, **t.views)
    model = timm.create_model(f"local-dir:{place / name}", pretrained=True, num_classes=0).eval()
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))
    for video, x in zip(videos(), got.x):
        numbers = map(torch.from_numpy, clip_frames(p, len(video)))
        pictures = [[transform(Image.fromarray(f.numpy())) for f in video[n]] for n in numbers]
        assert_close(
            x,
            torch.stack([model(torch.stack(c)).mean(0) for c in pictures]).mean(0),
            rtol=0,
            atol=1e-5,
        )
        assert (x - got.x.mean(0)).abs().max() > 1e-3, "all videos have one feature"
    assert p.size == 32 and t.views["mean"] == [0.4, 0.5, 0.6] and "CenterCrop" in repr(t.encoder)
    clips = torch.randn(2, 3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    tokens = t.encoder.tokens(clips)
    assert (
        len(tokens) == 2
        and tokens.shape[1] % 3 == 0
        and tokens.shape[2] == t.encoder(clips).shape[1]
    )
    # a ViT takes its class token
    if name != "timm-vit":
        assert_close(tokens.mean(1), t.encoder(clips))


def test_random_weights_of_the_same_network(place, tmp_path, monkeypatch):
    "They follow from the seed alone, leave the global generator alone, and are those of no folder."
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path))
    weights = models.get_model_weights("squeezenet1_1").DEFAULT
    (tmp_path / "checkpoints").mkdir()
    torch.save(
        models.squeezenet1_1().state_dict(), tmp_path / "checkpoints" / weights.url.split("/")[-1]
    )
    for name in (
        f"hf:{place / 'vjepa2'}",
        f"timm:{place / 'timm-vit'}",
        "torchvision:squeezenet1_1",
    ):
        encoder = hub.load_hub(name)
        before = torch.get_rng_state()
        one, same, other = (digest(encoder.untrained(seed).state_dict()) for seed in (1, 1, 2))
        assert torch.equal(before, torch.get_rng_state())
        assert one == same and len({one, other, digest(encoder.state_dict())}) == 3
        assert encoder.untrained(1).state_dict().keys() == encoder.state_dict().keys()


def test_a_processor_decides_and_is_part_of_the_key(place, tmp_path):
    "Another normalisation makes other features, which do not come from those that were kept."
    other = shutil.copytree(place / "videomae", tmp_path / "other")
    settings = json.loads((other / "preprocessor_config.json").read_text())
    (other / "preprocessor_config.json").write_text(
        json.dumps(settings | {"image_std": [0.2, 0.3, 0.4]})
    )
    made = []
    for folder in (place / "videomae", other, place / "videomae"):
        t = open_trained(f"hf:{folder}", as_manifest(videos()))
        made.append(
            extract(
                t.encoder,
                t.manifest,
                "all",
                1,
                t.view,
                t.protocol(clips=1),
                machine=QUIET,
                store=tmp_path / "kept",
                name="one code",
                **t.views,
            ).x
        )
    assert torch.equal(made[0], made[2]) and (made[0] - made[1]).abs().max() > 1e-3
    assert len([*(tmp_path / "kept").glob("*.safetensors")]) == 2


@torch.no_grad()
def test_a_classifier_has_no_pooler(place, tmp_path):
    "A random one would take its place: the mean of the tokens is the feature instead."
    config = tf.ViTConfig(image_size=32, intermediate_size=64, **SMALL)
    with torch.random.fork_rng():
        tf.ViTForImageClassification(config).save_pretrained(tmp_path)
    tf.ViTImageProcessor(size=CROP).save_pretrained(tmp_path)
    encoder = hub.load_hub(f"hf:{tmp_path}")
    x = torch.randn(2, 3, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    direct = (
        tf.ViTForImageClassification.from_pretrained(tmp_path)
        .eval()
        .vit(x[:, :, 0])
        .last_hidden_state
    )
    assert_close(encoder(x), direct.mean(1), rtol=0, atol=1e-5)
    assert encoder.untrained(0).state_dict().keys() == encoder.state_dict().keys()
    lose(tmp_path)
    with pytest.raises(
        CheckpointError, match="lacks 3 of 40 weights of ViTModel, such as embeddings"
    ):
        hub.load_hub(f"hf:{tmp_path}")


def test_workers_make_the_same(place):
    t = open_trained(f"hf:{place / 'dinov3'}", place / "toy")
    options = dict(protocol=t.protocol(clips=1, length=4), **t.views)
    alone, two = (
        extract(
            t.encoder,
            t.manifest,
            "test",
            1,
            t.view,
            machine=Machine("cpu", workers=n, progress=False),
            **options,
        ).x
        for n in (0, 2)
    )
    assert torch.equal(alone, two)


def test_tokens(place):
    """The mean of the tokens is the feature of a video model; an image model has those of every
    frame.
    """
    for name, n in (
        ("vjepa2", 4 * 4),
        ("videomae", 4 * 4),
        ("dinov2", 8 * (1 + 4)),
        ("dinov3", 8 * (1 + 4)),
    ):
        encoder = hub.load_hub(f"hf:{place / name}")
        side = encoder.about()["size"]
        x = torch.randn(2, 3, 8, side, side, generator=torch.Generator().manual_seed(0))
        assert encoder.tokens(x).shape == (2, n, 32)
        if encoder.frames:
            assert_close(encoder.tokens(x).mean(1), encoder(x))


def test_other_protocols_cut_as_they_are_written(place):
    "With the normalisation of the processor, and clips of its size."
    t = open_trained(f"hf:{place / 'vjepa2'}", place / "toy")
    p = t.protocol("rspnet")
    assert (p.crops, p.size, p.length) == ("centre", 32, 8) and t.views["mean"] == [
        0.485,
        0.456,
        0.406,
    ]
    assert "as the processor of the encoder makes them, 32 x 32" in str(t.protocol())
    for fields in ({"crop": 0.9}, {"jitter": 0.5}):
        with pytest.raises(
            ValueError, match="crops='processor' leaves no room for crop and jitter; take"
        ):
            t.protocol(**fields)
    with pytest.raises(
        ValueError, match="crops='processor' and an encoder with a processor .hf:NAME. go"
    ):
        extract(
            torch.nn.Flatten(),
            t.manifest,
            protocol=protocol("clean", crops="processor"),
            machine=QUIET,
        )
    assert Protocol(crops="processor").side == 1


def test_every_command(place, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(place)
    data = manifest.read("toy").rows

    def run(*args):
        assert cli.main([*args, "--workers", "0"]) == 0, capsys.readouterr().err

    run("retrieve", "hf:vjepa2", "--data", "toy", "--set", "clips=1")
    rows = json.loads((place / "runs/hf-vjepa2/results.json").read_text())
    assert [r["name"] for r in rows if r["method"] == "encoder"] == ["hf:vjepa2"]
    assert {r["method"] for r in rows} == {*BASELINES, "encoder"}
    run("probe", "hf:dinov2", "--data", "toy", "--out", "probe")
    assert json.loads((place / "probe/results.json").read_text())[0]["task"] == "probe"
    # a classifier is kept for runs only
    assert "vssl-nb predict" not in capsys.readouterr().out
    run("probe", "hf:videomae", "--data", "toy", "--preset", "vjepa_probe", "--out", "attentive")
    assert (
        json.loads((place / "attentive/results.json").read_text())[0]["protocol"] == "vjepa_probe"
    )
    run("extract", "hf:dinov2", "--data", "toy", "--out", "x.npz")
    with np.load(place / "x.npz") as f:
        assert f["x"].shape == (len(data), 32)
    run(
        "retrieve",
        "timm:timm-vit",
        "--data",
        "toy",
        "--name",
        "mine",
        "--set",
        "clips=1",
        "length=4",
    )
    run("retrieve", "hf:videomae", "--data", "toy", "--conflict")
    shares = json.loads((place / "runs/hf-videomae/conflict.json").read_text())
    assert sum(shares[k][0] for k in ("scene", "motion", "neither")) == pytest.approx(1)
    capsys.readouterr()
    shutil.copy(place / "toy" / data[0].video, place / "copy.mp4")
    query = [str(place / "copy.mp4"), "--data", str(place / "toy")]
    run("search", *query, "--encoder", "hf:dinov3", "--clips", "1")
    first = capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    run("search", *query)  # the encoder of the index
    shutil.copytree(place / "dinov3", tmp_path / "moved")
    run("search", *query, "--encoder", "hf:moved", "--clips", "1")  # of the same index
    assert capsys.readouterr().out == 2 * first and f"1.000  {data[0].video}" in first
    shutil.rmtree(place / "toy" / ".vssl-search")


@torch.no_grad()
def test_a_verdict_takes_clips_and_their_middle_frames(place):
    "Of two networks, of clips of two moments; what it shows is of the same videos."
    t = open_trained(f"hf:{place / 'videomae'}", place / "toy")
    rows, x = label_free.encode_foreign(t, 6, QUIET, 60.0)
    assert sorted(rows) == sorted({*rows} & {*t.manifest.select("train", 1)}) and len(rows) == 6
    assert x["plain"].shape == x["frozen"].shape == (6, 2, 2, 32)
    for network, encoder in enumerate((t.encoder, t.encoder.untrained(0))):
        for i in (0, 5):
            frames = t.manifest.decode(rows[i], range(t.manifest.rows[rows[i]].frames))
            for moment, n in enumerate(clip_frames(t.protocol(clips=2), len(frames))):
                clip = encoder.prepare(torch.as_tensor(frames[n])).movedim(0, 1)[None]
                assert_close(x["plain"][i, network, moment], encoder(clip)[0], rtol=0, atol=1e-5)
                still = clip[:, :, [len(n) // 2] * len(n)]
                assert_close(x["frozen"][i, network, moment], encoder(still)[0], rtol=0, atol=1e-5)


def test_a_verdict(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def verdict(name, *more):
        assert (
            cli.main(
                [
                    "verdict",
                    name,
                    "--data",
                    str(place / "toy"),
                    "--videos",
                    "12",
                    "--workers",
                    "0",
                    *more,
                ]
            )
            == 0
        )
        (file,) = tmp_path.rglob("verdict.json")
        found = json.loads(file.read_text())
        shutil.rmtree(tmp_path / file.relative_to(tmp_path).parts[0])
        return found, " ".join((*found["sentences"], *found["advice"]))

    image, text = verdict(f"timm:{place / 'timm-resnet'}")
    assert image["learned"] == "not measured" and not image["collapsed"]
    assert image["numbers"]["one_frame"] > 0.6 and "train a run of your own and compare" in text
    assert "again by a clip of another time; the same network with random weights finds" in text
    assert (
        "It did not learn" not in text
        and "more time" not in text
        and "not used in training" not in text
    )

    def collapse(folder):
        weights = load_file(folder / "model.safetensors")
        weights["layernorm.weight"] *= 0  # of the last layer: the feature is its bias
        weights["layernorm.bias"] += 1
        save_file(weights, folder / "model.safetensors", {"format": "pt"})

    found, text = verdict(changed("dinov2", place, collapse), "--out", "here")
    assert found["collapsed"] and "IT HAS COLLAPSED" in text and "size, mean, std" in text
    few = give_verdict(f"hf:{place / 'videomae'}", place / "toy", QUIET, most=6)
    assert few.numbers["videos"] == 6
    assert not [*tmp_path.iterdir()], "nothing is kept without a folder"


@pytest.mark.parametrize("command", ["mine", "uncertainty", "predict"])
def test_what_takes_a_run(command, place, capsys):
    assert (
        cli.main([command, f"timm:{place / 'timm-vit'}", *["x.mp4"] * (command == "predict")]) == 2
    )
    assert "is an encoder of another library, and no run; take it to" in capsys.readouterr().err


@torch.no_grad()
def test_a_model_of_pictures_looks_at_eight_frames_of_the_whole_video(place):
    "Also where nothing is chosen: neither a protocol nor the clips of an index."
    name = f"timm:{place / next(iter(TIMM))}"
    t = open_trained(name, as_manifest(videos()))
    assert not t.encoder.frames, "the first of TIMM is a model of pictures"
    got = extract(t.encoder, t.manifest, "all", 1, t.view, t.protocol(), machine=QUIET, **t.views)
    for video, x in zip(videos(), got.x):
        spread = np.linspace(0, len(video) - 1, 8).round().astype(int)
        frames = t.encoder.prepare(torch.as_tensor(video[spread])).movedim(0, 1)
        assert_close(x, t.encoder(frames[None])[0], rtol=0, atol=1e-5)

    folder, described, clips = choose_index(place / "toy", name)
    assert (clips, described.about["length"], described.about["windows"]) == (1, 8, "sparse")
    key = index_key(described, clips)
    assert key["windows"] == "sparse" and encoder_protocol(key) == t.protocol()


def test_images_of_one_frame_and_the_mean_of_frames(place):
    encoder = hub.load_hub(f"hf:{place / 'dinov2'}")
    x = torch.randn(2, 3, 5, 28, 28, generator=torch.Generator().manual_seed(0))
    each = torch.stack([encoder(x[:, :, [t]]) for t in range(5)])
    assert_close(encoder(x), each.mean(0), rtol=0, atol=1e-5)


def changed(
    folder,  # of the folder of a model, by name
    place,
    change,
):
    "A copy of a folder that somebody has spoiled."
    copy = shutil.copytree(place / folder, place / f"spoiled-{len([*place.iterdir()])}")
    change(copy)
    return f"hf:{copy}"


def lose(
    folder,
):  # the first, which is no part of a classifier's head
    weights = load_file(folder / "model.safetensors")
    lost = next(k for k in sorted(weights) if "classifier" not in k)
    save_file(
        {k: v for k, v in weights.items() if k != lost},
        folder / "model.safetensors",
        {"format": "pt"},
    )


def resize(folder):
    file = folder / "video_preprocessor_config.json"
    crop = {"crop_size": {"height": 48, "width": 48}}
    file.write_text(json.dumps(json.loads(file.read_text()) | crop))


def uncut(folder):
    file = folder / "preprocessor_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"do_center_crop": False}))


@pytest.mark.parametrize(
    "words, folder, change",
    [
        (
            "bert is no model of videos or images .it takes input_ids.; use one such as V-JEPA 2",
            "bert",
            None,
        ),
        (
            "lacks 1 of 32 weights of VideoMAEModel, such as .*, which would be random; take",
            "videomae",
            lose,
        ),
        (
            "has no processor that transformers .* can read; save it beside the model",
            "videomae",
            lambda f: (f / "preprocessor_config.json").unlink(),
        ),
        (
            "has no config.json of a model that transformers .* knows",
            "dinov2",
            lambda f: (f / "config.json").write_text('{"model_type": "unheard"}'),
        ),
        ("has no config.json of a model", "dinov2", lambda f: (f / "config.json").unlink()),
        (
            "its weights cannot be read",
            "dinov2",
            lambda f: (f / "model.safetensors").write_bytes(b"nothing"),
        ),
        ("its weights cannot be read", "dinov2", lambda f: (f / "model.safetensors").unlink()),
        ("its processor makes 48 px, and the model takes 32; correct crop_size", "vjepa2", resize),
        ("its processor makes 48 x 36 of 80 x 60 px, and clips are squares", "dinov2", uncut),
    ],
    ids=lambda x: "",
)
def test_what_is_refused(words, folder, change, place):
    name = changed(folder, place, change or (lambda f: None))
    with pytest.raises(CheckpointError, match=f"{name}: {words}".replace("[", r"\[")):
        measure_encoder(name, place / "toy", machine=QUIET)


@pytest.mark.parametrize(
    "name, length, words",
    [
        ("videomae", 4, "takes clips of 8 frames, not of 4; leave length out, or make it 8"),
        ("vjepa2", 7, "has 2 frames in a token, and length=7 is no multiple of that; use length=8"),
    ],
)
def test_a_wrong_length(name, length, words, place, capsys):
    code = cli.main(
        [
            "retrieve",
            f"hf:{place / name}",
            "--data",
            str(place / "toy"),
            "--workers",
            "0",
            "--out",
            str(place / "length"),
            "--set",
            f"length={length}",
        ]
    )
    text = capsys.readouterr().err.splitlines()[-1]
    assert code == 2 and text.startswith(f"vssl-nb: hf:{place / name}: {words}")


def test_the_length_of_whole_tokens_is_named():
    "The next multiple, also where more than two frames make a token."
    encoder = hub.HubEncoder("hf:x", torch.nn.Identity(), None, None, frames=8, tubelet=4)
    with pytest.raises(CheckpointError, match="length=5 is no multiple of that; use length=8"):
        encoder(torch.zeros(1, 3, 5, 8, 8))


def test_without_transformers(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(
        CheckpointError, match=r"transformers is not installed .*; run pip install 'vssl"
    ):
        hub.load_hub(f"hf:{place / 'dinov2'}")


def test_a_name_on_the_hub(place, monkeypatch):
    """Small files first, and no weights of a model that is refused; here a folder stands for the
    Hub.
    """
    fetched = []

    def snapshot(name, allow_patterns):
        fetched.append((name, *allow_patterns))
        return str(place / name.split("/")[1])

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=snapshot))
    assert hub.load_hub("hf:somebody/dinov2").frames is None
    assert fetched == [
        ("somebody/dinov2", "*.json"),
        ("somebody/dinov2", "*.json", "*.safetensors"),
    ]
    fetched.clear()
    with pytest.raises(CheckpointError, match="hf:somebody/bert: bert is no model of videos"):
        hub.load_hub("hf:somebody/bert")
    assert len(fetched) == 1


def test_names_of_timm(place, monkeypatch):
    "A name stands for what the Hub has of it; here a folder stands for the Hub."
    fetched = []

    def snapshot(name, allow_patterns):
        fetched.append((name, *allow_patterns))
        return str(place / "timm-vit")

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=snapshot))
    assert hub.load_hub("timm:test_vit").frames is hub.load_hub("timm:lab/mine").frames is None
    assert fetched == [
        (n, "config.json", "model.safetensors") for n in ("timm/test_vit.r160_in1k", "lab/mine")
    ]

    def refused(name, words):
        with pytest.raises(CheckpointError, match=f"{name}: {words}"):
            hub.load_hub(name)

    refused(
        "timm:test_vi",
        "timm has no such model, and there is no such folder; did you mean 'test_vit'",
    )
    refused(
        "timm:vit_huge_patch14_gap_224",
        "timm has no weights of it on the Hub; take another model, or a",
    )
    monkeypatch.setitem(sys.modules, "timm", None)
    refused("timm:test_vit", r"timm is not installed .*; run pip install 'vssl_nb.timm.'")


@pytest.mark.parametrize(
    "words, change",
    [
        ("has no config.json; name a folder", lambda f: (f / "config.json").unlink()),
        ("has no model.safetensors; name a folder", lambda f: (f / "model.safetensors").unlink()),
        (
            "cannot be loaded by timm .*Missing key.*attn.proj.bias.*; take a folder that timm "
            "wrote",
            lose,
        ),
        (
            "cannot be loaded by timm .*nothing",
            lambda f: (f / "config.json").write_text('{"architecture": "nothing"}'),
        ),
        ("cannot be loaded by timm", lambda f: (f / "config.json").write_text("{")),
        (
            "cannot be loaded by timm",
            lambda f: (f / "model.safetensors").write_bytes(
                (f / "model.safetensors").read_bytes()[:-9]
            ),
        ),
    ],
    ids=lambda x: "",
)
def test_what_is_refused_of_timm(words, change, place):
    name = changed("timm-vit", place, change).replace("hf:", "timm:")
    with pytest.raises(CheckpointError, match=f"{name}: {words}"):
        hub.load_hub(name)


def test_a_folder_of_timm_under_the_other_name(place):
    with pytest.raises(CheckpointError, match=f"is of timm; name it as timm:{place / 'timm-vit'}$"):
        hub.load_hub(f"hf:{place / 'timm-vit'}")


@torch.no_grad()
def test_torchvision(tmp_path, monkeypatch):
    """A video model and an image model by name, from files where torchvision keeps those it has
    fetched.
    """
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    video = torch.randint(
        0, 256, (16, 80, 100, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
    )
    for name, head in (("s3d", "classifier"), ("squeezenet1_1", "classifier")):
        weights, net = models.get_model_weights(name).DEFAULT, models.get_model(name).eval()
        torch.save(net.state_dict(), tmp_path / "checkpoints" / weights.url.split("/")[-1])
        setattr(net, head, torch.nn.Identity())
        t = open_trained(f"torchvision:{name}", as_manifest([video]))
        got = extract(
            t.encoder, t.manifest, "all", protocol=t.protocol(clips=1), machine=QUIET, **t.views
        )
        numbers = clip_frames(t.protocol(clips=1), len(video))[0]
        x = weights.transforms()(video[numbers].permute(0, 3, 1, 2))
        want = net(x[None])[0] if name == "s3d" else net(x).mean(0)
        assert_close(got.x[0], want, rtol=0, atol=1e-5)
    with pytest.raises(CheckpointError, match="gives no tokens; take a model of transformers"):
        t.encoder.tokens(torch.zeros(1, 3, 2, 64, 64))
    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", lambda *a, **k: 1 / 0)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", lambda *a, **k: 1 / 0)
    with pytest.raises(
        CheckpointError, match="its weights cannot be had .*; check the connection, or"
    ):
        hub.load_hub("torchvision:r3d_18")
