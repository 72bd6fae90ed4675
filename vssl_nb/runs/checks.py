"""What somebody's parts lack, in plain words: errors in one sentence, a method tried for a step."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..names import error_in_words
from ..training.loop import TrainError

GLOBAL_RNG = "forward draws from torch's global generator: a resumed run would end elsewhere"


@contextmanager
def errors_of(
    part: str,  # 'the backbone lab:net', for the message
) -> Iterator[None]:
    "Turn an error of somebody's part into one sentence. `TrainError`; a ValueError stays as it is."
    try:
        yield
    except (ValueError, OSError):
        raise
    except (Exception, SystemExit) as e:
        raise TrainError(
            f"{part} fails: {error_in_words(e)}; VSSL_DEBUG=1 shows the way there"
        ) from e


def check_method(
    method: Any,  # somebody's method
    # from `Views`: then one step of a copy is tried as well
    batch: dict[str, Any] | None = None,
) -> list[str]:  # what of the contract is missing; empty if nothing is
    "What a method still lacks to be trained, resumed and measured, in plain words."
    if not isinstance(method, nn.Module):
        return [f"it is a {type(method).__name__}, not an nn.Module"]

    lacks = _missing_parts(method)
    if lacks or batch is None:
        return lacks
    return _failures_of_a_step(method, batch)


def _missing_parts(method: nn.Module) -> list[str]:
    "What a method does not define."
    lacks = []
    if type(method).forward is nn.Module.forward:
        lacks.append("it has no forward(batch)")

    encoder = getattr(method, "encoder", None)
    if not isinstance(encoder, nn.Module):
        lacks.append("it has no encoder for evaluation to take: set self.encoder")
    elif not isinstance(getattr(encoder, "dim", None), int):
        lacks.append("its encoder does not say the length of its features: set .dim")

    exported = getattr(method, "exported", "encoder")
    try:
        method.get_submodule(exported)
    except AttributeError:
        if exported != "encoder":
            lacks.append(f"it exports {exported!r}, which it does not have: change `exported`")

    if not any(p.requires_grad for p in method.parameters()):
        lacks.append("nothing in it learns: no parameter requires a gradient")
    return lacks


def _failures_of_a_step(
    method: nn.Module,
    batch: dict[str, Any],  # from `Views`
) -> list[str]:
    "What goes wrong when a copy takes a step without an optimizer."
    batch = {"step": 0, "part": 0, "epoch": 0, "progress": 0.0} | batch
    before = torch.get_rng_state()
    try:
        trial = copy.deepcopy(method).train()
        result = trial(batch)
    except Exception as e:
        return [f"forward fails: {error_in_words(e)}"]

    if not isinstance(result, tuple) or len(result) != 2:
        kind = f"a {type(result).__name__}"
        given = f"{len(result)} things" if isinstance(result, tuple) else kind
        return [f"forward gave {given}, not (loss, logs)"]

    lacks = []
    if not torch.equal(before, torch.get_rng_state()):
        lacks.append(GLOBAL_RNG)
    loss, logs = result
    lacks += _wrong_loss(loss)
    lacks += _wrong_logs(logs)

    after_step = getattr(trial, "after_step", None)
    if after_step is None:
        return lacks
    try:
        after_step(batch)
    except Exception as e:
        lacks.append(f"after_step fails: {error_in_words(e)}")
    return lacks


def _wrong_loss(loss: Any) -> list[str]:
    "Why a loss is none; None, for no optimizer step this time, is one."
    if loss is None:
        return []
    if not (isinstance(loss, Tensor) and loss.ndim == 0 and loss.requires_grad):
        return ["the loss is not a scalar with gradient, nor None"]
    return [] if loss.isfinite() else [f"the first loss is {loss.item()}"]


def _wrong_logs(logs: Any) -> list[str]:
    "Why logs are none."
    if not isinstance(logs, dict):
        return [f"logs are a {type(logs).__name__}, not a dict"]

    lacks = []
    for name, value in logs.items():
        scalar = isinstance(value, Tensor) and value.ndim == 0
        if not scalar and not isinstance(value, (int, float, np.number)):
            lacks.append(f"the log {name!r} is not a scalar")
    return lacks
