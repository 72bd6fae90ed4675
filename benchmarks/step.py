"""How fast is a training step, and what does each switch bring?

A step of InfoNCE with a queue: queries and keys forward, loss, backward, optimizer, momentum encoder, queue.
The baseline, measured in the same run, is the plain recipe of the released code in today's PyTorch: float32,
contiguous tensors, eager, Adam and the momentum encoder in a loop over parameters, the allocator as it comes.
Clips are random and already on the device; decoding and augmentation have their own columns in a run's
times.csv.

    python benchmarks/step.py                                # CPU or GPU, S3D at 32 x 128 x 128
    python benchmarks/step.py --device cuda --out results/step-h200.json --profile
    python benchmarks/step.py --only 'all, float32' --sizes 2       # the third table soon
    python benchmarks/step.py --quadruples --backbone r3d18 --clip 16 112 112 --batch 4   # the fourth alone
    python benchmarks/step.py --distributions --backbone r3d18 --clip 16 112 112 --batch 4    # the fifth

The third table is CoCLR with the fastest switches: its step beside that of InfoNCE in the same run, what the
frozen sampler of the other view costs (one more forward pass), and what finding the positives costs
(similarities in the other view, top-k, masks, the own key dropped), each timed alone.

The fourth table is MoQuad: a step on four clips of each video, views included, and what building its
quadruples costs. *Sampling* is all that the workers draw for them, frame numbers and disturbances, one
video after another as if nothing ran beside it; *RAD* mixes still images into two of the four clips on the
device. Decoding is the same with and without, as long as the same frames are asked for.

The fifth table is ProViCo at the paper's size, 96 videos of 2 clips, 10 samples, 512 directions: head,
samples, distances, mining and loss, forward and backward, on features that are given, beside a step. Where
96 videos are too many for the device, the step is that of `--batch` videos, times 96 over the batch.

Each variant runs in a process of its own, several times in turn, and its fastest step counts. The bound is
the longer of two times that no implementation can beat:

    FLOPs / peak:      the convolutions and products of a step, counted, at the speed of the fastest of
                       large matrix products and pointwise convolutions in this precision
    bytes / bandwidth: what autograd keeps (`backbones.cost`) is written and read once forward and once
                       backward for the queries, written and read once for the keys, and 44 bytes per
                       parameter for Adam and the momentum update, at the speed of a large copy

Both speeds are measured in the same run."""

import argparse
import json
import os
import platform
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALL = {"channels_last": True, "fused": True, "foreach": True, "keep": True, "trials": True}
SWITCHES = {  # name -> settings that differ from the plain recipe
    "plain": {},
    "channels_last_3d": {"channels_last": True},
    "fused optimizer": {"fused": True},
    "fused momentum": {"foreach": True},
    "kept memory": {"keep": True},  # on a CPU
    "cuDNN trials": {"trials": True},  # on a GPU: keeps the fastest of its algorithms
    "compile": {"compile": True},
    "bfloat16": {"dtype": "bfloat16"},
    "all, float32": ALL,
    "all, bfloat16": ALL | {"dtype": "bfloat16"},
    "all, compile": ALL | {"compile": True},
    "all, bfloat16, compile": ALL | {"dtype": "bfloat16", "compile": True},
    "all, bfloat16, compile, recompute": ALL
    | {"dtype": "bfloat16", "compile": True, "recompute": True},
}


def set_up(o: dict) -> None:
    "The switches of a process."
    import torch
    from vssl_nb.training.machine import keep_memory

    if o.get("keep") and o["device"] == "cpu":
        keep_memory()
    torch.backends.cudnn.benchmark = o.get("trials", False)


