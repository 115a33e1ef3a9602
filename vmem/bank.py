"""A bank of memories: append, search, ask, delete; the log is the truth, the index follows it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import Self

import numpy as np

from vmem.audio import read_audio
from vmem.build import make_parts, unit_tables
from vmem.config import Settings
from vmem.config import replace as replace_settings
from vmem.errors import ConfigError, DataError, VmemError
from vmem.memory import EncodedUnits, encode_rounds
from vmem.pipeline import Parts, ask, check_query, retrieve
from vmem.ports import SearchableMemory, Transcriber, Vectors
from vmem.rounds import to_units
from vmem.stores.catalogue import Appended, Catalogue, MemoryInfo, check_memory_id
from vmem.stores.catalogue import Bank as BankRecord
from vmem.stores.hot import HotMemory, UnitTable
from vmem.stores.images import ImageStore
from vmem.stores.milvus import MilvusStore
from vmem.stores.rows import unit_digest, unit_rows
from vmem.stores.searched import MilvusMemory
from vmem.stores.unit_rows import MAX_BYTES, unit_key
from vmem.types import Answer, Image, Modality, Query, Retrieval, Round, Turn, Unit


class Bank:
    """The open bank that the settings name.

    A process that appends must be the bank's only writer. Searching reads the log's version
    first, so an acknowledged round is always found.

    Args:
        settings: Store, encoders, retrieval, backbone.

    Raises:
        EncoderMismatchError: The bank was made with other encoders or unit settings.
        StoreBusyError: Another process holds the embedded store.
        StoreError: A server cannot be reached.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.catalogue = Catalogue(database_url(settings))
        self.media = ImageStore(images_url(settings))
        self._hot: dict[str, tuple[int, SearchableMemory]] = {}

    def __enter__(self) -> Self:
        """Open for a with-block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    async def close_chat(self) -> None:
        """Stop the backbone, where one was used; its event loop must still run."""
        if "parts" in self.__dict__ and self.parts.chat:
            await self.parts.chat.close()

    def reload(self) -> None:
        """Forget what was read of the bank; a build calls this after its switch."""
        self.__dict__.pop("record", None)
        self._hot.clear()

    def close(self) -> None:
        """Release the stores."""
        if "store" in self.__dict__:
            self.store.close()
        self.catalogue.close()

    @cached_property
    def parts(self) -> Parts:
        """Encoders, backbone and prompts; loaded when first needed."""
        return make_parts(self.settings)

    @cached_property
    def store(self) -> MilvusStore:
        """The vector store; opened when first needed."""
        uri = self.settings.store.milvus_uri
        if uri:
            return MilvusStore(uri, self.settings.store.milvus_token.get_secret_value())
        return MilvusStore(str(self.settings.store.home / "milvus.db"))

    @cached_property
    def record(self) -> BankRecord:
        """The bank's own record: encoders, collections."""
        name = self.settings.store.bank
        image = self.parts.image_encoder
        record = self.catalogue.ensure_bank(
            BankRecord(
                name=name,
                kind="served",
                text_encoder=self.parts.text_encoder.name,
                text_width=self.parts.text_encoder.width,
                image_encoder=image.name if image else "none",
                image_width=image.width if image else 0,
                text_collection=f"{name}_text",
                image_collection=f"{name}_image",
                units=self.settings.units,
            )
        )
        for collection, width in _collections(record):
            if not self.store.exists(collection):
                self.store.create(collection, width)
        return record

    def append(self, memory_id: str, rounds: Sequence[Round]) -> Appended:
        """Add rounds at the end of a memory, which is made where it does not exist.

        A round is acknowledged once it is in the log; a crash before it is indexed is healed when
        the memory is next opened. The same round again is no change.

        Raises:
            RoundConflictError: A round id is taken by a round of other content.
            DataError: A round has no content, or a span is too long for the index.
            ImageError, AudioError: A picture or voice message cannot be used.
        """
        check_memory_id(memory_id)
        record = self.record
        kept: list[Round] = []
        try:
            for round_ in rounds:
                kept.append(self.keep_media(round_))
            self._check(memory_id, kept)
            appended = self.catalogue.append(record.name, memory_id, kept)
        except VmemError:
            self._drop_media(kept)
            raise
        try:
            encoded = self._index(memory_id, appended.added, appended.version)
        except VmemError as error:
            raise type(error)(
                f"{error} (the {len(appended.added)} rounds are in the log of {memory_id} and are"
                " indexed when it is next opened)"
            ) from error
        self._extend(memory_id, appended, encoded)
        return appended

    def _extend(self, memory_id: str, appended: Appended, encoded: EncodedUnits) -> None:
        """Bring a memory that is held in process up to an append of this process."""
        version, memory = self._hot.get(memory_id, (0, None))
        if appended.added and isinstance(memory, HotMemory) and version == appended.version - 1:
            extended = memory.extended(appended.added, *unit_tables(encoded))
            self._hot[memory_id] = (appended.version, extended)

    def memories(self) -> list[MemoryInfo]:
        """All memories of the bank."""
        return self.catalogue.memories(self.settings.store.bank)

    def rounds(self, memory_id: str) -> tuple[Round, ...]:
        """All rounds of a memory.

        Raises:
            UnknownMemoryError: There is no such memory.
        """
        return self.catalogue.rounds(self.settings.store.bank, memory_id)

    def delete(self, memory_id: str) -> None:
        """Erase a memory: rounds, vectors, and pictures that no other memory holds.

        Raises:
            UnknownMemoryError: There is no such memory.
        """
        rounds = self.rounds(memory_id)
        bank = self.catalogue.bank(self.settings.store.bank)
        for collection, _ in _collections(bank) if bank else ():
            self.store.delete(collection, sorted(self.store.ids(collection, memory_id)))
        self.catalogue.delete_memory(self.settings.store.bank, memory_id)
        self._hot.pop(memory_id, None)
        self._drop_media(rounds)

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

    def _drop_media(self, rounds: Sequence[Round]) -> None:
        """Remove the pictures and voice messages of rounds that no memory holds."""
        digests = {image.digest for round_ in rounds for image in round_.images if image.digest}
        for digest in sorted(digests - self.catalogue.image_digests()) if digests else ():
            self.media.delete(digest)
        for audio in sorted(_voices(rounds) - self._voices_elsewhere(rounds)):
            self.media.delete(audio)

    def _voices_elsewhere(self, rounds: Sequence[Round]) -> set[str]:
        """Voice messages that any memory holds; looked for only where some were erased."""
        if not _voices(rounds):
            return set()
        return {
            voice
            for bank in self.catalogue.banks()
            for info in self.catalogue.memories(bank.name)
            for voice in _voices(self.catalogue.rounds(bank.name, info.id))
        }

    def memory(self, memory_id: str) -> SearchableMemory:
        """A memory brought up to its log's version, ready to be searched.

        Raises:
            UnknownMemoryError: There is no such memory.
        """
        info = self.catalogue.memory(self.settings.store.bank, memory_id)
        cached = self._hot.get(memory_id)
        if cached and cached[0] == info.version:
            return cached[1]
        rounds = self.rounds(memory_id)
        self._heal(info, rounds)
        memory = self._load(memory_id, rounds)
        self._hot[memory_id] = (info.version, memory)
        return memory

    def _check(self, memory_id: str, rounds: Sequence[Round]) -> None:
        """Refuse before the log what the index could not take after it."""
        for round_ in rounds:
            units = to_units(round_, self.settings.units)
            if not units:
                raise DataError(f"round {round_.id} of {memory_id} has no text and no image")
            for unit in units:
                if (size := len(unit.text.encode())) > MAX_BYTES["text"]:
                    raise DataError(
                        f"round {round_.id} of {memory_id} has a span of {size:,} bytes, over the"
                        f" limit of {MAX_BYTES['text']:,}: split it"
                    )

    def keep_media(self, round_: Round) -> Round:
        """The round with its pictures and voice messages in the store, voice transcribed.

        Raises:
            ImageError, AudioError: One of them cannot be used.
            EncoderError: A voice message has no transcript and the audio extra is missing.
        """
        return replace(round_, turns=tuple(self._keep_turn(turn) for turn in round_.turns))

    def _keep_turn(self, turn: Turn) -> Turn:
        images = tuple(self._keep_image(image) for image in turn.images)
        if turn.audio is None:
            return replace(turn, images=images)
        transcript = turn.transcript or self._transcriber.transcribe(turn.audio)
        audio = self.media.put_audio(read_audio(turn.audio), turn.audio)
        return replace(turn, images=images, audio=audio, transcript=transcript)

    def _keep_image(self, image: Image) -> Image:
        if image.uri is None or image.digest:
            return image
        digest, uri = self.media.put(self.parts.read_image(image.uri), image.uri)
        return replace(image, digest=digest, uri=uri)

    @cached_property
    def _transcriber(self) -> Transcriber:
        from vmem.encoders.whisper import Whisper

        return Whisper()

    def _index(self, memory_id: str, rounds: Sequence[Round], version: int) -> EncodedUnits:
        encoded = encode_rounds(
            rounds,
            self.settings.units,
            self.parts.text_encoder,
            self.parts.image_encoder,
            self.parts.read_image,
        )
        tables: list[tuple[str, Sequence[Unit], Vectors]] = [
            (self.record.text_collection, encoded.text, encoded.text_vectors_UD),
            (self.record.image_collection, encoded.image, encoded.image_vectors_IE),
        ]
        for collection, units, vectors_UD in tables:
            if units:
                rows = unit_rows(memory_id, rounds, units, vectors_UD)
                self.store.upsert(collection, rows)
        self.catalogue.mark_indexed(self.record.name, memory_id, version)
        return encoded

    def _heal(self, info: MemoryInfo, rounds: Sequence[Round]) -> None:
        """Make the index hold exactly the units of the log's rounds."""
        wanted = self._wanted_digests(info.id, rounds)
        collections = [name for name, _ in _collections(self.record)]
        counted = sum(self.store.count(name, info.id) for name in collections)
        if info.indexed_version == info.version and counted == len(wanted):
            return
        held: dict[str, str] = {}
        for name in collections:
            stored = self.store.digests(name, info.id)
            extra = sorted(key for key in stored if key not in wanted)
            self.store.delete(name, extra)
            held |= stored
        stale = {round_id for key, (digest, round_id) in wanted.items() if held.get(key) != digest}
        missing = [round_ for round_ in rounds if round_.id in stale]
        self._index(info.id, missing, info.version)

    def _wanted_digests(
        self, memory_id: str, rounds: Sequence[Round]
    ) -> dict[str, tuple[str, str]]:
        sees = self.parts.image_encoder is not None
        return {
            unit_key(memory_id, unit.id): (unit_digest(unit), unit.round_id)
            for round_ in rounds
            for unit in to_units(round_, self.settings.units)
            if unit.modality is Modality.TEXT or (sees and unit.image and unit.image.uri)
        }

    def _load(self, memory_id: str, rounds: tuple[Round, ...]) -> SearchableMemory:
        units = [unit for round_ in rounds for unit in to_units(round_, self.settings.units)]
        if len(units) > self.settings.store.exact_limit:
            return MilvusMemory(
                rounds,
                [unit for unit in units if unit.modality is Modality.TEXT],
                self.settings.retrieval.lexical,
                store=self.store,
                memory_id=memory_id,
                text_collection=self.record.text_collection,
                image_collection=self.record.image_collection,
            )
        text = self._table(self.record.text_collection, memory_id, units, Modality.TEXT)
        image = self._table(self.record.image_collection, memory_id, units, Modality.IMAGE)
        return HotMemory(rounds, text, image, self.settings.retrieval.lexical)

    def _table(
        self, collection: str, memory_id: str, units: Sequence[Unit], modality: Modality
    ) -> UnitTable:
        width = dict(_collections(self.record)).get(collection, 0)
        rows = self.store.fetch(collection, memory_id) if width else []
        vectors = {row.id: row.vector for row in rows}
        kept = tuple(u for u in units if u.modality is modality and u.id in vectors)
        vectors_UD = np.zeros((len(kept), width), dtype=np.float32)
        for index, unit in enumerate(kept):
            vectors_UD[index] = vectors[unit.id]
        return UnitTable(units=kept, vectors_UD=vectors_UD)


def open_bank(settings: Settings, **changes: object) -> Bank:
    """Open the bank of some settings.

    Args:
        settings: The settings.
        changes: Single store settings, such as `bank="demo"`.
    """
    return Bank(replace_settings(settings, store=changes) if changes else settings)


def database_url(settings: Settings) -> str:
    """The catalogue's SQLAlchemy URL: the one set, or SQLite in `store.home`."""
    if settings.store.database_url:
        return settings.store.database_url.get_secret_value()
    home = settings.store.home
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"store.home {home} cannot be created: {error.strerror}") from error
    return f"sqlite:///{home / 'catalogue.sqlite3'}"


def images_url(settings: Settings) -> str:
    """The image folder's fsspec URL: the one set, or a folder in `store.home`."""
    return settings.store.images_url or str(settings.store.home / "images")


def _voices(rounds: Sequence[Round]) -> set[str]:
    return {turn.audio for round_ in rounds for turn in round_.turns if turn.audio}


def _collections(record: BankRecord) -> list[tuple[str, int]]:
    """The bank's collections with their widths; a bank without pictures has one."""
    pairs = [
        (record.text_collection, record.text_width),
        (record.image_collection, record.image_width),
    ]
    return [(name, width) for name, width in pairs if width]
