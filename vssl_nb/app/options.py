"""A command of a command line is a dataclass, its fields are the options, and the comments beside
them the help.
"""

import argparse
import ast
import contextlib
import inspect
import sys
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints


class Mistake(ValueError):
    "Something on the command line that cannot be understood."


class Command:
    "What a command line asks for; every class below this one becomes a dataclass."

    def __init_subclass__(cls):
        dataclass(kw_only=True)(cls)


def word(
    metavar: str,  # its name in help
    default: Any = MISSING,  # without a default it must be given
) -> Any:
    "A field of a command that is given as a word, without the name of an option."
    return field(default=default, metadata={"word": metavar})


class Option(NamedTuple):
    "A field of a command, or of a recipe, as one gives it."

    kind: Any  # a type annotation
    default: Any  # MISSING: it must be given
    help: str  # the comment beside it
    word: str = ""  # its name in help where it stands without the name of an option
    alias: str = ""  # another name


# title in help -> name of a field -> its option
OptionGroups = Mapping[str, Mapping[str, Option]]


# -- fields as options


def options_of(
    part: Any,  # a dataclass, or an object of one: its values are the defaults
    texts: bool = True,  # read the comments, which takes time; False: `help` stays empty
) -> dict[str, Option]:
    "The fields of a command, or of one part of a recipe, by their names."
    cls = part if isinstance(part, type) else type(part)
    kinds = get_type_hints(cls)
    comments = field_comments(cls) if texts else {}
    options = {}
    for f in fields(cls):
        default = getattr(part, f.name, f.default)
        is_part = is_dataclass(getattr(part, f.name, kinds[f.name]))
        if not f.init or is_part:
            continue
        spelled = {"help": comments.get(f.name, "")} | dict(f.metadata)
        options[f.name] = Option(kinds[f.name], default, **spelled)
    return options


@cache
def field_comments(cls: type) -> dict[str, str]:  # field -> text
    "The comments behind the fields of a dataclass and its bases, or above them."
    comments: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if is_dataclass(base):
            source = _source_of(base.__module__)
            comments |= comments_in(source, base.__name__)
    return comments


@cache
def _source_of(module: str) -> str:
    return inspect.getsource(sys.modules[module])


@cache
def _classes_in(source: str) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}


def comments_in(
    source: str,  # of a module
    class_name: str,
) -> dict[str, str]:  # field -> text
    "The comments above the fields of a class and behind them, as one text each."
    node = _classes_in(source).get(class_name)
    if node is None:
        return {}  # made by a function
    lines = source.splitlines(keepends=True)[node.lineno - 1 : node.end_lineno]
    above: dict[int, str] = {}  # line -> comment that has a line of its own
    behind: dict[int, str] = {}  # line -> comment behind code
    for token in tokenize.generate_tokens(iter(lines).__next__):
        if token.type != tokenize.COMMENT:
            continue
        number, column = token.start
        alone = not token.line[:column].strip()
        kept = above if alone else behind
        kept[number + node.lineno - 1] = token.string.lstrip("# ").rstrip()

    comments = {}
    for statement in node.body:
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        first = statement.lineno
        while first - 1 in above:
            first -= 1
        last = statement.end_lineno or statement.lineno
        beside = above | behind
        texts = [above[line] for line in range(first, statement.lineno)]
        texts += [beside[line] for line in range(statement.lineno, last + 1) if line in beside]
        comments[statement.target.id] = " ".join(texts)
    return comments


# -- words as values

# in help, in messages
TYPE_NAMES = {
    int: ("N", "a whole number"),
    float: ("X", "a number"),
    str: ("WORD", "a word"),
    Path: ("PATH", "a path"),
    NoneType: ("None", "None"),
}


def dashed(name: str) -> str:
    "A field as an option spells it."
    return name.replace("_", "-")


def alternatives(kind: Any) -> tuple:  # of no union: itself
    "The types of a union, `None` last."
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def tuple_items(kind: Any) -> tuple:  # () of no tuple
    "(float, float) of a tuple of two, (int, ...) of one of any length."
    return get_args(kind) if get_origin(kind) is tuple else ()


