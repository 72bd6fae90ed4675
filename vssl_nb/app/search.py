"""Search by example: the videos of a folder that are most like a video, by an index of their
features.
"""

import hashlib
import html
import itertools
import json
import os
import re
import shlex
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from safetensors import SafetensorError, safe_open

from .. import __version__
from ..names import of_hub
from ..files import equal_files
from ..paths import expect_run, expect_writable, video_paths
from ..outputs import output_suffixes

# PyTorch is imported where something is encoded: a query that is in the index is answered without
# it

# features that are made float64 at a time: few enough for the caches of a processor
BLOCK = 512


def centred_cosines(
    query: np.ndarray,  # (Q, D)
    # (N, D) float32, may lie on the disk (`numpy.memmap`): each row is read once
    x: np.ndarray,
    mean: np.ndarray,  # (D,) float64, of the folder
) -> np.ndarray:  # (Q, N) float32
    "Cosines after the mean is taken off; 0 for a feature that is the mean."

    def length(v):
        return np.maximum(np.sqrt(np.einsum("nd,nd->n", v, v)), 1e-12)

    q = query.astype(np.float64) - mean
    q /= length(q)[:, None]
    sim = np.empty((len(query), len(x)), np.float32)
    # added up in float64 and rounded once: copies stay equal
    for i in range(0, len(x), BLOCK):
        part = x[i : i + BLOCK] - mean
        sim[:, i : i + BLOCK] = q @ part.T / length(part)
    return sim


def nearest(
    sim: np.ndarray,  # (N,) float32
    k: int,  # at most, 1 or more
) -> np.ndarray:  # (k,) positions, the nearest first; the earlier of equals first
    "The positions of the k largest."
    k = min(k, len(sim))
    least = np.partition(sim, len(sim) - k)[len(sim) - k]
    candidates = np.flatnonzero(sim >= least)
    order = np.lexsort((candidates, -sim[candidates]))
    return candidates[order][:k]


# -- files: the videos of a folder, and an encoder


class SearchError(ValueError):
    "A folder, an index or a query that cannot be used, and what to do."


# bytes of a file, and ns of its last change; (-1, -1): there is no such file
Stamp = tuple[int, int]


def _stamp(path) -> Stamp:
    try:
        s = os.stat(path)
    except OSError:
        return -1, -1  # as behind a broken link
    return s.st_size, s.st_mtime_ns


def video_files(
    folder: Path,
) -> dict[str, Stamp]:  # by path relative to the folder, with /
    "Every video file of a folder, sorted by name."
    return {name: _stamp(f"{folder}/{name}") for name in video_paths(folder, SearchError)}


@dataclass(frozen=True)
class EncoderFile:
    "An encoder.safetensors, and its header; or an encoder of another library."

    path: Path  # hf:FOLDER and the like are kept as one
    sha256: str  # of the file; the fingerprint of an encoder of another library
    about: dict[str, Any]  # backbone, view, length, stride, size, ...
    # that was named: a run folder, whose recipe may name code of one's own, or the file
    source: Path

    @cached_property
    def network(self) -> tuple[Any, str]:  # in eval mode; fingerprint of its weights and code
        "The network, read once, where something is encoded."
        from ..measure.features import fingerprint, trusted
        from ..training.checkpoints import read_encoder

        if of_hub(self.path):
            return hub_network(str(self.path)), self.sha256
        network, _ = read_encoder(self.path, outside=trusted(self.source))
        return network, fingerprint(network)


@lru_cache(1)
def hub_network(
    name: str,
) -> Any:  # see `runs.hub`
    "An encoder of another library, read once."
    from ..runs.hub import load_hub

    return load_hub(name)


# what the header of an encoder must say
ABOUT_FIELDS = ("backbone", "view", "length", "stride", "size")


