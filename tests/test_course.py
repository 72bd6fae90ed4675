"The table of the lessons: from a file of results that is made here."

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from vssl_nb.app import course
from vssl_nb.data import toy
from vssl_nb.methods.recipes import find, override
from vssl_nb.ssl.memory import Queue


@pytest.fixture
def results(tmp_path, monkeypatch):
    "Three rows with two seeds each, in the form of the one experiment."
    rows = {"chance": 12.5, "untrained": 13.0, "infonce": 16.0}
    records = [
        {
            "world": "plain",
            "row": row,
            "view": "rgb",
            "budget": 1,
            "seed": seed,
            "r1": (value + seed - 41) / 100,
            "scene": 0.5,
            "motion": 0.25,
        }
        | ({"whole": {"steps": 1080, "cpu_seconds": 40.0 + seed}} if row == "infonce" else {})
        for row, value in rows.items()
        for seed in (42, 41)
    ]
    file = tmp_path / "experiment.json"
    file.write_text(json.dumps({"records": records}))
    monkeypatch.setattr(course, "RESULTS", file)
    monkeypatch.setattr(
        course,
        "LESSONS",
        {"01": (("chance", "rgb"), ("untrained", "rgb")), "02": (), "04": (("infonce", "rgb"),)},
    )
    course.stored_records.cache_clear()
    yield records
    course.stored_records.cache_clear()


def test_rows_in_an_order_of_ones_own(results):
    table = course.rows_table(("infonce", "rgb"), ("chance", "rgb"))
    assert [(r.name, r.new) for r in table.rows] == [("InfoNCE", False), ("chance", False)]
    with pytest.raises(course.CourseError, match="budget=2"):
        course.rows_table(("infonce", "rgb"), budget=2)


def test_a_table_ends_with_the_rows_of_its_lesson(results):
    assert [r.name for r in course.lesson_table("01").rows] == ["chance", "untrained"]
    assert [r.name for r in course.lesson_table("02").rows] == ["chance", "untrained"]
    assert [r.name for r in course.lesson_table("04").rows] == ["chance", "untrained", "InfoNCE"]
    below = [(r.name, r.new) for r in course.added_rows("04").rows]
    assert below == [("chance", False), ("untrained", False), ("InfoNCE", True)]
    with pytest.raises(course.CourseError, match="give two digits, one of 01, 02, 04"):
        course.lesson_table("4")


def test_numbers_are_medians_over_the_seeds(results):
    row = course.lesson_table("04").rows[-1]
    assert row.r1 == pytest.approx((16.0, 17.0)) and row.new and row.steps == 1080
    assert row.seconds == pytest.approx(81.5) and row.scene == 50.0
    assert course.median_of("infonce") == pytest.approx(16.5)
    page = course.lesson_table("04")._repr_html_()
    assert page.count("<circle") == 6 and "16.5" in page and "bold" in page
    assert "8 seeds (or the number behind the name)" in page and "Bold: added last." in page
    untrained = course.rows_table(("untrained", "rgb"))
    assert "Bold" not in untrained.note and "s: seconds" not in untrained.note


def test_differences_are_paired_by_seed(results):
    difference = course.difference_of("infonce", "untrained")
    assert difference.seeds == pytest.approx((3.0, 3.0)) and difference.mean == pytest.approx(3.0)
    assert "R@1, InfoNCE minus untrained: +3.0 points" in repr(difference)


def test_differences_stand_on_one_scale():
    wide = course.Difference("a < b", "c", "r1", (-42.0, -31.0, 0.0, 12.0, 3.0, 7.0))
    few = course.Difference("d", "e", "scene", (1.0, 2.0))
    table = course.differences(wide, few)
    assert table.reach == 50  # a multiple of ten that has the widest difference
    assert repr(table).splitlines() == [repr(wide), repr(few)]
    assert few.cell == "+1.5<br>(no interval yet)"
    beside_zero = course.Difference("a", "b", "r1", (0.0,) * 2 + (-2.0,) * 6)
    assert beside_zero.cell == "−1.5<br>(−2.0\u00a0to\u00a0−0.7)"
    at_zero = course.Difference("a", "b", "r1", (0.0,) * 7 + (8.0,))
    assert at_zero.interval[0] == 0.0 and at_zero.cell.startswith("+1.0<br>(0\u00a0to\u00a0+")

    page = table._repr_html_()
    assert "a &lt; b" in page and "<title>-42.0</title>" in page and "none yet" in page
    assert page.count("<circle") == 8 and page.count('stroke-width="3"') == 1  # one interval
    at_zero = '<line x1="70.0" y1="1"'  # the middle of 140 px
    assert page.count(at_zero) == 2
    assert f'cx="{6 + 128 * 8 / 100:.1f}"' in page  # -42 of -50 to 50


