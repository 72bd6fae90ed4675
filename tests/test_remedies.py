"""Every remedy that a message names is followed: the refused command, its advice, success.

Commands in backticks are read off the sentence, with names in the place of VIDEO, FOLDER, FILE and
RUN. Where the sentence speaks of an option, or of a file to be brought back, what follows it stands
here by hand.
"""

import ast
import contextlib
import io
import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from house import modules

from vssl_nb.app import cli

ROOT = Path(__file__).parent
SMALL = (
    "--size 32 --length 4 --stride 1 --epochs 1 --warmup 0 --test-clips 1 --backbone tiny --batch "
    "4 "
    "--workers 0 --device cpu --quiet".split()
)
QUEUE = ["--queue", "8"]
DIFFERENCES, FRAMES, FLOW = (
    ["pretrain", f"infonce-toy-{view}", *SMALL, *QUEUE, "--data"]
    for view in ("residual", "rgb", "flow")
)
TUNE = [
    "finetune",
    "mine",
    "--device",
    "cpu",
    "--workers",
    "0",
    "--quiet",
    "--set",
    "epochs=1",
    "batch=4",
]
ALONE = ["--workers", "0", "--device", "cpu"]
# for the words of a sentence that stand for a name
NAMES = {"VIDEO": "a.mp4", "FOLDER": "flat", "FILE.tar": "new.tar", "RUN": "mine"}


def call(args):
    "Exit code, and what was printed on stdout and stderr."
    errors, out = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(out):
        code = cli.main(args)
    return code, out.getvalue(), errors.getvalue()


def advised(text):
    "The commands in backticks of a sentence, as arguments."
    commands = re.findall(r"`vssl-nb ([^`]+)`", text)
    return [[NAMES.get(word, word) for word in shlex.split(c)] for c in commands]


def film(path, number):
    "Twelve frames of a square that moves, of its own colour and way."
    from vssl_nb.data.video import encode

    x = np.full((12, 32, 40, 3), 20 * (number % 5), np.uint8)
    for t in range(12):
        x[t, 4 + t : 12 + t, 2 + number : 12 + number] = (250, 20 * number, 100)
    path.parent.mkdir(parents=True, exist_ok=True)
    return encode(path, x if number % 2 else x[::-1], gop=4)


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    "Films of two classes with a split, the same without, a run of each view, a classifier."
    there = tmp_path_factory.mktemp("remedies")
    for i in range(12):
        film(there / "films" / ("up" if i % 2 else "down") / f"{i}.mp4", i)
        if i < 6:
            film(there / "flat" / f"{i}.mp4", i)
    shutil.copy(there / "flat" / "0.mp4", there / "a.mp4")
    with contextlib.chdir(there):
        for args in (
            ["manifest", "films", "--split", ".34"],
            [*DIFFERENCES, "films", "--out", "mine"],
            [*FRAMES, "films", "--out", "frames"],
            [*TUNE, "--out", "tuned"],
            ["convert", "mine", "x.tar"],
        ):
            code, _, errors = call(args)
            assert code == 0, (args, errors)
    return there


@pytest.fixture
def bench_copy(bench, tmp_path, monkeypatch):
    "A copy to work in; runs know their manifest by its place beside them."
    there = tmp_path / "here"
    shutil.copytree(bench, there)
    for card in there.rglob("card.json"):
        card.write_text(card.read_text().replace(str(bench), str(there)))
    monkeypatch.chdir(there)
    return there


def change(file, **values):
    "Other values in a file of JSON."
    path = Path(file)
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def cut(file):
    Path(file).write_bytes(Path(file).read_bytes()[:40])


def lose(name):
    shutil.move(name, "lost")


def bring_back(name):
    return lambda: shutil.move("lost", name)


def other_card(**values):
    return lambda: change(
        "mine/card.json",
        manifest=json.loads(Path("mine/card.json").read_text())["manifest"] | values,
    )


def without_split():
    "A manifest of the films that has no test part."
    shutil.copytree("films", "whole")
    Path("whole/manifest.csv").unlink()
    call(["manifest", "whole"])


def other_bytes():
    "The manifest of the films, which has an empty line more."
    Path("films/manifest.csv").write_text(Path("films/manifest.csv").read_text() + "\n")


