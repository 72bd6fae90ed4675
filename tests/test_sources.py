"""`results/sources.csv`: every number that a source fixes, beside the source's own.

The table is written by hand. It has a row for every field that has an effect in a recipe, preset or
protocol that names a source; these tests fail for a changed recipe, a field without a row, and a
difference without a reason.

    recipes      names, or patterns of names, of recipes, presets and protocols that name a source
                 (those of toy videos and `clean…` are ours)
    field, ours  the field, and its value here; `testing.…` is a field of the protocol of a
                 fine-tuning
    source       the value of the source, in our words; `not stated`: the source leaves it open
    place        section or table of the paper, or file and line (or option, or function) of the
                 released code; C, P, I, R, S are the repositories of the dossier of released code
                 (nbs/dossiers/released.ipynb), CVRL code is `official/projects/video_ssl` of
                 tensorflow/models. CPR (section 4.1) takes from CoCLR and IIC what it does not
                 state itself
    reason       why ours differs, or how a value was chosen that the source does not state
"""

import csv, re
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from vssl_nb.measure.classify import ATTENTIVE_PROBES, PROBES
from vssl_nb.measure.protocols import PROTOCOLS, Protocol
from vssl_nb.methods.recipes import RECIPES, flat_fields, override
from vssl_nb.config import Recipe
from vssl_nb.runs.finetuning import TRAININGS

TABLE = Path(__file__).parents[1] / "results/sources.csv"
COLUMNS = ["recipes", "field", "ours", "source", "place", "reason"]
NOT_STATED = "not stated"
OURS = {"toy", "toyfull", "any"}  # datasets of recipes whose numbers are our own
OUR_PRESETS = {
    "clean_linear",
    "clean_finetune",
    "scratch",
    "clean_probe",
    "attentive_probe",
    "clean",
}
# words for people, which function reads the other fields, and the clips of a measure that names no
# protocol
LABELS = {"name", "about", "reasons", "augmentation", "test_clips", "clip"}

Flat = dict[str, Any]
SHARED = ("tube", "random", "frames")  # masks that hide a share of the tubelets
COLOURS = ("jitter", "grey", "blur", "permute")


def sees(view: str) -> Callable[[Flat], bool]:
    return lambda f: not any(v.startswith(view) for v in f["views"])


def unless(field: str, *values: Any) -> Callable[[Flat], bool]:
    return lambda f: f.get(field) not in values


def zero(*names: str) -> Callable[[Flat], bool]:
    return lambda f: not any(f.get(n) for n in names)


# field -> has it no effect in this recipe or preset?
INERT: dict[str, Callable[[Flat], bool]] = {
    "view": lambda f: not f["view"],
    "residual": sees("residual"),
    "flow": sees("flow"),
    "residual_scale": lambda f: sees("residual")(f) or f["residual"] != "plain",
    "flow_flip": lambda f: sees("flow")(f) or not f["flip"],
    "flow_colour": lambda f: sees("flow")(f) or zero(*COLOURS)(f),
    "same": lambda f: f["clips"] == 1,
    "motion_clips": unless("motion", "speed", "reverse", "shuffle"),
    "speeds": unless("motion", "speed"),
    "colour": zero(*COLOURS),
    "grey_mode": zero("grey"),
    "sigma": zero("blur"),
    **dict.fromkeys(("brightness", "contrast", "saturation", "hue"), zero("jitter")),
    **dict.fromkeys(
        ("appearance_clips", "windows", "window_frames", "strength"),
        lambda f: f.get("appearance") == "none",
    ),
    "sgd_momentum": unless("optimizer", "sgd", "lars"),
    # as the averages that have rows of their own are without them
    "betas": lambda f: f["optimizer"] in ("sgd", "lars") or f["betas"] == (0.9, 0.999),
    "decay_bias": lambda f: f["optimizer"] == "lars" or not f["weight_decay"],
    "drops": unless("schedule", "steps", None),
    "gamma": unless("schedule", "steps"),
    "warmup": unless("schedule", "cosine"),
    # as the schedules that have rows of their own are without them
    "lr_floor": zero("lr_floor"),
    "weight_decay_end": lambda f: f["weight_decay_end"] is None,
    "momentum_end": lambda f: f["momentum_end"] == 1,
    "drop_own": lambda f: "precision" in f and not f["drop_own"],
    "patience": unless("schedule", "plateau"),
    "floor": unless("schedule", "plateau"),
    "miner_options": unless("miner", "cascade"),
    # without a miner: UberNCE's, which takes all keys of the class at 0
    "topk": lambda f: f["miner"] is None if "miner" in f else not f["topk"],
    "precision": lambda f: f["precision"] == 1,
    "same_source": lambda f: f["miner"] is None,
    "dim": lambda f: f.get("head", "") is None,
    "dim_hidden": lambda f: f.get("head", "") in (None, "gaussian"),
    "alpha": zero("beta"),
    **dict.fromkeys(
        ("local_length", "local_stride", "local_size", "local_area"), zero("local_clips")
    ),
    "lr_encoder": unless("learns", "all"),
    "layer_decay": lambda f: f["learns"] == "head" or f["layer_decay"] == 1,
    "samples": lambda f: not f.get("mixture", 1),
    "by": unless("selection", "validation", "test"),
    "every": unless("selection", "validation", "test"),
    # of the videos that choose an epoch
    "share": unless("selection", "validation", "test"),
    "mask_ratio": unless("mask", *SHARED),
    **dict.fromkeys(("block_counts", "block_shares", "block_aspect"), unless("mask", "blocks")),
    # of a classifier; of the pixels that are predicted
    "normalise": lambda f: f.get("target") == "features",
    "momentum_schedule": lambda f: f.get("target") == "pixels",
    "exported": lambda f: f.get("target") == "pixels",
    "strengths": unless("solver", "lbfgs"),
}
# of a protocol: what only retrieval has, what sliding windows do not count, and the seed of what is
# drawn
INERT_IN_PROTOCOL: dict[str, Callable[[Flat], bool]] = {
    **dict.fromkeys(
        ("centre", "metric", "gallery", "feature", "clip_norm", "batch_of", "short"),
        unless("average", "features"),
    ),
    "clips": unless("windows", "even", "linspace"),
    "seed": lambda f: not (f["jitter"] or f["gallery"] == "random" or f["metric"] == "match"),
}


