"From no data at all to a trained encoder, a table and pictures: what `make demo` does."

import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tqdm.auto import tqdm

from .. import show
from ..data import toy
from ..runs.cotraining import column, cotrain, cotraining_phases, curve
from ..data.clips import TestClips, VideoCache
from ..runs.evaluation import baselines, retrieve
from ..training.loop import read_json, write_json
from ..runs.pretraining import pretrain
from ..data.flow import extract_flow
from ..training.machine import Machine
from ..data.manifest import Manifest, read
from ..data.views import image_to_flow
from ..methods.recipes import Recipe, find, flat_fields, override, to_dict
from .report import html, table
from ..training.loop import TrainError

def a_video_per_class(
    manifest:Manifest,
    frames:int=8, # of each video
    size:int=64, # pixels
):
    "One strip per class."
    first = {manifest.rows[i].label: i for i in reversed(manifest.select('train'))}
    rows = [first[label] for label in manifest.labels if label in first]
    clips = TestClips(manifest, rows, clips=1, length=frames, stride=2, size=size)
    return show.strips([clips[i]['clips'][0] for i in range(len(rows))],
        [manifest.rows[r].label for r in rows])

def top1_curves(
    runs:dict[str,Any], # name -> run folder
    what:str, # column of steps.csv
):
    "One column of the logs of several runs over the steps."
    return show.curves({name: column(run, what) for name,run in runs.items()}, 'step', what, smooth=20)

def flow_per_class(
    manifest:Manifest, # with stored flow
    frames:int=8, # of each video
    size:int=64, # pixels
):
    "One strip of frames per class over one of its flow."
    first = {manifest.rows[i].label: i for i in reversed(manifest.select('train')) if manifest.rows[i].flow}
    rows = [first[label] for label in manifest.labels if label in first]
    clips = TestClips(manifest, rows, clips=1, length=frames, stride=2, size=size, load=('clips', 'flow'))
    some = [clips[i] for i in range(len(rows))]
    flows = [image_to_flow(c['flow'][0]) for c in some] # (T, 2, H, W) pixels
    most = max([float(flow.norm(dim=1).max()) for flow in flows], default=0) or 1. # in full colour
    strips = [x for c,flow in zip(some, flows) for x in (c['clips'][0], show.flow_colour(flow, most))]
    return show.strips(strips, [title for r in rows for title in (manifest.rows[r].label, 'flow')])

def _alone()->None: # in a new process
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN) # while training `stop_signals` listens, and the run is saved

def _steps(run:Path)->int:
    log = run/'steps.csv'
    return max(0, len(log.read_bytes().splitlines())-1) if log.exists() else 0

class Task(NamedTuple):
    "Work for another process."
    function:Callable # of a module
    arguments:tuple[Any,...]
    after:tuple[str,...]=() # names of the tasks that have to be done before

def _submit(pool:ProcessPoolExecutor, task:Task)->Future[Any]:
    # a process that starts now inherits it: Ctrl-C must not hit one that is still importing
    listens = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try: return pool.submit(task.function, *task.arguments)
    finally: signal.signal(signal.SIGINT, listens)

def at_once(
    tasks:Mapping[str,Task], # the first that are ready are begun first; none stands before one of its `after`
    processes:int=2, # 1: in this process, one after the other
    runs:Sequence[Path]=(), total:int=0, # run folders and the steps they come to, for the bar
    progress:bool=True,
    look:Callable[[dict[str,Any]],None]=lambda done: None, # called every second with what is done so far
)->dict[str,Any]: # what each returned
    "Several tasks at a time; raises what the first of them raised, or ValueError where one cannot begin."
    names, done = list(tasks), dict[str,Any]()
    for i,(name,t) in enumerate(tasks.items()):
        if late := [a for a in t.after if a not in names[:i]]:
            raise ValueError(f"the task '{name}' waits for '{late[0]}', which does not stand before it")
    if processes==1:
        for n,t in tasks.items():
            done[n] = t.function(*t.arguments)
            look(done)
        return done
    waiting, running = dict(tasks), dict[Future[Any],str]()
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context('spawn'), _alone)
    with pool, tqdm(total=total, desc='training', unit='step', disable=not progress) as bar:
        try:
            while waiting or running:
                ready = [n for n,t in waiting.items() if done.keys() >= set(t.after)]
                for n in ready[:processes-len(running)]: running[_submit(pool, waiting.pop(n))] = n
                for f in wait(running, 1, FIRST_COMPLETED).done: done[running.pop(f)] = f.result()
                bar.update(sum(map(_steps, runs)) - bar.n)
                look(done)
        finally: pool.shutdown(cancel_futures=True)
    return {n: done[n] for n in tasks}

SHOWN = {'name': 'name', 'view': 'view', 'protocol': 'protocol', 'r1': 'R@1 %', 'r5': 'R@5 %',
    'r10': 'R@10 %', 'mined': 'mined right %', 'seconds': 'seconds'}

