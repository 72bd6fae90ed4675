"Which of my videos are like this one?"

import csv
import filecmp
import gc
import html
import importlib
import itertools
import json
import hashlib
import os
import re
import shlex
import tempfile
import time
import zipfile
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from safetensors import SafetensorError, safe_open

from . import __version__
from .names import VIDEO_SUFFIXES, expect_writable

BLOCK = 512 # features that are made float64 at a time: few enough for the caches of a processor

def centred_cosines(
    query:np.ndarray, # (Q, D)
    x:np.ndarray, # (N, D) float32, may lie on the disk (`numpy.memmap`): each row is read once
    mean:np.ndarray, # (D,) float64, of the folder
)->np.ndarray: # (Q, N) float32
    "Cosines from the middle of the folder; one that lies in the middle is like none (0)."
    def length(v): return np.maximum(np.sqrt(np.einsum('nd,nd->n', v, v)), 1e-12)
    q,found = query.astype(np.float64) - mean,np.empty((len(query), len(x)), np.float32)
    q /= length(q)[:, None]
    for i in range(0, len(x), BLOCK): # added up in float64 and rounded once: copies stay equal
        part = x[i:i+BLOCK] - mean
        found[:, i:i+BLOCK] = q @ part.T/length(part)
    return found

def nearest(
    sim:np.ndarray, # (N,) float32
    k:int, # at most
    leave_out:int|None=None, # position of the query itself
)->np.ndarray: # (k,) positions, the nearest first; the earlier of equals first
    "The positions of the k largest."
    if leave_out is not None: sim = np.where(np.arange(len(sim))==leave_out, -np.inf, sim)
    k = min(k, len(sim) - (leave_out is not None))
    if k < 1: return np.empty(0, int)
    at = np.flatnonzero(sim >= np.partition(sim, len(sim) - k)[len(sim) - k])
    return at[np.lexsort((at, -sim[at]))][:k]

class SearchError(ValueError):
    "A folder, an index or a query that cannot be used, and what to do."

def _entries(folder:Path, where:str)->list[os.DirEntry]:
    try: return list(os.scandir(folder/where))
    except FileNotFoundError: raise SearchError(f'{folder}: there is no such folder; name the folder that '
        'holds the videos with --data') from None
    except NotADirectoryError: raise SearchError(f'{folder}: is a file; name the folder that holds the '
        'videos with --data') from None
    except OSError as e: raise SearchError(f'{folder/where}: cannot be read ({e.strerror})') from None

def _stamp(path)->tuple[int,int]: # (-1, -1) where there is no such file, as behind a broken link
    try: found = os.stat(path)
    except OSError: return -1,-1
    return found.st_size,found.st_mtime_ns

def video_files(
    folder:Path, # of videos, with folders in it
)->dict[str,tuple[int,int]]: # path relative to the folder, with / -> bytes, time of the last change in ns
    "Every video file of a folder, sorted by name; hidden files, stored flow and odd names are left out."
    found,todo,seen = dict[str,tuple[int,int]](),[''],set()
    while todo:
        where = todo.pop()
        if (real := os.path.realpath(folder/where)) in seen: continue # a link that leads in a circle
        seen.add(real)
        entries = _entries(folder, where)
        if any(e.name=='flow.json' for e in entries): continue # pictures of motion, made by `vssl-nb flow`
        for e in entries:
            name = e.name
            odd = not name.isascii() and name != name.encode('utf-8', 'replace').decode()
            if odd or name[0]=='.': continue
            if name.lower().endswith(VIDEO_SUFFIXES) and not e.is_dir(): found[where + name] = _stamp(e.path)
            elif e.is_dir(): todo.append(f'{where}{name}/')
    if not found: raise SearchError(f'{folder}: holds no video; videos end in {", ".join(VIDEO_SUFFIXES)}')
    return dict(sorted(found.items()))

def _sha256(file:Path)->str: # Python 3.10 has no `hashlib.file_digest`
    sha = hashlib.sha256()
    with open(file, 'rb') as f:
        while block := f.read(2**20): sha.update(block)
    return sha.hexdigest()

@dataclass(frozen=True)
class EncoderFile:
    "What a file says about the encoder in it."
    path:Path # encoder.safetensors
    sha256:str # of the file
    about:dict[str,Any] # backbone, view, length, stride, size, ...
    outside:bool=False # may code be imported that it names? only if the recipe of its run folder says so

