"""What a careless user types: exit code 2, one sentence that says what to do, nothing left behind.

Most cases are made from the options themselves: a word, a fraction, nothing, or a number that is
too small where a number is asked for; a choice that does not exist; a file that is not there.
Others are by hand.
"""

import contextlib
import dataclasses
import io
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
import typing
import warnings
from functools import cache
from pathlib import Path

import pytest

import warm
from vssl_nb.app import cli
from vssl_nb.data import manifest
from vssl_nb.methods.recipes import find, override
from vssl_nb.outputs import OUTPUTS, expect_replaceable, output_suffixes
from vssl_nb.paths import PathError
from vssl_nb import distributed
from vssl_nb.fields import interval

START = {
    "toy": ["new"],
    "manifest": ["films"],
    "flow": ["videos"],
    "dry-run": ["infonce-toy-rgb"],
    "pretrain": ["infonce-toy-rgb", "--data", "videos", "--epochs", "1"],
    "extract": ["run"],
    "cotrain": ["coclr-toy", "--data", "videos"],
    "retrieve": ["run"],
    "probe": ["run"],
    "finetune": ["run", "--set", "epochs=1"],
    "report": ["run"],
    "verdict": ["run"],
    "uncertainty": ["run"],
}
# a negative drift is a number like another; the others are names of what will be made
FREE = {"out", "drift", "name", "manifest", "about", "dataset"}


def wrong_values(kind, limits: str) -> list[str]:
    "Words that cannot be a value of this type."
    said, found = str(kind), []
    plain = {"int": kind in (int, int | None), "float": kind in (float, float | None)}
    if plain["int"] or plain["float"]:
        found += ["many", ""]
    if plain["int"]:
        found += ["2.5"]
    if plain["float"] and limits:
        found += ["nan", "inf"]
    if (plain["int"] or plain["float"]) and limits:
        found += ["-7"]
    if "Literal" in said:
        found += ["sometimes"]
    if "Path" in said:
        found += ["nowhere"]
    return found


def generated():
    "Every option of every command with values that cannot be."
    for name, begin in START.items():
        kind = cli.COMMANDS[name]
        hints = typing.get_type_hints(kind)
        limits_of = typing.get_type_hints(kind, include_extras=True)
        options = [
            (f.name, hints[f.name], interval(limits_of[f.name])) for f in dataclasses.fields(kind)
        ]
        if name == "pretrain":
            recipe = find("infonce-toy-rgb")
            for part in (recipe, recipe.sampling, recipe.augment, recipe.method, recipe.learning):
                inner = typing.get_type_hints(type(part))
                ranged = typing.get_type_hints(type(part), include_extras=True)
                options += [
                    (f.name, inner[f.name], interval(ranged[f.name]))
                    for f in dataclasses.fields(part)
                ]
        for option, kind_of, limits in options:
            if option in FREE:
                continue
            for value in wrong_values(kind_of, limits):
                yield name, [name, *begin, "--" + option.replace("_", "-"), value]


