"""Keys in rows, with their label, source and row of the manifest: what a queue and a bank share."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..distributed import gather

COLUMNS_OF_A_KEY = ("label", "source", "row")


class Memory(nn.Module):
    """Keys of one or more views with their label, source and row: the common part of a queue and a
    bank.
    """

    keys: Tensor
    label: Tensor
    source: Tensor
    row: Tensor

    def __init__(
        self,
        dim: int,  # D of a key
        size: int,  # K, rows
        seed: int = 0,  # of the random keys it starts with
        # each row keeps a key of the same video in every one of these views
        views: tuple[str, ...] = ("keys",),
    ):
        super().__init__()
        if size < 1:
            raise ValueError(
                f"a memory of {size} keys is empty: give it at least the size of a batch"
            )

        self.size = size
        self.views = views
        self.staged: list[dict[str, Any]] = []  # keys of this step, with their columns

        rng = torch.Generator().manual_seed(seed)
        for name in self.buffers_of_views():
            self.register_buffer(name, F.normalize(torch.randn(size, dim, generator=rng)))
        for column in COLUMNS_OF_A_KEY:
            self.register_buffer(column, torch.full((size,), -1))

    # a name of a view may hold dots, that of a buffer may not
    def buffers_of_views(self) -> list[str]:
        return ["keys", *(f"keys_{i}" for i in range(1, len(self.views)))]

    def __getitem__(
        self,
        view: str,
    ) -> Tensor:  # (K, D)
        "The keys of one view."
        buffer = self.buffers_of_views()[self.views.index(view)]
        return getattr(self, buffer)

    def push(self, keys: Tensor | Mapping[str, Tensor], **columns: Tensor) -> None:
        raise NotImplementedError

    def stage(
        self,
        keys: Tensor | Mapping[str, Tensor],  # (B, D) here
        batch: Mapping[str, Any],  # whose keys they are
    ) -> None:
        """Keep keys for `push_staged`.

        So all passes of an optimizer step look into the same memory.
        """
        columns = {
            name: batch[name]
            for name in (*COLUMNS_OF_A_KEY, "index")
            if batch.get(name) is not None
        }
        self.staged.append({"keys": keys, **columns})

    def push_staged(self) -> None:
        "Push the staged keys of all processes, in the order in which they came."
        for columns in self.staged:
            keys = columns.pop("keys")
            if isinstance(keys, Mapping):
                keys = {view: gather(k) for view, k in keys.items()}
            else:
                keys = gather(keys)
            self.push(keys, **{name: gather(column) for name, column in columns.items()})

        self.staged.clear()


def _keys_by_view(
    memory: Memory,
    keys: Tensor | Mapping[str, Tensor],
) -> list[Tensor]:  # (B, D) for each view of the memory
    "Keys in the order of the memory's views. `ValueError`."
    by_view = keys if isinstance(keys, Mapping) else {memory.views[0]: keys}
    if set(by_view) != set(memory.views):
        raise ValueError(
            f"this memory keeps {len(memory.views)} keys in a row ({', '.join(memory.views)}), "
            f"not {', '.join(by_view)}: push one of each"
        )

    ordered = [by_view[view] for view in memory.views]
    B = len(ordered[0])
    D = memory.keys.shape[1]
    for k in ordered:
        if k.ndim != 2 or k.shape[1] != D:
            raise ValueError(f"keys have shape {tuple(k.shape)}: this memory takes (B, {D})")
        if len(k) != B:
            raise ValueError(f"{B} and {len(k)} keys: give as many of each view")
    if B > memory.size:
        raise ValueError(
            f"{B} keys do not fit into a memory of {memory.size}: make it at least as large as "
            "the batch"
        )
    return ordered


def new_rows(
    memory: Memory,
    keys: Tensor | Mapping[str, Tensor],
    columns: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Buffer -> (B, D) or (B,) rows for it; ValueError, before anything is written, where they do
    not fit.
    """
    unknown = columns.keys() - {*COLUMNS_OF_A_KEY, "index"}
    if unknown:
        raise ValueError(f"a key has no {min(unknown)}: give {', '.join(COLUMNS_OF_A_KEY)}")

    ordered = _keys_by_view(memory, keys)
    B = len(ordered[0])
    rows = {}
    for name in COLUMNS_OF_A_KEY:
        column = columns.get(name)
        if column is None:
            column = ordered[0].new_full((B,), -1)
        if column.shape != (B,):
            raise ValueError(
                f"{name} of shape {tuple(column.shape)} for {B} keys: pass one number per key"
            )
        rows[name] = column
    return {**rows, **dict(zip(memory.buffers_of_views(), ordered))}
