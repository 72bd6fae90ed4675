"""Intervals: of a mean over seeds, and of shares of test videos that come from few recordings."""

import statistics
from collections.abc import Sequence

import numpy as np
from measurement import stop
from scipy import stats


def seed_interval(
    values: Sequence[float],  # one of each seed
) -> tuple[float, float]:
    "Mean and half of its 95 % interval, the seeds as units (Student's t)."
    n = len(values)
    if n < 3:
        stop(f"{n} seeds give no interval; run three or more")
    half = stats.t.ppf(0.975, n - 1) * statistics.stdev(values) / n**0.5
    return statistics.fmean(values), half


def middle_95(
    draws: np.ndarray,  # (draws,)
) -> list[float]:
    return np.quantile(draws, (0.025, 0.975)).tolist()


class Bootstrap:
    """A bootstrap over recordings and seeds: whole recordings are drawn with replacement, since
    clips of one recording fail together, and the seeds of an encoder with them. All encoders see
    the same draws of recordings, and those with as many seeds the same draws of seeds, so that a
    difference of two of them is paired by recording and seed."""

    def __init__(
        self,
        source: Sequence[int],  # recording of each test video
        draws: int = 2000,
        seed: int = 0,  # of the draws
    ):
        names, self.recording = np.unique(np.array(source), return_inverse=True)
        self.recordings, self.draws = len(names), draws
        self.size = np.bincount(self.recording)  # videos of each recording
        even = np.full(self.recordings, 1 / self.recordings)
        # (draws, recordings): how often each is drawn
        self.drawn = np.random.default_rng(2 * seed).multinomial(self.recordings, even, draws)
        self.seed = seed

    def share(
        self,
        right: Sequence[Sequence[float]],  # of each seed: 1 or 0 for each test video
    ) -> tuple[float, np.ndarray]:  # of all videos and seeds; of each draw
        "The share of right answers."
        by_recording = np.stack(
            [np.bincount(self.recording, np.array(one), self.recordings) for one in right]
        )
        rng = np.random.default_rng((self.seed, len(right)))
        seeds = rng.integers(len(right), size=(self.draws, len(right)))
        videos = self.drawn @ self.size
        of_draws = (self.drawn * by_recording[seeds].mean(1)).sum(1) / videos
        return float(by_recording.mean(0).sum() / self.size.sum()), of_draws
