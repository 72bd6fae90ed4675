"""The course site: what is made from the notebooks, and what a browser makes of it, without any
network.
"""

import ast
import http.server
import io
import json
import re
import shutil
import sys
import threading
from base64 import b64decode
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from docutils.core import publish_doctree
from house import FOLDS, NBS, ROOT, cells, moves, notebooks, sections

sys.path.insert(0, str(ROOT / "docs"))
from make_site import escaped, make, markdown, page, sidebar  # noqa: E402

PAGES = [
    "index",
    "map",
    "lessons/08_motion",
    "lessons/03_losses",
    "lessons/05_memory",
    "lessons/13_moquad",
    "dossiers/released",
]


class Page(HTMLParser):
    "The ids of a page, where its links lead, and what it loads."

    def __init__(self, path):
        super().__init__()
        self.path, self.ids, self.links, self.loads, self.open_folds = path, set(), [], [], []
        self.html = path.read_text(encoding="utf-8")
        self.feed(self.html)

    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        self.ids |= {a[k] for k in ("id", "name") if a.get(k)}
        if tag == "a" and "href" in a:
            self.links.append(a["href"])
        if tag == "link" and "href" in a:
            self.loads.append(a["href"])
        if "src" in a:
            self.loads.append(a["src"])
        if tag == "details" and "open" in a:
            self.open_folds.append(a)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    there = tmp_path_factory.mktemp("site") / "under" / "a path"
    make([NBS / f"{name}.ipynb" for name in PAGES], there)
    return there


@pytest.fixture(scope="module")
def pages(site):
    return {p: Page(p) for p in site.rglob("*.html")}


def test_every_link_leads_somewhere_and_nothing_comes_from_elsewhere(site, pages):
    assert len(pages) > len(notebooks()) + 5  # modules, their sources, a search, texts
    lost = []
    for path, one in pages.items():
        for url in one.links + one.loads:
            to = urlsplit(url)
            if to.scheme in ("data", "mailto"):
                continue
            if to.scheme or to.netloc:
                if url in one.loads:
                    lost.append(f"{path.name} loads {url}")
                continue
            there = (path.parent / unquote(to.path)).resolve() if to.path else path
            if url.startswith("/") or not there.is_file():
                lost.append(f"{path.name}: {url}")
            elif to.fragment and there.suffix == ".html":
                if unquote(to.fragment) not in pages[there].ids:
                    lost.append(f"{path.name}: {url}")
    assert not lost, lost[:20]
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert not re.findall(r'(?:url\(|@import)\s*["\']?(?:https?:)?//', text), sheet


def test_a_page_is_its_notebook_as_stored(site, pages):
    html = pages[site / "lessons" / "13_moquad.html"].html
    assert "#|" not in html and 'class="math' in html
    code = [c for c in cells(NBS / "lessons" / "08_motion.ipynb") if c["cell_type"] == "code"]
    stored = [
        o["data"]["image/png"]
        for c in code
        for o in c["outputs"]
        if "image/png" in o.get("data", {})
    ]
    loaded = pages[site / "lessons" / "08_motion.html"].loads
    shown = [(site / "lessons" / unquote(src)).read_bytes() for src in loaded if "_images" in src]
    assert {b64decode(s) for s in stored} <= set(shown) and sum(map(moves, shown)) >= 2
    hidden = next(
        c for c in cells(NBS / "lessons/03_losses.ipynb") if c["source"].startswith("#| hide")
    )
    made = json.loads(page(NBS / "lessons/03_losses.ipynb", True, set()))["cells"]
    assert hidden["source"].split("\n", 1)[1] not in [c["source"] for c in made]
    # `#| echo: false`: tables, no code
    silent = json.loads(page(NBS / "map.ipynb", True, set()))["cells"]
    tables = [c for c in silent if c["metadata"].get("tags") == ["remove-input"]]
    assert [len(c["outputs"]) for c in tables] == [1, 5]  # the way, and the routes
    assert (
        "made_by" not in pages[site / "map.html"].html and "Train" in pages[site / "map.html"].html
    )


