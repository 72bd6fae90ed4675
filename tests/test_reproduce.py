"`vssl-nb reproduce` as a reader meets it: a table through the command line, killed twice; what it refuses."
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from vssl_nb.data import toy
from vssl_nb.training.checkpoints import digest, load

SMALL = ('--size', 'tiny', '--device', 'cpu', '--workers', '0', '--set', 'epochs=2', 'batch=8', 'queue=48',
    'topk=5', 'test_clips=1', 'warmup=0.5')
ROW = 'cpr:table1:s=3'
RUNS = 3 # InfoNCE on frames and on differences, and the cascade between them


def command(folder, *args, **kw):
    return subprocess.Popen([sys.executable, '-m', 'vssl_nb.cli', 'reproduce', *args], cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)


def said(process, seconds=250):
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


def weights(home): return {p.parent.name: digest(load(p)['method']) for p in sorted(home.glob('**/last.pt'))}


def steps(home): return sum(max(len(p.read_text().splitlines()) - 1, 0) for p in home.glob('**/steps.csv'))


@pytest.fixture(scope='module')
def place(tmp_path_factory): return tmp_path_factory.mktemp('reproduce')


def test_a_row_that_is_killed_twice_ends_as_one_that_is_not(place):
    code, out, err = said(command(place, ROW, '--data', 'toy', '--out', 'whole', *SMALL))
    assert code == 0, err
    home = place/'whole'/'toy-cpr-table1'
    assert len(weights(home)) == RUNS and '| s=3 | ' in out and (home/'table.md').read_text().strip() in out
    for share in (.3, .7):
        process = command(place, ROW, '--data', 'toy', '--out', 'cut', *SMALL, start_new_session=True)
        until = time.monotonic() + 200
        while steps(place/'cut') < share*steps(home) and process.poll() is None and time.monotonic() < until:
            time.sleep(.02)
        assert process.poll() is None, said(process)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    code, again, err = said(command(place, ROW, '--data', 'toy', '--out', 'cut', *SMALL))
    assert code == 0, err
    cut = place/'cut'/'toy-cpr-table1'
    assert weights(cut) == weights(home)
    assert json.loads((cut/'table.json').read_text()) == json.loads((home/'table.json').read_text())
    def row(text): return next(x for x in text.splitlines() if x.startswith('| s=3 | '))
    assert row(again) == row(out)


def test_what_is_finished_is_not_done_again(place):
    home = place/'whole'
    if not home.exists(): pytest.skip('needs the run of the test before')
    before = {p: p.stat().st_mtime_ns for p in home.rglob('last.pt')}
    code, out, err = said(command(place, ROW, '--data', 'toy', '--out', 'whole', *SMALL))
    assert code == 0, err
    assert {p: p.stat().st_mtime_ns for p in home.rglob('last.pt')} == before
    assert out.count('finished') == RUNS
    code, out, err = said(command(place, '--out', 'whole'))
    assert code == 0 and 'here: whole/toy-cpr-table1' in out, out + err


def test_a_dry_run_leaves_nothing(place):
    code, out, err = said(command(place, ROW, '--data', 'toy', '--out', 'dry', '--dry-run', *SMALL))
    assert code == 0 and '3 trainings' in out and 'hours of training' in out, out + err
    assert not (place/'dry').exists()


@pytest.mark.parametrize('args, says', [
    (('cpr:tabel1',), "did you mean 'cpr:table1'"),
    (('cpr:table1:s=4', '--data', 'toy'), "has no row 's=4'"),
    (('cpr:table1',), 'say on what: --data toy'),
    (('iic:readme:repeat-u', '--data', 'toy'), 'the toy videos do not have'),
    (('cpr:table1', '--data', 'nowhere'), 'nowhere'),
    (('cpr:table1', '--data', 'videos'), 'like no published dataset'),
    (('cpr:table1', '--data', 'toy', '--set', 'epoch=3'), 'epoch'),
    (('cpr:table1', '--data', 'toy', '--seeds', '0', '0'), 'seeds'),
    ])
def test_what_cannot_be_reproduced_is_refused(place, args, says):
    if not (place/'videos').exists(): toy.make(place/'videos', 'tiny', progress=False)
    there = {*place.iterdir()}
    code, out, err = said(command(place, *args, '--out', 'refused'), 100)
    assert code == 2 and says in err and 'Traceback' not in err and len(err.strip().splitlines()) == 1, err
    assert {*place.iterdir()} == there
