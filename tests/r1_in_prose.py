"""Numbers that a page gives as an R@1, and the places where they have to stand.

A number is of the quantity that is named last before it. One of R@1 stands in a record of the one
experiment, of a row that its sentence or its paragraph names, or beside the words R@1 in an output
of its page, or of a lesson that is linked beside it. Where its sentence names another setting, it
may also stand in another file that is linked beside it. A link alone is no source.

Nothing here uses `course`: medians and differences are computed from the records.
"""

import csv
import html
import json
import math
import re
import statistics
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, permutations

from house import NBS, PICTURE, ROOT, cells

from vssl_nb.app.course import SEES, WRITTEN

RECORDS = json.loads((ROOT / "results" / "experiment.json").read_text(encoding="utf-8"))["records"]
FRAMES, DIFFERENCES = SEES
BENCHMARK = (ROOT / "benchmarks" / "experiment_rows.py").read_text(encoding="utf-8")
# points by which the search of the settings takes another value
MARGIN = 100 * float(re.search(r"^MARGIN = ([\d.]+)", BENCHMARK, re.M)[1])
R1 = "R@1"

# ---- what a text gives as an R@1

VALUE = r"[+−-]?\d+(?:,\d{3})*(?:\.\d+)?"
# "7 and 22 %", "9.2 to 21.2 %": the unit stands behind the last of them
LISTED = rf"(?: ± {VALUE})?(?:(?:,? (?:and|or|to|in place of) |, ){VALUE})*\s*(%|points)"
ALONE = r"(?<![\w.,@×=^])(?<!± )"
MARKED = re.compile(rf"{ALONE}({VALUE})(?={LISTED})")
# one decimal, where the unit is left out
OTHER_UNIT = r" (?:times|hours|seconds|pairs|px)"
BARE = re.compile(rf"{ALONE}((?:[+−-]\d+|[1-9]\d*)\.\d)()(?![\d%]|{OTHER_UNIT})")
INTERVAL = re.compile(rf"(?:[(,] ?|points |\) )({VALUE}) to ({VALUE})(?!\.?\d| ?%)")
NO_RESULT = re.compile(r"(?:sections?|Eq\.|[Tt]able|Python)\s$")  # before a number
CONFIDENCE = re.compile(r" ?% (?:intervals?\b|are an interval|confidence)")  # behind one
BOUND = re.compile(r"\b(?:below|above|at least|at most|more than|less than) $")  # before one
OF = re.compile(r"\s*(?:%|points)? of (?:the )?(R@1|probe)?")  # behind one
QUANTITY = re.compile(
    r"R@\d+|\b(?:r\d+|probes?|linear|precision|recall|mined(?! by)|answers|conflicts|top-?1|PMR|CMR"
    r"|fine-?tun\w+|AUROC|variance|explained|RankMe|accuracy|steps?|seconds|scene"
    r"|(?<!masked )motion)\b|\bright (?:positives|keys|pairs|motion|kind)",
    re.I,
)
SENTENCE = re.compile(r"(?<=[.!?])[)*_]*\s+(?=[(*_\[\"“]*[A-Z$])")
LINK = re.compile(r"\[([^\]]*)\]\(([^)]*)\)")
FILE = re.compile(r"`((?:results|nbs)/[^`\s]+)`")
ITEM = re.compile(r"\s*(?:[-*>]|\d+\.)\s")


@dataclass(frozen=True)
class Figure:
    "A number, an interval, or a difference with its interval, that a text gives as an R@1."

    values: tuple[str, ...]  # as written; more than three: all seeds of a row
    unit: str  # '%', 'points', or '' where it is left out
    sentence: str
    block: str  # paragraph, item of a list or row of a table
    links: tuple[str, ...] = ()  # of the sentence, or else of the block
    part: str = ""  # 'bound' of a selection, "below 20 %"; end of a 'range', "9.2 to 21.2 %"

    @property
    def numbers(self):
        return [float(v.replace("−", "-").replace(",", "")) for v in self.values]

    @property
    def is_level(self):
        return len(self.values) == 1 and self.unit != "points"


def plain(text):
    "Without links, code, tags and maths, but for a number of percent."
    text = LINK.sub(r"\1", html.unescape(text)).replace("<br>", " ").replace("\u00a0", " ")
    text = re.sub(r"`[^`]*`|<[^>]*>", " ", text).replace(r"\,", " ").replace(r"\%", "%")
    text = re.sub(r"\$([^$]*)\$", lambda m: m[1] if "%" in m[1] else " ", text)
    return re.sub(r"\s+", " ", text.replace("*", "")).strip()


