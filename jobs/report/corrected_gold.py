"""Our table of scores by the benchmark's gold answers and by corrected ones, side by side."""

from collections.abc import Iterator, Mapping
from typing import Any

from jobs.report.merged_runs import Cell, MergedRuns
from jobs.report.own_tables import LEXICAL, OVERALL
from jobs.report.score_entries import difference, score_entry
from jobs.report.table_formats import Entry, Grid, Line

COLUMNS = ("original gold", "corrected gold", "difference", "questions corrected")


def corrected_grid(merged: MergedRuns) -> Grid:
    """Every score of each cell whose benchmark has corrected gold answers, by both."""
    lines = [
        Line(
            keys=(cell["benchmark"], cell["title"], cell["backbone"]),
            figure=figure,
            entries=entries,
        )
        for cell in merged.cells.values()
        for figure, entries in _lines(cell)
    ]
    return Grid(
        name="corrected-gold",
        title="Scores by the benchmark's gold answers and by corrected ones",
        keys=("benchmark", "system", "backbone"),
        columns=COLUMNS,
        lines=tuple(lines),
        caption=(
            "The answers are the same; questions without a correction keep their gold answer and"
            " their judgement.",
            *(said for run in merged.runs for said in _files(run)),
        )
        if lines
        else ("No run had corrected gold answers.",),
    )


def _lines(cell: Cell) -> Iterator[tuple[str, tuple[Entry, ...]]]:
    own = {(one["judge"], one["kind"]): one for one in cell["judged"] if one["gold"] == "original"}
    for one in cell["judged"]:
        if one["gold"] != "original":
            both = own[one["judge"], one["kind"]], one
            entries = [score_entry(each["score"], each["invalid"], OVERALL) for each in both]
            yield f"{one['judge']} ({one['kind']})", _with_difference(cell, *entries)
    lexical = cell["lexical"]
    if lexical and "corrected" in lexical:
        for name in LEXICAL:
            entries = [
                score_entry(lexical[version][name], lexical["invalid"], OVERALL)
                for version in ("scores", "corrected")
            ]
            yield name, _with_difference(cell, *entries)


def _with_difference(cell: Cell, original: Entry, corrected: Entry) -> tuple[Entry, ...]:
    less = difference(corrected, original.value)
    return original, corrected, less, Entry(value=cell["corrected"])


def _files(run: Mapping[str, Any]) -> list[str]:
    return [
        f"Run {run['name']}, {name}: {one['count']:,} of the questions asked are corrected, of"
        f" {one['in_file']:,} corrections in the file ({one['sha256'][:8]})."
        for name, one in sorted(run.get("corrections", {}).items())
    ]
