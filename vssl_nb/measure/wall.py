"Queries and their nearest training videos, as a picture"

from matplotlib.figure import Figure
from torch import Tensor, float64, linspace

from .. import show
from ..data.dataset import TestClips
from ..data.manifest import Manifest
from .features import Features
from .gaussian import VideoGaussians
from .protocols import Protocol


def neighbour_wall(
    query: Features | VideoGaussians,
    gallery: Features | VideoGaussians,
    near: Tensor,  # (Q, k) positions in the gallery, nearest first
    manifest: Manifest,
    protocol: Protocol,  # the clip to show
    n: int = 8,  # queries, spread evenly over the test part
    k: int = 5,  # neighbours of each query, at most
) -> Figure:
    "Queries and their nearest training videos: what the encoder holds to be alike."
    chosen = linspace(0, len(query) - 1, min(n, len(query)), dtype=float64).round().long()
    near = near[chosen, :k]
    rows = query.row[chosen].tolist()
    right = gallery.label[near] == query.label[chosen][:, None]
    size = max(96, protocol.size)

    def clip(row: int) -> Tensor:
        clips = TestClips(manifest, [row], 1, protocol.length, protocol.stride, size)
        return clips[0]["clips"][0]

    return show.neighbours(
        [clip(row) for row in rows],
        [[clip(row) for row in gallery.row[places].tolist()] for places in near],
        right.tolist(),
        [manifest.rows[row].label for row in rows],
    )
