"""Everything that waits for a GPU, in one command: `make gpu`.

    python benchmarks/gpu.py                         # all that is missing of this GPU, the quick ones first
    python benchmarks/gpu.py --only checks step      # some
    python benchmarks/gpu.py --list                  # the plan, and what is done; without a GPU, too

The plan has the minutes of the two trainings, computed for an A100 (`results/budget.json`): steps alone,
without videos, flow and measuring. Those of the other jobs are not known before they have run.

Every job writes one file into results/, named after the GPU, with machine, versions and recipe in it; a job
whose file is there is not done again, and one that is stopped goes on where it was. What a job says is kept
in runs/gpu/<job>.log. Exit code 1 if a job failed; the others are done all the same.

`checks` is the one to look at first. It trains two steps of a recipe with PyTorch's own alarm for waits
switched on, compares them with the same steps on the CPU, and the memory they took with what `budget`
computed."""
import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from step import machine  # noqa: E402

HERE = Path(__file__).parent
TRAINED = {'toyfull': ('infonce-toyfull-residual',), 'cotrain': ('infonce-toyfull-rgb',
    'infonce-toyfull-flow', 'coclr-toyfull-rgb-cycle1', 'coclr-toyfull-flow-cycle1', 'ubernce-toyfull-rgb')}


def jobs(name: str, out: Path, scratch: Path) -> dict[str, tuple[Path, list]]:
    "Job -> the file it writes, and the command; {name} is the GPU."
    def file(job, kind='json'): return out/f'{job}-{name}.{kind}'
    script = [sys.executable]
    test = Path(sys.executable).with_name('nbdev_test')
    cells = ['library/augmentation', 'lessons/02_motion', 'library/loop']
    return {
        'checks': (file('checks'), [*script, HERE/'gpu.py', '--checks', file('checks')]),
        **{f'cells-{Path(page).name}': (file(f'cells-{Path(page).name}', 'txt'), [test, '--path',
            HERE.parent/'nbs'/f'{page}.ipynb', '--flags', 'cuda', '--do_print', '--n_workers', '0'])
            for page in cells},
        'step': (file('step'), [*script, HERE/'step.py', '--device', 'cuda', '--profile',
            '--out', file('step')]),
        'memory': (file('memory'), [*script, HERE/'memory.py', '--device', 'cuda', '--out', file('memory')]),
        'flow': (file('flow'), [*script, HERE/'flow.py', '--device', 'cuda', '--out', file('flow')]),
        'toyfull': (file('toyfull'), [*script, HERE/'toy_full.py', '--videos', scratch/'toyfull', '--run',
            scratch/'toyfull-run', '--device', 'cuda', '--compile', '--out', file('toyfull')]),
        'cotrain': (file('cotrain'), [*script, HERE/'cotrain_full.py', '--videos', scratch/'toyfull', '--run',
            scratch/'cotrain-run', '--device', 'cuda', '--compile', '--out', file('cotrain')])}


def minutes(job: str) -> float | None:
    "Of the steps of a training on an A100, by the budget; None for other jobs."
    budget = json.loads((HERE.parent/'results'/'budget.json').read_text())
    hours = {r['name']: r['hours'] for r in budget['rows']}
    return 60*sum(hours[name] for name in TRAINED[job]) if job in TRAINED else None


def do(job: str, file: Path, command: list, scratch: Path) -> bool:
    "Run one job; what a test says becomes its file, if it passed."
    log, begin = scratch/f'{job}.log', time.monotonic()
    with log.open('w') as f: code = subprocess.run(list(map(str, command)), stdout=f, stderr=f).returncode
    good = code == 0
    if good and file.suffix == '.txt':
        file.write_text(json.dumps({'what': ' '.join(map(str, command)), 'date': time.strftime('%Y-%m-%d'),
            'machine': machine('cuda')}, indent=1) + '\n' + log.read_text())
    good = good and file.exists()
    print(f"{job:20}{'done' if good else f'FAILED, exit code {code}'} in {time.monotonic()-begin:.0f} s; "
        f'{file if good else log}', flush=True)
    return good


