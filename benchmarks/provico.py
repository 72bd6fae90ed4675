"""ProViCo on toy videos: what each choice does, and what its uncertainty is worth.

    python benchmarks/provico.py --seeds 21 22 23 --out results/provico-toy.json

Trains `provico-toy` and its neighbours, each with the same videos: without mining (appendix Table
2), other weights of the prior and fewer samples (Table 4), one clip, a smaller batch (appendix
Table 1), and the two choices that the paper leaves open: which variance Eq. 10
means, and the threshold. Measured for each: R@1 of the features, of the means and of match
probability (appendix Table 3). For the first, and for the other variance: uncertainty and R@1 over
the training, accuracy in bins of uncertainty (Figure 4), uncertainty of mixed and masked clips
(appendix Figure 6). Runs that are finished are not trained again; a run that was stopped goes on.

What Eq. 10 is worth (weight and price), and one direction from the same beginning as the base, was
asked later:

    python benchmarks/provico.py --only 'with mining' 'one direction, variance 1' 'no weights' \\
        --out results/provico-weights-toy.json

The runs 'all pairs' and 'all pairs, K=5' count the pairs k = k', with ten and five samples (Table
4)."""

import csv
import math
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import measurement
from result_files import Stamp, settings_of, write_results
from run_folders import by_epoch, folder_name, logged, mean_logged, steps_of, trained
from scipy.stats import spearmanr
from torch import Tensor

from vssl_nb.data import toy
from vssl_nb.measure.gaussian import (
    VideoGaussians,
    accuracy_by_bin,
    area_under_risk,
    corrupted_uncertainty,
    gaussian_pairs,
    match_neighbours,
    mean_neighbours,
    video_uncertainty,
)
from vssl_nb.measure.protocols import Protocol
from vssl_nb.measure.retrieval import retrieval_recall
from vssl_nb.methods.recipes import find, override
from vssl_nb.runs.evaluation import EvaluatedEncoder, baselines, open_trained
from vssl_nb.training.machine import Machine

