"`vssl-nb …`: a command is a dataclass, its fields are the options, and the comments beside them the help."

import argparse
import ast
import contextlib
import gc
import inspect
import io
import json
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from . import __version__
from .methods.recipes import COTRAININGS, METHODS, OWN_VIDEOS, RECIPES, Recipe, RecipeError, find
from .methods.recipes import override, to_dict
from .names import PathError, did_you_mean, expect_manifest, expect_run, expect_writable, path_missing

class Mistake(ValueError):
    "Something on the command line that cannot be understood."

def word(
    metavar:str, # its name in help
    default:Any=MISSING, # without one it must be given
)->Any: # a field of a command
    "A field that is given as a word, without the name of an option."
    return field(default=default, metadata={'word': metavar})

@dataclass(kw_only=True)
class Toy:
    "Write synthetic action videos (class = motion) and their manifest."
    out:Path = word('OUT') # folder to write to
    # tiny: seconds; demo: 960 small videos; full: thousands of videos of 128 px
    size:Literal['tiny','demo','full']='demo'
    seed:int=0 # another seed gives other videos
    contrast:float|None=None # 0 to 1: how hard the background makes it; none: as the size has it
    bias:float=0. # 0 to 1: how strongly the background gives the class away, in the training split only
    drift:float=0. # camera drift, pixels per frame
    distractors:int=0 # further sprites whose motion says nothing
    workers:int|None=None # processes; none: one per core

    def run(self):
        refuse_early(folder=self.out)
        from .data import toy
        print(toy.make(self.out, self.size, self.seed, self.contrast, self.bias, self.drift, self.distractors,
            self.workers))

@dataclass(kw_only=True)
class MakeManifest:
    "Write the manifest.csv of a folder of videos, or bring it up to date; sub-folders are the classes."
    folder:Path = word('FOLDER') # folder of class folders, or of unlabelled videos
    # share of the videos to keep for testing (split 1), cut by source: 0.2 is a fifth; none: no split is cut
    split:float|None=None
    seed:int=0 # of that split
    lists:Path|None=None # folder with the official UCF101 lists (trainlist01.txt …), for the splits
    source_pattern:str|None=None # regular expression with one group: what it finds in a path is the source
    workers:int|None=None # threads; none: one per core
    overwrite:bool=False # forget the manifest.csv that is there (it is kept as manifest.csv.old)

    def run(self):
        from .data.prepare import update_manifest
        done = update_manifest(self.folder, self.lists, self.source_pattern, self.workers, share=self.split,
            seed=self.seed, anew=self.overwrite)
        for r in done.unreadable: print(f'unreadable: {r.video}: {r.status}', file=sys.stderr)
        print(done)

@dataclass(kw_only=True)
class Flow:
    "Compute and store the optical flow of every video of a manifest; again does what is missing."
    data:Path = word('DATA') # manifest.csv, or the folder that holds it
    # tvl1-opencv: what made the released flow; dis and farneback are quick and rough
    method:Literal['tvl1','raft','tvl1-opencv','dis','farneback']='tvl1'
    out:Path=Path('flow') # folder for the flow, below that of the manifest
    codec:Literal['exact','small','ffv1']='exact' # small: half the size, and up to 4 of 255 levels off
    device:str='auto' # auto, cpu, cuda or cuda:1
    weights:Path|None=None # raft: the file of its weights; nothing is downloaded
    workers:int|None=None # videos at a time; none: one per core
    compile:bool=True # tvl1: three times as fast on a CPU, after some 20 s; needs a C++ compiler there
    # name of the manifest to write beside the other one; none: that one gets its column flow
    manifest:str|None=None

    def run(self):
        refuse_early(self.data)
        if ':' not in str(self.data):
            place = self.data if self.data.is_dir() else self.data.parent
            # where all is done already, nothing needs to be written
            if not (place/self.out).exists(): refuse_early(folder=place/self.out)
        from .data import flow
        try:
            job = flow.plan_extraction(self.data, self.method, self.out, self.codec, self.device,
                self.weights, self.workers, self.manifest, self.compile)
        except ValueError as e: raise Mistake(str(e)) from None
        done = job.run()
        if done.written or is_first(): print(done)

@dataclass(kw_only=True)
class Recipes:
    "List the recipes, or show one with all its numbers."
    name:str = word('[RECIPE]', '') # which; none lists all

    def run(self):
        if self.name: print(json.dumps(to_dict(find(self.name)), indent=1))
        else: print('\n'.join(f'{n:{max(map(len, RECIPES))}}  {r.about}' for n,r in RECIPES.items()))

@dataclass(kw_only=True)
class DryRunCommand:
    "Take the first steps of a training, at full size, on a GPU that is not there."
    # a name that `vssl-nb recipes` lists, or package.module:name
    recipe_name:str = word('RECIPE')
    finetune:str|None=None # a preset of finetune: its training of the recipe's backbone instead
    set:tuple[str,...]=() # fields of the recipe or the preset to change, such as batch=64 size=112
    dtype:Literal['float32','bfloat16']='bfloat16' # of the forward pass
    activation_checkpointing:bool=False # compute activations twice instead of keeping them

    def run(self):
        recipe, fields = find(self.recipe_name), changes(self.set)
        from .runs.dry_run import forecast, forecast_finetuning
        from .runs.finetuning import preset
        from .runs.pretended_gpu import WaitForDevice, WrongDevice
        try:
            if self.finetune:
                print(forecast_finetuning(preset(self.finetune, **fields), recipe.backbone, self.dtype,
                    activation_checkpointing=self.activation_checkpointing))
            else: print(forecast(override(recipe, **fields), self.dtype, self.activation_checkpointing))
        except (WaitForDevice, WrongDevice) as e: raise Mistake(f'{self.recipe_name}: {e}') from None

TORCHRUN = ('RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT')

def is_first(
    of:str='RANK', of_slurm:str='SLURM_PROCID', # LOCAL_RANK and SLURM_LOCALID: among those of its machine
)->bool:
    "Is this the process that prints? Asked before PyTorch is there to ask."
    at = os.environ
    if all(k in at for k in TORCHRUN[:2]): return at.get(of, '0')=='0'
    return at.get(of_slurm, '0')=='0' # a RANK alone is left over from something else

def is_released(path)->bool: # by its name, before PyTorch is there to look
    "Is this a file as CoCLR, CPR and IIC give them out?"
    path = Path(path)
    return path.is_file() and path.suffix in ('.tar', '.pth', '.pt') and path.name!='last.pt'

def refuse_early(
    data=None, run=None, # a manifest, a run folder; None: not asked for
    out=None, folder=None, # a file, a folder to be written
    together:bool=False, # may the command run in several processes?
)->None:
    "Say what is wrong with paths before PyTorch is imported. `PathError`, `Mistake`."
    if together and 'RANK' in os.environ and (lacks := [k for k in TORCHRUN if k not in os.environ]):
        raise Mistake(f'the environment has RANK={os.environ["RANK"]} and no {lacks[0]}: something that has '
            'ended left it there (unset RANK), or a launcher other than torchrun and srun is at work')
    if run is not None: expect_run(run)
    if data is not None: expect_manifest(data)
    if out is not None: expect_writable(out)
    if folder is not None: expect_writable(folder, folder=True)

