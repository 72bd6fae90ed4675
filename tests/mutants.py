"""Break every exported line of some notebooks, one mutation at a time: a test must fail each time.

    python tests/mutants.py                    # losses, memory, loop, run folder: `make mutants`
    python tests/mutants.py lessons/03_losses  # any pages
    python tests/mutants.py library/loop --pytest tests/test_optimizers.py  # what the page misses

A mutant is a copy of the notebook with one change in one exported statement: a statement deleted, a
condition negated, an operator swapped, a constant raised by one, an argument dropped, a method call
skipped. Docstrings, type hints, and the text of errors and messages are left alone. The copy's
cells run in a forked child, in `nbs/`, until one fails: then the mutant is killed. Exit code 1 if
one survives that is not listed in `EQUIVALENT` with a reason, or if an entry there is out of date.
"""

import os
import sys

# one thread each: children are forked and share the cores
if __name__ == "__main__" and os.environ.get("OMP_NUM_THREADS") != "1":
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"OMP_NUM_THREADS": "1"})

import argparse
import ast
import copy
import json
import linecache
import re
import shutil
import signal
import subprocess
import tempfile
import time
import traceback
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("lessons/03_losses", "library/memory", "library/loop", "library/run_folder")
# directives of cells that a notebook test does not run
SKIP = ("eval:", "slow", "cuda", "data")

# (room, before, after as the report says them, why no test can tell the difference)
EQUIVALENT: list[tuple[str, str, str, str]] = [
    (
        "library/memory",
        "@torch.no_grad()",
        "(deleted)",
        "of `encode_shuffled` and `momentum_keys`: what comes back has no gradient anyhow; saves "
        "memory",
    ),
    (
        "library/loop",
        "drawn, size = (-1, self.batch // world_size())",
        "drawn, size = (-2, self.batch // world_size())",
        "any number that is no epoch",
    ),
    (
        "library/loop",
        "item = getattr(data, 'item_bytes', lambda: 0)() if workers else 0",
        "item = getattr(data, 'item_bytes', lambda: 0)() if workers else 1",
        "without workers no memory is shared, whatever an item takes",
    ),
    (
        "library/loop",
        "with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):",
        "with torch.autocast(device.type, dtype):",
        "autocast to float32 switches itself off, with a warning",
    ),
    (
        "library/loop",
        "with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):",
        "with torch.autocast(device.type, enabled=dtype != torch.float32):",
        "bfloat16 is the CPU default; on a GPU it is not",
    ),
    (
        "library/loop",
        "return {k: v.to(device, non_blocking=True) if isinstance(v, Tensor) else v for k, v in "
        "bat...",
        "return {k: v.to(device) if isinstance(v, Tensor) else v for k, v in batch.items()}",
        "a matter of speed on a GPU",
    ),
    (
        "library/loop",
        "return {k: v.to(device, non_blocking=True) if isinstance(v, Tensor) else v for k, v in "
        "bat...",
        "return {k: v.to(device, non_blocking=False) if isinstance(v, Tensor) else v for k, v in "
        "ba...",
        "a matter of speed on a GPU",
    ),
    (
        "library/run_folder",
        "return json.loads(path.read_text(encoding='utf-8'))",
        "return json.loads(path.read_text())",
        "UTF-8 is what almost every machine reads without being told",
    ),
    (
        "library/run_folder",
        "return json.loads(path.read_text(encoding='utf-8'))",
        "return json.loads(path.read_text(encoding='utf-8_'))",
        "another name of the same encoding",
    ),
    (
        "library/run_folder",
        "with self.path.open(newline='') as f:",
        "with self.path.open() as f:",
        "the csv module asks for it; it changes nothing where lines end in \\n",
    ),
    (
        "library/run_folder",
        "with self.path.open('a', newline='') as f:",
        "with self.path.open('a') as f:",
        "the csv module asks for it; it changes nothing where lines end in \\n",
    ),
]

SWAP = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


def negate(test):
    negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    return test.operand if negated else ast.UnaryOp(ast.Not(), test)


def without(node, field, i):
    "The node with the i-th entry of a list field left out."
    new = copy.copy(node)
    setattr(new, field, [v for j, v in enumerate(getattr(node, field)) if j != i])
    return new


