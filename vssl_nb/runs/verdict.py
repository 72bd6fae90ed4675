"Did it learn, did it collapse, how much of it is background, and what next? An answer in plain words, without labels."

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from .. import show
from ..nets.backbones import create
from ..data.clips import collate
from ..training.distributed import is_main
from ..training.loop import read_json, write_json
from .evaluation import Trained, open_trained
from .pretraining import open_run, pretrain
from .parts import training_clips, training_views, view_options
from ..training.checkpoints import write_whole
from .fitting import STILL_PIXELS, fit_recipe, moving_share, verdict_seconds
from ..measure.health import UNCHANGED, FixedClips, Reordered, choose_videos, rankme, std
from ..training.machine import Machine, init_worker
from .own import open_data
from ..methods.recipes import Recipe, flat_fields, from_dict, override
from ..data.views import streams

def cosines(
    x:Tensor, # (N, D)
    y:Tensor, # (M, D)
)->Tensor: # (N, M) float64, from the middle of y
    "How alike features are, once what all have in common is taken out."
    mean = y.double().mean(0)
    return F.normalize(x.double() - mean, dim=1) @ F.normalize(y.double() - mean, dim=1).T

def found_again(
    q:Tensor, # (N, D) features of one clip of each video
    k:Tensor, # (N, D) of another clip of the same videos
)->Tensor: # (N,) float64: 1 where no clip of another video is as near; a tie is lost
    "Instance discrimination: is the nearest clip one of the same video?"
    sim = cosines(q, k)
    own = sim.diagonal()
    return ((sim >= own[:, None]).sum(1) == 1).double()

def alike(
    x:Tensor, # (N, D) of videos
)->Tensor: # (N*(N-1)/2,) float64
    "Similarities of all pairs of different videos."
    sim = cosines(x, x)
    i,j = torch.triu_indices(len(sim), len(sim), 1)
    return sim[i, j]

def explained(
    y:Tensor, # (P,) what is to be explained
    by:Sequence[Tensor], # (P,) each
)->float: # 0 (not at all) to 1 (entirely)
    "Share of the variance of `y` that a linear combination of others gives (R²)."
    if y.var(correction=0) < 1e-12: return 0.
    x = torch.stack([torch.ones_like(y), *by], 1)
    rest = y - x @ torch.linalg.lstsq(x, y[:, None]).solution[:, 0] if len(by) else y - y.mean()
    return float(min(1., max(0., 1 - rest.var(correction=0)/y.var(correction=0))))

def agreement(
    x:Tensor, # (N, D) features of videos
    y:Tensor, # (N, E) other features of the same videos
    k:int=5,
)->float: # 0 to 1
    "Of the k nearest videos by one kind of feature, the share that is among those by the other."
    near = [cosines(z, z).fill_diagonal_(-torch.inf).topk(k).indices for z in (x, y)]
    return float((near[0][:, :, None]==near[1][:, None, :]).double().sum((1, 2)).mean()/k)

