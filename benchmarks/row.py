"""What does a row of the experiment on the toy cost a core?

A row is a training of the `tiny` backbone at the standard budget: 12 epochs of 720 videos, batches
of 8 videos with two clips each (17,280 clips, 1,080 steps), forward passes in float32, one thread.
Four ways are measured in one process, in turn, each with the same recipe, seed and videos:

    3-D, decoded: every convolution is PyTorch's own `Conv3d`; the frames of a clip are decoded
                  whenever they are asked for
    3-D, kept:    the videos are decoded once and kept for all rows (`VideoCache`)
    2-D, decoded: convolutions over time are computed as 2-D ones (`backbones.TimeConv`), which is
                  what the library does
    2-D, kept:    both

    python benchmarks/row.py --out results/row-cpu.json --whole

In each round every way trains from the beginning, once for a few steps and once for more: the
difference gives the seconds of a step, the rest those of the start, the first checkpoint and the
export. A row is its start and all of its steps; decoding all videos once and measuring the encoder
are written beside it. Seconds are those of the processor, medians over the rounds; ratios are those
of a round. Losses are compared: with and without kept videos they are the same to the bit
(`same_losses`), and `apart` says how far the two forms are from each other (relative, in the first
steps).

With `--whole` the fastest way also trains a row from its first step to its last.

In `results/row-cpu.json` the fastest way is 2.13 times as fast as the first (1.82 to 2.44 over the
rounds). The seconds of a way differ from round to round, too."""

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

import measurement
import torch
from measurement import in_turn, medians, ratios, spread
from result_files import Stamp, settings_of, write_results
from run_folders import logged, steps_of
from torch import nn

from vssl_nb.config import Recipe
from vssl_nb.data import toy
from vssl_nb.data.dataset import VideoCache
from vssl_nb.data.manifest import Manifest, read
from vssl_nb.measure.features import extract
from vssl_nb.methods.recipes import find, override, to_dict
from vssl_nb.nets.backbones import PointConv, TimeConv
from vssl_nb.runs.evaluation import open_trained
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.training.machine import Machine

SEED = 31
EPOCHS = 12  # of a recipe with two clips
BATCH = 8  # videos
FEW = 5  # steps of the shorter training


@dataclass(frozen=True)
class Way:
    "How a row is computed."

    plain: bool  # are all convolutions PyTorch's own?
    kept: bool  # are decoded videos kept?


PLAIN, OURS = "3-D, decoded", "2-D, kept"
WAYS = {
    PLAIN: Way(plain=True, kept=False),
    "3-D, kept": Way(plain=True, kept=True),
    "2-D, decoded": Way(plain=False, kept=False),
    OURS: Way(plain=False, kept=True),
}


@contextmanager
def plain_convolutions() -> Iterator[None]:
    "Inside, convolutions over time and over channels are PyTorch's own 3-D ones."
    with (
        mock.patch.object(TimeConv, "forward", nn.Conv3d.forward),
        mock.patch.object(PointConv, "forward", nn.Conv3d.forward),
    ):
        yield


def recipe_of(name: str) -> Recipe:
    "A recipe at the standard budget."
    recipe = find(name)
    rate = recipe.learning.lr * (BATCH / recipe.learning.batch) ** 0.5
    epochs = 2 * EPOCHS // recipe.sampling.clips
    return override(recipe, seed=SEED, batch=BATCH, lr=rate, epochs=epochs, test_clips=3)


def decoded(
    manifest: Manifest,
    rows: list[int],
) -> VideoCache:  # that holds them
    "Decode videos once."
    cache = VideoCache(manifest, 2**31)
    box = torch.tensor([[0, 0, manifest.rows[0].height, manifest.rows[0].width]])
    for row in rows:
        numbers = torch.zeros(1, 1, dtype=torch.long).numpy()
        cache.read(row, numbers, box, manifest.rows[0].height)
    return cache


