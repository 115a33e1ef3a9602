"""What the command prints: tables and pages by rich, JSON where a program reads it."""

import json
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from vmem.metrics.significance import Interval
from vmem.metrics.summary import Group, Summary

console = Console()
errors = Console(stderr=True)


def print_json(value: object) -> None:
    """One JSON document on standard output."""
    console.file.write(json.dumps(value, ensure_ascii=False, indent=2, default=str) + "\n")


def print_counts(title: str, counts: Mapping[str, Any]) -> None:
    """A two-column table; nested counts are indented."""
    table = Table(title=title, show_header=False, title_justify="left")
    for name, value in counts.items():
        if isinstance(value, Mapping):
            table.add_row(f"[bold]{name}[/]", "")
            for inner, count in value.items():
                table.add_row(f"  {inner}", f"{count:,}" if isinstance(count, int) else str(count))
        else:
            table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    console.print(table)


def print_summary(summary: Summary, title: str) -> None:
    """A run's evidence scores with their intervals."""
    overall = Table(title=f"{title}: all {summary.overall.with_evidence:,} with evidence")
    overall.title_justify = "left"
    for column in ("score", "mean", "95% over questions", "95% over dialogues"):
        overall.add_column(column)
    for name, (questions, dialogues) in summary.overall.scores.items():
        overall.add_row(name, f"{questions.mean:.3f}", _span(questions), _span(dialogues))
    console.print(overall)
    groups = Table(title="by category and case (95% over questions)", title_justify="left")
    for column in ("", "asked", "scored", *_GROUP_SCORES):
        groups.add_column(column)
    for name, group in {**summary.by_category, **summary.by_case}.items():
        groups.add_row(name, str(group.questions), str(group.with_evidence), *_cells(group))
    console.print(groups)
    if summary.excluded:
        console.print(f"{summary.excluded:,} questions of excluded categories are not scored.")
    if summary.failed:
        errors.print(f"[bold red]{summary.failed:,} questions failed: these scores are invalid.[/]")


_GROUP_SCORES = ("recall@1", "recall@5", "recall@12", "recall+neighbours", "hit@12", "mrr")


def _cells(group: Group) -> list[str]:
    if not group.scores:
        return ["–"] * len(_GROUP_SCORES)
    cells = []
    for name in _GROUP_SCORES:
        questions, _ = group.scores[name]
        wide = name in {"recall@12", "recall+neighbours"}
        cells.append(
            f"{questions.mean:.3f} {_span(questions)}" if wide else f"{questions.mean:.3f}"
        )
    return cells


def _span(interval: Interval) -> str:
    return f"\\[{interval.low:.3f}, {interval.high:.3f}]"
