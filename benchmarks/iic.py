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
second training differs. `continued` (`later` in older files) says on what machine rows and `told`
were added."""

import json
import statistics
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import measurement
import torch
from result_files import SeedResults, Stamp, plain, settings_of
from torch import Tensor, nn
from torch.nn import functional as F

from vssl_nb.data import toy
from vssl_nb.data.dataset import TrainClips, VideoCache
from vssl_nb.data.manifest import Manifest, read
from vssl_nb.measure.features import Features, encoder_protocol, extract
from vssl_nb.measure.retrieval import chance, histogram, retrieval_recall
from vssl_nb.methods.iic import intra_negatives, intra_order
from vssl_nb.config import Recipe
from vssl_nb.methods.recipes import find, override
from vssl_nb.runs.experiment import encoder_metadata, resolve
from vssl_nb.training.loop import TrainingState, fit, loader, make_optimizer
from vssl_nb.training.machine import Machine, keep_memory

RELEASED = dict(normalise=False, intra_gradient=False, mask_own=False)
CASCADE = dict(miner="cascade", miner_options=["stages=3", "ratio=0.5", "order=paper"])
LEARNERS: dict[str, dict[str, Any]] = {  # changes of the recipe
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
LOGGED = ("loss", "top1", "intra", "norm", "mined", "cmr")


def r1_by_view(
    encoder: nn.Module, manifest: Manifest, recipe: Recipe, cache: VideoCache
) -> dict[str, float]:
    "R@1 on each view, and on both side by side."
    encoder.eval()
    protocol = encoder_protocol(encoder_metadata(recipe), clips=3)
    machine = Machine("cpu", cache=cache, progress=False)
    options = resolve(recipe).view_options

    def features(view: str, part: str) -> Features:
        seen = extract(
            encoder, manifest, part, recipe.split, view, protocol, machine=machine, **options
        )
        return replace(seen, x=F.normalize(seen.x, dim=1))

    by_view = {v: [features(v, part) for part in ("test", "train")] for v in VIEWS}
    by_view["both"] = [
        replace(frames, x=torch.cat([frames.x, differences.x], 1))
        for frames, differences in zip(*by_view.values())
    ]
    return {v: retrieval_recall(query, gallery)[1] for v, (query, gallery) in by_view.items()}


def probe(
    whole: Tensor,  # (N, D) features
    broken: Tensor,  # (N, D) features
) -> float:
    """How often least squares on one half of the videos tells whole from broken in the other
    half.
    """
    half = len(whole) // 2
    learn = torch.cat([whole[:half], broken[:half]]).double()
    test = torch.cat([whole[half:], broken[half:]]).double()
    middle, scale = learn.mean(0), learn.std(0) + 1e-8
    learn = (learn - middle) / scale
    test = (test - middle) / scale

    ones = torch.ones(half, dtype=torch.double)
    ridge = len(learn) * 1e-3 * torch.eye(learn.shape[1]).double()
    weights = torch.linalg.solve(learn.T @ learn + ridge, learn.T @ torch.cat([ones, -ones]))
    ones = torch.ones(len(whole) - half)
    return ((test @ weights).sign() == torch.cat([ones, -ones])).double().mean().item()


@torch.no_grad()
def told_from_broken(encoder: nn.Module, clips: TrainClips, recipe: Recipe) -> dict[str, float]:
    "What the features say of broken clips, on training clips drawn anew."
    encoder.eval()
    views = resolve(recipe).views
    frames, differences, broken = [], [], []
    for i, raw in zip(range(24), loader(clips, 16, 1, seed=77)):
        batch = views(raw)
        x, y = (batch[v][:, 0] for v in VIEWS)
        order = intra_order("shuffle", len(x), x.shape[2], 99, i)
        frames.append(F.normalize(encoder(x).float(), dim=1))
        differences.append(F.normalize(encoder(y).float(), dim=1))
        shuffled = intra_negatives(x, order, "shuffle")
        broken.append(F.normalize(encoder(shuffled).float(), dim=1))

    f, d, b = torch.cat(frames), torch.cat(differences), torch.cat(broken)
    own = (f * d).sum(1)
    near = (f * b).sum(1)
    other = (f * f.roll(1, 0)).sum(1)
    return {
        "frames": (own > near).float().mean().item(),
        "differences": (own > (d * b).sum(1)).float().mean().item(),
        "cosine": near.mean().item(),
        "moved": ((1 - near).mean() / (1 - other).mean()).item(),
        "probe": probe(f, b),
    }


def row(
    name: str,
    seed: int,
    manifest: Manifest,
    cache: VideoCache,
    changes: dict[str, Any],
) -> dict[str, Any]:
    "Train (all but the random encoder), measure."
    recipe = override(find("iic-toy"), seed=seed, **LEARNERS[name], **changes)
    began = time.process_time()
    learning = recipe.learning
    experiment = resolve(recipe, manifest, Machine("cpu", cache=cache))
    clips, method = experiment.clips, experiment.method
    optimizer = make_optimizer(
        method, learning.optimizer, learning.lr, learning.weight_decay, learning.sgd_momentum
    )
    run = TrainingState(method, optimizer)
    logs: list[dict[str, float]] = [{}]
    if name != "random":
        batches = loader(clips, learning.batch, learning.epochs, recipe.seed)
        steps = fit(run, batches, experiment.views, experiment.schedules["lr"])
        logs = [step.read() for step in steps]
    seconds = time.process_time() - began

    result: dict[str, Any] = {"name": name}
    result["r1"] = r1_by_view(method.encoder, manifest, recipe, cache)
    result["steps"] = run.step
    for column in LOGGED:
        if column in logs[-1]:
            result[column] = statistics.fmean(log[column] for log in logs[-20:])
    result["told"] = told_from_broken(method.encoder, clips, recipe)
    return result | {"cpu_seconds": round(seconds, 1)}


def untrained_rows(manifest: Manifest) -> list[dict[str, Any]]:
    "Chance and a colour histogram."
    quiet = Machine(progress=False)
    query, gallery = (histogram(manifest, part, machine=quiet) for part in ("test", "train"))
    guess = chance(query.label, gallery.label)[1]
    return [
        {"name": "chance", "r1": dict.fromkeys(VIEWS, guess)},
        {"name": "histogram", "r1": {"rgb": retrieval_recall(query, gallery)[1]}},
    ]


def add_rows(
    seed: int,
    names: list[str],
    size: str,
    changes: dict[str, Any],
    results: SeedResults,
) -> None:
    "All rows of one seed; those that are there already keep their numbers."
    rows = results.entry(seed=seed)["rows"]
    known = {r["name"]: r for r in rows}
    with tempfile.TemporaryDirectory() as folder:
        manifest = read(toy.make(folder, size, seed, progress=False))
        cache = VideoCache(manifest, 2**31)
        if "histogram" not in known:
            rows += untrained_rows(manifest)
            results.keep()
        for name in names:
            before = known.get(name)
            if before is not None and "told" in before:
                continue
            new = row(name, seed, manifest, cache, changes)
            if before is None:
                rows.append(new)
            else:
                before["told"] = new["told"]
                if new["r1"] != before["r1"]:
                    before["r1_again"] = new["r1"]
            results.keep()
            r1 = {v: f"{share:.1%}" for v, share in new["r1"].items()}
            told = {k: round(x, 3) for k, x in new["told"].items()}
            print(f"seed {seed}, {name}:", r1, told, flush=True)


def summary(seeds: list[dict[str, Any]]) -> dict[str, Any]:
    "One line for each learner and view: mean and range of R@1, and the means of what was logged."
    lines: dict[str, list[dict[str, Any]]] = {}
    for seed in seeds:
        for r in seed["rows"]:
            lines.setdefault(r["name"], []).append(r)

    table = []
    for name, rows in lines.items():
        means: dict[str, Any] = {}
        for column in ("loss", "intra", "norm", "mined", "cmr"):
            if column in rows[0]:
                means[column] = statistics.fmean(r[column] for r in rows)
        if all("told" in r for r in rows):
            means["told"] = {
                k: statistics.fmean(r["told"][k] for r in rows) for k in rows[0]["told"]
            }
        for view in rows[0]["r1"]:
            r1 = [r["r1"][view] for r in rows]
            line = {"name": name, "view": view, "r1": statistics.fmean(r1)}
            line |= {"lowest": min(r1), "highest": max(r1), "seeds": len(r1)}
            table.append(line | means)
    return {"summary": table}


def main():
    p = measurement.parser(__doc__)
    p.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12])
    p.add_argument("--size", default="demo", choices=["tiny", "demo"])
    p.add_argument(
        "--changes", type=json.loads, default={}, help="fields to change everywhere, as JSON"
    )
    p.add_argument("--names", nargs="+", default=list(LEARNERS), choices=list(LEARNERS))
    p.add_argument("--out", type=Path, required=True, help="a .json file for the results")
    a = p.parse_args()
    torch.set_num_threads(1)
    keep_memory()

    recipe = plain(asdict(override(find("iic-toy"), **a.changes)))
    results = SeedResults(
        a.out,
        Stamp(__file__, settings_of(a)),
        asked={"recipe": recipe},
        further={"learners": LEARNERS},
        summary=summary,
    )
    for seed in a.seeds:
        add_rows(seed, a.names, a.size, a.changes, results)
        results.keep()
    for line in summary(results.seeds)["summary"]:
        print(
            f"{line['name']:>16} {line['view']:<9} R@1 {line['r1']:.1%} "
            f"({line['lowest']:.1%} to {line['highest']:.1%})"
        )


if __name__ == "__main__":
    main()
