"The first steps of any recipe at its full size, on a GPU that is not there."

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from ..nets.backbones import cost, create
from ..nets.heads import make_head
from .budget import FRACTION, GPUS, RESERVE, VIDEOS, Plan, Trace, fitting_videos
from .budget import plan, roofline, trace_training, worst_moment
from .parts import build_method, flow_is_live, lr_schedule, training_device, training_draw
from .parts import view_options
from .finetuning import FineTuning
from .parts import Parts, build
from .own import seconds_per_step
from ..training.machine import DTYPES, Machine, checkpoint_activations
from ..data.manifest import Manifest
from ..ssl.memory import Queue
from ..training.loop import make_optimizer
from .pretended_gpu import PretendedGPU
from ..methods.recipes import Recipe, find, override
from ..training.loop import ResumableBatchSampler, TrainingState, fit
from ..data.views import Views, streams, tvl1_live

FRAME = (240, 320) # height and width of the videos that the crops are drawn for, pixels

class BlankBatches:
    "Batches of blank clips, of the size and with the augmentations of a training; what `fit` goes through."
    def __init__(self,
        load:Sequence[str], # of `datasets.STREAMS`
        shape:tuple[int,int,int], # V, T and side of the clips
        draw:Callable[...,dict[str,Tensor]], # (rng, V, T, height, width) -> parameters, as `clips.draw`
        batch:int, # videos
        accumulate:int=1, # batches of one optimizer step
        steps:int=2, # optimizer steps
        classes:int=101, # of the labels
    ):
        self.load, self.shape, self.draw, self.classes = tuple(load), shape, draw, classes
        self.batch_sampler = ResumableBatchSampler(batch*accumulate*steps, batch, 1, accumulate=accumulate)
        self.dataset, self.pin = self, lambda x: x
        # one byte, shown as often as it takes; whoever wants other frames exchanges this
        self.frames:Callable[[tuple[int,...]],Tensor] = torch.zeros(1, dtype=torch.uint8).expand

    def note(self, bad): pass
    def __iter__(self)->Iterator[dict[str,Any]]: return map(self.make, self.batch_sampler)

    def make(self, keys:Sequence[tuple[int,int]])->dict[str,Any]: # as a loader gives it
        "One batch, as if it lay in pinned memory."
        B, (V,T,S), rng = len(keys), self.shape, np.random.default_rng([p for _,p in keys])
        sizes = {'clips': (B,V,T,S,S,3), 'flow': (B,V,T,S,S,3), 'pair': (B,V,2,T,S,S)}
        ids = torch.tensor([p for _,p in keys])
        numbers = {'label': ids % self.classes, 'source': ids, 'row': ids, 'index': ids}
        frames = {s: self.frames(sizes[s]) for s in self.load}
        drawn = default_collate([self.draw(rng, V, T, *FRAME) for _ in keys])
        return {k: self.pin(x.clone() if k in numbers else x) for k,x in (frames | numbers).items()} | {
            'augment': drawn, 'bad': []}

@dataclass(frozen=True)
class DryRun:
    "What was seen on the way."
    name:str # of the recipe or of the training
    operations:tuple[int,...] # that each step gave to the device, views of tensors counted
    learned:tuple[bool,...] # did the step have a loss?
    logs:tuple[str,...] # what the method reported in the last step

    def __str__(self):
        return f'{self.name}: {self.told}'

    @property
    def told(self)->str:
        n, on = ' and '.join(f'{o:,}' for o in self.operations), 'operations on the device'
        quiet = '' if all(self.learned) else ' (no loss in the first: a queue has to fill)'
        return (f'{len(self.operations)} steps with {n} {on}, every tensor in its place, '
            f'and the CPU never waited{quiet}; it reports {", ".join(self.logs)}')

def walk(
    name:str, # for the answer
    method:nn.Module, # moved to the pretended GPU in place
    make_optimizer:Callable[[nn.Module], torch.optim.Optimizer],
    views:Callable, # as in `fit`
    batches:BlankBatches,
    lr_at:Callable[[float],float]=lambda epoch: 1., # as in `fit`
    dtype:str='bfloat16', # of the forward pass, a key of `machine.DTYPES`
)->DryRun:
    "Train on a pretended GPU. WaitForDevice and WrongDevice name the line; other errors are those of a GPU."
    operations: list[int] = []
    learned: list[bool] = []
    with PretendedGPU(strict=False) as gpu:
        method.to('cuda')
        run, batches.pin = TrainingState(method, make_optimizer(method)), gpu.pin
        strict: Any = _Strict(batches, gpu)
        for result in fit(run, strict, views, lr_at, 'cuda', DTYPES[dtype]):
            gpu.strict = False
            operations.append(gpu.operations - sum(operations))
            learned.append(result.loss is not None)
            for m in method.modules():
                if isinstance(m, Queue): _fill(m)
            result.read()
            result.clock.read()
            gpu.strict = True
    return DryRun(name, tuple(operations), tuple(learned), tuple(result.logs))

