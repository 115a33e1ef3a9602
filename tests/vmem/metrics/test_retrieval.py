import pytest

from vmem.metrics.retrieval import evidence_scores, gold_rounds
from vmem.types import Dialogue, Query, Question, Round, Turn


def test_shares_of_gold_rounds_by_cutoff() -> None:
    ranked = [9, 4, 7, *range(20, 40)]
    scores = evidence_scores(ranked, context=[3, 4, 5, 24], gold=frozenset({4, 24, 99}))
    assert scores.recall == {1: 0.0, 3: 1 / 3, 5: 1 / 3, 12: 2 / 3, 30: 2 / 3}
    assert scores.recall_in_context == 2 / 3
    assert (scores.hit, scores.full) == (1.0, 0.0)
    assert scores.reciprocal_rank == 1 / 2


def test_all_found_is_full_and_nothing_found_is_zero() -> None:
    assert evidence_scores([1, 2], [], frozenset({2, 1})).full == 1.0
    nothing = evidence_scores([1, 2], [], frozenset({3}))
    assert (nothing.hit, nothing.full, nothing.reciprocal_rank) == (0.0, 0.0, 0.0)


def test_a_question_without_evidence_has_no_score() -> None:
    with pytest.raises(ValueError, match="without evidence"):
        evidence_scores([1], [1], frozenset())


def test_gold_rounds_hold_any_of_the_evidence_and_count_once() -> None:
    turns = [Turn(source_id=f"D1:{n}", speaker="Mia", text="x") for n in range(1, 5)]
    rounds = tuple(
        Round(
            id=turns[2 * n].source_id,
            position=n,
            session="D1",
            time="2026-01-01",
            turns=tuple(turns[2 * n : 2 * n + 2]),
        )
        for n in range(2)
    )
    question = Question(
        id="d#0",
        dialogue_id="d",
        query=Query(text="?"),
        reference="",
        category="x",
        evidence=frozenset({"D1:3", "D1:4", "D9:9"}),
    )
    assert gold_rounds(question, Dialogue(id="d", rounds=rounds)) == {1}
