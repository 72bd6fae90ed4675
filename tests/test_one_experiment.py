"""The one experiment: its rows, its rule, what it counts, and that it goes on after a kill as if
nothing had been.
"""

import json
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

import warm
from vssl_nb.config import difference

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(autouse=True)
def scripts_can_be_imported(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)


# ---- rows


def test_a_row_changes_what_it_names_and_nothing_else():
    import experiment_rows as rows

    for row in rows.ROWS.values():
        if row.kind != "training" or not row.base or row.method:
            continue
        base = rows.ROWS[row.base]
        view = row.views[0]
        theirs = view if view in base.views else base.views[0]
        pair = [
            rows.recipe_of(rows.Training("plain", name, v), 41, {})
            for name, v in ((row.base, theirs), (row.name, view))
        ]
        changed = {*difference(*pair)} - {"name", "epochs", "view"}
        # clips follow from the method
        assert changed - {"clips"} <= {*row.fields, *row.own}, (row.name, changed)
        assert changed or row.start or row.sampler or row.share < 1, row.name


def test_all_rows_draw_as_many_clips():
    import experiment_rows as rows

    for turn in (1, 2):
        for t in rows.trainings_of(turn):
            row = rows.ROWS[t.row]
            if row.kind == "training":
                recipe = rows.recipe_of(t, 41, {})
                clips = row.counted or recipe.sampling.clips
                drawn = rows.steps_of(recipe, 720) * recipe.learning.batch * clips
                assert drawn == pytest.approx(17280 * row.share), t.name


def test_helpers_come_before_those_that_they_help():
    import experiment_rows as rows

    seen = set()
    for turn in (1, 2, 3, 4):
        for t in rows.trainings_of(turn):
            assert {*rows.helpers_of(t).values()} <= seen, t.name
            assert t not in seen
            seen.add(t)


def test_a_row_keeps_what_was_chosen_for_its_base():
    import experiment_rows as rows

    chosen = {
        ("infonce", "rgb"): rows.Chosen(3e-3, {"temperature": 0.05}),
        ("coclr", "rgb"): rows.Chosen(3e-4, {"momentum": 0.9, "topk": 5}),
        ("iic", "rgb"): rows.Chosen(5e-4, {"temperature": 0.2}),
    }

    def recipe(row):
        return rows.recipe_of(rows.Training("plain", row, "rgb"), 41, chosen)

    for row in ("slow copy", "queue", "no crop"):
        assert recipe(row).method.temperature == 0.05 and recipe(row).learning.lr == 3e-3, row
    for row in ("coclr", "itself", "untrained differences", "labels at 0.5"):
        method = recipe(row).method
        assert (method.momentum, method.topk, method.temperature) == (0.9, 5, 0.05), row
        assert recipe(row).learning.lr == 3e-4, row
    # the first row of the family learns nothing that a search could see
    for row in ("bank", "bank, patches", "cmc", "iic", "iic, released"):
        assert recipe(row).method.temperature == 0.2 and recipe(row).learning.lr == 5e-4, row


@pytest.mark.parametrize(
    "gain, chosen",
    [
        (0.039, (1e-3, 0.99)),  # noise: the first value stays
        (0.041, (3e-4, 0.95)),
    ],
)
def test_the_search_leaves_a_value_for_a_gain_alone(monkeypatch, gain, chosen):
    import experiment
    import experiment_rows as rows

    def r1(run, row, view, candidate, do):
        rate = {1e-3: 0.12, 3e-4: 0.12 + gain, 3e-3: 0.12}[candidate.lr]
        return rate + gain * (candidate.own["momentum"] == 0.95)

    class Run:
        class a:
            rates = rows.RATES

    monkeypatch.setattr(experiment, "try_out", r1)
    best = experiment.search_row(Run, rows.ROWS["coclr"], "rgb", None)
    assert (best.lr, best.own["momentum"]) == chosen and best.own["topk"] == 20


def test_a_row_waits_for_the_searches_that_decide_it():
    import experiment_rows as rows

    def needs(row):
        return set(rows.search_needs(rows.ROWS[row], "rgb"))

    infonce = ("infonce", "rgb")
    assert needs("infonce") == {infonce} == needs("queue")
    assert needs("bank") == {infonce, ("iic", "rgb")} == needs("iic")
    assert needs("itself") == {infonce, ("coclr", "rgb")}
    # its sampler is trained on differences
    assert needs("coclr") == {infonce, ("coclr", "rgb"), ("infonce", "residual")}
    for row in rows.ROWS.values():
        assert not row.like or rows.ROWS[row.like].searched
        assert not row.own or row.searched, row.name


