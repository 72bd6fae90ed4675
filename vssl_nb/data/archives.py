"Downloads that arrive whole, and archives that write nowhere but where they are told to."

import bz2
import errno
import gzip
import hashlib
import http.client
import io
import json
import lzma
import os
import re
import shutil
import stat
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from tqdm.auto import tqdm

class ArchiveError(ValueError):
    "An archive or a download that cannot be used, and what to do."

PREPARE_STATE = '.prepare' # folder for what a killed run needs to go on: marks, parts, probes
ARCHIVE_SUFFIXES = ('.zip', '.rar', '.tar', '.tar.gz', '.tgz', '.tar.bz2', '.tbz2', '.tar.xz', '.txz')
_PIECE = re.compile(r'(20bn-.+)-(\d\d)') # 20bn-something-something-v2-00
Member = tuple[str, int, Callable[[], IO[bytes]]] # name, bytes, open

def _piece(name:str)->re.Match|None: return _PIECE.fullmatch(PurePosixPath(name).name)

def is_archive(
    name:str, # name or path of a file
)->bool: # it says so itself: the file is not opened
    "Is this an archive that `extract_archive` takes, or a piece of one, by its name?"
    return name.lower().endswith(ARCHIVE_SUFFIXES) or _piece(name) is not None

def as_paths(
    given, # a path, or several
)->list[Path]: # as a list in either case
    "One path or several as a list of paths."
    return [Path(g) for g in ([given] if isinstance(given, (str, os.PathLike)) else given)]

def _safe_path(archive:str, name:str, seen:set[str])->PurePosixPath:
    "The place of a member below the target. `ArchiveError` where it leaves it, or is taken."
    path = PurePosixPath(name.replace('\\', '/'))
    if (path.is_absolute() or '..' in path.parts or not path.parts or '\0' in name
        or any(re.match('[A-Za-z]:', p) for p in path.parts)):
        raise ArchiveError(f'{archive}: its member {name!r} leads out of the target folder; nothing like '
            'that belongs in a dataset, take the archive from its owners')
    if path.parts[0].casefold() == PREPARE_STATE:
        raise ArchiveError(f'{archive}: its member {name!r} lies in {PREPARE_STATE}, which is kept for the '
            'state of this program; rename it')
    if str(path) in seen:
        raise ArchiveError(f'{archive}: holds {str(path)!r} twice; take the archive from its owners, '
            'or extract the right one by hand')
    seen.add(str(path))
    return path

def _not_a_file(archive:str, name:str)->ArchiveError:
    "The refusal of a link or a device."
    return ArchiveError(f'{archive}: its member {name!r} is a link or a device, which is never extracted; '
        'take the archive from its owners')

class _JoinedFiles(io.RawIOBase):
    "Several files read as one: an archive in pieces."
    def __init__(self, paths:Sequence[Path]):
        self.left,self.file = list(paths[1:]),open(paths[0], 'rb', buffering=0)
    def readable(self): return True
    def readinto(self, b):
        while True:
            n = self.file.readinto(b)
            if n or not self.left: return n
            self.file.close()
            self.file = open(self.left.pop(0), 'rb', buffering=0)
    def close(self):
        self.file.close()
        super().close()

class _Header(tarfile.TarInfo):
    @classmethod
    def frombuf(cls, *args):
        try: return super().frombuf(*args)
        except tarfile.EOFHeaderError: raise # type: ignore[attr-defined]
        except tarfile.HeaderError as e: # `tarfile` would take it for the end
            raise (tarfile.ReadError if 'checksum' in str(e) or 'invalid' in str(e) else EOFError)(
                str(e)) from None

def _tar(archive:str, stream)->Iterator[Member]:
    "The files of an uncompressed tar, in order."
    with tarfile.open(fileobj=stream, mode='r|', tarinfo=_Header) as tar:
        for m in tar:
            if m.isdir(): continue
            if not m.isreg() or m.issparse(): raise _not_a_file(archive, m.name)
            yield m.name, m.size, partial(tar.extractfile, m) # type: ignore[misc]
    while stream.read(1 << 20): pass # the checksum of the compression comes last

