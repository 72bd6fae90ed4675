"The demo with two processes: the same weights as with one, also after Ctrl-C."

import contextlib
import io
import json
import os
import re
import signal
import time

import pytest

import warm
from vssl_nb.data import toy
from vssl_nb.app.demo import demo, story
from vssl_nb.papers.reproduce import TOY_STARTS
from vssl_nb.papers.tasks import Task, at_once
from vssl_nb.runs.cotraining import cotraining_phases
from vssl_nb.training.checkpoints import digest, load
from vssl_nb.fields import RecipeError
from vssl_nb.training.run_folder import read_json

SHORT = dict(epochs=1, batch=8, length=4, queue=8, topk=5, test_clips=1, warmup=0.5)
FEW = toy.Size(4, 1, 20, 32)  # half as many toy videos as tiny, of half as many frames
PROGRAM = f"""
import sys
from vssl_nb.app.cli import main
from vssl_nb.data import toy
import vssl_nb.app.demo
toy.SIZES['tiny'] = toy.{FEW}
real = vssl_nb.app.demo.demo
vssl_nb.app.demo.demo = lambda out, seed: real(out, 'tiny', seed, {SHORT!r}, int(sys.argv[2]))
if __name__ == '__main__': sys.exit(main(['demo', '--out', sys.argv[1]]))
"""


SAVING = """
import sys, time
from pathlib import Path
from vssl_nb.app.cli import main
from vssl_nb.training.machine import stop_signals
import vssl_nb.app.demo
from vssl_nb.papers.tasks import Task, at_once

def train(folder):
    with stop_signals() as stop:
        Path(folder, 'began').touch()
        assert stop.wait(60)
        time.sleep(2) # longer than `vssl-nb` waits before it repeats the signal
        Path(folder, 'saved').touch()

def two_trainings(out, seed):
    tasks = {n: Task(train, (f'{out}/{n}',)) for n in 'ab'}
    at_once(tasks, 2, progress=False)

vssl_nb.app.demo.demo = two_trainings
if __name__ == '__main__': sys.exit(main(['demo', '--out', sys.argv[1]]))
"""


def command(folder, out, processes):
    (folder / "program.py").write_text(PROGRAM)
    return warm.Command([out, processes], folder, script=folder / "program.py")


def weights(out):
    return {p.parent.name: digest(load(p)["method"]) for p in sorted(out.glob("*/last.pt"))}


def lines(out):
    return sum(len(p.read_text().splitlines()) for p in out.glob("*/steps.csv"))


@pytest.fixture(scope="module", autouse=True)
def few_videos():
    with pytest.MonkeyPatch.context() as m:
        m.setitem(toy.SIZES, "tiny", FEW)
        yield


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    "A demo in one process: its folder, what it printed, its rows."
    there, printed = tmp_path_factory.mktemp("demo"), io.StringIO()
    with contextlib.redirect_stdout(printed):
        rows = demo(there / "one", "tiny", 0, SHORT, 1, progress=False)
    return there, printed.getvalue(), rows


def test_rows_figures_and_page(alone):
    there, _, rows = alone
    names = [*(r.name for _, r in cotraining_phases("coclr-toy")), *TOY_STARTS]
    assert [r["method"] for r in rows] == [
        "chance",
        "histogram",
        "motion",
        "histogram+motion",
        *["random"] * 3,
        *["infonce"] * 2,
        *["coclr"] * 3,
        "ubernce",
        *["infonce"] * 2,
    ]
    assert json.loads((there / "one" / "results.json").read_text()) == rows
    assert {p.name for p in (there / "one" / "figures").iterdir()} == {
        "classes.png",
        "loss.png",
        "phases.png",
        "top1.png",
        *(f"neighbours-{n}.png" for n in names),
    }
    page = (there / "one" / "report.html").read_text()
    assert all(f"{100 * r['r1']:.1f}" in page for r in rows)
    assert 'src="data:image/png' in page and 'src="http' not in page
    given = read_json(there / "one" / "infonce-toy-rgb-longer" / "card.json", "x")["given"]
    assert given["encoder"]["run"] == str(there / "one" / "infonce-toy-rgb")


def test_the_table_in_words_is_plain():
    "Short sentences with a verb, every number once and as the README writes it."
    measured = [
        ("chance", "chance", ""),
        ("histogram", "colour histogram", "rgb"),
        ("motion", "motion by hand", "rgb"),
        ("histogram+motion", "colours and motion by hand", "rgb"),
        *(("random", f"random tiny, {v}", v) for v in ("rgb", "residual", "flow")),
        *(("infonce", f"infonce-toy-{v}", v) for v in ("rgb", "residual", "flow")),
        *(("coclr", f"coclr-toy-{v}-cycle1", v) for v in ("rgb", "residual", "rgb+residual")),
        ("ubernce", "ubernce-toy-rgb", "rgb"),
        ("infonce", "infonce-toy-rgb-longer", "rgb"),
    ]
    rows = [
        {"method": method, "name": name, "view": view, "r1": 0.05 * i + 0.101}
        for i, (method, name, view) in enumerate(measured)
    ]
    text = story(rows)
    assert sorted(re.findall(r"\d+\.\d %", text)) == sorted(f"{100 * r['r1']:.1f} %" for r in rows)
    assert not re.search(r"\d%", text)
    sentences = text.removesuffix(".").split(". ")
    assert "R@1 is" in sentences[0] and all(len(s.split()) < 30 for s in sentences), sentences
    assert all(re.search("is|reach(es)?", s) for s in sentences), sentences


