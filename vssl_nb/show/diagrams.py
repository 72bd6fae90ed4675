"Drawings of methods: boxes that learn, arrows, frames and queues on a sheet."

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import FancyArrowPatch, Polygon, Rectangle

from .figures import DPI, Picture
from .pixels import as_array

LEARNS = "#f6b26b"
FIXED = "#d5dbe3"
POSITIVE = "#1b7837"
NEGATIVE = "#888888"
INK = "#333333"


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
    a, b = (spot if isinstance(spot, Spot) else Spot(spot[0], spot[1], 0, 0) for spot in (a, b))
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
        self.width = width
        self.height = height
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
    fill = "white"
    if learns is not None:
        fill = LEARNS if learns else FIXED
    corners = [(x, y), (x + w, y + taper * h), (x + w, y + h - taper * h), (x, y + h)]
    d.ax.add_patch(Polygon(corners, fc=fill, ec=INK, lw=1, joinstyle="round", zorder=3))
    spot = Spot(x, y, w, h)
    text = write_text(d, x + w / 2, y + h / 2, words) if words else None
    d.boxes.append((spot, text))
    return spot


def arrow(
    d: Diagram,
    *points: Spot | tuple,  # from, around these points if there are any, to
    dashed: bool = False,  # no gradient flows here
) -> None:
    "Data goes on, from place to place."
    begin, _ = ends(points[0], points[1])
    _, end = ends(points[-2], points[-1])
    path = [begin, *points[1:-1], end]
    look: dict = dict(color=INK, lw=1.2, ls=(0, (4, 3)) if dashed else "-", zorder=2)
    if len(path) > 2:
        d.ax.plot(*zip(*path[:-1]), **look)
    head: dict = dict(arrowstyle="-|>", mutation_scale=11, shrinkA=0, shrinkB=1)
    d.ax.add_patch(FancyArrowPatch(path[-2], path[-1], **head, **look))


def _bad_places(
    diagram: Diagram,
    texts: dict,  # text -> where it is drawn
) -> Iterator[str]:
    "Words that overlap other words, and words that leave the picture."
    W, H = diagram.width, diagram.height
    for text, place in texts.items():
        if min(place.x0, place.y0) < 0 or place.x1 > W or place.y1 > H:
            yield f"{text.get_text()!r} leaves the picture"
    for (one, place), (other, other_place) in combinations(texts.items(), 2):
        if place.overlaps(other_place):
            yield f"{other.get_text()!r} lies on {one.get_text()!r}"


def crowded(
    diagram: Diagram,
) -> list[str]:  # empty when all is well
    "Words that overlap other words, leave the picture or do not fit into their box."
    diagram.dpi = DPI  # whoever has shown the figure may have changed it
    renderer = FigureCanvasAgg(diagram).get_renderer()
    texts = {text: text.get_window_extent(renderer) for text in diagram.ax.texts}  # y from below
    wrong = [*_bad_places(diagram, texts)]
    for place, text in diagram.boxes:
        right, bottom = place.right[0], place.bottom[1]
        if min(place[:2]) < 1 or right > diagram.width - 1 or bottom > diagram.height - 1:
            wrong.append(f"a box leaves the picture at ({place.x:g}, {place.y:g})")
        if text and (texts[text].width > place.w - 4 or texts[text].height > place.h - 2):
            wrong.append(f"{text.get_text()!r} does not fit into its box")
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
    film = None if clip is None else as_array(clip)
    if film is not None and (film.ndim != 4 or film.shape[3] != 3 or film.dtype != np.uint8):
        raise ValueError(f"frames: a clip is (T, H, W, 3) uint8, not {film.shape} {film.dtype}")
    for i in reversed(range(count)):
        left, top = x + 5 * i, y + 5 * (count - 1 - i)
        at = 0 if film is None else round(i * (len(film) - 1) / max(count - 1, 1))
        picture = np.full((1, 1, 3), 255) if film is None else film[at]
        extent = (left, left + w, top + h, top)
        d.ax.imshow(picture, extent=extent, aspect="auto", zorder=3 - i / 10)
        d.ax.add_patch(Rectangle((left, top), w, h, fc="none", ec=INK, lw=1, zorder=3.05 - i / 10))
    margin = 5 * (count - 1)
    place = Spot(x, y, w + margin, h + margin)
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
    table = as_array(values).astype(float)
    place = Spot(x, y, cell * table.shape[1], cell * table.shape[0])
    extent = (x, x + place.w, y + place.h, y)
    # .8: never so dark that a border drowns
    low, high = float(table.min()), table.max()
    look: dict = dict(cmap="Blues", vmin=low, vmax=max(low + (high - low) / 0.8, low + 1e-9))
    if low < 0:
        far = float(np.abs(table).max()) / 0.8
        look = dict(cmap="RdBu", vmin=-far, vmax=far)
    d.ax.imshow(table, extent=extent, aspect="auto", zorder=3, **look)
    marks = np.zeros(table.shape, bool) if positive is None else as_array(positive).astype(bool)
    for (r, c), mark in np.ndenumerate(marks):
        edge: dict = dict(ec=NEGATIVE, lw=0.6, zorder=3.1)
        if mark:
            edge = dict(ec=POSITIVE, lw=2.4, zorder=3.2)
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
    marked = None if positive is None else as_array(positive)[None]
    place = draw_matrix(d, x, y, as_array(values)[None], marked, cell)
    arrow(d, place.right, (place.right[0] + 18, place.right[1]))
    write_text(d, place.right[0] + 22, place.right[1], "oldest\nout", "left")
    return place


