"""What can be asked of the catalogue and of the round log (section 3.4) without changing them."""

from collections.abc import Collection

import sqlalchemy as sa

from vmem.stores import statements
from vmem.stores.checks import is_memory_id, is_round_id
from vmem.stores.database import Database
from vmem.stores.records import Bank, Changes, MemoryInfo, to_bank, to_info
from vmem.stores.round_json import round_from_json
from vmem.stores.tables import BANKS, LOOSE_MEDIA, MEDIA, MEMORIES, ROUNDS
from vmem.types import Round

_LAST = "\U0010ffff"
"""Sorts after every character that a memory's id may hold."""


class LogReader:
    """The reading half of `vmem.stores.catalogue.Catalogue`.

    Args:
        url: A SQLAlchemy URL, such as `sqlite:///catalogue.sqlite3`.
        busy_timeout_s: Seconds to wait for another writer.

    Raises:
        ConfigError: The URL cannot be used.
        StoreError: The database cannot be opened, or its tables are of another version.
    """

    def __init__(self, url: str, busy_timeout_s: float = 30.0) -> None:
        self._database = Database(url, busy_timeout_s)

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def bank(self, name: str) -> Bank | None:
        """A bank's record, or None."""
        return next((bank for bank in self.banks() if bank.name == name), None)

    def banks(self) -> list[Bank]:
        """All banks, by name."""
        with self._database.reading("list banks") as connection:
            rows = connection.execute(sa.select(BANKS)).mappings().all()
        return sorted((to_bank(row) for row in rows), key=lambda bank: bank.name)

    def memories(self, bank: str) -> list[MemoryInfo]:
        """All memories of a bank, by id; none where there is no such bank."""
        with self._database.reading(f"list the memories of bank {bank}") as connection:
            query = sa.select(MEMORIES).where(MEMORIES.c.bank == bank)
            rows = connection.execute(query).mappings().all()
        return sorted((to_info(row) for row in rows), key=lambda info: info.id)

    def counts(self, bank: str) -> tuple[int, int]:
        """How many memories a bank has, and how many rounds they hold together; gaps are none."""
        held = MEMORIES.c.rounds - MEMORIES.c.erased
        query = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(held), 0))
        with self._database.reading(f"count the memories of bank {bank}") as connection:
            memories, rounds = connection.execute(query.where(MEMORIES.c.bank == bank)).one()
        return int(memories), int(rounds)

    def memories_page(
        self, bank: str, prefix: str, after: str = "", limit: int = 100
    ) -> list[MemoryInfo]:
        """Memories by id (by code point), those that come after an id.

        Args:
            bank: The bank.
            prefix: What their ids start with, letter for letter; the empty one means the ids
                that hold no slash.
            after: The last id of the page before.
            limit: Memories at most.
        """
        with self._database.reading(f"list memories of bank {bank}") as connection:
            id_ = self._database.by_code_point(MEMORIES.c.id)
            query = sa.select(MEMORIES).where(MEMORIES.c.bank == bank, id_ > after)
            if prefix:
                query = query.where(id_ >= prefix, id_ < prefix + _LAST)
            else:
                query = query.where(sa.not_(MEMORIES.c.id.contains("/")))
            rows = connection.execute(query.order_by(id_).limit(limit)).mappings().all()
        return [to_info(row) for row in rows]

    def memory(self, bank: str, memory_id: str) -> MemoryInfo:
        """One memory.

        Raises:
            UnknownMemoryError: There is no such memory.
        """
        with self._database.reading(f"look up memory {memory_id!r}") as connection:
            return statements.find(connection, bank, memory_id)

    def rounds(
        self, bank: str, memory_id: str, after_version: int = 0, up_to_version: int | None = None
    ) -> tuple[Round, ...]:
        """Rounds by position: all of them, or those that came after one version up to another.

        An erased round is a gap, a round without turns, that came with its erasure's version.

        Raises:
            UnknownMemoryError: There is no such memory.
        """
        with self._database.reading(f"read the rounds of memory {memory_id!r}") as connection:
            info = statements.find(connection, bank, memory_id)
            query = (
                sa.select(ROUNDS.c.payload)
                .where(*statements.of_memory(ROUNDS, info), ROUNDS.c.version > after_version)
                .order_by(ROUNDS.c.position)
            )
            if up_to_version is not None:
                query = query.where(ROUNDS.c.version <= up_to_version)
            payloads = connection.scalars(query).all()
        return tuple(round_from_json(payload) for payload in payloads)

    def rounds_page(
        self, bank: str, memory_id: str, after_position: int = -1, limit: int = 100
    ) -> tuple[Round, ...]:
        """Rounds by position, those that come after one; gaps are left out.

        Raises:
            UnknownMemoryError: There is no such memory.
        """
        with self._database.reading(f"read rounds of memory {memory_id!r}") as connection:
            info = statements.find(connection, bank, memory_id)
            query = (
                sa.select(ROUNDS.c.payload)
                .where(*statements.of_memory(ROUNDS, info), sa.not_(ROUNDS.c.erased))
                .where(ROUNDS.c.position > after_position)
                .order_by(ROUNDS.c.position)
                .limit(limit)
            )
            payloads = connection.scalars(query).all()
        return tuple(round_from_json(payload) for payload in payloads)

    def round(self, bank: str, memory_id: str, round_id: str) -> Round:
        """One round.

        Raises:
            UnknownMemoryError: There is no such memory.
            UnknownRoundError: It has no such round, or the round was erased.
        """
        with self._database.reading(f"read a round of memory {memory_id!r}") as connection:
            info = statements.find(connection, bank, memory_id)
            return statements.find_round(connection, info, round_id)

    def changes(self, bank: str, memory_id: str, after_version: int = 0) -> Changes:
        """What a reader that knows a memory at one version lacks of what is indexed.

        Rounds that wait for the index are left out with all that follow them; a gap has nothing
        to be indexed, so it shows at once.

        Raises:
            UnknownMemoryError: There is no such memory.
        """
        with self._database.reading(f"read the rounds of memory {memory_id!r}") as connection:
            info = statements.find(connection, bank, memory_id)
            waiting = ROUNDS.alias()
            first_waiting = (
                sa.select(sa.func.min(waiting.c.position))
                .where(waiting.c.bank == bank, waiting.c.memory_id == memory_id)
                .where(waiting.c.version > info.indexed_version, sa.not_(waiting.c.erased))
                .scalar_subquery()
            )
            query = (
                sa.select(ROUNDS.c.payload)
                .where(*statements.of_memory(ROUNDS, info), ROUNDS.c.version > after_version)
                .where(ROUNDS.c.position < sa.func.coalesce(first_waiting, info.rounds))
                .order_by(ROUNDS.c.position)
            )
            payloads = connection.scalars(query).all()
        return Changes(info=info, rounds=tuple(round_from_json(payload) for payload in payloads))

    def bank_digest(self, bank: str) -> str:
        """SHA-256 in hex over all memories and their rounds; see `dialogues_digest`."""
        with self._database.reading(f"read the digests of bank {bank}") as connection:
            return statements.bank_digest(connection, bank)

    def image_digests(self, among: Collection[str] | None = None) -> set[str]:
        """Digests of pictures and voice messages that any round of any bank speaks of.

        Args:
            among: Only these are looked for; None is all.
        """
        query = sa.select(MEDIA.c.digest).distinct()
        if among is not None:
            query = query.where(MEDIA.c.digest.in_(sorted(among)))
        with self._database.reading("list pictures") as connection:
            return set(connection.scalars(query))

    def loose_media(self, bank: str) -> list[str]:
        """Digests of pictures and voice messages whose files may be there for no round.

        They were erased, or an append that wrote them did not come to the log.
        """
        query = sa.select(LOOSE_MEDIA.c.digest).where(LOOSE_MEDIA.c.bank == bank)
        with self._database.reading("list erased pictures") as connection:
            return sorted(connection.scalars(query))

    def has_image(self, bank: str, memory_id: str, digest: str) -> bool:
        """Whether a round of the memory holds a picture, or a voice message, of this digest."""
        query = sa.select(MEDIA.c.digest).where(
            MEDIA.c.bank == bank, MEDIA.c.memory_id == memory_id, MEDIA.c.digest == digest
        )
        if not (is_memory_id(memory_id) and is_round_id(digest)):
            return False
        with self._database.reading("look for a picture") as connection:
            return connection.execute(query.limit(1)).first() is not None
