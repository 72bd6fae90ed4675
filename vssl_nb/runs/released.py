"A file of CoCLR, CPR or IIC is measured, trained on and given back, as if it had been made here."

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from ..nets.backbones import BACKBONES
from ..training.checkpoints import (CheckpointError, Released, export_encoder, load_released, method_state,
    optimizer_state, read_encoder, read_heads, save, save_released)
from ..training.distributed import is_main, start
from ..training.loop import run_folder, write_json
from .evaluation import measure_encoder
from .pretraining import begin, export_run, open_folder
from .parts import training_device, view_options
from .hub import save_pretrained
from ..training.machine import Machine
from ..data.manifest import open_data
from ..measure.protocols import Protocol
from ..methods.recipes import Recipe, RecipeError, difference, find, from_dict
from ..training.loop import TrainError, TrainingState, batch_order

def released_views(
    r:Released, # its view is known
)->dict[str,Any]: # arguments of `Views`, besides its names
    "What the network of a released file was shown (released code b8, b11)."
    if r.method!='iic': return {}
    return view_options(find('iic-ucf101-residual'))

def clip_of(
    r:Released,
)->dict[str,Any]: # fields of a protocol, and of an encoder's file
    "The clip that its backbone is meant for."
    length, size, _ = BACKBONES[r.backbone].clip
    return {'length': length, 'size': size}

def measure_released(
    path, # a released file
    data, # a manifest, its file or its folder
    protocol:str|Protocol='coclr_official', # of `protocols.PROTOCOLS`, or 'package.module:name'
    view:str|None=None, # None: what the file says
    name:str='', # what tables call it; '': the file's name
    fields:Mapping[str,Any]|None=None, # what to change in the protocol
    **how, # of `evaluation.measure_encoder`: splits, out, with_baselines, batch, machine, …
)->list[dict[str,Any]]: # the rows of results.json, baselines first
    "Retrieval with the encoder of a released file. `ValueError`."
    r = load_released(path, view)
    clip = clip_of(r) if protocol=='clean' else {}
    encoder: Any = r.encoder
    return measure_encoder(encoder, data, name or Path(path).name.split('.')[0], protocol, r.ask_view(),
        fields=clip | dict(fields or {}), **how, **released_views(r))

def recipe_within(
    r:Released, # that `save_released` made of a run
)->Recipe:
    "The recipe that a file carries; RecipeError where there is none, or one that names code of others."
    text = r.run.get('recipe')
    if not isinstance(text, str):
        raise RecipeError(f'{r.path}: carries no recipe; say which one with --recipe')
    try: data = json.loads(text)
    except ValueError as e:
        raise RecipeError(f'{r.path}: the recipe in it is damaged; say which one with --recipe') from e
    def words(x):
        if isinstance(x, dict): yield from (w for k,v in x.items() if k!='about' for w in words(v))
        elif isinstance(x, list): yield from (w for v in x for w in words(v))
        elif isinstance(x, str): yield x
    if foreign := next((w for w in words(data) if ':' in w), None):
        raise RecipeError(f'{r.path}: its recipe names {foreign!r}, code that is not of this library; say '
            'which recipe to use with --recipe')
    return from_dict(data, str(r.path))

def refuse_other(r:Released, recipe:Recipe)->None:
    "Refuse a recipe that is no continuation of the file. `TrainError`."
    settings: Any = recipe.method
    name = settings.name if settings.name!='coclr' or getattr(settings, 'miner', '')!='cascade' else 'cpr'
    queue = r.queues['queue'].shape[1] if 'queue' in r.queues else None
    for what,was,now in (('method', r.method, name), ('backbone', r.backbone, recipe.backbone),
            ('view', r.view or recipe.view, recipe.view), ('queue', queue, getattr(settings, 'queue', None))):
        if was!=now and not (what=='method' and {was, now}=={'coclr', 'cpr'}):
            raise TrainError(f'{r.path}: has {what} {was}, and {recipe.name} has {now}; choose a recipe that '
                'goes on with it, or begin from its weights with --init')

def _count(r:Released)->int: # steps of a run of ours
    step = r.run.get('step')
    if type(step) is not int or step < 0: raise TrainError(f'{r.path}: does not say how far its run was')
    return step

