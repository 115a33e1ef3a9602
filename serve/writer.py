"""The writer deployment: the one process that changes a bank.

Appends that come together are encoded and stored together: while one group is written, the next
gathers.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Sequence

import anyio.to_thread
from anyio import CapacityLimiter

from serve.gathered import MOST, Gathered
from serve.telemetry import WriterMetrics
from serve.timed import timed_parts
from vmem.bank import Bank
from vmem.bank_index import indexed_units
from vmem.config import Settings
from vmem.errors import StoreError, VmemError
from vmem.stores.catalogue import Appended, MemoryInfo
from vmem.types import Round

Item = tuple[str, Sequence[Round]]

log = logging.getLogger("vmem.serve")


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
        self._append_together = Gathered(self._append_many)
        self._threads = CapacityLimiter(MOST)
        self._counting = threading.Lock()
        self._tell_log()

    async def append(self, memory_id: str, rounds: Sequence[Round]) -> Appended:
        """Add rounds; they are in the log and in the index when this returns.

        Raises:
            RoundConflictError, DataError, ImageError, AudioError, EncoderError, StoreError.
        """
        with self._metrics.call():
            [outcome] = await anyio.to_thread.run_sync(
                self._append_together, [(memory_id, rounds)], limiter=self._threads
            )
        if isinstance(outcome, VmemError):
            raise outcome
        return outcome

    def _append_many(self, items: Sequence[Item]) -> list[Appended | VmemError]:
        start = time.perf_counter()
        try:
            outcomes = self._bank.append_many(items)
        except VmemError as error:  # of all of them: none is tried alone
            return [error] * len(items)
        seconds = time.perf_counter() - start
        added = [r for done in outcomes if isinstance(done, Appended) for r in done.added]
        sees = self._bank.parts.image_encoder is not None
        self._metrics.appended(
            rounds=len(added),
            units=len(indexed_units(added, self._bank.settings.units, sees=sees)),
            batch=len(items),
            seconds=seconds,
        )
        self._tell_log()
        return outcomes

    async def create(self, memory_id: str) -> MemoryInfo:
        """Make an empty memory, or return the one that is there."""
        with self._metrics.call():
            info = await asyncio.to_thread(self._bank.create, memory_id)
            await asyncio.to_thread(self._tell_log)
        return info

    async def delete(self, memory_id: str) -> None:
        """Erase a memory and all that was made of it.

        Raises:
            UnknownMemoryError.
        """
        with self._metrics.call():
            await asyncio.to_thread(self._bank.delete, memory_id)
            self._metrics.erased("memory")
            await asyncio.to_thread(self._tell_log)

    async def erase_round(self, memory_id: str, round_id: str) -> int:
        """Erase a round; returns the memory's new version.

        Raises:
            UnknownMemoryError, UnknownRoundError.
        """
        with self._metrics.call():
            version = await asyncio.to_thread(self._bank.erase_round, memory_id, round_id)
            self._metrics.erased("round")
            await asyncio.to_thread(self._tell_log)
        return version

    async def check(self) -> None:
        """Ask the store.

        Raises:
            StoreError: It does not answer.
        """
        await asyncio.to_thread(self._bank.check)

    def _tell_log(self) -> None:
        """Report what the log holds; where it cannot be counted, what was changed still is."""
        with self._counting:  # the last to count is the last to tell
            try:
                counts = self._bank.catalogue.counts(self._bank.settings.store.bank)
            except StoreError as error:
                log.warning("the log cannot be counted: %s", error)
                return
            self._metrics.log(*counts)
