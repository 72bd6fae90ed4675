"""All methods on real videos, at equal budget: which differences are larger than chance?

    python benchmarks/evidence.py --data MANIFEST --minutes 120 --out results/evidence.json

Where motion says more than looks (JHMDB, split 1, flow by `vssl-nb flow --method dis`), the
question is whether what flow finds lifts frames; planned before the first run:

    python benchmarks/evidence.py --data jhmdb/manifest.csv --second flow --epochs 16 --dtype bfloat16 \\
        --only 'coclr, flow' 'infonce, flow' ubernce infonce 'infonce, one schedule' labels \\
        --cache 4096 --folder runs/jhmdb --out results/evidence-jhmdb.json

For each seed (of weights, batches and augmentation) fourteen trainings with the same backbone,
clips, augmentation, optimizer, batch and number of videos seen: InfoNCE on frames and on a second
view (`--second`: differences, or stored flow, which keeps the direction of motion); from these, for
as many epochs again, longer InfoNCE, UberNCE, CoCLR (frames learn from what the second view finds,
then the second view from what these frames find) and CPR (a cascade of three stages mines); and
from random weights, for all epochs in one schedule, InfoNCE, IIC, SimCLR, MoQuad, ProViCo and
cross-entropy with the labels, the ceiling of this backbone and budget. A training in two halves
begins again in the middle, with its learning rate; that alone may help or harm, so it is compared
with InfoNCE in two halves, and one in one schedule with InfoNCE in one schedule. Equal budget means
equal videos; clips and seconds of each row stand in the table.

Beside them stand what needs no training: a colour histogram, encoders with random weights, and
motion by hand, which is where and how much the frames change, and, where flow is stored, a
histogram of its directions in a grid of 3 x 3 places and two halves of the clip.

How many epochs fit is found by taking some steps of each recipe and encoding some test videos; with
`--epochs` nothing is timed before. The plan is printed, kept in the folder and not changed
afterwards: what was started and killed goes on with the same command.

Each encoder is measured by retrieval (clean protocol), a linear probe, and a probe with a tenth of
the labels. The intervals are a bootstrap over test videos: whole recordings are drawn with
replacement, since clips of one recording fail together, and the seeds of a method with them. Two
encoders are compared by the interval of their difference on the same draws; where it includes zero,
the table has "open"."""

import argparse
import json
import math
import os
import platform
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from vssl_nb.nets.backbones import create
from vssl_nb.measure.classify import PROBES, classify, linear_probe
from vssl_nb.data.clips import TestClips
from vssl_nb.papers.reproduce import Task, at_once
from vssl_nb.training.loop import read_json, write_json
from vssl_nb.runs.evaluation import open_trained
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.runs.parts import encoder_about, view_options
from vssl_nb.measure.features import Features, encoder_protocol, extract
from vssl_nb.runs.own import seconds_per_step
from vssl_nb.training.machine import Machine, keep_memory
from vssl_nb.data.manifest import ManifestError, open_data
from vssl_nb.methods.recipes import Recipe, SupervisedSettings, find, flat_fields, override
from vssl_nb.measure.retrieval import centre_and_normalise, chance, histogram, nearest_neighbours
from vssl_nb.training.loop import TrainError
from vssl_nb.data.views import Views, dequantise_flow

# of plans from before these options
DEFAULTS = {"only": None, "dtype": "float32", "epochs": None}
# LEAST: epochs of a phase, below which nothing is worth comparing
BATCH, TEST_CLIPS, LEAST = 32, 4, 2
CASCADE = dict(miner="cascade", miner_options=("stages=3", "ratio=0.5"))


@dataclass(frozen=True)
class Encoder:
    "A training of the comparison."

    name: str
    recipe: str  # its settings but for what all share
    view: str = "rgb"
    start: str = ""  # begins with these weights and takes the second half of the epochs
    sampler: str = ""  # who mines
    whole: bool = False  # all epochs, from random weights
    changes: tuple = ()


