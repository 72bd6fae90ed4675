"""`vssl-nb …`: a command is a dataclass, its fields are the options, and the comments beside them
the help.
"""

if __name__ == "__main__":  # above the imports, for Ctrl-C
    from vssl_nb import main as begin

    raise SystemExit(begin())

import argparse, ast, contextlib, csv, gc, inspect, io, json, multiprocessing
import os, re, shlex, signal, sys, threading, time, warnings
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from .. import __version__
from ..methods.recipes import COTRAININGS, METHODS, RECIPES, find
from ..methods.recipes.infonce import OWN_VIDEOS
from ..config import Recipe, RecipeError
from ..methods.recipes import from_dict, override, to_dict
from ..paths import PathError, expect_manifest, expect_no_run, expect_replaceable
from ..names import did_you_mean
from ..paths import (
    expect_run,
    expect_run_folder,
    expect_writable,
    leave_terminal,
    path_missing,
    read_card,
)
from ..names import of_hub, look_up
from ..paths import refuse_strangers
from ..fields import Count, Index, NonNegative, Positive, Seed, Share, interval, out_of_range
from ..config import read_lines


class Mistake(ValueError):
    "Something on the command line that cannot be understood."


class Command:
    "What a command line asks for; every class below this one becomes a dataclass."

    def __init_subclass__(cls):
        dataclass(kw_only=True)(cls)


def word(
    metavar: str,  # its name in help
    default: Any = MISSING,  # without a default it must be given
) -> Any:
    "A field of a command that is given as a word, without the name of an option."
    return field(default=default, metadata={"word": metavar})


class Toy(Command):
    "Write synthetic action videos (class = motion) and their manifest."

    out: Path = word("OUT")  # folder to write to
    size: Literal["tiny", "demo", "full"] = "demo"  # 64 or 960 small videos, or thousands of 128 px
    seed: Seed = 0  # another seed gives other videos
    contrast: Share | None = None  # how hard the background makes it; none: as the size has it
    # how strongly the background gives the class away, in the training split only
    bias: Share = 0.0
    drift: Annotated[float, "[-128, 128]"] = 0.0  # camera drift, pixels per frame
    # further sprites, whose motion is not that of the class
    distractors: Annotated[int, "[0, 100]"] = 0
    # how strongly the sprite's shape and stripes give the class away, in all parts
    looks: Share = 0.0
    # how much of the colour is taken; at 1 a source is known by its texture alone
    grey: Share = 0.0
    # what a class is
    classes: Literal["motions", "directions", "periods", "shapes", "scenes"] = "motions"
    spoiled: Share = 0.0  # share of the training videos that are noise, are cut, or stand still
    spoiled_test: Share = 0.0  # the same for the test videos
    side: Annotated[int, "[16, 512]"] | None = (
        None  # of the frame, pixels; none: as the size has it
    )
    workers: Count | None = None  # processes; none: one per core

    def run(self):
        expect_no_run(self.out)
        from ..data import toy

        print(toy.make(**{"folder" if k == "out" else k: v for k, v in vars(self).items()}))


class MakeManifest(Command):
    """Write the manifest.csv of a folder of videos, or bring it up to date; sub-folders are the
    classes.
    """

    folder: Path = word("FOLDER")  # folder of class folders, or of unlabelled videos
    # share of the videos to keep for testing (split 1), cut by source; none: no split
    split: float | None = None
    seed: Seed = 0  # of that split
    # regular expression with one group: what it finds in a path is the source
    source_pattern: str | None = None
    workers: Count | None = None  # threads; none: one per core

    def run(self):
        if not self.folder.exists():
            raise path_missing(self.folder, "name the folder that holds the videos")
        from ..data.manifest import GONE, update_manifest

        done = update_manifest(
            self.folder, self.source_pattern, self.workers, share=self.split, seed=self.seed
        )
        for r in done.rows:
            if r.status not in ("ok", GONE):
                print(f"unreadable: {r.video}: {r.status}", file=sys.stderr)
        print(done)


class Flow(Command):
    "Compute and store the optical flow of every video of a manifest; again does what is missing."

    data: Path = word("DATA")  # manifest.csv, or the folder that holds it
    # tvl1-opencv: what made the released flow; dis: quick and rough
    method: Literal["tvl1", "tvl1-opencv", "dis"] = "tvl1"
    out: Path = Path("flow")  # folder for the flow, below that of the manifest
    # small: half the size, and up to 4 of 255 levels off
    codec: Literal["exact", "small"] = "exact"
    device: str = "auto"  # auto, cpu, cuda or cuda:1
    workers: Count | None = None  # videos at a time; none: one per core
    # tvl1: three times as fast on a CPU, after some 20 s; needs a C++ compiler there
    compile: bool = True
    # to write beside that of DATA, new or written by this; none: that gets column flow
    manifest: str | None = None

    def run(self):
        if ":" not in str(self.data):
            self.check_outputs(self.data / "manifest.csv" if self.data.is_dir() else self.data)
        check_paths(self.data)
        from ..data import flow

        job = flow.plan_extraction(
            self.data,
            self.method,
            self.out,
            self.codec,
            self.device,
            self.workers,
            self.manifest,
            self.compile,
        )
        done = job.run()
        if done.written or not job.rank:
            print(done)

    def check_outputs(
        self,
        manifest: Path,  # that of DATA; it need not exist
    ) -> None:
        """Refuse to write into a run, or over a manifest with something that this one lacks.

        PathError.
        """
        flow, other = manifest.parent / self.out, manifest.parent / (self.manifest or "")
        # where all is done already, nothing needs to be written
        if not (flow / "flow.json").exists():
            expect_no_run(flow)
        if self.manifest is None or other == manifest:
            return
        expect_replaceable(other, "flow")
        if lost := sorted(filled_cells(other) - filled_cells(manifest)):
            video, column, text = lost[0]
            raise PathError(
                f"{other}: has the {column} {text!r} of {video}, and {manifest} has not; "
                "choose another --manifest"
            )


def filled_cells(
    manifest: Path,  # a file that need not exist
) -> set[tuple[str, ...]]:
    "Video, column and text of all cells that somebody may have filled in by hand."
    if not manifest.exists():
        return set()
    with open(manifest, encoding="utf-8-sig", errors="replace", newline="") as f:
        measured = {"frames", "fps", "width", "height", "flow", "status"}
        return {
            (str(row.get("video")), str(column), str(row[column]))
            for row in csv.DictReader(f)
            for column in row.keys() - measured
            if row[column]
        }


class Recipes(Command):
    "List the recipes, or show one with all its numbers."

    name: str = word("[RECIPE]", "")  # which; none lists all

    def run(self):
        if self.name:
            print(json.dumps(to_dict(find(self.name)), indent=1))
        else:
            print("\n".join(f"{n:{max(map(len, RECIPES))}}  {r.about}" for n, r in RECIPES.items()))


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
        from ..runs.experiment import BlankVideos, resolve

        recipe, fields, videos = find(self.recipe_name), changes(self.set), BlankVideos()
        if self.finetune:
            from ..runs.finetuning import preset

            training = preset(self.finetune, recipe.clip, **fields)
            recipe = replace(training.recipe(recipe), name=training.name)
            videos = BlankVideos(training.learned(len(videos)))
        else:
            recipe = override(recipe, **fields)
        print_forecast(resolve(recipe, videos), self.dtype, self.activation_checkpointing)


def print_forecast(
    experiment,
    *options,  # of `runs.budget.forecast`
) -> None:
    "Print what a training will do and take; `Mistake` names the line that would fail on a GPU."
    from ..runs.budget import forecast
    from ..runs.pretended import WrongDevice

    try:
        print(forecast(experiment, *options))
    except WrongDevice as e:
        raise Mistake(f"{experiment.recipe.name}: {e}") from None


RELEASED = (".tar", ".pth", ".pt")  # endings of files as CoCLR, CPR and IIC give them out
TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def is_first(
    local: bool = False,  # among the processes of its machine, not among all
) -> bool:
    "Is this the process that prints? Known before PyTorch is imported."
    # a RANK alone is left over from something else
    rank = (
        ("RANK", "LOCAL_RANK")
        if {*TORCHRUN} <= {*os.environ}
        else ("SLURM_PROCID", "SLURM_LOCALID")
    )
    return os.environ.get(rank[local], "0") == "0"


