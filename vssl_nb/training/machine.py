"""The machine of a run: device, precision, processes that decode, memory, compiler, and how it is
stopped.
"""

import ctypes, math, os, re, signal, sys, threading, time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.data import DataLoader

from ..data.dataset import VideoCache
from ..terminal import leave_terminal
from ..config import Index, NonNegative, Settings
from ..distributed import hide_from_compiler, world_size

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class MachineError(ValueError):
    "A device or setting that this machine does not have; the message has the remedy."


@dataclass(frozen=True)
class Machine(Settings):
    """Where and how a run is computed; changes no result beyond the rounding of `device` and
    `dtype`.
    """

    device: Any = "auto"  # 'auto', 'cpu', 'cuda' or 'cuda:1'; or a torch.device
    # of the forward pass in training; 'bfloat16': autocast
    dtype: Literal["float32", "bfloat16"] = "float32"
    # processes that decode, for each process that computes; 0: that process itself
    workers: Index = 0
    # MiB of decoded videos that each process keeps; a VideoCache: from call to call
    cache: Index | VideoCache = 64
    compile: bool = False  # torch.compile the networks that train
    activation_checkpointing: bool = False  # compute activations twice: less memory, more time
    save_minutes: NonNegative = 5.0  # between two checkpoints; 0: after every step
    progress: bool = True  # show bars
    # let cuDNN try its algorithms on the first step and keep the fastest
    cudnn_benchmark: bool = True
    # products; 'high': TF32, as convolutions
    matmul_precision: Literal["highest", "high", "medium"] = "highest"
    # algorithms that give the same bits again, where there are some; slower
    deterministic: bool = False

    def place(
        self,
        local: int = 0,  # number of this process on its machine
    ) -> torch.device:
        return pick_device(self.device, local)


def pick_device(
    # 'auto', 'cpu', 'cuda' or 'cuda:1'; a device is given back as it is
    name: str | torch.device = "auto",
    # number of this process on its machine: with several, each takes its own GPU
    local: int = 0,
) -> torch.device:  # that exists
    "The device of that name; raises MachineError if it is not there."
    if isinstance(name, torch.device):
        return name
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as e:
        raise MachineError(f"device={name!r} is unknown; use 'auto', 'cpu' or 'cuda'") from e
    if device.type != "cuda":
        return device
    gpus = torch.cuda.device_count()
    if world_size() == 1:
        if (device.index or 0) < gpus:
            return device
        raise MachineError(
            f"device={name!r} was asked for, but torch sees {gpus} GPUs here; use --device cpu"
        )
    if device.index is not None:
        raise MachineError(
            f"device={name!r} would put {world_size()} processes on "
            "one GPU; use --device cuda, which gives each its own"
        )
    if local < gpus:
        return torch.device("cuda", local)
    raise MachineError(
        f"process {local + 1} of this machine finds only {gpus} GPUs; "
        "start one process per GPU, or use --device cpu"
    )


def fastest_dtype(device: torch.device) -> Literal["float32", "bfloat16"]:
    "Of a forward pass: bfloat16 where the processor has instructions for its products."
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(False) else "float32"
    has = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return "bfloat16" if has.get("avx512_bf16") or has.get("amx_bf16") else "float32"


def free_memory(
    device: torch.device,
    root: Path = Path("/"),  # where /proc and /sys are
) -> float:  # bytes; inf where the system does not tell
    "What this process may take: of a GPU all; of a CPU what is free, also in its cgroups."
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory

    def number(
        file: str | Path,
        name: str = "",
        default: float = 0.0,
    ) -> float:  # behind a name
        text = (root / file).read_text() if (root / file).is_file() else ""
        match = re.search(rf"^{name}\s*(\d+)", text, re.MULTILINE)
        return float(match[1]) if match else default

    free, cgroups = (
        [1024 * number("proc/meminfo", "MemAvailable:", math.inf)],
        root / "proc/self/cgroup",
    )
    for line in cgroups.read_text().splitlines() if cgroups.exists() else ():
        kind, at = line.split(":", 2)[1:]
        folder, limit, usage, cached = (
            ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            if kind
            else ("", "memory.max", "memory.current", "inactive_file")
        )
        group = root / "sys/fs/cgroup" / folder / at.strip("/")  # of version 1 or 2
        free += [
            number(g / limit, "", math.inf) - number(g / usage) + number(g / "memory.stat", cached)
            for g in (group, *group.parents)
        ]
    return max(0.0, min(free)) / int(os.environ.get("LOCAL_WORLD_SIZE", 1))


