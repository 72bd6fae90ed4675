"""Files of results: who made them, written whole, and gone on with.

A file of results says what made it (`Stamp`). It is written after every measurement, so that what
is there is whole when the script is killed, and the same command goes on (`SeedResults`). Files
that were made before a field of the stamp existed are read like others."""

import argparse
import copy
import hashlib
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from measurement import ROOT, command, machine, stop
from stamps import git, imported_modules, last_commit

from vssl_nb.training.run_folder import write_json

# what is of the call that began a file, also when later calls go on with it
OF_THE_FIRST_CALL = (
    "date",
    "command",
    "commit",
    "head",
    "dirty",
    "modules",
    "settings",
    "seconds",
    "machine",
    "rule",
)
OF_A_LATER_CALL = ("date", "command", "commit", "head", "dirty", "modules", "machine", "seconds")
RECIPES = ("recipe", "recipes")  # fields of results that may have got further fields since
# options that name where things lie
PLACES = ("out", "folder", "runs", "run", "videos", "data", "given", "like", "story")


# ---- commits


def commit_of(checkout: Path) -> str:
    "The commit of a checkout."
    return git("rev-parse", "--short", "HEAD", checkout=checkout)


def rule(
    script: str,  # a file that says what will be compared
) -> str:
    "The commit that has the plan of a script; '' where the file differs from every commit."
    commit = last_commit(script)
    return "" if commit.endswith("dirty") else commit


# ---- the stamp


def digest(
    settings: Any,  # plain data
) -> str:  # 64 hexadecimal digits
    "SHA-256 of settings."
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def settings_of(
    arguments: argparse.Namespace,
    without: Iterable[str] = (),  # further options that no number depends on
) -> dict[str, Any]:
    "What was asked for on the command line, but for where things lie."
    left_out = {*PLACES, *without}
    return {name: value for name, value in vars(arguments).items() if name not in left_out}


class Stamp:
    "What says of a result who made it, where, when, and in how many seconds."

    def __init__(
        self,
        script: str,  # its file
        settings: Any,  # what the numbers depend on: plain data
        device: str = "cpu",
        threads: int | None = None,  # those of PyTorch in this process if not given
        seeds: list[int] | None = None,  # if the results do not name them in another way
    ):
        self.began = time.monotonic()
        self.fields = {
            "what": f"benchmarks/{Path(script).name}",
            "date": time.strftime("%Y-%m-%d"),
            "command": command(),
            "commit": {"library": last_commit("vssl_nb"), "script": last_commit(script)},
            "head": commit_of(ROOT),
            "dirty": bool(git("status", "--porcelain", "--", "vssl_nb", "benchmarks")),
            "settings": digest(settings),
            "machine": machine(device, threads),
        }
        if seeds is not None:
            self.fields["seeds"] = seeds

    def head(self) -> dict[str, Any]:
        "The first fields of a file of results, as of now."
        return self.fields | {
            "seconds": round(time.monotonic() - self.began, 1),
            "modules": imported_modules(),
        }


def write_results(
    file: Path | str | None,  # None: nothing is kept
    results: dict[str, Any],
) -> None:
    "Write results, whole or not at all."
    if file:
        write_json(file, results)


# ---- going on


def plain(data: Any) -> Any:
    "As it comes back from a JSON file."
    return json.loads(json.dumps(data, default=str))


def agree(older: Any, newer: Any) -> bool:
    """Do two settings say the same?

    Fields that the older one lacks came later; their defaults change nothing.
    """
    if not isinstance(older, dict) or not isinstance(newer, dict):
        return older == newer
    return all(name in newer and agree(value, newer[name]) for name, value in older.items())


def differing(
    before: dict[str, Any],
    asked: dict[str, Any],
) -> list[str]:  # names
    "What is asked for and was made in another way; what the older results do not say agrees."
    others = []
    for name, value in plain(asked).items():
        if name not in before:
            continue
        is_same = agree(before[name], value) if name in RECIPES else before[name] == value
        if not is_same:
            others.append(name)
    return others


def results_before(
    file: Path,
    asked: dict[str, Any],  # what must be the same to go on
) -> dict[str, Any]:  # empty where there is no file
    "The results that are there; stops the script where they were made in another way."
    if not file.exists():
        return {}
    before = json.loads(file.read_text(encoding="utf-8"))
    others = differing(before, asked)
    if others:
        stop(f"{file}: was made with other settings ({', '.join(others)}); name another --out")
    return before


class SeedResults:
    "Rows of several seeds in one file, which is whole after each row and gone on with."

    def __init__(
        self,
        file: Path,
        stamp: Stamp,
        asked: dict[str, Any],  # fields of the file that must be the same to go on
        further: dict[str, Any] | None = None,  # other fields of the file
        # further fields that are computed from the seeds
        summary: Callable[[list[dict]], dict[str, Any]] = lambda seeds: {},
    ):
        self.file, self.stamp, self.summary = file, stamp, summary
        self.before = results_before(file, asked)
        self.asked, self.further = asked, further or {}
        self.seeds: list[dict] = self.before.get("seeds", [])
        self.known = copy.deepcopy(self.seeds)

    def entry(
        self,
        **names: Any,  # such as seed=31
    ) -> dict[str, Any]:  # with its `rows`, none yet where it is new
        "The results of a seed."
        for entry in self.seeds:
            if all(entry[k] == value for k, value in names.items()):
                return entry
        new = names | {"rows": []}
        self.seeds.append(new)
        return new

    def keep(self) -> None:
        "Write what is known so far."
        write_results(self.file, self.head() | {"seeds": self.seeds} | self.summary(self.seeds))

    def head(self) -> dict[str, Any]:
        "The stamp of the call that began the file, and those of calls that have added to it."
        now = self.stamp.head()
        if not self.before:
            return now | self.asked | self.further
        # a file of before stamps gets none for what it has
        first = {k: self.before[k] for k in OF_THE_FIRST_CALL if k in self.before}
        asked = {k: self.before.get(k, value) for k, value in self.asked.items()}
        further = {k: value for k, value in self.further.items() if k not in OF_THE_FIRST_CALL}
        head = {"what": now["what"]} | first | asked | further
        for name in ("continued", "later"):
            if name in self.before and name not in head:
                head[name] = self.before[name]
        if self.seeds != self.known:
            this_call = {k: now[k] for k in OF_A_LATER_CALL}
            head["continued"] = [*self.before.get("continued", []), this_call]
        return head