def links_of(text):
    return tuple(target for _, target in LINK.findall(text)) + tuple(FILE.findall(text))


def grouped(text, numbers):
    "Each number, or an interval with the number before it: its place, values and unit."
    intervals = [*INTERVAL.finditer(text)]
    inside = [range(i.start(1), i.end(2)) for i in intervals]
    numbers = [n for n in numbers if not any(n.start() in span for span in inside)]
    last = 0
    for interval in intervals:
        before = [n for n in numbers if last <= n.start() and n.end() <= interval.start(1)]
        last = interval.end(2)
        if before:
            numbers.remove(before[-1])
            yield before[-1], (before[-1][1], *interval.groups()), before[-1][2]
        elif "." in interval[0] or text[last:].startswith(" points"):
            yield interval, interval.groups(), "points"
    yield from ((n, (n[1],), n[2]) for n in numbers)


def named_in(text):
    "The places and names of quantities; tables of papers write r1."
    return [(m.start(), R1 if m[0] == "r1" else m[0]) for m in QUANTITY.finditer(text)]


def quantity_of(text, at, names, before):
    "What a number is of: the last name before it, or else the first behind it."
    of = OF.match(text, at.end())
    if of:
        return of[1] or "another share"
    named = [name for start, name in names if start < at.start()]
    return named[-1] if named else before or (names[0][1] if names else None)


def part_of(text, at):
    if text.startswith(" to ", at.end()) or text[: at.start()].endswith(" to "):
        return "range"
    return "bound" if BOUND.search(text[: at.start()]) else ""


def read(text, links=(), quantity=None):
    "The figures of a paragraph, and the quantity that it names last."
    found = []
    block = plain(text)
    for raw in SENTENCE.split(text):
        sentence = plain(raw)
        names = named_in(sentence)
        numbers = {m.start(): m for pattern in (BARE, MARKED) for m in pattern.finditer(sentence)}
        for at, values, unit in grouped(sentence, [numbers[n] for n in sorted(numbers)]):
            of = quantity_of(sentence, at, names, quantity)
            of = of or (len(values) > 1 and R1)  # a difference without a name
            no_result = NO_RESULT.search(sentence[: at.start()])
            if of == R1 and not no_result and not CONFIDENCE.match(sentence, at.end()):
                targets = links_of(raw) or links_of(text) or links
                part = part_of(sentence, at)
                found.append(Figure(values, unit, sentence, block, targets, part))
        quantity = names[-1][1] if names else quantity
    return found, quantity


def read_table(rows, links=()):
    "The figures of columns, rows and tables that R@1 heads; the first row is the heading."
    heading, *rows = [[plain(cell) for cell in row] for row in rows]
    for row in rows:
        for i in range(1, len(row)):  # a mean and its interval in two columns
            if re.fullmatch(VALUE, row[i - 1]) and re.fullmatch(f"{VALUE} to {VALUE}", row[i]):
                row[i] = f"{row[i - 1]} ({row[i]})"
        short = [
            cell for cell in row[1:] if re.fullmatch(r"[A-Za-z][\w-]*(?: [A-Za-z][\w-]*)?", cell)
        ]
        for title, cell in zip(heading, row):
            label = ", ".join([f"{heading[0]} {row[0]}", *short, title])
            names = [named_in(text) for text in (title, row[0], heading[0])]
            of = next((n[-1][1] for n in names if n), None)
            if re.search("[A-Za-z]{3}", cell):
                for figure in read(cell, links, of)[0]:
                    text = f"{label}: {figure.sentence}"
                    yield replace(figure, sentence=text, block=f"{label}: {cell}")
            elif of == R1:
                yield from (replace(f, links=links) for f in read_numbers(cell, label))


def read_numbers(cell, label):
    "The figures of a cell of numbers."
    unit = "points" if re.search("minus|points|above|−", label) else "%"
    groups = [v for _, v, _ in grouped(cell, [*re.finditer(f"({VALUE})()", cell)])]
    if len(groups) > 3:
        groups = [tuple(values[0] for values in groups)]
    return [Figure(values, unit, label, label) for values in groups]