def describe_encoder(
    path,  # a run folder, the encoder.safetensors of one, or hf:NAME
) -> EncoderFile:
    "The header of an encoder's file, read without PyTorch. `SearchError`."
    if of_hub(path):
        return _describe_hub_encoder(str(path))
    given = Path(path)
    if (given / "recipe.json").exists():
        expect_run(given)
    file = given / "encoder.safetensors" if given.is_dir() else given
    if not file.is_file():
        wrong = "there is no such file"
        if given.is_dir():
            wrong = "is a folder without an encoder.safetensors"
        raise SearchError(
            f"{given}: {wrong}; name a run folder, or its encoder.safetensors, with --encoder"
        )
    about = _read_header(file)
    lacks = [k for k in ABOUT_FIELDS if k not in about]
    if lacks:
        raise SearchError(
            f"{file}: does not say its {', '.join(lacks)}; name an encoder that "
            "`vssl-nb pretrain` wrote with --encoder"
        )
    if about["view"] == "flow":
        raise SearchError(
            f"{file}: is an encoder of the view flow, and a folder of videos has only their "
            "frames; name one of rgb or residual with --encoder"
        )
    return EncoderFile(file.resolve(), hashlib.sha256(file.read_bytes()).hexdigest(), about, given)


def _describe_hub_encoder(
    name: str,  # hf:NAME
) -> EncoderFile:
    "An encoder of another library: only its weights tell whether it is the same, and take PyTorch."
    from ..measure.features import fingerprint

    network = hub_network(name)
    library, _, folder = name.partition(":")
    path = Path(name)
    if library != "torchvision" and Path(folder).is_dir():
        path = Path(f"{library}:{Path(folder).resolve()}")
    return EncoderFile(path, fingerprint(network), network.about(), path)


def _read_header(file: Path) -> dict[str, Any]:  # {} where it is of no encoder of ours
    "What an encoder.safetensors says about itself. `SearchError`."
    try:
        with safe_open(file, "np") as f:
            about = json.loads((f.metadata() or {}).get("vssl_nb", "null"))
    except (SafetensorError, OSError, ValueError) as e:
        raise SearchError(
            f"{file}: is not a whole encoder.safetensors ({str(e).splitlines()[0]})"
        ) from None
    return about or {}


# fields of a header that decide the features
KEY_FIELDS = (
    "view",
    "length",
    "stride",
    "size",
    "crops",
    "windows",
    "pad",
    "residual",
    "residual_scale",
    "mean",
    "std",
)


def index_key(
    encoder: EncoderFile,
    clips: int = 10,  # clips per video, spread evenly
) -> dict[str, Any]:
    "All that decides the features of an index."
    if clips < 1:
        raise SearchError(f"clips={clips} makes no feature; take 1 or more")
    about = {k: encoder.about[k] for k in KEY_FIELDS if k in encoder.about}
    return {"encoder": encoder.sha256, "clips": clips, **about}


@dataclass
class SearchIndex:
    "The features of the videos of a folder."

    folder: Path  # where the index is kept
    root: Path  # the folder of the videos
    key: dict[str, Any]  # from `index_key`
    encoder: str  # path of the encoder's file
    videos: dict[str, Stamp]  # by name, in the order of x
    bad: dict[str, tuple[int, int, str]]  # name -> bytes, time, and why it could not be read
    x: np.ndarray  # (N, D) float32, not centred
    mean: np.ndarray  # (D,) float64
    code: str = ""  # fingerprint of the encoder with its code

    def __len__(self) -> int:
        return len(self.videos)

    @property
    def counted(self) -> str:
        "What was searched."
        return f"{len(self)} videos"

    def __repr__(self):
        text = f"{self.counted} of {self.root}, {self.x.shape[1]} numbers each"
        if self.bad:
            text += f", {len(self.bad)} unreadable"
        return f"SearchIndex({text})"


def _damaged(folder: Path, reason: Any) -> SearchError:
    return SearchError(
        f"{folder}: is not a whole index ({str(reason).splitlines()[0]}); delete its "
        "index.json and search again, with --encoder"
    )


def read_about(
    folder: Path,  # of an index
) -> dict[str, Any]:  # empty where there is none
    "The content of `index.json`. `SearchError` where it is damaged."
    try:
        about = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as e:
        raise _damaged(folder, e) from None
    fields = {"key", "encoder", "code", "videos", "bad", "mean", "features"}
    if not isinstance(about, dict) or fields - about.keys():
        raise _damaged(folder, "index.json lacks fields")
    return about


