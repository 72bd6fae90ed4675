"""All methods on real videos, at equal budget: which differences are larger than chance?

    python benchmarks/evidence.py --data MANIFEST --minutes 120 --out results/evidence.json

Where motion says more than looks (JHMDB, split 1, flow by `vssl-nb flow --method dis`), the
question is whether what flow finds lifts frames; planned before the first run:

    python benchmarks/evidence.py --data jhmdb/manifest.csv --second flow --epochs 16 \\
        --dtype bfloat16 \\
        --only 'coclr, flow' 'infonce, flow' ubernce infonce 'infonce, one schedule' labels \\
        --cache 4096 --folder runs/jhmdb --out results/evidence-jhmdb.json

For each seed (of weights, batches and augmentation) fourteen trainings with the same backbone,
clips, augmentation, optimizer, batch and number of videos seen: InfoNCE on frames and on a second
view (`--second`: differences, or stored flow, which keeps the direction of motion); from these, for
as many epochs again, longer InfoNCE, UberNCE, CoCLR (frames learn from what the second view finds,
then the second view from what these frames find) and CPR (a cascade of three stages mines); and
from random weights, for all epochs in one schedule, InfoNCE, IIC, SimCLR, MoQuad, ProViCo and
cross-entropy with the labels. A training in two halves begins again in the middle, with its
learning rate; that alone may help or harm, so it is compared with InfoNCE in two halves, and one in
one schedule with InfoNCE in one schedule. Equal budget means equal videos; clips and seconds of
each row stand in the table.

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
the table has "open". Right (1) and wrong (0) of each test video and seed are kept with the table, a
digit a video, and the recording of each test video (`source`), so that every interval can be
computed again.

What came out. On UCF101 (`results/evidence.json`, copies of short side 72, 13 epochs) no method
without labels is above InfoNCE of the same view and schedule; UberNCE and cross-entropy are. A
former run of 23 November, on another machine, had InfoNCE in two halves at 32.4 % and the same at
39.5 % when it was made again; rows in one schedule were compared with it. Here it has 34.7 %, in
one schedule 40.1 %.

On JHMDB (`results/evidence-jhmdb.json`, copies of 112 px, flow by DIS, 30 minutes of two busy cores
a seed) nothing that was trained is above directions of flow by hand, in R@1 and probe. Co-training
is not shown to lift frames: the interval of its gain of 2.5 points is 17 points wide. Training with
labels stays below the histogram in the mean, too, so this network and budget cannot answer the
question. The probe of InfoNCE falls in the second half (on frames from 16.9 to 11.5, on flow from
22.6 to 19.0). `clips` of a row are those of the training itself: those of the half that it begins
with come on top, and two streams have none.

What an answer would take, computed and not measured: S3D on whole copies (16 frames of 112 px), 300
epochs and three seeds of the same nine trainings are 135 minutes of an A100 by
`results/budget.json`, steps alone, at a fifth of the speed of its data sheet operation by
operation; S3D had 18 % of that of measured speeds on an H200. `make gpu JHMDB=…/manifest.csv` runs
that (job `jhmdb`). Split 1 tests 88 recordings; all three splits together test 317, each once, so
their interval would be about half as wide (the root of 3.6 is 1.9). This script has split 1
alone."""

import json
import math
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import measurement
import numpy as np
import torch
from intervals import Bootstrap, middle_95
from result_files import Stamp, differing, write_results
from run_folders import folder_name, is_begun
from torch import Tensor, nn

