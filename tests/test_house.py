"""The rules of pages and files that no single page can check; those of the code are in
test_layout.py.
"""

import ast
import json
import os
import re
import subprocess
import sys
import shutil
from base64 import b64encode
from collections import Counter
from configparser import ConfigParser
from pathlib import Path

import pytest
from house import (
    CLOSED,
    COLLAPSED,
    EXPORT,
    LIBRARY,
    NBS,
    ROOT,
    SKIPPED,
    WAY,
    cells,
    closes,
    code_of,
    exports,
    fold,
    folded,
    folds,
    is_exported,
    moves,
    name_of,
    notebooks,
    places,
    readme,
    section,
    sections,
    small,
    stored,
    typed_numbers,
    unfolded,
    way_picture,
    without_places,
)

from vssl_nb import show
from vssl_nb.papers.ledger import main_rows

BIN = Path(sys.executable).parent
ENV = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
ENV.pop("IN_TEST", None)  # nbdev_export does nothing, silently, where it is set
LESSONS = [p for p in notebooks() if p.parent.name == "lessons"]
OPEN_CHECKS = 3  # of a cell that is seen without opening anything


def run(*command, cwd=ROOT):
    done = subprocess.run(
        command,
        cwd=cwd,
        env=ENV,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}"
    return done.stdout


def made_by_export(cell):
    return cell["cell_type"] == "code" and bool(EXPORT.match(cell["source"]))


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    "Notebooks, settings and the modules written by hand, in an empty folder."
    there = tmp_path_factory.mktemp("house")
    shutil.copytree(
        NBS, there / "nbs", ignore=shutil.ignore_patterns(".ipynb_checkpoints", "_proc")
    )
    shutil.copy(ROOT / "settings.ini", there)
    for path in LIBRARY.rglob("*.py"):
        if is_exported(path):
            continue
        (there / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, there / path.relative_to(ROOT))
    return there


def test_notebooks_are_clean(copy):
    run("nbdev_clean", cwd=copy)
    dirty = [
        name_of(p)
        for p in notebooks()
        if p.read_bytes() != (copy / p.relative_to(ROOT)).read_bytes()
    ]
    assert not dirty, f"run nbdev_clean: {dirty}"


def test_library_is_exported(copy):
    run("nbdev_export", cwd=copy)
    made = {
        str(p.relative_to(copy / "vssl_nb")): p.read_text()
        for p in (copy / "vssl_nb").rglob("*.py")
    }
    here = {str(p.relative_to(LIBRARY)): p.read_text() for p in LIBRARY.rglob("*.py")}
    assert sorted(made) == sorted(here), (
        "a module without a notebook, or a notebook that was not exported"
    )
    different = [name for name in made if made[name] != here[name]]
    assert not different, f"run nbdev_export: {different}"


def test_readme_is_the_index():
    assert (ROOT / "README.md").read_text(encoding="utf-8") == readme(), "run make readme"
    assert WAY.read_bytes() == way_picture(), "run make readme"
    pictures = re.findall(r"!\[.+?\]\((images/\S+?)\)", markdown(NBS / "index.ipynb"))
    moving = [p for p in pictures if moves((NBS / p).read_bytes())]
    assert moving, "a course about motion opens with a picture that moves"
    kinds = {c["cell_type"] for c in cells(NBS / "index.ipynb")}
    assert kinds == {"markdown"}, "index.ipynb is the README: markdown only"


def markdown(path):
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    return "\n\n".join(c["source"] for c in cells(path) if c["cell_type"] == "markdown")


def anchors(path):
    "What `#…` may name in a file: ids that are written out, and headings as JupyterLab calls them."
    headings = re.findall(r"^#+ +(.+?) *$", markdown(path), re.M)
    names = {h.replace(" ", "-") for h in headings}
    if path.suffix == ".md":
        names = {n.lower() for n in names}  # as GitHub calls them
    return {*re.findall(r'<a id="([^"]+)">', markdown(path)), *names}


