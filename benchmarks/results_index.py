"""The index of `results/`: a line for each file, from the stamp that the file itself has.

Script, command, commit, machine and date are those of the stamp. A file of before stamps has the
commit in which it came (`committed`); a field that is not known is a dash. What a file is about no
stamp has: `results/files.csv` has one short line for it, its topic, and script and options of a
file that names none."""

import csv
import fnmatch
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stamps import ROOT

RESULTS = ROOT / "results"
LINES = "files.csv"
LONGEST_LINE = 90  # letters
NONE = "–"
ALONE = "no options"
LONGEST_COMMAND = 80  # letters; the file has the rest
COLUMNS = ("file", "what it has", "script", "command", "commit", "machine")

Stamp = Mapping[str, Any]


# ---- the lines that no stamp has


@dataclass(frozen=True)
class Described:
    "A line of files.csv."

    files: str  # a name, or a pattern of names
    topic: str
    script: str  # '' where the stamp names it
    command: str  # its options; '' where the stamp has them, or nobody knows them
    line: str


def described(folder: Path) -> list[Described]:
    "The lines of files.csv. `ValueError` for one that is too long."
    with open(folder / LINES, encoding="utf-8", newline="") as file:
        lines = [Described(**line) for line in csv.DictReader(file)]
    for one in lines:
        if len(one.line) > LONGEST_LINE:
            raise ValueError(
                f"{folder / LINES}: the line of {one.files} has {len(one.line)} letters; shorten "
                f"it to {LONGEST_LINE}"
            )
    return lines


def listed_files(folder: Path) -> list[Path]:
    "What the index has a line for: all files and folders but texts."
    return sorted(file for file in folder.iterdir() if file.suffix != ".md")


def assigned(folder: Path) -> dict[Path, Described]:
    """Each file with its line, in the order of files.csv. `ValueError` for a file without a line or
    with two, and for a line without a file.
    """
    files, lines = listed_files(folder), described(folder)
    chosen: dict[Path, Described] = {}
    for one in lines:
        matching = [file for file in files if fnmatch.fnmatchcase(file.name, one.files)]
        if not matching:
            raise ValueError(f"{folder / LINES}: no file is named {one.files}; take its line away")
        for file in matching:
            if file in chosen:
                raise ValueError(f"{folder / LINES}: {file.name} has two lines; take one away")
            chosen[file] = one
    for file in files:
        if file not in chosen:
            raise ValueError(f"{folder / LINES}: {file.name} has no line; add one")
    return chosen


# ---- stamps


def stamps_in(file: Path) -> list[Stamp]:  # of the call that made it and those that went on
    "The stamps of a file; none where it has none."
    if file.suffix not in (".json", ".txt"):
        return []
    try:
        # the log of a page has its stamp in front
        results, _ = json.JSONDecoder().raw_decode(file.read_text(encoding="utf-8"))
    except ValueError:
        return []
    if not isinstance(results, dict):
        return []
    calls = [results, *results.get("stamps", []), *results.get("continued", [])]
    what = results.get("what", "")
    # a file that many calls have made has no call of its own
    dated = [call for call in calls if isinstance(call, dict) and "date" in call]
    return [{"what": what} | call for call in dated] or ([{"what": what}] if what else [])


PROGRAM = re.compile(r"(vssl-nb|nbdev_test) (.+)")  # a file that no script has made


def script_of(stamp: Stamp) -> str:  # '' where it names none
    "The script by its path in the repository, or another program."
    what = stamp.get("what", "")
    script, program = re.match(r"[\w/]+\.py\b", what), PROGRAM.match(what)
    if script:
        return script[0]
    return f"`{program[1]}`" if program else ""


def options_of(stamp: Stamp) -> str:  # '' where no command is known
    "The command behind its script, without the place of the results; … for folders of a machine."
    program = PROGRAM.match(stamp.get("what", ""))
    command = stamp.get("command", program[2] if program else stamp.get("experiment", ""))
    if not command:
        return ""
    command = re.sub(r"^(?:\w+/)*\w+\.py\b ?", "", command)
    command = re.sub(r" ?--out \S+", "", command)
    command = re.sub(r"(?<!\S)/\S*/", "…/", command).strip()
    if len(command) > LONGEST_COMMAND:
        command = command[: LONGEST_COMMAND - 2].rsplit(" ", 1)[0] + " …"
    return f"`{command}`" if command else ALONE


def commit_of(stamp: Stamp) -> str:  # '' where it is not known
    "The commit of the checkout, or else of the library."
    commit = stamp.get("commit")
    library = commit.get("library", "") if isinstance(commit, dict) else str(commit or "")
    head = stamp.get("head", "")
    if not head:
        return library or stamp.get("committed", "")
    return f"{head}, dirty" if stamp.get("dirty") else head


def machine_of(stamp: Stamp) -> str:  # '' where it is not known
    "Processor and threads of PyTorch, or else its cores; or the GPU."
    machine = stamp.get("machine", "")
    if not isinstance(machine, dict):
        return machine.split(";")[0]
    if machine.get("gpu"):
        return machine["gpu"]
    count, name = machine.get("threads"), "thread"
    if not count:
        count, name = machine.get("cores"), "core"
    cpu = machine.get("cpu", "")
    return f"{cpu}, {count} {name}{'s' if count > 1 else ''}" if count else cpu


def distinct(texts: Sequence[str]) -> list[str]:
    "Texts without repetition, empty ones left out."
    return [text for text in dict.fromkeys(texts) if text]


# ---- the index


def index_row(
    file: Path,
    one: Described,
    root: Path = ROOT,  # scripts that lie there are linked
) -> str:  # Markdown
    "The line of a file."
    calls = stamps_in(file)
    script = (script_of(calls[0]) if calls else "") or one.script
    linked = f"[`{Path(script).name}`](../{script})" if (root / script).is_file() else script

    commands = distinct([options_of(call) for call in calls])
    if one.command:
        commands = [options_of({"command": one.command}) if one.command != ALONE else ALONE]
    command = commands[0] if commands else NONE
    if len(calls) > 1:
        further = len(calls) - 1
        command += f" and {further} further call{'s' if further > 1 else ''}"

    dates = sorted(distinct([call.get("date", "") for call in calls]))
    commits = distinct([commit_of(call) for call in calls])
    made = [", ".join(commits[:1] + ["…"] * (len(commits) > 1)) or NONE]
    made += [" to ".join(distinct([dates[0], dates[-1]]))] if dates else []

    machines = ", ".join(distinct([machine_of(call) for call in calls])) or NONE
    name = f"`{file.name}/`" if file.is_dir() else f"`{file.name}`"
    cells = [name, one.line, linked or NONE, command, "<br>".join(made), machines]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def index(
    folder: Path = RESULTS,
    root: Path = ROOT,
) -> str:  # Markdown
    "A folded table for each topic."
    topics: dict[str, list[str]] = {}
    for file, one in assigned(folder).items():
        topics.setdefault(one.topic, []).append(index_row(file, one, root))
    head = ["| " + " | ".join(COLUMNS) + " |", "| :-- " * len(COLUMNS) + "|"]
    parts = []
    for topic, rows in topics.items():
        count = f"{len(rows)} file{'s' if len(rows) > 1 else ''}"
        parts += [
            f"<details><summary>{topic}: {count}</summary>",
            "\n".join(head + rows),
            "</details>",
        ]
    return "\n\n".join(parts)
