"Stored flow by real processes: killed, split between processes, out of disk, given bad input."

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch

import warm
from vssl_nb.app import cli
from vssl_nb.data import flow, manifest, toy, views
from vssl_nb.data.video import decode, encode, probe

FLOW = [sys.executable, "-m", "vssl_nb.app.cli", "flow"]
QUICK = ["--method", "dis", "--workers", "2"]


def child(args, env, limit, said):
    "In the child: the command with its output in files."
    for n, file in enumerate(said, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), n)
    sys.stdout, sys.stderr = (open(n, "w", closefd=False) for n in (1, 2))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(env)
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    code = cli.main(["flow", *args])
    for f in (sys.stdout, sys.stderr):
        f.flush()
    os._exit(code)


# importing torch takes longer than what is tested; forks of a process that has done nothing yet, so
# that no
# thread is missing
clean = get_context("forkserver")
clean.set_forkserver_preload(["vssl_nb.app.cli", "vssl_nb.data.flow"])


class Life:
    "A process of its own that runs `vssl-nb flow`."

    def __init__(self, *args, env={}, limit=None):
        self.folder = tempfile.TemporaryDirectory()
        self.said = [f"{self.folder.name}/{n}" for n in ("out", "err")]
        self.process = clean.Process(
            target=child, args=([str(a) for a in args], env, limit, self.said)
        )
        self.process.start()

    def alive(self):
        return self.process.is_alive()

    def send(self, number):
        os.kill(self.process.pid, number)

    def wait(self, seconds=60):
        self.process.join(seconds)
        late = self.process.is_alive()
        self.process.kill()
        self.process.join()
        assert not late, f"still at work after {seconds} s"
        return subprocess.CompletedProcess(
            "flow",
            self.process.exitcode,
            *(Path(f).read_text() if Path(f).exists() else "" for f in self.said),
        )


def call(*args, **kw):
    return Life(*args, **kw).wait()


def files(root, out="flow"):
    "Name -> bytes of everything in the folder of the flow."
    return {
        p.relative_to(root).as_posix(): p.read_bytes()
        for p in sorted((root / out).rglob("*"))
        if p.is_file()
    }


def sentence(done, *words):
    "Exit code 2 and one sentence, whatever the progress bar said."
    said = [
        line
        for line in done.stderr.replace("\r", "\n").splitlines()
        if line.startswith("vssl-nb: ")
    ]
    assert done.returncode == 2 and len(said) == 1 and "Traceback" not in done.stderr, done.stderr
    for word in words:
        assert word in said[0], said
    return said[0]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    "Eight clips, cut from real ones where there are any, in a folder with a manifest."
    there, clips = tmp_path_factory.mktemp("source"), manifest.test_videos()
    found = (
        sorted(clips.glob("ucf101/*/*.avi"), key=lambda f: (f.stat().st_size, f.name))[:8]
        if clips
        else []
    )
    if not found:
        table = manifest.read(toy.make(there / ".toy", "tiny", workers=1, progress=False))
        found = [table.file(i) for i in range(8)]
    for n, f in enumerate(found):
        folder = there / ("left", "right")[n % 2]
        folder.mkdir(exist_ok=True)
        x = decode(f)
        # so that a file takes a while
        if x.shape[1] < 200:
            x = x.repeat_interleave(8, 1).repeat_interleave(8, 2)
        encode(folder / f"{n}.mp4", torch.cat([x, x])[: 16 + 4 * n])
    shutil.rmtree(there / ".toy", ignore_errors=True)
    manifest.update_manifest(there, progress=False)
    return there


@pytest.fixture
def place(source, tmp_path):
    return Path(shutil.copytree(source, tmp_path / "data"))


