"Run folders in, tables out: the same numbers in every form, one sentence for what is broken."

import csv
import html as markup
import io
import json
import re
import statistics
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image
from scipy.stats import binomtest

from vssl_nb import show
from vssl_nb.methods.recipes import find, to_dict
from vssl_nb.papers.report import TABLE_FORMS, against, confusion_figure, page, read_runs, sheet
from vssl_nb.measure.health import wilson
from vssl_nb.papers.report import summary, table

UCF = {"queries": 3783, "gallery": 9537, "split": 1, "manifest_sha256": "f" * 64}


def run_folder(folder, rows, recipe=None, train=9537, seed=0, **card):
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps(rows), encoding="utf-8")
    if recipe:
        (folder / "recipe.json").write_text(json.dumps(to_dict(replace(recipe, seed=seed))))
    (folder / "card.json").write_text(
        json.dumps(
            {
                "seconds": 60.0,
                "manifest": {"train": train, "sha256": "f" * 64},
                "versions": {"torch": "2.9"},
            }
            | card
        )
    )
    return folder


@pytest.fixture
def runs(tmp_path):
    """Three seeds of InfoNCE (official protocol), one under ours, runs on flow and toy, probe,
    fine-tuning.
    """
    there, rgb, flow = tmp_path / "runs", find("infonce-ucf101-rgb"), find("infonce-ucf101-flow")
    for seed, r1 in enumerate((0.3215, 0.3341, 0.3478)):
        row = {
            "name": rgb.name,
            "method": "infonce",
            "view": "rgb",
            "r1": r1,
            "r5": r1 + 0.2,
            "protocol": {"name": "coclr_official", "clips": 10},
            "finished": True,
            **UCF,
        }
        folder = run_folder(there / f"rgb-{seed}", [row], rgb, seed=seed)
        (folder / "steps.csv").write_text("step,loss\n1,4.1\n2,3.9\n3,3.2\n")
    run_folder(
        there / "clean",
        [
            {
                "name": rgb.name,
                "method": "infonce",
                "view": "rgb",
                "r1": 0.35,
                "r5": None,
                "protocol": "clean",
                "new key": [1, {"a": 2}],
                **UCF,
            }
        ],
        rgb,
    )
    run_folder(
        there / "flow",
        [
            {
                "name": flow.name,
                "method": "infonce",
                "view": "flow",
                "r1": 0.44,
                "protocol": "coclr_official",
                **UCF,
            }
        ],
        flow,
    )
    run_folder(
        there / "laptop",
        [
            {
                "name": rgb.name,
                "method": "infonce",
                "view": "rgb",
                "r1": 0.62,
                "protocol": "clean",
                "split": 1,
                "queries": 80,
                "gallery": 190,
                "manifest_sha256": "a" * 64,
            }
        ],
        rgb,
        train=190,
    )
    run_folder(
        there / "coclr_k400_rgb",
        [
            {
                "name": "coclr-k400-rgb",
                "view": "rgb",
                "task": "linear",
                "top1": 0.70,
                "top5": 0.9,
                "protocol": "coclr_linear",
                **UCF,
            },
            {
                "name": "coclr-k400-rgb",
                "view": "rgb",
                "task": "finetune",
                "top1": 0.88,
                "top5": 0.97,
                "protocol": "coclr_finetune",
                "selection": "test",
                **UCF,
            },
            {
                "name": "coclr-k400",
                "view": "rgb+flow",
                "task": "finetune",
                "top1": 0.91,
                "protocol": "coclr_finetune",
                **UCF,
            },
        ],
        train=239_000,
    )
    return there


class Cells(HTMLParser):
    "Rows of the first table of a page."

    def __init__(self, text):
        super().__init__()
        self.rows, self.inside = [], False
        self.feed(text[: text.index("</table>")])

    def handle_starttag(self, tag, attrs):
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.inside = True
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.rows[-1][-1] += data


