"""A look at a video that is small enough to keep: some frames in colour that play, and the course
of its grey values, by which two files with the same pictures are known.
"""

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from .video import Probe, VideoError, crop_resize, decode, probe

STRIP_PICTURES = 8  # that play
PLAYED_SECONDS = 2.0  # that they show at most, from the middle of the video
GREY_SIDE = 16  # px
GREY_FRAMES = 300  # from the beginning of the video
# what is compared of two videos: so many moments a second
MOMENTS = 12.0
# what two videos with the same pictures have at least, see `same_pictures`. Measured: copies of
# real clips in other sizes, qualities and cuts have 0.99 of the motion, and 0.92 where hardly
# anything moves; the next pull-up, stroke or pass of the same person has up to 0.96
FRAMES_ALIKE, MOTION_ALIKE, CALM_ALIKE = 0.9, 0.97, 0.9
# where moments of the one lie between those of the other
ROUGHLY_ALIKE = 0.6
# share of the energy of grey values that changes: below, little moves, and nothing
LITTLE_MOVES, NOTHING_MOVES = 5e-3, 1e-4
STILL_ALIKE = 0.99  # of the frames, where nothing moves


@dataclass(frozen=True)
class Glimpse:
    "What is kept of a video."

    strip: bytes  # WebP: STRIP_PICTURES pictures below each other
    seconds: float  # that they show
    grey: np.ndarray  # (n, GREY_SIDE²) float16: its first frames without their mean, of length 1
    fps: float

    def moments(
        self,
        times: np.ndarray,  # (m,) s, within the frames that are kept
    ) -> np.ndarray:  # (m, GREY_SIDE²) float32
        "The frames that are nearest to some times."
        numbers = (times * self.fps).round().astype(int)
        return self.grey[numbers.clip(0, len(self.grey) - 1)].astype(np.float32)

    @property
    def length(self) -> float:  # s, of the frames that are kept
        return len(self.grey) / self.fps

    @property
    def course(self) -> np.ndarray:  # (m, GREY_SIDE²) float32
        "MOMENTS a second."
        return self.moments(np.arange(max(int(self.length * MOMENTS), 1)) / MOMENTS)


