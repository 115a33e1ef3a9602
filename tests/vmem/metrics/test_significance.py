import numpy as np
import pytest

from vmem.metrics.significance import bootstrap_mean, cluster_bootstrap_mean
from vmem.metrics.summary import ScoredQuestion, summarise


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def test_the_interval_of_a_mean_agrees_with_the_normal_one() -> None:
    values = np.random.default_rng(1).random(400)
    interval = bootstrap_mean(values, rng())
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert interval.mean == pytest.approx(values.mean())
    assert interval.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_the_same_seed_gives_the_same_interval() -> None:
    assert bootstrap_mean([0, 1, 1], rng()) == bootstrap_mean([0, 1, 1], rng())


def test_questions_of_one_dialogue_move_together() -> None:
    values = [0.0] * 50 + [1.0] * 50
    clusters = ["a"] * 50 + ["b"] * 50
    alone = bootstrap_mean(values, rng())
    clustered = cluster_bootstrap_mean(values, clusters, rng())
    assert (clustered.low, clustered.high) == (0.0, 1.0)
    assert alone.high - alone.low < 0.25


def test_no_value_is_no_mean() -> None:
    with pytest.raises(ValueError, match="no value"):
        bootstrap_mean([], rng())
    with pytest.raises(ValueError, match="as many clusters"):
        cluster_bootstrap_mean([1.0], ["a", "b"], rng())


def scored(category: str, value: float | None, error: str | None = None) -> ScoredQuestion:
    return ScoredQuestion(
        dialogue_id="d",
        category=category,
        case=None if error else "text->text",
        scores=None if value is None else {"hit@12": value},
        error=error,
    )


def test_a_summary_counts_what_it_leaves_out() -> None:
    summary = summarise(
        [scored("FR", 1.0), scored("FR", 0.0), scored("AR", None), scored("adversarial", 1.0)],
        excluded=frozenset({"adversarial"}),
    )
    assert (summary.failed, summary.excluded) == (0, 1)
    assert (summary.overall.questions, summary.overall.with_evidence) == (3, 2)
    assert summary.overall.scores["hit@12"][0].mean == 1 / 2
    assert summary.by_category["AR"].scores == {}


def test_a_failed_question_is_counted_and_never_scored() -> None:
    summary = summarise([scored("FR", 1.0), scored("FR", None, "QueryError: empty")], frozenset())
    assert summary.failed == 1
    assert summary.overall.with_evidence == 1
    assert summary.by_case["failed"].questions == 1
