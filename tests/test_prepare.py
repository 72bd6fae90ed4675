"Datasets from what their owners hand out: archives, lists, downloads, and processes that are killed."
import csv
import gzip
import hashlib
import io
import json
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
import zlib
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
import torch

from vssl_nb.data import archives, manifest, prepare
from vssl_nb.data import folder as data_folder
from vssl_nb.data.archives import ArchiveError, download, extract_archive
from vssl_nb.data.prepare import PrepareError, prepare_dataset
from vssl_nb.data.video import encode

SCRIPTS = Path(__file__).resolve().parent.parent/'data_scripts'
VIDEOS = manifest.test_videos()
real = pytest.mark.skipif(VIDEOS is None or not (VIDEOS/'ucf101').is_dir(),
    reason='there are no real clips: name their folder in VSSL_TEST_VIDEOS, or put them into '
    '../shared/videos beside the repository')
RAR_TOOLS = [t for t in ('unar', 'bsdtar', 'unrar') if shutil.which(t)]
rar = pytest.mark.skipif(not RAR_TOOLS, reason='no program that reads rar is installed (apt install unar)')


def script(name, *args):
    return subprocess.run([sys.executable, SCRIPTS/f'prepare_{name}.py', *map(str, args)],
        capture_output=True, text=True, timeout=50)


@pytest.fixture(scope='session')
def clip(tmp_path_factory):
    "The bytes of a small video of so many frames."
    folder,made = tmp_path_factory.mktemp('clips'),{}
    def make(frames=40):
        if frames not in made:
            made[frames] = encode(folder/f'{frames}.mp4',
                np.full((frames, 32, 32, 3), 90, np.uint8)).read_bytes()
        return made[frames]
    return make


def files(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob('*') if p.is_file()
        and '.prepare' not in p.parts)


