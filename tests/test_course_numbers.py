"""The numbers of the one experiment in README, lessons and how-tos are those of its file.

Nothing here uses `course`: medians and differences are computed from the records."""

import html
import itertools
import json
import re
import statistics

import pytest
from house import NBS, ROOT, cells, name_of, notebooks
from r1_in_prose import interval_of, plain, read, read_table, stated, without_source

from vssl_nb.app.course import LESSONS as ADDED
from vssl_nb.app.course import SEES, WRITTEN

RECORDS = json.loads((ROOT / "results" / "experiment.json").read_text(encoding="utf-8"))["records"]
VIEWS = {words: view for view, words in SEES.items()} | {"": "rgb", "both": "rgb"}
ROWS = {words: row for row, words in WRITTEN.items()}
WHOLE = 8  # seeds
SEED = 41  # of the rows that are trained on a page
INDEX = NBS / "index.ipynb"  # the README
PAGES = [p for p in notebooks() if p.parent.name in ("lessons", "how_to") or p == INDEX]
# the ledger has results of its own
LESSONS = [p for p in PAGES if p.parent.name == "lessons" and p.stem != "21_claims"]

LINE = re.compile(
    r"^(?:world (both): )?(R@1|scene|motion|probe), (.+?)(?: on (frames|differences))? minus "
    r"(.+?)(?: on (frames|differences))?: ([+-][\d.]+) points \((.+?)\), (\d+) seeds"
    r"(?:; p .*| \(\w+\))?$",
    re.M,
)
LIVE = re.compile(
    r"here: +R@1 ([\d.]+) %, scene ([\d.]+) %, motion ([\d.]+) %.*\n"
    r"stored: R@1 ([\d.]+) %, scene ([\d.]+) %, motion ([\d.]+) %"
)
TABLE_ROW = re.compile(
    r"<tr[^>]*><td[^>]*>([^<]+)</td><td[^>]*>(frames|differences|both|)</td><td[^>]*>(<svg.*?</svg>)</td>"
    r"<td[^>]*>([\d.]+)</td><td[^>]*>([\d.]+)</td><td[^>]*>([\d.]+)</td>"
)


def seeds(row, view, metric, world="plain"):
    "Percent of each seed, at the standard budget, or at the one that the name has: 'CoCLR ×2'."
    name, times = re.fullmatch(r"(.+?)(?: ×(\d))?", row).groups()
    wanted = {"row": ROWS.get(name, name), "view": view, "budget": int(times or 1), "world": world}
    return {r["seed"]: 100 * r[metric] for r in RECORDS if wanted.items() <= r.items()}


def outputs(page, kind):
    "Outputs of a page of one kind: printed text and plain values, HTML, or Markdown."
    for cell in page:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if kind in ("html", "markdown"):
                yield "".join(data.get(f"text/{kind}", ""))
            else:
                yield "".join(output.get("text", "")) or "".join(data.get("text/plain", ""))


def wrong_lines(page):
    "Printed differences that the records do not give."
    for text in outputs(page, "text"):
        for m in LINE.finditer(text):
            world, metric, a, view_a, b, view_b, mean, interval, count = m.groups()
            metric = "r1" if metric == "R@1" else metric
            one, other = (
                seeds(row, VIEWS[view or "frames"], metric, world or "plain")
                for row, view in ((a, view_a), (b, view_b))
            )
            differences = [one[s] - other[s] for s in sorted(one.keys() & other.keys())]
            right = len(differences) == int(count)
            right = right and abs(statistics.fmean(differences) - float(mean)) < 0.0501
            printed = [float(x) for x in re.findall(r"[+-][\d.]+", interval)]
            expected = differences if "by seed" in interval else interval_of(differences)
            right = right and printed == pytest.approx(expected, abs=0.0501)
            if not right:
                yield m[0]


