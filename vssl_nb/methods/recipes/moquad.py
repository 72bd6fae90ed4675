"MoQuad: settings and recipes."

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from ...config import (
    Count,
    Positive,
    Recipe,
    RecipeError,
    Settings,
    Share,
    TrainingVideos,
    publish,
    find,
    override,
)
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
    # share of the clips of other videos that are hard (Eq. 3; section 4.1); 0: no mining, and no
    # alpha
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
    # anchor, positive
    def clips(self) -> tuple[str, ...]:
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


def refuse_disturbances(settings: "MoQuadSettings", recipe: Recipe) -> None:
    "Clips must be disturbed as their names say. `RecipeError`."
    sampling, pixels, own = recipe.sampling, recipe.augment, settings.intra_negatives
    place = {name: i for i, name in enumerate(settings.clips)}
    wanted, looks = tuple(place[n] for n in own), tuple(place[n] for n in own if n == "nn")
    if sampling.motion_clips != wanted or (sampling.motion == "none") != (not own):
        raise RecipeError(
            f"intra_negatives={own} with motion={sampling.motion!r}, motion_clips="
            f"{sampling.motion_clips}: the own negatives, and no other clips, have another "
            "motion; use "
            f"motion={'speed' if own else 'none'!r} and motion_clips={wanted}"
        )
    if pixels.appearance_clips not in (looks, (1, *looks)):
        raise RecipeError(
            f"appearance_clips={pixels.appearance_clips} with clips "
            f"{', '.join(settings.clips)}: nn always has another appearance, p may have, a and n "
            "never; "
            f"use {(1, *looks)} or {looks}"
        )
    if (pixels.appearance == "none") != (not pixels.appearance_clips):
        raise RecipeError(
            f"appearance={pixels.appearance!r} with appearance_clips="
            f"{pixels.appearance_clips}: say what is mixed in and into which clips, or leave both "
            "out"
        )
    if pixels.appearance_clips and recipe.view == "flow":
        raise RecipeError(
            "view='flow' has no appearance to disturb; use view='rgb' or 'residual', "
            "or appearance='none' and appearance_clips=()"
        )
    if own and sampling.same:
        raise RecipeError(
            f"same={sampling.same} makes all clips of a video one window, and the own "
            "negatives equal to the anchor; use same=0"
        )
    if settings.appearance_task and (sampling.motion != "speed" or "n" not in own):
        raise RecipeError(
            f"appearance_task={settings.appearance_task} needs clips at two speeds, and here "
            f"motion={sampling.motion!r} with clips {', '.join(settings.clips)}; use "
            "appearance_task=0, or "
            "motion='speed' and n"
        )


def _moquad(
    r: Recipe,
    name: str,
    about: str,
    own: tuple[str, ...] = ("n", "nn"),
    disturbed: bool = True,
    method: dict[str, Any] = {},
    strength: tuple[float, float] = (0.1, 0.5),  # section 3.1
    **learning,
) -> Recipe:  # `disturbed`: has the positive another appearance?
    settings = MoQuadSettings(**(dict(intra_negatives=own) | method))
    looks = (1,) * disturbed + tuple(i for i, n in enumerate(settings.clips) if n == "nn")
    return override(
        r,
        name=name,
        about=about,
        method=settings,
        clips=len(settings.clips),
        motion="speed" if own else "none",
        motion_clips=tuple(range(2, len(settings.clips))),
        speeds=(1, 2),  # RSPNet: 1 and 2
        # section 4.1
        appearance="rad_inter" if looks else "none",
        appearance_clips=looks,
        windows=5,
        strength=strength,
        **learning,
    )


# the recipes have hard negatives and appearance task; of tables 2 and 3 the paper does not state it
_MOQUAD_ROWS = {
    ("ucf101", "R3D-18"): "tables 1, 4 to 6, perhaps 3",
    ("ucf101", "S3D-G"): "table 1",
    ("k400", "R3D-18"): "tables 1, 4",
    ("k400", "S3D-G"): "table 1",
    ("k400", "R3D-50"): "table 1, perhaps 2",
    ("ssv2", "R3D-50"): "perhaps table 2",
}
_PLAIN = dict(beta=0.0, appearance_task=0.0)  # table 4 has neither
_RUNGS = (
    ("SimCLR, the base", (), False),
    ("and another appearance of the positive", (), True),
    ("and a negative of another motion", ("n",), True),
    ("and a negative of another motion and appearance", ("n", "nn"), True),
)
# strength and rates: chosen on toy videos of one seed and contrast 0.15, see `benchmarks/moquad.py`
_MOQUAD = [
    _moquad(
        find("infonce-toy-rgb"),
        "moquad-toy",
        "MoQuad on the toy videos: quadruples, hard "
        "negatives, and first the appearance task; some minutes on one core",
        strength=(0.3, 0.7),
        epochs=24,
    )
]
_MOQUAD += [
    _moquad(
        find("infonce-toy-rgb"),
        f"moquad-toy-rung{i}",
        f"Ladder of MoQuad on the toy videos, rung {i}: {words}",
        own,
        disturbed,
        _PLAIN,
        strength=(0.3, 0.7),
        epochs=24,
        lr=2e-3 if disturbed else 1e-3,
    )
    for i, (words, own, disturbed) in enumerate(_RUNGS)
]
# its baseline: section 4.1, and CVRL's code, which repeats a short video (one that stood still had
# no speed)
_MOQUAD_PAPER = find("simclr-ucf101-r3d18")
_MOQUAD += [
    _moquad(
        replace(_MOQUAD_PAPER, dataset=dataset, backbone=net),
        f"moquad-{short}-{net.removesuffix('_cvrl')}",
        f"MoQuad on {dataset} with {words} (paper, {row})",
        epochs=epochs,
    )
    for short, dataset, epochs in (
        ("ucf101", "UCF101", 800),
        ("k400", "Kinetics-400", 200),
        ("ssv2", "Something-Something V2", 200),
    )  # section 4.1
    for net, words in (("r3d18", "R3D-18"), ("s3dg", "S3D-G"), ("r3d50_cvrl", "R3D-50"))
    for row in (_MOQUAD_ROWS.get((short, words), "settings only: no number is given for it"),)
]
publish(MoQuadSettings, *_MOQUAD)
