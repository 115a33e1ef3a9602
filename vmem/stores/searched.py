"""A memory too large for arrays: Milvus searches its vectors, BM25 stays in process."""

from collections.abc import Sequence

import numpy as np

from vmem.config import LexicalSettings
from vmem.ports import Mask, UnitScores, Vectors
from vmem.stores.hot import TextLanes, text_anchor, vector_anchor
from vmem.stores.milvus import MAX_LIMIT, Hit, MilvusStore
from vmem.types import (
    CAPTION_SIGNALS,
    SPARSE_SIGNALS,
    VISUAL_SIGNALS,
    Round,
    Signal,
    Unit,
    UnitKind,
)

ALL = 1_000
"""Units searched where every candidate is asked for: the far end of a large memory is left out."""
MAX_POSITIONS = 2_000
"""Rounds named in a filter; beyond that, hits are filtered here."""


class MilvusMemory(TextLanes):
    """A `SearchableMemory` whose vectors stay in Milvus.

    Args:
        rounds: All rounds, by position.
        text: Text, audio and caption units, in order of rounds.
        lexical: How BM25 reads the texts.
        store: Where the vectors are.
        memory_id: Whose they are.
        text_collection: The text index.
        image_collection: The image index.
        before: The memory that this one begins with.
    """

    def __init__(
        self,
        rounds: Sequence[Round],
        text: Sequence[Unit],
        lexical: LexicalSettings,
        *,
        store: MilvusStore,
        memory_id: str,
        text_collection: str,
        image_collection: str,
        before: "MilvusMemory | None" = None,
    ) -> None:
        super().__init__(rounds, text, lexical, before)
        self._store = store
        self._memory_id = memory_id
        self._text_collection = text_collection
        self._image_collection = image_collection

    def extended(self, rounds: Sequence[Round], text: Sequence[Unit]) -> "MilvusMemory":
        """This memory with rounds and their text units appended."""
        return MilvusMemory(
            [*self.rounds, *rounds],
            [*self._text, *text],
            self._lexical,
            store=self._store,
            memory_id=self._memory_id,
            text_collection=self._text_collection,
            image_collection=self._image_collection,
            before=self,
        )

    def score(
        self,
        signal: Signal,
        anchor: str | Vectors,
        candidate_R: Mask | None,
        *,
        pool: int | None,
        with_captions: bool,
    ) -> UnitScores:
        """The best units of at least `pool` candidate rounds; see `SearchableMemory.score`."""
        if signal in SPARSE_SIGNALS:
            return self._sparse(signal, text_anchor(anchor), candidate_R, with_captions)
        vector_D = vector_anchor(anchor)
        limit = ALL if pool is None else 4 * pool
        while True:
            hits = self._search(signal, vector_D, candidate_R, with_captions, limit)
            near = [h for h in hits if candidate_R is None or candidate_R[h.position]]
            found = len({hit.position for hit in near})
            if pool is None or found >= pool or len(hits) < limit or limit == MAX_LIMIT:
                return _scores(near)
            limit = min(MAX_LIMIT, 4 * limit)

    def _search(
        self,
        signal: Signal,
        vector_D: Vectors,
        candidate_R: Mask | None,
        with_captions: bool,
        limit: int,
    ) -> list[Hit]:
        positions = None
        if candidate_R is not None and candidate_R.sum() <= MAX_POSITIONS:
            positions = np.flatnonzero(candidate_R).tolist()
        return self._store.search(
            self._image_collection if signal in VISUAL_SIGNALS else self._text_collection,
            vector_D,
            self._memory_id,
            positions=positions,
            kinds=_kinds(signal, with_captions),
            limit=limit,
            strong=True,
        )


def _kinds(signal: Signal, with_captions: bool) -> list[UnitKind] | None:
    if signal in CAPTION_SIGNALS:
        return [UnitKind.CAPTION]
    if signal in VISUAL_SIGNALS or with_captions:
        return None
    return [UnitKind.TEXT, UnitKind.AUDIO]


def _scores(hits: Sequence[Hit]) -> UnitScores:
    return UnitScores(
        unit_ids=np.array([hit.unit_id for hit in hits], dtype=object),
        position_U=np.array([hit.position for hit in hits], dtype=np.int64),
        score_U=np.array([hit.score for hit in hits], dtype=np.float32),
    )
