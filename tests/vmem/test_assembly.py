from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmem.assembly import CUT, assemble
from vmem.config import RetrievalSettings
from vmem.types import Case, Context, RankedRound, Round, Route, Turn

AGGREGATION = {"enabled": True, "top_k": 4}


def a_route(aggregates: bool = False) -> Route:
    return Route(
        case=Case.TEXT_TO_TEXT,
        counts_images=False,
        aggregates=aggregates,
        asks_conflict=False,
        reason="",
    )


def rounds(count: int, words: int = 1) -> list[Round]:
    return [
        Round(
            id=f"r{n}",
            position=n,
            session=f"D{n // 10}",
            time=f"2026-03-{n // 10 + 1:02d}",
            turns=(Turn(source_id=f"r{n}", speaker="user", text=" ".join([f"t{n}"] * words)),),
        )
        for n in range(count)
    ]


def context(
    found: Sequence[int],
    total: int = 40,
    *,
    words: int = 1,
    budget: int = 10_000,
    aggregates: bool = False,
    **changes: object,
) -> Context:
    return assemble(
        [RankedRound(position=p, score=1.0, ranks={}) for p in found],
        rounds(total, words),
        a_route(aggregates),
        RetrievalSettings.model_validate(changes),
        show=lambda round_, units: " ".join(units) or round_.turns[0].text,
        count_tokens=lambda text: len(text.split()),
        budget_tokens=budget,
    )


def test_runs_merge_where_windows_overlap_and_stand_in_time_order() -> None:
    spans = [block.positions for block in context([20, 5, 6, 8]).blocks]
    assert spans == [(4, 5, 6, 7, 8, 9), (19, 20, 21)]


def test_windows_that_only_touch_stay_apart() -> None:
    assert [block.positions for block in context([5, 8]).blocks] == [(4, 5, 6), (7, 8, 9)]


def test_unmerged_windows_repeat_what_they_share() -> None:
    spans = [block.positions for block in context([5, 6], merge_overlaps=False).blocks]
    assert spans == [(4, 5, 6), (5, 6, 7)]


def test_windows_stop_at_the_ends_of_the_conversation() -> None:
    assert context([0, 39]).positions == (0, 1, 38, 39)


def test_neighbours_at_the_tail_follow_all_ranked_rounds() -> None:
    assert context([20, 5], placement="tail").positions == (20, 5, 4, 6, 19, 21)


def test_no_neighbours() -> None:
    assert context([20, 5], placement="none").positions == (5, 20)


def test_interleaved_neighbours_evict_ranked_rounds() -> None:
    assert context([20, 5, 30], placement="interleave").positions == (20, 19, 21)


def test_neighbours_never_count_against_k() -> None:
    shown = context(range(0, 36, 3), top_k=12)
    assert len(shown.found) == 12
    assert len(shown.positions) == 35


def test_aggregation_widens_k_and_drops_neighbours_only_where_it_is_enabled() -> None:
    found = list(range(0, 30, 3))
    wide = context(found, aggregates=True, top_k=2, aggregation=AGGREGATION)
    assert wide.positions == (0, 3, 6, 9)
    assert context(found, aggregates=True, top_k=2).positions == (0, 1, 2, 3, 4)
    narrow = context(found, aggregates=False, top_k=2, aggregation=AGGREGATION)
    assert narrow.positions == (0, 1, 2, 3, 4)


def test_the_budget_drops_the_lowest_ranked_rounds_first() -> None:
    shown = context([30, 20, 10], words=20, budget=2 * (3 * 20 + 24), window=1)
    assert shown.found == (30, 20)
    assert shown.dropped == (10,)
    assert shown.positions == (19, 20, 21, 29, 30, 31)
    assert shown.tokens <= 2 * (3 * 20 + 24)


def test_one_round_over_the_budget_loses_its_neighbours_then_its_end() -> None:
    shown = context([20, 10], words=50, budget=60)
    assert shown.positions == (20,)
    assert CUT not in shown.text
    cut = context([20, 10], words=500, budget=60)
    assert cut.text.endswith(CUT)
    assert cut.tokens <= 60
    assert cut.dropped == (10,)


def test_the_date_stands_above_each_block_and_where_the_conversation_changes_day() -> None:
    text = context([9]).text
    assert text == "[2026-03-01, D0]\nt8\nt9\n[2026-03-02, D1]\nt10"


def test_bare_units_are_shown_without_their_rounds() -> None:
    ranked = [
        RankedRound(position=7, score=1.0, ranks={}, units=("r7/text/1",)),
        RankedRound(position=2, score=0.9, ranks={}, units=("r2/text/1",)),
        RankedRound(position=7, score=0.8, ranks={}, units=("r7/text/2",)),
    ]
    shown = assemble(
        ranked,
        rounds(10),
        a_route(),
        RetrievalSettings(level="unit", unit_budget=3),
        show=lambda _, units: " ".join(units),
        count_tokens=lambda text: len(text.split()),
        budget_tokens=1000,
    )
    assert [block.text.splitlines()[1:] for block in shown.blocks] == [
        ["r2/text/1"],
        ["r7/text/1 r7/text/2"],
    ]


@pytest.mark.parametrize("total", [0, 1])
def test_nothing_found_is_an_empty_context(total: int) -> None:
    shown = context([], total)
    assert (shown.blocks, shown.text, shown.tokens) == ((), "", 0)


@given(
    st.lists(st.integers(0, 39), unique=True, max_size=20),
    st.sampled_from(["runs", "tail", "none"]),
    st.integers(0, 3),
)
def test_every_found_round_is_shown_once(found: list[int], placement: str, window: int) -> None:
    shown = context(found, placement=placement, window=window)
    assert set(found[:12]) <= set(shown.positions)
    assert len(shown.positions) == len(set(shown.positions))
    if placement == "runs":
        assert list(shown.positions) == sorted(shown.positions)
