"""Two-sided sign-flip permutation tests of paired differences, and Holm's correction (Appendix I).

Where two systems are equally good, each difference is as likely to be found with the other sign.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from vmem.metrics.significance import RESAMPLES, STRIDE, cluster_sums

SLACK = 1e-9
"""Share of the largest possible sum by which two equal sums may differ for their rounding."""


def sign_flip(
    difference_N: npt.ArrayLike, rng: np.random.Generator, draws: int = RESAMPLES
) -> float:
    """The p value of a mean difference (N), with one sign a question.

    Raises:
        ValueError: There is no difference.
    """
    difference_N = np.asarray(difference_N, dtype=np.float64)
    return cluster_sign_flip(difference_N, range(len(difference_N)), rng, draws)


def cluster_sign_flip(
    difference_N: npt.ArrayLike,
    cluster_N: Sequence[object],
    rng: np.random.Generator,
    draws: int = RESAMPLES,
) -> float:
    """The p value of a mean difference, with one sign a dialogue.

    Few dialogues bound it from below: C of them have 2^C signs, of which two are as extreme as
    the most extreme result, so that p is at least about 2 / 2^C.

    Args:
        difference_N: First system minus second, one a question.
        cluster_N: The dialogue of each question.
        rng: Source of randomness.
        draws: Number of random signs of all dialogues.

    Returns:
        (hits + 1) / (draws + 1), a hit being a sum at least as far from 0 as the one found; the
        result found counts as a draw of its own, so that p is never 0.

    Raises:
        ValueError: There is no difference, or lengths differ.
    """
    sum_C, _ = cluster_sums(difference_N, cluster_N)
    total = sum_C.sum()
    threshold = abs(total) - SLACK * np.abs(sum_C).sum()
    hits = 0
    for start in range(0, draws, STRIDE):
        flipped_SC = rng.integers(0, 2, (min(STRIDE, draws - start), len(sum_C)), dtype=np.int8)
        hits += int(np.count_nonzero(np.abs(total - 2 * (flipped_SC @ sum_C)) >= threshold))
    return (hits + 1) / (draws + 1)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's (1979) step-down correction: each p times the number of those not smaller, in order.

    Below a level α, they are the tests that are significant with a chance of at most α of any
    false one among them all. Keys keep their order.
    """
    adjusted: dict[str, float] = {}
    largest = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = largest
    return {name: adjusted[name] for name in p_values}
