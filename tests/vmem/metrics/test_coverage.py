"""How often 95% intervals hold the true mean, on simulated data whose answer is known.

The expected coverage is not quite 95%: a bootstrap of n independent values is about
1.96 * sqrt((n - 1) / n) of Student's standard errors wide to each side.
"""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from vmem.metrics.significance import bootstrap_mean, cluster_bootstrap_mean

SAMPLES = 400
RESAMPLES = 1_000
MEAN = 0.3


def student_coverage(units: int, inflation: float = 1.0) -> float:
    """Coverage of a bootstrap over some units, where the true variance is `inflation` as large."""
    half_width = stats.norm.ppf(0.975) * np.sqrt((units - 1) / units / inflation)
    return float(2 * stats.t.cdf(half_width, units - 1) - 1)


def tolerance(coverage: float) -> float:
    return 3 * float(np.sqrt(coverage * (1 - coverage) / SAMPLES))


def simulated(dialogues: int, questions: int, spread: float) -> tuple[float, float]:
    """Coverage by question and by dialogue; `spread` is the deviation between dialogues."""
    source = np.random.default_rng(11)
    dialogue_N = np.repeat(np.arange(dialogues), questions)
    held = np.zeros(2)
    for _ in range(SAMPLES):
        between = source.normal(0, spread, dialogues)[dialogue_N]
        value_N = MEAN + between + source.normal(size=len(dialogue_N))
        intervals = (
            bootstrap_mean(value_N, source, RESAMPLES),
            cluster_bootstrap_mean(value_N, list(dialogue_N), source, RESAMPLES),
        )
        held += [interval.low <= MEAN <= interval.high for interval in intervals]
    by_question, by_dialogue = held / SAMPLES
    return float(by_question), float(by_dialogue)


def test_both_intervals_cover_independent_questions() -> None:
    by_question, by_dialogue = simulated(dialogues=40, questions=5, spread=0)
    assert by_question == pytest.approx(0.95, abs=tolerance(0.95))
    assert by_dialogue == pytest.approx(student_coverage(40), abs=tolerance(student_coverage(40)))


@pytest.mark.parametrize("dialogues", [10, 20, 40])
def test_only_the_interval_by_dialogue_covers_dependent_questions(dialogues: int) -> None:
    questions, spread = 8, 1.0
    by_question, by_dialogue = simulated(dialogues, questions, spread)
    expected = student_coverage(dialogues)
    assert by_dialogue == pytest.approx(expected, abs=tolerance(expected))
    # The variance of a mean of dependent questions grows by the design effect.
    correlation = spread**2 / (spread**2 + 1)
    naive = student_coverage(dialogues, inflation=1 + (questions - 1) * correlation)
    assert by_question < naive + tolerance(naive) < 0.75
    assert expected > 0.88


def test_the_interval_agrees_with_scipys_bootstrap() -> None:
    value_N = np.random.default_rng(1).choice([0, 0.5, 1], 80, p=[0.2, 0.3, 0.5])
    ours = bootstrap_mean(value_N, np.random.default_rng(2), 20_000)
    theirs = stats.bootstrap(
        (value_N,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(3)
    ).confidence_interval
    # Means of 80 halves lie on a grid of 1/160; two random quantiles may be a step apart.
    assert ours.low == pytest.approx(theirs.low, abs=1 / 160 + 1e-12)
    assert ours.high == pytest.approx(theirs.high, abs=1 / 160 + 1e-12)


@pytest.mark.parametrize("value_N", [[0.0, 0.5, 1.0], [0.0, 0.25, 0.5, 1.0], [0.0, 0.5, 0.5, 1.0]])
def test_an_interval_of_a_tiny_sample_is_that_of_all_its_resamples(value_N: list[float]) -> None:
    means = [np.mean(resample) for resample in product(value_N, repeat=len(value_N))]
    low, high = np.quantile(means, [0.025, 0.975], method="inverted_cdf")
    interval = bootstrap_mean(value_N, np.random.default_rng(4))
    assert (interval.low, interval.high) == pytest.approx((low, high))
