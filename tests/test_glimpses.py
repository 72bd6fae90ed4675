"Near copies: another size, quality, brightness or end is the same film; another take is not."

import io

import numpy as np
import pytest
import torch
from PIL import Image

from vssl_nb.data import glimpses, toy, video
from vssl_nb.data.glimpses import look, same_pictures
from vssl_nb.data.manifest import test_videos as real_videos

REAL = real_videos()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("glimpses")
    toy.make(place / "toy", size="tiny", progress=False)
    return place


def noise_that_moves(frames=60, side=128, seed=0):
    "A soft pattern that drifts over a soft background."
    rng = np.random.default_rng(seed)
    small = torch.from_numpy(rng.random((2, 3, 9, 9), np.float32))
    back, front = torch.nn.functional.interpolate(small, (side, side), mode="bicubic")
    x = [back + front.roll((2 * t, t), (1, 2)) for t in range(frames)]
    x = torch.stack(x).permute(0, 2, 3, 1)
    return (255 * (x - x.min()) / (x.max() - x.min())).to(torch.uint8)


CHANGES = {
    "another quality": lambda x: (x, {"crf": 38}),
    "another size": lambda x: (video.crop_resize(x, size=(40, 48)), {}),
    "brighter": lambda x: ((x.float() * 0.7 + 60).to(torch.uint8), {}),
    "without its first half second": lambda x: (x[13:], {}),
    "without its end": lambda x: (x[:40], {}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_copy_shows_the_same(change, tmp_path):
    x = noise_that_moves()
    video.encode(tmp_path / "a.mp4", x, fps=25)
    changed, options = CHANGES[change](x)
    video.encode(tmp_path / "b.mp4", changed, fps=25, **options)
    a, b = (look(tmp_path / f"{name}.mp4") for name in "ab")
    assert same_pictures(a, b) and same_pictures(b, a)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.skipif(REAL is None, reason="no real clips: VSSL_TEST_VIDEOS names their folder")
def test_a_copy_of_a_real_clip_shows_the_same(change, tmp_path):
    for path in sorted((REAL / "ucf101").rglob("*.avi"))[::90]:
        fps = video.probe(path).fps
        x = video.decode(path)
        if len(x) % 2 or x.shape[1] % 2:
            x = x[: len(x) // 2 * 2, : x.shape[1] // 2 * 2]
        changed, options = CHANGES[change](x)
        copy = video.encode(tmp_path / "copy.mp4", changed, fps=fps, **options)
        assert same_pictures(look(path), look(copy)), path


@pytest.mark.skipif(REAL is None, reason="no real clips: VSSL_TEST_VIDEOS names their folder")
def test_two_clips_of_one_recording_are_no_copies():
    "The same room, light and people at another time: ApplyEyeMakeup g01 c01 and c02."
    clips = sorted((REAL / "ucf101").rglob("*_g0[12]_c*.avi"))[:12]
    looks = {path: look(path) for path in clips}
    for a in clips:
        for b in clips:
            assert same_pictures(looks[a], looks[b]) == (a == b), (a.name, b.name)


def as_glimpse(grey):
    return glimpses.Glimpse(b"", 1.0, grey.astype(np.float16), 12.0)


def test_the_next_turn_of_a_motion_is_no_copy():
    "A bar that swings before a wall: alike in the background, and in the motion only roughly."
    wall = np.random.default_rng(0).standard_normal((1, 16, 16))

    def swing(phases):
        x = np.repeat(wall, len(phases), 0)
        for frame, phase in zip(x, phases):
            at = int(5 + 4 * np.sin(phase))
            frame[2:12, at : at + 3] += 1.5
        flat = x.reshape(len(phases), -1)
        return as_glimpse(flat / np.linalg.norm(flat, axis=1, keepdims=True))

    t = np.arange(36.0)
    first, second = swing(t / 4), swing(t / 4.6 + 0.3)
    assert same_pictures(first, swing(t / 4))
    assert not same_pictures(first, second)


def test_another_motion_before_the_same_background_is_no_copy():
    rng = np.random.default_rng(0)
    back = rng.standard_normal((1, 256))
    takes = [back + 0.15 * rng.standard_normal((20, 256)) for _ in range(2)]
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in takes)
    assert (a @ b.T).max() > glimpses.FRAMES_ALIKE
    a, b = as_glimpse(a), as_glimpse(b)
    assert same_pictures(a, a) and not same_pictures(a, b)


def test_a_still_picture_is_like_itself_alone():
    a = as_glimpse(np.repeat(np.eye(256)[:1], 9, 0))
    b = as_glimpse(np.repeat(np.eye(256)[1:2], 9, 0))
    assert same_pictures(a, a) and not same_pictures(a, b)
    black = as_glimpse(np.zeros((9, 256)))
    assert not same_pictures(black, black)


def test_what_plays_are_whole_frames_in_their_order(place):
    for name, x in (
        ("wide", noise_that_moves(30)[:, :20]),
        ("tall", noise_that_moves(30)[:, :, :20]),
    ):
        x = x.clone()
        for t, frame in enumerate(x):
            frame[:] = 8 * t
        path = video.encode(place / f"{name}.mp4", x, fps=25, crf=10)
        picture = np.asarray(Image.open(io.BytesIO(look(path, 96).strip)).convert("L"))
        assert picture.shape == (glimpses.STRIP_PICTURES * 72, 96)
        middle = picture.reshape(glimpses.STRIP_PICTURES, 72, 96)[:, 36, 48].astype(int)
        assert (np.diff(middle) > 8).all(), middle
        edge = picture[0, 48] if name == "wide" else picture[36, 0]
        assert abs(int(edge) - 34) < 12


@pytest.mark.parametrize("frames", [1, 2, 3, 9])
def test_a_video_of_few_frames(frames, tmp_path):
    path = video.encode(tmp_path / "few.mp4", noise_that_moves(frames), fps=25)
    g = look(path)
    assert len(g.grey) >= 1 and same_pictures(g, g)


def test_a_file_that_is_no_video_has_a_reason(tmp_path):
    (tmp_path / "a.mp4").write_text("bought milk")
    assert isinstance(glimpses.try_to_look(tmp_path / "a.mp4"), str)
    assert isinstance(glimpses.try_to_look(tmp_path / "none.mp4"), str)


def test_candidates_are_near_by_features_or_by_pictures():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 8))
    x[7] = x[3]
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    grey = [rng.standard_normal((4, 256)) for _ in range(30)]
    grey[20] = grey[11]
    looks = [as_glimpse(g) for g in grey]
    pairs = glimpses.candidate_pairs(x, [*looks[:29], None], near=1)
    assert {(3, 7), (11, 20)} <= {*pairs} and len(pairs) == len({*pairs})
    assert all(i < j < 29 for i, j in pairs)
