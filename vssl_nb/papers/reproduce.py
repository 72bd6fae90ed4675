"A row of a paper's table goes in; the runs that it needs come out, are trained, measured, and set beside the paper."

import math
import re
import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..data import toy
from ..data.clips import VideoCache
from .demo import Task, at_once
from ..training.loop import read_json, write_json
from ..runs.evaluation import measure_probe, retrieve
from ..runs.pretraining import pretrain, views_ready
from ..runs.parts import training_videos
from ..runs.finetuning import TRAININGS, finetune
from ..runs.own import seconds_per_step
from ..training.machine import Machine
from ..data.manifest import Manifest, open_data, read
from ..names import did_you_mean
from .published import ROWS, Published
from ..methods.recipes import COTRAININGS, Recipe, RecipeError, find, flat_fields, override, refuse_unfit
from .report import dataset_of
from ..training.loop import TrainError

@dataclass(frozen=True)
class Run:
    "A training that a row of a table needs, and those that it begins with."
    recipe:str # name
    changes:tuple[tuple[str,Any],...]=() # fields of the recipe and their values
    encoder:'Run|None'=None # whose weights it begins with
    sampler:'Run|None'=None # whose network mines for it

    @property
    def name(self)->str: # of its folder
        "The recipe and what is changed of it."
        said = [w for k,v in self.changes for w in (k, *(v if isinstance(v, tuple) else (v,)))]
        return re.sub(r'[^\w.]+', '-', '-'.join(map(str, (self.recipe, *said))))

    def needs(self)->list['Run']: # every run once, each behind those it begins with; itself the last
        "All that is to be trained."
        before = [r for other in (self.encoder, self.sampler) if other for r in other.needs()]
        return list(dict.fromkeys([*before, self]))

    def made(self, seed:int=0, changes:Mapping[str,Any]|None=None)->Recipe:
        "The recipe as it will be trained; `changes` hold for every recipe that has such a field."
        made = override(find(self.recipe), **dict(self.changes), seed=seed)
        return override(made, **{k: v for k,v in (changes or {}).items() if k in flat_fields(made)})

@dataclass(frozen=True)
class TableRow:
    "A row of a published table."
    name:str # as it is typed: 's=3'
    method:str # as it is printed; with `setting` it finds the numbers in `published.ROWS`
    full:Run # what the paper trained
    small:Run|None=None # the same question on toy videos; None: they cannot ask it
    setting:str=''
    pretrain:str='UCF101' # dataset, as printed
    backbone:str='' # as printed; none: the table has one

@dataclass(frozen=True)
class Table:
    "A table of a paper, as far as it can be trained here."
    paper:str # as `published` writes it
    table:str
    about:str # what it asks
    rows:tuple[TableRow,...]

    def printed(self, row:TableRow)->list[Published]:
        "The paper's numbers of a row."
        return [r for r in ROWS if (r.paper, r.table, r.method, r.setting)==(self.paper, self.table,
            row.method, row.setting) and r.pretrain in ('', row.pretrain)
            and row.backbone in ('', r.backbone)]

def _chain(cotraining:str, recipe:str)->Run: # of a recipe of COTRAININGS
    phase = next(p for p in COTRAININGS[cotraining] if p.recipe==recipe)
    begin = {k: _chain(cotraining, name) for k,name in (('encoder', phase.start), ('sampler', phase.sampler))
        if name}
    return Run(recipe, (), **begin)

_VIEWS = {v: Run(f'infonce-ucf101-{v}') for v in ('rgb', 'flow')}
_TOY = {v: Run(f'infonce-toy-{v}') for v in ('rgb', 'residual')}
_TOY_COCLR = _chain('coclr-toy', 'coclr-toy-rgb-cycle1')
_TOY_LONGER = Run('infonce-toy-rgb-longer', (), _TOY['rgb'])
_TOY_UBERNCE = Run('ubernce-toy-rgb', (), _TOY['rgb'])

def _cpr(stages:int, ratio:float)->Run:
    name = f'coclr-cpr-ucf101-rgb-s{stages}-r{ratio:g}'
    if (stages, ratio)==(7, .5): name = 'coclr-cpr-ucf101-rgb-cycle1' # the released one
    return Run(name, (), _VIEWS['rgb'], _VIEWS['flow'])