@pytest.mark.parametrize(
    "name, drawn, forward, gradient",
    [
        ("infonce", 16, 16, 16),
        ("slow copy", 16, 16, 8),
        ("coclr", 16, 24, 8),
        ("bank", 8, 8, 8),
        ("bank, fast", 16, 16, 16),
        ("iic", 8, 24, 24),
        ("iic, released", 8, 24, 16),
        ("moquad 3", 32, 32, 32),
    ],
)
def test_clips_of_a_step_are_counted(name, drawn, forward, gradient):
    import experiment_rows as rows
    from experiment_worker import clips_of_a_step

    small = {"length": 4}
    recipe = rows.recipe_of(rows.Training("plain", name, "rgb"), 41, {}, changes=small)
    expected = {"drawn": drawn, "forward": forward, "gradient": gradient}
    assert clips_of_a_step(recipe) == expected


# ---- the rule


def test_every_family_can_be_told_and_names_rows_that_there_are():
    import experiment_rows as rows
    import experiment_rule as rule

    assert not rule.names_unknown([*rows.ROWS])
    assert all(1 <= len(family) <= 6 for family in rule.FAMILIES.values())
    every = {t for turn in (1, 2, 3, 4) for t in rows.trainings_of(turn)}
    for comparison in (c for family in rule.FAMILIES.values() for c in family):
        for line in (comparison.a, comparison.b):
            assert rows.Training(line.world, line.row, line.view, line.budget) in every, str(line)


def test_the_interval_is_what_the_test_does_not_reject():
    import experiment_rule as rule

    d = np.random.default_rng(0).normal(0.3, 1.0, 8)
    low, high = rule.interval(d)
    for shift, inside in ((low - 0.01, False), (low + 0.01, True), (high - 0.01, True)):
        assert (rule.sign_flip(d - shift) > rule.LEVEL) == inside
    assert rule.sign_flip(d - high - 0.01) <= rule.LEVEL
    assert rule.sign_flip([1.0] * 8) == 2 / 256
    assert rule.interval([1.0, 2.0]) == (-np.inf, np.inf)
    assert rule.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_verdicts_wait_for_a_whole_family():
    import experiment_rule as rule

    family = rule.FAMILIES["without negatives, on differences"]
    lines = [(c.a, 0.8) for c in family] + [(family[0].b, 0.3), (family[1].b, 0.9)]

    def records(lines):
        return [
            {"world": "plain", "row": line.row, "view": line.view, "budget": 1}
            | {"seed": seed, "r1": r1 + 0.001 * seed * (line.row == "infonce")}
            for line, r1 in lines
            for seed in range(8)
        ]

    judged = [x for x in rule.judge(records(lines), 8) if x["verdict"] != "not run"]
    assert [x["verdict"] for x in judged] == ["higher", "lower"]
    assert all(x["p_holm"] == pytest.approx(4 / 256) for x in judged)
    assert not [x for x in rule.judge(records(lines[:3]), 8) if x["verdict"] != "not run"]


def test_the_rule_is_older_than_the_results():
    import stamps

    file = ROOT / "results" / "experiment.json"
    if not file.exists():
        pytest.skip("there are no results of the one experiment yet")
    for stamp in json.loads(file.read_text())["stamps"]:
        assert stamp["rule"] and stamps.is_ancestor(stamp["rule"], stamp["head"]), stamp["date"]
    rule = stamps.last_commit(BENCHMARKS / "experiment_rule.py")
    # git shortens a commit to as many digits as the clone needs, so whole names are compared
    whole = [stamps.git("rev-parse", commit) for commit in (rule, stamp["rule"])]
    assert whole[0] == whole[1], "the rule has changed after results: say so in a new family"


def test_every_share_of_the_results_is_computed_again():
    import experiment_outcomes as kept

    file = ROOT / "results" / "experiment.json"
    if not file.exists():
        pytest.skip("there are no results of the one experiment yet")
    results = json.loads(file.read_text())
    for record, shares in kept.recomputed(results, kept.read_outcomes(file)):
        assert {k: record[k] for k in shares} == shares, kept.key_of(record)


def test_the_readme_has_what_the_file_has():
    "Its table, its currencies and each difference; shares come from the stored outcomes (above)."
    import experiment_tables as tables

    results = json.loads((ROOT / "results" / "experiment.json").read_text())
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert tables.readme_table(results) in readme
    assert tables.currencies(results) in readme
    for a, b in tables.README_DIFFERENCES:
        assert tables.difference(results, a, b) in readme, (a, b)
    right = {"untrained differences": "two in ten", "coclr": "seven in ten"}
    for row, words in right.items():
        wanted = {"row": row, "budget": 1, "world": "plain"}
        mined = [r["mined"][1] for r in results["records"] if wanted.items() <= r.items()]
        assert (
            words in readme
            and round(10 * np.mean(mined)) == {"two": 2, "seven": 7}[words.split()[0]]
        )
    # and no further difference
    with_interval = re.findall(r"points \(−?[\d.]+ to −?[\d.]+\)", readme)
    assert len(with_interval) == len(tables.README_DIFFERENCES), "one that is not computed"


