from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class MaskedSettings:
    visible: float = 0.25  # share of the tokens that the encoder sees
    momentum: float = 0.9  # of the target at the beginning; rises to 1 in a line
    clips: ClassVar[tuple[str, ...]] = ("x",)
    name: ClassVar[str] = "masked_lab"
    method: ClassVar[str] = "masked.method:Masked"
