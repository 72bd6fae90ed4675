"How Sphinx shows the pages that make_site.py hands it."

import importlib.util
import re
import sys
import warnings
from configparser import ConfigParser
from pathlib import Path

from docutils import nodes
from fastcore.docments import docments

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))
from make_site import escaped  # noqa: E402

config = ConfigParser(delimiters=["="])
config.read(DOCS.parent / "settings.ini", encoding="utf-8")
cfg = config["DEFAULT"]

project, author, copyright = cfg["title"], cfg["author"], cfg["copyright"]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "sphinx.ext.mathjax"]
language = "en"
smartquotes = False  # '--data' is an option, no dash

# pages
nb_execution_mode = "off"  # what is stored is shown
nb_render_markdown_format = "myst"  # tables and formulas in outputs
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 6
myst_heading_slug_func = "make_site.slug"

# API
# in what a class inherits from matplotlib
warnings.filterwarnings("ignore", "Unknown section")
autodoc_inherit_docstrings = False
autodoc_preserve_defaults = True
maximum_signature_line_length = 80
add_module_names = False
toc_object_entries_show_parents = "hide"
viewcode_line_numbers = True

# look; nothing is loaded from elsewhere
html_theme = "furo"
html_title = cfg["title"]
html_favicon = "icon.svg"
html_static_path = ["style.css", "page.js"]
html_css_files = ["style.css"]
html_js_files = ["page.js"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
# one script with all of MathJax's letters in it; of its package nothing else is needed
package = importlib.util.find_spec("sphinx-mathjax-offline").origin
mathjax = Path(package).parent / "static/mathjax/tex-svg-full.js"
html_static_path.append(str(mathjax))
mathjax_path = mathjax.name
mathjax3_config = {"options": {"enableMenu": False}}

FOLDED = re.compile(r"(checks|answers?)\b", re.I)


def document(app, what, name, thing, options, lines):
    "The comments beside parameters, as nbdev reads them, below the docstring."
    lines[:] = [escaped(line) for line in lines]
    if what not in ("function", "method", "class"):
        return
    made_here = getattr(thing.__init__ if what == "class" else thing, "__module__", "") or ""
    # of what is inherited there is no source to read
    if not made_here.startswith("vssl_nb"):
        return
    said = {k: v for k, v in docments(thing, full=False).items() if v and k != "self"}
    lines.append("")
    for parameter, text in said.items():
        field = "returns" if parameter == "return" else f"param {escaped(parameter)}"
        lines.append(f":{field}: {escaped(' '.join(text.split()))}")


def fold(app, doctree, page):
    "Checks and answers are closed until somebody wants them; page.js opens what a link leads to."
    for section in list(doctree.findall(nodes.section)):
        title, *inside = section.children
        if not FOLDED.match(title.astext()):
            continue

        def html(text):
            return nodes.raw("", text, format="html")

        parts = "1 part is" if len(inside) == 1 else f"{len(inside)} parts are"
        note = f'<span class="fold-note">{parts} folded: click to open</span></summary>'
        section[:] = [
            html('<details class="fold"><summary>'),
            title,
            html(note),
            *inside,
            html("</details>"),
        ]


def describe(app, doctree, page):
    "Pictures without words: a name of a file is none."
    for image in doctree.findall(nodes.image):
        image.setdefault("alt", "what the cell above shows")


def setup(app):
    app.connect("autodoc-process-docstring", document)
    app.connect("doctree-resolved", fold)
    app.connect("doctree-resolved", describe)
