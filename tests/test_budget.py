"""The budget of a step against processes that really train, torch's own counters and real tensors.

Every recipe and fine-tuning takes its first steps on a pretended GPU, where each mistake is found
with its line.
"""

import json
import re
import resource
import sys
from dataclasses import astuple, replace
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import Tensor

from vssl_nb.app import cli
from vssl_nb.methods import coclr, infonce, simclr, ubernce
from vssl_nb.methods.recipes import RECIPES, find, override
from vssl_nb.measure.protocols import Protocol
from vssl_nb.nets.backbones import BACKBONES, create
from vssl_nb.runs.budget import FRACTION, GPUS, VIDEOS
from vssl_nb.runs.budget import forecast, largest_batch, plan, refuse_large_clips, refuse_too_large
from vssl_nb.runs.experiment import BlankVideos, resolve
from vssl_nb.runs.finetuning import TRAININGS
from vssl_nb.runs.pretended import PretendedGPU, WrongDevice
from vssl_nb.runs.trace import MemoryWatch, dry_run, trace_step
from vssl_nb.ssl import memory
from vssl_nb.training import loop
from vssl_nb.training.machine import Machine, MachineError

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))


@pytest.fixture
def script():
    import memory as script

    return script


@pytest.mark.parametrize("again", (False, True))
def test_a_process_that_trains_takes_what_was_computed(script, again):
    case = dict(backbone="tiny", batch=8, again=again)
    assert (
        abs(script.computed(case, "cpu") / script.measure(case, "resident")["measured"] - 1) < 0.15
    )


def test_kept_results_are_within_15_percent(script):
    rows = json.loads((ROOT / "results/memory-cpu.json").read_text())["rows"]
    assert [{k: r[k] for k in ("backbone", "batch", "again")} for r in rows] == script.CASES
    assert all(
        abs(r["computed"] / r[way] - 1) < 0.15 for r in rows for way in ("measured", "allocator")
    )
    assert len({r["backbone"] for r in rows}) == 3
    for case, row in zip(script.CASES[:2], rows):
        assert script.computed(case, "cpu") == pytest.approx(row["computed"], rel=0.01)


@pytest.mark.parametrize("name, again", (("infonce-toy-rgb", False), ("ubernce-toy-rgb", True)))
def test_real_tensors_come_and_go_as_those_without_numbers(script, monkeypatch, name, again):
    "The loop itself, its second step."
    recipe = override(find(name), batch=4, **({"queue": 8} if find(name).method.queue else {}))
    monkeypatch.setattr(loop, "keep_memory", lambda: False)
    begin = []
    with MemoryWatch(Tensor) as watch:
        script.train(recipe, again, "cpu", "float32", lambda: begin.append(len(watch.operations)))
    real = watch.trace(begin[0]).total.max()
    computed = trace_step(resolve(recipe), "float32", again).peak(ahead=False)
    assert sum(computed.values()) == pytest.approx(real, rel=0.02)


def test_flops_are_those_of_torchs_own_counter():
    from torch.utils.flop_counter import FlopCounterMode

    recipe = override(find("infonce-toy-rgb"), batch=4)
    method = resolve(recipe, BlankVideos(100), Machine("cpu")).method
    shape = (4, 2, 3, recipe.sampling.length, recipe.size, recipe.size)
    ids = torch.arange(4)
    with FlopCounterMode(display=False) as counted:
        loss, _ = method(
            {
                "rgb": torch.rand(shape, generator=torch.Generator().manual_seed(0)),
                "label": ids,
                "source": ids,
                "row": ids,
                "step": 0,
                "progress": 0.0,
            }
        )
        loss.backward()
    seen = trace_step(resolve(recipe), "float32")
    trained = seen.flops[(seen.parts == "forward") | (seen.parts == "backward")].sum()
    assert trained == pytest.approx(counted.get_total_flops(), rel=1e-6)


def test_half_precision_halves_what_is_kept():
    "Activations of a GPU's autocast: convolutions, BatchNorm, ReLU and pooling in bfloat16."
    recipe = override(find("infonce-ucf101-rgb"), backbone="tiny", batch=8, groups=2)
    half, whole = (
        trace_step(resolve(recipe), dtype).peak()["activations"]
        for dtype in ("bfloat16", "float32")
    )
    # of each feature map; masks and statistics are as large as ever
    assert 0.5 * whole <= half < 0.6 * whole


def test_waiting_for_a_gpu(script):
    "What would be asked of a real one is asked of a pretended one."
    recipe = override(find("infonce-toy-rgb"), batch=4)
    with (
        PretendedGPU(strict=False),
        mock.patch.object(torch.cuda, "max_memory_allocated", lambda: 7),
        mock.patch.object(torch.cuda, "max_memory_reserved", lambda: 9),
        mock.patch.object(torch.cuda, "reset_peak_memory_stats", lambda: None),
        mock.patch.object(script, "recipe_of", lambda case: recipe),
    ):
        assert script.on_gpu({"again": False}) == {"measured": 7, "reserved": 9}


