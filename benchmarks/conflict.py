"""Does an encoder go by the scene or by the motion? Every method at equal clips seen, where the two
disagree.

A conflict is a query with the sprite and the background of one training video and the motion of
another class (`vssl_nb.data.toy.make_conflict`, 360 queries against 720 training videos; chance
.003 and .125). For every method below its recipe for toy videos is trained on frames, and most of
them on frame differences, and it is counted which training video is nearest to each query: one of
its scene, one of its motion, or neither. Beside it R@1 on ordinary test videos, a colour histogram
and encoders with random weights.

Written down before the first run: the plain toy (`demo`, nothing changed), seeds 31 to 38 (of
videos, weights and order; no setting was chosen on them), every number of the recipes but `epochs`,
the clips of a test video (3), and batches of 8 videos in place of 32 at half the rate, so that few
clips make many steps (on seed 30 CoCLR still followed the scene in 95 % of the queries after six
epochs of 32, in 42 % after six of 8, in 3 % after twelve); forward passes in bfloat16. Equal clips
seen: a training sees EPOCHS times two clips of each training video, and the epochs of recipes with
one, three or four clips follow from that. UberNCE, CoCLR and CPR begin with InfoNCE for a third of
their clips; CoCLR and CPR are mined by InfoNCE of the other view, trained as long as everybody
else, whose clips are not counted (on differences CoCLR is mined by the CoCLR of the frames). Of the
two CoCLR of a seed both streams together are measured, too (R@1 of the sum of their cosines), and
on how many test videos only one of them is right. MoQuad's rungs have neither hard negatives nor
the appearance task, as in the paper's Table 4. Intervals of a method are over the seeds (Student's
t).

    python benchmarks/conflict.py --out results/conflict-toy.json
    python benchmarks/conflict.py --out results/conflict-toy.json --picture nbs/images/conflict.png

The first command goes on where it was killed, also in the middle of a training; its runs lie in
`runs/conflict`. It takes the methods in turns, all seeds of the first one first, so that the file
can be drawn after each: about an hour on one core for the first turn, less than three for the first
three. The second command draws from the file alone: a query, its scene's video and its motion's
video, playing, and a bar a method."""

import json
import statistics
import time
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import measurement
from intervals import seed_interval
from matplotlib.axes import Axes
from experiment_conflict import Sheet, playing
from measurement import stop
from result_files import SeedResults, Stamp, digest, rule, settings_of
from run_folders import folder_name, trained
from torch import nn

from vssl_nb import show
from vssl_nb.data import toy
from vssl_nb.data.dataset import VideoCache
from vssl_nb.data.manifest import read
from vssl_nb.measure.features import extract, restrict
from vssl_nb.measure.health import conflict_shares
from vssl_nb.measure.retrieval import (
    compare_features,
    histogram,
    join,
    recall,
    retrieval_recall,
)
from vssl_nb.config import Recipe
from vssl_nb.methods.recipes import find, override, to_dict
from vssl_nb.runs.evaluation import EvaluatedEncoder, open_trained, untrained_encoder
from vssl_nb.training.machine import Machine, keep_memory

SEEDS = range(31, 39)
EPOCHS = 12
BATCH = 8
VIEWS = {"rgb": "frames", "residual": "differences"}


@dataclass(frozen=True)
class Training:
    "One run of a seed."

    recipe: str
    share: float = 1.0  # of the clips
    begins: str = ""  # the run whose weights it begins with
    sampler: str = ""  # the run that mines for it
    also: tuple[str, ...] = ()  # further views on which its encoder is measured
    shown: bool = True  # is it a method, or the beginning of others?
    turn: int = 1  # all seeds of the first turn are trained before the second
    changes: dict = field(default_factory=dict)


