"""Files of CoCLR, CPR and IIC: read without running them, checked key by key, written, and shared
as encoders.
"""

import argparse, codecs, importlib, json, pickle, re, warnings, zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from .experiment import Experiment
from ..config import Recipe
from ..fields import RecipeError
from ..methods.recipes import difference, from_dict, to_dict
from ..methods.supervised import Classifier
from ..nets.backbones import BACKBONES, in_memory
from ..nets.heads import make_head
from ..training.checkpoints import (
    CheckpointError,
    export_encoder,
    load,
    read_encoder,
    read_heads,
    save,
)
from ..files import write_whole
from ..training.loop import TrainError, TrainingState, batch_order
from ..training.run_folder import read_json

# --- a file of torch.save, from anybody

MAX_PICKLE = 2**26  # bytes; the pickle of the largest released file has 0.3 MB
# how NumPy pickles a scalar, under the names of NumPy 1 and 2
_scalar = np.float64(0).__reduce__()[0]
# what a file may name beside tensors and containers: the options of a command, and scalars of NumPy
HARMLESS: list[Any] = [
    argparse.Namespace,
    codecs.encode,
    np.dtype,
    (_scalar, "numpy.core.multiarray.scalar"),
    (_scalar, "numpy._core.multiarray.scalar"),
    *(type(np.dtype(t)) for t in ("?", "i4", "i8", "f4", "f8")),
]


