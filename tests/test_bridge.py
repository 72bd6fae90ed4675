"Runs that move between houses: a file in the released layout in the middle, and the command line around it."
import json
import subprocess
import sys

import pytest
import torch
from house import ROOT

from vssl_nb.data import toy
from vssl_nb.runs.released import convert, from_pretrained, load_released, released_weights, save_released
from vssl_nb.training.checkpoints import CheckpointError, load, read_encoder
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.methods.recipes import find, override

OPTIONS = dict(device='cpu', workers=0, progress=False)
SMALL = dict(batch=8, epochs=2, test_clips=1)


def call(*args, cwd, code=0):
    said = subprocess.run([sys.executable, '-m', 'vssl_nb.cli', *map(str, args)], cwd=cwd, text=True,
        capture_output=True, timeout=300, env=None)
    assert said.returncode==code, said.stderr
    assert code==0 or (said.stderr.count('\n')==1 and 'Traceback' not in said.stderr), said.stderr
    return said.stdout if code==0 else said.stderr


@pytest.fixture(scope='module')
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp('bridge')
    toy.make(home/'videos', 'tiny', progress=False)
    for view in ('rgb', 'residual'): # what CoCLR begins with
        recipe = override(find(f'infonce-toy-{view}'), queue=32, **SMALL | {'epochs': 1})
        pretrain(recipe, home/'videos', home/view, **OPTIONS)
    return home


@pytest.mark.parametrize('name, changes', [('infonce-toy-rgb', {'queue': 32}),
    ('ubernce-toy-rgb', {'queue': 32}),
    ('coclr-toy-rgb-cycle1', {'queue': 16, 'topk': 3}),
    ('coclr-cpr-toy-rgb-cycle1', {'queue': 32, 'topk': 3, 'miner_options': ('stages=3',)}),
    ('iic-toy', {'negatives': 8})])
def test_a_run_becomes_a_file(home, tmp_path, name, changes):
    "Networks, heads, queues and banks of a run, to the bit; read, written again, begun with."
    recipe = override(find(name), **SMALL | {'epochs': 1} | changes)
    begin = dict(init_from=home/'rgb', sampler=home/'residual') if 'coclr' in name else {}
    run = pretrain(recipe, home/'videos', tmp_path/'run', **begin, **OPTIONS)
    last = load(run/'last.pt')
    own, file = last['method'], save_released(run, tmp_path/'mine.tar')
    for r in (load_released(file), load_released(save_released(load_released(file), tmp_path/'again.tar'))):
        method = 'cpr' if 'cpr' in name else name.split('-')[0]
        assert (r.method, r.view, r.backbone)==(method, recipe.view, recipe.backbone)
        assert not r.report.unused and not r.report.problems() and r.run['view']==recipe.view
        assert (r.iteration, r.epoch)==((None if method=='iic' else last['step']), 1)
        pair = '' if method=='iic' else 'pair.'
        parts = [(r.encoder, f'{pair}encoder.'), (r.heads.get('encoder'), f'{pair}projection.'),
            (r.momentum, 'pair.momentum_encoder.0.'), (r.heads.get('momentum'), 'pair.momentum_encoder.1.'),
            (r.sampler, 'sampler.0.'), (r.heads.get('sampler'), 'sampler.1.')]
        for net, prefix in parts:
            want = {k.removeprefix(prefix): v for k, v in own.items() if k.startswith(prefix)}
            have = {} if net is None else net.state_dict()
            assert have.keys()==want.keys() and all(torch.equal(have[k], v) for k, v in want.items()), prefix
        keys, K = ('bank.keys', 0) if method=='iic' else ('queue.keys', len(own['queue.keys']))
        want = {'memory_l': own[keys]} if method=='iic' else {'queue': own[keys].T,
            'queue_ptr': own['queue.pointer'].reshape(1)}
        if method=='ubernce': want['queue_label'] = own['queue.label']
        if 'coclr' in name: want |= {'queue_second': own['queue.keys_1'].T,
            'queue_vname': own['queue.source'],
            'queue_label': torch.where(torch.arange(K) < own['queue.filled'], 1, -1)}
        assert all(torch.equal(r.queues[k], v) for k, v in want.items())
    begun = released_weights(file, recipe, 'encoder')
    assert begun and all(torch.equal(own[pair + k], v) for k, v in begun.items())


