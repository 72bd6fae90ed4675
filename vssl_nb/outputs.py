"""Files that commands write: each is known by its beginning, so that a command writes over files of
its own kind only.
"""

import mmap
import re
from pathlib import Path
from typing import NamedTuple

from .paths import PathError, expect_writable


class Output(NamedTuple):
    "A kind of file that a command writes."

    command: str  # without vssl-nb
    suffix: str  # of the name
    begins: bytes  # a regular expression of how such a file begins


_NPZ = rb"PK.{28}video\.npy.*label\.npy.*x\.npy"
_RELEASED = rb"PK.{28}archive/data\.pkl.{1,200}?epoch.{1,20}(best_acc|opt)"
_SEARCH_PAGE = rb'<!doctype html><html lang="en"><meta charset="utf-8"><title>Search<'
_EXPLORE_PAGE = _SEARCH_PAGE.replace(b"Search", b"Explore")
_REPORT_PAGE = (
    rb'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    rb'<meta http-equiv="Content-Security-Policy"'
)
_MANIFEST = rb'\W{0,4}(?=[\w,;\t "]*\bvideo\b)[\w,;\t "]*\b(source|split1)\b'

OUTPUTS = (
    Output("extract", ".npz", _NPZ),
    Output("extract", ".csv", rb"video,0[,\n]"),
    Output("extract", ".parquet", rb"PAR1.*vssl_nb\.features"),
    Output("search", ".csv", rb"query,rank,similarity,video\n"),
    Output("search", ".json", rb'\[\n \{\n  "query": '),
    Output("search", ".html", _SEARCH_PAGE),
    Output("explore", ".html", _EXPLORE_PAGE),
    Output("explore", ".csv", rb"video,label,map_x,map_y,group,"),
    Output("predict", ".csv", rb"video,status,predicted,"),
    Output("mine", ".json", rb'\[\n \{\n  "miner": '),
    Output("uncertainty", ".csv", rb"rank,video,label,uncertainty,between,status\n"),
    Output("report", ".html", _REPORT_PAGE),
    Output("convert", ".tar", _RELEASED),
    Output("convert", ".pth", _RELEASED),
    Output("convert", ".pt", _RELEASED),
    Output("convert", ".safetensors", rb'.{8}\{"__metadata__":\{"vssl_nb":"[^\n]*\\"source\\": '),
    Output("convert", ".json", rb'\{\n "backbone": .*\n "source": '),
    Output("convert", ".pt2", rb"PK.*vssl_nb\.json"),
    Output("convert", ".onnx", rb"\x08.*vssl_nb\.program"),
    Output("convert", ".json", rb'\{\n "program": '),
    Output("convert", ".md", rb"---\nlibrary_name: vssl_nb\n"),
    Output("manifest", ".csv", _MANIFEST),
    Output("flow", ".csv", rb"video,label,source,split1,"),
    Output("flow", ".json", rb'\{\n "format": '),
    Output("toy", ".json", rb'\{\n "drawing": '),
    Output("retrieve", ".json", rb'\[\n \{\n  "name": '),
)


def output_suffixes(
    command: str,
) -> list[str]:  # such as '.csv'
    "How the names of the files end that a command writes."
    return [*dict.fromkeys(output.suffix for output in OUTPUTS if output.command == command)]


def file_owners(
    path: Path,  # of a file
) -> list[str]:  # 'vssl-nb extract', 'the run runs/mine'
    "The commands that write files which begin like this one, and the run that it lies in."
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as content:
        commands = [
            f"vssl-nb {output.command}"
            for output in OUTPUTS
            if re.match(output.begins, content, re.DOTALL)
        ]
    runs = [p for p in path.absolute().parents[:2] if (p / "recipe.json").exists()]
    return commands + [f"the run {run}" for run in runs]


def expect_replaceable(
    path: str | Path,  # of a file to be written; it need not exist
    command: str,  # that writes it
    # write over a file of no command; None: the command has no --force
    force: bool | None = None,
) -> None:
    """Raise PathError, before the work, where a file would be lost that this kind of command did
    not write.
    """
    expect_writable(path)
    path = Path(path)
    suffixes = output_suffixes(command)
    if path.suffix not in suffixes:
        raise PathError(f"{path}: must end in {', '.join(suffixes)}; take such a name")
    if not path.exists() or not path.stat().st_size:
        return

    owners = file_owners(path)
    if f"vssl-nb {command}" in owners:
        return
    if owners:
        raise PathError(f"{path}: is a file of {owners[0]}; choose another name")
    if not force:
        remedy = "" if force is None else ", or write over it with --force"
        raise PathError(f"{path}: is no file of vssl-nb {command}; choose another name{remedy}")
