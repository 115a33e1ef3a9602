"""Synthetic conversations as long as LoCoMo's, and vectors in the place of encoders' own.

Lengths are those of LoCoMo's 5,882 turns and 272 sessions. Words are drawn by Zipf and Mandelbrot's
law from 100,000, so that BM25 meets rare and common ones as in prose. The encoders only make
vectors of the right width and length: how fast a real encoder is, is not measured with them.
"""

import zlib
from collections.abc import Sequence
from datetime import date, timedelta
from functools import cache
from io import BytesIO

import numpy as np
import numpy.typing as npt
from PIL import Image as Pictures
from PIL.Image import Image as Picture

from vmem.encoders.vectors import unit_length
from vmem.ports import Vectors
from vmem.types import Image, Query, Round, Turn

TURN_WORDS, TURN_WORDS_SD = 22.7, 12.6
"""Of LoCoMo's turns: 124 characters."""
SESSION_ROUNDS = 11
"""Of LoCoMo: 21.6 turns a session."""
CAPTION_WORDS = 10
"""Of LoCoMo's captions: 56 characters."""
QUESTION_WORDS = 8
WORDS = 100_000
_LETTERS = "etaon"  # numerals to base 5 are as long as words: 4.3 letters where prose has 4.4
_OFFSET = 2.7  # Mandelbrot's, for English
_SPEAKERS = ("Ada", "Ben")
_FIRST_DAY = date(2026, 1, 1)
_POOL = 4_096


def synthetic_rounds(
    seed: int, memory: int, start: int, count: int, pictures: Sequence[Image], share: float
) -> list[Round]:
    """Some rounds of a memory; the same arguments give the same rounds.

    Args:
        seed: Of everything.
        memory: The memory's number.
        start: Position of the first round.
        count: Rounds.
        pictures: Stored pictures, of which a round shows one.
        share: Of the rounds that show one.
    """
    rng = np.random.default_rng([seed, memory, start])
    texts = _texts(rng, _lengths(rng, 2 * count))
    shows_R = rng.random(count) < share
    captions = _texts(rng, np.full(count, CAPTION_WORDS))
    chosen_R = rng.integers(0, max(1, len(pictures)), count)
    rounds = []
    for n in range(count):
        image = None
        if shows_R[n] and pictures:
            stored = pictures[chosen_R[n]]
            name = f"r{start + n}:IMG"
            image = Image(id=name, uri=stored.uri, digest=stored.digest, caption=captions[n])
        rounds.append(_round(start + n, texts[2 * n : 2 * n + 2], image))
    return rounds


def questions(seed: int, memory: int, count: int) -> list[Query]:
    """Questions in words that the memory knows, every other one after a picture."""
    rng = np.random.default_rng([seed, memory, 2**32])
    texts = _texts(rng, np.full(count, QUESTION_WORDS))
    return [
        Query(text=f"Which picture shows {text}?" if n % 2 else f"What did we say of {text}?")
        for n, text in enumerate(texts)
    ]


def small_pictures(count: int) -> list[bytes]:
    """Different pictures of one colour each, as PNG."""
    made = []
    for n in range(count):
        picture = Pictures.new("RGB", (8, 8), (n, 255 - n, 128))
        made.append(_png(picture))
    return made


class SyntheticTextEncoder:
    """Vectors by a text's checksum, in no time and without meaning.

    Args:
        width: D.
    """

    max_tokens = 256

    def __init__(self, width: int = 384) -> None:
        self.width = width
        self.name = f"synthetic-text-{width}"

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Vectors (N, D), float32, of length 1."""
        return _vectors([zlib.crc32(text.encode()) for text in texts], self.width)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The number of words of each text."""
        return [len(text.split()) for text in texts]


class SyntheticImageEncoder:
    """Another vector for every picture, also one shown before: no two photos are the same.

    Args:
        width: D.
    """

    def __init__(self, width: int = 768) -> None:
        self.width = width
        self.name = f"synthetic-image-{width}"
        self._seen = 0

    def encode(self, images: Sequence[Picture]) -> Vectors:
        """Vectors (N, D), float32, of length 1."""
        first, self._seen = self._seen, self._seen + len(images)
        return _vectors([zlib.crc32(b"%d" % n) for n in range(first, self._seen)], self.width)


def _round(position: int, texts: Sequence[str], image: Image | None) -> Round:
    turns = tuple(
        Turn(
            source_id=f"r{position}:{n}",
            speaker=speaker,
            text=text,
            images=(image,) if image and not n else (),
        )
        for n, (speaker, text) in enumerate(zip(_SPEAKERS, texts, strict=True))
    )
    session = position // SESSION_ROUNDS
    day = _FIRST_DAY + timedelta(days=session % 10_000)
    return Round(
        id=f"r{position}",
        position=position,
        session=f"session_{session + 1}",
        time=f"{day}T09:00",
        turns=turns,
    )


def _lengths(rng: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
    """Words of turns: a gamma distribution of LoCoMo's mean and standard deviation."""
    shape = (TURN_WORDS / TURN_WORDS_SD) ** 2
    drawn = rng.gamma(shape, TURN_WORDS / shape, count)
    return np.maximum(1, np.rint(drawn)).astype(np.int64)


def _texts(rng: np.random.Generator, lengths: npt.NDArray[np.int64]) -> list[str]:
    words, shares = _vocabulary()
    ranks = np.searchsorted(shares, rng.random(int(lengths.sum())))
    drawn = iter([words[rank] for rank in ranks.tolist()])
    return [" ".join(next(drawn) for _ in range(length)) for length in lengths.tolist()]


@cache
def _vocabulary() -> tuple[list[str], npt.NDArray[np.float64]]:
    """Words by rank, and the share of the text that they and all commoner ones make up."""
    weights = 1 / (np.arange(1, WORDS + 1) + _OFFSET)
    shares = np.cumsum(weights) / weights.sum()
    shares[-1] = 1.0
    return [_word(rank) for rank in range(1, WORDS + 1)], shares


def _word(rank: int) -> str:
    """The rank as a numeral without a zero, so that common words are short."""
    letters = ""
    while rank:
        rank, digit = divmod(rank - 1, len(_LETTERS))
        letters = _LETTERS[digit] + letters
    return letters


def _vectors(sums: Sequence[int], width: int) -> Vectors:
    """The sum of two of a pool's vectors, chosen by a checksum of 32 bits."""
    pool_PD = _pool(width)
    sum_N = np.array(sums, dtype=np.int64)
    return unit_length(pool_PD[sum_N % _POOL] + pool_PD[(sum_N >> 16) % (_POOL - 1)])


@cache
def _pool(width: int) -> npt.NDArray[np.float64]:
    return np.random.default_rng(0).standard_normal((_POOL, width))


def _png(picture: Picture) -> bytes:
    buffer = BytesIO()
    picture.save(buffer, format="PNG")
    return buffer.getvalue()
