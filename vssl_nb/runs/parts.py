"""A recipe becomes objects, only here: all trainings take clips, views, method and optimizer from
`build`.
"""

import copy, inspect, math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from ..data.dataset import TrainClips, VideoCache
from ..data.augmentation import find_augmentation
from ..data.sampling import random_clips
from ..data.manifest import Manifest
from ..data.tvl1 import tvl1_live
from ..data.views import Views, raw_inputs
from ..config import Recipe, TrainingVideos
from ..methods.recipes import refuse_unfit
from ..names import error_in_words, load_object
from ..nets.backbones import create
from ..nets.heads import GaussianHead
from ..training.loop import (
    ResumableBatchSampler,
    TrainError,
    loader,
    make_optimizer,
    steps,
    warmup_cosine,
)
from ..training.machine import Machine, pick_device


class BlankBatches:
    """Batches of blank clips, of the size and with the augmentations of a training; `fit` goes
    through them.
    """

    def __init__(
        self,
        recipe: Recipe,
        videos: int,  # videos to train on
        classes: int,  # classes of their labels
    ):
        learning = recipe.learning
        self.load, self.classes = raw_inputs(recipe.views, flow_is_live(recipe)), classes
        # ending of the names of a group -> its augmentation, and V, T and side of its clips
        self.groups = {
            f"_{name}" if name else "": (
                training_draw(group),
                group.sampling.clips,
                group.sampling.length,
                group.size,
            )
            for name, group in recipe.groups.items()
        }
        self.batch_sampler = ResumableBatchSampler(
            videos, learning.batch, learning.epochs, recipe.seed, learning.accumulate
        )
        self.dataset, self.pin = self, lambda x: x
        # one byte, shown as often as it takes; exchange this for other frames
        self.frames: Callable[[tuple[int, ...]], Tensor] = torch.zeros(1, dtype=torch.uint8).expand

    def note(self, bad) -> None:
        pass

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(self.batch, self.batch_sampler)

    def batch(
        self,
        keys: Sequence[tuple[int, int]],  # epoch and position of videos, as sampled
    ) -> dict[str, Any]:
        "One batch as a loader gives it, as if it lay in pinned memory."
        ids = torch.tensor([position for _, position in keys])
        B, few = len(ids), min(len(ids), 128)  # more videos are augmented as these are
        rng, tensors = np.random.default_rng(ids[:few].tolist()), {"label": ids % self.classes}
        tensors |= {k: ids.clone() for k in ("source", "row", "index")}
        augments = {}
        for name, (draw, V, T, S) in self.groups.items():
            shapes = {
                "clips": (B, V, T, S, S, 3),
                "flow": (B, V, T, S, S, 3),
                "pair": (B, V, 2, T, S, S),
            }
            tensors |= {s + name: self.frames(shapes[s]) for s in self.load}
            drawn = default_collate([draw(rng, V, T, *FRAME) for _ in range(few)])
            augments[f"augment{name}"] = {k: x[torch.arange(B) % few] for k, x in drawn.items()}
        return {k: self.pin(x) for k, x in tensors.items()} | augments | {"bad": []}


FRAME = (240, 320)  # height and width of the videos that blank clips are cut from, pixels


def method_numbers(
    recipe: Recipe,
) -> dict[str, tuple[int, int]]:  # field -> value and default
    "The whole numbers among the settings of a method."
    method = recipe.method
    return {
        f.name: (v, f.default if type(f.default) is int else 0)
        for f in fields(method)
        if type(v := getattr(method, f.name)) is int
    }


@dataclass
class Parts:
    "The objects of one training."

    recipe: Recipe
    clips: TrainClips | None  # the training samples; None: of videos that need not exist
    # DataLoader of the whole training, in the order that the recipe's seed gives; or BlankBatches
    batches: Any
    views: Views  # raw batch on the device -> float views
    method: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: Callable[[float], float]  # time in epochs -> factor of the learning rate
    clip_norm: float  # longest gradient; 0: any