def continued_state(
    r:Released,
    run:TrainingState, # as it begins
    recipe:Recipe,
    per_epoch:int, # optimizer steps of the recipe
)->dict[str,Any]: # for `TrainingState.load`
    "Where a training stands, in our words. `CheckpointError`, `TrainError`."
    refuse_other(r, recipe)
    own = method_state(r)
    if not r.run: # whose rows a bank of theirs has is not known: it begins anew
        own = {k: v for k,v in own.items() if not k.startswith('bank.')}
    learn = {n: p for n,p in run.method.named_parameters() if p.requires_grad}
    like = run.opt.state_dict()
    opt = optimizer_state(r, learn, like) if r.optimizer else like
    mine = r.run and not difference(recipe_within(r), recipe)
    # their epochs count from 0, IIC's from 1; our files have both numbers
    step = _count(r) if mine else ((r.epoch or 0) + (r.method!='iic' and r.epoch is not None))*per_epoch
    return {'method': run.method.state_dict() | own, 'opt': opt, 'step': step}

def import_released(
    path, # a released file, or one that `save_released` made of a run
    data, # a manifest, or the folder that holds it
    out, # the run folder to make
    recipe:Recipe|None=None, # None: the one that the file carries
    view:str|None=None, # None: what the file says
    machine:Machine=Machine(),
    **how, # fields of `machine` to change
)->Path: # the run folder; `--resume` goes on with it
    "Make a run of a released file: networks, queue, optimizer and step. `ValueError`."
    out, machine, r = Path(out), replace(machine, **how), load_released(path, view)
    recipe = recipe_within(r) if recipe is None else recipe
    with start() as place, run_folder(out):
        manifest = open_data(data, machine.progress)
        device = training_device(recipe, machine.device, place.local)
        run, batches, card = begin(recipe, manifest, out, False, device, machine,
            {n: path for n in recipe.networks})
        order = batch_order(batches)
        run.load(continued_state(r, run, recipe, order.per_epoch))
        if run.step > order.total: raise TrainError(f'{path}: has taken {run.step} steps, and {recipe.name} '
            f'ends after {order.total}; give it more --epochs')
        open_folder(out, recipe, card)
        if is_main():
            save(out/'last.pt', run.state())
            export_run(out, recipe, run.method, run.step, manifest)
            write_json(out/'card.json', card | {'step': run.step, 'finished': run.step==order.total})
    return out

RELEASED_FILES = ('.tar', '.pth', '.pt')

def about_released(
    r:Released,
)->dict[str,Any]: # for config.json
    "What an encoder's file says of one that was released."
    stride = {'stride': 1, 'epoch': r.epoch, 'method': r.method, 'source': r.path.name}
    return {'backbone': r.backbone, 'view': r.ask_view(), **clip_of(r), **stride,
        **{k: v for k,v in released_views(r).items() if k!='live'}}

def _encoder_of(source:Path, view:str|None)->tuple[nn.Module,dict[str,Any],dict[str,nn.Module],str]:
    if source.is_dir():
        file = source/'encoder.safetensors'
        return *read_encoder(file), read_heads(file), ''
    r = load_released(source, view)
    heads = {'projection': r.heads['encoder']} if 'encoder' in r.heads else {}
    encoder: Any = r.encoder
    return encoder, about_released(r), heads, str(r)

def convert(
    source, # a run folder or a released file
    out, # FILE.tar, .pth or .pt: released; FILE.safetensors: an encoder; else a folder
    recipe:Recipe|None=None, # makes a run of a released file
    data=None, # likewise: a manifest; without it a folder is that of an encoder
    view:str|None=None, # None: what the file says
    optimizer:bool=True, # write its state as well
    machine:Machine=Machine(),
)->str: # what was found in a released file; '' for a run
    "Turn a run or a released file into a released file, an encoder or a run. `ValueError`."
    source, out = Path(source), Path(out)
    if source.resolve()==out.resolve():
        raise CheckpointError(f'{out}: is what is to be converted; give another name')
    if out.suffix in RELEASED_FILES:
        r = None if source.is_dir() else load_released(source, view)
        save_released(source if r is None else r, out, optimizer)
        return '' if r is None else str(r)
    if out.suffix=='.safetensors':
        encoder, about, heads, told = _encoder_of(source, view)
        export_encoder(out, encoder, about, heads)
        return told
    if data is not None:
        if source.is_dir(): raise CheckpointError(f'{source}: is a run already; leave out --data')
        import_released(source, data, out, recipe, view, machine)
        return str(load_released(source, view))
    if recipe is not None:
        raise CheckpointError('--recipe makes a run, and a run needs --data: name the manifest')
    encoder, about, heads, told = _encoder_of(source, view)
    save_pretrained(out, encoder, about, heads)
    return told
