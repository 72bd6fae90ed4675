from dataclasses import dataclass
from typing import ClassVar

from vssl_nb.config import ClipGroup


@dataclass(frozen=True)
class SizesSettings:
    dim: int = 16
    slices: int = 64
    clips: ClassVar[tuple[str, ...]] = ("1", "2")
    name: ClassVar[str] = "sizes"
    method: ClassVar[str] = "sizes.method:Sizes"

    @property
    def clip_groups(self):
        return {
            "middle": ClipGroup(clips=2, length=8, size=24, area=(0.3, 0.6)),
            "small": ClipGroup(clips=3, length=4, size=16, area=(0.1, 0.3)),
        }
