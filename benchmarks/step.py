"""How fast is a training step, and what does each switch bring?

A step of InfoNCE with a queue: queries and keys forward, loss, backward, optimizer, momentum
encoder, queue. The baseline, measured in the same run, is the plain recipe of the released code in
today's PyTorch: float32, contiguous tensors, eager, Adam and the momentum encoder in a loop over
parameters, the allocator as it comes. Clips are random and already on the device; decoding and
augmentation have their own columns in a run's times.csv.

    python benchmarks/step.py                                # CPU or GPU, S3D at 32 x 128 x 128
    python benchmarks/step.py --device cuda --out results/step-h200.json --profile
    python benchmarks/step.py --only 'all, float32' --sizes 2       # the third table soon
    # the fourth and the fifth alone
    python benchmarks/step.py --quadruples --backbone r3d18 --clip 16 112 112 --batch 4
    python benchmarks/step.py --distributions --backbone r3d18 --clip 16 112 112 --batch 4

The third table is CoCLR with the fastest switches: its step beside that of InfoNCE in the same run,
what the frozen sampler of the other view costs (one more forward pass), and what finding the
positives costs (similarities in the other view, top-k, masks, the own key dropped), each timed
alone.

The fourth table is MoQuad: a step on four clips of each video, views included, and what building
its quadruples costs. *Sampling* is all that the workers draw for them, frame numbers and
disturbances, one video after another as if nothing ran beside it; *RAD* mixes still images into two
of the four clips on the device. Decoding is the same with and without, as long as the same frames
are asked for.

The fifth table is ProViCo at the paper's size, 96 videos of 2 clips, 10 samples, 512 directions:
head, samples, distances, mining and loss, forward and backward, on features that are given, beside
a step. Where 96 videos are too many for the device, the step is that of `--batch` videos, times 96
over the batch.

Each variant runs in a process of its own, several times in turn, and its fastest step counts. The
bound is the longer of two times that no implementation can beat:

    FLOPs / peak:      the convolutions and products of a step, counted, at the speed of the
                       fastest of large matrix products and pointwise convolutions in this
                       precision
    bytes / bandwidth: what autograd keeps (`backbones.cost`) is written and read once forward and
                       once backward for the queries, written and read once for the keys, and 44
                       bytes per parameter for Adam and the momentum update, at the speed of a
                       large copy

Both speeds are measured in the same run."""

import multiprocessing
import resource
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import measurement
import numpy as np
import torch
from measurement import fastest, seconds_of
from result_files import Stamp, settings_of, write_results
from torch import Tensor, nn, profiler
from torch.utils.data import default_collate
from torch.utils.flop_counter import FlopCounterMode

from vssl_nb.data.augmentation import disturb_appearance
from vssl_nb.data.sampling import random_clips
from vssl_nb.methods.coclr import CoCLR, momentum_keys, with_mined
from vssl_nb.methods.infonce import InfoNCE
from vssl_nb.methods.provico import ProViCo
from vssl_nb.methods.recipes import find, override
from vssl_nb.nets.backbones import cost, create
from vssl_nb.runs.experiment import resolve, training_draw
from vssl_nb.ssl import memory as momentum
from vssl_nb.ssl.mining import mine
from vssl_nb.training.loop import TrainingState, make_optimizer, step_optimizer
from vssl_nb.training.machine import DTYPES, compile_parts, keep_memory

ALL = {"channels_last": True, "fused": True, "foreach": True, "keep": True, "trials": True}
FAST = ALL | {"dtype": "bfloat16"}
SWITCHES: dict[str, dict[str, Any]] = {  # name -> settings that differ from the plain recipe
    "plain": {},
    "channels_last_3d": {"channels_last": True},
    "fused optimizer": {"fused": True},
    "fused momentum": {"foreach": True},
    "kept memory": {"keep": True},  # on a CPU
    "cuDNN trials": {"trials": True},  # on a GPU: keeps the fastest of its algorithms
    "compile": {"compile": True},
    "bfloat16": {"dtype": "bfloat16"},
    "all, float32": ALL,
    "all, bfloat16": FAST,
    "all, compile": ALL | {"compile": True},
    "all, bfloat16, compile": FAST | {"compile": True},
    "all, bfloat16, compile, recompute": FAST | {"compile": True, "recompute": True},
}
# ProViCo: section 4.2; D is open
VIDEOS, CLIPS, SAMPLES, DIM = 96, 2, 10, 512
KEYS = 128  # numbers of a key of CoCLR
SAME_SOURCE = "ignored"
NO_COMPILER = {"failed": "nothing to compile with"}
TOO_LARGE = {"failed": "does not fit"}

