"Runs that are killed at any moment, run out of disk, or lose one of their processes."

import csv
import os
import random
import signal
import subprocess
import time
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

import warm
from vssl_nb.data import toy
from vssl_nb.methods import recipes
from vssl_nb.runs import pretraining
from vssl_nb.runs.pretraining import pretrain, stored_recipe
from vssl_nb.training.checkpoints import load

SMALL = [
    "infonce-toy-residual",
    "--length",
    "4",
    "--size",
    "16",
    "--batch",
    "8",
    "--queue",
    "24",
    "--warmup",
    "0.5",
    "--device",
    "cpu",
    "--cache",
    "64",
    "--data",
    "videos",
]
PRETRAIN = ["pretrain", *SMALL, "--quiet"]


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def wait_for(what, process=None, seconds=300, every=0.005):
    until = time.monotonic() + seconds
    while time.monotonic() < until and (process is None or process.poll() is None):
        if what():
            return True
        time.sleep(every)
    return bool(what())


def steps(out):
    return (
        max(0, (out / "steps.csv").read_text().count("\n") - 1)
        if (out / "steps.csv").exists()
        else 0
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    there = tmp_path_factory.mktemp("death")
    toy.make(there / "videos", size="tiny", progress=False)
    return there


# --- killed

RECIPE = recipes.override(
    recipes.find("infonce-toy-residual"),
    length=4,
    size=16,
    batch=8,
    queue=24,
    warmup=0.5,
    epochs=12,
)


def leg(place, out, slow):
    """One life of a run, in a process of its own; on a slow disk a checkpoint takes a while to
    reach it.
    """
    if slow:
        fsync = os.fsync
        os.fsync = lambda f: (time.sleep(0.03), fsync(f))
    os.chdir(place)
    pretrain(
        RECIPE,
        "videos",
        out,
        resume=(out / "recipe.json").exists(),
        device="cpu",
        cache=64,
        save_minutes=0.0,
        progress=False,
    )


def test_twenty_kills_at_random_moments(place):
    """SIGKILL at 20 random moments, some during a checkpoint; the end is that of an unbroken run,
    to the bit.
    """
    import torch._dynamo  # noqa: F401  here; else every life does, for two seconds

    fork, rng = get_context("fork"), random.Random(0)
    whole, out = place / "whole", place / "killed"
    unbroken = fork.Process(target=leg, args=(place, whole, False))
    unbroken.start()
    unbroken.join()
    # caught: kills that left a half-written file
    total, caught, moments = load(whole / "last.pt")["step"], 0, []
    for kill in range(20):
        life = fork.Process(target=leg, args=(place, out, True))
        life.start()
        before = steps(out)
        until = time.monotonic() + 300
        if kill % 3 == 0:  # in the middle of a write
            name = rng.choice(("last.pt", "encoder.safetensors", "card.json"))
            after = before + rng.randint(0, 2)

            def writing():
                return steps(out) >= after and list(out.glob(f".{name}.*"))

            while not writing() and life.is_alive() and time.monotonic() < until:
                time.sleep(0.001)
        else:
            while (
                steps(out) < before + rng.randint(0, 4)
                and life.is_alive()
                and time.monotonic() < until
            ):
                time.sleep(0.002)
            time.sleep(rng.random() * 0.15)
        assert life.is_alive(), f"the run was over before kill {kill}"
        os.kill(life.pid, signal.SIGKILL)
        life.join()
        assert life.exitcode == -signal.SIGKILL
        caught += any(True for _ in out.glob(".*.*"))
        # whole at every moment
        moments.append(load(out / "last.pt")["step"] if (out / "last.pt").exists() else 0)
    assert caught >= 3, "no kill hit a checkpoint that was being written"
    assert moments == sorted(moments) and moments[-1] < total, moments
    last = fork.Process(target=leg, args=(place, out, False))
    last.start()
    last.join()
    assert same(load(out / "last.pt"), load(whole / "last.pt"))
    assert (out / "steps.csv").read_bytes() == (whole / "steps.csv").read_bytes()
    assert (out / "encoder.safetensors").read_bytes() == (
        whole / "encoder.safetensors"
    ).read_bytes()
    assert not list(out.glob(".*")), "a half-written file was left behind"
    times = list(csv.DictReader((out / "times.csv").open()))
    assert [int(r["step"]) for r in times] == list(range(1, total + 1))


# --- no room, no permission


@pytest.fixture
def disk(place):
    "A disk of its own that can be made smaller, larger or read-only; needs the right to mount."
    there = place / "disk"
    there.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", there]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip(
            "mounting a small disk needs root; run the tests as root to try full and read-only "
            "disks"
        )
    yield there
    subprocess.run(["umount", there], check=True)


