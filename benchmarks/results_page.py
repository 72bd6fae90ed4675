"""The tables and pictures of `results/README.md`, from the files of results alone.

    python tests/house.py results

writes what stands between two marks of that page, `<!-- NAME -->` and `<!-- end of NAME -->`, and
draws the pictures whose numbers have changed. A picture has a digest of its numbers in it, so that
a test can tell one that is old."""

import hashlib
import json
import re
import statistics
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dose
import experiment_conflict
from experiment_pictures import ladder
from experiment_rows import SEEDS
from experiment_rule import Line, judge, seeds_of
from experiment_tables import README_ROWS, Results, difference, percents, read_results
from results_index import RESULTS, ROOT, index

from vssl_nb.papers import ledger
from vssl_nb.papers.verdicts import FAILS, HOLDS, LEAST_SEEDS, VERDICTS

PAGE = RESULTS / "README.md"
IMAGES = ROOT / "nbs" / "images"
MOST_BYTES = 200_000  # of a picture


def read(name: str) -> Any:
    "A file of results, by its name without ending."
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def table(
    columns: Sequence[str],  # ending in ' #': of numbers
    rows: Iterable[Sequence[str]],
) -> str:  # Markdown
    head = [column.removesuffix(" #") for column in columns]
    sides = ["--:" if column.endswith(" #") else ":--" for column in columns]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, sides, *rows))


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def with_interval(
    share: float,
    interval: Sequence[float],  # low and high, shares
    form: str = ".1f",  # '+.1f': with a sign
) -> str:
    "Percent or points, '41.5 (30.5 to 52.2)'."
    middle, low, high = (f"{100 * x:{form}}".replace("-", "−") for x in (share, *interval))
    return f"{middle} ({low} to {high})"


# ---- when does an encoder of frames find the motion?

CHANGES = (
    ("a second view in the same network", Line("cmc"), Line("bank")),
    ("clips broken in time as negatives, alone", Line("bank, shuffled"), Line("bank")),
    ("the same beside a second view", Line("iic"), Line("cmc")),
    ("broken in space instead of time", Line("iic, patches"), Line("iic")),
    ("broken in space, without a second view", Line("bank, patches"), Line("bank")),
    (
        "positives that a network on differences chooses",
        Line("coclr, own key kept"),
        Line("queue"),
    ),
    ("the same, and the own clip is dropped: CoCLR", Line("coclr"), Line("coclr, own key kept")),
    ("CoCLR, and that network is untrained", Line("untrained differences"), Line("coclr")),
    ("CoCLR, and labels choose", Line("ubernce, own key dropped"), Line("coclr")),
    ("InfoNCE instead of random weights", Line("infonce"), Line("untrained")),
    ("the input: differences instead of frames", Line("infonce", "residual"), Line("infonce")),
)


def changes_table() -> str:
    "What a change of one thing brings, in R@1."
    results = read_results(RESULTS / "experiment.json")
    rows = []
    for words, a, b in CHANGES:
        medians = [f"{statistics.median(percents(results, line)):.0f}" for line in (b, a)]
        seeds = [seeds_of(results["records"], line, "r1").keys() for line in (a, b)]
        shared = len(seeds[0] & seeds[1])
        enough = shared >= LEAST_SEEDS
        gain = difference(results, a, b) if enough else f"{shared} seeds: no interval"
        rows.append([words, f"{medians[0]} → {medians[1]}", gain])
    return table(("changed", "R@1, % #", "mean difference #"), rows)


def seeds_so_far() -> str:
    "How many lines of the one experiment have how many seeds."
    lines: dict[tuple[Any, ...], set[int]] = {}
    for r in read("experiment")["records"]:
        if r["row"] not in ("chance", "histogram"):
            key = r["row"], r["view"], r["budget"], r["world"]
            lines.setdefault(key, set()).add(r["seed"])
    counts: dict[int, int] = {}
    for seeds in lines.values():
        counts[len(seeds)] = counts.get(len(seeds), 0) + 1
    parts = [f"{counts[n]} have {n} seeds" for n in sorted(counts, reverse=True)]
    return f"Of its lines (encoder, view, budget, world) {', '.join(parts)} so far."


JUDGED = {"higher": "shown", "lower": "the opposite is shown", "open": "open"}