def test_a_file_of_results_that_is_not_there_is_named(tmp_path, capsys):
    import experiment_pictures
    import experiment_tables

    file = tmp_path / "none.json"
    for read in (experiment_tables.read_results, lambda f: experiment_pictures.draw_all(f, f)):
        with pytest.raises(SystemExit) as e:
            read(file)
        said = capsys.readouterr().err
        assert e.value.code == 2 and str(file) in said and len(said.splitlines()) == 1
    assert not file.exists()


# ---- stamps


def test_results_whose_code_has_changed_are_listed(tmp_path):
    import stamps

    library = tmp_path / "vssl_nb" / "data"
    library.mkdir(parents=True)
    (library / "toy.py").write_text('"About."\nx = 1\n')
    (library / "video.py").write_text("def f(a: int) -> int:\n    return a\n")
    names = ("vssl_nb.data.toy", "vssl_nb.data.video")
    modules = {name: stamps.file_digest(stamps.module_file(name, tmp_path)) for name in names}
    results = tmp_path / "results"
    results.mkdir()
    (results / "cited.json").write_text(json.dumps({"stamps": [{"modules": modules}]}))
    (results / "other.json").write_text(json.dumps({"modules": modules}))
    (results / "older.json").write_text(json.dumps({"what": "before stamps"}))
    page = tmp_path / "page.ipynb"
    page.write_text("see results/cited.json and results/older.json")

    def listed():
        return [*stamps.stale(results, [page], tmp_path)]

    # words for people change nothing
    (library / "toy.py").write_text('"About it."\n# a comment\nx = 1\n')
    (library / "video.py").write_text('def f(a) -> "int":\n    "Gives it back."\n    return a\n')
    assert listed() == []
    (library / "toy.py").write_text("x = 2\n")
    assert listed() == [("cited.json", ["vssl_nb.data.toy"], ["page.ipynb"])]
    assert stamps.without_stamp(results) == ["older.json"]


# ---- from nothing, killed, and gone on with

OPTIONS = (
    "--size tiny --turns 1 --seeds 41 42 --passes 2 --rates 0.001 --save-minutes 0.003 "
    "--rows infonce"
).split()
SHORT = ["--changes", '{"length": 4}']


def start(folder, *more):
    words = ["--out", folder / "out.json", "--work", folder / "work", *OPTIONS, *SHORT, *more]
    return warm.Command(words, folder, script=BENCHMARKS / "experiment.py")


def in_the_middle(work):
    "Is a training of a seed of the rule between two steps, with a checkpoint?"
    for card in work.glob("plain-tiny/seed41/*/card.json"):
        try:
            read = json.loads(card.read_text())
        except (OSError, ValueError):
            continue
        if 2 <= read.get("step", 0) <= 10 and not read["finished"]:
            return True
    return False


