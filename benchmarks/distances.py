"""Which distance between videos finds the right positives, and when?

Figure 1 of ProViCo's appendix: during training, precision and recall of the pairs that each
distance would mine, on batches with as many videos of every class. The paper takes 11 classes of
UCF101 and 8 videos of each (88 videos, 308 pairs of one class), measures every 20 epochs, and
begins at epoch 40, after the 30 without mining.

    python benchmarks/distances.py                            # toy videos, ten epochs
    python benchmarks/distances.py --data toy21 --seed 21 --epochs 12 --every 3 --batch 32
    python benchmarks/distances.py --data ../shared/videos/ucf101_more --classes paper --videos 24 \\
        --epochs 40 --every 20 --out results/distances-cpu.json

One ProViCo is trained (recipe `provico-toy` with the paper's stage without mining, mined by the
Bhattacharyya distance; its training batches are drawn at random, not balanced), stopped every so
many epochs, and asked. All distances see the same Gaussians of the same videos: two clips spread
over a training video make one Gaussian, in evaluation mode, and Monte-Carlo distances draw the same
K embeddings. The curves are the mean over several balanced batches that share no video, all pairs
of a batch counted together.

A pair is mined if its distance is below the threshold. Here that is the mean distance of the videos
of the batch from themselves (appendix Eq. 9), for each distance its own; --threshold gives all of
them a fixed one, as the .15 of section 4.2, which only means something for the Bhattacharyya
distance. *Bhattacharyya, exact* is the limit of infinitely many embeddings, in closed form: the
mean squared distance of two Gaussians is that of their means plus both total variances. (With the
distance of the means alone every video would be 0 from itself, and Eq. 9 would mine nothing.) The
divergences take one variance a video, the geometric mean, as the paper's formulas do."""

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from step import command, machine  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402

from vssl_nb.data import manifest, toy  # noqa: E402
from vssl_nb.training.checkpoints import read_encoder, read_heads  # noqa: E402
from vssl_nb.runs.parts import view_options  # noqa: E402
from vssl_nb.runs.pretraining import pretrain  # noqa: E402
from vssl_nb.runs.parts import build_method
from vssl_nb.nets.heads import bhattacharyya, kl, log_uncertainty, squared_distances  # noqa: E402
from vssl_nb.training.machine import Machine  # noqa: E402
from vssl_nb.measure.gaussian import VideoGaussians, draw_videos, video_gaussians  # noqa: E402
from vssl_nb.methods.provico import distances, mining_logs, positive_pairs  # noqa: E402
from vssl_nb.measure.protocols import protocol  # noqa: E402
from vssl_nb.methods.recipes import find, override  # noqa: E402

PAPER = (
    "ApplyEyeMakeup",
    "Archery",
    "BabyCrawling",
    "BalanceBeam",
    "BandMarching",
    "BaseballPitch",
    "Basketball",
    "BenchPress",
    "Biking",
    "GolfSwing",
    "SkyDiving",
)  # appendix B.2, footnote 2
NAMES = {
    "bhattacharyya, exact": "bhattacharyya",
    "bhattacharyya": "bhattacharyya",
    "euclidean": "euclidean",
    "kl": "kl",
    "jensen_shannon": "jensen_shannon",
    "wasserstein": "wasserstein",
}


def all_distances(mu: torch.Tensor, s: torch.Tensor, z: torch.Tensor) -> dict[str, torch.Tensor]:
    "(B, B) of each name: from (B, D) means and log-variances, and (B, K, D) embeddings."
    own, u, scale = torch.eye(len(mu), dtype=torch.bool), log_uncertainty(s), 1 / (4 * mu.shape[1])
    total = s.exp().sum(1)
    exact = torch.cdist(mu, mu).pow(2) + total[:, None] + total
    found = {
        "bhattacharyya, exact": bhattacharyya(exact, u, u, scale),
        "kl": kl(squared_distances(z, z, own), u, u),
    }
    for name in NAMES:
        if name not in found:
            found[name] = distances(z, z, u, u, own, name)
    return {name: found[name] for name in NAMES}