THIRD, REST = 1 / 3, 2 / 3
FRAMES, DIFFERENCES = dict(view="rgb"), dict(view="residual")
PLAN = {
    "InfoNCE, differences": Training("infonce-toy-residual"),
    "InfoNCE, frames": Training("infonce-toy-rgb"),
    "begun, frames": Training("infonce-toy-rgb", THIRD, shown=False),
    "CoCLR, frames": Training(
        "coclr-toy-rgb-cycle1", REST, "begun, frames", "InfoNCE, differences"
    ),
    "UberNCE, frames": Training("ubernce-toy-rgb", REST, "begun, frames"),
    "SimCLR, frames": Training("simclr-toy-rgb"),
    "IIC, frames": Training("iic-toy", also=("residual",)),  # one encoder for both views
    "MoQuad rung 3, frames": Training("moquad-toy-rung3"),
    "BYOL, frames": Training("byol-toy", turn=2),
    "CPR, frames": Training(
        "coclr-cpr-toy-rgb-cycle1", REST, "begun, frames", "InfoNCE, differences", turn=2
    ),
    "ProViCo, frames": Training("provico-toy", changes=FRAMES, turn=2),
    "MoQuad rung 0, frames": Training("moquad-toy-rung0", turn=2),
    "MoQuad rung 1, frames": Training("moquad-toy-rung1", turn=2),
    "MoQuad rung 2, frames": Training("moquad-toy-rung2", turn=2),
    "SimCLR, differences": Training("simclr-toy-residual", turn=3),
    "BYOL, differences": Training("byol-toy-residual", turn=3),
    "ProViCo, differences": Training("provico-toy", turn=3),
    "MoQuad rung 3, differences": Training("moquad-toy-rung3", changes=DIFFERENCES, turn=3),
    "begun, differences": Training("infonce-toy-residual", THIRD, shown=False, turn=3),
    "UberNCE, differences": Training(
        "ubernce-toy-rgb", REST, "begun, differences", changes=DIFFERENCES, turn=3
    ),
    "CoCLR, differences": Training(
        "coclr-toy-residual-cycle1", REST, "begun, differences", "CoCLR, frames", turn=3
    ),
    "LeJEPA, frames": Training("lejepa-toy", turn=4),
    "LeJEPA, differences": Training("lejepa-toy-residual", turn=4),
}
# turns that were planned together; what was added later has a digest of its own in the results
FIRST = 3
STREAMS = ("CoCLR, frames", "CoCLR, differences")


def recipe_of(name: str, seed: int, epochs: int, changes: dict[str, Any]) -> Recipe:
    "The recipe of a run, with the epochs in which it sees its share of the clips."
    training = PLAN[name]
    recipe = override(find(training.recipe), seed=seed, test_clips=3, **training.changes)
    rate = recipe.learning.lr * (BATCH / recipe.learning.batch) ** 0.5
    settings = dict(batch=BATCH, lr=rate) | changes
    recipe = override(recipe, **settings)
    exact = epochs * training.share * 2 / recipe.sampling.clips
    if abs(exact - round(exact)) > 1e-6:
        stop(f"--epochs {epochs}: {name} would take {exact:.2f} epochs; give a multiple of 6")
    return override(recipe, name=f"{recipe.name}-conflict", epochs=round(exact))