def describe_encoder(
    path, # a run folder, or the encoder.safetensors of one
)->EncoderFile:
    "Look at an encoder's file without PyTorch. `SearchError`."
    given = Path(path)
    file = given/'encoder.safetensors' if given.is_dir() else given
    if not file.is_file():
        what = 'is a folder without an encoder.safetensors' if given.is_dir() else 'there is no such file'
        raise SearchError(f'{given}: {what}; name a run folder, or its encoder.safetensors, with --encoder')
    try:
        with safe_open(file, 'np') as f: about = json.loads((f.metadata() or {}).get('vssl_nb', 'null'))
    except (SafetensorError, OSError, ValueError) as e:
        raise SearchError(f'{file}: is not a whole encoder.safetensors ({str(e).splitlines()[0]})') from None
    lacks = [k for k in ('backbone', 'view', 'length', 'stride', 'size') if k not in (about or {})]
    if lacks: raise SearchError(f'{file}: does not say its {", ".join(lacks)}; name an encoder that '
        '`vssl-nb pretrain` wrote with --encoder')
    if about['view']=='flow':
        raise SearchError(f'{file}: is an encoder of the view flow, and a folder of videos has only '
            'their frames; name one of rgb or residual with --encoder')
    try: recipe = json.loads((file.parent/'recipe.json').read_text()) if given.is_dir() else {}
    except (OSError, ValueError): recipe = {}
    return EncoderFile(file.resolve(), _sha256(file), about, ':' in str(recipe.get('backbone', '')))

def index_key(
    encoder:EncoderFile,
    clips:int=10, # per video, spread evenly
)->dict[str,Any]:
    "All that decides the features of an index."
    if clips < 1: raise SearchError(f'clips={clips} makes no feature; take 1 or more')
    about = encoder.about
    views:dict[str,Any] = {k: about[k] for k in ('residual', 'residual_scale', 'mean', 'std') if k in about}
    return {'encoder': encoder.sha256, 'view': about['view'], 'clips': clips, 'length': about['length'],
        'stride': about['stride'], 'size': about['size'], **views}

@dataclass
class SearchIndex:
    "The features of the videos of a folder."
    folder:Path # where the index is kept
    root:Path # the folder of the videos
    key:dict[str,Any] # from `index_key`
    encoder:str # path of the encoder's file
    videos:dict[str,tuple[int,int]] # name -> bytes and time, in the order of x
    bad:dict[str,tuple[int,int,str]] # name -> bytes, time, and why it could not be read
    x:np.ndarray # (N, D) float32, not centred
    mean:np.ndarray # (D,) float64
    code:str='' # fingerprint of the encoder with its code

    def __len__(self)->int: return len(self.videos)
    def __repr__(self):
        lost = f', {len(self.bad)} unreadable' if self.bad else ''
        return f'SearchIndex({len(self)} videos of {self.root}, {self.x.shape[1]} numbers each{lost})'

def _damaged(folder:Path, why:str)->SearchError:
    return SearchError(f'{folder}: is not a whole index ({why}); delete this folder and search again')

def read_about(folder:Path)->dict[str,Any]: # of an index; empty where there is none
    "What `index.json` says. `SearchError` where it is damaged."
    try: about = json.loads((folder/'index.json').read_text(encoding='utf-8'))
    except FileNotFoundError: return {}
    except (OSError, ValueError) as e: raise _damaged(folder, str(e).splitlines()[0]) from None
    need = {'key', 'encoder', 'code', 'videos', 'bytes', 'time', 'bad', 'mean', 'features'}
    if not isinstance(about, dict) or need - about.keys(): raise _damaged(folder, 'index.json lacks fields')
    return about

def open_index(
    folder:Path, # that holds index.json
    root:Path, # the folder of the videos, wherever it is now
)->SearchIndex|None: # None where there is none
    "An index as it is, without a look at the videos. `SearchError` where it is damaged."
    about = read_about(folder)
    if not about: return None
    try: x = np.load(folder/about['features'], mmap_mode='r')
    except (OSError, ValueError) as e: raise _damaged(folder, str(e).splitlines()[0]) from None
    mean = np.array(about['mean'])
    if x.shape != (len(about['videos']), len(mean)): raise _damaged(folder, f'its features are {x.shape}')
    videos = dict(zip(about['videos'], zip(about['bytes'], about['time'])))
    bad = {n: (size, at, why) for n,size,at,why in about['bad']}
    return SearchIndex(folder, root, about['key'], about['encoder'], videos, bad, x, mean, about['code'])

def _check_same(old:SearchIndex, key:dict[str,Any], files:dict):
    "Refuse an index of another encoder or of another folder."
    differ = [k for k in {**old.key, **key} if old.key.get(k) != key.get(k)]
    if differ: raise SearchError(f'{old.folder}: is an index with another {differ[0]} '
        f'({str(old.key.get(differ[0]))[:16]}, not {str(key.get(differ[0]))[:16]}); '
        'name another folder with --index')
    if len(old) > 1 and not (old.videos.keys() | old.bad.keys()) & files.keys():
        raise SearchError(f'{old.folder}: is an index of other videos: none of its {len(old)} is in '
            f'{old.root}; name another folder with --index')