def latex_faults(text):
    """What would keep a table from compiling, as far as counting can tell; nothing where all is
    well.
    """
    # \\ ends a line
    bare = re.sub(r"\\[\\&%$#_{}]", lambda m: "\0" if m[0] == "\\\\" else "", text)
    faults, deep, open_ = [f"{c} is not escaped" for c in '%#~^_<>|"' if c in bare], 0, [""]
    for c in bare:
        deep = deep + (c == "{") - (c == "}") if deep >= 0 else deep
    if deep:
        faults.append("braces do not balance")
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", bare):
        open_ = (
            open_ + [name]
            if kind == "begin"
            else open_[:-1]
            if open_[-1] == name
            else open_ + ["?"]
        )
    if len(open_) > 1:
        faults.append(f"\\begin{{{open_[1]}}} is not closed, or closed twice")
    if bare.count("$") % 2:
        faults.append("an odd number of $")
    for columns, body in re.findall(
        r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", bare, re.S
    ):
        wrong = [line for line in body.split("\0")[:-1] if line.count("&") != len(columns) - 1]
        if wrong:
            faults.append(f"{len(wrong)} lines without {len(columns)} cells")
    return faults


def line_of(lines, **wanted):
    (one,) = [r for r in lines if all(r.get(k) == v for k, v in wanted.items())]
    return one


def test_the_command_of_a_classifier_quotes_its_path():
    (line,) = summary([{"name": "a", "r1": 0.5, "place": "runs/mein lauf/classifier.safetensors"}])
    assert line["notes"] == [
        "use it: vssl-nb predict 'runs/mein lauf/classifier.safetensors' VIDEO"
    ]


def test_seeds_are_one_line(runs):
    lines = summary(read_runs(runs))
    one = line_of(lines, seeds=3)
    xs = [0.3215, 0.3341, 0.3478]
    assert one["r1"] == pytest.approx(sum(xs) / 3, abs=1e-15) and one["r1_sd"] == pytest.approx(
        statistics.stdev(xs), abs=1e-15
    )
    assert (
        one["run"] == "rgb-0, rgb-1, rgb-2"
        and one["pretrain_seed"] == "0, 1, 2"
        and one["seconds"] == 60
    )
    assert len(lines) == 7  # three seeds became one line, nothing else was averaged
    # in whatever order the folders come
    assert summary(list(reversed(read_runs(runs))))[0]["r1"] == lines[0]["r1"]


def test_runs_that_differ_are_not_averaged(tmp_path):
    rgb = find("infonce-ucf101-rgb")
    row = {"name": rgb.name, "view": "rgb", "r1": 0.3, "protocol": "clean", **UCF}
    for name in ("one", "again"):
        run_folder(tmp_path / "same" / name, [row], rgb, seed=0)
    assert [r["seeds"] for r in summary(read_runs(tmp_path / "same"))] == [1, 1]
    run_folder(tmp_path / "changed" / "a", [row], rgb, seed=0)
    run_folder(
        tmp_path / "changed" / "b",
        [row],
        replace(rgb, learning=replace(rgb.learning, epochs=500)),
        seed=1,
    )
    lines = summary(read_runs(tmp_path / "changed"))
    assert [r["seeds"] for r in lines] == [1, 1] and [
        n for r in lines for n in r["notes"] if "epochs" in n
    ] == ["recipe changed: epochs 300 → 500"]
    assert "r1_sd" not in lines[0]
    for name, more in (("x", {}), ("y", {"a key of the future": "other"})):
        run_folder(tmp_path / "key" / name, [row | more], rgb, seed=ord(name))
    assert [r["seeds"] for r in summary(read_runs(tmp_path / "key"))] == [1, 1]


def test_difference(runs):
    lines = summary(read_runs(runs))
    one = line_of(lines, seeds=3)
    assert (one["r1_paper"], one["source"]) == (0.331, "CoCLR, released README") and one[
        "notes"
    ] == []
    assert one["r1_diff"] == pytest.approx(one["r1"] - 0.331, abs=1e-15)
    flow = line_of(lines, view="flow")
    assert flow["r1_paper"] == pytest.approx(0.452) and flow["r1_diff"] == pytest.approx(-0.012)
    linear = line_of(lines, task="linear")
    assert (
        linear["top1_paper"] == pytest.approx(0.745)
        and linear["top1_diff"] == pytest.approx(-0.045)
        and "r1_paper" not in linear
    )
    two = line_of(lines, view="rgb+flow")
    assert two["top1_paper"] == pytest.approx(0.9061)


