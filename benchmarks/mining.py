"""What does a cascade of mining cost, beside one that goes through the batch query by query?

Both find positives for a batch of queries in two memories, the similarities included, and are
checked to take the same. The baseline follows the algorithm as one would write it down: for each
query, the features of what is left are gathered, compared and cut, stage by stage. Ours compares
all queries with all keys once in each view and then gathers similarities only. They take turns,
round by round, and the median counts.

    python benchmarks/mining.py --out results/mining-cpu.json

Memory: what a process of its own holds at most while it mines once, over what it held before."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import measurement
import torch
from measurement import in_turn, peak_bytes, wait_for
from result_files import Stamp, settings_of, write_results
from torch import Tensor
from torch.nn import functional as F

from vssl_nb.ssl.mining import Cascade, TopK, stage_sizes, stage_views

BOUND = 9.0  # asked for at 2,048 and 16,384 keys on a CPU
LEAST_SECONDS = 0.2  # of the calls that are timed together

Features = dict[str, Tensor]  # of queries and of keys in both views


def made_up(
    B: int,  # queries
    D: int,  # numbers of a feature
    K: int,  # keys
    device: torch.device | str,
    seed: int = 0,
) -> tuple[Features, Tensor]:
    "Unit features of queries and memories in two views, and which candidates are siblings (B, K)."
    g = torch.Generator().manual_seed(seed)
    x = {}
    for name, n in (("flow", B), ("rgb query", B), ("flow keys", K), ("rgb keys", K)):
        x[name] = F.normalize(torch.randn(n, D, generator=g), dim=1).to(device)
    return x, (torch.rand(B, K, generator=g) < 0.01).to(device)


def in_one(
    miner: Callable,
    x: Features,
    excluded: Tensor,  # (B, K)
) -> Tensor:  # (B, K) is it a positive?
    "Ours."
    sims = {"flow": x["flow"] @ x["flow keys"].T, "rgb": x["rgb query"] @ x["rgb keys"].T}
    return miner(sims, excluded)


def query_by_query(
    miner: Cascade,
    x: Features,
    excluded: Tensor,  # (B, K)
) -> Tensor:  # (B, K) is it a positive?
    "The baseline: gathers features, loops over the batch."
    positive = torch.zeros_like(excluded)
    K = excluded.shape[1]
    sizes = stage_sizes(K, miner.stages, miner.ratio, miner.k)
    views = [view.split()[0] for view in stage_views(miner.order, miner.stages, ("flow", "rgb"))]
    for b in range(len(excluded)):
        left = torch.arange(K, device=excluded.device)
        for stage, (view, n) in enumerate(zip(views, sizes)):
            q = x["flow"][b] if view == "flow" else x["rgb query"][b]
            sim = x[f"{view} keys"][left] @ q
            if stage == 0:
                sim = sim.masked_fill(excluded[b], -torch.inf)
            left = left[sim.topk(n).indices]
        positive[b, left] = True
    return positive & ~excluded


def seconds_of_a_call(work: Callable[[], Any], device: torch.device) -> float:
    "Seconds (of the processor, where one thread works), in a row that takes a while."
    is_alone = device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if is_alone else time.perf_counter
    wait_for(device)
    begin, calls = clock(), 0
    while calls == 0 or clock() - begin < LEAST_SECONDS:
        work()
        wait_for(device)
        calls += 1
    return (clock() - begin) / calls


def arguments_of(miner: Callable, B: int, D: int, K: int) -> tuple[Callable, Features, Tensor]:
    "What each way is called with."
    return miner, *made_up(B, D, K, "cpu")


def peaks_of(ways: dict[str, tuple[Callable, Callable]], K: int, a: Any) -> dict[str, int]:
    "Memory that each way takes on top, bytes."
    small = partial(arguments_of, Cascade(2, 0.5, 1), 2, a.dim, 256)
    peaks = {}
    for name, (way, miner) in ways.items():
        whole = partial(arguments_of, miner, a.batch, a.dim, K)
        peaks[name] = peak_bytes(way, whole, small, "vssl_nb.ssl.mining")
    return peaks


def measure(K: int, a: Any, device: torch.device) -> dict[str, Any]:
    "Both ways and a single look, in one memory."
    miner = Cascade(a.stages, a.ratio, a.topk)
    x, excluded = made_up(a.batch, a.dim, K, device)
    one, many = in_one(miner, x, excluded), query_by_query(miner, x, excluded)
    # float32: two nearly equal similarities may change places between two ways to multiply
    agree = (one & many).sum().item() / many.sum().item()
    assert agree > 0.99, f"they take different candidates: {agree:.1%} agree"

    ways: dict[str, tuple[Callable, Callable]] = {
        "ours": (in_one, miner),
        "query by query": (query_by_query, miner),
        "one look": (in_one, TopK(a.topk)),
    }
    timed = {
        name: partial(seconds_of_a_call, partial(way, its_miner, x, excluded), device)
        for name, (way, its_miner) in ways.items()
    }
    rounds = in_turn(timed, a.rounds)
    seconds = measurement.medians(rounds)
    return {
        "keys": K,
        "seconds": seconds,
        "all_seconds": rounds,
        "agree": agree,
        "ratio": seconds["query by query"] / seconds["ours"],
        "peak_bytes": peaks_of(ways, K, a) if device.type == "cpu" else {},
    }


def main():
    p = measurement.parser(__doc__)
    p.add_argument("--keys", nargs="+", type=int, default=[2048, 16384, 262144])
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--dim", type=int, default=128)
    p.add_argument("--stages", type=int, default=7)
    p.add_argument("--ratio", type=float, default=0.5)
    p.add_argument("--topk", type=int, default=5)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--out", type=Path, help=".json file")
    a = p.parse_args()

    device = torch.device(a.device)
    stamp = Stamp(__file__, settings_of(a), device.type)
    machine = stamp.fields["machine"]
    print(
        f"{machine['cpu']}, {machine['threads']} threads; torch {machine['torch']}; batch "
        f"{a.batch}, {a.dim} numbers, {a.stages} stages, ratio {a.ratio}; medians of {a.rounds}"
    )
    settings = {
        "device": str(device),
        "batch": a.batch,
        "dim": a.dim,
        "stages": a.stages,
        "ratio": a.ratio,
        "topk": a.topk,
        "rounds": a.rounds,
        "asked_ratio": BOUND,
    }
    rows = []
    for K in a.keys:
        row = measure(K, a, device)
        rows.append(row)
        ms = {name: f"{1000 * seconds:.1f} ms" for name, seconds in row["seconds"].items()}
        memory = "; ".join(f"{name} {b / 2**20:.0f} MiB" for name, b in row["peak_bytes"].items())
        print(
            f"{K} keys: ours {ms['ours']}, query by query {ms['query by query']} "
            f"({row['ratio']:.1f} times as long), one look {ms['one look']}; memory: "
            f"{memory or 'not measured'}",
            flush=True,
        )
        write_results(a.out, stamp.head() | settings | {"rows": rows})


if __name__ == "__main__":
    main()
