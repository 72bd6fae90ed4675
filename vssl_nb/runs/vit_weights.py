"""Weights of VideoMAE and V-JEPA 2 in our transformer, where they can be trained on: those of
transformers (`hf:`), and VideoMAE's as its authors released them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from ..data.augmentation import IMAGENET_MEAN, IMAGENET_STD
from ..names import of_hub
from ..nets.backbones import BACKBONES, VideoViT, create
from ..training.checkpoints import CheckpointError
from ..training.loop import TrainError
from .hub import HubEncoder, load_hub
from .released import KeyReport, state_of, without_module
from .released_names import RELEASED_FILES
from .torch_files import read_torch_file


@dataclass(frozen=True)
class OutsideWeights:
    "A network of ours with the weights of somebody else, and the clips that they learned from."

    network: VideoViT  # in eval mode, without gradient
    backbone: str  # of `backbones.BACKBONES`
    length: int  # frames of a clip
    size: int  # pixels, side of a clip
    normalisation: str  # of a recipe: 'imagenet' or 'none'


def is_outside(
    source: Any,  # hf:NAME, a file, a run folder or the name of a recipe
) -> bool:
    "Can a source only be weights of somebody else: of another library, or a file of theirs?"
    path = Path(str(source))
    return of_hub(source) or (path.suffix in RELEASED_FILES and not path.is_dir())


def read_outside(
    source: Any,  # hf:FOLDER, hf:OWNER/NAME, or a file of VideoMAE
) -> OutsideWeights:
    "Weights of VideoMAE or V-JEPA 2 in our transformer. `CheckpointError`."
    if of_hub(source):
        return _of_transformers(str(source))
    weights = videomae_file(source)
    if weights is None:
        raise CheckpointError(
            f"{source}: is no file of VideoMAE's pretraining (no encoder.patch_embed in it); of "
            "CoCLR, CPR or IIC make a run of it first, `vssl-nb convert`"
        )
    return weights


# -- which of our backbones

Shape = Mapping[str, Any]


def shape_of(
    net: VideoViT,
) -> dict[str, Any]:  # plain values
    "What decides whether weights fit."
    block: Any = net.get_submodule("block0")
    tubelets: Any = net.tubelets
    return {
        "dim": net.dim,
        "depth": len(net.blocks) - 2,
        "heads": block.heads,
        "hidden": block.mlp[0].out_features,
        "tubelet": tuple(tubelets.tubelet),
        "places": tubelets.places,
        "grid": tubelets.grid,
    }


@cache
def _known_shapes(
    names: tuple[str, ...],  # of BACKBONES
) -> dict[str, dict[str, Any]]:
    nets = {name: BACKBONES[name].shapes() for name in names if name.startswith("vit_")}
    return {name: shape_of(net) for name, net in nets.items() if isinstance(net, VideoViT)}


def fitting_backbone(
    source: Any,  # for the message
    needs: Shape,  # of `shape_of`, all or some of it
) -> str:  # of BACKBONES
    "The backbone of that shape; `CheckpointError` where there is none."
    alike = {
        name: shape
        for name, shape in _known_shapes(tuple(BACKBONES)).items()
        if shape["places"] == needs["places"]
    }
    for name, shape in alike.items():
        if all(shape[k] == v for k, v in needs.items()):
            return name
    wanted = ", ".join(f"{k}={v}" for k, v in needs.items() if k != "places")
    raise CheckpointError(
        f"{source}: has {wanted}, as none of {', '.join(alike)}; measure it with probe or "
        "retrieve, or take weights of one of these shapes"
    )


# -- of transformers


def _of_transformers(
    name: str,  # hf:…
) -> OutsideWeights:
    if not name.startswith("hf:"):
        raise CheckpointError(
            f"{name}: only VideoMAE and V-JEPA 2 of transformers (hf:) can be trained on here; "
            "measure this one with probe or retrieve"
        )
    hub = load_hub(name)
    config: Any = hub.model.config
    read = {"videomae": _videomae_weights, "vjepa2": _vjepa2_weights}.get(config.model_type)
    if read is None:
        raise CheckpointError(
            f"{name}: is a {config.model_type}, and only VideoMAE and V-JEPA 2 can be trained on "
            "here; measure this one with probe or retrieve"
        )
    if config.hidden_act != "gelu":
        raise CheckpointError(
            f"{name}: has hidden_act={config.hidden_act!r}, and the transformer here has 'gelu'; "
            "measure this one with probe or retrieve"
        )
    about = hub.about()
    backbone, state = read(name, hub)
    return OutsideWeights(
        _filled_backbone(backbone, state),
        backbone,
        about["length"],
        about["size"],
        _normalisation(name, about),
    )


def _filled_backbone(
    backbone: str,
    state: Mapping[str, Tensor],
) -> VideoViT:  # in eval mode, without gradient
    net: Any = create(backbone)
    net.load_state_dict({k: x.detach().clone() for k, x in state.items()})
    return net.eval().requires_grad_(False)


def _normalisation(
    name: str,
    about: Mapping[str, Any],  # of a `HubEncoder`
) -> str:  # 'imagenet' or 'none'
    now = (about.get("mean"), about.get("std"))
    for word, mean, std in (
        ("imagenet", IMAGENET_MEAN, IMAGENET_STD),
        ("none", (0.0,) * 3, (1.0,) * 3),
    ):
        if now == (list(mean), list(std)):
            return word
    raise CheckpointError(
        f"{name}: its processor has mean {now[0]} and std {now[1]}, and a training here has those "
        "of ImageNet or none; give its processor one of these, or measure it with probe"
    )


def _linear(
    ours: str,  # name of a layer
    theirs: Any,  # linear layer, convolution or normalisation
) -> dict[str, Tensor]:
    return {f"{ours}.weight": theirs.weight, f"{ours}.bias": theirs.bias}


def _one_layer(
    ours: str,  # name of the attention
    parts: tuple[Any, Any, Any],  # linear layers of queries, keys and values
) -> dict[str, Tensor]:
    "One layer for the three; what has no bias has zeros, as VideoMAE's keys."
    biases = [torch.zeros(len(p.weight)) if p.bias is None else p.bias for p in parts]
    return {
        f"{ours}.qkv.weight": torch.cat([p.weight for p in parts]),
        f"{ours}.qkv.bias": torch.cat(biases),
    }


def _videomae_weights(
    name: str,
    hub: HubEncoder,  # of a VideoMAEModel
) -> tuple[str, dict[str, Tensor]]:  # backbone and its weights
    model: Any = hub.model
    config = model.config
    if model.layernorm is None:
        _refuse_classifier(name)
    backbone = fitting_backbone(
        name,
        {
            "dim": config.hidden_size,
            "depth": config.num_hidden_layers,
            "heads": config.num_attention_heads,
            "hidden": config.intermediate_size,
            "tubelet": (config.tubelet_size, config.patch_size, config.patch_size),
            "places": "sequence",
        },
    )
    state = _linear("tubelets.conv", model.embeddings.patch_embeddings.projection)
    for i, layer in enumerate(model.encoder.layer):
        attention, ours = layer.attention.attention, f"block{i}"
        state |= _one_layer(ours, (attention.query, attention.key, attention.value))
        state |= _linear(f"{ours}.out", layer.attention.output.dense)
        state |= _linear(f"{ours}.norm1", layer.layernorm_before)
        state |= _linear(f"{ours}.norm2", layer.layernorm_after)
        state |= _linear(f"{ours}.mlp.0", layer.intermediate.dense)
        state |= _linear(f"{ours}.mlp.2", layer.output.dense)
    return backbone, state | _linear("norm", model.layernorm)


def _refuse_classifier(source: Any) -> NoReturn:
    raise CheckpointError(
        f"{source}: normalises after the mean over tokens, as VideoMAE's classifiers do, and the "
        "transformer here before it; take the weights of its pretraining, such as "
        "hf:MCG-NJU/videomae-base"
    )


def _vjepa2_weights(
    name: str,
    hub: HubEncoder,  # of a VJEPA2Model
) -> tuple[str, dict[str, Tensor]]:  # backbone and its weights
    model: Any = hub.model
    config, encoder = model.config, model.encoder
    backbone = fitting_backbone(
        name,
        {
            "dim": config.hidden_size,
            "depth": config.num_hidden_layers,
            "heads": config.num_attention_heads,
            "hidden": int(config.hidden_size * config.mlp_ratio),
            "tubelet": (config.tubelet_size, config.patch_size, config.patch_size),
            "places": "rotary_released",
            "grid": config.crop_size // config.patch_size,
        },
    )
    state = _linear("tubelets.conv", encoder.embeddings.patch_embeddings.proj)
    for i, layer in enumerate(encoder.layer):
        attention, ours = layer.attention, f"block{i}"
        state |= _one_layer(ours, (attention.query, attention.key, attention.value))
        state |= _linear(f"{ours}.out", attention.proj)
        state |= _linear(f"{ours}.norm1", layer.norm1)
        state |= _linear(f"{ours}.norm2", layer.norm2)
        state |= _linear(f"{ours}.mlp.0", layer.mlp.fc1)
        state |= _linear(f"{ours}.mlp.2", layer.mlp.fc2)
    return backbone, state | _linear("norm", encoder.layernorm)


# -- as VideoMAE's authors released them

# in a name of ours -> in one of theirs (modeling_finetune.py)
_THEIR_NAMES = {
    "tubelets.conv.": "patch_embed.proj.",
    ".qkv.": ".attn.qkv.",
    ".out.": ".attn.proj.",
    ".mlp.0.": ".mlp.fc1.",
    ".mlp.2.": ".mlp.fc2.",
}


def _their_name(name: str) -> str:  # 'encoder.blocks.0.attn.qkv.weight'
    for ours, theirs in _THEIR_NAMES.items():
        name = name.replace(ours, theirs)
    return "encoder." + name.replace("block", "blocks.", name.startswith("block"))


def videomae_file(
    path: Any,  # of MCG-NJU/VideoMAE
) -> OutsideWeights | None:  # None: of something else
    """Read the encoder of a file of VideoMAE's pretraining without running it; its decoder is left.

    `CheckpointError`.
    """
    path = Path(path)
    content, _ = read_torch_file(path)
    keys = without_module(state_of(content, path))
    tensors = {k: x for k, x in keys.items() if isinstance(x, Tensor)}
    if "patch_embed.proj.weight" in tensors and "fc_norm.weight" in tensors:
        _refuse_classifier(path)
    if "encoder.patch_embed.proj.weight" not in tensors:
        return None

    _add_key_biases(tensors)
    depth = 1 + max(
        (int(k.split(".")[2]) for k in tensors if k.startswith("encoder.blocks.")), default=-1
    )
    patch = tensors["encoder.patch_embed.proj.weight"]
    hidden = tensors.get("encoder.blocks.0.mlp.fc1.weight", patch)
    backbone = fitting_backbone(
        path,
        {
            "dim": len(patch),
            "depth": depth,
            "hidden": len(hidden),
            "tubelet": tuple(patch.shape[2:]),
            "places": "sequence",
        },
    )
    net: Any = create(backbone)
    report = KeyReport(tensors, [])
    report.fill(net, lambda k: [_their_name(k)])
    if report.problems():
        raise CheckpointError(
            f"{path}: {'; '.join(report.problems())}; take the file from its authors again"
        )
    length, size, _ = BACKBONES[backbone].clip
    return OutsideWeights(net, backbone, length, size, "imagenet")


def _add_key_biases(
    tensors: dict[str, Tensor],  # of a file; changed in place
) -> None:
    "Queries and values have biases of their own there, keys none: one of all three here."
    for q in [k for k in tensors if k.endswith(".attn.q_bias")]:
        block = q.removesuffix("q_bias")
        v = tensors.get(f"{block}v_bias")
        if v is not None and v.shape == tensors[q].shape:
            of_q = tensors.pop(q)
            tensors[f"{block}qkv.bias"] = torch.cat([of_q, torch.zeros_like(v), v])
            del tensors[f"{block}v_bias"]


# -- as the first weights of a pretraining


def outside_state(
    source: Any,  # as of `read_outside`
    # fields of the recipe that wants to begin with them; `view` of the network
    needs: Mapping[str, Any],
) -> dict[str, Tensor]:  # names below `encoder.`
    "The weights as a method has them. `TrainError` where the recipe has another backbone or view."
    weights = read_outside(source)
    if weights.backbone != needs["backbone"]:
        raise TrainError(
            f"{source}: its weights fit backbone={weights.backbone!r}, and {needs['name']} has "
            f"{needs['backbone']!r}; use --backbone {weights.backbone}"
        )
    if needs["view"] != "rgb":
        raise TrainError(
            f"{source}: learned from frames (rgb), and {needs['name']} needs {needs['view']}; take "
            "a recipe of that view, or begin with random weights"
        )
    return {f"encoder.{k}": x for k, x in weights.network.state_dict().items()}