def test_nothing_is_compared_silently(runs):
    lines = summary(read_runs(runs))
    clean = line_of(lines, protocol="clean, split 1", manifest_sha256="f" * 64)
    assert clean["r1_paper"] == 0.331 and clean["notes"] == [
        "protocol: ours clean, published coclr_official"
    ]
    laptop = line_of(lines, manifest_sha256="a" * 64)
    assert "r1_paper" not in laptop and laptop["notes"] == [
        "270 clips, not UCF101",
        "80 test videos are few: R@1 is from 51 to 72 %, with 95 % confidence",
    ]
    assert "62.0" in sheet(lines) and "270 clips, not UCF101" in sheet(lines)
    chosen = line_of(lines, selection="test")
    assert "chosen on test" in chosen["protocol"] and any(
        "test videos" in n for n in chosen["notes"]
    )
    # the highest number of the table is the laptop's and the two streams': neither is marked among
    # others
    bold = [line for line in sheet(lines, "markdown", best=True).splitlines() if "**" in line]
    assert all("62.0" not in line and "91.0" not in line for line in bold)


def test_the_papers_number_of_the_same_protocol_comes_first():
    "ProViCo, appendix table 3: cosine of the means, or match probability."
    line = {
        "name": "provico-ucf101-r2plus1d18",
        "task": "retrieval",
        "view": "rgb",
        "r1": 0.6,
        **UCF,
    }
    for name, value in (("provico", 64.7), ("provico, cosine of means", 63.1)):
        number, notes = against(line | {"protocol": {"name": name}})
        assert number.value == value and not any("protocol" in n for n in notes)


def test_a_small_pretraining_set_is_noticed(tmp_path):
    rgb = find("infonce-ucf101-rgb")
    run_folder(
        tmp_path / "a",
        [{"name": rgb.name, "view": "rgb", "r1": 0.2, "protocol": "clean", **UCF}],
        rgb,
        train=190,
    )
    (one,) = summary(read_runs(tmp_path))
    assert "r1_paper" not in one and one["notes"] == ["pretrained on 190 videos, not UCF101"]


def test_split_two_and_the_other_dataset(tmp_path):
    rgb = find("infonce-ucf101-rgb")
    run_folder(
        tmp_path / "a",
        [
            {
                "name": rgb.name,
                "view": "rgb",
                "r1": 0.2,
                "protocol": "clean",
                **UCF,
                "split": 2,
                "gallery": 9586,
                "queries": 3734,
            }
        ],
        rgb,
    )
    run_folder(
        tmp_path / "b",
        [
            {
                "name": "coclr-ucf101-rgb",
                "view": "rgb",
                "r1": 0.2,
                "protocol": "coclr_official",
                "split": 1,
                "gallery": 3563,
                "queries": 1523,
            }
        ],
    )
    a, b = (line_of(summary(read_runs(tmp_path)), name=n) for n in (rgb.name, "coclr-ucf101-rgb"))
    assert a["notes"] == ["split 2; published for split 1"] and "r1_paper" not in a
    assert b["r1_paper"] == pytest.approx(0.232)  # CPR, table 6, HMDB51