Settings = dict[str, Any]  # of a variant; see `Variant`


class Variant:
    "The switches of a process, and what they do."

    def __init__(self, o: Settings):
        self.o = o
        self.device = torch.device(o["device"])
        self.dtype = DTYPES[o.get("dtype", "float32")]
        if o.get("keep") and o["device"] == "cpu":
            keep_memory()
        torch.backends.cudnn.benchmark = o.get("trials", False)

    def autocast(self) -> torch.autocast:
        is_half = self.dtype != torch.float32
        return torch.autocast(self.device.type, self.dtype, enabled=is_half)

    def prepare(self, method: nn.Module) -> bool:
        "Place a method and compile it; is there a compiler where one is wanted?"
        method.to(self.device).train()
        if self.o.get("channels_last"):
            method.to(memory_format=torch.channels_last_3d)
        return not self.o.get("compile") or compile_parts(method, self.device)

    def seconds(self, work: Callable[[], Any], calls: int) -> list[float]:
        return [seconds_of(work, self.device) for _ in range(calls)]

    def fastest(self, work: Callable[[], Any], calls: int) -> float:
        return fastest(work, calls, self.device)[0]

    def memory(self) -> int:
        "Bytes at most: of PyTorch's allocator on a GPU, of the process on a CPU."
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated()
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def one_by_one(slow: nn.Module, fast: nn.Module, m: float) -> None:
    "The momentum update of the plain recipe."
    for s, f in zip(slow.parameters(), fast.parameters()):
        s.data = s.data * m + f.data * (1 - m)


# ---- a step of InfoNCE or CoCLR


class ContrastiveStep:
    "A step with a queue, on random clips."

    def __init__(self, variant: Variant, method: nn.Module):
        self.variant, self.method = variant, method
        o, device = variant.o, variant.device
        if o.get("fused"):
            self.optimizer = make_optimizer(method)
        else:
            learn = [p for p in method.parameters() if p.requires_grad]
            self.optimizer = torch.optim.Adam(learn, lr=1e-3, weight_decay=1e-5, foreach=False)
        g = torch.Generator().manual_seed(0)
        self.clips = torch.randn(o["batch"], 2, 3, *o["clip"], generator=g).to(device)
        ids = torch.arange(o["batch"], device=device)
        self.batch = {"source": ids, "label": ids.clone(), "row": ids.clone()}
        self.batch |= {"rgb": self.clips, "flow": self.clips}
        self.run = TrainingState(method, self.optimizer)

    def __call__(self) -> None:
        with self.variant.autocast():
            loss, _ = self.method(self.batch | {"step": self.run.step})
        loss.backward()
        if self.variant.o.get("fused"):
            step_optimizer(self.optimizer)
        else:
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.method.after_step(self.batch)
        self.run.step += 1


def fill(queue: momentum.Queue, device: torch.device) -> None:
    "As after the first steps: every slot holds a key."
    ids = torch.arange(queue.size, device=device)
    keys = {view: torch.randn(len(ids), KEYS, device=device) for view in queue.views}
    queue.push(keys, source=ids, label=ids, row=ids)


def parts_of_coclr(step: ContrastiveStep) -> dict[str, list[float]]:
    "Seconds of the sampler, and of mining, each alone."
    variant, method, batch = step.variant, step.method, step.batch
    queue = method.queue
    features = torch.randn(variant.o["batch"], KEYS, device=variant.device)
    f = momentum.l2_normalize(features)

    def sample() -> None:
        with variant.autocast():
            momentum_keys(method.sampler, step.clips[:, 1])

    def mine_and_match() -> None:
        sims = {view: f @ queue[view].T for view in reversed(queue.views)}
        mined = mine(method.miner, sims, batch["source"], queue.source, queue.valid, SAME_SOURCE)
        with_mined(f, f, queue.keys, mined, own=False)

    return {
        "sampler": variant.seconds(sample, variant.o["steps"] + 1)[1:],
        "mining": variant.seconds(mine_and_match, 20),
    }


