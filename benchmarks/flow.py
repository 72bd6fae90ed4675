"""How fast is TV-L1? Pairs per second of ours, beside OpenCV's, at equal accuracy, on the same
pairs in the same run.

The baseline is OpenCV-contrib's `DualTVL1OpticalFlow` with its defaults and the same number of
threads, one pair after the other. Ours runs the same iterations with the same rule for stopping,
plain and compiled. The distance between the two flows is printed beside the speed, and beside that
the distance of OpenCV from itself after one pixel of one frame has changed by one grey level.

    python benchmarks/flow.py --videos ../shared/videos --threads 2 --out results/flow-cpu.json
    python benchmarks/flow.py --device cuda --videos V --out results/flow-h200.json

Pairs are neighbouring frames, from the middle of each video, scaled to a short side of 128 and of
240 px. On a GPU the pairs are repeated to full chunks, OpenCV takes a few only, on the CPU, and
ours runs on the GPU alone. The bandwidth bound is that of an iteration that reads ten planes and
writes six once (64 bytes a pixel), for the iterations that the pairs really took."""

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from step import command, machine  # noqa: E402

SETS = {"UCF101": 2.4e6, "Kinetics-400": 60e6}  # pairs
# per pixel and iteration: u (2), p (4), g (2), r and 1/|g|² read, u and p written, four bytes each
BYTES = 64


def pairs_of(files, short):
    "Grey pairs (N, H, W), first and second frames, of the most frequent size."
    import torch
    from vssl_nb.data.clips import grey
    from vssl_nb.data.video import VideoError, crop_resize, decode, probe

    by_size = {}
    for f in files:
        try:
            seen = probe(f)
        except VideoError:
            continue
        if seen.frames < 3:
            continue
        s, mid = short / min(seen.height, seen.width), seen.frames // 2
        size = round(seen.height * s), round(seen.width * s)
        by_size.setdefault(size, []).append(grey(crop_resize(decode(f, [mid, mid + 1]), size=size)))
    most = max(by_size.values(), key=len)
    return torch.stack([p[0] for p in most]), torch.stack([p[1] for p in most])