from vssl_nb.data.dataset import TestClips
from vssl_nb.data.manifest import Manifest, ManifestError, open_data
from vssl_nb.data.views import Views, dequantise_flow
from vssl_nb.measure.classify import PROBES, LinearProbe, classify, linear_probe
from vssl_nb.measure.features import Features, encoder_protocol, extract
from vssl_nb.measure.motion_descriptors import ChangeEnergy, flow_directions
from vssl_nb.measure.retrieval import centre_and_normalise, chance, histogram, nearest_neighbours
from vssl_nb.config import Recipe
from vssl_nb.methods.recipes.supervised import SupervisedSettings
from vssl_nb.methods.recipes import find, flat_fields, override
from vssl_nb.nets.backbones import create
from vssl_nb.papers.reproduce import Task, at_once
from vssl_nb.runs.evaluation import open_trained
from vssl_nb.runs.budget import seconds_per_step
from vssl_nb.runs.experiment import encoder_metadata, resolve
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.training.loop import TrainError
from vssl_nb.training.run_folder import read_json, write_json
from vssl_nb.training.machine import Machine, keep_memory

# of plans from before these options
DEFAULTS = {"only": None, "dtype": "float32", "epochs": None}
BATCH, TEST_CLIPS = 32, 4
LEAST = 2  # epochs of a phase, below which nothing is worth comparing
CASCADE = dict(miner="cascade", miner_options=("stages=3", "ratio=0.5"))
ONE_SCHEDULE = ("labels", "iic", "simclr", "moquad", "provico")
MEASURES = ("r1", "probe", "few")  # nearest neighbour, probe, probe with a tenth of the labels
FEW = 0.1  # of the labels

Measurement = dict[str, Any]  # right or wrong for each test video
Dtype = Literal["float32", "bfloat16"]


# ---- the trainings


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
    names = [e.name for e in every]
    unknown = [name for name in only if name not in names]
    if unknown:
        raise ValueError(f"--only: {unknown[0]!r} is no training; there are {'; '.join(names)}")
    wanted = set(only)
    for e in reversed(every):  # those that others begin with come first
        if e.name in wanted:
            wanted |= {e.start, e.sampler}
    return [e for e in every if e.name in wanted]


def both(
    second: str,
    every: list[Encoder],
) -> dict[str, tuple[str, str]]:
    "Two streams: their name, and those that they are made of."
    names = {e.name for e in every}
    pairs = {f"{method}, both": (method, f"{method}, {second}") for method in ("infonce", "coclr")}
    return {name: streams for name, streams in pairs.items() if {*streams} <= names}


def needed(name: str, second: str, every: list[Encoder]) -> set[str]:
    "The trainings that a row takes: its own, those that it begins with, and those that mine."
    known = {e.name: e for e in every}
    left = [*both(second, every).get(name, (name,))]
    names: set[str] = set()
    while left:
        e = known.get(left.pop())
        if e and e.name not in names:
            names.add(e.name)
            left += [e.start, e.sampler]
    return names


def beside(name: str) -> str:
    "The row that a row is compared with: InfoNCE of the same view and schedule."
    if name in ONE_SCHEDULE:
        return "infonce, one schedule"
    for view in ("residual", "flow", "both"):
        if name.endswith(f", {view}"):
            return f"infonce, {view}"
    return "infonce"


def epochs_of(e: Encoder, epochs: int) -> int:
    "Of the epochs of one schedule, those of this training."
    if e.whole:
        return epochs
    return epochs - epochs // 2 if e.start else epochs // 2


def recipe_of(e: Encoder, epochs: int, seed: int, changes: dict[str, Any]) -> Recipe:
    "The settings of a method, and what all share."
    base, own = find("infonce-laptop-rgb"), find(e.recipe)
    if e.name == "labels":
        own = replace(own, method=SupervisedSettings(lr_encoder=base.learning.lr))
    augment = replace(
        base.augment,
        appearance=own.augment.appearance,
        appearance_clips=own.augment.appearance_clips,
        windows=own.augment.windows,
    )
    sampling = replace(own.sampling, length=base.sampling.length, stride=base.sampling.stride)
    learning = replace(
        base.learning,
        batch=BATCH,
        epochs=epochs_of(e, epochs),
        warmup=0.0 if e.start else 1.0,
    )
    recipe = replace(
        own,
        name=e.name.replace(", ", "-"),
        dataset="any",
        view=e.view,
        backbone=base.backbone,
        size=base.size,
        seed=seed,
        test_clips=TEST_CLIPS,
        augment=augment,
        sampling=sampling,
        learning=learning,
    )
    fields = flat_fields(recipe)
    changed = dict(e.changes) | {k: v for k, v in changes.items() if k in fields}
    return override(recipe, **changed)


