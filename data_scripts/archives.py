"""What owners hand out packed (zip, tar, rar, archives in archives): every file in its place, or
none.
"""

import bz2
import gzip
import json
import lzma
import os
import re
import shutil
import stat
import subprocess
import tarfile
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from tqdm.auto import tqdm

from vssl_nb.data.manifest import PREPARE_STATE, one_at_a_time
from vssl_nb.data.prepare import PrepareError, own_state

# archives: each is extracted into a folder of its own, and moved to its place when all of it is
# there
ARCHIVE_SUFFIXES = (
    ".zip",
    ".rar",
    ".tar",
    ".tar.gz",
    ".tgz",
    ".tar.bz2",
    ".tbz2",
    ".tar.xz",
    ".txz",
)
OPENERS: dict[bytes, Callable] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}
RAR = {  # program -> how it lists a file, and how it extracts it into a folder
    "unar": ("lsar -j {file}", "unar -q -D -f -o {folder} {file}"),
    "unrar": ("unrar lb -p- {file}", "unrar x -inul -y -p- {file} {folder}/"),
    "7z": ("7z l -ba -slt -p {file}", "7z x -bd -y -p -o{folder} {file}"),
    # last: it compares no checksums
    "bsdtar": ("bsdtar -tf {file}", "bsdtar -xf {file} -C {folder}"),
}


def _safe_path(archive: str, name: str) -> PurePosixPath:
    "The place of a member below the target. `PrepareError` where it leaves it."
    path = PurePosixPath(name.replace("\\", "/"))
    leaves = path.is_absolute() or ".." in path.parts
    drive = any(re.match("[A-Za-z]:", part) for part in path.parts)  # of Windows
    if leaves or drive or not path.parts or "\0" in name:
        raise PrepareError(
            f"{archive}: its member {name!r} leads out of the target folder; nothing like "
            "that belongs in a dataset, take the archive from its owners"
        )
    return path


def _twice(archive: str, path) -> PrepareError:
    return PrepareError(
        f"{archive}: holds {str(path)!r} twice; take the archive from its owners, or extract "
        "the right one by hand"
    )


def _not_a_file(archive: str, name: str) -> PrepareError:
    return PrepareError(
        f"{archive}: its member {name!r} is a link or a device, which is never extracted; "
        "take the archive from its owners"
    )


def _write_member(archive: str, name: str, source: IO[bytes], folder: Path):
    path = _safe_path(archive, name)
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    try:
        with source, open(folder / path, "xb") as f:
            shutil.copyfileobj(source, f, 1 << 20)
    except FileExistsError:
        raise _twice(archive, path) from None


def _extract_tar(
    archive: str,
    stream,  # without its compression
    folder: Path,
):
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            if member.isdir():
                continue
            if not member.isreg() or member.issparse():
                raise _not_a_file(archive, member.name)
            content = tar.extractfile(member)
            _write_member(archive, member.name, content, folder)  # type: ignore[arg-type]
        # `tarfile` takes a damaged or missing header for the end, which is two blocks of zeros
        rest = tar.fileobj.read(512)  # type: ignore[union-attr]
        if len(rest) < 512 or rest.strip(b"\0"):
            raise EOFError("it has no end")
    while stream.read(1 << 20):
        pass  # the checksum of the compression comes last


def _extract_zip(archive: str, path: Path, folder: Path):
    with zipfile.ZipFile(path) as z:
        members = z.infolist()
        if min((member.header_offset for member in members), default=0):
            # a zip in it has one, which Python would take
            raise EOFError("its table of contents is missing")
        for member in members:
            if member.is_dir():
                continue
            if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):
                raise _not_a_file(archive, member.filename)
            _write_member(archive, member.filename, z.open(member), folder)


def _rar_program(archive: str) -> str:  # of RAR
    "The first that is installed. `PrepareError` where none is."
    for program, commands in RAR.items():
        if all(shutil.which(command.split()[0]) for command in commands):
            return program
    raise PrepareError(
        f"{archive}: is a rar, which needs one of the programs unar, unrar, 7z or bsdtar; "
        "on Debian and Ubuntu: apt install unar"
    )


def _extract_rar(archive: str, path: Path, folder: Path):
    def run(command):
        return subprocess.run(
            [part.format(file=path.absolute(), folder=folder) for part in command.split()],
            stdin=subprocess.DEVNULL,  # no program can ask for a password
            capture_output=True,
        )

    tool = _rar_program(archive)
    list_files, extract_files = RAR[tool]
    listing = run(list_files)
    text = listing.stdout.decode("utf-8", "surrogateescape")
    if listing.returncode or not text.strip():
        raise EOFError(f"{tool} cannot list it")
    if tool == "unar":
        names = [m["XADFileName"] for m in json.loads(text)["lsarContents"]]
    elif tool == "7z":
        names = [line[7:] for line in text.splitlines() if line.startswith("Path = ")]
    else:
        names = text.splitlines()
    for name, n in Counter(_safe_path(archive, name) for name in names).items():
        if n > 1:
            raise _twice(archive, name)
    if run(extract_files).returncode:
        raise EOFError(f"{tool} cannot extract it")