def encoders(
    second: str,  # 'residual' or 'flow'
) -> list[Encoder]:
    "The trainings; those that others begin with come first."
    mines = (("mining_view", second),)
    half, other = "infonce, half", f"infonce, half, {second}"
    return [
        Encoder(half, "infonce-laptop-rgb"),
        Encoder(other, "infonce-laptop-residual", second),
        Encoder("infonce", "infonce-laptop-rgb", start=half),
        Encoder(f"infonce, {second}", "infonce-laptop-residual", second, other),
        Encoder("ubernce", "ubernce-toy-rgb", start=half),
        Encoder("coclr", "coclr-laptop-rgb-cycle1", "rgb", half, other, changes=mines),
        Encoder(f"coclr, {second}", "coclr-laptop-residual-cycle1", second, other, "coclr"),
        Encoder(
            "cpr", "coclr-laptop-rgb-cycle1", "rgb", half, other, changes=(*mines, *CASCADE.items())
        ),
        Encoder("infonce, one schedule", "infonce-laptop-rgb", whole=True),
        Encoder("labels", "infonce-laptop-rgb", whole=True),
        Encoder("iic", "iic-toy", whole=True, changes=(("second_view", second),)),
        Encoder("simclr", "simclr-toy-rgb", whole=True),
        Encoder("moquad", "moquad-toy", whole=True),
        Encoder("provico", "provico-toy", whole=True),
    ]


def chosen(second: str, only: list[str] | None) -> list[Encoder]:
    "The trainings that are named, and those that they begin with or mine with."
    every = encoders(second)
    if only is None:
        return every
    if lost := [n for n in only if n not in [e.name for e in every]]:
        raise ValueError(
            f"--only: {lost[0]!r} is no training; there are {'; '.join(e.name for e in every)}"
        )
    wanted = set(only)
    for e in reversed(every):  # those that others begin with come first
        if e.name in wanted:
            wanted |= {e.start, e.sampler} - {""}
    return [e for e in every if e.name in wanted]


def both(
    second: str,
    every: list[Encoder],
) -> dict[str, tuple[str, str]]:  # two streams
    pairs = {f"{m}, both": (m, f"{m}, {second}") for m in ("infonce", "coclr")}
    return {n: two for n, two in pairs.items() if {*two} <= {e.name for e in every}}


ONE_SCHEDULE = ("labels", "iic", "simclr", "moquad", "provico")


def beside(name: str) -> str:
    "The row that a row is compared with: InfoNCE of the same view and schedule."
    if name in ONE_SCHEDULE:
        return "infonce, one schedule"
    return next(
        (f"infonce, {v}" for v in ("residual", "flow", "both") if name.endswith(f", {v}")),
        "infonce",
    )


class MotionEnergy(nn.Module):
    """Where and how much frames change: differences (B, 3, T, H, W) -> (B, 128), 4 x 4 places, 8
    times.
    """

    dim = 128

    def forward(self, x):
        return functional.adaptive_avg_pool3d(x.abs().mean(1), (8, 4, 4)).flatten(1)


def directions(
    u: torch.Tensor,  # (B, T, H, W) px, to the right
    v: torch.Tensor,  # (B, T, H, W) px, down
) -> torch.Tensor:
    """Directions of flow, weighed by its speed: (B, 162), of length 1: eight directions and one for
    what stands still (less than half a pixel), in two halves of the clip and 3 x 3 places."""
    speed = (u * u + v * v).sqrt()
    way = ((torch.atan2(v, u) / (2 * math.pi) * 8).round().long() % 8).masked_fill(speed < 0.5, 8)
    weight = torch.where(speed < 0.5, torch.full_like(speed, 0.05), speed)
    votes = functional.one_hot(way, 9).movedim(-1, 1) * weight[:, None]  # (B, 9, T, H, W)
    return functional.normalize(
        functional.adaptive_avg_pool3d(votes, (2, 3, 3)).flatten(1).sqrt(), dim=1
    )