def test_all_forms_agree(runs):
    lines = summary(read_runs(runs))
    text = {form: sheet(lines, form) for form in TABLE_FORMS}
    rows = {"html": Cells(text["html"]).rows}
    rows["markdown"] = [
        [
            re.sub(r"\\(.)", r"\1", markup.unescape(c.strip()))
            for c in re.split(r"(?<!\\)\|", line)[1:-1]
        ]
        for line in text["markdown"].split("\n\n")[0].splitlines()
    ]
    del rows["markdown"][1]
    body = re.search(r"\\toprule\n(.*)\\bottomrule", text["latex"], re.S)[1].replace(
        "\\midrule\n", ""
    )
    plain = lambda s: (
        re.sub(r"\\([%#_&])", r"\1", s)
        .replace(r"$\pm$", "±")
        .replace("$-$", "-")
        .replace("--", "–")
        .strip()
    )
    rows["latex"] = [
        [plain(c) for c in line.removesuffix(r" \\").split(" & ")]
        for line in body.strip().splitlines()
    ]
    assert rows["html"] == rows["markdown"] == rows["latex"]
    head, *cells = rows["html"]
    for line, shown in zip(text["text"].splitlines()[1:], cells):
        assert (
            re.sub(r"\s+", " ", line).strip()
            == re.sub(r"\s+", " ", " ".join(shown)).replace("– ", "– ").strip()
        )
    kept = list(csv.DictReader(io.StringIO(text["csv"])))
    at = {h: i for i, h in enumerate(head)}
    for line, shown, r in zip(lines, cells, kept):
        for key, heading in (("r1", "R@1 %"), ("r5", "R@5 %"), ("top1", "top-1 %")):
            if r[key] == "":
                assert shown[at[heading]] == "–"
            else:
                assert float(r[key]) == line[key]  # csv does not round
                assert shown[at[heading]].split(" ±")[0] == f"{100 * line[key]:.1f}"
        assert r["notes"] == "; ".join(line["notes"])
    assert latex_faults(text["latex"]) == []
    assert "32.1" not in text["text"]  # no single seed is left over


def test_difference_is_what_a_reader_computes(runs):
    for r in csv.DictReader(io.StringIO(sheet(summary(read_runs(runs)), "csv"))):
        for m in ("r1", "top1"):
            if r.get(f"{m}_paper"):
                assert float(r[f"{m}_diff"]) == pytest.approx(
                    float(r[m]) - float(r[f"{m}_paper"]), abs=1e-12
                )


EVIL = r'50% of a_b & {c} \d ~e ^f #1 $2 <script>x</script> "q" [1ex] | – é'


def test_names_that_bite(tmp_path):
    run_folder(
        tmp_path / "r",
        [
            {"name": EVIL, "view": "[rgb", "r1": 0.5, "protocol": EVIL, "task": EVIL},
            {"name": "infonce-ucf101-rgb", "r1": 0.1, "backbone": EVIL, **UCF},
        ],
    )
    lines = summary(read_runs(tmp_path))
    for form in TABLE_FORMS:
        assert sheet(lines, form)
    assert latex_faults(sheet(lines, "latex")) == []
    assert "<script>" not in sheet(lines, "html") + sheet(lines, "markdown")
    assert EVIL in [
        r["name"] for r in csv.DictReader(io.StringIO(sheet(lines, "csv")))
    ] and EVIL in " ".join(n for r in lines for n in r["notes"])
    assert "<script>" not in page(tmp_path).read_text()


def test_latex_compiles_as_far_as_counting_can_tell():
    rows = [
        {"name": "chance", "r1": 0.125},
        {"name": "colours", "r1": 0.1562, "r1_diff": -0.003},
        {"name": "mine", "r1": 0.8906},
    ]
    fine = table(rows, "latex", {"name": "name", "r1": "R@1 %", "r1_diff": "difference"}, best=True)
    assert (
        latex_faults(fine) == []
        and r"mine & \textbf{89.1} & -- \\" in fine
        and "15.6 & $-$0.3" in fine
    )
    for a, b, fault in (
        (r"\textbf{89.1}", r"\textbf{89.1", "braces do not balance"),
        (r"\end{tabular}", "", "is not closed"),
        ("& 15.6", "", "1 lines without 3 cells"),
        ("colours", "a_b", "_ is not escaped"),
        ("colours", "5%", "% is not escaped"),
        ("--", "$-", "an odd number of $"),
    ):
        assert any(fault in f for f in latex_faults(fine.replace(a, b, 1))), fault
    for name in (
        '<b>"1"</b> a|b `c` [d](e) **f**\ng',
        "[2ex] \\end{tabular} 50% {",
        "\\",
        "%",
        "{{{",
    ):
        assert latex_faults(table([{"name": name}], "latex")) == []