def wrong_rows(page):
    "Lines of tables that the records do not give."
    for text in outputs(page, "html"):
        world = "both" if "World both." in text else "plain"
        for m in TABLE_ROW.finditer(text):
            title, sees, dots, *numbers = m.groups()
            name, counted = re.fullmatch(
                r"(.*?)(?: \((\d+) seeds\))?", html.unescape(title)
            ).groups()
            values = [
                seeds(name, VIEWS[sees], metric, world) for metric in ("r1", "scene", "motion")
            ]
            if not values[0]:
                yield f"{name}, {sees}: no such row"
                continue
            medians = [statistics.median(v.values()) for v in values]
            right = [float(x) for x in numbers] == pytest.approx(medians, abs=0.0501)
            right = right and dots.count("<circle") == len(values[0]) == int(counted or WHOLE)
            if not right:
                yield f"{title}, {sees}: {numbers}"


def wrong_live(page):
    "Rows trained on the page that are not the stored one, or a stored one that is in no record."
    known = {
        tuple(f"{100 * r[metric]:.1f}" for metric in ("r1", "scene", "motion"))
        for r in RECORDS
        if r["seed"] == SEED
    }
    for text in outputs(page, "text"):
        for m in LIVE.finditer(text):
            if m.groups()[:3] != m.groups()[3:] or m.groups()[3:] not in known:
                yield m[0]


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
def test_tables_differences_and_live_rows_are_those_of_the_file(path):
    page = cells(path)
    wrong = [*wrong_lines(page), *wrong_rows(page), *wrong_live(page)]
    assert not wrong, f"make pages PAGES={path.relative_to(ROOT)}: {wrong}"


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_each_r1_in_prose_has_a_source(path):
    wrong = [
        f"{' '.join(f.values)} in: {f.sentence}" for f in without_source(cells(path), path.parent)
    ]
    rule = "name the row as it is stored, or the other setting with a link to its file"
    assert not wrong, "\n".join([rule, *wrong])


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
def test_a_row_that_waits_for_seeds_is_named_with_its_command(path):
    text = "\n".join(c["source"] for c in cells(path) if c["cell_type"] == "markdown")
    named = {
        name.strip('"')
        for rows in re.findall(r"`python benchmarks/experiment\.py [^`]*--rows ([^`]+)`", text)
        for name in re.findall(r'"[^"]+"|\S+', rows)
    }
    waiting = {row for row, view in ADDED[path.name[:2]] if len(seeds(row, view, "r1")) < WHOLE}
    assert waiting <= named
    if "for the seeds 45 to 48" in text:
        rows = [r["seed"] for r in RECORDS if r["row"] in named and r["world"] == "plain"]
        assert not {45, 46, 47, 48} <= {*rows}, "the rows are whole: say what they show"


def test_lessons_show_the_file():
    "The patterns above see what the pages store."
    pages = [cells(p) for p in LESSONS]
    text = "\n".join(t for page in pages for t in outputs(page, "text"))
    tables = "\n".join(t for page in pages for t in outputs(page, "html"))
    # the one of real clips in lesson 20 is of another file, and has a test of its own
    differences = [t for t in text.splitlines() if " minus " in t and not t.startswith("JHMDB")]
    assert len(LINE.findall(text)) >= len(differences) >= 30
    assert len(LIVE.findall(text)) == text.count("stored: R@1") >= 10
    assert len(TABLE_ROW.findall(tables)) >= 200


COMPARED = (
    "infonce, one schedule",
    "ubernce",
    "simclr",
    "coclr",
    "cpr",
    "iic",
    "moquad",
    "provico",
    "coclr, both",
    "labels",
)


def real_differences():
    "Those that lesson 20 prints, from the files of real clips: points with their interval."

    def points(row, name):
        return interval({"share": row[name], "interval": row[f"{name}_interval"]})

    def interval(entry):
        low, high = entry["interval"]
        written = f"{100 * entry['share']:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"
        return written.replace("-", "−")

    for file in ("evidence", "evidence-jhmdb"):
        rows = json.loads((ROOT / "results" / f"{file}.json").read_text(encoding="utf-8"))["rows"]
        for row in rows:
            if row["name"] in COMPARED:
                yield row["name"], points(row, "r1_gap")
                yield row["name"], points(row, "probe_gap")
    for file in ("frame-order-ucf101", "frame-order-jhmdb"):
        rows = json.loads((ROOT / "results" / f"{file}.json").read_text(encoding="utf-8"))["rows"]
        for row in rows:
            for lost in row["loses"].values():
                yield f"{file}, {row['name']}", interval(lost)
            if row["name"] == "infonce":
                for gap in row["above random weights"].values():
                    yield f"{file}, InfoNCE minus random weights", interval(gap)