def test_links_lead_somewhere():
    missing = []
    texts = [ROOT / name for name in ("README.md", "CONTRIBUTING.md")]
    for path in [*notebooks(), *texts, *(ROOT / "results").glob("*.md")]:
        for link, anchor in re.findall(r"\]\(([^)\s#]*)#?([^)\s]*)", markdown(path)):
            if link.startswith("http"):
                continue
            there = path.parent / link if link else path
            if not there.exists() or anchor and anchor not in anchors(there):
                missing.append(f"{path.relative_to(ROOT)}: {link}{anchor and '#' + anchor}")
    assert not missing, missing


def test_imports_stand_alone_in_export_cells():
    mixed = []
    for path in notebooks():
        for source in (source for cell in exports(path).values() for source in cell):
            kinds = {
                isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.parse(source).body
            }
            if len(kinds) > 1:
                mixed.append(f"{name_of(path)}: {source.splitlines()[1]}")
            if re.search(r"^from \S+ import \*", source, re.M):
                mixed.append(f"{name_of(path)}: star import")
    assert not mixed, mixed


CHECK = re.compile(r"\s*(test_\w+\(|assert\b|with expect_fail|expect_fail\()")


def test_checks_do_not_stand_between_idea_and_result():
    "In a cell that a reader sees without opening anything, exported code aside."
    wrong = []
    for path in notebooks():
        for cell in unfolded(cells(path)):
            if cell["cell_type"] != "code" or made_by_export(cell):
                continue
            lines = cell["source"].splitlines()
            checks = sum(bool(CHECK.match(line)) for line in lines)
            if checks > OPEN_CHECKS:
                wrong.append(f"{name_of(path)}: {checks} checks: {lines[0]}")
    assert not wrong, "\n".join(["fold them, or begin with #| hide:", *wrong])


def hearts_of_a_method(source):
    "The classes of methods and the losses that a cell defines, by name."
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and "nn.Module" in map(ast.unparse, node.bases):
            yield node.name
        if isinstance(node, ast.FunctionDef) and "loss" in node.name:
            yield node.name


def test_loss_and_class_of_a_method_stand_open_on_its_page():
    closed = []
    for path in LESSONS:
        if not any(module.startswith("methods.") for module in exports(path)):
            continue
        page = cells(path)
        hearts = [
            name
            for cell in page
            if made_by_export(cell) and closes(cell)
            for name in hearts_of_a_method(cell["source"])
        ]
        closed += [f"{name_of(path)}: {name}" for name in hearts]
    assert not closed, f"take #| fold away: {closed}"


def test_the_heart_of_a_method_is_found():
    assert [*hearts_of_a_method("class A(nn.Module):\n    pass")] == ["A"]
    assert [*hearts_of_a_method("x = 1\ndef quadruple_loss(x): return x")] == ["quadruple_loss"]
    assert not [*hearts_of_a_method("class Settings:\n    pass\ndef queue(x): return x")]


def makes_a_picture(name):
    "Does this function of `show` return one, rather than draw on a `Diagram` or save a file?"
    function = getattr(show, name)
    return (
        name != "save_picture"
        and show.Diagram not in getattr(function, "__annotations__", {}).values()
    )


def lost_pictures(source):
    """Calls of `show.…` as a statement of their own that is not the last: Jupyter shows only the
    last.
    """
    body = ast.parse(re.sub(r"^[%!].*$", "", source, flags=re.M)).body
    lines = [
        n.value for n in body[:-1] if isinstance(n, ast.Expr) and isinstance(n.value, ast.Call)
    ]
    called = [ast.unparse(n.func) for n in lines]
    return [
        m[0] for name in called if (m := re.match(r"show\.(\w+)", name)) and makes_a_picture(m[1])
    ]


def test_no_picture_is_lost():
    lost = [
        (name_of(p), name)
        for p in notebooks()
        for c in cells(p)
        if c["cell_type"] == "code"
        for name in lost_pictures(c["source"])
    ]
    assert not lost, f"give them to display(), or to a cell of their own: {lost}"
    assert lost_pictures("show.bars(x)\nprint(1)") == ["show.bars"]
    assert not lost_pictures("a = 1\nshow.bars(x)") and not lost_pictures(
        "show.box(d, 1, 2, 3, 4)\nprint(1)"
    )


