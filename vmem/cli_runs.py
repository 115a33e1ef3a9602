"""`vmem eval run`, `tables` and `show`: whole evaluations, from plan to report."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from jobs.evaluation.records import Stage
from vmem.errors import InputError
from vmem.llm.ledger import Spent
from vmem.show import errors, print_line

Data = Annotated[
    list[str] | None,
    typer.Option("--data", help="NAME=FOLDER of a benchmark; may be repeated."),
]


def run(
    plan: Annotated[str, typer.Option("--plan", help="A file, or a name in configs/benchmarks.")],
    out: Annotated[Path, typer.Option("--out", help="The run's folder; an old one goes on.")],
    data: Data = None,
    stage: Annotated[
        list[Stage] | None,
        typer.Option("--stage", help="Only this stage; may be repeated. All by default."),
    ] = None,
    address: Annotated[
        str | None, typer.Option("--address", help="A running Ray cluster; else one starts here.")
    ] = None,
) -> None:
    """Answer, judge, test and tabulate; a run that was cut off goes on, and pays nothing twice."""
    # Ray and scipy take seconds to import: only who evaluates waits for them.
    from jobs.evaluation.evaluate import lines_planned, on_ray, run_stage
    from jobs.evaluation.manifest import close_manifest, open_manifest, read_manifest
    from jobs.evaluation.plan import load_plan
    from jobs.evaluation.run_folder import RunFolder
    from jobs.significance import summarise_run
    from jobs.tables import write_tables

    folders, stages = _folders(data or []), stage or list(Stage)
    chosen, folder = load_plan(plan, folders), RunFolder(out)
    manifest = open_manifest(chosen, folder)
    by_drivers = [each for each in (Stage.ANSWER, Stage.JUDGE) if each in stages]
    if by_drivers:
        models = dict(manifest.get("models") or {})
        with on_ray(address):
            for each in by_drivers:
                with _bar(each, lines_planned(each, chosen, folder)) as told:
                    models |= run_stage(each, chosen, out, told)
        close_manifest(folder, models)
    if Stage.STATISTICS in stages:
        with errors.status("statistics"):
            summarise_run(folder, read_manifest(folder), chosen.seed, chosen.draws)
    if Stage.TABLES in stages:
        print_line(str(write_tables([folder], out / "tables", folders)[0]))


def tables(
    runs: Annotated[list[Path], typer.Argument(help="Runs with statistics.")],
    out: Annotated[Path, typer.Option("--out", help="Where the tables go.")],
    data: Data = None,
) -> None:
    """Every table of the paper, ours beside the published figures; several runs as one."""
    from jobs.evaluation.run_folder import RunFolder
    from jobs.tables import write_tables

    folders = [RunFolder(_existing(path)) for path in runs]
    print_line(str(write_tables(folders, out, _folders(data or []))[0]))


class _Told:
    """Passes on how far a stage is."""

    def __init__(self, progress: Progress, stage: str, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task(stage, total=total, spent="")

    def __call__(self, lines: int, spent: Spent) -> None:
        """Show the lines written and the calls made."""
        said = f"{spent.calls:,} calls, {spent.failed:,} failed, {spent.tokens:,} tokens"
        self._progress.update(self._task, completed=lines, spent=said)


@contextmanager
def _bar(stage: str, total: int) -> Iterator[_Told]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[spent]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors) as progress:
        yield _Told(progress, stage, total)


def _folders(given: Sequence[str]) -> dict[str, Path]:
    folders = {}
    for each in given:
        name, equals, folder = each.partition("=")
        if not equals or not folder:
            raise InputError(f"--data {each}: give NAME=FOLDER, such as locomo=data/locomo")
        folders[name] = Path(folder)
    return folders


def _existing(path: Path) -> Path:
    if not path.is_dir():
        raise InputError(f"{path} is no run: it does not exist")
    return path
