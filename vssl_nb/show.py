"""Pictures of clips, flow and numbers, and drawings of methods: boxes that learn, arrows, frames
and queues.
"""

import io, json, math, os
from base64 import b64encode
from collections.abc import Callable, Iterable
from html import escape
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Polygon, Rectangle
from PIL import Image, ImageColor, ImageDraw, ImageFont, ImageOps


def _array(
    x: Any,  # numbers in an array, in lists, or in a tensor on any device
) -> np.ndarray:
    if not hasattr(x, "detach"):
        return np.asarray(x)
    # NumPy has no bfloat16
    return np.asarray((x.float() if "bfloat16" in str(x.dtype) else x).detach().cpu())


def frames_of(
    # (T, H, W, 3) uint8, or (3, T, H, W) float of any scale; array or tensor, on any device
    clip: Any,
) -> np.ndarray:  # (T, H, W, 3) uint8
    "The frames of a clip, ready to be looked at."
    x = _array(clip)
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


DPI = 80


def _png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI)
    return file.getvalue()


class Picture(Figure):
    "A matplotlib figure that displays itself, with or without pyplot."

    def _repr_png_(self) -> bytes:
        return _png(self)


def _blank(
    figure: Figure,
    *place,
):  # axes without ticks
    ax = figure.add_subplot(*place)
    ax.set(xticks=[], yticks=[])
    return ax


def _check_titles(name: str, given: list, titles: list[str]):
    if len(given) == len(titles) and given:
        return
    raise ValueError(
        f"{name} with {len(titles)} titles, but {len(given)} to show; give one title for each"
    )


def strips(
    clips: list,  # clips as `strip` takes them; sizes may differ
    titles: list[str],  # one per clip
    every: int = 1,  # keep one frame in this many
) -> Figure:  # one labelled row per clip, all equally wide
    "Several clips under each other."
    _check_titles("strips", clips, titles)
    rows = [np.asarray(strip(clip, every)) for clip in clips]
    heights = [8 * row.shape[0] / row.shape[1] for row in rows]  # inches
    size = (8.6 + 0.12 * max(map(len, titles)), sum(heights) + 0.08 * len(rows))
    figure = Picture(figsize=size, layout="constrained")
    grid = figure.add_gridspec(len(rows), 1, height_ratios=heights)
    for i, (row, title) in enumerate(zip(rows, titles)):
        ax = _blank(figure, grid[i])
        ax.imshow(row)
        ax.set_ylabel(title, rotation=0, ha="right", va="center")
    return figure


