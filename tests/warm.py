"""Commands in processes of their own that begin at once.

A process that has imported the library once forks for every command: 0.1 s and not 3 s. Each
command gets its session, folder, environment and files for its output, as from a terminal. What a
library reads while it is imported (OMP_NUM_THREADS) is that of the tests; tests of imports
themselves start a fresh Python. So do the forkservers of `multiprocessing`: a process that has
done nothing yet becomes one.
"""

import atexit
import gc
import hashlib
import json
import os
import pickle
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
traces = Path()  # a folder of the first process, for `share_traces`


def serve():
    "Fork for each line of stdin, in the first process."
    import importlib
    import pkgutil

    # what PyTorch, the library and pages import when they use it first: two seconds of every
    # training
    import nbdev.test  # noqa: F401
    import tensorboard  # noqa: F401
    import torch._dynamo
    import torch.utils.tensorboard  # noqa: F401
    import torchvision.models.video  # noqa: F401
    import tqdm.auto  # noqa: F401

    import vssl_nb
    from vssl_nb.app import cli
    from vssl_nb.methods.recipes import find
    from vssl_nb.runs.budget import describe_budget
    from vssl_nb.runs.experiment import BlankVideos, resolve
    from vssl_nb.training.machine import Machine

    for module in pkgutil.walk_packages(vssl_nb.__path__, "vssl_nb."):
        importlib.import_module(module.name)
    # without numbers: it starts no thread
    describe_budget(resolve(find("infonce-toy-rgb"), BlankVideos(32), Machine("cpu")))
    # to look through all of these modules for garbage takes half a second, and copies their memory
    gc.collect()
    gc.freeze()
    global traces
    traces = Path(tempfile.mkdtemp())
    try:
        answer(cli)
    finally:
        shutil.rmtree(traces)  # not at exit, which commands have too


def answer(cli):
    for line in sys.stdin:
        verb, *more = json.loads(line)
        if verb == "wait":
            pid, flags = more
            ended, status = os.waitpid(pid, flags)
            print(json.dumps(os.waitstatus_to_exitcode(status) if ended else None), flush=True)
            continue
        pid = os.fork()
        if pid:
            print(pid, flush=True)
        else:
            begin(cli, *more)


def share_traces():
    "What a step takes is computed by the first command that prints it; the next ones read it."
    from vssl_nb.runs import trace

    compute = trace._trace

    def shared(bare, dtype):
        if not type(bare.recipe.method).__module__.startswith("vssl_nb."):
            return compute(bare, dtype)
        key = repr((bare.recipe, bare.videos, bare.machine, dtype))
        file = traces / hashlib.sha256(key.encode()).hexdigest()
        if not file.exists():
            whole = file.with_suffix(f".{os.getpid()}")
            whole.write_bytes(pickle.dumps(compute(bare, dtype)))
            whole.replace(file)
        return pickle.loads(file.read_bytes())

    trace._trace = shared


def spare(wanted):
    "Become the forkserver of the process that forked this one, if it wants one before it ends."
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a forkserver
    message, files, *_ = socket.recv_fds(wanted, 2**20, 2)
    if not message:
        return
    environ, deaf, code = json.loads(message)
    os.environ.clear()
    os.environ.update(environ)
    if not deaf:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # from multiprocessing.forkserver import main; main(11, 12, [modules], **options): with these
    # files
    begin, rest = code.split("main(")
    exec(f"{begin}main({files[0]}, {files[1]}, {rest.split(', ', 2)[2]}", {})


def warm_forkserver():
    """The forkserver of `multiprocessing` will be a process that is forked now, and not a fresh
    Python.
    """
    from multiprocessing import util

    here, there = socket.socketpair(type=socket.SOCK_SEQPACKET)
    fresh, pid = util.spawnv_passfds, os.fork()
    if not pid:
        here.close()
        try:
            spare(there)
        finally:
            os._exit(0)
    there.close()

    def spawn(path, args, files):
        if "multiprocessing.forkserver" not in args[-1]:
            return fresh(path, args, files)
        util.spawnv_passfds = fresh
        deaf = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        with here:
            socket.send_fds(here, [json.dumps([dict(os.environ), deaf, args[-1]]).encode()], files)
        return pid

    util.spawnv_passfds = spawn


