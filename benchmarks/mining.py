"""What does a cascade of mining cost, beside one that goes through the batch query by query?

Both find positives for a batch of queries in two memories, the similarities included, and are
checked to take the same. The baseline follows the algorithm as one would write it down: for each
query, the features of what is left are gathered, compared and cut, stage by stage. Ours compares
all queries with all keys once in each view and then gathers similarities only. They take turns,
round by round, and the median counts.

    python benchmarks/mining.py --out results/mining-cpu.json

Memory: what a process of its own holds at most while it mines once, over what it held before."""

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from step import machine  # noqa: E402

import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from vssl_nb.ssl.mining import Cascade, TopK, stage_sizes, stage_views  # noqa: E402

BOUND = 9.0  # asked for at 2,048 and 16,384 keys on a CPU


def made_up(B: int, D: int, K: int, device, seed: int = 0):
    "Unit features of queries and memories in two views, and which candidates are siblings."
    g = torch.Generator().manual_seed(seed)
    x = {
        v: F.normalize(torch.randn(n, D, generator=g), dim=1).to(device)
        for v, n in (("flow", B), ("rgb query", B), ("flow keys", K), ("rgb keys", K))
    }
    return x, (torch.rand(B, K, generator=g) < 0.01).to(device)


def in_one(miner, x, excluded):
    "Ours."
    sims = {"flow": x["flow"] @ x["flow keys"].T, "rgb": x["rgb query"] @ x["rgb keys"].T}
    return miner(sims, excluded)


def query_by_query(miner, x, excluded):
    "The baseline: gathers features, loops over the batch."
    found, N = torch.zeros_like(excluded), excluded.shape[1]
    sizes = stage_sizes(N, miner.stages, miner.ratio, miner.k)
    views = [view.split()[0] for view in stage_views(miner.order, miner.stages, ("flow", "rgb"))]
    for b in range(len(excluded)):
        left = torch.arange(N, device=excluded.device)
        for i, (view, n) in enumerate(zip(views, sizes)):
            q = x["flow"][b] if view == "flow" else x["rgb query"][b]
            sim = x[f"{view} keys"][left] @ q
            if i == 0:
                sim = sim.masked_fill(excluded[b], -torch.inf)
            left = left[sim.topk(n).indices]
        found[b, left] = True
    return found & ~excluded


def timed(f, *args, device, least: float = 0.2):
    """Seconds of one call (of the processor, where one thread works), in a row that takes `least`
    or more.
    """

    def wait():
        if device.type == "cuda":
            torch.cuda.synchronize()

    wait()
    clock = (
        time.perf_counter
        if device.type == "cuda" or torch.get_num_threads() > 1
        else time.process_time
    )
    begin, n = clock(), 0
    while n == 0 or clock() - begin < least:
        f(*args)
        wait()
        n += 1
    return (clock() - begin) / n


def _peak(which, miner, B, D, K, pipe):
    x, excluded = made_up(B, D, K, "cpu")
    warm = made_up(2, D, 256, "cpu")
    which(Cascade(2, 0.5, 1), *warm)  # libraries are loaded
    Path("/proc/self/clear_refs").write_text("5")  # the highest mark begins anew (Linux)
    before = _kib("VmRSS")
    which(miner, x, excluded)
    pipe.send((_kib("VmHWM") - before) * 1024)


def _kib(what):
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith(what))


def peak_bytes(which, miner, B: int, D: int, K: int) -> int:
    "Memory that mining once takes on top, in a process of its own."
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["vssl_nb.ssl.mining"])
    ours, theirs = context.Pipe(False)
    p = context.Process(target=_peak, args=(which, miner, B, D, K, theirs))
    p.start()
    p.join()
    if p.exitcode:
        raise SystemExit("the process that measures memory failed")
    return ours.recv()


def measure(K: int, a, device) -> dict:
    "Both ways and a single look, in one memory."
    miner = Cascade(a.stages, a.ratio, a.topk)
    x, excluded = made_up(a.batch, a.dim, K, device)
    one, many = in_one(miner, x, excluded), query_by_query(miner, x, excluded)
    # float32: two nearly equal similarities may change places between two ways to multiply
    agree = (one & many).sum().item() / many.sum().item()
    assert agree > 0.99, f"they take different candidates: {agree:.1%} agree"
    ways: dict = {
        "ours": (in_one, miner),
        "query by query": (query_by_query, miner),
        "one look": (in_one, TopK(a.topk)),
    }
    took: dict = {name: [] for name in ways}
    for _ in range(a.rounds):
        for name, (f, m) in ways.items():
            took[name].append(timed(f, m, x, excluded, device=device))
    seconds = {name: statistics.median(t) for name, t in took.items()}
    peaks = {
        name: peak_bytes(f, m, a.batch, a.dim, K)
        for name, (f, m) in ways.items()
        if device.type == "cpu"
    }
    return {
        "keys": K,
        "seconds": seconds,
        "all_seconds": took,
        "agree": agree,
        "ratio": seconds["query by query"] / seconds["ours"],
        "peak_bytes": peaks,
    }


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--keys", nargs="+", type=int, default=[2048, 16384, 262144])
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--dim", type=int, default=128)
    p.add_argument("--stages", type=int, default=7)
    p.add_argument("--ratio", type=float, default=0.5)
    p.add_argument("--topk", type=int, default=5)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--out", help=".json file")
    a = p.parse_args()
    device = torch.device(a.device)
    where, rows = machine(device.type), []
    print(
        f"{where['cpu']}, {where['threads']} threads; torch {where['torch']}; batch {a.batch}, "
        f"{a.dim} numbers, {a.stages} stages, ratio {a.ratio}; medians of {a.rounds}"
    )
    for K in a.keys:
        rows.append(r := measure(K, a, device))
        ms = {n: f"{1000 * s:.1f} ms" for n, s in r["seconds"].items()}
        mib = "; ".join(f"{n} {b / 2**20:.0f} MiB" for n, b in r["peak_bytes"].items())
        print(
            f"{K} keys: ours {ms['ours']}, query by query {ms['query by query']} "
            f"({r['ratio']:.1f} times as long), one look {ms['one look']}; memory: "
            f"{mib or 'not measured'}",
            flush=True,
        )
        if a.out:
            told = {
                "what": "benchmarks/mining.py",
                "date": time.strftime("%Y-%m-%d"),
                "machine": where,
                "device": str(device),
                "batch": a.batch,
                "dim": a.dim,
                "stages": a.stages,
                "ratio": a.ratio,
                "topk": a.topk,
                "rounds": a.rounds,
                "asked_ratio": BOUND,
                "rows": rows,
            }
            Path(a.out).write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
