"""How far a long job is: a bar on a terminal and in a notebook, in a log file a line after five
seconds and then every half minute.
"""

import sys
from collections.abc import Iterable
from typing import Any, TextIO

from tqdm import tqdm as text_bar
from tqdm.auto import tqdm as screen_bar

SECONDS = 30.0  # between two lines of a log file
FIRST_SECONDS = 5.0  # before the first one that tells how long it will take


def speed_in_words(
    rate: float,  # how many a second, above 0
    unit: str,  # of one: 'video'
) -> str:  # '31 videos/s', '2.5 s a video'
    "How fast a job is."
    if rate < 1:
        return f"{1 / rate:.{0 if rate <= 0.1 else 1}f} s a {unit}"
    return f"{rate:,.{0 if rate >= 10 else 1}f} {unit}s/s"


class WordedBar:
    "What a bar of tqdm says, in words."

    first: str  # what it says before the first one is done
    line: str  # what it says then

    def __init__(
        self,
        *args: Any,  # of tqdm
        waits: str = "",  # what the first one waits for
        **options: Any,  # of tqdm
    ):
        self.waits = f", {waits}" if waits else ""
        super().__init__(*args, **{"unit": "item"} | options)

    @property
    def format_dict(self) -> dict[str, Any]:  # what tqdm puts into `bar_format`
        said = super().format_dict  # type: ignore[misc]
        if "initial" not in said:
            return said  # it shows nothing
        done = said["n"] - said["initial"]
        rate = said["rate"] or done / max(said["elapsed"], 1e-9)
        left = (said["total"] or 0) - said["n"]
        return said | {
            "bar_format": self.line if done else self.first,
            "units": said["unit"] if said["total"] == 1 else f"{said['unit']}s",
            "waits": self.waits,
            "speed": speed_in_words(rate, said["unit"]) if done else "",
            "left": f", {text_bar.format_interval(left / rate)} left" if left > 0 < rate else "",
        }


class ScreenBar(WordedBar, screen_bar):
    "A bar on a terminal or in a notebook."

    first = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} {units}{waits}"
    line = (
        "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} {units} [{elapsed}{left}, {speed}"
        "{postfix}]"
    )


class LogBar(WordedBar, text_bar):
    "Lines of a log file, each once."

    first = "{desc}: {percentage:.0f} % ({n_fmt} of {total_fmt} {units}){waits}"
    line = (
        "{desc}: {percentage:.0f} % ({n_fmt} of {total_fmt} {units}), {elapsed} so far{left}, "
        "{speed}{postfix}"
    )
    shown: int | None = None  # how many were done in the last line

    def __init__(
        self,
        *args: Any,  # of tqdm
        **options: Any,  # of tqdm, and `waits`
    ):
        # each one looks at the clock; else a thread would write lines between those of the interval
        options |= {"mininterval": FIRST_SECONDS, "maxinterval": FIRST_SECONDS, "miniters": 1}
        super().__init__(*args, **options, file=LogLines(sys.stderr))

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        "Write a line, unless nothing was done since the last one."
        if self.n != self.shown:
            super().display(msg, pos)
        if self.n:
            self.mininterval = self.maxinterval = SECONDS
        self.shown = self.n


class LogLines:
    "A stream for tqdm: what a terminal would overwrite becomes lines."

    def __init__(
        self,
        stream: TextIO,  # where the lines go
    ):
        self.stream = stream

    def write(
        self,
        text: str,  # of a bar
    ):
        line = text.strip("\r\n ")
        if line:
            self.stream.write(line + "\n")

    def flush(self):
        self.stream.flush()


def progress_bar(
    # to count while they are taken; None: the caller updates the bar
    items: Iterable[Any] | None = None,
    # those of tqdm: `total`, `initial`, `desc`, `unit` of one, `disable`; and `waits`: what the
    # first one waits for, such as 'decoding the first videos'
    **options: Any,
) -> Any:  # a bar of tqdm
    """A bar of tqdm that suits where stderr goes; the time that is left follows the last minute or
    so.
    """
    if sys.stderr.isatty() or "ipykernel" in sys.modules:
        return ScreenBar(items, **{"smoothing": 0.02} | options)
    return LogBar(items, **{"smoothing": 0.3} | options)