RECIPE = "provico-toy"
BASE, ONE = "with mining", "doubt of one direction"
RUNS: dict[str, dict[str, Any]] = {  # name -> what is changed of the recipe
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
CLIPS = 4  # of a test video, two in each distribution
BINS = 5  # of uncertainty, of as many videos each
LOGGED = ("mined", "precision", "recall", "soft", "grad_norm")


def training_uncertainty(run: Path) -> dict[str, list[float]]:
    "Mean uncertainty of each epoch, and R@1 within the training videos; NaN if not measured."
    r1 = {}
    health = run / "health.csv"
    if health.exists():
        with health.open(newline="", encoding="utf-8") as f:
            r1 = {int(r["epoch"]): float(r["knn_r1"]) for r in csv.DictReader(f) if r.get("knn_r1")}

    epochs = by_epoch(steps_of(run))
    numbers = [int(epoch[0]["epoch"]) + 1 for epoch in epochs]
    return {
        "epoch": numbers,
        "log_uncertainty": [statistics.fmean(logged(e, "log_uncertainty")) for e in epochs],
        "knn_r1": [r1.get(n, float("nan")) for n in numbers],
    }


def late_logs(run: Path) -> dict[str, float | None]:
    "Means of the last fifth of the steps, where they are defined."
    steps = steps_of(run)
    fifth = steps[-math.ceil((len(steps) + 1) / 5) :]
    return {name: mean_logged(fifth, name) for name in LOGGED if name in steps[0]}


def worth_of_uncertainty(
    t: EvaluatedEncoder,
    query: VideoGaussians,
    u: Tensor,  # (Q,) uncertainty of each video
    right: Tensor,  # (Q,) is the nearest video by match probability of the class?
    protocol: Protocol,
    machine: Machine,
) -> dict[str, Any]:
    "Accuracy in bins of uncertainty, and the uncertainty of mixed and masked clips."
    _, changed = corrupted_uncertainty(
        t.encoder,
        t.heads["gaussian"],
        t.manifest,
        [int(row) for row in query.row],
        t.view,
        protocol=protocol,
        machine=machine,
        **t.views,
    )
    numbers = {
        "bins": [round(b["accuracy"], 5) for b in accuracy_by_bin(u, right, BINS, "count")],
        "spearman": round(float(spearmanr(u, right).statistic), 4),
        "risk": area_under_risk(u, right),
    }
    for kind, levels in changed.items():
        numbers[kind] = {str(k): round(v.log().mean().item(), 4) for k, v in levels.items()}
    return numbers


def measured(
    run: Path,
    machine: Machine,
    whole: bool,  # with all that its uncertainty says
) -> dict[str, Any]:
    "What a run has learned."
    t = open_trained(run)
    protocol = t.protocol("clean", clips=CLIPS)
    pair = t.pairs(protocol, (t.split,), machine=machine)[t.split]
    recall = retrieval_recall(*pair, (1, 5))

    head = t.heads["gaussian"]
    query, gallery = gaussian_pairs(
        t.encoder, head, t.manifest, (t.split,), t.view, protocol, machine=machine, **t.views
    )[t.split]
    by_cosine = mean_neighbours(query, gallery, 1).right[:, 0]
    by_match = match_neighbours(query, gallery, head.a, head.b, 1, machine=machine).right[:, 0]
    u = video_uncertainty(query)
    row = {
        "r1": round(recall[1], 5),
        "r5": round(recall[5], 5),
        "cosine": round(by_cosine.float().mean().item(), 5),
        "match": round(by_match.float().mean().item(), 5),
        "training": training_uncertainty(run),
        "log_uncertainty": round(u.log().mean().item(), 4),
    }
    row |= late_logs(run)
    if not whole:
        return row
    return row | worth_of_uncertainty(t, query, u, by_match, protocol, machine)


def one_seed(
    root: Path,  # its folder
    seed: int,
    a: Any,  # the command line
    changes: dict[str, int],
    machine: Machine,
) -> dict[str, Any]:
    "The runs of a seed."
    data = root / "toy"
    if not (data / "manifest.csv").exists():
        toy.make(data, a.size, seed=seed, progress=False)

    began = time.perf_counter()
    rows = []
    for name in a.only:
        run = root / folder_name(name)
        if a.collect and not (run / "encoder.safetensors").exists():
            continue
        if not a.collect:
            recipe = override(find(RECIPE), seed=seed, **RUNS[name] | changes)
            recipe = replace(recipe, name=f"{RECIPE}-{folder_name(name)}")
            trained(recipe, data, run, machine, health_every=2)
        row = {"run": name} | measured(run, machine, whole=name in (BASE, ONE))
        rows.append(row)
        print(
            f"seed {seed}, {name}: R@1 {row['r1']:.1%}, cosine of means {row['cosine']:.1%}, match "
            f"{row['match']:.1%}, log uncertainty {row['log_uncertainty']:.2f}, mined "
            f"{row['mined']} ({row['precision'] or 0:.0%} right), "
            f"{time.perf_counter() - began:.0f} s",
            flush=True,
        )
    beside = baselines(override(find(RECIPE), seed=seed), data, machine=machine)
    return {"seed": seed, "beside": {b["method"]: b["r1"] for b in beside}, "rows": rows}


def main():
    p = measurement.parser(__doc__)
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

    changes = measurement.whole_numbers(a.set)
    machine = Machine("cpu", workers=0, cache=4096, progress=False)
    stamp = Stamp(__file__, settings_of(a))
    seeds: list[dict[str, Any]] = []
    for seed in a.seeds:
        seeds.append(one_seed(a.runs / f"seed{seed}", seed, a, changes, machine))
        results = {"recipe": RECIPE, "changes": changes, "seeds": seeds}
        write_results(a.out, stamp.head() | results)


if __name__ == "__main__":
    main()