def measure(o: dict) -> dict:
    "One variant, in this process: seconds per step, and memory."
    import torch
    from vssl_nb.nets.backbones import create
    from vssl_nb.ssl import mining, memory as momentum
    from vssl_nb.methods import coclr, infonce
    from vssl_nb.training.loop import make_optimizer
    from vssl_nb.training.machine import DTYPES, compile_parts
    from vssl_nb.training.loop import TrainingState, step_optimizer

    device = torch.device(o["device"])
    set_up(o)
    mines, queue = o.get("method") == "coclr", o.get("queue", 2048)
    encoder, sampler = create(o["backbone"]), create(o["backbone"], seed=1)
    if mines:
        method = coclr.CoCLR(encoder, sampler, queue=queue, same_source="ignored")
    else:
        method = infonce.InfoNCE(encoder, queue=queue)
    method.encoder.activation_checkpointing = o.get("recompute", False)
    method.to(device)
    if o.get("channels_last"):
        method.to(memory_format=torch.channels_last_3d)
    learn = [p for p in method.parameters() if p.requires_grad]
    if o.get("fused"):
        opt = make_optimizer(method)
    else:
        opt = torch.optim.Adam(learn, lr=1e-3, weight_decay=1e-5, foreach=False)
    if not o.get("foreach"):
        momentum.ema_update = one_by_one
    if o.get("compile") and not compile_parts(method, device):
        return {"failed": "nothing to compile with"}
    dtype = DTYPES[o.get("dtype", "float32")]
    g = torch.Generator().manual_seed(0)
    clips = torch.randn(o["batch"], 2, 3, *o["clip"], generator=g).to(device)
    run = TrainingState(method.train(), opt)
    batch = {k: torch.arange(o["batch"], device=device) for k in ("source", "label", "row")}
    batch |= {"rgb": clips, "flow": clips}
    if mines:  # as after the first steps: every slot of the queue holds a key
        ids = torch.arange(queue, device=device)
        method.queue.push(
            {v: torch.randn(queue, 128, device=device) for v in method.queue.views},
            source=ids,
            label=ids,
            row=ids,
        )

    def autocast():
        return torch.autocast(device.type, dtype, enabled=dtype != torch.float32)

    def step():
        with autocast():
            loss, _ = method(batch | {"step": run.step})
        loss.backward()
        step_optimizer(opt) if o.get("fused") else (opt.step(), opt.zero_grad())
        if hasattr(method, "after_step"):
            method.after_step(batch)
        run.step += 1

    def wait():
        if device.type == "cuda":
            torch.cuda.synchronize()

    try:
        begin = time.perf_counter()
        for _ in range(o["warmup"]):
            step()
        wait()
        first = time.perf_counter() - begin

        def timed(f, n):
            times = []
            for _ in range(n):
                begin = time.perf_counter()
                f()
                wait()
                times.append(time.perf_counter() - begin)
            return times

        times, parts = timed(step, o["steps"]), {}
        if mines:
            f = momentum.l2_normalize(torch.randn(o["batch"], 128, device=device))

            def sample():
                with autocast():
                    coclr.momentum_keys(method.sampler, clips[:, 1])

            def mine():
                sims = {v: f @ method.queue[v].T for v in reversed(method.queue.views)}
                found = mining.mine(
                    method.miner,
                    sims,
                    batch["source"],
                    method.queue.source,
                    method.queue.valid,
                    "ignored",
                )
                return coclr.with_mined(f, f, method.queue.keys, found, own=False)

            parts = {"sampler": timed(sample, o["steps"] + 1)[1:], "mining": timed(mine, 20)[1:]}
    except torch.OutOfMemoryError:
        return {"failed": "does not fit"}
    import resource

    memory = (
        torch.cuda.max_memory_allocated()
        if device.type == "cuda"
        else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    )
    found = {"seconds": times, "warmup": first, "memory": memory} | parts
    if o.get("profile"):
        found["profile"] = profile(step, device)
    return found


