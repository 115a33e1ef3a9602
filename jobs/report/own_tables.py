"""Tables that the paper has not: all that a run measured, its judges, and its errors."""

from collections.abc import Mapping, Sequence
from typing import Any

from jobs.report.captions import made_by, scored_as
from jobs.report.merged_runs import Cell, MergedRuns
from jobs.report.published import Places
from jobs.report.score_entries import invalid_mark, score_entry
from jobs.report.table_formats import Entry, Grid, Line
from jobs.statistics.cell_scores import OF_BUILDS

OVERALL = ("overall", "")
EVIDENCE = (
    "recall@1", "recall@3", "recall@5", "recall@12", "recall@30", "recall+neighbours", "hit@12",
    "mrr",
)  # fmt: skip
LEXICAL = ("f1", "bleu", "exact")
COUNTS = ("questions", "failed", "unanswered")
WARNINGS = (
    "anchors_fell_back", "contexts_truncated", "query_images_missing", *OF_BUILDS,
)  # fmt: skip


def results_grid(benchmark: str, merged: MergedRuns, places: Places) -> Grid:
    """Every cell of a benchmark: validity, scores by every judge, evidence, cost.

    Args:
        benchmark: Its name.
        merged: Our runs.
        places: All systems.
    """
    cells = [cell for name, cell in merged.cells.items() if name[0] == benchmark]
    judges = list(dict.fromkeys(_judge(one) for cell in cells for one in cell["judged"]))
    columns = (
        "valid", *COUNTS, *judges, *LEXICAL, *EVIDENCE, "calls per question",
        "tokens per question", "model seconds per question", *WARNINGS,
    )  # fmt: skip
    return Grid(
        name=f"results-{benchmark}",
        title=f"All results on {benchmark}",
        keys=("system", "backbone"),
        columns=columns,
        lines=tuple(
            Line(
                keys=(_titled(cell), cell["backbone"]),
                figure="ours",
                entries=tuple(_entries(cell, judges)),
            )
            for cell in cells
        ),
        caption=(
            "Means with 95% bootstrap intervals over questions.",
            *scored_as([benchmark]),
            *made_by(merged, {cell["system"] for cell in cells}, places),
        ),
    )


def errors_grid(merged: MergedRuns) -> Grid:
    """Where wrong answers come from, by category (Appendix L)."""
    columns = ("judged", "wrong", "all", "part", "none", "no_evidence", "share_with_evidence")
    lines = [
        Line(
            keys=(cell["benchmark"], cell["title"], cell["backbone"], category),
            figure=_judge(one) + (f", {invalid_mark(one['invalid'])}" if one["invalid"] else ""),
            entries=tuple(_counted(counts[column]) for column in columns),
        )
        for cell in merged.cells.values()
        for one in cell["judged"]
        for category, counts in one["wrong"].items()
    ]
    return Grid(
        name="errors",
        title="Wrong answers by how much of their evidence the context held (Appendix L)",
        keys=("benchmark", "system", "backbone", "category"),
        columns=columns,
        lines=tuple(lines),
        caption=(
            "An answer is wrong below half the credit. The paper audited 21 misses on questions"
            " with a picture that seek text; all 21 had their evidence in the context.",
        ),
    )


def judges_grid(merged: MergedRuns) -> Grid:
    """How far the judges can be trusted: planted answers, repetitions, agreement."""
    lines = []
    for honesty in merged.honesty:
        for one in honesty["planted"]:
            for kind in ("vague", "specific"):
                entry = _rate(one[kind], one["unjudged"], finished=one["finished"])
                keys = (f"false accepts of {kind} answers", one["benchmark"], one["judge"])
                lines.append(Line(keys=keys, figure=one["kind"], entries=entry))
        for one in honesty["spread"]:
            keys = (f"spread over repetitions, {one['system']}", one["benchmark"], one["judge"])
            entry = _spread(one["spread"], one["left_out"])
            lines.append(Line(keys=keys, figure=one["kind"], entries=entry))
        for one in honesty["agreement"]:
            keys = ("agreement (κ)", one["benchmark"], f"{one['first']} and {one['second']}")
            lines.append(Line(keys=keys, figure=one["kind"], entries=_kappa(one)))
    return Grid(
        name="judges",
        title="How far the judges can be trusted",
        keys=("what", "benchmark", "judge"),
        columns=("value", "answers", "also"),
        lines=tuple(lines),
        caption=(
            "Planted answers are wrong by construction: the share that a judge gives half the"
            " credit or more, with its Wilson interval. Spread is the standard deviation of one"
            " answer's score. κ is Cohen's, with its bootstrap interval; levels that are further"
            " apart count more where there are several.",
        ),
    )