def test_missing_numbers(tmp_path):
    rows = [
        {"name": "a", "r1": None, "protocol": "clean"},
        {"name": "b", "r1": float("nan"), "r5": 0.5},
        {"name": "c"},
        {"r10": 0},
    ]
    run_folder(tmp_path / "r", rows)
    lines = summary(read_runs(tmp_path))
    assert len(lines) == 4 and all("r1_paper" not in r for r in lines)
    shown = sheet(lines, "text", {"name": "name", "r1": "R@1", "r5": "R@5", "r10": "R@10"})
    assert shown.count("–") == 4 + 3 + 3 and "0.0" in shown  # zero is a result
    assert "nan" not in "".join(sheet(lines, form) for form in TABLE_FORMS)


@pytest.mark.parametrize(
    "content, word",
    [
        ('[{"r1": 0.', "is not readable as JSON"),
        ('{"r1": 1}', "is not a list"),
        ("[1, 2]", "is not a list"),
        ("[]", "has no result"),
        ('[{"r1": 43.2}]', "a share from 0 to 1"),
        ('[{"name": "a"}, {"top1": "0.5"}]', "row 2"),
        ('[{"r5": true}]', "a share from 0 to 1"),
        ('"text"', "is not a list"),
    ],
)
def test_broken_results(tmp_path, content, word):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "results.json").write_text(content)
    for what in (read_runs, page):
        with pytest.raises(ValueError) as e:
            what(tmp_path)
        assert word in str(e.value) and "results.json" in str(e.value) and "\n" not in str(e.value)


@pytest.mark.parametrize(
    "file, content",
    [("card.json", "[1]"), ("card.json", "{"), ("recipe.json", "7"), ("recipe.json", '{"name": ')],
)
def test_broken_neighbours(tmp_path, file, content):
    run_folder(tmp_path / "r", [{"r1": 0.5}])
    (tmp_path / "r" / file).write_text(content)
    with pytest.raises(ValueError) as e:
        read_runs(tmp_path)
    assert file in str(e.value) and "\n" not in str(e.value)


def test_foreign_json(tmp_path):
    """Files of another program: unknown keys, a recipe that is none of ours, a card without a
    manifest.
    """
    run_folder(
        tmp_path / "r",
        [
            {
                "accuracy": 0.5,
                "nested": {"a": [1]},
                "list": [1, 2],
                "none": None,
                "r1": 0.25,
                "name": "theirs",
                "protocol": ["a", 1],
                "seed": "abc",
                "split": "val",
                "share": 0.5,
            }
        ],
        manifest="no",
    )
    (tmp_path / "r" / "recipe.json").write_text(
        '{"name": "infonce-ucf101-rgb", "seed": [1], "model": {"x": 1}}'
    )
    (tmp_path / "r" / "log.csv").write_bytes(b"\xff\xfe\x00step;loss\n")
    (one,) = summary(read_runs(tmp_path))
    assert one["r1"] == 0.25 and "r1_paper" not in one
    for form in TABLE_FORMS:
        assert "25.0" in sheet([one], form) or form == "csv"
    assert page(tmp_path).exists()


def test_page(runs):
    (runs / "flow" / "figures").mkdir()
    Image.new("RGB", (8, 8), "teal").save(runs / "flow" / "figures" / "wall.png")
    rows = json.loads((runs / "coclr_k400_rgb" / "results.json").read_text())
    rows[0] |= {"confusion": [[3, 1], [0, 4]], "classes": ["a", "b"]}
    rows += [
        {"name": "few", "task": "probe", "protocol": "clean_probe", "share": s, "top1": t}
        for s, t in ((0.01, 0.2), (0.1, 0.4), (1.0, 0.6))
    ]
    (runs / "coclr_k400_rgb" / "results.json").write_text(json.dumps(rows))
    text = page(runs).read_text()
    # three losses, the wall, the confusion
    assert text.count('<img src="data:image/png;base64,') == 3 + 1 + 1
    assert not re.search(r'(src|href)="(?!data:)', text) and "<script" not in text
    for word in (
        "33.4",
        "± 1.3",
        "+0.3",
        "learning.epochs",
        "270 clips, not UCF101",
        "labels %",
        ">60.0<",
    ):
        assert word in text, word
    assert page(runs, runs / "again.html").read_text() == text
    assert page(runs / "flow").parent == runs / "flow"  # one run alone


