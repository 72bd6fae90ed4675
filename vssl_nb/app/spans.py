"""Spans inside long videos that are most like a span: every window of every video is encoded once
and kept, and windows that follow each other are compared together.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..data.manifest import Manifest
from ..data.sampling import sliding_clips
from ..files import remove_leftovers, write_whole
from ..measure.features import as_manifest, encoder_protocol, encoder_views, extract_clips
from ..measure.protocols import Protocol
from ..names import of_hub
from ..paths import expect_writable
from ..progress import progress_bar
from ..training.machine import Machine
from .search import (
    HIDDEN,
    KEY_FIELDS,
    EncoderFile,
    Hit,
    Query,
    SearchError,
    Stamp,
    centred_cosines,
    choose_index,
    describe_encoder,
    query_manifest,
    video_files,
)

USUAL_FPS = 25.0  # of a file that does not tell
TOGETHER = 64  # files that are looked at before they are encoded


@dataclass(frozen=True)
class Windows:
    "Features of the windows of one video, each half a window after the one before."

    x: np.ndarray  # (n, D) float32
    step: int  # frames from one to the next
    length: int  # frames of a window
    frames: int  # of the video
    fps: float

    def seconds(
        self,
        first: int,  # window
        count: int,  # windows
    ) -> tuple[float, float]:  # from, to
        "The time of some windows that follow each other."
        begin = first * self.step
        end = min((first + count - 1) * self.step + self.length, self.frames)
        return begin / self.fps, end / self.fps


@dataclass
class SpanIndex:
    "The windows of all videos of a folder."

    folder: Path  # where they are kept
    root: Path  # the folder of the videos
    encoder: str  # path of its file
    videos: dict[str, Windows]
    bad: dict[str, str]  # name -> why it could not be read

    @property
    def counted(self) -> str:
        "What was searched."
        windows = sum(len(w.x) for w in self.videos.values())
        return f"{windows} windows of {len(self.videos)} videos"

    def __repr__(self):
        text = f"{self.counted} of {self.root}"
        return f"SpanIndex({text}{f', {len(self.bad)} unreadable' if self.bad else ''})"

    def __len__(self) -> int:
        return len(self.videos)

    def mean(self) -> np.ndarray:  # (D,) float64
        "Of all windows."
        total = sum(w.x.sum(0, dtype=np.float64) for w in self.videos.values())
        return total / sum(len(w.x) for w in self.videos.values())


def choose_spans(
    root: Path,  # the folder of the videos
    encoder: Path | None = None,  # None: that of the windows or of the index that are there
) -> tuple[Path, EncoderFile]:  # the folder of the windows, and their encoder
    "Which windows are meant. `SearchError` where that is open."
    if not root.is_dir():
        video_files(root)  # raises
    described = describe_encoder(encoder) if encoder else _known_encoder(root)
    about = {k: described.about[k] for k in KEY_FIELDS if k in described.about}
    key = json.dumps({"encoder": described.sha256, **about}, sort_keys=True)
    digest = hashlib.sha256(key.encode()).hexdigest()[:12]
    return root / HIDDEN / f"spans-{digest}", described


def _known_encoder(root: Path) -> EncoderFile:
    "The encoder of the windows that are there, else of the index."
    encoders = set()
    for file in sorted((root / HIDDEN).glob("spans-*/spans.json")):
        try:
            encoders.add(json.loads(file.read_text(encoding="utf-8"))["encoder"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    if len(encoders) > 1:
        raise SearchError(
            f"{root}: has windows of {len(encoders)} encoders, {', '.join(sorted(encoders))}; name "
            "one with --encoder"
        )
    for path in encoders:
        if of_hub(path) or Path(path).is_file():
            return describe_encoder(path)
        raise SearchError(
            f"{root}: its windows were made with the encoder {path}, which is gone; say where it "
            "is with --encoder"
        )
    _, described, _ = choose_index(root)
    return described


# -- the windows of all videos


def update_spans(
    folder: Path,  # of `choose_spans`
    root: Path,  # the folder of the videos
    encoder: EncoderFile,
    batch: int = 64,  # clips that go through the encoder together
    new: bool = True,  # look for new and changed files; False: the windows as they are
    **machine,  # of `machine.Machine`: device, workers, progress
) -> tuple[SpanIndex, int]:  # and how many videos were encoded
    "The windows of a folder as it is now; each video is kept as soon as it is encoded."
    files = video_files(root)
    known = {name: _kept(folder, name, stamp) for name, stamp in files.items()}
    todo = [name for name, windows in known.items() if windows is None]
    if not new and len(todo) == len(files):
        raise SearchError(f"{folder}: there are no windows yet; leave out --no-update")
    videos = {name: windows for name, windows in known.items() if windows is not None}
    bad: dict[str, str] = {}
    encoded = 0
    if todo and new:
        expect_writable(folder, folder=True)
        about = {"encoder": str(encoder.path), "vssl_nb": __version__}
        text = json.dumps(about).encode()
        write_whole(folder / "spans.json", lambda f: f.write(text), SearchError)
        for name, windows in _encode(root, todo, encoder, batch, machine):
            encoded += 1
            if isinstance(windows, str):
                bad[name] = windows
                continue
            _keep(folder, name, files[name], windows)
            videos[name] = windows
        _forget_others(folder, files)
    if not videos:
        first = min(bad)
        raise SearchError(
            f"{root}: not one of its {len(files)} videos can be read; the first is {first}: "
            f"{bad[first]}"
        )
    ordered = {name: videos[name] for name in files if name in videos}
    return SpanIndex(folder, root, str(encoder.path), ordered, bad), encoded


def _file_of(folder: Path, name: str) -> Path:
    return folder / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.npz"


def _keep(folder: Path, name: str, stamp: Stamp, w: Windows) -> None:
    facts = np.array([*stamp, w.step, w.length, w.frames], np.int64)
    write_whole(
        _file_of(folder, name),
        lambda f: np.savez(f, x=w.x, facts=facts, fps=np.array(w.fps)),
        SearchError,
    )


def _kept(folder: Path, name: str, stamp: Stamp) -> Windows | None:
    "The windows of a file that has not changed; None where there are none, or no whole ones."
    try:
        with np.load(_file_of(folder, name), allow_pickle=False) as f:
            size, time, step, length, frames = f["facts"].tolist()
            if (size, time) != tuple(stamp):
                return None
            return Windows(f["x"], step, length, frames, float(f["fps"]))
    except Exception:  # a damaged file may raise anything; it is made anew
        return None


def _forget_others(folder: Path, files: Mapping[str, Stamp]) -> None:
    "Remove the windows of files that are gone."
    remove_leftovers(folder)
    wanted = {_file_of(folder, name) for name in files}
    for path in folder.glob("*.npz"):
        if path not in wanted:
            path.unlink(missing_ok=True)


def _sliding(about: Mapping[str, Any]) -> Protocol:
    return encoder_protocol({**about, "clips": 1}, windows="sliding")


def _encode(
    root: Path,
    names: Sequence[str],
    encoder: EncoderFile,
    batch: int,
    machine: Mapping[str, Any],
) -> Iterator[tuple[str, Windows | str]]:  # or why there are none
    options = Machine(**machine)
    quiet = replace(options, progress=False)
    hidden = not options.progress
    with progress_bar(total=len(names), desc="windows", unit="video", disable=hidden) as bar:
        for i in range(0, len(names), TOGETHER):
            table = as_manifest([root / name for name in names[i : i + TOGETHER]])
            for row, windows in _windows(table, encoder, batch, quiet):
                bar.update()
                yield names[i + row], windows


def _windows(
    table: Manifest,
    encoder: EncoderFile,
    batch: int,
    machine: Machine,
) -> Iterator[tuple[int, Windows | str]]:  # row, and its windows or why there are none
    network, _ = encoder.network
    p = _sliding(encoder.about)
    several = sliding_clips(4 * p.length * p.stride, length=p.length, stride=p.stride)
    step = int(several[1, 0] - several[0, 0])
    readable = [i for i, row in enumerate(table.rows) if row.status == "ok"]
    yield from ((i, row.status) for i, row in enumerate(table.rows) if row.status != "ok")
    for i, x in extract_clips(
        network,
        table,
        readable,
        encoder.about["view"],
        p,
        batch=batch,
        machine=machine,
        **encoder_views(encoder.about),
    ):
        row = table.rows[i]
        if isinstance(x, str):
            yield i, x
        elif not np.isfinite(x.numpy()).all():
            yield i, "its features are not finite"
        else:
            span = (p.length - 1) * p.stride + 1
            yield i, Windows(x.numpy(), step, span, row.frames, row.fps or USUAL_FPS)


# -- queries


def span_features(
    queries: Sequence[Query],
    encoder: EncoderFile,
    batch: int = 64,  # as of `update_spans`
    **machine,  # as of `update_spans`
) -> list[Windows]:  # of each query
    "The windows of the spans that are asked for. `SearchError`."
    quiet = Machine(**machine | {"workers": 0, "progress": False})
    windows: dict[int, Windows] = {}
    for i, some in _windows(query_manifest(queries), encoder, batch, quiet):
        if isinstance(some, str):
            raise SearchError(f"{queries[i].path}: {some}; search for another video")
        windows[i] = some
    return [windows[i] for i in range(len(queries))]


def nearest_spans(
    index: SpanIndex,
    query: Query,
    windows: Windows,  # of the query
    k: int = 10,  # how many
) -> list[Hit]:  # the nearest first, named file@from-to
    """Spans as long as the query, of which no two of a video overlap by more than half; the span
    itself is left out.
    """
    if k < 1:
        raise SearchError(f"k={k} finds nothing; take 1 or more")
    mean = index.mean()
    target = windows.x.mean(0, dtype=np.float64)[None]
    candidates: list[tuple[float, str, float, float]] = []
    for name, w in index.videos.items():
        # as many windows as last as long as the query
        n = _count(w, len(windows.x), windows)
        x = _running_mean(w.x, n)
        similarity = centred_cosines(target, x, mean)[0]
        for first in _peaks(similarity, max(n // 2, 1)):
            begin, end = w.seconds(first, n)
            if name != query.name or not _overlap(query, begin, end):
                candidates.append((float(similarity[first]), name, begin, end))
    candidates.sort(key=lambda c: (-c[0], c[1], c[2]))
    return [
        Hit(f"{name}@{begin:.2f}-{end:.2f}", rank, similarity)
        for rank, (similarity, name, begin, end) in enumerate(candidates[:k], 1)
    ]


def _count(
    w: Windows,  # of a video
    n: int,  # windows of the query
    query: Windows,
) -> int:  # windows of the video that last as long
    steps = (n - 1) * query.step / query.fps * w.fps / w.step
    return min(round(steps) + 1, len(w.x))


def _running_mean(
    x: np.ndarray,  # (n, D)
    width: int,  # 1 to n
) -> np.ndarray:  # (n - width + 1, D)
    total = np.cumsum(np.concatenate([np.zeros((1, x.shape[1])), x.astype(np.float64)]), 0)
    return (total[width:] - total[:-width]) / width


def _peaks(
    similarity: np.ndarray,  # (n,)
    apart: int,  # windows between two, at least
) -> list[int]:  # the highest first
    "The best, then the best of what is far enough from it, and so on."
    free = np.ones(len(similarity), bool)
    chosen: list[int] = []
    for i in np.argsort(-similarity, kind="stable").tolist():
        if free[i]:
            chosen.append(i)
            free[max(i - apart, 0) : i + apart + 1] = False
    return chosen


def _overlap(query: Query, begin: float, end: float) -> bool:
    "Does a span of the query's own video overlap it?"
    if query.span is None:
        return True
    return min(query.span[1], end) > max(query.span[0], begin)
