"""What the strongest simple baselines make of the videos on which MoQuad and ProViCo are measured.

For each seed the toy of `benchmarks/moquad.py` (backgrounds that give the class away in training alone) and
that of `benchmarks/provico.py`, and on each of them, from frame differences and for as many epochs as the
method has there: a random encoder, InfoNCE in the batch, SimCLR, and SimSiam. Settings are those of the
recipes `infonce-toy-residual` and `simclr-toy-residual`; nothing was tuned for these videos. Retrieval on
test videos, clean protocol, with as many clips of a video as the method's own benchmark takes.

    python benchmarks/beside.py --seeds 21 22 23 --out results/beside-toy.json

What was started and killed goes on with the same command, after the last finished training."""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from infonce import row  # noqa: E402
from step import machine  # noqa: E402

from vssl_nb.data import toy  # noqa: E402
from vssl_nb.data.dataset import VideoCache  # noqa: E402
from vssl_nb.training.machine import keep_memory  # noqa: E402
from vssl_nb.data.manifest import read  # noqa: E402
from vssl_nb.methods.recipes import find, override  # noqa: E402

# method -> the recipe that says how long, clips of a test video, and what its benchmark makes the
# toy with
TOYS: dict[str, tuple[str, int, dict]] = {
    "moquad": ("moquad-toy-rung3", 3, dict(bias=0.9, contrast=0.15)),
    "provico": ("provico-toy", 4, {}),
}
LEARNERS = {
    "random": "infonce-toy-residual",
    "infonce": "infonce-toy-residual",
    "simclr": "simclr-toy-residual",
    "simsiam": "infonce-toy-residual",
}


def of_seed(method: str, seed: int, size: str, changes: dict, done: list[dict], keep) -> None:
    "All rows of one seed; those that are there already are not made again."
    like, clips, how = TOYS[method]
    epochs = dict(epochs=find(like).learning.epochs) | changes
    left = [name for name in LEARNERS if name not in {r["name"] for r in done}]
    if not left:
        return
    with tempfile.TemporaryDirectory() as folder:
        manifest = read(toy.make(folder, size, seed, progress=False, **how))
        cache = VideoCache(manifest, 2**31)
        for name in left:
            recipe = override(find(LEARNERS[name]), seed=seed, test_clips=clips, **epochs)
            done.append(row(name, recipe, manifest, cache) | {"epochs": recipe.learning.epochs})
            keep()
            print(f"{method}, seed {seed}, {name}: R@1 {done[-1]['r1']:.1%}", flush=True)


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument(
        "--seeds", nargs="+", type=int, default=[21, 22, 23], help="those of the methods"
    )
    p.add_argument("--methods", nargs="+", choices=[*TOYS], default=[*TOYS])
    p.add_argument("--size", default="demo", help="of the toy")
    p.add_argument("--set", nargs="*", default=[], help="whole numbers to change, such as epochs=2")
    p.add_argument(
        "--out",
        type=Path,
        default=Path("results/beside-toy.json"),
        help="kept, so that it can go on",
    )
    a = p.parse_args()
    keep_memory()
    changes = {k: int(v) for k, v in (s.split("=") for s in a.set)}
    told = {
        "what": "benchmarks/beside.py",
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine("cpu"),
        "size": a.size,
        "changes": changes,
        "toys": {m: TOYS[m][2] for m in a.methods},
        "seeds": [],
    }
    if a.out.exists():
        before = json.loads(a.out.read_text())
        if any(before[k] != told[k] for k in ("size", "changes")):
            p.error(
                f"{a.out} was made with {before['size']}, {before['changes']}; give another --out"
            )
        told["seeds"] = before["seeds"]

    def keep():
        a.out.write_text(json.dumps(told, indent=1) + "\n")

    rows = {(s["method"], s["seed"]): s["rows"] for s in told["seeds"]}
    for method in a.methods:
        for seed in a.seeds:
            if (method, seed) not in rows:
                rows[method, seed] = []
                told["seeds"].append({"method": method, "seed": seed, "rows": rows[method, seed]})
            of_seed(method, seed, a.size, changes, rows[method, seed], keep)
    for method in a.methods:
        for name in LEARNERS:
            r1 = [
                r["r1"]
                for (m, _), some in rows.items()
                for r in some
                if (m, r["name"]) == (method, name)
            ]
            print(
                f"{method}, {name}: mean R@1 {statistics.mean(r1):.1%} "
                f"({', '.join(f'{100 * x:.1f}' for x in r1)})"
            )


if __name__ == "__main__":
    main()