def check_paths(data=None, run=None, folder=None, results=None, together: bool = False) -> None:
    """A manifest, a run, a folder to be written, one for results, by processes `together`;
    PathError, Mistake.
    """
    if (
        together
        and "RANK" in os.environ
        and (lacks := [k for k in TORCHRUN if k not in os.environ])
    ):
        raise Mistake(
            f"the environment has RANK={os.environ['RANK']} and no {lacks[0]}: something that has "
            "ended left it there (unset RANK), or a launcher other than torchrun and srun is at "
            "work"
        )
    if run is not None:
        expect_run(run)
        # who needs it reads it again, and says why it cannot be read
        with contextlib.suppress(OSError):
            text, place = (
                (Path(run) / "recipe.json").read_text(encoding="utf-8"),
                f"{run}/recipe.json",
            )
            try:
                recipe = json.loads(text)
            except ValueError as e:
                raise PathError(
                    f"{place}: not readable as JSON ({e}); the folder is "
                    "damaged, take an earlier copy"
                ) from None
            from_dict(recipe, place)
    if data is not None:
        expect_manifest(data)
    if folder is not None:
        expect_writable(folder, folder=True)
    if results is not None:
        expect_no_run(results)
        expect_replaceable(results / "report.html", "report")
        expect_replaceable(results / "results.json", "retrieve")
    table = (
        None if data is None else Path(data) / "manifest.csv" if Path(data).is_dir() else Path(data)
    )
    # a longer one takes a second
    if table and table.is_file() and table.stat().st_size < 1 << 23:
        from ..data.manifest import read  # needs no PyTorch

        read(table)


def print_table(rows, *lines) -> None:
    "Results as a table, and further lines."
    from ..papers.report import sheet, summary

    print(sheet(summary(rows), "text"), *lines, sep="\n")


def changes(
    words: Sequence[str],  # words such as epochs=5
) -> dict[str, Any]:  # name -> value
    "The fields that `--set` names; Mistake where a word is no assignment."
    values: dict[str, Any] = {}
    constants = {"true": True, "false": False, "null": None, "none": None}
    for text in words:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Mistake(f"--set {text}: is not name=value, such as epochs=5")
        try:
            read = (
                constants[value.lower()] if value.lower() in constants else ast.literal_eval(value)
            )
        except (ValueError, SyntaxError):
            read = value  # a word
        values[name.replace("-", "_")] = tuple(read) if isinstance(read, list) else read
    return values


class MachineOptions(Command):
    "How a training is computed; the same options for every command that trains."

    device: str = "auto"  # auto, cpu, cuda or cuda:1
    # of the forward pass; none: float32, and bfloat16 of own-videos where the processor multiplies
    # it faster
    dtype: Literal["float32", "bfloat16"] | None = None
    # processes that decode, for each process that trains; the result does not depend on it
    workers: Index = 2
    cache: Index = 64  # MiB of decoded videos that each process keeps in memory
    compile: bool = False  # torch.compile the networks; needs a C++ compiler
    activation_checkpointing: bool = False  # compute activations twice: less memory, more time
    save_minutes: NonNegative = 5.0  # minutes from one checkpoint to the next
    # GPU: let cuDNN try its algorithms on the first step and keep the fastest
    cudnn_benchmark: bool = True
    # GPU: products; high: TF32, as convolutions
    matmul_precision: Literal["highest", "high", "medium"] = "highest"
    # GPU: algorithms that give the same bits again, where there are some; slower
    deterministic: bool = False
    quiet: bool = False  # no bars, and no word about memory
    # say what it would do, and the memory and time it would take; write nothing
    dry_run: bool = False

    def machine(self):
        "As one object."
        from ..training.machine import Machine

        names = MachineOptions.__annotations__.keys() - {"quiet", "dry_run", "dtype"}
        return Machine(
            dtype=self.dtype or "float32",
            progress=not self.quiet,
            **{name: getattr(self, name) for name in names},
        )

    def print_budget(self, experiment) -> None:
        "Print what a step will take; nothing of it stops a training."
        if self.quiet or not is_first():
            return
        from ..runs.budget import describe_budget
        from ..distributed import apart, world_size

        n = world_size()
        try:
            with apart():
                text = describe_budget(experiment, n)
        except Exception as e:
            text = f"the memory of a step could not be computed ({type(e).__name__}: {e})"
        print(text, file=sys.stderr)


class ReadingOptions(Command):
    "How videos are read and encoded; the same options for every command that measures."

    device: str = "auto"  # auto, cpu or cuda
    workers: Index = 2  # processes that decode

    def machine(self, **options):
        "As one object."
        from ..training.machine import Machine

        return Machine(self.device, workers=self.workers, **options)


class EncodingOptions(ReadingOptions):
    batch: Count = 64  # clips that go through the encoder together, at most
    dtype: Literal["float32", "bfloat16"] = "float32"  # of the encoder; the table names bfloat16


class WritingOptions(Command):
    # write over a file that no command wrote; of a data set, a run, another command: never
    force: bool = False

    def check_files(self, *paths: Path | None) -> None:
        "Refuse to write over what this kind of command did not write. PathError."
        command = next(name for name, kind in COMMANDS.items() if kind is type(self))
        for path in filter(None, paths):
            expect_replaceable(path, command, self.force)


class RunOptions(ReadingOptions):
    folder: Path = word("RUN")  # run folder
    data: Path | None = None  # manifest; none: the one it was trained on


class EncoderOptions(EncodingOptions):
    # run folder; or hf:NAME, timm:NAME, torchvision:NAME, or a folder for NAME
    folder: Path = word("RUN")
    data: Path | None = None  # manifest; none: the one the run was trained on


def home_of(
    source: str | Path,  # run folder, or the name of an encoder
    name: str = "",  # what tables call it
) -> Path:
    "Where results go."
    return (
        Path(source)
        if Path(source).is_dir()
        else Path("runs") / re.sub(r"\W+", "-", name or str(source))
    )


BEGAN = time.monotonic()  # nearly when this process began: PyTorch is not there yet


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
            "about": "another method for this recipe: "
            f"{', '.join(METHODS)}, or package.module:Settings of one's own"
        },
    )
    out: Path | None = None  # run folder; none: runs/<name of the recipe>
    resume: bool = False  # go on with the run in that folder
    # run folder of the same view, or released file (CoCLR, CPR, IIC), whose weights to begin with
    init_from: Path | None = field(default=None, metadata={"alias": "--init"})
    sampler: Path | None = None  # CoCLR: likewise, of the view that mines
    health_every: Index = 0  # look at the features every so many epochs (health.csv); 0: never
    minutes: Positive | None = None  # own-videos: the time for everything, to the verdict; none: 20
    recipe: Recipe = field(init=False)  # with the fields that were given as options
    given: frozenset[str] = field(init=False, default=frozenset())  # their names

    def run(self):
        out = self.out or Path("runs") / self.recipe.name
        expect_manifest(self.data)  # without a look at what it says, which takes longer
        expect_run_folder(out, self.resume)
        check_paths(self.data, out if self.resume and out.exists() else None, together=True)
        for weights in (self.init_from, self.sampler):  # of a run, or released
            if weights and not (
                weights.is_file() and weights.suffix in RELEASED and weights.name != "last.pt"
            ):
                expect_run(weights)
        own = self.recipe_name == OWN_VIDEOS
        if self.minutes is not None and not own:
            raise Mistake(
                f"--minutes: only {OWN_VIDEOS} is fitted to a "
                f"time; of {self.recipe_name} give --epochs"
            )
        if own and self.dtype is None:
            from ..training.machine import fastest_dtype, pick_device

            # a run goes on as it began
            before = read_card(out).get("dtype") if self.resume else None
            self.dtype = before or fastest_dtype(pick_device(self.device))
        if self.dry_run:
            return self.forecast(out) if is_first() else None
        options = dict(
            networks={"encoder": self.init_from, "sampler": self.sampler},
            health_every=self.health_every,
            machine=self.machine(),
        )
        if not own:
            from ..runs.pretraining import pretrain

            run = pretrain(
                self.recipe, self.data, out, self.resume, accepted=self.print_budget, **options
            )
            if is_first():
                print(run)
            return
        if os.environ.get("WORLD_SIZE", "1") != "1":
            raise Mistake(f"{OWN_VIDEOS}: start it without torchrun")
        from .own import learn_own_videos

        verdict = learn_own_videos(
            self.recipe,
            self.data,
            out,
            20 if self.minutes is None else self.minutes,
            self.given,
            self.resume,
            began=BEGAN,
            **options,
        )
        if verdict:
            print(out, verdict, sep="\n")

    def forecast(self, out: Path) -> None:
        "Print what it will do and take."
        from ..data.manifest import read

        recipe, manifest = self.recipe, read(self.data)  # makes none
        if not self.resume and self.recipe_name == OWN_VIDEOS:
            from .own import fit_recipe

            recipe = fit_recipe(
                recipe, manifest, self.machine(), self.minutes or 20, self.given, BEGAN
            )
            print(*recipe.reasons, sep="\n")
        try_recipe(self, recipe, manifest)


