"""How stages keep a server busy: so much in work at once, in order, and what comes next ahead."""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


def in_work(concurrency: int) -> int:
    """How many items to work on, so that as many calls as are allowed are always under way.

    While so many wait for their replies, as many more are got ready or written down; a model has
    its own limit, where those that are ready wait for their turn.
    """
    return 2 * concurrency


async def each_at_once(
    items: AsyncGenerator[T, None], do: Callable[[T], Awaitable[None]], at_once: int
) -> None:
    """Do something with every item; items, never None, are begun in order when there is room.

    Raises:
        BaseExceptionGroup: Of what went wrong; all that was in work is cancelled.
    """
    taking = asyncio.Lock()  # a generator serves one at a time

    async def work() -> None:
        while True:
            async with taking:
                item = await anext(items, None)
            if item is None:
                return
            await do(item)

    async with aclosing(items), asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(work())


async def one_ahead(items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """The same items, never None; while one is used the next is made, and no more than that."""

    async def make() -> T | None:
        return await anext(items, None)

    async with aclosing(items):
        coming = asyncio.create_task(make())
        try:
            while (made := await coming) is not None:
                coming = asyncio.create_task(make())
                yield made
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


class Missing:
    """What files still lack; they are finished once that is nothing.

    Args:
        keys: What is missing.
        finish: Finishes the files.
    """

    def __init__(self, keys: Iterable[Hashable], finish: Callable[[], None]) -> None:
        self._keys = set(keys)
        self._finish = finish

    def __contains__(self, key: Hashable) -> bool:
        """Whether it is still missing."""
        return key in self._keys

    async def came(self, *keys: Hashable) -> None:
        """Some of it is written down.

        Raises:
            DataError, StoreError: The files cannot be finished.
        """
        self._keys.difference_update(keys)
        if not self._keys:
            await asyncio.to_thread(self._finish)


def use_cores() -> None:
    """Threads of this event loop are as many as the machine has cores, and at least two.

    Queries are encoded in threads: more would only wait for each other.
    """
    threads = ThreadPoolExecutor(max(2, os.cpu_count() or 1))
    asyncio.get_running_loop().set_default_executor(threads)