def active(
    part: Any,
) -> Flat:  # field -> value
    "The fields of a recipe or preset that change what is computed."
    if isinstance(part, Protocol):
        flat = asdict(part)
        return {
            k: v
            for k, v in flat.items()
            if k not in LABELS and not (k in INERT_IN_PROTOCOL and INERT_IN_PROTOCOL[k](flat))
        }
    flat = flat_fields(part)
    flat["views"] = getattr(part, "views", (flat.get("view", ""),))
    if isinstance(part, Recipe):
        flat["method"] = part.method.name
    elif "method" in flat:
        del flat["method"]
    kept = {
        k: v
        for k, v in flat.items()
        if k not in LABELS | {"views"} and not (k in INERT and INERT[k](flat))
    }
    if "testing" in kept:  # its clip is that of the training
        test = active(kept.pop("testing"))
        kept |= {
            f"testing.{k}": v
            for k, v in test.items()
            if k not in ("length", "stride", "size", "pad")
        }
    return kept


def words(
    value: Any,
) -> str:  # as the table writes it
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, (int, float)):
        return f"{value:.6g}"
    if isinstance(value, tuple):
        return ", ".join(map(words, value)) or "none"
    assert not is_dataclass(value), f"{value} has fields of its own"
    return str(value)


def published() -> dict[str, Flat]:  # name -> active fields
    "Every recipe and preset that names a source."
    recipes = {n: r for n, r in RECIPES.items() if r.dataset not in OURS}
    presets = {
        n: p
        for n, p in (TRAININGS | PROBES | ATTENTIVE_PROBES | PROTOCOLS).items()
        if n not in OUR_PRESETS and not n.endswith("_held_out")
    }
    assert not recipes.keys() & presets.keys()
    return {n: active(p) for n, p in (recipes | presets).items()}


def read(table: str) -> list[dict[str, str]]:
    lines = csv.DictReader(table.splitlines())
    rows = list(lines)
    assert lines.fieldnames == COLUMNS
    return rows


