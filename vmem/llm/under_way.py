"""Calls under way, so that the same request at the same time is one call."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class CallsUnderWay(Generic[T]):
    """Calls of one event loop by key: who asks for the same meanwhile waits for the one running."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[T]] = {}
        self._waiting: dict[asyncio.Task[T], int] = {}

    def __contains__(self, key: str) -> bool:
        """Whether a call of this key is under way."""
        task = self._tasks.get(key)
        return task is not None and not task.done()

    async def join(self, key: str, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Start a call, or wait for the one of this key; it ends early when nobody waits any more.

        Raises:
            Exception: Whatever the call raises, to all who wait.
        """
        if key not in self:
            self._tasks[key] = asyncio.create_task(call())
        task = self._tasks[key]
        self._waiting[task] = self._waiting.get(task, 0) + 1
        try:
            return await asyncio.shield(task)
        finally:
            self._waiting[task] -= 1
            if not self._waiting[task]:
                del self._waiting[task]
                if self._tasks.get(key) is task:
                    del self._tasks[key]
                task.cancel()
