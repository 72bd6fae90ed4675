"From what the owners of a dataset hand out (archives, lists, spreadsheets) to one manifest."

import csv
import io
import json
import logging
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from tqdm.auto import tqdm

from .archives import PREPARE_STATE, as_paths, extract_archive, is_archive
from .manifest import Manifest, ManifestError, Row, compile_source_pattern, find_videos, name_source
from .manifest import read, read_ucf101_lists, write, write_keyframes
from .folder import probe_all, read_probes
from .video import VideoError, transcode

class PrepareError(ValueError):
    "A list or a folder that a dataset cannot be prepared from, and what to do."

@dataclass
class Lists:
    "What the owners' lists say."
    entries:dict[str, dict[str, Any]] # key of a video -> the columns of its row: label, split1, …
    labels:dict[str, str]=field(default_factory=dict) # folded name of a folder -> class
    alias:dict[str, str]=field(default_factory=dict) # another key -> key
    order:list[str]=field(default_factory=list) # official order of the classes, where it is published

def _text(file:Path)->str:
    "The text of a list."
    try: return file.read_text(encoding='utf-8-sig')
    except (OSError, UnicodeDecodeError) as e:
        raise PrepareError(f'{file}: cannot be read as text '
            f'({getattr(e, "strerror", None) or "it is not UTF-8"})') from None

def _ucf101(files:list[Path], test:str)->Lists:
    "The six text files, and classInd.txt."
    return Lists(*read_ucf101_lists(files[0].parent))

def _hmdb51(files:list[Path], test:str)->Lists:
    "The official files, one per class and split; or one list per part, as for UCF101."
    if '_test_split' not in files[0].stem: return _ucf101(files, test)
    found = Lists({})
    for file in files:
        label,_,n = file.stem.rpartition('_test_split')
        found.labels[label.casefold()] = label
        for i,line in enumerate(_text(file).splitlines(), 1):
            if not line.strip(): continue
            name,_,part = line.strip().rpartition(' ')
            if part not in ('0', '1', '2') or not name:
                raise PrepareError(f"{file}: line {i} is '{line.strip()}', not a file name and 0, 1 or 2; "
                    "take the list from the owners")
            entry = found.entries.setdefault(f'{label}/{PurePosixPath(name.strip()).stem}'.casefold(), {})
            entry[f'split{n}'] = ('', 'train', 'test')[int(part)]
    return found

def _part(file:Path, name:str, test:str)->str: # train, test or empty
    "The part that the owners call `name`."
    name = 'val' if name.startswith('val') else name
    if name not in ('train', 'val', 'test'):
        raise PrepareError(f"{file}: holds the part '{name}', not train, val or test; fill its column split, "
            "or name the file after its part")
    return 'train' if name == 'train' else 'test' if name == test else ''

def _part_in_name(file:Path)->str: # the last that is named; empty where none is
    "The part that the name of a file says."
    return (re.findall('train|val|test', file.stem) or [''])[-1]

def _kinetics(files:list[Path], test:str)->Lists:
    "CSV files with youtube_id, time_start, time_end, and label and split where they are known."
    found = Lists({})
    for file in files:
        reader = csv.DictReader(io.StringIO(_text(file), newline=''))
        absent = [c for c in ('youtube_id', 'time_start', 'time_end') if c not in (reader.fieldnames or ())]
        if absent:
            raise PrepareError(f'{file}: has no column {", ".join(absent)}; the official lists begin with '
                'label,youtube_id,time_start,time_end,split')
        for line in reader:
            try:
                start,end = (int(float(line[name])) for name in ('time_start', 'time_end'))
                key = f"{line['youtube_id']}_{start:06d}_{end:06d}"
            except (TypeError, ValueError):
                raise PrepareError(f'{file}: line {reader.line_num} has no times in seconds; take the list '
                    'from the owners') from None
            entry = dict(label=line.get('label') or '',
                split1=_part(file, line.get('split') or _part_in_name(file), test))
            if found.entries.setdefault(key, entry)['split1'] != entry['split1']:
                raise PrepareError(f'{file}: line {reader.line_num}, {key}, is in another part too; name the '
                    'lists of one release only')
            found.alias.setdefault(line['youtube_id'], key)
    return found

