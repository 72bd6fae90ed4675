"Device, precision, memory, compiler and signals, on GPUs that are pretended where there are none."

import os
import signal
import sys
import time
from contextlib import suppress
from unittest import mock

import pytest
import torch
import warm
from torch import nn
from torch.utils.data import Dataset

from vssl_nb.nets.backbones import checkpointed
from vssl_nb.training import machine
from vssl_nb.training.loop import TrainingState, fit, loader, make_optimizer, steps
from vssl_nb.training.machine import (
    Machine,
    MachineError,
    backend_settings,
    checkpoint_activations,
    compile_parts,
    fastest_dtype,
    init_worker,
    keep_memory,
    pick_device,
    stop_signals,
)


@pytest.mark.parametrize(
    "fields, words",
    [
        (dict(dtype="float8"), "dtype='float8' is not one of 'float32', 'bfloat16'"),
        (dict(matmul_precision="low"), "'low' is not one of 'highest', 'high'"),
        (dict(cache=-5), "cache=-5 must be 0 or more"),
        (dict(workers=-1), "workers=-1 must be 0 or more"),
        (dict(save_minutes=-1), "save_minutes=-1 must be 0 or more"),
        (dict(save_minutes=float("nan")), "save_minutes=nan is not a finite number"),
    ],
)
def test_what_no_machine_has(fields, words):
    with pytest.raises(ValueError, match=words):
        Machine(**fields)


def gpus(monkeypatch, n, processes=1):
    monkeypatch.setattr("torch.cuda.is_available", lambda: n > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: n)
    monkeypatch.setattr(machine, "world_size", lambda: processes)


@pytest.mark.parametrize(
    "n, name, device",
    [
        (0, "auto", "cpu"),
        (0, "cpu", "cpu"),
        (1, "auto", "cuda"),
        (1, "cuda", "cuda"),
        (1, "cuda:0", "cuda:0"),
        (2, "cuda:1", "cuda:1"),
        (0, torch.device("cuda:9"), "cuda:9"),
        (0, "cuda", "torch sees 0 GPUs here; use --device cpu"),
        (1, "cuda:1", "torch sees 1 GPUs"),
        (1, "tpu", "'tpu' is unknown; use 'auto', 'cpu' or 'cuda'"),
    ],
)
def test_the_device_of_one_process(monkeypatch, n, name, device):
    gpus(monkeypatch, n)
    if " " not in device:
        assert str(pick_device(name)) == device
    else:
        with pytest.raises(MachineError, match=device):
            pick_device(name)
    assert Machine("cpu").place(3) == torch.device("cpu")


def test_each_process_takes_a_gpu_of_its_own(monkeypatch):
    gpus(monkeypatch, 2, processes=2)
    devices = [
        pick_device("cuda", 1),
        pick_device("auto"),
        pick_device(torch.device("cuda:1")),
        pick_device("cpu", 1),
        Machine().place(1),
    ]
    assert [str(d) for d in devices] == ["cuda:1", "cuda:0", "cuda:1", "cpu", "cuda:1"]
    with pytest.raises(MachineError, match="device='cuda:1' would put 2 processes on one GPU"):
        pick_device("cuda:1", 1)
    with pytest.raises(MachineError, match="process 3 of this machine finds only 2 GPUs"):
        pick_device("cuda", 2)


@pytest.mark.parametrize(
    "name, has, dtype",
    [
        ("cpu", {"avx512_bf16": True}, "bfloat16"),
        ("cpu", {"amx_bf16": True}, "bfloat16"),
        ("cpu", {"avx2": True, "avx512_bf16": False}, "float32"),
        ("cpu", None, "float32"),
        ("cuda", True, "bfloat16"),
        ("cuda", False, "float32"),
    ],
)
def test_bfloat16_is_taken_where_the_processor_has_instructions_for_it(
    monkeypatch, name, has, dtype
):
    if name == "cuda":
        monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda emulated: has)
    # an older PyTorch
    elif has is None:
        monkeypatch.delattr("torch.cpu.get_capabilities", raising=False)
    else:
        monkeypatch.setattr("torch.cpu.get_capabilities", lambda: has, raising=False)
    assert fastest_dtype(torch.device(name)) == dtype


def switches():
    return (
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
    )