def profile(step: Callable[[], Any], device: torch.device) -> str:
    "Where the time of three steps goes."
    activities = [profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(profiler.ProfilerActivity.CUDA)
    with profiler.profile(activities=activities) as p:
        for _ in range(3):
            step()
    return p.key_averages().table(
        sort_by=f"self_{device.type}_time_total", row_limit=25, max_name_column_width=70
    )


def measure(o: Settings) -> dict[str, Any]:
    "One variant, in this process: seconds per step, and memory."
    variant = Variant(o)
    queue = o.get("queue", 2048)
    is_coclr = o.get("method") == "coclr"
    encoder = create(o["backbone"])
    if is_coclr:
        sampler = create(o["backbone"], seed=1)
        method = CoCLR(encoder, sampler, queue=queue, same_source=SAME_SOURCE)
    else:
        method = InfoNCE(encoder, queue=queue)
    method.encoder.activation_checkpointing = o.get("recompute", False)
    if not o.get("foreach"):
        momentum.ema_update = one_by_one
    if not variant.prepare(method):
        return NO_COMPILER

    step = ContrastiveStep(variant, method)
    if is_coclr:
        fill(method.queue, variant.device)
    try:
        first = variant.seconds(step, o["warmup"])
        results: dict[str, Any] = {"seconds": variant.seconds(step, o["steps"])}
        results["warmup"] = sum(first)
        if is_coclr:
            results |= parts_of_coclr(step)
    except torch.OutOfMemoryError:
        return TOO_LARGE
    results["memory"] = variant.memory()
    if o.get("profile"):
        results["profile"] = profile(step, variant.device)
    return results


# ---- MoQuad


class Quadruples:
    "A step on four clips of each video, and what building them costs."

    def __init__(self, variant: Variant):
        self.variant, o = variant, variant.o
        T, S, _ = o["clip"]
        start = "moquad-toy" if o["backbone"] == "tiny" else "moquad-ucf101-r3d18"
        recipe = override(find(start), backbone=o["backbone"], length=T, size=S, batch=o["batch"])
        learning, self.clips, self.length = recipe.learning, recipe.sampling.clips, T
        experiment = resolve(recipe)
        self.method, self.views = experiment.method, experiment.views
        self.draw = training_draw(recipe)
        self.optimizer = make_optimizer(
            self.method,
            learning.optimizer,
            learning.lr,
            learning.weight_decay,
            learning.sgd_momentum,
        )
        self.sampling, self.rng = asdict(recipe.sampling), np.random.default_rng(0)
        self.sampling.pop("same")
        shape = (o["batch"], self.clips, T, S, S, 3)
        g = torch.Generator().manual_seed(0)
        raw = torch.randint(0, 256, shape, dtype=torch.uint8, generator=g).to(variant.device)
        self.raw = {"clips": raw, "augment": default_collate(self.sample())}
        self.floats = raw.movedim(-1, 2).float().div_(255)

    def sample(self) -> list[dict[str, Tensor]]:
        "All that the workers draw for the quadruples of a batch."
        drawn = []
        for _ in range(self.variant.o["batch"]):
            random_clips(10 * self.length, self.rng, **self.sampling)
            drawn.append(self.draw(self.rng, self.clips, self.length, 240, 320))
        return drawn

    def disturb(self) -> None:
        "RAD alone."
        disturb_appearance(self.floats, self.raw["augment"])

    def augment(self) -> dict[str, Tensor]:
        return self.views(dict(self.raw))

    def step(self) -> None:
        # quadruples, not the appearance task
        batch = self.augment() | {"progress": 1.0}
        with self.variant.autocast():
            loss, _ = self.method(batch)
        loss.backward()
        step_optimizer(self.optimizer)


def quadruples(o: Settings) -> dict[str, Any]:
    """MoQuad in this process: seconds of a step, of drawing quadruples, of disturbing their
    appearance.
    """
    variant = Variant(o)
    q = Quadruples(variant)
    if not variant.prepare(q.method):
        return NO_COMPILER
    try:
        variant.seconds(q.step, o["warmup"])
        return {
            "seconds": [variant.fastest(q.step, o["steps"])],
            "sampling": variant.fastest(q.sample, 5),
            "rad": variant.fastest(q.disturb, 5),
            "views": variant.fastest(q.augment, 3),
        }
    except torch.OutOfMemoryError:
        return TOO_LARGE


# ---- ProViCo


class GivenFeatures(nn.Module):
    "Features of the paper's batch, in place of an encoder."

    dim = 512

    def __init__(self, g: torch.Generator):
        super().__init__()
        self.x = nn.Parameter(torch.randn(VIDEOS * CLIPS, self.dim, generator=g))

    def forward(self, clips: Tensor) -> Tensor:
        return self.x


class ProViCoSteps:
    "A step, and all that comes after the encoder at the paper's size."

    def __init__(self, variant: Variant):
        self.variant, o = variant, variant.o
        T, S, _ = o["clip"]
        recipe = override(
            find("provico-ucf101-r3d18"), backbone=o["backbone"], length=T, size=S, batch=o["batch"]
        )
        learning = recipe.learning
        self.method = resolve(recipe).method
        self.optimizer = make_optimizer(
            self.method,
            learning.optimizer,
            learning.lr,
            learning.weight_decay,
            learning.sgd_momentum,
        )
        g = torch.Generator().manual_seed(0)
        self.clips = torch.randn(o["batch"], CLIPS, 3, T, S, S, generator=g).to(variant.device)
        given = GivenFeatures(g)
        self.after = ProViCo(given, mixture=CLIPS, samples=SAMPLES, dim=DIM).to(variant.device)
        self.blank = torch.zeros(VIDEOS, CLIPS, 3, 1, 1, 1, device=variant.device)

    def step(self) -> None:
        with self.variant.autocast():
            loss, _ = self.method({"rgb": self.clips, "progress": 1.0})
        loss.backward()
        step_optimizer(self.optimizer)

    def loss_alone(self) -> None:
        "Past the instance stage: it mines."
        loss, _ = self.after({"rgb": self.blank, "progress": 1.0})
        loss.backward()
        self.after.zero_grad()

    def saved_bytes(self) -> int:
        "What autograd keeps for the loss."
        sizes = []

        def keep(x: Tensor) -> Tensor:
            sizes.append(x.nbytes)
            return x

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            self.loss_alone()
        return sum(sizes)


def distributions(o: Settings) -> dict[str, Any]:
    """ProViCo in this process: seconds of a step, of all that comes after the encoder, and its
    memory.
    """
    variant = Variant(o)
    p = ProViCoSteps(variant)
    if not variant.prepare(p.method):
        return NO_COMPILER
    try:
        saved = p.saved_bytes()
        variant.seconds(p.step, o["warmup"])
        return {
            "seconds": [variant.fastest(p.step, o["steps"])],
            "loss": variant.fastest(p.loss_alone, 10),
            "saved_MB": saved / 1e6,
        }
    except torch.OutOfMemoryError:
        return TOO_LARGE


# ---- what no implementation can beat


def speeds(o: Settings) -> dict[str, float]:
    "FLOP per second of a matrix product and bytes per second of a copy here, the best of several."
    device = torch.device(o["device"])
    gpu = device.type == "cuda"

    def best(work: Callable[[], Any]) -> float:
        return fastest(work, 8, device)[0]

    n = 8192 if gpu else 1536
    results = {}
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
        # on some CPUs the library behind the convolutions is faster than the one behind matrix
        # products
        last = dict(memory_format=torch.channels_last_3d)
        conv = nn.Conv3d(512, 512, 1, bias=False, device=device, dtype=dtype).to(**last)
        conv.requires_grad_(False)
        x = torch.randn(8, 512, 4, 32, 32, device=device).to(dtype).contiguous(**last)
        product = 2 * n**3 / best(lambda: a @ b)
        pointwise = 2 * x.numel() * 512 / best(lambda: conv(x))
        results[name] = max(product, pointwise)
    x = torch.empty(2**30 if gpu else 2**26, device=device)
    y = torch.empty_like(x)
    results["bytes"] = 2 * x.nbytes / best(lambda: y.copy_(x))
    return results


def bound(o: Settings, speed: dict[str, float]) -> dict[str, float]:
    "Seconds that a step takes at least, from its FLOPs and from its bytes."
    costs, dtype = cost(create(o["backbone"]), tuple(o["clip"])), o.get("dtype", "float32")
    with FlopCounterMode(display=False) as counted:
        x = torch.empty(1, 3, *o["clip"], device="meta")
        create(o["backbone"]).to("meta")(x).sum().backward()
    flops = o["batch"] * (counted.get_total_flops() + costs.flops)
    half = 0.5 if dtype == "bfloat16" else 1
    traffic = o["batch"] * 6 * costs.saved * half + 44 * costs.params
    return {"flops": flops / speed[dtype], "bytes": traffic / speed["bytes"]}


def child(
    work: str,  # the name of a function of this script
    o: Settings,
) -> dict[str, Any]:
    "Run it in a process of its own, which has imported PyTorch and nothing else has run in."
    fresh = multiprocessing.get_context("forkserver")
    fresh.set_forkserver_preload(["torch._dynamo", "vssl_nb.runs.pretraining"])
    with ProcessPoolExecutor(1, mp_context=fresh) as pool:
        try:
            return pool.submit(globals()[work], o).result()
        except Exception as e:
            return {"failed": f"{type(e).__name__}: {e}"[:200]}


# ---- the tables

HEAD = (
    f"{'variant':36}{'batch':>6}{'ms/step':>10}{'ratio':>7}{'clips/s':>10}{'GB':>9}"
    f"{'of FLOPs':>9}{'of bytes':>9}{'of bound':>9}"
)


def row(
    name: str,
    o: Settings,
    measured: dict[str, Any],
    base: float | None,  # seconds of the plain recipe
    speed: dict[str, float],
) -> dict[str, Any]:
    "A line of the first two tables."
    line: dict[str, Any] = {"variant": name, "batch": o["batch"]}
    if "failed" in measured:
        return line | {"failed": measured["failed"]}
    seconds, least = min(measured["seconds"]), bound(o, speed)
    return line | {
        "seconds": seconds,
        "ratio": base and base / seconds,
        "clips_per_s": o["batch"] / seconds,
        "memory_GB": measured["memory"] / 1e9,
        "of_flops": least["flops"] / seconds,
        "of_bytes": least["bytes"] / seconds,
        "of_bound": max(least.values()) / seconds,
        "first_s": measured["warmup"],
    }


def as_text(r: dict[str, Any]) -> str:
    if "failed" in r:
        return f"{r['variant']:36}{r['batch']:>6}   {r['failed']}"
    ratio = f"{r['ratio']:.2f}" if r["ratio"] else ""
    return (
        f"{r['variant']:36}{r['batch']:>6}{1000 * r['seconds']:>10.1f}{ratio:>7}"
        f"{r['clips_per_s']:>10.2f}{r['memory_GB']:>9.2f}{r['of_flops']:>9.1%}"
        f"{r['of_bytes']:>9.1%}{r['of_bound']:>9.1%}"
    )


def quickest(measured: dict[str, Any]) -> float:
    return min(measured.get("seconds", [float("inf")]))


class Tables:
    "The tables of the command line, each written as soon as it is there."

    def __init__(self, a: Any):
        self.a = a
        device = a.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self.gpu = device == "cuda"
        self.batch = a.batch or (32 if self.gpu else 2)
        self.common = {
            "device": device,
            "backbone": a.backbone,
            "clip": list(a.clip),
            "steps": a.steps or (10 if self.gpu else 2),
            "warmup": 5 if self.gpu else 1,
        }
        self.stamp = Stamp(__file__, settings_of(a), device)
        self.results: dict[str, Any] = {"backbone": a.backbone, "clip": list(a.clip)}
        self.speed: dict[str, float] = {}

    def keep(self, **tables: Any) -> None:
        "At once: what was measured stays when the clock stops the rest."
        self.results |= tables
        write_results(self.a.out, self.stamp.head() | self.results)

    def print_machine(self) -> None:
        machine = self.stamp.fields["machine"]
        print(
            f"{machine['gpu'] or machine['cpu']}, {machine['threads']} threads, torch "
            f"{machine['torch']}; {self.a.backbone} at {' x '.join(map(str, self.a.clip))}"
        )

    def settings(self, name: str, batch: int, **more: Any) -> Settings:
        return self.common | {"batch": batch} | SWITCHES[name] | more

    def fastest(
        self,
        name: str,  # of a variant
        batch: int,
        rounds: int,
        work: str = "measure",
        **more: Any,
    ) -> dict[str, Any]:
        "The process whose fastest step was the fastest."
        settings = self.settings(name, batch, **more)
        return min((child(work, settings) for _ in range(rounds)), key=quickest)

    # the first table

    def measure_speeds(self) -> None:
        self.speed = child("speeds", self.common)
        self.print_machine()
        print(
            f"products {self.speed['float32'] / 1e12:.2f} TFLOP/s float32, "
            f"{self.speed['bfloat16'] / 1e12:.2f} bfloat16; copy "
            f"{self.speed['bytes'] / 1e9:.1f} GB/s\n",
            flush=True,
        )

    def variants(self) -> list[str]:
        "The plain recipe, and what is compared with it on this device."
        not_here = "kept memory" if self.gpu else "cuDNN trials"
        chosen = self.a.only or list(SWITCHES)
        others = [n for n in SWITCHES if n in chosen and n not in ("plain", not_here)]
        return ["plain", *others]

    def switches(self) -> list[dict[str, Any]]:
        "Each switch alone, and all of them, in turn."
        ways = {
            name: partial(child, "measure", self.settings(name, self.batch))
            for name in self.variants()
        }
        rounds = measurement.in_turn(ways, self.a.rounds)
        best = {name: min(of_variant, key=quickest) for name, of_variant in rounds.items()}
        base = quickest(best["plain"]) if "seconds" in best["plain"] else None
        table = [
            row(name, self.settings(name, self.batch), measured, base, self.speed)
            for name, measured in best.items()
        ]
        print(HEAD)
        print("\n".join(map(as_text, table)), flush=True)
        return table

    def choice(self, table: list[dict[str, Any]]) -> str:
        "The variant of all other tables."
        if self.a.further:
            return self.a.further
        good = [r for r in table if "seconds" in r and "recompute" not in r["variant"]]
        return min(good, key=lambda r: r["seconds"])["variant"]

    # the others

    def by_batch(self, choice: str) -> None:
        print(f"\n{choice}, by batch size\n{HEAD}", flush=True)
        sizes = self.a.sizes
        if sizes is None:
            sizes = [2**i for i in range(3, 12)] if self.gpu else [1, 2, 4]
        table = []
        for size in sizes:
            measured = self.fastest(choice, size, 1)
            line = row(choice, self.settings(choice, size), measured, None, self.speed)
            table.append(line)
            print(as_text(line), flush=True)
            self.keep(by_batch=table)
            if "failed" in line:
                break

    def coclr(self, choice: str) -> None:
        "Beside InfoNCE, for each size of the queue."
        print(
            f"\nCoCLR, {choice}, batch {self.batch}\n{'queue':>6}{'InfoNCE ms':>12}{'CoCLR ms':>10}"
            f"{'ratio':>7}{'sampler ms':>12}{'share':>8}{'mining ms':>11}{'share':>8}",
            flush=True,
        )
        table = []
        for queue in self.a.queues:
            alone, whole = (
                self.fastest(choice, self.batch, self.a.rounds, queue=queue, method=method)
                for method in ("infonce", "coclr")
            )
            failure = alone.get("failed") or whole.get("failed")
            if failure:
                print(f"{queue:>6}   {failure}", flush=True)
                continue
            r = {"batch": self.batch, "queue": queue, "infonce": min(alone["seconds"])}
            r |= {"coclr": min(whole["seconds"])}
            r |= {part: min(whole[part]) for part in ("sampler", "mining")}
            r |= {"ratio": r["coclr"] / r["infonce"], "memory_GB": whole["memory"] / 1e9}
            r |= {f"{part}_share": r[part] / r["coclr"] for part in ("sampler", "mining")}
            table.append(r)
            print(
                f"{queue:>6}{1000 * r['infonce']:>12.1f}{1000 * r['coclr']:>10.1f}"
                f"{r['ratio']:>7.2f}{1000 * r['sampler']:>12.1f}{r['sampler_share']:>8.1%}"
                f"{1000 * r['mining']:>11.2f}{r['mining_share']:>8.2%}",
                flush=True,
            )
            self.keep(coclr=table)

    def moquad(self, choice: str) -> list[dict[str, Any]]:
        print(
            f"\nMoQuad, {choice}\n{'batch':>6}{'step ms':>10}{'sampling ms':>13}{'RAD ms':>9}"
            f"{'both':>8}{'views ms':>10}",
            flush=True,
        )
        measured = self.fastest(choice, self.batch, self.a.rounds, "quadruples")
        r = {"batch": self.batch} | measured
        if "failed" in r:
            print(f"{self.batch:>6}   {r['failed']}", flush=True)
            return [r]
        r["seconds"] = min(r["seconds"])
        r["share"] = (r["sampling"] + r["rad"]) / r["seconds"]
        print(
            f"{self.batch:>6}{1000 * r['seconds']:>10.1f}{1000 * r['sampling']:>13.2f}"
            f"{1000 * r['rad']:>9.2f}{r['share']:>8.2%}{1000 * r['views']:>10.2f}",
            flush=True,
        )
        return [r]

    def provico(self, choice: str) -> list[dict[str, Any]]:
        print(
            f"\nProViCo, {choice}\n{'batch':>6}{'step ms':>10}{'of 96 ms':>11}{'loss ms':>9}"
            f"{'share':>8}{'saved MB':>10}",
            flush=True,
        )
        measured = self.fastest(choice, self.batch, self.a.rounds, "distributions")
        r = {"batch": self.batch} | measured
        if "failed" in r:
            print(f"{self.batch:>6}   {r['failed']}", flush=True)
            return [r]
        r["seconds"] = min(r["seconds"])
        r["of_all"] = r["seconds"] * VIDEOS / self.batch
        r["share"] = r["loss"] / r["of_all"]
        print(
            f"{self.batch:>6}{1000 * r['seconds']:>10.1f}{1000 * r['of_all']:>11.1f}"
            f"{1000 * r['loss']:>9.2f}{r['share']:>8.2%}{r['saved_MB']:>10.1f}",
            flush=True,
        )
        return [r]

    def some(self) -> None:
        "The fourth and the fifth table alone."
        self.print_machine()
        usual = "all, bfloat16" if self.gpu else "all, float32"
        choice = (self.a.only or [usual])[0]
        self.keep(variant=choice)
        if self.a.quadruples:
            self.keep(moquad=self.moquad(choice))
        if self.a.distributions:
            self.keep(provico=self.provico(choice))

    def all(self) -> None:
        self.measure_speeds()
        table = self.switches()
        self.keep(speeds=self.speed, switches=table)
        choice = self.choice(table)
        if self.a.profile:
            shown = self.fastest(choice, self.batch, 1, profile=True).get("profile")
            print(f"\n{choice}\n{shown}", flush=True)
            self.keep(profile=shown)
        if self.a.first:
            return
        self.by_batch(choice)
        self.coclr(choice)
        self.keep(moquad=self.moquad(choice))
        self.keep(provico=self.provico(choice))


def main():
    p = measurement.parser(__doc__)
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
    p.add_argument("--out", type=Path, help="a .json file for the results")
    a = p.parse_args()
    tables = Tables(a)
    if a.quadruples or a.distributions:
        tables.some()
    else:
        tables.all()


if __name__ == "__main__":
    main()
