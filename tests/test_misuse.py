"""Misuses of folders, names and numbers: one sentence that names the file or option and helps, exit
code 2.

Everything is refused before something is computed, so that the runs here are two files by hand.
"""

import contextlib
import io
import re
import typing
from pathlib import Path

import pytest
from misuses import BROKEN, BY_HAND, CARD, TRAIN, TUNED, advised_values, dashed, fill
from misuses import generated, options_of

from vssl_nb import paths
from vssl_nb.app import cli
from vssl_nb.measure import protocols
from vssl_nb.measure.classify import ATTENTIVE_PROBES, PROBES
from vssl_nb.fields import RecipeError
from vssl_nb.methods.recipes import find, override
from vssl_nb.runs import experiment, pretraining

# how a sentence helps: what to write instead, or where that stands
REMEDY = re.compile(
    r"\b(see vssl-nb \S+ --help|did you mean|there are|must be|end in|name|use|choose|give|"
    r"take|add|leave|correct|make|write|save|say|bring|run|fill|train|measure|begin|as in|\. is "
    r"this)\b"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return fill(tmp_path_factory.mktemp("misuse"))


@pytest.fixture
def refusal(place, monkeypatch):
    """Gives the one sentence of a command that is refused in that place; at the end nothing was
    written.
    """

    def tree():
        return {p: p.stat().st_mtime_ns for p in place.rglob("*")}

    def sentence(args) -> str:
        errors, out = io.StringIO(), io.StringIO()
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(out):
            code = cli.main(args)
        lines = errors.getvalue().splitlines()
        assert (code, len(lines), out.getvalue()) == (2, 1, ""), (args, code, lines)
        assert lines[0].startswith("vssl-nb: ") and len(lines[0]) < 700, lines
        assert REMEDY.search(lines[0]), f"no remedy: {lines[0]}"
        return lines[0]

    monkeypatch.chdir(place)
    before = tree()
    yield sentence
    assert tree() == before


@pytest.mark.parametrize(
    "args",
    [
        ["retrieve", "tuned"],
        ["extract", "tuned"],
        ["verdict", "tuned"],
        ["probe", "tuned"],
        ["mine", "tuned"],
        ["uncertainty", "tuned"],
        ["finetune", "tuned"],
        ["search", "--data", "videos", "--encoder", "tuned"],
        ["retrieve", "run", "--second", "tuned"],
        ["mine", "run", "--mining", "tuned"],
        [*TRAIN, "--init-from", "tuned"],
        ["pretrain", "coclr-toy-rgb-cycle1", "--data", "videos", "--sampler", "tuned"],
        [*TRAIN, "--out", "tuned", "--resume"],
        ["convert", "tuned", "folder"],
        ["convert", "tuned", "x.safetensors"],
    ],
    ids=" ".join,
)
def test_a_fine_tuned_run_is_called_that(args, refusal):
    text = refusal(args)
    assert "tuned: is a fine-tuned run" in text and "`vssl-nb predict tuned VIDEO`" in text


def test_a_fine_tuned_run_is_converted_where_there_is_a_layout(refusal):
    "Refused only because this one has no checkpoint; tests of files of others convert whole ones."
    assert "tuned/last.pt: there is no such checkpoint" in refusal(["convert", "tuned", "x.tar"])


@pytest.mark.parametrize("i, field", [*enumerate(BROKEN.values())])
def test_a_card_that_is_none(i, field, refusal):
    co, run = f"co{i}", f"co{i}/infonce-toy-rgb"
    for args in (
        ["retrieve", run],
        ["extract", run],
        ["verdict", run],
        ["probe", run],
        ["mine", run],
        ["uncertainty", run],
        ["finetune", run],
        ["finetune", "run", "--out", run, "--resume"],
        ["convert", run, "x.tar"],
        [*TRAIN, "--out", run],
        [*TRAIN, "--out", run, "--resume"],
        [*TRAIN, "--init-from", run],
        ["retrieve", "run", "--second", run],
        ["predict", run, "a.mp4"],
        ["cotrain", "coclr-toy", "--data", "videos", "--out", co],
    ):
        text = refusal(args)
        assert f"{run}/card.json: " in text and repr(field) in text, text


def test_what_python_is_given_is_looked_at_as_well(place):
    "A fine-tuned run to begin with, and a card that is none, of a folder that no option names."
    with pytest.raises(paths.PathError, match="tuned: is a fine-tuned run, made from runs/mine"):
        pretraining.read_weights(
            place / "tuned", experiment.resolve(find("infonce-toy-rgb")), "encoder"
        )
    for i, field in enumerate(BROKEN.values()):
        for resume in (True, False):
            with pytest.raises(paths.PathError, match=f"card.json: .*'{field}'"):
                pretraining.earlier_run(place / f"co{i}" / "infonce-toy-rgb", resume)


def test_a_card_that_is_one(place):
    assert paths.read_card(place / "run") == CARD and paths.read_card(place / "tuned") == TUNED
    assert paths.read_card(place / "videos") == paths.read_card(place / "nothing") == {}


@pytest.mark.parametrize("name", ["json:loads", "os:system", "sys:exit"])
def test_what_cannot_be_called_without_arguments(name, refusal):
    "As an encoder, and as a protocol."
    text = refusal(["retrieve", name, "--data", "videos", "--out", "new"])
    assert f"{name}: name an nn.Module" in text
    with pytest.raises(ValueError, match=f"{name}: name a Protocol"):
        protocols.protocol(name)


TABLE = {command: [*generated(command)] for command in cli.COMMANDS}


def test_there_are_enough():
    every = [*BY_HAND, *(row for rows in TABLE.values() for row in rows)]
    assert len({tuple(args) for _, args in every}) == len(every) >= 300, len(every)


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_values_that_cannot_be(command, refusal):
    followed = []
    for words, args in TABLE[command]:
        text = refusal(args)
        assert words in text or words[2:].replace("-", "_") in text, (args, text)
        if words not in args:
            continue
        at, name = args.index(words) + 1, words[2:].replace("-", "_")
        for value in advised_values(text)[-1:] if command == "pretrain" else advised_values(text):
            try:
                cli.parse(command, [*args[1:at], *[value] * len(args[at:])])
            except ValueError as e:
                # the value may not go together with another one; by itself it is taken
                assert not str(e).startswith((f"{name}=", words)), (text, value, e)
            followed.append(value)
    assert followed or command == "recipes", "no advice was followed"


def test_names_that_are_in_a_table():
    "They are refused before PyTorch is imported; all that there are, and one's own, are taken."
    from vssl_nb.runs.finetuning import TRAININGS

    for name in [*TRAININGS, "my.parts:training"]:
        assert cli.parse("finetune", ["run", "--preset", name]).preset == name
        assert cli.parse("dry-run", ["byol-toy", "--finetune", name]).finetune == name
    for name in [*protocols.PROTOCOLS, "my.parts:protocol"]:
        assert cli.parse("retrieve", ["run", "--protocol", name]).protocol == name
    kind = typing.get_type_hints(cli.COMMANDS["probe"])["preset"]
    assert [*typing.get_args(kind)] == [*PROBES, *ATTENTIVE_PROBES]


@pytest.mark.parametrize("words, args", BY_HAND, ids=[" ".join(args) for _, args in BY_HAND])
def test_mistakes(words, args, refusal):
    assert words in refusal(args)


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_an_empty_path_is_no_folder(command, refusal):
    "As a variable of the shell that was never set gives it; the current folder is a dot."
    begin = [command, *["infonce-toy-rgb"] * (command == "pretrain")]
    for name, kind, _, word in options_of(command):
        if word:
            assert (
                "'' is an empty argument; . is this folder" in refusal([command, ""])
                or command == "pretrain"
            )
        elif "Path" in str(kind):
            option = dashed(name)
            assert f"{option} '' is no path; . is this folder" in refusal([*begin, option, ""])


def test_a_dot_is_this_folder():
    assert cli.parse("manifest", ["."]).folder == cli.parse("toy", ["."]).out == Path(".")
    assert cli.parse("demo", ["--out", "."]).out == Path(".")


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_a_number_out_of_range_is_named(command, refusal):
    begin = [command, *["infonce-toy-rgb"] * (command == "pretrain")]
    for name, kind, limits, _ in options_of(command):
        number = (
            str(kind) in ("int", "<class 'int'>") or "int" in str(kind) and "tuple" not in str(kind)
        )
        if name in ("workers", "seed", "batch", "clips", "of", "k", "top", "topk", "seeds"):
            assert limits, f"{command} --{name} has no range"
        if not limits or not (number or name == "seeds"):
            continue
        low = int(limits[1:].split(",")[0])
        for value in (low - 1, *[2**63, 2**70] * name.startswith("seed")):
            text = refusal([*begin, dashed(name), str(value)])
            assert f"{dashed(name)} {value}: must be {low} or more" in text, text


def test_a_seed_of_a_recipe_has_63_bits():
    recipe = find("infonce-toy-rgb")
    assert override(recipe, seed=2**63 - 1).seed == 2**63 - 1
    with pytest.raises(
        RecipeError, match="seed=1180591620717411303424 must be 0 or more and below"
    ):
        override(recipe, seed=2**70)


@pytest.mark.parametrize("command", ["retrieve", "probe", "verdict", "extract"])
def test_results_never_go_into_another_run(command, refusal):
    text = refusal([command, "run", "--out", "tuned"])
    assert "tuned: is a run; choose another --out" in text
    assert (
        "f.npz: is a file; choose another --out" in refusal([command, "run", "--out", "f.npz"])
        or command == "extract"
    )


@pytest.mark.parametrize(
    "words, args",
    [
        ("run: a run is measured without --view", ["retrieve", "run", "--view", "flow"]),
        ("run: a run is measured without --name", ["retrieve", "run", "--name", "x"]),
        *(
            (
                f"a recipe, without training, is measured without --{option}",
                ["retrieve", "infonce-toy-rgb", "--data", "videos", f"--{option}", value],
            )
            for option, value in (
                ("view", "flow"),
                ("name", "x"),
                ("second", "run"),
                ("protocol", "rspnet"),
                ("set", "size=64"),
                ("dtype", "bfloat16"),
            )
        ),
        (
            "what is no run is measured without --second",
            ["retrieve", "f.npz", "--data", "videos", "--second", "run"],
        ),
        ("--batch 0: must be 1 or more", ["predict", "run", "a.mp4", "--batch", "0"]),
        ("--clips 0: must be 1 or more", ["search", "a.mp4", "--clips", "0"]),
        ("say on what: --data toy", ["reproduce", "cpr:table1", "--data", ""]),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_nothing_is_ignored(words, args, refusal):
    assert words in refusal(args)
