"""Encoders that report their calls give what the encoders give."""

import numpy as np
import pytest
from PIL import Image

from serve.timed import TimedImageEncoder, TimedTextEncoder
from vmem.encoders.fake import FakeImageEncoder, FakeTextEncoder
from vmem.errors import EncoderError
from vmem.ports import TextTower, Vectors

PICTURES = [Image.new("RGB", (8, 8), colour) for colour in ("red", "green", "blue")]


class _Record:
    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def __call__(self, encoder: str, batch: int, seconds: float) -> None:
        assert seconds >= 0
        self.calls.append((encoder, batch))


class _Tower(FakeImageEncoder):
    def encode_text(self, texts: list[str]) -> Vectors:
        return np.full((len(texts), self.width), 0.25, dtype=np.float32)


class _Broken(FakeTextEncoder):
    def encode(self, texts: object) -> Vectors:
        raise EncoderError("out of memory")


def test_texts_are_encoded_and_reported() -> None:
    record, plain = _Record(), FakeTextEncoder()
    timed = TimedTextEncoder(plain, record)
    texts = ["a tent", "a green tent"]
    np.testing.assert_array_equal(timed.encode(texts), plain.encode(texts))
    assert timed.count_tokens(texts) == plain.count_tokens(texts)
    assert (timed.name, timed.width) == (plain.name, plain.width)
    assert timed.max_tokens == plain.max_tokens
    assert record.calls == [("text", 2)]


def test_pictures_are_encoded_and_reported() -> None:
    record, plain = _Record(), FakeImageEncoder()
    timed = TimedImageEncoder.of(plain, record)
    np.testing.assert_array_equal(timed.encode(PICTURES), plain.encode(PICTURES))
    assert (timed.name, timed.width) == (plain.name, plain.width)
    assert record.calls == [("image", 3)]
    assert not isinstance(timed, TextTower)


def test_a_text_tower_stays_one() -> None:
    record, plain = _Record(), _Tower()
    timed = TimedImageEncoder.of(plain, record)
    assert isinstance(timed, TextTower)
    np.testing.assert_array_equal(timed.encode_text(["tent"]), plain.encode_text(["tent"]))
    timed.encode(PICTURES)
    assert record.calls == [("text_tower", 1), ("image", 3)]


def test_a_call_that_fails_is_no_batch() -> None:
    record = _Record()
    with pytest.raises(EncoderError, match="out of memory"):
        TimedTextEncoder(_Broken(), record).encode(["a"])
    assert record.calls == []