def try_recipe(options: MachineOptions, recipe: Recipe, manifest) -> None:
    "Print what training a recipe on a manifest will do and take."
    from ..runs.experiment import resolve

    experiment = resolve(recipe, manifest, options.machine())
    experiment.refuse()
    print_forecast(experiment, options.dtype or "float32", options.activation_checkpointing)


class Retrieve(EncodingOptions):
    "Measure an encoder: is a test video's nearest training video of its class?"

    # run folder; released file (.tar, .pth); recipe (untrained); package.module:name of an encoder;
    # hf:NAME, hf:FOLDER (transformers), timm:NAME, timm:FOLDER or torchvision:NAME; or a file of
    # features
    source: str = word("RUN")
    data: Path | None = None  # manifest to measure on; none: the one the run was trained on
    # or coclr_official, iic_official, rspnet, moquad, package.module:name
    protocol: str = "clean"
    set: tuple[str, ...] = ()  # fields of the protocol, such as size=112 length=16 stride=2
    # none: that of the recipe; several: each, and their mean
    splits: tuple[Annotated[int, "[1, 3]"], ...] = ()
    second: Path | None = None  # run folder of another view: both streams together
    # two streams: sum of cosines (CoCLR), or features side by side (IIC)
    joined: Literal["sum", "concat"] = "sum"
    name: str = ""  # what tables call an encoder or file of one's own
    # of what is no run: rgb, flow, residual, package.module:name; none: the file's, or rgb
    view: str | None = None
    # folder for results and features; none: that of the run; of what is none, runs/<name>
    out: Path | None = None
    baselines: bool = True  # also show chance, a colour histogram and an untrained encoder
    # toy videos: does the encoder go by the scene, or by the motion, where the two disagree?
    conflict: bool = False

    def run(self):
        path = Path(self.source)
        if path.is_dir():
            check_paths(run=path)
        elif path.name == "encoder.safetensors":
            raise Mistake(
                f"{path}: is an encoder without its recipe; "
                f"name the run folder that it lies in, {path.parent}"
            )
        elif not (path.is_file() or self.source in RECIPES or ":" in self.source):
            if path.parent != Path("."):
                raise path_missing(path, "name a run folder, such as runs/mine, or a recipe")
            near = did_you_mean(
                self.source, [*RECIPES, *(p.name for p in Path().glob("*") if p.is_dir())]
            )
            raise Mistake(
                f"{path}: is no run folder, no recipe, no file of features and no package.module:"
                "name of an encoder, seen from "
                f"{Path.cwd()}{'; ' + near if near.startswith('did') else ''}"
            )
        kind, ignored = (
            ("a conflict", "view name out second splits")
            if self.conflict
            else ("a run", "view name")
            if path.is_dir()
            else ("a recipe, without training,", "view name second protocol set dtype")
            if self.source in RECIPES
            else ("what is no run", "second view" if of_hub(self.source) else "second")
        )
        if given := next(
            (n for n in ignored.split() if getattr(self, n) != getattr(Retrieve, n)), None
        ):
            raise Mistake(f"{self.source}: {kind} is measured without --{given}; leave it out")
        out = self.out or home_of(
            f"untrained-{path}" if self.source in RECIPES else path, self.name
        )
        check_paths(self.data, self.second, *((path, None) if out == path else (None, out)))
        if self.second and not self.out:
            expect_writable(self.second, folder=True)
        fields = changes(self.set) | ({"dtype": self.dtype} if self.dtype != "float32" else {})
        if self.conflict:
            return self.measure_conflict(fields, out)
        if self.data is None and not path.is_dir():
            raise Mistake(f"{self.source}: knows no data; name a manifest with --data")
        measure = self.measure_run if path.is_dir() else self.measure_other
        print_table(measure(fields, out), out / "results.json")

    def measure_run(
        self,
        fields,
        out: Path,
    ):  # rows of results.json
        "Measure a run, alone or with a second stream, beside its baselines."
        from ..runs import evaluation

        t, machine = evaluation.open_trained(self.source, self.data, out), self.machine()
        p = t.protocol(self.protocol, **fields)
        if self.second:
            rows = evaluation.retrieve_two_streams(
                t,
                evaluation.open_trained(self.second, self.data, self.out),
                p if fields else self.protocol,
                self.splits,
                self.joined,
                self.batch,
                machine,
            )
        else:
            rows = evaluation.retrieve(t, p, self.splits, batch=self.batch, machine=machine)
        print(p)
        if "dropped" in rows[0]:
            print(
                f"{rows[0]['queries']} test videos against {rows[0]['gallery']} "
                f"training videos, split {rows[0]['split']}; {len(rows[0]['dropped'])} left out"
            )
        if not t.card["finished"]:
            print(
                f"this run is not finished: the encoder is from step {t.about['step']}",
                file=sys.stderr,
            )
        if not self.baselines or self.protocol != "clean" or self.splits or self.second or fields:
            return rows
        beside = evaluation.baselines(t.recipe, t.manifest, batch=self.batch, machine=machine)
        evaluation.keep_results(out, beside)
        return beside + rows

    def measure_conflict(self, fields, out: Path) -> None:
        "Print what an encoder goes by, and keep it as conflict.json."
        if not (Path(self.source).is_dir() or of_hub(self.source)):
            raise Mistake(f"{self.source}: --conflict measures a run folder or hf:NAME; name one")
        from ..measure.health import conflict
        from ..papers.report import table
        from ..runs.evaluation import open_trained
        from ..training.loop import write_json

        t = open_trained(self.source, self.data, out)
        p = t.protocol(self.protocol, **fields)
        shares = conflict(
            t.encoder, t.manifest, t.split, t.view, p, self.machine(), batch=self.batch, **t.views
        )

        def percent(*x):
            return " to ".join(f"{100 * v:.1f}" for v in x)

        rows = [
            {
                "nearest training video has the same": name,
                "% of queries": percent(share),
                "95 %": percent(*ends),
                "by chance": percent(guess),
            }
            for name, (share, *ends, guess) in shares.items()
        ]
        kept = write_json(
            out / "conflict.json", t.row("conflict", t.split, protocol=asdict(p), **shares)
        )
        print(p, table(rows, "text", {k: k for k in rows[0]}), kept, sep="\n")

    def measure_other(
        self,
        fields,
        out: Path,
    ):  # rows of results.json
        "Measure an encoder or features that are no run of ours."
        from ..runs import evaluation
        from ..runs.checks import errors_of

        options: dict[str, Any] = dict(out=out, batch=self.batch, machine=self.machine())
        if self.source in RECIPES:
            return evaluation.baselines(find(self.source), self.data, self.splits, **options)
        name, encoder = self.name, cast(Any, self.source)
        if not (Path(self.source).is_file() or of_hub(self.source)):
            with errors_of(
                f"{self.source}: name an nn.Module, or what makes one without arguments; this one"
            ):
                name, encoder = name or self.source, evaluation.load_encoder(self.source)
        return evaluation.measure_encoder(
            encoder,
            self.data,
            name,
            self.protocol,
            self.view or "",
            self.splits,
            fields,
            with_baselines=self.baselines,
            **options,
        )


