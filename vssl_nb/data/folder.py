"From a folder of your own videos to a manifest, again and again: what is new is added, what you filled in stays, and a test part is cut by source."

import csv
import hashlib
import io
import json
import logging
import math
import os
import shutil
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from .manifest import COLUMNS, KeyframeTable, Manifest, ManifestError, Row, compile_source_pattern
from .manifest import file_stamp, find_videos, keyframe_runs, name_source, read, read_ucf101_lists
from .manifest import known_stamp, write, write_keyframes
from .video import VideoError, probe

def read_probes(
    cache:Path, # file of `probe_all`
)->dict[tuple, dict]: # (video, size, mtime) -> what its probe found
    "The probes of earlier runs; a line that a kill cut short is left out."
    found = {}
    for line in cache.read_text(encoding='utf-8', errors='replace').splitlines() if cache.exists() else []:
        with suppress(ValueError, KeyError, TypeError):
            r = json.loads(line)
            found[r['video'], r['size'], r['mtime']] = r
    return found

def _probe_once(video:str, file:Path, known:dict, note:Callable[[dict], None])->dict: # one line of the cache
    "What a file holds, from an earlier run or by decoding it."
    try: r:dict[str, Any] = dict(zip(('video', 'size', 'mtime'), (video, *file_stamp(file))))
    except OSError as e: return dict(status=f'cannot be opened ({e.strerror})')
    before = known.get(tuple(r.values()), {})
    # older runs did not note keyframes
    if 'keyframes' in before or before.get('status', 'ok') != 'ok': return before
    try:
        p = probe(file)
        r |= dict(frames=p.frames, fps=round(p.fps, 4), width=p.width, height=p.height, declared=p.declared,
            damage=p.damage, keyframes=keyframe_runs(p.keyframes), status='ok')
    except VideoError as e: r['status'] = ' '.join(e.reason.split())
    note(r)
    return r

def probe_all(
    root:Path, # folder the paths start from
    videos:Sequence[str], # paths
    cache:Path, # file that remembers what was found
    workers:int|None=None, # threads; None is one per core
    progress:bool=True, # show a bar
)->list[dict]: # one per video, as in the cache
    "Decode every video once; go on where a killed run was."
    known,lock = read_probes(cache),threading.Lock()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()
    with open(cache, 'a', encoding='utf-8') as f, ThreadPoolExecutor(workers or cores) as pool:
        if f.tell(): f.write('\n') # ends a line that was cut short
        def note(r):
            with lock: print(json.dumps(r), file=f, flush=True)
        done = pool.map(lambda video: _probe_once(video, root/video, known, note), videos)
        try: return list(tqdm(done, total=len(videos), disable=not progress, desc='videos', unit='video'))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise

SCAN_LOG = '.manifest-scan.jsonl' # what a killed scan has found, beside the manifest
GONE = 'is gone' # status of a row whose file is not there

def further_columns(
    path:Path, # of a manifest that could be read
)->dict[str, list[str]]: # name -> a text for each row
    "The columns of a manifest that are somebody's own."
    lines = csv.reader(io.StringIO(path.read_bytes().decode('utf-8-sig'), newline=''))
    header = [c.strip() for c in next(lines)]
    cells = [line for line in lines if any(line)]
    return {name: [line[i] for line in cells] for i,name in enumerate(header) if name not in COLUMNS}

@dataclass
class FolderUpdate:
    "What looking at a folder has changed in its manifest."
    path:Path # of the manifest
    rows:list[Row]
    began:bool=False # was there none before?
    changed:bool=False # was it written?
    added:list[str]=field(default_factory=list) # new videos
    renewed:list[str]=field(default_factory=list) # their files have changed, or are back
    moved:dict[str, str]=field(default_factory=dict) # old path -> new path
    gone:list[str]=field(default_factory=list) # files that are not there any more, since this time
    missing:list[str]=field(default_factory=list) # all that are not there
    notes:list[str]=field(default_factory=list) # sentences about splits, lists, what was replaced

    @property
    def unreadable(self)->list[Row]: return [r for r in self.rows if r.status not in ('ok', GONE)]
    def __str__(self)->str: return '\n'.join(_told(self))