def quadruples(o: dict) -> dict:
    """MoQuad in this process: seconds of a step, of drawing quadruples, of disturbing their
    appearance.
    """
    from dataclasses import asdict

    import numpy as np
    import torch
    from torch.utils.data import default_collate
    from vssl_nb.data.augmentation import disturb_appearance
    from vssl_nb.runs.parts import build_method, training_draw, training_views
    from vssl_nb.training.machine import DTYPES, compile_parts
    from vssl_nb.training.loop import make_optimizer
    from vssl_nb.methods.recipes import find, override
    from vssl_nb.data.sampling import random_clips
    from vssl_nb.training.loop import step_optimizer

    device, (T, S, _) = torch.device(o["device"]), o["clip"]
    set_up(o)
    start = "moquad-toy" if o["backbone"] == "tiny" else "moquad-ucf101-r3d18"
    r = override(find(start), backbone=o["backbone"], length=T, size=S, batch=o["batch"])
    method, views, draw = build_method(r).to(device).train(), training_views(r), training_draw(r)
    if o.get("channels_last"):
        method.to(memory_format=torch.channels_last_3d)
    if o.get("compile") and not compile_parts(method, device):
        return {"failed": "nothing to compile with"}
    how = r.learning
    opt = make_optimizer(method, how.optimizer, how.lr, how.weight_decay, how.sgd_momentum)
    sampling, rng = asdict(r.sampling), np.random.default_rng(0)
    sampling.pop("same")

    def sample():
        for _ in range(o["batch"]):
            random_clips(10 * T, rng, **sampling)
            drawn.append(draw(rng, r.sampling.clips, T, 240, 320))

    def clips(*shape):
        return torch.randint(0, 256, shape, dtype=torch.uint8, generator=g).to(device)

    g, drawn = torch.Generator().manual_seed(0), list[dict]()
    raw = {"clips": clips(o["batch"], r.sampling.clips, T, S, S, 3)}
    sample()
    params = default_collate(drawn)
    x, dtype = raw["clips"].movedim(-1, 2).float().div_(255), DTYPES[o.get("dtype", "float32")]

    def step():
        # quadruples, not the appearance task
        batch = views(raw | {"augment": params}) | {"progress": 1.0}
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            loss, _ = method(batch)
        loss.backward()
        step_optimizer(opt)

    def fastest(f, n):
        times = []
        for _ in range(n):
            if device.type == "cuda":
                torch.cuda.synchronize()
            begin = time.perf_counter()
            f()
            if device.type == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
        return min(times)

    try:
        for _ in range(o["warmup"]):
            step()
        return {
            "seconds": [fastest(step, o["steps"])],
            "sampling": fastest(sample, 5),
            "rad": fastest(lambda: disturb_appearance(x, params), 5),
            "views": fastest(lambda: views(raw | {"augment": params}), 3),
        }
    except torch.OutOfMemoryError:
        return {"failed": "does not fit"}


VIDEOS, CLIPS, SAMPLES, DIM = 96, 2, 10, 512  # ProViCo: section 4.2; D is open


