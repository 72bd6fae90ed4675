"What the files of CoCLR, CPR and IIC call their tensors, and what we call them"

import re
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

# networks of a file: prefix there; prefixes of backbone and head in the state of a method here
NETWORKS = {
    "encoder": ("encoder_q.", "pair.encoder.", "pair.projection."),
    "momentum": ("encoder_k.", "pair.momentum_encoder.0.", "pair.momentum_encoder.1."),
    "sampler": ("sampler.", "sampler.0.", "sampler.1."),
}
# of a method without a momentum encoder: IIC
ALONE = {"encoder": ("", "encoder.", "projection.")}
# a key in a column there, in a row here
QUEUES = {"queue": "queue.keys", "queue_second": "queue.keys_1"}
# b11: rgb first
BANKS = {"memory_l": "bank.keys", "memory_ab": "bank.keys_1", "memory_neg": "bank.keys_2"}
# method -> queues or banks of its file (b1, b11); a file may have fewer banks, as a method has
# fewer views
LAYOUTS: dict[str, tuple[str, ...]] = {
    "infonce": ("queue", "queue_ptr"),
    "ubernce": ("queue", "queue_ptr", "queue_label"),
    "coclr": ("queue", "queue_ptr", "queue_second", "queue_vname", "queue_label"),
    "cpr": (
        "queue",
        "queue_ptr",
        "queue_second",
        "queue_vname",
        "queue_label",
        "memory_index_record",
    ),
    "iic": (*BANKS, "params"),
    "classifier": (),
}
# the layer of classes of a fine-tuned file; the first in a linear probe (b1; IIC: I models/r3d.py)
CLASSES = {"iic": ("linear",), "classifier": ("final_fc.0", "final_fc.1")}
ENTRIES = (
    "state_dict",
    "model",
    "contrast",
    "optimizer",
    "epoch",
    "iteration",
    "best_acc",
    "opt",
    "vssl_nb",
)
# every layer of S3D was registered twice, under its name and within its block (b1)
BLOCKS = {
    "block1": ("Conv_1a",),
    "block2": ("MaxPool_2a", "Conv_2b", "Conv_2c"),
    "block3": ("MaxPool_3a", "Mixed_3b", "Mixed_3c"),
    "block4": ("MaxPool_4a", "Mixed_4b", "Mixed_4c", "Mixed_4d", "Mixed_4e", "Mixed_4f"),
    "block5": ("MaxPool_5a", "Mixed_5b", "Mixed_5c"),
}
_WITHIN_BLOCK = {
    layer: f"{block}.{i}" for block, layers in BLOCKS.items() for i, layer in enumerate(layers)
}
RELEASED_FILES = (".tar", ".pth", ".pt")  # suffixes


def both_names(
    name: str,  # 'Conv_2b.bn.weight'
) -> list[str]:  # itself and 'block2.1.bn.weight'
    "Under which names a tensor of a backbone stands in a released file: those of S3D have two."
    layer, _, rest = name.partition(".")
    if layer not in _WITHIN_BLOCK:
        return [name]
    return [name, f"{_WITHIN_BLOCK[layer]}.{rest}"]


def state_name(
    name: str,  # 'encoder_q.2.weight'
) -> str:  # 'pair.projection.layers.0.weight'
    "What the state of a method here calls the parameter of that first name in a released file."
    for prefix, encoder, head in NETWORKS.values():
        if not name.startswith(prefix):
            continue
        number, _, rest = name.removeprefix(prefix).partition(".")
        if number == "0":
            return encoder + rest
        return f"{head}layers.{int(number) - 2}.{rest}"
    layer = re.match(r"(final_bn|final_fc\.\d|linear)\.", name)
    if layer:
        rest = name[layer.end() :]
        return f"norm.{rest}" if layer[1] == "final_bn" else f"fc.{rest}"
    return f"encoder.{name.removeprefix('backbone.')}"


def head_name(
    prefix: str,  # 'encoder_q.'
    name: str,  # 'layers.0.weight'
) -> str:  # 'encoder_q.2.weight'
    "What a released file calls a tensor of a projection here."
    _, number, rest = name.split(".", 2)
    return f"{prefix}{int(number) + 2}.{rest}"


def first_names(names: Iterable[str]) -> list[str]:
    "Without second names: 'block2.1.bn.weight' is that of 'Conv_2b.bn.weight'."
    second = re.compile(r"((encoder_q|encoder_k|sampler)\.0\.|backbone\.|)block\d\.\d+\.")
    return [n for n in names if not second.match(n)]


def parameter_names(
    state: Mapping[str, Any],  # of a file
) -> list[str]:  # first names, in the order of the optimizer
    """The parameters in the state of a file, each once: no statistics of BatchNorm, no queue, no
    bank.
    """
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    # a linear probe has no optimizer for its backbone (b10)
    frozen = "backbone." if "final_bn.weight" in state else None
    names = []
    for name, x in state.items():
        if not isinstance(x, Tensor) or "." not in name or name.endswith(statistics):
            continue
        if frozen and name.startswith(frozen):
            continue
        names.append(name)
    return first_names(names)


def below(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    "The tensors whose names begin with a prefix, without it."
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