def _ssv2(files:list[Path], test:str)->Lists:
    "JSON files with the videos of a part, and labels.json."
    found = Lists({})
    for file in files:
        try: data = json.loads(_text(file))
        except ValueError as e:
            if isinstance(e, PrepareError): raise
            raise PrepareError(f'{file}: is not JSON ({e}); download it again') from None
        if isinstance(data, dict):
            found.order = sorted(data, key=lambda name: int(data[name]))
            continue
        part = _part(file, _part_in_name(file) or file.stem, test)
        for i,video in enumerate(data):
            if not isinstance(video, dict) or 'id' not in video:
                raise PrepareError(f'{file}: its entry {i} has no id; take the list from the owners')
            entry = dict(label=re.sub(r'\[(.*?)\]', r'\1', video.get('template', '')), split1=part)
            if found.entries.setdefault(str(video['id']), entry)['split1'] != part:
                raise PrepareError(f"{file}: its entry {i}, {video['id']}, is in another part too; name the "
                    "lists of one release only")
    return found

def _hmdb51_source(video:str, label:str)->str:
    "The originating video of an HMDB51 clip, within its class."
    path = PurePosixPath(video)
    hit = re.fullmatch(rf'(.+)_{re.escape(label)}_[a-z]_[a-z]{{2}}_np\d+_[a-z]{{2}}_[a-z]{{3}}_\d+',
        path.stem, re.I)
    return f'{label}/{hit[1]}' if hit else str(path.with_suffix(''))

def _ucf101_source(video:str, label:str)->str: return name_source(video, label, None) # UCF101's groups
def _own_source(video:str, label:str)->str: return str(PurePosixPath(video).with_suffix(''))
def _stem(video:str)->str: return PurePosixPath(video).stem

def _class_and_name(video:str)->str: # class/name
    "The folder and the name of a video without its suffix, in lower case."
    path = PurePosixPath(video)
    return f'{path.parent.name}/{path.stem}'.casefold()

@dataclass(frozen=True)
class Dataset:
    "How one dataset is handed out."
    title:str # as people write it
    lists:tuple[str, ...] # patterns of the names of its lists; the first that is found is taken
    read:Callable[[list[Path], str], Lists]|None # list files, official part that becomes `test` -> lists
    key:Callable[[str], str] # path of a video -> its key in the lists
    source:Callable[[str, str], str] # path of a video, label -> source
    videos:int=0 # official number of videos; 0: no fixed number
    classes:int=0 # official number of classes
    splits:tuple[tuple[int, int], ...]=() # official (train, test) of each split
    halves:int=0 # released drop rule: up to so many half clips, and one frame, is too short; 0: no rule

PREPARED_DATASETS = {
    'ucf101': Dataset('UCF101', ('trainlist0*.txt',), _ucf101, _class_and_name, _ucf101_source, 13320, 101,
        ((9537, 3783), (9586, 3734), (9624, 3696)), 1),
    'hmdb51': Dataset('HMDB51', ('*_test_split[123].txt', 'trainlist0*.txt'), _hmdb51, _class_and_name,
        _hmdb51_source, 6766, 51, ((3570, 1530),)*3, 1),
    'kinetics400': Dataset('Kinetics-400', ('*.csv',), _kinetics, _stem, _own_source, 0, 400, (), 2),
    'ssv2': Dataset('Something-Something V2', ('*.json',), _ssv2, _stem, _own_source, 220847, 174),
    'folder': Dataset('your own folder', (), None, _class_and_name, _ucf101_source)}

def count_and_first(
    names:Sequence[str], # at least one
    file:Any='', # where all of them are listed
)->str: # a part of a sentence
    "How many there are, and the first of them."
    return f'{len(names):,}, such as {names[0]}' + (f'; all in {file}' if file else '')

