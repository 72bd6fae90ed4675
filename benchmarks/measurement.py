"""What a measurement needs: the machine, clocks, rounds in turn, and processes of their own."""

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch

import vssl_nb
from vssl_nb.data.manifest import Row
from vssl_nb.data.video import probe

ROOT = Path(__file__).resolve().parent.parent
CPU = torch.device("cpu")
VIDEO_FILES = (".avi", ".mp4", ".mkv", ".webm")

T = TypeVar("T")


# ---- the command line


def parser(
    doc: str,  # of the script
) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def whole_numbers(
    pairs: Sequence[str],  # such as 'epochs=2'
) -> dict[str, int]:
    split = [pair.split("=") for pair in pairs]
    return {field: int(value) for field, value in split}


def stop(sentence: str) -> NoReturn:
    "End the script with a sentence for the user."
    print(sentence, file=sys.stderr)
    raise SystemExit(2)


# ---- the machine


def processor() -> str:
    "The name of the processor."
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()


def machine(
    device: str = "cpu",  # 'cpu' or 'cuda'
    threads: int | None = None,  # those of PyTorch in this process if not given
) -> dict[str, Any]:
    "Where and with what a number was measured."
    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "threads": threads or torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "vssl_nb": vssl_nb.__version__,
    }


def portable(text: str) -> str:
    "A text whose paths begin at the repository: results name no folder of a machine."
    return text.replace(f"{ROOT}/", "").replace(f"{Path(sys.executable).parent}/", "")


def command() -> str:
    "The command that runs; of a path elsewhere on the machine its last part."
    words = (portable(word) for word in sys.argv)
    return " ".join(Path(word).name if Path(word).is_absolute() else word for word in words)


# ---- clocks and rounds


def wait_for(device: torch.device) -> None:
    "Return when the device has finished what it was given."
    if device.type == "cuda":
        torch.cuda.synchronize()


def seconds_of(
    work: Callable[[], Any],
    device: torch.device = CPU,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    "Seconds of one call."
    wait_for(device)
    begin = clock()
    work()
    wait_for(device)
    return clock() - begin


def fastest(
    work: Callable[[], T],
    rounds: int,
    device: torch.device = CPU,
) -> tuple[float, T]:  # seconds, and what the last call gave
    "Seconds of the fastest of several calls."
    best = float("inf")
    for _ in range(rounds):
        wait_for(device)
        begin = time.perf_counter()
        result = work()
        wait_for(device)
        best = min(best, time.perf_counter() - begin)
    return best, result


def in_turn(
    ways: Mapping[str, Callable[[], T]],
    rounds: int,
) -> dict[str, list[T]]:  # of each way, what each round gave
    """Every way once in a round, and every second round in the opposite order: a slow minute of the
    machine hits all ways alike.
    """
    results: dict[str, list[T]] = {name: [] for name in ways}
    for i in range(rounds):
        names = list(ways) if i % 2 == 0 else list(reversed(ways))
        for name in names:
            results[name].append(ways[name]())
        if rounds > 1:
            print(f"round {i + 1} of {rounds}", file=sys.stderr, flush=True)
    return results


def ratios(
    baseline: Sequence[float],  # seconds of each round
    candidate: Sequence[float],  # seconds of each round
) -> list[float]:
    "How many times as fast the candidate is as the baseline of the same round."
    return [slow / fast for slow, fast in zip(baseline, candidate, strict=True)]


@dataclass(frozen=True)
class Spread:
    "A number over the rounds."

    median: float
    lowest: float
    highest: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.lowest:.2f} to {self.highest:.2f})"


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def medians(values: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: statistics.median(some) for name, some in values.items()}


def announcer(
    line: Callable[[Any, Any], str],  # of a task's name and its result
) -> Callable[[dict], None]:  # `look` of `at_once`
    "Print a line for each task that has ended since the last look."
    announced = set()

    def look(done: dict) -> None:
        for name in done.keys() - announced:
            print(line(name, done[name]), flush=True)
            announced.add(name)

    return look


# ---- processes of their own


def in_own_process(
    script: str,  # a file, which prints JSON in its last line
    option: str,  # that takes the settings
    settings: dict[str, Any],
    environment: Mapping[str, str] = {},  # beside that of this process
) -> Any:
    "What a script measures where nothing else has run before."
    done = subprocess.run(
        [sys.executable, script, option, json.dumps(settings)],
        env=os.environ | environment,
        text=True,
        capture_output=True,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def memory_now(
    line: str,  # of /proc/self/status: 'VmRSS' (now), 'VmHWM' (at most)
) -> int:  # bytes
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(text.split()[1]) for text in lines if text.startswith(line))


def forget_peak() -> None:
    "The highest mark of this process's memory begins anew (Linux)."
    Path("/proc/self/clear_refs").write_text("5")


def _send_peak(work, whole, small, threads, pipe) -> None:
    if threads:
        torch.set_num_threads(threads)
    work(*small())  # loads libraries
    arguments = whole()
    forget_peak()
    before = memory_now("VmRSS")
    work(*arguments)
    pipe.send(memory_now("VmHWM") - before)


def peak_bytes(
    work: Callable[..., Any],
    whole: Callable[[], tuple],  # makes its arguments, before memory is looked at
    small: Callable[[], tuple],  # makes arguments to begin with
    preload: str,  # a module that the process has imported
    threads: int | None = None,  # of PyTorch
) -> int:
    "Memory that some work takes on top, at most, in a process of its own (Linux)."
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([preload])
    here, there = context.Pipe(False)
    arguments = (work, whole, small, threads, there)
    process = context.Process(target=_send_peak, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit("the process that measures memory failed")
    return here.recv()


# ---- videos to measure on


def evenly_spread(items: Sequence[T], count: int) -> list[T]:
    "At most so many of the items, at equal distances."
    return list(items[:: max(1, len(items) // count)][:count])


def video_files(
    folder: Path,
    count: int,  # at most
    but: str = "",  # a folder whose videos are left out
) -> list[Path]:
    "Videos of a folder and its folders, evenly spread."
    files = [f for f in sorted(folder.rglob("*")) if f.suffix in VIDEO_FILES and but not in f.parts]
    if not files:
        raise SystemExit(
            f"{folder}: has no videos; name a folder with .avi, .mp4, .mkv or .webm files"
        )
    return evenly_spread(files, count)


def video_row(
    file: Path,
    label: str,
    source: str,
    part: str,  # of all splits: 'train' or 'test'
) -> Row:
    "The line of a video in a manifest that lies beside it."
    seen = probe(file)
    return Row(
        video=file.name,
        label=label,
        source=source,
        split1=part,
        split2=part,
        split3=part,
        frames=seen.frames,
        fps=seen.fps,
        width=seen.width,
        height=seen.height,
    )
