"""Run a page as `nbdev_test` does, its figures with a quarter of a reader's pixels:
`tests/test_pages.py`.
"""

import sys
from functools import partial
from pathlib import Path

from nbdev import test
from nbdev.config import get_config

test.CaptureShell = partial(test.CaptureShell, mpl_format="png")

if __name__ == "__main__":
    home = get_config()
    passed, _ = test.test_nb(Path(sys.argv[1]), home.tst_flags.split(), basepath=home.config_path)
    sys.exit(not passed)
