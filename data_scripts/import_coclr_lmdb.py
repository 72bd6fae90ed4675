"""The LMDBs that CoCLR released, without unpacking them -> manifest.csv.

  python import_coclr_lmdb.py --rgb ucf101_rgb_lmdb --lists ucfTrainTestlist \\
    --out data/ucf101_coclr
  python import_coclr_lmdb.py --rgb ucf101_rgb_lmdb --flow ucf101_flow_lmdb \\
    --lists ucfTrainTestlist --out data/ucf101_coclr

A row names an entry as if it were a file, ucf101_rgb_lmdb/000000012; LMDBs elsewhere are linked
into --out. Its frames are JPEGs and have no frame rate: fps is 0. Every entry is read once.
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
    read_lists,
    write_anew,
)
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


def read_entries(
    folder,  # of an LMDB
):  # name, `Class/video` -> (entry, frames as the file lists them)
    "What an LMDB holds; what is none is refused."
    if not folder.is_dir():
        raise PrepareError(
            f"{folder}: there is no such folder; name the one that holds the data.mdb"
        )
    if not (folder / "data.mdb").is_file():
        raise PrepareError(f"{folder}: holds no data.mdb; name the folder of one LMDB")
    entries = lmdb_entries(folder)
    if not entries:
        raise PrepareError(f"{folder}: is an LMDB without videos; copy it again")
    return entries


def as_video(
    name,  # of an entry
):  # with a suffix: else a name with a dot in it would lose its end
    return name if name.lower().endswith(VIDEO_SUFFIXES) else f"{name}.avi"


def class_of(name):
    return PurePosixPath(name).parent.name


def describe(
    kind,  # of PREPARED_DATASETS
    entries,  # of `read_entries`
    lists,  # of the owners
):  # names, keys, rows, sorted by name
    "A row per entry, with what its name and the lists say about it."
    names = sorted(entries)
    # without lists, HandstandPushups rather than HandStandPushups
    classes = sorted(map(class_of, names))
    spelling = {name.casefold(): name for name in classes} | lists.labels
    keys, rows = [], []
    for name in names:
        video = as_video(name)
        label = spelling[class_of(name).casefold()]
        key = kind.key(video)
        entry, _ = entries[name]
        listed = lists.entries.get(key, {})
        keys.append(key)
        rows.append(
            Row(**listed | {"video": entry, "label": label, "source": kind.source(video, label)})
        )
    return names, keys, rows


def probe_entry(row, file):
    "The row with what its entry holds."
    try:
        p = probe(file)
    except VideoError as e:
        return replace(row, status=" ".join(e.reason.split()))
    except Exception as e:
        # one strange entry must not stop ten thousand
        return replace(row, status=f"is damaged: it is not a list of pictures ({type(e).__name__})")
    return replace(row, frames=p.frames, width=p.width, height=p.height)


def add_flow(
    kind,  # of PREPARED_DATASETS
    rows,
    keys,  # of the rows
    entries,  # of the flow, of `read_entries`
):  # rows, remarks
    "The entry of the same name: entry numbers differ between two LMDBs."
    flow = {kind.key(as_video(name)): entry for name, (entry, _) in entries.items()}
    without_flow = [key for key in keys if key not in flow]
    without_rgb = sorted(set(flow) - set(keys))
    if len(without_flow) == len(keys):
        raise PrepareError(
            f"the flow LMDB holds none of the {len(keys):,} videos of the RGB LMDB, such as "
            f"{keys[0]}; are both of the same dataset?"
        )
    notes = []
    if without_flow:
        notes.append(f"with RGB, without flow: {count_and_first(without_flow)}")
    if without_rgb:
        notes.append(f"with flow, without RGB: {count_and_first(without_rgb)}")
    return [replace(row, flow=flow.get(key, "")) for row, key in zip(rows, keys)], notes


def remarks(
    lists,  # of the owners
    keys,  # of the rows
    names,  # of the rows
    rows,
    entries,  # of `read_entries`
    state,  # folder of the texts
):
    "What does not fit together, written down in full and as sentences."
    missing = sorted(set(lists.entries) - set(keys))
    extra = []
    if lists.entries:
        extra = [name for name, key in zip(names, keys) if key not in lists.entries]
    lengths = []
    for name, row in zip(names, rows):
        _, listed = entries[name]
        if row.status == "ok" and row.frames != listed:
            lengths.append(f"{name} ({row.frames} instead of {listed})")
    texts = {
        "missing": missing,
        "extra": extra,
        "lengths": lengths,
        "entries": [f"{row.video} {name}" for name, row in zip(names, rows)],
    }
    for name, lines in texts.items():
        (state / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    if not lists.entries:
        yield "no video is in a split, because no lists were given; name them with --lists"
    if missing:
        yield f"in the lists, not in the LMDB: {count_and_first(missing, state / 'missing.txt')}"
    if extra:
        yield f"in the LMDB, not in the lists: {count_and_first(extra, state / 'extra.txt')}"
    if lengths:
        yield (
            "another number of frames than __vlen__ says, the real one is taken: "
            f"{count_and_first(lengths, state / 'lengths.txt')}"
        )
    twice = len(keys) - len(set(keys))
    if twice:
        yield f"{twice:,} videos are there a second time, under another spelling; each has its row"


def check_paths(a):
    "PrepareError before anything is read or linked."
    home = a.out
    expect_no_run(home)
    if a.workers is not None and a.workers < 1:
        raise PrepareError(f"workers is {a.workers}; take at least 1")
    if (home / "manifest.csv").exists() and not (home / PREPARE_STATE / MARK).exists():
        raise PrepareError(
            f"{home / 'manifest.csv'}: is there already, and was not written by this program; "
            "move it away, or name another folder with --out"
        )
    if not a.flow:
        return
    rgb, flow = a.rgb.resolve(), a.flow.resolve()
    if flow == rgb:
        raise PrepareError(
            f"{a.flow}: is the RGB LMDB, too; name the one with the flow, or leave --flow out"
        )
    linked = not any(folder.is_relative_to(home.resolve()) for folder in (rgb, flow))
    if flow.name == rgb.name and linked:
        raise PrepareError(
            f"{a.flow}: is called like the RGB LMDB, and both have to be linked into {home}; "
            "rename one of them"
        )


def build(
    a,  # of `arguments`
):  # the summary
    "From LMDBs and lists to the manifest."
    check_paths(a)
    kind, home, progress = PREPARED_DATASETS[a.dataset], a.out, not a.quiet
    state = home / PREPARE_STATE
    entries = read_entries(a.rgb)
    flow_entries = read_entries(a.flow) if a.flow else {}
    state.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(state / "lock"):
        lists = Lists({})
        if a.lists:
            lists = read_lists(kind, unpacked_lists(a.lists, home, progress))
        names, keys, rows = describe(kind, entries, lists)
        if a.lists and not set(keys) & set(lists.entries):
            raise PrepareError(
                f"{a.rgb}: holds none of the {len(lists.entries):,} videos of the lists; "
                f"it holds {count_and_first(names)}; are these its lists?"
            )
        notes = []
        # refuses before anything is linked
        if flow_entries:
            rows, notes = add_flow(kind, rows, keys, flow_entries)

        files = [a.rgb.resolve() / row.video for row in rows]
        rgb = PurePosixPath(link_into(a.rgb, home).relative_to(home).as_posix())
        rows = [replace(row, video=str(rgb / row.video)) for row in rows]
        if flow_entries:
            flow = PurePosixPath(link_into(a.flow, home).relative_to(home).as_posix())
            rows = [replace(row, flow=row.flow and str(flow / row.flow)) for row in rows]
        rows = in_threads(lambda pair: probe_entry(*pair), [*zip(rows, files)], a.workers, progress)
        (state / MARK).touch()
        notes += write_anew(home / "manifest.csv", rows)
        if not a.lists:
            kind = replace(kind, splits=())
        sentences = [*remarks(lists, keys, names, rows, entries, state), *notes]
        return Prepared(kind, read(home), notes=sentences)


def main(
    args=None,  # None: those of the command line
):
    "From two LMDBs to a manifest."
    guarded(lambda: print(build(arguments().parse_args(args))))


if __name__ == "__main__":
    main()
