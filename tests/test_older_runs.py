"Run folders of an older version (`fixtures/older_runs`) are read, resumed and measured as they were then."
import csv
import hashlib
import json
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch

from vssl_nb.nets import backbones
from vssl_nb.training import checkpoints, config as recipes
from vssl_nb.runs import evaluation, pretraining as experiments
from vssl_nb.data import manifest, toy, video
from vssl_nb.training.machine import Machine
from vssl_nb.cli import main
from vssl_nb.training.loop import TrainError

FIXTURES = Path(__file__).parent/'fixtures'/'older_runs'
STOPPED = ('infonce', 'ubernce', 'coclr') # stopped after STOP of END steps
STOP, END = 6, 12
QUIET = dict(device='cpu', progress=False)

# three stages instead of the four of `tiny`, so that a checkpoint with Adam's state has 0.2 and not 2.6 MB
SHAPE = dict(widths=(8, 16, 32), strides=((1, 2), (1, 2), (2, 2)))
NARROW = backbones.Backbone(partial(backbones.SeparableNet, **SHAPE), clip=(8, 32, 32))


def write_videos(folder):
    "The videos of the fixture, not kept in the repository: the same on every machine, for they are lossless."
    jobs = toy.plan_toy(json.loads((FIXTURES/'toy.json').read_text())['settings'])
    for row, how in jobs:
        (folder/row.video).parent.mkdir(parents=True, exist_ok=True)
        video.encode(folder/row.video, toy.video(**how), toy.FPS, crf=0)
    return manifest.write(folder/'manifest.csv', [row for row, _ in jobs])


def pixels(folder):
    "SHA-256 over all decoded frames."
    h, m = hashlib.sha256(), manifest.read(folder)
    for i, r in enumerate(m.rows): h.update(video.decode(m.file(i), range(r.frames)).numpy().tobytes())
    return h.hexdigest()


def encoded(encoder):
    "What an encoder makes of one drawn clip, which no file and no augmentation comes between."
    clip = torch.from_numpy(toy.video('circle_cw', 5, frames=16)).permute(3, 0, 1, 2)[None]/255 - .5
    with torch.no_grad(): return encoder.eval()(clip)[0]


def queued(state):
    "Who is in the queue of a checkpoint: whole numbers, hence the same on every machine."
    names = ('label', 'source', 'row', 'pointer', 'filled')
    return {k: state['method'][f'queue.{k}'].tolist() for k in names}


def lines(run):
    "steps.csv as numbers; None where a step has no such number."
    with (run/'steps.csv').open(newline='') as f:
        return [{k: float(v) if v else None for k, v in r.items()} for r in csv.DictReader(f)]


def expected(name): return json.loads((FIXTURES/name/'expected.json').read_text())


def within(raw, now):
    "Does `now` hold everything that `raw` says? It may say more."
    if isinstance(raw, dict): return all(k in now and within(v, now[k]) for k, v in raw.items())
    return raw == (list(now) if isinstance(now, tuple) else now)


@pytest.fixture(scope='module')
def videos(tmp_path_factory):
    there = tmp_path_factory.mktemp('older')
    write_videos(there/'toy')
    return there/'toy'


@pytest.fixture
def place(tmp_path, videos, monkeypatch):
    "A folder to work in, with the videos and a copy of every run, as it was when they were trained."
    monkeypatch.setitem(backbones.BACKBONES, 'narrow', NARROW)
    monkeypatch.chdir(tmp_path)
    (tmp_path/'toy').symlink_to(videos)
    shutil.copytree(FIXTURES, tmp_path/'runs')
    for file in tmp_path.rglob('expected.json'): file.unlink() # no part of a run
    return tmp_path


def read_recipe(run):
    file = run/'recipe.json'
    return recipes.from_dict(json.loads(file.read_text()), str(file))


def test_the_videos_are_the_same(videos):
    told = json.loads((FIXTURES/'toy.json').read_text())
    cards = [json.loads((FIXTURES/name/'card.json').read_text()) for name in (*STOPPED, 'finished')]
    shas = {c['manifest']['sha256'] for c in cards}
    assert shas == {told['manifest_sha256']} == {manifest.read(videos).sha256}
    assert pixels(videos) == told['pixels_sha256'], 'the losses of this file are compared on other pixels'


@pytest.mark.parametrize('name', (*STOPPED, 'finished'))
def test_the_recipe_is_read(place, name):
    raw, recipe = json.loads((place/'runs'/name/'recipe.json').read_text()), read_recipe(place/'runs'/name)
    assert recipes.method_name(recipe) == name.replace('finished', 'infonce')
    # the fields that have other names today
    raw['method'] = {recipes.OLDER_NAMES.get(k, k): v for k, v in raw['method'].items()}
    assert within(raw, recipes.to_dict(recipe))


