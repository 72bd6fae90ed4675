"Sliders that move without a kernel."

import json
from base64 import b64encode
from collections.abc import Callable, Iterable
from html import escape
from itertools import product

import numpy as np

from .loops import still_png

# the picture of values (i, j, ...) has the place that counts the last one fastest, as `product`
# does
_MOVE = """{const root = document.currentScript.parentElement;
const sliders = [...root.querySelectorAll('input')];
const names = %s;
const pictures = %s;
const move = () => {
  const at = sliders.reduce((before, s, i) => before*names[i].length + Number(s.value), 0);
  sliders.forEach((s, i) => { s.nextElementSibling.textContent = names[i][s.value]; });
  root.querySelector('img').src = 'data:image/png;base64,' + pictures[at];
};
sliders.forEach(s => { s.disabled = false; s.oninput = move; });
root.querySelector('small').hidden = true;
move();}"""


def _in_script(
    x: list,
) -> str:
    "A value inside an element of HTML: no `<` may end it."
    return json.dumps(x).replace("<", r"\u003c")


class Slider:
    """Pictures behind sliders that move without a kernel: on the site, and in a notebook that
    nobody has run.

    All pictures are drawn at once and stored in the page; with a kernel, change what the cell has
    and run it. Two sliders:
    `Slider(lambda tau, epoch: show.matrix(shares(epoch, tau)), tau=[.1, 1], epoch=range(9))`.
    """

    def __init__(
        self,
        # given one value per name, makes a figure, a `Loop`, or a picture as `Loop` takes them
        draw: Callable,
        /,
        # name -> the value that is shown first; None = the first of each
        start: dict | None = None,
        max_bytes: int = 200_000,  # of all pictures together; above it, ValueError
        # name -> the values of one slider, in their order; numbers or words
        **values: Iterable,
    ):
        self.values = {name: [*choices] for name, choices in values.items()}
        if not self.values or not all(self.values.values()):
            raise ValueError(
                "slider: give a name and at least one value, such as temperature=[.1, 1.]"
            )
        start = start or {}
        for name, first in start.items():
            if first not in self.values.get(name, []):
                raise ValueError(
                    f"slider: start has {name}={first!r}; the values are {self.values}"
                )
        self.at = [
            choices.index(start.get(name, choices[0])) for name, choices in self.values.items()
        ]

        self.pictures = []
        for combination in product(*self.values.values()):
            self.pictures.append(still_png(draw(**dict(zip(self.values, combination)))))
        size = sum(map(len, self.pictures))
        if size > max_bytes:
            raise ValueError(
                f"slider: {len(self.pictures)} pictures have {size / 1000:.0f} KB and "
                f"{max_bytes / 1000:.0f} are allowed; give fewer values, or smaller pictures"
            )

    def _repr_html_(self) -> str:
        names = [
            [value if isinstance(value, str) else f"{value:g}" for value in choices]
            for choices in self.values.values()
        ]
        pictures = [b64encode(picture).decode() for picture in self.pictures]
        rows = []
        for name, choices, i in zip(self.values, names, self.at):
            # data-lm-suppress-shortcuts: in JupyterLab the arrow keys belong to the slider
            rows.append(
                f'<label style="margin-right: 2em">{escape(name)} <input type="range" min="0" '
                f'max="{len(choices) - 1}" value="{i}" disabled data-lm-suppress-shortcuts="true" '
                f'style="vertical-align: middle"> <output>{escape(choices[i])}</output></label>'
            )
        first = pictures[np.ravel_multi_index(self.at, [*map(len, names)])]
        script = _MOVE % (_in_script(names), _in_script(pictures))
        return (
            f"<div>{''.join(rows)}<small>run the cell to move it</small><br>"
            '<img alt="what the sliders show" style="max-width: 100%" '
            f'src="data:image/png;base64,{first}">'
            f"<script>{script}</script></div>"
        )

    def __repr__(self) -> str:
        choices = " × ".join(f"{name} ({len(v)})" for name, v in self.values.items())
        return f"Slider: {choices}, {sum(map(len, self.pictures)) / 1000:.1f} KB"
