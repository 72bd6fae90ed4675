"Tables of features: what other libraries read of them, what comes back, and what is refused."

import numpy as np
import pytest

from vssl_nb import outputs, paths
from vssl_nb.measure.feature_files import (
    FEATURE_FILES,
    FeatureFileError,
    read_feature_table,
    write_video_features,
)

NAMES = ["a/é.mp4", "b c.avi", "d.mp4"]
LABELS = ["jump", "", "run"]
X = np.random.default_rng(0).standard_normal((3, 5), np.float32)


@pytest.fixture
def arrow():
    return pytest.importorskip("pyarrow", reason="pip install 'vssl_nb[parquet]'")


def test_pyarrow_reads_names_labels_and_numbers(tmp_path, arrow):
    from pyarrow import parquet

    file = write_video_features(tmp_path / "f.parquet", NAMES, LABELS, X)
    table = parquet.read_table(file)
    assert table.column_names == ["video", "label", "feature"]
    assert table["video"].to_pylist() == NAMES
    assert table["label"].to_pylist() == LABELS
    assert (np.array(table["feature"].to_pylist(), np.float32) == X).all()
    outputs.expect_replaceable(file, "extract", False)


@pytest.mark.parametrize("suffix", FEATURE_FILES)
def test_what_was_written_comes_back(suffix, tmp_path):
    file = write_video_features(tmp_path / f"f{suffix}", NAMES, LABELS, X)
    names, labels, x = read_feature_table(file)
    assert names == NAMES
    assert labels == (["", "", ""] if suffix == ".csv" else LABELS)
    assert (x.astype(np.float32) == X).all()


def test_a_table_of_somebody_else_is_read_and_stays(tmp_path, arrow):
    from pyarrow import parquet

    file = tmp_path / "theirs.parquet"
    table = arrow.table({"video": ["a.mp4"], "label": [None], "feature": [[1.0, 2.0]]})
    parquet.write_table(table, file)
    assert read_feature_table(file)[1:] == ([""], pytest.approx(np.array([[1.0, 2.0]])))
    with pytest.raises(paths.PathError, match="is no file of vssl-nb extract"):
        outputs.expect_replaceable(file, "extract", False)


@pytest.mark.parametrize(
    "columns, words",
    [
        ({"label": ["x"], "feature": [[1.0]]}, "give the names as 'video'"),
        ({"video": ["a.mp4"]}, "the numbers as 'feature'"),
        ({"video": ["a.mp4", "b.mp4"], "feature": [[1.0], [1.0, 2.0]]}, "cannot be read"),
        ({"video": ["a.mp4", "a.mp4"], "feature": [[1.0], [2.0]]}, "more than once"),
        ({"video": ["a.mp4"], "feature": [1.0]}, "must be \\(N, D\\)"),
    ],
)
def test_a_table_that_holds_no_features(columns, words, tmp_path, arrow):
    from pyarrow import parquet

    parquet.write_table(arrow.table(columns), tmp_path / "t.parquet")
    with pytest.raises(FeatureFileError, match=f"t.parquet: .*{words}"):
        read_feature_table(tmp_path / "t.parquet")


@pytest.mark.parametrize("suffix", FEATURE_FILES)
@pytest.mark.parametrize("content", [b"", b"bought milk\n", b"PAR1\0\0PAR1", b"PK\3\4" + bytes(40)])
def test_a_file_of_another_kind(content, suffix, tmp_path):
    file = tmp_path / f"f{suffix}"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"f{suffix}: "):
        read_feature_table(file)


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"pip install 'vssl_nb\[parquet\]'"):
        write_video_features(tmp_path / "f.parquet", NAMES, LABELS, X)
    assert not [*tmp_path.iterdir()]