def _some(names:Sequence[str])->str: # at most three of them
    return ', '.join(names[:3]) + (f' and {len(names)-3} more' if len(names) > 3 else '')

def _told(u:FolderUpdate)->Iterator[str]:
    "An update in sentences."
    yield str(u.path)
    if not u.began:
        if u.added: yield f'{len(u.added)} added: {_some(u.added)}'
        if u.renewed:
            yield f'{len(u.renewed)} looked at again, their files are other ones: {_some(u.renewed)}'
        if u.moved: yield f'{len(u.moved)} moved: {_some([f"{a} → {b}" for a,b in u.moved.items()])}'
        if not u.changed: yield 'nothing has changed'
    if u.missing:
        yield (f'{len(u.missing)} are gone{f", {len(u.gone)} since last time" if u.gone else ""}: '
            f'{_some(u.gone or u.missing)}; their rows are kept and not used (delete them to forget them)')
    yield from u.notes
    ok = [r for r in u.rows if r.status == 'ok']
    yield (f'{len(u.rows)} videos, {len({r.label for r in ok if r.label})} classes, '
        f'{len({r.source for r in ok})} sources, {len(u.unreadable)} unreadable')
    for n in (1, 2, 3):
        c = Counter(getattr(r, f'split{n}') for r in ok)
        if c['train'] or c['test']:
            yield f"split {n}: {c['train']} train, {c['test']} test, {c['']} in neither"
    if len({r.source for r in ok}) == len(ok) > 1:
        yield ('every video counts as a recording of its own; if some were cut from one film, tell by '
            '--source-pattern or in the column source')

@dataclass(frozen=True)
class _Names:
    "What the name of a video says."
    pattern:Any=None # of the source
    parts:dict[str, dict[str, Any]]=field(default_factory=dict) # class/stem -> split: part, of the lists
    classes:dict[str, str]=field(default_factory=dict) # class -> as the lists write it

    def row(self, video:str)->Row:
        label = PurePosixPath(video).parent.name
        key = str(PurePosixPath(label, PurePosixPath(video).stem)).casefold()
        label = self.classes.get(label.casefold(), label)
        return Row(video, label, name_source(video, label, self.pattern), **self.parts.get(key, {}))

def _move(old:Row, video:str, names:_Names)->Row:
    "A row under the new path of its file; what the old path said is said by the new one."
    was,now = names.row(old.video),names.row(video)
    label = now.label if old.label in (was.label, '') else old.label
    return replace(old, video=video, label=label,
        source=now.source if old.source == was.source else old.source)

def _moves(gone:Sequence[str], new:Sequence[str], table:KeyframeTable, folder:Path)->dict[str, str]:
    "Which gone file is which new one: the only two of that size and time of change."
    def by_stamp(videos, stamp):
        found = defaultdict(list)
        for v in videos:
            with suppress(OSError): found[stamp(v)].append(v)
        return found
    before,after = by_stamp(gone, partial(known_stamp, table)),by_stamp(new, lambda v: file_stamp(folder/v))
    return {a[0]: after[s][0] for s,a in before.items() if s and len(a) == len(after.get(s, ())) == 1}

def _probed(row:Row, p:dict)->Row: # with what its file says
    if p['status'] != 'ok': return replace(row, status=p['status'])
    return replace(row, status='ok', **{k: p[k] for k in ('frames', 'fps', 'width', 'height')})

