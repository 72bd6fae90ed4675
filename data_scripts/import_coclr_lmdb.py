"""The LMDBs that CoCLR released, without unpacking them -> manifest.csv.

  python import_coclr_lmdb.py --rgb ucf101_rgb_lmdb --lists ucfTrainTestlist --out data/ucf101_coclr
  python import_coclr_lmdb.py --rgb ucf101_rgb_lmdb --flow ucf101_flow_lmdb --lists ucfTrainTestlist \\
    --out data/ucf101_coclr

A row names an entry as if it were a file, ucf101_rgb_lmdb/000000012; LMDBs elsewhere are linked into
--out. Its frames are JPEGs and have no frame rate: fps is 0. Every entry is read once.
Which entry is which video is in .prepare/entries.txt.
"""

import argparse
from dataclasses import replace
from pathlib import PurePosixPath

from archives import unpacked_lists
from command import Parser, guarded, path

from vssl_nb.data.manifest import PREPARE_STATE, Row, in_threads, one_at_a_time, read
from vssl_nb.data.prepare import (
    PREPARED_DATASETS,
    Lists,
    Prepared,
    PrepareError,
    count_and_first,
    link_into,
)
from vssl_nb.data.prepare import read_lists, write_anew
from vssl_nb.data.video import VideoError, lmdb_entries, probe
from vssl_nb.paths import VIDEO_SUFFIXES, expect_no_run

MARK = "coclr_lmdb"  # beside a manifest that this script wrote


def arguments():
    p = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rgb", type=path, required=True, help="folder with the data.mdb of the frames")
    p.add_argument(
        "--flow",
        type=path,
        help="folder with the data.mdb of the optical flow; without it the column flow stays empty",
    )
    p.add_argument(
        "--lists",
        nargs="+",
        type=path,
        help="official lists: files, folders or an archive; without them no video is in a split",
    )
    p.add_argument(
        "--out", type=path, required=True, help="folder of the dataset, where manifest.csv goes"
    )
    p.add_argument(
        "--dataset",
        choices=["ucf101", "hmdb51"],
        default="ucf101",
        help="whose names and lists these are (ucf101)",
    )
    p.add_argument("--workers", type=int, help="threads that read; else one per core")
    p.add_argument("--quiet", action="store_true", help="no progress bar")
    return p


def entries(
    folder,
):  # name, `Class/video` -> (entry, frames as the file lists them)
    "What an LMDB holds; what is none is refused."
    if not folder.is_dir():
        raise PrepareError(
            f"{folder}: there is no such folder; name the one that holds the data.mdb"
        )
    if not (folder / "data.mdb").is_file():
        raise PrepareError(f"{folder}: holds no data.mdb; name the folder of one LMDB")
    found = lmdb_entries(folder)
    if not found:
        raise PrepareError(f"{folder}: is an LMDB without videos; copy it again")
    return found


def as_video(
    name,
):  # else a name with a dot in it would lose its end
    return name if name.lower().endswith(VIDEO_SUFFIXES) else f"{name}.avi"


def described(
    kind,
    found,
    lists,
):  # [(name, key, row)], sorted by name
    "A row per entry, with what its name and the lists say about it."
    where = {name: PurePosixPath(name).parent.name for name in found}
    # without lists, HandstandPushups rather than HandStandPushups
    spelt = {w.casefold(): w for w in sorted(where.values())} | lists.labels
    made = []
    for name in sorted(found):
        video, label = as_video(name), spelt[where[name].casefold()]
        key = kind.key(video)
        made.append(
            (
                name,
                key,
                Row(
                    **{
                        **lists.entries.get(key, {}),
                        "video": found[name][0],
                        "label": label,
                        "source": kind.source(video, label),
                    }
                ),
            )
        )
    return made


def looked(row, file):
    "The row with what its entry holds."
    try:
        p = probe(file)
    except VideoError as e:
        return replace(row, status=" ".join(e.reason.split()))
    except Exception as e:
        # one strange entry must not stop ten thousand
        return replace(row, status=f"is damaged: it is not a list of pictures ({type(e).__name__})")
    return replace(row, frames=p.frames, width=p.width, height=p.height)