@dataclass
class Prepared:
    "What came out, and everything that did not fit."
    dataset:Dataset # what it should be
    manifest:Manifest # what it is
    missing:list[str]=field(default_factory=list) # in the lists, not on disk
    extra:list[str]=field(default_factory=list) # on disk, not in the lists
    short:list[str]=field(default_factory=list) # damaged: less decodes than was stored
    notes:list[str]=field(default_factory=list) # other remarks

    def count(self,
        part:str, # train, test or empty
        split:int, # 1, 2 or 3
        label:str|None=None, # of this class; None: of all
        ok:bool=False, # the usable ones only
    )->int:
        "How many videos are in a part of a split."
        return sum(getattr(r, f'split{split}') == part and label in (None, r.label)
            and (r.status == 'ok' or not ok) for r in self.manifest.rows)

    def unofficial(self)->Iterator[str]:
        "Counts that differ from the official ones."
        n,classes,d = len(self.manifest),len(self.manifest.labels),self.dataset
        if d.videos and n != d.videos: yield f'{n:,} videos instead of {d.videos:,}'
        if d.classes and classes != d.classes: yield f'{classes} classes instead of {d.classes}'
        for i,(train,test) in enumerate(d.splits, 1):
            a,b = self.count('train', i), self.count('test', i)
            if (a, b) != (train, test): yield f'split {i} {a:,}/{b:,} instead of {train:,}/{test:,}'

    def __str__(self): return _summary(self)

def _summary(done:Prepared)->str:
    "What is printed at the end of a run."
    m,why,home = done.manifest,defaultdict(list),done.manifest.root/PREPARE_STATE
    lines = [f'{m.path}: {len(m):,} videos, {len(m.labels)} classes, {len(m.sources):,} sources']
    for i in (1, 2, 3):
        train,test,rest = (done.count(part, i, ok=True) for part in ('train', 'test', ''))
        if train or test: lines.append(f'split {i}: {train:,} train, {test:,} test, {rest:,} in neither')
    for r in m.rows: why[r.status].append(r.video)
    lines += [f'not used: {count_and_first(names)}: {status}' for status,names in why.items()
        if status != 'ok']
    if done.missing:
        lines.append(f'in the lists, not on disk: {count_and_first(done.missing, home/"missing.txt")}')
    if done.extra:
        lines.append(f'on disk, not in the lists: {count_and_first(done.extra, home/"extra.txt")}')
    if done.short:
        lines.append('damaged, used as far as they decode (fewer frames than declared, or broken '
            f'pictures): {count_and_first(done.short, home/"short.txt")}')
    if (other := list(done.unofficial())):
        lines.append(f'not the official {done.dataset.title}: {"; ".join(other)}')
    return '\n'.join(lines + done.notes)

def find_lists(
    kind:Dataset, # whose lists
    where:Sequence[Path], # files, or folders to look in
)->list[Path]: # at least one; PrepareError where there is none
    "The list files of a dataset: the files themselves, or those in and below a folder."
    for w in where:
        if not w.exists():
            raise PrepareError(f'{w}: there is no such file or folder of lists; check the path')
    for pattern in kind.lists:
        found = [f for w in where for f in ([w] if w.is_file() else sorted(w.rglob(pattern)))
            if PREPARE_STATE not in f.parts and f.name != 'manifest.csv']
        if found: return list(dict.fromkeys(found))
    raise PrepareError(f'{", ".join(map(str, where))}: holds no lists of {kind.title} '
        f'({" or ".join(kind.lists)}); name the file or folder that does')

def _named_archives(where:Sequence[Path], out:Path|None,
)->list[Path]: # none where the source is a folder of videos
    "The archives that were named, or lie in the folder that was."
    for w in where:
        if not w.exists(): raise PrepareError(f'{w}: there is no such file or folder; check the path')
    if any(w.is_file() for w in where) or len(where) > 1: return list(where)
    packed = sorted(f for f in where[0].iterdir() if is_archive(f.name) and f.is_file())
    if not packed or (out and where[0].resolve() == out.resolve()):
        return packed # what is extracted there so far are videos, too
    try: return [] if find_videos(where[0]) else packed
    except ManifestError: return packed