def families_table() -> str:
    "The families whose lines have all seeds, as the rule judges them, and those that wait."
    lines = judge(read("experiment")["records"], len(SEEDS))
    waiting = list(dict.fromkeys(x["family"] for x in lines if x["p_holm"] is None))
    families = dict.fromkeys(x["family"] for x in lines if x["family"] not in waiting)
    rows = []
    for family in families:
        for n, x in enumerate(x for x in lines if x["family"] == family):
            gain = with_interval(x["mean"], x["interval"])
            verdict = JUDGED[x["verdict"]]
            rows.append([family if n == 0 else "", x["statement"], gain, verdict])
    columns = ("family", "is it so?", "mean difference, points #", "verdict")
    later = f"\n\nThese families wait for runs: {'; '.join(waiting)}." if waiting else ""
    return table(columns, rows) + later


# ---- which claims hold?


def claims_table() -> str:
    "How many claims have which verdict, and the links of those that hold or fail."
    alone_by, together_by = ({word: [] for word in VERDICTS} for _ in range(2))
    decided = []
    for row, alone, together in ledger.main_rows():
        number = str(row.reading.number)
        alone_by[alone.word].append(number)
        together_by[together.word].append(number)
        if alone.word in (HOLDS, FAILS):
            links = row.reading.chain.replace("<", "&lt;")
            also = "the same" if together.word == alone.word else together.text(row.reading.unit)
            world = f"{row.reading.reading}, {row.reading.world}"
            decided.append(
                [
                    f"{row.claim.paper}, {number}",
                    links,
                    row.reading.measure,
                    world,
                    alone.word,
                    also,
                ]
            )
    counts = [
        f"**{word}**: {len(numbers)} ({', '.join(numbers)})"
        for word, numbers in together_by.items()
        if numbers
    ]
    more = []
    for word, verbs in ((HOLDS, ("holds", "hold")), (FAILS, ("fails", "fail"))):
        alone_only = [n for n in alone_by[word] if n not in together_by[word]]
        if alone_only:
            more.append(f"{', '.join(alone_only)} {verbs[len(alone_only) > 1]}, too")
    by_itself = f" Each claim for itself: {'; '.join(more)}." if more else ""
    columns = ("claim", "links", "measured", "reading and world", "alone", "over the ledger")
    return f"Over all links of the ledger: {'; '.join(counts)}.{by_itself}\n\n" + table(
        columns, decided
    )


# ---- what is a published encoder worth?

BY_HAND = "motion by hand"
ENCODERS = {
    "colour histogram": "colour histogram",
    BY_HAND: "motion by hand",
    "published, mean": "published, mean over time",
    "published, spread": "published, spread over time",
    "head by InfoNCE on published": "a head that InfoNCE trains on it",
}


def published_table() -> str:
    "R@1 of a published encoder of pictures on some hundred clips, beside what needs no training."
    sizes = read("published-jhmdb")["sizes"]
    clips = [size["clips"] for size in sizes]
    rows = [["chance", *(percent(size["chance"]) for size in sizes)]]
    for name, words in ENCODERS.items():
        cells = []
        for size in sizes:
            row = next(r for r in size["rows"] if r["name"] == name)
            above = row["above"].get(BY_HAND)
            bold = "**" * bool(above and above["r1_interval"][0] > 0)
            cells.append(bold + with_interval(row["r1"], row["r1_interval"]) + bold)
        rows.append([words, *cells])
    rows.append(["motion by hand, beside the trainings", *map(by_hand_row, clips)])
    rows.append(["the best of our minutes of training", *map(own_clips_row, clips)])
    return table(("R@1, %", *(f"{size['clips']} clips #" for size in sizes)), rows)


def by_hand_row(clips: int) -> str:
    "R@1 of motion by hand in the file of the trainings with so many clips."
    row = first(first(read("own-clips-cpu")["sizes"], clips=clips)["rows"], name=BY_HAND)
    return with_interval(row["r1"], row["r1_interval"])


def own_clips_row(clips: int) -> str:
    "The highest R@1 of the trainings with so many clips."
    size = first(read("own-clips-cpu")["sizes"], clips=clips)
    methods = ("InfoNCE", "SimCLR", "LeJEPA", "BYOL", "SimSiam")
    best = max((r for r in size["rows"] if r["name"].startswith(methods)), key=lambda r: r["r1"])
    return with_interval(best["r1"], best["r1_interval"])


# ---- all methods on real clips

