"""InfoNCE: settings, and recipes on the toy, on real videos and as released."""

from dataclasses import dataclass, replace
from typing import ClassVar

from ...config import (
    Augment,
    Learning,
    PairSettings,
    Recipe,
    Sampling,
    TrainingVideos,
    override,
    publish,
)
from ...fields import Index, Positive, RecipeError
from .refusals import refuse_groups


@dataclass(frozen=True, kw_only=True)
class QueueSettings(PairSettings):
    "A pair of encoders, a queue of keys and a softmax: what InfoNCE, UberNCE and CoCLR share."

    queue: Index = 2048  # K, keys kept (CoCLR: 2048 UCF101, 16384 K400)
    temperature: Positive = 0.07  # of the softmax (CoCLR: 0.07)
    clips: ClassVar[tuple[str, ...]] = ("q", "k")
    needs_queue: ClassVar[bool] = True  # is there no form without one?

    def refuse(self, recipe: Recipe, videos: TrainingVideos) -> None:
        "Queue and BatchNorm groups must fit the batch. `RecipeError`."
        batch = recipe.learning.batch
        if batch == 1 and not self.queue:
            raise RecipeError(
                "batch=1 without a queue leaves nothing to compare a clip with; use batch=2 or "
                "more, or a queue"
            )
        if 0 < self.queue < batch:
            instead = "" if self.needs_queue else ", or use queue=0"
            raise RecipeError(
                f"queue={self.queue} is smaller than batch={batch}: its keys would be "
                f"overwritten before they were used; enlarge the queue{instead}"
            )
        refuse_groups(self.groups, recipe)


@dataclass(frozen=True, kw_only=True)
class InfoNCESettings(QueueSettings):
    "In the batch (`queue=0`) or with a queue."

    needs_queue: ClassVar[bool] = False
    name: ClassVar[str] = "infonce"
    method: ClassVar[str] = "vssl_nb.methods.infonce:InfoNCE"


_toy_rgb = Recipe(
    name="infonce-toy-rgb",
    about="InfoNCE in the batch on the frames of the toy videos; about a minute on one core",
    dataset="toy",
    view="rgb",
    backbone="tiny",
    size=32,
    test_clips=5,
    sampling=Sampling(clips=2, length=16, stride=1, pad="first", last="all", same=0.0),
    augment=Augment(
        area=(0.7, 1.0),
        aspect=(3 / 4, 4 / 3),
        crop="torchvision",
        flip=0.0,
        jitter=0.8,
        brightness=0.4,
        contrast=0.4,
        saturation=0.4,
        hue=0.1,
        grey=0.2,
        permute=0.5,
        blur=0.0,
    ),
    method=InfoNCESettings(queue=0, momentum=0.99, temperature=0.1),
    learning=Learning(
        optimizer="adam",
        lr=2e-3,
        weight_decay=1e-5,
        batch=32,
        epochs=14,
        schedule="cosine",
        warmup=1.0,
    ),
)

_toy_residual = override(
    _toy_rgb,
    name="infonce-toy-residual",
    about="InfoNCE in the batch on the frame differences of the toy videos; less than a minute on "
    "one core",
    view="residual",
    epochs=8,
)

_toy_flow = override(
    _toy_rgb,
    name="infonce-toy-flow",
    about="InfoNCE in the batch on the stored optical flow of the toy videos; half a minute on one "
    "core",
    view="flow",
    epochs=4,
)

_toy_longer = override(
    _toy_rgb,
    name="infonce-toy-rgb-longer",
    about="InfoNCE on the frames of the toy videos for as many more steps as CoCLR makes; begin "
    "with --init-from infonce-toy-rgb",
    epochs=28,
    warmup=0.0,
)

_laptop_rgb = override(
    _toy_rgb,
    name="infonce-laptop-rgb",
    about="InfoNCE with a queue on real videos with a small backbone, for a machine without a GPU",
    dataset="any",
    backbone="small",
    size=64,
    test_clips=10,
    stride=2,
    # b8, with grey per clip as the authors describe it
    area=(0.2, 1.0),
    flip=0.5,
    permute=0.0,
    blur=0.5,
    queue=512,
    temperature=0.07,  # b2: dim 128, T 0.07
    lr=1e-3,  # b9: Adam, 1e-3, weight decay 1e-5
    batch=16,
    epochs=30,
)

_laptop_residual = replace(
    _laptop_rgb,
    name="infonce-laptop-residual",
    about="InfoNCE with a queue on the frame differences of real videos, for a machine without a "
    "GPU",
    view="residual",
)

