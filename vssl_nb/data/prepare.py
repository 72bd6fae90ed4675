"From a folder of videos and what the owners say of them (lists, spreadsheets) to one manifest."

import csv
import filecmp
import io
import json
import os
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from ..paths import expect_no_run
from .manifest import (
    PREPARE_STATE,
    Manifest,
    ManifestError,
    Row,
    compile_source_pattern,
    count_splits,
    find_videos,
    name_source,
    one_at_a_time,
    probe_videos,
    probed,
    read,
    write,
)


class PrepareError(ValueError):
    "A list or a folder that a dataset cannot be prepared from, and what to do."


@dataclass
class Lists:
    "What the owners' lists say."

    # key of a video -> the columns of its row: label, split1, …
    entries: dict[str, dict[str, Any]]
    labels: dict[str, str] = field(default_factory=dict)  # folded name of a folder -> class
    alias: dict[str, str] = field(default_factory=dict)  # another key -> key


def _text(file: Path) -> str:
    "The text of a list."
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        reason = getattr(e, "strerror", None) or "it is not UTF-8"
        raise PrepareError(f"{file}: cannot be read as text ({reason})") from None


def _lines(file: Path) -> list[str]:
    return [line.strip() for line in _text(file).splitlines() if line.strip()]


def _ucf101(files: list[Path]) -> Lists:
    "The text files of up to three splits, and classInd.txt, which has the spelling of the classes."
    folder = files[0].parent
    lists = Lists({})
    for n in (1, 2, 3):
        files_of = {part: folder / f"{part}list0{n}.txt" for part in ("train", "test")}
        there = {part: file for part, file in files_of.items() if file.is_file()}
        if len(there) == 1:
            (file,) = there.values()
            raise PrepareError(f"{folder}: split {n} has only its {file.name}")
        for part, file in there.items():
            for line in _lines(file):
                # training lists end with the number of the class
                name = re.sub(r"\s+\d+$", "", line)
                key = str(PurePosixPath(name).with_suffix("")).casefold()
                entry = lists.entries.setdefault(key, {})
                if entry.setdefault(f"split{n}", part) != part:
                    raise PrepareError(f"{folder}: {name} is in both lists of split {n}")
    if (folder / "classInd.txt").is_file():
        names = [re.sub(r"^\d+\s+", "", line) for line in _lines(folder / "classInd.txt")]
        lists.labels = {name.casefold(): name for name in names}
    return lists


def _hmdb51(files: list[Path]) -> Lists:
    "The official files, one per class and split; or one list per part, as for UCF101."
    if "_test_split" not in files[0].stem:
        return _ucf101(files)
    lists = Lists({})
    for file in files:
        label, _, n = file.stem.rpartition("_test_split")
        lists.labels[label.casefold()] = label
        for i, line in enumerate(map(str.strip, _text(file).splitlines()), 1):
            if not line:
                continue
            name, _, part = line.rpartition(" ")
            if part not in ("0", "1", "2") or not name:
                raise PrepareError(
                    f"{file}: line {i} is '{line}', not a file name and 0, 1 or 2; take the list "
                    "from the owners"
                )
            key = f"{label}/{PurePosixPath(name.strip()).stem}".casefold()
            entry = lists.entries.setdefault(key, {})
            entry[f"split{n}"] = ("", "train", "test")[int(part)]
    return lists


def _part(
    file: Path,  # the list
    name: str,  # of the part, as the owners call it; '': the last that the file's name says
) -> str:  # train, test (the official val) or empty (the official test)
    "The part of our split. `PrepareError`."
    if not name:
        name = (re.findall("train|val|test", file.stem) or [file.stem])[-1]
    parts = {"train": "train", "val": "test", "test": ""}
    part = "val" if name.startswith("val") else name
    if part in parts:
        return parts[part]
    raise PrepareError(
        f"{file}: holds the part '{name}', not train, val or test; fill its column split, "
        "or name the file after its part"
    )


def _enter(
    lists: Lists,
    key: str,  # of the video
    label: str,
    part: str,  # of split 1
    place: str,  # in a list, for the message
) -> None:
    "Add a video to the lists. `PrepareError` where it is in another part already."
    entry = lists.entries.setdefault(key, {"label": label, "split1": part})
    if entry["split1"] != part:
        raise PrepareError(
            f"{place}, {key}, is in another part too; name the lists of one release only"
        )