METHODS = {
    "colour histogram": "colour histogram, by hand",
    "flow directions": "flow directions, by hand",
    BY_HAND: BY_HAND,
    "colours and motion by hand": "colours and motion, by hand",
    "published, mean": "published encoder of pictures, mean",
    "published, spread": "published encoder of pictures, spread",
    "random": "random weights",
    "infonce": "InfoNCE, two halves",
    "infonce, one schedule": "InfoNCE, one schedule",
    "coclr": "CoCLR",
    "cpr": "CPR",
    "iic": "IIC, one schedule",
    "simclr": "SimCLR, one schedule",
    "moquad": "MoQuad, one schedule",
    "provico": "ProViCo, one schedule",
    "ubernce": "UberNCE (labels)",
    "labels": "cross-entropy (labels), one schedule",
    "infonce, both": "InfoNCE, both views",
    "coclr, both": "CoCLR, both views",
}


def methods_table() -> str:
    "R@1 of the methods at equal videos, on UCF101 and on JHMDB."
    files = [read("evidence"), read("evidence-jhmdb")]
    frozen = [read(f"published-{name}")["sizes"][-1]["rows"] for name in ("ucf101", "jhmdb")]
    named = [{r["name"]: r for r in (*rows, *file["rows"])} for rows, file in zip(frozen, files)]
    rows = [["chance", percent(files[0]["chance"]), "", percent(files[1]["chance"])]]
    for name, words in METHODS.items():
        cells = []
        for known, has_gap in zip(named, (True, False)):
            row = known.get(name)
            cells.append(with_interval(row["r1"], row["r1_interval"]) if row else "")
            if has_gap:
                gap = row.get("r1_gap_interval") if row else None
                cells.append(with_interval(row["r1_gap"], gap, "+.1f") if row and gap else "")
        rows.append([words, *cells])
    columns = ("R@1, %", "nine classes of UCF101 #", "above InfoNCE as long #", "JHMDB #")
    return f"{table(columns, rows)}\n\n{seconds_text(named[0])}"


def seconds_text(
    rows: Mapping[str, Mapping[str, Any]],  # of UCF101, by name
) -> str:
    "What trainings at equal videos have taken, with those that they begin with and mine with."
    named = ("infonce, one schedule", "infonce", "simclr", "provico", "iic", "moquad", "coclr")
    parts = [f"{METHODS[name]} {rows[name]['seconds_with_helpers']:,.0f}" for name in named]
    return (
        "Equal videos are not equal costs. Seconds of a row on UCF101, with all trainings that it "
        f"takes, two trainings side by side: {'; '.join(parts)}."
    )


def reach_text() -> str:
    "What fewer videos, epochs and pixels change."
    results = read("reach")
    videos = [r for r in results["rows"] if r["what"] == "videos"]
    counts = ", ".join(f"{r['to']}" for r in videos)
    coclr = ", ".join(percent(r["coclr"]["r1"]) for r in videos)
    mined = ", ".join(f"{100 * r['mined']:.0f}" for r in videos)
    gains = []
    for what, lines in results["doublings"].items():
        one = lines.get("coclr, same gallery") or lines["coclr"]
        gains.append(f"of {what} {with_interval(one['doubling'], one['interval'], '+.1f')}")
    return (
        f"With {counts} videos CoCLR's R@1 is {coclr} %, and {mined} % of what it mines is right "
        "(chance 11 %). What a doubling brings CoCLR, in points, searching the same videos: "
        f"{'; '.join(gains)} ([reach.json](reach.json))."
    )


# words of `frame_order.py`, and of the table
NETWORKS = METHODS | {"random weights": "random weights"}


def frame_order_table() -> str:
    "R@1 with all frames, with one, and with the frames in a random order; then what training adds."

    def cell(entry: Mapping[str, Any], form: str = ".1f") -> str:
        return with_interval(entry["share"], entry["interval"], form)

    searched, gains = [], []
    for clips, file in (("UCF101", "frame-order-ucf101"), ("JHMDB", "frame-order-jhmdb")):
        for row in read(file)["rows"]:
            name = f"{clips}, {NETWORKS[row['name']]}"
            lost = [cell(entry, "+.1f") for entry in row["loses"].values()]
            searched.append([name, *map(cell, row["r1"].values()), *lost])
            for other in ("random weights", "infonce", "infonce, one schedule"):
                above = row.get(f"above {other}")
                if above:
                    cells = [cell(above[measure], "+.1f") for measure in ("r1", "probe")]
                    gains.append([f"{name} minus {NETWORKS[other]}", *cells])
    columns = ("R@1, %", "all frames #", "one frame #", "shuffled #")
    first = table((*columns, "all minus one #", "all minus shuffled #"), searched)
    return f"{first}\n\n{table(('points', 'R@1 #', 'linear probe #'), gains)}"