class SeedRuns:
    "The videos of a seed, what is trained on them, and what is measured."

    def __init__(
        self,
        seed: int,
        home: Path,  # its folder
        a: Any,  # the command line
        rows: list[dict[str, Any]],  # those that are there already; new ones are added
        results: SeedResults,
    ):
        self.seed, self.home, self.rows, self.results = seed, home, rows, results
        self.epochs, self.changes = a.epochs, a.changes
        self.manifest = read(toy.make(home / "toy", a.size, seed, workers=1, progress=False))
        self.videos = read(toy.make_conflict(home / "toy", 1, progress=False))
        ordinary = [row.video for row in self.manifest.rows]
        assert [row.video for row in self.videos.rows][: len(ordinary)] == ordinary
        self.cache = VideoCache(self.manifest, 2**31)
        self.conflict_cache = VideoCache(self.videos, 2**31)
        # the first rows of both are the same: they are decoded once
        self.conflict_cache.kept = self.cache.kept

    def known(self) -> set[tuple[str, str]]:
        "Runs and views that have a row."
        return {(row["run"], row["view"]) for row in self.rows}

    def recipe(self, name: str) -> Recipe:
        return recipe_of(name, self.seed, self.epochs, self.changes)

    def measure(
        self,
        encoder: nn.Module | None,  # None: a colour histogram
        view: str,
        t: EvaluatedEncoder | None,  # whose protocol and views count
    ) -> dict[str, Any]:
        """R@1 on the ordinary test videos, and what the nearest training video of a conflict shares
        with it.
        """
        if encoder is None:
            every = histogram(self.videos, "all", machine=Machine(progress=False))
        else:
            machine = Machine("cpu", cache=self.conflict_cache, progress=False)
            protocol = t.protocol()
            every = extract(
                encoder, self.videos, "all", 1, view, protocol, machine=machine, **t.views
            )
        query, gallery = (restrict(every, self.videos, part) for part in ("test", "train"))
        position = {row: i for i, row in enumerate(every.row.tolist())}
        ordinary = every.take([position[row] for row in self.manifest.select("test")])
        shares = conflict_shares(query, gallery)
        return {
            "r1": round(retrieval_recall(ordinary, gallery, (1,))[1], 6),
            "queries": len(query),
            "conflict": {k: [round(x, 6) for x in v] for k, v in shares.items()},
        }

    def add(
        self,
        name: str,
        view: str,
        encoder: nn.Module | None = None,
        t: EvaluatedEncoder | None = None,
        training: dict[str, Any] | None = None,  # its steps, clips and seconds
    ) -> None:
        "Measure, and keep the row."
        began = time.monotonic()
        row = {"run": name, "view": view} | (training or {}) | self.measure(encoder, view, t)
        row["measured_seconds"] = round(time.monotonic() - began, 1)
        self.rows.append(row)
        self.results.keep()
        follows = ", ".join(f"{k} {100 * v[0]:.1f}" for k, v in row["conflict"].items())
        print(
            f"seed {self.seed}, {name} ({view}): R@1 {100 * row['r1']:.1f}, {follows}", flush=True
        )

    def untrained(self) -> None:
        "A colour histogram, and encoders with random weights."
        known = self.known()
        if ("histogram", "rgb") not in known:
            self.add("histogram", "rgb")
        for view, title in VIEWS.items():
            if ("random", view) not in known:
                t = untrained_encoder(self.recipe(f"InfoNCE, {title}"), self.manifest)
                self.add("random", view, t.encoder, t)

    def train(self, name: str, recipe: Recipe) -> dict[str, Any]:
        "Steps, clips and seconds of a finished run."
        training, began = PLAN[name], time.process_time()
        networks = {
            network: self.home / folder_name(other)
            for network, other in (("encoder", training.begins), ("sampler", training.sampler))
            if other
        }
        machine = Machine("cpu", "bfloat16", cache=self.cache, progress=False)
        card = trained(
            recipe,
            self.home / "toy",
            self.home / folder_name(name),
            machine,
            networks=networks,
        )
        clips = recipe.sampling.clips * recipe.learning.batch * card["step"]
        if training.begins:
            clips += next(row["clips"] for row in self.rows if row["run"] == training.begins)
        return {
            "steps": card["step"],
            "clips": clips,
            "seconds": round(card["seconds"], 1),
            "cpu_seconds": round(time.process_time() - began, 1),
        }

    def run(self, name: str) -> None:
        "The rows of a run; those that are there already are not made again."
        recipe, known = self.recipe(name), self.known()
        views = [v for v in (recipe.view, *PLAN[name].also) if (name, v) not in known]
        if not views:
            return
        training = self.train(name, recipe)
        if not PLAN[name].shown:
            self.rows.append({"run": name, "view": recipe.view} | training)
            return
        for view in views:
            t = replace(open_trained(self.home / folder_name(name)), view=view)
            self.add(name, view, t.encoder, t, training)


def two_streams(
    home: Path,  # of a seed
) -> dict[str, float]:
    """R@1 of each stream of CoCLR and of the sum, and the share of test videos that exactly one of
    them finds.
    """
    machine = Machine("cpu", cache=2048, progress=False)
    # nothing is written
    runs = [replace(open_trained(home / folder_name(name)), folder=None) for name in STREAMS]
    pairs = [t.pairs(t.protocol(), (1,), machine=machine)[1] for t in runs]
    right = [compare_features(*pair, 1).right[:, 0] for pair in pairs]
    shares = {t.view: x.float().mean().item() for t, x in zip(runs, right)}
    shares["both"] = recall(*join(*pairs), [1])[1]
    shares["only_one"] = (right[0] != right[1]).float().mean().item()
    return {k: round(x, 6) for k, x in shares.items()}


