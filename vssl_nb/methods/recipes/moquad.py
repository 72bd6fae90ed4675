"""MoQuad: settings and recipes."""

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from ...fields import Count, Positive, RecipeError, Settings, Share
from ...config import Recipe, TrainingVideos, find, override, publish
from .refusals import refuse_batches


@dataclass(frozen=True, kw_only=True)
class MoQuadSettings(Settings):
    """Clips of the same video, disturbed, are positives and negatives; so are all clips of all
    others.
    """

    # own negatives: 'n' has another motion, 'nn' another motion and another appearance (Table 4)
    intra_negatives: tuple[Literal["n", "nn"], ...] = ("n", "nn")
    # weight of hard negatives and of the own ones (Eq. 4; section 4.1)
    alpha: Annotated[float, "[1, inf)"] = 1.5
    # share of the clips of other videos that are hard (Eq. 3; section 4.1); 0: no mining, and
    # no alpha
    beta: Share = 0.01
    # share of the training that it takes, at the beginning (Algorithm 1)
    appearance_task: Share = 0.2
    temperature: Positive = 0.1  # of the softmax (CVRL: 0.1)
    dim_hidden: Count | None = None  # of the projection; none: as wide as the feature
    dim: Count = 128  # of the space the loss compares in
    head: str = "projection"  # a name of `nets.heads.HEADS`, or 'package.module:name'
    name: ClassVar[str] = "moquad"
    method: ClassVar[str] = "vssl_nb.methods.moquad:MoQuad"

    @property
    def clips(self) -> tuple[str, ...]:  # anchor, positive, intra-negatives
        return ("a", "p", *self.intra_negatives)

    def refuse(self, recipe: Recipe, videos: TrainingVideos) -> None:
        "Names of clips, what is disturbed in them, and the batch must fit together. `RecipeError`."
        if self.intra_negatives not in ((), ("n",), ("nn",), ("n", "nn")):
            raise RecipeError(
                f"intra_negatives={self.intra_negatives} is not ('n', 'nn') or a part of it, "
                "in this order"
            )
        refuse_disturbances(self, recipe)
        refuse_batches(recipe)


def refuse_disturbances(
    settings: MoQuadSettings,
    recipe: Recipe,
) -> None:
    "Clips must be disturbed as their names say. `RecipeError`."
    own = settings.intra_negatives
    refuse_motion(settings, recipe)
    refuse_appearance(settings, recipe)

    if own and recipe.sampling.same:
        raise RecipeError(
            f"same={recipe.sampling.same} makes all clips of a video one window, and the own "
            "negatives equal to the anchor; use same=0"
        )
    two_speeds = recipe.sampling.motion == "speed" and "n" in own
    if settings.appearance_task and not two_speeds:
        raise RecipeError(
            f"appearance_task={settings.appearance_task} needs clips at two speeds, and here "
            f"motion={recipe.sampling.motion!r} with clips {', '.join(settings.clips)}; use "
            "appearance_task=0, or motion='speed' and n"
        )


def refuse_motion(
    settings: MoQuadSettings,
    recipe: Recipe,
) -> None:
    "The own negatives, and no other clips, have another motion. `RecipeError`."
    sampling = recipe.sampling
    own = settings.intra_negatives
    clips = tuple(settings.clips.index(name) for name in own)
    motion = "speed" if own else "none"
    if sampling.motion_clips != clips or (sampling.motion == "none") != (not own):
        raise RecipeError(
            f"intra_negatives={own} with motion={sampling.motion!r}, motion_clips="
            f"{sampling.motion_clips}: the own negatives, and no other clips, have another motion; "
            f"use motion={motion!r} and motion_clips={clips}"
        )


def refuse_appearance(
    settings: MoQuadSettings,
    recipe: Recipe,
) -> None:
    "Of nn the appearance is another, of p it may be. `RecipeError`."
    pixels = recipe.augment
    negatives = tuple(i for i, name in enumerate(settings.clips) if name == "nn")
    with_positive = (1, *negatives)
    if pixels.appearance_clips not in (negatives, with_positive):
        raise RecipeError(
            f"appearance_clips={pixels.appearance_clips} with clips {', '.join(settings.clips)}: "
            "nn always has another appearance, p may have, a and n never; use "
            f"{with_positive} or {negatives}"
        )
    if (pixels.appearance == "none") != (not pixels.appearance_clips):
        raise RecipeError(
            f"appearance={pixels.appearance!r} with appearance_clips={pixels.appearance_clips}: "
            "say what is mixed in and into which clips, or leave both out"
        )
    if pixels.appearance_clips and recipe.view == "flow":
        raise RecipeError(
            "view='flow' has no appearance to disturb; use view='rgb' or 'residual', or "
            "appearance='none' and appearance_clips=()"
        )