OWN_VIDEOS = "own-videos"
# view, backbone, size, clip, batch, queue, momentum, warmup and epochs are chosen by
# `app.own.fit_recipe` for the folder, the machine and the time that is given
_own_videos = replace(
    _laptop_rgb,
    name=OWN_VIDEOS,
    about="InfoNCE on a folder of your own, fitted to its videos, this machine and --minutes; then "
    "a verdict",
    test_clips=5,
)

_ucf101_rgb = Recipe(
    name="infonce-ucf101-rgb",
    about="InfoNCE of CoCLR on the frames of UCF101 (released code); the released weights reach "
    "33.1 % R@1",
    dataset="UCF101",
    # b9: split 1, seed 0
    split=1,
    seed=0,
    test_clips=10,
    view="rgb",
    # supplement 1.1; released code: --net s3d --img_dim 128
    backbone="s3d",
    size=128,
    sampling=Sampling(
        clips=2,
        # released code: --seq_len 32 --ds 1
        length=32,
        stride=1,
        # released code, b7
        pad="first",
        last="released",
        same=0.5,  # released code, b8: "OneClip" half of the time
    ),
    augment=Augment(
        # b8: each of two clips with 0.3, one of two equal clips always
        colour="released",
        # b8: RandomSizedCrop, bottom_area 0.2
        area=(0.2, 1.0),
        aspect=(3 / 4, 4 / 3),
        crop="released",
        # b8
        flip=0.5,
        jitter=0.8,
        brightness=0.4,
        contrast=0.4,
        saturation=0.4,
        hue=0.1,
        grey=0.2,
        grey_mode="flicker",
        blur=0.5,
        sigma=(0.1, 2.0),
    ),
    method=InfoNCESettings(
        dim=128,  # supplement, Table 1: FC-1024, ReLU, FC-128
        # supplement 1.3
        queue=2048,
        momentum=0.999,
        temperature=0.07,
        # released code, b2: shuffled between 2 GPUs
        bn="shuffle",
        groups=2,
    ),
    learning=Learning(
        # b9
        optimizer="adam",
        lr=1e-3,
        weight_decay=1e-5,
        batch=64,  # README: 2 GPUs x 32
        # README: --epochs 300 --schedule 250 280
        epochs=300,
        schedule="steps",
        drops=(250.0, 280.0),
        gamma=0.1,
    ),
)

_k400_rgb = override(
    _ucf101_rgb,
    name="infonce-k400-rgb",
    about="InfoNCE of CoCLR on the frames of Kinetics-400 (released code)",
    dataset="Kinetics-400",
    # supplement 1.3; README: 4 GPUs x 32; 300 epochs, drops 250 and 280
    queue=16384,
    groups=4,
    batch=128,
)

# the same script, network, augmentation and schedule (b8, b9)
_ucf101_flow = replace(
    _ucf101_rgb,
    name="infonce-ucf101-flow",
    # b10
    about="InfoNCE of CoCLR on the optical flow of UCF101 (released code); the released weights "
    "reach 45.2 % R@1",
    view="flow",
    # b6: TV-L1 at the size of the video; b8: u keeps its sign, colours change as those of RGB
    flow_flip="released",
    flow_colour="released",
)

# likewise
_k400_flow = replace(
    _k400_rgb,
    name="infonce-k400-flow",
    about="InfoNCE of CoCLR on the optical flow of Kinetics-400 (released code)",
    view="flow",
    # b6, b8
    flow_flip="released",
    flow_colour="released",
)

_toyfull_rgb = override(
    replace(_ucf101_rgb, augment=_toy_rgb.augment),
    name="infonce-toyfull-rgb",
    about="InfoNCE with S3D on the frames of the full-size toy; for a GPU",
    dataset="toyfull",
    test_clips=3,
    last="all",
    same=0.0,
    area=(0.5, 1.0),
    temperature=0.1,
    groups=4,
    epochs=20,
    schedule="cosine",
    drops=(),
    warmup=1.0,
)

_toyfull_residual = replace(
    _toyfull_rgb,
    name="infonce-toyfull-residual",
    about="InfoNCE with S3D on the frame differences of the full-size toy; for a GPU",
    view="residual",
)

_toyfull_flow = replace(
    _toyfull_rgb,
    name="infonce-toyfull-flow",
    about="InfoNCE with S3D on the stored optical flow of the full-size toy; for a GPU",
    view="flow",
)

publish(
    InfoNCESettings,
    _toy_rgb,
    _toy_residual,
    _toy_flow,
    _toy_longer,
    _laptop_rgb,
    _laptop_residual,
    _own_videos,
    _ucf101_rgb,
    _ucf101_flow,
    _k400_rgb,
    _k400_flow,
    _toyfull_rgb,
    _toyfull_residual,
    _toyfull_flow,
)
