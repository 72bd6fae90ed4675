"""Each world of the toy has the premise that it is for: the number is measured, from pixels or the
plan.
"""

import importlib
import json
import dataclasses
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from vssl_nb.data import augmentation as augment, toy
from vssl_nb.data.manifest import read
from vssl_nb.data.views import frame_residual
from vssl_nb.nets.backbones import create

rng_of = np.random.default_rng
ROOT = Path(__file__).parent.parent


def plan(seed=1, size="demo", **options):
    return toy.plan_toy(toy.configure(size, seed, **options))


def test_two_motions_turn_the_sphere_in_the_order_of_their_names():
    take, t = toy.draw_take(rng_of(3)), np.arange(8.0)
    dot = toy.rotate(take.dot, take.axis, t * take.slow[0])
    for part in ("shake_x", "circle_cw"):
        dot = toy.rotate(dot, np.array(toy.AXES[part]), t / take.period)
    x = take.centre[0] + take.reach * dot[:, 0]  # the slow hop moves it along y alone
    one = toy.pose("shake_x+circle_cw", take, t)[0][:, 0]
    other = toy.pose("circle_cw+shake_x", take, t)[0][:, 0]
    np.testing.assert_allclose(one, x, atol=1e-12)
    assert abs(other - one).max() > 0.01


def first_takes(jobs, sources):
    return [j for j in jobs if not j[1]["take"] and j[1]["seed"][2] < sources]


def draw(jobs, at):
    return [toy.video(**arguments, at=at) for _, arguments in jobs]


def nearest(
    query,  # (Q, D)
    gallery,  # (N, D)
    same=False,  # not the row itself
):  # (Q,) row
    x, y = (np.array(z) - np.mean(gallery, 0) for z in (query, gallery))
    sim = (x / np.linalg.norm(x, axis=1)[:, None]) @ (y / np.linalg.norm(y, axis=1)[:, None]).T
    if same:
        np.fill_diagonal(sim, -2)
    return sim.argmax(1)


def share_right(x, jobs):
    "Of each job: is the nearest other one of its class?"
    label = np.array([row.label for row, _ in jobs])
    return label[nearest(x, x, same=True)] == label


def within(share, expected, n):
    return abs(share - expected) <= 3 * math.sqrt(expected * (1 - expected) / n)