SILENT = re.compile(r"test_\w+|\w+\.update")  # functions that return nothing


def shows(source):
    "Does the code end in an expression, which Jupyter shows, on a page that a reader sees?"
    if SKIPPED.search(source) or re.search(r"^#\|\s*hide\b", source, re.M):
        return False
    body = ast.parse(re.sub(r"^[%!].*$", "", source, flags=re.M)).body
    if not body or not isinstance(body[-1], ast.Expr):
        return False
    last = body[-1].value
    return not (isinstance(last, ast.Call) and SILENT.fullmatch(ast.unparse(last.func)))


def without_output(page):
    "Cells above the checks that end in an expression and store nothing."
    checks = {id(cell) for cell in folded(page)}
    seen = [c for c in page if c["cell_type"] == "code" and id(c) not in checks]
    return [
        c["source"].strip().splitlines()[-1]
        for c in seen
        if shows(c["source"]) and not c["outputs"]
    ]


def test_no_output_is_lost():
    lost = {name_of(p): lines for p in notebooks() if (lines := without_output(cells(p)))}
    assert not lost, f"make pages PAGES=…, or an editor has taken them: {lost}"


def test_lost_outputs_are_found():
    page = [c | {"outputs": []} for c in cells(NBS / "lessons" / "09_mining.ipynb")]
    lost = without_output(page)
    assert 'Markdown("\\n".join(lines))' in lost and "live" in lost
    assert shows("#| echo: false\nx = 1\nx") and shows("print(1)") and shows("#| fold\n1 + 1")
    for source in ("x = 1", "#| hide\nx", "#| eval: false\nx", "test_eq(1, 1)", ""):
        assert not shows(source), source


def test_the_question_stands_before_the_code():
    late = {
        name_of(p): at
        for p in notebooks()
        for at, c in enumerate(cells(p))
        if c["cell_type"] == "markdown"
        and re.search("^## The question", c["source"], re.M)
        and at > 1
    }
    assert not late, f"move the cell up, below the title: {late}"


def test_pages_open_with_a_title_and_one_sentence():
    bad = [name_of(p) for p in notebooks() if not re.match(r"# .+\n+> .+", cells(p)[0]["source"])]
    assert not bad, bad


def test_checks_and_answers_are_folded():
    wrong = []
    for path in notebooks():
        found = cells(path)
        for i, c in enumerate(found):
            if folds(c) != (c["metadata"].get(COLLAPSED) is True):
                wrong.append(f"{name_of(path)}: {c['source'].splitlines()[0]}")
            if closes(c) != (c["metadata"].get("jupyter") == CLOSED):
                line = c["source"].splitlines()[1]
                wrong.append(
                    f"{name_of(path)}: {line}: open, or closed without #| hide or #| echo: false"
                )
            if not folds(c):
                continue
            below = section(found, i)
            if not below:
                wrong.append(f"{name_of(path)}: nothing to fold below {c['source']!r}")
            if any(made_by_export(b) for b in below):
                wrong.append(f"{name_of(path)}: exported code is folded")
    assert not wrong, f"python tests/house.py fold: {wrong}"


def test_results_in_prose_are_computed_or_have_a_source():
    sources = {"dossiers/released.ipynb"}  # says of every number where it is from
    typed = {
        name_of(p): hits
        for p in notebooks()
        if name_of(p) not in sources and (hits := typed_numbers(p))
    }
    assert not typed, typed


def test_typed_numbers_are_found(tmp_path):
    prose = [
        "R@1 is 51.2 %",
        "loss fell to 0.123",
        "by 17 points",
        "R@1 33.1 [paper](x)",
        "three of 4",
        "44 % right",
    ]
    page = [
        {"cell_type": "markdown", "source": "\n\n".join(prose)},
        {"cell_type": "code", "source": "x", "outputs": [{"text": "share 0.4398, loss .1234"}]},
        {"cell_type": "markdown", "source": "## Checks"},
        {"cell_type": "markdown", "source": "99 %"},
    ]
    (tmp_path / "page.ipynb").write_text(json.dumps({"cells": page}))
    assert typed_numbers(tmp_path / "page.ipynb") == ["R@1 is 51.2 %", "by 17 points"]


