"""The options that several commands share, and what commands look at before they do anything."""

import ast
import contextlib
import json
import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from ...fields import Count, Index, NonNegative
from ...methods.recipes import from_dict
from ...paths import PathError, expect_manifest, expect_no_run, expect_run
from ...outputs import expect_replaceable
from ..launch import TORCHRUN, is_first
from ..options import Command, Mistake, word

# -- options


class MachineOptions(Command):
    "How a training is computed; the same options for every command that trains."

    device: str = "auto"  # auto, cpu, cuda or cuda:1
    # of the forward pass; none: float32, and bfloat16 of own-videos where the processor multiplies
    # it faster
    dtype: Literal["float32", "bfloat16"] | None = None
    # processes that decode, for each process that trains; the result does not depend on it
    workers: Index = 2
    cache: Index = 64  # MiB of decoded videos that each process keeps in memory
    compile: bool = False  # torch.compile the networks; needs a C++ compiler
    activation_checkpointing: bool = False  # compute activations twice: less memory, more time
    save_minutes: NonNegative = 5.0  # minutes from one checkpoint to the next
    # GPU: let cuDNN try its algorithms on the first step and keep the fastest
    cudnn_benchmark: bool = True
    # GPU: products; high: TF32, as convolutions
    matmul_precision: Literal["highest", "high", "medium"] = "highest"
    # GPU: algorithms that give the same bits again, where there are some; slower
    deterministic: bool = False
    quiet: bool = False  # no bars, and no word about memory
    # say what it would do, and the memory and time it would take; write nothing
    dry_run: bool = False

    def machine(self):
        "As one object."
        from ...training.machine import Machine

        if self.dtype == "bfloat16":
            warn_of_emulation(self.device)
        return Machine(
            device=self.device,
            dtype=self.dtype or "float32",
            workers=self.workers,
            cache=self.cache,
            compile=self.compile,
            activation_checkpointing=self.activation_checkpointing,
            save_minutes=self.save_minutes,
            cudnn_benchmark=self.cudnn_benchmark,
            matmul_precision=self.matmul_precision,
            deterministic=self.deterministic,
            progress=not self.quiet,
        )

    def print_budget(
        self,
        experiment,  # an `Experiment`
    ) -> None:
        "Print what a step will take; nothing of it stops a training."
        if self.quiet or not is_first():
            return
        from ...distributed import apart, world_size
        from ...runs.budget import describe_budget

        processes = world_size()
        try:
            with apart():
                text = describe_budget(experiment, processes)
        except Exception as e:
            text = f"the memory of a step could not be computed ({type(e).__name__}: {e})"
        print(text, file=sys.stderr)


class ReadingOptions(Command):
    "How videos are read and encoded; the same options for every command that measures."

    device: str = "auto"  # auto, cpu or cuda
    workers: Index = 2  # processes that decode

    def machine(
        self,
        **options,  # of `machine.Machine`
    ):
        "As one object."
        from ...training.machine import Machine

        return Machine(self.device, workers=self.workers, **options)


class EncodingOptions(ReadingOptions):
    "How an encoder is used."

    batch: Count = 64  # clips that go through the encoder together, at most
    dtype: Literal["float32", "bfloat16"] = "float32"  # of the encoder; the table names bfloat16

    def machine(
        self,
        **options,  # of `machine.Machine`
    ):
        "As one object."
        if self.dtype == "bfloat16":
            warn_of_emulation(self.device)
        return super().machine(**options)


class WritingOptions(Command):
    "Whether a file of somebody else may be written over."

    # write over a file that no command wrote; of a data set, a run, another command: never
    force: bool = False

    writer: ClassVar[str] = ""  # the command, as `outputs.file_owners` knows its files

    def check_files(self, *paths: Path | None) -> None:
        "Refuse to write over what this kind of command did not write. PathError."
        for path in paths:
            if path:
                expect_replaceable(path, self.writer, self.force)


class RunOptions(ReadingOptions):
    "A run, and the videos on which it is measured."

    folder: Path = word("RUN")  # run folder
    data: Path | None = None  # manifest; none: the one it was trained on