def write_index(
    index:SearchIndex,
)->SearchIndex: # with its features on the disk
    "Write an index, whole or not at all, and remove the features of the one before."
    from .training.checkpoints import write_whole
    before = read_about(index.folder).get('features') if (index.folder/'index.json').exists() else None
    name = f'features-{time.time_ns():x}.npy'
    write_whole(index.folder/name, lambda f: np.save(f, np.asarray(index.x, np.float32)))
    about = {'key': index.key, 'encoder': index.encoder, 'code': index.code, 'vssl_nb': __version__,
        'features': name, 'mean': index.mean.tolist(), 'bad': [[n, *s] for n,s in index.bad.items()],
        'videos': [*index.videos], 'bytes': [s for s,_ in index.videos.values()],
        'time': [t for _,t in index.videos.values()]}
    write_whole(index.folder/'index.json', lambda f: f.write(json.dumps(about).encode()))
    if before: (index.folder/before).unlink(missing_ok=True)
    found = open_index(index.folder, index.root)
    assert found is not None
    return found

def _add_part(folder:Path, key:dict, code:str, done:dict[str,tuple[tuple,Any]]):
    "Keep some finished videos: name -> (stamp, feature or reason)."
    from .training.checkpoints import write_whole
    good = {n: s for n,(s,x) in done.items() if not isinstance(x, str)}
    told = {'key': key, 'code': code, 'good': [[n, *s] for n,s in good.items()],
        'bad': [[n, *s, x] for n,(s,x) in done.items() if isinstance(x, str)]}
    x = np.stack([done[n][1] for n in good]) if good else np.empty((0, 1), np.float32)
    if done: write_whole(folder/'parts'/f'{time.time_ns():x}.npz',
        lambda f: np.savez(f, x=x, told=np.array(json.dumps(told))))

def _read_parts(folder:Path, key:dict, code:str)->dict[str,tuple[tuple,Any]]:
    "What earlier calls have finished; a damaged part is done again."
    found = dict[str,tuple[tuple,Any]]()
    for path in sorted(folder.glob('parts/*.npz')):
        try:
            with np.load(path) as f: x,told = f['x'],json.loads(str(f['told']))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile): continue
        if (told['key'], told['code']) != (key, code): continue
        found |= {n: ((size, at), row) for (n,size,at),row in zip(told['good'], x)}
        found |= {n: ((size, at), why) for n,size,at,why in told['bad']}
    return found

def read_network(
    encoder:EncoderFile,
)->tuple[Any,str]: # the network in eval mode, and the fingerprint of its weights and code
    "The network of an encoder's file."
    from .training.checkpoints import read_encoder
    from .measure.features import fingerprint
    network,_ = read_encoder(encoder.path, outside=encoder.outside)
    return network,fingerprint(network)

def _features(encoder:Any, key:dict, table:Any, rows:list[int], batch:int, machine:Any
    )->Iterator[tuple[int,np.ndarray|str]]: # row of `table`, a manifest; (D,) float32 or why there is none
    "Features of videos, as the key of an index has them."
    from .measure.features import extract_clips, mean_of_clips
    from .runs.own_videos import VIEW_OPTIONS
    from .measure.protocols import protocol
    p = protocol('clean', **{k: key[k] for k in ('clips', 'length', 'stride', 'size')})
    views = {k: key[k] for k in VIEW_OPTIONS if k in key}
    made = extract_clips(encoder, table, rows, key['view'], p, batch=batch, machine=machine, **views)
    for row,found in made:
        x = found if isinstance(found, str) else mean_of_clips(found, False).numpy()
        yield row,x if isinstance(x, str) or np.isfinite(x).all() else 'its feature is not finite'

def _encode(encoder:Any, key:dict, root:Path, names:list[str], batch:int, machine:Any
    )->Iterator[tuple[str,np.ndarray|str]]: # name, and (D,) float32 or why there is none
    "Features of files."
    from .runs.own_videos import as_manifest
    table = as_manifest([root/n for n in names])
    good = [i for i,r in enumerate(table.rows) if r.status=='ok']
    yield from ((names[i], r.status) for i,r in enumerate(table.rows) if r.status!='ok')
    for row,x in _features(encoder, key, table, good, batch, machine): yield names[row],x

