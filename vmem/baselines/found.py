"""What a search found, put before a model: the part that all other systems do alike.

V-Mem's own assembly (section 3.3) adds neighbours and merges windows; none of these systems does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from vmem.answer import attached_note
from vmem.config import Settings
from vmem.pipeline import PROMPT_TOKENS, Parts
from vmem.routing import route_query
from vmem.tokens import estimate_tokens
from vmem.types import (
    Anchors,
    Block,
    Context,
    Failure,
    Query,
    RankedRound,
    Retrieval,
    Usage,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing in a memory: a round, a turn, a statement, a note.

    Attributes:
        id: Unique in its memory.
        text: As the model sees it.
        positions: Positions of the rounds it stems from; empty where nobody can tell.
        session: Theirs.
        time: Theirs, ISO 8601.
    """

    id: str
    text: str
    positions: tuple[int, ...] = ()
    session: str = ""
    time: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An item with its score."""

    item: Item
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How a query was searched for.

    Attributes:
        found: Items, best first, none twice.
        in_time_order: They are shown in time order; else best first.
        heading: What stands above them.
        ending: What stands below them, such as a list of pictures; never cut.
        usage: The model calls that the search made.
        failures: Those that gave nothing.
        notes: What was not done, and why.
        seconds: By stage.
    """

    found: tuple[Found, ...]
    in_time_order: bool = False
    heading: str = ""
    ending: str = ""
    usage: tuple[Usage, ...] = ()
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)


def shown_query_caption(query: Query, settings: Settings) -> tuple[str | None, tuple[str, ...]]:
    """The attached picture in words, as far as a system without a model that looks can have it.

    Returns:
        The dataset's caption where `answer.query_caption` allows it, else None with a note.
    """
    if query.image is None:
        return None, ()
    if settings.answer.query_caption == "dataset" and query.image.caption.strip():
        return " ".join(query.image.caption.split()), ()
    return None, ("the attached image is not described: no model looks at it",)


def put_before_model(query: Query, search: Search, parts: Parts, settings: Settings) -> Retrieval:
    """A search as a `Retrieval`: its items in a context that fits the model.

    The worst items are left out where all are longer than the budget: `answer.context_tokens`, or
    what the model's window leaves; the best always stays. Their rounds are `Context.dropped`.

    Args:
        query: The question.
        search: What was found.
        parts: The backbone counts tokens, and the prompts hold the attached-image note.
        settings: Lengths, and where the attached picture's description comes from.
    """
    caption, caption_notes = shown_query_caption(query, settings)
    anchors = Anchors(
        by_signal={},
        query_caption=caption,
        notes=(*search.notes, *caption_notes),
        usage=search.usage,
        failures=search.failures,
    )
    note = attached_note(query, anchors, None, parts.prompts)
    count = parts.chat.count_tokens if parts.chat else estimate_tokens
    fixed = [part for part in (search.heading, search.ending, note) if part]
    budget = _budget(settings, count(query.text)) - sum(map(count, fixed))
    kept = _fit(search.found, [count(each.item.text) for each in search.found], budget)
    left_out = [each.item.id for each in search.found[len(kept) :]]
    shown = sorted(kept, key=lambda f: f.item.positions) if search.in_time_order else kept
    body = "\n\n".join(each.item.text for each in shown)
    text = "\n\n".join(part for part in (search.heading, body, search.ending, note) if part)
    if left_out:
        anchors = replace(
            anchors, notes=(*anchors.notes, "items were left out: the context is longer than fits")
        )
    found = _positions(kept)
    return Retrieval(
        query=query,
        route=route_query(query, settings.retrieval),
        anchors=anchors,
        ranked=tuple(
            RankedRound(position=position, score=each.score, ranks={}, units=(each.item.id,))
            for each in search.found
            for position in each.item.positions
        ),
        context=Context(
            blocks=tuple(_block(each.item) for each in shown),
            found=found,
            dropped=tuple(p for p in _positions(search.found) if p not in found),
            note=note,
            text=text,
            tokens=count(text),
        ),
        seconds=search.seconds,
    )


def _budget(settings: Settings, question_tokens: int) -> int:
    window = settings.llm.window if settings.llm.provider != "none" else None
    if window is None:
        return settings.answer.context_tokens
    room = window - settings.answer.max_tokens - PROMPT_TOKENS - question_tokens
    return max(1, min(settings.answer.context_tokens, room))


def _fit(found: Sequence[Found], tokens: Sequence[int], budget: int) -> tuple[Found, ...]:
    used = 0
    for number, each in enumerate(tokens):
        used += each
        if number and used > budget:
            return tuple(found[:number])
    return tuple(found)


def _positions(found: Sequence[Found]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(p for each in found for p in each.item.positions))


def _block(item: Item) -> Block:
    return Block(session=item.session, time=item.time, positions=item.positions, text=item.text)
