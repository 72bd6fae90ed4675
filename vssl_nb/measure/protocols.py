"What a number was measured on, as an object that prints what it does"

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.augmentation import JITTER, draw
from ..data.sampling import even_clips, random_clips, sliding_clips, windows
from ..arguments import one_of, positive
from ..data.manifest import Manifest
from ..names import did_you_mean, error_in_words, look_up
from ..config import read_fields, read_lines
from ..training.machine import DTYPES

CHOICES: dict[str, dict[str, str]] = {}  # field of a protocol -> its answers, in words
for _line in read_lines("measure/choices.csv"):
    CHOICES.setdefault(_line["field"], {})[_line["answer"]] = _line["words"]
CHOICES["dtype"] = dict.fromkeys(DTYPES, "under autocast; the mean in float32")
# squares of one window
SQUARES = {"centre": 1, "processor": 1, "three": 3, "five": 5, "ten": 10}


@dataclass(frozen=True)
class Protocol:
    """How a video becomes one feature, or one answer of a classifier, and how two features are
    compared.
    """

    name: str = "clean"  # what tables call it; changes nothing
    clips: int = 10  # windows per video; used by windows 'even' and 'linspace'
    windows: str = "even"  # where they lie in time; this and the other words: one of CHOICES
    length: int = 16  # frames of a clip
    stride: int = 1  # frames from one frame of a clip to the next
    size: int = 112  # side of the square that the encoder sees, pixels
    crops: str = "centre"  # which squares of a frame
    # side of a square: pixels or share of the shorter side; None: all, of 'five', 'ten' 14/15 (b10:
    # 224/240)
    crop: int | float | None = None
    pad: str = "first"  # what fills a video shorter than a clip: 'first' or 'loop'
    # which pictures of a video count; 'less': not the last; 'flow': one less of flow
    pictures: str = "all"
    clip_norm: bool = False  # L2-normalise the feature of each clip before the mean over clips
    # what is averaged over clips; 'softmax' and 'logits' are of a classifier
    average: str = "features"
    centre: str = "gallery"  # which mean is subtracted
    metric: str = "cosine"  # how two videos are compared; 'match' needs a Gaussian head
    gallery: str = "alike"  # the clips of a gallery video
    jitter: float = 0.0  # probability, 0 to 1, that the colours of a video are changed
    feature: str = "pooled"  # what is taken from the encoder
    short: str = "pad"  # what becomes of short videos
    # query and gallery are cut to whole batches of so many videos; 1 cuts nothing
    batch_of: int = 1
    seed: int = 0  # of the random clip, the colour changes and the points of a Gaussian
    # of the encoder's forward pass, as published; 'bfloat16' also goes into the name
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            one_of(tuple(known), **{name: getattr(self, name)})
        positive(
            **{
                name: getattr(self, name)
                for name in ("clips", "length", "stride", "size", "batch_of")
            }
        )

        def refuse(name, wanted):
            raise ValueError(f"{name} must be {wanted}, not {getattr(self, name)!r}")

        share = type(self.crop) is float and 0 < self.crop <= 1
        if not (self.crop is None or share or type(self.crop) is int and self.crop >= 1):
            refuse("crop", "a whole number of pixels, a share like 0.875, or None")
        if self.crops == "processor" and (self.crop is not None or self.jitter):
            raise ValueError(
                "crops='processor' leaves no room for crop and jitter; take crops='centre'"
            )
        if type(self.jitter) not in (int, float) or not 0 <= self.jitter <= 1:
            refuse("jitter", "a probability, 0 to 1")
        if type(self.seed) is not int or self.seed < 0:
            refuse("seed", "a whole number of at least 0")
        # in a table it must not pass for the protocol itself
        plain = self.name.removesuffix(", bfloat16")
        object.__setattr__(
            self, "name", plain if self.dtype == "float32" else f"{plain}, {self.dtype}"
        )

    @property
    def random(self) -> bool:
        return self.gallery == "random" or self.jitter > 0

    @property
    def side(self) -> int | float:  # of a square: pixels, or a share of the shorter side
        return (
            self.crop
            if self.crop is not None
            else 14 / 15
            if self.crops in ("five", "ten")
            else 1.0
        )

    def __str__(self) -> str:  # a line for each step
        p = self
        words = {name: known[getattr(p, name)] for name, known in CHOICES.items()}
        several = p.windows == "sliding" or p.windows != "middle" and p.clips > 1
        many = f"{p.clips} per video, " if p.windows in ("even", "linspace") else ""
        side, comma = p.side, "," if p.crops != "centre" else ""
        of_side = f"{side} px" if type(side) is int else f"{100 * side:.4g} % of the largest"
        squares = (
            "the largest centred square"
            if p.crops == "centre" and p.crop is None
            else f"{words['crops']}{comma} of {of_side}"
        )
        colour = (
            "no change of colour"
            if not p.jitter
            else "colours changed with probability "
            f"{p.jitter:g} (drawn from seed {p.seed}, row and square; alike in all clips of a "
            "video)"
        )
        one = (
            "its one clip"
            if p.average == "features"
            else words["average"].replace("clips", "one clip")
        )
        lines = [
            f"protocol {p.name}: gallery and query are {'not ' * (p.gallery != 'alike')}treated "
            "alike",
            "  clips     "
            + (many + words["windows"] if several else CHOICES["windows"]["middle"])
            + f"; {words['gallery']}, seed {p.seed}" * (p.gallery != "alike"),
            f"  frames    {p.length} per clip, "
            + ("every frame" if p.stride == 1 else f"one in {p.stride}")
            + f"; {words['short']} {words['pad']}"
            + f"; {words['pictures']}" * (p.pictures != "all"),
            f"  picture   {words['crops']}, {p.size} x {p.size}"
            if p.crops == "processor"
            else f"  picture   {squares}, scaled to {p.size} x {p.size}; "
            + ("mirrored as said" if p.crops == "ten" else "no flip")
            + f", {colour}",
            f"  clip      {words['feature']} of the encoder in eval mode, "
            + ("brought to length 1" if p.clip_norm else "of any length"),
            f"  video     {words['average'] if several or SQUARES[p.crops] > 1 else one}",
        ]
        if p.dtype != "float32":
            lines.append(f"  precision {p.dtype}, {words['dtype']}")
        if p.batch_of > 1:
            lines.append(
                f"  counted   whole batches of {p.batch_of} videos, in the order of "
                "the manifest; the rest of query and gallery is dropped"
            )
        compared = [f"  centring  {words['centre']}", f"  metric    {words['metric']}"]
        return "\n".join(lines + compared * (p.average == "features"))


