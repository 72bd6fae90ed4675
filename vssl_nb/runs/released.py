"Files of CoCLR, CPR and IIC: read without running them, checked key by key, and gone on with"

import argparse
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ..config import Recipe
from ..fields import RecipeError
from ..methods.recipes import difference, from_dict, to_dict
from ..methods.supervised import Classifier
from ..nets.backbones import BACKBONES, in_memory
from ..nets.heads import make_head
from ..training.checkpoints import CheckpointError
from ..training.loop import TrainError, TrainingState, batch_order
from .experiment import Experiment
from .released_names import (
    ALONE,
    BANKS,
    CLASSES,
    ENTRIES,
    LAYOUTS,
    NETWORKS,
    QUEUES,
    both_names,
    first_names,
    head_name,
    parameter_names,
    state_name,
)
from .torch_files import read_torch_file

# --- the keys of a file, taken out one by one

# what can stand against using a file: part of a sentence, which names of tensors follow
LACKS = "lacks"
SHAPE = "wrong shape:"
NOT_FINITE = "NaN or infinity in"
DIFFERING = "two names of one tensor with different numbers:"
PROBLEMS = (LACKS, SHAPE, NOT_FINITE, DIFFERING)


@dataclass
class KeyReport:
    """The tensors of a released file, taken out by name, and what became of every key, as it stands
    there.
    """

    left: dict[str, Any] = field(repr=False, compare=False)  # tensors that nobody took yet
    unused: list[str]  # unknown here
    used: list[str] = field(default_factory=list)
    # second names of what was used, with equal numbers
    duplicated: list[str] = field(default_factory=list)
    wrong: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in PROBLEMS})

    def problems(self) -> list[str]:
        "Part of a sentence for each kind; unused keys are no problem."
        texts = []
        for kind, names in self.wrong.items():
            if not names:
                continue
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            texts.append(f"{kind} {', '.join(names[:3])}{more}")
        return texts

    def __str__(self) -> str:
        texts = [
            f"{len(self.used)} keys used, {len(self.duplicated)} second names, "
            f"{len(self.unused)} unused"
        ]
        if self.unused:
            texts.append(f"unused: {', '.join(self.unused[:10])}")
        return "; ".join(texts + self.problems())

    def take(
        self,
        names: list[str],
        shape: tuple[int, ...] | None,
    ) -> Tensor | None:  # None: it cannot be used
        "A tensor of that shape (None: any) under one of its names."
        present = [n for n in names if n in self.left]
        if not present:
            self.wrong[LACKS].append(names[0])
            return None
        name, *others = present
        x = self.left.pop(name)
        for other in others:
            y = self.left.pop(other)
            shared = x.data_ptr() == y.data_ptr() and x.shape == y.shape
            if shared or torch.equal(x, y):
                self.duplicated.append(other)
            else:
                self.wrong[DIFFERING].append(other)
        if shape is not None and x.shape != shape:
            self.wrong[SHAPE].append(f"{name} ({tuple(x.shape)}, not {shape})")
            return None
        if x.is_floating_point() and not x.isfinite().all():
            self.wrong[NOT_FINITE].append(name)
        self.used.append(name)
        return x

    def fill(
        self,
        net: nn.Module,
        names: Callable[[str], list[str]],  # of a tensor of the network, in the file
    ) -> None:  # as it was if the file is not whole
        "Give a network the tensors of the file, whose kernels of 1 are matrices here."
        state: dict[str, Tensor] = {}
        for k, v in net.state_dict().items():
            shape = tuple(v.shape)
            if k.startswith("layers.") and v.ndim == 2:
                shape = (*shape, 1, 1, 1)
            x = self.take(names(k), shape)
            if x is not None:
                state[k] = x.reshape(v.shape)
        if state.keys() == net.state_dict().keys():
            net.load_state_dict(state)
        net.eval().requires_grad_(False)

    def backbone(
        self,
        name: str,  # of `backbones.BACKBONES`
        prefix: str,  # of its tensors in the file
    ) -> Any:  # a network with `.dim`
        "A backbone with the tensors of the file."
        net = in_memory(BACKBONES[name].shapes())
        self.fill(net, lambda k: [prefix + n for n in both_names(k)])
        return net

    def projection(
        self,
        dim_in: int,  # of the features
        prefix: str,  # of its tensors in the file
    ) -> nn.Module:
        """The head behind a backbone: two convolutions of kernel 1 in the file, two linear layers
        here.
        """
        hidden = self._channels(f"{prefix}2.weight", dim_in)
        dim = self._channels(f"{prefix}4.weight", 128)
        head = make_head("projection", dim_in, hidden, dim)
        self.fill(head, lambda k: [head_name(prefix, k)])
        return head

    def _channels(
        self,
        name: str,  # of the weight of a convolution
        otherwise: int,  # where there is none
    ) -> int:
        weight = self.left.get(name)
        return otherwise if weight is None or weight.ndim != 5 else len(weight)

    def classifier(
        self,
        encoder: nn.Module,
        method: str,
    ) -> Classifier | None:  # None: no layer of classes
        """Encoder and layer of a fine-tuned file; a linear probe has length 1 and BatchNorm between
        (b10).
        """
        layers = [n for n in CLASSES.get(method, ()) if f"{n}.weight" in self.left]
        if not layers:
            return None
        layer = layers[0]
        classes = self.left[f"{layer}.weight"].shape[:1].numel()
        probe = "final_bn.weight" in self.left
        c = Classifier(encoder, classes, normalise=probe, batchnorm=probe)
        self.fill(c.norm, lambda k: [f"final_bn.{k}"])
        self.fill(c.fc, lambda k: [f"{layer}.{k}"])
        return c.eval().requires_grad_(False)

    def buffers(
        self,
        names: tuple[str, ...],  # of LAYOUTS
    ) -> dict[str, Tensor]:
        """Queues, whose K and dimension are those of the first; or banks, with a row for every
        training video.
        """
        shapes = self._buffer_shapes(names)
        buffers: dict[str, Tensor] = {}
        for name in names:
            # a file may have fewer banks, as it has fewer views
            if name not in self.left and name in (*BANKS, "params"):
                continue
            x = self.take([name], shapes[name])
            if x is not None:
                buffers[name] = x
        if "queue_ptr" in buffers:
            at = int(buffers["queue_ptr"])
            _, K = shapes["queue"]
            if not 0 <= at < K:
                self.wrong[SHAPE].append(f"queue_ptr ({at}, K is {K})")
        return buffers

    def _buffer_shapes(self, names: tuple[str, ...]) -> dict[str, Any]:
        queue = self.left.get("queue")
        dim, K = queue.shape if queue is not None and queue.ndim == 2 else (128, 2048)
        shapes: dict[str, Any] = {name: (K,) for name in names}
        shapes |= {name: (dim, K) for name in QUEUES}
        shapes["queue_ptr"] = (1,)
        banks = [tuple(self.left[name].shape) for name in BANKS if name in self.left]
        shapes |= {name: banks[0] if banks else None for name in BANKS}
        shapes["params"] = (5,)
        return shapes


