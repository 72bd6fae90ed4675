"""Do networks that were trained on real clips need the motion?

    python benchmarks/frame_order.py --data MANIFEST --epochs 13 --only infonce coclr ubernce \\
        --folder runs/order-ucf101 --out results/frame-order-ucf101.json
    python benchmarks/frame_order.py --data jhmdb/manifest.csv --epochs 16 \\
        --only infonce ubernce --folder runs/order-jhmdb --out results/frame-order-jhmdb.json

The trainings are those of `benchmarks/evidence.py`, on frames, made again because that script keeps
no weights; beside them stand random weights, one network for each seed. Each network searches three
times: with the clips as they are, with one frame of each clip in the place of all, and with the
frames of each clip in a random order (`health.background`). Query and gallery are changed alike.

A network that needs the motion loses R@1 with one frame; one that needs the order of the frames
loses it when they are shuffled. A network without any R@1 above chance can lose nothing.

Right and wrong of each test video and seed are kept. Intervals are a bootstrap over recordings and
seeds (`intervals.Bootstrap`); differences are of the same draws."""

import json
import sys
from pathlib import Path
from typing import Any

import measurement
import numpy as np
import torch
from evidence import Conditions, Encoder, chosen, recipe_of, right_by_neighbour, run_of, trained
from intervals import Bootstrap, middle_95
from result_files import Stamp, settings_of, write_results

from vssl_nb.data.manifest import Manifest, open_data
from vssl_nb.measure.features import Features, encoder_protocol
from vssl_nb.measure.health import background
from vssl_nb.measure.retrieval import chance
from vssl_nb.nets.backbones import create
from vssl_nb.papers.reproduce import Task, at_once
from vssl_nb.runs.evaluation import open_trained
from vssl_nb.runs.experiment import encoder_metadata, resolve
from vssl_nb.training.machine import keep_memory
from vssl_nb.training.run_folder import read_json, write_json

ORDERS = ("as they are", "one frame", "shuffled")  # of `health.background`, in its order
UNTRAINED = "random weights"

Right = dict[str, Any]  # order of the frames -> right (1) or wrong (0) for each test video


# ---- one network


def searched(encoder, manifest: Manifest, split: int, protocol, c: Conditions, **views) -> Right:
    "The three searches of a network."
    answers: list[list[int]] = []
    source: list[int] = []

    def score(query: Features, gallery: Features) -> dict[str, float]:
        answers.append(right_by_neighbour(query, gallery))
        source[:] = query.source.tolist()
        return {}

    background(encoder, manifest, split, "rgb", protocol, score=score, machine=c.machine(), **views)
    return {"source": source} | dict(zip(ORDERS, answers))


def trained_searches(e: Encoder, epochs: int, seed: int, home: Path, c: Conditions) -> Right:
    "Train or go on, then search; what is known already is read."
    trained(e, epochs, seed, home, c)
    run = run_of(home, seed, e.name)
    file = run / "orders.json"
    if not file.exists():
        t = open_trained(run, c.data)
        options = resolve(t.recipe).view_options
        write_json(file, searched(t.encoder, t.manifest, t.split, t.protocol(), c, **options))
    return read_json(file, "a measurement")


def untrained_searches(e: Encoder, epochs: int, seed: int, home: Path, c: Conditions) -> Right:
    "The searches of random weights, with the clips of an encoder."
    torch.set_num_threads(c.threads)
    recipe = recipe_of(e, epochs, seed, c.changes)
    manifest = open_data(c.data)
    protocol = encoder_protocol(encoder_metadata(recipe))
    encoder = create(recipe.backbone, seed=seed)
    return searched(encoder, manifest, recipe.split, protocol, c, **resolve(recipe).view_options)


def tasks_of(a: Any, c: Conditions) -> dict[tuple[str, int], Task]:
    "Random weights, the trainings, and those that they begin with or mine with."
    every = chosen("residual", a.only)
    tasks: dict[tuple[str, int], Task] = {}
    for seed in a.seeds:
        for e in every:
            after = tuple((name, seed) for name in (e.start, e.sampler) if name)
            work = trained_searches if e.name in a.only else trained
            tasks[e.name, seed] = Task(work, (e, a.epochs, seed, a.folder, c), after)
        first = (every[0], a.epochs, seed, a.folder, c)
        tasks[UNTRAINED, seed] = Task(untrained_searches, first, ())
    return tasks


