"Computed memory against processes that really train, and against real tensors with autograd's own engine."
import json
import sys
from dataclasses import asdict
from pathlib import Path
from unittest import mock

import pytest
import torch

from vssl_nb.training import loop
from vssl_nb.runs.budget import GPUS, RESERVE, MemoryWatch, largest_batch, memory, plan, trace_of, trace_step
from vssl_nb.runs.dry_run import plan_finetuning
from vssl_nb.runs.finetuning import TRAININGS
from vssl_nb.runs.pretended_gpu import PretendedGPU
from vssl_nb.methods.recipes import RECIPES, find, override

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT/'benchmarks'))


@pytest.fixture
def script():
    import memory as script
    return script


@pytest.mark.parametrize('again', (False, True))
def test_a_process_that_trains_takes_what_was_computed(script, again):
    case = dict(backbone='tiny', batch=8, again=again)
    assert abs(script.computed(case, 'cpu')/script.measure(case, 'resident')['measured'] - 1) < .15


def test_kept_results_are_within_15_percent(script):
    rows = json.loads((ROOT/'results/memory-cpu.json').read_text())['rows']
    assert [{k: r[k] for k in ('backbone', 'batch', 'again')} for r in rows] == script.CASES
    assert all(abs(r['computed']/r[way] - 1) < .15 for r in rows for way in ('measured', 'allocator'))
    assert len({r['backbone'] for r in rows}) == 3
    for case, row in zip(script.CASES[:2], rows):
        assert script.computed(case, 'cpu') == pytest.approx(row['computed'], rel=.01)


@pytest.mark.parametrize('name, again', (('infonce-toy-rgb', False), ('ubernce-toy-rgb', True)))
def test_real_tensors_come_and_go_as_pretended_ones(script, monkeypatch, name, again):
    "The loop itself, its second step, with the engine that is written in C++."
    recipe = override(find(name), batch=4, **({'queue': 8} if find(name).method.queue else {}))
    monkeypatch.setattr(loop, 'keep_memory', lambda: False)
    begin = []
    with MemoryWatch('cpu') as watch:
        script.train(recipe, again, 'cpu', 'float32', lambda: begin.append(len(watch.operations)))
    real = trace_of(watch, begin[0]).total.max()
    assert memory(recipe, 'float32', again, ahead=False).total == pytest.approx(real, rel=.02)


def test_waiting_for_a_gpu(script):
    "What would be asked of a real one is asked of a pretended one."
    recipe = override(find('infonce-toy-rgb'), batch=4)
    with (PretendedGPU(strict=False), mock.patch.object(torch.cuda, 'max_memory_allocated', lambda: 7),
            mock.patch.object(torch.cuda, 'max_memory_reserved', lambda: 9),
            mock.patch.object(torch.cuda, 'reset_peak_memory_stats', lambda: None),
            mock.patch.object(script, 'recipe_of', lambda case: recipe)):
        assert script.on_gpu({'again': False}) == {'measured': 7, 'reserved': 9}


def test_largest_batch_of_a_published_recipe():
    "One walk says it, and a walk with that batch agrees."
    recipe = find('infonce-ucf101-rgb')
    n = largest_batch(recipe, GPUS['80 GB'])
    assert n % recipe.method.groups == 0 and n >= recipe.learning.batch
    assert memory(recipe, batch=n).total == pytest.approx(RESERVE.left(GPUS['80 GB']), rel=.02)


def test_the_kept_table_is_of_these_recipes():
    rows = {r['name']: r for r in json.loads((ROOT/'results/budget.json').read_text())['rows']}
    assert list(rows) == list(RECIPES), 'python benchmarks/memory.py --table --out results/budget.json'
    for name in ('infonce-toy-rgb', 'coclr-toy-rgb-cycle1'):
        now = plan(find(name))
        assert now.memory == pytest.approx(rows[name]['memory'], rel=.01)
        assert {k: list(v) for k, v in now.batches.items()} == rows[name]['batches']


def test_the_kept_table_has_every_fine_tuning():
    rows = {r['name']: r for r in json.loads((ROOT/'results/budget.json').read_text())['finetunings']}
    assert list(rows) == list(TRAININGS), 'python benchmarks/memory.py --table --out results/budget.json'
    now = asdict(plan_finetuning(TRAININGS['clean_linear']))
    assert now.pop('memory') == pytest.approx(rows['clean_linear']['memory'], rel=.01)
    assert now['batches'] == {k: tuple(v) for k, v in rows['clean_linear']['batches'].items()}
    assert now['hours'] == pytest.approx(rows['clean_linear']['hours'], rel=.01)


def test_flops_are_those_of_torchs_own_counter():
    from torch.utils.flop_counter import FlopCounterMode
    from vssl_nb.runs.parts import build_method
    recipe = override(find('infonce-toy-rgb'), batch=4)
    method = build_method(recipe, 100)
    shape = (4, 2, 3, recipe.sampling.length, recipe.size, recipe.size)
    ids = torch.arange(4)
    with FlopCounterMode(display=False) as counted:
        loss, _ = method({'rgb': torch.rand(shape, generator=torch.Generator().manual_seed(0)), 'label': ids,
            'source': ids, 'row': ids, 'step': 0, 'progress': 0.})
        loss.backward()
    seen = trace_step(recipe, 'float32')
    sums = seen.sums(seen.flops)
    assert sums['forward'] + sums['backward'] == pytest.approx(counted.get_total_flops(), rel=1e-6)
