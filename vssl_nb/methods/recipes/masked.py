"""Masked clips: settings and recipes (VideoMAE, V-JEPA)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from ...config import Recipe, TrainingVideos, find, override, publish
from ...fields import Count, Positive, RecipeError, Settings, Share

Hidden = Annotated[float, "(0, 1)"]  # share that is hidden: something is, and something is not


@dataclass(frozen=True, kw_only=True)
class MaskedSettings(Settings):
    "Most of a clip is hidden; a predictor tells its pixels, or its features in a slow copy."

    # what is predicted of each hidden tubelet (VideoMAE: pixels; V-JEPA: features)
    target: Literal["pixels", "features"] = "pixels"
    # which tubelets are hidden: the same places in all frames, any, whole frames, or blocks
    mask: Literal["tube", "random", "frames", "blocks"] = "tube"
    share: Hidden = 0.9  # that is hidden, rounded down (VideoMAE 3.2: 0.9); not of 'blocks'
    # 'blocks': how many of each mask, in all frames; the loss is the mean over these masks (V-JEPA:
    # short and long range)
    block_counts: tuple[Count, ...] = (8, 2)
    block_shares: tuple[Hidden, ...] = (0.15, 0.7)  # of the picture, covered by each of them
    block_aspect: tuple[Positive, Positive] = (0.75, 1.5)  # height / width of a block (V-JEPA)
    # 'pixels': is each channel of a tubelet brought to mean 0 and variance 1 (VideoMAE)?
    normalise: bool = True
    # mean over hidden tubelets and their numbers (VideoMAE: l2; V-JEPA: l1)
    distance: Literal["l2", "l1", "smooth_l1"] = "l2"
    predictor_dim: Count = 384  # of a token in the predictor, even (VideoMAE, V-JEPA: 384)
    predictor_depth: Count = 4  # its blocks (VideoMAE: 4; V-JEPA: 12)
    predictor_heads: Count = 6  # their heads
    # 'features': of the slow copy that makes them (V-JEPA: 0.998); none for pixels
    momentum: Share | None = None
    # 'cosine', 'linear': up to momentum_end, `ssl.memory.momentum_at` (V-JEPA: linear)
    momentum_schedule: Literal["fixed", "cosine", "linear"] = "fixed"
    momentum_end: Share = 1.0  # after the last step, of 'cosine' and 'linear'
    # which network is measured
    exported: Literal["encoder", "momentum_encoder"] = "encoder"
    clips: ClassVar[tuple[str, ...]] = ("x",)
    encoder_needs: ClassVar[tuple[str, ...]] = ("tokens", "tubelets")
    name: ClassVar[str] = "masked"
    method: ClassVar[str] = "vssl_nb.methods.masked:Masked"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target == "features" and self.momentum is None:
            raise RecipeError(
                "target='features' needs a slow copy that makes them; give momentum a number, "
                "such as 0.998"
            )
        if self.target == "pixels" and self.momentum is not None:
            raise RecipeError(
                f"momentum={self.momentum} is of a slow copy, and target='pixels' has none; leave "
                "it out, or use target='features'"
            )
        if self.exported == "momentum_encoder" and self.momentum is None:
            raise RecipeError(
                "exported='momentum_encoder': target='pixels' has no slow copy; use "
                "exported='encoder'"
            )
        if len(self.block_counts) != len(self.block_shares):
            raise RecipeError(
                f"block_counts={self.block_counts} and block_shares={self.block_shares} are of the "
                "same masks; give as many of both"
            )
        if self.predictor_dim % 2 or self.predictor_dim % self.predictor_heads:
            raise RecipeError(
                f"predictor_dim={self.predictor_dim} must be even and a multiple of "
                f"predictor_heads={self.predictor_heads}; change one of them"
            )

    def refuse(self, recipe: Recipe, videos: TrainingVideos) -> None:
        "Nothing is compared with other videos, so every batch will do."


# ours
_toy_pixels = override(
    find("infonce-toy-rgb"),
    name="masked-toy-pixels",
    about="Masked pixels on the frames of the toy videos; about a minute on one core",
    backbone="vit_toy",
    clips=1,
    method=MaskedSettings(
        mask="random", share=0.75, predictor_dim=48, predictor_depth=1, predictor_heads=2
    ),
    optimizer="adamw",
    lr=1.5e-3,
    weight_decay=0.05,
)

_toy_features = override(
    _toy_pixels,
    name="masked-toy-features",
    about="Masked features of a slow copy on the frames of the toy videos; about a minute on one "
    "core",
    target="features",
    distance="l1",
    momentum=0.99,
    momentum_schedule="linear",
    exported="momentum_encoder",
)

publish(MaskedSettings, _toy_pixels, _toy_features)
