"""BYOL: settings and recipes."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from ...fields import Count, RecipeError, Share
from ...config import PairSettings, Recipe, TrainingVideos, find, override, publish
from .refusals import refuse_groups


@dataclass(frozen=True, kw_only=True)
class BYOLSettings(PairSettings):
    "A target that follows slowly, and a predictor: no negatives."

    # of the target, at the beginning (section 3.3); 0: the network itself, as in SimSiam
    momentum: Share = 0.996
    momentum_schedule: Literal["fixed", "cosine", "linear"] = "cosine"  # rises to 1 (section 3.3)
    dim: Count = 256  # of projection and prediction (section 3.3)
    dim_hidden: Count | None = 4096  # of both (section 3.3)
    # that makes both, a name of `nets.heads.HEADS` (section 3.3: with BatchNorm inside)
    head: str = "mlp"
    clips: ClassVar[tuple[str, ...]] = ("q", "k")
    name: ClassVar[str] = "byol"
    method: ClassVar[str] = "vssl_nb.methods.byol:BYOL"

    def refuse(self, recipe: Recipe, videos: TrainingVideos) -> None:
        "BatchNorm needs other videos, although the loss does not. `RecipeError`."
        if recipe.learning.batch == 1:
            raise RecipeError(
                "batch=1 leaves BatchNorm of the head a single row; use batch=2 or more"
            )
        refuse_groups(self.groups, recipe)


def _byol_toy(
    view: str,  # 'rgb' or 'residual'
    name: str,
    words: str,  # what it learns from, and how long that takes
) -> Recipe:
    "BYOL where InfoNCE has its recipe on the toy."
    return override(
        find(f"infonce-toy-{view}"),
        name=name,
        about=f"BYOL on {words} on one core",
        lr=5e-3,
        # ours; the paper has 256, 4096, 0.996
        method=BYOLSettings(dim=64, dim_hidden=128, momentum=0.9),
    )


publish(
    BYOLSettings,
    _byol_toy("rgb", "byol-toy", "the frames of the toy videos; about a minute"),
    _byol_toy(
        "residual",
        "byol-toy-residual",
        "the frame differences of the toy videos; less than a minute",
    ),
    override(
        find("infonce-ucf101-rgb"),
        name="byol-ucf101-r3d18",
        about="BYOL on UCF101: R3D-18, pixels and optimizer of rhoBYOL, clips and epochs of "
        "SimCLR's baseline; no paper gives a number for it",
        # those of SimCLR's baseline
        backbone="r3d18",
        size=224,
        length=16,
        pad="loop",
        last="all",
        same=0.0,
        # pixels of rhoBYOL; grey and blur as MoCo v2's
        colour="all",
        crop="torchvision",
        grey_mode="clip",
        area=(0.2, 0.766),
        aspect=(0.75, 1.3333),
        brightness=0.6,
        contrast=0.6,
        saturation=0.6,
        hue=0.15,
        method=BYOLSettings(),  # rhoBYOL's released configuration has these numbers, too
        # rhoBYOL: LARS, 0.6 for 64 videos, weight decay 1e-6 and none of BatchNorm, 35 epochs
        # of warm-up
        optimizer="lars",
        lr=0.6 * 256 / 64,
        batch=256,
        epochs=800,
        schedule="cosine",
        drops=(),
        weight_decay=1e-6,
        decay_bias=False,
        warmup=35.0,
    ),
)
