"""Do networks that were trained on real clips need the motion?

    python benchmarks/frame_order.py --data MANIFEST --epochs 13 \\
        --only infonce ubernce coclr 'infonce, one schedule' simclr iic labels \\
        --folder runs/evidence-ucf101 --out results/frame-order-ucf101.json
    python benchmarks/frame_order.py --data jhmdb/manifest.csv --epochs 16 --dtype bfloat16 \\
        --only infonce ubernce coclr 'infonce, one schedule' labels \\
        --folder runs/evidence-jhmdb --out results/frame-order-jhmdb.json

The networks are those of `benchmarks/evidence.py`, on frames: what its folder has is read, and what
is missing is trained. Beside them stand random weights, one network for each seed. Each network
searches three times: with the clips as they are, with one frame of each clip in the place of all,
and with the frames of each clip in a random order (`health.background`). Query and gallery are
changed alike.

A network that needs the motion loses R@1 with one frame; one that needs the order of the frames
loses it when they are shuffled. A network without any R@1 above chance can lose nothing.

Beside the searches stand the linear probe of each network, and what each training is above random
weights and above InfoNCE. Right and wrong of each test video and seed are kept. Intervals are a
bootstrap over recordings and seeds (`intervals.Bootstrap`); differences are paired by video and
seed."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import measurement
import numpy as np
import torch
from evidence import (
    LEAST,
    Conditions,
    Dtype,
    Encoder,
    beside,
    chosen,
    measured,
    plan_before,
    recipe_of,
    right_by_neighbour,
    run_of,
    trained,
)
from intervals import Bootstrap, middle_95
from result_files import Stamp, settings_of, write_results
from torch import nn

from vssl_nb.data.manifest import Manifest, open_data
from vssl_nb.measure.features import Features, encoder_protocol
from vssl_nb.measure.health import background
from vssl_nb.measure.protocols import Protocol
from vssl_nb.measure.retrieval import chance
from vssl_nb.nets.backbones import create
from vssl_nb.papers.reproduce import Task, at_once
from vssl_nb.runs.evaluation import open_trained
from vssl_nb.runs.experiment import encoder_metadata, resolve
from vssl_nb.training.machine import keep_memory
from vssl_nb.training.run_folder import read_json, write_json

ORDERS = ("as they are", "one frame", "shuffled")  # of `health.background`, in its order
PROBE = "probe"
UNTRAINED = "random weights"

# order of the frames -> right (1) or wrong (0) for each test video; with the fields of a
# `Measurement`, when it is whole
Right = dict[str, Any]


# ---- one network


def searched(
    encoder: nn.Module,
    manifest: Manifest,
    split: int,
    protocol: Protocol,
    c: Conditions,
    **views: Any,  # of `background`
    # returns: order -> right or wrong; query and gallery with the frames as they are
) -> tuple[Right, tuple[Features, Features]]:
    "The three searches of a network."
    pairs: list[tuple[Features, Features]] = []

    def score(query: Features, gallery: Features) -> dict[str, float]:
        pairs.append((query, gallery))
        return {}

    background(encoder, manifest, split, "rgb", protocol, score=score, machine=c.machine(), **views)
    return dict(zip(ORDERS, (right_by_neighbour(*pair) for pair in pairs))), pairs[0]


def trained_searches(e: Encoder, epochs: int, seed: int, home: Path, c: Conditions) -> Right:
    "Train or go on, then search; what is known already is read."
    whole = trained(e, epochs, seed, home, c)
    run = run_of(home, seed, e.name)
    file = run / "orders.json"
    if not file.exists():
        t = open_trained(run, c.data)
        options = resolve(t.recipe).view_options
        right, _ = searched(t.encoder, t.manifest, t.split, t.protocol(), c, **options)
        write_json(file, right)
    return whole | read_json(file, "a measurement")


def untrained_searches(e: Encoder, epochs: int, seed: int, home: Path, c: Conditions) -> Right:
    "The searches of random weights, with the clips of an encoder; what is known already is read."
    file = run_of(home, seed, UNTRAINED) / "orders.json"
    if not file.exists():
        torch.set_num_threads(c.threads)
        recipe, manifest = recipe_of(e, epochs, seed, c.changes), open_data(c.data)
        protocol = encoder_protocol(encoder_metadata(recipe))
        network = create(recipe.backbone, seed=seed)
        options = resolve(recipe).view_options
        right, pair = searched(network, manifest, recipe.split, protocol, c, **options)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, measured(*pair, manifest, seed) | right)
    return read_json(file, "a measurement")


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


def difference(one: Sequence[int], other: Sequence[int]) -> list[int]:
    return [x - y for x, y in zip(one, other, strict=True)]


def with_intervals(
    rows: dict[str, list[Right]],  # of each seed
    draws: int = 4000,
) -> list[dict[str, Any]]:
    "R@1 and probe of each row; what a change of the frames takes, and what training adds."
    bootstrap = Bootstrap(next(iter(rows.values()))[0]["source"], draws)

    def share(right: Sequence[Sequence[int]]) -> dict[str, Any]:
        mean, drawn = bootstrap.share(right)
        # a sum of shares that is 0 may have a sign
        return {"share": round(mean, 6) + 0.0, "interval": middle_95(drawn)}

    def minus(name: str, measure: str, other: str, of: str) -> dict[str, Any]:
        pairs = zip(rows[name], rows[other], strict=True)
        return share([difference(a[measure], b[of]) for a, b in pairs])

    whole = ORDERS[0]
    table = []
    for name, seeds in rows.items():
        line: dict[str, Any] = {"name": name, "seeds": len(seeds)}
        line["r1"] = {order: share([seed[order] for seed in seeds]) for order in ORDERS}
        line["loses"] = {order: minus(name, whole, name, order) for order in ORDERS[1:]}
        line[PROBE] = share([seed[PROBE] for seed in seeds])
        for other in (UNTRAINED, beside(name)):
            if other in rows and list(rows).index(other) < list(rows).index(name):
                line[f"above {other}"] = {
                    "r1": minus(name, whole, other, whole),
                    PROBE: minus(name, PROBE, other, PROBE),
                }
        line["right"] = {k: [seed[k] for seed in seeds] for k in (*ORDERS, PROBE)}
        table.append(line)
    return table


def percent(share: dict[str, Any], form: str = ".1f") -> str:
    low, high = (100 * x for x in share["interval"])
    return f"{100 * share['share']:{form}} ({low:{form}} to {high:{form}})"


def as_text(table: list[dict[str, Any]]) -> str:
    lines = []
    for line in table:
        words = [f"R@1 {order} {percent(x)}" for order, x in line["r1"].items()]
        words += [f"minus {order} {percent(x, '+.1f')}" for order, x in line["loses"].items()]
        words.append(f"probe {percent(line[PROBE])}")
        for key in line:
            if key.startswith("above "):
                words += [f"{m} {key} {percent(x, '+.1f')}" for m, x in line[key].items()]
        lines.append(f"{line['name']}: {'; '.join(words)}")
    return "\n".join(lines)


def check_options(a: Any, asked: dict[str, Any]) -> None:
    "ValueError where they cannot be, or where the folder was made with others; else it keeps them."
    other_views = [
        e.name for e in chosen("residual", a.only) if e.name in a.only and e.view != "rgb"
    ]
    if other_views:
        raise ValueError(f"--only: {other_views[0]!r} sees no frames; name trainings on frames")
    if a.epochs < 2 * LEAST or len({*a.seeds}) != len(a.seeds):
        raise ValueError(f"--epochs is {2 * LEAST} or more, and each of --seeds is named once")
    file = a.folder / "plan.json"
    if file.exists():
        plan_before(file, asked)
    else:
        a.folder.mkdir(parents=True, exist_ok=True)
        write_json(file, {"asked": asked})


def main() -> None:
    p = measurement.parser(__doc__)
    p.add_argument("--data", required=True, help="a manifest, or its folder")
    p.add_argument("--epochs", type=int, required=True, help="of both halves")
    p.add_argument("--only", nargs="+", metavar="NAME", required=True, help="these trainings")
    p.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    p.add_argument("--folder", type=Path, required=True, help="goes on where it stands")
    p.add_argument("--processes", type=int, default=2, help="trainings at a time")
    p.add_argument("--cache", type=int, default=1024, help="MiB of decoded videos of a training")
    p.add_argument("--dtype", choices=get_args(Dtype), default="float32", help="that of the folder")
    p.add_argument("--changes", type=json.loads, default={}, help="fields of all recipes, as json")
    p.add_argument("--out", type=Path, required=True, help="a .json file")
    a = p.parse_args()
    try:
        keep_memory()
        torch.set_num_threads(1)
        manifest = open_data(a.data)
        settings = settings_of(a, without=("processes", "cache")) | {"data": manifest.sha256}
        # what runs of one folder share; more seeds and trainings may come
        shared = ("data", "epochs", "changes", "dtype")
        check_options(a, {name: settings[name] for name in shared})
        stamp = Stamp(__file__, settings)
        c = Conditions(a.data, a.changes, "cpu", workers=0, dtype=a.dtype, cache=a.cache)
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
    halves = [e.name for e in chosen("residual", a.only) if e.name not in a.only]
    results = {
        "asked": settings,
        # R@1 of the trainings that these begin with, of each seed
        "begun with": {
            name: [float(np.mean(done[name, seed]["r1"])) for seed in a.seeds] for name in halves
        },
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
