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


def test_a_log_file_gets_a_line_after_five_seconds_and_every_half_minute(log, monkeypatch):
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
    assert lines[0] == "training: 0 % (0 of 600 steps)", lines[0]
    assert lines[1] == "training: 1 % (5 of 600 steps), 00:05 so far, 09:55 left, 1.0 steps/s"
    assert lines[2] == "training: 6 % (35 of 600 steps), 00:35 so far, 09:25 left, 1.0 steps/s"
    assert lines[-1] == "training: 100 % (600 of 600 steps), 10:00 so far, 1.0 steps/s"
    assert len(lines) == 22, lines


def test_nothing_is_written_twice(log, monkeypatch):
    "Not by the thread of tqdm that looks for bars that stand still, nor where a job is stopped."
    clock = timed(monkeypatch)
    bar = progress.progress_bar(total=600, desc="training", unit="step")
    for _ in range(40):
        clock.now += 1
        bar.update()
    for _ in range(3):
        clock.now += 40
        bar.refresh()
    bar.close()
    lines = log.getvalue().splitlines()
    counts = [line.split("(")[1].split(" of")[0] for line in lines]
    assert counts == ["0", "5", "35", "40"], lines


def test_what_the_first_one_waits_for_is_said_until_it_is_done(log, monkeypatch):
    clock = timed(monkeypatch)
    options = {"total": 2, "desc": "training", "unit": "step", "waits": "decoding the first videos"}
    with progress.progress_bar(**options) as bar:
        clock.now += 40
        bar.update()
        clock.now += 40
        bar.update()
    lines = log.getvalue().splitlines()
    assert lines[0] == "training: 0 % (0 of 2 steps), decoding the first videos"
    assert lines[1] == "training: 50 % (1 of 2 steps), 00:40 so far, 00:40 left, 40 s a step"
    assert len(lines) == 3 and "decoding" not in lines[2]


@pytest.mark.parametrize(
    "rate, words",
    [
        (1234.5, "1,234 videos/s"),
        (31.2, "31 videos/s"),
        (1.02, "1.0 videos/s"),
        (0.4, "2.5 s a video"),
        (0.05, "20 s a video"),
    ],
)
def test_speed_in_words(rate, words):
    assert progress.speed_in_words(rate, "video") == words


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
    lines = log.getvalue().splitlines()
    assert lines[0] == "training: 50 % (100 of 200 steps)"
    assert lines[1].startswith("training: 60 % (120 of 200 steps), 00:40 so far, 02:40 left")


@pytest.mark.parametrize("terminal", [False, True])
def test_the_time_left_is_right_within_a_fifth_after_a_tenth(log, monkeypatch, terminal):
    "Steps of half a second, whose times vary by a half, after a first one of twenty seconds."
    clock = timed(monkeypatch)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)

    # the plain one, in every environment
    class PlainBar(progress.WordedBar, progress.text_bar):
        first, line = progress.ScreenBar.first, progress.ScreenBar.line

    monkeypatch.setattr(progress, "ScreenBar", PlainBar)
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
