from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from vmem.config import RetrievalSettings
from vmem.lanes import image_candidates, search_lanes
from vmem.ports import Mask, UnitScores, Vectors
from vmem.types import Case, Image, Round, Route, Signal, Turn

DENSE, SPARSE, VISUAL = Signal.TEXT_DENSE, Signal.TEXT_SPARSE, Signal.VISUAL


class ScriptedMemory:
    """A memory whose scores are given: (unit id, position, score) for each signal."""

    def __init__(
        self,
        scores: Mapping[Signal, Sequence[tuple[str, int, float]]],
        images: Sequence[bool] = (False,) * 10,
    ) -> None:
        self._scores = scores
        self.calls: list[tuple[Signal, bool]] = []
        self.rounds = [
            Round(
                id=f"r{n}",
                position=n,
                session="D1",
                time="2026-01-01",
                turns=(
                    Turn(source_id="s", speaker="user", images=(Image(id="i"),) if has else ()),
                ),
            )
            for n, has in enumerate(images)
        ]
        self.has_image_R: Mask = np.array(images)

    def score(
        self,
        signal: Signal,
        anchor: str | Vectors,
        candidate_R: Mask | None,
        *,
        pool: int | None,
        with_captions: bool,
    ) -> UnitScores:
        self.calls.append((signal, with_captions))
        rows = [r for r in self._scores[signal] if candidate_R is None or candidate_R[r[1]]]
        return UnitScores(
            unit_ids=np.array([row[0] for row in rows], dtype=object),
            position_U=np.array([row[1] for row in rows], dtype=np.int64),
            score_U=np.array([row[2] for row in rows]),
        )


def a_route(case: Case = Case.TEXT_TO_TEXT) -> Route:
    return Route(case=case, counts_images=False, aggregates=False, asks_conflict=False, reason="")


def ranked(rows: Sequence[tuple[str, int, float]], **changes: object) -> list[tuple[int, float]]:
    rankings = search_lanes(
        ScriptedMemory({DENSE: rows}),
        a_route(),
        {DENSE: np.zeros(2, dtype=np.float32)},
        RetrievalSettings.model_validate(changes),
    )
    found = rankings.by_signal[DENSE]
    return list(zip(found.item_N.tolist(), found.score_N.tolist(), strict=True))


def test_a_round_takes_its_best_units_score() -> None:
    rows = [("a", 4, 0.2), ("b", 4, 0.9), ("c", 1, 0.5)]
    assert ranked(rows) == [(4, 0.9), (1, 0.5)]


def test_half_of_the_second_best_may_count() -> None:
    rows = [("a", 4, 0.2), ("b", 4, 0.6), ("c", 4, 0.1), ("d", 1, 0.65), ("e", 2, 0.1)]
    assert ranked(rows, round_score="best_two") == [
        (4, pytest.approx(0.6 + 0.2 / 2)),
        (1, 0.65),
        (2, 0.1),
    ]


def test_a_negative_second_best_takes_nothing_away() -> None:
    assert ranked([("a", 0, 0.4), ("b", 0, -0.3)], round_score="best_two") == [(0, 0.4)]


def test_equal_scores_rank_by_position() -> None:
    assert [p for p, _ in ranked([("a", 7, 0.5), ("b", 3, 0.5)])] == [3, 7]


def test_the_pool_counts_rounds_not_units() -> None:
    rows = [("a", 0, 0.9), ("b", 0, 0.8), ("c", 1, 0.7), ("d", 2, 0.6)]
    assert [p for p, _ in ranked(rows, pool=2)] == [0, 1]
    assert [p for p, _ in ranked(rows, pool=None)] == [0, 1, 2]


def test_nothing_scored_is_an_empty_ranking() -> None:
    assert ranked([]) == []
    assert ranked([], round_score="best_two") == []


@pytest.mark.parametrize(
    ("window", "expected"),
    [(0, {4}), (1, {3, 4, 5}), (2, {2, 3, 4, 5, 6}), (None, set(range(10)))],
)
def test_the_image_filter_keeps_rounds_near_an_image(
    window: int | None, expected: set[int]
) -> None:
    memory = ScriptedMemory({}, [n == 4 for n in range(10)])
    settings = RetrievalSettings(filter_window=window)
    kept = image_candidates(memory, a_route(Case.TEXT_TO_IMAGE), settings)
    assert (set(range(10)) if kept is None else set(np.flatnonzero(kept))) == expected


@pytest.mark.parametrize("case", [Case.TEXT_TO_TEXT, Case.IMAGE_TEXT_TO_TEXT])
def test_the_image_filter_is_for_image_targets_alone(case: Case) -> None:
    memory = ScriptedMemory({}, [n == 4 for n in range(10)])
    assert image_candidates(memory, a_route(case), RetrievalSettings()) is None


def test_the_image_filter_lets_all_through_where_there_is_no_image() -> None:
    memory = ScriptedMemory({})
    assert image_candidates(memory, a_route(Case.TEXT_TO_IMAGE), RetrievalSettings()) is None


def test_captions_are_the_text_lanes_unless_the_image_lane_searches_them() -> None:
    vector = np.zeros(2, dtype=np.float32)
    rows = {signal: [("a", 0, 1.0)] for signal in Signal}
    memory = ScriptedMemory(rows)
    search_lanes(memory, a_route(), {DENSE: vector}, RetrievalSettings())
    search_lanes(
        memory, a_route(), {DENSE: vector, Signal.CAPTION_DENSE: vector}, RetrievalSettings()
    )
    assert memory.calls == [(DENSE, True), (DENSE, False), (Signal.CAPTION_DENSE, False)]


def test_the_best_stored_image_is_named() -> None:
    rows = {VISUAL: [("r2/image/1", 2, 0.4), ("r5/image/2", 5, 0.8)]}
    rankings = search_lanes(
        ScriptedMemory(rows),
        a_route(Case.IMAGE_TEXT_TO_TEXT),
        {VISUAL: np.zeros(2, dtype=np.float32)},
        RetrievalSettings(),
    )
    assert rankings.best_image == (5, "r5/image/2")


def test_at_the_unit_level_units_rank_and_ties_go_by_position() -> None:
    rows = {
        DENSE: [("r3/text/1", 3, 0.9), ("r1/text/1", 1, 0.9), ("r1/text/2", 1, 0.1)],
        SPARSE: [("r1/text/2", 1, 4.0)],
    }
    rankings = search_lanes(
        ScriptedMemory(rows),
        a_route(),
        {DENSE: np.zeros(2, dtype=np.float32), SPARSE: "x"},
        RetrievalSettings(level="unit"),
    )
    named = {
        signal: [rankings.units[item] for item in ranking.item_N]
        for signal, ranking in rankings.by_signal.items()
    }
    assert named == {
        DENSE: [(1, "r1/text/1"), (3, "r3/text/1"), (1, "r1/text/2")],
        SPARSE: [(1, "r1/text/2")],
    }