@dataclass(kw_only=True)
class MachineOptions:
    "How a training is computed; the same options for every command that trains."
    device:str='auto' # auto, cpu, cuda or cuda:1
    dtype:Literal['float32','bfloat16']='float32' # of the forward pass
    workers:int=2 # processes that decode, for each process that trains; the result does not depend on it
    cache:int=0 # MiB of decoded videos that each process keeps in memory
    compile:bool=False # torch.compile the networks; needs a C++ compiler
    # compute activations twice instead of keeping them: less memory, more time
    activation_checkpointing:bool=False
    save_minutes:float=5. # minutes from one checkpoint to the next
    cudnn_benchmark:bool=True # GPU: let cuDNN try its algorithms on the first step and keep the fastest
    # GPU: how exact products of float32 are; high: TF32
    matmul_precision:Literal['highest','high','medium']='highest'
    deterministic:bool=False # GPU: algorithms that give the same bits again, where there are some; slower
    quiet:bool=False # no bars, and no word about memory
    dry_run:bool=False # say what it would do, and the memory and time it would take; write nothing

    def machine(self):
        "As one object."
        from .training.machine import Machine
        said = {f: getattr(self, f) for f in MachineOptions.__dataclass_fields__ if f!='dry_run'}
        return Machine(progress=not said.pop('quiet'), **said)

    def tell_budget(self, recipe, videos:int)->None:
        "Say what a step will take; nothing of it stops a training."
        if self.quiet or not is_first(): return
        from .runs.budget import describe_budget
        from .training.distributed import apart, world_size
        n = world_size()
        try:
            with apart(): said = describe_budget(recipe, self.machine(), n, videos)
        except Exception as e: said = f'the memory of a step could not be computed ({type(e).__name__}: {e})'
        print(said, file=sys.stderr)

BEGAN = time.monotonic() # nearly when this process began: PyTorch is not there yet
@dataclass(kw_only=True)
class Pretrain(MachineOptions):
    "Train a recipe on a manifest, into a run folder. Any field of the recipe can be given as an option."
    # a name that `vssl-nb recipes` lists, or package.module:name of one's own recipe
    recipe_name:str = word('RECIPE')
    data:Path # manifest.csv, or the folder that holds it
    method:str|None = field(default=None, metadata={'about': 'another method for this recipe: '
        f"{', '.join(METHODS)}, or package.module:Settings of one's own"})
    out:Path|None=None # run folder; none: runs/<name of the recipe>
    resume:bool=False # go on with the run in that folder
    # run folder of the same view, or released file (CoCLR, CPR, IIC), whose weights to begin with
    init_from:Path|None = field(default=None, metadata={'alias': '--init'})
    sampler:Path|None=None # CoCLR: likewise, of the view that mines
    health_every:int=0 # look at the features every so many epochs (health.csv); 0: never
    minutes:float|None=None # own-videos: the time for everything, to the verdict; none: 20
    recipe:Recipe = field(init=False) # with the fields that were given as options
    given:frozenset[str] = field(init=False, default=frozenset()) # their names

    def run(self):
        recipe = self.recipe
        refuse_early(self.data, folder=self.out or Path('runs')/recipe.name, together=True)
        for weights in (self.init_from, self.sampler):
            if weights is None or not is_released(weights): refuse_early(run=weights)
        if self.minutes is not None and self.recipe_name!=OWN_VIDEOS:
            raise Mistake(f'--minutes: only {OWN_VIDEOS} is fitted to a time; of {self.recipe_name} give '
                '--epochs')
        if self.dry_run: return try_pretraining(self, recipe)
        if self.recipe_name==OWN_VIDEOS: return train_own_videos(self, recipe)
        from .runs.pretraining import pretrain
        run = pretrain(recipe, self.data, self.out or Path('runs')/recipe.name, self.resume,
            init_from=self.init_from, sampler=self.sampler, health_every=self.health_every,
            machine=self.machine(), accepted=self.tell_budget)
        if is_first(): print(run)

def train_own_videos(asked:Pretrain, recipe:Recipe)->None:
    "Fit, train, and say what came of it."
    if os.environ.get('WORLD_SIZE', '1')!='1': raise Mistake(f'{OWN_VIDEOS}: start it without torchrun')
    from .runs.own import learn_own_videos
    out = asked.out or Path('runs')/recipe.name
    found = learn_own_videos(recipe, asked.data, out, 20 if asked.minutes is None else asked.minutes,
        asked.given, asked.resume, asked.machine(), asked.health_every, began=BEGAN, init_from=asked.init_from,
        sampler=asked.sampler)
    if found: print(out, found, sep='\n')

def manifest_there(data)->Any: # the `manifest.Manifest`
    "Open a manifest and make none. `Mistake`."
    if Path(data).is_dir() and not (Path(data)/'manifest.csv').exists():
        raise Mistake(f'{data}: has no manifest.csv yet, and --dry-run writes nothing; make it with '
            f'vssl-nb manifest {data}')
    from .data.manifest import read
    return read(data)

def try_recipe(asked:MachineOptions, recipe:Recipe, manifest)->None:
    "Print what training a recipe on a manifest will do and take."
    from .runs.dry_run import forecast, with_clock
    from .runs.pretraining import views_ready
    from .runs.parts import training_videos
    from .runs.pretended_gpu import WaitForDevice, WrongDevice
    from .methods.recipes import refuse_unfit
    refuse_unfit(recipe, training_videos(recipe, manifest))
    views_ready(recipe, manifest, asked.device)
    n = len(manifest.select('train', recipe.split))
    try: found = forecast(recipe, asked.dtype, asked.activation_checkpointing, n)
    except (WaitForDevice, WrongDevice) as e: raise Mistake(f'{recipe.name}: {e}') from None
    print(with_clock(found, recipe, manifest, asked.machine()))

def try_pretraining(asked:Pretrain, recipe:Recipe)->None:
    "Print what `pretrain` will do and take."
    if not is_first(): return
    manifest, out = manifest_there(asked.data), asked.out or Path('runs')/recipe.name
    from .runs.pretraining import open_run
    own = asked.recipe_name==OWN_VIDEOS and not asked.resume
    if not asked.resume: open_run(recipe, manifest, out, False) # refuses to mix two runs
    if own:
        from .runs.own import fit_recipe
        recipe = fit_recipe(recipe, manifest, asked.machine(), asked.minutes or 20, asked.given, BEGAN)
        print(*recipe.reasons, sep='\n')
    try_recipe(asked, recipe, manifest)

@dataclass(kw_only=True)
class Retrieve:
    "Measure an encoder: is a test video's nearest training video of its class?"
    # run folder; released file (.tar, .pth); recipe (untrained); package.module:name of an encoder; or a
    # file of features
    source:str = word('RUN')
    data:Path|None=None # manifest to measure on; none: the one the run was trained on
    # clean, coclr_official, iic_official, rspnet, moquad, or package.module:name of one's own
    protocol:str='clean'
    set:tuple[str,...]=() # fields of the protocol, such as size=112 length=16 stride=2
    splits:tuple[int,...]=() # none: that of the recipe; several: each, and their mean
    second:Path|None=None # run folder of another view: both streams together
    # of two streams: sum of cosines (CoCLR), or features side by side (IIC)
    joined:Literal['sum','concat']='sum'
    name:str='' # what tables call an encoder or file of one's own
    # what an encoder that is no run sees: rgb, flow, residual, or package.module:name; none: what a released
    # file says, else rgb
    view:str|None=None
    out:Path|None=None # folder for results of what is no run; none: runs/<its name>
    baselines:bool=True # also show chance, a colour histogram and an untrained encoder
    device:str='auto' # auto, cpu or cuda
    dtype:Literal['float32','bfloat16']='float32' # of the encoder; bfloat16 is told in the table
    batch:int=64 # clips that go through the encoder together, at most
    workers:int=2 # processes that decode

    def run(self):
        refuse_source(self.source)
        refuse_early(self.data, run=self.second)
        refuse_early(folder=self.source if Path(self.source).is_dir() else self.out)
        from .runs import evaluation
        from .training.machine import Machine
        from .papers.report import sheet, summary
        machine, fields = Machine(self.device, workers=self.workers), changes(self.set)
        if self.dtype!='float32': fields['dtype'] = self.dtype
        if Path(self.source).is_dir():
            rows, kept = _measure_run(self, evaluation, fields, machine), Path(self.source)
        else: rows, kept = _measure_other(self, evaluation, fields, machine)
        print(sheet(summary(rows), 'text'), kept/'results.json', sep='\n')

