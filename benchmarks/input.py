"""How fast do samples come in? Two 32-frame clips of a video at 128 px with the full augmentation
of the released code.

The baseline, in the same run, is the released recipe as the fact sheet describes it (b6, b8):
frames kept as JPEG, each decoded with PIL and sent one by one through crop, colour jitter, grey,
blur, flip and conversion, all on the worker. Ours decodes the video file itself, crops and scales
in the worker, and does the rest on whole clips: on a GPU, or, end to end on this machine, on the
same core.

    git worktree add ../earlier COMMIT
    python benchmarks/input.py --videos ../shared/videos/ucf101 --earlier ../earlier \
        --out results/input-cpu.json

One core, one thread, and processor time, so that others on the machine matter little; each way
takes the same videos in the same order. An earlier commit, a checkout of this repository, may take
turns with this one, each round in a process of its own. Numbers are medians over the rounds;
`ratios` and `over_earlier` have each round's own baseline and earlier commit. Then, each against
its baseline in the same run, of every video its fastest round:

- two clips of a transcoded video of 300 frames (real clips, run forth and back until they have
  as many), with the table of keyframes and without;
- a manifest of `--rows` rows: seconds to read it, against one line after the other, and the
  memory that a forked worker makes its own when it looks at every row, against a list of Row
  objects;
- shared memory of 16 workers at batch 128 and CoCLR's two streams, computed, and measured at a
  quarter of the side, while nobody takes the batches (Linux)."""

import argparse
import csv
import io
import json
import multiprocessing
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath

sys.path.insert(0, str(Path(__file__).parent))
from features import commit  # noqa: E402
from step import machine  # noqa: E402

T, SIZE, BASELINE = 32, 128, "PIL per frame (baseline)"


def pil_recipe(frames: list[bytes], rng: random.Random):
    """One clip the released way (b8, `base`), (3, T, 128, 128) float: drawn once, every frame
    treated alone.
    """
    import torch
    from PIL import Image, ImageFilter
    from torchvision.transforms.v2 import functional as F

    area, ratio = rng.uniform(0.2, 1), rng.uniform(3 / 4, 4 / 3)
    jitter = rng.random() < 0.8
    order = rng.sample(range(4), 4)
    grey, blur, flip = (rng.random() < p for p in (0.2, 0.5, 0.5))
    factors = [rng.uniform(0.6, 1.4) for _ in range(3)] + [rng.uniform(-0.1, 0.1)]
    sigma, channel, where, out = (
        rng.uniform(0.1, 2),
        rng.randrange(3),
        (rng.random(), rng.random()),
        [],
    )
    for data in frames:
        x = Image.open(io.BytesIO(data)).convert("RGB")
        w, h = (
            min(n, round((x.width * x.height * area * r) ** 0.5))
            for n, r in ((x.width, ratio), (x.height, 1 / ratio))
        )
        left, top = round(where[0] * (x.width - w)), round(where[1] * (x.height - h))
        x = x.crop((left, top, left + w, top + h)).resize((SIZE, SIZE), Image.Resampling.BICUBIC)
        for i in order if jitter else ():
            x = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)[i](
                x, factors[i]
            )
        if grey:
            x = Image.merge("RGB", [x.split()[channel]] * 3)
        if blur:
            x = x.filter(ImageFilter.GaussianBlur(sigma))
        if flip:
            x = F.hflip(x)
        out.append(F.to_dtype(F.pil_to_tensor(x), torch.float32, scale=True))
    return torch.stack(out, 1)


def jpegs(path: Path) -> list[bytes]:
    "A video as the released files keep it: one JPEG a frame, quality 95."
    from PIL import Image
    from vssl_nb.data.video import decode

    found = []
    for frame in decode(path).numpy():
        data = io.BytesIO()
        Image.fromarray(frame).save(data, "JPEG", quality=95)
        found.append(data.getvalue())
    return found


def ours(manifest, recipe, cache=0):
    from vssl_nb.runs.parts import training_clips

    return training_clips(recipe, manifest, cache)