# ---- motion by hand


class StoredFlowDirections(nn.Module):
    "`flow_directions` of pictures of flow in [0, 1] (B, 3, T, H, W) -> (B, 162)."

    dim = 162

    def forward(self, x: Tensor) -> Tensor:
        u, v = dequantise_flow(255 * x[:, 2]), dequantise_flow(255 * x[:, 1])
        return flow_directions(u, v)


# ---- one training


def machine_of(device: str, workers: int, dtype: Dtype = "float32", cache: int = 64) -> Machine:
    return Machine(device, dtype, progress=False, workers=workers, cache=cache)


@dataclass(frozen=True)
class Conditions:
    "What all trainings of a call share."

    data: str  # the manifest
    changes: dict[str, Any]  # fields of all recipes
    device: str
    workers: int
    dtype: Dtype = "float32"
    cache: int = 64  # MiB of decoded videos
    threads: int = 1

    def machine(self) -> Machine:
        return machine_of(self.device, self.workers, self.dtype, self.cache)


def run_of(home: Path, seed: int, name: str) -> Path:
    return home / f"seed{seed}" / folder_name(name)


def known(run: Path) -> Measurement | None:
    file = run / "measured.json"
    return read_json(file, "a measurement") if file.exists() else None


def trained(e: Encoder, epochs: int, seed: int, home: Path, c: Conditions) -> Measurement:
    "Train or go on, and measure; what is known already is read."
    run = run_of(home, seed, e.name)
    before = known(run)
    if before:
        return before

    torch.set_num_threads(c.threads)
    machine = c.machine()
    recipe = recipe_of(e, epochs, seed, c.changes)
    networks = {}
    if e.start:
        networks["encoder"] = run_of(home, seed, e.start)
    if e.sampler:
        networks["sampler"] = run_of(home, seed, e.sampler)
    pretrain(
        recipe,
        c.data,
        run,
        is_begun(run),
        machine,
        networks=networks,
    )
    card = read_json(run / "card.json", "a run")
    if not card["finished"]:
        raise TrainError(f"{run}: was stopped; the same command goes on")

    t = open_trained(run, c.data)
    query, gallery = t.pairs(t.protocol(), (t.split,), machine=machine)[t.split]
    row = measured(query, gallery, t.manifest, seed)
    row["seconds"] = card["seconds"]
    row["clips"] = recipe.sampling.clips * recipe.learning.batch * card["step"]
    write_json(run / "measured.json", row)
    return row


def joined_features(
    *pairs: tuple[Features, Features],  # query and gallery of each stream
) -> tuple[Features, Features]:
    "Cosines are added: features of length 1 beside one another."
    unit = [centre_and_normalise(query, gallery) for query, gallery in pairs]
    query, gallery = pairs[0]
    return (
        replace(query, x=torch.cat([q for q, _ in unit], 1)),
        replace(gallery, x=torch.cat([g for _, g in unit], 1)),
    )


def joined(names: tuple[str, str], seed: int, home: Path, c: Conditions) -> Measurement:
    "Two streams: cosines are added, and a probe sees both features."
    run = run_of(home, seed, f"both {names[0]}")
    before = known(run)
    if before:
        return before

    pairs = []
    for name in names:
        t = open_trained(run_of(home, seed, name), c.data)
        pairs.append(t.pairs(t.protocol(), (t.split,), machine=c.machine())[t.split])
    query, gallery = joined_features(*pairs)
    row = measured(query, gallery, t.manifest, seed) | {"seconds": 0.0, "clips": 0}
    run.mkdir(parents=True, exist_ok=True)
    write_json(run / "measured.json", row)
    return row


# ---- what is measured


