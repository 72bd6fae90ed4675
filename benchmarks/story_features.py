"""What the networks of `benchmarks/story.py` make of the toy videos, kept small, for pictures of
lessons.

    python benchmarks/story_features.py --story runs/story --out results/story-features-21.safetensors

For InfoNCE on frames (where CoCLR begins, and after as many more steps), InfoNCE on differences
(which mines) and CoCLR on frames: features of the test videos, projections of the training
videos (what mining compares), and projections of two augmented clips of some training videos
(what the loss compares). As bytes, scaled by their largest absolute number, which is `scale` in
the metadata."""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from vssl_nb.runs.cotraining import contrastive_network, mining_candidates
from vssl_nb.runs.evaluation import open_trained
from vssl_nb.runs.parts import training_clips, view_options
from vssl_nb.training.machine import Machine
from vssl_nb.ssl.memory import l2_normalize
from vssl_nb.methods.recipes import find
from vssl_nb.training.loop import loader
from vssl_nb.data.views import Views

RUNS = {
    "begin": "infonce-toy-rgb",
    "longer": "infonce-toy-rgb-longer",
    "miner": "infonce-toy-residual",
    "coclr": "coclr-toy-rgb-cycle1",
}


@torch.inference_mode()
def pairs(home: Path, manifest, videos: int) -> dict[str, torch.Tensor]:
    """Projections (N, 128) of two clips each, as training draws them, in every network; and whose
    they are.
    """
    recipe = find(RUNS["coclr"])
    clips = training_clips(recipe, manifest)
    batch = next(iter(loader(clips, videos, 1, seed=0)))
    b = Views(("rgb", "residual"), **view_options(recipe))(batch)
    found = {"row": b["row"].int()}
    for who, run in RUNS.items():
        net, view = contrastive_network(home / run), find(run).view
        for n, clip in enumerate("qk"):
            found[f"{who}.{clip}"] = l2_normalize(net(b[view][:, n]))
    return {f"pair.{k}": v for k, v in found.items()}


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--story", type=Path, default=Path("runs/story"), help="its --folder")
    p.add_argument("--seed", type=int, default=21)
    p.add_argument("--videos", type=int, default=160, help="whose two clips are kept")
    p.add_argument("--out", type=Path, required=True, help="a .safetensors file")
    a = p.parse_args()
    torch.set_num_threads(1)
    home, quiet, found = a.story / f"seed{a.seed}", Machine("cpu", progress=False), {}
    for who, run in RUNS.items():
        t = open_trained(home / run)
        query, _ = t.pairs(t.protocol(), (t.split,), machine=quiet)[t.split]
        train = mining_candidates(home / run, machine=quiet)
        found |= {
            f"{who}.test": l2_normalize(query.x),
            f"{who}.train": train.x,
            "test.row": query.row.int(),
            "train.row": train.row.int(),
        }
    found |= pairs(home, t.manifest, a.videos)
    scale = {k: v.abs().max().item() for k, v in found.items() if v.is_floating_point()}
    kept = {
        k: (127 * v / scale[k]).round().to(torch.int8) if k in scale else v
        for k, v in found.items()
    }
    told = {"what": "benchmarks/story_features.py", "seed": str(a.seed), "scale": json.dumps(scale)}
    save_file({k: v.contiguous() for k, v in kept.items()}, a.out, told)
    print(f"{a.out}: {a.out.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