def remount(disk, how):
    subprocess.run(["mount", "-o", f"remount,{how}", disk], check=True)


def run(*more, cwd, env=None):
    return warm.run([*PRETRAIN, "--epochs", "2", "--workers", "0", *more], cwd, env)


def sentence(done, *words):
    said = done.stderr.splitlines()
    assert done.returncode == 2 and len(said) == 1 and said[0].startswith("vssl-nb: "), done.stderr
    for word in words:
        assert word in said[0], said


@pytest.fixture(scope="module")
def whole(place):
    done = run("--out", "whole run", cwd=place)
    assert done.returncode == 0, done.stderr
    return place / "whole run"


def test_a_kill_between_card_and_recipe(monkeypatch, tmp_path):
    recipe = recipes.override(recipes.find("infonce-toy-rgb"), epochs=1, length=4, size=16)
    write_json, out = pretraining.write_json, tmp_path / "run"

    def killed(file, data):
        write_json(file, data)
        raise KeyboardInterrupt

    monkeypatch.setattr(pretraining, "write_json", killed)
    with pytest.raises(KeyboardInterrupt):
        pretrain(recipe, data := toy.make(tmp_path / "videos", "tiny", 0, workers=1).parent, out)
    assert not (out / "last.pt").exists()

    monkeypatch.setattr(pretraining, "write_json", write_json)
    pretrain(recipe, data, out)
    assert (out / "last.pt").exists() and stored_recipe(out) == recipe


def test_a_disk_that_is_full(place, whole, disk):
    """The second checkpoint does not fit: one sentence, the first is intact; with room, the usual
    end.
    """
    size = (whole / "last.pt").stat().st_size
    remount(disk, f"size={int(1.7 * size)}")
    sentence(
        run("--out", "disk/run", "--save-minutes", 0, cwd=place),
        "disk/run/",
        "No space left on device",
        "untouched",
    )
    assert 0 < load(disk / "run" / "last.pt")["step"] < load(whole / "last.pt")["step"]
    assert not list((disk / "run").glob(".*"))
    remount(disk, "size=64m")
    assert run("--out", "disk/run", "--resume", cwd=place).returncode == 0
    assert same(load(disk / "run" / "last.pt"), load(whole / "last.pt"))


def test_a_disk_that_fills_up_between_checkpoints(place, whole, disk):
    "Not even a line of the log fits any more."
    process = warm.Command(
        [*PRETRAIN, "--epochs", "16", "--workers", "0", "--out", "disk/log"], place
    )
    assert wait_for(lambda: steps(disk / "log") >= 2, process)
    filler = disk / "filler"
    with pytest.raises(OSError), filler.open("wb", buffering=0) as f:
        while True:
            f.write(bytes(2**20))  # the last one as far as there is room
    said = process.communicate(timeout=300)[1].splitlines()
    assert process.returncode == 2 and len(said) == 1 and "No space left on device" in said[0], said
    filler.unlink()
    again = run("--out", "disk/log", "--resume", "--epochs", "16", cwd=place)
    assert again.returncode == 0, again.stderr
    log = list(csv.DictReader((disk / "log" / "steps.csv").open()))
    assert [int(r["step"]) for r in log] == list(range(1, 97))


