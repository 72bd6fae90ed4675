"""A recipe fitted to a folder, and the verdict: every number and every word from cases whose answer
is known.
"""

import math
import re
import shlex
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vssl_nb.app import cli
from vssl_nb.data import toy
from vssl_nb.data.manifest import Row, read, write
from vssl_nb.data.sampling import even_clips
from vssl_nb.data.video import encode
from vssl_nb.measure.fixed_clips import FixedClips
from vssl_nb.measure.health import UNCHANGED, Reordered
from vssl_nb.measure.protocols import Protocol
from vssl_nb.fields import RecipeError
from vssl_nb.methods.recipes import find, override
from vssl_nb.nets.backbones import create
from vssl_nb.app import label_free, own
from vssl_nb.app import verdict as verdicts
from vssl_nb.runs.experiment import resolve
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.training.loop import TrainError
from vssl_nb.training.machine import Machine, MachineError

QUIET = Machine(device="cpu", workers=0, progress=False)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return read(toy.make(tmp_path_factory.mktemp("own") / "toy", "tiny", workers=1, progress=False))


# a recipe for a folder


@pytest.mark.parametrize(
    "recipe, options, dtype",
    [
        ("own-videos", (), "bfloat16"),
        ("own-videos", ("--dtype", "float32"), "float32"),
        ("infonce-toy-rgb", (), "float32"),
    ],
)
def test_only_own_videos_chooses_its_precision(data, tmp_path, monkeypatch, recipe, options, dtype):
    made = []
    monkeypatch.setattr("vssl_nb.training.machine.fastest_dtype", lambda device: "bfloat16")

    def keep(*args, machine, **options):
        made.append(machine.dtype)

    monkeypatch.setattr(own, "learn_own_videos", keep)
    monkeypatch.setattr("vssl_nb.runs.pretraining.pretrain", keep)
    words = ["pretrain", recipe, "--data", str(data.path), "--out", str(tmp_path / "run"), *options]
    assert not cli.main(words)
    assert made == [dtype]


