"""The evaluation protocols: what they look at, what they never look at, and the same numbers in any
way.
"""

import importlib
import signal
import sys
from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.neighbors import NearestNeighbors

import warm
from vssl_nb.data import augmentation as augment, manifest, toy
from vssl_nb.nets import backbones
from vssl_nb.measure import features, gaussian, retrieval
from vssl_nb.distributed import rank, run_distributed
from vssl_nb.measure.features import FeatureStore, extract, feature_key, restrict
from vssl_nb.training.machine import Machine
from vssl_nb.data.manifest import Manifest, Row
from vssl_nb.data.views import frame_residual
from vssl_nb.measure.protocols import PROTOCOLS, Protocol, counted, protocol
from vssl_nb.measure.windows import (
    clip_frames,
    colour_change,
    crop_boxes,
    refuse_repeated_clips,
)
from vssl_nb.measure.retrieval import centre_and_normalise
from vssl_nb.data.video import crop_resize, decode, encode

ROOT = Path(__file__).resolve().parent.parent
SMALL = {"length": 8, "size": 32}
QUIET = Machine(device="cpu", progress=False)
torch.set_num_threads(1)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return manifest.read(toy.make(tmp_path_factory.mktemp("toy") / "toy", "tiny", progress=False))


@pytest.fixture(scope="module")
def few(data):
    "Three of the eight classes."
    return Manifest(
        data.path,
        [
            replace(r, status="ok" if r.label in data.labels[:3] else "not for this test")
            for r in data.rows
        ],
        "few",
    )


@pytest.fixture(scope="module")
def encoder():
    return backbones.create("tiny", seed=0)


def look(encoder, data, part="test", p=protocol(clips=3, **SMALL), workers=0, **how):
    machine = replace(QUIET, workers=workers)
    return extract(encoder, data, part, view="residual", protocol=p, machine=machine, **how)


def made_up(n, **columns):
    "A manifest of which only the list exists."
    return Manifest(
        Path("made-up.csv"),
        [Row(video=f"{i}.mp4", label="a", split1="test", **columns) for i in range(n)],
        "none",
    )


# what a protocol looks at


def released_windows(frames, length, stride):
    "The released sampler (b7), as a loop."
    starts, start = [], 0
    while start <= frames - length * stride:
        starts.append(start)
        start += length * stride // 2 - 1
    return starts


def test_the_windows_of_187_frames_are_the_eleven_of_the_released_code():
    official = protocol("coclr_official")
    starts = clip_frames(official, 187)[:, 0].tolist()
    assert len(starts) == 11 and starts == list(range(0, 151, 15)) == released_windows(187, 32, 1)
    for frames in range(33, 300, 7):
        assert clip_frames(official, frames)[:, 0].tolist() == released_windows(frames, 32, 1)
    # the tail is not covered
    assert clip_frames(official, 187)[-1].tolist() == list(range(150, 182))


def test_iic_looks_around_ten_even_centres_of_all_frames_but_the_last():
    iic = protocol("iic_official")
    for frames in (29, 187, 1776):
        length = frames - 1  # datasets/ucf101.py:118, 167
        released = [int(i - 16 / 2) for i in np.linspace(16 / 2, length - 16 / 2, 10)]
        assert clip_frames(iic, frames).tolist() == [list(range(s, s + 16)) for s in released]
    # ours rounds
    assert (clip_frames(iic, 190)[:, 0] != clip_frames(protocol("rspnet"), 190)[:, 0]).any()


def test_iic_drops_what_fills_no_batch_of_eight():
    for n, kept in ((3783, 3776), (9537, 9536), (16, 16)):  # split 1 of UCF101 (b11)
        rows, left = counted(made_up(n, frames=50), protocol=protocol("iic_official"))
        assert (rows, sorted(left)) == (list(range(kept)), list(range(kept, n)))
    with pytest.raises(ValueError, match="no video is left"):
        counted(made_up(7, frames=50), protocol=protocol("iic_official"))


