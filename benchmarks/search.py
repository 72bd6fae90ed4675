"""How long does a search take? Whole commands, from the start of Python to the last line of the
table.

Folders of so many files hold an index of made-up features (the files themselves are empty: only
their names, sizes and times count). Queries: a file of the folder, for which no network is needed;
a file from outside and a span of time, which are encoded by an untrained network. Between them, as
baselines in the same run: the start of Python with PyTorch alone; the search alone beside
scikit-learn's brute force on the same features, checked to give the same answer; and, with
`--before`, the same commands of an earlier version (a checkout of it). Last, where the time of a
new query goes, part by part, in one process.

    git worktree add /tmp/before 553e70c
    python benchmarks/search.py --before /tmp/before --out results/search-cpu.json

Every command runs `--rounds` times, in turn; all times are kept, and the median counts. Beside the
seconds on the clock stand those of the processor, which others that use the machine at the same
time change less.

In `results/search-cpu.json` the rows of queries that were asked before, or typed (`--more`), are of
features of the command that are gone since."""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import measurement
import numpy as np
from measurement import in_turn
from result_files import Stamp, commit_of, settings_of, write_results
from sklearn.neighbors import NearestNeighbors

from vssl_nb.data import toy
from vssl_nb.nets import backbones
from vssl_nb.app.search import (
    SearchIndex,
    centred_cosines,
    choose_index,
    index_key,
    nearest,
    video_files,
    write_index,
)
from vssl_nb.training import checkpoints

PARTS = Path(__file__).with_name("search_parts.py")
VSSL = [sys.executable, "-m", "vssl_nb.app.cli", "search"]
INSIDE = "a file of the folder"
# queries that an untrained network encodes
OUTSIDE, SPAN = "a file from outside", "a span of time of it"
LIMITS = {1_000: 2.0, 100_000: 10.0}  # seconds that were asked for
OURS, THEIRS = "search alone", "scikit-learn, brute force, in memory"


def made_up(
    root: Path,
    n: int,  # files
    dim: int,  # numbers of a feature
    encoder: Path,
) -> SearchIndex:
    "A folder of n files and an index of it, all under folders of 1,000."
    for i in range(n):
        folder = root / f"{i // 1000:03d}"
        if i % 1000 == 0:
            folder.mkdir(parents=True)
        (folder / f"clip {i:06d}.mp4").write_text(str(i))
    folder, e, clips = choose_index(root, encoder)
    x = np.random.default_rng(0).standard_normal((n, dim), np.float32) + 1
    key, mean = index_key(e, clips), x.mean(0, dtype=float)
    index = SearchIndex(
        folder,
        root,
        key,
        encoder=str(e.path),
        videos=video_files(root),
        bad={},
        x=x,
        mean=mean,
        code=e.network[1],
    )
    return write_index(index)


def alone(index: SearchIndex, rounds: int) -> dict[str, list[float]]:
    "Seconds of the search in a running process, and of scikit-learn's."
    q = index.x[:1]
    centred = index.x - index.mean.astype(np.float32)
    brute = NearestNeighbors(n_neighbors=11, metric="cosine", algorithm="brute").fit(centred)

    def ours() -> np.ndarray:
        return nearest(centred_cosines(q, index.x, index.mean)[0], 11)[1:]  # without itself

    def theirs() -> np.ndarray:
        return brute.kneighbors(centred[:1])[1][0, 1:]

    assert ours().tolist() == theirs().tolist(), "scikit-learn finds others"
    ways = {
        OURS: partial(measurement.seconds_of, ours),
        THEIRS: partial(measurement.seconds_of, theirs),
    }
    return in_turn(ways, rounds)


def processor_seconds() -> float:
    "Of the processes that have ended."
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(
    command: list[str],
    version: Path | None = None,  # the checkout that runs; this one if not given
) -> tuple[float, float, str]:
    "Seconds on the clock and of the processor, and what was printed."
    options: dict[str, Any] = {}
    if version:
        options = {"cwd": version, "env": os.environ | {"PYTHONPATH": str(version)}}
    begin, before = time.perf_counter(), processor_seconds()
    done = subprocess.run(command, text=True, capture_output=True, **options)
    if done.returncode:
        raise SystemExit(done.stderr)
    return time.perf_counter() - begin, processor_seconds() - before, done.stdout


def parts(root: Path, query: Path, rounds: int) -> dict[str, float]:
    "Where the time of a new query goes, in one process."
    command = [sys.executable, str(PARTS), str(query), str(root)]
    laps = [json.loads(timed(command)[2]) for _ in range(rounds)]
    return {name: statistics.median(of[name] for of in laps) for name in laps[0]}