def test_few_seeds_are_counted_and_have_no_interval(results):
    table = course.lesson_table("04")
    assert [r.title for r in table.rows][-1] == "InfoNCE (2 seeds)"
    assert "InfoNCE (2 seeds)" in table._repr_html_() and "InfoNCE (2 seeds)" in repr(table)

    difference = course.difference_of("infonce", "untrained")
    assert "no interval yet; by seed +3.0, +3.0" in repr(difference)
    assert "inf" not in repr(difference).lower().replace("infonce", "")

    whole = course.Difference("a", "b", "r1", (1.0,) * 8)
    assert whole.written_interval == "+1.0 to +1.0"


def test_what_is_not_there_is_named(results, tmp_path, monkeypatch):
    with pytest.raises(course.CourseError, match="the rows are chance, infonce, untrained"):
        course.seeds_of("coclr")
    with pytest.raises(course.CourseError, match="view='residual'"):
        course.seeds_of("infonce", "residual")
    monkeypatch.setattr(course, "RESULTS", tmp_path / "none.json")
    course.stored_records.cache_clear()
    with pytest.raises(course.CourseError, match="from a clone of the repository"):
        course.lesson_table("01")


def test_names_and_reasons_are_no_part_of_a_recipe():
    recipe = find("infonce-toy-rgb")
    digest = course.recipe_digest(recipe)
    assert course.recipe_digest(override(recipe, name="other", about="words")) == digest
    assert course.recipe_digest(override(recipe, lr=0.5)) != digest


def test_a_live_row_stands_beside_all_seeds_of_its_row(results):
    stored = course.seeds_of("infonce")[0]
    live = course.LiveRow(find("infonce-toy-rgb"), None, {}, 16.0, 50.0, 10.0, 3.0, stored)
    here, beside, seeds = repr(live).splitlines()
    assert here.endswith("in 3 s") and beside.startswith("stored: R@1 16.0 %")
    assert seeds == "2 seeds: R@1 16.0 to 17.0 %, median 16.5 %"
    other = course.LiveRow(live.recipe, None, {}, 16.0, 50.0, 10.0, None, None)
    assert repr(other) == "here:   R@1 16.0 %, scene 50.0 %, motion 10.0 %"


TRAIN_A_ROW = """
import sys
from pathlib import Path
from vssl_nb.app import course

course.ROOT = Path(sys.argv[1])
row = course.train_row("infonce")
print(row.r1, row.seconds is None)
"""