def _small_cpr(stages:int, ratio:float)->Run|None:
    if stages==1: return _TOY_COCLR
    # of 512 candidates seven stages of one half would leave fewer than the 20 that are mined
    if stages > 3 and ratio==.5: ratio = .6
    return replace(_TOY_COCLR, changes=(('miner', 'cascade'), ('miner_options', (f'stages={stages}',
        f'ratio={ratio:g}'))))

def _stages(method:str, setting:str, stages:int, ratio:float=.5, name:str='')->TableRow:
    return TableRow(name or f's={stages}', method, _cpr(stages, ratio), _small_cpr(stages, ratio), setting)

def _of(name:str, method:str, recipe:str, small:str|None, setting:str='', pretrain:str='UCF101',
        **changes:Any)->TableRow: # one recipe and its toy, both with a change
    changed = tuple(changes.items())
    return TableRow(name, method, Run(recipe, changed), Run(small, changed) if small else None, setting,
        pretrain)

_COCLR_TABLES = {
    'coclr:readme': Table('CoCLR', 'README', 'InfoNCE and CoCLR, frames and flow', (
        TableRow('infonce-rgb', 'UCF101-RGB-InfoNCE', _VIEWS['rgb'], _TOY_LONGER),
        TableRow('infonce-flow', 'UCF101-Flow-InfoNCE', _VIEWS['flow'], _TOY['residual']),
        TableRow('coclr-rgb', 'UCF101-RGB-CoCLR', _chain('coclr-ucf101', 'coclr-ucf101-rgb-cycle2'),
            _TOY_COCLR),
        TableRow('coclr-flow', 'UCF101-Flow-CoCLR', _chain('coclr-ucf101', 'coclr-ucf101-flow-cycle2'),
            _chain('coclr-toy', 'coclr-toy-residual-cycle1')),
        TableRow('k400-rgb', 'K400-RGB-CoCLR', _chain('coclr-k400', 'coclr-k400-rgb-cycle2'),
            pretrain='Kinetics-400'),
        TableRow('k400-flow', 'K400-Flow-CoCLR', _chain('coclr-k400', 'coclr-k400-flow-cycle2'),
            pretrain='Kinetics-400'))),
    'coclr:table1': Table('CoCLR', 'table 1', 'a linear probe of InfoNCE and CoCLR on frames', (
        TableRow('infonce', 'InfoNCE-RGB', Run('infonce-ucf101-rgb', (('epochs', 500),)), _TOY_LONGER,
            '500 epochs'),
        TableRow('coclr', 'CoCLR-RGB', _chain('coclr-ucf101', 'coclr-ucf101-rgb-cycle2'), _TOY_COCLR)))}
_CPR_TABLES = {
    'cpr:table1': Table('CPR', 'table 1', 'how many stages of a cascade', (
        _stages('s = 1', '100 epochs', 1), _stages('s = 3', '', 3), _stages('s = 5', '', 5),
        _stages('s = 7', '100 epochs', 7))),
    'cpr:table2': Table('CPR', 'table 2', 'which ratio of a cascade', (
        _stages('r = 0.8(s=3)', '', 3, .8, 's=3,r=0.8'), _stages('r = 0.5(s=3)', '', 3, .5, 's=3,r=0.5'),
        _stages('r = 0.8(s=7)', '', 7, .8, 's=7,r=0.8'),
        _stages('r = 0.5(s=7)', '100 epochs', 7, .5, 's=7,r=0.5'))),
    'cpr:table3': Table('CPR', 'table 3', 'IIC with a number of positives that grows or does not', (
        _of('fixed', 'Baseline-Top-5', 'iic-cpr-ucf101-residual-fixed', None, 'top 5 throughout'),
        _of('grows', 'Prog-Top-5', 'iic-cpr-ucf101-residual', 'iic-cpr-toy'))),
    'cpr:table4': Table('CPR', 'table 4', 'what is mined rightly, by stages', (
        _stages('s = 1 (CoCLR)', '100 epochs', 1), _stages('s = 3, r = 0.5', '', 3, .5),
        _stages('s = 5, r = 0.5', '', 5, .5), _stages('s = 7, r = 0.5', '100 epochs', 7, .5))),
    'cpr:table5': Table('CPR', 'table 5', 'CPR beside CoCLR, UberNCE and IIC', (
        _stages('CoCLR', '100 epochs', 1, name='coclr'), _stages('CoCLR(+CPR)', '100 epochs', 7, name='cpr'),
        TableRow('ubernce', 'UberNCE', Run('ubernce-ucf101-rgb', (), _VIEWS['rgb']), _TOY_UBERNCE),
        _of('iic', 'IIC', 'iic-ucf101-residual', 'iic-toy'),
        _of('iic-cpr', 'IIC(+CPR)', 'iic-cpr-ucf101-residual', 'iic-cpr-toy')))}