def released(**changes):
    "A released file with another recipe in it, or, of none, without any."
    from vssl_nb.app.convert import save_released
    from vssl_nb.runs.released import load_released

    def write():
        r = load_released("x.tar")
        if changes:
            r.run["recipe"] = changes["recipe"](r.run["recipe"])
        else:
            r.run.clear()
        save_released(r, "bare.tar")

    return write


def damaged_films():
    "Four of the films of a manifest are cut afterwards."
    for i in range(4):
        cut(sorted(Path("films").rglob("*.mp4"))[3 * i])


def index(folder, *more):
    return lambda: call(["search", "--data", folder, *more, *ALONE])


ADVISED, AGAIN = ["what the sentence advises"], ["the same command"]
CONVERT = ["convert", "bare.tar", "new", "--data", "films"]
SMALL_FIELDS = [
    "--set",
    "backbone=tiny",
    "size=32",
    "length=4",
    "stride=1",
    "queue=8",
    "batch=4",
    "epochs=4",
]
COCLR = [
    "pretrain",
    "coclr-toy-rgb-cycle1",
    *SMALL,
    "--queue",
    "24",
    "--topk",
    "2",
    "--data",
    "films",
]
SEARCH = ["search", "a.mp4", *ALONE, "--data"]
RETRIEVE = ["retrieve", "mine", "--no-baselines", *ALONE]
# part of a message, what is wrong before, the command that is refused, and what follows its advice:
# commands,
# or what a person would do
CASES = [
    # names and words
    (
        "is given without its name, as in vssl-nb",
        None,
        ["manifest", "--folder", "flat"],
        [["manifest", "flat"]],
    ),
    (
        "is not one of auto, cpu, cuda",
        None,
        [*DIFFERENCES, "films", "--device", "gpu"],
        [[*DIFFERENCES, "films", "--device", "auto"]],
    ),
    (" --help", None, ["manifest", "flat", "--split", "many"], [["manifest", "--help"]]),
    ("also needs ", None, DIFFERENCES[:-1], [[*DIFFERENCES, "films", "--out", "new"]]),
    ("is not name=value, such as epochs=5", None, [*TUNE, "epochs"], [[*TUNE, "epochs=1"]]),
    (
        "; of {self.recipe_name} give --epochs",
        None,
        [*DIFFERENCES, "films", "--minutes", "3"],
        [[*DIFFERENCES, "films", "--epochs", "2"]],
    ),
    (
        "--paper {self.paper}: no claim is of that paper; ",
        None,
        ["claims", "--paper", "MoCo"],
        [["claims", "--paper", "CPR"]],
    ),
    (
        "is not a regular expression ({e}); mend it, or leave it out",
        None,
        ["manifest", "flat", "--source-pattern", "(["],
        [["manifest", "flat", "--source-pattern", "([0-9])"]],
    ),
    (
        "groups; put one group around what names the recording",
        None,
        ["manifest", "flat", "--source-pattern", "x"],
        [["manifest", "flat", "--source-pattern", "([0-9])"]],
    ),
    (
        "--source-pattern {source_pattern}: matches none of ",
        None,
        ["manifest", "flat", "--source-pattern", "(x)"],
        [["manifest", "flat", "--source-pattern", "([0-9])"], ["manifest", "flat"]],
    ),
    (
        "where each field is an option, such as --epochs 5",
        None,
        [*DIFFERENCES, "films", "--set", "epochs=2"],
        [[*DIFFERENCES, "films", "--epochs", "2"]],
    ),
    (
        "is not a share between 0 and 1; 0.2 makes a fifth",
        None,
        ["manifest", "flat", "--split", "2"],
        [["manifest", "flat", "--split", "0.2"]],
    ),
    (
        "was asked for, but torch sees",
        None,
        [*DIFFERENCES, "films", "--device", "cuda"],
        [[*DIFFERENCES, "films", "--device", "cpu"]],
    ),
    (
        "runs on the CPU only; leave --device out",
        None,
        ["flow", "films", "--method", "dis", "--device", "cuda"],
        [["flow", "films", "--method", "dis"]],
    ),
    (
        "would compare, and normalise, each part of a batch",
        None,
        ["pretrain", "moquad-toy", *SMALL, "--data", "films", "--accumulate", "2"],
        [
            [
                "pretrain",
                "moquad-toy",
                *SMALL,
                "--data",
                "films",
                "--accumulate",
                "1",
                "--activation-checkpointing",
            ]
        ],
    ),
    # data
    (
        "(`vssl-nb manifest FOLDER` makes one)",
        None,
        [*DIFFERENCES, "flat/manifest.csv"],
        [ADVISED, AGAIN],
    ),
    (
        "`vssl-nb manifest {shlex.quote(str(Path(path).parent))}`",
        None,
        [*DIFFERENCES, "flat", "--dry-run"],
        [ADVISED, AGAIN],
    ),
    (
        "videos have no stored flow, such as",
        None,
        [*FLOW, "films"],
        [["flow", "films", "--method", "dis", "--workers", "1"], AGAIN],
    ),
    (
        "flow='live' needs a GPU; store the flow once",
        None,
        [*FLOW, "films", "--flow", "live"],
        [
            ["flow", "films", "--method", "dis", "--workers", "1"],
            [*FLOW, "films", "--flow", "stored"],
        ],
    ),
    (
        "name another folder with --out",
        None,
        ["flow", "films", "--method", "dis", "--out", "up"],
        [["flow", "films", "--method", "dis", "--out", "motion"]],
    ),
    ("--split 0.2` do it", without_split, [*RETRIEVE, "--data", "whole"], [ADVISED, AGAIN]),
    (
        "knows no data; name a manifest with --data",
        lambda: call(["extract", "mine", "--out", "f.npz", *ALONE]),
        ["retrieve", "f.npz", "--no-baselines", *ALONE],
        [["retrieve", "f.npz", "--data", "films", "--no-baselines", *ALONE]],
    ),
    (
        "training videos cannot be read (more than",
        damaged_films,
        [*DIFFERENCES, "films"],
        [["manifest", "films"], [*DIFFERENCES, "films", "--batch", "2"]],
    ),
    (
        "`vssl-nb manifest {shlex.quote(str(Path(path).parent))}`",
        lambda: Path("flat/manifest.csv").write_text(""),
        [*DIFFERENCES, "flat"],
        [ADVISED, AGAIN],
    ),
    # runs
    (
        "needs --{name}, a run folder or released file on",
        None,
        COCLR,
        [[*COCLR, "--sampler", "mine"]],
    ),
    (
        "is not there any more; say where it is with --mining",
        lambda: (call([*COCLR, "--sampler", "mine", "--out", "co"]), lose("mine")),
        ["mine", "co", *ALONE],
        [["mine", "co", "--mining", "lost", "--miners", "topk", *ALONE]],
    ),
    ("` take it; name a pretrained run here", None, ["retrieve", "tuned"], [ADVISED, [*RETRIEVE]]),
    (
        "holds a run already; add --resume",
        None,
        [*DIFFERENCES, "films", "--out", "mine"],
        [
            [*DIFFERENCES, "films", "--out", "mine", "--resume"],
            [*DIFFERENCES, "films", "--out", "new"],
        ],
    ),
    (
        "its checkpoint last.pt is gone; bring it back",
        lambda: lose("mine/last.pt"),
        [*DIFFERENCES, "films", "--out", "mine", "--resume"],
        [[*DIFFERENCES, "films", "--out", "new"], bring_back("mine/last.pt"), AGAIN],
    ),
    (
        "resume it with the same recipe, or choose another --out",
        None,
        [*DIFFERENCES, "films", "--out", "mine", "--resume", "--lr", "3"],
        [
            [*DIFFERENCES, "films", "--out", "mine", "--resume"],
            [*DIFFERENCES, "films", "--out", "new", "--lr", "3"],
        ],
    ),
    (
        "or its content has changed); resume with the same manifest",
        lambda: call(["manifest", "flat"]),
        [*DIFFERENCES, "flat", "--out", "mine", "--resume"],
        [
            [*DIFFERENCES, "films", "--out", "mine", "--resume"],
            [*DIFFERENCES, "flat", "--out", "new"],
        ],
    ),
    (
        "which is not there any more; say ",
        other_card(path="gone.csv", relative="gone.csv"),
        RETRIEVE,
        [[*RETRIEVE, "--data", "films"]],
    ),
    (
        "say which manifest to measure on with --data",
        other_bytes,
        RETRIEVE,
        [[*RETRIEVE, "--data", "films"]],
    ),
    (
        "; resume with the same, or choose another --out",
        None,
        [*TUNE, "--out", "tuned", "--resume", "--seed", "3"],
        [[*TUNE, "--out", "tuned", "--resume"], [*TUNE, "--out", "new", "--seed", "3"]],
    ),
    (
        "from scratch there is no run that knows its data",
        None,
        ["finetune", "infonce-toy-residual", "--preset", "scratch"],
        [
            [
                "finetune",
                "infonce-toy-residual",
                "--preset",
                "scratch",
                "--data",
                "films",
                "--dry-run",
                "--device",
                "cpu",
                "--set",
                "batch=4",
            ]
        ],
    ),
    (
        "make one: `vssl-nb probe {run}` (seconds) or",
        None,
        ["predict", "mine", "a.mp4", *ALONE],
        [["probe", "mine", *ALONE], AGAIN],
    ),
    (
        "run `vssl-nb probe` or `vssl-nb finetune` on its run folder",
        None,
        ["predict", "mine/encoder.safetensors", "a.mp4", *ALONE],
        [["probe", "mine", *ALONE], ["predict", "mine", "a.mp4", *ALONE]],
    ),
    (
        "no video was named; give files, or a folder with --data",
        None,
        ["predict", "tuned", *ALONE],
        [["predict", "tuned", "a.mp4", *ALONE], ["predict", "tuned", "--data", "flat", *ALONE]],
    ),
    (
        "name it as the manifest does, or leave --data out",
        None,
        ["predict", "tuned", "a.mp4", "--data", "films", *ALONE],
        [
            ["predict", "tuned", "a.mp4", *ALONE],
            ["predict", "tuned", "up/1.mp4", "--data", "films", *ALONE],
        ],
    ),
    # results
    (
        "name a run folder that was measured",
        None,
        ["report", "films"],
        [ADVISED, ["report", "mine"]],
    ),
    *(
        ("measure with `vssl-nb retrieve {run}`", wrong, ["report", "mine"], [ADVISED, AGAIN])
        for wrong in (
            None,
            lambda: Path("mine/results.json").write_text("{"),
            lambda: Path("mine/results.json").write_text("[]"),
            lambda: Path("mine/results.json").write_text("{}"),
        )
    ),
    (
        "bring back the last.pt of this run",
        lambda: shutil.copy("frames/last.pt", "mine/last.pt"),
        [*DIFFERENCES, "films", "--out", "mine", "--resume"],
        [[*DIFFERENCES, "films", "--out", "new"]],
    ),
    (
        "are measured on different manifests; name one for both",
        lambda: (call(["manifest", "flat"]), call([*FRAMES, "flat", "--out", "other"])),
        [*RETRIEVE, "--second", "other"],
        [[*RETRIEVE, "--second", "other", "--data", "films"]],
    ),
    (
        "both look at {view}: give --mining a run of another view",
        None,
        ["mine", "mine", "--mining", "mine", *ALONE],
        [["mine", "mine", "--mining", "frames", "--miners", "topk", *ALONE]],
    ),
    (
        ", or write over it with --force",
        lambda: Path("notes.csv").write_text("mine"),
        ["extract", "mine", "--out", "notes.csv", *ALONE],
        [
            ["extract", "mine", "--out", "notes.csv", "--force", *ALONE],
            ["extract", "mine", "--out", "f.csv", *ALONE],
        ],
    ),
    (
        "is a pretrained run, which fine-tuning does not resume",
        None,
        [*TUNE, "--resume", "--out", "frames"],
        [[*TUNE, "--out", "new"]],
    ),
    (
        "is of no run that could be resumed, and a training",
        lambda: (Path("x").mkdir(), Path("x/steps.csv").write_text("mine")),
        [*DIFFERENCES, "films", "--out", "x"],
        [[*DIFFERENCES, "films", "--out", "new"]],
    ),
    (
        "delete its index.json and search again",
        lambda: (
            index("flat", "--encoder", "mine", "--index", "i")(),
            [cut(f) for f in Path("i").glob("features*")],
        ),
        [*SEARCH, "flat", "--encoder", "mine", "--index", "i"],
        [lambda: Path("i/index.json").unlink(), AGAIN],
    ),
    (
        "; take such a name",
        None,
        ["mine", "mine", "--out", "x.csv", *ALONE],
        [["mine", "mine", "--out", "x.json", *ALONE]],
    ),
    # released files
    (
        "--set changes a recipe: name it with --recipe",
        None,
        ["convert", "x.tar", "new", "--set", "batch=4"],
        [
            [
                "convert",
                "x.tar",
                "new",
                "--set",
                "batch=4",
                "backbone=tiny",
                "size=32",
                "length=4",
                "stride=1",
                "queue=8",
                "--recipe",
                "infonce-toy-residual",
                "--data",
                "films",
            ]
        ],
    ),
    (
        "--recipe makes a run, and a run needs --data",
        None,
        ["convert", "x.tar", "new", "--recipe", "infonce-toy-residual"],
        [["convert", "x.tar", "new", "--data", "films"]],
    ),
    (
        "is a run already; leave out --data",
        None,
        ["convert", "mine", "new", "--data", "films"],
        [["convert", "mine", "new"]],
    ),
    (
        "carries no recipe; say which one with --recipe",
        released(),
        CONVERT,
        [[*CONVERT, "--recipe", "infonce-toy-residual", *SMALL_FIELDS]],
    ),
    (
        "{order.total}; give it more (--set epochs=",
        released(),
        [*CONVERT, "--recipe", "infonce-toy-residual", *SMALL_FIELDS, "epochs=1"],
        [[*CONVERT, "--recipe", "infonce-toy-residual", *SMALL_FIELDS]],
    ),
    (
        "code that is not of this library; say which recipe",
        released(recipe=lambda r: r.replace('"tiny"', '"os:system"')),
        CONVERT,
        [[*CONVERT, "--recipe", "infonce-toy-residual", *SMALL_FIELDS]],
    ),
    (
        "the recipe in it is damaged; say which one",
        released(recipe=lambda r: r[:-9]),
        CONVERT,
        [[*CONVERT, "--recipe", "infonce-toy-residual", *SMALL_FIELDS]],
    ),
    (
        "choose a recipe that goes on with it, or begin from its weights",
        None,
        [
            "convert",
            "x.tar",
            "new",
            "--data",
            "films",
            "--recipe",
            "infonce-toy-residual",
            *SMALL_FIELDS,
            "queue=16",
        ],
        [
            ["convert", "x.tar", "new", "--data", "films"],
            [*DIFFERENCES, "films", "--init", "x.tar", "--queue", "16", "--out", "newer"],
        ],
    ),
    (
        "does not say which view it is of; say it with --view",
        released(),
        ["convert", "bare.tar", "new.safetensors"],
        [["convert", "bare.tar", "new.safetensors", "--view", "residual"]],
    ),
    (
        "is no file of VideoMAE's pretraining",
        None,
        ["finetune", "x.tar", "--data", "films", *TUNE[2:]],
        [["convert", "x.tar", "new", "--data", "films"], ["finetune", "new", *TUNE[2:]]],
    ),
    # search
    (
        "; name another folder with --index",
        index("flat", "--encoder", "mine", "--index", "i"),
        [*SEARCH, "flat", "--encoder", "frames", "--index", "i"],
        [[*SEARCH, "flat", "--encoder", "frames", "--index", "j"]],
    ),
    (
        "is an index of {before} clips a video, and {now} were asked for",
        index("flat", "--encoder", "mine", "--index", "i", "--clips", "2"),
        [*SEARCH, "flat", "--index", "i", "--clips", "3"],
        [
            [*SEARCH, "flat", "--index", "i"],
            [*SEARCH, "flat", "--encoder", "mine", "--index", "j", "--clips", "3"],
        ],
    ),
    (
        "is an index of other videos: none of its",
        index("flat", "--encoder", "mine", "--index", "i"),
        [*SEARCH, "films", "--encoder", "mine", "--index", "i"],
        [[*SEARCH, "films", "--encoder", "mine", "--index", "j"]],
    ),
    (
        "; name one with --encoder",
        lambda: [index("flat", "--encoder", run)() for run in ("mine", "frames")],
        [*SEARCH, "flat"],
        [[*SEARCH, "flat", "--encoder", "frames"]],
    ),
    (
        "which is gone; say where it is with --encoder",
        lambda: (index("flat", "--encoder", "mine")(), lose("mine")),
        [*SEARCH, "flat"],
        [[*SEARCH, "flat", "--encoder", "lost"]],
    ),
    (
        "name one of rgb or residual with --encoder",
        lambda: (
            call(["flow", "films", "--method", "dis"]),
            call([*FLOW, "films", "--out", "moves"]),
        ),
        [*SEARCH, "flat", "--encoder", "moves"],
        [[*SEARCH, "flat", "--encoder", "mine"]],
    ),
    (
        "name a run folder, or its encoder.safetensors, with --encoder",
        None,
        [*SEARCH, "flat", "--encoder", "nowhere"],
        [[*SEARCH, "flat", "--encoder", "mine"]],
    ),
    (
        "there is no index yet; leave out --no-update",
        None,
        ["search", "a.mp4", "--data", "flat", "--encoder", "mine", "--no-update", *ALONE],
        [["search", "a.mp4", "--data", "flat", "--encoder", "mine", *ALONE]],
    ),
    (
        "has no index yet, and to make one takes an encoder",
        None,
        ["search", "a.mp4", "--data", "flat"],
        [["search", "a.mp4", "--data", "flat", "--encoder", "mine", *ALONE]],
    ),
    (
        "give the path of a last.pt, or start without --resume",
        lambda: lose("mine/last.pt"),
        ["convert", "mine", "new.tar"],
        [bring_back("mine/last.pt"), AGAIN],
    ),
]