def cross(
    d: Diagram,
    x: float,  # px, of the upper left corner
    y: float,  # px, of the upper left corner
    side: float,  # px, the side of a cell
) -> None:
    "A cell that is left out."
    left, right = x + 0.2 * side, x + 0.8 * side
    top, bottom = y + 0.2 * side, y + 0.8 * side
    for ends_y in (top, bottom), (bottom, top):
        d.ax.plot((left, right), ends_y, color=INK, lw=0.9, zorder=4)


SIGNS: dict = {
    "learns": dict(fc=LEARNS, ec=INK, lw=1),
    "does not learn": dict(fc=FIXED, ec=INK, lw=1),
    "no gradient": None,
    "positive": dict(fc="white", ec=POSITIVE, lw=2.4),
    "negative": dict(fc="white", ec=NEGATIVE, lw=0.6),
    "itself: left out": dict(fc="white", ec=NEGATIVE, lw=0.6),
}


def legend(
    d: Diagram,
    x: float,  # px, the left end of the line
    y: float,  # px, the middle of the line
    # keys of SIGNS
    signs: Iterable[str] = ("learns", "does not learn", "no gradient", "positive"),
) -> None:
    "What the colours, the crosses and the dashed arrow mean, in one line."
    for words in signs:
        if SIGNS[words]:
            d.ax.add_patch(Rectangle((x, y - 6), 16, 12, **SIGNS[words]))
        else:
            arrow(d, (x - 8, y), (x + 18, y), dashed=True)
        if "left out" in words:
            cross(d, x + 2, y - 6, 12)
        text = write_text(d, x + 22, y, words, "left")
        x += 22 + text.get_window_extent().width + 26


def moco(
    query: Any = None,  # a clip to draw: (T, H, W, 3) uint8
    key: Any = None,  # another clip of the same video
) -> Diagram:
    "Encoder, slow copy, queue: MoCo."
    d = Diagram(560, 226)
    encoder = box(d, 106, 14, 104, 56, "encoder and\nprojection", True, 0.12)
    copy = box(d, 106, 118, 104, 56, "slow copy", False, 0.12)
    q, k = box(d, 240, 26, 24, 32, "q"), box(d, 240, 130, 24, 32, "k")
    for y, clip, name, network, feature in (
        (14, query, "query", encoder, q),
        (118, key, "key", copy, k),
    ):
        arrow(d, frames(d, 8, y, 62, 46, clip, f"{name} clip"), network)
        arrow(d, network, feature)
    arrow(d, encoder, copy, dashed=True)
    write_text(d, 166, 93, "follows\nslowly", "left")
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