def test_plumbing_is_folded(tmp_path):
    made = {
        "cells": [
            {"cell_type": "code", "id": f"{i:08d}", "metadata": {}, "outputs": [], "source": [s]}
            for i, s in enumerate(("#| fold\na = 1", "#| echo: false\nb = 2", "c = 3"))
        ]
    }
    (tmp_path / "page.ipynb").write_text(json.dumps(made))
    shown = [c for c in json.loads(page(tmp_path / "page.ipynb", True, set()))["cells"]]
    assert [(c["source"], c["metadata"].get("tags")) for c in shown] == [
        ("a = 1", ["hide-input"]),
        ("b = 2", ["remove-input"]),
        ("c = 3", None),
    ]
    assert shown[0]["metadata"]["mystnb"]["code_prompt_show"] == "Code: a"


def test_checks_and_answers_are_folded(site, pages):
    html = pages[site / "lessons" / "13_moquad.html"].html
    folds = re.findall(r'<details class="fold"><summary>\s*<h\d>(\w+)', html)
    assert folds == ["Answers", "Checks"] and html.count("<details") == html.count("</details>")
    assert not any(p.open_folds for p in pages.values())


def test_jupyterlab_quarto_and_this_site_fold_the_same():
    names = FOLDS.pattern.split("} ")[1]
    assert (
        names in (ROOT / "docs" / "conf.py").read_text()
        and names in (NBS / "fold.html").read_text()
    )
    assert "fold.html" in (NBS / "_quarto.yml").read_text()


def test_sidebar_is_that_of_the_notebooks(site, pages):
    text = sidebar()
    assert [
        text.count(f"/{p.relative_to(NBS)}>") for p in notebooks() if p.name != "index.ipynb"
    ] == [1] * (len(notebooks()) - 1)
    html = pages[site / "index.html"].html
    captions = re.findall(r'<p class="caption"[^>]*><span class="caption-text">([^<]+)', html)
    assert captions == ["Find your way", *list(sections())[1:], "Reference"]
    first, last = ">01 What does an encoder see?<", ">21 The claims ledger<"
    places = [html.index(x) for x in (first, last, "how_to/your_own_videos.html")]
    assert places == sorted(places)


def test_api_says_what_the_comments_say(site, pages):
    html = pages[site / "api" / "ssl.losses.html"].html
    assert "similarity of each query with each candidate" in html
    assert 'id="vssl_nb.ssl.losses.mil_nce"' in html
    assert "../lessons/03_losses.html#def-ssl-losses-mil-nce" in html
    assert "_modules/vssl_nb/ssl/losses.html#mil_nce" in html
    source = pages[site / "_modules" / "vssl_nb" / "ssl" / "losses.html"].html
    assert re.search(r'id="mil_nce".*?<span class="k">def</span>', source, re.S)


def test_search_has_the_words(site):
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    found = json.loads(index[index.index("(") + 1 : index.rindex(")")])
    names = {name for group in found["objects"].values() for *_, name in group}
    assert "mil_nce" in names

    def pages_with(word, where):
        places = found[where].get(word, [])
        return {found["docnames"][i] for i in ([places] if isinstance(places, int) else places)}

    # words end as their stems do
    assert {"lessons/03_losses", "lessons/13_moquad"} <= pages_with("mil_nc", "terms")
    assert "lessons/05_memory" in pages_with("queue", "titleterms")
    assert "dossiers/released" in pages_with("queue", "terms")


def test_links_to_files_become_pages_of_files():
    files: set[Path] = set()
    links = "[a](../settings.ini) [b](.) [c](lessons/03_losses.ipynb#x) [d](#y)"
    text = markdown(NBS / "index.ipynb", links, files)
    assert (
        text
        == "[a](/files/settings.ini.md) [b](/index.ipynb) [c](/lessons/03_losses.ipynb#x) [d](#y)"
    )
    assert files == {ROOT / "settings.ini"}
    assert markdown(NBS / "index.ipynb", '<a id="b1"></a><a id="cell-id=b1"></a>', files) == "(b1)="


def test_a_link_that_leads_nowhere_fails_and_the_old_site_stays(tmp_path, monkeypatch, capfd):
    import make_site

    old = tmp_path / "site"
    old.mkdir()
    (old / "index.html").write_text("old")

    def broken(chosen, folder):
        folder.mkdir()
        cell = {
            "cell_type": "markdown",
            "metadata": {},
            "source": "# T\n\n[x](#nowhere) [y](gone.ipynb)",
        }
        nb = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
        (folder / "index.ipynb").write_text(json.dumps(nb))

    monkeypatch.setattr(make_site, "sources", broken)
    with pytest.raises(SystemExit):
        make([], old)
    said = capfd.readouterr().err
    assert "nowhere" in said and "gone.ipynb" in said
    assert (old / "index.html").read_text() == "old"


