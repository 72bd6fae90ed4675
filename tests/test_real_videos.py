"""Real files through the video and manifest rooms: what a notebook cannot carry, because nobody may pass the clips on."""
import csv
import hashlib
import os
import subprocess
import sys
import warnings
from collections import Counter

import av
import numpy as np
import pytest
import torch

from vssl_nb import manifest
from vssl_nb.video import Probe, VideoError, decode, encode, probe

VIDEOS = manifest.test_videos()
real = pytest.mark.skipif(VIDEOS is None or not (VIDEOS/'MANIFEST.csv').is_file(),
    reason='there are no real clips: name their folder in VSSL_TEST_VIDEOS, or put them into ../shared/videos beside the repository')


def listed():
    with open(VIDEOS/'MANIFEST.csv', newline='', encoding='utf-8') as f: return list(csv.DictReader(f))


@pytest.fixture(scope='module')
def probes():
    "Every listed file, decoded once: its Probe, or the sentence that refuses it."
    found = {}
    for row in listed():
        try: found[row['path']] = probe(VIDEOS/row['path'])
        except VideoError as e: found[row['path']] = e
    return found


@real
def test_every_file_decodes_to_the_listed_frames_or_is_refused_in_one_sentence(probes):
    wrong = []
    for row in listed():
        path,found,frames = row['path'],probes[row['path']],int(row['decoded_frames'] or 0)
        if isinstance(found, VideoError):
            sentence = str(found)
            if frames or not sentence.startswith(f'{VIDEOS/path}: ') or '\n' in sentence or 'Errno' in sentence or 'Traceback' in sentence: wrong.append((path, sentence))
            continue
        width,height = int(row['w']), int(row['h'])
        if int(row['rotation'] or 0) % 180: width,height = height,width
        expected = frames, int(row['declared_frames'] or 0), width, height, int(row['rotation'] or 0) % 360
        if (found.frames, found.declared, found.width, found.height, found.rotation) != expected: wrong.append((path, found, expected))
        if row['avg_fps'] and abs(found.fps-float(row['avg_fps'])) > .01: wrong.append((path, found.fps, row['avg_fps']))
    assert not wrong
    assert sum(isinstance(found, VideoError) for found in probes.values()) == sum(not int(row['decoded_frames'] or 0) for row in listed())


@real
@pytest.mark.parametrize('name, reason', {
    'derived/audioonly.mp4': 'no video stream', 'derived/zeroframes.mp4': 'no video stream', 'found/torchcodec_sine_mono_s16.wav': 'no video stream',
    'derived/zeroframes.avi': 'no frame', 'derived/zeroframes.mkv': 'End of file', 'derived/zerobytes.avi': 'empty (0 bytes)',
    'derived/text_not_video.avi': 'not a video', 'derived/header_only_4k.avi': 'damaged', 'derived/truncated_no_moov.mp4': 'damaged'}.items())
def test_the_reason_fits_the_file(probes, name, reason):
    assert reason in probes[f'odd/{name}'].reason


def chosen(probes):
    "Readable odd files, HMDB51, files with several keyframes, and AVI files whose time stamps are out of order."
    odd = [p for p in probes if p.startswith(('odd/', 'hmdb51/'))]
    several = [p for p in probes if p.startswith(('ucf101_extra/', 'kinetics')) and len(getattr(probes[p], 'keyframes', ())) > 1]
    shuffled = [row['path'] for row in listed() if row['path'].startswith('ucf101/') and row['time_monotonic'] == '0']
    several += sorted((p for p in probes if p.startswith('ucf101/') and len(probes[p].keyframes) > 1), key=lambda p: probes[p].frames)[:5]
    shuffled = sorted(shuffled, key=lambda p: probes[p].frames)[:5]
    readable = [p for p in dict.fromkeys(odd + several + shuffled) if isinstance(probes[p], Probe)]
    return readable


def sums(path, index=None, **kw):
    "A digest per frame; wide films are looked at in a small box so that the test stays quick."
    return [hashlib.md5(f.numpy().tobytes()).digest() for f in decode(path, index, **kw)]