def put(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


# archives, written here byte by byte

def zipped(members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w') as z:
        for name,data in members:
            info = zipfile.ZipInfo(name)
            if data is None: info.external_attr,data = 0o120777 << 16, b'/etc/passwd'
            else: info.external_attr = 0o100644 << 16
            z.writestr(info, data)
    return out.getvalue()


def tarred(members, compression=''):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=f'w:{compression}') as t:
        for name,data in members:
            info = tarfile.TarInfo(name)
            if isinstance(data, str):
                info.type,info.linkname = ({'sym': tarfile.SYMTYPE, 'hard': tarfile.LNKTYPE,
                    'fifo': tarfile.FIFOTYPE, 'dev': tarfile.CHRTYPE}[data], 'a/x')
            else: info.size = len(data)
            t.addfile(info, io.BytesIO(data) if isinstance(data, bytes) else None)
    return out.getvalue()


def rarred(members):
    "RAR 4, stored: what a rar program writes with -m0."
    def block(kind, flags, body, data=b''):
        head = struct.pack('<BHH', kind, flags, 7+len(body))+body
        return struct.pack('<H', zlib.crc32(head) & 0xffff)+head+data
    out = b'Rar!\x1a\x07\x00'+block(0x73, 0, bytes(6))
    for name,data in members:
        mode,data = (0o120777, b'/etc/passwd') if data is None else (0o100644, data)
        head = struct.pack('<IIBIIBBHI', len(data), len(data), 3, zlib.crc32(data), 0x5a210000, 20, 0x30,
            len(name.encode()), mode)
        out += block(0x74, 0x8000, head+name.encode(), data)
    return out+block(0x7b, 0x4000, b'')


KINDS = {'zip': zipped, 'tar': tarred, 'tar.gz': lambda m: tarred(m, 'gz'),
    'tar.bz2': lambda m: tarred(m, 'bz2'), 'tar.xz': lambda m: tarred(m, 'xz'), 'rar': rarred}
kinds = pytest.mark.parametrize('kind', [pytest.param(k, marks=rar) if k == 'rar' else k for k in KINDS])
NOISE = np.random.default_rng(0).bytes(30_000) # does not compress


@kinds
def test_a_right_archive_comes_out_as_it_went_in(tmp_path, kind):
    members = [('d/a.bin', NOISE), ('d/empty.bin', b''), ('d/#1 (x)[y] ü.bin', b'hello')]
    archive = put(tmp_path/f'a.{kind}', KINDS[kind](members))
    assert extract_archive(archive, tmp_path/'out', progress=False) == sorted(name for name,_ in members)
    assert {name: (tmp_path/'out'/name).read_bytes() for name,_ in members} == dict(members)


@kinds
def test_a_truncated_archive_is_one_sentence_that_names_it_and_a_whole_one_goes_on(tmp_path, kind):
    members = [(f'd/{i}.bin', NOISE[i:]) for i in range(4)]
    whole = KINDS[kind](members)
    cuts = [len(whole)*2//3, len(whole)//10] + ([len(whole)-4] if kind in ('zip', 'tar.gz', 'tar.xz') else [])
    if kind == 'tar': cuts += [512*(1+59), 512*(1+59)+100] # where a file ends, and in a header
    for cut in cuts:
        archive = put(tmp_path/f'a.{kind}', whole[:cut])
        with pytest.raises(ArchiveError, match=f'^a.{kind}: ends early or is damaged') as e:
            extract_archive(archive, tmp_path/'out', progress=False)
        assert '\n' not in str(e.value)
        for i in range(4): # whatever is there is whole
            if (there := tmp_path/f'out/d/{i}.bin').exists(): assert there.read_bytes() == NOISE[i:]
    kept = {p: p.stat().st_mtime_ns for p in (tmp_path/'out').glob('d/*')}
    put(tmp_path/f'a.{kind}', whole)
    assert len(extract_archive(tmp_path/f'a.{kind}', tmp_path/'out', progress=False)) == 4
    assert all(p.stat().st_mtime_ns == t for p,t in kept.items())


@kinds
@pytest.mark.parametrize('name', ['../x', 'd/../../x', '/tmp/vssl-x', 'C:/x', 'C:x', '..\\x',
    '.Prepare/lock'])
def test_no_member_leaves_the_target(tmp_path, kind, name):
    if kind == 'rar' and '\\' in name: pytest.skip('a rar has no backslashes in names: they separate folders')
    archive = put(tmp_path/f'a.{kind}', KINDS[kind]([('fine.bin', b'fine'), (name, b'evil')]))
    with pytest.raises(ArchiveError, match='leads out of the target|lies in .prepare, which'):
        extract_archive(archive, tmp_path/'deep'/'out', progress=False)
    assert (not [p for p in tmp_path.rglob('*') if p.name in ('x', 'vssl-x', 'C:x', '..\\x')]
        and not Path('/tmp/vssl-x').exists())


@kinds
def test_names_that_occur_twice_are_refused(tmp_path, kind):
    archive = put(tmp_path/f'a.{kind}',
        KINDS[kind]([('d/a', b'1'), ('d/b', b'22'), ('d//a' if kind == 'zip' else 'd/a', b'333')]))
    with pytest.raises(ArchiveError, match="holds 'd/a' twice"):
        extract_archive(archive, tmp_path/'out', progress=False)


@pytest.mark.filterwarnings('ignore:Duplicate name')
@pytest.mark.parametrize('kind, what', [('zip', None), pytest.param('rar', None, marks=rar),
    *(('tar', what) for what in ('sym', 'hard', 'fifo', 'dev'))])
def test_links_and_devices_are_refused(tmp_path, kind, what):
    archive = put(tmp_path/f'a.{kind}', KINDS[kind]([('a/x', b'1'), ('a/link', what)]))
    with pytest.raises(ArchiveError, match="'a/link' is a link or a device"):
        extract_archive(archive, tmp_path/'out', progress=False)
    assert not (tmp_path/'out/a/link').is_symlink() and not (tmp_path/'out/a/link').exists()


@kinds
def test_wrong_bytes_leave_nothing_behind_that_a_second_run_would_keep(tmp_path, kind):
    members = [(f'd/{i}.bin', NOISE[i:]) for i in range(3)]
    whole = KINDS[kind](members)
    if kind == 'tar': return # has no checksum of its contents
    at = {'tar.xz': 20_000}.get(kind, len(whole)*4//5)
    broken = bytearray(whole)
    broken[at] ^= 1
    with pytest.raises(ArchiveError, match='is damaged'):
        extract_archive(put(tmp_path/f'a.{kind}', bytes(broken)), tmp_path/'out', progress=False)
    for i in range(3):
        if (there := tmp_path/f'out/d/{i}.bin').exists(): assert there.read_bytes() == NOISE[i:]
    extract_archive(put(tmp_path/f'a.{kind}', whole), tmp_path/'out', progress=False)
    assert all((tmp_path/'out'/name).read_bytes() == data for name,data in members)


def test_a_member_with_fewer_bytes_than_listed_gets_no_name(tmp_path):
    with pytest.raises(EOFError, match='d/x has 3 bytes instead of 4'):
        archives._write_member('a', tmp_path, PurePosixPath('d/x'), 4, lambda: io.BytesIO(b'123'),
            tmp_path/'part')
    assert files(tmp_path) == ['part']


def test_a_link_that_is_there_already_is_not_followed(tmp_path):
    (tmp_path/'elsewhere').mkdir()
    (tmp_path/'out').mkdir()
    (tmp_path/'out/d').symlink_to(tmp_path/'elsewhere')
    archive = put(tmp_path/'a.zip', zipped([('d/e/x', b'1')]))
    with pytest.raises(ArchiveError, match='is a link, which extraction does not follow'):
        extract_archive(archive, tmp_path/'out', progress=False)
    assert not files(tmp_path/'elsewhere')


def test_archives_in_archives(tmp_path):
    members = {c: [(f'{c}/{i}.avi', f'{c}{i}'.encode()) for i in range(3)] for c in ('wave', 'run')}
    archive = put(tmp_path/'all.zip',
        zipped([('run.tar.gz', tarred(members['run'], 'gz')), ('wave.zip', zipped(members['wave']))]))
    expected = sorted(n for m in members.values() for n,_ in m)
    assert extract_archive(archive, tmp_path/'out', progress=False) == expected == files(tmp_path/'out')
    # another archive of that name
    assert extract_archive(put(tmp_path/'all.zip', zipped([('sub/more.zip', zipped([('a.txt', b'1')]))])),
        tmp_path/'out', progress=False) == ['sub/a.txt']
    # Python takes it for the zip that is in it
    cut = put(tmp_path/'cut.zip', zipped([('wave.zip', zipped(members['wave']))])[:-30])
    with pytest.raises(ArchiveError, match='table of contents is missing'):
        extract_archive(cut, tmp_path/'out1', progress=False)
    broken = put(tmp_path/'b.zip', zipped([('wave.zip', zipped([('../../x', b'1')]))]))
    with pytest.raises(ArchiveError, match='^b.zip/wave.zip: its member .* leads out'):
        extract_archive(broken, tmp_path/'out2', progress=False)
    broken = put(tmp_path/'c.zip',
        zipped([('wave.zip', zipped(members['wave'])), ('more.zip', zipped(members['wave']))]))
    with pytest.raises(ArchiveError, match='twice'): extract_archive(broken, tmp_path/'out3', progress=False)


def test_an_extraction_that_was_killed_goes_on(tmp_path):
    inner = [zipped([(f'{c}/{i}.bin', NOISE[i:]) for i in range(40)]) for c in 'abc']
    archive = put(tmp_path/'all.zip', zipped([(f'{c}.zip', data) for c,data in zip('abc', inner)]))
    code = '''
import sys, os, signal
from vssl_nb.data import archives
place,n = archives._write_member,0
def counted(*args):
    global n
    n += 1
    if n == 70: os.kill(os.getpid(), signal.SIGKILL)
    place(*args)
archives._write_member = counted
archives.extract_archive(sys.argv[1], sys.argv[2], progress=False)'''
    done = subprocess.run([sys.executable, '-c', code, archive, tmp_path/'out'])
    assert done.returncode == -signal.SIGKILL and 60 < len(files(tmp_path/'out')) < 80
    before = {p: (tmp_path/'out'/p).stat().st_mtime_ns for p in files(tmp_path/'out')}
    assert len(extract_archive(archive, tmp_path/'out', progress=False)) == 120
    assert {p: (tmp_path/'out'/p).stat().st_mtime_ns for p in before} == before
    assert {p.read_bytes() for p in (tmp_path/'out').glob('*/5.bin')} == {NOISE[5:]}
    assert not (tmp_path/'out/.prepare/nested').exists()


@pytest.mark.parametrize('zips', [False, True])
def test_an_archive_cut_into_numbered_pieces(tmp_path, zips):
    whole = tarred([(f'20bn-something-something-v2/{i}.webm', NOISE[i:]) for i in range(3)], 'gz')
    names = [f'20bn-something-something-v2-{i:02}' for i in range(4)]
    step = -(-len(whole)//4)
    parts = [put(tmp_path/'in'/(n+'.zip'*zips), zipped([(n, data)]) if zips else data)
        for n,data in ((n, whole[i*step:(i+1)*step]) for i,n in enumerate(names))]
    assert extract_archive(parts[::-1], tmp_path/'out', progress=False) == [
        f'20bn-something-something-v2/{i}.webm' for i in range(3)] == files(tmp_path/'out')
    with pytest.raises(ArchiveError, match='-v2: its pieces .*-01 are not there'):
        extract_archive([parts[0], *parts[2:]], tmp_path/'b', progress=False)
    with pytest.raises(ArchiveError, match='-v2: ends early'):
        extract_archive(parts[:-1], tmp_path/'c', progress=False)


@pytest.mark.parametrize('tool', RAR_TOOLS or ['none'])
@rar
def test_every_installed_program_reads_rar(tmp_path, monkeypatch, tool):
    monkeypatch.setattr(archives, 'RAR', {tool: archives.RAR[tool]})
    archive = put(tmp_path/'a.rar', rarred([('d/a.bin', NOISE), ('d/b.bin', b'1')]))
    extract_archive(archive, tmp_path/'out', progress=False)
    assert (tmp_path/'out/d/a.bin').read_bytes() == NOISE
    data = archive.read_bytes().replace(NOISE[100:110], b'0123456789')
    if tool == 'bsdtar': return # it compares no checksums
    with pytest.raises(ArchiveError, match='damaged'):
        extract_archive(put(tmp_path/'b.rar', data), tmp_path/'out2', progress=False)


def test_a_rar_without_a_program_for_it_says_which_and_how(tmp_path, monkeypatch):
    monkeypatch.setenv('PATH', str(tmp_path))
    with pytest.raises(ArchiveError, match=r'a.rar: is a rar, which needs .*unar, bsdtar, unrar or 7z.*apt '
        r'install unar'):
        extract_archive(put(tmp_path/'a.rar', rarred([('x', b'1')])), tmp_path/'out', progress=False)


def test_the_tables_of_contents_of_unrar_and_7z():
    unrar = ('\nArchive: a.rar\nDetails: RAR 4\n\n        Name: d/x: y.txt\n        Type: File\n        '
        'Size: 50\n Packed size: 50\n       CRC32: 8DB3ABCD\n\n        Name: d\n        Type: Directory\n\n  '
        '      Name: l\n        Type: Unix symbolic link\n      Target: /etc\n        Size: 4\n')
    assert archives._contents('unrar', unrar) == [('d/x: y.txt', 50, 0x8DB3ABCD, 'file'),
        ('d', 0, None, 'folder'), ('l', 4, None, 'link')]
    seven = ('7-Zip\n\nPath = a.rar\nType = Rar\n\n----------\nPath = d/x = y.txt\nFolder = -\nSize = '
        '50\nCRC = 8DB3ABCD\n\nPath = d\nFolder = +\nSize = 0\nCRC = \n')
    assert archives._contents('7z', seven) == [('d/x = y.txt', 50, 0x8DB3ABCD, 'file'),
        ('d', 0, None, 'folder')]


def test_what_is_no_archive_is_said(tmp_path):
    with pytest.raises(ArchiveError, match="a.zip: is no zip, rar or tar .it starts with b'<html>"):
        extract_archive(put(tmp_path/'a.zip', '<html>404</html>'), tmp_path/'out', progress=False)
    with pytest.raises(ArchiveError, match='b.rar: is no zip, rar or tar .it is empty'):
        extract_archive(put(tmp_path/'b.rar', ''), tmp_path/'out', progress=False)


# datasets

@pytest.fixture(scope='module')
def lists(tmp_path_factory):
    "The lists of the 270 clips, with the line ends of the official ones."
    folder = tmp_path_factory.mktemp('lists')
    for f in (VIDEOS/'ucfTrainTestlist_subset270').iterdir():
        put(folder/f.name, f.read_bytes().replace(b'\r\n', b'\n').replace(b'\n', b'\r\n'))
    return folder


@pytest.fixture(scope='module')
def official(tmp_path_factory, lists):
    "The 270 clips as UCF-101 unpacks, prepared once by the script."
    root = tmp_path_factory.mktemp('ucf')
    (root/'UCF-101').mkdir()
    for folder in (VIDEOS/'ucf101').iterdir():
        (root/'UCF-101'/folder.name).symlink_to(folder, target_is_directory=True)
    done = script('ucf101', root/'UCF-101', '--lists', lists, '--per-class', '--quiet')
    assert done.returncode == 0, done.stderr
    return root/'UCF-101', done.stdout


@real
def test_ucf101_from_the_official_lists(official):
    folder,text = official
    m = manifest.read(folder)
    assert [(len(m.select('train', i)), len(m.select('test', i))) for i in (1, 2, 3)] == [(189, 81),
        (180, 90), (207, 63)]
    assert {r.source for r in m.rows} == {f'{p.name}/g{i:02}' for p in (VIDEOS/'ucf101').iterdir()
        for i in range(1, 26)}
    assert all(f"_{r.source.split('/')[1]}_" in r.video for r in m.rows)
    with open(VIDEOS/'MANIFEST.csv', newline='') as f:
        frames = {r['path']: int(r['decoded_frames']) for r in csv.DictReader(f)
            if r['path'].startswith('ucf101/')}
    assert {f'ucf101/{r.video}': r.frames for r in m.rows} == frames
    for line in ('split 1: 189 train, 81 test, 0 in neither', 'split 3: 207 train, 63 test',
        'not the official UCF101: 270 videos instead of 13,320; 9 classes instead of 101; split 1 189/81 '
        'instead of 9,537/3,783', 'Archery: 30 videos; train/test 21/9, 20/10, 23/7'):
        assert line in text, text


@real
def test_ucf101_killed_halfway_and_run_again(official, lists, tmp_path):
    there = tmp_path/'UCF-101'
    there.mkdir()
    for folder in (VIDEOS/'ucf101').iterdir():
        (there/folder.name).symlink_to(folder, target_is_directory=True)
    log = there/'.prepare/probes.jsonl'
    run = subprocess.Popen([sys.executable, SCRIPTS/'prepare_ucf101.py', there, '--lists', lists, '--quiet'],
        stdout=subprocess.DEVNULL)
    while run.poll() is None and not (log.exists() and log.read_bytes().count(b'\n') > 90): time.sleep(.02)
    run.kill()
    assert run.wait() == -signal.SIGKILL and not (there/'manifest.csv').exists()
    with open(log, 'ab') as f: f.write(b'{"video": "Archery/v_Arc') # a kill in the middle of a line
    decoded,probe = [],data_folder.probe
    data_folder.probe = lambda path: decoded.append(path) or probe(path)
    try: prepare_dataset('ucf101', there, lists, progress=False)
    finally: data_folder.probe = probe
    assert 0 < len(decoded) < 180 and len(prepare.read_probes(log)) == 270
    assert (there/'manifest.csv').read_bytes() == (official[0]/'manifest.csv').read_bytes()


@real
def test_videos_on_a_disk_of_their_own_are_linked(tmp_path):
    done = prepare_dataset('folder', VIDEOS/'hmdb51', out=tmp_path/'out', progress=False)
    assert [r.label for r in done.manifest.rows] == ['cartwheel', 'wave', 'wave', 'wave']
    assert ((tmp_path/'out/manifest.csv').is_file() and all(done.manifest.file(i).is_file()
        for i in range(len(done.manifest))))
    assert not list(VIDEOS.glob('*/.prepare'))


def test_ucf101_with_handstand_in_its_two_spellings_and_from_archives(tmp_path, clip):
    names = ['HandstandPushups/v_HandStandPushups_g01_c01', 'HandstandPushups/v_HandStandPushups_g08_c01',
        'Archery/v_Archery_g08_c02']
    lists = [('ucfTrainTestlist/trainlist01.txt', b'HandstandPushups/v_HandStandPushups_g08_c01.avi '
        b'2\r\nArchery/v_Archery_g08_c02.avi 1\r\n'),
        ('ucfTrainTestlist/testlist01.txt',
            b'HandStandPushups/v_HandStandPushups_g01_c01.avi\r\nArchery/v_Archery_g01_c01.avi\r\n'), (
            'ucfTrainTestlist/classInd.txt', b'1 Archery\r\n2 HandstandPushups\r\n')]
    source = put(tmp_path/'in/UCF101.tar.gz', tarred([(f'UCF-101/{n}.avi', clip()) for n in names], 'gz'))
    zip_ = put(tmp_path/'lists.zip', zipped(lists))
    done = prepare_dataset('ucf101', source, zip_, tmp_path/'out', progress=False)
    assert {(r.video, r.source, r.split1) for r in done.manifest.rows} == {
        ('UCF-101/HandstandPushups/v_HandStandPushups_g01_c01.avi', 'HandstandPushups/g01', 'test'),
        ('UCF-101/HandstandPushups/v_HandStandPushups_g08_c01.avi', 'HandstandPushups/g08', 'train'),
        ('UCF-101/Archery/v_Archery_g08_c02.avi', 'Archery/g08', 'train')}
    assert (done.missing == ['archery/v_archery_g01_c01']
        and (tmp_path/'out/.prepare/missing.txt').read_text() == 'archery/v_archery_g01_c01\n')
    first = (tmp_path/'out/manifest.csv').read_bytes()
    assert (prepare_dataset('ucf101', tmp_path/'in', zip_, tmp_path/'out', progress=False)
        and (tmp_path/'out/manifest.csv').read_bytes() == first)


HMDB = {'wave': ['TrumanShow_wave_f_nm_np1_fr_med_26', 'TrumanShow_wave_f_nm_np1_fr_med_27',
    'prelinger_LetsBeGo1953_wave_u_cm_np10_ba_med_2'],
    'shoot_gun': ['TrumanShow_shoot_gun_u_cm_np1_le_med_0', '#4 [x]_(y)!_shoot_gun_u_cm_np2_ri_goo_1']}


def hmdb(parts=(1, 2, 0)):
    "The official lists for these clips."
    return [(f'testTrainMulti_7030_splits/{c}_test_split{s}.txt', ''.join(f'{n}.avi {parts[(i+s)%3]} \r\n'
        for i,n in enumerate(names)).encode()) for c,names in HMDB.items() for s in (1, 2, 3)]


@pytest.mark.parametrize('kind', [pytest.param('rar', marks=rar), 'zip'])
def test_hmdb51_as_archives_of_archives(tmp_path, clip, kind):
    make = KINDS[kind]
    source = put(tmp_path/f'hmdb51_org.{kind}',
        make([(f'{c}.{kind}', make([(f'{c}/{n}.avi', clip()) for n in names])) for c,names in HMDB.items()]))
    lists = put(tmp_path/f'test_train_splits.{kind}', make(hmdb()))
    done = prepare_dataset('hmdb51', source, lists, tmp_path/'out', progress=False)
    rows = {Path(r.video).stem: r for r in done.manifest.rows}
    assert [rows[n].source for n in (*HMDB['wave'], *HMDB['shoot_gun'])] == ['wave/TrumanShow',
        'wave/TrumanShow', 'wave/prelinger_LetsBeGo1953', 'shoot_gun/TrumanShow', 'shoot_gun/#4 [x]_(y)!']
    for s in (1, 2, 3):
        assert [getattr(rows[n], f'split{s}') for n in HMDB['wave']] == [('train', 'test', '')[(i+s)%3]
            for i in range(3)]
    assert not done.missing and not done.extra and done.manifest.labels == ['shoot_gun', 'wave']


def test_hmdb51_with_iics_lists_and_the_released_rule(tmp_path, clip):
    for i,n in enumerate(HMDB['wave']): put(tmp_path/f'v/wave/{n}.avi', clip((17, 18, 40)[i]))
    for part,names in (('train', HMDB['wave'][:2]), ('test', HMDB['wave'][2:])):
        put(tmp_path/f'lists/{part}list01.txt', ''.join(f'wave/{n}.avi\n' for n in names))
    run = lambda **options: {r.frames: r for r in prepare_dataset('hmdb51', tmp_path/'v', tmp_path/'lists',
        progress=False, **options).manifest.rows}
    assert {t: (r.split1, r.status) for t,r in run().items()} == {17: ('train', 'ok'), 18: ('train', 'ok'),
        40: ('test', 'ok')}
    assert {t: r.status[:28] for t,r in run(drop='released').items()} == {17: 'dropped by the released rule',
        18: 'ok', 40: 'ok'}
    assert {t: r.status[:7] for t,r in run(drop='released', stride=2).items()} == {17: 'dropped',
        18: 'dropped', 40: 'ok'}


@real
def test_the_official_hmdb51_splits_share_no_film_within_a_class():
    for s in (1, 2, 3):
        films = {}
        for part,n in (('train', 3570), ('test', 1530)):
            names = (VIDEOS/f'hmdb51_splits_iic/{part}list0{s}.txt').read_text().split()
            films[part] = {name: prepare._hmdb51_source(name, name.split('/')[0]) for name in names}
            assert (len(names) == n and all(film != name.removesuffix('.avi')
                for name,film in films[part].items()))
        assert not set(films['train'].values()) & set(films['test'].values())


def test_kinetics_in_folders_or_flat_with_videos_missing(tmp_path, clip):
    head = 'label,youtube_id,time_start,time_end,split\n'
    lists = [put(tmp_path/'l/train.csv', head+'"petting animal (not '
        'cat)",-_a-Bc_dE0_,10,20,train\nyoga,AAAAAAAAAAA,0,10,train\nyoga,aaaaaaaaaaa,5,15,train\n'),
        put(tmp_path/'l/validate.csv', head+'yoga,BBBBBBBBBBB,1,11,validate\n'),
        put(tmp_path/'l/test.csv', 'youtube_id,time_start,time_end,split\nCCCCCCCCCCC,2,12,test\n')]
    for name,t in {'petting/-_a-Bc_dE0__000010_000020': 33, 'AAAAAAAAAAA': 34,
        'val/BBBBBBBBBBB_000001_000011': 40, 'CCCCCCCCCCC': 40,
        'unknown/AAAAAAAAAAA_000003_000013': 40}.items():
        put(tmp_path/f'v/{name}.mp4', clip(t))
    done = prepare_dataset('kinetics400', tmp_path/'v', lists, tmp_path, progress=False)
    assert [(r.video, r.label, r.split1, r.source) for r in done.manifest.rows] == [(f'v/{n}.mp4', label,
        part, n) for n,label,part in (
        ('AAAAAAAAAAA', 'yoga', 'train'), ('CCCCCCCCCCC', '', ''),
        ('petting/-_a-Bc_dE0__000010_000020', 'petting animal (not cat)', 'train'),
        ('unknown/AAAAAAAAAAA_000003_000013', '', ''), ('val/BBBBBBBBBBB_000001_000011', 'yoga', 'test'))]
    assert (done.missing == ['aaaaaaaaaaa_000005_000015']
        and done.extra == ['unknown/AAAAAAAAAAA_000003_000013.mp4'])
    assert ('2 classes instead of 400' in str(done) and 'in the lists, not on disk: 1, such as '
        'aaaaaaaaaaa_000005_000015' in str(done))
    other = prepare_dataset('kinetics400', tmp_path/'v', tmp_path/'l', tmp_path, test='test', drop='released',
        progress=False)
    assert [(r.split1, r.status == 'ok') for r in other.manifest.rows] == [('train', True), ('test', True),
        ('train', False), ('', True), ('', True)]


def test_ssv2_from_pieces_and_templates(tmp_path, clip):
    whole = tarred([(f'20bn-something-something-v2/{i}.webm', clip()) for i in (1, 2, 3)], 'gz')
    for i,data in enumerate((whole[:900], whole[900:])):
        put(tmp_path/f'in/20bn-something-something-v2-{i:02}', data)
    entry = lambda i,template: dict(id=str(i), label=template.replace('[something]', 'a cup'),
        template=template, placeholders=['a cup'])
    put(tmp_path/'l/something-something-v2-train.json',
        json.dumps([entry(1, 'Holding [something] next to [something]'), entry(9, 'Holding [something]')]))
    put(tmp_path/'l/something-something-v2-validation.json',
        json.dumps([entry(2, 'Pushing [something] so it spins')]))
    put(tmp_path/'l/something-something-v2-test.json', json.dumps([dict(id='3')]))
    labels = put(tmp_path/'l/labels.json',
        json.dumps({'Holding something': '1', 'Holding something next to something': '0'}))
    done = prepare_dataset('ssv2', tmp_path/'in', tmp_path/'l', tmp_path/'out', progress=False)
    assert [(r.video, r.label, r.split1) for r in done.manifest.rows] == [
        (f'20bn-something-something-v2/{i}.webm', label, part) for i,label,part in (
        (1, 'Holding something next to something', 'train'), (2, 'Pushing something so it spins', 'test'),
        (3, '', ''))]
    assert (done.missing == ['9'] and 'do not follow the alphabet' in str(done) and '3 videos instead '
        'of 220,847' in str(done))
    labels.write_text('[{')
    with pytest.raises(PrepareError, match='labels.json: is not JSON'):
        prepare_dataset('ssv2', tmp_path/'in', tmp_path/'l', tmp_path/'out', progress=False)


def test_a_folder_of_ones_own(tmp_path, clip):
    for name in ('cat/cam1_0.mp4', 'cat/cam1_1.mp4', 'dog/cam2_0.mp4', 'top.mp4'): put(tmp_path/name, clip())
    put(tmp_path/'dog/broken.mp4', b'no video')
    done = script('folder', tmp_path, '--source-pattern', r'(cam\d)', '--quiet')
    assert done.returncode == 0 and 'not used: 1, such as dog/broken.mp4: is not a video' in done.stdout
    assert [(r.video, r.label, r.source) for r in manifest.read(tmp_path).rows] == [('cat/cam1_0.mp4', 'cat',
        'cam1'), ('cat/cam1_1.mp4', 'cat', 'cam1'), ('dog/broken.mp4', 'dog',
        'dog/broken'), ('dog/cam2_0.mp4', 'dog', 'cam2'), ('top.mp4', '', 'top')]


def test_files_that_declare_more_frames_than_decode_are_named(tmp_path, clip):
    if VIDEOS is None: pytest.skip('there are no real clips')
    for name in ('truncated_60pct', 'bitflips_400', 'hole_30k_zeros'):
        shutil.copy(VIDEOS/f'odd/derived/{name}.avi', tmp_path)
    put(tmp_path/'whole.mp4', clip())
    assert prepare_dataset('folder', tmp_path, progress=False).short == ['bitflips_400.avi',
        'hole_30k_zeros.avi', 'truncated_60pct.avi']


def test_flow_is_kept_and_a_manifest_of_somebody_else_is_not_overwritten(tmp_path, clip):
    put(tmp_path/'a.mp4', clip())
    m = prepare_dataset('folder', tmp_path, progress=False).manifest
    manifest.write(m.path, [replace(r, flow='flow/a.mkv') for r in m.rows])
    put(tmp_path/'b.mp4', clip())
    assert [r.flow for r in prepare_dataset('folder', tmp_path, progress=False).manifest.rows] == [
        'flow/a.mkv', '']
    shutil.rmtree(tmp_path/'.prepare')
    with pytest.raises(PrepareError, match='was not written by this program'):
        prepare_dataset('folder', tmp_path, progress=False)


def test_archives_beside_videos_that_are_extracted_already(tmp_path, clip):
    put(tmp_path/'in/UCF-101/Archery/v_Archery_g01_c01.avi', clip())
    put(tmp_path/'in/lists.zip',
        zipped([('trainlist01.txt', b''), ('testlist01.txt', b'Archery/v_Archery_g01_c01.avi\n')]))
    # beside the videos, elsewhere, and where archives may have been extracted
    for out in (None, tmp_path/'out', tmp_path/'in'):
        done = prepare_dataset('ucf101', tmp_path/'in', tmp_path/'in/lists.zip', out, progress=False)
        assert [r.split1 for r in done.manifest.rows] == ['test']


def test_one_run_at_a_time(tmp_path, clip):
    put(tmp_path/'a.mp4', clip())
    with prepare.lock_folder(tmp_path), pytest.raises(PrepareError, match='is being prepared by another run'):
        prepare_dataset('folder', tmp_path, progress=False)


def test_mistakes_are_one_sentence_and_exit_code_2(tmp_path, clip, monkeypatch, capsys):
    put(tmp_path/'v/wave/a.mp4', clip())
    archive = put(tmp_path/'a.zip', zipped([('wave/a.mp4', clip())]))
    bad = put(tmp_path/'bad_test_split1.txt', 'a.mp4 7\n')
    # one as a process, the others where the library is loaded
    done = script('hmdb51', tmp_path/'v', '--lists', bad)
    assert (done.returncode, done.stdout, done.stderr) == (2, '', f"{bad}: line 1 is 'a.mp4 7', not a file "
        "name and 0, 1 or 2; take the list from the owners\n")
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import command
    for sentence,(name,*args) in {
        'there is no such file or folder': ('folder', tmp_path/'nothing'), 'name the folder to extract it to '
        'with --out': ('folder', archive),
        'holds no lists of UCF101 (trainlist0*.txt)': ('ucf101', tmp_path/'v'), 'no archive and no folder '
        'is named': ('ssv2',), 'workers is 0; take at least 1': ('folder', tmp_path/'v', '--workers', 0),
        'unrecognized arguments: --nope': ('folder', '--nope'), '--download '
        'needs --out': ('folder', '--download', 'http://127.0.0.1:1/x.zip'), 'more checksums than '
        'downloads': ('folder', tmp_path, '--md5', '0'),
        'holds none of the 1 videos of the lists, '
        'such as bad/b': ('hmdb51', tmp_path/'v', '--lists', put(tmp_path/'l/bad_test_split1.txt',
            'b.avi 1\n')), 'holds no video': ('folder', tmp_path/'l'),
        'is not the http or https address': ('folder', '--out', tmp_path/'o', '--download',
            'file:///etc/passwd'), 'Not a directory': ('folder', tmp_path/'v', '--out', archive/'x')}.items():
        monkeypatch.setattr(sys, 'argv', [f'prepare_{name}.py', *map(str, args)])
        with pytest.raises(SystemExit) as e: command.main(name, 'about')
        out,err = capsys.readouterr()
        assert e.value.code == 2 and out == '' and sentence in err and len(err.splitlines()) == 1, err
    with pytest.raises(PrepareError, match="there is no dataset 'ucf'"): prepare_dataset('ucf', tmp_path)
    with pytest.raises(PrepareError, match='no rule for'): prepare_dataset('ssv2', tmp_path, drop='released')


# downloads

class Server:
    "Serves one file on this machine; breaks off as often as told, and knows ranges."
    def __init__(self, data, breaks=0, tag='"one"', ranges=True, after=20_000):
        self.data,self.breaks,self.tag,self.asked = data,breaks,tag,[]
        outer = self
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args): pass
            def do_GET(self):
                span = self.headers.get('Range')
                outer.asked.append(span)
                if self.path.startswith('/no'): return self.send_error(404, 'Not Found')
                fresh = not ranges or self.headers.get('If-Range', outer.tag) != outer.tag
                start = 0 if fresh or not span else int(span.removeprefix('bytes=').removesuffix('-'))
                if start >= len(outer.data):
                    self.send_response(416)
                    self.send_header('Content-Range', f'bytes */{len(outer.data)}')
                    return self.end_headers()
                self.send_response(206 if start else 200)
                if start:
                    self.send_header('Content-Range', f'bytes {start}-{len(outer.data)-1}/{len(outer.data)}')
                self.send_header('Content-Length', str(len(outer.data)-start))
                if outer.tag: self.send_header('ETag', outer.tag)
                self.end_headers()
                broken = outer.breaks > 0
                outer.breaks -= broken
                self.wfile.write(outer.data[start:start+after] if broken else outer.data[start:])
        self.server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.url = f'http://127.0.0.1:{self.server.server_port}/some/data%20set.zip?x=1'

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(.02,), daemon=True).start()
        return self

    def __exit__(self, *args):
        self.server.shutdown()
        self.server.server_close()


SHA,MD5 = hashlib.sha256(NOISE*3).hexdigest(), hashlib.md5(NOISE*3).hexdigest()
fast = dict(pause=.01, progress=False)


def test_a_download_goes_on_where_it_broke_off(tmp_path):
    with Server(NOISE*3, breaks=2) as s:
        path = download(s.url, tmp_path, sha256=SHA.upper(), md5=MD5, **fast)
        assert (s.asked == [None, 'bytes=20000-', 'bytes=40000-'] and path == tmp_path/'data set.zip'
            and path.read_bytes() == NOISE*3)
        assert [p.name for p in tmp_path.iterdir()] == ['data set.zip']
        download(s.url, tmp_path, sha256=SHA, **fast)
        assert len(s.asked) == 3
        with pytest.raises(ArchiveError, match='is there already, but its sha256 is'):
            download(s.url, tmp_path, sha256='0'*64, **fast)


def test_a_download_goes_on_in_another_run_unless_the_file_changed(tmp_path):
    with Server(NOISE*3, breaks=9, after=0) as s:
        s.breaks = 0
        (tmp_path/'.data set.zip.part').write_bytes(NOISE)
        (tmp_path/'.data set.zip.tag').write_text('"one"')
        assert download(s.url, tmp_path, **fast).read_bytes() == NOISE*3 and s.asked == ['bytes=30000-']
    (tmp_path/'data set.zip').rename(tmp_path/'.data set.zip.part')
    (tmp_path/'.data set.zip.tag').write_text('"one"')
    with Server(NOISE*3) as s: # all of it is there, only not yet under its name
        assert (download(s.url, tmp_path, sha256=SHA, **fast).read_bytes() == NOISE*3
            and s.asked == ['bytes=90000-'])
    for tag,known in (('"two"', '"one"'), ('', '')): # another file, or nothing to tell it by
        shutil.rmtree(tmp_path/'b', ignore_errors=True)
        put(tmp_path/'b/.data set.zip.part', b'old'*1000)
        put(tmp_path/'b/.data set.zip.tag', known)
        with Server(NOISE*3, tag=tag) as s:
            assert download(s.url, tmp_path/'b', **fast).read_bytes() == NOISE*3


def test_a_download_from_a_server_without_ranges_starts_again(tmp_path):
    with Server(NOISE*3, breaks=2, ranges=False) as s:
        assert download(s.url, tmp_path, **fast).read_bytes() == NOISE*3 and len(s.asked) == 3


def test_downloads_that_fail_are_one_sentence(tmp_path):
    with Server(NOISE*3) as s:
        with pytest.raises(ArchiveError, match='was downloaded twice, and its md5 is'):
            download(s.url, tmp_path, md5='0'*32, **fast)
        assert len(s.asked) == 2
        with pytest.raises(ArchiveError, match='the server says 404 Not Found'):
            download(s.url.replace('/some', '/no'), tmp_path, **fast)
        with pytest.raises(ArchiveError, match="sha256 '12' is not 64"):
            download(s.url, tmp_path, sha256='12', **fast)
    with pytest.raises(ArchiveError, match='broke off 3 times without a further byte'):
        download(s.url, tmp_path, tries=3, **fast)
    with Server(NOISE*3, breaks=99, after=0) as s, pytest.raises(ArchiveError, match='broke off 2 times .*0 '
        'of 90,000 bytes came'):
        download(s.url, tmp_path, tries=2, **fast)


def test_a_script_downloads_extracts_and_prepares(tmp_path, clip):
    data = gzip.compress(tarred([('cat/a.mp4', clip()), ('dog/b.mp4', clip())]))
    with Server(data, breaks=1, after=500) as s:
        url = s.url.replace('data%20set.zip', 'pets.tar.gz')
        done = script('folder', '--download', url, '--sha256', hashlib.sha256(data).hexdigest(), '--out',
            tmp_path, '--quiet')
    assert done.returncode == 0 and '2 videos, 2 classes, 2 sources' in done.stdout, done.stderr
    assert ([r.video for r in manifest.read(tmp_path).rows] == ['cat/a.mp4', 'dog/b.mp4']
        and s.asked == [None, 'bytes=500-'])


def test_transcoded_copies_of_real_clips(tmp_path):
    "The manifest names the copies, frame by frame the originals; a second run makes nothing anew."
    if manifest.test_videos() is None: pytest.skip('no real clips: set VSSL_TEST_VIDEOS')
    from vssl_nb.data.video import crop_resize, decode
    clips = sorted((manifest.test_videos()/'ucf101'/'Archery').glob('*.avi'))[:4]
    for i, f in enumerate(clips):
        (tmp_path/'data'/'ab'[i % 2]).mkdir(parents=True, exist_ok=True)
        shutil.copy(f, tmp_path/'data'/'ab'[i % 2])
    script = [sys.executable, str(Path(__file__).parent.parent/'data_scripts'/'prepare_folder.py'),
        str(tmp_path/'data'), '--quiet', '--transcode', '96']
    done = subprocess.run(script, text=True, capture_output=True)
    assert done.returncode == 0 and '4 copies of short side 96 px' in done.stdout, done.stderr
    m = manifest.read(tmp_path/'data')
    assert sorted(m.labels) == ['a', 'b'] and len(m) == 4
    for r in m.rows:
        assert r.video.startswith('copies_short96/') and (r.width, r.height) == (128, 96)
        original = next((tmp_path/'data').glob(f'?/{Path(r.video).stem}.avi'))
        at = [0, r.frames//2, r.frames - 1]
        want = crop_resize(decode(original, at), None, (96, 128)).float()
        got = decode(m.file(m.rows.index(r)), at).float()
        assert len(decode(original)) == r.frames
        for a, b in zip(want, got): assert 10*torch.log10(255**2/(a - b).square().mean()) > 28
    before = {f: f.stat().st_mtime_ns for f in (tmp_path/'data').rglob('*.mp4')}
    text = (tmp_path/'data'/'manifest.csv').read_bytes()
    assert subprocess.run(script, capture_output=True).returncode == 0
    assert ({f: f.stat().st_mtime_ns for f in (tmp_path/'data').rglob('*.mp4')} == before
        and (tmp_path/'data'/'manifest.csv').read_bytes() == text)