def made_up(short, n=16):
    "Pairs without videos: smooth random patterns that slide, turn and grow a little."
    import torch
    import torch.nn.functional as F
    from vssl_nb.data.views import warp

    g = torch.Generator().manual_seed(0)
    H, W = short, round(short * 4 / 3)
    x = sum(
        F.interpolate(torch.rand(n, 1, H // k, W // k, generator=g), (H, W), mode="bicubic") * k
        for k in (4, 8, 16)
    )
    x = (x - x.amin()) / (x.amax() - x.amin())
    flow = F.interpolate(torch.randn(n, 2, 3, 4, generator=g) * 3, (H, W), mode="bicubic")
    return tuple(t[:, 0].clamp(0, 1).mul(255).round().byte() for t in (x, warp(x, flow)))


def timed(work, device, rounds):
    "Seconds of the fastest round, and what came out."
    import torch

    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        out = work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begin)
    return best, out


def iterations(a, b):
    "Pixel-iterations a pair, on average, until it stops."
    import torch
    from vssl_nb.data import views

    seen, parts = 0, views._parts(False)

    def step(u, p, g, r, inverse, moving, *how):
        nonlocal seen
        seen += int(moving.sum()) * u.shape[2] * u.shape[3]
        return parts[0](u, p, g, r, inverse, moving, *how)

    with torch.no_grad():
        for i in range(len(a)):
            views._pairs(a[i : i + 1].float(), b[i : i + 1].float(), views.tvl1, (step, *parts[1:]))
    return seen / len(a)


def bandwidth(device):
    "Bytes per second of a large copy, read and written."
    import torch

    x = torch.empty(2**28 if device.type == "cuda" else 2**25, device=device).zero_()
    y = torch.empty_like(x)
    return 8 * len(x) / timed(lambda: y.copy_(x), device, 10)[0]


def apart(
    x,
    y,
):  # px
    return (x - y).square().sum(1).sqrt().mean().item()


def table(rows):
    lines = [
        "| size | way | pairs/s | ratio to OpenCV | px from OpenCV | of the bandwidth bound |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    number = lambda v, form: "" if v is None else format(v, form)
    for r in rows:
        lines.append(
            f"| {r['size']} | {r['way']} | {r['pairs_per_s']:.2f} | {number(r['ratio'], '.2f')} | "
            f"{number(r['apart'], '.3f')} | {number(r['of_bound'], '.0%')} |"
        )
    return "\n".join(lines)


def measure(a, b, device, rounds, few, copies, keep):
    "Rows of the table for pairs of one size; `keep` gets those that there are after each."
    import torch
    from vssl_nb.data.views import TVL1, tvl1

    a, b = a[:, None], b[:, None]  # (N, 1, H, W)
    size, rows, theirs = f"{a.shape[3]} x {a.shape[2]}", [], None

    def say(way, seconds, pairs, out, bound=None):
        rows.append(
            dict(
                size=size,
                way=way,
                pairs_per_s=pairs / seconds,
                apart=None if theirs is None or out is None else apart(out[: len(theirs)], theirs),
                of_bound=None if bound is None else bound * pairs / seconds,
            )
        )
        rows[-1]["ratio"] = (
            None if theirs is None else rows[-1]["pairs_per_s"] / rows[0]["pairs_per_s"]
        )
        print(f"{size}, {way}: {pairs / seconds:.2f} pairs/s", flush=True)
        keep(rows)

    try:
        import cv2
        from cv2 import optflow  # in opencv-contrib alone
    except ImportError:
        print("opencv-contrib is not here: no baseline", file=sys.stderr)
    else:
        cv2.setNumThreads(torch.get_num_threads())
        solver = optflow.DualTVL1OpticalFlow_create()

        def run(x, y):
            found = [solver.calc(p.numpy(), q.numpy(), None) for p, q in zip(x[:, 0], y[:, 0])]
            return torch.stack([torch.from_numpy(f).movedim(-1, 0) for f in found])

        seconds, theirs = timed(lambda: run(a[:few], b[:few]), torch.device("cpu"), rounds)
        say("OpenCV (baseline)", seconds, few, theirs)
        nudged = b[:few].clone()
        nudged[:, 0, 5, 5] ^= 1
        rows[-1]["apart"] = apart(run(a[:few], nudged), theirs)
        for way, solver in (("DIS", cv2.DISOpticalFlow_create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)),):
            seconds, out = timed(lambda: run(a[:few], b[:few]), torch.device("cpu"), rounds)
            say(f"OpenCV {way}, another method", seconds, few, out)
    bound, here = iterations(a[:few, 0], b[:few, 0]) * BYTES, device.type == "cpu"
    for way, compiled in (("ours", False), ("ours, compiled", True)) * here:
        work = lambda: tvl1(a[:few], b[:few], compiled=compiled)
        if compiled:
            work()  # the compiler's time is not the solver's
        seconds, out = timed(work, torch.device("cpu"), rounds)
        say(f"{way}, CPU", seconds, few, out, bound / bandwidth(torch.device("cpu")))
    if here:
        fixed = TVL1(epsilon=0, outer=2, inner=10)
        seconds, out = timed(
            lambda: fixed(a[:few], b[:few], compiled=True), torch.device("cpu"), rounds
        )
        say("2 x 10 iterations, never stopping early, compiled, CPU", seconds, few, out)
    else:
        x, y = (t.to(device).repeat(copies, 1, 1, 1) for t in (a, b))
        for way, compiled in (("ours", False), ("ours, compiled", True)):
            tvl1(x, y, compiled=compiled)
            seconds, out = timed(lambda: tvl1(x, y, compiled=compiled), device, rounds)
            say(f"{way}, GPU", seconds, len(x), out[:few].cpu(), bound / bandwidth(device))
    return rows


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--videos", help="folder of videos; made-up pairs if not given")
    p.add_argument("--count", type=int, default=24, help="videos to take from it, evenly spread")
    p.add_argument("--few", type=int, default=16, help="pairs for everything that runs on the CPU")
    p.add_argument("--short-sides", type=int, nargs="+", default=[128, 240])
    p.add_argument("--threads", type=int, default=2, help="of torch and of OpenCV")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument(
        "--copies", type=int, default=32, help="how often the pairs are repeated for the GPU"
    )
    p.add_argument("--device", default="cpu")
    p.add_argument("--out", help=".json file")
    a = p.parse_args()
    import torch
    from vssl_nb.training.machine import keep_memory

    torch.set_num_threads(a.threads)
    keep_memory()
    device, rows = torch.device(a.device), []
    about = dict(
        what="benchmarks/flow.py",
        date=time.strftime("%Y-%m-%d"),
        command=command(),
        machine=machine(a.device),
        videos=a.videos is not None,
    )

    def keep(
        **tables,
    ):  # at once: what was measured stays when the clock stops the rest
        if a.out:
            Path(a.out).write_text(json.dumps(about | tables, indent=1) + "\n")

    files = sorted(Path(a.videos).rglob("*")) if a.videos else []
    files = [
        f for f in files if f.suffix in (".avi", ".mp4", ".mkv", ".webm") and "odd" not in f.parts
    ]
    if a.videos and not files:
        sys.exit(f"{a.videos}: has no videos; name a folder with .avi, .mp4, .mkv or .webm files")
    for short in a.short_sides:
        some = files[:: max(1, len(files) // a.count)][: a.count]
        first, second = pairs_of(some, short) if files else made_up(short)
        before = list(rows)
        rows += measure(
            first,
            second,
            device,
            a.rounds,
            min(a.few, len(first)),
            a.copies,
            lambda more: keep(rows=before + more),
        )
    print("\n" + table(rows))
    ours = [r for r in rows if r["way"].startswith("ours") and r["size"] == rows[-1]["size"]]
    ours = max(ours, key=lambda r: r["pairs_per_s"])
    days = {name: n / ours["pairs_per_s"] / 86400 for name, n in SETS.items()}
    for name, d in days.items():
        long = f"{24 * d:.1f} hours" if d < 2 else f"{d:.0f} days"
        print(
            f"{name}, {SETS[name] / 1e6:g} M pairs, at the {ours['pairs_per_s']:.1f} pairs/s of "
            f"'{ours['way']}', {ours['size']}: {long} (computed from the rate, not run)"
        )
    keep(rows=rows, days=days)


if __name__ == "__main__":
    main()
