"""`vmem eval show`: single questions of a run, with all that led to their scores."""

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from vmem.cli_data import AsJson
from vmem.errors import InputError
from vmem.show import console, errors, print_json, print_line

if TYPE_CHECKING:
    from jobs.report.questions import SeenQuestion

LIMIT = 50
"""Questions printed where none is said; as JSON all are."""
STYLES = {
    "failed": "bold red",
    "empty answer": "bold red",
    "not judged": "bold red",
    "wrong": "red",
    "evidence missed": "red",
    "partly right": "yellow",
    "right": "green",
    "evidence found": "green",
}


def show(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run's folder; an unfinished one will do.")
    ],
    cell: Annotated[
        str | None, typer.Option("--cell", help="Only BENCHMARK.SYSTEM.BACKBONE.")
    ] = None,
    benchmark: Annotated[str | None, typer.Option("--benchmark", help="Only this one.")] = None,
    system: Annotated[str | None, typer.Option("--system", help="Only this one.")] = None,
    backbone: Annotated[str | None, typer.Option("--backbone", help="Only this one.")] = None,
    category: Annotated[str | None, typer.Option("--category", help="Only this one.")] = None,
    question: Annotated[
        str | None, typer.Option("--question", help="The question of this id, in full.")
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="What failed, is empty, or could not be judged.")
    ] = False,
    wrong: Annotated[
        bool, typer.Option("--wrong", help="Wrong answers; without a judge, missed evidence.")
    ] = False,
    disagree: Annotated[
        bool, typer.Option("--disagree", help="Over what judges, their kinds or systems differ.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="All of each, not one line.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help=f"At most so many; {LIMIT} by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Single questions: what was asked, found, answered and judged.

    --failed, --wrong and --disagree add up; all other options narrow down.
    """
    # What reads a run imports benchmarks and metrics: only who looks at one waits for them.
    from jobs.evaluation.run_folder import RunFolder
    from jobs.report.question_files import read_questions
    from jobs.report.question_view import as_dict
    from jobs.report.questions import Wanted

    if not run.is_dir():
        raise InputError(f"{run} is no run: it does not exist or is no folder")
    wanted = Wanted(
        cell=cell,
        benchmark=benchmark,
        system=system,
        backbone=backbone,
        category=category,
        question=question,
        failed=failed,
        wrong=wrong,
        disagree=disagree,
    )
    most = limit or (None if as_json else LIMIT)
    found = read_questions(RunFolder(run), wanted)
    shown = list(islice(found, most))
    if as_json:
        print_json([as_dict(seen) for seen in shown])
        return
    if not shown:
        print_line(f"{run}: no question is of this kind.")
        return
    if full or question is not None:
        for seen in shown:
            _print_full(seen)
    else:
        _print_lines(shown)
    if more := sum(1 for _ in found):
        errors.print(f"{more:,} more are left out: give --limit, or narrow down", style="dim")


def _print_lines(shown: Sequence["SeenQuestion"]) -> None:
    from jobs.report.question_view import score_line, shortened, tokens_of

    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    cells = Counter(str(seen.cell) for seen in shown)
    columns = ("question", "category", "ended", "score", "tokens", "asked → answered")
    for name in ("cell", *columns) if len(cells) > 1 else columns:
        right = name in ("score", "tokens")
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for seen in shown:
        record = seen.record
        differ = " ≠" if seen.disagreements else ""
        said = f"{shortened(record.question, 90)} → {shortened(record.error or record.answer, 90)}"
        row = [
            Text(shortened(record.question_id, 60)),
            Text(shortened(record.category, 30)),
            Text(seen.state.value + differ, style=STYLES.get(seen.state.value, "dim")),
            Text(score_line(seen)),
            Text(f"{tokens_of(record):,}"),
            Text(said),
        ]
        table.add_row(*([Text(str(seen.cell)), *row] if len(cells) > 1 else row))
    if len(cells) == 1:
        print_line(next(iter(cells)))
    console.print(table)
    if any(seen.disagreements for seen in shown):
        console.print(Text("≠ judges, their kinds, or systems disagree", style="dim"))


def _print_full(seen: "SeenQuestion") -> None:
    from jobs.report.question_view import facts, shortened

    record = seen.record
    console.rule(
        Text.assemble(
            (shortened(record.question_id, 80), "bold"),
            f"  {shortened(record.category, 40)}  {seen.cell}  ",
            (seen.state.value, STYLES.get(seen.state.value, "dim")),
        ),
        align="left",
    )
    grid = Table.grid(padding=(0, 2))
    grid.add_column(overflow="fold", max_width=24)
    grid.add_column(overflow="fold")
    for name, text in facts(seen):
        grid.add_row(Text(name, style="bold"), Text(text))
    console.print(grid)
