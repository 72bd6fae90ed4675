"A recipe for your own videos: every number chosen from the videos, the machine and the minutes there are, and said why."

import math
import os
import statistics
import time
from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .parts import build_method, lr_schedule, training_clips, training_device, training_views
from ..training.machine import DTYPES, Machine, backend_settings
from ..data.manifest import Manifest
from ..training.loop import make_optimizer
from ..methods.recipes import Recipe, RecipeError, override
from ..training.loop import TrainingState, fit, loader
from ..data.video import VideoError, crop_resize

@dataclass(frozen=True)
class VideoFacts:
    "What the videos of a folder are like."
    videos:int # there are to train on
    frames:int # of all but the shortest tenth, at least
    fps:float # median frames per second; 0: no file says
    side:int # median of the shorter side, pixels
    still:float # share of the videos looked at in which nothing moves
    alike:float # how much a frame of one video looks like one of another: 0 not at all, 1 like its own

STILL_PIXELS, STILL_LEVELS = .002, 12. # share of pixels, of 255 levels: what changes less does not move

def moving_share(
    frames:np.ndarray, # (T, H, W, 3) uint8
)->float: # 0 (a still) to 1
    "Share of the pixels that change in the course of a clip."
    x = frames.astype(np.float32).mean(-1)
    return float((x.max(0) - x.min(0) > STILL_LEVELS).mean())

