"`vssl-nb explore`: one page and one table of a folder, careless use of it, and interruptions."

import csv
import json
import re
import shutil
import warnings

import numpy as np
import pytest
import warm

from vssl_nb import outputs
from vssl_nb.app import cli, explore
from vssl_nb.data import manifest, toy
from vssl_nb.measure.feature_files import write_video_features
from vssl_nb.methods.recipes import find, override
from vssl_nb.runs.pretraining import pretrain

pytest.importorskip("sklearn", reason="pip install 'vssl_nb[explore]'")
CPU = ["--device", "cpu", "--workers", "1"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    "Toy videos in folders, their features by class, one copy, one file that is no video."
    place = tmp_path_factory.mktemp("explore")
    toy.make(place / "toy", size="tiny", progress=False)
    (place / "toy" / "manifest.csv").unlink()
    (place / "toy" / "toy.json").unlink()
    names = manifest.find_videos(place / "toy")
    shutil.copy(place / "toy" / names[0], place / "toy" / "again.mp4")
    (place / "toy" / "broken.mp4").write_text("bought milk")
    table(place / "f.npz", manifest.find_videos(place / "toy"))
    return place


def table(file, names, labels=None, dim=4):
    "Features whose cloud is the folder of the video."
    rng = np.random.default_rng(0)
    folders = sorted({name.rpartition("/")[0] for name in names})
    x = rng.standard_normal((len(names), max(dim, len(folders)))).astype(np.float32) / 10
    for row, name in zip(x, names):
        row[folders.index(name.rpartition("/")[0])] += 5
    return write_video_features(file, names, labels or [""] * len(names), x)


def rows_of(file):
    with open(file, newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


@pytest.fixture(scope="module")
def explored(place):
    words = ["explore", str(place / "toy"), "--features", str(place / "f.npz"), "--groups", "3"]
    assert cli.main([*words, "--out", str(place / "e.html"), str(place / "e.csv"), *CPU]) == 0
    return (place / "e.html").read_text(), rows_of(place / "e.csv")


def test_a_row_for_each_video(place, explored):
    _, rows = explored
    assert [r["video"] for r in rows] == manifest.find_videos(place / "toy")
    assert {r["label"] for r in rows if "/" in r["video"]} > {""} - {""}
    assert all(r["label"] == r["video"].rpartition("/")[0] for r in rows)
    assert sorted({int(r["group"]) for r in rows}) == [1, 2, 3]
    for g in "123":
        places = sorted(int(r["place_in_group"]) for r in rows if r["group"] == g)
        assert places == list(range(1, len(places) + 1))
    assert all(0 <= float(r[k]) <= 1 for r in rows for k in ("map_x", "map_y"))


def test_the_copy_is_named_and_nothing_else(place, explored):
    page, rows = explored
    copies = [r["video"] for r in rows if r["copies"]]
    assert "again.mp4" in copies and len(copies) == 2
    assert "Same file" in page and page.count("<h3>Same") == 1


def test_videos_without_a_label_are_proposed(explored):
    _, rows = explored
    ranked = {r["video"]: int(r["label_next"]) for r in rows if r["label_next"]}
    assert set(ranked) == {r["video"] for r in rows if not r["label"]}
    assert sorted(ranked.values()) == list(range(1, len(ranked) + 1))


def test_the_page_stands_alone_and_shows_every_video_once(explored):
    page, rows = explored
    grid = page[page.index('<div id="map"') : page.index('<h2 id="g">')]
    assert sorted(map(int, re.findall(r'data-i="(\d+)"', grid))) == list(range(len(rows)))
    for c, r in (("--c", "--r"), ("--pc", "--pr")):
        cells = re.findall(rf"{c}:(\d+);.*?{r}:(\d+);", grid)
        assert len({*cells}) == len(cells) == len(rows)
    pictures = re.findall(r"\.v(\d+)\{background-image:url\(data:image/webp;base64,", page)
    # the file that is no video has none
    assert len(pictures) == len(rows) - 1
    addresses = re.findall(r"(?:src|href)=\"?(\w+:[^\"]*)", page) + re.findall(r"url\((\w+):", page)
    assert {a for a in addresses} <= {"data"}
    assert "§" not in page
    facts = json.loads(re.search(r"const facts = (.*), startWith", page)[1])
    assert [f[0] for f in facts] == [r["video"] for r in rows]
    outputs_of_page = [o for o in outputs.OUTPUTS if o.command == "explore"]
    assert len(outputs_of_page) == 2


def test_names_cannot_write_into_the_page(place, tmp_path):
    "A name with quotes, tags and an end of a script."
    video = next((place / "toy").rglob("*/*.mp4"))
    folder = tmp_path / "v"
    folder.mkdir()
    names = ["<b>&\"'.mp4", "a<!--.mp4", "§MAP§.mp4", "é ü.mp4", "100%#?.mp4"]
    for name in names:
        shutil.copy(video, folder / name)
    table(tmp_path / "f.npz", sorted(names), ["</script><b>", "x", "y", "", ""])
    out = tmp_path / "e.html"
    words = ["explore", str(folder), "--features", str(tmp_path / "f.npz")]
    assert cli.main([*words, "--out", str(out), *CPU]) == 0
    page = out.read_text()
    assert page.count("<script>") == page.count("</script>") == 1
    assert '<b>&"' not in page and "%25%23%3F" in page


def test_labels_come_from_the_manifest_where_there_is_one(place, tmp_path):
    folder = tmp_path / "v"
    shutil.copytree(place / "toy", folder)
    assert cli.main(["manifest", str(folder), "--workers", "1"]) == 0
    rows = manifest.read(folder).rows
    rows = [r if i else type(r)(**{**vars(r), "label": "by hand"}) for i, r in enumerate(rows)]
    manifest.write(folder / "manifest.csv", rows)
    names = [r.video for r in rows]
    assert explore.labels_of(folder, names) == [r.label for r in rows]
    assert explore.labels_of(folder, names)[0] == "by hand"


def test_the_table_of_parquet_and_csv_give_the_same(place, tmp_path):
    pytest.importorskip("pyarrow")
    names = manifest.find_videos(place / "toy")
    made = []
    for suffix in (".csv", ".parquet"):
        file = table(tmp_path / f"f{suffix}", names)
        words = ["explore", str(place / "toy"), "--features", str(file), "--groups", "3"]
        out = tmp_path / f"e{suffix}.csv"
        assert cli.main([*words, "--out", str(out), *CPU]) == 0
        made.append(rows_of(out))
    assert made[0] == made[1]


# --- careless


def refusal(capsys, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cli.main([str(a) for a in args]) == 2
    out, errors = capsys.readouterr()
    assert not out and len(errors.splitlines()) == 1, errors
    return errors


def nan_row(place, tmp_path):
    names = manifest.find_videos(place / "toy")
    x = np.ones((len(names), 3), np.float32)
    x[2, 1] = np.nan
    return write_video_features(tmp_path / "nan.npz", names, [""] * len(names), x)


CARELESS = {
    "NaN": ("1 of 66 rows hold NaN", nan_row),
    "one video": (
        "has features of 1 video, and a map takes 3",
        lambda place, there: table(there / "one.npz", manifest.find_videos(place / "toy")[:1]),
    ),
    "no such video": (
        "1 of its 4 videos are not in",
        lambda place, there: table(
            there / "x.npz", [*manifest.find_videos(place / "toy")[:3], "none.mp4"]
        ),
    ),
    "another kind": (
        "is no file of features; give one of .npz, .csv, .parquet",
        lambda place, there: place / "toy" / "again.mp4",
    ),
    "damaged": (
        "cannot be read as features",
        lambda place, there: (
            (there / "f.npz").write_bytes(b"PK\3\4 bought milk") and there / "f.npz"
        ),
    ),
    "missing": (
        "there is no such file or folder",
        lambda place, there: there / "nowhere.npz",
    ),
}


@pytest.mark.parametrize("name", CARELESS)
def test_features_that_cannot_be_explored(name, place, tmp_path, capsys):
    words, make = CARELESS[name]
    file = make(place, tmp_path)
    before = {p for p in tmp_path.rglob("*")}
    text = refusal(
        capsys, "explore", place / "toy", "--features", file, "--out", tmp_path / "e.html", *CPU
    )
    assert words in text, text
    assert {p for p in tmp_path.rglob("*")} == before


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("n", [3, 4, 8])
def test_few_videos_of_few_numbers(n, dim, place, tmp_path):
    "And equal ones: no warning, no error."
    names = manifest.find_videos(place / "toy")[1 : 1 + n]
    for x in (np.ones((n, dim), np.float32), np.arange(n * dim, dtype=np.float32).reshape(n, dim)):
        file = write_video_features(tmp_path / "f.npz", names, [""] * n, x)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            c = explore.of_table(file, place / "toy")
            landscape = explore.explore(c, workers=1, progress=False)
        assert len(landscape.next) == n
        assert "videos" in explore.landscape_in_words(landscape)
        assert '<div id="map"' in explore.as_page(landscape, tmp_path / "e.html")


def test_options_that_would_be_ignored(place, capsys):
    for option, value in (("--encoder", "run"), ("--clips", "3"), ("--index", "i")):
        text = refusal(
            capsys, "explore", place / "toy", "--features", place / "f.npz", option, value
        )
        assert f"leave out {option}" in text


def test_folders_that_cannot_be_explored(place, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bare").mkdir()
    (tmp_path / "notes.html").write_text("bought milk")
    for words, args in (
        ("nowhere: there is no such file or folder", ["nowhere"]),
        ("is a file; name the folder", [place / "f.npz"]),
        ("bare: has no index yet", ["bare"]),
        ("notes.html: is no file of vssl-nb explore", ["bare", "--out", "notes.html"]),
        ("must end in .html, .csv", ["bare", "--out", "page.pdf"]),
        ("--groups 1: must be 2 or more", ["bare", "--groups", "1"]),
    ):
        assert words in refusal(capsys, "explore", *args)
    assert (tmp_path / "notes.html").read_text() == "bought milk"


def test_a_missing_package_is_named_before_the_work(place, capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sklearn", None)
    text = refusal(capsys, "explore", place / "toy", "--features", place / "f.npz")
    assert "pip install 'vssl_nb[explore]'" in text


# --- an index, and an interruption


@pytest.fixture(scope="module")
def run(place):
    recipe = override(find("infonce-toy-rgb"), epochs=1, batch=8, queue=16, length=4, size=16)
    toy.make(place / "train", size="tiny", progress=False)
    pretrain(recipe, place / "train", place / "run", device="cpu", progress=False)
    return place / "run"


def test_a_folder_is_encoded_once_and_shared_with_search(place, run, capsys):
    words = ["explore", str(place / "toy"), "--clips", "1", *CPU]
    out = ["--out", str(place / "i.csv")]
    assert cli.main([*words, "--encoder", str(run), *out]) == 0
    first = rows_of(place / "i.csv")
    assert "66 encoded" in capsys.readouterr().err
    assert "broken.mp4" not in [r["video"] for r in first]
    assert cli.main([*words, *out]) == 0
    assert "encoded" not in capsys.readouterr().err
    assert rows_of(place / "i.csv") == first
    query = first[0]["video"]
    assert cli.main(["search", query, "--data", str(place / "toy"), "--clips", "1", *CPU]) == 0
    assert "encoded" not in capsys.readouterr().err


def test_an_interruption_loses_nothing(place, run, tmp_path):
    "Ctrl-C while it encodes, and while it looks; the same command ends as if it had not been."
    import os
    import signal
    import time

    folder = tmp_path / "toy"
    shutil.copytree(place / "toy", folder)
    shutil.rmtree(folder / ".vssl-search", ignore_errors=True)
    args = ["explore", folder, "--encoder", run, "--clips", "2", "--batch", "1", *CPU]
    args += ["--out", tmp_path / "e.html", tmp_path / "e.csv"]
    for sign in ("index", "pictures"):
        command = warm.Command([str(a) for a in args], tmp_path)
        until = time.monotonic() + 300
        while sign not in command.stderr and command.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
        if command.poll() is None:
            os.killpg(command.pid, signal.SIGINT)
        code = command.wait()
        assert code in (0, 130) and "Traceback" not in command.stderr, command.stderr
        if code:
            assert not (tmp_path / "e.html").exists()
    done = warm.Command([str(a) for a in args], tmp_path)
    assert done.wait() == 0, done.stderr
    assert len(rows_of(tmp_path / "e.csv")) == 65
    left = [p.name for p in tmp_path.rglob(".*") if p.is_file()]
    assert not left, left
