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

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import measurement
import torch
from measurement import in_turn, peak_bytes, seconds_of
from result_files import Stamp, settings_of, write_results
from torch import Tensor
from torch.nn import functional as F

from vssl_nb.measure.gaussian import MATCH_CHUNK, VideoGaussians, draw_videos, match_rows
from vssl_nb.nets.heads import match_log_probability
from vssl_nb.training.machine import Machine

A, B = torch.tensor(15.0), torch.tensor(15.0)
UCF101 = 3783, 9537  # queries, gallery videos


def made_up(
    n: int,  # videos
    D: int,  # numbers of a feature
    M: int,  # distributions of a video
    first: int = 0,  # number of the first video
) -> VideoGaussians:
    "Unit means and a total variance of about 0.2, as a head begins."
    g = torch.Generator().manual_seed(first)
    mu = F.normalize(torch.randn(n, M, D, generator=g), dim=2)
    s = torch.full((n, M, D), 0.2 / D).log()
    return VideoGaussians(mu, s, torch.zeros(n).long(), torch.arange(n) + first)


def sides_of(Q: int, N: int, dim: int, mixtures: int) -> tuple[VideoGaussians, VideoGaussians]:
    "Queries and gallery."
    return made_up(Q, dim, mixtures), made_up(N, dim, mixtures, Q)


# Each way: queries, gallery, points of each distribution, device -> (Q, N)


def ours(query: VideoGaussians, gallery: VideoGaussians, k: int, device: str) -> Tensor:
    machine = Machine(device, progress=False)
    return torch.cat(list(match_rows(query, gallery, A, B, k=k, machine=machine)))


def at_once(query: VideoGaussians, gallery: VideoGaussians, k: int, device: str) -> Tensor:
    "The baseline: the points of the whole gallery, one query after another."
    a, b = A.to(device), B.to(device)
    y = draw_videos(gallery, k).to(device)
    rows = [match_log_probability(z[None].to(device), y, a, b).cpu() for z in draw_videos(query, k)]
    return torch.cat(rows)


def cosine(query: VideoGaussians, gallery: VideoGaussians, k: int, device: str) -> Tensor:
    x, y = (F.normalize(side.mean.to(device), dim=1) for side in (query, gallery))
    return (x @ y.T).cpu()


WAYS: dict[str, Callable[..., Tensor]] = {"ours": ours, "at once": at_once, "cosine": cosine}


def arguments_of(
    Q: int, N: int, dim: int, mixtures: int, points: int, device: str = "cpu"
) -> tuple[VideoGaussians, VideoGaussians, int, str]:
    "What each way is called with."
    return *sides_of(Q, N, dim, mixtures), points, device


def peaks_of(Q: int, N: int, a: Any) -> dict[str, int]:
    "Memory of each way on top of the Gaussians, bytes."
    whole = partial(arguments_of, Q, N, a.dim, a.mixtures, a.points)
    small = partial(arguments_of, 2, 3, a.dim, a.mixtures, 2)
    return {
        name: peak_bytes(way, whole, small, "vssl_nb.measure.gaussian", a.threads)
        for name, way in WAYS.items()
    }


def computed_bytes(Q: int, N: int, a: Any, device: torch.device) -> int:
    "The formula of the page on match probability, without the Gaussians themselves."
    chunk = MATCH_CHUNK[device.type]
    points = a.mixtures * a.points
    rows = min(16 * chunk, Q)
    embeddings = points * a.dim * (rows + chunk)
    pairs = 5 * (min(chunk, Q) * points) * (min(chunk, N) * points)
    return 4 * (embeddings + pairs + rows * N + Q * N)


def measure(Q: int, N: int, a: Any) -> dict[str, Any]:
    "All ways, for so many queries and gallery videos."
    device = torch.device(a.device)
    arguments = arguments_of(Q, N, a.dim, a.mixtures, a.points, a.device)
    apart = (ours(*arguments) - at_once(*arguments)).abs().max().item()
    assert apart < 1e-3, f"they disagree by {apart}"

    ways = {
        name: partial(seconds_of, partial(way, *arguments), device) for name, way in WAYS.items()
    }
    rounds = in_turn(ways, a.rounds)
    seconds = measurement.medians(rounds)
    return {
        "queries": Q,
        "gallery": N,
        "seconds": seconds,
        "all_seconds": rounds,
        "apart": apart,
        "ratio": seconds["at once"] / seconds["ours"],
        "pairs_per_second": Q * N / seconds["ours"],
        "peak_bytes": peaks_of(Q, N, a) if device.type == "cpu" else {},
        "computed_bytes": computed_bytes(Q, N, a, device),
    }


def computed_for_ucf101(pairs_per_second: float, a: Any) -> dict[str, float]:
    Q, N = UCF101
    return {
        "queries": Q,
        "gallery": N,
        "seconds": Q * N / pairs_per_second,
        "bytes": computed_bytes(Q, N, a, torch.device(a.device)),
        "gaussian_bytes": 8 * a.mixtures * a.dim * (Q + N),
    }


def main():
    p = measurement.parser(__doc__)
    p.add_argument(
        "--sizes", nargs="+", default=["32x200", "32x800"], help="queries x gallery videos"
    )
    p.add_argument("--dim", type=int, default=512)
    p.add_argument("--mixtures", type=int, default=5)
    p.add_argument("--points", type=int, default=10)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--out", type=Path, help=".json file")
    a = p.parse_args()
    torch.set_num_threads(a.threads)

    stamp = Stamp(__file__, settings_of(a), torch.device(a.device).type)
    machine = stamp.fields["machine"]
    print(
        f"{machine['cpu']}, {a.threads} threads; torch {machine['torch']}; D {a.dim}, "
        f"{a.mixtures} distributions, {a.points} points of each; medians of {a.rounds}"
    )
    rows = []
    for size in a.sizes:
        Q, N = map(int, size.split("x"))
        row = measure(Q, N, a)
        rows.append(row)
        seconds = row["seconds"]
        memory = "; ".join(f"{name} {b / 2**20:.0f} MiB" for name, b in row["peak_bytes"].items())
        print(
            f"{size}: ours {seconds['ours']:.2f} s ({row['pairs_per_second']:,.0f} pairs/s), "
            f"at once {seconds['at once']:.2f} s, cosine {seconds['cosine']:.4f} s; memory: "
            f"{memory or 'not measured'}, computed for ours "
            f"{row['computed_bytes'] / 2**20:.0f} MiB",
            flush=True,
        )

    whole = computed_for_ucf101(rows[-1]["pairs_per_second"], a)
    print(
        f"UCF101, computed: {whole['seconds'] / 60:.1f} minutes, {whole['bytes'] / 2**20:,.0f} MiB "
        f"on top of {whole['gaussian_bytes'] / 2**20:,.0f} MiB of Gaussians"
    )
    settings = {
        "device": a.device,
        "threads": a.threads,
        "dim": a.dim,
        "mixtures": a.mixtures,
        "points": a.points,
        "rounds": a.rounds,
    }
    write_results(a.out, stamp.head() | settings | {"rows": rows, "ucf101_computed": whole})


if __name__ == "__main__":
    main()
