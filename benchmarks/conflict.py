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

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).parent))
from step import machine  # noqa: E402

import numpy as np  # noqa: E402
from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402
from scipy import stats  # noqa: E402

import vssl_nb  # noqa: E402
from vssl_nb import show  # noqa: E402
from vssl_nb.data import toy  # noqa: E402
from vssl_nb.data.clips import VideoCache  # noqa: E402
from vssl_nb.data.manifest import read  # noqa: E402
from vssl_nb.measure.features import extract, restrict  # noqa: E402
from vssl_nb.measure.health import conflict_shares  # noqa: E402
from vssl_nb.measure.retrieval import (
    compare_features,
    histogram,
    join,
    recall,  # noqa: E402
    retrieval_recall,
)
from vssl_nb.methods.recipes import Recipe, find, override, to_dict  # noqa: E402
from vssl_nb.runs.evaluation import open_trained, untrained_encoder  # noqa: E402
from vssl_nb.runs.pretraining import pretrain  # noqa: E402
from vssl_nb.training.machine import Machine, keep_memory  # noqa: E402

SEEDS, EPOCHS, BATCH = range(31, 39), 12, 8
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


def stop(sentence: str) -> NoReturn:
    print(sentence, file=sys.stderr)
    raise SystemExit(2)


def recipe_of(name: str, seed: int, epochs: int, changes: dict) -> Recipe:
    "The recipe of a run, with the epochs in which it sees its share of the clips."
    t = PLAN[name]
    recipe = override(find(t.recipe), seed=seed, test_clips=3, **t.changes)
    rate = recipe.learning.lr * (BATCH / recipe.learning.batch) ** 0.5
    recipe = override(recipe, **dict(batch=BATCH, lr=rate) | changes)
    exact = epochs * t.share * 2 / recipe.sampling.clips
    if abs(exact - round(exact)) > 1e-6:
        stop(f"--epochs {epochs}: {name} would take {exact:.2f} epochs; give a multiple of 6")
    return override(recipe, name=f"{recipe.name}-conflict", epochs=round(exact))


def measured(encoder, view: str, about, videos, tests: list[int], cache) -> dict:
    """R@1 on the ordinary test videos, and what the nearest training video of a conflict shares
    with it.
    """
    if encoder is None:
        every = histogram(videos, "all", machine=Machine(progress=False))
    else:
        every = extract(
            encoder,
            videos,
            "all",
            1,
            view,
            about.protocol(),
            machine=Machine("cpu", cache=cache, progress=False),
            **about.views,
        )
    query, gallery = (restrict(every, videos, part) for part in ("test", "train"))
    place = {r: i for i, r in enumerate(every.row.tolist())}
    ordinary = every.take([place[r] for r in tests])
    shares = conflict_shares(query, gallery)
    return {
        "r1": round(retrieval_recall(ordinary, gallery, (1,))[1], 6),
        "queries": len(query),
        "conflict": {k: [round(x, 6) for x in v] for k, v in shares.items()},
    }


def one_run(name: str, recipe: Recipe, home: Path, cache) -> dict:
    "A finished run, from where it stands: its steps, clips and seconds."
    t, out = PLAN[name], home / folder_of(name)
    runs = {
        "init_from": home / folder_of(t.begins) if t.begins else None,
        "sampler": home / folder_of(t.sampler) if t.sampler else None,
    }
    there, began = (out / "card.json").exists(), time.process_time()
    if not (there and json.loads((out / "card.json").read_text())["finished"]):
        pretrain(
            recipe,
            home / "toy",
            out,
            there,
            Machine("cpu", "bfloat16", cache=cache, progress=False),
            **runs,
        )
    cpu = time.process_time() - began
    card = json.loads((out / "card.json").read_text())
    if not card["finished"]:
        stop(f"{out}: was stopped; the same command goes on")
    clips = recipe.sampling.clips * recipe.learning.batch * card["step"]
    return {
        "steps": card["step"],
        "clips": clips,
        "seconds": round(card["seconds"], 1),
        "cpu_seconds": round(cpu, 1),
    }


