"""Motion by hand: where and how much frames change, and in which directions they move.

Nothing is learned: an encoder of videos that is not above it has learned nothing about motion that
two histograms do not tell. Where OpenCV is installed (the extra `flow`), the directions are those
of DIS flow; without it there is the change of frames alone.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data.flow import flow_method
from ..data.manifest import Manifest, in_threads
from ..data.sampling import even_clips
from ..data.video import VideoError, crop_resize
from ..data.views import frame_residual
from ..extras import MissingPackage, require
from ..training.machine import Machine
from .features import Features, collect_features, feature_key, restrict
from .protocols import Protocol
from .retrieval import histogram, join

SIDE = 96  # px of the square that flow is computed on, at most
STILL_FLOW = 0.5  # px from frame to frame: what moves less stands still
PROTOCOL = Protocol("motion by hand", clips=3, length=8, stride=2, size=SIDE)
# method of a row -> what tables call it
BY_HAND = {
    "histogram": "colour histogram",
    "motion": "motion by hand",
    "histogram+motion": "colours and motion by hand",
}


# -- of clips


def change_energy(
    differences: Tensor,  # (B, 3, T, H, W) of neighbouring frames, in [-1, 1]
) -> Tensor:  # (B, 128), in [0, 1]
    "Mean absolute difference in 8 moments and 4 x 4 places, the moments first."
    return F.adaptive_avg_pool3d(differences.abs().mean(1), (8, 4, 4)).flatten(1)


def flow_directions(
    u: Tensor,  # (B, T, H, W) px, to the right
    v: Tensor,  # (B, T, H, W) px, down
) -> Tensor:  # (B, 162), of length 1
    """A histogram of the directions of flow, weighed by its speed: eight directions, and one for
    what stands still, in two halves of the clip and 3 x 3 places.

    Source: HOF with its bin for no motion (Laptev et al., Learning realistic human actions from
    movies, 2008, section 3), with the square root of RootSIFT (Arandjelović and Zisserman, 2012).
    """
    speed = (u * u + v * v).sqrt()
    is_still = speed < STILL_FLOW
    eighth = (torch.atan2(v, u) / (2 * math.pi) * 8).round().long() % 8
    direction = eighth.masked_fill(is_still, 8)
    weight = torch.where(is_still, torch.full_like(speed, 0.05), speed)
    is_direction = direction[:, None] == torch.arange(9, device=u.device).view(-1, 1, 1, 1)
    votes = is_direction * weight[:, None]  # (B, 9, T, H, W)
    shares = F.adaptive_avg_pool3d(votes, (2, 3, 3)).flatten(1)
    return F.normalize(shares.sqrt(), dim=1)


def dis_flow(
    clips: Tensor,  # (B, T, H, W, 3) uint8
) -> tuple[Tensor, Tensor]:  # each (B, T - 1, H, W) px: to the right, down
    "DIS flow from each frame to the next. `MissingPackage` without OpenCV."
    cv2 = require("cv2", "flow")
    grey = torch.from_numpy(
        np.stack([[cv2.cvtColor(f, cv2.COLOR_RGB2GRAY) for f in clip] for clip in clips.numpy()])
    )
    first, second = grey[:, :-1].flatten(0, 1), grey[:, 1:].flatten(0, 1)
    flow = flow_method("dis").compute(first, second)
    u, v = flow.unflatten(0, (len(clips), -1)).unbind(2)
    return u, v


class ChangeEnergy(nn.Module):
    "`change_energy` as an encoder of the view `residual`."

    dim = 128

    def forward(
        self,
        x: Tensor,  # (B, 3, T, H, W)
    ) -> Tensor:  # (B, 128)
        return change_energy(x)


class FlowDirections(nn.Module):
    "`flow_directions` of DIS flow as an encoder of the view `rgb`, whose frames are in [0, 1]."

    dim = 162

    def forward(
        self,
        x: Tensor,  # (B, 3, T, H, W)
    ) -> Tensor:  # (B, 162)
        clips = (255 * x).round().byte().movedim(1, -1)
        return flow_directions(*dis_flow(clips))


def describe_motion(
    clips: Tensor,  # (B, T, H, W, 3) uint8, T at least 2
    with_flow: bool,
) -> list[Tensor]:  # (B, 128), and with flow (B, 162)
    "Change of frames, and directions of their flow."
    x = clips.movedim(-1, 1).float() / 255
    parts = [change_energy(frame_residual(x))]
    if with_flow:
        parts.append(flow_directions(*dis_flow(clips)))
    return parts


# -- of videos


class HandMadeFeatures:
    """Colours and motion of the videos of a manifest, each computed once, when it is first needed.

    Together their cosines are added, as those of two streams: colours count as much as motion.
    """

    def __init__(self, manifest: Manifest, machine: Machine = Machine()):
        self.manifest = manifest
        self.machine = machine

    @cached_property
    def colours(self) -> Features:
        return histogram(self.manifest, "all", machine=self.machine)

    @cached_property
    def motion(self) -> list[Features]:
        return motion_by_hand(self.manifest, machine=self.machine)

    def pairs(
        self,
        method: str,  # of BY_HAND
        split: int,
    ) -> tuple[Features, Features]:  # query, gallery
        "Features of the test and the training videos of a split. KeyError for another method."

        def of_split(features: Features) -> tuple[Features, Features]:
            query, gallery = (
                restrict(features, self.manifest, part, split) for part in ("test", "train")
            )
            return query, gallery

        streams = {
            "histogram": lambda: [of_split(self.colours)],
            "motion": lambda: [of_split(stream) for stream in self.motion],
            "histogram+motion": lambda: [
                self.pairs("histogram", split),
                self.pairs("motion", split),
            ],
        }[method]()
        query, gallery = joined_features(*streams)
        if method == "histogram":
            return query, gallery
        protocol = replace(query.protocol, name=BY_HAND[method])
        return replace(query, protocol=protocol), replace(gallery, protocol=protocol)


def missing_flow() -> str:  # '' where OpenCV is installed
    "What motion by hand lacks on this machine, in a sentence."
    try:
        require("cv2", "flow")
    except MissingPackage:
        return (
            "Motion by hand is measured by the change of frames alone; its directions of flow "
            "take OpenCV: pip install 'vssl_nb[flow]'"
        )
    return ""


def motion_by_hand(
    manifest: Manifest,
    part: str = "all",  # train, test or all
    split: int = 1,  # 1, 2 or 3
    with_flow: bool | None = None,  # None: where OpenCV is installed
    machine: Machine = Machine(),  # whether to show a bar
) -> list[Features]:  # change of frames (N, 128), and with flow its directions (N, 162)
    "The baseline that sees motion alone, a feature for each video: the mean of three clips."
    if with_flow is None:
        with_flow = not missing_flow()
    p = PROTOCOL
    rows = manifest.select(part, split)

    def described(row: int) -> list[Tensor] | str:
        numbers = even_clips(
            manifest.rows[row].frames, clips=p.clips, length=p.length, stride=p.stride
        )
        frames, at = np.unique(numbers, return_inverse=True)
        try:
            decoded = manifest.decode(row, frames.tolist())
        except VideoError as e:
            return e.reason
        square = central_square(decoded, min(p.size, *decoded.shape[1:3]))
        return [x.mean(0) for x in describe_motion(square[at.reshape(numbers.shape)], with_flow)]

    made = dict(zip(rows, in_threads(described, rows, None, machine.progress, f"motion of {part}")))
    bad = {row: x for row, x in made.items() if isinstance(x, str)}
    names = ["change of frames", "directions of flow"][: 1 + with_flow]
    streams = []
    for i, name in enumerate(names):
        mean = {row: x[i] for row, x in made.items() if not isinstance(x, str)}
        key = feature_key(f"motion by hand, {name}", manifest, part, split, "rgb", p)
        streams.append(collect_features(manifest, rows, mean, bad, p, key))
    return streams


def central_square(
    frames: Tensor,  # (T, H, W, 3) uint8
    side: int,  # px
) -> Tensor:  # (T, side, side, 3) uint8
    "The largest centred square, scaled."
    height, width = frames.shape[1:3]
    short = min(height, width)
    box = ((height - short) // 2, (width - short) // 2, short, short)
    return crop_resize(frames, box, (side, side))


def joined_features(
    *streams: tuple[Features, Features],  # query and gallery of each
) -> tuple[Features, Features]:
    """Several streams as one, whose cosine is the mean of theirs: each is centred as its protocol
    wants it, then brought to length 1. Videos that one of them lacks are left out.
    """
    if len(streams) == 1:
        return streams[0]
    query, gallery, _, _ = join(*streams)
    queries, galleries = ([stream[side] for stream in streams] for side in (0, 1))
    return _with_joined(queries, query), _with_joined(galleries, gallery)


def _with_joined(
    sides: Sequence[Features],  # of each stream
    x: Tensor,  # (N, D), joined
) -> Features:
    rows = set.intersection(*({*side.row.tolist()} for side in sides))
    first = sides[0]
    common = torch.isin(first.row, torch.tensor(sorted(rows)))
    dropped = {row: why for side in sides for row, why in side.dropped.items()}
    protocol = cast(Protocol, replace(first.protocol, centre="none"))
    return replace(first.take(common), x=x, protocol=protocol, dropped=dropped)
