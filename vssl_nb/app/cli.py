"""`vssl-nb …`: runs one command; a mistake becomes one sentence on stderr and an exit code.

The commands are in `commands`, their options in `options`, and `parsing` makes one of the other.
"""

if __name__ == "__main__":  # above the imports, for Ctrl-C
    from vssl_nb import main as begin

    raise SystemExit(begin())

import contextlib
import gc
import io
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from .. import __version__
from ..fields import RecipeError
from ..names import did_you_mean
from ..paths import PathError
from ..terminal import leave_terminal
from ..packages import refuse_shadowed_packages
from .commands import COMMANDS
from .launch import is_first
from .options import Mistake
from .parsing import help_text, parse


def main(
    # None: the arguments of the process, which ends after this
    args: Sequence[str] | None = None,
) -> int:  # 0; 2 for a mistake; 130 after Ctrl-C and 143 after SIGTERM, as shells have it
    "Run one command; a mistake becomes one sentence on stderr."
    # read when torch is imported: threads that spin while they wait slow down all that runs beside
    # them
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    speak_utf8()
    words = sys.argv[1:] if args is None else [*args]
    announcement = announce_later(words)
    signals: list[int] = []
    code = 0
    try:
        if args is None:
            start_announcement(announcement, words)
        with warnings.catch_warnings(), heed_signals() as signals:
            run_command(words)
    except BrokenPipeError:
        output_error()  # the reader of a pipe has seen enough
    except (ValueError, OSError) as e:
        if os.environ.get("VSSL_DEBUG"):
            raise
        if signals:  # what a command meets while it ends is no mistake of the user
            code = code_of(e, signals)
        else:
            report_mistake(e)
            code = 2
    except BaseException as e:  # an interruption may come out of an import as another error
        code = code_of(e, signals)
    finally:
        announcement.cancel()

    if code > 2:  # the error is gone, and with it all that ends its own processes
        end_children()
        sys.unraisablehook = sys.__unraisablehook__
    # Python looks through all objects for garbage before it ends: where PyTorch is there that took
    # 1.7 s, and 0.4 s with what is there frozen
    if args is None:
        gc.freeze()
    return code


# -- one command


def run_command(args: list[str]) -> None:
    "Run one command, or print help."
    if not args or args[0] in ("-h", "--help", "help"):
        print(overview())
    elif args[0] == "--version":
        print(__version__)
    elif args[0] not in COMMANDS:
        raise Mistake(f"there is no command {args[0]!r}; {did_you_mean(args[0], COMMANDS, 0.6)}")
    elif asks_for_help(args):
        others = [a for a in args[1:] if a not in ("-h", "--help")]
        print(help_text(args[0], others))
    else:
        command = parse(args[0], args[1:])
        refuse_shadowed_packages()
        command.run()
    sys.stdout.flush()


def asks_for_help(args: list[str]) -> bool:
    "Is --help among the options? What stands behind -- is none."
    end = args.index("--") if "--" in args else len(args)
    return bool({"-h", "--help"} & set(args[:end]))


def command_summary(
    kind: type,  # of a command
) -> str:
    "The first paragraph of its docstring, as one line."
    paragraph = (kind.__doc__ or "").strip().split("\n\n")[0]
    return " ".join(paragraph.split())


def overview() -> str:
    "What `vssl-nb` prints when it is given nothing."
    commands = [f"  {name:13}{command_summary(kind)}" for name, kind in COMMANDS.items()]
    return "\n".join(
        [
            f"vssl-nb {__version__}: self-supervised video representation learning",
            "",
            *commands,
            "",
            "vssl-nb COMMAND --help lists its options.",
            "First steps: vssl-nb toy videos; vssl-nb pretrain infonce-toy-residual --data videos; "
            "vssl-nb retrieve runs/infonce-toy-residual",
        ]
    )


def announce_later(words: list[str]) -> threading.Timer:
    "The first words of a command that is silent for a second."
    text = (
        f"vssl-nb {''.join(words[:1])}: has begun; to import PyTorch and open files takes some "
        "seconds\n"
    )
    # past the lock of sys.stderr, as it may fork
    return threading.Timer(1, os.write, (2, text.encode()))


def start_announcement(announcement: threading.Timer, words: list[str]) -> None:
    "Unless PyTorch is there already, or nobody wants to hear it."
    if words and "--quiet" not in words and is_first() and "torch" not in sys.modules:
        announcement.start()


# -- mistakes, and what else ends a command


