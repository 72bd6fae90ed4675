"What came of a run, in plain words: what was measured, and what to do next; needs no labels."

import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import show
from ..files import write_whole
from ..runs.evaluation import EvaluatedEncoder, open_trained
from ..runs.experiment import resolve
from ..runs.hub import load_hub
from ..training.run_folder import write_json
from ..training.machine import Machine
from .label_free import (
    FEWEST,
    STILL_PIXELS,
    centred_similarity,
    encode_foreign,
    encode_pictures,
    encode_videos,
    measure_videos,
)
from .recommendation import INSTALL, PUBLISHED, published_name

LEARNED = 0.05  # gain over random weights
LEARNED_LITTLE = 0.02
SURE = 2.6  # gain over its error: one in two hundred by chance
COLLAPSED = 0.03  # spread of the features
MOSTLY_STILL = 0.8  # share of videos that do not move
PARTLY_STILL = 0.2
BY_A_FRAME = 0.7  # share of neighbours by a frozen frame
EASY = 0.9  # share of videos that random weights find again


@dataclass(frozen=True)
class Verdict:
    "What came of a run, in plain language, and the numbers behind it."

    learned: str  # yes, a little, unclear, no; not measured
    collapsed: bool
    still: bool  # do most of the videos not move?
    sentences: tuple[str, ...]  # what was measured
    advice: tuple[str, ...]  # what to do next
    numbers: dict[str, Any]  # of `measure_videos`

    def __str__(self) -> str:
        sentences = [f"  {s}" for s in self.sentences]
        advice = [f"  {s}" for s in self.advice]
        return "\n".join(["Verdict", *sentences, "What next", *advice])


@dataclass(frozen=True)
class Findings:
    "What the numbers of `measure_videos` mean."

    numbers: dict[str, Any]
    view: str  # of the encoder
    finished: bool  # has the training come to its end?

    @property
    def foreign(self) -> bool:
        "Is it an encoder of another library, which knows no step?"
        return self.numbers["step"] is None

    @property
    def copies(self) -> bool:
        "Are most videos copies? The same pictures have the same features: that is no collapse."
        return 2 * self.numbers["distinct"] <= self.numbers["videos"]

    @property
    def collapsed(self) -> bool:
        "Has it below a third of the spread of random weights, or one direction?"
        n = self.numbers
        narrow = n["std"] < max(COLLAPSED, n["std_random"] / 3) or n["rankme"] < 1.5
        return narrow and not self.copies

    @property
    def learned(self) -> str:  # as of `Verdict`
        gain = self.numbers["gain"]
        if self.foreign:
            return "not measured"
        if self.copies:
            return "unclear"
        if self.collapsed or gain < LEARNED_LITTLE:
            return "no"
        if gain <= SURE * self.numbers["gain_error"]:
            return "unclear"
        return "yes" if gain >= LEARNED else "a little"

    @property
    def has_learned(self) -> bool:
        return self.learned in ("yes", "a little")

    @property
    def still(self) -> bool:
        return self.numbers["still_videos"] >= MOSTLY_STILL

    @property
    def usable(self) -> bool:
        "Is it worth a search? Of copies, stills and a collapsed encoder nothing can be told."
        return not (self.collapsed or self.still or self.copies)

    @property
    def sees_motion_only(self) -> bool:
        "Does it see nothing in a frozen frame, because it sees differences?"
        return self.view == "residual" and self.numbers["one_frame"] == 0

    @property
    def goes_by_frames(self) -> bool:
        "Would it call most of what it calls alike so from one frozen frame as well?"
        return self.view == "rgb" and (self.numbers["one_frame"] or 0.0) >= BY_A_FRAME

    @property
    def compares_labels(self) -> bool:
        return "label_r1" in self.numbers

    @property
    def all_labelled(self) -> bool:
        return self.compares_labels and self.numbers["labelled"] == self.numbers["videos"]

    def percent(self, name: str) -> str:  # '53 %'
        return f"{100 * self.numbers[name]:.0f} %"


def judge(
    numbers: dict[str, Any],
    view: str,
    finished: bool = True,  # has the training come to its end?
    run: str = "RUN",  # as commands name the run
    data: str = "FOLDER",  # as commands name the videos
    video: str = "VIDEO",  # as commands name one of the videos
) -> Verdict:
    "From the numbers of `measure_videos`, and the view of the encoder, to words."
    findings = Findings(numbers, view, finished)
    sentences = [
        *_on_collapse(findings),
        *_on_learning(findings),
        *_on_spread(findings),
        *_on_motion(findings),
        *_on_sources_and_labels(findings),
    ]
    advice = [
        *_first_remedies(findings),
        *_more_training(findings, data),
        *_other_views(findings, data),
        *_uses(findings, run, data, video),
    ]
    return Verdict(
        findings.learned,
        findings.collapsed,
        findings.still,
        tuple(sentences),
        tuple(advice),
        numbers,
    )


