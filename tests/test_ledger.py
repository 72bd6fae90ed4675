"The ledger: written from stored records, whatever their order, and read with its verdicts."

import contextlib
import csv
import importlib
import io
import json
import random
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from house import ROOT
from scipy import stats

from vssl_nb.app.cli import main
from vssl_nb.papers import ledger
from vssl_nb.papers.ledger import CLAIMS, READINGS, Claim
from vssl_nb.papers.published import ROWS as PUBLISHED
from vssl_nb.papers.verdicts import NOT_RUN, Premise, chain_links

SEEDS = range(41, 49)
ALL_DIRECTIONS = "ours: without pairs k = k', all directions in Eq. 10"
RESULTS = ROOT / "results"
# R@1 of a row, percent: of seed 41, and what each further seed adds
ROWS = {
    ("untrained", "rgb"): (14.0, 0.1),
    ("untrained", "residual"): (50.0, 0.1),
    ("histogram", "rgb"): (15.0, 0.0),
    ("chance", "rgb"): (12.5, 0.0),
    ("cmc", "rgb"): (17.0, 0.2),
    ("iic", "rgb"): (60.0, 0.5),
    ("infonce", "rgb"): (15.0, 0.0),
    ("infonce", "residual"): (90.0, 0.0),
}


@pytest.fixture(scope="module")
def writer():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    return importlib.import_module("ledger")


def write_results(folder, rows=ROWS, shuffle=0, seeds=SEEDS):
    "An experiment of made-up records, and two older files."
    order = random.Random(shuffle)
    stamps = [{"rule": "aaa", "head": head, "modules": {}} for head in ("bbb", "ccc")]
    places = [0, 1] if shuffle == 0 else [1, 0]
    spent = {"steps": 1080, "drawn": 17280, "gradient": 8640, "cpu_seconds": 50.0}
    records = [
        {"world": "plain", "row": row, "view": view, "budget": 1, "seed": seed}
        | {"r1": (first + step * (seed - 41)) / 100, "whole": spent}
        | {"stamp": places[seed > 44], "cpu_seconds": 50.0}
        for (row, view), (first, step) in rows.items()
        for seed in seeds
    ]
    spoiled = [
        {
            "seed": seed,
            "rows": [
                {"run": "ProViCo", "r1": 0.6, "cosine": 0.5, "match": 0.5 + 0.01 * (seed - 40)}
                | {
                    "fifths": [0.9, 0.6, 0.5, 0.5, 0.4],
                    "mixed": {"1": -6.0, "2": -5.5},
                    "cpu_seconds": 60.0,
                }
            ],
        }
        for seed in SEEDS
    ]
    scenes = [
        {
            "seed": seed,
            "rows": [
                {"run": run, "r1": 0.5, "by_class": {"scene_1": a, "scene_2": a, "spin": b}}
                for run, a, b in (("SimCLR", 1.0, 0.25), ("MoQuad", 0.75, 0.5))
            ],
        }
        for seed in SEEDS
    ]
    for some in (records, spoiled, scenes):
        order.shuffle(some)
    order.shuffle(order_of := [0, 1])
    files = [
        ("experiment", {"stamps": [stamps[places.index(i)] for i in (0, 1)], "records": records}),
        ("world-spoiled", {"rule": "ddd", "committed": "eee", "seeds": spoiled}),
        ("world-scenes", {"rule": "ddd", "seeds": scenes}),
    ]
    for name, content in files if order_of == [0, 1] else files[::-1]:
        (folder / f"{name}.json").write_text(json.dumps(content))


def written(writer, folder):
    writer.results_of.cache_clear()
    return writer.write_ledger(folder)


def row_of(file, number, reading):
    return next(r for r in ledger.read_rows(file, [number]) if r.reading.reading == reading)


OURS = "ours: a gradient to broken clips, features of length 1"


# ---- claims and readings


def test_each_reading_is_of_a_claim_and_has_an_arm_for_each_name_of_its_chain():
    for reading in READINGS:
        names = {name for link in chain_links(reading.chain) for name in link}
        assert names == set(reading.arms), reading.name
    assert len({r.name for r in READINGS}) == len(READINGS)