DRAWN = ("ubernce", "coclr", "coclr, begun")  # minus InfoNCE + queue


def drawn_differences():
    "Those of drawn videos that lesson 20 prints beside them."
    pairs = (("queue", "untrained"), *((row, "queue") for row in DRAWN))
    for (row, base), metric in itertools.product(pairs, ("r1", "probe")):
        one, other = seeds(row, "rgb", metric), seeds(base, "rgb", metric)
        paired = [one[s] - other[s] for s in sorted(one)]
        low, high = interval_of(paired)
        written = f"{statistics.fmean(paired):+.1f} ({low:+.1f} to {high:+.1f})"
        yield row, written.replace("-", "−")


def test_differences_of_real_clips_are_those_of_their_files():
    page = cells(NBS / "lessons" / "20_real.ipynb")
    shown = "\n".join([*outputs(page, "markdown"), *outputs(page, "text")])
    shown = shown.replace("<br>", " ").replace("\u00a0", " ")
    expected = [*real_differences(), *drawn_differences()]
    # R@1 and probe of ten rows of UCF101 and five of JHMDB; two changes of the frames of eight and
    # of three networks; R@1 and probe of what InfoNCE adds; drawn
    assert len(expected) == 2 * (10 + 5) + 2 * (8 + 3) + 2 * 2 + 2 * 4
    assert [(name, text) for name, text in expected if text not in shown] == []
    # lines of the toy's other world are of the one experiment, and have a test of their own
    real = "\n".join(line for line in shown.splitlines() if not line.startswith("world both: "))
    printed = re.findall(r"[+−-][\d.]+ (?:points )?\([+−-][\d.]+ to [+−-][\d.]+\)", real)
    assert {*printed} - {text for _, text in expected} == set()


def mutated(path, old, new):
    "The cells of a page in which one number was changed."
    text = path.read_text(encoding="utf-8")
    assert old in text, (name_of(path), old)
    return json.loads(text.replace(old, new, 1))["cells"]


def joined(page):
    "Cells as `house.cells` gives them."
    return [c | {"source": "".join(c["source"])} for c in page]


def test_a_changed_number_is_seen():
    page = NBS / "lessons" / "04_infonce.ipynb"
    median = statistics.median(seeds("InfoNCE", "rgb", "r1").values())
    assert [*wrong_rows(joined(mutated(page, f">{median:.1f}<", ">15.0<")))]
    assert [*wrong_lines(joined(mutated(page, "minus untrained: -", "minus untrained: +")))]
    low = re.search(r"minus untrained: .*?\((.+?) to", page.read_text(encoding="utf-8"))[1]
    assert [*wrong_lines(joined(mutated(page, f"({low} to", "(-99.0 to")))]
    assert [*wrong_live(joined(mutated(page, "here:   R@1 ", "here:   R@1 1")))]


FOUND = (
    ("CMC has an R@1 of 35 %, IIC 81 and 94 % (medians).", [("35",), ("81",), ("94",)]),
    ("R@1 is above *IIC* by [9.7 points](20.ipynb) (6.0 to 13.4).", [("9.7", "6.0", "13.4")]),
    ("R@1 falls, from 88 to 42 %. Half a pixel: 74 %.", [("88",), ("42",), ("74",)]),
    (
        "By 5.6 points of R@1 (0.4 to 11.3), 19.2 of the probe (5.2 to 33.5).",
        [("5.6", "0.4", "11.3")],
    ),
    ("**R@1 80.8 %, and scene 0.3 %.** Its probe has 34.6 %.", [("80.8",)]),
    ("R@1, where 20 % of the videos are spoiled (section 6.2; 95 % intervals).", []),
    ("The difference is −0.2 (−3.8 to +2.9).", [("−0.2", "−3.8", "+2.9")]),
)


@pytest.mark.parametrize(("text", "values"), FOUND, ids=lambda x: x if isinstance(x, str) else "")
def test_an_r1_is_found_in_a_sentence(text, values):
    assert [f.values for f in read(text)[0]] == values


