"Every page as `nbdev_test` runs it, in a process of its own that begins at once; see `page.py`."

from pathlib import Path

import pytest
from house import NBS, notebooks

import warm

# the first to begin
LONG = ("cotraining", "pretraining", "finetuning", "19_measuring", "04_infonce")
PAGES = sorted(notebooks(), key=lambda p: p.stem not in LONG)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(NBS).with_suffix("").as_posix())
def test_page(page):
    done = warm.run([page], NBS, timeout=1200, script=Path(__file__).with_name("page.py"))
    assert done.returncode == 0, done.stdout + done.stderr