def test_captions_are_words_and_the_curve_of_a_fine_tuning_is_called_that(tmp_path, monkeypatch):
    row, drawn = {"name": "x", "task": "probe", "top1": 0.5, "confusion": [[3, 1], [0, 4]]}, []
    monkeypatch.setattr(
        show,
        "curves",
        lambda series, *a, real=show.curves, **kw: (
            drawn.append([*series]) or real(series, *a, **kw)
        ),
    )
    for name, card in (("tuned", {"training": {"method": {}}}), ("trained", {})):
        folder = run_folder(tmp_path / "runs" / name, [row], **card)
        (folder / "steps.csv").write_text("step,loss\n1,4.1\n2,3.9\n")
        (folder / "figures").mkdir()
        for stem in (
            "neighbours-0123abcd",
            "neighbours-99999999",
            "neighbours-coclr-official-0123abcd",
            "nearest-videos",
            "phases",
            "of_my_own",
        ):
            Image.new("RGB", (8, 8), "teal").save(folder / "figures" / f"{stem}.png")
    text = page(tmp_path / "runs").read_text()
    captions = re.findall("<figcaption>(.*?)</figcaption>", text)
    assert (
        drawn == [["pretraining"], ["fine-tuning"]] and len(set(captions)) == len(captions) == 2 * 8
    )
    assert text.count("<img src") == 16 and not re.search(
        r"[0-9a-f]{8}|[a-z][-_][a-z]+[-_]",
        " ".join(c for c in captions).replace("fine-tuning", "").replace("co-training", ""),
    )
    for words in (
        "tuned: the loss of its fine-tuning, step by step",
        "tuned: of my own",
        "trained: training videos, and beside each those that are nearest for this encoder",
        "green where the class is the same (coclr official)",
        "which class its test videos are taken for",
    ):
        assert words in text, words


def test_no_name_is_cut(tmp_path):
    """In a confusion matrix and beside clips: nothing touches the border, and the names take their
    place.
    """
    clip, letters = np.zeros((2, 8, 8, 3), np.uint8), "W" * 60
    square = confusion_figure(
        np.eye(12), [f"{c} is a class of a long name, {c * 70}" for c in "ABCDEFGHIJKL"]
    )
    for figure, width in (
        (square, 1000),
        (show.strips([clip], [letters]), 1640),
        (show.neighbours([clip], [[clip] * 5], [[True] * 5], [letters]), 1400),
    ):
        ink = (
            np.asarray(Image.open(show.save_picture(figure, tmp_path / "x.png")).convert("L")) < 250
        )
        assert ink.shape[1] > width and not (
            ink[:, :3].any() or ink[:, -3:].any() or ink[-3:].any()
        )
        box = figure.axes[0].get_window_extent()
        assert box.width > 500 and box.height > 80, "nothing is left for the picture"


def styles(text, element):
    "What the page says of the cells of that kind, as one text."
    css = re.search("<style>(.*?)</style>", text, re.DOTALL)[1]
    rules = re.findall(r"([^{}]+)\{([^{}]*)\}", css)
    return " ".join(rule for names, rule in rules if element in re.split(r"\s*,\s*", names.strip()))


def test_a_table_breaks_names_and_settings_but_no_words_and_numbers(tmp_path):
    """'retriev al' and '48. 8' stood in a table of many columns. Where it is wider than its page it
    is scrolled, and not the page.
    """
    text = page(run_folder(tmp_path / "run", [{"name": "x" * 300, "r1": 0.5}])).read_text()
    for element in ("td:first-child", "td code"):
        assert "overflow-wrap: anywhere" in styles(text, element), element
    for element in ("th", "td", ".n", "table", "body", ".wide > table"):
        assert not re.search("overflow-wrap|word-break", styles(text, element)), element
    assert "overflow-x: auto" in styles(text, ".wide") and "nowrap" not in text
    assert '<div class="wide"><table' in text


