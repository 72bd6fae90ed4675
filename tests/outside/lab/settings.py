from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class MirrorSettings:
    dim: int = 32  # of the compared features
    momentum: float = 0.9  # of the target network
    clips: ClassVar[tuple[str, ...]] = ("one", "two")
    name: ClassVar[str] = "mirror"
    method: ClassVar[str] = "lab.mirror:Mirror"


@dataclass(frozen=True)
class ClashSettings:
    cache: int = 3  # an option of pretrain is called so
    name: ClassVar[str] = "clash"
    method: ClassVar[str] = "lab.mirror:Mirror"
