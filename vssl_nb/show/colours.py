"Colours that mean something: of flow, of classes, of right and wrong."

from collections.abc import Iterable
from typing import Any

import numpy as np
from PIL import ImageColor

from .pixels import as_array

GREEN, RED = (40, 160, 60), (210, 50, 40)  # of a neighbour of the same class, and of another
CLASS_HUES = (
    "#1f77b4",
    "#ff7f0e",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#bcbd22",
    "#17becf",
    "#26326e",
)
UNLABELLED = "#7f7f7f"


def class_colours(
    labels: Iterable,  # all classes of a dataset, in any order
) -> dict:  # '#rrggbb' of each
    "The colour of each class, the same in every picture."
    known = sorted({*(labels.tolist() if hasattr(labels, "tolist") else labels)} - {"", -1})
    colours = {"": UNLABELLED, -1: UNLABELLED}
    for i, label in enumerate(known):
        colours[label] = _class_shade(label if isinstance(label, int) else i)
    return colours


def _class_shade(
    i: int,  # number of a class
) -> str:  # '#rrggbb'
    "One of eight hues, then half way to white, then half way to black."
    base = np.array(ImageColor.getrgb(CLASS_HUES[i % 8]))
    towards = (None, 255, 0)[i // 8 % 3]
    if towards is not None:
        base = (base + towards) // 2
    return "#%02x%02x%02x" % tuple(base)


_CORNERS = 255 * np.array(
    [(1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 1, 1), (0, 0, 1), (1, 0, 1), (1, 0, 0)]
)
HUES = np.concatenate(
    [
        a + np.floor(255 * np.arange(n) / n)[:, None] * ((b - a) / 255)  # (55, 3)
        for n, a, b in zip((15, 6, 4, 11, 13, 6), _CORNERS, _CORNERS[1:])
    ]
)


def flow_colour(
    # (..., 2, H, W) float, pixels: u to the right, v down; array or tensor, on any device
    flow: Any,
    # px > 0, the length in full colour; None = the longest in `flow`
    most: float | None = None,
) -> np.ndarray:  # (..., H, W, 3) uint8
    "Flow as the colours of Baker et al. (IJCV 2011): hue = direction, saturation = length."
    if most is not None and not 0 < most < np.inf:
        raise ValueError(
            f"flow_colour: most is {most}; give a length above 0 px, or None for the longest"
        )
    x = as_array(flow)
    if x.ndim < 3 or x.shape[-3] != 2 or x.dtype.kind != "f":
        raise ValueError(
            f"flow to show is (..., 2, H, W) float, in pixels, not {x.shape} {x.dtype}; "
            "bytes (128, v, u) become pixels with `views.image_to_flow`"
        )

    known = (np.abs(x) <= 1e9).all(-3)
    u, v = (np.where(known, x[..., i, :, :].astype(float), 0) for i in (0, 1))
    length = np.hypot(u, v)
    place = np.arctan2(v, u) / (2 * np.pi) % 1 * (len(HUES) - 1)
    low = place.astype(int)
    hue = HUES[low] + (place - low)[..., None] * (HUES[(low + 1) % len(HUES)] - HUES[low])

    share = length[..., None] / (most or length.max(initial=0) or 1)
    # 1e-6: float32 may make a length of `most` a little longer
    within = share <= 1 + 1e-6
    colour = np.where(within, 255 - np.minimum(share, 1) * (255 - hue), 0.75 * hue)
    return np.where(known[..., None], np.floor(colour), 0).astype(np.uint8)
