"""Pictures: pixels, colours and titles that can be worked out by hand, and files that Pillow reads
back.
"""

import io
import json
import math
import re
import shutil
from base64 import b64decode

import matplotlib
import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.utils import flow_to_image

from vssl_nb import show
from vssl_nb.show import figures, loops, pixels

RIGHT = torch.zeros(3, 8, 24, 24)  # a square moves one px a frame to the right
for t in range(8):
    RIGHT[:, t, 8:16, 4 + t : 12 + t] = 1
LEFT = RIGHT.flip(1)


def circling(
    T=12,
):  # (T, 96, 96, 3) uint8: a dark disc goes round over a background of a thousand colours
    y, x = np.mgrid[:96, :96]
    paper = np.stack([90 + x, 130 + y // 2, 200 - (x + y) // 2], 2)
    angles = 2 * np.pi * np.arange(T) / 12
    inside = [np.hypot(x - 48 - 26 * np.cos(a), y - 48 - 26 * np.sin(a)) < 14 for a in angles]
    return np.stack([np.where(i[..., None], (40, 30, 60), paper) for i in inside]).astype(np.uint8)


def frames_in(
    loop,
):  # (T, H, W, 3) as Pillow shows them, and their durations
    read, pictures, durations = Image.open(io.BytesIO(loop.png)), [], []
    for t in range(read.n_frames):
        read.seek(t)
        durations.append(read.info.get("duration"))
        pictures.append(np.asarray(read.convert("RGB")))
    return np.stack(pictures), durations


def image_of(figure, ax=0):
    return figure.axes[ax].images[0].get_array()


def test_frames_of_any_scale_and_type():
    x = torch.tensor([-1.0, 0, 3]).reshape(1, 1, 1, 3).repeat(3, 1, 1, 1)
    assert show.frames_of(x)[0, 0, :, 0].tolist() == [0, 64, 255]
    np.testing.assert_array_equal(
        show.frames_of(x.bfloat16().requires_grad_()), show.frames_of(x.numpy().astype(np.float64))
    )
    film = circling(2)
    assert show.frames_of(film) is film  # bytes are shown untouched
    assert not show.frames_of(torch.full((3, 2, 4, 5), 7.0)).any()


def test_strips_and_galleries():
    picture = show.strip(RIGHT)
    assert picture.size == (8 * 24, 24)
    assert [picture.getpixel((24 * t + 4 + t, 10))[0] for t in range(8)] == [255] * 8
    assert show.strip(RIGHT, every=3).size == (3 * 24, 24)
    rows = show.strips([RIGHT, LEFT], ["forwards", "backwards"])
    assert [ax.get_ylabel() for ax in rows.axes] == ["forwards", "backwards"]
    np.testing.assert_array_equal(image_of(rows, 1), np.asarray(show.strip(LEFT)))
    assert image_of(show.strips([RIGHT], ["x"], every=4)).shape == (24, 2 * 24, 3)
    frames = [*RIGHT[0]]
    assert len(show.gallery(frames, [""] * 8, columns=3).axes) == 8
    half = show.gallery([frames[0], frames[0] / 2], ["a", "b"]).axes[1].images[0]
    assert half.get_clim() == (0, 1)  # half as bright looks half as bright
    assert Image.open(io.BytesIO(show.Picture(figsize=(1, 1))._repr_png_())).size == (80, 80)


def test_a_pixel_stays_while_it_is_near_enough():
    # in four frames
    pixel = np.array([100, 103, 106, 109], np.uint8)[:, None, None, None].repeat(3, 3)
    palette = np.array([100, 108, 116])[:, None].repeat(3, 1)
    for slack, painted in ((4, [1, 0, 2, 0]), (0, [1, 0, 2, 0]), (6, [1, 0, 0, 2])):  # by hand
        assert loops._repaint(pixel, palette, slack).ravel().tolist() == painted
    # few colours are kept to the bit
    assert loops._palette(pixel, 4, []).tolist() == pixel[:, 0, 0].tolist()
    assert (
        len(loops._palette(np.arange(300, dtype=np.uint8).reshape(1, 10, 10, 3), 8, [(1, 2, 3)]))
        == 9
    )


def test_a_loop_is_what_was_given():
    film = circling()
    loop = show.Loop(film, fps=8)
    seen, durations = frames_in(loop)
    assert durations == [125.0] * 12 and Image.open(io.BytesIO(loop.png)).info["loop"] == 0
    palette = loops._palette(film, 64, [])
    assert len(palette) == 64 and len(np.unique(film.reshape(-1, 3), axis=0)) > 1000
    # against the palette, one colour at a time
    for f, g in zip(film.astype(int), seen.astype(int)):
        nearest = palette[((f[:, :, None] - palette) ** 2).sum(-1).argmin(-1)]
        assert (np.abs(g - f).max(-1) <= np.maximum(4, np.abs(nearest - f).max(-1))).all()
    # a clip without motion keeps its time
    assert sum(frames_in(show.Loop([film[0]] * 3))[1]) == 375
    assert len(frames_in(show.Loop([film[0]]))[0]) == 1


def shade(
    level,
    kind,
):  # red or grey, on a page that a browser can tell apart
    return np.full((40, 60, 3), (level, 0, 0) if kind == "<red>" else level, np.uint8)


def test_a_slider_has_all_its_pictures():
    drawn = []

    def draw(level, kind):
        drawn.append((level, kind))
        return Image.fromarray(shade(level, kind)) if level else show.Loop([shade(1, kind)] * 2)

    values = dict(level=[0, 100.0, 200], kind=["grey", "<red>"])
    slider = show.Slider(draw, start={"level": 100}, **values)
    assert drawn == [(v, k) for v in values["level"] for k in values["kind"]]
    html = slider._repr_html_()
    names, pictures = map(json.loads, re.findall(r"const (?:names|pictures) = (.+);", html))
    assert names == [["0", "100", "200"], ["grey", "<red>"]] and "<red>" not in html
    seen = [Image.open(io.BytesIO(b64decode(p))) for p in pictures]
    assert [p.convert("RGB").getpixel((5, 5)) for p in seen] == [
        (1,) * 3,
        (1, 0, 0),
        (100,) * 3,
        (100, 0, 0),
        (200,) * 3,
        (200, 0, 0),
    ]
    # a loop still plays
    assert [getattr(p, "n_frames", 1) for p in seen] == [2, 2, 1, 1, 1, 1]
    # without its script, as a page shows it that nobody trusts: what `start` names
    still = html[: html.index("<script>")]
    assert f'base64,{pictures[2]}"' in still and re.findall(r'value="(\d)"', still) == ["1", "0"]
    assert repr(slider).startswith("Slider: level (3) × kind (2), ")
    figures = show.Slider(lambda tau: show.matrix(np.eye(3) / tau, f"{tau}"), tau=(0.1, 1))
    assert (
        len({*figures.pictures}) == 2
        and html == show.Slider(draw, {"level": 100}, **values)._repr_html_()
    )


def test_a_slider_moves_in_a_browser_without_a_kernel(tmp_path):
    if not (chromium := shutil.which("chromium")):
        pytest.skip("needs Chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    slider = show.Slider(shade, level=[50, 100, 200], kind=["grey", "<red>"])
    # two on one page
    (tmp_path / "page.html").write_text(f'<meta charset="utf-8">{slider._repr_html_() * 2}')
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page()
        wrong = []
        tab.on("pageerror", lambda e: wrong.append(str(e)))
        tab.goto((tmp_path / "page.html").as_uri())

        def look():
            shown = [i.get_attribute("src").split(",")[1] for i in tab.locator("img").all()]
            colours = [
                Image.open(io.BytesIO(b64decode(s))).convert("RGB").getpixel((5, 5)) for s in shown
            ]
            return colours, tab.locator("output").all_inner_texts()

        assert (
            look() == ([(50,) * 3] * 2, ["50", "grey"] * 2)
            and not tab.locator("small:visible").count()
        )
        tab.locator("input").nth(2).press("ArrowRight")  # of the second
        tab.locator("input").nth(3).press("End")
        assert look() == ([(50,) * 3, (100, 0, 0)], ["50", "grey", "100", "<red>"])
        tab.locator("input").nth(2).press("Home")
        assert look() == ([(50,) * 3, (50, 0, 0)], ["50", "grey", "50", "<red>"]) and not wrong
        browser.close()


def test_clips_beside_each_other():
    loop = show.clips(
        [RIGHT, LEFT], ["forwards", "backwards"], stills=4, colours=["#1f77b4", (255, 127, 14)]
    )
    seen = frames_in(loop)[0]
    top = pixels.text_frame("forwards").shape[1] + 3  # 24 px become 120, with a border of 3
    assert loop.width == 2 * 126 + 8 and len(loop.png) < 5_000
    assert seen[0, top, [0, 126 + 8]].tolist() == [[31, 119, 180], [255, 127, 14]]
    for t in range(8):
        for left, clip in ((3, RIGHT), (126 + 8 + 3, LEFT)):  # to the bit: few colours
            now = seen[t, top + 3 : top + 123 : 5, left : left + 120 : 5]
            np.testing.assert_array_equal(now, show.frames_of(clip)[t])
    sizes = {
        (32, 32): (128, 128),
        (24, 20): (120, 100),
        (128, 96): (128, 96),
        (240, 320): (96, 128),
    }
    assert {
        s: pixels.scaled(np.zeros((2, *s, 3), np.uint8), 128).shape[1:3] for s in sizes
    } == sizes


def one_colour(u, v, most=1.0):
    return show.flow_colour(np.array([u, v], float).reshape(2, 1, 1), most)[0, 0].tolist()


def pixel_by_pixel(
    u,
    v,
    most,
):  # written from the description of Baker et al. alone
    if not (abs(u) <= 1e9 and abs(v) <= 1e9):
        return 0, 0, 0
    ring = [(255, 255 * i // 15, 0) for i in range(15)] + [
        (255 - 255 * i // 6, 255, 0) for i in range(6)
    ]
    ring += [(0, 255, 255 * i // 4) for i in range(4)] + [
        (0, 255 - 255 * i // 11, 255) for i in range(11)
    ]
    ring += [(255 * i // 13, 0, 255) for i in range(13)] + [
        (255, 0, 255 - 255 * i // 6) for i in range(6)
    ]
    turn = math.degrees(math.atan2(v, u))
    place = 54 * (turn + 360 if turn < 0 else turn) / 360
    before = int(place)
    mixed = [a + (place - before) * (b - a) for a, b in zip(ring[before], ring[(before + 1) % 55])]
    far = math.hypot(u, v) / most
    return [int(0.75 * c if far > 1 else 255 - far * (255 - c)) for c in mixed]


def test_colours_of_flow():
    assert [one_colour(1, 0), one_colour(0, 1), one_colour(-1, 0), one_colour(0, -1)] == [
        [255, 0, 0],
        [255, 229, 0],
        [0, 209, 255],
        [88, 0, 255],
    ]
    assert [one_colour(0.5, 0), one_colour(2, 0), one_colour(0, 0), one_colour(1, -0.0)] == [
        [255, 127, 127],
        [191, 0, 0],
        [255] * 3,
        [255, 0, 0],
    ]
    assert [one_colour(np.nan, 0), one_colour(0, np.inf), one_colour(2e9, 0)] == [[0] * 3] * 3
    assert [one_colour(0, 0, None), one_colour(7, 0, None)] == [[255] * 3, [255, 0, 0]]
    unit = np.stack([np.cos(np.arange(360.0)), np.sin(np.arange(360.0))]).astype(np.float32)[
        :, None
    ]
    # rounding darkens nothing
    assert (show.flow_colour(unit, 1.0) == show.flow_colour(unit)).all()
    assert show.flow_colour(torch.tensor(unit).bfloat16().requires_grad_()).shape == (1, 360, 3)


def test_colours_of_flow_as_a_loop_and_torchvision_make_them():
    # 2 videos of 3 flow pictures
    flow = np.random.default_rng(0).normal(0, 3, (2, 3, 2, 9, 11))
    flow[0, 1, 0, 2, 3] = np.nan
    pixels = np.moveaxis(flow, 2, -1).reshape(-1, 2)
    loop = np.array([pixel_by_pixel(*uv, 4.0) for uv in pixels]).reshape(2, 3, 9, 11, 3)
    gap = np.abs(show.flow_colour(flow, 4.0).astype(int) - loop)
    assert gap.max() <= 1 and (gap > 0).mean() < 0.001
    # torchvision divides by the longest and computes in float32: one level may be off
    other = [
        show.flow_colour(f).astype(int) - flow_to_image(f).permute(1, 2, 0).numpy()
        for f in torch.tensor(flow[1], dtype=torch.float32)
    ]
    assert np.abs(other).max() <= 1 and (np.array(other) != 0).mean() < 0.02


def test_a_matrix_with_its_numbers():
    frame = torch.nn.functional.normalize(RIGHT[0].flatten(1), dim=1)
    sim = frame @ frame.T
    ax = show.matrix(
        sim, "similarity", rows=[f"frame {t}" for t in range(8)], cols=list(range(8))
    ).axes[0]
    assert [text.get_text() for text in ax.texts[:3]] == ["1", "0.88", "0.75"]
    assert [text.get_color() for text in ax.texts[:8:7]] == ["white", "black"]
    assert [a.get_ticklabels()[1].get_text() for a in (ax.yaxis, ax.xaxis)] == ["frame 1", "1"]
    assert [len(show.matrix(np.zeros(n)).axes[0].texts) for n in ((10, 20), (10, 21))] == [200, 0]
    signed = sim - sim.mean(1, keepdim=True)
    image = show.matrix(signed).axes[0].images[0]
    assert image.get_clim() == (-float(signed.abs().max()), float(signed.abs().max()))
    red, green, blue = np.array([image.to_rgba(v)[:3] for v in (-0.3, 0, 0.3)]).T
    assert red[0] > blue[0] and min(red[1], green[1], blue[1]) > 0.95 and blue[2] > red[2]
    limits = [
        show.matrix(x, signed=s).axes[0].images[0].get_clim()
        for x, s in (([[-1.0, -np.inf], [0, 2]], None), ([[1.0, 2]], None), ([[1.0, 2]], True))
    ]
    assert limits == [(-2, 2), (1, 2), (-2, 2)]


def test_bars_and_curves():
    ax = show.bars({"guess": 0.125, "trained": 0.9}, "R@1", line=0.125).axes[0]
    assert [bar.get_height() for bar in ax.patches] == [0.125, 0.9]
    assert [text.get_text() for text in ax.texts] == ["0.12", "0.90"]
    assert (list(ax.lines[0].get_ydata()), ax.get_ylabel()) == ([0.125, 0.125], "R@1")
    assert not show.bars({"a": 1}, "x").axes[0].lines
    ax = show.curves({"loss": ([0, 1, 2], [4, 2, 6])}, "step", "loss", smooth=2).axes[0]
    assert [line.get_xydata().tolist() for line in ax.lines] == [
        [[0, 4], [1, 2], [2, 6]],
        [[1, 3], [2, 4]],
    ]
    assert ax.lines[0].get_color() == ax.lines[1].get_color() and ax.get_xlabel() == "step"
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["loss"]
    line = {"a": ([0, 1], [0, 1])}
    assert [len(show.curves(line, "x", "y", smooth=n).axes[0].lines) for n in (0, 9)] == [1, 2]
    assert show.curves({}, "x", "y").axes[0].get_legend() is None
    level = show.curves(line, "x", "y", levels={"guessing": 1 / 32}).axes[0].lines[1]
    assert (list(level.get_ydata()), level.get_label()) == ([1 / 32] * 2, "guessing: 0.0312")
    assert level.is_dashed()


def test_the_colour_of_a_class_is_the_same_everywhere():
    classes = [
        "shake_x",
        "shake_y",
        "circle_cw",
        "circle_ccw",
        "spin",
        "pulse",
        "bounce",
        "diagonal",
    ]
    colours = show.class_colours(classes)
    assert show.class_colours(classes[::-1] + classes) == colours  # whatever the order
    by_id = [show.class_colours([i])[i] for i in range(8)]
    assert [colours[c] for c in sorted(classes)] == by_id
    right_wrong = {matplotlib.colors.to_hex(np.array(c) / 255) for c in (show.GREEN, show.RED)}
    assert len({colours[c] for c in classes} | right_wrong | {show.UNLABELLED}) == 11
    assert len({*show.class_colours(range(24)).values()}) == 25
    assert colours[""] == colours[-1] == show.UNLABELLED


def test_walls_of_neighbours():
    y, x = np.mgrid[-20:20, -20:20]

    def disc(r):
        inside = np.where(np.hypot(x, y) < r, 230, 60).astype(np.uint8)
        return inside[None, ..., None].repeat(5, 0).repeat(3, 3)

    right = [[True, False, False, True]] * 2
    still = show.neighbours(
        [disc(10)] * 2, [[disc(r) for r in (11, 12, 8, 14)]] * 2, right, ["a", "b"]
    )
    tiles = image_of(still)
    borders = [tuple(tiles[0, 88 + 22 + 88 * k].tolist()) for k in range(4)]
    assert borders == [show.GREEN, show.RED, show.RED, show.GREEN]
    wide = np.zeros((3, 20, 40, 3), np.uint8)
    wide[1] = 200  # the middle frame, whole
    assert [figures._tile(wide)[i, 44, 0] for i in (10, 44, 80)] == [255, 200, 255]
    colours = show.class_colours(["a", "b"])
    loop = show.wall([disc(10)], [[disc(11), disc(8)]], ["a"], [["a", "b"]], colours)
    seen = {tuple(c) for c in frames_in(loop)[0].reshape(-1, 3).tolist()}
    assert {show.GREEN, show.RED, *(pixels.rgb(colours[c]) for c in "ab")} <= seen
    two = dict(marks=[["", "same scene"]], heads=["query", "before", "after"], gap_after=1)
    marked = show.wall([disc(10)], [[disc(11), disc(8)]], ["a"], [["a", "b"]], colours, **two)
    head, mark = (pixels.text_frame(w).shape[1] for w in ("query", "same scene"))
    # above, below, and the gap between rows
    assert marked.height - loop.height == head + mark + 6
    ink = (frames_in(marked)[0][0] < 128).all(2)
    halves = np.array_split(ink[-mark:], 2, 1)
    assert ink[:head].any() and not halves[0].any() and halves[1].any()


def test_pictures_are_written_whole_or_not_at_all(tmp_path):
    file = show.save_picture(show.strip(RIGHT), tmp_path / "figures" / "square.png")
    np.testing.assert_array_equal(np.asarray(Image.open(file)), np.asarray(show.strip(RIGHT)))
    assert Image.open(show.save_picture(show.Picture(figsize=(2, 1)), file)).size == (220, 120)
    with pytest.raises(AttributeError, match="save"):
        show.save_picture("no picture", file)
    assert Image.open(file).size == (220, 120)
    show.save_picture(loop := show.Loop(circling(3)), tmp_path / "figures" / "circle.png")
    with Image.open(tmp_path / "figures" / "circle.png") as read:
        assert (read.n_frames, *read.size) == (3, loop.width, loop.height)
    assert sorted(p.name for p in file.parent.iterdir()) == ["circle.png", "square.png"]


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize(
    "words, make",
    [
        ("not (2, 3, 4, 8, 8)", lambda: show.frames_of(torch.zeros(2, 3, 4, 8, 8))),
        ("not (3, 4, 8, 8)", lambda: show.frames_of(torch.zeros(3, 4, 8, 8, dtype=torch.uint8))),
        ("flow to show is (..., 2, H, W) float", lambda: show.flow_colour(torch.zeros(4, 8, 8))),
        (
            "flow to show is (..., 2, H, W) float",
            lambda: show.flow_colour(np.zeros((2, 8, 8), np.uint8)),
        ),
        ("most is nan", lambda: show.flow_colour(torch.zeros(2, 8, 8), math.nan)),
        ("most is 0", lambda: show.flow_colour(torch.zeros(2, 8, 8), 0)),
        ("strips with 1 titles, but 2 to show", lambda: show.strips([RIGHT, LEFT], ["forwards"])),
        ("gallery with 2 titles, but 1 to show", lambda: show.gallery([RIGHT[0, 0]], ["a", "b"])),
        ("clips with 0 titles", lambda: show.clips([], [])),
        ("clips of [8, 4] frames", lambda: show.clips([RIGHT, RIGHT[:, :4]], ["a", "b"])),
        ("2 clips with 1 colours", lambda: show.clips([RIGHT, LEFT], ["a", "b"], colours=["red"])),
        ("differ in number", lambda: show.neighbours([RIGHT] * 2, [[RIGHT]] * 2, [[True]])),
        (
            "as many neighbours",
            lambda: show.neighbours([RIGHT] * 2, [[RIGHT], [RIGHT] * 2], [[True], [True] * 2]),
        ),
        ("at least one query", lambda: show.neighbours([], [], [])),
        ("one label per query", lambda: show.wall([RIGHT], [[RIGHT]], [], [["a"]])),
        (
            "sizes [(4, 4), (5, 4)]",
            lambda: show.Loop([np.zeros((n, 4, 3), np.uint8) for n in (4, 5)]),
        ),
        ("sizes []", lambda: show.Loop([])),
        ("fps is 0", lambda: show.Loop(circling(2), fps=0)),
        ("not (96, 96) uint8", lambda: show.Loop([circling(1)[0, ..., 0]])),
        ("give fewer frames", lambda: show.Loop(noise(8, 300, 300, 3))),
        ("give a name and at least one value", lambda: show.Slider(shade, level=[])),
        ("start has level=3; the values are", lambda: show.Slider(shade, {"level": 3}, level=[1])),
        (
            "2 pictures have 137 KB and 90 are allowed",
            lambda: show.Slider(lambda i: noise(300, 300, 3), max_bytes=90_000, i=[0, 1]),
        ),
        ("a clip is (T, H, W, 3) uint8", lambda: show.frames(show.Diagram(), 0, 0, 9, 9, RIGHT)),
    ],
)
def test_what_cannot_be_shown(words, make):
    with pytest.raises(ValueError) as e:
        make()
    assert words in str(e.value)


# --- drawings


def sheet(spoilt=False):
    d = show.Diagram(560, 84)
    clip = show.box(d, 8, 27, 70, 30, "clip")
    encoder = show.box(d, 130, 12, 100, 60, "encoder", learns=True, taper=0.15)
    copy = show.box(d, 420, 12, 130, 60, "momentum\nencoder", learns=False, taper=0.15)
    show.arrow(d, clip, encoder)
    show.arrow(d, encoder, copy, dashed=True)
    show.write_text(d, 325, 30, "momentum update")
    if spoilt:
        for x in 325, -5:
            show.write_text(d, x, 36, "more")
        show.box(d, 240, 60, 20, 20, "small")
        show.box(d, 540, 60, 20, 10)
    return d


def test_boxes_and_arrows():
    with Image.open(io.BytesIO(sheet()._repr_png_())) as image:
        pixels = np.asarray(image.convert("RGB"))
    assert pixels.shape == (84, 560, 3)  # a pixel is a pixel
    fills = ["#%02x%02x%02x" % tuple(pixels[30, x]) for x in (20, 140, 430)]
    assert fills == ["#ffffff", show.LEARNS, show.FIXED]
    dark = (pixels[42] < 200).all(-1)  # along the arrows; a dashed one is interrupted
    assert dark[80:125].all() and 0.3 < dark[232:410].mean() < 0.8


def test_words_that_do_not_fit_are_found():
    assert show.crowded(sheet()) == []
    assert show.crowded(sheet(spoilt=True)) == [
        "'more' leaves the picture",
        "'more' lies on 'momentum update'",
        "'small' does not fit into its box",
        "a box leaves the picture at (540, 60)",
    ]


def test_arrows_join_the_edges_that_face_each_other():
    a = show.Spot(10, 20, 30, 40)
    assert (a.left, a.right, a.top, a.bottom) == ((10, 40), (40, 40), (25, 20), (25, 60))
    assert show.ends(a, show.Spot(60, 30, 20, 20)) == ((40, 40), (60, 40))
    assert show.ends(show.Spot(60, 30, 20, 20), a) == ((60, 40), (40, 40))
    assert show.ends(a, show.Spot(0, 100, 50, 10)) == ((25, 60), (25, 100))  # below
    assert show.ends(a, (25, 5)) == ((25, 20), (25, 5)) and show.ends((25, 5), a) == (
        (25, 5),
        (25, 20),
    )


def test_frames_matrices_and_queues():
    d, clip = show.Diagram(560, 120), circling()
    places = (
        show.frames(d, 10, 10, 64, 48, clip, "a clip"),
        show.draw_matrix(d, 130, 15, np.eye(4), np.eye(4)),
        show.queue(d, 260, 40, np.linspace(1, 0, 9), np.arange(9) == 2),
    )
    assert [*map(tuple, places)] == [(10, 10, 74, 58), (130, 15, 72, 72), (260, 40, 162, 18)]
    images = [im.get_array() for im in d.ax.images]
    # behind, between, in front
    for x, t in zip(images, (11, 6, 0)):
        np.testing.assert_array_equal(x, clip[t])
    np.testing.assert_array_equal(images[3], np.eye(4))
    green = [p.get_xy() for p in d.ax.patches if p.get_linewidth() == 2.4]
    assert green == [(130 + 18 * i, 15 + 18 * i) for i in range(4)] + [(260 + 36, 40)]
    assert show.crowded(d) == []


def test_the_legend_and_the_queue_of_moco():
    d = show.Diagram(700, 40)
    show.legend(d, 20, 20, show.SIGNS)
    assert [t.get_text() for t in d.ax.texts] == [*show.SIGNS] and show.crowded(d) == []
    assert len(d.ax.lines) == 2  # the cross of what is left out
    d = show.moco(circling(), circling())
    assert show.crowded(d) == show.crowded(show.moco()) == []
    fills = [
        matplotlib.colors.to_hex(p.get_facecolor())
        for p in d.ax.patches
        if isinstance(p, matplotlib.patches.Polygon)
    ]
    assert fills.count(show.LEARNS) == 1  # one encoder learns
    arrows = [
        p.get_linestyle() for p in d.ax.patches if isinstance(p, matplotlib.patches.FancyArrowPatch)
    ]
    # dashed: the momentum update, three of keys, the legend's
    assert (len(arrows), arrows.count("-")) == (12, 7)
