"Packages of others that this library imports."

import importlib.util

from .paths import PathError

SHADOWED = ("torch", "numpy", "av", "tqdm", "safetensors", "matplotlib")


def refuse_shadowed_packages() -> None:
    """PathError for a file such as torch.py, in this folder or on the path, that is taken for a
    package.
    """
    for name in SHADOWED:
        spec = importlib.util.find_spec(name)
        if spec and spec.origin and not spec.submodule_search_locations:
            raise PathError(
                f"{spec.origin}: would be imported in place of the package {name}; rename it, or "
                "start in another folder"
            )
