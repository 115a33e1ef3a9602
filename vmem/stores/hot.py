"""A memory kept in process: exact search over its vectors, BM25 over its texts (Eqs. 4 and 5)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vmem.config import LexicalSettings
from vmem.errors import StoreError
from vmem.ports import Mask, Positions, Scores, UnitScores, Vectors
from vmem.stores.lexical import LexicalIndex
from vmem.types import (
    CAPTION_SIGNALS,
    SPARSE_SIGNALS,
    VISUAL_SIGNALS,
    Round,
    Signal,
    Unit,
    UnitKind,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitTable:
    """The units of one index with their vectors, in order of rounds.

    Attributes:
        units: The units (U).
        vectors_UD: Their vectors, of length 1.
    """

    units: tuple[Unit, ...]
    vectors_UD: Vectors

    def plus(self, other: "UnitTable") -> "UnitTable":
        """This table with another's rows below."""
        if not other.units:
            return self
        return UnitTable(
            units=(*self.units, *other.units),
            vectors_UD=np.concatenate([self.vectors_UD, other.vectors_UD]),
        )

    def __post_init__(self) -> None:
        """Check that each unit has its vector."""
        if len(self.units) != len(self.vectors_UD):
            raise StoreError(f"{len(self.units)} units but {len(self.vectors_UD)} vectors")


class TextLanes:
    """What every memory keeps in process: its rounds, and BM25 over its texts.

    Args:
        rounds: All rounds, by position.
        text: Text, audio and caption units, in order of rounds.
        lexical: How BM25 reads the texts.
        before: The memory that this one begins with; only what follows is read.
    """

    has_image_R: Mask
    _text_position_U: Positions
    _text_ids: npt.NDArray[np.object_]
    _is_caption_U: Mask

    def __init__(
        self,
        rounds: Sequence[Round],
        text: Sequence[Unit],
        lexical: LexicalSettings,
        before: "TextLanes | None" = None,
    ) -> None:
        self.rounds = rounds
        self._text = text
        self._lexical = lexical
        start_R, start_U = (len(before.rounds), len(before._text)) if before else (0, 0)
        has_image_R = np.array([bool(r.images) for r in rounds[start_R:]], dtype=bool)
        position_U, ids = _columns(text[start_U:])
        is_caption_U = np.array(
            [unit.kind is UnitKind.CAPTION for unit in text[start_U:]], dtype=bool
        )
        if before:
            has_image_R = np.concatenate([before.has_image_R, has_image_R])
            position_U = np.concatenate([before._text_position_U, position_U])
            ids = np.concatenate([before._text_ids, ids])
            is_caption_U = np.concatenate([before._is_caption_U, is_caption_U])
        self.has_image_R = has_image_R
        self._text_position_U, self._text_ids = position_U, ids
        self._is_caption_U = is_caption_U
        if before and "_unit_index" in vars(before):
            self._unit_index = before._unit_index.extended(self._unit_texts(start_U))
        if before and "_round_index" in vars(before):
            self._round_index = before._round_index.extended(self._round_texts(start_R, start_U))

    @property
    def unit_count(self) -> int:
        """Units that are kept in process."""
        return len(self._text)

    def _sparse(
        self, signal: Signal, anchor: str, candidate_R: Mask | None, with_captions: bool
    ) -> UnitScores:
        if signal is Signal.TEXT_SPARSE and self._lexical.level == "round":
            score_R = self._round_index.scores(anchor)
            rounds = UnitScores(
                unit_ids=self._round_ids, position_U=np.arange(len(self.rounds)), score_U=score_R
            )
            return _among(rounds, candidate_R, score_R > 0)
        score_U = self._unit_index.scores(anchor)
        kept_U = score_U > 0
        searched_U = self._searched(signal, with_captions)
        if searched_U is not None:
            kept_U &= searched_U
        return _among(self._scored(score_U), candidate_R, kept_U)

    def _scored(self, score_U: Scores) -> UnitScores:
        return UnitScores(
            unit_ids=self._text_ids, position_U=self._text_position_U, score_U=score_U
        )

    def _searched(self, signal: Signal, with_captions: bool) -> Mask | None:
        """Which text units a signal scores; None is all of them."""
        if signal in CAPTION_SIGNALS:
            return self._is_caption_U
        return None if with_captions else ~self._is_caption_U

    @cached_property
    def _round_ids(self) -> npt.NDArray[np.object_]:
        return np.array([round_.id for round_ in self.rounds], dtype=object)

    @cached_property
    def _unit_index(self) -> LexicalIndex:
        return LexicalIndex(self._unit_texts(0), self._lexical)

    @cached_property
    def _round_index(self) -> LexicalIndex:
        return LexicalIndex(self._round_texts(0, 0), self._lexical)

    def _unit_texts(self, start_U: int) -> list[str]:
        """What BM25 reads of the units from one on."""
        return [f"{unit.text}{self._date(unit.position)}" for unit in self._text[start_U:]]

    def _round_texts(self, start_R: int, start_U: int) -> list[str]:
        """What BM25 reads of the rounds from one on, whose units begin at another."""
        # A gap, a round without turns, has no text to be found by: not even its date.
        texts = [self._date(r.position) if r.turns else "" for r in self.rounds[start_R:]]
        for unit in self._text[start_U:]:
            if unit.kind is not UnitKind.CAPTION:
                place = unit.position - start_R
                texts[place] = f"{unit.text} {texts[place]}"
        return texts

    def _date(self, position: int) -> str:
        return spelled_date(self.rounds[position].time) if self._lexical.session_date else ""


