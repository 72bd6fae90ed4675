"""Files and folders that a user names: what is wrong with one, and what may be written where.

Everything here is asked before the work that a wrong path would end, and before PyTorch is
imported. First what is read (videos, manifests, run folders), then what is written.
"""

import errno
import json
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from .names import of_hub

VIDEO_SUFFIXES = (
    ".avi",
    ".mp4",
    ".m4v",
    ".mov",
    ".mkv",
    ".webm",
    ".mpg",
    ".mpeg",
    ".wmv",
    ".flv",
    ".3gp",
    ".ogv",
    ".ts",
    ".m2ts",
    ".gif",
    ".webp",
)
# what a training, and a measurement after it, write into the run folder
RUN_FILES = (
    "recipe.json",
    "card.json",
    "steps.csv",
    "times.csv",
    "health.csv",
    "mining.csv",
    "last.pt",
    "encoder.safetensors",
    "predictions.safetensors",
    "classifier.safetensors",
    "results.json",
    "verdict.txt",
)


class PathError(ValueError):
    "A file or folder that is not what it has to be."


# -- what is read


def path_missing(
    path: str | Path,  # that does not exist
    remedy: str,  # what to do, after a semicolon
) -> PathError:  # to be raised
    "An error that names the path and the nearest name in the last folder on its way that exists."
    path = Path(path)
    if of_hub(path):
        return PathError(
            f"{path}: is an encoder of another library, and no run; take it to retrieve, probe, "
            "extract, search or verdict, or begin a training with it (finetune, pretrain --init)"
        )
    last = next((parent for parent in path.parents if parent.exists()), Path("."))
    lost = path.relative_to(last).parts[0] if path.is_relative_to(last) else path.parts[0]
    names: list[str] = []
    with suppress(OSError):
        names = sorted(os.listdir(last)) if last.is_dir() else []

    near = get_close_matches(lost, names, 1)
    hint = f" (did you mean {str(last / near[0])!r}?)" if near else ""
    origin = "" if path.is_absolute() else f", seen from {Path.cwd()}"
    return PathError(f"{path}: there is no such file or folder{origin}{hint}; {remedy}")


def is_video(
    path: str,  # a file
) -> bool:
    "Is this a video by its name, and a WebP by its flag of animation?"
    if not path.lower().endswith(".webp"):
        return path.lower().endswith(VIDEO_SUFFIXES)
    with suppress(OSError), open(path, "rb") as f:
        head = f.read(21)
        return head[12:16] == b"VP8X" and len(head) > 20 and head[20] & 2 > 0
    return True  # who reads it tells what is wrong


def count_kinds(
    others: Mapping[str, int],  # of `video_paths`
) -> str:
    "How many files there are of each kind, the most first."
    kinds = sorted(others.items(), key=lambda kind: (-kind[1], kind))
    return ", ".join(f"{n} {kind or 'without a suffix'}" for kind, n in kinds)


def _files_below(
    folder: Path,
    error: type[ValueError],  # raised where it cannot be read itself
) -> Iterator[tuple[str, str]]:  # relative path with /, and the path to open
    """Every file in and below a folder, but for hidden files and folders and those of stored flow;
    folders that cannot be read are named on stderr.
    """

    def skip(e: OSError):
        if Path(e.filename) == folder:
            raise error(f"{folder}: cannot be read ({e.strerror})")
        print(
            f"{e.filename}: is left out, because it cannot be read ({e.strerror})", file=sys.stderr
        )

    seen: set[str] = set()  # links may lead in a circle
    for place, folders, files in os.walk(folder, followlinks=True, onerror=skip):
        real = os.path.realpath(place)
        # pictures of motion that `vssl-nb flow` made are no videos
        if real in seen or "flow.json" in files:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if not name.startswith(".")]
        inside = os.path.relpath(place, folder).replace(os.sep, "/")
        prefix = "" if inside == "." else f"{inside}/"
        for name in files:  # no `Path`: there may be many
            if not name.startswith("."):
                yield prefix + name, f"{place}/{name}"


def _is_utf8(path: str) -> bool:
    return path.isascii() or path == path.encode("utf-8", "replace").decode()


def video_paths(
    # to look in and below; hidden folders and those of stored flow are left out
    folder: Path,
    error: type[ValueError],  # raised where there is none
    others: Counter[str] | None = None,  # gets the number of other files of each suffix
) -> list[str]:  # relative paths with /, sorted
    "Every video of a folder; folders in it that cannot be read are named on stderr."
    if not folder.is_dir():
        fault = "is a file" if folder.exists() else "there is no such folder"
        raise error(f"{folder}: {fault}; name the folder that holds the videos")
    if others is None:
        others = Counter()

    videos = []
    for path, file in _files_below(folder, error):
        if is_video(file):
            if _is_utf8(path):
                videos.append(path)
            else:
                others["with a name that is not UTF-8 (rename them)"] += 1
        elif not path.endswith((".csv", ".sqlite")):
            others[os.path.splitext(os.path.basename(path))[1].lower()] += 1
    if not videos:
        raise error(
            f"{folder}: has no video ({count_kinds(others) or 'nor another file'}; videos end in "
            f"{', '.join(VIDEO_SUFFIXES)}); name a folder with videos"
        )
    return sorted(videos)


