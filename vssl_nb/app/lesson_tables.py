"""The tables of the lessons, which display themselves: rows with a dot a seed, differences with
their intervals, and the settings that a search has tried.

A table has plain numbers; `course` reads them from the one experiment.
"""

import html
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..measure.paired import subset_interval

FRAMES, DIFFERENCES = "rgb", "residual"
SEES = {FRAMES: "frames", DIFFERENCES: "differences"}
SEEDS = tuple(range(41, 49))  # of a row that is whole
CHANCE = {"plain": 100 / 8, "both": 100 / 16}  # percent, of R@1 in a world


# ---- rows


@dataclass(frozen=True)
class LessonRow:
    "A line of the table as it is shown."

    name: str
    sees: str  # the view that it learns from and is measured on
    r1: tuple[float, ...]  # percent, of each seed
    scene: float  # percent, median: the nearest training video has the scene of the conflict
    motion: float  # and its motion
    steps: int  # 0: nothing is trained
    seconds: float  # of a core, with all helpers; median
    new: bool  # added by the lesson
    landmark: bool  # stays in a short table
    chance: float  # percent, of R@1 in its world

    @property
    def title(self) -> str:
        "The name, with the number of seeds of a row that waits for some."
        return self.name + ("" if len(self.r1) == len(SEEDS) else f" ({len(self.r1)} seeds)")


@dataclass(frozen=True)
class LessonTable:
    "Rows so far; it displays itself."

    rows: tuple[LessonRow, ...]
    world: str = "plain"

    def short(self) -> "ShortTable":
        "The landmarks and what was added last; the other rows are folded."
        return ShortTable(self)

    def folded(self) -> "FoldedTable":
        "To click on, where no lesson has added a row since the table was last shown."
        return FoldedTable(self)

    def __repr__(self) -> str:
        lines = [
            f"{r.title:36} {r.sees:11} {statistics.median(r.r1):5.1f} "
            f"{r.scene:5.1f} {r.motion:5.1f}"
            for r in self.rows
        ]
        return "\n".join([f"{'row':36} {'sees':11} {'R@1':>5} scene motion", *lines])

    def _repr_html_(self) -> str:
        names = ("row", "sees", "R@1, a dot a seed", "R@1", "scene", "motion", "steps", "s")
        head = "".join(f'<th style="{_cell_style(i)}">{name}</th>' for i, name in enumerate(names))
        body = f"<tr>{head}</tr>" + "".join(_html_row(row) for row in self.rows)
        table = f'<table style="border-collapse:collapse">{body}</table>'
        return f"{table}<p><small>{self.note}</small></p>"

    @property
    def note(self) -> str:
        "What the columns are: of those that this table has."
        sentences = [] if self.world == "plain" else [f"World {self.world}."]
        seeds = f"{len(SEEDS)} seeds"
        if any(len(row.r1) != len(SEEDS) for row in self.rows):
            seeds += " (or the number behind the name)"
        sentences += [
            f"Medians over {seeds}, in percent; a dot is a seed, from 0 to 100, and the dashed "
            "line is chance.",
            "Scene, motion: what the nearest training video of a conflict has.",
        ]
        if any(row.steps for row in self.rows):
            sentences.append("s: seconds on one core, trainings of helpers included.")
        if any(row.new for row in self.rows):
            sentences.append("Bold: added last.")
        return " ".join(sentences)


@dataclass(frozen=True)
class ShortTable:
    "A few rows of a table, and all of them to click on; it displays itself."

    whole: LessonTable

    @property
    def rows(self) -> tuple[LessonRow, ...]:
        "The landmarks, and what was added last."
        every = self.whole.rows
        last = [r for r in every if r.new] or every[-2:]  # not every lesson adds one
        return tuple(r for r in every if r in last or r.landmark)

    def __repr__(self) -> str:
        return repr(LessonTable(self.rows, self.whole.world))

    def _repr_html_(self) -> str:
        few = LessonTable(self.rows, self.whole.world)._repr_html_()
        rows = self.whole._repr_html_().split("<p>")[0]
        head = f"<summary>all {len(self.whole.rows)} rows so far</summary>"
        return f"{few}<details>{head}{rows}</details>"