@pytest.fixture(scope="module")
def whole(source, tmp_path_factory):
    "An unbroken run."
    there = Path(shutil.copytree(source, tmp_path_factory.mktemp("whole") / "data"))
    done = subprocess.run([*FLOW, str(there), *QUICK], text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "names the flow of 8 videos" in done.stdout and "pairs/s" in done.stderr, (
        done.stdout,
        done.stderr,
    )
    return there


@pytest.mark.parametrize(
    "clips, method, quick_way",
    [(12, "tvl1", True), (12, "tvl1-opencv", True), (12, "dis", False), (2, "tvl1", False)],
)
def test_slow_flow_names_the_quick_way(clips, method, quick_way, tmp_path, monkeypatch, capsys):
    "Before it begins, where it takes more than a minute; with the rate that was measured."
    rows = [
        manifest.Row(f"{i}.mp4", source=str(i), frames=41, fps=25.0, width=320, height=240)
        for i in range(clips)
    ]
    manifest.write(tmp_path, rows)
    done = flow.ExtractionResult(tmp_path / "manifest.csv", True, clips, 0, 0.0)
    monkeypatch.setattr(flow.ExtractionJob, "run", lambda job: done)
    args = ["flow", str(tmp_path), "--method", method, "--device", "cpu", "--no-compile"]
    assert cli.main(args) == 0
    said = capsys.readouterr().err
    assert ("--method dis" in said and "285 pairs" in said) == quick_way, said
    assert said.count("\n") == quick_way
    for name in flow.flow_paths(manifest.read(tmp_path)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert cli.main(args) == 0 and not capsys.readouterr().err, "nothing is left to do"


def test_the_compiler_is_tried_without_words_of_pytorch(tmp_path):
    "A toolkit of CUDA without a GPU made it warn, in the form of its log."
    program = "from vssl_nb.data.tvl1 import can_compile; print(can_compile('cpu'))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        text=True,
        capture_output=True,
        env=os.environ | {"CUDA_HOME": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    if done.stdout.startswith("True"):  # else the sentence that tells so
        assert done.stderr == ""


def test_what_is_stored_is_the_flow(whole):
    """F-1 frames of the size of the video; to the byte what the method gives; as pixels within half
    a level.
    """
    table, dis = manifest.read(whole), flow.flow_method("dis")
    assert json.loads((whole / "flow" / "flow.json").read_text())["method"] == "dis"
    assert not list((whole / "flow").rglob(".*"))
    for row in table.rows[:3]:
        seen, stored = probe(whole / row.video), decode(whole / row.flow)
        assert stored.shape == (seen.frames - 1, seen.height, seen.width, 3)
        grey = next(flow.frame_chunks(whole / row.video, 2**40))
        # one pair at a time, in one thread
        f = torch.cat(
            [dis.compute(grey[i : i + 1], grey[i + 1 : i + 2]) for i in range(len(grey) - 1)]
        )
        assert torch.equal(stored, views.flow_to_image(f))
        assert (views.image_to_flow(stored) - f.clamp(-20, 20)).abs().max() <= 20 / 255 + 1e-5


def test_the_small_codec_keeps_its_word(place, whole):
    done = call(place, *QUICK, "--codec", "small", "--out", "lossy", "--manifest", "lossy.csv")
    assert done.returncode == 0, done.stderr
    worst, size = 0, []
    for a, b in zip(manifest.read(whole).rows, manifest.read(place / "lossy.csv").rows):
        x, y = decode(whole / a.flow).int(), decode(place / b.flow).int()
        worst = max(worst, (x - y).abs().max().item())
        size.append((place / b.flow).stat().st_size / (whole / a.flow).stat().st_size)
    assert worst <= flow.CODEC_ERRORS["small"] and np.mean(size) < 0.95, (worst, size)
    assert not any(r.flow for r in manifest.read(place).rows), (
        "the other manifest was to stay as it was"
    )


def test_killed_at_random_moments(place, whole):
    """SIGKILL eight times, at least twice inside a file; the end is that of the unbroken run, byte
    for byte.
    """
    rng, caught, finished = random.Random(1), 0, []
    for kill in range(8):
        life = Life(place, "--method", "dis", "--workers", 1 + kill % 2)
        before, until = len(list(place.rglob("flow/**/[!.]*.mp4"))), time.monotonic() + 300
        if kill % 2:  # while a file is being written
            while not part(place) and life.alive() and time.monotonic() < until:
                time.sleep(0.002)
        else:  # when the next one is finished
            while (
                len(list(place.rglob("flow/**/[!.]*.mp4"))) == before
                and life.alive()
                and time.monotonic() < until
            ):
                time.sleep(0.002)
        time.sleep(rng.random() * 0.05)
        if not life.alive():
            break
        life.send(signal.SIGKILL)
        if life.wait().returncode == 0:
            break  # it was quicker
        caught += bool(part(place))
        finished.append(len(list(place.rglob("flow/**/[!.]*.mp4"))))
        for p in place.rglob("flow/**/[!.]*.mp4"):
            assert flow.count_frames(p) > 0, f"{p} is not whole"
        assert not any(r.flow for r in manifest.read(place).rows)
    assert caught >= 2 and finished == sorted(finished), (caught, finished)
    done = call(place, *QUICK)
    assert done.returncode == 0, done.stderr
    assert files(place) == files(whole), "not the same files, or something was left behind"
    assert (place / "manifest.csv").read_bytes() == (whole / "manifest.csv").read_bytes()
    again = call(place, *QUICK)
    assert again.returncode == 0 and "nothing was left to do" in again.stdout
    assert files(place) == files(whole)


def part(place):
    found = []
    for p in place.rglob("flow/**/.*.mp4"):
        try:
            p.stat()
            found.append(p)
        except FileNotFoundError:
            pass
    return found


def test_a_damaged_file_is_made_again(place, whole):
    shutil.rmtree(place)
    shutil.copytree(whole, place)
    first, second = (place / r.flow for r in manifest.read(place).rows[:2])
    first.write_bytes(first.read_bytes()[:-200])
    second.write_bytes(b"")
    stamps = {p: p.stat().st_mtime_ns for p in (place / "flow").rglob("*.mp4")}
    assert call(place, *QUICK).returncode == 0
    assert files(place) == files(whole)
    assert {p for p, t in stamps.items() if p.stat().st_mtime_ns != t} == {first, second}


def test_two_processes_share_the_work(place, whole):
    """Each video once; the files and the manifest are those of one process, however they are
    started.
    """
    table = manifest.read(place)
    for method in ("two", "torchrun"):
        shutil.rmtree(place / "flow", ignore_errors=True)
        manifest.write(place, table.rows)
        if method == "two":  # by hand, one after the other, the second first
            told = [
                call(place, *QUICK, env=dict(RANK=str(r), WORLD_SIZE="2", LOCAL_RANK=str(r)))
                for r in (1, 0)
            ]
            assert [t.returncode for t in told] == [0, 0], told
            assert [w.split(" pairs")[0] for w in (told[0].stdout, told[1].stdout)] == [
                "",
                told[1].stdout.split(" pairs")[0],
            ], "only the last one has something to tell"
            assert "names the flow of 8" in told[1].stdout
        else:
            done = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "torch.distributed.run",
                    "--standalone",
                    "--nproc-per-node=2",
                    "-m",
                    "vssl_nb.app.cli",
                    "flow",
                    str(place),
                    *QUICK,
                ],
                text=True,
                capture_output=True,
                timeout=300,
            )
            assert done.returncode == 0, done.stderr
            assert "names the flow of 8" in done.stdout
        assert files(place) == files(whole)
        assert (place / "manifest.csv").read_bytes() == (whole / "manifest.csv").read_bytes()


def test_one_of_two_is_missing(place):
    "The manifest waits for the second; the share of each is disjoint."
    done = call(place, *QUICK, env=dict(RANK="0", WORLD_SIZE="2", LOCAL_RANK="0"))
    assert done.returncode == 0 and "4 videos are left to other processes" in done.stdout, (
        done.stdout
    )
    assert len(list((place / "flow").rglob("*.mp4"))) == 4
    assert not any(r.flow for r in manifest.read(place).rows)
    alone = call(place, *QUICK)
    assert alone.returncode == 0 and "names the flow of 8" in alone.stdout


def test_ctrl_c(place):
    life = Life(place, *QUICK)
    until = time.monotonic() + 300
    while not part(place) and life.alive() and time.monotonic() < until:
        time.sleep(0.005)
    life.send(signal.SIGINT)
    done = life.wait()
    said = done.stderr
    assert done.returncode == 130 and "interrupted" in said and "Traceback" not in said, said
    assert not part(place), "a half-written file was left behind"
    assert call(place, *QUICK).returncode == 0


# --- no room


def test_a_disk_that_is_full(place, whole, tmp_path):
    "One sentence, what is finished is whole, nothing half-written; with room it goes on."
    disk = place / "flow"
    disk.mkdir()
    if subprocess.run(
        [
            "mount",
            "-t",
            "tmpfs",
            "-o",
            f"size={int(sum(map(len, files(whole).values())) * 0.5)}",
            "tmpfs",
            disk,
        ],
        capture_output=True,
    ).returncode:
        pytest.skip("mounting a small disk needs root; run the tests as root to try a full disk")
    try:
        sentence(call(place, *QUICK), "flow/", "No space left on device", "run this again")
        done = [p for p in disk.rglob("*.mp4")]
        assert 0 < len(done) < 8 and not part(place)
        for p in done:
            assert p.read_bytes() == files(whole)[p.relative_to(place).as_posix()]
        assert not any(r.flow for r in manifest.read(place).rows)
        subprocess.run(["mount", "-o", "remount,size=256m", disk], check=True)
        assert call(place, *QUICK).returncode == 0
        assert files(place) == files(whole)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        (place / "manifest.csv").rename(tmp_path / "kept.csv")
        shutil.copy(tmp_path / "kept.csv", place / "manifest.csv")
        # reading is enough for that
        assert "nothing was left to do" in call(place, *QUICK).stdout
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_file_that_may_not_grow(place):
    "The same sentence where a quota bites, without the right to mount."
    done = call(place, *QUICK, limit=20_000)
    sentence(done, "cannot be written", "File too large")
    assert not part(place)


def test_a_file_in_the_way(place):
    (place / "flow").write_text("a file in the way")
    sentence(call(place, *QUICK), "flow", "--out")


# --- bad input


def test_videos_that_have_no_flow(place):
    """Unreadable, one frame, a change of size, two pixels: each gets its reason or its flow; the
    rest goes on.
    """
    table = manifest.read(place)
    first = table.rows[0]
    (place / first.video).write_bytes(b"this was a video")
    g = np.random.default_rng(0)
    extra = {"one.mp4": (1, 32, 32), "two_px.mp4": (4, 2, 2), "flat.mp4": (4, 2, 64)}
    for name, size in extra.items():
        encode(place / name, g.integers(0, 255, (*size, 3), np.uint8))
    # any video will do
    flow.write_flow(place / "odd.mp4", g.integers(0, 255, (5, 33, 21, 3), np.uint8))
    rows = [
        *table.rows,
        *(
            manifest.Row(n, frames=t, fps=25.0, width=w, height=h)
            for n, (t, h, w) in (extra | {"odd.mp4": (5, 33, 21)}).items()
        ),
        manifest.Row("gone.avi", status="is not there"),
    ]
    rows[1] = rows[1].__class__(**{**rows[1].__dict__, "frames": rows[1].frames + 3})
    for name, size in {"a.h264": (6, 32, 32), "b.h264": (6, 48, 32)}.items():
        encode(place / name, g.integers(0, 255, (*size, 3), np.uint8))
    (place / "grows.h264").write_bytes(
        (place / "a.h264").read_bytes() + (place / "b.h264").read_bytes()
    )
    rows.append(manifest.Row("grows.h264", frames=12, fps=25.0, width=32, height=32))
    manifest.write(place, rows)
    done = call(place, *QUICK)
    assert done.returncode == 0, done.stderr
    said = {
        line.split(": ")[1]: line
        for line in done.stdout.splitlines()
        if line.startswith("no flow: ")
    }
    assert set(said) == {first.video, "one.mp4", rows[1].video, "grows.h264"}, done.stdout
    assert "changes its size at frame 6" in said["grows.h264"]
    assert (
        "one frame" in said["one.mp4"]
        and "make the manifest again" in said[rows[1].video]
        and "not a video" in said[first.video]
    )
    assert "1 videos are not usable" in done.stdout
    now = {r.video: r.flow for r in manifest.read(place).rows}
    assert [now[v] for v in (first.video, "one.mp4", "gone.avi")] == ["", "", ""]
    for name, (t, h, w) in {
        **{k: v for k, v in extra.items() if v[0] > 1},
        "odd.mp4": (5, 33, 21),
    }.items():
        assert decode(place / now[name]).shape == (t - 1, h, w, 3)


def test_mistakes_are_one_sentence(place, whole, tmp_path):
    assert call(place, *QUICK).returncode == 0
    sentence(call(tmp_path / "nowhere", *QUICK), "nowhere", "no such file")
    sentence(
        call(place, "--method", "tvl1-opencv"),
        "flow.json",
        "'dis' there, 'tvl1-opencv' here",
        "--out",
    )
    sentence(call(place, *QUICK, "--codec", "small"), "flow.json", "'exact' there, 'small' here")
    sentence(call(place, *QUICK, "--out", tmp_path / "elsewhere"), "elsewhere", "does not lie in")
    sentence(call(place, *QUICK, "--out", manifest.read(place).rows[0].label), "did not write")
    sentence(call(place, "--device", "cuda:77"), "cuda:77", "--device cpu")
    sentence(call(place, "--method", "dis", "--device", "cuda"), "CPU only")
    sentence(call(place, *QUICK, "--workers", "0"), "must be 1 or more")
    assert files(place) == files(whole)


def test_the_script_is_the_command(place, whole):
    script = Path(__file__).resolve().parent.parent / "data_scripts" / "extract_flow.py"
    done = warm.run([place, *QUICK], script=script)
    assert done.returncode == 0, done.stderr
    assert files(place) == files(whole)


def reads_in_pieces(path, told):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    n = sum(len(p) - 1 for p in flow.frame_chunks(path, 2**20))
    told.put((n, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024))


def test_long_videos_take_little_memory(tmp_path):
    "240 frames of 640x480 as RGB would be 220 MB; they come in pieces."
    x = np.zeros((24, 480, 640, 3), np.uint8)
    x[:, 100:200] = np.arange(24, dtype=np.uint8)[:, None, None, None] * 5
    encode(tmp_path / "long.mp4", np.concatenate([x] * 10))
    told = clean.Queue()
    reader = clean.Process(target=reads_in_pieces, args=(tmp_path / "long.mp4", told))
    reader.start()
    n, grown = told.get(timeout=300)
    reader.join()
    assert n == 239 and grown < 100, (n, grown)
