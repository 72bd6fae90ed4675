"Videos by which nothing could be measured: refused, or named, before the first is encoded"

import logging
from collections.abc import Mapping, Sequence

from ..data.manifest import Manifest, torn_copies
from .protocols import Protocol, counted

_log = logging.getLogger(__name__)


def refuse_classes(
    manifest: Manifest,
    splits: Sequence[int],
    protocol: Protocol,
) -> None:
    "ValueError for videos by which nothing can be measured, before the first is encoded."
    for split in splits:
        test, train = (counted(manifest, part, split, protocol)[0] for part in ("test", "train"))
        unlabelled = [r for r in test + train if not manifest.rows[r].label]
        test_classes = {manifest.rows[r].label for r in test}
        train_classes = {manifest.rows[r].label for r in train}
        if unlabelled:
            why = (
                f"{len(unlabelled)} of {len(test) + len(train)} videos are unlabelled, such as "
                f"{manifest.rows[unlabelled[0]].video}; fill the column label: without the class "
                "of every video nothing can be counted as right"
            )
        elif not test_classes & train_classes:
            why = (
                "test and training videos have no class in common, so that no neighbour could be "
                "right; use a split in which they have"
            )
        elif len(train_classes) < 2:
            why = (
                f"all training videos are of the class {min(train_classes)!r}, so that every "
                "neighbour is; use a split with two classes or more"
            )
        else:
            continue
        raise ValueError(f"{manifest.path}: split {split}: {why}")


def warn_of_copies(manifest: Manifest, splits: Sequence[int]) -> None:
    "Name files with the same bytes on both sides of a split, which somebody filled by hand."
    for torn in torn_copies(manifest.rows, manifest.root, splits):
        _log.warning("%s: %s", manifest.path, torn)


def name_lost(
    manifest: Manifest,
    *parts: Mapping[int, str],  # row of the manifest -> why it is left out
) -> None:
    "Warn of videos that a measurement does without; five are named."
    lost = {r: why for part in parts for r, why in part.items()}
    for r in sorted(lost)[:5]:
        _log.warning("left out: %s: %s", manifest.rows[r].video, lost[r])
    if len(lost) > 5:
        _log.warning("left out: %d more; results.json names all", len(lost) - 5)
