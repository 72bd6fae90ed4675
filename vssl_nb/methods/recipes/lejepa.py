"""LeJEPA: settings and recipes."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from ...config import ClipGroup, Recipe, TrainingVideos, find, override, publish
from ...fields import Count, Index, Positive, RecipeError, Settings, Share
from .refusals import refuse_batches


@dataclass(frozen=True, kw_only=True)
class LeJEPASettings(Settings):
    "A Gaussian cloud in place of negatives: one encoder, clips of two sizes."

    tradeoff: Share = 0.05  # lambda, the weight of SIGReg (LeJEPA 6.1)
    slices: Count = 1024  # random lines, new ones in each step (6.1; Algorithm 1 has 256)
    # the integral goes from -t_max to t_max (6.1, Algorithm 1; released code: 3)
    t_max: Positive = 5.0
    # of 0 .. t_max; those below 0 follow. 9: the 17 of Algorithm 1; released code: 17
    knots: Annotated[int, "[2, inf)"] = 9
    # whose mean is predicted (Algorithm 2; 'all': minimal example)
    centre: Literal["global", "all"] = "global"
    global_clips: Count = 2  # V_g, of the size of the recipe (6.1)
    # V - V_g (README, experiment details; 6.1 recommends 8); 0 for ResNets (Algorithm 2)
    local_clips: Index = 6
    local_length: Count = 16  # frames
    local_stride: Count = 1
    local_size: Count = 96  # side, pixels (experiment details; README: 98)
    # share of the frame (README)
    local_area: tuple[Annotated[float, "(0, 1]"], Annotated[float, "(0, 1]"]] = (0.05, 0.3)
    dim: Count = 256  # of an embedding (LeVJEPA's configuration)
    dim_hidden: Count | None = 2048  # (the same)
    head: str = "mlp"  # that makes it, a name of `nets.heads.HEADS`; LeVJEPA's has GELU
    name: ClassVar[str] = "lejepa"
    method: ClassVar[str] = "vssl_nb.methods.lejepa:LeJEPA"

    @property
    def clips(self) -> tuple[str, ...]:
        return tuple(str(n + 1) for n in range(self.global_clips))

    @property
    def clip_groups(self) -> dict[str, ClipGroup]:
        "The small clips."
        if not self.local_clips:
            return {}

        local = ClipGroup(
            clips=self.local_clips,
            length=self.local_length,
            stride=self.local_stride,
            size=self.local_size,
            area=self.local_area,
        )
        return {"local": local}

    def refuse(self, recipe: Recipe, videos: TrainingVideos) -> None:
        "A cloud has many points, all of one batch. `RecipeError`."
        refuse_batches(recipe)
        if self.global_clips + self.local_clips == 1:
            raise RecipeError(
                "a single clip has nothing to predict; use local_clips=2 or global_clips=2"
            )


# ours
_TOY = LeJEPASettings(
    slices=256,
    local_clips=0,
    local_length=8,
    local_size=16,
    local_area=(0.2, 0.5),
    dim=16,
    dim_hidden=64,
)


def _lejepa_toy(
    view: str,  # 'rgb' or 'residual'
    name: str,
    words: str,  # what it learns from, and how long that takes
) -> Recipe:
    "LeJEPA where InfoNCE has its recipe on the toy."
    return override(
        find(f"infonce-toy-{view}"),
        name=name,
        about=f"LeJEPA on {words} on one core",
        lr=5e-3,  # ours
        method=_TOY,
    )


_toy_residual = _lejepa_toy(
    "residual", "lejepa-toy-residual", "the frame differences of the toy videos; less than a minute"
)

_toy_vit = override(
    _toy_residual,
    name="lejepa-toy-vit",
    about="LeJEPA with a transformer on the frame differences of the toy videos; about a minute on "
    "one core",
    backbone="vit_toy",
    optimizer="adamw",
    lr=1.5e-3,
    weight_decay=0.05,
    local_clips=2,
)

_ucf101 = override(
    find("infonce-ucf101-rgb"),
    name="lejepa-ucf101-r3d18",
    about="LeJEPA on UCF101: R3D-18, no local clips, clips and epochs of SimCLR's baseline; no "
    "paper gives a number for it",
    # those of SimCLR's baseline
    backbone="r3d18",
    size=224,
    length=16,
    pad="loop",
    last="all",
    same=0.0,
    # LeJEPA's README; without its solarisation
    area=(0.3, 1.0),
    colour="all",
    crop="torchvision",
    saturation=0.2,
    grey_mode="clip",
    method=LeJEPASettings(local_clips=0),  # Algorithm 2: a ResNet has global views only
    # LeJEPA's README: AdamW, 5e-4, 5e-4 for ResNets; epochs and batch of SimCLR's baseline
    optimizer="adamw",
    lr=5e-4,
    weight_decay=5e-4,
    batch=256,
    epochs=800,
    schedule="cosine",
    drops=(),
    warmup=10.0,
)

_k400_vit = override(
    _ucf101,
    name="lejepa-k400-vit",
    about="LeJEPA with ViT-S/16 on Kinetics-400, with LeVJEPA's clips and weight; no paper gives a "
    "number for it",
    dataset="Kinetics-400",
    # LeVJEPA: 7.5 frames a second
    backbone="vit_small",
    clips=1,
    stride=4,
    area=(0.8, 1.0),
    blur=0.0,
    # LeVJEPA's configuration
    method=LeJEPASettings(
        tradeoff=0.02,
        t_max=3.0,
        knots=17,
        global_clips=1,
        local_clips=10,
        local_stride=4,
        local_area=(0.02, 0.4),
    ),
    # LeJEPA's README for ViTs, and its 100 epochs
    weight_decay=0.05,
    decay_bias=False,
    epochs=100,
)

publish(
    LeJEPASettings,
    _lejepa_toy("rgb", "lejepa-toy", "the frames of the toy videos; about a minute"),
    _toy_residual,
    _toy_vit,
    _ucf101,
    _k400_vit,
)
