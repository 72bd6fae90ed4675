"""What waits for a GPU is walked through on a pretended one: scripts of `benchmarks/` and cells
marked `#| cuda`.

Numbers are pretended, too (each that is read is 1), so what they are compared with is left out;
everything else runs: the first real run should fail on nothing but numbers."""

import ast
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from vssl_nb.runs.pretended import PretendedGPU, WaitForDevice

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))


def run_main(module, *args):
    "The main function of a script, in this process, which is the one with the pretended GPU."
    from vssl_nb.data import flow

    argv = [module.__name__, *map(str, args)]
    with PretendedGPU(strict=False) as gpu, mock.patch.object(sys, "argv", argv):
        # every thread has its own devices; flow is computed in threads
        threads = partial(ThreadPoolExecutor, initializer=lambda: TorchDispatchMode.__enter__(gpu))
        with mock.patch.object(flow, "ThreadPoolExecutor", threads):
            return module.main()


@pytest.fixture
def step_script(monkeypatch):
    import step

    # its variants run in processes of their own, which would have no GPU
    monkeypatch.setattr(step, "child", lambda what, o: getattr(step, what)(o))
    monkeypatch.setattr(step, "profile", lambda step, device: "not here")
    from vssl_nb.ssl import memory

    # the script exchanges it, for good
    monkeypatch.setattr(memory, "ema_update", memory.ema_update)
    return step


def test_step(step_script, tmp_path):
    out = tmp_path / "out.json"
    run_main(
        step_script,
        "--device",
        "cuda",
        "--backbone",
        "tiny",
        "--clip",
        8,
        16,
        16,
        "--batch",
        2,
        "--only",
        "all, bfloat16",
        "--sizes",
        4,
        "--rounds",
        1,
        "--steps",
        1,
        "--profile",
        "--out",
        out,
    )
    found = json.loads(out.read_text())
    assert found["machine"]["gpu"] == "a pretended GPU" and found["speeds"]["bytes"] > 0
    assert [r["variant"] for r in found["switches"]] == ["plain", "all, bfloat16"]
    assert not any("failed" in r for r in found["switches"] + found["by_batch"])
    assert [r["queue"] for r in found["coclr"]] == [2048, 16384]


def test_memory(monkeypatch, tmp_path):
    import memory

    # each case runs in a process of its own, which would have no GPU
    monkeypatch.setattr(memory, "measure", lambda case, way: getattr(memory, way)(case))
    for name, value in (
        ("max_memory_allocated", 10**9),
        ("max_memory_reserved", 10**9),
        ("reset_peak_memory_stats", None),
    ):
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    case = {"backbone": "tiny", "batch": 4, "again": True}
    with PretendedGPU(strict=False):
        rows = memory.compare("cuda", [case])
    assert [r["measured"] for r in rows] == [10**9] and rows[0]["computed"] > 10**6


def quick_flow(monkeypatch):
    "One iteration of the solver is like the next."
    from vssl_nb.data import flow, tvl1

    quick = tvl1.TVL1(scales=2, warps=1, outer=1, inner=1)
    for module in (flow, tvl1):
        monkeypatch.setattr(module, "can_compile", lambda kind: False)
        monkeypatch.setattr(module, "tvl1", quick)


def test_flow(tmp_path, monkeypatch):
    import flow as script

    from vssl_nb.data import tvl1

    quick_flow(monkeypatch)
    monkeypatch.setattr(script, "tvl1", tvl1.tvl1)
    out = tmp_path / "out.json"
    with mock.patch.dict(sys.modules, cv2=None):  # the baseline is none of the GPU's business
        run_main(
            script,
            "--device",
            "cuda",
            "--few",
            1,
            "--copies",
            1,
            "--rounds",
            1,
            "--threads",
            1,
            "--short-sides",
            24,
            "--out",
            out,
        )
    ways = [r["way"] for r in json.loads(out.read_text())["rows"]]
    assert "ours, GPU" in ways and "ours, compiled, GPU" in ways


SMALL = ['backbone="tiny"', "size=32", "length=4", "batch=8", "test_clips=1"]


def few_videos(monkeypatch, sources):
    "One test video of each class, the others to train on, and short ones."
    from vssl_nb.data import toy

    monkeypatch.setitem(toy.SIZES, "tiny", toy.Size(sources, 1, 12, 32))