def test_each_claim_has_a_main_reading_and_older_results_stand_last():
    assert CLAIMS.keys() == {*range(1, 29)} == {r.number for r in READINGS if not r.is_ours}
    assert [r.number for r in READINGS] == sorted(r.number for r in READINGS)
    for number in CLAIMS:
        older = [not r.source.startswith("experiment") for r in READINGS if r.number == number]
        assert older == sorted(older), number


def test_readings_name_rows_that_there_are(writer):
    rows = importlib.import_module("experiment_rows").ROWS
    for reading in READINGS:
        if reading.source.startswith("experiment"):
            named = [p for number in reading.arms.values() for p in number.parts]
            for p in (*named, *(reading.premise or ())):
                if p.constant is None:
                    views = (*rows[p.row].views, *rows[p.row].also)
                    assert p.row in rows and p.view in views, reading.name


def test_a_claim_names_the_measure_of_the_paper_beside_ours():
    "Ours is R@1 where MoQuad's tables and some of CoCLR's and ProViCo's have accuracies."
    other = {n for n, c in CLAIMS.items() if "accuracy" in c.metric}
    assert other == {1, 2, *range(11, 16), 17, 19, 20, 21}
    assert {r.measure for r in READINGS if r.number in other - {17}} == {"R@1, %"}
    assert not [r.name for r in READINGS if re.search("linear|probe|accuracy", r.measure)]
    tables = "table 4", "table 5", "table 6"
    tasks = {r.task for r in PUBLISHED if r.paper == "MoQuad" and r.table in tables}
    assert tasks == {"finetune", "linear"}
    claim = next(r["claim"] for r in ledger.table_rows() if r["#"] == "20")
    assert claim == "R@1, % (paper: accuracy after fine-tuning, %): K=5 < K=10"


def test_the_gains_of_claims_are_printed():
    "Each number in the place of a name stands in that table of that paper."
    for c in CLAIMS.values():
        table = {"appendix, ": "appendix ", "figures 4, 6": "text"}
        where = next((c.where.replace(a, b) for a, b in table.items() if a in c.where), c.where)
        printed = {float(x) for x in re.findall(r"[\d.]+", c.printed)}
        # MoQuad's table 6 repeats 73.9 of its table 4 for beta = 0
        there = {r.value for r in PUBLISHED if r.paper == c.paper and r.table in (where, "table 4")}
        assert printed <= there, c
        assert all(gain > 0 for gain in c.gains.values()), c
    chain = Claim(0, "a < b < c; d < b", printed="1 < 2.5 < 4; –")
    assert chain.gains == {("a", "b"): 1.5, ("b", "c"): 1.5}


# ---- the file


def test_the_same_bytes_whatever_the_order_of_files_records_and_stamps(writer, tmp_path):
    made = []
    for shuffle in range(4):
        write_results(tmp_path, shuffle=shuffle)
        made.append(written(writer, tmp_path).read_bytes())
    assert len({*made}) == 1


def test_the_stored_file_follows_from_the_stored_outcomes(writer, tmp_path):
    "Byte for byte, in a clone without history too: no number of it is typed."
    results = tmp_path / "results"
    shutil.copytree(RESULTS, results, ignore=shutil.ignore_patterns("claims.json"))
    again = written(writer, results)
    stored = (RESULTS / "claims.json").read_bytes()
    assert again.read_bytes() == stored, "run benchmarks/ledger.py again"


