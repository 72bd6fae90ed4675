"""Misuses of the command line, as (words of the sentence, arguments): by hand, and from the types
of options.

A place for them is a folder of files by hand: nothing in it was trained, because all of it is
refused before.
"""

import dataclasses
import json
import re
import shutil
import typing
from pathlib import Path

from vssl_nb.app import cli
from vssl_nb.data.manifest import COLUMNS
from vssl_nb.methods.recipes import find, to_dict
from vssl_nb.fields import interval

CARD = {
    "manifest": {"path": "videos/manifest.csv", "sha256": "0" * 64, "split_filled": True},
    "step": 3,
    "seconds": 1.5,
    "finished": True,
}
TUNED = CARD | {"training": {"method": {}, "learning": {}}, "given": "runs/mine"}
# contents of a card.json, and the field that is wrong
BROKEN = {
    "{}": "manifest",
    "[]": "manifest",
    "7": "manifest",
    "null": "manifest",
    '"x"': "manifest",
    json.dumps(CARD | {"manifest": 3}): "manifest",
    json.dumps(CARD | {"manifest": [1]}): "manifest",
    json.dumps(CARD | {"manifest": {"sha256": ""}}): "path",
    json.dumps(CARD | {"manifest": {"path": "x", "sha256": 5}}): "sha256",
    json.dumps(CARD | {"finished": "yes"}): "finished",
    json.dumps(CARD | {"step": None}): "step",
    json.dumps(CARD | {"seconds": "long"}): "seconds",
    json.dumps(CARD | {"training": 3}): "training",
}
TRAIN = ["pretrain", "infonce-toy-rgb", "--data", "videos"]
HEADER = ",".join(COLUMNS)
# tables that are no manifest: name -> content, and what is wrong
TABLES = {
    "empty.csv": ("", "is empty"),
    "blank.csv": ("\n \n", "is empty"),
    "tabs.csv": (HEADER.replace(",", "\t") + "\n", "separated by tabs; save it with commas"),
    "semicolons.csv": (
        HEADER.replace(",", ";") + "\n",
        "separated by semicolons; save it with commas",
    ),
    "few.csv": ("video,label\na.mp4,x\n", "has no column source"),
    "latin.csv": (
        HEADER.encode() + b"\n\xe9.mp4,x\n",
        "is not UTF-8 text (line 2); save it as UTF-8",
    ),
    "short.csv": (HEADER + "\na.mp4,x\n", "line 2: 2 fields instead of 12"),
    "split.csv": (
        HEADER + "\na.mp4,x,s,both,,,9,9,9,9,,ok\n",
        "line 2: split1 is 'both', not train, test",
    ),
    "twice.csv": (
        HEADER + "\na.mp4,x,s,,,,9,9,9,9,,ok" * 2 + "\n",
        "'a.mp4' is there already, in line 2",
    ),
    "out.csv": (HEADER + "\n../a.mp4,x,s,,,,9,9,9,9,,ok\n", "leads out of the folder"),
    "frames.csv": (
        HEADER + "\na.mp4,x,s,,,,many,9,9,9,,ok\n",
        "frames is 'many', not a whole number",
    ),
}


