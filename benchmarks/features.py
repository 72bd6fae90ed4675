"""How fast are the features of a dataset made? Ten evenly spread clips of every video, on the
processor.

The baseline, in the same run, is the plain way: one video after another, each clip cut on its own,
ten clips at a time, in PyTorch's own memory layout; then the same with another layout and memory
that is kept. An earlier commit, a checkout of this repository, may run beside them.

    git worktree add ../earlier COMMIT
    python benchmarks/features.py --videos ../shared/videos/ucf101 --earlier ../earlier \
        --out results/features-cpu.json

Every way takes the same videos in a process of its own, in turn. Numbers are processor seconds of
all its threads, or with `--wall` seconds on the clock (on a quiet machine), medians over the
rounds; `ratios` and `over_earlier` have each round's own baseline and earlier commit. Features of
all ways are compared with those of the baseline, and so is R@k: the share of videos with one of
their own folder among the k nearest others, by untrained weights."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from step import machine  # noqa: E402

# backbone -> fields of the protocol, videos
CASES = {"small": (dict(length=16, size=64), 40), "s3d": (dict(length=32, size=128), 1)}
BASELINE = "one video at a time (baseline)"
EARLIER = "an earlier commit"
WAYS = {
    BASELINE: {"old": True},
    "baseline, channels last, memory kept": {"old": True, "fast": True},
    EARLIER: {},
    "ours": {},
    "ours, bfloat16": {"dtype": "bfloat16"},
}


class OneByOne:
    "Ten clips of one video at a time, each cut on its own."

    def __init__(self, manifest, rows, p):
        from vssl_nb.data.clips import VideoCache

        self.manifest, self.rows, self.p, self.videos = manifest, rows, p, VideoCache(manifest)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        from vssl_nb.data.clips import centre
        from vssl_nb.measure.protocols import clip_frames, crop_boxes

        r, p = self.manifest.rows[self.rows[i]], self.p
        numbers = clip_frames(p, r.frames, self.rows[i])
        augment = centre(len(numbers), p.length, r.height, r.width, size=p.size)
        augment["box"] = crop_boxes(p, r.height, r.width)[0].repeat(len(numbers), 1)
        found = self.videos.read(self.rows[i], numbers, augment["box"], p.size)
        return {
            "clips": found["clips"][:, None],
            "augment": {k: v[:, None] for k, v in augment.items()},
        }


def old(encoder, manifest, rows, p, fast):
    "Features (N, D), and seconds of reading clips, of making floats of them, and of encoding them."
    import torch
    from vssl_nb.training.machine import keep_memory
    from vssl_nb.data.views import Views

    if fast:
        keep_memory()
        for w in encoder.parameters():
            if w.ndim == 5:
                w.data = w.data.contiguous(memory_format=torch.channels_last_3d)
    views, found, took, then = Views(("rgb",)), [], [0.0] * 3, time.process_time()
    encoder.eval()

    def clock(i):
        nonlocal then
        now = time.process_time()
        took[i] += now - then
        then = now

    with torch.inference_mode():
        for item in map(OneByOne(manifest, rows, p).__getitem__, range(len(rows))):
            clock(0)
            x = views(item)["rgb"][:, 0]
            clock(1)
            found.append(
                torch.cat([encoder(part) for part in x.split(10)]).double().mean(0).float()
            )
            clock(2)
    return torch.stack(found), took


def once(o):
    "One way, one time: processor seconds, and the features to a file."
    import torch
    from vssl_nb.nets.backbones import create
    from vssl_nb.measure.features import extract_clips, mean_of_clips
    from vssl_nb.training.machine import Machine
    from vssl_nb.data.manifest import read
    from vssl_nb.measure.protocols import protocol

    torch.set_num_threads(o["threads"])
    manifest = read(o["manifest"])
    p = protocol(dtype=o.get("dtype", "float32"), **CASES[o["case"]][0], **o["change"])
    encoder, rows, parts = create(o["case"]), list(range(o["videos"])), None
    with torch.inference_mode():  # starts the threads
        encoder.eval()(torch.zeros(2, 3, p.length, p.size, p.size))
    clock = time.perf_counter if o["wall"] else time.process_time
    begin = clock()
    if o.get("old"):
        x, parts = old(encoder, manifest, rows, p, o.get("fast"))
    else:
        quiet = Machine(device="cpu", progress=False)
        x = torch.stack(
            [
                mean_of_clips(found, False)
                for _, found in extract_clips(encoder, manifest, rows, protocol=p, machine=quiet)
            ]
        )
    seconds = clock() - begin
    torch.save(x, o["file"])
    return {"seconds": seconds, "parts": parts}


def child(o):
    "`once` in a process of its own: what the allocator keeps stays there."
    env = os.environ | {"OMP_NUM_THREADS": str(o["threads"])}
    if o["checkout"]:
        env["PYTHONPATH"] = o["checkout"]
    done = subprocess.run(
        [sys.executable, __file__, "--once", json.dumps(o)], env=env, text=True, capture_output=True
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def recall(x, labels):
    "R@1 and R@5, %: each video against the others."
    import torch

    x = torch.nn.functional.normalize(x - x.mean(0), dim=1)
    near = (x @ x.T).fill_diagonal_(-2).topk(min(5, len(x) - 1)).indices
    hits = labels[near] == labels[:, None]
    return [100 * hits[:, :k].any(1).float().mean().item() for k in (1, 5)]


def measure(case, manifest, videos, a, folder):
    "A row for each way."
    import torch
    from vssl_nb.data.manifest import read

    ways = {k: how for k, how in WAYS.items() if k != EARLIER or a.earlier}
    made = {name: folder / f"{i}.pt" for i, name in enumerate(ways)}
    rounds = [
        {
            name: child(
                how
                | {
                    "case": case,
                    "manifest": str(manifest),
                    "videos": videos,
                    "threads": a.threads,
                    "wall": a.wall,
                    "file": str(made[name]),
                    "change": json.loads(a.set),
                    "checkout": a.earlier if name == EARLIER else None,
                }
            )
            for name, how in ways.items()
        }
        for _ in range(a.rounds)
    ]
    first, data = torch.load(made[BASELINE]), read(manifest)
    labels = torch.tensor([data.label_id(i) for i in range(videos)])
    rows = []
    for name in ways:
        x, seconds = torch.load(made[name]), [r[name]["seconds"] for r in rounds]

        def over(other):
            return [r[other]["seconds"] / r[name]["seconds"] for r in rounds]

        rows.append(
            {
                "backbone": case,
                "way": name,
                "videos": videos,
                "seconds": statistics.median(seconds),
                "videos_per_s": videos / statistics.median(seconds),
                "rounds": seconds,
                "parts": rounds[-1][name]["parts"],
                "ratio": statistics.median(over(BASELINE)),
                "ratios": over(BASELINE),
                "over_earlier": over(EARLIER) if a.earlier else None,
                "apart": ((x - first).norm(dim=1) / first.norm(dim=1)).max().item(),
                "recall": recall(x, labels) if videos > 1 else None,
            }
        )
    return rows


def commit(checkout):
    return subprocess.run(
        ["git", "-C", checkout, "rev-parse", "--short", "HEAD"], text=True, capture_output=True
    ).stdout.strip()


def dataset(a, folder):
    "A manifest of some videos, evenly spread over the folder."
    from vssl_nb.data.manifest import Row, read, write
    from vssl_nb.data.toy import make
    from vssl_nb.data.video import probe

    if not a.videos:
        return make(folder / "toy", size="tiny", progress=False)
    files = sorted(
        f for f in Path(a.videos).rglob("*") if f.suffix in (".avi", ".mp4", ".mkv", ".webm")
    )
    if not files:
        raise SystemExit(
            f"{a.videos}: has no videos; name a folder with .avi, .mp4, .mkv or .webm files"
        )
    rows = []
    for i, f in enumerate(files[:: max(1, len(files) // a.count)][: a.count]):
        (folder / f"{i}{f.suffix}").symlink_to(f.resolve())
        seen = probe(f)
        rows.append(
            Row(
                f"{i}{f.suffix}",
                f.parent.name,
                str(i),
                "test",
                "test",
                "test",
                seen.frames,
                seen.fps,
                seen.width,
                seen.height,
            )
        )
    path = write(folder / "manifest.csv", rows)
    return read(path).path


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--videos", help="folder of videos; toy videos if not given")
    p.add_argument("--count", type=int, default=40, help="videos to take from it, evenly spread")
    p.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES), help="backbones")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--wall", action="store_true", help="seconds on the clock")
    p.add_argument("--earlier", help="a checkout of an earlier commit")
    p.add_argument("--set", default="{}", help="JSON: further fields of the protocol")
    p.add_argument("--out", help=".json file")
    p.add_argument("--once", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.once:
        print(json.dumps(once(json.loads(a.once))))
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        path = dataset(a, folder)
        where, rows = machine("cpu") | {"threads": a.threads, "wall": a.wall}, []
        print(
            f"{where['cpu']}, {where['cores']} cores, {a.threads} threads; torch {where['torch']}\n"
        )
        for case in a.cases:
            found = measure(case, path, min(a.count, CASES[case][1]), a, folder)
            rows += found
            decode, floats, encode = (1000 * s / found[0]["videos"] for s in found[0]["parts"])
            print(
                f"{case}, {found[0]['videos']} videos; baseline: {decode:.0f} ms to read a video, "
                f"{floats:.0f} to make floats, {encode:.0f} to encode it"
            )
            print(
                f"{'':40}{'videos/s':>10}{'ms':>8}{'ratio':>8}{'over earlier':>20}{'apart':>10}  "
                "R@1, R@5"
            )
            for r in found:
                over, k = (
                    sorted(r["over_earlier"] or []),
                    ", ".join(f"{x:.1f}" for x in r["recall"] or ()),
                )
                text = (
                    f"{statistics.median(over):.2f} ({over[0]:.2f}-{over[-1]:.2f})" if over else ""
                )
                print(
                    f"{r['way']:40}{r['videos_per_s']:>10.2f}{1000 / r['videos_per_s']:>8.0f}"
                    f"{r['ratio']:>8.2f}{text:>20}{r['apart']:>10.1e}  {k}"
                )
            print()
    if a.out:
        Path(a.out).write_text(
            json.dumps(
                {
                    "what": "benchmarks/features.py",
                    "date": time.strftime("%Y-%m-%d"),
                    "machine": where,
                    "earlier": a.earlier and commit(a.earlier),
                    "cases": {c: CASES[c][0] | json.loads(a.set) for c in a.cases},
                    "rows": rows,
                },
                indent=1,
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