def look(
    path: str | Path,
    width: int = 96,  # px of a picture; its height is three quarters of that
    p: Probe | None = None,  # of this file, where it is known
) -> Glimpse:
    "Decode a few frames of a video. `VideoError`."
    p = p or probe(path)
    fps = p.fps or 25.0
    shown = _middle(p.frames, fps)
    course = range(min(p.frames, GREY_FRAMES))

    frames = decode(path, [*shown, *course], p)
    pictures = frames[: len(shown)]
    grey = crop_resize(frames[len(shown) :], size=(GREY_SIDE, GREY_SIDE)).float().mean(3)
    return Glimpse(
        _as_strip(pictures, width, width * 3 // 4),
        max(shown[-1] - shown[0] + 1, 1) / fps,
        _normalised(grey.flatten(1).numpy()),
        fps,
    )


def _middle(
    frames: int,  # of the video
    fps: float,
) -> list[int]:  # STRIP_PICTURES numbers, ascending
    "Frames spread evenly over the middle of a video."
    span = min(frames, max(round(PLAYED_SECONDS * fps), 1))
    first = (frames - span) // 2
    return [first + (2 * i + 1) * span // (2 * STRIP_PICTURES) for i in range(STRIP_PICTURES)]


def _normalised(
    x: np.ndarray,  # (n, P)
) -> np.ndarray:  # (n, P); 0 for a frame of one grey
    x = x - x.mean(1, keepdims=True)
    length = np.linalg.norm(x, axis=1, keepdims=True)
    # a frame of one grey, but for the noise of its codec
    return np.where(length > GREY_SIDE, x / np.maximum(length, 1), 0).astype(np.float16)


def _as_strip(
    frames: Tensor,  # (T, H, W, 3) uint8
    width: int,  # of a picture, px
    height: int,  # of a picture, px
) -> bytes:
    "Whole frames on dark grey, below each other."
    H, W = frames.shape[1:3]
    scale = min(width / W, height / H)
    size = [max(1, round(H * scale)), max(1, round(W * scale))]
    small = crop_resize(frames, size=size).numpy()
    canvas = np.full((len(frames), height, width, 3), 34, np.uint8)
    top, left = (height - size[0]) // 2, (width - size[1]) // 2
    canvas[:, top : top + size[0], left : left + size[1]] = small
    file = io.BytesIO()
    Image.fromarray(canvas.reshape(-1, width, 3)).save(file, "WEBP", quality=50, method=4)
    return file.getvalue()


# -- the same pictures


def same_pictures(
    a: Glimpse,
    b: Glimpse,
) -> bool:
    """Do two videos show the same pictures, perhaps in another size, quality or brightness, or cut
    at their ends?

    At one offset in time the frames must agree, and so must what changes from frame to frame: two
    takes of one scene agree in their background alone, and two pull-ups roughly in their motion.
    """
    x, y = a.course, b.course
    most = min(len(x), len(y))
    least = max(most // 2, min(most, round(MOMENTS)))
    agreement = x @ y.T
    if agreement.max(initial=0) < FRAMES_ALIKE:
        return False
    for offset in range(least - len(y), len(x) - least + 1):
        i = max(offset, 0)
        j = max(-offset, 0)
        n = min(len(x) - i, len(y) - j)
        frames = np.trace(agreement[i : i + n, j : j + n]) / n
        if frames < FRAMES_ALIKE:
            continue
        motion, energy = _motion(x[i : i + n], y[j : j + n])
        if energy < NOTHING_MOVES:
            if frames >= STILL_ALIKE:
                return True
        elif _is_the_same(motion, energy) or (
            motion >= ROUGHLY_ALIKE and _agree_between(a, b, offset / MOMENTS)
        ):
            return True
    return False


def _motion(
    a: np.ndarray,  # (n, P)
    b: np.ndarray,  # (n, P)
) -> tuple[float, float]:  # -1 to 1, and the energy of the one that moves more
    "The correlation of what is left of the frames without their mean over time."
    a = a - a.mean(0)
    b = b - b.mean(0)
    energy = [float((x**2).sum()) / len(x) for x in (a, b)]
    agreement = float((a * b).sum()) / len(a) / max(float(np.sqrt(energy[0] * energy[1])), 1e-12)
    return agreement, max(energy)


def _is_the_same(motion: float, energy: float) -> bool:
    "Is it more than another turn of the same motion?"
    return motion >= (MOTION_ALIKE if energy >= LITTLE_MOVES else CALM_ALIKE)


def _agree_between(
    a: Glimpse,
    b: Glimpse,
    offset: float,  # s, of b in a, to the next moment
) -> bool:
    "Does the motion agree at an offset nearby, that is looked for frame by frame?"
    rate = max(a.fps, b.fps)
    near = int(np.ceil(rate / MOMENTS))
    # whole frames, so that none falls between two of the other
    for shift in (round(offset * rate) + np.arange(-near, near + 1)) / rate:
        moments = np.arange(max(shift, 0), min(a.length, b.length + shift), 1 / MOMENTS)
        times = np.ceil(moments * a.fps - 1e-6) / a.fps
        times = times[times < min(a.length, b.length + shift) - 0.5 / rate]
        if len(times) < 2:
            continue
        motion, energy = _motion(a.moments(times), b.moments(times - shift))
        if energy >= NOTHING_MOVES and _is_the_same(motion, energy):
            return True
    return False


def candidate_pairs(
    features: np.ndarray,  # (N, D) of length 1
    glimpses: Sequence[Glimpse | None],  # None: it could not be decoded
    near: int = 5,  # neighbours of each video to look at, by features and by pictures
) -> list[tuple[int, int]]:  # each once, the smaller first
    "Pairs that may be copies: neighbours by features, and neighbours by the mean picture."
    mean = np.zeros((len(glimpses), GREY_SIDE**2), np.float32)
    for i, glimpse in enumerate(glimpses):
        if glimpse is not None:
            mean[i] = glimpse.grey.mean(0, dtype=np.float32)
    length = np.linalg.norm(mean, axis=1, keepdims=True)
    pairs: set[tuple[int, int]] = set()
    for x in (features, mean / np.maximum(length, 1e-12)):
        for i, j in _neighbours(x, near):
            if glimpses[i] is not None and glimpses[j] is not None:
                pairs.add((min(i, j), max(i, j)))
    return sorted(pairs)


def _neighbours(
    x: np.ndarray,  # (N, D) of length 1
    near: int,
    block: int = 512,  # rows at a time
) -> Iterable[tuple[int, int]]:
    near = min(near, len(x) - 1)
    for first in range(0, len(x), block):
        similarity = x[first : first + block] @ x.T
        rows = np.arange(len(similarity))
        similarity[rows, first + rows] = -2
        best = np.argpartition(-similarity, max(near - 1, 0), axis=1)[:, :near]
        for row, others in enumerate(best.tolist()):
            yield from ((first + row, other) for other in others)


def try_to_look(
    path: str | Path,
    width: int = 96,  # of `look`
    p: Probe | None = None,  # of `look`
) -> Glimpse | str:  # or why there is none
    "A glimpse, or the reason why a video cannot be decoded."
    try:
        return look(path, width, p)
    except (VideoError, OSError) as e:
        return getattr(e, "reason", "") or str(e)