class HotMemory(TextLanes):
    """A `SearchableMemory` held in arrays and searched exactly.

    Args:
        rounds: All rounds, by position.
        text: Text, audio and caption units with φ's vectors.
        image: Image units with ψ's vectors; images without pixels are not in it.
        lexical: How BM25 reads the texts.
        before: The memory that this one begins with.
    """

    def __init__(
        self,
        rounds: Sequence[Round],
        text: UnitTable,
        image: UnitTable,
        lexical: LexicalSettings,
        before: "HotMemory | None" = None,
    ) -> None:
        super().__init__(rounds, text.units, lexical, before)
        self._tables = (text, image)
        self._text_vectors_UD = text.vectors_UD
        self._image_vectors_IE = image.vectors_UD
        self._image_position_I, self._image_ids = _columns(image.units)

    @property
    def unit_count(self) -> int:
        """Units that are kept in process."""
        return sum(len(table.units) for table in self._tables)

    def extended(self, rounds: Sequence[Round], text: UnitTable, image: UnitTable) -> "HotMemory":
        """This memory with rounds and their units appended; nothing is encoded or read again."""
        old_text, old_image = self._tables
        return HotMemory(
            [*self.rounds, *rounds],
            old_text.plus(text),
            old_image.plus(image),
            self._lexical,
            before=self,
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
        if signal in SPARSE_SIGNALS:
            return self._sparse(signal, text_anchor(anchor), candidate_R, with_captions)
        vector_D = vector_anchor(anchor)
        if signal in VISUAL_SIGNALS:
            pictures = UnitScores(
                unit_ids=self._image_ids,
                position_U=self._image_position_I,
                score_U=self._image_vectors_IE @ vector_D,
            )
            return _among(pictures, candidate_R, None)
        scored = self._scored(self._text_vectors_UD @ vector_D)
        return _among(scored, candidate_R, self._searched(signal, with_captions))


def spelled_date(time: str) -> str:
    """An ISO time's date as people write and as files do: ` 8 May 2023 2023-05-08`."""
    day = date.fromisoformat(time[:10])
    return f" {day.day} {day:%B} {day.year} {day.isoformat()}"


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


def vector_anchor(anchor: str | Vectors) -> Vectors:
    """The anchor of a dense signal."""
    if isinstance(anchor, str):
        raise StoreError("a dense signal takes a vector, not a text")
    return anchor


def text_anchor(anchor: str | Vectors) -> str:
    """The anchor of a sparse signal."""
    if not isinstance(anchor, str):
        raise StoreError("a sparse signal takes a text, not a vector")
    return anchor