def link_into(
    folder:Path, # of videos, anywhere
    out:Path, # folder of the manifest, which names only what lies below it
)->Path: # the folder as seen from `out`
    "Link a folder into the folder of the manifest, unless it lies there. `PrepareError`."
    there,here = folder.resolve(),out.resolve()
    if there.is_relative_to(here): return out/there.relative_to(here)
    link = out/(there.name or 'videos')
    if not link.is_symlink() and not link.exists(): link.symlink_to(there, target_is_directory=True)
    if link.resolve() != there:
        raise PrepareError(f'{link}: is there already and is not {folder}; name another folder with --out')
    return link

@contextmanager
def lock_folder(
    out:Path, # folder of the dataset; it is made
)->Iterator[None]:
    "Let one run at a time work in a folder. `PrepareError` where another does, or it cannot be written to."
    try:
        (out/PREPARE_STATE).mkdir(parents=True, exist_ok=True)
        with open(out/PREPARE_STATE/'lock', 'w') as f:
            with suppress(ImportError):
                import fcntl # not on Windows
                try: fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise PrepareError(f'{out}: is being prepared by another run; wait for it') from None
            yield
    except OSError as e:
        raise PrepareError(f'{e.filename or out}: {e.strerror}; if the folder cannot be written to, '
            'name another with --out') from None

_log = logging.getLogger(__name__)

def _keep_keyframes(home:Path, rows:list[Row]):
    "The table of keyframes of what the manifest names."
    named = {row.video for row in rows}
    found = {video: (size, time, r['keyframes']) for (video,size,time),r in
        read_probes(home/PREPARE_STATE/'probes.jsonl').items() if video in named and 'keyframes' in r}
    if found: write_keyframes(home, found)

def _copies_folder(side): return f'copies_short{side}' # folder beside the videos

def _make_copy(home:Path, row:Row, side:int)->str: # path of the copy; empty where there is none
    "Make the copy of a video, unless it is there."
    if row.status!='ok': return ''
    out = home/_copies_folder(side)/PurePosixPath(row.video).with_suffix('.mp4')
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if not out.exists(): transcode(home/row.video, out, side)
    except VideoError as e:
        _log.warning('not copied: %s: %s', row.video, e.reason)
        return ''
    return out.relative_to(home).as_posix()

def _with_copy(row:Row, copy:str, found:dict)->Row: # what a probe found in the copy
    "The row with its copy in place of the video, if that is what it should be."
    if not copy: return row
    if found.get('frames')==row.frames:
        return replace(row, video=copy, **{k: found[k] for k in ('fps', 'width', 'height')})
    _log.warning('not copied: %s: its copy has %s frames and it has %s; remove %s', row.video,
        found.get('frames', 'no'), row.frames, copy)
    return row

def make_copies(
    home:Path, # folder of the dataset
    rows:list[Row], # of the manifest
    side:int, # px of the shorter side of a copy
    workers:int|None=None, # threads; None is one per core
    progress:bool=True, # show a bar
)->tuple[list[Row], str]: # rows that name the copies, and a line about them
    "Make a small copy of every usable video; go on where a killed run was."
    cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()
    with ThreadPoolExecutor(workers or cores) as pool:
        done = pool.map(lambda row: _make_copy(home, row, side), rows)
        try: paths = list(tqdm(done, total=len(rows), disable=not progress, desc='copies', unit='video'))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    (home/PREPARE_STATE).mkdir(exist_ok=True)
    copied = [p for p in paths if p] # known from then on
    found = dict(zip(copied, probe_all(home, copied, home/PREPARE_STATE/'probes.jsonl', workers, progress)))
    made = [_with_copy(row, path, found.get(path, {})) for row,path in zip(rows, paths)]
    pairs = [(home/a.video, home/b.video) for a,b in zip(rows, made) if a.video!=b.video]
    was,now = (sum(pair[i].stat().st_size for pair in pairs)/1e6 for i in (0, 1))
    return made, f'{len(pairs):,} copies of short side {side} px: {now:,.1f} MB instead of {was:,.1f} MB'

