"""Do the claims of the MoQuad paper hold on the toy, and not only with one seed?

For each seed a toy whose backgrounds give the class away in most training videos and in no test
video (`--bias`), and on it: the ladder (SimCLR with one anchor, and the parts of the quadruple one
after another; Table 4), other disturbances of motion and of appearance (Table 5), hard negatives
and the appearance task (Table 6). Each is measured by retrieval on test videos (clean protocol),
beside a random encoder, a colour histogram and chance, and by the mean ranks of its own clips over
the epochs (Figure 4).

All runs of a seed begin with the same weights and see equally many videos. A quadruple holds more
clips than a pair, so the lower rungs are also trained for as many *clips* as the full one: `…,
equal clips`.

    python benchmarks/moquad.py --seeds 21 22 23 --out results/moquad-toy.json

`--only ladder` (motion, appearance, mining, warm-up) runs a part. Seeds 21 to 23 were not looked at
when settings were chosen. What was started and killed goes on with the same command."""

import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import measurement
from result_files import Stamp, settings_of, write_results
from run_folders import by_epoch, folder_name, is_finished, logged, retrieved, steps_of, trained

from vssl_nb.data import toy
from vssl_nb.methods.recipes import find, override
from vssl_nb.runs.evaluation import baselines
from vssl_nb.training.machine import Machine

LADDER = ("SimCLR", "+AD-Pos", "+Intra-Neg", "+AD-Intra-Neg")  # rungs 0 to 3
FULL = "moquad-toy-rung3"
# part -> name of a run -> recipe and changes; the full quadruple is `speed`, `RAD inter`, `no
# mining` and the last rung in one
PARTS: dict[str, dict[str, tuple[str, dict]]] = {
    "ladder": {name: (f"moquad-toy-rung{i}", {}) for i, name in enumerate(LADDER)},
    "motion": {motion: (FULL, dict(motion=motion)) for motion in ("reverse", "shuffle")},
    "appearance": {
        "BE": (FULL, dict(appearance="be")),
        "RAD intra": (FULL, dict(appearance="rad_intra")),
    },
    "mining": {
        "alpha 1.5": (FULL, dict(beta=0.01)),
        "alpha 3": (FULL, dict(beta=0.01, alpha=3.0)),
        "beta 0.05": (FULL, dict(beta=0.05)),
    },
    "warm-up": {f"{p} %": ("moquad-toy", dict(appearance_task=p / 100)) for p in (20, 40, 60)},
}
RANKS = ("rank_positive", "rank_n", "rank_nn")


def runs(
    only: list[str],  # parts
    epochs: int | None,  # None: those of the recipes
) -> dict[str, tuple[str, dict]]:
    "Name -> recipe and changes, the runs of equal clips among them."
    chosen: dict[str, tuple[str, dict]] = {}
    for part, of_part in PARTS.items():
        if part in (*only, "ladder"):
            chosen |= of_part
    if "ladder" not in only:
        return chosen

    chosen["SimCLR, rate of the others"] = ("moquad-toy-rung0", dict(lr=find(FULL).learning.lr))
    for name in LADDER[:-1]:
        recipe = find(chosen[name][0])
        more_clips = find(FULL).sampling.clips / recipe.sampling.clips
        longer = round((epochs or recipe.learning.epochs) * more_clips)
        chosen[f"{name}, equal clips"] = (recipe.name, dict(epochs=longer))
    return chosen


def ranks(run: Path, candidates: int) -> dict[str, Any]:
    """Mean ranks of each epoch as shares of the candidates (0: the nearest), and how many steps
    there were.
    """
    steps = steps_of(run)
    results: dict[str, Any] = {}
    for column in RANKS:
        if column not in steps[0]:
            continue
        shares = []
        for epoch in by_epoch(steps):
            values = logged(epoch, column)  # none in the appearance task
            share = (statistics.mean(values) - 1) / (candidates - 1) if values else None
            shares.append(None if share is None else round(share, 5))
        results[column] = shares
    return results | {"steps": int(steps[-1]["step"])}