def test_largest_batch_fills_the_gpu():
    "One trace gives it, and a trace with that batch agrees."
    recipe = override(find("infonce-ucf101-rgb"), backbone="tiny")
    experiment = resolve(recipe)
    n = largest_batch(experiment, 10e9)
    assert n % recipe.method.groups == 0 and n > recipe.learning.batch
    most = trace_step(experiment, batch=n).total.max()
    assert most == pytest.approx((10e9 - 1e9) / 1.1, rel=0.02)
    assert largest_batch(experiment, 1e12) == recipe.method.queue
    assert not largest_batch(experiment, 1e9)


def test_the_kept_table_is_of_these_recipes():
    rows = {r["name"]: r for r in json.loads((ROOT / "results/budget.json").read_text())["rows"]}
    assert list(rows) == list(RECIPES), (
        "python benchmarks/memory.py --table --out results/budget.json"
    )
    for name in ("infonce-toy-rgb", "coclr-toy-rgb-cycle1"):
        now = plan(resolve(find(name)))
        assert now["memory"] == pytest.approx(rows[name]["memory"], rel=0.01)
        assert {k: list(v) for k, v in now["batches"].items()} == rows[name]["batches"]


def test_the_kept_table_has_every_fine_tuning():
    rows = {
        r["name"]: r for r in json.loads((ROOT / "results/budget.json").read_text())["finetunings"]
    }
    assert list(rows) == list(TRAININGS), (
        "python benchmarks/memory.py --table --out results/budget.json"
    )
    training, row, n = TRAININGS["clean_linear"], rows["clean_linear"], 9537
    recipe = training.recipe(find("infonce-ucf101-rgb"))
    experiment = resolve(recipe, BlankVideos(training.learned(n)))
    trace = trace_step(experiment)
    assert trace.total.max() / 1e9 == pytest.approx(row["memory"], rel=0.01)
    assert {k: largest_batch(experiment, size) for k, size in GPUS.items()} == {
        k: plain for k, (plain, _) in row["batches"].items()
    }
    assert (
        row["steps"] == 100 * ((n - round(0.2 * n)) // 32)
        and row["hours"] == row["steps"] * row["seconds"] / 3600
    )
    assert row["seconds"] == pytest.approx(trace.bound("bfloat16") / FRACTION, rel=0.01)


def different():
    """Recipes that differ in what they do in a step, not only in name, data, backbone, batch,
    length or rate.
    """
    seen = {}
    for r in RECIPES.values():
        calm = replace(
            r.learning, epochs=1, lr=0.0, drops=(), warmup=0.0, schedule="steps", batch=1
        )
        same = replace(
            r, name="", about="", dataset="", learning=calm, test_clips=1, backbone="tiny"
        )
        calm = {"temperature": 1.0, "momentum": 0.5, "bank_momentum": 0.5}
        calm = {k: v for k, v in calm.items() if getattr(r.method, k, None) is not None}
        method = replace(r.method, **calm)
        # the length of a queue, the rows drawn from a bank and how many are mined change no
        # operation
        if getattr(method, "queue", 0):
            method = replace(method, queue=1)
        if hasattr(method, "negatives"):
            method = replace(method, negatives=1, topk=method.topk[:1])
        if getattr(method, "miner", "") == "cascade":  # nor do the numbers of a cascade
            kept = tuple(o for o in method.miner_options if not o.startswith(("stages=", "ratio=")))
            method = replace(method, miner_options=kept)
        seen.setdefault(astuple(replace(same, method=method)) + (type(r.method).__name__,), r.name)
    return list(seen.values())


@pytest.mark.parametrize("name", different())
def test_recipes(name):
    "Their own method, clips, augmentation and optimizer; the networks in the next test."
    # a masked method needs tokens, and a toy's transformer takes every clip
    small = "vit_toy" if hasattr(find(name).method, "encoder_needs") else "tiny"
    seen = dry_run(resolve(override(find(name), backbone=small, batch=8)))
    waits = getattr(find(name).method, "until_full", "") == "wait"
    assert seen.learned == (not waits, True) and not seen.waits


@pytest.mark.parametrize(
    "name", sorted({r.backbone for r in RECIPES.values()} - {"tiny", "r3d18", "r3d50_cvrl"})
)
def test_their_networks(name):
    "Two more in test_resnets.py."
    recipe = next(r for r in RECIPES.values() if r.backbone == name and r.method.name != "coclr")
    # groups of BatchNorm: in the test above
    alone = {"groups": 1} if hasattr(recipe.method, "groups") else {}
    assert name in BACKBONES and not dry_run(resolve(override(recipe, batch=8, **alone))).waits


def test_float32_and_live_flow():
    recipe = override(find("coclr-ucf101-flow-cycle1"), backbone="tiny", batch=8)
    assert dry_run(resolve(recipe), "float32").learned == (False, True)
    # fewer scales of the pyramid
    small = dict(backbone="tiny", batch=4, groups=2, size=32, length=8)
    recipe = override(find("infonce-ucf101-flow"), flow="live", **small)
    assert dry_run(resolve(recipe)).learned == (True, True)


def test_recomputation_is_computed_twice():
    "As the budget sees it: more FLOP, fewer activations; the dry run goes on."
    recipe = override(find("infonce-ucf101-rgb"), backbone="tiny")
    whole, again = (trace_step(resolve(recipe), activation_checkpointing=a) for a in (False, True))
    assert 1.1 * whole.flops.sum() < again.flops.sum() < 1.5 * whole.flops.sum()
    assert again.peak()["activations"] < 0.8 * whole.peak()["activations"]
    assert dry_run(resolve(recipe), activation_checkpointing=True).learned == (True, True)


@pytest.mark.parametrize("name", TRAININGS)
def test_finetuning(name):
    recipe = TRAININGS[name].recipe(override(find("infonce-ucf101-rgb"), backbone="tiny"))
    seen = dry_run(resolve(recipe))
    assert seen.learned == (True, True) and not seen.waits


def item(x):
    return x + float(x.sum().item()) * 0


def condition(x):
    return x if bool((x > 2).any()) else x * 1


def cpu_index(x):
    return x[torch.arange(len(x))]


def pageable(x):
    return x * torch.ones(1, 1).to(x.device)


def not_pinned(x):
    return x * torch.ones(1, 1).to(x.device, non_blocking=True)


def mask(x):
    return x + x[x > 0].sum() * 0


def unpinned(x):
    return x + torch.zeros(x.shape[1:])


def listed(x):
    return x + sum(x[0].tolist()[:1]) * 0


class Waits(dict):
    "Nothing is walked after a wait in a line of this file."

    def __setitem__(self, line, value):
        if "test_budget.py" in line:
            raise WrongDevice(line)


def first_statement(mistake):
    "The line below its `def`: each mistake is one statement."
    return mistake.__code__.co_firstlineno + 1


def first_line(recipe):
    "Of what the dry run complains about."
    begin = PretendedGPU.__init__

    def init(gpu, strict):
        begin(gpu, strict)
        gpu.waits = Waits()

    with mock.patch.object(PretendedGPU, "__init__", init):
        try:
            return str(dry_run(resolve(recipe)))
        except WrongDevice as e:
            return str(e)


PLACES = [
    (infonce, "with_queue", "infonce-laptop-rgb"),
    (infonce, "in_batch", "infonce-toy-residual"),
    (ubernce, "with_labels", "ubernce-toy-rgb"),
    (coclr, "with_mined", "coclr-laptop-rgb-cycle1"),
    (simclr, "nt_xent_pairs", "simclr-toy-rgb"),
    (memory, "l2_normalize", "infonce-laptop-rgb"),
]
MISTAKES = [item, condition, cpu_index, pageable, not_pinned, mask, unpinned, listed]


# each mistake in the first place, and three of them, always others, in each place
@pytest.mark.parametrize(
    "where, mistake",
    [(PLACES[0], m) for m in MISTAKES]
    + [
        (place, MISTAKES[(3 * i + j) % len(MISTAKES)])
        for i, place in enumerate(PLACES[1:])
        for j in range(3)
    ],
)
def test_mistakes_are_found(where, mistake):
    "Each is put into the step of a method, by its place in the code, and nothing else is changed."
    room, function, name = where
    recipe = override(find(name), batch=4, backbone="tiny")
    real = getattr(room, function)

    def spoiled(*args, **kwargs):
        made = real(*args, **kwargs)
        return (mistake(made[0]), *made[1:]) if isinstance(made, tuple) else mistake(made)

    with mock.patch.object(room, function, spoiled):
        line = first_line(recipe)
    assert f"test_budget.py, line {first_statement(mistake)}" in line


@pytest.mark.parametrize(
    "change",
    [
        ("memory.Queue.full", property(lambda queue: bool(queue.filled == queue.size))),
        (
            "loop.step_optimizer",
            lambda opt, clip_norm: torch.tensor(
                float(opt.param_groups[0]["params"][0].detach().sum())
            ),
        ),
        (
            "loop.to_device",
            lambda batch, device: {
                k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in batch.items()
            },
        ),
        ("loop.average_running", lambda method: next(method.buffers()).cpu()),
    ],
)
def test_mistakes_in_the_loop_are_found(change):
    where, new = change
    room, *path = where.split(".")
    owner = {"memory": memory, "loop": loop}[room]
    for name in path[:-1]:
        owner = getattr(owner, name)
    recipe = override(find("coclr-laptop-rgb-cycle1"), batch=4, backbone="tiny")
    with mock.patch.object(owner, path[-1], new):
        assert "test_budget.py" in first_line(recipe)


def test_a_method_that_waits_gets_a_warning_and_its_budget(capsys):
    "A wait takes time and is no mistake: exit code 0. A tensor of the CPU is one: exit code 2."
    real = infonce.with_queue
    command = ["dry-run", "infonce-laptop-rgb", "--set", "backbone=tiny", "batch=16"]

    def spoiled(mistake):
        return mock.patch.object(
            infonce, "with_queue", lambda *a: (mistake(real(*a)[0]), *real(*a)[1:])
        )

    with spoiled(item):
        assert not cli.main(command)
    out = capsys.readouterr().out
    assert (
        f"test_budget.py, line {first_statement(item)}" in out and "warning: the CPU waits" in out
    )
    assert "memory of a step" in out and "time on an A100" in out
    with spoiled(unpinned):
        assert cli.main(command) == 2
    assert f"test_budget.py, line {first_statement(unpinned)}" in capsys.readouterr().err


def test_the_dataset_is_that_of_the_recipe(monkeypatch):
    "And not the second word of its name."
    for name, given in (("largest_batch", 8), ("dry_run", "of no dataset")):
        monkeypatch.setattr(f"vssl_nb.runs.budget.{name}", lambda *_, given=given: given)
    small = dict(backbone="tiny", size=32, length=8, batch=8)
    text = forecast(resolve(override(find("coclr-cpr-ucf101-rgb-cycle1"), **small)))
    assert "as many steps as the videos make" in forecast(
        resolve(override(find("infonce-laptop-rgb"), **small))
    )
    assert f"on {VIDEOS['UCF101']:,} videos" in text and " in all (computed" in text
    assert {r.dataset for r in RECIPES.values()} == {*VIDEOS, "any"}


CPU, MEMORY = torch.device("cpu"), 2e9  # bytes that are free


@pytest.fixture
def memory_of_2_gb(monkeypatch):
    "Nothing takes much of it: the refusal is computed."
    monkeypatch.setattr("vssl_nb.runs.budget.free_memory", lambda device: MEMORY)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kB


def remedy(refuse):
    "The field that a refusal names, and the value of it that fits."
    with pytest.raises(MachineError) as e:
        refuse()
    name, value, other, fits = re.search(
        r": (\w+)=(\d+) takes .*; (\w+)=(\d+) fits", str(e.value)
    ).groups()
    assert name == other and 1 <= int(fits) < int(value), e.value
    return name, int(fits)


@pytest.mark.parametrize(
    "name, changes",
    [
        ("infonce-laptop-rgb", {"length": 100_000}),
        ("infonce-laptop-rgb", {"length": 1000}),
        ("infonce-laptop-rgb", {"size": 9000}),
        ("infonce-laptop-rgb", {"queue": 10**9}),
        ("infonce-laptop-rgb", {"dim_hidden": 10**7}),
        ("infonce-laptop-rgb", {"batch": 2048, "queue": 2048}),
        ("provico-toy", {"samples": 10**4}),
    ],
    ids=str,
)
def test_what_cannot_fit_is_refused_before_it_is_allocated(name, changes, memory_of_2_gb):
    recipe = override(find(name), backbone="tiny", **changes)

    def refuse(**less):
        refuse_too_large(resolve(override(recipe, **less), machine=Machine("cpu")))

    field, value = remedy(refuse)
    assert field == [*changes][0]
    refuse(**{field: value})  # fits indeed


@pytest.mark.parametrize("changes", [{"length": 10**5}, {"size": 5000}, {"clips": 10**10}], ids=str)
def test_clips_that_cannot_be_measured(changes, memory_of_2_gb):
    encoder, p = create("tiny", seed=0), Protocol(size=32)

    def refuse(**less):
        refuse_large_clips(encoder, replace(p, **changes | less), {}, 64, CPU)

    field, value = remedy(refuse)
    assert field in changes
    refuse(**{field: value})


def test_a_training_that_fits_is_not_traced(monkeypatch, memory_of_2_gb):
    "A refusal costs nothing where there is nothing to refuse."
    monkeypatch.setattr("vssl_nb.runs.budget.trace_step", None)
    refuse_too_large(resolve(find("infonce-toy-rgb"), BlankVideos(720), Machine("cpu")))