def _measure_run(asked, evaluation, fields, machine): # rows
    "Measure a run, alone or with a second stream, beside its baselines."
    t = evaluation.open_trained(asked.source, asked.data)
    p = t.protocol(asked.protocol, **fields)
    if asked.second:
        other = evaluation.open_trained(asked.second, asked.data)
        rows = evaluation.retrieve_two_streams(t, other, p if fields else asked.protocol, asked.splits,
            asked.joined, asked.batch, machine)
    else: rows = evaluation.retrieve(t, p, asked.splits, batch=asked.batch, machine=machine)
    print(p)
    if 'dropped' in rows[0]:
        print(f"{rows[0]['queries']} test videos against {rows[0]['gallery']} training videos, "
            f"split {rows[0]['split']}; {len(rows[0]['dropped'])} left out")
    if not t.card['finished']:
        print(f"this run is not finished: the encoder is from step {t.about['step']}", file=sys.stderr)
    beside = asked.baselines and asked.protocol=='clean' and not (asked.splits or asked.second or fields)
    if not beside: return rows
    return evaluation.baselines(t.recipe, t.manifest, batch=asked.batch, machine=machine) + rows

def refuse_source(name:str)->None: # of an encoder to measure
    "Say that nothing of that name is there, before PyTorch is imported. `PathError`, `Mistake`."
    path = Path(name)
    if path.is_dir(): return expect_run(path)
    if path.name=='encoder.safetensors': raise Mistake(f'{name}: is an encoder without its recipe; name the '
        f'run folder that it lies in, {path.parent}')
    if path.is_file() or name in RECIPES or ':' in name: return
    if path.parent!=Path('.'): raise path_missing(path, 'name a run folder, such as runs/mine, or a recipe')
    near = did_you_mean(name, [*RECIPES, *(p.name for p in Path().glob('*') if p.is_dir())])
    raise Mistake(f'{name}: is no run folder, no recipe, no file of features and no package.module:name of '
        f'an encoder, seen from {Path.cwd()}{"; " + near if near.startswith("did") else ""}')

def _measure_other(asked, evaluation, fields, machine): # rows, and the folder they are kept in
    "Measure an encoder or features that are no run of ours."
    known = asked.source in RECIPES
    own = ':' in asked.source or Path(asked.source).suffix in evaluation.FEATURE_FILES
    if not known and not own and not is_released(asked.source):
        raise Mistake(f'{asked.source}: is no run folder, no released file (.tar, .pth), no recipe, no '
            'package.module:name of an encoder and no file of features '
            f'({", ".join(evaluation.FEATURE_FILES)})')
    if asked.data is None: raise Mistake(f'{asked.source}: knows no data; name a manifest with --data')
    name = f'untrained-{asked.source}' if known else re.sub(r'\W+', '-', asked.name or asked.source)
    kept = asked.out or Path('runs')/name
    if known:
        if fields: raise Mistake(f'{asked.source}: an untrained encoder is measured as its recipe says; '
            f'leave out {", ".join(fields)}')
        rows = evaluation.baselines(find(asked.source), asked.data, asked.splits, kept,
            batch=asked.batch, machine=machine)
        return rows, kept
    how = dict(splits=asked.splits or (1,), fields=fields, out=kept, with_baselines=asked.baselines,
        batch=asked.batch, machine=machine)
    if is_released(asked.source):
        return evaluation.measure_released(asked.source, asked.data, asked.protocol, asked.view, asked.name, **how), kept
    return evaluation.measure_encoder(asked.source, asked.data, asked.name, asked.protocol,
        asked.view or 'rgb', **how), kept

def changes(
    words:Sequence[str], # such as epochs=5
)->dict[str,Any]: # name -> value
    "The fields that `--set` names; Mistake where a word is no assignment."
    found = {}
    for word in words:
        name, equals, value = word.partition('=')
        if not equals or not name: raise Mistake(f'--set {word}: is not name=value, such as epochs=5')
        words_for = {'true': True, 'false': False, 'null': None, 'none': None}
        try: said = words_for[value.lower()] if value.lower() in words_for else ast.literal_eval(value)
        except (ValueError, SyntaxError): said = value # a word
        found[name.replace('-', '_')] = said
    return {k: tuple(v) if isinstance(v, list) else v for k,v in found.items()}

@dataclass(kw_only=True)
class Extract:
    "Compute and keep the features of a run's encoder; under torchrun, all processes share the work."
    folder:Path = word('RUN') # run folder
    data:Path|None=None # manifest; none: the one it was trained on
    protocol:str='clean' # clean, coclr_official, iic_official, rspnet or moquad
    device:str='auto' # auto, cpu or cuda
    dtype:Literal['float32','bfloat16']='float32' # of the encoder; bfloat16 is told in the table
    batch:int=64 # clips that go through the encoder together, at most
    workers:int=2 # processes that decode
    # also write them with the names of the videos, for other programs: .npz, .csv or .parquet
    out:Path|None=None

    def run(self):
        refuse_early(self.data, self.folder, folder=self.folder, together=True)
        from .search import TABLES, check_outputs
        if self.out: check_outputs([self.out], TABLES)
        from .runs import evaluation
        from .training.distributed import start
        from .measure.features import extract
        from .training.machine import Machine
        t = evaluation.open_trained(self.folder, self.data)
        p, machine = t.protocol(self.protocol, dtype=self.dtype), Machine(self.device, workers=self.workers)
        with start():
            for role in ('query',) if p.gallery=='alike' else ('query', 'gallery'):
                found = extract(t.encoder, t.manifest, 'all', 1, t.view, p, role=role, machine=machine,
                    store=self.folder/'features', shared=True, batch=self.batch,
                    **t.views)
                if is_first(): print(found, self.folder/'features', sep='\n')
                if self.out and is_first(): print(_write_named(found, t.manifest, self.out, role))

def _write_named(found, manifest, out:Path, role:str)->Path:
    "Features with names; a protocol that treats the gallery in another way gets a second file."
    from .search import write_video_features
    rows = [manifest.rows[i] for i in found.row.tolist()]
    return write_video_features(out if role=='query' else out.with_stem(f'{out.stem}-gallery'),
        [r.video for r in rows], [r.label for r in rows], found.x.numpy())