def test_of_two_pages_that_train_a_row_at_once_the_second_waits(tmp_path):
    command = [sys.executable, "-c", TRAIN_A_ROW, tmp_path]
    pages = [
        subprocess.Popen(
            command, env=os.environ | {"IN_TEST": "1"}, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    printed = [page.communicate()[0].split() for page in pages]
    assert [page.returncode for page in pages] == [0, 0]
    assert printed[0][0] == printed[1][0]
    assert sorted(waited for _, waited in printed) == ["False", "True"]


def test_a_table_and_a_difference_name_another_world(results, monkeypatch):
    both = [r | {"world": "both", "r1": r["r1"] / 2} for r in course.stored_records()]
    with monkeypatch.context() as patch:
        patch.setattr(course, "stored_records", lambda: (*both,))
        page = course.rows_table(("infonce", "rgb"), world="both")._repr_html_()
        difference = course.difference_of("infonce", "untrained", world="both")
    assert "<small>World both. " in page
    assert f'x1="{6 + 168 / 16:.1f}"' in page  # chance of 16 classes, on a line of 168 px
    assert repr(difference).startswith("world both: R@1, InfoNCE minus untrained: +1.5 points")


def test_what_a_search_has_tried(tmp_path, monkeypatch):
    trial = {"row": "infonce", "view": "rgb", "seed": 30, "r1": 0.154, "scene": 0.99}
    search = [
        trial | {"lr": 0.001, "own": {"temperature": 0.1}},
        trial | {"lr": 0.0003, "own": {"temperature": 0.05}, "r1": 0.09},
        trial | {"row": "masked pixels", "lr": 1, "own": {"mask": "tube", "threshold": None}},
        trial | {"view": "residual", "lr": 1, "own": {}},
    ]
    file = tmp_path / "experiment.json"
    file.write_text(json.dumps({"records": [], "search": search}))
    monkeypatch.setattr(course, "RESULTS", file)
    assert repr(course.tried("infonce")).splitlines() == [
        "seed 30: rate 0.001, temperature 0.1    R@1 15.4 %, scene  99 %",
        "seed 30: rate 0.0003, temperature 0.05  R@1  9.0 %, scene  99 %",
    ]
    masked = repr(course.tried("masked pixels"))
    assert masked.startswith("seed 30: rate 1, mask tube, threshold None  R@1 15.4 %")
    page = course.tried("infonce")._repr_html_()
    assert page.startswith("<details><summary>settings that were tried: InfoNCE on frames")
    names = [cell.split(">")[-1] for cell in page.split("</th>")[:-1]]
    assert names == ["seed", "rate", "temperature", "R@1", "scene"]
    with pytest.raises(course.CourseError, match="row='byol', view='rgb': its settings were not"):
        course.tried("byol")


def test_fresh_keys_are_counted_against_a_queue_that_stands_still(monkeypatch):
    "Two batches of two videos in a plane; clips are vectors, and query and key are what they are."
    east, north, west = torch.tensor([[1.0, 0], [0, 1], [-1, 0]])
    diagonal = F.normalize(torch.tensor([1.0, 1]), dim=0)
    clips = [  # of each video query and key
        torch.stack([torch.stack([east, west]), torch.stack([west, north])]),
        torch.stack([torch.stack([east, east]), torch.stack([north, north])]),
    ]
    raw = [{"rgb": x, "row": torch.tensor([2 * i, 2 * i + 1])} for i, x in enumerate(clips)]
    experiment = SimpleNamespace(batches=raw, views=lambda batch: batch)
    monkeypatch.setattr(course, "resolve", lambda *given: experiment)
    monkeypatch.setattr(course, "course_videos", lambda: SimpleNamespace(manifest=0, cache=0))
    queue = Queue(2, 4)
    queue.push(torch.stack([diagonal, -north, -diagonal, east]), row=torch.tensor([9, 9, 9, 2]))
    pair = SimpleNamespace(queries=lambda x: x, keys=lambda x, batch: x)
    recipe = override(find("infonce-toy-rgb"), batch=2)
    fresh = course.fresh_keys(recipe, SimpleNamespace(pair=pair, queue=queue))
    # nearest in the queue: east, -diagonal, diagonal (the third query's old key is left out) and
    # diagonal
    assert fresh.own == 2 / 4  # of the third and fourth query
    assert fresh.other == 1 / 2  # the second key lies on the fourth query
    assert fresh.ages.tolist() == [0, 0, 1, 1]


def test_a_short_table_has_landmarks_and_the_last_rows_and_folds_the_others():
    whole = course.lesson_table("13")
    short = whole.short()
    names = [r.name for r in short.rows]
    assert names[:2] == ["chance", "untrained"] and {r.name for r in whole.rows if r.new} < {*names}
    assert len(short.rows) < len(whole.rows) and repr(short).count("\n") == len(short.rows)
    page = short._repr_html_()
    few, folded = page.split("<details>")
    assert few.count("<tr") == len(short.rows) + 1 and folded.count("<tr") == len(whole.rows) + 1
    # a lesson without rows: the last two of the table
    assert [r.name for r in course.lesson_table("14").short().rows][-2:] == names[-2:]


def test_a_row_with_more_budget_has_its_times_in_its_name():
    table = course.rows_table(("queue", "rgb"), budget=2)
    assert [r.name for r in table.rows] == ["InfoNCE + queue ×2"]
    longer = course.difference_of("coclr", "queue", budgets=(2, 1))
    assert (longer.a, longer.b) == ("CoCLR ×2", "InfoNCE + queue")
    assert longer.seeds != course.difference_of("coclr", "queue").seeds


def test_a_folded_table_has_all_of_the_open_one():
    table = course.lesson_table("03")
    assert repr(table.folded()) == repr(table)
    page = table.folded()._repr_html_()
    assert page.startswith("<details><summary>the 3 rows so far")
    assert table._repr_html_() in page


def test_a_table_takes_further_rows_to_compare_with():
    added = course.added_rows("12")
    table = course.added_rows("12", beside=[("bank", "rgb")])
    new = [r for r in added.rows if r.new]
    assert [r for r in table.rows if r.new] == new and [*table.rows[-len(new) :]] == new
    further = table.rows[-len(new) - 1]
    assert further.r1 == tuple(100 * r["r1"] for r in course.seeds_of("bank", "rgb"))
    assert len(table.rows) == len(added.rows) + 1
    with pytest.raises(course.CourseError, match="no such row"):
        course.added_rows("12", beside=[("no such row", "rgb")])


def test_a_table_in_two_directions_compares_with_its_first_cell():
    rows = {("none", "alone"): "bank", ("none", "two"): "cmc", ("shuffled", "two"): "iic"}
    table = course.cells(rows)
    assert {*table.gains} == {("none", "two"), ("shuffled", "two")}
    gain = course.difference_of("iic", "bank")
    assert table.gains["shuffled", "two"] == gain
    page = table._repr_html_()
    assert f"{gain.mean:+.1f} ({gain.written_interval})" in page
    assert page.count("<svg") == 3 and page.count("<td") == 4
    assert page.count("not run") == 1  # the fourth
    first, *_, last = repr(table).splitlines()
    assert first.startswith("none, alone: R@1 ") and "(" not in first
    assert last.endswith(f"%, {gain.mean:+.1f} ({gain.written_interval})")
    with pytest.raises(course.CourseError, match="no such row"):
        course.cells({("a", "b"): "no such row"})


def test_the_head_of_a_table_on_differences_has_the_view_once():
    both = ("residual", "residual")
    one = course.difference_of("slow copy", "infonce", views=both)
    other = course.difference_of("slow copy", "infonce")
    page = course.differences(one)._repr_html_()
    assert ">row on differences<" in page and page.count("on differences") == 1
    mixed = course.differences(one, other)._repr_html_()
    assert ">row<" in mixed and mixed.count("on differences") == 2


@pytest.mark.parametrize("row, budget", [("infonce", 1), ("coclr", 2)])
def test_stored_neighbours_have_the_shares_of_their_record(row, budget):
    "Scene and motion of the conflicts, counted from the neighbours and the plan of the videos."
    settings = dict(toy.DEFAULTS, size="demo", seed=course.SEED, shape=vars(toy.SIZES["demo"]))
    training = [r for r, _ in toy.plan_toy(settings) if r.split1 == "train"]
    queries = [r for r, _ in toy.plan_conflict(settings) if r.split1 == "test"]
    nearest = course.stored_nearest(row, budget=budget)
    assert nearest.shape == (len(queries), 5)
    pairs = [(query, training[i]) for query, i in zip(queries, nearest[:, 0])]
    (record,) = (r for r in course.seeds_of(row, budget=budget) if r["seed"] == course.SEED)
    for metric, field in (("scene", "source"), ("motion", "label")):
        share = sum(getattr(q, field) == getattr(n, field) for q, n in pairs) / len(pairs)
        assert share == pytest.approx(record[metric], abs=1e-6)
    with pytest.raises(course.CourseError, match="has no plain/no such row"):
        course.stored_nearest("no such row")