def _zip(archive:str, path:Path)->Iterator[Member]:
    "The files of a zip; all names are checked before the first is written."
    with zipfile.ZipFile(path) as z:
        files,seen = [i for i in z.infolist() if not i.is_dir()], set[str]()
        if min((i.header_offset for i in z.infolist()), default=0):
            raise EOFError('its table of contents is missing') # a zip in it has one, which Python would take
        for i in files:
            if stat.S_IFMT(i.external_attr >> 16) not in (0, stat.S_IFREG):
                raise _not_a_file(archive, i.filename)
            _safe_path(archive, i.filename, seen)
        for i in files: yield i.filename, i.file_size, partial(z.open, i) # type: ignore[misc]

RAR = { # listing, stream; in the order in which they are tried
    'unar': (['lsar', '-j'], ['unar', '-q', '-o', '-']),
    'unrar': (['unrar', 'lt', '-p-'], ['unrar', 'p', '-inul', '-p-']),
    '7z': (['7z', 'l', '-slt', '-p'], ['7z', 'x', '-so', '-p']),
    '7zz': (['7zz', 'l', '-slt', '-p'], ['7zz', 'x', '-so', '-p']),
    'bsdtar': ([], ['bsdtar', '-cf', '-', '--format', 'pax'])} # last, because it compares no checksums

def _contents(tool:str, text:str,
)->list[tuple[str, int, int|None, str]]: # name, bytes, CRC-32, kind: file, folder or link
    "The table of contents as a tool prints it."
    if tool == 'unar':
        kind = lambda m: 'folder' if m.get('XADIsDirectory') else 'link' if m.get('XADIsLink') else 'file'
        return [(m['XADFileName'], m.get('XADFileSize', 0), m.get('RARCRC32'), kind(m))
            for m in json.loads(text)['lsarContents']]
    found:list[dict[str, str]] = []
    for line in text.partition('----------\n')[2 if tool != 'unrar' else 0].splitlines():
        key,_,value = line.partition(':' if tool == 'unrar' else ' =')
        if key.strip() in ('Name', 'Path'): found.append({})
        if found: found[-1].setdefault(key.strip(), value.strip())
    def what(m):
        if m.get('Type') == 'Directory' or m.get('Folder') == '+': return 'folder'
        return 'file' if m.get('Type', 'File') == 'File' and not m.get('Symbolic Link') else 'link'
    def crc(m):
        digits = m.get('CRC32') or m.get('CRC') or ''
        return int(digits, 16) if re.fullmatch('[0-9A-Fa-f]{8}', digits) else None
    return [(m.get('Name') or m.get('Path') or '', int(m.get('Size') or 0), crc(m), what(m)) for m in found]

@contextmanager
def _pipe(archive:str, command:list[str])->Iterator[IO[bytes]]:
    "What a tool writes to its output; it never outlives this block."
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL) as tool:
        assert tool.stdout
        try:
            yield tool.stdout
            tool.stdout.read()
            if tool.wait(): raise EOFError(f'{command[0]} says so')
        finally: tool.kill()

class _Span(io.RawIOBase):
    "The next `size` bytes of a stream, with their checksum."
    def __init__(self, stream, name:str, size:int, should:int|None):
        self.stream,self.name,self.left,self.should,self.crc = stream,name,size,should,0
    def begin(self): return self
    def readable(self): return True
    def read(self, n=-1):
        data = self.stream.read(min(self.left, n) if n >= 0 else self.left) if self.left else b''
        if self.left and not data: raise EOFError('it ends early')
        self.left -= len(data)
        self.crc = zlib.crc32(data, self.crc)
        if not self.left and self.should not in (None, self.crc):
            raise EOFError(f'the checksum of {self.name} is wrong')
        return data

def _rar(archive:str, path:Path)->Iterator[Member]:
    "The files of a rar, through the first tool that can list it."
    tools = [tool for tool,(listing,_) in RAR.items()
        if all(shutil.which(t) for t in (listing[:1] or [tool])+[tool])]
    if not tools:
        raise ArchiveError(f'{archive}: is a rar, which needs one of the programs unar, bsdtar, unrar or 7z; '
            'on Debian and Ubuntu: apt install unar')
    for tool in tools:
        listing,stream = RAR[tool]
        if tool == 'bsdtar':
            with _pipe(archive, [*stream, f'@{path.absolute()}']) as pipe: yield from _tar(archive, pipe)
            return
        done = subprocess.run([*listing, str(path.absolute())], stdin=subprocess.DEVNULL, capture_output=True)
        if (done.returncode == 0 and (table := _contents(tool,
            done.stdout.decode('utf-8', 'surrogateescape')))):
            break
    else: raise EOFError(f'{" and ".join(tools)} cannot list it')
    seen = set[str]()
    for name,_,_,kind in table:
        if kind == 'link': raise _not_a_file(archive, name)
        if kind == 'file': _safe_path(archive, name, seen)
    with _pipe(archive, [*stream, str(path.absolute())]) as pipe:
        for name,size,crc,kind in table:
            if kind == 'folder': continue
            span = _Span(pipe, name, size, crc)
            yield name, size, span.begin
            while span.read(1 << 20): pass