def _kinetics(files: list[Path]) -> Lists:
    "CSV files with youtube_id, time_start, time_end, and label and split where they are known."
    lists = Lists({})
    for file in files:
        reader = csv.DictReader(io.StringIO(_text(file), newline=""))
        needed = ("youtube_id", "time_start", "time_end")
        absent = [name for name in needed if name not in (reader.fieldnames or ())]
        if absent:
            raise PrepareError(
                f"{file}: has no column {', '.join(absent)}; the official lists begin "
                "with label,youtube_id,time_start,time_end,split"
            )
        for line in reader:
            try:
                start, end = (int(float(line[name])) for name in ("time_start", "time_end"))
                key = f"{line['youtube_id']}_{start:06d}_{end:06d}"
            except (TypeError, ValueError):
                raise PrepareError(
                    f"{file}: line {reader.line_num} has no times in seconds; take the list from "
                    "the owners"
                ) from None
            part = _part(file, line.get("split") or "")
            _enter(lists, key, line.get("label") or "", part, f"{file}: line {reader.line_num}")
            lists.alias.setdefault(line["youtube_id"], key)
    return lists


def _ssv2(files: list[Path]) -> Lists:
    "JSON files with the videos of a part, and labels.json."
    lists = Lists({})
    for file in files:
        try:
            data = json.loads(_text(file))
        except json.JSONDecodeError as e:
            raise PrepareError(f"{file}: is not JSON ({e}); download it again") from None
        if isinstance(data, dict):
            continue  # labels.json, the official numbers of the classes
        part = _part(file, "")
        for i, video in enumerate(data):
            if not isinstance(video, dict) or "id" not in video:
                raise PrepareError(
                    f"{file}: its entry {i} has no id; take the list from the owners"
                )
            label = re.sub(r"\[(.*?)\]", r"\1", video.get("template", ""))
            _enter(lists, str(video["id"]), label, part, f"{file}: its entry {i}")
    return lists


def _hmdb51_source(video: str, label: str) -> str:
    "The originating video of an HMDB51 clip, within its class."
    path = PurePosixPath(video)
    properties = r"[a-z]_[a-z]{2}_np\d+_[a-z]{2}_[a-z]{3}_\d+"
    match = re.fullmatch(rf"(.+)_{re.escape(label)}_{properties}", path.stem, re.I)
    return f"{label}/{match[1]}" if match else str(path.with_suffix(""))


def _path_source(video: str, label: str) -> str:
    return str(PurePosixPath(video).with_suffix(""))


def _stem(video: str) -> str:
    return PurePosixPath(video).stem


def _class_and_name(
    video: str,
) -> str:  # class/name, without the suffix and in lower case
    return "/".join(PurePosixPath(video).with_suffix("").parts[-2:]).casefold()


@dataclass(frozen=True)
class Dataset:
    "How one dataset is handed out."

    title: str  # as people write it
    # patterns of the names of its lists; the first that is found is taken
    lists: tuple[str, ...]
    read: Callable[[list[Path]], Lists] | None  # list files -> lists
    key: Callable[[str], str]  # path of a video -> its key in the lists
    source: Callable[[str, str], str]  # path of a video, label -> source
    videos: int = 0  # official number of videos; 0: no fixed number
    classes: int = 0  # official number of classes
    splits: tuple[tuple[int, int], ...] = ()  # official (train, test) of each split


PREPARED_DATASETS = {
    "ucf101": Dataset(
        "UCF101",
        ("trainlist0*.txt",),
        _ucf101,
        _class_and_name,
        name_source,
        13320,
        101,
        ((9537, 3783), (9586, 3734), (9624, 3696)),
    ),
    "hmdb51": Dataset(
        "HMDB51",
        ("*_test_split[123].txt", "trainlist0*.txt"),
        _hmdb51,
        _class_and_name,
        _hmdb51_source,
        6766,
        51,
        ((3570, 1530),) * 3,
    ),
    "kinetics400": Dataset("Kinetics-400", ("*.csv",), _kinetics, _stem, _path_source, 0, 400),
    "ssv2": Dataset("Something-Something V2", ("*.json",), _ssv2, _stem, _path_source, 220847, 174),
    "folder": Dataset("your own folder", (), None, _class_and_name, name_source),
}


def count_and_first(
    names: Sequence[str],
    file: Any = "",
) -> str:  # a part of a sentence
    "How many names there are, and the first of them; all are listed in the file."
    place = f"; all in {file}" if file else ""
    return f"{len(names):,}, such as {names[0]}{place}"


