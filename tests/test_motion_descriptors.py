"""Motion by hand: which motions it separates, what it cannot see, and the rows that stand beside
every encoder.
"""

import json
import sys
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from vssl_nb.app import cli
from vssl_nb.data import toy
from vssl_nb.data.manifest import Row, read, write
from vssl_nb.data.video import encode
from vssl_nb.measure.health import conflict_shares
from vssl_nb.measure.motion_descriptors import (
    HandMadeFeatures,
    central_square,
    describe_motion,
    dis_flow,
    joined_features,
    motion_by_hand,
)
from vssl_nb.measure.retrieval import compare_features, retrieval_recall
from vssl_nb.training.machine import Machine

QUIET = Machine("cpu", progress=False)
needs_opencv = pytest.mark.skipif(
    sys.modules.get("cv2", True) is None, reason="directions of flow take OpenCV"
)


@pytest.fixture(scope="module")
def conflicts(tmp_path_factory):
    "Toy videos whose test videos have the scene of one training video and another one's motion."
    folder = tmp_path_factory.mktemp("conflict") / "toy"
    size = toy.Size(8, 2, 40, 32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(toy.SIZES, "tiny", size)
        toy.make(folder, "tiny", 5, progress=False)
        return read(toy.make_conflict(folder, progress=False))


def test_motion_by_hand_follows_the_motion_and_colours_the_scene(conflicts):
    by_hand = HandMadeFeatures(conflicts, QUIET)
    shares = {
        method: {
            name: share for name, (share, *_) in conflict_shares(*by_hand.pairs(method, 1)).items()
        }
        for method in ("histogram", "motion")
    }
    chance = conflict_shares(*by_hand.pairs("motion", 1))["motion"][-1]
    assert shares["histogram"]["scene"] > 0.9 and shares["histogram"]["motion"] < 0.1
    assert shares["motion"]["motion"] > 3 * chance and shares["motion"]["scene"] < 0.2


def test_of_a_static_copy_it_sees_nothing(conflicts, tmp_path):
    "Each video becomes its first frame, again and again: all features are the same."
    rows = []
    for i in conflicts.select("all")[:12]:
        row = conflicts.rows[i]
        first = conflicts.decode(i, [0])
        encode(tmp_path / f"{i}.mp4", first.expand(row.frames, -1, -1, -1).numpy())
        rows.append(replace(row, video=f"{i}.mp4", flow=""))
    still = read(write(tmp_path, rows))
    for stream in motion_by_hand(still, machine=QUIET):
        assert (stream.x - stream.x[:1]).abs().max() < 0.005  # what the codec changes
    moving = motion_by_hand(conflicts, machine=QUIET)
    assert all((stream.x - stream.x[:1]).abs().max() > 0.05 for stream in moving)


def squares(moves):  # px to the right and down, from frame to frame
    "Clips (B, 8, 96, 96, 3) of a square with a texture that moves over black."
    texture = np.random.default_rng(0).integers(60, 256, (24, 24, 3), np.uint8)
    clips = np.zeros((len(moves), 8, 96, 96, 3), np.uint8)
    for clip, (right, down) in zip(clips, moves):
        for t, frame in enumerate(clip):
            top, left = 36 + down * t, 36 + right * t
            frame[top : top + 24, left : left + 24] = texture
    return torch.from_numpy(clips)


@needs_opencv
def test_each_direction_has_its_bin():
    "Right, down, left, up are the directions 0, 2, 4, 6 of eight; what stands still has the ninth."
    clips = squares([(2, 0), (0, 2), (-2, 0), (0, -2), (0, 0)])
    _, directions = describe_motion(clips, with_flow=True)
    votes = directions.unflatten(1, (9, 2, 3, 3)).sum((2, 3, 4))
    assert votes[:4, :8].argmax(1).tolist() == [0, 2, 4, 6]
    assert votes[4, :8].max() < 0.01 < votes[4, 8]
    assert torch.allclose(directions.norm(dim=1), torch.ones(5))
    u, v = dis_flow(clips)
    assert u.shape == v.shape == (5, 7, 96, 96)
    assert u[0, :, 44:52, 50:54].median() == pytest.approx(2, abs=0.2)


def test_change_of_frames_knows_where_and_when():
    clips = torch.zeros(1, 8, 96, 96, 3, dtype=torch.uint8)
    clips[:, 5, :24, 72:] = 255  # one flash, above on the right
    (energy,) = describe_motion(clips, with_flow=False)
    at = energy.unflatten(1, (8, 4, 4))[0]
    assert at.nonzero().tolist() == [[4, 0, 3], [5, 0, 3]]  # it comes and goes
    assert at[4, 0, 3] == pytest.approx(1)


def test_streams_are_joined_by_the_sum_of_their_cosines(conflicts):
    "Against a loop over cosines."
    by_hand = HandMadeFeatures(conflicts, QUIET)
    one, other = by_hand.pairs("histogram", 1), by_hand.pairs("motion", 1)
    query, gallery = joined_features(one, other)

    def cosines(pair):
        q, g = (side.x.double().numpy() for side in pair)
        if pair[0].protocol.centre == "gallery":
            q, g = q - g.mean(0), g - g.mean(0)
        q, g = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (q, g))
        return q @ g.T

    expected = (cosines(one) + cosines(other)).argmax(1)
    assert compare_features(query, gallery, 1).near[:, 0].tolist() == expected.tolist()
    assert query.row.tolist() == one[0].row.tolist()
    assert by_hand.pairs("histogram+motion", 1)[0].x.equal(query.x)


