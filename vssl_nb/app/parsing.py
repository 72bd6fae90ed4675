"Words of a command line in, a command with its options filled in out."

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from ..config import Recipe
from ..fields import interval, out_of_range
from ..methods.recipes import METHODS, RECIPES, find, override
from ..names import did_you_mean, look_up
from ..processors import usable_processors
from ..runs.finetuning_presets import PRESETS
from .commands import COMMANDS
from .launch import is_first
from .options import (
    Mistake,
    Option,
    OptionGroups,
    dashed,
    make_parser,
    metavar,
    options_of,
    split_words,
    tuple_items,
)


def parse(
    command: str,  # a key of COMMANDS
    args: Sequence[str],  # what follows the command
) -> Any:  # an object of the command
    "The command with its options filled in; Mistake, or RecipeError for a field of a recipe."
    # what stands behind -- is no option
    end = args.index("--") if "--" in args else len(args)
    try:
        recipe = named_recipe(args[:end]) if command == "pretrain" else None
        groups = option_groups(command, recipe, texts=False)
        values, words = split_words(command, COMMANDS[command], groups, args[:end])
        for w in words:
            if w.startswith("--"):
                raise Mistake(unknown_option(command, w))
        _check_values(command, values)
        values |= _word_fields(command, [*words, *args[end + 1 :]])
        _check_needed(command, values)
    except Mistake as e:
        see = " See" if str(e).endswith("?") else "; see"
        raise Mistake(f"{e}{see} vssl-nb {command} --help") from None

    options = groups["options"]
    made = COMMANDS[command](**{n: v for n, v in values.items() if n in options})
    if getattr(made, "workers", None):
        made.workers = _at_most_processors(made.workers, "workers" in values)
    if recipe:
        networks = groups["networks"]
        made.networks = {n: values[n] for n in networks if values.get(n)}
        made.given = frozenset(values) - options.keys() - networks.keys()
        made.recipe = override(recipe, **{n: values[n] for n in made.given})
    return made


# -- which options there are


def option_groups(
    command: str,
    recipe: Recipe | None = None,  # of `pretrain`
    texts: bool = True,  # as of `options_of`
) -> dict[str, Mapping[str, Option]]:  # title in help -> the options below it
    "The options of a command; of `pretrain`, also those that its recipe names."
    groups: dict[str, Mapping[str, Option]] = {"options": options_of(COMMANDS[command], texts)}
    if recipe:
        groups["networks"] = network_options(recipe)
        groups["recipe"] = options_of(recipe, texts)
        for name, part in vars(recipe).items():
            if is_dataclass(part):
                groups[name] = options_of(part, texts)
    return groups


def network_options(recipe: Recipe) -> dict[str, Option]:
    "An option for each network besides the encoder that a recipe names, such as CoCLR's sampler."
    options = {}
    for name, view in recipe.networks.items():
        if name != "encoder":
            text = f"likewise, of the view {view}, for the {name}: a run folder, or a released file"
            options[name] = Option(Path | None, None, text)
    return options


def all_option_groups(command: str) -> OptionGroups:
    "Everything that may be an option of a command, without texts; of `pretrain`, of any recipe."
    if command != "pretrain":
        return option_groups(command, texts=False)
    groups: dict[str, Mapping[str, Option]] = {}
    for name, method in METHODS.items():
        groups[name] = options_of(method, texts=False)
    for name, recipe in RECIPES.items():
        groups[f"networks of {name}"] = network_options(recipe)
    return groups | option_groups(command, find("infonce-toy-rgb"), texts=False)


def named_recipe(
    args: Sequence[str],  # of `pretrain`
) -> Recipe:  # its numbers are the defaults of the options
    """The recipe that the arguments name, wherever it stands among them, with the method that they
    name.
    """
    pretrain = COMMANDS["pretrain"]
    values, rest = split_words("pretrain", pretrain, all_option_groups("pretrain"), args)
    words = [w for w in rest if not w.startswith("-")]
    likely = [w for w in words if w in RECIPES or ":" in w]
    recipe = find([*likely, *words, "infonce-toy-rgb"][0])
    if "method" in values:
        recipe = override(recipe, method=values["method"])

    hints = get_type_hints(pretrain)
    for name in (*vars(recipe.method), *network_options(recipe)):
        if name in hints:
            raise Mistake(
                f"the settings of {recipe.method.name} have a field {name!r}, which is an option "
                "of pretrain; call it otherwise"
            )
    return recipe


