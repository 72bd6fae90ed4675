"""What does retrieval by match probability cost, in time and in memory?

Every video has M distributions and draws K points from each; all points of a query are compared
with all points of every gallery video (Eq. 9 of ProViCo). Ours compares chunks of videos with
chunks of videos and keeps one number a pair. The baseline is the equation as one would write it
down: all points of the gallery are drawn once and kept, and a query is compared with all of them at
once. Both draw the same points and are checked to agree. They take turns, round by round, and the
median counts; the cosine of the means stands beside them.

    python benchmarks/match_probability.py --out results/match-probability-cpu.json

Memory: what a process of its own holds at most on top of the Gaussians, beside what page 24
computes. The last line computes time and memory of UCF101 (3,783 queries, 9,537 gallery videos)
from the largest size that was measured: time grows with the number of pairs."""

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from mining import _kib  # noqa: E402
from step import machine  # noqa: E402

import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from vssl_nb.nets.heads import match_log_probability  # noqa: E402
from vssl_nb.training.machine import Machine  # noqa: E402
from vssl_nb.measure.gaussian import MATCH_CHUNK, VideoGaussians, draw_videos, match_rows  # noqa: E402

AB = torch.tensor(15.0), torch.tensor(15.0)


def made_up(n: int, D: int, M: int, first: int = 0) -> VideoGaussians:
    "Unit means and a total variance of about 0.2, as a head begins."
    g = torch.Generator().manual_seed(first)
    mu = F.normalize(torch.randn(n, M, D, generator=g), dim=2)
    s, row = torch.full((n, M, D), 0.2 / D).log(), torch.arange(n) + first
    return VideoGaussians(mu, s, torch.zeros(n).long(), row)


def ours(query, gallery, k, device):
    return torch.cat(
        [*match_rows(query, gallery, *AB, k=k, machine=Machine(device, progress=False))]
    )


def at_once(query, gallery, k, device):
    "The baseline: the points of the whole gallery, one query after another."
    a, b = (x.to(device) for x in AB)
    y = draw_videos(gallery, k).to(device)
    rows = [match_log_probability(z[None].to(device), y, a, b).cpu() for z in draw_videos(query, k)]
    return torch.cat(rows)


def cosine(query, gallery, k, device):
    x, y = (F.normalize(g.mean.to(device), dim=1) for g in (query, gallery))
    return (x @ y.T).cpu()


WAYS = {"ours": ours, "at once": at_once, "cosine": cosine}


def timed(f, *args) -> float:
    begin = time.perf_counter()
    f(*args)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def _peak(name, Q, N, a, pipe):
    torch.set_num_threads(a.threads)
    # libraries
    WAYS[name](made_up(2, a.dim, a.mixtures), made_up(3, a.dim, a.mixtures, 10), 2, "cpu")
    sides = made_up(Q, a.dim, a.mixtures), made_up(N, a.dim, a.mixtures, Q)
    Path("/proc/self/clear_refs").write_text("5")  # the highest mark begins anew (Linux)
    before = _kib("VmRSS")
    WAYS[name](*sides, a.points, "cpu")
    pipe.send((_kib("VmHWM") - before) * 1024)


def peak_bytes(name: str, Q: int, N: int, a) -> int:
    "Memory on top of the Gaussians, in a process of its own."
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["vssl_nb.measure.gaussian"])
    here, there = context.Pipe(False)
    p = context.Process(target=_peak, args=(name, Q, N, a, there))
    p.start()
    p.join()
    if p.exitcode:
        raise SystemExit("the process that measures memory failed")
    return here.recv()


def computed_bytes(Q: int, N: int, a, device) -> int:
    "The formula of page 24, without the Gaussians themselves."
    c, points = MATCH_CHUNK[device.type], a.mixtures * a.points
    rows = min(16 * c, Q)
    return 4 * (
        points * a.dim * (rows + c)
        + 5 * (min(c, Q) * points) * (min(c, N) * points)
        + rows * N
        + Q * N
    )


def measure(Q: int, N: int, a) -> dict:
    sides, device = (
        (made_up(Q, a.dim, a.mixtures), made_up(N, a.dim, a.mixtures, Q)),
        torch.device(a.device),
    )
    apart = (
        (ours(*sides, a.points, a.device) - at_once(*sides, a.points, a.device)).abs().max().item()
    )
    assert apart < 1e-3, f"they disagree by {apart}"
    took: dict = {name: [] for name in WAYS}
    for _ in range(a.rounds):
        for name, f in WAYS.items():
            took[name].append(timed(f, *sides, a.points, a.device))
    seconds = {name: statistics.median(t) for name, t in took.items()}
    peaks = {n: peak_bytes(n, Q, N, a) for n in WAYS} if device.type == "cpu" else {}
    return {
        "queries": Q,
        "gallery": N,
        "seconds": seconds,
        "all_seconds": took,
        "apart": apart,
        "ratio": seconds["at once"] / seconds["ours"],
        "pairs_per_second": Q * N / seconds["ours"],
        "peak_bytes": peaks,
        "computed_bytes": computed_bytes(Q, N, a, device),
    }


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument(
        "--sizes", nargs="+", default=["32x200", "32x800"], help="queries x gallery videos"
    )
    p.add_argument("--dim", type=int, default=512)
    p.add_argument("--mixtures", type=int, default=5)
    p.add_argument("--points", type=int, default=10)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--out", help=".json file")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    where, rows = machine(torch.device(a.device).type), []
    print(
        f"{where['cpu']}, {a.threads} threads; torch {where['torch']}; D {a.dim}, "
        f"{a.mixtures} distributions, {a.points} points of each; medians of {a.rounds}"
    )
    for size in a.sizes:
        rows.append(r := measure(*map(int, size.split("x")), a))
        mib = "; ".join(f"{n} {b / 2**20:.0f} MiB" for n, b in r["peak_bytes"].items())
        print(
            f"{size}: ours {r['seconds']['ours']:.2f} s ({r['pairs_per_second']:,.0f} pairs/s), "
            "at once "
            f"{r['seconds']['at once']:.2f} s, cosine {r['seconds']['cosine']:.4f} s; memory: "
            f"{mib or 'not measured'}, computed for ours {r['computed_bytes'] / 2**20:.0f} MiB",
            flush=True,
        )
    Q, N = 3783, 9537
    full = {
        "queries": Q,
        "gallery": N,
        "seconds": Q * N / rows[-1]["pairs_per_second"],
        "bytes": computed_bytes(Q, N, a, torch.device(a.device)),
        "gaussian_bytes": 8 * a.mixtures * a.dim * (Q + N),
    }
    print(
        f"UCF101, computed: {full['seconds'] / 60:.1f} minutes, {full['bytes'] / 2**20:,.0f} MiB "
        "on top of "
        f"{full['gaussian_bytes'] / 2**20:,.0f} MiB of Gaussians"
    )
    if a.out:
        told = {
            "what": "benchmarks/match_probability.py",
            "date": time.strftime("%Y-%m-%d"),
            "machine": where,
            "device": a.device,
            "threads": a.threads,
            "dim": a.dim,
            "mixtures": a.mixtures,
            "points": a.points,
            "rounds": a.rounds,
            "rows": rows,
            "ucf101_computed": full,
        }
        Path(a.out).write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
