"""A bank of memories: append, search, ask, erase; the log is the truth, the index follows it.

One process writes a bank, and any number read it beside. A round is acknowledged once it is in
the log and in the index, and a reader shows what the index has followed the log to, so that it
finds every acknowledged round without a word from the writer.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from vmem.bank_index import delete_round_rows, row_keys
from vmem.bank_stores import BankStores, database_url, images_url
from vmem.config import Settings
from vmem.config import replace as replace_settings
from vmem.errors import (
    DataError,
    EncoderError,
    InputError,
    StoreError,
    UnknownMemoryError,
    UnknownRoundError,
    VectorError,
    VmemError,
)
from vmem.memory import EncodedUnits
from vmem.pipeline import Parts, ask, check_query, retrieve
from vmem.ports import SearchableMemory
from vmem.rounds import to_units
from vmem.stores.catalogue import Appended, MemoryInfo, check_memory_id
from vmem.stores.held import CacheCounts, Held, HeldMemories
from vmem.stores.media import drop_media, keep_media
from vmem.stores.unit_rows import MAX_BYTES
from vmem.types import Answer, Query, Retrieval, Round

__all__ = ["Bank", "database_url", "images_url", "open_bank"]

_log = logging.getLogger(__name__)

ATTEMPTS = 5
"""Reads of a memory that changes while it is read."""


class Bank(BankStores):
    """The open bank that the settings name; safe for several threads.

    A process that appends must be the bank's only writer. Searching reads the log's version
    first, so an acknowledged round is always found.

    Args:
        settings: Store, encoders, retrieval, backbone.
        writes: Whether this process is the writer. A reader changes nothing: it never appends,
            heals or creates a collection, and leaves out what is in the log only.
        parts: Encoders, backbone and prompts, where they are not those that the settings name.

    Raises:
        EncoderMismatchError: The bank was made with other encoders or unit settings.
        StoreBusyError: Another process holds the embedded store.
        StoreError: A server cannot be reached.
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

    def create(self, memory_id: str) -> MemoryInfo:
        """Make an empty memory, or return the one that is there.

        Raises:
            DataError: The id cannot name a memory.
        """
        with self._as_writer():
            check_memory_id(memory_id)
            return self.catalogue.create_memory(self.record.name, memory_id)

    def append(self, memory_id: str, rounds: Sequence[Round]) -> Appended:
        """Add rounds at the end of a memory, which is made where it does not exist.

        A round is acknowledged once it is in the log and in the index; a crash in between is
        healed with the memory's next append, or when its writer next opens it. The same round
        again is no change.

        Raises:
            RoundConflictError: A round id is taken by a round of other content, or was erased.
            DataError: A round has no content, or a span is too long for the index.
            ImageError, AudioError: A picture or voice message cannot be used.
        """
        (outcome,) = self.append_many([(memory_id, rounds)])
        if isinstance(outcome, VmemError):
            raise outcome
        return outcome

    def append_many(
        self, items: Sequence[tuple[str, Sequence[Round]]]
    ) -> list[Appended | VmemError]:
        """Several appends, each for itself as `append`, encoded and indexed together.

        What stops one of them stops no other, but for one case: once rounds are in the log, those
        of the same memory are acknowledged together or not at all.

        Args:
            items: Memory and rounds of each.

        Returns:
            For each what it did, or the error that `append` would raise.
        """
        with self._as_writer():
            bank = self.record.name
            outcomes = [self._to_log(bank, memory_id, rounds) for memory_id, rounds in items]
            logged: dict[str, list[Appended]] = {}
            for (memory_id, _), outcome in zip(items, outcomes, strict=True):
                if isinstance(outcome, Appended):
                    logged.setdefault(memory_id, []).append(outcome)
            errors = self._index_logged(logged)
        return [
            errors.get(memory_id, outcome) if isinstance(outcome, Appended) else outcome
            for (memory_id, _), outcome in zip(items, outcomes, strict=True)
        ]

    def erase_round(self, memory_id: str, round_id: str) -> int:
        """Erase a round: words, vectors, and pictures and voice messages that no other holds.

        A gap stays in its place, so its neighbours do not become each other's, and its id stays
        taken.

        Returns:
            The memory's new version.

        Raises:
            UnknownMemoryError, UnknownRoundError: There is no such memory or round.
        """
        with self._as_writer():
            name, store = self.settings.store.bank, self.store  # opened before the log changes
            try:
                erased = self.catalogue.erase_round(name, memory_id, round_id)
            except UnknownRoundError:
                self._heal_if_behind(memory_id)  # it may be the erasure before that went wrong
                raise
            self._held.drop(memory_id)
            try:
                if self.catalogue.memory(name, memory_id).indexed_version < erased.version - 1:
                    self.heal(memory_id)
                else:
                    delete_round_rows(store, self.stored_record(), memory_id, erased.round)
                    self.catalogue.mark_indexed(name, memory_id, erased.version)
            except VmemError as error:
                raise type(error)(
                    f"{error} (round {round_id} is gone from the log of {memory_id} and leaves the"
                    " index when it is erased again)"
                ) from error
            finally:
                drop_media([erased.round], self.media, self.catalogue)
        return erased.version

    def delete(self, memory_id: str) -> None:
        """Erase a memory: rounds, vectors, and pictures that no other memory holds.

        Raises:
            UnknownMemoryError: There is no such memory.
        """
        with self._as_writer():
            name = self.settings.store.bank
            rounds = self.rounds(memory_id)
            keys = row_keys(self.store, self.stored_record(), memory_id)
            self.catalogue.mark_unindexed(name, memory_id)  # a crash from here on can be healed
            for collection, ids in keys.items():
                self.store.delete(collection, ids)
            self.catalogue.delete_memory(name, memory_id)
            self._held.drop(memory_id)
            drop_media(rounds, self.media, self.catalogue)

    def heal(self, memory_id: str) -> None:
        """Make the index hold exactly what the log says of a memory.

        Raises:
            UnknownMemoryError: There is no such memory.
            ImageError, EncoderError, VectorError: A round can no longer be encoded.
        """
        with self._as_writer():
            name = self.settings.store.bank
            info = self.catalogue.memory(name, memory_id)
            self.index().heal(memory_id, self.rounds(memory_id))
            self.catalogue.mark_indexed(name, memory_id, info.version)

    def heal_all(self) -> dict[str, VmemError]:
        """Heal every memory whose index is behind its log: what a writer does when it starts.

        Returns:
            The memories that cannot be healed, with the reason; it is logged as well.

        Raises:
            StoreError: A store cannot be reached.
        """
        failed: dict[str, VmemError] = {}
        with self._as_writer():
            behind = [info for info in self.memories() if info.indexed_version < info.version]
            for info in behind:
                try:
                    self.heal(info.id)
                except (InputError, EncoderError, VectorError) as error:
                    failed[info.id] = error
                    _log.warning("the index of memory %s cannot be healed: %s", info.id, error)
        return failed

    def memories(self) -> list[MemoryInfo]:
        """All memories of the bank."""
        return self.catalogue.memories(self.settings.store.bank)

    def rounds(self, memory_id: str) -> tuple[Round, ...]:
        """All rounds of a memory by position; where one was erased, a round without turns.

        Raises:
            UnknownMemoryError: There is no such memory.
        """
        return self.catalogue.rounds(self.settings.store.bank, memory_id)

    def keep_media(self, round_: Round) -> Round:
        """The round with its pictures and voice messages in the store; see `keep_media`."""
        return keep_media(round_, self.media, self.parts.read_image, self.transcribe)

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

    def _heal_if_behind(self, memory_id: str) -> None:
        info = self.catalogue.memory(self.settings.store.bank, memory_id)
        if info.indexed_version < info.version:
            self.heal(memory_id)

    def _to_log(self, bank: str, memory_id: str, rounds: Sequence[Round]) -> Appended | VmemError:
        """Put rounds with their media into the log, all or none."""
        kept: list[Round] = []
        try:
            check_memory_id(memory_id)
            for round_ in rounds:
                kept.append(self.keep_media(round_))
            check_units(memory_id, kept, self.settings)
            return self.catalogue.append(bank, memory_id, kept)
        except VmemError as error:
            return self._taken_back(kept, error)

    def _taken_back(self, kept: Sequence[Round], error: VmemError) -> VmemError:
        """The error of an append, once what it put into the store is out again."""
        try:
            drop_media(kept, self.media, self.catalogue)
        except VmemError as left:
            return type(error)(f"{error} (and its pictures stay behind: {left})")
        return error

    def _index_logged(self, logged: Mapping[str, Sequence[Appended]]) -> dict[str, VmemError]:
        """Bring the index up to the log; returns the errors, by memory."""
        errors: dict[str, VmemError] = {}
        together: dict[str, list[Round]] = {}
        for memory_id, appends in logged.items():
            if appends[0].behind:
                try:
                    self.heal(memory_id)
                except VmemError as error:
                    errors[memory_id] = error
            elif added := [round_ for append in appends for round_ in append.added]:
                together[memory_id] = added
        for memory_id, encoded in self._add(together).items():
            try:
                if isinstance(encoded, VmemError):
                    raise encoded
                self._note_indexed(memory_id, logged[memory_id], together[memory_id], encoded)
            except VmemError as error:
                errors[memory_id] = error
        return {
            memory_id: _unindexed(memory_id, logged[memory_id], error)
            for memory_id, error in errors.items()
        }

    def _add(self, rounds: Mapping[str, Sequence[Round]]) -> Mapping[str, EncodedUnits | VmemError]:
        """Encode and index rounds together; one by one where one of them spoils the rest."""
        if not rounds:
            return {}
        try:
            return self.index().add(rounds)
        except (InputError, EncoderError, VectorError) as error:
            if len(rounds) == 1:
                return dict.fromkeys(rounds, error)
            alone = [self._add({memory_id: several}) for memory_id, several in rounds.items()]
            return {memory_id: outcome for each in alone for memory_id, outcome in each.items()}
        except VmemError as error:
            return dict.fromkeys(rounds, error)

    def _note_indexed(
        self,
        memory_id: str,
        appends: Sequence[Appended],
        added: Sequence[Round],
        encoded: EncodedUnits,
    ) -> None:
        """Acknowledge appends, and bring a memory that is held in process up to them."""
        name = self.settings.store.bank
        self.catalogue.mark_indexed(name, memory_id, appends[-1].version)
        held = self._held.get(memory_id)
        if held is None:
            return
        info = self.catalogue.memory(name, memory_id)
        before = appends[0].version - bool(appends[0].added)
        if (held.version, held.created_at) == (before, info.created_at):
            memory = self.index().extend_encoded(held.memory, added, encoded)
            if memory:
                self._held.extend(memory_id, memory, info)

    def _as_writer(self) -> AbstractContextManager[object]:
        """The lock that every change takes.

        Raises:
            StoreError: The bank was opened to read.
        """
        if not self.writes:
            raise StoreError("this bank was opened to read; its one writer changes it")
        return self._writing