# --- a released file


def view_of(
    path,
) -> str | None:  # 'rgb', 'flow' or 'residual'; None: unknown
    "Which view a released file is of, by its name."
    names = {"rgb": "rgb", "flow": "flow", "f": "flow", "res": "residual", "residual": "residual"}
    words = re.split(r"[-_.]", Path(path).name.lower())
    views = {names[w] for w in words if w in names}
    return views.pop() if len(views) == 1 else None


@dataclass
class Released:
    """What a released file holds.

    Networks are in eval mode and give features (B, D); `None`: not in the file.
    """

    path: Path
    method: str  # a key of LAYOUTS
    view: str | None  # that `encoder` looks at; None: unknown
    backbone: str  # of `backbones.BACKBONES`
    encoder: nn.Module
    momentum: nn.Module | None  # the slow copy
    sampler: nn.Module | None  # of the other view, which mines
    heads: dict[str, nn.Module]  # of 'encoder', 'momentum', 'sampler': (B, D) -> (B, 128)
    # fine-tuned: `encoder` and its layer; `logits` of clips (B, 3, T, H, W)
    classifier: Classifier | None
    queues: dict[str, Tensor]  # queues and banks, under the file's names and in its layout
    report: KeyReport
    epoch: int | None  # that the file was written after
    iteration: int | None  # optimizer steps
    best_acc: float | None
    optimizer: dict[str, Any]  # its state, as in the file; empty: none
    optimizer_names: list[str]  # of the parameters it counts, in its order
    options: dict[str, Any]  # IIC: of the command
    # what `save_released` added of a run of ours; a released loader passes over it
    run: dict[str, Any]
    checked: bool  # were there checksums? Files from before PyTorch 1.6 have none

    def __str__(self) -> str:
        queues = ", ".join(f"{k} {tuple(v.shape)}" for k, v in self.queues.items())
        optimizer = ", with optimizer" if self.optimizer else ""
        text = (
            f"{self.method}, {self.view or 'view unknown'}, {self.backbone}, epoch {self.epoch}"
            f"{optimizer}; {queues or 'no queues'}; {self.report}"
        )
        if not self.checked:
            text += "; an old format without checksums: a flipped bit cannot be seen"
        return text

    def ask_view(self) -> str:  # 'rgb', 'flow' or 'residual'
        "The view, or a CheckpointError that asks for it."
        if self.view:
            return self.view
        raise CheckpointError(
            f"{self.path}: does not say which view it is of; say it with --view rgb, flow or "
            "residual (view= in Python)"
        )

    def view_options(self) -> dict[str, Any]:  # arguments of `Views`, besides its names
        """What its network was shown: frames between 0 and 1, IIC's differences (b11); or the
        defaults (b8).
        """
        if self.method != "iic":
            return {}
        return {
            "residual": "rolled" if self.classifier else "wrapped",
            "residual_scale": 0.1,
            "flow_flip": "released",
            "flow_colour": "none",
            "mean": (0.0,) * 3,
            "std": (1.0,) * 3,
        }

    def clip(self) -> dict[str, Any]:  # fields of a protocol, and of an encoder's file
        "The clip that its backbone is meant for."
        length, size, _ = BACKBONES[self.backbone].clip
        return {"length": length, "size": size}


