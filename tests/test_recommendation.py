"Which encoder we would take for a folder: by what moves, what is installed, and what there is."

import json
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from vssl_nb.app import own, recommendation
from vssl_nb.app.recommendation import (
    INSTALL,
    PAPER_EPOCHS,
    PAPER_VIDEOS,
    PICTURE_ENCODER,
    PUBLISHED,
    paper_hours,
    recommend,
)
from vssl_nb.data import toy
from vssl_nb.data.manifest import read
from vssl_nb.methods.recipes import find, override
from vssl_nb.training.machine import Machine

FEW = dict(videos=80, still=0.0, similarity=0.2, hours=30.0, minutes=20.0, installed=True)


@pytest.mark.parametrize(
    "changed, encoder",
    [
        ({}, "published"),
        ({"installed": False}, "published"),
        ({"still": 1.0, "similarity": 0.9}, "published"),
        ({"similarity": 0.9}, "motion by hand"),
        ({"videos": PAPER_VIDEOS, "minutes": 30 * 60}, "training"),
        ({"videos": PAPER_VIDEOS - 1, "minutes": 30 * 60}, "published"),
        ({"videos": PAPER_VIDEOS, "minutes": 30 * 60 - 1}, "published"),
        ({"videos": PAPER_VIDEOS, "minutes": 30 * 60, "still": 1.0}, "published"),
    ],
)
def test_what_is_taken(changed, encoder):
    r = recommend(**FEW | changed)
    assert r.encoder == encoder
    assert r.sentences[0].startswith("What we would take: ") and "because" in r.sentences[0]
    # clips and hours stand beside it in every case
    last = r.sentences[-1]
    assert f"{(FEW | changed)['videos']:,} clips" in last and "30 hours" in last


def test_what_is_missing_is_named_with_the_line_that_installs_it():
    there, missing = (
        " ".join(recommend(**FEW | {"installed": x}).sentences) for x in (True, False)
    )
    assert INSTALL in missing and "Until then: Motion by hand" in missing
    assert INSTALL not in there
    for text in (there, missing):
        assert f"vssl-nb search VIDEO --data FOLDER --encoder {PUBLISHED}" in text
    assert recommend(**FEW | {"still": 1.0}).sentences[1].endswith(f"--encoder {PICTURE_ENCODER}")
    still = " ".join(recommend(**FEW | {"installed": False, "still": 1.0}).sentences)
    assert "Until then" not in still  # nothing moves


def test_hours_are_those_of_the_recipe_of_the_paper():
    recipe = find("infonce-ucf101-rgb")
    assert recipe.learning.epochs == PAPER_EPOCHS
    steps = PAPER_EPOCHS * PAPER_VIDEOS / 16
    assert paper_hours(0.5, 16) == pytest.approx(steps * 0.5 / 3600)


def test_the_reason_is_what_was_measured():
    "The row that is recommended is above motion by hand by its interval, at each number of clips."
    file = Path(__file__).parent.parent / "results" / "published-jhmdb.json"
    kept = json.loads(file.read_text())
    assert PUBLISHED == f"{kept['encoder']}@spread"
    assert [s["clips"] for s in kept["sizes"]] == [60, 250, 491]
    for size in kept["sizes"]:
        rows = {r["name"]: r for r in size["rows"]}
        best = max(r["r1"] for r in rows.values())
        spread = rows["published, spread"]
        assert spread["r1"] == best
        assert spread["above"]["motion by hand"]["r1_interval"][0] > 0
        for r in rows.values():  # from the outcomes of each test clip
            shares = [sum(seed) / len(seed) for seed in r["right"]]
            assert r["r1"] == pytest.approx(sum(shares) / len(shares))


def test_what_is_installed(monkeypatch):
    monkeypatch.setattr(recommendation, "find_spec", lambda name: ModuleSpec(name, None))
    assert recommendation.published_is_installed()
    monkeypatch.setattr(recommendation, "find_spec", lambda name: None)
    assert not recommendation.published_is_installed()


def test_own_videos_print_it_with_their_reasons(tmp_path, monkeypatch):
    data = read(toy.make(tmp_path / "my toy", "tiny", workers=1, progress=False))
    given = override(find("own-videos"), size=32, backbone="tiny")
    monkeypatch.setattr(own, "published_is_installed", lambda: False)
    quiet = Machine("cpu", workers=0, progress=False)
    reasons = own.fit_recipe(given, data, quiet, 0.05, {"size", "backbone"}).reasons
    assert sum(r.startswith("What we would take") for r in reasons) == 1
    assert f"'{tmp_path / 'my toy'}'" in " ".join(reasons)  # quoted, since it has a space
    assert f"Here are {len(data.select('train'))} clips and 0.05 minutes." in reasons[-1]
