"""What the catalogue asks of its tables; each runs inside a caller's transaction."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from vmem.errors import StoreError, UnknownMemoryError, UnknownRoundError
from vmem.stores.checks import is_memory_id, is_round_id
from vmem.stores.images import stored_digest
from vmem.stores.records import Erased, MemoryInfo, to_info
from vmem.stores.round_json import (
    combined_digest,
    round_digest,
    round_from_json,
    round_to_json,
)
from vmem.stores.tables import BANKS, LOOSE_MEDIA, MEDIA, MEMORIES, NAME_LENGTH, ROUNDS
from vmem.types import Round

_PARAMETERS = 500  # of one statement; SQLite and PostgreSQL both have a limit


def is_memory(info: MemoryInfo) -> tuple[sa.ColumnElement[bool], ...]:
    """Conditions for the memory's own row."""
    return MEMORIES.c.bank == info.bank, MEMORIES.c.id == info.id


def of_memory(table: sa.Table, info: MemoryInfo) -> tuple[sa.ColumnElement[bool], ...]:
    """Conditions for rows of a table that belong to the memory."""
    return table.c.bank == info.bank, table.c.memory_id == info.id


def _select_memory(
    connection: sa.Connection, bank: str, memory_id: str, *, lock: bool
) -> MemoryInfo | None:
    if not is_memory_id(memory_id):
        return None
    query = sa.select(MEMORIES).where(MEMORIES.c.bank == bank, MEMORIES.c.id == memory_id)
    row = connection.execute(query.with_for_update() if lock else query).mappings().one_or_none()
    return None if row is None else to_info(row)


def find(connection: sa.Connection, bank: str, memory_id: str, *, lock: bool = False) -> MemoryInfo:
    """The memory; with `lock` nobody else changes it until the transaction ends.

    Raises:
        UnknownMemoryError: There is no such memory.
    """
    info = _select_memory(connection, bank, memory_id, lock=lock)
    if info is None:
        query = sa.select(MEMORIES.c.id).where(MEMORIES.c.bank == bank).limit(6)
        known = sorted(connection.scalars(query.order_by(MEMORIES.c.id)))
        names = ", ".join(known[:5]) + (", ..." if len(known) > 5 else "")
        raise UnknownMemoryError(
            f"bank {bank} has no memory {memory_id[:NAME_LENGTH]!r}; "
            + (f"it has {names}" if known else "it has none yet")
        )
    return info


def lock_or_create(connection: sa.Connection, bank: str, memory_id: str) -> MemoryInfo:
    """The memory, made where it is missing, and held until the transaction ends.

    Raises:
        StoreError: There is no such bank.
    """
    info = _select_memory(connection, bank, memory_id, lock=True)
    if info is None:
        query = sa.select(BANKS.c.first_version).where(BANKS.c.name == bank)
        first = connection.scalar(query)
        if first is None:
            raise _no_bank(connection, bank)
        insert_memory(connection, bank, memory_id, first)
        info = find(connection, bank, memory_id, lock=True)
    return info


def lock_bank(connection: sa.Connection, name: str) -> int:
    """The version that its next new memory starts at; the bank is held until the end.

    Raises:
        StoreError: There is no such bank.
    """
    query = sa.select(BANKS.c.first_version).where(BANKS.c.name == name).with_for_update()
    first = connection.scalar(query)
    if first is None:
        raise _no_bank(connection, name)
    return int(first)


def _no_bank(connection: sa.Connection, name: str) -> StoreError:
    known = ", ".join(sorted(connection.scalars(sa.select(BANKS.c.name)))) or "none"
    return StoreError(f"there is no bank {name}; known: {known}")


def update_bank(connection: sa.Connection, name: str, changes: dict[str, Any]) -> None:
    """Set columns of a bank's row."""
    if changes:
        connection.execute(sa.update(BANKS).where(BANKS.c.name == name).values(changes))


def update_memory(connection: sa.Connection, info: MemoryInfo, **values: int) -> None:
    """Set columns of a memory's row."""
    connection.execute(sa.update(MEMORIES).where(*is_memory(info)).values(values))


def insert_memory(connection: sa.Connection, bank: str, memory_id: str, version: int) -> MemoryInfo:
    """Make an empty memory, unless another process was first."""
    info = MemoryInfo(
        bank=bank,
        id=memory_id,
        rounds=0,
        images=0,
        version=version,
        indexed_version=version,
        built_version=0,
        created_at=datetime.now(UTC),
        erased=0,
    )
    values = {name: getattr(info, name) for name in MEMORIES.c.keys()}  # noqa: SIM118
    values["created_at"] = info.created_at.replace(tzinfo=None)
    insert_if_missing(connection, MEMORIES, values)
    return info


def insert_if_missing(connection: sa.Connection, table: sa.Table, values: dict[str, Any]) -> None:
    """Insert a row; one that another process inserted meanwhile stays as it is."""
    try:
        with connection.begin_nested():
            connection.execute(sa.insert(table).values(values))
    except IntegrityError:
        return


