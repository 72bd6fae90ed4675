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
time change less."""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from step import machine  # noqa: E402

VSSL = [sys.executable, "-m", "vssl_nb.cli", "search"]
# queries that an untrained network encodes
OUTSIDE = "a file from outside", "a span of time of it"
LIMITS = {1_000: 2.0, 100_000: 10.0}  # seconds that were asked for


def made_up(root, n, dim, encoder):
    "A folder of n files and an index of it, all under folders of 1,000."
    import numpy as np
    from vssl_nb.search import SearchIndex, choose_index, index_key, video_files, write_index

    for i in range(n):
        if i % 1000 == 0:
            (root / f"{i // 1000:03d}").mkdir(parents=True)
        (root / f"{i // 1000:03d}" / f"clip {i:06d}.mp4").write_text(str(i))
    folder, e, clips = choose_index(root, encoder)
    x = np.random.default_rng(0).standard_normal((n, dim), np.float32) + 1
    return write_index(
        SearchIndex(
            folder,
            root,
            index_key(e, clips),
            str(e.path),
            video_files(root),
            {},
            x,
            x.mean(0, dtype=float),
            e.network[1],
        )
    )


def alone(index, rounds):
    "Seconds of the search in a running process, and of scikit-learn's."
    import numpy as np
    from sklearn.neighbors import NearestNeighbors
    from vssl_nb.search import centred_cosines, nearest

    q, ours, theirs = index.x[:1], [], []
    centred = index.x - index.mean.astype(np.float32)
    brute = NearestNeighbors(n_neighbors=11, metric="cosine", algorithm="brute").fit(centred)
    for _ in range(rounds):
        begin = time.perf_counter()
        found = nearest(centred_cosines(q, index.x, index.mean)[0], 11)[1:]  # without itself
        middle = time.perf_counter()
        oracle = brute.kneighbors(centred[:1])[1][0, 1:]
        ours.append(middle - begin)
        theirs.append(time.perf_counter() - middle)
    assert found.tolist() == oracle.tolist(), "scikit-learn finds others"
    return {"search alone": ours, "scikit-learn, brute force, in memory": theirs}


def cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(command, version=None):
    """Seconds on the clock and of the processor, and what was printed; `version`: the checkout that
    runs.
    """
    here = {"cwd": version, "env": os.environ | {"PYTHONPATH": str(version)}} if version else {}
    begin, before = time.perf_counter(), cpu()
    done = subprocess.run(command, text=True, capture_output=True, **here)
    if done.returncode:
        raise SystemExit(done.stderr)
    return time.perf_counter() - begin, cpu() - before, done.stdout


PARTS = """
import sys, time
laps, since = {}, time.process_time()
def lap(name):
    global since
    now = time.process_time()
    laps[name], since = now - since, now
