"""results/README.md: its tables and its index are those of the files, every file is listed, and no
picture is drawn from older numbers."""

import json
import re
import statistics
import struct
import sys
import zlib

import pytest
from house import LEDGER, NBS, ROOT, ledger_picture, moves

sys.path.insert(0, str(ROOT / "benchmarks"))
import experiment_rule  # noqa: E402
import results_index  # noqa: E402
import results_page  # noqa: E402

RESULTS = ROOT / "results"
TEXTS = {"README.md", "pictures.md"}
REMEDY = "python tests/house.py results"


@pytest.fixture(scope="module")
def page():
    return (RESULTS / "README.md").read_text(encoding="utf-8")


HEAD = "files,topic,script,command,line"


def test_the_page_is_what_the_command_writes(page):
    assert page == results_page.filled(page), REMEDY


def test_every_file_has_one_line_in_the_index(page):
    below = page.split("<!-- index -->")[1]
    for file in RESULTS.iterdir():
        if file.name not in TEXTS:
            name = f"{file.name}/" if file.is_dir() else file.name
            assert below.count(f"\n| `{name}` |") == 1, f"{name}: results/files.csv, then {REMEDY}"
    listed = re.findall(r"^\| `([^`]+)` \|", below, re.M)
    assert len(listed) == len(set(listed)) == len([*RESULTS.iterdir()]) - len(TEXTS)


def test_the_lines_of_the_index_are_short():
    for one in results_index.described(RESULTS):
        assert one.line and len(one.line) <= 90 and not one.line.endswith("."), one.files


def test_a_line_is_what_the_stamp_has(tmp_path):
    "The columns of a file with a stamp, of one that calls went on with, and of an older one."
    machine = {"cpu": "A", "cores": 4, "threads": 1, "gpu": None}
    stamp = {
        "what": "benchmarks/step.py",
        "date": "2026-11-02",
        "command": "benchmarks/step.py --cache /tmp/x/y.npz --few 2 --out results/new.json",
        "commit": {"library": "1111111", "script": "2222222"},
        "head": "3333333",
        "dirty": True,
        "machine": machine,
    }
    went_on = stamp | {"date": "2026-11-05", "head": "4444444", "dirty": False}
    gpu = {"date": "2026-11-01", "committed": "5555555", "machine": {"cpu": "B", "gpu": "C"}}
    files = {
        "new.json": stamp | {"continued": [went_on]},
        "older.json": gpu,
        "many.json": {"what": "benchmarks/row.py", "stamps": [stamp]},
    }
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    (tmp_path / "table.csv").write_text("a,b\n")
    lines = (
        "new.json,a,,,one",
        "older.json,a,by hand,--few 3,two",
        "many.json,b,,,three",
        "*.csv,b,,no options,four",
    )
    (tmp_path / "files.csv").write_text("\n".join([HEAD, *lines]))

    linked = "[`step.py`](../benchmarks/step.py)"
    wanted = [
        f"| `new.json` | one | {linked} | `--cache …/y.npz --few 2` and 1 further call | "
        "3333333, dirty, …<br>2026-11-02 to 2026-11-05 | A, 1 thread |",
        "| `older.json` | two | by hand | `--few 3` | 5555555<br>2026-11-01 | C |",
        f"| `many.json` | three | {linked} | `--cache …/y.npz --few 2` | "
        "3333333, dirty<br>2026-11-02 | A, 1 thread |",
        "| `table.csv` | four | – | no options | – | – |",
    ]
    text = results_index.index(tmp_path)
    assert [line for line in text.splitlines() if line in wanted] == wanted
    assert "<summary>a: 2 files</summary>" in text
    long = stamp | {"command": "step.py --only " + "name " * 30}
    assert results_index.options_of(long) == f"`--only {'name ' * 14}…`"


def test_a_file_without_a_line_is_named(tmp_path):
    def refusal(*lines):
        (tmp_path / "files.csv").write_text("\n".join([HEAD, *lines]))
        with pytest.raises(ValueError) as e:
            results_index.index(tmp_path)
        return str(e.value)

    (tmp_path / "a.json").write_text("{}")
    assert "a.json has no line" in refusal("files.csv,t,,,x")
    assert "a.json has two lines" in refusal("*,t,,,x", "a.json,t,,,x")
    assert "no file is named b.json" in refusal("*,t,,,x", "b.json,t,,,x")
    assert "letters" in refusal(f"*,t,,,{'x' * 91}")