@dataclass(frozen=True)
class FoldedTable:
    "A table to click on; it displays itself."

    whole: LessonTable

    def __repr__(self) -> str:
        return repr(self.whole)

    def _repr_html_(self) -> str:
        head = f"<summary>the {len(self.whole.rows)} rows so far, with no new one</summary>"
        return f"<details>{head}{self.whole._repr_html_()}</details>"


def _cell_style(column: int) -> str:
    "Names to the left, numbers to the right."
    return f"text-align:{'left' if column < 3 else 'right'};padding:0 .45em"


def _name_cell(
    name: str,  # of a row of the experiment
    one_line: bool,  # may it not be broken?
) -> str:
    style = "text-align:left;" + "white-space:nowrap;" * one_line + "padding:0 .45em"
    return f'<td style="{style}">{html.escape(name)}</td>'


def _html_row(row: LessonRow) -> str:
    weight = "bold" if row.new else "normal"
    cells = [
        row.sees,
        _dots(row.r1, row.chance),
        f"{statistics.median(row.r1):.1f}",
    ]
    cells += [f"{row.scene:.1f}", f"{row.motion:.1f}"]
    cells += [f"{row.steps:,}", f"{row.seconds:.0f}"] if row.steps else ["", ""]
    made = "".join(f'<td style="{_cell_style(i)}">{cell}</td>' for i, cell in enumerate(cells, 1))
    return (
        f'<tr style="font-weight:{weight}">{_name_cell(row.title, len(row.title) <= 20)}{made}</tr>'
    )


def _svg_head(width: int) -> str:  # px
    return f'<svg width="{width}" height="20" role="img" style="vertical-align:middle">'


def _dots(
    values: Sequence[float],  # percent
    chance: float = CHANCE["plain"],  # percent
    width: int = 180,  # px
) -> str:  # an SVG
    "A dot a seed on a line from 0 to 100, and a dashed line at chance."

    def x(percent: float) -> float:
        return 6 + (width - 12) * percent / 100

    line = f'<line x1="6" y1="10" x2="{width - 6}" y2="10" stroke="#d0d0d0"/>'
    dash = f'<line x1="{x(chance):.1f}" y1="1" x2="{x(chance):.1f}" y2="19" stroke="#8a8a8a" '
    dash += 'stroke-dasharray="2 2"/>'
    dots = "".join(
        f'<circle cx="{x(v):.1f}" cy="10" r="4" fill="#2e75b6" fill-opacity="0.5"/>' for v in values
    )
    return f"{_svg_head(width)}{line}{dash}{dots}</svg>"


# ---- differences


@dataclass(frozen=True)
class Difference:
    "Row a minus row b, paired by seed."

    a: str
    b: str
    metric: str
    seeds: tuple[float, ...]  # points, of each seed
    world: str = "plain"

    @property
    def mean(self) -> float:
        return statistics.fmean(self.seeds)

    @property
    def interval(self) -> tuple[float, float]:  # 95 %, of the exact sign-flip test
        return subset_interval(self.seeds)

    @property
    def written_interval(self) -> str:
        "The interval; of too few seeds for one the difference of each seed."
        low, high = self.interval
        if math.isfinite(low):
            return f"{low:+.1f} to {high:+.1f}"
        return "no interval yet; by seed " + ", ".join(f"{x:+.1f}" for x in self.seeds)

    @property
    def cell(self) -> str:  # HTML, in two lines
        "Mean and interval for a cell of a table; an end at 0 has no sign."
        if not math.isfinite(self.interval[0]):
            return f"{self.mean:+.1f}<br>(no interval yet)".replace("-", "−")
        ends = (f"{x:+.1f}" if abs(x) >= 0.05 else "0" for x in self.interval)
        interval = "\u00a0to\u00a0".join(ends)
        return f"{self.mean:+.1f}<br>({interval})".replace("-", "−")

    @property
    def metric_name(self) -> str:
        return {"r1": "R@1", "r5": "R@5"}.get(self.metric, self.metric)

    def __repr__(self) -> str:
        world = "" if self.world == "plain" else f"world {self.world}: "
        return (
            f"{world}{self.metric_name}, {self.a} minus {self.b}: {self.mean:+.1f} points "
            f"({self.written_interval}), {len(self.seeds)} seeds"
        )


