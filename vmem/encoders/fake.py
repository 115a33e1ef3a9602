"""Encoders for tests, without a model: deterministic functions of words and of colours.

Never the only thing a feature is tried on: they know that the same word or the same colour comes
back, and nothing else. Whether a memory is found by meaning is a question for a real encoder.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image

from vmem.encoders.vectors import unit_length
from vmem.ports import Vectors

_GRID = 16
_SHADE = 64


class FakeTextEncoder:
    """Bags of words: each word has a fixed direction of its own, a text is the sum of its words.

    Args:
        width: D.
    """

    max_tokens = 256

    def __init__(self, width: int = 32) -> None:
        self.width = width
        self.name = f"fake-text-{width}"

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Vectors (N, D), float32, of length 1; words past `max_tokens` are not read."""
        return _encode([Counter(_words(text)[: self.max_tokens]) for text in texts], self.width)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The number of words of each text."""
        return [len(_words(text)) for text in texts]


class FakeImageEncoder:
    """Bags of colours: a picture is the sum of its coarse colours, each by its share of the area.

    Args:
        width: D.
    """

    def __init__(self, width: int = 16) -> None:
        self.width = width
        self.name = f"fake-image-{width}"

    def encode(self, images: Sequence[Image.Image]) -> Vectors:
        """Vectors (N, D), float32, of length 1."""
        return _encode([_colours(image) for image in images], self.width)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _colours(image: Image.Image) -> Counter[str]:
    small = image.convert("RGB").resize((_GRID, _GRID), Image.Resampling.BOX)
    return Counter(str(pixel) for pixel in (np.asarray(small) // _SHADE).reshape(-1, 3))


def _encode(bags: Sequence[Counter[str]], width: int) -> Vectors:
    sums_ND = np.zeros((len(bags), width))
    for sum_D, bag in zip(sums_ND, bags, strict=True):
        # An empty bag gets a direction too: no store takes a vector of zeros.
        for token, count in (bag or Counter([""])).items():
            sum_D += count * _direction(token, width)
    return unit_length(sums_ND)


def _direction(token: str, width: int) -> npt.NDArray[np.float64]:
    noise = hashlib.shake_256(token.encode()).digest(width)
    return np.frombuffer(noise, dtype=np.uint8).astype(np.float64) - 127.5
