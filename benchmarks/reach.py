"""What does it take until CoCLR lifts frames on real video, above a colour histogram?

    python benchmarks/evidence.py --data MANIFEST --folder runs/evidence
    python benchmarks/reach.py --data MANIFEST --like runs/evidence --out results/reach.json

The evidence run says what there is with all videos, epochs and pixels. Here each of the three is
made smaller, one at a time, for four of its trainings: InfoNCE on frames and on differences, longer
InfoNCE, and CoCLR on frames mined by the differences. Fewer videos are whole recordings, a part of
those of each class, and the smaller part lies within the larger one. Fewer videos in as many epochs
and as many videos in fewer epochs are the same number of steps, so the two say whether it is new
videos or more steps that help. Fewer training videos are also fewer to find a neighbour among, so
the encoder that saw all of them is measured in each part as well (*whole*), and what a doubling of
videos brings to the training is the line through the differences to it.

For each of the three a line through R@1 over the logarithm of what was changed says what a doubling
brings, with a 95 % interval (bootstrap over recordings and seeds, as in the evidence run), and how
many doublings the histogram is away from CoCLR. A line is not a law: the answer is how far, not
whether. The folder goes on where it stands."""

import argparse
import csv
import json
import math
import platform
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from evidence import encoders, intervals, machine_of, recipe_of, told, trained

from vssl_nb.papers.reproduce import Task, at_once
from vssl_nb.training.loop import read_json, write_json
from vssl_nb.runs.evaluation import open_trained
from vssl_nb.training.machine import keep_memory
from vssl_nb.data.manifest import Manifest, open_data
from vssl_nb.measure.retrieval import centre_and_normalise, nearest_neighbours

# shares of the evidence run's
CHANGES = {"videos": (0.25, 0.5), "epochs": (0.25, 0.5), "pixels": (0.5, 0.75)}


def compared(plan: dict) -> list:
    """The trainings that are repeated: CoCLR on frames, and what it begins with and is compared
    with.
    """
    every = {e.name: e for e in encoders(plan["asked"].get("second", "residual"))}
    coclr = every["coclr"]
    return [every[name] for name in (coclr.start, coclr.sampler, "infonce", "coclr")]


def names_of(plan: dict) -> list[str]:
    return [e.name for e in compared(plan)]


def part_of(manifest: Manifest, share: float, split: int) -> set[int]:
    """Rows of a share of the recordings of each class: the first of an order that is always the
    same.
    """
    taken = {}
    for i in manifest.select("train", split):
        taken.setdefault(manifest.rows[i].label, {}).setdefault(manifest.rows[i].source, []).append(
            i
        )
    rows, rng = set[int](), np.random.default_rng(0)
    for label in sorted(taken):
        order = rng.permutation(sorted(taken[label]))
        for source in order[: max(round(share * len(order)), 1)]:
            rows.update(taken[label][source])
    return rows


def fewer(manifest: Manifest, share: float, split: int, home: Path) -> Path:
    "A folder that shows the same files with a part of the training videos."
    folder, keep = home / f"videos-{share:g}", part_of(manifest, share, split)
    if (folder / "manifest.csv").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    for f in manifest.root.iterdir():
        if f.name != manifest.path.name and not (folder / f.name).exists():
            (folder / f.name).symlink_to(f.resolve())
    gone = {manifest.rows[i].video for i in {*manifest.select("train", split)} - keep}
    with manifest.path.open(newline="", encoding="utf-8") as f:
        head, *rows = csv.reader(f)
    new = folder / "manifest.csv.new"
    with new.open("w", newline="", encoding="utf-8") as f:
        csv.writer(f, lineterminator="\n").writerows([head, *(r for r in rows if r[0] not in gone)])
    new.replace(folder / "manifest.csv")
    return folder


