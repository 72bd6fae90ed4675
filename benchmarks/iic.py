"""What IIC is worth on the toy: three seeds, equal steps, its released quirks one by one, and a
miner in it.

For each seed (of the videos, the weights and the order): a random encoder, IIC as released, with
features of length 1, then with a gradient to the broken clips besides, or with the own row left out
where it is drawn again, or with both (the recipe `iic-toy`), the last without broken clips, and
with positives that CPR's cascade mines, 1 to 5 of them or 5 throughout. `patches`: the recipe with
clips broken in space, whose frames keep their order. All take the steps of `iic-toy`, from the same
weights, on the same clips. Each encoder is measured by retrieval on test videos (clean protocol) on
frames, on differences, and on both features side by side, as IIC joins them. InfoNCE on the same
seeds is in `results/infonce-toy.json`.

`told` says how well each encoder tells 384 training clips, drawn anew, from the same clips
shuffled: how often frames (differences) are nearer to their own differences (frames) than to the
broken frames; how far breaking moves a feature, as a share of the distance to another video; and
how often a linear probe that has seen half of the videos tells whole from broken in the other half.

    python benchmarks/iic.py --seeds 10 11 12 --out results/iic-toy.json

The recipe was chosen on other seeds. What was started and killed goes on with the same command. A
row without `told` is trained again for it and keeps its numbers; `r1_again` is there where the
second training differs. `later` says on what machine and with what versions rows and `told` were
added."""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch.nn import functional as F

import vssl_nb
from vssl_nb.data import toy
from vssl_nb.data.clips import VideoCache
from vssl_nb.runs.parts import (
    build_method,
    encoder_about,
    lr_schedule,
    training_clips,
    training_views,
)
from vssl_nb.runs.parts import view_options
from vssl_nb.measure.features import encoder_protocol, extract
from vssl_nb.training.machine import Machine, keep_memory
from vssl_nb.data.manifest import read
from vssl_nb.methods.iic import intra_negatives, intra_order
from vssl_nb.training.loop import make_optimizer
from vssl_nb.methods.recipes import find, override
from vssl_nb.measure.retrieval import chance, histogram, retrieval_recall
from vssl_nb.training.loop import TrainingState, fit, loader

RELEASED = dict(normalise=False, intra_gradient=False, mask_own=False)
CASCADE = dict(miner="cascade", miner_options=["stages=3", "ratio=0.5", "order=paper"])
LEARNERS = {  # changes of the recipe
    "random": {},
    "released": RELEASED,
    "length 1": RELEASED | dict(normalise=True),
    "gradient": RELEASED | dict(normalise=True, intra_gradient=True),
    "own row out": RELEASED | dict(normalise=True, mask_own=True),
    "iic": {},
    "not broken": dict(intra=None),
    "patches": dict(intra="patches"),
    "cascade, 1 to 5": CASCADE | dict(topk=[1, 2, 3, 4, 5]),
    "cascade, 5": CASCADE | dict(topk=[5]),
}
VIEWS = ("rgb", "residual")


def measured(encoder, manifest, recipe, cache) -> dict:
    "R@1 on each view, and on both side by side."

    def see(view, part):
        found = extract(
            encoder.eval(),
            manifest,
            part,
            recipe.split,
            view,
            encoder_protocol(encoder_about(recipe), clips=3),
            machine=Machine("cpu", cache=cache, progress=False),
            **view_options(recipe),
        )
        return replace(found, x=F.normalize(found.x, dim=1))

    seen = {v: [see(v, part) for part in ("test", "train")] for v in VIEWS}
    seen["both"] = [replace(a, x=torch.cat([a.x, b.x], 1)) for a, b in zip(*seen.values())]
    return {v: retrieval_recall(*f)[1] for v, f in seen.items()}


def probed(a, n) -> float:
    """How often least squares on one half of the videos tells whole (a) from broken (n) in the
    other half.
    """
    half = len(a) // 2
    learn, test = (torch.cat(p).double() for p in ((a[:half], n[:half]), (a[half:], n[half:])))
    middle, scale = learn.mean(0), learn.std(0) + 1e-8
    learn, test = ((x - middle) / scale for x in (learn, test))
    whole = torch.ones(half, dtype=torch.double)
    w = torch.linalg.solve(
        learn.T @ learn + len(learn) * 1e-3 * torch.eye(learn.shape[1]).double(),
        learn.T @ torch.cat([whole, -whole]),
    )
    right = torch.cat([torch.ones(len(a) - half), -torch.ones(len(a) - half)])
    return ((test @ w).sign() == right).double().mean().item()


@torch.no_grad()
def told(encoder, clips, recipe) -> dict:
    "What the features say of broken clips, on training clips drawn anew."
    views, found = training_views(recipe), []
    for i, raw in zip(range(24), loader(clips, 16, 1, seed=77)):
        b = views(raw)
        x, y = (b[v][:, 0] for v in VIEWS)
        three = (
            x,
            y,
            intra_negatives(x, intra_order("shuffle", len(x), x.shape[2], 99, i), "shuffle"),
        )
        found.append([F.normalize(encoder.eval()(c).float(), dim=1) for c in three])
    a, d, n = (torch.cat(f) for f in zip(*found))
    own, near, other = ((p * q).sum(1) for p, q in ((a, d), (a, n), (a, a.roll(1, 0))))
    nearer = {"frames": own > near, "differences": own > (d * n).sum(1)}
    return {k: v.float().mean().item() for k, v in nearer.items()} | {
        "cosine": near.mean().item(),
        "moved": ((1 - near).mean() / (1 - other).mean()).item(),
        "probe": probed(a, n),
    }


