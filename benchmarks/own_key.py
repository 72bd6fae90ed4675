"""What does it bring CoCLR to drop the own key from the positives?

CoCLR on the frames of the toy, from the InfoNCE encoders that `benchmarks/story.py` has trained,
with the own key dropped in none, half and nine of ten steps. The last is the recipe's, and was
trained there.

    python benchmarks/story.py --seeds 21 22 23 --folder runs/story \\
        --out results/story-toy-fresh.json
    python benchmarks/own_key.py --story runs/story --seeds 21 22 23 --out results/own-key-toy.json

What was started and killed goes on with the same command."""

import json
from pathlib import Path

import measurement
import torch
from result_files import Stamp, settings_of, write_results

from vssl_nb.data.dataset import VideoCache
from vssl_nb.data.manifest import read
from vssl_nb.methods.recipes import find, override
from vssl_nb.runs.evaluation import retrieve
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.training.machine import Machine, keep_memory

RECIPE = "coclr-toy-rgb-cycle1"


def r1_of(
    story: Path,  # folder of `benchmarks/story.py`
    seed: int,
    drop: float,  # probability
    changes: dict,  # of the recipe
) -> float:
    "R@1 of one run, trained where it is not there yet."
    home = story / f"seed{seed}"
    run = home / RECIPE if drop == find(RECIPE).method.drop_own else home / f"own-{drop}"
    machine = Machine("cpu", cache=VideoCache(read(home / "toy"), 2**31), progress=False)
    settings = {"seed": seed, "drop_own": drop} | changes
    pretrain(
        override(find(RECIPE), **settings),
        home / "toy",
        run,
        (run / "recipe.json").exists(),
        machine,
        networks={
            "encoder": home / "infonce-toy-rgb",
            "sampler": home / "infonce-toy-residual",
        },
    )
    return retrieve(run, machine=machine, walls=0)[0]["r1"]


def main():
    p = measurement.parser(__doc__)
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

    stamp = Stamp(__file__, settings_of(a), seeds=a.seeds)
    rows = []
    for drop in a.drop:
        r1 = [r1_of(a.story, seed, drop, a.changes) for seed in a.seeds]
        rows.append({"drop_own": drop, "r1": r1})
        each = " ".join(f"{x:.1%}" for x in r1)
        print(f"own key dropped in {drop:.0%} of the steps: R@1 {each}", flush=True)
    write_results(a.out, stamp.head() | {"recipe": RECIPE, "changes": a.changes, "rows": rows})


if __name__ == "__main__":
    main()
