"""What is in a folder of videos, on one page: a map, groups, near copies, and which videos to label
next.
"""

import html
import itertools
import json
import os
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import numpy as np

from ..data.glimpses import STRIP_PICTURES, Glimpse, candidate_pairs, same_pictures, try_to_look
from ..data.manifest import ManifestError, in_threads, read
from ..data.video import Probe
from ..files import equal_files, write_whole
from ..measure.feature_files import read_feature_table
from ..measure.features import write_csv
from ..measure.landscape import Groups, directions, group, on_grid, on_plane, to_label_next
from ..paths import video_paths
from ..show.colours import class_colours
from .search import SearchIndex

FEWEST_VIDEOS = 3  # videos of which there is a map
MOST_PICTURES = 2000  # videos that play on the page at most


class ExploreError(ValueError):
    "Videos or features that cannot be explored, and what to do."


@dataclass
class Collection:
    "Videos and their features."

    root: Path  # the folder of the videos
    names: list[str]  # relative to it
    labels: list[str]  # class names, '' where there is none
    x: np.ndarray  # (N, D) features
    origin: str  # of the features, for the page


def of_index(
    index: SearchIndex,
) -> Collection:
    "The videos of an index, with the labels of their manifest or of their folders."
    names = list(index.videos)
    encoder = "/".join(Path(index.encoder).parts[-2:])
    return _checked(
        Collection(index.root, names, labels_of(index.root, names), np.asarray(index.x), encoder)
    )


def of_table(
    file: Path,  # that `vssl-nb extract --out` wrote
    root: Path,  # the folder of the videos
) -> Collection:
    "The videos of a table of features. ValueError."
    names, labels, numbers = read_feature_table(file)
    # of every kind of table the same
    x = np.asarray(numbers, np.float32)
    videos = set(video_paths(root, ExploreError))
    unknown = [name for name in names if name not in videos]
    if unknown:
        raise ExploreError(
            f"{file}: {len(unknown)} of its {len(names)} videos are not in {root}, such as "
            f"{unknown[0]}; name the folder that the features were made of"
        )
    bad = [name for name, row in zip(names, x) if not np.isfinite(row).all()]
    if bad:
        raise ExploreError(
            f"{file}: {len(bad)} of {len(x)} rows hold NaN or infinity, the first of {bad[0]}; "
            "leave them out, or make the features again"
        )
    known = labels_of(root, names)
    return _checked(Collection(root, names, [a or b for a, b in zip(labels, known)], x, file.name))


def _checked(collection: Collection) -> Collection:
    n = len(collection.names)
    if n < FEWEST_VIDEOS:
        raise ExploreError(
            f"{collection.root}: has features of {n} video{'s' * (n != 1)}, and a map takes "
            f"{FEWEST_VIDEOS}; add videos"
        )
    return collection


def labels_of(
    root: Path,  # the folder of the videos
    names: Sequence[str],  # of videos in it
) -> list[str]:  # '' where there is none
    "What the manifest calls them, else the folder that each lies in."
    try:
        known = {row.video: row.label for row in read(root / "manifest.csv").rows}
    except (ManifestError, OSError):
        known = {}
    return [known.get(name, PurePosixPath(name).parent.name) for name in names]


# -- what is there


@dataclass
class Landscape:
    "All that the page shows."

    collection: Collection
    plane: np.ndarray  # (N, 2) from 0 to 1
    groups: Groups
    next: list[int]  # to label, the most useful first
    glimpses: list[Glimpse | None]
    unreadable: dict[str, str] = field(default_factory=dict)  # name -> why
    # videos with the same pictures, each set once
    copies: list["Copies"] = field(default_factory=list)


@dataclass(frozen=True)
class Copies:
    "Videos that show the same."

    members: tuple[int, ...]  # positions
    kind: str  # 'same file' or 'same pictures'
    cosine: float  # the lowest of their features


def explore(
    collection: Collection,
    groups: int | None = None,  # how many; None: by the number of videos
    label_next: int = 20,  # how many to label next
    workers: int = 2,  # threads that decode
    progress: bool = True,
    seed: int = 0,  # of map and groups
) -> Landscape:
    "Look at every video, and place, group and compare them."
    c = collection
    x = directions(c.x)
    glimpses, unreadable = _look_at_all(c, workers, progress)
    labelled = np.array([bool(label) for label in c.labels])
    return Landscape(
        c,
        on_plane(x, seed),
        group(x, groups, seed),
        to_label_next(x, labelled, label_next, seed),
        glimpses,
        unreadable,
        find_copies(c, x, glimpses),
    )