def _make(todo:dict[str,tuple[int,int]], encode:Any, keep:Any)->dict[str,tuple[tuple,Any]]:
    "Encode files in groups; what is done is kept from time to time, and when something stops it."
    from .measure.features import SAVE_SECONDS
    done,fresh,since,names = {},{},time.monotonic(),iter(todo)
    try:
        while group := list(itertools.islice(names, 512)):
            for name,x in encode(group):
                done[name] = fresh[name] = todo[name],x
                if time.monotonic() - since > SAVE_SECONDS:
                    keep(fresh)
                    fresh,since = {},time.monotonic()
    finally: keep(fresh)
    return done

def _encode_missing(folder:Path, root:Path, encoder:EncoderFile, key:dict, todo:dict,
    old:SearchIndex|None, batch:int, how:dict)->tuple[dict[str,tuple[tuple,Any]],str]:
    "Features, or reasons, for all of `todo`; and the fingerprint of the encoder."
    from dataclasses import replace
    from tqdm.auto import tqdm
    from .training.machine import Machine
    machine = Machine(**how)
    network,code = read_network(encoder)
    if old and old.code != code: raise SearchError(f'{folder}: was made by other code of the encoder '
        f'{encoder.path}; delete this folder and search again')
    kept = {n: d for n,d in _read_parts(folder, key, code).items() if d[0]==todo.get(n)}
    rest = {n: s for n,s in todo.items() if n not in kept}
    quiet = replace(machine, progress=False, workers=machine.workers if len(rest) > 256 else 0)
    with tqdm(total=len(rest), desc='index', unit='video', disable=not machine.progress or not rest) as bar:
        def encode(names):
            for found in _encode(network, key, root, names, batch, quiet):
                yield found
                bar.update()
        return kept | _make(rest, encode, lambda some: _add_part(folder, key, code, some)),code

def _current(old:SearchIndex|None, files:dict)->tuple[dict[str,int],dict[str,tuple]]:
    "Of an index, what is still true: name -> position, and the unreadable."
    if not old: return {},{}
    good = {n: i for i,(n,s) in enumerate(old.videos.items()) if files.get(n)==s}
    return good,{n: b for n,b in old.bad.items() if files.get(n)==b[:2]}

def update_index(
    folder:Path, # where the index is kept, or will be
    root:Path, # the folder of the videos
    encoder:EncoderFile, # from `describe_encoder`
    clips:int=10, # per video
    batch:int=64, # clips that go through the encoder together
    new:bool=True, # look for new, changed and vanished files; False: the index as it is
    **machine, # of `machine.Machine`: device, workers, progress
)->tuple[SearchIndex,tuple[int,int]]: # the index; how many were encoded, and how many are gone
    "The index of a folder as it is now. `SearchError`, `VideoError`, `CheckpointError`."
    folder,root = Path(folder),Path(root)
    key,old = index_key(encoder, clips),open_index(folder, root)
    if not old and not new: raise SearchError(f'{folder}: there is no index yet; leave out --no-update')
    files = video_files(root) if new or not old else old.videos | {n: b[:2] for n,b in old.bad.items()}
    if old: _check_same(old, key, files)
    good,bad = _current(old, files)
    todo = {n: s for n,s in files.items() if n not in good and n not in bad}
    gone = len(old) + len(old.bad) - len(good) - len(bad) - len(todo.keys() & {*old.videos, *old.bad}) \
        if old else 0
    if old and not todo and not gone: return old,(0, 0)
    expect_writable(folder, '--index', folder=True)
    done,code = _encode_missing(folder, root, encoder, key, todo, old, batch, machine) if todo else ({}, '')
    fresh = {n: x for n,(_,x) in done.items() if not isinstance(x, str)}
    bad |= {n: (*s, x) for n,(s,x) in done.items() if isinstance(x, str)}
    names = [n for n in files if n in good or n in fresh]
    if not names: raise SearchError(f'{root}: not one of its {len(files)} videos can be read; the first is '
        f'{min(bad)}: {bad[min(bad)][2]}')
    x = np.empty((len(names), len(next(iter(fresh.values()), old.x[0] if old else ()))), np.float32)
    for i,n in enumerate(names): x[i] = fresh[n] if n in fresh else old.x[good[n]] # type: ignore[union-attr]
    index = write_index(SearchIndex(folder, root, key, str(encoder.path), {n: files[n] for n in names},
        dict(sorted(bad.items())), x, x.mean(0, dtype=np.float64), code or (old.code if old else '')))
    for part in folder.glob('parts/*.npz'): part.unlink(missing_ok=True)
    return index,(len(done), gone)

@dataclass(frozen=True)
class Query:
    "What is looked for."
    text:str # as it was given
    path:Path # the file
    span:tuple[float,float]|None=None # seconds; None: all of it
    name:str='' # in the index; '': it is not there