def metavar(kind: Any) -> str:  # N, X|None, {adam,sgd}
    "A type in help."
    texts = []
    for k in alternatives(kind):
        if get_origin(k) is Literal:
            texts.append("{" + ",".join(map(str, get_args(k))) + "}")
        else:
            texts.append(TYPE_NAMES[k][0])
    return "|".join(texts)


def value_of(
    text: str,
    kind: Any,  # a type annotation
) -> Any:  # of that type
    "A word of the command line as a value; ArgumentTypeError."
    kinds = alternatives(kind)
    literals = [value for k in kinds if get_origin(k) is Literal for value in get_args(k)]
    choices = {str(value): value for value in literals}
    if NoneType in kinds:
        choices["None"] = None
    if text in choices:
        return choices[text]

    plain = [k for k in kinds if k in TYPE_NAMES and k is not NoneType]
    if not text and Path in plain:
        raise argparse.ArgumentTypeError("'' is no path; . is this folder")
    for k in plain:
        with contextlib.suppress(ValueError):
            return k(text)
    if literals:
        expected = f"one of {', '.join(sorted(map(str, literals)))}"
    else:
        expected = " or ".join(TYPE_NAMES[k][1] for k in plain)
    raise argparse.ArgumentTypeError(f"{text}: is not {expected}")


# -- the parser


def make_parser(
    command: str,  # its name
    kind: Any,  # its class
    groups: OptionGroups,
) -> argparse.ArgumentParser:
    "A parser that takes the options, and leaves the words between them."
    words = [option.word for option in options_of(kind).values() if option.word]
    parser = argparse.ArgumentParser(
        usage=" ".join([f"vssl-nb {command}", *words, "[OPTIONS]"]),
        description=kind.__doc__,
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
        argument_default=argparse.SUPPRESS,
        conflict_handler="resolve",
    )
    for title, options in groups.items():
        group = parser.add_argument_group(title)
        for name, option in options.items():
            if option.word:
                parser.add_argument_group(option.word, option.help)
            else:
                _add_option(group, name, option)
    return parser


def _add_option(
    group: Any,  # of the parser
    name: str,  # of the field
    option: Option,
) -> None:
    "Give a group of a parser one option."
    default = option.default
    if default is MISSING:
        shown = "required"
    elif isinstance(default, tuple):
        shown = f"default: {' '.join(map(str, default))}"
    else:
        shown = f"default: {default}"

    items = tuple_items(option.kind)
    typed: dict[str, Any]
    if option.kind is bool:
        typed = {"action": argparse.BooleanOptionalAction}
    else:
        one = items[0] if items else option.kind
        typed = {"type": partial(value_of, kind=one), "metavar": metavar(one)}
    if items:
        typed["nargs"] = "*" if items[-1] is ... else len(items)

    names = [f"--{dashed(name)}"]
    if option.alias:
        names.append(option.alias)
    text = f"{option.help} ({shown})".replace("%", "%%")
    group.add_argument(*names, dest=name, help=text, **typed)


def split_words(
    command: str,  # its name
    kind: Any,  # its class
    groups: OptionGroups,
    args: Sequence[str],
) -> tuple[dict[str, Any], list[str]]:
    "Field -> value of the options that were given, and the words between them; Mistake."
    plain = []
    for arg in args:
        name, equals, value = arg.partition("=")
        # --save_minutes will do
        plain.append(dashed(name) + equals + value if arg.startswith("--") else arg)
    try:
        given, rest = make_parser(command, kind, groups).parse_known_args(plain)
    except argparse.ArgumentError as e:
        raise Mistake(_sentence(e, groups)) from None
    values = {n: tuple(v) if isinstance(v, list) else v for n, v in vars(given).items()}
    return values, rest


def _sentence(e: argparse.ArgumentError, groups: OptionGroups) -> str:
    "What the parser complains of, in a sentence."
    name = str(e.argument_name).split("/")[0]
    if isinstance(e.__context__, argparse.ArgumentTypeError):  # of `value_of`
        return f"{name} {e.message}"
    kinds = {n: option.kind for options in groups.values() for n, option in options.items()}
    kind = kinds.get(name[2:].replace("-", "_"), bool)
    if tuple_items(kind):
        return f"{name}: takes {len(tuple_items(kind))} values"
    return f"{name}: {'takes no value' if kind is bool else 'has no value behind it'}"