def test_command_line(home):
    "There, measured, begun with, shared, and back; a mistake is one sentence."
    out = call('convert', 'rgb', 'mine-rgb.tar', cwd=home)
    assert 'mine-rgb.tar' in out
    rows = call('retrieve', 'mine-rgb.tar', '--data', 'videos', '--protocol', 'coclr_official',
        '--set', 'length=8', 'size=32', '--out', 'measured', '--workers', '0', cwd=home)
    assert 'mine-rgb' in rows
    found = json.loads((home/'measured'/'results.json').read_text())
    assert any(r['name']=='mine-rgb' and r['protocol']['name']=='coclr_official' for r in found)
    call('pretrain', 'infonce-toy-rgb', '--data', 'videos', '--init', 'mine-rgb.tar', '--out', 'begun',
        '--epochs', '1', '--batch', '8', '--queue', '32', '--workers', '0', '--quiet', '--device', 'cpu',
        cwd=home)
    given = json.loads((home/'begun'/'card.json').read_text())['given']
    assert given['init_from']['run']=='mine-rgb.tar'
    call('convert', 'mine-rgb.tar', 'shared', cwd=home)
    files = sorted(p.name for p in (home/'shared').iterdir())
    assert files == ['README.md', 'config.json', 'model.safetensors']
    net = torch.hub.load(str(ROOT), 'encoder', str(home/'shared'), source='local')
    same = torch.hub.load(str(ROOT), 'released', str(home/'mine-rgb.tar'), source='local')
    clips = torch.rand(2, 3, 16, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(net(clips), same(clips)) and same.released.method=='infonce'
    assert torch.hub.load(str(ROOT), 'backbone', 'tiny', source='local').dim==net.dim


def test_cotraining_begins_with_files(home):
    save_released(home/'rgb', home/'a-rgb.tar')
    save_released(home/'residual', home/'unnamed.tar')
    small = ['--workers', '0', '--quiet', '--device', 'cpu', '--set', 'epochs=1', 'batch=8', 'queue=16',
        'topk=3', 'test_clips=1']
    call('cotrain', 'coclr-toy', '--data', 'videos', '--out', 'co', '--init', 'a-rgb.tar',
        'residual=unnamed.tar', *small, cwd=home)
    cards = {p.parent.name: json.loads(p.read_text()) for p in (home/'co').glob('*/card.json')}
    given = {n: c['given']['init_from']['run'] for n, c in cards.items()}
    begun = sorted(v for n, v in given.items() if n.startswith('infonce'))
    assert begun == ['a-rgb.tar', 'unnamed.tar'], given
    said = call('cotrain', 'coclr-toy', '--data', 'videos', '--out', 'co2', '--init', 'unnamed.tar', *small,
        cwd=home, code=2)
    assert 'does not say its view; write it as rgb=unnamed.tar' in said


def test_mistakes_on_the_command_line(home):
    (home/'short-rgb.tar').write_bytes(save_released(home/'rgb', home/'b-rgb.tar').read_bytes()[:5000])
    r = load_released(home/'b-rgb.tar')
    r.run.clear()
    save_released(r, home/'bare.tar')
    for words, args in (('damaged, or its end is missing', ['retrieve', 'short-rgb.tar', '--data', 'videos']),
            ('say it with --view rgb', ['retrieve', 'bare.tar', '--data', 'videos']),
            ('say it with --view rgb', ['convert', 'bare.tar', 'new']),
            ('there is no', ['convert', 'none.tar', 'x.tar']),
            ('needs residual', ['pretrain', 'infonce-toy-residual', '--data', 'videos', '--init',
                'b-rgb.tar']),
            ('damaged, or its end', ['pretrain', 'infonce-toy-rgb', '--data', 'videos', '--init',
                'short-rgb.tar'])):
        assert words in call(*args, cwd=home, code=2), args
    assert not (home/'new').exists()


def test_runs_without_a_layout(home, tmp_path):
    recipe = override(find('infonce-toy-rgb'), queue=0, **SMALL | {'epochs': 1})
    run = pretrain(recipe, home/'videos', tmp_path/'run', **OPTIONS)
    with pytest.raises(CheckpointError, match='has no queue, for which there is no released layout'):
        save_released(run, tmp_path/'x.tar')
    with pytest.raises(CheckpointError, match='is no run folder'): save_released(tmp_path, tmp_path/'x.tar')


def test_a_file_without_a_view_is_asked_for_it(home, tmp_path):
    r = load_released(save_released(home/'rgb', tmp_path/'c.tar'))
    r.run.clear()
    bare = save_released(r, tmp_path/'bare.tar')
    with pytest.raises(CheckpointError, match='--view rgb'): convert(bare, tmp_path/'x.safetensors')
    with pytest.raises(CheckpointError, match='is what is to be converted'): convert(bare, bare)


@torch.inference_mode()
def test_an_encoder_stays_itself_on_every_way(home, tmp_path):
    clips = torch.rand(2, 3, 16, 32, 32, generator=torch.Generator().manual_seed(0))
    want = read_encoder(home/'rgb'/'encoder.safetensors')[0](clips)
    convert(home/'rgb', tmp_path/'d-rgb.tar')
    for source in (home/'rgb', tmp_path/'d-rgb.tar'):
        for out in (tmp_path/'one.safetensors', tmp_path/'folder'): convert(source, out)
        assert torch.equal(read_encoder(tmp_path/'one.safetensors')[0](clips), want)
        assert torch.equal(from_pretrained(tmp_path/'folder')(clips), want)
    about = read_encoder(tmp_path/'one.safetensors')[1]
    assert (about['view'], about['source'], about['method'])==('rgb', 'd-rgb.tar', 'infonce')
