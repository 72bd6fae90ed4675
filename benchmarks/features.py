"""How fast are the features of a dataset made? Ten evenly spread clips of every video, on the
processor.

The baseline, in the same run, is the plain way: one video after another, each clip cut on its own,
ten clips at a time, in PyTorch's own memory layout; then the same with another layout and memory
that is kept. An earlier commit, a checkout of this repository, may run beside them.

    git worktree add ../earlier COMMIT
    python benchmarks/features.py --videos ../shared/videos/ucf101 --earlier ../earlier \\
        --out results/features-cpu.json

Every way takes the same videos in a process of its own, in turn. Numbers are processor seconds of
all its threads, or with `--wall` seconds on the clock (on a quiet machine), medians over the
rounds; `ratios` and `over_earlier` have each round's own baseline and earlier commit. Features of
all ways are compared with those of the baseline, and so is R@k: the share of videos with one of
their own folder among the k nearest others, by untrained weights.

With two threads and on the clock (`results/features-wall-cpu.json`) little is left of the gains in
processor time; why was not measured: against commit 1ab8eef 1.01 times as fast in float32 (0.97 to
1.07) and 1.24 in bfloat16 (1.21 to 1.31), against one video at a time 1.65 and 1.98; in processor
time (`results/features-cpu.json`) 1.45 and 1.95, and 1.56 and 2.04, all with the small
network."""

import argparse
import json
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import measurement
import torch
from measurement import in_own_process, in_turn, ratios, spread, video_files, video_row
from result_files import Stamp, commit_of, settings_of, write_results
from torch import Tensor, nn
from torch.nn import functional as F

from vssl_nb.data import toy
from vssl_nb.data.dataset import VideoCache
from vssl_nb.data.augmentation import centre
from vssl_nb.data.manifest import Manifest, read, write
from vssl_nb.data.views import Views
from vssl_nb.measure.features import extract_clips, mean_of_clips
from vssl_nb.measure.protocols import Protocol, protocol
from vssl_nb.measure.windows import clip_frames, crop_boxes
from vssl_nb.nets.backbones import create
from vssl_nb.training.machine import Machine, keep_memory

# backbone -> fields of the protocol, videos
CASES = {"small": (dict(length=16, size=64), 40), "s3d": (dict(length=32, size=128), 1)}
BASELINE = "one video at a time (baseline)"
EARLIER = "an earlier commit"
WAYS: dict[str, dict[str, Any]] = {
    BASELINE: {"baseline": True},
    "baseline, channels last, memory kept": {"baseline": True, "fast": True},
    EARLIER: {},
    "ours": {},
    "ours, bfloat16": {"dtype": "bfloat16"},
}


# ---- one way, in a process of its own


class OneByOne:
    "Ten clips of one video at a time, each cut on its own."

    def __init__(self, manifest: Manifest, rows: list[int], p: Protocol):
        self.manifest, self.rows, self.p = manifest, rows, p
        self.videos = VideoCache(manifest)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> dict[str, Any]:
        row, p = self.manifest.rows[self.rows[i]], self.p
        frames = clip_frames(p, row.frames, self.rows[i])
        augment = centre(len(frames), p.length, row.height, row.width, size=p.size)
        augment["box"] = crop_boxes(p, row.height, row.width)[0].repeat(len(frames), 1)
        cut = self.videos.read(self.rows[i], frames, augment["box"], p.size)
        return {
            "clips": cut["clips"][:, None],
            "augment": {k: v[:, None] for k, v in augment.items()},
        }


class Laps:
    "Processor seconds of parts of a loop, added up."

    def __init__(self, parts: int):
        self.seconds = [0.0] * parts
        self.since = time.process_time()

    def end(self, part: int) -> None:
        now = time.process_time()
        self.seconds[part] += now - self.since
        self.since = now


def baseline_features(
    encoder: nn.Module,
    manifest: Manifest,
    rows: list[int],
    p: Protocol,
    fast: bool,  # channels last, memory kept
) -> tuple[Tensor, list[float]]:
    "Features (N, D), and seconds of reading clips, of making floats of them, and of encoding them."
    if fast:
        keep_memory()
        for w in encoder.parameters():
            if w.ndim == 5:
                w.data = w.data.contiguous(memory_format=torch.channels_last_3d)
    encoder.eval()
    views, items = Views(("rgb",)), OneByOne(manifest, rows, p)
    features = []
    laps = Laps(3)
    with torch.inference_mode():
        for i in range(len(items)):
            item = items[i]
            laps.end(0)
            x = views(item)["rgb"][:, 0]
            laps.end(1)
            clips = torch.cat([encoder(part) for part in x.split(10)])
            features.append(clips.double().mean(0).float())
            laps.end(2)
    return torch.stack(features), laps.seconds


def our_features(encoder: nn.Module, manifest: Manifest, rows: list[int], p: Protocol) -> Tensor:
    quiet = Machine(device="cpu", progress=False)
    clips = extract_clips(encoder, manifest, rows, protocol=p, machine=quiet)
    return torch.stack([mean_of_clips(features, False) for _, features in clips])


def once(o: dict[str, Any]) -> dict[str, Any]:
    "One way, one time: processor seconds, and the features to a file."
    torch.set_num_threads(o["threads"])
    manifest = read(o["manifest"])
    settings = CASES[o["case"]][0] | {"dtype": o.get("dtype", "float32")} | o["change"]
    p = protocol(**settings)
    encoder, rows = create(o["case"]), list(range(o["videos"]))
    with torch.inference_mode():  # starts the threads
        encoder.eval()(torch.zeros(2, 3, p.length, p.size, p.size))

    clock = time.perf_counter if o["wall"] else time.process_time
    parts = None
    begin = clock()
    if o.get("baseline"):
        x, parts = baseline_features(encoder, manifest, rows, p, o.get("fast", False))
    else:
        x = our_features(encoder, manifest, rows, p)
    seconds = clock() - begin
    torch.save(x, o["file"])
    return {"seconds": seconds, "parts": parts}