def without_clocks(results):
    "What does not depend on the machine's speed, nor on who made it."
    for record in results["records"]:
        for part in (record, record["whole"]):
            del part["cpu_seconds"]
        del record["stamp"]
    for line in results["search"]:
        del line["cpu_seconds"], line["stamp"]
    return {k: v for k, v in results.items() if k != "stamps"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    "The files of a run that was killed in the middle of a training, and of an unbroken one."
    killed, unbroken = (tmp_path_factory.mktemp(name) for name in ("killed", "unbroken"))
    command = start(killed)
    until = time.monotonic() + 600
    while not in_the_middle(killed / "work"):
        assert command.poll() is None, command.stderr
        assert time.monotonic() < until
        time.sleep(0.005)
    command.kill_all()
    before = json.loads((killed / "out.json").read_text())
    again = start(killed)
    assert again.wait() == 0, again.stderr

    # the same videos, which need not be drawn again
    for folder in killed.glob("work/plain-tiny/*/toy"):
        shutil.copytree(folder, unbroken / folder.relative_to(killed))
    whole = start(unbroken, "--jobs", "2")
    assert whole.wait() == 0, whole.stderr
    return killed / "out.json", unbroken / "out.json", before


def test_a_killed_experiment_goes_on_as_if_unbroken(made):
    import experiment_outcomes as kept

    killed, unbroken, before = made
    files = [json.loads(file.read_text()) for file in (killed, unbroken)]
    assert len(before["records"]) < len(files[0]["records"]) == 4
    assert len(files[0]["stamps"]) == 2 and len(files[1]["stamps"]) == 1
    assert {line["seed"] for line in files[0]["search"]} == {30} and len(files[0]["search"]) == 4
    assert without_clocks(files[0]) == without_clocks(files[1])
    first, second = (kept.read_outcomes(file) for file in (killed, unbroken))
    assert first.keys() == second.keys() and len(first) == 4
    for key in first:
        for part in (*kept.PARTS, kept.PROBE):
            assert np.array_equal(first[key][part], second[key][part])


def test_shares_are_computed_again_from_what_is_stored(made):
    import experiment_outcomes as kept

    results = json.loads(made[1].read_text())
    outcomes = kept.read_outcomes(made[1])
    count = 0
    for record, shares in kept.recomputed(results, outcomes):
        assert {k: record[k] for k in shares} == shares
        assert shares["scene"] + shares["motion"] + shares["neither"] == pytest.approx(1, abs=1e-5)
        count += 1
    assert count == 4 and {a["test"].shape for a in outcomes.values()} == {(16, 5)}


def test_stamps_say_who_made_it(made):
    for stamp in json.loads(made[0].read_text())["stamps"]:
        assert {"commit", "head", "dirty", "machine", "command", "seconds", "rule"} <= stamp.keys()
        assert "vssl_nb.methods.infonce" in stamp["modules"]
        assert not [name for name in stamp["modules"] if ".recipes" in name]


def test_a_file_of_other_code_or_recipes_is_refused_by_its_digest(made):
    killed = made[0].parent
    other = start(killed, "--changes", '{"length": 6}')
    assert other.wait() == 2 and "was made with the recipe" in other.stderr

    results = json.loads(made[0].read_text())
    was = results["stamps"][0]["modules"]["vssl_nb.ssl.losses"]
    for stamp in results["stamps"]:
        stamp["modules"]["vssl_nb.ssl.losses"] = "000000000000"
    made[0].write_text(json.dumps(results))
    changed = start(killed)
    assert changed.wait() == 2 and f"vssl_nb.ssl.losses (000000000000, now {was})" in changed.stderr
    mixed = start(killed, "--mixed")
    assert mixed.wait() == 0, mixed.stderr


# ---- the search


def test_the_search_takes_the_best_rate_then_own_settings(tmp_path, monkeypatch):
    "What diverges counts as 0, and what is known is not trained again."
    import experiment
    import experiment_rows as rows
    from experiment_worker import Diverged

    words = ["x", "--out", str(tmp_path / "out.json"), "--work", str(tmp_path / "work")]
    monkeypatch.setattr("sys.argv", [*words, "--size", "tiny", "--search"])
    a = experiment.parse()
    stamp = experiment.Stamp(str(BENCHMARKS / "experiment.py"), {})
    asked = []

    def do(task):
        lr, own = task.recipe["learning"]["lr"], task.recipe["method"]["temperature"]
        asked.append((lr, own))
        if lr == 3e-3:
            raise Diverged("the loss stopped being a number")
        numbers = dict.fromkeys(experiment.IN_SEARCH, 0.0)
        r1 = {1e-3: 0.2, 3e-4: 0.5}[lr] + 0.1 * (own == 0.05)
        return {"records": [numbers | {"r1": r1}], "modules": {}}

    run = experiment.Run(a, experiment.Results(a.out, stamp, "tiny", False))
    row = rows.ROWS["infonce"]
    best = experiment.search_row(run, row, "rgb", do)
    assert best == rows.Chosen(3e-4, {"temperature": 0.05})
    assert asked == [(1e-3, 0.1), (3e-4, 0.1), (3e-3, 0.1), (3e-4, 0.05)]

    again = experiment.Run(a, experiment.Results(a.out, stamp, "tiny", False))
    assert experiment.search_row(again, row, "rgb", do) == best and len(asked) == 4
    lines = json.loads(a.out.read_text())["search"]
    assert [line["r1"] for line in lines] == pytest.approx([0.2, 0.5, 0.0, 0.6])
    assert "diverged" in lines[2]


def test_a_search_waits_for_all_that_it_rests_on():
    import experiment_rows as rows

    needs = rows.search_needs(rows.ROWS["coclr, second phase"], "residual")
    assert {("coclr", "rgb"), ("infonce", "residual"), ("infonce", "rgb")} <= {*needs}
    begun = rows.search_needs(rows.ROWS["coclr, begun"], "rgb")
    assert ("begun", "rgb") not in begun and ("coclr", "rgb") in begun
