"""`vmem eval run`, `tables` and `show`: whole evaluations, from plan to report."""

import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from jobs.evaluation.records import Stage
from vmem.datasets import named_folders
from vmem.errors import InputError
from vmem.show import errors, print_line, print_note

if TYPE_CHECKING:
    from jobs.evaluation.plan import Plan
    from jobs.evaluation.progress import SoFar
    from jobs.evaluation.run_folder import RunFolder

SPEED_S = 120.0
"""Seconds over which the speed is taken."""
LINE_S = 60.0
"""Seconds between two lines where no bar can be shown."""

Data = Annotated[
    list[str] | None,
    typer.Option("--data", help="NAME=FOLDER of a benchmark; may be repeated."),
]


def run(
    plan: Annotated[str, typer.Option("--plan", help="A file, or a name in configs/benchmarks.")],
    out: Annotated[Path, typer.Option("--out", help="The run's folder; an old one goes on.")],
    data: Data = None,
    system: Annotated[
        list[str] | None,
        typer.Option("--system", help="Of configs/systems, not the plan's; may be repeated."),
    ] = None,
    stage: Annotated[
        list[Stage] | None,
        typer.Option("--stage", help="Only this stage; may be repeated. All by default."),
    ] = None,
    address: Annotated[
        str | None, typer.Option("--address", help="A running Ray cluster; else one starts here.")
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Ask again for what ended as an error.")
    ] = False,
) -> None:
    """Answer, judge, test and tabulate; a run that was cut off goes on, and pays nothing twice."""
    with _interruptible(out):
        # Ray and scipy take seconds to import: only who evaluates waits for them.
        from jobs.answer import reopen_failed
        from jobs.evaluation.manifest import open_manifest
        from jobs.evaluation.plan import load_plan
        from jobs.evaluation.run_folder import RunFolder

        folders, stages = named_folders(data or []), stage or list(Stage)
        chosen, folder = load_plan(plan, folders, system or []), RunFolder(out)
        with folder.held("run"):
            open_manifest(chosen, folder)
            if Stage.ANSWER in stages and retry_failed:
                _say_reopened(folder, reopen_failed(chosen, folder), "questions")
            if Stage.ANSWER in stages or Stage.JUDGE in stages:
                _run_drivers(stages, chosen, folder, address, retry_failed=retry_failed)
            _summarise(stages, chosen, folder, folders)


def _say_reopened(folder: "RunFolder", count: int, what: str) -> None:
    """Say what is asked again; figures that were made of what it takes the place of are gone."""
    from jobs.significance import forget_statistics

    if count:
        forget_statistics(folder)
        print_note(f"{count:,} {what} are asked again")


def _run_drivers(
    stages: Sequence[Stage],
    plan: "Plan",
    folder: "RunFolder",
    address: str | None,
    *,
    retry_failed: bool,
) -> None:
    from jobs.evaluation.evaluate import check_models, is_whole, lines_planned, on_ray, run_stage
    from jobs.evaluation.manifest import close_manifest, read_manifest
    from jobs.judge import reopen_judgements

    def reopen() -> None:  # answers may be others since they were judged
        if Stage.JUDGE in stages and is_whole(Stage.ANSWER, plan, folder):
            count = reopen_judgements(plan, folder, failed=retry_failed)
            _say_reopened(folder, count, "judgements")

    manifest, by_drivers = read_manifest(folder), (Stage.ANSWER, Stage.JUDGE)
    reopen()
    chosen = [stage for stage in by_drivers if stage in stages]
    if manifest["ended"] and all(is_whole(stage, plan, folder) for stage in chosen):
        return
    models = dict(manifest.get("models") or {})
    with on_ray(address):
        check_models(chosen, plan, folder.path)
        for stage in chosen:
            if stage is Stage.JUDGE:
                reopen()
            with _bar(stage, lines_planned(stage, plan, folder)) as told:
                models |= run_stage(stage, plan, folder.path, told)
    close_manifest(folder, models)


def _summarise(
    stages: Sequence[Stage], plan: "Plan", folder: "RunFolder", data: Mapping[str, Path]
) -> None:
    from jobs.evaluation.manifest import read_manifest
    from jobs.significance import summarise_run
    from jobs.tables import REPORT, write_tables

    if Stage.STATISTICS in stages:
        with errors.status("statistics"):
            summarise_run(folder, read_manifest(folder), plan.seed, plan.draws)
    if Stage.TABLES in stages:
        report = folder.path / REPORT
        print_line(str(write_tables([folder], folder.path / "tables", data, report)[0]))


def tables(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Runs with statistics.")],
    out: Annotated[Path, typer.Option("--out", help="Where the tables go.")],
    data: Data = None,
) -> None:
    """Every table of the paper, ours beside the published ones, and the report; runs as one."""
    from jobs.evaluation.run_folder import RunFolder
    from jobs.tables import REPORT, write_tables

    folders = [RunFolder(existing_run(path)) for path in runs]
    print_line(str(write_tables(folders, out, named_folders(data or []), out / REPORT)[0]))


class _Told:
    """Shows how far a stage is; where no terminal shows a bar, a line now and then does."""

    def __init__(self, progress: Progress, stage: str, total: int) -> None:
        self._progress, self._stage, self._total = progress, stage, total
        self._task: TaskID | None = None
        self._said_at = time.monotonic()

    def __call__(self, so_far: "SoFar") -> None:
        """Show the lines written and the calls made."""
        spent = so_far.spent
        said = (
            f"{so_far.failed:,} failed · {spent.calls:,} calls ({spent.failed:,} failed),"
            f" {spent.tokens:,} tokens"
        )
        if self._task is None:  # what was there before this run is no speed
            self._task = self._progress.add_task(
                self._stage, total=self._total, completed=so_far.lines, said=said
            )
        self._progress.update(self._task, completed=so_far.lines, said=said)
        if not errors.is_terminal and time.monotonic() > self._said_at + LINE_S:
            self._said_at = time.monotonic()
            print_note(f"{self._stage} {so_far.lines:,}/{self._total:,} · {said}")


class _Rate(ProgressColumn):
    """Lines a second, or a minute where that is less than one."""

    def render(self, task: Task) -> Text:
        """How fast it goes on."""
        if not task.speed:
            return Text("–/s")
        fast = task.speed >= 1
        return Text(f"{task.speed:.1f}/s" if fast else f"{60 * task.speed:.1f}/min")


@contextmanager
def _bar(stage: str, total: int) -> Iterator[_Told]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(20),
        MofNCompleteColumn(),
        _Rate(),
        TextColumn("{task.fields[said]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=errors, speed_estimate_period=SPEED_S) as progress:
        yield _Told(progress, stage, total)


@contextmanager
def _interruptible(out: Path) -> Iterator[None]:
    """Ctrl-C, and SIGTERM while Ray runs, end with a sentence that says how to go on."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stopped:
        command = shlex.join(["vmem", *sys.argv[1:]])
        print_note(f"stopped: {out} keeps what is done, and this goes on with it: {command}")
        by = SIGINT if isinstance(stopped, KeyboardInterrupt) else SIGTERM
        raise typer.Exit(128 + by) from None


def existing_run(path: Path) -> Path:
    """A run's folder.

    Raises:
        InputError: There is none.
    """
    if not path.is_dir():
        raise InputError(f"{path} is no run: it does not exist")
    return path
