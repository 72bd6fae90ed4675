"Commands that use what was trained: search, explore, predict, convert."

import sys
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from ...extras import require
from ...fields import Count, Index, Seed
from ...methods.recipes import find, override
from ...names import of_hub
from ...paths import expect_no_run, expect_run, expect_run_folder, path_missing, read_card
from ..options import Mistake, word
from .option_groups import ReadingOptions, WritingOptions, changes, check_manifest
from .training import RELEASED


# endings of files that run without this library, see `app.programs`
PROGRAMS = (".pt2", ".onnx")


class Search(ReadingOptions, WritingOptions):
    """Find the videos of a folder that are most like a video; the first time, and for new files,
    encode them.
    """

    # videos, or spans of them in seconds: clip.mp4@12.5-15; none only brings the index up to date
    queries: tuple[str, ...] = word("[QUERY ...]", ())
    data: Path = Path(".")  # folder of the videos
    # run folder, or its encoder.safetensors; hf:NAME, timm:NAME, torchvision:NAME,
    # published:efficientnet-lite0 (of pictures also NAME@spread, NAME@both); none: that of the
    # index
    encoder: Path | None = None
    index: Path | None = None  # folder of the index; none: .vssl-search in that of the videos
    k: Count = 10  # how many videos to show for each query
    # also write the answers: .csv, .json or .html (it plays), new or written by this
    out: tuple[Path, ...] = ()
    # answer with spans inside the videos, about as long as the query, such as
    # match.mp4@61.20-64.40; the first time, windows of all videos are encoded, which takes much
    # longer than an index
    spans: bool = False
    update: bool = True  # look for new, changed and vanished videos first
    # clips of a video whose mean is its feature; none: as in the index; in a new one 10, of an
    # encoder of pictures one of eight frames
    clips: Count | None = None
    batch: Count = 64  # clips that go through the encoder together, at most

    writer: ClassVar[str] = "search"

    def run(self):
        self.check_files(*self.out)
        if self.index:
            expect_no_run(self.index, "--index")
        if self.spans:
            self.answer_with_spans()
            return
        from .. import search

        options = self.options()
        folder, encoder, clips = search.choose_index(
            self.data, self.encoder, self.index, self.clips
        )
        for query in self.queries:  # before anything is encoded
            search.parse_query(query, self.data)
        index, (encoded, gone) = search.update_index(
            folder, self.data, encoder, clips, new=self.update, **options
        )
        if encoded or gone:
            print(f"{index}; {encoded} encoded, {gone} gone", file=sys.stderr)
        queries = [search.parse_query(q, self.data, index.videos) for q in self.queries]
        if not queries:
            print(index, folder, sep="\n")
            return
        features = search.query_features(index, queries, encoder, **options)
        hits = search.find_nearest(index, queries, features, self.k)
        print(search.as_text(queries, hits))
        for path in self.out:
            print(search.write_answers(path, index, queries, hits))

    def options(self) -> dict[str, Any]:
        "How videos are encoded."
        return {"batch": self.batch, "device": self.device, "workers": self.workers}

    def answer_with_spans(self) -> None:
        "Print and write spans inside the videos."
        for name in ("index", "clips"):
            if getattr(self, name) is not None:
                raise Mistake(f"--spans has windows of its own; leave out --{name}")
        from .. import search, spans

        folder, encoder = spans.choose_spans(self.data, self.encoder)
        for query in self.queries:  # before anything is encoded
            search.parse_query(query, self.data)
        index, encoded = spans.update_spans(
            folder, self.data, encoder, new=self.update, **self.options()
        )
        if encoded:
            print(f"{index}; {encoded} encoded", file=sys.stderr)
        queries = [search.parse_query(q, self.data, index.videos) for q in self.queries]
        if not queries:
            print(index, folder, sep="\n")
            return
        windows = spans.span_features(queries, encoder, **self.options())
        hits = [spans.nearest_spans(index, q, w, self.k) for q, w in zip(queries, windows)]
        print(search.as_text(queries, hits))
        for path in self.out:
            print(search.write_answers(path, index, queries, hits))