class RowPrinter:
    "Prints each row of results once, in columns whose width is known beforehand."
    def __init__(self,
        columns:Mapping[str,str]=SHOWN, # key of a row -> heading
        widths:Sequence[int]=(25, 13, 27), # of the first columns; the others are as wide as their headings
    ):
        self.columns = columns
        self.widths = [*widths, *(max(len(h), 6) for h in list(columns.values())[len(widths):])]
        self.printed = set[tuple[str,str,str]]()

    def line(self, cells:Sequence[str])->str: # one per column
        padded = (c.ljust(w) if i < 3 else c.rjust(w) for i,(c,w) in enumerate(zip(cells, self.widths)))
        return '  '.join(padded).rstrip()

    def __call__(self, row:Mapping[str,Any])->None:
        protocol = row.get('protocol') or '–'
        name = protocol['name'] if isinstance(protocol, Mapping) else str(protocol)
        who = (row['name'], row['view'], name)
        if who in self.printed: return
        if not self.printed: tqdm.write(self.line(list(self.columns.values())))
        self.printed.add(who)
        def told(key, how): return '–' if row.get(key) is None else how(row[key])
        shares = [told(k, lambda v: f'{100*v:.1f}') for k in ('r1', 'r5', 'r10', 'mined')]
        seconds = told('seconds', lambda v: f'{v:.3g}')
        tqdm.write(self.line([row['name'], row['view'] or '–', name, *shares, seconds]))

BESIDE = {'ubernce-toy-rgb': 'infonce-toy-rgb', 'infonce-toy-rgb-longer': 'infonce-toy-rgb',
    'infonce-toy-flow': ''} # recipe -> run that gives the first weights

@lru_cache(maxsize=1)
def _kept(path:Path, sha256:str)->VideoCache: return VideoCache(read(path), 2**31)

def _videos(data:Path)->VideoCache: # a process decodes each video once, for all its tasks
    m = read(data)
    return _kept(m.path, m.sha256)

def _quiet(data:Path)->Machine: return Machine('cpu', progress=False, cache=_videos(data))

def trained(
    recipe:Recipe, data:Path, out:Path,
    init_from:Path|None=None, # run folder of the first weights
)->Path: # the run folder
    "Pretrain one recipe, from where it stands."
    run = out/recipe.name
    pretrain(recipe, data, run, (run/'recipe.json').exists(), _quiet(data), init_from=init_from)
    if not read_json(run/'card.json', 'a run')['finished']:
        raise TrainError(f'{run}: was stopped; the same command goes on')
    return run

def measured(run:Path, data:Path)->dict[str,Any]: # the row
    return retrieve(run, data=data, machine=_quiet(data))[0]

def _untrained(recipe:Recipe, data:Path)->dict[str,Any]: # the row
    listens = signal.signal(signal.SIGINT, signal.default_int_handler) # nothing to save: Ctrl-C may end it
    try: return baselines(recipe, read(data), which=('random',), machine=_quiet(data))[0]
    finally: signal.signal(signal.SIGINT, listens)

def _cotrained(data:Path, out:Path, changes:Mapping[str,Any])->list[dict[str,Any]]: # for another process
    return cotrain('coclr-toy', data, out, changes, _quiet(data))

