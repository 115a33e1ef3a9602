"""Bootstrap intervals of means and of paired differences (Appendix I)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

RESAMPLES = 10_000
STRIDE = 500
"""Resamples drawn at once: bounds the memory, not the result's meaning."""


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
    sum_C, size_C = cluster_sums(value_N, cluster_N)
    mean = np.asarray(value_N, dtype=np.float64).mean()
    means = np.concatenate(
        [
            _resampled_means(sum_C, size_C, rng, min(STRIDE, resamples - start))
            for start in range(0, resamples, STRIDE)
        ]
    )
    low, high = np.percentile(means, [2.5, 97.5])
    return Interval(mean=float(mean), low=float(low), high=float(high))


def cluster_sums(
    value_N: npt.ArrayLike, cluster_N: Sequence[object]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The sum (C) and the number (C) of the values of each cluster, in order of appearance.

    Raises:
        ValueError: There is no value, or lengths differ.
    """
    value_N = np.asarray(value_N, dtype=np.float64)
    names = list(dict.fromkeys(cluster_N))
    if not names or len(value_N) != len(cluster_N):
        raise ValueError("as many clusters as values are needed, and at least one")
    number = {name: index for index, name in enumerate(names)}
    slot_N = np.array([number[name] for name in cluster_N])
    sum_C: npt.NDArray[np.float64] = np.bincount(slot_N, weights=value_N).astype(np.float64)
    return sum_C, np.bincount(slot_N).astype(np.float64)


def _resampled_means(
    sum_C: npt.NDArray[np.float64],
    size_C: npt.NDArray[np.float64],
    rng: np.random.Generator,
    resamples: int,
) -> npt.NDArray[np.float64]:
    pick_SC = rng.integers(0, len(sum_C), (resamples, len(sum_C)))
    result: npt.NDArray[np.float64] = sum_C[pick_SC].sum(axis=1) / size_C[pick_SC].sum(axis=1)
    return result
