"Bars where stderr is a terminal, lines where it is a file; a remaining time that can be believed."

import re
import sys

import pytest

from vssl_nb import progress


class Log:
    "What stderr got, a file."

    def __init__(self, capsys):
        self.capsys, self.text = capsys, ""

    def getvalue(self):
        self.text += self.capsys.readouterr().err
        return self.text


@pytest.fixture
def log(capsys):
    return Log(capsys)


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def timed(monkeypatch):
    "The clock of the bars that are made from now on."
    clock = Clock()
    monkeypatch.setattr("tqdm.std.time", clock)
    return clock


def test_a_log_file_gets_a_line_every_half_minute(log, monkeypatch):
    clock = timed(monkeypatch)
    with progress.progress_bar(total=600, desc="training", unit="step") as bar:
        for _ in range(600):
            clock.now += 1
            bar.update()
    lines = log.getvalue().splitlines()
    assert (
        "\r" not in log.getvalue()
        and not log.getvalue().count("\n\n")
        and "█" not in log.getvalue()
    )
    assert lines[0].startswith("training: 0 % (0 of 600)") and lines[-1].startswith(
        "training: 100 % (600 of"
    )
    assert 20 <= len(lines) <= 22, lines
    assert lines[1] == "training: 5 % (30 of 600), 00:30 so far, 09:30 left,  1.00step/s"


def test_nothing_is_written_where_a_bar_is_off(log):
    with progress.progress_bar(total=3, disable=True) as bar:
        bar.update(3)
    assert list(progress.progress_bar(range(3), disable=True)) == [0, 1, 2] and not log.getvalue()


def test_a_short_job_takes_two_lines(log):
    assert list(progress.progress_bar(range(5), desc="colours")) == [0, 1, 2, 3, 4]
    assert len(log.getvalue().splitlines()) == 2


def test_a_resumed_job_counts_from_where_it_was(log, monkeypatch):
    clock = timed(monkeypatch)
    with progress.progress_bar(total=200, initial=100, desc="training", unit="step") as bar:
        clock.now += 40
        bar.update(20)
    assert "60 % (120 of 200), 00:40 so far, 02:40 left" in log.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_the_time_left_is_right_within_a_fifth_after_a_tenth(log, monkeypatch, terminal):
    "Steps of half a second, whose times vary by a half, after a first one of twenty seconds."
    clock = timed(monkeypatch)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    # the plain one, in every environment
    monkeypatch.setattr(progress, "screen_bar", progress.text_bar)
    left = None
    with progress.progress_bar(total=2000, desc="training", unit="step") as bar:
        for i in range(2000):
            clock.now += 20 if i == 0 else 0.5 + 0.25 * (-1) ** i
            bar.update()
            if i == 200:
                bar.refresh()
                minutes, seconds = re.findall(r"[<,] ?(\d+):(\d+)(?:,| left)", log.getvalue())[-1]
                left = clock.now + 60 * int(minutes) + int(seconds)
    assert left == pytest.approx(clock.now, abs=0.2 * (clock.now - 1000))
