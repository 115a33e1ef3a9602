"""Evidence recall, hit, full and reciprocal rank of one question's ranked rounds.

Gold evidence is counted in rounds: a round is found when it is among the first k, and one that
holds two pieces of evidence counts once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vmem.types import Dialogue, Question

CUTOFFS = (1, 3, 5, 12, 30)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceScores:
    """What one question's retrieval found; shares between 0 and 1.

    Attributes:
        recall: Share of the gold rounds among the first k items, by k.
        recall_in_context: Share of the gold rounds in the context, neighbours among them.
        hit: 1 when any gold round is among the first 12.
        full: 1 when all gold rounds are among the first 12.
        reciprocal_rank: 1 over the rank of the first gold round, 0 when none was ranked.
    """

    recall: dict[int, float]
    recall_in_context: float
    hit: float
    full: float
    reciprocal_rank: float

    def as_row(self) -> dict[str, float]:
        """The scores by the names that tables print."""
        return {
            **{f"recall@{k}": value for k, value in self.recall.items()},
            "recall+neighbours": self.recall_in_context,
            "hit@12": self.hit,
            "full@12": self.full,
            "mrr": self.reciprocal_rank,
        }


def gold_rounds(question: Question, dialogue: Dialogue) -> frozenset[int]:
    """Positions of the rounds that hold a question's evidence; empty where it has none."""
    return frozenset(
        round_.position
        for round_ in dialogue.rounds
        if question.evidence.intersection(round_.source_ids)
    )


def evidence_scores(
    ranked: Sequence[int], context: Sequence[int], gold: frozenset[int]
) -> EvidenceScores:
    """Score one question.

    Args:
        ranked: Positions of rounds, best first; where units are ranked, the position of each unit's
            round, so that a round may come again and k counts units.
        context: Positions of the rounds shown, neighbours among them.
        gold: Positions of the gold rounds; at least one.

    Raises:
        ValueError: There is no gold round, so that no share can be formed.
    """
    if not gold:
        raise ValueError("a question without evidence has no recall")
    first = set(ranked[:12])
    return EvidenceScores(
        recall={k: len(gold.intersection(ranked[:k])) / len(gold) for k in CUTOFFS},
        recall_in_context=len(gold.intersection(context)) / len(gold),
        hit=float(bool(gold & first)),
        full=float(gold <= first),
        reciprocal_rank=next((1 / rank for rank, p in enumerate(ranked, 1) if p in gold), 0.0),
    )
