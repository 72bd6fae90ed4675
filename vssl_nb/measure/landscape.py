"""What a folder of features looks like: a plane and a grid to put the videos on, groups, and the
videos that stand best for those that have no label.
"""

import math
from dataclasses import dataclass

import numpy as np

from ..extras import require

# videos that all others are compared with at most, where the comparison takes N x N numbers
COMPARED = 4000


def directions(
    x: np.ndarray,  # (N, D) features
) -> np.ndarray:  # (N, D) float32, of length 1; 0 for a feature that is the mean
    "Features as search compares them: the mean is taken off, then the length."
    x = np.asarray(x, np.float64)
    x = x - x.mean(0)
    length = np.sqrt(np.einsum("nd,nd->n", x, x))[:, None]
    # what is left of equal features is rounding
    small = 1e-9 * max(float(np.abs(x).max(initial=0)), 1e-12)
    return np.where(length > small, x / np.maximum(length, small), 0).astype(np.float32)


def principal(
    x: np.ndarray,  # (N, D)
    dim: int,  # at most
) -> np.ndarray:  # (N, dim) float32; zeros where there is no further direction
    "The coordinates of most variance, the same for the same features."
    centred = x - x.mean(0)
    left, size, _ = np.linalg.svd(centred, full_matrices=False)
    left = left[:, :dim] * size[:dim]
    # a sign that does not depend on the library
    highest = np.abs(left).argmax(0)
    left = left * np.where(left[highest, range(left.shape[1])] < 0, -1, 1)
    out = np.zeros((len(x), dim), np.float32)
    out[:, : left.shape[1]] = left
    return out


def on_plane(
    x: np.ndarray,  # (N, D) of `directions`
    seed: int = 0,  # of t-SNE
) -> np.ndarray:  # (N, 2) from 0 to 1
    "t-SNE; of fewer than eight videos, or of equal ones, the two directions of most variance."
    if len(x) >= 8 and np.ptp(x, 0).max() > 0:
        manifold = require("sklearn.manifold", "explore")
        perplexity = min(30.0, (len(x) - 1) / 3)
        start = principal(x, 2)
        start = start / max(float(start[:, 0].std()), 1e-12) * 1e-4
        points = manifold.TSNE(2, perplexity=perplexity, init=start, random_state=seed)
        plane = points.fit_transform(principal(x, 50) if x.shape[1] > 50 else x)
    else:
        plane = principal(x, 2)
    low = plane.min(0)
    return (plane - low) / np.maximum(np.ptp(plane, 0), 1e-12)


def on_grid(
    plane: np.ndarray,  # (N, 2) from 0 to 1
    columns: int,  # of the grid, 1 or more
    spare: float = 1.25,  # cells for each video: free ones show where the groups end
) -> np.ndarray:  # (N, 2) column and row, each cell once
    "A cell for each video, so that the squares of all distances together are smallest."
    optimize = require("scipy.optimize", "explore")

    rows = max(math.ceil(len(plane) * spare / columns), 1)
    cells = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), -1).reshape(-1, 2)
    places = (cells + 0.5) / (columns, rows)
    costs = ((plane[:, None] - places) ** 2).sum(-1)
    _, chosen = optimize.linear_sum_assignment(costs)
    return cells[chosen]


@dataclass(frozen=True)
class Groups:
    "Videos that are alike."

    of: np.ndarray  # (N,) number of the group of each video, the largest group is 0
    typical: tuple[tuple[int, ...], ...]  # videos of each group, the most typical first
    # mean silhouette, -1 to 1: near 0 the groups have no border; nan where there is but one
    silhouette: float

    def __len__(self) -> int:
        return len(self.typical)

    @property
    def in_words(self) -> str:
        "How far apart the groups are."
        if math.isnan(self.silhouette):
            return "all features are alike"
        scale = f"mean silhouette {self.silhouette:.2f}; 0: no border, 1: far apart"
        if self.silhouette < 0.1:
            return f"the groups run into each other ({scale})"
        if self.silhouette < 0.3:
            return f"the groups touch ({scale})"
        if self.silhouette < 0.5:
            return f"the groups have some border ({scale})"
        return f"the groups are well apart ({scale})"


def usual_number(
    videos: int,
) -> int:  # of groups
    "The square root of half the videos, 2 to 30."
    return min(max(round(math.sqrt(videos / 2)), 2), 30)


def group(
    x: np.ndarray,  # (N, D) of `directions`
    number: int | None = None,  # of groups, at most; None: `usual_number`
    seed: int = 0,  # of k-means
) -> Groups:
    "Groups by k-means, the largest first."
    cluster = require("sklearn.cluster", "explore")
    metrics = require("sklearn.metrics", "explore")

    different = len(np.unique(x, axis=0))
    number = min(number or usual_number(len(x)), different)
    reduced = principal(x, 50) if x.shape[1] > 50 else np.asarray(x, np.float32)
    if number < 2:
        return Groups(np.zeros(len(x), int), (tuple(range(len(x))),), math.nan)

    fit = cluster.KMeans(number, n_init=10, random_state=seed).fit(reduced)
    order = np.argsort(-np.bincount(fit.labels_, minlength=number), kind="stable")
    of = np.argsort(order)[fit.labels_]
    distance = ((reduced - fit.cluster_centers_[fit.labels_]) ** 2).sum(1)
    typical = []
    for g in range(number):
        members = np.flatnonzero(of == g)
        typical.append(tuple(members[np.argsort(distance[members], kind="stable")].tolist()))
    silhouette = math.nan
    if number < len(x):
        most = min(len(x), COMPARED)
        silhouette = float(
            metrics.silhouette_score(
                reduced, of, sample_size=most if most < len(x) else None, random_state=seed
            )
        )
    return Groups(of, tuple(typical), silhouette)


def to_label_next(
    x: np.ndarray,  # (N, D) of `directions`
    labelled: np.ndarray,  # (N,) bool
    number: int = 20,  # how many, at most
    seed: int = 0,  # which videos are compared, where there are more than COMPARED
) -> list[int]:  # positions, the most useful first
    """The videos that stand for all others: one after the other, the one that raises most the
    similarity of every video to the nearest that has a label or was taken (facility location).

    Where all have a label, as if none had one.
    """
    if labelled.all():
        labelled = np.zeros(len(x), bool)
    compared = np.arange(len(x))
    if len(x) > COMPARED:
        compared = np.sort(np.random.default_rng(seed).choice(len(x), COMPARED, replace=False))
    # 0 to 1
    similarity = (1 + x[compared] @ x.T) / 2
    covered = np.zeros(len(compared), np.float32)
    if labelled.any():
        covered = similarity[:, labelled].max(1)

    free = ~labelled
    chosen: list[int] = []
    for _ in range(min(number, int(free.sum()))):
        gain = np.maximum(similarity - covered[:, None], 0).sum(0)
        gain[~free] = -1
        # two that stand for each other alone are equal but for rounding: the earlier one
        best = int(gain.round(5).argmax())
        chosen.append(best)
        free[best] = False
        covered = np.maximum(covered, similarity[:, best])
    return chosen
