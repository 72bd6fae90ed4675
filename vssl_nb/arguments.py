"Arguments that are refused in one sentence."

from collections.abc import Sequence
from typing import Any

import numpy as np


def positive(
    **numbers: Any,  # name -> what was given
) -> None:
    "Refuse, in one sentence, a number that is not an integer of at least 1."
    for name, n in numbers.items():
        if isinstance(n, (bool, np.bool_)) or not isinstance(n, (int, np.integer)) or n < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, not {n!r}.")


def one_of(
    choices: tuple[str, ...],  # that exist
    **options: Any,  # name -> what was given
) -> None:
    "Refuse, in one sentence, an option that does not exist."
    for name, value in options.items():
        if value not in choices:
            raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, not {value!r}.")


def check_chosen(
    clips: int,  # V
    name: str,  # an option
    change: str,  # the value of the option: how clips are changed
    chosen: Sequence[int],  # the numbers of these clips
    remedy: str,  # what to tell, for the message
) -> None:
    "Refuse clips that do not exist, a change of no clip, and clips without a change."
    if any(not 0 <= i < clips for i in chosen):
        raise ValueError(
            f"{name}_clips={tuple(chosen)} counts clips from 0, and there are {clips}."
        )
    if (change == "none") != (not chosen):
        raise ValueError(
            f"{name}={change!r} with {name}_clips={tuple(chosen)}: say {remedy}, or leave both out."
        )
