"""Files that are written whole or not at all: the one place where a file takes the place of
another, and where what a killed process left half-written is removed; and files with the same
bytes.
"""

import errno
import hashlib
import os
import re
import secrets
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

# .NAME.MACHINE.PROCESS.TOKEN and the suffix
TEMPORARY = re.compile(
    r"\..+\.(?P<machine>[^.]+)\.(?P<process>\d+)\.[0-9a-f]{8}(\.\w+)?", re.DOTALL
)


class FileError(ValueError):
    "A file that cannot be written; the message names it and the remedy."


def write_remedy(
    e: BaseException,  # raised by a write
) -> str:  # the beginning of a sentence
    "The remedy where something could not be written."
    number = getattr(e, "errno", None)
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "Get the right to write there"
    if number in (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG):
        return "Take another name"
    return "Free some space"


def first_line(
    e: BaseException,
) -> str:  # at most 200 letters
    "The reason of the operating system, or the first line of an error."
    reason = getattr(e, "strerror", None) or str(e)
    return reason.strip().split("\n")[0][:200]


def machine_name() -> str:  # without dots, at most 60 letters
    "The name of this machine, as temporary names have it."
    return socket.gethostname()[:60].replace(".", "-")


def flush_to_disk(
    path: Path,  # of a file that is closed
) -> None:
    "Wait until the bytes of a file are on the disk. OSError."
    with open(path, "rb") as f:
        os.fsync(f.fileno())


@contextmanager
def replacement(
    path: str | Path,  # of the file to write; its folder is there
    suffix: str = "",  # of the temporary name, where the writer goes by it: '.mp4'
) -> Iterator[Path]:  # where to write
    """A temporary path beside a file, which takes its place when the block ends without an error.

    Whatever happens, nothing half-written is left. OSError of the disk comes through.
    """
    path = Path(path)
    # named before it is made: an interruption in the moment between would leave it behind
    token = f"{machine_name()}.{os.getpid()}.{secrets.token_hex(4)}"
    temporary = path.with_name(f".{path.name[:60]}.{token}{suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink()


@contextmanager
def exclusive_lock(
    file: str | Path,  # it is made, and stays; its folder is there
) -> Iterator[None]:
    """One process works in the block, and another waits for it.

    There is no lock on Windows, nor on a file system that has none. OSError where the file cannot
    be written.
    """
    with open(file, "a") as f:
        with suppress(ImportError):
            import fcntl

            with suppress(OSError):
                fcntl.flock(f, fcntl.LOCK_EX)
        yield


def write_whole(
    path: str | Path,  # of the file; its folder is made
    write: Callable[[Any], Any],  # called with an open binary file
    error: type[ValueError] = FileError,  # raised where the disk refuses
) -> Path:  # the path
    "Let `write` fill a temporary file, then rename it to `path`. `error` if the disk refuses."
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacement(path) as temporary:
            with open(temporary, "xb") as f:
                write(f)
                f.flush()
                os.fsync(f.fileno())
            os.chmod(temporary, 0o644)
    except (OSError, RuntimeError) as e:  # torch.save turns a full disk into a RuntimeError
        cause = e if isinstance(e, OSError) else e.__context__ or e
        raise error(
            f"{path}: cannot be written ({first_line(cause)}); what was there before is "
            f"untouched. {write_remedy(cause)} or choose another folder"
        ) from e
    return path


def remove_leftovers(
    folder: Path,  # to look in and below
    age: float
    | None = None,  # s: files of other machines that are older go too; None: none of them
) -> None:
    "Remove what killed processes have left half-written: those of this machine that are gone."
    for path in folder.rglob(".*.*.*.*"):
        name = TEMPORARY.fullmatch(path.name)
        if name is None:
            continue
        with suppress(OSError):
            if name["machine"] == machine_name() and os.name == "posix":
                abandoned = not _is_alive(int(name["process"]))
            else:
                abandoned = age is not None and time.time() - path.stat().st_mtime > age
            if abandoned:
                path.unlink()


def _is_alive(
    process: int,  # its number on this machine
) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it is somebody else's
    return True


@lru_cache(4096)  # a search asks for the same files again
def _digest(
    path: Path,  # of the file
    size: int,  # changes with the file
    time: int,  # changes with the file
) -> bytes:
    "The SHA-256 of a file. OSError."
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(2**20):
            digest.update(block)
    return digest.digest()


def equal_files(
    files: Mapping[str, Path],  # name -> file
) -> list[list[str]]:  # names of files with the same bytes
    """Groups of two and more, in the order of the names: files are read only where their sizes are
    equal.
    """
    by_size = defaultdict(list)
    for name, path in files.items():
        with suppress(OSError):  # what cannot be read equals nothing
            info = os.stat(path)
            by_size[info.st_size].append((name, path, info.st_mtime_ns))

    by_content = defaultdict(list)
    for size, some in by_size.items():
        if len(some) == 1:
            continue
        for name, path, time_of_change in some:
            with suppress(OSError):
                by_content[_digest(path, size, time_of_change)].append(name)
    return [names for names in by_content.values() if len(names) > 1]
