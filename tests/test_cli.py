"""The command line as a whole: what it lists, how words become an object, and what it costs to
start.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vssl_nb.app import cli
from vssl_nb.app.commands.option_groups import changes
from vssl_nb.app.commands.training import how_to_predict
from vssl_nb.methods.recipes import METHODS
from vssl_nb.fields import RecipeError

ROOT = Path(__file__).parent.parent


def python(program):
    "What a new process prints."
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_face_of_the_library():
    "`vssl_nb.x` is there without an import of its module, and `import vssl_nb` needs no PyTorch."
    program = "import sys, vssl_nb; dir(vssl_nb); print({'torch', 'numpy'} & {*sys.modules})"
    assert python(program) == "set()"
    names = (
        "losses.mil_nce losses.supcon backbones.create mining.TopK mining.Cascade train.fit "
        "recipes.find features.extract retrieval.recall load_released"
    )
    assert (
        python(
            "import vssl_nb\n"
            + "".join(f"vssl_nb.{n}\n" for n in names.split())
            + "print(all(n in dir(vssl_nb) for n in vssl_nb.PLACES))\ntry: vssl_nb.nothing\n"
            "except AttributeError as e: print(e)"
        )
        == "True\nmodule 'vssl_nb' has no attribute 'nothing'"
    )


def test_help_comes_at_once():
    "Overview and options load the standard library and this package alone: no PyTorch, no NumPy."
    for args in (["--help"], ["pretrain", "--help"], ["recipes", "infonce-toy-rgb"]):
        program = (
            "import sys; before = set(sys.modules)\n"
            "from vssl_nb.app.cli import main\n"
            f"main({args!r})\n"
            "loaded = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
            "print(sorted(loaded - sys.stdlib_module_names - {'__mp_main__'}))"
        )
        assert python(program).endswith("['vssl_nb']"), args


def test_the_first_words_come_after_a_second():
    "Of a command that works longer and prints nothing; not where it was asked to be quiet."
    program = """
import sys, time
from vssl_nb.app import cli
cli.run_command = lambda args: time.sleep(float(args[1]))
for words in (['toy', '.2'], ['toy', '1.2', '--quiet'], ['toy', '1.2'], ['--help', '0']):
    sys.argv[1:] = words
    cli.main()
    print(words[0], file=sys.stderr, flush=True)"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    lines = done.stderr.splitlines()
    assert len(lines) == 5 and lines[:2] == ["toy", "toy"] and lines[3:] == ["toy", "--help"], lines
    assert lines[2].startswith("vssl-nb toy: has begun; ")


def test_every_command_and_every_method_is_listed(capsys):
    assert cli.main([]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in cli.COMMANDS)
    assert cli.main(["pretrain", "--help"]) == 0
    help = capsys.readouterr().out
    assert len(METHODS) >= 7 and ", ".join(METHODS) in " ".join(help.split())
    assert "defaults are those of infonce-toy-rgb" in help
    for name in cli.COMMANDS:
        assert cli.main([name, "--help"]) == 0
        assert cli.COMMANDS[name].__doc__.split("\n")[0][:40] in " ".join(
            capsys.readouterr().out.split()
        )


@pytest.mark.parametrize(
    "words",
    [
        "infonce-toy-rgb --data x",
        "--data x --quiet infonce-toy-rgb",
        "--epochs 3 --lr=1 --no-resume infonce-toy-rgb --data x",
        "--area .2 1 infonce-toy-rgb --data x",
        "--out infonce-toy-residual infonce-toy-rgb --data x",
        "--save_minutes 2 infonce-toy-rgb --data x",
    ],
)
def test_a_recipe_is_found_among_the_options(words):
    made = cli.parse("pretrain", words.split())
    assert made.recipe_name == made.recipe.name == "infonce-toy-rgb" and made.data == Path("x")


def test_values_have_the_types_of_their_fields():
    made = cli.parse(
        "pretrain",
        "--data x coclr-toy-rgb-cycle1 --area .2 1 --epochs 3 --queue 64 "
        "--optimizer lars --no-cudnn-benchmark --init-from z --sampler y".split(),
    )
    assert made.recipe.augment.area == (0.2, 1.0) and made.recipe.learning.epochs == 3
    assert (made.recipe.method.queue, made.recipe.learning.optimizer) == (64, "lars")
    assert not made.cudnn_benchmark
    assert made.weights() == {"encoder": Path("z"), "sampler": Path("y")}
    assert made.given == {"area", "epochs", "queue", "optimizer"}
    made = cli.parse("predict", "run a.mp4 b.mp4 --top 2 -- --c.mp4".split())
    assert [*map(str, made.videos)] == ["a.mp4", "b.mp4", "--c.mp4"] and made.top == 2
    assert changes(["epochs=5", "views=(1, 2)", "a-b=true", "c=None", "d=x", "e=[1]"]) == dict(
        epochs=5, views=(1, 2), a_b=True, c=None, d="x", e=(1,)
    )


@pytest.mark.parametrize(
    "words, args",
    [
        ("did you mean 'pretrain'?", "pretrian"),
        ("no command 'protocols'; there are: demo", "protocols"),
        ("there are: demo", "xyz"),
        (
            "each field is an option, such as --epochs 5; see",
            "pretrain infonce-toy-rgb --data x --set lr=0.2",
        ),
        ("--paper nobody: no claim is of that paper; there are CoCLR, ", "claims --paper nobody"),
        ("did you mean 'epochs'?", "pretrain infonce-toy-rgb --epoch 3"),
        (
            "--optimizer lion: is not one of adam, adamw, lars, sgd",
            "pretrain infonce-toy-rgb --optimizer lion",
        ),
        (
            "--matmul-precision low: is not one of",
            "pretrain infonce-toy-rgb --matmul-precision low",
        ),
        ("--dtype half: is not one of bfloat16, float32;", "pretrain own-videos --dtype half"),
        ("--minutes 0: must be above 0; see", "pretrain own-videos --data x --minutes 0"),
        ("--minutes two: is not a number; see", "pretrain own-videos --data x --minutes two"),
        ("--area: takes 2 values", "pretrain infonce-toy-rgb --area .2"),
        ("--quiet: takes no value", "pretrain infonce-toy-rgb --quiet=yes"),
        ("is a setting of another method", "pretrain infonce-toy-rgb --topk 3"),
        ("one argument too many", "recipes infonce-toy-rgb infonce-toy-rgb"),
        ("--k ten: is not a whole number", "search --k ten"),
        ("the settings", "pretrain nowhere:recipe --data x"),
    ],
)
def test_what_cannot_be_understood(words, args, capsys):
    assert cli.main(args.split()) == 2
    text = capsys.readouterr().err
    assert text.count("\n") == 1 and (words in text or "nowhere" in text), text


def test_a_command_that_is_suggested_quotes_its_paths():
    assert how_to_predict(Path("runs/mein lauf")).endswith(
        "\nuse it: vssl-nb predict 'runs/mein lauf' VIDEO"
    )


def test_what_somebody_else_has_arranged_stays():
    import signal

    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with cli.heed_signals():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    with cli.heed_signals():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_range_is_checked_when_a_recipe_is_made():
    with pytest.raises(RecipeError, match="momentum=1.5 must be"):
        cli.parse("pretrain", "infonce-toy-rgb --data x --momentum 1.5".split())