@pytest.mark.parametrize("part, wrong, args, steps", CASES, ids=[c[0] for c in CASES])
def test_a_remedy_works(part, wrong, args, steps, bench_copy):
    if wrong:
        wrong()
    code, out, errors = call(args)
    text = (errors.splitlines() or [""])[-1]  # bars come before it
    words = re.sub(r"\{[^}]*\}", "\0", part).split("\0")
    if code == 0 and torch.cuda.is_available():
        pytest.skip("refused where there is no GPU")
    assert code == 2 and not out and all(w in text for w in words), (code, out, errors)
    for step in steps:
        if callable(step):
            step()
        for command in (
            ()
            if callable(step)
            else advised(text)
            if step is ADVISED
            else [args]
            if step is AGAIN
            else [step]
        ):
            code, _, errors = call(command)
            assert code == 0, f"{text}, followed by {command}: {errors}"


# part of a message whose remedy is not followed here: the test that follows it, or why none can
GPU, AFTER, PYTHON = (
    "needs a GPU",
    "a sentence after a training that went well",
    "Python alone gets there",
)
ELSEWHERE = {
    "so it is --workers {processors}; the results are the same": "test_careless.py",
    "takes some twenty times as long as float32; leave --dtype out": "test_careless.py",
    "--method dis is rougher and takes some": "test_flow_extraction.py",
    "or raise the limit (ulimit -v)": "test_careless.py",
    "and {manifest} has not; choose another --manifest": "test_careless.py",
    "--conflict measures a run folder or hf:NAME; name one": "test_conflict.py",
    "Not in this table: {lacking}. vssl-nb retrieve": "test_report.py",
    "Compare it with an encoder that others trained": AFTER,
    "or an encoder that others trained, such as": "test_published_weights.py",
    "vssl-nb search VIDEO --data {data} --encoder {name}": "test_recommendation.py",
    "First steps: vssl-nb toy videos;": "test_readme_path.py",
    "Measure it: vssl-nb retrieve {run} --data {data}": "test_hub.py",
    "say on what: --data toy": "test_reproduce.py",
    "name one or more, each once": "test_reproduce.py",
    "no recipe of this table has that field": "test_reproduce.py",
    "needs what the toy videos do not have": "test_reproduce.py",
    "train {row.full.recipe} with vssl-nb pretrain": "needs a data set of a paper",
    "name its manifest, or --data toy": "needs a data set of a paper",
    "GPUs; take --device cpu, or auto": "test_flow_extraction.py",
    "its memory is not enough for one pair": GPU,
    "are too many for the memory of the GPU": GPU,
    "the GPU has too little memory": GPU,
    "would put {world_size()} processes on one GPU": GPU,
    "start one process per GPU, or use --device cpu": GPU,
    "name that film with --source-pattern or in the column source": "test_prepare.py",
    "or by a --source-pattern that tells them apart": "test_prepare.py",
    "--seed {seed}: is below 0": PYTHON,
    "--minutes {minutes:g}: must be above 0": PYTHON,
    "there is no such file; make one with `vssl-nb manifest`": PYTHON,
    "is not the folder of an encoder; `vssl-nb convert": PYTHON,
    "its fine-tuning was not finished: go on": "test_classification.py",
    "fewer than two of {len(self.rows)} videos can be read": "test_careless.py",
    "begin with --init-from infonce-toy": "the line about a recipe",
    "fitted to its videos": "the line about a recipe",
    "with --activation-checkpointing; largest batch": "a line of a forecast",
    "--init {word}: there is no file": "test_bridge.py",
    "--init {word}: does not say its view": "test_bridge.py",
    "--init {word}: no phase begins with": "test_bridge.py",
    "go on with the same settings, or choose another --out": "test_demo.py",
    "train on split {split} (--split {split}), or choose": "test_own_path.py",
    "frames or more; give --length": "test_own_path.py",
    "or run `vssl-nb manifest` to mark them": "test_own.py",
    "Differences of frames are empty": AFTER,
    "Train again with the method and the numbers": AFTER,
    "Go on with --resume, with more": AFTER,
    "Give it more time (--minutes 60)": AFTER,
    "Or take an encoder that others trained": "test_readme_path.py",
    "More --minutes,": AFTER,
    "If you search for what happens": AFTER,
    "Look at it: vssl-nb search {video}": "test_own_path.py",
    "train another run with --view residual": AFTER,
    "they need a test part": AFTER,
    "no split is filled, so all": AFTER,
    "name an encoder that `vssl-nb pretrain` wrote": "test_search.py",
    "; go on from the last checkpoint with --resume": "test_sudden_death.py",
    "and go on with --resume": "test_sudden_death.py",
    "; go on with --resume": "test_classification.py",
    "--resume goes on in this folder, so make it writable": "test_names.py",
    "is a file; choose another --out": PYTHON,
    "cannot be written ({e.strerror}); choose another": PYTHON,
    "wait until it has ended, or choose another --out": "test_sudden_death.py",
    "leave --activation-checkpointing out": "test_machine.py",
    "or begin a training with it (finetune, pretrain --init)": "test_vit_weights.py",
    "give --warmup below that, or more --epochs": "test_experiment.py",
    "--c:{wide": "a style of the page of explore",
    "that vssl-nb extract --out wrote, or one like it": "test_feature_files.py",
    "name a file of vssl-nb extract --out": "test_explore.py",
    "is a file; name the folder that holds the videos (features": "test_explore.py",
    "--spans has windows of its own; leave out --": "test_spans.py",
    "there are no windows yet; leave out --no-update": "test_spans.py",
    "is a classifier that draws samples": "no program can; written by a run of ProViCo",
    "--n:{columns": "a style of the page of explore",
    "use --backbone {": "test_experiment.py",
}