def test_a_family_is_judged_when_all_its_lines_have_eight_seeds():
    lines = experiment_rule.judge(results_page.read("experiment")["records"], 8)
    text = results_page.families_table()
    table, *rest = text.split("\n\n")
    waits = rest[0] if rest else ""
    assert {x["family"] for x in lines} == {*experiment_rule.FAMILIES}
    for x in lines:
        row = [r for r in table.splitlines() if f"| {x['statement']} |" in r]
        if x["p_holm"] is None:
            assert not row and x["family"] in waits
        else:
            shown = {"higher": "shown", "lower": "the opposite is shown", "open": "open"}
            assert row[0].endswith(f"| {shown[x['verdict']]} |") and x["family"] not in waits


def test_a_lost_mark_is_named():
    made = {"a": lambda: "new"}
    text = "1\n<!-- a -->\nold\n<!-- end of a -->\n2"
    assert results_page.filled(text, made) == "1\n<!-- a -->\n\nnew\n\n<!-- end of a -->\n2"
    for lost in ("", "<!-- a -->", "<!-- end of a --><!-- a -->", text + text):
        with pytest.raises(ValueError, match="<!-- a -->"):
            results_page.filled(lost, made)


def test_numbers_of_the_tables_are_those_of_the_files(page):
    "A few, counted here in another way."

    def read(name):
        return json.loads((RESULTS / f"{name}.json").read_text())

    def r1(row, view="rgb"):
        wanted = {"row": row, "view": view, "budget": 1, "world": "plain"}
        found = [r for r in read("experiment")["records"] if wanted.items() <= r.items()]
        return {r["seed"]: 100 * r["r1"] for r in found}

    cmc, iic = r1("cmc"), r1("iic")
    gain = statistics.fmean(iic[seed] - cmc[seed] for seed in cmc)
    medians = f"{statistics.median(cmc.values()):.0f} → {statistics.median(iic.values()):.0f}"
    assert f"| {medians} | {gain:.1f} points (" in page

    rows = {r["name"]: r for r in read("evidence")["rows"]}
    low, high = rows["coclr, both"]["r1_interval"]
    share = rows["coclr, both"]["r1"]
    assert f"| CoCLR, both views | {share:.1%} ({low:.1%} to {high:.1%})".replace("%", "") in page

    plain, fast = (
        next(
            s["seconds"] for s in read("step-nvidia-h200-partial")["switches"] if s["variant"] == v
        )
        for v in ("plain", "all, bfloat16")
    )
    assert f"| {fast * 1e3:.1f} ms | plain recipe in float32: {plain * 1e3:.1f} ms |" in page


def test_pictures_are_drawn_from_the_numbers_of_today():
    assert not results_page.old_pictures(), REMEDY
    assert LEDGER.read_bytes() == ledger_picture(), REMEDY
    text = (RESULTS / "pictures.md").read_text(encoding="utf-8")
    shown = {(RESULTS / name).resolve() for name in re.findall(r"\]\((\S+\.png)\)", text)}
    assert shown == {*(NBS / "images").glob("*.png")} - {NBS / "images" / "way.png"}
    for name in results_page.PICTURES:
        size = (NBS / "images" / f"{name}.png").stat().st_size
        assert size < results_page.MOST_BYTES


def test_other_numbers_make_a_picture_old(tmp_path, monkeypatch):
    for file in (NBS / "images").glob("*.png"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert not results_page.old_pictures(tmp_path)
    (tmp_path / "ladder.png").unlink()
    assert [*results_page.old_pictures(tmp_path)] == ["ladder"]

    results = results_page.read_results(RESULTS / "experiment.json")
    drawn = ("rgb", 1, "plain", "iic")
    for record in results["records"]:
        if tuple(record[k] for k in ("view", "budget", "world", "row")) == drawn:
            record["scene"] += 0.001
    monkeypatch.setattr(results_page, "read_results", lambda file: results)
    assert [*results_page.old_pictures(tmp_path)] == ["experiment", "ladder"]


def test_a_mark_leaves_a_picture_as_it_is():
    "The chunks of a PNG, read one by one: all have their checksum, and one is new."

    def chunks(png):
        at, found = 8, []
        while at < len(png):
            (size,) = struct.unpack(">I", png[at : at + 4])
            kind, content = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
            assert struct.unpack(">I", png[at + 8 + size : at + 12 + size])[0] == zlib.crc32(
                kind + content
            )
            found.append((kind, content))
            at += 12 + size
        return found

    png = (NBS / "images" / "neighbours.png").read_bytes()
    assert moves(png) and results_page.mark_of(png) == ""
    marked = results_page.marked(png, "0123456789abcdef")
    assert results_page.mark_of(marked) == "0123456789abcdef" and moves(marked)
    new = (b"tEXt", b"numbers\0" + b"0123456789abcdef")
    assert chunks(marked) == [chunks(png)[0], new, *chunks(png)[1:]]