def open_index(
    folder: Path,  # that holds index.json
    root: Path,  # the folder of the videos
) -> SearchIndex | None:
    "An index as it is, without a look at the videos. `SearchError` where it is damaged."
    about = read_about(folder)
    if not about:
        return None
    try:
        x = np.load(folder / about["features"], mmap_mode="r")
    except (OSError, ValueError) as e:
        raise _damaged(folder, e) from None
    mean = np.array(about["mean"])
    if x.shape != (len(about["videos"]), len(mean)):
        raise _damaged(folder, f"its features are {x.shape}")
    return SearchIndex(
        folder,
        root,
        about["key"],
        about["encoder"],
        {name: tuple(stamp) for name, stamp in about["videos"].items()},
        {name: tuple(entry) for name, entry in about["bad"].items()},
        x,
        mean,
        about["code"],
    )


def write_index(
    index: SearchIndex,
) -> SearchIndex:  # with its features on the disk
    "Write an index, whole or not at all, and remove older features."
    before = read_about(index.folder).get("features")
    name = f"features-{time.time_ns():x}.npy"
    _write(index.folder / name, lambda f: np.save(f, np.asarray(index.x, np.float32)))
    about = {
        "key": index.key,
        "encoder": index.encoder,
        "code": index.code,
        "vssl_nb": __version__,
        "features": name,
        "mean": index.mean.tolist(),
        "videos": index.videos,
        "bad": index.bad,
    }
    _write(index.folder / "index.json", json.dumps(about))
    # younger ones may be of a process that is still at work
    for old in index.folder.glob("features-*.npy"):
        if old.name == before or old.stat().st_mtime < time.time() - 3600:
            old.unlink(missing_ok=True)
    return replace(index, x=np.load(index.folder / name, mmap_mode="r"))


def _write(
    path: Path,
    content: str | Callable,  # text, or what writes into an open binary file
) -> Path:
    "Write a file whole or not at all. `FileError`."
    from ..files import write_whole

    if isinstance(content, str):
        return write_whole(path, lambda f: f.write(content.encode()))
    return write_whole(path, content)


def _check_code(index: SearchIndex, code: str, encoder: EncoderFile) -> None:
    "Refuse an index whose encoder had the same weights and other code. `SearchError`."
    if code != index.code:
        raise SearchError(
            f"{index.folder}: was made by other code of the encoder {encoder.path}; delete this "
            "folder and search again"
        )


def _features(
    network: Any,
    key: dict,
    manifest: Any,
    batch: int,
    machine: Any,
) -> Iterator[tuple[int, np.ndarray | str]]:  # row, and (D,) float32 or why there is none
    "Features of the videos of a manifest, as the key of an index has them."
    from ..measure.features import encoder_protocol, encoder_views, extract_clips, mean_of_clips

    readable = []
    for i, row in enumerate(manifest.rows):
        if row.status == "ok":
            readable.append(i)
        else:
            yield i, row.status
    for i, clips in extract_clips(
        network,
        manifest,
        readable,
        key["view"],
        encoder_protocol(key),
        batch=batch,
        machine=machine,
        **encoder_views(key),
    ):
        if isinstance(clips, str):
            yield i, clips
            continue
        x = mean_of_clips(clips, False).numpy()
        yield i, x if np.isfinite(x).all() else "its feature is not finite"


FILES_TOGETHER = 512  # that are looked at before they are encoded
FEW_FILES = 256  # not worth processes that decode


def _encode_files(
    network: Any,
    key: dict,
    root: Path,
    names: list[str],
    batch: int,
    options: dict,
    # returns: name, (D,) or why there is none, is it time to save?
) -> Iterator[tuple[str, np.ndarray | str, bool]]:
    "Features of files, in groups."
    from ..measure.features import SAVE_SECONDS, as_manifest
    from ..progress import progress_bar
    from ..training.machine import Machine

    machine = Machine(**options)
    workers = machine.workers if len(names) > FEW_FILES else 0
    quiet = replace(machine, progress=False, workers=workers)
    hidden = not machine.progress or not names
    saved = time.monotonic()
    with progress_bar(total=len(names), desc="index", unit="video", disable=hidden) as bar:
        for i in range(0, len(names), FILES_TOGETHER):
            manifest = as_manifest([root / n for n in names[i : i + FILES_TOGETHER]])
            for row, x in _features(network, key, manifest, batch, quiet):
                bar.update()
                save = time.monotonic() - saved > SAVE_SECONDS
                yield names[i + row], x, save
                if save:
                    saved = time.monotonic()