def _members(archive:str, paths:Sequence[Path])->Generator[Member, None, None]:
    "The files in an archive, in one piece or several."
    with io.BufferedReader(_JoinedFiles(paths), 1 << 20) as f:
        head = f.peek(512)[:512]
        if len(paths) == 1 and head[:4] == b'Rar!': yield from _rar(archive, paths[0])
        elif len(paths) == 1 and head[:4] in (b'PK\3\4', b'PK\5\6'): yield from _zip(archive, paths[0])
        elif head[:2] == b'\x1f\x8b': yield from _tar(archive, gzip.GzipFile(fileobj=f))
        elif head[:3] == b'BZh': yield from _tar(archive, bz2.BZ2File(f))
        elif head[:6] == b'\xfd7zXZ\0': yield from _tar(archive, lzma.LZMAFile(f))
        elif head[257:262] == b'ustar': yield from _tar(archive, f)
        else:
            raise ArchiveError(f'{archive}: is no zip, rar or tar '
                f'({f"it starts with {head[:12]!r}" if head else "it is empty"}); download it again, '
                'and look into it if it is small: servers send pages of text for errors')

@contextmanager
def _as_archive_error(archive:str, out:Path, files:dict[str, int]):
    "Turn whatever a reader of archives raises into an `ArchiveError`."
    try: yield
    except ArchiveError: raise
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, OSError, RuntimeError,
        NotImplementedError) as e:
        if isinstance(e, OSError) and e.errno:
            raise ArchiveError(f'{archive}: {e.filename or "extraction"}: {e.strerror}') from None
        early = (isinstance(e, (EOFError, zipfile.BadZipFile, RuntimeError, NotImplementedError))
            or 'end of data' in str(e))
        for name in () if early else files: (out/name).unlink(missing_ok=True)
        raise ArchiveError(f'{archive}: ends early or is damaged ({" ".join(str(e).split())}); download it '
            f'again and run this again, what came out of it {"stays" if early else "is removed"}') from None

def _has_size(file:Path, size:int)->bool:
    "Is it an ordinary file of that size?"
    with suppress(OSError): return stat.S_ISREG(file.lstat().st_mode) and file.lstat().st_size == size
    return False

def _write_member(archive:str, out:Path, path:PurePosixPath, size:int, source:Callable[[], IO[bytes]],
    part:Path):
    "Write one member to its place, whole or not at all; no link on the way is followed."
    target = out.joinpath(*path.parts)
    for parent in path.parents[:-1]:
        if (out/parent).is_symlink():
            raise ArchiveError(f'{out/parent}: is a link, which extraction does not follow; name another '
                'folder, or remove it')
    if _has_size(target, size): return
    target.parent.mkdir(parents=True, exist_ok=True)
    part.unlink(missing_ok=True)
    with source() as f, open(part, 'xb') as g: shutil.copyfileobj(f, g, 1 << 20)
    if part.stat().st_size != size:
        raise EOFError(f'{path} has {part.stat().st_size:,} bytes instead of {size:,}')
    os.replace(part, target)

def _mark_path(out:Path, title:str)->Path:
    "Where the list of what came out of an archive is kept."
    name = hashlib.sha256(title.encode(errors='surrogateescape')).hexdigest()[:24]
    return out/PREPARE_STATE/'done'/f'{name}.json'

def _extracted_before(out:Path, title:str, size:int,
)->dict[str, int]|None: # file -> bytes; None where something is missing
    "What an archive put there, if all of it came out and is still there."
    with suppress(OSError, ValueError, KeyError, TypeError):
        mark = json.loads(_mark_path(out, title).read_text())
        if mark['size'] == size and all(_has_size(out/name, n) for name,n in mark['files'].items()):
            return mark['files']
    return None