def distributions(o: dict) -> dict:
    """ProViCo in this process: seconds of a step, of all that comes after the encoder, and its
    memory.
    """
    import torch
    from torch import nn
    from vssl_nb.runs.parts import build_method
    from vssl_nb.training.machine import DTYPES, compile_parts
    from vssl_nb.methods.provico import ProViCo
    from vssl_nb.training.loop import make_optimizer
    from vssl_nb.methods.recipes import find, override
    from vssl_nb.training.loop import step_optimizer

    device, (T, S, _), dtype = (
        torch.device(o["device"]),
        o["clip"],
        DTYPES[o.get("dtype", "float32")],
    )
    set_up(o)
    r = override(
        find("provico-ucf101-r3d18"), backbone=o["backbone"], length=T, size=S, batch=o["batch"]
    )
    method = build_method(r).to(device).train()
    if o.get("channels_last"):
        method.to(memory_format=torch.channels_last_3d)
    if o.get("compile") and not compile_parts(method, device):
        return {"failed": "nothing to compile with"}
    how, g = r.learning, torch.Generator().manual_seed(0)
    opt = make_optimizer(method, how.optimizer, how.lr, how.weight_decay, how.sgd_momentum)
    clips = torch.randn(o["batch"], CLIPS, 3, T, S, S, generator=g).to(device)

    class Given(nn.Module):  # features of the paper's batch, in place of an encoder
        dim = 512

        def __init__(self):
            super().__init__()
            self.x = nn.Parameter(torch.randn(VIDEOS * CLIPS, 512, generator=g))

        def forward(self, _):
            return self.x

    after = ProViCo(Given(), mixture=CLIPS, samples=SAMPLES, dim=DIM).to(device)
    blank = torch.zeros(VIDEOS, CLIPS, 3, 1, 1, 1, device=device)

    def step():
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            loss, _ = method({"rgb": clips, "progress": 1.0})
        loss.backward()
        step_optimizer(opt)

    def loss_alone():
        loss, _ = after({"rgb": blank, "progress": 1.0})  # past the instance stage: it mines
        loss.backward()
        after.zero_grad()

    kept = 0

    def keep(x):
        nonlocal kept
        kept += x.nbytes
        return x

    def fastest(f, n):
        times = []
        for _ in range(n):
            if device.type == "cuda":
                torch.cuda.synchronize()
            begin = time.perf_counter()
            f()
            if device.type == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
        return min(times)

    try:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            loss_alone()
        for _ in range(o["warmup"]):
            step()
        return {
            "seconds": [fastest(step, o["steps"])],
            "loss": fastest(loss_alone, 10),
            "saved_MB": kept / 1e6,
        }
    except torch.OutOfMemoryError:
        return {"failed": "does not fit"}


def one_by_one(slow, fast, m):
    "The momentum update of the plain recipe."
    for s, f in zip(slow.parameters(), fast.parameters()):
        s.data = s.data * m + f.data * (1 - m)


def profile(step, device) -> str:
    "Where the time of three steps goes."
    from torch.profiler import ProfilerActivity, profile

    with profile(
        activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")
    ) as p:
        for _ in range(3):
            step()
    return p.key_averages().table(
        sort_by=f"self_{device.type}_time_total", row_limit=25, max_name_column_width=70
    )


def speeds(o: dict) -> dict:
    "FLOP per second of a matrix product and bytes per second of a copy here, the best of several."
    import torch

    device, found = torch.device(o["device"]), {}

    def best(f, n=8):
        fastest = float("inf")
        for _ in range(n):
            if device.type == "cuda":
                torch.cuda.synchronize()
            begin = time.perf_counter()
            f()
            if device.type == "cuda":
                torch.cuda.synchronize()
            fastest = min(fastest, time.perf_counter() - begin)
        return fastest

    n = 8192 if device.type == "cuda" else 1536
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
        # on some CPUs the library behind the convolutions is faster than the one behind matrix
        # products
        last = dict(memory_format=torch.channels_last_3d)
        conv = torch.nn.Conv3d(512, 512, 1, bias=False, device=device, dtype=dtype).to(**last)
        conv.requires_grad_(False)
        x = torch.randn(8, 512, 4, 32, 32, device=device).to(dtype).contiguous(**last)
        found[name] = max(
            2 * n**3 / best(lambda: a @ b), 2 * x.numel() * 512 / best(lambda: conv(x))
        )
    x = torch.empty(2**30 if device.type == "cuda" else 2**26, device=device)
    y = torch.empty_like(x)
    found["bytes"] = 2 * x.nbytes / best(lambda: y.copy_(x))
    return found


def bound(o: dict, speed: dict) -> dict:
    "Seconds that a step takes at least, from its FLOPs and from its bytes."
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from vssl_nb.nets.backbones import cost, create

    c, dtype = cost(create(o["backbone"]), tuple(o["clip"])), o.get("dtype", "float32")
    with FlopCounterMode(display=False) as both:
        create(o["backbone"]).to("meta")(
            torch.empty(1, 3, *o["clip"], device="meta")
        ).sum().backward()
    half = 0.5 if dtype == "bfloat16" else 1
    flops, traffic = (
        o["batch"] * (both.get_total_flops() + c.flops),
        o["batch"] * 6 * c.saved * half + 44 * c.params,
    )
    return {"flops": flops / speed[dtype], "bytes": traffic / speed["bytes"]}


