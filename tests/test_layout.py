"The rules of the library's code: which folder may import which, how large it is, who knows what."

import ast
import re

import pytest
from house import LIBRARY, cells, modules, name_of, notebooks

# modules and folders of vssl_nb: each imports only from those before it, and from its own
ORDER = (
    ("arguments", "device", "extras", "fields", "files", "names", "processors", "progress"),
    ("terminal",),
    ("paths", "rng", "show"),
    ("outputs", "packages"),
    ("config", "contracts", "distributed"),
    ("data",),
    ("nets",),
    ("ssl",),
    ("methods",),
    ("training",),
    ("measure",),
    ("runs",),
    ("papers",),
    ("app",),
)
METHOD = re.compile(
    r"infonce|ubernce|coclr|simclr|moquad|provico|byol|lejepa|(?<![a-z])(cpr|iic)(?![a-z])", re.I
)
# what the field calls by the name of a paper though it is no method
NAMED_AFTER_PAPERS = {
    "nets.backbones": "networks",
    "measure.classify": "a protocol",
    "measure.protocols": "protocols",
    "runs.finetuning_presets": "presets",
    "app.commands.measurement": "a protocol",
    "app.course": "rows of its table",
    "app.demo": "rows of its table",
    "runs.released": "files of released code",
    "runs.released_names": "files of released code",
    "app.convert": "files of released code",
}


def dotted(path):
    "A module as Python names it below the library: training.loop."
    return ".".join(path.relative_to(LIBRARY).with_suffix("").parts)


def source(path):
    return path.read_text(encoding="utf-8")


def without_docstrings(tree):
    "The same tree without docstrings; comments are no part of it."
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)):
            continue
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return tree


def imports(path, known):
    "The modules of the library that a module imports, wherever in it."
    package = ["vssl_nb", *path.relative_to(LIBRARY).parts[:-1]]
    names = set()
    for node in ast.walk(ast.parse(source(path))):
        if isinstance(node, ast.Import):
            names |= {n.name for n in node.names}
        if not isinstance(node, ast.ImportFrom):
            continue
        above = package[: len(package) - node.level + 1] if node.level else []
        module = ".".join([*above, *([node.module] if node.module else [])])
        names |= {module, *(f"{module}.{n.name}" for n in node.names)}
    return {name.removeprefix("vssl_nb.") for name in names if name.startswith("vssl_nb.")} & known


@pytest.fixture(scope="module")
def imported():
    "Module -> the modules that it imports."
    known = {dotted(p) for p in modules()}
    return {dotted(p): imports(p, known) - {dotted(p)} for p in modules()}


def test_imports_run_one_way_between_folders(imported):
    place = {name: i for i, names in enumerate(ORDER) for name in names}
    assert not (new := {m.split(".")[0] for m in imported} - place.keys()), (
        f"no place in ORDER: {new}"
    )
    wrong = [
        f"{m} imports {other}"
        for m, others in imported.items()
        for other in others
        if place[other.split(".")[0]] > place[m.split(".")[0]]
    ]
    assert not wrong, wrong


def test_imports_are_found(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.py").write_text(
        "from . import b\nfrom ..nets.c import f\nimport vssl_nb.d as x\n"
        "def g():\n    from vssl_nb import e\n    from torch import h"
    )
    monkeypatch.setattr("test_layout.LIBRARY", tmp_path)
    known = {"data.b", "nets.c", "d", "e", "h"}
    assert imports(tmp_path / "data" / "a.py", known) == known - {"h"}


def test_no_module_imports_itself_through_others(imported):
    def reached(module, seen):
        for other in imported[module] - seen:
            seen = reached(other, seen | {other})
        return seen

    assert not (circles := [m for m in imported if m in reached(m, set())]), circles


def test_methods_do_not_import_each_other(imported):
    methods = {m for m in imported if re.fullmatch(r"methods\.\w+", m)}
    assert len(methods) > 6 and not {
        m: imported[m] & methods for m in methods if imported[m] & methods
    }


def test_modules_have_names_that_say_something():
    words = {word for p in modules() for word in dotted(p).split(".")}
    assert not words & {"core", "utils", "helpers", "base", "common"}


# functions of these take no recipe: what they need is in an Experiment, or a plain value
RESOLVED = ("runs", "measure")
# those that take one to resolve it, or to make another of it
TAKES_A_RECIPE = {
    "runs.pretraining.pretrain",
    "runs.pretraining.import_released",
    "runs.evaluation.untrained_encoder",
    "runs.evaluation.baselines",
    "runs.finetuning.FineTuning.recipe",
}


