import gc
import os
import resource
import signal
import sys
from pathlib import Path

import pytest

# `house` and `warm`, wherever pytest is started
sys.path.insert(0, str(Path(__file__).parent))

# before torch is imported: a process with a pool of threads cannot fork (`warm`), and its child
# would wait for them
os.environ.setdefault("OMP_NUM_THREADS", "1")

# a shell lets its background jobs ignore Ctrl-C, and whatever they start inherits that: tests that
# send it would wait for ever
signal.signal(signal.SIGINT, signal.default_int_handler)
# likewise, where the tests were started with nohup
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# files of tests that take a minute and more, the longest first, and then the pages, one by one: a
# processor that begins one of them last is waited for
SLOW = (
    "benchmarks",
    "budget",
    "sudden_death",
    "careless",
    "gpu_walk",
    "resnets",
    "readme_path",
    "own_path",
    "classification",
    "remedies",
    "released",
    "real_videos",
    "processes",
    "protocols",
    "flow",
    "outside",
    "demo",
    "reproduce",
    "search",
    "site",
    "conflict",
    "bridge",
    "pages",
)


def pytest_collection_modifyitems(items):
    first = {f"test_{name}": i for i, name in enumerate(SLOW)}
    items.sort(key=lambda item: first.get(item.path.stem, len(SLOW)))


def pytest_xdist_make_scheduler(config, log):
    "All tests of a file go to one process; pages have nothing in common."
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return nodeid if "test_pages.py" in nodeid else super()._split_scope(nodeid)

    return ByFile(config, log)


def pytest_collection_finish():
    "What is imported by now stays: to look through it for garbage takes half a second, each time."
    gc.collect()
    gc.freeze()


def pytest_sessionfinish():
    "What a process has used is known when it has ended."
    if "warm" in sys.modules:
        sys.modules["warm"].stop()


def pytest_terminal_summary(terminalreporter, config):
    "Time of processors, which is the same beside other work; workers report to the first process."
    if hasattr(config, "workerinput"):
        return
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    minutes = sum(u.ru_utime + u.ru_stime for u in used) / 60
    terminalreporter.write_line(f"processor time of all processes: {minutes:.1f} minutes")


@pytest.fixture(autouse=True)
def threads():
    """The next test of this process may compare weights to the bit: it gets as many threads as this
    one had.
    """
    torch = sys.modules.get("torch")
    before = torch and torch.get_num_threads()
    yield
    if torch and torch.get_num_threads() != before:
        torch.set_num_threads(before)