def load_released(
    path,  # a file of CoCLR, CPR or IIC, or one that `save_released` wrote
    view: str | None = None,  # 'rgb', 'flow' or 'residual'; None: by the file's name or options
) -> Released:  # on the CPU
    "Read a released file without running it; raises `CheckpointError` (released code b1, b11)."
    path = Path(path)
    content, checked = read_torch_file(path)
    inner = state_of(content, path)
    state = without_module(inner)
    method = "iic" if inner is content.get("model") else _method_of(state)
    prefix = {"iic": "", "classifier": "backbone."}.get(method, "encoder_q.0.")
    backbone = _known_backbone(path, state, method, prefix)

    options = _entry(content, "opt")
    run = _entry(content, "vssl_nb")
    keys = state
    if method == "iic":
        keys = state | without_module(_entry(content, "contrast"))
    tensors = {k: v for k, v in keys.items() if isinstance(v, Tensor)}
    report = KeyReport(tensors, [k for k in keys if k not in tensors])
    networks, heads = _networks(report, method, backbone, prefix)
    classifier = report.classifier(networks["encoder"], method)
    queues = report.buffers(LAYOUTS[method])
    report.unused += report.left
    if content is not inner:
        report.unused += [k for k in map(str, content) if k not in ENTRIES]
    if report.problems():
        raise CheckpointError(
            f"{path}: {'; '.join(report.problems())}; take the file from its authors again"
        )

    view = view or run.get("view")
    if not view:
        # view 1 of IIC's one network is RGB (b11)
        view = "rgb" if options.get("modality") else view_of(path)
    return Released(
        path,
        method,
        view,
        backbone,
        **networks,
        heads=heads,
        classifier=classifier,
        queues=queues,
        report=report,
        epoch=_number(content.get("epoch"), int),
        iteration=_number(content.get("iteration"), int),
        best_acc=_number(content.get("best_acc"), float),
        optimizer=_entry(content, "optimizer"),
        optimizer_names=parameter_names(state),
        options=options,
        run=run,
        checked=checked,
    )


