"How this process was started: when, and as which of several. Known before PyTorch is imported."

import os
import time

# nearly when this process began: PyTorch is not there yet
BEGAN = time.monotonic()

TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def is_first(
    local: bool = False,  # among the processes of its machine, not among all
) -> bool:
    "Is this the process that prints?"
    # a RANK alone is left over from something else
    if {*TORCHRUN} <= {*os.environ}:
        rank = "LOCAL_RANK" if local else "RANK"
    else:
        rank = "SLURM_LOCALID" if local else "SLURM_PROCID"
    return os.environ.get(rank, "0") == "0"


def is_alone() -> bool:
    "Was it started without torchrun, or as its only process?"
    return os.environ.get("WORLD_SIZE", "1") == "1"
