"The demo with two processes: the same weights as with one, also after Ctrl-C."
import os
import signal
import subprocess
import sys
import time

import pytest

from vssl_nb.training.checkpoints import digest, load
from vssl_nb.papers.reproduce import Task, at_once

SHORT = dict(epochs=2, batch=8, queue=48, test_clips=1, warmup=.5)
PROGRAM = f'''
import sys
from vssl_nb.cli import main
import vssl_nb.papers.reproduce
real = vssl_nb.papers.reproduce.demo
vssl_nb.papers.reproduce.demo = lambda out, seed: real(out, 'tiny', seed, {SHORT!r}, int(sys.argv.pop()))
if __name__ == '__main__': sys.exit(main(['demo', '--out', sys.argv[1]]))
'''


def demo(folder, out, processes, **kw):
    (folder/'program.py').write_text(PROGRAM)
    return subprocess.Popen([sys.executable, 'program.py', out, str(processes)], cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)


def weights(out): return {p.parent.name: digest(load(p)['method']) for p in sorted(out.glob('*/last.pt'))}


def lines(out): return sum(len(p.read_text().splitlines()) for p in out.glob('*/steps.csv'))


@pytest.fixture(scope='module')
def alone(tmp_path_factory):
    "A demo in one process."
    there = tmp_path_factory.mktemp('demo')
    process = demo(there, 'one', 1)
    said, wrong = process.communicate(timeout=300)
    assert process.returncode == 0, wrong
    return there, said


def test_two_at_a_time_and_interrupted_come_to_the_same_weights(alone):
    there, said = alone
    process = demo(there, 'two', 2, start_new_session=True)
    until = time.monotonic() + 200
    while lines(there/'two') < 30 and process.poll() is None and time.monotonic() < until: time.sleep(.02)
    os.killpg(process.pid, signal.SIGINT) # as a terminal does: all hear it
    _, wrong = process.communicate(timeout=100)
    assert process.returncode != 0 and 'Traceback' not in wrong, wrong
    process = demo(there, 'two', 2)
    again, wrong = process.communicate(timeout=300)
    assert process.returncode == 0, wrong
    assert len(weights(there/'one')) == 7 and weights(there/'two') == weights(there/'one')
    def table(text): # the last one: before it, each row is printed as soon as it is known
        said = text.splitlines()
        begin = max(i for i, line in enumerate(said) if line.startswith('name '))
        return [line.split()[:-1] for line in said[begin:]
            if line.startswith(('infonce', 'coclr', 'ubernce'))]
    assert table(again) == table(said) and len(table(said)) == 8


def test_what_fails_in_another_process_is_raised_here():
    with pytest.raises(TypeError):
        at_once({'wrong': Task(int, ('x', 'y')), 'never': Task(len, ('a',), ('wrong',))}, progress=False)
    assert at_once({'a': Task(len, ('abc',)), 'b': Task(len, ('ab',))}, progress=False) == {'a': 3, 'b': 2}


@pytest.mark.parametrize('processes', [1, 2])
def test_a_task_begins_when_what_it_waits_for_is_done_and_nothing_else(tmp_path, processes):
    "'free' stands last, but only 'next' waits for 'long'; with two processes 'long' ends after 'free'."
    def work(name, code):
        begin = f'import time, pathlib\nat = pathlib.Path({str(tmp_path)!r})'
        return exec, (f'{begin}\n{code}\n(at/{name!r}).touch()',)
    until = 'assert not (at/"free").exists()'
    if processes==2:
        until = ('end = time.monotonic() + 120\n'
            'while not (at/"free").exists():\n    assert time.monotonic() < end\n    time.sleep(.01)')
    tasks = {'long': Task(*work('long', until)),
        'next': Task(*work('next', 'assert (at/"long").exists()'), ('long',)),
        'free': Task(*work('free', ''))}
    assert list(at_once(tasks, processes, progress=False)) == list(tasks)
    assert {f.name for f in tmp_path.iterdir()} == {*tasks}


def test_a_task_that_could_never_begin_is_refused():
    with pytest.raises(ValueError, match="'a' waits for 'b'"):
        at_once({'a': Task(len, ('x',), ('b',)), 'b': Task(len, ('y',))})