def state_of(
    content: Any,  # of a file
    path: Path,
) -> dict[Any, Any]:  # name -> tensor
    "The weights in a file: one of its entries, or the whole of it."
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: holds no state_dict, but a {type(content).__name__}")
    state = content
    for name in ("state_dict", "model"):
        if isinstance(content.get(name), dict):
            state = content[name]
            break
    if not any(isinstance(v, Tensor) for v in state.values()):
        raise CheckpointError(f"{path}: holds no tensors by name; give a released checkpoint")
    return state


def without_module(
    state: Mapping[Any, Any],  # 'module.': saved inside DistributedDataParallel
) -> dict[str, Any]:
    names = [str(k) for k in state]
    if all(name.startswith("module.") for name in names):
        names = [name.removeprefix("module.") for name in names]
    return dict(zip(names, state.values()))


def _method_of(
    state: Mapping[str, Any],
) -> str:  # whose file it is, a key of LAYOUTS; '' if there is none
    if any(f"{n}.weight" in state for n in CLASSES["classifier"]):
        return "classifier"
    if not any(k.startswith("encoder_q.") for k in state):
        return ""
    if "memory_index_record" in state:
        return "cpr"
    if "queue_second" in state or any(k.startswith("sampler.") for k in state):
        return "coclr"
    return "ubernce" if "queue_label" in state else "infonce"


def _known_backbone(
    path: Path,
    state: Mapping[str, Any],
    method: str,  # a key of LAYOUTS, or ''
    prefix: str,  # of the tensors of the encoder
) -> str:
    "The backbone of a file; `CheckpointError` where method or backbone is none of ours."
    first = next(iter(state), "none")
    if not method:
        raise CheckpointError(
            f"{path}: has keys of no method that is known here (the first is {first})"
        )
    backbone = _backbone_of(k.removeprefix(prefix) for k in state if k.startswith(prefix))
    if not backbone:
        raise CheckpointError(
            f"{path}: is {method} with a backbone that is none of {', '.join(BACKBONES)} (the "
            f"first is {first})"
        )
    return backbone


def _backbone_of(
    names: Iterable[str],
) -> str:  # that has tensors of these names; '' if it is none of ours
    present = {*first_names(names)}

    def unlike(backbone):
        return len(present ^ {*BACKBONES[backbone].shapes().state_dict()})

    nearest = min(BACKBONES, key=unlike)
    return nearest if present and unlike(nearest) < len(present) / 2 else ""


def _entry(
    content: Mapping[Any, Any],  # of a file
    name: str,
) -> dict[Any, Any]:  # empty: none
    entry = content.get(name)
    if isinstance(entry, argparse.Namespace):
        return vars(entry)
    return entry if isinstance(entry, dict) else {}


def _number(
    x: Any,  # of a file
    kind: Callable[[Any], Any],
) -> Any:  # None: it is no number
    if isinstance(x, Tensor):
        return kind(x) if x.numel() == 1 else None
    return kind(x) if isinstance(x, (int, float, np.number)) else None


def _networks(
    report: KeyReport,
    method: str,
    backbone: str,
    prefix: str,  # of the tensors of the encoder
) -> tuple[dict[str, Any], dict[str, nn.Module]]:  # one for each of NETWORKS; heads
    networks: dict[str, Any] = dict.fromkeys(NETWORKS)
    heads: dict[str, nn.Module] = {}
    if prefix != "encoder_q.0.":
        networks["encoder"] = report.backbone(backbone, prefix)
        return networks, heads
    for name, (file, *_) in NETWORKS.items():
        if name == "sampler" and method not in ("coclr", "cpr"):
            continue
        net = report.backbone(backbone, f"{file}0.")
        networks[name] = net
        heads[name] = report.projection(net.dim, file)
    return networks, heads


# --- from their names to ours


