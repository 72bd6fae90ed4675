"Runs and released files, turned into files that the released loaders take, or into encoders"

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..methods.recipes import from_dict, to_dict
from ..nets.backbones import BACKBONES
from ..runs.released import (
    Released,
    load_released,
    method_state,
    optimizer_by_name,
    reshaped_state,
)
from ..runs.released_names import (
    BANKS,
    BLOCKS,
    CLASSES,
    LAYOUTS,
    NETWORKS,
    QUEUES,
    RELEASED_FILES,
    below,
    both_names,
    first_names,
    head_name,
    parameter_names,
    state_name,
)
from ..training.checkpoints import (
    CheckpointError,
    export_encoder,
    load,
    read_encoder,
    read_heads,
    save,
)
from ..training.loop import TrainError
from ..training.run_folder import read_json
from .sharing import save_pretrained

# --- networks and queues, under the names of a released file


def _registered(names: list[str], backbone: str) -> list[str]:
    "Names of a backbone's tensors in the order in which the released class registers them."
    within = {"conv1": 0, "conv2": 1, "bn1": 2, "bn2": 3}
    first: dict[str, int] = {}

    def order(numbered):
        i, name = numbered
        parts = name.split(".")
        if backbone.startswith("s3d"):
            parent = ".".join(parts[:-2])
            rank = within.get(parts[-2], 0)
        else:
            depth = 2 if "block1" in parts else 1
            parent = ".".join(parts[:depth])
            rank = 0 if "downsample" in name else 1
        return first.setdefault(parent, i), rank, i

    return [name for _, name in sorted(enumerate(names), key=order)]


def _doubled(
    state: Mapping[str, Tensor], prefix: str, backbone: str
) -> Iterator[tuple[str, Tensor]]:
    "Every tensor of a backbone, under both of its names."
    names = _registered([*state], backbone)
    if not backbone.startswith("s3d"):
        for name in names:
            yield prefix + name, state[name]
        return
    for layers in BLOCKS.values():
        block = [n for layer in layers for n in names if n.startswith(f"{layer}.")]
        for i in (0, 1):
            for name in block:
                yield prefix + both_names(name)[i], state[name]


def _file_state(
    state: Mapping[str, Tensor],
    method: str,  # a key of LAYOUTS
    backbone: str,
) -> dict[str, Tensor]:
    "The networks of a method here, under the names of a released file."
    if method in CLASSES:
        return _classifier_state(state, method, backbone)
    file_state: dict[str, Tensor] = {}
    for prefix, encoder, head in NETWORKS.values():
        file_state |= _doubled(below(state, encoder), f"{prefix}0.", backbone)
        for name, x in below(state, head).items():
            kernel = x[..., None, None, None] if x.ndim == 2 else x
            file_state[head_name(prefix, name)] = kernel
    return file_state


def _classifier_state(
    state: Mapping[str, Tensor],
    method: str,  # a key of CLASSES
    backbone: str,
) -> dict[str, Tensor]:
    prefix = "backbone." if method == "classifier" else ""
    file_state = dict(_doubled(below(state, "encoder."), prefix, backbone))
    # registered before the layer
    file_state |= {f"final_bn.{k}": v for k, v in below(state, "norm.").items()}
    layers = CLASSES[method]
    layer = layers[0] if "norm.weight" in state else layers[-1]
    file_state |= {f"{layer}.{k}": v for k, v in below(state, "fc.").items()}
    return file_state


def _file_buffers(
    state: Mapping[str, Tensor],
    method: str,  # a key of LAYOUTS
    settings: Mapping[str, Any],  # of the method of a recipe
) -> dict[str, Tensor]:
    "Queues or banks of a run, in the released layout."
    if method == "iic":  # b11
        params = [settings["negatives"], settings["temperature"], -1, -1, settings["bank_momentum"]]
        buffers = {"params": torch.tensor(params)}
        return buffers | {name: state[ours] for name, ours in BANKS.items() if ours in state}
    K = len(state["queue.keys"])
    names = LAYOUTS[method]
    buffers = {name: state[ours].T.contiguous() for name, ours in QUEUES.items() if name in names}
    buffers["queue_ptr"] = state["queue.pointer"].reshape(1)
    buffers["queue_vname"] = state["queue.source"]
    if method == "ubernce":
        buffers["queue_label"] = state["queue.label"]
    else:
        # with two streams the labels are flags: has a key come? (b4)
        buffers["queue_label"] = torch.where(torch.arange(K) < state["queue.filled"], 1, -1)
    buffers["memory_index_record"] = torch.arange(K)
    return {name: buffers[name] for name in names}


# --- what a file is made of


