"""Search by example: the videos of a folder that are most like a video, by an index of their
features.
"""

import hashlib, html, itertools, json, os, re, shlex, tempfile, time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from safetensors import SafetensorError, safe_open

from .. import __version__
from ..files import equal_files
from ..outputs import output_suffixes
from ..paths import expect_run, expect_writable, video_paths
from ..names import of_hub

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

    q, sim = query.astype(np.float64) - mean, np.empty((len(query), len(x)), np.float32)
    q /= length(q)[:, None]
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
    at = np.flatnonzero(sim >= np.partition(sim, len(sim) - k)[len(sim) - k])
    return at[np.lexsort((at, -sim[at]))][:k]


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


def describe_encoder(
    path,  # a run folder, the encoder.safetensors of one, or hf:NAME
) -> EncoderFile:
    "The header of an encoder's file, read without PyTorch. `SearchError`."
    given = Path(path)
    if of_hub(path):  # which takes PyTorch: only its weights tell whether it is the same
        from ..measure.features import fingerprint

        network, (library, _, folder) = hub_network(str(path)), str(path).partition(":")
        if library != "torchvision" and Path(folder).is_dir():
            given = Path(f"{library}:{Path(folder).resolve()}")
        return EncoderFile(given, fingerprint(network), network.about(), given)
    if (given / "recipe.json").exists():
        expect_run(given)
    file = given / "encoder.safetensors" if given.is_dir() else given
    fault = (
        "is a folder without an encoder.safetensors" if given.is_dir() else "there is no such file"
    )
    if not file.is_file():
        raise SearchError(
            f"{given}: {fault}; name a run folder, or its encoder.safetensors, with --encoder"
        )
    try:
        with safe_open(file, "np") as f:
            about = json.loads((f.metadata() or {}).get("vssl_nb", "null"))
    except (SafetensorError, OSError, ValueError) as e:
        raise SearchError(
            f"{file}: is not a whole encoder.safetensors ({str(e).splitlines()[0]})"
        ) from None
    lacks = [k for k in ("backbone", "view", "length", "stride", "size") if k not in (about or {})]
    if lacks:
        raise SearchError(
            f"{file}: does not say its {', '.join(lacks)}; name an encoder that "
            "`vssl-nb pretrain` wrote with --encoder"
        )
    if about["view"] == "flow":
        raise SearchError(
            f"{file}: is an encoder of the view flow, and a folder of "
            "videos has only their frames; name one of rgb or residual with --encoder"
        )
    return EncoderFile(file.resolve(), hashlib.sha256(file.read_bytes()).hexdigest(), about, given)


