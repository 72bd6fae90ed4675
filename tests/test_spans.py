"Spans inside long videos: against a slow loop, and a scene that was hidden in a long film."

import json
import re
import shutil

import numpy as np
import pytest
import torch

from vssl_nb.app import cli, search, spans
from vssl_nb.data import toy, video
from vssl_nb.methods.recipes import find, override
from vssl_nb.runs.pretraining import pretrain

CPU = ["--device", "cpu", "--workers", "0"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    "A run, a folder with two long films of toy scenes one after another, and a scene alone."
    place = tmp_path_factory.mktemp("spans")
    toy.make(place / "toy", size="tiny", progress=False)
    recipe = override(find("infonce-toy-rgb"), epochs=1, batch=8, queue=16, length=4, size=16)
    pretrain(recipe, place / "toy", place / "run", device="cpu", progress=False)
    scenes = sorted((place / "toy").rglob("*.mp4"))
    (place / "films").mkdir()
    for name, some in (("one", scenes[:6]), ("two", scenes[6:12])):
        frames = torch.cat([video.decode(scene)[:20] for scene in some])
        video.encode(place / "films" / f"{name}.mp4", frames, fps=10, crf=5)
    (place / "films" / "broken.mp4").write_text("bought milk")
    # the fourth scene of the second film: its seconds 6 to 8
    video.encode(place / "scene.mp4", video.decode(scenes[9])[:20], fps=10, crf=5)
    return place


def test_a_scene_is_where_it_was_hidden(place, capsys):
    words = ["search", str(place / "scene.mp4"), "--spans", "--data", str(place / "films")]
    assert cli.main([*words, "--encoder", str(place / "run"), "--k", "4", *CPU]) == 0
    out, errors = capsys.readouterr()
    assert "3 encoded" in errors and "1 unreadable" in errors
    lines = out.splitlines()[1:]
    similarity, name, begin, end = re.fullmatch(
        r" +1 +(\S+)  (\w+\.mp4)@([\d.]+)-([\d.]+)", lines[0]
    ).groups()
    assert name == "two.mp4" and abs(float(begin) - 6) < 0.21 and abs(float(end) - 8) < 0.21
    assert float(similarity) > 0.95
    assert len(lines) == 4
    # and a second search encodes nothing that can be read
    assert cli.main([*words, "--k", "4", *CPU]) == 0
    again, errors = capsys.readouterr()
    assert again == out and " 1 encoded" in errors


def test_a_span_of_a_film_finds_others_and_not_itself(place, tmp_path, capsys):
    answers = [str(tmp_path / f"a.{kind}") for kind in ("csv", "json", "html")]
    words = ["search", "two.mp4@6-8", "--spans", "--data", str(place / "films"), "--k", "6"]
    assert cli.main([*words, "--encoder", str(place / "run"), "--out", *answers, *CPU]) == 0
    rows = json.loads((tmp_path / "a.json").read_text())
    assert [r["rank"] for r in rows] == [1, 2, 3, 4, 5, 6]
    for r in rows:
        name, span = r["video"].split("@")
        begin, end = map(float, span.split("-"))
        assert 0 <= begin < end <= 12.01 and end - begin == pytest.approx(2, abs=0.21)
        assert name != "two.mp4" or end <= 6 or begin >= 8
    assert (tmp_path / "a.html").read_text().count("<video") == 7
    assert (tmp_path / "a.csv").read_text().count("\n") == 7


def test_the_nearest_are_those_of_a_slow_loop():
    rng = np.random.default_rng(0)
    videos = {
        name: spans.Windows(rng.standard_normal((n, 3)).astype(np.float32), 5, 10, 5 * n + 5, 25.0)
        for name, n in (("a", 9), ("b", 1), ("c", 20))
    }
    index = spans.SpanIndex(None, None, "e", videos, {})
    query = spans.Windows(rng.standard_normal((3, 3)).astype(np.float32), 5, 10, 20, 25.0)
    hits = spans.nearest_spans(index, search.Query("q", None), query, 5)

    every = np.concatenate([w.x for w in videos.values()]).astype(float)
    mean = every.mean(0)
    target = query.x.astype(float).mean(0) - mean
    best = []
    for name, w in videos.items():
        n = min(3, len(w.x))
        for first in range(len(w.x) - n + 1):
            y = w.x[first : first + n].astype(float).mean(0) - mean
            cosine = y @ target / np.linalg.norm(y) / np.linalg.norm(target)
            end = min((first + n - 1) * 5 + 10, w.frames)
            best.append((cosine, name, first, f"{name}@{first / 5:.2f}-{end / 25:.2f}"))
    expected = []
    for cosine, name, first, text in sorted(best, reverse=True):
        if all(name != other or abs(first - at) > 1 for _, other, at, _ in expected):
            expected.append((cosine, name, first, text))
    assert [h.video for h in hits] == [text for *_, text in expected[:5]]
    assert [h.similarity for h in hits] == pytest.approx([c for c, *_ in expected[:5]], abs=1e-6)


def test_windows_last_as_long_as_the_query_whatever_the_rate():
    of_query = spans.Windows(np.zeros((5, 1), np.float32), 10, 20, 60, 50.0)
    of_video = spans.Windows(np.zeros((40, 1), np.float32), 10, 20, 420, 25.0)
    # 4 steps of 10 frames at 50 a second are 0.8 s, which are 2 steps at 25 a second
    assert spans._count(of_video, 5, of_query) == 3


def test_changed_new_gone_and_damaged_files(place, tmp_path, capsys):
    films = tmp_path / "films"
    shutil.copytree(place / "films", films, ignore=shutil.ignore_patterns(".*", "broken*"))
    words = ["search", "--spans", "--data", str(films), *CPU]
    assert cli.main([*words, "--encoder", str(place / "run")]) == 0
    (folder,) = (films / ".vssl-search").glob("spans-*")
    assert len([*folder.glob("*.npz")]) == 2
    capsys.readouterr()
    (films / "one.mp4").unlink()
    shutil.copy(place / "scene.mp4", films / "new.mp4")
    assert cli.main(words) == 0
    assert "1 encoded" in capsys.readouterr().err
    assert len([*folder.glob("*.npz")]) == 2
    for path in folder.glob("*.npz"):
        path.write_bytes(path.read_bytes()[:100])
    assert cli.main(words) == 0
    assert "2 encoded" in capsys.readouterr().err
    before = {p: p.read_bytes() for p in folder.iterdir()}
    (films / "later.mp4").write_bytes((films / "new.mp4").read_bytes())
    assert cli.main([*words, "--no-update"]) == 0
    assert {p: p.read_bytes() for p in folder.iterdir()} == before


@pytest.mark.parametrize(
    "words, args",
    [
        ("--spans has windows of its own; leave out --clips", ["--clips", "3"]),
        ("--spans has windows of its own; leave out --index", ["--index", "i"]),
        ("there are no windows yet", ["--encoder", "run", "--no-update"]),
        ("has no index yet", []),
        ("there is no such file; name a run", ["--encoder", "nowhere"]),
    ],
)
def test_careless_commands(words, args, place, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(place)
    shutil.copytree(place / "films", tmp_path / "f", ignore=shutil.ignore_patterns(".*"))
    before = sorted(tmp_path.rglob("*"))
    assert cli.main(["search", "scene.mp4", "--spans", "--data", str(tmp_path / "f"), *args]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1 and words in errors[0], errors
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_of_nothing_that_can_be_read(place, tmp_path, capsys):
    (tmp_path / "a.mp4").write_text("bought milk")
    words = ["search", "a.mp4", "--spans", "--data", str(tmp_path), "--encoder"]
    assert cli.main([*words, str(place / "run"), *CPU]) == 2
    assert "not one of its 1 videos can be read" in capsys.readouterr().err


def test_a_span_outside_its_video(place, capsys):
    words = ["search", "two.mp4@6-80", "--spans", "--data", str(place / "films"), "--encoder"]
    assert cli.main([*words, str(place / "run"), *CPU]) == 2
    assert "lasts 12.00 s; give a span within it" in capsys.readouterr().err


def test_a_query_that_is_not_there_is_refused_before_anything_is_encoded(place, capsys):
    films = place / "films of another search"
    shutil.copytree(place / "films", films, ignore=shutil.ignore_patterns(".vssl-search"))
    line = [
        "search",
        "nothing.mp4",
        "--data",
        str(films),
        "--encoder",
        str(place / "run"),
        "--spans",
    ]
    assert cli.main([*line, *CPU]) == 2
    assert "nothing.mp4: there is no such file" in capsys.readouterr().err
    assert not (films / search.HIDDEN).exists()
    shutil.rmtree(films)