def test_an_unreadable_video_is_left_out_and_named(conflicts, tmp_path):
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    rows = []
    for i in range(4):
        frames = np.random.default_rng(i).integers(0, 256, (6, 32, 32, 3), np.uint8)
        encode(tmp_path / f"{i}.mp4", frames)
        rows.append(Row(f"{i}.mp4", source=f"{i}", frames=6, width=32, height=32))
    rows.append(replace(rows[0], video="broken.mp4", source="b"))
    for stream in motion_by_hand(read(write(tmp_path, rows)), machine=QUIET):
        assert stream.row.tolist() == [0, 1, 2, 3] and list(stream.dropped) == [4]


def test_a_wide_frame_is_cut_in_the_middle():
    frames = torch.zeros(1, 10, 30, 3, dtype=torch.uint8)
    frames[:, :, 10:20] = 200
    assert central_square(frames, 10).unique().tolist() == [200]


def test_it_does_not_depend_on_threads(conflicts, monkeypatch):
    first = motion_by_hand(conflicts, machine=QUIET)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0}, raising=False)
    for one, again in zip(first, motion_by_hand(conflicts, machine=QUIET), strict=True):
        assert one.x.equal(again.x)


@pytest.fixture
def toys(tmp_path):
    return toy.make(tmp_path / "toy", "tiny", workers=1, progress=False)


def retrieved(toys, capsys, *more):
    "Rows by method, and what was printed on stderr."
    words = ["retrieve", "infonce-toy-rgb", "--data", str(toys), "--workers", "0"]
    out = toys.parent.parent / "out"
    assert cli.main([*words, "--out", str(out), *more]) == 0
    errors = capsys.readouterr().err
    rows = json.loads((out / "results.json").read_text())
    return {row["method"]: row for row in rows}, errors


@needs_opencv
def test_retrieve_prints_colours_motion_and_both(toys, capsys):
    rows, errors = retrieved(toys, capsys)
    assert list(rows) == ["chance", "histogram", "motion", "histogram+motion", "random"]
    by_hand = HandMadeFeatures(read(toys), QUIET)
    for method in ("histogram", "motion", "histogram+motion"):
        recall = retrieval_recall(*by_hand.pairs(method, 1), (1,))[1]
        assert rows[method]["r1"] == pytest.approx(recall, abs=1e-6)
        assert rows[method]["seconds"] is not None
    assert "OpenCV" not in errors


def test_without_opencv_the_rows_stay_and_the_extra_is_named_once(toys, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    rows, errors = retrieved(toys, capsys)
    assert {"motion", "histogram+motion"} <= rows.keys()
    assert errors.count("pip install 'vssl_nb[flow]'") == 1
    (energy,) = motion_by_hand(read(toys), machine=QUIET)
    assert energy.x.shape[1] == 128


def test_the_protocol_of_a_row_is_what_was_compared(toys, capsys):
    rows, _ = retrieved(toys, capsys)
    names = {method: rows[method]["protocol"]["name"] for method in ("motion", "histogram+motion")}
    assert names == {"motion": "motion by hand", "histogram+motion": "colours and motion by hand"}
    assert asdict(HandMadeFeatures(read(toys), QUIET).pairs("motion", 1)[0].protocol)
