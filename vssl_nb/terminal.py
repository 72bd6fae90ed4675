"The terminal that a command was started from."

import os
import stat


def leave_terminal() -> None:  # after SIGHUP
    """Print nothing from now on where a terminal was: it is gone, and an error of `print` would
    stop a save.
    """
    for descriptor in (1, 2):
        if stat.S_ISCHR(os.fstat(descriptor).st_mode):
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