def update_index(
    folder: Path,  # where the index is kept, or will be
    root: Path,  # the folder of the videos
    encoder: EncoderFile,  # from `describe_encoder`
    clips: int = 10,  # per video
    batch: int = 64,  # clips that go through the encoder together
    new: bool = True,  # look for new, changed and vanished files; False: the index as it is
    **machine,  # of `machine.Machine`: device, workers, progress
    # returns: the index; how many were encoded, and how many are gone
) -> tuple[SearchIndex, tuple[int, int]]:
    "The index of a folder as it is now. `SearchError`, `VideoError`, `CheckpointError`."
    folder, root = Path(folder), Path(root)
    key = index_key(encoder, clips)
    old = open_index(folder, root)
    if not old and not new:
        raise SearchError(f"{folder}: there is no index yet; leave out --no-update")
    known: dict[str, Stamp] = {}
    if old:
        known = old.videos | {name: entry[:2] for name, entry in old.bad.items()}
    files = video_files(root) if new else known
    if old:
        _refuse_other_index(old, key, known, files)

    todo = [name for name, stamp in files.items() if known.get(name) != stamp]
    gone = len(known.keys() - files.keys())
    if old and not todo and not gone:
        return old, (0, 0)
    expect_writable(folder, "--index", folder=True)
    code = old.code if old else ""
    network = None
    if todo:
        _refuse_repeated_clips(key, [root / name for name in todo])
        network, code = encoder.network
    if old:
        _check_code(old, code, encoder)
    growing = _GrowingIndex(folder, root, key, str(encoder.path), code, files)
    if old:
        growing.keep_unchanged(old)
    try:  # the index is whole at any time, and holds what is encoded so far
        for name, x, save in _encode_files(network, key, root, todo, batch, machine):
            growing.add(name, x)
            if save:
                growing.write()
    finally:
        index = growing.write()
    if not index:
        first = min(growing.bad)
        raise SearchError(
            f"{root}: not one of its {len(files)} videos can be read; the first is {first}: "
            f"{growing.bad[first][2]}"
        )
    return index, (len(todo), gone)


def _refuse_repeated_clips(
    key: dict[str, Any],  # of the index
    files: list[Path],  # to encode
) -> None:
    "Refuse more clips than every video has, and more than usual. ValueError."
    from ..measure.features import as_manifest, encoder_protocol
    from ..measure.windows import refuse_repeated_clips

    def rows():
        for i in range(0, len(files), FILES_TOGETHER):
            yield from as_manifest(files[i : i + FILES_TOGETHER]).rows

    refuse_repeated_clips(encoder_protocol(key), rows(), DEFAULT_CLIPS)


@dataclass
class _GrowingIndex:
    "An index while files are encoded."

    folder: Path  # where the index is kept
    root: Path  # the folder of the videos
    key: dict[str, Any]  # of `index_key`
    encoder: str  # path of its file
    code: str  # fingerprint of the encoder with its code
    files: dict[str, Stamp]  # of the folder
    kept: dict[str, np.ndarray] = field(default_factory=dict)  # name -> feature
    # name -> bytes, time, and why it could not be read
    bad: dict[str, tuple[int, int, str]] = field(default_factory=dict)

    def keep_unchanged(self, old: SearchIndex) -> None:
        "Take over what an index knows of files that have not changed."
        for (name, stamp), x in zip(old.videos.items(), np.asarray(old.x)):
            if self.files.get(name) == stamp:
                self.kept[name] = x
        for name, entry in old.bad.items():
            if self.files.get(name) == entry[:2]:
                self.bad[name] = entry

    def add(
        self,
        name: str,
        x: np.ndarray | str,  # its feature, or why there is none
    ) -> None:
        if isinstance(x, str):
            self.bad[name] = (*self.files[name], x)
        else:
            self.kept[name] = x

    def write(self) -> SearchIndex | None:
        "Write the index; None where no video could be read."
        if not self.kept:
            return None
        names = [name for name in self.files if name in self.kept]
        x = np.stack([self.kept[name] for name in names])
        index = SearchIndex(
            self.folder,
            self.root,
            self.key,
            self.encoder,
            {name: self.files[name] for name in names},
            dict(sorted(self.bad.items())),
            x,
            x.mean(0, dtype=np.float64),
            self.code,
        )
        return write_index(index)


