"""What the networks of `benchmarks/story.py` make of the toy videos, kept small, for pictures of
lessons.

    python benchmarks/story_features.py --story runs/story \\
        --out results/story-features-21.safetensors

For InfoNCE on frames (where CoCLR begins, and after as many more steps), InfoNCE on differences
(which mines) and CoCLR on frames: features of the test videos, projections of the training
videos (what mining compares), and projections of two augmented clips of some training videos
(what the loss compares). As bytes, scaled by their largest absolute number, which is `scale` in
the metadata."""

import json
from pathlib import Path

import measurement
import torch
from result_files import Stamp
from safetensors.torch import save_file
from torch import Tensor

from vssl_nb.data.manifest import Manifest
from vssl_nb.data.views import Views
from vssl_nb.methods.recipes import find
from vssl_nb.runs.cotraining import contrastive_network, mining_candidates
from vssl_nb.runs.evaluation import open_trained
from vssl_nb.runs.experiment import resolve
from vssl_nb.ssl.memory import l2_normalize
from vssl_nb.training.loop import loader
from vssl_nb.training.machine import Machine

RUNS = {
    "begin": "infonce-toy-rgb",
    "longer": "infonce-toy-rgb-longer",
    "miner": "infonce-toy-residual",
    "coclr": "coclr-toy-rgb-cycle1",
}


@torch.inference_mode()
def pairs(home: Path, manifest: Manifest, videos: int) -> dict[str, Tensor]:
    """Projections (N, 128) of two clips each, as training draws them, in every network; and whose
    they are.
    """
    recipe = find(RUNS["coclr"])
    experiment = resolve(recipe, manifest)
    raw = next(iter(loader(experiment.clips, videos, 1, seed=0)))
    batch = Views(("rgb", "residual"), **experiment.view_options)(raw)

    tensors = {"pair.row": batch["row"].int()}
    for name, run in RUNS.items():
        network, view = contrastive_network(home / run), find(run).view
        for i, clip in enumerate("qk"):
            tensors[f"pair.{name}.{clip}"] = l2_normalize(network(batch[view][:, i]))
    return tensors


def as_bytes(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, float]]:
    "Numbers as bytes, and the largest absolute number of each tensor; whole numbers stay."
    small, scale = {}, {}
    for name, x in tensors.items():
        if x.is_floating_point():
            scale[name] = x.abs().max().item()
            x = (127 * x / scale[name]).round().to(torch.int8)
        small[name] = x.contiguous()
    return small, scale


def main():
    p = measurement.parser(__doc__)
    p.add_argument("--story", type=Path, default=Path("runs/story"), help="its --folder")
    p.add_argument("--seed", type=int, default=21)
    p.add_argument("--videos", type=int, default=160, help="whose two clips are kept")
    p.add_argument("--out", type=Path, required=True, help="a .safetensors file")
    a = p.parse_args()
    torch.set_num_threads(1)

    home, quiet = a.story / f"seed{a.seed}", Machine("cpu", progress=False)
    tensors: dict[str, Tensor] = {}
    for name, run in RUNS.items():
        t = open_trained(home / run)
        query, _ = t.pairs(t.protocol(), (t.split,), machine=quiet)[t.split]
        train = mining_candidates(home / run, machine=quiet)
        tensors[f"{name}.test"] = l2_normalize(query.x)
        tensors[f"{name}.train"] = train.x
        tensors["test.row"] = query.row.int()
        tensors["train.row"] = train.row.int()
    tensors |= pairs(home, t.manifest, a.videos)

    small, scale = as_bytes(tensors)
    stamp = Stamp(__file__, {"seed": a.seed, "videos": a.videos}).head()
    metadata = {"what": stamp.pop("what"), "seed": str(a.seed), "scale": json.dumps(scale)}
    save_file(small, a.out, metadata | {"stamp": json.dumps(stamp)})
    print(f"{a.out}: {a.out.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
