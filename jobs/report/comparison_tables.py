"""Tables 15 and 16: paired differences of systems, and single questions with and without a step."""

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.evaluation.records import Cell
from jobs.evaluation.run_folder import RunFolder
from jobs.report.captions import made_by
from jobs.report.merged_runs import PRIMARY_KIND, MergedRuns
from jobs.report.published import Places, PublishedTable
from jobs.report.score_entries import NOT_RUN, difference, invalid_mark
from jobs.report.table_formats import Entry, Grid, Line

STEPS = {
    "routing": ("routing", "vanilla"),
    "shared rounds": ("rounds", "routing"),
    "generated anchor": ("v-mem", "rounds"),
}
"""The systems that Table 15's steps compare: the step's own, less the one above it."""
BASELINES = {"Omni": "omni", "A-Mem": "a-mem", "M2A": "m2a"}
CASES = {
    "shared rounds": ("routing", "rounds"),
    "hypothetical caption": ("no-hypo-caption", "v-mem"),
    "enriched anchor": ("no-image-keywords", "v-mem"),
}
"""Without and with each mechanism of Table 16: for the first, the steps of Table 3 around it."""
STEPS_BENCHMARK = "mem-gallery"


def paired_grid(table: PublishedTable, merged: MergedRuns, places: Places) -> Grid:
    """Table 15, with a row for each comparison of ours that the paper does not make.

    Args:
        table: The table as published.
        merged: Our runs.
        places: Which system stands where.
    """
    lines: list[Line] = []
    shown = set()
    for row in table.rows:
        keys = table.keys_of(row)
        entries = _published(table, row)
        lines.append(Line(keys=keys, figure="published", entries=entries))
        benchmark, system, base = _compared(row)
        ours = _lines(keys, merged, benchmark, system, base, table.value(row, "delta"))
        shown.add((benchmark, system, base))
        lines += ours or [Line(keys=keys, figure="ours", entries=(NOT_RUN,) * len(table.columns))]
    for benchmark, _, system, base, _ in merged.comparisons:
        if (benchmark, system, base) not in shown:
            shown.add((benchmark, system, base))
            keys = benchmark, f"{system} vs {base}"
            lines += _lines(keys, merged, benchmark, system, base)
    systems = {name for one in (*STEPS.values(), BASELINES.values()) for name in one}
    return table.grid(
        lines=tuple(lines),
        caption=(
            f"Unit: {table.unit}; of the lines named f1 or recall@12, of those scores. The paper"
            " resamples questions; ours also whole dialogues, whose questions are not independent.",
            *made_by(merged, systems, places),
        ),
    )


def case_grid(
    table: PublishedTable, runs: Sequence[RunFolder], merged: MergedRuns, places: Places
) -> Grid:
    """Table 16: the answers of our systems to the questions that the paper shows.

    Raises:
        DataError: A line of answers cannot be read.
    """
    lines: list[Line] = []
    for row in table.rows:
        keys = table.keys_of(row)
        published = tuple(Entry(value=str(value)) for value in row["values"])
        lines.append(Line(keys=keys, figure="published", entries=published))
        ours = [
            Line(keys=keys, figure=f"ours: {backbone}, {question}", entries=entries)
            for backbone in merged.backbones(STEPS_BENCHMARK)
            for question, entries in _answers(row, backbone, runs)
        ]
        lines += ours or [Line(keys=keys, figure="ours", entries=(NOT_RUN,) * 3)]
    systems = {name for pair in CASES.values() for name in pair}
    return table.grid(
        lines=tuple(lines),
        caption=made_by(merged, systems, places),
    )


def _published(table: PublishedTable, row: Mapping[str, Any]) -> tuple[Entry, ...]:
    numbers = [Entry(value=table.value(row, name), signed=True) for name in table.columns[:-1]]
    below = "less than this" if row["p_below"] else ""
    return (*numbers, Entry(value=table.value(row, "p"), digits=4, mark=below))


def _compared(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """Benchmark, system and base of a published row."""
    if row["block"] == "steps":
        return STEPS_BENCHMARK, *STEPS[row["comparison"]]
    return row["block"], "v-mem", BASELINES[row["comparison"].rpartition(" ")[2]]


def _lines(
    keys: tuple[str, ...],
    merged: MergedRuns,
    benchmark: str,
    system: str,
    base: str,
    published: float | None = None,
) -> list[Line]:
    primary = PRIMARY_KIND.get(benchmark, "gallery")
    lines = []
    for (place, backbone, first, second, score), found in merged.comparisons.items():
        if place != benchmark or {first, second} != {system, base} or not found["overall"]:
            continue
        turned = first != system
        for by in ("by_question", "by_dialogue"):
            figure = f"ours: {backbone}, {score}, {by.replace('_', ' ')}"
            entries = _entries(found, by, turned=turned)
            lines.append(Line(keys=keys, figure=figure, entries=entries))
        if published is not None and score.endswith(f":{primary}"):
            less = (difference(entries[0], published), *[Entry()] * 3)
            figure = f"difference: {backbone}, {score}"
            lines.append(Line(keys=keys, figure=figure, entries=less))
    return lines


def _entries(found: Mapping[str, Any], by: str, *, turned: bool) -> tuple[Entry, ...]:
    if found["invalid"]:
        return (Entry(mark=invalid_mark(found["invalid"])),) * 4
    overall = found["overall"]
    test = overall[by]
    if test is None:
        return (Entry(mark="one dialogue"),) * 4
    ends = (-test["high"], -test["low"]) if turned else (test["low"], test["high"])
    delta = -overall["difference"] if turned else overall["difference"]
    numbers = [Entry(value=value, signed=True) for value in (delta, *ends)]
    return (*numbers, Entry(value=test["p"], digits=4))


def _answers(
    row: Mapping[str, Any], backbone: str, runs: Sequence[RunFolder]
) -> list[tuple[str, tuple[Entry, ...]]]:
    """For each of a row's questions that was asked: reference, and answers without and with."""
    wanted = set(row["questions"])
    found: dict[str, dict[str, Entry]] = {}
    for system in CASES[row["mechanism"]]:
        cell = Cell(benchmark=STEPS_BENCHMARK, system=system, backbone=backbone)
        for run in reversed(runs):  # of two runs with one cell the first holds
            for record in run.answers(cell).read():
                if record.question_id in wanted and ("answer" in record.cost or record.answer):
                    said = Entry(value=record.answer or None, mark=record.error or "")
                    entries = found.setdefault(record.question_id, {})
                    entries |= {"reference": Entry(value=record.reference), system: said}
    without, with_it = CASES[row["mechanism"]]
    return [
        (id_, (e["reference"], e.get(without, NOT_RUN), e.get(with_it, NOT_RUN)))
        for id_, e in sorted(found.items())
    ]
