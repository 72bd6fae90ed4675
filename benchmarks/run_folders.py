"""Run folders of a benchmark: trained from where they stand, and what their logs say."""

import csv
import json
import re
import statistics
from pathlib import Path
from typing import Any

from measurement import stop

from vssl_nb.runs.evaluation import keep_results, retrieve
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.training.machine import Machine


def folder_name(
    run: str,  # such as 's=3, r=0.6'
) -> str:
    return re.sub(r"\W+", "-", run).strip("-")


def is_finished(run: Path) -> bool:
    card = run / "card.json"
    return card.exists() and json.loads(card.read_text())["finished"]


def is_begun(run: Path) -> bool:  # its folder
    "Is there a training to go on with? A run writes its card, then its recipe, and then trains."
    return (run / "recipe.json").exists()


def trained(
    recipe: Any,
    data: Path,
    run: Path,  # its folder
    machine: Machine,
    **options: Any,  # of `pretrain`: `networks`, `health_every`, …
) -> dict[str, Any]:  # its card
    "Train a run, from where it stands; stops the script where the training was stopped."
    if not is_finished(run):
        pretrain(recipe, data, run, is_begun(run), machine, **options)
    card = json.loads((run / "card.json").read_text())
    if not card["finished"]:
        stop(f"{run}: was stopped; the same command goes on")
    return card


def retrieved(
    run: Path,
    data: Path,
    machine: Machine,
) -> dict[str, Any]:
    "The row of results of a finished run, measured once."
    file = run / "results.json"
    if not file.exists():
        keep_results(run, retrieve(run, data=data, machine=machine)[:1])
    return json.loads(file.read_text())[0]


# ---- logs


def steps_of(run: Path) -> list[dict[str, str]]:
    "The lines of `steps.csv`."
    with (run / "steps.csv").open(newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


def by_epoch(steps: list[dict[str, str]]) -> list[list[dict[str, str]]]:
    "The steps of each epoch."
    epochs: dict[str, list[dict[str, str]]] = {}
    for step in steps:
        epochs.setdefault(step["epoch"], []).append(step)
    return list(epochs.values())


def logged(
    steps: list[dict[str, str]],
    column: str,
) -> list[float]:
    "The numbers of a column where it is defined: nothing is mined while a queue fills."
    return [float(step[column]) for step in steps if step.get(column, "") not in ("", "nan")]


def mean_logged(
    steps: list[dict[str, str]],
    column: str,
) -> float | None:  # None: it is defined nowhere
    values = logged(steps, column)
    return round(statistics.fmean(values), 5) if values else None


def last_fifth(steps: list[dict[str, str]]) -> list[dict[str, str]]:
    return steps[-max(len(steps) // 5, 1) :]
