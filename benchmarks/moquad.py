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

import argparse
import csv
import json
import math
import re
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from step import machine  # noqa: E402

from vssl_nb.data import toy  # noqa: E402
from vssl_nb.runs.evaluation import baselines, keep_results, retrieve  # noqa: E402
from vssl_nb.runs.pretraining import pretrain  # noqa: E402
from vssl_nb.training.machine import Machine  # noqa: E402
from vssl_nb.methods.recipes import find, override  # noqa: E402

LADDER = ("SimCLR", "+AD-Pos", "+Intra-Neg", "+AD-Intra-Neg")  # rungs 0 to 3
FULL = "moquad-toy-rung3"
# name -> recipe, changes; the full quadruple is `speed`, `RAD inter`, `no mining` and the last rung
# in one
PARTS: dict[str, dict[str, tuple[str, dict]]] = {
    "ladder": {name: (f"moquad-toy-rung{i}", {}) for i, name in enumerate(LADDER)},
    "motion": {m: (FULL, dict(motion=m)) for m in ("reverse", "shuffle")},
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


def runs(only: list[str], epochs: int | None) -> dict[str, tuple[str, dict]]:
    "Name -> recipe and changes, the runs of equal clips among them."
    chosen = {
        name: how
        for part in PARTS
        if part in (*only, "ladder")
        for name, how in PARTS[part].items()
    }
    if "ladder" in only:
        chosen["SimCLR, rate of the others"] = ("moquad-toy-rung0", dict(lr=find(FULL).learning.lr))
        for name in LADDER[:-1]:
            recipe = find(chosen[name][0])
            clips, all_clips = recipe.sampling.clips, find(FULL).sampling.clips
            more = round((epochs or recipe.learning.epochs) * all_clips / clips)
            chosen[f"{name}, equal clips"] = (recipe.name, dict(epochs=more))
    return chosen


def finished(out: Path) -> bool:
    card = out / "card.json"
    return card.exists() and json.loads(card.read_text())["finished"]


def train(recipe, data: Path, out: Path, how: Machine) -> dict:
    "A finished run, from where it stands, and its row of results."
    if not finished(out):
        pretrain(recipe, data, out, (out / "card.json").exists(), how)
    file = out / "results.json"
    if not file.exists():
        keep_results(out, retrieve(out, data=data, machine=how)[:1])
    return json.loads(file.read_text())[0]


def ranks(out: Path, candidates: int) -> dict:
    """Mean ranks of each epoch as shares of the candidates (0: the nearest), and how many steps
    there were.
    """
    with (out / "steps.csv").open(newline="") as f:
        rows = list(csv.DictReader(f))
    epochs: dict[str, list[dict]] = {}
    for r in rows:
        epochs.setdefault(r["epoch"], []).append(r)

    def share(
        some,
        column,
    ):  # NaN in the appearance task, which has no intra-negatives
        values = [float(r[column]) for r in some if r.get(column, "") not in ("", "nan")]
        return round((statistics.mean(values) - 1) / (candidates - 1), 5) if values else None

    told: dict = {c: [share(e, c) for e in epochs.values()] for c in RANKS if c in rows[0]}
    return told | {"steps": int(rows[-1]["step"])}


def one_seed(
    root: Path,
    seed: int,
    size: str,
    bias: float,
    only: list[str],
    how: Machine,
    contrast: float,
    collect: bool = False,
    **changes,
) -> dict:
    "All runs of a seed."
    data = root / "toy"
    if not (data / "manifest.csv").exists():
        toy.make(data, size, seed=seed, bias=bias, contrast=contrast, progress=False)

    def recipe(name, more):
        return override(find(name), seed=seed, **changes | more)

    beside = baselines(recipe(FULL, {}), data, machine=how)
    found: dict = {"seed": seed, "beside": {r["method"]: r["r1"] for r in beside}, "rows": []}
    for name, (start, more) in runs(only, changes.get("epochs")).items():
        asked = recipe(start, more)
        out = root / re.sub(r"\W+", "-", name).strip("-")
        if collect and not finished(out):
            continue
        r = train(replace(asked, name=f"{asked.name}-benchmark"), data, out, how)
        clips, batch = asked.sampling.clips, asked.learning.batch
        row = {
            "run": name,
            "r1": r["r1"],
            "r5": r["r5"],
            "r10": r["r10"],
            "seconds": r["seconds"],
            "clips_of_a_video": clips,
        } | ranks(out, clips * batch - 1)
        # the appearance task encodes two clips of each video
        early = math.ceil(asked.method.appearance_task * row["steps"])
        row["clips_seen"] = batch * (2 * early + clips * (row["steps"] - early))
        found["rows"].append(row)
        print(
            f"seed {seed}, {name}: R@1 {row['r1']:.1%}, "
            + ", ".join(f"{c} {row[c][-1]:.2f}" for c in RANKS if c in row),
            flush=True,
        )
    return found


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
    p.add_argument("--out", help=".json file")
    a = p.parse_args()
    changes = {k: int(v) for k, v in (s.split("=") for s in a.set)}
    how = Machine("cpu", a.dtype, workers=0, cache=4096, progress=False)
    told = {
        "what": "benchmarks/moquad.py",
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine("cpu"),
        "dtype": a.dtype,
        "changes": changes,
        "bias": a.bias,
        "contrast": a.contrast,
        "seeds": [],
    }
    for seed in a.seeds:
        told["seeds"].append(
            one_seed(
                a.runs / f"seed{seed}",
                seed,
                a.size,
                a.bias,
                a.only,
                how,
                a.contrast,
                a.collect,
                **changes,
            )
        )
        if a.out:
            Path(a.out).write_text(json.dumps(told, indent=1) + "\n")
    for name in runs(a.only, changes.get("epochs")):
        r1 = [r["r1"] for s in told["seeds"] for r in s["rows"] if r["run"] == name]
        if not r1:
            continue
        print(
            f"{name}: mean R@1 {statistics.mean(r1):.1%} "
            f"({', '.join(f'{100 * x:.1f}' for x in r1)})"
        )


if __name__ == "__main__":
    main()
