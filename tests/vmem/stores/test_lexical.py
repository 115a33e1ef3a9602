"""BM25 against bm25s to the last bit, and grown indices against those made at once."""

from collections.abc import Sequence

import bm25s
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmem.config import LexicalSettings, load_settings
from vmem.ports import Scores
from vmem.stores.lexical import LexicalIndex

WORDS = ["ferry", "boat", "pier", "harbour", "sea", "a", "the", "boats"]
SETTINGS = [load_settings(name).retrieval.lexical for name in ("paper", "tuned")]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join), max_size=40)
QUERY = st.lists(st.sampled_from([*WORDS, "unknown"]), max_size=6).map(" ".join)


def _by_bm25s(texts: Sequence[str], query: str, settings: LexicalSettings) -> Scores:
    read = LexicalIndex((), settings)._tokens
    tokens = [read(text) for text in texts]
    nothing = np.zeros(len(texts), dtype=np.float32)
    if not any(tokens):
        return nothing
    index = bm25s.BM25(method="lucene", k1=settings.k1, b=settings.b)
    index.index(tokens, show_progress=False)
    known = [word for word in read(query) if word in index.vocab_dict]
    return index.get_scores(known) if known else nothing


@pytest.mark.parametrize("settings", SETTINGS, ids=["paper", "tuned"])
@given(texts=TEXTS, query=QUERY)
def test_scores_are_those_of_bm25s(settings: LexicalSettings, texts: list[str], query: str) -> None:
    found = LexicalIndex(texts, settings).scores(query)
    assert found.dtype == np.float32
    assert found.tolist() == _by_bm25s(texts, query, settings).tolist()


@given(parts=st.lists(TEXTS, min_size=1, max_size=6), query=QUERY)
def test_an_index_grown_in_parts_scores_as_one_made_at_once(
    parts: list[list[str]], query: str
) -> None:
    grown = LexicalIndex(parts[0], SETTINGS[0])
    for part in parts[1:]:
        grown = grown.extended(part)
    whole = LexicalIndex([text for part in parts for text in part], SETTINGS[0])
    assert grown.scores(query).tolist() == whole.scores(query).tolist()


def test_growing_leaves_the_index_before_as_it_was() -> None:
    before = LexicalIndex(["the ferry leaves", "a boat"], SETTINGS[0])
    scores = before.scores("ferry boat").tolist()
    after = before.extended(["another ferry"])
    assert before.scores("ferry boat another").tolist() == scores
    assert (after.scores("another") > 0).tolist() == [False, False, True]


def test_growing_reads_only_what_is_new() -> None:
    read: list[str] = []

    class Reads(LexicalIndex):
        def _tokens(self, text: str) -> list[str]:
            read.append(text)
            return super()._tokens(text)

    index = Reads([f"text {n}" for n in range(100)], SETTINGS[0])
    for n in range(100, 164):
        index = index.extended([f"text {n}"])
    assert read == [f"text {n}" for n in range(164)]
    # one text at a time, segments double: 100 texts, then 64 of them in powers of two
    assert [segment.texts for segment in index._segments] == [100, 64]
