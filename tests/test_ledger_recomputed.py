"The ledger against a recomputation from its rule alone, in every row."

from pathlib import Path

import ledger_recomputed
import numpy as np
import pytest
from ledger_recomputed import Choices

from vssl_nb.papers import ledger

ROOT = Path(ledger.__file__).parents[2]
PAPERS = ROOT / "vssl_nb" / "papers"
BOUND = "no difference above x"

# What the ledger takes where the rule is silent: a row of fewer than six seeds has not run, three
# quarters of the seeds must have the premise, and Benjamini-Hochberg counts every link
SAME_CHOICES = Choices(least=6, share=0.75, over="links")

# rows with an arm in two modes: the ledger counts signs there, where the rule names sign flips
COUNTED = "signs"


def words(verdict):
    return BOUND if verdict.word == "no difference above" else verdict.word


def recomputed(choices):
    return ledger_recomputed.verdicts(
        PAPERS / "claims.csv", PAPERS / "readings.csv", ledger.LEDGER, choices
    )


@pytest.fixture(scope="module")
def judged():
    "(claim, reading, world) -> the verdict of the ledger alone, and over the whole of it."
    rows = ledger.read_rows()
    keys = [(str(row.reading.number), row.reading.reading, row.reading.world) for row in rows]
    return dict(zip(keys, ledger.verdicts_of(rows)))


def differing(choices, judged):
    "The rows for which the recomputation has another word, alone or over the ledger."
    found = recomputed(choices)
    assert found.keys() == judged.keys()
    return {
        key
        for key, (alone, together) in judged.items()
        if (found[key]["verdict"], found[key]["after"]) != (words(alone), words(together))
    }


def counts_signs(verdict):
    return any(link.test == COUNTED for link in verdict.links)


def test_with_the_same_choices_all_rows_agree_but_where_signs_are_counted(judged):
    signs = {key for key, (alone, _) in judged.items() if counts_signs(alone)}
    others = differing(SAME_CHOICES, judged)
    assert others <= signs
    assert len(judged) - len(others) >= 40  # lines that agree


@pytest.mark.parametrize(
    "other", [Choices(share=0.75, over="links"), Choices(6, over="links"), Choices(6, 0.75)]
)
def test_each_choice_decides_rows(judged, other):
    "Where the rule is silent the ledger's choice matters, so that a change of it is seen here."
    assert differing(other, judged) > differing(SAME_CHOICES, judged)


def test_links_judged_by_sign_flips_have_the_same_numbers(judged):
    found, compared = recomputed(SAME_CHOICES), 0
    for key, (alone, _) in judged.items():
        for ours, theirs in zip(found[key]["links"], alone.links):
            assert ours["link"] == (theirs.a, theirs.b)
            if theirs.test != "signs flipped":
                continue
            compared += 1
            here = ours["mean"], *ours["interval"], ours["p"]
            there = theirs.estimate, theirs.low, theirs.high, theirs.p
            np.testing.assert_allclose(here, there, atol=1e-9)
    assert compared >= 30


def test_bounds_are_the_same_where_no_signs_are_counted(judged):
    found = recomputed(SAME_CHOICES)
    for key, verdicts in judged.items():
        if counts_signs(verdicts[0]):
            continue
        for verdict, x in zip(verdicts, ("x", "x_after")):
            if words(verdict) == BOUND:
                assert verdict.bound == pytest.approx(found[key][x]), (key, x)
