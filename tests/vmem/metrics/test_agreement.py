from typing import Literal

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from vmem.errors import InputError
from vmem.metrics.agreement import cohen_kappa, judgement_spread

Levels = list[float]


def rng(seed: int = 7) -> np.random.Generator:
    return np.random.default_rng(seed)


def table(yes_yes: int, yes_no: int, no_yes: int, no_no: int) -> tuple[Levels, Levels]:
    """Two judges' yes (1) and no (0), by how often each pair occurs."""
    counts = (yes_yes, yes_no, no_yes, no_no)
    pairs = [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]
    answers = [pair for pair, n in zip(pairs, counts, strict=True) for _ in range(n)]
    return [first for first, _ in answers], [second for _, second in answers]


def test_kappa_of_a_two_by_two_table() -> None:
    first, second = table(20, 5, 10, 15)
    result = cohen_kappa(first, second, rng())
    observed = (20 + 15) / 50
    expected = 25 / 50 * 30 / 50 + 25 / 50 * 20 / 50
    assert result.observed == pytest.approx(observed)
    assert result.expected == pytest.approx(expected)
    assert result.kappa == pytest.approx((observed - expected) / (1 - expected))
    assert result.answers == 50
    assert result.undefined == 0


def test_the_same_observed_agreement_is_worth_less_where_chance_gives_more() -> None:
    balanced = cohen_kappa(*table(45, 5, 5, 45), rng()).kappa
    skewed = cohen_kappa(*table(85, 5, 5, 5), rng()).kappa
    assert balanced == pytest.approx((0.9 - 0.5) / 0.5)
    assert skewed == pytest.approx((0.9 - (0.9**2 + 0.1**2)) / (1 - (0.9**2 + 0.1**2)))


def test_same_opposite_and_independent_judges() -> None:
    same = cohen_kappa([0, 0.5, 1, 1], [0, 0.5, 1, 1], rng())
    assert (same.kappa, same.low, same.high) == (1, 1, 1)
    assert cohen_kappa([0, 1], [1, 0], rng()).kappa == -1
    independent = cohen_kappa(*table(25, 25, 25, 25), rng())
    assert independent.kappa == 0
    assert independent.low is not None
    assert independent.high is not None
    assert independent.low < 0 < independent.high


def test_weights_forgive_near_misses() -> None:
    first, second = [0, 0.5, 1, 1], [0, 1, 1, 0.5]
    # Two of four differ, by half the range; chance: first 1/4 1/4 1/2, second 1/4 1/4 1/2.
    far = 2 * 1 / 4 * 1 / 2
    near = 2 * 1 / 4 * 1 / 4 + 2 * 1 / 4 * 1 / 2
    plain, linear, quadratic = (
        cohen_kappa(first, second, rng(), weights).kappa
        for weights in ("none", "linear", "quadratic")
    )
    assert plain == pytest.approx(1 - (2 / 4) / (far + near))
    assert linear == pytest.approx(1 - (2 / 4 * 1 / 2) / (far + near / 2))
    assert quadratic == pytest.approx(1 - (2 / 4 * 1 / 4) / (far + near / 4))


def test_distances_are_those_of_the_numbers() -> None:
    # 0 and 0.9 differ nine times as much as 0.9 and 1, though both are neighbours.
    near = cohen_kappa([0, 0.9, 1, 1], [0, 1, 0.9, 1], rng(), "linear").kappa
    far = cohen_kappa([0, 0.1, 1, 1], [0, 1, 0.1, 1], rng(), "linear").kappa
    assert near is not None
    assert far is not None
    assert near > 0.8 > far


@pytest.mark.parametrize("weights", ["none", "linear", "quadratic"])
def test_kappa_is_scikit_learns(weights: Literal["none", "linear", "quadratic"]) -> None:
    source = rng(1)
    level_N = source.integers(0, 5, 300)
    other_N = np.clip(level_N + source.integers(-1, 2, 300), 0, 4)
    theirs = cohen_kappa_score(level_N, other_N, weights=None if weights == "none" else weights)
    assert cohen_kappa(level_N / 4, other_N / 4, rng(), weights).kappa == pytest.approx(theirs)


