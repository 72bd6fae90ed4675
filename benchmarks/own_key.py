"""What does it bring CoCLR to drop the own key from the positives?

CoCLR on the frames of the toy, from the InfoNCE encoders that `benchmarks/story.py` has trained,
with the own key dropped in none, half and nine of ten steps. The last is the recipe's, and was
trained there.

    python benchmarks/story.py --seeds 21 22 23 --folder runs/story --out results/story-toy-fresh.json
    python benchmarks/own_key.py --story runs/story --seeds 21 22 23 --out results/own-key-toy.json

What was started and killed goes on with the same command."""

import argparse
import json
import os
import platform
import time
from pathlib import Path

import torch

from vssl_nb.data.clips import VideoCache
from vssl_nb.runs.evaluation import retrieve
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.training.machine import Machine, keep_memory
from vssl_nb.data.manifest import read
from vssl_nb.methods.recipes import find, override

RECIPE = "coclr-toy-rgb-cycle1"


def measured(story: Path, seed: int, drop: float, changes: dict) -> float:
    "R@1 of one run, trained where it is not there yet."
    home = story / f"seed{seed}"
    run = home / RECIPE if drop == find(RECIPE).method.drop_own else home / f"own-{drop}"
    how = Machine("cpu", cache=VideoCache(read(home / "toy"), 2**31), progress=False)
    recipe = override(find(RECIPE), **{"seed": seed, "drop_own": drop} | changes)
    pretrain(
        recipe,
        home / "toy",
        run,
        (run / "recipe.json").exists(),
        how,
        init_from=home / "infonce-toy-rgb",
        sampler=home / "infonce-toy-residual",
    )
    return retrieve(run, machine=how, walls=0)[0]["r1"]


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--story", type=Path, default=Path("runs/story"), help="its --folder")
    p.add_argument("--seeds", type=int, nargs="+", default=[21, 22, 23])
    p.add_argument("--drop", type=float, nargs="+", default=[0.0, 0.5, 0.9], help="probabilities")
    p.add_argument(
        "--changes", type=json.loads, default={}, help="of the recipe, as json; as for the story"
    )
    p.add_argument("--out", type=Path, help="a .json file")
    a = p.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    rows = []
    for drop in a.drop:
        rows.append(
            {"drop_own": drop, "r1": [measured(a.story, s, drop, a.changes) for s in a.seeds]}
        )
        found = " ".join(f"{x:.1%}" for x in rows[-1]["r1"])
        print(f"own key dropped in {drop:.0%} of the steps: R@1 {found}", flush=True)
    where = {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    if a.out:
        a.out.write_text(
            json.dumps(
                {
                    "what": "benchmarks/own_key.py",
                    "date": time.strftime("%Y-%m-%d"),
                    "machine": where,
                    "recipe": RECIPE,
                    "changes": a.changes,
                    "seeds": a.seeds,
                    "rows": rows,
                },
                indent=1,
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