def read_markdown(text):
    "The figures of a cell of prose."
    heads = None  # what a paragraph that ends in a colon gives to its list
    for paragraph in re.split(r"\n\s*\n", re.sub(r"```.*?```|\$\$.*?\$\$", "", text, flags=re.S)):
        lines = paragraph.strip().splitlines()
        if lines and all(line.lstrip().startswith("|") for line in lines):
            rows = [line.strip().strip("|").split("|") for line in lines]
            for line, row in zip(lines[2:], rows[2:]):
                yield from read_table([rows[0], row], links_of(line))
            continue
        for block in re.split(rf"\n(?={ITEM.pattern})", paragraph):
            figures, quantity = read(block, (), heads if ITEM.match(block) else None)
            yield from figures
            if not ITEM.match(block):
                heads = quantity if block.rstrip().endswith(":") else None


def read_output(output):
    "The figures that an output of a cell prints."
    data = output.get("data", {})
    text = "".join(output.get("text", "")) or "".join(data.get("text/plain", ""))
    lines = text.splitlines()
    for line in lines:
        yield from read(line)[0] if R1 in line else ()
    columns = [re.split(r"\s{2,}", line.strip()) for line in lines]
    for i, line in enumerate(columns):
        if len(line) > 3 and any(R1 in cell for cell in line):
            yield from read_table([row for row in columns[i:] if len(row) == len(line)])
    marked = PICTURE.sub("", "".join(data.get("text/html", "")))
    marked = re.sub("<svg.*?</svg>", "", marked, flags=re.S)
    for table in re.findall(r"<table.*?</table>", marked, re.S):
        rows = re.findall(r"<tr.*?</tr>", table, re.S)
        yield from read_table([re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", r, re.S) for r in rows])
    yield from read_markdown("".join(data.get("text/markdown", "")))


def stated(page):
    "What the prose of a page gives."
    return [f for c in page if c["cell_type"] == "markdown" for f in read_markdown(c["source"])]


def printed(page):
    "What the outputs of a page give."
    return [f for c in page for output in c.get("outputs", ()) for f in read_output(output)]


# ---- which rows of the one experiment a text names

TITLES = {r["row"]: WRITTEN.get(r["row"], r["row"]) for r in RECORDS}
HEADS = {row: re.split(r"[:(,+]| alone", t)[0].strip().lower() for row, t in TITLES.items()}
ALSO = {
    "random weights": "untrained",
    "random network": "untrained",
    "colours": "histogram",
    "chooses for itself": "itself",
}
BUDGETS = {2: r"\btwice\b|×2", 4: r"\bfour times\b|×4"}
VIEWS = {
    FRAMES: r"(?<!differences of )(?<!difference of )\bframes\b",
    DIFFERENCES: r"\b(?:on|frame) differences\b|\bdifferences (?:of frames|alone)\b|, differences",
}


def names_of_rows():
    "Names in prose, the longest first -> the rows that they stand for."
    names = defaultdict(set)
    for row, title in TITLES.items():
        names[title.lower()].add(row)
        names[re.split(r":| \(", title)[0].lower()].add(row)
    alone = {*names}
    for row, head in HEADS.items():
        if head not in alone:
            names[head].add(row)
        if row.startswith("moquad"):
            names[f"rung {row[-1]}"].add(row)
    names |= {name: {row} for name, row in ALSO.items()}
    for word in ("chance", "begun"):  # sentences about other rows have them, too
        del names[word]
    return {name: names[name] for name in sorted(names, key=len, reverse=True)}


NAMES = names_of_rows()
NAME = re.compile(r"\b(?:%s)(?!\w)" % "|".join(map(re.escape, NAMES)), re.I)


@cache
def rows_in(text):
    return frozenset().union(*(NAMES[name.lower()] for name in NAME.findall(text)))


@cache
def views_in(text):
    return frozenset(view for view, words in VIEWS.items() if re.search(words, text))


def budgets_in(text):
    return {1} | {n for n, words in BUDGETS.items() if re.search(words, text)}


# ---- the records of the one experiment


@dataclass(frozen=True)
class Row:
    "A row at one view, budget and world."

    row: str
    view: str
    budget: int
    world: str
    seeds: tuple[int, ...]
    r1: tuple[float, ...]  # percent, of each seed


def stored_rows():
    rows = defaultdict(dict)
    for r in RECORDS:
        rows[r["row"], r["view"], r["budget"], r["world"]][r["seed"]] = 100 * r["r1"]
    return [Row(*key, *zip(*sorted(of.items()))) for key, of in rows.items()]


ROWS = stored_rows()


def paired(a, b):
    "The differences of two rows, seed by seed."
    one, other = (dict(zip(row.seeds, row.r1)) for row in (a, b))
    return [one[seed] - other[seed] for seed in one if seed in other]


def interval_of(differences):
    "95 %: the means of all subsets of the seeds; of eight, the sixth from either end."
    subsets = (c for n in range(len(differences)) for c in combinations(differences, n + 1))
    means = sorted(map(statistics.fmean, subsets))
    out = round(0.025 * 2 ** len(differences) - 0.5)  # rounded down: 6 of 256, 1 of 64
    return means[out - 1], means[-out]


@cache
def difference(a, b):
    "Mean and 95 % interval; fewer than six seeds have none."
    each = paired(a, b)
    return [statistics.fmean(each), *(interval_of(each) if len(each) >= 6 else ())]


def named_rows(sentence, block):
    "The rows whose name, view, budget and world a sentence gives, or else its paragraph."
    rows = rows_in(sentence) or rows_in(block)
    views = views_in(sentence) or views_in(block) or {FRAMES}
    budgets = budgets_in(sentence) | budgets_in(block)
    worlds = ("plain", "both") if re.search(r"\bworld\b", block, re.I) else ("plain",)
    named = (r for r in ROWS if r.row in rows and r.view in views)
    return [r for r in named if r.budget in budgets and r.world in worlds]


def seeds_in(figure, values):
    "The values that a figure may be: that of one seed, or the lowest and the highest of all."
    if re.search(r"\b(?:one|this|which) seed\b|\bseed \d", figure.sentence, re.I):
        return [*values]
    return [min(values), max(values)] if figure.part == "range" else []


def levels(figure):
    "Medians and seeds of the rows that a figure names."
    rows = named_rows(figure.sentence, figure.block)
    if re.search(r"\b(?:chance|guessing)\b", figure.sentence, re.I):
        rows += [r for r in ROWS if r.row == "chance"]
    for row in rows:
        yield [statistics.median(row.r1)]
        yield sorted(row.r1)
        yield from ([value] for value in seeds_in(figure, row.r1))


def differences(figure):
    "Of two rows of one world that a figure names; by their heads where an interval stands there."
    if len(figure.values) == 1:
        for a, b in permutations(named_rows(figure.block, figure.block), 2):
            if a.world == b.world:
                yield difference(a, b)[:1]
                yield from ([n] for n in seeds_in(figure, paired(a, b)))
        return
    heads = {HEADS[row] for row in rows_in(figure.block)}
    for a, b in permutations([row for row in ROWS if HEADS[row.row] in heads], 2):
        if a.world == b.world:
            yield difference(a, b)


def stands(figure, numbers):
    """Do these numbers round to those that are written? Those of a difference either way round; an
    interval stands without its mean, and a mean without its interval.
    """
    half = [0.5001 * 10 ** -len(v.partition(".")[2]) for v in figure.values]
    if len(half) == 1:
        return len(numbers) < 4 and abs(abs(figure.numbers[0]) - abs(numbers[0])) <= half[0]
    ways = [numbers[-len(half) :]]
    if 1 < len(numbers) < 4:
        *mean, low, high = (-n for n in ways[0])
        ways.append([*mean, high, low])
    return len(ways[0]) == len(half) and any(
        all(abs(w - n) <= h for w, n, h in zip(figure.numbers, way, half)) for way in ways
    )


def in_records(figure):
    "Is it a median, a seed or a difference of the one experiment, or the margin of its search?"
    if f"{figure.values[0]} points or more" in figure.sentence:
        return stands(figure, [MARGIN])
    sources = []
    if figure.is_level or len(figure.values) > 3:
        sources += levels(figure)
    if figure.unit != "%" or 1 < len(figure.values) < 4:
        sources += differences(figure)
    return any(stands(figure, numbers) for numbers in sources)


# ---- other files of the project


def read_json(x, key="", words="", inside=False):
    """Place, names and numbers of each R@1 in a file of results: of a share with its interval all
    three. All seeds of a row have one place.
    """
    if isinstance(x, dict):
        words = ", ".join(
            [words, *(x[k] for k in ("name", "run", "row") if isinstance(x.get(k), str))]
        )
        yield from read_shares(x, key, words, inside)
        for k, value in x.items():
            yield from read_json(value, f"{key} {k}", words, inside or is_r1(k))
    elif isinstance(x, list):
        for i, y in enumerate(x):
            of_seeds = key.endswith(" seeds") or key.endswith(" seeds rows")
            yield from read_json(y, key if of_seeds else f"{key} {i}", words, inside)
    elif isinstance(x, str) and R1 in x:
        yield key, words, x
    elif inside and isinstance(x, (int, float)) and math.isfinite(x):
        yield key, words, [x]


def is_r1(key):
    return bool(re.search(r"\br1\b|\br1_|_r1\b|^(?:chance|random|untrained)\b", key))


def read_shares(x, key, words, inside):
    "R@1 with an interval beside it, and R@1 of the classes of a kind: scene_1, scene_2 and so on."
    if inside and "interval" in x:
        yield key, words, [x["share"], *x["interval"]]
    for k in x:
        if f"{k}_interval" in x and (inside or is_r1(k)):
            yield f"{key} {k} with its interval", words, [x[k], *x[f"{k}_interval"]]
    kinds = defaultdict(list)
    for name, share in x.get("by_class", {}).items():
        kinds[re.sub(r"_\d+$", "", name)].append(share)
    for kind, shares in kinds.items():
        if len(shares) > 1:
            yield f"{key} {kind}", words, [statistics.fmean(shares)]


@cache
def results_of(path):
    "Each R@1 of a file of results: the names of its row, and the numbers of all seeds."
    groups = defaultdict(list)
    for key, names, found in read_json(json.loads(path.read_text(encoding="utf-8"))):
        groups[key, names].append(found)
    return [(names, found) for (_, names), found in groups.items()]


def of_results(path, figure):
    "What a file of results has that a figure may be: of each row the mean over seeds, or a seed."
    for names, values in results_of(path):
        if isinstance(values[0], str):
            yield from read(values[0])[0]
            continue
        asked = [statistics.fmean] + [statistics.median] * ("median" in figure.sentence)
        summaries = [[summary(column) for column in zip(*values)] for summary in asked]
        for numbers in (*summaries, *seeds_in(figure, values)):
            scale = 100 if max(map(abs, numbers)) <= 1 else 1
            yield Figure(tuple(f"{scale * n:.9f}" for n in numbers), "", names, names)


@cache
def of_page(path):
    "What another page prints and states, or what a table of published numbers has."
    if path.suffix == ".ipynb":
        return [*printed(cells(path)), *stated(cells(path))]
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".csv":
        return [*read_table([*csv.reader(text.splitlines())])]
    return [*read_markdown(text)] if path.suffix == ".md" else []


def targets(figure, folder):
    "The files of the project that a figure has links to."
    for link in figure.links:
        path = link.partition("#")[0]
        for start in (folder, ROOT):
            file = (start / path).resolve()
            if path and file.is_file():
                yield file


# ---- has a figure a source?

# words that name another setting than that of the one experiment, which has eight seeds
SETTING = re.compile(
    r"UCF101|JHMDB|HMDB51|Kinetics|ImageNet|\b(?:papers?|README|appendix|released|published|authors"
    r"|classifier|camera|spoiled|worlds?|claims?|stages|bias|demo|seed 30)\b"
    r"|\b(?:one|this|two|three|four|six) (?:seeds?|networks?)\b",
    re.I,
)


def agree(figure, source):
    "Does a source name a row and a view that a sentence names, where both name some?"
    if len(figure.values) > 1:
        return True  # a difference has two rows
    if figure.unit and source.unit and figure.unit != source.unit:
        return False
    pairs = ((names(figure.sentence), names(source.sentence)) for names in (rows_in, views_in))
    return all(not here or not there or here & there for here, there in pairs)


def has_source(figure, outputs, prose, folder):
    "Does a figure of a page stand in a record, in an output or in what it has links to?"
    if in_records(figure):
        return True
    other = SETTING.search(figure.sentence)
    is_bound = figure.part == "bound"
    names_a_row = rows_in(figure.sentence) and views_in(figure.sentence)
    if figure.is_level and names_a_row and not other and not is_bound:
        return False  # the records have this row
    sources = [f for f in outputs if is_bound == (f.part == "bound")]
    if other and any(link.startswith("#") for link in figure.links):
        sources += [f for f in prose if f.block != figure.block]
    for file in targets(figure, folder):
        if other and file.suffix == ".json" and file.name != "experiment.json":
            sources += of_results(file, figure)
        elif other:
            sources += of_page(file)
        elif file.parent == NBS / "lessons":
            sources += printed(cells(file))
    return any(agree(figure, s) and stands(figure, s.numbers) for s in sources)


def without_source(page, folder):
    "The figures of the prose of a page that have none; links start at the folder of the page."
    outputs, prose = printed(page), stated(page)
    return [f for f in prose if not has_source(f, outputs, prose, folder)]
