"Tables of features with the names of their videos: .npz, .csv and .parquet, written and read."

import csv
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from .. import __version__
from ..extras import require
from ..files import write_whole
from ..outputs import output_suffixes


class FeatureFileError(ValueError):
    "A table of features that cannot be written or read; the message names it and the remedy."


def write_video_features(
    path: Path,  # .npz, .csv or .parquet
    video: Sequence[str],  # (N,) names
    label: Sequence[str],  # (N,) class names, or '', not in .csv
    x: np.ndarray,  # (N, D) float32
) -> Path:
    "Features with the names of their videos, whole or not at all. `FeatureFileError`, `FileError`."
    from .features import write_csv

    suffixes = output_suffixes("extract")
    if path.suffix not in suffixes:
        raise FeatureFileError(f"{path}: must end in {', '.join(suffixes)}")
    if path.suffix == ".csv":
        rows = [[name, *map(str, row)] for name, row in zip(video, x)]
        return write_csv(path, [("video", *range(x.shape[1])), *rows])
    if path.suffix == ".parquet":
        return _write_parquet(path, video, label, x)
    return write_whole(
        path, lambda f: np.savez(f, video=np.array(video), label=np.array(label), x=x)
    )


def _write_parquet(
    path: Path,
    video: Sequence[str],  # (N,) names
    label: Sequence[str],  # (N,) class names, or ''
    x: np.ndarray,  # (N, D) float32
) -> Path:
    "The columns video, label, and feature: a list of D numbers in each row."
    arrow = require("pyarrow", "parquet")
    parquet = require("pyarrow.parquet", "parquet")

    numbers = arrow.array(np.asarray(x, np.float32).ravel())
    feature = arrow.FixedSizeListArray.from_arrays(numbers, x.shape[1])
    columns = {"video": list(video), "label": list(label), "feature": feature}
    # by this mark `outputs` recognises the file
    table = arrow.table(columns).replace_schema_metadata({"vssl_nb.features": __version__})
    return write_whole(path, lambda f: parquet.write_table(table, f))


# names, class names or '', (N, D)
_Table = tuple[list[str], list[str], np.ndarray]


def _from_npz(path: Path) -> _Table:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as f:
        names = [str(v) for v in f["video"].reshape(-1)]
        labels = [str(v) for v in f["label"].reshape(-1)] if "label" in f else [""] * len(names)
        return names, labels, f["x"]


def _from_csv(path: Path) -> _Table:
    with path.open(newline="", encoding="utf-8") as f:
        head, *rows = list(csv.reader(f))
    if head[:1] != ["video"]:
        raise ValueError("its first line must begin with 'video'")
    for i, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise ValueError(f"line {i + 2} has {len(row)} columns, line 2 {len(rows[0])}")
    names = [row[0] for row in rows]
    return names, [""] * len(names), np.array([[float(v) for v in row[1:]] for row in rows])


def _from_parquet(path: Path) -> _Table:
    arrow = require("pyarrow", "parquet")
    parquet = require("pyarrow.parquet", "parquet")
    try:
        table = parquet.read_table(path)
    except arrow.ArrowException as e:
        raise ValueError(str(e)) from None
    names = table["video"].to_pylist()
    known = "label" in table.column_names
    labels = [label or "" for label in table["label"].to_pylist()] if known else [""] * len(names)
    return names, labels, np.array(table["feature"].to_pylist(), np.float32)


FEATURE_FILES: Mapping[str, Callable[[Path], _Table]] = {
    ".npz": _from_npz,
    ".csv": _from_csv,
    ".parquet": _from_parquet,
}


def read_feature_table(
    path: str | Path,  # .npz, .csv or .parquet
) -> tuple[list[str], list[str], np.ndarray]:  # names of videos; class names or ''; (N, D)
    "What a table of features holds; ValueError in one sentence where it is none."
    path = Path(path)
    if path.suffix not in FEATURE_FILES:
        raise FeatureFileError(
            f"{path}: is no file of features; give one of {', '.join(FEATURE_FILES)}"
        )
    if not path.is_file():
        raise FeatureFileError(f"{path}: there is no such file")
    try:
        names, labels, x = FEATURE_FILES[path.suffix](path)
    except KeyError as e:
        numbers = "feature" if path.suffix == ".parquet" else "x"
        raise FeatureFileError(
            f"{path}: has no {e}; give the names as 'video' and the numbers as '{numbers}'"
        ) from e
    except (ValueError, TypeError, OSError, EOFError, zipfile.BadZipFile) as e:
        raise FeatureFileError(
            f"{path}: cannot be read as features ({str(e).splitlines()[0][:160]}); give a file "
            "that vssl-nb extract --out wrote, or one like it"
        ) from e

    x = np.asarray(x)
    if x.ndim != 2 or not x.size:
        raise FeatureFileError(f"{path}: x must be (N, D) with a row for each video, not {x.shape}")
    if len(names) != len(x):
        raise FeatureFileError(
            f"{path}: has {len(names)} names and {len(x)} rows of numbers; give one row for each "
            "video"
        )
    twice = len(names) - len(set(names))
    if twice:
        raise FeatureFileError(
            f"{path}: {twice} videos stand in it more than once; give each one row"
        )
    return names, labels, x
