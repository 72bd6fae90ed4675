"The compiled loops of the augmentation: the same digits, compiled or kept, with any instructions."

import os
import subprocess
import sys

SCRIPT = """
import hashlib, numpy as np, torch
from vssl_nb.data.augmentation import apply, draw
rng = np.random.default_rng(0)
clips = torch.from_numpy(rng.integers(0, 256, (2, 2, 4, 37, 53, 3), dtype=np.uint8))
options = dict(size=37, jitter=1., grey=.5, permute=.5, blur=1.)
drawn = [draw(rng, 2, 4, 240, 320, **options) for _ in range(2)]
changed = apply(clips, {k: torch.stack([d[k] for d in drawn]) for k in drawn[0]})
print(hashlib.sha256(changed.numpy().tobytes()).hexdigest())
"""


# no folder in which numba may keep anything
NOWHERE = "from numba.core.caching import CompileResultCacheImpl as C; C._locator_classes = []\n"


def digest(folder, before="", **env):
    done = subprocess.run(
        [sys.executable, "-c", before + SCRIPT],
        text=True,
        capture_output=True,
        env=os.environ | {"NUMBA_CACHE_DIR": str(folder)} | env,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_same_digits_on_every_processor(tmp_path):
    compiled = digest(tmp_path / "here")
    assert any((tmp_path / "here").rglob("*.nbi"))  # kept on disk
    assert digest(tmp_path / "here") == compiled
    assert digest(tmp_path / "old", NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="") == compiled
    assert digest(tmp_path / "nowhere", NOWHERE) == compiled and not (tmp_path / "nowhere").exists()


def test_a_batch_in_which_nothing_changes_needs_no_numba():
    script = """
import sys, torch
from vssl_nb.data.augmentation import apply, centre
clips = torch.zeros(1, 2, 3, 8, 8, 3, dtype=torch.uint8)
apply(clips, {k: v[None] for k, v in centre(2, 3, 8, 8, size=8).items()})
assert 'numba' not in sys.modules
apply(clips, {'hue': torch.full((1, 2), .1)})
assert 'numba' in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