def _write_mark(out:Path, title:str, size:int, files:dict[str, int])->dict[str, int]: # the files
    "Note what came out of an archive, now that all of it is there."
    mark = _mark_path(out, title)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.with_suffix('.part').write_text(json.dumps(dict(archive=title, size=size, files=files)))
    os.replace(mark.with_suffix('.part'), mark)
    return files

def _unpack(out:Path, title:str, paths:Sequence[Path], base:PurePosixPath, seen:set[str], pieces:dict, bar,
)->dict[str, int]: # file -> bytes
    "Extract one archive and those in it."
    files = dict[str, int]()
    with _as_archive_error(title, out, files), closing(_members(title, paths)) as members:
        for name,n,source in members:
            path,inner = _safe_path(title, str(base/name.replace('\\', '/')), seen),f'{title}/{name}'
            if not is_archive(name):
                _write_member(title, out, path, n, source, out/PREPARE_STATE/'part')
                files[str(path)] = n
                bar.update()
                continue
            if (known := _extracted_before(out, inner, n)) is None:
                nest = PurePosixPath(PREPARE_STATE, 'nested',
                    _mark_path(out, inner).stem+PurePosixPath(name).suffix)
                _write_member(title, out, nest, n, source, out/PREPARE_STATE/'part')
                if (piece := _piece(name)):
                    pieces[str(base/piece[1])][int(piece[2])] = out/nest
                    continue
                try: known = _unpack(out, inner, [out/nest], path.parent, seen, pieces, bar)
                finally: (out/nest).unlink()
            else: seen |= known.keys()
            files |= known
    return _write_mark(out, title, sum(p.stat().st_size for p in paths), files)

def extract_archive(
    archives:Any, # path of a zip, tar or rar, or several, or all pieces of one
    out:str|os.PathLike, # folder to extract into
    progress:bool=True, # show a bar
)->list[str]: # every file that came out, relative to `out`, sorted
    "Extract archives and the archives in them, safely; go on where a killed run was. `ArchiveError`."
    paths,out = as_paths(archives),Path(out)
    for p in paths:
        if not p.is_file(): raise ArchiveError(f'{p}: there is no such archive; check the path')
    title,size = ' + '.join(sorted(p.name for p in paths)),sum(p.stat().st_size for p in paths)
    if (known := _extracted_before(out, title, size)) is not None: return sorted(known)
    files,seen,pieces = dict[str, int](),set[str](),defaultdict[str, dict[int, Path]](dict)
    (out/PREPARE_STATE).mkdir(parents=True, exist_ok=True)
    with tqdm(disable=not progress, desc='extracted', unit='file') as bar:
        for p in paths:
            if (piece := _piece(p.name)): pieces[piece[1]][int(piece[2])] = p
            else: files |= _unpack(out, p.name, [p], PurePosixPath(), seen, pieces, bar)
        for name,parts in list(pieces.items()):
            absent = [f'{name}-{i:02}' for i in range(max(parts)) if i not in parts]
            if absent:
                raise ArchiveError(f'{name}: its pieces {", ".join(absent)} are not there; name them all, '
                    'or the folder that holds them')
            files |= _unpack(out, name, [parts[i] for i in sorted(parts)], PurePosixPath(name).parent, seen,
                pieces, bar)
    shutil.rmtree(out/PREPARE_STATE/'nested', ignore_errors=True)
    return sorted(_write_mark(out, title, size, files))

def _sums(file:Path, **want:str)->str: # empty where all agree
    "Compare the checksums of a file with those that it should have."
    for kind,should in want.items():
        if not should: continue
        h = hashlib.new(kind)
        with open(file, 'rb') as f:
            while data := f.read(1 << 20): h.update(data)
        if h.hexdigest() != should.lower():
            return f'its {kind} is {h.hexdigest()} instead of {should.lower()}'
    return ''

