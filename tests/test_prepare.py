"""Datasets from what their owners hand out, and folders of videos: archives, lists, copies, splits,
kills.
"""

import csv
import io
import json
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import time
import zipfile
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import warm
from vssl_nb.app import cli, search
from vssl_nb.data import manifest, prepare
from vssl_nb.data.manifest import (
    COLUMNS,
    GONE,
    SCAN_LOG,
    KeyframeTable,
    ManifestError,
    Row,
    cut_split,
)
from vssl_nb.data.manifest import probe_videos, read, update_manifest, write
from vssl_nb.data.prepare import PrepareError, prepare_dataset
from vssl_nb.data.video import VideoError, decode, encode, iter_frames, probe

SCRIPTS = Path(__file__).resolve().parent.parent / "data_scripts"
sys.path.append(str(SCRIPTS))
import archives  # noqa: E402
import command  # noqa: E402
import copy_videos  # noqa: E402
from archives import unpacked  # noqa: E402
from copy_videos import make_copies  # noqa: E402

VIDEOS = manifest.test_videos()
real = pytest.mark.skipif(
    VIDEOS is None or not (VIDEOS / "ucf101").is_dir(),
    reason="there are no real clips: name their folder in VSSL_TEST_VIDEOS, or put them into "
    "../shared/videos beside the repository",
)
RAR_TOOLS = [t for t in ("unar", "bsdtar", "unrar") if shutil.which(t)]
CHECKING = [t for t in RAR_TOOLS if t != "bsdtar"]  # compare checksums
rar = pytest.mark.skipif(
    not RAR_TOOLS, reason="no program that reads rar is installed (apt install unar)"
)


def script(name, *args):
    return warm.run(args, script=SCRIPTS / f"prepare_{name}.py")


@pytest.fixture(scope="session")
def clip(tmp_path_factory):
    "The bytes of a small video of so many frames."
    folder, made = tmp_path_factory.mktemp("clips"), {}

    def make(frames=40):
        if frames not in made:
            made[frames] = encode(
                folder / f"{frames}.mp4", np.full((frames, 32, 32, 3), 90, np.uint8)
            ).read_bytes()
        return made[frames]

    return make


def files(folder):
    return sorted(
        p.relative_to(folder).as_posix()
        for p in folder.rglob("*")
        if p.is_file() and ".prepare" not in p.parts
    )


def extract_archive(paths, out):
    archives.extract_archive(paths if isinstance(paths, list) else [paths], out, progress=False)


def prepare_packed(dataset, source, lists, out):
    "As the scripts do it."
    videos, lists = unpacked([source], [lists], out, progress=False)
    return prepare_dataset(dataset, videos, lists, out, progress=False)


def put(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


# archives, written here byte by byte


def zipped(members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, data in members:
            info = zipfile.ZipInfo(name)
            if data is None:
                info.external_attr, data = 0o120777 << 16, b"/etc/passwd"
            else:
                info.external_attr = 0o100644 << 16
            z.writestr(info, data)
    return out.getvalue()


def tarred(members, compression=""):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=f"w:{compression}") as t:
        for name, data in members:
            info = tarfile.TarInfo(name)
            if isinstance(data, str):
                info.type, info.linkname = (
                    {
                        "sym": tarfile.SYMTYPE,
                        "hard": tarfile.LNKTYPE,
                        "fifo": tarfile.FIFOTYPE,
                        "dev": tarfile.CHRTYPE,
                    }[data],
                    "a/x",
                )
            else:
                info.size = len(data)
            t.addfile(info, io.BytesIO(data) if isinstance(data, bytes) else None)
    return out.getvalue()


def rarred(members):
    "RAR 4, stored: what a rar program writes with -m0; folders are separated by backslashes."

    def block(kind, flags, body, data=b""):
        head = struct.pack("<BHH", kind, flags, 7 + len(body)) + body
        return struct.pack("<H", zlib.crc32(head) & 0xFFFF) + head + data

    out = b"Rar!\x1a\x07\x00" + block(0x73, 0, bytes(6))
    for name, data in members:
        name = name.replace("/", "\\")
        mode, data = (0o120777, b"/etc/passwd") if data is None else (0o100644, data)
        head = struct.pack(
            "<IIBIIBBHI",
            len(data),
            len(data),
            3,
            zlib.crc32(data),
            0x5A210000,
            20,
            0x30,
            len(name.encode()),
            mode,
        )
        out += block(0x74, 0x8000, head + name.encode(), data)
    return out + block(0x7B, 0x4000, b"")


KINDS = {
    "zip": zipped,
    "tar": tarred,
    "tar.gz": lambda m: tarred(m, "gz"),
    "tar.bz2": lambda m: tarred(m, "bz2"),
    "tar.xz": lambda m: tarred(m, "xz"),
    "rar": rarred,
}
kinds = pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=rar) if k == "rar" else k for k in KINDS]
)
NOISE = np.random.default_rng(0).bytes(30_000)  # does not compress


@kinds
def test_a_right_archive_comes_out_as_it_went_in(tmp_path, kind):
    members = [("d/a.bin", NOISE), ("d/empty.bin", b""), ("d/#1 (x)[y] ü.bin", b"hello")]
    archive = put(tmp_path / f"a.{kind}", KINDS[kind](members))
    extract_archive(archive, tmp_path / "out")
    assert files(tmp_path / "out") == sorted(name for name, _ in members)
    assert {name: (tmp_path / "out" / name).read_bytes() for name, _ in members} == dict(members)


@kinds
def test_a_truncated_archive_is_one_sentence_that_names_it_and_nothing_of_it_is_kept(
    tmp_path, kind
):
    members = [(f"d/{i}.bin", NOISE[i:]) for i in range(4)]
    whole = KINDS[kind](members)
    cuts = [len(whole) * 2 // 3, len(whole) // 10] + (
        [len(whole) - 4] if kind in ("zip", "tar.gz", "tar.xz") else []
    )
    # where a file ends, and in a header
    if kind == "tar":
        cuts += [512 * (1 + 59), 512 * (1 + 59) + 100]
    for cut in cuts:
        archive = put(tmp_path / f"a.{kind}", whole[:cut])
        with pytest.raises(PrepareError, match=f"^a.{kind}: ends early or is damaged") as e:
            extract_archive(archive, tmp_path / "out")
        assert "\n" not in str(e.value) and files(tmp_path / "out") == []
    put(tmp_path / f"a.{kind}", whole)
    extract_archive(tmp_path / f"a.{kind}", tmp_path / "out")
    assert {name: (tmp_path / "out" / name).read_bytes() for name, _ in members} == dict(members)


def test_a_damaged_header_of_a_tar_is_not_taken_for_its_end(tmp_path):
    broken = bytearray(tarred([(f"d/{i}.bin", NOISE[i:]) for i in range(3)]))
    broken[512 * (1 + 59) + 20] ^= 1  # in the name of the second file
    with pytest.raises(PrepareError, match="it has no end"):
        extract_archive(put(tmp_path / "a.tar", bytes(broken)), tmp_path / "out")
    assert files(tmp_path / "out") == []


@kinds
@pytest.mark.parametrize(
    "name", ["../x", "d/../../x", "/tmp/vssl-x", "C:/x", "C:x", "..\\x", ".Prepare/lock"]
)
def test_no_member_leaves_the_target(tmp_path, kind, name):
    if kind == "rar" and "\\" in name:
        return  # the same as the first
    archive = put(tmp_path / f"a.{kind}", KINDS[kind]([("fine.bin", b"fine"), (name, b"evil")]))
    with pytest.raises(PrepareError, match="leads out of the target|lies in .prepare, which"):
        extract_archive(archive, tmp_path / "deep" / "out")
    assert (
        not [p for p in tmp_path.rglob("*") if p.name in ("x", "vssl-x", "C:x", "..\\x")]
        and not Path("/tmp/vssl-x").exists()
    )