def folder_of(name: str) -> str:
    return name.replace(", ", "-").replace(" ", "-")


def one_seed(seed: int, names: list[str], a, rows: list[dict], keep) -> None:
    "The rows of some runs of a seed; those that are there already are not made again."
    changes, home, have = a.changes, a.runs / f"seed{seed}", {(r["run"], r["view"]) for r in rows}
    manifest = read(toy.make(home / "toy", a.size, seed, workers=1, progress=False))
    videos = read(toy.make_conflict(home / "toy", 1, progress=False))
    assert [r.video for r in videos.rows][: len(manifest)] == [r.video for r in manifest.rows]
    caches = [VideoCache(m, 2**31) for m in (manifest, videos)]
    # the first rows of both are the same: they are decoded once
    caches[1].kept = caches[0].kept
    tests = manifest.select("test")

    def add(name, view, encoder, about, more):
        began = time.monotonic()
        row = (
            {"run": name, "view": view}
            | more
            | measured(encoder, view, about, videos, tests, caches[1])
        )
        rows.append(row | {"measured_seconds": round(time.monotonic() - began, 1)})
        keep()
        follows = ", ".join(f"{k} {100 * v[0]:.1f}" for k, v in row["conflict"].items())
        print(f"seed {seed}, {name} ({view}): R@1 {100 * row['r1']:.1f}, {follows}", flush=True)

    if ("histogram", "rgb") not in have:
        add("histogram", "rgb", None, None, {})
    for view in VIEWS:
        if ("random", view) in have:
            continue
        random = untrained_encoder(
            recipe_of(f"InfoNCE, {VIEWS[view]}", seed, a.epochs, changes), manifest
        )
        add("random", view, random.encoder, random, {})
    for name in names:
        recipe = recipe_of(name, seed, a.epochs, changes)
        views = [v for v in (recipe.view, *PLAN[name].also) if (name, v) not in have]
        if not views:
            continue
        trained = one_run(name, recipe, home, caches[0])
        if first := PLAN[name].begins:
            trained["clips"] += next(r for r in rows if r["run"] == first)["clips"]
        if not PLAN[name].shown:
            rows.append({"run": name, "view": recipe.view} | trained)
            continue
        for view in views:
            t = replace(open_trained(home / folder_of(name)), view=view)
            add(name, view, t.encoder, t, trained)


STREAMS = ("CoCLR, frames", "CoCLR, differences")


def two_streams(home: Path) -> dict[str, float]:
    """R@1 of each stream of CoCLR and of the sum, and the share of test videos that exactly one of
    them finds.
    """
    machine = Machine("cpu", cache=2048, progress=False)
    # nothing is written
    runs = [replace(open_trained(home / folder_of(name)), folder=None) for name in STREAMS]
    pairs = [t.pairs(t.protocol(), (1,), machine=machine)[1] for t in runs]
    right = [compare_features(*pair, 1).right[:, 0] for pair in pairs]
    shares = {t.view: x.float().mean().item() for t, x in zip(runs, right)}
    shares["both"] = recall(*join(*pairs), [1])[1]
    shares["only_one"] = (right[0] != right[1]).float().mean().item()
    return {k: round(x, 6) for k, x in shares.items()}


def interval(x: list[float]) -> tuple[float, float]:
    "Mean and half of its 95 % interval, the seeds as units."
    if len(x) < 3:
        stop(f"{len(x)} seeds give no interval; run three or more")
    return statistics.fmean(x), stats.t.ppf(0.975, len(x) - 1) * statistics.stdev(x) / len(x) ** 0.5


def lines_of(seeds: list[dict]) -> list[dict]:
    "One line for each encoder and view: the shares and R@1 of its seeds."
    runs: dict[tuple, list[dict]] = {}
    for s in seeds:
        for r in s["rows"]:
            runs.setdefault((r["run"], r["view"]), []).append(r)
    lines = []
    for (name, view), rows in runs.items():
        if name in PLAN and not PLAN[name].shown:
            continue
        line = {"run": name.split(",")[0], "view": view, "seeds": len(rows)}
        for k in ("scene", "motion", "neither"):
            line[k] = [r["conflict"][k][0] for r in rows]
        lines.append(line | {"r1": [r["r1"] for r in rows]})
    return lines