def parameter_types(tree):
    "Function -> the types of its parameters, methods by the names of their classes."

    def visit(node, above):
        found = {}
        for child in ast.iter_child_nodes(node):
            name = above
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                name = (*above, child.name)
            if isinstance(child, ast.FunctionDef):
                arguments = child.args
                given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                found[".".join(name)] = [ast.unparse(a.annotation) for a in given if a.annotation]
            found |= visit(child, name)
        return found

    return visit(tree, ())


def takes(types, name):
    "Is one of the types it, or made of it? A function that is called with it is not."
    return any(re.search(rf"\b{name}\b", t) for t in types if not t.startswith("Callable"))


def test_recipes_are_resolved_once():
    "No function takes a recipe beside an Experiment, and few of runs and measure take one at all."
    types = {
        f"{dotted(p)}.{name}": kinds
        for p in modules()
        if dotted(p) != "runs.experiment"
        for name, kinds in parameter_types(ast.parse(source(p))).items()
    }
    recipes = {name for name, kinds in types.items() if takes(kinds, "Recipe")}
    assert not [name for name in recipes if takes(types[name], "Experiment")]
    assert {n for n in recipes if n.split(".")[0] in RESOLVED} == TAKES_A_RECIPE
    assert len(TAKES_A_RECIPE) <= 5
    assert sum(takes(kinds, "Experiment") for kinds in types.values()) > 20


def test_functions_that_take_a_recipe_are_found():
    code = (
        "def f(r: Recipe, e: Experiment):\n    def g(r: Sequence[tuple[Phase, Recipe]]): pass\n"
        "class A:\n    def h(self, r: 'Recipe | None', *, n: int): pass"
    )
    found = {
        name: takes(kinds, "Recipe") for name, kinds in parameter_types(ast.parse(code)).items()
    }
    assert found == {"f": True, "f.g": True, "A.h": True}


def methods_named(code):
    """Identifiers and strings that name a method.

    Sentences for people and names of recipes (`-`) may.
    """
    names = set()
    for node in ast.walk(without_docstrings(ast.parse(code))):
        parts = [
            getattr(node, key, None) for key in ("id", "attr", "name", "asname", "arg", "module")
        ]
        if isinstance(node, ast.Constant):
            parts = [node.value]
        names |= {p for p in parts if isinstance(p, str) and not re.search(r"\s|^[\w.]*-", p)}
    return sorted(name for name in names if METHOD.search(name))


def test_only_methods_name_methods():
    named = {
        dotted(p): methods_named(source(p))
        for p in modules()
        if dotted(p).split(".")[0] not in ("methods", "papers")
    }
    assert not (idle := {m for m in NAMED_AFTER_PAPERS if not named.get(m)}), (
        f"remove it here: {idle}"
    )
    wrong = {
        module: names
        for module, names in named.items()
        if names and module not in NAMED_AFTER_PAPERS
    }
    assert not wrong, wrong


def test_names_of_methods_are_found():
    code = (
        '"CoCLR."\ndef coclr(x):\n    "IIC."\n    if x.n == "iic": raise E("no IIC")\n    '
        'find("iic-toy")'
    )
    assert methods_named(code) == ["coclr", "iic"] and not methods_named("topic = dic.cprint")


def public(tree):
    "The names that a module defines at its top and that do not begin with _."
    names = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
        names |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def test_no_public_name_in_two_modules():
    where = {}
    for path in modules():
        for name in public(ast.parse(source(path))):
            where.setdefault(name, []).append(dotted(path))
    assert len(where) > 200, "this no longer finds definitions"
    assert not (twice := {name: m for name, m in where.items() if len(m) > 1}), twice


def private(name):
    return name.startswith("_") and not name.endswith("__")


def private_names(code):
    "Private names of modules of the library in code that is not theirs."
    nodes = list(ast.walk(ast.parse(code)))
    froms = [
        n
        for n in nodes
        if isinstance(n, ast.ImportFrom) and (n.level or (n.module or "").startswith("vssl_nb"))
    ]
    used = [f"{n.module}.{a.name}" for n in froms for a in n.names if private(a.name)]
    # of `from vssl_nb import show`: `show._x`
    names = {a.asname or a.name for n in froms for a in n.names}
    inside = [n for n in nodes if isinstance(n, ast.Attribute) and private(n.attr)]
    return used + [ast.unparse(n) for n in inside if ast.unparse(n.value) in names]


def test_no_module_uses_a_private_name_of_another():
    code = {
        name_of(p): "\n".join(c["source"] for c in cells(p) if c["cell_type"] == "code")
        for p in notebooks()
    }
    code = {name: re.sub(r"^\s*[%!].*$", "", text, flags=re.M) for name, text in code.items()}
    code |= {dotted(p): source(p) for p in modules()}
    wrong = {name: used for name, text in code.items() if (used := private_names(text))}
    assert not wrong, wrong
    code = "from . import show\nfrom .names import _x\nshow._y, self._z"
    assert private_names(code) == ["names._x", "show._y"]
