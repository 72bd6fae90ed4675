"""Every page as a reader meets it, in JupyterLab: a browser runs all cells and moves all widgets.

    python tests/lab.py [--reader] [--jobs 2] [nbs/lessons/03_losses.ipynb …]
    python tests/lab.py --look  # open the pages in a wide and in a narrow window, and run nothing

The pages are copied first, so that nothing gets dirty. One line a page, its problems below it, and
a screenshot from top to bottom in `_lab/`. A problem is an error, a message in the browser's
console, a picture that is blank or missing, maths that stayed text, a page wider than its panel
(as it is opened in a narrow window, too), a link that leads nowhere, or a widget that does nothing
or takes over 3 seconds; a line with "note" is none.
"""

import argparse
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from urllib.parse import quote
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = Path(__file__).with_suffix(".js")
# seconds from a move to its picture, on a machine that does nothing else
SLOW, TOO_SLOW, LATE = 0.3, 3.0, 60.0
# pixels of the window; in the narrow one a page has about 670 beside JupyterLab's list of files
WIDE, NARROW, HEIGHT = 1400, 1100, 900
# their tables have the columns of papers and reports, and are scrolled in a narrow window
LOOKED_UP = ("nbs/dossiers/", "nbs/library/")


def of_make() -> dict:
    "The settings of notebooks that `make lab` writes."
    written = re.search(r"@echo '(\{.+\})'", (ROOT / "Makefile").read_text())[1]
    return json.loads(written)["@jupyterlab/notebook-extension:tracker"]


# JupyterLab's own settings: no questions about news, no saving, and kernels end with their page
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "docmanager-extension/plugin": {"autosave": False},
    "notebook-extension/tracker": {"kernelShutdown": True} | of_make(),
}
# JupyterLab looks for `#place` before the pictures of a page that it opens are there: a reader who
# clicks again gets there
CLICKS, AGAIN = 3, "reached only when clicked again: "
# messages of JupyterLab about itself, and why they say nothing about a page
ALLOWED: dict[str, str] = {}


def made(folder: str, names: list[str]) -> set[str]:
    """What was made, not written: no part of what a reader opens. vssl_nb/runs and
    vssl_nb/data/toy.py are.
    """
    everywhere = shutil.ignore_patterns(".ipynb_checkpoints", "__pycache__")(folder, names)
    if not (Path(folder) / "nbs").is_dir():
        return everywhere
    return everywhere | shutil.ignore_patterns(
        ".git",
        ".venv",
        ".*_cache",
        "*.egg-info",
        "runs",
        "_docs",
        "_lab",
        "_proc",
        "dist",
        "build",
        "carry",
        "toy",
    )(folder, names)


@dataclass
class Page:
    "What was found on one page."

    path: str
    cells: int = 0
    seconds: float = 0
    widgets: int = 0
    slowest: float = 0
    links: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        moves = f", slowest move {self.slowest:.2f} s" if self.widgets else ""
        verdict = "FAIL" if self.problems else "ok"
        line = (
            f"{verdict:4}  {self.path}: {self.cells} cells  {self.seconds:.1f} s  "
            f"{self.widgets} widgets{moves}  {self.links} links  {len(self.problems)} problems"
        )
        return "\n      ".join([line, *self.problems, *(f"note: {n}" for n in self.notes)])


def pages_of(root: Path) -> list[str]:
    "All notebooks below nbs/, in reading order, the page first that 'make lab' opens."
    hidden = {".ipynb_checkpoints", "_proc"}
    found = sorted(p for p in (root / "nbs").rglob("*.ipynb") if not hidden & {*p.parts})
    return [
        str(p.relative_to(root))
        for p in sorted(found, key=lambda p: p.name != Path(start_page()).name)
    ]


def start_page() -> str:
    "Where `make lab` opens."
    return re.search(r"--LabApp.default_url=(\S+)", (ROOT / "Makefile").read_text())[1]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


FOLDERS = (
    "JUPYTER_CONFIG_DIR",
    "JUPYTER_DATA_DIR",
    "JUPYTER_RUNTIME_DIR",
    "JUPYTERLAB_SETTINGS_DIR",
    "JUPYTERLAB_WORKSPACES_DIR",
    "IPYTHONDIR",
)


