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

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measurement
import torch
from measurement import CPU, fastest, video_files
from result_files import Stamp, settings_of, write_results
from torch import Tensor
from torch.nn import functional as F

from vssl_nb.data.dataset import grey
from vssl_nb.data.video import VideoError, crop_resize, decode, probe
from vssl_nb.data.tvl1 import TVL1, _kernels, _solve, tvl1, warp
from vssl_nb.training.machine import keep_memory

PAIRS = {"UCF101": 2.4e6, "Kinetics-400": 60e6}
# per pixel and iteration: u (2), p (4), g (2), r and 1/|g|² read, u and p written, four bytes each
BYTES = 64
BASELINE = "OpenCV (baseline)"


# ---- pairs


def pairs_of(
    files: list[Path],
    short_side: int,  # px
) -> tuple[Tensor, Tensor]:  # first and second frames, (N, H, W) grey, uint8
    "Neighbouring frames from the middle of each video, of the most frequent size."
    by_size: dict[tuple[int, int], list[Tensor]] = {}
    for file in files:
        try:
            seen = probe(file)
        except VideoError:
            continue
        if seen.frames < 3:
            continue
        scale = short_side / min(seen.height, seen.width)
        size = round(seen.height * scale), round(seen.width * scale)
        middle = seen.frames // 2
        frames = crop_resize(decode(file, [middle, middle + 1]), size=size)
        by_size.setdefault(size, []).append(grey(frames))
    most = max(by_size.values(), key=len)
    return torch.stack([pair[0] for pair in most]), torch.stack([pair[1] for pair in most])


