"Files and folders that a user names: what is wrong with one, and what may be written over."

import csv, errno, hashlib, importlib, importlib.util, json, mmap, os, re, shlex, stat, sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import lru_cache
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


class PathError(ValueError):
    "A file or folder that is not what it has to be."


def path_missing(
    path: str | Path,  # that does not exist
    remedy: str,  # what to do, after a semicolon
) -> PathError:  # to be raised
    "An error that names the path and the nearest name in the last folder on its way that exists."
    path = Path(path)
    if of_hub(path):
        return PathError(
            f"{path}: is an encoder of another library, and no run; take it to "
            "retrieve, probe, extract, search or verdict"
        )
    last = next((p for p in path.parents if p.exists()), Path("."))
    lost = path.relative_to(last).parts[0] if path.is_relative_to(last) else path.parts[0]
    try:
        names = sorted(os.listdir(last)) if last.is_dir() else []
    except OSError:
        names = []
    near = get_close_matches(lost, names, 1)
    hint = f" (did you mean {str(last / near[0])!r}?)" if near else ""
    place = "" if path.is_absolute() else f", seen from {Path.cwd()}"
    return PathError(f"{path}: there is no such file or folder{place}{hint}; {remedy}")


def expect_manifest(
    data: str | Path,  # manifest.csv, a folder, or 'package.module:name'
) -> None:
    "Raise PathError where this cannot be the data of a training."
    path = Path(data)
    if not path.exists() and re.fullmatch(r"[^\W\d][\w.]*:[^\W\d][\w.]*", os.fspath(data)):
        return
    if not path.exists():
        raise path_missing(
            path,
            "name the manifest.csv or the folder that holds it "
            "(`vssl-nb manifest FOLDER` makes one)",
        )
    if path.is_file() and path.suffix.lower() in VIDEO_SUFFIXES:
        raise PathError(f"{path}: is a video; name the folder that it lies in, or its manifest.csv")
    if not os.access(path, os.R_OK):
        raise PathError(f"{path}: you may not read this; ask its owner, or take a copy")


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


def video_paths(
    # to look in and below; hidden folders and those of stored flow are left out
    folder: Path,
    error: type[ValueError],  # raised where there is none
    others: Counter[str] | None = None,  # gets the number of other files of each suffix
) -> list[str]:  # relative paths with /, sorted
    "Every video of a folder; folders in it that cannot be read are named on stderr."
    fault = "is a file" if folder.exists() else "there is no such folder"
    if not folder.is_dir():
        raise error(f"{folder}: {fault}; name the folder that holds the videos")
    paths, seen, others = list[str](), set[str](), Counter[str]() if others is None else others

    def skip(e: OSError):
        if Path(e.filename) == folder:
            raise error(f"{folder}: cannot be read ({e.strerror})")
        print(
            f"{e.filename}: is left out, because it cannot be read ({e.strerror})", file=sys.stderr
        )

    for where, folders, files in os.walk(folder, followlinks=True, onerror=skip):
        # a link that leads in a circle, or pictures of motion that `vssl-nb flow` made
        if (real := os.path.realpath(where)) in seen or "flow.json" in files:
            folders[:], files = [], []
        folders[:] = [d for d in folders if d[0] != "."]
        seen.add(real)
        inside = os.path.relpath(where, folder).replace(os.sep, "/") + "/"
        for name in (n for n in files if n[0] != "."):  # no `Path`: there may be many
            path, video = (inside + name).removeprefix("./"), is_video(f"{where}/{name}")
            text = path.isascii() or path == path.encode("utf-8", "replace").decode()
            if video and text:
                paths.append(path)
            elif video:
                others["with a name that is not UTF-8 (rename them)"] += 1
            elif not name.endswith((".csv", ".sqlite")):
                others[os.path.splitext(name)[1].lower()] += 1
    if not paths:
        raise error(
            f"{folder}: has no video ({count_kinds(others) or 'nor another file'}; "
            f"videos end in {', '.join(VIDEO_SUFFIXES)}); name a folder with videos"
        )
    return sorted(paths)


def read_card(
    folder: str | Path,  # a run folder
) -> dict[str, Any]:  # {} where no card can be read
    "The card.json of a run; PathError where it lacks fields or has others in their place."
    path = Path(folder) / "card.json"
    kinds: dict[str, Any] = {
        "manifest": dict,
        "path": str,
        "sha256": str,
        "finished": bool,
        "step": int,
        "seconds": (int, float),
        "training": dict,
    }
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    # who needs it reads it again, and says why it cannot be read
    except (OSError, ValueError):
        return {}
    # `training` is of a fine-tuned run
    try:
        fields = {"training": {}} | card | card["manifest"]
    except (KeyError, TypeError):
        fields = {}
    wrong = [k for k, kind in kinds.items() if not isinstance(fields.get(k), kind)]
    if not wrong:
        return card
    raise PathError(
        f"{path}: is not the card of a run, because {wrong[0]!r} is missing or of another type; "
        "the folder is damaged, take an earlier copy"
    )


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
    if (path / "recipe.json").exists():
        if "training" not in (card := read_card(path)) or tuned:
            return
        name = shlex.quote(str(path))
        raise PathError(
            f"{path}: is a fine-tuned run, made from {card.get('given')}; `vssl-nb predict "
            f"{name} VIDEO` and `vssl-nb convert {name} FILE.tar` take it; name a pretrained run "
            "here"
        )
    runs = sorted(p.parent for p in path.glob("*/recipe.json"))
    raise PathError(
        f"{path / 'recipe.json'}: there is no such file, so {path} is not a run; "
        + (
            f"it holds runs: name one, such as {runs[0]}"
            if runs
            else "name a run folder, such as runs/mine"
        )
    )


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
    target = path if folder else path.absolute().parent if path.parent == Path(".") else path.parent
    last = next(p for p in (target, *target.absolute().parents) if p.exists())
    if not last.is_dir():
        raise PathError(f"{target}: {last} is a file, not a folder; choose another {option}")
    if os.access(last, os.W_OK | os.X_OK):
        return
    closed = os.statvfs(last).f_flag & os.ST_RDONLY
    why = os.strerror(errno.EROFS) if closed else "you may not write to this folder"
    raise PathError(
        f"{target}: cannot be written, {why}{'' if last == target else f' ({last})'}; "
        f"{remedy or f'choose another {option}'}"
    )


