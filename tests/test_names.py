"Names of parts and of paths: what is found, and how a name that leads nowhere is refused."

import os
import sys
from pathlib import Path
from unittest import mock

import pytest

from vssl_nb.paths import (
    PathError,
    expect_manifest,
    expect_run,
    expect_run_folder,
    expect_writable,
    path_missing,
)
from vssl_nb.files import write_remedy
from vssl_nb.names import PluginError, did_you_mean, error_in_words, full_name, load_object, look_up


@pytest.fixture
def folder(tmp_path, monkeypatch):
    "A new folder that one stands in; modules that were imported from it are forgotten."
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    known = {*sys.modules}
    yield tmp_path
    for name in {*sys.modules} - known:
        sys.modules.pop(name)


def refused(function, *args, error=PluginError, **options):
    with pytest.raises(error) as e:
        function(*args, **options)
    return str(e.value)


def test_the_nearest_name():
    assert did_you_mean("residul", ["rgb", "flow", "residual"]) == "did you mean 'residual'?"
    assert did_you_mean("xyz", ["rgb", "flow"]) == "there are: rgb, flow"


def test_a_part_from_a_file_in_the_current_folder(folder):
    (folder / "my_views.py").write_text("def gradient(x): return -x\nclass Deep:\n    level = 3")
    assert load_object("my_views:gradient")(2) == -2 and load_object("my_views:Deep.level") == 3
    text = refused(load_object, "my_views:gradiant")
    assert "my_views.py) has no 'gradiant'; did you mean 'gradient'?" in text
    # written after Python had looked into the folder, whose time is set back: a clock too coarse to
    # tell
    times = os.stat(folder)
    (folder / "my_second.py").write_text("b = 2")
    os.utime(folder, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert load_object("my_second:b") == 2


def test_another_module_of_that_name_is_named(folder):
    import colorsys

    (folder / "colorsys.py").write_text("def view(x): return x")
    assert f"colorsys ({colorsys.__file__}) has no 'view'" in refused(load_object, "colorsys:view")


@pytest.mark.parametrize(
    "name, words",
    [
        ("not_there.views:mine", "there is no module 'not_there' to take a view from"),
        *((name, "write 'package.module:name'") for name in ("rgb", ":mine", "my_views:")),
        *(
            (name, "is not the name of a module; for the file folder/part.py")
            for name in ("./my_views:mine", "my_views.py:mine", "my-views:mine")
        ),
    ],
)
def test_a_name_without_a_module(name, words, folder):
    assert words in refused(load_object, name, "a view")


@pytest.mark.parametrize(
    "text, words",
    [
        (
            "import nothing_of_that_name",
            "fails: ModuleNotFoundError: No module named 'nothing_of_that_name' (my_broken.py, "
            "line 1); mend it",
        ),
        ("x = 1\ndef view(:", "fails: invalid syntax (my_broken.py, line 2); mend it there"),
        (
            'def f(): return {}["video"]\nf()',
            "fails: KeyError: 'video' (my_broken.py, line 1); mend it there",
        ),
        ("import sys\nsys.exit(3)", "keep what it runs below `if __name__ == '__main__'`"),
    ],
)
def test_a_module_that_cannot_be_imported(text, words, folder):
    (folder / "my_broken.py").write_text(text)
    assert words in refused(load_object, "my_broken:view")


def test_errors_in_words():
    assert error_in_words(ValueError("no frames\nat all")) == "no frames"
    assert error_in_words(KeyError("x")) == "KeyError: 'x'"


def test_ours_or_ones_own():
    assert look_up("rgb", {"rgb": 1}, "a view") == 1
    assert look_up("math:pi", {"rgb": 1}, "a view") == 3.141592653589793
    assert "there is no view 'rbg'; did you mean 'rgb'?" in refused(
        look_up, "rbg", {"rgb": 1}, "a view"
    )


def test_a_name_that_finds_a_part_again():
    assert load_object(full_name(Path)) is Path
    assert "move it to the top of a .py file" in refused(full_name, lambda x: x)


def path_refused(function, *args, **options):
    return refused(function, *args, error=PathError, **options)


@pytest.fixture
def place(tmp_path):
    (tmp_path / "my videos").mkdir()
    (tmp_path / "my videos" / "a.MP4").touch()
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "runs" / "first" / "recipe.json").touch()
    return tmp_path


def test_paths_that_are_right(place):
    expect_manifest(place / "my videos")
    expect_manifest("my_datasets:films")  # who reads it looks for it
    expect_run(place / "runs" / "first")
    expect_writable(place / "new" / "deep" / "table.csv")
    expect_writable("table.csv")
    expect_writable(place / "new" / "deep", folder=True)
    assert not (place / "new").exists()


def test_a_path_that_does_not_exist(place):
    assert f"did you mean '{place}/my videos'?" in str(
        path_missing(place / "my vidoes" / "a.mp4", "check it")
    )
    assert f"seen from {Path.cwd()}" in str(path_missing("videos", "check it"))
    assert f"seen from {Path.cwd()}" in path_refused(expect_run, "no/such/run")
    assert "seen" not in path_refused(expect_run, place / "x")
    assert "did you mean" in path_refused(expect_manifest, place / "my vidoes")


def test_paths_of_another_kind(place):
    assert "is a video; name the folder" in path_refused(
        expect_manifest, place / "my videos" / "a.MP4"
    )
    assert f"such as {place}/runs/first" in path_refused(expect_run, place / "runs")
    assert "name a run folder, such as runs/mine" in path_refused(expect_run, place / "my videos")
    assert "is a file; name the run folder" in path_refused(
        expect_run, place / "my videos" / "a.MP4"
    )
    assert "is a folder; name a file with --out" in path_refused(
        expect_writable, place / "my videos"
    )
    inside = path_refused(expect_writable, place / "my videos" / "a.MP4" / "table.csv")
    assert "a.MP4 is a file, not a folder; choose another --out" in inside
    file = path_refused(expect_writable, place / "my videos" / "a.MP4", "--index", folder=True)
    assert "is a file; choose another --index" in file


def test_paths_that_are_forbidden(place):
    def forbidden(path, mode):
        return mode == os.R_OK and Path(path).name != "shut"

    (place / "shut").mkdir()
    with mock.patch("os.access", forbidden):  # for root nothing is forbidden
        assert "cannot be written" in path_refused(expect_writable, place / "shut" / "table.csv")
        assert f"({place}/shut)" in path_refused(
            expect_writable, place / "shut" / "new", folder=True
        )
        for check in expect_manifest, expect_run:
            assert "you may not read" in path_refused(check, place / "shut")
        resumed = path_refused(expect_run_folder, place / "shut", resume=True)
        assert "make it writable" in resumed and "another --out" not in resumed
    assert not (place / "shut" / "new").exists()


@pytest.mark.parametrize(
    "number, remedy",
    [
        (13, "Get the right to write there"),
        (28, "Free some space"),
        (30, "Get the right to write there"),
        (20, "Take another name"),
        (21, "Take another name"),
    ],
)
def test_what_helps_where_nothing_can_be_written(number, remedy):
    assert write_remedy(OSError(number, "")) == remedy
