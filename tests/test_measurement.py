"What the benchmarks share: rounds, stamps, results that are gone on with, intervals, run folders."

import json
import math
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import intervals
import measurement
import result_files
import run_folders


@pytest.fixture
def checkout(tmp_path):
    "A repository with a library and a script."

    def git(*words):
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "vssl_nb").mkdir()
    (tmp_path / "vssl_nb" / "one.py").write_text("1")
    (tmp_path / "script.py").write_text("2")
    git("init")
    git("config", "user.email", "a@b.example")
    git("config", "user.name", "a")
    git("add", ".")
    git("commit", "-m", "first")
    (tmp_path / "script.py").write_text("3")
    git("commit", "-am", "second")
    return tmp_path


def stamp(**settings):
    return result_files.Stamp(str(ROOT / "benchmarks" / "mining.py"), settings)


# ---- rounds


def test_ways_take_turns():
    "In every second round in the opposite order."
    calls = []

    def work(name):
        calls.append(name)
        return len(calls)

    rounds = measurement.in_turn({name: partial(work, name) for name in "abc"}, 3)
    assert "".join(calls) == "abc" + "cba" + "abc"
    assert rounds == {"a": [1, 6, 7], "b": [2, 5, 8], "c": [3, 4, 9]}
    assert measurement.medians(rounds) == {"a": 6, "b": 5, "c": 4}


def test_a_ratio_is_of_one_round():
    ratios = measurement.ratios([2.0, 9.0, 4.0], [1.0, 3.0, 8.0])
    assert ratios == [2.0, 3.0, 0.5]
    spread = measurement.spread(ratios)
    assert (spread.median, spread.lowest, spread.highest) == (2.0, 0.5, 3.0)
    assert str(spread) == "2.00 (0.50 to 3.00)"


def test_each_task_is_announced_once(capsys):
    look = measurement.announcer(lambda name, row: f"{name}: {row}")
    look({"a": 1})
    look({"a": 1, "b": 2})
    assert capsys.readouterr().out == "a: 1\nb: 2\n"


def test_a_script_in_a_process_of_its_own(tmp_path):
    "Its last line is its answer; where it fails, its words are those of the caller."
    script = tmp_path / "script.py"
    script.write_text(
        "import json, os, sys\n"
        "print('first')\n"
        "print(json.dumps([sys.argv[1:], os.environ['COLOUR']]))\n"
    )
    answer = measurement.in_own_process(str(script), "--once", {"n": 1}, {"COLOUR": "red"})
    assert answer == [["--once", '{"n": 1}'], "red"]
    script.write_text("import sys; sys.exit('no')")
    with pytest.raises(SystemExit, match="no"):
        measurement.in_own_process(str(script), "--once", {})


def arrays(megabytes):
    return (megabytes,)


def fill(megabytes):
    return np.ones(megabytes * 2**17)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux alone has it")
def test_memory_on_top():
    whole, small = partial(arrays, 64), partial(arrays, 1)
    peak = measurement.peak_bytes(fill, whole, small, "numpy")
    assert 60 * 2**20 < peak < 90 * 2**20


def test_videos_are_evenly_spread(tmp_path):
    assert measurement.evenly_spread([*range(10)], 3) == [0, 3, 6]
    assert measurement.evenly_spread([1, 2], 5) == [1, 2]
    with pytest.raises(SystemExit, match="has no videos"):
        measurement.video_files(tmp_path, 3)
    (tmp_path / "odd").mkdir()
    for name in ("a.mp4", "b.txt", "odd/c.avi"):
        (tmp_path / name).touch()
    assert [f.name for f in measurement.video_files(tmp_path, 3)] == ["a.mp4", "c.avi"]
    assert [f.name for f in measurement.video_files(tmp_path, 3, but="odd")] == ["a.mp4"]


# ---- stamps


def test_commits(checkout):
    "Of the library and of the script; dirty where a file differs."
    library = result_files.last_commit("vssl_nb", checkout)
    script = result_files.last_commit("script.py", checkout)
    assert library and script and library != script
    assert script == result_files.commit_of(checkout)
    (checkout / "vssl_nb" / "two.py").write_text("new")
    assert result_files.last_commit("vssl_nb", checkout) == f"{library}, dirty"
    assert result_files.last_commit("script.py", checkout) == script


def test_without_a_repository(tmp_path):
    assert result_files.last_commit("a", tmp_path) == result_files.commit_of(tmp_path) == ""


def test_a_stamp_says_who_made_a_result():
    head = stamp(batch=2).head()
    assert head["what"] == "benchmarks/mining.py"
    assert {"date", "command", "commit", "settings", "machine", "seconds"} <= head.keys()
    assert {"cpu", "cores", "threads", "torch", "python", "vssl_nb"} <= head["machine"].keys()
    assert head["settings"] == stamp(batch=2).fields["settings"]
    assert head["settings"] != stamp(batch=3).fields["settings"]


# ---- going on


def results(file, **asked):
    asked = {"size": "tiny", "recipes": {"a": {"lr": 0.1}}} | asked
    return result_files.SeedResults(
        file, stamp(), asked, summary=lambda seeds: {"seeds_known": len(seeds)}
    )