def commands(root: Path, query: Path) -> dict[str, list[str]]:
    inside, data = str(root / "000" / "clip 000000.mp4"), ["--data", str(root)]
    return {
        "start of Python": [sys.executable, "-c", "pass"],
        "start of Python and PyTorch": [sys.executable, "-c", "import torch"],
        INSIDE: [*VSSL, inside, *data],
        "the same, without a look at the folder": [*VSSL, inside, *data, "--no-update"],
        OUTSIDE: [*VSSL, str(query), *data],
        SPAN: [*VSSL, f"{query}@0.1-0.4", *data],
    }


def run(command: list[str], version: Path | None = None) -> tuple[float, float]:
    "Seconds of one command, on the clock and of the processor."
    seconds, processor, printed = timed(command, version)
    if "search" in command:
        assert len(printed.splitlines()) == 11, printed
    return seconds, processor


def ways_of(root: Path, query: Path, a: Any) -> dict[str, Callable[[], tuple[float, float]]]:
    "The commands, those of the earlier version before ours."
    ways = {}
    for name, command in commands(root, query).items():
        if a.before and name in (INSIDE, OUTSIDE, SPAN):
            ways[f"{name}, version {commit_of(a.before)}"] = partial(run, command, a.before)
        ways[name] = partial(run, command)
    return ways


def measure(n: int, a: Any, place: Path, encoder: Path, query: Path) -> dict[str, Any]:
    "The times of all commands on an index of n videos."
    root = place / str(n)
    begin = time.perf_counter()
    index = made_up(root, n, a.dim, encoder)
    made = time.perf_counter() - begin
    rounds = in_turn(ways_of(root, query, a), a.rounds)
    wall = {name: [seconds for seconds, _ in times] for name, times in rounds.items()}
    processor = {name: [seconds for _, seconds in times] for name, times in rounds.items()}
    wall |= alone(index, a.rounds)
    return {
        "videos": n,
        "dim": index.x.shape[1],
        "index_bytes": sum(f.stat().st_size for f in index.folder.rglob("*") if f.is_file()),
        "made_up_in_s": made,
        "limit_s": LIMITS.get(n),
        "seconds": measurement.medians(wall),
        "all_seconds": wall,
        "cpu_seconds": measurement.medians(processor),
        "parts_cpu_seconds": parts(root, query, a.rounds),
    }


def print_row(r: dict[str, Any]) -> None:
    limit = f", {r['limit_s']:g} s asked for" if r["limit_s"] else ""
    mib = r["index_bytes"] / 2**20
    print(f"\n{r['videos']:,} videos of {r['dim']} numbers, {mib:.0f} MiB{limit}")
    for name, seconds in r["seconds"].items():
        line = f"  {name:46}{seconds:8.3f} s"
        if name in r["cpu_seconds"]:
            line += f", {r['cpu_seconds'][name]:8.3f} s of the processor"
        print(line)
    print("  where the time of a new query goes, seconds of the processor:")
    for name, seconds in r["parts_cpu_seconds"].items():
        print(f"    {name:44}{seconds:8.3f} s")


def main():
    p = measurement.parser(__doc__)
    p.add_argument(
        "--videos", nargs="+", type=int, default=list(LIMITS), help="sizes of the folders"
    )
    p.add_argument(
        "--dim", type=int, help="numbers of a feature; as the backbone has them if not given"
    )
    p.add_argument("--backbone", default="small", help="of the encoder of queries from outside")
    p.add_argument("--clip", nargs=2, type=int, default=[16, 64], help="its frames and pixels")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--out", type=Path, help=".json file")
    p.add_argument("--add", action="store_true", help="keep the rows that the file has")
    p.add_argument("--before", type=Path, help="a checkout of an earlier version, to run beside it")
    a = p.parse_args()
    if a.before:
        a.before = a.before.resolve()
    network = backbones.create(a.backbone, seed=0)
    a.dim = a.dim or network.dim
    if a.dim != network.dim:
        raise SystemExit(f"--dim {a.dim}: {a.backbone} makes {network.dim} numbers; leave it out")

    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    stamp = Stamp(__file__, {"videos": a.videos} | settings_of(a, without=("before", "add")))
    machine = stamp.fields["machine"]
    print(
        f"{machine['cpu']}, {machine['cores']} cores; torch {machine['torch']}; medians of "
        f"{a.rounds}"
    )
    shared = {"backbone": a.backbone, "clip": a.clip, "clips": 10, "rounds": a.rounds}
    rows = json.loads(a.out.read_text())["rows"] if a.add else []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        length, size = a.clip
        about = {
            "backbone": a.backbone,
            "view": "rgb",
            "length": length,
            "stride": 1,
            "size": size,
        }
        encoder = checkpoints.export_encoder(place / "encoder.safetensors", network, about)
        query = sorted(toy.make(place / "toy", "tiny", progress=False).parent.rglob("*.mp4"))[0]
        for n in a.videos:
            row = measure(n, a, place, encoder, query)
            rows.append(shared | row)
            print_row(row)
    write_results(a.out, stamp.head() | {"rows": rows})


if __name__ == "__main__":
    main()