class Extract(EncoderOptions, WritingOptions):
    """Compute and keep the features of a run's encoder; under torchrun, all processes share the
    work.
    """

    protocol: str = "clean"  # clean, coclr_official, iic_official, rspnet or moquad
    # also write them with the names of the videos, .npz or .csv; or another folder to keep them in
    out: Path | None = None

    def run(self):
        table = self.out if self.out and self.out.suffix and not self.out.is_dir() else None
        own, run = home_of(self.folder), None if of_hub(self.folder) else self.folder
        home = own if table else self.out or own
        # with a table the features of a run that is read only need no other place
        store = None if table and not os.access(home, os.W_OK) else home / "features"
        other = None if home == own else home
        check_paths(self.data, run, None if other else store, other, together=True)
        self.check_files(table)
        from ..measure.features import extract
        from ..runs.evaluation import open_trained, refuse_large_clips
        from .search import write_video_features
        from ..distributed import start

        t = open_trained(self.folder, self.data)
        p, files = t.protocol(self.protocol, dtype=self.dtype), {"query": table}
        # of a protocol that treats the gallery in another way, a second file
        if p.gallery != "alike":
            files["gallery"] = table and table.with_stem(f"{table.stem}-gallery")
        self.check_files(*files.values())
        refuse_large_clips(t.encoder, p, t.about, self.batch, self.machine().place())
        with start():
            for role, out in files.items():
                features = extract(
                    cast(Any, t.encoder),
                    t.manifest,
                    "all",
                    1,
                    t.view,
                    p,
                    role=role,
                    machine=self.machine(),
                    store=store,
                    shared=True,
                    batch=self.batch,
                    **t.views,
                )
                if not is_first():
                    continue
                print(*filter(None, [features, store]), sep="\n")
                if not out:
                    continue
                rows = [t.manifest.rows[i] for i in features.row.tolist()]
                print(
                    write_video_features(
                        out, [r.video for r in rows], [r.label for r in rows], features.x.numpy()
                    )
                )


class Search(ReadingOptions, WritingOptions):
    """Find the videos of a folder that are most like a video; the first time, and for new files,
    encode them.
    """

    # videos, or spans of them in seconds: clip.mp4@12.5-15; none only brings the index up to date
    queries: tuple[str, ...] = word("[QUERY ...]", ())
    data: Path = Path(".")  # folder of the videos
    # run folder, or its encoder.safetensors; hf:NAME, timm:NAME, torchvision:NAME; none: that of
    # the index
    encoder: Path | None = None
    index: Path | None = None  # folder of the index; none: .vssl-search in that of the videos
    k: Count = 10  # how many videos to show for each query
    # also write the answers: .csv, .json or .html (it plays), new or written by this
    out: tuple[Path, ...] = ()
    update: bool = True  # look for new, changed and vanished videos first
    # clips of a video whose mean is its feature; none: as in the index, 10 in a new one
    clips: Count | None = None
    batch: Count = 64  # clips that go through the encoder together, at most

    def run(self):
        self.check_files(*self.out)
        if self.index:
            expect_no_run(self.index, "--index")
        from ..app import search

        options: dict[str, Any] = dict(batch=self.batch, device=self.device, workers=self.workers)
        folder, encoder, clips = search.choose_index(
            self.data, self.encoder, self.index, self.clips
        )
        index, (made, gone) = search.update_index(
            folder, self.data, encoder, clips, new=self.update, **options
        )
        if made or gone:
            print(f"{index}; {made} encoded, {gone} gone", file=sys.stderr)
        queries = [search.parse_query(q, self.data, index.videos) for q in self.queries]
        if not queries:
            return print(index, folder, sep="\n")
        x = search.query_features(index, queries, encoder, **options)
        hits = search.find_nearest(index, queries, x, self.k)
        print(search.as_text(queries, hits))
        for path in self.out:
            print(search.write_answers(path, index, queries, hits))


def how_to_predict(
    folder: Path,  # of a run
) -> str:
    "The file of a classifier, and the command that uses it."
    return (
        f"{folder / 'classifier.safetensors'}\nuse it: vssl-nb predict "
        f"{shlex.quote(str(folder))} VIDEO"
    )


class ProbeCommand(EncoderOptions):
    """A linear classifier on the frozen features of a run, or one that attends to the tokens of its
    encoder.
    """

    preset: Literal["clean_probe", "coclr_probe", "attentive_probe", "vjepa_probe"] = "clean_probe"
    # none: that of the recipe; several: each, and their mean
    splits: tuple[Annotated[int, "[1, 3]"], ...] = ()
    # how strength or epoch are chosen; 'test' is the official mode, which looks at the test videos
    selection: Literal["validation", "last", "test"] | None = None
    seed: Seed = 0  # of the held-out sources
    out: Path | None = None  # folder for classifier, results and features; none: that of the run

    def run(self):
        run, out = None if of_hub(self.folder) else self.folder, self.out or home_of(self.folder)
        check_paths(self.data, run, *((None, out) if self.out else (out, None)))
        from ..runs import evaluation

        t = evaluation.open_trained(self.folder, self.data, out)
        rows = evaluation.measure_probe(
            t,
            self.preset,
            self.splits,
            self.selection,
            self.seed,
            fields={"dtype": self.dtype},
            batch=self.batch,
            machine=self.machine(),
        )
        print((evaluation.PROBES | evaluation.ATTENTIVE_PROBES)[self.preset])
        kept = any("classifier" in row for row in rows)
        print_table(rows, out / "results.json", *([how_to_predict(out)] if kept else []))


class Finetune(MachineOptions):
    """Train a classifier end to end: fine-tune a run's encoder, train a head on it, or start from
    scratch.
    """

    # run folder; or the name of a recipe, whose backbone starts from scratch
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
        if (path.parent != Path(".") or of_hub(path)) and not path.exists():
            raise path_missing(path, "name a run folder, or a recipe")
        if not path.is_dir():
            find(self.source)
        if self.out:
            expect_run_folder(self.out, self.resume, tuned=True)
        check_paths(self.data, path if path.is_dir() else None, together=True)
        fields = changes(self.set)
        if self.dry_run:
            return self.forecast() if is_first() else None
        from ..runs.finetuning import finetune

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
        from ..papers.report import read_runs

        probes = [
            r
            for r in (read_runs(path) if (path / "results.json").exists() else [])
            if r.get("task") == "probe"
            and all(r.get(k) == row[k] for k in ("manifest_sha256", "split"))
        ]
        print_table([*probes, row], how_to_predict(self.out or home / row["run"]))

    def forecast(self) -> None:
        "Print what it will do and take."
        from ..data.manifest import read
        from ..runs.experiment import BlankVideos, resolve
        from ..runs.finetuning import networks_of, starting_point

        if self.data:
            read(self.data)  # makes none
        t, training = starting_point(
            self.source, self.preset, self.data, self.split, changes(self.set)
        )
        networks_of(t, training)  # refuses a run without a Gaussian head
        recipe = replace(training.recipe(t.recipe), name=training.name)
        videos = BlankVideos(training.learned(len(t.manifest.select("train", t.split))))
        print_forecast(
            resolve(recipe, videos), self.dtype or "float32", self.activation_checkpointing
        )


