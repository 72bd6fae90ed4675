"""Searching one's own videos as whole commands: what is printed and written, what is refused, what
is kept.
"""

import csv
import html
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from base64 import b64decode
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
import torch

import warm
from vssl_nb.app import search
from vssl_nb.nets import backbones
from vssl_nb.training import checkpoints
from vssl_nb.runs import evaluation
from vssl_nb.measure import features, protocols, retrieval
from vssl_nb.data import manifest, toy, video
from vssl_nb.training.machine import Machine

ROOT = Path(__file__).parent.parent
ABOUT = {
    "backbone": "tiny",
    "view": "residual",
    "residual": "plain",
    "residual_scale": 0.05,
    "length": 8,
    "stride": 1,
    "size": 32,
}


def vssl(*args, cwd, code=0):
    done = warm.run(args, cwd)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def wrong(*args, cwd):
    "The one sentence of a refusal."
    done = vssl(*args, cwd=cwd, code=2)
    assert not done.stdout and re.fullmatch(r"vssl-nb: [^\n]+\n", done.stderr), (
        done.stdout + done.stderr
    )
    return done.stderr


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    "A folder of videos with an index, and an encoder."
    there = tmp_path_factory.mktemp("search")
    toy.make(there / "my videos", "tiny", progress=False)
    (there / "my videos" / "manifest.csv").rename(there / "manifest.csv")
    checkpoints.export_encoder(there / "e.safetensors", backbones.create("tiny", seed=0), ABOUT)
    done = vssl(
        "search", "--data", "my videos", "--encoder", "e.safetensors", "--clips", 2, cwd=there
    )
    assert "64 encoded, 0 gone" in done.stderr and "SearchIndex(64 videos" in done.stdout
    return there


@pytest.fixture
def own(place, tmp_path):
    shutil.copytree(place, tmp_path / "own")
    return tmp_path / "own"


def names(place):
    return sorted(manifest.find_videos(place / "my videos"))


# similarities


def test_cosines_from_the_middle_by_hand():
    x = np.array([[4, 1], [5, 2], [6, -3]], np.float32)
    sim = search.centred_cosines(np.array([[4.0, 2.0]]), x, x.mean(0, dtype=float))[0]
    assert np.allclose(sim, [0.949, 0.894, -0.990], atol=1e-3)
    assert search.nearest(sim, 2).tolist() == [0, 1]
    assert search.nearest(sim, 5).tolist() == [0, 1, 2]
    # earlier first
    assert search.nearest(np.array([0.5, 0.7, 0.5, 0.5], np.float32), 3).tolist() == [1, 0, 2]
    middle = search.centred_cosines(np.ones((1, 3)), np.ones((2, 3)), np.ones(3))
    assert (middle == 0).all()  # a feature that is the mean is like none


@pytest.mark.parametrize("n, d", [(50, 7), (search.BLOCK + 40, 16)])
def test_neighbours_are_those_of_scikit_learn_and_of_the_evaluation(n, d):
    from sklearn.neighbors import NearestNeighbors

    rng = np.random.default_rng(0)
    x, q = (
        rng.standard_normal((n, d), np.float32) + 30,
        rng.standard_normal((5, d), np.float32) + 30,
    )
    mean = x.mean(0, dtype=float)
    oracle = NearestNeighbors(n_neighbors=9, metric="cosine", algorithm="brute").fit(x - mean)
    distance, where = oracle.kneighbors(q - mean)
    sim = search.centred_cosines(q, x, mean)
    assert (np.stack([search.nearest(s, 9) for s in sim]) == where).all()
    assert np.allclose(np.sort(sim, 1)[:, :-10:-1], 1 - distance, atol=1e-5)
    ours = retrieval.nearest_neighbours(torch.tensor(q - mean), torch.tensor(x - mean), 9)[0]
    assert (ours.numpy() == where).all()


def test_of_equals_the_earlier_comes_first_across_blocks():
    n = search.BLOCK + 30
    # a collapsed encoder, but for three videos
    flat = np.ones((n, 3), np.float32) * [1, 2, 3] + np.eye(n, 3)
    sim = search.centred_cosines(flat[-1:], flat, np.zeros(3))[0]
    assert search.nearest(sim, 5).tolist() == [3, 4, 5, 6, 7] and len(set(sim[3:])) == 1