TRAIN = ["pretrain", "infonce-toy-rgb", "--data", "videos", "--epochs", "1"]
FINETUNE = ["finetune", "run", "--set"]
# the file or field that is wrong, and the remedy; and what was typed
BY_HAND = [
    (("pretrian", "pretrain"), ["pretrian"]),
    (("'infonce'", "infonce-toy-rgb"), ["pretrain", "infonce", "--data", "videos"]),
    (("'infonce'", "infonce-toy-rgb"), ["dry-run", "infonce"]),
    (("'infonce'", "infonce-toy-rgb"), ["recipes", "infonce"]),
    (("temperature=0.0", "above 0"), [*TRAIN, "--temperature", "0"]),
    (("momentum=1.5", "1 or less"), [*TRAIN, "--momentum", "1.5"]),
    (("seed=-1", "0 or more"), [*TRAIN, "--seed", "-1"]),
    (("batch=1", "batch=2"), [*TRAIN, "--queue", "0", "--momentum", "None", "--batch", "1"]),
    (("clips=1", "clips=2"), [*TRAIN, "--clips", "1"]),
    (("--cache -5", "0 or more"), [*TRAIN, "--cache", "-5"]),
    (("--workers -3", "0 or more"), [*TRAIN, "--workers", "-3"]),
    (("--save-minutes -1", "0 or more"), [*TRAIN, "--save-minutes", "-1"]),
    (("--health-every -2", "0 or more"), [*TRAIN, "--health-every", "-2"]),
    (("queue=8", "queue=0"), [*TRAIN, "--queue", "8"]),
    (("elsewhere", "manifest.csv"), ["pretrain", "infonce-toy-rgb", "--data", "elsewhere"]),
    (("epochz", "epochs"), [*FINETUNE, "epochz=2"]),
    (("epochs=2.5", "int"), [*FINETUNE, "epochs=2.5", "batch=8"]),
    (("epochs='abc'", "int"), [*FINETUNE, "epochs=abc"]),
    (("batch=None", "int"), [*FINETUNE, "batch=None"]),
    (("lr='nan'", "float"), [*FINETUNE, "lr=nan"]),
    (("--set epochs", "epochs=5"), [*FINETUNE, "epochs"]),
    (
        ("run:", "--resume", "--out"),
        ["pretrain", "infonce-toy-rgb", "--data", "videos", "--out", "run"],
    ),
    (("videos/manifest.csv", "--out"), [*TRAIN, "--out", "videos/manifest.csv"]),
    (("elsewhere",), ["retrieve", "elsewhere"]),
    (("elsewhere", "run folder"), ["probe", "elsewhere"]),
    (("elsewhere", "run folder"), ["report", "elsewhere"]),
    (("elsewhere", "run folder"), ["verdict", "elsewhere"]),
    (("--videos 2", "4 or more"), ["verdict", "run", "--videos", "2"]),
    (
        ("run:", "--resume", "--out"),
        ["pretrain", "infonce-toy-rgb", "--data", "videos", "--out", "run", "--dry-run"],
    ),
    (
        ("infonce-toy-rbg", "'infonce-toy-rgb'"),
        ["pretrain", "--epochs", "1", "infonce-toy-rbg", "--data", "videos"],
    ),
    (("RECIPE", "vssl-nb recipes"), ["pretrain", "--data", "videos"]),
    (("--data", "manifest.csv"), ["pretrain", "infonce-toy-rgb"]),
    (("--dat ", "'data'"), ["pretrain", "infonce-toy-rgb", "--dat", "x"]),
    (("--batch many", "whole number"), [*TRAIN, "--batch", "many"]),
    (("--size huge", "demo, full, tiny"), ["toy", "new", "--size", "huge"]),
    (("--workers few", "whole number"), ["toy", "new", "--workers", "few"]),
    (("--data", "--help"), ["pretrain", "infonce-toy-rgb", "--data"]),
    (("semicolons.csv", "commas"), ["pretrain", "infonce-toy-rgb", "--data", "semicolons.csv"]),
    (("tabs.csv", "commas"), ["pretrain", "infonce-toy-rgb", "--data", "tabs.csv"]),
    (("a.mp4", "folder"), ["pretrain", "infonce-toy-rgb", "--data", "a.mp4"]),
    (("a.mp4", "folder"), ["flow", "a.mp4"]),
    (("a.mp4", "folder"), ["retrieve", "run", "--data", "a.mp4"]),
    (("vidoes", "'videos'"), ["pretrain", "infonce-toy-rgb", "--data", "vidoes"]),
    (("somewhere/run", "seen from"), ["probe", "somewhere/run"]),
    (("somewhere/run", "seen from"), ["retrieve", "somewhere/run"]),
    (("infonce-toy-rbg", "'infonce-toy-rgb'"), ["retrieve", "infonce-toy-rbg", "--data", "videos"]),
    (
        ("run/encoder.safetensors", "run folder"),
        ["retrieve", "run/encoder.safetensors", "--data", "videos"],
    ),
    (("a.mp4", ".npz"), ["retrieve", "a.mp4", "--data", "videos"]),
    (("kept", "kept/run"), ["retrieve", "kept"]),
    (("run/recipe.json", "run folder"), ["probe", "run/recipe.json"]),
    (("films", "run folder"), ["extract", "films", "--out", "f.npz"]),
    (("a.mp4", "--out"), ["toy", "a.mp4"]),
    (("a.mp4", "--out"), ["report", "run", "--out", "a.mp4/report.html"]),
    (("videos", "--out"), ["report", "run", "--out", "videos"]),
    (("a.mp4", "--out"), ["cotrain", "coclr-toy", "--data", "videos", "--out", "a.mp4"]),
    (("a.mp4", "--out"), ["finetune", "run", "--out", "a.mp4"]),
    (("a.mp4", "--out"), ["demo", "--out", "a.mp4"]),
    (("b.mp4", "'a.mp4'"), ["predict", "run", "b.mp4"]),
    (("nothing", "classifier.safetensors"), ["predict", "nothing", "a.mp4"]),
    (("coclr-toi", "'coclr-toy'"), ["cotrain", "coclr-toi", "--data", "videos"]),
    (
        ("wall.pdf", ".csv, .json, .html"),
        ["search", "a.mp4", "--data", "videos", "--out", "wall.pdf"],
    ),
    (("a.mp4", "--out"), ["search", "a.mp4", "--data", "videos", "--out", "a.mp4/wall.html"]),
    (("map.pdf", ".html, .csv"), ["explore", "videos", "--out", "map.pdf"]),
    (("nowhere", "folder"), ["explore", "nowhere"]),
    (("a.mp4", "folder"), ["explore", "a.mp4"]),
    (("nowhere", "--encoder"), ["explore", "videos", "--encoder", "nowhere"]),
    (
        ("clips=1000000 ", "clips=37 fits"),
        ["explore", "videos", "--encoder", "run", "--clips", "1000000"],
    ),
    (("run", "run folder"), ["convert", "videos", "e.onnx"]),
    (("nowhere", "folder"), ["search", "a.mp4", "--data", "nowhere"]),
    (("nowhere", "--encoder"), ["search", "a.mp4", "--data", "videos", "--encoder", "nowhere"]),
    (("--contrast 5", "1 or less"), ["toy", "new", "--contrast", "5"]),
    (("--drift 1000", "128 or less"), ["toy", "new", "--drift", "1e3"]),
    (("--distractors 101", "100 or less"), ["toy", "new", "--distractors", "101"]),
    (("length=100000000 ", "fits"), [*TRAIN, "--length", "100000000", "--quiet"]),
    *(
        (("videos/manifest.csv", "length=10000 ", "40", "length=40 fits"), [*command, *length])
        for command, length in (
            (TRAIN, ["--length", "10000", "--batch", "2", "--queue", "4", "--quiet"]),
            (TRAIN, ["--length", "10000", "--dry-run"]),
            (["cotrain", "coclr-toy", "--data", "videos"], ["--set", "length=10000", "batch=2"]),
        )
    ),
    (
        ("videos/manifest.csv", "stride=9 ", "40", "stride=2 fits"),
        [*TRAIN, "--length", "16", "--stride", "9", "--quiet"],
    ),
    (("length=100000000 ", "fits"), [*FINETUNE, "length=100000000", "epochs=1", "batch=8"]),
    (
        ("length=100000000 ", "fits"),
        ["cotrain", "coclr-toy", "--data", "videos", "--set", "length=100000000", "batch=8"],
    ),
    (("length=100000000 ", "fits"), ["retrieve", "run", "--set", "length=100000000"]),
    (("size=10000000 ", "fits"), ["retrieve", "run", "--set", "size=10000000"]),
    (("clips=10000000000000 ", "fits"), ["retrieve", "run", "--set", "clips=10000000000000"]),
    *(
        (("clips=1000000 ", "40 frames", "clips=37 fits"), command)
        for command in (
            ["retrieve", "run", "--set", "clips=1000000"],
            ["retrieve", "run", "--conflict", "--set", "clips=1000000"],
            ["search", "a.mp4", "--data", "videos", "--encoder", "run", "--clips", "1000000"],
        )
    ),
    (
        ("windows=33", "windows=5"),
        ["pretrain", "moquad-toy", "--data", "videos", "--windows", "33", "--batch", "8"],
    ),
    (("--folder", "vssl-nb manifest FOLDER"), ["manifest", "--folder", "films"]),
    (("FOLDER", "--help"), ["manifest"]),
]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    "Toy videos and a short run, which nobody changes."
    from vssl_nb.data import toy
    from vssl_nb.runs.pretraining import pretrain

    place = tmp_path_factory.mktemp("careless")
    toy.make(place / "videos", size="tiny", progress=False)
    (place / "films").mkdir()
    shutil.copy(next((place / "videos").rglob("*.mp4")), place / "a.mp4")
    for name, between in (("semicolons", ";"), ("tabs", "\t")):
        (place / f"{name}.csv").write_text(between.join(manifest.COLUMNS) + "\n")
    recipe = override(find("infonce-toy-residual"), epochs=1, batch=8, queue=16, length=4, size=16)
    pretrain(recipe, place / "videos", place / "run", device="cpu", progress=False)
    shutil.copytree(place / "run", place / "kept" / "run")
    return place


def tree(folder: Path):
    return {p: p.stat().st_mtime_ns for p in folder.rglob("*")}


def said_by(args) -> str:
    "The one sentence on stderr of a command that is refused."
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()) as out:
        code = cli.main(args)
    said = errors.getvalue().splitlines()
    assert (code, len(said), out.getvalue()) == (2, 1, ""), (args, code, said)
    assert said[0].startswith("vssl-nb: ") and len(said[0]) < 600, said
    return said[0]


@pytest.mark.parametrize("command", START)
def test_values_that_cannot_be(command, workshop, monkeypatch):
    monkeypatch.chdir(workshop)
    before = tree(workshop)
    for name, args in generated():
        if name != command:
            continue
        said = said_by(args)
        option = args[-2].removeprefix("--")
        assert option in said or option.replace("-", "_") in said or args[-1] in said, (args, said)
        assert tree(workshop) == before, args


@pytest.mark.parametrize("facts, args", BY_HAND, ids=[" ".join(a) for _, a in BY_HAND])
def test_mistakes(facts, args, workshop, monkeypatch):
    monkeypatch.chdir(workshop)
    before = tree(workshop)
    said = said_by(args)
    assert all(fact in said for fact in facts), said
    assert tree(workshop) == before


