"""What a reader is shown of a single question: the same in the terminal and on the page."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from jobs.evaluation.records import Record
from jobs.report.questions import SeenQuestion, Verdict

_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, which steer a terminal; those that turn text around; halves of pairs."""


def printable(text: str) -> str:
    """A text with nothing in it that could steer a terminal or turn around what stands beside it.

    Windows' and old Macs' ends of lines become ours; all other control characters are shown as �.
    """
    return _UNPRINTABLE.sub("�", text.replace("\r\n", "\n").replace("\r", "\n"))


def shortened(text: str, limit: int) -> str:
    """A text as one line, cut to so many characters."""
    line = " ".join(printable(text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def facts(seen: SeenQuestion) -> list[tuple[str, str]]:
    """All that is known of a question, as names and texts; what there is not is left out."""
    record = seen.record
    found = [
        ("question", record.question),
        ("picture", _picture(record)),
        ("gold answer", record.reference or "none"),
        ("corrected gold answer", seen.corrected or ""),
        ("gold evidence", _evidence(record)),
        ("route", record.case or "none"),
        *_anchors(record),
        ("context", _context(record)),
        ("answer", record.answer or "(empty)"),
        ("error", record.error or ""),
        *((said_by(verdict), said(verdict)) for verdict in seen.verdicts),
        ("disagreement", "\n".join(seen.disagreements)),
        ("tokens", _tokens(seen)),
        ("seconds here", ", ".join(f"{step} {s:.3f}" for step, s in seen.seconds.items())),
    ]
    return [(name, printable(text)) for name, text in found if text.strip()]


def score_line(seen: SeenQuestion) -> str:
    """The score of each judge's first judging."""
    verdicts = [verdict for verdict in seen.verdicts if verdict.line.repetition == 0]
    return ", ".join(
        "–" if one.line.score is None else f"{one.line.score:g}" for one in verdicts
    ) or ("–" if seen.record.scores is None else f"{seen.record.scores['recall+neighbours']:g} R")


def tokens_of(record: Record) -> int:
    """Tokens of all calls for a question."""
    return sum(cost.prompt_tokens + cost.completion_tokens for cost in record.cost.values())


def as_dict(seen: SeenQuestion) -> dict[str, Any]:
    """A question as plain values, for programs."""
    return {
        **asdict(seen.cell),
        "state": seen.state.value,
        "disagreements": list(seen.disagreements),
        "corrected_reference": seen.corrected,
        **asdict(seen.record),
        "judgements": [
            {"judge": one.judge, "kind": one.kind, "gold": one.gold, **asdict(one.line)}
            for one in seen.verdicts
        ],
        "seconds": dict(seen.seconds),
    }


def said_by(verdict: Verdict) -> str:
    """Who judged: the judge, what it was asked for, and which time."""
    gold = ", corrected gold" if verdict.gold != "original" else ""
    again = f", again {verdict.line.repetition}" if verdict.line.repetition else ""
    return f"judge {verdict.judge} ({verdict.kind}{gold}{again})"


def said(verdict: Verdict) -> str:
    """What a judge said: its level, the benchmark's score, and its reason."""
    line = verdict.line
    if line.score is None or line.level is None:
        return f"no score: {line.error or 'unknown error'}"
    asked = ", asked twice" if line.asks > 1 else ""
    return f"level {line.level:g}, score {line.score:g}{asked}: {line.reason or '(no reason)'}"


def _picture(record: Record) -> str:
    if record.image is None:
        return ""
    return f"{record.image} ({record.image_uri or 'no file'})"


def _evidence(record: Record) -> str:
    if not record.gold_rounds:
        return "none is named"
    places = {id_: rank for rank, id_ in enumerate(record.ranked_rounds, 1)}
    return "\n".join(
        f"{id_}: {'in the context' if id_ in record.context_rounds else 'NOT in the context'}"
        + (f", rank {places[id_]}" if id_ in places else ", not ranked")
        for id_ in record.gold_rounds
    )


def _anchors(record: Record) -> list[tuple[str, str]]:
    return [
        ("hypothetical caption", record.hypo_caption or ""),
        ("image keywords", ", ".join(record.keywords)),
        ("picture described as", record.query_caption or ""),
        ("not done", "\n".join(record.notes)),
        ("anchors that failed", "\n".join(record.anchor_failures)),
    ]


def _context(record: Record) -> str:
    if not record.context and not record.context_rounds:
        return "none"
    dropped = _counted(record.dropped_rounds, "did not fit")
    shown = f"{len(record.context_rounds):,} rounds, {record.context_words:,} words{dropped}"
    return f"{shown}\n{record.context}"


def _counted(ids: Sequence[str], what: str) -> str:
    return f"; {len(ids):,} {what}: {', '.join(ids)}" if ids else ""


def _tokens(seen: SeenQuestion) -> str:
    costs = list(seen.record.cost.items())
    costs += [(said_by(verdict), verdict.line.cost) for verdict in seen.verdicts]
    return "\n".join(
        f"{role}: {cost.calls:,} call{'' if cost.calls == 1 else 's'},"
        f" {cost.prompt_tokens:,} + {cost.completion_tokens:,} tokens,"
        f" {cost.seconds:.2f} s" + (f", {cost.failed:,} failed" if cost.failed else "")
        for role, cost in costs
    )