def test_copies_are_one_answer(tmp_path):
    "Files with the same bytes share a rank and a line; copies of the query are no answer."
    names = ["a", "a2", "b", "b2", *(f"c{i}" for i in range(40)), "d", "e"]
    for n in names:
        (tmp_path / n).write_text(n[0] * 9)
    (tmp_path / "e").write_text("e")  # of another size
    x = np.array(
        [[{"a": 0.0, "b": 0.2, "c": 0.4, "d": 1.0, "e": 2.0}[n[0]], 1.0] for n in names], np.float32
    )
    index = search.SearchIndex(
        tmp_path, tmp_path, {}, "", dict.fromkeys(names, (9, 0)), {}, x, np.zeros(2)
    )

    def ask(name, k):
        query = search.Query("film", tmp_path / name, None, name)
        (hits,) = search.find_nearest(index, [query], x[names.index("a")][None], k)
        assert [h.rank for h in hits] == sorted(h.rank for h in hits)
        lines = search.as_text([query], [hits]).splitlines()[1:]
        return {r: [h.video for h in hits if h.rank == r] for r in {h.rank for h in hits}}, lines

    c = [f"c{i}" for i in range(40)]
    ranks, lines = ask("a", 4)
    assert ranks == {0: ["a2"], 1: ["b", "b2"], 2: c, 3: ["d"], 4: ["e"]}
    assert [line.split()[0] for line in lines] == ["=", "1", "2", "3", "4"]
    assert (
        lines[1].endswith("  b = b2") and lines[2].count(" = c") == 39 and lines[3].endswith("  d")
    )
    assert ask("a", 2)[0] == {0: ["a2"], 1: ["b", "b2"], 2: c}
    (tmp_path / "a2").unlink()  # an index that is older than the folder
    assert ask("a", 1)[0] == {1: ["a2"]}


# the index


def opened(place, **more):
    "The index of a place, and its encoder."
    folder, encoder, clips = search.choose_index(place / "my videos")
    return search.open_index(folder, place / "my videos"), encoder


def ask(index, encoder, *texts):
    "Queries and their features."
    queries = [search.parse_query(str(t), index.root, index.videos) for t in texts]
    return queries, search.query_features(index, queries, encoder, device="cpu")


def test_a_span_is_a_file_of_these_frames(own, monkeypatch):
    index, encoder = opened(own)
    name = names(own)[4]
    probed = video.probe(index.root / name)
    video.encode(
        own / "part.mkv", video.decode(index.root / name, range(4, 12)), fps=probed.fps, crf=0
    )
    texts = [f"{index.root / name}@{4 / probed.fps}-{12 / probed.fps}", own / "part.mkv"]
    queries, x = ask(index, encoder, *texts)
    assert search.span_frames(queries[0], probed.frames, probed.fps) == (4, 8)
    assert np.allclose(x[0], x[1], atol=1e-2)
    assert abs(x[0] - index.x[4]).max() > 1e-2  # and not those of the whole video

    def no_network(*_):
        raise AssertionError("encodes what is known")

    monkeypatch.setattr(search, "_features", no_network)
    assert (ask(index, encoder, name, name)[1] == index.x[4]).all()
    with pytest.raises(AssertionError, match="known"):
        ask(index, encoder, name, texts[0])
    hits = search.find_nearest(index, queries, x, 99)
    assert queries[0].name == name and name not in [h.video for h in hits[0]] and len(hits[1]) == 64


def test_what_was_encoded_before_an_interruption_is_not_encoded_again(own, monkeypatch):
    index, encoder = opened(own)
    real, again = search._features, []

    def stops(*args):
        for n, made in enumerate(real(*args)):
            if n == 5:
                raise KeyboardInterrupt
            yield made

    def counts(*args):
        for made in real(*args):
            again.append(made)
            yield made

    def update(clips=2):
        return search.update_index(
            own / "i", index.root, encoder, clips, device="cpu", workers=0, progress=False
        )

    monkeypatch.setattr(search, "_features", stops)
    with pytest.raises(KeyboardInterrupt):
        update()
    assert len(search.open_index(own / "i", index.root)) == 5
    monkeypatch.setattr(search, "_features", counts)
    made, numbers = update()
    assert numbers == (59, 0) and len(again) == 59
    assert [*made.videos] == [*index.videos] and np.allclose(made.x, index.x, atol=1e-6)
    assert np.allclose(made.mean, index.mean) and update()[1] == (0, 0)
    with pytest.raises(search.SearchError, match="2 clips a video, and 3 were asked for"):
        update(3)
    (own / "other").mkdir()
    shutil.copy(index.root / names(own)[0], own / "other" / "z.mp4")
    with pytest.raises(search.SearchError, match="index of other videos"):
        search.update_index(own / "i", own / "other", encoder, 2)
    (own / "other" / "z.mp4").write_bytes(b"x")
    with pytest.raises(
        search.SearchError, match="not one of its 1 videos can be read; the first is z.mp4"
    ):
        search.update_index(own / "j", own / "other", encoder, 2, progress=False)
    assert not (own / "j" / "index.json").exists()
    (own / "i" / "index.json").write_text('{"key": ')
    with pytest.raises(search.SearchError, match="is not a whole index"):
        search.open_index(own / "i", index.root)
    (own / "i" / "index.json").unlink()  # as the message has it
    assert len(search.update_index(own / "i", index.root, encoder, 2)[0]) == len(index)