def test_a_folder_that_becomes_read_only(place, whole, disk):
    "One sentence, the last checkpoint intact; nothing can be started there either."
    process = warm.Command(
        [*PRETRAIN, "--epochs", "2", "--workers", "0", "--out", "disk/ro", "--save-minutes", "0"],
        place,
    )
    assert wait_for(lambda: (disk / "ro" / "last.pt").exists() and steps(disk / "ro") >= 2, process)
    for _ in range(200):  # busy while a file is open for writing
        if subprocess.run(["mount", "-o", "remount,ro", disk], capture_output=True).returncode == 0:
            break
        time.sleep(0.005)
    else:  # the log of TensorBoard stays open: make the run folder itself unwritable instead
        remount(disk, "size=1")
    said = process.communicate(timeout=300)[1].splitlines()
    assert process.returncode == 2 and len(said) == 1 and said[0].startswith("vssl-nb: disk/ro/"), (
        said
    )
    assert load(disk / "ro" / "last.pt")["step"] > 0
    remount(disk, "ro,size=64m")
    sentence(run("--out", "disk/new", cwd=place), "disk/new", "Read-only file system")
    sentence(run("--out", "disk/ro", "--resume", cwd=place), "disk/ro", "Read-only file system")
    remount(disk, "rw")
    assert run("--out", "disk/ro", "--resume", cwd=place).returncode == 0
    assert same(load(disk / "ro" / "last.pt"), load(whole / "last.pt"))


# --- several processes


COMMAND = "import sys\nfrom vssl_nb import main\nsys.exit(main())\n"


def torchrun(n, *more, cwd, before=""):
    "The command line in processes that torchrun starts, which import everything anew."
    launcher = cwd / "torchrun.py"
    launcher.write_text("from torch.distributed.run import main\nmain()\n")
    program = cwd / "command.py"
    program.write_text(before + COMMAND)
    options = [f"--nproc-per-node={n}", "--master-port", free_port()]
    return warm.Command(
        [*options, program, *PRETRAIN, "--workers", "1", *more], cwd, script=launcher
    )


def together(*more, cwd):
    """Two processes without a launcher's own imports: their exit codes, stdout and stderr.

    When one has failed, the other is ended, as torchrun does; but the first, which speaks, ends by
    itself.
    """
    both = warm.launch(2, [*PRETRAIN, "--workers", "1", *more], cwd)
    while any(p.poll() is None for p in both) and not any(p.poll() for p in both):
        time.sleep(0.01)
    if any(p.poll() for p in both):
        wait_for(lambda: both[0].poll() is not None, seconds=300)
        for p in both:
            p.terminate()
    said = [p.communicate() for p in both]
    return [p.returncode for p in both], *("".join(texts) for texts in zip(*said))


def free_port():
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ours(text):
    return [line for line in text.splitlines() if line.startswith("vssl-nb:")]


def ranks(process):
    "The processes of a torchrun, by rank."
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            if int(stat[1]) != process.pid:
                continue
            env = dict(
                e.split("=", 1)
                for e in (folder / "environ").read_bytes().decode(errors="replace").split("\0")
                if "=" in e
            )
        except (OSError, ValueError):
            continue
        if "RANK" in env:
            found[int(env["RANK"])] = int(folder.name)
    return found


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds the processes of a run in /proc")
def test_one_process_dies_and_the_others_end(place):
    "SIGKILL of rank 1: all are gone, with one sentence; two processes go on where they were."
    process = torchrun(2, "--epochs", 40, "--out", "lost", "--save-minutes", 0, cwd=place)
    assert wait_for(lambda: steps(place / "lost") >= 4, process)
    who = ranks(process)
    assert set(who) == {0, 1}
    os.kill(who[1], signal.SIGKILL)
    said = process.communicate(timeout=300)[1]
    assert process.returncode
    assert (
        len(ours(said)) == 1 and "go on from the last checkpoint with --resume" in ours(said)[0]
    ), said
    assert not any((Path("/proc") / str(p)).exists() for p in who.values())
    step = load(place / "lost" / "last.pt")["step"]
    logged = steps(place / "lost")  # also steps after the last checkpoint, until the log is cut
    again = torchrun(2, "--epochs", 40, "--out", "lost", "--resume", cwd=place)
    assert wait_for(lambda: steps(place / "lost") >= logged + 2, again)
    # Ctrl-C in a terminal reaches torchrun and all ranks, and torchrun passes it on once more
    os.killpg(again.pid, signal.SIGINT)
    said = again.communicate(timeout=300)[1]
    assert load(place / "lost" / "last.pt")["step"] > step, said
    assert sum("go on with --resume" in line for line in said.splitlines()) == 1, said