def points(plan: dict, size: int, changes: dict) -> list[tuple[str, float, dict, int, float]]:
    "What is changed, to how much; fields of the recipe, epochs, and share of the videos."
    out = []
    for share in changes.get("videos", ()):
        out.append(("videos", round(share * plan["train"]), {}, plan["epochs"], share))
    for share in changes.get("epochs", ()):
        n = max(round(share * plan["epochs"]), 2)
        out.append(("epochs", n, {}, n, 1.0))
    for share in changes.get("pixels", ()):
        px = 16 * round(share * size / 16)
        out.append(("pixels", px, {"size": px}, plan["epochs"], 1.0))
    return out


def mined_right(run: Path) -> float | None:
    "Share of the mined positives of the last epoch that have the class of the query."
    with (run / "steps.csv").open(newline="", encoding="utf-8") as f:
        steps = list(csv.DictReader(f))
    last = [float(s["mined"]) for s in steps if s["epoch"] == steps[-1]["epoch"] and s.get("mined")]
    last = [x for x in last if not math.isnan(x)]
    return float(np.mean(last)) if last else None


def whole_in(
    manifest: Manifest, share: float, split: int, run: Path, data: str, device: str
) -> list[int]:
    "Right or wrong for each test video, by the encoder of all videos, searching a part of them."
    t, keep = open_trained(run, data), part_of(manifest, share, split)
    query, gallery = t.pairs(t.protocol(), (split,), machine=machine_of(device, 0))[split]
    here = np.flatnonzero(np.isin(gallery.row, sorted(keep)))
    part = replace(
        gallery, **{n: getattr(gallery, n)[here] for n in ("x", "label", "row", "source")}
    )
    q, g = centre_and_normalise(query, part)
    near = nearest_neighbours(q, g, 1)[0][:, 0]
    return (part.label[near] == query.label).int().tolist()


def told_of(found: dict[str, list[dict]], runs: list[Path]) -> dict:
    rows = {r["name"]: r for r in intervals(found)}
    mined = [m for r in runs if (m := mined_right(r)) is not None]
    keep = ("r1", "r1_interval", "r1_gap", "r1_gap_interval")
    return {
        "mined": float(np.mean(mined)) if mined else None,
        **{n: {k: rows[n][k] for k in keep if k in rows[n]} for n in rows},
    }


def slope(xs: list[float], found: list[list[dict]], draws: int = 2000) -> dict:
    "R@1 gained by a doubling, with its interval, from the same drawn recordings at all points."
    source = np.array(found[0][0]["source"])
    ids, which = np.unique(source, return_inverse=True)
    drawn = np.random.default_rng(0).multinomial(len(ids), np.full(len(ids), 1 / len(ids)), draws)
    rng, total = np.random.default_rng(1), drawn @ np.bincount(which)
    x = np.log2(xs) - np.log2(xs).mean()

    def r1(
        seeds,
    ):  # of each draw
        right = np.stack([np.bincount(which, np.array(s["r1"])) for s in seeds])
        picked = rng.integers(len(seeds), size=(draws, len(seeds)))
        return (drawn * right[picked].mean(1)).sum(1) / total

    mean = np.array([np.mean([np.mean(s["r1"]) for s in seeds]) for seeds in found])
    each = x @ np.stack([r1(seeds) for seeds in found]) / (x @ x)
    return {
        "doubling": float(x @ mean / (x @ x)),
        "interval": np.quantile(each, (0.025, 0.975)).tolist(),
    }


def answer(what: str, line: dict, ours: float, goal: float) -> str:
    "In words."
    low, high = line["interval"]
    searched = ", searching the same," if what == "videos" else ""
    gain = (
        f"{what}: a doubling{searched} brings {100 * line['doubling']:+.1f} points of R@1 "
        f"({100 * low:+.1f} to {100 * high:+.1f})"
    )
    if ours >= goal:
        return f"{gain}; the histogram is reached"
    if low <= 0 <= high:
        return f"{gain}: not told apart from nothing, so no distance can be given"
    if high < 0:
        return f"{gain}: more of it does not help here"
    return (
        f"{gain}; the histogram is {(goal - ours) / line['doubling']:.1f} doublings away, if "
        "it goes on so"
    )


