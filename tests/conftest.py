import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent)) # `house` and `warm`, wherever pytest is started

# a shell lets its background jobs ignore Ctrl-C, and whatever they start inherits that: tests that send it
# would wait for ever
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def threads():
    "The next test of this process may compare weights to the bit: it gets as many threads as this one had."
    torch = sys.modules.get('torch')
    before = torch and torch.get_num_threads()
    yield
    if torch and torch.get_num_threads() != before: torch.set_num_threads(before)
