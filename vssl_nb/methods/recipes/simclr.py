"""SimCLR: settings and recipes."""

from dataclasses import dataclass, replace
from typing import ClassVar

from ...config import Augment, Learning, Recipe, Sampling, TrainingVideos, find, override, publish
from ...fields import Count, Positive, RecipeError, Settings


@dataclass(frozen=True, kw_only=True)
class SimCLRSettings(Settings):
    """All clips of the batch against each other: one encoder, no queue, BatchNorm over all
    processes.
    """

    temperature: Positive = 0.1  # of the softmax (CVRL: 0.1)
    # is each clip an anchor (NT-Xent)? no: the first alone, as in Eq. 1 of MoQuad
    symmetric: bool = True
    dim: Count = 128  # of the space the loss compares in (SimCLR, CVRL: 128)
    dim_hidden: Count | None = None  # of the projection; none: as wide as the feature
    head: str = "projection"  # a name of `nets.heads.HEADS`, or 'package.module:name'
    clips: ClassVar[tuple[str, ...]] = ("q", "k")
    name: ClassVar[str] = "simclr"
    method: ClassVar[str] = "vssl_nb.methods.simclr:SimCLR"

    def refuse(self, recipe: Recipe, videos: TrainingVideos) -> None:
        "There must be another video to compare with. `RecipeError`."
        if recipe.learning.batch == 1:
            raise RecipeError("batch=1 leaves nothing to compare a clip with; use batch=2 or more")


_toy_simclr = replace(
    find("infonce-toy-rgb"),
    name="simclr-toy-rgb",
    about="SimCLR on the frames of the toy videos; about a minute on one core",
    method=SimCLRSettings(temperature=0.1),
)

_ucf101_simclr = Recipe(
    name="simclr-ucf101-r3d18",
    # table 4; one or two sides: not stated
    about="SimCLR as MoQuad's baseline on UCF101: R3D-18, 800 epochs; fine-tuned it reaches 76.0 %",
    dataset="UCF101",
    # ours
    test_clips=10,
    view="rgb",
    # MoQuad 4.1: R3D-18, 224 x 224
    backbone="r3d18",
    size=224,
    # MoQuad 4.1: 16 frames; stride: open, as in its recipes; CVRL's code repeats a short video
    sampling=Sampling(clips=2, length=16, stride=1, pad="loop", last="all", same=0.0),
    augment=Augment(
        # CVRL
        area=(0.3, 1.0),
        aspect=(0.5, 2.0),
        crop="torchvision",
        flip=0.5,
        # CVRL's code, strength 1
        jitter=0.8,
        brightness=0.8,
        contrast=0.8,
        saturation=0.8,
        hue=0.2,
        # CVRL; its blur of 1 for one clip and 0.1 for the other is 0.5 for both here
        grey=0.2,
        blur=0.5,
    ),
    method=SimCLRSettings(dim=128, temperature=0.1),  # head: open; T: CVRL's code
    learning=Learning(
        # MoQuad 4.1
        optimizer="lars",
        lr=3.2,
        batch=256,
        epochs=800,
        # open; CVRL's configuration
        weight_decay=1e-6,
        sgd_momentum=0.9,
        schedule="cosine",  # MoQuad 4.1
        warmup=5.0,  # open; CVRL's
    ),
)

_k400_simclr = override(
    _ucf101_simclr,
    name="simclr-k400-r3d18",
    about="SimCLR in MoQuad's setting on Kinetics-400: R3D-18, 200 epochs",
    dataset="Kinetics-400",
    epochs=200,  # MoQuad 4.1
)

publish(
    SimCLRSettings,
    _toy_simclr,
    override(
        _toy_simclr,
        name="simclr-toy-residual",
        about="SimCLR on the frame differences of the toy videos; less than a minute on one core",
        view="residual",
        epochs=8,
    ),
    _ucf101_simclr,
    override(
        _ucf101_simclr,
        name="simclr-ucf101-r3d18-one-sided",
        about="The same with the first clip alone as anchor, as in Eq. 1 of MoQuad: rung 0 of its "
        "ladder",
        symmetric=False,
    ),
    _k400_simclr,
)