def _entries(cell: Cell, judges: Sequence[str]) -> list[Entry]:
    by_judge = {_judge(one): one for one in cell["judged"]}
    lexical, evidence = cell["lexical"], cell["evidence"]
    per: Mapping[str, Any] = cell["cost"]["answer"]["per_question"]
    valid = Entry(value="yes") if cell["valid"] else Entry(mark=invalid_mark(cell["invalid"]))
    return [
        valid,
        *(Entry(value=cell[name]) for name in COUNTS),
        *(_score(by_judge.get(name), "not judged", "score") for name in judges),
        *(_score(lexical, "no model", "scores", name) for name in LEXICAL),
        *(_score(evidence, "ranks nothing", "scores", name) for name in EVIDENCE),
        *(Entry(value=per[name], digits=1) for name in ("calls", "tokens")),
        Entry(value=per["seconds"], digits=2),
        *(Entry(value=cell["warnings"].get(name, 0)) for name in WARNINGS),
    ]


def _score(found: Mapping[str, Any] | None, missing: str, *path: str) -> Entry:
    """The overall mean at a path of a part of `statistics.json`, or why it is missing."""
    if found is None:
        return Entry(mark=missing)
    scores: Any = found
    for name in path:
        scores = (scores or {}).get(name)
    return score_entry(scores, found["invalid"], OVERALL)


def _judge(one: Mapping[str, Any]) -> str:
    gold = ", corrected gold" if one["gold"] != "original" else ""
    return f"{one['judge']} ({one['kind']}{gold})"


def _titled(cell: Cell) -> str:
    return f"{cell['title']} (sees the gold evidence)" if cell["oracle"] else str(cell["title"])


def _counted(value: float | None) -> Entry:
    return Entry(value=value)


def _rate(
    found: Mapping[str, Any] | None, unjudged: int, *, finished: bool
) -> tuple[Entry, Entry, Entry]:
    missed = f"{unjudged:,} of both kinds could not be judged" if unjudged else ""
    if found is None or not finished:
        mark = "none judged" if finished else "invalid (unfinished)"
        return Entry(mark=mark), Entry(value=0), Entry(mark=missed)
    rate = Entry(value=found["rate"], interval=(found["low"], found["high"]))
    said = "; ".join(filter(None, (f"mean score {found['mean_score']:.3f}", missed)))
    return rate, Entry(value=found["judged"]), Entry(mark=said)


def _spread(found: Mapping[str, Any] | None, left_out: int) -> tuple[Entry, Entry, Entry]:
    missed = f"{left_out:,} not judged every time" if left_out else ""
    if found is None:
        return Entry(mark="none judged every time"), Entry(value=0), Entry(mark=missed)
    unsteady = f"{found['unsteady']:.1%} of answers change score"
    said = "; ".join(filter(None, (unsteady, missed)))
    return Entry(value=found["within"]), Entry(value=found["answers"]), Entry(mark=said)


def _kappa(found: Mapping[str, Any]) -> tuple[Entry, Entry, Entry]:
    observed = Entry(mark=f"observed agreement {found['observed']:.3f}")
    if found["kappa"] is None:
        return (
            Entry(mark="undefined: one level throughout"),
            Entry(value=found["answers"]),
            observed,
        )
    kappa = Entry(value=found["kappa"], interval=(found["low"], found["high"]))
    return kappa, Entry(value=found["answers"]), observed
