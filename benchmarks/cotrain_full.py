"""CoCLR with S3D and optical flow of our own on one GPU: what does each phase give, and how long
does it take?

    python benchmarks/cotrain_full.py --videos /tmp/toyfull --compile \\
        --out results/cotrain-h200.json
    python benchmarks/cotrain_full.py --data ucf101_270/manifest.csv --compile --set epochs=60 \\
        --out results/cotrain-270-h200.json

Writes the toy videos if they are not there (or takes a manifest with `--data`), computes and stores
TV-L1 flow, then InfoNCE on frames and on flow, one cycle of CoCLR, and UberNCE from the InfoNCE of
the frames. R@1/5/10 and mining precision after each phase, both streams, seconds and sizes go into
the JSON. Stopped at any moment, the same command goes on."""

import time
from pathlib import Path
from typing import Any

import measurement
from result_files import Stamp, settings_of, write_results
from run_folders import is_begun

from vssl_nb.app.commands.option_groups import changes
from vssl_nb.data import toy
from vssl_nb.data.flow import extract_flow
from vssl_nb.data.manifest import read
from vssl_nb.config import Recipe
from vssl_nb.methods.recipes import find, flat_fields, override
from vssl_nb.runs.cotraining import cotrain, measure_mining, mining_candidates
from vssl_nb.runs.evaluation import retrieve
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.ssl.mining import TopK
from vssl_nb.training.run_folder import read_json
from vssl_nb.training.machine import Machine, pick_device

COLUMNS = (
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
COTRAINING, LABELS = "coclr-toyfull", "ubernce-toyfull-rgb"
BEGIN, CYCLE = "infonce-toyfull-rgb", "coclr-toyfull-rgb-cycle1"


def with_changes(name: str, changed: dict[str, Any]) -> Recipe:
    "A recipe with the changes of the fields that it has."
    recipe = find(name)
    fields = flat_fields(recipe)
    return override(recipe, **{k: v for k, v in changed.items() if k in fields})


def train_with_labels(
    data: Path, run: Path, changed: dict[str, Any], a: Any, machine: Machine
) -> dict[str, Any]:
    "UberNCE from the InfoNCE of the frames, and its row of results."
    recipe = with_changes(LABELS, changed)
    out = run / recipe.name
    pretrain(
        recipe,
        data,
        out,
        is_begun(out),
        device=machine.device,
        workers=machine.workers,
        dtype=a.dtype,
        compile=a.compile,
        networks={"encoder": run / BEGIN},
    )
    topk = read_json(run / CYCLE / "recipe.json", "a run")["method"]["topk"]
    candidates = mining_candidates(out, data, machine)
    quality = measure_mining({recipe.view: candidates}, TopK(topk))
    row = retrieve(out, data=data, machine=machine)[0]
    return row | {"mined": quality.pmr, "mined_r1": quality.r1}


def main():
    p = measurement.parser(__doc__)
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
    p.add_argument("--run", type=Path, default=Path("runs/cotrain-full"))
    p.add_argument("--device", default="auto")
    p.add_argument("--dtype", default="bfloat16")
    p.add_argument("--workers", type=int, default=14)
    p.add_argument("--compile", action="store_true")
    p.add_argument("--out", type=Path, required=True)
    a = p.parse_args()

    changed, device = changes(a.set), pick_device(a.device)
    stamp = Stamp(__file__, settings_of(a), device.type)
    begin = time.monotonic()
    data = Path(a.data) if a.data else toy.make(a.videos, a.size)
    extract_flow(data, a.flow, codec="small", device=str(device))
    flow_seconds = time.monotonic() - begin

    machine = Machine(device=str(device), workers=a.workers)
    rows = cotrain(
        COTRAINING,
        data,
        a.run,
        changed,
        dtype=a.dtype,
        compile=a.compile,
        device=machine.device,
        workers=machine.workers,
    )
    rows.append(train_with_labels(data, a.run, changed, a, machine))

    manifest = read(data)
    runs = [row["run"] for row in rows if "second" not in row]
    results = {
        "videos": len(manifest.rows),
        "classes": len(manifest.labels),
        "flow": a.flow,
        "flow_seconds_of_this_call": flow_seconds,
        "dtype": a.dtype,
        "compile": a.compile,
        "recipes": {name: read_json(a.run / name / "recipe.json", "a run") for name in runs},
        "rows": [{k: row[k] for k in COLUMNS if row.get(k) is not None} for row in rows],
    }
    write_results(a.out, stamp.head() | results)
    for row in rows:
        mined = "" if row.get("mined") is None else f"   mined right {row['mined']:.1%}"
        print(f"{row['name']:28}{row['view']:12}R@1 {row['r1']:.1%}{mined}")


if __name__ == "__main__":
    main()
