"Commands that make or describe videos: toy, manifest, flow."

import csv
import sys
from pathlib import Path
from typing import Annotated, Literal

from ...fields import Count, Seed, Share
from ...paths import PathError, expect_no_run, path_missing
from ...outputs import expect_replaceable
from ..options import Command, word
from .option_groups import check_manifest


class Toy(Command):
    "Write synthetic action videos (class = motion) and their manifest."

    out: Path = word("OUT")  # folder to write to
    size: Literal["tiny", "demo", "full"] = "demo"  # 64 or 960 small videos, or thousands of 128 px
    seed: Seed = 0  # another seed gives other videos
    contrast: Share | None = None  # how hard the background makes it; none: as the size has it
    # how strongly the background gives the class away, in the training split only
    bias: Share = 0.0
    drift: Annotated[float, "[-128, 128]"] = 0.0  # camera drift, pixels per frame
    # further sprites, whose motion is not that of the class
    distractors: Annotated[int, "[0, 100]"] = 0
    # how strongly the sprite's shape and stripes give the class away, in all parts
    looks: Share = 0.0
    # how much of the colour is taken; at 1 only greys are left
    grey: Share = 0.0
    # what a class is
    classes: Literal["motions", "directions", "periods", "shapes", "scenes", "both"] = "motions"
    spoiled: Share = 0.0  # share of the training videos that are noise, are cut, or stand still
    spoiled_test: Share = 0.0  # the same for the test videos
    # of the frame, pixels; none: as the size has it
    side: Annotated[int, "[16, 512]"] | None = None
    workers: Count | None = None  # processes; none: one per core

    def run(self):
        expect_no_run(self.out)
        from ...data import toy

        options = dict(vars(self))
        print(toy.make(options.pop("out"), **options))


class MakeManifest(Command):
    """Write the manifest.csv of a folder of videos, or bring it up to date; sub-folders are the
    classes.
    """

    folder: Path = word("FOLDER")  # folder of class folders, or of unlabelled videos
    # share of the videos to keep for testing (split 1), cut by source; none: no split
    split: float | None = None
    seed: Seed = 0  # of that split
    # regular expression with one group: what it finds in a path is the source
    source_pattern: str | None = None
    workers: Count | None = None  # threads; none: one per core

    def run(self):
        if not self.folder.exists():
            raise path_missing(self.folder, "name the folder that holds the videos")
        from ...data.manifest import GONE, update_manifest

        manifest = update_manifest(
            self.folder, self.source_pattern, self.workers, share=self.split, seed=self.seed
        )
        for row in manifest.rows:
            if row.status not in ("ok", GONE):
                print(f"unreadable: {row.video}: {row.status}", file=sys.stderr)
        print(manifest)


class Flow(Command):
    "Compute and store the optical flow of every video of a manifest; again does what is missing."

    data: Path = word("DATA")  # manifest.csv, or the folder that holds it
    # tvl1-opencv: what made the released flow; dis: quick and rough
    method: Literal["tvl1", "tvl1-opencv", "dis"] = "tvl1"
    out: Path = Path("flow")  # folder for the flow, below that of the manifest
    # small: half the size, and up to 4 of 255 levels off
    codec: Literal["exact", "small"] = "exact"
    device: str = "auto"  # auto, cpu, cuda or cuda:1
    workers: Count | None = None  # videos at a time; none: one per core
    # tvl1: three times as fast on a CPU, after some 20 s; needs a C++ compiler there
    compile: bool = True
    # to write beside that of DATA, new or written by this; none: that gets column flow
    manifest: str | None = None

    def run(self):
        if ":" not in str(self.data):
            self.check_outputs(self.data / "manifest.csv" if self.data.is_dir() else self.data)
        check_manifest(self.data)
        from ...data import flow

        job = flow.plan_extraction(
            self.data,
            self.method,
            self.out,
            self.codec,
            self.device,
            self.workers,
            self.manifest,
            self.compile,
        )
        note = quick_way(job)
        if note and not job.rank:
            print(note, file=sys.stderr)
        done = job.run()
        if done.written or not job.rank:
            print(done)

    def check_outputs(
        self,
        manifest: Path,  # that of DATA; it need not exist
    ) -> None:
        """Refuse to write into a run, or over a manifest with something that this one lacks.

        PathError.
        """
        folder = manifest.parent / self.out
        # where all is done already, nothing needs to be written
        if not (folder / "flow.json").exists():
            expect_no_run(folder)
        if self.manifest is None:
            return
        other = manifest.parent / self.manifest
        if other == manifest:
            return
        expect_replaceable(other, "flow")
        lost = sorted(filled_cells(other) - filled_cells(manifest))
        if lost:
            video, column, text = lost[0]
            raise PathError(
                f"{other}: has the {column} {text!r} of {video}, and {manifest} has not; "
                "choose another --manifest"
            )


# pairs of 320 x 240 px a second on two cores of a processor, and on an H200, not compiled
# (results/flow-*.json)
PAIRS_A_SECOND = {
    "tvl1": 2.8,
    "tvl1, compiled": 9.2,
    "tvl1, cuda": 79.0,
    "tvl1-opencv": 2.7,
    "dis": 285.0,
}


def quick_way(
    job,  # an `ExtractionJob`
) -> str:  # a sentence; '' where all takes a minute or less
    "What slow flow will take, and what quick flow would."
    way = job.method.settings["method"]
    if job.method.device.type == "cuda":
        way += ", cuda"
    elif job.method.settings.get("compiled"):
        way += ", compiled"
    pairs, pixels = 0, 0
    for i in job.share():
        row = job.manifest.rows[i]
        # a file is there when it is whole
        if not (job.manifest.root / job.names[i]).exists():
            pairs += row.frames - 1
            pixels += (row.frames - 1) * row.width * row.height

    usual_pairs = pixels / (320 * 240)
    slow, quick = PAIRS_A_SECOND[way], PAIRS_A_SECOND["dis"]
    if usual_pairs / slow <= 60:
        return ""
    where = "an H200 and on two cores" if way == "tvl1, cuda" else "two cores"
    return (
        f"TV-L1 of {pairs:,} pairs takes some {rough_time(usual_pairs / slow)}; --method dis is "
        f"rougher and takes some {rough_time(usual_pairs / quick)} (measured on {where}: {slow:g} "
        f"and {quick:g} pairs of 320 x 240 px a second)"
    )


def rough_time(
    seconds: float,  # 1 or more
) -> str:  # '9 minutes'
    "A time that is known roughly."
    if seconds >= 7200:
        return f"{seconds / 3600:.0f} hours"
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"


# columns of a manifest that are measured
MEASURED_COLUMNS = {"frames", "fps", "width", "height", "flow", "status"}


def filled_cells(
    manifest: Path,  # a file that need not exist
) -> set[tuple[str, ...]]:
    "Video, column and text of all cells that somebody may have filled in by hand."
    if not manifest.exists():
        return set()
    cells: set[tuple[str, ...]] = set()
    with open(manifest, encoding="utf-8-sig", errors="replace", newline="") as f:
        for row in csv.DictReader(f):
            for column in row.keys() - MEASURED_COLUMNS:
                if row[column]:
                    cells.add((str(row.get("video")), str(column), str(row[column])))
    return cells
