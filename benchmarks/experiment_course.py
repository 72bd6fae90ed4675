"""What the lessons need of the one experiment beside its results: recipes and networks of seed 41.

A lesson trains its row anew, with the recipe that the search has chosen. A row that begins with
another row's weights, or is mined by them, finds them in a small folder: weights alone, in float32,
without optimizer or queue.

    python benchmarks/experiment_course.py --results results/experiment.json

writes `results/course.json` and `results/course/`, from the file of results and from the folder of
its runs, which must still be there."""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import measurement
from experiment import Results, Run, search_units
from experiment_rows import PASSES, RATES, ROWS, SEEDS, Training, helpers_of
from experiment_worker import Task, folder_of
from measurement import stop
from result_files import Stamp

from vssl_nb.methods.recipes import to_dict
from vssl_nb.app.course import LESSONS, SEED, network_name
from vssl_nb.training.checkpoints import load, save
from vssl_nb.training.run_folder import write_json

# networks that a lesson opens though no row needs them
OPENED = (("infonce", "rgb"), ("cmc", "rgb"), ("iic", "rgb"))
# rows that a lesson shows beside those of its table
BESIDE = (("bank", "rgb"), ("bank, patches", "rgb"), ("iic, patches", "rgb"))


def trainings() -> list[Training]:
    "The rows of the lessons that are trained."
    named = [pair for rows in LESSONS.values() for pair in rows]
    return [
        Training("plain", row, view)
        for row, view in (*named, *BESIDE)
        if ROWS[row].kind == "training"
    ]


def keep_network(
    run: Path,  # folder of a run
    out: Path,  # folder to write
) -> None:
    "Its recipe, a card without places, and the weights of encoder and projection."
    if not (run / "last.pt").exists():
        stop(f"{run}: is not there any more; make it again with benchmarks/experiment.py")
    state = load(run / "last.pt")
    parts = {k: x for k, x in state["method"].items() if is_network(k)}
    out.mkdir(parents=True, exist_ok=True)
    shutil.copy(run / "recipe.json", out / "recipe.json")
    card = json.loads((run / "card.json").read_text(encoding="utf-8"))
    manifest = card["manifest"] | {"path": "toy/manifest.csv", "relative": "toy/manifest.csv"}
    kept = {k: card[k] for k in ("versions", "step", "seconds", "finished", "seed")}
    write_json(out / "card.json", kept | {"manifest": manifest})
    save(out / "last.pt", {"method": parts, "step": state["step"], "recipe": state["recipe"]})


def is_network(name: str) -> bool:  # of a tensor of a method
    return name.removeprefix("pair.").startswith(("encoder.", "projection."))


def refuse(task: Task) -> dict[str, Any]:
    stop(f"{task.training.name}: its search is not finished; run benchmarks/experiment.py")


def main() -> None:
    parser = measurement.parser(__doc__)
    parser.add_argument("--results", type=Path, default=Path("results/experiment.json"))
    parser.add_argument("--work", type=Path, default=Path("runs/experiment"))
    parser.add_argument("--out", type=Path, default=Path("results/course.json"))
    a = parser.parse_args()
    settings = argparse.Namespace(
        work=a.work, size="demo", passes=PASSES, rates=RATES, changes={}, save_minutes=2.0
    )
    results = Results(a.results, Stamp(__file__, {}, seeds=[SEED]), "demo", mixed=True)
    run = Run(settings, results)
    ready = [t for t in trainings() if results.of(t, SEED) is not None]
    for unit in search_units(run, ready):  # all known: nothing is trained
        unit.work(refuse)
    assert SEED in SEEDS

    recipes: dict[str, Any] = {}
    for training in ready:
        networks = {}
        for network, helper in helpers_of(training).items():
            name = network_name(helper.row, helper.view)
            folder = folder_of(run.home("plain", SEED).resolve(), run.recipe(helper, SEED))
            keep_network(folder, a.out.with_suffix("") / name)
            networks[network] = name
        recipes[f"{training.row}, {training.view}"] = {
            "recipe": to_dict(run.recipe(training, SEED)),
            "networks": networks,
        }
    for row, view in OPENED:
        training = Training("plain", row, view)
        folder = folder_of(run.home("plain", SEED).resolve(), run.recipe(training, SEED))
        keep_network(folder, a.out.with_suffix("") / network_name(row, view))
    write_json(a.out, recipes)
    print(f"{a.out}: {len(recipes)} rows")


if __name__ == "__main__":
    main()
