"The code of a function, for a page whose class is folded."

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class SourceCode:
    "Lines of Python; they display themselves with the colours of code."

    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        return f"```python\n{self.text}\n```"


def source(
    *functions: Callable,  # such as the `forward` of a class of the page
) -> SourceCode:
    "The code of functions or methods, as it stands in their cells. `OSError` without a source."
    texts = [textwrap.dedent(inspect.getsource(function)).rstrip() for function in functions]
    return SourceCode("\n\n".join(texts))
