"""ProViCo on toy videos: what each choice does, and what its uncertainty is worth.

    python benchmarks/provico.py --seeds 21 22 23 --out results/provico-toy.json

Trains `provico-toy` and its neighbours, each with the same videos: without mining (appendix Table
2), other weights of the prior and fewer samples (Table 4), one clip, a smaller batch (appendix
Table 1), and the two choices that the paper leaves open and that decide most: which variance Eq. 10
means, and the threshold. Measured for each: R@1 of the features, of the means and of match
probability (appendix Table 3). For the first, and for the other variance: uncertainty and R@1 over
the training, accuracy in bins of uncertainty (Figure 4), uncertainty of mixed and masked clips
(appendix Figure 6). Runs that are finished are not trained again; a run that was stopped goes on.

What the weights of Eq. 10 are worth, and one direction from the same beginning as the base, was
asked later:

    python benchmarks/provico.py --only 'with mining' 'one direction, variance 1' 'no weights' \\
        --out results/provico-weights-toy.json

The runs 'all pairs' and 'all pairs, K=5' count the pairs k = k', with ten and five samples (Table
4)."""

import argparse
import csv
import json
import re
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from step import machine  # noqa: E402

from scipy.stats import spearmanr  # noqa: E402

from vssl_nb.data import toy  # noqa: E402
from vssl_nb.runs.evaluation import baselines, open_trained  # noqa: E402
from vssl_nb.runs.pretraining import pretrain  # noqa: E402
from vssl_nb.training.machine import Machine  # noqa: E402
from vssl_nb.measure.gaussian import (
    accuracy_by_bin,
    area_under_risk,
    corrupted_uncertainty,  # noqa: E402
    gaussian_pairs,
    match_neighbours,
    mean_neighbours,
    video_uncertainty,
)
from vssl_nb.methods.recipes import find, override  # noqa: E402
from vssl_nb.measure.retrieval import retrieval_recall  # noqa: E402

BASE, ONE = "with mining", "doubt of one direction"
RUNS: dict[str, dict] = {  # name -> what is changed of `provico-toy`
    BASE: {},
    "without mining": dict(instance_stage=1.0),
    ONE: dict(doubt="mean", variance=0.2),
    "threshold 0.25": dict(threshold=0.25),
    "euclidean": dict(distance="euclidean"),
    "beta 1e-3": dict(beta=1e-3),
    "beta 1e-5": dict(beta=1e-5),
    "K=5": dict(samples=5),
    "N=1": dict(mixture=1, clips=1),
    "small batch": dict(batch=8),
    "one direction, variance 1": dict(doubt="mean"),
    "no weights": dict(doubt="none"),  # the mean of L, and the prior
    # Eqs. 6 and 9 as printed, k = k' among the pairs
    "all pairs": dict(self_pairs=True),
    "all pairs, K=5": dict(self_pairs=True, samples=5),
}
# of a test video, two in each distribution; of uncertainty, of as many videos each
CLIPS, BINS = 4, 5


def folder(name: str) -> str:
    return re.sub(r"\W+", "-", name).strip("-")


def train(recipe, data: Path, out: Path, how: Machine) -> None:
    card = out / "card.json"
    if card.exists() and json.loads(card.read_text())["finished"]:
        return
    pretrain(recipe, data, out, card.exists(), how, health_every=2)