def test_the_interval_is_that_of_resampled_answers() -> None:
    source = rng(2)
    first_N = source.integers(0, 3, 120) / 2
    second_N = np.where(source.random(120) < 0.3, source.integers(0, 3, 120) / 2, first_N)
    ours = cohen_kappa(first_N, second_N, rng(), "linear")
    labels = [0, 1, 2]
    resampled = []
    for _ in range(800):
        pick = source.integers(0, 120, 120)
        pair = (first_N[pick] * 2).astype(int), (second_N[pick] * 2).astype(int)
        resampled.append(cohen_kappa_score(*pair, labels=labels, weights="linear"))
    low, high = np.percentile(resampled, [2.5, 97.5])
    # A 2.5 percentile of 800 draws is known to about 0.1 of the interval's width.
    assert ours.low == pytest.approx(low, abs=0.1 * (high - low))
    assert ours.high == pytest.approx(high, abs=0.1 * (high - low))


def test_the_interval_covers_a_planted_kappa() -> None:
    # Judges of even levels who agree with chance 1 - 2 * q on top of nothing have κ = 1 - 2 * q.
    source, samples, q = rng(3), 300, 0.2
    held = 0
    for _ in range(samples):
        first_N = source.integers(0, 2, 200)
        second_N = np.where(source.random(200) < q, 1 - first_N, first_N)
        result = cohen_kappa(first_N, second_N, source, resamples=500)
        assert result.low is not None
        assert result.high is not None
        held += result.low <= 1 - 2 * q <= result.high
    assert held / samples == pytest.approx(0.95, abs=3 * np.sqrt(0.95 * 0.05 / samples))


def test_one_level_throughout_leaves_kappa_undefined() -> None:
    result = cohen_kappa([0, 0, 0], [0, 0, 0], rng(), resamples=10)
    assert (result.kappa, result.low, result.high) == (None, None, None)
    assert (result.observed, result.expected, result.undefined) == (1, 1, 10)


def test_undefined_resamples_are_counted() -> None:
    # A resample of two answers is undefined where it holds one of them twice: half of the time.
    result = cohen_kappa([0, 1], [0, 1], rng())
    assert result.kappa == 1
    assert result.undefined == pytest.approx(5_000, abs=3 * np.sqrt(10_000 / 4))


def test_judges_of_other_answers_are_refused() -> None:
    with pytest.raises(InputError, match=r"\(2,\) and \(1,\)"):
        cohen_kappa([0, 1], [0], rng())
    with pytest.raises(InputError, match="at least one"):
        cohen_kappa([], [], rng())
    with pytest.raises(InputError, match="not finite"):
        cohen_kappa([0, float("nan")], [0, 1], rng())


def test_spread_by_hand() -> None:
    result = judgement_spread([[1, 1, 1], [0, 0.5, 1], [0, 0, 0.5]])
    runs = [1 / 3, 1.5 / 3, 2.5 / 3]
    mean = sum(runs) / 3
    assert result.mean == pytest.approx(mean)
    assert result.deviation == pytest.approx(np.sqrt(sum((run - mean) ** 2 for run in runs) / 2))
    variances = [0, (0.5**2 + 0 + 0.5**2) / 2, (2 * (1 / 6) ** 2 + (1 / 3) ** 2) / 2]
    assert result.within == pytest.approx(np.sqrt(sum(variances) / 3))
    assert result.unsteady == pytest.approx(2 / 3)
    assert (result.answers, result.repetitions) == (3, 3)


def test_a_steady_judge_has_no_spread() -> None:
    result = judgement_spread([[1, 1], [0, 0]])
    assert (result.mean, result.deviation, result.within, result.unsteady) == (1 / 2, 0, 0, 0)


@pytest.mark.parametrize("scores", [[], [[1]], [[1, 0], [1]]])
def test_a_spread_needs_equal_repetitions(scores: list[Levels]) -> None:
    with pytest.raises(InputError, match="equally often"):
        judgement_spread(scores)