# -- what was measured


def _on_collapse(f: Findings) -> Iterator[str]:
    n = f.numbers
    if f.collapsed:
        yield (
            "IT HAS COLLAPSED: it gives nearly the same feature for every video (spread "
            f"{n['std']:.3f} of 1, random weights {n['std_random']:.3f}; mean cosine "
            f"{n['mean_cosine']:.3f}). Do not use this encoder."
        )


def _on_learning(f: Findings) -> Iterator[str]:
    n = f.numbers
    if f.foreign and f.copies:
        yield f"Of {n['videos']} videos only {n['distinct']} differ, and the others are copies."
    elif f.foreign:
        yield (
            f"Of {n['videos']} videos, it finds {f.percent('found_again')} again by a clip of "
            "another time; the same network with random weights finds "
            f"{f.percent('found_again_random')}, guessing {f.percent('chance')}."
        )
    else:
        outcome = _outcome(f)
        yield (
            f"{outcome + ' ' if outcome else ''}Of {n['videos']} videos, cut, recoloured and shown "
            f"at another time than in training, it finds {f.percent('found_again')} again; random "
            f"weights find {f.percent('found_again_random')}, guessing {f.percent('chance')}."
        )


def _outcome(f: Findings) -> str:  # '' for a collapsed encoder
    "Whether it has learned, in a sentence."
    n = f.numbers
    if f.copies:
        return (
            f"It cannot be told whether it learned: of {n['videos']} videos only {n['distinct']} "
            "differ, and the others are copies."
        )
    if f.learned == "yes":
        return "It learned."
    if f.learned == "a little":
        return "It learned a little."
    if f.learned == "unclear":
        return (
            "It may have learned something, but so small a difference may be chance on so few "
            "videos."
        )
    if f.collapsed:
        return ""
    if n["found_again_random"] > EASY:
        return "It cannot be told whether it learned: the task is too easy for these videos."
    return "It did not learn: it is no better than random weights."


def _on_spread(f: Findings) -> Iterator[str]:
    n = f.numbers
    if not f.collapsed and not f.copies:
        yield (
            f"It has not collapsed: its features use about {n['rankme']:.0f} directions, spread "
            f"{n['std']:.2f}."
        )
    if not f.collapsed and not f.finished:
        yield f"It is not finished: this is step {n['step']}."


def _on_motion(f: Findings) -> Iterator[str]:
    n = f.numbers
    if f.still:
        yield (
            f"In {f.percent('still_videos')} of the videos nothing moves: whatever is learned here "
            "is about still pictures, and nothing about motion."
        )
    elif n["still_videos"] > PARTLY_STILL:
        yield f"In {f.percent('still_videos')} of the videos nothing moves."

    colours = f"The colours alone explain {f.percent('by_colours')} of its similarities."
    if "by_motion" in n:
        colours = (
            f"The colours alone explain {f.percent('by_colours')} of its similarities, motion by "
            f"hand {f.percent('by_motion')}."
        )
    if f.collapsed:
        pass
    elif n["one_frame"] is None:
        yield colours
    elif f.sees_motion_only:
        yield (
            "It sees differences of frames, and a frozen frame has none: what it calls alike "
            f"moves, though the outlines of what moves show things as well. {colours}"
        )
    else:
        yield f"{_share_by_a_frame(f)} {colours}"

    if f.goes_by_frames and f.usable and not f.foreign:
        yield (
            "That is usual for short trainings on plain frames, and no fault of these videos: it "
            "says that this encoder finds what looks alike, and not the same movement in another "
            "place."
        )


def _share_by_a_frame(f: Findings) -> str:
    "How much of what it calls alike a frozen frame explains."
    share = f.numbers["one_frame"]
    if share >= 0.9:
        amount = "Nearly all"
    elif share >= BY_A_FRAME:
        amount = "Most"
    elif share >= 0.3:
        amount = "Some"
    else:
        amount = "Hardly any"
    beside = ""
    if f.numbers["one_frame_random"] is not None:
        beside = f" (random weights: {f.percent('one_frame_random')})"
    return (
        f"{amount} of what it calls alike, {f.percent('one_frame')}, it would call alike from one "
        f"frozen frame as well{beside}: by background, things and poses, which this cannot tell "
        "apart; the rest takes motion."
    )