def _merge(u:FolderUpdate, folder:Path, old:Sequence[Row], names:_Names, look:Callable[[list[str]],
    list[dict]]
    )->list[int|None]: # for each row, which of the old ones it was
    "Fill in `u.rows`: what was there, in its order, then what is new."
    table,videos,known = KeyframeTable(folder),find_videos(folder),{r.video for r in old}
    here,fresh = set(videos),[v for v in videos if v not in known]
    u.moved = _moves([r.video for r in old if r.video not in here], fresh, table, folder)
    u.added = [v for v in fresh if v not in u.moved.values()]
    kept = [_move(r, u.moved[r.video], names) if r.video in u.moved else r for r in old]
    def same(i): # the file that the row speaks of
        if kept[i].video not in here: return True
        with suppress(OSError):
            return old[i].status != GONE and known_stamp(table,
                kept[i].video) == file_stamp(folder/kept[i].video)
        return False
    again = [i for i in range(len(old)) if not same(i)]
    found = look([kept[i].video for i in again] + u.added)
    for i,p in zip(again, found): kept[i] = _probed(kept[i], p)
    u.renewed = [kept[i].video for i in again if kept[i] != old[i] and old[i].video not in u.moved]
    u.missing = [r.video for r in kept if r.video not in here]
    u.gone = [r.video for r in kept if r.video not in here and r.status != GONE]
    kept = [replace(r, status=GONE) if r.video not in here else r for r in kept]
    u.rows = kept + [_probed(names.row(v), p) for v,p in zip(u.added, found[len(again):])]
    return [*range(len(old)), *[None]*len(u.added)]

def _apply_lists(u:FolderUpdate, names:_Names, source_too:bool):
    "What was asked for by name, lists or a pattern of sources, holds for old rows as well."
    made = [names.row(r.video) for r in u.rows]
    for what,wanted in (('source', source_too), *((f'split{n}', bool(names.parts)) for n in (1, 2, 3))):
        if not wanted: continue
        other = [i for i,(r,m) in enumerate(zip(u.rows, made)) if getattr(m, what)
            and getattr(r, what) != getattr(m, what)]
        filled = [u.rows[i].video for i in other if getattr(u.rows[i], what)]
        for i in other: u.rows[i] = replace(u.rows[i], **{what: getattr(made[i], what)})
        if filled: u.notes.append(f'{what} of {len(filled)} rows was another one, as with {filled[0]}')

@contextmanager
def _alone(folder:Path)->Iterator[None]: # one command at a time; another waits
    try:
        with open(folder/SCAN_LOG, 'a') as f:
            with suppress(ImportError):
                import fcntl # not on Windows
                with suppress(OSError): fcntl.flock(f, fcntl.LOCK_EX) # nor on every file system
            yield
    except (PermissionError, FileNotFoundError, NotADirectoryError, OSError) as e:
        if isinstance(e, ManifestError): raise
        raise ManifestError(f'{e.filename or folder}: cannot be written ({e.strerror}); manifest.csv has to '
            'lie beside the videos: make a folder of links to them where you may write') from None

def _probes(folder:Path, videos:list[str], workers:int|None, progress:bool)->list[dict]:
    "Look at every file, or go on where that was stopped; keyframes go into their table."
    try: found = probe_all(folder, videos, folder/SCAN_LOG, workers, progress and bool(videos))
    except KeyboardInterrupt:
        print(f'{folder}: stopped; the same command goes on from there', file=sys.stderr)
        raise
    for v,p in zip(videos, found):
        if p.get('damage'): _log.warning('damaged, used as far as it goes: %s %s', v, p['damage'])
    keys = {v: (p['size'], p['mtime'], p['keyframes']) for v,p in zip(videos, found) if p.get('keyframes')}
    if keys: write_keyframes(folder, keys)
    return found

_log = logging.getLogger(__name__)

def _lost(u:FolderUpdate, old:Sequence[Row], names:_Names, more:dict)->str: # '' where nothing is
    "What a table that is made anew does not say any more."
    now,what = {r.video: r for r in u.rows},[]
    for c in ('label', 'source', 'split1', 'split2', 'split3', 'flow'):
        n = sum(bool(getattr(r, c)) and getattr(now.get(r.video, Row('')), c) != getattr(r, c) for r in old)
        if n: what.append(f'{c} of {n} rows')
    return ', '.join([*what, *(f'the column {c}' for c in more)])