def made_up(
    short_side: int,  # px
    n: int = 16,
) -> tuple[Tensor, Tensor]:  # first and second frames, (N, H, W) grey, uint8
    "Pairs without videos: smooth random patterns that slide, turn and grow a little."
    g = torch.Generator().manual_seed(0)
    H, W = short_side, round(short_side * 4 / 3)
    x = torch.zeros(n, 1, H, W)
    for cell in (4, 8, 16):
        noise = torch.rand(n, 1, H // cell, W // cell, generator=g)
        x += F.interpolate(noise, (H, W), mode="bicubic") * cell
    x = (x - x.amin()) / (x.amax() - x.amin())
    flow = F.interpolate(torch.randn(n, 2, 3, 4, generator=g) * 3, (H, W), mode="bicubic")

    def as_bytes(frames: Tensor) -> Tensor:
        return frames[:, 0].clamp(0, 1).mul(255).round().byte()

    return as_bytes(x), as_bytes(warp(x, flow))


# ---- what is known of the work


def iterations(
    a: Tensor,  # (N, H, W)
    b: Tensor,  # (N, H, W)
) -> float:
    "Pixel-iterations a pair, on average, until it stops."
    seen = 0
    solver_step, *others = _kernels(False)

    def step(u, p, g, r, inverse, moving, *options):
        nonlocal seen
        seen += int(moving.sum()) * u.shape[2] * u.shape[3]
        return solver_step(u, p, g, r, inverse, moving, *options)

    with torch.no_grad():
        for i in range(len(a)):
            first, second = a[i : i + 1].float(), b[i : i + 1].float()
            _solve(first, second, tvl1, (step, *others))
    return seen / len(a)


def bandwidth(device: torch.device) -> float:
    "Bytes per second of a large copy, read and written."
    x = torch.empty(2**28 if device.type == "cuda" else 2**25, device=device).zero_()
    y = torch.empty_like(x)
    return 8 * len(x) / fastest(lambda: y.copy_(x), 10, device)[0]


def distance(
    x: Tensor,  # (N, 2, H, W) px
    y: Tensor,  # (N, 2, H, W) px
) -> float:  # px
    return (x - y).square().sum(1).sqrt().mean().item()


# ---- the measurement


class Table:
    "The ways to compute the flow of pairs of one size, beside OpenCV's."

    def __init__(
        self,
        first: Tensor,  # (N, H, W) grey, uint8
        second: Tensor,  # (N, H, W)
        few: int,  # pairs for everything that runs on the CPU
        rounds: int,
        keep: Callable[[list[dict[str, Any]]], None],  # gets the rows that there are after each
    ):
        self.first, self.second = first[:, None], second[:, None]
        self.few = min(few, len(first))
        self.rounds, self.keep = rounds, keep
        self.size = f"{first.shape[2]} x {first.shape[1]}"
        self.rows: list[dict[str, Any]] = []
        self.baseline: Tensor | None = None  # OpenCV's flow

    def few_pairs(self) -> tuple[Tensor, Tensor]:
        return self.first[: self.few], self.second[: self.few]

    def add(
        self,
        way: str,
        seconds: float,
        pairs: int,
        flow: Tensor | None,  # (N, 2, H, W) px
        bound: float | None = None,  # seconds of a pair, at least
    ) -> dict[str, Any]:
        "A row of the table."
        speed = pairs / seconds
        row = {"size": self.size, "way": way, "pairs_per_s": speed}
        row |= {"apart": None, "of_bound": None, "ratio": None}
        if bound is not None:
            row["of_bound"] = bound * speed
        if self.baseline is not None:
            if flow is not None:
                row["apart"] = distance(flow[: len(self.baseline)], self.baseline)
            row["ratio"] = speed / self.rows[0]["pairs_per_s"] if self.rows else 1.0
        self.rows.append(row)
        print(f"{self.size}, {way}: {speed:.2f} pairs/s", flush=True)
        self.keep(self.rows)
        return row

    def opencv(self) -> None:
        """The baseline, how far one grey level moves it, and DIS, which is another method.

        Nothing where OpenCV-contrib is not installed.
        """
        try:
            import cv2
            from cv2 import optflow  # in opencv-contrib alone
        except ImportError:
            print("opencv-contrib is not here: no baseline", file=sys.stderr)
            return
        cv2.setNumThreads(torch.get_num_threads())
        a, b = self.few_pairs()

        def flow(solver, x: Tensor, y: Tensor) -> Tensor:
            flows = [solver.calc(p.numpy(), q.numpy(), None) for p, q in zip(x[:, 0], y[:, 0])]
            return torch.stack([torch.from_numpy(f).movedim(-1, 0) for f in flows])

        solver = optflow.DualTVL1OpticalFlow_create()
        seconds, self.baseline = fastest(lambda: flow(solver, a, b), self.rounds)
        row = self.add(BASELINE, seconds, self.few, self.baseline)
        nudged = b.clone()
        nudged[:, 0, 5, 5] ^= 1
        row["apart"] = distance(flow(solver, a, nudged), self.baseline)

        dis = cv2.DISOpticalFlow_create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
        seconds, other = fastest(lambda: flow(dis, a, b), self.rounds)
        self.add("OpenCV DIS, another method", seconds, self.few, other)

    def on_cpu(self) -> None:
        "Ours, plain and compiled."
        a, b = self.few_pairs()
        bound = iterations(a[:, 0], b[:, 0]) * BYTES / bandwidth(CPU)
        for way, compiled in (("ours, CPU", False), ("ours, compiled, CPU", True)):
            if compiled:
                tvl1(a, b, compiled=True)  # the compiler's time is not the solver's
            seconds, flow = fastest(lambda: tvl1(a, b, compiled=compiled), self.rounds)
            self.add(way, seconds, self.few, flow, bound)

        fixed = TVL1(epsilon=0, outer=2, inner=10)
        seconds, flow = fastest(lambda: fixed(a, b, compiled=True), self.rounds)
        way = "2 x 10 iterations, never stopping early, compiled, CPU"
        self.add(way, seconds, self.few, flow)

    def on_gpu(self, device: torch.device, copies: int) -> None:
        "Ours, plain and compiled, on full chunks."
        few = self.few_pairs()
        bound = iterations(few[0][:, 0], few[1][:, 0]) * BYTES / bandwidth(device)
        a, b = (x.to(device).repeat(copies, 1, 1, 1) for x in (self.first, self.second))
        for way, compiled in (("ours, GPU", False), ("ours, compiled, GPU", True)):
            tvl1(a, b, compiled=compiled)
            seconds, flow = fastest(lambda: tvl1(a, b, compiled=compiled), self.rounds, device)
            self.add(way, seconds, len(a), flow[: self.few].cpu(), bound)


def as_markdown(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| size | way | pairs/s | ratio to OpenCV | px from OpenCV | of the bandwidth bound |",
        "| --- | --- | --- | --- | --- | --- |",
    ]

    def number(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    for r in rows:
        lines.append(
            f"| {r['size']} | {r['way']} | {r['pairs_per_s']:.2f} | {number(r['ratio'], '.2f')} | "
            f"{number(r['apart'], '.3f')} | {number(r['of_bound'], '.0%')} |"
        )
    return "\n".join(lines)


def days_of_datasets(rows: list[dict[str, Any]]) -> dict[str, float]:
    "How long the flow of whole datasets takes at the best of our rates for the last size."
    ours = [r for r in rows if r["way"].startswith("ours") and r["size"] == rows[-1]["size"]]
    best = max(ours, key=lambda r: r["pairs_per_s"])
    days = {name: n / best["pairs_per_s"] / 86400 for name, n in PAIRS.items()}
    for name, d in days.items():
        duration = f"{24 * d:.1f} hours" if d < 2 else f"{d:.0f} days"
        print(
            f"{name}, {PAIRS[name] / 1e6:g} M pairs, at the {best['pairs_per_s']:.1f} pairs/s of "
            f"'{best['way']}', {best['size']}: {duration} (computed from the rate, not run)"
        )
    return days


def main():
    p = measurement.parser(__doc__)
    p.add_argument("--videos", type=Path, help="folder of videos; made-up pairs if not given")
    p.add_argument("--count", type=int, default=24, help="videos to take from it, evenly spread")
    p.add_argument("--few", type=int, default=16, help="pairs for everything that runs on the CPU")
    p.add_argument("--short-sides", type=int, nargs="+", default=[128, 240])
    p.add_argument("--threads", type=int, default=2, help="of torch and of OpenCV")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument(
        "--copies", type=int, default=32, help="how often the pairs are repeated for the GPU"
    )
    p.add_argument("--device", default="cpu")
    p.add_argument("--out", type=Path, help=".json file")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    keep_memory()

    device = torch.device(a.device)
    stamp = Stamp(__file__, settings_of(a), a.device)
    files = video_files(a.videos, a.count, but="odd") if a.videos else []
    rows: list[dict[str, Any]] = []

    def keep(more: list[dict[str, Any]], **further: Any) -> None:
        "At once: what was measured stays when the clock stops the rest."
        results = {"videos": a.videos is not None, "rows": rows + more}
        write_results(a.out, stamp.head() | results | further)

    for short_side in a.short_sides:
        first, second = pairs_of(files, short_side) if files else made_up(short_side)
        table = Table(first, second, a.few, a.rounds, keep)
        table.opencv()
        if device.type == "cpu":
            table.on_cpu()
        else:
            table.on_gpu(device, a.copies)
        rows += table.rows
    print("\n" + as_markdown(rows))
    keep([], days=days_of_datasets(rows))


if __name__ == "__main__":
    main()
