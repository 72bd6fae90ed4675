"""Pictures of the one experiment, from its file alone: conflict, ladder, causes and budget."""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import experiment_conflict
from experiment_rows import written
from experiment_rule import Line, interval, seeds_of
from experiment_tables import percents, read_results
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vssl_nb import show

VIEWS = {"rgb": "frames", "residual": "differences"}
COLOURS = {"rgb": "#2e75b6", "residual": "#d98032"}
GREY = "#8a8a8a"
SMALL, TEXT = 8, 9  # points
PANELS = {
    "plain": {
        "r1": "R@1 of test videos",
        "scene": "conflicts: nearest has the scene",
        "motion": "conflicts: nearest has the motion",
    },
    "both": {
        "r1": "R@1: motion and kind of scene",
        "right_motion": "nearest has the right motion",
        "right_kind": "nearest has the right kind of scene",
    },
}
GROUPS = {
    "before": "before learning",
    "time": "InfoNCE",
    "changes": "without a change of the clip",
    "memory": "memory",
    "no negatives": "no negatives",
    "labels": "labels choose",
    "who chooses": "others choose",
    "causes": "second view, own negatives",
    "moquad": "MoQuad, rung by rung",
    "rest": "the rest",
}

Results = Mapping[str, Any]


def percent(values: Sequence[float]) -> list[float]:
    return [100 * value for value in values]


# ---- ladder


def ladder_lines(
    results: Results,
    world: str,
) -> list[tuple[str, str]]:  # group, row; those with a record
    "Rows in the order of the table."
    known = {r["row"] for r in results["records"] if r["world"] == world and r["budget"] == 1}
    rows = results["rows"].items()
    return [(row["group"], name) for name, row in rows if name in known and row["shown"]]


def ladder(
    results: Results,
    world: str = "plain",
) -> Figure:
    "A row a method: eight dots, the median a bar; R@1, scene and motion side by side."
    lines = ladder_lines(results, world)
    groups = [group for group, _ in lines]
    places, y = [], 0.0
    for i, group in enumerate(groups):
        y += 1.0 if i == 0 or group == groups[i - 1] else 2.1
        places.append(y)

    figure = show.Picture(figsize=(10.4, 0.235 * (y + 1.5) + 1.0), dpi=show.DPI)
    bottom, top = 0.5 / figure.get_figheight(), 1 - 0.62 / figure.get_figheight()
    chance = {m: percents(results, Line("chance", world=world), m) for m in PANELS[world]}
    for i, (metric, title) in enumerate(PANELS[world].items()):
        ax = figure.add_axes((0.215 + 0.265 * i, bottom, 0.245, top - bottom))
        for (_, name), place in zip(lines, places):
            draw_dots(ax, results, name, world, metric, place)
        if chance[metric]:
            ax.axvline(statistics.median(chance[metric]), color=GREY, ls="--", lw=0.8)
        ax.set(xlim=(-3, 103), ylim=(y + 0.8, 0.2), yticks=places, xticks=range(0, 101, 25))
        names = [written(name) for _, name in lines] if i == 0 else []
        ax.set_yticklabels(names or [""] * len(places), fontsize=SMALL)
        ax.set_xlabel("% (dashed: chance)", fontsize=SMALL)
        ax.set_title(title, fontsize=TEXT, loc="left", pad=8)
        tidy(ax)
        if i == 0:
            name_groups(ax, groups, places)
    legend(figure)
    return figure


def draw_dots(
    ax: Axes,
    results: Results,
    name: str,  # of a row
    world: str,
    metric: str,
    place: float,
) -> None:
    "The seeds of a row: frames above, differences below, where there are both."
    numbers = {v: percents(results, Line(name, v, world=world), metric) for v in VIEWS}
    shown = [view for view in VIEWS if numbers[view]]
    ax.axhline(place, color="#e8e8e8", lw=0.7, zorder=0)
    for view in shown:
        shift = 0.0 if len(shown) == 1 else 0.2 if view == "residual" else -0.2
        values = numbers[view]
        at = [place + shift] * len(values)
        ax.scatter(values, at, s=13, color=COLOURS[view], alpha=0.55, linewidths=0)
        middle = statistics.median(values)
        ax.plot([middle] * 2, [place + shift - 0.26, place + shift + 0.26], color="black", lw=1.6)


