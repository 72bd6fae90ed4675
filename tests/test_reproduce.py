"""`vssl-nb reproduce` as a reader meets it: a table through the command line, killed twice; what it
refuses.
"""

import json
import statistics
import time
from dataclasses import replace

import pytest

import warm
from vssl_nb.app import cli
from vssl_nb.data import toy
from vssl_nb.fields import RecipeError
from vssl_nb.methods.recipes import find
from vssl_nb.papers import reproduce as reproduction
from vssl_nb.papers.reproduce import (
    PAPER_TABLES,
    Run,
    beside_paper,
    find_rows,
    pairs_alike,
    reproduce,
)
from vssl_nb.runs.evaluation import EvaluatedEncoder
from vssl_nb.training.checkpoints import digest, load
from vssl_nb.training.machine import Machine

SMALL = (
    "--size",
    "tiny",
    "--device",
    "cpu",
    "--workers",
    "0",
    "--set",
    "epochs=2",
    "batch=8",
    "queue=48",
    "topk=5",
    "test_clips=1",
    "warmup=0.5",
    "length=4",
)
ROW = "cpr:table1:s=3"
RUNS = 3  # InfoNCE on frames and on differences, and the cascade between them


def command(folder, *args):
    "In a process group of its own, so that it can be killed with those it starts."
    return warm.Command(["reproduce", *args], folder)


@pytest.fixture
def here(place, monkeypatch, capsys):
    "The command in this process: code, stdout, stderr."
    monkeypatch.chdir(place)

    def run(*args):
        code = cli.main(["reproduce", *args])
        return code or 0, *capsys.readouterr()

    return run


def weights(home):
    return {p.parent.name: digest(load(p)["method"]) for p in sorted(home.glob("**/last.pt"))}


def steps(home):
    return sum(max(len(p.read_text().splitlines()) - 1, 0) for p in home.glob("**/steps.csv"))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("reproduce")


def test_a_row_that_is_killed_twice_ends_as_one_that_is_not(place, here):
    # as SMALL
    changes = dict(epochs=2, batch=8, queue=48, topk=5, test_clips=1, warmup=0.5, length=4)
    quiet = Machine("cpu", workers=0, progress=False)
    out = reproduce(ROW, "toy", place / "whole", (0,), quiet, changes, "tiny", processes=1)
    home, cut = place / "whole" / "toy-cpr-table1", place / "cut" / "toy-cpr-table1"
    assert (
        len(weights(home)) == RUNS
        and "| s=3 | " in out
        and (home / "table.md").read_text().strip() in out
    )
    for share in (0.3, 0.7):
        process = command(place, ROW, "--data", "toy", "--out", "cut", *SMALL)
        until = time.monotonic() + 300
        while (
            steps(cut) < share * steps(home) and process.poll() is None and time.monotonic() < until
        ):
            time.sleep(0.02)
        assert process.poll() is None, process.communicate()
        process.kill_all()
    code, again, err = here(ROW, "--data", "toy", "--out", "cut", *SMALL)
    assert code == 0, err
    assert weights(cut) == weights(home)
    assert json.loads((cut / "table.json").read_text()) == json.loads(
        (home / "table.json").read_text()
    )

    def row(text):
        return next(x for x in text.splitlines() if x.startswith("| s=3 | "))

    assert row(again) == row(out)


def test_what_is_finished_is_not_done_again(place, here):
    home = place / "whole"
    if not home.exists():
        pytest.skip("needs the run of the test before")
    before = {p: p.stat().st_mtime_ns for p in home.rglob("last.pt")}
    code, out, err = here(ROW, "--data", "toy", "--out", "whole", *SMALL)
    assert code == 0, err
    assert {p: p.stat().st_mtime_ns for p in home.rglob("last.pt")} == before
    assert out.count("finished") == RUNS
    code, out, err = here("--out", "whole")
    assert code == 0 and "here: whole/toy-cpr-table1" in out, out + err


def test_a_dry_run_leaves_nothing(place, here):
    code, out, err = here(ROW, "--data", "toy", "--out", "dry", "--dry-run", *SMALL)
    assert code == 0 and "3 trainings" in out and "hours of training" in out, out + err
    assert not (place / "dry").exists()


def test_every_row_has_numbers_and_a_chain_of_recipes():
    rows = [(t, row) for t in PAPER_TABLES.values() for row in t.rows]
    for t, row in rows:
        assert t.printed(row), (t.paper, t.table, row.name)
        for small in {False, row.small is not None}:
            runs = row.needs(small)
            for i, r in enumerate(runs):
                assert r.made().name and all(
                    o is None or o in runs[:i] for o in (r.encoder, r.sampler)
                )
                assert not small or r.made().dataset == "toy"
    runs = {
        r for _, row in rows for small in {False, row.small is not None} for r in row.needs(small)
    }
    assert len({r.name for r in runs}) == len({(r.recipe, r.changes) for r in runs}) > 50


