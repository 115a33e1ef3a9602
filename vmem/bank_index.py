"""A bank's two indices (section 3.2): what the log says is written to them and read from them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vmem.build import unit_tables
from vmem.config import Settings, UnitSettings
from vmem.memory import EncodedUnits, encode_rounds
from vmem.pipeline import Parts
from vmem.rounds import to_units
from vmem.stores.catalogue import Bank as BankRecord
from vmem.stores.held import Memory
from vmem.stores.hot import HotMemory, UnitTable
from vmem.stores.milvus import MilvusStore
from vmem.stores.rows import unit_digest, unit_rows
from vmem.stores.searched import MilvusMemory
from vmem.stores.unit_rows import UnitRow, unit_key
from vmem.types import Modality, Round, Unit

FETCHED_UNITS = 3_000
"""Rows that one request reads: of the greatest size they are 250 MB, which is what Milvus' own
parts send each other at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BankIndex:
    """The collections of a bank's record, and what encodes for them.

    Attributes:
        record: The bank's record.
        store: Where the collections are.
        parts: The encoders.
        settings: Units, lexical search, exact limit.
    """

    record: BankRecord
    store: MilvusStore
    parts: Parts
    settings: Settings

    def add(self, rounds: Mapping[str, Sequence[Round]]) -> dict[str, EncodedUnits]:
        """Encode rounds of several memories together, and write them; returns what was encoded.

        Raises:
            ImageError, EncoderError, VectorError, DataError: One of them cannot be encoded or
                kept; nothing was written.
            StoreError: The store cannot be written.
        """
        encoded = self._encode(rounds)
        text: list[UnitRow] = []
        image: list[UnitRow] = []
        for memory_id, units in encoded.items():
            whose = memory_id, rounds[memory_id]
            text += unit_rows(*whose, units.text, units.text_vectors_UD)
            image += unit_rows(*whose, units.image, units.image_vectors_IE)
        for collection, rows in (
            (self.record.text_collection, text),
            (self.record.image_collection, image),
        ):
            if rows:
                self.store.upsert(collection, rows)
        return encoded

    def heal(self, memory_id: str, rounds: Sequence[Round]) -> None:
        """Make the index hold exactly the units of the log's rounds.

        Raises:
            ImageError, EncoderError, VectorError, StoreError: As `add`.
        """
        wanted = {
            unit_key(memory_id, unit.id): (unit_digest(unit), unit.round_id)
            for unit in self._units(rounds)
        }
        held: dict[str, str] = {}
        for name, _ in collections(self.record).values():
            stored = self.store.digests(name, memory_id)
            self.store.delete(name, sorted(key for key in stored if key not in wanted))
            held |= stored
        stale = {round_id for key, (digest, round_id) in wanted.items() if held.get(key) != digest}
        missing = [round_ for round_ in rounds if round_.id in stale]
        if missing:
            self.add({memory_id: missing})

    def is_whole(self, memory_id: str, rounds: Sequence[Round]) -> bool:
        """Whether the index holds as many units of a memory as its rounds have."""
        held = sum(
            self.store.count(name, memory_id) for name, _ in collections(self.record).values()
        )
        return held == len(self._units(rounds))

    def load(self, memory_id: str, rounds: Sequence[Round]) -> Memory | None:
        """A memory read from the index; None where the index lacks a unit of the rounds.

        Raises:
            StoreError: The store cannot be read.
        """
        units = self._units(rounds)
        if len(units) > self.settings.store.exact_limit:
            if not self.is_whole(memory_id, rounds):
                return None
            return self._searched(memory_id, rounds, units)

        def pages(name: str, lane: Sequence[Unit], strong: bool) -> Iterator[UnitRow]:
            for positions in _pages(lane):
                yield from self.store.fetch(name, memory_id, positions, strong=strong)

        tables = self._read(units, pages)
        return HotMemory(rounds, *tables, self.settings.retrieval.lexical) if tables else None

    def extend(self, memory: Memory, memory_id: str, rounds: Sequence[Round]) -> Memory | None:
        """A memory with the rounds that follow; only their vectors are read.

        Returns:
            None where the index lacks a unit of them, or the memory has become too large for
            exact search.
        """
        units = self._units(rounds)
        if isinstance(memory, MilvusMemory):
            return memory.extended(rounds, _of(units, Modality.TEXT))
        if memory.unit_count + len(units) > self.settings.store.exact_limit:
            return None

        def keyed(name: str, lane: Sequence[Unit], strong: bool) -> list[UnitRow]:
            keys = [unit_key(memory_id, unit.id) for unit in lane]
            return self.store.get(name, keys, strong=strong)

        tables = self._read(units, keyed)
        return memory.extended(rounds, *tables) if tables else None

    def extend_encoded(
        self, memory: Memory, rounds: Sequence[Round], encoded: EncodedUnits
    ) -> Memory | None:
        """As `extend`, with vectors that were just made here."""
        if isinstance(memory, MilvusMemory):
            return memory.extended(rounds, encoded.text)
        units = memory.unit_count + len(encoded.text) + len(encoded.image)
        if units > self.settings.store.exact_limit:
            return None
        return memory.extended(rounds, *unit_tables(encoded))

    def _encode(self, rounds: Mapping[str, Sequence[Round]]) -> dict[str, EncodedUnits]:
        encoded = encode_rounds(
            [round_ for several in rounds.values() for round_ in several],
            self.settings.units,
            self.parts.text_encoder,
            self.parts.image_encoder,
            self.parts.read_image,
        )
        parts: dict[str, EncodedUnits] = {}
        texts = images = 0
        for memory_id, several in rounds.items():
            units = self._units(several)
            of_text = slice(texts, texts := texts + len(_of(units, Modality.TEXT)))
            of_image = slice(images, images := images + len(_of(units, Modality.IMAGE)))
            parts[memory_id] = replace(
                encoded,
                text=encoded.text[of_text],
                text_vectors_UD=encoded.text_vectors_UD[of_text],
                image=encoded.image[of_image],
                image_vectors_IE=encoded.image_vectors_IE[of_image],
            )
        return parts

    def _searched(
        self, memory_id: str, rounds: Sequence[Round], units: Sequence[Unit]
    ) -> MilvusMemory:
        return MilvusMemory(
            rounds,
            _of(units, Modality.TEXT),
            self.settings.retrieval.lexical,
            store=self.store,
            memory_id=memory_id,
            text_collection=self.record.text_collection,
            image_collection=self.record.image_collection,
        )

    def _units(self, rounds: Sequence[Round]) -> list[Unit]:
        return indexed_units(rounds, self.settings.units, sees=self.record.image_width > 0)

    def _read(
        self,
        units: Sequence[Unit],
        rows_of: Callable[[str, Sequence[Unit], bool], Iterable[UnitRow]],
    ) -> tuple[UnitTable, UnitTable] | None:
        """Units with their vectors, text and image apart; None where the index lacks one.

        Waiting for every finished write takes longer than reading, so that what the index shows
        at once is read first, and is enough where it has every unit by its digest.

        Args:
            units: Of both lanes.
            rows_of: Reads the rows of a lane's units in a collection, waiting or not.
        """
        for strong in (False, True):
            rows = {
                row.id: row
                for modality, (name, _) in collections(self.record).items()
                if (lane := _of(units, modality))
                for row in rows_of(name, lane, strong)
            }
            if tables := self._tables(units, rows):
                return tables
        return None

    def _tables(
        self, units: Sequence[Unit], rows: Mapping[str, UnitRow]
    ) -> tuple[UnitTable, UnitTable] | None:
        """Units with their vectors, text and image apart; None where one has none of its own."""
        for unit in units:
            if unit.id not in rows or rows[unit.id].digest != unit_digest(unit):
                return None
        return (
            _table(_of(units, Modality.TEXT), rows, self.record.text_width),
            _table(_of(units, Modality.IMAGE), rows, self.record.image_width),
        )


