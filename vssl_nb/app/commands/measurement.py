"""Commands that measure what a run has learned: retrieve, extract, probe, mine, verdict,
uncertainty.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from ...fields import Count, Index, Positive, Seed
from ...methods.recipes import RECIPES, find
from ...names import did_you_mean, of_hub
from ...paths import expect_writable, path_missing
from ..launch import is_first
from ..options import Mistake, word
from .option_groups import (
    EncoderOptions,
    EncodingOptions,
    ReadingOptions,
    RunOptions,
    WritingOptions,
    changes,
    check_launch,
    check_manifest,
    check_results,
    check_run,
    print_results,
    results_folder,
)
from .training import how_to_predict


class Retrieve(EncodingOptions):
    "Measure an encoder: is a test video's nearest training video of its class?"

    # run folder; released file (.tar, .pth); recipe (untrained); package.module:name of an encoder;
    # hf:NAME, hf:FOLDER (transformers), timm:NAME, timm:FOLDER, torchvision:NAME or
    # published:efficientnet-lite0, of pictures also NAME@spread and NAME@both; or a file of
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
    # also show chance, colours, motion by hand, both together and an untrained encoder
    baselines: bool = True
    # toy videos: does the encoder go by the scene, or by the motion, where the two disagree?
    conflict: bool = False

    def run(self):
        path = Path(self.source)
        self.check_source(path)
        self.refuse_ignored(path)
        home = f"untrained-{path}" if self.source in RECIPES else path
        out = self.out or results_folder(home, self.name)
        self.check_folders(path, out)
        fields = changes(self.set)
        if self.dtype != "float32":
            fields["dtype"] = self.dtype
        if self.conflict:
            self.measure_conflict(fields, out)
            return
        if path.is_dir():
            rows = self.measure_run(fields, out)
        elif self.data is None:
            raise Mistake(f"{self.source}: knows no data; name a manifest with --data")
        else:
            rows = self.measure_other(fields, out)
        print_results(rows, out / "results.json")

    def check_source(
        self,
        path: Path,  # of the source
    ) -> None:
        "Refuse what is neither a run nor a file, a recipe or an encoder. `ValueError`."
        if path.is_dir():
            check_run(path)
            return
        if path.name == "encoder.safetensors":
            raise Mistake(
                f"{path}: is an encoder without its recipe; name the run folder that it lies in, "
                f"{path.parent}"
            )
        if path.is_file() or self.source in RECIPES or ":" in self.source:
            return
        if path.parent != Path("."):
            raise path_missing(path, "name a run folder, such as runs/mine, or a recipe")
        folders = [p.name for p in Path().glob("*") if p.is_dir()]
        near = did_you_mean(self.source, [*RECIPES, *folders])
        remedy = f"; {near}" if near.startswith("did") else ""
        raise Mistake(
            f"{path}: is no run folder, no recipe, no file of features and no package.module:"
            f"name of an encoder, seen from {Path.cwd()}{remedy}"
        )

    def refuse_ignored(
        self,
        path: Path,  # of the source
    ) -> None:
        "Refuse options that would be ignored. Mistake."
        if self.conflict:
            kind = "a conflict"
            ignored = ["view", "name", "out", "second", "splits"]
        elif path.is_dir():
            kind = "a run"
            ignored = ["view", "name"]
        elif self.source in RECIPES:
            kind = "a recipe, without training,"
            ignored = ["view", "name", "second", "protocol", "set", "dtype"]
        else:
            kind = "what is no run"
            ignored = ["second", "view"] if of_hub(self.source) else ["second"]
        for name in ignored:
            if getattr(self, name) != getattr(Retrieve, name):
                raise Mistake(f"{self.source}: {kind} is measured without --{name}; leave it out")

    def check_folders(
        self,
        path: Path,  # of the source
        out: Path,  # for results
    ) -> None:
        "Refuse folders that cannot be read or written. `ValueError`."
        if self.second:
            check_run(self.second)
        if out == path:
            expect_writable(out, folder=True)
        else:
            check_results(out)
        check_manifest(self.data)
        if self.second and not self.out:
            expect_writable(self.second, folder=True)

    def measure_run(
        self,
        fields: Mapping[str, Any],  # to change in the protocol
        out: Path,
    ) -> list[dict[str, Any]]:  # rows of results.json
        "Measure a run, alone or with a second stream, beside its baselines."
        from ...runs import evaluation

        machine = self.machine()
        t = evaluation.open_trained(self.source, self.data, out)
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
            first = rows[0]
            print(
                f"{first['queries']} test videos against {first['gallery']} training videos, split "
                f"{first['split']}; {len(first['dropped'])} left out"
            )
        if not t.card["finished"]:
            step = t.about["step"]
            print(f"this run is not finished: the encoder is from step {step}", file=sys.stderr)

        plain = self.protocol == "clean" and not (self.splits or self.second or fields)
        if not (self.baselines and plain):
            return rows
        beside = evaluation.baselines(t.recipe, t.manifest, batch=self.batch, machine=machine)
        evaluation.keep_results(out, beside)
        return beside + rows

    def measure_conflict(
        self,
        fields: Mapping[str, Any],  # to change in the protocol
        out: Path,
    ) -> None:
        "Print what an encoder goes by, and keep it as conflict.json."
        if not (Path(self.source).is_dir() or of_hub(self.source)):
            raise Mistake(f"{self.source}: --conflict measures a run folder or hf:NAME; name one")
        from ...measure.health import conflict
        from ...measure.windows import refuse_repeated_clips
        from ...papers.report import table
        from ...runs.evaluation import open_trained
        from ...training.run_folder import write_json

        t = open_trained(self.source, self.data, out)
        p = t.protocol(self.protocol, **fields)
        refuse_repeated_clips(p, t.manifest.rows)
        shares = conflict(
            t.encoder, t.manifest, t.split, t.view, p, self.machine(), batch=self.batch, **t.views
        )

        def percent(*values):
            return " to ".join(f"{100 * v:.1f}" for v in values)

        rows = [
            {
                "nearest training video has the same": name,
                "% of queries": percent(share),
                "95 %": percent(*interval),
                "by chance": percent(chance),
            }
            for name, (share, *interval, chance) in shares.items()
        ]
        row = t.row("conflict", t.split, protocol=asdict(p), **shares)
        kept = write_json(out / "conflict.json", row)
        columns = {heading: heading for heading in rows[0]}
        print(p, table(rows, "text", columns), kept, sep="\n")

    def measure_other(
        self,
        fields: Mapping[str, Any],  # to change in the protocol
        out: Path,
    ) -> list[dict[str, Any]]:  # rows of results.json
        "Measure an encoder or features that are no run of ours."
        from ...runs import evaluation
        from ...runs.checks import errors_of

        options: dict[str, Any] = {"out": out, "batch": self.batch, "machine": self.machine()}
        if self.source in RECIPES:
            return evaluation.baselines(find(self.source), self.data, self.splits, **options)
        name = self.name
        encoder: Any = self.source
        if not (Path(self.source).is_file() or of_hub(self.source)):
            name = name or self.source
            with errors_of(
                f"{self.source}: name an nn.Module, or what makes one without arguments; this one"
            ):
                encoder = evaluation.load_encoder(self.source)
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
    # also write them with the names of the videos, .npz, .csv or .parquet; or a folder
    out: Path | None = None

    writer: ClassVar[str] = "extract"

    def run(self):
        table = self.out if self.out and self.out.suffix and not self.out.is_dir() else None
        store = self.check_store(table)
        from ...distributed import start
        from ...measure.features import extract
        from ...runs.evaluation import open_trained, refuse_large_clips

        t = open_trained(self.folder, self.data)
        p = t.protocol(self.protocol, dtype=self.dtype)
        files = {"query": table}
        # of a protocol that treats the gallery in another way, a second file
        if p.gallery != "alike":
            files["gallery"] = table and table.with_stem(f"{table.stem}-gallery")
        self.check_files(*files.values())
        refuse_large_clips(t.encoder, p, t.about, self.batch, self.machine().place())
        with start():
            for role, file in files.items():
                features = extract(
                    t.encoder,
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
                if is_first():
                    self.report(features, t.manifest, store, file)

    def check_store(
        self,
        table: Path | None,  # a file for the features
    ) -> Path | None:  # the folder that keeps the features; None: nothing does
        "Refuse folders and files that cannot be read or written. `ValueError`."
        usual = results_folder(self.folder)
        home = usual if table else self.out or usual
        # with a table the features of a run that is read only need no other place
        store = None if table and not os.access(home, os.W_OK) else home / "features"
        check_launch()
        if not of_hub(self.folder):
            check_run(self.folder)
        if home != usual:
            check_results(home)
        elif store:
            expect_writable(store, folder=True)
        check_manifest(self.data)
        self.check_files(table)
        return store

    def report(
        self,
        features: Any,  # of `measure.features.extract`
        manifest: Any,  # whose videos they are of
        store: Path | None,  # that keeps them
        file: Path | None,  # to write them to
    ) -> None:
        "Print what was computed, and write it as a table where one is named."
        print(features)
        if store:
            print(store)
        if not file:
            return
        from ...measure.feature_files import write_video_features

        rows = [manifest.rows[i] for i in features.row.tolist()]
        videos = [r.video for r in rows]
        labels = [r.label for r in rows]
        print(write_video_features(file, videos, labels, features.x.numpy()))


class ProbeCommand(EncoderOptions):
    """A linear classifier on the frozen features of a run, or one that attends to the tokens of its
    encoder.
    """

    # clean, coclr: linear, ours and as released; attentive, vjepa: attends to the tokens
    preset: Literal["clean_probe", "coclr_probe", "attentive_probe", "vjepa_probe"] = "clean_probe"
    # none: that of the recipe; several: each, and their mean
    splits: tuple[Annotated[int, "[1, 3]"], ...] = ()
    # how strength or epoch are chosen; 'test' is the official mode, which looks at the test videos
    selection: Literal["validation", "last", "test"] | None = None
    seed: Seed = 0  # of the held-out sources
    out: Path | None = None  # folder for classifier, results and features; none: that of the run

    def run(self):
        out = check_measurement(self.folder, self.data, self.out)
        from ...runs import evaluation

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
        lines: list[Any] = [out / "results.json"]
        if any("classifier" in row for row in rows):
            lines.append(how_to_predict(out))
        print_results(rows, *lines)


def check_measurement(
    source: Path,  # run folder, or the name of an encoder
    data: Path | None,  # manifest; None: that of the run
    out: Path | None,  # folder for results; None: that of the run
) -> Path:  # the folder for results
    "Refuse what cannot be read or written. `ValueError`."
    if not of_hub(source):
        check_run(source)
    folder = out or results_folder(source)
    if out:
        check_results(out)
    else:
        expect_writable(folder, folder=True)
    check_manifest(data)
    return folder


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

    writer: ClassVar[str] = "mine"

    def run(self):
        check_run(self.folder)
        check_manifest(self.data)
        if self.mining:
            check_run(self.mining)
        self.check_files(self.out)
        from ...papers.report import table
        from ...runs import cotraining
        from ...training.run_folder import write_json

        networks, labels = cotraining.mining_networks(
            self.folder, self.mining, self.data, self.machine()
        )
        usual = ("topk", "cascade") if len(networks) > 1 else ("topk",)
        miners = self.miners or usual
        qualities = cotraining.compare_miners(
            networks, labels, miners, self.topk, memory=self.memory, unit=self.unit
        )
        rows = cotraining.quality_rows(qualities)
        columns = {k: heading for k, heading in cotraining.QUALITY_COLUMNS.items() if k in rows[-1]}
        views = " mines for ".join(qualities[0].views)
        print(f"{qualities[0].candidates} candidates; {views}")
        print(table(rows, "text", columns))
        if self.out:
            print(write_json(self.out, [asdict(q) for q in qualities]))


class VerdictCommand(RunOptions):
    """Say in plain words whether a run has learned, has collapsed, and looks at motion; needs no
    labels.
    """

    # run folder; or hf:NAME, timm:NAME, torchvision:NAME, published:efficientnet-lite0 (of
    # pictures also NAME@spread, NAME@both), or a folder for NAME
    folder: Path = word("RUN")
    videos: Annotated[int, "[4, inf)"] = 128  # training videos to look at, at most
    seconds: Positive = 120.0  # then no further ones are looked at, once there are 32
    # folder for verdict.txt, verdict.json and a picture; none: that of the run
    out: Path | None = None

    def run(self):
        out = check_measurement(self.folder, self.data, self.out)
        from ..verdict import give_verdict

        verdict = give_verdict(
            self.folder,
            self.data,
            self.machine(),
            self.videos,
            self.seconds,
            out if of_hub(self.folder) else self.out,
        )
        print(verdict, out / "verdict.txt", sep="\n")


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

    writer: ClassVar[str] = "uncertainty"

    def run(self):
        check_run(self.folder)
        check_manifest(self.data)
        self.check_files(self.out)
        from ...measure import ranking
        from ...runs.evaluation import open_trained

        data = open_trained(self.folder).manifest if self.data is None else self.data
        features, videos = ranking.folder_gaussians(
            self.folder, data, self.clips, self.of, self.batch, self.machine()
        )
        ranked = ranking.rank_videos(features, videos)
        print(ranking.ranking_text(ranked, self.show))
        lost = {videos.rows[r].video: reason for r, reason in features.dropped.items()}
        for video, reason in lost.items():
            print(f"unreadable: {video}: {reason}", file=sys.stderr)
        if self.out:
            print(ranking.write_ranking(self.out, ranked, lost))
