from itertools import permutations, product

import numpy as np
import pytest
from scipy import stats

from vmem.metrics.permutation import cluster_sign_flip, holm, sign_flip

DRAWS = 10_000


def rng(seed: int = 7) -> np.random.Generator:
    return np.random.default_rng(seed)


def exact_p(differences: list[float]) -> float:
    """The share of all signs whose sum is at least as far from 0."""
    found = abs(sum(differences))
    sums = [
        sum(sign * value for sign, value in zip(signs, differences, strict=True))
        for signs in product((-1, 1), repeat=len(differences))
    ]
    return sum(abs(value) >= found - 1e-12 for value in sums) / len(sums)


def three_deviations(p: float, draws: int = DRAWS) -> float:
    return 3 * float(np.sqrt(p * (1 - p) / draws)) + 1 / draws


@pytest.mark.parametrize(
    "differences",
    [
        [1.0, 0.5, 0.5, -0.5, 1.0],
        [0.1, 0.2, -0.3, 0.4, 0.7, 0.2, -0.1],
        [1.0, -1.0, 0.5],
        [0.5] * 9,
    ],
)
def test_p_is_that_of_all_signs_and_scipys(differences: list[float]) -> None:
    exact = exact_p(differences)
    assert sign_flip(differences, rng()) == pytest.approx(exact, abs=three_deviations(exact))
    theirs = stats.permutation_test(
        (np.array(differences),), np.mean, permutation_type="samples", n_resamples=np.inf
    )
    assert theirs.pvalue == pytest.approx(exact)


def test_random_signs_agree_with_scipys_random_signs() -> None:
    differences = rng(1).choice([-1, -0.5, 0, 0.5, 1], 60, p=[0.1, 0.15, 0.3, 0.25, 0.2])
    ours = sign_flip(differences, rng())
    theirs = stats.permutation_test(
        (differences,),
        lambda x, axis: x.mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=DRAWS,
        rng=rng(2),
    ).pvalue
    assert 0.01 < theirs < 0.5
    # Both are random, and scipy's doubles one tail: its variance is twice as large.
    assert ours == pytest.approx(theirs, abs=np.sqrt(3) * three_deviations(theirs))


@pytest.mark.parametrize(
    "differences", [[0.1, 0.2, -0.3, 0.5], [0.1, 0.2, 0.3, -0.5], [0.1, 0.1, 0.1, -0.3, 0.6]]
)
def test_sums_that_differ_by_rounding_only_are_hits(differences: list[float]) -> None:
    # In floats 0.1 + 0.2 - 0.3 is not 0, so that some signs of equal sums come out smaller.
    exact = exact_p(differences)
    assert sign_flip(differences, rng()) == pytest.approx(exact, abs=three_deviations(exact))


def test_no_difference_has_p_1_and_a_large_one_the_smallest_p_but_never_0() -> None:
    assert sign_flip([0.0] * 30, rng()) == 1
    assert sign_flip([1.0] * 100, rng(), draws=999) == 1 / 1_000


@pytest.mark.parametrize("draws", [1, 499, 500, 501, 1_250])
def test_draws_are_counted_over_strides(draws: int) -> None:
    assert sign_flip([1.0] * 100, rng(), draws) == 1 / (draws + 1)
    assert sign_flip([0.0], rng(), draws) == (draws + 1) / (draws + 1)


def test_questions_of_one_dialogue_share_their_sign() -> None:
    differences = [0.5] * 60
    dialogues = [f"d{n % 6}" for n in range(60)]
    exact = exact_p([5.0] * 6)
    assert exact == 2 / 2**6
    clustered = cluster_sign_flip(differences, dialogues, rng())
    assert clustered == pytest.approx(exact, abs=three_deviations(exact))
    assert sign_flip(differences, rng()) == 1 / (DRAWS + 1)


def test_dialogues_of_unequal_size_are_flipped_as_wholes() -> None:
    sums = {"a": [1.0, 1.0, -0.5], "b": [0.5], "c": [-1.0, 0.5], "d": [1.0] * 3, "e": [0.5, -1.0]}
    values = [value for group in sums.values() for value in group]
    names = [name for name, group in sums.items() for _ in group]
    exact = exact_p([sum(group) for group in sums.values()])
    assert cluster_sign_flip(values, names, rng()) == pytest.approx(
        exact, abs=three_deviations(exact)
    )


def test_p_is_uniform_where_nothing_differs() -> None:
    source = rng(3)
    samples = 400
    p = [sign_flip(source.normal(size=40), source, draws=999) for _ in range(samples)]
    for level in (0.05, 0.2, 0.5, 0.8):
        rejected = np.mean([value <= level for value in p])
        assert rejected == pytest.approx(level, abs=three_deviations(level, samples))
    assert stats.kstest(p, "uniform").pvalue > 0.01


def test_p_by_dialogue_is_uniform_on_dependent_questions_and_p_by_question_is_not() -> None:
    source = rng(4)
    samples, level = 300, 0.05
    dialogues = np.repeat(np.arange(20), 15)
    by_question, by_dialogue = [], []
    for _ in range(samples):
        values = source.normal(size=20)[dialogues] + source.normal(size=300)
        by_question.append(sign_flip(values, source, draws=499) <= level)
        by_dialogue.append(cluster_sign_flip(values, list(dialogues), source, draws=499) <= level)
    assert np.mean(by_dialogue) == pytest.approx(level, abs=three_deviations(level, samples))
    assert np.mean(by_question) > 0.3


def test_the_same_seed_gives_the_same_p() -> None:
    differences = rng(5).normal(0.1, size=50)
    assert sign_flip(differences, rng()) == sign_flip(differences, rng())


def test_nothing_to_flip_is_no_test() -> None:
    with pytest.raises(ValueError, match="at least one"):
        sign_flip([], rng())
    with pytest.raises(ValueError, match="as many clusters"):
        cluster_sign_flip([1.0], ["a", "b"], rng())


def test_holm_multiplies_by_those_not_smaller_and_never_falls() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}) == pytest.approx(
        {"a": 3 * 0.01, "b": 2 * 0.03, "c": 2 * 0.03, "d": 4 * 0.005}
    )


def test_holm_stops_at_1_and_leaves_one_test_alone() -> None:
    assert holm({"a": 0.6, "b": 0.9}) == {"a": 1, "b": 1}
    assert holm({"a": 0.04}) == {"a": 0.04}
    assert holm({"a": 0.03, "b": 0.03}) == {"a": 0.06, "b": 0.06}
    assert holm({}) == {}


def test_holm_does_not_depend_on_the_order_and_keeps_it() -> None:
    p_values = {"a": 0.01, "b": 0.04, "c": 0.03}
    expected = holm(p_values)
    for names in permutations(p_values):
        found = holm({name: p_values[name] for name in names})
        assert found == expected
        assert list(found) == list(names)