def once(o: dict) -> dict[str, float]:
    "Processor seconds of each way for all videos of a folder with manifests, one time."
    import cv2
    import torch
    from vssl_nb.data.clips import collate
    from vssl_nb.data.manifest import read
    from vssl_nb.data.views import Views
    from vssl_nb.methods.recipes import find, override
    from vssl_nb.training.machine import keep_memory

    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    keep_memory()  # as `fit` and its workers do
    # every clip is augmented, as in the baseline
    recipe = override(find("infonce-ucf101-rgb"), colour="all", same=0.0)
    sets = {
        kind: ours(read(Path(o["place"]) / kind / "manifest.csv"), recipe)
        for kind in ("original", "copy")
    }
    files, views = (
        [sets["original"].manifest.file(i) for i in range(len(sets["original"]))],
        Views(("rgb",)),
    )
    kept = [] if o["earlier"] else [jpegs(f) for f in files]

    def pil(
        i,
    ):  # two clips of 32 consecutive frames
        frames, rng = kept[i], random.Random(i)
        for _ in range(2):
            start = rng.randrange(max(1, len(frames) - T))
            clip = frames[start : start + T]
            pil_recipe(clip + [clip[-1]] * (T - len(clip)), rng)

    def item(kind, i):
        return sets[kind][0, i]

    def whole(kind, i):
        views({k: v for k, v in collate([item(kind, i)]).items() if k != "bad"})

    ways = {
        "worker, original": partial(item, "original"),
        "worker, transcoded": partial(item, "copy"),
        "end to end, original": partial(whole, "original"),
        "end to end, transcoded": partial(whole, "copy"),
    }
    if not o["earlier"]:
        ways = {BASELINE: pil} | ways
    for i in range(3):  # what is compiled, or read for the first time
        for work in ways.values():
            work(i % len(files))
    return {name: len(files) / r for name, r in rates(ways, len(files), 1).items()}


def rounds_of(place: Path, earlier: str | None, rounds: int) -> list[dict[str, dict[str, float]]]:
    "Seconds of each way, `now` and `earlier`, which take turns, each in a process of its own."
    found = []
    for _ in range(rounds):
        here: dict[str, dict[str, float]] = {}
        for name, checkout in {"now": None, "earlier": earlier}.items():
            if name == "earlier" and not earlier:
                continue
            done = subprocess.run(
                [
                    sys.executable,
                    __file__,
                    "--once",
                    json.dumps({"place": str(place), "earlier": checkout}),
                ],
                env=os.environ | ({"PYTHONPATH": checkout} if checkout else {}),
                text=True,
                capture_output=True,
            )
            if done.returncode:
                raise SystemExit(done.stderr)
            here[name] = json.loads(done.stdout.splitlines()[-1])
        found.append(here)
    return found


def rates(ways: dict, items: int, rounds: int) -> dict[str, float]:
    "Samples per second of processor time of each way, which is called with the number of an item."
    best = {name: [float("inf")] * items for name in ways}
    for _ in range(rounds):
        for i in range(items):
            for name, work in ways.items():
                begin = time.process_time()
                work(i)
                best[name][i] = min(best[name][i], time.process_time() - begin)
    return {name: items / sum(seconds) for name, seconds in best.items()}


def decoding(files: list[Path], threads: int) -> tuple[float, float]:
    "Seconds on the clock and of processor time per video, 64 frames from its start, best of three."
    from vssl_nb.data.video import decode, probe

    numbers, best = [range(min(64, probe(f).frames)) for f in files], (float("inf"), float("inf"))
    for _ in range(3):
        wall, cpu = time.perf_counter(), time.process_time()
        for f, n in zip(files, numbers):
            decode(f, n, threads=threads)
        best = min(
            best,
            ((time.perf_counter() - wall) / len(files), (time.process_time() - cpu) / len(files)),
        )
    return best


