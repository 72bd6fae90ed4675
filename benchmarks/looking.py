"""Where do the encoders of `benchmarks/moquad.py` look, and which classes gain?

Nothing is trained here: for each seed the finished runs of SimCLR and of MoQuad are opened, and a
third one as reference.

    python benchmarks/looking.py --runs runs/moquad --out results/looking-toy.json

Class activation maps (Figure 5): a linear probe on frozen features of the training videos, maps of
the class of the label on the test videos, the share of the positive map on what moves, beside its
share of the area, the most that maps so coarse can reach, and a random encoder. Classes (Table 7):
R@1 class by class, and what the reference keeps of each when clips stand still
(`health.need_of_motion`); a group that is empty on a toy has no gain. The reference is neither of
the two that are compared."""

import json
import statistics
from pathlib import Path
from typing import Any

import measurement
from result_files import Stamp, settings_of, write_results
from run_folders import folder_name
from torch import nn

from vssl_nb.measure.classify import PROBES, linear_probe
from vssl_nb.measure.features import extract
from vssl_nb.measure.fixed_clips import FixedClips
from vssl_nb.measure.health import frozen_by_class, motion_focus, need_of_motion
from vssl_nb.nets.backbones import create
from vssl_nb.runs.evaluation import EvaluatedEncoder, open_trained
from vssl_nb.runs.experiment import resolve
from vssl_nb.training.machine import Machine

COMPARED = ("SimCLR", "MoQuad")
GROUPS = ("motion", "appearance", "neither")


def focus(
    t: EvaluatedEncoder,
    machine: Machine,
    encoder: nn.Module | None = None,  # that of the run if not given
) -> dict[str, float]:
    "Where an encoder looks in the test videos of a run."
    encoder = encoder or t.encoder
    protocol, options = t.protocol("clean", clips=1), resolve(t.recipe).view_options
    features = extract(
        encoder, t.manifest, "train", t.split, t.view, protocol, machine=machine, **options
    )
    tests = t.manifest.select("test", t.split)
    clips = FixedClips(t.manifest, tests, t.view, protocol, **options)
    shares = motion_focus(encoder, clips, linear_probe(features, PROBES["clean_probe"]))
    return {k: round(share, 5) for k, share in shares.items()}


def gains(
    before: dict[str, float],  # class -> R@1
    after: dict[str, float],  # class -> R@1
    groups: dict[str, str],  # class -> group
) -> tuple[list[dict[str, Any]], dict[str, float]]:  # rows of the classes; group -> mean gain
    "What each class gains, group by group."
    rows, means = [], {}
    for group in dict.fromkeys((*GROUPS, *groups.values())):
        classes = [name for name in before if groups[name] == group]
        for name in classes:
            gain = after[name] - before[name]
            row = {"before": before[name], "after": after[name], "gain": gain}
            rows.append({"group": group, "class": name} | row)
        if classes:
            means[group] = sum(after[c] - before[c] for c in classes) / len(classes)
    return rows, means


def one_seed(
    root: Path,  # folder of its runs
    names: dict[str, str],  # SimCLR, MoQuad, reference -> name of a run of `benchmarks/moquad.py`
    machine: Machine,
) -> dict[str, Any]:
    "What the runs of a seed look at, and what their classes gain."
    runs = {k: open_trained(root / folder_name(name), root / "toy") for k, name in names.items()}
    r1 = {}
    for k in COMPARED:
        results = json.loads((runs[k].folder / "results.json").read_text())
        r1[k] = results[0]["by_class"]

    reference = runs["reference"]
    frozen = frozen_by_class(
        reference.encoder,
        reference.manifest,
        reference.split,
        reference.view,
        reference.protocol("clean"),
        machine=machine,
        **resolve(reference.recipe).view_options,
    )
    groups = need_of_motion(frozen)
    classes, gain = gains(r1["SimCLR"], r1["MoQuad"], groups)

    looks = {k: focus(runs[k], machine) for k in COMPARED}
    blank = create(reference.recipe.backbone, seed=reference.recipe.seed)
    looks["random"] = focus(runs["SimCLR"], machine, blank)
    return {
        "seed": reference.recipe.seed,
        "focus": looks,
        "frozen": {c: [round(x, 5) for x in v] for c, v in frozen.items()},
        "groups": groups,
        "classes": classes,
        "gain": gain,
    }


def report(seeds: list[dict[str, Any]]) -> None:
    for s in seeds:
        looks = [
            f"{k} {v['on_motion']:.3f} on what moves (area {v['of_area']:.3f}, AUC {v['auc']:.2f})"
            for k, v in s["focus"].items()
        ]
        print(f"seed {s['seed']}: {', '.join(looks)}")
        gain = ", ".join(f"{k} classes {100 * v:+.1f}" for k, v in s["gain"].items())
        print(f"  gain of R@1: {gain}")
    for group in {group for s in seeds for group in s["gain"]}:
        points = [100 * s["gain"][group] for s in seeds if group in s["gain"]]
        mean = statistics.mean(points)
        print(f"{group} classes: {mean:+.1f} ({len(points)} of {len(seeds)} seeds)")


def main():
    p = measurement.parser(__doc__)
    p.add_argument("--seeds", nargs="+", type=int, default=[21, 22, 23])
    p.add_argument("--runs", type=Path, default=Path("runs/moquad"), help="of benchmarks/moquad.py")
    p.add_argument("--simclr", default="SimCLR", help="name of a run")
    p.add_argument("--moquad", default="20 %", help="name of a run")
    p.add_argument(
        "--reference", default="alpha 1.5", help="name of a run that says what a frozen frame keeps"
    )
    p.add_argument("--out", type=Path, help=".json file")
    a = p.parse_args()

    names = {"SimCLR": a.simclr, "MoQuad": a.moquad, "reference": a.reference}
    machine = Machine("cpu", workers=0, cache=4096, progress=False)
    stamp = Stamp(__file__, settings_of(a))
    seeds = [one_seed(a.runs / f"seed{seed}", names, machine) for seed in a.seeds]
    report(seeds)
    write_results(a.out, stamp.head() | {"runs": names, "seeds": seeds})


if __name__ == "__main__":
    main()
