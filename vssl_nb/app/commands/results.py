"Commands about results and papers: demo, claims, reproduce, report."

from pathlib import Path
from typing import ClassVar, Literal

from ...fields import Seed
from ...paths import expect_manifest, path_missing
from ..launch import is_alone
from ..options import Command, Mistake, word
from .option_groups import (
    MachineOptions,
    WritingOptions,
    changes,
    check_launch,
    check_manifest,
    check_results,
)


class Demo(Command):
    "Write toy videos, co-train two views, retrieve, and print one table: what `make demo` does."

    out: Path = Path("runs/demo")  # where everything goes
    seed: Seed = 0  # of videos, weights and order

    def run(self):
        check_results(self.out)
        from ..demo import demo

        demo(self.out, seed=self.seed)


class Claims(Command):
    "Print what became of the claims of the papers here: readings, worlds, verdicts and intervals."

    paper: str | None = None  # only those of one text, such as CPR
    ledger: Path | None = None  # .json file; none: results/claims.json of the clone
    form: Literal["text", "markdown"] = "text"  # of what is printed

    def run(self):
        from ...papers import ledger

        claims = ledger.CLAIMS.values()
        paper = (self.paper or "").lower()
        numbers = [c.number for c in claims if paper in ("", c.paper.lower())]
        if not numbers:
            papers = ", ".join(dict.fromkeys(c.paper for c in claims))
            raise Mistake(f"--paper {self.paper}: no claim is of that paper; there are {papers}")
        file = self.ledger or ledger.LEDGER
        if self.form == "text":
            text = ledger.plain_text(file, numbers)
        else:
            text = ledger.markdown_table(file, numbers, ledger.SHORT_COLUMNS)
        print(text, ledger.counted_verdicts(file), sep="\n\n")


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
        if self.list or not self.name:
            self.print_list()
            return
        data = None if self.data == "toy" else self.data
        check_launch()
        if data is not None:
            expect_manifest(data)
        check_results(self.out)
        check_manifest(data)
        from ...papers.reproduce import find_rows, reproduce

        rows = find_rows(self.name)[1]  # refuses a name that there is not
        if not self.data:
            raise Mistake(
                f"{self.name}: say on what: --data toy, for the small version, or the manifest of "
                f"{rows[0].full.made().dataset}"
            )
        if not is_alone():
            raise Mistake(
                "reproduce: start it without torchrun; vssl-nb pretrain takes many processes"
            )
        text = reproduce(
            self.name,
            self.data,
            self.out,
            self.seeds,
            self.machine(),
            changes(self.set),
            self.size,
            self.dry_run,
        )
        print(text)

    def print_list(self) -> None:
        "Print the tables, or how each of their rows is measured."
        from ...papers.reproduce import list_rows, list_tables

        lines = list_rows(self.name) if self.list else list_tables(self.out)
        print(*lines, sep="\n")


class Report(WritingOptions):
    """Collect the results of runs into a table beside the published numbers, and a self-contained
    page.
    """

    folder: Path = word("FOLDER")  # a run folder, or a folder of run folders
    form: Literal["text", "markdown", "html", "csv", "latex"] = "text"  # of the printed table
    # the page, .html, new or written by this; none: report.html in that folder
    out: Path | None = None

    writer: ClassVar[str] = "report"

    def run(self):
        if not self.folder.exists():
            raise path_missing(
                self.folder, "name a run folder, such as runs/mine, or a folder of them"
            )
        inside = self.folder / "report.html" if self.folder.is_dir() else None
        self.check_files(self.out or inside)
        from ...papers.report import page, read_runs, read_verdicts, sheet, summary

        path = page(self.folder, self.out)
        rows = read_runs(self.folder)
        if self.form == "text":
            for run, text in read_verdicts(self.folder).items():
                print(f"{run}: {text}\n")
        if rows:
            print(sheet(summary(rows), self.form))
        print(path)