def fill(place: Path) -> Path:
    "Files and folders that look like manifests, videos and runs."
    recipe = json.dumps(to_dict(find("infonce-toy-rgb")))
    for name, card in (
        ("run", json.dumps(CARD)),
        ("kept", json.dumps(CARD)),
        ("tuned", json.dumps(TUNED)),
        ("many/run", json.dumps(CARD)),
        ("torn", json.dumps(CARD)),
        ("strange", json.dumps(CARD)),
        *((f"co{i}/infonce-toy-rgb", text) for i, text in enumerate(BROKEN)),
    ):
        (place / name).mkdir(parents=True)
        (place / name / "recipe.json").write_text(
            {"torn": recipe[:99], "strange": '{"name": "x"}'}.get(name, recipe)
        )
        (place / name / "card.json").write_text(card)
    for name, (content, _) in TABLES.items():
        (place / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (place / "good.csv").write_text(HEADER + "\na.mp4,x,s,,,,9,9.0,9,9,,ok\n")
    for name in ("videos", "bare", "notes"):
        (place / name).mkdir()
    shutil.copy(place / "good.csv", place / "videos" / "manifest.csv")
    for name in ("a.mp4", "f.npz", "kept/last.pt", "run/encoder.safetensors", "notes/list.txt"):
        (place / name).touch()
    return place


def dashed(name):
    return "--" + name.replace("_", "-")


def options_of(command, of_recipe=False):
    """Name, type without its range, range, and name in help where it stands without one, of every
    option.
    """
    parts = [cli.COMMANDS[command]]
    if of_recipe and command == "pretrain":
        recipe = find("infonce-toy-rgb")
        parts += map(
            type, (recipe, recipe.sampling, recipe.augment, recipe.method, recipe.learning)
        )
    options = []
    for part in parts:
        plain, ranged = (
            typing.get_type_hints(part),
            typing.get_type_hints(part, include_extras=True),
        )
        options += [
            (f.name, plain[f.name], interval(ranged[f.name]), f.metadata.get("word"))
            for f in dataclasses.fields(part)
            if f.init and not dataclasses.is_dataclass(plain[f.name])
        ]
    return {o[0]: o for o in options if o[0] != "method" or o[1] is not typing.Any}.values()


def needed(command):
    "A command with all that it must be given."
    words = {
        "recipe_name": "infonce-toy-rgb",
        "name": "coclr-toy",
        "data": "videos",
        "source": "run",
        "folder": "run",
    }
    begin, kind = [command], cli.COMMANDS[command]
    for f in dataclasses.fields(kind):
        if f.init and f.default is dataclasses.MISSING:
            begin += [
                *([] if f.metadata.get("word") else [dashed(f.name)]),
                words.get(f.name, "new"),
            ]
    return begin


def wrong_values(kind, limits):
    "Words that are no value of this type, or out of its range."
    name = str(kind)
    number = next((k for k in ("int", "float") if re.search(rf"\b{k}\b", name)), "")
    if "Literal" in name:
        yield from ("sometimes", "NONE")
    elif number:
        yield from ("many", "2.5" if number == "int" else "")
    if not number or not limits or "Literal" in name:
        return
    low, high = (float(x) for x in limits[1:-1].split(","))
    yield str(int(low) - 1 if number == "int" else low - 0.5)
    if limits[0] == "(":
        yield f"{low:g}"
    if high < 2**62:
        yield str(int(high) + 1 if number == "int" else high + 0.5)
    if number == "float":
        yield "nan"


def generated(command):
    "Every option of a command with values that cannot be, with none, with too many, and mistyped."
    begin = needed(command)
    for name, kind, limits, word in options_of(command, of_recipe=True):
        option = dashed(name)
        if word:
            yield option, [*begin, option, "x"]  # it has no option's name
            continue
        if kind is bool:
            yield f"{option}: takes no value", [*begin, f"{option}=yes"]
        elif typing.get_origin(kind) is tuple and typing.get_args(kind)[-1] is not ...:
            yield f"{option}: takes ", [*begin, option, "1"]
        elif typing.get_origin(kind) is not tuple:
            yield f"{option}: has no value", [*begin, option]
        many = (
            len(typing.get_args(kind))
            if typing.get_origin(kind) is tuple and typing.get_args(kind)[-1] is not ...
            else 1
        )
        for value in wrong_values(kind, limits):
            yield option, [*begin, option, *[value] * many]
        if "Path" in str(kind):
            yield f"{option} '' is no path; . is this folder", [*begin, option, ""]
        yield f"{option}z", [*begin, f"{option}z", "1"]
    words = [kind for _, kind, _, word in options_of(command) if word]
    if tuple not in map(typing.get_origin, words):
        yield " is one argument too many", [*begin, "--", *["spare"] * (len(words) + 1)]
    yield "also needs" if len(begin) > 1 else "", [command] if len(begin) > 1 else [command + "x"]
    yield "'' is an empty argument", [*begin, ""]


def advised_values(text):
    """The values that a sentence about one names: each choice, the ends of a range, or a number
    inside.
    """
    if choices := re.search(r"is not one of ([^;]+)", text):
        return choices[1].split(", ")
    if ends := re.findall(r"(\S+) or (?:more|less)", text):
        return ends
    return [
        f"{float(low) + 0.5:g}" for low in re.findall(r"must be above (\S+?)(?:;| and|$)", text)
    ]


# commands that read a manifest with --data, and those that measure a run
READ = {"pretrain": TRAIN[:2], "cotrain": ["cotrain", "coclr-toy"], "flow": ["flow"]}
MEASURE = ("retrieve", "extract", "verdict", "probe", "mine", "uncertainty", "finetune")
FEATURES = ["explore", "videos", "--features", "f.npz"]
RUN_ERRORS = {
    "nowhere": "nowhere: there is no such file or folder",
    "videos": "is not a run",
    "many": "name one, such as many/run",
    "bare": "is not a run; name a run folder",
}
BY_HAND = [
    *((f"{name}: ", [*READ["pretrain"], "--data", name]) for name in TABLES),
    *((f"{name}: ", ["cotrain", "coclr-toy", "--data", name]) for name in TABLES),
    *((f"{name}: ", ["flow", name]) for name in TABLES),
    *(
        (words, [command, name])
        for command in MEASURE
        for name, words in RUN_ERRORS.items()
        if (command, name) not in (("finetune", "nowhere"), ("retrieve", "nowhere"))
    ),
    *(
        (f"{name}/recipe.json: ", [command, name])
        for command in MEASURE
        for name in ("torn", "strange")
    ),
    *(
        (f"there is no {kind} 'nothing'; ", args)
        for kind, args in (
            ("protocol", ["retrieve", "run", "--protocol", "nothing"]),
            ("protocol", ["extract", "run", "--protocol", "nothing"]),
            ("training", ["finetune", "run", "--preset", "nothing"]),
        )
    ),
    *(
        ("device", [*needed(command), "--device", "gpu"])
        for command in cli.COMMANDS
        if "device" in {o[0] for o in options_of(command)}
    ),
    ("there is no command 'retreive'; did you mean 'retrieve'?", ["retreive", "run"]),
    (
        "no recipe 'infonce-toy-rbg'; did you mean 'infonce-toy-rgb'?",
        ["pretrain", "infonce-toy-rbg"],
    ),
    ("--sampler '' is no path", ["pretrain", "coclr-toy-rgb-cycle1", "--sampler", ""]),
    ("--sampler: has no value", ["pretrain", "coclr-toy-rgb-cycle1", "--sampler"]),
    ("--sampler is a setting of another method", [*TRAIN, "--sampler", "run"]),
    ("kept: holds a run already", [*TRAIN, "--out", "kept"]),
    ("run: holds a run already", [*TRAIN, "--out", "run"]),
    ("kept: holds a run", ["finetune", "run", "--out", "kept"]),
    ("a.mp4: is a file; choose another --out", [*TRAIN, "--out", "a.mp4"]),
    ("a.mp4: is a file", ["toy", "a.mp4"]),
    ("a.mp4: is a file", ["demo", "--out", "a.mp4"]),
    ("a.mp4: is a file", ["finetune", "run", "--out", "a.mp4"]),
    ("bare: has no video", ["manifest", "bare"]),
    ("notes: has no video", ["manifest", "notes"]),
    ("nowhere: there is no such file or folder", ["manifest", "nowhere"]),
    ("a.mp4: is a file; name the folder", ["manifest", "a.mp4"]),
    ("a.mp4: is a video", ["flow", "a.mp4"]),
    ("a.mp4: is a video; name the folder", [*READ["pretrain"], "--data", "a.mp4"]),
    (
        "bare: is a folder without a manifest.csv; make one with",
        [*READ["pretrain"], "--data", "bare", "--dry-run"],
    ),
    ("run: is a run already; leave out --data", ["convert", "run", "new", "--data", "good.csv"]),
    (
        "--recipe makes a run, and a run needs --data",
        ["convert", "run", "new", "--recipe", "byol-toy-rgb"],
    ),
    (
        "--set changes a recipe: name it with --recipe",
        ["convert", "run", "new", "--set", "batch=2"],
    ),
    ("nowhere: there is no such file", ["convert", "nowhere", "new"]),
    ("--set epochs: is not name=value, such as epochs=5", ["finetune", "run", "--set", "epochs"]),
    (
        "--set =5: is not name=value, such as epochs=5",
        ["cotrain", "coclr-toy", "--data", "good.csv", "--set", "=5"],
    ),
    (
        "no co-training 'coclr'; did you mean 'coclr-toy'?",
        ["cotrain", "coclr", "--data", "good.csv"],
    ),
    ("f.npz: knows no data; name a manifest with --data", ["retrieve", "f.npz"]),
    ("infonce-toy-rgb: knows no data; name a manifest", ["retrieve", "infonce-toy-rgb"]),
    *(
        (f"{name}: knows no data; name a manifest with --data", [command, name])
        for name in ("hf:nowhere", "torchvision:s3d")
        for command in ("retrieve", "probe", "extract", "verdict")
    ),
    *(
        (words, [*args, name])
        for name, words in (
            (
                "hf:nowhere",
                "nowhere: is neither a folder nor a name on the Hub, owner/name; give one",
            ),
            (
                "torchvision:s4d",
                "torchvision:s4d: torchvision classifies with no such model; did you mean 's3d'",
            ),
            ("hf:", "hf:: names no model; give its name or a folder"),
        )
        for args in (
            ["retrieve", "--data", "good.csv"],
            ["probe", "--data", "good.csv"],
            ["retrieve", "--data", "good.csv", "--conflict"],
            ["extract", "--data", "good.csv"],
            ["search", "a.mp4", "--data", "videos", "--encoder"],
        )
    ),
    *(
        (
            "hf:nowhere: is an encoder of another library, and no run; take it to",
            [command, "hf:nowhere"],
        )
        for command in ("mine", "uncertainty")
    ),
    ("hf:nowhere: knows no data; name a manifest with --data", ["finetune", "hf:nowhere"]),
    (
        "what is no run is measured without --view",
        ["retrieve", "hf:nowhere", "--data", "good.csv", "--view", "rgb"],
    ),
    ("name the run folder that it lies in, run", ["retrieve", "run/encoder.safetensors"]),
    ("nowhere: is no run folder, no recipe", ["retrieve", "nowhere"]),
    ("there is no recipe 'nowhere'", ["finetune", "nowhere"]),
    ("runs/nowhere: there is no such file", ["finetune", "runs/nowhere"]),
    (
        "from scratch there is no run that knows its data; name a manifest",
        ["finetune", "infonce-toy-rgb"],
    ),
    ("run: no video was named; give files", ["predict", "run"]),
    ("b.mp4: there is no such file or folder, seen from", ["predict", "run", "b.mp4"]),
    ("nowhere: there is no such file or folder, seen from", ["predict", "nowhere", "a.mp4"]),
    (
        "run: has no classifier.safetensors; make one: `vssl-nb probe run`",
        ["predict", "run", "a.mp4"],
    ),
    ("--paper MoCo: no claim is of that paper; there are", ["claims", "--paper", "MoCo"]),
    (
        "there is no table 'nothing:table1' to reproduce",
        ["reproduce", "nothing:table1", "--data", "toy"],
    ),
    ("cpr:table1: say on what: --data toy", ["reproduce", "cpr:table1"]),
    ("nowhere: there is no such file or folder", ["report", "nowhere"]),
    ("notes: has no results.json", ["report", "notes"]),
    ("nowhere: there is no such folder", ["search", "a.mp4", "--data", "nowhere"]),
    ("bare: has no index yet", ["search", "a.mp4", "--data", "bare"]),
    (
        "nowhere: there is no such file; name a run folder",
        ["search", "a.mp4", "--encoder", "nowhere"],
    ),
    (
        "run/encoder.safetensors: is not a whole encoder.safetensors",
        ["search", "a.mp4", "--encoder", "run"],
    ),
    ("bare: has no index yet", ["explore", "bare"]),
    ("nowhere: there is no such file or folder", ["explore", "nowhere"]),
    ("a.mp4: is a file; name the folder", ["explore", "a.mp4"]),
    ("f.npz: cannot be read as features", ["explore", "videos", "--features", "f.npz"]),
    ("good.csv: cannot be read as features", ["explore", "videos", "--features", "good.csv"]),
    ("features are there already; leave out --encoder", [*FEATURES, "--encoder", "run"]),
    ("features are there already; leave out --index", [*FEATURES, "--index", "new"]),
    ("--spans has windows of its own", ["search", "a.mp4", "--spans", "--clips", "3"]),
    ("without an encoder.safetensors", ["search", "--spans", "--encoder", "kept"]),
    ("has no index yet", ["search", "--spans", "--data", "bare"]),
    ("a program is made without --recipe", ["convert", "run", "e.pt2", "--recipe", "byol-toy-rgb"]),
    ("kept/last.pt: is no encoder; name a run", ["convert", "kept/last.pt", "e.onnx"]),
    ("run/encoder.safetensors: not a safetensors file", ["convert", "run", "e.onnx"]),
    ("there is no training 'nothing'; ", ["dry-run", "infonce-toy-rgb", "--finetune", "nothing"]),
    (
        "a recipe has no field 'epochz'; did you mean 'epochs'?",
        ["dry-run", "infonce-toy-rgb", "--set", "epochz=3"],
    ),
    (
        "epochs='many' is not a value of type int",
        ["dry-run", "infonce-toy-rgb", "--set", "epochs=many"],
    ),
    (
        "--minutes: only own-videos is fitted to a time",
        [*READ["pretrain"], "--data", "good.csv", "--minutes", "3"],
    ),
]
