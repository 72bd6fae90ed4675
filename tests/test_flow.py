"TV-L1 against OpenCV-contrib's, on real pairs and on pictures warped by a known flow."

import numpy as np
import pytest
import torch

from vssl_nb.data import manifest
from vssl_nb.data.dataset import grey
from vssl_nb.data.tvl1 import tvl1, warp
from vssl_nb.data.views import quantise_flow
from vssl_nb.data.video import crop_resize, decode, probe

cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
if not hasattr(cv2, "optflow"):
    pytest.skip("OpenCV is installed without its contrib modules", allow_module_level=True)
torch.set_num_threads(1)


@pytest.fixture(scope="module")
def clips():
    root = manifest.test_videos()
    if not root:
        pytest.skip("no real clips here")
    files = sorted((root / "ucf101").glob("*/*.avi"))[::12] + [
        f
        for d in ("hmdb51", "kinetics400", "kinetics_style")
        for f in sorted((root / d).rglob("*"))
        if f.suffix in (".avi", ".mp4")
    ]
    return files


def pair(path, short, gap):
    "Two grey frames from the middle of a clip, at most so many apart; (1, 1, H, W) uint8 each."
    seen = probe(path)
    s, mid = short / min(seen.height, seen.width), seen.frames // 2
    return grey(
        crop_resize(
            decode(path, [mid, min(mid + gap, seen.frames - 1)]),
            size=(round(seen.height * s), round(seen.width * s)),
        )
    )[:, None, None]


def opencv(a, b, **settings):
    "(N, 2, H, W)"
    solver = cv2.optflow.DualTVL1OpticalFlow_create(**settings)
    return torch.stack(
        [
            torch.from_numpy(solver.calc(x.numpy(), y.numpy(), None)).movedim(-1, 0)
            for x, y in zip(a[:, 0], b[:, 0])
        ]
    )


def apart(x, y):
    return (x - y).square().sum(1).sqrt()


def within(x, y):
    return (
        ((quantise_flow(x).int() - quantise_flow(y).int()).abs().amax(1) <= 1).float().mean().item()
    )


def compare(pairs):
    "Mean distance and share within one stored level, per pair, and the longest motion."
    found = []
    for a, b in pairs:
        ours, theirs = tvl1(a, b), opencv(a, b)
        found.append(
            (
                apart(ours, theirs).mean().item(),
                within(ours, theirs),
                apart(theirs, 0 * theirs).max().item(),
            )
        )
    return np.array(found)


@pytest.mark.parametrize("short,every", [(128, 2), (240, 6)])
def test_real_pairs(clips, short, every):
    """Must hold: 0.05 px on average, 99 % of the pixels within one stored level; small motion and
    large.
    """
    found = compare([pair(c, short, 1 + i % 2) for i, c in enumerate(clips[::every])])
    print(short, len(found), found.mean(0), found.max(0), found.min(0))
    assert found[:, 0].mean() <= 0.05 and found[:, 1].mean() >= 0.99
    # both kinds are there
    assert np.median(found[:, 0]) < 0.015 and found[:, 2].max() > 8 > 2 > found[:, 2].min()


def test_large_motion_is_as_unsure_as_opencv_itself(clips):
    """Six frames apart: as far from OpenCV as OpenCV from itself, after one pixel changed by one
    grey level.
    """
    ours, self_ = [], []
    for c in clips[::5]:
        a, b = pair(c, 96, 6)
        theirs, nudged = opencv(a, b), b.clone()
        nudged[0, 0, 5, 5] ^= 1
        ours.append(apart(tvl1(a, b), theirs).mean().item())
        self_.append(apart(opencv(a, nudged), theirs).mean().item())
    print(np.mean(ours), np.mean(self_))
    assert np.mean(ours) <= 2 * np.mean(self_)


def known(seed, H, W, size):
    "A random picture, another made by reading it back along a smooth random flow, and that flow."
    g = torch.Generator().manual_seed(seed)
    up = lambda x: torch.nn.functional.interpolate(x, (H, W), mode="bicubic", align_corners=True)
    x = sum(k * up(torch.rand(1, 1, H // k, W // k, generator=g)) for k in (3, 6, 12))
    x = (x - x.min()) / (x.max() - x.min())
    flow = up(torch.randn(1, 2, 4, 5, generator=g)) * size
    # I0(x) = I1(x+u)
    return warp(x, flow).clamp(0, 1).mul(255).round().byte(), x.mul(255).round().byte(), flow


@pytest.mark.parametrize("H,W", [(128, 171), (96, 128), (240, 320)])
@pytest.mark.parametrize("size", [0.3, 1.0, 3.0])
def test_known_flow(H, W, size):
    "Must hold: at most 1.05 times OpenCV's error."
    a, b, flow = known(round(10 * size) + H, H, W, size)
    error = lambda u: apart(u, flow)[:, 8:-8, 8:-8].mean().item()
    assert (
        error(tvl1(a, b)) <= 1.05 * error(opencv(a, b))
        and error(tvl1(a, b)) < 0.3 * apart(flow, 0 * flow).mean().item()
    )


@pytest.mark.parametrize(
    "settings,theirs",
    [
        (dict(lam=0.05), dict(lambda_=0.05)),
        (dict(theta=0.1), dict(theta=0.1)),
        (dict(scales=3, factor=0.5), dict(nscales=3, scaleStep=0.5)),
        (dict(median=False), dict(medianFiltering=1)),
        (dict(warps=1), dict(warps=1)),
        (dict(outer=1), dict(outerIterations=1)),
        (dict(inner=4), dict(innnerIterations=4)),
        (dict(epsilon=0.02), dict(epsilon=0.02)),
        (dict(tau=0.15), dict(tau=0.15)),
    ],
)
def test_every_setting_means_what_opencv_means(settings, theirs):
    """With few iterations: with many, the last bits decide when they end (a grey level is worth
    0.003 pixels).
    """
    from vssl_nb.data.tvl1 import TVL1

    a, b, _ = known(6, 96, 128, 0.5)
    few = dict(warps=2, outerIterations=2, innnerIterations=7)
    got, default = opencv(a, b, **few | theirs), opencv(a, b, **few)
    middle = lambda x, y: apart(x, y)[:, 8:-8, 8:-8].median().item()
    ours, changed = (
        middle(TVL1(**dict(warps=2, outer=2, inner=7) | settings)(a, b), got),
        middle(got, default),
    )
    assert ours < 1e-4 and changed > 0.005, (ours, changed)  # and the setting does something