def test_a_correction_is_not_blocked(workshop, tmp_path, monkeypatch):
    """A training that could not learn leaves a folder without a checkpoint; the corrected command
    takes it.
    """
    monkeypatch.chdir(workshop)
    out = ["--out", str(tmp_path / "mine"), "--quiet", "--workers", "0", "--device", "cpu"]
    said = said_by([*TRAIN, "--lr", "1e30", "--epochs", "4", *out])
    assert "stopped being a number" in said and "e+29" in said and "float32" not in said, said
    assert cli.main([*TRAIN, *out]) == 0
    assert "holds a run already" in said_by([*TRAIN, *out])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_another_precision_is_advised_where_it_was_another(dtype):
    "A loss that is no number is not blamed on bfloat16 where it was float32."
    import torch
    from vssl_nb.training.loop import Clock, Metrics, StepResult, TrainError

    numbers, clock = Metrics({"finite": torch.zeros(())}), Clock(torch.device("cpu"))
    step = StepResult(3, 0, False, 0.5, 8, numbers, clock, getattr(torch, dtype))
    with pytest.raises(TrainError, match="learning rate, which was 0.5") as refused:
        step.read()
    assert ("float32" in str(refused.value)) == (dtype == "bfloat16"), refused.value


@pytest.mark.parametrize(
    "command",
    [TRAIN, ["retrieve", "run"], ["search"], ["toy", "new"], ["manifest", "films"], ["flow", "x"]],
    ids=lambda command: command[0],
)
def test_no_more_workers_than_processors(command, monkeypatch, capsys):
    "A thousand processes would start, and PyTorch warns of them in words of its own."
    monkeypatch.setattr("vssl_nb.app.parsing.usable_processors", lambda: 3)
    name, *words = command
    assert cli.parse(name, [*words, "--workers", "1000"]).workers == 3
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and "--workers 1000" in said[0] and "3 processors" in said[0], said
    assert cli.parse(name, [*words, "--workers", "3"]).workers == 3
    monkeypatch.setattr("vssl_nb.app.parsing.usable_processors", lambda: 1)
    assert cli.parse(name, words).workers in (None, 1)  # the default is two where it is not None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", [TRAIN, ["retrieve", "run"], ["probe", "run"]], ids=str)
def test_bfloat16_on_a_processor_without_it_is_warned_of_once(command, monkeypatch, capsys):
    "With the factor that was measured; a processor that has it, and float32, need no word."
    from vssl_nb.app.commands.option_groups import warn_of_emulation

    name, *words = command
    for has, dtype, lines in ((False, "bfloat16", 1), (True, "bfloat16", 0), (False, "float32", 0)):
        capabilities = {"avx512_bf16": has, "amx_bf16": False}
        monkeypatch.setattr("torch.cpu.get_capabilities", lambda c=capabilities: c, raising=False)
        warn_of_emulation.cache_clear()
        made = cli.parse(name, [*words, "--device", "cpu", "--dtype", dtype])
        for _ in range(2):
            made.machine()
        said = capsys.readouterr().err.splitlines()
        assert len(said) == lines, said
        assert all("--dtype bfloat16" in line and "twenty times" in line for line in said), said


ROOT = Path(__file__).parent.parent