def with_flow(
    kind,
    rows,
    keys,
    found,
):  # rows, remarks
    "The entry of the same name: entry numbers differ between two LMDBs."
    flow = {kind.key(as_video(name)): entry for name, (entry, _) in found.items()}
    none = [key for key in keys if key not in flow]
    alone = sorted(set(flow) - set(keys))
    if len(none) == len(keys):
        raise PrepareError(
            f"the flow LMDB holds none of the {len(keys):,} videos of the RGB LMDB, such as "
            f"{keys[0]}; are both of the same dataset?"
        )
    notes = [
        f"{what}: {count_and_first(which)}"
        for what, which in (("with RGB, without flow", none), ("with flow, without RGB", alone))
        if which
    ]
    return [replace(r, flow=flow.get(key, "")) for r, key in zip(rows, keys)], notes


def remarks(lists, keys, names, rows, listed, state):
    "What does not fit together."
    used = set(keys) & set(lists.entries)
    missing = sorted(set(lists.entries) - used)
    extra = [n for n, key in zip(names, keys) if key not in lists.entries]
    wrong = [
        f"{n} ({r.frames} instead of {listed[n][1]})"
        for n, r in zip(names, rows)
        if r.status == "ok" and r.frames != listed[n][1]
    ]
    twice = len(keys) - len(set(keys))
    for name, lines in dict(
        missing=missing,
        extra=extra if lists.entries else [],
        lengths=wrong,
        entries=[f"{r.video} {n}" for n, r in zip(names, rows)],
    ).items():
        (state / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    if not lists.entries:
        yield "no video is in a split, because no lists were given; name them with --lists"
    if missing:
        yield f"in the lists, not in the LMDB: {count_and_first(missing, state / 'missing.txt')}"
    if extra and lists.entries:
        yield f"in the LMDB, not in the lists: {count_and_first(extra, state / 'extra.txt')}"
    if wrong:
        yield (
            "another number of frames than __vlen__ says, the real one is taken: "
            f"{count_and_first(wrong, state / 'lengths.txt')}"
        )
    if twice:
        yield f"{twice:,} videos are there a second time, under another spelling; each has its row"


def build(
    a,
):  # the summary
    "From LMDBs and lists to the manifest."
    kind, home, state, progress = (
        PREPARED_DATASETS[a.dataset],
        a.out,
        a.out / PREPARE_STATE,
        not a.quiet,
    )
    expect_no_run(home)
    if a.workers is not None and a.workers < 1:
        raise PrepareError(f"workers is {a.workers}; take at least 1")
    if (home / "manifest.csv").exists() and not (state / MARK).exists():
        raise PrepareError(
            f"{home / 'manifest.csv'}: is there already, and was not written by this program; "
            "move it away, or name another folder with --out"
        )
    if a.flow and a.flow.resolve() == a.rgb.resolve():
        raise PrepareError(
            f"{a.flow}: is the RGB LMDB, too; name the one with the flow, or leave --flow out"
        )
    if (
        a.flow
        and a.flow.resolve().name == a.rgb.resolve().name
        and not any(f.resolve().is_relative_to(home.resolve()) for f in (a.rgb, a.flow))
    ):
        raise PrepareError(
            f"{a.flow}: is called like the RGB LMDB, and both have to be linked into {home}; "
            "rename one of them"
        )
    rgb, flow = entries(a.rgb), entries(a.flow) if a.flow else {}
    state.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(state / "lock"):
        lists = read_lists(kind, unpacked_lists(a.lists, home, progress)) if a.lists else Lists({})
        inside = lambda folder: PurePosixPath(link_into(folder, home).relative_to(home).as_posix())
        names, keys, rows = zip(*described(kind, rgb, lists))
        if a.lists and not set(keys) & set(lists.entries):
            raise PrepareError(
                f"{a.rgb}: holds none of the {len(lists.entries):,} videos of the lists; "
                f"it holds {count_and_first(names)}; are these its lists?"
            )
        notes = []
        # refuses before anything is linked
        if flow:
            rows, notes = with_flow(kind, rows, keys, flow)
        places = inside(a.rgb), inside(a.flow) if flow else None
        rows = [
            replace(r, video=str(places[0] / r.video), flow=r.flow and str(places[1] / r.flow))
            for r in rows
        ]
        files = [a.rgb.resolve() / PurePosixPath(r.video).name for r in rows]
        rows = in_threads(lambda pair: looked(*pair), [*zip(rows, files)], a.workers, progress)
        (state / MARK).touch()
        notes += write_anew(home / "manifest.csv", rows)
        return Prepared(
            kind if a.lists else replace(kind, splits=()),
            read(home),
            notes=[*remarks(lists, keys, names, rows, rgb, state), *notes],
        )


def main(
    args=None,  # None: those of the command line
):
    "From two LMDBs to a manifest."
    guarded(lambda: print(build(arguments().parse_args(args))))


if __name__ == "__main__":
    main()