def one_frame(
    clips:Tensor, # (N, 2, D) two moments of each video
    frozen:Tensor, # (N, 2, D) one frame of each moment, frozen
    k:int=5, # neighbours to look at; fewer where there are few videos
)->float|None: # 0 to 1; None where not even two moments of a video have the same neighbours
    "How much of its nearest neighbours an encoder would find without motion."
    if clips.var(0).sum() < 1e-12: return None # all the same
    if frozen.var(0).sum() < 1e-12: return 0. # differences of one frame: nothing is left
    n = len(clips)
    k = max(1, min(k, (n - 1)//4))
    chance = k/(n - 1)
    moving = agreement(clips[:, 0], clips[:, 1], k) - chance
    if moving < .1: return None
    still = (agreement(clips[:, 0], frozen[:, 1], k) + agreement(clips[:, 1], frozen[:, 0], k))/2 - chance
    return min(1., max(0., still/moving))

@torch.no_grad()
def _encode(encoder:nn.Module, x:Tensor)->Tensor: # (B, V, 3, T, H, W) -> (B, V, D) on the CPU
    return encoder(x.flatten(0, 1)).float().cpu().unflatten(0, x.shape[:2])

@dataclass
class _Seen:
    "Features of some videos; each (N, ...), in the order of `rows`."
    rows:list[int] # of the manifest
    trained:Tensor # (N, 2R, D) clips as in training, never drawn there: two of each of R draws
    random:Tensor # (N, S, 2R, D) by S networks with random weights
    plain:Tensor # (N, 2, D) the first and the last clip, unchanged
    plain_random:Tensor # (N, S, 2, D)
    still:Tensor|None # (N, 2, D) their middle frame, T times; None: not for flow
    still_random:Tensor|None # (N, S, 2, D)
    frames:Tensor # (N, H, W, 3) uint8, a middle frame
    moving:Tensor # (N,) share of the pixels that change

RANDOM = 2 # networks

def _chunks(t:Trained, rows:Sequence[int], draws:int, workers:int, epoch:int=10**6, size:int=16
    )->Iterator[tuple[list[int],dict]]:
    "Raw training clips of some videos at a time, from epochs that the training never reached."
    clips = training_clips(t.recipe, t.manifest)
    at = {r: i for i,r in enumerate(clips.rows)}
    parts = [rows[i:i+size] for i in range(0, len(rows), size)]
    keys = [[(epoch+d, at[r]) for d in range(draws) for r in part] for part in parts]
    batches = DataLoader(clips, batch_sampler=keys, num_workers=workers, collate_fn=collate,
        worker_init_fn=init_worker, generator=torch.Generator())
    yield from zip(parts, batches)

def _see(t:Trained, rows:Sequence[int], machine:Machine, seconds:float)->_Seen:
    "Encode videos, sixteen at a time, until the time is over; thirty-two at least."
    began,r,device,parts = time.monotonic(),t.recipe,machine.place(),list[_Seen]()
    draws = 2 if len(rows) > 64 else 4 # few videos are asked more often
    views,how = training_views(r),{k: v for k,v in view_options(r).items() if k != 'live'}
    nets = [t.encoder.to(device).eval()] + [create(r.backbone, seed=r.seed+s).to(device).eval()
        for s in range(RANDOM)]
    rgb = streams(r.view)==('clips',) and r.view in ('rgb', 'residual')
    clip = (2, r.sampling.length, r.sampling.stride, r.size, r.sampling.pad)
    for part,raw in _chunks(t, rows, draws, machine.workers):
        if raw.pop('bad'): continue # another video came in its place
        x = views({k: v.to(device) if isinstance(v, Tensor) else v for k,v in raw.items()})[r.view]
        pairs = [_encode(n, x).unflatten(0, (draws, len(part))).transpose(0, 1).flatten(1, 2) for n in nets]
        fixed = FixedClips(t.manifest, part, 'rgb' if rgb else r.view, *clip, **UNCHANGED if rgb else how)
        def plain(net, order='as-is'):
            return fixed.features(Reordered(net, order, r.view, **how) if rgb else net)[0]
        own,theirs = plain(nets[0]),torch.stack([plain(n) for n in nets[1:]], 1)
        if fixed.dropped: continue
        stills = [plain(n, 'static') for n in nets] if rgb else []
        bytes_ = torch.cat([b['clips' if 'clips' in b else 'flow'] for b in fixed.kept])
        parts.append(_Seen([*part], pairs[0], torch.stack(pairs[1:], 1), own, theirs,
            stills[0] if stills else None, torch.stack(stills[1:], 1) if stills else None,
            bytes_[:, 0, clip[1]//2], torch.tensor([moving_share(c[0].numpy()) for c in bytes_])))
        if time.monotonic() - began > seconds and sum(len(p.rows) for p in parts) >= 32: break
    if sum(len(p.rows) for p in parts) < 4:
        raise ValueError(f'{t.manifest.path}: fewer than four of its videos can be read, too few for a '
            'verdict')
    def join(name): return torch.cat([getattr(p, name) for p in parts])
    return _Seen(sum((p.rows for p in parts), []), join('trained'), join('random'), join('plain'),
        join('plain_random'), join('still') if rgb else None, join('still_random') if rgb else None,
        join('frames'), join('moving'))

def _hits(x:Tensor)->Tensor: # (N, 2R, D) -> (N,) mean over draws and directions
    pairs = [(x[:, 2*d], x[:, 2*d+1]) for d in range(x.shape[1]//2)]
    return torch.stack([found_again(a, b) for q,k in pairs for a,b in ((q, k), (k, q))]).mean(0)

def _kin(x:Tensor,
    source:Tensor)->Tensor: # (n,) for videos with a sibling: is the nearest other one a sibling?
    sim = cosines(x, x).fill_diagonal_(-torch.inf)
    has = ((source[:, None]==source).sum(1) > 1)
    return (source[sim.argmax(1)]==source)[has].double()

def _stills(s:_Seen)->dict[str,Tensor]: # what can be told from a single frame: (P,) each
    hist = torch.stack([torch.bincount((f.long()//64 @ torch.tensor([16, 4, 1])).flatten(), minlength=64)
        for f in s.frames]).double().sqrt()
    small = F.adaptive_avg_pool2d(s.frames.permute(0, 3, 1, 2).double(), 8).flatten(1)
    told = {'colours': alike(hist), 'picture': alike(small)}
    if s.still is not None and s.still.mean(1).var(0).sum() > 1e-12: told['frame'] = alike(s.still.mean(1))
    return told

def _numbers(t:Trained, s:_Seen)->dict[str,Any]:
    "Everything the verdict looks at."
    n,x = len(s.rows),s.plain.mean(1)
    mine,theirs = _hits(s.trained),torch.stack([_hits(r) for r in s.random.unbind(1)]).mean(0)
    gain,stills = mine - theirs,_stills(s)
    cos = F.normalize(x.double(), dim=1) @ F.normalize(x.double(), dim=1).T
    source = torch.tensor([t.manifest.source_id(r) for r in s.rows])
    label = torch.tensor([t.manifest.label_id(r) for r in s.rows])
    kin = _kin(x, source)
    numbers:dict[str,Any] = {'videos': n, 'trained_on': len(t.manifest.select('train', t.split)),
        'test_videos': sum(getattr(r, f'split{t.split}')=='test' for r in t.manifest.rows),
        'step': t.about['step'], 'found_again': float(mine.mean()),
        'found_again_random': float(theirs.mean()), 'gain': float(gain.mean()),
        'gain_error': float(gain.std()/math.sqrt(n)), 'chance': 1/n,
        'mean_cosine': float((cos.sum() - n)/(n*(n-1))), 'std': std(s.plain.flatten(0, 1)),
        'std_random': std(s.plain_random[:, 0].flatten(0, 1)),
        'rankme': rankme(s.plain.flatten(0, 1) - s.plain.flatten(0, 1).mean(0)) if n > 1 else 1.,
        'still_videos': float((s.moving < STILL_PIXELS).double().mean()),
        'plain_again': float(_hits(s.plain).mean()),
        'plain_again_still': None if s.still is None else float(_hits(s.still).mean()),
        'by_colours': explained(alike(x), [stills['colours']]),
        'by_a_frame': explained(alike(x), [*stills.values()])} | _frozen_numbers(s)
    random = [r.mean(1) for r in s.plain_random.unbind(1)]
    if len(kin): numbers |= {'siblings': len(kin), 'sibling_r1': float(kin.mean()),
        'sibling_r1_random': float(torch.stack([_kin(r, source).mean() for r in random]).mean())}
    return numbers | _label_numbers(x, random, label, source)

def _frozen_numbers(s:_Seen)->dict[str,float|None]:
    if s.still is None or s.still_random is None: return {'one_frame': None, 'one_frame_random': None}
    pairs = zip(s.plain_random.unbind(1), s.still_random.unbind(1))
    theirs = [v for clips,frozen in pairs if (v := one_frame(clips, frozen)) is not None]
    return {'one_frame': one_frame(s.plain, s.still),
        'one_frame_random': sum(theirs)/len(theirs) if theirs else None}

def _label_numbers(x, random, label, source)->dict[str,float]:
    from ..measure.health import knn_chance, knn_r1
    try: return {'label_r1': knn_r1(x, label, source), 'label_chance': knn_chance(label, source),
        'label_r1_random': sum(knn_r1(r, label, source) for r in random)/len(random)}
    except ValueError: return {} # not all have a label, or no class has two sources

LEARNED,COLLAPSED,MOSTLY_STILL,BY_A_FRAME = .05,.03,.8,.7 # see the page

@dataclass(frozen=True)
class Verdict:
    "What came of a run, in plain language, and the numbers behind it."
    learned:str # yes, a little, unclear, no
    collapsed:bool
    still:bool # do most of the videos not move?
    sentences:tuple[str,...] # what came out
    advice:tuple[str,...] # what to do next
    numbers:dict[str,Any]

    def __str__(self)->str:
        return '\n'.join(['Verdict', *(f'  {s}' for s in self.sentences), 'What next',
            *(f'  {s}' for s in self.advice)])

def _pct(x:float)->str: return f'{100*x:.0f} %'

def judge(
    numbers:dict[str,Any], # of `look`
    recipe:Recipe,
    finished:bool=True, # has the training come to its end?
)->Verdict:
    "From numbers to words."
    n = numbers
    collapsed = n['std'] < max(COLLAPSED, n['std_random']/3) or n['rankme'] < 1.5
    sure = n['gain'] > 2.6*n['gain_error']
    learned = 'no' if collapsed or n['gain'] < .02 else 'unclear' if not sure else 'yes' if \
        n['gain'] >= LEARNED else 'a little'
    still = n['still_videos'] >= MOSTLY_STILL
    said = [*_said_learned(n, learned, collapsed, finished), *_said_stills(n, still, recipe, collapsed),
        *_said_kin(n)]
    return Verdict(learned, collapsed, still, tuple(said), tuple(_advice(n, learned, collapsed, still, recipe,
        finished)), n)

def _said_learned(n:dict, learned:str, collapsed:bool, finished:bool)->Iterator[str]:
    task = (f"Of {n['videos']} videos, cut, recoloured and shown at another time than in training, it finds "
        f"{_pct(n['found_again'])} again; random weights find {_pct(n['found_again_random'])}, guessing "
        f"{_pct(n['chance'])}.")
    if collapsed:
        yield ('IT HAS COLLAPSED: it gives nearly the same feature for every video '
            f"(spread {n['std']:.3f} of 1, random weights {n['std_random']:.3f}; mean cosine "
            f"{n['mean_cosine']:.3f}). Do not use this encoder.")
        yield task
        return
    if learned=='yes': yield 'It learned. ' + task
    elif learned=='a little': yield 'It learned a little. ' + task
    elif learned=='unclear':
        yield ('It may have learned something, but so small a difference may be chance on so few videos. '
            + task)
    elif n['found_again_random'] > .9:
        yield 'It cannot be told whether it learned: the task is too easy for these videos. ' + task
    else: yield 'It did not learn: it is no better than random weights. ' + task
    yield f"It has not collapsed: its features use about {n['rankme']:.0f} directions, spread {n['std']:.2f}."
    if not finished: yield f"It is not finished: this is step {n['step']}."

def _said_stills(n:dict, still:bool, recipe:Recipe, collapsed:bool)->Iterator[str]:
    if still:
        yield (f"In {_pct(n['still_videos'])} of the videos nothing moves: whatever is learned here is about "
            'still pictures, and nothing about motion.')
    elif n['still_videos'] > .2: yield f"In {_pct(n['still_videos'])} of the videos nothing moves."
    if collapsed: return
    frame,random = n['one_frame'],n['one_frame_random']
    colours = f"The colours alone explain {_pct(n['by_colours'])} of its similarities."
    if frame is None: yield colours
    elif not frame and recipe.view=='residual':
        yield ('It sees differences of frames, and a frozen frame has none: what it calls alike moves, '
            f'though the outlines of what moves show things as well. {colours}')
    else:
        words = {.9: 'Nearly all', BY_A_FRAME: 'Most', .3: 'Some', -1.: 'Hardly any'}
        how = next(word for least,word in words.items() if frame >= least)
        told = '' if random is None else f' (random weights: {_pct(random)})'
        yield (f'{how} of what it calls alike, {_pct(frame)}, it would call alike from one frozen frame as '
            f'well{told}: by background, things and poses, which this cannot tell apart; the rest takes '
            f'motion. {colours}')
        if frame >= BY_A_FRAME and recipe.view=='rgb' and not still:
            yield ('That is usual for short trainings on plain frames, and no fault of these videos: it says '
                'that this encoder finds what looks alike, and not the same movement in another place.')

def _said_kin(n:dict)->Iterator[str]:
    if n.get('siblings', 0) >= 10:
        yield (f"The nearest other video is one of the same source for {_pct(n['sibling_r1'])} of the "
            f"{n['siblings']} that have one (random weights: {_pct(n['sibling_r1_random'])}).")
    if 'label_r1' in n:
        yield (f"The nearest video of another source has the same label for {_pct(n['label_r1'])} "
            f"(random weights: {_pct(n['label_r1_random'])}, guessing: {_pct(n['label_chance'])}); "
            'labels were not used in training.')

def _advice(n:dict, learned:str, collapsed:bool, still:bool, recipe:Recipe, finished:bool)->Iterator[str]:
    if still and recipe.view=='residual':
        yield 'Differences of frames are empty where nothing moves: train with --view rgb.'
    if still:
        yield 'For still pictures an encoder of images, made from millions of them, will serve you better.'
    elif collapsed:
        yield ('Train again with the method and the numbers of `own-videos`: collapse comes from a loss '
            'without negatives, a learning rate that is too high (try --lr 0.0003), or a temperature far '
            'from 0.1.')
    if collapsed or still: return
    if not finished: yield 'Go on with --resume, with more --minutes.'
    if learned in ('no', 'unclear'):
        yield (f"Give it more time (--minutes 60) or more videos (there were {n['trained_on']} here); "
            'a few hundred are a beginning, thousands are better.')
    if learned=='a little': yield 'More --minutes, and above all more videos, will take it further.'
    if (n['one_frame'] or 0.) >= BY_A_FRAME and recipe.view=='rgb':
        yield ('If you search for what happens, and not for where: train a second run with --view residual '
            'and compare both, or use them together (vssl-nb cotrain coclr-laptop).')
    if learned in ('yes', 'a little'):
        yield 'Look at it: vssl-nb search VIDEO --data FOLDER --encoder RUN --out wall.html'
        if 'label_r1' in n: yield 'Measure it: vssl-nb retrieve RUN, vssl-nb probe RUN' + (
            '.' if n['test_videos'] else ' (they need a test part: vssl-nb manifest FOLDER --split 0.2 '
            'before training).')

def give_verdict(
    run, # a run folder with an encoder
    data=None, # a manifest or its folder; None: the one it was trained on
    machine:Machine=Machine(),
    most:int=128, # videos to look at
    seconds:float=120., # after so many no further videos are looked at
)->Verdict:
    "Look at what a run has learned; verdict.json, verdict.txt and a picture are kept. `ValueError`."
    began,t = time.monotonic(),open_trained(run, data)
    rows = choose_videos(t.manifest, t.split, 'train', len(t.manifest.rows))
    rows = [rows[i] for i in np.random.default_rng(t.recipe.seed).permutation(len(rows))[:most]]
    seen = _see(t, rows, machine, seconds)
    found = judge(_numbers(t, seen), t.recipe, t.card['finished'])
    write_json(t.folder/'verdict.json', {'learned': found.learned, 'collapsed': found.collapsed,
        'still': found.still, 'sentences': found.sentences, 'advice': found.advice, 'numbers': found.numbers,
        'seconds': round(time.monotonic() - began, 1)})
    write_whole(t.folder/'verdict.txt', lambda f: f.write(f'{found}\n'.encode()))
    show.save_picture(_nearest(t, seen), t.folder/'figures'/'nearest-videos.png')
    return found

def _nearest(t:Trained, s:_Seen, n:int=6, k:int=4):
    "A few videos, and those that the encoder holds to be most like them."
    sim = cosines(s.plain.mean(1), s.plain.mean(1)).fill_diagonal_(-torch.inf)
    at = np.linspace(0, len(s.rows)-1, min(n, len(s.rows))).round().astype(int).tolist()
    near = sim[at].topk(min(k, len(s.rows)-1)).indices.tolist()
    return show.strips([s.frames[[i, *js]] for i,js in zip(at, near)], [t.manifest.rows[s.rows[i]].video
        for i in at])

def learn_own_videos(
    recipe:Recipe, # `own-videos`, perhaps with fields changed
    data, # a folder of videos, or a manifest
    out, # the run folder
    minutes:float=20., # for everything
    given:Set[str]=frozenset(), # fields that are to stay as they are in `recipe`
    resume:bool=False, # go on with the run that is there, with the numbers that were chosen for it
    machine:Machine=Machine(),
    health_every:int=0, # epochs from one look at the features to the next; 0: four to eight times in all
    say:Callable[[str],Any]=lambda text: print(text, file=sys.stderr), # told what was chosen, and why
    began:float|None=None, # time.monotonic() from which the minutes count; None: now
    **how, # of `experiments.pretrain`: init_from, accepted, ...
)->Verdict|None: # of the first process
    "Fit a recipe to a folder, a machine and a time; train it; say what came of it. `ValueError`."
    began,out = began or time.monotonic(),Path(out)
    manifest = open_data(data, machine.progress)
    if resume:
        stored = from_dict(read_json(out/'recipe.json', 'a run that could be resumed'),
            str(out/'recipe.json'))
        chosen = flat_fields(recipe)
        recipe = override(stored, **{k: chosen[k] for k in given if k in chosen})
    else:
        open_run(recipe, manifest, out, False) # before anything is measured
        recipe = fit_recipe(recipe, manifest, machine, minutes, given, began)
        if is_main():
            for line in recipe.reasons: say(line)
    every = health_every or max(1, recipe.learning.epochs//(8 if minutes >= 10 else 4))
    kept = verdict_seconds(minutes)
    pretrain(recipe, data, out, resume, machine, until=began + 60*minutes - kept, health_every=every, **how)
    left = 60*minutes - (time.monotonic() - began)
    return give_verdict(out, data, machine, seconds=max(kept/3, .7*left)) if is_main() else None