@real
def test_random_access_gives_the_frames_of_a_full_decode(probes):
    files = chosen(probes)
    assert len(files) >= 40
    rng,wrong,jumps = np.random.default_rng(0),[],0
    for name in files:
        path,p = VIDEOS/name,probes[name]
        kw = {'box': (p.height//3, p.width//3, 64, 96)} if p.width*p.height > 640*480 else {}
        whole = sums(path, **kw)
        assert len(whole) == p.frames
        keys = [n for n,_ in p.keyframes]
        # 20 random frames, in random order; and, one by one, frames at and around keyframes, where a jump could go wrong
        index = rng.integers(0, p.frames, 20).tolist()
        if sums(path, index, **kw) != [whole[i] for i in index]: wrong.append((name, 'from the start'))
        # with one keyframe there is nowhere to jump to, and `seek` changes nothing
        if len(keys) > 1 and sums(path, index, seek=p, **kw) != [whole[i] for i in index]: wrong.append((name, 'with a keyframe table'))
        near = sorted({i for k in (keys[1:2] + keys[-1:]) if k for i in (k-1, k, k+1) if i < p.frames} | {index[0]})
        for i in near if len(keys) > 1 else []:
            if sums(path, [i], seek=p, **kw) != [whole[i]]: wrong.append((name, f'frame {i} alone'))
            jumps += 1
    assert not wrong
    assert jumps >= 60


@real
def test_jumps_really_start_at_the_nearest_keyframe(probes):
    from vssl_nb.video import _numbered
    several = [p for p in probes if p.startswith(('ucf101', 'hmdb51/')) and len(getattr(probes[p], 'keyframes', ())) > 1]
    assert len(several) >= 60
    for name in several:
        p = probes[name]
        n,_ = p.keyframes[-1]
        frames = _numbered(VIDEOS/name, n, p, 1)
        assert next(frames)[0] == n, name
        frames.close()


@real
def test_a_frame_beyond_the_end_is_refused_with_both_numbers(probes):
    for name in ('odd/derived/truncated_60pct.avi', 'odd/found/decord_corrupted.mp4', 'hmdb51/wave/RATRACE_wave_f_nm_np1_fr_goo_37.avi'):
        p = probes[name]
        assert p.declared > p.frames
        with pytest.raises(VideoError, match=f'has no frame {p.declared-1}: {p.frames} frames decode'): decode(VIDEOS/name, [p.declared-1], seek=p)


@real
def test_frames_are_returned_upright(probes):
    films = [decode(VIDEOS/'odd'/'found'/f'decord_video_{turn}.mov', [1]).float() for turn in (0, 90, 180, 270)]
    assert [tuple(f.shape[1:3]) for f in films] == [(320, 568), (568, 320), (320, 568), (568, 320)]


@real
@pytest.mark.parametrize('name', ['torchcodec_h264_10bits.mp4', 'torchcodec_h265_10bits.mp4', 'torchcodec_bt709_full_range.mp4'])
def test_ten_bits_bt709_and_the_full_range_become_the_colours_of_the_formula(name):
    with av.open(str(VIDEOS/'odd'/'found'/name)) as container: frame = next(container.decode(video=0))
    deep,full,bt709 = '10' in frame.format.name, frame.color_range == 2, frame.colorspace == 1
    planes = [np.frombuffer(p, np.uint16 if deep else np.uint8).reshape(p.height, -1)[:, :p.width]/(4 if deep else 1) for p in frame.planes]
    u,v = [(c.repeat(2, 0).repeat(2, 1)-128)/(255 if full else 224) for c in planes[1:]]
    y = planes[0]/255 if full else (planes[0]-16)/219
    kr,kb = (.2126, .0722) if bt709 else (.299, .114)
    r,b = y+2*(1-kr)*v, y+2*(1-kb)*u
    rgb = np.stack([r, (y-kr*r-kb*b)/(1-kr-kb), b], -1).clip(0, 1)*255
    difference = decode(VIDEOS/'odd'/'found'/name, [0])[0].numpy()-rgb
    assert full == ('full_range' in name) and np.abs(difference).max() <= 4.5 and -1 < difference.mean() < 0


@real
def test_ffmpeg_says_nothing_on_stderr():
    "Damaged files make FFmpeg talkative; its messages would drown a progress bar."
    code = ('import sys\nfrom pathlib import Path\nfrom vssl_nb.video import VideoError, decode, probe\n'
        'for f in sorted(Path(sys.argv[1]).rglob("*.*")):\n    try: probe(f)\n    except VideoError: pass\n')
    done = subprocess.run([sys.executable, '-c', code, VIDEOS/'odd'/'derived'], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, '', '')


@real
def test_scan_of_ucf101_with_the_official_lists(tmp_path):
    with pytest.warns(UserWarning, match='13050 of the 13320 videos of the lists are not there'):
        rows = manifest.scan(VIDEOS/'ucf101', VIDEOS/'ucfTrainTestlist', progress=False)
    folder = tmp_path/'manifest.csv'
    m = manifest.read(manifest.write(folder, rows))
    assert m.rows == rows and len(m) == 270 and len(m.labels) == 9
    assert [(len(m.select('train', n)), len(m.select('test', n))) for n in (1, 2, 3)] == [(189, 81), (180, 90), (207, 63)]
    sources = {label: {r.source for r in rows if r.label == label} for label in m.labels}
    assert {len(found) for found in sources.values()} == {25}
    assert sources['Archery'] == {f'Archery/g{g:02}' for g in range(1, 26)}
    for n in (1, 2, 3):
        train,test = ({m.rows[i].source for i in m.select(part, n)} for part in ('train', 'test'))
        assert not train & test
    expected = {row['path'].removeprefix('ucf101/'): int(row['decoded_frames']) for row in listed() if row['path'].startswith('ucf101/')}
    assert {r.video: r.frames for r in rows} == expected
    with warnings.catch_warnings():
        warnings.simplefilter('error') # the cut lists name just what is there
        cut = manifest._lists(VIDEOS/'ucfTrainTestlist_subset270')[0]
    assert {f'{r.label}/{r.video.split("/")[1][:-4]}'.casefold(): {f'split{n}': getattr(r, f'split{n}') for n in (1, 2, 3)} for r in rows} == cut


@real
def test_both_spellings_of_handstand_pushups_are_one_class():
    parts,names = manifest._lists(VIDEOS/'ucfTrainTestlist')
    assert len(parts) == 13320 and len(names) == 101
    assert {len(split) for split in parts.values()} == {3}
    assert names['handstandpushups'] == 'HandstandPushups'
    assert Counter(split['split1'] for split in parts.values()) == {'train': 9537, 'test': 3783}


@real
def test_scan_of_the_odd_files_keeps_a_reason_for_each_bad_one(probes):
    rows = manifest.scan(VIDEOS/'odd', progress=False)
    assert [r.video for r in rows] == sorted(r.video for r in rows)
    listed_there = {p.removeprefix('odd/') for p in probes if p.startswith('odd/')}
    assert {r.video for r in rows} == {p for p in listed_there if p.endswith(manifest.SUFFIXES)}
    for r in rows:
        found = probes[f'odd/{r.video}']
        assert (r.status, r.frames) == ((found.reason, 0) if isinstance(found, VideoError) else ('ok', found.frames))


FILM = '''
import sys, hashlib
import numpy as np
from vssl_nb.video import encode
t,y,x = np.mgrid[:48, :48, :64]
frames = np.stack([60+40*((x-2*t)%24 < 9), 90+3*t+0*x, 130+100*((y+t)%16 < 5)], -1).astype(np.uint8)
print([hashlib.md5(encode(f'{sys.argv[1]}.{suffix}', frames, gop=gop).read_bytes()).hexdigest() for suffix in ('mp4', 'mkv') for gop in (None, 8)])
'''


def test_the_bytes_of_a_film_do_not_depend_on_what_was_in_memory_before(tmp_path):
    "glibc fills fresh memory with a chosen byte: an encoder that reads what it did not write then writes other films."
    said = {subprocess.run([sys.executable, '-c', FILM, tmp_path/f'film{fill}'], env={**os.environ, 'MALLOC_PERTURB_': fill},
        capture_output=True, text=True, check=True).stdout for fill in ('0', '85', '170')}
    assert len(said) == 1


def test_a_random_file_is_refused_and_a_flipped_one_never_crashes(tmp_path):
    rng = np.random.default_rng(0)
    film = rng.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
    for suffix in ('mp4', 'avi', 'mkv'):
        path = tmp_path/f'noise.{suffix}'
        path.write_bytes(rng.bytes(5000))
        with pytest.raises(VideoError): probe(path)
        good = encode(path, film, gop=4).read_bytes()
        for _ in range(60):
            data = bytearray(good)
            for at in rng.integers(0, len(data), rng.integers(1, 20)): data[at] = rng.integers(256)
            path.write_bytes(data[:rng.integers(1, len(data)+1)])
            try: assert len(decode(path)) == probe(path).frames
            except VideoError: pass


def test_a_file_without_permission_is_refused(tmp_path, monkeypatch):
    path = encode(tmp_path/'film.mp4', torch.zeros(2, 16, 16, 3, dtype=torch.uint8))
    path.chmod(0)
    if os.access(path, os.R_OK): monkeypatch.setattr(os, 'access', lambda *_: False) # root may read everything
    with pytest.raises(VideoError, match='may not be read'): probe(path)