@dataclass(frozen=True)
class DifferenceTable:
    "Differences below one another, on one scale; it displays itself."

    differences: tuple[Difference, ...]

    @property
    def reach(self) -> int:  # points, a multiple of ten
        "How far the scale goes to both sides of 0."
        points = [x for d in self.differences for x in (*d.seeds, *d.interval) if math.isfinite(x)]
        return max(10, 10 * math.ceil(max(map(abs, points)) / 10))

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.differences))

    @property
    def columns(self) -> tuple[str, ...]:
        "Heads of the table; the metric has a column where it is not R@1 everywhere."
        metric = {d.metric_name for d in self.differences} != {"R@1"}
        return (
            "row",
            "minus",
            *(["of"] if metric else []),
            "a dot a seed",
            "mean",
            "95 %",
            "seeds",
        )

    @property
    def suffix(self) -> str:  # '' or ' on differences'
        "The end of every name, where all rows are on differences; the head of the table has it."
        ending = f" on {SEES[DIFFERENCES]}"
        names = [name for d in self.differences for name in (d.a, d.b)]
        return ending if all(name.endswith(ending) for name in names) else ""

    def _repr_html_(self) -> str:
        titles = {"row": f"row{self.suffix}"}
        head = "".join(
            f'<th style="{_difference_style(name)}">{titles.get(name, name)}</th>'
            for name in self.columns
        )
        names = [
            (d.a.removesuffix(self.suffix), d.b.removesuffix(self.suffix)) for d in self.differences
        ]
        # two columns of long names would push the table out of the text
        one_line = sum(max(map(len, column)) for column in zip(*names)) <= 34
        rows = [
            self._row(difference, [_name_cell(name, one_line) for name in pair])
            for difference, pair in zip(self.differences, names)
        ]
        worlds = {d.world for d in self.differences} - {"plain"}
        metric = "" if "of" in self.columns else "Of R@1. "
        note = "".join(f"World {world}. " for world in sorted(worlds)) + (
            f"{metric}Points: the first row minus the second, for each seed, and their mean; the "
            f"thick bar is its 95 % interval. The line runs from &minus;{self.reach} to "
            f"+{self.reach}, with 0 dashed. (A table of rows shows medians: their difference may "
            "be another number.)"
        )
        table = f'<table style="border-collapse:collapse"><tr>{head}</tr>{"".join(rows)}</table>'
        return f"{table}<p><small>{note}</small></p>"

    def _row(
        self,
        difference: Difference,
        names: list[str],  # cells of its two rows
    ) -> str:
        bounded = math.isfinite(difference.interval[0])
        cells = {
            "of": difference.metric_name,
            "a dot a seed": _dots_about_zero(difference, self.reach),
            "mean": f"{difference.mean:+.1f}",
            "95 %": difference.written_interval if bounded else "none yet",
            "seeds": str(len(difference.seeds)),
        }
        rest = (f'<td style="{_difference_style(n)}">{cells[n]}</td>' for n in self.columns[2:])
        return f"<tr>{''.join((*names, *rest))}</tr>"


def _difference_style(column: str) -> str:
    "Names to the left, numbers to the right."
    if column in ("row", "minus", "of", "a dot a seed"):
        return "text-align:left;padding:0 .45em"
    return "text-align:right;white-space:nowrap;padding:0 .45em"


def _dots_about_zero(
    difference: Difference,
    reach: int,  # points
    width: int = 140,  # px
) -> str:  # an SVG
    "A dot a seed, the interval as a bar, the mean as a stroke, and a dashed line at 0."

    def x(points: float) -> str:
        return f"{6 + (width - 12) * (points + reach) / (2 * reach):.1f}"

    line = f'<line x1="6" y1="10" x2="{width - 6}" y2="10" stroke="#d0d0d0"/>'
    dash = f'<line x1="{x(0)}" y1="1" x2="{x(0)}" y2="19" stroke="#8a8a8a" stroke-dasharray="2 2"/>'
    low, high = difference.interval
    bar = ""
    if math.isfinite(low):
        bar = f'<line x1="{x(low)}" y1="10" x2="{x(high)}" y2="10" stroke="#1f4e79" '
        bar += 'stroke-width="3"/>'
    dots = "".join(
        f'<circle cx="{x(v)}" cy="10" r="3.5" fill="#2e75b6" fill-opacity="0.45">'
        f"<title>{v:+.1f}</title></circle>"
        for v in difference.seeds
    )
    mean = x(difference.mean)
    stroke = f'<line x1="{mean}" y1="4" x2="{mean}" y2="16" stroke="#1f4e79" stroke-width="2"/>'
    return f"{_svg_head(width)}{line}{dash}{bar}{dots}{stroke}</svg>"


