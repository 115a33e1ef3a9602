"""Encoders that report how many items each call encodes, and how long it takes."""

import time
from collections.abc import Callable, Sequence

from PIL.Image import Image as Picture

from serve.telemetry import Encoder
from vmem.ports import ImageEncoder, TextEncoder, TextTower, Vectors

Record = Callable[[Encoder, int, float], None]
"""Told of a call: the encoder, its items and its seconds; such as `RetrieverMetrics.encoded`."""


class TimedTextEncoder:
    """A `TextEncoder` that reports its calls.

    Args:
        encoder: The encoder.
        record: Told of each call.
    """

    def __init__(self, encoder: TextEncoder, record: Record) -> None:
        self._encoder = encoder
        self._record = record

    @property
    def name(self) -> str:
        """See `TextEncoder.name`."""
        return self._encoder.name

    @property
    def width(self) -> int:
        """See `TextEncoder.width`."""
        return self._encoder.width

    @property
    def max_tokens(self) -> int:
        """See `TextEncoder.max_tokens`."""
        return self._encoder.max_tokens

    def encode(self, texts: Sequence[str]) -> Vectors:
        """See `TextEncoder.encode`."""
        start = time.perf_counter()
        vectors_ND = self._encoder.encode(texts)
        self._record("text", len(texts), time.perf_counter() - start)
        return vectors_ND

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """See `TextEncoder.count_tokens`."""
        return self._encoder.count_tokens(texts)


class TimedImageEncoder:
    """An `ImageEncoder` that reports its calls; `of` keeps a text tower.

    Args:
        encoder: The encoder.
        record: Told of each call.
    """

    def __init__(self, encoder: ImageEncoder, record: Record) -> None:
        self._encoder = encoder
        self._record = record

    @staticmethod
    def of(encoder: ImageEncoder, record: Record) -> "TimedImageEncoder":
        """The encoder timed, with a text tower where it has one."""
        if isinstance(encoder, TextTower):
            return _TimedTower(encoder, encoder, record)
        return TimedImageEncoder(encoder, record)

    @property
    def name(self) -> str:
        """See `ImageEncoder.name`."""
        return self._encoder.name

    @property
    def width(self) -> int:
        """See `ImageEncoder.width`."""
        return self._encoder.width

    def encode(self, images: Sequence[Picture]) -> Vectors:
        """See `ImageEncoder.encode`."""
        start = time.perf_counter()
        vectors_ND = self._encoder.encode(images)
        self._record("image", len(images), time.perf_counter() - start)
        return vectors_ND


class _TimedTower(TimedImageEncoder):
    """A `TimedImageEncoder` with a text tower."""

    def __init__(self, encoder: ImageEncoder, tower: TextTower, record: Record) -> None:
        super().__init__(encoder, record)
        self._tower = tower

    def encode_text(self, texts: Sequence[str]) -> Vectors:
        """See `TextTower.encode_text`."""
        start = time.perf_counter()
        vectors_ND = self._tower.encode_text(texts)
        self._record("text_tower", len(texts), time.perf_counter() - start)
        return vectors_ND