@dataclass(kw_only=True)
class Search:
    "Find the videos of a folder that are most like a video; the first time, and for new files, encode them."
    # videos, or spans of them in seconds: clip.mp4@12.5-15; none only brings the index up to date
    queries:tuple[str,...] = word('[QUERY ...]', ())
    data:Path=Path('.') # folder of the videos
    encoder:Path|None=None # run folder, or its encoder.safetensors; none: that of the index
    index:Path|None=None # folder of the index; none: .vssl-search in that of the videos
    k:int=10 # how many videos to show for each query
    # then answer what is typed (or piped): a query a line, without the seconds that a new start takes
    more:bool=False
    out:tuple[Path,...]=() # also write the answers: .csv, .json, or .html (a page that plays)
    keep_self:bool=False # a query that lies in the folder may find itself
    update:bool=True # look for new, changed and vanished videos first
    clips:int|None=None # clips of a video whose mean is its feature; none: as in the index, 10 in a new one
    device:str='auto' # auto, cpu or cuda
    batch:int=64 # clips that go through the encoder together, at most
    workers:int=2 # processes that decode, where there is much to do

    def run(self):
        from . import search
        search.check_outputs(self.out)
        if self.k < 1: raise Mistake(f'--k {self.k} finds nothing; take 1 or more')
        how:dict[str,Any] = dict(batch=self.batch, device=self.device, workers=self.workers)
        folder, encoder, clips = search.choose_index(self.data, self.encoder, self.index, self.clips)
        index, (made, gone) = search.update_index(folder, self.data, encoder, clips, new=self.update, **how)
        if made or gone: print(f'{index}; {made} encoded, {gone} gone', file=sys.stderr)
        queries = [search.parse_query(q, self.data, index.videos) for q in self.queries]
        found = []
        if queries:
            x = search.query_features(index, queries, encoder, **how)
            found = search.find_nearest(index, queries, x, self.k, self.keep_self)
            print(search.as_text(queries, found))
            for path in self.out: print(search.write_answers(path, index, queries, found))
        elif not self.more: return print(index, folder, sep='\n')
        if self.more: _answer_more(self, index, encoder, queries, found, how)

