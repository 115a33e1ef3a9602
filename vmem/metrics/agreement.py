"""How far judges can be trusted: two judges' Cohen's κ, and the spread of one judge asked again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from vmem.errors import InputError
from vmem.metrics.significance import RESAMPLES, STRIDE

Weights = Literal["none", "linear", "quadratic"]
"""How a disagreement counts: all alike, by its distance, or by its distance squared."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Two judges' agreement on the same answers.

    Attributes:
        kappa: Cohen's κ: 1 for the same judgements, 0 for what chance gives; None where both
            judges gave one and the same level throughout, so that chance explains everything.
        low: 2.5 percentile of its bootstrap distribution over answers, or None with it.
        high: 97.5 percentile, or None with it.
        observed: Agreement found, 1 minus the mean weight of the disagreements.
        expected: Agreement that the two judges' levels would give by chance.
        answers: Answers judged by both.
        undefined: Resamples left out of the interval because their κ is undefined.
    """

    kappa: float | None
    low: float | None
    high: float | None
    observed: float
    expected: float
    answers: int
    undefined: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """What a judge says when asked about the same answers several times.

    Attributes:
        mean: Mean score over answers and repetitions.
        deviation: Standard deviation of the run's mean score between repetitions.
        within: Standard deviation of a single answer's score between repetitions, as the root
            of the mean variance over answers.
        unsteady: Share of answers that did not get the same score every time.
        answers: How many there are.
        repetitions: Judgements of each.
    """

    mean: float
    deviation: float
    within: float
    unsteady: float
    answers: int
    repetitions: int


def cohen_kappa(
    first_N: npt.ArrayLike,
    second_N: npt.ArrayLike,
    rng: np.random.Generator,
    weights: Weights = "none",
    resamples: int = RESAMPLES,
) -> Agreement:
    """Cohen's κ (1960; weighted: 1968) with a percentile bootstrap over answers.

    Args:
        first_N: One judge's level of each answer, as a number.
        second_N: The other judge's, of the same answers in the same order.
        rng: Source of randomness.
        weights: How a disagreement counts. Distances are those of the levels as numbers, over
            the largest one found.
        resamples: Number of resamples.

    Raises:
        InputError: There is no answer, the judges judged different numbers of them, or a level
            is not finite.
    """
    first_N, second_N = np.asarray(first_N, np.float64), np.asarray(second_N, np.float64)
    if first_N.ndim != 1 or first_N.shape != second_N.shape or not len(first_N):
        raise InputError(
            f"two judges agree over the same answers, at least one; they judged {first_N.shape} "
            f"and {second_N.shape}"
        )
    if not np.isfinite([first_N, second_N]).all():
        raise InputError("a judge's level is not finite; leave out answers that one of them missed")
    pair_P2, count_P = np.unique(np.stack([first_N, second_N], 1), axis=0, return_counts=True)
    pairs = _Pairs(pair_P2, weights)
    found_1, chance_1 = pairs.disagreement(count_P[None] / len(first_N))
    resampled = _resampled(pairs, count_P, rng, resamples)
    defined = resampled[~np.isnan(resampled)]
    low, high = np.percentile(defined, [2.5, 97.5]) if chance_1[0] else (None, None)
    return Agreement(
        kappa=float(1 - found_1[0] / chance_1[0]) if chance_1[0] else None,
        low=None if low is None else float(low),
        high=None if high is None else float(high),
        observed=float(1 - found_1[0]),
        expected=float(1 - chance_1[0]),
        answers=len(first_N),
        undefined=len(resampled) - len(defined),
    )


def judgement_spread(score_NR: Sequence[Sequence[float]]) -> Spread:
    """Mean and spread of repeated judgements.

    Args:
        score_NR: For each answer its scores, one a repetition, in the order of the repetitions.

    Raises:
        InputError: There is no answer, one was judged less than twice, or not all equally often.
    """
    lengths = {len(scores) for scores in score_NR}
    if len(lengths) != 1 or min(lengths) < 2:
        raise InputError(
            "a spread needs answers judged equally often and at least twice; found "
            f"{sorted(lengths) or 'none'} judgements"
        )
    scores = np.asarray(score_NR, dtype=np.float64)
    return Spread(
        mean=float(scores.mean()),
        deviation=float(scores.mean(axis=0).std(ddof=1)),
        within=float(np.sqrt(scores.var(axis=1, ddof=1).mean())),
        unsteady=float((scores.max(axis=1) != scores.min(axis=1)).mean()),
        answers=scores.shape[0],
        repetitions=scores.shape[1],
    )


class _Pairs:
    """The P pairs of levels that occur, and how much each of the K levels differs from another."""

    def __init__(self, pair_P2: Floats, weights: Weights) -> None:
        level_K, slot = np.unique(pair_P2, return_inverse=True)
        first_P, second_P = slot.reshape(pair_P2.shape).T
        self.first_PK = np.eye(len(level_K))[first_P]
        self.second_PK = np.eye(len(level_K))[second_P]
        gap_KK = np.abs(level_K[:, None] - level_K[None])
        if weights == "none":
            self.weight_KK = (gap_KK > 0).astype(np.float64)
        else:
            scaled = gap_KK / (gap_KK.max() or 1)
            self.weight_KK = scaled if weights == "linear" else scaled**2
        self.weight_P = self.weight_KK[first_P, second_P]

    def disagreement(self, share_SP: Floats) -> tuple[Floats, Floats]:
        """The disagreement found (S) and that of independent judges (S), for shares of pairs."""
        chance = (share_SP @ self.first_PK @ self.weight_KK * (share_SP @ self.second_PK)).sum(1)
        return share_SP @ self.weight_P, chance


def _resampled(
    pairs: _Pairs, count_P: npt.NDArray[np.int_], rng: np.random.Generator, resamples: int
) -> Floats:
    """κ of each resample, NaN where undefined; resampling answers is drawing counts of pairs."""
    answers = int(count_P.sum())
    kappas = []
    for start in range(0, resamples, STRIDE):
        size = min(STRIDE, resamples - start)
        share_SP = rng.multinomial(answers, count_P / answers, size) / answers
        found_S, chance_S = pairs.disagreement(share_SP)
        undefined = np.full(size, np.nan)
        kappas.append(1 - np.divide(found_S, chance_S, out=undefined, where=chance_S > 0))
    return np.concatenate(kappas)
