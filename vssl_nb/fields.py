"""Types of the fields of settings with their ranges, and the check that settings make of them.

A range is written in the type, so that the check and the help of the command line read the same
words: `Annotated[float, "[0, 1)"]` is 0 or more, and below 1.
"""

import math
import types
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints


class RecipeError(ValueError):
    "A recipe or a field that does not exist, or a value of a wrong type or range."


Count = Annotated[int, "[1, inf)"]
Index = Annotated[int, "[0, inf)"]
Seed = Annotated[int, "[0, 9223372036854775808)"]  # of 63 bits
Share = Annotated[float, "[0, 1]"]  # also a probability
Positive = Annotated[float, "(0, inf)"]
NonNegative = Annotated[float, "[0, inf)"]


def in_words(kind: Any) -> str:
    "A type annotation for people: 'one of 1, 2', 'a value of type int'."
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(repr, get_args(kind)))

    plain = isinstance(kind, type) and not get_args(kind)
    return f"a value of type {kind.__name__ if plain else kind}"


def fits(
    value: Any,
    kind: Any,  # a type annotation
) -> bool:
    "Is the value of that type? An int is a float, a bool is not a number."
    origin = get_origin(kind)
    inner = get_args(kind)
    if kind is Any:
        return True
    if origin is Annotated:
        return fits(value, inner[0])
    if origin in (Union, types.UnionType):
        return any(fits(value, k) for k in inner)
    if origin is Literal:
        return value in inner
    if origin is tuple:
        return isinstance(value, tuple) and _items_fit(value, inner)
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    return isinstance(value, kind)


def _items_fit(
    value: tuple[Any, ...],
    kinds: tuple[Any, ...],  # of the items; `(int, ...)`: of all of them
) -> bool:
    if kinds[-1] is ...:
        return all(fits(item, kinds[0]) for item in value)
    return len(value) == len(kinds) and all(map(fits, value, kinds))


def interval(
    kind: Any,  # a type annotation
) -> str:  # '[0, 1)'; '' where the type has none
    "The range that an annotation gives its numbers, those inside a union or tuple included."
    if get_origin(kind) is Annotated:
        return next((m for m in kind.__metadata__ if isinstance(m, str)), "")

    ranges = map(interval, get_args(kind))
    return next(filter(None, ranges), "")


def out_of_range(
    value: Any,
    limits: str,  # '[0, 1)'; '': any finite number
) -> str:  # 'must be 0 or more and below 1'
    "The range that a number misses, in words; '' if it is inside, or no number."
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ""
    finite = math.isfinite(value)
    if not limits:
        return "" if finite else "is not a finite number"

    low, high = (float(x) for x in limits[1:-1].split(","))
    with_low = limits[0] == "["
    with_high = limits[-1] == "]"
    above = value > low or with_low and value == low
    below = value < high or with_high and value == high
    if above and below and finite:
        return ""

    words = f"{low:g} or more" if with_low else f"above {low:g}"
    if high < math.inf:
        words += f" and {high:g} or less" if with_high else f" and below {high:g}"
    return f"must be {words}" if finite else f"is not a finite number; it must be {words}"


@lru_cache(None)
def _field_types(
    cls: type,  # a dataclass
) -> dict[str, tuple[Any, str]]:  # field -> type without its range, and the range
    plain = get_type_hints(cls)
    ranged = get_type_hints(cls, include_extras=True)
    return {name: (kind, interval(ranged[name])) for name, kind in plain.items()}


Part = TypeVar("Part")


def checked(
    part: Part,  # a frozen dataclass: a recipe, or a part of one
) -> Part:  # the same
    "Refuse a value that is not of the type of its field, or outside its range. `RecipeError`."
    kinds = _field_types(type(part))  # type: ignore[arg-type]
    for f in fields(part):  # type: ignore[arg-type]
        value = getattr(part, f.name)
        kind, limits = kinds[f.name]
        if not fits(value, kind):
            raise RecipeError(f"{f.name}={value!r} is not {in_words(kind)}; give one")

        for number in value if isinstance(value, tuple) else (value,):
            wrong = out_of_range(number, limits)
            if wrong:
                raise RecipeError(f"{f.name}={value!r} {wrong}")

        if is_dataclass(value):
            checked(value)
    return part


class Settings:
    """What settings and recipes derive from: frozen dataclasses that check their values when they
    are made.
    """

    def __post_init__(self) -> None:
        checked(self)
