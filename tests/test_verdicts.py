"Verdicts on claims: by hand, gates, and ledgers in which nothing is true."

from collections import Counter

import numpy as np
import pytest

from vssl_nb.papers import verdicts
from vssl_nb.papers.verdicts import Arm, Premise, judge_claim, judge_together

CHANCE = 12.5


def arm(values, untrained=CHANCE):
    return Arm(tuple(values), tuple(values), (untrained,) * len(values))


def shifted(values, *by):
    return [x + d for x, d in zip(values, by, strict=True)]


BASE = [40.0, 42.0, 38.0, 45.0, 41.0, 39.0, 43.0, 44.0]
UP = shifted(BASE, 5, 6, 4, 7, 5, 3, 6, 4)
SAME = shifted(BASE, 2, -1, 1, -2, 0.5, -0.5, 1.5, -1)


def test_a_link_by_hand():
    "All eight seeds are higher, so that 2 of 256 choices of signs are as far from 0."
    found = judge_claim("a < b", {"a": arm(BASE), "b": arm(UP)})
    (link,) = found.links
    assert (found.word, link.p, link.estimate, link.test) == ("holds", 2 / 256, 5, "signs flipped")
    assert str(judge_claim("b < a", {"a": arm(BASE), "b": arm(UP)})) == "fails"


def test_what_is_open_is_a_bound():
    "x is the farther end of the interval."
    found = judge_claim("a < b", {"a": arm(BASE), "b": arm(SAME)})
    (link,) = found.links
    assert found.bound == max(-link.low, link.high) > abs(link.estimate)
    assert str(found) == f"no difference above {found.bound:.1f} points"


def test_a_chain_holds_where_all_of_it_does_and_fails_where_a_link_does():
    high = shifted(UP, *[4] * 8)
    arms = {"a": arm(BASE), "b": arm(UP), "c": arm(high), "same": arm(SAME)}
    assert judge_claim("a < b < c", arms).word == "holds"
    assert judge_claim("a < b; same < a", arms).word == "no difference above"
    assert judge_claim("b < c; b < a", arms).word == "fails"
    # Holm: three links, each with the smallest p
    assert [x.adjusted for x in judge_claim("a < b < c; a < c", arms).links] == [6 / 256] * 3


def test_a_seed_that_failed_is_counted_and_the_signs_alone_are_tested():
    "A mean would be decided by two seeds."
    failing = [12.0, 12.5, *UP[2:]]
    a, b = arm(BASE), arm(failing)
    assert b.failed == 2 and b.is_mixed and not a.is_mixed and not arm([CHANCE] * 8).is_mixed
    # around the untrained encoder some seeds are lower, and none has clearly learned
    assert not arm([11.0, 12.0, 14.0, 13.0, 10.0, 15.0, 12.0, 13.0]).is_mixed
    (link,) = judge_claim("a < b", {"a": a, "b": b}).links
    # six of eight are higher: 2 (28 + 8 + 1) / 256
    assert (link.test, link.p) == ("signs", 74 / 256)
    assert (link.low, link.high) == (12.5 - 42.0, 7.0) and link.estimate == 4.0


def test_gates():
    arms = {"a": arm(BASE), "b": arm(UP)}
    half = Premise((1.0, 3.0) * 4, least=2.0)
    most = Premise((3.0,) * 6 + (1.0,) * 2, least=2.0)
    assert judge_claim("a < b", arms, half).word == "premise not met"
    assert judge_claim("a < b", arms, half).because == "4 of 8 seeds have it"
    assert judge_claim("a < b", arms, most).word == "holds"
    low = {name: arm(x.values, untrained=50.0) for name, x in arms.items()}
    assert judge_claim("a < b", low).word == "nothing was learned"
    assert judge_claim("a < c", arms).because == "c is missing"
    few = {name: arm(x.values[:5]) for name, x in arms.items()}
    assert judge_claim("a < b", few).because == "5 seeds of at least 6"
    with pytest.raises(ValueError, match=r"a < b: arms and premise have \[5, 8\] seeds"):
        judge_claim("a < b", {"a": arm(BASE), "b": arm(UP[:5])})


