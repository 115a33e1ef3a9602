"""The writer deployment: the one process that changes a bank.

Appends that come together are encoded and stored together: while one group is written, the next
gathers.
"""

import asyncio
import time
from collections.abc import Sequence

from ray import serve as ray_serve

from serve.telemetry import WriterMetrics
from serve.timed import timed_parts
from vmem.bank import Bank
from vmem.config import Settings
from vmem.errors import VmemError
from vmem.stores.catalogue import Appended, MemoryInfo
from vmem.types import Round

GROUP = 32
"""Appends written together, at most."""

Item = tuple[str, Sequence[Round]]


class Writer:
    """Appends to and erases from a bank, one group of appends at a time.

    Args:
        settings: The memory's settings.

    Raises:
        VmemError: The bank cannot be opened.
    """

    def __init__(self, settings: Settings) -> None:
        self._metrics = WriterMetrics()
        self._bank = Bank(settings, parts=timed_parts(settings, self._metrics.encoded))
        self._bank.heal_all()
        self._waiting = 0

    async def append(self, memory_id: str, rounds: Sequence[Round]) -> Appended:
        """Add rounds; they are in the log and in the index when this returns.

        Raises:
            RoundConflictError, DataError, ImageError, AudioError, EncoderError, StoreError.
        """
        self._waiting += 1
        self._metrics.queue(self._waiting)
        try:
            outcome = await self._append_group((memory_id, rounds))
        finally:
            self._waiting -= 1
            self._metrics.queue(self._waiting)
        if isinstance(outcome, VmemError):
            raise outcome
        return outcome

    @ray_serve.batch(max_batch_size=GROUP, batch_wait_timeout_s=0.0)
    async def _append_group(self, items: list[Item]) -> list[Appended | VmemError]:
        start = time.perf_counter()
        outcomes = await asyncio.to_thread(self._bank.append_many, items)
        self._metrics.appended(
            rounds=sum(len(done.added) for done in outcomes if isinstance(done, Appended)),
            batch=len(items),
            seconds=time.perf_counter() - start,
        )
        return outcomes

    async def create(self, memory_id: str) -> MemoryInfo:
        """Make an empty memory, or return the one that is there."""
        return await asyncio.to_thread(self._bank.create, memory_id)

    async def delete(self, memory_id: str) -> None:
        """Erase a memory and all that was made of it.

        Raises:
            UnknownMemoryError.
        """
        await asyncio.to_thread(self._bank.delete, memory_id)
        self._metrics.erased("memory")

    async def erase_round(self, memory_id: str, round_id: str) -> int:
        """Erase a round; returns the memory's new version.

        Raises:
            UnknownMemoryError, UnknownRoundError.
        """
        version = await asyncio.to_thread(self._bank.erase_round, memory_id, round_id)
        self._metrics.erased("round")
        return version

    async def check(self) -> None:
        """Ask the store.

        Raises:
            StoreError: It does not answer.
        """
        await asyncio.to_thread(self._bank.check)