def name_groups(ax: Axes, groups: Sequence[str], places: Sequence[float]) -> None:
    "The name of a group above its first row."
    for i, (group, place) in enumerate(zip(groups, places)):
        if i == 0 or group != groups[i - 1]:
            ax.annotate(
                GROUPS.get(group, group),
                (0, place - 0.98),
                xycoords=ax.get_yaxis_transform(),
                xytext=(-5, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                fontsize=SMALL,
                color=GREY,
                style="italic",
            )


def legend(figure: Figure) -> None:
    "Which colour is which view, and what the bar is."
    y = 1 - 0.17 / figure.get_figheight()
    for i, (view, words) in enumerate(VIEWS.items()):
        figure.text(
            0.215 + 0.13 * i, y, f"● {words}", color=COLOURS[view], fontsize=TEXT, va="center"
        )
    figure.text(0.48, y, "a dot: one seed     ❙ median of the seeds", fontsize=TEXT, va="center")


def tidy(ax: Axes) -> None:
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(labelsize=SMALL, length=2)
    ax.tick_params(axis="y", length=0)


# ---- causes

# (broken clips, second view?) -> row; each is compared with the first
OWN_NEGATIVES = {
    ("no broken clips", False): "bank",
    ("broken in time", False): "bank, shuffled",
    ("broken in space", False): "bank, patches",
    ("no broken clips", True): "cmc",
    ("broken in time", True): "iic",
    ("broken in space", True): "iic, patches",
}
# who chooses the positives -> row, with twice the budget; each is compared with the first
CHOOSERS = {
    "its own clip": "queue",
    "the network itself": "itself",
    "untrained differences": "untrained differences",
    "trained differences": "coclr",
    "labels, a half right": "labels at 0.5",
    "labels": "ubernce",
}
WIDTH, HEIGHT, GAP = 0.2, 0.225, 0.025  # of a cell, in shares of the figure


def causes(results: Results) -> Figure:
    """Own negatives against a second view, and who chooses: a cell has its seeds, their median, and
    the difference to the first cell of its part.
    """
    figure = show.Picture(figsize=(10.4, 4.9), dpi=show.DPI)

    def place(column: int, line: int) -> tuple[float, float, float, float]:
        left = 0.115 + (WIDTH + 0.012) * column + 0.04 * (column > 1)
        return left, 0.635 - (HEIGHT + GAP) * line, WIDTH, HEIGHT

    lines = [*dict.fromkeys(broken for broken, _ in OWN_NEGATIVES)]
    for (broken, second), row in OWN_NEGATIVES.items():
        at = place(int(second), lines.index(broken))
        draw_cell(figure.add_axes(at), results, row, "bank", written(row))
    for i, (who, row) in enumerate(CHOOSERS.items()):
        draw_cell(figure.add_axes(place(2 + i // 3, i % 3)), results, row, "queue", who, 2)

    for line, words in enumerate(lines):
        y = place(0, line)[1] + HEIGHT / 2
        words = words.replace(" ", "\n", 1)
        figure.text(0.107, y, words, ha="right", va="center", fontsize=TEXT)
    for column, words in enumerate(("frames alone", "frames and differences")):
        x = place(column, 0)[0] + WIDTH / 2
        figure.text(x, 0.885, words, ha="center", fontsize=TEXT)
    for column, words in ((0, "one network, own negatives"), (2, "who chooses? twice the budget")):
        x = place(column, 0)[0] + WIDTH + 0.006
        figure.text(x, 0.945, words, ha="center", fontsize=TEXT + 2, weight="bold")
    figure.text(
        0.115,
        0.015,
        "R@1 on frames, %: a dot a seed, the bar their median. On the right of a cell the mean "
        "difference to\nthe first cell of its part, paired by seed, with its 95 % interval.",
        fontsize=SMALL,
    )
    return figure


def draw_cell(
    ax: Axes,
    results: Results,
    row: str,
    base: str,  # the row that it is compared with
    words: str,  # its name
    times: int = 1,  # the budget
) -> None:
    "The seeds of a row, their median, and the difference to another row."
    ax.set(xlim=(-4, 104), ylim=(0, 1), yticks=[], xticks=[0, 50, 100])
    ax.tick_params(labelsize=SMALL - 1, length=2, pad=1)
    ax.spines[:].set_color("#cccccc")
    values = seeds_of(results["records"], Line(row, budget=times), "r1")
    if not values:
        ax.text(0.5, 0.55, "not run", transform=ax.transAxes, ha="center", color=GREY)
        return

    numbers = percent([*values.values()])
    middle = statistics.median(numbers)
    ax.set_facecolor((1 - 0.0035 * middle, 1 - 0.0018 * middle, 1.0))
    ax.scatter(numbers, [0.3] * len(numbers), s=16, color=COLOURS["rgb"], alpha=0.6, linewidths=0)
    ax.plot([middle] * 2, [0.2, 0.4], color="black", lw=1.8)
    right = dict(transform=ax.transAxes, va="center", ha="right")
    ax.text(0.03, 0.83, f"{middle:.0f}", transform=ax.transAxes, fontsize=15, va="center")
    ax.text(0.97, 0.86, words, fontsize=SMALL, color=GREY, **right)
    first = seeds_of(results["records"], Line(base, budget=times), "r1")
    paired = percent([values[s] - first[s] for s in sorted(values.keys() & first.keys())])
    if row != base and paired:
        low, high = interval(paired)
        # with a digit behind the point: whether an interval includes 0 must be seen
        gain = f"{statistics.fmean(paired):+.1f} ({low:+.1f} to {high:+.1f})"
        if math.isinf(low):  # too few for the exact test to reject anything
            gain = f"{len(paired)} seeds: no interval"
        ax.text(0.97, 0.6, gain, fontsize=TEXT, **right)


# ---- budget

LONG_ROWS = {
    "infonce": ("InfoNCE", "#6f6f6f"),
    "ubernce": ("UberNCE", "#3b8f4e"),
    "coclr": ("CoCLR", "#2e75b6"),
    "cmc": ("CMC", "#8c5aa8"),
    "iic": ("IIC", "#c0504d"),
}
BUDGETS = (1, 2, 4)


def budget(results: Results) -> Figure:
    "R@1 against steps and against seconds of a core: a thin line a seed, a thick one the medians."
    figure = show.Picture(figsize=(10.4, 4.6), dpi=show.DPI)
    titles = {"steps": "optimizer steps", "cpu_seconds": "seconds of a core"}
    for i, (currency, title) in enumerate(titles.items()):
        ax = figure.add_axes((0.06 + 0.48 * i, 0.13, 0.335, 0.77))
        ends = {}
        for name, (words, colour) in LONG_ROWS.items():
            end = draw_budget(ax, results, name, colour, currency)
            if end:
                ends[words, colour] = end
        ax.set_xscale("log", base=2)
        ax.set(ylim=(0, 102), xlabel=f"{title}, helpers included")
        ax.set_ylabel("R@1 on frames, %" if i == 0 else "", fontsize=TEXT)
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        ax.xaxis.label.set_size(TEXT)
        ax.tick_params(labelsize=SMALL)
        ax.spines[["top", "right"]].set_visible(False)
        chance = percents(results, Line("chance"))
        if chance:
            ax.axhline(statistics.median(chance), color=GREY, ls="--", lw=0.8)
        name_ends(ax, ends)
    figure.text(
        0.06,
        0.95,
        "Once, twice and four times the clips that the measured encoder draws. A thin line a seed, "
        "the thick one joins their medians; dashed: chance.",
        fontsize=SMALL,
    )
    return figure


def draw_budget(
    ax: Axes,
    results: Results,
    name: str,
    colour: str,
    currency: str,  # 'steps' or 'cpu_seconds'
) -> tuple[float, float] | None:  # where the line of the medians ends
    "The lines of a method."
    by_seed: dict[int, list[tuple[float, float]]] = {}
    by_budget: dict[int, list[tuple[float, float]]] = {}
    for r in results["records"]:
        if (r["world"], r["row"], r["view"]) == ("plain", name, "rgb") and r["budget"] in BUDGETS:
            point = r["whole"][currency], 100 * r["r1"]
            by_seed.setdefault(r["seed"], []).append(point)
            by_budget.setdefault(r["budget"], []).append(point)
    if not by_budget:
        return None
    for points in by_seed.values():
        ax.plot(*zip(*sorted(points)), color=colour, lw=0.7, alpha=0.45)
    middles = [tuple(map(statistics.median, zip(*by_budget[n]))) for n in sorted(by_budget)]
    ax.plot(*zip(*middles), color=colour, lw=2.4, marker="o", ms=4)
    return middles[-1]


def name_ends(ax: Axes, ends: Mapping[tuple[str, str], tuple[float, float]]) -> None:
    "Names to the right of the lines, none over another."
    last = 200.0
    right = max((x for x, _ in ends.values()), default=1.0)
    for (words, colour), (x, y) in sorted(ends.items(), key=lambda item: -item[1][1]):
        last = min(y, last - 5.5)
        ax.annotate(
            words,
            (x, y),
            xytext=(right * 1.12, last),
            fontsize=TEXT,
            color=colour,
            va="center",
            annotation_clip=False,
            arrowprops=dict(arrowstyle="-", color=colour, lw=0.5, shrinkA=0, shrinkB=3),
        )


# ---- all of them


def draw_all(
    file: Path,  # of results
    folder: Path,
) -> list[Path]:  # of the pictures
    "Draw what the file has."
    results = read_results(file)
    pictures: dict[str, Figure | show.Loop] = {
        "experiment": experiment_conflict.picture(results),
        "ladder": ladder(results),
        "causes": causes(results),
        "budget": budget(results),
    }
    if any(r["world"] == "both" for r in results["records"]):
        pictures["ladder-both"] = ladder(results, "both")
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, figure in pictures.items():
        made.append(folder / f"{name}.png")
        show.save_picture(figure, made[-1])
    return made