class EncoderOptions(EncodingOptions):
    "A run or an encoder of another library, and the videos on which it is measured."

    # run folder; or hf:NAME, timm:NAME, torchvision:NAME, published:efficientnet-lite0, or a
    # folder for NAME
    folder: Path = word("RUN")
    data: Path | None = None  # manifest; none: the one the run was trained on


# -- checks, before anything slow is imported

# bytes of a manifest that is read at once; to read a longer one takes a second
SHORT_MANIFEST = 1 << 23


def check_launch() -> None:
    "Refuse variables of a launcher that do not belong together. Mistake."
    if "RANK" not in os.environ:
        return
    missing = [name for name in TORCHRUN if name not in os.environ]
    if missing:
        raise Mistake(
            f"the environment has RANK={os.environ['RANK']} and no {missing[0]}: something that "
            "has ended left it there (unset RANK), or a launcher other than torchrun and srun is "
            "at work"
        )


def check_run(
    run: str | Path,  # a run folder
) -> None:
    "Refuse a folder that is no run, or whose recipe cannot be understood. PathError, RecipeError."
    expect_run(run)
    file = f"{run}/recipe.json"
    try:
        text = Path(file).read_text(encoding="utf-8")
    except OSError:
        return  # who needs it reads it again, and says why it cannot be read
    try:
        recipe = json.loads(text)
    except ValueError as e:
        raise PathError(
            f"{file}: not readable as JSON ({e}); the folder is damaged, take an earlier copy"
        ) from None
    from_dict(recipe, file)


def check_manifest(
    data: str | Path | None,  # manifest.csv, or the folder that holds it; None: that of the run
) -> None:
    "Refuse what is no manifest. PathError, ManifestError."
    if data is None:
        return
    expect_manifest(data)
    file = Path(data) / "manifest.csv" if Path(data).is_dir() else Path(data)
    if file.is_file() and file.stat().st_size < SHORT_MANIFEST:
        from ...data.manifest import read  # needs no PyTorch

        read(file)


def check_results(
    folder: Path,  # for a report and its results
) -> None:
    "Refuse a folder whose files other commands wrote. PathError."
    expect_no_run(folder)
    expect_replaceable(folder / "report.html", "report")
    expect_replaceable(folder / "results.json", "retrieve")


# -- words


@cache  # once a command
def warn_of_emulation(
    device: str,  # auto, cpu, cuda or cuda:1
) -> None:
    "Say what bfloat16 costs on a processor that has no instructions for it."
    from ...training.machine import fastest_dtype, pick_device

    place = pick_device(device)
    if place.type == "cpu" and fastest_dtype(place) == "float32" and is_first():
        print(
            "--dtype bfloat16: this processor has no instructions for it and emulates them, which "
            "takes some twenty times as long as float32; leave --dtype out",
            file=sys.stderr,
        )


def results_folder(
    source: str | Path,  # run folder, or the name of an encoder
    name: str = "",  # what tables call it
) -> Path:
    "Where results go."
    if Path(source).is_dir():
        return Path(source)
    return Path("runs") / re.sub(r"\W+", "-", name or str(source))


def changes(
    words: Sequence[str],  # words such as epochs=5
) -> dict[str, Any]:  # name -> value
    "The fields that `--set` names; Mistake where a word is no assignment."
    values: dict[str, Any] = {}
    constants = {"true": True, "false": False, "null": None, "none": None}
    for text in words:
        name, equals, written = text.partition("=")
        if not equals or not name:
            raise Mistake(f"--set {text}: is not name=value, such as epochs=5")
        value: Any = written
        if written.lower() in constants:
            value = constants[written.lower()]
        else:
            with contextlib.suppress(ValueError, SyntaxError):  # it stays a word
                value = ast.literal_eval(written)
        values[name.replace("-", "_")] = tuple(value) if isinstance(value, list) else value
    return values


def print_results(
    rows: Sequence[dict[str, Any]],  # of results.json
    *lines: Any,  # below the table
) -> None:
    "Results as a table, and further lines."
    from ...papers.report import sheet, summary

    print(sheet(summary(rows), "text"), *lines, sep="\n")