def lines(file: Path) -> list[dict]:
    if not file.exists():
        return []
    with file.open(newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


def training_uncertainty(run: Path) -> dict[str, list[float]]:
    "Mean uncertainty of each epoch, and R@1 within the training videos; NaN if not measured."
    of_epoch: dict[int, list[float]] = {}
    for r in lines(run / "steps.csv"):
        of_epoch.setdefault(int(r["epoch"]) + 1, []).append(float(r["log_uncertainty"]))
    r1 = {int(r["epoch"]): float(r["knn_r1"]) for r in lines(run / "health.csv") if r.get("knn_r1")}
    return {
        "epoch": [*of_epoch],
        "log_uncertainty": [statistics.fmean(v) for v in of_epoch.values()],
        "knn_r1": [r1.get(e, float("nan")) for e in of_epoch],
    }


def measured(out: Path, how: Machine, whole: bool) -> dict:
    "A line of a run; `whole`: with all that its uncertainty says."
    t = open_trained(out)
    p, views, head = t.protocol("clean", clips=CLIPS), t.views, t.heads["gaussian"]
    recall = retrieval_recall(*t.pairs(p, (t.split,), machine=how)[t.split], (1, 5))
    line: dict = {"r1": round(recall[1], 5), "r5": round(recall[5], 5)}
    query, gallery = gaussian_pairs(
        t.encoder, head, t.manifest, (t.split,), t.view, p, machine=how, **views
    )[t.split]
    right = {}
    for metric, near in (
        ("cosine", mean_neighbours(query, gallery, 1)),
        ("match", match_neighbours(query, gallery, head.a, head.b, 1, machine=how)),
    ):
        right[metric] = near.right[:, 0]
        line[metric] = round(right[metric].float().mean().item(), 5)
    u = video_uncertainty(query)
    line |= {
        "training": training_uncertainty(out),
        "log_uncertainty": round(u.log().mean().item(), 4),
    }
    logs = [row.split(",") for row in (out / "steps.csv").read_text().splitlines()]

    def late(
        name,
    ):  # mean of the last fifth of the steps, where it is defined
        values = [
            float(x)
            for r in logs[-len(logs) // 5 :]
            if (x := r[logs[0].index(name)]) not in ("", "nan")
        ]
        return round(statistics.mean(values), 5) if values else None

    line |= {
        k: late(k) for k in ("mined", "precision", "recall", "soft", "grad_norm") if k in logs[0]
    }
    if not whole:
        return line
    hit = right["match"]
    _, changed = corrupted_uncertainty(
        t.encoder,
        head,
        t.manifest,
        [int(r) for r in query.row],
        t.view,
        protocol=p,
        machine=how,
        **views,
    )
    return line | {
        "bins": [round(b["accuracy"], 5) for b in accuracy_by_bin(u, hit, BINS, "count")],
        "spearman": round(float(spearmanr(u, hit).statistic), 4),
        "risk": area_under_risk(u, hit),
        **{
            kind: {str(k): round(v.log().mean().item(), 4) for k, v in some.items()}
            for kind, some in changed.items()
        },
    }


def one_seed(
    root: Path, seed: int, size: str, only: list[str], how: Machine, collect: bool, **changes
) -> dict:
    data = root / "toy"
    if not (data / "manifest.csv").exists():
        toy.make(data, size, seed=seed, progress=False)
    began, rows = time.perf_counter(), []
    for name in only:
        asked = override(find("provico-toy"), seed=seed, **(RUNS[name] | changes))
        out = root / folder(name)
        if collect and not (out / "encoder.safetensors").exists():
            continue
        if not collect:
            train(replace(asked, name=f"provico-toy-{folder(name)}"), data, out, how)
        rows.append({"run": name} | measured(out, how, name in (BASE, ONE)))
        row = rows[-1]
        print(
            f"seed {seed}, {name}: R@1 {row['r1']:.1%}, cosine of means {row['cosine']:.1%}, match "
            f"{row['match']:.1%}, log uncertainty {row['log_uncertainty']:.2f}, mined "
            f"{row['mined']} "
            f"({row['precision'] or 0:.0%} right), {time.perf_counter() - began:.0f} s",
            flush=True,
        )
    beside = baselines(override(find("provico-toy"), seed=seed), data, machine=how)
    return {"seed": seed, "beside": {r["method"]: r["r1"] for r in beside}, "rows": rows}


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument(
        "--seeds", nargs="+", type=int, default=[21, 22, 23], help="none of them chose a setting"
    )
    p.add_argument(
        "--runs", type=Path, default=Path("runs/provico"), help="kept, so that it can go on"
    )
    p.add_argument("--only", nargs="+", choices=[*RUNS], default=[*RUNS])
    p.add_argument(
        "--collect", action="store_true", help="measure what has finished, and train nothing"
    )
    p.add_argument("--size", default="demo", help="of the toy")
    p.add_argument("--set", nargs="*", default=[], help="whole numbers to change, such as epochs=2")
    p.add_argument("--out", type=Path, help=".json file")
    a = p.parse_args()
    changes = {k: int(v) for k, v in (s.split("=") for s in a.set)}
    how = Machine("cpu", workers=0, cache=4096, progress=False)
    told = {
        "what": "benchmarks/provico.py",
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine("cpu"),
        "recipe": "provico-toy",
        "changes": changes,
        "seeds": [],
    }
    for seed in a.seeds:
        told["seeds"].append(
            one_seed(a.runs / f"seed{seed}", seed, a.size, a.only, how, a.collect, **changes)
        )
        if a.out:
            a.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