# ---- intervals


def with_intervals(
    rows: dict[str, list[Right]],  # of each seed
    draws: int = 4000,
) -> list[dict[str, Any]]:
    "R@1 of each row and order; what a change of the frames takes, and what training adds."
    bootstrap = Bootstrap(next(iter(rows.values()))[0]["source"], draws)
    shares = {
        (name, order): bootstrap.share([seed[order] for seed in seeds])
        for name, seeds in rows.items()
        for order in ORDERS
    }

    def gap(one: tuple[str, str], other: tuple[str, str]) -> dict[str, Any]:
        (mean, drawn), (than, others) = shares[one], shares[other]
        return {"r1": mean - than, "r1_interval": middle_95(drawn - others)}

    whole = ORDERS[0]
    table = []
    for name, seeds in rows.items():
        line: dict[str, Any] = {"name": name, "seeds": len(seeds), "orders": {}}
        for order in ORDERS:
            mean, drawn = shares[name, order]
            line["orders"][order] = {"r1": mean, "r1_interval": middle_95(drawn)}
        line["loses"] = {o: gap((name, whole), (name, o)) for o in ORDERS[1:]}
        if name != UNTRAINED:
            line["above_untrained"] = gap((name, whole), (UNTRAINED, whole))
        line["right"] = {order: [seed[order] for seed in seeds] for order in ORDERS}
        table.append(line)
    return table


def as_text(table: list[dict[str, Any]]) -> str:
    def points(gap: dict[str, Any]) -> str:
        low, high = (100 * x for x in gap["r1_interval"])
        return f"{100 * gap['r1']:+.1f} ({low:+.1f} to {high:+.1f})"

    lines = []
    for line in table:
        r1 = ", ".join(f"{order} {100 * x['r1']:.1f}" for order, x in line["orders"].items())
        gaps = [f"minus {order} {points(x)}" for order, x in line["loses"].items()]
        if "above_untrained" in line:
            gaps.append(f"minus random weights {points(line['above_untrained'])}")
        lines.append(f"{line['name']}: R@1 {r1}; {'; '.join(gaps)}")
    return "\n".join(lines)


def main() -> None:
    p = measurement.parser(__doc__)
    p.add_argument("--data", required=True, help="a manifest, or its folder")
    p.add_argument("--epochs", type=int, required=True, help="of both halves")
    p.add_argument("--only", nargs="+", metavar="NAME", required=True, help="these trainings")
    p.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    p.add_argument("--folder", type=Path, required=True, help="goes on where it stands")
    p.add_argument("--processes", type=int, default=2, help="trainings at a time")
    p.add_argument("--cache", type=int, default=1024, help="MiB of decoded videos of a training")
    p.add_argument("--changes", type=json.loads, default={}, help="fields of all recipes, as json")
    p.add_argument("--out", type=Path, required=True, help="a .json file")
    a = p.parse_args()
    try:
        keep_memory()
        torch.set_num_threads(1)
        manifest = open_data(a.data)
        settings = settings_of(a, without=("processes", "cache")) | {"data": manifest.sha256}
        stamp = Stamp(__file__, settings)
        c = Conditions(a.data, a.changes, "cpu", workers=0, cache=a.cache)
        tasks = tasks_of(a, c)
        runs = [run_of(a.folder, s, e.name) for s in a.seeds for e in chosen("residual", a.only)]
        done = at_once(tasks, a.processes, runs, progress=False)
    except (ValueError, OSError) as e:
        print(e, file=sys.stderr)
        sys.exit(2)
    table = with_intervals(
        {name: [done[name, seed] for seed in a.seeds] for name in (UNTRAINED, *a.only)}
    )
    query, gallery = (
        torch.tensor([manifest.label_id(row) for row in manifest.select(part)])
        for part in ("test", "train")
    )
    results = {
        "asked": settings,
        "classes": len(manifest.labels),
        "train": len(gallery),
        "test": len(query),
        "recordings": len(np.unique(done[UNTRAINED, a.seeds[0]]["source"])),
        "source": done[UNTRAINED, a.seeds[0]]["source"],
        "chance": chance(query, gallery, [1])[1],
        "rows": table,
    }
    write_results(a.out, stamp.head() | results)
    print(as_text(table))


if __name__ == "__main__":
    main()