def _fetch(url:str, part:Path, resume:bool, bar)->str: # empty where all of it came, else why not
    "One attempt to get the rest of a file. `HTTPError` where the server refuses."
    tag,have = part.with_suffix('.tag'),part.stat().st_size if part.exists() else 0
    known = tag.read_text() if tag.exists() else ''
    if not (known or resume): have = 0
    headers = ({'Accept-Encoding': 'identity'} | ({'Range': f'bytes={have}-'} if have else {})
        | ({'If-Range': known} if have and known else {}))
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as r:
            span = (re.fullmatch(r'bytes (\d+)-\d+/(\d+)', r.headers.get('Content-Range', '')) if r.status
                == 206 else None)
            if not span or int(span[1]) != have: have = 0
            if r.status == 206 and not span: return 'the server sent a part without saying which'
            length = r.headers.get('Content-Length')
            total = int(span[2]) if span else int(length) if length else None
            name = r.headers.get('ETag') or r.headers.get('Last-Modified') or ''
            tag.write_text('' if name.startswith('W/') else name) # a weak tag does not promise the same bytes
            bar.total,bar.n = total,have
            with open(part, 'ab' if have else 'wb') as f:
                while data := r.read(1 << 16): bar.update(f.write(data))
    except urllib.error.HTTPError as e:
        if e.code != 416: raise
        if have and e.headers.get('Content-Range') == f'bytes */{have}': return '' # all of it is here
        part.unlink()
        return 'the file there is shorter now'
    except (OSError, http.client.HTTPException) as e:
        if getattr(e, 'errno', None) in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise ArchiveError(f'{part}: cannot be written ({getattr(e, "strerror", e)}); make room, or name '
                'another folder') from None
        return str(getattr(e, 'reason', e)) or type(e).__name__
    return '' if total in (None, part.stat().st_size) else f'{part.stat().st_size:,} of {total:,} bytes came'

def _file_name(url:str, sha256:str, md5:str)->str:
    "The name of the file that an address leads to, after a check of what was asked for."
    name = PurePosixPath(unquote(urlsplit(url).path)).name
    if urlsplit(url).scheme not in ('http', 'https') or not name or name.startswith('.') or '\0' in name:
        raise ArchiveError(f'{url}: is not the http or https address of a file')
    for kind,digits,n in (('sha256', sha256, 64), ('md5', md5, 32)):
        if digits and not re.fullmatch(f'[0-9a-fA-F]{{{n}}}', digits):
            raise ArchiveError(f"{kind} '{digits}' is not {n} hexadecimal digits")
    return name

def _attempt(url:str, part:Path, sha256:str, md5:str, bar)->str: # empty where all of it is here, else why not
    "Get the rest of a file and compare its checksums."
    try: why = _fetch(url, part, bool(sha256 or md5), bar)
    except urllib.error.HTTPError as e:
        if e.code < 500:
            raise ArchiveError(f'{url}: the server says {e.code} {e.reason}; check the address, '
                'or download it with a browser') from None
        why = f'the server says {e.code} {e.reason}'
    return why or _sums(part, sha256=sha256, md5=md5)

def download(
    url:str, # http or https address of a file
    folder:str|os.PathLike, # to put it into
    sha256:str='', # checksum in hexadecimal digits; empty: not checked
    md5:str='', # the same
    tries:int=5, # attempts without a further byte before giving up
    pause:float=2., # s before the second attempt, doubled for each further one
    progress:bool=True, # show a bar
)->Path: # the file
    "Download a file, whole or not at all; go on where it broke off. `ArchiveError`."
    name,folder = _file_name(url, sha256, md5),Path(folder)
    target,part,failed,again = folder/name,folder/f'.{name}.part',0,True
    folder.mkdir(parents=True, exist_ok=True)
    if target.exists():
        if (wrong := _sums(target, sha256=sha256, md5=md5)):
            raise ArchiveError(f'{target}: is there already, but {wrong}; remove it to download it again')
        return target
    with tqdm(disable=not progress, desc=name, unit='B', unit_scale=True) as bar:
        while True:
            before = part.stat().st_size if part.exists() else 0
            why = _attempt(url, part, sha256, md5, bar)
            if not why: break
            if not why.startswith('its '):
                failed = 0 if part.exists() and part.stat().st_size > before else failed+1
            elif again:
                again = False
                part.unlink()
            else:
                part.unlink()
                raise ArchiveError(f'{url}: was downloaded twice, and {why}; check the checksum, or take the '
                    'file from elsewhere')
            if failed >= tries:
                raise ArchiveError(f'{url}: broke off {failed} times without a further byte ({why}); '
                    'what came is kept, run this again to go on')
            time.sleep(min(pause*2**failed, 60))
    os.replace(part, target)
    part.with_suffix('.tag').unlink(missing_ok=True)
    return target
