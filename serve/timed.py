"""Encoders that gather calls, and report how many items each batch has and how long it takes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from PIL.Image import Image as Picture

from serve.gathered import Gathered
from serve.telemetry import Encoder
from vmem.build import make_parts
from vmem.config import Settings
from vmem.config import replace as replace_settings
from vmem.pipeline import Parts
from vmem.ports import ChatModel, ImageEncoder, TextEncoder, TextTower, Vectors

Record = Callable[[Encoder, int, float], None]
"""Told of a call: the encoder, its items and its seconds; such as `RetrieverMetrics.encoded`."""

E = TypeVar("E", bound=TextEncoder | ImageEncoder)
Item = TypeVar("Item")


def timed_parts(settings: Settings, record: Record, chat: ChatModel | None = None) -> Parts:
    """What a replica runs on: the settings' encoders, timed, and the backbone given.

    Args:
        settings: The memory's settings; the model that they name is not started here.
        record: Told of each call of an encoder.
        chat: The backbone, or None.

    Raises:
        EncoderError: An encoder cannot be loaded.
    """
    parts = make_parts(replace_settings(settings, llm={"provider": "none"}))
    image = parts.image_encoder
    return replace(
        parts,
        text_encoder=TimedTextEncoder(parts.text_encoder, record),
        image_encoder=TimedImageEncoder.of(image, record) if image else None,
        chat=chat,
    )


class _Timed(Generic[E]):
    """An encoder that gathers the calls of several threads and reports each batch.

    Args:
        encoder: The encoder.
        record: Told of each batch.
    """

    def __init__(self, encoder: E, record: Record) -> None:
        self._encoder = encoder
        self._record = record

    @property
    def name(self) -> str:
        """The encoder's own."""
        return self._encoder.name

    @property
    def width(self) -> int:
        """The encoder's own."""
        return self._encoder.width

    def _gathered(
        self, which: Encoder, encode: Callable[[Sequence[Item]], Vectors]
    ) -> Gathered[Item, Vectors]:
        def timed(items: Sequence[Item]) -> Vectors:
            start = time.perf_counter()
            vectors_ND = encode(items)
            self._record(which, len(items), time.perf_counter() - start)
            return vectors_ND

        return Gathered(timed)


class TimedTextEncoder(_Timed[TextEncoder]):
    """A `TextEncoder` that gathers and reports its calls."""

    def __init__(self, encoder: TextEncoder, record: Record) -> None:
        super().__init__(encoder, record)
        self._encode = self._gathered("text", encoder.encode)

    @property
    def max_tokens(self) -> int:
        """See `TextEncoder.max_tokens`."""
        return self._encoder.max_tokens

    def encode(self, texts: Sequence[str]) -> Vectors:
        """See `TextEncoder.encode`."""
        return self._encode(texts)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """See `TextEncoder.count_tokens`."""
        return self._encoder.count_tokens(texts)


class TimedImageEncoder(_Timed[ImageEncoder]):
    """An `ImageEncoder` that gathers and reports its calls; `of` keeps a text tower."""

    def __init__(self, encoder: ImageEncoder, record: Record) -> None:
        super().__init__(encoder, record)
        self._encode = self._gathered("image", encoder.encode)

    @staticmethod
    def of(encoder: ImageEncoder, record: Record) -> "TimedImageEncoder":
        """The encoder timed, with a text tower where it has one."""
        if isinstance(encoder, TextTower):
            return _TimedTower(encoder, encoder, record)
        return TimedImageEncoder(encoder, record)

    def encode(self, images: Sequence[Picture]) -> Vectors:
        """See `ImageEncoder.encode`."""
        return self._encode(images)


class _TimedTower(TimedImageEncoder):
    """A `TimedImageEncoder` with a text tower."""

    def __init__(self, encoder: ImageEncoder, tower: TextTower, record: Record) -> None:
        super().__init__(encoder, record)
        self._encode_text = self._gathered("text_tower", tower.encode_text)

    def encode_text(self, texts: Sequence[str]) -> Vectors:
        """See `TextTower.encode_text`."""
        return self._encode_text(texts)