class Predict(ReadingOptions, WritingOptions):
    "Ask a classifier about videos: probabilities per class."

    # folder of a run that was fine-tuned or probed, or a classifier.safetensors
    source: Path = word("RUN")
    videos: tuple[Path, ...] = word("[VIDEO ...]", ())  # files; with --data: names in it
    # folder of videos, or a manifest: all of it, or the videos that are named
    data: Path | None = None
    top: Count = 5  # most probable classes to print
    out: Path | None = None  # .csv: the probabilities of all classes; new or written by this
    # where a classifier sees it: named by the manifest, or computed
    flow: Literal["", "stored", "live"] = ""
    # the file may name a backbone or view of somebody's own: that code is run
    outside: bool = False
    batch: Count = 64  # clips at a time on a GPU
    workers: Index = 0  # processes that decode

    def run(self):
        if not self.source.exists():
            raise path_missing(
                self.source,
                "name a run that was fine-tuned or probed, or its classifier.safetensors",
            )
        if not (self.source / "classifier.safetensors").exists():
            read_card(self.source)
        if missing := [v for v in self.videos if self.data is None and not v.exists()]:
            raise path_missing(missing[0], "name a video")
        check_paths(self.data)
        self.check_files(self.out)
        if not self.videos and self.data is None:
            raise Mistake(f"{self.source}: no video was named; give files, or a folder with --data")
        from ..measure import classify
        from ..measure.features import as_manifest, videos_of

        classifier = classify.load_classifier(self.source, self.outside)
        table = videos_of(self.data, self.videos) if self.data else as_manifest(self.videos)
        predicted = classify.predict_videos(
            classifier,
            table,
            flow=self.flow,
            batch=self.batch,
            machine=self.machine(progress=len(table) > 8),
        )
        names, rows = [r.video for r in table.rows], predicted.row.tolist()
        width = max(len(names[r]) for r in rows)
        print(classifier)
        for r, p in zip(rows, predicted.p):
            best = p.argsort(descending=True, stable=True)[: self.top].tolist()
            shares = [f"{predicted.classes[c]} {100 * p[c]:.1f} %" for c in best]
            print(f"{names[r]:{width}}", *shares, sep="  ")
        for i, reason in predicted.dropped.items():
            print(f"unreadable: {names[i]}: {reason}", file=sys.stderr)
        if self.out:
            print(classify.write_predictions(self.out, predicted, names))


class Cotrain(MachineOptions):
    """InfoNCE on two views, then CoCLR in turns: every phase a run folder, resumable, one report at
    the end.
    """

    name: str = field(metadata={"word": "NAME", "about": f"one of {', '.join(COTRAININGS)}"})
    data: Path  # manifest.csv, or the folder that holds it
    out: Path | None = None  # folder; none: runs/<name>
    # fields to change in every phase that has them, such as epochs=5 backbone=small
    set: tuple[str, ...] = ()
    health_every: Index = 0  # look at the features every so many epochs (health.csv); 0: never
    # released files whose weights the first phases begin with: rgb=FILE flow=FILE
    init: tuple[str, ...] = ()

    def run(self):
        out, fields = self.out or Path("runs") / self.name, changes(self.set)
        if self.name not in COTRAININGS:
            raise RecipeError(
                f"there is no co-training {self.name!r}; {did_you_mean(self.name, COTRAININGS)}"
            )
        check_paths(self.data, results=out, together=True)
        for card in out.glob("*/card.json"):
            read_card(card.parent)
        from ..runs.cotraining import cotrain, cotraining_phases, refuse_phases

        if self.dry_run:
            if not is_first():
                return
            from ..data.manifest import read

            from ..runs.experiment import resolve

            manifest, phases = read(self.data), cotraining_phases(self.name, fields)
            machine = self.machine()
            refuse_phases(out, {p: resolve(r, manifest, machine) for p, r in phases})
            for i, (phase, recipe) in enumerate(phases, 1):
                print(f"phase {i} of {len(phases)}, {out / phase.recipe}")
                try_recipe(self, recipe, manifest)
            return
        from ..papers.report import page

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
            print_table(rows, page(out))
        elif is_first():
            print(
                f"{out}: trained; nothing was measured, because not all test videos of "
                f"{self.data} have a label"
            )


class Mine(RunOptions, WritingOptions):
    "Say what a finished run would mine, with any miner, and how much of it is right."

    # folder of the run that mines for it; none: the one it was trained with, or itself
    mining: Path | None = None
    # such as topk, cascade,stages=7,order=paper or package.module:name,option=value
    miners: tuple[str, ...] = ()
    topk: Count = 5  # videos to take for each
    memory: Count | None = None  # search so many videos, drawn once, as a queue would; none: all
    # what class mining recall counts: recordings (CPR) or videos
    unit: Literal["source", "video"] = "source"
    # .json: all numbers, with the recall of each class; new or written by this
    out: Path | None = None

    def run(self):
        check_paths(self.data, self.folder)
        check_paths(run=self.mining)
        self.check_files(self.out)
        from ..papers.report import table
        from ..runs import cotraining
        from ..training.loop import write_json

        networks, labels = cotraining.mining_networks(
            self.folder, self.mining, self.data, self.machine()
        )
        miners = self.miners or (("topk", "cascade") if len(networks) > 1 else ("topk",))
        qualities = cotraining.compare_miners(
            networks, labels, miners, self.topk, memory=self.memory, unit=self.unit
        )
        rows = cotraining.quality_rows(qualities)
        columns = {k: heading for k, heading in cotraining.QUALITY_COLUMNS.items() if k in rows[-1]}
        print(
            f"{qualities[0].candidates} candidates; " + " mines for ".join(qualities[0].views),
            table(rows, "text", columns),
            sep="\n",
        )
        if self.out:
            print(write_json(self.out, [asdict(q) for q in qualities]))


class Convert(WritingOptions):
    """Turn a run into a released file, a released file into a run, or either into an encoder to
    share.
    """

    source: Path = word("IN")  # run folder or released file
    # .tar, .pth: released; .safetensors: encoder; else folder; new or written by this
    out: Path = word("OUT")
    # manifest: the folder becomes a run, that pretrain --resume goes on with
    data: Path | None = None
    recipe: str | None = None  # of that run; none: the one that the file carries
    set: tuple[str, ...] = ()  # fields of that recipe to change, such as batch=16
    view: Literal["rgb", "flow", "residual"] | None = (
        None  # of a released file that does not say it
    )
    optimizer: bool = True  # write its state as well
    device: str = "cpu"  # where the run is tried

    def run(self):
        if not self.source.exists():
            raise path_missing(self.source, "name a run folder or a released file")
        if self.source.is_dir():
            expect_run(self.source, tuned=self.out.suffix in RELEASED)
        if self.data:
            expect_run_folder(self.out)
        elif self.out.suffix in (*RELEASED, ".safetensors"):
            self.check_files(self.out)
        else:
            expect_no_run(self.out)
            self.check_files(
                *(self.out / name for name in ("config.json", "model.safetensors", "README.md"))
            )
        check_paths(self.data)
        if self.set and not self.recipe:
            raise Mistake("--set changes a recipe: name it with --recipe")
        if self.recipe and not self.data:
            raise Mistake("--recipe makes a run, and a run needs --data: name the manifest")
        if self.data and self.source.is_dir():
            raise Mistake(f"{self.source}: is a run already; leave out --data")
        recipe = override(find(self.recipe), **changes(self.set)) if self.recipe else None
        from ..runs.released import convert, load_released

        if self.data is None:
            contents = convert(self.source, self.out, self.view, self.optimizer)
        else:
            from ..runs.pretraining import import_released
            from ..training.machine import Machine

            import_released(
                self.source,
                self.data,
                self.out,
                recipe,
                self.view,
                Machine(self.device, workers=0, progress=False),
            )
            contents = str(load_released(self.source, self.view))
        print(*filter(None, [contents]), self.out, sep="\n")


class VerdictCommand(RunOptions):
    """Say in plain words whether a run has learned, has collapsed, and looks at motion; needs no
    labels.
    """

    # run folder; or hf:NAME, timm:NAME, torchvision:NAME, or a folder for NAME
    folder: Path = word("RUN")
    videos: Annotated[int, "[4, inf)"] = 128  # training videos to look at, at most
    seconds: Positive = 120.0  # then no further ones are looked at, once there are 32
    # folder for verdict.txt, verdict.json and a picture; none: that of the run
    out: Path | None = None

    def run(self):
        run, out = None if of_hub(self.folder) else self.folder, self.out or home_of(self.folder)
        check_paths(self.data, run, *((None, out) if self.out else (out, None)))
        from .own import give_verdict

        print(
            give_verdict(
                self.folder,
                self.data,
                self.machine(),
                self.videos,
                self.seconds,
                self.out if run else out,
            ),
            out / "verdict.txt",
            sep="\n",
        )