def test_an_r1_is_found_in_tables_and_on_the_pages():
    heading = ["encoder", "scene, %", "R@1, %", "R@1 of each seed"]
    table = read_table([heading, ["CMC", "81", "16", "12 15 15 33"]])
    assert [f.values for f in table] == [("16",), ("12", "15", "15", "33")]
    counts = {name_of(p): len(stated(cells(p))) for p in PAGES}
    assert sum(counts.values()) >= 150 and counts["index.ipynb"] >= 30


def caught(page, *sentences):
    "Which of these sentences would stand on a page without a source?"
    path = NBS / page
    prose = [{"cell_type": "markdown", "metadata": {}, "source": s} for s in sentences]
    wrong = {f.block for f in without_source([*prose, *cells(path)], path.parent)}
    return [s for s in sentences if plain(s) in wrong]


def test_an_r1_without_a_source_is_caught():
    wrong = [
        "Its R@1 is 42.42 %.",
        "Its R@1 is 42.42 % ([here](x)).",
        "Its R@1 is 42.42 % ([lesson 04](04_infonce.ipynb)).",
        # printed on the page, for differences and for the camera at rest
        "On frames InfoNCE has an R@1 of 88 %.",
        "On frames InfoNCE has an R@1 of 95.4 % ([here](08_motion.ipynb)).",
        # its median, not its mean; a seed is told as one
        "On differences InfoNCE has an R@1 of 94.0 %.",
        "On frames InfoNCE has an R@1 of 21.2 %.",
        "CoCLR has an R@1 of 91.7 %.",
        # an end of the interval, the mean, a sign, other rows
        "CoCLR is above InfoNCE + queue by 15.2 points of R@1 (1.9 to 31.0).",
        "CoCLR is above InfoNCE + queue by 14.2 points of R@1 (1.9 to 30.0).",
        "CoCLR is above InfoNCE + queue by 15.2 points of R@1 (−1.9 to 30.0).",
        "BYOL is above UberNCE by 15.2 points of R@1 (1.9 to 30.0).",
        # another setting without its file; a file that has another number; a file without the words
        "On UCF101 CoCLR has an R@1 of 51.8 %.",
        "On UCF101 CoCLR has an R@1 of 52.8 % ([dossier](../dossiers/ubernce_coclr.ipynb)).",
        "CoCLR has an R@1 of 51.8 % ([dossier](../dossiers/ubernce_coclr.ipynb)).",
        "On JHMDB *published, spread* has an R@1 of 36.6 % (`results/published-jhmdb.json`).",
    ]
    right = [
        "On differences InfoNCE has an R@1 of 95.4 %, that is 95 %.",
        "On frames the eight seeds of InfoNCE have an R@1 from 9.2 to 21.2 %.",
        "With four times the budget CoCLR has an R@1 of 91.7 %.",
        "CoCLR is above InfoNCE + queue by 15.2 points of R@1 (1.9 to 30.0).",
        "InfoNCE + queue minus CoCLR: −15.2 points of R@1 (−30.0 to −1.9).",
        "On UCF101 CoCLR has an R@1 of 51.8 % ([dossier](../dossiers/ubernce_coclr.ipynb)).",
        "On JHMDB *published, spread* has an R@1 of 36.4 % (`results/published-jhmdb.json`).",
    ]
    assert caught("lessons/08_motion.ipynb", *wrong, *right) == wrong


def test_a_changed_number_of_the_readme_is_caught():
    text = INDEX.read_text(encoding="utf-8")
    assert not without_source(cells(INDEX), NBS)
    for old, new in (
        ("R@1 of 35 % with twice", "R@1 of 36 % with twice"),
        ("IIC 81 and 94 %", "IIC 81 and 95 %"),
        ("R@1 is 92 % (median", "R@1 is 93 % (median"),
        ("R@1 of 95 %", "R@1 of 94 %"),
        ("15.2 points (1.9 to 30.0)", "15.2 points (1.9 to 31.0)"),
        ("88 90 94 94 97", "88 90 94 95 97"),
    ):
        assert text.count(old) == 1, old
        (wrong,) = without_source(joined(mutated(INDEX, old, new)), NBS)
        assert {*wrong.values} & {*re.findall(r"[\d.]+", new)}
