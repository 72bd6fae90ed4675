"""A recipe becomes objects, only here: `resolve` makes an `Experiment`, which a training takes."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, default_collate

from ..config import Learning, Recipe, TrainingVideos, override, refuse_unfit
from ..data.augmentation import find_augmentation
from ..data.dataset import TrainClips
from ..data.manifest import Manifest
from ..data.sampling import random_clips
from ..data.tvl1 import tvl1_live
from ..data.views import Views, raw_inputs
from ..names import load_object
from ..nets.backbones import BACKBONES, create
from ..training.loop import (
    ResumableBatchSampler,
    Schedule,
    TrainError,
    loader,
    make_optimizer,
    steps,
    warmup_cosine,
)
from ..training.machine import Machine, checkpoint_activations, pick_device
from .checks import check_method, errors_of


@dataclass(frozen=True)
class BlankVideos:
    "Training videos that need not exist, for a budget or a dry run: their clips are blank."

    videos: int | None = None  # to train on; None: not known, so as many as UCF101's split 1 has
    classes: int = 101  # of their labels

    def __len__(self) -> int:
        return 9537 if self.videos is None else self.videos


@dataclass(frozen=True)
class Experiment:
    """The objects of one training.

    What takes memory or time (clips, batches, method, optimizer) is made when it is first asked
    for: a budget can be computed, and a training refused, before anything of it is allocated.
    """

    recipe: Recipe
    videos: Manifest | BlankVideos
    rows: Sequence[int]  # of the manifest to train on; of blank videos all
    machine: Machine  # workers and cache are read here
    device: torch.device
    # network of the recipe -> network to take instead of a new one
    given: Mapping[str, nn.Module] = field(default_factory=dict, hash=False)

    # -- videos

    @property
    def blank(self) -> bool:
        "Are there no videos?"
        return isinstance(self.videos, BlankVideos)

    @property
    def manifest(self) -> Manifest:
        "Where the videos are; TypeError for blank ones, which are in none."
        if isinstance(self.videos, BlankVideos):
            raise TypeError("blank videos are in no manifest")
        return self.videos

    @cached_property
    def training_videos(self) -> TrainingVideos:
        "What a method may know about its training videos before it begins."
        manifest = self.manifest
        return TrainingVideos(
            str(manifest.path),
            tuple(manifest.rows[i].video for i in self.rows),
            tuple(map(manifest.label_id, self.rows)),
            tuple(map(manifest.source_id, self.rows)),
        )

    @cached_property
    def clips(self) -> TrainClips:
        "The training samples; ManifestError where there are none, or none with their flow."
        first, *further = [
            (name, (_sample(part), training_draw(part), part.size))
            for name, part in self.recipe.clip_sets.items()
        ]
        sample, draw, size = first[1]
        return TrainClips(
            self.manifest,
            self.rows,
            sample,
            draw,
            size,
            self.recipe.seed,
            cache=self.machine.cache,
            same=self.recipe.sampling.same,
            load=self.raw_inputs,
            groups=dict(further),
        )

    @cached_property
    def batches(self) -> DataLoader:
        """The batches of the whole training, in the order that the recipe's seed gives.

        TrainError where a step takes more videos than there are.
        """
        if self.blank:
            blank: Any = BlankBatches(self)
            return blank

        learning = self.recipe.learning
        return loader(
            self.clips,
            learning.batch,
            learning.epochs,
            self.recipe.seed,
            learning.accumulate,
            self.machine.workers,
            pin=self.device.type == "cuda",
        )

    def refuse(self) -> None:
        "Refuse, before anything is computed, what cannot be trained on these videos. `ValueError`."
        refuse_unfit(self.recipe, self.training_videos)
        self.refuse_filling()
        self.clips  # refuses flow that is missing

    def refuse_filling(self) -> None:
        "TrainError for clips that are longer than every training video, so that all are filled up."
        for part in self.recipe.clip_sets.values():
            _refuse_filling(part, self.manifest, self.rows)

    # -- views

    @property
    def raw_inputs(self) -> tuple[str, ...]:
        "What the loader delivers for the views."
        return raw_inputs(self.recipe.views, flow_is_live(self.recipe))

    @property
    def view_options(self) -> dict[str, Any]:  # arguments of `Views`, besides its names
        "How the views are made, in training and in measuring."
        options = _stored_view_options(self.recipe)
        if flow_is_live(self.recipe):
            options["live"] = tvl1_live
        return options

    @cached_property
    def views(self) -> Views:
        "Raw batch on the device -> float views, augmented."
        return self.views_with()

    def views_with(
        self,
        **options,  # of `Views`, instead of those of the recipe
    ) -> Views:
        "The views, made in another way."
        return Views(
            self.recipe.views,
            **self.view_options | options,
            augmentation=self.recipe.augment.augmentation,
        )

    # -- what learns

    @cached_property
    def method(self) -> nn.Module:
        """The method, with new networks from the seed unless some were given.

        RecipeError or TrainError where it does not fit the recipe or the videos.
        """
        if not self.blank:
            self.batches
            refuse_unfit(self.recipe, self.training_videos)

        method: Any = make_method(self.recipe, self.given, _sizes(self.videos, self.rows))
        checkpoint_activations(method.encoder, self.machine.activation_checkpointing)
        if self.blank and self.device.type != "cpu":
            method.to(self.device)
        return method

    @cached_property
    def optimizer(self) -> torch.optim.Optimizer:
        "Over the parameters of the method that learn."
        learning = self.recipe.learning
        return make_optimizer(
            self.method,
            learning.optimizer,
            learning.lr,
            learning.weight_decay,
            learning.sgd_momentum,
            learning.decay_bias,
            learning.betas,
        )

    @cached_property
    def schedules(self) -> dict[str, Schedule]:
        "Field of the optimizer's groups -> its schedule."
        learning = self.recipe.learning
        schedules: dict[str, Schedule] = {"lr": rate_schedule(learning)}
        if learning.weight_decay_end is not None and learning.weight_decay:
            schedules["weight_decay"] = weight_decay_schedule(learning)
        return schedules

    @property
    def clip_norm(self) -> float:
        "Longest gradient (L2 norm over all parameters); 0: any."
        return self.recipe.learning.clip_norm

    # -- its networks

    @property
    def networks(self) -> dict[str, nn.Module]:
        "The networks that the recipe names, as the method holds them."
        return {name: self.method.get_submodule(name) for name in self.recipe.networks}

    @property
    def exported(self) -> nn.Module:
        "The network that is exported and measured: the one that the method's `exported` names."
        return self.method.get_submodule(getattr(self.method, "exported", "encoder"))

    @property
    def metadata(self) -> dict[str, Any]:  # plain values
        "Of the encoder's file."
        return encoder_metadata(self.recipe)

    # -- like it

    def changed(
        self,
        **fields,  # of the recipe
    ) -> "Experiment":
        "The experiment with some fields changed; nothing of it is made yet."
        return replace(self, recipe=override(self.recipe, **fields))

    def without_videos(
        self,
        **fields,  # of the recipe
    ) -> "Experiment":
        "The same on blank clips of as many videos, on the CPU; nothing of it is made yet."
        videos = self.videos if self.blank else BlankVideos(len(self.rows))
        return resolve(self.changed(**fields).recipe, videos, replace(self.machine, device="cpu"))


def resolve(
    recipe: Recipe,
    videos: Manifest | BlankVideos = BlankVideos(),
    machine: Machine = Machine(),  # device, workers and cache are read here
    *,
    local: int = 0,  # number of this process on its machine
    rows: Sequence[int] | None = None,  # of the manifest; None: the training part of the split
    # network of the recipe -> network to take; those that are not named are new
    networks: Mapping[str, nn.Module] = {},
) -> Experiment:
    "What a recipe comes to on some videos and a machine. MachineError, TrainError for a device."
    if isinstance(videos, BlankVideos):
        device = machine.place(local)
        return Experiment(recipe, videos, range(len(videos)), machine, device, networks)

    if rows is None:
        rows = videos.select("train", recipe.split)
    device = training_device(recipe, machine.device, local)
    return Experiment(recipe, videos, rows, machine, device, networks)


# -- device, clips and views


def _refuse_filling(
    recipe: Recipe,  # of a set of clips
    manifest: Manifest,
    rows: Sequence[int],  # to train on
) -> None:
    length, stride = recipe.sampling.length, recipe.sampling.stride
    span = (length - 1) * stride + 1
    longest = max((manifest.rows[i] for i in rows), key=lambda row: row.frames, default=None)
    if longest is None or longest.frames >= span:
        return

    with errors_of(f"the backbone {recipe.backbone}"):
        fewest = getattr(create(recipe.backbone), "min_clip", (1,))[0]
    if stride == 1 and length <= fewest:
        return  # the network takes no shorter clip
    frames = longest.frames
    if stride > 1 and frames >= length:
        fitting = f"stride={(frames - 1) // (length - 1)}"
    elif stride > 1:
        fitting = f"length={max(frames, fewest)} with stride=1"
    else:
        fitting = f"length={max(frames, fewest)}"
    raise TrainError(
        f"{manifest.path}: no training video is as long as a clip; length={length} with "
        f"stride={stride} takes {span} frames, and the longest, {longest.video}, has {frames}; "
        f"{fitting} fits"
    )


def flow_is_live(recipe: Recipe) -> bool:
    "Is one of its views solved for on the device?"
    return recipe.flow == "live" and "flow" in raw_inputs(recipe.views)


def training_device(
    recipe: Recipe,
    device: str | torch.device,  # 'auto', 'cpu' or 'cuda'
    local: int = 0,  # number of this process on this machine
) -> torch.device:
    """Where to compute; TrainError for live flow without a GPU, which would take minutes for each
    step.
    """
    chosen = pick_device(device, local)
    if flow_is_live(recipe) and chosen.type == "cpu":
        raise TrainError(
            "flow='live' needs a GPU; store the flow once with `vssl-nb flow` and use --flow stored"
        )
    return chosen


def _sample(
    recipe: Recipe,  # of a set of clips
) -> Callable[..., np.ndarray]:  # (frames, rng) -> (V, T) frame numbers
    "Which frames a sample is made of."
    options = asdict(recipe.sampling)
    del options["same"]  # of all sets of clips together
    return partial(random_clips, **options)


def training_draw(
    recipe: Recipe,  # of a set of clips
) -> Callable[..., dict[str, Tensor]]:  # (rng, V, T, height, width) -> parameters
    """The augmentation parameters of a sample; an augmentation of one's own need not know of still
    images.
    """
    options = asdict(recipe.augment)
    augmentation = find_augmentation(options.pop("augmentation"))
    if recipe.augment.appearance == "none":
        for name in ("appearance", "appearance_clips", "windows", "window_frames", "strength"):
            del options[name]
    return partial(augmentation.draw, size=recipe.size, **options)


def _stored_view_options(recipe: Recipe) -> dict[str, Any]:
    "Options of the views that are plain values."
    names = ("residual", "residual_scale", "flow_flip", "flow_colour")
    options = {name: getattr(recipe, name) for name in names}
    if recipe.normalisation == "none":
        options |= {"mean": (0.0,) * 3, "std": (1.0,) * 3}
    return options


def encoder_metadata(
    recipe: Recipe,
) -> dict[str, Any]:  # plain values
    "Metadata of an encoder's file: what it is, and what it was trained to see."
    return {
        "backbone": recipe.backbone,
        "view": recipe.view,
        **_stored_view_options(recipe),
        "flow": recipe.flow,
        **recipe.clip,
        "clips": recipe.test_clips,
        "recipe": recipe.name,
        "method": recipe.method.name,
        "split": recipe.split,
        "seed": recipe.seed,
    }


# -- schedules


class PlateauSchedule:
    "A factor that falls to a tenth when a loss stops falling, as torch's ReduceLROnPlateau has it."

    def __init__(
        self,
        patience: int,  # losses in a row that are not lower, before it falls
        floor: float,  # the lowest factor
    ):
        # the rate of an optimizer of nothing, which begins with 1, is the factor
        self.optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
            self.optimizer, patience=patience, min_lr=floor
        )

    def __call__(self, epoch: float) -> float:
        return self.optimizer.param_groups[0]["lr"]

    def step(self, loss: float) -> None:
        "The validation loss after an epoch."
        self.plateau.step(loss)

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), "plateau": self.plateau.state_dict()}

    def load_state_dict(
        self,
        state: dict[str, Any],  # from `state_dict`
    ) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.plateau.load_state_dict(state["plateau"])


def rate_schedule(learning: Learning) -> Schedule:
    "The schedule of the learning rate."
    if learning.schedule == "plateau":
        return PlateauSchedule(learning.patience, learning.floor)

    cycle = learning.cycle
    if learning.schedule == "steps":
        rate = steps(learning.drops, learning.gamma)
    else:
        warmup = learning.shortened_warmup
        rate = _above(warmup_cosine(cycle, warmup), learning.lr_floor, warmup)

    def in_cycles(epoch: float) -> float:
        finished = min(int(epoch / cycle), learning.cycles - 1)
        return rate(epoch - cycle * finished)

    return in_cycles


def _above(
    rate: Schedule,
    floor: float,  # its end; 0 changes nothing
    warmup: float,  # epochs before which it climbs from 0
) -> Schedule:
    def raised(epoch: float) -> float:
        factor = rate(epoch)
        return factor if epoch < warmup else floor + (1 - floor) * factor

    return raised


def weight_decay_schedule(learning: Learning) -> Schedule:
    "Half a cosine over the whole training, from the weight decay to its end (DINO, V-JEPA)."
    end = (learning.weight_decay_end or 0.0) / learning.weight_decay

    def factor(epoch: float) -> float:
        share = min(1.0, epoch / learning.epochs)
        return end + (1 - end) * (1 + math.cos(math.pi * share)) / 2

    return factor


# -- networks and method


def _sizes(
    videos: Manifest | BlankVideos,
    rows: Sequence[int],  # to train on
) -> dict[str, int]:
    "What a method may ask for: a bank has a row a video, a classifier a score a class."
    classes = videos.classes if isinstance(videos, BlankVideos) else len(videos.labels)
    return {"videos": len(rows), "rows": len(videos), "classes": classes}


def make_networks(
    recipe: Recipe,
    given: Mapping[str, nn.Module],  # those that are there already
) -> dict[str, nn.Module]:  # network of the recipe -> network
    """The networks that a method is built from: a backbone each, unless its settings make another.

    TrainError where the backbone lacks what the method needs.
    """
    make_network = getattr(recipe.method, "make_network", None)
    networks = dict(given)
    with errors_of(f"the backbone {recipe.backbone}"):
        for name in ("encoder", *recipe.networks):
            if name in networks:
                continue
            if name == "encoder" or make_network is None:
                networks[name] = create(recipe.backbone, seed=recipe.seed)
            else:
                networks[name] = make_network(name, networks["encoder"])

    refuse_backbone(recipe, networks["encoder"])
    return networks


def refuse_backbone(recipe: Recipe, encoder: nn.Module) -> None:
    "TrainError for an encoder without what the settings of the method name in `encoder_needs`."
    needs: Sequence[str] = getattr(recipe.method, "encoder_needs", ())
    lacks = [name for name in needs if not hasattr(encoder, name)]
    if not lacks:
        return

    with torch.device("meta"):
        fit = [name for name in BACKBONES if all(hasattr(create(name), need) for need in needs)]
    remedy = f"use --backbone {' or '.join(fit)}" if fit else "give a backbone that has it"
    raise TrainError(
        f"backbone={recipe.backbone!r}: has no {lacks[0]!r}, which {recipe.method.name} needs of "
        f"its encoder; {remedy}"
    )


def make_method(
    recipe: Recipe,
    given: Mapping[str, nn.Module],  # as of `make_networks`
    sizes: Mapping[str, int],  # handed over where the method has an argument of that name
) -> nn.Module:
    "The method of a recipe; TrainError where it does not take its settings, or is no method."
    settings = recipe.method
    cls = load_object(settings.method, f"the method {settings.name}")
    arguments: dict[str, Any] = dict(make_networks(recipe, given))
    arguments |= {"view": recipe.view, "seed": recipe.seed}
    arguments |= {f.name: getattr(settings, f.name) for f in fields(settings)}
    try:
        signature = inspect.signature(cls)
        arguments |= {name: n for name, n in sizes.items() if name in signature.parameters}
        signature.bind(**arguments)
    except TypeError as e:
        raise TrainError(
            f"{settings.method} does not take its settings ({e}); "
            f"it is called with {', '.join(arguments)}"
        ) from e

    with errors_of(f"building {settings.method}"):
        method = cls(**arguments)
    lacks = check_method(method)
    if lacks:
        raise TrainError(f"{settings.method} is not a method yet: {'; '.join(lacks)}")
    return method


# -- blank clips

BLANK_HEIGHT, BLANK_WIDTH = 240, 320  # of the videos that blank clips are cut from, pixels
MOST_DRAWN = 128  # videos that are augmented on their own; more are augmented as these are


class BlankBatches:
    """Batches of blank clips, of the size and with the augmentations of a training; `fit` goes
    through them.
    """

    def __init__(
        self,
        experiment: Experiment,  # on blank videos
    ):
        recipe = experiment.recipe
        learning = recipe.learning
        self.clip_sets = {f"_{k}" if k else "": part for k, part in recipe.clip_sets.items()}
        self.draws = {ending: training_draw(part) for ending, part in self.clip_sets.items()}
        self.raw_inputs = experiment.raw_inputs
        self.classes = _sizes(experiment.videos, experiment.rows)["classes"]
        self.batch_sampler = ResumableBatchSampler(
            len(experiment.rows), learning.batch, learning.epochs, recipe.seed, learning.accumulate
        )
        self.dataset = self
        # exchange it for memory that counts as pinned
        self.pin: Callable[[Tensor], Tensor] = lambda x: x
        # one byte, shown as often as it takes; exchange it for other frames
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
        rng = np.random.default_rng(ids[:MOST_DRAWN].tolist())
        tensors = {"label": ids % self.classes}
        tensors |= {name: ids.clone() for name in ("source", "row", "index")}
        augments = {}
        for ending, part in self.clip_sets.items():
            tensors |= {f"{k}{ending}": x for k, x in self._frames_of(part, len(ids)).items()}
            augments[f"augment{ending}"] = self._augment(part, self.draws[ending], rng, len(ids))
        pinned = {name: self.pin(x) for name, x in tensors.items()}
        return pinned | augments | {"bad": []}

    def _frames_of(
        self,
        part: Recipe,  # of a set of clips
        B: int,  # videos
    ) -> dict[str, Tensor]:  # stream -> frames
        V, T, S = part.sampling.clips, part.sampling.length, part.size
        shapes = {
            "clips": (B, V, T, S, S, 3),
            "flow": (B, V, T, S, S, 3),
            "pair": (B, V, 2, T, S, S),
        }
        return {name: self.frames(shapes[name]) for name in self.raw_inputs}

    def _augment(
        self,
        part: Recipe,  # of a set of clips
        draw: Callable[..., dict[str, Tensor]],
        rng: np.random.Generator,
        B: int,  # videos
    ) -> dict[str, Tensor]:  # (B, V, ...) each
        V, T = part.sampling.clips, part.sampling.length
        n = min(B, MOST_DRAWN)
        drawn = default_collate([draw(rng, V, T, BLANK_HEIGHT, BLANK_WIDTH) for _ in range(n)])
        return {name: x[torch.arange(B) % n] for name, x in drawn.items()}