@pytest.mark.parametrize(
    "fields, inside",
    [
        ({}, (True, False, "highest", False)),
        (dict(matmul_precision="high"), (True, False, "high", False)),
        (dict(deterministic=True), (False, True, "highest", True)),
        (dict(cudnn_benchmark=False), (False, False, "highest", False)),
    ],
)
def test_switches_of_torch_are_set_and_put_back(monkeypatch, fields, inside):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    before = switches(), torch.is_deterministic_algorithms_warn_only_enabled()
    with suppress(KeyError), backend_settings(Machine(**fields)):
        assert switches() == inside and torch.is_deterministic_algorithms_warn_only_enabled()
        assert ("CUBLAS_WORKSPACE_CONFIG" in os.environ) == ("deterministic" in fields)
        raise KeyError  # whatever happens inside
    assert (switches(), torch.is_deterministic_algorithms_warn_only_enabled()) == before


def test_memory_is_kept_where_there_is_glibc(monkeypatch):
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    assert not keep_memory()
    calls = []
    library = mock.Mock(mallopt=lambda *args: calls.append(args) or 1)
    monkeypatch.setattr("ctypes.CDLL", lambda name: library)
    assert keep_memory() and calls == [(-4, 0), (-1, -1)]


STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def test_workers_leave_signals_to_the_main_process(monkeypatch):
    kept = mock.Mock()
    monkeypatch.setattr(machine, "keep_memory", kept)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    before = [signal.getsignal(s) for s in STOPS]
    try:
        init_worker(3)
        assert [signal.getsignal(s) for s in STOPS] == [signal.SIG_IGN] * 3 and kept.called
    finally:
        for s, handler in zip(STOPS, before):
            signal.signal(s, handler)


DESERTED = """
import os, socket, sys, time
from multiprocessing import resource_sharer
from vssl_nb.training.machine import init_worker

init_worker(0)
duplicate = resource_sharer.DupFd(os.open(os.devnull, os.O_RDONLY)) # as a worker sends a tensor
main = socket.socket(socket.AF_UNIX)
main.connect(duplicate._id[0])
main.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b'\\1\\0\\0\\0\\0\\0\\0\\0')
main.close() # the main process ended before it took the tensor
time.sleep(.3)
if len(sys.argv) > 1: sys.excepthook(ValueError, ValueError('of another kind'), None)
"""


def test_a_worker_whose_main_process_left_is_silent(tmp_path):
    script = tmp_path / "deserted.py"
    script.write_text(DESERTED)
    assert warm.run([], script=str(script)).stderr == ""
    assert "of another kind" in warm.run(["report"], script=str(script)).stderr


class Encoder(nn.Module):
    "Two blocks, and two ways through them: to a feature, and to its tokens."

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.second = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.activation_checkpointing = False

    def forward(self, x):
        for block in (self.first, self.second):
            x = checkpointed(block, x) if self.activation_checkpointing else block(x)
        return x

    def tokens(self, x):  # keeps all activations
        return self.second(self.first(x))