# -- checks

# options whose values are presets of fine-tuning
TRAINING_OPTIONS = ("preset", "finetune")


def _check_values(
    command: str,
    values: Mapping[str, Any],  # of the options that were given
) -> None:
    "Refuse numbers out of range, and names that are in no table. Mistake, PluginError."
    hints = get_type_hints(COMMANDS[command], include_extras=True)
    for name, given in values.items():
        limits = interval(hints.get(name))
        for value in given if isinstance(given, tuple) else (given,):
            wrong = out_of_range(value, limits) if limits else ""
            if wrong:
                raise Mistake(f"--{dashed(name)} {str(value).removesuffix('.0')}: {wrong}")

    device = values.get("device", "auto")
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise Mistake(f"--device {device}: is not one of auto, cpu, cuda, cuda:1")

    for option in TRAINING_OPTIONS:
        name = values.get(option) or ""
        outside = ":" in name  # imported later
        if name and not outside and command != "probe":
            look_up(name.removesuffix("_held_out"), PRESETS, "a training")

    protocol = values.get("protocol") or ""
    if protocol and ":" not in protocol and command != "probe":
        from ..measure.protocols import PROTOCOLS

        look_up(protocol, PROTOCOLS, "a protocol")


def _at_most_processors(
    workers: int,  # of a command
    asked: bool,  # for so many; else it is the default
) -> int:
    "No more workers than processors: the others would wait for these. Who asked for them is told."
    processors = usable_processors()
    if workers <= processors:
        return workers
    if asked and is_first():
        are = "is 1 processor" if processors == 1 else f"are {processors} processors"
        print(
            f"--workers {workers}: there {are} here, so it is --workers {processors}; the results "
            "are the same",
            file=sys.stderr,
        )
    return processors


def _word_fields(
    command: str,
    words: Sequence[str],  # those that belong to no option
) -> dict[str, Any]:  # field -> value
    "The fields that are given as words. Mistake where there are more words."
    if "" in words:
        raise Mistake("'' is an empty argument; . is this folder")
    left = list(words)
    values: dict[str, Any] = {}
    for name, option in options_of(COMMANDS[command], texts=False).items():
        if not option.word or not left:
            continue
        items = tuple_items(option.kind)
        if items:
            values[name] = tuple(items[0](w) for w in left)
            left = []
        else:
            values[name] = option.kind(left.pop(0))
    if left:
        raise Mistake(f"{left[0]!r} is one argument too many")
    return values


def _check_needed(
    command: str,
    values: Mapping[str, Any],  # of all options and words that were given
) -> None:
    "Refuse a command that lacks something. Mistake."
    missing = []
    for name, option in options_of(COMMANDS[command]).items():
        if option.default is MISSING and name not in values:
            spelled = option.word or f"--{dashed(name)} {metavar(option.kind)}"
            missing.append(f"{spelled} ({option.help})")
    if missing:
        raise Mistake(f"vssl-nb {command} also needs {' and '.join(missing)}")


def unknown_option(
    command: str,
    option: str,  # '--epoch' or '--epoch=3'
) -> str:
    "A sentence about an option that does not exist."
    name = option[2:].partition("=")[0]
    if (command, name) == ("pretrain", "set"):  # which other commands have
        return (
            "--set is not an option of pretrain, where each field is an option, such as --epochs 5"
        )
    groups = all_option_groups(command)
    known = {dashed(n): o for options in groups.values() for n, o in options.items()}
    if name not in known:
        return f"{option} is not an option of {command}; {did_you_mean(name, known)}"
    if not known[name].word:
        return f"--{name} is a setting of another method"
    return f"--{name}: is given without its name, as in vssl-nb {command} {known[name].word}"


# -- help


def help_text(
    command: str,
    args: Sequence[str],  # of the command, without --help
) -> str:
    "The options of a command; of `pretrain`, with the numbers of the recipe that is named."
    recipe = named_recipe(args) if command == "pretrain" else None
    parser = make_parser(command, COMMANDS[command], option_groups(command, recipe))
    text = parser.format_help().rstrip()
    if not recipe:
        return text
    head = f"The defaults are those of {recipe.name}; name another recipe to see those of it."
    return f"{head}\n\n{text}"
