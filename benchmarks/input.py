"""How fast do samples come in? Two 32-frame clips of a video at 128 px with the full augmentation
of the released code.

The baseline, in the same run, is the released recipe as the fact sheet describes it (b6, b8):
frames kept as JPEG, each decoded with PIL and sent one by one through crop, colour jitter, grey,
blur, flip and conversion, all on the worker. Ours decodes the video file itself, crops and scales
in the worker, and does the rest on whole clips: on a GPU, or, end to end on this machine, on the
same core.

    git worktree add ../earlier COMMIT
    python benchmarks/input.py --videos ../shared/videos/ucf101 --earlier ../earlier \\
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
  quarter of the side, while nobody takes the batches (Linux).

In `results/input-cpu.json` a profile gave, of the 19.2 ms of a transcoded sample, the decoder 5,
scaling 3, the compiled loops 4 to 5, and normalisation 1 to 2 (printed, in no file). The earlier
commit there, 96dac416, is of before the augmentation was compiled."""

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
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import cv2
import measurement
import numpy as np
import torch
from measurement import in_own_process, in_turn, ratios, spread, video_row
from PIL import Image, ImageFilter
from result_files import Stamp, commit_of, settings_of, write_results
from torch import Tensor
from torchvision.transforms.v2 import functional as F

from vssl_nb.data import manifest, toy
from vssl_nb.data.dataset import TrainClips, collate
from vssl_nb.data.manifest import KEYFRAMES, Manifest, Row, file_stamp, read, write, write_keyframes
from vssl_nb.data.video import decode, encode, probe, transcode
from vssl_nb.data.views import Views
from vssl_nb.config import Recipe
from vssl_nb.methods.recipes import find, override
from vssl_nb.runs.experiment import resolve
from vssl_nb.training.loop import SHARED_BYTES, loader, shared_memory
from vssl_nb.training.machine import Machine, keep_memory

T, SIZE = 32, 128
BASELINE = "PIL per frame (baseline)"
LONG = 300  # frames of the videos of which keyframes are measured
KINDS = ("original", "copy")


def augmented_recipe() -> Recipe:
    "Every clip is augmented, as in the baseline."
    return override(find("infonce-ucf101-rgb"), colour="all", same=0.0)


def clips_of(m: Manifest, recipe: Recipe) -> TrainClips:
    return resolve(recipe, m, Machine("cpu", cache=0)).clips


def one_thread() -> None:
    "As `fit` and its workers have it."
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    keep_memory()


# ---- the released way


@dataclass(frozen=True)
class PilAugmentation:
    "What is drawn for a clip the released way (b8, `base`)."

    area: float
    ratio: float
    is_jittered: bool
    order: list[int]  # of the four changes of colour
    factors: list[float]  # of brightness, contrast, saturation and hue
    channel: int | None  # that the grey picture is made of
    sigma: float | None  # of the blur
    is_flipped: bool
    corner: tuple[float, float]  # of the crop, as shares of what is left

    @classmethod
    def draw(cls, rng: random.Random) -> "PilAugmentation":
        area, ratio = rng.uniform(0.2, 1), rng.uniform(3 / 4, 4 / 3)
        is_jittered = rng.random() < 0.8
        order = rng.sample(range(4), 4)
        is_grey, is_blurred, is_flipped = (rng.random() < p for p in (0.2, 0.5, 0.5))
        factors = [rng.uniform(0.6, 1.4) for _ in range(3)] + [rng.uniform(-0.1, 0.1)]
        sigma, channel = rng.uniform(0.1, 2), rng.randrange(3)
        return cls(
            area,
            ratio,
            is_jittered,
            order,
            factors,
            channel if is_grey else None,
            sigma if is_blurred else None,
            is_flipped,
            corner=(rng.random(), rng.random()),
        )

    def apply(self, x: Image.Image) -> Tensor:  # (3, 128, 128) float
        "One frame."
        area = x.width * x.height * self.area
        w = min(x.width, round((area * self.ratio) ** 0.5))
        h = min(x.height, round((area / self.ratio) ** 0.5))
        left, top = round(self.corner[0] * (x.width - w)), round(self.corner[1] * (x.height - h))
        x = x.crop((left, top, left + w, top + h)).resize((SIZE, SIZE), Image.Resampling.BICUBIC)
        if self.is_jittered:
            changes = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)
            for i in self.order:
                x = changes[i](x, self.factors[i])
        if self.channel is not None:
            x = Image.merge("RGB", [x.split()[self.channel]] * 3)
        if self.sigma is not None:
            x = x.filter(ImageFilter.GaussianBlur(self.sigma))
        if self.is_flipped:
            x = F.hflip(x)
        return F.to_dtype(F.pil_to_tensor(x), torch.float32, scale=True)


