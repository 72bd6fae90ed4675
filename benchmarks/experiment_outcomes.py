"""What is measured of an encoder, and what is kept of it: the training videos nearest to each test
video and to each conflict, and the class that the probe gives to each test video. From these every
share is computed, now and by anyone later."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from experiment_rows import WORLDS

from vssl_nb.data import toy
from vssl_nb.files import write_whole
from vssl_nb.measure.classify import classify, linear_probe
from vssl_nb.measure.features import Features
from vssl_nb.measure.health import rankme
from vssl_nb.measure.retrieval import compare_features

KEPT = 5  # nearest training videos of each query
PARTS = ("test", "conflict")
PROBE = "probe"
# part -> (queries, KEPT) uint16 positions among training videos; PROBE -> (test videos,) uint8
# places among the sorted names of the classes
Outcomes = dict[str, np.ndarray]


# ---- who is who


@dataclass(frozen=True)
class Places:
    "Labels and recordings of the videos of a world and seed, without a video."

    gallery_label: np.ndarray  # (N,) names
    gallery_source: np.ndarray  # (N,)
    test_label: np.ndarray  # (Q,)
    conflict_label: np.ndarray  # (C,) of the motion
    conflict_source: np.ndarray  # (C,) of the scene


def _column(rows: Iterable[Any], name: str) -> np.ndarray:
    return np.array([getattr(row, name) for row in rows])


@lru_cache(maxsize=32)  # two worlds of nine seeds; records of one seed do not lie together
def places_of(
    size: str,  # of the toy
    world: str,
    seed: int,
) -> Places:
    "From the plan of the toy: the order is that of its manifests."
    settings = toy.configure(size, seed, **WORLDS[world])
    rows = [row for row, _ in toy.plan_toy(settings)]
    train, test = ([r for r in rows if r.split1 == part] for part in ("train", "test"))
    queries = [row for row, _ in toy.plan_conflict(settings) if row.split1 == "test"]
    return Places(
        _column(train, "label"),
        _column(train, "source"),
        _column(test, "label"),
        _column(queries, "label"),
        _column(queries, "source"),
    )


def classes_of(places: Places) -> np.ndarray:  # (classes,) names, in the order of their ids
    return np.unique(places.gallery_label)


OF_BOTH = ("right_motion", "right_kind")  # shares of test videos


def has_kinds(places: Places) -> bool:
    "Is a class a motion and a kind of scene?"
    return "_scene_" in places.test_label[0]


def parts_of_label(
    labels: np.ndarray,  # (N,) such as 'spin_scene_2'
) -> tuple[np.ndarray, np.ndarray]:  # motions, kinds of scene
    "Where a class is both, the two of them."
    split = np.char.partition(labels, "_scene_")
    return split[..., 0], split[..., 2]


# ---- shares


def _share(right: np.ndarray) -> float:
    return round(float(right.mean()), 6)


def metrics(
    outcomes: Outcomes,
    places: Places,
) -> dict[str, float]:  # shares, 0 to 1
    "Every share of the table, from the nearest training videos."
    near = {part: outcomes[part].astype(np.int64) for part in PARTS}
    right = places.gallery_label[near["test"]] == places.test_label[:, None]
    first = near["conflict"][:, 0]
    scene = places.gallery_source[first] == places.conflict_source
    motion = places.gallery_label[first] == places.conflict_label
    shares = {
        "r1": _share(right[:, 0]),
        "r5": _share(right.any(1)),
        "scene": _share(scene),
        "motion": _share(motion),
        "neither": _share(~(scene | motion)),
        "probe": _share(classes_of(places)[outcomes[PROBE]] == places.test_label),
    }
    if not has_kinds(places):
        return shares

    asked = parts_of_label(places.test_label)
    found = parts_of_label(places.gallery_label[near["test"][:, 0]])
    for name, a, b in zip(OF_BOTH, asked, found):
        shares[name] = _share(a == b)
    return shares


def metrics_by_chance(places: Places) -> dict[str, float]:
    "The same where each training video is as likely as the others."
    label = places.gallery_label == places.test_label[:, None]  # (Q, N)
    N, same = label.shape[1], label.sum(1)
    drawn = np.arange(5)
    miss = ((N - same[:, None] - drawn) / (N - drawn)).prod(1)
    scene = places.gallery_source == places.conflict_source[:, None]
    motion = places.gallery_label == places.conflict_label[:, None]
    shares = {
        "r1": _share(label),
        "r5": round(float(1 - miss.mean()), 6),
        "scene": _share(scene),
        "motion": _share(motion),
        "neither": _share(~(scene | motion)),
    }
    if has_kinds(places):
        asked = parts_of_label(places.test_label[:, None])
        for name, a, b in zip(OF_BOTH, asked, parts_of_label(places.gallery_label)):
            shares[name] = _share(a == b)
    return shares


# ---- measuring


def nearest(
    query: Features,
    gallery: Features,
) -> np.ndarray:  # (Q, KEPT) uint16
    near = compare_features(query, gallery, min(KEPT, len(gallery))).near
    return near.numpy().astype(np.uint16)


def outcomes_of(
    parts: Mapping[str, Features],  # 'train' and PARTS
    places: Places,
) -> Outcomes:
    "Neighbours, and what a linear probe of the frozen features answers."
    outcomes = {part: nearest(parts[part], parts["train"]) for part in PARTS}
    classes = classes_of(places).tolist()
    predictions = classify(linear_probe(parts["train"]), parts["test"], classes)
    outcomes[PROBE] = predictions.p.argmax(1).numpy().astype(np.uint8)
    return outcomes


def rank_of(features: Features) -> float:  # nan where a feature is no number
    "The directions that features use (RankMe)."
    x = features.x
    return round(rankme(x - x.mean(0)), 3) if bool(torch.isfinite(x).all()) else float("nan")


# ---- the file of outcomes


def key_of(
    record: Mapping[str, Any],
) -> str:  # of its arrays, without the part
    names = ("world", "row", "view", "budget", "seed")
    return "/".join(str(record[name]) for name in names)


def outcomes_file(file: Path) -> Path:
    "Beside the file of results."
    return file.with_suffix(".npz")


def read_outcomes(file: Path) -> dict[str, Outcomes]:  # key of a record -> its arrays
    "All outcomes beside a file of results; none where there is no file."
    place = outcomes_file(file)
    found: dict[str, Outcomes] = {}
    if not place.exists():
        return found
    with np.load(place) as arrays:
        for name in arrays.files:
            key, _, part = name.rpartition("/")
            found.setdefault(key, {})[part] = arrays[name]
    return found


def write_outcomes(
    file: Path,  # of results
    outcomes: Mapping[str, Outcomes],
) -> None:
    "Whole or not at all, in the order of their names."
    arrays = {
        f"{key}/{part}": outcomes[key][part] for key in sorted(outcomes) for part in outcomes[key]
    }
    write_whole(outcomes_file(file), lambda f: np.savez_compressed(f, **arrays))


def recomputed(
    results: Mapping[str, Any],  # of the file
    outcomes: Mapping[str, Outcomes],  # beside it
) -> Iterator[tuple[dict[str, Any], dict[str, float]]]:  # a record, and its shares computed again
    "Every share of the file from what is stored of each video."
    for record in results["records"]:
        places = places_of(results["size"], record["world"], record["seed"])
        if record["row"] == "chance":
            yield record, metrics_by_chance(places)
        else:
            yield record, metrics(outcomes[key_of(record)], places)