def walk_text() -> str:
    "What the commands for one's clips do when they are stopped in the middle."
    folders = read("walk-jhmdb")["seeds"]
    rows = [row for folder in folders for row in folder["rows"]]
    stopped = [row for row in rows if row["stopped"] == 130]
    clean = [r for r in rows if r["exit_again"] == 0 and r["made"] and r["tracebacks"] == 0]
    compared = [row for row in rows if row["same"] is not None]
    sizes = sorted({folder["clips"] for folder in folders})
    commands, folder_sizes = len({r["command"] for r in rows}), ", ".join(map(str, sizes[:-1]))
    return (
        f"**Stopped in the middle, all of them go on.** {commands} commands of README and "
        f"how-tos, in folders of {folder_sizes} and {sizes[-1]} clips, with labels and without: "
        f"Ctrl-C ended {len(stopped)} of {len(rows)} calls with exit code 130. The second call "
        f"made its file without a traceback in {len(clean)} of {len(rows)}, hidden files were "
        f"left by {sum(bool(r['left']) for r in rows)}, and "
        f"{sum(r['same'] for r in compared)} of the {len(compared)} files that can be compared "
        "have the content of a run without a stop ([walk-jhmdb.json](walk-jhmdb.json))."
    )


# ---- how fast?


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms" if seconds < 0.2 else f"{seconds:.2f} s"


def first(rows: Iterable[Mapping[str, Any]], **wanted: Any) -> Mapping[str, Any]:
    "The first row that has these values."
    return next(row for row in rows if wanted.items() <= row.items())


def step_rows() -> list[list[str]]:
    rows = []
    machines = (
        ("step-cpu", "two cores, 2 videos"),
        ("step-nvidia-h200-partial", "H200, 32 videos"),
    )
    for name, machine in machines:
        switches = read(name)["switches"]
        plain, fast = (first(switches, variant=v) for v in ("plain", "all, bfloat16"))
        rows.append(
            [
                f"a step of InfoNCE, S3D, 32 × 128²: {machine}",
                milliseconds(fast["seconds"]),
                f"plain recipe in float32: {milliseconds(plain['seconds'])}",
                name,
            ]
        )
    (coclr,) = read("step-nvidia-h200-partial")["coclr"]
    rows.append(
        [
            "a step of CoCLR there",
            milliseconds(coclr["coclr"]),
            f"InfoNCE: {milliseconds(coclr['infonce'])}",
            "step-nvidia-h200-partial",
        ]
    )
    return rows


def row_rows() -> list[list[str]]:
    ways = {way["way"]: way["row"] for way in read("row-cpu")["ways"]}
    beside = (
        f"3-D convolutions {ways['3-D, kept']:.0f} s, decoding, too, {ways['3-D, decoded']:.0f}"
    )
    words = "a row of the one experiment: 1,080 steps, one core"
    return [[words, f"{ways['2-D, kept']:.0f} s", beside, "row-cpu"]]


def search_rows() -> list[list[str]]:
    rows = []
    for videos in (1000, 100_000):
        seconds = first(read("search-cpu")["rows"], videos=videos, backbone="s3d")["seconds"]
        start = seconds["start of Python and PyTorch"]
        rows.append(
            [
                f"a search in {videos:,} videos, by a new file (S3D)",
                f"{seconds['a file from outside']:.1f} s",
                f"by a file of the folder {seconds['a file of the folder']:.1f} s; "
                f"the start of PyTorch alone {start:.1f}",
                "search-cpu",
            ]
        )
    return rows


def input_rows() -> list[list[str]]:
    name = "input-cpu"
    speeds = read(name)["samples_per_s"]
    way = "end to end, {}".format
    rates = [f"{speeds[way(kind)]:.0f}" for kind in ("original", "transcoded")]
    return [
        [
            "input: two clips of 32 × 128² with augmentation, one core",
            f"{rates[0]} a second, {rates[1]} of copies",
            f"PIL, frame by frame: {speeds['PIL per frame (baseline)']:.1f}",
            name,
        ]
    ]