def lines_of(seeds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    "One line for each encoder and view: the shares and R@1 of its seeds."
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for seed in seeds:
        for row in seed["rows"]:
            runs.setdefault((row["run"], row["view"]), []).append(row)

    lines = []
    for (name, view), rows in runs.items():
        if name in PLAN and not PLAN[name].shown:
            continue
        line: dict[str, Any] = {"run": name.split(",")[0], "view": view, "seeds": len(rows)}
        for k in ("scene", "motion", "neither"):
            line[k] = [row["conflict"][k][0] for row in rows]
        line["r1"] = [row["r1"] for row in rows]
        lines.append(line)
    return lines


# ---- the picture

SCENE, MOTION = "#c0504d", "#2e75b6"
WIDTH = 640  # px
SIDE = 160  # px of a video that plays
TOP = 48  # px above the videos
BAR = 20  # px of a row
LEFT, PANEL = 78, 246  # px before the first panel, and of a panel


def draw_bars(ax: Axes, lines: dict[str, dict[str, Any]], names: list[str]) -> None:
    "The share of the scene from the left, that of the motion from the right, R@1 beside them."
    for i, name in enumerate(names):
        if name not in lines:
            ax.text(50, i, "not run", ha="center", va="center", fontsize=8, color="grey")
            continue
        line = lines[name]
        scene, motion, r1 = (
            seed_interval([100 * v for v in line[k]]) for k in ("scene", "motion", "r1")
        )
        ax.barh(i, scene[0], 0.74, color=SCENE)
        ax.barh(i, motion[0], 0.74, left=100 - motion[0], color=MOTION)
        ends = ((scene[0], i - 0.15, scene[1]), (100 - motion[0], i + 0.15, motion[1]))
        for x, y, half in ends:
            if half >= 2:
                ax.errorbar(x, y, xerr=half, fmt="none", ecolor="black", elinewidth=0.8)
        ax.text(103, i, f"{r1[0]:.0f}", va="center", fontsize=8, color="grey")
    ax.axvline(100 - 100 / len(toy.MOTIONS), color="grey", ls="--", lw=0.8)
    ax.set(xlim=(0, 100), ylim=(len(names) - 0.4, -0.6), xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


def shown_lines(results: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    "View -> method -> line: those that have all seeds, MoQuad without its lower rungs."
    lines: dict[str, dict[str, dict[str, Any]]] = {v: {} for v in VIEWS}
    for line in lines_of(results["seeds"]):
        name = line["run"].replace(" rung 3", "")
        is_whole = line["seeds"] == len(results["seeds"])
        if is_whole and "rung" not in name:
            lines[line["view"]][name] = line
    return lines


def draw_sheet(results: dict[str, Any], corners: list[int]) -> Sheet:
    "The picture but for the videos, whose left edges are given."
    lines = shown_lines(results)
    names = sorted(lines["rgb"], key=lambda n: statistics.fmean(lines["rgb"][n]["motion"]))
    head = SIDE + 72  # where the panels begin
    bars = BAR * len(names)
    sheet = Sheet(WIDTH, SIDE + 60 + 46 + bars + 58)

    titles = (
        ("training video: its scene", SCENE),
        ("query: scene of the left\nvideo, motion of the right", "black"),
        ("training video: its motion", MOTION),
    )
    for x, (title, colour) in zip(corners, titles):
        sheet.write(x + SIDE / 2, 26, title, ha="center", fontsize=9, color=colour)
        frame = sheet.axes(x, TOP, SIDE, SIDE, xticks=[], yticks=[])
        frame.spines[:].set(color=colour, linewidth=4)

    for i, name in enumerate(names):
        sheet.write(LEFT - 6, head + 40 + BAR * (i + 0.5), name, ha="right", fontsize=9)
    right = LEFT + PANEL + 36
    for x, view, title in ((LEFT, "rgb", "frames"), (right, "residual", "differences of frames")):
        sheet.write(x + PANEL / 2, head + 8, f"encoders of {title}", ha="center", fontsize=9)
        sheet.write(x, head + 27, "same scene", fontsize=8, color=SCENE)
        sheet.write(x + PANEL, head + 27, "same motion", fontsize=8, color=MOTION, ha="right")
        sheet.write(x + PANEL + 4, head + 27, "R@1", fontsize=8, color="grey")
        draw_bars(sheet.axes(x, head + 40, PANEL, bars), lines[view], names)

    sheet.write(
        LEFT,
        head + 40 + bars + 26,
        "How often the nearest training video has the same scene (bar from the left, %) or the "
        "same motion\n(from the right; dashed: chance); white: neither. Mean of "
        f"{len(results['seeds'])} seeds with 95 % intervals from 2 points on.",
        fontsize=8,
    )
    return sheet


def picture(results: dict[str, Any]) -> show.Loop:
    "The experiment in one picture: a row for each method."
    corners = [30 + i * (SIDE + 50) for i in range(3)]
    still = draw_sheet(results, corners).pixels()
    films = playing(results["seeds"][0]["seed"])
    frames = []
    for t in range(len(films[0])):
        frame = still.copy()
        for x, film in zip(corners, films):
            large = film[t].repeat(SIDE // 32, 0).repeat(SIDE // 32, 1)
            frame[TOP : TOP + SIDE, x : x + SIDE] = large
        frames.append(frame)
    return show.Loop(frames, 12, max_bytes=250_000)


# ---- the experiment


def results_of(a: Any) -> SeedResults:
    "The file of results, from where it stands."

    def recipes(first: bool) -> str:  # digest
        names = [name for name, t in PLAN.items() if (t.turn <= FIRST) == first]
        return digest([to_dict(recipe_of(name, 0, a.epochs, a.changes)) for name in names])

    asked = {"size": a.size, "recipes": recipes(first=True), "later": recipes(first=False)}
    further = {
        "rule": rule(__file__),
        "epochs": a.epochs,
        "changes": a.changes,
        "plan": {name: asdict(training) for name, training in PLAN.items()},
    }
    stamp = Stamp(__file__, settings_of(a, without=("picture", "only", "seeds")))
    return SeedResults(a.out, stamp, asked, further, lambda seeds: {"lines": lines_of(seeds)})


def run(a: Any) -> None:
    keep_memory()
    results = results_of(a)
    turns = sorted({training.turn for training in PLAN.values()})
    for turn, seed in product(turns, a.seeds):
        entry, home = results.entry(seed=seed), a.runs / f"seed{seed}"
        runs = SeedRuns(seed, home, a, entry["rows"], results)
        runs.untrained()
        for name in a.only:
            if PLAN[name].turn == turn:
                runs.run(name)
        if "streams" not in entry and {*STREAMS} <= {row["run"] for row in entry["rows"]}:
            entry["streams"] = two_streams(home)
            print(f"seed {seed}, both streams of CoCLR: {entry['streams']}", flush=True)
    results.keep()

    for line in lines_of(results.seeds):
        shares = [
            f"{k} {100 * statistics.fmean(line[k]):5.1f}"
            for k in ("scene", "motion", "neither", "r1")
        ]
        print(f"{line['run']:>14} {line['view']:<9}", *shares)


def main():
    p = measurement.parser(__doc__)
    p.add_argument("--seeds", type=int, nargs="+", default=[*SEEDS])
    p.add_argument(
        "--epochs", type=int, default=EPOCHS, help="of a recipe with two clips; a multiple of 6"
    )
    p.add_argument(
        "--only", nargs="+", choices=[*PLAN], default=[*PLAN], help="these runs, in this order"
    )
    p.add_argument("--size", default="demo", choices=["tiny", "demo"], help="of the toy")
    p.add_argument("--runs", type=Path, default=Path("runs/conflict"), help="folder of the runs")
    p.add_argument(
        "--changes", type=json.loads, default={}, help="fields to change in all recipes, as JSON"
    )
    p.add_argument("--out", type=Path, required=True, help="a .json file for the results")
    p.add_argument(
        "--picture", type=Path, help="draw from the results into this .png, and train nothing"
    )
    a = p.parse_args()
    if a.picture:
        loop = picture(json.loads(a.out.read_text()))
        a.picture.write_bytes(loop.png)
        print(f"{a.picture}: {loop}")
        return
    run(a)


if __name__ == "__main__":
    main()