def two_steps(recipe, device: str, dtype: str):
    "Two steps of a recipe on blank clips: loss and gradient norm of each, and bytes at most."
    import torch
    from vssl_nb.runs.parts import build
    from vssl_nb.training.loop import TrainingState, fit
    from vssl_nb.training.machine import DTYPES
    parts, g = build(recipe, 64, torch.device(device)), torch.Generator().manual_seed(0)
    batches, order = parts.batches, parts.batches.batch_sampler
    order.total = order.per_epoch = 2
    batches.frames = lambda shape: torch.randint(256, shape, generator=g, dtype=torch.uint8)
    batches.pin = torch.Tensor.pin_memory if device == 'cuda' else (lambda x: x)
    run = TrainingState(parts.method, parts.optimizer)
    results = []
    try:
        for result in fit(run, batches, parts.views, parts.schedule, device, DTYPES[dtype]):
            if device == 'cuda': torch.cuda.set_sync_debug_mode('default')
            results.append(result.read())
            # the first step sets up; in the second, making the CPU wait raises
            if device == 'cuda': torch.cuda.set_sync_debug_mode('error')
    finally:
        if device == 'cuda': torch.cuda.set_sync_debug_mode('default')
    most = torch.cuda.max_memory_allocated() if device == 'cuda' else None
    return [{k: r[k] for k in ('loss', 'grad_norm')} for r in results], most


def checks(out: Path):
    "Waits, numbers and memory of real steps, beside what was known without a GPU."
    import torch
    from vssl_nb.runs.budget import dry_run, trace_step
    from vssl_nb.methods.recipes import find, override
    found: dict = {'what': 'benchmarks/gpu.py --checks', 'date': time.strftime('%Y-%m-%d'),
        'machine': machine('cuda'), 'recipes': {}}
    for name, batch in (('infonce-laptop-rgb', 16), ('infonce-ucf101-rgb', 8)):
        recipe = override(find(name), batch=batch, **({'groups': 2} if 'ucf101' in name else {}))
        torch.cuda.reset_peak_memory_stats()
        here, most = two_steps(recipe, 'cuda', 'float32')
        cpu, _ = two_steps(recipe, 'cpu', 'float32')
        half, _ = two_steps(recipe, 'cuda', 'bfloat16')
        computed = int(trace_step(recipe, 'float32').total.max())
        apart = max(abs(a[k] - b[k])/max(abs(b[k]), 1e-6) for a, b in zip(here, cpu) for k in b)
        found['recipes'][name] = {'batch': batch, 'cuda': here, 'cpu': cpu, 'bfloat16': half,
            'apart': apart, 'bytes': most, 'bytes_computed': computed,
            'waits': dry_run(recipe).waits}
        print(f'{name}: no wait in a step; {apart:.1e} from the CPU; {most/1e9:.2f} GB, '
            f'{computed/1e9:.2f} were computed')
    out.write_text(json.dumps(found, indent=1) + '\n')


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--only', nargs='*', help='jobs, by name')
    p.add_argument('--list', action='store_true', help='say what there is and stop')
    p.add_argument('--out', type=Path, default=HERE.parent/'results')
    p.add_argument('--scratch', type=Path, default=HERE.parent/'runs'/'gpu', help='for videos, runs and logs')
    p.add_argument('--checks', type=Path, help=argparse.SUPPRESS)
    a = p.parse_args()
    import torch
    here = torch.cuda.is_available()
    if not here and not a.list:
        print('there is no GPU here; `vssl-nb dry-run` says what can be known without one', file=sys.stderr)
        return 2
    if a.checks: return checks(a.checks)
    name = re.sub('[^a-z0-9]+', '-', torch.cuda.get_device_name().lower() if here else 'gpu').strip('-')
    todo = jobs(name, a.out, a.scratch)
    unknown = [j for j in a.only or () if j not in todo]
    if unknown:
        print(f'there is no job {unknown[0]!r}; take some of {", ".join(todo)}', file=sys.stderr)
        return 2
    for folder in () if a.list else (a.scratch, a.out): folder.mkdir(parents=True, exist_ok=True)
    good = True
    for job, (file, command) in todo.items():
        if a.only and job not in a.only: continue
        if a.list or file.exists():
            state, takes = 'is done' if file.exists() else 'waits', minutes(job)
            print(f"{job:20}{f'{takes:.0f} min, ' if takes else ''}{state}; {file}")
        else: good = do(job, file, command, a.scratch) and good
    return 0 if good else 1


if __name__ == '__main__': sys.exit(main())