# ---- all ways


def recall(
    x: Tensor,  # (N, D) features
    labels: Tensor,  # (N,)
) -> list[float]:
    "R@1 and R@5, %: each video against the others."
    x = F.normalize(x - x.mean(0), dim=1)
    near = (x @ x.T).fill_diagonal_(-2).topk(min(5, len(x) - 1)).indices
    hits = labels[near] == labels[:, None]
    return [100 * hits[:, :k].any(1).float().mean().item() for k in (1, 5)]


def measure(case: str, manifest: Path, videos: int, a: Any, folder: Path) -> list[dict[str, Any]]:
    "A row for each way."
    shared = {
        "case": case,
        "manifest": str(manifest),
        "videos": videos,
        "threads": a.threads,
        "wall": a.wall,
        "change": json.loads(a.set),
    }
    files, processes = {}, {}
    for i, (name, options) in enumerate(WAYS.items()):
        if name == EARLIER and not a.earlier:
            continue
        files[name] = folder / f"{i}.pt"
        environment = {"OMP_NUM_THREADS": str(a.threads)}
        if name == EARLIER:
            environment["PYTHONPATH"] = a.earlier
        settings = shared | options | {"file": str(files[name])}
        processes[name] = partial(in_own_process, __file__, "--once", settings, environment)
    rounds = in_turn(processes, a.rounds)

    seconds = {name: [r["seconds"] for r in of_way] for name, of_way in rounds.items()}
    first, data = torch.load(files[BASELINE]), read(manifest)
    labels = torch.tensor([data.label_id(i) for i in range(videos)])
    rows = []
    for name in processes:
        x, median = torch.load(files[name]), statistics.median(seconds[name])
        over_baseline = ratios(seconds[BASELINE], seconds[name])
        over_earlier = ratios(seconds[EARLIER], seconds[name]) if a.earlier else None
        rows.append(
            {
                "backbone": case,
                "way": name,
                "videos": videos,
                "seconds": median,
                "videos_per_s": videos / median,
                "rounds": seconds[name],
                "parts": rounds[name][-1]["parts"],
                "ratio": statistics.median(over_baseline),
                "ratios": over_baseline,
                "over_earlier": over_earlier,
                "apart": ((x - first).norm(dim=1) / first.norm(dim=1)).max().item(),
                "recall": recall(x, labels) if videos > 1 else None,
            }
        )
    return rows


def dataset(videos: str | None, count: int, folder: Path) -> Path:
    "A manifest of some videos, evenly spread over a folder; toy videos if none is given."
    if not videos:
        return toy.make(folder / "toy", size="tiny", progress=False)
    rows = []
    for i, file in enumerate(video_files(Path(videos), count)):
        link = folder / f"{i}{file.suffix}"
        link.symlink_to(file.resolve())
        rows.append(video_row(link, label=file.parent.name, source=str(i), part="test"))
    return read(write(folder / "manifest.csv", rows)).path


def print_table(case: str, rows: list[dict[str, Any]]) -> None:
    videos = rows[0]["videos"]
    decode, floats, encode = (1000 * seconds / videos for seconds in rows[0]["parts"])
    print(
        f"{case}, {videos} videos; baseline: {decode:.0f} ms to read a video, "
        f"{floats:.0f} to make floats, {encode:.0f} to encode it"
    )
    print(
        f"{'':40}{'videos/s':>10}{'ms':>8}{'ratio':>8}{'over earlier':>22}{'apart':>10}  R@1, R@5"
    )
    for r in rows:
        earlier = str(spread(r["over_earlier"])) if r["over_earlier"] else ""
        shares = ", ".join(f"{x:.1f}" for x in r["recall"] or ())
        print(
            f"{r['way']:40}{r['videos_per_s']:>10.2f}{1000 / r['videos_per_s']:>8.0f}"
            f"{r['ratio']:>8.2f}{earlier:>22}{r['apart']:>10.1e}  {shares}"
        )
    print()


def main():
    p = measurement.parser(__doc__)
    p.add_argument("--videos", help="folder of videos; toy videos if not given")
    p.add_argument("--count", type=int, default=40, help="videos to take from it, evenly spread")
    p.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES), help="backbones")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--wall", action="store_true", help="seconds on the clock")
    p.add_argument("--earlier", help="a checkout of an earlier commit")
    p.add_argument("--set", default="{}", help="JSON: further fields of the protocol")
    p.add_argument("--out", type=Path, help=".json file")
    p.add_argument("--once", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.once:
        print(json.dumps(once(json.loads(a.once))))
        return

    stamp = Stamp(__file__, settings_of(a, without=("earlier", "once")), threads=a.threads)
    machine = stamp.fields["machine"]
    machine["wall"] = a.wall
    print(
        f"{machine['cpu']}, {machine['cores']} cores, {a.threads} threads; torch "
        f"{machine['torch']}\n"
    )
    rows = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        manifest = dataset(a.videos, a.count, folder)
        for case in a.cases:
            of_case = measure(case, manifest, min(a.count, CASES[case][1]), a, folder)
            print_table(case, of_case)
            rows += of_case
    results = {
        "earlier": a.earlier and commit_of(Path(a.earlier)),
        "cases": {case: CASES[case][0] | json.loads(a.set) for case in a.cases},
        "rows": rows,
    }
    write_results(a.out, stamp.head() | results)


if __name__ == "__main__":
    main()