def build(
    recipe: Recipe,
    videos: Manifest | int,  # a number of training videos need not exist: blank clips
    # batches for a GPU lie in page-locked memory; where clips are blank, the method is moved there
    device: torch.device = torch.device("cpu"),
    machine: Machine = Machine(),  # workers and cache are read here
    # argument of the method -> network; None: new ones
    networks: Mapping[str, nn.Module] | None = None,
    # of the manifest to train on; None: the training part of the recipe's split
    rows: Sequence[int] | None = None,
    classes: int = 0,  # of a classifier, where the videos need not exist
    # gives a context for making a method of videos that need not exist
    within: Callable[[], Any] = nullcontext,
) -> Parts:
    """All objects of a training.

    RecipeError, ManifestError or TrainError where recipe and videos do not fit.
    """
    clips, learning = None, recipe.learning
    if isinstance(videos, int):
        batches: Any = BlankBatches(recipe, videos, classes or 101)
        takes = inspect.signature(
            load_object(recipe.method.method, f"the method {recipe.method.name}")
        )
        with within():
            new: dict[str, Any] = {
                k: create(recipe.backbone, seed=recipe.seed) for k in recipe.networks
            }
            # else of a run
            if "gaussian" in takes.parameters:
                new["gaussian"] = GaussianHead(new["encoder"].dim)
            method = build_method(recipe, videos, videos, classes or 101, networks or new)
        if device.type != "cpu":
            method.to(device)
    else:
        clips = training_clips(recipe, videos, machine.cache, rows)
        batches = loader(
            clips,
            learning.batch,
            learning.epochs,
            recipe.seed,
            learning.accumulate,
            machine.workers,
            pin=device.type == "cuda",
        )
        refuse_unfit(recipe, training_videos(recipe, videos, rows))
        method = build_method(recipe, len(clips), len(videos), len(videos.labels), networks)
    optimizer = make_optimizer(
        method,
        learning.optimizer,
        learning.lr,
        learning.weight_decay,
        learning.sgd_momentum,
        learning.decay_bias,
    )
    return Parts(
        recipe,
        clips,
        batches,
        training_views(recipe),
        method,
        optimizer,
        lr_schedule(recipe),
        learning.clip_norm,
    )


def training_clips(
    recipe: Recipe,
    manifest: Manifest,
    # MiB of decoded videos that each process may keep, or those kept already
    cache: int | VideoCache = 0,
    rows: Sequence[int] | None = None,  # as of `build`
) -> TrainClips:  # of the training part of the recipe's split
    "The training clips of a recipe; ManifestError where there are none, or none with its flow."

    def part(
        group,
    ):  # where frames lie, how pixels change, side in pixels
        sampling = {k: v for k, v in asdict(group.sampling).items() if k != "same"}
        return partial(random_clips, **sampling), training_draw(group), group.size

    if rows is None:
        rows = manifest.select("train", recipe.split)
    groups = {name: part(group) for name, group in recipe.groups.items()}
    sample, draw, size = groups.pop("")
    return TrainClips(
        manifest,
        rows,
        sample,
        draw,
        size,
        recipe.seed,
        cache=cache,
        same=recipe.sampling.same,
        load=raw_inputs(recipe.views, flow_is_live(recipe)),
        groups=groups,
    )


def training_draw(
    recipe: Recipe,
) -> Callable[..., dict[str, Tensor]]:  # (rng, V, T, height, width) -> parameters
    """The augmentation parameters of a sample; an augmentation of one's own need not know of still
    images.
    """
    pixels = asdict(recipe.augment)
    if recipe.augment.appearance == "none":
        for name in ("appearance", "appearance_clips", "windows", "window_frames", "strength"):
            del pixels[name]
    change = find_augmentation(pixels.pop("augmentation"))
    return partial(change.draw, size=recipe.size, **pixels)


def training_videos(
    recipe: Recipe, manifest: Manifest, rows: Sequence[int] | None = None
) -> TrainingVideos:
    "What a method may know about its training videos before it begins; rows as of `build`."
    if rows is None:
        rows = manifest.select("train", recipe.split)
    return TrainingVideos(
        str(manifest.path),
        tuple(manifest.rows[i].video for i in rows),
        tuple(map(manifest.label_id, rows)),
        tuple(map(manifest.source_id, rows)),
    )


def flow_is_live(recipe: Recipe) -> bool:
    "Is one of its views solved for on the device?"
    return recipe.flow == "live" and "flow" in raw_inputs(recipe.views)