def index_key(
    encoder: EncoderFile,
    clips: int = 10,  # clips per video, spread evenly
) -> dict[str, Any]:
    "All that decides the features of an index."
    if clips < 1:
        raise SearchError(f"clips={clips} makes no feature; take 1 or more")
    about = encoder.about
    names = (
        "view",
        "length",
        "stride",
        "size",
        "crops",
        "pad",
        "residual",
        "residual_scale",
        "mean",
        "std",
    )
    return {"encoder": encoder.sha256, "clips": clips, **{k: about[k] for k in names if k in about}}


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

    def __repr__(self):
        lost = f", {len(self.bad)} unreadable" if self.bad else ""
        return (
            f"SearchIndex({len(self)} videos of {self.root}, {self.x.shape[1]} numbers each{lost})"
        )


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
    if not (about := read_about(folder)):
        return None
    try:
        x = np.load(folder / about["features"], mmap_mode="r")
    except (OSError, ValueError) as e:
        raise _damaged(folder, e) from None
    mean = np.array(about["mean"])
    if x.shape != (len(about["videos"]), len(mean)):
        raise _damaged(folder, f"its features are {x.shape}")
    videos, bad = ({n: tuple(s) for n, s in about[k].items()} for k in ("videos", "bad"))
    return SearchIndex(
        folder, root, about["key"], about["encoder"], videos, bad, x, mean, about["code"]
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
    "Write a file whole or not at all. `CheckpointError`."
    from ..files import write_whole

    return write_whole(
        path, (lambda f: f.write(content.encode())) if isinstance(content, str) else content
    )


def _check_code(index: SearchIndex, code: str, encoder: EncoderFile):
    if code != index.code:
        raise SearchError(
            f"{index.folder}: was made by other code of the encoder "
            f"{encoder.path}; delete this folder and search again"
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

    yield from ((i, r.status) for i, r in enumerate(manifest.rows) if r.status != "ok")
    rows = [i for i, r in enumerate(manifest.rows) if r.status == "ok"]
    for row, clips in extract_clips(
        network,
        manifest,
        rows,
        key["view"],
        encoder_protocol(key),
        batch=batch,
        machine=machine,
        **encoder_views(key),
    ):
        x = clips if isinstance(clips, str) else mean_of_clips(clips, False).numpy()
        yield row, x if isinstance(x, str) or np.isfinite(x).all() else "its feature is not finite"


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

    machine, saved = Machine(**options), time.monotonic()
    quiet = replace(machine, progress=False, workers=machine.workers if len(names) > 256 else 0)
    quietly = not machine.progress or not names
    with progress_bar(total=len(names), desc="index", unit="video", disable=quietly) as bar:
        for i in range(0, len(names), 512):
            manifest = as_manifest([root / n for n in names[i : i + 512]])
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
    key, old = index_key(encoder, clips), open_index(folder, root)
    if not old and not new:
        raise SearchError(f"{folder}: there is no index yet; leave out --no-update")
    known = old.videos | {n: b[:2] for n, b in old.bad.items()} if old else {}
    files = video_files(root) if new else known
    differ = [k for k in {**old.key, **key} if old.key.get(k) != key.get(k)] if old else []
    if old and differ:
        raise SearchError(
            f"{folder}: is an index with another {differ[0]} "
            f"({str(old.key.get(differ[0]))[:16]}, not {str(key.get(differ[0]))[:16]}); "
            "name another folder with --index"
        )
    if old and len(old) > 1 and not known.keys() & files.keys():
        raise SearchError(
            f"{folder}: is an index "
            f"of other videos: none of its {len(old)} is in {root}; name another folder with "
            "--index"
        )
    todo = [n for n, s in files.items() if known.get(n) != s]
    gone = len(known.keys() - files.keys())
    if old and not todo and not gone:
        return old, (0, 0)
    expect_writable(folder, "--index", folder=True)
    network, code = encoder.network if todo else (None, old.code)  # type: ignore[union-attr]
    if old:
        _check_code(old, code, encoder)
    bad = {n: b for n, b in old.bad.items() if files.get(n) == b[:2]} if old else {}
    kept = (
        {n: x for (n, s), x in zip(old.videos.items(), np.asarray(old.x)) if files.get(n) == s}
        if old
        else {}
    )

    def written() -> SearchIndex:
        names = [n for n in files if n in kept]
        x = np.stack([kept[n] for n in names])
        return write_index(
            SearchIndex(
                folder,
                root,
                key,
                str(encoder.path),
                {n: files[n] for n in names},
                dict(sorted(bad.items())),
                x,
                x.mean(0, dtype=np.float64),
                code,
            )
        )

    try:  # the index is whole at any time, and holds what is encoded so far
        for name, x, save in _encode_files(network, key, root, todo, batch, machine):
            if isinstance(x, str):
                bad[name] = (*files[name], x)
            else:
                kept[name] = x
            if save and kept:
                written()
    finally:
        if kept:
            index = written()
    if not kept:
        raise SearchError(
            f"{root}: not one of its {len(files)} videos can be read; the first is "
            f"{min(bad)}: {bad[min(bad)][2]}"
        )
    return index, (len(todo), gone)


HIDDEN = ".vssl-search"  # in the folder of the videos


def choose_index(
    root: Path,  # the folder of the videos
    encoder: Path | None = None,  # run folder or encoder.safetensors; None: that of the index
    folder: Path | None = None,  # of the index; None: one in the folder of the videos
    clips: int | None = None,  # per video; None: as in the index, and 10 in a new one
) -> tuple[Path, EncoderFile, int]:  # folder of the index, encoder, clips
    "Which index is meant. `SearchError` where none can be."
    if not root.is_dir():
        video_files(root)  # raises
    if encoder:
        e = describe_encoder(encoder)
        if not folder:
            key = json.dumps(index_key(e, clips or 10), sort_keys=True)
            sha = hashlib.sha256(key.encode()).hexdigest()[:12]
            folder = root / HIDDEN / f"{e.about['view'].replace(':', '-')}-{sha}"
        return folder, e, clips or read_about(folder).get("key", {}).get("clips", 10)
    folders = [folder] if folder else sorted(p.parent for p in (root / HIDDEN).glob("*/index.json"))
    indexes = {p: about for p in folders if (about := read_about(p))}
    name = shlex.quote(str(root))
    if not indexes:
        raise SearchError(
            f"{root}: has no index yet, and to make one takes an encoder: name a "
            "run with --encoder RUN. There are no pretrained ones; train one with `vssl-nb "
            f"manifest {name}` and "
            f"`vssl-nb pretrain infonce-laptop-rgb --data {name}`"
        )
    if len(indexes) > 1:
        raise SearchError(
            f"{root}: has {len(indexes)} indexes, of the encoders "
            f"{', '.join(a['encoder'] for a in indexes.values())}; name one with --encoder"
        )
    [(place, about)] = indexes.items()
    if not (of_hub(about["encoder"]) or Path(about["encoder"]).is_file()):
        raise SearchError(
            f"{place}: was made with the encoder {about['encoder']}, which is "
            "gone; say where it is with --encoder"
        )
    return place, describe_encoder(about["encoder"]), clips or about["key"]["clips"]


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

    def existing(name):
        return next((p for p in (Path(name), root / name) if name and p.exists()), None)

    file, at, span = text.rpartition("@")
    path = whole = existing(text)
    if at and not whole:
        path = existing(file)
    if path is None:
        raise SearchError(
            f"{file if at else text}: there is no such file, neither here nor in "
            f"{root}; name a video, or a span of one such as clip.mp4@12.5-15"
        )
    if path.is_dir():
        raise SearchError(f"{path}: is a folder; name a video")
    places = ((path.absolute(), root.absolute()), (path.resolve(), root.resolve()))
    name = next((n for p in places if (n := Path(os.path.relpath(*p)).as_posix()) in known), "")
    if whole:
        return Query(text, path, None, name)
    hit = re.fullmatch(r"(\d+\.?\d*)-(\d+\.?\d*)", span)
    if not hit or float(hit[1]) >= float(hit[2]):
        raise SearchError(
            f"{text}: {span!r} is no span of time; "
            "give the seconds from-to, the first one smaller, such as @12.5-15"
        )
    return Query(text, path, (float(hit[1]), float(hit[2])), name)


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


def query_features(
    index: SearchIndex,
    queries: Sequence[Query],
    encoder: EncoderFile,
    batch: int = 64,  # as in `update_index`
    **machine,  # as in `update_index`
) -> np.ndarray:  # (Q, D) float32
    "The features of queries: from the index, or from the encoder. `SearchError`."
    at = {n: i for i, n in enumerate(index.videos)}
    known = [not q.span and index.videos.get(q.name) == _stamp(q.path) for q in queries]
    new = [q for q, old in zip(queries, known) if not old]
    if not new:
        return np.stack([index.x[at[q.name]] for q in queries])
    from ..data.manifest import Manifest
    from ..measure.features import as_manifest
    from ..training.machine import Machine

    table = as_manifest([q.path for q in new])

    def check(
        q,
        status,  # 'ok', a feature, or why there is none
    ):
        if isinstance(status, str) and status != "ok":
            raise SearchError(f"{q.path}: {status}; search for another video")

    for q, r in zip(new, table.rows):
        check(q, r.status)
    spans = [span_frames(q, r.frames, r.fps) for q, r in zip(new, table.rows)]

    class Spans(Manifest):  # frame 0 of a row is the first of its span
        def decode(self, row, numbers, stream="clips"):
            return super().decode(row, [int(i) + spans[row][0] for i in numbers], stream)

    rows = [replace(r, frames=n) for r, (_, n) in zip(table.rows, spans)]
    network, code = encoder.network
    _check_code(index, code, encoder)
    quiet = Machine(**machine | {"workers": 0, "progress": False})
    features = dict(_features(network, index.key, Spans(table.path, rows), batch, quiet))
    for row, x in features.items():
        check(new[row], x)
    return np.stack(
        [index.x[at[q.name]] if k else features[new.index(q)] for q, k in zip(queries, known)]
    )


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
    names, hits = list(index.videos), list[list[Hit]]()
    some = max(1, 2**26 // len(names))  # queries at a time: 256 MiB of cosines
    for i in range(0, len(x), some):
        sim = centred_cosines(x[i : i + some], index.x, index.mean)
        hits += [
            _ranked(index, names, row, k, q.name) for q, row in zip(queries[i : i + some], sim)
        ]
    return hits


def _ranked(
    index: SearchIndex,
    names: Sequence[str],
    sim: np.ndarray,  # (N,)
    k: int,
    leave_out: str,
) -> list[Hit]:
    "The videos of the k best ranks; more of them are looked at where many are copies."
    most = k + 8
    while True:
        best = {names[j]: float(sim[j]) for j in nearest(sim, most)}
        groups = equal_files({n: index.root / n for n in (*best, leave_out) if n})
        first, ranks = {n: g[0] for g in groups for n in g}, dict[str, int]()
        if leave_out:
            ranks[first.get(leave_out, leave_out)] = 0
        for n in best:
            ranks.setdefault(first.get(n, n), len(ranks) + (not leave_out))
        if max(ranks.values()) > k or most >= len(names):
            break
        most *= 4
    hits = [Hit(n, ranks[first.get(n, n)], cosine) for n, cosine in best.items() if n != leave_out]
    return sorted((h for h in hits if h.rank <= k), key=lambda h: h.rank)


def as_text(queries: Sequence[Query], hits: Sequence[Sequence[Hit]]) -> str:
    "The answers for a terminal."
    return "\n".join(
        line
        for q, of_query in zip(queries, hits)
        for line in (
            q.text,
            *(
                f"{h.rank or '=':>4}  {h.similarity:6.3f}  {h.video}"
                + "".join(f" = {c.video}" for c in copies)
                for h, *copies in _folded(of_query)
            ),
        )
    )


def _folded(
    hits: Sequence[Hit],  # of one query
) -> list[list[Hit]]:
    "The hits of each rank: one video, and its copies."
    return [list(same) for _, same in itertools.groupby(hits, key=lambda h: h.rank)]


def write_answers(
    path: Path,  # .csv, .json or .html
    index: SearchIndex,
    queries: Sequence[Query],
    hits: Sequence[Sequence[Hit]],
) -> Path:
    "The answers as a file of that kind."
    from ..measure.features import write_csv

    if path.suffix not in output_suffixes("search"):
        raise SearchError(f"{path}: is no .csv, .json or .html")
    if path.suffix == ".html":
        return write_wall(path, index, queries, hits)
    rows = [
        {"query": q.text, "rank": h.rank, "similarity": round(h.similarity, 6), "video": h.video}
        for q, of_query in zip(queries, hits)
        for h in of_query
    ]
    if path.suffix == ".json":
        return _write(path, json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    return write_csv(
        path, [("query", "rank", "similarity", "video"), *(tuple(r.values()) for r in rows)]
    )


def write_video_features(
    path: Path,  # .npz or .csv
    video: Sequence[str],  # (N,) names
    label: Sequence[str],  # (N,) class names, or '', not in .csv
    x: np.ndarray,  # (N, D) float32
) -> Path:
    "Features with the names of their videos. `SearchError`."
    from ..measure.features import write_csv

    if path.suffix not in output_suffixes("extract"):
        raise SearchError(f"{path}: must end in .npz, .csv")
    if path.suffix == ".csv":
        return write_csv(
            path,
            [
                ("video", *range(x.shape[1])),
                *([name, *map(str, row)] for name, row in zip(video, x)),
            ],
        )
    return _write(path, lambda f: np.savez(f, video=np.array(video), label=np.array(label), x=x))


# -- a page on which queries and answers play

PREVIEW_SECONDS, PREVIEW_SIDE = 6.0, 160  # of a preview: seconds at most, px of the shorter side


@lru_cache(256)  # the same video may be near several queries
def preview(
    query: Query,
) -> bytes:  # an H.264 .mp4, that every browser plays
    "A small copy for a page. `VideoError`."
    import torch
    from ..data.video import crop_resize, encode, iter_frames, probe

    p = probe(query.path)
    first, n = span_frames(query, p.frames, p.fps)
    fps, scale = p.fps or 25.0, min(1.0, PREVIEW_SIDE / min(p.height, p.width))
    size = [max(2, 2 * round(v * scale / 2)) for v in (p.height, p.width)]
    some = itertools.islice(
        iter_frames(query.path), first, first + min(n, round(PREVIEW_SECONDS * fps))
    )
    x = torch.cat([crop_resize(torch.from_numpy(f)[None], size=size) for f in some])
    with tempfile.TemporaryDirectory() as place:
        return encode(Path(place) / "preview.mp4", x, fps=fps, crf=30).read_bytes()


def _tile(
    page: Path,
    query: Query,
    title: str,
) -> str:  # HTML
    "One video of the wall."
    from ..data.video import VideoError

    link = quote(
        os.path.relpath(query.path.absolute(), page.absolute().parent).replace(os.sep, "/")
    )
    try:
        film = (
            f'<video src="data:video/mp4;base64,{b64encode(preview(query)).decode()}" '
            'muted loop playsinline preload="metadata"></video>'
        )
    except VideoError as e:
        film = f'<div class="none">{html.escape(e.reason)}</div>'
    return (
        f'<figure>{film}<figcaption><b>{html.escape(title)}</b><br><a href="{link}">'
        f"{html.escape(query.name or query.text)}</a></figcaption></figure>"
    )


def write_wall(
    path: Path,  # .html
    index: SearchIndex,
    queries: Sequence[Query],
    hits: Sequence[Sequence[Hit]],
) -> Path:
    "A page of queries and their nearest videos, all playing."
    sections = []
    for q, of_query in zip(queries, hits):
        span = f"{q.span[0]:g}–{q.span[1]:g} s" if q.span else "query"
        tiles = [
            _tile(
                path,
                Query(h.video, index.root / h.video, None, h.video),
                f"{h.rank} · {h.similarity:.3f}" + f" · {len(copies)} copies" * bool(copies),
            )
            for h, *copies in _folded(of_query)
            if h.rank
        ]
        sections.append(
            f'<section><div class="query">{_tile(path, q, span)}</div>{"".join(tiles)}</section>'
        )
    name = "/".join(Path(index.encoder).parts[-2:])
    about = html.escape(
        f"Nearest of {len(index)} videos by the cosine from their mean; encoder {name}"
    )
    page = Path(__file__).with_name("wall.html").read_text(encoding="utf-8")
    return _write(path, page.replace("ABOUT", about).replace("<!--sections-->", "".join(sections)))
