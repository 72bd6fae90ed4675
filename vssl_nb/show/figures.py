"Still pictures: frames side by side, galleries, heat maps, bars and curves."

import io
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image, ImageOps

from .colours import GREEN, RED
from .pixels import as_array, check_titles, frames_of, strip

DPI = 80


def png(
    figure: Figure,
) -> bytes:
    "A figure as a PNG file."
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI)
    return file.getvalue()


class Picture(Figure):
    "A matplotlib figure that displays itself, with or without pyplot."

    def _repr_png_(self) -> bytes:
        return png(self)


def _without_ticks(
    figure: Figure,
    *place: Any,  # as of `add_subplot`
) -> Any:  # axes
    ax = figure.add_subplot(*place)
    ax.set(xticks=[], yticks=[])
    return ax


def strips(
    clips: list,  # clips as `strip` takes them; sizes may differ
    titles: list[str],  # one per clip
    every: int = 1,  # keep one frame in this many
) -> Figure:  # one labelled row per clip, all equally wide
    "Several clips under each other."
    check_titles("strips", clips, titles)
    rows = [np.asarray(strip(clip, every)) for clip in clips]
    heights = [8 * row.shape[0] / row.shape[1] for row in rows]  # inches
    size = (8.6 + 0.12 * max(map(len, titles)), sum(heights) + 0.08 * len(rows))
    figure = Picture(figsize=size, layout="constrained")
    grid = figure.add_gridspec(len(rows), 1, height_ratios=heights)
    for i, (row, title) in enumerate(zip(rows, titles)):
        ax = _without_ticks(figure, grid[i])
        ax.imshow(row)
        ax.set_ylabel(title, rotation=0, ha="right", va="center")
    return figure


def gallery(
    pictures: list,  # (H, W) float in [0,1] as grey, or (H, W, 3) uint8
    titles: list[str],  # one per picture
    columns: int = 4,  # beside each other
) -> Figure:  # all pictures equally wide
    "Single pictures beside each other, each under its title."
    check_titles("gallery", pictures, titles)
    shown = [np.asarray(picture) for picture in pictures]
    columns = min(columns, len(shown))
    rows = -(-len(shown) // columns)
    wide = 9 / max(columns, 3)  # inches
    tall = wide * max(picture.shape[0] / picture.shape[1] for picture in shown)
    lines = 1 + max(title.count("\n") for title in titles)
    size = (wide * columns, (tall + 0.1 + 0.2 * lines) * rows)
    figure = Picture(figsize=size, layout="constrained")
    for i, (picture, title) in enumerate(zip(shown, titles), 1):
        ax = _without_ticks(figure, rows, columns, i)
        ax.imshow(picture, cmap="gray", vmin=0, vmax=1)  # colours need no map
        ax.set_title(title, fontsize=9)
    return figure


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
    x = as_array(x).astype(float)
    size = (min(9, 1.6 + 0.5 * x.shape[1]), min(8, 1 + 0.36 * x.shape[0]))
    figure = Picture(figsize=size, layout="constrained")
    ax = _without_ticks(figure)
    if signed is None:
        signed = bool((x < 0).any())
    look: dict = dict(cmap="Blues")
    if signed:
        finite = x[np.isfinite(x)]
        far = float(np.abs(finite).max(initial=0)) or 1.0
        look = dict(cmap="RdBu", vmin=-far, vmax=far)
    drawn = ax.imshow(x, aspect="auto", **look)
    figure.colorbar(drawn, ax=ax)
    if rows is not None:
        ax.set_yticks(range(len(rows)), rows)
    if cols is not None:
        ax.set_xticks(range(len(cols)), cols)
    ax.set_title(title)

    fmt = fmt or (".2g" if x.size <= 200 else "")
    if not fmt:
        return figure
    for (i, j), value in np.ndenumerate(x):
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
    drawn = ax.bar(list(values), list(values.values()), width=0.6, color=shades)
    ax.bar_label(drawn, fmt="%.2f")
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
        dashes = ((0, (5, 3)), (0, (1, 2)))[i % 2]
        ax.axhline(y, color="grey", ls=dashes, lw=1, label=f"{name}: {y:.3g}")
    ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
    if series:
        ax.legend(frameon=False)
    return figure


def check_neighbours(
    name: str,  # of the function that shows them
    queries: list,
    neighbours: list[list],  # a list for each query
    marks: list[list],  # of each neighbour
) -> None:
    "ValueError unless they are as many, with as many neighbours for each query."
    alike = [*map(len, neighbours)] == [*map(len, marks)]
    if not len(queries) == len(neighbours) == len(marks) or not alike:
        raise ValueError(f"{name}: queries, found clips and right/wrong differ in number")
    if not queries or len({*map(len, marks)}) != 1:
        raise ValueError(f"{name}: give at least one query, and as many neighbours for each")


def _tile(
    clip: Any,
    colour: tuple = (255, 255, 255),  # of the border
    side: int = 88,  # px
) -> np.ndarray:  # (side, side, 3)
    "The middle frame, whole, in a bordered square."
    x = frames_of(clip)
    middle = Image.fromarray(x[len(x) // 2])
    inner = ImageOps.pad(middle, (side - 8, side - 8), color=(255, 255, 255))
    return np.asarray(ImageOps.expand(inner, 4, colour))


def neighbours(
    query_clips: list,  # Q clips
    neighbour_clips: list[list],  # Q lists of K clips, the nearest first
    right: list[list[bool]],  # Q lists of K: has this neighbour the class of the query?
    titles: list[str] | None = None,  # one per query
) -> Figure:  # a row per query
    "Queries on the left, what was found for them beside it, green where it is right."
    check_neighbours("neighbours", query_clips, neighbour_clips, right)
    gap = np.full((88, 22, 3), 255, np.uint8)
    rows = []
    for query, clips, marks in zip(query_clips, neighbour_clips, right):
        tiles = [_tile(clip, GREEN if mark else RED) for clip, mark in zip(clips, marks)]
        rows.append(np.concatenate([_tile(query), gap, *tiles], 1))
    wall = np.concatenate(rows)

    wide = 0.5 + 0.13 * max(map(len, titles or [""]))
    size = (wide + wall.shape[1] / 100, 0.1 + wall.shape[0] / 100)
    figure = Picture(figsize=size, layout="constrained")
    ax = _without_ticks(figure)
    ax.imshow(wall)
    ax.spines[:].set_visible(False)
    if titles:
        ax.set_yticks([88 * i + 44 for i in range(len(rows))], titles)
    ax.tick_params(length=0)
    return figure