@dataclass
class Contents:
    "What goes into a released file."

    method: str  # a key of LAYOUTS
    backbone: str
    state: dict[str, Tensor]  # of the method, in our names
    buffers: dict[str, Tensor]  # queues or banks, in the file's names
    entries: dict[str, Any]  # epoch, best_acc, iteration, opt, vssl_nb
    # by the file's names: the settings of a parameter's group, and its state; empty: none
    optimizer: dict[str, tuple[dict, dict]]


def _of_released(
    r: Released,
    optimizer: bool,
) -> Contents:
    entries: dict[str, Any] = {
        "epoch": r.epoch or 0,
        "best_acc": r.best_acc or 0.0,
        "iteration": r.iteration or 0,
        "opt": r.options,
    }
    if r.run:
        entries["vssl_nb"] = r.run
    known: dict[str, tuple[dict, dict]] = {}
    if optimizer and r.optimizer:
        known = optimizer_by_name(r.optimizer, r.optimizer_names, r.path)
    return Contents(r.method, r.backbone, method_state(r), r.queues, entries, known)


def _of_run(
    folder: Path,
    optimizer: bool,
) -> Contents:
    try:
        data = read_json(folder / "recipe.json", "a run")
        card = read_json(folder / "card.json", "a run")
    except TrainError as e:
        raise CheckpointError(
            f"{folder}: is no run folder ({e}); give one, or what load_released returned"
        ) from e
    data = to_dict(from_dict(data, str(folder / "recipe.json")))
    recipe = json.dumps(data)
    last = load(folder / "last.pt")
    per_epoch = max(card.get("schedule", {}).get("steps_per_epoch", 1), 1)
    tuned = card.get("training")
    if tuned:
        data, last = _of_finetuning(data, tuned, last, per_epoch, optimizer)
    state = last["method"]
    _refuse_without_layout(folder, data, state, tuned)

    name = data["method"]["name"]
    method = "cpr" if data["method"].get("miner") == "cascade" else name
    file_state = _file_state(state, method, data["backbone"])
    written = {state_name(n) for n in first_names(file_state)}
    written |= {*QUEUES.values(), *BANKS.values()}
    step = int(last["step"])
    second = data["method"].get("second_view") or ""
    modality = {"residual": "res", "flow_u": "u", "flow_v": "v"}.get(second, second)
    entries = {
        "epoch": step // per_epoch,
        "best_acc": 0.0,
        "iteration": step,
        "opt": {"modality": modality},
        "vssl_nb": {
            "recipe": recipe,
            "view": data["view"],
            "step": step,
            "rest": {k: v for k, v in state.items() if k not in written},
        },
    }
    known: dict[str, tuple[dict, dict]] = {}
    if optimizer:
        decay_bias = data["learning"]["decay_bias"]
        known = _optimizer_of_run(folder, last["opt"], state, file_state, decay_bias)
    buffers = {} if tuned else _file_buffers(state, method, data["method"])
    return Contents(method, data["backbone"], state, buffers, entries, known)


def _of_finetuning(
    data: dict[str, Any],  # the recipe of the encoder, which lies beside it
    tuned: Mapping[str, Any],  # the training, of the run card
    last: Mapping[str, Any],  # the checkpoint
    per_epoch: int,  # optimizer steps
    optimizer: bool,  # else of the best epoch
) -> tuple[dict[str, Any], dict[str, Any]]:  # recipe of the fine-tuning; state of the training
    name = "iic" if data["method"]["name"] == "iic" else "classifier"
    method = tuned["method"] | {"name": name}
    data = data | {"learning": tuned["learning"], "method": method}
    best = last["best"]
    if best and not optimizer:
        return data, {"method": best["weights"], "step": int(best["epoch"]) * per_epoch}
    return data, last["run"]


def _refuse_without_layout(
    folder: Path,
    data: Mapping[str, Any],  # the recipe
    state: Mapping[str, Tensor],  # of the method
    tuned: Mapping[str, Any] | None,  # the training of a fine-tuning
) -> None:
    "`CheckpointError` for a run of which there is no released layout."
    settings = data["method"]
    name = settings["name"]
    _, _, projection = NETWORKS["encoder"]
    biases = {f"{projection}layers.0.bias", f"{projection}layers.2.bias"}
    if name not in LAYOUTS:
        lacks = f"method {name!r}"
    elif data["backbone"] not in BACKBONES:
        lacks = f"backbone {data['backbone']!r}"
    elif name == "iic" and (below(state, "projection.") or "norm.weight" in state):
        lacks = "a head"
    elif name not in CLASSES and "queue.keys" not in state:
        lacks = "no queue"
    elif tuned and (settings["mixture"] or settings["normalise"] != settings["batchnorm"]):
        lacks = "another head"
    elif not tuned and name != "iic" and not biases <= state.keys():
        lacks = "another head"
    else:
        return
    file = "classifier.safetensors" if tuned else "encoder.safetensors"
    raise CheckpointError(
        f"{folder}: has {lacks}, for which there is no released layout; its {file} can be given "
        "away"
    )