def method_state(
    r: Released,
) -> dict[str, Tensor]:  # as `state_dict` of the method's class here
    "The state of a method out of a released file with every network of it."
    if r.classifier is not None:
        return r.classifier.state_dict()
    state: dict[str, Tensor] = {}
    for name, (_, encoder, head) in (ALONE if r.method == "iic" else NETWORKS).items():
        for prefix, module in ((encoder, getattr(r, name)), (head, r.heads.get(name))):
            if module is not None:
                state |= {prefix + k: v for k, v in module.state_dict().items()}
    for name, ours in QUEUES.items():
        if name in r.queues:
            state[ours] = r.queues[name].T.contiguous()
    for name, ours in BANKS.items():
        if name in r.queues:
            state[ours] = r.queues[name].clone()
    if "memory_l" in r.queues:
        state |= _bank_state(r.queues)
    elif "queue" in r.queues:
        state |= _queue_state(r)
    if not r.queues:
        return state
    return state | {k: v for k, v in r.run.get("rest", {}).items() if isinstance(v, Tensor)}


def _bank_state(queues: Mapping[str, Tensor]) -> dict[str, Tensor]:
    n = len(queues["memory_l"])
    # whose keys they are is unknown
    state = {f"bank.{k}": torch.full((n,), -1) for k in ("label", "source", "row")}
    state["bank.valid"] = torch.ones(n, dtype=torch.bool)
    return state


def _queue_state(r: Released) -> dict[str, Tensor]:
    queues = r.queues
    n = queues["queue"].shape[1]
    # whose keys they are is unknown
    state = {f"queue.{k}": torch.full((n,), -1) for k in ("label", "source", "row")}
    state["queue.pointer"] = queues["queue_ptr"].reshape(()).clone()
    if "queue_label" in queues:
        state["queue.filled"] = (queues["queue_label"] != -1).sum()
    else:
        # a file without flags of its keys does not say whether the random ones of the start are
        # gone
        state["queue.filled"] = torch.tensor(n)
    if r.method == "ubernce":
        state["queue.label"] = queues["queue_label"].clone()
    return state


def optimizer_by_name(
    optimizer: Mapping[str, Any],  # its `state_dict`
    names: list[str],  # of its parameters, in its order
    path: Path,  # of the file, for messages
) -> dict[str, tuple[dict, dict]]:
    "Of each parameter, by its name: the settings of its group, and its state."
    try:
        numbers = []
        settings = []
        for group in optimizer["param_groups"]:
            numbers += group["params"]
            settings += [{k: v for k, v in group.items() if k != "params"}] * len(group["params"])
        if len(numbers) != len(names):
            raise CheckpointError(
                f"{path}: its optimizer has {len(numbers)} parameters and its networks "
                f"{len(names)}; load it without the optimizer"
            )
        states = [dict(optimizer["state"].get(i, {})) for i in numbers]
        return dict(zip(names, zip(settings, states)))
    except (KeyError, TypeError, AttributeError) as e:
        raise CheckpointError(
            f"{path}: its optimizer is none of PyTorch ({e}); load it without"
        ) from e


def reshaped_state(
    state: Mapping[str, Any],
    shape: tuple[int, ...],
) -> dict[str, Any]:
    """The optimizer's state of one parameter for a parameter of that shape: kernels of 1 as
    matrices, or back.
    """
    n = torch.Size(shape).numel()
    reshaped: dict[str, Any] = {}
    for k, v in state.items():
        if isinstance(v, Tensor) and v.ndim and v.numel() == n:
            reshaped[k] = v.reshape(shape).clone()
        elif k == "step":
            reshaped[k] = torch.tensor(float(v))
        else:
            reshaped[k] = v
    return reshaped


# --- going on with a file


def recipe_within(
    r: Released,  # of a file that `save_released` made of a run
) -> Recipe:
    """The recipe that a file carries; RecipeError where there is none, or one that names code of
    others.
    """
    text = r.run.get("recipe")
    if not isinstance(text, str):
        raise RecipeError(f"{r.path}: carries no recipe; say which one with --recipe")
    try:
        data = json.loads(text)
        words = tree_leaves(data | {"about": ""})
    except (ValueError, TypeError) as e:
        raise RecipeError(
            f"{r.path}: the recipe in it is damaged; say which one with --recipe"
        ) from e
    foreign = [w for w in words if isinstance(w, str) and ":" in w]
    if foreign:
        raise RecipeError(
            f"{r.path}: its recipe names {foreign[0]!r}, code that is not of this library; say "
            "which recipe to use with --recipe"
        )
    return from_dict(data, str(r.path))