def _refuse_other_index(
    old: SearchIndex,
    key: dict[str, Any],  # of the encoder
    known: dict[str, Stamp],  # files of the index
    files: dict[str, Stamp],  # files of the folder
) -> None:
    "Refuse an index of another encoder, or of other videos. `SearchError`."
    for name in {**old.key, **key}:
        before, now = old.key.get(name), key.get(name)
        if before != now:
            raise SearchError(f"{old.folder}: {_other_index(old, name, before, now)}")
    if len(old) > 1 and not known.keys() & files.keys():
        raise SearchError(
            f"{old.folder}: is an index of other videos: none of its {len(old)} is in {old.root}; "
            "name another folder with --index"
        )


def _other_index(
    old: SearchIndex,
    name: str,  # of a field of its key
    before: Any,  # its value in the index
    now: Any,  # the value that was asked for
) -> str:
    "Why an index does not serve, in words, and what to do."
    if name == "encoder":
        return f"is an index of another encoder, {old.encoder}; name another folder with --index"
    if name == "clips":
        return (
            f"is an index of {before} clips a video, and {now} were asked for; leave out --clips, "
            "or name another folder with --index and the encoder with --encoder"
        )
    return (
        f"is an index of clips with {name}={before}, and the encoder takes {now}; name another "
        "folder with --index"
    )


HIDDEN = ".vssl-search"  # in the folder of the videos
DEFAULT_CLIPS = 10  # of a video, in a new index; an encoder of pictures declares its own


def choose_index(
    root: Path,  # the folder of the videos
    encoder: Path | None = None,  # run folder or encoder.safetensors; None: that of the index
    folder: Path | None = None,  # of the index; None: one in the folder of the videos
    # per video; None: as in the index; in a new one as the encoder declares, else 10
    clips: int | None = None,
) -> tuple[Path, EncoderFile, int]:  # folder of the index, encoder, clips
    "Which index is meant. `SearchError` where none can be."
    if not root.is_dir():
        video_files(root)  # raises
    if encoder:
        described = describe_encoder(encoder)
        usual = described.about.get("clips", DEFAULT_CLIPS)
        if folder:
            kept = read_about(folder).get("key", {}).get("clips", usual)
            return folder, described, clips or kept
        clips = clips or usual
        key = index_key(described, clips)
        sha = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]
        view = described.about["view"].replace(":", "-")
        return root / HIDDEN / f"{view}-{sha}", described, clips

    folder, about = _only_index(root, folder)
    made_with = about["encoder"]
    if not (of_hub(made_with) or Path(made_with).is_file()):
        raise SearchError(
            f"{folder}: was made with the encoder {made_with}, which is gone; say where it is "
            "with --encoder"
        )
    return folder, describe_encoder(made_with), clips or about["key"]["clips"]


def _only_index(
    root: Path,  # the folder of the videos
    folder: Path | None,  # of the index; None: one in the folder of the videos
) -> tuple[Path, dict[str, Any]]:  # its folder, and what it says of itself
    "The index that is there. `SearchError` where there is none, or more than one."
    folders = [folder] if folder else sorted(p.parent for p in (root / HIDDEN).glob("*/index.json"))
    abouts = {path: read_about(path) for path in folders}
    indexes = {path: about for path, about in abouts.items() if about}
    if not indexes:
        name = shlex.quote(str(root))
        raise SearchError(
            f"{root}: has no index yet, and to make one takes an encoder: name a run with "
            "--encoder RUN, or --encoder published:efficientnet-lite0 (pip install "
            "'vssl_nb[published]'); or train one with `vssl-nb manifest "
            f"{name}` and `vssl-nb pretrain infonce-laptop-rgb --data {name}`"
        )
    if len(indexes) > 1:
        encoders = ", ".join(about["encoder"] for about in indexes.values())
        raise SearchError(
            f"{root}: has {len(indexes)} indexes, of the encoders {encoders}; name one with "
            "--encoder"
        )
    return next(iter(indexes.items()))


# -- queries


class Query(NamedTuple):
    "A video, or a span of one, whose like is searched for."

    text: str  # as it was given
    path: Path  # the file
    span: tuple[float, float] | None = None  # seconds; None: all of it
    name: str = ""  # in the index; '': it is not there