def _optimizer_of_run(
    folder: Path,
    optimizer: Mapping[str, Any],  # its `state_dict`
    state: Mapping[str, Tensor],  # of the method, in our names
    file_state: Mapping[str, Tensor],  # in the file's names
    decay_bias: bool,  # of the recipe's learning
) -> dict[str, tuple[dict, dict]]:  # by the file's names
    names = {state_name(n): n for n in parameter_names(file_state)}
    trained = [
        k for k in state if k in names and not names[k].startswith(("encoder_k.", "sampler."))
    ]
    # in the order of `loop.parameter_groups`
    trained.sort(key=lambda k: (k.startswith("encoder."), not decay_bias and state[k].ndim < 2))
    known = optimizer_by_name(optimizer, trained, folder / "last.pt")
    return {names[n]: settings for n, settings in known.items()}


# --- writing


def save_released(
    run,  # a run folder, or what `load_released` returned
    path,  # e.g. `CoCLR-ucf101-rgb-128-s3d-ep182.tar`
    # its state, too; False writes the best epoch of a fine-tuning, and not its last
    optimizer: bool = True,
) -> Path:  # the path
    "Write a file that the released loaders take (released code b1, b11); raises `CheckpointError`."
    if isinstance(run, Released):
        contents = _of_released(run, optimizer)
    else:
        contents = _of_run(Path(run), optimizer)
    state = _file_state(contents.state, contents.method, contents.backbone)
    entries = dict(contents.entries)
    if contents.optimizer:
        entries["optimizer"] = _file_optimizer(contents, state)
    if contents.method == "iic":
        del entries["best_acc"], entries["iteration"]
        entries["model"] = OrderedDict(state)
        entries["contrast"] = OrderedDict(contents.buffers)
    else:
        del entries["opt"]
        entries["state_dict"] = OrderedDict(contents.buffers | state)
    return save(path, entries)


def _file_optimizer(
    contents: Contents,
    state: Mapping[str, Tensor],  # in the file's names
) -> dict[str, Any]:
    "The `state_dict` of the optimizer, as the released code has it."
    known = contents.optimizer
    first_settings, _ = next(iter(known.values()))
    names = parameter_names(state)
    settings = []
    states: dict[int, dict] = {}
    for i, name in enumerate(names):
        group, moments = known.get(name, (first_settings, {}))
        settings.append(group)
        if moments:  # frozen ones have no state
            states[i] = reshaped_state(moments, state[name].shape)
    if contents.method == "iic":
        groups = [first_settings | {"params": list(range(len(names)))}]
    else:
        # the others: one a parameter
        groups = [group | {"params": [i]} for i, group in enumerate(settings)]
    return {"param_groups": groups, "state": states}


def convert(
    source,  # a run folder or a released file
    # FILE.tar, .pth or .pt: released; FILE.safetensors: an encoder; else a folder of an encoder
    out,
    view: str | None = None,  # of a released file; None: by its name or its options
    optimizer: bool = True,  # write its state as well
) -> str:  # what a released file holds; '' for a run
    "Turn a run or a released file into a released file or an encoder to share. `CheckpointError`."
    source = Path(source)
    out = Path(out)
    if source.resolve() == out.resolve():
        raise CheckpointError(f"{out}: is what is to be converted; give another name")
    r = None if source.is_dir() else load_released(source, view)
    if out.suffix in RELEASED_FILES:
        save_released(r or source, out, optimizer)
        return "" if r is None else str(r)

    if r is None:
        file = source / "encoder.safetensors"
        net, about = read_encoder(file)
        heads = read_heads(file)
    else:
        net = r.encoder
        about = _about_released(r)
        heads = {"projection": r.heads["encoder"]} if "encoder" in r.heads else {}
    # by which it is known as converted
    about = about | {"source": source.name}
    write = export_encoder if out.suffix == ".safetensors" else save_pretrained
    write(out, net, about, heads)
    return "" if r is None else str(r)


def _about_released(r: Released) -> dict[str, Any]:  # metadata of an encoder's file
    return {
        "backbone": r.backbone,
        "view": r.ask_view(),
        **r.clip(),
        "stride": 1,
        "epoch": r.epoch,
        "method": r.method,
        **r.view_options(),
    }