@pytest.mark.parametrize('name', STOPPED)
def test_it_is_opened_or_refused_as_ever(place, name):
    run, recipe, data = place/'runs'/name, read_recipe(place/'runs'/name), manifest.read('toy')
    assert experiments.open_run(recipe, data, run, resume=True)['step'] == STOP
    other = recipes.override(recipe, lr=.5)
    with pytest.raises(recipes.RecipeError, match='lr=0.001, not 0.5'):
        experiments.open_run(other, data, run, resume=True)
    changed = place/'changed'/'manifest.csv'
    changed.parent.mkdir()
    changed.write_text((place/'toy'/'manifest.csv').read_text().replace('shake_x,', 'shake,'))
    with pytest.raises(TrainError, match='is not the manifest'):
        experiments.open_run(recipe, manifest.read(changed), run, resume=True)


@pytest.mark.parametrize('name', STOPPED)
def test_it_goes_on_as_the_unbroken_run_did(place, name):
    run, before = place/'runs'/name, (place/'runs'/name/'steps.csv').read_text()
    experiments.pretrain(read_recipe(run), 'toy', run, resume=True, cache=64, **QUIET)
    assert (run/'steps.csv').read_text().startswith(before), 'what was logged before the stop has changed'
    now, then = lines(run), expected(name)['steps']
    assert [r['step'] for r in now] == [r['step'] for r in then] == [*range(1, END + 1)]
    assert any(r['loss'] is None for r in then) == (name == 'coclr'), 'only CoCLR waits for its queue'
    for a, b in zip(now, then):
        for k, rel in (('loss', 1e-4), ('grad_norm', 5e-3), ('lr', 1e-9)): # other CPUs: 3e-6 and 2e-3
            assert a[k] == (None if b[k] is None else pytest.approx(b[k], rel=rel)), f'step {b["step"]}: {k}'
    state, card = checkpoints.load(run/'last.pt'), json.loads((run/'card.json').read_text())
    assert state['step'] == END and card['step'] == END and card['finished']
    assert queued(state) == expected(name)['queue']
    encoder = encoded(checkpoints.read_encoder(run/'encoder.safetensors')[0]) # by its running statistics
    torch.testing.assert_close(encoder, torch.tensor(expected(name)['encoded']), rtol=3e-4, atol=3e-5)
    # the same bits only on a machine like the one that wrote it
    same = checkpoints.digest(state['method']) == expected(name)['weights_sha256']
    print(f'{name}: the weights are {"the same" if same else "not the same"} to the bit')
    [row] = evaluation.retrieve(run, walls=0, machine=Machine(**QUIET))
    assert row['step'] == END and 0 <= row['r1'] <= row['r5'] <= row['r10'] <= 1
    assert json.loads((run/'results.json').read_text())[0]['r1'] == row['r1']


def test_a_new_run_begins_with_an_older_one(place):
    recipe, first = read_recipe(place/'runs'/'ubernce'), place/'runs'/'infonce'
    still = recipes.override(recipe, lr=0., warmup=0.)
    new = experiments.pretrain(still, 'toy', 'new', init_from=first, max_steps=1, **QUIET)
    was, now = (checkpoints.load(run/'last.pt')['method'] for run in (first, new))
    buffers = ('running_mean', 'running_var', 'num_batches_tracked')
    learned = [k for k in was if k.startswith(('encoder.', 'projection.')) and not k.endswith(buffers)]
    assert len(learned) == 22 and all(torch.equal(was[k], now[k]) for k in learned)


def test_a_finished_run_is_measured_again(place):
    run = place/'runs'/'finished'
    [then], told = json.loads((run/'results.json').read_text()), expected('finished')
    encoder, about = checkpoints.read_encoder(run/'encoder.safetensors')
    assert about['backbone'] == 'tiny' and about['step'] == told['step']
    torch.testing.assert_close(encoded(encoder), torch.tensor(told['encoded']), rtol=1e-4, atol=1e-5)
    [row] = evaluation.retrieve(run, walls=0, machine=Machine(**QUIET))
    one = 1/then['queries'] # another machine rounds otherwise: at most one query may find another neighbour
    for k in ('r1', 'r5', 'r10'): assert row[k] == pytest.approx(then[k], abs=1.01*one)
    [only] = json.loads((run/'results.json').read_text())
    # the new row replaces the older one; precision is a field that rows did not have
    assert only['protocol'] == then['protocol'] | {'dtype': 'float32'}


def test_older_results_are_reported(place):
    [row] = json.loads((place/'runs'/'finished'/'results.json').read_text())
    assert main(['report', 'runs/finished']) == 0
    html = (place/'runs'/'finished'/'report.html').read_text()
    assert row['name'] in html and f"{100*row['r5']:.1f}" in html