def test_results_are_gone_on_with(tmp_path):
    "What was made stays, with the stamp of its call; a later call that adds to it is named."
    file = tmp_path / "out.json"
    first = results(file)
    first.entry(seed=1)["rows"].append({"r1": 0.5})
    first.keep()
    before = json.loads(file.read_text())
    assert before["seeds"] == [{"seed": 1, "rows": [{"r1": 0.5}]}] and before["seeds_known"] == 1
    assert "continued" not in before

    second = results(file)
    assert second.entry(seed=1)["rows"] == [{"r1": 0.5}]
    second.keep()
    assert json.loads(file.read_text()) == before  # nothing was added
    second.entry(seed=2)
    second.keep()
    after = json.loads(file.read_text())
    assert [entry["seed"] for entry in after["seeds"]] == [1, 2]
    assert after["date"] == before["date"] and len(after["continued"]) == 1


def test_an_older_file_is_gone_on_with(tmp_path):
    "It has no commit and no command, and its recipes lack fields that came later."
    file = tmp_path / "out.json"
    older = {"what": "benchmarks/mining.py", "date": "2026-01-01", "machine": {"cpu": "old"}}
    file.write_text(json.dumps(older | {"size": "tiny", "recipes": {"a": {}}, "seeds": []}))
    gone_on = results(file)
    gone_on.keep()
    after = json.loads(file.read_text())
    assert {k: after[k] for k in older} == older and after["recipes"] == {"a": {}}
    assert "commit" not in after


@pytest.mark.parametrize(
    "asked, name",
    [
        (dict(size="demo"), "size"),
        (dict(recipes={"a": {"lr": 0.2}}), "recipes"),
        (dict(recipes={}), "recipes"),
    ],
)
def test_other_settings_are_refused(tmp_path, capsys, asked, name):
    "The sentence names the file, what differs, and the remedy; the file stays."
    file = tmp_path / "out.json"
    results(file).keep()
    before = file.read_bytes()
    with pytest.raises(SystemExit, match="2"):
        results(file, **asked)
    sentence = capsys.readouterr().err
    assert str(file) in sentence and f"({name})" in sentence and "--out" in sentence
    assert file.read_bytes() == before


# ---- intervals


def test_the_interval_of_a_mean_over_seeds():
    values = [0.1, 0.2, 0.4, 0.3]
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    mean, half = intervals.seed_interval(values)
    assert (mean - half, mean + half) == pytest.approx((low, high))
    with pytest.raises(SystemExit, match="2"):
        intervals.seed_interval(values[:2])


def test_a_bootstrap_draws_recordings():
    "Of independent videos it has the spread of the binomial; recordings that fail together, more."
    right = (np.random.default_rng(0).random(400) < 0.4).astype(int).tolist()
    share, draws = intervals.Bootstrap(range(400), 4000).share([right, right])
    half = 1.96 * math.sqrt(share * (1 - share) / 400)
    assert share == np.mean(right)
    assert intervals.middle_95(draws) == pytest.approx([share - half, share + half], abs=0.01)
    together = [int(i // 20 < 8) for i in range(400)]
    _, wide = intervals.Bootstrap([i // 20 for i in range(400)], 4000).share([together])
    low, high = intervals.middle_95(wide)
    assert high - low > 3 * 2 * half


def test_encoders_see_the_same_draws():
    bootstrap = intervals.Bootstrap([0, 0, 1, 2], 50)
    right = [1, 0, 1, 0]
    (_, one), (_, other) = bootstrap.share([right]), bootstrap.share([right])
    assert (one == other).all() and one.std() > 0


def test_seeds_are_paired():
    "Two encoders that differ by as much on each seed differ by as much in each draw."
    seeds = [[1] * 2 * n + [0] * (8 - 2 * n) for n in (0, 1, 2)]
    worse = [[max(0, x - (i % 2)) for i, x in enumerate(seed)] for seed in seeds]
    everywhere = intervals.Bootstrap([0] * 8, 200)  # one recording: the seeds alone are drawn
    (_, high), (_, low) = everywhere.share(seeds), everywhere.share(worse)
    assert high.std() > 0 and np.allclose(low, high / 2)


# ---- run folders


def test_logs_of_a_run(tmp_path):
    (tmp_path / "steps.csv").write_text(
        "step,epoch,mined\n1,0,\n2,0,0.2\n3,1,nan\n4,1,0.4\n5,2,0.6\n6,2,0.8\n"
    )
    steps = run_folders.steps_of(tmp_path)
    epochs = run_folders.by_epoch(steps)
    assert [len(epoch) for epoch in epochs] == [2, 2, 2]
    assert run_folders.logged(steps, "mined") == [0.2, 0.4, 0.6, 0.8]
    means = [run_folders.mean_logged(epoch, "mined") for epoch in epochs]
    assert means == [0.2, 0.4, 0.7]
    assert run_folders.mean_logged(steps, "loss") is None
    assert run_folders.last_fifth(steps) == steps[-1:]


def test_whether_a_run_is_finished(tmp_path):
    assert not run_folders.is_finished(tmp_path)
    for finished in (False, True):
        (tmp_path / "card.json").write_text(json.dumps({"finished": finished}))
        assert run_folders.is_finished(tmp_path) == finished


def test_folders_are_named_after_runs():
    assert run_folders.folder_name("s=3, r=0.6, cycle 2") == "s-3-r-0-6-cycle-2"
    assert run_folders.folder_name("+AD-Pos") == "AD-Pos"


def test_a_command_names_no_folder_of_the_machine(monkeypatch, tmp_path):
    script = str(measurement.ROOT / "benchmarks" / "walk.py")
    words = [script, "--data", str(tmp_path / "jhmdb"), "--out", "results/walk.json", "a/b"]
    monkeypatch.setattr(sys, "argv", words)
    expected = "benchmarks/walk.py --data jhmdb --out results/walk.json a/b"
    assert measurement.command() == expected
