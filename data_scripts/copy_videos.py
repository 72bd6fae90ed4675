"""Small copies of the videos of a manifest, quick to read -> a manifest beside it that names them.

  python copy_videos.py data/ucf101 --short-side 144
  vssl-nb pretrain infonce-ucf101-rgb --data data/ucf101/manifest_short144.csv

H.264 with a keyframe every 8 frames; frame i of a copy is frame i of the original. The copies lie
in .copies_short144 beside the manifest; a video that cannot be copied keeps its row. Stop it when
you like and run it again: what is finished stays.
"""

import argparse
import logging
from dataclasses import replace
from pathlib import Path

from command import Parser, guarded

from vssl_nb.data.manifest import further_columns, in_threads, probe_videos, read, write
from vssl_nb.data.prepare import PrepareError
from vssl_nb.data.video import VideoError, transcode

_log = logging.getLogger(__name__)


def arguments():
    p = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("manifest", type=Path, help="manifest.csv, or the folder that holds it")
    p.add_argument("--short-side", type=int, required=True, help="px of the shorter side of a copy")
    p.add_argument("--workers", type=int, help="threads that decode; else one per core")
    p.add_argument("--quiet", action="store_true", help="no progress bars")
    return p


def copy_video(
    row,  # of the manifest
    home,  # folder of the manifest
    folder,  # of the copies
    side,  # px
):  # path of the copy below `home`; empty where there is none
    "Copy a usable video, unless it is done."
    if row.status != "ok":
        return ""
    out = folder / f"{row.video}.mp4"
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        if not out.exists():
            transcode(home / row.video, out, side)
    except VideoError as e:
        _log.warning("not copied: %s: %s", row.video, e.reason)
        return ""
    return out.relative_to(home).as_posix()


def check_options(side, workers):
    "PrepareError for numbers that cannot be."
    if side < 2:
        raise PrepareError(f"short-side is {side}; take at least 2")
    if workers is not None and workers < 1:
        raise PrepareError(f"workers is {workers}; take at least 1")


def make_copies(
    manifest,
    side,  # px of the shorter side
    workers=None,  # threads; None: one per core
    progress=True,  # show bars
):  # the manifest of the copies, a line about them
    "Make a copy of every usable video of a manifest; what is there stays."
    check_options(side, workers)
    home = manifest.root
    folder = home / f".copies_short{side}"
    target = manifest.path.with_stem(f"{manifest.path.stem}_short{side}")
    if target.exists() and not folder.exists():
        raise PrepareError(
            f"{target}: is there already, and was not written by this program; move it away"
        )
    rows = [*manifest.rows]
    paths = in_threads(
        lambda row: copy_video(row, home, folder, side), rows, workers, progress, "copies"
    )
    folder.mkdir(exist_ok=True)
    copies = [path for path in paths if path]
    log = folder / "probes.jsonl"
    probes = dict(zip(copies, probe_videos(home, copies, workers, progress, log)))

    copied = 0
    megabytes = {"copies": 0.0, "originals": 0.0}
    for i, (row, path) in enumerate(zip(rows, paths)):
        if not path:
            continue
        p = probes[path]
        if p.get("frames") != row.frames:
            _log.warning(
                "not copied: %s: its copy has %s frames and it has %s; remove %s",
                row.video,
                p.get("frames", "no"),
                row.frames,
                path,
            )
            continue
        copied += 1
        megabytes["copies"] += (home / path).stat().st_size / 1e6
        megabytes["originals"] += (home / row.video).stat().st_size / 1e6
        rows[i] = replace(row, video=path, fps=p["fps"], width=p["width"], height=p["height"])
    line = (
        f"{copied:,} copies of short side {side} px: {megabytes['copies']:,.1f} MB instead of "
        f"{megabytes['originals']:,.1f} MB"
    )
    return write(target, rows, further_columns(manifest.path)), line


def main(
    args=None,  # None: those of the command line
):
    "From a manifest to that of its copies."
    a = arguments().parse_args(args)

    def work():
        target, line = make_copies(read(a.manifest), a.short_side, a.workers, not a.quiet)
        print(target, line, sep="\n")

    guarded(work)


if __name__ == "__main__":
    main()