class _Strict: # what `fit` is given: from the first batch on, nothing may wait
    def __init__(self, batches, gpu): self.batches, self.gpu = batches, gpu
    def __getattr__(self, name): return getattr(self.batches, name)
    def __iter__(self):
        self.gpu.strict, self.gpu.operations = True, 0
        yield from self.batches

def _fill(queue:Queue)->None:
    n = queue.size
    keys = {v: queue[v].clone() for v in queue.views}
    ids = torch.arange(n, device=queue.keys.device)
    queue.push(keys, label=ids, source=ids, row=ids)

def recipe_batches(recipe:Recipe)->BlankBatches:
    "Two steps of blank batches for a recipe."
    return BlankBatches(streams(recipe.views, flow_is_live(recipe)),
        (recipe.sampling.clips, recipe.sampling.length, recipe.size), training_draw(recipe),
        recipe.learning.batch, recipe.learning.accumulate)

def dry_run(
    recipe:Recipe,
    dtype:str='bfloat16', # of the forward pass, a key of `machine.DTYPES`
    activation_checkpointing:bool=False, # compute activations twice instead of keeping them
    videos:int=9537, # to train on: the size of a memory bank (UCF101, split 1)
)->DryRun:
    "The first two steps of a recipe at its full size. WaitForDevice and WrongDevice name the line."
    learning = recipe.learning
    method: Any = build_method(recipe, videos, videos)
    checkpoint_activations(method.encoder, activation_checkpointing)
    options = view_options(recipe)
    if flow_is_live(recipe): # one iteration of the solver is like the next
        options['live'] = partial(replace(tvl1_live, warps=1, inner=2), compiled=False)
    views = Views(recipe.views, **options, augmentation=recipe.augment.augmentation)
    def opt(m): return make_optimizer(m, learning.optimizer, learning.lr, learning.weight_decay,
        learning.sgd_momentum)
    return walk(recipe.name, method, opt, views, recipe_batches(recipe), lr_schedule(recipe), dtype)

def dry_run_finetuning(
    how:FineTuning,
    backbone:str='s3d', # a name of `backbones.BACKBONES`
    dtype:str='bfloat16', # of the forward pass, a key of `machine.DTYPES`
    classes:int=101, # of the head
    activation_checkpointing:bool=False, # compute activations twice instead of keeping them
)->DryRun:
    "The first two steps of a fine-tuning at its full size."
    parts, batches = _finetuning(how, backbone, classes, activation_checkpointing)
    return walk(how.name, parts.method, lambda m: parts.optimizer, Views(('rgb',)), batches, dtype=dtype)

def _finetuning(how:FineTuning, backbone:str, classes:int, checkpointing:bool)->tuple[Parts, BlankBatches]:
    recipe = how.recipe(replace(find('infonce-ucf101-rgb'), backbone=backbone))
    encoder: Any = create(backbone)
    networks = {'encoder': encoder}
    if how.method.mixture: networks['gaussian'] = make_head('gaussian', encoder.dim, None, 512)
    parts = build(recipe, VIDEOS['ucf101'], networks=networks, classes=classes)
    checkpoint_activations(encoder, checkpointing)
    batches = recipe_batches(recipe)
    batches.classes = classes
    return parts, batches

@lru_cache(64)
def _trace_finetuning(how:FineTuning, backbone:str, dtype:str, classes:int, checkpointing:bool)->Trace:
    parts, batches = _finetuning(how, backbone, classes, checkpointing)
    return trace_training(parts.method, lambda m: parts.optimizer, Views(('rgb',)), next(iter(batches)), dtype=dtype)