def exercises(path):
    "Numbered questions, cells of code beside them, and cells of code that prove the answers."
    found = cells(path)
    at = [i for i, c in enumerate(found) if c["source"].startswith("## Exercises")]
    if not at:
        return 0, 0, 0
    below = section(found, at[0])
    asked = [found[at[0]], *unfolded(below)]
    questions = re.findall(r"^\d+\. ", "\n".join(c["source"] for c in asked), re.M)
    answers = [c for i, c in enumerate(below) if folds(c) for c in section(below, i)]
    proofs = [
        re.search(r"\bassert\b|\btest_\w+\(", c["source"])
        for c in answers
        if c["cell_type"] == "code"
    ]
    return len(questions), sum(c["cell_type"] == "code" for c in asked), sum(map(bool, proofs))


def test_lessons_have_exercises_that_check_themselves():
    got = {name_of(p): exercises(p) for p in LESSONS}
    few = {name: n for name, n in got.items() if n[0] < 3 or not n[1] or not n[2]}
    assert not few, f"questions, cells to change, cells that prove an answer: {few}"


def test_readme_counts_the_claims():
    verdicts = [(alone.word, together.word) for _, alone, together in main_rows()]
    (sentence,) = re.findall(r"\d+ claims of the papers[^:]*: ([^.]*)\.", readme())
    counts = {word.strip(): int(n) for word, n in re.findall(r"([a-z ]+): (\d+)", sentence)}
    assert counts == Counter(together for _, together in verdicts)
    (alone,) = re.findall(r"[Ee]ach for itself, (\d+) more hold", readme())
    assert int(alone) == sum(a == "holds" != b for a, b in verdicts)