laps['Python'] = since
from pathlib import Path
from vssl_nb import cli
lap('our command line, without PyTorch')
from vssl_nb import search
asked = cli.parse('search', [sys.argv[1], '--data', sys.argv[2]])
lap('NumPy, the options')
folder, encoder, clips = search.choose_index(asked.data)
index, _ = search.update_index(folder, asked.data, encoder, clips)
q = search.parse_query(sys.argv[1], asked.data, index.videos)
lap('a look at all files, the index')
import vssl_nb.measure.features
lap('PyTorch, and our modules that need it')
encoder.network
lap('the network: build, read, check')
x = search.query_features(index, [q], encoder)
lap('ten clips: decode, encode')
found = search.find_nearest(index, [q], x)
search.as_text([q], found)
lap('search')
import json
print(json.dumps(laps))
"""  # of the processor, in one process


def parts(root, query, rounds):
    command = [sys.executable, "-c", PARTS, str(query), str(root)]
    found = [json.loads(timed(command)[2]) for _ in range(rounds)]
    return {name: statistics.median(f[name] for f in found) for name in found[0]}


def commands(root, query):
    inside, here = str(root / "000" / "clip 000000.mp4"), ["--data", str(root)]
    return {
        "start of Python": [sys.executable, "-c", "pass"],
        "start of Python and PyTorch": [sys.executable, "-c", "import torch"],
        "a file of the folder": [*VSSL, inside, *here],
        "the same, without a look at the folder": [*VSSL, inside, *here, "--no-update"],
        OUTSIDE[0]: [*VSSL, str(query), *here],
        OUTSIDE[1]: [*VSSL, f"{query}@0.1-0.4", *here],
    }


def run(took, used, name, command, version=None):
    "One round of one command."
    seconds, of_cpu, said = timed(command, version)
    took.setdefault(name, []).append(seconds)
    used.setdefault(name, []).append(of_cpu)
    if "vssl_nb.cli" in command:
        assert len(said.splitlines()) == 11, said


def measure(n, a, place, encoder, query):
    "The times of all commands on an index of n videos."
    root = place / str(n)
    begin = time.perf_counter()
    index = made_up(root, n, a.dim, encoder)
    made = time.perf_counter() - begin
    took, used = {}, {}
    for _ in range(a.rounds):
        for name, command in commands(root, query).items():
            if a.before and name in ("a file of the folder", *OUTSIDE):
                run(took, used, f"{name}, {a.name_before}", command, a.before)
            run(took, used, name, command)
    took |= alone(index, a.rounds)
    shares = parts(root, query, a.rounds)
    size = sum(f.stat().st_size for f in index.folder.rglob("*") if f.is_file())
    return {
        "videos": n,
        "dim": index.x.shape[1],
        "index_bytes": size,
        "made_up_in_s": made,
        "limit_s": LIMITS.get(n),
        "seconds": {name: statistics.median(t) for name, t in took.items()},
        "all_seconds": took,
        "cpu_seconds": {name: statistics.median(t) for name, t in used.items()},
        "parts_cpu_seconds": shares,
    }


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument(
        "--videos", nargs="+", type=int, default=list(LIMITS), help="sizes of the folders"
    )
    p.add_argument(
        "--dim", type=int, help="numbers of a feature; as the backbone has them if not given"
    )
    p.add_argument("--backbone", default="small", help="of the encoder of queries from outside")
    p.add_argument("--clip", nargs=2, type=int, default=[16, 64], help="its frames and pixels")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--out", help=".json file")
    p.add_argument("--add", action="store_true", help="keep the rows that the file has")
    p.add_argument("--before", type=Path, help="a checkout of an earlier version, to run beside it")
    a = p.parse_args()
    if a.before:
        a.before, git = (
            a.before.resolve(),
            ["git", "-C", str(a.before), "rev-parse", "--short", "HEAD"],
        )
        a.name_before = f"version {subprocess.check_output(git, text=True).strip()}"
    from vssl_nb.nets import backbones
    from vssl_nb.training import checkpoints
    from vssl_nb.data import toy

    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        network = backbones.create(a.backbone, seed=0)
        a.dim = a.dim or network.dim
        if a.dim != network.dim:
            raise SystemExit(
                f"--dim {a.dim}: {a.backbone} makes {network.dim} numbers; leave it out"
            )
        encoder = checkpoints.export_encoder(
            place / "encoder.safetensors",
            network,
            {
                "backbone": a.backbone,
                "view": "rgb",
                "length": a.clip[0],
                "stride": 1,
                "size": a.clip[1],
            },
        )
        query = sorted(toy.make(place / "toy", "tiny", progress=False).parent.rglob("*.mp4"))[0]
        where, rows = machine("cpu"), []
        print(
            f"{where['cpu']}, {where['cores']} cores; torch {where['torch']}; medians of {a.rounds}"
        )
        for n in a.videos:
            rows.append(measure(n, a, place, encoder, query))
            r = rows[-1]
            limit = f", {r['limit_s']:g} s asked for" if r["limit_s"] else ""
            print(
                f"\n{n:,} videos of {r['dim']} numbers, {r['index_bytes'] / 2**20:.0f} MiB{limit}"
            )
            for name, s in r["seconds"].items():
                used = r["cpu_seconds"].get(name)
                print(
                    f"  {name:46}{s:8.3f} s" + (f", {used:8.3f} s of the processor" if used else "")
                )
            print("  where the time of a new query goes, seconds of the processor:")
            for name, s in r["parts_cpu_seconds"].items():
                print(f"    {name:44}{s:8.3f} s")
    if not a.out:
        return
    here = {"backbone": a.backbone, "clip": a.clip, "clips": 10, "rounds": a.rounds}
    old = json.loads(Path(a.out).read_text())["rows"] if a.add else []
    Path(a.out).write_text(
        json.dumps(
            {
                "what": "benchmarks/search.py",
                "date": time.strftime("%Y-%m-%d"),
                "machine": where,
                "rows": [*old, *(here | r for r in rows)],
            },
            indent=1,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