def test_two_processes_write_one_run(place, whole):
    """Only the first process writes; both halves of a batch count; the end is near that of one
    process.
    """
    codes, out, said = together("--epochs", 2, "--out", "two", cwd=place)
    assert codes == [0, 0], said
    assert out.splitlines() == ["two"] and not ours(said)
    assert sorted(p.name for p in (place / "two").iterdir()) == sorted(
        p.name for p in whole.iterdir()
    )
    one, two = (list(csv.DictReader((f / "steps.csv").open())) for f in (whole, place / "two"))
    assert len(one) == len(two)
    assert all(
        abs(float(a["loss"]) - float(b["loss"])) < 0.02 * max(1, float(a["loss"]))
        for a, b in zip(one[:4], two[:4])
    )
    for k in ("queue.row", "queue.label", "queue.pointer"):
        assert torch.equal(
            load(whole / "last.pt")["method"][k], load(place / "two" / "last.pt")["method"][k]
        )


def test_tasks_of_srun_do_not_train_side_by_side(place, whole):
    "Several tasks of a SLURM step know nothing of each other; one of a batch script runs alone."
    step = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0", "SLURM_JOB_ID": "7"}
    sentence(run("--out", "step", cwd=place, env=os.environ | step), "srun torchrun")
    assert not (place / "step").exists()
    batch = {"SLURM_NTASKS": "2", "SLURM_PROCID": "0", "SLURM_JOB_ID": "7"}
    alone = run("--out", "batch", cwd=place, env=os.environ | batch)
    assert alone.returncode == 0, alone.stderr
    assert same(load(place / "batch" / "last.pt"), load(whole / "last.pt"))


def test_a_mistake_of_many_processes_is_said_once(place, whole):
    for more, word in (
        (["--out", "whole run"], "holds a run already"),
        (["--out", "bad", "--lr", "fast"], "--lr fast: is not a number"),
        (["--out", "bad", "--batch", "7"], "multiple of 2"),
    ):
        codes, _, said = together("--epochs", 2, *more, cwd=place)
        assert codes[0] == 2 and len(ours(said)) == 1 and word in ours(said)[0], said
    assert not (place / "bad").exists()


def test_the_first_process_says_it_though_it_comes_late(place):
    """torchrun ends all processes when one has ended; the others must not end before the first has
    spoken.
    """
    late = "import os, time\nif os.environ['RANK'] == '0':\n    time.sleep(3)\n"
    process = torchrun(2, "--out", "bad", "--lr", "fast", cwd=place, before=late)
    said = process.communicate(timeout=120)[1]
    assert process.returncode and len(ours(said)) == 1 and "--lr fast" in ours(said)[0], said


def test_a_process_that_hangs_is_given_up(tmp_path):
    """torchrun sees two processes that live, and one of them does nothing: the timeout of the group
    ends the wait, with one sentence.
    """
    program = tmp_path / "hangs.py"
    program.write_text(HANGS)
    launcher = tmp_path / "torchrun.py"
    launcher.write_text("from torch.distributed.run import main\nmain()\n")
    options = ["--nproc-per-node=2", "--master-port", free_port()]
    process = warm.Command([*options, program], tmp_path, script=launcher)
    said = process.communicate(timeout=300)[1]
    assert process.returncode and len(ours(said)) == 1, said
    assert "rank 0 lost the connection to another process" in ours(said)[0], said


HANGS = """
import sys
import time
from datetime import timedelta

import torch

from vssl_nb import distributed

try:
    with distributed.start(timeout=timedelta(seconds=20)):
        torch.distributed.barrier()
        if distributed.rank() == 1:
            time.sleep(600)
        torch.distributed.all_reduce(torch.ones(1))
except distributed.DistributedError as e:
    sys.exit(f"vssl-nb: {e}")
"""
