"""Real files through video and manifest: nobody may pass the clips on, so that no notebook carries
them.
"""

import csv
import ctypes
import hashlib
import os
from collections import Counter
from fractions import Fraction

import av
import numpy as np
import pytest
import torch

import warm
from vssl_nb.data import manifest
from vssl_nb.data.prepare import PREPARED_DATASETS, prepare_dataset, read_lists
from vssl_nb.data.video import Probe, VideoError, crop_resize, decode, encode, probe, transcode
from vssl_nb.paths import VIDEO_SUFFIXES

VIDEOS = manifest.test_videos()
real = pytest.mark.skipif(
    VIDEOS is None or not (VIDEOS / "MANIFEST.csv").is_file(),
    reason="there are no real clips: name their folder in VSSL_TEST_VIDEOS, or put them into "
    "../shared/videos beside the repository",
)


def listed():
    with open(VIDEOS / "MANIFEST.csv", newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


@pytest.fixture(scope="module")
def probes():
    "Every listed file, decoded once: its Probe, or the sentence that refuses it."
    found = {}
    for row in listed():
        try:
            found[row["path"]] = probe(VIDEOS / row["path"])
        except VideoError as e:
            found[row["path"]] = e
    return found


@real
def test_every_file_decodes_to_the_listed_frames_or_is_refused_in_one_sentence(probes):
    wrong = []
    for row in listed():
        path, found, frames = row["path"], probes[row["path"]], int(row["decoded_frames"] or 0)
        if isinstance(found, VideoError):
            sentence = str(found)
            if (
                frames
                or not sentence.startswith(f"{VIDEOS / path}: ")
                or "\n" in sentence
                or "Errno" in sentence
                or "Traceback" in sentence
            ):
                wrong.append((path, sentence))
            continue
        width, height = int(row["w"]), int(row["h"])
        if int(row["rotation"] or 0) % 180:
            width, height = height, width
        expected = (
            frames,
            int(row["declared_frames"] or 0),
            width,
            height,
            int(row["rotation"] or 0) % 360,
        )
        if (found.frames, found.declared, found.width, found.height, found.rotation) != expected:
            wrong.append((path, found, expected))
        if row["avg_fps"] and abs(found.fps - float(row["avg_fps"])) > 0.01:
            wrong.append((path, found.fps, row["avg_fps"]))
    assert not wrong
    assert sum(isinstance(found, VideoError) for found in probes.values()) == sum(
        not int(row["decoded_frames"] or 0) for row in listed()
    )


@real
@pytest.mark.parametrize(
    "name, reason",
    {
        "derived/audioonly.mp4": "no video stream",
        "derived/zeroframes.mp4": "no video stream",
        "found/torchcodec_sine_mono_s16.wav": "no video stream",
        "derived/zeroframes.avi": "no frame",
        "derived/zeroframes.mkv": "End of file",
        "derived/zerobytes.avi": "empty (0 bytes)",
        "derived/text_not_video.avi": "not a video",
        "derived/header_only_4k.avi": "damaged",
        "derived/truncated_no_moov.mp4": "damaged",
    }.items(),
)
def test_the_reason_fits_the_file(probes, name, reason):
    assert reason in probes[f"odd/{name}"].reason


DAMAGED = ["bitflips_400.avi", "decord_corrupted.mp4", "hole_30k_zeros.avi", "truncated_60pct.avi"]


@real
def test_the_damaged_files_are_named_and_no_other(probes):
    """UCF101 and HMDB51 hold healthy files that declare up to 46 frames more than decode: those are
    no damage.
    """
    readable = {path: p for path, p in probes.items() if isinstance(p, Probe)}
    assert sorted(path.rsplit("/")[-1] for path, p in readable.items() if p.damage) == DAMAGED
    assert sum(p.declared > p.frames and not p.damage for p in readable.values()) >= 12
    said = {path.rsplit("/")[-1]: p.damage for path, p in readable.items() if p.damage}
    assert (
        said["truncated_60pct.avi"]
        == "holds 65 of the 123 frames it declares, has damaged frames (1)"
    )
    assert said["hole_30k_zeros.avi"].startswith("holds 104 of the 123 frames") and said[
        "bitflips_400.avi"
    ].startswith("holds 27 of the 123 frames")
    assert said["decord_corrupted.mp4"].startswith("stops at frame 28 of 50 (Invalid data")


def sums(path, index=None, box=None, seek=None):
    "A digest per frame; wide films are looked at in a small box so that the test stays quick."
    return [
        hashlib.md5(f.numpy().tobytes()).digest()
        for f in crop_resize(decode(path, index, seek), box)
    ]


@real
def test_random_access_gives_the_frames_of_a_full_decode(probes):
    files = [name for name, p in probes.items() if isinstance(p, Probe)]
    assert len(files) == sum(bool(int(row["decoded_frames"] or 0)) for row in listed()) >= 300
    rng, wrong, jumps = np.random.default_rng(0), [], 0
    for number, name in enumerate(files):
        path, p = VIDEOS / name, probes[name]
        keys = [n for n, _ in p.keyframes]
        kw = (
            {"box": (p.height // 3, p.width // 3, 64, 96)}
            if p.width * p.height > 640 * 480 or name.startswith("ucf101/")
            else {}
        )
        whole = sums(path, **kw)
        assert len(whole) == p.frames
        # 20 random frames, in random order; and, singly, frames around keyframes, where a jump
        # could go wrong
        index = rng.integers(0, p.frames, 20).tolist()
        # where a jump is possible, reading from the start is the same code for all: every third
        # file
        if (len(keys) < 2 or number % 3 == 0) and sums(path, index, **kw) != [
            whole[i] for i in index
        ]:
            wrong.append((name, "from the start"))
        # with one keyframe there is nowhere to jump to, and `seek` changes nothing
        if len(keys) > 1 and sums(path, index, seek=p, **kw) != [whole[i] for i in index]:
            wrong.append((name, "with a keyframe table"))
        near = sorted(
            {i for k in (keys[1:2] + keys[-1:]) if k for i in (k - 1, k, k + 1) if i < p.frames}
            | {index[0]}
        )
        for i in near if len(keys) > 1 else []:
            if sums(path, [i], seek=p, **kw) != [whole[i]]:
                wrong.append((name, f"frame {i} alone"))
            jumps += 1
    assert not wrong
    assert jumps >= 60


@real
def test_jumps_really_start_at_the_nearest_keyframe(probes):
    from vssl_nb.data.video import _numbered

    several = [
        p
        for p in probes
        if p.startswith(("ucf101", "hmdb51/")) and len(getattr(probes[p], "keyframes", ())) > 1
    ]
    assert len(several) >= 60
    for name in several:
        p = probes[name]
        n, _ = p.keyframes[-1]
        frames = _numbered(VIDEOS / name, [n], p.keyframes, 1)
        assert next(frames)[0] == n, name
        frames.close()


@real
def test_a_frame_beyond_the_end_is_refused_with_both_numbers(probes):
    for name in (
        "odd/derived/truncated_60pct.avi",
        "odd/found/decord_corrupted.mp4",
        "hmdb51/wave/RATRACE_wave_f_nm_np1_fr_goo_37.avi",
    ):
        p = probes[name]
        assert p.declared > p.frames
        with pytest.raises(
            VideoError, match=f"has no frame {p.declared - 1}: {p.frames} frames decode"
        ):
            decode(VIDEOS / name, [p.declared - 1], seek=p)


@real
def test_frames_are_returned_upright(probes):
    films = [
        decode(VIDEOS / "odd" / "found" / f"decord_video_{turn}.mov", [1]).float()
        for turn in (0, 90, 180, 270)
    ]
    assert [tuple(f.shape[1:3]) for f in films] == [(320, 568), (568, 320), (320, 568), (568, 320)]


@real
@pytest.mark.parametrize(
    "name",
    ["torchcodec_h264_10bits.mp4", "torchcodec_h265_10bits.mp4", "torchcodec_bt709_full_range.mp4"],
)
def test_ten_bits_bt709_and_the_full_range_become_the_colours_of_the_formula(name):
    with av.open(str(VIDEOS / "odd" / "found" / name)) as container:
        frame = next(container.decode(video=0))
    deep, full, bt709 = "10" in frame.format.name, frame.color_range == 2, frame.colorspace == 1
    planes = [
        np.frombuffer(p, np.uint16 if deep else np.uint8).reshape(p.height, -1)[:, : p.width]
        / (4 if deep else 1)
        for p in frame.planes
    ]
    u, v = [(c.repeat(2, 0).repeat(2, 1) - 128) / (255 if full else 224) for c in planes[1:]]
    y = planes[0] / 255 if full else (planes[0] - 16) / 219
    kr, kb = (0.2126, 0.0722) if bt709 else (0.299, 0.114)
    r, b = y + 2 * (1 - kr) * v, y + 2 * (1 - kb) * u
    rgb = np.stack([r, (y - kr * r - kb * b) / (1 - kr - kb), b], -1).clip(0, 1) * 255
    difference = decode(VIDEOS / "odd" / "found" / name, [0])[0].numpy() - rgb
    assert (
        full == ("full_range" in name)
        and np.abs(difference).max() <= 4.5
        and -1 < difference.mean() < 0
    )


BOARD = np.array(
    [
        [255, 255, 255],
        [0, 0, 0],
        [128, 128, 128],
        [220, 30, 30],
        [30, 200, 40],
        [30, 50, 210],
        [230, 210, 40],
        [40, 190, 200],
    ]
)
KR_KB = {1: (0.2126, 0.0722), 6: (0.299, 0.114)}  # BT.709, BT.601


def planes(bits, full, matrix, down):
    """Eight patches of known colours as Y, U, V, by the formula; `down`: pixels that share a chroma
    sample.
    """
    kr, kb = KR_KB[matrix]
    r, g, b = np.kron(BOARD.reshape(2, 4, 3).transpose(2, 0, 1) / 255, np.ones((1, 16, 16)))
    y = kr * r + (1 - kr - kb) * g + kb * b
    u, v = (b - y) / 2 / (1 - kb), (r - y) / 2 / (1 - kr)
    k, top = 2 ** (bits - 8), 2**bits - 1
    y, u, v = (
        (y * top, u * top + 128 * k, v * top + 128 * k)
        if full
        else (k * (219 * y + 16), k * (224 * u + 128), k * (224 * v + 128))
    )
    return [
        c.round().clip(0, top).astype(np.uint16 if bits > 8 else np.uint8)
        for c in (y, u[:: down[0], :: down[1]], v[:: down[0], :: down[1]])
    ]


def board(path, form, full, matrix, tag=None):
    """A lossless film of the eight patches; `tag`: what the file says instead of the truth (full,
    matrix).
    """
    bits = 10 if "10" in form else 8
    down = (1, 1) if "444" in form else (1, 2) if "422" in form else (2, 2)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", 25, options={"qp": "0"})
        stream.width, stream.height, stream.pix_fmt = 64, 32, form
        tagged = [1 + (tag or (full,))[0], (tag or (0, matrix))[1]]
        stream.codec_context.time_base, stream.codec_context.thread_count = Fraction(1, 25), 1
        stream.codec_context.color_range, stream.codec_context.colorspace = tagged
        for pts in range(3):
            frame = av.VideoFrame(64, 32, form)
            for plane, c in zip(frame.planes, planes(bits, full, matrix, down)):
                rows = np.zeros((plane.height, plane.line_size // c.itemsize), c.dtype)
                rows[:, : c.shape[1]] = c
                plane.update(rows.tobytes())
            frame.pts, frame.time_base, frame.color_range, frame.colorspace = (
                pts,
                Fraction(1, 25),
                *tagged,
            )
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def patches(frame):
    return (
        frame.float()
        .reshape(2, 16, 4, 16, 3)
        .permute(0, 2, 1, 3, 4)[:, :, 4:12, 4:12]
        .mean((2, 3))
        .reshape(8, 3)
        .numpy()
    )


@pytest.mark.parametrize(
    "form, full, matrix, name",
    [
        ("yuv420p", False, 6, "b.mp4"),
        ("yuv420p", False, 1, "b.mp4"),
        ("yuv420p", True, 6, "b.mp4"),
        ("yuv420p", True, 1, "b.mkv"),
        ("yuvj420p", True, 6, "b.mp4"),
        ("yuv422p", False, 1, "b.mp4"),
        ("yuv444p", False, 6, "b.mkv"),
        ("yuv420p10le", False, 6, "b.mp4"),
        ("yuv420p10le", False, 1, "b.mkv"),
        ("yuv420p10le", True, 1, "b.mp4"),
    ],
)
def test_known_colours_come_back_whatever_the_file_stores(tmp_path, form, full, matrix, name):
    "Within 3 of 255 levels: 1 for rounding to 8 bits, 2 for libswscale, which truncates."
    path = board(tmp_path / name, form, full, matrix)
    assert np.abs(patches(decode(path)[2]) - BOARD).max() <= 3
    with av.open(str(path)) as container:
        frame = next(container.decode(video=0))
    assert (
        (frame.color_range == 2) == full
        and frame.colorspace == matrix
        and frame.format.name.replace("j", "") == form.replace("j", "")
    )
    # the copy has another convention (BT.601, limited, 8 bits) and the same colours
    copy = tmp_path / "copy.mp4"
    assert transcode(path, copy, crf=1).frames == 3
    assert np.abs(patches(decode(copy)[2]) - BOARD).max() <= 5


def test_a_file_that_says_the_wrong_matrix_or_range_is_believed_and_far_off(tmp_path):
    "So the tolerance of the test above is narrow enough to see either mistake."
    for n, tag in enumerate([(False, 1), (True, 6), (True, 1)]):
        off = np.abs(
            patches(decode(board(tmp_path / f"{n}.mkv", "yuv420p", False, 6, tag))[0]) - BOARD
        )
        assert 14 < off.max() < 60, (tag, off)


def test_of_several_video_streams_the_first_is_the_film(tmp_path):
    path = tmp_path / "two.mp4"
    with av.open(str(path), "w") as container:
        both = [
            container.add_stream("libx264", 25, width=side, height=side, pix_fmt="yuv420p")
            for side in (32, 64)
        ]
        for stream, side, frames in zip(both, (32, 64), (6, 9)):
            for t in range(frames):
                container.mux(
                    stream.encode(
                        av.VideoFrame.from_ndarray(np.full((side, side, 3), 20 * t, np.uint8))
                    )
                )
            container.mux(stream.encode())
    p = probe(path)
    assert (p.frames, p.width, p.damage) == (6, 32, "")
    assert (
        np.abs(decode(path, [5, 2], seek=p).float().mean((1, 2, 3)).numpy() - [100, 40]).max() < 3
    )
    assert (lambda c: (c.frames, c.width))(transcode(path, tmp_path / "copy.mp4")) == (6, 32)


def test_variable_frame_rate_is_read_by_frame_number_and_copied_without_it(tmp_path):
    path, stamps = tmp_path / "uneven.mp4", [0, 1, 5, 6, 20, 21, 22, 60, 61, 100]
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", 25, options={"bf": "2"})
        stream.width, stream.height, stream.pix_fmt, stream.codec_context.time_base = (
            64,
            32,
            "yuv420p",
            Fraction(1, 25),
        )
        for n, pts in enumerate(stamps):
            frame = av.VideoFrame.from_ndarray(np.full((32, 64, 3), 20 * n + 20, np.uint8))
            frame.pts, frame.time_base = pts, Fraction(1, 25)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    grey = lambda clip: (clip.float().mean((1, 2, 3)) / 20 - 1).round().int().tolist()
    p = probe(path)
    assert (p.frames, p.damage) == (10, "")
    assert grey(decode(path, [9, 0, 4, 4], seek=p)) == [9, 0, 4, 4]
    c = transcode(path, tmp_path / "even.mp4", gop=4)
    assert grey(decode(tmp_path / "even.mp4", range(10), seek=c)) == list(range(10))
    with av.open(str(tmp_path / "even.mp4")) as container:
        assert (
            len(set(np.diff([packet.pts for packet in container.demux(video=0) if packet.size])))
            == 1
        )


COPIED = {
    "odd/derived/h264_vfr_60frames.mp4": 128,
    "odd/derived/h264_yuv444_odd_241x181.mp4": None,
    "odd/found/decord_video_90.mov": 128,
    "hmdb51/wave/RATRACE_wave_f_nm_np1_fr_goo_37.avi": 128,
    "ucf101/BaseballPitch/v_BaseballPitch_g10_c01.avi": 128,
    "ucf101/Basketball/v_Basketball_g16_c04.avi": 240,
    "odd/found/torchcodec_av1_video.mkv": 127,
    "odd/found/torchcodec_nasa_13013.mp4": 128,
}


@real
@pytest.mark.parametrize("name", COPIED)
def test_frame_i_of_the_copy_is_frame_i_of_the_original(name, probes, tmp_path):
    side, p = COPIED[name], probes[name]
    c = transcode(VIDEOS / name, tmp_path / "copy.mp4", side)
    again = transcode(VIDEOS / name, tmp_path / "again.mp4", side)
    assert (
        again == c and (tmp_path / "again.mp4").read_bytes() == (tmp_path / "copy.mp4").read_bytes()
    )
    assert (c.frames, c.declared, c.rotation, c.codec, c.damage) == (
        p.frames,
        p.frames,
        0,
        "h264",
        "",
    )
    assert (
        min(c.width, c.height) == {None: 180, 127: 128}.get(side, side)
        and not c.width % 2
        and not c.height % 2
    )
    assert abs(c.width / c.height - p.width / p.height) < 0.03
    assert [n for n, _ in c.keyframes] == list(range(0, p.frames, 8))
    with av.open(str(tmp_path / "copy.mp4")) as container:
        assert [s.type for s in container.streams] == ["video"]
        stamps = [packet.pts for packet in container.demux(video=0) if packet.size]
    assert len(set(np.diff(stamps))) <= 1
    middle = range(max(0, p.frames // 2 - 20), min(p.frames, p.frames // 2 + 20))
    box = None if side else (0, 0, 180, 240)
    # colour is stored at half the resolution, which costs small pictures a lot
    bright = lambda clip: clip.float() @ torch.tensor([0.299, 0.587, 0.114])
    old, new = (
        bright(crop_resize(decode(VIDEOS / name, middle), box, (c.height, c.width))),
        bright(decode(tmp_path / "copy.mp4", middle, seek=c)),
    )
    psnr = 10 * torch.log10(255**2 / (new - old).square().mean((1, 2)))
    # at hardly any loss each frame of the copy is nearest to its own, or to one less than a level
    # different
    transcode(VIDEOS / name, tmp_path / "fine.mp4", side, crf=1)
    fine = bright(decode(tmp_path / "fine.mp4", middle))
    error = (fine[:, None] - old[None]).square().mean((2, 3))
    nearest = error.argmin(1)
    print(
        f"{name}: PSNR {psnr.mean():.1f} dB on average, {psnr.min():.1f} at least; at crf 1 its "
        "own is "
        f"nearest for {(nearest == torch.arange(len(old))).float().mean():.0%}"
    )
    assert (
        (old[nearest] - old).square().mean((1, 2)).max() < 0.5
        and (nearest == torch.arange(len(old))).float().mean() > 0.75
        and psnr.min() > 33
    )


def test_a_pipe_is_refused(tmp_path):
    pipe = tmp_path / "pipe.mp4"
    os.mkfifo(pipe)
    for read in (probe, decode, lambda path: transcode(path, tmp_path / "copy.mp4")):
        with pytest.raises(VideoError, match="is not an ordinary file"):
            read(pipe)
    assert [f.name for f in tmp_path.iterdir()] == ["pipe.mp4"]


@real
def test_ffmpeg_says_nothing_on_stderr(tmp_path):
    "Damaged files make FFmpeg talkative; its messages would drown a progress bar."
    code = (
        "import sys\nfrom pathlib import Path\nfrom vssl_nb.data.video import VideoError, decode, "
        "probe\n"
        'for f in sorted(Path(sys.argv[1]).rglob("*.*")):\n    try: probe(f)\n    except '
        "VideoError: pass\n"
    )
    (tmp_path / "look.py").write_text(code)
    done = warm.run([VIDEOS / "odd" / "derived"], script=tmp_path / "look.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@real
def test_ucf101_with_the_official_lists(tmp_path):
    done = prepare_dataset(
        "ucf101", VIDEOS / "ucf101", VIDEOS / "ucfTrainTestlist", tmp_path, progress=False
    )
    assert len(done.missing) == 13050 and not done.extra
    m, rows = done.manifest, [*done.manifest.rows]
    assert manifest.read(tmp_path).rows == rows and len(m) == 270 and len(m.labels) == 9
    assert [(len(m.select("train", n)), len(m.select("test", n))) for n in (1, 2, 3)] == [
        (189, 81),
        (180, 90),
        (207, 63),
    ]
    sources = {label: {r.source for r in rows if r.label == label} for label in m.labels}
    assert {len(found) for found in sources.values()} == {25}
    assert sources["Archery"] == {f"Archery/g{g:02}" for g in range(1, 26)}
    for n in (1, 2, 3):
        train, test = ({m.rows[i].source for i in m.select(part, n)} for part in ("train", "test"))
        assert not train & test
    expected = {
        row["path"]: int(row["decoded_frames"])
        for row in listed()
        if row["path"].startswith("ucf101/")
    }
    assert {r.video: r.frames for r in rows} == expected
    # the cut lists name just what is there
    cut = read_lists(PREPARED_DATASETS["ucf101"], [VIDEOS / "ucfTrainTestlist_subset270"]).entries
    assert {
        f"{r.label}/{r.video.split('/')[2][:-4]}".casefold(): {
            f"split{n}": getattr(r, f"split{n}") for n in (1, 2, 3)
        }
        for r in rows
    } == cut


@real
def test_both_spellings_of_handstand_pushups_are_one_class(tmp_path):
    lists = read_lists(PREPARED_DATASETS["ucf101"], [VIDEOS / "ucfTrainTestlist"])
    parts, names = lists.entries, lists.labels
    assert len(parts) == 13320 and len(names) == 101
    assert {len(split) for split in parts.values()} == {3}
    assert names["handstandpushups"] == "HandstandPushups"
    assert Counter(split["split1"] for split in parts.values()) == {"train": 9537, "test": 3783}


@real
def test_a_reason_is_kept_for_each_odd_file_that_is_bad(probes, tmp_path):
    rows = prepare_dataset("folder", VIDEOS / "odd", out=tmp_path, progress=False).manifest.rows
    assert [r.video for r in rows] == sorted(r.video for r in rows)
    listed_there = {p for p in probes if p.startswith("odd/")}
    assert {r.video for r in rows} == {p for p in listed_there if p.endswith(VIDEO_SUFFIXES)}
    for r in rows:
        found = probes[r.video]
        assert (r.status, r.frames) == (
            (found.reason, 0) if isinstance(found, VideoError) else ("ok", found.frames)
        )


M_PERTURB = -6  # of glibc's malloc.h


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs the malloc of glibc")
def test_the_bytes_of_a_film_do_not_depend_on_what_was_in_memory_before(tmp_path):
    """glibc fills fresh memory with a chosen byte; an encoder that read such memory would write
    other films.
    """
    t, y, x = np.mgrid[:48, :48, :64]
    frames = np.stack(
        [60 + 40 * ((x - 2 * t) % 24 < 9), 90 + 3 * t + 0 * x, 130 + 100 * ((y + t) % 16 < 5)], -1
    ).astype(np.uint8)
    libc, films = ctypes.CDLL(None), set()
    libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_size_t],
        [ctypes.c_void_p],
    )
    try:
        for fill in (0, 85, 170):
            assert libc.mallopt(M_PERTURB, fill)
            fresh = libc.malloc(5000)
            assert not fill or ctypes.string_at(fresh, 5000) == bytes([fill ^ 255]) * 5000
            libc.free(fresh)
            films.add(
                tuple(
                    encode(tmp_path / f"{fill}.{suffix}", frames, gop=gop).read_bytes()
                    for suffix in ("mp4", "mkv")
                    for gop in (None, 8)
                )
            )
    finally:
        libc.mallopt(M_PERTURB, 0)
    assert len(films) == 1


def test_a_random_file_is_refused_and_a_flipped_one_never_crashes(tmp_path):
    rng = np.random.default_rng(0)
    film = rng.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
    for suffix in ("mp4", "avi", "mkv"):
        path = tmp_path / f"noise.{suffix}"
        path.write_bytes(rng.bytes(5000))
        with pytest.raises(VideoError):
            probe(path)
        good = encode(path, film, gop=4).read_bytes()
        for _ in range(60):
            data = bytearray(good)
            for at in rng.integers(0, len(data), rng.integers(1, 20)):
                data[at] = rng.integers(256)
            path.write_bytes(data[: rng.integers(1, len(data) + 1)])
            try:
                assert len(decode(path)) == probe(path).frames
            except VideoError:
                pass


def test_a_file_without_permission_is_refused(tmp_path, monkeypatch):
    path = encode(tmp_path / "film.mp4", torch.zeros(2, 16, 16, 3, dtype=torch.uint8))
    path.chmod(0)
    if os.access(path, os.R_OK):
        monkeypatch.setattr(os, "access", lambda *_: False)  # root may read everything
    with pytest.raises(VideoError, match="may not be read"):
        probe(path)


@real
def test_cut_files_are_named(tmp_path, caplog):
    from vssl_nb.app import cli

    whole = sorted((VIDEOS / "ucf101").rglob("*.avi"))[:40:8]
    for i, file in enumerate(whole):
        data = file.read_bytes()
        (tmp_path / f"whole{i}.avi").write_bytes(data)
        (tmp_path / f"cut{i}.avi").write_bytes(data[: len(data) // 2])
    assert cli.main(["manifest", str(tmp_path)]) == 0
    told = [m for m in caplog.messages if "damaged, used as far as it goes" in m]
    for i in range(len(whole)):
        assert any(f"cut{i}.avi holds " in line for line in told), told
    assert not any("whole" in line for line in told)
    frames = {r.video: r.frames for r in manifest.read(tmp_path).rows}
    assert all(0 < frames[f"cut{i}.avi"] < frames[f"whole{i}.avi"] for i in range(len(whole)))