@contextmanager
def backend_settings(
    machine: Machine,  # cudnn_benchmark, matmul_precision, deterministic
) -> Iterator[None]:
    "Torch's own global switches as the machine has them, inside; afterwards as before."
    cudnn, fixed = torch.backends.cudnn, machine.deterministic
    before = (
        cudnn.benchmark,
        cudnn.deterministic,
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )

    def switch(benchmark, deterministic, precision, algorithms, warn):
        cudnn.benchmark, cudnn.deterministic = benchmark, deterministic
        torch.set_float32_matmul_precision(precision)
        torch.use_deterministic_algorithms(algorithms, warn_only=warn)

    if fixed:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS needs it
    # a trial decides by time, so it excludes the same bits; a warning only, because 3-D max pooling
    # has no
    # backward pass of that kind on a GPU
    switch(machine.cudnn_benchmark and not fixed, fixed, machine.matmul_precision, fixed, True)
    try:
        yield
    finally:
        switch(*before)


def keep_memory() -> bool:  # False where the C library is not glibc
    "Keep the memory that tensors free, instead of returning it to the system after each use."
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    m_trim_threshold, m_mmap_max = -1, -4  # names in glibc's malloc.h
    return mallopt(m_mmap_max, 0) == 1 and mallopt(m_trim_threshold, -1) == 1


STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def init_worker(
    worker: int,  # its number; `DataLoader` gives it
) -> None:
    "Prepare a process that decodes: the main process alone answers STOPS."
    for s in STOPS:
        signal.signal(s, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    sys.excepthook = unless_deserted
    keep_memory()


class Loader(DataLoader):
    "A DataLoader whose processes get none of STOPS, also not before they ignore them."

    def __init__(self, *args, **options):
        super().__init__(*args, **options | {"worker_init_fn": init_worker})

    def __iter__(self):
        # a process that starts inherits it
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        try:
            return super().__iter__()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def unless_deserted(
    kind: type[BaseException],
    error: BaseException,
    trace: Any,
) -> None:  # a `sys.excepthook`
    """Report an error, unless the main process left while a batch was on its way (from
    `resource_sharer`).
    """
    if not issubclass(kind, (ConnectionError, EOFError)):
        sys.__excepthook__(kind, error, trace)


def compile_parts(
    method: nn.Module,
    device: torch.device,
) -> bool:  # False where nothing can be compiled
    "`torch.compile` all parts with parameters, in place; one sentence if this machine cannot."
    try:
        torch.compile(torch.sin)(torch.zeros(1, device=device))
    except Exception as e:  # whatever is missing, training can go on without it
        print(
            f"torch.compile does not work here ({type(e).__name__}: is a C++ compiler installed?); "
            "training goes on uncompiled",
            file=sys.stderr,
        )
        return False
    hide_from_compiler()
    for part in called_parts(method):
        part.compile(dynamic=False)
    return True


def called_parts(
    method: nn.Module,  # a method, or a part of it
) -> Iterator[nn.Module]:
    "The outermost modules inside of it that have parameters and are called."
    # not the whole method: its Python counters and lists would make it compile again and again
    for part in method.children():
        if type(part).forward is nn.Module.forward:
            yield from called_parts(part)
        elif any(True for _ in part.parameters()):
            yield part


def checkpoint_activations(
    # a module with the attribute `activation_checkpointing`, as those of `backbones.create`
    encoder: Any,
    on: bool = True,  # False: keep the activations
) -> None:
    """Compute activations twice instead of keeping them; raises MachineError for an encoder that
    cannot.
    """
    if hasattr(encoder, "activation_checkpointing"):
        encoder.activation_checkpointing = on
    elif on:
        raise MachineError(
            f"activation checkpointing: {type(encoder).__name__} has no attribute "
            "activation_checkpointing, so it would keep everything; leave "
            "--activation-checkpointing out"
        )


class StopSignal(threading.Event):
    "Set once a signal has come; `.signal` is the first."

    signal: int = signal.SIGTERM  # where the wish to stop comes from another process


@contextmanager
def stop_signals() -> Iterator[StopSignal]:
    """An event that STOPS set, those that are not ignored; a second Ctrl-C, two seconds later, ends
    all.
    """
    event, since = StopSignal(), time.monotonic()

    def handle(number, frame):
        nonlocal since
        # torchrun passes on the Ctrl-C that this process got from the terminal already
        if event.is_set() and number == signal.SIGINT and time.monotonic() - since > 2:
            raise KeyboardInterrupt
        if not event.is_set():
            since, event.signal = time.monotonic(), number
        event.set()
        if number == signal.SIGHUP:
            leave_terminal()

    main = threading.current_thread() is threading.main_thread()  # no other may listen
    # with nohup, SIGHUP is ignored
    before = {
        s: signal.signal(s, handle)
        for s in STOPS
        if main and (s != signal.SIGHUP or signal.getsignal(s) is not signal.SIG_IGN)
    }
    try:
        yield event
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