def test_two_at_a_time_and_interrupted_come_to_the_same_weights(alone):
    there, said, _ = alone
    process = command(there, "two", 2)
    until = time.monotonic() + 300
    while lines(there / "two") < 12 and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: all hear it
    _, wrong = process.communicate(timeout=300)
    assert process.returncode != 0 and "Traceback" not in wrong, wrong
    assert 0 < lines(there / "two") < lines(there / "one")
    again = io.StringIO()
    with contextlib.redirect_stdout(again):
        demo(there / "two", "tiny", 0, SHORT, 2, progress=False)
    assert len(weights(there / "one")) == 7 and weights(there / "two") == weights(there / "one")

    def table(
        text,
    ):  # the last one: before it, each row is printed as soon as it is known
        said = text.splitlines()
        begin = max(i for i, line in enumerate(said) if line.startswith("name "))
        return [
            line.split()[:-1]
            for line in said[begin:]
            if line.startswith(("infonce", "coclr", "ubernce"))
        ]

    assert table(again.getvalue()) == table(said) and len(table(said)) == 8


@pytest.mark.parametrize(
    "end, number",
    [(os.killpg, signal.SIGINT), (os.kill, signal.SIGTERM)],
    ids=["Ctrl-C", "SIGTERM to the first process"],
)
def test_all_runs_are_saved_before_an_interrupted_command_ends(tmp_path, end, number):
    (tmp_path / "program.py").write_text(SAVING)
    for name in "ab":
        (tmp_path / name).mkdir()
    process = warm.Command([tmp_path], tmp_path, script=tmp_path / "program.py")
    until = time.monotonic() + 300
    while not all((tmp_path / n / "began").exists() for n in "ab") and time.monotonic() < until:
        time.sleep(0.02)
    end(process.pid, number)
    _, wrong = process.communicate(timeout=300)
    assert process.returncode == 128 + number and wrong == "vssl-nb: interrupted\n", wrong
    assert all((tmp_path / n / "saved").exists() for n in "ab")


def test_other_settings_are_refused_and_change_nothing(alone):
    kept = alone[0] / "one" / "infonce-toy-rgb" / "last.pt"
    before = kept.stat().st_mtime_ns
    with pytest.raises(RecipeError, match="was started with"):
        demo(alone[0] / "one", "tiny", 0, SHORT | {"batch": 4}, 1, progress=False)
    assert kept.stat().st_mtime_ns == before


def test_a_row_is_printed_once_when_it_is_known(alone):
    _, printed, rows = alone
    expected = [
        f"R@1 {100 * r['r1']:5.1f} %  {r['name']}" + f", {r['view']}" * bool(r["view"])
        for r in rows
    ]
    lines = [line for line in printed.splitlines() if re.match(r"R@1 +\d", line)]
    # chance and histogram at once
    assert sorted(lines) == sorted(expected) and lines[:2] == expected[:2]


def test_what_fails_in_another_process_is_raised_here():
    with pytest.raises(TypeError):
        at_once(
            {"wrong": Task(int, ("x", "y")), "never": Task(len, ("a",), ("wrong",))}, progress=False
        )


def test_what_is_done_is_looked_at():
    tasks, seen = {"first": Task(len, ("abc",)), "second": Task(max, (4, 2), after=("first",))}, []
    assert at_once(tasks, 1, look=lambda done: seen.append([*done])) == {"first": 3, "second": 4}
    assert seen == [["first"], ["first", "second"]]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_task_begins_when_what_it_waits_for_is_done_and_nothing_else(tmp_path, processes):
    """'free' stands last, but only 'next' waits for 'long'; with two processes 'long' ends after
    'free'.
    """

    def work(name, code):
        begin = f"import time, pathlib\nat = pathlib.Path({str(tmp_path)!r})"
        return exec, (f"{begin}\n{code}\n(at/{name!r}).touch()",)

    until = 'assert not (at/"free").exists()'
    if processes == 2:
        until = (
            "end = time.monotonic() + 300\n"
            'while not (at/"free").exists():\n    assert time.monotonic() < end\n    '
            "time.sleep(.01)"
        )
    tasks = {
        "long": Task(*work("long", until)),
        "next": Task(*work("next", 'assert (at/"long").exists()'), ("long",)),
        "free": Task(*work("free", "")),
    }
    assert list(at_once(tasks, processes, progress=False)) == list(tasks)
    assert {f.name for f in tmp_path.iterdir()} == {*tasks}


def test_a_task_that_could_never_begin_is_refused():
    with pytest.raises(ValueError, match="'a' waits for 'b'"):
        at_once({"a": Task(len, ("x",), ("b",)), "b": Task(len, ("y",))})
