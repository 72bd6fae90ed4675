"""CoCLR with S3D and optical flow of our own on one GPU: what does each phase give, and how long
does it take?

    python benchmarks/cotrain_full.py --videos /tmp/toyfull --out results/cotrain-h200.json --compile
    python benchmarks/cotrain_full.py --data ucf101_270/manifest.csv --compile --set epochs=60 \\
        --out results/cotrain-270-h200.json

Writes the toy videos if they are not there (or takes a manifest with `--data`), computes and stores
TV-L1 flow, then InfoNCE on frames and on flow, one cycle of CoCLR, and UberNCE from the InfoNCE of
the frames. R@1/5/10 and mining precision after each phase, both streams, seconds and sizes go into
the JSON. Stopped at any moment, the same command goes on."""

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from step import command, machine  # noqa: E402

from vssl_nb.data import toy  # noqa: E402
from vssl_nb.cli import changes  # noqa: E402
from vssl_nb.runs.cotraining import cotrain, measure_mining, mining_candidates  # noqa: E402
from vssl_nb.runs.evaluation import retrieve  # noqa: E402
from vssl_nb.runs.pretraining import pretrain, read_json  # noqa: E402
from vssl_nb.training.machine import Machine  # noqa: E402
from vssl_nb.data.flow import extract_flow  # noqa: E402
from vssl_nb.data.manifest import read  # noqa: E402
from vssl_nb.ssl.mining import TopK  # noqa: E402
from vssl_nb.methods.recipes import find, flat_fields, override  # noqa: E402
from vssl_nb.training.machine import pick_device  # noqa: E402

KEEP = (
    "name",
    "method",
    "view",
    "r1",
    "r5",
    "r10",
    "mined",
    "mined_r1",
    "seconds",
    "step",
    "queries",
    "gallery",
    "second",
)


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    where = p.add_mutually_exclusive_group(required=True)
    where.add_argument("--videos", help="folder for toy videos")
    where.add_argument("--data", help="a manifest instead")
    p.add_argument("--size", default="full", help="of the toy; tiny tries the script out")
    p.add_argument("--flow", default="tvl1", help="method of the flow")
    p.add_argument(
        "--set",
        nargs="*",
        default=[],
        metavar="FIELD=VALUE",
        help="changes in every phase that has the field, e.g. batch=64",
    )
    p.add_argument("--run", default="runs/cotrain-full")
    p.add_argument("--device", default="auto")
    p.add_argument("--dtype", default="bfloat16")
    p.add_argument("--workers", type=int, default=14)
    p.add_argument("--compile", action="store_true")
    p.add_argument("--out", required=True)
    a = p.parse_args()
    changed, device, run, begin = (
        changes(a.set),
        pick_device(a.device),
        Path(a.run),
        time.monotonic(),
    )
    data = Path(a.data) if a.data else toy.make(a.videos, a.size)
    extract_flow(data, a.flow, codec="small", device=str(device))
    flow_seconds = time.monotonic() - begin
    how = dict(device=str(device), workers=a.workers)
    rows = cotrain("coclr-toyfull", data, run, changed, dtype=a.dtype, compile=a.compile, **how)
    uber = find("ubernce-toyfull-rgb")
    uber = override(uber, **{k: v for k, v in changed.items() if k in flat_fields(uber)})
    pretrain(
        uber,
        data,
        run / uber.name,
        (run / uber.name / "recipe.json").exists(),
        dtype=a.dtype,
        compile=a.compile,
        init_from=run / "infonce-toyfull-rgb",
        **how,
    )
    topk = read_json(run / "coclr-toyfull-rgb-cycle1" / "recipe.json", "a run")["method"]["topk"]
    found = mining_candidates(run / uber.name, data, Machine(**how))
    quality = measure_mining({uber.view: found}, TopK(topk))
    rows.append(
        retrieve(run / uber.name, data=data, machine=Machine(**how))[0]
        | {"mined": quality.pmr, "mined_r1": quality.r1}
    )
    manifest = read(data)
    names = [r["run"] for r in rows if "second" not in r]
    Path(a.out).write_text(
        json.dumps(
            {
                "what": "benchmarks/cotrain_full.py",
                "date": time.strftime("%Y-%m-%d"),
                "command": command(),
                "machine": machine(device.type),
                "videos": len(manifest.rows),
                "classes": len(manifest.labels),
                "flow": a.flow,
                "flow_seconds_of_this_call": flow_seconds,
                "dtype": a.dtype,
                "compile": a.compile,
                "recipes": {n: read_json(run / n / "recipe.json", "a run") for n in names},
                "rows": [{k: r[k] for k in KEEP if r.get(k) is not None} for r in rows],
            },
            indent=1,
        )
        + "\n"
    )
    for r in rows:
        mined = "" if r.get("mined") is None else f"   mined right {r['mined']:.1%}"
        print(f"{r['name']:28}{r['view']:12}R@1 {r['r1']:.1%}{mined}")


if __name__ == "__main__":
    main()