def _typed(): # the lines of standard input, each after a word to who types them
    while True:
        if sys.stdin.isatty():
            print('a file, or file@from-to; Ctrl-D ends: ', end='', file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line: return
        yield line

def _answer_more(asked, index, encoder, queries, found, how):
    "One query after another, until the input ends; what is written holds all that was asked so far."
    from . import search
    for said in search.answer_lines(_typed(), index, encoder, asked.k, asked.keep_self, **how):
        if isinstance(said, ValueError):
            print(f'vssl-nb: {said}', file=sys.stderr)
            continue
        queries.append(said[0])
        found.append(said[1])
        print(search.as_text(queries[-1:], found[-1:]), flush=True)
        for path in asked.out: search.write_answers(path, index, queries, found)

@dataclass(kw_only=True)
class ProbeCommand:
    "A linear classifier on the frozen features of a run."
    folder:Path = word('RUN') # run folder
    data:Path|None=None # manifest; none: the one it was trained on
    preset:str='clean_probe' # clean_probe or coclr_probe
    splits:tuple[int,...]=() # none: that of the recipe; several: each, and their mean
    # how strength or epoch are chosen; 'test' is the official mode, which looks at the test videos
    selection:Literal['validation','last','test']|None=None
    seed:int=0 # of the held-out sources
    device:str='auto' # auto, cpu or cuda
    dtype:Literal['float32','bfloat16']='float32' # of the encoder; bfloat16 is told in the table
    batch:int=64 # clips that go through the encoder together, at most
    workers:int=2 # processes that decode

    def run(self):
        refuse_early(self.data, self.folder, folder=self.folder)
        from .runs import evaluation
        from .papers.report import sheet, summary
        t = evaluation.open_trained(self.folder, self.data)
        rows = evaluation.measure_probe(t, self.preset, self.splits, self.selection, self.seed,
            fields={'dtype': self.dtype}, batch=self.batch,
            machine=evaluation.Machine(self.device, workers=self.workers))
        print(evaluation.PROBES[self.preset], sheet(summary(rows), 'text'), self.folder/'results.json',
            ask_it(self.folder), sep='\n')

@dataclass(kw_only=True)
class Finetune(MachineOptions):
    "Train a classifier end to end: fine-tune a run's encoder, train a head on it, or start from scratch."
    # run folder; or the name of a recipe, whose backbone starts from scratch
    source:str = word('RUN')
    data:Path|None=None # manifest; none: the one the run was trained on
    # clean_finetune, clean_linear, scratch, coclr_finetune, coclr_linear, iic_finetune, ...
    preset:str='clean_finetune'
    out:Path|None=None # folder; none: beside the run
    split:int=0 # 0: that of the recipe
    seed:int=0 # of head, held-out sources, order and clips
    set:tuple[str,...]=() # fields of the preset, such as epochs=5 batch=16
    resume:bool=False # go on with what is in the folder

    def run(self):
        path = Path(self.source)
        if path.parent!=Path('.') and not path.exists(): raise path_missing(path, 'name a run folder, or a recipe')
        if not path.is_dir(): find(self.source)
        refuse_early(self.data, path if path.is_dir() else None, folder=self.out, together=True)
        if self.dry_run: return try_finetuning(self)
        from .runs.finetuning import finetune
        from .papers.report import sheet, summary
        row = finetune(self.source, self.preset, self.data, self.out, self.split, self.seed,
            changes(self.set), self.resume, self.machine())
        if row and is_first():
            home = self.out or (Path(self.source).parent if Path(self.source).is_dir() else Path('runs'))
            print(sheet(summary([row]), 'text'), ask_it(home if self.out else home/row['run']), sep='\n')

def ask_it(folder:Path)->str: # of a run
    "How a classifier is used."
    return f"{folder/'classifier.safetensors'}\nask it: vssl-nb predict {folder} VIDEO"

def try_finetuning(asked:Finetune)->None:
    "Print what `finetune` will do and take."
    if not is_first(): return
    if asked.data: manifest_there(asked.data)
    from .runs.dry_run import forecast_finetuning
    from .runs.finetuning import networks_of, starting_point, training_preset
    from .runs.pretended_gpu import WaitForDevice, WrongDevice
    begun = starting_point(asked.source, asked.preset, asked.data, asked.split)
    how, m = training_preset(begun.recipe, asked.preset, **changes(asked.set)), begun.manifest
    networks_of(begun, how) # refuses a run without a Gaussian head
    try: print(forecast_finetuning(how, begun.recipe.backbone, asked.dtype, len(m.labels),
        asked.activation_checkpointing, len(m.select('train', begun.split))))
    except (WaitForDevice, WrongDevice) as e: raise Mistake(f'{asked.source}: {e}') from None

@dataclass(kw_only=True)
class Predict:
    "Ask a classifier about videos: probabilities per class."
    source:Path = word('RUN') # folder of a run that was fine-tuned or probed, or a classifier.safetensors
    videos:tuple[Path,...] = word('[VIDEO ...]', ()) # files; with --data: names in it
    data:Path|None=None # folder of videos, or a manifest: all of it, or the videos that are named
    top:int=5 # most probable classes to print
    out:Path|None=None # .csv or .json: the probabilities of all classes
    # of a classifier that sees flow: stored (a manifest names it) or live (computed; slow on a CPU)
    flow:Literal['','stored','live']=''
    outside:bool=False # the file may name a backbone or view of somebody's own: that code is run
    device:str='auto' # auto, cpu or cuda
    batch:int=64 # clips at a time on a GPU
    workers:int=0 # processes that decode

    def run(self):
        if not Path(self.source).exists(): raise path_missing(self.source, 'name a run that was fine-tuned or '
            'probed, or its classifier.safetensors')
        if self.data is None:
            for v in self.videos:
                if not v.exists(): raise path_missing(v, 'name a video')
        refuse_early(self.data, out=self.out)
        from .measure import classify
        from .measure.features import as_manifest, check_suffix, videos_of
        from .training.machine import Machine
        if self.top < 1: raise Mistake(f'--top {self.top}: must be 1 or more')
        if not self.videos and self.data is None:
            raise Mistake(f'{self.source}: no video was named; give files, or a folder with --data')
        if self.out: check_suffix(self.out, *classify.PREDICTION_FILES)
        classifier = classify.load_classifier(self.source, self.outside)
        table = videos_of(self.data, self.videos) if self.data else as_manifest(self.videos)
        found = classify.predict_videos(classifier, table, flow=self.flow, batch=self.batch,
            machine=Machine(self.device, workers=self.workers, progress=len(table) > 8))
        names = [r.video for r in table.rows]
        print(classifier, *_answers(found, names, self.top), sep='\n')
        for i,why in found.dropped.items(): print(f'unreadable: {names[i]}: {why}', file=sys.stderr)
        if self.out: print(classify.write_predictions(self.out, found, names))

def _answers(found, names, top): # a line for each video
    wide = max(len(names[r]) for r in found.row.tolist())
    for r,p in zip(found.row.tolist(), found.p):
        best = p.argsort(descending=True, stable=True)[:top].tolist()
        yield f'{names[r]:{wide}}  ' + '  '.join(f'{found.classes[c]} {100*p[c]:.1f} %' for c in best)

@dataclass(kw_only=True)
class Cotrain(MachineOptions):
    "InfoNCE on two views, then CoCLR in turns: every phase a run folder, resumable, one report at the end."
    # coclr-toy, coclr-laptop, coclr-toyfull, coclr-ucf101 or coclr-k400
    name:str = word('NAME')
    data:Path # manifest.csv, or the folder that holds it
    out:Path|None=None # folder; none: runs/<name>
    set:tuple[str,...]=() # fields to change in every phase that has them, such as epochs=5 backbone=small
    health_every:int=0 # look at the features every so many epochs (health.csv); 0: never
    # released files whose weights the first phases begin with, each for its view: rgb=FILE flow=FILE
    init:tuple[str,...]=()

    def run(self):
        out = self.out or Path('runs')/self.name
        if self.name not in COTRAININGS:
            raise RecipeError(f'there is no co-training {self.name!r}; '
                f'{did_you_mean(self.name, COTRAININGS)}')
        refuse_early(self.data, folder=out, together=True)
        if self.dry_run: return try_cotraining(self, out)
        from .runs.cotraining import cotrain
        from .papers.report import page, sheet, summary
        rows = cotrain(self.name, self.data, out, changes(self.set), self.machine(), self.health_every,
            accepted=self.tell_budget, init=self.init)
        if rows: print(sheet(summary(rows), 'text'), page(out), sep='\n')
        elif is_first():
            print(f'{out}: trained; nothing was measured, because not all test videos of {self.data} '
                'have a label')

def try_cotraining(asked:Cotrain, out:Path)->None:
    "Print what each phase of `cotrain` will do and take."
    if not is_first(): return
    manifest = manifest_there(asked.data)
    from .runs.cotraining import cotraining_phases, refuse_phases
    phases = cotraining_phases(asked.name, changes(asked.set))
    refuse_phases(out, phases, manifest, asked.machine())
    for i,(phase,recipe) in enumerate(phases, 1):
        print(f'phase {i} of {len(phases)}, {out/phase.recipe}')
        try_recipe(asked, recipe, manifest)

@dataclass(kw_only=True)
class Mine:
    "Say what a finished run would mine, with any miner, and how much of it is right."
    folder:Path = word('RUN') # folder of the run that learns
    mining:Path|None=None # folder of the run that mines for it; none: the one it was trained with, or itself
    data:Path|None=None # manifest; none: the one it was trained on
    # each with its options, such as topk, cascade,stages=7,order=paper or package.module:name,option=value
    miners:tuple[str,...]=()
    topk:int=5 # videos to take for each
    memory:int|None=None # search so many videos, drawn once, as a queue would; none: all
    unit:Literal['source','video']='source' # what class mining recall counts: recordings (CPR) or videos
    out:Path|None=None # .csv: the recall of each class; .json: all numbers
    device:str='auto' # auto, cpu or cuda
    workers:int=2 # processes that decode

    def run(self):
        if self.out and self.out.suffix not in ('.csv', '.json'):
            raise Mistake(f'--out {self.out}: write a .csv or a .json file')
        refuse_early(self.data, self.folder, out=self.out)
        refuse_early(run=self.mining)
        from .papers.report import table
        from .runs import cotraining
        from .training.machine import Machine
        networks, labels = cotraining.mining_networks(self.folder, self.mining, self.data,
            Machine(self.device, workers=self.workers))
        miners = self.miners or (('topk', 'cascade') if len(networks) > 1 else ('topk',))
        found = cotraining.compare_miners(networks, labels, miners, self.topk, memory=self.memory, unit=self.unit)
        rows = cotraining.quality_rows(found)
        columns = {k: heading for k,heading in cotraining.QUALITY_COLUMNS.items() if k in rows[-1]}
        print(f'{found[0].candidates} candidates; ' + ' mines for '.join(found[0].views),
            table(rows, 'text', columns), sep='\n')
        if self.out: print(cotraining.write_quality(self.out, found))

@dataclass(kw_only=True)
class Convert:
    "Turn a run into a released file, a released file into a run, or either into an encoder to share."
    source:Path = word('IN') # run folder or released file
    # FILE.tar or .pth: released layout; FILE.safetensors: an encoder; else a folder
    out:Path = word('OUT')
    data:Path|None=None # manifest: the folder becomes a run, that pretrain --resume goes on with
    recipe:str|None=None # of that run; none: the one that the file carries
    set:tuple[str,...]=() # fields of that recipe to change, such as batch=16
    view:Literal['rgb','flow','residual']|None=None # of a released file that does not say it
    optimizer:bool=True # write its state as well
    device:str='cpu' # where the run is tried

    def run(self):
        if not self.source.exists(): raise path_missing(self.source, 'name a run folder or a released file')
        refuse_early(self.data, self.source if self.source.is_dir() else None)
        if self.out.suffix: refuse_early(out=self.out)
        else: refuse_early(folder=self.out)
        if self.set and not self.recipe: raise Mistake('--set changes a recipe: name it with --recipe')
        recipe = override(find(self.recipe), **changes(self.set)) if self.recipe else None
        from .runs.released import convert, load_released
        if self.data is not None:
            if self.source.is_dir(): raise Mistake(f'{self.source}: is a run already; leave out --data')
            from .runs.pretraining import import_released
            from .training.machine import Machine
            import_released(self.source, self.data, self.out, recipe, self.view,
                Machine(self.device, workers=0, progress=False))
            contents = str(load_released(self.source, self.view))
        elif recipe: raise Mistake('--recipe makes a run, and a run needs --data: name the manifest')
        else: contents = convert(self.source, self.out, self.view, self.optimizer)
        print(*filter(None, [contents]), self.out, sep='\n')

@dataclass(kw_only=True)
class VerdictCommand:
    "Say in plain words whether a run has learned, has collapsed, and looks at motion; needs no labels."
    folder:Path = word('RUN') # run folder
    data:Path|None=None # manifest; none: the one it was trained on
    videos:int=128 # training videos to look at, at most
    seconds:float=120. # then no further ones are looked at, once there are 32
    device:str='auto' # auto, cpu or cuda
    workers:int=2 # processes that decode

    def run(self):
        if self.videos < 4: raise Mistake(f'--videos {self.videos}: four are needed at least; 128 are many')
        if not self.seconds > 0: raise Mistake(f'--seconds {self.seconds:g}: must be above 0')
        refuse_early(self.data, self.folder, folder=self.folder)
        from .training.machine import Machine
        from .runs.own import give_verdict
        machine = Machine(self.device, workers=self.workers)
        print(give_verdict(self.folder, self.data, machine, self.videos, self.seconds),
            self.folder/'verdict.txt', sep='\n')

@dataclass(kw_only=True)
class UncertaintyCommand:
    "Rank videos by how doubtful a run holds them, so that the doubtful ones can be looked at."
    folder:Path = word('RUN') # folder of a run that exported a Gaussian head, such as one of ProViCo
    data:Path|None=None # folder of videos, or a manifest; none: all videos of the one it was trained on
    out:Path|None=None # .csv: all of them, with those that cannot be read
    show:int=20 # lines to print: half the most doubtful, half the surest; 0: all
    of:int=2 # clips of one distribution; those of a video are a multiple of it
    clips:int=10 # clips of a video
    device:str='auto' # auto, cpu or cuda
    batch:int=64 # clips that go through the encoder together, at most
    workers:int=0 # processes that decode

    def run(self):
        if self.show < 0: raise Mistake(f'--show {self.show}: must be 0 or more')
        refuse_early(self.data, self.folder, out=self.out)
        from .measure import gaussian
        from .measure.features import check_suffix
        if self.out: check_suffix(self.out, '.csv')
        from .runs.evaluation import open_trained
        from .training.machine import Machine
        data = open_trained(self.folder).manifest if self.data is None else self.data
        found, videos = gaussian.folder_gaussians(self.folder, data, self.clips, self.of, self.batch,
            Machine(self.device, workers=self.workers))
        ranked = gaussian.rank_videos(found, videos)
        lost = {videos.rows[r].video: why for r,why in found.dropped.items()}
        print(gaussian.ranking_text(ranked, self.show))
        for video,why in lost.items(): print(f'unreadable: {video}: {why}', file=sys.stderr)
        if self.out: print(gaussian.write_ranking(self.out, ranked, lost))

@dataclass(kw_only=True)
class Claims:
    "Print which claims of the papers were tested with this library, and which hold."
    paper:str|None=None # only those of one text, such as CPR
    ledger:Path|None=None # .json file; none: results/claims.json of the clone
    form:Literal['text','markdown']='text' # of what is printed

    def run(self):
        from .papers import published
        papers = {c.paper.lower(): c.paper for c in published.CLAIMS.values()}
        asked = (self.paper or '').lower()
        if asked and asked not in papers:
            raise Mistake(f'--paper {self.paper}: there are {", ".join(papers.values())}')
        chosen = [n for n,c in published.CLAIMS.items() if asked in ('', c.paper.lower())]
        show = published.ledger_text if self.form=='text' else published.ledger_markdown
        place = self.ledger or published.LEDGER
        print(show(place, chosen), published.ledger_count(place), sep='\n\n')

@dataclass(kw_only=True)
class Reproduce(MachineOptions):
    "A row of a paper's table: train what it needs, measure it, and set it beside the paper."
    # paper:table or paper:table:row, such as cpr:table1:s=3; none: list the tables
    name:str = word('[TABLE]', '')
    data:str|None=None # toy, or the manifest (or its folder) of the dataset that the paper trained on
    out:Path=Path('runs/reproduce') # a folder; every table gets one in it
    seeds:tuple[int,...]=(0,) # of weights and order; of the toy videos, too
    set:tuple[str,...]=() # fields to change in every recipe that has them, such as epochs=5
    size:Literal['tiny','demo']='demo' # of the toy

    def run(self):
        from .papers.reproduce import asked_rows, listed, reproduce
        if not self.name:
            for r in listed([self.out]):
                print(f"{r['name']:18} {r['trainings']:>2} trainings on {r['dataset']}; toy: {r['toy']}; "
                    f"here: {r['here']}\n    {r['asks']}: {r['rows']}")
            return
        asked_rows(self.name) # refuses
        if self.data is None:
            dataset = asked_rows(self.name)[1][0].full.made().dataset
            raise Mistake(f'{self.name}: say on what: --data toy, for the small version, or the manifest of '
                f'{dataset}')
        if os.environ.get('WORLD_SIZE', '1')!='1':
            raise Mistake('reproduce: start it without torchrun; vssl-nb pretrain takes many processes')
        if self.data!='toy': refuse_early(Path(self.data), folder=self.out, together=True)
        print(reproduce(self.name, self.data, self.out, self.seeds, self.machine(), changes(self.set),
            self.size, self.dry_run))

@dataclass(kw_only=True)
class Report:
    "Collect the results of runs into a table beside the published numbers, and a self-contained page."
    folder:Path = word('FOLDER') # a run folder, or a folder of run folders
    form:Literal['text','markdown','html','csv','latex']='text' # of the printed table
    out:Path|None=None # the page; none: report.html in that folder

    def run(self):
        if not self.folder.exists(): raise path_missing(self.folder, 'name a run folder, such as runs/mine, or a '
            'folder of them')
        refuse_early(out=self.out or (self.folder/'report.html' if self.folder.is_dir() else None))
        from .papers.report import page, read_runs, read_verdicts, sheet, summary
        path, rows = page(self.folder, self.out), read_runs(self.folder)
        if self.form=='text':
            for run,text in read_verdicts(self.folder).items(): print(f'{run}: {text}\n')
        if rows: print(sheet(summary(rows), self.form))
        print(path)

@dataclass(kw_only=True)
class Demo:
    "Write toy videos, co-train two views, retrieve, and print one table: what `make demo` does."
    out:Path=Path('runs/demo') # where everything goes
    seed:int=0 # of videos, weights and order

    def run(self):
        refuse_early(folder=self.out)
        from .papers.demo import demo
        demo(self.out, seed=self.seed)

COMMANDS: dict[str,Any] = {'demo': Demo, 'toy': Toy, 'manifest': MakeManifest, 'flow': Flow,
    'recipes': Recipes, 'dry-run': DryRunCommand, 'pretrain': Pretrain, 'cotrain': Cotrain,
    'extract': Extract, 'search': Search, 'retrieve': Retrieve, 'probe': ProbeCommand,
    'finetune': Finetune, 'predict': Predict,
    'convert': Convert,
    'mine': Mine, 'uncertainty': UncertaintyCommand, 'claims': Claims, 'reproduce': Reproduce,
    'verdict': VerdictCommand, 'report': Report}

class Option(NamedTuple):
    "A field of a command or of a recipe, as one gives it."
    kind:Any # a type annotation
    default:Any # MISSING: it must be given
    word:str # its name in help where it is a word between the options, else ''
    alias:str # another name, else ''

def options_of(
    part:Any, # a dataclass, or an object of one, whose values are the defaults
)->dict[str,Option]: # by field
    "The fields of a command, or of one part of a recipe."
    kinds = get_type_hints(part if isinstance(part, type) else type(part))
    return {f.name: Option(kinds[f.name], getattr(part, f.name, f.default), f.metadata.get('word', ''),
        f.metadata.get('alias', '')) for f in fields(part) if f.init and not is_dataclass(kinds[f.name])
        and not is_dataclass(getattr(part, f.name, None))}

def recipe_parts(
    recipe:Recipe,
)->dict[str,Any]: # a name in help -> the recipe, or a part of it
    "Everything whose fields are options of `pretrain`."
    parts = {f.name: getattr(recipe, f.name) for f in fields(recipe)}
    return {'recipe': recipe} | {name: part for name,part in parts.items() if is_dataclass(part)}

def comments(
    cls:type, # a dataclass
)->dict[str,str]: # field -> text
    "The comments behind the fields of a dataclass and its bases, or above them."
    notes:dict[str,str] = {}
    for base in reversed(cls.__mro__):
        if not is_dataclass(base): continue
        source = inspect.getsource(base)
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        texts = {t.start[0]: (t.string[1:].strip(), not t.line[:t.start[1]].strip()) for t in tokens
            if t.type==tokenize.COMMENT} # line -> comment, and is it alone there?
        for node in ast.parse(source).body[0].body: # type: ignore[attr-defined]
            if not isinstance(node, ast.AnnAssign): continue
            above, line = list[str](), node.lineno - 1
            while texts.get(line, ('', False))[1]:
                above.insert(0, texts[line][0])
                line -= 1
            notes[ast.unparse(node.target)] = ' '.join([*above, *texts.get(node.end_lineno or 0, ())[:1]])
    return notes | {f.name: f.metadata['about'] for f in fields(cls) if 'about' in f.metadata}

NAMES = {int: ('N', 'a whole number'), float: ('X', 'a number'), str: ('WORD', 'a word'),
    Path: ('PATH', 'a path'), NoneType: ('None', 'None')} # in help, in messages

def alternatives(kind:Any)->list[Any]: # the types of a union, `None` first; of another type, itself
    union = get_origin(kind) in (Union, UnionType)
    return sorted(get_args(kind), key=lambda k: k is not NoneType) if union else [kind]

def many_of(kind:Any)->tuple: # (float, float) of a tuple of two, (int, ...) of any number; () of no tuple
    return get_args(kind) if get_origin(kind) is tuple else ()

def metavar(kind:Any)->str:
    "A type in help: N, X|None, {adam,sgd}."
    if many := many_of(kind): return ' '.join('...' if k is ... else metavar(k) for k in many)
    return '|'.join('{' + ','.join(map(str, get_args(k))) + '}' if get_origin(k) is Literal else NAMES[k][0]
        for k in reversed(alternatives(kind)))

def value_of(
    text:str,
    kind:Any, # a type annotation
    option:str, # '--epochs', for the message
)->Any:
    "A word of the command line as a value of that type; `Mistake`."
    choices:list[str] = []
    for k in alternatives(kind):
        if get_origin(k) is Literal:
            for value in get_args(k):
                if text==str(value): return value
            choices += map(str, get_args(k))
        elif k is NoneType:
            if text=='None': return None
        else:
            with contextlib.suppress(ValueError): return k(text)
    names = [NAMES[k][1] for k in reversed(alternatives(kind)) if k in NAMES]
    if choices: raise Mistake(f'{option} {text}: is none of {", ".join(sorted(choices) + names)}')
    raise Mistake(f'{option} {text}: is not {" or ".join(names)}')

def dashed(name:str)->str: return name.replace('_', '-')

def parser(
    options:dict[str,Option],
)->argparse.ArgumentParser:
    "A parser that takes the values of options as they are written, and leaves the words between them."
    made = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False,
        argument_default=argparse.SUPPRESS)
    for name, o in options.items():
        flags, many = filter(None, [f'--{dashed(name)}', o.alias]), many_of(o.kind)
        if o.word: continue
        if o.kind is bool: made.add_argument(*flags, dest=name, action=argparse.BooleanOptionalAction)
        elif many: made.add_argument(*flags, dest=name, nargs='*' if many[-1] is ... else len(many))
        else: made.add_argument(*flags, dest=name, nargs='?', const=MISSING)
    return made

