"The frames of clips as arrays of pixels: cut from tensors, scaled, framed, labelled and joined."

import math
from typing import Any

import matplotlib
import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont


def as_array(
    x: Any,  # numbers in an array, in lists, or in a tensor on any device
) -> np.ndarray:
    "Numbers as NumPy has them."
    if not hasattr(x, "detach"):
        return np.asarray(x)
    if "bfloat16" in str(x.dtype):  # which NumPy lacks
        x = x.float()
    return np.asarray(x.detach().cpu())


def frames_of(
    # (T, H, W, 3) uint8, or (3, T, H, W) float of any scale; array or tensor, on any device
    clip: Any,
) -> np.ndarray:  # (T, H, W, 3) uint8
    "The frames of a clip, ready to be looked at."
    x = as_array(clip)
    if x.ndim == 4 and x.shape[3] == 3 and x.dtype == np.uint8:
        return x
    if x.ndim != 4 or x.shape[0] != 3 or x.dtype.kind != "f":
        raise ValueError(
            f"a clip to show is (T, H, W, 3) uint8 or (3, T, H, W) float, not {x.shape} {x.dtype}"
        )
    x = x.astype(np.float32)
    x = (x - x.min()) / max(float(x.max() - x.min()), 1e-6)
    return (255 * x).round().astype(np.uint8).transpose(1, 2, 3, 0)


def strip(
    clip: Any,  # (T, H, W, 3) uint8 or (3, T, H, W) float
    every: int = 1,  # keep one frame in this many
) -> Image.Image:  # ceil(T/every)*W pixels wide, H high
    "The frames of a clip side by side, in order of time from left to right."
    return Image.fromarray(np.concatenate(list(frames_of(clip)[::every]), 1))


def check_titles(
    name: str,  # of the function that shows them
    shown: list,
    titles: list[str],
) -> None:
    "ValueError unless there is a title for each, and something to show."
    if len(shown) != len(titles) or not shown:
        raise ValueError(
            f"{name} with {len(titles)} titles, but {len(shown)} to show; give one title for each"
        )


def rgb(
    colour: Any,  # '#rrggbb', a name, or (r, g, b)
) -> tuple:  # (r, g, b), 0-255
    "A colour by its channels."
    return ImageColor.getrgb(colour) if isinstance(colour, str) else (*colour,)


def text_frame(
    words: str,
    ink: str = "black",
    paper: str = "white",
) -> np.ndarray:  # (1, h, w, 3) uint8, letters of 11 px
    "Words as a clip of one frame."
    font = ImageFont.truetype(f"{matplotlib.get_data_path()}/fonts/ttf/DejaVuSans.ttf", 11)
    tall = "\n".join(["Ay"] * (1 + words.count("\n")))  # as high whatever the letters are
    measure = ImageDraw.Draw(Image.new("RGB", (1, 1))).multiline_textbbox
    right = measure((0, 0), words, font)[2]
    bottom = measure((0, 0), tall, font)[3]
    image = Image.new("RGB", (math.ceil(right) + 5, math.ceil(bottom) + 4), paper)
    ImageDraw.Draw(image).multiline_text((2, 1), words, ink, font, align="center")
    return np.asarray(image)[None]


def scaled(
    x: np.ndarray,  # (T, H, W, 3)
    side: int,  # px
) -> np.ndarray:  # frames whose longer side is `side` px, or a little less
    "Frames of another size."
    h, w = x.shape[1:3]
    factor = side // max(h, w)
    # small ones grow by a whole factor and stay sharp
    if factor:
        return x.repeat(factor, 1).repeat(factor, 2)
    size = max(1, round(w * side / max(h, w))), max(1, round(h * side / max(h, w)))
    frames = [Image.fromarray(frame).resize(size, Image.Resampling.LANCZOS) for frame in x]
    return np.stack([np.asarray(frame) for frame in frames])


def framed(
    x: np.ndarray,  # (T, H, W, 3)
    colour: Any,  # of the border, as of `rgb`
    width: int = 3,  # px
) -> np.ndarray:  # (T, H + 2 width, W + 2 width, 3)
    "Frames with a border."
    out = np.empty((len(x), x.shape[1] + 2 * width, x.shape[2] + 2 * width, 3), np.uint8)
    out[:] = rgb(colour)
    out[:, width:-width, width:-width] = x
    return out


def joined(
    parts: list,  # clips; what has one frame stands still
    axis: int,  # 1: below each other, 2: beside each other
    gap: int = 0,  # px between them
    centre: bool = False,  # else at the left, or at the top
) -> np.ndarray:  # (T, H, W, 3)
    "Clips as one, on white."
    T = max(map(len, parts))
    across = 3 - axis
    size = max(part.shape[across] for part in parts)
    out = []
    for i, part in enumerate(parts):
        lacks = size - part.shape[across]
        before = lacks // 2 if centre else 0
        pad = [(0, 0)] * 4
        pad[across] = (before, lacks - before)
        pad[axis] = (0, gap if i + 1 < len(parts) else 0)
        padded = np.pad(part, pad, constant_values=255)
        out.append(np.broadcast_to(padded, (T, *padded.shape[1:])))
    return np.concatenate(out, axis)
