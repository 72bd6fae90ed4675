"Every recipe and every fine-tuning takes its first steps at full size on a pretended GPU."
from dataclasses import astuple, replace
from unittest import mock

import pytest
import torch

from vssl_nb.ssl import memory as momentum
from vssl_nb.training import loop as train
from vssl_nb.runs.dry_run import dry_run, dry_run_finetuning
from vssl_nb.runs.finetuning import TRAININGS
from vssl_nb.methods import coclr, infonce, simclr, ubernce
from vssl_nb.runs.pretended_gpu import WaitForDevice, WrongDevice
from vssl_nb.methods.recipes import RECIPES, find, override


def different():
    "Recipes that differ in what they do in a step, not only in name, data, length or rate."
    seen = {}
    for r in RECIPES.values():
        calm = replace(r.learning, epochs=1, lr=0., drops=(), warmup=0., schedule='steps')
        same = replace(r, name='', about='', dataset='', learning=calm, test_clips=0)
        calm = {'temperature': 1., 'momentum': .5, 'bank_momentum': .5}
        method = replace(r.method, **{k: v for k, v in calm.items() if hasattr(r.method, k)})
        # the length of a queue, the rows drawn from a bank and how many are mined change no operation
        if getattr(method, 'queue', 0): method = replace(method, queue=1)
        if hasattr(method, 'negatives'): method = replace(method, negatives=1, topk=method.topk[:1])
        if getattr(method, 'miner', '')=='cascade': # nor do the numbers of a cascade
            kept = tuple(o for o in method.miner_options if not o.startswith(('stages=', 'ratio=')))
            method = replace(method, miner_options=kept)
        seen.setdefault(astuple(replace(same, method=method)) + (type(r.method).__name__,), r.name)
    return list(seen.values())


@pytest.mark.parametrize('name', different())
def test_recipes(name):
    seen = dry_run(find(name))
    waits = getattr(find(name).method, 'until_full', '') == 'wait'
    assert seen.learned == (not waits, True)


def test_float32_and_recomputation():
    whole, again = (dry_run(find('infonce-ucf101-rgb'), activation_checkpointing=a) for a in (False, True))
    assert again.operations[1] > 1.1*whole.operations[1]
    assert dry_run(find('coclr-ucf101-flow-cycle1'), 'float32').learned == (False, True)


def test_live_flow():
    recipe = override(find('infonce-ucf101-flow'), flow='live', batch=4, groups=2)
    assert dry_run(recipe).learned == (True, True)


@pytest.mark.parametrize('name', TRAININGS)
def test_finetuning(name):
    assert dry_run_finetuning(TRAININGS[name]).learned == (True, True)


def item(x): return x + float(x.sum().item())*0
def condition(x): return x if bool((x > 2).any()) else x*1
def cpu_index(x): return x[torch.arange(len(x))]
def pageable(x): return x*torch.ones(1, 1).to(x.device)
def mask(x): return x + x[x > 0].sum()*0
def unpinned(x): return x + torch.zeros(x.shape[1:])
def listed(x): return x + sum(x[0].tolist()[:1])*0


@pytest.mark.parametrize('mistake', [item, condition, cpu_index, pageable, mask, unpinned, listed])
@pytest.mark.parametrize('where', [
    (infonce, 'with_queue', 'infonce-laptop-rgb'), (infonce, 'in_batch', 'infonce-toy-residual'),
    (ubernce, 'with_labels', 'ubernce-toy-rgb'), (coclr, 'with_mined', 'coclr-laptop-rgb-cycle1'),
    (simclr, 'nt_xent_pairs', 'simclr-toy-rgb'),
    (momentum, 'l2_normalize', 'infonce-laptop-rgb')])
def test_mistakes_are_found(where, mistake):
    "Each is put into the step of a method, by its place in the code, and nothing else is changed."
    room, function, name = where
    recipe = override(find(name), batch=4)
    real = getattr(room, function)

    def spoiled(*args, **kwargs):
        made = real(*args, **kwargs)
        return (mistake(made[0]), *made[1:]) if isinstance(made, tuple) else mistake(made)
    with mock.patch.object(room, function, spoiled), pytest.raises((WaitForDevice, WrongDevice)) as said:
        dry_run(recipe)
    assert f'test_dry_run.py, line {mistake.__code__.co_firstlineno}' in str(said.value)


@pytest.mark.parametrize('change', [
    ('momentum.Queue.full', property(lambda queue: bool(queue.filled == queue.size))),
    ('train.step_optimizer', lambda opt: torch.tensor(float(opt.param_groups[0]['params'][0].sum()))),
    ('train.to_device', lambda batch, device: {k: v.to(device) if isinstance(v, torch.Tensor) else v
        for k, v in batch.items()}),
    ('train.average_running', lambda method: next(method.buffers()).cpu())])
def test_mistakes_in_the_loop_are_found(change):
    where, new = change
    room, *path = where.split('.')
    owner = {'momentum': momentum, 'train': train}[room]
    for name in path[:-1]: owner = getattr(owner, name)
    with mock.patch.object(owner, path[-1], new), pytest.raises(WaitForDevice):
        dry_run(override(find('coclr-laptop-rgb-cycle1'), batch=4))
