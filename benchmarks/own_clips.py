"""What to do with 60, 250 or some hundred clips of one's own: which encoder is worth its minutes?

    python benchmarks/own_clips.py --data JHMDB --given UCF101 --out results/own-clips-cpu.json

Written down before the first run. The clips: JHMDB, split 1 (21 actions of half a second to 1.3 s;
its 217 test clips of 88 recordings stay the same), of whose 491 training clips 60, 250 and all are
there, nested, whole recordings, the classes in turn. Who has them trains InfoNCE (with the queue
that `own-videos` would choose), SimCLR or LeJEPA on frames, from random weights or from a *given*
encoder: SimCLR, trained on nine classes of UCF101 for twice as many steps. All trainings have the
same backbone (`small`, 48 px, 8 frames, one in 2), projection, augmentation, optimizer (Adam,
1e-3), batch and precision (forward passes in bfloat16), and see as many clips, two of each of 200 x
30 videos, whatever the number of clips that there are. No setting was chosen on these clips.

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

import argparse
import itertools
import json
import shutil
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from step import machine  # noqa: E402

import cv2  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import vssl_nb  # noqa: E402
from conflict import rule  # noqa: E402
from evidence import MotionEnergy, directions  # noqa: E402
from vssl_nb.data.flow import flow_method  # noqa: E402
from vssl_nb.data.manifest import Manifest, ManifestError, open_data, write  # noqa: E402
from vssl_nb.measure.classify import PROBES, classify, linear_probe  # noqa: E402
from vssl_nb.measure.features import Features, encoder_protocol, extract  # noqa: E402
from vssl_nb.measure.retrieval import (
    centre_and_normalise,
    chance,
    histogram,  # noqa: E402
    nearest_neighbours,
)
from vssl_nb.methods.recipes import LeJEPASettings, Recipe, find, flat_fields, override  # noqa: E402
from vssl_nb.nets.backbones import create  # noqa: E402
from vssl_nb.runs.evaluation import open_trained  # noqa: E402
from vssl_nb.runs.parts import encoder_about  # noqa: E402
from vssl_nb.runs.pretraining import pretrain  # noqa: E402
from vssl_nb.training.loop import read_json, write_json  # noqa: E402
from vssl_nb.training.machine import Machine, keep_memory  # noqa: E402

SIZES, STEPS, BATCH = (250, 0, 60), 200, 30  # 0: all clips
METHODS, STARTS, GIVEN = (
    ("InfoNCE", "SimCLR", "LeJEPA"),
    ("random weights", "given encoder"),
    "given encoder",
)
BESIDE = ("BYOL", "SimSiam")  # with all clips, from random weights
HISTOGRAM, MOTION = "colour histogram", "motion by hand"
MEASURES = ("r1", "probe")


class FlowDirections(nn.Module):
    """Directions of DIS flow between neighbouring frames: clips in [0, 1] (B, 3, T, H, W) -> (B,
    162).
    """

    dim = 162

    def forward(self, x: Tensor) -> Tensor:
        grey = (255 * x).round().byte().movedim(1, -1).numpy()  # (B, T, H, W, 3)
        grey = torch.from_numpy(
            np.stack([[cv2.cvtColor(f, cv2.COLOR_RGB2GRAY) for f in c] for c in grey])
        )
        flow = flow_method("dis").compute(grey[:, :-1].flatten(0, 1), grey[:, 1:].flatten(0, 1))
        u, v = flow.unflatten(0, (len(x), -1)).unbind(2)  # (B, T - 1, H, W) px
        return directions(u, v)


def recipe_of(method: str, videos: int, steps: int, seed: int, changes: dict) -> Recipe:
    "The settings of a method, and what all share."
    base = find("infonce-laptop-rgb")
    queue = videos // 2 // BATCH * BATCH if videos >= 128 else 0  # as `runs.own` has it
    byol = find("byol-toy").method
    settings = {
        "BYOL": byol,
        "SimSiam": replace(byol, momentum=0.0),
        "InfoNCE": replace(base.method, queue=queue, momentum=max(0.9, 1 - 10 / steps)),
        "SimCLR": find("simclr-toy-rgb").method,
        # no local clips: Algorithm 2 has none for convolutions; the projection of the other two
        "LeJEPA": LeJEPASettings(
            slices=256, local_clips=0, head="projection", dim=128, dim_hidden=None
        ),
    }
    per_epoch = videos // min(BATCH, videos)
    r = override(
        replace(base, method=settings[method]),
        name=method.lower(),
        size=48,
        length=8,
        stride=2,
        batch=min(BATCH, videos),
        epochs=max(1, round(steps / per_epoch)),
        warmup=0.0,
        test_clips=3,
        seed=seed,
    )
    r = override(r, warmup=r.learning.epochs / 20)
    return override(r, **{k: v for k, v in changes.items() if k in flat_fields(r)})


def nested(manifest: Manifest, split: int = 1) -> list[int]:
    "Training rows in the order in which they are there: whole recordings, one class after another."
    recordings: dict[str, dict[str, list[int]]] = {}
    for i in manifest.select("train", split):
        r = manifest.rows[i]
        recordings.setdefault(r.label, {}).setdefault(r.source, []).append(i)
    rng = np.random.default_rng(0)
    queues = [
        [recordings[c][s] for s in rng.permutation(sorted(recordings[c]))]
        for c in sorted(recordings)
    ]
    return [
        i for turn in itertools.zip_longest(*queues, fillvalue=[]) for rows in turn for i in rows
    ]


def part_of(manifest: Manifest, clips: int, home: Path) -> Path:
    "A folder with the first `clips` training clips, 0 for all, and the test clips."
    folder = home / f"clips-{clips or 'all'}"
    if (folder / "manifest.csv").exists():
        return folder
    there = nested(manifest)
    if clips > len(there):
        raise ManifestError(
            f"{manifest.path}: has {len(there)} training clips in split 1, and {clips} were "
            "asked for; ask for fewer, or for 0, which is all"
        )
    keep = {*there[: clips or None], *manifest.select("test", 1)}
    folder.mkdir(parents=True, exist_ok=True)
    for f in manifest.root.iterdir():
        if f.is_dir() and not (folder / f.name).exists():
            (folder / f.name).symlink_to(f.resolve())
    write(folder / "manifest.csv", [r for i, r in enumerate(manifest.rows) if i in keep])
    return folder


def measured(query: Features, gallery: Features, labels: list[str], seed: int) -> dict:
    "Right or wrong for each test clip: nearest neighbour, and linear probe."
    near = nearest_neighbours(*centre_and_normalise(query, gallery), 1)[0][:, 0]
    recordings = Counter(c for c, _ in {*zip(gallery.label.tolist(), gallery.source.tolist())})
    how = PROBES["clean_probe"]  # some classes of one recording: nothing to choose by
    if min(recordings.values()) < 2:
        how = replace(how, selection="last", strengths=(1e-4,))
    p = classify(linear_probe(gallery, how, seed=seed), query, labels)
    return {
        "row": query.row.tolist(),
        "source": query.source.tolist(),
        "r1": (gallery.label[near] == query.label).int().tolist(),
        "probe": (p.p.argmax(1) == p.label).int().tolist(),
    }


def joined(*pairs: tuple[Features, Features]) -> tuple[Features, Features]:
    "Cosines are added: features of length 1 beside one another."
    unit = [centre_and_normalise(q, g) for q, g in pairs]
    query, gallery = (replace(pairs[0][i], x=torch.cat([u[i] for u in unit], 1)) for i in (0, 1))
    return query, gallery


def untrained(
    manifest: Manifest, recipe: Recipe, given: Path, how: Machine, side: int
) -> dict[str, dict]:
    "What needs no training of one's own."
    clip, bare = encoder_protocol(encoder_about(recipe)), dict(mean=(0.0,) * 3, std=(1.0,) * 3)
    pairs, seconds = {}, {}

    def see(
        name,
        one,
    ):  # part -> Features
        began = time.process_time()
        pairs[name] = one("test"), one("train")
        seconds[name] = time.process_time() - began

    def encode(net, view="rgb", protocol=clip, **options):
        return lambda part: extract(
            net, manifest, part, recipe.split, view, protocol, machine=how, **options
        )

    see(HISTOGRAM, lambda part: histogram(manifest, part, recipe.split, machine=how))
    see("energy", encode(MotionEnergy(), "residual", **bare))
    see("directions", encode(FlowDirections(), protocol=replace(clip, size=side), **bare))
    see("random weights", encode(create(recipe.backbone, seed=0)))
    see(GIVEN, encode(open_trained(given).encoder))
    pairs[MOTION] = joined(pairs.pop("energy"), pairs.pop("directions"))
    seconds[MOTION] = seconds["energy"] + seconds["directions"]
    both = f"{HISTOGRAM} and {MOTION}"
    pairs[both] = joined(pairs[HISTOGRAM], pairs[MOTION])
    seconds[both] = seconds[HISTOGRAM] + seconds[MOTION]
    rows = {}
    for name, (q, g) in pairs.items():
        began = time.process_time()
        rows[name] = measured(q, g, manifest.labels, 0) | {
            "videos_seen": 0,
            "steps": 0,
            "train_seconds": 0.0,
            "seconds": time.process_time() - began + seconds[name],
        }
    return rows


def trained(
    data: Path, run: Path, recipe: Recipe, how: Machine, init_from: Path | None = None
) -> dict:
    "Train, and measure; what is known already is read."
    if (run / "measured.json").exists():
        return read_json(run / "measured.json", "a measurement")
    if run.exists():
        shutil.rmtree(run)  # killed: its time would not be whole
    began = time.process_time()
    pretrain(recipe, data, run, machine=how, init_from=init_from)
    seconds, card = time.process_time() - began, read_json(run / "card.json", "a run")
    t = open_trained(run, data)
    query, gallery = t.pairs(t.protocol(), (t.split,), machine=how)[t.split]
    row = measured(query, gallery, t.manifest.labels, recipe.seed) | {
        "steps": card["step"],
        "videos_seen": card["step"] * recipe.learning.batch,
        "train_seconds": seconds,
        "seconds": time.process_time() - began,
    }
    write_json(run / "measured.json", row)
    return row


def intervals(rows: dict[str, list[dict]], draws: int = 4000) -> list[dict]:
    """Mean over the seeds of each name, and differences to what is by hand, on the same drawn
    recordings.
    """
    source = np.array(rows[HISTOGRAM][0]["source"])
    ids, which = np.unique(source, return_inverse=True)
    drawn = np.random.default_rng(0).multinomial(len(ids), np.full(len(ids), 1 / len(ids)), draws)
    clips, rng = drawn @ np.bincount(which), np.random.default_rng(1)
    curves = {}
    for name, what in itertools.product(rows, MEASURES):
        # (seeds, S)
        right = np.stack([np.bincount(which, np.array(r[what]), len(ids)) for r in rows[name]])
        seeds = rng.integers(len(right), size=(draws, len(right)))
        curves[name, what] = (
            right.sum(1).mean() / len(source),
            (drawn * right[seeds].mean(1)).sum(1) / clips,
        )

    def between(draw):
        return np.quantile(draw, (0.025, 0.975)).tolist()

    table = []
    for name, seeds in rows.items():
        row = {"name": name, "seeds": len(seeds)} | {
            k: float(np.mean([s[k] for s in seeds]))
            for k in ("steps", "videos_seen", "train_seconds", "seconds")
        }
        for what in MEASURES:
            mean, draw = curves[name, what]
            row |= {what: mean, f"{what}_interval": between(draw)}
            for other in (HISTOGRAM, MOTION):
                if name == other:
                    continue
                least, than = curves[other, what]
                row.setdefault("above", {}).setdefault(other, {}).update(
                    {what: mean - least, f"{what}_interval": between(draw - than)}
                )
        table.append(row)
    return table


def advice(table: list[dict], what: str = "r1") -> list[str]:
    """Names that are above both of what is by hand, best first; where none is, the better of the
    two.
    """
    known = sorted(table, key=lambda r: -r[what])
    sure = [
        r["name"]
        for r in known
        if r["above"].keys() == {HISTOGRAM, MOTION}
        and all(a[f"{what}_interval"][0] > 0 for a in r["above"].values())
    ]
    return sure or [next(r["name"] for r in known if r["name"] in (HISTOGRAM, MOTION))]


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
        run(a)
    except (ValueError, OSError) as e:
        print(e, file=sys.stderr)
        sys.exit(2)


def run(a: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    keep_memory()
    how = Machine("cpu", dtype="bfloat16", progress=False, cache=1500)
    manifest, other = open_data(a.data), open_data(a.given)
    asked = {
        "data": manifest.sha256,
        "given": other.sha256,
        "clips": a.clips,
        "steps": a.steps,
        "side": a.side,
        "changes": a.changes,
    }
    file = a.folder / "plan.json"
    if file.exists() and read_json(file, "a plan")["asked"] != asked:
        raise ValueError(
            f"{file}: was planned with other settings; name another --folder, or ask for the same"
        )
    data = {n: part_of(manifest, n, a.folder) for n in a.clips}
    parts = {n: open_data(folder) for n, folder in data.items()}
    many = {n: len(m.select("train", 1)) for n, m in parts.items()}
    plan = {
        "asked": asked,
        "rule": rule(__file__),
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine("cpu") | {"vssl_nb": vssl_nb.__version__},
    }
    if file.exists():
        plan = read_json(file, "a plan")
    else:
        write_json(file, plan)
    given, before = a.folder / "given", read_json(a.out, "results") if a.out.exists() else {}
    # what was added later keeps the commit that had it before its runs
    later = {k: before.get(k, {}).get("rule") or rule(__file__) for k in ("longer", "beside")}

    def recipe(method, n, seed=0, times=1):
        return recipe_of(method, many[n], times * a.steps, seed, a.changes)

    first = recipe_of("SimCLR", len(other.select("train", 1)), 2 * a.steps, 0, a.changes)
    source = trained(a.given, given, first, how)
    rows: dict[int, dict[str, list[dict]]] = {}
    for n, m in parts.items():
        stored = a.folder / f"untrained-{many[n]}.json"
        if not stored.exists():
            write_json(stored, untrained(m, recipe("SimCLR", n), given, how, a.side))
        rows[n] = {k: [r] for k, r in read_json(stored, "a measurement").items()}

    def keep():
        sizes = []
        for n, m in sorted(parts.items(), key=lambda part: many[part[0]]):
            query, gallery = (
                [m.label_id(i) for i in m.select(part, 1)] for part in ("test", "train")
            )
            table = intervals(rows[n])
            recordings = {
                part: len({m.rows[i].source for i in m.select(part, 1)})
                for part in ("train", "test")
            }
            sizes.append(
                {
                    "clips": many[n],
                    "test": len(query),
                    "recordings": recordings,
                    "chance": chance(torch.tensor(query), torch.tensor(gallery), [1])[1],
                    "rows": table,
                    "advice": {what: advice(table, what) for what in MEASURES},
                }
            )
        write_json(
            a.out,
            {"what": "benchmarks/own_clips.py"}
            | plan
            | {
                "longer": {"times": a.longer, "rule": later["longer"]},
                "beside": {"rule": later["beside"]},
                "given": {
                    k: source[k] for k in ("steps", "videos_seen", "train_seconds", "seconds")
                }
                | {"clips": len(other.select("train", 1))},
                "recipes": {
                    name: flat_fields(recipe(name, a.clips[0])) for name in METHODS + BESIDE
                },
                "sizes": sizes,
            },
        )

    keep()
    whole = max(many, key=many.__getitem__)
    cells = [(n, 0, 1) for n in a.clips] + [(whole, 0, a.longer)] * (a.longer > 1)
    ours, last = [*itertools.product(METHODS, STARTS)], [*itertools.product(BESIDE, STARTS[:1])]
    steps = [
        (*cell, ours) for cell in cells + [(a.clips[0], seed, 1) for seed in range(1, a.seeds)]
    ]
    for n, seed, times, trainings in [*steps, (whole, 0, 1, last)]:
        for method, start in trainings:
            name = f"{method}, {start}" + f", {times} times the steps" * (times > 1)
            place = (
                a.folder
                / f"{method}-{many[n]}-{start.split()[0]}-{seed}{f'-{times}' * (times > 1)}"
            )
            row = trained(
                data[n],
                place,
                recipe(method, n, seed, times),
                how,
                given if start == GIVEN else None,
            )
            rows[n].setdefault(name, []).append(row)
            r1, probe = (f"{np.mean(row[k]):.1%}" for k in MEASURES)
            print(
                f"{time.strftime('%H:%M')} {many[n]} clips, {name}, seed {seed}: R@1 {r1}, probe "
                f"{probe}, "
                f"{row['seconds']:.0f} s",
                flush=True,
            )
            keep()


if __name__ == "__main__":
    main()
