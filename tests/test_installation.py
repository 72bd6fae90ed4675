"What `pip install .` brings trains and evaluates; what takes more says what to install."

import json
import os
import re
import subprocess
import sys
from configparser import ConfigParser

import pytest
from house import ROOT

SETTINGS = ConfigParser(delimiters=["="])
SETTINGS.read(ROOT / "settings.ini", encoding="utf-8")
SETTINGS = SETTINGS["DEFAULT"]
# distributions that Python knows by another name
MODULES = {"opencv-contrib-python-headless": "cv2", "scikit-learn": "sklearn"}


def distributions(requirements: str) -> set[str]:
    "Names without their versions."
    return {re.split(r"[><=!~,]", one)[0] for one in requirements.split()}


BASE = distributions(SETTINGS["requirements"])
EXTRAS = {
    name: distributions(SETTINGS[f"{name}_requirements"]) for name in SETTINGS["extras"].split()
}
BLOCKED = sorted({MODULES.get(d, d) for packages in EXTRAS.values() for d in packages - BASE})

BLOCK = f"""
import sys
from importlib.machinery import PathFinder

find_spec = PathFinder.find_spec

def without_extras(name, *more):
    "What is in sys.path, as if no extra were installed."
    return None if name.partition(".")[0] in {BLOCKED} else find_spec(name, *more)

PathFinder.find_spec = without_extras
"""


def without_extras(program: str, cwd, *args) -> subprocess.CompletedProcess:
    "Run a program in a Python that has what `pip install .` brings, and no more."
    return subprocess.run(
        [sys.executable, "-c", BLOCK + program, *map(str, args)],
        cwd=cwd,
        text=True,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


@pytest.fixture(scope="module")
def metadata(tmp_path_factory) -> dict[str, set[str]]:
    "Distributions that the package asks for, by extra; what it always brings under ''."
    place = tmp_path_factory.mktemp("metadata")
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(place)]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    asked: dict[str, set[str]] = {"": set()}
    extra = ""
    for line in next(place.glob("*/requires.txt")).read_text().splitlines():
        if line.startswith("["):
            extra = line.strip("[]")
            asked[extra] = set()
        elif line:
            asked[extra] |= distributions(line)
    return asked


def test_an_installation_brings_no_package_of_an_extra(metadata):
    assert metadata[""] == BASE
    for name, packages in EXTRAS.items():
        assert metadata[name] == packages
        assert packages and not packages & BASE


def test_who_works_on_the_project_has_every_extra(metadata):
    assert all(packages <= metadata["dev"] for packages in EXTRAS.values())


IMPORT_ALL = """
import importlib, json, pkgutil, vssl_nb
for module in pkgutil.walk_packages(vssl_nb.__path__, "vssl_nb."):
    importlib.import_module(module.name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def test_every_module_is_imported_without_extras(tmp_path):
    done = without_extras(IMPORT_ALL, tmp_path)
    assert done.returncode == 0, done.stderr
    assert not {*BLOCKED} & {*json.loads(done.stdout)}


COMMANDS = """
import json
from vssl_nb.app import cli
for args in json.loads(sys.argv[1]):
    code = cli.main(args)
    if code:
        sys.exit(f"{args} ended with {code}")
"""


def test_training_and_measuring_take_no_extra(tmp_path):
    few = ["--workers", "0", "--device", "cpu"]
    small = ["--batch", "8", "--queue", "16", "--length", "4", "--size", "16"]
    commands = [
        ["toy", "videos", "--size", "tiny"],
        ["pretrain", "infonce-toy-rgb", "--data", "videos", "--epochs", "1", "--out", "run"],
        ["retrieve", "run", "--no-baselines", *few],
        ["probe", "run", *few],
        ["report", "run"],
    ]
    commands[1] += ["--quiet", *small, *few]
    done = without_extras(COMMANDS, tmp_path, json.dumps(commands))
    assert done.returncode == 0, done.stderr
    run = tmp_path / "run"
    assert (run / "encoder.safetensors").exists() and (run / "steps.csv").read_text().count(
        "\n"
    ) > 1
    assert {row["task"] for row in json.loads((run / "results.json").read_text())} == {
        "retrieval",
        "probe",
    }
    assert not (run / "tb").exists()  # of TensorBoard


def test_a_feature_names_its_extra(tmp_path):
    program = COMMANDS.replace("if code:", "if False:")
    commands = [
        ["toy", "videos", "--size", "tiny"],
        ["flow", "videos", "--method", "dis"],
    ]
    done = without_extras(program, tmp_path, json.dumps(commands))
    assert done.returncode == 0, done.stderr
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("vssl-nb: ")]
    assert "cv2" in sentence and "vssl_nb[flow]" in sentence


def test_every_extra_that_is_asked_for_exists():
    asked = set()
    for path in (ROOT / "vssl_nb").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        asked |= {*re.findall(r"\brequire\(\s*\"([\w.]+)\",\s*\"(\w+)\"", text)}
    assert asked
    for package, extra in asked:
        top = package.partition(".")[0]
        assert top in {MODULES.get(d, d) for d in EXTRAS[extra]}, (package, extra)
