"One thing has one name and one letter: the lessons against the page of words."

import re

import pytest
from house import NBS, cells

LESSONS = sorted((NBS / "lessons").glob("*.ipynb"))
NAMES = "Sigma|alpha|beta|Delta|ell|epsilon|varepsilon|lambda|mu|phi|pi|rho|sigma|tau|theta"
GREEK = rf"\\(?:{NAMES})(?![A-Za-z])"


def prose(path):
    "The markdown of a page."
    return "\n\n".join(c["source"] for c in cells(path) if c["cell_type"] == "markdown")


def tables(path, heading):
    "The cells of the table below a heading."
    below = prose(path).split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in below.splitlines() if line.startswith("| ")]
    return lines[2:]


def letters_of(maths):
    "Letters of a formula, without the words of operators and of text, and the d of an integral."
    maths = re.sub(
        r"\\(?:text|mathrm|texttt|begin|end|operatorname\*?)\s*\{[^}]*\}|\\,d(?=[tx])", " ", maths
    )
    greek = set(re.findall(GREEK, maths))
    latin = set(re.findall(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+", " ", maths)))
    return greek | latin


def formulas(text):
    return [a or b for a, b in re.findall(r"\$\$(.+?)\$\$|\$(.+?)\$", text, re.S)]


def rows_of_letters():
    "Letters, and the lessons in which they stand for one thing."
    for letters, _, lessons in tables(NBS / "words.ipynb", "Letters"):
        yield set().union(*map(letters_of, formulas(letters))), lessons.split()


def listed():
    "Letter -> the lessons for which the page of words has it."
    where = {}
    for letters, lessons in rows_of_letters():
        for letter in letters:
            where.setdefault(letter, set()).update(lessons)
    return where


def test_letters_are_found():
    text = r"the loss $L_{ij}$, $$\mathcal P=\{j:\,s_j<\tau\},\quad \text{share of } K$$"
    assert set().union(*map(letters_of, formulas(text))) == {"L", "i", "j", "P", "s", "K", r"\tau"}


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
def test_each_letter_of_a_lesson_is_on_the_page_of_words(path):
    number, where = path.name[:2], listed()
    assert len(where) > 40
    used = set().union(*map(letters_of, formulas(prose(path))))
    missing = sorted(letter for letter in used if number not in where.get(letter, ()))
    assert not missing, f"add them to the table of letters in words.ipynb: {missing}"


def test_the_page_of_words_lists_no_letter_that_is_gone():
    used = {p.name[:2]: set().union(*map(letters_of, formulas(prose(p)))) for p in LESSONS}
    gone = [
        (sorted(letters), lesson)
        for letters, lessons in rows_of_letters()
        for lesson in lessons
        if not letters & used[lesson]
    ]
    assert not gone, f"take them out of words.ipynb: {gone}"


def plain(text):
    "Prose without code, maths, links, tables, quotations and what is in italics."
    text = re.sub(r"\$\$.+?\$\$|\$.+?\$|`[^`]*`|\]\([^)]*\)|\"[^\"]*\"", " ", text, flags=re.S)
    text = "\n".join(line for line in text.splitlines() if not line.startswith("|"))
    return re.sub(r"(?<!\*)\*(?!\*)[^*\n]+\*(?!\*)", " ", text)


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
def test_lessons_use_one_name_for_a_thing(path):
    text = plain(prose(path))
    replaced = [other for other, _ in tables(NBS / "words.ipynb", "In other words")]
    assert len(replaced) >= 5
    hits = {w: re.findall(rf".{{30}}\b{w}s?\b.{{20}}", text, re.I) for w in replaced}
    assert not {w: places for w, places in hits.items() if places}


def test_replaced_words_are_found():
    text = plain("A *momentum encoder*, `residual`, and a partner.")
    assert "partner" in text and "momentum" not in text and "residual" not in text
