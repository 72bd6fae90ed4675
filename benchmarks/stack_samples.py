"""Where the main threads of a command's processes are, looked at a hundred times a second.

Python imports this in every process of the command (`waits.py` arranges it), so that it imports
nothing that is heavy."""

import atexit
import collections
import json
import os
import sys
import threading
import time
from pathlib import Path
from types import FrameType

# part of a file's path, and functions of it (none: all) -> stage; the innermost frame that matches
# counts
STAGES = (
    ("/numba/", (), "compilation"),
    ("importlib", (), "imports"),
    ("/data/video.py", ("crop_resize",), "crop and scale"),
    ("/data/video.py", (), "decoding"),
    ("/data/dataset.py", ("cut_clips", "_cut_pair"), "crop and scale"),
    ("/data/dataset.py", ("_decode", "_frames", "_decode_flow"), "decoding"),
    (
        "/data/augmentation.py",
        ("apply", "_by_frames", "disturb_appearance", "normalise"),
        "augmentation and views",
    ),
    ("/data/colours.py", (), "augmentation and views"),
    ("/data/sampling.py", (), "windows and random numbers"),
    ("/data/toy.py", (), "toy videos"),
    ("/data/flow.py", (), "optical flow"),
    ("/data/tvl1.py", (), "optical flow"),
    ("/data/manifest.py", (), "looking at files"),
    ("/data/views.py", (), "augmentation and views"),
    ("/torch/optim/", (), "optimiser"),
    ("/training/checkpoints.py", (), "checkpoints"),
    ("/torch/autograd/", (), "backward"),
    ("/nets/", (), "forward"),
    ("/ssl/", (), "loss and mining"),
    ("/methods/", (), "loss and mining"),
    ("/measure/retrieval.py", (), "retrieval"),
    ("/measure/health.py", (), "verdict"),
    ("/show/", (), "pictures and pages"),
    ("/matplotlib/", (), "pictures and pages"),
    ("/papers/report.py", (), "pictures and pages"),
    ("/multiprocessing/", ("wait", "poll", "select", "join", "get"), "waiting"),
    ("/resource_tracker.py", (), "waiting"),
    ("/selectors.py", (), "waiting"),
    ("/threading.py", ("wait", "join"), "waiting"),
    ("/queue.py", (), "waiting"),
    ("/subprocess.py", (), "waiting"),
    ("/zmq/", (), "waiting"),
)
STEP = 0.01  # seconds between two looks


def stage(frame: FrameType | None) -> str:
    "What the innermost frame with a stage of its own does."
    while frame is not None:
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        for part, names, title in STAGES:
            if part in path and (not names or name in names):
                return title
        frame = frame.f_back
    return "other"


def sample(folder: Path) -> None:
    "Look at the main thread of this process, and of those it forks, until it ends."
    os.register_at_fork(after_in_child=lambda: watch(folder))  # threads are not copied
    watch(folder)


def watch(folder: Path) -> None:
    """A thread that looks; once a second it writes the stages so far, and the processor time of the
    process.
    """
    main = threading.main_thread().ident
    file = folder / f"{os.getpid()}.json"
    ended = threading.Event()
    seconds: collections.Counter[str] = collections.Counter()

    def write() -> None:
        part = file.with_suffix(".part")
        part.write_text(json.dumps({"cpu": time.process_time(), "stages": seconds}))
        part.replace(file)

    def look() -> None:
        last = saved = time.monotonic()
        while not ended.wait(STEP):
            now = time.monotonic()
            seconds[stage(sys._current_frames().get(main))] += now - last
            last = now
            if now - saved >= 1:
                write()
                saved = now
        write()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()

    def end() -> None:
        "A thread that runs on would abort the interpreter."
        ended.set()
        thread.join()

    atexit.register(end)
