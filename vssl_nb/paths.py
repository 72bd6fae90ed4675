"What is wrong with a file or a folder that was named, said before anything slow begins."

import errno
import os
import re
from difflib import get_close_matches
from pathlib import Path

class PathError(ValueError):
    "A file or folder that is not what it is to be; the message names it and says what to do."

def nowhere(
    path, # that does not exist
    remedy:str, # what to do, after a semicolon
)->PathError: # to be raised
    "A sentence about a path that leads nowhere: how far it leads, and what lies there."
    path = Path(path)
    found = next((p for p in path.parents if p.exists()), Path('.'))
    lost = path.relative_to(found).parts[0] if path.is_relative_to(found) else path.parts[0]
    try: names = os.listdir(found) if found.is_dir() else []
    except OSError: names = []
    near = get_close_matches(lost, sorted(names), 1)
    hint = f' (did you mean {str(found/near[0])!r}?)' if near else ''
    seen = '' if path.is_absolute() else f', seen from {Path.cwd()}'
    return PathError(f'{path}: there is no such file or folder{seen}{hint}; {remedy}')

VIDEO_SUFFIXES = ('.avi', '.mp4', '.m4v', '.mov', '.mkv', '.webm', '.mpg', '.mpeg', '.wmv', '.flv', '.3gp',
    '.ogv', '.ts', '.m2ts')

def expect_manifest(
    data, # manifest.csv, a folder, or 'package.module:name'
)->None:
    "Refuse what cannot be the data of a training. `PathError`."
    path = Path(data)
    if not path.exists() and re.fullmatch(r'[^\W\d][\w.]*:[^\W\d][\w.]*', os.fspath(data)): return
    if not path.exists(): raise nowhere(path, 'name the manifest.csv or the folder that holds it '
        '(`vssl-nb manifest FOLDER` makes one)')
    if path.is_file() and path.suffix.lower() in VIDEO_SUFFIXES: raise PathError(f'{path}: is a video; name '
        'the folder that it lies in, or its manifest.csv')
    if not os.access(path, os.R_OK): raise PathError(f'{path}: you may not read this; ask its owner, or '
        'take a copy')

def expect_run(
    folder, # a run folder
)->None:
    "Refuse what is no run folder. `PathError`."
    path = Path(folder)
    if not path.exists(): raise nowhere(path, 'name a run folder, such as runs/mine')
    if path.is_file(): raise PathError(f'{path}: is a file; name the run folder that holds it')
    if not os.access(path, os.R_OK | os.X_OK): raise PathError(f'{path}: you may not read this folder; ask '
        'its owner, or take a copy')
    if (path/'recipe.json').exists(): return
    runs = sorted(p.parent.name for p in path.glob('*/recipe.json'))[:4]
    raise PathError(f'{path/"recipe.json"}: there is no such file, so {path} is not a run; '
        + (f'it holds runs: name one, such as {path/runs[0]}' if runs
            else 'name a run folder, such as runs/mine'))

def _may_write(path:Path, option:str)->None: # into the nearest folder that exists
    where = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not where.is_dir():
        raise PathError(f'{path}: {where} is a file, not a folder; choose another {option}')
    if os.access(where, os.W_OK | os.X_OK): return
    mine, closed = '' if where==path else f' ({where})', os.statvfs(where).f_flag & os.ST_RDONLY
    why = os.strerror(errno.EROFS) if closed else 'you may not write to this folder'
    raise PathError(f'{path}: cannot be written, {why}{mine}; choose another {option}')

def expect_writable(
    file, # to be written when the work is done
    option:str='--out', # what chooses it
)->None:
    "Refuse a file that could not be written, before the work that ends in it. `PathError`."
    path = Path(file)
    if path.is_dir(): raise PathError(f'{path}: is a folder; name a file with {option}')
    _may_write(path.absolute().parent if path.parent==Path('.') else path.parent, option)

def expect_writable_folder(
    folder, # that will be written into; it need not exist
    option:str='--out', # what chooses it
)->None:
    "The same for a folder. `PathError`."
    path = Path(folder)
    if path.exists() and not path.is_dir(): raise PathError(f'{path}: is a file; choose another {option}')
    _may_write(path, option)

def write_remedy(
    e:BaseException, # what a write ended with
)->str: # the beginning of a sentence
    "What helps where something could not be written."
    number = getattr(e, 'errno', None)
    if number in (errno.EACCES, errno.EPERM, errno.EROFS): return 'Get the right to write there'
    if number in (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG): return 'Take another name'
    return 'Free some space'