def continued_state(
    r: Released,
    run: TrainingState,  # as it begins
    experiment: Experiment,  # that goes on with the file
) -> dict[str, Any]:  # for `TrainingState.load`
    """Where the training of a file stands, in our names.

    `CheckpointError`; TrainError for another recipe.
    """
    _refuse_other_recipe(r, to_dict(experiment.recipe))
    state = method_state(r)
    # whose rows a bank of theirs has is unknown: it begins anew
    if not r.run:
        state = {k: v for k, v in state.items() if not k.startswith("bank.")}
    optimizer = run.opt.state_dict()
    if r.optimizer:
        known = optimizer_by_name(r.optimizer, r.optimizer_names, r.path)
        states = {state_name(n): s for n, (_, s) in known.items() if s}
        trained = [(n, p.shape) for n, p in run.method.named_parameters() if p.requires_grad]
        optimizer["state"] = {
            i: reshaped_state(states[n], shape)
            for i, (n, shape) in enumerate(trained)
            if n in states
        }
    return {
        "method": run.method.state_dict() | state,
        "opt": optimizer,
        "step": _step_of(r, experiment),
    }


def _refuse_other_recipe(
    r: Released,
    data: Mapping[str, Any],  # of the recipe, as `to_dict` gives it
) -> None:
    "TrainError where a recipe cannot go on with a file."
    # CPR is CoCLR but for the miner
    method = "classifier" if r.classifier else r.method.replace("cpr", "coclr")
    queue = r.queues["queue"].shape[1] if "queue" in r.queues else None
    for name, was, now in (
        ("method", method, data["method"]["name"]),
        ("backbone", r.backbone, data["backbone"]),
        ("view", r.view or data["view"], data["view"]),
        ("queue", queue, data["method"].get("queue")),
    ):
        if was != now:
            raise TrainError(
                f"{r.path}: has {name} {was}, and {data['name']} has {now}; choose a recipe that "
                "goes on with it, or begin from its weights with --init"
            )


def _step_of(
    r: Released,
    experiment: Experiment,
) -> int:
    "How many optimizer steps of a training a file stands for."
    try:
        same = bool(r.run) and not difference(recipe_within(r), experiment.recipe)
    except RecipeError:
        same = False  # damaged, or foreign: another one was named instead
    if same:
        step = r.run.get("step")
        if type(step) is not int or step < 0:
            raise TrainError(f"{r.path}: does not say how far its run was")
        return step
    if r.epoch is None:
        return 0
    # epochs count from 0, IIC's from 1
    epochs = r.epoch if r.method == "iic" else r.epoch + 1
    return epochs * batch_order(experiment.batches).per_epoch


def released_weights(
    path,  # of CoCLR, CPR or IIC
    # fields of the recipe that wants to begin with them; `view` of the network
    needs: Mapping[str, Any],
) -> dict[str, Tensor]:  # names below `encoder.` and `projection.`
    """Encoder and projection of a released file: of its sampler where that one has the view.

    `TrainError`.
    """
    r = load_released(path)
    view = needs["view"]

    def refuse(was, now) -> NoReturn:
        raise TrainError(
            f"{path}: is of {was}, and {needs['name']} needs {now}; give the file of {view} that "
            "fits, or change the recipe"
        )

    # a file that does not say which view it is of is taken to be of the one it is used for
    name = "encoder" if r.view in (None, view) or r.method == "iic" else "sampler"
    net = getattr(r, name)
    if net is None:
        refuse(f"view {r.view}", view)
    if r.backbone != needs["backbone"]:
        refuse(f"backbone {r.backbone}", needs["backbone"])
    state = {f"encoder.{k}": v for k, v in net.state_dict().items()}
    head = r.heads.get(name)
    if head is None or needs.get("head") != "projection":
        return state
    _, dim_in, hidden, dim = head.made_by  # type: ignore[misc]
    if (hidden, dim) != (needs["dim_hidden"] or dim_in, needs["dim"]):
        refuse(
            f"a projection {dim_in}-{hidden}-{dim}",
            f"dim_hidden={needs['dim_hidden']}, dim={needs['dim']}",
        )
    return state | {f"projection.{k}": v for k, v in head.state_dict().items()}
