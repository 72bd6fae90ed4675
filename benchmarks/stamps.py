"""What says of a result with which code it was made, without PyTorch: the house-keeping reads it.

A digest of a module is one of what it computes: comments, layout, docstrings and annotations of
functions are left out, so that only a change of the code makes a result old."""

import ast
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = "vssl_nb"
SHORT = 12  # hexadecimal digits of a module's digest
# modules that change no number: they print, draw, or describe
OF_NO_NUMBER = ("_modidx", "app", "extras", "progress", "show", "terminal")


# ---- commits


def git(
    *words: str,
    checkout: Path = ROOT,
) -> str:  # '' where there is no repository
    "What git prints."
    done = subprocess.run(
        ["git", "-C", str(checkout), *words], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def last_commit(
    path: str | Path,  # of a file or folder
    checkout: Path = ROOT,
) -> str:  # such as 'b5f70f5', 'b5f70f5, dirty'; '' where there is no repository
    "The last commit that has changed a file or folder; dirty: it differs from that commit."
    commit = git("log", "-1", "--format=%h", "--", str(path), checkout=checkout)
    changed = git("status", "--porcelain", "--", str(path), checkout=checkout)
    return f"{commit}, dirty" if changed else commit


def is_ancestor(
    older: str,  # a commit
    newer: str,  # a commit
    checkout: Path = ROOT,
) -> bool:
    "Does the newer commit come after the older one, or is it the same?"
    words = ["git", "-C", str(checkout), "merge-base", "--is-ancestor", older, newer]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


# ---- code


def _bare(node: ast.AST) -> None:
    "Take away what computes nothing: docstrings, and annotations of functions."
    if isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        node.returns = None
    if isinstance(node, ast.arg):
        node.annotation = None


def code_digest(
    source: str,  # of a Python module
) -> str:  # SHORT hexadecimal digits
    "A digest of what a module computes."
    tree = ast.parse(source)
    for node in ast.walk(tree):
        _bare(node)
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:SHORT]


@lru_cache(maxsize=None)
def _digest_of(file: str, changed: int) -> str:
    return code_digest(Path(file).read_text(encoding="utf-8"))


def file_digest(file: Path) -> str:  # '' where there is none any more
    "The digest of a module's file, as it is now."
    if not file.exists():
        return ""
    return _digest_of(str(file), file.stat().st_mtime_ns)


def _counts(
    module: str,  # such as 'vssl_nb.data.toy'
) -> bool:
    room = module.partition(".")[2].split(".")[0]
    return room not in OF_NO_NUMBER


def imported_modules() -> dict[str, str]:  # module -> digest of its code
    "The modules of the library that this process has imported, as they are on the disk now."
    found = {}
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        is_ours = name.split(".")[0] == LIBRARY and file and file.endswith(".py")
        if is_ours and _counts(name):
            found[name] = file_digest(Path(file))
    return found


def module_file(
    module: str,  # such as 'vssl_nb.data.toy'
    root: Path = ROOT,
) -> Path:
    "Where a module of the library lies."
    path = root.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def changed_modules(
    modules: Mapping[str, str],  # module -> digest when a result was made
    root: Path = ROOT,
) -> list[str]:
    "The modules whose code is another one now, or gone."
    return [name for name, was in modules.items() if file_digest(module_file(name, root)) != was]


# ---- results whose code has changed


def stamps_of(
    results: Any,  # of a file
) -> list[dict[str, Any]]:  # those that say which modules a call used
    "The stamps of a file of results: one a call."
    if not isinstance(results, dict):
        return []
    stamps = [results, *results.get("continued", []), *results.get("stamps", [])]
    return [stamp for stamp in stamps if isinstance(stamp, dict) and "modules" in stamp]


def citing(
    name: str,  # of a file of results
    pages: Iterable[Path],
) -> list[str]:  # names of pages
    "The pages that name a file of results."
    return [page.name for page in pages if name in page.read_text(encoding="utf-8")]


def stale(
    folder: Path = ROOT / "results",
    pages: Iterable[Path] = (),  # that may cite a result, the README among them
    root: Path = ROOT,  # of the library
) -> Iterator[tuple[str, list[str], list[str]]]:  # file, modules that have changed, pages
    "Results that a page cites and whose code has changed since."
    pages = [*pages]
    for file in sorted(folder.glob("*.json")):
        stamps = stamps_of(json.loads(file.read_text(encoding="utf-8")))
        changed = sorted({name for s in stamps for name in changed_modules(s["modules"], root)})
        where = citing(file.name, pages) if changed else []
        if where:
            yield file.name, changed, where


def without_stamp(
    folder: Path = ROOT / "results",
) -> list[str]:  # names of files
    "Results of before stamps: nothing says which code made them."
    files = sorted(folder.glob("*.json"))
    return [f.name for f in files if not stamps_of(json.loads(f.read_text(encoding="utf-8")))]