def parse_query(
    text:str, # a file, or file@from-to in seconds
    root:Path, # the folder of the videos, where the file is looked for, too
    known:Iterable[str]=(), # names in the index
)->Query:
    "What a query says. `SearchError`."
    def there(name): return next((p for p in (Path(name), root/name) if name and p.exists()), None)
    file,at,span = text.rpartition('@')
    path = there(text) or (there(file) if at else None)
    if path is None: raise SearchError(f'{file if at else text}: there is no such file, neither here nor in '
        f'{root}; name a video, or a span of one such as clip.mp4@12.5-15')
    if path.is_dir(): raise SearchError(f'{path}: is a folder; name a video')
    places = ((path.absolute(), root.absolute()), (path.resolve(), root.resolve()))
    names = [n for pair in places if (n := Path(os.path.relpath(*pair)).as_posix()) in known]
    name = names[0] if names else ''
    if path==there(text): return Query(text, path, None, name)
    hit = re.fullmatch(r'(\d+\.?\d*)-(\d+\.?\d*)', span)
    if not hit or float(hit[1]) >= float(hit[2]): raise SearchError(f'{text}: {span!r} is no span of time; '
        'give the seconds from-to, the first one smaller, such as @12.5-15')
    return Query(text, path, (float(hit[1]), float(hit[2])), name)

def span_frames(
    query:Query,
    frames:int, fps:float, # of the file
)->tuple[int,int]: # number of the first frame, how many
    "The frames of a query. `SearchError` where the span leads out of the video."
    if query.span is None: return 0,frames
    if not fps: raise SearchError(f'{query.path}: does not say how many frames a second has; '
        'search for the whole video')
    first,end = round(query.span[0]*fps),round(query.span[1]*fps)
    if end > frames + 1: raise SearchError(f'{query.text}: the video lasts {frames/fps:.2f} s; '
        'give a span within it')
    return first,max(min(end, frames) - first, 1)

def query_features(
    index:SearchIndex,
    queries:Sequence[Query],
    encoder:EncoderFile,
    batch:int=64,
    network:Any=None, # of `read_network`, for who asks again and again; None: it is read where it is needed
    **machine, # as in `update_index`
)->np.ndarray: # (Q, D) float32
    "The features of queries: from the index, or from the encoder. `SearchError`."
    known = list(_known(index, queries))
    fresh = [q for q,x in zip(queries, known) if x is None]
    found = _encode_queries(index, fresh, encoder, batch, network, machine) if fresh else []
    for q,x in zip(fresh, found): _remember(index, q, x)
    made = iter(found)
    return np.stack([next(made) if x is None else x for x in known])

ASKED = 256 # queries from outside whose features are kept beside the index, the latest ones

def _asked_file(index:SearchIndex, q:Query)->Path:
    told = [str(q.path.resolve()), *_stamp(q.path), q.span, index.key, index.code]
    return index.folder/'asked'/f'{hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]}.npy'

def _known(index:SearchIndex, queries:Sequence[Query])->Iterator[np.ndarray|None]: # (D,)
    "The feature of each query that was encoded before: as a video of the folder, its copy or a query."
    at,alike = {n: i for i,n in enumerate(index.videos)},defaultdict[int,list[str]](list)
    for n,(size,_) in index.videos.items(): alike[size].append(n)
    for q in queries:
        now = _stamp(q.path)
        same = [q.name] if index.videos.get(q.name)==now else (n for n in alike[now[0]]
            if now[0] > 0 and index.videos[n]==_stamp(index.root/n) and _same_bytes(q.path, index.root/n))
        name = None if q.span else next(iter(same), None)
        yield _asked(index, q) if name is None else index.x[at[name]]

def _same_bytes(a:Path, b:Path)->bool:
    with suppress(OSError): return filecmp.cmp(a, b, shallow=False)
    return False

def _asked(index:SearchIndex, q:Query)->np.ndarray|None: # (D,); None: never, or what is kept is damaged
    try: x = np.load(_asked_file(index, q))
    except (OSError, ValueError, EOFError): return None
    return x if x.shape==index.mean.shape and np.isfinite(x).all() else None

def _remember(index:SearchIndex, q:Query, x:np.ndarray)->None:
    from .training.checkpoints import CheckpointError, write_whole
    with suppress(OSError, CheckpointError): # somebody else's index cannot be written, and answers as well
        file = write_whole(_asked_file(index, q), lambda f: np.save(f, x))
        old = sorted(file.parent.glob('*.npy'), key=lambda p: p.stat().st_mtime_ns)
        for p in old[:-ASKED]: p.unlink(missing_ok=True)