def parse_query(
    text: str,  # a file, or file@from-to in seconds
    root: Path,  # the folder of the videos, where the file is looked for, too
    known: Iterable[str] = (),  # names in the index
) -> Query:
    "The file and the span of a query. `SearchError`."
    path = _existing(text, root)
    if path and not path.is_dir():
        return Query(text, path, None, _name_in_index(path, root, known))
    file, at, span = text.rpartition("@")
    if path is None and at:
        path = _existing(file, root)
    if path is None:
        raise SearchError(
            f"{file if at else text}: there is no such file, neither here nor in {root}; name a "
            "video, or a span of one such as clip.mp4@12.5-15"
        )
    if path.is_dir():
        raise SearchError(f"{path}: is a folder; name a video")
    seconds = re.fullmatch(r"(\d+\.?\d*)-(\d+\.?\d*)", span)
    if not seconds or float(seconds[1]) >= float(seconds[2]):
        raise SearchError(
            f"{text}: {span!r} is no span of time; give the seconds from-to, the first one "
            "smaller, such as @12.5-15"
        )
    from_to = (float(seconds[1]), float(seconds[2]))
    return Query(text, path, from_to, _name_in_index(path, root, known))


def _existing(name: str, root: Path) -> Path | None:
    "A file or folder of that name, here or in the folder of the videos."
    if not name:
        return None
    for path in (Path(name), root / name):
        if path.exists():
            return path
    return None


def _name_in_index(path: Path, root: Path, known: Iterable[str]) -> str:  # '' where it is not there
    "What an index calls a file, with links followed or not."
    for file, folder in ((path.absolute(), root.absolute()), (path.resolve(), root.resolve())):
        name = Path(os.path.relpath(file, folder)).as_posix()
        if name in known:
            return name
    return ""


def span_frames(
    query: Query,
    frames: int,  # of the file
    fps: float,  # of the file
) -> tuple[int, int]:  # the query's first frame, how many
    "The frames of a query. `SearchError` where the span leads out of the video."
    if query.span is None:
        return 0, frames
    if not fps:
        raise SearchError(
            f"{query.path}: does not say how many frames a second has; search for the whole video"
        )
    first, end = round(query.span[0] * fps), round(query.span[1] * fps)
    if end > frames + 1:
        raise SearchError(
            f"{query.text}: the video lasts {frames / fps:.2f} s; give a span within it"
        )
    return first, max(min(end, frames) - first, 1)


def query_manifest(
    queries: Sequence[Query],
) -> Any:  # a manifest with a row each, which begins and ends with its span
    "The videos that are asked for, cut to their spans. `SearchError`."
    from ..data.manifest import Manifest
    from ..measure.features import as_manifest

    table = as_manifest([q.path for q in queries])
    for query, row in zip(queries, table.rows):
        if row.status != "ok":
            raise SearchError(f"{query.path}: {row.status}; search for another video")
    spans = [span_frames(q, r.frames, r.fps) for q, r in zip(queries, table.rows)]

    class Cut(Manifest):
        def decode(self, row, numbers, stream="clips"):
            return super().decode(row, [int(i) + spans[row][0] for i in numbers], stream)

    return Cut(table.path, [replace(r, frames=n) for r, (_, n) in zip(table.rows, spans)])


def query_features(
    index: SearchIndex,
    queries: Sequence[Query],
    encoder: EncoderFile,
    batch: int = 64,  # as in `update_index`
    **machine,  # as in `update_index`
) -> np.ndarray:  # (Q, D) float32
    "The features of queries: from the index, or from the encoder. `SearchError`."
    rows = {name: i for i, name in enumerate(index.videos)}
    known = [q.span is None and index.videos.get(q.name) == _stamp(q.path) for q in queries]
    new = [q for q, is_known in zip(queries, known) if not is_known]
    encoded = iter(_encode_queries(index, new, encoder, batch, machine) if new else [])
    features = []
    for query, is_known in zip(queries, known):
        features.append(index.x[rows[query.name]] if is_known else next(encoded))
    return np.stack(features)


def _encode_queries(
    index: SearchIndex,
    queries: Sequence[Query],
    encoder: EncoderFile,
    batch: int,  # as in `update_index`
    machine: dict[str, Any],  # as in `update_index`
) -> list[np.ndarray]:  # each (D,) float32
    "The features of queries, from the encoder. `SearchError`."
    from ..training.machine import Machine

    table = query_manifest(queries)
    network, code = encoder.network
    _check_code(index, code, encoder)
    quiet = Machine(**machine | {"workers": 0, "progress": False})
    features: dict[int, np.ndarray] = {}
    for i, x in _features(network, index.key, table, batch, quiet):
        if isinstance(x, str):
            raise SearchError(f"{queries[i].path}: {x}; search for another video")
        features[i] = x
    return [features[i] for i in range(len(queries))]


