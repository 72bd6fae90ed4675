"""The moving picture of the README: a conflict plays, and below it stand the rows of the table."""

import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np
from experiment_rows import SEEDS
from experiment_rule import Line
from experiment_tables import README_ROWS, percents
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg

from vssl_nb import show
from vssl_nb.data import toy

SCENE, MOTION, R1 = "#c0504d", "#2e75b6", "#333333"
GREY = "#8a8a8a"
WIDTH = 640  # px
SIDE = 160  # px of a video that plays
TOP = 48  # px above the videos
LINE = 24  # px of a row
LEFT, PANEL, GAP = 168, 138, 18  # px before the first panel, of a panel, and between two
FRAMES = 22
COLUMNS = {
    "scene": ("conflicts: same scene", SCENE),
    "motion": ("conflicts: same motion", MOTION),
    "r1": ("R@1 of test videos", R1),
}


def playing(
    seed: int,
) -> list[np.ndarray]:  # 3 times (FRAMES, 32, 32, 3) uint8
    """A training video, the conflict that has its scene, and a training video with the motion of
    the conflict.
    """
    settings = toy.configure("demo", seed)
    queries = {row.video: arguments for row, arguments in toy.plan_conflict(settings)}
    videos = {row.video: arguments for row, arguments in toy.plan_toy(settings)}
    scene = videos[f"shake_x/s{seed}g002_t01.mp4"]
    query = queries[f"{toy.CONFLICT}/shake_x/s{seed}g002_circle_cw.mp4"]
    motion = videos[f"circle_cw/s{seed}g002_t01.mp4"]
    return [toy.video(**arguments, at=range(FRAMES)) for arguments in (scene, query, motion)]


class Sheet:
    "A figure whose places are px from the left and from the top."

    def __init__(self, width: int, height: int):
        self.width, self.height = width, height
        size = (width / show.DPI, height / show.DPI)
        self.figure = show.Picture(figsize=size, dpi=show.DPI)
        self.canvas = FigureCanvasAgg(self.figure)

    def write(self, x: float, y: float, text: str, **style: Any) -> None:
        self.figure.text(x / self.width, 1 - y / self.height, text, va="center", **style)

    def axes(self, x: float, y: float, width: float, height: float, **options: Any) -> Axes:
        box = (
            x / self.width,
            1 - (y + height) / self.height,
            width / self.width,
            height / self.height,
        )
        return self.figure.add_axes(box, **options)

    def pixels(self) -> np.ndarray:  # (height, width, 3) uint8
        self.canvas.draw()
        return np.asarray(self.canvas.buffer_rgba())[..., :3]


def draw_column(
    ax: Axes,
    results: Mapping[str, Any],
    metric: str,
    colour: str,
) -> None:
    "A dot a seed, a bar at their median, for each row."
    for i, row in enumerate(README_ROWS):
        values = percents(results, row.line, metric)
        middle = statistics.median(values)
        ax.axhline(i, color="#e8e8e8", lw=0.8, zorder=0)
        ax.scatter(values, [i] * len(values), s=20, color=colour, alpha=0.5, linewidths=0)
        ax.plot([middle] * 2, [i - 0.34, i + 0.34], color="black", lw=1.6)
    chance = statistics.median(percents(results, Line("chance"), metric))
    ax.axvline(chance, color=GREY, ls="--", lw=0.8)
    ax.set(xlim=(-4, 104), ylim=(len(README_ROWS) - 0.4, -0.6), yticks=[], xticks=[0, 50, 100])
    ax.tick_params(labelsize=8, length=2, colors=GREY)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color("#cccccc")


def draw_sheet(
    results: Mapping[str, Any],
    corners: list[int],  # px, left edges of the videos
) -> Sheet:
    "The picture but for the videos."
    head = TOP + SIDE + 34  # where the columns begin
    rows = LINE * len(README_ROWS)
    sheet = Sheet(WIDTH, head + rows + 62)

    titles = (
        ("training video: its scene", SCENE),
        ("conflict: scene of the left\nvideo, motion of the right", "black"),
        ("training video: its motion", MOTION),
    )
    for x, (title, colour) in zip(corners, titles):
        sheet.write(x + SIDE / 2, 26, title, ha="center", fontsize=9, color=colour)
        frame = sheet.axes(x, TOP, SIDE, SIDE, xticks=[], yticks=[])
        frame.spines[:].set(color=colour, linewidth=4)

    for i, row in enumerate(README_ROWS):
        sheet.write(LEFT - 10, head + LINE * (i + 0.5), row.name, ha="right", fontsize=9)
    for i, (metric, (title, colour)) in enumerate(COLUMNS.items()):
        x = LEFT + i * (PANEL + GAP)
        sheet.write(x + PANEL / 2, head - 12, title, ha="center", fontsize=8.5, color=colour)
        draw_column(sheet.axes(x, head, PANEL, rows), results, metric, colour)
    sheet.write(
        LEFT,
        head + rows + 42,
        f"%; a dot is one of {len(SEEDS)} seeds, the bar their median, dashed: chance",
        fontsize=8,
        color=GREY,
    )
    return sheet


def most_frequent(
    pixels: np.ndarray,  # (H, W, 3) uint8
    count: int = 100,
) -> list[tuple[int, ...]]:  # colours
    "The colours of dots and letters, which a small palette would turn grey."
    colours, times = np.unique(pixels.reshape(-1, 3), axis=0, return_counts=True)
    return [tuple(colours[i].tolist()) for i in np.argsort(-times, kind="stable")[:count]]


def picture(results: Mapping[str, Any]) -> show.Loop:
    "The conflict plays above the rows."
    corners = [30 + i * (SIDE + 50) for i in range(3)]
    still = draw_sheet(results, corners).pixels()
    films = playing(SEEDS[0])
    frames = []
    for t in range(FRAMES):
        frame = still.copy()
        for x, film in zip(corners, films):
            size = film.shape[1]
            large = film[t].repeat(SIDE // size, 0).repeat(SIDE // size, 1)
            frame[TOP : TOP + SIDE, x : x + SIDE] = large
        frames.append(frame)
    return show.Loop(frames, 12, exact=most_frequent(still), max_bytes=250_000)