def before_imports(commands, place: Path) -> tuple[list[int], list[list[str]], str]:
    """Exit codes of commands in a process of its own, what is imported after each of them, and
    stderr.
    """
    program = f"""
import json, sys
from vssl_nb.app.cli import main
heavy = {{'torch', 'av', 'numpy', 'matplotlib'}}
ends = [(main(args), sorted(heavy & set(sys.modules))) for args in {commands!r}]
print(json.dumps([*zip(*ends)]))"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=place,
        text=True,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    return *json.loads(done.stdout), done.stderr


# --- what is written over

ONTO = {
    "extract": ["run", "--out"],
    "search": ["a.mp4", "--data", "videos", "--encoder", "run", "--out"],
    "explore": ["videos", "--encoder", "run", "--out"],
    "predict": ["run", "a.mp4", "--out"],
    "mine": ["run", "--out"],
    "uncertainty": ["run", "--out"],
    "report": ["run", "--out"],
    "convert": ["run"],
    "flow": ["videos", "--method", "dis", "--manifest"],
}
# what is given the name of a folder to write into: words before it, and runs of another kind
FOLDERS = {
    "toy": ([], ["theirs", "tuned"]),
    "manifest": ([], ["theirs", "tuned"]),
    "flow": (["videos", "--method", "dis", "--out"], ["videos/run"]),
    "pretrain": (["infonce-toy-rgb", "--data", "videos", "--out"], ["theirs", "tuned"]),
    "pretrain --resume": (["infonce-toy-rgb", "--data", "videos", "--resume", "--out"], ["tuned"]),
    "finetune": (["run", "--data", "videos", "--out"], ["theirs", "tuned"]),
    "finetune --resume": (["run", "--data", "videos", "--resume", "--out"], ["theirs"]),
    "demo": (["--out"], ["theirs", "tuned"]),
    "cotrain": (["coclr-toy", "--data", "videos", "--out"], ["theirs", "tuned"]),
    "reproduce": (["cpr:table1", "--data", "toy", "--out"], ["theirs", "tuned"]),
    "retrieve": (["infonce-toy-rgb", "--data", "videos", "--out"], ["theirs", "tuned"]),
    "retrieve RUN": ([], ["tuned", "runs"]),
    "probe": ([], ["tuned", "runs"]),
    "verdict": ([], ["tuned", "runs"]),
    "extract": ([], ["tuned", "runs"]),
    "convert": (["run"], ["theirs", "tuned"]),
    "convert --data": (["run/last.pt", "--data", "videos"], ["theirs", "tuned"]),
    "search": (["--data", "videos", "--encoder", "run", "--index"], ["theirs", "tuned"]),
    "explore": (["videos", "--encoder", "run", "--index"], ["theirs", "tuned"]),
}
# what is given the name of a file, by command and ending; convert writes others into a folder
NAMED = [
    (output.command, output.suffix)
    for output in OUTPUTS
    if output.command in ONTO
    and (output.command, output.suffix)
    not in (("convert", ".json"), ("convert", ".md"), ("flow", ".json"))
]


def contents(folder: Path):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def shelf(workshop, tmp_path, monkeypatch):
    """Files of somebody: a manifest with labels by hand, videos, notes, a run, results of other
    commands.
    """
    for part in ("videos", "run"):
        shutil.copytree(workshop / part, tmp_path / part)
    shutil.copy(workshop / "a.mp4", tmp_path / "a.mp4")
    table = (tmp_path / "videos" / "manifest.csv").read_text().replace(",spin,", ",by hand,")
    (tmp_path / "videos" / "manifest.csv").write_text(table)
    for end in {output.suffix for output in OUTPUTS}:
        for place in ("", "videos/"):
            (tmp_path / f"{place}notes{end}").write_text("bought milk\n")
        (tmp_path / f"labels{end}").write_text(table.replace("video,label", "label,video", 1))
        (tmp_path / "run" / f"kept{end}").write_bytes(
            (tmp_path / "run" / "encoder.safetensors").read_bytes()
        )
        (tmp_path / f"answers{end}").write_text("query,rank,similarity,video\n")
        (tmp_path / f"guesses{end}").write_text("video,status,predicted,up\n")
    for name in ("theirs", "tuned", "runs/run", "videos/run"):
        shutil.copytree(tmp_path / "run", tmp_path / name)
        (tmp_path / name / "README.md").write_text("mine\n")
    card = json.loads((tmp_path / "run" / "card.json").read_text()) | {
        "training": {},
        "given": "run",
    }
    (tmp_path / "tuned" / "card.json").write_text(json.dumps(card))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command, end", NAMED)
def test_nothing_of_theirs_is_written_over(command, end, shelf):
    """A manifest, a video, a file of notes, of a run or of another command, whatever its name ends
    in.
    """
    before, film = contents(shelf), next((shelf / "videos").rglob("*.mp4"))
    never = [
        "videos/manifest.csv",
        f"labels{end}",
        "a.mp4",
        str(film),
        f"run/kept{end}",
        "videos/toy.json",
        "run/encoder.safetensors",
        f"guesses{end}" if command == "search" else f"answers{end}",
    ]
    if command == "flow":
        never = ["notes.csv", "../a.mp4", "toy.json", film.name]
    for path in never:
        for more in ([], ["--force"])[: 1 if command == "flow" else 2]:
            said = said_by([command, *ONTO[command], path, *more])
            assert re.search("choose another|take such a name|take one like", said), said
            assert contents(shelf) == before, (path, more)
    if command == "flow":
        return  # has no --force
    assert "write over it with --force" in said_by([command, *ONTO[command], f"notes{end}"])
    assert contents(shelf) == before
    cli.parse(command, [*ONTO[command], f"notes{end}", "--force"]).check_files(Path(f"notes{end}"))
    (shelf / f"empty{end}").touch()  # as mktemp makes it
    cli.parse(command, [*ONTO[command], f"empty{end}"]).check_files(Path(f"empty{end}"))


FILES = ["videos/manifest.csv", "a.mp4", "notes.csv", "run/recipe.json"]


def refused_folders(case: str):
    "Command lines that name a file, or a run of another kind, where a folder will be written."
    words, runs = FOLDERS[case]
    for path in [*FILES, *runs]:  # --out of flow is a folder beside the manifest
        yield [case.split()[0], *words, f"../{path}" if case == "flow" else path]


@pytest.mark.parametrize("case", FOLDERS)
def test_no_folder_of_theirs_is_written_into(case, shelf):
    "A file is no folder, and a run is not the place of another command's results."
    before = contents(shelf)
    for args in refused_folders(case):
        assert re.search("choose another|name |take such a name|has no video", said_by(args)), args
        assert contents(shelf) == before, args


def test_an_output_is_refused_before_pytorch_is_imported(shelf):
    "No command needs a library to see that its output would be written over something."
    # the folder of a manifest is looked at by the module that finds videos
    cases = [args for case in FOLDERS if case != "manifest" for args in refused_folders(case)]
    for command, words in ONTO.items():
        cases += [
            [command, *words, f"notes{end}"]
            for end in output_suffixes(command)
            if (command, end) in NAMED
        ]
    codes, imported, errors = before_imports(cases, shelf)
    late = [args for args, modules in zip(cases, imported) if modules][:1]
    assert not late and codes == [2] * len(cases), (late, codes, errors)


# what lies in a folder that will be written into, and is no file of this command
LYING = {
    "toy": "toy.json",
    "manifest": "manifest.csv",
    "flow": "flow.json",
    "demo": "results.json",
    "pretrain": "encoder.safetensors",
    "finetune": "card.json",
    "convert --data": "steps.csv",
    "convert": "config.json",
    "cotrain": "report.html",
    "reproduce": "report.html",
    "retrieve": "results.json",
    "search": "index.json",
    "explore": "index.json",
}


@pytest.mark.parametrize("case", LYING)
def test_a_file_of_theirs_stays_in_its_folder(case, shelf):
    place = shelf / ("videos/shop" if case == "flow" else "shop")
    place.mkdir()
    shutil.copy("a.mp4", place)  # or no manifest would be made of it
    (place / LYING[case]).write_text("bought milk\n")
    before = contents(shelf)
    said = said_by([case.split()[0], *FOLDERS[case][0], "shop"])
    assert LYING[case] in said and before.items() <= contents(shelf).items(), said


def test_a_folder_of_an_encoder_is_written_over_and_another_is_not(shelf):
    (shelf / "site").mkdir()
    (shelf / "site" / "README.md").write_text("# My site\n")
    (shelf / "settings").mkdir()
    (shelf / "settings" / "config.json").write_text('{"model_type": "bert"}')
    before = contents(shelf)
    for name in ("site", "settings"):
        assert "choose another" in said_by(["convert", "run", name])
        assert contents(shelf) == before
    for name in ("shared", "one.safetensors", "one.tar", "one.pth"):
        for _ in range(2):
            assert cli.main(["convert", "run", name]) == 0
    for name in ("from tar", "from tar.safetensors", "again.tar"):
        for _ in range(2):
            assert cli.main(["convert", "one.tar", name, "--view", "residual"]) == 0
    before = contents(shelf)
    for name in ("run/encoder.safetensors", "run/last.pt"):
        assert "is a file of the run" in said_by(["convert", "one.tar", name, "--force"])
        assert contents(shelf) == before


def own_files(place: Path):
    "A file of each command and ending, as its writer makes it."
    import numpy as np
    import torch
    from vssl_nb.app import explore, search
    from vssl_nb.measure import classify, landscape, ranking
    from vssl_nb.measure.feature_files import write_video_features
    from vssl_nb.papers import report
    from vssl_nb.runs.cotraining import MiningQuality
    from vssl_nb.training.run_folder import write_json

    names, x = ["up/a.mp4", "up/b.mp4"], np.ones((2, 3), np.float32)
    index = search.SearchIndex(
        place, place, {}, "run/encoder.safetensors", {n: (1, 1) for n in names}, {}, x, x.mean(0)
    )
    asked = [search.Query("none.mp4", place / "none.mp4")]
    for end in (".csv", ".json", ".html"):
        yield (
            "search",
            search.write_answers(
                place / f"s{end}", index, asked, [[search.Hit("up/a.mp4", 1, 0.5)]]
            ),
        )
    plane = np.array([[0.0, 1.0], [1.0, 0.0]])
    groups = landscape.Groups(np.zeros(2, int), ((0, 1),), 0.5)
    collection = explore.Collection(place, names, ["up", "up"], x, "e")
    seen = explore.Landscape(collection, plane, groups, [0], [None, None])
    for end in (".html", ".csv"):
        yield "explore", explore.write_landscape(place / f"x{end}", seen)
    for end in (".csv", ".npz", ".parquet"):
        yield "extract", write_video_features(place / f"e{end}", names, ["up", "up"], x)
    yield (
        "extract",
        write_video_features(place / "thin.csv", names, ["up", "up"], x[:, :1]),
    )
    none = torch.zeros(1, dtype=torch.long)
    guess = classify.Predictions(torch.tensor([[0.5, 0.5]]), none, none, ["up", "on"])
    yield "predict", classify.write_predictions(place / "p.csv", guess, names)
    yield (
        "uncertainty",
        ranking.write_ranking(
            place / "u.csv",
            [{"rank": 1, "video": "a", "label": "", "uncertainty": 1.0, "between": 0.5}],
        ),
    )
    quality = MiningQuality("topk", ("rgb",), 2, 1, 1.0, 1.0, 1.0, 1.0, {}, "source")
    yield "mine", write_json(place / "m.json", [dataclasses.asdict(quality)])
    yield "report", report.html([{"name": "a", "r1": 0.5}], path=place / "r.html")


def test_a_command_knows_its_own(shelf):
    "What it wrote before is replaced, by it alone."
    for command, path in own_files(shelf):
        cli.parse(command, [*ONTO[command], str(path)]).check_files(path)
        for other in ONTO:
            if other == command or path.suffix not in output_suffixes(other):
                continue
            with pytest.raises(PathError, match=f"is a file of vssl-nb {command}"):
                expect_replaceable(path, other, True)
    (shelf / "f-gallery.csv").write_text("bought milk\n")
    before = contents(shelf)
    assert "f-gallery.csv" in said_by(
        ["extract", "run", "--protocol", "coclr_official", "--out", "f.csv"]
    )
    assert contents(shelf) == before


def test_a_manifest_beside_another_is_written_over_where_nothing_is_lost(shelf):
    "`flow --manifest`: a file that has more than the manifest and its flow stays."
    again = ["flow", "videos", "--method", "dis", "--codec", "small", "--manifest", "with_flow.csv"]
    for _ in range(2):
        assert cli.main(again) == 0
    path = shelf / "videos" / "with_flow.csv"
    made = path.read_text()
    lines = made.splitlines()
    for text in (
        made.replace(",by hand,", ",other,", 1),
        "\n".join([f"{lines[0]},note", *(f"{line},seen" for line in lines[1:])]),
    ):
        path.write_text(text)
        assert "and videos/manifest.csv has not; choose another --manifest" in said_by(again)
        assert path.read_text() == text


# --- whole processes

VSSL = [sys.executable, "-m", "vssl_nb.app.cli"]


def without_announcement(stderr: str) -> str:
    "What a command says besides the line that appears where it takes longer than a second."
    return re.sub(r"^vssl-nb \w+: has begun; .*\n", "", stderr, flags=re.MULTILINE)


def call(args, cwd, env=None, **how):
    env = (
        {k: v for k, v in os.environ.items() if k != "RANK"}
        | {"PYTHONPATH": str(ROOT)}
        | (env or {})
    )
    return subprocess.run([*VSSL, *args], cwd=cwd, env=env, capture_output=True, timeout=300, **how)


def test_a_wrong_path_or_name_is_told_before_pytorch_is_imported(workshop):
    "No command needs PyTorch, av or numpy to say that something is not there."
    wrong = [
        ["recipes", "x"],
        ["pretrain", "x"],
        ["pretrain", "infonce-toy-rgb", "--data", "x"],
        [*TRAIN, "--out", "a.mp4"],
        ["cotrain", "x", "--data", "videos"],
        ["cotrain", "coclr-toy", "--data", "x"],
        ["retrieve", "x"],
        ["retrieve", "run", "--data", "x"],
        ["retrieve", "run", "--second", "x"],
        ["probe", "x"],
        ["extract", "x"],
        ["finetune", "x"],
        ["finetune", "runs/x"],
        ["predict", "x", "a.mp4"],
        ["predict", "run", "x.mp4"],
        ["report", "x"],
        ["report", "run", "--out", "a.mp4/x"],
        ["flow", "x"],
        ["dry-run", "x"],
        ["toy", "a.mp4"],
        ["demo", "--out", "a.mp4"],
        ["x"],
        [*TRAIN, "--batch", "many"],
        ["pretrain", "infonce-toy-rgb"],
        [*TRAIN, "--out", "run"],
        ["finetune", "run", "--out", "run"],
        ["toy", "x", "--bias", "2"],
        ["mine", "run", "--memory", "0"],
        *(
            [*TRAIN, *more]
            for more in (
                ["--device", "gpu"],
                ["--cache", "-5"],
                ["--save-minutes", "-1"],
                ["--health-every", "-2"],
            )
        ),
        ["pretrain", "own-videos", "--data", "videos", "--minutes", "0"],
        ["retrieve", "run", "--splits", "4"],
        ["finetune", "run", "--split", "4"],
    ]
    codes, imported, errors = before_imports(wrong, workshop)
    assert codes == [2] * len(wrong) and not any(imported), (codes, imported, errors)
    assert len(errors.splitlines()) == len(wrong), errors


def test_no_command_waits_for_the_compiler():
    """torch._dynamo, torchvision and sympy are a second or two each; only who compiles waits for
    them.
    """
    program = """