def begin(cli, args, cwd, env, out, err, script):
    "What a command's process does first, and then the command or the script."
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for fd, path in ((0, os.devnull), (1, out), (2, err)):
        os.dup2(os.open(path, os.O_RDWR | os.O_APPEND), fd)
    sys.argv[:] = [script or "vssl-nb", *args]
    if script or args[:1] in (["demo"], ["reproduce"]):
        warm_forkserver()
    else:
        share_traces()
    code: object = 1
    try:
        if script:
            sys.path.insert(0, str(Path(script).parent))
            runpy.run_path(script, run_name="__main__")
            code = 0
        else:
            code = cli.main()
    except SystemExit as e:
        code = e.code
    except BaseException:
        traceback.print_exc()
    threading._shutdown()
    atexit._run_exitfuncs()
    if isinstance(code, str):
        print(code, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    # Python would take apart all that was imported, for more than a second
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


@cache
def server() -> subprocess.Popen:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )
    atexit.register(stop)
    return process


def stop() -> None:
    "End the server, if there is one: the end of its input ends it."
    if server.cache_info().currsize:
        process = server()
        server.cache_clear()
        process.communicate()


def tell(*words):
    "The server's answer to one line."
    process = server()
    print(json.dumps(words), file=process.stdin, flush=True)
    return json.loads(process.stdout.readline())


class Command:
    "A command at work, much like `subprocess.Popen` with text pipes that were read to their end."

    def __init__(self, args, cwd=".", env=None, script=""):
        self.args, self.returncode = [str(a) for a in args], None
        # of its output, removed with this
        self.files = [tempfile.NamedTemporaryFile() for _ in range(2)]
        environment = dict(os.environ if env is None else env)
        self.pid = tell(
            "fork",
            self.args,
            str(Path(cwd).resolve()),
            environment,
            *[f.name for f in self.files],
            str(script),
        )

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = tell("wait", self.pid, os.WNOHANG)
        return self.returncode

    def wait(
        self,
        timeout=300,
    ) -> int:  # exit code
        until, pause = time.monotonic() + timeout, 0.005
        while self.poll() is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(pause)
            pause = min(1.2 * pause, 0.05)
        return self.returncode

    def communicate(self, timeout=300) -> tuple[str, str]:
        self.wait(timeout)
        return self.stdout, self.stderr

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill_all(self):
        "Kill this process and those that it has started; return when all are gone."
        os.killpg(self.pid, signal.SIGKILL)
        self.wait()
        until = time.monotonic() + 300
        while time.monotonic() < until:
            try:
                os.killpg(self.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.01)
        raise TimeoutError(f"{self.args}: left processes behind")

    @property
    def stdout(self) -> str:
        return Path(self.files[0].name).read_text("utf-8", "surrogateescape")

    @property
    def stderr(self) -> str:
        return Path(self.files[1].name).read_text("utf-8", "surrogateescape")


def run(args, cwd=".", env=None, timeout=300, script="") -> subprocess.CompletedProcess:
    "A command, or a Python script, from its begin to its end; killed after `timeout` seconds."
    command = Command(args, cwd, env, script)
    try:
        command.wait(timeout)
    except subprocess.TimeoutExpired:
        command.kill()
        raise
    return subprocess.CompletedProcess(
        command.args, command.returncode, command.stdout, command.stderr
    )


def launch(n, args, cwd=".", env=None) -> list[Command]:
    "The processes that `torchrun --nproc-per-node n` would start."
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    shared = {
        "WORLD_SIZE": n,
        "LOCAL_WORLD_SIZE": n,
        "GROUP_RANK": 0,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "TORCHELASTIC_RUN_ID": "tests",
    }

    def of(rank):
        return {k: str(v) for k, v in (shared | {"RANK": rank, "LOCAL_RANK": rank}).items()}

    return [
        Command(args, cwd, dict(os.environ if env is None else env) | of(rank)) for rank in range(n)
    ]


if __name__ == "__main__":
    sys.path.pop(0)  # this folder, which a command does not know
    serve()
