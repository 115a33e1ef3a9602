"""BM25 over the texts of one memory (Robertson and Zaragoza 2009), grown text by text.

The scores are those of Lucene's variant, to the last bit those of bm25s. Texts are held in segments
whose statistics are shared when a query is scored, so that a text is read once however often the
memory grows: an index made anew at every append took 5 s at 100,000 texts.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import log
from threading import Lock
from typing import Self

import numpy as np
import numpy.typing as npt
import Stemmer
from bm25s.stopwords import STOPWORDS_EN

from vmem.config import LexicalSettings
from vmem.ports import Positions, Scores

_WORD = re.compile(r"\w+")
_STOP_WORDS = frozenset(STOPWORDS_EN)


class LexicalIndex:
    """An index over N texts, in their order; its statistics are those texts' alone.

    Args:
        texts: The texts.
        settings: k1, b, and whether words are stemmed and stop words dropped.
    """

    def __init__(self, texts: Sequence[str], settings: LexicalSettings) -> None:
        self._settings = settings
        self._numbers: dict[str, int] = {}  # of words; shared with the indices grown from this one
        self._numbering = Lock()  # two that grow from one at once must not give a number twice
        self._length_N: Positions = np.zeros(0, dtype=np.int64)
        self._segments: tuple[_Segment, ...] = ()
        self._scored: dict[int, list[tuple[npt.NDArray[np.int32], Scores]]] = {}  # as asked for
        self._read(texts)

    def extended(self, texts: Sequence[str]) -> Self:
        """An index over these texts after the present ones; only they are read."""
        grown = type(self)((), self._settings)
        grown._numbers, grown._numbering = self._numbers, self._numbering
        grown._length_N, grown._segments = self._length_N, self._segments
        grown._read(texts)
        return grown

    def scores(self, query: str) -> Scores:
        """BM25 of each text (N); 0 where no word is shared."""
        score_N = np.zeros(len(self._length_N), dtype=np.float32)
        for word in self._tokens(query):
            if (number := self._numbers.get(word)) is not None:
                if number not in self._scored:
                    self._scored[number] = self._score(number)
                for text_P, score_P in self._scored[number]:
                    score_N[text_P] += score_P
        return score_N

    def _score(self, number: int) -> list[tuple[npt.NDArray[np.int32], Scores]]:
        """The texts that have a word, and what it adds to the score of each, by segment."""
        found = [segment.texts_with(number) for segment in self._segments]
        texts = sum(len(text_P) for text_P, _ in found)
        rarity = np.float32(log(1 + (len(self._length_N) - texts + 0.5) / (texts + 0.5)))
        return [
            (text_P, (rarity * (count_P / (self._norm_N[text_P] + count_P))).astype(np.float32))
            for text_P, count_P in found
        ]

    @cached_property
    def _norm_N(self) -> npt.NDArray[np.float64]:
        """What the length of a text makes its words weigh less by."""
        k1, b = self._settings.k1, self._settings.b
        norm_N: npt.NDArray[np.float64] = k1 * (1 - b + b * self._length_N / self._length_N.mean())
        return norm_N

    def _read(self, texts: Sequence[str]) -> None:
        """Add a segment, merged with those before it that are not larger."""
        if not len(texts):
            return
        numbers, numbered = self._numbers, [self._tokens(text) for text in texts]
        lengths = np.array([len(words) for words in numbered], dtype=np.int64)
        with self._numbering:
            word_T = np.array(
                [numbers.setdefault(word, len(numbers)) for words in numbered for word in words],
                dtype=np.int64,
            )
        text_T = np.repeat(np.arange(len(lengths)), lengths) + len(self._length_N)
        segments = [*self._segments, _segment(word_T, text_T, len(lengths))]
        while len(segments) > 1 and segments[-2].texts <= segments[-1].texts:
            segments[-2:] = [_merged(segments[-2], segments[-1])]
        self._segments = tuple(segments)
        self._length_N = np.concatenate([self._length_N, lengths])

    def _tokens(self, text: str) -> list[str]:
        words = _WORD.findall(text.lower())
        if not self._settings.stem:
            return words
        return [_stem(word) for word in words if word not in _STOP_WORDS]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segment:
    """Words of some texts that follow each other: P pairs of a word and a text that has it.

    Attributes:
        texts: How many texts.
        word_W: Numbers of their words, rising.
        start_W: Where each word's pairs begin.
        text_P: The text of each pair, by word, then rising.
        count_P: How often the text has the word.
    """

    texts: int
    word_W: npt.NDArray[np.int32]
    start_W: npt.NDArray[np.int64]
    text_P: npt.NDArray[np.int32]
    count_P: npt.NDArray[np.float32]

    def texts_with(self, number: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """The texts that have a word, and how often."""
        place = int(np.searchsorted(self.word_W, number))
        if place == len(self.word_W) or self.word_W[place] != number:
            return self.text_P[:0], self.count_P[:0]
        last = place + 1 == len(self.word_W)
        end = len(self.text_P) if last else int(self.start_W[place + 1])
        pairs = slice(int(self.start_W[place]), end)
        return self.text_P[pairs], self.count_P[pairs]


def _segment(word_T: Positions, text_T: Positions, texts: int) -> _Segment:
    """A segment of T words as they stand in their texts."""
    first = int(text_T[0]) if len(text_T) else 0
    pair_P, count_P = np.unique(word_T * texts + (text_T - first), return_counts=True)
    return _by_word(pair_P // texts, pair_P % texts + first, count_P, texts)


def _merged(one: _Segment, other: _Segment) -> _Segment:
    """A segment of the texts of two that follow each other."""
    both = (one, other)
    word_P = np.concatenate([np.repeat(s.word_W, _counts(s)) for s in both])
    order = np.argsort(word_P, kind="stable")
    text_P = np.concatenate([s.text_P for s in both])[order]
    count_P = np.concatenate([s.count_P for s in both])[order]
    return _by_word(word_P[order], text_P, count_P, one.texts + other.texts)


def _counts(segment: _Segment) -> Positions:
    """How many texts have each word."""
    return np.diff(segment.start_W, append=len(segment.text_P))


def _by_word(
    word_P: npt.NDArray[np.integer],
    text_P: npt.NDArray[np.integer],
    count_P: npt.NDArray[np.number],
    texts: int,
) -> _Segment:
    word_W, start_W = np.unique(word_P, return_index=True)
    return _Segment(
        texts=texts,
        word_W=word_W.astype(np.int32),
        start_W=start_W,
        text_P=text_P.astype(np.int32),
        count_P=count_P.astype(np.float32),
    )


_stemmer = Stemmer.Stemmer("english")


@lru_cache(maxsize=100_000)
def _stem(word: str) -> str:
    stem: str = _stemmer.stemWord(word)
    return stem