def view_options(
    recipe: Recipe,
) -> dict[str, Any]:  # arguments of `Views`, besides its names
    "How the recipe makes its views."
    options = {
        k: getattr(recipe, k) for k in ("residual", "residual_scale", "flow_flip", "flow_colour")
    }
    if recipe.normalisation == "none":
        options |= {"mean": (0.0,) * 3, "std": (1.0,) * 3}
    return options | ({"live": tvl1_live} if flow_is_live(recipe) else {})


def training_views(
    recipe: Recipe,
    **options,  # options of `Views`, instead of the recipe's
) -> Views:
    "The views that the loop makes of a raw batch; in measuring nothing is augmented."
    return Views(
        recipe.views, **view_options(recipe) | options, augmentation=recipe.augment.augmentation
    )


def training_device(
    recipe: Recipe,
    device: str,  # 'auto', 'cpu' or 'cuda'
    local: int = 0,  # number of this process on this machine
) -> torch.device:
    """Where to compute; TrainError for live flow without a GPU, which would take minutes for each
    step.
    """
    place = pick_device(device, local)
    if flow_is_live(recipe) and place.type == "cpu":
        raise TrainError(
            "flow='live' needs a GPU; store the flow once with `vssl-nb flow` and use --flow stored"
        )
    return place


class Plateau:
    "Falls to a tenth after `patience` losses that were not lower (as torch's ReduceLROnPlateau)."

    def __init__(self, patience: int, floor: float):
        self.patience, self.floor, self.best, self.bad, self.factor = (
            patience,
            floor,
            math.inf,
            0,
            1.0,
        )

    def __call__(self, epoch: float) -> float:
        return self.factor

    def step(self, loss: float) -> None:
        "The validation loss after an epoch."
        better = loss < self.best * (1 - 1e-4)
        self.best, self.bad = (loss, 0) if better else (self.best, self.bad + 1)
        if self.bad > self.patience:
            self.factor, self.bad = max(self.factor * 0.1, self.floor), 0


def lr_schedule(
    recipe: Recipe,
) -> Callable[[float], float]:  # time in epochs -> factor of the learning rate
    "The learning-rate schedule of a recipe."
    learning = recipe.learning
    if learning.schedule == "plateau":
        return Plateau(learning.patience, learning.floor)
    cycle, last = learning.epochs / learning.cycles, learning.cycles - 1
    # a warm-up that is no shorter than the training takes half of it: whoever shortens a run wants
    # it to run
    warmup = learning.warmup if learning.warmup < cycle else cycle / 2
    stepped = learning.schedule == "steps"
    rate = steps(learning.drops, learning.gamma) if stepped else warmup_cosine(cycle, warmup)
    return lambda epoch: rate(epoch - cycle * min(int(epoch / cycle), last))


def encoder_about(
    recipe: Recipe,
) -> dict[str, Any]:  # plain values
    "Metadata of an encoder's file: what it is, and what it was trained to see."
    options = {k: v for k, v in view_options(recipe).items() if k != "live"}
    return {
        "backbone": recipe.backbone,
        "view": recipe.view,
        **options,
        "flow": recipe.flow,
        **recipe.clip,
        "clips": recipe.test_clips,
        "recipe": recipe.name,
        "method": recipe.method.name,
        "split": recipe.split,
        "seed": recipe.seed,
    }


def views_of_encoder(
    recipe: Recipe,
) -> tuple[str, ...]:  # that of the recipe first
    "The views that the encoder looks at: all that no further network has to itself."
    others = {v for name, v in recipe.networks.items() if name != "encoder"}
    return tuple(v for v in recipe.views if v == recipe.view or v not in others)


@contextmanager
def blame(
    part: str,  # 'the backbone lab:net', for the message
) -> Iterator[None]:
    "Turn an error of somebody's part into one sentence. `TrainError`; a ValueError stays as it is."
    try:
        yield
    except (ValueError, OSError):
        raise
    except (Exception, SystemExit) as e:
        raise TrainError(
            f"{part} fails: {error_in_words(e)}; VSSL_DEBUG=1 shows the way there"
        ) from e


