"Options of commands: help from the comments of fields, and the networks that a recipe names."

from dataclasses import dataclass
from pathlib import Path

import pytest

from vssl_nb.app import cli
from vssl_nb.app.options import comments_in, field_comments, options_of
from vssl_nb.app.parsing import parse
from vssl_nb.config import override
from vssl_nb.methods.recipes import RECIPES, find

SOURCE = '''
class Other:
    name: int = 1  # of another class


@dataclass
class Settings:
    """Settings. # no comment"""

    plain: int = 1
    behind: str = "a # in a string"  # behind the field
    # above the field,
    # in two lines
    above: int = 2
    # above
    both: int = 3  # and behind
    # of nothing: a line follows

    wide: int | None = (
        None  # inside the value
    )
    bare: int  # without a value

    def method(self):
        local: int = 0  # of no field
        return local
'''


def test_comments_above_and_behind_fields_are_their_texts():
    assert comments_in(SOURCE, "Settings") == {
        "plain": "",
        "behind": "behind the field",
        "above": "above the field, in two lines",
        "both": "above and behind",
        "wide": "inside the value",
        "bare": "without a value",
    }
    assert comments_in(SOURCE, "Missing") == {}


@dataclass
class Base:
    first: int = 1  # of the base
    second: int = 2  # of the base, too


@dataclass
class Derived(Base):
    second: int = 3  # of the derived class


def test_a_class_has_the_comments_of_its_bases():
    assert field_comments(Derived) == {"first": "of the base", "second": "of the derived class"}
    assert options_of(Derived(first=5))["first"].default == 5
    assert options_of(Derived, texts=False)["first"].help == ""


def test_every_option_has_a_text():
    for name, kind in cli.COMMANDS.items():
        for field, option in options_of(kind).items():
            assert option.help, f"{name} --{field}"


@pytest.mark.parametrize("name, there", [("coclr-toy-rgb-cycle1", True), ("iic-toy", False)])
def test_help_has_the_networks_of_the_recipe(name, there, capsys):
    assert cli.main(["pretrain", name, "--help"]) == 0
    assert ("--sampler" in capsys.readouterr().out) == there


def test_a_network_of_another_method_is_no_option(capsys):
    args = "pretrain infonce-toy-rgb --data x --sampler runs/mine".split()
    assert cli.main(args) == 2
    assert "--sampler" in capsys.readouterr().err


TEACHER = """
from dataclasses import dataclass, replace
from vssl_nb.methods.recipes import find
from vssl_nb.methods.recipes.infonce import InfoNCESettings

@dataclass(frozen=True)
class Taught(InfoNCESettings):
    "With a network that another run gives."

    def networks(self, view):
        return {"encoder": view, "teacher": "residual"}

base = find("infonce-toy-rgb")
recipe = replace(base, name="taught", method=Taught(**vars(base.method)))
"""


def test_a_strangers_recipe_names_its_networks(tmp_path, monkeypatch, capsys):
    (tmp_path / "strange_recipes.py").write_text(TEACHER)
    monkeypatch.syspath_prepend(str(tmp_path))
    words = [
        "strange_recipes:recipe",
        "--data",
        "x",
        "--teacher",
        "runs/t",
        "--init-from",
        "runs/e",
    ]
    made = parse("pretrain", words)
    assert made.weights() == {"encoder": Path("runs/e"), "teacher": Path("runs/t")}
    assert made.given == set()
    assert parse("pretrain", words[:3]).weights() == {}
    assert cli.main(["pretrain", *words[:1], "--help"]) == 0
    assert "--teacher" in capsys.readouterr().out


def test_the_sampler_is_offered_where_a_recipe_has_one():
    offered = {name for name, recipe in RECIPES.items() if "sampler" in recipe.networks}
    assert "coclr-ucf101-rgb-cycle1" in offered and "infonce-ucf101-rgb" not in offered
    assert override(find("infonce-toy-rgb"), view="residual").networks == {"encoder": "residual"}