def as_markdown(rows: list[dict], said: list[str]) -> str:
    out = [
        "| changed | to | differences, R@1 % | mined right % | InfoNCE as long | CoCLR | whole "
        "CoCLR |",
        "| :-- | --: | --: | --: | --: | --: | --: |",
    ]
    for r in rows:
        mined = "–" if r["mined"] is None else f"{100 * r['mined']:.1f}"
        out.append(
            f"| {r['what']} | {r['to']:g} | {told(r['infonce, half, residual'], 'r1')} | {mined} | "
            f"{told(r['infonce'], 'r1')} | {told(r['coclr'], 'r1')} | "
            f"{'–' if r['whole'] is None else format(100 * r['whole'], '.1f')} |"
        )
    return "\n".join([*out, "", *(f"- {s}" for s in said)])


def begun(a, plan: dict, manifest: Manifest) -> list[tuple]:
    "The points that are asked for; ValueError where the folder or the data cannot give them."
    if manifest.sha256 != plan["asked"]["data"]:
        raise ValueError(f"{a.like}: was made with another manifest than {manifest.path}")
    for run in (of(a.like, s, n) for s in plan["seeds"] for n in names_of(plan)):
        if not (run / "measured.json").exists():
            raise ValueError(f"{run}: is not measured yet; let benchmarks/evidence.py finish first")
    recipe = recipe_of(compared(plan)[0], plan["epochs"], 0, plan["asked"]["changes"])
    for share in a.changes.get("videos", ()):
        if (n := len(part_of(manifest, share, recipe.split))) < recipe.learning.batch:
            raise ValueError(
                f"{manifest.path}: a share of {share:g} of the recordings is {n} videos, and a "
                f"batch is {recipe.learning.batch}"
            )
    return points(plan, recipe.size, a.changes)


def of(home: Path, seed: int, name: str) -> Path:
    return home / f"seed{seed}" / name.replace(", ", "-")


def tasks_of(
    a, plan: dict, manifest: Manifest, asked: list[tuple], home: Path
) -> dict[tuple, Task]:
    "A training for each point, seed and encoder."
    split = recipe_of(compared(plan)[0], plan["epochs"], 0, plan["asked"]["changes"]).split
    tasks: dict[tuple, Task] = {}
    for s in plan["seeds"]:
        for what, to, changes, epochs, share in asked:
            data = a.data if share == 1 else str(fewer(manifest, share, split, home))
            how = {
                "threads": 1,
                "device": a.device,
                "workers": 0 if a.processes > 1 else 2,
                "changes": plan["asked"]["changes"] | changes,
                "dtype": plan["asked"].get("dtype", "float32"),
                "cache": 64,
            }
            for e in compared(plan):
                after = tuple((what, to, n, s) for n in (e.start, e.sampler) if n)
                tasks[what, to, e.name, s] = Task(
                    trained,
                    (e, plan | {"epochs": epochs}, s, home / f"{what}-{to:g}", data, how),
                    after,
                )
    return tasks