def label_subset(label: list[int], share: float, seed: int) -> list[int]:
    "Positions of the first videos of each class in a drawn order, at least one, ascending."
    taken: list[int] = []
    for n, c in enumerate(sorted(set(label))):
        of_class = [i for i, d in enumerate(label) if d == c]
        order = np.random.default_rng((seed, n, 1)).permutation(len(of_class))
        count = max(1, math.floor(share * len(of_class) + 0.5))
        taken += [of_class[i] for i in order[:count]]
    return sorted(taken)


def right_by_probe(
    probe: LinearProbe, gallery: Features, query: Features, labels: list[str], seed: int
) -> list[int]:
    p = classify(linear_probe(gallery, probe, seed=seed), query, labels)
    return (p.p.argmax(1) == p.label).int().tolist()


def right_by_neighbour(query: Features, gallery: Features) -> list[int]:
    q, g = centre_and_normalise(query, gallery)
    near = nearest_neighbours(q, g, 1)[0][:, 0]
    return (gallery.label[near] == query.label).int().tolist()


def measured(query: Features, gallery: Features, manifest: Manifest, seed: int) -> Measurement:
    """Right or wrong for each test video: nearest neighbour, probe, probe with a tenth of the
    labels.
    """
    probe = PROBES["clean_probe"]
    # of so few there is nothing to choose by
    last = replace(probe, selection="last", strengths=probe.strengths[2:3])
    part = gallery.take(label_subset(gallery.label.tolist(), FEW, seed))
    labels = manifest.labels
    return {
        "row": query.row.tolist(),
        "source": query.source.tolist(),
        "r1": right_by_neighbour(query, gallery),
        "probe": right_by_probe(probe, gallery, query, labels, seed),
        "few": right_by_probe(last, part, query, labels, seed),
    }


def floor(
    manifest: Manifest,
    second: str,
    changes: dict[str, Any],
    machine: Machine,
    home: Path,
) -> dict[str, list[Measurement]]:
    "What needs no training."
    file = home / "floor.json"
    if file.exists():
        return read_json(file, "a measurement")

    recipe = recipe_of(encoders(second)[0], 2 * LEAST, 0, changes)
    protocol = encoder_protocol(encoder_metadata(recipe))

    def features(net: nn.Module, view: str, **options: Any) -> tuple[Features, Features]:
        query, gallery = (
            extract(net, manifest, part, recipe.split, view, protocol, machine=machine, **options)
            for part in ("test", "train")
        )
        return query, gallery

    def random(view: str) -> tuple[Features, Features]:
        net = create(recipe.backbone, seed=0)
        options = resolve(replace(recipe, view=view)).view_options
        return features(net, view, **options)

    colours = [histogram(manifest, p, recipe.split, machine=machine) for p in ("test", "train")]
    bare = dict(mean=(0.0,) * 3, std=(1.0,) * 3)
    pairs = {
        "colour histogram": colours,
        "motion energy": features(ChangeEnergy(), "residual", **bare),
        "random": random("rgb"),
        f"random, {second}": random(second),
    }
    if second == "flow":
        pairs["flow directions"] = features(StoredFlowDirections(), "flow", **bare)
    rows = {
        name: [measured(query, gallery, manifest, 0) | {"seconds": 0.0, "clips": 0}]
        for name, (query, gallery) in pairs.items()
    }
    write_json(file, rows)
    return rows


# ---- intervals and the table


