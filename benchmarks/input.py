"""How fast do samples come in? Two 32-frame clips of a video at 128 px with the full augmentation of the
released code.

The baseline, in the same run, is the released recipe as the fact sheet describes it (b6, b8): frames kept as
JPEG, each decoded with PIL and sent one by one through crop, colour jitter, grey, blur, flip and conversion,
all on the worker. Ours decodes the video file itself, crops and scales in the worker, and does the rest on
whole clips: on a GPU, or, end to end on this machine, on the same core.

    python benchmarks/input.py --videos ../shared/videos/ucf101 --out results/input-cpu.json

One core, one thread; each way takes the same videos in the same order, in turn, and its fastest round
counts."""
import argparse
import io
import json
import random
import resource
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from step import machine  # noqa: E402

T, SIZE = 32, 128


def pil_recipe(frames: list[bytes], rng: random.Random):
    "One clip the released way (b8, `base`), (3, T, 128, 128) float: drawn once, every frame treated alone."
    import torch
    from PIL import Image, ImageFilter
    from torchvision.transforms.v2 import functional as F
    area, ratio = rng.uniform(0.2, 1), rng.uniform(3/4, 4/3)
    jitter = rng.random() < 0.8
    order = rng.sample(range(4), 4)
    grey, blur, flip = (rng.random() < p for p in (0.2, 0.5, 0.5))
    factors = [rng.uniform(0.6, 1.4) for _ in range(3)] + [rng.uniform(-0.1, 0.1)]
    sigma, channel, where, out = rng.uniform(0.1, 2), rng.randrange(3), (rng.random(), rng.random()), []
    for data in frames:
        x = Image.open(io.BytesIO(data)).convert('RGB')
        w, h = (min(n, round((x.width*x.height*area*r)**0.5))
            for n, r in ((x.width, ratio), (x.height, 1/ratio)))
        left, top = round(where[0]*(x.width - w)), round(where[1]*(x.height - h))
        x = x.crop((left, top, left + w, top + h)).resize((SIZE, SIZE), Image.Resampling.BICUBIC)
        for i in order if jitter else ():
            x = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)[i](x, factors[i])
        if grey: x = Image.merge('RGB', [x.split()[channel]]*3)
        if blur: x = x.filter(ImageFilter.GaussianBlur(sigma))
        if flip: x = F.hflip(x)
        out.append(F.to_dtype(F.pil_to_tensor(x), torch.float32, scale=True))
    return torch.stack(out, 1)


def jpegs(path: Path) -> list[bytes]:
    "A video as the released files keep it: one JPEG a frame, quality 95."
    from PIL import Image
    from vssl_nb.video import decode
    found = []
    for frame in decode(path).numpy():
        data = io.BytesIO()
        Image.fromarray(frame).save(data, 'JPEG', quality=95)
        found.append(data.getvalue())
    return found


def ours(manifest, recipe, cache=0):
    from vssl_nb.experiments import training_clips
    return training_clips(recipe, manifest, cache)


def rate(work, items: list[int]) -> float:
    "Samples per second."
    begin = time.perf_counter()
    for i in items: work(i)
    return len(items)/(time.perf_counter() - begin)


def decoding(files: list[Path], threads: int) -> tuple[float, float]:
    "Seconds on the clock and of processor time per video, 64 frames from its start, best of three."
    from vssl_nb.video import decode, probe
    numbers, best = [range(min(64, probe(f).frames)) for f in files], (float('inf'), float('inf'))
    for _ in range(3):
        wall, cpu = time.perf_counter(), time.process_time()
        for f, n in zip(files, numbers): decode(f, n, threads=threads)
        best = min(best, ((time.perf_counter() - wall)/len(files), (time.process_time() - cpu)/len(files)))
    return best


