"""Rounds and their units (sections 3.2 and 3.4).

A round keeps its turns as they were said; its units are derived from them: one text unit a span,
one image unit an image, a caption unit beside it, and a voice message as a text unit of its own.
"""

from collections.abc import Sequence

from vmem.config import UnitSettings
from vmem.types import Image, Round, Turn, Unit, UnitKind

ROLES = {"user", "assistant"}
SPLIT_WORDS = 150
"""Words of a part of a long span: within 256 word pieces for ordinary English."""


def exchange(
    round_id: str,
    *,
    session: str,
    time: str,
    user: str = "",
    assistant: str = "",
    images: Sequence[Image] = (),
) -> Round:
    """A round of a user and an assistant, as a conversation appends them.

    Args:
        round_id: Its id, unique in its memory.
        session: The sitting it belongs to.
        time: ISO 8601, local.
        user: What the user says.
        assistant: What the assistant replies.
        images: What the user shares with it.
    """
    turns = (
        Turn(source_id=round_id, speaker="user", text=user, images=tuple(images)),
        Turn(source_id=round_id, speaker="assistant", text=assistant),
    )
    spoken = tuple(turn for turn in turns if turn.text or turn.images)
    return Round(id=round_id, position=0, session=session, time=time, turns=spoken)


def pair_turns(turns: Sequence[Turn]) -> list[tuple[Turn, ...]]:
    """The rounds of a session of two speakers: turns two by two, an odd last one alone."""
    return [tuple(turns[start : start + 2]) for start in range(0, len(turns), 2)]


def to_units(round_: Round, settings: UnitSettings) -> tuple[Unit, ...]:
    """The units of one round: a function of the round and the settings alone.

    Args:
        round_: The round.
        settings: Whether captions fold into the text, and long spans become several units.

    Returns:
        Text and audio units, then for each image its caption unit (where it has a caption) and
        its image unit.
    """
    spans = [
        part
        for turn in round_.turns
        for kind, text in _spans(turn, settings)
        for part in _parts(kind, text, settings)
    ]
    units = [
        _unit(round_, kind, number, text, None) for number, (kind, text) in enumerate(spans, 1)
    ]
    for number, image in enumerate(round_.images, 1):
        if image.caption:
            units.append(_unit(round_, UnitKind.CAPTION, number, image.caption, image))
        units.append(_unit(round_, UnitKind.IMAGE, number, image.caption, image))
    return tuple(units)


def turn_text(turn: Turn, *, fold_captions: bool = True, show_ids: bool = False) -> str:
    """A turn as one text: name, words, folded captions.

    Args:
        turn: The turn.
        fold_captions: Captions of the images shared join the text.
        show_ids: Images are named by id, as a context needs it; also those without caption.
    """
    marks = [
        _image_mark(image, show_ids)
        for image in turn.images
        if show_ids or (fold_captions and image.caption)
    ]
    body = " ".join(part for part in [turn.text.strip(), *marks] if part)
    return _named(turn, body) if body else ""


def _spans(turn: Turn, settings: UnitSettings) -> list[tuple[UnitKind, str]]:
    spans = []
    if text := turn_text(turn, fold_captions=settings.fold_captions):
        spans.append((UnitKind.TEXT, text))
    if turn.audio and turn.transcript:
        spans.append((UnitKind.AUDIO, _named(turn, audio_text(turn))))
    return spans


def audio_text(turn: Turn) -> str:
    """A voice message as it is stored and shown (section 3.4)."""
    return f"[Audio: {turn.transcript.strip()}]"


def _parts(kind: UnitKind, text: str, settings: UnitSettings) -> list[tuple[UnitKind, str]]:
    words = text.split()
    if not settings.split_long_spans or len(words) <= SPLIT_WORDS:
        return [(kind, text)]
    starts = range(0, len(words), SPLIT_WORDS)
    return [(kind, " ".join(words[start : start + SPLIT_WORDS])) for start in starts]


def _named(turn: Turn, body: str) -> str:
    return body if turn.speaker in ROLES else f"{turn.speaker}: {body}"


def _image_mark(image: Image, show_ids: bool) -> str:
    caption = f": {image.caption}" if image.caption else ""
    return f"[Image {image.id}{caption}]" if show_ids else f"[Image: {image.caption}]"


def _unit(round_: Round, kind: UnitKind, number: int, text: str, image: Image | None) -> Unit:
    return Unit(
        id=f"{round_.id}/{kind.value}/{number}",
        round_id=round_.id,
        position=round_.position,
        kind=kind,
        text=text,
        image=image,
    )


def show_round(
    round_: Round, unit_ids: tuple[str, ...] = (), settings: UnitSettings | None = None
) -> str:
    """A round as a context shows it, images by id.

    Args:
        round_: The round.
        unit_ids: Those units alone, bare; none is the whole round.
        settings: How the round became units, where that is not the default.
    """
    if unit_ids:
        kept = {unit.id: unit for unit in to_units(round_, settings or UnitSettings())}
        return "\n".join(_bare(kept[unit_id]) for unit_id in unit_ids if unit_id in kept)
    return "\n".join(line for turn in round_.turns if (line := _line(turn)))


def _line(turn: Turn) -> str:
    body = turn_text(turn, show_ids=True)
    if turn.audio and turn.transcript:
        body = f"{body} {audio_text(turn)}".strip()
    return f"{turn.speaker.capitalize()}: {body}" if body and turn.speaker in ROLES else body


def _bare(unit: Unit) -> str:
    if unit.image is None:
        return unit.text
    return _image_mark(unit.image, show_ids=True)