class UncertaintyCommand(ReadingOptions, WritingOptions):
    "List videos by the uncertainty that a run predicts, the least sure first."

    # folder of a run that exported a Gaussian head, such as one of ProViCo
    folder: Path = word("RUN")
    # folder of videos, or a manifest; none: all videos of the one it was trained on
    data: Path | None = None
    # .csv: all of them, with those that cannot be read; new or written by this
    out: Path | None = None
    show: Index = 20  # lines to print: half the least sure, half the surest; 0: all
    of: Count = 2  # clips of one distribution; those of a video are a multiple of it
    clips: Count = 10  # clips of a video
    batch: Count = 64  # clips that go through the encoder together, at most
    workers: Index = 0  # processes that decode

    def run(self):
        check_paths(self.data, self.folder)
        self.check_files(self.out)
        from ..measure import gaussian
        from ..runs.evaluation import open_trained

        data = open_trained(self.folder).manifest if self.data is None else self.data
        features, videos = gaussian.folder_gaussians(
            self.folder, data, self.clips, self.of, self.batch, self.machine()
        )
        ranked = gaussian.rank_videos(features, videos)
        lost = {videos.rows[r].video: reason for r, reason in features.dropped.items()}
        print(gaussian.ranking_text(ranked, self.show))
        for video, reason in lost.items():
            print(f"unreadable: {video}: {reason}", file=sys.stderr)
        if self.out:
            print(gaussian.write_ranking(self.out, ranked, lost))


class Claims(Command):
    "Print which claims of the papers are supported here, contradicted or open, and why."

    paper: str | None = None  # only those of one text, such as CPR
    ledger: Path | None = None  # .json file; none: results/claims.json of the clone
    form: Literal["text", "markdown"] = "text"  # of what is printed

    def run(self):
        from ..papers import published

        paper, papers = (
            (self.paper or "").lower(),
            dict.fromkeys(c.paper for c in published.CLAIMS.values()),
        )
        numbers = [n for n, c in published.CLAIMS.items() if paper in ("", c.paper.lower())]
        if not numbers:
            raise Mistake(
                f"--paper {self.paper}: no claim is of that paper; there are {', '.join(papers)}"
            )
        text = published.ledger_text if self.form == "text" else published.ledger_markdown
        ledger = self.ledger or published.LEDGER
        print(text(ledger, numbers), published.ledger_count(ledger), sep="\n\n")


class Reproduce(MachineOptions):
    "A row of a paper's table: train what it needs, measure it, and set it beside the paper."

    # paper:table or paper:table:row, such as cpr:table1:s=3; none lists them
    name: str = word("[TABLE]", "")
    # toy, or the manifest (or its folder) of the dataset that the paper trained on
    data: str | None = None
    out: Path = Path("runs/reproduce")  # a folder; every table gets one in it
    seeds: tuple[Seed, ...] = (0,)  # of weights and order; of the toy videos, too
    set: tuple[str, ...] = ()  # fields to change in every recipe that has them, such as epochs=5
    size: Literal["tiny", "demo"] = "demo"  # of the toy
    list: bool = False  # print how each row of the tables will be measured; nothing is trained

    def run(self):
        listed = self.list or not self.name
        if not listed:
            check_paths(None if self.data == "toy" else self.data, results=self.out, together=True)
        from ..papers.reproduce import find_rows, list_rows, list_tables, reproduce

        if listed:
            print(*(list_rows(self.name) if self.list else list_tables(self.out)), sep="\n")
            return
        rows = find_rows(self.name)[1]  # refuses a name that there is not
        if not self.data:
            raise Mistake(
                f"{self.name}: say on what: --data toy, for the small version, "
                f"or the manifest of {rows[0].full.made().dataset}"
            )
        if os.environ.get("WORLD_SIZE", "1") != "1":
            raise Mistake(
                "reproduce: start it without torchrun; vssl-nb pretrain takes many processes"
            )
        print(
            reproduce(
                self.name,
                self.data,
                self.out,
                self.seeds,
                self.machine(),
                changes(self.set),
                self.size,
                self.dry_run,
            )
        )


class Report(WritingOptions):
    """Collect the results of runs into a table beside the published numbers, and a self-contained
    page.
    """

    folder: Path = word("FOLDER")  # a run folder, or a folder of run folders
    form: Literal["text", "markdown", "html", "csv", "latex"] = "text"  # of the printed table
    # the page, .html, new or written by this; none: report.html in that folder
    out: Path | None = None

    def run(self):
        if not self.folder.exists():
            raise path_missing(
                self.folder, "name a run folder, such as runs/mine, or a folder of them"
            )
        self.check_files(
            self.out or (self.folder / "report.html" if self.folder.is_dir() else None)
        )
        from ..papers.report import page, read_runs, read_verdicts, sheet, summary

        path, rows = page(self.folder, self.out), read_runs(self.folder)
        if self.form == "text":
            for run, text in read_verdicts(self.folder).items():
                print(f"{run}: {text}\n")
        if rows:
            print(sheet(summary(rows), self.form))
        print(path)


class Demo(Command):
    "Write toy videos, co-train two views, retrieve, and print one table: what `make demo` does."

    out: Path = Path("runs/demo")  # where everything goes
    seed: Seed = 0  # of videos, weights and order

    def run(self):
        check_paths(results=self.out)
        from ..papers.reproduce import demo

        demo(self.out, seed=self.seed)


COMMANDS: dict[str, Any] = {
    "demo": Demo,
    "toy": Toy,
    "manifest": MakeManifest,
    "flow": Flow,
    "recipes": Recipes,
    "dry-run": DryRunCommand,
    "pretrain": Pretrain,
    "cotrain": Cotrain,
    "extract": Extract,
    "search": Search,
    "retrieve": Retrieve,
    "probe": ProbeCommand,
    "finetune": Finetune,
    "predict": Predict,
    "convert": Convert,
    "mine": Mine,
    "uncertainty": UncertaintyCommand,
    "claims": Claims,
    "reproduce": Reproduce,
    "verdict": VerdictCommand,
    "report": Report,
}


class Option(NamedTuple):
    "A field of a command, or of a recipe, as one gives it."

    kind: Any  # a type annotation
    default: Any  # MISSING: it must be given
    about: str  # the comment behind it
    word: str = ""  # its name in help where it stands without the name of an option
    alias: str = ""  # another name


# comments above a field, its name, the comment behind it
FIELD = re.compile(r"((?:^ {4}#.*\n)*)^ {4}(\w+):[^#\n]*(?:#(.*))?", re.MULTILINE)


@cache
def comments(cls: type) -> dict[str, str]:  # of a dataclass and its bases: field -> text
    "The comments behind the fields, or above them."

    def source(
        c,
    ):  # `inspect.getsource` of a class parses its whole module: a tenth of a second
        text = inspect.getsource(sys.modules[c.__module__])
        lines = re.search(rf"^class {c.__name__}\b.*\n(?:(?: .*)?\n)*", text, re.MULTILINE)
        return lines[0] if lines else ""

    return {
        name: " ".join([*re.findall("# *(.*)", above), behind.strip()]).strip()
        for c in reversed(cls.__mro__)
        if is_dataclass(c)
        for above, name, behind in FIELD.findall(source(c))
    }


def options_of(
    part: Any,  # a dataclass, or an object of one: its values are the defaults
) -> dict[str, Option]:
    "The fields of a command, or of one part of a recipe, by their names."
    cls = part if isinstance(part, type) else type(part)
    kinds, notes = get_type_hints(cls), comments(cls)
    own = [
        f for f in fields(cls) if f.init and not is_dataclass(getattr(part, f.name, kinds[f.name]))
    ]
    return {
        f.name: Option(
            kinds[f.name],
            getattr(part, f.name, f.default),
            **{"about": notes.get(f.name, ""), **f.metadata},
        )
        for f in own
    }


def recipe_parts(
    recipe: Recipe,
) -> dict[str, Any]:  # a name in help -> the recipe, or a part of it
    "Everything whose fields are options of `pretrain`."
    return {"recipe": recipe} | {
        name: part for name, part in vars(recipe).items() if is_dataclass(part)
    }


