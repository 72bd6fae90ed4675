"""How far a long job is: a bar on a terminal and in a notebook, a line every half minute in a log
file.
"""

import sys
from collections.abc import Iterable
from typing import Any, TextIO

from tqdm import tqdm as text_bar
from tqdm.auto import tqdm as screen_bar

SECONDS = 30.0  # between two lines of a log file
LINE = (
    "{desc}: {percentage:.0f} % ({n_fmt} of {total_fmt}), {elapsed} so far, {remaining} left, "
    "{rate_fmt}{postfix}"
)


class LogLines:
    "A stream for tqdm: what a terminal would overwrite becomes lines, each once."

    def __init__(
        self,
        stream: TextIO,  # where the lines go
    ):
        self.stream = stream
        self.last = ""

    def write(
        self,
        text: str,  # of a bar
    ):
        line = text.strip("\r\n ")
        if line and line != self.last:
            self.stream.write(line + "\n")
        self.last = line or self.last

    def flush(self):
        self.stream.flush()


def progress_bar(
    # to count while they are taken; None: the caller updates the bar
    items: Iterable[Any] | None = None,
    **options: Any,  # those of tqdm: `total`, `initial`, `desc`, `unit`, `disable`
) -> Any:  # a bar of tqdm
    """A bar of tqdm that suits where stderr goes; the time that is left follows the last minute or
    so.
    """
    if sys.stderr.isatty() or "ipykernel" in sys.modules:
        options.setdefault("smoothing", 0.02)
        return screen_bar(items, **options)

    options.setdefault("smoothing", 0.3)
    return text_bar(
        items,
        **options,
        file=LogLines(sys.stderr),
        mininterval=SECONDS,
        maxinterval=SECONDS,
        bar_format=LINE,
    )
