"What would a finished run mine, with any miner, and how much of it is right?"

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..training.checkpoints import write_whole
from .cotraining import mining_candidates
from .evaluation import open_trained
from ..measure.features import Features
from ..training.machine import Machine
from ..ssl.mining import ClassMiningRecall, make_miner, mine
from ..papers.report import table
from ..training.loop import TrainError

@dataclass(frozen=True)
class MiningQuality:
    "What a miner found among the training videos, held against their labels."
    miner:str # as it was asked for
    views:tuple[str,...] # whose features it compared, the mining view first
    candidates:int # N, videos that were searched
    k:int # taken for each video
    # 0 to 1: share of what was mined that has the class of its query (CPR, Eq. 3); NaN without labels
    pmr:float
    r1:float # 0 to 1: how often the nearest of what was mined has it
    rk:float # 0 to 1: how often at least one of the k has it
    class_cmr:dict[str,float] # class -> 0 to 1: share of its instances that were taken rightly (CPR, Eq. 5)
    unit:str # what an instance is: 'source', a recording (the paper), or 'video'

    @property
    def cmr(self)->float: # 0 to 1; NaN without labels
        "The median of the class mining recall over the classes."
        values = torch.tensor([*self.class_cmr.values()], dtype=torch.float64)
        return values.quantile(.5).item() if len(values) else float('nan')

    @property
    def whole(self)->int:
        "Classes of which every instance was found."
        return sum(v==1 for v in self.class_cmr.values())

def compare_classes(
    one:MiningQuality, other:MiningQuality, # of the same videos
)->dict[str,list[str]]: # 'won', 'lost' and 'tied': classes, by class mining recall
    "In which classes the one mines more of the instances than the other (CPR, appendix B.1)."
    if one.class_cmr.keys()!=other.class_cmr.keys() or one.unit!=other.unit:
        raise ValueError('these were measured on other classes, or count other instances: '
            'measure both on the same videos')
    found:dict[str,list[str]] = {'won': [], 'lost': [], 'tied': []}
    for name,v in one.class_cmr.items():
        w = other.class_cmr[name]
        found['won' if v > w else 'lost' if v < w else 'tied'].append(name)
    return found

class _Candidates: # as a memory
    def __init__(self, found:Features, rows:Tensor): # rows: positions in `found`
        self.label, self.source, self.row = (x[rows] for x in (found.label, found.source, found.row))

def _searched(N:int, memory:int|None, seed:int)->Tensor: # positions, in order
    if memory is None: return torch.arange(N)
    if not 1 <= memory <= N:
        raise ValueError(f'memory={memory}: there are {N} training videos to search, so use 1 to {N}')
    return torch.randperm(N, generator=torch.Generator().manual_seed(seed))[:memory].sort().values