def environment(there: Path, reader: bool, copies: int) -> dict[str, str]:
    "What JupyterLab and its kernels see: nothing of the settings of whoever runs this."
    env = os.environ | {name: str(there / name) for name in FOLDERS}
    # kernels beside each other share the cores: threads that spin for a core cost several times
    # the work
    env.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // copies)))
    env.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    env.pop("IN_TEST", None)
    if not reader:
        env["IN_TEST"] = "1"
    return env


def lab_command(there: Path, port: int) -> list[str]:
    return [
        str(Path(sys.executable).with_name("jupyter")),
        "lab",
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        "--IdentityProvider.token=",
        f"--ServerApp.root_dir={there / 'root'}",
        "--expose-app-in-browser",
        f"--LabApp.default_url={start_page().replace('/tree/', '/tree/0/')}",
    ]


@contextmanager
def jupyter(root: Path, reader: bool, copies: int):
    "A JupyterLab of its own over copies of `root`: its address."
    with tempfile.TemporaryDirectory(prefix="lab-") as temp:
        there = Path(temp)
        for n in range(copies):
            shutil.copytree(root, there / "root" / str(n), ignore=made)
        settings = there / "JUPYTERLAB_SETTINGS_DIR" / "@jupyterlab"
        for name, values in SETTINGS.items():
            file = settings / f"{name}.jupyterlab-settings"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(values))
        env = environment(there, reader, copies)
        trust(there / "root", env)
        port = free_port()
        log = there / "log"
        with log.open("wb") as f:
            server = subprocess.Popen(
                lab_command(there, port),
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=f,
                stderr=f,
            )
        try:
            address = f"http://127.0.0.1:{port}"
            wait_for_server(server, address, log)
            yield address
        finally:
            server.terminate()  # ends the kernels too
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()


def trust(root: Path, env: dict[str, str]) -> None:
    "As `make lab` does: JupyterLab strips what it does not trust, pictures of tables among it."
    pages = [p for p in root.rglob("*.ipynb") if p.is_file()]
    command = [Path(sys.executable).with_name("jupyter"), "trust", *pages]
    subprocess.run(command, env=env, capture_output=True, check=True)