def known_digests(
    connection: sa.Connection, info: MemoryInfo, ids: Sequence[str]
) -> dict[str, str | None]:
    """Digests by id, of those of the ids that the memory has; None for an erased round's."""
    known: dict[str, str | None] = {}
    for start in range(0, len(ids), _PARAMETERS):
        query = sa.select(ROUNDS.c.round_id, ROUNDS.c.digest, ROUNDS.c.erased).where(
            *of_memory(ROUNDS, info), ROUNDS.c.round_id.in_(ids[start : start + _PARAMETERS])
        )
        for row in connection.execute(query):
            known[row.round_id] = None if row.erased else row.digest
    return known


def insert_rounds(
    connection: sa.Connection, info: MemoryInfo, rounds: Sequence[Round], version: int
) -> None:
    """Insert rounds of consecutive positions, and bring the memory's own row up to them."""
    whose = {"bank": info.bank, "memory_id": info.id}
    rows = [
        {
            **whose,
            "position": round_.position,
            "round_id": round_.id,
            "session": round_.session,
            "time": round_.time,
            "payload": round_to_json(round_),
            "digest": round_digest(round_),
            "version": version,
            "erased": False,
        }
        for round_ in rounds
    ]
    media = [
        {**whose, "position": round_.position, "digest": digest}
        for round_ in rounds
        for digest in sorted(media_digests(round_))
    ]
    if rows:
        connection.execute(sa.insert(ROUNDS), rows)
    if media:
        connection.execute(sa.insert(MEDIA), media)
    update_memory(
        connection,
        info,
        rounds=info.rounds + len(rows),
        images=info.images + sum(len(round_.images) for round_ in rounds),
        version=version,
    )


def media_digests(round_: Round) -> set[str]:
    """Digests of the pictures and voice messages that a round keeps in the store."""
    voices = {stored_digest(turn.audio) for turn in round_.turns if turn.audio}
    digests = {image.digest for image in round_.images} | voices
    return {digest for digest in digests if digest}


def find_round(connection: sa.Connection, info: MemoryInfo, round_id: str) -> Round:
    """One round of a memory.

    Raises:
        UnknownRoundError: There is no such round, or it was erased.
    """
    query = sa.select(ROUNDS.c.payload, ROUNDS.c.erased).where(
        *of_memory(ROUNDS, info), ROUNDS.c.round_id == round_id
    )
    row = connection.execute(query).one_or_none() if is_round_id(round_id) else None
    if row is None or row.erased:
        why = "no round" if row is None else "no more the round"
        raise UnknownRoundError(f"memory {info.id} has {why} {round_id[:NAME_LENGTH]!r}")
    return round_from_json(row.payload)


def erase_round(connection: sa.Connection, info: MemoryInfo, round_id: str) -> Erased:
    """Leave a gap where a round was, under a new version.

    Raises:
        UnknownRoundError: There is no such round, or it was erased.
    """
    round_ = find_round(connection, info, round_id)
    gap, version = replace(round_, turns=()), info.version + 1
    here = round_.position
    connection.execute(
        sa.update(ROUNDS)
        .where(*of_memory(ROUNDS, info), ROUNDS.c.position == here)
        .values(payload=round_to_json(gap), digest=round_digest(gap), version=version, erased=True)
    )
    note_loosened_media(connection, *of_memory(MEDIA, info), MEDIA.c.position == here)
    connection.execute(sa.delete(MEDIA).where(*of_memory(MEDIA, info), MEDIA.c.position == here))
    images = info.images - len(round_.images)
    update_memory(connection, info, version=version, images=images, erased=info.erased + 1)
    return Erased(version=version, round=round_)


def note_loosened_media(connection: sa.Connection, *which: sa.ColumnElement[bool]) -> None:
    """Note pictures and voice messages that are about to leave the log."""
    noted = sa.exists().where(
        LOOSE_MEDIA.c.bank == MEDIA.c.bank, LOOSE_MEDIA.c.digest == MEDIA.c.digest
    )
    leaving = sa.select(MEDIA.c.bank, MEDIA.c.digest).where(*which, ~noted).distinct()
    connection.execute(sa.insert(LOOSE_MEDIA).from_select(["bank", "digest"], leaving))


def forget_loose_media(connection: sa.Connection, bank: str, digests: Collection[str]) -> None:
    """Drop the note of pictures and voice messages that are held again, or whose files are gone."""
    chosen = sorted(digests)
    for start in range(0, len(chosen), _PARAMETERS):
        some = LOOSE_MEDIA.c.digest.in_(chosen[start : start + _PARAMETERS])
        connection.execute(sa.delete(LOOSE_MEDIA).where(LOOSE_MEDIA.c.bank == bank, some))


def bank_digest(connection: sa.Connection, bank: str) -> str:
    """SHA-256 in hex over the bank's memories, empty ones too, and their rounds in order."""
    query = (
        sa.select(ROUNDS.c.memory_id, ROUNDS.c.digest)
        .where(ROUNDS.c.bank == bank)
        .order_by(ROUNDS.c.memory_id, ROUNDS.c.position)
    )
    rows = connection.execute(query)
    digests = {
        memory_id: [row.digest for row in group]
        for memory_id, group in groupby(rows, key=lambda row: str(row.memory_id))
    }
    ids = connection.scalars(sa.select(MEMORIES.c.id).where(MEMORIES.c.bank == bank))
    return combined_digest([(memory_id, digests.get(memory_id, [])) for memory_id in ids])
