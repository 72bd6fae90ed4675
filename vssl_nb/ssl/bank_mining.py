"""Mining over a memory bank: miners for the parts of a training, and a search through all rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .memory import Bank
from .mining import (
    ClassMiningRecall,
    Mined,
    make_miner,
    mine,
    mining_hits,
    mining_precision,
    mining_recall,
)


def mine_nothing(
    sims: Mapping[str, Tensor],
    excluded: Tensor,  # (B, V) bool
) -> Tensor:  # (B, V) bool, all False
    "The miner of a part of the training without mining."
    return torch.zeros_like(excluded)


def make_miners(
    name: str | None,  # of `ssl.mining.make_miner`; None: no mining at all
    topk: Sequence[int],  # positives in each part of the training; 0: none in this part
    options: tuple[str, ...],  # further arguments of the miner, such as 'stages=7'
    views: tuple[str, ...],  # of the similarities it will be given
    videos: int,  # V, rows to search
) -> list[Callable | None]:  # one for each part of the training
    "The miners of the parts of a training, tried before the first step. `ValueError`."
    if name is None:
        return [None] * len(topk)

    miners = [make_miner(name, max(k, 1), options) for k in topk]
    # a later part may ask for too many
    sims = {view: torch.zeros(1, videos) for view in reversed(views)}
    for miner in miners:
        miner(sims, torch.zeros(1, videos, dtype=torch.bool))
    return [miner if k else mine_nothing for k, miner in zip(topk, miners)]


def mine_banks(
    miner: Callable,  # (sims, excluded) -> (B, V) bool, such as `TopK` or `Cascade`
    # view -> (B, V), features and rows of one view; the mining view first
    sims: Mapping[str, Tensor],
    bank: Bank,  # what `sims` looked at
    batch: Mapping[str, Any],  # index (B,); source, label (B,), -1 or left out where unknown
    same_source: str,  # clips of the same recording: 'negative', 'positive' or 'ignored'
    cmr: ClassMiningRecall | None = None,  # counts what is mined rightly in an epoch
) -> tuple[Mined, dict[str, Tensor]]:  # masks over the rows, and what the labels say of them
    "Search all rows that hold a key, but that of the video itself."
    index = batch["index"]
    unknown = torch.full_like(index, -1)
    label = batch.get("label", unknown)
    source = batch.get("source", unknown)

    other_video = torch.arange(bank.size, device=index.device) != index[:, None]
    mined = mine(miner, sims, source, bank.source, bank.valid & other_video, same_source)

    mining_sim = next(iter(sims.values()))
    logs = {
        "mined": mining_precision(mined.others, label, bank.label),
        "mined_r1": mining_recall(mining_sim, mined.excluded, label, bank.label),
    }
    if cmr is not None:
        cmr.update(mined.others, label, bank, batch.get("epoch", 0))
        logs["mined_rk"] = mining_hits(mined.others, label, bank.label)
    return mined, logs