def pil_clip(
    frames: list[bytes],  # JPEG
    rng: random.Random,
) -> Tensor:  # (3, T, 128, 128) float
    "One clip the released way: drawn once, every frame treated alone."
    augmentation = PilAugmentation.draw(rng)
    pictures = [Image.open(io.BytesIO(data)).convert("RGB") for data in frames]
    return torch.stack([augmentation.apply(x) for x in pictures], 1)


def jpegs(video: Path) -> list[bytes]:
    "A video as the released files keep it: one JPEG a frame, quality 95."
    files = []
    for frame in decode(video).numpy():
        data = io.BytesIO()
        Image.fromarray(frame).save(data, "JPEG", quality=95)
        files.append(data.getvalue())
    return files


# ---- one round of one checkout, in a process of its own


class Samples:
    "Two clips of a video, as a worker hands them out, and with the rest of the augmentation."

    def __init__(
        self,
        folder: Path,  # of the manifests
    ):
        recipe = augmented_recipe()
        self.clips = {
            kind: clips_of(read(folder / kind / "manifest.csv"), recipe) for kind in KINDS
        }
        self.views = Views(("rgb",))

    def worker(self, kind: str, i: int) -> dict[str, Any]:
        return self.clips[kind][0, i]

    def whole(self, kind: str, i: int) -> None:
        batch = collate([self.worker(kind, i)])
        batch.pop("bad", None)
        self.views(batch)


class ReleasedSamples:
    "Two clips of 32 consecutive frames, the released way."

    def __init__(self, files: list[Path]):
        self.jpegs = [jpegs(file) for file in files]

    def sample(self, i: int) -> None:
        frames, rng = self.jpegs[i], random.Random(i)
        for _ in range(2):
            start = rng.randrange(max(1, len(frames) - T))
            clip = frames[start : start + T]
            pil_clip(clip + [clip[-1]] * (T - len(clip)), rng)


def once(o: dict[str, Any]) -> dict[str, float]:
    "Processor seconds of each way for all videos of a folder with manifests, one time."
    one_thread()
    samples = Samples(Path(o["place"]))
    m = samples.clips["original"].manifest
    files = [m.file(i) for i in range(len(samples.clips["original"]))]
    ways: dict[str, Callable[[int], Any]] = {}
    if not o["earlier"]:
        ways[BASELINE] = ReleasedSamples(files).sample
    ways["worker, original"] = partial(samples.worker, "original")
    ways["worker, transcoded"] = partial(samples.worker, "copy")
    ways["end to end, original"] = partial(samples.whole, "original")
    ways["end to end, transcoded"] = partial(samples.whole, "copy")
    for i in range(3):  # what is compiled, or read for the first time
        for work in ways.values():
            work(i % len(files))
    speeds = rates(ways, len(files), 1)
    return {name: len(files) / speed for name, speed in speeds.items()}


def rounds_of(
    place: Path,
    earlier: str | None,  # a checkout
    rounds: int,
) -> list[dict[str, dict[str, float]]]:
    "Seconds of each way, `now` and `earlier`, which take turns, each in a process of its own."

    def processes(checkout: str | None) -> Callable[[], dict[str, float]]:
        settings = {"place": str(place), "earlier": checkout}
        environment = {"PYTHONPATH": checkout} if checkout else {}
        return partial(in_own_process, __file__, "--once", settings, environment)

    ways = {"now": processes(None)}
    if earlier:
        ways["earlier"] = processes(earlier)
    seconds = in_turn(ways, rounds)
    return [{name: seconds[name][i] for name in ways} for i in range(rounds)]


def rates(
    ways: dict[str, Callable[[int], Any]],  # called with the number of an item
    items: int,
    rounds: int,
) -> dict[str, float]:
    "Samples per second of processor time of each way; of every item its fastest round."
    best = {name: [float("inf")] * items for name in ways}
    for _ in range(rounds):
        for i in range(items):
            for name, work in ways.items():
                begin = time.process_time()
                work(i)
                best[name][i] = min(best[name][i], time.process_time() - begin)
    return {name: items / sum(seconds) for name, seconds in best.items()}