class FlowDirections(nn.Module):
    "`directions` of pictures of flow in [0, 1] (B, 3, T, H, W) -> (B, 162)."

    dim = 162

    def forward(self, x):
        return directions(*(dequantise_flow(255 * x[:, i]) for i in (2, 1)))


def recipe_of(e: Encoder, epochs: int, seed: int, changes: dict) -> Recipe:
    "The settings of a method, and what all share."
    base, r = find("infonce-laptop-rgb"), find(e.recipe)
    if e.name == "labels":
        r = replace(r, method=SupervisedSettings(lr_encoder=base.learning.lr))
    own = {n: getattr(r.augment, n) for n in ("appearance", "appearance_clips", "windows")}
    n = epochs if e.whole else epochs - epochs // 2 if e.start else epochs // 2
    r = replace(
        r,
        name=e.name.replace(", ", "-"),
        dataset="any",
        view=e.view,
        backbone=base.backbone,
        size=base.size,
        seed=seed,
        test_clips=TEST_CLIPS,
        augment=replace(base.augment, **own),
        sampling=replace(r.sampling, length=base.sampling.length, stride=base.sampling.stride),
        learning=replace(base.learning, batch=BATCH, epochs=n, warmup=0.0 if e.start else 1.0),
    )
    return override(
        r, **dict(e.changes), **{k: v for k, v in changes.items() if k in flat_fields(r)}
    )


def machine_of(
    device: str, workers: int, dtype: Literal["float32", "bfloat16"] = "float32", cache: int = 64
) -> Machine:
    return Machine(device, dtype, progress=False, workers=workers, cache=cache)


def timed(manifest, every: list[Encoder], changes: dict, machine: Machine, limit: float) -> dict:
    "Seconds of a step of each recipe, and of measuring one video."
    steps = {
        e.name: seconds_per_step(recipe_of(e, 2 * LEAST, 0, changes), manifest, machine, limit)
        for e in every
    }
    r = recipe_of(every[0], 2 * LEAST, 0, changes)
    encoder = create(r.backbone, seed=0).eval().to(machine.place())
    seen = encoder_protocol(encoder_about(r))
    clips = TestClips(
        manifest,
        manifest.select("test", r.split)[:12],
        clips=seen.clips,
        length=seen.length,
        stride=seen.stride,
        size=seen.size,
    )
    see, began = Views(r.view, **view_options(r)), time.monotonic()
    with torch.inference_mode():
        for i in range(len(clips)):
            encoder(see({"clips": clips[i]["clips"][None]})[r.view][0].to(machine.place()))
    return {"steps": steps, "video": (time.monotonic() - began) / len(clips)}


