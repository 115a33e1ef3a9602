"""Tables 4 and 8: what building a memory and answering cost, beside the published figures."""

from collections.abc import Mapping
from typing import Any

from jobs.report.captions import score_caption
from jobs.report.merged_runs import Cell, MergedRuns
from jobs.report.published import Places, PublishedTable
from jobs.report.score_entries import NOT_RUN, difference
from jobs.report.table_formats import Entry, Grid, Line

NUMBERS = (4, 8)
WALL = Entry(mark="in seconds.json")
NOTE = (
    "Our tokens and seconds are those of all model calls, kept replies counting as when they were"
    " made; seconds of this machine's own work differ from run to run and are in the run's"
    " seconds.json."
)


def cost_grid(table: PublishedTable, merged: MergedRuns, places: Places) -> Grid:
    """One of the tables of costs.

    Args:
        table: The table as published.
        merged: Our runs.
        places: Which system stands where.
    """
    own = [name for name in merged.systems() if places.own(name)]
    titles = [places.rows[name].title if name in places.rows else name for name in own]
    lines: list[Line] = []
    for row in table.rows:
        keys = table.keys_of(row)
        published = [_published(row, table.value(row, column)) for column in table.columns]
        blank = [Entry()] * len(own)
        lines.append(Line(keys=keys, figure="published", entries=(*published, *blank)))
        systems = [places.system(table.number, row, column) for column in table.columns]
        lines += _ours(table, row, [*systems, *own], merged)
    return table.grid(
        columns=(*table.columns, *titles),
        lines=tuple(lines),
        caption=(*score_caption(table, merged, places), NOTE),
    )


def cost_entry(cell: Cell | None, phase: str, metric: str) -> Entry:
    """One figure of a cell's cost; `phase` and `metric` are spelled as in the paper's table."""
    if cell is None:
        return NOT_RUN
    cost: Mapping[str, Any] = cell["cost"][phase]
    if phase == "build":
        if metric == "seconds":
            return WALL
        return Entry(value=cost["total"]["tokens"]) if cost["dialogues"] else NOT_RUN
    if not cell["answered_by_model"]:
        return Entry(mark="no model")
    per = cost["per_question"]
    if metric == "seconds per question":
        return Entry(value=per["seconds"], digits=2)
    return Entry(value=round(per["tokens"], 1), digits=1)


def _ours(
    table: PublishedTable,
    row: Mapping[str, Any],
    systems: list[str | None],
    merged: MergedRuns,
) -> list[Line]:
    keys = table.keys_of(row)
    benchmark = str(row.get("benchmark") or table.benchmark)
    published = table.backbone if table.number != 4 else None
    lines = []
    for backbone in merged.backbones(benchmark):
        if not merged.belongs(backbone, published):
            continue
        cells = [merged.cell(benchmark, name, backbone) for name in systems]
        entries = [cost_entry(cell, row["phase"], row["metric"]) for cell in cells]
        less = [Entry()] * len(entries)
        for index, column in enumerate(table.columns):
            less[index] = difference(entries[index], table.value(row, column))
        lines.append(Line(keys=keys, figure=f"ours: {backbone}", entries=tuple(entries)))
        lines.append(Line(keys=keys, figure=f"difference: {backbone}", entries=tuple(less)))
    return lines or [Line(keys=keys, figure="ours", entries=(NOT_RUN,) * len(systems))]


def _published(row: Mapping[str, Any], value: float | None) -> Entry:
    return Entry(value=value, digits=2 if "seconds" in row["metric"] else 0)