def intervals(rows: dict[str, list[Measurement]], draws: int = 2000) -> list[dict[str, Any]]:
    """Mean over seeds with 95 % intervals; differences to InfoNCE as long, on the same drawn
    recordings; right (1) or wrong (0) of each test video, a string of digits for each seed.
    """
    first = next(iter(rows.values()))[0]
    bootstrap = Bootstrap(first["source"], draws)
    shares = {
        (name, measure): bootstrap.share([seed[measure] for seed in seeds])
        for name, seeds in rows.items()
        for measure in MEASURES
    }
    table = []
    for name, seeds in rows.items():
        against = beside(name)
        line: dict[str, Any] = {"name": name, "seeds": len(seeds)}
        line["seconds"] = float(np.mean([s["seconds"] for s in seeds]))
        line["clips"] = seeds[0]["clips"]
        is_compared = against in rows and name != against and "half" not in name and len(seeds) > 1
        for measure in MEASURES:
            mean, draw = shares[name, measure]
            line |= {measure: mean, f"{measure}_interval": middle_95(draw)}
            if is_compared:
                least, than = shares[against, measure]
                line[f"{measure}_gap"] = mean - least
                line[f"{measure}_gap_interval"] = middle_95(draw - than)
        line["right"] = {
            measure: ["".join(map(str, seed[measure])) for seed in seeds] for measure in MEASURES
        }
        table.append(line | {"against": against})
    return table


def add_helpers(table: list[dict[str, Any]], second: str, every: list[Encoder]) -> None:
    "Seconds of a row and of all trainings that it takes."
    seconds = {line["name"]: line["seconds"] for line in table}
    for line in table:
        trainings = needed(line["name"], second, every)
        line["seconds_with_helpers"] = sum(seconds[name] for name in sorted(trainings))


def percent(line: dict[str, Any], measure: str) -> str:
    "A share with its interval."
    low, high = (100 * x for x in line[f"{measure}_interval"])
    return f"{100 * line[measure]:.1f} ({low:.1f} to {high:.1f})"


def verdict(line: dict[str, Any]) -> str:
    "Of R@1, in words."
    if "r1_gap" not in line:
        return "–"
    low, high = (100 * x for x in line["r1_gap_interval"])
    word = "open"
    if low > 0:
        word = "more"
    elif high < 0:
        word = "less"
    return f"{100 * line['r1_gap']:+.1f} ({low:+.1f} to {high:+.1f}): {word}"


