"""One training of the one experiment, and what is measured of it, in whatever process it is."""

import hashlib
import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from experiment_outcomes import (
    PARTS,
    Outcomes,
    classes_of,
    metrics,
    metrics_by_chance,
    outcomes_of,
    places_of,
    rank_of,
)
from experiment_rows import WORLDS, Training
from run_folders import by_epoch, is_begun, is_finished, mean_logged, steps_of
from stamps import imported_modules
from torch import Tensor, nn
from torch.nn import functional as F

from vssl_nb.config import Recipe
from vssl_nb.data import toy
from vssl_nb.data.dataset import VideoCache
from vssl_nb.data.manifest import Manifest, read
from vssl_nb.measure.conflicts import conflict_parts
from vssl_nb.measure.features import Features, extract
from vssl_nb.measure.retrieval import centre_and_normalise, histogram
from vssl_nb.methods.recipes import from_dict, to_dict
from vssl_nb.nets.backbones import create
from vssl_nb.runs.evaluation import EvaluatedEncoder, open_trained, untrained_encoder
from vssl_nb.runs.experiment import BlankVideos, resolve
from vssl_nb.runs.pretraining import export_run, pretrain, run_card, write_run_files
from vssl_nb.training.checkpoints import save
from vssl_nb.training.loop import TrainingState
from vssl_nb.training.machine import Machine, keep_memory
from vssl_nb.training.run_folder import write_json

CACHE = 2**31  # bytes of decoded videos


class Diverged(RuntimeError):
    "A training whose loss is no number any more, or an encoder whose features are none."


class NotFinished(RuntimeError):
    "A training that was stopped; the same command goes on with it."


def digest_of(recipe: Recipe) -> str:  # 12 hexadecimal digits
    "Of all that decides a training but the words for people."
    data = {k: v for k, v in to_dict(recipe).items() if k not in ("name", "about", "reasons")}
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Task:
    "What a process is given: a training, or what is measured without one."

    training: Training
    seed: int
    size: str  # of the toy
    kind: str  # of the row
    recipe: dict[str, Any]  # from `to_dict`
    views: tuple[str, ...]  # to measure on
    home: Path  # folder of the world and seed
    # network -> folder of its run; of `streams`: the two runs
    networks: Mapping[str, Path] = field(default_factory=dict)
    save_minutes: float = 2.0
    untrained: tuple[dict[str, Any], ...] = ()  # recipes of random networks among them, to be made

    @property
    def folder(self) -> Path:
        "Of the run: another recipe has another one."
        return folder_of(self.home, from_dict(self.recipe))


def folder_of(
    home: Path,  # of the world and seed
    recipe: Recipe,
) -> Path:
    return home / f"{recipe.name}-{digest_of(recipe)}"


# ---- the videos of a seed


@dataclass(frozen=True)
class SeedVideos:
    "The videos of a world and seed, decoded once for all its trainings."

    manifest: Manifest
    conflicts: Manifest  # the same and the queries
    cache: VideoCache
    conflict_cache: VideoCache


@lru_cache(maxsize=1)
def videos_of(
    size: str,
    world: str,
    seed: int,
    home: Path,
) -> SeedVideos:
    "Written where they are not there yet; those of the last seed are kept in memory."
    folder = home / "toy"
    manifest = read(toy.make(folder, size, seed, workers=1, progress=False, **WORLDS[world]))
    conflicts = read(toy.make_conflict(folder, 1, progress=False))
    names = [row.video for row in manifest.rows]
    assert [row.video for row in conflicts.rows][: len(names)] == names
    cache, conflict_cache = VideoCache(manifest, CACHE), VideoCache(conflicts, CACHE)
    # the first rows of both are the same: they are decoded once
    conflict_cache.kept = cache.kept
    return SeedVideos(manifest, conflicts, cache, conflict_cache)


# ---- currencies