def _import_torch()->None: # makes a million objects and drops none: who looks for garbage finds nothing
    collects = gc.isenabled()
    gc.disable()
    try: importlib.import_module('vssl_nb.runs.own_videos')
    finally:
        if collects: gc.enable()

def _encode_queries(index:SearchIndex, queries:list[Query], encoder:EncoderFile, batch:int, network:Any,
    machine:dict)->list[np.ndarray]:
    _import_torch()
    from dataclasses import replace
    from .training.machine import Machine
    from .data.manifest import Manifest
    from .runs.own_videos import as_manifest
    table = as_manifest([q.path for q in queries])
    def check(q, why):
        if why: raise SearchError(f'{q.path}: {why}; search for another video')
    for q,r in zip(queries, table.rows): check(q, r.status!='ok' and r.status)
    spans = [span_frames(q, r.frames, r.fps) for q,r in zip(queries, table.rows)]
    class Spans(Manifest): # frame 0 of a row is the first of its span
        def decode(self, row, numbers, what='clips'):
            return super().decode(row, [int(i) + spans[row][0] for i in numbers], what)
    rows = [replace(r, frames=n) for r,(_,n) in zip(table.rows, spans)]
    network,code = network or read_network(encoder)
    if code != index.code: raise SearchError(f'{index.folder}: was made by other code of the encoder '
        f'{encoder.path}; delete this folder and search again')
    quiet = Machine(**machine | {'workers': 0, 'progress': False})
    found = [x for _,x in _features(network, index.key, Spans(table.path, rows), list(range(len(rows))),
        batch, quiet)]
    for q,x in zip(queries, found): check(q, x if isinstance(x, str) else '')
    return found # type: ignore[return-value]

@dataclass(frozen=True)
class Hit:
    "A video that was found."
    video:str # its name in the folder
    rank:int # 1 is the nearest
    similarity:float # cosine from the middle of the folder, -1 to 1

