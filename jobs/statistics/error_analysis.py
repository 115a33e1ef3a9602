"""Where wrong answers come from: was their evidence in the context (Appendix L)?"""

from collections.abc import Mapping
from typing import Any

from jobs.evaluation.records import Record

WRONG_BELOW = 0.5
"""A score below this is a wrong answer: less than half the credit."""
PLACES = ("all", "part", "none", "no_evidence")


def wrong_answers(
    scores: Mapping[str, float], records: Mapping[str, Record]
) -> dict[str, dict[str, Any]]:
    """By category, and over all as `overall`: wrong answers by how much evidence was shown.

    Args:
        scores: A judge's score by question.
        records: Every question's record.

    Returns:
        For each category: `judged`, `wrong`, and of the wrong ones the number whose gold rounds
        were `all`, in `part` or in no way (`none`) in the context, or that name `no_evidence`;
        `share_with_evidence` is the share of `all` among the wrong ones that name evidence.
    """
    names = sorted({records[id_].category for id_ in scores})
    found = {
        name: _counted({i: s for i, s in scores.items() if records[i].category == name}, records)
        for name in names
    }
    return {"overall": _counted(scores, records), **found}


def evidence_shown(record: Record) -> str:
    """How much of a question's evidence its context held: one of `PLACES`."""
    gold = set(record.gold_rounds)
    if not gold:
        return "no_evidence"
    shown = gold.intersection(record.context_rounds)
    return "all" if shown == gold else "part" if shown else "none"


def _counted(scores: Mapping[str, float], records: Mapping[str, Record]) -> dict[str, Any]:
    places = [evidence_shown(records[id_]) for id_, score in scores.items() if score < WRONG_BELOW]
    counts = {place: places.count(place) for place in PLACES}
    with_evidence = len(places) - counts["no_evidence"]
    share = counts["all"] / with_evidence if with_evidence else None
    return {"judged": len(scores), "wrong": len(places), **counts, "share_with_evidence": share}