class Explore(ReadingOptions, WritingOptions):
    """Show a folder of videos on one page: a map on which they play, groups, near copies, and which
    to label next.
    """

    folder: Path = word("FOLDER")  # of the videos; what they are encoded with is kept, as by search
    # run folder, or its encoder.safetensors; hf:NAME, timm:NAME, torchvision:NAME,
    # published:efficientnet-lite0; none: that of the index
    encoder: Path | None = None
    # .npz, .csv or .parquet of vssl-nb extract: take these features and encode nothing
    features: Path | None = None
    index: Path | None = None  # folder of the index; none: .vssl-search in that of the videos
    # .html: the page; .csv: a row for each video; new or written by this
    out: tuple[Path, ...] = (Path("explore.html"),)
    groups: Annotated[int, "[2, inf)"] | None = None  # how many; none: by the number of videos
    label_next: Count = 20  # how many videos to propose for a label
    # clips of a video whose mean is its feature; none: as in the index; in a new one 10, of an
    # encoder of pictures one of eight frames
    clips: Count | None = None
    batch: Count = 64  # clips that go through the encoder together, at most
    seed: Seed = 0  # of map and groups

    writer: ClassVar[str] = "explore"

    def run(self):
        self.check()
        for package in ("sklearn", "scipy"):
            require(package, "explore")
        from .. import explore

        collection = self.collection()
        landscape = explore.explore(
            collection, self.groups, self.label_next, self.workers, seed=self.seed
        )
        print(explore.landscape_in_words(landscape))
        for name, reason in landscape.unreadable.items():
            print(f"unreadable: {name}: {reason}", file=sys.stderr)
        for path in self.out:
            print(explore.write_landscape(path, landscape))

    def check(self) -> None:
        "Refuse what cannot be read or written, and options that would be ignored. `ValueError`."
        self.check_files(*self.out)
        if not self.folder.exists():
            raise path_missing(self.folder, "name the folder that holds the videos")
        if self.folder.is_file():
            raise Mistake(
                f"{self.folder}: is a file; name the folder that holds the videos (features: "
                "--features)"
            )
        if self.features is None:
            if self.index:
                expect_no_run(self.index, "--index")
            return
        for name in ("encoder", "index", "clips"):
            if getattr(self, name) is not None:
                raise Mistake(f"{self.features}: features are there already; leave out --{name}")
        if not self.features.exists():
            raise path_missing(self.features, "name a file of vssl-nb extract --out")

    def collection(self) -> Any:  # of `app.explore`
        "The videos and their features: of a file, or of an index that is brought up to date."
        from .. import explore, search

        if self.features:
            return explore.of_table(self.features, self.folder)
        folder, encoder, clips = search.choose_index(
            self.folder, self.encoder, self.index, self.clips
        )
        index, (encoded, gone) = search.update_index(
            folder,
            self.folder,
            encoder,
            clips,
            batch=self.batch,
            device=self.device,
            workers=self.workers,
        )
        if encoded or gone:
            print(f"{index}; {encoded} encoded, {gone} gone", file=sys.stderr)
        return explore.of_index(index)


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

    writer: ClassVar[str] = "predict"

    def run(self):
        self.check()
        from ...measure import classify
        from ...measure.features import as_manifest, videos_of

        classifier = classify.load_classifier(self.source, self.outside)
        table = videos_of(self.data, self.videos) if self.data else as_manifest(self.videos)
        predicted = classify.predict_videos(
            classifier,
            table,
            flow=self.flow,
            batch=self.batch,
            machine=self.machine(progress=len(table) > 8),
        )
        names = [r.video for r in table.rows]
        print(classifier)
        self.print_classes(predicted, names)
        for i, reason in predicted.dropped.items():
            print(f"unreadable: {names[i]}: {reason}", file=sys.stderr)
        if self.out:
            print(classify.write_predictions(self.out, predicted, names))

    def check(self) -> None:
        "Refuse what cannot be read or written. `ValueError`."
        if not self.source.exists():
            raise path_missing(
                self.source,
                "name a run that was fine-tuned or probed, or its classifier.safetensors",
            )
        if not (self.source / "classifier.safetensors").exists():
            read_card(self.source)
        if self.data is None:
            for video in self.videos:
                if not video.exists():
                    raise path_missing(video, "name a video")
        check_manifest(self.data)
        self.check_files(self.out)
        if not self.videos and self.data is None:
            raise Mistake(f"{self.source}: no video was named; give files, or a folder with --data")

    def print_classes(
        self,
        predicted: Any,  # of `measure.classify.predict_videos`
        names: list[str],  # of all videos
    ) -> None:
        "Print the most probable classes of each video."
        rows = predicted.row.tolist()
        width = max(len(names[row]) for row in rows)
        for row, p in zip(rows, predicted.p):
            best = p.argsort(descending=True, stable=True)[: self.top].tolist()
            shares = [f"{predicted.classes[c]} {100 * p[c]:.1f} %" for c in best]
            print(f"{names[row]:{width}}", *shares, sep="  ")