def _extract(archive: str, path: Path, folder: Path):
    "All files of an archive. `PrepareError`."
    with open(path, "rb") as f:
        start = f.read(512)
    opener = next((o for magic, o in OPENERS.items() if start.startswith(magic)), None)
    if start[257:262] == b"ustar":
        opener = open
    try:
        if start[:4] == b"Rar!":
            _extract_rar(archive, path, folder)
        elif start[:4] in (b"PK\3\4", b"PK\5\6"):
            _extract_zip(archive, path, folder)
        elif opener:
            with opener(path, "rb") as stream:
                _extract_tar(archive, stream, folder)
        else:
            fault = f"it starts with {start[:12]!r}" if start else "it is empty"
            raise PrepareError(
                f"{archive}: is no zip, rar or tar ({fault}); download it again, and look into it "
                "if it is small: servers send pages of text for errors"
            )
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        EOFError,
        zlib.error,
        lzma.LZMAError,
        OSError,
        RuntimeError,
        NotImplementedError,
    ) as e:
        if isinstance(e, OSError) and e.errno:
            raise PrepareError(f"{archive}: {e.filename or 'extraction'}: {e.strerror}") from None
        reason = " ".join(str(e).split())
        raise PrepareError(
            f"{archive}: ends early or is damaged ({reason}); download it again and run this "
            "again, nothing of it is kept"
        ) from None


def _unpack(title: str, path: Path, room: Path) -> dict[str, Path]:
    "Extract an archive and those in it: path below the target -> where the file is now."
    folder = Path(tempfile.mkdtemp(dir=room))
    _extract(title, path, folder)
    files: dict[str, Path] = {}
    for file in sorted(p for p in folder.rglob("*") if p.is_symlink() or not p.is_dir()):
        name = file.relative_to(folder)
        if file.is_symlink() or not file.is_file():
            raise _not_a_file(title, name.as_posix())
        inner = {name.as_posix(): file}
        if file.name.lower().endswith(ARCHIVE_SUFFIXES):
            members = _unpack(f"{title}/{name.as_posix()}", file, room)
            inner = {(name.parent / member).as_posix(): f for member, f in members.items()}
        twice = sorted(inner.keys() & files)
        if twice:
            raise _twice(title, twice[0])
        files |= inner
    return files


def _check_places(
    archive: str,
    names: Iterable[str],  # of its files, below the target
    out: Path,  # the target
) -> None:
    "PrepareError for a file in the folder of our state, or behind a link."
    for path in map(PurePosixPath, names):
        if path.parts[0].casefold() == PREPARE_STATE:
            raise PrepareError(
                f"{archive}: its member '{path}' lies in {PREPARE_STATE}, which is kept for the "
                "state of this program; rename it"
            )
        for parent in path.parents[:-1]:
            if (out / parent).is_symlink():
                raise PrepareError(
                    f"{out / parent}: is a link, which extraction does not follow; name another "
                    "folder, or remove it"
                )


def extract_archive(
    paths: Sequence[Path],  # of zips, tars and rars
    out: Path,  # folder to extract into
    progress: bool = True,  # show a bar
):
    "Extract archives and those in them; what was extracted before is left out. `PrepareError`."
    for path in paths:
        if not path.is_file():
            raise PrepareError(f"{path}: there is no such archive; check the path")
    room, done = out / PREPARE_STATE / "unpacked", out / PREPARE_STATE / "done"
    shutil.rmtree(room, ignore_errors=True)  # of a run that was killed
    for folder in (room, done):
        folder.mkdir(parents=True, exist_ok=True)
    for path in tqdm(paths, disable=not progress, desc="extracted", unit="archive"):
        mark = done / f"{path.name} {path.stat().st_size}"
        if mark.exists():
            continue
        files = _unpack(path.name, path, room)
        _check_places(path.name, files, out)
        for name, file in files.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, out / name)
        mark.touch()
    shutil.rmtree(room)


def unpacked_lists(
    given: Sequence[Path],  # files, folders and archives
    home: Path,  # folder of the dataset
    progress: bool = True,  # show a bar
) -> list[Path]:  # with a folder in the place of the archives
    "Official lists as files and folders. `PrepareError`."
    packed = [p for p in given if p.is_file() and p.name.lower().endswith(ARCHIVE_SUFFIXES)]
    if not packed:
        return [*given]
    extract_archive(packed, home / "lists", progress)
    others = [path for path in given if path not in packed]
    return [home / "lists", *others]


def unpacked(
    source: Sequence[Path],  # a folder of videos, or archives
    # official lists: files, folders and archives; None: beside the videos
    lists: Sequence[Path] | None,
    out: Path | None,  # folder of the dataset; None: that of the videos
    progress: bool = True,  # show a bar
) -> tuple[Path, list[Path] | None]:  # folder of the videos, lists
    "Extract what is packed into the folder of the dataset. `PrepareError`."
    if not source:
        raise PrepareError("no archive and no folder is named; name what the videos are in")
    for path in source:
        if not path.exists():
            raise PrepareError(f"{path}: there is no such file or folder; check the path")
    packed = len(source) > 1 or source[0].is_file()
    home = out or source[0]
    if packed and out is None:
        raise PrepareError(f"{home}: is an archive; name the folder to extract it to with --out")
    with one_at_a_time(own_state(home) / "lock"):
        if packed:
            extract_archive(source, home, progress)
        if lists:
            lists = unpacked_lists(lists, home, progress)
        return home if packed else source[0], lists
