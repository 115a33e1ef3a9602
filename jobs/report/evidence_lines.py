"""Evidence recall in the places of judge scores: what of a table needs no language model."""

from collections.abc import Mapping
from typing import Any

from jobs.report.merged_runs import MergedRuns
from jobs.report.published import PublishedTable
from jobs.report.score_entries import NOT_RUN, Group, Measure, Row, averaged, filled, score_entry
from jobs.report.table_formats import Entry, Line

WITH_EVIDENCE = (3, 11, 12, 13, 14)
"""Tables whose places that need no language model are also filled by evidence recall."""
EVIDENCE = "recall@12"
GENERATED = ("generated anchor", "hypothetical caption", "image keywords")
"""Rows about what a model writes; all others can be compared with the question as it is."""
LACKS = {"picture": "without their picture", "model": "without the model that they call for"}


def evidence_lines(
    table: PublishedTable, row: Row, systems: Mapping[str, str | None], merged: MergedRuns
) -> list[Line]:
    """Evidence recall in the places of judge scores, for each benchmark and backbone."""
    lines = []
    named = {name for name in systems.values() if name}
    for benchmark in sorted(merged.benchmarks(), key=lambda name: name != table.benchmark):
        for backbone in merged.backbones(benchmark):
            if not any(merged.cell(benchmark, name, backbone) for name in named):
                continue
            measure = _evidence(table, row, merged, benchmark, backbone)
            entries = filled(table, row, systems, measure)
            figure = f"evidence R@12: {benchmark}, {backbone}"
            lines.append(Line(keys=table.keys_of(row), figure=figure, entries=entries))
    return lines


def _evidence(
    table: PublishedTable, row: Row, merged: MergedRuns, benchmark: str, backbone: str
) -> Measure:
    def measure(system: str, group: Group, column: str) -> Entry:
        cell = merged.cell(benchmark, system, backbone)
        if cell is None or cell["evidence"] is None:
            return NOT_RUN
        if column == "average" and benchmark == table.benchmark:
            dialogues = table.dialogues.values()
            return averaged([measure(system, ("dialogue", d), d) for d in dialogues])
        scores = cell["evidence"]["scores"][EVIDENCE]
        entry = score_entry(scores, cell["evidence"]["invalid"], group)
        entry = _with_lacks(entry, scores, group)
        is_generated = row.get("toggle", row.get("configuration")) in GENERATED
        lacks_all = not cell["answered_by_model"]
        if lacks_all and is_generated and column != "without" and LACKS["model"] in entry.mark:
            return Entry(mark="needs a model")  # it would repeat the place without it
        return entry

    return measure


def _with_lacks(entry: Entry, scores: Mapping[str, Any], group: Group) -> Entry:
    """What part of the questions was searched without something that they call for."""
    kind, name = group
    found = scores[kind] if kind == "overall" else scores[kind].get(name)
    if entry.value is None or not found:
        return entry
    lacks = found.get("lacks", {})
    if lacks.get("picture") == found["questions"]:
        return Entry(mark="needs pictures")
    marks = [f"{count:,} of {found['questions']:,} {LACKS[what]}" for what, count in lacks.items()]
    return Entry(value=entry.value, interval=entry.interval, mark="; ".join(marks))
