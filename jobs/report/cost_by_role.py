"""Our table of what all calls of language models took, by what they were for."""

from collections.abc import Iterator, Mapping
from typing import Any

from jobs.report.merged_runs import Cell, MergedRuns
from jobs.report.table_formats import Entry, Grid, Line

COLUMNS = ("calls", "failed", "prompt_tokens", "completion_tokens", "seconds")


def roles_grid(merged: MergedRuns) -> Grid:
    """Each cell's cost of building, answering and judging, by role."""
    lines = [
        Line(
            keys=(cell["benchmark"], cell["title"], cell["backbone"]),
            figure=figure,
            entries=tuple(Entry(value=cost[column], digits=1) for column in COLUMNS),
        )
        for cell in merged.cells.values()
        for figure, cost in _costs(cell)
    ]
    return Grid(
        name="costs-by-role",
        title="Calls of language models by what they were for",
        keys=("benchmark", "system", "backbone"),
        columns=COLUMNS,
        lines=tuple(lines),
        caption=(
            "Of all questions, and of all judgings of them. A reply that was kept counts as when"
            " its call was made, so that a rerun shows what the figures cost once; ledger.jsonl"
            " tells which calls were made in which run.",
        ),
    )


def _costs(cell: Cell) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for phase in ("build", "answer"):
        for role, cost in cell["cost"][phase]["roles"].items():
            yield f"{phase}: {role}", cost
    for judge, cost in cell["cost"]["judge"].items():
        yield f"judge: {judge}", cost
