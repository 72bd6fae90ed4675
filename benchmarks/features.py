"""How fast are the features of a dataset made? Ten evenly spread clips of every video, on the processor.

The baseline, in the same run, is extraction as it was: one video after another, decoded while the encoder
waits and encoded while the decoder waits, each clip cut on its own, ten clips at a time, in PyTorch's own
memory layout. Between it and ours stand its single changes, to show what each of them is worth.

    python benchmarks/features.py --videos ../shared/videos/ucf101 --out results/features-cpu.json

Every way takes the same videos in a process of its own, in turn, and its fastest round counts. Features of
all ways are compared with those of the baseline."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from step import machine  # noqa: E402

# backbone -> fields of the protocol, videos
CASES = {'small': (dict(length=16, size=64), 40), 's3d': (dict(length=32, size=128), 2)}
BASELINE = 'one video at a time (baseline)'
WAYS = {
    BASELINE: {'old': True},
    'baseline, two workers decode': {'old': True, 'workers': 2},
    'baseline, channels last, memory kept': {'old': True, 'fast': True},
    'ours': {},
    'ours, one worker decodes': {'workers': 1},
    'ours, bfloat16': {'dtype': 'bfloat16'}}


class OneByOne:
    "Ten clips of one video at a time, each cut on its own."
    def __init__(self, manifest, rows, p):
        from vssl_nb.data.clips import VideoCache
        self.manifest, self.rows, self.p, self.videos = manifest, rows, p, VideoCache(manifest)

    def __len__(self): return len(self.rows)

    def __getitem__(self, i):
        from vssl_nb.data.clips import centre
        from vssl_nb.measure.protocols import clip_frames, crop_boxes
        r, p = self.manifest.rows[self.rows[i]], self.p
        numbers = clip_frames(p, r.frames, self.rows[i])
        augment = centre(len(numbers), p.length, r.height, r.width, size=p.size)
        augment['box'] = crop_boxes(p, r.height, r.width)[0].repeat(len(numbers), 1)
        found = self.videos.read(self.rows[i], numbers, augment['box'], p.size)
        return {'clips': found['clips'][:, None], 'augment': {k: v[:, None] for k, v in augment.items()}}


def old(encoder, manifest, rows, p, workers, fast):
    "Features (N, D), and seconds of waiting for clips, of making floats of them, and of encoding them."
    import torch
    from torch.utils.data import DataLoader
    from vssl_nb.training.machine import keep_memory
    from vssl_nb.data.views import Views
    if fast:
        keep_memory()
        for w in encoder.parameters():
            if w.ndim == 5: w.data = w.data.contiguous(memory_format=torch.channels_last_3d)
    views, found, took, then = Views(('rgb',)), [], [0.]*3, time.perf_counter()
    encoder.eval()
    def clock(i):
        nonlocal then
        now = time.perf_counter()
        took[i] += now - then
        then = now
    with torch.inference_mode():
        for item in DataLoader(OneByOne(manifest, rows, p), None, num_workers=workers):
            clock(0)
            x = views(item)['rgb'][:, 0]
            clock(1)
            found.append(torch.cat([encoder(part) for part in x.split(10)]).double().mean(0).float())
            clock(2)
    return torch.stack(found), took


def once(o):
    "One way, one time: seconds, and the features to a file."
    import torch
    from vssl_nb.nets.backbones import create
    from vssl_nb.measure.features import extract_clips, mean_of_clips
    from vssl_nb.training.machine import Machine
    from vssl_nb.data.manifest import read
    from vssl_nb.measure.protocols import protocol
    torch.set_num_threads(o['threads'])
    manifest = read(o['manifest'])
    p = protocol(dtype=o.get('dtype', 'float32'), **CASES[o['case']][0], **o['change'])
    encoder, rows, parts = create(o['case']), list(range(o['videos'])), None
    with torch.inference_mode(): # starts the threads
        encoder.eval()(torch.zeros(2, 3, p.length, p.size, p.size))
    begin = time.perf_counter()
    if o.get('old'): x, parts = old(encoder, manifest, rows, p, o.get('workers', 0), o.get('fast'))
    else:
        quiet = Machine(device='cpu', workers=o.get('workers', 0), progress=False)
        x = torch.stack([mean_of_clips(found, False)
            for _, found in extract_clips(encoder, manifest, rows, protocol=p, machine=quiet)])
    seconds = time.perf_counter() - begin
    torch.save(x, o['file'])
    return {'seconds': seconds, 'parts': parts}


def child(o):
    "`once` in a process of its own: what the allocator keeps stays there."
    env = os.environ | {'OMP_NUM_THREADS': str(o['threads'])}
    done = subprocess.run([sys.executable, __file__, '--once', json.dumps(o)], env=env, text=True,
        capture_output=True)
    if done.returncode: raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def measure(case, manifest, videos, a, folder):
    "A row for each way."
    import torch
    best, made = {}, {}
    for _ in range(a.rounds):
        for name, how in WAYS.items():
            made[name] = folder/f'{len(made)}.pt' if name not in made else made[name]
            found = child(how | {'case': case, 'manifest': str(manifest), 'videos': videos,
                'threads': a.threads, 'file': str(made[name]), 'change': json.loads(a.set)})
            if name not in best or found['seconds'] < best[name]['seconds']: best[name] = found
    base, first = best[BASELINE]['seconds'], torch.load(made[BASELINE])
    rows = []
    for name, found in best.items():
        x = torch.load(made[name])
        off = ((x - first).norm(dim=1)/first.norm(dim=1)).max().item()
        rows.append({'backbone': case, 'way': name, 'videos': videos, **found,
            'videos_per_s': videos/found['seconds'], 'ratio': base/found['seconds'], 'apart': off})
    return rows


def dataset(a, folder):
    "A manifest of some videos, evenly spread over the folder."
    from vssl_nb.data.manifest import Row, read, write
    from vssl_nb.data.toy import make
    from vssl_nb.data.video import probe
    if not a.videos: return make(folder/'toy', size='tiny', progress=False)
    files = sorted(f for f in Path(a.videos).rglob('*') if f.suffix in ('.avi', '.mp4', '.mkv', '.webm'))
    if not files:
        raise SystemExit(f'{a.videos}: has no videos; name a folder with .avi, .mp4, .mkv or .webm files')
    rows = []
    for i, f in enumerate(files[::max(1, len(files)//a.count)][:a.count]):
        (folder/f'{i}{f.suffix}').symlink_to(f.resolve())
        seen = probe(f)
        rows.append(Row(f'{i}{f.suffix}', 'x', str(i), 'test', 'test', 'test', seen.frames, seen.fps,
            seen.width, seen.height))
    path = write(folder/'manifest.csv', rows)
    return read(path).path


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--videos', help='folder of videos; toy videos if not given')
    p.add_argument('--count', type=int, default=40, help='videos to take from it, evenly spread')
    p.add_argument('--cases', nargs='+', default=list(CASES), choices=list(CASES), help='backbones')
    p.add_argument('--rounds', type=int, default=3)
    p.add_argument('--threads', type=int, default=2)
    p.add_argument('--set', default='{}', help='JSON: further fields of the protocol')
    p.add_argument('--out', help='.json file')
    p.add_argument('--once', help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.once:
        print(json.dumps(once(json.loads(a.once))))
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        path = dataset(a, folder)
        where, rows = machine('cpu') | {'threads': a.threads}, []
        print(f"{where['cpu']}, {where['cores']} cores, {a.threads} threads; torch {where['torch']}\n")
        for case in a.cases:
            found = measure(case, path, min(a.count, CASES[case][1]), a, folder)
            rows += found
            decode, floats, encode = (1000*s/found[0]['videos'] for s in found[0]['parts'])
            print(f'{case}, {found[0]["videos"]} videos; baseline: {decode:.0f} ms to read a video, '
                f'{floats:.0f} to make floats, {encode:.0f} to encode it')
            print(f"{'':40}{'videos/s':>10}{'ms':>8}{'ratio':>8}{'apart':>10}")
            for r in found: print(f"{r['way']:40}{r['videos_per_s']:>10.2f}{1000/r['videos_per_s']:>8.0f}"
                f"{r['ratio']:>8.2f}{r['apart']:>10.1e}")
            print()
    if a.out: Path(a.out).write_text(json.dumps({'what': 'benchmarks/features.py',
        'date': time.strftime('%Y-%m-%d'), 'machine': where, 'cases': {c: CASES[c][0] for c in a.cases},
        'rows': rows}, indent=1) + '\n')


if __name__ == '__main__': main()