def row_of(name: str, recipe: Any, run: Path, data: Path, machine: Machine) -> dict[str, Any]:
    "What a finished run has learned, and how many clips it saw."
    result = retrieved(run, data, machine)
    clips, batch = recipe.sampling.clips, recipe.learning.batch
    row = {"run": name} | {k: result[k] for k in ("r1", "r5", "r10", "seconds")}
    row |= {"clips_of_a_video": clips} | ranks(run, clips * batch - 1)
    # the appearance task encodes two clips of each video
    early = math.ceil(recipe.method.appearance_task * row["steps"])
    return row | {"clips_seen": batch * (2 * early + clips * (row["steps"] - early))}


def one_seed(
    root: Path,  # its folder
    seed: int,
    a: Any,  # the command line
    changes: dict[str, int],
    machine: Machine,
) -> dict[str, Any]:
    "All runs of a seed."
    data = root / "toy"
    if not (data / "manifest.csv").exists():
        toy.make(data, a.size, seed=seed, bias=a.bias, contrast=a.contrast, progress=False)

    beside = baselines(override(find(FULL), seed=seed, **changes), data, machine=machine)
    rows = []
    for name, (start, more) in runs(a.only, changes.get("epochs")).items():
        recipe = override(find(start), seed=seed, **changes | more)
        run = root / folder_name(name)
        if a.collect and not is_finished(run):
            continue
        trained(replace(recipe, name=f"{recipe.name}-benchmark"), data, run, machine)
        row = row_of(name, recipe, run, data, machine)
        rows.append(row)
        last = ", ".join(f"{column} {row[column][-1]:.2f}" for column in RANKS if column in row)
        print(f"seed {seed}, {name}: R@1 {row['r1']:.1%}, {last}", flush=True)
    return {"seed": seed, "beside": {b["method"]: b["r1"] for b in beside}, "rows": rows}


def main():
    p = measurement.parser(__doc__)
    p.add_argument("--seeds", nargs="+", type=int, default=[21, 22, 23])
    p.add_argument("--runs", type=Path, default=Path("runs/moquad"), help="folder of the runs")
    p.add_argument("--size", default="demo", help="of the toy")
    p.add_argument(
        "--bias", type=float, default=0.9, help="of the toy: how often background tells class"
    )
    p.add_argument("--contrast", type=float, default=0.15, help="of the backgrounds of the toy")
    p.add_argument(
        "--dtype", choices=["float32", "bfloat16"], default="bfloat16", help="of forward passes"
    )
    p.add_argument("--only", nargs="+", choices=[*PARTS], default=[*PARTS])
    p.add_argument(
        "--collect", action="store_true", help="write what has finished, and train nothing"
    )
    p.add_argument("--set", nargs="*", default=[], help="whole numbers to change, such as epochs=2")
    p.add_argument("--out", type=Path, help=".json file")
    a = p.parse_args()

    changes = measurement.whole_numbers(a.set)
    machine = Machine("cpu", a.dtype, workers=0, cache=4096, progress=False)
    stamp = Stamp(__file__, settings_of(a))
    settings = {"dtype": a.dtype, "changes": changes, "bias": a.bias, "contrast": a.contrast}
    seeds: list[dict[str, Any]] = []
    for seed in a.seeds:
        seeds.append(one_seed(a.runs / f"seed{seed}", seed, a, changes, machine))
        write_results(a.out, stamp.head() | settings | {"seeds": seeds})

    for name in runs(a.only, changes.get("epochs")):
        r1 = [row["r1"] for seed in seeds for row in seed["rows"] if row["run"] == name]
        if not r1:
            continue
        each = ", ".join(f"{100 * x:.1f}" for x in r1)
        print(f"{name}: mean R@1 {statistics.mean(r1):.1%} ({each})")


if __name__ == "__main__":
    main()