# -- the nearest videos


class Hit(NamedTuple):
    "One of the nearest videos."

    video: str  # its name in the folder
    # 1 is the nearest; files with the same bytes share a rank, and a copy of the query has 0
    rank: int
    similarity: float  # cosine after the mean of the folder is taken off, -1 to 1


def find_nearest(
    index: SearchIndex,
    queries: Sequence[Query],
    x: np.ndarray,  # (Q, D) their features
    k: int = 10,  # how many for each
) -> list[list[Hit]]:  # for each query, the nearest first
    "The nearest videos of each query."
    if k < 1:
        raise SearchError(f"k={k} finds nothing; take 1 or more")
    names = list(index.videos)
    together = max(1, 2**26 // len(names))  # queries at a time: 256 MiB of cosines
    hits: list[list[Hit]] = []
    for i in range(0, len(x), together):
        sim = centred_cosines(x[i : i + together], index.x, index.mean)
        for query, row in zip(queries[i : i + together], sim):
            hits.append(_ranked(index, names, row, k, query.name))
    return hits


def _ranked(
    index: SearchIndex,
    names: Sequence[str],  # of its videos
    sim: np.ndarray,  # (N,)
    k: int,
    leave_out: str,  # name of the query in the index; '': it is not there
) -> list[Hit]:
    "The videos of the k best ranks; more of them are looked at where many are copies."
    most = k + 8
    while True:
        best = {names[j]: float(sim[j]) for j in nearest(sim, most)}
        ranks = _ranks(index, best, leave_out)
        if max(ranks.values()) > k or most >= len(names):
            break
        most *= 4
    hits = [Hit(n, ranks[n], cosine) for n, cosine in best.items() if n != leave_out]
    return sorted((h for h in hits if h.rank <= k), key=lambda h: h.rank)


def _ranks(
    index: SearchIndex,
    best: Iterable[str],  # names, the nearest first
    leave_out: str,  # as of `_ranked`
) -> dict[str, int]:  # name -> rank
    "Ranks from 1; files with the same bytes share one, and the query and its copies have 0."
    candidates = [*best, leave_out] if leave_out else [*best]
    groups = equal_files({name: index.root / name for name in candidates})
    original = {name: group[0] for group in groups for name in group}  # of each copy
    ranks: dict[str, int] = {}  # of originals
    if leave_out:
        ranks[original.get(leave_out, leave_out)] = 0
    first = 0 if leave_out else 1
    for name in best:
        ranks.setdefault(original.get(name, name), len(ranks) + first)
    return {name: ranks[original.get(name, name)] for name in best}


# -- answers


def as_text(
    queries: Sequence[Query],
    hits: Sequence[Sequence[Hit]],  # of each
) -> str:
    "The answers for a terminal."
    lines = []
    for query, hits_of_query in zip(queries, hits):
        lines.append(query.text)
        for hit, *copies in _folded(hits_of_query):
            names = " = ".join([hit.video, *(copy.video for copy in copies)])
            lines.append(f"{hit.rank or '=':>4}  {hit.similarity:6.3f}  {names}")
    return "\n".join(lines)


def _folded(
    hits: Sequence[Hit],  # of one query
) -> list[list[Hit]]:
    "The hits of each rank: one video, and its copies."
    return [list(same) for _, same in itertools.groupby(hits, key=lambda h: h.rank)]


def write_answers(
    path: Path,  # .csv, .json or .html
    index: Any,  # a `SearchIndex`, or the windows of `app.spans`
    queries: Sequence[Query],
    hits: Sequence[Sequence[Hit]],
) -> Path:
    "The answers as a file of that kind."
    from ..measure.features import write_csv

    if path.suffix not in output_suffixes("search"):
        raise SearchError(f"{path}: is no .csv, .json or .html")
    if path.suffix == ".html":
        return write_wall(path, index, queries, hits)
    rows = []
    for query, hits_of_query in zip(queries, hits):
        for hit in hits_of_query:
            rows.append(
                {
                    "query": query.text,
                    "rank": hit.rank,
                    "similarity": round(hit.similarity, 6),
                    "video": hit.video,
                }
            )
    if path.suffix == ".json":
        return _write(path, json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    heads = ("query", "rank", "similarity", "video")
    return write_csv(path, [heads, *(tuple(row.values()) for row in rows)])


# -- a page on which queries and answers play

PREVIEW_SECONDS = 6.0  # of a preview, at most
PREVIEW_SIDE = 160  # px of its shorter side


@lru_cache(256)  # the same video may be near several queries
def preview(
    query: Query,
) -> bytes:  # an H.264 .mp4, that every browser plays
    "A small copy for a page. `VideoError`."
    import torch

    from ..data.video import crop_resize, encode, iter_frames, probe

    p = probe(query.path)
    fps = p.fps or 25.0
    first, n = span_frames(query, p.frames, p.fps)
    last = first + min(n, round(PREVIEW_SECONDS * fps))
    scale = min(1.0, PREVIEW_SIDE / min(p.height, p.width))
    size = [max(2, 2 * round(side * scale / 2)) for side in (p.height, p.width)]  # even
    frames = itertools.islice(iter_frames(query.path), first, last)
    x = torch.cat([crop_resize(torch.from_numpy(frame)[None], size=size) for frame in frames])
    with tempfile.TemporaryDirectory() as folder:
        return encode(Path(folder) / "preview.mp4", x, fps=fps, crf=30).read_bytes()


def _tile(
    page: Path,  # that the tile stands on
    query: Query,
    title: str,
) -> str:  # HTML
    "One video of the wall."
    from ..data.video import VideoError

    path = os.path.relpath(query.path.absolute(), page.absolute().parent)
    link = quote(path.replace(os.sep, "/"))
    if query.span:  # players begin and end there
        link += f"#t={query.span[0]:g},{query.span[1]:g}"
    try:
        data = b64encode(preview(query)).decode()
        film = (
            f'<video src="data:video/mp4;base64,{data}" '
            'muted loop playsinline preload="metadata"></video>'
        )
    except VideoError as e:
        film = f'<div class="none">{html.escape(e.reason)}</div>'
    name = html.escape(query.name or query.text)
    caption = f'<b>{html.escape(title)}</b><br><a href="{link}">{name}</a>'
    return f"<figure>{film}<figcaption>{caption}</figcaption></figure>"


def _answer(
    hit: Hit,
    root: Path,  # the folder of the videos
) -> Query:
    "A hit as what is played: a video, or a span of one."
    path = root / hit.video
    name, _, span = hit.video.rpartition("@")
    seconds = re.fullmatch(r"(\d+\.\d+)-(\d+\.\d+)", span)
    if path.exists() or not seconds:
        return Query(hit.video, path, None, hit.video)
    return Query(hit.video, root / name, (float(seconds[1]), float(seconds[2])), hit.video)


def write_wall(
    path: Path,  # .html
    index: Any,  # a `SearchIndex`, or the windows of `app.spans`
    queries: Sequence[Query],
    hits: Sequence[Sequence[Hit]],
) -> Path:
    "A page of queries and their nearest videos, all playing."
    sections = []
    for query, hits_of_query in zip(queries, hits):
        title = f"{query.span[0]:g}–{query.span[1]:g} s" if query.span else "query"
        tiles = []
        for hit, *copies in _folded(hits_of_query):
            if not hit.rank:
                continue  # a copy of the query
            text = f"{hit.rank} · {hit.similarity:.3f}"
            if copies:
                text += f" · {len(copies)} copies"
            tiles.append(_tile(path, _answer(hit, index.root), text))
        first = f'<div class="query">{_tile(path, query, title)}</div>'
        sections.append(f"<section>{first}{''.join(tiles)}</section>")
    name = "/".join(Path(index.encoder).parts[-2:])
    about = html.escape(
        f"The nearest of {index.counted}, by the encoder {name}. The number is a cosine: 1 is the "
        "same, 0 is no more alike than any two, below 0 less."
    )
    page = Path(__file__).with_name("wall.html").read_text(encoding="utf-8")
    page = page.replace("ABOUT", about).replace("<!--sections-->", "".join(sections))
    return _write(path, page)
