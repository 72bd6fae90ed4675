"How many processors this process may use."

import os


def usable_processors() -> int:
    "The processors of this machine, or those of them that this process was given."
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