def _look_at_all(
    c: Collection,
    workers: int,
    progress: bool,
) -> tuple[list[Glimpse | None], dict[str, str]]:  # of each; why there is none
    width = 160 if len(c.names) <= 100 else 112 if len(c.names) <= 600 else 80
    known = _probes(c)

    def one(name: str) -> Glimpse | str:
        return try_to_look(c.root / name, width, known.get(name))

    looks = in_threads(one, c.names, max(workers, 1), progress, "pictures")
    unreadable = {name: g for name, g in zip(c.names, looks) if isinstance(g, str)}
    return [None if isinstance(g, str) else g for g in looks], unreadable


def _probes(c: Collection) -> dict[str, Probe]:
    "What the manifest tells of the videos, where there is one."
    try:
        rows = read(c.root / "manifest.csv").rows
    except (ManifestError, OSError):
        return {}
    return {
        row.video: Probe(row.frames, row.fps, row.width, row.height, 0, "", 0, ())
        for row in rows
        if row.status == "ok" and row.frames
    }


def find_copies(
    c: Collection,
    x: np.ndarray,  # (N, D) of `directions`
    glimpses: Sequence[Glimpse | None],
) -> list[Copies]:  # the surest first
    "Files with the same bytes, and neighbours whose pictures are the same."
    position = {name: i for i, name in enumerate(c.names)}
    same_bytes = [
        {position[name] for name in names}
        for names in equal_files({name: c.root / name for name in c.names})
    ]
    first = {i: min(some) for some in same_bytes for i in some}
    links = [(i, j) for i, j in first.items() if i != j]
    for i, j in candidate_pairs(x, glimpses):
        a, b = glimpses[i], glimpses[j]
        if first.get(i, i) == first.get(j, j) or a is None or b is None:
            continue
        if same_pictures(a, b):
            links.append((i, j))

    copies = []
    for members in _connected(links):
        lowest = min(float(x[i] @ x[j]) for i, j in itertools.combinations(members, 2))
        kind = "same file" if any(set(members) <= some for some in same_bytes) else "same pictures"
        copies.append(Copies(members, kind, lowest))
    return sorted(copies, key=lambda s: (s.kind, -s.cosine, s.members))


def _connected(
    links: Sequence[tuple[int, int]],
) -> list[tuple[int, ...]]:  # each ascending
    "Sets of positions that links join."
    sets: dict[int, set[int]] = {}
    for i, j in links:
        joined = sets.get(i, {i}) | sets.get(j, {j})
        for k in joined:
            sets[k] = joined
    return sorted({tuple(sorted(some)) for some in sets.values()})


# -- in words


def mostly(
    labels: Sequence[str],  # of the members of a group
) -> str:
    "The label that most of them have; '' where less than a third has it."
    count = Counter(label for label in labels if label)
    if not count:
        return ""
    label, n = min(count.items(), key=lambda item: (-item[1], item[0]))
    return f"{label} {n} of {len(labels)}" if 3 * n >= len(labels) else ""


def landscape_in_words(
    s: Landscape,
    lines: int = 30,  # of each part at most
) -> str:
    "What was seen, for a terminal."
    names, labels = s.collection.names, s.collection.labels
    text = [f"{len(s.groups)} groups; {s.groups.in_words}"]
    for g, members in enumerate(s.groups.typical[:lines]):
        label = mostly([labels[i] for i in members])
        about = f", {label}" if label else ""
        typical = ", ".join(names[i] for i in members[:3])
        text.append(f"{g + 1:>4}  {len(members)} video{'s' * (len(members) > 1)}{about}: {typical}")

    n = len(s.copies)
    text.append(f"{n} set{'s' * (n != 1)} of near copies")
    for copies in s.copies[:lines]:
        text.append(f"  {copies.kind}  {' = '.join(names[i] for i in copies.members)}")
    if n > lines:
        text.append(f"  and {n - lines} more: see the page, or the column copies of a .csv")

    text.append(next_in_words(s))
    text += [f"{rank:>4}  {names[i]}" for rank, i in enumerate(s.next, 1)]
    return "\n".join(text)


