"Files that are written whole or not at all: the one place where a file takes the place of another."

import errno
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


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
    return (getattr(e, "strerror", None) or str(e)).strip().split("\n")[0][:200]


@contextmanager
def replacement(
    path: str | Path,  # of the file to write; its folder is made
    suffix: str = "",  # of the temporary name, where the writer goes by it: '.mp4'
) -> Iterator[Path]:  # where to write
    """A temporary path beside a file, which takes its place when the block ends without an error.

    Whatever happens, nothing half-written is left. OSError of the disk comes through.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # named before it is made: an interruption in the moment between would leave it behind
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{suffix}")
    try:
        yield temporary
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_whole(
    path: str | Path,
    write: Callable[[Any], Any],  # called with an open binary file
    error: type[ValueError] = FileError,  # raised where the disk refuses
) -> Path:  # the path
    "Let `write` fill a temporary file, then rename it to `path`. `error` if the disk refuses."
    path = Path(path)
    try:
        with replacement(path) as temporary, open(temporary, "xb") as f:
            write(f)
            f.flush()
            os.fsync(f.fileno())
    except (OSError, RuntimeError) as e:  # torch.save turns a full disk into a RuntimeError
        cause = e if isinstance(e, OSError) else e.__context__ or e
        raise error(
            f"{path}: cannot be written ({first_line(cause)}); what was there before is "
            f"untouched. {write_remedy(cause)} or choose another folder"
        ) from e
    return path
