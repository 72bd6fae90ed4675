"""Training videos, test videos and conflicts, taken from features that were computed at once.

A manifest of conflicts (`data.toy.make_conflict`) has the training videos of another manifest, and
its conflicts in the place of the test videos."""

from ..data.manifest import Manifest
from .features import Features, restrict


def conflict_parts(
    every: Features,  # of part 'all' of `conflicts`
    manifest: Manifest,  # training and test videos
    conflicts: Manifest,  # the same, and the conflicts as test videos
) -> dict[str, Features]:  # 'train', 'test' and 'conflict'
    "The features of each part; KeyError where a test video has none, ValueError as of `restrict`."
    conflict, train = (restrict(every, conflicts, part) for part in ("test", "train"))
    position = {row: i for i, row in enumerate(every.row.tolist())}
    test = every.take([position[row] for row in manifest.select("test")])
    return {"train": train, "test": test, "conflict": conflict}
