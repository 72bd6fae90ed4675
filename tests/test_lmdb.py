"""The released LMDBs as a dataset: written in their format, imported by the script, read by its
manifest.
"""

import importlib.util
import io
import os
import random
import threading
from functools import partial
from pathlib import Path
from unittest import mock

import lmdb
import msgpack
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

import warm
from vssl_nb.data import manifest
from vssl_nb.data.dataset import TrainClips, collate
from vssl_nb.data.augmentation import draw
from vssl_nb.data.sampling import random_clips
from vssl_nb.data.prepare import prepare_dataset
from vssl_nb.data.video import crop_resize, decode, encode, lmdb_entries

SCRIPT = Path(__file__).resolve().parent.parent / "data_scripts" / "import_coclr_lmdb.py"
# what JPEG at quality 100 without subsampling may change in the smooth frames below;
# neighbouring frames differ by at least 7 everywhere
CLOSE = 2
SPLITS = {
    "trainlist01.txt": "Archery/v_Archery_g08_c01.avi 1\r\nArchery/v_Archery_g09_c02.avi "
    "1\r\nHandstandPushups/v_HandStandPushups_g08_c01.avi 2\r\nArchery/v_Archery_g25_c07.avi 1\r\n",
    "testlist01.txt": "Archery/v_Archery_g01_c01.avi\r\n"
    "HandStandPushups/v_HandStandPushups_g01_c03.avi\r\n",
    "trainlist02.txt": "Archery/v_Archery_g01_c01.avi 1\r\n",
    "testlist02.txt": "Archery/v_Archery_g08_c01.avi\r\n",
    "classInd.txt": "1 Archery\r\n2 HandstandPushups\r\n",
}
FRAMES = {  # the lists know five of these, and one more that is not here
    "Archery/v_Archery_g01_c01": 9,
    "Archery/v_Archery_g08_c01": 12,
    "Archery/v_Archery_g09_c02": 5,
    "Archery/v_Archery_g11_c01": 7,
    "HandStandPushups/v_HandStandPushups_g01_c03": 8,
    "HandstandPushups/v_HandstandPushups_g08_c01": 10,
}


