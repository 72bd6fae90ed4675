"Files of `torch.save`, from anybody: read without running what is in them, in memory of their size"

import argparse
import codecs
import pickle
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..training.checkpoints import CheckpointError

MAX_PICKLE = 2**26  # bytes; the pickle of the largest released file has 0.3 MB
# how NumPy pickles a scalar, under the names of NumPy 1 and 2
_scalar = np.float64(0).__reduce__()[0]
# what a file may name beside tensors and containers: the options of a command, and scalars of NumPy
HARMLESS: list[Any] = [
    argparse.Namespace,
    codecs.encode,
    np.dtype,
    (_scalar, "numpy.core.multiarray.scalar"),
    (_scalar, "numpy._core.multiarray.scalar"),
    *(type(np.dtype(t)) for t in ("?", "i4", "i8", "f4", "f8")),
]


class UnfitFile(ValueError):
    "Why a file is not to be loaded, as part of a sentence."


def read_torch_file(
    path,  # written by `torch.save`, of any version since 0.4
    # returns: nested containers of tensors (on the CPU), numbers and words; were there checksums?
) -> tuple[Any, bool]:
    """Read a file of weights without running anything in it, in memory of its size.

    `CheckpointError`.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"{path}: there is no such file")
    try:
        size = path.stat().st_size
        with path.open("rb") as f:
            checked = f.read(2) == b"PK"
        if checked:
            _check_archive(path, size)
        # warnings: pickle protocols of other versions, storages with types
        with torch.serialization.safe_globals(HARMLESS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = torch.load(path, "cpu", weights_only=True)
        _check_memory(content, size)
        return content, checked
    except UnfitFile as e:
        reason = str(e)
    except pickle.UnpicklingError as e:
        name = re.search(r"GLOBAL ([\w.]+)", str(e))
        named = f"it names {name[1][:80]}, which is" if name else "its pickle holds what is"
        reason = f"{named} no part of plain weights, so it could run code"
    except Exception as e:  # a damaged pickle can fail in any way
        words = [*str(e).splitlines(), type(e).__name__][0][:100]
        reason = f"it is damaged, or its end is missing ({words})"
    raise CheckpointError(
        f"{path}: was not loaded: {reason}; take the file from its authors again, or ask them for "
        "a plain state_dict"
    )


def _check_archive(
    path: Path,
    size: int,  # of the file, bytes
) -> None:
    "`UnfitFile` for an archive that `torch.save` would not have written, or that is damaged."
    with zipfile.ZipFile(path) as archive:
        files = archive.infolist()
        if any(i.compress_type != zipfile.ZIP_STORED or i.flag_bits & 1 for i in files):
            raise UnfitFile("it is a compressed archive, and torch.save writes none")
        if sum(i.file_size for i in files) > size:
            raise UnfitFile(f"its contents are larger than its {size:,} bytes: a zip bomb")
        if any(i.filename.endswith("data.pkl") and i.file_size > MAX_PICKLE for i in files):
            raise UnfitFile("its pickle is too long")
        broken = archive.testzip()  # `torch.load` does not look at the checksums
        if broken:
            raise UnfitFile(f"damaged: the checksum of {broken} does not match")


def _check_memory(
    content: Any,  # of the file
    size: int,  # of the file, bytes
) -> None:
    "`UnfitFile` for tensors that would take more memory than the file has."
    tensors = _tensors(content)
    for x in tensors:
        # a tensor of stride 0 has more numbers than memory, until somebody copies it
        if x.nbytes > x.untyped_storage().nbytes():
            raise UnfitFile(f"a tensor {tuple(x.shape)} reaches beyond its numbers")
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage() for x in tensors}
    if sum(storage.nbytes() for storage in storages.values()) > size:
        raise UnfitFile(f"it has more numbers than its {size:,} bytes can hold")


def _tensors(
    content: Any,
) -> list[Tensor]:  # of nested containers, each once, however often it is named
    tensors: list[Tensor] = []
    seen: set[int] = set()
    left = [content]
    while left:
        x = left.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if isinstance(x, Tensor):
            tensors.append(x)
        elif isinstance(x, argparse.Namespace):
            left.append(vars(x))
        elif isinstance(x, dict):
            left += x.values()
        elif isinstance(x, (list, tuple)):
            left += x
    return tensors