def run(
    a,
) -> str:  # markdown
    torch.set_num_threads(1)
    keep_memory()
    plan, floor = (read_json(a.like / f, "an evidence run") for f in ("plan.json", "floor.json"))
    manifest, home = open_data(a.data), a.like / "reach"
    asked = begun(a, plan, manifest)
    tasks = tasks_of(a, plan, manifest, asked, home)
    processes = a.processes if machine_of(a.device, 0).place().type == "cpu" else 1
    print(f"{len(tasks)} trainings, {processes} at a time", flush=True)
    began, said = time.monotonic(), set[tuple]()

    def look(done):
        for n in done.keys() - said:
            what, to, name, seed = n
            print(
                f"{(time.monotonic() - began) / 60:6.1f} min  {what} {to:g}, {name}, seed {seed}: "
                f"R@1 {np.mean(done[n]['r1']):.1%}",
                flush=True,
            )
            said.add(n)

    runs = [of(home / f"{what}-{to:g}", s, name) for what, to, name, s in tasks]
    done = at_once(tasks, processes, runs, progress=False, look=look)
    split = recipe_of(compared(plan)[0], plan["epochs"], 0, plan["asked"]["changes"]).split
    whole = {
        (what, to): [
            whole_in(manifest, share, split, of(a.like, s, "coclr"), a.data, a.device)
            for s in plan["seeds"]
        ]
        for what, to, _, _, share in asked
        if what == "videos"
    }
    return kept(a, plan, floor, asked, done, whole)


def kept(
    a,
    plan: dict,
    floor: dict,
    asked: list[tuple],
    done: dict,
    whole: dict,
) -> str:  # the table
    seeds, home, names = plan["seeds"], a.like / "reach", names_of(plan)
    full_runs = {
        n: [read_json(of(a.like, s, n) / "measured.json", "a run") for s in seeds] for n in names
    }
    size = recipe_of(compared(plan)[0], plan["epochs"], 0, plan["asked"]["changes"]).size
    full = {"videos": plan["train"], "epochs": plan["epochs"], "pixels": size}
    rows, doublings = [], {}
    for what in a.changes:
        at = [
            (to, {n: [done[what, to, n, s] for s in seeds] for n in names}, home / f"{what}-{to:g}")
            for w, to, *_ in asked
            if w == what
        ] + [(full[what], full_runs, a.like)]
        rows += [
            {
                "what": what,
                "to": to,
                "whole": float(np.mean(whole[what, to])) if (what, to) in whole else None,
                **told_of(found, [of(f, s, "coclr") for s in seeds]),
            }
            for to, found, f in at
        ]
        doublings[what] = {
            n: slope([to for to, *_ in at], [found[n] for _, found, _ in at]) for n in names
        }
        if what != "videos":
            continue
        left = [
            [
                s | {"r1": np.subtract(s["r1"], w)}
                for s, w in zip(
                    found["coclr"], whole.get((what, to), [s["r1"] for s in found["coclr"]])
                )
            ]
            for to, found, _ in at
        ]
        doublings[what]["coclr, same gallery"] = slope([to for to, *_ in at], left)
    goal = float(np.mean(floor["colour histogram"][0]["r1"]))
    best = {w: lines.get("coclr, same gallery", lines["coclr"]) for w, lines in doublings.items()}
    said = [answer(w, best[w], rows[-1]["coclr"]["r1"], goal) for w in a.changes]
    where = {
        "cpu": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    if a.out:
        write_json(
            a.out,
            {
                "what": "benchmarks/reach.py",
                "date": time.strftime("%Y-%m-%d"),
                "machine": where,
                "plan": plan,
                "histogram": goal,
                "rows": rows,
                "doublings": doublings,
                "answers": said,
            },
        )
    text = as_markdown(rows, said)
    (home / "table.md").write_text(text + "\n", encoding="utf-8")
    return text


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--data", required=True, help="the manifest of the evidence run, or its folder")
    p.add_argument(
        "--like", type=Path, default=Path("runs/evidence"), help="folder of the evidence run"
    )
    p.add_argument(
        "--changes",
        type=json.loads,
        default=CHANGES,
        help="shares of the videos, epochs and pixels of the evidence run, as json",
    )
    p.add_argument("--processes", type=int, default=2, help="trainings at a time, on a CPU")
    p.add_argument("--device", default="auto")
    p.add_argument("--out", type=Path, help="a .json file")
    a = p.parse_args()
    try:
        print(run(a))
    except (ValueError, OSError) as e:
        print(e, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