def test_over_a_ledger_what_stands_alone_is_open():
    "One link at .0078 among twenty that differ in nothing: 20 times that is above .05."
    one = judge_claim("a < b", {"a": arm(BASE), "b": arm(UP)})
    rest = [judge_claim("a < b", {"a": arm(BASE), "b": arm(SAME)})] * 19
    together = judge_together([one, *rest])
    assert one.word == "holds" and together[0].word == "no difference above"
    many = judge_together([one] * 19 + rest[:1])
    assert many[0].word == "holds" and many[0].links[0].over_all < 0.01
    gated = judge_claim("a < c", {"a": arm(BASE)})
    assert judge_together([gated]) == [gated]


# ---- ledgers in which nothing is true


def nothing_differs(rng, names, collapse=0.0):
    "Arms that differ by chance alone; `collapse`: the share of seeds in which an arm fails."
    of_seed = rng.normal(45, 5, 8)
    arms = {}
    for name in names:
        values = of_seed + rng.normal(0, 4, 8)
        arms[name] = arm(np.where(rng.random(8) < collapse, CHANCE - 1, values).tolist())
    return arms


def one_collapses(rng, rate):
    """`b` alone fails in a share of the seeds, and is higher in the others, so that half of all
    differences are above 0.
    """
    of_seed = rng.normal(45, 5, 8)
    a, b = (of_seed + rng.normal(0, 4, 8) for _ in range(2))
    gains = np.quantile(rng.normal(0, 4 * 2**0.5, 20_000), 1 - 0.5 / (1 - rate))
    failed = rng.random(8) < rate
    beside = {name: arm((of_seed + rng.normal(0, 4, 8)).tolist()) for name in "cd"}
    return beside | {
        "a": arm(a.tolist()),
        "b": arm(np.where(failed, CHANCE - 1, b - gains).tolist()),
    }


@pytest.mark.parametrize("chain", ["a < b", "a < b < c", "a < b < c < d", "a < b; c < b; d < b"])
@pytest.mark.parametrize("collapse", [0.0, 0.125, 0.375])
def test_where_no_arm_differs_few_claims_hold_or_fail(chain, collapse):
    rng, words, links = np.random.default_rng(len(chain)), Counter(), Counter()
    for _ in range(400):
        found = judge_claim(chain, nothing_differs(rng, "abcd", collapse))
        words[found.word] += 1
        links.update(link.outcome for link in found.links)
    for word in ("holds", "fails"):
        assert words[word] / 400 <= 0.05, (word, words)
    for outcome in ("for", "against"):
        assert links[outcome] / links.total() <= 0.05, (outcome, links)


@pytest.mark.parametrize("rate", [0.125, 0.375])
@pytest.mark.parametrize("chain", ["a < b", "b < a", "a < b; c < d", "c < d; b < a; a < c"])
def test_where_one_arm_alone_collapses_few_claims_hold_or_fail(rate, chain):
    "Student's t takes 8 to 12 % of such links for a difference."
    rng, words = np.random.default_rng(8), Counter()
    for _ in range(600):
        words[judge_claim(chain, one_collapses(rng, rate)).word] += 1
    for word in ("holds", "fails"):
        assert words[word] / 600 <= 0.05, words


def test_a_ledger_without_any_effect_has_a_false_claim_in_one_case_of_twenty():
    "Benjamini and Hochberg's rule over 28 claims, of one link to three."
    rng, wrong = np.random.default_rng(1), 0
    for _ in range(200):
        chains = ["a < b"] * 16 + ["a < b < c"] * 8 + ["a < b < c < d"] * 4
        alone = [judge_claim(chain, nothing_differs(rng, "abcd")) for chain in chains]
        together = judge_together(alone)
        wrong += any(v.word in (verdicts.HOLDS, verdicts.FAILS) for v in together)
    assert wrong / 200 <= 0.05


def test_real_differences_are_found():
    "A gain of two spreads in each link of three: nine in ten claims hold."
    rng, words = np.random.default_rng(2), Counter()
    for _ in range(200):
        of_seed = rng.normal(45, 5, 8)
        arms = {
            name: arm((of_seed + 10 * i + rng.normal(0, 3.5, 8)).tolist())
            for i, name in enumerate("abcd")
        }
        words[judge_claim("a < b < c < d", arms).word] += 1
    assert words["holds"] >= 180 and words["fails"] == 0, words