def resident() -> float:
    "MB of memory that this process holds now."
    if not Path('/proc/self/statm').exists(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss/1024
    return int(Path('/proc/self/statm').read_text().split()[1])*resource.getpagesize()/2**20


def over_workers(data, n: int, workers: int) -> float:
    "Samples per second of a loader with so many workers, warm."
    from vssl_nb.train import loader
    batches, seen = iter(loader(data, 4, 10**6, workers=workers)), 0
    for _ in range(4*max(workers, 1)): next(batches) # the workers start, and fill what they keep ready
    begin = time.perf_counter()
    while seen < n: seen += len(next(batches)['row'])
    return seen/(time.perf_counter() - begin)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--videos', help='folder of videos; toy videos of 128 px if not given')
    p.add_argument('--count', type=int, default=40, help='videos to take from it, evenly spread')
    p.add_argument('--rounds', type=int, default=3)
    p.add_argument('--short-side', type=int, default=144, help='of the transcoded copies')
    p.add_argument('--samples', type=int, default=5000,
        help='of the run whose memory is watched; 0 leaves it out')
    p.add_argument('--out', help='.json file')
    a = p.parse_args()
    import torch
    from vssl_nb.datasets import collate
    from vssl_nb.manifest import Row, read, write
    from vssl_nb.recipes import find, override
    from vssl_nb.toy import make
    from vssl_nb.machine import keep_memory
    from vssl_nb.video import probe, transcode
    from vssl_nb.views import Views
    torch.set_num_threads(1)
    keep_memory() # as `fit` and its workers do
    # every clip is augmented, as in the baseline
    recipe = override(find('infonce-ucf101-rgb'), colour='all', same=0.)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        root = Path(a.videos) if a.videos else make(place/'toy', size='tiny', progress=False).parent
        files = sorted(f for f in root.rglob('*') if f.suffix in ('.avi', '.mp4', '.mkv', '.webm'))
        files = files[::max(1, len(files)//a.count)][:a.count]
        (place/'original').mkdir()
        (place/'copy').mkdir()
        rows: dict[str, list[Row]] = {'original': [], 'copy': []}
        took, bytes_of = 0.0, {'original': 0, 'copy': 0}
        for i, f in enumerate(files):
            there = {'original': place/'original'/f'{i}{f.suffix}', 'copy': place/'copy'/f'{i}.mp4'}
            there['original'].symlink_to(f.resolve())
            begin = time.perf_counter()
            transcode(f, there['copy'], a.short_side)
            took += time.perf_counter() - begin
            for kind, path in there.items():
                seen = probe(path)
                bytes_of[kind] += path.stat().st_size
                rows[kind].append(Row(path.name, 'x', str(i), 'train', 'train', 'train', seen.frames,
                    seen.fps, seen.width, seen.height))
        sets = {kind: ours(read(write(place/kind/'manifest.csv', r)), recipe) for kind, r in rows.items()}
        kept, rng = [jpegs(f) for f in files], random.Random(0)
        views = Views(('rgb',))

        def pil(i): # two clips of 32 consecutive frames
            frames = kept[i]
            for _ in range(2):
                start = rng.randrange(max(1, len(frames) - T))
                clip = frames[start:start + T]
                pil_recipe(clip + [clip[-1]]*(T - len(clip)), rng)
        def item(kind, i): return sets[kind][0, i]
        def whole(kind, i): views({k: v for k, v in collate([item(kind, i)]).items() if k != 'bad'})

        ways = {'PIL per frame (baseline)': pil, 'worker, original': partial(item, 'original'),
            'worker, transcoded': partial(item, 'copy'),
            'end to end, original': partial(whole, 'original'),
            'end to end, transcoded': partial(whole, 'copy')}
        best: dict[str, float] = {}
        for _ in range(a.rounds):
            for name, work in ways.items():
                best[name] = max(best.get(name, 0), rate(work, list(range(len(files)))))
        base = best['PIL per frame (baseline)']
        where = machine('cpu') | {'threads': 1}
        print(f"{where['cpu']}, one core; {len(files)} videos, "
            f"mean {sum(r.frames for r in rows['original'])/len(files):.0f} frames; torch {where['torch']}")
        print(f"transcoded to short side {a.short_side}: {1000*took/len(files):.0f} ms a video, "
            f"{bytes_of['copy']/bytes_of['original']:.2f} of the bytes\n")
        print(f"{'':28}{'samples/s':>10}{'ms':>8}{'ratio':>8}")
        for name, r in best.items(): print(f'{name:28}{r:>10.1f}{1000/r:>8.1f}{r/base:>8.2f}')
        scaling = {f'{kind}, {w} workers': over_workers(sets[kind], 7*len(files), w)
            for kind in ('original', 'copy') for w in (1, 2)}
        print('\n' + '\n'.join(f'{name:28}{r:>10.1f}' for name, r in scaling.items()))
        threads = {f'{n} threads in the decoder': decoding(files, n) for n in (1, 2)}
        for name, (wall, cpu) in threads.items():
            print(f'{name:28}{1000*wall:>10.1f} ms a video, {1000*cpu:.1f} ms of processor time')
        memory = []
        for n in range(a.samples):
            whole('original', n % len(files)) if n % 10 == 0 else item('original', n % len(files))
            if n % max(1, a.samples//10) == 0: memory.append(round(resident(), 1))
        if memory: print(f'\nMB held over {a.samples} samples: {memory}')
        if a.out:
            Path(a.out).write_text(json.dumps({'what': 'benchmarks/input.py',
                'date': time.strftime('%Y-%m-%d'), 'machine': where, 'videos': len(files),
                'short_side': a.short_side,
                'samples_per_s': best, 'ratio': {k: v/base for k, v in best.items()},
                'transcode_ms': 1000*took/len(files), 'bytes': bytes_of, 'workers': scaling,
                'decoder_seconds_wall_cpu': threads, 'memory_MB': memory}, indent=1) + '\n')


if __name__ == '__main__': main()