def _on_sources_and_labels(f: Findings) -> Iterator[str]:
    n = f.numbers
    if n.get("siblings", 0) >= FEWEST:
        yield (
            f"The nearest other video is one of the same source for {f.percent('sibling_r1')} of "
            f"the {n['siblings']} that have one (random weights: "
            f"{f.percent('sibling_r1_random')}{_without_training(f, 'sibling_r1')})."
        )
    if f.compares_labels:
        trained = "" if f.foreign else "; labels were not used in training"
        yield (
            f"Among {n['labelled']} labelled videos, the nearest of another source has the same "
            f"label for {f.percent('label_r1')} (random weights: {f.percent('label_r1_random')}, "
            f"guessing: {f.percent('label_chance')}{_without_training(f, 'label_r1')}){trained}."
        )
        yield from _on_what_needs_no_training(f)
    elif n["labelled"] > 0:
        yield (
            f"Labels are not compared: {n['labelled']} of {n['videos']} videos have one, and it "
            f"takes {FEWEST}, with two sources in a class."
        )


NEEDS_NO_TRAINING = {
    "colours": "colours",
    "motion": "motion by hand",
    "colours_and_motion": "both together",
    "published": "a published encoder",
}  # part of a number's name -> what needs no training


def _without_training(
    f: Findings,
    number: str,  # 'label_r1' or 'sibling_r1'
) -> str:  # ', colours: 20 %, motion by hand: 30 %'; '' where it was not measured
    "What is reached without a training."
    reached = [
        f", {words}: {f.percent(f'{number}_{name}')}"
        for name, words in NEEDS_NO_TRAINING.items()
        if f"{number}_{name}" in f.numbers
    ]
    return "".join(reached)


def _on_what_needs_no_training(f: Findings) -> Iterator[str]:
    "Where something without a training finds at least as many labels."
    n = f.numbers
    others = {
        name: n[f"label_r1_{name}"]
        for name in NEEDS_NO_TRAINING
        if f"label_r1_{name}" in n and not (f.foreign and name == "published")
    }
    best = max(others, key=lambda name: others[name], default=None)
    if best is None or f.collapsed or n["label_r1"] > others[best]:
        return
    trained = "" if f.foreign else " of your own"
    yield (
        f"On these videos no training{trained} is needed for that: {NEEDS_NO_TRAINING[best]} "
        f"{'find' if best == 'colours' else 'finds'} as many or more."
    )


# -- what to do next


def _first_remedies(f: Findings) -> Iterator[str]:
    if f.copies:
        yield "Add videos that differ: comparison takes them."
    if f.still and f.view == "residual":
        yield "Differences of frames are empty where nothing moves: train with --view rgb."
    if f.still:
        yield (
            "For still pictures an encoder of images, made from millions of them, will serve you "
            "better."
        )
    if f.collapsed and f.foreign:
        yield (
            "Compare what its processor makes (size, mean, std) with what its authors write; if "
            "that is right, take another encoder."
        )
    if f.collapsed and not f.foreign and not f.still:
        yield (
            "Train again with the method and the numbers of `own-videos`: collapse comes from a "
            "loss without negatives, a learning rate that is too high (try --lr 0.0003), or a "
            "temperature far from 0.1."
        )


def _more_training(
    f: Findings,
    data: str,  # as commands name the videos
) -> Iterator[str]:
    if not f.usable:
        return
    if not f.finished:
        yield "Go on with --resume, with more --minutes."
    if not f.has_learned and not f.foreign:
        yield (
            "Give it more time (--minutes 60) or more videos (there were "
            f"{f.numbers['trained_on']} here); a few hundred are a beginning, thousands are better."
        )
        yield (
            f"Or take an encoder that others trained ({INSTALL}): vssl-nb explore {data} --encoder "
            f"{PUBLISHED}"
        )
    if f.learned == "a little":
        yield "More --minutes, and above all more videos, will take it further."


def _other_views(
    f: Findings,
    data: str,  # as commands name the videos
) -> Iterator[str]:
    if not (f.usable and f.goes_by_frames):
        return
    if f.foreign:
        yield (
            "If you search for what happens, and not for where: train a run of your own and "
            f"compare (vssl-nb pretrain own-videos --data {data} --view residual)."
        )
    else:
        yield (
            "If you search for what happens, and not for where: train a second run with --view "
            "residual and compare both, or use them together (vssl-nb cotrain coclr-laptop)."
        )


def _uses(
    f: Findings,
    run: str,  # as commands name the run
    data: str,  # as commands name the videos
    video: str,  # as commands name one of the videos
) -> Iterator[str]:
    if not f.usable:
        return
    search = f"Look at it: vssl-nb search {video} --data {data} --encoder {run} --out wall.html"
    if f.has_learned and f.view != "flow":  # a folder of videos has no flow
        yield search
    if f.foreign:
        yield search
    if not f.all_labelled:
        return
    tested = f.numbers["test_videos"] > 0
    if not f.foreign and "label_r1_published" not in f.numbers:
        yield (
            f"Compare it with an encoder that others trained ({INSTALL}): vssl-nb verdict "
            f"{PUBLISHED} --data {data} --out FOLDER"
        )
    if f.foreign and tested:
        yield f"Measure it: vssl-nb retrieve {run} --data {data}, vssl-nb probe {run} --data {data}"
    measure = f"Measure it: vssl-nb retrieve {run}, vssl-nb probe {run}"
    if f.has_learned and tested:
        yield measure
    if f.has_learned and not tested:
        yield (
            f"{measure} (they need a test part: vssl-nb manifest {data} --split 0.2, before "
            "training)"
        )