class Rows:
    "Trains the same recipe in all ways."

    def __init__(
        self,
        home: Path,  # its folder
        size: str,  # of the toy
        recipe: Recipe,
        timed: int,  # steps that are timed in a round
    ):
        self.home, self.recipe, self.timed = home, recipe, timed
        self.manifest = read(toy.make(home / "toy", size, SEED, workers=1, progress=False))
        rows = self.manifest.select("train")
        began = time.process_time()
        self.cache = decoded(self.manifest, rows)
        self.decoding = time.process_time() - began
        self.steps = len(rows) // BATCH * recipe.learning.epochs

    def machine(self, way: Way) -> Machine:
        return Machine("cpu", cache=self.cache if way.kept else 0, progress=False)

    def train(
        self,
        way: Way,
        steps: int | None,  # None: all
        out: Path,
    ) -> float:  # seconds of the processor
        convolutions = plain_convolutions() if way.plain else nullcontext()
        # a sentence for each run that is stopped
        with convolutions, redirect_stderr(StringIO()):
            began = time.process_time()
            pretrain(self.recipe, self.home / "toy", out, False, self.machine(way), max_steps=steps)
            return time.process_time() - began

    def measure(self, way: Way) -> dict[str, Any]:
        "Seconds of a start and of a step, and the losses."
        with tempfile.TemporaryDirectory(dir=self.home) as folder:
            runs = [Path(folder) / name for name in ("short", "long")]
            short = self.train(way, FEW, runs[0])
            long = self.train(way, FEW + self.timed, runs[1])
            losses = logged(steps_of(runs[1]), "loss")
        step = (long - short) / self.timed
        start = short - FEW * step
        return {"start": start, "step": step, "row": start + self.steps * step, "losses": losses}

    def whole(self) -> dict[str, float]:
        "A row from its first step to its last, and the features of all its videos."
        out = self.home / "whole"
        training = self.train(WAYS[OURS], None, out)
        t = open_trained(out)
        machine = Machine("cpu", cache=self.cache, progress=False)
        began = time.process_time()
        features = extract(
            t.encoder, self.manifest, "train", 1, t.view, t.protocol(), machine=machine, **t.views
        )
        a_video = (time.process_time() - began) / len(features)
        return {"training": training, "features_of_a_video": a_video}


def apart(
    losses: list[float],
    others: list[float],
) -> float:  # relative
    "The largest distance of two trainings in their first steps; later they drift apart."
    return max(abs(a - b) / abs(b) for a, b in zip(losses[:FEW], others[:FEW], strict=True))


def table_of(rounds: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    "A line a way: medians, and how many times as fast as the first one."
    baseline = [r["row"] for r in rounds[PLAIN]]
    lines = []
    for name, of_way in rounds.items():
        columns = {k: [r[k] for r in of_way] for k in ("start", "step", "row")}
        over = ratios(baseline, columns["row"])
        lines.append(
            {
                "way": name,
                **medians(columns),
                "rounds": columns["row"],
                "ratio": statistics.median(over),
                "ratios": over,
            }
        )
    return lines


def print_table(lines: list[dict[str, Any]]) -> None:
    print(f"{'':16}{'ms/step':>9}{'row, s':>9}  times as fast")
    for line in lines:
        print(
            f"{line['way']:16}{1000 * line['step']:>9.1f}{line['row']:>9.1f}  "
            f"{spread(line['ratios'])}"
        )


def main():
    p = measurement.parser(__doc__)
    p.add_argument("--recipe", default="infonce-toy-rgb", help="for toy videos")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=60, help="steps that are timed in a round")
    p.add_argument("--size", default="demo", choices=["tiny", "demo"], help="of the toy")
    p.add_argument("--whole", action="store_true", help="train a whole row, too")
    p.add_argument("--out", type=Path, help="a .json file for the results")
    a = p.parse_args()

    torch.set_num_threads(1)
    stamp = Stamp(__file__, settings_of(a), threads=1, seeds=[SEED])
    recipe = recipe_of(a.recipe)
    with tempfile.TemporaryDirectory() as folder:
        rows = Rows(Path(folder), a.size, recipe, a.steps)
        # loads the compiled augmentation; not counted
        rows.train(WAYS[OURS], FEW, Path(folder) / "first")
        ways = {name: partial(rows.measure, way) for name, way in WAYS.items()}
        rounds = in_turn(ways, a.rounds)
        whole = rows.whole() if a.whole else None

    lines = table_of(rounds)
    losses = {name: of_way[0]["losses"] for name, of_way in rounds.items()}
    results = {
        "recipe": to_dict(recipe),
        "size": a.size,
        "steps": rows.steps,
        "clips": rows.steps * BATCH * recipe.sampling.clips,
        "timed_steps": a.steps,
        "decoding_once": rows.decoding,
        "ways": lines,
        "same_losses": losses[PLAIN] == losses["3-D, kept"]
        and losses["2-D, decoded"] == losses[OURS],
        "apart": apart(losses[OURS], losses[PLAIN]),
        "whole": whole,
    }
    print_table(lines)
    print(f"decoding once: {rows.decoding:.1f} s; losses apart: {results['apart']:.1e}")
    if whole:
        print(
            f"a whole row: {whole['training']:.1f} s of a core, and "
            f"{1000 * whole['features_of_a_video']:.1f} ms for the features of a video"
        )
    write_results(a.out, stamp.head() | results)


if __name__ == "__main__":
    main()
