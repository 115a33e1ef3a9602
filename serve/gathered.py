"""Calls of one encoder that come together become one: while it is busy, the next batch gathers.

An encoder's call costs much the same for one text as for a few, so that a replica under load
encodes the questions of several requests at once, and a single request waits for nobody.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from vmem.ports import Vectors

Item = TypeVar("Item")

MOST = 32
"""Items encoded in one call; a caller who brings as many alone goes past the others."""


@dataclass(slots=True, eq=False)
class _Call(Generic[Item]):
    """One caller's items, and what became of them."""

    items: Sequence[Item]
    vectors_ND: Vectors | None = None
    error: Exception | None = None


class Gathered(Generic[Item]):
    """An encoder's function that several threads call and that runs in one of them at a time.

    Whoever finds the encoder free encodes for all who wait by then.

    Args:
        encode: N items to vectors (N, D).
    """

    def __init__(self, encode: Callable[[Sequence[Item]], Vectors]) -> None:
        self._encode = encode
        self._waiting: deque[_Call[Item]] = deque()
        self._busy = threading.Lock()

    def __call__(self, items: Sequence[Item]) -> Vectors:
        """Vectors (N, D) of the caller's own items.

        Raises:
            Exception: What the encoder raises for these items.
        """
        if len(items) >= MOST:
            return self._encode(items)
        call = _Call(items)
        self._waiting.append(call)
        with self._busy:
            while call.vectors_ND is None and call.error is None:
                self._encode_together(self._take())
        if call.error is not None:
            raise call.error
        assert call.vectors_ND is not None
        return call.vectors_ND

    def _take(self) -> list[_Call[Item]]:
        """The calls that waited longest, out of the queue."""
        group = [self._waiting.popleft()]
        size = len(group[0].items)
        while self._waiting and size + len(self._waiting[0].items) <= MOST:
            group.append(self._waiting.popleft())
            size += len(group[-1].items)
        return group

    def _encode_together(self, group: list[_Call[Item]]) -> None:
        try:
            vectors_ND = self._encode([item for call in group for item in call.items])
        except Exception as error:  # noqa: BLE001  # raised again where the call was made
            if len(group) == 1:
                group[0].error = error
                return
            for call in group:  # one caller's item must not fail another's
                self._encode_together([call])
            return
        ends = np.cumsum([len(call.items) for call in group])
        for call, rows_ND in zip(group, np.split(vectors_ND, ends[:-1]), strict=True):
            call.vectors_ND = rows_ND
