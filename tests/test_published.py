"""The papers' numbers: nothing lost or typed twice, what the texts derive, what a recipe stands
against.
"""

import re
from collections import Counter

import pytest
from house import NBS, cells

from vssl_nb.papers.published import ROWS, markdown, match, parts

U, H, K = "UCF101", "HMDB51", "Kinetics-400"


def rows(**wanted):
    return [r for r in ROWS if all(getattr(r, k) == v for k, v in wanted.items())]


def number(**wanted):
    (one,) = {r.value for r in rows(**wanted)}
    return one


def test_every_table_is_whole():
    assert Counter(r.paper for r in ROWS) == {
        "CoCLR": 24,
        "IIC": 97,
        "CPR": 268,
        "MoQuad": 174,
        "ProViCo": 213,
        "SlowFast": 3,
        "VCLR": 2,
    }
    counts = {
        ("CPR", "table 1"): 4 * 5,
        ("CPR", "table 6"): 16 * 8,
        ("CPR", "table 7"): 14 * 2,
        ("MoQuad", "table 1"): 28 * 2,
        ("MoQuad", "table 7"): 18,
        ("ProViCo", "table 3"): 4 + 14 * 8,
    }
    assert {k: len(rows(paper=k[0], table=k[1])) for k in counts} == counts
    assert len({*ROWS}) == len(ROWS)  # no number twice in one cell
    assert {r.kind for r in ROWS} == {"own", "quoted", "release", "user"}
    assert all(r.work and r.task and r.test and 0 < r.value <= 100 for r in ROWS)


def test_recall_rises_with_k():
    lines = {}
    for r in rows(task="retrieval"):
        lines.setdefault(
            (r.source, r.method, r.setting, r.backbone, r.pretrain, r.view, r.test, r.kind), {}
        )[int(r.metric[1:])] = r.value
    for at in lines.values():
        assert [at[k] for k in sorted(at)] == sorted(at.values())


def test_shares_of_recordings_are_of_eighteen():
    for r in rows(metric="cmr"):
        assert abs(r.value * 0.18 - round(r.value * 0.18)) < 0.01 or r.value * 0.36 % 1 < 0.02
    assert all(r.value == int(r.value) <= 101 for r in rows(metric="classes"))


def test_differences_that_the_texts_name():
    P = {"paper": "ProViCo", "table": "table 2", "test": U}
    for a, b, stated in (
        (
            number(paper="CPR", table="table 6", work="CPR", view="flow", test=U, metric="r1"),
            number(paper="CPR", work="MCN", test=U, metric="r1"),
            2.9,
        ),
        (
            number(work="CPR", setting="median over classes"),
            number(work="CoCLR", setting="median over classes"),
            5.5,
        ),
        (number(work="ProViCo", test=K, backbone="R(2+1)D"), number(work="ρMoCo", test=K), 8.5),
        (
            number(work="ProViCo", task="linear", backbone="R3D-18", **P),
            number(work="MFO", task="linear", **P),
            19.7,
        ),
        (
            number(work="ProViCo", backbone="R3D-50", **P),
            number(work="CORP", task="finetune", **P),
            1.1,
        ),
        (number(work="TEC", pretrain=K, **P), number(work="TEC", pretrain=U, **P), 1.9),
    ):
        assert a - b == pytest.approx(stated, abs=0.051)


def test_a_table_for_people():
    some = [
        r
        for r in rows(paper="CPR", table="table 6")
        if r.method in ("VCOP", "VCP")
        and (r.method, r.metric) != ("VCP", "r5")
        and r.metric in ("r1", "r5")
        and r.test == U
    ]
    assert markdown(some).splitlines() == [
        "All: pretrained UCF101",
        "",
        "| source | method | backbone | UCF101 retrieval r1 | UCF101 retrieval r5 |",
        "| :--- | :--- | :--- | ---: | ---: |",
        "| CPR, table 6 | VCOP | R(2+1)D | 14.1 | 30.3 |",
        "| CPR, table 6 | VCP | R3D-50 | 18.6 | – |",
    ]
    with pytest.raises(ValueError, match="no published numbers"):
        markdown([])


def test_names_of_recipes():
    assert parts("coclr-ucf101-rgb-cycle1") == {
        "work": "CoCLR",
        "pretrain": U,
        "view": "rgb",
        "backbone": "",
    }
    assert parts("moquad-k400-s3dg") == {
        "work": "MoQuad",
        "pretrain": K,
        "view": "",
        "backbone": "S3D-G",
    }
    assert (
        parts("infonce-toy-rgb")["pretrain"] == "" and parts("iic-cpr-ucf101")["work"] == "IIC+CPR"
    )


def test_what_a_recipe_stands_against():
    def values(*args, **more):
        return [(r.value, r.kind) for r in match(*args, **more)]

    assert values("infonce-ucf101-rgb") == [(33.1, "release"), (36.11, "user")]
    assert values("coclr-ucf101-rgb-cycle2") == [
        (53.3, "own"),
        (53.3, "quoted"),
        (51.8, "release"),
        (45.1, "quoted"),
    ]
    assert values("coclr-k400-rgb", "linear", "top1") == [(74.5, "own"), (66.2, "user")]
    assert values("coclr-k400-rgb", "finetune", "top1", test=H)[0] == (54.6, "quoted")
    assert values("coclr-k400-twostream", "finetune", "top1") == [(90.61, "release")]
    for name, task, metric, backbone, first in (
        ("infonce-ucf101-flow", "retrieval", "r1", "", 45.2),
        ("ubernce-ucf101-rgb", "retrieval", "r1", "", 70.3),
        ("cpr-ucf101-rgb", "retrieval", "r1", "", 50.4),
        ("cpr-ucf101-flow", "retrieval", "r1", "", 56.7),
        ("moquad-ucf101-r3d18", "retrieval", "r1", "", 60.8),
        ("moquad-ucf101-r3d18", "finetune", "top1", "", 82.7),
        ("simclr-ucf101-r3d18", "probe", "top1", "", 68.8),
        ("provico-ucf101", "retrieval", "r1", "r3d18", 63.8),
        ("provico-ucf101", "retrieval", "r1", "r2plus1d18", 64.7),
    ):
        assert values(name, task, metric, backbone=backbone)[0][0] == first, name
    assert [values(n) for n in ("infonce-toy-rgb", "infonce-laptop-rgb", "mine")] == [[], [], []]
    with pytest.raises(ValueError, match="task='regress' is unknown"):
        match("cpr-ucf101-rgb", "regress")


@pytest.mark.parametrize(
    "page, says, wrong",
    [
        ("dossiers/moquad", "make the negatives trivial", "gives no reason"),  # 3.1, 4.3
        # CPR, 3.3
        ("dossiers/iic", "the features of the *positive query*", "which features are the queries"),
        ("dossiers/cpr", "5 and 7 stages, the rows of the table have 3 and 7", None),
    ],
)
def test_statements_of_the_papers_stand_on_the_pages(page, says, wrong):
    text = "\n".join(
        c["source"] for c in cells(NBS / f"{page}.ipynb") if c["cell_type"] == "markdown"
    )
    assert says in text and not (wrong and wrong in text)
    stages = {
        n for r in ROWS if r.source == "CPR, table 2" for n in re.findall(r"s ?= ?(\d)", r.method)
    }
    assert stages == {"3", "7"}