def open_bank(settings: Settings, **changes: object) -> Bank:
    """Open the bank of some settings.

    Args:
        settings: The settings.
        changes: Single store settings, such as `bank="demo"`.
    """
    return Bank(replace_settings(settings, store=changes) if changes else settings)


def check_units(memory_id: str, rounds: Sequence[Round], settings: Settings) -> None:
    """Refuse before the log what the index could not take after it.

    Raises:
        DataError: A round has no content, or a span is too long for the index.
    """
    for round_ in rounds:
        units = to_units(round_, settings.units)
        if not units:
            raise DataError(f"round {round_.id} of {memory_id} has no text and no image")
        for unit in units:
            if (size := len(unit.text.encode())) > MAX_BYTES["text"]:
                raise DataError(
                    f"round {round_.id} of {memory_id} has a span of {size:,} bytes, over the"
                    f" limit of {MAX_BYTES['text']:,}: split it"
                )


def _unindexed(memory_id: str, appends: Sequence[Appended], error: VmemError) -> VmemError:
    """The error of appends that are in the log and not in the index."""
    count = sum(len(append.added) for append in appends)
    told = type(error)(
        f"{error} (the {count} rounds are in the log of {memory_id} and are indexed with its next"
        " append, or when its writer next opens it)"
    )
    told.__cause__ = error
    return told
