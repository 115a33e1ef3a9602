"""Omni-SimpleMem's units as they were said, and the messages that its windows are made of."""

from dataclasses import dataclass

from vmem.baselines.found import Item
from vmem.rounds import ROLES, turn_text
from vmem.types import Dialogue, Round, Turn

LONGEST_TEXT = 10_000
SHORTEST_TEXT = 10
"""Characters of a unit, by the public code's text processor."""
RECENT, RECENT_CHARACTERS, KNOWN_SHARE = 50, 200, 0.8
"""A text that shares more than 0.8 of its words with one of the last 50 (their first 200
characters) is not kept; by the same processor, which spares statements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OmniUnit:
    """What is found, and what it is found by.

    Attributes:
        item: As the model sees it.
        searched: Its text without the header.
    """

    item: Item
    searched: str


def kept_turns(dialogue: Dialogue, counts: dict[str, int]) -> list[OmniUnit]:
    """Units as they were said: what one source id names, an exchange or a message.

    Args:
        dialogue: The conversation.
        counts: `dropped_short` and `dropped_known`, what the novelty gate left out, and
            `cut_texts` are put in.
    """
    units: list[OmniUnit] = []
    recent: list[frozenset[str]] = []
    counts |= {"dropped_short": 0, "dropped_known": 0, "cut_texts": 0}
    for round_ in dialogue.rounds:
        for source_id in round_.source_ids:
            turns = [turn for turn in round_.turns if turn.source_id == source_id]
            body = "\n".join(line for line in map(_said, turns) if line)
            if len(body.strip()) < SHORTEST_TEXT:
                counts["dropped_short"] += 1
                continue
            words = frozenset(body.lower().split())
            if any(len(words & old) > KNOWN_SHARE * len(words | old) for old in recent):
                counts["dropped_known"] += 1
                continue
            recent = [*recent, frozenset(body[:RECENT_CHARACTERS].lower().split())][-RECENT:]
            counts["cut_texts"] += len(body) > LONGEST_TEXT
            units.append(_unit(round_, source_id, body[:LONGEST_TEXT]))
    return units


def message_lines(dialogue: Dialogue) -> list[str]:
    """Messages as a window shows them: date, speaker, words, captions; none without words."""
    said = [(round_, turn_text(turn)) for round_ in dialogue.rounds for turn in round_.turns]
    return [f"[{round_.time.replace('T', ' ')}] {text}" for round_, text in said if text]


def _unit(round_: Round, source_id: str, body: str) -> OmniUnit:
    header = f"DATE:{round_.time[:10]} | SESSION:{round_.session} | TURN:{source_id}"
    item = Item(
        id=source_id,
        text=f"{header}\n{body}",
        positions=(round_.position,),
        session=round_.session,
        time=round_.time,
    )
    return OmniUnit(item=item, searched=body)


def _said(turn: Turn) -> str:
    line = turn_text(turn, show_ids=True)
    return f"{turn.speaker}: {line}" if line and turn.speaker in ROLES else line