def changed(node, **fields):
    new = copy.copy(node)
    for k, v in fields.items():
        setattr(new, k, v)
    return new


def of_constant(n):
    "Replacements of a number, a text or a yes."
    if isinstance(n.value, bool):
        yield ast.Constant(not n.value)
    elif isinstance(n.value, (int, float)):
        yield ast.Constant(n.value + 1)
    elif isinstance(n.value, str):
        yield ast.Constant(n.value + "_")


def is_value(owner, modules):
    "May this, whose method is called, stand for the result? No module, no text, not super()."
    if isinstance(owner, ast.Call):
        return not (isinstance(owner.func, ast.Name) and owner.func.id == "super")
    if isinstance(owner, ast.Name):
        return owner.id not in modules
    return owner is not None and not isinstance(owner, ast.Constant)


def of_call(n, modules):
    "A call with an argument less, and what the method would have been called of."
    for i, k in enumerate(n.keywords):
        if k.arg:
            yield without(n, "keywords", i)
    if len(n.args) > 1:
        yield without(n, "args", len(n.args) - 1)
    owner = n.func.value if isinstance(n.func, ast.Attribute) else None
    if is_value(owner, modules):
        yield owner


def of_expression(n, modules):
    "Replacements of one expression."
    if isinstance(n, ast.Compare):
        for i, op in enumerate(n.ops):
            yield changed(n, ops=[*n.ops[:i], SWAP[type(op)](), *n.ops[i + 1 :]])
    elif isinstance(n, (ast.BinOp, ast.BoolOp)) and type(n.op) in SWAP:
        yield changed(n, op=SWAP[type(n.op)]())
    elif isinstance(n, ast.UnaryOp):
        yield n.operand
    elif isinstance(n, ast.IfExp):
        yield changed(n, test=negate(n.test))
    elif isinstance(n, ast.Constant):
        yield from of_constant(n)
    elif isinstance(n, ast.Call):
        yield from of_call(n, modules)
    elif isinstance(n, ast.comprehension):
        for i in range(len(n.ifs)):
            yield without(n, "ifs", i)


DELETED = (
    ast.Expr,
    ast.Raise,
    ast.Assign,
    ast.AugAssign,
    ast.Delete,
    ast.Assert,
    ast.Continue,
    ast.Break,
    ast.Nonlocal,
)


def of_statement(n):
    "Replacements of one statement."
    if isinstance(n, DELETED):
        yield ast.Pass()
    elif isinstance(n, ast.AnnAssign) and n.value is not None:
        yield ast.Pass()
    elif isinstance(n, ast.Return) and n.value is not None:
        yield ast.Return(None)
    elif isinstance(n, (ast.If, ast.While)):
        yield changed(n, test=negate(n.test))
    elif isinstance(n, ast.For):
        yield changed(n, iter=ast.Tuple([], ast.Load()))
    elif isinstance(n, ast.With) and all(i.optional_vars is None for i in n.items):
        yield n.body
    elif isinstance(n, ast.Try):
        for i, h in enumerate(n.handlers):
            raises = changed(h, body=[ast.Raise(None, None)])
            yield changed(n, handlers=[raises if i == j else g for j, g in enumerate(n.handlers)])
        if n.finalbody:
            yield changed(n, finalbody=[]) if n.handlers else n.body
    elif isinstance(n, (ast.FunctionDef, ast.ClassDef)):
        for i in range(len(n.decorator_list)):
            yield without(n, "decorator_list", i)


SAYS = ("print", "_log.warning", "_log.info", "warnings.warn")


def left_alone(tree):
    """Nodes that are not code to break: docstrings, type hints, text of errors and messages,
    formatted text.
    """
    out = set()
    hide = lambda node: out.update(id(x) for x in ast.walk(node)) if node is not None else None
    for n in ast.walk(tree):
        if isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.Module)) and n.body:
            first = n.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                hide(first)
        if isinstance(n, ast.FunctionDef):
            hide(n.returns)
        if isinstance(n, ast.ClassDef):
            [hide(b) for b in n.bases]
        if isinstance(n, (ast.arg, ast.AnnAssign)):
            hide(n.annotation)
        if isinstance(n, ast.Raise):
            hide(n.exc)
            hide(n.cause)
        if isinstance(n, ast.JoinedStr):
            hide(n)
        if isinstance(n, ast.Call) and ast.unparse(n.func) in SAYS:
            for a in (*n.args, *n.keywords):
                hide(a)
        if isinstance(n, ast.keyword) and n.arg == "help":
            hide(n)
    return out


