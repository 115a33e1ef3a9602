"""Memories kept in process between searches (section 3.4), the least recently used out first."""

import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from weakref import WeakValueDictionary

from cachetools import LRUCache

from vmem.stores.hot import HotMemory
from vmem.stores.records import MemoryInfo
from vmem.stores.searched import MilvusMemory

Memory = HotMemory | MilvusMemory


@dataclass(slots=True)
class CacheCounts:
    """What became of the looks for a memory.

    Attributes:
        hits: It was there as the log has it.
        extensions: It was there, and only what came since was read.
        misses: All of it was read.
    """

    hits: int = 0
    extensions: int = 0
    misses: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A memory as it was at a version.

    Attributes:
        memory: What is searched.
        version: The version that it shows.
        created_at: When it was made; a memory of the same id made later is another one.
    """

    memory: Memory
    version: int
    created_at: datetime

    def shows(self, info: MemoryInfo) -> bool:
        """Whether it is what the index has of a memory."""
        return self.created_at == info.created_at and self.version == info.indexed_version


class HeldMemories:
    """Memories by id, up to a number of units in all; safe for several threads.

    Args:
        limit_units: Units kept at most. A memory that has more is never kept.
    """

    def __init__(self, limit_units: int) -> None:
        self.counts = CacheCounts()
        self._guard = threading.Lock()
        self._held: LRUCache[str, Held] = LRUCache(limit_units, getsizeof=_units)
        self._turns: WeakValueDictionary[str, _Turn] = WeakValueDictionary()

    def turn(self, memory_id: str) -> AbstractContextManager[object]:
        """A lock that one thread at a time has for a memory."""
        with self._guard:
            return self._turns.setdefault(memory_id, _Turn())

    def get(self, memory_id: str) -> Held | None:
        """The memory, where it is held."""
        with self._guard:
            return self._held.get(memory_id)

    def hit(self) -> None:
        """Count a memory that was found as the log has it."""
        with self._guard:
            self.counts.hits += 1

    def load(self, memory_id: str, memory: Memory, info: MemoryInfo) -> Held:
        """Hold a memory that was read whole, as far as the index had followed it."""
        with self._guard:
            self.counts.misses += 1
            return self._keep(memory_id, memory, info)

    def extend(self, memory_id: str, memory: Memory, info: MemoryInfo) -> Held:
        """Hold a memory that was extended, as far as the index had followed it."""
        with self._guard:
            self.counts.extensions += 1
            return self._keep(memory_id, memory, info)

    def _keep(self, memory_id: str, memory: Memory, info: MemoryInfo) -> Held:
        held = Held(memory=memory, version=info.indexed_version, created_at=info.created_at)
        self._held.pop(memory_id, None)
        if _units(held) <= self._held.maxsize:
            self._held[memory_id] = held
        return held

    def drop(self, memory_id: str) -> None:
        """Hold a memory no longer."""
        with self._guard:
            self._held.pop(memory_id, None)

    def clear(self) -> None:
        """Hold none."""
        with self._guard:
            self._held.clear()

    def sizes(self) -> tuple[int, int]:
        """Memories held, and their units together."""
        with self._guard:
            units = sum(held.memory.unit_count for held in self._held.values())
            return len(self._held), units


class _Turn:
    """A lock that goes when nobody waits for it any more; locks proper take no weak reference."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _units(held: Held) -> int:
    return max(1, held.memory.unit_count)