# ---- decoding


def decoding(files: list[Path], threads: int) -> tuple[float, float]:
    "Seconds on the clock and of processor time per video, 64 frames from its start, best of three."
    frames = [range(min(64, probe(file).frames)) for file in files]
    best = (float("inf"), float("inf"))
    for _ in range(3):
        wall, cpu = time.perf_counter(), time.process_time()
        for file, numbers in zip(files, frames):
            decode(file, numbers, threads=threads)
        seconds = time.perf_counter() - wall, time.process_time() - cpu
        best = min(best, (seconds[0] / len(files), seconds[1] / len(files)))
    return best


def forth_and_back(
    frames: Tensor,  # (T, H, W, 3)
    n: int,
) -> Tensor:  # (n, H, W, 3)
    "A film of n frames out of a shorter one, without a cut."
    there_and_back = torch.cat([frames, frames.flip(0)[1:-1]])
    times = -(-n // len(there_and_back))
    return torch.cat([there_and_back] * times)[:n]


def long_videos(files: list[Path], folder: Path, short_side: int) -> dict[str, Manifest]:
    "Manifests of transcoded videos of 300 frames, with the table of keyframes and without."
    tables = {name: folder / name for name in ("without", "with")}
    for place in tables.values():
        place.mkdir()
    rows, keyframes = [], {}
    for i, file in enumerate(files):
        whole = encode(folder / "whole.mp4", forth_and_back(decode(file), LONG))
        copy = tables["with"] / f"{i}.mp4"
        seen = transcode(whole, copy, short_side)
        os.link(copy, tables["without"] / copy.name)
        rows.append(replace(video_row(copy, "x", str(i), "train"), frames=LONG))
        keyframes[copy.name] = (*file_stamp(copy), seen.keyframes)
    write_keyframes(tables["with"], keyframes)
    assert not (tables["without"] / KEYFRAMES).exists()
    return {name: read(write(place / "manifest.csv", rows)) for name, place in tables.items()}


def keyframes(files: list[Path], folder: Path, short_side: int, rounds: int) -> dict[str, Any]:
    """Two 32-frame clips of transcoded videos of 300 frames: frames decoded, decoding alone, the
    whole worker.
    """
    manifests = long_videos(files, folder, short_side)
    recipe = augmented_recipe()
    clips = {name: clips_of(m, recipe) for name, m in manifests.items()}
    starts = np.random.default_rng(0).integers(0, LONG - T + 1, (4 * len(files), 2))
    wanted = [np.unique([*range(a, a + T), *range(b, b + T)]) for a, b in starts]

    def decoded(name: str, i: int) -> None:
        manifests[name].decode(i % len(files), wanted[i])

    def drawn(name: str, i: int) -> None:
        clips[name][i // len(files), i % len(files)]

    speeds = {}
    for title, work in (("decode", decoded), ("worker", drawn)):
        ways = {name: partial(work, name) for name in manifests}
        speeds[title] = rates(ways, len(wanted), rounds)
    return {
        "videos": len(files),
        "frames": LONG,
        "samples_per_s": speeds,
        "frames_decoded": frames_decoded(wanted),
        "rounds": rounds,
        "ratio": {title: speed["with"] / speed["without"] for title, speed in speeds.items()},
    }


def frames_decoded(wanted: Sequence[np.ndarray]) -> dict[str, float]:
    "Frames decoded per sample: all to the last, or from the keyframe (every 8) before a clip."

    def jumping(frames: list[int]) -> int:
        "What `decode` does, counted by hand: jump where it saves more than 4 frames."
        at, n = -1, 0
        for i in frames:
            key = i // 8 * 8
            n += i - key + 1 if key - 1 - at > 4 else i - at
            at = i
        return n

    return {
        "without": float(np.mean([frames[-1] + 1 for frames in wanted])),
        "with": float(np.mean([jumping(frames.tolist()) for frames in wanted])),
    }


# ---- a manifest of many rows


def private() -> float:
    "MB that this process shares with no other."
    text = Path("/proc/self/smaps_rollup").read_text()
    return sum(int(n) for n in re.findall(r"Private_\w+:\s+(\d+)", text)) / 1024


def walk(rows: Sequence[Row], pipe) -> None:
    "Look at every row, and send how much memory that took."
    before = private()
    for i in range(len(rows)):
        rows[i].frames
    pipe.send(private() - before)


def in_a_worker(rows: Sequence[Row]) -> float | None:
    """MB that a forked process makes its own when it looks at every row; None where that cannot be
    said.
    """
    if not Path("/proc/self/smaps_rollup").exists():
        return None
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe(False)
    process = fork.Process(target=walk, args=(rows, there))
    process.start()
    megabytes = here.recv()
    process.join()
    return megabytes


def write_many(n: int, path: Path) -> None:
    "A manifest of n rows like those of Kinetics."
    with open(path, "w", newline="") as f:
        lines = csv.writer(f)
        lines.writerow(manifest.COLUMNS)
        for i in range(n):
            label = f"class {i % 400}"
            video = f"train/{label}/abcdefghi{i:06d}_000010_000020.mp4"
            part = "train" if i % 13 else "test"
            size = (250 + i % 51, 29.97, 340, 256)
            lines.writerow([video, label, "", part, "", "", *size, "", "ok"])


def line_by_line(path: Path) -> list[Row]:
    "The plain way to read a manifest."
    kinds: dict[str, Callable[[str], Any]] = {
        "frames": int,
        "fps": float,
        "width": int,
        "height": int,
    }
    rows = []
    with open(path, newline="") as f:
        for cells in csv.DictReader(f):
            row = Row(**{name: kinds.get(name, str)(text) for name, text in cells.items()})
            source = row.source or str(PurePosixPath(row.video).with_suffix(""))
            rows.append(replace(row, source=source))
    return rows


def many_rows(n: int, folder: Path, rounds: int) -> dict[str, Any]:
    "Seconds to read a manifest of n rows, and MB of a worker, against the plain way."
    path = folder / "many.csv"
    write_many(n, path)
    best = {"lines": float("inf"), "columns": float("inf")}
    for _ in range(rounds):
        begin = time.process_time()
        plain = line_by_line(path)
        middle = time.process_time()
        ours = manifest.read(path).rows
        best["lines"] = min(best["lines"], middle - begin)
        best["columns"] = min(best["columns"], time.process_time() - middle)
    assert plain == ours, "both ways must give the same rows"
    return {
        "rows": n,
        "seconds": best,
        "ratio": best["lines"] / best["columns"],
        "worker_MB": {"lines": in_a_worker(plain), "columns": in_a_worker(ours)},
    }


# ---- memory that loaders share


class Blocks:
    "Items as large as those of CoCLR on two streams, a quarter of the side, and empty."

    def __init__(
        self,
        rows: int,
        side: int,  # px
    ):
        self.rows, self.side = range(rows), side

    def __len__(self) -> int:
        return len(self.rows)

    def note(self, bad: list) -> None:
        pass

    def item_bytes(self) -> int:
        return 2 * 2 * T * self.side**2 * 3

    def __getitem__(self, key: tuple[int, int]) -> dict[str, Any]:
        clips = torch.ones(2, T, self.side, self.side, 3, dtype=torch.uint8)
        return {"clips": clips, "flow": clips.clone(), "row": key[1], "bad": []}


def shared_now() -> int:
    "Bytes of shared memory that are in use on this machine."
    disk = os.statvfs("/dev/shm")
    return disk.f_frsize * (disk.f_blocks - disk.f_bfree)


def shared_in_small(batch: int, workers: int, shrink: int) -> dict[str, float]:
    "Shared memory of loaders whose items have a smaller side, while nobody takes the batches."
    bound = SHARED_BYTES // shrink**2
    blocks = Blocks(16 * batch, SIZE // shrink)
    before, peak = shared_now(), 0
    batches = iter(loader(blocks, batch, 1, workers=workers, shared=bound))
    for _ in range(4):
        next(batches)
        for _ in range(20):
            time.sleep(0.1)
            peak = max(peak, shared_now() - before)
    batches._shutdown_workers()
    return {"bound_MB": bound / 1e6, "measured_MB": peak / 1e6}


def shared(workers: int = 16, batch: int = 128, shrink: int = 4) -> dict[str, Any]:
    """Shared memory that loaders take when nobody takes their batches: computed, and measured in
    small.
    """
    item = Blocks(1, SIZE).item_bytes()
    ahead, held = shared_memory(batch * item, workers)
    numbers = {
        "workers": workers,
        "batch": batch,
        "bound_GB": SHARED_BYTES / 1e9,
        "GB": held / 1e9,
        "prefetch": ahead,
        "four_batches_a_worker_GB": 4 * workers * batch * item / 1e9,
    }
    if Path("/dev/shm").is_dir():
        numbers["small"] = shared_in_small(batch, workers, shrink)
    return numbers


# ---- a loader, and many samples


def resident() -> float:
    "MB of memory that this process holds now."
    if not Path("/proc/self/statm").exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def over_workers(clips: TrainClips, n: int, workers: int) -> float:
    "Samples per second of a loader with so many workers, warm."
    batches = iter(loader(clips, 4, 10**6, workers=workers))
    # the workers start, and fill what they keep ready
    for _ in range(4 * max(workers, 1)):
        next(batches)
    seen = 0
    begin = time.perf_counter()
    while seen < n:
        seen += len(next(batches)["row"])
    return seen / (time.perf_counter() - begin)


def memory_over(samples: Samples, videos: int, n: int) -> list[float]:
    "MB held while so many samples are made, ten times; every tenth with all of the augmentation."
    megabytes = []
    for i in range(n):
        if i % 10 == 0:
            samples.whole("original", i % videos)
        else:
            samples.worker("original", i % videos)
        if i % max(1, n // 10) == 0:
            megabytes.append(round(resident(), 1))
    return megabytes


# ---- all of it


@dataclass(frozen=True)
class Dataset:
    "Videos to measure on, and transcoded copies, in two folders with manifests."

    place: Path
    files: list[Path]
    frames: float  # of a video, in the mean
    seconds: float  # of transcoding
    bytes_of: dict[str, int]


def dataset(a: Any, place: Path, files: list[Path]) -> Dataset:
    "Manifests of videos and of their copies, as `vssl-nb prepare` writes them."
    rows: dict[str, list[Row]] = {kind: [] for kind in KINDS}
    known: dict[str, dict[str, tuple]] = {kind: {} for kind in KINDS}
    bytes_of = dict.fromkeys(KINDS, 0)
    for kind in KINDS:
        (place / kind).mkdir()
    seconds = 0.0
    for i, file in enumerate(files):
        original = place / "original" / f"{i}{file.suffix}"
        copy = place / "copy" / f"{i}.mp4"
        original.symlink_to(file.resolve())
        begin = time.perf_counter()
        transcode(file, copy, a.short_side)
        seconds += time.perf_counter() - begin
        for kind, path in zip(KINDS, (original, copy)):
            bytes_of[kind] += path.stat().st_size
            rows[kind].append(video_row(path, "x", str(i), "train"))
            known[kind][path.name] = (*file_stamp(path), probe(path).keyframes)
    for kind in KINDS:
        write_keyframes(place / kind, known[kind])
        write(place / kind / "manifest.csv", rows[kind])
    frames = sum(row.frames for row in rows["original"]) / len(files)
    return Dataset(place, files, frames, seconds, bytes_of)


def speed_of(data: Dataset, a: Any) -> dict[str, Any]:
    "Samples per second of all ways, against the baseline and the earlier commit of each round."
    earlier = str(Path(a.earlier).resolve()) if a.earlier else None
    rounds = rounds_of(data.place, earlier, a.rounds)
    seconds = {name: [r["now"][name] for r in rounds] for name in rounds[0]["now"]}
    over_baseline = {name: ratios(seconds[BASELINE], s) for name, s in seconds.items()}
    over_earlier = {}
    if earlier:
        for name in rounds[0]["earlier"]:
            over_earlier[name] = ratios([r["earlier"][name] for r in rounds], seconds[name])
    medians = measurement.medians(seconds)
    return {
        "rounds": rounds,
        "samples_per_s": {name: len(data.files) / s for name, s in medians.items()},
        "ratio": {name: statistics.median(r) for name, r in over_baseline.items()},
        "ratios": over_baseline,
        "over_earlier": over_earlier,
    }


def print_speed(speed: dict[str, Any]) -> None:
    print(f"{'':28}{'samples/s':>10}{'ms':>8}{'ratio':>22}{'over earlier':>22}")
    for name, rate in speed["samples_per_s"].items():
        ratio = str(spread(speed["ratios"][name]))
        earlier = str(spread(speed["over_earlier"][name])) if name in speed["over_earlier"] else ""
        print(f"{name:28}{rate:>10.1f}{1000 / rate:>8.1f}{ratio:>22}{earlier:>22}")


def print_keyframes(jumps: dict[str, Any]) -> None:
    frames, ratio = jumps["frames_decoded"], jumps["ratio"]
    print(
        f"\ntwo clips of {jumps['videos']} transcoded videos of {jumps['frames']} frames: "
        f"{frames['without']:.0f} frames decoded without the table of keyframes, "
        f"{frames['with']:.0f} with it; decoding {ratio['decode']:.2f} times as fast, the worker "
        f"{ratio['worker']:.2f} times"
    )


def print_many(many: dict[str, Any]) -> None:
    seconds = many["seconds"]
    print(
        f"{many['rows']} rows: read in {seconds['columns']:.2f} s ({seconds['lines']:.2f} s line "
        f"by line); MB of a worker: {many['worker_MB']}"
    )


def measure(a: Any, place: Path, files: list[Path], stamp: Stamp) -> dict[str, Any]:
    "Everything, against its baseline in the same run."
    machine = stamp.fields["machine"]
    data = dataset(a, place, files)
    speed = speed_of(data, a)
    ms = 1000 * data.seconds / len(files)
    share = data.bytes_of["copy"] / data.bytes_of["original"]
    print(
        f"{machine['cpu']}, one core; {len(files)} videos, mean {data.frames:.0f} frames; torch "
        f"{machine['torch']}\n"
        f"transcoded to short side {a.short_side}: {ms:.0f} ms a video, {share:.2f} of the bytes\n"
    )
    print_speed(speed)

    samples = Samples(place)
    workers = {
        f"{kind}, {n} workers": over_workers(samples.clips[kind], 7 * len(files), n)
        for kind in KINDS
        for n in (1, 2)
    }
    print("\n" + "\n".join(f"{name:28}{rate:>10.1f}" for name, rate in workers.items()))
    threads = {f"{n} threads in the decoder": decoding(files, n) for n in (1, 2)}
    for name, (wall, cpu) in threads.items():
        print(f"{name:28}{1000 * wall:>10.1f} ms a video, {1000 * cpu:.1f} ms of processor time")

    (place / "long").mkdir()
    # the smallest differences
    jumps = keyframes(files[:6], place / "long", a.short_side, max(a.rounds, 9))
    print_keyframes(jumps)
    many = many_rows(a.rows, place, a.rounds) if a.rows else None
    if many:
        print_many(many)
    ahead = shared(a.workers)
    print(f"shared memory: {json.dumps(ahead)}")
    memory = memory_over(samples, len(files), a.samples)
    if memory:
        print(f"\nMB held over {a.samples} samples: {memory}")
    return {
        "videos": len(files),
        "short_side": a.short_side,
        "earlier": a.earlier and commit_of(Path(a.earlier)),
        **speed,
        "transcode_ms": ms,
        "bytes": data.bytes_of,
        "workers": workers,
        "decoder_seconds_wall_cpu": threads,
        "keyframes": jumps,
        "rows": many,
        "shared": ahead,
        "memory_MB": memory,
    }


def main():
    p = measurement.parser(__doc__)
    p.add_argument(
        "--videos", type=Path, help="folder of videos; toy videos of 128 px if not given"
    )
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
    p.add_argument("--out", type=Path, help=".json file")
    p.add_argument("--once", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.once:
        print(json.dumps(once(json.loads(a.once))))
        return

    one_thread()
    stamp = Stamp(__file__, settings_of(a, without=("earlier", "once")), threads=1)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        root = a.videos or toy.make(place / "toy", size="tiny", progress=False).parent
        files = measurement.video_files(root, a.count)
        if a.keyframes_only:
            jumps = keyframes(files[:6], place, a.short_side, a.rounds)
            print(json.dumps(jumps, indent=1))
            if a.out:
                before = json.loads(a.out.read_text())
                write_results(a.out, before | {"keyframes": jumps})
            return
        results = measure(a, place, files, stamp)
    write_results(a.out, stamp.head() | results)


if __name__ == "__main__":
    main()