_MQ, _SIMCLR, _MQ_TOY = 'moquad-ucf101-r3d18', 'simclr-ucf101-r3d18', 'moquad-toy-rung3'
_PV, _PV_APP = 'provico-ucf101-r3d18', 'provico-ucf101-r2plus1d18'
_PLAIN = ('beta', 0.), ('appearance_task', 0.) # the ladder has neither hard negatives nor the first task
_MOQUAD_TABLES = {
    'iic:readme': Table('IIC', 'README', 'how the motion is broken, and which second view', (
        _of('shuffle-res', 'Ours', 'iic-ucf101-residual', 'iic-toy', 'shuffle + res'),
        _of('repeat-res', 'Ours', 'iic-ucf101-residual-repeat', None, 'repeat + res'),
        _of('repeat-u', 'Ours', 'iic-ucf101-flow-u', None, 'repeat + u'),
        _of('shuffle-v', 'Ours', 'iic-ucf101-flow', None, 'shuffle + v'))),
    'moquad:table1': Table('MoQuad', 'table 1', 'fine-tuned, over backbones and datasets', (
        TableRow('r3d18', 'MoQuad†', Run(_MQ), Run('moquad-toy'), backbone='R3D-18'),
        TableRow('s3dg', 'MoQuad†', Run('moquad-ucf101-s3dg'), backbone='S3D-G'))),
    'moquad:table3': Table('MoQuad', 'table 3', 'retrieval', (_of('r3d18', 'MoQuad', _MQ, 'moquad-toy'),)),
    'moquad:table4': Table('MoQuad', 'table 4', 'the ladder from SimCLR to the quadruple', (
        _of('simclr', '– – –', _SIMCLR, 'moquad-toy-rung0'),
        TableRow('ad-pos', '✓ – –', Run(_MQ, (*_PLAIN, ('intra_negatives', ()), ('clips', 2),
            ('motion', 'none'), ('motion_clips', ()), ('appearance_clips', (1,)))),
            Run('moquad-toy-rung1'), 'AD-Pos'),
        TableRow('intra-neg', '✓ ✓ –', Run(_MQ, (*_PLAIN, ('intra_negatives', ('n',)), ('clips', 3),
            ('motion_clips', (2,)), ('appearance_clips', (1,)))), Run('moquad-toy-rung2'),
            'AD-Pos, Intra-Neg'),
        TableRow('full', '✓ ✓ ✓', Run(_MQ, _PLAIN), Run(_MQ_TOY)))),
    'moquad:table6': Table('MoQuad', 'table 6', 'hard negatives, and the appearance task first', (
        *(_of(f'alpha={a},beta={b}', 'hard negatives', _MQ, _MQ_TOY, f'beta {b}, alpha {a}', alpha=a, beta=b,
            appearance_task=0.) for a,b in ((1.5, .01), (2., .01), (3., .01), (1.5, .05))),
        *(_of(f'warm-up={p}', 'warm-up', _MQ, 'moquad-toy', f'{p}%', appearance_task=p/100)
            for p in (0, 10, 20, 40, 60))))}
