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

import argparse
import json
import re
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from step import machine  # noqa: E402

from vssl_nb.nets.backbones import create  # noqa: E402
from vssl_nb.measure.classify import PROBES, linear_probe  # noqa: E402
from vssl_nb.runs.evaluation import EvaluatedEncoder, open_trained  # noqa: E402
from vssl_nb.runs.parts import view_options  # noqa: E402
from vssl_nb.measure.features import extract  # noqa: E402
from vssl_nb.measure.health import FixedClips, frozen_by_class, motion_focus, need_of_motion  # noqa: E402
from vssl_nb.training.machine import Machine  # noqa: E402


def folder(
    name: str,
) -> str:  # as benchmarks/moquad.py does
    return re.sub(r"\W+", "-", name).strip("-")


def focus(t: EvaluatedEncoder, how: Machine, encoder=None) -> dict[str, float]:
    "Where an encoder looks in the test videos of a run."
    p, encoder = t.protocol("clean", clips=1), encoder or t.encoder
    seen = extract(
        encoder, t.manifest, "train", t.split, t.view, p, machine=how, **view_options(t.recipe)
    )
    clips = FixedClips(
        t.manifest, t.manifest.select("test", t.split), t.view, p, **view_options(t.recipe)
    )
    found = motion_focus(encoder, clips, linear_probe(seen, PROBES["clean_probe"]))
    return {k: round(v, 5) for k, v in found.items()}


def gains(before: dict[str, float], after: dict[str, float], groups: dict[str, str]) -> list[dict]:
    "What each class gains, group by group; last in a group its mean, without a class."
    rows = []
    for name in dict.fromkeys(("motion", "appearance", "neither", *groups.values())):
        numbers = {
            c: (before[c], after[c], after[c] - before[c]) for c in before if groups[c] == name
        }
        if numbers:
            numbers[""] = tuple(sum(x) / len(numbers) for x in zip(*numbers.values()))
        rows += [
            {"group": name, "class": c} | dict(zip(("before", "after", "gain"), x))
            for c, x in numbers.items()
        ]
    return rows


def one_seed(root: Path, names: dict[str, str], how: Machine) -> dict:
    """The runs of a seed; `names`: SimCLR, MoQuad, reference -> name of a run of
    `benchmarks/moquad.py`.
    """
    runs = {k: open_trained(root / folder(name), root / "toy") for k, name in names.items()}
    told = {
        k: json.loads((t.folder / "results.json").read_text())[0]["by_class"]
        for k, t in runs.items()
    }
    r = runs["reference"]
    frozen = frozen_by_class(
        r.encoder,
        r.manifest,
        r.split,
        r.view,
        r.protocol("clean"),
        machine=how,
        **view_options(r.recipe),
    )
    groups = need_of_motion(frozen)
    rows = gains(told["SimCLR"], told["MoQuad"], groups)
    blank = create(r.recipe.backbone, seed=r.recipe.seed)
    return {
        "seed": r.recipe.seed,
        "focus": {k: focus(runs[k], how) for k in ("SimCLR", "MoQuad")}
        | {"random": focus(runs["SimCLR"], how, blank)},
        "frozen": {c: [round(x, 5) for x in v] for c, v in frozen.items()},
        "groups": groups,
        "classes": [x for x in rows if x["class"]],
        "gain": {x["group"]: x["gain"] for x in rows if not x["class"]},
    }


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--seeds", nargs="+", type=int, default=[21, 22, 23])
    p.add_argument("--runs", type=Path, default=Path("runs/moquad"), help="of benchmarks/moquad.py")
    p.add_argument("--simclr", default="SimCLR", help="name of a run")
    p.add_argument("--moquad", default="20 %", help="name of a run")
    p.add_argument(
        "--reference", default="alpha 1.5", help="name of a run that says what a frozen frame keeps"
    )
    p.add_argument("--out", help=".json file")
    a = p.parse_args()
    names = {"SimCLR": a.simclr, "MoQuad": a.moquad, "reference": a.reference}
    how = Machine("cpu", workers=0, cache=4096, progress=False)
    told = {
        "what": "benchmarks/looking.py",
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine("cpu"),
        "runs": names,
        "seeds": [one_seed(a.runs / f"seed{s}", names, how) for s in a.seeds],
    }
    for s in told["seeds"]:
        print(
            f"seed {s['seed']}: "
            + ", ".join(
                f"{k} {v['on_motion']:.3f} on what moves (area "
                f"{v['of_area']:.3f}, AUC {v['auc']:.2f})"
                for k, v in s["focus"].items()
            )
        )
        print(
            "  gain of R@1: "
            + ", ".join(f"{k} classes {100 * v:+.1f}" for k, v in s["gain"].items())
        )
    for group in {g for s in told["seeds"] for g in s["gain"]}:
        gains = [100 * s["gain"][group] for s in told["seeds"] if group in s["gain"]]
        print(
            f"{group} classes: {statistics.mean(gains):+.1f} ({len(gains)} of "
            f"{len(told['seeds'])} seeds)"
        )
    if a.out:
        Path(a.out).write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
