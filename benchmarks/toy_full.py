"""S3D on the full-size toy: does a real run on one GPU learn, how fast, and where does its time go?

    python benchmarks/toy_full.py --videos /tmp/toyfull --out results/toyfull-h200.json --minutes 12

Writes the 9600 toy videos of 128 px if they are not there, pretrains `infonce-toyfull-residual` in
pieces until `--minutes` of training have passed, and after each piece measures R@1 on a sixth of
the videos, always the same. Stopped, it goes on where it was when it is started again. The result
is a JSON file with the curve, the random encoder beside it, the time split of the steps, machine,
versions and recipe, and a picture of the curve."""

import argparse
import csv
import json
import statistics
import sys
import time
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from step import machine  # noqa: E402


def sixth(manifest, share: int):
    "A manifest of every `share`-th source, both splits, beside the whole one; names alone decide."
    from vssl_nb.data.manifest import write

    rows = [r for r in manifest.rows if zlib.crc32(r.source.encode()) % share == 0]
    return write(manifest.root / "sixth.csv", rows)


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--videos", required=True, help="folder for the toy videos")
    p.add_argument("--size", default="full", help="of the toy; tiny tries the script out")
    p.add_argument("--recipe", default="infonce-toyfull-residual")
    p.add_argument(
        "--set",
        nargs="*",
        default=[],
        metavar="FIELD=VALUE",
        help="changes of the recipe, e.g. batch=64",
    )
    p.add_argument("--run", default="runs/toyfull")
    p.add_argument("--minutes", type=float, default=12, help="of training in all")
    p.add_argument(
        "--every", type=float, default=2, help="minutes of training between two measurements"
    )
    p.add_argument("--share", type=int, default=6, help="measure on every n-th source")
    p.add_argument("--device", default="auto")
    p.add_argument("--dtype", default="bfloat16")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--workers", type=int, default=14)
    p.add_argument("--out", required=True, help=".json file")
    a = p.parse_args()
    from dataclasses import asdict
    from vssl_nb import show
    from vssl_nb.data import toy
    from vssl_nb.runs.evaluation import baselines, retrieve
    from vssl_nb.runs.pretraining import pretrain, read_json, write_json
    from vssl_nb.training.machine import Machine
    from vssl_nb.data.manifest import read
    from vssl_nb.methods.recipes import find, override

    data, run, out = toy.make(a.videos, size=a.size), Path(a.run), Path(a.out)
    recipe = override(
        find(a.recipe), **{k: json.loads(v) for k, v in (s.split("=", 1) for s in a.set)}
    )
    few = sixth(read(data), a.share)
    how = dict(
        device=a.device, dtype=a.dtype, workers=a.workers, compile=a.compile, save_minutes=1e9
    )
    measuring = Machine(a.device, workers=a.workers)
    if out.exists() and run.exists():
        found = json.loads(out.read_text())
    else:
        found = {
            "curve": [],
            "random": baselines(recipe, few, which=("random",), machine=measuring)[0],
        }

    def card():
        if (run / "card.json").exists():
            return read_json(run / "card.json", "a run")
        return {"step": 0, "seconds": 0.0, "finished": False}

    speed = 0.0
    while card()["seconds"] < 60 * a.minutes and not card()["finished"]:
        before = card()
        steps = max(20, round(60 * a.every * speed)) if speed else 20
        pretrain(recipe, data, run, resume=run.exists(), max_steps=before["step"] + steps, **how)
        now = card()
        if speed:  # the first piece warms up and measures the speed
            r = retrieve(run, data=few, walls=0, machine=measuring)[0]
            found["curve"].append(
                {
                    "step": now["step"],
                    "epoch": now["step"] / now["schedule"]["steps_per_epoch"],
                    "minutes": now["seconds"] / 60,
                    "r1": r["r1"],
                    "r5": r["r5"],
                    "r10": r["r10"],
                }
            )
            print(found["curve"][-1], flush=True)
        speed = (now["step"] - before["step"]) / (now["seconds"] - before["seconds"])
        times = [
            {k: float(v) for k, v in row.items()}
            for row in csv.DictReader((run / "times.csv").open())
        ]
        parts = {k: statistics.median(t[k] for t in times[-200:]) for k in times[0] if k != "step"}
        found |= {
            "what": "benchmarks/toy_full.py",
            "date": time.strftime("%Y-%m-%d"),
            "machine": machine("cuda" if "cpu" not in now["device"] else "cpu"),
            "how": how,
            "recipe": asdict(recipe),
            "card": now,
            "median_seconds": parts,
            "videos_per_s": speed * recipe.learning.batch * recipe.learning.accumulate,
        }
        write_json(out, found)
    steps = [c["step"] for c in found["curve"]]
    if steps:
        show.save_picture(
            show.curves(
                {
                    "InfoNCE": (steps, [c["r1"] for c in found["curve"]]),
                    "random encoder": ([steps[0], steps[-1]], [found["random"]["r1"]] * 2),
                },
                "step",
                "R@1",
                f"{recipe.name}, {found['card']['seconds'] / 60:.0f} minutes",
            ),
            out.with_suffix(".png"),
        )
    print(json.dumps({k: found[k] for k in ("median_seconds", "videos_per_s", "random")}, indent=1))


if __name__ == "__main__":
    main()
