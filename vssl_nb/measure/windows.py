"Which frames, squares and colours of a video a protocol shows to the encoder"

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from ..data.augmentation import JITTER, draw
from ..data.manifest import Row
from ..data.sampling import even_clips, random_clips, sliding_clips, windows
from .protocols import Protocol, pictures


def clip_frames(
    protocol: Protocol,
    frames: int,  # of the video
    row: int = 0,  # of the manifest: a random clip depends on it
    role: str = "query",  # 'query' or 'gallery'
    flow: bool = False,  # is the video seen as flow?
) -> np.ndarray:  # (n, T) frame numbers
    "Which frames the windows of a video take under a protocol."
    p = protocol
    frames = pictures(p, frames, flow)
    if role == "gallery" and p.gallery == "random":
        rng = np.random.default_rng((p.seed, row, 0))
        return random_clips(
            frames, rng, clips=1, length=p.length, stride=p.stride, pad=p.pad, last="released"
        )
    if p.windows == "sliding":
        return sliding_clips(frames, length=p.length, stride=p.stride, pad=p.pad)
    # Temporal Segment Networks (Wang et al. 2016, section 3.1), without chance
    if p.windows == "sparse":
        spread = even_clips(frames, clips=p.clips * p.length, length=1)
        return spread.reshape(p.clips, p.length)
    # around even centres, truncated as released (b11); all alike in a short video
    if p.windows == "linspace":
        half = ((p.length - 1) * p.stride + 1) / 2
        start = (np.linspace(half, frames - half, p.clips) - half).astype(int)
        return windows(np.maximum(start, 0), frames, length=p.length, stride=p.stride, pad=p.pad)
    clips = 1 if p.windows == "middle" else p.clips
    return even_clips(frames, clips=clips, length=p.length, stride=p.stride, pad=p.pad)


def refuse_repeated_clips(
    protocol: Protocol,
    videos: Iterable[Row],  # that it will look at; no more are read than it takes
    usual: int = Protocol().clips,  # so many clips are never refused
    flow: bool = False,  # are the videos seen as flow?
) -> None:
    "ValueError where clips can only repeat: where there are more than every video has."
    p = protocol
    if p.windows not in ("even", "linspace", "sparse") or p.clips <= usual:
        return
    span = 1 if p.windows == "sparse" else (p.length - 1) * p.stride + 1
    longest = Row("")
    most = 0  # different clips of the longest
    for row in videos:
        if row.status == "ok" and row.frames > longest.frames:
            longest = row
            most = max(pictures(p, row.frames, flow) - span, 0) + 1
        if most >= p.clips:
            return
    if most:
        raise ValueError(
            f"clips={p.clips} are more than any video has: in the longest, {longest.video} "
            f"({longest.frames} frames), a clip of {span} frames can begin at {most} of its "
            f"frames; clips={max(most, usual)} fits"
        )


def crop_boxes(
    protocol: Protocol,
    height: int,  # of the video, pixels
    width: int,  # of the video, pixels
    # returns: (C, 4) long: top, left, height, width, pixels; (C,) bool: mirrored
) -> tuple[Tensor, Tensor]:
    """The squares that every window is cut into, in the released order; ValueError where they do
    not fit.
    """
    p = protocol
    if p.crops == "processor":
        return torch.tensor([(0, 0, height, width)]), torch.tensor([False])
    side = _side_in_pixels(p, height, width)
    down = height - side
    right = width - side
    top, left = round(down / 2), round(right / 2)  # as torchvision and C augmentation.py:56 cut it
    if p.crops == "centre":
        corners = [(top, left)]
    elif p.crops == "three" and width >= height:
        corners = [(top, round(right * i / 2)) for i in range(3)]
    elif p.crops == "three":
        corners = [(round(down * i / 2), left) for i in range(3)]
    else:
        corners = [(top, left), (0, 0), (0, right), (down, 0), (down, right)]

    flips = [False] * len(corners)
    if p.crops == "ten":
        # the same squares of the mirrored frame (released code b10)
        flips += [True] * len(corners)
        corners += [(top, right - left) for top, left in corners]
    boxes = [(top, left, side, side) for top, left in corners]
    return torch.tensor(boxes), torch.tensor(flips)


def _side_in_pixels(
    protocol: Protocol,
    height: int,  # of the video, pixels
    width: int,  # of the video, pixels
) -> int:
    "The side of a square; ValueError where the video is smaller."
    short = min(height, width)
    side = protocol.side
    if not isinstance(side, int):
        side = max(round(short * side), 1)
    if side > short:
        raise ValueError(
            f"crop={protocol.crop!r} does not fit a frame of {width}x{height} px; use 1 to "
            f"{short}, or none"
        )
    return side


def colour_change(
    protocol: Protocol,
    row: int,  # of the manifest
    square: int,  # its number in `crop_boxes`
    height: int,  # pixels
    width: int,  # pixels
) -> dict[str, Tensor]:  # for `clips.apply`, with a leading axis of 1
    """The change of colours of a video: brightness, contrast, saturation .2, hue .1 (b10), in
    random order.
    """
    drawn = draw(
        np.random.default_rng((protocol.seed, row, 1, square)),
        1,
        protocol.length,
        height,
        width,
        size=protocol.size,
        flip=0.0,
        jitter=protocol.jitter,
        brightness=0.2,
        contrast=0.2,
        saturation=0.2,
        hue=0.1,
        grey=0.0,
        blur=0.0,
    )
    return {name: drawn[name] for name in (*JITTER, "order")}
