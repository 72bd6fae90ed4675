"""UberNCE: settings and recipes."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from ...config import Recipe, TrainingVideos, find, override, publish
from ...fields import Index, RecipeError, Share
from .infonce import QueueSettings


@dataclass(frozen=True, kw_only=True)
class UberNCESettings(QueueSettings):
    "InfoNCE with a queue and labels as an oracle."

    # the loss: 'supcon' (released, b3) or 'mil_nce' (supplement, Algorithm 1)
    form: Literal["supcon", "mil_nce"] = "supcon"
    # probability of a step in which the own key is no positive where there are others (as CoCLR's)
    drop_own: Share = 0.0
    # keys of other recordings that count for each query, as if mined; 0: all of its class
    topk: Index = 0
    precision: Share = 1.0  # share of these that have the query's class
    name: ClassVar[str] = "ubernce"
    method: ClassVar[str] = "vssl_nb.methods.ubernce:UberNCE"
    needs_labels: ClassVar[bool] = True

    def refuse(self, recipe: Recipe, videos: TrainingVideos) -> None:
        "Keys that count must be in the queue. `RecipeError`."
        super().refuse(recipe, videos)
        if self.topk > self.queue:
            raise RecipeError(
                f"topk={self.topk} is more than queue={self.queue} holds; lower topk, or enlarge "
                "the queue"
            )
        if self.precision < 1 and not self.topk:
            raise RecipeError(
                f"precision={self.precision} is a share of topk keys, and topk=0 takes all of the "
                "class; use topk=20, or precision=1"
            )


def _ubernce(
    base: str,  # recipe of InfoNCE from which it is made
    name: str,
    about: str,
    method: dict[str, Any] = {},  # settings that differ from those of the base
    **learning,  # likewise
) -> Recipe:
    "UberNCE where InfoNCE has a recipe."
    infonce = find(base)
    settings = UberNCESettings(**vars(infonce.method) | method)
    return override(replace(infonce, method=settings), name=name, about=about, **learning)


# README of CPR:116-120, 2 GPUs x 16; CoCLR's has no command
_RELEASED: dict[str, Any] = dict(batch=32, epochs=300, drops=(240.0,))

publish(
    UberNCESettings,
    _ubernce(
        "infonce-ucf101-rgb",
        "ubernce-ucf101-rgb",
        "UberNCE on the frames of UCF101: InfoNCE with labels (released code)",
        **_RELEASED,
    ),
    _ubernce(
        "infonce-ucf101-flow",
        "ubernce-ucf101-flow",
        "UberNCE on the optical flow of UCF101 (released code)",
        **_RELEASED,
    ),
    _ubernce(
        "infonce-toy-rgb",
        "ubernce-toy-rgb",
        "UberNCE on the frames of the toy videos: what the right positives would give; "
        "begin with --init-from infonce-toy-rgb",
        dict(queue=512, form="mil_nce", temperature=0.05, momentum=0.98),
        epochs=28,
    ),
    _ubernce(
        "infonce-toyfull-rgb",
        "ubernce-toyfull-rgb",
        "UberNCE with S3D on the frames of the full-size toy; for a GPU; "
        "begin with --init-from infonce-toyfull-rgb",
        dict(form="mil_nce"),
        epochs=10,
        warmup=0.0,
    ),
)