def find_nearest(
    index:SearchIndex,
    queries:Sequence[Query],
    x:np.ndarray, # (Q, D) their features
    k:int=10, # how many for each
    keep_self:bool=False, # may a video of the folder find itself?
)->list[list[Hit]]: # for each query, the nearest first
    "The nearest videos of each query."
    if k < 1: raise SearchError(f'k={k} finds nothing; take 1 or more')
    names = list(index.videos)
    at,found = {n: i for i,n in enumerate(names)},list[list[Hit]]()
    some = max(1, 2**26//len(names)) # queries at a time: 256 MiB of cosines
    for i in range(0, len(x), some):
        sim = centred_cosines(x[i:i+some], index.x, index.mean)
        for q,row in zip(queries[i:i+some], sim):
            best = nearest(row, k, None if keep_self else at.get(q.name))
            found.append([Hit(names[j], n, float(row[j])) for n,j in enumerate(best, 1)])
    return found

def _unquoted(text:str)->str: # what a terminal makes of a file that is dropped on it
    try: words = shlex.split(text)
    except ValueError: return text
    return words[0] if len(words)==1 else text

def answer_lines(
    lines:Iterable[str], # queries, one a line
    index:SearchIndex, encoder:EncoderFile,
    k:int=10, # how many for each
    keep_self:bool=False, # as in `find_nearest`
    batch:int=64, **machine, # as in `update_index`
)->Iterator[tuple[Query,list[Hit]]|SearchError]: # an answer, or what is wrong with the query
    "Answer one query after another; the network is read once, and the index stays as it is."
    network = read_network(encoder)
    for text in filter(None, map(str.strip, lines)):
        try:
            q = parse_query(text if Path(text).exists() else _unquoted(text), index.root, index.videos)
            x = query_features(index, [q], encoder, batch, network, **machine)
            yield q,find_nearest(index, [q], x, k, keep_self)[0]
        except SearchError as e: yield e

def as_rows(
    queries:Sequence[Query], found:list[list[Hit]],
)->list[dict[str,Any]]: # query, rank, similarity, video
    "One row for each video that was found."
    return [{'query': q.text, 'rank': h.rank, 'similarity': round(h.similarity, 6), 'video': h.video}
        for q,hits in zip(queries, found) for h in hits]

def as_text(queries:Sequence[Query], found:list[list[Hit]])->str:
    "The answers for a terminal."
    lines = []
    for q,hits in zip(queries, found):
        lines += [q.text, *(f'{h.rank:>4}  {h.similarity:6.3f}  {h.video}' for h in hits)]
    return '\n'.join(lines)

def _write_text(path:Path, text:str)->Path:
    from .training.checkpoints import write_whole
    return write_whole(path, lambda f: f.write(text.encode()))

def check_outputs(paths:Sequence[Path], known:Sequence[str]=('.csv', '.json', '.html')):
    "Refuse a file that cannot be written, before any work. `SearchError`, `PathError`."
    for path in paths:
        if path.suffix not in known: raise SearchError(f'{path}: must end in {", ".join(known)}')
        expect_writable(path)
        if path.suffix=='.parquet': arrow_modules(path)

def write_answers(
    path:Path, # .csv, .json or .html
    index:SearchIndex, queries:Sequence[Query], found:list[list[Hit]],
)->Path:
    "The answers as a file of that kind."
    check_outputs([path])
    if path.suffix=='.html': return write_wall(path, index, queries, found)
    rows = as_rows(queries, found)
    if path.suffix=='.json': return _write_text(path, json.dumps(rows, indent=1, ensure_ascii=False) + '\n')
    with tempfile.SpooledTemporaryFile(mode='w+', newline='', encoding='utf-8') as f:
        table = csv.DictWriter(f, ['query', 'rank', 'similarity', 'video'], lineterminator='\n')
        table.writeheader()
        table.writerows(rows)
        f.seek(0)
        return _write_text(path, f.read())

PREVIEW_SECONDS,PREVIEW_SIDE = 6.,160 # of a preview: seconds at most, px of the shorter side

def plays_in_browsers(
    path:Path, # a video file
)->bool:
    "Can browsers play this file as it is?"
    import av
    if path.suffix.lower() not in ('.mp4', '.m4v', '.webm', '.mov'): return False
    try:
        with av.open(str(path), metadata_errors='ignore') as f:
            c = f.streams.video[0].codec_context
            return c.name.removeprefix('lib').split('-')[0] in ('h264', 'vp8', 'vp9', 'av1', 'dav1d') \
                and c.pix_fmt in ('yuv420p', 'yuvj420p')
    except (av.FFmpegError, OSError, IndexError): return False

@lru_cache(256) # a page that grows with each answer shows most of them again
def preview(
    query:Query, # a file, and perhaps a span of it
)->bytes: # an H.264 .mp4
    "A small copy for a page. `VideoError`."
    import torch
    from .data.video import crop_resize, encode, iter_frames, probe
    p = probe(query.path)
    first,n = span_frames(query, p.frames, p.fps)
    fps,scale = p.fps or 25.,min(1., PREVIEW_SIDE/min(p.height, p.width))
    size = [max(2, 2*round(v*scale/2)) for v in (p.height, p.width)]
    some = itertools.islice(iter_frames(query.path), first, first + min(n, round(PREVIEW_SECONDS*fps)))
    x = torch.cat([crop_resize(torch.from_numpy(f)[None], size=size) for f in some])
    with tempfile.TemporaryDirectory() as place:
        return encode(Path(place)/'preview.mp4', x, fps=fps, crf=30).read_bytes()

WALL_STYLE = '''body{font:14px/1.4 system-ui,sans-serif;margin:16px;background:#fff;color:#111}
section{display:flex;flex-wrap:wrap;gap:10px;padding:12px 0;border-top:1px solid #ccc}
figure{margin:0;width:180px}video,.none{width:180px;height:135px;background:#222;object-fit:contain}
.none{color:#ccc;display:grid;place-items:center}.query video{outline:3px solid #d70}
figcaption{overflow-wrap:anywhere;font-size:12px}b{font-size:13px}'''
PLAY = '''const look = new IntersectionObserver(seen => seen.forEach(e =>
  e.isIntersecting ? e.target.play().catch(() => {}) : e.target.pause()));
document.querySelectorAll('video').forEach(v => { v.muted = true; look.observe(v);
  v.addEventListener('mouseenter', () => v.play().catch(() => {})); });'''

def _tile(page:Path, query:Query, title:str)->str:
    "One video of the wall."
    from .data.video import VideoError
    link = quote(os.path.relpath(query.path.absolute(), page.absolute().parent).replace(os.sep, '/'))
    source = link
    try:
        if query.span or not plays_in_browsers(query.path):
            source = 'data:video/mp4;base64,' + b64encode(preview(query)).decode()
        film = f'<video src="{source}" muted loop playsinline preload="metadata"></video>'
    except VideoError as e: film = f'<div class="none">{html.escape(e.reason)}</div>'
    return f'<figure>{film}<figcaption><b>{html.escape(title)}</b><br><a href="{link}">' \
        f'{html.escape(query.name or query.text)}</a></figcaption></figure>'

def write_wall(
    path:Path, # .html
    index:SearchIndex, queries:Sequence[Query], found:list[list[Hit]],
)->Path:
    "A page of queries and what was found for them, all playing."
    body = []
    for q,hits in zip(queries, found):
        span = f'{q.span[0]:g}–{q.span[1]:g} s' if q.span else 'query'
        tiles = [_tile(path, Query(h.video, index.root/h.video, None, h.video),
            f'{h.rank} · {h.similarity:.3f}') for h in hits]
        body.append(f'<section><div class="query">{_tile(path, q, span)}</div>{"".join(tiles)}</section>')
    name = '/'.join(Path(index.encoder).parts[-2:])
    told = f'Nearest of {len(index)} videos by the cosine from their mean; encoder {name}'
    return _write_text(path, '<!doctype html><html lang="en"><meta charset="utf-8"><title>Search</title>'
        f'<style>{WALL_STYLE}</style><h1>Search</h1><p>{html.escape(told)}</p>{"".join(body)}'
        f'<script>{PLAY}</script></html>\n')

HIDDEN = '.vssl-search' # in the folder of the videos

def choose_index(
    root:Path, # the folder of the videos
    encoder:Path|None=None, # run folder or encoder.safetensors; None: that of the index
    folder:Path|None=None, # of the index; None: one in the folder of the videos
    clips:int|None=None, # per video; None: as in the index, and 10 in a new one
)->tuple[Path,EncoderFile,int]: # folder of the index, encoder, clips
    "Which index is meant. `SearchError` where none can be."
    if not root.is_dir(): _entries(root, '') # says why not
    if encoder:
        e = describe_encoder(encoder)
        if not folder:
            key = json.dumps(index_key(e, clips or 10), sort_keys=True)
            view,sha = e.about['view'].replace(':', '-'),hashlib.sha256(key.encode()).hexdigest()
            folder = root/HIDDEN/f'{view}-{sha[:12]}'
        return folder,e,clips or read_about(folder).get('key', {}).get('clips', 10)
    kept = [folder] if folder else sorted(p.parent for p in (root/HIDDEN).glob('*/index.json'))
    told = {p: about for p in kept if (about := read_about(p))}
    if not told: raise SearchError(f'{root}: has no index yet, and to make one takes an encoder: name a run '
        f'with --encoder RUN. There are no pretrained ones; train one with `vssl-nb manifest {root}` and '
        f'`vssl-nb pretrain infonce-laptop-rgb --data {root}`')
    if len(told) > 1: raise SearchError(f'{root}: has {len(told)} indexes, of the encoders '
        f'{", ".join(a["encoder"] for a in told.values())}; name one with --encoder')
    [(place, about)] = told.items()
    if not Path(about['encoder']).is_file(): raise SearchError(f'{place}: was made with the encoder '
        f'{about["encoder"]}, which is gone; say where it is with --encoder')
    return place,describe_encoder(about['encoder']),clips or about['key']['clips']

TABLES = ('.npz', '.csv', '.parquet')

def check_tables(path:Path):
    "Refuse a table of features that cannot be written, before any work. `SearchError`."
    check_outputs([path], TABLES)

def write_video_features(
    path:Path, # .npz, .csv or .parquet
    video:Sequence[str], # (N,) names
    label:Sequence[str], # (N,) class names, or ''; not in .csv
    x:np.ndarray, # (N, D) float32
)->Path:
    "Features with the names of their videos. `SearchError`."
    from .training.checkpoints import write_whole
    check_tables(path)
    if path.suffix=='.npz': return write_whole(path, lambda f: np.savez(f, video=np.array(video),
        label=np.array(label), x=x))
    if path.suffix=='.csv':
        with tempfile.SpooledTemporaryFile(mode='w+', newline='', encoding='utf-8') as f:
            table = csv.writer(f, lineterminator='\n')
            table.writerow(['video', *map(str, range(x.shape[1]))])
            table.writerows([name, *map(str, row)] for name,row in zip(video, x))
            f.seek(0)
            return _write_text(path, f.read())
    arrow,parquet = arrow_modules(path)
    values = arrow.array(x.ravel())
    table = arrow.table({'video': list(video), 'label': list(label),
        'x': arrow.FixedSizeListArray.from_arrays(values, x.shape[1])})
    return write_whole(path, lambda f: parquet.write_table(table, f))

def arrow_modules(path:Path)->tuple[Any,Any]: # pyarrow and pyarrow.parquet
    "What writes .parquet. `SearchError` where it is not installed."
    try: return importlib.import_module('pyarrow'),importlib.import_module('pyarrow.parquet')
    except ImportError: raise SearchError(f'{path}: to write .parquet takes pyarrow (pip install pyarrow); '
        'or take .npz or .csv') from None