class Method(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.encoder = Encoder()
        self.counter = nn.Identity()
        self.slow = nn.ModuleList([nn.Linear(4, 4)])  # is not called itself
        self.way = way

    def forward(self, batch):
        return getattr(self.encoder, self.way)(batch["clips"].float()).mean(), {}


@pytest.mark.parametrize("way", ["forward", "tokens"])
def test_every_way_through_an_encoder_is_compiled(way, monkeypatch):
    "What a method calls is compiled whole; a way past `forward` in the parts that it calls."
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compile = torch.compile
    monkeypatch.setattr(
        "torch.compile", lambda f, **options: compile(f, backend=backend, **options)
    )
    torch.compiler.reset()
    method = Method("__call__" if way == "forward" else way)
    batch = {"clips": torch.ones(2, 4)}
    plain, _ = method(batch)
    assert compile_parts(method, torch.device("cpu"))
    graphs.clear()  # of the trial
    compiled, _ = method(batch)
    torch.testing.assert_close(compiled, plain)
    assert len(graphs) == (1 if way == "forward" else 2)
    operations = [str(n.target) for g in graphs for n in g.graph.nodes if n.op == "call_function"]
    assert sum("linear" in o for o in operations) == 2


def test_where_nothing_can_be_compiled(monkeypatch, capsys):
    "It is said once, and nothing is touched."

    def broken(f):
        raise OSError("no compiler")

    monkeypatch.setattr("torch.compile", broken)
    monkeypatch.setattr(nn.Module, "compile", mock.Mock())
    assert not compile_parts(Method("forward"), torch.device("cpu"))
    assert not nn.Module.compile.called
    assert capsys.readouterr().err.startswith("torch.compile does not work here (OSError")


def test_activations_are_computed_twice_where_an_encoder_can():
    encoder = nn.Linear(2, 2)
    checkpoint_activations(encoder, False)  # nothing is wanted
    with pytest.raises(MachineError, match="Linear has no attribute activation_checkpointing"):
        checkpoint_activations(encoder)
    encoder.activation_checkpointing = False
    checkpoint_activations(encoder)
    assert encoder.activation_checkpointing is True


class Rows(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, key):
        return {"clips": torch.ones(4), "row": key[1]}


def one_step(method):
    run = TrainingState(method, make_optimizer(method))
    next(fit(run, loader(Rows(), 2, epochs=1), lambda batch: batch, steps(())))


def test_a_way_that_keeps_all_activations_is_refused():
    "Where they are to be computed twice, in the first step; otherwise it trains."
    one_step(Method("tokens"))
    refused = Method("tokens")
    checkpoint_activations(refused.encoder)
    with pytest.raises(MachineError, match="Method uses Encoder in a way that keeps all act"):
        one_step(refused)
    honest = Method("forward")
    checkpoint_activations(honest.encoder)
    one_step(honest)
    # who does not learn keeps nothing
    frozen = Method("tokens")
    checkpoint_activations(frozen.encoder.requires_grad_(False))
    frozen.head = nn.Linear(4, 1)
    frozen.forward = lambda batch: (frozen.head(frozen.encoder.tokens(batch["clips"])).mean(), {})
    one_step(frozen)


def send(*numbers):
    for number in numbers:
        os.kill(os.getpid(), number)
        time.sleep(0.01)


@pytest.mark.parametrize("first", STOPS)
def test_a_signal_sets_the_event(first):
    before = signal.getsignal(signal.SIGINT)
    with stop_signals() as event:
        assert not event.is_set()
        send(first, signal.SIGINT, signal.SIGTERM)  # the others are echoes of a launcher
        assert event.is_set() and event.signal == first
        with mock.patch("time.monotonic", lambda: 1e9):  # much later
            send(signal.SIGTERM)  # schedulers repeat themselves
            with pytest.raises(KeyboardInterrupt):
                send(signal.SIGINT, signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before


def test_a_terminal_that_is_gone():
    """With SIGHUP nothing can be printed any more, and what is printed does not stop a save; nohup
    ignores it.
    """
    kept, (terminal, here) = os.dup(2), os.openpty()
    try:
        os.dup2(here, 2)
        os.close(here)
        with stop_signals() as event:
            send(signal.SIGHUP)
            os.close(terminal)
            os.write(2, b"saved")
            assert event.is_set() and event.signal == signal.SIGHUP
    finally:
        os.dup2(kept, 2)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals() as event:
            send(signal.SIGHUP)
            assert not event.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)


V2 = {
    "proc/self/cgroup": "0::/a/b",
    "sys/fs/cgroup/a/b/memory.max": "max",
    "sys/fs/cgroup/a/memory.max": "900",
    "sys/fs/cgroup/a/memory.current": "700",
    "sys/fs/cgroup/a/memory.stat": "anon 1\ninactive_file 100",
}
V1 = {
    "proc/self/cgroup": "3:cpu:/\n5:memory:/not/here",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "800",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": "600",
    "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 50",
}


@pytest.mark.parametrize(
    "files, free",
    [
        ({}, float("inf")),
        ({"proc/meminfo": "MemAvailable: 3 kB"}, 3072),
        (V2, 300),
        (V1, 250),
        (V2 | {"proc/meminfo": "MemFree: 7 kB\nMemAvailable: 0 kB"}, 0),
    ],
)
def test_the_memory_that_is_free(files, free, tmp_path, monkeypatch):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert machine.free_memory(torch.device("cpu"), tmp_path) == free
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert machine.free_memory(torch.device("cpu"), tmp_path) == free / 2


def test_a_process_that_decodes_gets_no_signal_before_it_ignores_it(monkeypatch):
    real = machine.init_worker

    def early(worker):
        # as to a whole group, in the moment in which it starts
        os.kill(os.getpid(), signal.SIGTERM)
        real(worker)

    monkeypatch.setattr(machine, "init_worker", early)
    assert sorted(map(int, machine.Loader([1, 2, 3, 4], None, num_workers=2))) == [1, 2, 3, 4]
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {*machine.STOPS}