@pytest.fixture(scope="module")
def browser():
    chromium = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if not chromium:
        pytest.skip("needs Chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=["file", "http"])
def address(request, site):
    "As files, and served under a sub-path."
    if request.param == "file":
        yield site.as_uri()
        return

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    from_above = partial(Quiet, directory=str(site.parent.parent))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), from_above)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/under/a%20path"
    server.shutdown()
    server.server_close()


def test_in_a_browser(browser, address):
    tab = browser.new_page()
    errors, asked = [], []
    tab.on("console", lambda m: errors.append(m.text) if m.type in ("error", "warning") else None)
    tab.on("pageerror", lambda e: errors.append(str(e)))
    tab.on("request", lambda r: asked.append(r.url))
    # a search that is typed, and its first result
    tab.goto(f"{address}/index.html")
    tab.get_by_placeholder("Search").first.fill("mil_nce")
    tab.keyboard.press("Enter")
    found = tab.locator("ul.search li a")
    found.first.wait_for()
    place = "api/ssl.losses.html#vssl_nb.ssl.losses.mil_nce"
    assert any(place in a.get_attribute("href") for a in found.all())
    tab.goto(f"{address}/search.html?q=queue")
    tab.locator('ul.search li a[href*="05_memory.html"]').first.click()
    tab.wait_for_url("**/05_memory.html*")
    # formulas
    tab.goto(f"{address}/lessons/13_moquad.html")
    tab.locator("mjx-container svg").first.wait_for()
    tab.wait_for_function("""document.querySelectorAll('mjx-container').length
        >= document.querySelectorAll('.math').length""")
    assert not tab.locator("mjx-merror, [data-mjx-error]").count()
    # a slider, without a kernel
    tab.goto(f"{address}/lessons/03_losses.html")
    shown = tab.locator('img[alt="what the sliders show"]').first
    first = shown.get_attribute("src")
    tab.locator("input[type=range]").first.press("Home")
    assert shown.get_attribute("src") != first
    # a fold that is clicked, and one that is linked to
    checks = tab.locator("section#checks > details.fold")
    assert checks.get_attribute("open") is None
    tab.locator("section#checks > details.fold > summary .fold-note").click()
    assert checks.get_attribute("open") is not None
    tab.goto(f"{address}/index.html")
    tab.goto(f"{address}/lessons/13_moquad.html#answers")
    tab.wait_for_function('document.querySelector("#answers > details.fold").open')
    assert not tab.evaluate('document.querySelector("#checks > details.fold").open')
    # a phone: nothing is wider than the screen
    tab.set_viewport_size({"width": 390, "height": 800})
    for name in PAGES:
        tab.goto(f"{address}/{name}.html")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390, name
    assert not errors, errors
    assert not [u for u in asked if not u.startswith((address.rsplit("/under", 1)[0], "data:"))]
    tab.close()


def docstrings_of(file):
    "Name and text of each docstring of a module."
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, kinds) and ast.get_docstring(node):
            yield getattr(node, "name", file.stem), ast.get_docstring(node)


def complaints_of(text):
    "Of docutils, about a docstring, as the site shows it."
    stream = io.StringIO()
    text = "\n".join(map(escaped, text.splitlines()))
    publish_doctree(text, settings_overrides={"warning_stream": stream})
    return stream.getvalue()


def test_every_docstring_can_be_shown():
    "Those of pages that are not in PAGES, too: one warning and there is no site."
    assert "Unexpected indentation" in complaints_of("Optional:\n- one\n  and more")
    for file in sorted((ROOT / "vssl_nb").rglob("*.py")):
        for name, text in docstrings_of(file):
            assert not complaints_of(text), (file.name, name)


def test_formulas_in_tables_that_a_cell_prints(site):
    for name in PAGES:
        html = (site / name).with_suffix(".html").read_text(encoding="utf-8")
        raw = re.findall(r"<t[dh][^>]*>(?:<p>)?[^<]*\$[^<$]+\$", html)
        assert not raw, (name, raw)
    table = (site / "lessons/05_memory.html").read_text(encoding="utf-8")
    assert re.search(r'<th[^>]*><p><span class="math[^>]*>\\\(m\\\)', table)