def plan_finetuning(
    how:FineTuning,
    backbone:str='s3d', # a name of `backbones.BACKBONES`
    dtype:str='bfloat16', # of the forward pass, a key of `machine.DTYPES`
    classes:int=101, # of the head
    videos:int=VIDEOS['ucf101'], # of the training part, those that will be held out included
)->Plan:
    "What a fine-tuning takes; two walks. ValueError where its optimizer does not exist."
    # as far as a step is concerned
    plain = override(how, name='', epochs=1, drops=(), lr=1., lr_encoder=1., selection='last', schedule='cosine')
    traces = [_trace_finetuning(plain, backbone, dtype, classes, again) for again in (False, True)]
    learned = videos - round(videos*how.share) if how.selection=='validation' else videos
    fits: Any = {gpu: tuple(max(0, min(fitting_videos(t, how.learning.batch, RESERVE.left(size)), learned))
        for t in traces) for gpu,size in GPUS.items()}
    plain_memory, again = (worst_moment(t).total/1e9 for t in traces)
    bound = float(roofline(traces[0], dtype=dtype).sum())
    return Plan(how.name, cost(create(backbone), (how.sampling.length, how.size, how.size)).flops/1e9,
        float(traces[0].flops.sum())/1e9, how.learning.batch, plain_memory, again, fits, bound,
        how.learning.epochs*(learned//how.learning.batch)*bound/FRACTION/3600)

@dataclass(frozen=True)
class Forecast:
    "What a training will do and take."
    what:str # what is trained on, in words
    walked:DryRun
    plan:Plan
    epochs:int
    videos:int|None # to learn from; None: nobody knows
    per_step:int # videos of an optimizer step
    dtype:str # of the forward pass
    here:float|None=None # seconds of a step on this machine, measured; None: not measured

    @property
    def steps(self)->int|None: # of the whole training
        return None if self.videos is None else self.epochs*(self.videos//self.per_step)

    def __str__(self):
        p, n = self.plan, self.steps
        known = f'{n//self.epochs:,} steps, {n:,} in all, on {self.videos:,} videos' if n is not None else \
            'as many steps as the videos make'
        fits = ', '.join(f'{a}{f" or {b}"*(a!=b)} ({gpu})' for gpu,(a,b) in p.batches.items())
        def whole(step): return '' if n is None else f', {_duration(n*step)} in all'
        bound = p.bound/FRACTION
        lines = [f'{self.walked.name}: {self.epochs} epochs of {known}, {self.per_step} to a step; '
            + self.what,
            f'first steps: {self.walked.told}',
            f'memory of a step in {self.dtype}: {p.memory:.2f} GB, {p.recomputed:.2f} with '
            f'--activation-checkpointing; largest batch: {fits}',
            f'time on an A100: {bound:.3f} s a step{whole(bound)} (computed: {p.step:,.0f} GFLOP, at '
            f'{FRACTION:.0%} of what its data sheet allows)']
        if self.here: lines.append(f'time here: {self.here:.3g} s a step{whole(self.here)} (measured)')
        return '\n'.join(lines)

def _duration(s:float)->str:
    if s < 100: return f'{s:.2g} s' if s < 10 else f'{s:.0f} s'
    return f'{s/60:.0f} minutes' if s < 6000 else f'{s/3600:,.1f} hours'

def forecast(
    recipe:Recipe,
    dtype:str='bfloat16', activation_checkpointing:bool=False, # as of `dry_run`
    videos:int|None=None, # to learn from; None: as many as the dataset of its name has
)->Forecast:
    "What a recipe will do and take. WaitForDevice and WrongDevice name the line that would wait or fail."
    learning, clip, known = recipe.learning, recipe.sampling, VIDEOS.get((recipe.name.split('-') + [''])[1])
    n = videos or known
    walked = dry_run(recipe, dtype, activation_checkpointing, n or VIDEOS['ucf101'])
    what = (f'{clip.clips} clips of {clip.length} frames (stride {clip.stride}) of {recipe.size} px, '
        f'{" and ".join(recipe.views)}; {recipe.backbone}, {recipe.method.name}; '
        f'{learning.optimizer}, learning rate {learning.lr:g}')
    return Forecast(what, walked, plan(recipe, dtype), learning.epochs, n,
        learning.batch*learning.accumulate, dtype)

def forecast_finetuning(
    how:FineTuning,
    backbone:str='s3d', dtype:str='bfloat16', # as of `dry_run_finetuning`
    classes:int=101, activation_checkpointing:bool=False, # likewise
    videos:int=VIDEOS['ucf101'], # of the training part, those that will be held out included
)->Forecast:
    "What a fine-tuning will do and take."
    walked = dry_run_finetuning(how, backbone, dtype, classes, activation_checkpointing)
    learned = videos - round(videos*how.share) if how.selection=='validation' else videos
    what = (f'{how.sampling.length} frames (stride {how.sampling.stride}) of {how.size} px; {backbone}, {classes} classes, '
        f'learns {how.method.learns}; {how.learning.optimizer}, learning rate {how.learning.lr:g}')
    return Forecast(what, walked, plan_finetuning(how, backbone, dtype, classes, videos), how.learning.epochs, learned,
        how.learning.batch, dtype)

CPU_GFLOP = 500 # of a step that is taken on a CPU to look at the clock: some ten seconds on two cores

def with_clock(
    seen:Forecast,
    recipe:Recipe, manifest:Manifest,
    machine:Machine=Machine(),
)->Forecast:
    "Take a few steps on this machine, and say how long one takes. Writes nothing."
    gpu = training_device(recipe, machine.device).type=='cuda'
    if not gpu and seen.plan.step > CPU_GFLOP: return seen
    return replace(seen, here=seconds_per_step(recipe, manifest, machine, 4.))