def report_mistake(e: ValueError | OSError) -> None:
    "Print a mistake as one sentence, in one process of those that make it."
    text = str(e)
    if isinstance(e, OSError) and not e.filename:
        reason = output_error()
        if reason:
            text = (
                f"standard output cannot be written ({reason}); send it elsewhere; written "
                "files are kept"
            )
    # what is wrong with the arguments is wrong in all processes; of what goes wrong later,
    # `distributed.start` lets one process tell
    everywhere = isinstance(e, (Mistake, RecipeError, PathError))
    # nobody launched this
    leftover = "TORCHELASTIC_RUN_ID" not in os.environ and "RANK" in os.environ
    if is_first(local=isinstance(e, PathError)) or not everywhere or leftover:
        print(f"vssl-nb: {text}", file=sys.stderr)
        return
    # a launcher ends all processes when one has ended, and the first may not have printed yet
    with contextlib.suppress(KeyboardInterrupt):
        time.sleep(10)


# what Python, PyTorch and the loader of libraries call it
NO_MEMORY = re.compile(
    "MemoryError|[^:]*(annot|can't) (allocate memory|start new thread)|not enough memory|"
    "failed to map segment"
)


def code_of(
    e: BaseException,  # that ended a command, and is no mistake
    signals: list[int],  # that have come
) -> int:  # the exit code
    "Say that a command was interrupted, or that memory ran out; another error is raised again."
    lacking = None if signals else NO_MEMORY.search(f"{type(e).__name__}: {e}")
    if lacking:
        print(
            f"vssl-nb: there is too little memory ({lacking[0]}); give less to do at a time "
            "(--batch, --workers 0), or raise the limit (ulimit -v)",
            file=sys.stderr,
        )
        return 2
    if not (signals or isinstance(e, KeyboardInterrupt)):
        raise e
    # a training that was interrupted has printed what it saved
    if not hasattr(e, "signal"):
        sys.stderr.write("vssl-nb: interrupted\n")  # in one piece
    first = signals[0] if signals else signal.SIGINT
    return 128 + getattr(e, "signal", first)


def output_error() -> str:  # '' where there is none
    "Why standard output cannot be written; from then on nothing is written there."
    try:
        print(flush=True)
    except OSError as e:  # Python would try again when it ends, and end with a code of its own
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return e.strerror or str(e)
    return ""


# -- signals


@contextlib.contextmanager
def heed_signals() -> Iterator[list[int]]:  # the signals that have come
    """Ctrl-C, and SIGTERM and SIGHUP of no launcher, end this process and those that it has made,
    tidily.
    """
    process = os.getpid()
    received: list[int] = []
    again: list[threading.Timer] = []

    def end(number, frame):
        if os.getpid() != process:
            os._exit(128 + number)  # one that was forked just now
        received.append(number)
        if number == signal.SIGHUP:
            leave_terminal()
        # from now on objects that are half made end with errors, and modules that are half imported
        # with warnings
        sys.unraisablehook = lambda error: None
        warnings.simplefilter("ignore")
        # once more where the exception is lost: in a fork, or in a module that is imported and
        # catches everything
        timer = threading.Timer(1, os.kill, (process, number))
        again.append(timer)
        timer.start()
        raise KeyboardInterrupt

    usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler}
    if os.environ.get("WORLD_SIZE", "1") == "1":
        usual |= {signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number, handler in usual.items():  # what somebody else has arranged stays
            if signal.getsignal(number) is handler:
                before[number] = signal.signal(number, end)
    try:
        yield received
    finally:
        for timer in again:
            timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def end_children() -> None:
    "End the processes that this one has made and that have not heard the signal."
    children = multiprocessing.active_children()
    if not children or threading.current_thread() is not threading.main_thread():
        return
    # PyTorch's would raise an error in this
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for child in children:
        child.kill()
    for child in children:
        child.join()
    signal.signal(signal.SIGCHLD, before)


# -- output

# names of encodings that are UTF-8, or a part of it
PLAIN_ENCODINGS = ("ascii", "utf8", "usascii", "ansi_x3.41968")


def speak_utf8() -> None:
    "Print names of files as they are also in the locale C; elsewhere a ? for what it lacks."
    # closed by the caller; else the next file that is opened would be it
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue  # a notebook's, a test's
        if stream.encoding.lower().replace("-", "") in PLAIN_ENCODINGS:
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")
        else:
            stream.reconfigure(errors="replace")