def update_manifest(
    folder:str|os.PathLike, # of folders of classes, or of videos without classes
    lists:str|os.PathLike|None=None, # folder with the official UCF101 lists
    source_pattern:str|None=None, # regular expression whose one group finds the source in the relative path
    workers:int|None=None, # threads; None is one per core
    progress:bool=True, # show a bar
    *,
    share:float|None=None, # of the videos that become test videos in split 1, see `cut_split`; None: none
    seed:int=0, # of that split
    anew:bool=False, # forget the table that is there; it is kept as manifest.csv.old
)->FolderUpdate:
    "Make the manifest of a folder, or bring it up to date. `ManifestError`; then it is as it was."
    folder,target = Path(folder),Path(folder)/'manifest.csv'
    pattern = compile_source_pattern(source_pattern)
    if share is not None: check_share(share, seed)
    parts,classes = read_ucf101_lists(Path(lists)) if lists is not None else ({}, {})
    find_videos(folder) # before anything is written into a wrong folder
    if (folder/'.prepare').exists(): # `archives.PREPARE_STATE`
        raise ManifestError(f'{folder}: was made by a script of data_scripts/ or by `prepare_dataset`; run '
            'that again instead, it knows which files belong to it')
    with _alone(folder):
        there = target.exists()
        old,more = (read(target).rows, further_columns(target)) if there else ((), {})
        u,names = FolderUpdate(target, [], not there or anew),_Names(pattern, parts, classes)
        was = _merge(u, folder, () if anew else [*old], names,
            lambda videos: _probes(folder, videos, workers, progress))
        if not u.began: _apply_lists(u, names, pattern is not None)
        _warn_of_lists(u, names)
        if share is not None: u.rows,said = cut_split(u.rows, share, seed); u.notes += said
        _write_update(u, target, old, names, {} if anew else more, was, anew, more)
    (folder/SCAN_LOG).unlink(missing_ok=True)
    return u

def _warn_of_lists(u:FolderUpdate, names:_Names):
    "What does not fit together in lists, sources and files. `ManifestError` where nothing does."
    if not any(r.status == 'ok' for r in u.rows):
        raise ManifestError(f'{u.path.parent}: none of the {len(u.rows)} videos can be used; the first: '
            f'{u.rows[0].video} {u.rows[0].status}')
    if names.parts:
        used = {str(PurePosixPath(PurePosixPath(r.video).parent.name, PurePosixPath(r.video).stem)).casefold()
            for r in u.rows}
        absent = sorted(set(names.parts) - used)
        if len(absent) == len(names.parts):
            raise ManifestError(f'{u.path.parent}: holds none of the {len(absent)} videos of the lists, such '
                f'as {absent[0]}; is it the folder that holds the folders of the classes?')
        if absent: u.notes.append(f'{len(absent)} of the {len(names.parts)} videos of the lists are not '
            f'there, such as {absent[0]}')
    labels = defaultdict(set)
    for r in u.rows: labels[r.source].add(r.label)
    if shared := [s for s,found in labels.items() if len(found - {''}) > 1]:
        u.notes.append(f"{len(shared)} sources occur in several classes, such as '{shared[0]}'; if these are "
            'different recordings, let the pattern catch the class too')

def _write_update(u:FolderUpdate, target:Path, old:Sequence[Row], names:_Names, kept:dict, was:list,
    anew:bool, more:dict):
    "Write what has changed, and nothing where nothing has: the same table is the same dataset for a run."
    u.changed = [*old] != u.rows
    if anew and old:
        shutil.copyfile(target, target.with_name('manifest.csv.old'))
        lost = _lost(u, old, names, more)
        u.notes.append(f"the table from before is kept as "
            f"manifest.csv.old{f'; not in the new one: {lost}' if lost else ''}")
    if u.changed or not target.exists():
        columns = {c: ['' if i is None else texts[i] for i in was] for c,texts in kept.items()}
        write(target, u.rows, columns)

def check_share(share:float, seed:int=0):
    "`ManifestError` for what is no share of the videos, or no seed."
    if not (math.isfinite(share) and 0 < share < 1):
        raise ManifestError(f'--split {share:g}: is not a share between 0 and 1; 0.2 makes a fifth of the '
            'videos test videos')
    if seed < 0: raise ManifestError(f'--seed {seed}: is below 0; use 0 or more')