def wait_for_server(server: subprocess.Popen, address: str, log: Path, seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            return urlopen(f"{address}/api/status", timeout=5).close()
        except OSError:
            if server.poll() is not None or time.monotonic() > until:
                sys.exit(f"JupyterLab does not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.2)


class Reader:
    "One tab of a browser over one copy of the pages."

    def __init__(self, browser, address: str, copy: int, asked: argparse.Namespace):
        self.address, self.copy = address, copy
        self.screens, self.look = asked.screens, asked.look
        self.patience = 600.0 if asked.reader else 240.0
        self.tab = browser.new_context(viewport={"width": WIDE, "height": HEIGHT}).new_page()
        self.tab.add_init_script(path=SCRIPT)
        self.console: list[str] = []
        self.tab.on("console", self.hear)
        self.tab.on("pageerror", lambda e: self.console.append(str(e)))
        self.tab.on("dialog", lambda d: d.accept())  # "leave the page?"
        self.known: dict[tuple[str, str], str] = {}  # what is wrong with a link, by its target

    def hear(self, message) -> None:
        if message.type != "error":
            return
        text = f"{message.text} {message.location.get('url', '')}"
        if not any(re.search(pattern, text) for pattern in ALLOWED):
            self.console.append(text[:300])

    def js(self, expression: str, *values):
        return self.tab.evaluate(f"(v) => lab.{expression}", list(values))

    def wait(self, condition: str, *values, seconds: float = 30) -> bool:
        from playwright.sync_api import TimeoutError

        given = dict(arg=list(values), timeout=seconds * 1000, polling=50)
        try:
            self.tab.wait_for_function(f"(v) => {condition}", **given)
        except TimeoutError:
            return False
        return True

    def local(self, path: str) -> str:
        return f"{self.copy}/{path}"

    def read(self, path: str) -> Page:
        "Open a page, do all that a reader can do there, and say what was wrong."
        page = Page(path)
        begun = time.monotonic()
        self.console.clear()
        try:
            if self.open(page):
                self.measure(page)
                if not self.look:
                    self.use(page)
        except Exception as e:  # such as a tab that crashed: of this page alone
            lines = str(e).splitlines() or [type(e).__name__]
            page.problems.append(f"the browser: {lines[0]}")
        page.problems += [f"console: {text}" for text in dict.fromkeys(self.console)]
        page.seconds = time.monotonic() - begun
        self.end_kernels()
        return page

    def open(self, page: Page) -> bool:
        self.tab.goto(f"{self.address}/lab/tree/{quote(self.local(page.path))}?reset")
        if self.wait("window.jupyterapp && lab.take(v[0])", self.local(page.path), seconds=90):
            return True
        said = self.tab.evaluate("() => window.jupyterapp ? lab.dialogs() : []")
        page.problems.append(f"does not open, or its kernel does not start {said or ''}".strip())
        return False

    def measure(self, page: Page) -> None:
        "Is all of the page inside of its panel, as it is stored, in a wide and in a narrow window?"
        self.lay_out()
        for width in WIDE, NARROW:
            self.tab.set_viewport_size({"width": width, "height": HEIGHT})
            self.js("scroll(0)")  # two frames later it is laid out anew
            scrolled = width == NARROW and page.path.startswith(LOOKED_UP)
            found = page.notes if scrolled else page.problems
            found += [f"{self.cell(i)}: at {width} px {text}" for i, text in self.js("wide()")]
        self.tab.set_viewport_size({"width": WIDE, "height": HEIGHT})

    def lay_out(self) -> None:
        "All of the page, also what is far from where the reader is."
        self.tab.add_style_tag(content=".jp-Cell { content-visibility: visible !important }")
        self.wait("lab.rendered()", seconds=15)

    def use(self, page: Page) -> None:
        self.run(page)
        self.move_widgets(page)
        self.follow_links(page)
        self.inspect(page)
        self.photograph(page.path)

    def menu(self, entry: str) -> None:
        self.tab.click('.lm-MenuBar-item:has-text("Run")')
        self.tab.locator(".lm-Menu-item").get_by_text(entry, exact=True).click()

    def run(self, page: Page) -> None:
        page.cells = self.js("size()")
        below, entry = self.js("unrun()"), "Run All Cells"
        for _ in range(8):  # Run All stops at an error; what is below it is looked at as well
            if not below:
                break
            self.menu(entry)
            self.wait("lab.started(v[0])", below[0])
            if not self.wait("lab.done()", seconds=self.patience):
                page.problems.append(f"still running after {self.patience:.0f} s")
                return
            if self.js("died()"):
                page.problems.append("the kernel died")
                return
            before, below, entry = below, self.js("unrun()"), "Run Selected Cell and All Below"
            if below == before:
                break
            if below:
                self.js("select(v[0])", below[0])

    def move_widgets(self, page: Page) -> None:
        controls = self.js("controls()")
        page.notes += [f"{self.cell(i)}: {text}" for i, text in controls["text"]]
        page.widgets = len(controls["found"])
        warm: set[int] = set()  # cells that have drawn once, which takes longer
        for control in controls["found"]:
            # another widget has replaced it
            if self.js("value(v[0])", control["n"]) is None:
                continue
            if not self.move_widget(page, control, warm):
                return  # the kernel is still at it

    def move_widget(self, page: Page, control: dict, warm: set[int]) -> bool:
        "Move one widget everywhere, and say what was wrong. False: nothing more can be moved."
        where = f"{self.cell(control['cell'])}: widget {control['label']!r}"
        moved = different = False
        seconds: list[float] = []
        failed: dict[str, str] = {}  # error -> the first action that led to it
        for action in self.actions(control):
            result = self.move(control, action)
            if result.get("late"):
                page.problems.append(f"{where} shows nothing for {LATE:.0f} s ({action})")
                return False
            if not result["changed"] and control["kind"] != "click":
                continue
            moved = True
            for text in result["errors"]:
                failed.setdefault(text, action)
            if not result["redrawn"] and result["same"]:
                page.problems.append(f"{where} does nothing ({action})")
                break
            different |= not result["same"]
            if control["cell"] in warm:
                seconds.append(result["seconds"])
            warm.add(control["cell"])
        page.problems += [f"{where}, {action}: {text}" for text, action in failed.items()]
        if not moved:
            page.problems.append(f"{where} cannot be moved")
        elif not different and not failed:
            page.notes.append(f"{where} shows the same wherever it is")
        self.judge_speed(page, where, max(seconds, default=0))
        return True

    @staticmethod
    def judge_speed(page: Page, where: str, slowest: float) -> None:
        page.slowest = max(page.slowest, slowest)
        if slowest > TOO_SLOW:
            page.problems.append(f"{where} takes {slowest:.1f} s")
        elif slowest > SLOW:
            page.notes.append(f"{where} is slow, {slowest:.2f} s")

    def actions(self, control: dict) -> list[str]:
        "Keys, or the options of a choice: one step and back, both ends, and back to where it was."
        n = control["n"]
        if control["kind"] == "slider":
            low, now, high = self.js("ends(v[0])", n)
            step = ["ArrowRight", "ArrowLeft"] if now < high else ["ArrowLeft", "ArrowRight"]
            home = self.js("readout(v[0])", n)
            return [*step, "End", "Home", *([f"={home}"] if home else [])]
        if control["kind"] == "choice":
            first = int(self.js("value(v[0])", n).split(",")[0] or 0)
            others = [str(i) for i in range(min(control["options"], 12)) if i != first]
            return [*others, str(first)]
        return ["ArrowUp", "ArrowDown"] if control["kind"] == "number" else ["click", "click"]

    def move(self, control: dict, action: str) -> dict:
        node = self.tab.locator(f'[data-lab-control="{control["n"]}"]')
        node.scroll_into_view_if_needed()
        self.js("watch(v[0])", control["n"])
        if action == "click":
            node.click()
        elif control["kind"] == "choice":
            node.select_option(index=int(action))
        elif action.startswith("="):
            typed = self.tab.locator(".jupyter-widgets", has=node).last.locator(".widget-readout")
            typed.fill(action[1:])
            typed.press("Enter")
        else:
            node.focus()
            node.press(action)
        if not self.wait("lab.settled()", seconds=LATE):
            return {"late": True}
        return self.js("moved()")

    def cell(self, i: int) -> str:
        return f"cell {i} ({self.js('first(v[0])', i)})" if i >= 0 else "page"

    def follow_links(self, page: Page) -> None:
        "Ask for every target; click on all but those that name a page alone, and on one of these."
        self.tab.evaluate("() => jupyterapp.commands.execute('notebook:expand-all-headings')")
        links = self.js("links()")
        page.links = len(links)
        opened = False
        again = []
        for link in links:
            if not link["local"]:
                continue
            target = link["path"], link["anchor"]
            plain = not link["anchor"] and str(link["path"]).endswith(".ipynb")
            if target not in self.known or plain and not opened:
                self.known[target] = self.follow(link, click=not plain or not opened)
                opened |= plain
            wrong = self.known[target]
            if wrong.startswith(AGAIN):
                again.append(wrong.removeprefix(AGAIN))
            elif wrong:
                page.problems.append(f"{self.cell(link['cell'])}: link {link['text']!r} {wrong}")
        if again:
            page.notes.append(AGAIN + ", ".join(dict.fromkeys(again)))

    def follow(self, link: dict, click: bool) -> str:
        path, anchor = link["path"], link["anchor"]
        if path is None:
            return "leads nowhere"
        short = path.split("/", 1)[-1]
        said = self.tab.request.get(f"{self.address}/api/contents/{quote(path)}?content=0")
        if said.status != 200:
            return f"is dead: there is no {short}"
        if said.json()["type"] == "directory":
            return "names a folder, which JupyterLab refuses to open"
        if not click:
            return ""
        here = f"{short}#{anchor}" if anchor else short
        for clicks in range(CLICKS):
            self.tab.locator(f'[data-lab-link="{link["n"]}"]').first.click()
            if not self.wait("lab.opened(v[0])", path):
                wrong = f"does not open {short}, {self.js('dialogs()')}"
            elif not anchor or self.wait("lab.arrived(v[0])", anchor, seconds=4 if clicks else 2):
                wrong = AGAIN + here if clicks else ""
            elif not self.wait("lab.laidOut()", seconds=60) or not self.js("present(v[0])", anchor):
                wrong = f"is dead: there is no {here}"
            else:
                wrong = f"opens {short}, but does not lead to #{anchor}"
            self.js("show()")  # closing it now would cut off its kernel's first answers
            if not wrong or wrong.startswith(("is dead", AGAIN)):
                break
        return wrong

    def inspect(self, page: Page) -> None:
        self.lay_out()
        seen = self.js("problems()")
        page.problems += [f"{self.cell(i)}: {text}" for i, text in seen["found"]]
        page.notes += [f"{self.cell(i)}: {text}" for i, text in seen["notes"]]
        page.problems += [f"a question: {text}" for text in self.js("dialogs()")]

    def photograph(self, path: str) -> None:
        from PIL import Image

        self.tab.set_viewport_size({"width": WIDE, "height": 2400})
        view, y, shadow = self.js("scroll(0)"), 0, 8  # of the toolbar above
        whole = Image.new("RGB", (int(view["width"]), int(min(view["total"], 60_000))), "white")
        # which changes while pictures are laid out
        while y < min(whole.height, view["total"]):
            view = self.js("scroll(v[0])", max(y - shadow, 0))
            box = {k: view[k] for k in ("x", "y", "width", "height")}
            part = Image.open(io.BytesIO(self.tab.screenshot(clip=box)))
            cut = shadow if y else 0
            whole.paste(part.crop((0, cut, *part.size)), (0, int(view["top"]) + cut))
            y = int(view["top"] + view["height"])
        self.tab.set_viewport_size({"width": WIDE, "height": HEIGHT})
        file = (self.screens / Path(path).relative_to("nbs")).with_suffix(".png")
        file.parent.mkdir(parents=True, exist_ok=True)
        whole.crop((0, 0, whole.width, min(y, whole.height))).save(file)

    def end_kernels(self) -> None:
        api = f"{self.address}/api/sessions"
        xsrf = {c["name"]: c["value"] for c in self.tab.context.cookies()}.get("_xsrf", "")
        self.tab.goto("about:blank")
        for session in self.tab.request.get(api).json():
            if session["path"].startswith(f"{self.copy}/"):
                self.tab.request.delete(f"{api}/{session['id']}", headers={"X-XSRFToken": xsrf})

    def starts(self) -> str:
        "What is wrong with the page that `make lab` opens."
        self.tab.goto(self.address)
        path = start_page().split("/tree/")[1]
        if not self.wait("window.jupyterapp && lab.opened(v[0])", self.local(path), seconds=90):
            return f"make lab does not open {path}"
        if not self.wait("document.querySelector('.jp-NotebookPanel .jp-RenderedMarkdown h1')"):
            return f"{path} is not rendered"
        return ""


def work(
    n: int, address: str, todo: Queue, done: Queue, asked: argparse.Namespace, start: bool
) -> None:
    from playwright.sync_api import sync_playwright

    try:
        with sync_playwright() as p:
            browser = p.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            reader = Reader(browser, address, n, asked)
            wrong = reader.starts() if start else ""
            if wrong:
                done.put(Page("make lab", problems=[wrong]))
            while True:
                done.put(reader.read(todo.get_nowait()))
    except Empty:
        pass
    except Exception as e:
        done.put(Page("the browser", problems=[f"{type(e).__name__}: {e}"]))
    finally:
        done.put(None)


def main() -> int:
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    parser.add_argument(
        "pages", nargs="*", help="such as nbs/lessons/03_losses.ipynb; without any, all"
    )
    parser.add_argument(
        "--reader", action="store_true", help="without IN_TEST: train as a reader does"
    )
    parser.add_argument(
        "--look", action="store_true", help="run nothing: is any page wider than its panel?"
    )
    parser.add_argument("--jobs", type=int, default=2, help="pages at a time")
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder that has nbs/")
    parser.add_argument("--screens", type=Path, default=ROOT / "_lab", help="where screenshots go")
    asked = parser.parse_args()
    if not shutil.which("chromium"):
        print("make test-lab needs the package chromium (apt install chromium).", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that JupyterLab ends too
    root = asked.root.resolve()
    pages = [os.path.relpath((root / p).resolve(), root) for p in asked.pages] or pages_of(root)
    missing = [p for p in pages if not (root / p).is_file()]
    if missing:
        print(f"There is no page {', '.join(missing)}.", file=sys.stderr)
        return 2
    failed = passed = 0
    for page in read_all(root, pages, asked):
        print(page, flush=True)
        if page.problems:
            failed += 1
        else:
            passed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or passed < len(pages) else 0


def read_all(root: Path, pages: list[str], asked: argparse.Namespace):
    "Every page as it was read, several at a time, each by a browser of its own."
    todo: Queue = Queue()
    done: Queue = Queue()
    for page in pages:
        todo.put(page)
    jobs = min(asked.jobs, len(pages))
    with jupyter(root, asked.reader, jobs) as address:
        for n in range(jobs):
            first = n == 0 and (root / "nbs" / Path(start_page()).name).exists()
            given = (n, address, todo, done, asked, first)
            threading.Thread(target=work, args=given, daemon=True).start()
        while jobs:
            page = done.get()
            if page is None:  # a browser has no page left
                jobs -= 1
            else:
                yield page


if __name__ == "__main__":
    sys.exit(main())