@kinds
def test_names_that_occur_twice_are_refused(tmp_path, kind):
    archive = put(
        tmp_path / f"a.{kind}",
        KINDS[kind]([("d/a", b"1"), ("d/b", b"22"), ("d//a" if kind == "zip" else "d/a", b"333")]),
    )
    with pytest.raises(PrepareError, match="holds 'd/a' twice"):
        extract_archive(archive, tmp_path / "out")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    "kind, what",
    [
        ("zip", None),
        pytest.param("rar", None, marks=rar),
        *(("tar", what) for what in ("sym", "hard", "fifo", "dev")),
    ],
)
def test_links_and_devices_are_refused(tmp_path, kind, what):
    archive = put(tmp_path / f"a.{kind}", KINDS[kind]([("a/x", b"1"), ("a/link", what)]))
    with pytest.raises(PrepareError, match="'a/link' is a link or a device"):
        extract_archive(archive, tmp_path / "out")
    assert not (tmp_path / "out/a/link").is_symlink() and not (tmp_path / "out/a/link").exists()


@kinds
def test_wrong_bytes_are_found(tmp_path, kind):
    members = [(f"d/{i}.bin", NOISE[i:]) for i in range(3)]
    whole = KINDS[kind](members)
    # without checksums of the contents
    if kind == "tar" or kind == "rar" and not CHECKING:
        return
    at = {"tar.xz": 20_000}.get(kind, len(whole) * 4 // 5)
    broken = bytearray(whole)
    broken[at] ^= 1
    with pytest.raises(PrepareError, match="is damaged"):
        extract_archive(put(tmp_path / f"a.{kind}", bytes(broken)), tmp_path / "out")
    assert files(tmp_path / "out") == []
    extract_archive(put(tmp_path / f"a.{kind}", whole), tmp_path / "out")
    assert all((tmp_path / "out" / name).read_bytes() == data for name, data in members)


def test_a_link_that_is_there_already_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/d").symlink_to(tmp_path / "elsewhere")
    archive = put(tmp_path / "a.zip", zipped([("d/e/x", b"1")]))
    with pytest.raises(PrepareError, match="is a link, which extraction does not follow"):
        extract_archive(archive, tmp_path / "out")
    assert not files(tmp_path / "elsewhere")


def test_archives_in_archives(tmp_path):
    members = {c: [(f"{c}/{i}.avi", f"{c}{i}".encode()) for i in range(3)] for c in ("wave", "run")}
    archive = put(
        tmp_path / "all.zip",
        zipped(
            [("run.tar.gz", tarred(members["run"], "gz")), ("wave.zip", zipped(members["wave"]))]
        ),
    )
    extract_archive(archive, tmp_path / "out")
    assert files(tmp_path / "out") == sorted(n for m in members.values() for n, _ in m)
    # another archive of that name
    extract_archive(
        put(tmp_path / "all.zip", zipped([("sub/more.zip", zipped([("a.txt", b"1")]))])),
        tmp_path / "out2",
    )
    assert files(tmp_path / "out2") == ["sub/a.txt"]
    # Python takes it for the zip that is in it
    cut = put(tmp_path / "cut.zip", zipped([("wave.zip", zipped(members["wave"]))])[:-30])
    with pytest.raises(PrepareError, match="table of contents is missing"):
        extract_archive(cut, tmp_path / "out3")
    broken = put(tmp_path / "b.zip", zipped([("wave.zip", zipped([("../../x", b"1")]))]))
    with pytest.raises(PrepareError, match="^b.zip/wave.zip: its member .* leads out"):
        extract_archive(broken, tmp_path / "out4")
    broken = put(
        tmp_path / "c.zip",
        zipped([("wave.zip", zipped(members["wave"])), ("more.zip", zipped(members["wave"]))]),
    )
    with pytest.raises(PrepareError, match="twice"):
        extract_archive(broken, tmp_path / "out5")


def test_what_is_extracted_already_is_left_alone_also_after_a_kill(tmp_path):
    made = [
        put(tmp_path / f"{c}.zip", zipped([(f"{c}/{i}.bin", NOISE[i:]) for i in range(40)]))
        for c in "abc"
    ]
    code = """
import sys, os, signal
sys.path.append(sys.argv[5])
import archives
from pathlib import Path
write,n = archives._write_member,0
def counted(*args):
    global n
    n += 1
    if n == 70: os.kill(os.getpid(), signal.SIGKILL)
    write(*args)
archives._write_member = counted
archives.extract_archive([*map(Path, sys.argv[1:4])], Path(sys.argv[4]), progress=False)"""
    done = subprocess.run([sys.executable, "-c", code, *made, tmp_path / "out", SCRIPTS])
    # the first archive
    assert done.returncode == -signal.SIGKILL and len(files(tmp_path / "out")) == 40
    before = {p: (tmp_path / "out" / p).stat().st_mtime_ns for p in files(tmp_path / "out")}
    for _ in range(2):
        extract_archive(made, tmp_path / "out")
        assert (
            len(files(tmp_path / "out")) == 120
            and not (tmp_path / "out/.prepare/unpacked").exists()
        )
        assert {p: (tmp_path / "out" / p).stat().st_mtime_ns for p in before} == before
    assert {p.read_bytes() for p in (tmp_path / "out").glob("*/5.bin")} == {NOISE[5:]}


@pytest.mark.parametrize("tool", RAR_TOOLS or ["none"])
@rar
def test_every_installed_program_reads_rar(tmp_path, monkeypatch, tool):
    monkeypatch.setattr(archives, "RAR", {tool: archives.RAR[tool]})
    archive = put(tmp_path / "a.rar", rarred([("d/a.bin", NOISE), ("d/b.bin", b"1")]))
    extract_archive(archive, tmp_path / "out")
    assert (tmp_path / "out/d/a.bin").read_bytes() == NOISE
    data = archive.read_bytes().replace(NOISE[100:110], b"0123456789")
    if tool == "bsdtar":
        return  # it compares no checksums
    with pytest.raises(PrepareError, match="damaged"):
        extract_archive(put(tmp_path / "b.rar", data), tmp_path / "out2")


FAKE = {
    "unar": ("lsar", '{"lsarContents": [{"XADFileName": "d/a b"}, {"XADFileName": "d"}]}'),
    "unrar": ("unrar", "d/a b\nd\n"),
    "7z": ("7z", "Path = d/a b\nFolder = -\n\nPath = d\nFolder = +\n"),
    "bsdtar": ("bsdtar", "d/a b\nd/\n"),
}


@pytest.mark.parametrize("tool", FAKE)
def test_how_every_program_is_called(tmp_path, monkeypatch, tool):
    "Programs that print what theirs print, and extract what they are told."
    lister, text = FAKE[tool]
    for name in {lister, tool}:
        # listings have no folder among their arguments
        script = put(
            tmp_path / "bin" / name,
            f"""#!{sys.executable}
import sys, pathlib
at = next((i for i,a in enumerate(sys.argv) if 'unpacked' in a), None)
if at is None: sys.stdout.write({text!r}); sys.exit(b'locked' in open(sys.argv[-1], 'rb').read())
folder = pathlib.Path(sys.argv[at].removeprefix('-o'))/'d'
folder.mkdir(); (folder/'a b').write_bytes(b'1')
""",
        )
        script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    extract_archive(put(tmp_path / "x y.rar", b"Rar!"), tmp_path / "o ut")
    assert files(tmp_path / "o ut") == ["d/a b"]
    with pytest.raises(
        PrepareError, match=f"^b.rar: ends early or is damaged .{tool} cannot list it"
    ):
        extract_archive(put(tmp_path / "b.rar", b"Rar!locked"), tmp_path / "out2")


def test_a_rar_without_a_program_for_it_names_them(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        PrepareError,
        match=r"a.rar: is a rar, which needs .*unar, unrar, 7z or bsdtar.*apt "
        r"install unar",
    ):
        extract_archive(put(tmp_path / "a.rar", rarred([("x", b"1")])), tmp_path / "out")


def test_what_is_no_archive_is_said(tmp_path):
    with pytest.raises(PrepareError, match="a.zip: is no zip, rar or tar .it starts with b'<html>"):
        extract_archive(put(tmp_path / "a.zip", "<html>404</html>"), tmp_path / "out")
    with pytest.raises(PrepareError, match="b.rar: is no zip, rar or tar .it is empty"):
        extract_archive(put(tmp_path / "b.rar", ""), tmp_path / "out")


# datasets


@pytest.fixture(scope="module")
def lists(tmp_path_factory):
    "The lists of the 270 clips, with the line ends of the official ones."
    folder = tmp_path_factory.mktemp("lists")
    for f in (VIDEOS / "ucfTrainTestlist_subset270").iterdir():
        put(folder / f.name, f.read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"))
    return folder


@pytest.fixture(scope="module")
def official(tmp_path_factory, lists):
    "The 270 clips as UCF-101 unpacks, prepared once by the script."
    root = tmp_path_factory.mktemp("ucf")
    (root / "UCF-101").mkdir()
    for folder in (VIDEOS / "ucf101").iterdir():
        (root / "UCF-101" / folder.name).symlink_to(folder, target_is_directory=True)
    done = script("ucf101", root / "UCF-101", "--lists", lists, "--quiet")
    assert done.returncode == 0, done.stderr
    return root / "UCF-101", done.stdout


@real
def test_ucf101_from_the_official_lists(official):
    folder, text = official
    m = manifest.read(folder)
    assert [(len(m.select("train", i)), len(m.select("test", i))) for i in (1, 2, 3)] == [
        (189, 81),
        (180, 90),
        (207, 63),
    ]
    assert {r.source for r in m.rows} == {
        f"{p.name}/g{i:02}" for p in (VIDEOS / "ucf101").iterdir() for i in range(1, 26)
    }
    assert all(f"_{r.source.split('/')[1]}_" in r.video for r in m.rows)
    with open(VIDEOS / "MANIFEST.csv", newline="") as f:
        frames = {
            r["path"]: int(r["decoded_frames"])
            for r in csv.DictReader(f)
            if r["path"].startswith("ucf101/")
        }
    assert {f"ucf101/{r.video}": r.frames for r in m.rows} == frames
    for line in (
        "split 1: 189 train, 81 test, 0 in neither",
        "split 3: 207 train, 63 test",
        "not the official UCF101: 270 videos instead of 13,320; 9 classes instead of 101; split 1 "
        "189/81 "
        "instead of 9,537/3,783",
    ):
        assert line in text, text


@real
def test_ucf101_killed_halfway_and_run_again(official, lists, tmp_path, monkeypatch):
    there = tmp_path / "UCF-101"
    there.mkdir()
    for folder in (VIDEOS / "ucf101").iterdir():
        (there / folder.name).symlink_to(folder, target_is_directory=True)
    log = there / ".prepare/probes.jsonl"
    run = warm.Command([there, "--lists", lists, "--quiet"], script=SCRIPTS / "prepare_ucf101.py")
    while run.poll() is None and not (log.exists() and log.read_bytes().count(b"\n") > 90):
        time.sleep(0.02)
    run.kill()
    assert run.wait() == -signal.SIGKILL and not (there / "manifest.csv").exists()
    # a kill in the middle of a line
    with open(log, "ab") as f:
        f.write(b'{"video": "Archery/v_Arc')
    decoded = []
    monkeypatch.setattr(
        "vssl_nb.data.video.probe", lambda path: decoded.append(path) or probe(path)
    )
    prepare_dataset("ucf101", there, lists, progress=False)
    assert 0 < len(decoded) < 180 and len(manifest.read_probes(log)) == 270
    assert (there / "manifest.csv").read_bytes() == (official[0] / "manifest.csv").read_bytes()


@real
def test_videos_on_a_disk_of_their_own_are_linked(tmp_path):
    done = prepare_dataset("folder", VIDEOS / "hmdb51", out=tmp_path / "out", progress=False)
    assert [r.label for r in done.manifest.rows] == ["cartwheel", "wave", "wave", "wave"]
    assert (tmp_path / "out/manifest.csv").is_file() and all(
        done.manifest.file(i).is_file() for i in range(len(done.manifest))
    )
    assert not list(VIDEOS.glob("*/.prepare"))


def test_ucf101_with_handstand_in_its_two_spellings_and_from_archives(tmp_path, clip):
    names = [
        "HandstandPushups/v_HandStandPushups_g01_c01",
        "HandstandPushups/v_HandStandPushups_g08_c01",
        "Archery/v_Archery_g08_c02",
    ]
    lists = [
        (
            "ucfTrainTestlist/trainlist01.txt",
            b"HandstandPushups/v_HandStandPushups_g08_c01.avi "
            b"2\r\nArchery/v_Archery_g08_c02.avi 1\r\n",
        ),
        (
            "ucfTrainTestlist/testlist01.txt",
            b"HandStandPushups/v_HandStandPushups_g01_c01.avi\r\nArchery/v_Archery_g01_c01.avi\r\n",
        ),
        ("ucfTrainTestlist/classInd.txt", b"1 Archery\r\n2 HandstandPushups\r\n"),
    ]
    source = put(
        tmp_path / "in/UCF101.tar.gz", tarred([(f"UCF-101/{n}.avi", clip()) for n in names], "gz")
    )
    zip_ = put(tmp_path / "lists.zip", zipped(lists))
    done = prepare_packed("ucf101", source, zip_, tmp_path / "out")
    assert {(r.video, r.source, r.split1) for r in done.manifest.rows} == {
        ("UCF-101/HandstandPushups/v_HandStandPushups_g01_c01.avi", "HandstandPushups/g01", "test"),
        (
            "UCF-101/HandstandPushups/v_HandStandPushups_g08_c01.avi",
            "HandstandPushups/g08",
            "train",
        ),
        ("UCF-101/Archery/v_Archery_g08_c02.avi", "Archery/g08", "train"),
    }
    assert (
        done.missing == ["archery/v_archery_g01_c01"]
        and (tmp_path / "out/.prepare/missing.txt").read_text() == "archery/v_archery_g01_c01\n"
    )
    first = (tmp_path / "out/manifest.csv").read_bytes()
    assert (
        prepare_packed("ucf101", source, zip_, tmp_path / "out")
        and (tmp_path / "out/manifest.csv").read_bytes() == first
    )


HMDB = {
    "wave": [
        "TrumanShow_wave_f_nm_np1_fr_med_26",
        "TrumanShow_wave_f_nm_np1_fr_med_27",
        "prelinger_LetsBeGo1953_wave_u_cm_np10_ba_med_2",
    ],
    "shoot_gun": [
        "TrumanShow_shoot_gun_u_cm_np1_le_med_0",
        "#4 [x]_(y)!_shoot_gun_u_cm_np2_ri_goo_1",
    ],
}


def hmdb(parts=(1, 2, 0)):
    "The official lists for these clips."
    return [
        (
            f"testTrainMulti_7030_splits/{c}_test_split{s}.txt",
            "".join(f"{n}.avi {parts[(i + s) % 3]} \r\n" for i, n in enumerate(names)).encode(),
        )
        for c, names in HMDB.items()
        for s in (1, 2, 3)
    ]


@pytest.mark.parametrize("kind", [pytest.param("rar", marks=rar), "zip"])
def test_hmdb51_as_archives_of_archives(tmp_path, clip, kind):
    make = KINDS[kind]
    source = put(
        tmp_path / f"hmdb51_org.{kind}",
        make(
            [
                (f"{c}.{kind}", make([(f"{c}/{n}.avi", clip()) for n in names]))
                for c, names in HMDB.items()
            ]
        ),
    )
    lists = put(tmp_path / f"test_train_splits.{kind}", make(hmdb()))
    done = prepare_packed("hmdb51", source, lists, tmp_path / "out")
    rows = {Path(r.video).stem: r for r in done.manifest.rows}
    assert [rows[n].source for n in (*HMDB["wave"], *HMDB["shoot_gun"])] == [
        "wave/TrumanShow",
        "wave/TrumanShow",
        "wave/prelinger_LetsBeGo1953",
        "shoot_gun/TrumanShow",
        "shoot_gun/#4 [x]_(y)!",
    ]
    for s in (1, 2, 3):
        assert [getattr(rows[n], f"split{s}") for n in HMDB["wave"]] == [
            ("train", "test", "")[(i + s) % 3] for i in range(3)
        ]
    assert not done.missing and not done.extra and done.manifest.labels == ["shoot_gun", "wave"]


def test_hmdb51_with_iics_lists_and_the_released_rule(tmp_path, clip):
    for i, n in enumerate(HMDB["wave"]):
        put(tmp_path / f"v/wave/{n}.avi", clip((17, 18, 40)[i]))
    for part, names in (("train", HMDB["wave"][:2]), ("test", HMDB["wave"][2:])):
        put(tmp_path / f"lists/{part}list01.txt", "".join(f"wave/{n}.avi\n" for n in names))
    rows = prepare_dataset(
        "hmdb51", tmp_path / "v", tmp_path / "lists", progress=False
    ).manifest.rows
    assert {Path(r.video).stem: r.split1 for r in rows} == dict(
        zip(HMDB["wave"], ("train", "train", "test"))
    )
    assert usable("hmdb51", tmp_path) == {17, 18, 40}
    assert usable("hmdb51", tmp_path, "--drop", "released") == {18, 40}
    assert usable("hmdb51", tmp_path, "--drop", "released", "--stride", 2) == {40}
    with pytest.raises(PrepareError, match="length is 0"):
        usable("hmdb51", tmp_path, "--drop", "released", "--length", 0)


def usable(
    dataset,
    home,
    *options,
):  # frames of the videos that a script leaves usable
    given = command.arguments(dataset, "").parse_args(
        [str(x) for x in (home / "v", "--lists", home / "lists", "--quiet", *options)]
    )
    command.work(dataset, given)
    return {r.frames for r in read(home / "v").rows if r.status == "ok"}


@real
def test_the_official_hmdb51_splits_share_no_film_within_a_class():
    for s in (1, 2, 3):
        films = {}
        for part, n in (("train", 3570), ("test", 1530)):
            names = (VIDEOS / f"hmdb51_splits_iic/{part}list0{s}.txt").read_text().split()
            films[part] = {name: prepare._hmdb51_source(name, name.split("/")[0]) for name in names}
            assert len(names) == n and all(
                film != name.removesuffix(".avi") for name, film in films[part].items()
            )
        assert not set(films["train"].values()) & set(films["test"].values())


def test_kinetics_in_folders_or_flat_with_videos_missing(tmp_path, clip):
    head = "label,youtube_id,time_start,time_end,split\n"
    lists = [
        put(
            tmp_path / "l/train.csv",
            head + '"petting animal (not '
            'cat)",-_a-Bc_dE0_,10,20,train\nyoga,AAAAAAAAAAA,0,10,train\nyoga,aaaaaaaaaaa,5,15,train\n',
        ),
        put(tmp_path / "l/validate.csv", head + "yoga,BBBBBBBBBBB,1,11,validate\n"),
        put(
            tmp_path / "l/test.csv", "youtube_id,time_start,time_end,split\nCCCCCCCCCCC,2,12,test\n"
        ),
    ]
    for name, t in {
        "petting/-_a-Bc_dE0__000010_000020": 33,
        "AAAAAAAAAAA": 34,
        "val/BBBBBBBBBBB_000001_000011": 40,
        "CCCCCCCCCCC": 40,
        "unknown/AAAAAAAAAAA_000003_000013": 40,
    }.items():
        put(tmp_path / f"v/{name}.mp4", clip(t))
    done = prepare_dataset("kinetics400", tmp_path / "v", lists, tmp_path, progress=False)
    assert [(r.video, r.label, r.split1, r.source) for r in done.manifest.rows] == [
        (f"v/{n}.mp4", label, part, n)
        for n, label, part in (
            ("AAAAAAAAAAA", "yoga", "train"),
            ("CCCCCCCCCCC", "", ""),
            ("petting/-_a-Bc_dE0__000010_000020", "petting animal (not cat)", "train"),
            ("unknown/AAAAAAAAAAA_000003_000013", "", ""),
            ("val/BBBBBBBBBBB_000001_000011", "yoga", "test"),
        )
    ]
    assert done.missing == ["aaaaaaaaaaa_000005_000015"] and done.extra == [
        "unknown/AAAAAAAAAAA_000003_000013.mp4"
    ]
    assert "2 classes instead of 400" in str(
        done
    ) and "in the lists, not on disk: 1, such as aaaaaaaaaaa_000005_000015" in str(done)
    (tmp_path / "l").rename(tmp_path / "lists")
    assert usable("kinetics400", tmp_path) == {33, 34, 40}
    assert usable("kinetics400", tmp_path, "--drop", "released") == {34, 40}


def test_ssv2_from_an_archive_and_templates(tmp_path, clip):
    whole = tarred([(f"20bn-something-something-v2/{i}.webm", clip()) for i in (1, 2, 3)], "gz")
    archive = put(tmp_path / "in/20bn-something-something-v2.tar.gz", whole)
    entry = lambda i, template: dict(
        id=str(i),
        label=template.replace("[something]", "a cup"),
        template=template,
        placeholders=["a cup"],
    )
    put(
        tmp_path / "l/something-something-v2-train.json",
        json.dumps(
            [entry(1, "Holding [something] next to [something]"), entry(9, "Holding [something]")]
        ),
    )
    put(
        tmp_path / "l/something-something-v2-validation.json",
        json.dumps([entry(2, "Pushing [something] so it spins")]),
    )
    put(tmp_path / "l/something-something-v2-test.json", json.dumps([dict(id="3")]))
    labels = put(
        tmp_path / "l/labels.json",
        json.dumps({"Holding something": "1", "Holding something next to something": "0"}),
    )
    done = prepare_packed("ssv2", archive, tmp_path / "l", tmp_path / "out")
    assert [(r.video, r.label, r.split1) for r in done.manifest.rows] == [
        (f"20bn-something-something-v2/{i}.webm", label, part)
        for i, label, part in (
            (1, "Holding something next to something", "train"),
            (2, "Pushing something so it spins", "test"),
            (3, "", ""),
        )
    ]
    assert done.missing == ["9"] and "3 videos instead of 220,847" in str(done)
    labels.write_text("[{")
    with pytest.raises(PrepareError, match="labels.json: is not JSON"):
        prepare_packed("ssv2", archive, tmp_path / "l", tmp_path / "out")


def test_a_folder_of_ones_own(tmp_path, clip):
    for name in ("cat/cam1_0.mp4", "cat/cam1_1.mp4", "dog/cam2_0.mp4", "top.mp4"):
        put(tmp_path / name, clip())
    put(tmp_path / "dog/broken.mp4", b"no video")
    done = script("folder", tmp_path, "--source-pattern", r"(cam\d)", "--quiet")
    assert (
        done.returncode == 0
        and "not used: 1, such as dog/broken.mp4: is not a video" in done.stdout
    )
    assert [(r.video, r.label, r.source) for r in manifest.read(tmp_path).rows] == [
        ("cat/cam1_0.mp4", "cat", "cam1"),
        ("cat/cam1_1.mp4", "cat", "cam1"),
        ("dog/broken.mp4", "dog", "dog/broken"),
        ("dog/cam2_0.mp4", "dog", "cam2"),
        ("top.mp4", "", "top"),
    ]


def test_files_that_declare_more_frames_than_decode_are_named(tmp_path, clip):
    if VIDEOS is None:
        pytest.skip("there are no real clips")
    for name in ("truncated_60pct", "bitflips_400", "hole_30k_zeros"):
        shutil.copy(VIDEOS / f"odd/derived/{name}.avi", tmp_path)
    put(tmp_path / "whole.mp4", clip())
    assert prepare_dataset("folder", tmp_path, progress=False).short == [
        "bitflips_400.avi",
        "hole_30k_zeros.avi",
        "truncated_60pct.avi",
    ]


def test_flow_is_kept_and_a_manifest_of_somebody_else_is_not_overwritten(tmp_path, clip):
    put(tmp_path / "a.mp4", clip())
    m = prepare_dataset("folder", tmp_path, progress=False).manifest
    manifest.write(m.path, [replace(r, flow="flow/a.mkv") for r in m.rows])
    put(tmp_path / "b.mp4", clip())
    assert [r.flow for r in prepare_dataset("folder", tmp_path, progress=False).manifest.rows] == [
        "flow/a.mkv",
        "",
    ]
    shutil.rmtree(tmp_path / ".prepare")
    with pytest.raises(PrepareError, match="was not written by this program"):
        prepare_dataset("folder", tmp_path, progress=False)


def test_a_table_with_labels_by_hand_is_kept_as_a_dated_copy(tmp_path, clip):
    """Prepared twice: what a person typed is in a copy, which is named; without a change there is
    no copy.
    """
    for name in "ab":
        put(tmp_path / f"{name}.mp4", clip())
    m = prepare_dataset("folder", tmp_path, progress=False).manifest
    manifest.write(
        m.path, [replace(r, label=f"typed {r.video}") for r in m.rows], {"remark": ["seen", ""]}
    )
    typed = m.path.read_bytes()
    done = prepare_dataset("folder", tmp_path, progress=False)
    [copy] = tmp_path.glob("manifest-*.csv")
    assert copy.read_bytes() == typed and f"which is kept as {copy.name}" in str(done)
    assert [r.label for r in done.manifest.rows] == ["", ""]
    again = prepare_dataset("folder", tmp_path, progress=False)
    assert again.notes == [] and [*tmp_path.glob("manifest-*.csv")] == [copy]
    manifest.write(m.path, [replace(r, label="typed again") for r in m.rows])
    prepare_dataset("folder", tmp_path, progress=False)
    assert len([*tmp_path.glob("manifest-*.csv")]) == 2 and copy.read_bytes() == typed


def test_archives_beside_videos_that_are_extracted_already(tmp_path, clip):
    put(tmp_path / "in/UCF-101/Archery/v_Archery_g01_c01.avi", clip())
    put(
        tmp_path / "in/lists.zip",
        zipped([("trainlist01.txt", b""), ("testlist01.txt", b"Archery/v_Archery_g01_c01.avi\n")]),
    )
    # beside the videos, elsewhere, and where archives may have been extracted
    for out in (None, tmp_path / "out", tmp_path / "in"):
        done = prepare_packed("ucf101", tmp_path / "in", tmp_path / "in/lists.zip", out)
        assert [r.split1 for r in done.manifest.rows] == ["test"]


def test_one_run_at_a_time(tmp_path, clip):
    put(tmp_path / "a.mp4", clip())
    (tmp_path / ".prepare").mkdir()
    with manifest.one_at_a_time(tmp_path / ".prepare" / "lock"):
        run = warm.Command([tmp_path, "--quiet"], script=SCRIPTS / "prepare_folder.py")
        with pytest.raises(subprocess.TimeoutExpired):
            run.wait(1)
        assert not (tmp_path / "manifest.csv").exists()  # it waits
    assert run.wait() == 0 and (tmp_path / "manifest.csv").exists()


def test_mistakes_are_one_sentence_and_exit_code_2(tmp_path, clip, monkeypatch, capsys):
    put(tmp_path / "v/wave/a.mp4", clip())
    archive = put(tmp_path / "a.zip", zipped([("wave/a.mp4", clip())]))
    bad = put(tmp_path / "bad_test_split1.txt", "a.mp4 7\n")
    run = put(tmp_path / "run" / "recipe.json", "{}")
    # one as a process, the others where the library is loaded
    done = script("hmdb51", tmp_path / "v", "--lists", bad)
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        f"{bad}: line 1 is 'a.mp4 7', not a file "
        "name and 0, 1 or 2; take the list from the owners\n",
    )
    import command

    for sentence, (name, *args) in {
        "there is no such file or folder": ("folder", tmp_path / "nothing"),
        "name the folder to extract it to with --out": ("folder", archive),
        "holds no lists of UCF101 (trainlist0*.txt)": ("ucf101", tmp_path / "v"),
        "no archive and no folder is named": ("ssv2",),
        "workers is 0; take at least 1": ("folder", tmp_path / "v", "--workers", 0),
        "unrecognized arguments: --nope": ("folder", "--nope"),
        "holds none of the 1 videos of the lists, such as bad/b": (
            "hmdb51",
            tmp_path / "v",
            "--lists",
            put(tmp_path / "l/bad_test_split1.txt", "b.avi 1\n"),
        ),
        "has no video": ("folder", tmp_path / "l"),
        "is a file, not a folder; choose another --out": (
            "folder",
            tmp_path / "v",
            "--out",
            archive / "x",
        ),
        "is a file; choose another --out": ("folder", tmp_path / "v", "--out", archive),
        "is a run; choose another --out": ("folder", tmp_path / "v", "--out", run.parent),
        "--out: '' is no path": ("folder", tmp_path / "v", "--out", ""),
        "source: '' is no path": ("folder", ""),
    }.items():
        monkeypatch.setattr(sys, "argv", [f"prepare_{name}.py", *map(str, args)])
        with pytest.raises(SystemExit) as e:
            command.main(name, "about")
        out, err = capsys.readouterr()
        assert e.value.code == 2 and out == "" and sentence in err and len(err.splitlines()) == 1, (
            err
        )
    with pytest.raises(PrepareError, match="there is no dataset 'ucf'"):
        prepare_dataset("ucf", tmp_path)


# lists and copies


def test_what_official_lists_hold(tmp_path):
    official = put(
        tmp_path / "wave_test_split1.txt",
        "A_b_wave_f_nm_np1_fr_med_0.avi 1 \r\n"
        "A_b_wave_f_nm_np1_fr_med_1.avi 2 \r\nC_wave_u_cm_np10_ba_bad_2.avi 0 \r\n",
    )
    assert [e["split1"] for e in prepare._hmdb51([official]).entries.values()] == [
        "train",
        "test",
        "",
    ]
    names = ("A_b_wave_f_nm_np1_fr_med_0", "C_wave_u_cm_np10_ba_bad_2", "other")
    sources = [prepare._hmdb51_source(f"wave/{n}.avi", "wave") for n in names]
    assert sources == ["wave/A_b", "wave/C", "wave/other"]
    sheet = put(
        tmp_path / "val.csv",
        "label,youtube_id,time_start,time_end,split\nair drumming,-_a-Bc_dE0_,10,20,val\n",
    )
    # the same entry by either name
    for video in ("x/-_a-Bc_dE0_.mp4", "-_a-Bc_dE0__000010_000020.mp4"):
        stem = prepare._stem(video)
        assert prepare._kinetics([sheet]).alias.get(stem, stem) == "-_a-Bc_dE0__000010_000020"
    assert prepare._kinetics([sheet]).entries["-_a-Bc_dE0__000010_000020"]["split1"] == "test"
    both = put(tmp_path / "train.csv", sheet.read_text().replace(",val", ",train"))
    with pytest.raises(PrepareError, match="is in another part too"):
        prepare._kinetics([sheet, both])
    part = put(
        tmp_path / "validation.json",
        '[{"id": "7", "label": "holding potato", "template": "Holding [something]"}]',
    )
    assert prepare._ssv2([part]).entries == {"7": {"label": "Holding something", "split1": "test"}}


def test_a_dataset_with_a_broken_file_again_and_again(tmp_path):
    "A second run decodes nothing; the table of keyframes holds originals and copies."
    walk = lambda t: (
        np.full((t, 32, 32, 3), 90, np.uint8) + np.arange(t, dtype=np.uint8)[:, None, None, None]
    )
    names = {"A_wave_f_nm_np1_fr_med_0": 40, "A_wave_f_nm_np1_fr_med_1": 12, "new": 30}
    (tmp_path / "wave").mkdir()
    for name, t in names.items():
        encode(tmp_path / f"wave/{name}.mp4", walk(t))
    put(tmp_path / "wave/B_wave_u_cm_np1_ba_bad_0.avi", "this was a video")
    put(
        tmp_path / "lists/wave_test_split1.txt",
        "\n".join(
            f"{n}.avi {part}"
            for n, part in {
                **dict.fromkeys([*names][:2], 1),
                "B_wave_u_cm_np1_ba_bad_0": 2,
                "C_wave_u_cm_np1_ba_bad_0": 2,
            }.items()
        ),
    )
    done = prepare_dataset("hmdb51", tmp_path, progress=False)
    first, log = (
        (tmp_path / "manifest.csv").read_bytes(),
        (tmp_path / ".prepare/probes.jsonl").read_text().split(),
    )
    assert (done.missing, done.extra) == (["wave/c_wave_u_cm_np1_ba_bad_0"], ["wave/new.mp4"])
    assert [r.source for r in done.manifest.rows] == ["wave/A", "wave/A", "wave/B", "wave/new"]
    prepare_dataset("hmdb51", tmp_path, progress=False)
    assert (tmp_path / "manifest.csv").read_bytes() == first
    assert (tmp_path / ".prepare/probes.jsonl").read_text().split() == log
    copies = read(make_copies(read(tmp_path), 16, progress=False)[0])
    table = KeyframeTable(tmp_path)
    for row in copies.rows:
        keys = probe(tmp_path / row.video).keyframes if row.status == "ok" else ()
        assert table.find(row.video, tmp_path / row.video) == list(keys)
    assert table.find("wave/new.mp4", tmp_path / "wave/new.mp4")[0] == (0, 0)
    assert [n for n, _ in table.find(copies.rows[-1].video, tmp_path / copies.rows[-1].video)] == [
        0,
        8,
        16,
        24,
    ]


def test_copies(tmp_path, monkeypatch, caplog):
    for name, n in (("a/long.avi", 20), ("b/other.avi", 9)):
        (tmp_path / name).parent.mkdir()
        encode(tmp_path / name, np.random.default_rng(n).integers(0, 255, (n, 64, 96, 3), np.uint8))
    put(tmp_path / "a" / "broken.avi", "not a video")
    given = (
        ("a/long.avi", 20, "ok"),
        ("b/other.avi", 9, "ok"),
        ("a/broken.avi", 0, "is not a video"),
    )
    rows = [
        Row(v, frames=n, fps=25.0, width=96, height=64, flow=f"flow/{n}", status=s)
        for v, n, s in given
    ]

    def copies(
        rows,
    ):  # of a manifest with a column that the library does not know
        path = write(tmp_path, rows, {"remark": ["seen"] * len(rows)})
        made, remark = make_copies(read(path), 32, progress=False)
        assert made == tmp_path / "manifest_short32.csv" and made.read_text().count("seen") == len(
            rows
        )
        return [*read(made).rows], remark

    made, remark = copies(rows)
    assert [(r.video, r.frames, r.width, r.height, r.flow) for r in made] == [
        (".copies_short32/a/long.avi.mp4", 20, 48, 32, "flow/20"),
        (".copies_short32/b/other.avi.mp4", 9, 48, 32, "flow/9"),
        ("a/broken.avi", 0, 96, 64, "flow/0"),
    ]
    assert remark.startswith("2 copies of short side 32 px: ")
    assert copies([replace(rows[0], frames=21)])[0][0].video == "a/long.avi"
    assert (
        "its copy has 20 frames and it has 21; remove .copies_short32/a/long.avi.mp4" in caplog.text
    )
    # no copy
    assert manifest.find_videos(tmp_path) == ["a/broken.avi", "a/long.avi", "b/other.avi"]
    monkeypatch.setattr("vssl_nb.data.video.probe", None)
    monkeypatch.setattr(copy_videos, "transcode", None)
    assert copies(rows) == (made, remark)  # nothing is made or decoded again
    for side, workers, word in ((1, 1, "short-side is 1"), (32, 0, "workers is 0")):
        with pytest.raises(PrepareError, match=word):
            make_copies(read(tmp_path), side, workers)
    put(tmp_path / "manifest_short8.csv", "of somebody else")
    with pytest.raises(PrepareError, match="manifest_short8.csv: is there already"):
        make_copies(read(tmp_path), 8, progress=False)


# a folder of one's own, again and again


@pytest.fixture
def films(tmp_path):
    "Six videos of three days, two parts each."
    for d in (1, 2, 3):
        for part in "ab":
            film(
                tmp_path / "films" / f"day{d}_{part}.mp4", (40 * d, 90, 120 if part == "a" else 60)
            )
    return tmp_path / "films"


def film(path, colour, frames=12):
    walk = np.full((frames, 48, 64, 3), colour, np.uint8)
    for t in range(frames):
        walk[t, 10:30, 4 * (t % 12) : 4 * (t % 12) + 14] = 255 - np.array(colour)
    path.parent.mkdir(parents=True, exist_ok=True)
    return encode(path, walk)


@pytest.fixture
def decoded(monkeypatch):
    "The files that are decoded while a manifest is made."
    seen = []
    monkeypatch.setattr(
        "vssl_nb.data.video.probe", lambda file: seen.append(file.name) or probe(file)
    )
    return seen


def test_every_video_is_decoded_once_whatever_is_killed(films, tmp_path, decoded):
    names, log = sorted(f.name for f in films.iterdir()), tmp_path / "log.jsonl"
    probe_videos(films, names[:4], progress=False, log=log)  # as if it had been killed here
    found = probe_videos(films, names, progress=False, log=log)
    assert sorted(decoded) == names and [p["frames"] for p in found] == [12] * 6
    with open(log, "a") as f:
        f.write('{"video": "cut sho')  # a kill in the middle of a line
    again = probe_videos(films, names, progress=False, log=log)
    assert json.loads(json.dumps(found)) == json.loads(json.dumps(again)) and len(decoded) == 6


def test_what_was_filled_in_stays_and_what_is_new_is_added(films, decoded):
    first = update_manifest(films, source_pattern=r"(day\d)_", share=0.34, progress=False)
    assert first.began and not (films / SCAN_LOG).exists()
    labelled = [
        replace(r, label="walk" if i % 2 else "stand") for i, r in enumerate(read(films).rows)
    ]
    write(films, labelled, {"remark": [f"seen by {who}" for who in "ABCABC"]})
    film(films / "day4_a.mp4", (90, 90, 20))
    film(films / "day1_b.mp4", (200, 90, 20), frames=20)
    (films / "day2_a.mp4").unlink()
    (films / "indoors").mkdir()
    (films / "day3_b.mp4").rename(films / "indoors" / "day3_b.mp4")
    second = update_manifest(films, progress=False)
    rows = {r.video: r for r in second.rows}
    assert (second.added, second.renewed, second.moved, second.gone) == (
        ["day4_a.mp4"],
        ["day1_b.mp4"],
        {"day3_b.mp4": "indoors/day3_b.mp4"},
        ["day2_a.mp4"],
    )
    videos = ("day1_b.mp4", "day2_a.mp4", "indoors/day3_b.mp4", "day4_a.mp4")
    assert [rows[v].label for v in videos] == ["walk", "stand", "walk", ""]
    assert (rows["day1_b.mp4"].frames, rows["day2_a.mp4"].status) == (20, GONE)
    assert (films / "manifest.csv").read_text().splitlines()[1].endswith(",seen by A")
    decoded.clear()
    before = (films / "manifest.csv").read_bytes()
    assert not update_manifest(films, progress=False).changed and decoded == []
    assert (films / "manifest.csv").read_bytes() == before
    film(films / "day2_a.mp4", (10, 200, 40))
    back = update_manifest(films, progress=False)
    assert (back.renewed, back.missing) == (["day2_a.mp4"], [])
    assert {r.video: r.label for r in back.rows}["day2_a.mp4"] == "stand"


def test_a_scan_that_is_stopped_goes_on(films, monkeypatch, capsys):
    calls = []

    def dies(path):
        calls.append(path)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return probe(path)

    monkeypatch.setattr("vssl_nb.data.video.probe", dies)
    with pytest.raises(KeyboardInterrupt):
        update_manifest(films, workers=1, progress=False)
    assert (films / SCAN_LOG).exists() and not (films / "manifest.csv").exists()
    assert "the same command goes on from there" in capsys.readouterr().err
    update_manifest(films, progress=False)
    assert len(calls) == 7  # the third twice


def test_a_folder_that_is_opened_gets_a_manifest(films, tmp_path, capsys):
    made = manifest.open_data(films, progress=False)
    assert (len(made), made.labels, (films / "manifest.csv").exists()) == (6, [], True)
    assert "6 videos, 0 classes, 6 sources, 0 unreadable" in capsys.readouterr().err
    assert manifest.open_data(films).sha256 == made.sha256 and not (films / SCAN_LOG).exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(ManifestError, match="has no video"):
        manifest.open_data(tmp_path / "empty")
    assert not list((tmp_path / "empty").iterdir())
    broken = put(tmp_path / "broken" / "x.mp4", "no").parent
    for f in (update_manifest, manifest.open_data):
        with pytest.raises(
            ManifestError, match="none of the 1 videos can be used; the first: x.mp4"
        ):
            f(broken, progress=False)
        assert not (broken / "manifest.csv").exists()
    (broken / ".prepare").mkdir()
    for f in (update_manifest, manifest.open_data):
        with pytest.raises(ManifestError, match="data_scripts"):
            f(broken, progress=False)


def run(command, capsys):
    "The output of a command, given as a line: what it printed, and what it told on stderr."
    capsys.readouterr()
    assert cli.main(shlex.split(command)[1:]) == 0, capsys.readouterr()
    return capsys.readouterr()


def test_a_manifest_without_rows_is_made_again_as_its_message_has_it(films, tmp_path, capsys):
    (tmp_path / "a place").mkdir()
    place = films.rename(tmp_path / "a place" / "films")
    for text, before in (("", None), (" \n", None), (",".join(COLUMNS) + "\n", Path.unlink)):
        (place / "manifest.csv").write_text(text)
        for data in (place, place / "manifest.csv"):
            with pytest.raises(ManifestError) as e:
                manifest.open_data(data)
        assert ("delete it" in str(e.value)) == bool(before)
        if before:
            before(place / "manifest.csv")
        run(re.search("`(.*)`", str(e.value))[1], capsys)
        assert len(read(place)) == 6
    (place / "manifest.csv").unlink()
    with pytest.raises(ManifestError, match="is a folder without a manifest.csv") as e:
        read(place)
    run(re.search("`(.*)`", str(e.value))[1], capsys)
    with pytest.raises(ManifestError, match="--split 0.2") as e:
        read(place).select("test")
    run(re.search("`(.*)`", str(e.value))[1], capsys)
    assert read(place).select("test")


def test_a_folder_that_may_not_be_read_is_named_and_left_out(films, monkeypatch, capsys):
    (films / "shut").mkdir()
    film(films / "shut" / "x.mp4", (9, 9, 9))
    scan, shut = os.scandir, {str(films / "shut")}

    def forbids(path):
        if str(path) in shut:
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", forbids)
    for look in (manifest.find_videos, search.video_files):
        capsys.readouterr()
        assert len(look(films)) == 6
        assert (
            capsys.readouterr().err == f"{films}/shut: is left out, because it cannot be read "
            "(Permission denied)\n"
        )
        shut.add(str(films))
        with pytest.raises(ValueError, match="films: cannot be read [(]Permission denied[)]"):
            look(films)
        shut.remove(str(films))
    update_manifest(films, progress=False)
    assert capsys.readouterr().err.count("is left out") == 1 and len(read(films)) == 6


def test_a_source_pattern_is_not_advised_to_who_gives_one(films, decoded, capsys):
    with pytest.raises(
        ManifestError,
        match=r"-pattern \(nothing\): matches none of the 6 paths, such "
        "as day1_a.mp4; mend it, or leave it out",
    ):
        update_manifest(films, "(nothing)", progress=False)
    assert not decoded and {f.suffix for f in films.iterdir()} == {".mp4"}
    assert "name that film with --source-pattern" in str(update_manifest(films, progress=False))
    one = str(update_manifest(films, r"day(1_\w)", progress=False))
    assert "--source-pattern" not in one, one
    assert (
        "4 paths do not match the source pattern, such as day2_a.mp4: each is a recording" in one
    ), one
    all_of_them = str(update_manifest(films, r"(\w+)[.]", progress=False))
    assert "source pattern" not in all_of_them and "source-" not in all_of_them, all_of_them
    with pytest.raises(ManifestError, match="by a --source-pattern that tells them apart"):
        update_manifest(films, "(day)", share=0.2, progress=False)


def test_what_is_left_out_is_counted_and_classes_are_named(films, tmp_path, capsys):
    for name in ("b.JPG", "c.zip", "a.jpg", "NOTES", ".hidden.png"):
        put(films / name, "x")
    for place in ("walk", "sit"):
        film(films / place / "x.mp4", (9, 9, 90)) if place == "walk" else film(
            films / place / "y.mp4", (90, 9, 9)
        )
    out = run(f"vssl-nb manifest {films}", capsys).out
    assert "left out: 2 .jpg, 1 without a suffix, 1 .zip" in out, out
    assert "classes are the names of folders: sit, walk" in out, out
    again = run(f"vssl-nb manifest {films}", capsys).out
    assert "nothing has changed" in again and "2 .jpg" in again and "classes are" not in again, (
        again
    )
    put(tmp_path / "papers" / "a.pdf", "x")
    with pytest.raises(ManifestError, match="papers: has no video [(]1 .pdf; videos end in"):
        manifest.find_videos(tmp_path / "papers")


def test_gif_and_animated_webp_are_videos(tmp_path):
    "And a GIF or WebP of one picture is none."
    frames = np.zeros((6, 24, 32, 3), np.uint8)
    for t in range(6):
        frames[t, 4:14, 4 * t : 4 * t + 10] = 250, 10, 40
    first, *rest = map(Image.fromarray, frames)
    film_of = dict(save_all=True, append_images=rest, duration=100, loop=0)
    first.save(tmp_path / "a.gif", **film_of)
    first.save(tmp_path / "B.WEBP", **film_of, lossless=True)
    first.save(tmp_path / "one.gif")
    first.save(tmp_path / "one.webp", lossless=True)
    (tmp_path / "short.webp").write_bytes((tmp_path / "B.WEBP").read_bytes()[:-60])
    done = update_manifest(tmp_path, progress=False)
    rows = {r.video: (r.status, r.frames, r.width, r.height) for r in done.rows}
    assert rows.pop("short.webp")[0].startswith("is damaged") and "1 .webp" in str(done), str(done)
    assert rows == {
        "a.gif": ("ok", 6, 32, 24),
        "B.WEBP": ("ok", 6, 32, 24),
        "one.gif": ("is a picture, not a video", 0, 0, 0),
    }
    assert [*search.video_files(tmp_path)] == [r.video for r in done.rows]
    for name in ("a.gif", "B.WEBP"):
        assert (decode(tmp_path / name).numpy() == frames).all(), name
        some = decode(tmp_path / name, [4, 0, 0, 5], probe(tmp_path / name))
        assert (some.numpy() == frames[[4, 0, 0, 5]]).all()
        assert all(
            (x == y).all() for x, y in zip(iter_frames(tmp_path / name), frames, strict=True)
        )
        with pytest.raises(VideoError, match="has no frame 6: 6 frames decode"):
            decode(tmp_path / name, [6])
    with pytest.raises(VideoError, match="is a picture, not a video"):
        probe(tmp_path / "one.webp")
    with pytest.raises(VideoError, match="there is no such file"):
        decode(tmp_path / "none.webp")


SIZES = {"a": 3, "b": 2, "c": 2, "d": 1, "e": 2}
TABLE = [
    Row(f"{label}/{s}{i}.mp4", label, f"{label}/{s}", frames=9, width=8, height=8)
    for label in ("run", "jump")
    for s, n in SIZES.items()
    for i in range(n)
]


def shared(
    rows,
):  # sources on both sides
    return {r.source for r in rows if r.split1 == "train"} & {
        r.source for r in rows if r.split1 == "test"
    }


def test_a_split_by_source():
    made, notes = cut_split(TABLE, 0.2)
    assert not shared(made) and "cut by source, class by class" in notes[0]
    assert cut_split(TABLE[::-1], 0.2)[0][::-1] == made  # names decide, not the order
    assert len({str(cut_split(TABLE, 0.2, seed)[0]) for seed in range(5)}) > 1
    dealt = [manifest._deal(SIZES, {}, 0.2, np.random.default_rng(seed)) for seed in range(200)]
    tested = [sum(SIZES[s] for s, part in d.items() if part == "test") for d in dealt]
    assert (
        {1, 2, 3} >= set(tested)
        and 1.8 < np.mean(tested) < 2.2
        and {"test"} < set(dealt[0].values())
    )
    some = [replace(r, split1="test" if r.source == "run/b" else "") for r in TABLE]
    more, _ = cut_split(some, 0.2)
    assert {r.split1 for r in more if r.source == "run/b"} == {"test"} and not shared(more)
    late = Row("run/b9.mp4", "run", "run/b", frames=9, width=8, height=8)
    assert cut_split([*more, late], 0.2)[0] == [*more, replace(late, split1="test")]
    assert cut_split(more, 0.5)[1] == [
        "split 1 is filled already and stays as it is; empty the column to cut another"
    ]
    bad = [replace(r, status="is broken") if r.source == "run/a" else r for r in TABLE]
    assert 2 <= sum(r.split1 == "test" and r.status == "ok" for r in cut_split(bad, 0.2)[0]) <= 6
    tiny = [
        Row(f"{c}/{i}.mp4", c, f"{c}/{i}", frames=9, width=8, height=8)
        for c in "xy"
        for i in range(2)
    ]
    assert Counter((r.label, r.split1) for r in cut_split(tiny, 0.2)[0]) == {
        (c, part): 1 for c in "xy" for part in ("train", "test")
    }


def test_splits_that_cannot_be_cut():
    for share in (0, 1, -0.2, 20, float("nan"), float("inf")):
        with pytest.raises(ManifestError, match="is not a share between 0 and 1"):
            cut_split(TABLE, share)
    with pytest.raises(ManifestError, match="--seed -1"):
        cut_split(TABLE, 0.2, -1)
    with pytest.raises(ManifestError, match="on both sides"):
        cut_split(
            [replace(TABLE[0], split1="test"), replace(TABLE[1], split1="train"), *TABLE[2:]], 0.2
        )
    with pytest.raises(ManifestError, match="of one source"):
        cut_split([replace(r, source="one") for r in TABLE], 0.2)


def test_transcoded_copies_of_real_clips(tmp_path):
    "The manifest names the copies, frame by frame the originals; a second run makes nothing anew."
    if manifest.test_videos() is None:
        pytest.skip("no real clips: set VSSL_TEST_VIDEOS")
    from vssl_nb.data.video import crop_resize, decode

    clips = sorted((manifest.test_videos() / "ucf101" / "Archery").glob("*.avi"))[:4]
    for i, f in enumerate(clips):
        (tmp_path / "data" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        shutil.copy(f, tmp_path / "data" / "ab"[i % 2])
    manifest.update_manifest(tmp_path / "data", progress=False)

    def script():
        return warm.run(
            [tmp_path / "data", "--short-side", "96", "--quiet"], script=SCRIPTS / "copy_videos.py"
        )

    done = script()
    assert done.returncode == 0 and "4 copies of short side 96 px" in done.stdout, done.stderr
    m = manifest.read(tmp_path / "data" / "manifest_short96.csv")
    assert sorted(m.labels) == ["a", "b"] and len(m) == 4
    for r in m.rows:
        assert r.video.startswith(".copies_short96/") and (r.width, r.height) == (128, 96)
        original = next((tmp_path / "data").glob(f"?/{Path(r.video).stem}"))
        at = [0, r.frames // 2, r.frames - 1]
        want = crop_resize(decode(original, at), None, (96, 128)).float()
        got = decode(m.file(m.rows.index(r)), at).float()
        assert len(decode(original)) == r.frames
        for a, b in zip(want, got):
            assert 10 * torch.log10(255**2 / (a - b).square().mean()) > 28
    before = {f: f.stat().st_mtime_ns for f in (tmp_path / "data").rglob("*.mp4")}
    text = m.path.read_bytes()
    assert script().returncode == 0
    assert {
        f: f.stat().st_mtime_ns for f in (tmp_path / "data").rglob("*.mp4")
    } == before and m.path.read_bytes() == text