def faults(
    rows: list[dict[str, str]],
    known: dict[str, Flat],
) -> list[str]:  # a sentence for each
    "Where the table is not what the library has, or leaves a field or a reason out."
    wrong, owner = [], dict[tuple[str, str], str]()
    for row in rows:
        recipes, field, ours, source, place, reason = (row[c] for c in COLUMNS)
        line = f"{recipes}, {field}"
        for pattern in recipes.split():
            names = [n for n in known if fnmatchcase(n, pattern) and field in known[n]]
            if not names:
                wrong.append(f"{line}: {pattern} has no such field, or it has no effect there")
            for n in names:
                if (n, field) in owner:
                    wrong.append(f"{line}: {n} stands in the row of {owner[n, field]}, too")
                owner[n, field] = recipes
                if (value := words(known[n][field])) != ours:
                    wrong.append(f"{line}: ours={ours}, and {n} has {value}")
        if not source or not place:
            wrong.append(f"{line}: no value or no place of the source")
        if bool(reason) != (source != ours or source == NOT_STATED):
            wrong.append(
                f"{line}: ours={ours}, source={source}, reason={reason or 'none'}: a reason stands "
                "where the two differ, and nowhere else"
            )
    return wrong + [
        f"{n}, {field}={words(value)}: no row"
        for n, fields in known.items()
        for field, value in fields.items()
        if (n, field) not in owner
    ]


@pytest.fixture(scope="module")
def rows():
    return read(TABLE.read_text(encoding="utf8"))


@pytest.fixture(scope="module")
def known():
    return published()


def test_the_table_agrees_with_the_library(rows, known):
    """Every field of everything that names a source stands in it once; no difference is without a
    reason.
    """
    assert faults(rows, known) == []


def test_only_parts_without_a_source_are_left_out(known):
    for name, r in RECIPES.items():
        if name not in known:
            assert not re.search(r"released|paper|README|table \d", r.about), name
    # what is ours says so: none of its names is that of a paper or of a repository
    for name in {*TRAININGS, *PROBES, *ATTENTIVE_PROBES, *PROTOCOLS} - known.keys():
        assert name in OUR_PRESETS or name.removesuffix("_held_out") in known, name


def test_a_wrong_table_is_seen(rows, known):
    def seen(words_, changed=rows, have=known):
        return any(words_ in f for f in faults(changed, have))

    row = next(
        r for r in rows if r["field"] == "topk" and r["source"] == "5" and "coclr" in r["recipes"]
    )

    def put(**cells):
        return [r | cells if r is row else r for r in rows]

    name = "coclr-ucf101-rgb-cycle1"
    assert seen("topk=5: no row", [r for r in rows if r is not row])
    assert seen("too", [*rows, row])
    assert seen(f"and {name} has 6", have=known | {name: active(override(RECIPES[name], topk=6))})
    assert seen("no such field", put(recipes=row["recipes"] + " coclr-gone"))
    assert seen("reason=none", put(source="6")) and seen("reason=none", put(source=NOT_STATED))
    assert seen("reason=x", put(reason="x")) and seen("no place", put(place=""))
    new = active(override(RECIPES[name], motion="reverse", motion_clips=(1,)))
    assert seen("motion_clips=1: no row", have=known | {"coclr-ucf101-new": new})


def test_fields_without_effect_have_no_row(known):
    "And those with one have: each rule is tried on a recipe where the field counts."
    counts = {
        "residual": "iic-ucf101-residual",
        "flow_flip": "coclr-k400-rgb-cycle2",
        "same": "infonce-ucf101-rgb",
        "speeds": "moquad-k400-s3dg",
        "sigma": "byol-ucf101-r3d18",
        "strength": "moquad-ucf101-r3d18",
        "sgd_momentum": "iic-ucf101-flow",
        "decay_bias": "coclr_finetune",
        "drops": "coclr_probe",
        "alpha": "moquad-ssv2-r3d50",
        "warmup": "provico-k400-r3d18",
        "patience": "iic_finetune",
        "miner_options": "coclr-cpr-ucf101-flow-paper",
        "topk": "iic-cpr-ucf101-residual",
        "dim": "provico-ucf101-r3d50",
        "lr_encoder": "coclr_scratch",
        "layer_decay": "videomae_finetune",
        "samples": "provico_finetune",
        "local_size": "lejepa-k400-vit",
        "share": "cpr_finetune",
        "clips": "iic_official",
        "seed": "coclr_official",
        "testing.crops": "coclr_linear",
    }
    for field, name in counts.items():
        assert field in known[name], (field, name)
    none = {
        "flow": "infonce-ucf101-rgb",
        "flow_flip": "iic-ucf101-flow-u",
        "patience": "coclr_finetune",
        "alpha": "infonce-k400-rgb",
        "lr_encoder": "coclr_linear",
        "layer_decay": "coclr_finetune",
        "betas": "videomae_finetune",
        "strengths": "coclr_probe",
        "local_size": "lejepa-ucf101-r3d18",
        "clips": "coclr_official",
        "testing.metric": "iic_finetune",
        "share": "moquad_linear",
    }
    for field, name in none.items():
        assert field not in known[name], (field, name)