def _thumbnails(manifest:Manifest, row:int)->np.ndarray: # (4, 32, 32, 3) uint8, evenly spread
    n = manifest.rows[row].frames
    frames = manifest.decode(row, sorted({round(i*(n-1)/3) for i in range(4)}))
    side = min(frames.shape[1:3])
    box = ((frames.shape[1]-side)//2, (frames.shape[2]-side)//2, side, side)
    return crop_resize(frames, box, (32, 32)).numpy()

def look_at_videos(
    manifest:Manifest,
    rows:Sequence[int], # the training videos
    most:int=24, # videos to open, spread evenly
)->VideoFacts:
    "Lengths and sizes of all videos, and what moves in some."
    some = [rows[i] for i in np.linspace(0, len(rows)-1, min(most, len(rows))).round().astype(int)]
    seen = []
    for r in dict.fromkeys(some):
        with suppress(VideoError): seen.append(_thumbnails(manifest, r))
    table = [manifest.rows[r] for r in rows]
    frames = sorted(r.frames for r in table)
    return VideoFacts(len(rows), frames[len(frames)//10],
        statistics.median([r.fps for r in table if r.fps] or [0.]),
        int(statistics.median(min(r.width, r.height) for r in table)),
        sum(moving_share(x) < STILL_PIXELS for x in seen)/max(len(seen), 1), _likeness(seen))

def _likeness(seen:Sequence[np.ndarray])->float:
    "Distance of the frames of a video, against that of frames of different videos."
    if len(seen) < 2: return 0.
    x = [s.reshape(len(s), -1).astype(np.float64) for s in seen]
    def apart(a, b): return float(np.sqrt(((a - b)**2).mean()))
    own = [apart(v[0], v[-1]) for v in x if len(v) > 1]
    other = [apart(a[0], b[-1]) for i,a in enumerate(x) for b in x[i+1:]]
    return float(min(1., (np.median(own) if own else 0.)/max(np.median(other), 1e-9)))

def seconds_per_step(
    recipe:Recipe, manifest:Manifest,
    machine:Machine=Machine(),
    limit:float=8., # seconds to measure, after the first two steps
)->float: # of one optimizer step, decoding included
    "Take a few steps with a copy that is thrown away, and look at the clock."
    device,how = training_device(recipe, machine.device),recipe.learning
    clips = training_clips(recipe, manifest)
    epochs = math.ceil(40*how.batch*how.accumulate/len(clips)) + 1
    batches = loader(clips, how.batch, epochs, recipe.seed, how.accumulate, machine.workers,
        pin=device.type=='cuda')
    method = build_method(recipe, len(clips))
    run = TrainingState(method, make_optimizer(method, how.optimizer, how.lr, how.weight_decay,
        how.sgd_momentum))
    times = [time.monotonic()]
    steps:Any = fit(run, batches, training_views(recipe), lr_schedule(recipe), device, DTYPES[machine.dtype])
    with backend_settings(machine):
        for result in steps:
            result.read() # waits for the device
            times.append(time.monotonic())
            if len(times) > 3 and (times[-1] - times[2] > limit or len(times) > 40): break
    steps.close()
    took = np.diff(times)[2:] # the first ones wait for processes to start, or use what these have made ahead
    return float(np.mean(took))

def decoding_seconds(recipe:Recipe, manifest:Manifest, videos:int=12)->float: # per video, one core
    "How long one core takes to decode, cut and scale the clips of a video."
    clips = training_clips(recipe, manifest)
    began,asked = time.monotonic(),min(videos, len(clips))
    for i in range(asked): clips[0, i*len(clips)//asked]
    return (time.monotonic() - began)/asked

@dataclass
class _Fit:
    "A recipe on its way, and why each number is what it is."
    recipe:Recipe
    given:Set[str] # fields that somebody has said
    reasons:list[str]=field(default_factory=list)

    def take(self, why:str, **fields):
        "Choose fields, unless they were given."
        chosen = {k: v for k,v in fields.items() if k not in self.given}
        self.recipe = override(self.recipe, **chosen)
        names = ', '.join(f'{k}={fields[k]!r}' for k in fields if k in chosen)
        if names: self.reasons.append(f'{names}: {why}')

    def tell(self, why:str): self.reasons.append(why)

def _fit_clip(f:_Fit, facts:VideoFacts):
    "View, length and stride, from the videos."
    if facts.still >= .8: f.take(f'in {100*facts.still:.0f} % of the videos looked at nothing moves, so '
        'frame differences would be empty', view='rgb')
    elif facts.alike > .6: f.take('frames of different videos look nearly as alike as frames of one video (a '
        'fixed camera?), so what differs is the motion: the encoder sees differences of frames',
        view='residual')
    else: f.take('the videos look different from one another, and frames hold all of that; train another '
        'run with --view residual to learn from motion alone', view='rgb')
    fps = facts.fps or 25.
    wish = max(1, round(fps/12.5))
    fitting = [s for s in range(wish, 0, -1) if 15*s + 1 <= facts.frames]
    stride = fitting[0] if fitting else 1
    length = 16 if fitting else max(2, min(16, facts.frames))
    span = (length-1)*stride + 1
    f.take(f'a clip of {span} frames, {span/fps:.1f} s at {fps:g} frames a second; nine of ten videos have '
        f'{facts.frames} frames or more', length=length, stride=stride)

def _fit_crowd(f:_Fit, n:int, gpu:bool):
    "Batch and queue, from the number of videos."
    most = 32 if n < 128 else 64 if gpu and n >= 512 else 16
    batch = n//math.ceil(n/most) # so that few are left over at the end of an epoch
    f.take(f'{n} videos, {n//batch} steps an epoch, over which they are dealt out anew each time'
        if batch < n else f'all {n} videos in one step', batch=batch)
    batch = f.recipe.learning.batch
    queue = min(2048, n//2)//batch*batch if n >= 128 else 0
    if 'queue' not in f.given and hasattr(f.recipe.method, 'queue'):
        if queue: f.take(f'keys of earlier steps, of no more than half of the {n} videos: a longer queue '
            f"would hold a video's own older keys as its negatives (now {100*queue**2/(2*n*n):.0f} % of the "
            'time)', queue=queue)
        else: f.take(f'with {n} videos a queue would hold a video\'s own older keys as its negatives, so '
            f'each is compared with the {batch-1} others of its batch', queue=0)
    elif getattr(f.recipe.method, 'queue', 0) > n:
        f.tell(f'queue={f.recipe.method.queue} was asked for: with {n} videos each is its own negative about '
            f'{f.recipe.method.queue/n:.0f} times')

CPU_SIZES = (112, 96, 80, 64, 48) # pixels, for a CPU
TRAINED_SHARE = .9 # of the time for training that is filled; the rest is for looking at the features
ENOUGH_EPOCHS = 100 # more epochs than this are worth less than larger pictures
MOST_EPOCHS = 1000

def _fit_pixels(f:_Fit, facts:VideoFacts, manifest:Manifest, machine:Machine, gpu:bool, seconds:float
    )->float: # seconds of a step
    "Backbone and size, from the machine: the largest pictures with which there is time for enough epochs."
    backbone,first = ('s3d', 112) if gpu else ('small', 64)
    f.take('S3D, the network of the CoCLR paper: there is a GPU' if gpu else 'a small network, because there '
        'is no GPU', backbone=backbone)
    first = max(32, min(first, facts.side//16*16))
    per_epoch = max(1, facts.videos//(f.recipe.learning.batch*f.recipe.learning.accumulate))
    if 'size' not in f.given: f.recipe = override(f.recipe, size=first)
    step = seconds_per_step(f.recipe, manifest, machine, min(8., seconds/30))
    if gpu or 'size' in f.given:
        f.take('what this network is meant for', size=first)
        return step
    cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1
    videos = f.recipe.learning.batch*f.recipe.learning.accumulate
    decoding = min(.8*step, decoding_seconds(f.recipe, manifest)*videos/min(cores, machine.workers or 1))
    def epochs(size): return seconds/(per_epoch*(decoding + (step - decoding)*(size/first)**2))
    fitting = [s for s in CPU_SIZES if s <= max(facts.side, 48) and epochs(s) >= ENOUGH_EPOCHS]
    size = max(fitting) if fitting else 48 if first==64 and epochs(48) > 1.5*epochs(64) else first
    why = (f'the largest pictures with which there is time for {ENOUGH_EPOCHS} epochs' if fitting else
        'small pictures, so that there is time for more epochs' if size < first else
        'what this network is meant for; smaller pictures would save little time')
    f.take(f'{why} ({100*decoding/step:.0f} % of a step goes into decoding)', size=size)
    if size==first: return step
    return seconds_per_step(f.recipe, manifest, machine, min(8., seconds/30))

def verdict_seconds(minutes:float)->float:
    "What is kept of the minutes for the verdict at the end."
    return max(6*minutes, min(40., 15*minutes))

def fit_recipe(
    recipe:Recipe, # `own-videos`, perhaps with some fields changed
    manifest:Manifest,
    machine:Machine=Machine(),
    minutes:float=20., # for everything, to the verdict
    given:Set[str]=frozenset(), # fields that are to stay as they are
    began:float|None=None, # time.monotonic() from which the minutes count; None: now
)->Recipe: # with `reasons`
    "Choose what a folder, a machine and a time ask for; steps are taken to measure. `RecipeError`."
    if not (math.isfinite(minutes) and minutes > 0):
        raise RecipeError(f'--minutes {minutes:g}: must be above 0; 20 is a good beginning')
    began,rows = began or time.monotonic(),manifest.select('train', recipe.split)
    if len(rows) < 4:
        raise RecipeError(f'{manifest.path}: has {len(rows)} readable training videos, and learning by '
            'comparison needs at least 4 (better 100 and more); add videos')
    gpu = training_device(recipe, machine.device).type=='cuda'
    f,facts = _Fit(recipe, set(given)),look_at_videos(manifest, rows)
    _fit_clip(f, facts)
    _fit_crowd(f, len(rows), gpu)
    def left(): return TRAINED_SHARE*(60*minutes - verdict_seconds(minutes) - (time.monotonic() - began))
    step = _fit_pixels(f, facts, manifest, machine, gpu, max(1., left()))
    seconds = left()
    how = f.recipe.learning
    per_epoch = max(1, len(rows)//(how.batch*how.accumulate))
    epochs = max(1, min(MOST_EPOCHS, int(seconds/(per_epoch*step))))
    f.take(f'{per_epoch} steps of {step:.2f} s an epoch (measured), in {max(seconds, 0)/60:.1f} of the '
        f'{minutes:g} minutes'
        if epochs < MOST_EPOCHS else 'more would not help so few videos', epochs=epochs)
    _fit_schedule(f, per_epoch)
    return override(f.recipe, reasons=tuple(f.reasons))

def _fit_schedule(f:_Fit, per_epoch:int):
    "Warm-up and momentum, from the number of steps."
    epochs = f.recipe.learning.epochs
    steps = epochs*per_epoch
    f.take('a twentieth of the epochs in which the learning rate climbs', warmup=round(epochs/20, 2))
    if not hasattr(f.recipe.method, 'momentum'): return
    momentum = round(min(.99, max(.9, 1 - 10/steps)), 3)
    f.take(f'the slow encoder follows within a tenth of the {steps} steps', momentum=momentum)
