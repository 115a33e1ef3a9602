"""What the command prints: tables and pages by rich, JSON where a program reads it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from vmem.metrics.significance import Interval
from vmem.metrics.summary import Group, Summary
from vmem.rounds import show_round
from vmem.stores.catalogue import Bank, MemoryInfo
from vmem.types import Answer, Image, RankedRound, Retrieval, Round, Signal

SHOWN = 30
"""Ranked rounds printed at most."""

console = Console(emoji=False)
errors = Console(stderr=True, emoji=False)


def print_json(value: object) -> None:
    """One JSON document on standard output."""
    console.file.write(json.dumps(value, ensure_ascii=False, indent=2, default=str) + "\n")


def print_line(text: str) -> None:
    """A sentence on standard output, as one line however long and whatever names are in it."""
    console.print(Text(text), soft_wrap=True)


def print_note(text: str) -> None:
    """A sentence on standard error, as one line."""
    errors.print(Text(text), soft_wrap=True)


def print_error(error: Exception) -> None:
    """An error as one line on standard error: its class and its sentence."""
    sentence = " ".join(str(error).split())
    message = Text.assemble(("error", "bold red"), f" {type(error).__name__}: {sentence}")
    errors.print(message, soft_wrap=True)


def print_counts(title: str, counts: Mapping[str, Any]) -> None:
    """A two-column table; nested counts are indented."""
    print_line(title)
    table = Table(show_header=False)
    for name, value in counts.items():
        if isinstance(value, Mapping):
            table.add_row(Text(name, style="bold"), "")
            for inner, count in value.items():
                table.add_row(Text(f"  {inner}"), _counted(count))
        else:
            table.add_row(Text(name), _counted(value))
    console.print(table)


def _counted(value: object) -> Text:
    match value:
        case bool():
            return Text("yes" if value else "no")
        case int():
            return Text(f"{value:,}")
        case float():
            return Text(f"{value:,.1f}")
        case _:
            return Text(str(value))


def print_overall(summary: Summary, title: str) -> None:
    """The mean scores of all questions, with both intervals."""
    table = Table(title=f"{title}: all {summary.overall.with_evidence:,} with evidence")
    table.title_justify = "left"
    for column in ("score", "mean", "95% over questions", "95% over dialogues"):
        table.add_column(column)
    for name, (questions, dialogues) in summary.overall.scores.items():
        table.add_row(name, f"{questions.mean:.3f}", _span(questions), _span(dialogues))
    console.print(table)


def print_summary(summary: Summary, title: str) -> None:
    """A run's evidence scores with their intervals."""
    print_overall(summary, title)
    groups = Table(
        title="by category and case (± half of the 95% interval over questions)",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in ("", "scored", *_GROUP_SCORES.values()):
        groups.add_column(column, no_wrap=True)
    for name, group in {**summary.by_category, **summary.by_case}.items():
        groups.add_row(name, str(group.with_evidence), *_cells(group))
    console.print(groups)
    if summary.excluded:
        console.print(f"{summary.excluded:,} questions of excluded categories are not scored.")


_GROUP_SCORES = {
    "recall@1": "R@1",
    "recall@5": "R@5",
    "recall@12": "R@12",
    "recall+neighbours": "+ ±W",
    "mrr": "MRR",
}


def _cells(group: Group) -> list[str]:
    if not group.scores:
        return ["–"] * len(_GROUP_SCORES)
    cells = []
    for name in _GROUP_SCORES:
        interval, _ = group.scores[name]
        half = f" ±{(interval.high - interval.low) / 2:.3f}" if name == "recall@12" else ""
        cells.append(f"{interval.mean:.3f}{half}")
    return cells


def _span(interval: Interval) -> str:
    return f"\\[{interval.low:.3f}, {interval.high:.3f}]"


def retrieval_as_dict(found: Retrieval, rounds: Sequence[Round]) -> dict[str, Any]:
    """A search as plain values: route, anchors, ranked rounds, context, seconds."""
    return {
        "route": asdict(found.route),
        "anchors": {
            "by_signal": {s: _anchor_text(a) for s, a in found.anchors.by_signal.items()},
            "hypo_caption": found.anchors.hypo_caption,
            "keywords": list(found.anchors.keywords),
            "notes": list(found.anchors.notes),
        },
        "rounds": [
            {
                "round": rounds[item.position].id,
                "session": rounds[item.position].session,
                "time": rounds[item.position].time,
                "score": item.score,
                "ranks": dict(item.ranks),
                "images": [image.id for image in rounds[item.position].images],
                "text": show_round(rounds[item.position], item.units),
            }
            for item in _shown(found)
        ],
        "context": {
            "rounds": [rounds[position].id for position in found.context.positions],
            "dropped": [rounds[position].id for position in found.context.dropped],
            "tokens": found.context.tokens,
            "words": found.context.words,
            "text": found.context.text,
        },
        "seconds": dict(found.seconds),
    }


def answer_as_dict(answer: Answer, rounds: Sequence[Round]) -> dict[str, Any]:
    """An answer as plain values, with the search it rests on."""
    return {
        "answer": answer.text,
        "usage": [asdict(usage) for usage in answer.usage],
        **retrieval_as_dict(answer.retrieval, rounds),
        "seconds": dict(answer.seconds),
    }


def print_answer(
    answer: Answer, rounds: Sequence[Round], *, explain: bool, most: int = SHOWN
) -> None:
    """An answer, with the steps to it where asked."""
    if explain:
        print_retrieval(answer.retrieval, rounds, explain=True, most=most)
    console.print(Panel(Text(answer.text), title="answer", title_align="left"))
    sources = ", ".join(rounds[p].id for p in answer.retrieval.context.found)
    console.print(Text(f"from rounds {sources}", style="dim"))


def print_retrieval(
    found: Retrieval, rounds: Sequence[Round], *, explain: bool, most: int = SHOWN
) -> None:
    """Ranked rounds, and where asked the route, the anchors and the ranks by signal."""
    if explain:
        _print_route(found)
    signals = list(found.anchors.by_signal) if explain else []
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("#", justify="right")
    table.add_column("round", no_wrap=True)
    table.add_column("when", no_wrap=True)
    for signal in signals:
        table.add_column(signal.value.replace("_", "\n"), justify="right")
    table.add_column("what was said", overflow="fold")
    for rank, item in enumerate(_shown(found)[:most], 1):
        round_ = rounds[item.position]
        ranks = [str(item.ranks.get(signal, "·")) for signal in signals]
        shown = Text(_shortened(show_round(round_, item.units), 140))
        table.add_row(str(rank), Text(round_.id), round_.time[:10], *ranks, shown)
    console.print(table)
    if explain:
        _print_context(found)


def print_memories(banks: Sequence[tuple[Bank, Sequence[MemoryInfo]]], *, as_json: bool) -> None:
    """Every bank with its memories."""
    if as_json:
        print_json(
            [
                {**asdict(bank), "units": dict(bank.units), "memories": [asdict(m) for m in held]}
                for bank, held in banks
            ]
        )
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in (
        "bank",
        "memory",
        "rounds",
        "images",
        "version",
        "text encoder",
        "image encoder",
    ):
        table.add_column(column, overflow="fold")
    for bank, held in banks:
        for info in held:
            table.add_row(
                bank.name,
                Text(info.id),
                str(info.rounds),
                str(info.images),
                str(info.version),
                f"{bank.text_encoder} ({bank.text_width})",
                f"{bank.image_encoder} ({bank.image_width})",
            )
    console.print(table if table.row_count else "There is no memory yet: see `vmem append --help`.")


def _shown(found: Retrieval) -> Sequence[RankedRound]:
    chosen = set(found.context.found)
    return [item for item in found.ranked if item.position in chosen]


def _print_route(found: Retrieval) -> None:
    grid = Table.grid(padding=(0, 1))
    grid.add_row(
        Text("route", style="bold"), Text(f"{found.route.case.value}  ({found.route.reason})")
    )
    for anchor, signals in _by_anchor(found).items():
        names = ", ".join(signal.value for signal in signals)
        grid.add_row(Text(names, style="cyan"), Text(f"← {_shortened(anchor)}"))
    for note in found.anchors.notes:
        grid.add_row(Text("note", style="yellow"), Text(note))
    console.print(grid)


def _by_anchor(found: Retrieval) -> dict[str, list[Signal]]:
    groups: dict[str, list[Signal]] = {}
    for signal, anchor in found.anchors.by_signal.items():
        groups.setdefault(_anchor_text(anchor), []).append(signal)
    return groups


def _anchor_text(anchor: str | Image) -> str:
    return anchor if isinstance(anchor, str) else f"the picture {anchor.id}"


def _print_context(found: Retrieval) -> None:
    context = found.context
    spent = "  ".join(
        f"{stage} {seconds * 1000:.1f} ms" for stage, seconds in found.seconds.items()
    )
    dropped = f", {len(context.dropped)} dropped for the budget" if context.dropped else ""
    console.print(
        Text(
            f"context: {len(context.blocks)} blocks, {len(context.positions)} rounds{dropped},"
            f" {context.words} words, {context.tokens} tokens\ntime: {spent}",
            style="dim",
        )
    )


def _shortened(text: str, limit: int = 220) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else f"{flat[: limit - 1]}…"


def print_serving(address: str) -> None:
    """Where the application answers, and what to try first."""
    print_line(f"vmem answers at {address}")
    print_line(f"  page  {address}/ui")
    print_line(f"  docs  {address}/docs")
    print_line("  try   " + _TRY.format(address=address))


_TRY = (
    "curl {address}/v1/memories/trip/rounds -H 'content-type: application/json' -d"
    ' \'{{"rounds": [{{"id": "1", "user": "The ferry leaves at 7:40.", "assistant": "Noted."}}]}}\''
)
