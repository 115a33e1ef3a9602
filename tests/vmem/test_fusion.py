import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmem.config import FusionSettings
from vmem.fusion import KEPT, fuse
from vmem.ports import Ranking, Rankings
from vmem.types import Case, Signal

DENSE, SPARSE, VISUAL = Signal.TEXT_DENSE, Signal.TEXT_SPARSE, Signal.VISUAL
RRF = FusionSettings()
CONVEX = FusionSettings(method="convex")


def ranking(*items: int, scores: tuple[float, ...] | None = None) -> Ranking:
    falling = scores or tuple(float(len(items) - n) for n in range(len(items)))
    return Ranking(item_N=np.array(items, dtype=np.int64), score_N=np.array(falling))


def fused(by_signal: dict[Signal, Ranking], settings: FusionSettings = RRF) -> list[int]:
    ranked = fuse(Rankings(by_signal=by_signal), Case.TEXT_TO_TEXT, settings)
    return [item.position for item in ranked]


def test_reciprocal_ranks_add_up() -> None:
    ranked = fuse(
        Rankings(by_signal={DENSE: ranking(4, 7), SPARSE: ranking(7)}), Case.TEXT_TO_TEXT, RRF
    )
    assert [item.position for item in ranked] == [7, 4]
    assert ranked[0].score == pytest.approx(1 / 62 + 1 / 61)
    assert ranked[1].score == pytest.approx(1 / 61)
    assert ranked[0].ranks == {DENSE: 2, SPARSE: 1}
    assert ranked[1].ranks == {DENSE: 1}


def test_ties_go_to_the_earlier_round() -> None:
    assert fused({DENSE: ranking(9, 2), SPARSE: ranking(2, 9)}) == [2, 9]


def test_convex_fusion_weighs_scores_within_each_signal() -> None:
    settings = FusionSettings(
        method="convex", weights={Case.TEXT_TO_TEXT: {DENSE: 0.25, SPARSE: 0.75}}
    )
    by_signal = {
        DENSE: ranking(1, 2, 3, scores=(0.9, 0.6, 0.5)),
        SPARSE: ranking(3, 2, scores=(8.0, 4.0)),
    }
    ranked = fuse(Rankings(by_signal=by_signal), Case.TEXT_TO_TEXT, settings)
    assert {item.position: item.score for item in ranked} == {
        1: pytest.approx(0.25 * 1.0),
        2: pytest.approx(0.25 * (0.6 - 0.5) / (0.9 - 0.5)),
        3: pytest.approx(0.75 * 1.0),
    }


def test_convex_fusion_of_equal_scores_is_finite() -> None:
    ranked = fuse(
        Rankings(by_signal={DENSE: ranking(5, 6, scores=(0.3, 0.3))}), Case.TEXT_TO_TEXT, CONVEX
    )
    assert [(item.position, item.score) for item in ranked] == [(5, 1.0), (6, 1.0)]


def test_nothing_found_is_nothing_ranked() -> None:
    assert fused({DENSE: ranking(), SPARSE: ranking()}) == []


def test_at_most_kept_items_become_objects_and_they_are_the_best() -> None:
    order = tuple(range(KEPT + 50))
    assert fused({DENSE: ranking(*order)}) == list(order[:KEPT])


def test_at_the_unit_level_each_item_is_a_unit_of_its_round() -> None:
    rankings = Rankings(
        by_signal={DENSE: ranking(1, 0)}, units=((3, "r3/text/1"), (3, "r3/text/2"))
    )
    ranked = fuse(rankings, Case.TEXT_TO_TEXT, RRF)
    assert [(item.position, item.units) for item in ranked] == [
        (3, ("r3/text/2",)),
        (3, ("r3/text/1",)),
    ]


rankings_by_signal = st.dictionaries(
    st.sampled_from([DENSE, SPARSE, VISUAL]),
    st.lists(st.integers(0, 30), unique=True, max_size=12),
    min_size=1,
)


@given(rankings_by_signal, st.sampled_from([RRF, CONVEX]))
def test_the_order_of_signals_does_not_matter(
    lists: dict[Signal, list[int]], settings: FusionSettings
) -> None:
    forward = {signal: ranking(*items) for signal, items in lists.items()}
    backward = dict(reversed(forward.items()))
    assert fused(forward, settings) == fused(backward, settings)


@given(rankings_by_signal)
def test_every_ranked_round_is_fused_once(lists: dict[Signal, list[int]]) -> None:
    result = fused({signal: ranking(*items) for signal, items in lists.items()})
    assert sorted(result) == sorted({item for items in lists.values() for item in items})