def forth_and_back(frames, n: int):
    "A film of n frames out of a shorter one, without a cut."
    import torch

    once = torch.cat([frames, frames.flip(0)[1:-1]])
    return torch.cat([once] * -(-n // len(once)))[:n]


def keyframes(files: list[Path], folder: Path, short_side: int, rounds: int) -> dict:
    """Two 32-frame clips of transcoded videos of 300 frames: frames decoded, decoding alone, the
    whole worker.
    """
    import numpy as np
    from vssl_nb.data.manifest import Row, KEYFRAMES, file_stamp, read, write, write_keyframes
    from vssl_nb.data.video import decode, encode, transcode
    from vssl_nb.methods.recipes import find, override

    (folder / "with").mkdir()
    (folder / "without").mkdir()
    rows, found = [], {}
    for i, f in enumerate(files):
        whole = encode(folder / "whole.mp4", forth_and_back(decode(f), 300))
        seen = transcode(whole, folder / "with" / f"{i}.mp4", short_side)
        os.link(folder / "with" / f"{i}.mp4", folder / "without" / f"{i}.mp4")
        rows.append(
            Row(
                f"{i}.mp4",
                "x",
                str(i),
                "train",
                "train",
                "train",
                300,
                seen.fps,
                seen.width,
                seen.height,
            )
        )
        found[f"{i}.mp4"] = (*file_stamp(folder / "with" / f"{i}.mp4"), seen.keyframes)
    recipe = override(find("infonce-ucf101-rgb"), colour="all", same=0.0)
    write_keyframes(folder / "with", found)
    manifests = {
        how: read(write(folder / how / "manifest.csv", rows)) for how in ("without", "with")
    }
    clips = {how: ours(m, recipe) for how, m in manifests.items()}
    assert not (folder / "without" / KEYFRAMES).exists()
    rng = np.random.default_rng(0)
    starts = rng.integers(0, 300 - T + 1, (4 * len(files), 2))
    asked = [np.unique([*range(a, a + T), *range(b, b + T)]) for a, b in starts]
    best = {
        "decode": rates(
            {
                how: lambda i, m=m: m.decode(i % len(files), asked[i])
                for how, m in manifests.items()
            },
            len(asked),
            rounds,
        ),
        "worker": rates(
            {how: lambda i, c=c: c[i // len(files), i % len(files)] for how, c in clips.items()},
            len(asked),
            rounds,
        ),
    }
    return {
        "videos": len(files),
        "frames": 300,
        "samples_per_s": best,
        "frames_decoded": decoded(asked),
        "rounds": rounds,
        "ratio": {what: r["with"] / r["without"] for what, r in best.items()},
    }


def decoded(asked: list) -> dict[str, float]:
    "Frames decoded per sample: all to the last, or from the keyframe (every 8) before a clip."
    import numpy as np

    def jumping(a):
        at, n = -1, 0
        # what `decode` does, counted by hand: jump where it saves more than 4 frames
        for i in a:
            key = i // 8 * 8
            n, at = (n + i - key + 1, i) if key - 1 - at > 4 else (n + i - at, i)
        return n

    return {
        "without": float(np.mean([a[-1] + 1 for a in asked])),
        "with": float(np.mean([jumping(a.tolist()) for a in asked])),
    }


def private() -> float:
    "MB that this process shares with no other."
    text = Path("/proc/self/smaps_rollup").read_text()
    return sum(int(n) for n in re.findall(r"Private_\w+:\s+(\d+)", text)) / 1024


def walk(rows, pipe) -> None:
    "Look at every row, and say how much memory that took."
    before = private()
    for i in range(len(rows)):
        rows[i].frames
    pipe.send(private() - before)


def in_a_worker(rows) -> float | None:
    """MB that a forked process makes its own when it looks at every row; None where that cannot be
    said.
    """
    if not Path("/proc/self/smaps_rollup").exists():
        return None
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe(False)
    child = fork.Process(target=walk, args=(rows, there))
    child.start()
    found = here.recv()
    child.join()
    return found


def many_rows(n: int, folder: Path, rounds: int) -> dict:
    """A manifest of n rows like those of Kinetics: seconds to read it, MB of a worker, against the
    plain way.
    """
    from vssl_nb.data import manifest

    path = folder / "many.csv"
    with open(path, "w", newline="") as f:
        lines = csv.writer(f)
        lines.writerow(manifest.COLUMNS)
        for i in range(n):
            video = f"train/class {i % 400}/abcdefghi{i:06d}_000010_000020.mp4"
            part = "train" if i % 13 else "test"
            lines.writerow(
                [
                    video,
                    f"class {i % 400}",
                    "",
                    part,
                    "",
                    "",
                    250 + i % 51,
                    29.97,
                    340,
                    256,
                    "",
                    "ok",
                ]
            )
    kinds = {"frames": int, "fps": float, "width": int, "height": int}

    def by_lines():
        with open(path, newline="") as f:
            rows = [
                manifest.Row(**{name: kinds.get(name, str)(text) for name, text in cells.items()})
                for cells in csv.DictReader(f)
            ]
        return [
            replace(r, source=r.source or str(PurePosixPath(r.video).with_suffix(""))) for r in rows
        ]

    best: dict[str, float] = {}
    for _ in range(rounds):
        for how, read in (("lines", by_lines), ("columns", lambda: manifest.read(path))):
            begin = time.process_time()
            found = read()
            best[how] = min(best.get(how, float("inf")), time.process_time() - begin)
            if how == "lines":
                plain = found
    assert plain == found.rows, "both ways must give the same rows"
    return {
        "rows": n,
        "seconds": best,
        "ratio": best["lines"] / best["columns"],
        "worker_MB": {"lines": in_a_worker(plain), "columns": in_a_worker(found.rows)},
    }


class Blocks:
    "Items as large as those of CoCLR on two streams, a quarter of the side, and empty."

    def __init__(self, rows: int, side: int):
        self.rows, self.side = range(rows), side

    def __len__(self):
        return len(self.rows)

    def note(self, bad):
        pass

    def item_bytes(self):
        return 2 * 2 * T * self.side**2 * 3

    def __getitem__(self, key):
        import torch

        clips = torch.ones(2, T, self.side, self.side, 3, dtype=torch.uint8)
        return {"clips": clips, "flow": clips.clone(), "row": key[1], "bad": []}


def shared(workers: int = 16, batch: int = 128, shrink: int = 4) -> dict:
    """Shared memory that loaders take when nobody takes their batches: computed, and measured in
    small.
    """
    from vssl_nb.training.loop import SHARED_BYTES, loader, shared_memory

    ahead, held = shared_memory(batch * Blocks(1, SIZE).item_bytes(), workers)
    found = {
        "workers": workers,
        "batch": batch,
        "bound_GB": SHARED_BYTES / 1e9,
        "GB": held / 1e9,
        "prefetch": ahead,
        "four_batches_a_worker_GB": 4 * workers * batch * Blocks(1, SIZE).item_bytes() / 1e9,
    }
    if not Path("/dev/shm").is_dir():
        return found

    def used():
        return (s := os.statvfs("/dev/shm")).f_frsize * (s.f_blocks - s.f_bfree)

    bound, before, peak = SHARED_BYTES // shrink**2, used(), 0
    batches = iter(
        loader(Blocks(16 * batch, SIZE // shrink), batch, 1, workers=workers, shared=bound)
    )
    for _ in range(4):
        next(batches)
        for _ in range(20):
            time.sleep(0.1)
            peak = max(peak, used() - before)
    batches._shutdown_workers()
    return found | {"small": {"bound_MB": bound / 1e6, "measured_MB": peak / 1e6}}


def resident() -> float:
    "MB of memory that this process holds now."
    if not Path("/proc/self/statm").exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def over_workers(data, n: int, workers: int) -> float:
    "Samples per second of a loader with so many workers, warm."
    from vssl_nb.training.loop import loader

    batches, seen = iter(loader(data, 4, 10**6, workers=workers)), 0
    # the workers start, and fill what they keep ready
    for _ in range(4 * max(workers, 1)):
        next(batches)
    begin = time.perf_counter()
    while seen < n:
        seen += len(next(batches)["row"])
    return seen / (time.perf_counter() - begin)


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--videos", help="folder of videos; toy videos of 128 px if not given")
    p.add_argument("--count", type=int, default=40, help="videos to take from it, evenly spread")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--earlier", help="a checkout of an earlier commit")
    p.add_argument("--short-side", type=int, default=144, help="of the transcoded copies")
    p.add_argument(
        "--samples",
        type=int,
        default=5000,
        help="of the run whose memory is watched; 0 leaves it out",
    )
    p.add_argument(
        "--rows", type=int, default=240_000, help="of the manifest that is read; 0 leaves it out"
    )
    p.add_argument(
        "--workers", type=int, default=16, help="of the loader whose shared memory is counted"
    )
    p.add_argument(
        "--keyframes-only",
        action="store_true",
        help="measure the keyframes again, and leave what else the file of --out says as it is",
    )
    p.add_argument("--out", help=".json file")
    p.add_argument("--once", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.once:
        print(json.dumps(once(json.loads(a.once))))
        return
    import cv2
    import torch
    from vssl_nb.data.clips import collate
    from vssl_nb.data.manifest import Row, file_stamp, read, write, write_keyframes
    from vssl_nb.methods.recipes import find, override
    from vssl_nb.data.toy import make
    from vssl_nb.training.machine import keep_memory
    from vssl_nb.data.video import probe, transcode
    from vssl_nb.data.views import Views

    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    keep_memory()  # as `fit` and its workers do
    # every clip is augmented, as in the baseline
    recipe = override(find("infonce-ucf101-rgb"), colour="all", same=0.0)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        root = (
            Path(a.videos) if a.videos else make(place / "toy", size="tiny", progress=False).parent
        )
        files = sorted(f for f in root.rglob("*") if f.suffix in (".avi", ".mp4", ".mkv", ".webm"))
        files = files[:: max(1, len(files) // a.count)][: a.count]
        if a.keyframes_only:
            found = keyframes(files[:6], place, a.short_side, a.rounds)
            print(json.dumps(found, indent=1))
            if a.out:
                before = json.loads(Path(a.out).read_text())
                Path(a.out).write_text(json.dumps(before | {"keyframes": found}, indent=1) + "\n")
            return
        (place / "original").mkdir()
        (place / "copy").mkdir()
        rows: dict[str, list[Row]] = {"original": [], "copy": []}
        known: dict[str, dict] = {"original": {}, "copy": {}}
        took, bytes_of = 0.0, {"original": 0, "copy": 0}
        for i, f in enumerate(files):
            there = {
                "original": place / "original" / f"{i}{f.suffix}",
                "copy": place / "copy" / f"{i}.mp4",
            }
            there["original"].symlink_to(f.resolve())
            begin = time.perf_counter()
            transcode(f, there["copy"], a.short_side)
            took += time.perf_counter() - begin
            for kind, path in there.items():
                seen = probe(path)
                bytes_of[kind] += path.stat().st_size
                rows[kind].append(
                    Row(
                        path.name,
                        "x",
                        str(i),
                        "train",
                        "train",
                        "train",
                        seen.frames,
                        seen.fps,
                        seen.width,
                        seen.height,
                    )
                )
                known[kind][path.name] = (*file_stamp(path), seen.keyframes)
        # as `vssl-nb prepare` does
        for kind, keys in known.items():
            write_keyframes(place / kind, keys)
        sets = {
            kind: ours(read(write(place / kind / "manifest.csv", r)), recipe)
            for kind, r in rows.items()
        }
        measured = rounds_of(place, a.earlier and str(Path(a.earlier).resolve()), a.rounds)

        def over(base, name, by):
            return [r[by][base] / r["now"][name] for r in measured]

        names = [*measured[0]["now"]]
        rate = {
            name: len(files) / statistics.median(r["now"][name] for r in measured) for name in names
        }
        ratios = {name: over(BASELINE, name, "now") for name in names}
        earlier = {name: over(name, name, "earlier") for name in names[1:]} if a.earlier else {}
        where = machine("cpu") | {"threads": 1}
        print(
            f"{where['cpu']}, one core; {len(files)} videos, "
            f"mean {sum(r.frames for r in rows['original']) / len(files):.0f} frames; torch "
            f"{where['torch']}"
        )
        print(
            f"transcoded to short side {a.short_side}: {1000 * took / len(files):.0f} ms a video, "
            f"{bytes_of['copy'] / bytes_of['original']:.2f} of the bytes\n"
        )

        def spread(n):
            return f"{statistics.median(n):.2f} ({min(n):.2f}-{max(n):.2f})" if n else ""

        print(f"{'':28}{'samples/s':>10}{'ms':>8}{'ratio':>22}{'over earlier':>22}")
        for name, r in rate.items():
            print(
                f"{name:28}{r:>10.1f}{1000 / r:>8.1f}{spread(ratios[name]):>22}"
                f"{spread(earlier.get(name)):>22}"
            )
        views = Views(("rgb",))

        def item(kind, i):
            return sets[kind][0, i]

        def whole(kind, i):
            views({k: v for k, v in collate([item(kind, i)]).items() if k != "bad"})

        scaling = {
            f"{kind}, {w} workers": over_workers(sets[kind], 7 * len(files), w)
            for kind in ("original", "copy")
            for w in (1, 2)
        }
        print("\n" + "\n".join(f"{name:28}{r:>10.1f}" for name, r in scaling.items()))
        threads = {f"{n} threads in the decoder": decoding(files, n) for n in (1, 2)}
        for name, (wall, cpu) in threads.items():
            print(
                f"{name:28}{1000 * wall:>10.1f} ms a video, {1000 * cpu:.1f} ms of processor time"
            )
        (place / "long").mkdir()
        # the smallest differences
        jumps = keyframes(files[:6], place / "long", a.short_side, max(a.rounds, 9))
        print(
            f"\ntwo clips of {jumps['videos']} transcoded videos of 300 frames: "
            f"{jumps['frames_decoded']['without']:.0f} frames decoded without the table of "
            "keyframes, "
            f"{jumps['frames_decoded']['with']:.0f} with it; decoding "
            f"{jumps['ratio']['decode']:.2f} times "
            f"as fast, the worker {jumps['ratio']['worker']:.2f} times"
        )
        many = many_rows(a.rows, place, a.rounds) if a.rows else None
        if many:
            print(
                f"{many['rows']} rows: read in {many['seconds']['columns']:.2f} s "
                f"({many['seconds']['lines']:.2f} s line by line); MB of a worker: "
                f"{many['worker_MB']}"
            )
        ahead = shared(a.workers)
        print(f"shared memory: {json.dumps(ahead)}")
        memory = []
        for n in range(a.samples):
            whole("original", n % len(files)) if n % 10 == 0 else item("original", n % len(files))
            if n % max(1, a.samples // 10) == 0:
                memory.append(round(resident(), 1))
        if memory:
            print(f"\nMB held over {a.samples} samples: {memory}")
        if a.out:
            Path(a.out).write_text(
                json.dumps(
                    {
                        "what": "benchmarks/input.py",
                        "date": time.strftime("%Y-%m-%d"),
                        "machine": where,
                        "videos": len(files),
                        "short_side": a.short_side,
                        "earlier": a.earlier and commit(a.earlier),
                        "rounds": measured,
                        "samples_per_s": rate,
                        "ratio": {k: statistics.median(v) for k, v in ratios.items()},
                        "ratios": ratios,
                        "over_earlier": earlier,
                        "transcode_ms": 1000 * took / len(files),
                        "bytes": bytes_of,
                        "workers": scaling,
                        "decoder_seconds_wall_cpu": threads,
                        "keyframes": jumps,
                        "rows": many,
                        "shared": ahead,
                        "memory_MB": memory,
                    },
                    indent=1,
                )
                + "\n"
            )


if __name__ == "__main__":
    main()