def demo(
    out='runs/demo', # where everything goes
    size:str='demo', # of the toy dataset: 'tiny' or 'demo'
    seed:int=0, # of videos, weights and order
    changes:Mapping[str,Any]|None=None, # fields to override in every recipe that has them
    processes:int|None=None, # that train at a time; None: two, or one on a machine with one core
    progress:bool=True, # show bars
)->list[dict[str,Any]]: # the rows of results.json
    "Write videos, measure what needs no training, train, retrieve, and put it all on one page."
    out, began, show_row = Path(out), time.monotonic(), RowPrinter()
    changes = dict(changes or {}) | {'seed': seed}
    phases = [r for _,r in cotraining_phases('coclr-toy', changes)]
    beside = [(_changed(find(n), changes), start) for n,start in BESIDE.items()]
    data = toy.make(out/'toy', size, seed, progress=progress)
    floor = baselines(phases[0], read(data), which=('chance', 'histogram'),
        machine=Machine('cpu', progress=False))
    for row in floor: show_row(row)
    extract_flow(data, 'dis', codec='small', progress=progress)
    manifest, recipes = read(data), [*phases, *(r for r,_ in beside)]
    tasks, fresh = demo_tasks(phases, beside, data, out, changes)
    def look(done): # what is known by now
        for n in fresh: show_row(done[n]) if n in done else None
        for r in phases: _show_phase(out/r.name, show_row)
        for row in done.get('cotrained', []): show_row(row) # both streams
        for row in [done[f'{r.name}, measured'] for r,_ in beside if f'{r.name}, measured' in done]:
            show_row(row)
    steps = sum(r.learning.epochs*(len(manifest.select('train'))//r.learning.batch) for r in recipes)
    processes = processes or min(2, os.cpu_count() or 1)
    found = at_once(tasks, processes, [out/r.name for r in recipes], steps, progress, look)
    _kept.cache_clear() # where this process has done the work itself
    compared = [found[f'{r.name}, measured'] for r,_ in beside]
    rows = floor + [found[n] for n in fresh] + found['cotrained'] + compared
    write_json(out/'results.json', rows)
    _page(out, rows, manifest, phases, [r for r,_ in beside])
    print('', table(rows, 'text', SHOWN), '', story(rows),
        f'{out/"report.html"}, {time.monotonic()-began:.0f} s in all', sep='\n')
    return rows

def _changed(recipe:Recipe, changes:Mapping[str,Any])->Recipe:
    return override(recipe, **{k: v for k,v in changes.items() if k in flat_fields(recipe)})

def _show_phase(run:Path, show_row:Callable)->None: # a phase is known once its miner was asked, too
    if not (run/'results.json').exists(): return
    for row in read_json(run/'results.json', 'a run'): show_row(row) if 'mined' in row else None

def demo_tasks(
    phases:Sequence[Recipe], # of the co-training: InfoNCE on both views, then what they teach each other
    beside:Sequence[tuple[Recipe,str]], # a recipe and the run that gives its first weights, or ''
    data:Path, out:Path, changes:Mapping[str,Any],
)->tuple[dict[str,Task],list[str]]: # all tasks, and the names of those that measure untrained encoders
    "What is to be done, in the order of its urgency: what fills the gaps comes last."
    alone = phases[:2]
    tasks = {r.name: Task(trained, (r, data, out)) for r in alone}
    tasks['cotrained'] = Task(_cotrained, (data, out, changes), tuple(tasks)) # measures those two as well
    for r,start in beside:
        tasks[r.name] = Task(trained, (r, data, out, out/start if start else None), (start,) if start else ())
    for r,_ in beside: tasks[f'{r.name}, measured'] = Task(measured, (out/r.name, data), (r.name,))
    views = [*alone, *(r for r,start in beside if not start)]
    fresh = {f'{r.view}, untrained': Task(_untrained, (r, data)) for r in views}
    return tasks | fresh, list(fresh)

def _page(
    out:Path, rows:Sequence[dict[str,Any]], manifest:Manifest,
    phases:Sequence[Recipe], beside:Sequence[Recipe],
)->None:
    "Write figures and report.html."
    figures, recipes = out/'figures', [*phases, *beside]
    runs = {r.name: out/r.name for r in recipes}
    alone = {n: run for n,run in runs.items() if n.startswith('infonce')}
    shown = {}
    for file,caption,picture in (
            ('classes', 'One video per class: only the motion tells them apart.',
                a_video_per_class(manifest)),
            ('flow', 'The same videos and their stored optical flow.', flow_per_class(manifest)),
            ('loss', 'The loss of InfoNCE (log 32 = 3.5 is what guessing costs).',
                top1_curves(alone, 'loss')),
            ('top1', 'Pretext accuracy: how often a query finds its own key first.',
                top1_curves(alone, 'top1')),
            ('phases', 'Co-training: how well each phase retrieves, and how many of the mined positives '
                'were right.', curve(out, [r.name for r in phases]))):
        shown[caption] = show.save_picture(picture, figures/f'{file}.png')
    for name,run in runs.items():
        drawn = run/'figures'/f'neighbours-{manifest.sha256[:8]}.png'
        wall = shutil.copy(drawn, figures/f'neighbours-{name}.png')
        shown[f'Test videos and their nearest training videos, {name}: green is the same class.'] = Path(wall)
    versions = read_json(next(iter(runs.values()))/'card.json', 'a run')['versions']
    html([{k: v for k,v in r.items() if k not in ('r20', 'r50')} for r in rows], shown,
        {r.name: to_dict(r) for r in recipes}, out/'report.html', title='vssl_nb demo', note=story(rows),
        versions=versions)

def story(
    rows:Sequence[dict[str,Any]], # of results.json
)->str: # a paragraph
    "What the table says, in words."
    def of(name): return next(r['r1'] for r in rows if r['name']==name)
    def how(method, view):
        return next(r['r1'] for r in rows if r['method']==method and r['view'] in ('', view))
    said = [f'Guessing finds a video of the same motion in {how("chance", ""):.1%} of cases, '
        f'a colour histogram in {how("histogram", "rgb"):.1%}.']
    for view,what in (('flow', 'optical flow'), ('residual', 'frame differences'), ('rgb', 'frames')):
        said.append(f'InfoNCE on {what} reaches {of(f"infonce-toy-{view}"):.1%} ({how("random", view):.1%} '
            'before training).')
    coclr = {r['view']: r['r1'] for r in rows if r['method']=='coclr'} # of the last cycle
    said.append(f'Frames that learn from what frame differences find alike (CoCLR) reach {coclr["rgb"]:.1%}, '
        f'where InfoNCE comes to {of("infonce-toy-rgb-longer"):.1%} in as many steps, '
        f'and labels in the place of the other view (UberNCE) to {of("ubernce-toy-rgb"):.1%}.')
    said.append(f'Both streams of CoCLR together: {coclr["rgb+residual"]:.1%} '
        f'(frame differences alone {coclr["residual"]:.1%}).')
    return ' '.join(said)