def colours(
    video,  # (T, S, S, 3) uint8
):  # (512,) square root of the share of pixels
    cell = (video // 32).reshape(-1, 3).astype(int) @ (64, 8, 1)
    return np.sqrt(np.bincount(cell, minlength=512) / len(cell))


def texture(video):
    "Log power spectrum of what stands still, in grey."
    still = np.median(video.mean(-1), 0)
    window = np.hanning(len(still))
    spectrum = np.fft.rfft2((still - still.mean()) * window[:, None] * window)
    return np.log(np.abs(spectrum) ** 2 + 1).ravel()


def augmented(videos, seed=0):
    "As the toy recipes do it: (N, 3, T, S, S) float."
    rng, size = rng_of(seed), videos[0].shape[1]
    drawn = [
        augment.draw(
            rng, 1, len(v), size, size, size=size, area=(0.7, 1.0), flip=0.0, permute=0.5, blur=0.0
        )
        for v in videos
    ]
    params = {k: torch.stack([d[k] for d in drawn]) for k in drawn[0]}
    cut = []
    for v, box in zip(videos, params.pop("box")[:, 0].int().tolist()):
        y, x, h, w = box
        part = torch.from_numpy(v)[:, y : y + h, x : x + w].movedim(-1, 1).float()
        small = F.interpolate(part, (size, size), mode="bilinear", antialias=True)
        cut.append(small.round().byte().movedim(1, -1))
    return augment.apply(torch.stack(cut)[:, None], params)[:, 0]


def orientations(video):
    "Share of the gradients of what stands still, in grey, by their direction: (8,)."
    down, right = np.gradient(np.median(video.mean(-1), 0))
    direction, length = np.arctan2(down, right) % np.pi, np.hypot(down, right)
    edges, _ = np.histogram(direction, 8, (0, np.pi), weights=length)
    return edges / edges.sum()


def sprite_texture(
    x,  # (3, T, S, S)
):  # (12,) levels and edges of what moves, in its own range of grey
    grey = x.mean(0).numpy()
    moving = np.abs(grey - np.median(grey, 0)) > 0.08
    if moving.sum() < 20:
        return np.zeros(12)
    low, high = np.quantile(grey[moving], (0.02, 0.98))
    level = (grey[moving] - low) / (high - low + 1e-6)
    edges = np.hypot(*np.gradient(grey, axis=(1, 2)))[moving] / (high - low + 1e-6)
    bent = (4 * grey - sum(np.roll(grey, by, axis) for by in (1, -1) for axis in (1, 2)))[moving]
    bent = np.abs(bent) / (high - low + 1e-6)
    return np.r_[
        np.histogram(level, 8, (0, 1))[0] / level.size,
        edges.mean(),
        edges.std(),
        bent.mean(),
        bent.std(),
    ]


def test_the_plain_toy_is_unchanged():
    "Its settings, names and pixels: the options have no trace where they are not given."
    settings = toy.configure("tiny", 3)
    assert not settings.keys() & toy.WORLD.keys() and toy.DRAWING == 1
    # of a toy.json before there were worlds
    old = {k: v for k, v in settings.items() if k not in toy.WORLD}
    assert toy.plan_toy(old) == toy.plan_toy(settings) == plan(3, "tiny", **toy.WORLD)
    row, arguments = toy.plan_toy(settings)[37]
    assert row.video == "spin/s3g003_t02.mp4"
    few = toy.video(**arguments, at=[0, 9])[:, ::16, ::16].reshape(-1, 3).astype(int)
    assert np.abs(few - PIXELS).max() <= 1, few.tolist()


# of the commit before the worlds
PIXELS = 2 * [[121, 131, 90], [126, 136, 94], [142, 152, 111], [146, 157, 115]]


@pytest.mark.parametrize("looks", [0.0, 0.5, 1.0])
def test_looks_tell_the_share_that_they_should(looks):
    """By the plan: the nearest sprite of another source is that of the own class in looks + (1 -
    looks)/8.
    """
    jobs = [j for j in plan(2, looks=looks or 1e-9) if not j[1]["take"]]
    for part in "train", "test":
        some = [(row.label, a["look"]) for row, a in jobs if row.split1 == part]
        told = np.mean([toy.LOOKS[toy.MOTIONS.index(label)] == look for label, look in some])
        assert within(told, looks + (1 - looks) / 8, len(some)) or told == looks, (part, told)


def test_looks_survive_the_augmentation():
    """Levels and edges of what moves, in grey, after crop and colour jitter; without looks they are
    worthless.
    """
    told = []
    for looks in (1e-9, 1.0):
        jobs = first_takes(plan(looks=looks), 20)
        x = np.array([sprite_texture(v) for v in augmented(draw(jobs, range(12)))])
        told.append(share_right((x - x.mean(0)) / x.std(0), jobs).mean())
    assert within(told[0], 1 / 8, 160) and told[1] > 0.3, told


def test_a_grey_source_is_known_by_its_texture():
    "The other take of a source among 160: by its colours always in colour, seldom in grey."
    by = {}
    for grey in 0.0, 1.0:
        jobs = [j for j in plan(grey=grey) if j[1]["seed"][2] < 20]
        takes = [draw([j for j in jobs if j[1]["take"] == k], range(0, 64, 7)) for k in (0, 1)]
        for f in colours, texture:
            rows = nearest(*[[f(v) for v in videos] for videos in takes])
            by[f.__name__, grey] = np.mean(rows == np.arange(160))
        assert grey == 0 or max(np.ptp(v, axis=-1).max() for v in takes[0]) == 0
    assert by["colours", 0.0] > 0.95 and by["colours", 1.0] < 0.2 and by["texture", 1.0] > 0.6, by


def test_what_disturbs_a_grey_clip_leaves_no_colour():
    """MoQuad's three disturbances: the undisturbed clip among 128, by its colours in grey and in
    colour.
    """
    by = {}
    for grey in 0.0, 1.0:
        jobs = first_takes(plan(grey=grey), 16)
        x = torch.from_numpy(np.stack(draw(jobs, range(8)))).movedim(-1, 1)[:, None] / 255
        for kind in "be", "rad_intra", "rad_inter":
            drawn = [
                augment.draw_appearance(rng_of(i), 2, kind, (1,), strength=(0.3, 0.7))
                for i in range(128)
            ]
            params = {k: torch.stack([d[k] for d in drawn]) for k in drawn[0]}
            seen = augment.disturb_appearance(x.repeat(1, 2, 1, 1, 1, 1), params).mul(255).byte()
            still, other = ([colours(v) for v in seen[:, k].movedim(1, -1).numpy()] for k in (0, 1))
            by[kind, grey] = np.mean(nearest(other, still) == np.arange(128))
    in_grey = [by[kind, 1.0] for kind in ("be", "rad_intra", "rad_inter")]
    assert max(in_grey) <= 0.5 < by["rad_intra", 0.0], by


def untrained(jobs):
    "Share right by an untrained encoder on frame differences, leave one out."
    x = np.stack([v.reshape(2, 16, *v.shape[1:]) for v in draw(jobs, [*range(16), *range(40, 56)])])
    x = torch.from_numpy(x).flatten(0, 1).movedim(-1, 1).float() / 255
    net = create("tiny", seed=0).eval()
    with torch.inference_mode():
        y = torch.cat([net(frame_residual(some) / 0.1) for some in x.split(64)])
    return share_right(y.view(len(jobs), 2, -1).mean(1).numpy(), jobs).mean()


def test_directions_are_not_coarse_motion():
    """An untrained encoder on frame differences is at most at twice chance; on the plain toy it is
    far above.
    """
    assert untrained(first_takes(plan(classes="directions"), 50)) <= 2 / 4
    assert untrained(first_takes(plan(), 15)) > 2 / 8


def still(take):
    return dataclasses.replace(take, slow=0 * take.slow)


def move(kind, take, t):
    "The pose of a class, without what creeps."
    period, turn = take.period * kind.get("pace", 1.0), kind.get("turn", take.turn)
    take = dataclasses.replace(take, turn=turn, period=period)
    return np.column_stack(toy.pose(kind["motion"], still(take), t))


def test_backwards_a_direction_is_its_partner():
    table, t = toy.CLASS_TABLES["directions"], np.arange(30)
    other = dict(cw="ccw", ccw="cw")
    for label, kind in table.items():
        partner = "_".join(other.get(word, word) for word in label.split("_"))
        assert partner in table and partner != label
        take = toy.draw_take(rng_of(4))
        np.testing.assert_allclose(move(kind, take, -t), move(table[partner], take, t), atol=1e-9)
        assert np.abs(move(kind, take, -t) - move(kind, take, t)).max() > 0.1


def test_periods_differ_in_speed_alone():
    "A class at twice the speed is another class; in other words, frame for frame."
    table, t = toy.CLASS_TABLES["periods"], np.arange(20)
    for motion in "spin", "pulse":
        take = toy.draw_take(rng_of(5))
        slow, middle, fast = (
            move(table[f"{motion}_{pace}"], take, n * t)
            for pace, n in (("slow", 4), ("middle", 2), ("fast", 1))
        )
        np.testing.assert_allclose(slow, middle, atol=1e-9)
        np.testing.assert_allclose(fast, middle, atol=1e-9)
    jobs = plan(classes="periods")
    assert {a["pace"] for _, a in jobs} == {0.5, 1.0, 2.0}
    assert len({row.label for row, _ in jobs}) == 6


def test_scenes_are_told_by_backgrounds_and_motions_are_not():
    """By colours or orientations, leave one out: the scenes are told, also augmented; the motions
    are not.
    """
    jobs = first_takes(plan(classes="scenes"), 20)
    videos = draw(jobs, range(0, 64, 7))
    scene = np.array([row.label.startswith("scene") for row, _ in jobs])
    changed = augmented(videos).mul(255).byte().movedim(1, -1).numpy()
    for f, shown, least in (
        (colours, videos, 0.6),
        (orientations, videos, 0.8),
        (orientations, changed, 0.7),
    ):
        right = share_right([f(v) for v in shown], jobs)
        assert right[scene].mean() > least, (f.__name__, right[scene].mean())
        by_chance = 0.25 + 3 * math.sqrt(0.25 * 0.75 / 80)
        assert right[~scene].mean() < by_chance, (f.__name__, right[~scene].mean())
    assert len({a["motion"] for row, a in plan(classes="scenes") if row.label == "scene_2"}) == 8


def test_shapes_leave_few_negatives_of_the_own_class():
    jobs = plan(classes="shapes")
    count = Counter(row.label for row, _ in jobs)
    assert len(count) == 32 and len(jobs) == 960 and {*count.values()} == {30}
    assert (30 - 1) / (960 - 1) <= 0.032 and "pulse_disc" in count
    for row, a in jobs:
        assert row.label == f"{a['motion']}_{a['look']['shape']}"
    sources = {
        size: toy.configure(size, classes="shapes")["shape"]["sources"] for size in toy.SIZES
    }
    # the size divided by 4, and no less than 8 or its own
    assert sources == dict(tiny=4, demo=15, full=25)


@pytest.mark.parametrize("share, tested", [(0.3, 0.0), (0.2, 0.5), (1.0, 1.0)])
def test_spoiled_videos_are_counted(share, tested):
    jobs = plan(spoiled=share, spoiled_test=tested)
    for part, wanted in (("train", share), ("test", tested)):
        some = [a.get("spoiled") for row, a in jobs if row.split1 == part]
        kinds = Counter(filter(None, some))
        assert kinds.total() == round(wanted * len(some))
        assert not kinds or max(kinds.values()) - min(kinds.values()) <= kinds.total() % 3
    assert all(row.split1 == row.split2 == row.split3 for row, _ in jobs)
    cut = [(row, a) for row, a in jobs if a.get("spoiled") == "cut"]
    assert all(
        a["other"]["seed"][1] != a["seed"][1] and "spoiled" not in a["other"] for _, a in cut
    )
    names = {row.video for row, _ in jobs}
    assert not names & {row.video for row, _ in plan()}


def test_a_spoiled_video_is_what_it_is_called():
    jobs = {a["spoiled"]: a for _, a in plan(spoiled=1.0) if "spoiled" in a}
    clean = {kind: toy.video(**a | dict(spoiled="")) for kind, a in jobs.items()}
    video = {kind: toy.video(**a) for kind, a in jobs.items()}
    assert (video["still"] == clean["still"][:1]).all()
    assert (video["cut"][:32] == clean["cut"][:32]).all()
    assert (video["cut"][32:] == toy.video(**jobs["cut"]["other"])[32:]).all()
    noise = video["noise"].astype(float) - clean["noise"]
    assert noise.std() > 50 and abs(np.corrcoef(noise[0].ravel(), noise[1].ravel())[0, 1]) < 0.4
    for kind, a in jobs.items():
        # whatever is drawn with it
        assert (toy.video(**a, at=[40, 3]) == video[kind][[40, 3]]).all(), kind


def test_a_frame_of_another_side_has_the_same_picture():
    """Everything is drawn in sides of the frame: a frame of 128 px that is shrunk is the frame of
    32.
    """
    row, a = plan()[300]
    row2, b = plan(side=128)[300]
    assert (row2.width, row2.height) == (128, 128) and row.video != row2.video
    large = toy.video(**b, at=[0, 20]).astype(float).reshape(2, 32, 4, 32, 4, 3).mean((2, 4))
    assert np.abs(large - toy.video(**a, at=[0, 20])).mean() < 3
    assert plan(side=32) == plan()


def test_worlds_are_written(tmp_path):
    """The manifest, the settings, what is spoiled, and conflicts where scene and motion can be
    parted.
    """
    options = dict(
        classes="directions", looks=0.5, grey=0.5, spoiled=0.5, spoiled_test=0.25, side=16
    )
    m = read(toy.make(tmp_path / "a", seed=4, workers=1, progress=False, **options))
    assert {*m.labels} == {*toy.CLASS_TABLES["directions"]} and {r.width for r in m.rows} == {16}
    spoiled = toy.spoiled_videos(tmp_path / "a")
    parts = Counter(r.split1 for r in m.rows if r.video in spoiled)
    assert parts == dict(train=24, test=4)
    # again: nothing to do
    toy.make(tmp_path / "a", seed=4, workers=1, progress=False, **options)
    with pytest.raises(toy.ToyError, match="other settings .*grey"):
        toy.make(tmp_path / "a", seed=4, workers=1, progress=False, **options | dict(grey=1.0))
    queries = toy.plan_conflict(toy.configure(seed=4, **options))
    assert all(row.label != row.source.split("/")[0] and "spoiled" not in a for row, a in queries)
    with pytest.raises(toy.ToyError, match="has no toy.json"):
        toy.spoiled_videos(tmp_path)


@pytest.mark.parametrize(
    "options, words",
    [
        (dict(looks=0.5, classes="shapes"), "looks=0.5 with the classes"),
        (dict(looks=1.0, classes="scenes"), "looks=1 with"),
        (dict(bias=0.2, classes="scenes"), "bias=0.2 with"),
        (dict(classes="colours"), "classes=colours: classes is one of motions, directions"),
        (dict(side=33), "side=33: side is an even"),
        (dict(side=8), "side=8"),
        (dict(grey=2.0), "grey=2"),
        (dict(looks=-1), "looks=-1"),
        (dict(spoiled=math.nan), "spoiled=nan"),
        (dict(spoiled_test=9), "spoiled_test=9"),
    ],
)
def test_worlds_that_cannot_be_are_refused(options, words, tmp_path):
    with pytest.raises(toy.ToyError, match=words):
        toy.make(tmp_path / "x", **options)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("classes", ["shapes", "scenes"])
def test_where_class_and_scene_are_one_there_is_no_conflict(classes):
    with pytest.raises(toy.ToyError, match="cannot have the motion of another class"):
        toy.plan_conflict(toy.configure(classes=classes))


def test_effects_at_doses_are_drawn(tmp_path, monkeypatch, capsys):
    "A level takes three seeds, a panel two levels; differences are paired by seed."
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    dose = importlib.import_module("dose")

    def results(name, *seeds):
        rows = [[{"run": "SimCLR", "r1": a}, {"run": "MoQuad", "r1": b}] for a, b in seeds]
        (tmp_path / f"{name}.json").write_text(json.dumps({"seeds": [{"rows": r} for r in rows]}))

    def draw():  # as from the command line
        files = [
            "--experiment",
            str(tmp_path / "experiment.json"),
            "--out",
            str(tmp_path / "p.png"),
        ]
        paths = ["--results", str(tmp_path), *files]
        monkeypatch.setattr("sys.argv", ["dose.py", *paths])
        dose.main()

    results("world-bias-0", (0.1, 0.2), (0.2, 0.2), (0.3, 0.5))
    results("world-bias-90", (0.1, 0.7), (0.2, 0.8))
    with pytest.raises(SystemExit, match="2"):
        draw()
    sentence = capsys.readouterr().err
    assert str(tmp_path) in sentence and "--train" in sentence
    results("world-bias-90", (0.1, 0.7), (0.2, 0.8), (0.4, 1.0))
    draw()
    out = capsys.readouterr().out
    # t(2) = 4.303
    assert "0: +10.00 ± 24.84, 3 seeds" in out and "90: +60.00 ± 0.00, 3 seeds" in out
    assert "CPR: gain of three stages over CoCLR: no results yet" in out
    assert "IIC: gain by broken clips as negatives: no results yet" in out
    assert (tmp_path / "p.png").stat().st_size > 3000

    where = dict(world="plain", view="rgb", budget=1)
    pairs = {"cmc": 0.2, "iic": 0.5, "cmc, released": 0.3, "iic, released": 0.2}
    records = [
        where | dict(row=row, seed=seed, r1=r1 + 0.01 * seed)
        for seed in (3, 1, 2)
        for row, r1 in pairs.items()
    ]
    elsewhere = (dict(world="both"), dict(view="residual"), dict(budget=2))
    records += [where | dict(row="iic", seed=1, r1=0.9) | other for other in elsewhere]
    (tmp_path / "experiment.json").write_text(json.dumps({"records": records}))
    draw()
    out = capsys.readouterr().out
    assert "as released: -10.00 ± 0.00, 3 seeds" in out
    assert "length 1, gradient: +30.00 ± 0.00, 3 seeds" in out


def test_results_that_a_dose_lacks_are_made(tmp_path, monkeypatch, capsys):
    "By their scripts; what is there stays, and what failed is made by the same command."
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    dose = importlib.import_module("dose")
    (tmp_path / "made.py").write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "if 'fail' in sys.argv:\n"
        "    sys.exit(1)\n"
        "Path(sys.argv[-1]).write_text(' '.join(sys.argv[1:-1]))\n"
    )
    monkeypatch.setattr(dose, "HERE", tmp_path)
    monkeypatch.setattr(
        dose, "SCRIPTS", {"a": ["made.py", "new"], "b": ["made.py", "fail"], "c": ["made.py"]}
    )
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "c.json").write_text("kept")
    with pytest.raises(SystemExit, match="2"):
        dose.train(tmp_path / "r")
    assert str(tmp_path / "r") in capsys.readouterr().err
    texts = {p.name: p.read_text() for p in (tmp_path / "r").iterdir()}
    runs = f"--runs {tmp_path / 'r' / 'runs' / 'made'}"
    assert texts == {"a.json": f"new {runs} --out", "c.json": "kept"}
    dose.SCRIPTS["b"] = ["made.py"]
    dose.train(tmp_path / "r")
    assert (tmp_path / "r" / "b.json").read_text() == f"{runs} --out"


def test_untrained_encoders_are_measured_once_and_their_videos_removed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    untrained, out = importlib.import_module("untrained"), tmp_path / "untrained.json"
    words = f"untrained.py --seeds 1 --size tiny --worlds directions --runs {tmp_path / 'r'}"
    monkeypatch.setattr("sys.argv", [*words.split(), "--out", str(out)])
    untrained.main()
    first = json.loads(out.read_text())
    ((frames, differences),) = (seed["rows"] for seed in first["seeds"])
    assert (frames["view"], differences["view"]) == ("rgb", "residual")
    for row in (frames, differences):
        assert row["run"] == "directions" and row["chance"] == 1 / 4 and 0 <= row["r1"] <= 1
    assert not list((tmp_path / "r").rglob("*.mp4"))
    monkeypatch.setattr(untrained.toy, "make", None)  # nothing is made again
    untrained.main()
    assert json.loads(out.read_text())["seeds"] == first["seeds"]