def other_rows() -> list[list[str]]:
    flow = read("flow-cpu")["rows"]
    ours = first(flow, size="320 x 240", way="ours, compiled, CPU")["pairs_per_s"]
    other = first(flow, size="320 x 240", way="OpenCV (baseline)")["pairs_per_s"]
    gpu = first(read("flow-nvidia-h200-partial")["rows"], way="ours, GPU")["pairs_per_s"]
    mining = first(read("mining-cpu")["rows"], keys=262_144)["seconds"]
    waits = read("waits-cpu")["waits"]
    return [
        [
            "TV-L1 at 320 × 240, two cores",
            f"{ours:.1f} pairs a second, compiled",
            f"OpenCV's {other:.1f}; ours on an H200, not compiled, {gpu:.0f}",
            "flow-cpu",
        ],
        [
            "mining in seven stages: 64 queries, 262,144 keys, one thread",
            f"{mining['ours']:.2f} s",
            f"query by query {mining['query by query']:.1f} s",
            "mining-cpu",
        ],
        [
            "`make demo`, two cores, in a slow hour",
            f"{waits['demo']['seconds']:.0f} s",
            f"retrieval of 751 clips {waits['retrieve']['seconds']:.0f} s",
            "waits-cpu",
        ],
    ]


def speed_table() -> str:
    rows = [*step_rows(), *row_rows(), *search_rows(), *input_rows(), *other_rows()]
    linked = [[f"[{words}]({name}.json)", *cells] for words, *cells, name in rows]
    return table(("what", "ours #", "beside it"), linked)


# ---- on a GPU


def gpu_table() -> str:
    "What fifteen minutes of an H200 gave, beside the speeds above."
    step = read("step-nvidia-h200-partial")
    plain, fast = (first(step["switches"], variant=v) for v in ("plain", "all, bfloat16"))
    operations = step["operations"]["seconds"]["all, bfloat16"]
    (coclr,), (moquad,) = step["coclr"], step["moquad"]
    decoding = read("input-nvidia-h200-partial")
    samples, at_work = decoding["samples_per_s"], decoding["workers"]
    videos = fast["clips_per_s"]
    fed = [videos / samples[f"worker, {kind}"] for kind in ("original", "transcoded")]
    memory = read("memory-nvidia-h200-partial")["rows"]
    more = [(r["measured"] - r["computed"]) / 1e6 for r in memory]
    name = "step-nvidia-h200-partial"
    rows = [
        [
            "How far is the step from the GPU's speed?",
            f"{fast['seconds'] / operations:.1f} times the sum of its operations at that speed "
            f"({milliseconds(operations)}, computed): {100 * operations / fast['seconds']:.0f} %",
            name,
        ],
        [
            "What do other methods add?",
            f"CoCLR takes {coclr['ratio']:.2f} times a step of InfoNCE; MoQuad, with four clips "
            f"and their views, {milliseconds(moquad['seconds'])}",
            name,
        ],
        [
            "How much memory?",
            f"{plain['memory_GB']:.1f} GB plain, {fast['memory_GB']:.1f} with all switches; in "
            f"small steps {min(more):.0f} to {max(more):.0f} MB more than `budget` computes",
            "memory-nvidia-h200-partial",
        ],
        [
            "How many processes must decode for it?",
            f"computed from the processor time of one, if processes add up: {fed[0]:.1f}, or "
            f"{fed[1]:.1f} of copies, for {videos:.0f} videos a second; beside other work they did "
            f"not add up: {at_work['original, 1 workers']:.0f} a second with one and "
            f"{at_work['original, 2 workers']:.0f} with two, of copies "
            f"{at_work['copy, 1 workers']:.0f} and {at_work['copy, 2 workers']:.0f}",
            "input-nvidia-h200-partial",
        ],
    ]
    linked = [[f"[{words}]({file}.json)", measured] for words, measured, file in rows]
    return table(("question", "measured"), linked)


# ---- the demo

DEMO = {
    "InfoNCE, frames": "infonce-toy-rgb, rgb",
    "as many more steps": "infonce-toy-rgb-longer, rgb",
    "CoCLR, frames": "coclr-toy-rgb-cycle1, rgb",
    "UberNCE (labels)": "ubernce-toy-rgb, rgb",
    "InfoNCE, differences": "infonce-toy-residual, residual",
    "InfoNCE, flow": "infonce-toy-flow, flow",
    "CoCLR, both": "coclr-toy-rgb-cycle1, rgb+residual",
}