def messages():
    "The texts of the library that name a command or an option, but for help and docstrings."
    texts = set()
    for path in modules():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        inside = {
            id(c) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for c in ast.walk(n)
        } - {id(n) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr)}
        docs = {
            id(n.body[0].value)
            for n in ast.walk(tree)
            if isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.Module))
            and ast.get_docstring(n) is not None
        }
        for n in ast.walk(tree):
            if not isinstance(n, (ast.JoinedStr, ast.Constant)) or id(n) in inside | docs:
                continue
            text = ast.unparse(n) if isinstance(n, ast.JoinedStr) else str(n.value)
            texts.add(text)
    return {t for t in texts if len(t) > 20 and re.search(r"`vssl-nb |(?<![\w-])--[a-z]", t)}


def test_every_message_has_a_remedy_that_is_followed():
    """Each message that names a command or an option stands above, and nothing above has lost its
    message.
    """
    texts, parts = messages(), [c[0] for c in CASES] + [*ELSEWHERE]
    assert len(texts) > 100
    assert not (new := [t for t in texts if not any(p in t for p in parts)]), new
    # of no option, or too short
    made = {"; take such a name", "is given without its name, as in vssl-nb", "also needs "}
    assert not (idle := [p for p in parts if not any(p in t for t in texts) and p not in made]), (
        idle
    )
    missing = [f for f in ELSEWHERE.values() if f.endswith(".py") and not (ROOT / f).exists()]
    assert not missing, missing
