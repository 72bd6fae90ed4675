"The course is one story: each lesson opens with the table so far, and needs nothing of later ones."

import ast
import re

import pytest
from house import NBS, cells, exports

from vssl_nb.app.course import LESSONS

PAGES = sorted((NBS / "lessons").glob("*.ipynb"))
NUMBERS = [p.name[:2] for p in PAGES]
MADE_BY = {m: p.name[:2] for p in PAGES for m in exports(p)}  # module -> its lesson


def source(path):
    "All code of a page."
    return "\n".join(c["source"] for c in cells(path) if c["cell_type"] == "code")


def tables(path):
    "The numbers of the tables that a page shows, in order."
    return re.findall(r'course\.(?:lesson_table|added_rows)\("(\d\d)"', source(path))


def links(path):
    "The lessons that the text of a page links to."
    text = "\n".join(c["source"] for c in cells(path) if c["cell_type"] == "markdown")
    return set(re.findall(r"\((?:\.\./lessons/)?(\d\d)_\w+\.ipynb", text))


def imported(code):
    "Modules of the library that code imports, as `methods.coclr`."
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vssl_nb"):
            module = node.module.removeprefix("vssl_nb").lstrip(".")
            yield module
            yield from (f"{module}.{a.name}".lstrip(".") for a in node.names)


def test_lessons_are_numbered_without_a_gap():
    assert NUMBERS == [f"{i:02}" for i in range(1, len(PAGES) + 1)] == list(LESSONS)


@pytest.mark.parametrize("path", PAGES[1:], ids=lambda p: p.stem)
def test_a_lesson_opens_with_the_table_so_far(path):
    before = f"{int(path.name[:2]) - 1:02}"
    assert tables(path)[:1] == [before]


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_a_lesson_closes_with_its_own_rows(path):
    number = path.name[:2]
    assert (number in tables(path)) == bool(LESSONS[number])


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_a_lesson_ends_in_a_rule_and_in_what_is_not_known(path):
    text = "\n".join(c["source"] for c in cells(path) if c["cell_type"] == "markdown")
    assert len(re.findall(r"^## The rule", text, re.M)) == 1
    assert text.count("> **Not known") == 1


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_a_lesson_names_the_one_before_and_the_next(path):
    at = PAGES.index(path)
    neighbours = {*NUMBERS[max(at - 1, 0) : at], *NUMBERS[at + 1 : at + 2]}
    assert neighbours <= links(path), f"it does not name {neighbours - links(path)}"


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_no_lesson_imports_what_a_later_one_exports(path):
    later = {m for m in imported(source(path)) if MADE_BY.get(m, "00") > path.name[:2]}
    assert not later
    assert len(MADE_BY) >= 10


def needs():
    "What the map lists under 'builds on': the earlier lessons of each."
    assigned = [n for n in ast.parse(source(NBS / "map.ipynb")).body if isinstance(n, ast.Assign)]
    (listed,) = (n.value for n in assigned if ast.unparse(n.targets[0]) == "NEEDS")
    return {number: below.split() for number, below in ast.literal_eval(listed).items()}


def test_what_a_lesson_builds_on_stands_before_it():
    assert [*needs()] == NUMBERS
    for number, below in needs().items():
        assert below == sorted({*below}) and {*below} <= {*NUMBERS[: NUMBERS.index(number)]}
        assert below or number == NUMBERS[0]


def test_imports_are_found():
    code = (
        "from vssl_nb import show\nfrom vssl_nb.methods import coclr\nfrom vssl_nb.ssl.x import y"
    )
    assert {"show", "methods", "methods.coclr", "ssl.x", "ssl.x.y"} == set(imported(code)) - {""}
