"`vssl-nb mine` from the outside: two short runs, what they would mine, and what is refused."
import csv
import json
import statistics
import subprocess
import sys
from collections import Counter

import pytest

from vssl_nb import cli
from vssl_nb.data import toy
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.training.machine import Machine
from vssl_nb.data.manifest import read
from vssl_nb.methods.recipes import find, override

QUIET = Machine('cpu', workers=0, progress=False)


@pytest.fixture(scope='module')
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp('mine')
    toy.make(root/'toy', 'tiny', progress=False)
    for view in ('rgb', 'residual'):
        recipe = override(find(f'infonce-toy-{view}'), epochs=1, batch=16, warmup=0.)
        pretrain(recipe, root/'toy', root/view, machine=QUIET)
    return root


def mine(place, *args):
    return subprocess.run([sys.executable, '-m', 'vssl_nb.cli', 'mine', *map(str, args), '--device', 'cpu',
        '--workers', '0'], cwd=place, text=True, capture_output=True, timeout=120)


def test_miners_are_compared(place):
    done = mine(place, 'rgb', '--mining', 'residual', '--miners', 'topk', 'cascade,stages=2,ratio=0.5',
        'topk,view=rgb', '--topk', 3, '--out', 'found.json')
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == '48 candidates; residual mines for rgb'
    assert [line.split()[0] for line in lines[2:5]] == ['topk', 'cascade,stages=2,ratio=0.5', 'topk,view=rgb']
    found = json.loads((place/'found.json').read_text())
    assert [q['k'] for q in found] == [3, 3, 3] and all(0 <= q['pmr'] <= 1 for q in found)
    # the order as released ends with the mining view: with two stages that is a single look
    assert found[0]['pmr'] == found[1]['pmr'] and found[0]['class_cmr'] == found[1]['class_cmr']
    assert mine(place, 'rgb', '--out', 'found.csv').returncode == 0 # alone, it mines for itself
    assert len((place/'found.csv').read_text().splitlines()) == 1 + len(found[0]['class_cmr'])


def test_a_run_of_coclr_knows_who_mined_for_it(place):
    recipe = override(find('coclr-cpr-toy-rgb-cycle1'), epochs=2, batch=8, queue=32, topk=2)
    pretrain(recipe, place/'toy', place/'co', machine=QUIET, init_from=place/'rgb', sampler=place/'residual')
    log = (place/'co'/'steps.csv').read_text().splitlines()
    cmr = [line.split(',')[log[0].split(',').index('cmr')] for line in log[1:]]
    assert any(c not in ('', 'nan') and float(c) > 0 for c in cmr)
    done = mine(place, 'co', '--miners', 'cascade,stages=2')
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith('48 candidates; residual mines for rgb')


def test_each_class_over_the_epochs(place):
    "`mining.csv` says of each class what `steps.csv` says of all; a stopped run ends with the same file."
    recipe = override(find('coclr-cpr-toy-rgb-cycle1'), epochs=3, batch=8, queue=16, topk=2)
    given = {'machine': QUIET, 'init_from': place/'rgb', 'sampler': place/'residual'}
    pretrain(recipe, place/'toy', place/'whole', **given)
    pretrain(recipe, place/'toy', place/'parts', max_steps=8, **given)
    pretrain(recipe, place/'toy', place/'parts', resume=True, machine=QUIET)
    assert (place/'parts'/'mining.csv').read_text() == (place/'whole'/'mining.csv').read_text()
    with (place/'whole'/'mining.csv').open(newline='') as f: classes = list(csv.DictReader(f))
    with (place/'whole'/'steps.csv').open(newline='') as f: steps = list(csv.DictReader(f))
    labels = read(place/'toy').labels
    assert list(classes[0]) == ['step', 'epoch', *(f'{w}/{c}' for w in ('cmr', 'pmr') for c in labels)]
    assert [r['epoch'] for r in classes] == ['0', '1', '2']
    for line in classes:
        epoch = [r for r in steps if r['epoch'] == line['epoch']]
        assert line['step'] == epoch[-1]['step']
        found = [float(line[f'cmr/{c}']) for c in labels]
        assert statistics.median_low(found) <= float(epoch[-1]['cmr']) <= statistics.median_high(found)
    last = [r for r in steps if r['epoch'] == '2'] # the queue is full, so each query takes two
    queries = Counter(r.label for r in read(place/'toy').rows if r.split1 == 'train')
    mean = sum(float(classes[-1][f'pmr/{c}'])*queries[c] for c in labels)/sum(queries.values())
    assert abs(mean - statistics.mean(float(r['mined']) for r in last)) < 1e-6
    assert all(float(r['mined_r1']) <= float(r['mined_rk']) <= 1 for r in last)


def test_a_run_of_iic_tells_its_mining_too(place):
    recipe = override(find('iic-cpr-toy'), epochs=2, batch=8, negatives=16, topk=(1, 2))
    pretrain(recipe, place/'toy', place/'iic', machine=QUIET)
    with (place/'iic'/'mining.csv').open(newline='') as f: classes = list(csv.DictReader(f))
    with (place/'iic'/'steps.csv').open(newline='') as f: last = list(csv.DictReader(f))[-1]
    labels = read(place/'toy').labels
    found = [float(classes[-1][f'cmr/{c}']) for c in labels]
    assert [r['epoch'] for r in classes] == ['0', '1'] and max(found) > 0
    assert statistics.median_low(found) <= float(last['cmr']) <= statistics.median_high(found)
    assert all(0 <= float(classes[-1][f'pmr/{c}']) <= 1 for c in labels)
    assert float(last['mined']) <= float(last['mined_rk']) <= 1


@pytest.mark.parametrize('words, says', [
    (('rgb', '--miners', 'topq'), "did you mean 'topk'?"),
    (('rgb', '--miners', 'cascade'), 'there is only'),
    (('rgb', '--mining', 'residual', '--miners', 'cascade,stages=9'), 'use at most'),
    (('rgb', '--mining', 'residual', '--miners', 'cascade,order=flow'), "asks for a view 'flow'"),
    (('rgb', '--mining', 'rgb'), 'both look at rgb'),
    (('rgb', '--memory', '99'), 'use 1 to 48'),
    (('rgb', '--topk', '0'), 'mines nothing'),
    (('rgb', '--out', 'x.txt'), 'write a .csv or a .json file'),
    (('nowhere',), 'nowhere'),
    (('toy/manifest.csv',), 'is a file; name the run folder'),
    (('rgb', '--mining', 'toy'), 'so toy is not a run'),
    (('rgb', '--data', 'nowhere'), 'nowhere'),
    (('rgb', '--out', 'toy/manifest.csv/found.csv'), 'is a file, not a folder'),
])
def test_what_is_refused(place, words, says, capsys, monkeypatch):
    monkeypatch.chdir(place)
    before = {p for p in place.rglob('*') if 'features' not in p.parts}
    code = cli.main(['mine', *words, '--device', 'cpu', '--workers', '0'])
    told = capsys.readouterr().err
    assert code == 2 and says in told, told
    assert told.splitlines()[-1].startswith("vssl-nb: ") and "Traceback" not in told
    assert {p for p in place.rglob('*') if 'features' not in p.parts} == before