def test_coclr_drops_what_is_not_longer_than_half_a_clip():
    frames = [16, 17, 18, 40]
    listed = Manifest(
        Path("made-up.csv"),
        [Row(video=f"{n}.mp4", split1="test", frames=n) for n in frames],
        "none",
    )
    used = [frames[r] for r in counted(listed, protocol=protocol("coclr_official"))[0]]
    assert used == [n for n in frames if not n - 32 // 2 - 1 <= 0]
    assert len(counted(listed)[0]) == 4


def test_coclr_counts_a_picture_less_in_a_view_of_flow():
    "dataset/lmdb_dataset.py: the length of flow is that of its pictures, which are one fewer."
    official = protocol("coclr_official")
    for frames in (33, 34, 63, 187, 272):
        starts = clip_frames(official, frames, flow=True)[:, 0].tolist()
        assert starts == (released_windows(frames - 1, 32, 1) or [0]), frames
    drawn = {int(clip_frames(official, 40, row, "gallery", flow=True)[0, 0]) for row in range(300)}
    assert drawn == set(range(40 - 1 - 32))
    short = Manifest(
        Path("made-up.csv"),
        [Row(video=f"{n}.mp4", split1="test", frames=n) for n in (17, 18, 19)],
        "none",
    )
    assert [counted(short, protocol=official, flow=flow)[0] for flow in (False, True)] == [
        [1, 2],
        [2],
    ]


def test_views_of_flow_count_the_pictures_of_flow(data, monkeypatch):
    "By `extract` as by the clips themselves; a view of frames keeps its last one."
    m = Manifest(
        data.path,
        [
            replace(r, flow="flow.mp4", frames=n, split1="test")
            for r, n in zip(data.rows, (17, 18, 47))
        ],
        "made up",
    )
    official = protocol("coclr_official")
    last = {
        load: features.ProtocolClips(m, [2], official, load=(load,)).numbers[2].max()
        for load in ("clips", "flow", "pair")
    }
    assert last == {"clips": 46, "flow": 31, "pair": 31}  # 47 frames: two windows, or one
    part = "all"
    for view, rows in (("rgb", [1, 2]), ("flow", [2])):
        kept = features.Features(
            torch.ones(3, 1),
            torch.zeros(3).long(),
            torch.arange(3),
            torch.arange(3),
            official,
            {"view": view, "manifest": m.sha256},
        )
        assert restrict(kept, m, part).row.tolist() == rows
    queries = []  # of a Gaussian head, too

    def encoded(encoder, head, m, rows, *more, **options):
        queries.append(rows)
        raise LookupError

    monkeypatch.setattr(gaussian, "video_gaussians", encoded)
    more = Manifest(m.path, [*m.rows, replace(m.rows[2], split1="train")], "more")
    for view in ("rgb", "flow"):
        with pytest.raises(LookupError):
            gaussian.gaussian_pairs(None, None, more, (1,), view, official)
    assert queries == [[1, 2], [2]]


def test_the_random_clip_of_the_gallery_never_begins_at_the_last_start():
    official = protocol("coclr_official")
    clips = [clip_frames(official, 40, row, "gallery") for row in range(500)]
    assert {c.shape for c in clips} == {(1, 32)} and {int(c[0, 0]) for c in clips} == set(range(8))
    assert any(
        (clip_frames(replace(official, seed=1), 40, row, "gallery") != clips[row]).any()
        for row in range(9)
    )
    assert (clip_frames(official, 40, 0, "query") == clip_frames(official, 40, 7, "query")).all()


def test_every_protocol_says_every_thing_it_does():
    "Two protocols that differ in a field do not print alike."
    other = dict(
        clips=7,
        windows="sliding",
        length=9,
        stride=3,
        size=40,
        crop=0.5,
        pad="loop",
        clip_norm=True,
        centre="own",
        gallery="random",
        jitter=0.5,
        feature="maps",
        short="drop",
        batch_of=8,
        dtype="bfloat16",
        crops="three",
        average="logits",
        pictures="less",
    )
    silent = {f.name for f in fields(Protocol)} - set(other) - {"name", "metric", "seed"}
    assert not silent, silent
    for name, value in other.items():
        assert str(replace(protocol(), **{name: value})) != str(protocol()), name
    assert str(protocol("coclr_official", seed=1)) != str(protocol("coclr_official"))
    assert list(PROTOCOLS) == [
        "clean",
        "coclr_official",
        "iic_official",
        "rspnet",
        "moquad",
        "provico",
    ]
    for name in PROTOCOLS:
        assert Protocol(**asdict(PROTOCOLS[name])) == PROTOCOLS[name]
        assert PROTOCOLS[name].name == name


def test_a_protocol_is_printed_in_words():
    one = str(protocol(clips=1, stride=2, crop=224, pad="loop", clip_norm=True, centre="own"))
    for words in (
        "one per video, from its middle",
        "one in 2",
        "starting again",
        "square of 224 px",
        "brought to length 1",
        "its one clip",
        "each lose their own mean",
    ):
        assert words in one, words
    odd = str(protocol("coclr_official", seed=3)) + str(protocol("iic_official"))
    for words in (
        "not treated alike",
        "in the gallery, begun anywhere",
        "probability 0.3 (drawn from seed 3",
        "square of 93.33 %",
        "square of 87.5 %",
        "left out",
        "maxima over 2 x 2",
        "whole batches of 8",
    ):
        assert words in odd, words
    slides = str(protocol(windows="sliding"))
    assert "10 per video" not in slides and "half a clip later" in slides
    half = protocol("rspnet", dtype="bfloat16")
    assert "precision bfloat16" in str(half) and "precision" not in str(protocol("rspnet"))
    assert (half.name, protocol(half, dtype="float32")) == ("rspnet, bfloat16", protocol("rspnet"))
    ten = str(protocol(crops="ten", average="softmax"))
    assert (
        "also mirrored, of 93.33 %" in ten
        and "probabilities of its clips" in ten
        and "metric" not in ten
    )


@pytest.mark.parametrize(
    "fields,words",
    [
        ({"windows": "all"}, "'even' or 'sliding'"),
        ({"centre": "test"}, "'gallery' or"),
        ({"pad": "zero"}, "pad must be"),
        ({"crops": "six"}, "crops must be"),
        ({"average": "max"}, "average must be"),
        ({"gallery": "one"}, "'alike' or 'random'"),
        ({"clips": 0}, "clips must be"),
        ({"crop": 0}, "crop must be"),
        ({"crop": 1.5}, "crop must be"),
        ({"length": 2.5}, "length must be"),
        ({"size": None}, "size must be"),
        ({"jitter": 2}, "jitter must be"),
        ({"jitter": True}, "jitter must be"),
        ({"jitter": float("nan")}, "jitter must be"),
        ({"seed": -1}, "seed must be"),
        ({"batch_of": 0}, "batch_of must be"),
        ({"short": "no"}, "short must be"),
        ({"feature": "conv5"}, "feature must be"),
        ({"dtype": "half"}, "dtype must be 'float32' or 'bfloat16'"),
        ({"stide": 2}, "did you mean 'stride'"),
    ],
)
def test_a_field_without_a_meaning_is_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        protocol(**fields)


@pytest.mark.parametrize("height,width", [(239, 323), (243, 331), (240, 320)])
def test_squares_are_those_of_the_released_code(height, width):
    """Odd offsets are rounded (C augmentation.py:56, 75-88); ten crops mirror the frame before they
    cut it.
    """
    whole = np.arange(height * width).reshape(height, width)
    y, x = int(round((height - 224) / 2)), int(round((width - 224) / 2))
    corners = [(y, x), (0, 0), (0, width - 224), (height - 224, 0), (height - 224, width - 224)]
    wanted = [
        frame[top : top + 224, left : left + 224]
        for frame in (whole, whole[:, ::-1])
        for top, left in corners
    ]
    for crops, n in (("centre", 1), ("five", 5), ("ten", 10)):
        boxes, flips = crop_boxes(protocol(crops=crops, crop=224), height, width)
        assert len(boxes) == n
        for (top, left, h, w), flip, want in zip(boxes.tolist(), flips.tolist(), wanted):
            cut = whole[top : top + h, left : left + w]
            assert (want == (cut[:, ::-1] if flip else cut)).all()
    side = min(height, width)
    drawn = augment.centre(1, 4, height, width, size=128)["box"].tolist()
    assert drawn == [[int(round((height - side) / 2)), int(round((width - side) / 2)), side, side]]


def test_clips_that_could_only_repeat_are_refused():
    "More than the longest video has, and more than usual: short videos among others may repeat."
    rows = [Row(f"{n}.mp4", frames=n) for n in (9, 40, 9)] + [Row("x.mp4", frames=99, status="x")]
    for p, usual, flow, most in (
        (protocol(clips=26, length=16), 10, False, 25),
        (protocol(clips=20, length=16, stride=2), 10, False, 10),
        (protocol(clips=12, length=39, windows="linspace"), 10, False, 10),
        (protocol(clips=25, length=16, pictures="flow"), 10, True, 24),
        (protocol(clips=2, length=99), 1, False, 1),
        (protocol(clips=41, length=8, windows="sparse"), 10, False, 40),
    ):
        with pytest.raises(ValueError, match=f"clips={p.clips} .*40.mp4.*clips={most} fits"):
            refuse_repeated_clips(p, rows, usual, flow)
        refuse_repeated_clips(replace(p, clips=most), rows, usual, flow)
        for windows in ("sliding", "middle"):
            refuse_repeated_clips(replace(p, windows=windows), rows, usual, flow)
        refuse_repeated_clips(p, rows[3:], usual, flow)  # what cannot be read is told elsewhere

    def lengthening():
        yield from (Row("a.mp4", frames=9), Row("b.mp4", frames=90))
        raise AssertionError("one video with so many is enough")

    refuse_repeated_clips(protocol(clips=75, length=16), lengthening())


def test_sparse_clips_share_the_frames_of_a_video():
    "Temporal Segment Networks: each clip has its part, and its frames are spread over it."
    one, three = (protocol(clips=n, length=4, windows="sparse") for n in (1, 3))
    assert clip_frames(one, 100).tolist() == [[0, 33, 66, 99]]
    assert clip_frames(three, 12).tolist() == np.arange(12).reshape(3, 4).tolist()
    assert clip_frames(one, 2).tolist() == [[0, 0, 1, 1]]
    assert "4 per clip, spread evenly" in str(one) and "as long as the video" in str(one)
    assert "3 per video, each an equal share of the video" in str(three)


def test_windows_and_colours_are_drawn_from_seed_row_and_clip():
    iic, official = protocol("iic_official"), protocol("coclr_official")
    # shorter than a clip: ten times the same
    assert clip_frames(iic, 9)[:, 0].tolist() == [0] * 10
    assert (
        clip_frames(protocol(windows="middle"), 187) == clip_frames(protocol(clips=1), 187)
    ).all()

    def brightness(row, square=2):
        return colour_change(official, row, square, 9, 9)["brightness"].item()

    assert abs(np.mean([brightness(row) != 1 for row in range(1000)]) - 0.3) < 0.04
    assert (
        brightness(7) == brightness(7)
        and len({brightness(r, c) for r in range(9) for c in range(9)}) > 9
    )


def test_official_features_equal_a_slow_reference(data, encoder):
    "One video and one clip at a time: frames, box, colours, length 1, mean."
    p = protocol("coclr_official", **SMALL, jitter=1.0)
    for part, role in (("test", "query"), ("train", "gallery")):
        found = look(encoder, data, part, p)
        for i in (0, 5):
            row, total = int(found.row[i]), 0
            numbers = clip_frames(p, data.rows[row].frames, row, role)
            assert (len(numbers) == 1) == (role == "gallery")
            for where in numbers:
                side = round(32 * 224 / 240)
                x = crop_resize(
                    decode(data.file(row), where.tolist()),
                    ((32 - side) // 2, (32 - side) // 2, side, side),
                    (32, 32),
                )
                # one draw for all windows: ColorJitter(consistent=True) of the whole list
                drawn = augment.draw(
                    np.random.default_rng((0, row, 1, 0)),
                    1,
                    8,
                    32,
                    32,
                    size=32,
                    flip=0.0,
                    jitter=1.0,
                    brightness=0.2,
                    contrast=0.2,
                    saturation=0.2,
                    hue=0.1,
                    grey=0.0,
                    blur=0.0,
                )
                colours = ("brightness", "contrast", "saturation", "hue", "order")
                drawn = {k: drawn[k][:, None] for k in colours}
                with torch.no_grad():
                    y = encoder.eval()(
                        frame_residual(augment.apply(x[None, None], drawn)[:, 0]) / 0.05
                    )[0]
                total = total + F.normalize(y.double(), dim=0)
            torch.testing.assert_close(
                found.x[i], (total / len(numbers)).float(), rtol=1e-5, atol=1e-6
            )


def test_the_colours_of_a_video_change_alike_in_all_windows_of_a_square(data):
    "Ten crops are ten passes over the video there, each with a draw of its own."
    p = protocol(clips=3, crops="ten", jitter=1.0, **SMALL)
    brightness = features.ProtocolClips(data, [0], p)[0]["augment"]["brightness"].view(3, 10)
    assert (brightness == brightness[0]).all() and len(set(brightness[0].tolist())) == 10


# the same number, however it is computed


@pytest.mark.parametrize("name", ["clean", "coclr_official", "iic_official"])
def test_workers_and_neighbours_change_no_digit(few, encoder, name):
    p = (
        protocol(name, **SMALL, batch_of=4)
        if name == "coclr_official"
        else protocol(name, clips=3, batch_of=4, **SMALL)
    )
    once = {part: look(encoder, few, part, p) for part in ("test", "train")}
    for how in ({"batch": 500}, {"workers": 1}, {"workers": 2, "batch": 64}):
        again = {part: look(encoder, few, part, p, **how) for part in once}
        for part in once:
            assert torch.equal(once[part].x, again[part].x), how
            assert once[part].key == again[part].key, how
    # other neighbours, in other passes, another place in them
    rows = once["train"].row.tolist()
    for some in (rows[::-1], rows[3:], rows[1::2]):
        for row, x in features.extract_clips(
            encoder, few, some, "residual", p, "gallery", machine=QUIET
        ):
            mean = features.mean_of_clips(x, p.clip_norm)
            assert torch.equal(mean, once["train"].x[rows.index(row)])


def test_the_number_that_goes_together_changes_last_bits_only(few, encoder):
    p, once = protocol(clips=3, **SMALL), look(encoder, few)
    calls = []
    hook = encoder.register_forward_pre_hook(lambda net, x: calls.append(len(x[0])))
    for batch in (1, 5, 7, 16):
        calls.clear()
        found = look(encoder, few, p=p, batch=batch)
        # always as many
        assert set(calls) == {batch} and len(calls) == -(-3 * len(found) // batch)
        torch.testing.assert_close(found.x, once.x, rtol=1e-5, atol=1e-6)
        assert found.key != once.key
        assert torch.equal(found.x, look(encoder, few, p=p, batch=batch, workers=2).x)
    hook.remove()


@pytest.mark.parametrize("name", ["small", "s3d", "r3d18_iic", "r2plus1d_iic", "r3d18_slow"])
def test_whoever_is_in_the_pass_moves_no_bit(name):
    "The promise of page 22, for the networks of the experiments: neighbours, place and layout."
    net, rng = backbones.create(name, seed=0).eval(), torch.Generator().manual_seed(0)
    x = torch.rand(6, 3, 16, 64, 64, generator=rng)
    plain = [p.stride() for p in net.parameters()]
    with features.frozen(net, torch.device("cpu")):
        for dtype in ("float32", "bfloat16"):
            see = protocol(dtype=dtype)

            def passed(order):
                return features._encode(net, x[order], "rgb", see)

            a, b, c = passed([0, 1, 2]), passed([2, 4, 0]), passed([5, 0, 0])
            assert (
                torch.equal(a[0], b[2]) and torch.equal(a[2], b[0]) and torch.equal(c[1], a[0])
            ), dtype
            assert torch.equal(c[1], c[2])
    assert [p.stride() for p in net.parameters()] == plain


def test_a_broken_video_does_not_move_its_neighbours(few, encoder, tmp_path):
    """Whether its first or a later part cannot be read; the places of all others in the passes
    change.
    """
    rows = few.select("test")
    whole = look(encoder, few)
    for broken in (rows[0], rows[2], rows[-1]):
        m = Manifest(
            few.path,
            [replace(r, video="none.mp4") if i == broken else r for i, r in enumerate(few.rows)],
            "broken",
        )
        for batch in (64, 5):
            good, found = look(encoder, few, batch=batch), look(encoder, m, batch=batch)
            assert list(found.dropped) == [broken] and found.row.tolist() == [
                r for r in rows if r != broken
            ]
            assert torch.equal(found.x, good.x[good.row != broken])
    all_broken = Manifest(few.path, [replace(r, video="none.mp4") for r in few.rows], "all broken")
    with pytest.raises(ValueError, match="not one of its"):
        look(encoder, all_broken)
    assert len(whole) == len(rows)


def test_a_later_part_that_breaks_takes_the_video_along(tmp_path, encoder, monkeypatch):
    x = torch.randint(
        0, 255, (40, 32, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    for n in range(3):
        encode(tmp_path / f"{n}.mp4", x)
    m = Manifest(
        tmp_path / "manifest.csv",
        [
            Row(
                f"{n}.mp4",
                "a",
                f"a/{n}",
                "test",
                frames=40 if n != 1 else 60,
                fps=25.0,
                width=32,
                height=32,
            )
            for n in range(3)
        ],
        "none",
    )
    monkeypatch.setattr(features, "CLIPS_READ", 5)
    p = protocol(windows="sliding", **SMALL)
    found = look(encoder, m, p=p)
    assert (
        list(found.dropped) == [1]
        and found.row.tolist() == [0, 2]
        and torch.equal(found.x[0], found.x[1])
    )


def test_a_long_video_is_a_video_like_others(tmp_path, encoder, monkeypatch):
    "More windows than are read, or go through the encoder, at a time."
    x = torch.randint(
        0, 255, (60, 32, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    encode(tmp_path / "long.mp4", x)
    m = Manifest(
        tmp_path / "manifest.csv",
        [Row("long.mp4", "a", "a/1", "test", frames=60, fps=25.0, width=32, height=32)],
        "none",
    )
    p = protocol(windows="sliding", **SMALL)
    clips = clip_frames(p, 60)
    assert len(clips) == 18
    monkeypatch.setattr(features, "CLIPS_READ", 7)  # three parts

    def features_of(c):
        return encoder.eval()(frame_residual(clip_of(c)[None] / 255) / 0.05)[0].double()

    def clip_of(c):
        return decode(m.file(0), c.tolist()).permute(3, 0, 1, 2)

    with torch.no_grad():
        slow = torch.stack([features_of(c) for c in clips]).mean(0)
    for batch in (1, 7, 100):
        torch.testing.assert_close(
            look(encoder, m, p=p, batch=batch).x[0], slow.float(), rtol=1e-5, atol=1e-6
        )
    assert torch.equal(
        look(encoder, m, p=p, batch=100).x, look(encoder, m, p=p, batch=100, workers=1).x
    )


def test_splits_equal_direct_extraction(few, encoder):
    official = protocol("coclr_official", **SMALL)

    def direct(split, p):
        return retrieval.retrieval_recall(
            *(
                extract(encoder, few, part, split, "residual", p, machine=QUIET)
                for part in ("test", "train")
            ),
            (1, 5),
        )

    pairs = retrieval.query_and_gallery(encoder, few, (1, 3), "residual", official, machine=QUIET)
    for s, pair in pairs.items():
        assert retrieval.retrieval_recall(*pair, (1, 5)) == direct(s, official)
    assert set(pairs) == {1, 3}


def test_neighbours_and_recall_agree_with_scikit_learn_and_a_slow_loop():
    rng = torch.Generator().manual_seed(1)
    q, g = torch.randn(60, 16, generator=rng), torch.randn(333, 16, generator=rng)
    yq, yg = torch.randint(0, 30, (60,), generator=rng), torch.randint(0, 30, (333,), generator=rng)
    theirs = (
        NearestNeighbors(n_neighbors=50, metric="cosine").fit(g.numpy()).kneighbors(q.numpy())[1]
    )
    for chunk in (1, 13, 64, 2048):
        assert (retrieval.nearest_neighbours(q, g, 50, chunk)[0].numpy() == theirs).all()
    slow = {
        k: sum(any(yg[n] == yq[i] for n in theirs[i][:k]) for i in range(60)) / 60
        for k in retrieval.KS
    }
    assert retrieval.recall(q, g, yq, yg, retrieval.KS) == pytest.approx(slow, abs=1e-12)


def test_ties_have_one_order_whatever_the_chunks():
    "Few different values, many copies: the earlier gallery video is always the nearer."
    rng = torch.Generator().manual_seed(2)
    g = torch.randn(7, 33, generator=rng)[torch.randint(0, 7, (1000,), generator=rng)]
    q = torch.randn(40, 33, generator=rng)
    exact = (F.normalize(q.double(), dim=1) @ F.normalize(g.double(), dim=1).T).float().numpy()
    slow = np.stack([sorted(range(1000), key=lambda n: (-row[n], n))[:150] for row in exact])
    for chunk in (10, 100, 151, 999, 4096):
        assert (retrieval.nearest_neighbours(q, g, 150, chunk)[0].numpy() == slow).all(), chunk


PEAK = """
import ctypes, resource, sys, torch
from vssl_nb.measure.retrieval import nearest_neighbours
# M_MMAP_THRESHOLD: what is freed leaves the process, so no holes count
ctypes.CDLL(None).mallopt(-3, 1 << 16)
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss/1024
rng = torch.Generator().manual_seed(0)
q,g = torch.randn(2048, 8, generator=rng),torch.randn(40000, 8, generator=rng)
# a process that was just forked reads its libraries now, not later
nearest_neighbours(q[:8], g[:100], 50)
peaks = [peak()]
for n in (6000, 40000):
    nearest_neighbours(q, g[:n], 50)
    peaks.append(peak())
print(*peaks)
"""


def test_memory_does_not_grow_with_the_gallery(tmp_path):
    "Beyond the input, in a process of its own. The similarities alone would take 47 and 312 MiB."
    (tmp_path / "peak.py").write_text(PEAK)
    before, small, large = map(
        float, warm.run([], tmp_path, script=tmp_path / "peak.py").stdout.split()
    )
    assert large - before < 250 and large - small < 30, (before, small, large)


# what is kept


def test_a_killed_extraction_goes_on_where_it_was(
    data, encoder, tmp_path, tmp_path_factory, monkeypatch
):
    """The process dies by SIGKILL in its 22nd pass, with 20 videos read; nothing finished is
    decoded again.
    """
    code = f"""
import os, signal, torch
from vssl_nb.nets import backbones
from vssl_nb.measure import features, protocols
from vssl_nb.training import machine
from vssl_nb.data import manifest
torch.set_num_threads(1)
encoder,calls,features.SAVE_SECONDS = backbones.create('tiny', seed=0),[0],0.
def die(*_):
    calls[0] += 1
    if calls[0] > 21: os.kill(os.getpid(), signal.SIGKILL)
encoder.register_forward_pre_hook(die)
features.extract(encoder, manifest.read({str(data.path)!r}), 'train', view='residual',
    store={str(tmp_path)!r}, protocol=protocols.protocol(clips=3, length=8, size=32), batch=3,
    machine=machine.Machine(device='cpu', progress=False))
"""
    program = tmp_path_factory.mktemp("killed") / "extract.py"
    program.write_text(code)
    died = warm.run([], tmp_path, script=program)
    assert died.returncode == -signal.SIGKILL
    parts = sorted(tmp_path.glob("*.parts/*.safetensors"))
    assert len(parts) == 20 and not list(tmp_path.glob("*.safetensors"))
    parts[3].write_bytes(parts[3].read_bytes()[:-5])  # a damaged part is made again
    decoded = []
    read = features.VideoCache.read

    def noted(self, row, *a):
        decoded.append(row)
        return read(self, row, *a)

    monkeypatch.setattr(features.VideoCache, "read", noted)
    found, rows = look(encoder, data, "train", store=tmp_path, batch=3), data.select("train")
    assert sorted(decoded) == sorted([rows[3]] + rows[20:])
    assert (
        torch.equal(found.x, look(encoder, data, "train", batch=3).x) and found.row.tolist() == rows
    )
    assert [p.suffix for p in tmp_path.iterdir()] == [".safetensors"]  # one whole file
    decoded.clear()
    assert (
        torch.equal(look(encoder, data, "train", store=tmp_path, batch=3).x, found.x)
        and not decoded
    )


def two(
    path,
    stored,
):  # in each of two processes
    data, encoder = manifest.read(path), backbones.create("tiny", seed=0)

    def looked(part, **how):
        return look(encoder, data, part, shared=True, **how)

    features.SAVE_SECONDS = 0.0
    found = looked("train", store=stored)
    read = looked("train", store=stored)  # from the file
    return found.x, read.x, looked("test").x, sorted(found.dropped), rank()


def test_two_processes_make_the_file_of_one(data, encoder, tmp_path):
    one = look(encoder, data, "train", store=tmp_path / "one")
    test = look(encoder, data, "test")
    for x, read, in_memory, dropped, _ in run_distributed(two, 2, data.path, tmp_path / "two"):
        assert torch.equal(x, one.x)
        assert torch.equal(read, one.x)
        assert torch.equal(in_memory, test.x)
        assert not dropped
    a, b = (list((tmp_path / name).iterdir()) for name in ("one", "two"))
    assert [p.name for p in a] == [p.name for p in b] and a[0].read_bytes() == b[0].read_bytes()


def test_unreadable_videos_of_all_processes_are_named(data, encoder, tmp_path):
    rows = data.select("train")
    broken = Manifest(
        data.path,
        [
            replace(r, video="none.mp4") if i in (rows[4], rows[9]) else r
            for i, r in enumerate(data.rows)
        ],
        "broken",
    )
    for n in (1, 2):

        def work():
            return sorted(
                look(encoder, broken, "train", shared=True, store=tmp_path / str(n)).dropped
            )

        assert run_distributed(work, n) == [sorted([rows[4], rows[9]])] * n


def test_nothing_is_used_for_another_question(data, encoder, tmp_path):
    "Whatever decides a feature changes the name of its file."
    other = backbones.create("tiny", seed=0)
    other.stages[0][1].running_var[0] += 1e-6
    p = protocol(clips=3, **SMALL)
    keys = [
        feature_key(encoder, data, "test", 1, "residual", p),
        feature_key(other, data, "test", 1, "residual", p),
        feature_key(encoder, data, "train", 1, "residual", p),
        feature_key(encoder, data, "test", 2, "residual", p),
        feature_key(encoder, data, "test", 1, "rgb", p),
        feature_key(encoder, Manifest(data.path, data.rows, "b"), "test", 1, "residual", p),
        feature_key(encoder, data, "test", 1, "residual", p, residual_scale=0.1),
        feature_key(encoder, data, "test", 1, "residual", p, device="cuda"),
        feature_key(encoder, data, "test", 1, "residual", p, batch=5),
        feature_key(encoder, data, "test", 1, "residual", replace(p, dtype="bfloat16")),
    ]
    for f in fields(Protocol):
        value = dict(
            clips=7,
            windows="sliding",
            length=9,
            stride=3,
            size=40,
            crop=0.5,
            pad="loop",
            clip_norm=True,
            centre="own",
            gallery="random",
            jitter=0.5,
            feature="maps",
            short="drop",
            batch_of=8,
            crops="ten",
        ).get(f.name)
        if value is not None:
            keys.append(
                feature_key(encoder, data, "test", 1, "residual", replace(p, **{f.name: value}))
            )
    drawing = replace(p, gallery="random", jitter=0.1)
    keys += [
        feature_key(encoder, data, "test", 1, "residual", drawing),
        feature_key(encoder, data, "test", 1, "residual", replace(drawing, seed=1)),
        feature_key(encoder, data, "test", 1, "residual", drawing, "gallery"),
    ]
    assert len({FeatureStore(tmp_path, k, p).path for k in keys}) == len(keys)
    # nothing is drawn: the seed says nothing
    assert (
        feature_key(encoder, data, "test", 1, "residual", replace(p, seed=9, name="x")) == keys[0]
    )
    first = look(encoder, data, store=tmp_path)
    assert not torch.equal(look(other, data, store=tmp_path).x, first.x)


ENCODER = """
import torch
{helper}
class {base}(torch.nn.Module):
    def forward(self, x): return {forward}
class Mean({base}): pass
"""


def made(folder, name, forward="x.mean((2, 3, 4))", helper="", base="Base"):
    "An encoder without weights, in a module of its own; always printed as Mean()."
    (folder / f"{name}.py").write_text(ENCODER.format(forward=forward, helper=helper, base=base))
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name).Mean()
    finally:
        sys.path.remove(str(folder))


def test_a_changed_forward_is_another_encoder(data, tmp_path):
    """Same name, weights and printed structure: only the code of a base class differs, or a helper
    beside it.
    """
    half = "def half(x): return x/{}"
    every = [
        made(tmp_path, "first"),
        made(tmp_path, "second", "2*x.mean((2, 3, 4))"),
        made(tmp_path, "third", "half(x).mean((2, 3, 4))", half.format(2)),
        made(tmp_path, "fourth", "half(x).mean((2, 3, 4))", half.format(4)),
    ]
    assert len({repr(e) for e in every}) == 1 and not any(e.state_dict() for e in every)
    # one store for all: nobody gets another's numbers
    found = [look(e, data, store=tmp_path / "store") for e in every]
    for e, f in zip(every, found):
        assert torch.equal(f.x, look(e, data).x)
    assert len({f.key["encoder"] for f in found}) == 4 and not torch.equal(found[0].x, found[1].x)
    # the text decides, not the place
    assert features.fingerprint(made(tmp_path, "the_same")) == features.fingerprint(every[0])


def test_what_modules_hold_is_seen_and_what_has_no_source_is_refused(data, tmp_path):
    mean = made(tmp_path, "holding")

    def key(**held):
        e = made(tmp_path, "holding")
        for k, v in held.items():
            setattr(e, k, v)
        return features.fingerprint(e)

    assert key() == features.fingerprint(mean) == key(seen=[1])  # lists are not looked at
    assert (
        len(
            {
                key(),
                key(scale=2.0),
                key(scale=3.0),
                key(scale=(1, 2)),
                key(word="a"),
                key(after=made),
                key(after=F.relu),
            }
        )
        == 7
    )
    mean.forward = lambda x: 3 * x.mean((2, 3, 4))  # set on the object
    assert features.fingerprint(mean) != key()
    space = {"__name__": "nowhere", "torch": torch}
    exec("class Mean(torch.nn.Module):\n    def forward(self, x): return x.mean((2, 3, 4))", space)
    with pytest.raises(
        ValueError, match="nowhere.Mean.forward: has no source to be read.*give name="
    ) as e:
        look(space["Mean"](), data)
    assert "\n" not in str(e.value)
    assert (
        look(space["Mean"](), data, name="one").key != look(space["Mean"](), data, name="two").key
    )


def test_the_features_of_all_videos_serve_every_part(few, encoder, tmp_path, monkeypatch):
    "Once all videos are kept, no part of any split is encoded again, and the numbers are the same."
    for name in PROTOCOLS:
        p = protocol(name, **SMALL, batch_of=1)
        for role in ("query", "gallery"):
            look(encoder, few, "all", p, store=tmp_path, role=role)
        direct = {part: look(encoder, few, part, p) for part in ("test", "train")}
        with monkeypatch.context() as m:
            m.setattr(features, "extract_clips", None)
            for part, f in direct.items():
                kept = look(encoder, few, part, p, store=tmp_path)
                assert (
                    torch.equal(kept.x, f.x)
                    and kept.key == f.key
                    and kept.row.tolist() == f.row.tolist()
                )


# no leak


def poisoned(data, folder, spared):
    "A copy of the dataset in which every test video but one is noise."
    folder.mkdir()
    rng, rows = torch.Generator().manual_seed(0), data.select("test")
    for i, r in enumerate(data.rows):
        (folder / r.video).parent.mkdir(exist_ok=True)
        if i in rows and i != spared:
            encode(
                folder / r.video,
                torch.randint(
                    0, 256, (r.frames, r.height, r.width, 3), dtype=torch.uint8, generator=rng
                ),
            )
        else:
            (folder / r.video).write_bytes(data.file(i).read_bytes())
    return Manifest(folder / "manifest.csv", data.rows, data.sha256)


def test_no_test_video_influences_another_or_the_gallery_in_clean(few, encoder, tmp_path):
    spared = few.select("test")[2]
    bad, both = poisoned(few, tmp_path / "bad", spared), {}
    for name in ("clean", "rspnet", "iic_official", "coclr_official"):
        p = protocol(name, batch_of=1, **SMALL)  # six queries
        for which, m in (("good", few), ("bad", bad)):
            query, gallery = look(encoder, m, "test", p), look(encoder, m, "train", p)
            q, g = centre_and_normalise(query, gallery)
            both[name, which] = (
                q[2],
                g,
                query.x,
                gallery.x,
                retrieval.nearest_neighbours(q[2:3], g, 10)[0],
            )
        good, was = both[name, "bad"], both[name, "good"]
        assert not torch.equal(good[2], was[2])  # the poison is there
        assert torch.equal(good[2][2], was[2][2])
        assert torch.equal(good[3], was[3])  # features of one video never depend on another
        same = [
            torch.equal(a, b) for a, b in zip((good[0], good[1], good[4]), (was[0], was[1], was[4]))
        ]
        if name == "coclr_official":
            assert same[1]
            assert not same[0]  # each set's own mean: the other test videos move this query
        else:
            assert all(same), name


def test_the_gallery_mean_is_all_that_clean_knows_of_a_dataset(data, encoder):
    "A query alone is treated as it is among others; under 'own' it vanishes."
    query, gallery = look(encoder, data), look(encoder, data, "train")
    alone = replace(query, **{k: getattr(query, k)[3:4] for k in ("x", "label", "row", "source")})
    assert torch.equal(
        centre_and_normalise(alone, gallery)[0][0], centre_and_normalise(query, gallery)[0][3]
    )
    own = [replace(f, protocol=replace(f.protocol, centre="own")) for f in (alone, gallery)]
    assert centre_and_normalise(*own)[0].abs().max() == 0


# bad input: one sentence


def test_bad_input_is_refused_in_one_sentence(data, encoder, tmp_path):
    p = protocol(clips=1, **SMALL)
    without = Manifest(data.path, [replace(r, split2="") for r in data.rows], "x")
    other = backbones.create("tiny", seed=1)
    for ask, words in (
        (
            lambda: centre_and_normalise(look(encoder, data, p=p), look(other, data, "train", p)),
            "do not have the same encoder",
        ),
        (
            lambda: extract(encoder, without, "test", 2, protocol=p, machine=QUIET),
            "no usable video has 'test' in split2",
        ),
        (
            lambda: retrieval.query_and_gallery(encoder, without, (1, 2), protocol=p),
            "no usable video has 'test' in split2",
        ),
        (
            lambda: look(encoder, data, p=replace(p, size=8)),
            "at least (4, 16, 16) frames and pixels",
        ),
        (
            lambda: look(torch.nn.Conv3d(2, 4, 3), data, p=p),
            "the encoder cannot read clips (3, 8, 32, 32) of the view 'residual'",
        ),
        (lambda: look(torch.nn.Flatten(), data, p=replace(p, feature="maps")), "has no `maps`"),
        (
            lambda: extract(encoder, data, view="flow", protocol=p, machine=QUIET),
            "have no stored flow",
        ),
        (
            lambda: look(encoder, data, p=replace(p, crop=224)),
            "crop=224 does not fit a frame of 32x32",
        ),
        (lambda: protocol(metric="l2"), "metric must be 'cosine' or 'match'"),
        (lambda: protocol("coclr_oficial"), "did you mean 'coclr_official'"),
        (lambda: restrict(look(encoder, data, p=p), data, "train"), "extract the part 'all'"),
        (lambda: look(encoder, data, p=p, role="judge"), "role must be 'query' or 'gallery'"),
    ):
        with pytest.raises(ValueError) as e:
            ask()
        assert words in str(e.value) and "\n" not in str(e.value), str(e.value)