PROTOCOLS = {
    line["name"]: Protocol(line["name"], **read_fields(line["fields"]))
    for line in read_lines("measure/protocols.csv")
}


def protocol(
    name: str | Protocol = "clean",  # one of PROTOCOLS, or 'package.module:name' of one's own
    **fields,  # what to change: length, stride, size, ...
) -> Protocol:
    "A protocol by name, with some of its fields changed; ValueError names the nearest."
    known = [*Protocol.__dataclass_fields__]
    for f in fields:
        if f not in known:
            raise ValueError(f"{f!r} is not a field of a protocol; {did_you_mean(f, known)}")
    if isinstance(name, Protocol):
        return replace(name, **fields)
    p = look_up(name, PROTOCOLS, "a protocol")
    if not isinstance(p, Protocol) and callable(p):
        try:
            p = p()
        except (Exception, SystemExit) as e:
            raise ValueError(
                f"{name}: name a Protocol, or a function that "
                f"returns one without arguments; this one fails: {error_in_words(e)}"
            ) from e
    if not isinstance(p, Protocol):
        raise ValueError(
            f"{name}: is {type(p).__name__}, not a Protocol or a function that returns one"
        )
    # one's own that took no name of its own must not pass for one of ours in a table
    if name not in PROTOCOLS and p.name in PROTOCOLS:
        p = replace(p, name=name)
    return replace(p, **fields)


def pictures(
    protocol: Protocol,
    frames: int,  # of the video
    flow: bool = False,  # is the video seen as flow?
) -> int:
    "How many pictures of a video count under a protocol."
    return max(frames - (protocol.pictures == "less" or flow and protocol.pictures == "flow"), 1)


