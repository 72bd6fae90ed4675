"""Packages that one feature needs: they are imported where they are used, and an extra of
`setup.py` installs them.
"""

from importlib import import_module
from types import ModuleType


class MissingPackage(ValueError):
    "A package that a feature needs and that is not installed; the sentence says what installs it."


def require(
    package: str,  # name of a module, such as 'sklearn.manifold'
    extra: str,  # the extra of this library that installs it, such as 'notebooks'
) -> ModuleType:  # the module
    "Import a package that only some features need. `MissingPackage` names its extra."
    try:
        return import_module(package)
    except ImportError as e:
        name = package.partition(".")[0]
        raise MissingPackage(
            f"this needs the package {name}, which cannot be imported ({e}): "
            f"pip install 'vssl_nb[{extra}]'"
        ) from None