def expect_manifest(
    data: str | Path,  # manifest.csv, a folder, or 'package.module:name'
) -> None:
    "Raise PathError where this cannot be the data of a training."
    path = Path(data)
    if not path.exists():
        if re.fullmatch(r"[^\W\d][\w.]*:[^\W\d][\w.]*", os.fspath(data)):
            return
        raise path_missing(
            path,
            "name the manifest.csv or the folder that holds it (`vssl-nb manifest FOLDER` makes "
            "one)",
        )
    if path.is_file() and path.suffix.lower() in VIDEO_SUFFIXES:
        raise PathError(f"{path}: is a video; name the folder that it lies in, or its manifest.csv")
    if not os.access(path, os.R_OK):
        raise PathError(f"{path}: you may not read this; ask its owner, or take a copy")


_CARD_FIELDS: dict[str, Any] = {  # of card.json or of its manifest -> their types
    "manifest": dict,
    "path": str,
    "sha256": str,
    "finished": bool,
    "step": int,
    "seconds": (int, float),
    "training": dict,
}


def read_card(
    folder: str | Path,  # a run folder
) -> dict[str, Any]:  # {} where no card can be read
    "The card.json of a run; PathError where it lacks fields or has others in their place."
    path = Path(folder) / "card.json"
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    # who needs it reads it again, and says why it cannot be read
    except (OSError, ValueError):
        return {}
    # `training` is of a fine-tuned run
    try:
        found = {"training": {}} | card | card["manifest"]
    except (KeyError, TypeError):
        found = {}
    for name, kind in _CARD_FIELDS.items():
        if not isinstance(found.get(name), kind):
            raise PathError(
                f"{path}: is not the card of a run, because {name!r} is missing or of another "
                "type; the folder is damaged, take an earlier copy"
            )
    return card


def expect_run(
    folder: str | Path,  # a run folder
    tuned: bool = False,  # may it be a fine-tuned one?
) -> None:
    "Raise PathError where this is no run folder."
    path = Path(folder)
    if not path.exists():
        raise path_missing(path, "name a run folder, such as runs/mine")
    if path.is_file():
        raise PathError(f"{path}: is a file; name the run folder that holds it")
    if not os.access(path, os.R_OK | os.X_OK):
        raise PathError(f"{path}: you may not read this folder; ask its owner, or take a copy")

    if not (path / "recipe.json").exists():
        runs = sorted(p.parent for p in path.glob("*/recipe.json"))
        remedy = (
            "name a run folder, such as runs/mine, or an encoder that others trained, such as "
            "published:efficientnet-lite0 (videos: --data)"
        )
        if runs:
            remedy = f"it holds runs: name one, such as {runs[0]}"
        raise PathError(
            f"{path / 'recipe.json'}: there is no such file, so {path} is not a run; {remedy}"
        )
    card = read_card(path)
    if "training" in card and not tuned:
        name = shlex.quote(str(path))
        raise PathError(
            f"{path}: is a fine-tuned run, made from {card.get('given')}; `vssl-nb predict "
            f"{name} VIDEO` and `vssl-nb convert {name} FILE.tar` take it; name a pretrained run "
            "here"
        )


# -- what is written


def expect_writable(
    path: str | Path,  # of what will be written; it need not exist
    option: str = "--out",  # that names it
    folder: bool = False,  # a folder will be written, not a file
    remedy: str = "",  # where it may not be written; '': another one
) -> None:
    "Raise PathError where it could not be written, before the work that ends in it."
    path = Path(path)
    if folder and path.exists() and not path.is_dir():
        raise PathError(f"{path}: is a file; choose another {option}")
    if not folder and path.is_dir():
        raise PathError(f"{path}: is a folder; name a file with {option}")

    if folder:
        target = path
    else:
        target = path.absolute().parent if path.parent == Path(".") else path.parent
    last = next(p for p in (target, *target.absolute().parents) if p.exists())
    if not last.is_dir():
        raise PathError(f"{target}: {last} is a file, not a folder; choose another {option}")
    if os.access(last, os.W_OK | os.X_OK):
        return
    reason = "you may not write to this folder"
    if os.statvfs(last).f_flag & os.ST_RDONLY:
        reason = os.strerror(errno.EROFS)
    place = "" if last == target else f" ({last})"
    raise PathError(
        f"{target}: cannot be written, {reason}{place}; {remedy or f'choose another {option}'}"
    )


def expect_run_folder(
    folder: str | Path,  # it need not exist
    resume: bool = False,  # go on with the run that is there
    tuned: bool = False,  # by fine-tuning
) -> None:
    """Raise PathError where a training may not write: another run, or files of somebody, would be
    lost.
    """
    folder = Path(folder)
    remedy = ""
    if resume and folder.is_dir():
        remedy = "--resume goes on in this folder, so make it writable"
    expect_writable(folder, folder=True, remedy=remedy)

    card = read_card(folder)
    if resume:
        if tuned and card and "training" not in card:
            raise PathError(
                f"{folder}: is a pretrained run, which fine-tuning does not resume; choose another "
                "--out"
            )
        return
    # a run without a checkpoint has nothing to lose: whoever corrects a mistake begins anew
    if (folder / "last.pt").exists() or card.get("step"):
        raise PathError(
            f"{folder}: holds a run already; add --resume to go on with it, or choose another --out"
        )
    lost = [folder / name for name in RUN_FILES if (folder / name).exists()]
    if lost and not card:
        raise PathError(
            f"{lost[0]}: is of no run that could be resumed, and a training would write over it; "
            "choose another --out"
        )


def expect_no_run(
    folder: str | Path,  # to be written; it need not exist
    option: str = "--out",  # that names it
) -> None:
    """Raise PathError where it could not be written, or where it is a run, which other files do not
    belong to.
    """
    expect_writable(folder, option, folder=True)
    if (Path(folder) / "recipe.json").exists():
        raise PathError(f"{folder}: is a run; choose another {option}")