def split_words(
    args:Sequence[str],
    options:dict[str,Option],
)->tuple[dict[str,Any],list[str]]: # field -> what was given for it, as words; the words between the options
    "Options and words; `Mistake` where an option lacks its value."
    end = args.index('--') if '--' in args else len(args)
    names = [a.partition('=') if a.startswith('--') else ('', '', a) for a in args[:end]]
    plain = [dashed(name) + equals + value for name,equals,value in names] # --save_minutes will do
    try: given, rest = parser(options).parse_known_args(plain)
    except argparse.ArgumentError as e:
        name = str(e.argument_name).split('/')[0]
        many = many_of(options[name[2:].replace('-', '_')].kind)
        raise Mistake(f'{name}: takes {f"{len(many)} values" if many else "no value"}') from None
    for name, value in vars(given).items():
        if value is MISSING: raise Mistake(f'--{dashed(name)}: has no value behind it')
    return vars(given), [*rest, *args[end + 1:]]

def parse(
    command:str, # a key of COMMANDS
    args:Sequence[str], # what follows it
)->Any: # an object of the command
    "The command with its options filled in; `Mistake`, or `RecipeError` for a field of a recipe."
    kind = COMMANDS[command]
    options, recipe = options_of(kind), default_recipe(args) if command=='pretrain' else None
    settings = {n: o for part in (recipe_parts(recipe).values() if recipe else ())
        for n,o in options_of(part).items()}
    try:
        given, words = split_words(args, options | settings)
        if strange := next((w for w in words if w.startswith('--')), None):
            raise Mistake(unknown_option(command, strange))
        for name, o in options.items():
            if not o.word or not words: continue
            given[name], words = (words, []) if many_of(o.kind) else (words[0], words[1:])
        if words: raise Mistake(unknown_option(command, words[0]))
        values = {name: _values(value, (options | settings)[name], name) for name,value in given.items()}
        if missing := [n for n,o in options.items() if o.default is MISSING and n not in values]:
            notes = comments(kind)
            named = [options[n].word or f'--{dashed(n)} {metavar(options[n].kind)}' for n in missing]
            raise Mistake(f'vssl-nb {command} also needs '
                + ' and '.join(f'{word} ({notes[n]})' for word,n in zip(named, missing)))
    except Mistake as e: raise Mistake(f'{e}; see vssl-nb {command} --help') from None
    made = kind(**{n: v for n,v in values.items() if n in options})
    if recipe:
        made.given = frozenset(values) & settings.keys()
        made.recipe = override(recipe, **{n: values[n] for n in made.given})
    return made

