"The code of a function, for a page whose class is folded."

import ast
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
    first: str = "",  # how the first statement that is shown begins; '': all are shown
    last: str = "",  # how the last one begins
) -> SourceCode:
    """The code of functions or methods, as it stands in their cells, or some statements of it.

    `OSError` without a source, `ValueError` where no statement begins so.
    """
    texts = [textwrap.dedent(inspect.getsource(function)).rstrip() for function in functions]
    if first:
        texts = [_statements(text, first, last or first) for text in texts]
    return SourceCode("\n\n".join(texts))


def _statements(
    text: str,  # of a function
    first: str,
    last: str,
) -> str:
    "From the statement that begins with `first` to the end of the one that begins with `last`."
    statements = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    lines = text.split("\n")

    def named(beginning: str) -> ast.stmt:
        for node in statements:
            if lines[node.lineno - 1].lstrip().startswith(beginning):
                return node
        raise ValueError(f"{beginning!r}: no statement of the function begins so")

    start, end = named(first).lineno - 1, named(last).end_lineno
    return textwrap.dedent("\n".join(lines[start:end]))