def planned(
    every: list[Encoder],
    times: dict,
    minutes: float,
    train: int,
    test: int,
    seeds: list[int],
    processes: int,
    batch: int,
) -> dict:  # `train`, `test`: videos
    "How many epochs fit; ValueError where not even the least fit."
    share = {e.name: 1.0 if e.whole else 0.5 for e in every}
    epoch = (
        sum(share[n] * s for n, s in times["steps"].items())
        * (train // batch)
        * len(seeds)
        / processes
    )
    measuring = times["video"] * (train + test) * len(share) * len(seeds) / processes
    left = 0.9 * 60 * minutes - measuring  # a tenth for probes, starts, and for clocks that lie
    epochs = int(left / epoch)
    least = math.ceil((2 * LEAST * epoch + measuring) / 0.9 / 60)
    if epochs < 2 * LEAST:
        raise ValueError(
            f"--minutes: {minutes:.3g} are left after timing, too little "
            f"for {2 * LEAST} epochs of each method with {len(seeds)} seeds and {train} training "
            "videos; give "
            f"{least} or more, or fewer --seeds"
        )
    return {
        "epochs": epochs,
        "training_minutes": round(epochs * epoch / 60, 1),
        "measuring_minutes": round(measuring / 60, 1),
        "times": times,
    }


def trained(e: Encoder, plan: dict, seed: int, home: Path, data: str, how: dict) -> dict:
    "Train or go on, and measure; what is known already is read."
    run, kept = home / f"seed{seed}" / e.name.replace(", ", "-"), f"seed{seed}"
    if (run / "measured.json").exists():
        return read_json(run / "measured.json", "a measurement")
    torch.set_num_threads(how["threads"])
    machine = machine_of(how["device"], how["workers"], how["dtype"], how["cache"])

    def of(name):
        return home / kept / name.replace(", ", "-") if name else None

    recipe = recipe_of(e, plan["epochs"], seed, how["changes"])
    pretrain(
        recipe,
        data,
        run,
        (run / "recipe.json").exists(),
        machine,
        init_from=of(e.start),
        sampler=of(e.sampler),
    )
    card = read_json(run / "card.json", "a run")
    if not card["finished"]:
        raise TrainError(f"{run}: was stopped; the same command goes on")
    t = open_trained(run, data)
    query, gallery = t.pairs(t.protocol(), (t.split,), machine=machine)[t.split]
    clips = recipe.sampling.clips * recipe.learning.batch * card["step"]
    found = measured(query, gallery, t.manifest, seed) | {
        "seconds": card["seconds"],
        "clips": clips,
    }
    write_json(run / "measured.json", found)
    return found


def joined(names: tuple[str, str], seed: int, home: Path, data: str, how: dict) -> dict:
    "Two streams: cosines are added, and a probe sees both features."
    run = home / f"seed{seed}" / ("both-" + names[0].replace(", ", "-"))
    if (run / "measured.json").exists():
        return read_json(run / "measured.json", "a measurement")
    machine, pairs = machine_of(how["device"], how["workers"], how["dtype"], how["cache"]), []
    for n in names:
        t = open_trained(home / f"seed{seed}" / n.replace(", ", "-"), data)
        pairs.append(t.pairs(t.protocol(), (t.split,), machine=machine)[t.split])
    unit = [centre_and_normalise(q, g) for q, g in pairs]
    query, gallery = (replace(pairs[0][i], x=torch.cat([u[i] for u in unit], 1)) for i in (0, 1))
    found = measured(query, gallery, t.manifest, seed) | {"seconds": 0.0, "clips": 0}
    run.mkdir(parents=True, exist_ok=True)
    write_json(run / "measured.json", found)
    return found


def label_subset(label: list, share: float, seed: int) -> list:
    "Positions of the first videos of each class in a drawn order, at least one, ascending."
    taken = []
    for n, c in enumerate(sorted(set(label))):
        mine = [i for i, d in enumerate(label) if d == c]
        order = np.random.default_rng((seed, n, 1)).permutation(len(mine))
        taken += [mine[i] for i in order[: max(1, math.floor(share * len(mine) + 0.5))]]
    return sorted(taken)


def measured(query: Features, gallery: Features, manifest, seed: int) -> dict:
    """Right or wrong for each test video: nearest neighbour, probe, probe with a tenth of the
    labels.
    """
    q, g = centre_and_normalise(query, gallery)
    near = nearest_neighbours(q, g, 1)[0][:, 0]
    few = label_subset(gallery.label.tolist(), 0.1, seed)
    part = gallery.take(few)
    last = replace(
        PROBES["clean_probe"], selection="last", strengths=PROBES["clean_probe"].strengths[2:3]
    )

    def right(
        features,
        how,
    ):  # of a probe
        p = classify(linear_probe(features, how, seed=seed), query, manifest.labels)
        return (p.p.argmax(1) == p.label).int().tolist()

    return {
        "row": query.row.tolist(),
        "source": query.source.tolist(),
        "r1": (gallery.label[near] == query.label).int().tolist(),
        "probe": right(gallery, PROBES["clean_probe"]),
        "few": right(part, last),
    }


def floor(
    manifest, second: str, changes: dict, machine: Machine, home: Path
) -> dict[str, list[dict]]:
    "What needs no training."
    file = home / "floor.json"
    if file.exists():
        return read_json(file, "a measurement")
    r = recipe_of(encoders(second)[0], 2 * LEAST, 0, changes)
    found: dict[str, list[dict]] = {}

    def see(net, view, **options):
        return [
            extract(
                net,
                manifest,
                part,
                r.split,
                view,
                encoder_protocol(encoder_about(r)),
                machine=machine,
                **options,
            )
            for part in ("test", "train")
        ]

    def random(view):
        return see(create(r.backbone, seed=0), view, **view_options(replace(r, view=view)))

    bare = dict(mean=(0.0,) * 3, std=(1.0,) * 3)
    pairs = {
        "colour histogram": [
            histogram(manifest, part, r.split, machine=machine) for part in ("test", "train")
        ],
        "motion energy": see(MotionEnergy(), "residual", **bare),
        "random": random("rgb"),
        f"random, {second}": random(second),
    }
    if second == "flow":
        pairs["flow directions"] = see(FlowDirections(), "flow", **bare)
    for name, (q, g) in pairs.items():
        found[name] = [measured(q, g, manifest, 0) | {"seconds": 0.0, "clips": 0}]
    write_json(file, found)
    return found


def intervals(found: dict[str, list[dict]], draws: int = 2000) -> list[dict]:
    """Mean over seeds with 95 % intervals; differences to InfoNCE as long, on the same drawn
    recordings.
    """
    first = next(iter(found.values()))[0]
    source = np.array(first["source"])
    ids, which = np.unique(source, return_inverse=True)
    sizes = np.bincount(which)
    # (draws, S)
    drawn = np.random.default_rng(0).multinomial(len(ids), np.full(len(ids), 1 / len(ids)), draws)
    rng, rows = np.random.default_rng(1), []

    def curve(
        seeds,
        what,
    ):  # mean of all, and of each draw
        right = np.stack([np.bincount(which, np.array(s[what])) for s in seeds])  # (seeds, S)
        picked = rng.integers(len(seeds), size=(draws, len(seeds)))
        mean = right[picked].mean(1)  # seeds are drawn, too
        return right.mean(0).sum() / sizes.sum(), (drawn * mean).sum(1) / (drawn @ sizes)

    curves = {(n, w): curve(s, w) for n, s in found.items() for w in ("r1", "probe", "few")}
    for name, seeds in found.items():
        row = {
            "name": name,
            "seeds": len(seeds),
            "seconds": float(np.mean([s["seconds"] for s in seeds])),
            "clips": seeds[0]["clips"],
        }
        against = beside(name)
        for w in ("r1", "probe", "few"):
            mean, draw = curves[name, w]
            row[w], row[f"{w}_interval"] = mean, np.quantile(draw, (0.025, 0.975)).tolist()
            if against not in found or name == against or "half" in name or len(seeds) == 1:
                continue
            gap = draw - curves[against, w][1]
            row[f"{w}_gap"] = mean - curves[against, w][0]
            row[f"{w}_gap_interval"] = np.quantile(gap, (0.025, 0.975)).tolist()
        rows.append(row | {"against": against})
    return rows


def told(row: dict, what: str) -> str:
    low, high = (100 * x for x in row[f"{what}_interval"])
    return f"{100 * row[what]:.1f} ({low:.1f} to {high:.1f})"


def verdict(row: dict) -> str:
    "Of R@1, in words."
    if "r1_gap" not in row:
        return "–"
    low, high = (100 * x for x in row["r1_gap_interval"])
    word = "more" if low > 0 else "less" if high < 0 else "open"
    return f"{100 * row['r1_gap']:+.1f} ({low:+.1f} to {high:+.1f}): {word}"


def as_markdown(rows: list[dict], at_random: float) -> str:
    lines = [
        "| encoder | R@1 % | against InfoNCE as long | probe % | 10 % of the labels | clips seen "
        "| s |",
        "| :-- | --: | :-- | --: | --: | --: | --: |",
        f"| chance | {100 * at_random:.1f} | – | | | | |",
    ]
    for r in rows:
        cells = (
            r["name"],
            told(r, "r1"),
            verdict(r),
            told(r, "probe"),
            told(r, "few"),
            f"{r['clips']:,}",
            f"{r['seconds']:.0f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--data", required=True, help="a manifest, or its folder")
    p.add_argument(
        "--second", choices=["residual", "flow"], default="residual", help="view beside frames"
    )
    p.add_argument("--minutes", type=float, default=120.0, help="of this machine, for everything")
    p.add_argument("--epochs", type=int, help="of one schedule, in the place of as many as fit")
    p.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    p.add_argument(
        "--folder", type=Path, default=Path("runs/evidence"), help="goes on where it stands"
    )
    p.add_argument(
        "--processes", type=int, help="trainings at a time; 2 on a CPU, 1 on a GPU if not given"
    )
    p.add_argument(
        "--workers",
        type=int,
        default=2,
        help="that decode for a training; none on a CPU where several run at a time",
    )
    p.add_argument("--device", default="auto")
    p.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        help="these trainings, and those that they begin with or mine with",
    )
    p.add_argument(
        "--dtype", choices=["float32", "bfloat16"], default="float32", help="of forward passes"
    )
    p.add_argument(
        "--cache", type=int, default=64, help="MiB of decoded videos that a training keeps"
    )
    p.add_argument("--changes", type=json.loads, default={}, help="fields of all recipes, as json")
    p.add_argument("--out", type=Path, help="a .json file")
    p.add_argument("--dry-run", action="store_true", help="only plan")
    a = p.parse_args()
    try:
        print(run(a))
    except (ValueError, OSError) as e:
        print(e, file=sys.stderr)
        sys.exit(2)