def test_old_calls_still_work():
    rows = [
        {"name": "chance", "method": "chance", "view": "", "r1": 0.125},
        {
            "name": "mine",
            "method": "infonce",
            "view": "rgb",
            "r1": 0.5,
            "seconds": 83.2,
            "run": "runs/mine",
        },
    ]
    assert table(rows, "text").splitlines()[0].split() == [
        "name",
        "method",
        "view",
        "R@1",
        "%",
        "seconds",
        "run",
    ]
    assert "**50.0**" in table(rows, best=True)


def test_few_test_videos_chance_and_leaks_are_named():
    row = {
        "method": "infonce",
        "view": "rgb",
        "protocol": "clean",
        "split": 1,
        "gallery": 52,
        "manifest_sha256": "a" * 64,
        "seed": 0,
    }

    def beside(n, **r1):
        return [row | {"name": k, "method": k, "queries": n, "r1": v} for k, v in r1.items()]

    def notes(rows):
        return [
            n
            for line in summary(rows)
            for n in line["notes"]
            if "paper" not in n and "published" not in n and "recorded" not in n
        ]

    ours = [row | {"name": "mine", "r1": 7 / 13, "queries": 13}]
    assert notes(ours) == ["13 test videos are few: R@1 is from 29 to 77 %, with 95 % confidence"]
    assert notes(ours + beside(13, chance=0.33, random=0.5)) == notes(ours) + [
        "R@1 cannot be told from guessing (33 %)"
    ]
    assert notes(ours + beside(13, chance=0.2)) == notes(ours)  # the lower end is above
    assert notes([ours[0] | {"queries": 3783}]) == []
    assert notes(beside(13, chance=0.3, histogram=0.9, random=0.93)) == [
        "an untrained network finds 93 %: are "
        "siblings, cut from one film, on both sides of the split? Name the films in the column "
        "source"
    ]
    assert notes(beside(5, chance=0.52, random=0.8)) == []  # four of five: as by guessing
    tuned = row | {
        "name": "mine",
        "task": "finetune",
        "queries": 13,
        "top1": 5 / 13,
        "confusion": [[5, 0], [8, 0]],
    }
    assert notes([tuned])[-1] == "top-1 cannot be told from guessing (62 %)"
    for k, n in ((0, 13), (7, 13), (13, 13), (30, 80)):
        low, high = wilson(k / n, n)
        oracle = binomtest(k, n).proportion_ci(method="wilson")
        assert (low, high) == pytest.approx((oracle.low, oracle.high), abs=1e-4)
    # two runs that were measured beside the same baselines
    lines = summary(
        [*beside(13, chance=0.33), *ours, *beside(13, chance=0.33), ours[0] | {"name": "other"}]
    )
    assert [line["name"] for line in lines] == ["chance", "mine", "other"]


def test_a_table_of_before_names_motion_by_hand():
    "Rows that were kept without it are named with the command; where it stands, nothing is."
    row = {"task": "retrieval", "split": 1, "manifest_sha256": "a" * 64, "manifest": "m.csv"}
    mine = row | {"name": "mine", "recipe": "infonce-toy-rgb", "method": "infonce", "r1": 0.5}
    before = [row | {"name": k, "method": k, "r1": 0.1} for k in ("chance", "histogram", "random")]
    motion = row | {"name": "motion by hand", "method": "motion", "r1": 0.3}

    def sentence(rows):
        text = sheet(summary(rows), "text")
        return next((s for s in text.splitlines() if "Not in this table" in s), "")

    assert sentence([*before, mine]).startswith(
        "Not in this table: motion by hand. vssl-nb retrieve infonce-toy-rgb --data m.csv"
    )
    assert sentence([*before, motion, mine]) == ""
    assert "motion by hand and an untrained encoder" in sentence([mine])


def test_runs_of_which_one_lacks_a_number_without_a_heading():
    "`mined_r1` is in the rows of a co-training alone: the note names it."
    rows = [
        {
            "name": "a",
            "method": "coclr",
            "view": "rgb",
            "protocol": "clean",
            "r1": 0.5,
            "seed": s,
            "run": f"a{s}",
            "seconds": 9.0,
        }
        | more
        for s, more in enumerate(({"mined_r1": 0.4}, {}))
    ]
    (line,) = summary(rows)
    assert "mined_r1: 1 of 2 runs" in line["notes"] and line["seeds"] == 2