def test_toy_full(tmp_path, monkeypatch):
    import toy_full

    few_videos(monkeypatch, 3)
    out = tmp_path / "out.json"
    run_main(
        toy_full,
        "--videos",
        tmp_path / "v",
        "--size",
        "tiny",
        "--run",
        tmp_path / "r",
        "--minutes",
        60,
        "--every",
        0.01,
        "--share",
        1,
        "--device",
        "cuda",
        "--workers",
        0,
        "--out",
        out,
        "--set",
        *SMALL,
        "queue=32",
        "epochs=11",
    )
    found = json.loads(out.read_text())
    assert found["card"]["device"] == "a pretended GPU" and found["card"]["finished"]
    assert found["card"]["dtype"] == "bfloat16" and found["curve"]


def test_cotrain_full(tmp_path, monkeypatch):
    import cotrain_full

    quick_flow(monkeypatch)
    few_videos(monkeypatch, 2)
    out = tmp_path / "out.json"
    run_main(
        cotrain_full,
        "--videos",
        tmp_path / "v",
        "--size",
        "tiny",
        "--run",
        tmp_path / "r",
        "--device",
        "cuda",
        "--workers",
        0,
        "--out",
        out,
        "--set",
        *SMALL,
        "batch=4",
        "queue=8",
        "topk=2",
        "groups=1",
        "epochs=1",
    )
    rows = json.loads(out.read_text())["rows"]
    assert [(r["method"], r["view"]) for r in rows] == [
        ("infonce", "rgb"),
        ("infonce", "flow"),
        ("coclr", "rgb"),
        ("coclr", "flow"),
        ("coclr", "rgb+flow"),
        ("ubernce", "rgb"),
    ]


def test_checks(tmp_path, monkeypatch):
    import gpu

    from vssl_nb.methods import recipes

    small = {
        name: recipes.override(recipes.find(name), backbone="tiny", size=32, length=8, queue=32)
        for name in ("infonce-laptop-rgb", "infonce-ucf101-rgb")
    }
    monkeypatch.setattr(gpu, "find", small.get)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 2 * 10**9)
    run_main(gpu, "--checks", tmp_path / "out.json")
    found = json.loads((tmp_path / "out.json").read_text())["recipes"]
    assert set(found) == set(small)
    for r in found.values():
        assert r["bytes_computed"] > 10**6 and r["bytes"] == 2 * 10**9
        assert [s["loss"] for s in r["cuda"]] == [1, 1] != [s["loss"] for s in r["cpu"]]


def test_checks_hear_a_wait(tmp_path, monkeypatch):
    "Torch's alarm is on in the second step; here the pretended GPU answers it."
    import gpu

    from vssl_nb.methods import recipes
    from vssl_nb.methods import infonce

    recipe = recipes.override(
        recipes.find("infonce-laptop-rgb"), backbone="tiny", size=32, length=8, batch=4
    )
    real = infonce.with_queue

    def asks(*args):
        sim, match = real(*args)
        return sim + sim.sum().item() * 0, match

    with mock.patch.object(infonce, "with_queue", asks), PretendedGPU(strict=False):
        with pytest.raises(WaitForDevice):
            gpu.two_steps(recipe, "cuda", "float32")


