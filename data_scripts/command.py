"The command line that all prepare_*.py share."

import argparse
import sys
from pathlib import Path

from archives import unpacked

from vssl_nb.data.prepare import PREPARED_DATASETS, PrepareError, prepare_dataset

# half clips that must lie before the last frame but one (released CoCLR code:
# dataset/lmdb_dataset.py, lines 103 and 594)
RELEASED_DROPS = {"ucf101": 1, "hmdb51": 1, "kinetics400": 2}


class Parser(argparse.ArgumentParser):
    "A mistake is one sentence, not a page."

    def error(self, message):
        print(f"{self.prog}: {message}; see {self.prog} --help", file=sys.stderr)
        sys.exit(2)


def path(text):
    "A path; the empty word, which a variable of the shell that was never set gives, is none."
    if not text:
        raise argparse.ArgumentTypeError("'' is no path; . is this folder")
    return Path(text)


def arguments(dataset, description):
    "The options, those of one dataset only where they mean something."
    kind = PREPARED_DATASETS[dataset]
    p = Parser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument(
        "source",
        nargs="*",
        type=path,
        help="folder of videos; or one or more archives (zip, tar, rar)",
    )
    if kind.read:
        p.add_argument(
            "--lists",
            nargs="+",
            type=path,
            help="official lists: files, folders or an archive "
            f"({' or '.join(kind.lists)}); else they are looked for beside the videos",
        )
    p.add_argument(
        "--out",
        type=path,
        help="folder of the dataset, where manifest.csv goes and archives are "
        "extracted to; else the folder of videos",
    )
    if dataset in RELEASED_DROPS:
        p.add_argument(
            "--drop",
            choices=["released"],
            default="",
            help="mark as not usable what the "
            "released CoCLR code drops: videos that are too short for it",
        )
        p.add_argument("--length", type=int, default=32, help="frames of a clip for that rule (32)")
        p.add_argument("--stride", type=int, default=1, help="stride of a clip for that rule (1)")
    if dataset == "folder":
        p.add_argument(
            "--source-pattern",
            help="regular expression with one group: what it finds in a path is the source",
        )
    p.add_argument("--workers", type=int, help="threads that decode; else one per core")
    p.add_argument("--quiet", action="store_true", help="no progress bars")
    return p


def least_frames(dataset, a):
    "How many frames a video must have; 0: any number."
    if not getattr(a, "drop", ""):
        return 0
    for name, value in (("length", a.length), ("stride", a.stride)):
        if value < 1:
            raise PrepareError(f"{name} is {value}; take at least 1")
    return a.length * RELEASED_DROPS[dataset] // 2 * a.stride + 2


def work(dataset, a):
    "Prepare, sum up."
    videos, lists = unpacked(a.source, getattr(a, "lists", None), a.out, not a.quiet)
    prepared = prepare_dataset(
        dataset,
        videos,
        lists,
        a.out,
        source_pattern=getattr(a, "source_pattern", None),
        least_frames=least_frames(dataset, a),
        workers=a.workers,
        progress=not a.quiet,
    )
    print(prepared)


def guarded(script):
    "Run a script. Exit codes: 0 done, 2 something to put right, 130 interrupted."
    try:
        script()
    except (ValueError, OSError) as e:
        print(e, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted; run it again to go on", file=sys.stderr)
        sys.exit(130)


def main(dataset, description):
    "From the command line to a manifest."
    guarded(lambda: work(dataset, arguments(dataset, description).parse_args()))
