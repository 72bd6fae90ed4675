"""Settings and recipes of all methods, one module a method, without PyTorch.

Whoever reads recipes takes the tools from here: with them come all that are published.
"""

from . import (  # noqa: F401
    infonce,
    byol,
    simclr,
    ubernce,
    coclr,
    cpr,
    iic,
    moquad,
    provico,
    lejepa,
    masked,
    supervised,
)
from ...config import (
    COTRAININGS,
    METHODS,
    RECIPES,
    difference,
    find,
    flat_fields,
    from_dict,
    override,
    refuse_unfit,
    settings_class,
    to_dict,
)
from ...fields import checked

__all__ = [
    "COTRAININGS",
    "METHODS",
    "RECIPES",
    "checked",
    "difference",
    "find",
    "flat_fields",
    "from_dict",
    "override",
    "refuse_unfit",
    "settings_class",
    "to_dict",
]