_PROVICO_TABLES = {
    'provico:table3': Table('ProViCo', 'table 3', 'retrieval', (
        _of('r3d18', 'ProViCo', _PV, 'provico-toy'),)),
    'provico:table4': Table('ProViCo', 'table 4', 'the weight of the prior, and the number of samples', (
        *(_of(f'beta={b}', 'beta', _PV, 'provico-toy', b, beta=float(b)) for b in ('1e-4', '1e-3', '1e-2')),
        *(_of(f'K={k}', 'K', _PV, 'provico-toy', str(k), samples=k) for k in (5, 7, 10)))),
    'provico:appendix1': Table('ProViCo', 'appendix table 1', 'how many clips, and videos in a batch', (
        *(_of(f'N={n}', 'N', _PV_APP, 'provico-toy', f'{n}, B = 40', mixture=n, clips=n) for n in (1, 2, 3)),
        *(_of(f'B={b}', 'B', _PV_APP, None, str(b), batch=b) for b in (24, 48, 72, 96)))),
    'provico:appendix2': Table('ProViCo', 'appendix table 2', 'with mining and without', (
        _of('mining', 'Mining', _PV_APP, 'provico-toy'),
        _of('no-mining', 'Mining', _PV_APP, 'provico-toy', 'off', instance_stage=1.)))}
PAPER_TABLES: dict[str,Table] = {**_COCLR_TABLES, **_CPR_TABLES, **_MOQUAD_TABLES, **_PROVICO_TABLES}

def asked_rows(
    name:str, # 'cpr:table1', or with a row 'cpr:table1:s=3'
)->tuple[Table,list[TableRow]]:
    "A table and the rows that are meant; RecipeError names the nearest."
    paper, _, rest = name.partition(':')
    table, _, row = rest.partition(':')
    key = f'{paper}:{table}'.lower()
    if key not in PAPER_TABLES:
        raise RecipeError(f'there is no table {name!r} to reproduce; {did_you_mean(key, PAPER_TABLES)}')
    found = PAPER_TABLES[key]
    rows = [r for r in found.rows if not row or r.name==row]
    if not rows:
        names = [r.name for r in found.rows]
        raise RecipeError(f'{key} has no row {row!r}; {did_you_mean(row, names)}')
    return found, rows

def listed(
    results:Iterable[Path]=(), # folders that may hold finished runs of `reproduce`
)->list[dict[str,str]]: # 'name', 'asks', 'rows', 'dataset', 'trainings', 'toy', 'here'
    "Every table of the papers that has a plan, and what it needs."
    lines = []
    for key,t in PAPER_TABLES.items():
        runs = {r for row in t.rows for r in row.full.needs()}
        small = [row.small for row in t.rows if row.small]
        name = key.replace(':', '-')
        done = [str(p.parent) for f in results for p in sorted(Path(f).glob(f'*{name}/table.json'))]
        lines.append({'name': key, 'asks': t.about, 'rows': ' '.join(r.name for r in t.rows),
            'dataset': ', '.join(sorted({r.made().dataset for r in runs})), 'trainings': str(len(runs)),
            'toy': f'{len(small)} of {len(t.rows)} rows', 'here': ', '.join(done) or '–'})
    return lines

@dataclass(frozen=True)
class Planned:
    "One training of a plan on this machine."
    run:Run
    recipe:Recipe
    folder:Path # its run folder
    steps:int
    seconds:float # for all steps; 0: finished

    def __str__(self)->str:
        time = f'{self.seconds/60:,.0f} min' if self.seconds else 'finished'
        return f'{self.folder}  {self.steps:,} steps  {time}'

