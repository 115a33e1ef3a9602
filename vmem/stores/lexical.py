"""BM25 over the texts of one memory (Robertson and Zaragoza 2009), by bm25s."""

import re
from collections.abc import Sequence
from functools import lru_cache

import bm25s
import numpy as np
import Stemmer
from bm25s.stopwords import STOPWORDS_EN

from vmem.config import LexicalSettings
from vmem.ports import Scores

_WORD = re.compile(r"\w+")
_STOP_WORDS = frozenset(STOPWORDS_EN)


class LexicalIndex:
    """An index over N texts, in their order; its statistics are those texts' alone.

    Args:
        texts: The texts.
        settings: k1, b, and whether words are stemmed and stop words dropped.
    """

    def __init__(self, texts: Sequence[str], settings: LexicalSettings) -> None:
        self._stem = settings.stem
        self._size = len(texts)
        self._index = bm25s.BM25(method="lucene", k1=settings.k1, b=settings.b)
        tokens = [self._tokens(text) for text in texts]
        self._empty = not any(tokens)  # bm25s cannot index a corpus without a word
        if not self._empty:
            self._index.index(tokens, show_progress=False)

    def scores(self, query: str) -> Scores:
        """BM25 of each text (N); 0 where no word is shared."""
        words = [] if self._empty else self._tokens(query)
        known = [word for word in words if word in self._index.vocab_dict]
        if not known:
            return np.zeros(self._size, dtype=np.float32)
        result: Scores = self._index.get_scores(known)
        return result

    def _tokens(self, text: str) -> list[str]:
        words = _WORD.findall(text.lower())
        if not self._stem:
            return words
        return [_stem(word) for word in words if word not in _STOP_WORDS]


_stemmer = Stemmer.Stemmer("english")


@lru_cache(maxsize=100_000)
def _stem(word: str) -> str:
    stem: str = _stemmer.stemWord(word)
    return stem
