"UberNCE: settings and recipes."

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from ...config import Recipe, publish, find, override
from .infonce import QueueSettings


@dataclass(frozen=True, kw_only=True)
class UberNCESettings(QueueSettings):
    "InfoNCE with a queue and labels as an oracle."

    # the loss: 'supcon' (released, b3) or 'mil_nce' (supplement, Algorithm 1)
    form: Literal["supcon", "mil_nce"] = "supcon"
    name: ClassVar[str] = "ubernce"
    method: ClassVar[str] = "vssl_nb.methods.ubernce:UberNCE"
    needs_labels: ClassVar[bool] = True


def _uber(
    base: str,  # one of InfoNCE, from which it is made
    name: str,
    about: str,
    method: dict[str, Any] = {},
    **learning,
) -> Recipe:
    r = find(base)
    r = replace(r, method=UberNCESettings(**vars(r.method) | method))
    return override(r, name=name, about=about, **learning)


publish(
    UberNCESettings,
    *(
        _uber(
            f"infonce-ucf101-{view}",
            f"ubernce-ucf101-{view}",
            about,
            # README of CPR:116-120, 2 GPUs x 16; CoCLR's has no command
            batch=32,
            epochs=300,
            drops=(240.0,),
        )
        for view, about in (
            ("rgb", "UberNCE on the frames of UCF101: InfoNCE with labels (released code)"),
            ("flow", "UberNCE on the optical flow of UCF101 (released code)"),
        )
    ),
    _uber(
        "infonce-toy-rgb",
        "ubernce-toy-rgb",
        "UberNCE on the frames of the toy videos: what the right positives would give; "
        "begin with --init-from infonce-toy-rgb",
        dict(queue=512, form="mil_nce", temperature=0.05, momentum=0.98),
        epochs=28,
    ),
    _uber(
        "infonce-toyfull-rgb",
        "ubernce-toyfull-rgb",
        "UberNCE with S3D on the frames of the full-size toy; for a GPU; "
        "begin with --init-from infonce-toyfull-rgb",
        dict(form="mil_nce"),
        epochs=10,
        warmup=0.0,
    ),
)
