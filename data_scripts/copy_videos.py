"""Small copies of the videos of a manifest, quick to read -> a manifest beside it that names them.

  python copy_videos.py data/ucf101 --short-side 144
  vssl-nb pretrain infonce-ucf101-rgb --data data/ucf101/manifest_short144.csv

H.264 with a keyframe every 8 frames; frame i of a copy is frame i of the original. The copies lie in
.copies_short144 beside the manifest; a video that cannot be copied keeps its row. Stop it when you like and
run it again: what is finished stays.
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


def copied(
    row,
    home,
    folder,
    side,
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


def make_copies(
    table,
    side,
    workers=None,
    progress=True,
):  # the manifest of the copies, a line about them
    "Make a copy of every usable video of a manifest; what is there stays."
    home, folder = table.root, table.root / f".copies_short{side}"
    target = table.path.with_stem(f"{table.path.stem}_short{side}")
    for name, value, least in (
        ("short-side", side, 2),
        ("workers", 1 if workers is None else workers, 1),
    ):
        if value < least:
            raise PrepareError(f"{name} is {value}; take at least {least}")
    if target.exists() and not folder.exists():
        raise PrepareError(
            f"{target}: is there already, and was not written by this program; move it away"
        )
    paths = in_threads(
        lambda row: copied(row, home, folder, side), [*table.rows], workers, progress, "copies"
    )
    copies, rows, sizes = [p for p in paths if p], [], []
    folder.mkdir(exist_ok=True)
    probes = dict(
        zip(copies, probe_videos(home, copies, workers, progress, folder / "probes.jsonl"))
    )
    for row, path in zip(table.rows, paths):
        p = probes.get(path, {})
        if path and p.get("frames") == row.frames:
            sizes.append([(home / video).stat().st_size / 1e6 for video in (path, row.video)])
            row = replace(row, video=path, **{k: p[k] for k in ("fps", "width", "height")})
        elif path:
            _log.warning(
                "not copied: %s: its copy has %s frames and it has %s; remove %s",
                row.video,
                p.get("frames", "no"),
                row.frames,
                path,
            )
        rows.append(row)
    copy, original = map(sum, zip(*sizes)) if sizes else (0, 0)
    line = (
        f"{len(sizes):,} copies of short side {side} px: {copy:,.1f} MB instead of "
        f"{original:,.1f} MB"
    )
    return write(target, rows, further_columns(table.path)), line


def main(
    args=None,  # None: those of the command line
):
    "From a manifest to that of its copies."
    a = arguments().parse_args(args)
    guarded(
        lambda: print(
            *make_copies(read(a.manifest), a.short_side, a.workers, not a.quiet), sep="\n"
        )
    )


if __name__ == "__main__":
    main()
