"""Encoders that make each call once: the same vectors, fewer calls, a tower where there was one."""

from collections.abc import Sequence

import numpy as np
import pytest
from PIL import Image

from vmem.encoders.fake import FakeImageEncoder, FakeTextEncoder
from vmem.encoders.once import TextsOnce, pictures_once
from vmem.ports import TextTower, Vectors


class Texts(FakeTextEncoder):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def encode(self, texts: Sequence[str]) -> Vectors:
        self.calls += 1
        return super().encode(texts)


class Pictures(FakeImageEncoder):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def encode(self, images: Sequence[Image.Image]) -> Vectors:
        self.calls += 1
        return super().encode(images)


class Tower(Pictures):
    def encode_text(self, texts: Sequence[str]) -> Vectors:
        self.calls += 1
        return FakeTextEncoder(self.width).encode(texts)


def picture(colour: str, size: tuple[int, int] = (8, 8)) -> Image.Image:
    return Image.new("RGB", size, colour)


def test_a_list_of_texts_is_encoded_once_and_another_anew() -> None:
    inner = Texts()
    encoder = TextsOnce(inner)
    assert (encoder.name, encoder.width, encoder.max_tokens) == (
        inner.name,
        inner.width,
        inner.max_tokens,
    )
    first = encoder.encode(["a red box", "a cat"])
    assert np.array_equal(first, FakeTextEncoder().encode(["a red box", "a cat"]))
    assert encoder.encode(("a red box", "a cat")) is first
    assert inner.calls == 1
    encoder.encode(["a cat", "a red box"])
    encoder.encode(["a cat"])
    assert inner.calls == 3
    assert encoder.count_tokens(["a red box"]) == [3]


def test_what_is_kept_cannot_be_written_into() -> None:
    vectors = TextsOnce(Texts()).encode(["a"])
    with pytest.raises(ValueError, match="read-only"):
        vectors[0] = 0


def test_pictures_are_told_apart_by_their_pixels() -> None:
    inner = Pictures()
    encoder = pictures_once(inner)
    assert encoder is not None
    first = encoder.encode([picture("red")])
    assert encoder.encode([picture("red")]) is first
    assert inner.calls == 1
    encoder.encode([picture("blue")])
    encoder.encode([picture("red", (4, 16))])
    assert inner.calls == 3
    assert not isinstance(encoder, TextTower)


def test_an_encoder_with_a_text_tower_keeps_it() -> None:
    inner = Tower()
    encoder = pictures_once(inner)
    assert isinstance(encoder, TextTower)
    assert encoder.encode_text(["a cat"]) is encoder.encode_text(["a cat"])
    assert inner.calls == 1


def test_where_no_picture_is_searched_there_is_still_no_encoder() -> None:
    assert pictures_once(None) is None