def test_queries_and_folders_that_cannot_be_used(place):
    index, encoder = opened(place)

    def refused(text):
        with pytest.raises(search.SearchError) as e:
            search.parse_query(text, index.root, index.videos)
        return str(e.value)

    for span in ("5", "3-", "a-b", "-1-2", "2-1", "2-2"):
        assert "is no span" in refused(f"{names(place)[0]}@{span}")
    assert "there is no such file" in refused("nothing.mp4@1-2")
    assert "is a folder" in refused(str(Path(names(place)[0]).parent))
    with pytest.raises(search.SearchError, match="is a file; name the folder"):
        search.video_files(place / "e.safetensors")
    with pytest.raises(search.SearchError, match="without an encoder.safetensors"):
        search.describe_encoder(index.root)
    assert [*search.video_files(index.root)] == names(place)


# whole commands


def test_answers_are_those_of_scikit_learn(place):
    from sklearn.neighbors import NearestNeighbors

    (place / "my videos" / "manifest.csv").write_bytes((place / "manifest.csv").read_bytes())
    m, network = (
        manifest.read(place / "my videos"),
        checkpoints.read_encoder(place / "e.safetensors")[0],
    )
    p = protocols.protocol("clean", clips=2, length=8, size=32)
    f = features.extract(
        network,
        m,
        "all",
        1,
        "residual",
        p,
        machine=Machine("cpu", progress=False),
        residual_scale=0.05,
    )
    (place / "my videos" / "manifest.csv").unlink()
    all_names = [m.rows[r].video for r in f.row.tolist()]
    x = (f.x - f.x.mean(0)).double().numpy()
    distance, where = (
        NearestNeighbors(n_neighbors=6, metric="cosine", algorithm="brute").fit(x).kneighbors(x)
    )
    asked = [0, 17, 40]
    vssl(
        "search",
        *[Path("my videos", all_names[i]) for i in asked],
        "--data",
        "my videos",
        "--k",
        5,
        "--out",
        "a.json",
        "a.csv",
        cwd=place,
    )
    rows = json.loads((place / "a.json").read_text())
    assert [r["video"] for r in rows] == [all_names[j] for i in asked for j in where[i, 1:]]
    assert np.allclose([r["similarity"] for r in rows], 1 - distance[asked, 1:].ravel(), atol=1e-4)
    with open(place / "a.csv", newline="", encoding="utf-8") as table:
        found = list(csv.DictReader(table))
    assert [r["video"] for r in found] == [r["video"] for r in rows]
    assert [int(r["rank"]) for r in found] == [1, 2, 3, 4, 5] * 3


