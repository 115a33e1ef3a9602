"""Evidence recall in the places of judge scores: what of a table needs no language model."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jobs.report.merged_runs import MergedRuns
from jobs.report.published import PublishedTable
from jobs.report.score_entries import (
    DELTA,
    NOT_RUN,
    Group,
    Measure,
    Row,
    averaged,
    filled,
    group_of,
    score_entry,
)
from jobs.report.table_formats import Entry, Line

WITH_EVIDENCE = (3, 11, 12, 13, 14)
"""Tables whose places that need no language model are also filled by evidence recall."""
MEASURES = {"recall@12": "R@12", "recall+neighbours": "in context"}
OF_CONTEXTS = (12, 13)
"""Tables whose rows rank alike: only what they show tells them apart."""
GENERATED = ("generated anchor", "hypothetical caption", "image keywords")
"""Rows about what a model writes; all others can be compared with the question as it is."""
LACKS = {"picture": "without their picture", "model": "without the model that they call for"}
NEEDS_MODEL = Entry(mark="needs a model")
MEANING = (
    "Lines of evidence stand in the places of judge scores: the share of a question's gold evidence"
    " rounds among the first 12 items ranked (R@12; at the unit level an item is a unit), or"
    " anywhere in the context (in context: neighbours count, and a round of which one unit is"
    " shown). Questions without evidence, such as all of AR, are in none of them. Intervals are"
    " over questions; those over dialogues are in statistics.json. An average over all questions"
    " stands where a benchmark lacks the table's dialogues."
)
NO_MODEL = (
    "Where nothing answers, captions are searched with the question as it is and no keywords are"
    " added; places about what a model would write are marked."
)
NO_PICTURES = "Attached pictures without a file are not searched: places that need them are marked."
REAL_PICTURES = (
    "photobench, real photos in Mem-Gallery's format, stands in for Mem-Gallery in rows about"
    " pictures."
)
EFFICIENTNET = (
    "EfficientNet-Lite0 stands in for SigLIP2; it knows no texts, so that vanilla does not search"
    " pictures by words."
)


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
            for score, said in MEASURES.items():
                if table.number in OF_CONTEXTS and score == "recall@12":
                    continue
                measure = _evidence(table, row, merged, (benchmark, backbone), score)
                entries = filled(table, row, systems, measure)
                entries = _sure(table, row, systems, entries, merged, (benchmark, backbone, score))
                figure = f"evidence {said}: {benchmark}, {backbone}"
                lines.append(Line(keys=table.keys_of(row), figure=figure, entries=entries))
    return lines


def evidence_notes(table: PublishedTable, merged: MergedRuns) -> tuple[str, ...]:
    """What a reader must know of a table's lines of evidence: what they mean, what stands in."""
    cells = [cell for cell in merged.cells.values() if cell["evidence"]]
    if table.number not in WITH_EVIDENCE or not cells:
        return ()
    found = [MEANING]
    if not all(cell["answered_by_model"] for cell in cells):
        found.append(NO_MODEL)
    if any(cell["warnings"]["query_images_missing"] for cell in cells):
        found.append(NO_PICTURES)
        found += [REAL_PICTURES] if "photobench" in merged.benchmarks() else []
    ran_on = [one for run in merged.runs for one in run.get("systems", {}).values()]
    if any(one["encoders"].get("image") == "efficientnet" for one in ran_on):
        found.append(EFFICIENTNET)
    return tuple(found)


def _evidence(
    table: PublishedTable, row: Row, merged: MergedRuns, place: tuple[str, str], score: str
) -> Measure:
    benchmark, backbone = place

    def measure(system: str, group: Group, column: str) -> Entry:
        cell = merged.cell(benchmark, system, backbone)
        if cell is None or cell["evidence"] is None:
            return unrun_mark(merged, system)
        if column == "average" and benchmark == table.benchmark:
            dialogues = table.dialogues.values()
            return averaged([measure(system, ("dialogue", d), d) for d in dialogues])
        scores = cell["evidence"]["scores"].get(score)
        entry = score_entry(scores, cell["evidence"]["invalid"], group)
        entry = _with_lacks(entry, scores, group)
        is_generated = row.get("toggle", row.get("configuration")) in GENERATED
        lacks_all = not cell["answered_by_model"]
        if lacks_all and is_generated and column != "without" and LACKS["model"] in entry.mark:
            return NEEDS_MODEL  # it would repeat the place without it
        return entry

    return measure


def unrun_mark(merged: MergedRuns, system: str | None) -> Entry:
    """That a system was not run, with the reason that a plan gives."""
    reason = merged.left_out(system)
    return Entry(mark=f"not run: {reason}") if reason else NOT_RUN


def _sure(
    table: PublishedTable,
    row: Row,
    systems: Mapping[str, str | None],
    entries: tuple[Entry, ...],
    merged: MergedRuns,
    place: tuple[str, str, str],
) -> tuple[Entry, ...]:
    """The entries, a difference of two columns with the interval of the paired comparison."""
    by_column = dict(zip(table.columns, entries, strict=True))
    delta = by_column.get("delta")
    if delta is None or not isinstance(delta.value, float):
        return entries
    first, second = (systems[name] for name in DELTA[table.number])
    kind, name = group_of(table, row, "delta")
    for system, base, sign in ((second, first, 1), (first, second, -1)):
        benchmark, backbone, score = place
        key = (benchmark, backbone, str(system), str(base), score)
        compared = merged.comparisons.get(key, {})
        group = compared.get(kind) if kind == "overall" else compared.get(kind, {}).get(name)
        if group:
            test = group["by_question"]
            low, high = sorted((sign * test["low"], sign * test["high"]))
            by_column["delta"] = replace(delta, interval=(low, high))
    return tuple(by_column.values())


def _with_lacks(entry: Entry, scores: Mapping[str, Any] | None, group: Group) -> Entry:
    """What part of the questions was searched without something that they call for."""
    kind, name = group
    found = (scores or {}).get(kind, {})
    found = found if kind == "overall" else found.get(name)
    if entry.value is None or not found:
        return entry
    lacks = found.get("lacks", {})
    if lacks.get("picture") == found["questions"]:
        return Entry(mark="needs pictures")
    marks = [f"{count:,} of {found['questions']:,} {LACKS[what]}" for what, count in lacks.items()]
    return Entry(value=entry.value, interval=entry.interval, mark="; ".join(marks))