# command, end of the name, and a regular expression of how such a file begins
OUTPUTS = [*csv.DictReader(Path(__file__).with_name("outputs.csv").read_text().splitlines())]


def output_endings(command: str) -> list[str]:
    return [r["end"] for r in OUTPUTS if r["command"] == command]


def file_owners(
    path: Path,  # of a file
) -> list[str]:  # 'vssl-nb extract', 'the run runs/mine'
    "The commands that write files which begin like this one, and the run that it lies in."
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as content:
        commands = [
            r["command"] for r in OUTPUTS if re.match(r["begins"].encode(), content, re.DOTALL)
        ]
    runs = [p for p in path.absolute().parents[:2] if (p / "recipe.json").exists()]
    return [f"vssl-nb {c}" for c in commands] + [f"the run {p}" for p in runs]


def expect_replaceable(
    path: str | Path,  # of a file to be written; it need not exist
    command: str,  # that writes it
    # write over a file of no command; None: the command has no --force
    force: bool | None = None,
) -> None:
    """Raise PathError, before the work, where a file would be lost that this kind of command did
    not write.
    """
    expect_writable(path)
    path, ends = Path(path), output_endings(command)
    if path.suffix not in ends:
        raise PathError(f"{path}: must end in {', '.join(ends)}; take such a name")
    if not path.exists() or not path.stat().st_size:
        return
    owners = file_owners(path)
    if f"vssl-nb {command}" in owners:
        return
    if owners:
        raise PathError(f"{path}: is a file of {owners[0]}; choose another name")
    remedy = "" if force is None else ", or write over it with --force"
    if not force:
        raise PathError(f"{path}: is no file of vssl-nb {command}; choose another name{remedy}")


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


def expect_run_folder(
    folder: str | Path,  # it need not exist
    resume: bool = False,  # go on with the run that is there
    tuned: bool = False,  # by fine-tuning
) -> None:
    """Raise PathError where a training may not write: another run, or files of somebody, would be
    lost.
    """
    own = resume and Path(folder).is_dir()
    expect_writable(
        folder, folder=True, remedy="--resume goes on in this folder, so make it writable" * own
    )
    folder, card = Path(folder), read_card(folder)
    if resume and tuned and card and "training" not in card:
        raise PathError(
            f"{folder}: is a pretrained "
            "run, which fine-tuning does not resume; choose another --out"
        )
    if resume:
        return
    # a run without a checkpoint has nothing to lose: whoever corrects a mistake begins anew
    if (folder / "last.pt").exists() or card.get("step"):
        raise PathError(
            f"{folder}: holds a run already; add --resume to go on with it, or choose another --out"
        )
    lost = [folder / name for name in RUN_FILES if (folder / name).exists()]
    if lost and not card:
        raise PathError(
            f"{lost[0]}: is of no run that could be resumed, and a training "
            "would write over it; choose another --out"
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


def leave_terminal() -> None:  # after SIGHUP
    """Print nothing from now on where a terminal was: it is gone, and an error of `print` would
    stop a save.
    """
    for fd in (1, 2):
        if stat.S_ISCHR(os.fstat(fd).st_mode):
            os.dup2(os.open(os.devnull, os.O_WRONLY), fd)


def refuse_strangers() -> None:
    """PathError for a file such as torch.py, in this folder or on the path, that is taken for a
    package.
    """
    for name in ("torch", "numpy", "av", "tqdm", "safetensors", "matplotlib"):
        spec = importlib.util.find_spec(name)
        if spec and spec.origin and not spec.submodule_search_locations:
            raise PathError(
                f"{spec.origin}: "
                f"would be imported in place of the package {name}; rename it, or start in "
                "another folder"
            )


@lru_cache(4096)  # a search asks for the same files again
def _digest(
    path: Path,  # of the file
    size: int,  # changes with the file
    time: int,  # changes with the file
) -> bytes:
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(2**20):
            h.update(block)
    return h.digest()


def equal_files(
    files: Mapping[str, Path],  # name -> file
) -> list[list[str]]:  # names of files with the same bytes
    """Groups of two and more, in the order of the names: files are read only where their sizes are
    equal.
    """
    sizes, groups = defaultdict(list), defaultdict(list)
    for name, path in files.items():
        with suppress(OSError):  # what cannot be read equals nothing
            s = os.stat(path)
            sizes[s.st_size].append((name, path, s.st_mtime_ns))
    for size, some in sizes.items():
        for name, path, time in some if len(some) > 1 else ():
            with suppress(OSError):
                groups[_digest(path, size, time)].append(name)
    return [g for g in groups.values() if len(g) > 1]