def gallery(
    pictures: list,  # (H, W) float in [0,1] as grey, or (H, W, 3) uint8
    titles: list[str],  # one per picture
    columns: int = 4,  # beside each other
) -> Figure:  # all pictures equally wide
    "Single pictures beside each other, each under its title."
    _check_titles("gallery", pictures, titles)
    shown = [np.asarray(p) for p in pictures]
    columns, tall = min(columns, len(shown)), max(p.shape[0] / p.shape[1] for p in shown)
    wide, rows, lines = (
        9 / max(columns, 3),
        -(-len(shown) // columns),
        1 + max(t.count("\n") for t in titles),
    )
    figure = Picture(
        figsize=(wide * columns, (wide * tall + 0.1 + 0.2 * lines) * rows), layout="constrained"
    )
    for i, (p, title) in enumerate(zip(shown, titles)):
        ax = _blank(figure, rows, columns, i + 1)
        ax.imshow(p, cmap="gray", vmin=0, vmax=1)  # colours need no map
        ax.set_title(title, fontsize=9)
    return figure


# colours of the palette, slack; the finest first
LEVELS = ((64, 4), (48, 10), (32, 18), (24, 26))


def _palette(
    x: np.ndarray,  # (T, H, W, 3)
    colours: int,
    exact: list,
) -> np.ndarray:  # (n, 3)
    few = Image.fromarray(x.reshape(1, -1, 3)).getcolors(colours)  # None: there are more
    # enough to choose colours by
    some = Image.fromarray(x.reshape(1, -1, 3)[:, :: 1 + x.size // 200_000])
    if few:
        found = [colour for _, colour in few]
    else:
        found = np.reshape(some.quantize(colours, kmeans=2).getpalette() or [], (-1, 3))[
            :colours
        ].tolist()
    return np.unique(np.array([*found, *exact]), axis=0)


def _nearest(
    x: np.ndarray,
    palette: np.ndarray,
) -> np.ndarray:  # (T, H, W) index of the nearest colour
    code = x.astype(np.int32) @ np.array([1 << 16, 1 << 8, 1], np.int32)
    codes, p = np.unique(code), palette.astype(np.float32)
    seen = np.stack([codes >> 16, codes >> 8 & 255, codes & 255], 1).astype(np.float32)
    # a table of all colours; only those that occur are filled
    near = np.empty(1 << 24, np.uint8)
    near[codes] = ((p**2).sum(1) - 2 * seen @ p.T).argmin(1)
    return near[code]


def _repaint(
    x: np.ndarray,
    palette: np.ndarray,
    slack: int,
) -> np.ndarray:  # 0 = stays, i + 1 = palette[i]
    near = _nearest(x, palette)
    paint, shown = near.astype(np.uint8) + 1, palette[near[0]]
    for t in range(1, len(x)):
        off_shown, off_new = (
            np.abs(c - x[t].astype(int)).max(2) for c in (shown, palette[near[t]])
        )
        stays = off_shown <= np.maximum(slack, off_new)
        paint[t][stays] = 0
        shown = np.where(stays[..., None], shown, palette[near[t]])
    return paint


def _encode(x: np.ndarray, fps: float, colours: int, slack: int, exact: list) -> bytes:
    palette = _palette(x, colours, exact)
    frames = [Image.fromarray(p) for p in _repaint(x, palette, slack)]
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
    picture: Any,
) -> np.ndarray:  # (H, W, 3) uint8
    if isinstance(picture, Figure):
        picture = Image.open(io.BytesIO(_png(picture)))
    x = np.asarray(picture.convert("RGB") if isinstance(picture, Image.Image) else picture)
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
        shown = [_pixels(f) for f in frames]
        sizes = sorted({f.shape[:2] for f in shown})
        if len(sizes) != 1:
            raise ValueError(f"loop: frames of sizes {sizes}; give some, all of one size")
        self.fps, self.length, (self.height, self.width) = fps, len(shown), sizes[0]
        for level in LEVELS:
            self.png = _encode(np.stack(shown), fps, *level, [*exact])
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


# the picture of values (i, j, ...) has the place that counts the last one fastest, as `product`
# does
_MOVE = """{const root = document.currentScript.parentElement, sliders = [...root.querySelectorAll('input')];
const names = %s;
const pictures = %s;
const move = () => {
  const at = sliders.reduce((before, s, i) => before*names[i].length + Number(s.value), 0);
  sliders.forEach((s, i) => { s.nextElementSibling.textContent = names[i][s.value]; });
  root.querySelector('img').src = 'data:image/png;base64,' + pictures[at];
};
sliders.forEach(s => { s.disabled = false; s.oninput = move; });
root.querySelector('small').hidden = true;
move();}"""


def _still(
    picture: Any,
) -> bytes:  # PNG
    if isinstance(picture, Loop):
        return picture.png
    file = io.BytesIO()
    Image.fromarray(_pixels(picture)).quantize(64, kmeans=2).save(file, "PNG", optimize=True)
    return file.getvalue()


class Slider:
    """Pictures behind sliders that move without a kernel: on the site, and in a notebook that nobody has run.

    All pictures are drawn at once and stored in the page; with a kernel, change what the cell has and run it.
    Two sliders: `Slider(lambda tau, epoch: show.matrix(shares(epoch, tau)), tau=[.1, 1], epoch=range(9))`.
    """

    def __init__(
        self,
        # given one value per name, makes a figure, a `Loop`, or a picture as `Loop` takes them
        draw: Callable,
        /,
        # name -> the value that is shown first; None = the first of each
        start: dict | None = None,
        max_bytes: int = 200_000,  # of all pictures together; above it, ValueError
        # name -> the values of one slider, in their order; numbers or words
        **values: Iterable,
    ):
        self.values = {name: [*choices] for name, choices in values.items()}
        if not self.values or not all(self.values.values()):
            raise ValueError(
                "slider: give a name and at least one value, such as temperature=[.1, 1.]"
            )
        for name, first in (start or {}).items():
            if first in self.values.get(name, []):
                continue
            raise ValueError(f"slider: start has {name}={first!r}; the values are {self.values}")
        self.at = [v.index((start or {}).get(name, v[0])) for name, v in self.values.items()]
        self.pictures = [
            _still(draw(**dict(zip(self.values, v)))) for v in product(*self.values.values())
        ]
        size = sum(map(len, self.pictures))
        if size <= max_bytes:
            return
        raise ValueError(
            f"slider: {len(self.pictures)} pictures have {size / 1000:.0f} KB and "
            f"{max_bytes / 1000:.0f} are allowed; give fewer values, or smaller pictures"
        )

    def _repr_html_(self) -> str:
        names = [
            [v if isinstance(v, str) else f"{v:g}" for v in some] for some in self.values.values()
        ]
        pictures = [b64encode(picture).decode() for picture in self.pictures]
        # data-lm-suppress-shortcuts: in JupyterLab the arrow keys belong to the slider
        rows = [
            f'<label style="margin-right: 2em">{escape(name)} <input type="range" min="0" '
            f'max="{len(n) - 1}" value="{i}" disabled data-lm-suppress-shortcuts="true" '
            f'style="vertical-align: middle"> <output>{escape(n[i])}</output></label>'
            for name, n, i in zip(self.values, names, self.at)
        ]
        first = pictures[np.ravel_multi_index(self.at, [*map(len, names)])]
        script = _MOVE % tuple(json.dumps(x).replace("<", r"\u003c") for x in (names, pictures))
        return (
            f"<div>{''.join(rows)}<small>run the cell to move it</small><br>"
            '<img alt="what the sliders show" style="max-width: 100%" '
            f'src="data:image/png;base64,{first}">'
            f"<script>{script}</script></div>"
        )

    def __repr__(self) -> str:
        choices = " × ".join(f"{name} ({len(v)})" for name, v in self.values.items())
        return f"Slider: {choices}, {sum(map(len, self.pictures)) / 1000:.1f} KB"


def _text(
    words: str,
    ink: str = "black",
    paper: str = "white",
) -> np.ndarray:  # (1, h, w, 3) uint8, letters of 11 px
    font = ImageFont.truetype(f"{matplotlib.get_data_path()}/fonts/ttf/DejaVuSans.ttf", 11)
    tall = "\n".join(["Ay"] * (1 + words.count("\n")))  # as high whatever the letters are
    measure = ImageDraw.Draw(Image.new("RGB", (1, 1))).multiline_textbbox
    right, bottom = measure((0, 0), words, font)[2], measure((0, 0), tall, font)[3]
    image = Image.new("RGB", (math.ceil(right) + 5, math.ceil(bottom) + 4), paper)
    ImageDraw.Draw(image).multiline_text((2, 1), words, ink, font, align="center")
    return np.asarray(image)[None]


def _sized(
    x: np.ndarray,
    side: int,
) -> np.ndarray:  # frames whose longer side is `side` px, or a little less
    h, w = x.shape[1:3]
    k = side // max(h, w)
    # small ones grow by a whole factor and stay sharp
    if k:
        return x.repeat(k, 1).repeat(k, 2)
    size = max(1, round(w * side / max(h, w))), max(1, round(h * side / max(h, w)))
    return np.stack(
        [np.asarray(Image.fromarray(f).resize(size, Image.Resampling.LANCZOS)) for f in x]
    )


def _rgb(colour: Any) -> tuple:
    return ImageColor.getrgb(colour) if isinstance(colour, str) else (*colour,)


def _framed(
    x: np.ndarray,
    colour: Any,
    width: int = 3,
) -> np.ndarray:  # with a border of `width` px
    out = np.empty((len(x), x.shape[1] + 2 * width, x.shape[2] + 2 * width, 3), np.uint8)
    out[:] = _rgb(colour)
    out[:, width:-width, width:-width] = x
    return out


def _join(
    parts: list,
    axis: int,  # 1: below, 2: beside
    gap: int = 0,
    centre: bool = False,
) -> np.ndarray:
    T, size = max(map(len, parts)), max(p.shape[3 - axis] for p in parts)
    out = []
    for i, p in enumerate(parts):
        pad, miss = [(0, 0)] * 4, size - p.shape[3 - axis]
        pad[3 - axis] = (miss // 2, miss - miss // 2) if centre else (0, miss)
        pad[axis] = (0, gap if i + 1 < len(parts) else 0)
        padded = np.pad(p, pad, constant_values=255)
        # what has one frame stands still
        out.append(np.broadcast_to(padded, (T, *padded.shape[1:])))
    return np.concatenate(out, axis)


def _block(
    x: np.ndarray,
    title: str,
    side: int,
    stills: int,
    colour: Any,
) -> np.ndarray:  # title, clip, strip
    large = _sized(x, side)
    parts = ([_text(title)] if title else []) + [
        large if colour is None else _framed(large, colour)
    ]
    if stills:
        few = x[np.linspace(0, len(x) - 1, stills).round().astype(int)]
        parts.append(_join([f[None] for f in _sized(few, (side - 2 * stills + 2) // stills)], 2, 2))
    return _join(parts, 1, 3, centre=True)


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
    _check_titles("clips", shown, titles)
    borders = [None] * len(shown) if colours is None else [*colours]
    if len(borders) != len(shown):
        raise ValueError(f"clips: {len(shown)} clips with {len(borders)} colours")
    frames = [frames_of(clip)[::every] for clip in shown]
    lengths = [*map(len, frames)]
    if len({*lengths}) != 1:
        raise ValueError(f"clips: clips of {lengths} frames; cut them to one length")
    blocks = [
        _block(x, title, side, stills, edge) for x, title, edge in zip(frames, titles, borders)
    ]
    rows = [_join(blocks[i : i + columns], 2, 8) for i in range(0, len(blocks), columns)]
    return Loop(_join(rows, 1, 8), fps, [(255, 255, 255), *map(_rgb, colours or [])], max_bytes)


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
    x = _array(flow)
    if x.ndim < 3 or x.shape[-3] != 2 or x.dtype.kind != "f":
        raise ValueError(
            f"flow to show is (..., 2, H, W) float, in pixels, not {x.shape} {x.dtype}; "
            "bytes (128, v, u) become pixels with `views.image_to_flow`"
        )
    known = (np.abs(x) <= 1e9).all(-3)
    u, v = (np.where(known, x[..., i, :, :].astype(float), 0) for i in (0, 1))
    length = np.hypot(u, v)
    k = np.arctan2(v, u) / (2 * np.pi) % 1 * (len(HUES) - 1)
    low = k.astype(int)
    h = HUES[low] + (k - low)[..., None] * (HUES[(low + 1) % len(HUES)] - HUES[low])
    r = length[..., None] / (most or length.max(initial=0) or 1)
    # 1e-6: float32 may make a length of `most` a little longer
    x = np.where(r <= 1 + 1e-6, 255 - np.minimum(r, 1) * (255 - h), 0.75 * h)
    return np.where(known[..., None], np.floor(x), 0).astype(np.uint8)


def matrix(
    x: Any,  # (R, C) numbers, array or tensor
    title: str = "",
    rows: list | None = None,  # names of the rows
    cols: list | None = None,  # names of the columns
    # format of the values, such as '.2f'; None = '.2g' up to 200 of them, else none
    fmt: str | None = None,
    # red below 0, white at 0, blue above; None = if there is a number below 0
    signed: bool | None = None,
) -> Figure:
    "A heat map, with the values written in while they are few."
    x = _array(x).astype(float)
    figure = Picture(
        figsize=(min(9, 1.6 + 0.5 * x.shape[1]), min(8, 1 + 0.36 * x.shape[0])),
        layout="constrained",
    )
    ax = _blank(figure)
    finite = x[np.isfinite(x)]
    far = float(np.abs(finite).max(initial=0)) or 1.0
    signed = bool((x < 0).any()) if signed is None else signed
    look: dict = dict(cmap="RdBu", vmin=-far, vmax=far) if signed else dict(cmap="Blues")
    drawn = ax.imshow(x, aspect="auto", **look)
    figure.colorbar(drawn, ax=ax)
    if rows is not None:
        ax.set_yticks(range(len(rows)), rows)
    if cols is not None:
        ax.set_xticks(range(len(cols)), cols)
    ax.set_title(title)
    fmt = fmt or (".2g" if x.size <= 200 else "")
    for (i, j), value in np.ndenumerate(x) if fmt else ():
        light = np.dot(drawn.to_rgba(value)[:3], (0.299, 0.587, 0.114))
        ink = "black" if light > 0.5 else "white"
        ax.text(j, i, format(value, fmt), ha="center", va="center", fontsize=8, color=ink)
    return figure


def bars(
    values: dict[str, float],  # name -> height
    ylabel: str,
    line: float | None = None,  # a level to compare with, such as chance
    # name -> colour, such as `class_colours` makes; None = all alike
    colours: dict | None = None,
) -> Figure:
    "Named numbers as bars, the number on each."
    figure = Picture(figsize=(max(3, 0.6 + 0.95 * len(values)), 2.6), layout="constrained")
    ax = figure.add_subplot()
    shades = None if colours is None else [colours[name] for name in values]
    ax.bar_label(ax.bar(list(values), list(values.values()), width=0.6, color=shades), fmt="%.2f")
    if line is not None:
        ax.axhline(line, color="grey", ls="--", lw=1)
    ax.set_ylabel(ylabel)
    ax.spines[["top", "right"]].set_visible(False)
    return figure


def curves(
    series: dict[str, tuple],  # name -> (x, y), equally long
    xlabel: str,
    ylabel: str,
    title: str = "",
    # running mean over this many points; the points themselves stay visible behind it
    smooth: int = 0,
    # name -> y to compare with, such as chance: thin and dashed
    levels: dict[str, float] | None = None,
) -> Figure:
    "Lines over a common axis."
    figure = Picture(figsize=(6, 2.8), layout="constrained")
    ax = figure.add_subplot()
    for i, (name, (x, y)) in enumerate(series.items()):
        x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
        n = min(smooth, len(y))
        if n > 1:
            ax.plot(x, y, color=f"C{i}", alpha=0.25, lw=0.8)
            x, y = x[n - 1 :], np.convolve(y, np.ones(n) / n, "valid")
        ax.plot(x, y, color=f"C{i}", label=name)
    for i, (name, y) in enumerate((levels or {}).items()):
        ax.axhline(
            y, color="grey", ls=((0, (5, 3)), (0, (1, 2)))[i % 2], lw=1, label=f"{name}: {y:.3g}"
        )
    ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
    if series:
        ax.legend(frameon=False)
    return figure


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
    places = {label: label if isinstance(label, int) else i for i, label in enumerate(known)}

    def shade(
        i,
    ):  # the hue, half way to white, half way to black
        base, towards = np.array(ImageColor.getrgb(CLASS_HUES[i % 8])), (None, 255, 0)[i // 8 % 3]
        return "#%02x%02x%02x" % tuple(base if towards is None else (base + towards) // 2)

    return {"": UNLABELLED, -1: UNLABELLED} | {label: shade(i) for label, i in places.items()}


GREEN, RED = (40, 160, 60), (210, 50, 40)


def _tile(
    clip: Any,
    colour: tuple | None = None,
    side: int = 88,
):  # the middle frame, whole, in a bordered square
    x = frames_of(clip)
    inner = ImageOps.pad(
        Image.fromarray(x[len(x) // 2]), (side - 8, side - 8), color=(255, 255, 255)
    )
    return np.asarray(ImageOps.expand(inner, 4, colour or (255, 255, 255)))


def _check_wall(name: str, queries: list, found: list[list], right: list[list]):
    if not len(queries) == len(found) == len(right) or [*map(len, found)] != [*map(len, right)]:
        raise ValueError(f"{name}: queries, found clips and right/wrong differ in number")
    if not queries or len({*map(len, right)}) != 1:
        raise ValueError(f"{name}: give at least one query, and as many neighbours for each")


def neighbours(
    query_clips: list,  # Q clips
    neighbour_clips: list[list],  # Q lists of K clips, the nearest first
    right: list[list[bool]],  # Q lists of K: has this neighbour the class of the query?
    titles: list[str] | None = None,  # one per query
) -> Figure:  # a row per query
    "Queries on the left, what was found for them beside it, green where it is right."
    _check_wall("neighbours", query_clips, neighbour_clips, right)
    gap = np.full((88, 22, 3), 255, np.uint8)
    rows = []
    for query, found, oks in zip(query_clips, neighbour_clips, right):
        tiles = [_tile(clip, GREEN if ok else RED) for clip, ok in zip(found, oks)]
        rows.append(np.concatenate([_tile(query), gap, *tiles], 1))
    wall = np.concatenate(rows)
    wide = 0.5 + 0.13 * max(map(len, titles or [""]))
    figure = Picture(
        figsize=(wide + wall.shape[1] / 100, 0.1 + wall.shape[0] / 100), layout="constrained"
    )
    ax = _blank(figure)
    ax.imshow(wall)
    ax.spines[:].set_visible(False)
    if titles:
        ax.set_yticks([88 * i + 44 for i in range(len(rows))], titles)
    ax.tick_params(length=0)
    return figure


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
    _check_wall("wall", query_clips, neighbour_clips, neighbour_labels)
    if len(query_labels) != len(query_clips):
        raise ValueError("wall: give one label per query")
    if colours is None:
        colours = class_colours([*query_labels, *sum(map(list, neighbour_labels), [])])
    wide = max(
        _text(str(label)).shape[2]
        for label in [*query_labels, *sum(map(list, neighbour_labels), [])]
    )

    def tile(clip, label, border, mark=""):
        x = _framed(_sized(frames_of(clip)[::every], side), border)
        dark = np.dot(_rgb(colours[label]), (0.299, 0.587, 0.114)) < 140
        name = _text(str(label), "white" if dark else "black", colours[label])
        miss = max(wide, x.shape[2]) - name.shape[2]
        band = np.pad(name, ((0, 0), (0, 0), (miss // 2, miss - miss // 2), (0, 0)), "edge")
        return _join([band, x, *([] if marks is None else [_text(mark)])], 1, 0, centre=True)

    rows = []
    asked = zip(query_clips, query_labels, neighbour_clips, neighbour_labels)
    for i, (query, label, found, names) in enumerate(asked):
        tiles = [
            tile(c, name, GREEN if name == label else RED, marks[i][j] if marks else "")
            for j, (c, name) in enumerate(zip(found, names))
        ]
        answers = [_join(x, 2, 4) for x in (tiles[:gap_after], tiles[gap_after:]) if x]
        parts = [tile(query, label, (255, 255, 255)), *answers]
        if not i and (words := [*heads]):  # no pixel of a part but its width
            above = [_join([_text(w), p[:1, :0]], 1, 0, centre=True) for w, p in zip(words, parts)]
            rows.append(_join(above, 2, 20))
        rows.append(_join(parts, 2, 20))
    exact = [GREEN, RED, (255, 255, 255), *{_rgb(c) for c in colours.values()}]
    return Loop(_join(rows, 1, 6), exact=exact, max_bytes=max_bytes)


def save_picture(
    picture: Image.Image | Figure | Loop,  # what the functions of this module return
    path: str | Path,  # a .png file; its folder is made when it is missing
) -> Path:  # the file
    "Write a picture, whole or not at all."
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # with names that stand out of the figure, and a margin of 10 px
        if isinstance(picture, Figure):
            picture.savefig(part, format="png", dpi=100, bbox_inches="tight")
        elif isinstance(picture, Loop):
            part.write_bytes(picture.png)
        else:
            picture.save(part, format="png")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path


LEARNS, FIXED, POSITIVE, NEGATIVE, INK = "#f6b26b", "#d5dbe3", "#1b7837", "#888888", "#333333"


class Spot(NamedTuple):
    "Where a thing stands, in pixels from the upper left corner."

    x: float
    y: float
    w: float
    h: float

    @property
    def left(self) -> tuple[float, float]:
        return self.x, self.y + self.h / 2

    @property
    def right(self) -> tuple[float, float]:
        return self.x + self.w, self.y + self.h / 2

    @property
    def top(self) -> tuple[float, float]:
        return self.x + self.w / 2, self.y

    @property
    def bottom(self) -> tuple[float, float]:
        return self.x + self.w / 2, self.y + self.h


def ends(
    a: Spot | tuple,  # a place, or a point (x, y)
    b: Spot | tuple,  # a place, or a point (x, y)
) -> tuple:  # two points
    "Where an arrow from `a` to `b` begins and ends: at the edges that face each other."
    a, b = (p if isinstance(p, Spot) else Spot(p[0], p[1], 0, 0) for p in (a, b))
    if b.x >= a.x + a.w:
        return a.right, b.left
    if b.x + b.w <= a.x:
        return a.left, b.right
    return (a.bottom, b.top) if b.y >= a.y + a.h else (a.top, b.bottom)


class Diagram(Picture):
    "A sheet to draw on, measured in pixels."

    def __init__(
        self,
        width: int = 560,  # px
        height: int = 200,  # px
    ):
        super().__init__(figsize=(width / DPI, height / DPI), dpi=DPI)
        FigureCanvasAgg(self)  # measures words without pyplot
        self.width, self.height = width, height
        self.boxes: list[tuple] = []  # their places, and the words that must fit into them
        self.ax = self.add_axes((0, 0, 1, 1))
        self.ax.set(xlim=(0, width), ylim=(height, 0), autoscale_on=False)
        self.ax.axis("off")


def write_text(
    d: Diagram,
    x: float,  # px
    y: float,  # px, the middle of the words
    words: str,
    ha: str = "center",  # where x is in the words: left, center or right
) -> Any:  # matplotlib's text
    "Words on the sheet."
    return d.ax.text(
        x, y, words, ha=ha, va="center", color=INK, fontsize=10, linespacing=1.15, zorder=5
    )


def box(
    d: Diagram,
    x: float,  # px, of the upper left corner
    y: float,  # px, of the upper left corner
    w: float,  # px, the width
    h: float,  # px, the height
    words: str = "",  # in the middle
    # orange if it does, grey if not; None = white: it has nothing to learn
    learns: bool | None = None,
    # the right side is shorter by this share above and below, as encoders are drawn
    taper: float = 0,
) -> Spot:
    "Something that is done to data."
    fill = "white" if learns is None else LEARNS if learns else FIXED
    corners = [(x, y), (x + w, y + taper * h), (x + w, y + h - taper * h), (x, y + h)]
    d.ax.add_patch(Polygon(corners, fc=fill, ec=INK, lw=1, joinstyle="round", zorder=3))
    d.boxes.append(
        (Spot(x, y, w, h), write_text(d, x + w / 2, y + h / 2, words) if words else None)
    )
    return Spot(x, y, w, h)


def arrow(
    d: Diagram,
    *points: Spot | tuple,  # from, around these points if there are any, to
    dashed: bool = False,  # no gradient flows here
):
    "Data goes on, from place to place."
    path = [ends(points[0], points[1])[0], *points[1:-1], ends(points[-2], points[-1])[1]]
    look: dict = dict(color=INK, lw=1.2, ls=(0, (4, 3)) if dashed else "-", zorder=2)
    if len(path) > 2:
        d.ax.plot(*zip(*path[:-1]), **look)
    head: dict = dict(arrowstyle="-|>", mutation_scale=11, shrinkA=0, shrinkB=1)
    d.ax.add_patch(FancyArrowPatch(path[-2], path[-1], **head, **look))


def crowded(
    diagram: Diagram,
) -> list[str]:  # empty when all is well
    "Words that overlap other words, leave the picture or do not fit into their box."
    diagram.dpi = DPI  # whoever has shown the figure may have changed it
    draws = FigureCanvasAgg(diagram).get_renderer()
    boxes = {t: t.get_window_extent(draws) for t in diagram.ax.texts}  # y from below
    W, H = diagram.width, diagram.height
    wrong = [
        f"{t.get_text()!r} leaves the picture"
        for t, b in boxes.items()
        if min(b.x0, b.y0) < 0 or b.x1 > W or b.y1 > H
    ]
    wrong += [
        f"{t.get_text()!r} lies on {s.get_text()!r}"
        for (s, a), (t, b) in combinations(boxes.items(), 2)
        if a.overlaps(b)
    ]
    for place, t in diagram.boxes:
        if min(place[:2]) < 1 or place.right[0] > W - 1 or place.bottom[1] > H - 1:
            wrong.append(f"a box leaves the picture at ({place.x:g}, {place.y:g})")
        if t and (boxes[t].width > place.w - 4 or boxes[t].height > place.h - 2):
            wrong.append(f"{t.get_text()!r} does not fit into its box")
    return wrong


def frames(
    d: Diagram,
    x: float,  # px, of the upper left corner
    y: float,  # px, of the upper left corner
    w: float,  # px, the width of one frame
    h: float,  # px, the height of one frame
    clip: Any = None,  # (T, H, W, 3) uint8, array or tensor; None = empty frames
    words: str = "",  # below
    count: int = 3,  # frames that are shown, evenly spread over the clip, 5 px apart
) -> Spot:  # of the whole stack
    "A clip as a stack of frames, the first in front."
    film = None if clip is None else _array(clip)
    if film is not None and (film.ndim != 4 or film.shape[3] != 3 or film.dtype != np.uint8):
        raise ValueError(f"frames: a clip is (T, H, W, 3) uint8, not {film.shape} {film.dtype}")
    for i in reversed(range(count)):
        left, top = x + 5 * i, y + 5 * (count - 1 - i)
        at = 0 if film is None else round(i * (len(film) - 1) / max(count - 1, 1))
        picture = np.full((1, 1, 3), 255) if film is None else film[at]
        d.ax.imshow(
            picture, extent=(left, left + w, top + h, top), aspect="auto", zorder=3 - i / 10
        )
        d.ax.add_patch(Rectangle((left, top), w, h, fc="none", ec=INK, lw=1, zorder=3.05 - i / 10))
    place = Spot(x, y, w + 5 * (count - 1), h + 5 * (count - 1))
    if words:
        write_text(d, place.bottom[0], y + place.h + 10, words)
    return place


def draw_matrix(
    d: Diagram,
    x: float,  # px, of the upper left corner
    y: float,  # px, of the upper left corner
    values: Any,  # (R, C) numbers
    positive: Any = None,  # (R, C) boolean: these have a green border
    cell: float = 18,  # px
) -> Spot:
    "Cells shaded by their numbers (blue, red below 0), the positives with a green border."
    table = _array(values).astype(float)
    place = Spot(x, y, cell * table.shape[1], cell * table.shape[0])
    extent = (x, x + place.w, y + place.h, y)
    # .8: never so dark that a border drowns
    low, far = float(table.min()), float(np.abs(table).max()) / 0.8
    look: dict = dict(cmap="Blues", vmin=low, vmax=max(low + (table.max() - low) / 0.8, low + 1e-9))
    if low < 0:
        look = dict(cmap="RdBu", vmin=-far, vmax=far)
    d.ax.imshow(table, extent=extent, aspect="auto", zorder=3, **look)
    marks = np.zeros(table.shape, bool) if positive is None else _array(positive).astype(bool)
    for (r, c), mark in np.ndenumerate(marks):
        edge: dict = (
            dict(ec=POSITIVE, lw=2.4, zorder=3.2) if mark else dict(ec=NEGATIVE, lw=0.6, zorder=3.1)
        )
        d.ax.add_patch(Rectangle((x + cell * c, y + cell * r), cell, cell, fc="none", **edge))
    return place


def queue(
    d: Diagram,
    x: float,  # px, of the upper left corner
    y: float,  # px, of the upper left corner
    values: Any,  # (K,) numbers that shade the keys
    positive: Any = None,  # (K,) boolean: these have a green border
    cell: float = 18,  # px
) -> Spot:  # of the cells
    "A row of remembered keys: new ones enter on the left, the oldest leave on the right."
    marked = None if positive is None else _array(positive)[None]
    place = draw_matrix(d, x, y, _array(values)[None], marked, cell)
    arrow(d, place.right, (place.right[0] + 18, place.right[1]))
    write_text(d, place.right[0] + 22, place.right[1], "oldest\nout", "left")
    return place


def cross(
    d: Diagram,
    x: float,  # px, of the upper left corner
    y: float,  # px, of the upper left corner
    side: float,  # px, the side of a cell
):
    "A cell that is left out."
    left, right, top, bottom = x + 0.2 * side, x + 0.8 * side, y + 0.2 * side, y + 0.8 * side
    for ends_y in (top, bottom), (bottom, top):
        d.ax.plot((left, right), ends_y, color=INK, lw=0.9, zorder=4)


SIGNS: dict = {
    "learns": dict(fc=LEARNS, ec=INK, lw=1),
    "does not learn": dict(fc=FIXED, ec=INK, lw=1),
    "no gradient": None,
    "positive": dict(fc="white", ec=POSITIVE, lw=2.4),
}
SIGNS["negative"] = SIGNS["itself: left out"] = dict(fc="white", ec=NEGATIVE, lw=0.6)


def legend(
    d: Diagram,
    x: float,  # px, the left end of the line
    y: float,  # px, the middle of the line
    # keys of SIGNS
    signs: Iterable[str] = ("learns", "does not learn", "no gradient", "positive"),
):
    "What the colours, the crosses and the dashed arrow mean, in one line."
    for words in signs:
        if SIGNS[words]:
            d.ax.add_patch(Rectangle((x, y - 6), 16, 12, **SIGNS[words]))
        else:
            arrow(d, (x - 8, y), (x + 18, y), dashed=True)
        if "left out" in words:
            cross(d, x + 2, y - 6, 12)
        x += 22 + write_text(d, x + 22, y, words, "left").get_window_extent().width + 26


def moco(
    query: Any = None,  # a clip to draw: (T, H, W, 3) uint8
    key: Any = None,  # another clip of the same video
) -> Diagram:
    "Query encoder, momentum encoder, queue: MoCo."
    d = Diagram(560, 226)
    encoder = box(d, 106, 14, 104, 56, "encoder and\nprojection", True, 0.12)
    momentum = box(d, 106, 118, 104, 56, "momentum\nencoder", False, 0.12)
    q, k = box(d, 240, 26, 24, 32, "q"), box(d, 240, 130, 24, 32, "k")
    for y, clip, name, network, feature in (
        (14, query, "query", encoder, q),
        (118, key, "key", momentum, k),
    ):
        arrow(d, frames(d, 8, y, 62, 46, clip, f"{name} clip"), network)
        arrow(d, network, feature)
    arrow(d, encoder, momentum, dashed=True)
    write_text(d, 166, 93, "momentum\nupdate", "left")
    shades = draw_matrix(d, 304, 33, np.eye(10)[:1], np.eye(10)[:1] == 1)  # the own key first
    kept = queue(d, 322, 137, np.zeros(9))
    arrow(d, q, shades)
    arrow(d, k, kept, dashed=True)
    arrow(d, (313, 146), (313, 51), dashed=True)
    arrow(d, kept, (kept.top[0], 51), dashed=True)
    write_text(d, 307, 96, "own key:\npositive", "right")
    write_text(d, kept.top[0] + 8, 96, "negatives", "left")
    write_text(d, shades.bottom[0], 20, "similarities")
    loss = box(d, shades.right[0] + 22, 28, 46, 28, "loss")
    arrow(d, shades, loss)
    write_text(d, kept.bottom[0], 168, "queue of keys")
    legend(d, 14, 208)
    return d
