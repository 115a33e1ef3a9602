"""Calls of one function that come together become one: while it works, the next batch gathers.

An encoder's call costs much the same for one text as for a few, and so does a write for one append
as for a few. A replica under load does several requests' work at once, and a single request waits
for nobody.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar


class Sliced(Protocol):
    """Results in the order of their items, such as a list or an array (N, ...)."""

    def __getitem__(self, index: slice, /) -> Self:
        """Some of the results."""


Item = TypeVar("Item")
Results = TypeVar("Results", bound=Sliced)

MOST = 32
"""Items of one batch; a caller who brings as many alone goes past the others."""


@dataclass(slots=True, eq=False)
class _Call(Generic[Item, Results]):
    """One caller's items, and what became of them."""

    items: Sequence[Item]
    results: Results | None = None
    error: Exception | None = None


class Gathered(Generic[Item, Results]):
    """A function that several threads call and that runs in one of them at a time.

    Whoever finds it free does the work of all who wait by then.

    Args:
        work: Items to as many results.
    """

    def __init__(self, work: Callable[[Sequence[Item]], Results]) -> None:
        self._work = work
        self._waiting: deque[_Call[Item, Results]] = deque()
        self._busy = threading.Lock()

    def __call__(self, items: Sequence[Item]) -> Results:
        """The results of the caller's own items.

        Raises:
            Exception: What the function raises for these items.
        """
        if len(items) >= MOST:
            return self._work(items)
        call: _Call[Item, Results] = _Call(items)
        self._waiting.append(call)
        with self._busy:
            while call.results is None and call.error is None:
                self._do_together(self._take())
        if call.error is not None:
            raise call.error
        assert call.results is not None
        return call.results

    def _take(self) -> list[_Call[Item, Results]]:
        """The calls that waited longest, out of the queue."""
        group = [self._waiting.popleft()]
        size = len(group[0].items)
        while self._waiting and size + len(self._waiting[0].items) <= MOST:
            group.append(self._waiting.popleft())
            size += len(group[-1].items)
        return group

    def _do_together(self, group: list[_Call[Item, Results]]) -> None:
        try:
            results = self._work([item for call in group for item in call.items])
        except Exception as error:  # noqa: BLE001  # raised again where the call was made
            if len(group) == 1:
                group[0].error = error
                return
            for call in group:  # one caller's item must not fail another's
                self._do_together([call])
            return
        start = 0
        for call in group:
            call.results = results[start : start + len(call.items)]
            start += len(call.items)