class Put(ast.NodeTransformer):
    "Replace the marked node."

    def __init__(self, new):
        self.new = new

    def visit(self, node):
        return self.new if hasattr(node, "here") else self.generic_visit(node)


def put(tree, old, new):
    "A copy of the tree with one node replaced (by several, if `new` is a list)."
    new = copy.deepcopy(new)
    old.here = True
    whole = copy.deepcopy(tree)
    del old.here
    return ast.fix_missing_locations(Put(new).visit(whole))


@dataclass
class Mutant:
    room: str
    cell: int  # number of the cell in the notebook
    line: int  # in the cell
    what: str  # `before -> after`
    source: str  # of the mutated cell


def first_difference(before: str, after: str) -> str:
    a, b = before.splitlines(), after.splitlines()
    i = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    old, new = (x[i].strip() if i < len(x) else "(nothing)" for x in (a, b))
    if len(b) < len(a) and new in [x.strip() for x in a[i + 1 :]]:
        new = "(deleted)"
    same = next((i for i, (x, y) in enumerate(zip(old, new)) if x != y), min(len(old), len(new)))
    return f"{around(old, same)}  ->  {around(new, same)}"


def around(line: str, place: int, width: int = 90) -> str:
    "The line, or the part of a long one around the change."
    if len(line) <= width:
        return line
    start = max(0, min(place - width // 2, len(line) - width))
    before = "..." if start else ""
    after = "..." if start + width < len(line) else ""
    return before + line[start : start + width] + after


def mutants_of(room: str, number: int, source: str, modules: set[str]):
    "Every mutant of one exported cell."
    tree = ast.parse(source)
    alone, before = left_alone(tree), ast.unparse(tree)
    owner = {}
    for s in ast.walk(tree):
        if isinstance(s, ast.stmt):
            # the innermost comes last, since walk goes outside in
            for x in ast.walk(s):
                owner[id(x)] = s
    seen = {before}
    for n in ast.walk(tree):
        if id(n) in alone:
            continue
        for new in list(of_statement(n) if isinstance(n, ast.stmt) else of_expression(n, modules)):
            after = ast.unparse(put(tree, n, new))
            if after in seen:
                continue
            seen.add(after)
            yield Mutant(
                room,
                number,
                getattr(n, "lineno", getattr(owner.get(id(n)), "lineno", 0)),
                first_difference(before, after),
                after,
            )


@cache
def text_of(
    room: str,
) -> str:  # once: the file may be edited meanwhile
    return (ROOT / "nbs" / f"{room}.ipynb").read_text()


def read(room: str) -> dict:
    return json.loads(text_of(room))


def code(cell) -> str:
    return "".join(cell["source"])


def directives(cell) -> list[str]:
    return [line[2:].strip() for line in code(cell).splitlines() if line.startswith("#|")]


def runs(cell) -> bool:
    return cell["cell_type"] == "code" and not any(d.startswith(SKIP) for d in directives(cell))


def is_exported(cell) -> bool:
    if cell["cell_type"] != "code":
        return False
    kinds = {d.split()[0] for d in directives(cell) if d}
    return bool(kinds & {"export", "exports", "exporti"})


def modules_of(source: str) -> set[str]:
    "The modules that some code imports, by the names that it gives them."
    names = set()
    for n in ast.walk(ast.parse(source)):
        if isinstance(n, ast.Import):
            names |= {(a.asname or a.name).split(".")[0] for a in n.names}
        if isinstance(n, ast.ImportFrom):
            given = {a.asname or a.name for a in n.names}
            names |= {name for name in given if name[0].islower()}
    return names


def collect(room: str) -> list[Mutant]:
    "All mutants of a notebook."
    cells = read(room)["cells"]
    sources = [plain(code(c)) for c in cells if c["cell_type"] == "code"]
    modules = set().union(*map(modules_of, sources))
    mutants: list[Mutant] = []
    for i, c in enumerate(cells):
        if is_exported(c):
            mutants += mutants_of(room, i, code(c), modules)
    return mutants


def plain(source: str) -> str:
    "Code without IPython's own: %magic and !commands."
    magic = ("%", "!")
    lines = source.splitlines()
    return "\n".join("pass" if line.lstrip().startswith(magic) else line for line in lines)


def run_cells(path: Path) -> None:
    "Run a notebook's cells as a notebook test does; raises what a cell raises."
    import types

    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    for i, cell in enumerate(json.loads(path.read_text())["cells"]):
        if not runs(cell):
            continue
        source, name = plain(code(cell)), f"<cell {i} of {path.name}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        exec(compile(source, name, "exec"), module.__dict__)


def copy_with(mutant: Mutant | None, room: str, folder: Path) -> Path:
    "A copy of the notebook, mutated or not."
    nb = read(room)
    if mutant:
        cell = nb["cells"][mutant.cell]
        kept = [line for line in code(cell).splitlines() if line.startswith("#|")]
        cell["source"] = "\n".join([*kept, mutant.source])
    path = folder / f"{room}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(nb))
    return path


def child(
    path: Path,
    log: Path,
) -> int:  # never returns in the child
    "Fork; the child runs the notebook and exits with 0 if every cell passed."
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setsid()  # so that its workers can be stopped with it
        with log.open("w") as f:
            os.dup2(f.fileno(), 1)
            os.dup2(f.fileno(), 2)
        os.chdir(ROOT / "nbs")
        run_cells(path)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def run_all(jobs: list, folder: Path, width: int, limit: float):
    """Run (mutant, room) pairs, `width` at a time; yields (mutant, 'killed' | 'survived' |
    'timeout', log).
    """
    waiting, alive = list(enumerate(jobs)), {}
    while waiting or alive:
        while waiting and len(alive) < width:
            i, (mutant, room) = waiting.pop(0)
            here = folder / str(i)
            here.mkdir()
            pid = child(copy_with(mutant, room, here), here / "log")
            alive[pid] = (mutant, here, time.monotonic())
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            time.sleep(0.01)
            for late in [p for p, (_, _, t) in alive.items() if time.monotonic() - t > limit]:
                mutant, here, _ = alive.pop(late)
                end_group(late)
                os.waitpid(late, 0)
                yield mutant, "timeout", here
        elif pid in alive:
            mutant, here, _ = alive.pop(pid)
            end_group(pid)  # workers that a broken cell left behind
            yield mutant, "survived" if status == 0 else "killed", here


def end_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def module_of(room: str) -> Path:
    cells = [c for c in read(room)["cells"] if c["cell_type"] == "code"]
    name = next(
        d.split()[1]
        for c in cells
        for d in directives(c)
        # a page that adds to a module names it
        if d.startswith("default_exp") or re.match(r"export \w", d)
    )
    return Path("vssl_nb", *name.split(".")).with_suffix(".py")


def pytest_fails(mutant: Mutant | None, tests: list[str], folder: Path, limit: float) -> str:
    """What pytest says if a test file fails on a copy of the library, with a mutant in it or
    without.
    """
    shutil.copytree(
        ROOT / "vssl_nb",
        folder / "vssl_nb",
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    if mutant:
        path = folder / module_of(mutant.room)
        cell = read(mutant.room)["cells"][mutant.cell]
        parts = path.read_text().split("# %% ")
        where = [i for i, p in enumerate(parts) if p.split("\n", 1)[0].endswith(f"#{cell['id']}")]
        if len(where) != 1:
            raise SystemExit(
                f"{path.name} is not in step with nbs/{mutant.room}.ipynb: run nbdev_export first"
            )
        parts[where[0]] = parts[where[0]].split("\n", 1)[0] + "\n" + mutant.source + "\n\n"
        path.write_text("# %% ".join(parts))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*command, *(str((ROOT / t).resolve()) for t in tests)],
            cwd=folder,
            text=True,
            env=os.environ | {"PYTHONPATH": str(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return "timeout"
    if done.returncode not in (0, 1):
        # 1: tests failed; anything else is a mistake of the call
        raise SystemExit(done.stdout)
    return done.stdout if done.returncode else ""


def preload(rooms: list[str]) -> None:
    "Import in the parent what the notebooks import, so that a child costs only its own cells."
    for room in rooms:
        for c in read(room)["cells"]:
            if not runs(c):
                continue
            for n in ast.parse(plain(code(c))).body:
                if isinstance(n, (ast.Import, ast.ImportFrom)):
                    exec(ast.unparse(n), {})


def expect_whole(rooms: list[str], tests: list[str], folder: Path) -> float:
    "How long a mutant may take, from pages and tests that nothing is wrong with. `SystemExit`."
    limit = 0.0
    began = time.monotonic()
    unbroken = run_all([(None, room) for room in rooms], folder, 1, 600)
    for (_, fate, here), room in zip(unbroken, rooms):
        if fate != "survived":
            log = (here / "log").read_text()[-2000:]
            raise SystemExit(f"{room} fails without any mutation:\n{log}")
        limit = max(limit, 20 + 5 * (time.monotonic() - began))
        began = time.monotonic()
    said = pytest_fails(None, tests, folder, 600) if tests else ""
    if said:
        raise SystemExit("the tests fail without any mutation:\n" + said[-3000:])
    return limit


def survivors(mutants: list[Mutant], arg: argparse.Namespace, known: set, folder: Path, limit):
    "The mutants that neither their page nor a test file kills."
    passed = []
    results = run_all([(m, m.room) for m in mutants], folder, arg.jobs, limit)
    for i, (m, fate, here) in enumerate(results):
        if fate == "survived" and arg.pytest and pytest_fails(m, arg.pytest, here, 600):
            fate = "killed"
        if fate == "survived":
            passed.append(m)
            if (m.room, m.what) not in known:  # said at once: a run takes long
                print(f"SURVIVED  {m.room} cell {m.cell}, line {m.line}:  {m.what}", flush=True)
        shutil.rmtree(here)
        if sys.stderr.isatty():
            print(f"\r{i + 1}/{len(mutants)}", end="\r", file=sys.stderr)
    return passed


def arguments() -> argparse.Namespace:
    ask = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ask.add_argument(
        "rooms", nargs="*", default=list(ROOMS), help="notebooks, such as lessons/03_losses"
    )
    ask.add_argument(
        "--pytest",
        nargs="*",
        default=[],
        help="test files for the mutants that the notebook lets through",
    )
    ask.add_argument("--jobs", type=int, default=os.cpu_count(), help="children at a time")
    ask.add_argument("--grep", default="", help="only mutants whose report contains this")
    ask.add_argument("--list", action="store_true", help="print the mutants and stop")
    return ask.parse_args()


def main() -> int:
    arg = arguments()
    os.environ.update(IN_TEST="1", MPLBACKEND="agg")
    rooms = [r.removeprefix("nbs/").removesuffix(".ipynb") for r in arg.rooms]
    mutants = [m for r in rooms for m in collect(r) if arg.grep in m.what]
    if arg.list:
        for m in mutants:
            print(f"{m.room} cell {m.cell}:{m.line}  {m.what}")
        print(f"{len(mutants)} mutants")
        return 0
    preload(rooms)
    known = {(r, f"{before}  ->  {after}") for r, before, after, _ in EQUIVALENT}
    with tempfile.TemporaryDirectory() as d:
        whole = Path(d) / "whole"
        whole.mkdir()
        limit = expect_whole(rooms, arg.pytest, whole)
        begun = time.monotonic()
        passed = survivors(mutants, arg, known, Path(d), limit)
    alive = [m for m in passed if (m.room, m.what) not in known]
    asked = {(r, what) for r, what in known if r in rooms and arg.grep in what}
    stale = sorted(asked - {(m.room, m.what) for m in passed})
    for room, what in stale:
        print(f"OUT OF DATE  {room} in EQUIVALENT:  {what}")
    print(
        f"{len(mutants) - len(passed)} killed, {len(passed) - len(alive)} equivalent, "
        f"{len(alive)} survived, of {len(mutants)} mutants of {', '.join(rooms)} in "
        f"{time.monotonic() - begun:.0f} s"
    )
    return 1 if alive or stale else 0


if __name__ == "__main__":
    sys.exit(main())
