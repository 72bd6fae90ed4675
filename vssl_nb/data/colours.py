"""The changes of a clip on a CPU, in machine code: all of them are made to a frame while it is in
the cache.
"""

# Loops run over whole slices and not over sums of indices, which numba checks one by one: so they
# vectorise.

from typing import Any

import numpy as np
from numba import njit

ZERO = np.float32(0)
ONE = np.float32(1)
WHITE = np.float32(255)
TINY = np.float32(1e-12)

# no NaN comes in. Nothing may be reordered or fused: the same digits on every processor, compiled
# or kept
_OPTIONS: Any = dict(nogil=True, error_model="numpy", fastmath={"nnan", "ninf", "nsz"})
_compiled = njit(**_OPTIONS)


def _kept(f):
    "Machine code of a function, on disk where some folder can be written."
    try:
        return njit(cache=True, **_OPTIONS)(f)
    except RuntimeError:
        return njit(**_OPTIONS)(f)


@_compiled
def _copy(x, out):
    for i in range(len(out)):
        out[i] = x[i]


@_compiled
def _clamp(v):
    return min(max(v, ZERO), ONE)


@_compiled
def _brightness(
    x,  # (3, N), changed in place, as below
    f,
    grey=ZERO,
):
    "clip(f x + (1-f) grey)."
    v = x.reshape(-1)
    rest = (ONE - f) * grey
    for i in range(len(v)):
        v[i] = _clamp(f * v[i] + rest)


@_compiled
def _contrast(
    x,
    f,
    w,  # (3,) luminance of red, green and blue
):
    grey = ZERO
    sums = np.empty(256, np.float32)  # side by side, since sums may not be reordered
    for c in range(3):
        plane = x[c]
        total = ZERO
        sums[:] = ZERO
        for i in range(0, len(plane), 256):
            part = plane[i : i + 256]
            for j in range(len(part)):
                sums[j] += part[j]
        for j in range(256):
            total += sums[j]
        grey += w[c] * total / np.float32(len(plane))
    _brightness(x, f, grey)


@_compiled
def _saturation(
    x,
    f,
    w,  # (3,): f = 0 leaves this mixture of the channels
):
    r, g, b = x[0], x[1], x[2]
    red, green, blue = w[0], w[1], w[2]
    for i in range(len(r)):
        rest = (ONE - f) * (red * r[i] + green * g[i] + blue * b[i])
        r[i] = _clamp(f * r[i] + rest)
        g[i] = _clamp(f * g[i] + rest)
        b[i] = _clamp(f * b[i] + rest)


@_compiled
def _hue(x, turns):
    r, g, b = x[0], x[1], x[2]
    for i in range(len(r)):
        low = min(min(r[i], g[i]), b[i])
        high = max(max(r[i], g[i]), b[i])
        span = high - low
        safe = max(span, TINY)  # where the span is 0 every hue gives back the same grey
        if high == r[i]:
            h = (g[i] - b[i]) / safe + np.float32(6)
        elif high == g[i]:
            h = (b[i] - r[i]) / safe + np.float32(2)
        else:
            h = (r[i] - g[i]) / safe + np.float32(4)
        h = h / np.float32(6) + turns
        h = np.float32(6) * (h - np.floor(h))  # wrap round the circle
        r[i] = low + span * _clamp(abs(h - np.float32(3)) - ONE)
        g[i] = low + span * _clamp(np.float32(2) - abs(h - np.float32(2)))
        b[i] = low + span * _clamp(np.float32(2) - abs(h - np.float32(4)))


@_compiled
def _mirrored(
    n,
    D,
):  # (n+2D,)
    "Which of n each place from -D to n+D-1 shows, with a mirror at both ends."
    at = np.arange(-D, n + D)
    period = max(2 * n - 2, 1)
    for i in range(len(at)):
        at[i] %= period
        if at[i] >= n:
            at[i] = period - at[i]
    return at


@_compiled
def _weigh(
    x,
    k,
    at,
    step,
    out,
):
    "out[i] = Σ_d k[|d|] x[at+i+d·step], two distances at a time."
    n = len(out)
    middle, w = x[at:], k[0]
    for i in range(n):
        out[i] = w * middle[i]
    for d in range(1, len(k), 2):
        near_left, near_right, v = x[at - d * step :], x[at + d * step :], k[d]
        far_left, far_right, w = near_left, near_right, ZERO
        if d + 1 < len(k):
            far_left, far_right = x[at - (d + 1) * step :], x[at + (d + 1) * step :]
            w = k[d + 1]
        for i in range(n):
            out[i] += v * (near_left[i] + near_right[i]) + w * (far_left[i] + far_right[i])


@_compiled
def _blur(
    x,  # (H, W)
    k,  # (D+1,)
    down,  # of `_mirrored`
    across,  # of `_mirrored`
    room,  # (2, space)
    out,  # (H, W)
):
    H, W = x.shape
    D = len(k) - 1
    S = W + 2 * D  # a row with its margins
    padded, half = room[0], room[1]
    for i in range(H + 2 * D):
        row = x[down[i]]
        to = padded[i * S : (i + 1) * S]
        _copy(row, to[D : D + W])
        for j in range(D):
            to[j] = row[across[j]]
            to[D + W + j] = row[across[D + W + j]]
    _weigh(padded, k, D * S, S, half[: H * S])
    _weigh(half, k, D, 1, padded[D : H * S - D])
    for i in range(H):
        _copy(padded[i * S + D :], out[i])


@_kept
def change(
    clip,  # (T, H, W, 3) uint8
    order,  # (4,) which of the four factors comes first, second, third, last
    factors,  # (4,) float32: of brightness, contrast and saturation; turns of hue
    grey,  # (T,) -1: as it is; or a row of `mixtures`
    channels,  # (3,) which channels become red, green and blue
    k,  # (D+1,) float32 weights of the blur in the middle and 1 to D px away
    mixtures,  # (4, 3) float32 weights of red, green and blue; the last row is luminance
    out,  # (3, T, H, W) float32 in [0,1]
):
    "Everything but the flip, as `augmentation.apply` describes it."
    T, H, W, _ = clip.shape
    x = np.empty((3, H * W), np.float32)
    room = np.empty((2, (H + 2 * len(k)) * (W + 2 * len(k))), np.float32)
    r, g, b = x[0], x[1], x[2]
    down, across = _mirrored(H, len(k) - 1), _mirrored(W, len(k) - 1)
    for t in range(T):
        v = clip[t].reshape(-1)
        for i in range(H * W):
            r[i] = np.float32(v[3 * i]) / WHITE
            g[i] = np.float32(v[3 * i + 1]) / WHITE
            b[i] = np.float32(v[3 * i + 2]) / WHITE
        for j in order:
            if j == 0 and factors[0] != ONE:
                _brightness(x, factors[0])
            if j == 1 and factors[1] != ONE:
                _contrast(x, factors[1], mixtures[3])
            if j == 2 and factors[2] != ONE:
                _saturation(x, factors[2], mixtures[3])
            if j == 3 and factors[3] != ZERO:
                _hue(x, factors[3])
        if grey[t] >= 0:
            _saturation(x, ZERO, mixtures[grey[t]])
        for c in range(3):
            plane = x[channels[c]]
            if len(k) > 1:
                _blur(plane.reshape(H, W), k, down, across, room, out[c, t])
            else:
                _copy(plane, out[c, t].reshape(H * W))
