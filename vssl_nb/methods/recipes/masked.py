"""Masked clips: settings and recipes (VideoMAE, V-JEPA)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from ...config import Augment, Learning, Recipe, Sampling, TrainingVideos, find, override, publish
from ...fields import Count, Positive, RecipeError, Settings, Share

Hidden = Annotated[float, "(0, 1)"]  # share that is hidden: something is, and something is not


@dataclass(frozen=True, kw_only=True)
class MaskedSettings(Settings):
    "Most of a clip is hidden, and a predictor fills it: pixels, features or motion."

    # what is predicted of each hidden tubelet (VideoMAE: pixels; V-JEPA: features; ours: motion,
    # how much it changes from a frame to the next)
    target: Literal["pixels", "features", "motion"] = "pixels"
    # which tubelets are hidden: the same places in all frames, any, whole frames, or blocks
    mask: Literal["tube", "random", "frames", "blocks"] = "tube"
    mask_ratio: Hidden = 0.9  # that is hidden, rounded down (VideoMAE 3.2: 0.9); not of 'blocks'
    # 'blocks': how many of each mask, in all frames; the loss is the mean over these masks (V-JEPA:
    # short and long range)
    block_counts: tuple[Count, ...] = (8, 2)
    block_shares: tuple[Hidden, ...] = (0.15, 0.7)  # of the picture, covered by each of them
    block_aspect: tuple[Positive, Positive] = (0.75, 1.5)  # height / width of a block (V-JEPA)
    # 'pixels': is each channel of a tubelet brought to mean 0 and variance 1 (VideoMAE)? 'motion':
    # is each clip?
    normalise: bool = True
    # mean over hidden tubelets and their numbers (VideoMAE: l2; V-JEPA: l1)
    prediction_loss: Literal["l2", "l1", "smooth_l1"] = "l2"
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
    method: ClassVar[str] = "vssl_nb.methods.masked:MaskedPrediction"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target == "features" and self.momentum is None:
            raise RecipeError(
                "target='features' needs a slow copy that makes them; give momentum a number, "
                "such as 0.998"
            )
        if self.target != "features" and self.momentum is not None:
            raise RecipeError(
                f"momentum={self.momentum} is of a slow copy, and target={self.target!r} has none; "
                "leave it out, or use target='features'"
            )
        if self.exported == "momentum_encoder" and self.momentum is None:
            raise RecipeError(
                f"exported='momentum_encoder': target={self.target!r} has no slow copy; use "
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
    about="Masked pixels of the frames of the toy videos; a few minutes on one core",
    backbone="vit_toy_fine",
    clips=1,
    method=MaskedSettings(
        mask="tube", mask_ratio=0.75, predictor_dim=48, predictor_depth=1, predictor_heads=2
    ),
    optimizer="adamw",
    lr=1e-3,
    weight_decay=0.05,
    clip_norm=1.0,
    batch=16,
    epochs=24,
)

_toy_features = override(
    _toy_pixels,
    name="masked-toy-features",
    about="Masked features of a slow copy on the frames of the toy videos; a few minutes on one "
    "core",
    target="features",
    prediction_loss="l1",
    momentum=0.99,
    momentum_schedule="linear",
    exported="momentum_encoder",
)

_toy_motion = override(
    _toy_pixels,
    name="masked-toy-motion",
    about="How much hidden tubelets of the toy videos move, from frames; two minutes on one core",
    target="motion",
)

_videomae_k400 = Recipe(
    name="videomae-k400",
    about="VideoMAE with ViT-B on Kinetics-400: pixels of hidden tubes; 80.0 % after fine-tuning "
    "in the paper (table 1)",
    dataset="Kinetics-400",  # paper 4.1
    split=1,
    test_clips=5,  # paper 4.2: 5 clips x 3 crops
    view="rgb",
    # paper table 8: tubelets of 2 x 16 x 16, width 768, 12 blocks, 12 heads; its places
    backbone="vit_base_videomae",
    size=224,  # paper table 8
    sampling=Sampling(
        clips=1,
        # paper 3.3, table 8
        length=16,
        stride=4,
        # released code repeats the last frame of a short video
        pad="first",
        last="all",
        same=0.0,
    ),
    augment=Augment(
        # paper table 9: MultiScaleCrop. Released code, transforms.py: sides of 1, .875, .75, .66 of
        # the shorter side, the two at most one step apart, at one of 13 places. These are the
        # smallest and the largest of a frame of 4:3, drawn evenly and anywhere
        area=(0.327, 0.75),
        aspect=(0.857, 1.167),
        crop="torchvision",
        flip=0.5,  # paper table 9; released code, datasets.py: none
        # paper table 9, released code: no colours
        jitter=0.0,
        brightness=0.0,
        contrast=0.0,
        saturation=0.0,
        hue=0.0,
        grey=0.0,
        blur=0.0,
    ),
    method=MaskedSettings(
        target="pixels",
        # paper table 1 (b)
        mask="tube",
        mask_ratio=0.9,
        normalise=True,  # released code, engine_for_pretraining.py: of each tubelet and channel
        prediction_loss="l2",  # paper table 1 (f)
        # paper table 8, table 1 (a); heads: released code, modeling_pretrain.py
        predictor_dim=384,
        predictor_depth=4,
        predictor_heads=6,
        momentum=None,
        exported="encoder",
    ),
    learning=Learning(
        # paper table 9
        optimizer="adamw",
        betas=(0.9, 0.95),
        lr=6e-4,  # 1.5e-4 for 256 clips
        weight_decay=0.05,
        decay_bias=False,  # released code, optim_factory.py
        batch=1024,  # paper table 9; released script: 2048
        epochs=800,  # paper, appendix 7; tables 6 and 7 have more
        schedule="cosine",
        warmup=40.0,
        lr_floor=1 / 15,  # released code, run_mae_pretraining.py: 1e-5 of 1.5e-4
    ),
)

_videomae_k400_small = override(
    _videomae_k400,
    name="videomae-k400-small",
    about="VideoMAE with ViT-S on Kinetics-400: pixels of hidden tubes; 79.0 % after fine-tuning "
    "in the paper (table 7)",
    backbone="vit_small_videomae",
    # released code, modeling_pretrain.py
    predictor_dim=192,
    predictor_heads=3,
    epochs=1600,  # MODEL_ZOO.md, the released script
)

# "no flip": SSv2's classes tell left from right
_videomae_ssv2 = override(
    _videomae_k400,
    name="videomae-ssv2",
    about="VideoMAE with ViT-B on Something-Something V2: pixels of hidden tubes; 69.6 % after "
    "fine-tuning in the paper (table 1)",
    dataset="Something-Something V2",
    test_clips=2,  # paper 4.2: 2 clips x 3 crops
    stride=2,  # paper 3.3
    flip=0.0,  # paper table 9
)

_videomae_ssv2_small = override(
    _videomae_ssv2,
    name="videomae-ssv2-small",
    about="VideoMAE with ViT-S on Something-Something V2: pixels of hidden tubes; 66.8 % after "
    "fine-tuning in the paper (table 6)",
    backbone="vit_small_videomae",
    # released code, modeling_pretrain.py
    predictor_dim=192,
    predictor_heads=3,
    epochs=2400,  # MODEL_ZOO.md, the released script
)

# Its VideoMix2M is HowTo100M, Kinetics-400/600/700 and SSv2, 2 million videos (paper 3.4); the
# paper's table 2 has a training on Kinetics alone (700 thousand), with as many steps
_vjepa_k400 = override(
    _videomae_k400,
    name="vjepa-k400-vitl",
    about="V-JEPA with ViT-L on Kinetics-400, the part of its videos that is one dataset: features "
    "of hidden blocks; no paper gives a number for it",
    backbone="vit_large",  # paper 3.4
    test_clips=8,  # paper, appendix D.1
    # paper table 8
    area=(0.3, 1.0),
    aspect=(0.75, 1.35),
    flip=0.5,
    method=MaskedSettings(
        target="features",
        # paper 3.2, table 8
        mask="blocks",
        block_counts=(8, 2),
        block_shares=(0.15, 0.7),
        block_aspect=(0.75, 1.5),
        prediction_loss="l1",  # paper, equation 1
        # paper table 8, appendix C: as many heads as the encoder
        predictor_dim=384,
        predictor_depth=12,
        predictor_heads=16,
        # paper table 8: 0.998 to 1 in 112,500 steps, of which 90,000 are taken
        momentum=0.998,
        momentum_schedule="linear",
        momentum_end=0.9996,
        exported="momentum_encoder",  # released code: checkpoint_key: target_encoder
    ),
    # paper table 8 and appendix C: schedules of 112,500 steps, of which 90,000 are taken. What rate
    # and weight decay are there is computed from the released code, src/utils/schedulers.py
    lr=6.25e-4,
    betas=(0.9, 0.999),  # open
    lr_floor=0.12,
    weight_decay=0.04,
    weight_decay_end=0.366,
    clip_norm=10.0,  # released code: configs/pretrain/vitl16.yaml
    # 3072 in all (paper table 8): 24 on each of 8 GPUs, 16 times. Released code: 24 on each of 128
    # GPUs; there the masks of 24 clips are cut to one number of tokens, here those of 192
    batch=192,
    accumulate=16,
    epochs=1152,  # 90,000 steps of 240,000 videos
    warmup=153.6,  # 12,000 steps
)

publish(
    MaskedSettings,
    _toy_pixels,
    _toy_features,
    _toy_motion,
    _videomae_k400,
    _videomae_k400_small,
    _videomae_ssv2,
    _videomae_ssv2_small,
    _vjepa_k400,
)