@dataclass
class Prepared:
    "A prepared dataset, and everything that did not fit."

    dataset: Dataset  # what it should be
    manifest: Manifest  # what it is
    missing: list[str] = field(default_factory=list)  # in the lists, not on disk
    extra: list[str] = field(default_factory=list)  # on disk, not in the lists
    short: list[str] = field(default_factory=list)  # damaged: less decodes than was stored
    notes: list[str] = field(default_factory=list)  # other remarks

    def __str__(self):  # the summary of a run
        manifest = self.manifest
        lines = [
            f"{manifest.path}: {len(manifest):,} videos, {len(manifest.labels)} classes, "
            f"{len(manifest.sources):,} sources",
            *count_splits(manifest.rows),
        ]
        unused = defaultdict(list)  # by the reason
        for row in manifest.rows:
            if row.status != "ok":
                unused[row.status].append(row.video)
        for status, names in unused.items():
            lines.append(f"not used: {count_and_first(names)}: {status}")

        for name, text in (
            ("missing", "in the lists, not on disk"),
            ("extra", "on disk, not in the lists"),
            (
                "short",
                "damaged, used as far as they decode (fewer frames than declared, or broken "
                "pictures)",
            ),
        ):
            names = getattr(self, name)
            if names:
                file = manifest.root / PREPARE_STATE / f"{name}.txt"
                lines.append(f"{text}: {count_and_first(names, file)}")
        differences = [*self._differences()]
        if differences:
            lines.append(f"not the official {self.dataset.title}: {'; '.join(differences)}")
        return "\n".join([*lines, *self.notes])

    def _differences(self) -> Iterator[str]:
        "What is not as in the official dataset."
        manifest, official = self.manifest, self.dataset
        if official.videos not in (0, len(manifest)):
            yield f"{len(manifest):,} videos instead of {official.videos:,}"
        if official.classes not in (0, len(manifest.labels)):
            yield f"{len(manifest.labels)} classes instead of {official.classes}"
        for i, (train, test) in enumerate(official.splits, 1):
            count = Counter(getattr(row, f"split{i}") for row in manifest.rows)
            if (count["train"], count["test"]) != (train, test):
                yield (
                    f"split {i} {count['train']:,}/{count['test']:,} instead of {train:,}/{test:,}"
                )


PROBE_LOG = "probes.jsonl"  # what was found in videos, below PREPARE_STATE


def read_lists(
    kind: Dataset,  # whose lists
    given: Sequence[Path],  # files, or folders to look in
) -> Lists:
    "The official lists of a dataset. `PrepareError`."
    for path in given:
        if not path.exists():
            raise PrepareError(f"{path}: there is no such file or folder of lists; check the path")
    for pattern in kind.lists:
        files: list[Path] = []
        for path in given:
            files += [path] if path.is_file() else sorted(path.rglob(pattern))
        files = [f for f in files if PREPARE_STATE not in f.parts and f.name != "manifest.csv"]
        if files:
            return kind.read(list(dict.fromkeys(files)))  # type: ignore[misc]
    raise PrepareError(
        f"{', '.join(map(str, given))}: holds no lists of {kind.title} "
        f"({' or '.join(kind.lists)}); name the file or folder that does"
    )


def own_state(
    home: Path,  # the folder of the dataset, made where it is missing
) -> Path:  # the folder of what is kept
    """Where the state of a dataset is kept.

    `PrepareError` beside a manifest that somebody else wrote.
    """
    expect_no_run(home)
    if (home / "manifest.csv").exists() and not (home / PREPARE_STATE).exists():
        raise PrepareError(
            f"{home / 'manifest.csv'}: is there already, and was not written by this program; "
            "move it away, or name another folder with --out"
        )
    (home / PREPARE_STATE).mkdir(parents=True, exist_ok=True)
    return home / PREPARE_STATE


def link_into(
    folder: Path,  # of videos, anywhere
    out: Path,  # folder of the manifest, which names only what lies below it
) -> Path:  # the folder as seen from `out`
    "Link a folder into the folder of the manifest, unless it lies there. `PrepareError`."
    there, here = folder.resolve(), out.resolve()
    if there.is_relative_to(here):
        return out / there.relative_to(here)
    link = out / (there.name or "videos")
    if not link.is_symlink() and not link.exists():
        link.symlink_to(there, target_is_directory=True)
    if link.resolve() != there:
        raise PrepareError(
            f"{link}: is there already and is not {folder}; name another folder with --out"
        )
    return link


def write_anew(
    path: Path,  # of manifest.csv
    rows: Sequence[Row],
) -> list[str]:  # a sentence where it was there
    "Write a manifest; one that had something else in it stays as a dated copy. `ManifestError`."
    copy = path.with_stem(f"{path.stem}-{datetime.now():%Y-%m-%d-%H%M%S-%f}")
    if path.exists():
        shutil.copy2(path, copy)
    write(path, rows)
    if not copy.exists():
        return []
    if not filecmp.cmp(path, copy, shallow=False):
        return [
            f"{path}: was another table, perhaps with labels by hand, which is kept as {copy.name}"
        ]
    copy.unlink()
    return []


