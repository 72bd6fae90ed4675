"""What IIC is worth on the toy: three seeds, equal steps, its released quirks one by one, and a miner in it.

For each seed (of the videos, the weights and the order): a random encoder, IIC as released, with features of
length 1, with a gradient to the broken clips besides and the own row left out where it is drawn again (the
recipe `iic-toy`), the same without broken clips, and with positives that CPR's cascade mines, 1 to 5 of them
or 5 throughout. All take the steps of `iic-toy`, from the same weights, on the same clips. Each encoder is
measured by retrieval on test videos (clean protocol) on frames, on differences, and on both features side by
side, as IIC joins them. InfoNCE on the same seeds is in `results/infonce-toy.json`.

    python benchmarks/iic.py --seeds 10 11 12 --out results/iic-toy.json

The recipe was chosen on other seeds. What was started and killed goes on with the same command."""
import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch.nn import functional as F

import vssl_nb
from vssl_nb import toy
from vssl_nb.datasets import VideoCache
from vssl_nb.experiments import (build_method, clean_protocol, lr_schedule, training_clips, training_views,
    view_options)
from vssl_nb.features import extract
from vssl_nb.machine import Machine, keep_memory
from vssl_nb.manifest import read
from vssl_nb.optim import optimizer
from vssl_nb.recipes import find, override
from vssl_nb.retrieval import chance, histogram, retrieval_recall
from vssl_nb.train import TrainingState, fit, loader

RELEASED = dict(normalise=False, intra_gradient=False, mask_own=False)
CASCADE = dict(miner='cascade', miner_options=['stages=3', 'ratio=0.5', 'order=paper'])
LEARNERS = { # changes of the recipe
    'random': {}, 'released': RELEASED, 'length 1': RELEASED | dict(normalise=True),
    'iic': {}, 'not broken': dict(intra=None), 'cascade, 1 to 5': CASCADE | dict(topk=[1, 2, 3, 4, 5]),
    'cascade, 5': CASCADE | dict(topk=[5])}
VIEWS = ('rgb', 'residual')


def measured(encoder, manifest, recipe, cache) -> dict:
    "R@1 on each view, and on both side by side."
    def see(view, part):
        found = extract(encoder.eval(), manifest, part, recipe.split, view,
            replace(clean_protocol(recipe), clips=3), machine=Machine('cpu', cache=cache, progress=False),
            **view_options(recipe))
        return replace(found, x=F.normalize(found.x, dim=1))
    seen = {v: [see(v, part) for part in ('test', 'train')] for v in VIEWS}
    seen['both'] = [replace(a, x=torch.cat([a.x, b.x], 1)) for a, b in zip(*seen.values())]
    return {v: retrieval_recall(*f)[1] for v, f in seen.items()}


def row(name: str, seed: int, manifest, cache, changes: dict) -> dict:
    "Train (all but the random encoder), measure."
    recipe = override(find('iic-toy'), seed=seed, **LEARNERS[name], **changes)
    began, clips = time.process_time(), training_clips(recipe, manifest, cache)
    method, learning, logs = build_method(recipe, len(clips), len(manifest)), recipe.learning, [{}]
    run = TrainingState(method, optimizer(method.parameters(), learning.optimizer, learning.lr,
        learning.weight_decay, learning.sgd_momentum))
    if name != 'random':
        batches = loader(clips, learning.batch, learning.epochs, recipe.seed)
        logs = [tick.read() for tick in fit(run, batches, training_views(recipe), lr_schedule(recipe))]
    seconds = time.process_time() - began
    last = {k: statistics.fmean(x[k] for x in logs[-20:])
        for k in ('loss', 'top1', 'intra', 'norm', 'mined', 'cmr') if k in logs[-1]}
    return {'name': name, 'r1': measured(method.encoder, manifest, recipe, cache), 'steps': run.step, **last,
        'cpu_seconds': round(seconds, 1)}


def of_seed(seed: int, size: str, changes: dict, done: list[dict], keep, names) -> None:
    "All rows of one seed; those that are there already are not made again."
    with tempfile.TemporaryDirectory() as folder:
        manifest, have = read(toy.make(folder, size, seed, progress=False)), {r['name'] for r in done}
        cache = VideoCache(manifest, 2**31)
        if 'histogram' not in have:
            colours = [histogram(manifest, p, machine=Machine(progress=False)) for p in ('test', 'train')]
            guess = chance(*(c.label for c in colours))[1]
            done += [{'name': 'chance', 'r1': dict.fromkeys(VIEWS, guess)},
                {'name': 'histogram', 'r1': {'rgb': retrieval_recall(*colours)[1]}}]
            keep()
        for name in names:
            if name in have: continue
            done.append(row(name, seed, manifest, cache, changes))
            print(f'seed {seed}, {name}:', {v: f'{x:.1%}' for v, x in done[-1]['r1'].items()}, flush=True)
            keep()


def summary(seeds: list[dict]) -> list[dict]:
    "One line for each learner and view: mean and range of R@1, and the means of what was logged."
    lines: dict[str, list[dict]] = {}
    for s in seeds:
        for r in s['rows']: lines.setdefault(r['name'], []).append(r)
    out = []
    for name, rows in lines.items():
        logs = {k: statistics.fmean(r[k] for r in rows) for k in ('loss', 'intra', 'norm', 'mined', 'cmr')
            if k in rows[0]}
        for v in rows[0]['r1']:
            r1 = [r['r1'][v] for r in rows]
            out.append({'name': name, 'view': v, 'r1': statistics.fmean(r1), 'lowest': min(r1),
                'highest': max(r1), 'seeds': len(r1), **logs})
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--seeds', type=int, nargs='+', default=[10, 11, 12])
    p.add_argument('--size', default='demo', choices=['tiny', 'demo'])
    p.add_argument('--changes', type=json.loads, default={}, help='fields to change everywhere, as JSON')
    p.add_argument('--names', nargs='+', default=list(LEARNERS), choices=list(LEARNERS))
    p.add_argument('--out', required=True, help='a .json file for the results')
    a = p.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    out = Path(a.out)
    where = {'cpu': platform.processor() or platform.machine(), 'cores': os.cpu_count(), 'threads': 1,
        'platform': platform.platform(), 'python': platform.python_version(), 'torch': torch.__version__,
        'vssl_nb': vssl_nb.__version__}
    recipe = asdict(override(find('iic-toy'), **a.changes))
    head = {'what': 'benchmarks/iic.py', 'date': time.strftime('%Y-%m-%d'), 'machine': where,
        'recipe': recipe, 'learners': LEARNERS}
    before = json.loads(out.read_text()) if out.exists() else {}
    same = before.get('recipe') == json.loads(json.dumps(recipe))
    seeds = [s for s in before.get('seeds', []) if same and s['seed'] in a.seeds]

    def keep():
        found = head | {'seeds': seeds, 'summary': summary(seeds)}
        out.write_text(json.dumps(found, indent=1) + '\n')
    for seed in a.seeds:
        mine = next((s for s in seeds if s['seed'] == seed), None)
        if mine is None: seeds.append(mine := {'seed': seed, 'rows': []})
        of_seed(seed, a.size, a.changes, mine['rows'], keep, a.names)
        keep()
    for r in summary(seeds):
        print(f"{r['name']:>16} {r['view']:<9} R@1 {r['r1']:.1%} ({r['lowest']:.1%} to {r['highest']:.1%})")


if __name__ == '__main__': main()