def indexed_units(rounds: Sequence[Round], settings: UnitSettings, *, sees: bool) -> list[Unit]:
    """The units that an index holds of some rounds: images without pixels are not there.

    Args:
        rounds: The rounds.
        settings: How rounds become units.
        sees: Whether there is an image encoder.
    """
    return [
        unit
        for round_ in rounds
        for unit in to_units(round_, settings)
        if unit.modality is Modality.TEXT or (sees and unit.image and unit.image.uri)
    ]


def collections(record: BankRecord) -> dict[Modality, tuple[str, int]]:
    """The bank's collections with their widths; a bank without pictures has one."""
    of_text = {Modality.TEXT: (record.text_collection, record.text_width)}
    if not record.image_width:
        return of_text
    return of_text | {Modality.IMAGE: (record.image_collection, record.image_width)}


def row_keys(store: MilvusStore, record: BankRecord, memory_id: str) -> dict[str, list[str]]:
    """Primary keys of all units of a memory, by collection.

    Raises:
        StoreError: The store cannot be read.
    """
    names = [name for name, _ in collections(record).values()]
    return {name: sorted(store.ids(name, memory_id)) for name in names}


def delete_round_rows(
    store: MilvusStore, record: BankRecord, memory_id: str, round_: Round
) -> None:
    """Remove the units of one round from a bank's collections.

    Raises:
        StoreError: The store cannot be written.
    """
    units = to_units(round_, record.units)
    for modality, (name, _) in collections(record).items():
        store.delete(name, [unit_key(memory_id, unit.id) for unit in _of(units, modality)])


def _of(units: Sequence[Unit], modality: Modality) -> list[Unit]:
    return [unit for unit in units if unit.modality is modality]


def _pages(units: Sequence[Unit]) -> Sequence[list[int] | None]:
    """Positions of the rounds whose rows are read by one request; None is all of them."""
    if len(units) <= FETCHED_UNITS:
        return [None]
    starts = range(0, len(units), FETCHED_UNITS)
    pages = (units[start : start + FETCHED_UNITS] for start in starts)
    return [sorted({unit.position for unit in page}) for page in pages]


def _table(units: Sequence[Unit], rows: Mapping[str, UnitRow], width: int) -> UnitTable:
    vectors_UD = np.zeros((len(units), width), dtype=np.float32)
    for vector_D, unit in zip(vectors_UD, units, strict=True):
        vector_D[:] = rows[unit.id].vector
    return UnitTable(units=tuple(units), vectors_UD=vectors_UD)