# trained on Kinetics-400, printed for UCF101
ELSEWHERE = ["coclr:readme:k400-rgb", "coclr:readme:k400-flow"]


def test_every_row_has_a_protocol_or_is_refused(here):
    code, out, err = here("--list")
    lines = dict(line.split("  ", 1) for line in out.splitlines())
    assert code == 0 and list(lines) == [
        f"{k}:{row.name}" for k, t in PAPER_TABLES.items() for row in t.rows
    ]
    assert [k for k, words in lines.items() if words.startswith("refused: ")] == ELSEWHERE, err
    assert (
        lines["moquad:table4:full"]
        == "UCF101 finetune: moquad_finetune; UCF101 linear: moquad_linear"
    )
    assert (
        lines["provico:appendix2:mining"]
        == "UCF101 finetune: provico_finetune; UCF101 retrieval: provico"
    )
    assert lines["cpr:table4:s=3"].startswith(
        "UCF101 mining: last_epoch; UCF101 retrieval: coclr_official"
    )
    assert (
        lines["cpr:table5:iic"] == "UCF101 retrieval: iic_official; UCF101 finetune: iic_finetune"
    )
    assert here("--list", "provico:table4")[1].count("\n") == 6
    tables = here()[1]
    assert " 1 training on UCF101" in tables and " 2 trainings on UCF101" in tables, tables


@pytest.mark.parametrize("protocol", ["provico_lineal", "provico, mean of cosines", ""])
def test_a_missing_protocol_is_an_error(place, monkeypatch, protocol):
    "It was another one, in silence."

    def renamed(r):
        return replace(r, protocol=protocol) if r.task in ("retrieval", "finetune") else r

    monkeypatch.setattr(reproduction, "ROWS", tuple(map(renamed, reproduction.ROWS)))
    for name in ("provico:table3:r3d18", "provico:table4:K=5"):
        with pytest.raises(RecipeError, match=f"^{name}: .*no protocol {protocol!r}; name another"):
            reproduce(name, "nowhere", place / "nothing")


def test_each_number_is_measured_as_it_is_printed(place, monkeypatch):
    """Match probability and not the cosine; two views where the paper has two; the log of the last
    epoch.
    """
    asked = []

    def retrieve(folder, protocol, **more):
        asked.append(protocol)
        return [
            {
                "protocol": {"name": f"{protocol}{words}"},
                **dict.fromkeys(("r1", "r5", "r10", "r20"), x),
            }
            for words, x in ((", cosine of means", 0.1), ("", 0.2))
        ]

    def two(first, second, protocol, **more):
        asked.append([first.view, second.view, protocol, more["joined"]])
        return [dict.fromkeys(("r1", "r5", "r10", "r20", "r50"), 0.3)]

    def tuned(folder, preset, **more):
        asked.append((preset, more["fields"]))
        return {"top1": 0.4}

    run = EvaluatedEncoder(None, None, "x", "iic", folder=place, recipe=find("iic-ucf101-flow"))
    for name, f in dict(
        retrieve=retrieve, retrieve_two_streams=two, finetune=tuned, open_trained=lambda *given: run
    ).items():
        monkeypatch.setattr(reproduction, name, f)
    (place / "mined").mkdir()
    # section 4.5: the same K
    (place / "mined" / "recipe.json").write_text('{"method": {"samples": 5}}')
    (place / "mined" / "steps.csv").write_text("step,epoch,mined\n1,0,.9\n2,1,.2\n3,1,.3\n")

    def measured(name):
        t, (row,) = find_rows(name)
        printed = reproduction.measured_numbers(t, row)
        return reproduction.measure_as_printed(place / "mined", None, None, printed)

    mining = measured("provico:appendix2:mining")
    assert mining["retrieval r1"] == 20 and mining["finetune top1"] == 40
    assert measured("provico:appendix3:cosine")["retrieval r1"] == 10
    assert measured("iic:readme:shuffle-v")["retrieval r50"] == 30
    assert asked == [
        ("provico_finetune", {"samples": 5}),
        "provico",
        "provico",
        ["rgb", "flow_v", "iic_official", "concat"],
        ("iic_finetune", {}),
    ]
    assert measured("cpr:table4:s=3")["mining pmr"] == 25