def _list_rows(kind:Dataset, folder:Path, prefix:str, lists:Lists, pattern:str|None,
)->tuple[list[Row], set[str], list[str]]: # rows, keys found, videos not in the lists
    "One row per video on disk, with what the lists say about it."
    rows,used,extra,catch = [],set[str](),[],compile_source_pattern(pattern)
    for video in find_videos(folder):
        if re.fullmatch(_copies_folder(r'\d+'), PurePosixPath(prefix, video).parts[0]):
            continue # made by this program
        key = lists.alias.get(kind.key(video), kind.key(video))
        entry,where = lists.entries.get(key, {}),PurePosixPath(video).parent.name
        label = lists.labels.get(where.casefold(), where)
        if kind.source is _own_source: label = entry.get('label', '')
        source = name_source(video, label, catch) if catch else kind.source(video, label)
        rows.append(Row(**{**entry, 'video': str(PurePosixPath(prefix, video)), 'label': label,
            'source': source}))
        if key in lists.entries: used.add(key)
        elif kind.read: extra.append(video)
    return rows, used, extra

def per_class(
    manifest:Manifest, # of any dataset
)->str: # a line per class: videos, and train/test of each split
    "How many videos every class has."
    table = Counter((r.label, i, getattr(r, f'split{i}')) for r in manifest.rows for i in (1, 2, 3))
    total = Counter(r.label for r in manifest.rows)
    def parts(label):
        return ', '.join(f"{table[label, i, 'train']:,}/{table[label, i, 'test']:,}" for i in (1, 2, 3))
    return '\n'.join(f'{label or "(unlabelled)"}: {n:,} videos; train/test {parts(label)}'
        for label,n in sorted(total.items()))