def balanced(label: list[int], per_class: int, batches: int, seed: int = 0) -> list[list[int]]:
    "Positions of the videos of each batch, `per_class` of every class; no video is in two batches."
    rng, of = np.random.default_rng((seed, 0)), defaultdict(list)
    for i, c in enumerate(label):
        of[c].append(i)
    short = min(len(v) for v in of.values())
    if short < per_class:
        raise SystemExit(f"--per-class {per_class}: the smallest class has {short} videos")
    order = {c: rng.permutation(v).tolist() for c, v in sorted(of.items())}
    return [
        [i for v in order.values() for i in v[n * per_class : (n + 1) * per_class]]
        for n in range(min(batches, short // per_class))
    ]


def mined(
    g: VideoGaussians, z: torch.Tensor, batches: list[list[int]], threshold: float | None
) -> dict:
    "Precision, recall and number of mined pairs of each distance, the mean over batches."
    found: dict = {name: defaultdict(list) for name in NAMES}
    for at in batches:
        own = torch.eye(len(at), dtype=torch.bool)
        for name, dist in all_distances(g.mu[at, 0], g.s[at, 0], z[at]).items():
            positive = positive_pairs(dist, own, threshold)
            for k, v in mining_logs(positive, own, g.label[at]).items():
                found[name][k].append(v.item())

    def mean(v):
        known = [x for x in v if x == x]  # no pair was mined: precision is not defined
        return sum(known) / len(known) if known else None

    return {name: {k: mean(v) for k, v in logs.items()} for name, logs in found.items()}


def chosen(data: Path, there: Path, classes: list[str], videos: int) -> Path:
    "A table of the first so many training videos of some classes, beside links to them."
    m, taken, rows = manifest.read(data), defaultdict(int), []
    there.mkdir(parents=True)
    for r in (m.rows[i] for i in m.select("train", 1)):
        if r.label not in classes or taken[r.label] == videos:
            continue
        taken[r.label] += 1
        link = there / Path(r.video).parts[0]
        if not link.is_symlink():
            link.symlink_to((m.root / link.name).resolve())
        rows.append(replace(r, flow=""))
    return manifest.write(there / "manifest.csv", rows)


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--data", help="a manifest or its folder; toy videos if not given")
    p.add_argument("--toy", default="tiny", help="size of the toy")
    p.add_argument(
        "--classes", nargs="*", help="names, or 'paper': those of appendix B.2 that are there"
    )
    p.add_argument(
        "--videos", type=int, default=10**9, help="training videos of each class at most"
    )
    p.add_argument("--per-class", type=int, help="videos of a class in a batch; 8 (paper), toy: 3")
    p.add_argument("--batches", type=int, default=4, help="balanced batches to measure on, at most")
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--every", type=int, default=5, help="epochs between two looks")
    p.add_argument(
        "--batch", type=int, help="videos of a training batch; not given: as a balanced one"
    )
    p.add_argument("--threshold", type=float, help="for all distances; appendix Eq. 9 if not given")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--device", default="cpu")
    p.add_argument("--out", help="a .json file for the results")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(a, Path(folder))


def measure(a, folder: Path):
    begin, per_class = time.perf_counter(), a.per_class or (8 if a.data else 3)
    data = a.data or toy.make(folder / "toy", a.toy, progress=False)
    labels = sorted(
        {manifest.read(data).rows[i].label for i in manifest.read(data).select("train", 1)}
    )
    wanted = list(PAPER) if a.classes == ["paper"] else a.classes or labels
    classes = [c for c in wanted if c in labels]
    if not classes:
        raise SystemExit(f"--classes: {data} has none of them")
    m = manifest.read(chosen(Path(data), folder / "data", classes, a.videos))
    rows, quiet = m.select("train", 1), Machine(a.device, progress=False, cache=512)
    batches = balanced([m.label_id(r) for r in rows], per_class, a.batches, a.seed)
    recipe = override(
        find("provico-toy"),
        epochs=a.epochs,
        batch=a.batch or len(batches[0]),
        seed=a.seed,
        instance_stage=0.15,
        warmup=a.epochs / 10,
    )  # section 4.2: 30 and 20 of 200 epochs
    k = recipe.method.samples
    print(
        f"{len(classes)} of {len(wanted)} classes, {len(rows)} videos; "
        f"{len(batches)} batches of {len(batches[0])}",
        flush=True,
    )
    see = protocol("clean", clips=2, length=recipe.sampling.length, size=recipe.size)

    def look(encoder, head):
        g = video_gaussians(
            encoder, head, m, rows, recipe.view, see, machine=quiet, **view_options(recipe)
        )
        if g.dropped:
            raise SystemExit(f"{len(g.dropped)} videos cannot be read")
        return mined(g, draw_videos(g, k, a.seed), batches, a.threshold)

    table, per_epoch = [], len(rows) // recipe.learning.batch
    for epoch in [*range(0, a.epochs, a.every), a.epochs]:
        if epoch:
            run = pretrain(
                recipe,
                m.path,
                folder / "run",
                resume=(folder / "run").exists(),
                machine=quiet,
                max_steps=epoch * per_epoch,
            )
            file = run / "encoder.safetensors"
            encoder, about = read_encoder(file)
            assert about["step"] == epoch * per_epoch
            found = look(encoder, read_heads(file)["gaussian"])
        else:
            method = build_method(recipe).eval()
            found = look(method.encoder, method.head)
        for name, r in found.items():
            table.append({"epoch": epoch, "distance": name} | r)
            shown = [
                "     -" if r[k] is None else f"{r[k]:6.3f}"
                for k in ("precision", "recall", "mined")
            ]
            print(
                f"epoch {epoch:4}  {name:22} precision {shown[0]}  recall {shown[1]}  mined "
                f"{shown[2]}",
                flush=True,
            )
    chance = (per_class - 1) / (len(batches[0]) - 1)
    print(f"any pair: precision {chance:.3f}")
    if a.out:
        Path(a.out).write_text(
            json.dumps(
                {
                    "what": "benchmarks/distances.py",
                    "date": time.strftime("%Y-%m-%d"),
                    "command": command(),
                    "machine": machine(a.device),
                    "seconds": time.perf_counter() - begin,
                    "recipe": recipe.name,
                    "backbone": recipe.backbone,
                    "classes": classes,
                    "not_there": [c for c in wanted if c not in classes],
                    "videos": len(rows),
                    "batches": len(batches),
                    "batch": len(batches[0]),
                    "per_class": per_class,
                    "epochs": a.epochs,
                    "seed": a.seed,
                    "threshold": "appendix Eq. 9" if a.threshold is None else a.threshold,
                    "chance": chance,
                    "curves": table,
                },
                indent=1,
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
