"""Which distance finds videos of the same class, and when? (ProViCo, appendix Figure 1)

    python benchmarks/distances.py --seeds 21 22 23 --every 2 --out results/distances-toy.json
    python benchmarks/distances.py --data ucf101 --every 5 --set epochs=40 backbone=small size=64

Trains `provico-toy` (Bhattacharyya, threshold the mean distance of videos from themselves) and stops every so
many epochs. Each time the training videos become Gaussians, batches of as many videos of every class are
drawn, and each distance says who is a positive: nearer than its own mean self-distance (appendix Eq. 9).
Precision: the share of mined pairs that are of one class; recall: the share of pairs of one class that were
mined. All distances look at one network here, so that they differ in nothing else.

The paper trains on 11 classes of UCF101 (appendix B.2): ApplyEyeMakeup, Archery, BabyCrawling, BalanceBeam,
BandMarching, BaseballPitch, Basketball, BenchPress, Biking, GolfSwing, SkyDiving. `--data` takes a folder of
any labelled videos."""
import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from step import machine  # noqa: E402

from vssl_nb import toy  # noqa: E402
from vssl_nb.evaluation import open_trained  # noqa: E402
from vssl_nb.experiments import pretrain, view_options  # noqa: E402
from vssl_nb.gaussians import log_uncertainty  # noqa: E402
from vssl_nb.machine import Machine  # noqa: E402
from vssl_nb.manifest import Manifest, read  # noqa: E402
from vssl_nb.match_probability import draw_videos, gaussian_head, video_gaussians  # noqa: E402
from vssl_nb.methods.provico import DISTANCES, distances, positive_pairs  # noqa: E402
from vssl_nb.recipes import find, override  # noqa: E402

EACH, BATCHES, SAMPLES = 8, 20, 10 # videos of a class in a batch (appendix B.2); batches; K


def balanced(label: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    "Positions of as many videos of each class."
    return np.concatenate([rng.permutation(np.flatnonzero(label==c))[:EACH] for c in np.unique(label)])


def counts(distance: str, z, u, label) -> tuple[int, int, int]:
    "Pairs that were mined, that were mined rightly, and that are there, of one batch; each pair once."
    own = torch.eye(len(z), dtype=torch.bool)
    mined = positive_pairs(distances(z, z, u, u, own, distance), own, None).triu(1)
    right = (label[:, None]==label).triu(1)
    return int(mined.sum()), int((mined & right).sum()), int(right.sum())


def measured(out: Path, manifest: Manifest, rows: list[int], seed: int, how: Machine) -> dict:
    "Precision and recall of each distance for the encoder of a run as it stands."
    t = open_trained(out)
    head = gaussian_head(out/'encoder.safetensors')
    n = t.recipe.sampling.clips
    g = video_gaussians(t.encoder, head, manifest, rows, t.view, t.protocol('clean', clips=n), of=n,
        machine=how, **view_options(t.recipe))
    z, u, rng = draw_videos(g, SAMPLES, seed), log_uncertainty(g.s[:, 0]), np.random.default_rng(seed)
    batches = [torch.from_numpy(balanced(g.label.numpy(), rng)) for _ in range(BATCHES)]
    told = {}
    for distance in DISTANCES:
        mined, right, there = np.sum([counts(distance, z[i], u[i], g.label[i]) for i in batches], 0)
        told[distance] = {'mined': round(float(mined/BATCHES), 3), 'recall': round(float(right/there), 5),
            'precision': round(float(right/mined), 5) if mined else None}
    return told


def one_seed(root: Path, seed: int, data: Path | None, size: str, every: int, how: Machine, **changes
        ) -> dict:
    if data is None:
        data = root/'toy'
        if not (data/'manifest.csv').exists(): toy.make(data, size, seed=seed, progress=False)
    manifest = read(data)
    recipe = replace(override(find('provico-toy'), seed=seed, **changes), name='provico-distances')
    rows, out, epochs = manifest.select('train', recipe.split), root/'run', recipe.learning.epochs
    steps, lines = len(rows)//recipe.learning.batch, []
    for epoch in [*range(every, epochs, every), epochs]:
        pretrain(recipe, data, out, (out/'card.json').exists(), how, max_steps=epoch*steps)
        lines.append({'epoch': epoch} | measured(out, manifest, rows, seed, how))
        print(f'seed {seed}, epoch {epoch}: ' + ', '.join(
            f"{k} {x['precision'] or 0:.0%} of {x['mined']:.0f} pairs, recall {x['recall']:.0%}"
            for k, x in lines[-1].items() if k!='epoch'), flush=True)
    first = recipe.method.instance_stage*epochs
    return {'seed': seed, 'classes': sorted(manifest.labels), 'videos': len(rows),
        'mining_from_epoch': first, 'epochs': lines}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--seeds', nargs='+', type=int, default=[21, 22, 23])
    p.add_argument('--runs', type=Path, default=Path('runs/distances'), help='begun anew')
    p.add_argument('--data', type=Path, help='a folder with a manifest; without: the toy of each seed')
    p.add_argument('--every', type=int, default=2, help='epochs between two looks')
    p.add_argument('--size', default='demo', help='of the toy')
    p.add_argument('--set', nargs='*', default=[], help='of the recipe, such as epochs=4')
    p.add_argument('--out', type=Path, help='.json file')
    a = p.parse_args()
    changes = {k: int(v) if v.isdigit() else v for k, v in (s.split('=') for s in a.set)}
    how = Machine('cpu', workers=0, cache=4096, progress=False)
    told = {'what': 'benchmarks/distances.py', 'date': time.strftime('%Y-%m-%d'), 'machine': machine('cpu'),
        'recipe': 'provico-toy', 'changes': changes, 'seeds': []}
    for seed in a.seeds:
        told['seeds'].append(one_seed(a.runs/f'seed{seed}', seed, a.data, a.size, a.every, how,
            **changes))
        if a.out: a.out.write_text(json.dumps(told, indent=1) + '\n')


if __name__ == '__main__': main()