def _values(value:Any, option:Option, name:str)->Any: # words of the command line as the value of an option
    if option.kind is bool: return value
    shown = option.word or f'--{dashed(name)}'
    if many := many_of(option.kind): return tuple(value_of(v, many[0], shown) for v in value)
    return value_of(value, option.kind, shown)

def all_settings()->dict[str,Option]:
    "The fields of all recipes, whatever their methods."
    options = {n: o for part in recipe_parts(find('infonce-toy-rgb')).values() for n,o in options_of(part).items()}
    return {n: o for cls in METHODS.values() for n,o in options_of(cls).items()} | options

def default_recipe(
    args:Sequence[str], # of `pretrain`
)->Recipe: # whose numbers are the defaults
    "The recipe that the arguments name, wherever it stands among them, with the method that they name."
    given, rest = split_words(args, all_settings() | options_of(Pretrain))
    words = [w for w in rest if not w.startswith('-')]
    name = next((w for w in words if w in RECIPES or ':' in w), words[0] if words else 'infonce-toy-rgb')
    recipe = find(name)
    if 'method' in given: recipe = override(recipe, method=given['method'])
    if taken := [f for f in vars(recipe.method) if f in Pretrain.__dataclass_fields__]:
        raise Mistake(f'the settings of {recipe.method.name} have a field {taken[0]!r}, '
            'which is an option of pretrain; call it otherwise')
    return recipe

