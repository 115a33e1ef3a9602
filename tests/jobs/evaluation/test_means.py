"""Intervals by counts of distinct scores are those of resampled questions."""

import numpy as np
import pytest

from jobs.statistics.means import Resampling, mean_of, plain_mean
from vmem.metrics.significance import bootstrap_mean

DRAWS = 20_000


def test_counts_of_scores_give_the_interval_of_resampled_questions() -> None:
    values = dict(enumerate(np.random.default_rng(3).choice([0.0, 0.5, 1.0], 200).tolist()))
    scores = {str(number): value for number, value in values.items()}
    found = mean_of(scores, dict.fromkeys(scores, "D1"), "x", Resampling(seed=1, draws=DRAWS))
    drawn = bootstrap_mean(list(scores.values()), np.random.default_rng(2), DRAWS)
    assert found["mean"] == drawn.mean
    # One answer of 200 moves a mean by 1/400 per half point: ends agree to one such step.
    assert found["by_question"] == pytest.approx([drawn.low, drawn.high], abs=1 / 400 + 1e-9)
    assert found["by_dialogue"] is None


def test_over_nothing_there_is_no_mean_and_no_interval() -> None:
    found = mean_of({}, {}, "x", Resampling(seed=1, draws=DRAWS))
    assert found == plain_mean({}) | {"by_question": None, "by_dialogue": None}
    assert found["mean"] is None


def test_each_figure_draws_from_a_source_of_its_own() -> None:
    draw = Resampling(seed=1, draws=DRAWS)
    first, again, other = (draw.rng(key).random() for key in ("a", "a", "b"))
    assert first == again != other
    assert Resampling(seed=2).rng("a").random() != first
