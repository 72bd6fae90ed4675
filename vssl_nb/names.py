"A name of ours, or `package.module:name` for something of yours."

import importlib
import sys
import traceback
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

class PluginError(ValueError):
    "A name that leads nowhere, or to something unusable; the message says what was looked for."

def did_you_mean(
    name:str, # what was asked for
    known, # names that exist
)->str: # a sentence part
    "Name the nearest of the known names."
    near = get_close_matches(str(name), [str(k) for k in known], 1, 0.4)
    return f'did you mean {near[0]!r}?' if near else f'there are: {", ".join(map(str, known))}'

_ours = str(Path(__file__).resolve().parent) if '__file__' in globals() else ''

def error_in_words(
    e:BaseException, # raised by somebody's code
)->str: # 'KeyError: 'video' (my_methods.py, line 55)'
    "What went wrong in somebody's code, and the last line of it that ran."
    if isinstance(e, SyntaxError): return f'{e.msg} ({Path(e.filename or "?").name}, line {e.lineno})'
    text = str(e).strip().splitlines()[:1]
    words = text[0] if text and type(e) is ValueError else ': '.join([type(e).__name__, *text])
    inside = ('<frozen', str(Path(importlib.__file__).parent), *([_ours] if _ours else []))
    theirs = [f for f in traceback.extract_tb(e.__traceback__)
        if not f.filename.startswith(inside)
        and not {'site-packages', 'dist-packages'} & {*Path(f.filename).parts}]
    return words + (f' ({Path(theirs[-1].filename).name}, line {theirs[-1].lineno})' if theirs else '')

def _not_imported(name:str, module:str, what:str, e:Exception)->PluginError: # what to say
    if isinstance(e, ModuleNotFoundError) and e.name and f'{module}.'.startswith(f'{e.name}.'):
        return PluginError(f'{name!r}: there is no module {e.name!r} to take {what} from; '
            'install it, or start in the folder where it lies')
    # their module was found, and fails
    return PluginError(f'{name!r}: importing {module} fails: {error_in_words(e)}; '
        'mend it there, or install what it needs')

def _shadowed(module:str, found:Any)->str: # a further sentence, where another module has a file's name
    mine = Path(*module.split('.')).with_suffix('.py')
    taken = getattr(found, '__file__', None) or 'built into Python'
    if not mine.is_file() or Path(taken).resolve()==mine.resolve(): return ''
    return f'. {module} is {taken} and not {mine} of this folder: rename that file'

def load_object(
    name:str, # 'package.module:name' of something importable, also from the folder one stands in
    what:str='a part', # what it is to be, for messages
)->Any: # what the module calls so
    "Import what a name leads to; raises PluginError. This runs the module: name only code that you trust."
    module, _, attribute = name.partition(':')
    if not module or not attribute:
        raise PluginError(f"{name!r} does not name {what}: write 'package.module:name'")
    if module.endswith('.py') or not all(m.isidentifier() for m in module.split('.')):
        raise PluginError(f'{name!r}: {module!r} is not the name of a module; '
            f'for the file folder/part.py that is folder.part, so write folder.part:{attribute}')
    here = str(Path.cwd())
    if here not in sys.path: sys.path.append(here) # a command starts in the folder of its script, not in ours
    importlib.invalidate_caches() # or a file written this very moment is not found
    try: found: Any = importlib.import_module(module)
    except Exception as e: raise _not_imported(name, module, what, e) from e
    except SystemExit as e:
        raise PluginError(f'{name!r}: {module} ends the program when it is imported ({error_in_words(e)}); '
            "keep what it runs below `if __name__ == '__main__'`") from e
    for part in attribute.split('.'):
        if not hasattr(found, part):
            raise PluginError(f'{name!r}: {module} has no {part!r}; {did_you_mean(part, public_names(found))}'
                + _shadowed(module, found))
        found = getattr(found, part)
    return found

def public_names(module)->list[str]: # in the order of the alphabet
    "What an importer may take from a module."
    return [n for n in dir(module) if not n.startswith('_')]

def resolve(
    name:str, # a key of `known`, or 'package.module:name'
    known:Mapping[str,Any], # what this library has under a short name
    what:str, # what it is to be, for messages: 'a view'
)->Any: # the entry of `known`, or what was imported
    "A part by its name, ours or somebody's own; raises PluginError with the nearest name."
    if name in known: return known[name]
    if isinstance(name, str) and ':' in name: return load_object(name, what)
    raise PluginError(f"there is no {what.split(' ', 1)[-1]} {name!r}; {did_you_mean(name, known)} "
        "(or one's own, as 'package.module:name')")

def full_name(
    part:Any, # a class or a function at the top of a module
)->str: # 'package.module:name'
    "Under which name `load_object` finds something again; raises PluginError where it would not."
    module, name = getattr(part, '__module__', '__main__'), getattr(part, '__qualname__', '')
    if module=='__main__' or not name or '<' in name:
        raise PluginError(f'{name or part!r} was made in a notebook or inside a function, where no other '
            'process finds it; move it to the top of a .py file')
    return f'{module}:{name}'