def demo_table() -> str:
    "R@1 of the demo on each machine where it ran."
    results = read("demo")
    here = {f"{r['name']}, {r['view']}": 100 * r["r1"] for r in results["rows"]}
    stored = {"where": "Intel Xeon", "seconds_in_all": results["seconds_in_all"], "r1": here}
    rows = []
    for run in (stored, *results["elsewhere"]):
        numbers = (f"{run['r1'][name]:.1f}" for name in DEMO.values())
        rows.append([run["where"], *numbers, str(run["seconds_in_all"])])
    return table(("R@1, %", *(f"{words} #" for words in DEMO), "seconds in all #"), rows)


# ---- the page

BLOCKS: dict[str, Callable[[], str]] = {
    "changes": changes_table,
    "families": families_table,
    "seeds": seeds_so_far,
    "claims": claims_table,
    "published": published_table,
    "methods": methods_table,
    "reach": reach_text,
    "frame order": frame_order_table,
    "walk": walk_text,
    "speed": speed_table,
    "gpu": gpu_table,
    "demo": demo_table,
    "index": index,
}


def filled(
    text: str,  # of the page
    blocks: Mapping[str, Callable[[], str]] = BLOCKS,
) -> str:
    "The page with what the results have today between its marks. `ValueError` for a lost mark."
    for name, made in blocks.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        if text.count(begin) != 1 or text.count(end) != 1 or text.find(begin) > text.find(end):
            raise ValueError(f"{PAGE.name}: has to have {begin} and {end} once, in this order")
        before, rest = text.split(begin)
        after = rest.split(end)[1]
        text = f"{before}{begin}\n\n{made()}\n\n{end}{after}"
    return text


# ---- pictures

KEYWORD = b"numbers"


def lines_of_ladder(
    results: Results,
    world: str = "plain",
) -> list[Line]:
    records = [r for r in results["records"] if r["world"] == world and r["budget"] == 1]
    return [Line(*names, world=world) for names in sorted({(r["row"], r["view"]) for r in records})]


@dataclass(frozen=True)
class Drawn:
    "A picture of the one experiment."

    draw: Callable[[Results], Any]
    lines: Callable[[Results], list[Line]]  # what it is drawn from
    metrics: tuple[str, ...] = ("r1", "scene", "motion")


PICTURES = {
    "experiment": Drawn(
        experiment_conflict.picture, lambda results: [row.line for row in README_ROWS]
    ),
    "dose": Drawn(
        lambda results: dose.picture(dose.drawable(dose.panels(RESULTS, dose.EXPERIMENT))),
        lambda results: [Line(row) for row in dose.EXPERIMENT_ROWS],
        ("r1",),
    ),
    "ladder": Drawn(ladder, lines_of_ladder),
    "ladder-both": Drawn(
        partial(ladder, world="both"),
        partial(lines_of_ladder, world="both"),
        ("r1", "right_motion", "right_kind"),
    ),
}


def numbers_of(
    results: Results,
    picture: Drawn,
) -> str:  # 16 hexadecimal digits
    "A digest of what a picture is drawn from."
    drawn = {
        str(line): {m: percents(results, line, m) for m in picture.metrics}
        for line in picture.lines(results)
    }
    return hashlib.sha256(json.dumps(drawn, sort_keys=True).encode()).hexdigest()[:16]


def marked(png: bytes, text: str) -> bytes:
    "A PNG with a text in it, behind its header; what moves goes on to move."
    content = KEYWORD + b"\0" + text.encode()
    size, kind = struct.pack(">I", len(content)), b"tEXt"
    check = struct.pack(">I", zlib.crc32(kind + content))
    header = 8 + 25  # the signature, then the first chunk
    return png[:header] + size + kind + content + check + png[header:]


def mark_of(png: bytes) -> str:  # '' where it has none
    "The text that `marked` has put into a PNG."
    mark = re.search(rb"tEXt" + KEYWORD + rb"\0([0-9a-f]{16})", png[:4000])
    return mark[1].decode() if mark else ""


def old_pictures(
    folder: Path = IMAGES,
) -> dict[str, str]:  # name -> digest of its numbers today
    "Pictures that are missing, or drawn from other numbers than the results have today."
    results = read_results(RESULTS / "experiment.json")
    digests = {name: numbers_of(results, picture) for name, picture in PICTURES.items()}
    files = {name: folder / f"{name}.png" for name in digests}
    return {
        name: digest
        for name, digest in digests.items()
        if not files[name].exists() or mark_of(files[name].read_bytes()) != digest
    }


def draw(
    name: str,  # of PICTURES
) -> Any:  # what `show.save_picture` takes
    "A picture of the results as they are."
    return PICTURES[name].draw(read_results(RESULTS / "experiment.json"))