class Counter:
    "Counts the clips that go through the networks of a method."

    def __init__(self, method: nn.Module, kind: type[nn.Module]):
        self.forward = self.gradient = 0
        for module in method.modules():
            if type(module) is kind:
                module.register_forward_pre_hook(self.count)

    def count(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        clips = len(inputs[0])
        learns = any(p.requires_grad for p in module.parameters())
        self.forward += clips
        self.gradient += clips * (torch.is_grad_enabled() and learns)


@lru_cache(maxsize=64)
def _clips_of_a_step(text: str) -> dict[str, int]:
    recipe = from_dict(json.loads(text))
    experiment = resolve(recipe, BlankVideos(8 * recipe.learning.batch, 8), Machine("cpu"))
    method = experiment.method.train()
    network = create(recipe.backbone)
    # a masked method calls a part of its transformer, which begins with the layer of tubelets
    counter = Counter(method, type(getattr(network, "tubelets", network)))
    batch = experiment.views(next(iter(experiment.batches)))
    drawn = recipe.learning.batch * recipe.sampling.clips
    method(batch | {"step": 1, "part": 0, "epoch": 0, "progress": 0.5})
    return {"drawn": drawn, "forward": counter.forward, "gradient": counter.gradient}


def clips_of_a_step(
    recipe: Recipe,
) -> dict[str, int]:  # drawn, forward, gradient
    "Clips of one step, counted in the middle of a training on blank clips."
    return _clips_of_a_step(json.dumps(to_dict(recipe)))


def currencies(
    recipe: Recipe,
    steps: int,
    cpu_seconds: float,
) -> dict[str, Any]:
    "What a training has taken."
    clips = {name: n * steps for name, n in clips_of_a_step(recipe).items()}
    return {"steps": steps, **clips, "cpu_seconds": round(cpu_seconds, 1)}


# ---- training


def make_untrained(
    recipe: Recipe,
    folder: Path,
    videos: SeedVideos,
) -> None:
    "A finished run of random networks, for those that are mined by one."
    if is_finished(folder):
        return
    experiment = resolve(recipe, videos.manifest, Machine("cpu", cache=videos.cache))
    run = TrainingState(experiment.method, experiment.optimizer)
    folder.mkdir(parents=True, exist_ok=True)
    card = run_card(experiment, folder) | {"step": 0, "seconds": 0.0}
    write_run_files(folder, to_dict(recipe), card | {"finished": False})
    save(folder / "last.pt", run.state() | {"recipe": to_dict(recipe)})
    export_run(experiment, folder, 0)
    write_json(folder / "card.json", card | {"finished": True})


def train(
    task: Task,
    recipe: Recipe,
    videos: SeedVideos,
) -> dict[str, Any]:  # its currencies
    "A training, from where it stands. `NotFinished`."
    folder = task.folder
    timing = folder / "processor.json"
    if not is_finished(folder) or not timing.exists():
        card = _card(folder)
        before, began = card.get("step", 0), time.process_time()
        machine = Machine("cpu", cache=videos.cache, progress=False, save_minutes=task.save_minutes)
        if not is_finished(folder):
            pretrain(
                recipe,
                task.home / "toy",
                folder,
                is_begun(folder),
                machine,
                networks=dict(task.networks),
            )
        seconds = time.process_time() - began
        card = _card(folder)
        if not card.get("finished"):
            raise NotFinished(f"{folder}: was stopped; the same command goes on")
        whole = before == 0
        if not whole:
            seconds *= card["step"] / max(card["step"] - before, 1)
        write_json(timing, {"seconds": seconds, "whole": whole})
    steps = _card(folder)["step"]
    return currencies(recipe, steps, json.loads(timing.read_text())["seconds"])


def _card(folder: Path) -> dict[str, Any]:
    file = folder / "card.json"
    return json.loads(file.read_text()) if file.exists() else {}


# ---- measuring


def features_of(
    t: EvaluatedEncoder,
    view: str,
    videos: SeedVideos,
) -> dict[str, Features]:
    machine = Machine("cpu", cache=videos.conflict_cache, progress=False)
    every = extract(
        t.encoder, videos.conflicts, "all", 1, view, t.protocol(), machine=machine, **t.views
    )
    return conflict_parts(every, videos.manifest, videos.conflicts)


def joined(
    first: dict[str, Features],
    second: dict[str, Features],
) -> dict[str, Features]:
    "The sum of the cosines of two streams: both of length 1, side by side."
    parts = {}
    for part in PARTS:
        query, gallery = [], []
        for stream in (first, second):
            q, g = centre_and_normalise(stream[part], stream["train"])
            query.append(q)
            gallery.append(g)
        parts[part] = F.normalize(torch.cat(query, 1), dim=1), torch.cat(gallery, 1)
    protocol = replace(first["train"].protocol, centre="none")

    def like(features: Features, x: Tensor) -> Features:
        return replace(features, x=x, protocol=protocol)

    made = {part: like(first[part], parts[part][0]) for part in PARTS}
    return made | {"train": like(first["train"], parts["test"][1])}


def mined_of(folder: Path) -> list[float] | None:  # in the first and in the last epoch
    "The share of mined keys that are right."
    if not (folder / "steps.csv").exists():
        return None
    steps = steps_of(folder)
    if not steps or "mined" not in steps[0]:
        return None
    epochs = by_epoch(steps)
    means = [mean_logged(epoch, "mined") for epoch in epochs]
    known = [m for m in means if m is not None]
    return [known[0], known[-1]] if known else None


def measured(
    task: Task,
    view: str,
    features: dict[str, Features],
) -> tuple[dict[str, Any], Outcomes]:
    "The shares of one view, and what they are computed from."
    places = places_of(task.size, task.training.world, task.seed)
    names = classes_of(places)[features["test"].label.numpy()]
    assert names.tolist() == places.test_label.tolist(), "the plan of the toy has another order"
    outcomes = outcomes_of(features, places)
    shares = metrics(outcomes, places) | {"rank": rank_of(features["train"])}
    return {"view": view} | shares, outcomes


def untrained_features(
    task: Task,
    recipe: Recipe,
    view: str,
    videos: SeedVideos,
) -> dict[str, Features]:
    if task.kind == "histogram":
        colours = histogram(videos.conflicts, "all", machine=Machine(progress=False))
        return conflict_parts(colours, videos.manifest, videos.conflicts)
    return features_of(untrained_encoder(recipe, videos.manifest), view, videos)


def perform(
    task: Task,
) -> dict[str, Any]:  # records: of each view; outcomes; modules
    "Train, measure, and say with which code. `Diverged`."
    try:
        return _perform(task)
    except ValueError as e:
        if any(words in str(e) for words in ("stopped being a number", "NaN or infinity")):
            raise Diverged(str(e)) from None
        raise


def _perform(task: Task) -> dict[str, Any]:
    recipe = from_dict(task.recipe)
    identity = asdict(task.training) | {"seed": task.seed, "recipe": digest_of(recipe)}
    if task.kind == "chance":
        places = places_of(task.size, task.training.world, task.seed)
        records = [identity | metrics_by_chance(places)]
        return {"records": records, "outcomes": [{}], "modules": imported_modules()}

    videos = videos_of(task.size, task.training.world, task.seed, task.home)
    shared: dict[str, Any] = {}
    if task.kind == "training":
        for other in map(from_dict, task.untrained):
            make_untrained(other, folder_of(task.home, other), videos)
        shared = train(task, recipe, videos) | {
            "lr": recipe.learning.lr,
            "mined": mined_of(task.folder),
        }
    records, outcomes = [], []
    for view in task.views:
        if task.kind == "training":
            features = features_of(open_trained(task.folder), view, videos)
        elif task.kind == "streams":
            runs = [open_trained(folder) for folder in task.networks.values()]
            features = joined(*(features_of(t, t.view, videos) for t in runs))
        else:
            features = untrained_features(task, recipe, view, videos)
        shares, kept = measured(task, view, features)
        records.append(identity | shared | shares)
        outcomes.append(kept)
    return {"records": records, "outcomes": outcomes, "modules": imported_modules()}


# ---- a process of its own


def begin() -> None:
    "What a process that trains does first."
    torch.set_num_threads(1)
    keep_memory()


def begin_below(parent: int) -> None:
    "The same in a process of its own, which ends with the one that started it."
    begin()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
