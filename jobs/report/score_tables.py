"""Tables 1 to 3, 7 and 9 to 14: our scores beside the published ones."""

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.report.captions import score_caption
from jobs.report.evidence_lines import (
    NEEDS_MODEL,
    WITH_EVIDENCE,
    evidence_lines,
    evidence_notes,
    unrun_mark,
)
from jobs.report.merged_runs import PRIMARY_KIND, Cell, MergedRuns, Source
from jobs.report.published import Places, PublishedTable
from jobs.report.score_entries import (
    LEXICAL,
    NOT_RUN,
    Group,
    Measure,
    Row,
    averaged,
    difference,
    filled,
    score_entry,
)
from jobs.report.table_formats import NOTHING, Entry, Grid, Line

NUMBERS = (1, 2, 3, 7, 9, 10, 11, 12, 13, 14)
NOT_JUDGED = Entry(mark="not judged")
WITH_OWN_SYSTEMS = (1, 2, 7, 9, 10)
"""Tables that compare systems, and so have rows for those that the paper does not know."""


def score_grid(table: PublishedTable, merged: MergedRuns, places: Places) -> Grid:
    """One of the tables of scores.

    Args:
        table: The table as published.
        merged: Our runs.
        places: Which system stands where.
    """
    lines: list[Line] = []
    for row in (*table.rows, *_own_rows(table, merged, places)):
        lines += _lines(table, row, merged, places)
    return table.grid(
        lines=tuple(lines),
        caption=(*score_caption(table, merged, places), *evidence_notes(table, merged)),
    )


def judged_scores(cell: Cell, source: Source) -> Mapping[str, Any] | None:
    """What a judge made of a cell: its entry in `statistics.json`, or None."""
    for one in cell["judged"]:
        if (one["judge"], one["kind"], one["gold"]) == (source.judge, source.kind, source.gold):
            found: Mapping[str, Any] = one
            return found
    return None


def benchmark_of(table: PublishedTable, row: Row) -> str:
    """The benchmark that a row is about."""
    return str(row.get("benchmark") or table.benchmark)


def _own_rows(table: PublishedTable, merged: MergedRuns, places: Places) -> list[Row]:
    """Rows for systems of ours; a row for each metric and benchmark that the table tells apart."""
    if table.number not in WITH_OWN_SYSTEMS:
        return []
    rows = []
    for name in filter(places.own, merged.systems()):
        title = places.rows[name].title if name in places.rows else name
        others = [key for key in table.keys if key != "system"]
        for combination in dict.fromkeys(tuple(str(row[k]) for k in others) for row in table.rows):
            keys = dict(zip(others, combination, strict=True))
            own: Row = {**keys, "system": title, "own": name}
            if _sources(table, own, merged, [name]):
                rows.append(own)
    return rows


def _lines(table: PublishedTable, row: Row, merged: MergedRuns, places: Places) -> list[Line]:
    own = "own" in row
    # A system of ours stands beside no backbone of the paper's: its figures name their own.
    keys = table.keys_of({**row, "backbone": NOTHING} if own else row)
    published = tuple(Entry(value=table.value(row, column)) for column in table.columns)
    lines = [] if own else [Line(keys=keys, figure="published", entries=published)]
    systems = {
        column: row.get("own") or places.system(table.number, row, column)
        for column in table.columns
    }
    named = [name for name in systems.values() if name]
    benchmark = benchmark_of(table, row)
    sources = _sources(table, row, merged, named)
    for source in sources:
        entries = filled(table, row, systems, _measured(table, row, merged, source))
        lines.append(Line(keys=keys, figure=_said("ours", source), entries=entries))
        primary = source.kind in ("", PRIMARY_KIND.get(benchmark, "gallery"))
        if primary and source.gold == "original" and not own:
            less = tuple(
                difference(entry, table.value(row, column))
                for column, entry in zip(table.columns, entries, strict=True)
            )
            lines.append(Line(keys=keys, figure=_said("difference", source), entries=less))
    if not sources:
        entries = tuple(_unrun(table, row, merged, systems[name]) for name in table.columns)
        lines.append(Line(keys=keys, figure="ours", entries=entries))
    if table.number in WITH_EVIDENCE:
        lines += evidence_lines(table, row, systems, merged)
    return lines


def _unrun(table: PublishedTable, row: Row, merged: MergedRuns, system: str | None) -> Entry:
    """Why there is no score of a model's answers."""
    benchmark, published = benchmark_of(table, row), row.get("backbone") or table.backbone
    cells = [
        cell
        for backbone in merged.backbones(benchmark)
        if merged.belongs(backbone, published)
        and (cell := merged.cell(benchmark, system, backbone))
    ]
    if not cells:
        return unrun_mark(merged, system)
    return NOT_JUDGED if any(cell["answered_by_model"] for cell in cells) else NEEDS_MODEL


def _said(what: str, source: Source) -> str:
    judge = f", {source.judge} ({source.kind})" if source.judge else ""
    gold = ", corrected gold" if source.gold != "original" else ""
    return f"{what}: {source.backbone}{judge}{gold}"


def _sources(
    table: PublishedTable, row: Row, merged: MergedRuns, systems: Sequence[str]
) -> list[Source]:
    """What answered and judged for this row; the paper's kind of judge first."""
    benchmark = benchmark_of(table, row)
    published = row.get("backbone") or table.backbone
    if "metric" in row or table.number == 10:
        cells = [merged.cells[name] for name in merged.cells if name[0] == benchmark]
        models = [cell["backbone"] for cell in cells if cell["lexical"]]
        found = [Source(backbone=name) for name in dict.fromkeys(models)]
    else:
        found = merged.judged_by(benchmark)
    return [
        source
        for source in found
        if merged.belongs(source.backbone, published)
        and any(merged.cell(benchmark, name, source.backbone) for name in systems)
    ]


def _measured(table: PublishedTable, row: Row, merged: MergedRuns, source: Source) -> Measure:
    benchmark = benchmark_of(table, row)

    def measure(system: str, group: Group, column: str) -> Entry:
        cell = merged.cell(benchmark, system, source.backbone)
        if cell is None:
            return NOT_RUN
        metric = LEXICAL.get(str(row.get("metric", column)))
        if metric:
            lexical = cell["lexical"]
            if lexical is None:
                return NOT_RUN
            return score_entry(lexical["scores"][metric], lexical["invalid"], group)
        if group == ("overall", "") and column == "average" and table.dialogues:
            parts = [measure(system, ("dialogue", d), d) for d in table.dialogues.values()]
            return averaged(parts)
        judged = judged_scores(cell, source)
        if judged is None:
            return NOT_RUN
        return score_entry(judged["score"], judged["invalid"], group)

    return measure
