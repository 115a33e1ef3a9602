"""A memory kept in process: exact search over its vectors, BM25 over its texts (Eqs. 4 and 5)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vmem.config import LexicalSettings
from vmem.errors import StoreError
from vmem.ports import Mask, Positions, UnitScores, Vectors
from vmem.stores.lexical import LexicalIndex
from vmem.types import Modality, Round, Signal, Unit, UnitKind


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitTable:
    """The units of one index with their vectors, in order of rounds.

    Attributes:
        units: The units (U).
        vectors_UD: Their vectors, of length 1.
    """

    units: tuple[Unit, ...]
    vectors_UD: Vectors

    def __post_init__(self) -> None:
        """Check that each unit has its vector."""
        if len(self.units) != len(self.vectors_UD):
            raise StoreError(f"{len(self.units)} units but {len(self.vectors_UD)} vectors")


class HotMemory:
    """A `SearchableMemory` held in arrays.

    Args:
        rounds: All rounds, by position.
        text: Text, audio and caption units with φ's vectors.
        image: Image units with ψ's vectors; images without pixels are not in it.
        lexical: How BM25 reads the texts.
    """

    def __init__(
        self,
        rounds: Sequence[Round],
        text: UnitTable,
        image: UnitTable,
        lexical: LexicalSettings,
    ) -> None:
        self.rounds = rounds
        self.text = text
        self.image = image
        self._lexical = lexical
        self.has_image_R: Mask = np.array([bool(r.images) for r in rounds], dtype=bool)
        self._text_position_U, self._text_ids = _columns(text.units)
        self._image_position_U, self._image_ids = _columns(image.units)
        self._is_caption_U: Mask = np.array(
            [unit.kind is UnitKind.CAPTION for unit in text.units], dtype=bool
        )

    def score(
        self,
        signal: Signal,
        anchor: str | Vectors,
        candidate_R: Mask | None,
        *,
        pool: int | None,  # noqa: ARG002  # exact search returns every candidate
        with_captions: bool,
    ) -> UnitScores:
        """Score all units of the signal in candidate rounds; see `SearchableMemory.score`."""
        if signal in {Signal.VISUAL, Signal.VISUAL_BY_TEXT}:
            scores = UnitScores(
                unit_ids=self._image_ids,
                position_U=self._image_position_U,
                score_U=self.image.vectors_UD @ _vector(anchor),
            )
            return _among(scores, candidate_R, None)
        captions = signal in {Signal.CAPTION_DENSE, Signal.CAPTION_SPARSE}
        if signal is Signal.TEXT_SPARSE and self._lexical.level == "round":
            return _among(self._round_scores(_text(anchor)), candidate_R, None)
        if signal in {Signal.TEXT_DENSE, Signal.CAPTION_DENSE}:
            score_U = self.text.vectors_UD @ _vector(anchor)
            kept_U = None
        else:
            score_U = self._unit_index.scores(_text(anchor))
            kept_U = score_U > 0
        if captions:
            kept_U = self._is_caption_U if kept_U is None else kept_U & self._is_caption_U
        elif not with_captions:
            kept_U = ~self._is_caption_U if kept_U is None else kept_U & ~self._is_caption_U
        scores = UnitScores(
            unit_ids=self._text_ids, position_U=self._text_position_U, score_U=score_U
        )
        return _among(scores, candidate_R, kept_U)

    def _round_scores(self, anchor: str) -> UnitScores:
        score_R = self._round_index.scores(anchor)
        scores = UnitScores(
            unit_ids=self._round_ids, position_U=np.arange(len(self.rounds)), score_U=score_R
        )
        return _among(scores, None, score_R > 0)

    @cached_property
    def _round_ids(self) -> npt.NDArray[np.object_]:
        return np.array([round_.id for round_ in self.rounds], dtype=object)

    @cached_property
    def _unit_index(self) -> LexicalIndex:
        dates = [self._date(unit.position) for unit in self.text.units]
        texts = [f"{unit.text}{day}" for unit, day in zip(self.text.units, dates, strict=True)]
        return LexicalIndex(texts, self._lexical)

    @cached_property
    def _round_index(self) -> LexicalIndex:
        texts = [self._date(position) for position in range(len(self.rounds))]
        for unit in self.text.units:
            if unit.kind is not UnitKind.CAPTION:
                texts[unit.position] = f"{unit.text} {texts[unit.position]}"
        return LexicalIndex(texts, self._lexical)

    def _date(self, position: int) -> str:
        return spelled_date(self.rounds[position].time) if self._lexical.session_date else ""


def spelled_date(time: str) -> str:
    """An ISO time's date as people write and as files do: ` 8 May 2023 2023-05-08`."""
    day = date.fromisoformat(time[:10])
    return f" {day.day} {day:%B} {day.year} {day.isoformat()}"


def tables(
    units: Sequence[Unit], text_vectors_UD: Vectors, image_vectors_UD: Vectors
) -> tuple[UnitTable, UnitTable]:
    """Units of both indexes, in order, with the vectors of each."""
    text = tuple(unit for unit in units if unit.modality is Modality.TEXT)
    image = tuple(unit for unit in units if unit.modality is Modality.IMAGE)
    return (
        UnitTable(units=text, vectors_UD=text_vectors_UD),
        UnitTable(units=image, vectors_UD=image_vectors_UD),
    )


def _columns(units: Sequence[Unit]) -> tuple[Positions, npt.NDArray[np.object_]]:
    position_U = np.array([unit.position for unit in units], dtype=np.int64)
    return position_U, np.array([unit.id for unit in units], dtype=object)


def _among(scores: UnitScores, candidate_R: Mask | None, kept_U: Mask | None) -> UnitScores:
    if candidate_R is not None:
        near_U = candidate_R[scores.position_U]
        kept_U = near_U if kept_U is None else kept_U & near_U
    if kept_U is None:
        return scores
    return UnitScores(
        unit_ids=scores.unit_ids[kept_U],
        position_U=scores.position_U[kept_U],
        score_U=scores.score_U[kept_U],
    )


def _vector(anchor: str | Vectors) -> Vectors:
    if isinstance(anchor, str):
        raise StoreError("a dense signal takes a vector, not a text")
    return anchor


def _text(anchor: str | Vectors) -> str:
    if not isinstance(anchor, str):
        raise StoreError("a sparse signal takes a text, not a vector")
    return anchor
