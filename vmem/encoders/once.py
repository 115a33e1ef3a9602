"""Encoders that make each call once: the systems of an evaluation search the same texts.

What is kept is the whole call, not each text of it: a text's vector moves by rounding with those
that it is encoded beside, and a run that was cut off must go on with the same bits.
"""

import hashlib
from collections.abc import Callable, Hashable, Sequence

from PIL.Image import Image as Picture

from vmem.ports import ImageEncoder, TextEncoder, TextTower, Vectors


class _Calls:
    """What calls gave, for as long as the encoder lives."""

    def __init__(self) -> None:
        self._vectors: dict[Hashable, Vectors] = {}

    def once(self, key: Hashable, encode: Callable[[], Vectors]) -> Vectors:
        """What the call gave before, or gives now; two threads may both make it."""
        if key not in self._vectors:
            vectors_ND = encode()
            vectors_ND.flags.writeable = False  # everyone who asks gets this array
            self._vectors[key] = vectors_ND
        return self._vectors[key]


class TextsOnce:
    """A text encoder that encodes no list of texts twice.

    Args:
        encoder: The encoder.
    """

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self._calls = _Calls()
        self.name, self.width = encoder.name, encoder.width
        self.max_tokens = encoder.max_tokens

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Vectors (N, D) as the encoder makes them; not to be written into."""
        return self._calls.once(tuple(texts), lambda: self._encoder.encode(texts))

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """As the encoder counts."""
        return self._encoder.count_tokens(texts)


class PicturesOnce:
    """An image encoder that encodes no list of pictures twice.

    Args:
        encoder: The encoder.
    """

    def __init__(self, encoder: ImageEncoder) -> None:
        self._encoder = encoder
        self._calls = _Calls()
        self.name, self.width = encoder.name, encoder.width

    def encode(self, images: Sequence[Picture]) -> Vectors:
        """Vectors (N, D) as the encoder makes them; not to be written into."""
        key = tuple(map(_digest, images))
        return self._calls.once(key, lambda: self._encoder.encode(images))


class TowersOnce(PicturesOnce):
    """The same of an encoder that also places texts among its pictures.

    Args:
        encoder: The encoder.
        tower: The same, as what encodes texts.
    """

    def __init__(self, encoder: ImageEncoder, tower: TextTower) -> None:
        super().__init__(encoder)
        self._tower = tower
        self._texts = _Calls()

    def encode_text(self, texts: Sequence[str]) -> Vectors:
        """Vectors (N, D) as the encoder makes them; not to be written into."""
        return self._texts.once(tuple(texts), lambda: self._tower.encode_text(texts))


def pictures_once(encoder: ImageEncoder | None) -> ImageEncoder | None:
    """An image encoder that makes each call once, with a text tower where it had one."""
    if encoder is None:
        return None
    return TowersOnce(encoder, encoder) if isinstance(encoder, TextTower) else PicturesOnce(encoder)


def _digest(picture: Picture) -> tuple[str, tuple[int, int], bytes]:
    return picture.mode, picture.size, hashlib.blake2b(picture.tobytes()).digest()