def test_rules_are_older_than_runs(writer):
    "By the commits that a line names."
    from stamps import git, is_ancestor

    if not git("rev-parse", "HEAD"):
        pytest.skip("no repository")
    if git("rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("the repository has not all commits")
    pairs = {(a, b) for row in ledger.read_rows() for a in row.rule for b in row.runs}
    assert pairs and all(is_ancestor(rule, runs) for rule, runs in pairs), pairs


def test_a_line_by_hand(writer, tmp_path):
    "IIC is 43 to 45.1 points above CMC on each seed; what is not there is not run."
    write_results(tmp_path)
    file = written(writer, tmp_path)
    ours = row_of(file, 28, OURS)
    assert ours.arms["broken clips"].values == tuple(round(60 + 0.5 * i, 4) for i in range(8))
    assert ours.arms["broken clips"].untrained == tuple(round(14 + 0.1 * i, 4) for i in range(8))
    assert (ours.rule, ours.runs, ours.seeds) == (("aaa",), ("bbb", "ccc"), tuple(SEEDS))
    assert ours.premise.values == (1.2,) * 8 and ours.hours == 0
    assert ours.budget["broken clips"]["cpu_seconds"] == 50
    rows = ledger.read_rows(file, [28])
    verdicts = dict(zip((r.reading.reading for r in rows), ledger.verdicts_of(rows)))
    alone, together = verdicts["as released"]
    assert alone.word == together.word == NOT_RUN
    plain = next(r for r in rows if r.reading.reading == OURS)
    alone, together = ledger.verdicts_of([plain])[0]
    assert alone.word == together.word == "holds"
    assert alone.links[0].estimate == pytest.approx(44.05)


def test_a_reading_of_few_seeds_is_not_run_and_tells_what_the_rest_takes(writer, tmp_path):
    "Three seeds lack, two rows of 50 seconds each."
    write_results(tmp_path, seeds=range(41, 46))
    row = row_of(written(writer, tmp_path), 28, OURS)
    ((alone, _),) = ledger.verdicts_of([row])
    assert (alone.word, alone.because) == (NOT_RUN, "5 seeds of at least 6")
    assert row.hours == round(3 * 100 / 3600, 2) and len(row.seeds) == 5
    # in another world, eight seeds of as many seconds
    rows = ledger.read_rows(tmp_path / "claims.json", [28])
    both = next(r for r in rows if r.reading.world == "motion and kind of scene")
    assert both.hours == round(8 * 100 / 3600, 2) and not both.arms


def test_numbers_of_older_files(writer, tmp_path):
    "Numbers that lie deeper, means over classes, differences, and constants."
    write_results(tmp_path)
    file = written(writer, tmp_path)
    row = row_of(file, 17, "as printed: motion classes gain, and gain more")
    assert row.arms["nothing"].values == (0.0,) * 8
    assert row.arms["motion classes"].values == (25.0,) * 8
    assert row.arms["appearance classes"].values == (-25.0,) * 8
    assert row.premise.values == (2.0,) * 8 and not row.is_stamped
    assert not row.is_measured and row.arms["motion classes"].failed == 0
    assert ledger.verdicts_of([row])[0][0].word == "holds"
    row = row_of(file, 25, f"{ALL_DIRECTIONS}: one step of several")
    assert row.arms["two videos mixed"].values == (-5.5,) * 8
    row = row_of(file, 23, ALL_DIRECTIONS)
    assert row.arms["match probability"].values == tuple(50.0 + i for i in range(1, 9))
    assert (row.rule, row.runs) == (("ddd",), ("eee",))
    texts = {r["reading"]: r["rule and runs"] for r in ledger.table_rows(file, [23])}
    assert texts[ALL_DIRECTIONS] == "rule ddd; runs eee; of before stamps"


def test_a_stamped_file_of_seeds_names_its_commits(writer, tmp_path):
    write_results(tmp_path)
    file = tmp_path / "world-spoiled.json"
    stamp = {"head": "abc", "modules": {"vssl_nb.data.toy": "another digest"}}
    content = json.loads(file.read_text()) | stamp | {"continued": [stamp | {"head": "def"}]}
    file.write_text(json.dumps(content))
    row = row_of(written(writer, tmp_path), 23, ALL_DIRECTIONS)
    assert row.runs == ("abc", "def") and row.rule == ("ddd",)
    assert row.is_stamped


def test_an_untrained_encoder_from_another_file_counts_where_it_has_all_seeds(writer, tmp_path):
    write_results(tmp_path)
    for seeds, measured in ((SEEDS, True), (range(41, 48), False)):
        rows = [{"run": "spoiled", "view": "residual", "r1": 0.38}]
        content = {"seeds": [{"seed": seed, "rows": rows} for seed in seeds]}
        (tmp_path / "untrained-worlds.json").write_text(json.dumps(content))
        row = row_of(written(writer, tmp_path), 24, ALL_DIRECTIONS)
        assert row.is_measured == measured and len(row.seeds) == 8
        assert row.arms["most certain"].untrained == ((38.0,) * 8 if measured else ())


def test_a_premise_is_a_quotient(writer, tmp_path):
    more = {
        ("queue", "rgb"): (14.0, 0.0),
        ("coclr", "rgb"): (40.0, 0.0),
        ("ubernce", "rgb"): (50.0, 0.0),
    }
    write_results(tmp_path, ROWS | more)
    row = next(r for r in ledger.read_rows(written(writer, tmp_path), [2]) if r.arms)
    assert row.premise.values == (6.0,) * 8 and row.premise.is_met  # 90 : 15
    assert row.arms["halfway to UberNCE"].values == (32.0,) * 8


def test_seeds_are_planned_from_the_spread_of_a_pilot(writer):
    needed = writer.seeds_needed
    # an endless pilot knows the spread: the power of a t test, computed by simulation
    n, rng = needed(2.0, 3.0, 10_001), np.random.default_rng(0)

    def power(seeds):
        d = rng.normal(2.0, 3.0, (20_000, seeds))
        half = stats.t.ppf(0.975, seeds - 1) * d.std(1, ddof=1) / seeds**0.5
        return (abs(d.mean(1)) > half).mean()

    assert power(n - 2) < writer.POWER - 0.005 < power(n)
    assert n < needed(2.0, 3.0, 8) < needed(2.0, 3.0, 5)  # a pilot of few seeds knows it badly
    assert (needed(9.0, 0.1, 3), needed(9.0, 0.0, 3), needed(0.1, 9.0, 8)) == (8, 8, None)


def test_the_power_of_seeds_is_that_of_the_rule(writer):
    """By sign flips eight seeds decide a link where hardly a choice of signs is as far from 0; by
    signs all eight, or all but none, must point one way.
    """
    power, spread = writer.power_of, [-3.0, -2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 3.0]
    shifted = [x + 40 for x in spread]
    assert power(spread, 10.0, "signs flipped") == power(shifted, 10.0, "signs flipped") == 1
    assert power(spread, 0.0, "signs flipped") <= 0.05
    assert 0.2 < power(spread, 2.0, "signs flipped") < 0.9
    assert power(spread, 3.9, "signs") == 1 > power(spread, 2.0, "signs")


def test_a_premise_that_cannot_be_met_any_more_takes_another_world(writer, tmp_path):
    "Of eight seeds six must have it: three that lack it are too many, two are not."
    assert Premise((1.0,) * 3, least=2.0).is_lost(8) and not Premise((1.0,) * 2, 2.0).is_lost(8)
    write_results(tmp_path, ROWS | {("histogram", "rgb"): (60.0, 0.0)}, seeds=range(41, 46))
    row = row_of(written(writer, tmp_path), 28, OURS)
    assert row.lacks_premise and row.hours == round(8 * 100 / 3600, 2)
    rows = ledger.table_rows(tmp_path / "claims.json", [28])
    texts = {(r["reading"], r["world"]): r["seeds"] for r in rows}
    assert texts[OURS, "plain toy"].endswith(
        "; 8 in a world that has the premise take 0.2 hours of a core"
    )


# ---- for people


def test_texts(writer, tmp_path):
    write_results(tmp_path)
    file = written(writer, tmp_path)
    assert len(ledger.markdown_table(file).splitlines()) == 2 + len(READINGS)
    text = ledger.plain_text(file, [28])
    assert "plain toy: holds" in text and "not run: no broken clips is missing" in text
    words = [alone.word for _, alone, _ in ledger.main_rows(file)]
    assert len(words) == len(CLAIMS)
    assert f"not run: {words.count(NOT_RUN)}" in ledger.counted_verdicts(file)
    text = ledger.plain_text(file, [23])
    assert "failed seeds: not measured: no untrained encoder of this world" in text
    assert re.search(r"mean \+4\.5 \(\S+ to \S+\), median \+4\.5, p 0\.008; the paper \+1\.6", text)
    assert re.search(r"the paper \+1\.6, which takes .* seeds \(power of these 8: \d+ %\)", text)
    assert "nats" in ledger.plain_text(file, [25]) or "holds" in ledger.plain_text(file, [25])


def test_the_main_line_of_a_claim_is_the_first_that_was_judged(writer, tmp_path):
    "Not the first that is listed: what was not run, or has no premise, says nothing of a claim."

    def main_line(number):
        lines = {row.reading.number: (row, alone) for row, alone, _ in ledger.main_rows(file)}
        return lines[number]

    more = {("ubernce", "rgb"): (50.0, 0.0), ("queue", "rgb"): (14.0, 0.0)}
    write_results(tmp_path, ROWS | more)
    file = written(writer, tmp_path)
    first = next(r for r in READINGS if r.number == 1)
    row, alone = main_line(1)  # twice the budget is listed first, and was not run
    assert (row.reading.world, alone.word) == ("plain toy", "holds")
    assert first.world == "plain toy, twice the budget"
    # only our form of claim 28 was run: its main line stays the released one
    row, alone = main_line(28)
    assert (row.reading.reading, alone.word) == ("as released", NOT_RUN)

    # of the stored ledger: nothing that was judged, or even run, stands behind what was not
    rank = {word: 0 for word in ("holds", "fails", "no difference above")} | {NOT_RUN: 2}
    best = {number: 2 for number in CLAIMS}
    rows = ledger.read_rows()
    for row, (alone, _) in zip(rows, ledger.verdicts_of(rows)):
        if not row.reading.is_ours:
            number = row.reading.number
            best[number] = min(best[number], rank.get(alone.word, 1))
    assert {r.reading.number: rank.get(a.word, 1) for r, a, _ in ledger.main_rows()} == best


def test_claims_on_the_command_line(capsys):
    assert main(["claims", "--paper", "moquad"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("11  MoQuad, table 4: R@1, % (paper: accuracy")
    assert "\n18  MoQuad" in printed and "CPR" not in printed
    for column in ("over the ledger", "b − a, 95 % interval", "premise", "seeds", "budget", "note"):
        assert f"\n    {column}: " in printed, column
    assert printed.rstrip().endswith(ledger.counted_verdicts())
    assert main(["claims", "--form", "markdown"]) == 0
    table = capsys.readouterr().out
    assert table.splitlines()[0] == f"| {' | '.join(ledger.SHORT_COLUMNS)} |"


def test_a_ledger_that_is_not_whole_is_refused(writer, tmp_path):
    write_results(tmp_path)
    file = written(writer, tmp_path)
    content = json.loads(file.read_text())

    def refused(changed):
        file.write_text(changed if isinstance(changed, str) else json.dumps(changed))
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            code = main(["claims", "--ledger", str(file)])
        assert code == 2 and len(err.getvalue().splitlines()) == 1, err.getvalue()
        return err.getvalue()

    assert "not readable as JSON" in refused("{")
    assert "has no lines" in refused([])
    assert "'x' is no reading of this version" in refused({"lines": {"x": {}}})
    name = next(iter(content["lines"]))
    assert f"the line {name!r} is not whole" in refused({"lines": {name: {"arms": {}}}})
    whole = next(line for line in content["lines"].values() if line["arms"])
    arm = next(iter(whole["arms"].values()))
    arm["values"] = arm["values"][:-1]
    assert "give all alike" in refused(content)
    with pytest.raises(ValueError, match="there is no ledger"):
        ledger.read_rows(tmp_path / "none.json")


# ---- the whole ledger again, by whoever has read the rule alone


def oracle():
    "In a process of its own: it imports nothing of the library."
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "ledger_oracle.py"), str(RESULTS / "claims.json")],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_another_recomputation_agrees_in_every_row():
    rows, again = ledger.read_rows(), oracle()
    assert again.keys() == {row.reading.name for row in rows}
    for row, (alone, together) in zip(rows, ledger.verdicts_of(rows)):
        other = again[row.reading.name]
        assert (alone.word, together.word) == tuple(other["words"]), row.reading.name
        for bound, expected in zip((alone.bound, together.bound), other["bounds"]):
            assert bound == pytest.approx(expected, abs=1e-9), row.reading.name
        for link, (p, low, high) in zip(alone.links, other["links"], strict=True):
            numbers = (link.adjusted, link.low, link.high)
            assert numbers == pytest.approx((p, low, high), abs=1e-9), row.reading.name


def test_no_line_of_a_table_is_torn_by_a_comma():
    for file in (ROOT / "vssl_nb" / "papers").glob("*.csv"):
        lines = [x for x in file.read_text(encoding="utf-8").splitlines() if x[:1] != "#"]
        head, *rows = csv.reader(lines)
        assert [row for row in rows if len(row) != len(head)] == [], file.name
