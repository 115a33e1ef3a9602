"""Rankings under several signals become one (Equation 5).

Reciprocal rank fusion (Cormack et al. 2009) is the paper's method. Convex fusion (Bruch et al.
2023, "An Analysis of Fusion Functions for Hybrid Retrieval") keeps how far scores lie apart.
"""

from collections.abc import Mapping

import numpy as np

from vmem.config import FusionSettings
from vmem.ports import Ranking, Rankings, Scores
from vmem.types import Case, RankedRound, Signal

KEPT = 100
"""Fused items that are worth an object; a caller shows or returns at most the first of them."""


def fuse(rankings: Rankings, case: Case, settings: FusionSettings) -> tuple[RankedRound, ...]:
    """The best items that any signal ranked, best first; ties by position.

    Args:
        rankings: One ranking a signal; their order does not matter.
        case: The query's case, which picks the weights.
        settings: Method, constant and weights.

    Returns:
        Rounds (at the unit level one entry a unit), at most `KEPT`.
    """
    signals = sorted(signal for signal, r in rankings.by_signal.items() if len(r.item_N))
    if not signals:
        return ()
    weights = settings.weights.get(case, {})
    item_N, slot_P = np.unique(
        np.concatenate([rankings.by_signal[signal].item_N for signal in signals]),
        return_inverse=True,
    )
    point_P = np.concatenate(
        [weights.get(s, 1.0) * _points(rankings.by_signal[s], settings) for s in signals]
    )
    score_N = np.bincount(slot_P, weights=point_P, minlength=len(item_N))
    order = np.lexsort((item_N, -score_N))[:KEPT]
    items = item_N[order].tolist()
    ranks = _ranks(rankings.by_signal, signals, set(items))
    return tuple(
        _ranked(item, score, ranks[item], rankings)
        for item, score in zip(items, score_N[order].tolist(), strict=True)
    )


def _points(ranking: Ranking, settings: FusionSettings) -> Scores:
    if settings.method == "rrf":
        rank_N = np.arange(1, len(ranking.item_N) + 1)
        reciprocal: Scores = 1.0 / (settings.rrf_k + rank_N)
        return reciprocal
    return _min_max(ranking.score_N.astype(np.float64))


def _min_max(score_N: Scores) -> Scores:
    """Falling scores moved to [0, 1]; equal ones are all 1."""
    low, high = score_N[-1], score_N[0]
    if high == low:
        return np.ones_like(score_N)
    result: Scores = (score_N - low) / (high - low)
    return result


def _ranks(
    by_signal: Mapping[Signal, Ranking], signals: list[Signal], kept: set[int]
) -> dict[int, dict[Signal, int]]:
    ranks: dict[int, dict[Signal, int]] = {item: {} for item in kept}
    for signal in signals:
        for rank, item in enumerate(by_signal[signal].item_N.tolist(), 1):
            if item in kept:
                ranks[item][signal] = rank
    return ranks


def _ranked(
    item: int, score: float, ranks: Mapping[Signal, int], rankings: Rankings
) -> RankedRound:
    if not rankings.units:
        return RankedRound(position=item, score=score, ranks=ranks)
    position, unit_id = rankings.units[item]
    return RankedRound(position=position, score=score, ranks=ranks, units=(unit_id,))
