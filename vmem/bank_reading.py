"""Reading a bank: a memory as its log has it, as far as the index has followed.

The log is the truth, the index follows it. Any number of processes read a bank beside its one
writer. A reader asks the log for a memory's version first, so that it finds every acknowledged
round without a word from the writer; where it is the writer itself, it heals first.
"""

import logging
import threading
from contextlib import AbstractContextManager

from vmem.bank_stores import BankStores
from vmem.config import Settings
from vmem.errors import (
    EncoderError,
    InputError,
    StoreError,
    UnknownMemoryError,
    VectorError,
    VmemError,
)
from vmem.pipeline import Parts, ask, check_query, retrieve
from vmem.ports import SearchableMemory
from vmem.stores.catalogue import MemoryInfo
from vmem.stores.held import CacheCounts, Held, HeldMemories
from vmem.stores.media import drop_loose_media
from vmem.types import Answer, Query, Retrieval, Round

_log = logging.getLogger(__name__)

ATTEMPTS = 5
"""Reads of a memory that changes while it is read."""


class ReadBank(BankStores):
    """The reading half of `vmem.bank.Bank`, with the healing that its writer reads behind.

    Args:
        settings: Store, encoders, retrieval, backbone.
        writes: Whether this process is the bank's one writer, which heals what it reads.
        parts: Encoders, backbone and prompts, where they are not those that the settings name.

    Raises:
        ConfigError, StoreError: The catalogue or the image folder cannot be opened.
    """

    def __init__(self, settings: Settings, writes: bool = True, parts: Parts | None = None) -> None:
        super().__init__(settings, writes, parts)
        self._held = HeldMemories(settings.store.hot_units)
        self._writing = threading.RLock()

    def reload(self) -> None:
        """Forget what was read of the bank; a build calls this after its switch."""
        super().reload()
        self._held.clear()

    @property
    def cache(self) -> CacheCounts:
        """How often a memory was held when it was searched."""
        return self._held.counts

    def hot_counts(self) -> tuple[int, int]:
        """Memories held in process, and their units together."""
        return self._held.sizes()

    def memories(self) -> list[MemoryInfo]:
        """All memories of the bank."""
        return self.catalogue.memories(self.settings.store.bank)

    def rounds(self, memory_id: str) -> tuple[Round, ...]:
        """All rounds of a memory by position; where one was erased, a round without turns.

        Raises:
            UnknownMemoryError: There is no such memory.
        """
        return self.catalogue.rounds(self.settings.store.bank, memory_id)

    async def search(self, memory_id: str, query: Query) -> Retrieval:
        """Retrieve without answering.

        Raises:
            UnknownMemoryError, QueryError, ImageError, ModelUnavailableError.
        """
        check_query(query)
        return await retrieve(query, self.memory(memory_id), self.parts, self.settings)

    async def ask(self, memory_id: str, query: Query) -> Answer:
        """Retrieve and answer.

        Raises:
            ConfigError: No language model is configured.
            UnknownMemoryError, QueryError, ImageError, ModelError.
        """
        check_query(query)
        return await ask(query, self.memory(memory_id), self.parts, self.settings)

    def memory(self, memory_id: str) -> SearchableMemory:
        """A memory brought up to what is acknowledged of it, ready to be searched.

        Raises:
            UnknownMemoryError: There is no such memory.
            StoreError: The index lacks units that it once held; the writer's `heal` mends it.
        """
        return self.versioned(memory_id)[0]

    def versioned(self, memory_id: str) -> tuple[SearchableMemory, int]:
        """As `memory`, with the version that it shows."""
        held = self._held_now(memory_id)
        if held is None:
            with self._writing if self.writes else self._held.turn(memory_id):
                held = self._held_now(memory_id) or self._read(memory_id)
        return held.memory, held.version

    def _held_now(self, memory_id: str) -> Held | None:
        """The memory, where it is held as the log now has it."""
        info = self._info(memory_id)
        held = self._held.get(memory_id)
        if held is None or not held.shows(info):
            return None
        if self.writes and info.indexed_version < info.version:
            return None
        self._held.hit()
        return held

    def _info(self, memory_id: str) -> MemoryInfo:
        try:
            return self.catalogue.memory(self.settings.store.bank, memory_id)
        except UnknownMemoryError:
            self._held.drop(memory_id)
            raise

    def _read(self, memory_id: str) -> Held:
        """The memory from log and index: what came since it was held, or all of it."""
        if self.writes:
            self._heal_if_behind(memory_id)
        return self._read_on(memory_id) or self._read_whole(memory_id)

    def _read_on(self, memory_id: str) -> Held | None:
        """A held memory with what came since; None where more than that has changed."""
        held = self._held.get(memory_id)
        if held is None:
            return None
        changes = self.catalogue.changes(self.settings.store.bank, memory_id, held.version)
        end = len(held.memory.rounds)
        follows = all(r.position == end + n for n, r in enumerate(changes.rounds))
        if changes.info.created_at != held.created_at or not follows:
            return None
        memory = self.index().extend(held.memory, memory_id, changes.rounds)
        return self._held.extend(memory_id, memory, changes.info) if memory else None

    def _read_whole(self, memory_id: str) -> Held:
        """A memory read whole, anew where its rounds or collections change while it is read."""
        for _ in range(ATTEMPTS):
            changes = self.catalogue.changes(self.settings.store.bank, memory_id)
            index = self.index()
            try:
                if self.writes and not index.is_whole(memory_id, changes.rounds):
                    index.heal(memory_id, changes.rounds)
                memory = index.load(memory_id, changes.rounds)
            except StoreError:
                if self.index() is index:
                    raise
                continue  # a build dropped the collection that was read
            if memory is not None:
                return self._held.load(memory_id, memory, changes.info)
        raise StoreError(
            f"the index of bank {self.settings.store.bank} lacks units of memory {memory_id} that"
            " are in its log; let the bank's writer heal it"
        )

    def heal(self, memory_id: str) -> None:
        """Make the index, and the pictures, hold exactly what the log says of a memory.

        Raises:
            UnknownMemoryError: There is no such memory.
            ImageError, EncoderError, VectorError: A round can no longer be encoded.
        """
        with self._as_writer():
            name = self.settings.store.bank
            info = self.catalogue.memory(name, memory_id)
            drop_loose_media(name, self.media, self.catalogue)
            self.index().heal(memory_id, self.rounds(memory_id))
            self.catalogue.mark_indexed(name, memory_id, info.version)

    def heal_all(self) -> dict[str, VmemError]:
        """Heal every memory whose index is behind its log: what a writer does when it starts.

        What an erasure or an append that a crash cut off left in the image folder goes as well.

        Returns:
            The memories that cannot be healed, with the reason; it is logged as well.

        Raises:
            StoreError: A store cannot be reached.
        """
        failed: dict[str, VmemError] = {}
        with self._as_writer():
            drop_loose_media(self.settings.store.bank, self.media, self.catalogue)
            behind = [info for info in self.memories() if info.indexed_version < info.version]
            for info in behind:
                try:
                    self.heal(info.id)
                except (InputError, EncoderError, VectorError) as error:
                    failed[info.id] = error
                    _log.warning("the index of memory %s cannot be healed: %s", info.id, error)
        return failed

    def _heal_if_behind(self, memory_id: str) -> None:
        info = self.catalogue.memory(self.settings.store.bank, memory_id)
        if info.indexed_version < info.version:
            self.heal(memory_id)

    def _as_writer(self) -> AbstractContextManager[object]:
        """The lock that every change takes.

        Raises:
            StoreError: The bank was opened to read.
        """
        if not self.writes:
            raise StoreError("this bank was opened to read; its one writer changes it")
        return self._writing
