"""Ranked rounds to context: neighbours, time-ordered blocks, budget (section 3.3, Table 13)."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from vmem.config import RetrievalSettings
from vmem.types import Block, Context, RankedRound, Round, Route

CountTokens = Callable[[str], int]
ShowRound = Callable[[Round, tuple[str, ...]], str]
"""A round as a text; with unit ids, only those units of it."""

CUT = " [cut]"
HEADER_TOKENS = 24
"""A block's date line, at most."""


def assemble(
    ranked: Sequence[RankedRound],
    rounds: Sequence[Round],
    route: Route,
    settings: RetrievalSettings,
    *,
    show: ShowRound,
    count_tokens: CountTokens,
    budget_tokens: int,
) -> Context:
    """Put the best rounds and their neighbours before the model.

    Neighbours never count against k. Where the whole is over the budget, the lowest-ranked rounds
    are dropped with their neighbours; what stays is then put in order. A single round that is
    still too long is cut at its end, and marked.

    Args:
        ranked: Rounds, best first.
        rounds: All rounds of the memory, by position.
        route: Aggregating routes get more rounds and no neighbours, where that is enabled.
        settings: k, window, placement, merging, level.
        show: A round as a text.
        count_tokens: A text's length in the backbone's tokens.
        budget_tokens: The context's limit.
    """
    if settings.level == "unit":
        chosen, placement = ranked[: settings.unit_budget], "none"
    elif settings.aggregation.enabled and route.aggregates:
        chosen, placement = ranked[: settings.aggregation.top_k], "none"
    else:
        chosen, placement = ranked[: settings.top_k], settings.placement
    units = _units_by_round(chosen)
    found = list(dict.fromkeys(item.position for item in chosen))
    cost = {}

    def tokens(position: int) -> int:
        if position not in cost:
            cost[position] = count_tokens(show(rounds[position], units.get(position, ())))
        return cost[position]

    kept, spans = _fit(found, len(rounds), settings, placement, tokens, budget_tokens)
    # A gap, where a round was erased, keeps its neighbours apart and shows nothing.
    spans = [seen for span in spans if (seen := tuple(p for p in span if rounds[p].turns))]
    blocks = tuple(_block(span, rounds, units, show) for span in spans)
    text = "\n\n".join(block.text for block in blocks)
    if len(kept) == 1 and count_tokens(text) > budget_tokens:
        text = _cut(text, count_tokens, budget_tokens)
        blocks = (replace(blocks[0], text=text),)
    return Context(
        blocks=blocks,
        found=tuple(kept),
        dropped=tuple(found[len(kept) :]),
        text=text,
        tokens=count_tokens(text),
    )


def _units_by_round(chosen: Sequence[RankedRound]) -> dict[int, tuple[str, ...]]:
    units: dict[int, tuple[str, ...]] = {}
    for item in chosen:
        units[item.position] = units.get(item.position, ()) + item.units
    return units


def _fit(
    found: list[int],
    total: int,
    settings: RetrievalSettings,
    placement: str,
    tokens: Callable[[int], int],
    budget_tokens: int,
) -> tuple[list[int], list[tuple[int, ...]]]:
    """The longest run of best rounds whose spans fit; the best alone always stays, bare."""
    for count in range(len(found), 0, -1):
        spans = _spans(found[:count], total, settings, placement)
        needed = sum(tokens(position) for span in spans for position in span)
        if needed + HEADER_TOKENS * len(spans) <= budget_tokens:
            return found[:count], spans
    return found[:1], [(position,) for position in found[:1]]


def _spans(
    found: Sequence[int], total: int, settings: RetrievalSettings, placement: str
) -> list[tuple[int, ...]]:
    """Positions of each block, in the order shown."""
    if placement == "none" or settings.window == 0:
        return [(position,) for position in sorted(found)]
    windows = {p: _window(p, total, settings.window) for p in found}
    if placement == "runs":
        ordered = [windows[p] for p in sorted(found)]
        return _merge(ordered) if settings.merge_overlaps else [tuple(w) for w in ordered]
    if placement == "tail":
        extra = {p for window in windows.values() for p in window} - set(found)
        return [(position,) for position in [*found, *sorted(extra)]]
    mixed = dict.fromkeys(q for p in found for q in [p, *(n for n in windows[p] if n != p)])
    return [(position,) for position in list(mixed)[: len(found)]]


def _window(position: int, total: int, size: int) -> range:
    return range(max(0, position - size), min(total, position + size + 1))


def _merge(windows: Sequence[range]) -> list[tuple[int, ...]]:
    merged: list[range] = []
    for window in windows:
        if merged and window.start < merged[-1].stop:
            merged[-1] = range(merged[-1].start, window.stop)
        else:
            merged.append(window)
    return [tuple(span) for span in merged]


def _block(
    span: tuple[int, ...],
    rounds: Sequence[Round],
    units: dict[int, tuple[str, ...]],
    show: ShowRound,
) -> Block:
    lines = []
    header = None
    for position in span:
        round_ = rounds[position]
        if header != (round_.session, round_.time[:10]):
            header = (round_.session, round_.time[:10])
            lines.append(f"[{round_.time[:10]}, {round_.session}]")
        lines.append(show(round_, units.get(position, ())))
    first = rounds[span[0]]
    return Block(session=first.session, time=first.time, positions=span, text="\n".join(lines))


def _cut(text: str, count_tokens: CountTokens, budget_tokens: int) -> str:
    """The longest beginning (by halving) that fits with its mark."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens(text[:middle] + CUT) <= budget_tokens:
            low = middle
        else:
            high = middle - 1
    return text[:low].rstrip() + CUT
