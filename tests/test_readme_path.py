"""The README's section "For your own videos", command by command as it stands, on folders of real clips.

The commands are read from README.md, so that what is tested is what is promised. One thing is changed, in
`QUICK`: how long a training takes. The second training of own videos gets its network; the first chooses one
by measured speed. Trainings are interrupted on the way, once by Ctrl-C and once by SIGKILL, and go on with
`--resume`, as the section says they can."""
import os
import re
import shlex
import shutil
import signal
import time
from itertools import islice
from pathlib import Path

import pytest
import torch

import warm
from vssl_nb.data import manifest, video

ROOT = Path(__file__).parent.parent
VIDEOS = manifest.test_videos()
pytestmark = pytest.mark.skipif(VIDEOS is None or not (VIDEOS/'ucf101').is_dir(),
    reason='there are no real clips: name their folder in VSSL_TEST_VIDEOS, or put them into '
    '../shared/videos beside the repository')
# what is made quick: command, pattern, replacement; the second adds to a training that says nothing of time
QUICK = (('pretrain', r'--minutes \S+', '--minutes 0.1'), ('pretrain', r'^(?!.*--minutes)(.*)$',
    r'\1 --epochs 6 --batch 4 --warmup 0'), ('finetune', r'epochs=\d+', 'epochs=2 batch=4'))
CLASSES = ('Archery', 'BabyCrawling', 'Basketball')


def blocks() -> list[list[str]]:
    "The commands of the section, block by block."
    text = (ROOT/'README.md').read_text(encoding='utf-8')
    part = re.search(r'^## For your own videos\n(.*?)^#{2,3} ', text, re.M | re.S)
    assert part, 'README.md has no section "For your own videos"'
    found = [[re.sub(r'\s+#.*', '', line).strip() for line in block.splitlines() if line.strip()]
        for block in re.findall(r'^```sh\n(.*?)^```', part[1], re.M | re.S)]
    assert found and all(line.startswith('vssl-nb ') for block in found for line in block), found
    return found


def quick(line: str, network='') -> list[str]:
    "The arguments behind `vssl-nb`, with less to do; a training of own videos with this network."
    for command, pattern, new in QUICK:
        if line.split()[1] == command: line = re.sub(pattern, new, line)
    if 'pretrain own-videos' in line: line += network
    return shlex.split(line)[1:]


def few_clips(number: int) -> list[Path]:
    "So many clips of each class, each of another recording: the smallest files."
    found = []
    for name in CLASSES:
        by_source: dict[str, Path] = {}
        for p in sorted((VIDEOS/'ucf101').rglob(f'v_{name}_*.avi'), key=lambda p: p.stat().st_size):
            by_source.setdefault(re.search(r'_(g\d+)_', p.name)[1], p)
        found += list(by_source.values())[:number]
    assert len(found) == number*len(CLASSES), 'too few clips of these classes'
    return found


def holiday(path: Path, seconds: float, clips: list[Path]) -> None:
    "A longer video of one's own: clips one after another."
    frames = (torch.from_numpy(f)[None] for p in clips for f in video.iter_frames(p))
    x = torch.cat(list(islice(frames, int(25*seconds))))
    assert len(x) >= 25*seconds - 1, 'the clips are too short together'
    video.encode(path, x, fps=25.)


def furnish(home: Path, block: list[str], labelled: bool) -> None:
    "The files that the commands speak of."
    folder = home/'my_videos'
    for p in few_clips(6 if labelled else 4):
        to = folder/(re.match('v_([A-Za-z]+)_', p.name)[1] if labelled else '')/p.name
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(p, to)
    words = [w for line in block for w in shlex.split(line)]
    ends = [float(m[1]) for w in words if (m := re.search(r'@[\d.]+-([\d.]+)$', w))]
    for name in {re.sub('@.*', '', w) for w in words if re.search(r'\.mp4(@|$)', w)}:
        holiday(home/name, max([*ends, 3.]) + .5, few_clips(6))


