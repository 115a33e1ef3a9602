"""Rounds of a request as the service takes them: checked, with their files as `data:` URIs."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count

from serve.errors import LimitError, RequestError
from serve.media import Media
from serve.request_schemas import RoundIn, TurnIn
from serve.service import Service
from serve.settings import LimitSettings
from vmem.errors import RoundConflictError, UnknownRoundError
from vmem.stores.catalogue import Appended
from vmem.types import Image, Round, Turn


def local_now() -> str:
    """The server's local time in minutes."""
    return datetime.now(UTC).astimezone().replace(tzinfo=None).isoformat(timespec="minutes")


async def to_rounds(
    given: Sequence[RoundIn], media: Media, limits: LimitSettings
) -> tuple[Round, ...]:
    """The rounds of a request.

    Raises:
        LimitError: There are too many rounds or pictures, or a text is too long.
        RequestError: Two rounds share an id, or a text holds a NUL character.
        ImageError, AudioError: A file cannot be used.
    """
    if len(given) > limits.rounds_per_append:
        raise LimitError(f"One request may add {limits.rounds_per_append} rounds.")
    check_ids([round_.id for round_ in given])
    for number, round_ in enumerate(given):
        _check(round_, f"rounds.{number}", limits)
    now = local_now()
    return tuple(
        [await _round(round_, f"rounds.{n}", media, now) for n, round_ in enumerate(given)]
    )


async def append(
    service: Service, memory_id: str, given: Sequence[RoundIn], rounds: Sequence[Round]
) -> Appended:
    """Append, so that the same request again is no change although its time was left to us.

    Raises:
        As `Service.append`.
    """
    try:
        return await service.append(memory_id, rounds)
    except RoundConflictError:
        known = [
            await _as_known(service, memory_id, asked, round_)
            for asked, round_ in zip(given, rounds, strict=True)
        ]
        if known == list(rounds):
            raise
        return await service.append(memory_id, known)


def check_ids(ids: Sequence[str]) -> None:
    """Refuse two rounds of one id.

    Raises:
        RequestError: Two share one.
    """
    if len(set(ids)) < len(ids):
        raise RequestError("Two rounds of the request share an id: give each its own.")


def check_text(text: str, where: str, characters: int) -> None:
    """Refuse what a store cannot hold.

    Raises:
        LimitError: It is too long.
        RequestError: It holds a NUL character.
    """
    if len(text) > characters:
        raise LimitError(f"{where} has over {characters:,} characters.")
    if "\0" in text:
        raise RequestError(f"{where} holds a NUL character.")


async def _as_known(service: Service, memory_id: str, asked: RoundIn, round_: Round) -> Round:
    """A round with the time and session that the memory has, where the request left them out."""
    if asked.time is not None and asked.session is not None:
        return round_
    try:
        held = await service.round(memory_id, round_.id)
    except UnknownRoundError:
        return round_
    return replace(
        round_,
        time=round_.time if asked.time is not None else held.time,
        session=round_.session if asked.session is not None else held.session,
    )


def _check(round_: RoundIn, where: str, limits: LimitSettings) -> None:
    pictures = [image for turn in round_.spoken for image in turn.images]
    if len(pictures) > limits.images_per_round:
        raise LimitError(f"{where} has over {limits.images_per_round} pictures.")
    for turn in round_.spoken:
        check_text(turn.text, f"{where}: a text", limits.round_characters)
        check_text(turn.speaker, f"{where}: a speaker", limits.round_characters)
        if turn.audio:
            check_text(turn.audio.transcript, f"{where}: a transcript", limits.round_characters)
    for image in pictures:
        check_text(image.caption, f"{where}: a caption", limits.round_characters)


async def _round(given: RoundIn, where: str, media: Media, now: str) -> Round:
    numbers = count(1)
    time = given.time or now
    session = given.session if given.session is not None else time[:10]
    turns = [await _turn(turn, given.id, numbers, where, media) for turn in given.spoken]
    return Round(id=given.id, position=0, session=session, time=time, turns=tuple(turns))


async def _turn(
    given: TurnIn, round_id: str, numbers: "count[int]", where: str, media: Media
) -> Turn:
    images = []
    for image in given.images:
        number = next(numbers)
        uri = await media.picture(image, f"{where}: picture {number}")
        name = image.id or f"{round_id}:IMG_{number}"
        images.append(Image(id=name, uri=uri, caption=image.caption))
    voice = await media.voice(given.audio, f"{where}: voice message") if given.audio else None
    return Turn(
        source_id=round_id,
        speaker=given.speaker,
        text=given.text,
        images=tuple(images),
        audio=voice,
        transcript=given.audio.transcript if given.audio else "",
    )