def child(what: str, o: dict) -> dict:
    "Run `what` in a process of its own, which has imported PyTorch and nothing else has run in."
    fresh = multiprocessing.get_context("forkserver")
    fresh.set_forkserver_preload(["torch._dynamo", "vssl_nb.runs.pretraining"])
    with ProcessPoolExecutor(1, mp_context=fresh) as pool:
        try:
            return pool.submit(globals()[what], o).result()
        except Exception as e:
            return {"failed": f"{type(e).__name__}: {e}"[:200]}


def portable(text: str) -> str:
    "A text whose paths begin at the repository: results name no folder of a machine."
    return text.replace(f"{ROOT}/", "").replace(f"{Path(sys.executable).parent}/", "")


def command() -> str:
    return portable(" ".join(sys.argv))


def machine(device: str) -> dict:
    import torch

    info = Path("/proc/cpuinfo")
    said = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":")[1].strip() for line in said if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def row(name: str, o: dict, found: dict, base: float | None, speed: dict) -> dict:
    r = {"variant": name, "batch": o["batch"]}
    if "failed" in found:
        return r | {"failed": found["failed"]}
    seconds, least = min(found["seconds"]), bound(o, speed)
    return r | {
        "seconds": seconds,
        "ratio": base and base / seconds,
        "clips_per_s": o["batch"] / seconds,
        "memory_GB": found["memory"] / 1e9,
        "of_flops": least["flops"] / seconds,
        "of_bytes": least["bytes"] / seconds,
        "of_bound": max(least.values()) / seconds,
        "first_s": found["warmup"],
    }


def line(r: dict) -> str:
    if "failed" in r:
        return f"{r['variant']:36}{r['batch']:>6}   {r['failed']}"
    ratio = f"{r['ratio']:>7.2f}" if r["ratio"] else f"{'':>7}"
    return (
        f"{r['variant']:36}{r['batch']:>6}{1000 * r['seconds']:>10.1f}{ratio}{r['clips_per_s']:>10.2f}"
        f"{r['memory_GB']:>9.2f}{r['of_flops']:>9.1%}{r['of_bytes']:>9.1%}{r['of_bound']:>9.1%}"
    )