def film(number, frames, height=24, width=32):
    """Frames that tell which they are: brighter by 7 with every frame, with a slope that is the
    video's own.
    """
    y, x = np.mgrid[:height, :width]
    return np.stack(
        [
            np.stack([20 + 7 * i + x // 2, 40 + 7 * i + y // 2, 10 * number + 7 * i + 0 * x], -1)
            for i in range(frames)
        ]
    ).astype(np.uint8)


def jpeg(frame):
    data = io.BytesIO()
    Image.fromarray(frame).save(data, "JPEG", quality=100, subsampling=0)
    return data.getvalue()


def released(folder, videos, old, seed, lengths=(), spoilt=()):
    # old: as msgpack 0.6 packed, where text and bytes are one
    """An LMDB as the released code writes it: ids in a shuffled order, lengths in that of the
    folders.
    """
    pack = partial(msgpack.packb, use_bin_type=not old)
    names, order = list(videos), list(videos)
    random.Random(seed).shuffle(order)
    entry = {name: f"{i:09d}".encode() for i, name in enumerate(order)}
    about = dict(
        __keys__=[entry[n] for n in names],
        __len__=len(names),
        __order__=order,
        __vlen__=[dict(lengths).get(n, len(videos[n])) for n in names],
    )
    with lmdb.open(str(folder), map_size=2**24) as env, env.begin(write=True) as txn:
        for name in names:
            txn.put(entry[name], dict(spoilt).get(name) or pack([jpeg(f) for f in videos[name]]))
        for key, value in about.items():
            txn.put(key.encode(), pack(value))
    return folder


def script(*args):
    return warm.run([*args, "--quiet"], script=SCRIPT)


@pytest.fixture
def here(monkeypatch, capsys):
    "The same in this process, without the seconds that a start takes: (exit code, output, errors)."
    monkeypatch.syspath_prepend(SCRIPT.parent)
    spec = importlib.util.spec_from_file_location(SCRIPT.stem, SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def run(*args):
        code = 0
        try:
            module.main([*map(str, args), "--quiet"])
        except SystemExit as e:
            code = e.code
        return code, *capsys.readouterr()

    return run


def listed(folder, files=SPLITS):
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_bytes(text.encode())
    return folder


@pytest.fixture(scope="module", params=[True, False], ids=["msgpack 0.6", "msgpack 1"])
def imported(request, tmp_path_factory):
    "RGB elsewhere; flow in the folder, spelt otherwise and one frame shorter; one video has none."
    root = tmp_path_factory.mktemp("coclr")
    videos = {name: film(i, n) for i, (name, n) in enumerate(FRAMES.items())}
    flows = {
        name.replace("HandStand", "Handstand"): 255 - v[:-1]
        for name, v in videos.items()
        if "_g11_" not in name
    }
    for folder in ("disk", "out"):
        (root / folder).mkdir()
    released(root / "disk" / "ucf101_rgb_lmdb", videos, request.param, 0)
    released(root / "out" / "ucf101_flow_lmdb", flows, request.param, 1)
    done = script(
        "--rgb",
        root / "disk/ucf101_rgb_lmdb",
        "--flow",
        root / "out/ucf101_flow_lmdb",
        "--lists",
        listed(root / "lists"),
        "--out",
        root / "out",
    )
    assert done.returncode == 0, done.stderr
    return root, videos, flows, done.stdout


def names_of(folder):
    return {entry: name for name, (entry, _) in lmdb_entries(folder).items()}


def test_every_row_says_what_its_entry_is(imported):
    root, videos, flows, text = imported
    m = manifest.read(root / "out")
    rgb, flow = names_of(root / "out/ucf101_rgb_lmdb"), names_of(root / "out/ucf101_flow_lmdb")
    assert (root / "out/ucf101_rgb_lmdb").is_symlink() and not (
        root / "out/ucf101_flow_lmdb"
    ).is_symlink()
    splits = {
        "Archery/v_Archery_g01_c01": ("test", "train"),
        "Archery/v_Archery_g08_c01": ("train", "test"),
        "Archery/v_Archery_g09_c02": ("train", ""),
        "Archery/v_Archery_g11_c01": ("", ""),
        "HandStandPushups/v_HandStandPushups_g01_c03": ("test", ""),
        "HandstandPushups/v_HandstandPushups_g08_c01": ("train", ""),
    }
    assert [rgb[Path(r.video).name] for r in m.rows] == sorted(FRAMES)
    assert (
        sorted(int(Path(r.video).name) for r in m.rows)
        == list(range(6))
        != [int(Path(r.video).name) for r in m.rows]
    )
    for r in m.rows:
        folder, entry = r.video.split("/")
        name = rgb[entry]
        label, group = ("Archery" if "Archery" in name else "HandstandPushups"), name.split("_")[2]
        assert folder == "ucf101_rgb_lmdb"
        assert r == manifest.Row(
            r.video,
            label,
            f"{label}/{group}",
            *splits[name],
            "",
            FRAMES[name],
            0.0,
            32,
            24,
            r.flow,
            "ok",
        )
        if "_g11_" in name:
            assert r.flow == ""
            continue
        folder, entry = r.flow.split("/")
        assert folder == "ucf101_flow_lmdb" and flow[entry] == name.replace(
            "HandStand", "Handstand"
        )
        got = decode(root / "out" / r.flow)
        assert (
            got.int() - torch.from_numpy(flows[flow[entry]]).int()
        ).abs().max() <= CLOSE and len(got) == r.frames - 1
    # a match by number would have been wrong
    assert any(Path(r.flow).name != Path(r.video).name for r in m.rows if r.flow)


def test_the_summary_says_what_fits_and_what_does_not(imported):
    root, _, _, text = imported
    for line in (
        "manifest.csv: 6 videos, 2 classes, 6 sources",
        "split 1: 3 train, 2 test, 1 in neither",
        "split 2: 1 train, 1 test, 4 in neither",
        "in the lists, not in the LMDB: 1, such as archery/v_archery_g25_c07",
        "in the LMDB, not in the lists: 1, such as Archery/v_Archery_g11_c01",
        "with RGB, without flow: 1, such as archery/v_archery_g11_c01",
        "not the official UCF101: 6 videos "
        "instead of 13,320; 2 classes instead of 101; split 1 3/2 instead of 9,537/3,783",
    ):
        assert line in text, line
    assert "split 3: " not in text and "not used" not in text and "__vlen__" not in text
    rows = (root / "out/.prepare/entries.txt").read_text().splitlines()
    assert rows == [
        f"{r.video} {name}" for r, name in zip(manifest.read(root / "out").rows, sorted(FRAMES))
    ]


def test_again_gives_the_same(imported, here):
    root, _, _, text = imported
    before = (root / "out/manifest.csv").read_bytes()
    again = here(
        "--rgb",
        root / "disk/ucf101_rgb_lmdb",
        "--flow",
        root / "out/ucf101_flow_lmdb",
        "--lists",
        root / "lists",
        "--out",
        root / "out",
        "--workers",
        1,
    )
    assert (again, (root / "out/manifest.csv").read_bytes()) == ((0, text, ""), before)


def dataset(root, size=16, length=3):
    m = manifest.read(root / "out")
    return TrainClips(
        m,
        m.select("train", 1),
        partial(random_clips, length=length),
        partial(draw, size=size),
        size,
        seed=7,
    )


def test_clips_hold_the_frames_that_were_asked_for_and_no_other_is_decoded(imported):
    root, videos, _, _ = imported
    d, rgb = dataset(root), names_of(root / "out/ucf101_rgb_lmdb")
    for epoch in range(3):
        for i, row in enumerate(d.rows):
            with mock.patch.object(Image, "open", wraps=Image.open) as opened:
                item = d[epoch, i]
            r = d.manifest.rows[row]
            # the first that an item draws
            numbers = random_clips(r.frames, np.random.default_rng((7, epoch, row)), length=3)
            frames = torch.from_numpy(videos[rgb[Path(r.video).name]])
            want = torch.stack(
                [
                    crop_resize(frames[n], box, (16, 16))
                    for n, box in zip(numbers, item["augment"]["box"].tolist())
                ]
            )
            assert (
                item["clips"].shape == (2, 3, 16, 16, 3)
                and (item["clips"].int() - want.int()).abs().max() <= CLOSE
            )
            assert opened.call_count == len(np.unique(numbers)) < r.frames + 1 and item["bad"] == []


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def test_batches_do_not_depend_on_the_workers(imported):
    "Without workers first: the process that forks has the LMDB open already."
    d = dataset(imported[0])
    load = lambda workers: list(
        DataLoader(
            d,
            2,
            sampler=[(e, i) for e in range(2) for i in range(len(d))],
            num_workers=workers,
            collate_fn=collate,
            timeout=300 * bool(workers),
        )
    )
    alone = load(0)
    assert len(alone) == 3 and all(b["bad"] == [] for b in alone)
    for workers in (1, 2):
        got = load(workers)
        assert len(got) == 3 and all(map(same, alone, got)), workers
    assert all(map(same, alone, load(0)))


def test_an_lmdb_is_one_whatever_it_is_called_and_whoever_asks(imported):
    """py-lmdb opens a file once in a process: a link, a relative path and eight threads share one
    opening.
    """
    root, videos, _, _ = imported
    spellings = [
        root / "disk/ucf101_rgb_lmdb",
        root / "out/ucf101_rgb_lmdb",
        Path(os.path.relpath(root / "disk/ucf101_rgb_lmdb")),
    ]
    want = lmdb_entries(spellings[0])
    assert [lmdb_entries(s) for s in spellings] == [want] * 3
    fresh, found, start = released(root / "fresh", videos, True, 2), [], threading.Barrier(8)

    def ask():
        start.wait()
        try:
            found.append(len(lmdb_entries(fresh)))
        except Exception as e:
            found.append(e)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [6] * 8


def test_entries_that_cannot_be_used_are_named_and_lengths_that_lie_corrected(tmp_path, here):
    videos = {f"Archery/v_Archery_g{i:02}_c01": film(i, 4 + i) for i in range(1, 6)}
    spoilt = {
        "Archery/v_Archery_g01_c01": msgpack.packb([b"no picture"]),
        "Archery/v_Archery_g02_c01": msgpack.packb([]),
        "Archery/v_Archery_g03_c01": msgpack.packb([1, 2]),
    }
    rgb = released(
        tmp_path / "rgb", videos, True, 3, lengths={"Archery/v_Archery_g04_c01": 99}, spoilt=spoilt
    )
    code, text, error = here("--rgb", rgb, "--out", tmp_path)
    assert code == 0, error
    rows = manifest.read(tmp_path).rows
    assert [r.frames for r in rows] == [0, 0, 0, 8, 9] and [r.status == "ok" for r in rows] == [
        False
    ] * 3 + [True] * 2
    assert (
        all(r.status for r in rows)
        and {r.video.split("/")[0] for r in rows} == {"rgb"}
        and not (tmp_path / "rgb").is_symlink()
    )
    assert all((r.split1, r.split2, r.split3, r.flow) == ("", "", "", "") for r in rows)
    assert (
        text.count("not used: 1, such as rgb/") + 2 * text.count("not used: 2, such as rgb/") == 3
    )
    for line in (
        "no video is in a split, because no lists were given",
        "another number of frames than "
        "__vlen__ says, the real one is taken: 1, such as Archery/v_Archery_g04_c01 (8 instead of "
        "99)",
    ):
        assert line in text
    assert "split 1 " not in text and "not in the lists" not in text


def test_both_spellings_are_one_class_without_lists_too(tmp_path, here):
    rgb = released(tmp_path / "rgb", {name: film(0, 2) for name in FRAMES}, False, 4)
    assert here("--rgb", rgb, "--out", tmp_path / "out")[0] == 0
    assert manifest.read(tmp_path / "out").labels == ["Archery", "HandstandPushups"]


def test_hmdb51_with_films_and_a_name_with_dots(tmp_path, here):
    names = [
        "wave/Mr._Bean_pt.1_wave_u_cm_np1_fr_med_0",
        "wave/Mr._Bean_pt.1_wave_u_cm_np1_fr_med_1",
        "wave/#20_Rhythm_wave_f_cm_np1_ri_goo_2",
    ]
    rgb = released(tmp_path / "rgb", {n: film(i, 3 + i) for i, n in enumerate(names)}, True, 5)
    lists = listed(
        tmp_path / "lists",
        {
            "wave_test_split1.txt": "".join(
                f"{n.split('/')[1]}.avi {part} \n" for n, part in zip(names, (1, 0, 2))
            )
        },
    )
    code, _, error = here(
        "--rgb", rgb, "--lists", lists, "--out", tmp_path / "out", "--dataset", "hmdb51"
    )
    assert code == 0, error
    got = {r.frames: (r.label, r.source, r.split1) for r in manifest.read(tmp_path / "out").rows}
    assert got == {
        3: ("wave", "wave/Mr._Bean_pt.1", "train"),
        4: ("wave", "wave/Mr._Bean_pt.1", ""),
        5: ("wave", "wave/#20_Rhythm", "test"),
    }


def test_mistakes_are_one_sentence_and_exit_code_2(tmp_path, here):
    videos = {name: film(0, 2) for name in list(FRAMES)[:2]}
    rgb, other = (
        released(tmp_path / "rgb", videos, True, 0),
        released(tmp_path / "other", {"Diving/v_Diving_g01_c01": film(0, 2)}, True, 0),
    )
    (tmp_path / "empty").mkdir()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn/data.mdb").write_bytes(b"x" * 100)
    with lmdb.open(str(tmp_path / "foreign"), map_size=2**20) as env, env.begin(write=True) as txn:
        txn.put(b"key", b"value")
    with lmdb.open(str(tmp_path / "crooked"), map_size=2**20) as env, env.begin(write=True) as txn:
        for key, value in dict(
            __keys__=[b"000000000"], __order__=["a/b", "a/c"], __vlen__=[3]
        ).items():
            txn.put(key.encode(), msgpack.packb(value))
    diving = listed(
        tmp_path / "diving",
        {
            "trainlist01.txt": "Diving/v_Diving_g08_c01.avi 1\n",
            "testlist01.txt": "Diving/v_Diving_g01_c01.avi\n",
        },
    )
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/manifest.csv").write_text("mine")
    (tmp_path / "videos/class").mkdir(parents=True)
    encode(tmp_path / "videos/class/a.mp4", np.zeros((3, 16, 16, 3), np.uint8))
    prepare_dataset("folder", tmp_path / "videos", progress=False)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.json").write_text("{}")
    out = tmp_path / "out"
    wrong = [
        ("there is no such folder", ("--rgb", tmp_path / "nowhere")),
        ("holds no data.mdb", ("--rgb", tmp_path / "empty")),
        ("is not an LMDB as CoCLR released them", ("--rgb", tmp_path / "torn")),
        ("is not an LMDB as CoCLR released them", ("--rgb", tmp_path / "foreign")),
        ("is not an LMDB as CoCLR released them", ("--rgb", tmp_path / "crooked")),
        ("there is no such folder", ("--rgb", rgb, "--flow", tmp_path / "nowhere")),
        ("is the RGB LMDB, too", ("--rgb", rgb, "--flow", tmp_path / "empty/../rgb")),
        ("is called like the RGB LMDB", ("--rgb", rgb, "--flow", tmp_path / "flows/rgb")),
        ("the flow LMDB holds none of the 2 videos", ("--rgb", rgb, "--flow", other)),
        (
            "holds none of the 2 videos of the lists; it holds 2, such as Archery/",
            ("--rgb", rgb, "--lists", diving),
        ),
        ("holds no lists of UCF101", ("--rgb", rgb, "--lists", tmp_path / "empty")),
        ("workers is 0", ("--rgb", rgb, "--workers", 0)),
        ("required: --rgb", ()),
        ("--rgb: '' is no path", ("--rgb", "")),
    ]
    runs = (
        [(text, [*args, "--out", out]) for text, args in wrong]
        + [
            ("was not written by this program", ["--rgb", rgb, "--out", tmp_path / place])
            for place in ("theirs", "videos")
        ]
        + [
            (text, ["--rgb", rgb, "--out", place])
            for text, place in (
                ("--out: '' is no path", ""),
                ("is a file; choose another --out", tmp_path / "theirs/manifest.csv"),
                ("is a run; choose another --out", tmp_path / "run"),
            )
        ]
    )
    for text, args in runs:
        check(text, *here(*args))
    done = script(*runs[0][1])
    check(runs[0][0], done.returncode, done.stdout, done.stderr)
    assert not (out / "manifest.csv").exists() and not (out / "rgb").exists()
    assert (tmp_path / "theirs/manifest.csv").read_text() == "mine" and len(
        manifest.read(tmp_path / "videos")
    ) == 1


def check(text, code, said, error):
    assert (
        (code, said) == (2, "")
        and text in error
        and error.count("\n") == 1
        and "Traceback" not in error
    ), (text, code, error)
