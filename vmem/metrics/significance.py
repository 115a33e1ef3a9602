"""Bootstrap intervals of means and of paired differences (Appendix I)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

RESAMPLES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean with the 2.5 and 97.5 percentiles of its bootstrap distribution."""

    mean: float
    low: float
    high: float


def bootstrap_mean(
    value_N: npt.ArrayLike, rng: np.random.Generator, resamples: int = RESAMPLES
) -> Interval:
    """Percentile bootstrap of a mean over questions (N); give paired differences for a test.

    Raises:
        ValueError: There is no value.
    """
    value_N = np.asarray(value_N, dtype=np.float64)
    if not len(value_N):
        raise ValueError("no value to resample")
    return cluster_bootstrap_mean(value_N, range(len(value_N)), rng, resamples)


def cluster_bootstrap_mean(
    value_N: npt.ArrayLike,
    cluster_N: Sequence[object],
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Interval:
    """Bootstrap that resamples whole clusters: questions about one dialogue are not independent.

    Args:
        value_N: One value a question.
        cluster_N: The dialogue of each question.
        rng: Source of randomness.
        resamples: Number of resamples.

    Raises:
        ValueError: There is no value, or lengths differ.
    """
    value_N = np.asarray(value_N, dtype=np.float64)
    names = list(dict.fromkeys(cluster_N))
    if not names or len(value_N) != len(cluster_N):
        raise ValueError("as many clusters as values are needed, and at least one")
    number = {name: index for index, name in enumerate(names)}
    slot_N = np.array([number[name] for name in cluster_N])
    sum_C = np.bincount(slot_N, weights=value_N)
    size_C = np.bincount(slot_N).astype(np.float64)
    means = np.empty(resamples)
    for index in range(resamples):
        pick_C = rng.integers(0, len(names), len(names))
        means[index] = sum_C[pick_C].sum() / size_C[pick_C].sum()
    low, high = np.percentile(means, [2.5, 97.5])
    return Interval(mean=float(value_N.mean()), low=float(low), high=float(high))