def playing(
    seed: int,
) -> list[np.ndarray]:  # 3 times (22, 32, 32, 3) uint8
    """A training video, the conflict that has its scene, and a training video with the motion of
    the conflict.
    """
    settings = dict(size="demo", shape=vars(toy.SIZES["demo"]), seed=seed) | toy.DEFAULTS
    queries = {row.video: arguments for row, arguments in toy.plan_conflict(settings)}
    videos = {row.video: arguments for row, arguments in toy.plan_toy(settings)}
    shown = (videos[f"shake_x/s{seed}g002_t01.mp4"], videos[f"circle_cw/s{seed}g002_t01.mp4"])
    query = queries[f"{toy.CONFLICT}/shake_x/s{seed}g002_circle_cw.mp4"]
    return [toy.video(**x, at=range(22)) for x in (shown[0], query, shown[1])]


SCENE, MOTION, SIDE = "#c0504d", "#2e75b6", 160


def draw_bars(ax, lines: dict[str, dict], names: list[str]) -> None:
    "The share of the scene from the left, that of the motion from the right, R@1 beside them."
    for i, name in enumerate(names):
        if name not in lines:
            ax.text(50, i, "not run", ha="center", va="center", fontsize=8, color="grey")
            continue
        scene, motion, r1 = (
            interval([100 * v for v in lines[name][k]]) for k in ("scene", "motion", "r1")
        )
        ax.barh(i, scene[0], 0.74, color=SCENE)
        ax.barh(i, motion[0], 0.74, left=100 - motion[0], color=MOTION)
        for at, y, (_, half) in ((scene[0], i - 0.15, scene), (100 - motion[0], i + 0.15, motion)):
            if half >= 2:
                ax.errorbar(at, y, xerr=half, fmt="none", ecolor="black", elinewidth=0.8)
        ax.text(103, i, f"{r1[0]:.0f}", va="center", fontsize=8, color="grey")
    ax.axvline(100 - 100 / len(toy.MOTIONS), color="grey", ls="--", lw=0.8)
    ax.set(xlim=(0, 100), ylim=(len(names) - 0.4, -0.6), xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


def picture(results: dict) -> show.Loop:
    "The experiment in one picture: a row for each method, MoQuad without its lower rungs."
    lines: dict[str, dict[str, dict]] = {v: {} for v in VIEWS}
    for x in lines_of(results["seeds"]):
        name = x["run"].replace(" rung 3", "")
        done = x["seeds"] == len(results["seeds"])
        if done and "rung" not in name:
            lines[x["view"]][name] = x
    names = sorted(lines["rgb"], key=lambda n: statistics.fmean(lines["rgb"][n]["motion"]))
    bar, width, left, panel = 20, 640, 78, 246
    height = SIDE + 60 + 46 + bar * len(names) + 58
    figure = show.Picture(figsize=(width / show.DPI, height / show.DPI), dpi=show.DPI)
    canvas = FigureCanvasAgg(figure)

    def write(x, y, words, **style):
        figure.text(x / width, 1 - y / height, words, va="center", **style)

    places, words = (
        [30 + i * (SIDE + 50) for i in range(3)],
        (
            "training video: its scene",
            "query: scene of the left\nvideo, motion of the right",
            "training video: its motion",
        ),
    )
    for x, title, colour in zip(places, words, (SCENE, "black", MOTION)):
        write(x + SIDE / 2, 26, title, ha="center", fontsize=9, color=colour)
        figure.add_axes(
            (x / width, 1 - (48 + SIDE) / height, SIDE / width, SIDE / height), xticks=[], yticks=[]
        ).spines[:].set(color=colour, linewidth=4)
    y, below = SIDE + 72, SIDE + 72 + 40 + bar * len(names)
    for i, name in enumerate(names):
        write(left - 6, y + 40 + bar * (i + 0.5), name, ha="right", fontsize=9)
    right = left + panel + 36
    for at, view, title in ((left, "rgb", "frames"), (right, "residual", "differences of frames")):
        write(at + panel / 2, y + 8, f"encoders of {title}", ha="center", fontsize=9)
        write(at, y + 27, "same scene", fontsize=8, color=SCENE)
        write(at + panel, y + 27, "same motion", fontsize=8, color=MOTION, ha="right")
        write(at + panel + 4, y + 27, "R@1", fontsize=8, color="grey")
        draw_bars(
            figure.add_axes(
                (at / width, 1 - below / height, panel / width, bar * len(names) / height)
            ),
            lines[view],
            names,
        )
    write(
        left,
        below + 26,
        "How often the nearest training video has the same scene (bar from the left, %) "
        "or the same motion\n(from the right; dashed: chance); white: neither. Mean of "
        f"{len(results['seeds'])} seeds with 95 % intervals from 2 points on.",
        fontsize=8,
    )
    canvas.draw()
    still, films = np.asarray(canvas.buffer_rgba())[..., :3], playing(results["seeds"][0]["seed"])
    frames = []
    for t in range(len(films[0])):
        frames.append(still.copy())
        for x, film in zip(places, films):
            frames[-1][48 : 48 + SIDE, x : x + SIDE] = (
                film[t].repeat(SIDE // 32, 0).repeat(SIDE // 32, 1)
            )
    return show.Loop(frames, 12, max_bytes=250_000)


def rule(script: str) -> str:
    "The commit that has the rule, this file; '' where it differs from every commit."

    def git(*words):
        return subprocess.run(
            ["git", *words, "--", script], capture_output=True, text=True, cwd=Path(__file__).parent
        ).stdout.strip()

    return "" if git("status", "--porcelain") else git("log", "-1", "--format=%h")


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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

    def digest(names):
        recipes = json.dumps(
            [to_dict(recipe_of(n, 0, a.epochs, a.changes)) for n in names], sort_keys=True
        )
        return hashlib.sha256(recipes.encode()).hexdigest()

    head = {
        "what": "benchmarks/conflict.py",
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine("cpu") | {"vssl_nb": vssl_nb.__version__},
        "rule": rule(__file__),
        "size": a.size,
        "epochs": a.epochs,
        "changes": a.changes,
        "plan": {n: asdict(t) for n, t in PLAN.items()},
        "recipes": digest(n for n, t in PLAN.items() if t.turn <= FIRST),
        "later": digest(n for n, t in PLAN.items() if t.turn > FIRST),
    }
    before = json.loads(a.out.read_text()) if a.out.exists() else {}
    if before and any(before.get(k, head[k]) != head[k] for k in ("size", "recipes", "later")):
        stop(f"{a.out}: was made with other settings; name another --out")
    head |= {k: before[k] for k in ("date", "machine", "rule") if k in before}
    seeds = before.get("seeds", [])

    def keep():
        whole = json.dumps(head | {"seeds": seeds, "lines": lines_of(seeds)}, indent=1) + "\n"
        part = a.out.with_name(f".{a.out.name}")
        part.write_text(whole)
        part.replace(a.out)

    keep_memory()
    for turn, seed in product(sorted({t.turn for t in PLAN.values()}), a.seeds):
        mine = next((s for s in seeds if s["seed"] == seed), None)
        if mine is None:
            seeds.append(mine := {"seed": seed, "rows": []})
        one_seed(seed, [n for n in a.only if PLAN[n].turn == turn], a, mine["rows"], keep)
        if "streams" not in mine and {*STREAMS} <= {r["run"] for r in mine["rows"]}:
            mine["streams"] = two_streams(a.runs / f"seed{seed}")
            print(f"seed {seed}, both streams of CoCLR: {mine['streams']}", flush=True)
    keep()
    for x in lines_of(seeds):
        print(
            f"{x['run']:>14} {x['view']:<9}",
            *(
                f"{k} {100 * statistics.fmean(x[k]):5.1f}"
                for k in ("scene", "motion", "neither", "r1")
            ),
        )


if __name__ == "__main__":
    main()