def row(name: str, seed: int, manifest, cache, changes: dict) -> dict:
    "Train (all but the random encoder), measure."
    recipe = override(find("iic-toy"), seed=seed, **LEARNERS[name], **changes)
    began, clips = time.process_time(), training_clips(recipe, manifest, cache)
    method, learning, logs = build_method(recipe, len(clips), len(manifest)), recipe.learning, [{}]
    run = TrainingState(
        method,
        make_optimizer(
            method, learning.optimizer, learning.lr, learning.weight_decay, learning.sgd_momentum
        ),
    )
    if name != "random":
        batches = loader(clips, learning.batch, learning.epochs, recipe.seed)
        logs = [
            tick.read() for tick in fit(run, batches, training_views(recipe), lr_schedule(recipe))
        ]
    seconds = time.process_time() - began
    last = {
        k: statistics.fmean(x[k] for x in logs[-20:])
        for k in ("loss", "top1", "intra", "norm", "mined", "cmr")
        if k in logs[-1]
    }
    return {
        "name": name,
        "r1": measured(method.encoder, manifest, recipe, cache),
        "steps": run.step,
        **last,
        "told": told(method.encoder, clips, recipe),
        "cpu_seconds": round(seconds, 1),
    }


def of_seed(seed: int, size: str, changes: dict, done: list[dict], keep, names) -> None:
    "All rows of one seed; those that are there already keep their numbers."
    with tempfile.TemporaryDirectory() as folder:
        manifest, have = (
            read(toy.make(folder, size, seed, progress=False)),
            {r["name"]: r for r in done},
        )
        cache = VideoCache(manifest, 2**31)
        if "histogram" not in have:
            colours = [
                histogram(manifest, p, machine=Machine(progress=False)) for p in ("test", "train")
            ]
            guess = chance(*(c.label for c in colours))[1]
            done += [
                {"name": "chance", "r1": dict.fromkeys(VIEWS, guess)},
                {"name": "histogram", "r1": {"rgb": retrieval_recall(*colours)[1]}},
            ]
            keep()
        for name in names:
            old = have.get(name)
            if old is not None and "told" in old:
                continue
            new = row(name, seed, manifest, cache, changes)
            if old is None:
                done.append(new)
            else:
                old |= {"told": new["told"]} | (
                    {} if new["r1"] == old["r1"] else {"r1_again": new["r1"]}
                )
            print(
                f"seed {seed}, {name}:",
                {v: f"{x:.1%}" for v, x in new["r1"].items()},
                {k: round(x, 3) for k, x in new["told"].items()},
                flush=True,
            )
            keep()


def summary(seeds: list[dict]) -> list[dict]:
    "One line for each learner and view: mean and range of R@1, and the means of what was logged."
    lines: dict[str, list[dict]] = {}
    for s in seeds:
        for r in s["rows"]:
            lines.setdefault(r["name"], []).append(r)
    out = []
    for name, rows in lines.items():
        logs = {
            k: statistics.fmean(r[k] for r in rows)
            for k in ("loss", "intra", "norm", "mined", "cmr")
            if k in rows[0]
        }
        if all("told" in r for r in rows):
            logs["told"] = {
                k: statistics.fmean(r["told"][k] for r in rows) for k in rows[0]["told"]
            }
        for v in rows[0]["r1"]:
            r1 = [r["r1"][v] for r in rows]
            out.append(
                {
                    "name": name,
                    "view": v,
                    "r1": statistics.fmean(r1),
                    "lowest": min(r1),
                    "highest": max(r1),
                    "seeds": len(r1),
                    **logs,
                }
            )
    return out


def agree(old: dict, new: dict) -> bool:
    """Do two recipes say the same?

    Fields that the older one lacks came later; their defaults change nothing.
    """
    return all(
        k in new and (agree(v, new[k]) if isinstance(v, dict) else v == new[k])
        for k, v in old.items()
    )


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12])
    p.add_argument("--size", default="demo", choices=["tiny", "demo"])
    p.add_argument(
        "--changes", type=json.loads, default={}, help="fields to change everywhere, as JSON"
    )
    p.add_argument("--names", nargs="+", default=list(LEARNERS), choices=list(LEARNERS))
    p.add_argument("--out", required=True, help="a .json file for the results")
    a = p.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    out = Path(a.out)
    where = {
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": 1,
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "vssl_nb": vssl_nb.__version__,
    }
    recipe = asdict(override(find("iic-toy"), **a.changes))
    head = {
        "what": "benchmarks/iic.py",
        "date": time.strftime("%Y-%m-%d"),
        "machine": where,
        "recipe": recipe,
        "learners": LEARNERS,
    }
    before = json.loads(out.read_text()) if out.exists() else {}
    if before:
        if not agree(before["recipe"], json.loads(json.dumps(recipe))):
            raise SystemExit(f"{out} was made with another recipe; choose another --out")
        later = [{"date": head["date"], "machine": where}]
        head |= {k: before[k] for k in ("date", "machine", "recipe")}
        later = [] if later == [{k: head[k] for k in ("date", "machine")}] else later
        head["later"] = [*(x for x in before.get("later", []) if x not in later), *later]
    seeds = before.get("seeds", [])

    def keep():
        found = head | {"seeds": seeds, "summary": summary(seeds)}
        out.write_text(json.dumps(found, indent=1) + "\n")

    for seed in a.seeds:
        mine = next((s for s in seeds if s["seed"] == seed), None)
        if mine is None:
            seeds.append(mine := {"seed": seed, "rows": []})
        of_seed(seed, a.size, a.changes, mine["rows"], keep, a.names)
        keep()
    for r in summary(seeds):
        print(
            f"{r['name']:>16} {r['view']:<9} R@1 {r['r1']:.1%} ({r['lowest']:.1%} to "
            f"{r['highest']:.1%})"
        )


if __name__ == "__main__":
    main()
