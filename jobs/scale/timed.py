"""The stores of a bank, timed by what each call waits for; nothing else of them differs."""

from collections.abc import Sequence
from typing import Any

from vmem.pipeline import Stopwatch
from vmem.stores.catalogue import Appended, Catalogue, Changes, MemoryInfo
from vmem.stores.milvus import MilvusStore
from vmem.stores.unit_rows import Hit, UnitRow
from vmem.types import Round

WAIT_S = 600.0
"""For one request: a server that is overrun is slow here, and not an error."""


class TimedCatalogue(Catalogue):
    """The catalogue, timed."""

    def __init__(self, url: str, watch: Stopwatch) -> None:
        super().__init__(url)
        self._watch = watch

    def append(self, bank: str, memory_id: str, rounds: Sequence[Round]) -> Appended:
        """As the catalogue's."""
        with self._watch.time("log"):
            return super().append(bank, memory_id, rounds)

    def mark_indexed(self, bank: str, memory_id: str, version: int) -> None:
        """As the catalogue's."""
        with self._watch.time("log"):
            super().mark_indexed(bank, memory_id, version)

    def memory(self, bank: str, memory_id: str) -> MemoryInfo:
        """As the catalogue's."""
        with self._watch.time("version"):
            return super().memory(bank, memory_id)

    def changes(self, bank: str, memory_id: str, after_version: int = 0) -> Changes:
        """As the catalogue's."""
        with self._watch.time("log"):
            return super().changes(bank, memory_id, after_version)


class TimedStore(MilvusStore):
    """The vector store, timed."""

    def __init__(self, uri: str, watch: Stopwatch) -> None:
        super().__init__(uri, timeout_s=WAIT_S)
        self._watch = watch

    def upsert(self, collection: str, rows: Sequence[UnitRow]) -> None:
        """As the store's."""
        with self._watch.time("insert"):
            super().upsert(collection, rows)

    def count(self, collection: str, dialogue_id: str | None = None) -> int:
        """As the store's."""
        with self._watch.time("count"):
            return super().count(collection, dialogue_id)

    def fetch(self, collection: str, *args: Any, **options: Any) -> list[UnitRow]:  # noqa: ANN401
        """As the store's."""
        with self._watch.time("fetch"):
            return super().fetch(collection, *args, **options)

    def get(self, collection: str, *args: Any, **options: Any) -> list[UnitRow]:  # noqa: ANN401
        """As the store's."""
        with self._watch.time("fetch"):
            return super().get(collection, *args, **options)

    def search(self, collection: str, *args: Any, **options: Any) -> list[Hit]:  # noqa: ANN401
        """As the store's."""
        with self._watch.time("milvus"):
            return super().search(collection, *args, **options)