@dataclass(frozen=True)
class CellTable:
    "Rows in two directions: in each cell the seeds, their median, and the gain over the first."

    r1: Mapping[tuple[str, str], Sequence[float]]  # (line, column) -> percent, of each seed
    gains: Mapping[tuple[str, str], Difference]  # over the first cell; it has none itself

    def __repr__(self) -> str:
        lines = []
        for key, values in self.r1.items():
            gain = self.gains.get(key)
            over = f", {gain.mean:+.1f} ({gain.written_interval})" if gain else ""
            lines.append(f"{', '.join(key)}: R@1 {statistics.median(values):.1f} %{over}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        lines, columns = ([*dict.fromkeys(key[i] for key in self.r1)] for i in (0, 1))
        head = "".join(f"<th>{html.escape(c)}</th>" for c in columns)
        body = ""
        for line in lines:
            made = [self._cell((line, column)) for column in columns]
            style = "text-align:left;padding:.3em 1em"
            cells = "".join(f'<td style="{style}">{cell}</td>' for cell in made)
            body += f"<tr><th>{html.escape(line)}</th>{cells}</tr>"
        note = (
            "R@1 on frames, percent: a dot a seed; bold: the median; below it the mean difference "
            "to the first cell with its 95 % interval, paired by seed. Fewer than six seeds have "
            "none."
        )
        return f"<table><tr><th></th>{head}</tr>{body}</table><p><small>{note}</small></p>"

    def _cell(self, key: tuple[str, str]) -> str:
        if key not in self.r1:
            return "not run"
        values = self.r1[key]
        text = f"{_dots(values)}<br><b>{statistics.median(values):.1f}</b>"
        if key not in self.gains:
            return text
        gain = self.gains[key]
        return f"{text}<br>{gain.mean:+.1f} ({gain.written_interval})"


# ---- a search


@dataclass(frozen=True)
class Trials:
    "What the search of a row's settings has measured; it displays itself, folded."

    title: str  # row and view, in words
    trials: tuple[dict[str, Any], ...]  # of `search` in the stored file

    @staticmethod
    def settings(trial: Mapping[str, Any]) -> dict[str, str]:
        "The rate and a method's own settings."
        given = {"rate": trial["lr"], **trial["own"]}
        return {k: f"{v:g}" if isinstance(v, float) else str(v) for k, v in given.items()}

    def __repr__(self) -> str:
        words = [
            f"seed {t['seed']}: " + ", ".join(f"{k} {v}" for k, v in self.settings(t).items())
            for t in self.trials
        ]
        width = max(map(len, words))
        return "\n".join(
            f"{w:{width}}  R@1 {100 * t['r1']:4.1f} %, scene {100 * t['scene']:3.0f} %"
            for w, t in zip(words, self.trials)
        )

    def _repr_html_(self) -> str:
        rows = [
            {
                "seed": str(t["seed"]),
                **self.settings(t),
                "R@1": f"{100 * t['r1']:.1f}",
                "scene": f"{100 * t['scene']:.0f}",
            }
            for t in self.trials
        ]
        names = [*dict.fromkeys(name for row in rows for name in row)]
        names.sort(key=lambda name: name in ("R@1", "scene"))  # the numbers last
        style = 'style="text-align:right;padding:0 .45em"'
        head = "".join(f"<th {style}>{html.escape(name)}</th>" for name in names)
        body = ""
        for row in rows:
            cells = "".join(f"<td {style}>{row.get(name, '')}</td>" for name in names)
            body += f"<tr>{cells}</tr>"
        return (
            f"<details><summary>settings that were tried: {html.escape(self.title)}</summary>"
            f'<table style="border-collapse:collapse"><tr>{head}</tr>{body}</table></details>'
        )
