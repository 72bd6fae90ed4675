"""Differences that are paired by seed: exact tests, their intervals, and rules for many of them.

`sign_flip` compares means: if nothing made a difference, each seed's difference could as well have
had the other sign. All 2^n choices of signs are counted, so the shape of the distribution does not
matter, as long as it is symmetric where nothing differs. `sign_test` compares medians and takes no
symmetry: it counts on which side of 0 the differences are. It is for arms that fail in some seeds.
"""

from collections.abc import Sequence
from math import comb

import numpy as np

MOST = 20  # differences: 2^20 choices of signs
LEVEL = 0.95  # of intervals


def _differences(
    values: Sequence[float],
) -> np.ndarray:  # (n,) float64
    x = np.asarray(values, float)
    if x.ndim != 1 or not 1 <= len(x) <= MOST:
        raise ValueError(f"differences: give 1 to {MOST} numbers, not {x.shape}")
    return x


def sign_flip(
    differences: Sequence[float],  # n, one a seed
) -> float:  # 2^-n to 1, two-sided
    "The share of all choices of signs whose mean is as far from 0. ValueError."
    d = _differences(differences)
    n = len(d)
    signs = 1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
    sums = abs(signs @ d)
    slack = 1e-12 * max(abs(d).sum(), 1e-12)
    return float((sums >= abs(d.sum()) - slack).mean())


def subset_interval(
    differences: Sequence[float],  # n, one a seed
    level: float = LEVEL,
) -> tuple[float, float]:  # infinite where there are too few seeds
    """The shifts that `sign_flip` does not reject: from the means of all subsets (Hartigan 1969).

    ValueError.
    """
    d = _differences(differences)
    n = len(d)
    chosen = (np.arange(1, 2**n)[:, None] >> np.arange(n)) & 1
    means = np.sort(chosen @ d / chosen.sum(1))
    k = int((1 - level) / 2 * 2**n + 1e-9)
    if k < 1:
        return -np.inf, np.inf
    return float(means[k - 1]), float(means[-k])


def sign_test(
    differences: Sequence[float],  # n, one a seed
) -> float:  # 2^(1-n) to 1, two-sided
    "How likely so many seeds are on one side if either side is as likely; 0 is on no side."
    d = np.asarray(differences, float)
    above, below = int((d > 0).sum()), int((d < 0).sum())
    n = above + below
    tail = sum(comb(n, k) for k in range(max(above, below), n + 1)) / 2**n
    return min(1.0, 2 * tail)


def order_interval(
    differences: Sequence[float],  # n, one a seed
    level: float = LEVEL,
) -> tuple[float, float]:  # infinite where there are too few seeds
    "The medians that `sign_test` does not reject: from one of the smallest to one of the largest."
    d = np.sort(np.asarray(differences, float))
    n = len(d)
    k = 0  # so many seeds may be cut off at either end
    while 2 * sum(comb(n, i) for i in range(k + 1)) / 2**n <= 1 - level:
        k += 1
    if k == 0:
        return -np.inf, np.inf
    return float(d[k - 1]), float(d[-k])


def count_interval(
    count: int,  # of seeds that failed
    n: int,  # of seeds
    level: float = LEVEL,
) -> tuple[float, float]:  # 0 to 1
    "The shares that a count does not reject (Clopper and Pearson 1934): exact, so rather wide."

    def at_least(share: float, k: int) -> float:
        return sum(comb(n, i) * share**i * (1 - share) ** (n - i) for i in range(k, n + 1))

    def crossing(k: int, tail: float) -> float:  # `at_least` rises with the share
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if at_least(middle, k) < tail else (low, middle)
        return low

    tail = (1 - level) / 2
    least = crossing(count, tail) if count else 0.0
    most = crossing(count + 1, 1 - tail) if count < n else 1.0
    return least, most


def holm(
    ps: Sequence[float],  # of the comparisons of a family
) -> list[float]:  # adjusted, in the same order
    "Holm's rule: with it a family has a false finding in 5 % of cases at most, at level 0.05."
    order = np.argsort(ps, kind="stable")
    adjusted, highest = [0.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[i]))
        adjusted[i] = highest
    return adjusted


def benjamini_hochberg(
    ps: Sequence[float],  # of all comparisons
) -> list[float]:  # adjusted, in the same order
    """The rule of Benjamini and Hochberg (1995): of all that is at or below 0.05, at most one in
    twenty is false, in the mean, if the tests are independent.
    """
    order = np.argsort(ps, kind="stable")[::-1]
    adjusted, lowest = [0.0] * len(ps), 1.0
    for rank, i in enumerate(order):
        lowest = min(lowest, ps[i] * len(ps) / (len(ps) - rank))
        adjusted[i] = lowest
    return adjusted