@dataclass
class _Listing:
    "The videos of a folder beside the owners' lists."

    rows: list[Row] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # keys in the lists, not on disk
    extra: list[str] = field(default_factory=list)  # videos that are not in the lists


def _described(
    kind: Dataset,
    home: Path,  # of the manifest
    folder: Path,  # of the videos, below `home`
    lists: Lists,
    pattern: re.Pattern | None,  # of the source
) -> _Listing:
    "A row for each video, with what its path and the lists say. `PrepareError`."
    prefix = folder.relative_to(home).as_posix()
    listing, used = _Listing(), set()
    for video in find_videos(folder):
        key = kind.key(video)
        key = lists.alias.get(key, key)
        entry = lists.entries.get(key, {})
        if kind.source is _path_source:
            label = entry.get("label", "")
        else:
            name = PurePosixPath(video).parent.name
            label = lists.labels.get(name.casefold(), name)
        source = name_source(video, label, pattern) if pattern else kind.source(video, label)
        path = str(PurePosixPath(prefix, video))
        listing.rows.append(Row(**entry | {"video": path, "label": label, "source": source}))
        if key in lists.entries:
            used.add(key)
        elif kind.read:
            listing.extra.append(video)

    listing.missing = sorted(set(lists.entries) - used)
    if kind.read and not used:
        such = f", such as {listing.missing[0]}" if listing.missing else ""
        raise PrepareError(
            f"{folder}: holds none of the {len(listing.missing):,} videos of the lists{such}; is "
            "it the right folder, and are these its lists?"
        )
    return listing


def _write_manifest(
    kind: Dataset,
    home: Path,  # of the manifest
    folder: Path,  # of the videos, below `home`
    lists: Lists,
    pattern: re.Pattern | None,  # of the source
    least_frames: int,  # videos with fewer are not usable
    workers: int | None,  # threads
    progress: bool,  # show a bar
) -> Prepared:
    "From a folder of videos and lists to the manifest."
    state = home / PREPARE_STATE
    listing = _described(kind, home, folder, lists, pattern)
    videos = [row.video for row in listing.rows]
    probes = probe_videos(home, videos, workers, progress, state / PROBE_LOG)
    rows = []
    for row, p in zip(listing.rows, probes):
        row = probed(row, p)
        if row.status == "ok" and row.frames < least_frames:
            row = replace(row, status=f"dropped: has fewer than {least_frames} frames")
        rows.append(row)
    with suppress(ManifestError):  # flow is stored later, by another program
        flows = {row.video: row.flow for row in read(home / "manifest.csv").rows}
        rows = [replace(row, flow=flows.get(row.video, "")) for row in rows]

    # a declared count alone is no sign: in healthy AVIs it is often off
    short = [p["video"] for p in probes if p.get("damage")]
    notes = write_anew(home / "manifest.csv", rows)
    for name, names in (("missing", listing.missing), ("extra", listing.extra), ("short", short)):
        text = "".join(f"{line}\n" for line in names)
        (state / f"{name}.txt").write_text(text, encoding="utf-8")
    return Prepared(kind, read(home), listing.missing, listing.extra, short, notes)


def prepare_dataset(
    dataset: str,  # ucf101, hmdb51, kinetics400, ssv2 or folder
    source: str | os.PathLike,  # folder of videos
    lists: Any = None,  # official lists: files or folders; None looks beside the videos
    out: str | os.PathLike | None = None,  # folder of the dataset; None writes beside the videos
    # regular expression whose one group finds the source in the path
    source_pattern: str | None = None,
    least_frames: int = 0,  # videos with fewer are marked as not usable
    workers: int | None = None,  # threads; None is one per core
    progress: bool = True,  # show bars
) -> Prepared:  # its text is the summary
    "Make the manifest; again gives the same. `PrepareError`, `ManifestError`."
    if dataset not in PREPARED_DATASETS:
        raise PrepareError(f"there is no dataset '{dataset}'; take {', '.join(PREPARED_DATASETS)}")
    kind = PREPARED_DATASETS[dataset]
    videos = Path(source)
    if workers is not None and workers < 1:
        raise PrepareError(f"workers is {workers}; take at least 1")
    if not videos.is_dir():
        raise PrepareError(f"{videos}: there is no such folder; check the path")
    home = videos if out is None else Path(out)
    with one_at_a_time(own_state(home) / "lock"):
        folder = link_into(videos, home)
        if lists is None:
            lists = home if folder == home else folder.resolve()
        given = [lists] if isinstance(lists, (str, os.PathLike)) else lists
        official = Lists({})
        if kind.read:
            official = read_lists(kind, [*map(Path, given)])
        return _write_manifest(
            kind,
            home,
            folder,
            official,
            compile_source_pattern(source_pattern),
            least_frames,
            workers,
            progress,
        )