def test_gpu_jobs_resume_and_go_on(tmp_path, monkeypatch, capsys):
    "A job whose file is there is left alone; one that fails stops none of the others."
    import gpu

    done, asked = tmp_path / "out", []

    def job(title, job, scratch, seconds):
        asked.append(title)
        if title != "flow":
            job.file.write_text(json.dumps(numbers.get(title, {})))
        return title != "flow"

    numbers = {
        "step": {"switches": [{"clips_per_s": 50.0}, {"clips_per_s": 600.0}, {"failed": "no"}]},
        "input": {"samples_per_s": {"worker, original": 60.0}},
    }
    monkeypatch.setattr(gpu, "do", job)
    args = ("--out", done, "--scratch", tmp_path / "s")
    assert run_main(gpu, *args) == 1
    everything = [
        "checks",
        "step",
        "methods",
        "memory",
        "input",
        "cells-augmentation",
        "cells-tvl1",
        "cells-loop",
        "flow",
        "compile",
        "toyfull",
        "cotrain",
        "switches",
    ]
    assert asked == everything  # but for what needs real clips
    assert "10.0 cores feed this GPU" in capsys.readouterr().out
    assert run_main(gpu, *args, "--only", "step", "flow") == 1 and asked == [*everything, "flow"]
    assert (done / "step-a-pretended-gpu.json").exists()
    assert run_main(gpu, *args, "--only", "steps") == 2
    assert "there is no job 'steps'" in capsys.readouterr().err
    assert run_main(gpu, *args, "--list") == 0
    told = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in told} == {*everything, "jhmdb", "ucf101"}
    assert (
        sum(" waits; " in line for line in told) == 1
        and sum(" needs --" in line for line in told) == 2
    )
    manifest = tmp_path / "manifest.csv"
    assert (
        run_main(gpu, *args, "--jhmdb", manifest) == 2
        and "no such manifest" in capsys.readouterr().err
    )
    manifest.write_text("")
    # an hour and more does not fit
    assert run_main(gpu, *args, "--jhmdb", manifest, "--minutes", 25) == 1
    assert (
        asked == [*everything, "flow", "flow"]
        and "does not fit into 25 min" in capsys.readouterr().out
    )
    assert run_main(gpu, *args, "--jhmdb", manifest, "--ucf101", manifest) == 1
    assert asked[-3:] == ["flow", "jhmdb", "ucf101"]
    assert run_main(gpu, *args, "--minutes", 0) == 2


def test_jobs_that_train_on_real_clips_are_planned(tmp_path):
    "Their commands are those of the script, and the plan has each of their trainings."
    import evidence
    import gpu

    todo = gpu.jobs("x", tmp_path, tmp_path, Path("a/manifest.csv"), Path("b/manifest.csv"))
    assert {e.name for e in evidence.chosen("flow", [*gpu.ON_JHMDB])} == {*gpu.ON_JHMDB}
    assert {e.name: 1.0 if e.whole else 0.5 for e in evidence.chosen("flow", [*gpu.ON_JHMDB])} == {
        name: share for name, (_, share) in gpu.ON_JHMDB.items()
    }
    for title in ("jhmdb", "ucf101"):
        wrong = subprocess.run(
            [*map(str, todo[title].command), "--processes", "0"], text=True, capture_output=True
        )
        assert wrong.returncode == 2 and wrong.stderr.startswith(
            "--minutes and --processes are above 0"
        )
    r = evidence.recipe_of(evidence.chosen("flow", ["infonce"])[0], gpu.EPOCHS, 0, gpu.S3D)
    assert (r.backbone, r.size, r.sampling.length) == ("s3d", 112, 16)
    assert gpu.CLIP == r.sampling.length * r.size**2 / (32 * 128**2)


def test_evidence(tmp_path, monkeypatch, capsys):
    import evidence

    few_videos(monkeypatch, 4)
    from vssl_nb.data import toy

    data = toy.make(tmp_path / "toy", "tiny", progress=False)
    real = evidence.floor  # weights that have been on a pretended GPU come back as ones

    def floor(data, view, changes, machine, home):
        return real(data, view, changes, replace(machine, device="cpu"), home)

    monkeypatch.setattr(evidence, "floor", floor)
    small = dict(backbone="tiny", size=32, length=4, batch=8, queue=16, test_clips=1)
    run_main(
        evidence,
        "--data",
        data,
        "--device",
        "cuda",
        "--dtype",
        "bfloat16",
        "--workers",
        0,
        "--epochs",
        4,
        "--seeds",
        0,
        "--only",
        "labels",
        "--folder",
        tmp_path / "f",
        "--changes",
        json.dumps(small),
        "--out",
        tmp_path / "out.json",
    )
    out = json.loads((tmp_path / "out.json").read_text())
    assert {"labels", "random"} <= {r["name"] for r in out["rows"]}
    assert out["machine"]["gpu"] == "a pretended GPU"
    for card in (tmp_path / "f").rglob("card.json"):
        assert json.loads(card.read_text())["device"] == "a pretended GPU"