def next_in_words(s: Landscape) -> str:
    "What the list of videos to label is."
    labelled = sum(map(bool, s.collection.labels))
    n = len(s.collection.labels)
    if labelled == n:
        return f"all {n} videos have a label; these stand best for the folder"
    if labelled:
        return f"to label next, beside the {labelled} of {n} that have a label"
    return "to label first"


def write_landscape(
    path: Path,  # .html or .csv
    s: Landscape,
) -> Path:
    "A page that plays, or a table with a row for each video."
    if path.suffix == ".html":
        text = as_page(s, path)
        return write_whole(path, lambda f: f.write(text.encode()))
    return write_csv(path, [EXPLORED_COLUMNS, *_rows(s)])


EXPLORED_COLUMNS = (
    "video",
    "label",
    "map_x",
    "map_y",
    "group",
    "place_in_group",
    "copies",
    "label_next",
)


def _rows(s: Landscape) -> list[tuple]:
    place = {i: k for members in s.groups.typical for k, i in enumerate(members, 1)}
    copies = {i: number for number, some in enumerate(s.copies, 1) for i in some.members}
    rank = {i: k for k, i in enumerate(s.next, 1)}
    return [
        (
            name,
            s.collection.labels[i],
            round(float(s.plane[i, 0]), 4),
            round(float(s.plane[i, 1]), 4),
            int(s.groups.of[i]) + 1,
            place[i],
            copies.get(i, ""),
            rank.get(i, ""),
        )
        for i, name in enumerate(s.collection.names)
    ]


# -- the page

WIDE, NARROW = 1.75, 0.55  # width of the grid over its height, on a screen and on a phone
MOST_COPIES = 60  # sets on the page
TYPICAL = 6  # videos of a group


def as_page(
    s: Landscape,
    page: Path,  # where it will lie, for links to the videos
) -> str:
    "One file with all pictures in it."
    shown = _shown(s)
    labels = sorted({label for label in s.collection.labels if label})
    by_label: dict[Any, str] = class_colours(labels)
    by_group: dict[Any, str] = class_colours(range(len(s.groups)))
    facts = [_facts(s, i, page) for i in range(len(s.collection.names))]
    parts = {
        "TITLE": html.escape(str(s.collection.root.resolve().name)),
        "SUMMARY": html.escape(_summary(s, len(shown))),
        "STRIPS": _strips(s, shown),
        "MAP": _map(s, shown, by_label, by_group),
        "LABELS": _legend([(name, by_label[name]) for name in labels], s.collection.labels),
        "GROUPKEYS": _legend(
            [(f"group {g + 1}", by_group[g]) for g in range(len(s.groups))],
            [f"group {g + 1}" for g in s.groups.of],
        ),
        "GROUPS": _group_sections(s, by_group),
        "BORDERS": html.escape(s.groups.in_words.capitalize()),
        "COPIES": _copy_sections(s),
        "NEXTWORDS": html.escape(next_in_words(s).capitalize()),
        "NEXT": "".join(_tile(s, i, f"{k}") for k, i in enumerate(s.next, 1)),
        # < could end the script
        "FACTS": json.dumps(facts, ensure_ascii=False).replace("<", "\\u003c"),
        "STARTWITH": "label" if labels else "group",
        "FRAMES": str(STRIP_PICTURES),
    }
    text = Path(__file__).with_name("explore.html").read_text(encoding="utf-8")
    pieces = text.split("§")
    # every second piece is a name
    pieces[1::2] = [parts[name] for name in pieces[1::2]]
    return "".join(pieces)


def _summary(s: Landscape, shown: int) -> str:
    c = s.collection
    n = len(c.names)
    classes = len({label for label in c.labels if label})
    labels = f"{classes} label{'s' * (classes > 1)}" if classes else "no labels"
    text = f"{n:,} videos, {labels}, {len(s.groups)} groups; features of {c.origin}."
    if s.unreadable:
        text += f" {len(s.unreadable)} cannot be decoded and stand still."
    if shown < n:
        text += f" The map shows {shown:,} of them, drawn by chance; the .csv has all."
    return text


def _shown(s: Landscape) -> list[int]:
    "Which videos the map shows."
    n = len(s.collection.names)
    if n <= MOST_PICTURES:
        return list(range(n))
    return sorted(np.random.default_rng(0).choice(n, MOST_PICTURES, replace=False).tolist())