def _released_rule(kind:Dataset, row:Row, length:int, stride:int)->Row:
    "The drop rule of the released CoCLR code (dataset/lmdb_dataset.py, lines 103 and 594)."
    most = (length//2 if kind.halves == 1 else length)*stride + 1
    if row.status != 'ok' or row.frames > most: return row
    return replace(row, status=f'dropped by the released rule: has at most {most} frames')

def _write_manifest(kind:Dataset, home:Path, folder:Path, official:Lists, pattern:str|None,
    drop:Callable[[Row], Row], side:int|None, workers:int|None, progress:bool)->Prepared:
    "From a folder of videos and lists to the manifest."
    rows,used,extra = _list_rows(kind, folder, '' if folder == home else folder.relative_to(home).as_posix(),
        official, pattern)
    missing = sorted(set(official.entries)-used)
    if kind.read and not used:
        raise PrepareError(f'{folder}: holds none of the {len(missing):,} videos of the '
            f'lists{f", such as {missing[0]}" if missing else ""}; is it the right folder, and are these '
            'its lists?')
    found = probe_all(home, [r.video for r in rows], home/PREPARE_STATE/'probes.jsonl', workers, progress)
    rows = [drop(replace(row, **{n: p[n] for n in ('frames', 'fps', 'width', 'height', 'status') if n in p}))
        for row,p in zip(rows, found)]
    remarks = []
    if side: rows,remark = make_copies(home, rows, side, workers, progress); remarks = [remark]
    with suppress(ManifestError): # optical flow is stored later, by another program
        flows = {r.video: r.flow for r in read(home/'manifest.csv').rows}
        rows = [replace(row, flow=flows.get(row.video, '')) for row in rows]
    # a declared count alone is no sign: in healthy AVIs it is often off
    short = [p['video'] for p in found if p.get('damage')]
    _keep_keyframes(home, rows)
    result = Prepared(kind, read(write(home/'manifest.csv', rows)), missing, extra, short, remarks)
    if kind.read and (twice := len(rows)-len(extra)-len(used)):
        result.notes.append(f'{twice:,} videos of the lists are there a second time, under another name or '
            'in another folder; each has its row')
    if sorted(official.order) != official.order:
        result.notes.append('the official numbers of the classes do not follow the alphabet; those of the '
            'manifest do')
    for name in ('missing', 'extra', 'short'):
        (home/PREPARE_STATE/f'{name}.txt').write_text(''.join(f'{v}\n' for v in getattr(result, name)),
            encoding='utf-8')
    return result

def _checked_request(dataset:str, source:Any, drop:str, test:str,
    **numbers:int|None)->tuple[Dataset, list[Path]]:
    "The dataset and the paths that were asked for, after a check of everything else."
    if dataset not in PREPARED_DATASETS:
        raise PrepareError(f"there is no dataset '{dataset}'; take {', '.join(PREPARED_DATASETS)}")
    kind,where = PREPARED_DATASETS[dataset],as_paths(source)
    if not where: raise PrepareError('no archive and no folder is named; name what the videos are in')
    if drop not in ('', 'released') or drop and not kind.halves:
        raise PrepareError(f"drop is '{drop}', which {kind.title} has no rule for; leave it "
            f"out{', or take released'*bool(kind.halves)}")
    if test not in ('val', 'test'): raise PrepareError(f"test is '{test}'; take val or test")
    for name,value in numbers.items():
        if value is not None and value < 1: raise PrepareError(f'{name} is {value}; take at least 1')
    return kind, where

def prepare_dataset(
    dataset:str, # ucf101, hmdb51, kinetics400, ssv2 or folder
    source:Any, # folder of videos; or an archive, several, or a folder of archives
    lists:Any=None, # official lists: files, folders or an archive; None looks beside the videos
    out:str|os.PathLike|None=None, # folder of the dataset; None writes beside the videos
    drop:str='', # '' keeps all; released: the rule of the released CoCLR code
    length:int=32, # frames of a clip, for the rule
    stride:int=1, # of a clip, for the rule
    test:str='val', # official part that becomes `test`, where there are two: val or test
    source_pattern:str|None=None, # regular expression whose one group finds the source in the path
    transcode:int|None=None, # shorter side of copies, px, which the manifest then names; None: the originals
    workers:int|None=None, # threads; None is one per core
    progress:bool=True, # show bars
)->Prepared: # its text is the summary
    "Make the manifest; again gives the same. `PrepareError`, `ArchiveError`, `ManifestError`."
    kind,where = _checked_request(dataset, source, drop, test, length=length, stride=stride,
        workers=workers, transcode=transcode)
    packed = _named_archives(where, Path(out) if out is not None else None)
    if packed and out is None:
        raise PrepareError(f'{packed[0]}: is an archive; name the folder to extract it to with --out')
    home = Path(out) if out is not None else where[0]
    if (home/'manifest.csv').exists() and not (home/PREPARE_STATE).exists():
        raise PrepareError(f'{home/"manifest.csv"}: is there already, and was not written by this program; '
            'move it away, or name another folder with --out')
    with lock_folder(home):
        if packed: extract_archive(packed, home, progress)
        folder = home if packed else link_into(where[0], home)
        given = [home] if lists is None else as_paths(lists)
        if lists is None and not packed and folder != home: given = [folder.resolve()]
        for i,p in enumerate(given):
            if p.is_file() and is_archive(p.name):
                given[i] = home/'lists'
                extract_archive(p, home/'lists', progress)
        official = kind.read(find_lists(kind, given), test) if kind.read else Lists({})
        rule = partial(_released_rule, kind, length=length, stride=stride) if drop else lambda row: row
        return _write_manifest(kind, home, folder, official, source_pattern, rule, transcode, workers,
            progress)