def build_method(
    recipe: Recipe,
    # training videos, for a method that asks for them (a memory bank)
    videos: int | None = None,
    rows: int | None = None,  # of the manifest, likewise (class mining recall)
    classes: int | None = None,  # of the manifest, likewise (a classifier)
    # argument -> network; None: new ones from the seed
    networks: Mapping[str, nn.Module] | None = None,
) -> nn.Module:
    """The method of a recipe, with new weights unless networks are given; TrainError where the two
    do not fit.
    """
    settings = recipe.method
    cls = load_object(settings.method, f"the method {settings.name}")
    with blame(f"the backbone {recipe.backbone}"):
        given: dict[str, Any] = dict(
            networks
            or {name: create(recipe.backbone, seed=recipe.seed) for name in recipe.networks}
        )
    given |= {"view": recipe.view, "seed": recipe.seed}
    given |= {f.name: getattr(settings, f.name) for f in fields(settings)}
    try:
        wanted = inspect.signature(cls).parameters
        given |= {
            k: n for k, n in dict(videos=videos, rows=rows, classes=classes).items() if k in wanted
        }
        inspect.signature(cls).bind(**given)
    except TypeError as e:
        raise TrainError(
            f"{settings.method} does not take its settings ({e}); "
            f"it is called with {', '.join(given)}"
        ) from e
    with blame(f"building {settings.method}"):
        method = cls(**given)
    if lacks := check_method(method):
        raise TrainError(f"{settings.method} is not a method yet: {'; '.join(lacks)}")
    return method


GLOBAL_RNG = "forward draws from torch's global generator: a resumed run would end elsewhere"


def check_method(
    method: Any,  # somebody's method
    # from `Views`: then one step of a copy is tried as well
    batch: dict[str, Any] | None = None,
) -> list[str]:  # what of the contract is missing; empty if nothing is
    "What a method still lacks to be trained, resumed and measured, in plain words."
    if not isinstance(method, nn.Module):
        return [f"it is a {type(method).__name__}, not an nn.Module"]
    lacks, encoder = [], getattr(method, "encoder", None)
    if type(method).forward is nn.Module.forward:
        lacks.append("it has no forward(batch)")
    if not callable(getattr(method, "after_step", None)):
        lacks.append("it has no after_step(batch): define it, empty if nothing follows a step")
    if not isinstance(encoder, nn.Module):
        lacks.append("it has no encoder for evaluation to take: set self.encoder")
    elif not isinstance(getattr(encoder, "dim", None), int):
        lacks.append("its encoder does not say the length of its features: set .dim")
    if not any(p.requires_grad for p in method.parameters()):
        lacks.append("nothing in it learns: no parameter requires a gradient")
    if lacks or batch is None:
        return lacks
    before = torch.get_rng_state()  # a step without the optimizer
    batch = {"step": 0, "part": 0, "epoch": 0, "progress": 0.0} | batch
    try:
        trial: Any = copy.deepcopy(method).train()
        result = trial(batch)
    except Exception as e:
        return [f"forward fails: {error_in_words(e)}"]
    if not isinstance(result, tuple) or len(result) != 2:
        given = (
            f"{len(result)} things" if isinstance(result, tuple) else f"a {type(result).__name__}"
        )
        return [f"forward gave {given}, not (loss, logs)"]
    loss, logs = result
    if not torch.equal(before, torch.get_rng_state()):
        lacks.append(GLOBAL_RNG)
    if loss is not None and not (
        isinstance(loss, Tensor) and loss.ndim == 0 and loss.requires_grad
    ):
        lacks.append("the loss is not a scalar with gradient, nor None")
    elif loss is not None and not loss.isfinite():
        lacks.append(f"the first loss is {loss.item()}")
    if not isinstance(logs, dict):
        lacks.append(f"logs are a {type(logs).__name__}, not a dict")
    else:
        lacks += [
            f"the log {k!r} is not a scalar"
            for k, v in logs.items()
            if not (isinstance(v, (int, float, np.number)) or isinstance(v, Tensor) and v.ndim == 0)
        ]
    try:
        trial.after_step(batch)
    except Exception as e:
        lacks.append(f"after_step fails: {error_in_words(e)}")
    return lacks