def clip_frames(
    protocol: Protocol,
    frames: int,  # of the video
    row: int = 0,  # of the manifest: a random clip depends on it
    role: str = "query",  # 'query' or 'gallery'
    flow: bool = False,  # is the video seen as flow?
) -> np.ndarray:  # (n, T) frame numbers
    "Which frames the windows of a video take under a protocol."
    p, frames = protocol, pictures(protocol, frames, flow)
    clip: dict[str, Any] = dict(length=p.length, stride=p.stride, pad=p.pad)
    if role == "gallery" and p.gallery == "random":
        return random_clips(
            frames, np.random.default_rng((p.seed, row, 0)), clips=1, last="released", **clip
        )
    if p.windows == "sliding":
        return sliding_clips(frames, **clip)
    # around even centres, truncated as released (b11); all alike in a short video
    if p.windows == "linspace":
        half = ((p.length - 1) * p.stride + 1) / 2
        start = (np.linspace(half, frames - half, p.clips) - half).astype(int)
        return windows(np.maximum(start, 0), frames, **clip)
    return even_clips(frames, clips=1 if p.windows == "middle" else p.clips, **clip)


def crop_boxes(
    protocol: Protocol,
    height: int,  # of the video, pixels
    width: int,  # of the video, pixels
    # returns: (C, 4) long: top, left, height, width, pixels; (C,) bool: mirrored
) -> tuple[Tensor, Tensor]:
    """The squares that every window is cut into, in the released order; ValueError where they do
    not fit.
    """
    if protocol.crops == "processor":
        return torch.tensor([(0, 0, height, width)]), torch.tensor([False])
    p, short, share = protocol, min(height, width), protocol.side
    side = share if type(share) is int else max(round(short * share), 1)
    if side > short:
        raise ValueError(
            f"crop={p.crop!r} does not fit a frame of {width}x{height} px; "
            f"use 1 to {short}, or none"
        )
    down, right = height - side, width - side
    middle = (round(down / 2), round(right / 2))  # as torchvision and C augmentation.py:56 cut it
    if p.crops == "centre":
        places = [middle]
    elif p.crops == "three":
        places = [
            (middle[0], round(right * i / 2))
            if width >= height
            else (round(down * i / 2), middle[1])
            for i in range(3)
        ]
    else:
        places = [middle, (0, 0), (0, right), (down, 0), (down, right)]
    # the same squares of the mirrored frame (released code b10)
    mirrored = [(top, right - left) for top, left in places] * (p.crops == "ten")
    flips = [False] * len(places) + [True] * len(mirrored)
    return torch.tensor([(*place, side, side) for place in places + mirrored]), torch.tensor(flips)


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
    p, rng = protocol, np.random.default_rng((protocol.seed, row, 1, square))
    drawn = draw(
        rng,
        1,
        p.length,
        height,
        width,
        size=p.size,
        flip=0.0,
        jitter=p.jitter,
        brightness=0.2,
        contrast=0.2,
        saturation=0.2,
        hue=0.1,
        grey=0.0,
        blur=0.0,
    )
    return {k: drawn[k] for k in (*JITTER, "order")}


def counted(
    manifest: Manifest,
    part: str = "test",  # 'train', 'test' or 'all'
    split: int = 1,  # 1, 2 or 3
    protocol: Protocol = PROTOCOLS["clean"],
    flow: bool = False,  # are the videos seen as flow?
) -> tuple[list[int], dict[int, str]]:  # rows; row -> why it is not counted
    """The videos of a part of a split that a protocol looks at; ManifestError where the split has
    none.
    """
    rows, p, left = manifest.select(part, split), protocol, dict[int, str]()
    if p.short == "drop":  # b7
        least = p.length // 2 * p.stride + 1
        left = {
            r: "not longer than half a clip, which this protocol leaves out"
            for r in rows
            if pictures(p, manifest.rows[r].frames, flow) <= least
        }
    rows = [r for r in rows if r not in left]
    rest = len(rows) % p.batch_of if part != "all" else 0  # batches are of a part
    left |= {
        r: f"in the last, incomplete batch of {p.batch_of}, which this protocol leaves out"
        for r in rows[len(rows) - rest :]
    }
    rows = rows[: len(rows) - rest]
    if not rows:
        raise ValueError(
            f"{manifest.path}: no video is left in '{part}' of split {split} "
            f"under the protocol {p.name}: {next(iter(left.values()))}"
        )
    return rows, left