def plan_of(a, manifest, machine: Machine, processes: int) -> dict:
    "The plan of the folder, made where there is none; ValueError where it is another one's."
    file = a.folder / "plan.json"
    asked = {
        "data": manifest.sha256,
        "second": a.second,
        "minutes": a.minutes,
        "seeds": a.seeds,
        "changes": a.changes,
        "only": a.only,
        "dtype": a.dtype,
        "epochs": a.epochs,
    }
    every = chosen(a.second, a.only)
    if file.exists():
        plan = read_json(file, "a plan")
        if other := [k for k, v in asked.items() if plan["asked"].get(k, DEFAULTS.get(k)) != v]:
            raise ValueError(
                f"{file}: was planned with other {', '.join(other)}; name another --folder, "
                "or ask for the same"
            )
        return plan
    limit, began = min(8.0, 60 * a.minutes / 200), time.monotonic()
    batch = recipe_of(every[0], 2 * LEAST, 0, a.changes).learning.batch
    made = {
        "train": len(manifest.select("train")),
        "test": len(manifest.select("test")),
        "seeds": a.seeds,
        "trainings": len(every) * len(a.seeds),
        "epochs": a.epochs,
    }
    if made["train"] < batch:
        raise ManifestError(
            f"{manifest.path}: has {made['train']} training videos, and a batch is {batch}"
        )
    if a.epochs is None:
        times = timed(manifest, every, a.changes, machine, limit)
        left = a.minutes - (time.monotonic() - began) / 60
        made |= planned(every, times, left, made["train"], made["test"], a.seeds, processes, batch)
    plan = made | {"asked": asked, "begun": time.strftime("%Y-%m-%d %H:%M")}
    if not a.dry_run:
        a.folder.mkdir(parents=True, exist_ok=True)
        write_json(file, plan)
    return plan