import importlib, pkgutil, sys, vssl_nb
for module in pkgutil.walk_packages(vssl_nb.__path__, 'vssl_nb.'):
    importlib.import_module(module.name)
from vssl_nb.nets import backbones
backbones.create('tiny', seed=0)
print(sorted({'torch._dynamo', 'torchvision', 'sympy', 'sklearn'} & set(sys.modules)))"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        text=True,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_options_may_stand_before_the_recipe(workshop, tmp_path, monkeypatch):
    monkeypatch.chdir(workshop)
    args = [
        "pretrain",
        "--epochs",
        "1",
        "--quiet",
        "--workers",
        "0",
        "--out",
        str(tmp_path / "run"),
        "infonce-toy-residual",
        "--data",
        "videos",
        "--batch",
        "8",
        "--queue",
        "16",
        "--device",
        "cpu",
    ]
    assert cli.main(args) == 0
    assert (
        json.loads((tmp_path / "run" / "recipe.json").read_text())["name"] == "infonce-toy-residual"
    )


def test_a_rank_that_something_left_behind(workshop):
    "It is named at once by a training; what runs alone does not mind."
    done = call([*TRAIN, "--out", "new"], workshop, {"RANK": "3"}, text=True)
    assert done.returncode == 2 and "RANK=3" in done.stderr and "unset RANK" in done.stderr, (
        done.stderr
    )
    assert not (workshop / "new").exists()
    done = call(["recipes", "nothing"], workshop, {"RANK": "3"}, text=True)
    assert done.returncode == 2 and "there is no recipe" in done.stderr
    assert call(["recipes"], workshop, {"RANK": "3"}).stdout


def test_launch_variables_that_fit_to_nothing(monkeypatch, capsys):
    "Named at once by whatever is wrong, a rank without its machine, and one outside of its world."
    for name, value in (("RANK", "3"), ("WORLD_SIZE", "8")):
        monkeypatch.setenv(name, value)
    assert "also needs RECIPE" in said_by(["pretrain"]) and cli.is_first()
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29400")
    assert "also needs RECIPE" in said_by(["pretrain"]) and not cli.is_first()


