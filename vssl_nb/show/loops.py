"Pictures that move: clips that play in a page, as small animated PNG files."

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from ..files import replacement
from .colours import GREEN, RED, class_colours
from .figures import check_neighbours, png
from .pixels import check_titles, framed, frames_of, joined, rgb, scaled, text_frame

# colours of the palette, slack; the finest first
LEVELS = ((64, 4), (48, 10), (32, 18), (24, 26))
BACKGROUND = (255, 255, 255)


def _palette(
    x: np.ndarray,  # (T, H, W, 3)
    colours: int,  # at most, besides the exact ones
    exact: list,  # colours that must be among them
) -> np.ndarray:  # (n, 3)
    "The colours that stand for all others."
    few = Image.fromarray(x.reshape(1, -1, 3)).getcolors(colours)  # None: there are more
    if few:
        chosen = [colour for _, colour in few]
    else:
        # enough to choose colours by
        some = Image.fromarray(x.reshape(1, -1, 3)[:, :: 1 + x.size // 200_000])
        flat = some.quantize(colours, kmeans=2).getpalette() or []
        chosen = np.reshape(flat, (-1, 3))[:colours].tolist()
    return np.unique(np.array([*chosen, *exact]), axis=0)


def _nearest(
    x: np.ndarray,  # (T, H, W, 3)
    palette: np.ndarray,  # (n, 3)
) -> np.ndarray:  # (T, H, W) index of the nearest colour
    code = x.astype(np.int32) @ np.array([1 << 16, 1 << 8, 1], np.int32)
    codes, p = np.unique(code), palette.astype(np.float32)
    seen = np.stack([codes >> 16, codes >> 8 & 255, codes & 255], 1).astype(np.float32)
    # a table of all colours; only those that occur are filled
    near = np.empty(1 << 24, np.uint8)
    near[codes] = ((p**2).sum(1) - 2 * seen @ p.T).argmin(1)
    return near[code]


def _repaint(
    x: np.ndarray,  # (T, H, W, 3)
    palette: np.ndarray,  # (n, 3)
    slack: int,  # levels by which a pixel may be off and still stay as it is
) -> np.ndarray:  # 0 = stays, i + 1 = palette[i]
    "What changes from frame to frame."
    near = _nearest(x, palette)
    paint = near.astype(np.uint8) + 1
    shown = palette[near[0]]
    for t in range(1, len(x)):
        new = palette[near[t]]
        off_shown, off_new = (np.abs(colour - x[t].astype(int)).max(2) for colour in (shown, new))
        stays = off_shown <= np.maximum(slack, off_new)
        paint[t][stays] = 0
        shown = np.where(stays[..., None], shown, new)
    return paint


def _encode(
    x: np.ndarray,  # (T, H, W, 3)
    fps: float,  # frames per second
    colours: int,  # as of `_palette`
    slack: int,  # as of `_repaint`
    exact: list,  # as of `_palette`
) -> bytes:  # PNG
    palette = _palette(x, colours, exact)
    frames = [Image.fromarray(paint) for paint in _repaint(x, palette, slack)]
    for frame in frames:
        frame.putpalette(bytes(3) + palette.astype(np.uint8).tobytes())
        # here as well: else Pillow takes what stays for what is painted black
        frame.info["transparency"] = 0
    file = io.BytesIO()
    frames[0].save(
        file,
        "PNG",
        save_all=True,
        append_images=frames[1:],
        duration=1000 / fps,
        loop=0,
        # blend 1: painted over what is there
        transparency=0,
        blend=1,
        optimize=True,
    )
    return file.getvalue()


def _pixels(
    picture: Any,  # a PIL picture, a matplotlib figure, or an array
) -> np.ndarray:  # (H, W, 3) uint8
    if isinstance(picture, Figure):
        picture = Image.open(io.BytesIO(png(picture)))
    if isinstance(picture, Image.Image):
        picture = picture.convert("RGB")
    x = np.asarray(picture)
    if x.ndim == 3 and x.shape[2] == 3 and x.dtype == np.uint8:
        return x
    raise ValueError(f"loop: a frame is a picture or (H, W, 3) uint8, not {x.shape} {x.dtype}")


class Loop:
    """Pictures that play again and again: an animated PNG that displays itself; the first is its
    still.
    """

    def __init__(
        self,
        # PIL pictures, matplotlib figures or (H, W, 3) uint8, all of one size
        frames: Iterable,
        fps: float = 8.0,  # frames per second
        # (r, g, b) that must not be rounded to other colours, at most 150
        exact: Iterable = (),
        # stay below where fewer colours can do it; above 300 KB nothing is made
        max_bytes: int = 40_000,
    ):
        if not 0 < fps <= 100:
            raise ValueError(f"loop: fps is {fps}; give frames per second, up to 100")
        shown = [_pixels(frame) for frame in frames]
        sizes = sorted({frame.shape[:2] for frame in shown})
        if len(sizes) != 1:
            raise ValueError(f"loop: frames of sizes {sizes}; give some, all of one size")
        self.fps = fps
        self.length = len(shown)
        self.height, self.width = sizes[0]

        exact = [*exact]
        for colours, slack in LEVELS:
            self.png = _encode(np.stack(shown), fps, colours, slack, exact)
            if len(self.png) <= max_bytes:
                break
        kb = len(self.png) / 1000
        if kb > 300:
            raise ValueError(f"loop: {kb:.0f} KB; give fewer frames, or smaller or fewer pictures")

    def _repr_png_(self) -> bytes:
        return self.png

    def __repr__(self) -> str:
        size = f"{self.width} × {self.height} px, {len(self.png) / 1000:.1f} KB"
        return f"Loop: {self.length} frames, {self.fps:g} a second, {size}"


def still_png(
    picture: Any,  # a `Loop`, or a picture as it takes them
) -> bytes:
    "A picture as a small PNG file; a loop as it is."
    if isinstance(picture, Loop):
        return picture.png
    file = io.BytesIO()
    Image.fromarray(_pixels(picture)).quantize(64, kmeans=2).save(file, "PNG", optimize=True)
    return file.getvalue()


def _block(
    x: np.ndarray,  # (T, H, W, 3)
    title: str,
    side: int,  # px
    stills: int,  # frames in the strip
    colour: Any,  # of the border; None: no border
) -> np.ndarray:  # title, clip, strip
    parts = [text_frame(title)] if title else []
    large = scaled(x, side)
    parts.append(large if colour is None else framed(large, colour))
    if stills:
        few = x[np.linspace(0, len(x) - 1, stills).round().astype(int)]
        small = scaled(few, (side - 2 * stills + 2) // stills)
        parts.append(joined([frame[None] for frame in small], 2, 2))
    return joined(parts, 1, 3, centre=True)


def clips(
    shown: list,  # clips as `strip` takes them, all of one length
    titles: list[str],  # one per clip
    fps: float = 8.0,  # frames per second
    every: int = 1,  # keep one frame in this many
    columns: int = 4,  # beside each other
    # px of the longer side: small clips grow by whole factors, large ones shrink
    side: int = 128,
    stills: int = 0,  # this many frames, evenly spread, stand still below each clip
    # of the border of each: '#rrggbb' or (r, g, b), such as the colour of its class
    colours: list | None = None,
    max_bytes: int = 40_000,  # see `Loop`
) -> Loop:
    "Clips that play beside each other: a query and its key, a clip and its flow, before and after."
    check_titles("clips", shown, titles)
    borders = [None] * len(shown) if colours is None else [*colours]
    if len(borders) != len(shown):
        raise ValueError(f"clips: {len(shown)} clips with {len(borders)} colours")
    frames = [frames_of(clip)[::every] for clip in shown]
    lengths = [*map(len, frames)]
    if len({*lengths}) != 1:
        raise ValueError(f"clips: clips of {lengths} frames; cut them to one length")

    blocks = [
        _block(x, title, side, stills, border) for x, title, border in zip(frames, titles, borders)
    ]
    rows = [joined(blocks[i : i + columns], 2, 8) for i in range(0, len(blocks), columns)]
    exact = [BACKGROUND, *map(rgb, colours or [])]
    return Loop(joined(rows, 1, 8), fps, exact, max_bytes)


class _Wall:
    "What the tiles of a wall have in common."

    def __init__(
        self,
        labels: list[str],  # of all tiles
        colours: dict,  # label -> colour
        every: int,  # keep one frame in this many
        side: int,  # px of the longer side of a clip
    ):
        self.colours = colours
        self.every = every
        self.side = side
        self.label_width = max(text_frame(str(label)).shape[2] for label in labels)  # px

    def tile(
        self,
        clip: Any,
        label: str,
        border: tuple,  # (r, g, b)
        mark: str | None = None,  # a word below; None: no such line
    ) -> np.ndarray:
        "A clip in a border, its class above it."
        x = framed(scaled(frames_of(clip)[:: self.every], self.side), border)
        colour = self.colours[label]
        dark = np.dot(rgb(colour), (0.299, 0.587, 0.114)) < 140
        name = text_frame(str(label), "white" if dark else "black", colour)
        lacks = max(self.label_width, x.shape[2]) - name.shape[2]
        sides = (lacks // 2, lacks - lacks // 2)
        band = np.pad(name, ((0, 0), (0, 0), sides, (0, 0)), "edge")
        parts = [band, x] if mark is None else [band, x, text_frame(mark)]
        return joined(parts, 1, 0, centre=True)


def wall(
    query_clips: list,  # Q clips, all clips of one length
    neighbour_clips: list[list],  # Q lists of K clips, the nearest first
    query_labels: list[str],  # Q class names
    neighbour_labels: list[list[str]],  # Q lists of K class names
    # from `class_colours` of the whole dataset; None = from the labels that are here
    colours: dict | None = None,
    every: int = 1,  # keep one frame in this many
    side: int = 64,  # px of the longer side of a clip
    max_bytes: int = 60_000,  # see `Loop`
    # a wide gap behind so many neighbours: two answers to one query; 0: none
    gap_after: int = 0,
    # Q lists of K words below the neighbours, '' = none; None: no such line
    marks: list[list[str]] | None = None,
    heads: Iterable[str] = (),  # words above the queries and above each answer
) -> Loop:  # a row per query
    """Queries and what was found for them, playing; green: same class, red: another; above each its
    class.
    """
    check_neighbours("wall", query_clips, neighbour_clips, neighbour_labels)
    if len(query_labels) != len(query_clips):
        raise ValueError("wall: give one label per query")
    labels = [*query_labels, *(label for some in neighbour_labels for label in some)]
    if colours is None:
        colours = class_colours(labels)
    shared = _Wall(labels, colours, every, side)

    rows = []
    queries = zip(query_clips, query_labels, neighbour_clips, neighbour_labels)
    for i, (query, label, some, names) in enumerate(queries):
        tiles = []
        for j, (clip, name) in enumerate(zip(some, names)):
            mark = None if marks is None else marks[i][j]
            tiles.append(shared.tile(clip, name, GREEN if name == label else RED, mark))
        answers = [joined(x, 2, 4) for x in (tiles[:gap_after], tiles[gap_after:]) if x]
        parts = [shared.tile(query, label, BACKGROUND, None if marks is None else ""), *answers]
        rows.append(joined(parts, 2, 20))
        words = [*heads]
        if i == 0 and words:
            rows.insert(0, _head(words, parts))
    exact = [GREEN, RED, BACKGROUND, *{rgb(colour) for colour in colours.values()}]
    return Loop(joined(rows, 1, 6), exact=exact, max_bytes=max_bytes)


def _head(
    words: list[str],
    parts: list[np.ndarray],  # of the row below
) -> np.ndarray:
    "Words above the parts of a row."
    # no pixel of a part but its width
    columns = [
        joined([text_frame(word), part[:1, :0]], 1, 0, centre=True)
        for word, part in zip(words, parts)
    ]
    return joined(columns, 2, 20)


def save_picture(
    picture: Image.Image | Figure | Loop,  # what the functions of this package return
    path: str | Path,  # a .png file; its folder is made when it is missing
) -> Path:  # the file
    "Write a picture, whole or not at all."
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacement(path) as temporary:
        # with names that stand out of the figure, and a margin of 10 px
        if isinstance(picture, Figure):
            picture.savefig(temporary, format="png", dpi=100, bbox_inches="tight")
        elif isinstance(picture, Loop):
            temporary.write_bytes(picture.png)
        else:
            picture.save(temporary, format="png")
    return path
