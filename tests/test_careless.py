"""What a careless user types: exit code 2, one sentence that says what to do, and nothing is left behind.

Most cases are made from the options themselves: a word, a fraction, nothing, or a number that is too small
where a number is asked for; a choice that does not exist; a file that is not there. Others are by hand."""
import contextlib
import dataclasses
import io
import typing
from pathlib import Path

import pytest

from vssl_nb import cli
from vssl_nb.recipes import find, override

START = {'toy': ['new'], 'manifest': ['films'], 'flow': ['videos'], 'dry-run': ['infonce-toy-rgb'],
    'pretrain': ['infonce-toy-rgb', '--data', 'videos', '--epochs', '1'], 'extract': ['run'],
    'cotrain': ['coclr-toy', '--data', 'videos'], 'retrieve': ['run'], 'probe': ['run'],
    'finetune': ['run', '--set', 'epochs=1'], 'report': ['run']}
# a negative seed of toy videos, or drift, is a number like another; these are names of what will be made
FREE = {'out', 'drift', 'name', 'manifest', 'about', 'dataset'}


def wrong_values(kind, limits: str) -> list[str]:
    "Words that cannot be a value of this type."
    said, found = str(kind), []
    plain = {'int': kind is int, 'float': kind is float}
    if plain['int'] or plain['float']: found += ['many', '']
    if plain['int']: found += ['2.5']
    if plain['float'] and limits: found += ['nan', 'inf']
    if (plain['int'] or plain['float']) and limits: found += ['-7']
    if 'Literal' in said: found += ['sometimes']
    if 'Path' in said: found += ['nowhere']
    return found


def generated():
    "Every option of every command with values that cannot be."
    for name, begin in START.items():
        kind = cli.COMMANDS[name]
        hints = typing.get_type_hints(kind)
        options = [(f.name, hints[f.name], '') for f in dataclasses.fields(kind)]
        if name == 'pretrain':
            recipe = find('infonce-toy-rgb')
            for part in (recipe, recipe.sampling, recipe.augment, recipe.method, recipe.learning):
                inner = typing.get_type_hints(type(part))
                options += [(f.name, inner[f.name], part.limits.get(f.name, ''))
                    for f in dataclasses.fields(part)]
        for option, kind_of, limits in options:
            if option in FREE: continue
            for value in wrong_values(kind_of, limits):
                yield name, [name, *begin, '--' + option.replace('_', '-'), value]


TRAIN = ['pretrain', 'infonce-toy-rgb', '--data', 'videos', '--epochs', '1']
FINETUNE = ['finetune', 'run', '--set']
BY_HAND = [
    ('there is no command', ['pretrian']),
    ('there is no recipe', ['pretrain', 'infonce', '--data', 'videos']),
    ('there is no recipe', ['dry-run', 'infonce']), ('there is no recipe', ['recipes', 'infonce']),
    ('temperature=0.0 must be above 0', [*TRAIN, '--temperature', '0']),
    ('momentum=1.5 must be', [*TRAIN, '--momentum', '1.5']), ('seed=-1 must be', [*TRAIN, '--seed', '-1']),
    ('batch=1 without a queue', [*TRAIN, '--queue', '0', '--momentum', 'None', '--batch', '1']),
    ('clips', [*TRAIN, '--clips', '1']), ('cache=-5 is below 0', [*TRAIN, '--cache', '-5']),
    ('workers=-3 is below 0', [*TRAIN, '--workers', '-3']),
    ('save_minutes', [*TRAIN, '--save-minutes', '-1']),
    ('health_every=-2', [*TRAIN, '--health-every', '-2']), ('queue=8 is smaller', [*TRAIN, '--queue', '8']),
    ('no such', ['pretrain', 'infonce-toy-rgb', '--data', 'elsewhere']),
    ('not a field', [*FINETUNE, 'epochz=2']), ('epochs=2.5', [*FINETUNE, 'epochs=2.5', 'batch=8']),
    ("epochs='abc'", [*FINETUNE, 'epochs=abc']), ('batch=None', [*FINETUNE, 'batch=None']),
    ("lr='nan'", [*FINETUNE, 'lr=nan']), ('is not name=value', [*FINETUNE, 'epochs']),
    ('holds a run already', ['pretrain', 'infonce-toy-rgb', '--data', 'videos', '--out', 'run']),
    ('is a file', [*TRAIN, '--out', 'videos/manifest.csv']), ('elsewhere', ['retrieve', 'elsewhere']),
    ('elsewhere', ['probe', 'elsewhere']), ('elsewhere', ['report', 'elsewhere'])]


@pytest.fixture(scope='module')
def workshop(tmp_path_factory):
    "Toy videos and a short run, which nobody changes."
    from vssl_nb import toy
    from vssl_nb.experiments import pretrain
    place = tmp_path_factory.mktemp('careless')
    toy.make(place/'videos', size='tiny', progress=False)
    (place/'films').mkdir()
    recipe = override(find('infonce-toy-residual'), epochs=1, batch=8, queue=16)
    pretrain(recipe, place/'videos', place/'run', device='cpu', progress=False)
    return place


def tree(folder: Path): return {p: p.stat().st_mtime_ns for p in folder.rglob('*')}


def said_by(args) -> str:
    "The one sentence on stderr of a command that is refused."
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()) as out:
        code = cli.main(args)
    said = errors.getvalue().splitlines()
    assert (code, len(said), out.getvalue()) == (2, 1, ''), (args, code, said)
    assert said[0].startswith('vssl-nb: ') and len(said[0]) < 600, said
    return said[0]


def test_there_are_enough(): assert len(list(generated())) + len(BY_HAND) >= 250


@pytest.mark.parametrize('command', START)
def test_values_that_cannot_be(command, workshop, monkeypatch):
    monkeypatch.chdir(workshop)
    before = tree(workshop)
    for name, args in generated():
        if name != command: continue
        said = said_by(args)
        option = args[-2].removeprefix('--')
        assert option in said or option.replace('-', '_') in said or args[-1] in said, (args, said)
        assert tree(workshop) == before, args


@pytest.mark.parametrize('words, args', BY_HAND, ids=[' '.join(a) for _, a in BY_HAND])
def test_mistakes(words, args, workshop, monkeypatch):
    monkeypatch.chdir(workshop)
    before = tree(workshop)
    assert words in said_by(args)
    assert tree(workshop) == before


def test_a_correction_is_not_blocked(workshop, tmp_path, monkeypatch):
    "A training that could not learn leaves a folder without a checkpoint; the corrected command takes it."
    monkeypatch.chdir(workshop)
    out = ['--out', str(tmp_path/'mine'), '--quiet', '--workers', '0', '--device', 'cpu']
    assert 'stopped being a number' in said_by([*TRAIN, '--lr', '1e30', '--epochs', '4', *out])
    assert cli.main([*TRAIN, *out]) == 0
    assert 'holds a run already' in said_by([*TRAIN, *out])