HEAD = (
    f"{'variant':36}{'batch':>6}{'ms/step':>10}{'ratio':>7}{'clips/s':>10}{'GB':>9}"
    f"{'of FLOPs':>9}{'of bytes':>9}{'of bound':>9}"
)


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--device", default="auto")
    p.add_argument("--backbone", default="s3d")
    p.add_argument("--clip", type=int, nargs=3, default=(32, 128, 128), metavar=("T", "H", "W"))
    p.add_argument(
        "--batch", type=int, help="of the comparison; 2 on a CPU, 32 on a GPU if not given"
    )
    p.add_argument(
        "--sizes",
        type=int,
        nargs="*",
        help="batch sizes of the second table; doubled until nothing fits on a GPU if not given",
    )
    p.add_argument("--steps", type=int, help="timed steps of each process")
    p.add_argument("--rounds", type=int, default=2, help="processes of each variant, in turn")
    p.add_argument("--only", nargs="*", help="variants to compare with the plain one")
    p.add_argument(
        "--further",
        choices=[n for n in SWITCHES if n != "plain"],
        metavar="VARIANT",
        help="of all tables but the first; the fastest if not given",
    )
    p.add_argument(
        "--queues",
        type=int,
        nargs="+",
        default=(2048, 16384),
        help="CoCLR's; those of UCF101 and Kinetics-400 if not given (supplement 1.3)",
    )
    p.add_argument("--quadruples", action="store_true", help="the fourth table alone")
    p.add_argument("--distributions", action="store_true", help="the fifth table alone")
    p.add_argument("--profile", action="store_true", help="where the time of a step goes")
    p.add_argument("--first", action="store_true", help="the first table (and the profile) alone")
    p.add_argument("--out", help="a .json file for the results")
    a = p.parse_args()
    import torch

    device = ("cuda" if torch.cuda.is_available() else "cpu") if a.device == "auto" else a.device
    gpu = device == "cuda"
    common = {
        "device": device,
        "backbone": a.backbone,
        "clip": list(a.clip),
        "steps": a.steps or (10 if gpu else 2),
        "warmup": 5 if gpu else 1,
    }
    batch = a.batch or (32 if gpu else 2)
    names = ["plain"] + [
        n
        for n in SWITCHES
        if n != "plain"
        and (not a.only or n in a.only)
        and n != ("kept memory" if gpu else "cuDNN trials")
    ]
    where = machine(device)

    def quickest(found: dict) -> float:
        return min(found.get("seconds", [float("inf")]))

    def fastest(name: str, batch: int, rounds: int, what: str = "measure", **more) -> dict:
        many = [
            child(what, common | {"batch": batch} | SWITCHES[name] | more) for _ in range(rounds)
        ]
        return min(many, key=quickest)

    def moquad(choice: str) -> list[dict]:
        "The fourth table."
        print(
            "\nMoQuad, "
            f"{choice}\n{'batch':>6}{'step ms':>10}{'sampling ms':>13}{'RAD ms':>9}{'both':>8}"
            f"{'views ms':>10}",
            flush=True,
        )
        r = {"batch": batch} | fastest(choice, batch, a.rounds, "quadruples")
        if "failed" in r:
            print(f"{batch:>6}   {r['failed']}", flush=True)
        else:
            r["seconds"] = min(r["seconds"])
            r["share"] = (r["sampling"] + r["rad"]) / r["seconds"]
            print(
                f"{batch:>6}{1000 * r['seconds']:>10.1f}{1000 * r['sampling']:>13.2f}{1000 * r['rad']:>9.2f}"
                f"{r['share']:>8.2%}{1000 * r['views']:>10.2f}",
                flush=True,
            )
        return [r]

    def provico(choice: str) -> list[dict]:
        "The fifth table."
        print(
            "\nProViCo, "
            f"{choice}\n{'batch':>6}{'step ms':>10}{'of 96 ms':>11}{'loss ms':>9}{'share':>8}"
            f"{'saved MB':>10}",
            flush=True,
        )
        r = {"batch": batch} | fastest(choice, batch, a.rounds, "distributions")
        if "failed" in r:
            print(f"{batch:>6}   {r['failed']}", flush=True)
        else:
            r["seconds"] = min(r["seconds"])
            r["of_all"] = r["seconds"] * VIDEOS / batch
            r["share"] = r["loss"] / r["of_all"]
            print(
                f"{batch:>6}{1000 * r['seconds']:>10.1f}{1000 * r['of_all']:>11.1f}{1000 * r['loss']:>9.2f}"
                f"{r['share']:>8.2%}{r['saved_MB']:>10.1f}",
                flush=True,
            )
        return [r]

    if a.quadruples or a.distributions:
        print(
            f"{where['gpu'] or where['cpu']}, {where['threads']} threads, torch {where['torch']}; "
            f"{a.backbone} at {' x '.join(map(str, a.clip))}"
        )
        choice = (a.only or ["all, bfloat16" if gpu else "all, float32"])[0]
        tables = ({"moquad": moquad(choice)} if a.quadruples else {}) | (
            {"provico": provico(choice)} if a.distributions else {}
        )
        if a.out:
            Path(a.out).write_text(
                json.dumps(
                    {
                        "what": "benchmarks/step.py",
                        "date": time.strftime("%Y-%m-%d"),
                        "command": command(),
                        "machine": where,
                        "backbone": a.backbone,
                        "clip": list(a.clip),
                        "variant": choice,
                    }
                    | tables,
                    indent=1,
                )
                + "\n"
            )
        return
    results: dict = {
        "what": "benchmarks/step.py",
        "date": time.strftime("%Y-%m-%d"),
        "command": command(),
        "machine": where,
        "backbone": a.backbone,
        "clip": list(a.clip),
    }

    def keep(
        **tables,
    ) -> None:  # at once: what was measured stays when the clock stops the rest
        results.update(tables)
        if a.out:
            Path(a.out).write_text(json.dumps(results, indent=1) + "\n")

    speed = child("speeds", common)
    print(
        f"{where['gpu'] or where['cpu']}, {where['threads']} threads, torch {where['torch']}; "
        f"{a.backbone} at {' x '.join(map(str, a.clip))}"
    )
    print(
        f"products {speed['float32'] / 1e12:.2f} TFLOP/s float32, {speed['bfloat16'] / 1e12:.2f} "
        "bfloat16; "
        f"copy {speed['bytes'] / 1e9:.1f} GB/s\n\n{HEAD}",
        flush=True,
    )

    best: dict[str, dict] = {}
    for _ in range(a.rounds):  # in turn, so that a slow minute of the machine hits all
        for name in names:
            found = fastest(name, batch, 1)
            if name not in best or quickest(found) < quickest(best[name]):
                best[name] = found
    base = min(best["plain"]["seconds"]) if "seconds" in best["plain"] else None
    table = [row(n, common | {"batch": batch} | SWITCHES[n], best[n], base, speed) for n in names]
    print("\n".join(map(line, table)), flush=True)
    keep(speeds=speed, switches=table)

    good = [r for r in table if "seconds" in r and "recompute" not in r["variant"]]
    choice = a.further or min(good, key=lambda r: r["seconds"])["variant"]
    if a.profile:
        shown = fastest(choice, batch, 1, profile=True).get("profile")
        print(f"\n{choice}\n{shown}", flush=True)
        keep(profile=shown)
    if a.first:
        return
    print(f"\n{choice}, by batch size\n{HEAD}", flush=True)
    sizes, scaling = [2**i for i in range(3, 12)] if gpu else [1, 2, 4], []
    if a.sizes is not None:
        sizes = a.sizes
    for size in sizes:
        o = common | {"batch": size} | SWITCHES[choice]
        scaling.append(row(choice, o, fastest(choice, size, 1), None, speed))
        print(line(scaling[-1]), flush=True)
        keep(by_batch=scaling)
        if "failed" in scaling[-1]:
            break
    print(
        f"\nCoCLR, {choice}, batch "
        f"{batch}\n{'queue':>6}{'InfoNCE ms':>12}{'CoCLR ms':>10}{'ratio':>7}"
        f"{'sampler ms':>12}{'share':>8}{'mining ms':>11}{'share':>8}",
        flush=True,
    )
    mining = []
    for queue in a.queues:
        o = {"batch": batch, "queue": queue}
        alone, found = (
            fastest(choice, batch, a.rounds, queue=queue, method=m) for m in ("infonce", "coclr")
        )
        if "failed" in alone or "failed" in found:
            print(f"{queue:>6}   {alone.get('failed') or found['failed']}", flush=True)
            continue
        seconds = {
            "infonce": min(alone["seconds"]),
            "coclr": min(found["seconds"]),
            "sampler": min(found["sampler"]),
            "mining": min(found["mining"]),
        }
        r = (
            o
            | seconds
            | {"ratio": seconds["coclr"] / seconds["infonce"], "memory_GB": found["memory"] / 1e9}
        )
        r |= {f"{k}_share": seconds[k] / seconds["coclr"] for k in ("sampler", "mining")}
        mining.append(r)
        print(
            f"{queue:>6}{1000 * r['infonce']:>12.1f}{1000 * r['coclr']:>10.1f}{r['ratio']:>7.2f}"
            f"{1000 * r['sampler']:>12.1f}{r['sampler_share']:>8.1%}{1000 * r['mining']:>11.2f}"
            f"{r['mining_share']:>8.2%}",
            flush=True,
        )
        keep(coclr=mining)
    keep(moquad=moquad(choice))
    keep(provico=provico(choice))


if __name__ == "__main__":
    main()