def training_steps(recipe:Recipe, videos:int)->int:
    "Optimizer steps of a whole training."
    how = recipe.learning
    return how.epochs*(videos//(how.batch*how.accumulate))

def step_seconds(recipe:Recipe, manifest:Manifest, machine:Machine, limit:float=1.)->float:
    "Of one optimizer step here; of large networks on a CPU from a step with fewer videos."
    how, few = recipe.learning, 4
    on_cpu = machine.place().type=='cpu' and recipe.backbone not in ('tiny', 'small')
    if not on_cpu or how.batch <= few: return seconds_per_step(recipe, manifest, machine, limit)
    quick = override(recipe, batch=few, accumulate=1)
    return seconds_per_step(quick, manifest, machine, limit)*how.batch*how.accumulate/few

def finished(folder:Path)->bool:
    "Has this run made its last step?"
    return (folder/'card.json').exists() and read_json(folder/'card.json', 'a run')['finished']

def plan_table(
    rows:Sequence[TableRow], small:bool, # on toy videos?
    data:Mapping[int,Manifest], # seed -> what to train on
    out:Path, machine:Machine=Machine(),
    changes:Mapping[str,Any]|None=None, # fields, for every recipe that has them
    measure:bool=True, # look at the clock; False: every `seconds` is infinite
)->list[Planned]: # in the order of training, each once
    "What has to be trained. RecipeError where a recipe does not fit this data."
    runs = [r for row in rows for r in ((row.small if small else row.full) or row.full).needs()]
    found, clock = [], dict[Any,float]()
    for seed,manifest in data.items():
        for run in dict.fromkeys(runs):
            recipe, folder = run.made(seed, changes), out/f'seed{seed}'/run.name
            refuse_unfit(recipe, training_videos(recipe, manifest))
            steps = training_steps(recipe, len(manifest.select('train', recipe.split)))
            # the clock goes by what a step computes, not by how many there are
            alike = replace(recipe, name='', about='', seed=0, learning=replace(recipe.learning, epochs=1,
                lr=1., drops=(), warmup=0.))
            if measure and not finished(folder) and alike not in clock:
                clock[alike] = step_seconds(recipe, manifest, machine)
            each = clock.get(alike, math.inf)
            found.append(Planned(run, recipe, folder, steps, 0. if finished(folder) else steps*each))
    return found

def train_planned(p:Planned, data:Path, machine:Machine)->Path: # the run folder
    "Train one run from where it stands. TrainError where it is stopped."
    def other(run:Run|None)->Path|None: return p.folder.parent/run.name if run else None
    pretrain(p.recipe, data, p.folder, (p.folder/'recipe.json').exists(), machine,
        init_from=other(p.run.encoder), sampler=other(p.run.sampler))
    if not finished(p.folder): raise TrainError(f'{p.folder}: was stopped; the same command goes on')
    return p.folder

def measure_small(folder:Path, machine:Machine)->dict[str,float]: # 'retrieval r1' -> percent
    "What is measured on toy videos."
    found = retrieve(folder, machine=machine, walls=0)[0]
    told = {f'retrieval r{k}': 100*found[f'r{k}'] for k in (1, 5, 10)}
    return told | {'linear top1': 100*measure_probe(folder, machine=machine)[0]['top1']}

def measure_full(
    folder:Path, printed:Iterable[Published], # the paper's numbers of this row
    dataset:str, # that was given
    machine:Machine,
)->dict[str,float]: # 'finetune top1' -> percent
    "What the paper measured on this dataset, under its protocols."
    told: dict[str,float] = {}
    here = [r for r in printed if r.test==dataset]
    for r in {(r.task, r.protocol): r for r in here}.values():
        if r.task=='retrieval':
            row = retrieve(folder, r.protocol or 'clean', machine=machine, walls=0)[0]
        elif r.task in ('linear', 'finetune'):
            preset = r.protocol if r.protocol in TRAININGS else f'clean_{r.task}'
            out = folder.with_name(f'{folder.name}-{preset}')
            tuned = finetune(folder, preset, out=out, resume=(out/'card.json').exists(), machine=machine)
            if tuned is None: raise TrainError(f'{out}: was stopped; the same command goes on')
            row = tuned
        else: continue
        told |= {f'{r.task} {m.metric}': 100*row[m.metric] for m in here if m.task==r.task
            and m.metric in row}
    return told

def pairs_alike(
    ours:Mapping[str,float], paper:Mapping[str,float], # row -> number
)->tuple[int,int]: # of all pairs of rows that the paper orders: ordered likewise, and all
    "Does our table put its rows into the paper's order?"
    rows = [r for r in paper if r in ours]
    pairs = [(a, b) for i,a in enumerate(rows) for b in rows[i+1:] if paper[a]!=paper[b]]
    return sum((ours[a] < ours[b])==(paper[a] < paper[b]) and ours[a]!=ours[b] for a,b in pairs), len(pairs)

def beside_paper(
    table:Table, rows:Sequence[TableRow],
    found:Mapping[str,Sequence[Mapping[str,float]]], # row -> what was measured, for each seed
)->str: # markdown
    "Ours and the paper's, column by column; mean and standard deviation over the seeds."
    paper = {r.name: {f'{p.task} {p.metric}': p.value for p in table.printed(r)} for r in rows}
    columns = list(dict.fromkeys(c for r in rows for seed in found.get(r.name, ()) for c in seed))
    lines = ['| row | ' + ' | '.join(f'{c} | paper' for c in columns) + ' |',
        '| :-- |' + ' --: |'*2*len(columns)]
    def ours(name, c): return [s[c] for s in found.get(name, ()) if c in s]
    for r in rows:
        cells = []
        for c in columns:
            x = ours(r.name, c)
            spread = f' ± {statistics.stdev(x):.1f}' if len(x) > 1 else ''
            cells += [f'{statistics.fmean(x):.1f}{spread}' if x else '–', f"{paper[r.name].get(c, '–')}"]
        lines.append(f'| {r.name} | ' + ' | '.join(cells) + ' |')
    for c in columns:
        alike, pairs = pairs_alike({r.name: statistics.fmean(x) for r in rows if (x := ours(r.name, c))},
            {n: v[c] for n,v in paper.items() if c in v})
        if pairs: lines.append(f'\n{c}: {alike} of {pairs} pairs of rows stand in the order of the paper.')
    return '\n'.join(lines)

def refuse_data(
    manifest:Manifest, recipes:Iterable[Recipe],
)->None:
    "RecipeError where a row was trained on another dataset."
    for r in recipes:
        n = {k: len(manifest.select(k, r.split)) for k in ('train', 'test')}
        there = dataset_of(n | {'split': r.split})
        if there!=r.dataset: raise RecipeError(f"{manifest.path}: has {n['train']:,} training and "
            f"{n['test']:,} test videos in split {r.split}, like {there or 'no published dataset'}; "
            f"and {r.name} was trained on {r.dataset}; name its manifest, or --data toy")

def _refuse_changes(rows:Sequence[TableRow], small:bool, changes:Mapping[str,Any], seeds:Sequence[int])->None:
    runs = {r for row in rows for r in ((row.small if small else None) or row.full).needs()}
    fields = {f for r in runs for f in flat_fields(r.made())}
    for k in changes:
        if k not in fields:
            raise RecipeError(f'--set {k}: no recipe of this table has that field; {did_you_mean(k, fields)}')
    if not seeds or len({*seeds})!=len(seeds): raise RecipeError(f"--seeds {' '.join(map(str, seeds))}: "
        'name one or more, each once')

def _quiet(data:Path, machine:Machine, quiet:bool)->Machine: # in another process: silent, decoding once
    return replace(machine, progress=False, cache=VideoCache(read(data), 2**31)) if quiet else machine

def _trained(p:Planned, data:Path, machine:Machine, quiet:bool)->Path:
    return train_planned(p, data, _quiet(data, machine, quiet))

def _measured(folder:Path, data:Path, machine:Machine, quiet:bool, printed, dataset:str)->dict[str,float]:
    how = _quiet(data, machine, quiet)
    return measure_full(folder, printed, dataset, how) if dataset else measure_small(folder, how)

def reproduce_tasks(
    table:Table, rows:Sequence[TableRow], plan:Sequence[Planned], data:Mapping[int,Path], machine:Machine,
    quiet:bool, dataset:str, # '' for toy videos
    known:Mapping[str,Mapping[str,float]], # 'row, seed 0' -> what was measured earlier
)->dict[str,Task]:
    "Trainings behind those they begin with, and a measurement behind each row's last one."
    tasks: dict[str,Task] = {}
    seeds = {p.folder: int(p.folder.parent.name.removeprefix('seed')) for p in plan}
    for p in plan:
        before = [str(p.folder.parent/r.name) for r in (p.run.encoder, p.run.sampler) if r]
        tasks[str(p.folder)] = Task(_trained, (p, data[seeds[p.folder]], machine, quiet), tuple(before))
    for row in rows:
        last = row.full if dataset else row.small
        for p in plan:
            name = f'{row.name}, seed {seeds[p.folder]}'
            if p.run==last and name not in known: tasks[name] = Task(_measured, (p.folder,
                data[seeds[p.folder]], machine, quiet, table.printed(row), dataset), (str(p.folder),))
    return tasks

def reproduce(
    name:str, # 'cpr:table1' or 'cpr:table1:s=3'
    data='toy', # 'toy', or the manifest (or its folder) of the dataset that the table was trained on
    out='runs/reproduce', # a folder; every table gets one in it
    seeds:Sequence[int]=(0,), # of weights and order; of toy videos, too
    machine:Machine=Machine(),
    changes:Mapping[str,Any]|None=None, # fields, for every recipe that has them
    size:str='demo', # of the toy
    dry:bool=False, # say what would be trained, and how long it would take; train nothing
    processes:int=2, # that train at a time on a CPU
)->str: # what to print
    "Train what a table needs, measure it, and set it beside the paper. RecipeError, TrainError."
    table, rows = asked_rows(name)
    if str(data)=='toy':
        asked, rows = rows, [r for r in rows if r.small]
        if not rows: raise RecipeError(f'{name}: asks what the toy videos do not have; name the data of its '
            'paper with --data, or choose another row')
        if len(rows) < len(asked) and machine.progress: print('not on the toy:', *(r.name for r in asked
            if r not in rows))
    small, key = str(data)=='toy', '-'.join(name.lower().split(':')[:2])
    _refuse_changes(rows, small, changes or {}, seeds)
    out = Path(out)/(f'toy-{key}' if small else key)
    with tempfile.TemporaryDirectory() as scratch: # a dry run writes nothing that stays
        home = Path(scratch) if dry else out
        paths = {s: toy.make(home/f'seed{s}'/'toy', size, s, progress=machine.progress) if small else
            Path(data) for s in seeds}
        plan = _planned(table, rows, paths, out, machine, changes, small)
    seconds = sum(p.seconds for p in plan)
    told = '\n'.join([*map(str, plan), f'{len(plan)} trainings, {seconds/3600:.1f} hours of training, '
        'one after the other'])
    if dry: return told
    if machine.progress: print(told, flush=True)
    return train_table(table, rows, plan, paths, out, machine, '' if small else plan[-1].recipe.dataset,
        processes if machine.place().type=='cpu' else 1)

def _planned(table:Table, rows:Sequence[TableRow], paths:Mapping[int,Path], out:Path, machine:Machine,
        changes:Mapping[str,Any]|None, small:bool)->list[Planned]:
    manifests = {s: read(p) if small else open_data(p, machine.progress) for s,p in paths.items()}
    for m in manifests.values():
        if not small: refuse_data(m, (r.made() for row in rows for r in row.full.needs()))
        for row in rows: views_ready(((row.small if small else None) or row.full).made(), m, machine.device)
    return plan_table(rows, small, manifests, out, machine, changes)

def train_table(
    table:Table, rows:Sequence[TableRow], plan:Sequence[Planned], data:Mapping[int,Path], out:Path,
    machine:Machine, dataset:str, processes:int,
)->str: # markdown
    "All trainings and measurements of a plan; `table.json` in the folder keeps what is known."
    kept = out/'table.json'
    known = read_json(kept, 'a table') if kept.exists() else {}
    tasks = reproduce_tasks(table, rows, plan, data, machine, processes > 1, dataset, known)
    def look(done):
        new = {k: v for k,v in done.items() if isinstance(v, dict) and k not in known}
        if new:
            known.update(new)
            write_json(kept, known)
    at_once(tasks, processes, [p.folder for p in plan], sum(p.steps for p in plan), machine.progress, look)
    found: dict[str,list[Mapping[str,float]]] = {}
    for row in rows:
        names = [f'{row.name}, seed {s}' for s in data]
        found[row.name] = [known[n] for n in names if n in known]
    text = beside_paper(table, rows, found)
    (out/'table.md').write_text(text + '\n', encoding='utf-8')
    return f'{text}\n\n{out/"table.md"}'