@torch.inference_mode()
def measure_mining(
    networks:Mapping[str,Features], # view -> features of the same videos, unit length; the mining view first
    labels:Sequence[str], # class names; `Features.label` counts them
    miner:Callable, # (sims, excluded) -> (B, N) bool, such as `TopK` or `Cascade`
    name:str='', # of the miner, for tables
    memory:int|None=None, # so many of the videos are searched, drawn once; None: all. A queue is that small
    unit:str='source', # what an instance of a class is: a recording (the paper) or a 'video'
    same_source:str='positive', # as in a training: 'positive' (siblings are known), 'negative' or 'ignored'
    seed:int=0, # of the draw
)->MiningQuality:
    "Let every video mine among the others. Videos of its own recording are no hits. `ValueError`."
    first, *others = networks.values()
    if any(not torch.equal(first.row, f.row) for f in others):
        raise ValueError('the networks have looked at different videos: take `mining_networks`')
    N, searched = len(first), _searched(len(first), memory, seed)
    kept, z = _Candidates(first, searched), {v: f.x[searched].T for v,f in networks.items()}
    cmr = ClassMiningRecall(1 + max(int(x.max()) for x in (first.row, first.source, first.label)))
    cmr.label[first.row], cmr.source[first.row] = first.label, first.source # also of those not searched
    nearest = hits = asked = told_by = taken = 0
    for rows in torch.arange(N).split(max(1, 2**25//len(searched)//len(networks))): # 128 MiB at a time
        sims = {v: f.x[rows] @ z[v] for v,f in networks.items()}
        found = mine(miner, sims, first.source[rows], kept.source, same_source=same_source).others
        label = first.label[rows]
        cmr.update(found, label, kept)
        told = found & (label[:,None] >= 0) & (kept.label >= 0)
        right = told & (label[:,None]==kept.label)
        hits, told_by = hits + int(right.any(1).sum()), told_by + int(told.any(1).sum())
        best = next(iter(sims.values())).masked_fill(~found, -torch.inf).argmax(1)
        can = told.gather(1, best[:,None])[:,0]
        nearest, asked = nearest + int((can & (kept.label[best]==label)).sum()), asked + int(can.sum())
        taken = max(taken, int(found.sum(1).max()))
    def share(a, b): return a/b if b else float('nan')
    recall = cmr.per_class(unit).tolist()
    return MiningQuality(name or type(miner).__name__, tuple(networks), len(searched), taken,
        share(int(cmr.right.sum()), int(cmr.taken.sum())), share(nearest, asked), share(hits, told_by),
        {n: v for n,v in zip(labels, recall) if not math.isnan(v)}, unit)

def mining_networks(
    run, # folder of the run that learns
    mining=None, # folder of the run that mines; None: the one it was trained with, if any, else itself
    data=None, # a manifest or its folder; None: the one it was trained on
    machine:Machine=Machine(), # where to compute
)->tuple[dict[str,Features],list[str]]: # view -> features of the same videos, mining view first; class names
    "What the networks of finished runs compare; kept in the run folders. `ValueError`."
    t = open_trained(run, data)
    if mining is None and 'sampler' in t.card.get('given', {}):
        mining = Path(t.card['given']['sampler']['run'])
        if not (mining/'recipe.json').exists():
            raise TrainError(f'{run}: the run that mined for it, {mining}, is not there any more; '
                'say where it is with --mining')
    alone = len(t.recipe.networks)==1
    views = t.recipe.views if alone else (t.view,) # one network may look at several
    asked:list[tuple[Any,str]] = [(run, v) for v in (*views[1:], t.view)]
    if mining is not None: asked = [(mining, open_trained(mining, t.manifest.path).view), (run, t.view)]
    found:dict[str,Features] = {}
    for folder,view in asked:
        if view in found:
            raise TrainError(f'{run} and {mining} both look at {view}: give --mining a run of another view')
        found[view] = mining_candidates(folder, t.manifest.path, machine, view)
    both = torch.stack([torch.isin(torch.arange(len(t.manifest)), f.row) for f in found.values()]).all(0)
    return {v: _only(f, both[f.row]) for v,f in found.items()}, t.manifest.labels

def _only(f:Features, keep:Tensor)->Features: # videos that every network could read
    return replace(f, x=f.x[keep], label=f.label[keep], row=f.row[keep], source=f.source[keep])

def miner_from_words(
    words:str, # 'topk', 'cascade,stages=7,order=paper', or 'package.module:name,option=value'
    k:int=5, # positives to mine for each video
)->Callable:
    "A miner and its options as one word of the command line. `ValueError`."
    name, *options = words.split(',')
    return make_miner(name, k, tuple(options))

def compare_miners(
    networks:Mapping[str,Features], # of `mining_networks`
    labels:Sequence[str], # class names
    miners:Sequence[str]=('topk', 'cascade'), # as `miner_from_words` reads them
    k:int=5, # positives to mine for each video
    **how, # of `measure_mining`: memory, unit, same_source, seed
)->list[MiningQuality]: # in the order of `miners`
    "Measure several miners on the same features. `ValueError`."
    made = [miner_from_words(m, k) for m in miners] # a wrong word is refused before anything is computed
    if not any((f.label >= 0).any() for f in networks.values()):
        raise ValueError('no training video has a label, so nobody can say what was mined rightly; '
            'fill in the column label of the manifest')
    return [measure_mining(networks, labels, miner, name, **how) for miner,name in zip(made, miners)]

def quality_table(
    found:Sequence[MiningQuality],
    form:str='text', # of `report.TABLE_FORMS`
)->str:
    "A line for each miner; the classes are compared with those of the first."
    rows = []
    for q in found:
        against = compare_classes(q, found[0])
        rows.append({'miner': q.miner, 'views': ' + '.join(q.views), 'k': q.k, 'mined': q.pmr, 'r1': q.r1,
            'rk': q.rk, 'cmr': q.cmr, 'whole': f'{q.whole} of {len(q.class_cmr)}'} |
            ({} if q is found[0] else {'against': ', '.join(f'{n} {len(c)}' for n,c in against.items())}))
    heads = {'miner': 'miner', 'views': 'views', 'k': 'k', 'mined': 'PMR %', 'r1': 'R@1 %', 'rk': 'R@k %',
        'cmr': 'CMR %',
        'whole': 'classes at 100 %', 'against': 'classes against the first'}
    return table(rows, form, heads if len(found) > 1 else {k: h for k,h in heads.items() if k!='against'})

def write_quality(
    out:Path, # .json: all; .csv: a line for each class
    found:Sequence[MiningQuality],
)->Path:
    "Keep what was measured, class by class."
    if out.suffix=='.json':
        whole = json.dumps([asdict(q) | {'cmr': q.cmr} for q in found], indent=1)
        return write_whole(out, lambda f: f.write(whole.encode()))
    text = io.StringIO()
    lines = csv.writer(text, lineterminator='\n')
    lines.writerow(['class', *(f'CMR of {q.miner}' for q in found)])
    for name in found[0].class_cmr: lines.writerow([name, *(q.class_cmr[name] for q in found)])
    return write_whole(out, lambda f: f.write(text.getvalue().encode()))