class Shell:
    "Commands in a folder, as somebody types them."
    def __init__(self, home: Path):
        self.home = home
        self.env = os.environ | {'PYTHONPATH': str(ROOT), 'CUDA_VISIBLE_DEVICES': ''}

    def start(self, args):
        return warm.Command(args, self.home, self.env)

    def run(self, args, code=0):
        p = self.start(args)
        said, errors = p.communicate(timeout=280)
        assert p.returncode == code, f'{args}: {p.returncode}\n{said}\n{errors}'
        assert 'Traceback' not in errors, errors
        assert nobody_left(p.pid), f'{args}: left processes behind'
        return said, errors

    def interrupt(self, args, number, ready) -> bool: # False: it was over before
        "Send a signal to all processes of a command as soon as `ready()`."
        p = self.start(args)
        until = time.monotonic() + 200
        while not ready() and p.poll() is None and time.monotonic() < until: time.sleep(.01)
        over = p.poll() is not None
        if not over: os.killpg(p.pid, number)
        said, errors = p.communicate(timeout=120)
        if over:
            assert p.returncode == 0, f'{args}: {p.returncode}\n{said}\n{errors}'
            return False
        want = -number if number == signal.SIGKILL else 128 + number
        assert p.returncode == want, f'{args}: {p.returncode}, not {want}\n{said}\n{errors}'
        assert 'Traceback' not in errors, errors
        assert nobody_left(p.pid), f'{args}: left processes behind'
        return True


def nobody_left(group: int) -> bool:
    for _ in range(100):
        try: os.killpg(group, 0)
        except ProcessLookupError: return True
        time.sleep(.1)
    return False


def steps(out: Path) -> int:
    try: return max(0, (out/'steps.csv').read_text().count('\n') - 1)
    except FileNotFoundError: return 0


def train(shell: Shell, args: list[str]) -> None:
    "A training that is interrupted twice; it ends as if it had not been."
    out = shell.home/args[args.index('--out') + 1]
    assert shell.interrupt(args, signal.SIGINT, lambda: steps(out) >= 1), f'{args}: was over too soon'
    assert (out/'last.pt').exists(), 'Ctrl-C saves first'
    saved, before = steps(out), (out/'steps.csv').stat().st_mtime_ns
    # the log is written anew where a run goes on; what is killed then, or in the steps that follow, is safe.
    # (On a slow machine a training of half a minute may have had its last step at Ctrl-C: then it ends here)
    def goes_on(): return (out/'steps.csv').stat().st_mtime_ns > before
    shell.interrupt([*args, '--resume'], signal.SIGKILL, goes_on)
    shell.run([*args, '--resume'])
    assert steps(out) >= saved


def made_by(args: list[str], home: Path) -> list[Path]:
    "What a command has to leave behind."
    if args[0] == 'manifest': return [home/args[1]/'manifest.csv']
    if args[0] == 'report': return [home/args[1]/'report.html']
    if args[0] == 'retrieve': return [home/args[1]/'results.json']
    if args[0] == 'probe': return [home/args[1]/'classifier.safetensors']
    out = [home/args[args.index('--out') + 1]] if '--out' in args else []
    if args[0] == 'pretrain': return [out[0]/'encoder.safetensors', out[0]/'card.json']
    return [out[0]/'classifier.safetensors'] if args[0] == 'finetune' and out else out


@pytest.mark.parametrize('labelled', [False, True], ids=['without labels', 'with labels'])
def test_the_section_does_what_it_says(labelled, tmp_path):
    "The first block needs no labels; the last one may."
    block = blocks()[-1 if labelled else 0]
    furnish(tmp_path, block, labelled)
    shell = Shell(tmp_path)
    for line in block:
        args = quick(line, ' --backbone tiny --size 32' if labelled else '')
        if args[0] in ('pretrain', 'finetune') and '--out' in args: train(shell, args)
        else:
            said, _ = shell.run(args)
            assert said.strip(), f'{line}: says nothing'
            if args[0] == 'predict': assert said.count('%') >= len(CLASSES), said
        for path in made_by(args, tmp_path): assert path.exists() and path.stat().st_size, f'{line}: {path}'
    assert not list(tmp_path.rglob('.*.tmp*')), 'half-written files were left behind'


def test_what_is_read_from_the_readme():
    "The commands that this section is about are there, and only time is changed in them."
    names = {line.split()[1] for block in blocks() for line in block}
    assert {'manifest', 'pretrain', 'search', 'report'} <= names, names
    for line in (line for block in blocks() for line in block):
        same = ' '.join(quick(line))
        if line.split()[1] not in ('pretrain', 'finetune'): assert same == ' '.join(shlex.split(line)[1:])
    assert quick('vssl-nb pretrain x --data y --minutes 20') == 'pretrain x --data y --minutes 0.1'.split()
    assert '--epochs' in quick('vssl-nb pretrain x --data y')