def _facts(s: Landscape, i: int, page: Path) -> list:  # name, label, group, address
    name = s.collection.names[i]
    path = os.path.relpath((s.collection.root / name).absolute(), page.absolute().parent)
    address = quote(path.replace(os.sep, "/"))
    return [name, s.collection.labels[i], int(s.groups.of[i]) + 1, address]


def _strips(s: Landscape, shown: Sequence[int]) -> str:
    "A rule of CSS for the pictures of each video that the page shows."
    used = {*shown, *s.next}
    used |= {i for members in s.groups.typical for i in members[:TYPICAL]}
    used |= {i for some in s.copies[:MOST_COPIES] for i in some.members}
    rules = []
    for i in sorted(used):
        glimpse = s.glimpses[i]
        if glimpse is not None:
            data = b64encode(glimpse.strip).decode()
            # slower than this a jerk, faster than this a flicker
            seconds = min(max(glimpse.seconds, 0.6), 2.0)
            rules.append(
                f".v{i}{{background-image:url(data:image/webp;base64,{data});"
                f"animation-duration:{seconds:.2f}s}}"
            )
    return "\n".join(rules)


def _map(
    s: Landscape,
    shown: Sequence[int],
    by_label: dict[Any, str],
    by_group: dict[Any, str],
) -> str:
    "A tile for each video, with its place on a screen and on a phone."
    plane = s.plane[list(shown)]
    columns = [max(round((1.25 * len(shown) * shape * 0.75) ** 0.5), 1) for shape in (WIDE, NARROW)]
    wide, narrow = (on_grid(plane, n) for n in columns)
    tiles = []
    for k, i in enumerate(shown):
        label = s.collection.labels[i]
        style = (
            f"--c:{wide[k, 0] + 1};--r:{wide[k, 1] + 1};--pc:{narrow[k, 0] + 1};"
            f"--pr:{narrow[k, 1] + 1};--l:{by_label[label]};--g:{by_group[int(s.groups.of[i])]}"
        )
        tiles.append(f'<i class="t v{i}" data-i="{i}" style="{style}"></i>')
    return f'<div id="map" style="--n:{columns[0]};--pn:{columns[1]}">' + "".join(tiles) + "</div>"


def _legend(
    colours: Sequence[tuple[str, str]],  # name, colour
    members: Sequence[str],  # the name of each video
) -> str:
    count = Counter(members)
    return "".join(
        f'<button data-key="{html.escape(name)}"><b style="background:{colour}"></b>'
        f"{html.escape(name)} <small>{count[name]}</small></button>"
        for name, colour in colours
    )


def _tile(
    s: Landscape,
    i: int,
    words: str = "",  # above the name
) -> str:
    "One video with its name."
    name = html.escape(s.collection.names[i])
    above = f"<b>{html.escape(words)}</b> " if words else ""
    film = f'<i class="t v{i}" data-i="{i}"></i>'
    return f"<figure>{film}<figcaption>{above}{name}</figcaption></figure>"


def _group_sections(s: Landscape, colours: dict[Any, str]) -> str:
    sections = []
    for g, members in enumerate(s.groups.typical):
        label = mostly([s.collection.labels[i] for i in members])
        about = f", mostly {label}" if label else ""
        count = f"{len(members)} video{'s' * (len(members) > 1)}"
        tiles = "".join(_tile(s, i) for i in members[:TYPICAL])
        sections.append(
            f'<h3><b style="background:{colours[g]}"></b>Group {g + 1}: {count}'
            f'{html.escape(about)}</h3><div class="row">{tiles}</div>'
        )
    return "".join(sections)


def _copy_sections(s: Landscape) -> str:
    if not s.copies:
        return "<p>There are none.</p>"
    sections = []
    for some in s.copies[:MOST_COPIES]:
        tiles = "".join(_tile(s, i) for i in some.members)
        words = f"{some.kind.capitalize()}, cosine of the features {some.cosine:.3f}"
        sections.append(f'<h3>{words}</h3><div class="row">{tiles}</div>')
    more = len(s.copies) - MOST_COPIES
    if more > 0:
        sections.append(
            f"<p>And {more} more: the column <code>copies</code> of a .csv has all.</p>"
        )
    return "".join(sections)