def _deal(
    sizes:dict[str, int], # source -> usable videos
    told:dict[str, str], # source -> train or test, where that stands
    share:float, rng:np.random.Generator,
)->dict[str, str]: # source -> train or test
    "Sources of one class, at least one on either side where there are two."
    free = sorted(s for s in sizes if s not in told)
    free = [free[i] for i in rng.permutation(len(free))]
    parts,want = dict(told) | dict.fromkeys(free, 'train'),share*sum(sizes.values())
    have = sum(n for s,n in sizes.items() if told.get(s) == 'test')
    for s in free:
        if abs(have + sizes[s] - want) < abs(have - want) - 1e-9: # nearer to what is wanted
            parts[s],have = 'test',have + sizes[s]
    usable = [s for s in free if sizes[s]]
    for part,other in (('test', 'train'), ('train', 'test')):
        lacks = not any(parts[s] == part for s in sizes if sizes[s])
        if lacks and len(usable) > (other not in told.values()):
            parts[min(usable, key=lambda s: sizes[s])] = part
    return parts

def cut_split(
    rows:Sequence[Row],
    share:float, # of the videos of each class that become test videos, between 0 and 1
    seed:int=0,
)->tuple[list[Row], list[str]]: # the rows with split1 filled, and what is to be said about it
    "Cut a test part by source, class by class; what is filled already stays. `ManifestError`."
    check_share(share, seed)
    of,told = defaultdict(list),defaultdict(set)
    for r in rows:
        of[r.source].append(r)
        if r.split1: told[r.source].add(r.split1)
    torn = sorted(s for s,parts in told.items() if len(parts) > 1)
    if torn: raise ManifestError(f'source {torn[0]!r} has videos on both sides of split 1; mend the column '
        'split1 or the column source')
    if all(r.split1 for r in rows):
        return [*rows], ['split 1 is filled already and stays as it is; empty the column to cut another']
    classes = defaultdict(list)
    for s,mine in of.items():
        count = Counter(r.label for r in mine)
        classes[min(count, key=lambda label: (-count[label], label))].append(s)
    parts,alone = dict[str, str](),[]
    for label,sources in classes.items():
        key = int.from_bytes(hashlib.sha256(label.encode()).digest()[:8], 'big')
        sizes = {s: sum(r.status == 'ok' for r in of[s]) for s in sources}
        parts |= _deal(sizes, {s: min(told[s]) for s in sources if s in told}, share,
            np.random.default_rng((seed, key)))
        if sum(map(bool, sizes.values())) == 1: alone.append(label)
    return _with_parts(rows, parts, alone, len(classes))

def _with_parts(rows:Sequence[Row], parts:dict[str, str], alone:list[str], classes:int
    )->tuple[list[Row], list[str]]:
    "The rows in their parts. `ManifestError` where one of the two would be empty."
    made = [replace(r, split1=parts[r.source]) for r in rows]
    if len({r.split1 for r in made if r.status == 'ok'}) < 2:
        raise ManifestError(f'all {len(rows)} usable videos are of one source for each class, such as '
            f'{rows[0].source!r}, and a source is never on both sides of a split; if they are different '
            'recordings, tell by --source-pattern or in the column source')
    n = sum(r.split1 == 'test' for r in made if r.status == 'ok')
    ok = sum(r.status == 'ok' for r in made)
    said = [f'split 1: {n} of {ok} videos ({100*n/ok:.0f} %) are for testing, cut by source'
        + (', class by class' if classes > 1 else '')]
    if alone: said.append(f'{len(alone)} classes have one source only and are on one side: '
        f'{_some(sorted(alone))}')
    return made, said

def open_data(
    data:str|os.PathLike, # a manifest, or its folder; a folder of videos gets one; or 'package.module:name'
    progress:bool=True, # show a bar
)->Manifest:
    "Open a manifest as `manifest.read` does; make it first where a folder has none. `ManifestError`."
    folder = Path(data)
    if folder.is_dir() and not (folder/'manifest.csv').exists():
        find_videos(folder)
        # another process may have been making it
        with _alone(folder): there = (folder/'manifest.csv').exists()
        if not there:
            print(f'{folder}: has no manifest.csv yet; every video is looked at once', file=sys.stderr)
            print(update_manifest(folder, progress=progress), file=sys.stderr)
    return read(data)