NAMES = {
    int: ("N", "a whole number"),
    float: ("X", "a number"),
    str: ("WORD", "a word"),
    Path: ("PATH", "a path"),
    NoneType: ("None", "None"),
}  # in help, in messages


def alternatives(
    kind: Any,
) -> tuple:  # the types of a union, `None` last; of another type, itself
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def many_of(
    kind: Any,
) -> tuple:  # (float, float) of a tuple of two, (int, ...) of any number; () of no tuple
    return get_args(kind) if get_origin(kind) is tuple else ()


def metavar(
    kind: Any,
) -> str:  # a type in help: N, X|None, {adam,sgd}
    return "|".join(
        "{" + ",".join(map(str, get_args(k))) + "}" if get_origin(k) is Literal else NAMES[k][0]
        for k in alternatives(kind)
    )


def value_of(
    text: str,
    kind: Any,
) -> Any:  # of that type annotation
    "A word of the command line as a value; ArgumentTypeError."
    literals = [
        value for k in alternatives(kind) if get_origin(k) is Literal for value in get_args(k)
    ]
    choices = {str(value): value for value in literals}
    if NoneType in alternatives(kind):
        choices["None"] = None
    if text in choices:
        return choices[text]
    plain = [k for k in alternatives(kind) if k in NAMES]
    if not text and Path in plain:
        raise argparse.ArgumentTypeError("'' is no path; . is this folder")
    for k in plain:
        # there is no NoneType(text)
        with contextlib.suppress(ValueError, TypeError):
            return k(text)
    names = (
        f"one of {', '.join(sorted(map(str, literals)))}"
        if literals
        else " or ".join(NAMES[k][1] for k in plain if k is not NoneType)
    )
    raise argparse.ArgumentTypeError(f"{text}: is not {names}")


def dashed(name: str) -> str:
    return name.replace("_", "-")


def make_parser(
    command: str,
    parts: dict[str, Any],  # as of `recipe_parts`
) -> argparse.ArgumentParser:
    "A parser that takes the options, and leaves the words between them."
    kind = COMMANDS[command]
    words = [o.word for o in options_of(kind).values() if o.word]
    made = argparse.ArgumentParser(
        usage=" ".join([f"vssl-nb {command}", *words, "[OPTIONS]"]),
        description=kind.__doc__,
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
        argument_default=argparse.SUPPRESS,
        conflict_handler="resolve",
    )
    for title, part in parts.items():
        group = made.add_argument_group(title)
        for name, o in options_of(part).items():
            if o.word:
                made.add_argument_group(o.word, o.about)
                continue
            shown = " ".join(map(str, o.default)) if isinstance(o.default, tuple) else o.default
            default, many = (
                "required" if o.default is MISSING else f"default: {shown}",
                many_of(o.kind),
            )
            one = many[0] if many else o.kind
            typed: dict[str, Any] = (
                dict(action=argparse.BooleanOptionalAction)
                if o.kind is bool
                else dict(type=partial(value_of, kind=one), metavar=metavar(one))
            )
            if many:
                typed["nargs"] = "*" if many[-1] is ... else len(many)
            group.add_argument(
                *filter(None, [f"--{dashed(name)}", o.alias]),
                dest=name,
                help=f"{o.about} ({default})".replace("%", "%%"),
                **typed,
            )
    return made


def split_words(
    command: str, parts: dict[str, Any], args: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    "Field -> value of the options that were given, and the words between them; Mistake."
    names = [a.partition("=") if a.startswith("--") else ("", "", a) for a in args]
    # --save_minutes will do
    plain = [dashed(name) + equals + value for name, equals, value in names]
    try:
        given, rest = make_parser(command, parts).parse_known_args(plain)
    except argparse.ArgumentError as e:
        name = str(e.argument_name).split("/")[0]
        if isinstance(e.__context__, argparse.ArgumentTypeError):  # of `value_of`
            raise Mistake(f"{name} {e.message}") from None
        kinds = {n: o.kind for part in parts.values() for n, o in options_of(part).items()}
        kind = kinds.get(name[2:].replace("-", "_"), bool)
        lacks = "takes no value" if kind is bool else "has no value behind it"
        raise Mistake(
            f"{name}: {f'takes {len(many_of(kind))} values' if many_of(kind) else lacks}"
        ) from None
    return {n: tuple(v) if isinstance(v, list) else v for n, v in vars(given).items()}, rest


NAMED = {
    "protocol": ("a protocol", "measure/protocols.csv"),
    "preset": ("a training", "runs/trainings.csv"),
    # options whose values are names in a table
    "finetune": ("a training", "runs/trainings.csv"),
}


def parse(
    command: str,  # a key of COMMANDS
    args: Sequence[str],  # what follows the command
) -> Any:  # an object of the command
    "The command with its options filled in; Mistake, or RecipeError for a field of a recipe."
    kind, recipe, options = COMMANDS[command], None, options_of(COMMANDS[command])
    end = args.index("--") if "--" in args else len(args)
    try:
        if command == "pretrain":
            recipe = default_recipe(args[:end])
        parts = {"options": kind} | (recipe_parts(recipe) if recipe else {})
        values, words = split_words(command, parts, args[:end])
        if strange := next((w for w in words if w.startswith("--")), None):
            raise Mistake(unknown_option(command, strange))
        words += args[end + 1 :]  # what stands behind -- is no option
        ranged = get_type_hints(kind, include_extras=True)
        for n, given in values.items():
            for v in given if isinstance(given, tuple) else (given,):
                limits = interval(ranged.get(n))
                if limits and (wrong := out_of_range(v, limits)):
                    raise Mistake(f"--{dashed(n)} {str(v).removesuffix('.0')}: {wrong}")
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", values.get("device", "auto")):
            raise Mistake(f"--device {values['device']}: is not one of auto, cpu, cuda, cuda:1")
        for n, (part, table) in NAMED.items():  # one's own is imported later
            if ":" not in (name := values.get(n) or ":") and command != "probe":
                look_up(
                    name.removesuffix("_held_out"), {r["name"]: r for r in read_lines(table)}, part
                )
        if "" in words:
            raise Mistake("'' is an empty argument; . is this folder")
        for name, o in options.items():
            if not o.word or not words:
                continue
            if many := many_of(o.kind):
                values[name], words = tuple(many[0](w) for w in words), []
            else:
                values[name], words = o.kind(words[0]), words[1:]
        if words:
            raise Mistake(f"{words[0]!r} is one argument too many")
        if missing := {
            n: o for n, o in options.items() if o.default is MISSING and n not in values
        }:
            raise Mistake(
                f"vssl-nb {command} also needs "
                + " and ".join(
                    f"{o.word or f'--{dashed(n)} {metavar(o.kind)}'} ({o.about})"
                    for n, o in missing.items()
                )
            )
    except Mistake as e:
        see = " See" if str(e).endswith("?") else "; see"
        raise Mistake(f"{e}{see} vssl-nb {command} --help") from None
    made = kind(**{n: v for n, v in values.items() if n in options})
    if recipe:
        made.given = frozenset(values) - options.keys()
        made.recipe = override(recipe, **{n: values[n] for n in made.given})
    return made


def all_parts(
    command: str,
) -> dict[str, Any]:  # as of `recipe_parts`
    "Everything whose fields may be options of a command; of `pretrain`, whatever the recipe."
    of_recipes = METHODS | recipe_parts(find("infonce-toy-rgb")) if command == "pretrain" else {}
    return of_recipes | {"options": COMMANDS[command]}


def default_recipe(
    args: Sequence[str],  # of `pretrain`
) -> Recipe:  # the numbers of the recipe are the defaults
    """The recipe that the arguments name, wherever it stands among them, with the method that they
    name.
    """
    values, rest = split_words("pretrain", all_parts("pretrain"), args)
    words = [w for w in rest if not w.startswith("-")]
    recipe = find(
        next((w for w in words if w in RECIPES or ":" in w), [*words, "infonce-toy-rgb"][0])
    )
    if "method" in values:
        recipe = override(recipe, method=values["method"])
    if taken := [f for f in vars(recipe.method) if f in get_type_hints(Pretrain)]:
        raise Mistake(
            f"the settings of {recipe.method.name} have a field {taken[0]!r}, "
            "which is an option of pretrain; call it otherwise"
        )
    return recipe


def unknown_option(
    command: str,
    option: str,  # '--epoch' or '--epoch=3'
) -> str:
    "A sentence about an option that does not exist."
    name = option[2:].partition("=")[0]
    if (command, name) == ("pretrain", "set"):  # which other commands have
        return (
            "--set is not an option of pretrain, where each field is an option, such as --epochs 5"
        )
    known = {
        dashed(n): o for part in all_parts(command).values() for n, o in options_of(part).items()
    }
    if name not in known:
        return f"{option} is not an option of {command}; {did_you_mean(name, known)}"
    if not known[name].word:
        return f"--{name} is a setting of another method"
    return f"--{name}: is given without its name, as in vssl-nb {command} {known[name].word}"


def overview() -> str:
    "What `vssl-nb` prints when it is given nothing."
    lines = [f"  {name:13}{kind.__doc__.splitlines()[0]}" for name, kind in COMMANDS.items()]
    return "\n".join(
        [
            f"vssl-nb {__version__}: self-supervised video representation learning",
            "",
            *lines,
            "",
            "vssl-nb COMMAND --help lists its options.",
            "First steps: vssl-nb toy videos; vssl-nb pretrain infonce-toy-residual --data videos; "
            "vssl-nb retrieve runs/infonce-toy-residual",
        ]
    )


@contextlib.contextmanager
def heed_signals() -> Iterator[list[int]]:  # the signals that have come
    """Ctrl-C, and SIGTERM and SIGHUP of no launcher, end this process and those that it has made,
    tidily.
    """

    def end(number, frame):
        if os.getpid() != here:
            os._exit(128 + number)  # one that was forked just now
        received.append(number)
        if number == signal.SIGHUP:
            leave_terminal()
        # from now on: objects that are half made end with errors,
        sys.unraisablehook = lambda error: None
        warnings.simplefilter("ignore")  # and modules that are half imported with warnings
        # where the exception is lost: in a fork,
        again.append(threading.Timer(1, os.kill, (here, number)))
        again[-1].start()  # or in a module that is imported and catches everything
        raise KeyboardInterrupt

    here, received, again, before = (
        os.getpid(),
        list[int](),
        list[threading.Timer](),
        dict[int, Any](),
    )
    usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler}
    if os.environ.get("WORLD_SIZE", "1") == "1":
        usual |= dict.fromkeys((signal.SIGTERM, signal.SIGHUP), signal.SIG_DFL)
    if threading.current_thread() is threading.main_thread():
        for number, handler in usual.items():  # what somebody else has arranged stays
            if signal.getsignal(number) is handler:
                before[number] = signal.signal(number, end)
    try:
        yield received
    finally:
        for timer in again:
            timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def end_children() -> None:
    "End the processes that this one has made and that have not heard the signal."
    left = multiprocessing.active_children()
    if not left or threading.current_thread() is not threading.main_thread():
        return
    # PyTorch's would raise an error in this
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for p in left:
        p.kill()
    for p in left:
        p.join()
    signal.signal(signal.SIGCHLD, before)


