"`vssl-nb reproduce` as a reader meets it: a table through the command line, killed twice; what it refuses."
import json
import statistics
import time
from dataclasses import replace

import pytest

import warm
from vssl_nb import cli
from vssl_nb.data import toy
from vssl_nb.papers.reproduce import PAPER_TABLES, Run, beside_paper, find_rows, pairs_alike, reproduce
from vssl_nb.training.checkpoints import digest, load
from vssl_nb.training.machine import Machine

SMALL = ('--size', 'tiny', '--device', 'cpu', '--workers', '0', '--set', 'epochs=2', 'batch=8', 'queue=48',
    'topk=5', 'test_clips=1', 'warmup=0.5')
ROW = 'cpr:table1:s=3'
RUNS = 3 # InfoNCE on frames and on differences, and the cascade between them


def command(folder, *args):
    "In a process group of its own, so that it can be killed with those it starts."
    return warm.Command(['reproduce', *args], folder)


@pytest.fixture
def here(place, monkeypatch, capsys):
    "The command in this process: code, stdout, stderr."
    monkeypatch.chdir(place)
    def run(*args):
        code = cli.main(['reproduce', *args])
        return code or 0, *capsys.readouterr()
    return run


def weights(home): return {p.parent.name: digest(load(p)['method']) for p in sorted(home.glob('**/last.pt'))}


def steps(home): return sum(max(len(p.read_text().splitlines()) - 1, 0) for p in home.glob('**/steps.csv'))


@pytest.fixture(scope='module')
def place(tmp_path_factory): return tmp_path_factory.mktemp('reproduce')


def test_a_row_that_is_killed_twice_ends_as_one_that_is_not(place, here):
    changes = dict(epochs=2, batch=8, queue=48, topk=5, test_clips=1, warmup=.5) # as SMALL
    quiet = Machine('cpu', workers=0, progress=False)
    out = reproduce(ROW, 'toy', place/'whole', (0,), quiet, changes, 'tiny', processes=1)
    home, cut = place/'whole'/'toy-cpr-table1', place/'cut'/'toy-cpr-table1'
    assert len(weights(home)) == RUNS and '| s=3 | ' in out and (home/'table.md').read_text().strip() in out
    for share in (.3, .7):
        process = command(place, ROW, '--data', 'toy', '--out', 'cut', *SMALL)
        until = time.monotonic() + 200
        while steps(cut) < share*steps(home) and process.poll() is None and time.monotonic() < until:
            time.sleep(.02)
        assert process.poll() is None, process.communicate()
        process.kill_all()
    code, again, err = here(ROW, '--data', 'toy', '--out', 'cut', *SMALL)
    assert code == 0, err
    assert weights(cut) == weights(home)
    assert json.loads((cut/'table.json').read_text()) == json.loads((home/'table.json').read_text())
    def row(text): return next(x for x in text.splitlines() if x.startswith('| s=3 | '))
    assert row(again) == row(out)


def test_what_is_finished_is_not_done_again(place, here):
    home = place/'whole'
    if not home.exists(): pytest.skip('needs the run of the test before')
    before = {p: p.stat().st_mtime_ns for p in home.rglob('last.pt')}
    code, out, err = here(ROW, '--data', 'toy', '--out', 'whole', *SMALL)
    assert code == 0, err
    assert {p: p.stat().st_mtime_ns for p in home.rglob('last.pt')} == before
    assert out.count('finished') == RUNS
    code, out, err = here('--out', 'whole')
    assert code == 0 and 'here: whole/toy-cpr-table1' in out, out + err


def test_a_dry_run_leaves_nothing(place, here):
    code, out, err = here(ROW, '--data', 'toy', '--out', 'dry', '--dry-run', *SMALL)
    assert code == 0 and '3 trainings' in out and 'hours of training' in out, out + err
    assert not (place/'dry').exists()


def test_every_row_has_numbers_and_a_chain_of_recipes():
    rows = [(t, row) for t in PAPER_TABLES.values() for row in t.rows]
    for t, row in rows:
        assert t.printed(row), (t.paper, t.table, row.name)
        for small in {False, row.small is not None}:
            runs = row.needs(small)
            for i, r in enumerate(runs):
                assert r.made().name and all(o is None or o in runs[:i] for o in (r.encoder, r.sampler))
                assert not small or r.made().dataset == 'toy'
    runs = {r for _, row in rows for small in {False, row.small is not None} for r in row.needs(small)}
    assert len({r.name for r in runs}) == len({(r.recipe, r.changes) for r in runs}) > 50


def test_a_chain_is_trained_from_its_beginning():
    first, other = Run('infonce-toy-rgb'), Run('infonce-toy-residual')
    third = Run('coclr-toy-rgb-cycle1', (('topk', 5),), first, other)
    assert third.name == 'coclr-toy-rgb-cycle1-topk-5' and third.needs() == [first, other, third]
    assert replace(third, sampler=first).needs() == [first, replace(third, sampler=first)]
    assert third.made(seed=3, changes={'epochs': 7, 'beta': .1}).learning.epochs == 7


def test_rows_are_found_by_name():
    assert [len(find_rows(n)[1]) for n in ('cpr:table1', ROW, 'CPR:Table1')] == [4, 1, 4]


def test_order_of_the_paper():
    assert pairs_alike(dict(a=1, b=3, c=2), dict(a=10, b=20, c=30)) == (2, 3)
    assert pairs_alike(dict(a=1, b=1), dict(a=10, b=20, c=30)) == (0, 1)
    assert pairs_alike(dict(a=1, b=2), dict(a=10, b=10)) == (0, 0)


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
def test_what_cannot_be_reproduced_is_refused(place, here, args, says):
    if not (place/'videos').exists(): toy.make(place/'videos', 'tiny', progress=False)
    there = {*place.iterdir()}
    code, out, err = here(*args, '--out', 'refused')
    assert code == 2 and says in err and 'Traceback' not in err and len(err.strip().splitlines()) == 1, err
    assert {*place.iterdir()} == there


def test_a_table_beside_the_paper():
    "Of two rows and two seeds: means with their spread, and how many pairs stand as in the paper."
    table, rows = find_rows('provico:appendix2')
    values = {row: [{'retrieval r1': 10.*n + s, 'linear top1': 50.} for s in (0, 1)]
        for n, row in enumerate(('no-mining', 'mining'), 1)}
    spread = statistics.stdev([10, 11])
    assert beside_paper(table, rows, values).splitlines() == [
        '| row | retrieval r1 | paper | linear top1 | paper |', '| :-- | --: | --: | --: | --: |',
        f'| mining | 20.5 ± {spread:.1f} | 64.7 | 50.0 ± 0.0 | – |',
        f'| no-mining | 10.5 ± {spread:.1f} | 61.2 | 50.0 ± 0.0 | – |',
        '', 'retrieval r1: 1 of 1 pairs of rows stand in the order of the paper.']
