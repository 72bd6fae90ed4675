"""What to do with 60, 250 or some hundred clips of one's own: which encoder is worth its minutes?

    python benchmarks/own_clips.py --data JHMDB --given UCF101 --out results/own-clips-cpu.json

Written down before the first run. The clips: JHMDB, split 1 (21 actions of half a second to 1.3 s;
its 217 test clips of 88 recordings stay the same), of whose 491 training clips 60, 250 and all are
there, nested, whole recordings, the classes in turn. Who has them trains InfoNCE (with the queue
that `own-videos` would choose), SimCLR or LeJEPA on frames, from random weights or from a *given*
encoder: SimCLR, trained on nine classes of UCF101 for twice as many steps. All trainings have the
same backbone (`small`, 48 px, 8 frames, one in 2), projection, augmentation, optimizer (Adam,
1e-3), batch and precision (forward passes in bfloat16), and see about as many clips, two of each of
200 x 30 videos (192 x 30 where there are 491 clips). No setting was chosen on these clips.

Beside them stand what needs no training: chance, a colour histogram, motion by hand (energy of
differences in 4 x 4 places and 8 times, and flow directions in 3 x 3 places and two halves, DIS at
96 px; their cosines are added), both together, random weights, and the given encoder as it is.

Measured: R@1 of the test clips among the clips that there are (protocol `clean`), and a linear
probe on them (its strength chosen on held-out recordings where each class has two, else the middle
one, 1e-4). Intervals of 95 %: a bootstrap of the test recordings, and of the seeds where there are
several. What is compared with the histogram and with motion by hand is the difference on the same
draws. Advice, by a rule: what is above both with the interval of its difference; where nothing is,
the better of the two.

Seed 0 of all cells comes first (250 clips, all, 60), then seeds 1 and 2 of 250 clips. Results are
written after each training; one that was killed begins anew, so that its processor time is whole.
The time of a row is that of its training and of measuring it; the given encoder's is a row of its
own.

Added when the rows of 250 clips and InfoNCE's of all clips were known, and before the first run
of its own: is a minute too little? With all clips and the same given encoder every training
again with three times as many steps (`--longer`), in front of the further seeds. They are rows
of their own, under the same rule. Added when all rows above were known, and before the first run
of their own: BYOL and SimSiam (the momentum of BYOL's target is 0), with all clips and from
random weights, last."""

import itertools
import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import measurement
import numpy as np
import torch
from evidence import (
    joined_features,
    right_by_neighbour,
    right_by_probe,
)
from intervals import Bootstrap, middle_95
from result_files import Stamp, rule, write_results
from torch import Tensor, nn

from vssl_nb.data.manifest import Manifest, ManifestError, open_data, write
from vssl_nb.measure.classify import PROBES, LinearProbe
from vssl_nb.measure.features import Features, encoder_protocol, extract
from vssl_nb.measure.motion_descriptors import ChangeEnergy, FlowDirections
from vssl_nb.measure.retrieval import chance, histogram
from vssl_nb.methods.recipes.lejepa import LeJEPASettings
from vssl_nb.config import Recipe
from vssl_nb.methods.recipes import find, flat_fields, override
from vssl_nb.nets.backbones import create
from vssl_nb.runs.evaluation import open_trained
from vssl_nb.runs.experiment import encoder_metadata
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.training.run_folder import read_json, write_json
from vssl_nb.training.machine import Machine, keep_memory

SIZES = (250, 0, 60)  # 0: all clips
STEPS, BATCH = 200, 30
METHODS = ("InfoNCE", "SimCLR", "LeJEPA")
BESIDE = ("BYOL", "SimSiam")  # with all clips, from random weights
RANDOM, GIVEN = "random weights", "given encoder"
HISTOGRAM, MOTION = "colour histogram", "motion by hand"
MEASURES = ("r1", "probe")
QUEUE_FROM = 128  # clips from which on `runs.own` takes a queue

Measurement = dict[str, Any]  # right or wrong for each test clip
Rows = dict[str, list[Measurement]]  # name -> its seeds


