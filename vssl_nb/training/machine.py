"""The machine of a run: device, precision, processes that decode, memory, compiler, and how it is
stopped.
"""

import ctypes
import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.data import DataLoader

from ..fields import Index, NonNegative, Settings
from ..data.dataset import VideoCache
from ..device import compiler_fault
from ..distributed import world_size
from ..nets.batchnorm import hide_from_compiler
from ..terminal import leave_terminal

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
    ) -> torch.device:  # that exists
        "The device of this process; raises MachineError if it is not there."
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
            f"device={name!r} would put {world_size()} processes on one GPU; use --device cuda, "
            "which gives each its own"
        )
    if local >= gpus:
        raise MachineError(
            f"process {local + 1} of this machine finds only {gpus} GPUs; start one process per "
            "GPU, or use --device cpu"
        )
    return torch.device("cuda", local)


def fastest_dtype(
    device: torch.device,
) -> Literal["float32", "bfloat16"]:
    "Of a forward pass: bfloat16 where the processor has instructions for its products."
    if device.type == "cuda":
        has_bfloat16 = torch.cuda.is_bf16_supported(False)
    else:
        # not in older versions of PyTorch
        capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
        has_bfloat16 = capabilities.get("avx512_bf16") or capabilities.get("amx_bf16")
    return "bfloat16" if has_bfloat16 else "float32"


def free_memory(
    device: torch.device,
    root: Path = Path("/"),  # where /proc and /sys are
) -> float:  # bytes; inf where the system does not tell
    "What this process may take: of a GPU all; of a CPU what is free, also in its cgroups."
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory

    free = [1024 * _number(root / "proc/meminfo", "MemAvailable:", math.inf)]
    cgroups = root / "proc/self/cgroup"
    for line in cgroups.read_text().splitlines() if cgroups.exists() else ():
        controllers, path = line.split(":", 2)[1:]
        if controllers:  # version 1
            tree = root / "sys/fs/cgroup/memory"
            limit = "memory.limit_in_bytes"
            usage = "memory.usage_in_bytes"
            cached = "total_inactive_file"
        else:
            tree = root / "sys/fs/cgroup"
            limit = "memory.max"
            usage = "memory.current"
            cached = "inactive_file"
        group = tree / path.strip("/")
        for g in (group, *group.parents):
            used = _number(g / usage) - _number(g / "memory.stat", cached)
            free.append(_number(g / limit, "", math.inf) - used)
    return max(0.0, min(free)) / int(os.environ.get("LOCAL_WORLD_SIZE", 1))


def _number(
    file: Path,
    name: str = "",  # that the number stands behind, at the beginning of a line
    default: float = 0.0,  # where there is none
) -> float:
    "A number in a file of the system."
    text = file.read_text() if file.is_file() else ""
    match = re.search(rf"^{name}\s*(\d+)", text, re.MULTILINE)
    return float(match[1]) if match else default


@contextmanager
def backend_settings(
    machine: Machine,  # cudnn_benchmark, matmul_precision, deterministic
) -> Iterator[None]:
    "Torch's own global switches as the machine has them, inside; afterwards as before."
    cudnn = torch.backends.cudnn
    before = (
        cudnn.benchmark,
        cudnn.deterministic,
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )

    def switch(benchmark, deterministic, precision, algorithms, warn):
        cudnn.benchmark = benchmark
        cudnn.deterministic = deterministic
        torch.set_float32_matmul_precision(precision)
        torch.use_deterministic_algorithms(algorithms, warn_only=warn)

    fixed = machine.deterministic
    if fixed:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS needs it
    # a trial decides by time, so it excludes the same bits; a warning only, because 3-D max pooling
    # has no backward pass of that kind on a GPU
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
    # names in glibc's malloc.h
    m_trim_threshold = -1
    m_mmap_max = -4
    return mallopt(m_mmap_max, 0) == 1 and mallopt(m_trim_threshold, -1) == 1


STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def init_worker(
    worker: int,  # its number; `DataLoader` gives it
) -> None:
    "Prepare a process that decodes: the main process alone answers STOPS."
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)
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
    fault = compiler_fault(device)
    if fault:
        print(
            f"torch.compile does not work here ({fault}: is a C++ compiler installed?); training "
            "goes on uncompiled",
            file=sys.stderr,
        )
        return False
    hide_from_compiler()
    for part in called_parts(method):
        part.compile(dynamic=False)
    return True


def called_parts(
    method: nn.Module,
) -> Iterator[nn.Module]:
    """The modules inside of it that have parameters and are called, the inner ones, too.

    What is compiled is the outermost that a method calls: its encoder, or, where it takes another
    way than `forward` (`encoder.tokens(x, keep)`), the layers that it meets there.
    """
    # not the method itself: its Python counters and lists would make it compile again and again
    for part in method.modules():
        is_called = type(part).forward is not nn.Module.forward
        if part is not method and is_called and any(True for _ in part.parameters()):
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


@contextmanager
def expect_recomputation(
    method: nn.Module,  # its encoder is watched, if activation checkpointing is on there
) -> Iterator[None]:
    """Around a backward pass: MachineError where the encoder learns and computes nothing again.

    That is so where a method goes through its encoder on a way that keeps all activations.
    """
    encoder: Any = getattr(method, "encoder", None)
    if not getattr(encoder, "activation_checkpointing", False):
        yield
        return

    recomputed = threading.Event()
    learned = threading.Event()  # not where a backward pass is only pretended
    hooks = [m.register_forward_pre_hook(lambda *_: recomputed.set()) for m in encoder.modules()]
    for p in encoder.parameters():
        if p.requires_grad:
            hooks.append(p.register_hook(lambda *_: learned.set()))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    if learned.is_set() and not recomputed.is_set():
        raise MachineError(
            f"activation checkpointing: {type(method).__name__} uses {type(encoder).__name__} in a "
            "way that keeps all activations; leave --activation-checkpointing out, or let that way "
            "apply its blocks with backbones.checkpointed, as the encoder's forward does"
        )


class StopSignal(threading.Event):
    "Set once a signal has come; `.signal` is the first."

    signal: int = signal.SIGTERM  # where the wish to stop comes from another process


@contextmanager
def stop_signals() -> Iterator[StopSignal]:
    """An event that STOPS set, those that are not ignored; a second Ctrl-C, two seconds later, ends
    all.
    """
    event = StopSignal()
    since = time.monotonic()

    def handle(number, frame):
        nonlocal since
        # torchrun passes on the Ctrl-C that this process got from the terminal already
        if event.is_set() and number == signal.SIGINT and time.monotonic() - since > 2:
            raise KeyboardInterrupt
        if not event.is_set():
            since = time.monotonic()
            event.signal = number
        event.set()
        if number == signal.SIGHUP:
            leave_terminal()

    before = {}
    if threading.current_thread() is threading.main_thread():  # no other may listen
        for number in STOPS:
            # with nohup, SIGHUP is ignored
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue
            before[number] = signal.signal(number, handle)
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
