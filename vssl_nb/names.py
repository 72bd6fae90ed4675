"""Names of parts: one of ours, or `package.module:name` of somebody.

A view, a method, a backbone, a miner or a manifest is asked for by name: `resolve` finds ours in a
table and others by importing them, and a name that leads nowhere is refused with the nearest one.
"""

import importlib
import sys
import traceback
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any


class PluginError(ValueError):
    "A name that leads to no part, or to something unusable."


def did_you_mean(
    name: Any,  # a name that does not exist
    known: Iterable,  # names that do exist
    least: float = 0.4,  # how alike they are, 0 to 1
) -> str:
    """A part of a sentence: the nearest of the known names, or all of them, of many the first
    twenty.
    """
    names = [str(k) for k in known]
    near = get_close_matches(str(name), names, 1, least)
    if near:
        return f"did you mean {near[0]!r}?"
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"there are: {', '.join(names[:20])}{more}"


def error_in_words(
    e: BaseException,  # of a user's code
) -> str:  # "KeyError: 'video' (my_methods.py, line 55)"
    "An error, and the last line of the user's code that ran."
    if isinstance(e, SyntaxError):
        return f"{e.msg} ({Path(e.filename or '?').name}, line {e.lineno})"
    text = str(e).strip().splitlines()[:1]
    words = text[0] if text and type(e) is ValueError else ": ".join([type(e).__name__, *text])
    frames = [f for f in traceback.extract_tb(e.__traceback__) if _is_users(f.filename)]
    if not frames:
        return words
    last = frames[-1]
    return f"{words} ({Path(last.filename).name}, line {last.lineno})"


def _is_users(
    filename: str,  # of a frame of a traceback
) -> bool:
    "Is it neither Python's, nor an installed package's, nor ours?"
    python = str(Path(importlib.__file__).parent)
    library = str(Path(__file__).resolve().parent)
    if filename.startswith(("<frozen", python, library)):
        return False
    return not {"site-packages", "dist-packages"} & {*Path(filename).parts}


def load_object(
    name: str,  # 'package.module:name' of something importable, also from the current folder
    kind: str = "a part",  # what it has to be, for messages
) -> Any:
    """The object of that name; raises PluginError.

    This runs its module: name only code that you trust.
    """
    module, _, attributes = name.partition(":")
    if not module or not attributes:
        raise PluginError(f"{name!r} does not name {kind}: write 'package.module:name'")
    if module.endswith(".py") or not all(m.isidentifier() for m in module.split(".")):
        raise PluginError(
            f"{name!r}: {module!r} is not the name of a module; "
            f"for the file folder/part.py that is folder.part, so write folder.part:{attributes}"
        )
    return _attribute(name, _import(name, module, kind), attributes)


def _import(
    name: str,  # as it was asked for
    module: str,  # the part of it before the colon
    kind: str,  # what it has to be, for messages
) -> Any:  # the module
    "Import a module, also from the current folder. PluginError."
    here = str(Path.cwd())
    # a command starts with the folder of its script, not ours
    if here not in sys.path:
        sys.path.append(here)
    importlib.invalidate_caches()  # or a file written this very moment is not found
    try:
        return importlib.import_module(module)
    except SystemExit as e:
        raise PluginError(
            f"{name!r}: {module} ends the program when it is imported ({error_in_words(e)}); "
            "keep what it runs below `if __name__ == '__main__'`"
        ) from e
    except Exception as e:
        if isinstance(e, ModuleNotFoundError) and e.name and f"{module}.".startswith(f"{e.name}."):
            raise PluginError(
                f"{name!r}: there is no module {e.name!r} to take {kind} from; "
                "install it, or start in the folder where it lies"
            ) from e
        raise PluginError(
            f"{name!r}: importing {module} fails: {error_in_words(e)}; "
            "mend it there, or install what it needs"
        ) from e


def _attribute(
    name: str,  # as it was asked for
    module: Any,
    attributes: str,  # the part of the name behind the colon
) -> Any:
    "What a module has under a name with dots. PluginError."
    part = module
    for attribute in attributes.split("."):
        if not hasattr(part, attribute):
            names = [n for n in dir(part) if not n.startswith("_")]
            file = getattr(module, "__file__", None) or "built into Python"
            raise PluginError(
                f"{name!r}: {name.partition(':')[0]} ({file}) has no {attribute!r}; "
                f"{did_you_mean(attribute, names)}"
            )
        part = getattr(part, attribute)
    return part


# how the names of encoders of other libraries begin, see `runs.hub`
HUBS = ("hf:", "timm:", "torchvision:", "published:")


def of_hub(
    name: Any,  # hf:FOLDER, hf:OWNER/NAME, timm:NAME, torchvision:NAME, published:NAME; or another
) -> bool:
    "Is this the name of an encoder of another library?"
    return str(name).startswith(HUBS)


def look_up(
    name: str,  # a key of `known`, or 'package.module:name'
    known: Mapping[str, Any],  # the parts of this library by their short names
    kind: str,  # what it has to be, for messages: 'a view'
) -> Any:  # the entry of `known`, or what was imported
    "A part by its name; raises PluginError with the nearest name."
    if name in known:
        return known[name]
    if isinstance(name, str) and ":" in name:
        return load_object(name, kind)
    raise PluginError(
        f"there is no {kind.split(' ', 1)[-1]} {name!r}; {did_you_mean(name, known)} "
        "(or one's own, as 'package.module:name')"
    )


def full_name(
    part: Any,  # a class or a function at the top of a module
) -> str:  # 'package.module:name'
    "The name by which `load_object` finds a part again; raises PluginError where it would not."
    module = getattr(part, "__module__", "__main__")
    name = getattr(part, "__qualname__", "")
    if module == "__main__" or not name or "<" in name:
        raise PluginError(
            f"{name or part!r} was made in a notebook or inside a function, where no other process "
            "finds it; move it to the top of a .py file"
        )
    return f"{module}:{name}"
