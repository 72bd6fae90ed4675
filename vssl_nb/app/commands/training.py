"""Commands that train, and that say what a training will do: recipes, dry-run, pretrain, cotrain,
finetune.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from ...config import Recipe
from ...fields import RecipeError
from ...fields import Index, Positive, Seed
from ...methods.recipes import COTRAININGS, METHODS, RECIPES, find, override, to_dict
from ...names import did_you_mean, of_hub
from ...paths import expect_manifest, expect_run, expect_run_folder, path_missing, read_card
from .. import launch
from ..launch import is_alone, is_first
from ..options import Command, Mistake, word
from .option_groups import (
    MachineOptions,
    changes,
    check_launch,
    check_manifest,
    check_results,
    check_run,
    print_results,
)

# endings of files as CoCLR, CPR and IIC give them out
RELEASED = (".tar", ".pth", ".pt")

# the recipe that `own.fit_recipe` fits to a folder, a machine and a time
FITTED_RECIPE = "own-videos"


class Recipes(Command):
    "List the recipes, or show one with all its numbers."

    name: str = word("[RECIPE]", "")  # which; none lists all

    def run(self):
        if self.name:
            print(json.dumps(to_dict(find(self.name)), indent=1))
            return
        width = max(map(len, RECIPES))
        for name, recipe in RECIPES.items():
            print(f"{name:{width}}  {recipe.about}")


class DryRunCommand(Command):
    "Take the first steps of a training, at full size, on a GPU that is not there."

    # a name that `vssl-nb recipes` lists, or package.module:name
    recipe_name: str = word("RECIPE")
    # a preset of finetune: its training of the recipe's backbone instead
    finetune: str | None = None
    # fields of the recipe or the preset to change, such as batch=64 size=112
    set: tuple[str, ...] = ()
    dtype: Literal["float32", "bfloat16"] = "bfloat16"  # of the forward pass
    activation_checkpointing: bool = False  # compute activations twice instead of keeping them

    def run(self):
        recipe = find(self.recipe_name)
        fields = changes(self.set)
        from ...runs.experiment import BlankVideos, resolve

        if not self.finetune:
            recipe = override(recipe, **fields)
            print_forecast(
                resolve(recipe, BlankVideos()), self.dtype, self.activation_checkpointing
            )
            return
        from ...runs.finetuning import preset

        training = preset(self.finetune, recipe.clip, **fields)
        recipe = replace(training.recipe(recipe), name=training.name)
        videos = BlankVideos(training.learned(len(BlankVideos())))
        print_forecast(resolve(recipe, videos), self.dtype, self.activation_checkpointing)


def print_forecast(
    experiment,  # an `Experiment`
    dtype: str,  # of the forward pass
    activation_checkpointing: bool,
) -> None:
    "Print what a training will do and take; `Mistake` names the line that would fail on a GPU."
    from ...runs.budget import forecast
    from ...runs.pretended import WrongDevice

    try:
        print(forecast(experiment, dtype, activation_checkpointing))
    except WrongDevice as e:
        raise Mistake(f"{experiment.recipe.name}: {e}") from None


class Pretrain(MachineOptions):
    """Train a recipe on a manifest, into a run folder.

    Any field of the recipe can be given as an option.
    """

    # a name that `vssl-nb recipes` lists, or package.module:name
    recipe_name: str = word("RECIPE")
    data: Path  # manifest.csv, or the folder that holds it
    method: str | None = field(
        default=None,
        metadata={
            "help": "another method for this recipe: "
            f"{', '.join(METHODS)}, or package.module:Settings of one's own"
        },
    )
    out: Path | None = None  # run folder; none: runs/<name of the recipe>
    resume: bool = False  # go on with the run in that folder
    # run folder of the same view, released file (CoCLR, CPR, IIC, VideoMAE) or hf:NAME of VideoMAE
    # or V-JEPA 2, whose weights to begin with
    init_from: Path | None = field(default=None, metadata={"alias": "--init"})
    health_every: Index = 0  # look at the features every so many epochs (health.csv); 0: never
    minutes: Positive | None = None  # own-videos: the time for everything, to the verdict; none: 20
    # filled in by `parsing.parse`: the recipe with the fields that were given as options, the names
    # of these, and the run or file of each further network, such as CoCLR's sampler
    recipe: Recipe = field(init=False)
    given: frozenset[str] = field(init=False, default=frozenset())
    networks: Mapping[str, Path] = field(init=False, default_factory=dict)

    def run(self):
        out = self.out or Path("runs") / self.recipe.name
        self.check(out)
        fitted = self.recipe_name == FITTED_RECIPE
        if fitted and self.dtype is None:
            self.dtype = self.fastest_dtype(out)
        if self.dry_run:
            if is_first():
                self.print_forecast(out)
        elif fitted:
            self.learn_own_videos(out)
        else:
            self.pretrain(out)

    def check(
        self,
        out: Path,  # the run folder
    ) -> None:
        "Refuse what is wrong with data, folders and options. `ValueError`."
        expect_manifest(self.data)  # without a look at what it says, which takes longer
        expect_run_folder(out, self.resume)
        check_launch()
        if self.resume and out.exists():
            check_run(out)
        check_manifest(self.data)
        for source in self.weights().values():
            if of_hub(source):
                continue  # it is read when the method is there
            released = source.suffix in RELEASED and source.name != "last.pt"
            if not (released and source.is_file()):
                expect_run(source)
        if self.minutes is not None and self.recipe_name != FITTED_RECIPE:
            raise Mistake(
                f"--minutes: only {FITTED_RECIPE} is fitted to a time; of {self.recipe_name} give "
                "--epochs"
            )

    def weights(self) -> dict[str, Path]:  # network of the method -> run or released file
        "The networks that begin with the weights of another run."
        weights = {"encoder": self.init_from} if self.init_from else {}
        return weights | dict(self.networks)

    def fastest_dtype(
        self,
        out: Path,  # the run folder
    ) -> Any:  # 'float32' or 'bfloat16'
        "The precision of own-videos; a run goes on as it began."
        from ...training.machine import fastest_dtype, pick_device

        before = read_card(out).get("dtype") if self.resume else None
        return before or fastest_dtype(pick_device(self.device))

    def options(self) -> dict[str, Any]:
        "Of `runs.pretraining.pretrain`."
        return {
            "networks": self.weights(),
            "health_every": self.health_every,
            "machine": self.machine(),
        }

    def pretrain(
        self,
        out: Path,  # the run folder
    ) -> None:
        "Train the recipe as it is."
        options = self.options()
        from ...runs.pretraining import pretrain

        run = pretrain(
            self.recipe, self.data, out, self.resume, accepted=self.print_budget, **options
        )
        if is_first():
            print(run)

    def learn_own_videos(
        self,
        out: Path,  # the run folder
    ) -> None:
        "Fit the recipe to folder, machine and time, train it, and print the verdict."
        options = self.options()
        if not is_alone():
            raise Mistake(f"{FITTED_RECIPE}: start it without torchrun")
        from ..own import learn_own_videos

        verdict = learn_own_videos(
            self.recipe,
            self.data,
            out,
            20 if self.minutes is None else self.minutes,
            self.given,
            self.resume,
            began=launch.BEGAN,
            **options,
        )
        if verdict:
            print(out, verdict, sep="\n")

    def print_forecast(
        self,
        out: Path,  # the run folder
    ) -> None:
        "Print what it will do and take."
        from ...data.manifest import read
        from ...runs.experiment import resolve

        recipe = self.recipe
        manifest = read(self.data)  # makes none
        if not self.resume and self.recipe_name == FITTED_RECIPE:
            from ..own import fit_recipe

            minutes = self.minutes or 20
            recipe = fit_recipe(recipe, manifest, self.machine(), minutes, self.given, launch.BEGAN)
            print(*recipe.reasons, sep="\n")
        experiment = resolve(recipe, manifest, self.machine())
        experiment.refuse()
        print_forecast(experiment, self.dtype or "float32", self.activation_checkpointing)


class Cotrain(MachineOptions):
    """InfoNCE on two views, then CoCLR in turns: every phase a run folder, resumable, one report at
    the end.
    """

    name: str = field(metadata={"word": "NAME", "help": f"one of {', '.join(COTRAININGS)}"})
    data: Path  # manifest.csv, or the folder that holds it
    out: Path | None = None  # folder; none: runs/<name>
    # fields to change in every phase that has them, such as epochs=5 backbone=small
    set: tuple[str, ...] = ()
    health_every: Index = 0  # look at the features every so many epochs (health.csv); 0: never
    # released files whose weights the first phases begin with: rgb=FILE flow=FILE
    init: tuple[str, ...] = ()

    def run(self):
        out = self.out or Path("runs") / self.name
        fields = changes(self.set)
        if self.name not in COTRAININGS:
            raise RecipeError(
                f"there is no co-training {self.name!r}; {did_you_mean(self.name, COTRAININGS)}"
            )
        check_launch()
        expect_manifest(self.data)
        check_results(out)
        check_manifest(self.data)
        for card in out.glob("*/card.json"):
            read_card(card.parent)
        if self.dry_run:
            if is_first():
                self.print_forecast(out, fields)
            return
        from ...papers.report import page
        from ...runs.cotraining import cotrain

        rows = cotrain(
            self.name,
            self.data,
            out,
            fields,
            self.machine(),
            self.health_every,
            accepted=self.print_budget,
            init=self.init,
        )
        if rows:
            print_results(rows, page(out))
        elif is_first():
            print(
                f"{out}: trained; nothing was measured, because not all test videos of "
                f"{self.data} have a label"
            )

    def print_forecast(
        self,
        out: Path,
        fields: Mapping[str, Any],  # to change in every phase that has them
    ) -> None:
        "Print what each phase will do and take."
        from ...data.manifest import read
        from ...runs.cotraining import cotraining_phases, refuse_phases
        from ...runs.experiment import resolve

        manifest = read(self.data)
        machine = self.machine()
        phases = cotraining_phases(self.name, fields)
        experiments = {phase: resolve(recipe, manifest, machine) for phase, recipe in phases}
        refuse_phases(out, experiments)
        for number, (phase, experiment) in enumerate(experiments.items(), 1):
            print(f"phase {number} of {len(phases)}, {out / phase.recipe}")
            print_forecast(experiment, self.dtype or "float32", self.activation_checkpointing)


class Finetune(MachineOptions):
    """Train a classifier end to end: fine-tune a run's encoder, train a head on it, or start from
    scratch.
    """

    # run folder; hf:NAME or file.pth of VideoMAE (hf: V-JEPA 2, too); or the name of a recipe,
    # whose backbone starts from scratch
    source: str = word("RUN")
    data: Path | None = None  # manifest; none: the one the run was trained on
    # or clean_linear, scratch, coclr_finetune, coclr_linear, iic_finetune, ...
    preset: str = "clean_finetune"
    out: Path | None = None  # folder; none: beside the run
    split: Annotated[int, "[0, 3]"] = 0  # 0: that of the recipe
    seed: Seed = 0  # of head, held-out sources, order and clips
    set: tuple[str, ...] = ()  # fields of the preset, such as epochs=5 batch=16
    resume: bool = False  # go on with what is in the folder

    def run(self):
        path = Path(self.source)
        self.check(path)
        fields = changes(self.set)
        if self.dry_run:
            if is_first():
                self.print_forecast(fields)
            return
        from ...runs.finetuning import finetune

        row = finetune(
            self.source,
            self.preset,
            self.data,
            self.out,
            self.split,
            self.seed,
            fields,
            self.resume,
            self.machine(),
        )
        if not row or not is_first():
            return
        home = path.parent if path.is_dir() else Path("runs")
        print_results(
            [*probes_beside(path, row), row], how_to_predict(self.out or home / row["run"])
        )

    def check(
        self,
        path: Path,  # of the source
    ) -> None:
        "Refuse what is wrong with source, data and folders. `ValueError`."
        outside = of_hub(path) or path.suffix in RELEASED
        named = path.parent != Path(".") or path.suffix in RELEASED
        if named and not of_hub(path) and not path.exists():
            raise path_missing(path, "name a run folder, or a recipe")
        if not outside and not path.is_dir():
            find(self.source)
        if self.out:
            expect_run_folder(self.out, self.resume, tuned=True)
        check_launch()
        if path.is_dir():
            check_run(path)
        check_manifest(self.data)

    def print_forecast(
        self,
        fields: Mapping[str, Any],  # to change in the preset
    ) -> None:
        "Print what it will do and take."
        from ...data.manifest import read
        from ...runs.experiment import BlankVideos, resolve
        from ...runs.finetuning import networks_of, starting_point

        if self.data:
            read(self.data)  # makes none
        t, training = starting_point(self.source, self.preset, self.data, self.split, fields)
        networks_of(t, training)  # refuses a run without a Gaussian head
        recipe = replace(training.recipe(t.recipe), name=training.name)
        videos = BlankVideos(training.learned(len(t.manifest.select("train", t.split))))
        experiment = resolve(recipe, videos)
        print_forecast(experiment, self.dtype or "float32", self.activation_checkpointing)


def probes_beside(
    run: Path,  # a run folder
    row: Mapping[str, Any],  # of a fine-tuned classifier
) -> list[dict[str, Any]]:  # rows of results.json
    "The linear classifiers of a run that were measured on the same videos."
    from ...papers.report import read_runs

    if not (run / "results.json").exists():
        return []
    alike = ("manifest_sha256", "split")
    return [
        r
        for r in read_runs(run)
        if r.get("task") == "probe" and all(r.get(k) == row[k] for k in alike)
    ]


def how_to_predict(
    folder: Path,  # of a run
) -> str:
    "The file of a classifier, and the command that uses it."
    return (
        f"{folder / 'classifier.safetensors'}\nuse it: vssl-nb predict "
        f"{shlex.quote(str(folder))} VIDEO"
    )