def test_what_a_job_says_is_kept(tmp_path, capsys):
    import gpu

    says = [sys.executable, "-c", 'import sys; print("four"); sys.exit(int(sys.argv[1]))']

    def job(command, file="out.txt"):
        return gpu.Job(tmp_path / file, command, 1.0)

    for code in (3, 0):
        with PretendedGPU(strict=False):
            assert gpu.do("cells", job([*says, code]), tmp_path) == (code == 0)
        assert (tmp_path / "out.txt").exists() == (code == 0) and (
            tmp_path / "cells.log"
        ).read_text() == "four\n"
    assert (tmp_path / "out.txt").read_text().endswith("four\n")
    named = [sys.executable, "-c", f'print("{ROOT}/nbs/map.ipynb")']
    with PretendedGPU(strict=False):
        assert gpu.do("cells", job(named), tmp_path)
    # of every folder of this machine, what is inside the repository
    kept = (tmp_path / "out.txt").read_text()
    assert kept.endswith("\nnbs/map.ipynb\n") and str(ROOT) not in kept and sys.prefix not in kept
    assert "FAILED, exit code 3" in capsys.readouterr().out
    assert not gpu.do("step", job([*says, 0], "none.json"), tmp_path)  # it wrote nothing
    waits = 'import subprocess; print("begun", flush=True); subprocess.run(["sleep", "60"])'
    assert not gpu.do("flow", job([sys.executable, "-c", waits], "none.json"), tmp_path, 3.0)
    assert "STOPPED by the clock" in capsys.readouterr().out
    assert (tmp_path / "flow.log").read_text().startswith("begun")
    (tmp_path / "half.json").write_text("{}")  # by a job that is stopped
    assert not gpu.do("step", job([*says, 3], "half.json"), tmp_path)
    assert (tmp_path / "half-partial.json").exists() and not (tmp_path / "half.json").exists()


def test_without_a_gpu():
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "gpu.py"],
        text=True,
        capture_output=True,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.startswith(
        "there is no GPU here"
    )


def test_the_plan_needs_no_gpu(monkeypatch, capsys, tmp_path):
    import gpu

    monkeypatch.setattr(sys, "argv", ["gpu.py", "--list", "--out", str(tmp_path / "out")])
    assert gpu.main() == 0 and not (tmp_path / "out").exists()
    rows = {
        r["name"]: r["hours"]
        for r in json.loads((ROOT / "results" / "budget.json").read_text())["rows"]
    }
    (one,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("toyfull ")]
    assert f"{60 * rows['infonce-toyfull-residual']:.0f} min  waits; " in one


class WithoutComparisons(ast.NodeTransformer):
    "Numbers are pretended: what is compared is computed and not compared."

    def visit_Assert(self, node):
        return None

    def visit_Call(self, node):
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id.startswith("test_"):
            return ast.copy_location(ast.Tuple([a for a in node.args], ast.Load()), node)
        return node


def pages_with_cuda_cells():
    return [p for p in sorted((ROOT / "nbs").rglob("*.ipynb")) if '"#| cuda\\n' in p.read_text()]


def test_every_page_with_cuda_cells_has_a_job(tmp_path):
    import gpu

    jobs = gpu.jobs("x", tmp_path, tmp_path)
    assert {p for job in jobs.values() for p in job.command if str(p).endswith(".ipynb")} == {
        *pages_with_cuda_cells()
    }


@pytest.mark.parametrize("page", pages_with_cuda_cells(), ids=lambda page: page.stem)
def test_cuda_cells(page, monkeypatch):
    """The cells before run as they are; those of the GPU on the pretended one, without their
    comparisons.
    """
    monkeypatch.chdir(ROOT / "nbs")
    monkeypatch.setenv("IN_TEST", "1")
    monkeypatch.setenv("MPLBACKEND", "agg")
    cells = json.loads(page.read_text())["cells"]
    here, walked = {"__name__": "__main__", "show": None}, 0
    for i, cell in enumerate(cells):
        source = "".join(cell["source"])
        if cell["cell_type"] != "code" or source.startswith(("#| eval", "#| slow")):
            continue
        if "#| cuda" not in source:
            exec(compile(source, f"{page.stem}, cell {i}", "exec"), here)
            continue
        tree = ast.fix_missing_locations(WithoutComparisons().visit(ast.parse(source)))
        identity = lambda f=None, **kw: f or identity
        if "tvl1" in here:
            here["tvl1"] = replace(here["tvl1"], scales=2, warps=1, outer=1, inner=6)
        with (
            PretendedGPU(strict=False),
            mock.patch("torch.compile", identity),
            mock.patch("torch.nn.Module.compile", lambda net, **kw: None),
        ):
            exec(compile(tree, f"{page.stem}, cell {i}", "exec"), here)
        walked += 1
        if not any("#| cuda" in "".join(c["source"]) for c in cells[i + 1 :]):
            break
    assert walked
