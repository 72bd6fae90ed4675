"Trainings and measurements that several processes do at a time."

import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..config import Recipe
from ..data.dataset import VideoCache
from ..data.manifest import read
from ..progress import progress_bar
from ..runs.cotraining import run_state
from ..runs.pretraining import pretrain
from ..training.loop import TrainError
from ..training.machine import Machine


class Task(NamedTuple):
    "Work for another process."

    function: Callable  # of a module
    arguments: tuple[Any, ...]
    after: tuple[str, ...] = ()  # names of the tasks that have to be done before


def at_once(
    # the first that are ready are begun first; none stands before one of its `after`
    tasks: Mapping[str, Task],
    processes: int = 2,  # 1: in this process, one after the other
    runs: Sequence[Path] = (),  # run folders, for the bar
    total: int = 0,  # the steps that `runs` come to, for the bar
    progress: bool = True,
    # called every second with the results so far
    look: Callable[[dict[str, Any]], None] = lambda done: None,
) -> dict[str, Any]:  # the result of each
    """Several tasks at a time; raises what the first of them raised, or ValueError where one cannot
    begin.
    """
    _refuse_late(tasks)
    if processes == 1:
        done: dict[str, Any] = {}
        for name, task in tasks.items():
            done[name] = task.function(*task.arguments)
            look(done)
        return done

    method = "forkserver" if sys.platform == "linux" else "spawn"
    context = multiprocessing.get_context(method)
    # what this process has imported, once, and not for seconds in every process
    imported = [name for name in sys.modules if name.startswith("vssl_nb.papers.")]
    context.set_forkserver_preload(["torch._dynamo", *imported])
    pool = ProcessPoolExecutor(processes, context, _prepare_process)
    bar = progress_bar(
        total=total,
        desc="training",
        unit="step",
        waits="starting the processes that train",
        disable=not progress,
    )
    with pool, bar:

        def report(done):
            bar.update(sum(map(_logged_steps, runs)) - bar.n)
            look(done)

        try:
            done = _work_through(tasks, pool, processes, report)
        except KeyboardInterrupt:
            # a second signal must not end the processes while they save their runs
            with _ignoring(signal.SIGINT, signal.SIGTERM):
                # SIGTERM reached this one alone
                for p in multiprocessing.active_children():
                    p.terminate()
                pool.shutdown(cancel_futures=True)
            raise
        finally:
            pool.shutdown(cancel_futures=True)
    return {name: done[name] for name in tasks}


def _refuse_late(tasks: Mapping[str, Task]) -> None:
    "Refuse a task that waits for one that does not stand before it. ValueError."
    before: set[str] = set()
    for name, task in tasks.items():
        for other in task.after:
            if other not in before:
                raise ValueError(
                    f"the task '{name}' waits for '{other}', which does not stand before it"
                )
        before.add(name)


def _work_through(
    tasks: Mapping[str, Task],
    pool: ProcessPoolExecutor,
    processes: int,  # of the pool
    report: Callable[[dict[str, Any]], None],  # called every second with the results so far
) -> dict[str, Any]:  # the result of each
    "Give the pool each task when what it waits for is done, as many at a time as it has processes."
    done: dict[str, Any] = {}
    waiting = dict(tasks)
    running: dict[Future[Any], str] = {}
    while waiting or running:
        ready = [name for name, task in waiting.items() if done.keys() >= set(task.after)]
        for name in ready[: processes - len(running)]:
            task = waiting.pop(name)
            # a process that starts now inherits it: Ctrl-C must not hit one that is still importing
            with _ignoring(signal.SIGINT):
                running[pool.submit(task.function, *task.arguments)] = name
        for future in wait(running, 1, FIRST_COMPLETED).done:
            done[running.pop(future)] = future.result()
        report(done)
    return done


def _prepare_process() -> None:
    "In a new process."
    torch.set_num_threads(1)
    # while training `stop_signals` listens, and the run is saved
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _ignoring(*signals: int) -> Iterator[None]:
    before = {s: signal.signal(s, signal.SIG_IGN) for s in signals}
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def _logged_steps(run: Path) -> int:
    log = run / "steps.csv"
    if not log.exists():
        return 0
    return max(0, len(log.read_bytes().splitlines()) - 1)


# -- work for a task


@lru_cache(maxsize=1)  # a process decodes each video once, for all its tasks
def decoded_videos(
    path: Path,  # of a manifest
    sha256: str,  # of the manifest
) -> VideoCache:
    "What this process has decoded of a manifest."
    return VideoCache(read(path), 2**31)


def quietly(
    work: Callable,
    data: Path,  # a manifest
    machine: Machine,
    **given: Any,  # further arguments of `work`
) -> Any:  # what `work` returns
    "Do some work in a process beside others: no bars, and each video is decoded once."
    manifest = read(data)
    cache = decoded_videos(manifest.path, manifest.sha256)
    return work(data=data, machine=replace(machine, progress=False, cache=cache), **given)


def train_run(
    recipe: Recipe,
    data: Path,  # a manifest
    machine: Machine,
    folder: Path,  # the run folder
    begin: Path | None = None,  # the run whose weights it begins with
    miner: Path | None = None,  # the run that mines for it
) -> Path:  # the run folder
    "Train a run to its end, from where it stands. TrainError where it was stopped."
    resume = (folder / "recipe.json").exists()
    networks = {"encoder": begin, "sampler": miner}
    pretrain(recipe, data, folder, resume, machine, networks=networks)
    if run_state(folder) != "finished":
        raise TrainError(f"{folder}: was stopped; the same command goes on")
    return folder
