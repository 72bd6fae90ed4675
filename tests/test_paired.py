"Differences that are paired by seed: against scipy, against the definition, and by simulation."

import itertools

import numpy as np
import pytest
from scipy.stats import binomtest, false_discovery_control, permutation_test

from vssl_nb.measure.paired import (
    benjamini_hochberg,
    count_interval,
    holm,
    order_interval,
    sign_flip,
    sign_test,
    subset_interval,
)

SOME = (
    [3.1, -0.4, 2.2, 5.0, 1.7, 0.3, 4.1, 2.6],
    [0.0, 0.0, 0.0, 90.0, 0.0, 0.0, 0.0, 0.0],  # one arm collapsed but for one seed
    [1.0, 1.0, 1.0, -1.0, -1.0],
)


@pytest.mark.parametrize("differences", SOME)
def test_signs_are_flipped_as_scipy_flips_them(differences):
    theirs = permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=np.inf
    )
    assert sign_flip(differences) == pytest.approx(theirs.pvalue)


@pytest.mark.parametrize("differences", SOME)
def test_signs_are_flipped_as_a_loop_flips_them(differences):
    observed = abs(sum(differences))
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    assert sign_flip(differences) == sum(s >= observed - 1e-9 for s in sums) / len(sums)


def test_the_interval_has_the_shifts_that_are_not_rejected():
    d = np.array(SOME[0])
    low, high = subset_interval(d)
    for shift in np.linspace(low - 2, high + 2, 101):
        inside = low < shift < high
        if abs(shift - low) > 1e-6 and abs(shift - high) > 1e-6:
            assert (sign_flip(d - shift) > 0.05) == inside
    assert subset_interval([2.0, 3.0]) == (-np.inf, np.inf)


@pytest.mark.parametrize("collapse", [False, True])
def test_where_nothing_differs_it_is_rejected_in_one_case_of_twenty_at_most(collapse):
    "Also where each arm fails in three of eight seeds, which Student's t does not bear."
    rng = np.random.default_rng(0)
    rejected = covered = 0
    trials = 600
    for _ in range(trials):
        a, b = rng.normal(60, 5, (2, 8))
        if collapse:
            a, b = (np.where(rng.random(8) < 0.375, 12.5, x) for x in (a, b))
        rejected += sign_flip(a - b) <= 0.05
        low, high = subset_interval(a - b)
        covered += low <= 0 <= high
    assert rejected / trials < 0.05 + 3 * np.sqrt(0.05 * 0.95 / trials)
    assert covered / trials > 0.95 - 3 * np.sqrt(0.05 * 0.95 / trials)


def test_holm_by_hand():
    # sorted .01, .03, .04: times 3, 2 and 1, and none below the one before it
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]


def test_sides_are_counted_as_scipy_counts_them():
    for d in (*SOME, [2.0, -1.0], [0.0, 0.0]):
        above, either = sum(x > 0 for x in d), sum(x != 0 for x in d)
        theirs = binomtest(above, either).pvalue if either else 1.0
        assert sign_test(d) == pytest.approx(theirs)


def test_the_interval_of_a_median_has_what_the_signs_do_not_reject():
    d = np.array(SOME[0])
    low, high = order_interval(d)
    for shift in np.linspace(low - 2, high + 2, 101):
        if abs(shift - low) > 1e-6 and abs(shift - high) > 1e-6:
            assert (sign_test(d - shift) > 0.05) == (low < shift < high)
    assert order_interval(range(20)) == (5.0, 14.0)  # 2 P(5 or fewer of 20) is .041
    assert order_interval([1.0] * 5) == (-np.inf, np.inf)


@pytest.mark.parametrize("count", [0, 1, 3, 8])
def test_failed_seeds_as_scipy_has_them(count):
    theirs = binomtest(count, 8).proportion_ci(0.95, method="exact")
    assert count_interval(count, 8) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def test_many_comparisons_as_scipy_has_them():
    ps = np.random.default_rng(0).random(30) ** 3
    assert benjamini_hochberg(ps) == pytest.approx(false_discovery_control(ps))
    # by hand: .01, .02, .5 times 3, 3/2 and 1
    assert benjamini_hochberg([0.5, 0.01, 0.02]) == pytest.approx([0.5, 0.03, 0.03])


def test_too_few_or_too_many_are_refused():
    for wrong in ([], [[1.0, 2.0]], range(30)):
        with pytest.raises(ValueError, match="give 1 to 20 numbers"):
            sign_flip(wrong)