class Convert(WritingOptions):
    """Turn a run into a released file, a released file into a run, either into an encoder to share,
    or an encoder or classifier into a program that runs without this library.
    """

    # run folder or released file; of a program also a classifier.safetensors, hf:NAME, timm:NAME,
    # torchvision:NAME, published:efficientnet-lite0
    source: Path = word("IN")
    # .tar, .pth: released; .safetensors: encoder; .onnx, .pt2 (torch.export): a program, and .json
    # beside it; else folder; new or written by this
    out: Path = word("OUT")
    # manifest: the folder becomes a run, that pretrain --resume goes on with
    data: Path | None = None
    recipe: str | None = None  # of that run; none: the one that the file carries
    set: tuple[str, ...] = ()  # fields of that recipe to change, such as batch=16
    # of a released file that does not say it
    view: Literal["rgb", "flow", "residual"] | None = None
    optimizer: bool = True  # write its state as well
    device: str = "cpu"  # where the run is tried

    writer: ClassVar[str] = "convert"

    def run(self):
        self.check()
        if self.out.suffix in PROGRAMS:
            from ..programs import write_program

            print(write_program(self.source, self.out), self.out, sep="\n")
            print(self.out.with_suffix(".json"))
            return
        recipe = override(find(self.recipe), **changes(self.set)) if self.recipe else None
        from ..convert import convert
        from ...runs.released import load_released

        if self.data is None:
            contents = convert(self.source, self.out, self.view, self.optimizer)
        else:
            from ...runs.pretraining import import_released
            from ...training.machine import Machine

            machine = Machine(self.device, workers=0, progress=False)
            import_released(self.source, self.data, self.out, recipe, self.view, machine)
            contents = str(load_released(self.source, self.view))
        if contents:
            print(contents)
        print(self.out)

    def check(self) -> None:
        "Refuse what cannot be read or written, and options that do not go together. `ValueError`."
        program = self.out.suffix in PROGRAMS
        if not self.source.exists() and not (program and of_hub(self.source)):
            raise path_missing(self.source, "name a run folder or a released file")
        if self.source.is_dir():
            expect_run(self.source, tuned=program or self.out.suffix in RELEASED)
        self.check_out()
        if program:
            self.refuse_ignored()
            return
        check_manifest(self.data)
        if self.set and not self.recipe:
            raise Mistake("--set changes a recipe: name it with --recipe")
        if self.recipe and not self.data:
            raise Mistake("--recipe makes a run, and a run needs --data: name the manifest")
        if self.data and self.source.is_dir():
            raise Mistake(f"{self.source}: is a run already; leave out --data")

    def refuse_ignored(self) -> None:
        "Refuse options that a program has not, and files that are no encoder. Mistake."
        for name in ("data", "recipe", "set", "view"):
            if getattr(self, name) != getattr(Convert, name):
                raise Mistake(f"{self.out}: a program is made without --{name}; leave it out")
        if self.source.is_file() and self.source.suffix != ".safetensors":
            raise Mistake(
                f"{self.source}: is no encoder; name a run, its encoder.safetensors or its "
                "classifier.safetensors (of a released file: convert it to .safetensors first)"
            )

    def check_out(self) -> None:
        "Refuse to write over a run or a file of somebody. PathError."
        if self.out.suffix in PROGRAMS:
            self.check_files(self.out, self.out.with_suffix(".json"))
        elif self.data:
            expect_run_folder(self.out)
        elif self.out.suffix in (*RELEASED, ".safetensors"):
            self.check_files(self.out)
        else:
            self.refuse_other_files()
            expect_no_run(self.out)
            names = ("config.json", "model.safetensors", "README.md")
            self.check_files(*(self.out / name for name in names))

    def refuse_other_files(self) -> None:
        "Refuse a new folder that has the name of a file, such as encoder.tflite. Mistake."
        ending = self.out.suffix
        if ending[1:].isalpha() and not self.out.exists():
            known = ", ".join((*PROGRAMS, *RELEASED, ".safetensors"))
            raise Mistake(
                f"{self.out}: no file with the ending {ending} is made; take one of {known}, or no "
                "ending for a folder"
            )