@pytest.mark.parametrize("rank", [0, 1])
def test_processes_that_never_come(rank, monkeypatch):
    "The one that is there gives up after the timeout, with a sentence."
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    launch = {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in launch.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(distributed.DistributedError, match="do not find each other.*unset RANK"):
        with distributed.start(timeout=timedelta(seconds=1)):
            pass


def test_a_foreign_file_in_place_of_a_package(workshop, tmp_path):
    "Nothing of it is run."
    (tmp_path / "torch.py").write_text('print("somebody was here")')
    for cwd, path in ((tmp_path, str(ROOT)), (workshop, f"{tmp_path}{os.pathsep}{ROOT}")):
        done = call(["retrieve", str(workshop / "run")], cwd, {"PYTHONPATH": path}, text=True)
        said = without_announcement(done.stderr)
        assert (done.returncode, done.stdout, len(said.splitlines())) == (2, "", 1), done
        assert "torch.py" in said and "rename it" in said


@pytest.mark.parametrize("megabytes", [400, 1000, 2000])
def test_a_limit_of_virtual_memory(megabytes, workshop):
    command = f"{sys.executable} -m vssl_nb.app.cli retrieve run --device cpu"
    done = subprocess.run(
        f"ulimit -v {megabytes}000; {command}",
        shell=True,
        executable="/bin/bash",
        text=True,
        capture_output=True,
        cwd=workshop,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    said = without_announcement(done.stderr)
    assert done.returncode == 2 and len(said.splitlines()) == 1 and "ulimit -v" in said, done


def test_a_locale_without_letters(workshop, tmp_path):
    "Names come out as they went in, and tables have their dashes."
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    done = call(["probe", "tøy"], workshop, plain)
    assert done.returncode == 2 and "tøy: there is no such".encode() in done.stderr, done.stderr
    for part in ("videos", "run"):
        shutil.copytree(workshop / part, tmp_path / part)
    program = """import sys
from vssl_nb.app.cli import main
measured = main(['retrieve', 'run', '--workers', '0', '--device', 'cpu'])
reported = main(['report', 'run', '--out', sys.argv[1]]) # as Python decodes it in this locale
print(measured, reported)"""
    done = subprocess.run(
        [sys.executable, "-c", program, "é.html"],
        cwd=tmp_path,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | plain,
    )
    assert done.stdout.endswith(b"0 0\n") and "–".encode() in done.stdout, done.stderr
    assert "é.html".encode() in done.stdout, done.stderr
    assert (tmp_path / "é.html").exists()


def test_a_closed_output(workshop):
    for redirect in (">&-", "2>&- >&-", "| head -1 >&2"):
        done = subprocess.run(
            f"{sys.executable} -m vssl_nb.app.cli recipes {redirect}; echo ${{PIPESTATUS[0]}}",
            shell=True,
            executable="/bin/bash",
            text=True,
            capture_output=True,
            cwd=workshop,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        assert done.stdout.split()[-1:] == ["0"] and "Traceback" not in done.stderr, (
            redirect,
            done,
        )
    for args in (["recipes"], ["recipes", "infonce-toy-rgb"]):  # more than a buffer, and less
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [*VSSL, *args],
                text=True,
                stdout=full,
                stderr=subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
            )
        said = without_announcement(done.stderr)
        assert (done.returncode, len(said.splitlines())) == (2, 1), done
        assert "standard output cannot be written" in said and "send it elsewhere" in said


COTRAIN = [
    "cotrain",
    "coclr-toy",
    "--data",
    "videos",
    "--out",
    "phases",
    "--device",
    "cpu",
    "--set",
    "epochs=1",
    "batch=8",
    "queue=24",
    "warmup=0",
    "topk=4",
    "length=4",
    "size=16",
]
# with a clip a video they end before a busy machine interrupts
TEN_CROPS = ["--protocol", "coclr_official"]
# command, and what tells that it is at work: a word on stderr, or a file
BUSY = {
    "retrieve": (["retrieve", "run", "--batch", "1", *TEN_CROPS], "features of"),
    "extract": (["extract", "run", "--batch", "1", *TEN_CROPS, "--out", "f.npz"], "features of"),
    "search": (
        ["search", "--data", "videos", "--encoder", "run", "--clips", "37", "--batch", "1"],
        "index",
    ),
    "search, spans": (
        ["search", "--spans", "--data", "videos", "--encoder", "run", "--batch", "1"],
        "windows",
    ),
    "explore": (
        ["explore", "videos", "--encoder", "run", "--clips", "37", "--batch", "1"],
        "index",
    ),
    "toy": (["toy", "more", "--size", "demo"], "toy videos"),
    "flow": (["flow", "videos", "--method", "dis"], "flow"),
    "finetune": (["finetune", "run", "--set", "epochs=40", "batch=4", "--device", "cpu"], "step"),
    "pretrain": (
        [
            *TRAIN,
            "--epochs",
            "40",
            "--batch",
            "8",
            "--queue",
            "16",
            "--out",
            "long",
            "--device",
            "cpu",
        ],
        "step",
    ),
    "manifest": (["manifest", "many", "--workers", "1"], "many/.manifest-scan.jsonl"),
    "probe": (["probe", "run", "--batch", "1", "--device", "cpu"], "features of"),
    "demo": (["demo", "--out", "demo"], "toy videos"),
    "cotrain": (COTRAIN, "step"),
    "cotrain, measuring": (COTRAIN, "phases/infonce-toy-rgb/features"),
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize("name", BUSY)
def test_an_interruption_ends_everything(name, number, workshop, tmp_path, unbroken):
    """130 and 143, no traceback, no process left; all processes of a command hear Ctrl-C, one hears
    SIGTERM.
    """
    for part in ("videos", "run"):
        shutil.copytree(workshop / part, tmp_path / part)
    if name == "manifest":
        many(tmp_path)
    args, sign = BUSY[name]
    command, until = warm.Command(args, tmp_path), time.monotonic() + 300

    def busy():
        file = tmp_path / sign
        return sign in command.stderr or file.exists() and file.stat().st_size > 0

    while not busy() and command.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    assert command.poll() is None, f"over before it was interrupted: {command.stderr}"
    (os.killpg if number == signal.SIGINT else os.kill)(command.pid, number)
    code, said = command.wait(), command.stderr
    assert code == 128 + number and "Traceback" not in said, (code, said)
    until = time.monotonic() + 60
    while (alive := living(command.pid)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not alive, alive
    half = [
        f for f in tmp_path.rglob(".*") if f.is_file() and f.name[-5:] not in ("jsonl", ".lock")
    ]
    assert not half, f"half-written: {half}"
    if name in AFTERWARDS:
        AFTERWARDS[name](tmp_path, unbroken)


def many(place: Path):
    "A folder of 640 videos without a manifest."
    (place / "many").mkdir()
    for i in range(10):
        for f in sorted((place / "videos").rglob("*.mp4")):
            os.link(f, place / "many" / f"{f.parent.name} {f.stem} {i}.mp4")


def goes_on_scanning(place: Path, unbroken):
    "What a stopped scan has found is used: a lie that is written into it is believed."
    from vssl_nb.data.manifest import SCAN_LOG

    log = place / "many" / SCAN_LOG
    assert not (place / "many" / "manifest.csv").exists()
    found = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
    assert 0 < len(found) < 640
    log.write_text("\n".join(json.dumps(r | {"frames": 7777}) for r in found))
    done = warm.Command(["manifest", "many"], place)
    assert done.wait() == 0, done.stderr
    rows = manifest.read(place / "many").rows
    assert len(rows) == 640 and not log.exists()
    assert sorted(r.video for r in rows if r.frames == 7777) == sorted(r["video"] for r in found)


def probed(
    place,
):  # the row and the classifier of a probe of place/run
    from safetensors.numpy import load_file

    done = warm.Command(BUSY["probe"][0], place)
    assert done.wait() == 0, done.stderr
    (row,) = json.loads((place / "run" / "results.json").read_text())
    return {
        k: v for k, v in row.items() if k not in ("seconds", "probe_seconds", "date")
    }, load_file(place / "run" / "classifier.safetensors")


@pytest.fixture(scope="module")
def unbroken(workshop, tmp_path_factory):
    "What a probe makes that nobody stops; made when it is first wanted."

    @cache
    def make():
        place = tmp_path_factory.mktemp("unbroken")
        for part in ("videos", "run"):
            shutil.copytree(workshop / part, place / part)
        return probed(place)

    return make


def goes_on_probing(place: Path, unbroken):
    "The row and the classifier are those of a probe that nobody stopped."
    assert (
        not (place / "run" / "results.json").exists()
        and not (place / "run" / "classifier.safetensors").exists()
    )
    (row, a), (other, b) = probed(place), unbroken()
    assert row == other
    assert a.keys() == b.keys() and all((a[k] == b[k]).all() for k in a)


AFTERWARDS = {"manifest": goes_on_scanning, "probe": goes_on_probing}


# a program that gets a signal at the n-th import of its `main`, however fast the machine is
AT_AN_IMPORT = """
import json, os, signal, sys

number, n = json.loads(sys.argv.pop(1))
imports, counting = 0, False

def look(event, args):
    global imports
    if event != "import" or not counting:
        return
    imports += 1
    if imports == n:
        os.kill(os.getpid(), number)

sys.addaudithook(look)
"""
FIRST = (
    AT_AN_IMPORT
    + """
from vssl_nb.app import cli

counting = True
try:
    code = cli.main()
finally:
    counting = False
    print(imports, flush=True)
sys.exit(code)
"""
)


def interrupted_at_an_import(program: str, number: int, n: int, args, cwd):
    "Run a program that gets a signal at its n-th import; at none for n = 0."
    return subprocess.run(
        [sys.executable, "-c", program, json.dumps([number, n]), *args],
        cwd=cwd,
        text=True,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=300,
    )


EARLY = {
    "search": ["search", "a.mp4", "--data", "videos", "--encoder", "run"],
    "pretrain": [
        *TRAIN,
        *("--batch", "8", "--queue", "16", "--length", "4", "--size", "16"),
        *("--out", "new", "--device", "cpu", "--workers", "0"),
    ],
    "report": ["report", "run"],
}


def test_a_module_that_is_interrupted_while_it_is_imported_warns_of_nothing(tmp_path):
    "As matplotlib does of a part of it that cannot be imported; the exception is lost there."
    program = """
import os, signal, sys, warnings
from vssl_nb.app import cli
def interrupted(args):
    try: os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt: warnings.warn('Unable to import Axes3D')
    raise ImportError('half of it')
cli.run_command = interrupted
sys.exit(cli.main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr) == (130, "vssl-nb: interrupted\n")


def test_an_interrupted_command_leaves_the_warnings_of_its_caller_alone(monkeypatch, capsys):
    "A command that was called from Python: later warnings are shown."
    monkeypatch.setattr(cli, "run_command", lambda args: os.kill(os.getpid(), signal.SIGINT))
    before = [*warnings.filters]
    assert cli.main([]) == 130 and warnings.filters == before


def test_a_terminal_that_is_closed_ends_a_command_unless_with_nohup(monkeypatch, capsys):
    monkeypatch.setattr(cli, "run_command", lambda args: os.kill(os.getpid(), signal.SIGHUP))
    monkeypatch.setattr(cli, "leave_terminal", lambda: None)
    assert (
        cli.main([]) == 128 + signal.SIGHUP and capsys.readouterr().err == "vssl-nb: interrupted\n"
    )
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert cli.main([]) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("name", EARLY)
def test_an_interruption_in_the_first_moments(name, workshop, tmp_path):
    """While modules are read: one sentence and the exit code, never a traceback, whatever is being
    imported.
    """
    for part in ("videos", "run"):
        shutil.copytree(workshop / part, tmp_path / part)
    shutil.copy(workshop / "a.mp4", tmp_path / "a.mp4")
    before = tree(tmp_path)
    whole = interrupted_at_an_import(FIRST, signal.SIGINT, 0, EARLY[name], workshop_copy(tmp_path))
    assert whole.returncode in (0, 2), whole.stderr  # a run without results has no report
    total = int(whole.stdout.splitlines()[-1])
    for i, share in enumerate((0.02, 0.2, 0.5, 0.85)):
        number = (signal.SIGINT, signal.SIGTERM)[i % 2]
        done = interrupted_at_an_import(FIRST, number, int(share * total), EARLY[name], tmp_path)
        said = without_announcement(done.stderr)
        assert done.returncode == 128 + number and "Traceback" not in said, (share, said)
        assert said.endswith("vssl-nb: interrupted\n"), (share, said)
        if tree(tmp_path) != before:
            break  # it is at work: see above
    assert share > 0.02, "at work before it was interrupted"


def workshop_copy(place: Path) -> Path:
    "The same files in another folder."
    return Path(shutil.copytree(place, place.with_name(place.name + " whole")))


@pytest.mark.parametrize(
    "start",
    [
        "import sys, vssl_nb; counting = True; sys.exit(vssl_nb.main())",
        "import runpy, vssl_nb.app; counting = True\n"
        "runpy.run_module('vssl_nb.app.cli', run_name='__main__')",
    ],
    ids=["script", "-m"],
)
@pytest.mark.parametrize("n", [1, 20, 80])
def test_an_interruption_while_the_command_line_is_imported(start, n, tmp_path):
    "From the first line of the program: the same sentence and exit code as later."
    # Python itself reports an interruption before the program has begun
    taken = "counting and signal.getsignal(signal.SIGINT) is not signal.default_int_handler"
    program = AT_AN_IMPORT.replace("not counting", f"not ({taken})") + start
    done = interrupted_at_an_import(program, signal.SIGINT, n, TRAIN, tmp_path)
    assert (done.returncode, done.stderr) == (130, "vssl-nb: interrupted\n"), done


def living(group: int) -> list[str]:
    shown = subprocess.run(["ps", "-eo", "pgid,stat,args"], text=True, capture_output=True).stdout
    rows = [line.split(None, 2) for line in shown.splitlines()[1:]]
    return [r[2] for r in rows if int(r[0]) == group and "Z" not in r[1]]


# --- a run that may not be written, and one that is damaged

CPU = ["--device", "cpu", "--workers", "0"]


def done(*args) -> str:
    "What a command prints that works."
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        assert cli.main([str(a) for a in args]) == 0, err.getvalue()
    return out.getvalue()


def test_a_run_is_measured_without_being_written(workshop, tmp_path, monkeypatch):
    "With --out, which is what a run that is read only is told to take."
    monkeypatch.chdir(workshop)
    before, out = tree(workshop / "run"), tmp_path / "out"
    done("extract", "run", "--out", out, *CPU)
    kept = sorted((out / "features").iterdir())
    assert kept and "results.json" in done("retrieve", "run", "--out", out, "--no-baselines", *CPU)
    assert f"vssl-nb predict {out} VIDEO" in done("probe", "run", "--out", out, *CPU)
    assert "Verdict" in done("verdict", "run", "--out", out, "--videos", "8", *CPU)
    assert sorted((out / "features").iterdir()) == kept, (
        "the features that were there were not used"
    )
    rows = json.loads((out / "results.json").read_text())
    assert [(r["task"], r["run"]) for r in rows] == [("retrieval", "run"), ("probe", "run")]
    assert {"verdict.txt", "verdict.json", "figures", "classifier.safetensors"} <= {
        *os.listdir(out)
    }
    assert "%" in done("predict", out, "a.mp4", "--device", "cpu") and done("report", out)
    # a table alone needs no other place
    monkeypatch.setattr(cli.os, "access", lambda path, mode: mode != os.W_OK)
    may_write = "vssl_nb.app.commands.measurement.expect_writable"
    monkeypatch.setattr(may_write, lambda path, option="--out", folder=False: None)
    done("extract", "run", "--out", tmp_path / "f.npz", *CPU)
    assert (tmp_path / "f.npz").exists() and tree(workshop / "run") == before


def test_torn_results_are_made_again_as_the_message_has_it(workshop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for part in ("videos", "run"):
        shutil.copytree(workshop / part, tmp_path / "a place" / part)
    run, videos = tmp_path / "a place" / "run", tmp_path / "a place" / "videos"
    few = manifest.write(videos / "few.csv", manifest.read(videos).rows[::4])
    for text in ('[{"name": "x", "r1"', '{"r1": 0.5}', "[3]"):
        (run / "results.json").write_text(text)
        sentence = said_by(["report", "a place/run"])
        assert "results.json: is not " in sentence, sentence
    command = shlex.split(re.search("`vssl-nb (.*)`", sentence)[1])
    assert command == ["retrieve", "a place/run"]
    done(*command, "--no-baselines", "--data", few, *CPU)
    assert (run / "results.json.damaged").read_text() == "[3]" and "retrieval" in done(
        "report", "a place/run"
    )
    (run / "card.json").write_text("{")
    assert "card.json: is not readable as JSON" in (sentence := said_by(["report", "a place/run"]))
    assert "retrieve" not in sentence and "take an earlier copy" in sentence, sentence


@pytest.mark.parametrize(
    "field, value",
    [
        ("view", "rgb"),
        ("length", 8),
        ("backbone", "small"),
        ("stride", 2),
        ("size", 48),
        ("method", "byol"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(field, value, workshop, tmp_path):
    "The field and both values are named; of another number of epochs it may be."
    from vssl_nb.methods.recipes import difference, flat_fields, from_dict, to_dict
    from vssl_nb.runs.experiment import resolve
    from vssl_nb.runs.pretraining import open_run
    from vssl_nb.training.checkpoints import load, save

    run = Path(shutil.copytree(workshop / "run", tmp_path / "run"))
    state, recipe = load(run / "last.pt"), from_dict(json.loads((run / "recipe.json").read_text()))
    data = manifest.read(workshop / "videos")
    assert not difference(from_dict(state["recipe"]), recipe)
    save(run / "last.pt", state | {"recipe": to_dict(override(recipe, epochs=7))})
    experiment = resolve(recipe, data)
    assert open_run(experiment, run, True)[1]["step"] == state["step"]
    save(run / "last.pt", state | {"recipe": to_dict(override(recipe, **{field: value}))})
    mine = ({"method": "infonce"} | flat_fields(recipe))[field]
    with pytest.raises(
        ValueError,
        match=f"run/last.pt.*{field}={value!r}.*{mine!r}.*--out",
    ):
        open_run(experiment, run, True)


# --- somebody else

NOBODY = 65534
# the kit was imported by who runs the tests (`warm`), since another user may perhaps not read this
# Python;
# each command gets a process of its own, which belongs to somebody else
AS_SOMEBODY_ELSE = """
import json, os, sys
from vssl_nb.app import cli
asked = json.load(open(sys.argv[1]))
answers = []
for args in asked:
    out, err = os.memfd_create('out'), os.memfd_create('err')
    pid = os.fork()
    if not pid:
        os.dup2(out, 1); os.dup2(err, 2)
        os.setgroups([]); os.setresgid(*[nobody]*3); os.setresuid(*[nobody]*3)
        try: code = cli.main(args)
        except BaseException as e: sys.excepthook(type(e), e, e.__traceback__); code = 1
        sys.stdout.flush(); sys.stderr.flush()
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    for f in (out, err): os.lseek(f, 0, 0)
    said = [os.read(f, 10**6).decode() for f in (out, err)]
    answers.append([code, *said])
json.dump(answers, open(sys.argv[2], 'w'))
""".replace("nobody", str(NOBODY))
FORBIDDEN = [
    ("locked", ["toy", "locked/new", "--size", "tiny"]),
    ("locked", [*TRAIN, "--out", "locked/run"]),
    ("locked", ["report", "run", "--out", "locked/report.html"]),
    ("run", ["report", "run"]),
    ("run", ["retrieve", "run"]),
    ("run", ["probe", "run"]),
    ("run", ["extract", "run"]),
    ("locked", ["extract", "mine", "--out", "locked/f.npz"]),
    ("videos", ["flow", "videos"]),
    ("locked", ["cotrain", "coclr-toy", "--data", "videos", "--out", "locked/c"]),
    ("locked", ["finetune", "run", "--out", "locked/f"]),
    ("locked", ["demo", "--out", "locked/demo"]),
    ("videos", ["search", "a.mp4", "--data", "videos", "--encoder", "run"]),
    ("locked", ["search", "a.mp4", "--data", "videos", "--encoder", "run", "--index", "locked/i"]),
    ("locked", ["explore", "videos", "--encoder", "run", "--out", "locked/e.html"]),
    ("videos", ["search", "a.mp4", "--spans", "--data", "videos", "--encoder", "run"]),
    ("locked", ["convert", "run", "locked/e.onnx"]),
    ("locked", ["predict", "mine", "a.mp4", "--out", "locked/p.csv"]),
    ("secret.csv", ["pretrain", "infonce-toy-rgb", "--data", "secret.csv"]),
    ("shut", ["retrieve", "shut"]),
    ("shut", ["probe", "shut"]),
    ("torn", ["retrieve", "torn"]),
]
UNREADABLE = [
    "search",
    "--data",
    "few",
    "--encoder",
    "run",
    "--clips",
    "1",
    "--device",
    "cpu",
    "--workers",
    "0",
]


@pytest.fixture(scope="module")
def theirs(workshop):
    """What commands of somebody else say in a workshop that belongs to root; what changed there, as
    well.
    """
    if os.getuid():
        pytest.skip("to run as another user needs root; run the tests as root to try permissions")
    # where everybody may pass, unlike in pytest's own
    home = Path(tempfile.mkdtemp(prefix="careless"))
    there = home / "w"
    try:
        shutil.copytree(workshop, there)
        (there / "locked").mkdir()
        (there / "few").mkdir()
        for name in ("shut", "torn", "mine"):
            shutil.copytree(workshop / "run", there / name)
        for i, p in enumerate(sorted((workshop / "videos").rglob("*.mp4"))[:4]):
            shutil.copy(p, there / "few" / f"{i}.mp4")
        (there / "secret.csv").write_text("x")
        for p in (home, *home.rglob("*")):
            p.chmod(0o755 if p.is_dir() else 0o644)
        for name in ("mine", "few"):
            (there / name).chmod(0o777)
        for name in ("secret.csv", "shut", "torn/recipe.json", "few/0.mp4"):
            (there / name).chmod(0)
        before = tree(there)
        asked = [args for _, args in FORBIDDEN] + [UNREADABLE]
        (home / "asked").write_text(json.dumps(asked))
        (home / "as_somebody_else.py").write_text(AS_SOMEBODY_ELSE)
        done = warm.run(
            [home / "asked", home / "answers"],
            there,
            os.environ | {"HOME": "/nonexistent"},
            script=home / "as_somebody_else.py",
        )
        assert done.returncode == 0, done.stderr
        changed = {str(p.relative_to(there)) for p in tree(there).keys() ^ before.keys()}
        yield dict(zip(map(tuple, asked), json.loads((home / "answers").read_text()))), changed
    finally:
        shutil.rmtree(home)


@pytest.mark.parametrize("place, args", FORBIDDEN, ids=[" ".join(a) for _, a in FORBIDDEN])
def test_what_belongs_to_somebody_else(place, args, theirs):
    """Refused before the work, in one sentence that names the place and speaks of rights, not of
    space.
    """
    code, out, said = theirs[0][tuple(args)]
    assert code == 2 and len(said.splitlines()) == 1 and place in said and not out, (
        code,
        out,
        said,
    )
    assert re.search("may not|ermission", said) and "space" not in said, said


def test_a_video_that_somebody_else_may_not_read(theirs):
    """It is counted, the others are searched; and that index is all that all these commands have
    left behind.
    """
    code, out, said = theirs[0][tuple(UNREADABLE)]
    assert code == 0 and "SearchIndex(3 videos" in out and "1 unreadable" in out, (code, out, said)
    assert all(name.startswith("few/.vssl-search") for name in theirs[1]) and theirs[1], theirs[1]