def test_fold_folds_what_it_should(tmp_path, copy):
    """JupyterLab's metadata is set where it belongs and nowhere else, and nbdev_clean leaves it
    alone.
    """
    heading = {
        "# Checks": False,
        "## Checks": True,
        "### Answer": True,
        "## Answers": True,
        "## Checks of flow": True,
        "## Checksums": False,
        "## What it checks": False,
    }
    made = [
        {"cell_type": "markdown", "id": f"{i:08d}", "metadata": {COLLAPSED: not yes}, "source": [h]}
        for i, (h, yes) in enumerate(heading.items())
    ]
    code = {
        "#| hide\nimport re": True,
        "#|hide\n1": True,
        "x = 1 #| hide": False,
        "#| hidden": False,
        "#| echo: false\n1": True,
        "#| echo: true\n1": False,
        "#| export\n#| fold\n1": True,
        "#| export\n1 #| fold": False,
        "#| eval: false\n1\n#| hide": False,
    }
    made += [
        {
            "cell_type": "code",
            "id": f"c{i:07d}",
            "metadata": {},
            "source": [s],
            "outputs": [],
            "execution_count": None,
        }
        for i, s in enumerate(code)
    ]
    path = copy / "nbs" / "folded.ipynb"
    path.write_text(json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    fold(path)
    once = path.read_bytes()
    text, rest = cells(path)[: len(heading)], cells(path)[len(heading) :]
    assert {c["source"]: c["metadata"].get(COLLAPSED, False) for c in text} == heading
    assert {c["source"]: c["metadata"].get("jupyter") == CLOSED for c in rest} == code
    run("nbdev_clean", "--fname", str(path), cwd=copy)
    assert path.read_bytes() == once
    path.unlink()
    found = [
        {"cell_type": "markdown", "source": s} for s in ("## Checks", "a", "### b", "## c", "d")
    ]
    assert [c["source"] for c in section(found, 0)] == ["a", "### b"] and section(
        found, 3
    ) == found[4:]


def test_pictures_that_move_stay_as_they_are():
    """Storing a page makes other pictures small; `show.Loop` has done it, and re-encoded it would
    stand still.
    """
    import numpy as np
    from vssl_nb.show import Loop

    frames = np.zeros((3, 400, 700, 3), np.uint8)
    for t in range(3):
        frames[t, 20 * t : 20 * t + 300] = np.random.default_rng(t).integers(0, 255, (300, 700, 1))[
            :, :1
        ]
    for pictures in frames, frames[:1]:
        raw = Loop(pictures).png
        kept = small(
            {"output_type": "display_data", "data": {"image/png": b64encode(raw).decode()}}
        )["data"]
        assert (kept.get("image/png") == b64encode(raw).decode()) == (len(pictures) > 1), (
            kept.keys()
        )


def test_outputs_name_no_folder_of_a_machine(tmp_path):
    found = {name_of(p): said for p in notebooks() if (said := places(p))}
    assert not found, f"make pages PAGES=… stores them without: {found}"
    said = f"no such file, seen from {ROOT}/nbs or /tmp/tmpab12/x; see /home/ann/films"
    assert without_places(said) == "no such file, seen from …/nbs or /tmp/…/x; see /home/ann/films"
    page = {"cells": [{"cell_type": "code", "source": [], "outputs": [{"text": [said]}]}]}
    (tmp_path / "p.ipynb").write_text(json.dumps(page))
    assert "/home/ann/films" in places(tmp_path / "p.ipynb")


def test_outputs_belong_to_the_code():
    "Executed with the code that stands there, or with one that computed the same (`rewritten`)."
    known = stored()
    old = []
    for page in notebooks():
        about = known.get(name_of(page), {})
        if code_of(page) not in (about.get("code"), about.get("rewritten")):
            old.append(str(page.relative_to(ROOT)))
    assert not old, (
        f'outputs of other code than stands above the checks: make pages PAGES="{" ".join(old)}"'
    )


def test_what_counts_as_other_code(tmp_path):
    def code(*sources):
        path = tmp_path / "page.ipynb"
        kinds = ["markdown" if s.startswith("##") else "code" for s in sources]
        made = [{"cell_type": k, "source": s} for k, s in zip(kinds, sources)]
        path.write_text(json.dumps({"cells": made}))
        return code_of(path)

    one = code('def f(x): # a number\n    "Half."\n    return x/2')
    assert one == code(
        'def f(\n    x, # another word\n):\n    "The half of it."\n    return x/2 # so'
    )
    assert one != code("def f(x): return x/3")
    assert one == code("def f(x): return x/2", "## Checks", "assert f(4)==2")
    assert one == code("def f(x): return x/2", "#| eval: false\nf(3)") and code("!ls") != code(
        "!pwd"
    )
    # where a name comes from is nothing that is computed; nor how definitions are spread over cells
    assert one == code(
        "from vssl_nb.data import toy\n"
        "def f(x: int) -> float:\n    from vssl_nb import g\n    return x/2"
    )
    assert code('import vssl_nb.a\nx = "vssl_nb.a:b"') == code('x = "vssl_nb.c.d:b"')
    assert code("!ls\nfrom vssl_nb.a import b") == code("!ls\nfrom vssl_nb.c import b")
    assert code("from numpy import a") != code("from torch import a")
    assert code("g(1)\nf(2)") != code("g(2)\nf(2)")
    assert code("a = 1\nb = 2\na") == code("a = 1", "b = 2\na") != code("a", "a = 1\nb = 2")


def test_no_page_keeps_a_reader_for_over_two_minutes():
    # `busy`: what it took when the machine had other work, or was slower
    seconds = {page: s["seconds"] for page, s in stored().items()}
    slow = {page: s for page, s in seconds.items() if s > 120}
    assert not slow, f"measured when the outputs were stored: {slow}"


def test_outputs_stay_small():
    size = {name_of(p): sum(len(str(c.get("outputs", ""))) for c in cells(p)) for p in notebooks()}
    most = {name_of(p): 600_000 if p in LESSONS else 200_000 for p in notebooks()}
    assert not {k: v for k, v in size.items() if v > most[k]}, size
    assert sum(size.values()) < 12_000_000


def test_every_page_is_in_the_sidebar_once():
    listed = [page for pages in sections().values() for page in pages]
    assert sorted(listed) == notebooks() and sections()["Lessons"] == LESSONS


def test_the_linter_and_the_formatter_have_nothing_to_say():
    run("ruff", "check", "--no-cache", ".")
    run("ruff", "format", "--no-cache", "--check", ".")


def ruff_settings():
    "ruff.toml, which is simple enough for Python 3.10: lists of strings by section and key."
    text = re.sub(r"(^|\s)#.*", "", (ROOT / "ruff.toml").read_text())
    section = ""
    settings = {}
    for head, key, values in re.findall(r"^\[(.+)\]|^([\w\"./*-]+) = \[([^\]]*)\]", text, re.M):
        section = head or section
        if key:
            settings[section, key.strip('"')] = re.findall(r'"([^"]+)"', values)
    return settings


def test_the_formatter_leaves_exported_modules_alone():
    "nbdev writes one line between two cells; the formatter sees the cells themselves."
    exported = {str(p.relative_to(ROOT)) for p in LIBRARY.rglob("*.py") if is_exported(p)}
    settings = ruff_settings()
    assert {*settings["format", "exclude"]} == exported
    # nbdev wraps the names of a module at a width of its own
    wide = {key for (_, key), rules in settings.items() if rules == ["E501"]}
    assert wide == exported


def test_hooks_do_what_the_checks_want():
    import yaml

    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    entries = [hook["entry"] for hook in repository["hooks"]]
    for command in ("ruff format", "nbdev_export", "nbdev_clean", "make check"):
        assert any(command in entry for entry in entries), command


# the tables that the library reads, and what stands in them: what is no data is code
DATA = {
    "papers/published.csv": "numbers in the papers' tables",
    "papers/tables.csv": "the rows of these tables, and the recipe of each",
    "papers/datasets.csv": "sizes of the splits of datasets",
    "papers/claims.csv": "claims of the papers",
    "papers/readings.csv": "how they are read, and where the numbers of each reading lie",
}


def test_tables_are_data():
    tables = {str(p.relative_to(LIBRARY)) for p in LIBRARY.rglob("*.csv")}
    assert tables == DATA.keys(), f"a rule is code: {sorted(tables ^ DATA.keys())}"


def test_types():
    run("mypy", "--no-error-summary")


def imported(node):
    "The packages that an import statement names."
    if isinstance(node, ast.Import):
        return {n.name.split(".")[0] for n in node.names}
    if isinstance(node, ast.ImportFrom) and not node.level:
        return {node.module.split(".")[0]}
    return set()


def test_settings_name_what_the_library_imports():
    "At the top of a module what is always installed; inside of functions extras, too."
    config = ConfigParser(delimiters=["="])
    config.read(ROOT / "settings.ini", encoding="utf-8")
    settings = config["DEFAULT"]

    def packages(key):
        names = {re.split(r"[><=,]", one)[0].lower() for one in settings[key].split()}
        return names | {"pil"} if "pillow" in names else names

    always = packages("requirements") | {"vssl_nb", *sys.stdlib_module_names}
    sometimes = set().union(*(packages(f"{e}_requirements") for e in settings["extras"].split()))
    unknown = []
    for path in LIBRARY.rglob("*.py"):
        tree = ast.parse(path.read_text())
        top = {name.lower() for node in tree.body for name in imported(node)}
        everywhere = {name.lower() for node in ast.walk(tree) for name in imported(node)}
        unknown += [f"{path.name}: {name}" for name in top - always]
        unknown += [f"{path.name}: {name}" for name in everywhere - always - sometimes]
    assert not unknown, unknown


def test_pages_write_modules_of_their_own():
    """Several pages run in one process, and a module that one of them has imported stays for the
    others.
    """
    ways, written = (r"%%writefile \S*?/(\w+)\.py", r"/'(\w+)\.py'\)\.write_text"), {}
    for page in notebooks():
        text = "".join("".join(c["source"]) for c in cells(page) if c["cell_type"] == "code")
        for name in {name for way in ways for name in re.findall(way, text)}:
            if f"{name}:" in text:
                written.setdefault(name, set()).add(name_of(page))
    twice = {name: pages for name, pages in written.items() if len(pages) > 1}
    assert written and not twice, f"written by several pages: {twice}"