def _moquad(
    base: Recipe,  # of SimCLR or InfoNCE, for network, pixels and optimizer
    name: str,
    about: str,
    own: tuple[str, ...] = ("n", "nn"),  # intra-negatives
    disturbed: bool = True,  # has the positive another appearance?
    method: dict[str, Any] = {},  # settings that differ from the defaults
    strength: tuple[float, float] = (0.1, 0.5),  # section 3.1
    **learning,  # likewise
) -> Recipe:
    "Quadruples, with clips that are disturbed as their names say."
    settings = MoQuadSettings(**dict(intra_negatives=own) | method)
    appearance_clips = [i for i, clip in enumerate(settings.clips) if clip == "nn"]
    if disturbed:
        appearance_clips.insert(0, 1)
    return override(
        base,
        name=name,
        about=about,
        method=settings,
        clips=len(settings.clips),
        motion="speed" if own else "none",
        motion_clips=tuple(range(2, len(settings.clips))),
        speeds=(1, 2),  # RSPNet: 1 and 2
        # section 4.1
        appearance="rad_inter" if appearance_clips else "none",
        appearance_clips=tuple(appearance_clips),
        windows=5,
        strength=strength,
        **learning,
    )


# strength and rates: chosen on toy videos of one seed and contrast 0.15, see `benchmarks/moquad.py`
_TOY: dict[str, Any] = dict(strength=(0.3, 0.7), epochs=24)


def _rung(
    number: int,  # of the ladder, table 4
    words: str,
    own: tuple[str, ...],  # intra-negatives
    disturbed: bool = True,  # has the positive another appearance?
) -> Recipe:
    "A rung of the ladder of table 4 on the toy."
    return _moquad(
        find("infonce-toy-rgb"),
        f"moquad-toy-rung{number}",
        f"Ladder of MoQuad on the toy videos, rung {number}: {words}",
        own,
        disturbed,
        dict(beta=0.0, appearance_task=0.0),  # table 4 has neither
        lr=2e-3 if disturbed else 1e-3,
        **_TOY,
    )


def _paper(
    data: str,  # of the names: 'ucf101', 'k400' or 'ssv2'
    network: str,  # 'R3D-18', 'S3D-G' or 'R3D-50'
    row: str = "settings only: no number is given for it",
) -> Recipe:
    "A row of the paper."
    # its baseline: section 4.1, and CVRL's code, which repeats a short video (one that stood still
    # had no speed)
    dataset, epochs = _DATASETS[data]
    backbone = _BACKBONES[network]
    return _moquad(
        replace(find("simclr-ucf101-r3d18"), dataset=dataset, backbone=backbone),
        f"moquad-{data}-{backbone.removesuffix('_cvrl')}",
        f"MoQuad on {dataset} with {network} (paper, {row})",
        epochs=epochs,
    )


# title and epochs (section 4.1)
_DATASETS = {
    "ucf101": ("UCF101", 800),
    "k400": ("Kinetics-400", 200),
    "ssv2": ("Something-Something V2", 200),
}
_BACKBONES = {"R3D-18": "r3d18", "S3D-G": "s3dg", "R3D-50": "r3d50_cvrl"}

publish(
    MoQuadSettings,
    _moquad(
        find("infonce-toy-rgb"),
        "moquad-toy",
        "MoQuad on the toy videos: quadruples, hard negatives, and first the appearance task; some "
        "minutes on one core",
        **_TOY,
    ),
    _rung(0, "SimCLR, the base", (), disturbed=False),
    _rung(1, "and another appearance of the positive", ()),
    _rung(2, "and a negative of another motion", ("n",)),
    _rung(3, "and a negative of another motion and appearance", ("n", "nn")),
    # they have hard negatives and appearance task; of tables 2 and 3 the paper does not state it
    _paper("ucf101", "R3D-18", "tables 1, 4 to 6, perhaps 3"),
    _paper("ucf101", "S3D-G", "table 1"),
    _paper("ucf101", "R3D-50"),
    _paper("k400", "R3D-18", "tables 1, 4"),
    _paper("k400", "S3D-G", "table 1"),
    _paper("k400", "R3D-50", "table 1, perhaps 2"),
    _paper("ssv2", "R3D-18"),
    _paper("ssv2", "S3D-G"),
    _paper("ssv2", "R3D-50", "perhaps table 2"),
)