def test_a_known_query_needs_no_pytorch(place):
    code = (
        "import sys; from vssl_nb.app.cli import main; "
        f'assert main(["search", {names(place)[3]!r}, "--data", "my videos"])==0; '
        'assert "torch" not in sys.modules; print("none")'
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=place,
        text=True,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0 and done.stdout.endswith("none\n"), done.stderr
    assert (
        len(done.stdout.splitlines()) == 12 and names(place)[3] not in done.stdout.split("\n", 1)[1]
    )


def test_a_copy_finds_what_a_video_of_the_folder_does_not(place):
    q = names(place)[5]
    first = vssl("search", q, "--data", "my videos", "--k", 1, cwd=place).stdout
    assert first.splitlines()[1].split(None, 2)[2] != q
    shutil.copy(place / "my videos" / q, place / "copy.mp4")  # from outside it may be found
    first = vssl("search", "copy.mp4", "--data", "my videos", "--k", 1, cwd=place).stdout
    assert first.splitlines()[1].split(None, 2) == ["1", "1.000", q]


def test_the_index_follows_the_folder(own):
    q, videos = names(own), own / "my videos"
    shutil.copy(videos / q[0], videos / "новое видео & <b>#1.mp4")
    (videos / q[1]).unlink()
    (videos / "broken.mp4").write_bytes(b"x")
    os.utime(videos / q[2], ns=(1, 1))  # changed
    old = vssl("search", q[0], "--data", "my videos", "--no-update", "--k", 99, cwd=own)
    assert not old.stderr and q[1] in old.stdout
    done = vssl("search", q[0], "--data", "my videos", "--k", 99, "--out", "wall.html", cwd=own)
    assert "3 encoded, 1 gone" in done.stderr and "1 unreadable" in done.stderr
    assert q[1] not in done.stdout
    assert done.stdout.splitlines()[1].split(None, 2)[2] == "новое видео & <b>#1.mp4"
    again = vssl("search", q[0], "--data", "my videos", "--k", 99, cwd=own)
    assert not again.stderr and again.stdout.splitlines()[:5] == done.stdout.splitlines()[:5]
    videos.rename(own / "moved")
    assert vssl("search", q[0], "--data", "moved", "--k", 99, cwd=own).stdout == again.stdout
    (own / "moved" / "broken.mp4").write_bytes((own / "moved" / q[0]).read_bytes())  # now it is one
    assert "1 encoded" in vssl("search", q[0], "--data", "moved", cwd=own).stderr


def test_the_wall(own):
    q, videos = names(own), own / "my videos"
    weird = 'été & <i>"#%1.mp4'
    shutil.copy(videos / q[0], videos / weird)
    x = video.decode(videos / q[0])
    video.encode(videos / "old.avi", x, fps=8, codec="mpeg4")
    (own / "pages").mkdir()
    vssl(
        "search",
        weird,
        f"my videos/{q[0]}@0.1-0.5",
        "old.avi",
        "--data",
        "my videos",
        "--k",
        3,
        "--out",
        "pages/wall.html",
        cwd=own,
    )
    page = (own / "pages" / "wall.html").read_text(encoding="utf-8")
    assert "<i>" not in page and html.escape(weird) in page and "http" not in page
    inside = re.findall(r'<video src="data:video/mp4;base64,([^"]+)" muted loop playsinline', page)
    assert len(inside) == 12
    for s in inside:  # also of the span and of the AVI: what every browser plays
        (own / "x.mp4").write_bytes(b64decode(s))
        assert video.probe(own / "x.mp4").codec == "h264"
    links = re.findall(r'<a href="([^"]+)"', page)
    assert len(links) == 12 and links[0].startswith("../my%20videos/")
    files = [link.partition("#t=")[0] for link in links]  # a name's own # is %23
    assert all((own / "pages" / unquote(s)).is_file() for s in files)
    assert [link.partition("#t=")[2] for link in links].count("0.1,0.5") == 1


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_killed_while_indexing(own):
    "The index holds what was encoded so far, and becomes the one that an unbroken call makes."
    slow = own / "slow.py"
    slow.write_text(
        "import sys, time; from vssl_nb.app import cli; from vssl_nb.measure import features\n"
        "features.SAVE_SECONDS = .1; real = features.mean_of_clips\n"
        "def mean(*a): time.sleep(.2); return real(*a)\n"
        "features.mean_of_clips = mean; sys.exit(cli.main(sys.argv[1:]))\n"
    )
    how = [
        "search",
        "--data",
        "my videos",
        "--encoder",
        "e.safetensors",
        "--clips",
        "2",
        "--index",
        "kept",
    ]
    p = warm.Command(how, own, script=slow)

    def videos():  # that the index has
        file = own / "kept" / "index.json"
        return json.loads(file.read_text())["videos"] if file.exists() else {}

    while len(videos()) < 5 and p.poll() is None:
        time.sleep(0.05)
    p.kill()
    p.wait()
    # a kill while the index is exchanged leaves features that no index names: removed after an hour
    lost = own / "kept" / "features-0.npy"
    lost.write_bytes(b"")
    for file in (own / "kept").glob("features*"):
        os.utime(file, (1, 1))
    kept = len(videos())
    q = names(own)[0]
    shutil.copy(own / "my videos" / q, own / "copy.mp4")
    found = vssl("search", "copy.mp4", *how[1:], "--no-update", "--k", 1, cwd=own).stdout
    assert found.splitlines()[1].split(None, 2)[2] == q
    assert 5 <= kept < 64 and f"{64 - kept} encoded, 0 gone" in vssl(*how, cwd=own).stderr
    [whole] = (own / "my videos" / ".vssl-search").glob("*/features*")
    [again] = (own / "kept").glob("features*")
    assert np.allclose(np.load(whole), np.load(again), atol=1e-6)
    assert [*videos()] == names(own) and len([*(own / "kept").iterdir()]) == 2


def test_mistakes(own, tmp_path):
    q = names(own)[0]

    def ask(*args):
        return wrong("search", *args, cwd=own)

    assert "there is no such file" in ask("no.mp4", "--data", "my videos")
    assert "is no span of time" in ask(f"{q}@3", "--data", "my videos")
    assert "the video lasts" in ask(f"{q}@1-999", "--data", "my videos")
    (own / "broken.mp4").write_bytes(b"x")
    assert "broken.mp4" in ask("broken.mp4", "--data", "my videos")
    assert "there is no such folder" in ask(q, "--data", "nowhere")
    (own / "empty").mkdir()
    assert "train one with" in ask(q, "--data", "empty")
    here = f"my videos/{q}"
    assert "has no video" in ask(here, "--data", "empty", "--encoder", "e.safetensors")
    assert "leave out --no-update" in ask(
        here, "--data", "empty", "--encoder", "e.safetensors", "--no-update"
    )
    assert "must end in .csv" in ask(q, "--data", "my videos", "--out", "x.txt")
    assert "--k 0" in ask(q, "--data", "my videos", "--k", "0")
    network = backbones.create("tiny", seed=0)
    checkpoints.export_encoder(own / "flow.safetensors", network, ABOUT | {"view": "flow"})
    assert "of the view flow" in ask(q, "--data", "my videos", "--encoder", "flow.safetensors")
    checkpoints.export_encoder(own / "rgb.safetensors", network, ABOUT | {"view": "rgb"})
    [kept] = (own / "my videos" / ".vssl-search").glob("*")
    assert "an index of another encoder" in ask(
        q, "--data", "my videos", "--encoder", "rgb.safetensors", "--index", kept
    )
    (own / "e.safetensors").unlink()
    # still in the folder that the copy was made of: an index names its encoder
    about = json.loads((kept / "index.json").read_text())
    (kept / "index.json").write_text(json.dumps(about | {"encoder": str(own / "e.safetensors")}))
    assert "which is gone; say where it is with --encoder" in ask(q, "--data", "my videos")
    [f] = kept.glob("features*")
    f.write_bytes(f.read_bytes()[:1000])
    (own / "e.safetensors").write_bytes((own / "rgb.safetensors").read_bytes())
    assert "is not a whole index" in ask(q, "--data", "my videos")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    there = tmp_path_factory.mktemp("run")
    toy.make(there / "toy", "tiny", progress=False)
    vssl(
        "pretrain",
        "infonce-toy-residual",
        "--data",
        "toy",
        "--out",
        "run",
        "--epochs",
        1,
        "--backbone",
        "tiny",
        "--batch",
        8,
        "--length",
        4,
        "--size",
        16,
        "--test-clips",
        2,
        "--device",
        "cpu",
        "--workers",
        0,
        "--quiet",
        cwd=there,
    )
    return there


def test_a_run_folder_is_an_encoder(run):
    done = vssl("search", "toy", "--data", "toy", "--encoder", "run", cwd=run, code=2)
    assert "toy: is a folder; name a video" in done.stderr
    assert not (run / "toy" / ".vssl-search").exists(), "encoded before the query was looked at"
    [q, *_] = sorted(manifest.find_videos(run / "toy"))
    known = ("search", q, "--data", "toy", "--k", 4)
    assert len(vssl(*known, "--encoder", "run", cwd=run).stdout.splitlines()) == 5
    assert vssl(*known, cwd=run).stdout, "the index names its encoder"


@pytest.mark.parametrize("kind", ["npz", "csv", "parquet"])
def test_extract_with_names(run, kind):
    vssl("extract", "run", "--out", f"f.{kind}", "--device", "cpu", "--workers", 0, cwd=run)
    m = manifest.read(run / "toy")
    [kept] = (run / "run" / "features").glob("*-all1-*.safetensors")
    expected = features.load_features(kept)
    order = [m.rows[r].video for r in expected.row.tolist()]
    got = evaluation.read_video_features(run / f"f.{kind}", m)
    assert [m.rows[r].video for r in got.row.tolist()] == order
    assert np.array_equal(got.x.numpy(), expected.x.numpy())


def test_extract_refuses_before_it_works(run):
    assert "must end in .npz, .csv" in wrong("extract", "run", "--out", "f.xlsx", cwd=run)


def test_benchmark(tmp_path):
    done = warm.run(
        [
            "--videos",
            "30",
            "--backbone",
            "tiny",
            "--clip",
            "8",
            "32",
            "--rounds",
            "1",
            "--out",
            "out.json",
        ],
        tmp_path,
        script=ROOT / "benchmarks" / "search.py",
    )
    assert done.returncode == 0, done.stderr
    [r] = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert r["index_bytes"] > 4 * 30 * r["dim"] and r["seconds"]["a file of the folder"] > 0
    assert r["cpu_seconds"]["a file from outside"] > r["cpu_seconds"]["start of Python"]
