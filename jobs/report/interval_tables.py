"""Our tables of how sure figures are: by question as in the paper, and by whole dialogues."""

from collections.abc import Iterator, Mapping
from typing import Any

from jobs.report.merged_runs import PRIMARY_KIND, Cell, MergedRuns
from jobs.report.score_entries import invalid_mark
from jobs.report.table_formats import Entry, Grid, Line

SCORES = ("f1", "bleu", "exact", "recall@12", "recall+neighbours")
EVIDENCE = "recall@12"
BY = ("by_question", "by_dialogue")
ONE_DIALOGUE = Entry(mark="one dialogue")


def intervals_grid(merged: MergedRuns) -> Grid:
    """Every overall mean with both of its intervals."""
    lines = [
        Line(
            keys=(cell["benchmark"], cell["title"], cell["backbone"]),
            figure=name,
            entries=tuple(_mean(overall, by, invalid) for by in BY),
        )
        for cell in merged.cells.values()
        for name, overall, invalid in _means(cell)
    ]
    return Grid(
        name="intervals",
        title="Means with both of their intervals",
        keys=("benchmark", "system", "backbone"),
        columns=("by question", "by dialogue"),
        lines=tuple(lines),
        caption=(
            "95% bootstrap intervals: single questions resampled, as the paper does, and whole"
            " dialogues, whose questions are not independent.",
        ),
    )


def categories_grid(merged: MergedRuns) -> Grid:
    """Paired differences within each category, with Holm's correction over the categories."""
    lines = [
        Line(
            keys=(benchmark, backbone, f"{system} less {base}", category),
            figure=score,
            entries=tuple(entry for by in BY for entry in _test(part, by, found["invalid"])),
        )
        for (benchmark, backbone, system, base, score), found in merged.comparisons.items()
        if score in _shown(merged, benchmark, backbone)
        for category, part in found["category"].items()
    ]
    names = [
        f"{what} {by.replace('_', ' ')}" for by in BY for what in ("difference", "p", "Holm p")
    ]
    return Grid(
        name="differences-by-category",
        title="Paired differences by category",
        keys=("benchmark", "backbone", "comparison", "category"),
        columns=tuple(names),
        lines=tuple(lines),
        caption=(
            "Paired bootstrap intervals and two-sided sign-flip permutation tests. Holm p values"
            " are corrected over the categories of one comparison. Where a judge scored, its"
            " scores are compared, else the evidence.",
        ),
    )


def _means(cell: Cell) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, int]]]:
    for one in cell["judged"]:
        gold = ", corrected gold" if one["gold"] != "original" else ""
        yield f"{one['judge']} ({one['kind']}{gold})", one["score"]["overall"], one["invalid"]
    for part in filter(None, (cell["lexical"], cell["evidence"])):
        for name in SCORES:
            if name in part["scores"]:
                yield name, part["scores"][name]["overall"], part["invalid"]


def _mean(overall: Mapping[str, Any], by: str, invalid: Mapping[str, int]) -> Entry:
    if invalid:
        return Entry(mark=invalid_mark(invalid))
    if overall["mean"] is None:
        return Entry(mark="no such question")
    if overall[by] is None:
        return ONE_DIALOGUE
    return Entry(value=overall["mean"], interval=tuple(overall[by]))


def _shown(merged: MergedRuns, benchmark: str, backbone: str) -> set[str]:
    kind = PRIMARY_KIND.get(benchmark, "gallery")
    judged = {
        name[4]
        for name in merged.comparisons
        if name[:2] == (benchmark, backbone) and name[4].endswith(f":{kind}")
    }
    return judged or {EVIDENCE}


def _test(part: Mapping[str, Any], by: str, invalid: Mapping[str, int]) -> tuple[Entry, ...]:
    if invalid:
        return (Entry(mark=invalid_mark(invalid)),) * 3
    test = part[by]
    if test is None:
        return (ONE_DIALOGUE,) * 3
    ends = test["low"], test["high"]
    difference = Entry(value=part["difference"], interval=ends, signed=True)
    return difference, Entry(value=test["p"], digits=4), Entry(value=test["p_holm"], digits=4)