def speak_utf8() -> None:
    "Print names of files as they are also in the locale C; elsewhere a ? for what it lacks."
    # closed by the caller; else the next file that is opened would be it
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue  # a notebook's, a test's
        plain = stream.encoding.lower().replace("-", "") in (
            "ascii",
            "utf8",
            "usascii",
            "ansi_x3.41968",
        )
        if plain:
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")
        else:
            stream.reconfigure(errors="replace")


def run_command(args: list[str]) -> None:
    "Run one command, or print help."
    if not args or args[0] in ("-h", "--help", "help"):
        print(overview())
    elif args[0] == "--version":
        print(__version__)
    elif args[0] not in COMMANDS:
        raise Mistake(f"there is no command {args[0]!r}; {did_you_mean(args[0], COMMANDS, 0.6)}")
    elif {"-h", "--help"} & {*args[: args.index("--") if "--" in args else None]}:
        parts = {"options": COMMANDS[args[0]]}
        if args[0] == "pretrain":  # with the numbers of the recipe that is named
            recipe = default_recipe([a for a in args[1:] if a not in ("-h", "--help")])
            parts |= recipe_parts(recipe)
            print(
                f"The defaults are those of {recipe.name}; name another recipe to see those of "
                "it.\n"
            )
        print(make_parser(args[0], parts).format_help().rstrip())
    else:
        command = parse(args[0], args[1:])
        refuse_strangers()
        command.run()
    sys.stdout.flush()


def output_error() -> str:  # '' where there is none
    "Why standard output cannot be written; from then on nothing is written there."
    try:
        print(flush=True)
    except OSError as e:  # Python would try again when it ends, and end with a code of its own
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return e.strerror or str(e)
    return ""


# what Python, PyTorch and the loader of libraries call it
NO_MEMORY = re.compile(
    "MemoryError|[^:]*(annot|can't) (allocate memory|start new thread)|not enough memory|"
    "failed to map segment"
)


def main(
    # None: the arguments of the process, which ends after this
    args: Sequence[str] | None = None,
    # returns: exit code: 0; 2 for a mistake; 130 after Ctrl-C and 143 after SIGTERM, as shells have
    # it
) -> int:
    "Run one command; a mistake becomes one sentence on stderr."
    # read when torch is imported: threads that spin while they wait slow down all that runs beside
    # them
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    speak_utf8()
    code, received, words = 0, list[int](), sys.argv[1:] if args is None else [*args]
    # the first words of a command that is silent for a second; past the lock of sys.stderr, as it
    # may fork
    silence = threading.Timer(
        1,
        os.write,
        (
            2,
            f"vssl-nb {''.join(words[:1])}: has begun; to import PyTorch "
            "and open files takes some seconds\n".encode(),
        ),
    )
    try:
        if (
            args is None
            and words
            and "--quiet" not in words
            and is_first()
            and "torch" not in sys.modules
        ):
            silence.start()
        with warnings.catch_warnings(), heed_signals() as received:
            run_command(words)
    except BrokenPipeError:
        output_error()  # the reader of a pipe has seen enough
    except (ValueError, OSError) as e:
        if os.environ.get("VSSL_DEBUG"):
            raise
        text = str(e)
        if isinstance(e, OSError) and not e.filename and (reason := output_error()):
            text = (
                f"standard output cannot be written ({reason}); send it elsewhere; written "
                "files are kept"
            )
        # what is wrong with the arguments is wrong in all processes; of what goes wrong later,
        # `distributed.start` lets one process tell
        # nobody launched this
        if (
            is_first(local=isinstance(e, PathError))
            or not isinstance(e, (Mistake, RecipeError, PathError))
            or "TORCHELASTIC_RUN_ID" not in os.environ
            and "RANK" in os.environ
        ):
            print(f"vssl-nb: {text}", file=sys.stderr)
        else:
            # a launcher ends all processes when one has ended, and the first may not have printed
            # yet
            with contextlib.suppress(KeyboardInterrupt):
                time.sleep(10)
        code = 2
    except BaseException as e:  # an interruption may come out of an import as another error
        lacking = not received and NO_MEMORY.search(f"{type(e).__name__}: {e}")
        if not (lacking or received or isinstance(e, KeyboardInterrupt)):
            raise
        if lacking:
            print(
                f"vssl-nb: there is too little memory ({lacking[0]}); give less to do at a time "
                "(--batch, --workers 0), or raise the limit (ulimit -v)",
                file=sys.stderr,
            )
        # a training that was interrupted has printed what it saved
        # in one piece
        elif not hasattr(e, "signal"):
            sys.stderr.write("vssl-nb: interrupted\n")
        code = (
            2 if lacking else 128 + getattr(e, "signal", received[0] if received else signal.SIGINT)
        )
    finally:
        silence.cancel()
    if code > 2:  # the error is gone, and with it all that ends its own processes
        end_children()
        sys.unraisablehook = sys.__unraisablehook__
    # Python looks through all objects for garbage before it ends: most of a second where PyTorch is
    # there.
    # Not with Triton, which complains about what was not taken apart
    if args is None and "triton" not in sys.modules:
        gc.freeze()
    return code