def read_torch_file(
    path,  # written by `torch.save`, of any version since 0.4
    # returns: nested containers of tensors (on the CPU), numbers and words; were there checksums?
) -> tuple[Any, bool]:
    """Read a file of weights without running anything in it, in memory of its size.

    `CheckpointError`.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"{path}: there is no such file")
    try:
        size = path.stat().st_size
        with path.open("rb") as f:
            checked = f.read(2) == b"PK"
        reason = _archive_problem(path, size) if checked else ""
        if not reason:
            # warnings: pickle protocols of other versions, storages with types
            with torch.serialization.safe_globals(HARMLESS), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                content = torch.load(path, "cpu", weights_only=True)
            tensors = _tensors(content)
            # a tensor of stride 0 has more numbers than memory, until somebody copies it
            large = [tuple(x.shape) for x in tensors if x.nbytes > x.untyped_storage().nbytes()]
            memory = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors}
            reason = (
                f"a tensor {large[0]} reaches beyond its numbers"
                if large
                else f"it has more numbers than its {size:,} bytes can hold"
                if sum(memory.values()) > size
                else ""
            )
    except pickle.UnpicklingError as e:
        name = re.search(r"GLOBAL ([\w.]+)", str(e))
        reason = (
            f"it names {name[1][:80]}, which is" if name else "its pickle holds what is"
        ) + " no part of plain weights, so it could run code"
    except Exception as e:  # a damaged pickle can fail in any way
        words = [*str(e).splitlines(), type(e).__name__][0][:100]
        reason = f"it is damaged, or its end is missing ({words})"
    if not reason:
        return content, checked
    raise CheckpointError(
        f"{path}: was not loaded: {reason}; take the file from its authors again, or ask "
        "them for a plain state_dict"
    )


def _archive_problem(
    path: Path,
    size: int,
) -> str:  # why it is not to be loaded; '': it is
    with zipfile.ZipFile(path) as z:
        files = z.infolist()
        if any(i.compress_type != zipfile.ZIP_STORED or i.flag_bits & 1 for i in files):
            return "it is a compressed archive, and torch.save writes none"
        if sum(i.file_size for i in files) > size:
            return f"its contents are larger than its {size:,} bytes: a zip bomb"
        if any(i.filename.endswith("data.pkl") and i.file_size > MAX_PICKLE for i in files):
            return "its pickle is too long"
        broken = z.testzip()  # `torch.load` does not look at the checksums
        return f"damaged: the checksum of {broken} does not match" if broken else ""


def _tensors(
    x: Any,
) -> list[Tensor]:  # of nested containers, each once, however often it is named
    tensors, seen, left = list[Tensor](), set[int](), [x]
    while left:
        x = left.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if isinstance(x, Tensor):
            tensors.append(x)
        elif isinstance(x, argparse.Namespace):
            left.append(vars(x))
        elif isinstance(x, (dict, list, tuple)):
            left += x.values() if isinstance(x, dict) else x
    return tensors


# --- names in a file, and here

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
_PLACES = {
    layer: f"{block}.{i}" for block, layers in BLOCKS.items() for i, layer in enumerate(layers)
}


def both_names(
    name: str,  # 'Conv_2b.bn.weight'
) -> list[str]:  # itself and 'block2.1.bn.weight'
    "Under which names a tensor of a backbone stands in a released file: those of S3D have two."
    layer, _, rest = name.partition(".")
    return [name, f"{_PLACES[layer]}.{rest}"] if layer in _PLACES else [name]


def state_name(
    name: str,  # 'encoder_q.2.weight'
) -> str:  # 'pair.projection.layers.0.weight'
    "What the state of a method here calls the parameter of that first name in a released file."
    for file, net, head in NETWORKS.values():
        place, _, rest = name.removeprefix(file).partition(".")
        if name.startswith(file):
            return net + rest if place == "0" else f"{head}layers.{int(place) - 2}.{rest}"
    layer = re.match(r"(final_bn|final_fc\.\d|linear)\.", name)
    if layer:
        return f"{'norm' if layer[1] == 'final_bn' else 'fc'}.{name[layer.end() :]}"
    return f"encoder.{name.removeprefix('backbone.')}"


def _head_name(
    file: str,  # 'encoder_q.'
    name: str,  # 'layers.0.weight'
) -> str:  # 'encoder_q.2.weight'
    return f"{file}{int(name[7]) + 2}.{name[9:]}"


def _first_names(
    names,
) -> list[str]:  # 'block2.1.bn.weight' is the second name of 'Conv_2b.bn.weight'
    again = re.compile(r"((encoder_q|encoder_k|sampler)\.0\.|backbone\.|)block\d\.\d+\.")
    return [n for n in names if not again.match(n)]


def _parameters(
    state: Mapping[str, Any],
) -> list[str]:  # first names, in the order of the optimizer
    """The parameters in the state of a file, each once: no statistics of BatchNorm, no queue, no
    bank.
    """
    buffers = "running_mean", "running_var", "num_batches_tracked"
    # a linear probe has no optimizer for it (b10)
    frozen = ("backbone.",) * ("final_bn.weight" in state)
    return _first_names(
        k
        for k, v in state.items()
        if isinstance(v, Tensor)
        and "." in k
        and not k.endswith(buffers)
        and not k.startswith(frozen)
    )


def _below(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


# --- reading

# what can stand against using a file: part of a sentence, which names of tensors follow
PROBLEMS = LACKS, SHAPE, NOT_FINITE, DIFFERING = (
    "lacks",
    "wrong shape:",
    "NaN or infinity in",
    "two names of one tensor with different numbers:",
)


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

    # part of a sentence for each kind; unused keys are no problem
    def problems(self) -> list[str]:
        def some(names):
            return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")

        return [f"{kind} {some(names)}" for kind, names in self.wrong.items() if names]

    def __str__(self):
        counts = (
            f"{len(self.used)} keys used, {len(self.duplicated)} second names, "
            f"{len(self.unused)} unused"
        )
        unused = [f"unused: {', '.join(self.unused[:10])}"] if self.unused else []
        return "; ".join([counts, *unused, *self.problems()])

    def take(
        self,
        names: list[str],
        shape: tuple[int, ...] | None,
    ) -> Tensor | None:  # None: it cannot be used
        "A tensor of that shape (None: any) under one of its names."
        name, *others = [n for n in names if n in self.left] or [""]
        x, wrong = self.left.pop(name, None), self.wrong
        for n in others:
            y = self.left.pop(n)
            shared = x.data_ptr() == y.data_ptr() and x.shape == y.shape
            (self.duplicated if shared or torch.equal(x, y) else wrong[DIFFERING]).append(n)
        if x is None:
            wrong[LACKS].append(names[0])
        elif shape not in (None, x.shape):
            wrong[SHAPE].append(f"{name} ({tuple(x.shape)}, not {shape})")
        else:
            if x.is_floating_point() and not x.isfinite().all():
                wrong[NOT_FINITE].append(name)
            self.used.append(name)
            return x
        return None

    def fill(
        self,
        net: Any,
        names: Callable[[str], list[str]],
    ) -> nn.Module:  # as it was if the file is not whole
        "A network in eval mode with the tensors of the file, whose kernels of 1 are matrices here."
        state = dict[str, Tensor]()
        for k, v in net.state_dict().items():
            kernel = (1, 1, 1) if k.startswith("layers.") and v.ndim == 2 else ()
            x = self.take(names(k), (*v.shape, *kernel))
            if x is not None:
                state[k] = x.reshape(v.shape)
        if state.keys() == net.state_dict().keys():
            net.load_state_dict(state)
        return net.eval().requires_grad_(False)

    def backbone(
        self,
        name: str,
        prefix: str,
    ) -> nn.Module:  # as of `fill`
        return self.fill(
            in_memory(BACKBONES[name].shapes()), lambda k: [prefix + n for n in both_names(k)]
        )

    def projection(self, dim_in: int, prefix: str) -> nn.Module:
        """The head behind a backbone: two convolutions of kernel 1 in the file, two linear layers
        here.
        """
        widths = [self.left.get(f"{prefix}{i}.weight") for i in (2, 4)]
        hidden, dim = (
            n if w is None or w.ndim != 5 else len(w) for w, n in zip(widths, (dim_in, 128))
        )
        return self.fill(
            make_head("projection", dim_in, hidden, dim), lambda k: [_head_name(prefix, k)]
        )

    def classifier(
        self,
        encoder: nn.Module,
        method: str,
    ) -> Classifier | None:  # None: no layer of classes
        """Encoder and layer of a fine-tuned file; a linear probe has length 1 and BatchNorm between
        (b10).
        """
        layer = next((n for n in CLASSES.get(method, ()) if f"{n}.weight" in self.left), "")
        if not layer:
            return None
        classes, probe = (
            self.left[f"{layer}.weight"].shape[:1].numel(),
            "final_bn.weight" in self.left,
        )
        c = Classifier(encoder, classes, normalise=probe, batchnorm=probe)
        for net, name in ((c.norm, "final_bn"), (c.fc, layer)):
            self.fill(net, lambda k: [f"{name}.{k}"])
        return c.eval().requires_grad_(False)

    def buffers(self, names: tuple[str, ...]) -> dict[str, Tensor]:
        """Queues, whose K and dimension are those of the first; or banks, with a row for every
        training video.
        """
        q = self.left.get("queue")
        dim, K = q.shape if q is not None and q.ndim == 2 else (128, 2048)
        shapes: dict[str, Any] = (
            {n: (K,) for n in names} | {n: (dim, K) for n in QUEUES} | {"queue_ptr": (1,)}
        )
        bank = next((tuple(self.left[n].shape) for n in BANKS if n in self.left), None)
        shapes |= {n: bank for n in BANKS} | {"params": (5,)}
        # a file may have fewer banks, as it has fewer views
        made = {
            n: self.take([n], shapes[n])
            for n in names
            if n in self.left or n not in (*BANKS, "params")
        }
        at = made.get("queue_ptr")
        if at is not None and not 0 <= int(at) < K:
            self.wrong[SHAPE].append(f"queue_ptr ({int(at)}, K is {K})")
        return {k: v for k, v in made.items() if v is not None}


def view_of(
    path,
) -> str | None:  # 'rgb', 'flow' or 'residual'; None: unknown
    "Which view a released file is of, by its name."
    words = {*re.split(r"[-_.]", Path(path).name.lower())}
    names = dict(rgb="rgb", flow="flow", f="flow", res="residual", residual="residual")
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

    def __str__(self):
        queue = ", ".join(f"{k} {tuple(v.shape)}" for k, v in self.queues.items())
        unsure = (
            ""
            if self.checked
            else "; an old format without checksums: a flipped bit cannot be seen"
        )
        return (
            f"{self.method}, {self.view or 'view unknown'}, {self.backbone}, epoch {self.epoch}"
            f"{', with optimizer' if self.optimizer else ''}; {queue or 'no queues'}; "
            f"{self.report}{unsure}"
        )

    def ask_view(self) -> str:  # 'rgb', 'flow' or 'residual'
        "The view, or a CheckpointError that asks for it."
        if self.view:
            return self.view
        raise CheckpointError(
            f"{self.path}: does not say which view it is of; say it with --view rgb, "
            "flow or residual (view= in Python)"
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
        return dict(zip(("length", "size"), BACKBONES[self.backbone].clip))


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


def _backbone_of(
    names: set[str],
) -> str:  # that has tensors of these names; '' if it is none of ours
    present = {*_first_names(names)}

    def apart(name):
        return len(present ^ {*BACKBONES[name].shapes().state_dict()})

    near = min(BACKBONES, key=apart)
    return near if present and apart(near) < len(present) / 2 else ""


def _strip(
    state: Mapping[Any, Any],  # 'module.': saved inside DistributedDataParallel
) -> dict[str, Any]:
    inside = all(str(k).startswith("module.") for k in state)
    return {str(k).removeprefix("module.") if inside else str(k): v for k, v in state.items()}


def load_released(
    path,  # a file of CoCLR, CPR or IIC, or one that `save_released` wrote
    view: str | None = None,  # 'rgb', 'flow' or 'residual'; None: by the file's name or options
) -> Released:  # on the CPU
    "Read a released file without running it; raises `CheckpointError` (released code b1, b11)."
    path = Path(path)
    outer, checked = read_torch_file(path)
    if not isinstance(outer, dict):
        raise CheckpointError(f"{path}: holds no state_dict, but a {type(outer).__name__}")
    inner = next(
        (outer[k] for k in ("state_dict", "model") if isinstance(outer.get(k), dict)), outer
    )
    if not any(isinstance(v, Tensor) for v in inner.values()):
        raise CheckpointError(f"{path}: holds no tensors by name; give a released checkpoint")
    state = _strip(inner)
    method = "iic" if inner is outer.get("model") else _method_of(state)
    prefix = {"iic": "", "classifier": "backbone."}.get(method, "encoder_q.0.")
    backbone = (
        _backbone_of({k.removeprefix(prefix) for k in state if k.startswith(prefix)})
        if method
        else ""
    )
    if not backbone:
        reason = (
            f"is {method} with a backbone that is none of {', '.join(BACKBONES)}"
            if method
            else "has keys of no method that is known here"
        )
        raise CheckpointError(f"{path}: {reason} (the first is {next(iter(state), 'none')})")
    entries = (outer.get(k) for k in ("contrast", "opt", "optimizer", "vssl_nb"))
    entries = (vars(x) if isinstance(x, argparse.Namespace) else x for x in entries)
    banks, options, opt, run = (x if isinstance(x, dict) else {} for x in entries)
    every = state | _strip(banks if method == "iic" else {})
    tensors = {k: v for k, v in every.items() if isinstance(v, Tensor)}
    keys = KeyReport(tensors, [k for k in every if k not in tensors])
    networks, heads = dict[str, Any](dict.fromkeys(NETWORKS)), dict[str, nn.Module]()
    if prefix != "encoder_q.0.":
        networks["encoder"] = keys.backbone(backbone, prefix)
    else:
        dim = cast(Any, BACKBONES[backbone].shapes()).dim
        for part, (file, *_) in [*NETWORKS.items()][: 3 if method in ("coclr", "cpr") else 2]:
            networks[part] = keys.backbone(backbone, f"{file}0.")
            heads[part] = keys.projection(dim, file)
    classifier, queues = keys.classifier(networks["encoder"], method), keys.buffers(LAYOUTS[method])
    keys.unused += [*keys.left]
    if outer is not inner:
        keys.unused += [k for k in map(str, outer) if k not in ENTRIES]
    if keys.problems():
        raise CheckpointError(
            f"{path}: {'; '.join(keys.problems())}; take the file from its authors again"
        )

    def number(k, kind):
        x = outer.get(k)
        plain = isinstance(x, (int, float, np.number)) or isinstance(x, Tensor) and x.numel() == 1
        return kind(x) if plain else None

    # view 1 of IIC's one network is RGB (b11)
    view = view or run.get("view") or ("rgb" if options.get("modality") else view_of(path))
    return Released(
        path,
        method,
        view,
        backbone,
        **networks,
        heads=heads,
        classifier=classifier,
        queues=queues,
        report=keys,
        epoch=number("epoch", int),
        iteration=number("iteration", int),
        best_acc=number("best_acc", float),
        optimizer=opt,
        optimizer_names=_parameters(state),
        options=options,
        run=run,
        checked=checked,
    )


# --- from their names to ours, and back


def method_state(
    r: Released,
) -> dict[str, Tensor]:  # as `state_dict` of the method's class here
    "The state of a method out of a released file with every network of it."
    state, q = dict[str, Tensor](), r.queues
    if r.classifier is not None:
        return r.classifier.state_dict()
    for part, (_, net, head) in (ALONE if r.method == "iic" else NETWORKS).items():
        for prefix, module in ((net, getattr(r, part)), (head, r.heads.get(part))):
            if module is not None:
                state |= {prefix + k: v for k, v in module.state_dict().items()}
    state |= {k: q[n].T.contiguous() for n, k in QUEUES.items() if n in q}
    state |= {k: q[n].clone() for n, k in BANKS.items() if n in q}
    at, n = (
        ("bank", len(q["memory_l"]))
        if "memory_l" in q
        else ("queue", q["queue"].shape[1] if q else 0)
    )
    if not n:
        return state
    # whose keys they are is unknown
    state |= {f"{at}.{k}": torch.full((n,), -1) for k in ("label", "source", "row")}
    if at == "bank":
        state["bank.valid"] = torch.ones(n, dtype=torch.bool)
    else:
        # a file without flags of its keys does not say whether the random ones of the start are
        # gone
        filled = (q["queue_label"] != -1).sum() if "queue_label" in q else torch.tensor(n)
        state |= {"queue.pointer": q["queue_ptr"].reshape(()).clone(), "queue.filled": filled}
        if r.method == "ubernce":
            state["queue.label"] = q["queue_label"].clone()
    return state | {k: v for k, v in r.run.get("rest", {}).items() if isinstance(v, Tensor)}


def _optimizer_by_name(
    opt: Mapping[str, Any], names: list[str], path
) -> dict[str, tuple[dict, dict]]:
    """Of each parameter, by its name: settings of its group, its state in the `state_dict` of an
    optimizer.
    """
    try:
        flat = [
            (i, {k: v for k, v in g.items() if k != "params"})
            for g in opt["param_groups"]
            for i in g["params"]
        ]
        if len(flat) != len(names):
            raise CheckpointError(
                f"{path}: its optimizer has {len(flat)} parameters and its networks "
                f"{len(names)}; load it without the optimizer"
            )
        return {n: (group, dict(opt["state"].get(i, {}))) for n, (i, group) in zip(names, flat)}
    except (KeyError, TypeError, AttributeError) as e:
        raise CheckpointError(
            f"{path}: its optimizer is none of PyTorch ({e}); load it without"
        ) from e


def _shaped(state: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
    """The optimizer's state of one parameter for a parameter of that shape: kernels of 1 as
    matrices, or back.
    """
    n = torch.Size(shape).numel()
    return {
        k: v.reshape(shape).clone()
        if isinstance(v, Tensor) and v.ndim and v.numel() == n
        else torch.tensor(float(v))
        if k == "step"
        else v
        for k, v in state.items()
    }


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
        words = tree_leaves((data := json.loads(text)) | {"about": ""})
    except (ValueError, TypeError) as e:
        raise RecipeError(
            f"{r.path}: the recipe in it is damaged; say which one with --recipe"
        ) from e
    if foreign := next((w for w in words if isinstance(w, str) and ":" in w), None):
        raise RecipeError(
            f"{r.path}: its recipe names {foreign!r}, code that is not of this library; say "
            "which recipe to use with --recipe"
        )
    return from_dict(data, str(r.path))


def continued_state(
    r: Released,
    run: TrainingState,  # as it begins
    experiment: Experiment,
) -> dict[str, Any]:  # for `TrainingState.load`
    """Where the training of a file stands, in our names.

    `CheckpointError`; TrainError for another recipe.
    """
    recipe, per_epoch = experiment.recipe, batch_order(experiment.batches).per_epoch
    data = to_dict(recipe)
    queue = r.queues["queue"].shape[1] if "queue" in r.queues else None
    # but the miner
    method = "classifier" if r.classifier else r.method.replace("cpr", "coclr")
    for name, was, now in (
        ("method", method, data["method"]["name"]),
        ("backbone", r.backbone, data["backbone"]),
        ("view", r.view or data["view"], data["view"]),
        ("queue", queue, data["method"].get("queue")),
    ):
        if was != now:
            raise TrainError(
                f"{r.path}: has {name} {was}, and {data['name']} has {now}; choose a recipe "
                "that goes on with it, or begin from its weights with --init"
            )
    state, opt = method_state(r), run.opt.state_dict()
    # whose rows a bank of theirs has is unknown: it begins anew
    if not r.run:
        state = {k: v for k, v in state.items() if not k.startswith("bank.")}
    if r.optimizer:
        known = _optimizer_by_name(r.optimizer, r.optimizer_names, r.path)
        states = {state_name(n): s for n, (_, s) in known.items() if s}
        learn = [(n, p.shape) for n, p in run.method.named_parameters() if p.requires_grad]
        opt["state"] = {
            i: _shaped(states[n], shape) for i, (n, shape) in enumerate(learn) if n in states
        }
    try:
        same = bool(r.run) and not difference(recipe_within(r), recipe)
    except RecipeError:
        same = False  # damaged, or foreign: another one was named instead
    if same:
        step = r.run.get("step")
        if type(step) is not int or step < 0:
            raise TrainError(f"{r.path}: does not say how far its run was")
    # epochs count from 0, IIC's from 1
    else:
        step = ((r.epoch or 0) + (r.method != "iic" and r.epoch is not None)) * per_epoch
    return {"method": run.method.state_dict() | state, "opt": opt, "step": step}


def released_weights(
    path,  # of CoCLR, CPR or IIC
    # fields of the recipe that wants to begin with them; `view` of the network
    needs: Mapping[str, Any],
) -> dict[str, Tensor]:  # names below `encoder.` and `projection.`
    """Encoder and projection of a released file: of its sampler where that one has the view.

    `TrainError`.
    """
    r, view = load_released(path), needs["view"]
    # a file that does not say which view it is of is taken to be of the one it is used for
    part = "encoder" if r.view in (None, view) or r.method == "iic" else "sampler"
    net, head = getattr(r, part), r.heads.get(part)

    def refuse(was, now):
        raise TrainError(
            f"{path}: is of {was}, and {needs['name']} needs {now}; give "
            f"the file of {view} that fits, or change the recipe"
        )

    if net is None:
        refuse(f"view {r.view}", view)
    if r.backbone != needs["backbone"]:
        refuse(f"backbone {r.backbone}", needs["backbone"])
    state = {f"encoder.{k}": v for k, v in net.state_dict().items()}
    if head is None or needs.get("head") != "projection":
        return state
    _, dim_in, hidden, dim = head.made_by  # type: ignore[misc]
    if (hidden, dim) != (needs["dim_hidden"] or dim_in, needs["dim"]):
        refuse(
            f"a projection {dim_in}-{hidden}-{dim}",
            f"dim_hidden={needs['dim_hidden']}, dim={needs['dim']}",
        )
    return state | {f"projection.{k}": v for k, v in head.state_dict().items()}


# --- writing


def _registered(names: list[str], backbone: str) -> list[str]:
    "Names of a backbone's tensors in the order in which the released class registers them."
    within, first = {"conv1": 0, "conv2": 1, "bn1": 2, "bn2": 3}, dict[str, int]()

    def place(item):
        i, name = item
        parts = name.split(".")
        if backbone.startswith("s3d"):
            parent, rank = ".".join(parts[:-2]), within.get(parts[-2], 0)
        else:
            parent, rank = ".".join(parts[: 1 + ("block1" in parts)]), int("downsample" not in name)
        return first.setdefault(parent, i), rank, i

    return [name for _, name in sorted(enumerate(names), key=place)]


def _doubled(
    state: Mapping[str, Tensor], prefix: str, backbone: str
) -> Iterator[tuple[str, Tensor]]:
    "Every tensor of a backbone, under both of its names."
    names = _registered([*state], backbone)
    if not backbone.startswith("s3d"):
        yield from ((prefix + n, state[n]) for n in names)
    for layers in BLOCKS.values() if backbone.startswith("s3d") else ():
        block = [n for layer in layers for n in names if n.startswith(f"{layer}.")]
        for i in (0, 1):
            yield from ((prefix + both_names(n)[i], state[n]) for n in block)


def _file_state(state: Mapping[str, Tensor], method: str, backbone: str) -> dict[str, Tensor]:
    "The networks of a method here, under the names of a released file; method: a key of LAYOUTS."
    there = dict[str, Tensor]()
    if method in CLASSES:
        there |= _doubled(
            _below(state, "encoder."), "backbone." * (method == "classifier"), backbone
        )
        # registered before the layer
        there |= {f"final_bn.{k}": v for k, v in _below(state, "norm.").items()}
        layer = CLASSES[method][0 if "norm.weight" in state else -1]
        return there | {f"{layer}.{k}": v for k, v in _below(state, "fc.").items()}
    for file, net, head in NETWORKS.values():
        there |= _doubled(_below(state, net), f"{file}0.", backbone)
        there |= {
            _head_name(file, k): v[..., None, None, None] if v.ndim == 2 else v
            for k, v in _below(state, head).items()
        }
    return there


def _file_buffers(
    state: Mapping[str, Tensor], method: str, settings: Mapping[str, Any]
) -> dict[str, Tensor]:
    "Queues or banks of a run, in the released layout."
    if method == "iic":  # b11
        params = [settings["negatives"], settings["temperature"], -1, -1, settings["bank_momentum"]]
        return {"params": torch.tensor(params)} | {
            n: state[k] for n, k in BANKS.items() if k in state
        }
    K, names = len(state["queue.keys"]), LAYOUTS[method]
    made = {n: state[k].T.contiguous() for n, k in QUEUES.items() if n in names}
    # with two streams the labels are flags: has a key come? (b4)
    flags = torch.where(torch.arange(K) < state["queue.filled"], 1, -1)
    made |= {
        "queue_ptr": state["queue.pointer"].reshape(1),
        "queue_vname": state["queue.source"],
        "queue_label": state["queue.label"] if method == "ubernce" else flags,
        "memory_index_record": torch.arange(K),
    }
    return {n: made[n] for n in names}


def _from_run(
    folder: Path,
    optimizer: bool,  # as of `save_released`
) -> tuple[str, str, dict[str, Tensor], dict[str, Tensor], dict[str, Any], dict[str, Any]]:
    "Of a run: layout, backbone, state, queues, entries of the file, optimizer by the file's names."
    try:
        data, card = (read_json(folder / name, "a run") for name in ("recipe.json", "card.json"))
    except TrainError as e:
        raise CheckpointError(
            f"{folder}: is no run folder ({e}); give one, or what load_released returned"
        ) from e
    data, last = to_dict(from_dict(data, str(folder / "recipe.json"))), load(folder / "last.pt")
    recipe = json.dumps(data)
    per_epoch, tuned = (
        max(card.get("schedule", {}).get("steps_per_epoch", 1), 1),
        card.get("training"),
    )
    if tuned:  # a fine-tuning; the recipe beside it is that of its encoder
        layer = tuned["method"] | {
            "name": "iic" if data["method"]["name"] == "iic" else "classifier"
        }
        data, best, last = (
            data | {"learning": tuned["learning"], "method": layer},
            last["best"],
            last["run"],
        )
        if best and not optimizer:
            last = {"method": best["weights"], "step": int(best["epoch"]) * per_epoch}
    state, step, second = last["method"], int(last["step"]), data["method"].get("second_view", "")
    name, backbone = data["method"]["name"], data["backbone"]
    head = {f"{NETWORKS['encoder'][2]}layers.{i}.bias" for i in (0, 2)}
    reasons = {
        f"method {name!r}": name not in LAYOUTS,
        f"backbone {backbone!r}": backbone not in BACKBONES,
        "a head": name == "iic" and (_below(state, "projection.") or "norm.weight" in state),
        "no queue": name not in CLASSES and "queue.keys" not in state,
        "another head": layer["mixture"] or layer["normalise"] != layer["batchnorm"]
        if tuned
        else name != "iic" and not head <= state.keys(),
    }
    for reason in [text for text, holds in reasons.items() if holds]:
        raise CheckpointError(
            f"{folder}: has {reason}, for which there is no released layout; its "
            f"{'classifier' if tuned else 'encoder'}.safetensors can be given away"
        )
    method = "cpr" if data["method"].get("miner") == "cascade" else name
    file = _file_state(state, method, backbone)
    names, written = (
        {state_name(n): n for n in _parameters(file)},
        {*map(state_name, _first_names(file))},
    )
    written |= {*QUEUES.values(), *BANKS.values()}
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
    learn = [k for k in state if k in names and not names[k].startswith(("encoder_k.", "sampler."))]
    decay = data["learning"]["decay_bias"]  # in the order of `loop.parameter_groups`
    learn.sort(key=lambda k: (k.startswith("encoder."), not decay and state[k].ndim < 2))
    known = _optimizer_by_name(last["opt"], learn, folder / "last.pt") if optimizer else {}
    buffers = {} if tuned else _file_buffers(state, method, data["method"])
    return method, backbone, state, buffers, entries, {names[n]: s for n, s in known.items()}


def save_released(
    run,  # a run folder, or what `load_released` returned
    path,  # e.g. `CoCLR-ucf101-rgb-128-s3d-ep182.tar`
    # its state, too; False writes the best epoch of a fine-tuning, and not its last
    optimizer: bool = True,
) -> Path:  # the path
    "Write a file that the released loaders take (released code b1, b11); raises `CheckpointError`."
    if isinstance(run, Released):
        method, backbone, ours, buffers = run.method, run.backbone, method_state(run), run.queues
        entries: dict[str, Any] = {
            "epoch": run.epoch or 0,
            "best_acc": run.best_acc or 0.0,
            "iteration": run.iteration or 0,
            "opt": run.options,
        } | ({"vssl_nb": run.run} if run.run else {})
        wanted = optimizer and run.optimizer
        known = _optimizer_by_name(run.optimizer, run.optimizer_names, run.path) if wanted else {}
    else:
        method, backbone, ours, buffers, entries, known = _from_run(Path(run), optimizer)
    state = _file_state(ours, method, backbone)
    if known:
        default, names = next(iter(known.values()))[0], _parameters(state)
        each = [known.get(n, (default, {})) for n in names]  # frozen ones have no state
        groups = [group | {"params": [i]} for i, (group, _) in enumerate(each)]
        # the others: one a parameter
        if method == "iic":
            groups = [default | {"params": [*range(len(each))]}]
        entries["optimizer"] = {
            "param_groups": groups,
            "state": {
                i: _shaped(s, state[n].shape) for i, (n, (_, s)) in enumerate(zip(names, each)) if s
            },
        }
    left_out = ("best_acc", "iteration") if method == "iic" else ("opt",)
    entries = {k: v for k, v in entries.items() if k not in left_out}
    if method == "iic":
        entries |= {"model": OrderedDict(state), "contrast": OrderedDict(buffers)}
    else:
        entries["state_dict"] = OrderedDict(buffers | state)
    return save(path, entries)


# --- an encoder to share: a folder with the weights, what they are, and a page for people

RELEASED_FILES = (".tar", ".pth", ".pt")
WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"


def save_pretrained(
    folder,  # made, or written over; `hf upload OWNER/NAME FOLDER` brings it to the Hub
    encoder: nn.Module,  # from `backbones.create`, or of a run
    about: dict[str, Any],  # at least `backbone`; plain values only
    heads: dict[str, nn.Module] | None = None,  # from `heads.make_head`
) -> Path:  # the folder
    "Write an encoder as a folder: weights, config.json and a card for the Hub. `CheckpointError`."
    folder = Path(folder)
    about = read_encoder(export_encoder(folder / WEIGHTS, encoder, about, heads))[1]
    rows = [
        f"| {k} | {v} |"
        for k, v in about.items()
        if v is not None and not isinstance(v, (dict, list))
    ]
    card = (
        Path(__file__)
        .with_name("card.md")
        .read_text(encoding="utf-8")
        .format(
            rows="\n".join(rows),
            title=about.get("recipe") or about.get("method") or about["backbone"],
        )
    )
    for name, text in ((CONFIG, json.dumps(about, indent=1) + "\n"), (CARD, card)):
        write_whole(folder / name, lambda f: f.write(text.encode()))
    return folder


def fetch_folder(
    name,  # a folder, or 'owner/name' on the Hub
    files: list[str],  # patterns of the files to fetch
) -> Path:
    "A folder as it is, or what the Hub has under that name. `CheckpointError`."
    if Path(name).is_dir():
        return Path(name)
    if Path(name).is_file() or str(name).count("/") != 1 or str(name)[0] in "./~":
        raise CheckpointError(
            f"{name}: is neither a folder nor a name on the Hub, owner/name; give one"
        )
    # optional: all but the Hub works without it
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError as e:
        raise CheckpointError(
            f"{name}: huggingface_hub is not installed; run pip install huggingface_hub, "
            "or give the folder of an encoder"
        ) from e
    try:
        return Path(hub.snapshot_download(str(name), allow_patterns=files))
    except Exception as e:  # its own errors: no such name, no network, not allowed
        raise CheckpointError(
            f"{name}: there is no such folder here, and it cannot be had from the Hub "
            f"({type(e).__name__}); check the name and the connection"
        ) from e


def from_pretrained(
    name,  # a folder, or 'owner/name' on the Hub, whose files are fetched
    outside: bool = False,  # may it name a backbone of somebody's own? that code is imported
    # returns: (B, 3, T, H, W) -> (B, D), in eval mode, without gradient; with `.about` and
    # `.kept_heads`
) -> nn.Module:
    "An encoder that somebody shares. `CheckpointError`."
    folder = fetch_folder(name, [WEIGHTS, CONFIG, CARD])
    if not (folder / WEIGHTS).is_file():
        raise CheckpointError(
            f"{folder}: has no {WEIGHTS}, so it is not the folder of an encoder; "
            "`vssl-nb convert RUN FOLDER` makes one"
        )
    encoder: Any
    encoder, about = read_encoder(folder / WEIGHTS, outside)
    encoder.about, encoder.kept_heads = about, read_heads(folder / WEIGHTS, outside)
    return encoder


def convert(
    source,  # a run folder or a released file
    # FILE.tar, .pth or .pt: released; FILE.safetensors: an encoder; else a folder of an encoder
    out,
    view: str | None = None,  # of a released file; None: by its name or its options
    optimizer: bool = True,  # write its state as well
) -> str:  # what a released file holds; '' for a run
    "Turn a run or a released file into a released file or an encoder to share. `CheckpointError`."
    source, out = Path(source), Path(out)
    if source.resolve() == out.resolve():
        raise CheckpointError(f"{out}: is what is to be converted; give another name")
    r = None if source.is_dir() else load_released(source, view)
    if out.suffix in RELEASED_FILES:
        save_released(r or source, out, optimizer)
    else:
        write = export_encoder if out.suffix == ".safetensors" else save_pretrained
        if r is None:
            (net, about), heads = read_encoder(f := source / "encoder.safetensors"), read_heads(f)
        else:
            net, about = (
                r.encoder,
                {
                    "backbone": r.backbone,
                    "view": r.ask_view(),
                    **r.clip(),
                    "stride": 1,
                    "epoch": r.epoch,
                    "method": r.method,
                    **r.view_options(),
                },
            )
            heads = {"projection": r.heads["encoder"]} if "encoder" in r.heads else {}
        # by which it is known as converted
        write(out, net, about | {"source": source.name}, heads)
    return "" if r is None else str(r)