# -- a run is measured, and its verdict kept


def give_verdict(
    run,  # a run folder with an encoder, or the name of one of another library
    data=None,  # a manifest or its folder; None: the one it was trained on
    machine: Machine = Machine(),
    most: int = 128,  # videos to encode
    seconds: float = 120.0,  # after so many no further videos are encoded
    # folder for verdict.json, verdict.txt and a picture; None: the run folder, where there is one
    out=None,
    # compare labels with the published encoder, too, where that fits into a third of `seconds`
    published: bool = False,
) -> Verdict:
    "What a run has learned, kept as files. `ValueError`."
    began = time.monotonic()
    t = open_trained(run, data)
    folder = Path(out) if out else t.run
    # refuses flow that would take too long
    device = resolve(t.recipe, t.manifest, machine).device if t.run else None
    rows: list[int] = []
    features: dict[str, Tensor] = {}
    try:
        if device:
            rows, features = encode_videos(t, device, most, machine, seconds)
        else:
            rows, features = encode_foreign(t, most, machine, seconds)
        if published:
            features |= _published_beside(t, rows, features["moving"], seconds / 3)
        verdict = judge(
            measure_videos(t, rows, features),
            t.view,
            t.card.get("finished", True),
            *_names_in_commands(run, t, rows),
        )
    except (ValueError, RuntimeError, OSError) as e:  # the training is not lost
        verdict = _not_measured(e, run, t, out)
        rows = []
    if not folder:
        return verdict
    elapsed = round(time.monotonic() - began, 1)
    write_json(folder / "verdict.json", vars(verdict) | {"seconds": elapsed})
    write_whole(folder / "verdict.txt", lambda f: f.write(f"{verdict}\n".encode()))
    if rows:
        picture = _nearest_videos(t, rows, features)
        show.save_picture(picture, folder / "figures" / "nearest-videos.png")
    return verdict


def _published_beside(
    t: EvaluatedEncoder,
    rows: list[int],  # of the manifest
    moving: Tensor,  # (B,) share of pixels
    seconds: float,
) -> dict[str, Tensor]:  # `published`; empty where no labels are compared, or time is short
    labels = sum(t.manifest.label_id(row) >= 0 for row in rows)
    if labels < FEWEST:
        return {}
    name = published_name(float((moving < STILL_PIXELS).double().mean()))
    features = encode_pictures(t, load_hub(name), rows, seconds)
    return {} if features is None else {"published": features}


def _names_in_commands(run: Any, t: EvaluatedEncoder, rows: list[int]) -> list[str]:
    "How commands name the run, and, where there is a manifest, its folder and the first video."
    names = [run]
    if t.manifest.path.is_file():
        names += [t.manifest.root, t.manifest.rows[rows[0]].video]
    return [shlex.quote(str(name)) for name in names]


def _not_measured(e: Exception, run: Any, t: EvaluatedEncoder, out: Any) -> Verdict:
    "A verdict that says why there is none, and how to get one."
    # of a worker: the last line
    reason = [type(e).__name__, *str(e).strip().splitlines()][-1]
    again = ["vssl-nb", "verdict", str(run), "--data", str(t.manifest.path)]
    if out is not None:
        again += ["--out", str(out)]
    return Verdict(
        learned="not measured",
        collapsed=False,
        still=False,
        sentences=(f"Nothing is measured: {reason}",),
        advice=(f"The encoder is kept. Mend this, and run: {shlex.join(again)}",),
        numbers={},
    )


def _nearest_videos(
    t: EvaluatedEncoder,
    rows: list[int],  # of the manifest
    features: dict[str, Tensor],  # of `encode_videos`
) -> Any:  # a picture
    "A frame of six videos, and of the four that the encoder finds most like each."
    mean = features["plain"][:, 0].mean(1)
    queries = np.linspace(0, len(rows) - 1, min(6, len(rows))).round().astype(int)
    similarity = centred_similarity(mean, mean).fill_diagonal_(-torch.inf)
    nearest = similarity[queries].topk(min(4, len(rows) - 1)).indices.tolist()
    return show.strips(
        [features["frame"][[query, *others]] for query, others in zip(queries, nearest)],
        [t.manifest.rows[rows[query]].video for query in queries],
    )