def test_own_videos_go_on_in_the_precision_that_they_began_with(data, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr("vssl_nb.training.machine.fastest_dtype", lambda device: "bfloat16")
    monkeypatch.setattr(
        own, "learn_own_videos", lambda *args, machine, **options: made.append(machine.dtype)
    )
    recipe = override(
        find("own-videos"), backbone="tiny", size=32, stride=1, batch=8, queue=0, epochs=1
    )
    pretrain(recipe, data.path, tmp_path / "run", machine=QUIET, max_steps=1)
    assert not cli.main(
        [
            "pretrain",
            "own-videos",
            "--data",
            str(data.path),
            "--out",
            str(tmp_path / "run"),
            "--resume",
        ]
    )
    assert made == ["float32"]


def films(folder, move, ground):
    "8 videos of a square that moves by so many pixels a frame, on one ground or on many."
    rng = np.random.default_rng(0)
    folder.mkdir()
    for i in range(8):
        frames = np.full((20, 48, 48, 3), rng.integers(40, 200, 3) if ground else 90, np.uint8)
        for t in range(20):
            frames[t, 8 + 2 * i : 20 + 2 * i, move * t : move * t + 12] = 250
        encode(folder / f"{i}.mp4", frames)
    rows = [
        Row(f"{i}.mp4", source=f"{i}", frames=20, fps=25.0, width=48, height=48) for i in range(8)
    ]
    return read(write(folder, rows))


def test_the_view_follows_from_what_moves_and_what_looks_alike(tmp_path):
    sets = {"places": (1, True), "tripod": (2, False), "stills": (0, True)}
    made = {name: films(tmp_path / name, *kind) for name, kind in sets.items()}
    facts = {name: own.video_facts(m, m.select("train")) for name, m in made.items()}
    assert [f.still for f in facts.values()] == [0, 0, 1]
    assert facts["tripod"].similarity > facts["places"].similarity + 0.2
    assert [(f.videos, f.frames, f.fps, f.side) for f in facts.values()] == [(8, 20, 25.0, 48)] * 3
    views = {}
    for name, f in (*facts.items(), ("one ground", replace(facts["tripod"], similarity=0.9))):
        choices = own.Choices(find("own-videos"))
        own.fit_view(choices, f)
        own.fit_clip(choices, f)
        views[name] = choices["view"]
        assert choices["stride"] * (choices["length"] - 1) + 1 <= 20 and choices["length"] == 16
    assert views == {
        "places": "rgb",
        "tripod": views["tripod"],
        "stills": "rgb",
        "one ground": "residual",
    }
    short = own.Choices(override(find("own-videos"), backbone="tiny"))
    own.fit_clip(short, replace(facts["places"], frames=5))
    assert (short["length"], short["stride"]) == (5, 1) and "a clip of 5 frames" in short.reasons[
        -1
    ]
    assert "filled up" not in short.reasons[-1]
    for backbone, least in (("tiny", 4), ("small", 8), ("s3d", 5)):
        short = own.Choices(override(find("own-videos"), backbone=backbone))
        own.fit_clip(short, replace(facts["places"], frames=3))
        assert (short["length"], short["stride"]) == (least, 1)
        assert (
            f"{backbone} takes no clip below {least}: shorter videos are filled up"
            in short.reasons[-1]
        )
        create(backbone).eval()(torch.zeros(1, 3, least, 32, 32))
        given = override(find("own-videos"), backbone=backbone, length=least - 1)
        with pytest.raises(
            RecipeError, match=f"clips of {least} frames or more; give --length {least}"
        ):
            own.fit_clip(own.Choices(given, {"length"}), facts["places"])
        own.fit_clip(own.Choices(override(given, length=least), {"length"}), facts["places"])


def test_a_folder_with_very_short_videos_is_trained_on(tmp_path):
    rows = list(films(tmp_path / "films", 1, True).rows)
    for i in range(2):
        encode(tmp_path / "films" / f"short {i}.mp4", np.full((3, 48, 48, 3), 60 * i, np.uint8))
        rows.append(replace(rows[0], video=f"short {i}.mp4", source=f"short {i}", frames=3))
    manifest = read(write(tmp_path / "films", rows))
    recipe = own.fit_recipe(override(find("own-videos"), size=32), manifest, QUIET, 0.01, {"size"})
    assert (recipe.backbone, recipe.sampling.length, recipe.sampling.stride) == ("small", 8, 1)
    short = resolve(recipe, read(write(tmp_path / "films", rows[-2:])))
    short.refuse_filling()  # the network takes no shorter clip
    for fields, fits in (
        ({"length": 9}, "length=8 fits"),
        ({"stride": 2}, "length=8 with stride=1 fits"),
    ):
        with pytest.raises(TrainError, match=fits):
            short.changed(**fields).refuse_filling()


@pytest.mark.parametrize("gpu", [False, True])
def test_a_queue_is_no_longer_than_half_of_the_videos(gpu):
    for n in (4, 5, 31, 34, 60, 127, 128, 150, 270, 1000, 240_000):
        c = own.Choices(find("own-videos"))
        own.fit_batch(c, n, gpu)
        K, B = c["queue"], c["batch"]
        assert 2 * K <= n and (K >= B or K == 0) and K % B == 0 and n // B * B > 0.75 * n, (n, K, B)
        assert c.recipe.method.queue == K and c.recipe.learning.batch == B
    assert (K, B) == (2048, 64 if gpu else 16)
    # how often is an own key among the negatives?
    rng, queue, own_key = np.random.default_rng(0), [], 0
    c = own.Choices(find("own-videos"))
    own.fit_batch(c, 270, gpu)
    for _ in range(40):
        for v in rng.permutation(270):
            own_key += v in queue
            queue = [*queue, v][-c["queue"] :]
    stated = float(c.reasons[-1].split("(now ")[1].split(" %")[0])
    assert abs(100 * own_key / (40 * 270) - stated) < 2 and stated > 5


def test_what_was_given_stays(data, tmp_path):
    given = override(
        find("own-videos"), size=32, batch=5, queue=512, view="residual", backbone="tiny"
    )
    made = own.fit_recipe(given, data, QUIET, 0.05, {"size", "batch", "queue", "view", "backbone"})
    assert (made.size, made.learning.batch, made.method.queue, made.view) == (
        32,
        5,
        512,
        "residual",
    )
    assert any("its own negative about" in r for r in made.reasons)
    assert not any(r.startswith(("size", "batch", "queue=512:", "view")) for r in made.reasons)
    assert made.learning.epochs == own.MOST_EPOCHS or any(
        re.search(
            r": \d+ steps? an epoch, \d+[.]\d\d s for "
            "each step [(]measured[)], and ",
            r,
        )
        for r in made.reasons
    ), made.reasons
    assert (
        1 <= made.learning.epochs <= own.MOST_EPOCHS and made.learning.warmup < made.learning.epochs
    )
    for minutes in (0, -1, math.nan, math.inf):
        with pytest.raises(RecipeError, match="must be above 0"):
            own.fit_recipe(given, data, QUIET, minutes)
    (tmp_path / "videos").symlink_to(data.root)
    few = read(
        write(
            tmp_path / "few.csv",
            [
                Row(
                    f"videos/{r.video}",
                    source=r.source,
                    frames=r.frames,
                    width=r.width,
                    height=r.height,
                )
                for r in data.rows[:3]
            ],
        )
    )
    with pytest.raises(RecipeError, match="3 readable training videos"):
        own.fit_recipe(given, few, QUIET)


def test_the_time_of_a_step_is_measured_whatever_the_epochs(data):
    short = override(find("infonce-toy-residual"), epochs=1, batch=16, backbone="tiny", queue=16)
    assert 0 < own.seconds_per_step(own.resolve(short, data, QUIET), 0.2) < 5


# a verdict never fails after a training: it says less


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A run after one step, and the rows of the 20 toy videos that it was trained on, without
    labels.
    """
    place = tmp_path_factory.mktemp("a run")
    (place / "videos").symlink_to(data.root)
    rows = [
        Row(f"videos/{r.video}", source=str(i), frames=r.frames, width=r.width, height=r.height)
        for i, r in enumerate(data.rows[:20])
    ]
    pretrain(
        override(find("infonce-toy-residual"), batch=8, epochs=1),
        write(place / "all.csv", rows),
        place / "run",
        machine=QUIET,
        max_steps=1,
    )
    return place, rows


def labelled(rows, n):
    return [replace(r, label=f"{i % 2}") if i < n else r for i, r in enumerate(rows)]


@pytest.mark.parametrize(
    "videos, labels, compared", [(17, 0, False), (20, 1, False), (20, 3, False), (20, 12, True)]
)
def test_a_verdict_of_few_labels_looks_at_all_videos(trained, videos, labels, compared):
    place, rows = trained
    data = write(place / f"{videos} {labels}.csv", labelled(rows, labels)[:videos])
    verdict = verdicts.give_verdict(place / "run", data, QUIET)
    assert (verdict.numbers["videos"], verdict.numbers["labelled"]) == (videos, labels)
    assert (
        (f"Among {labels} labelled videos" in str(verdict))
        == compared
        == ("label_r1" in verdict.numbers)
    )
    assert (f"Labels are not compared: {labels} of {videos} " in str(verdict)) == (0 < labels < 12)


def test_labels_are_compared_among_labelled_videos_first(trained):
    place, rows = trained
    data = write(place / "last ten.csv", labelled(rows[::-1], 10)[::-1])
    verdict = verdicts.give_verdict(place / "run", data, QUIET, most=12)
    assert verdict.numbers["videos"] == 12 and "Among 10 labelled videos" in str(verdict)


def test_unreadable_videos_are_left_out_of_a_verdict_one_by_one(trained):
    place, rows = trained
    gone = [replace(r, video=f"gone/{i}.mp4") for i, r in enumerate(rows[:1])]
    verdict = verdicts.give_verdict(
        place / "run", write(place / "one gone.csv", gone + rows[1:10]), QUIET
    )
    assert verdict.numbers["videos"] == 9 and verdict.learned != "not measured"


def test_a_verdict_that_cannot_be_measured_says_so_and_what_to_do(trained):
    place, rows = trained
    away = [replace(r, video=r.video.replace("videos", "away")) for r in rows]
    for some, reason in (
        (away, "is the disk still there?"),
        (rows[:3] + away[3:5], "3 of 5 training videos can be read"),
    ):
        verdict = verdicts.give_verdict(place / "run", write(place / "away.csv", some), QUIET)
        assert verdict.learned == "not measured" and "Nothing is measured: " in str(verdict)
        assert (
            reason in str(verdict) and (place / "run" / "verdict.txt").read_text() == f"{verdict}\n"
        )
    (place / "away").symlink_to(place / "videos")
    command = shlex.split(verdict.advice[0].split("vssl-nb ")[1])
    assert cli.main([*command, "--device", "cpu"]) == 0
    assert "Of 5 videos, cut, recoloured" in (place / "run" / "verdict.txt").read_text()


def test_the_error_of_a_worker_becomes_a_sentence(trained, monkeypatch):
    place, _ = trained

    def fails(*args):
        raise RuntimeError("Caught VideoError.\nOriginal Traceback\nVideoError: a.mp4: gone")

    monkeypatch.setattr(verdicts, "encode_videos", fails)
    verdict = verdicts.give_verdict(place / "run", place / "all.csv", QUIET)
    assert verdict.sentences == ("Nothing is measured: VideoError: a.mp4: gone",)
    with pytest.raises(MachineError):
        verdicts.give_verdict(place / "run", place / "all.csv", Machine("xpu 9"))


def test_own_videos_with_one_label_ends_with_a_verdict(trained, tmp_path, monkeypatch, capsys):
    place, rows = trained
    recipe = override(
        find("own-videos"), backbone="tiny", size=32, stride=1, batch=8, queue=0, epochs=1
    )
    monkeypatch.setattr(own, "fit_recipe", lambda *args: recipe)
    data = [write(place / f"own {n}.csv", labelled(rows, n)) for n in (1, 2)]
    verdict = own.learn_own_videos(recipe, data[0], tmp_path / "one", 0.1, machine=QUIET)
    assert verdict.numbers["videos"] == 20 and not (tmp_path / "one" / "health.csv").exists(), str(
        verdict
    )
    assert "one video alone has a label" in capsys.readouterr().err
    monkeypatch.setattr(own, "give_verdict", lambda *args, **options: None)
    own.learn_own_videos(recipe, data[1], tmp_path / "two", 0.1, machine=QUIET)  # as it was told
    assert (tmp_path / "two" / "health.csv").exists() and "label" not in capsys.readouterr().err


def test_health_of_one_labelled_video_is_left_out_of_any_training(trained, tmp_path, capsys):
    place, rows = trained
    data = write(place / "one of all.csv", labelled(rows, 1))
    recipe = override(find("infonce-toy-residual"), batch=8, epochs=1)
    pretrain(recipe, data, tmp_path / "run", machine=QUIET, health_every=1, max_steps=2)
    assert capsys.readouterr().err.count("one video alone has a label") == 1
    assert not (tmp_path / "run" / "health.csv").exists()


# measured without labels


def test_instance_recall_by_hand():
    q = torch.tensor([[1.0, 0], [0, 1], [-1, -1]])
    k = torch.tensor([[1.0, 0.2], [0.1, 1], [1.0, 0.1]])  # the third went where the first is
    assert label_free.instance_recall(q, k).tolist() == [0, 1, 0]
    assert label_free.instance_recall(q, q).tolist() == [1, 1, 1]
    # collapsed: all ties, all lost
    assert label_free.instance_recall(torch.ones(5, 2), torch.ones(5, 2)).sum() == 0


def test_colours_explain_similarities_of_colours_and_none_of_noise():
    g = torch.Generator().manual_seed(0)
    frames = torch.randint(0, 256, (40, 1, 1, 3), generator=g).expand(40, 8, 8, 3)
    frames = (frames + torch.randint(0, 60, (40, 8, 8, 3), generator=g)).clamp(0, 255).byte()
    bins = (frames.long() // 64 @ torch.tensor([16, 4, 1])).flatten(1)
    hist = torch.stack([torch.bincount(b, minlength=64) for b in bins]).double().sqrt()
    assert label_free.explained_by_colours(hist, frames) == pytest.approx(1)
    assert label_free.explained_by_colours(torch.randn(40, 8, generator=g), frames) < 0.05
    assert label_free.explained_by_colours(torch.ones(40, 8), frames) == 0
    assert label_free.explained_by_colours(hist, frames[:1].expand(40, 8, 8, 3)) == 0


class MeanFrame(nn.Module):
    def forward(self, x):
        return F.adaptive_avg_pool2d(x.mean(2), 8).flatten(1)


class Differences(nn.Module):
    def forward(self, x):
        return (x[:, :, 1:] - x[:, :, :-1]).abs().mean((2, 3, 4))


def test_encoders_of_which_the_need_of_motion_is_known(data):
    clip = Protocol(clips=2, length=16, stride=1, size=32, pad="first")
    fixed = FixedClips(data, data.select("train", 1), "rgb", clip, **UNCHANGED)

    def share(encoder):
        return label_free.frozen_share(
            *(fixed.features(Reordered(encoder, order))[0] for order in ("as-is", "static"))
        )

    assert share(MeanFrame()) > 0.9 and share(Differences()) == 0


def test_the_share_of_a_frozen_frame_falls_as_motion_counts_for_more():
    g = torch.Generator().manual_seed(0)
    place, motion = torch.randn(2, 60, 1, 8, generator=g).expand(2, 60, 2, 8)

    def share(a):
        moments = torch.cat([(1 - a) * place, a * motion], 2) + 0.1 * torch.randn(
            60, 2, 16, generator=g
        )
        return label_free.frozen_share(moments, torch.cat([(1 - a) * place, 0 * motion], 2))

    shares = [share(a) for a in (0.0, 0.3, 0.5, 0.7, 1.0)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.95 and shares[-1] == 0 and 0.2 < shares[2] < 0.8
    x = torch.randn(60, 2, 8, generator=g)
    # two moments of a video have nothing to do with one another
    assert label_free.frozen_share(x, x) is None
    assert label_free.frozen_share(torch.ones(60, 2, 8), torch.ones(60, 2, 8)) is None

    def noisy():
        return place + 0.3 * torch.randn(60, 2, 8, generator=g)

    assert label_free.frozen_share(noisy(), noisy()) > 0.9
    assert label_free.frozen_share(noisy(), torch.randn(60, 2, 8, generator=g)) < 0.1
    assert label_free.neighbour_agreement(place[:, 0], place[:, 0]) == 1
    assert label_free.neighbour_agreement(place[:, 0], -3 * place[:, 0]) == 1  # each among its own


# words

NUMBERS = {
    "videos": 60,
    "distinct": 60,
    "trained_on": 60,
    "test_videos": 10,
    "step": 900,
    "found_again": 0.8,
    "found_again_random": 0.5,
    "gain": 0.3,
    "gain_error": 0.05,
    "chance": 1 / 60,
    "mean_cosine": 0.1,
    "std": 0.5,
    "std_random": 0.3,
    "rankme": 30.0,
    "still_videos": 0.0,
    "by_colours": 0.1,
    "one_frame": 0.5,
    "one_frame_random": 0.9,
    "labelled": 0,
}

LABELS = dict(labelled=60, label_r1=0.5, label_r1_random=0.4, label_chance=0.1)


@pytest.mark.parametrize(
    "changed, words, learned",
    [
        ({}, "It learned. Of 60 videos", "yes"),
        # twice its error is not enough
        (dict(gain=0.1), "It may have learned something", "unclear"),
        (dict(gain=0.03, gain_error=0.005), "It learned a little.", "a little"),
        (dict(gain=0.03, gain_error=0.005), "will take it further", "a little"),
        (dict(gain=0.01), "It did not learn: it is no better than random weights", "no"),
        (
            dict(gain=0.01),
            "Give it more time (--minutes 60) or more videos (there were 60 here)",
            "no",
        ),
        (dict(gain=0.0, found_again_random=0.97), "the task is too easy for these videos", "no"),
        (dict(std=0.02), "IT HAS COLLAPSED", "no"),
        (dict(std=0.09), "Do not use this encoder", "no"),
        (dict(rankme=1.2), "collapse comes from a loss", "no"),
        (dict(still_videos=1.0), "In 100 % of the videos nothing moves", "yes"),
        (dict(still_videos=1.0), "an encoder of images", "yes"),
        (dict(still_videos=0.3), "In 30 % of the videos nothing moves.", "yes"),
        (dict(one_frame=0.95), "Nearly all of what it calls alike, 95 %", "yes"),
        (dict(one_frame=0.95), "That is usual for short trainings on plain frames", "yes"),
        (dict(one_frame=0.95), "train a second run with --view residual", "yes"),
        (dict(one_frame=0.75), "Most of what it calls alike", "yes"),
        (
            dict(one_frame=0.5),
            "Some of what it calls alike, 50 %, it would call alike from one frozen frame as well "
            "(random weights: 90 %)",
            "yes",
        ),
        (dict(one_frame=0.1), "Hardly any of what it calls alike", "yes"),
        (dict(one_frame=None), "The colours alone explain 10 % of its similarities.", "yes"),
        (
            dict(siblings=12, sibling_r1=0.9, sibling_r1_random=0.5),
            "one of the same source for 90 % of the 12",
            "yes",
        ),
        (
            dict(labelled=3),
            "Labels are not compared: 3 of 60 videos have one, and it takes 10",
            "yes",
        ),
        (
            LABELS,
            "Among 60 labelled videos, the nearest of another source has the same label for 50 %",
            "yes",
        ),
        (LABELS, "vssl-nb retrieve RUN, vssl-nb probe RUN", "yes"),
        (LABELS | {"test_videos": 0}, "they need a test part", "yes"),
    ],
)
def test_words(changed, words, learned):
    verdict = verdicts.judge(NUMBERS | changed, "rgb")
    assert words in str(verdict) and verdict.learned == learned, str(verdict)
    assert (
        verdict.collapsed
        == ("COLLAPSED" in str(verdict))
        == ("has not collapsed" not in str(verdict))
    )
    assert verdict.still == (changed.get("still_videos") == 1)


UNTRAINED = {"label_r1_colours": 0.2, "label_r1_motion": 0.3, "label_r1_colours_and_motion": 0.45}


def test_labels_stand_beside_what_needs_no_training():
    numbers = NUMBERS | LABELS | UNTRAINED | {"by_motion": 0.07}
    above = str(verdicts.judge(numbers, "rgb"))
    assert "guessing: 10 %, colours: 20 %, motion by hand: 30 %, both together: 45 %)" in above
    assert "explain 10 % of its similarities, motion by hand 7 %." in above
    assert "as many or more" not in above
    below = str(verdicts.judge(numbers | {"label_r1": 0.3}, "rgb"))
    assert "no training of your own is needed for that: both together finds as many" in below
    published = str(verdicts.judge(numbers | {"label_r1_published": 0.6}, "rgb"))
    assert "a published encoder: 60 %" in published and "a published encoder finds" in published
    assert "verdict published:efficientnet-lite0@spread" in above
    assert "verdict published:efficientnet-lite0@spread" not in published


def test_motion_explains_similarities_of_motion_and_none_of_noise():
    g = torch.Generator().manual_seed(0)
    motion = torch.randn(40, 8, generator=g)
    assert label_free.explained_by_motion(3 * motion, motion) == pytest.approx(1)
    assert label_free.explained_by_motion(torch.randn(40, 8, generator=g), motion) < 0.05
    assert label_free.explained_by_motion(torch.ones(40, 8), motion) == 0


def test_colours_of_clips_are_shares_of_pixels():
    clips = torch.zeros(2, 1, 2, 2, 2, 3, dtype=torch.uint8)
    clips[0, :, :, 0] = torch.tensor([255, 0, 0], dtype=torch.uint8)  # half of it is red
    colours = label_free.colours_of_clips(clips)
    assert colours[0, 7 * 64] == colours[0, 0] == pytest.approx(0.5**0.5)
    assert colours[1, 0] == 1 and torch.allclose(colours.norm(dim=1), torch.ones(2))


def test_a_verdict_measures_what_needs_no_training(trained):
    "On videos with two labels: what is kept is what the same features give alone."
    place, rows = trained
    data = write(place / "two labels.csv", labelled(rows, 20))
    numbers = verdicts.give_verdict(place / "run", data, QUIET).numbers
    names = ("colours", "motion", "colours_and_motion")
    assert all(0 <= numbers[f"label_r1_{name}"] <= 1 for name in names)
    assert 0 <= numbers["by_motion"] <= 1 and "label_r1_published" not in numbers


class Brightness:
    "An encoder of pictures: how bright each eighth of the picture is, its spread over the frames."

    def prepare(self, frames):  # (F, H, W, 3) uint8
        return frames.permute(0, 3, 1, 2).float() / 255

    def __call__(self, x):  # (1, 3, F, H, W)
        return F.adaptive_avg_pool2d(x.mean(1), (2, 4)).flatten(2).std(1)


def test_the_verdict_of_own_videos_compares_with_a_published_encoder(trained, monkeypatch):
    place, rows = trained
    asked = []
    monkeypatch.setattr(verdicts, "load_hub", lambda name: asked.append(name) or Brightness())
    data = write(place / "published.csv", labelled(rows, 20))
    verdict = verdicts.give_verdict(place / "run", data, QUIET, published=True)
    assert asked == ["published:efficientnet-lite0@spread"]  # the toy moves
    assert 0 <= verdict.numbers["label_r1_published"] <= 1
    assert "a published encoder: " in str(verdict)

    # without labels nothing is compared, and without time neither
    unlabelled = write(place / "none.csv", rows)
    numbers = verdicts.give_verdict(place / "run", unlabelled, QUIET, published=True).numbers
    assert "label_r1_published" not in numbers and len(asked) == 1
    opened = verdicts.open_trained(place / "run", data)
    assert label_free.encode_pictures(opened, Brightness(), range(20), 0.0) is None
    encoded = label_free.encode_pictures(opened, Brightness(), range(20), 60.0)
    frames = opened.manifest.decode(3, even_clips(rows[3].frames, clips=8, length=1)[:, 0].tolist())
    grey = frames.double().mean(-1).numpy() / 255
    height, width = grey.shape[1:]
    cells = grey.reshape(8, 2, height // 2, 4, width // 4).mean((2, 4)).reshape(8, 8)
    assert encoded[3].numpy() == pytest.approx(cells.std(0, ddof=1), abs=1e-5)


def test_copies_are_no_collapse(trained):
    """The same picture has the same feature: nothing can be told, and nothing is wrong with the
    learning rate.
    """
    copied = verdicts.judge(NUMBERS | dict(distinct=2, std=0.001, rankme=1.0, gain=-0.1), "rgb")
    assert not copied.collapsed and copied.learned == "unclear"
    assert "of 60 videos only 2 differ, and the others are copies" in str(copied)
    assert not {"--lr", "COLLAPSED", "has not collapsed", "--minutes"} & {
        *re.findall(r"--lr|COLLAPSED|has not collapsed|--minutes", str(copied))
    }
    assert verdicts.judge(NUMBERS | dict(distinct=31, std=0.001), "rgb").collapsed
    place, rows = trained
    one = (place / rows[0].video).read_bytes()
    for i in range(8):
        (place / f"copy {i}.mp4").write_bytes(one)
    table = write(place / "copies.csv", [replace(rows[0], video=f"copy {i}.mp4") for i in range(8)])
    verdict = verdicts.give_verdict(place / "run", table, QUIET)
    assert (verdict.numbers["videos"], verdict.numbers["distinct"], verdict.learned) == (
        8,
        1,
        "unclear",
    )


def test_words_that_are_left_out():
    assert "frozen" not in str(verdicts.judge(NUMBERS | {"one_frame": None}, "rgb"))
    assert "same source" not in str(verdicts.judge(NUMBERS | {"siblings": 9}, "rgb"))
    assert "abel" not in str(verdicts.judge(NUMBERS, "rgb"))  # nobody gave any
    # needs all labels
    assert "probe RUN" not in str(verdicts.judge(NUMBERS | LABELS | {"labelled": 59}, "rgb"))
    residual = verdicts.judge(NUMBERS | {"one_frame": 0.0}, "residual")
    assert "a frozen frame has none" in str(residual) and "--view residual" not in str(residual)
    assert "--view rgb" in str(verdicts.judge(NUMBERS | {"still_videos": 0.9}, "residual"))
    assert "--resume" not in str(verdicts.judge(NUMBERS, "rgb"))
    # a folder of videos has no flow
    assert "vssl-nb search" not in str(verdicts.judge(NUMBERS, "flow"))
    unfinished = str(verdicts.judge(NUMBERS, "rgb", finished=False))
    assert (
        "It is not finished: this is step 900." in unfinished
        and "Go on with --resume" in unfinished
    )
