"""Anchors to rankings: each signal scores units, rounds take what their units earn (Eqs. 3 to 5).

Captions belong to the image lane when it searches captions, and to the text lane otherwise.
"""

from collections.abc import Mapping

import numpy as np

from vmem.config import RetrievalSettings
from vmem.ports import (
    Mask,
    Positions,
    Ranking,
    Rankings,
    Scores,
    SearchableMemory,
    UnitScores,
    Vectors,
)
from vmem.types import CAPTION_SIGNALS, Case, Route, Signal

IMAGE_TARGETS = {Case.TEXT_TO_IMAGE, Case.IMAGE_TEXT_TO_IMAGE}


def search_lanes(
    memory: SearchableMemory,
    route: Route,
    probes: Mapping[Signal, str | Vectors],
    settings: RetrievalSettings,
) -> Rankings:
    """Search every active lane with its own anchor.

    Args:
        memory: The memory to search.
        route: The query's route.
        probes: For each active signal the anchor as its lane takes it: a text for sparse
            signals, a vector (D,) for the others.
        settings: Pool, filter window, level, round score.
    """
    candidate_R = image_candidates(memory, route, settings)
    with_captions = probes.keys().isdisjoint(CAPTION_SIGNALS)
    found = {
        signal: memory.score(
            signal, probe, candidate_R, pool=settings.pool, with_captions=with_captions
        )
        for signal, probe in probes.items()
    }
    best_image = _best_unit(found[Signal.VISUAL]) if Signal.VISUAL in found else None
    if settings.level == "unit":
        return _rank_units(found, settings, best_image)
    by_signal = {signal: _rank_rounds(scores, settings) for signal, scores in found.items()}
    return Rankings(by_signal=by_signal, best_image=best_image)


def image_candidates(
    memory: SearchableMemory, route: Route, settings: RetrievalSettings
) -> Mask | None:
    """The image-round filter (Appendix B): rounds with an image within the window, or all.

    Returns:
        A mask over rounds (R), or None where every round may be ranked.
    """
    if route.case not in IMAGE_TARGETS or settings.filter_window is None:
        return None
    if settings.routing == "uniform":
        return None
    near_R = memory.has_image_R.copy()
    for distance in range(1, settings.filter_window + 1):
        near_R[distance:] |= memory.has_image_R[:-distance]
        near_R[:-distance] |= memory.has_image_R[distance:]
    return near_R if near_R.any() else None


def _rank_rounds(scores: UnitScores, settings: RetrievalSettings) -> Ranking:
    position_N, score_N = _round_scores(scores, settings.round_score == "best_two")
    order = np.lexsort((position_N, -score_N))[: settings.pool]
    return Ranking(item_N=position_N[order], score_N=score_N[order])


def _round_scores(scores: UnitScores, second_counts: bool) -> tuple[Positions, Scores]:
    """S_j(r): the best unit of each round, plus half of its second best where that counts."""
    order = np.lexsort((-scores.score_U, scores.position_U))
    position_U, score_U = scores.position_U[order], scores.score_U[order]
    first_U = np.ones(len(order), dtype=bool)
    first_U[1:] = position_U[1:] != position_U[:-1]
    best_N = score_U[first_U]
    if second_counts:
        start_N = np.flatnonzero(first_U)
        next_N = np.minimum(start_N + 1, len(order) - 1)
        has_second_N = (next_N > start_N) & ~first_U[next_N]
        best_N = best_N + np.where(has_second_N, 0.5 * np.maximum(score_U[next_N], 0), 0)
    return position_U[first_U], best_N


def _rank_units(
    found: Mapping[Signal, UnitScores],
    settings: RetrievalSettings,
    best_image: tuple[int, str] | None,
) -> Rankings:
    pools = {}
    for signal, scores in found.items():
        order = np.lexsort((scores.unit_ids, scores.position_U, -scores.score_U))
        top = order[: settings.pool]
        units = list(zip(scores.position_U[top].tolist(), scores.unit_ids[top], strict=True))
        pools[signal] = (units, scores.score_U[top])
    names = sorted({unit for units, _ in pools.values() for unit in units})
    number = {unit: item for item, unit in enumerate(names)}
    by_signal = {
        signal: Ranking(
            item_N=np.array([number[unit] for unit in units], dtype=np.int64), score_N=score_N
        )
        for signal, (units, score_N) in pools.items()
    }
    return Rankings(by_signal=by_signal, units=tuple(names), best_image=best_image)


def _best_unit(scores: UnitScores) -> tuple[int, str] | None:
    if not len(scores.score_U):
        return None
    best = np.lexsort((scores.position_U, -scores.score_U))[0]
    return int(scores.position_U[best]), str(scores.unit_ids[best])
