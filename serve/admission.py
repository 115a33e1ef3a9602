"""Admission control: how much this replica takes on at once, and its end without a loss."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from serve.errors import DrainingError, OverloadedError
from serve.observe import ApiMetrics
from serve.settings import AdmissionSettings

Kind = Literal["search", "answer", "append", "read"]


class Admission:
    """Counts what is under way by kind; reads are counted too, but have no limit.

    Args:
        settings: The limits.
        metrics: Where the counts are shown.
    """

    def __init__(self, settings: AdmissionSettings, metrics: ApiMetrics) -> None:
        self._limits: dict[Kind, int] = {
            "search": settings.search,
            "answer": settings.answer,
            "append": settings.append,
        }
        self._metrics = metrics
        self._under_way: Counter[Kind] = Counter()
        self._idle = asyncio.Event()
        self._idle.set()
        self.draining = False

    @contextmanager
    def slot(self, kind: Kind) -> Iterator[None]:
        """Hold a place for a with-block.

        Raises:
            DrainingError: The replica is about to end.
            OverloadedError: All places are taken.
        """
        if self.draining:
            raise DrainingError("the replica is about to end")
        if self._under_way[kind] >= self._limits.get(kind, self._under_way[kind] + 1):
            raise OverloadedError(f"{self._under_way[kind]} requests of kind {kind} are under way")
        self._count(kind, 1)
        try:
            yield
        finally:
            self._count(kind, -1)

    def under_way(self, kind: Kind | None = None) -> int:
        """Requests under way, of one kind or of all."""
        return self._under_way.total() if kind is None else self._under_way[kind]

    def drain(self) -> None:
        """Take on nothing more; what is under way goes on."""
        self.draining = True

    async def idle(self, timeout_s: float) -> bool:
        """Wait until nothing is under way; returns whether that came in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def _count(self, kind: Kind, change: int) -> None:
        self._under_way[kind] += change
        self._metrics.under_way(kind, self._under_way[kind])
        if self._under_way.total():
            self._idle.clear()
        else:
            self._idle.set()