def unknown_option(command:str, given:str)->str:
    "A sentence about an option that does not exist, or a word too many."
    if not given.startswith('--'): return f'{given!r} is one argument too many'
    options, name = options_of(COMMANDS[command]), given.split('=')[0][2:]
    settings = all_settings() if command=='pretrain' else {}
    if name.replace('-', '_') in settings: return f'--{name} is a setting of another method'
    if o := options.get(name.replace('-', '_')):
        return f'--{name}: is given without its name, as in vssl-nb {command} {o.word}'
    return f'{given} is not an option of {command}; {did_you_mean(name, map(dashed, options | settings))}'

def command_help(
    command:str,
    args:Sequence[str], # of `pretrain`: may name a recipe
)->str:
    "The options of a command; those of `pretrain` with the numbers of the recipe."
    kind, text = COMMANDS[command], ''
    parts:dict[str,Any] = {'options': kind}
    if command=='pretrain':
        recipe = default_recipe([a for a in args if a not in ('-h', '--help')])
        text = (f'The defaults are those of {recipe.name}; vssl-nb pretrain RECIPE --help shows those of '
            'another recipe.\n\n')
        parts |= recipe_parts(recipe)
    words = [o.word for o in options_of(kind).values() if o.word]
    made = argparse.ArgumentParser(add_help=False, description=kind.__doc__,
        usage=' '.join([f'vssl-nb {command}', *words, '[OPTIONS]']))
    for title, part in parts.items():
        group, notes = made.add_argument_group(title), comments(part if isinstance(part, type) else type(part))
        for name, o in sorted(options_of(part).items(), key=lambda entry: not entry[1].word):
            shown = ' '.join(map(str, o.default)) if isinstance(o.default, tuple) else o.default
            note = f'{notes[name]} ({"required" if o.default is MISSING else f"default: {shown}"})'
            about:dict[str,Any] = dict(help=(notes[name] if o.word else note).replace('%', '%%'))
            if o.kind is bool: about['action'] = argparse.BooleanOptionalAction
            elif not o.word: about['metavar'] = metavar(o.kind)
            group.add_argument(*filter(None, [o.word or f'--{dashed(name)}', o.alias]), **about)
    return text + made.format_help().rstrip()

def overview()->str:
    "What `vssl-nb` prints when it is given nothing."
    lines = [f'  {name:13}{kind.__doc__.splitlines()[0]}' for name,kind in COMMANDS.items()]
    return '\n'.join([f'vssl-nb {__version__}: self-supervised video representation learning', '', *lines, '',
        'vssl-nb COMMAND --help says more.',
        'First steps: vssl-nb toy videos; vssl-nb pretrain infonce-toy-residual --data videos; '
        'vssl-nb retrieve runs/infonce-toy-residual'])

class Terminated(KeyboardInterrupt):
    "The end of a command by SIGTERM; it is put away as after Ctrl-C."
    signal = signal.SIGTERM

@contextlib.contextmanager
def heed_signals()->Iterator[list[int]]: # the signals that have come
    "Ctrl-C, and SIGTERM where no launcher sends it, end this process and those that it has made, tidily."
    def end(number, frame):
        if os.getpid()!=here: os._exit(128 + number) # one that was forked just now
        received.append(number)
        sys.unraisablehook = lambda error: None # from now on: objects that are half made end with errors
        again.append(threading.Timer(1, os.kill, (here, number))) # where the exception is lost: in a fork,
        again[-1].start() # or in a module that is imported and catches everything
        raise Terminated if number==signal.SIGTERM else KeyboardInterrupt
    here, received, again, before = os.getpid(), list[int](), list[threading.Timer](), dict[int,Any]()
    usual:dict[int,Any] = {signal.SIGINT: signal.default_int_handler}
    if os.environ.get('WORLD_SIZE', '1')=='1': usual[signal.SIGTERM] = signal.SIG_DFL
    if threading.current_thread() is threading.main_thread():
        for number, handler in usual.items(): # what somebody else has arranged stays
            if signal.getsignal(number) is handler: before[number] = signal.signal(number, end)
    try: yield received
    finally:
        for timer in again: timer.cancel()
        for number, handler in before.items(): signal.signal(number, handler)

def end_children()->None:
    "End the processes that this one has made and that have not heard the signal."
    left = multiprocessing.active_children()
    if not left or threading.current_thread() is not threading.main_thread(): return
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL) # PyTorch's would raise an error in this
    for p in left: p.kill()
    for p in left: p.join()
    signal.signal(signal.SIGCHLD, before)

def speak_utf8()->None:
    "Print names of files as they are also in the locale C; elsewhere a ? for what it lacks."
    for name in ('stdout', 'stderr'): # closed by the caller; else the next file that is opened would be it
        if getattr(sys, name) is None: setattr(sys, name, open(os.devnull, 'w', encoding='utf-8'))
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper): continue # a notebook's, a test's
        plain = stream.encoding.lower().replace('-', '') in ('ascii', 'utf8', 'usascii', 'ansi_x3.41968')
        if plain: stream.reconfigure(encoding='utf-8', errors='surrogateescape')
        else: stream.reconfigure(errors='replace')

def run_command(args:list[str])->None:
    "Run one command, or print help."
    if not args or args[0] in ('-h', '--help', 'help'): print(overview())
    elif args[0]=='--version': print(__version__)
    elif args[0] not in COMMANDS:
        raise Mistake(f'there is no command {args[0]!r}; {did_you_mean(args[0], COMMANDS)}')
    elif {'-h', '--help'} & {*args[:args.index('--') if '--' in args else None]}:
        print(command_help(args[0], args[1:]))
    else: parse(args[0], args[1:]).run()
    sys.stdout.flush()

def main(
    args:Sequence[str]|None=None, # None: the arguments of the process, which ends after this
)->int: # exit code: 0; 2 for a mistake; 130 after Ctrl-C and 143 after SIGTERM, as shells have it
    "Run one command; a mistake becomes one sentence on stderr."
    # read when torch is imported: threads that spin while they wait slow down all that runs beside them
    os.environ.setdefault('OMP_WAIT_POLICY', 'PASSIVE')
    speak_utf8()
    code, received = 0, list[int]()
    try:
        with heed_signals() as received: run_command([*sys.argv[1:]] if args is None else [*args])
    except BrokenPipeError: # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, OSError) as e:
        if os.environ.get('VSSL_DEBUG'): raise
        # what is wrong with the arguments is wrong in all processes; of what goes wrong later,
        # `distributed.start` lets one process tell
        first = is_first('LOCAL_RANK', 'SLURM_LOCALID') if isinstance(e, PathError) else is_first()
        if first or not isinstance(e, (Mistake, RecipeError, PathError)):
            print(f'vssl-nb: {e}', file=sys.stderr)
        else: # a launcher ends all processes when one has ended, and the first may not have printed yet
            with contextlib.suppress(KeyboardInterrupt): time.sleep(10)
        code = 2
    except BaseException as e: # an interruption may come out of an import as another error
        if not received and not isinstance(e, KeyboardInterrupt): raise
        # a training that was interrupted has printed what it saved
        if not hasattr(e, 'signal') or isinstance(e, Terminated):
            print('vssl-nb: interrupted', file=sys.stderr)
        code = 128 + getattr(e, 'signal', received[0] if received else signal.SIGINT)
    if code > 2: # the error is gone, and with it all that ends its own processes
        end_children()
        sys.unraisablehook = sys.__unraisablehook__
    # Python looks through all objects for garbage before it ends: most of a second where PyTorch is there.
    # Not with Triton, which complains about what was not taken apart
    if args is None and 'triton' not in sys.modules: gc.freeze()
    return code

if __name__ == '__main__': sys.exit(main())
