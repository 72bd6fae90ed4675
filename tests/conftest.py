import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent)) # `house`, wherever pytest is started

# a shell lets its background jobs ignore Ctrl-C, and whatever they start inherits that: tests that send it
# would wait for ever
signal.signal(signal.SIGINT, signal.default_int_handler)
