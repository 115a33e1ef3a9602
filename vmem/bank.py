"""A bank of memories: append, search, ask, erase; this is the writing, `ReadBank` the reading.

One process writes a bank, and any number read it beside. A round is acknowledged once it is in
the log and in the index.
"""

from collections.abc import Mapping, Sequence

from vmem.bank_index import delete_round_rows, row_keys
from vmem.bank_reading import ReadBank
from vmem.bank_stores import database_url, images_url
from vmem.config import Settings
from vmem.config import replace as replace_settings
from vmem.errors import EncoderError, InputError, UnknownRoundError, VectorError, VmemError
from vmem.memory import EncodedUnits
from vmem.stores.catalogue import Appended, MemoryInfo, check_memory_id
from vmem.stores.media import drop_loose_media, keep_media
from vmem.stores.rows import check_units
from vmem.types import Round

__all__ = ["Bank", "database_url", "images_url", "open_bank"]


class Bank(ReadBank):
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
        taken. Once the log has the gap, a crash does not keep what was erased: `heal` finishes.

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
                drop_loose_media(name, self.media, self.catalogue)
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
        return erased.version

    def delete(self, memory_id: str) -> None:
        """Erase a memory: rounds, vectors, and pictures that no other memory holds.

        A crash leaves all of it, which `heal` brings back and a second call erases, or only
        pictures, which `heal` removes.

        Raises:
            UnknownMemoryError: There is no such memory.
        """
        with self._as_writer():
            name = self.settings.store.bank
            keys = row_keys(self.store, self.stored_record(), memory_id)
            self.catalogue.mark_unindexed(name, memory_id)  # a crash from here on can be healed
            for collection, ids in keys.items():
                self.store.delete(collection, ids)
            self.catalogue.delete_memory(name, memory_id)
            self._held.drop(memory_id)
            drop_loose_media(name, self.media, self.catalogue)

    def keep_media(self, round_: Round) -> Round:
        """The round with its pictures and voice messages in the store; see `keep_media`."""
        return keep_media(round_, self.media, self.parts.read_image, self.transcribe)

    def _to_log(self, bank: str, memory_id: str, rounds: Sequence[Round]) -> Appended | VmemError:
        """Put rounds with their media into the log, all or none."""
        try:
            check_memory_id(memory_id)
            kept = [self._keep_media_of(bank, round_) for round_ in rounds]
            check_units(memory_id, kept, self.settings.units)
            return self.catalogue.append(bank, memory_id, kept)
        except VmemError as error:
            return self._taken_back(bank, error)

    def _keep_media_of(self, bank: str, round_: Round) -> Round:
        """As `keep_media`, noted so that a crash before the log has the round leaves nothing."""

        def note(digest: str) -> None:
            self.catalogue.note_loose_media(bank, digest)

        return keep_media(round_, self.media, self.parts.read_image, self.transcribe, note)

    def _taken_back(self, bank: str, error: VmemError) -> VmemError:
        """The error of an append, once what it put into the store is out again."""
        try:
            drop_loose_media(bank, self.media, self.catalogue)
        except VmemError as left:
            return type(error)(f"{error} (and its pictures stay until the next heal: {left})")
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


def open_bank(settings: Settings, **changes: object) -> Bank:
    """Open the bank of some settings.

    Args:
        settings: The settings.
        changes: Single store settings, such as `bank="demo"`.
    """
    return Bank(replace_settings(settings, store=changes) if changes else settings)


def _unindexed(memory_id: str, appends: Sequence[Appended], error: VmemError) -> VmemError:
    """The error of appends that are in the log and not in the index."""
    count = sum(len(append.added) for append in appends)
    told = type(error)(
        f"{error} (the {count} rounds are in the log of {memory_id} and are indexed with its next"
        " append, or when its writer next opens it)"
    )
    told.__cause__ = error
    return told