def test_the_papers_number_is_that_of_the_training_dataset():
    "Fine-tuning on HMDB51 stood beside ours on UCF101."
    table, rows = find_rows("moquad:table1:r3d18")
    assert beside_paper(table, rows, {"r3d18": [{"finetune top1": 80.0}]}).splitlines() == [
        "| row | finetune top1 | paper, UCF101: finetune top1 |",
        "| :-- | --: | --: |",
        "| r3d18 | 80.0 | 82.7 |",
    ]


def test_clips_are_compared_in_batches_of_forty():
    "ProViCo, appendix D.1: all rows of N have 40 videos in a batch."
    table, rows = find_rows("provico:appendix1")
    batch = {r.name: r.full.made().learning.batch for r in rows}
    assert batch == {
        "N=1": 40,
        "N=2": 40,
        "N=3": 40,
        "B=24": 24,
        "B=48": 48,
        "B=72": 72,
        "B=96": 96,
    }


def test_an_open_choice_of_a_paper_has_two_rows():
    table, rows = find_rows("moquad:table3")
    assert [(r.name, dict(r.full.changes)) for r in rows] == [
        ("both", {}),
        ("neither", {"beta": 0.0, "appearance_task": 0.0}),
    ]
    assert {p.setting for r in rows for p in table.printed(r)} == {"extra strategies: not said"}
    # table 2
    for name in ("k400-r3d50", "ssv2-r3d50"):
        assert "perhaps" in find(f"moquad-{name}").about


def test_a_chain_is_trained_from_its_beginning():
    first, other = Run("infonce-toy-rgb"), Run("infonce-toy-residual")
    third = Run("coclr-toy-rgb-cycle1", (("topk", 5),), first, other)
    assert third.name == "coclr-toy-rgb-cycle1-topk-5" and third.needs() == [first, other, third]
    assert replace(third, sampler=first).needs() == [first, replace(third, sampler=first)]
    assert third.made(seed=3, changes={"epochs": 7, "beta": 0.1}).learning.epochs == 7


def test_rows_are_found_by_name():
    assert [len(find_rows(n)[1]) for n in ("cpr:table1", ROW, "CPR:Table1")] == [4, 1, 4]


def test_order_of_the_paper():
    assert pairs_alike(dict(a=1, b=3, c=2), dict(a=10, b=20, c=30)) == (2, 3)
    assert pairs_alike(dict(a=1, b=1), dict(a=10, b=20, c=30)) == (0, 1)
    assert pairs_alike(dict(a=1, b=2), dict(a=10, b=10)) == (0, 0)


@pytest.mark.parametrize(
    "args, says",
    [
        (("cpr:tabel1",), "did you mean 'cpr:table1'"),
        (("cpr:table1:s=4", "--data", "toy"), "has no row 's=4'"),
        (("cpr:table1",), "say on what: --data toy"),
        (("--list", "cpr:tabel1"), "did you mean 'cpr:table1'"),
        (
            (ELSEWHERE[0], "--data", "videos"),
            "is trained on Kinetics-400 and measured on UCF101; train",
        ),
        (("iic:readme:repeat-u", "--data", "toy"), "the toy videos do not have"),
        (("cpr:table1", "--data", "nowhere"), "nowhere"),
        (("cpr:table1", "--data", "videos"), "like no published dataset"),
        (("cpr:table1", "--data", "toy", "--set", "epoch=3"), "epoch"),
        (("cpr:table1", "--data", "toy", "--seeds", "0", "0"), "seeds"),
    ],
)
def test_what_cannot_be_reproduced_is_refused(place, here, args, says):
    if not (place / "videos").exists():
        toy.make(place / "videos", "tiny", progress=False)
    there = {*place.iterdir()}
    code, out, err = here(*args, "--out", "refused")
    assert (
        code == 2 and says in err and "Traceback" not in err and len(err.strip().splitlines()) == 1
    ), err
    assert {*place.iterdir()} == there


def test_a_table_beside_the_paper():
    "Of two rows and two seeds: means with their spread, and how many pairs stand as in the paper."
    table, rows = find_rows("provico:appendix2")
    values = {
        row: [{"retrieval r1": 10.0 * n + s, "linear top1": 50.0} for s in (0, 1)]
        for n, row in enumerate(("no-mining", "mining"), 1)
    }
    spread = statistics.stdev([10, 11])
    assert beside_paper(table, rows, values).splitlines() == [
        "| row | retrieval r1 | paper, UCF101: retrieval r1 | linear top1 | paper, UCF101: linear "
        "top1 |",
        "| :-- | --: | --: | --: | --: |",
        f"| mining | 20.5 ± {spread:.1f} | 64.7 | 50.0 ± 0.0 | – |",
        f"| no-mining | 10.5 ± {spread:.1f} | 61.2 | 50.0 ± 0.0 | – |",
        "",
        "retrieval r1: 1 of 1 pairs of rows stand in the order of the paper.",
    ]