def run(
    a,
) -> str:  # markdown
    keep_memory()
    few = a.processes is not None and a.processes < 1
    if a.minutes <= 0 or len({*a.seeds}) != len(a.seeds) or few or a.workers < 0:
        raise ValueError(
            "--minutes and --processes are above 0, --workers 0 or more, and each of --seeds is "
            "named once"
        )
    if a.epochs is not None and a.epochs < 2 * LEAST:
        raise ValueError(f"--epochs {a.epochs}: give {2 * LEAST} or more")
    manifest = open_data(a.data)
    gpu = Machine(a.device).place().type == "cuda"
    processes = a.processes or (1 if gpu else 2)
    torch.set_num_threads(1 if processes > 1 else max(os.cpu_count() or 1, 1))
    # side by side on a CPU they decode for themselves
    workers = a.workers if gpu or processes == 1 else 0
    machine = machine_of(a.device, workers, a.dtype, a.cache)
    plan = plan_of(a, manifest, machine, processes)
    takes = (
        ""
        if "times" not in plan
        else (
            f": {plan['training_minutes']} minutes of training and "
            f"{plan['measuring_minutes']} of measuring"
        )
    )
    print(
        f"{plan['trainings']} trainings of {plan['epochs'] // 2} or {plan['epochs']} epochs on "
        f"{plan['train']:,} videos, {plan['test']:,} test videos{takes}; {processes} at a time",
        flush=True,
    )
    if a.dry_run:
        return ""
    began = time.monotonic()
    found = floor(manifest, a.second, a.changes, machine, a.folder)
    how = {
        "threads": torch.get_num_threads(),
        "device": a.device,
        "workers": workers,
        "changes": a.changes,
        "dtype": a.dtype,
        "cache": a.cache,
    }
    tasks: dict[str, Task] = {}
    every = chosen(a.second, a.only)
    streams = both(a.second, every)

    def label(name, seed):
        return f"{name}, seed {seed}"

    for s in a.seeds:
        for e in every:
            after = tuple(label(n, s) for n in (e.start, e.sampler) if n)
            tasks[label(e.name, s)] = Task(trained, (e, plan, s, a.folder, a.data, how), after)
        for name, names in streams.items():
            after = tuple(label(n, s) for n in names)
            tasks[label(name, s)] = Task(joined, (names, s, a.folder, a.data, how), after)
    runs = [a.folder / f"seed{s}" / e.name.replace(", ", "-") for s in a.seeds for e in every]
    said: set[str] = set()

    def look(done):
        for n in done.keys() - said:
            minutes = (time.monotonic() - began) / 60
            print(f"{minutes:6.1f} min  {n}: R@1 {np.mean(done[n]['r1']):.1%}", flush=True)
            said.add(n)

    done = at_once(tasks, processes, runs, progress=False, look=look)
    for name in [*(e.name for e in every), *streams]:
        found[name] = [done[label(name, s)] for s in a.seeds]
    return kept(a, plan, found, manifest, time.monotonic() - began)


def kept(
    a,
    plan: dict,
    found: dict[str, list[dict]],
    manifest,
    seconds: float,
) -> str:  # the table
    rows = intervals(found)
    labels = [
        torch.tensor([manifest.label_id(r) for r in manifest.select(p)]) for p in ("test", "train")
    ]
    at_random = chance(*labels, [1])[1]
    text = as_markdown(rows, at_random)
    (a.folder / "table.md").write_text(text + "\n", encoding="utf-8")
    where = {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if Machine(a.device).place().type == "cuda" else None,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    shown = encoders(a.second)[0]
    recipes = {shown.name: flat_fields(recipe_of(shown, plan["epochs"], a.seeds[0], a.changes))}
    told_ = {
        "what": "benchmarks/evidence.py",
        "date": time.strftime("%Y-%m-%d"),
        "machine": where,
        "plan": plan,
        "classes": len(manifest.labels),
        "chance": at_random,
        "last_call_seconds": round(seconds),
        "shared": recipes,
        "rows": rows,
    }
    if a.out:
        a.out.write_text(json.dumps(told_, indent=1, default=list) + "\n", encoding="utf-8")
    return text


if __name__ == "__main__":
    main()
