"""The course site in `_docs/`: notebooks with their stored outputs, and the API, made by Sphinx.

    python docs/make_site.py [nbs/lessons/03_losses.ipynb …]

If pages are named, only these are made; of the others, the titles and headings. conf.py says how
Sphinx shows them.
"""

import ast
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from textwrap import shorten

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
SITE = ROOT / "_docs"
sys.path.insert(0, str(ROOT / "tests"))
from house import EXPORT, LIBRARY, NBS, cells, exports, is_exported, modules, notebooks, sections  # noqa: E402

RESULTS = ROOT / "results" / "README.md"
PICTURES = ROOT / "results" / "pictures.md"
# pages as they are
TEXTS = [RESULTS, PICTURES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
LINK = re.compile(r"\]\((?!#|\w+:)([^)\s#]+)")
ANCHORS = re.compile(r'^(?:<a id="[^"]+"></a>)+$', re.M)
FENCE = re.compile(r"^```.*?^```", re.M | re.S)
DIRECTIVE = re.compile(r"^#\|\s*(\w+).*\n?", re.M)
FOLD = re.compile(r"^#\|\s*fold\b", re.M)  # its code is folded
SILENT = re.compile(r"^#\|\s*echo:\s*false\b", re.M)  # its output is shown, its code is not


def markdown(page: Path, text: str, files: set[Path]) -> str:
    "Anchors and links as MyST wants them; what is linked to and is no page is added to `files`."

    def anchors(m: re.Match) -> str:
        ids = [i for i in re.findall(r'id="([^"]+)"', m[0]) if "=" not in i]
        return "\n".join(f"({i})=" for i in ids)

    def link(m: re.Match) -> str:
        to = (page.parent / m[1]).resolve()
        if to == NBS:
            to = NBS / "index.ipynb"
        if not to.exists() or not to.is_relative_to(ROOT):
            return m[0]  # Sphinx will say so
        if to.suffix not in {".ipynb", ".png"} and to not in TEXTS:
            files.add(to)
        return f"](/{place(to)}"

    return LINK.sub(link, ANCHORS.sub(anchors, text))


def place(path: Path) -> Path:
    "Where a file of the repository stands among the sources."
    if path.is_relative_to(NBS):
        return path.relative_to(NBS)
    if path == RESULTS:
        return Path("results.md")
    return Path(path.name) if path in TEXTS else Path("files", f"{path.relative_to(ROOT)}.md")


def slug(heading: str) -> str:
    "The anchor of a heading, as JupyterLab writes it."
    return heading.replace(" ", "-")


def github_anchors(text: str) -> str:
    "Headings with the anchors that GitHub gives them, too: our links to texts are written for it."

    def anchor(m: re.Match) -> str:
        name = re.sub(r"[^\w\- ]", "", m[1].lower()).replace(" ", "-")
        return f"({name})=\n{m[0]}"

    return re.sub(r"^#{2,6} (.+)$", anchor, text, flags=re.M)


def definitions(source: str) -> dict[str, ast.stmt]:
    "The statements of some code that define names, by name."
    defined: dict[str, ast.stmt] = {}
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined[node.name] = node
        if isinstance(node, ast.AnnAssign):
            defined[ast.unparse(node.target)] = node
        if isinstance(node, ast.Assign):
            defined |= {ast.unparse(t): node for t in node.targets}
    return defined


def public(module: str) -> dict[str, ast.stmt]:
    "The public names of a module, in the order of its source."
    source = (LIBRARY / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    return {
        name: node
        for name, node in definitions(source).items()
        if re.fullmatch(r"[A-Za-z]\w*", name)
    }


def label(module: str, name: str, node: ast.stmt) -> str:
    """The anchor of a definition in the site; labels know no capitals, and there are `Plan` and
    `plan`.
    """
    kind = {ast.FunctionDef: "def", ast.ClassDef: "class"}.get(type(node), "value")
    return f"{kind}-{module}.{name}".lower()


def cell(text: str) -> dict:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


HEADING = re.compile(r"^#+ .*|^\(\S+\)=$", re.M)
MAGIC = re.compile(r"^[%!].*", re.M)


def fold_prompt(code: str) -> str:
    "What stands on the bar over code that is folded: the names that it defines."
    names = [name for name in definitions(MAGIC.sub("", code)) if name.isidentifier()]
    if not names:
        return "Code"
    return f"Code: {shorten(', '.join(names), 70, placeholder=' …')}"


def shown_code(c: dict, module: str | None) -> dict | None:
    "A cell of code with what MyST-NB is to do with it; None where the site does not have it."
    source = c["source"]
    code = DIRECTIVE.sub("", source)
    if "hide" in DIRECTIVE.findall(source) or not (code.strip() or c["outputs"]):
        return None
    tags = []
    if SILENT.search(source):
        tags = ["remove-input"]
    elif FOLD.search(source):
        prompt = fold_prompt(code)
        tags = ["hide-input"]
        c["metadata"]["mystnb"] = {"code_prompt_show": prompt, "code_prompt_hide": prompt}
    if module:
        tags = ["export", *(tag for tag in tags if tag == "hide-input")]
    if tags:
        c["metadata"]["tags"] = tags
    return c | {"source": code.strip("\n")}


def labels(module: str, code: str) -> str:
    "Anchors for what a cell of code adds to the public names of its module."
    names = public(module)
    lines = []
    for name, node in definitions(code).items():
        if name in names:
            lines.append(f"({label(module, name, node)})=")
    return "\n".join(lines)


def page(path: Path, whole: bool, files: set[Path]) -> str:
    "A notebook as the site shows it: without what is hidden, and with a name for every definition."
    made: list[dict] = []
    here = list(exports(path))  # the modules it makes, its own first
    for c in cells(path):
        c.pop("id", None)
        if c["cell_type"] == "markdown":
            text = markdown(path, c["source"], files)
            if not whole:
                text = "\n\n".join(HEADING.findall(FENCE.sub("", text)))
            made.append(cell(text))
            continue
        exported = EXPORT.match(c["source"])
        module = exported[1] or here[0] if exported else None
        shown = shown_code(c, module)
        if shown is None:
            continue
        anchors = labels(module, shown["source"]) if module else ""
        if anchors:
            made.append(cell(anchors))
        for output in shown["outputs"]:
            printed = output.get("data", {})
            if "text/markdown" in printed:
                text = "".join(printed["text/markdown"])
                printed["text/markdown"] = markdown(path, text, files)
        if whole:
            made.append(shown)
    if here and whole:
        made.insert(1, cell("API: " + ", ".join(f"[](/api/{module}.rst)" for module in here)))
    if not whole:
        made.insert(1, cell("*Headings alone: `make site` without PAGES makes all of it.*"))
    if path == NBS / "index.ipynb":
        made.append(cell(sidebar()))
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": made, "metadata": kernel, "nbformat": 4, "nbformat_minor": 4})


def title(path: Path) -> str:
    "The title of a page, behind its number if it is a lesson."
    text = cells(path)[0]["source"].split("\n")[0].lstrip("# ")
    return f"{path.name[:2]} {text}" if path.name[:2].isdigit() else text


def sidebar() -> str:
    "The sections of sidebar.yml, then what is no notebook, as Sphinx wants them."

    def tree(caption: str, lines: list[str]) -> str:
        return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *lines, "```"])

    def entry(page: Path) -> str:
        return f"{title(page)} </{place(page)}>"

    trees = [
        tree(caption or "Find your way", [entry(p) for p in pages if p.stem != "index"])
        for caption, pages in sections().items()
    ]
    return "\n\n".join([*trees, tree("Reference", ["api/index", *(place(p).stem for p in TEXTS)])])