def settings_of_method(method: str, videos: int, steps: int) -> Any:
    "Of the method; what it shares with the others comes from elsewhere."
    byol = find("byol-toy").method
    if method == "BYOL":
        return byol
    if method == "SimSiam":
        return replace(byol, momentum=0.0)
    if method == "SimCLR":
        return find("simclr-toy-rgb").method
    if method == "LeJEPA":
        # no local clips: Algorithm 2 has none for convolutions; the projection of the other two
        return LeJEPASettings(
            slices=256, local_clips=0, head="projection", dim=128, dim_hidden=None
        )
    queue = videos // 2 // BATCH * BATCH if videos >= QUEUE_FROM else 0  # as `runs.own` has it
    infonce = find("infonce-laptop-rgb").method
    return replace(infonce, queue=queue, momentum=max(0.9, 1 - 10 / steps))


def recipe_of(
    method: str,
    videos: int,  # to train on
    steps: int,
    seed: int,
    changes: dict[str, Any],
) -> Recipe:
    "The settings of a method, and what all share."
    base = find("infonce-laptop-rgb")
    batch = min(BATCH, videos)
    epochs = max(1, round(steps / (videos // batch)))
    recipe = override(
        replace(base, method=settings_of_method(method, videos, steps)),
        name=method.lower(),
        size=48,
        length=8,
        stride=2,
        batch=batch,
        epochs=epochs,
        warmup=epochs / 20,
        test_clips=3,
        seed=seed,
    )
    fields = flat_fields(recipe)
    return override(recipe, **{k: v for k, v in changes.items() if k in fields})


# ---- how many clips there are


def nested(manifest: Manifest, split: int = 1) -> list[int]:
    "Training rows in the order in which they are there: whole recordings, one class after another."
    classes: dict[str, dict[str, list[int]]] = {}
    for i in manifest.select("train", split):
        row = manifest.rows[i]
        classes.setdefault(row.label, {}).setdefault(row.source, []).append(i)

    rng = np.random.default_rng(0)
    queues = []
    for label in sorted(classes):
        recordings = classes[label]
        queues.append([recordings[source] for source in rng.permutation(sorted(recordings))])
    rows = []
    for turn in itertools.zip_longest(*queues, fillvalue=[]):
        for recording in turn:
            rows += recording
    return rows


def part_of(
    manifest: Manifest,
    clips: int,  # the first so many training clips; 0: all
    home: Path,
) -> Path:
    "A folder with a part of the training clips, and the test clips."
    folder = home / f"clips-{clips or 'all'}"
    if (folder / "manifest.csv").exists():
        return folder
    there = nested(manifest)
    if clips > len(there):
        raise ManifestError(
            f"{manifest.path}: has {len(there)} training clips in split 1, and {clips} were "
            "asked for; ask for fewer, or for 0, which is all"
        )
    kept = {*there[: clips or None], *manifest.select("test", 1)}
    folder.mkdir(parents=True, exist_ok=True)
    for file in manifest.root.iterdir():
        link = folder / file.name
        if file.is_dir() and not link.exists():
            link.symlink_to(file.resolve())
    write(folder / "manifest.csv", [row for i, row in enumerate(manifest.rows) if i in kept])
    return folder


@dataclass(frozen=True)
class Part:
    "A number of clips that somebody may have."

    manifest: Manifest
    clips: int  # to train on

    def labels(self, part: str) -> Tensor:  # (N,)
        m = self.manifest
        return torch.tensor([m.label_id(row) for row in m.select(part, 1)])

    def recordings(self, part: str) -> int:
        m = self.manifest
        return len({m.rows[row].source for row in m.select(part, 1)})


# ---- what is measured


def probe_of(gallery: Features) -> LinearProbe:
    "Where some class has one recording only, there is nothing to choose a strength by."
    recordings = Counter(c for c, _ in {*zip(gallery.label.tolist(), gallery.source.tolist())})
    probe = PROBES["clean_probe"]
    if min(recordings.values()) < 2:
        probe = replace(probe, selection="last", strengths=(1e-4,))
    return probe


def measured(query: Features, gallery: Features, labels: list[str], seed: int) -> Measurement:
    "Right or wrong for each test clip: nearest neighbour, and linear probe."
    return {
        "row": query.row.tolist(),
        "source": query.source.tolist(),
        "r1": right_by_neighbour(query, gallery),
        "probe": right_by_probe(probe_of(gallery), gallery, query, labels, seed),
    }


class Untrained:
    "Features that need no training of one's own, and the seconds that they take."

    def __init__(self, manifest: Manifest, recipe: Recipe, machine: Machine):
        self.manifest, self.recipe, self.machine = manifest, recipe, machine
        self.pairs: dict[str, tuple[Features, Features]] = {}
        self.seconds: dict[str, float] = {}

    def add(
        self,
        name: str,
        features: Callable[[str], Features],  # of 'test' and of 'train'
    ) -> None:
        began = time.process_time()
        self.pairs[name] = features("test"), features("train")
        self.seconds[name] = time.process_time() - began

    def add_encoder(
        self, name: str, net: nn.Module, view: str = "rgb", side: int | None = None, **options: Any
    ) -> None:
        protocol = encoder_protocol(encoder_metadata(self.recipe))
        if side:
            protocol = replace(protocol, size=side)

        def features(part: str) -> Features:
            return extract(
                net,
                self.manifest,
                part,
                self.recipe.split,
                view,
                protocol,
                machine=self.machine,
                **options,
            )

        self.add(name, features)

    def add_joined(self, name: str, one: str, other: str) -> None:
        "Cosines are added."
        self.pairs[name] = joined_features(self.pairs[one], self.pairs[other])
        self.seconds[name] = self.seconds[one] + self.seconds[other]

    def row(self, name: str) -> Measurement:
        query, gallery = self.pairs[name]
        began = time.process_time()
        row = measured(query, gallery, self.manifest.labels, 0)
        row |= {"videos_seen": 0, "steps": 0, "train_seconds": 0.0}
        row["seconds"] = time.process_time() - began + self.seconds[name]
        return row


def untrained_rows(
    manifest: Manifest,
    recipe: Recipe,
    given: Path,  # a run
    machine: Machine,
    side: int,  # px of the pictures that flow is computed on
) -> dict[str, Measurement]:
    "What needs no training of one's own."
    u = Untrained(manifest, recipe, machine)
    bare: dict[str, Any] = dict(mean=(0.0,) * 3, std=(1.0,) * 3)
    u.add(HISTOGRAM, lambda part: histogram(manifest, part, recipe.split, machine=machine))
    u.add_encoder("energy", ChangeEnergy(), "residual", **bare)
    u.add_encoder("directions", FlowDirections(), side=side, **bare)
    u.add_encoder(RANDOM, create(recipe.backbone, seed=0))
    u.add_encoder(GIVEN, open_trained(given).encoder)
    u.add_joined(MOTION, "energy", "directions")
    both = f"{HISTOGRAM} and {MOTION}"
    u.add_joined(both, HISTOGRAM, MOTION)
    return {name: u.row(name) for name in (HISTOGRAM, RANDOM, GIVEN, MOTION, both)}


def trained(
    data: Path,
    run: Path,  # its folder
    recipe: Recipe,
    machine: Machine,
    start: Path | None = None,  # run whose encoder it begins with
) -> Measurement:
    "Train, and measure; what is known already is read."
    file = run / "measured.json"
    if file.exists():
        return read_json(file, "a measurement")
    if run.exists():
        shutil.rmtree(run)  # killed: its time would not be whole

    networks = {"encoder": start} if start else {}
    began = time.process_time()
    pretrain(recipe, data, run, machine=machine, networks=networks)
    seconds = time.process_time() - began
    card = read_json(run / "card.json", "a run")
    t = open_trained(run, data)
    query, gallery = t.pairs(t.protocol(), (t.split,), machine=machine)[t.split]
    row = measured(query, gallery, t.manifest.labels, recipe.seed)
    row |= {
        "steps": card["step"],
        "videos_seen": card["step"] * recipe.learning.batch,
        "train_seconds": seconds,
        "seconds": time.process_time() - began,
    }
    write_json(file, row)
    return row


# ---- intervals and advice


def intervals(rows: Rows, draws: int = 4000) -> list[dict[str, Any]]:
    """Mean over the seeds of each name, and differences to what is by hand, on the same drawn
    recordings.
    """
    bootstrap = Bootstrap(rows[HISTOGRAM][0]["source"], draws)
    shares = {
        (name, measure): bootstrap.share([seed[measure] for seed in rows[name]])
        for name, measure in itertools.product(rows, MEASURES)
    }
    table = []
    for name, seeds in rows.items():
        line: dict[str, Any] = {"name": name, "seeds": len(seeds)}
        for column in ("steps", "videos_seen", "train_seconds", "seconds"):
            line[column] = float(np.mean([seed[column] for seed in seeds]))
        above: dict[str, dict[str, Any]] = {}
        for measure in MEASURES:
            mean, draw = shares[name, measure]
            line |= {measure: mean, f"{measure}_interval": middle_95(draw)}
            for other in (HISTOGRAM, MOTION):
                if name == other:
                    continue
                least, than = shares[other, measure]
                gap = {measure: mean - least, f"{measure}_interval": middle_95(draw - than)}
                above.setdefault(other, {}).update(gap)
        table.append(line | {"above": above})
    return table


def is_above_both(line: dict[str, Any], measure: str) -> bool:
    "Is it above the histogram and above motion by hand, with the whole interval?"
    above = line["above"]
    if above.keys() != {HISTOGRAM, MOTION}:
        return False
    return all(gap[f"{measure}_interval"][0] > 0 for gap in above.values())


def advice(table: list[dict[str, Any]], measure: str = "r1") -> list[str]:
    """Names that are above both of what is by hand, best first; where none is, the better of the
    two.
    """
    best_first = sorted(table, key=lambda line: -line[measure])
    sure = [line["name"] for line in best_first if is_above_both(line, measure)]
    by_hand = [line["name"] for line in best_first if line["name"] in (HISTOGRAM, MOTION)]
    return sure or by_hand[:1]


# ---- the experiment


@dataclass(frozen=True)
class Cell:
    "A training."

    clips: int  # as asked for; 0: all
    method: str
    start: str
    seed: int = 0
    times: int = 1  # the steps

    @property
    def name(self) -> str:
        "Of its row."
        name = f"{self.method}, {self.start}"
        return name if self.times == 1 else f"{name}, {self.times} times the steps"

    def folder(self, clips: int) -> str:
        name = f"{self.method}-{clips}-{self.start.split()[0]}-{self.seed}"
        return name if self.times == 1 else f"{name}-{self.times}"


def cells_of(
    clips: list[int],  # as asked for
    whole: int,  # the one of them that has most
    seeds: int,  # of the first
    longer: int,  # times the steps
) -> list[Cell]:
    "In the order in which they are trained."
    ours = list(itertools.product(METHODS, (RANDOM, GIVEN)))
    cells = [Cell(n, method, start) for n in clips for method, start in ours]
    if longer > 1:
        cells += [Cell(whole, method, start, times=longer) for method, start in ours]
    for seed in range(1, seeds):
        cells += [Cell(clips[0], method, start, seed) for method, start in ours]
    return cells + [Cell(whole, method, RANDOM) for method in BESIDE]


class OwnClips:
    "The experiment, from where its folder stands."

    def __init__(self, a: Any):
        self.a = a
        self.machine = Machine("cpu", dtype="bfloat16", progress=False, cache=1500)
        manifest, self.other = open_data(a.data), open_data(a.given)
        self.plan = self.plan_of(manifest)
        self.data = {n: part_of(manifest, n, a.folder) for n in a.clips}
        self.parts = {}
        for n, folder in self.data.items():
            m = open_data(folder)
            self.parts[n] = Part(m, len(m.select("train", 1)))
        self.whole = max(self.parts, key=lambda n: self.parts[n].clips)
        before = read_json(a.out, "results") if a.out.exists() else {}
        # what was added later keeps the commit that had it before its runs
        self.rules = {
            name: before.get(name, {}).get("rule") or rule(__file__)
            for name in ("longer", "beside")
        }
        self.given = a.folder / "given"
        self.source: Measurement = {}  # of the given encoder
        self.rows: dict[int, Rows] = {}

    def plan_of(self, manifest: Manifest) -> dict[str, Any]:
        "The plan of the folder; ValueError where it is another one's."
        a, file = self.a, self.a.folder / "plan.json"
        asked = {
            "data": manifest.sha256,
            "given": self.other.sha256,
            "clips": a.clips,
            "steps": a.steps,
            "side": a.side,
            "changes": a.changes,
        }
        self.stamp = Stamp(__file__, asked)
        if not file.exists():
            plan = {"asked": asked, "rule": rule(__file__)}
            plan |= {k: self.stamp.fields[k] for k in ("date", "machine")}
            write_json(file, plan)
            return plan
        plan = read_json(file, "a plan")
        if plan["asked"] != asked:
            raise ValueError(
                f"{file}: was planned with other settings; name another --folder, or ask for the "
                "same"
            )
        return plan

    def recipe(self, method: str, n: int, seed: int = 0, times: int = 1) -> Recipe:
        a = self.a
        return recipe_of(method, self.parts[n].clips, times * a.steps, seed, a.changes)

    def given_recipe(self) -> Recipe:
        videos = len(self.other.select("train", 1))
        return recipe_of("SimCLR", videos, 2 * self.a.steps, 0, self.a.changes)

    def untrained(self, n: int) -> Rows:
        part = self.parts[n]
        file = self.a.folder / f"untrained-{part.clips}.json"
        if not file.exists():
            recipe = self.recipe("SimCLR", n)
            rows = untrained_rows(part.manifest, recipe, self.given, self.machine, self.a.side)
            write_json(file, rows)
        return {name: [row] for name, row in read_json(file, "a measurement").items()}

    def train(self, cell: Cell) -> None:
        "The row of a training."
        part = self.parts[cell.clips]
        recipe = self.recipe(cell.method, cell.clips, cell.seed, cell.times)
        run = self.a.folder / cell.folder(part.clips)
        start = self.given if cell.start == GIVEN else None
        row = trained(self.data[cell.clips], run, recipe, self.machine, start)
        self.rows[cell.clips].setdefault(cell.name, []).append(row)
        r1, probe = (f"{np.mean(row[measure]):.1%}" for measure in MEASURES)
        print(
            f"{time.strftime('%H:%M')} {part.clips} clips, {cell.name}, seed {cell.seed}: "
            f"R@1 {r1}, probe {probe}, {row['seconds']:.0f} s",
            flush=True,
        )

    def of_size(self, n: int) -> dict[str, Any]:
        "What is known for a number of clips."
        part = self.parts[n]
        query, gallery = part.labels("test"), part.labels("train")
        table = intervals(self.rows[n])
        return {
            "clips": part.clips,
            "test": len(query),
            "recordings": {name: part.recordings(name) for name in ("train", "test")},
            "chance": chance(query, gallery, [1])[1],
            "rows": table,
            "advice": {measure: advice(table, measure) for measure in MEASURES},
        }

    def keep(self) -> None:
        a = self.a
        columns = ("steps", "videos_seen", "train_seconds", "seconds")
        given = {k: self.source[k] for k in columns}
        given["clips"] = len(self.other.select("train", 1))
        names = METHODS + BESIDE
        results = {
            "longer": {"times": a.longer, "rule": self.rules["longer"]},
            "beside": {"rule": self.rules["beside"]},
            "given": given,
            "recipes": {name: flat_fields(self.recipe(name, a.clips[0])) for name in names},
            "sizes": [self.of_size(n) for n in sorted(self.parts, key=self.clips_of)],
        }
        # date and machine are those of the plan
        write_results(a.out, self.stamp.head() | self.plan | results)

    def clips_of(self, n: int) -> int:
        return self.parts[n].clips

    def all(self) -> None:
        a = self.a
        self.source = trained(a.given, self.given, self.given_recipe(), self.machine)
        self.rows = {n: self.untrained(n) for n in a.clips}
        self.keep()
        for cell in cells_of(a.clips, self.whole, a.seeds, a.longer):
            self.train(cell)
            self.keep()


def main() -> None:
    p = measurement.parser(__doc__)
    p.add_argument(
        "--data", type=Path, required=True, help="clips with labels and a split: a manifest"
    )
    p.add_argument(
        "--given", type=Path, required=True, help="other clips, for the given encoder: a manifest"
    )
    p.add_argument(
        "--clips", type=int, nargs="+", default=[*SIZES], help="how many there are; 0: all"
    )
    p.add_argument("--steps", type=int, default=STEPS)
    p.add_argument(
        "--side", type=int, default=96, help="px of the pictures that flow is computed on"
    )
    p.add_argument(
        "--seeds", type=int, default=3, help="of the first number of clips; the others have one"
    )
    p.add_argument(
        "--longer", type=int, default=3, help="times the steps, once more with most clips; 1: not"
    )
    p.add_argument(
        "--folder", type=Path, default=Path("runs/own-clips"), help="goes on where it stands"
    )
    p.add_argument("--changes", type=json.loads, default={}, help="fields of all recipes, as JSON")
    p.add_argument("--out", type=Path, required=True, help="a .json file")
    a = p.parse_args()
    try:
        torch.set_num_threads(1)
        keep_memory()
        OwnClips(a).all()
    except (ValueError, OSError) as e:
        print(e, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
