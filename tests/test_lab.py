"`make test-lab` on three small pages: it finds what is wrong with them, and nothing else."

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LAB = Path(__file__).with_name("lab.py")

PICTURE = """from PIL import Image
from ipywidgets import interact
from IPython.display import HTML, Javascript, display

def picture(shade=3, size=40):
    drawn = Image.new('L', (size, 40), 255)
    drawn.paste(25*shade, (5, 5, 20, 20))
    display(drawn)"""

SLIDER = """from vssl_nb import show
def drawn(shade):
    picture = Image.new('RGB', (60, 40), 'white')
    picture.paste((25*shade, 0, 0), (5, 5, 20, 20))
    return picture
show.Slider(drawn, shade=range(9))"""

GOOD = [
    "# Good\n\nOne half is $\\frac{1}{2}$; see [below](#The-end), [the other](wrong.ipynb) and "
    "[its end](wrong.ipynb#What-follows) and [a script](../do.py).",
    PICTURE,
    "interact(picture, shade=(0, 8), size=(30, 60, 10));",
    SLIDER,
    "half = 1 / 2  # of one; `make lab` wraps a line that is wider than a page in a narrow window",
    "## The end",
]
WRONG = [
    "# Wrong",
    "print('before')",
    "raise ValueError('out of range')",
    "print('after')",
    "## What follows",
]
# one defect a cell, in the order of DEFECTS
BAD = [
    "# Bad",
    PICTURE,
    "display(Image.new('RGB', (30, 30), 'red'))",
    "display(Javascript(\"console.error('a stray message')\"))",
    "display(HTML('<div style=\"width: 5000px\">wide</div>'))",
    "import time\ndef slow(x=1):\n    time.sleep(3.2*(x == 3))\n    print(x)\n\ninteract(slow, "
    "x=(1, 3));",
    "from ipywidgets import IntSlider\nIntSlider(description='alone')",
    "def fails(at=0):\n    if at == 2: raise KeyError('two')\n    picture()",
    "interact(fails, at=[0, 1, 2]);",
    "Nowhere: [a page](none.ipynb), [a place](good.ipynb#Nothing), [here](#Nothing-here), "
    "[all](.).\n\n"
    "![lost](lost.png) and $\\unheard{x}$.",
    "# Wide\n\n$$" + "+".join("abcdefghijklmnopqrstuvwxyz") + "$$",
]
DEFECTS = [
    r"cell 2 .*: a blank picture",
    r"cell 3 .*|console: a stray message",
    r"cell 4 .*: wider than its panel",
    r"cell 5 .*: widget 'x' takes 3\.\d s",
    r"cell 6 .*: widget 'alone' does nothing",
    r"cell 8 .*: widget 'at', 2: error: KeyError: 'two'",
    r"cell 9 .*: link 'a page' is dead: there is no nbs/none\.ipynb",
    r"cell 9 .*: link 'a place' is dead: there is no nbs/good\.ipynb#Nothing",
    r"cell 9 .*: link 'here' is dead: there is no nbs/bad\.ipynb#Nothing-here",
    r"cell 9 .*: link 'all' names a folder",
    r"cell 9 .*: a picture does not load: .*lost\.png",
    r"cell 9 .*: maths: unknown \\unheard",
    r"cell 10 .*: at 1100 px wider than its panel",
    r"console: Failed to load resource: .*404.*lost\.png",
]


def write(path, sources):
    "A notebook; a cell is markdown if it starts like it."
    kinds = ["markdown" if re.match(r"#+ |Nowhere", s) else "code" for s in sources]
    more = {"code": {"execution_count": None, "outputs": []}, "markdown": {}}
    made = [
        {"cell_type": kind, "id": f"{i:08d}", "metadata": {}, "source": s} | more[kind]
        for i, (kind, s) in enumerate(zip(kinds, sources))
    ]
    kernel = {"kernelspec": {"display_name": "python3", "language": "python", "name": "python3"}}
    path.write_text(
        json.dumps({"cells": made, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5})
    )


def lab(*options, **env):
    done = subprocess.run(
        [sys.executable, str(LAB), *map(str, options)],
        text=True,
        timeout=300,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | env,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.skipif(not shutil.which("chromium"), reason="there is no chromium")
def test_three_pages(tmp_path):
    (tmp_path / "nbs").mkdir()
    for name, sources in {"good": GOOD, "wrong": WRONG, "bad": BAD}.items():
        write(tmp_path / "nbs" / f"{name}.ipynb", sources)
    (tmp_path / "do.py").write_text("print()")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    code, said, errors = lab("--root", tmp_path, "--screens", tmp_path / "_lab")
    assert code == 1 and not errors and said.endswith("\n1 passed, 2 failed\n"), said + errors
    parts = re.split(r"^(?=ok|FAIL)", said.rsplit("\n", 2)[0], flags=re.M)[1:]
    page = {re.search(r"nbs/(\w+)\.ipynb", part)[1]: part.rstrip().split("\n") for part in parts}
    problems = {
        name: [x.strip() for x in lines[1:] if "note: " not in x] for name, lines in page.items()
    }

    assert (
        re.match(
            r"ok +nbs/good\.ipynb: 4 cells  [\d.]+ s  3 widgets, slowest move 0\.\d\d s  4 links  "
            r"0 ",
            page["good"][0],
        )
        and not problems["good"]
    ), page["good"]
    assert page["wrong"][0].startswith("FAIL  nbs/wrong.ipynb: 3 cells")
    assert problems["wrong"] == [
        "cell 2 (raise ValueError('out of range')): error: ValueError: out of range"
    ]
    unseen = [d for d in DEFECTS if not any(re.match(d, p) for p in problems["bad"])]
    others = [p for p in problems["bad"] if not any(re.match(d, p) for d in DEFECTS)]
    assert not unseen and not others, (unseen, others)

    screens = sorted(p.name for p in (tmp_path / "_lab").iterdir())
    assert screens == ["bad.png", "good.png", "wrong.png"]
    assert {p: p.read_bytes() for p in before} == before, "a page was changed"


def test_without_a_browser(tmp_path):
    code, said, errors = lab(PATH=str(tmp_path))
    assert (
        (code, said) == (2, "")
        and "needs the package chromium" in errors
        and errors.count("\n") == 1
    )


@pytest.mark.skipif(not shutil.which("chromium"), reason="there is no chromium")
def test_a_page_that_is_not_there():
    code, said, errors = lab("nbs/99_none.ipynb")
    assert (code, said, errors) == (2, "", "There is no page nbs/99_none.ipynb.\n")