def escaped(text: str) -> str:
    "Plain text with `code`, as our docstrings are, in reStructuredText."
    parts = re.split(r"`+([^`]+)`+", text)
    parts[::2] = [re.sub(r"([*_|\\])", r"\\\1", p) for p in parts[::2]]
    parts[1::2] = [f"\\ ``{p.strip()}``\\ " for p in parts[1::2]]
    return "".join(parts)


def api(module: str, pages: list[Path]) -> str:
    """The API page of a module: what autodoc is to write, and links to the pages whose cells it is
    made of.
    """
    name = f"vssl_nb.{module}"
    parts = [
        f"{module}\n{'=' * len(module)}",
        f".. automodule:: {name}",
        f".. py:currentmodule:: {name}",
    ]
    taught: dict[str, str] = {}  # name -> label
    for path in pages:
        parts.insert(2, f"Page: :doc:`{title(path)} </{place(path).with_suffix('')}>`")
        here = definitions("\n".join(MAGIC.sub("", c) for c in exports(path)[module]))
        taught |= {n: label(module, n, node) for n, node in here.items()}
    for defined, node in public(module).items():
        if isinstance(node, ast.FunctionDef):
            lines = [f".. autofunction:: {name}.{defined}"]
        elif isinstance(node, ast.ClassDef):
            lines = [f".. autoclass:: {name}.{defined}", "   :members:"]
        elif value := getattr(node, "value", None):
            lines = [f".. py:data:: {defined}", f"   :value: {shorten(ast.unparse(value), 90)}"]
        else:
            continue
        if defined in taught:
            lines += ["", f"   :ref:`where it is taught <{taught[defined]}>`"]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def api_index(names: list[str]) -> str:
    "The modules by folder, each with its sentence."
    rows = []
    for module in names:
        source = (LIBRARY / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
        sentence = (ast.get_docstring(ast.parse(source)) or "").split("\n")[0]
        rows.append(f"* :doc:`{module}`: {escaped(sentence)}" if sentence else f"* :doc:`{module}`")
    tree = "\n   ".join([".. toctree::", ":hidden:", "", *(f"{m} <{m}>" for m in names)])
    return "\n\n".join(["API\n===", "All names: :ref:`genindex`.", "\n".join(rows), tree]) + "\n"


def listing(path: Path, files: set[Path]) -> str:
    "A file of the repository as a page; a folder as a list of its files."
    head = f"---\norphan:\n---\n# {path.relative_to(ROOT)}\n\n"
    if path.is_file():
        language = {".py": "python", ".ini": "ini", ".sh": "sh"}.get(path.suffix, "text")
        return f"{head}``````{language}\n{path.read_text(encoding='utf-8')}\n``````\n"
    inside = sorted(p for p in path.iterdir() if p.is_file())
    files.update(inside)
    return head + "\n".join(f"- [](/{place(p)})" for p in inside) + "\n"


def sources(chosen: list[Path], folder: Path) -> None:
    "Everything that Sphinx reads."

    def write(name: str | Path, text: str) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")

    files: set[Path] = set()
    made_of: dict[str, list[Path]] = {}  # module -> its pages, of those that are chosen
    for path in chosen:
        for module in exports(path):
            made_of.setdefault(module, []).append(path)
    if chosen == notebooks():
        by_hand = [
            path.relative_to(LIBRARY).with_suffix("") for path in modules() if not is_exported(path)
        ]
        made_of |= {".".join(path.parts): [] for path in by_hand}
    for path in notebooks():
        write(place(path), page(path, path in chosen, files))
    for path in TEXTS:
        text = markdown(path, path.read_text(encoding="utf-8"), files)
        write(place(path), github_anchors(text) if path in (RESULTS, PICTURES) else text)
    for module, pages in made_of.items():
        write(f"api/{module}.rst", api(module, pages))
    write("api/index.rst", api_index(sorted(made_of)))
    written: set[Path] = set()
    while todo := files - written:  # a folder brings in its files
        for path in todo:
            write(place(path), listing(path, files))
        written |= todo
    shutil.copytree(NBS / "images", folder / "images")


def make(paths: list[Path], site: Path = SITE) -> None:
    """The site in a folder of its own, which is replaced only when all of it was made without a
    warning.
    """
    from sphinx.cmd.build import build_main

    os.environ |= {"JUPYTER_PLATFORM_DIRS": "1"}
    with tempfile.TemporaryDirectory() as work:
        sources(paths, Path(work, "sources"))
        options = [
            "--quiet",
            "--fail-on-warning",
            "--keep-going",
            "-c",
            str(DOCS),
            "-d",
            f"{work}/read",
        ]
        if build_main([*options, f"{work}/sources", f"{work}/site"]):
            sys.exit("no site: mend what the warnings above say")
        Path(work, "site", ".buildinfo").unlink(missing_ok=True)
        shutil.rmtree(site, ignore_errors=True)
        shutil.move(f"{work}/site", site)


if __name__ == "__main__":
    make([Path(p).resolve() for p in sys.argv[1:]] or notebooks())
    print(SITE / "index.html")
