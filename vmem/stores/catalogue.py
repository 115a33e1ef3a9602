"""Catalogue of banks and memories, and the append-only log of their rounds (section 3.4).

The log is the truth: a round is acknowledged once it is here, and an index can be made anew from
it. Versions of a memory only grow, also when it is erased and made again or replaced by a build,
so that nobody who compares versions takes a new memory for an old one of the same name.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Unpack

import sqlalchemy as sa

from vmem.errors import RoundConflictError, StoreError
from vmem.stores import statements
from vmem.stores.checks import check_dialogues, check_memory_id, check_round
from vmem.stores.log_reader import LogReader
from vmem.stores.records import (
    Appended,
    Bank,
    BankChanges,
    Changes,
    Erased,
    MemoryInfo,
    bank_values,
    check_same_encoders,
)
from vmem.stores.round_json import (
    dialogues_digest,
    round_digest,
    round_from_json,
    round_to_json,
)
from vmem.stores.tables import BANKS, LOOSE_MEDIA, MEDIA, MEMORIES
from vmem.types import Dialogue, Round

__all__ = [
    "Appended",
    "Bank",
    "BankChanges",
    "Catalogue",
    "Changes",
    "Erased",
    "MemoryInfo",
    "check_memory_id",
    "dialogues_digest",
    "round_digest",
    "round_from_json",
    "round_to_json",
]


class Catalogue(LogReader):
    """Banks, memories and rounds in SQLite or PostgreSQL; safe for several processes.

    Every method may raise StoreBusyError (another writer did not finish in time) and StoreError
    (the database cannot be reached, is damaged, or its disk is full).

    Args:
        url: A SQLAlchemy URL, such as `sqlite:///catalogue.sqlite3`.
        busy_timeout_s: Seconds to wait for another writer.

    Raises:
        ConfigError: The URL cannot be used.
        StoreError: The database cannot be opened, or its tables are of another version.
    """

    def ensure_bank(self, bank: Bank) -> Bank:
        """Create a bank, or return the record of the one that has its name.

        Raises:
            EncoderMismatchError: It was made with other encoders or unit settings.
        """
        held = self.bank(bank.name)
        if held is None:
            with self._database.writing(f"create bank {bank.name}") as connection:
                statements.insert_if_missing(connection, BANKS, bank_values(bank))
            held = self.bank(bank.name) or bank
        check_same_encoders(held, bank)
        return held

    def update_bank(self, name: str, **changes: Unpack[BankChanges]) -> None:
        """Change a bank's record.

        Raises:
            StoreError: There is no such bank.
        """
        with self._database.writing(f"change bank {name}") as connection:
            statements.lock_bank(connection, name)
            statements.update_bank(connection, name, dict(changes))

    def create_memory(self, bank: str, memory_id: str) -> MemoryInfo:
        """Make an empty memory, or return the one that has its id.

        Raises:
            DataError: The id cannot name a memory.
            StoreError: There is no such bank.
        """
        check_memory_id(memory_id)
        with self._database.writing(f"create memory {memory_id}") as connection:
            return statements.lock_or_create(connection, bank, memory_id)

    def append(self, bank: str, memory_id: str, rounds: Sequence[Round]) -> Appended:
        """Add rounds at the end of a memory, all or none; a memory that is missing is made.

        Positions go on from the end, whatever positions the rounds come with. A round that is
        there already, by id and content, is no change.

        Raises:
            RoundConflictError: A round id is taken by a round of other content, or by one that was
                erased.
            DataError: The memory's id, or a round's id, session or time cannot be kept.
            StoreError: There is no such bank.
        """
        check_memory_id(memory_id)
        digests = [round_digest(check_round(round_)) for round_ in rounds]
        with self._database.writing(f"append to memory {memory_id}") as connection:
            info = statements.lock_or_create(connection, bank, memory_id)
            known = statements.known_digests(connection, info, [round_.id for round_ in rounds])
            added: list[Round] = []
            for round_, digest in zip(rounds, digests, strict=True):
                if round_.id not in known:
                    known[round_.id] = digest
                    added.append(replace(round_, position=info.rounds + len(added)))
                elif known[round_.id] != digest:
                    raise _conflict(memory_id, round_.id, erased=known[round_.id] is None)
            version = info.version
            if added:
                version += 1
                statements.insert_rounds(connection, info, added, version)
            held = {digest for round_ in rounds for digest in statements.media_digests(round_)}
            statements.forget_loose_media(connection, bank, held)
        return Appended(
            version=version,
            added=tuple(added),
            unchanged=len(rounds) - len(added),
            behind=info.indexed_version < info.version,
        )

    def erase_round(self, bank: str, memory_id: str, round_id: str) -> Erased:
        """Take what a round says out of the log; a gap stays in its place.

        The gap keeps id, session, time and position, so no other round moves, and the id cannot
        be used again. The memory's version grows.

        Raises:
            UnknownMemoryError: There is no such memory.
            UnknownRoundError: It has no such round, or the round was erased before.
        """
        with self._database.writing(f"erase a round of memory {memory_id!r}") as connection:
            info = statements.find(connection, bank, memory_id, lock=True)
            return statements.erase_round(connection, info, round_id)

    def mark_indexed(self, bank: str, memory_id: str, version: int) -> None:
        """Note that the index holds a memory's rounds up to a version; it never goes back.

        Raises:
            UnknownMemoryError: There is no such memory.
            StoreError: The memory has not come to that version.
        """
        with self._database.writing(f"mark memory {memory_id!r} as indexed") as connection:
            info = statements.find(connection, bank, memory_id, lock=True)
            if version > info.version:
                raise StoreError(
                    f"memory {memory_id} is at version {info.version}, so version {version} "
                    "cannot be indexed; was it erased meanwhile?"
                )
            statements.update_memory(
                connection, info, indexed_version=max(version, info.indexed_version)
            )

    def mark_unindexed(self, bank: str, memory_id: str) -> None:
        """Note that the index is about to lose a memory: unless it is erased, it must be healed.

        Raises:
            UnknownMemoryError: There is no such memory.
        """
        with self._database.writing(f"mark memory {memory_id!r} as unindexed") as connection:
            info = statements.find(connection, bank, memory_id, lock=True)
            statements.update_memory(connection, info, version=info.version + 1)

    def delete_memory(self, bank: str, memory_id: str) -> None:
        """Erase a memory with its rounds.

        Raises:
            UnknownMemoryError: There is no such memory.
        """
        with self._database.writing(f"erase memory {memory_id!r}") as connection:
            statements.find(connection, bank, memory_id)
            first = statements.lock_bank(connection, bank)
            info = statements.find(connection, bank, memory_id, lock=True)
            statements.note_loosened_media(connection, *statements.of_memory(MEDIA, info))
            connection.execute(sa.delete(MEMORIES).where(*statements.is_memory(info)))
            statements.update_bank(
                connection, bank, {"first_version": max(first, info.version + 1)}
            )

    def note_loose_media(self, bank: str, digest: str) -> None:
        """Note a picture or voice message whose file is about to be written; see `loose_media`.

        The append that brings it into the log drops the note.
        """
        with self._database.writing(f"note a picture of bank {bank}") as connection:
            row = {"bank": bank, "digest": digest}
            statements.insert_if_missing(connection, LOOSE_MEDIA, row)

    def forget_loose_media(self, bank: str, digests: Collection[str]) -> None:
        """Note that files which `loose_media` names are gone, or held by a round again."""
        with self._database.writing(f"forget pictures of bank {bank}") as connection:
            statements.forget_loose_media(connection, bank, digests)

    def replace_bank(
        self,
        bank: str,
        dialogues: Sequence[Dialogue],
        *,
        text_collection: str,
        image_collection: str,
        manifest_digest: str,
        expected_digest: str | None = None,
    ) -> None:
        """Make a bank hold exactly these dialogues, all of them indexed, in one step.

        Args:
            bank: The bank.
            dialogues: What it is to hold; positions count from 0.
            text_collection: Where their text units are.
            image_collection: Where their image units are.
            manifest_digest: The build's manifest.
            expected_digest: The bank's digest when the build looked at it; a bank that has
                changed since then is left alone. None replaces whatever is there.

        Raises:
            DataError: A dialogue's id cannot name a memory, or two dialogues or rounds share one.
            StoreError: There is no such bank, or it is not the one expected.
        """
        check_dialogues(dialogues)
        with self._database.writing(f"replace bank {bank}") as connection:
            version = statements.lock_bank(connection, bank)
            held = sa.select(MEMORIES.c.version).where(MEMORIES.c.bank == bank).with_for_update()
            version = max(version, *(v + 1 for v in connection.scalars(held)), 1)
            if expected_digest not in {None, statements.bank_digest(connection, bank)}:
                raise StoreError(
                    f"bank {bank} was appended to while it was built; run the build again"
                )
            connection.execute(sa.delete(MEMORIES).where(MEMORIES.c.bank == bank))
            for dialogue in dialogues:
                info = statements.insert_memory(connection, bank, dialogue.id, version)
                statements.insert_rounds(connection, info, dialogue.rounds, version)
                statements.update_memory(
                    connection, info, indexed_version=version, built_version=version
                )
            changes = {
                "text_collection": text_collection,
                "image_collection": image_collection,
                "manifest_digest": manifest_digest,
                "first_version": version,
            }
            statements.update_bank(connection, bank, changes)


def _conflict(memory_id: str, round_id: str, *, erased: bool) -> RoundConflictError:
    if erased:
        return RoundConflictError(
            f"the round {round_id} of memory {memory_id} was erased and its id stays taken; give "
            "the new one another id"
        )
    return RoundConflictError(
        f"memory {memory_id} has a round {round_id} of other content; rounds never change, so "
        "give the new one another id"
    )