def as_markdown(table: list[dict[str, Any]], at_random: float) -> str:
    lines = [
        "| encoder | R@1 % | against InfoNCE as long | probe % | 10 % of the labels | clips seen "
        "| s, with helpers |",
        "| :-- | --: | :-- | --: | --: | --: | --: |",
        f"| chance | {100 * at_random:.1f} | – | | | | |",
    ]
    for line in table:
        r1, probe, few = (percent(line, measure) for measure in MEASURES)
        cells = (line["name"], r1, verdict(line), probe, few)
        cells += (f"{line['clips']:,}", f"{line['seconds_with_helpers']:.0f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


# ---- the plan


def seconds_of_a_video(
    manifest: Manifest, e: Encoder, changes: dict[str, Any], machine: Machine
) -> float:
    "In which a test video is measured."
    recipe = recipe_of(e, 2 * LEAST, 0, changes)
    encoder = create(recipe.backbone, seed=0).eval().to(machine.place())
    protocol = encoder_protocol(encoder_metadata(recipe))
    clips = TestClips(
        manifest,
        manifest.select("test", recipe.split)[:12],
        clips=protocol.clips,
        length=protocol.length,
        stride=protocol.stride,
        size=protocol.size,
    )
    views = Views(recipe.view, **resolve(recipe).view_options)
    began = time.monotonic()
    with torch.inference_mode():
        for i in range(len(clips)):
            x = views({"clips": clips[i]["clips"][None]})[recipe.view]
            encoder(x[0].to(machine.place()))
    return (time.monotonic() - began) / len(clips)


def timed(
    manifest: Manifest,
    every: list[Encoder],
    changes: dict[str, Any],
    machine: Machine,
    limit: float,  # seconds for each
) -> dict[str, Any]:
    "Seconds of a step of each recipe, and of measuring one video."
    steps = {}
    for e in every:
        recipe = recipe_of(e, 2 * LEAST, 0, changes)
        experiment = resolve(recipe, manifest, machine)
        steps[e.name] = seconds_per_step(experiment, limit)
    return {"steps": steps, "video": seconds_of_a_video(manifest, every[0], changes, machine)}


def planned(
    every: list[Encoder],
    times: dict[str, Any],  # from `timed`
    minutes: float,
    train: int,  # videos
    test: int,  # videos
    seeds: list[int],
    processes: int,
    batch: int,
) -> dict[str, Any]:
    "How many epochs fit; ValueError where not even the least fit."
    of_an_epoch = 0.0  # seconds of a step, of all trainings of a seed
    for e in every:
        of_an_epoch += times["steps"][e.name] * (1.0 if e.whole else 0.5)
    epoch = of_an_epoch * (train // batch) * len(seeds) / processes
    measuring = times["video"] * (train + test) * len(every) * len(seeds) / processes
    left = 0.9 * 60 * minutes - measuring  # a tenth for probes, starts, and for clocks that lie
    epochs = int(left / epoch)
    if epochs < 2 * LEAST:
        least = math.ceil((2 * LEAST * epoch + measuring) / 0.9 / 60)
        raise ValueError(
            f"--minutes: {minutes:.3g} are left after timing, too little for {2 * LEAST} epochs of "
            f"each method with {len(seeds)} seeds and {train} training videos; give {least} or "
            "more, or fewer --seeds"
        )
    return {
        "epochs": epochs,
        "training_minutes": round(epochs * epoch / 60, 1),
        "measuring_minutes": round(measuring / 60, 1),
        "times": times,
    }


def asked_for(a: Any, manifest: Manifest) -> dict[str, Any]:
    "What a plan is made for."
    return {
        "data": manifest.sha256,
        "second": a.second,
        "minutes": a.minutes,
        "seeds": a.seeds,
        "changes": a.changes,
        "only": a.only,
        "dtype": a.dtype,
        "epochs": a.epochs,
    }


def plan_before(file: Path, asked: dict[str, Any]) -> dict[str, Any]:
    "The plan of a folder; ValueError where it is another one's."
    plan = read_json(file, "a plan")
    others = differing(DEFAULTS | plan["asked"], asked)
    if others:
        raise ValueError(
            f"{file}: was planned with other {', '.join(others)}; name another --folder, or ask "
            "for the same"
        )
    return plan


def plan_of(a: Any, manifest: Manifest, machine: Machine, processes: int) -> dict[str, Any]:
    "The plan of the folder, made where there is none; ValueError where it is another one's."
    file = a.folder / "plan.json"
    asked = asked_for(a, manifest)
    every = chosen(a.second, a.only)
    if file.exists():
        return plan_before(file, asked)

    began = time.monotonic()
    batch = recipe_of(every[0], 2 * LEAST, 0, a.changes).learning.batch
    plan = {
        "train": len(manifest.select("train")),
        "test": len(manifest.select("test")),
        "seeds": a.seeds,
        "trainings": len(every) * len(a.seeds),
        "epochs": a.epochs,
    }
    if plan["train"] < batch:
        raise ManifestError(
            f"{manifest.path}: has {plan['train']} training videos, and a batch is {batch}"
        )
    if a.epochs is None:
        limit = min(8.0, 60 * a.minutes / 200)
        times = timed(manifest, every, a.changes, machine, limit)
        left = a.minutes - (time.monotonic() - began) / 60
        videos = plan["train"], plan["test"]
        plan |= planned(every, times, left, *videos, a.seeds, processes, batch)
    plan |= {"asked": asked, "begun": time.strftime("%Y-%m-%d %H:%M")}
    if not a.dry_run:
        write_json(file, plan)
    return plan


# ---- all of it


def tasks_of(a: Any, plan: dict[str, Any], c: Conditions) -> dict[tuple[str, int], Task]:
    "A training for each encoder and seed, and two streams where both are there."
    every = chosen(a.second, a.only)
    tasks: dict[tuple[str, int], Task] = {}
    for seed in a.seeds:
        for e in every:
            after = tuple((name, seed) for name in (e.start, e.sampler) if name)
            arguments = (e, plan["epochs"], seed, a.folder, c)
            tasks[e.name, seed] = Task(trained, arguments, after)
        for name, streams in both(a.second, every).items():
            after = tuple((stream, seed) for stream in streams)
            tasks[name, seed] = Task(joined, (streams, seed, a.folder, c), after)
    return tasks


def check_options(a: Any) -> None:
    "ValueError where they cannot be."
    is_few = a.processes is not None and a.processes < 1
    if a.minutes <= 0 or len({*a.seeds}) != len(a.seeds) or is_few or a.workers < 0:
        raise ValueError(
            "--minutes and --processes are above 0, --workers 0 or more, and each of --seeds is "
            "named once"
        )
    if a.epochs is not None and a.epochs < 2 * LEAST:
        raise ValueError(f"--epochs {a.epochs}: give {2 * LEAST} or more")


def print_plan(plan: dict[str, Any], processes: int) -> None:
    line = (
        f"{plan['trainings']} trainings of {plan['epochs'] // 2} or {plan['epochs']} epochs on "
        f"{plan['train']:,} videos, {plan['test']:,} test videos"
    )
    if "times" in plan:
        line += (
            f": {plan['training_minutes']} minutes of training and {plan['measuring_minutes']} of "
            "measuring"
        )
    print(f"{line}; {processes} at a time", flush=True)


def run(
    a: Any,  # the command line
) -> str:  # markdown
    keep_memory()
    check_options(a)
    manifest = open_data(a.data)
    gpu = Machine(a.device).place().type == "cuda"
    processes = a.processes or (1 if gpu else 2)
    torch.set_num_threads(1 if processes > 1 else max(os.cpu_count() or 1, 1))
    # side by side on a CPU they decode for themselves
    workers = a.workers if gpu or processes == 1 else 0
    threads = torch.get_num_threads()
    c = Conditions(a.data, a.changes, a.device, workers, a.dtype, a.cache, threads)
    plan = plan_of(a, manifest, c.machine(), processes)
    print_plan(plan, processes)
    if a.dry_run:
        return ""

    stamp = Stamp(__file__, plan["asked"], "cuda" if gpu else "cpu")
    rows = floor(manifest, a.second, a.changes, c.machine(), a.folder)
    tasks = tasks_of(a, plan, c)
    runs = [run_of(a.folder, s, e.name) for s in a.seeds for e in chosen(a.second, a.only)]
    began = time.monotonic()

    def line(task, row):
        name, seed = task
        minutes = (time.monotonic() - began) / 60
        return f"{minutes:6.1f} min  {name}, seed {seed}: R@1 {np.mean(row['r1']):.1%}"

    look = measurement.announcer(line)
    done = at_once(tasks, processes, runs, progress=False, look=look)
    for name, _ in tasks:
        rows[name] = [done[name, seed] for seed in a.seeds]
    return keep(a, plan, rows, manifest, stamp)


def keep(
    a: Any,  # the command line
    plan: dict[str, Any],
    rows: dict[str, list[Measurement]],
    manifest: Manifest,
    stamp: Stamp,
) -> str:  # the table
    table = intervals(rows)
    add_helpers(table, a.second, chosen(a.second, a.only))
    query, gallery = (
        torch.tensor([manifest.label_id(row) for row in manifest.select(part)])
        for part in ("test", "train")
    )
    at_random = chance(query, gallery, [1])[1]
    text = as_markdown(table, at_random)
    (a.folder / "table.md").write_text(text + "\n", encoding="utf-8")
    first = encoders(a.second)[0]
    shared = recipe_of(first, plan["epochs"], a.seeds[0], a.changes)
    head = stamp.head()
    results = {
        "plan": plan,
        "classes": len(manifest.labels),
        "chance": at_random,
        "last_call_seconds": round(head["seconds"]),
        "shared": {first.name: flat_fields(shared)},
        "source": next(iter(rows.values()))[0]["source"],  # recording of each test video
        "rows": table,
    }
    write_results(a.out, head | results)
    return text


def main() -> None:
    p = measurement.parser(__doc__)
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


if __name__ == "__main__":
    main()
