"""Evidence scores of many questions as means with intervals, by category and by case."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vmem.metrics.significance import Interval, bootstrap_mean, cluster_bootstrap_mean

SEED = 20_260_301


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredQuestion:
    """One question's place in a summary.

    Attributes:
        dialogue_id: The dialogue it is about.
        category: The benchmark's category.
        case: The routed case; None where the question failed.
        scores: Its scores by name; None where it has no evidence or failed.
        error: Why it failed, or None.
    """

    dialogue_id: str
    category: str
    case: str | None
    scores: Mapping[str, float] | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The mean scores of some questions.

    Attributes:
        questions: How many there are.
        with_evidence: How many of them have evidence, and so scores.
        scores: By score, the mean with a bootstrap over questions and one over dialogues.
    """

    questions: int
    with_evidence: int
    scores: Mapping[str, tuple[Interval, Interval]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run's scores; `failed` above 0 makes them invalid.

    Attributes:
        failed: Questions that could not be searched.
        excluded: Questions left out by category, such as LoCoMo's adversarial ones.
        overall: All the others.
        by_category: The same by the benchmark's category.
        by_case: The same by the routed case.
    """

    failed: int
    excluded: int
    overall: Group
    by_category: Mapping[str, Group]
    by_case: Mapping[str, Group]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def summarise(questions: Sequence[ScoredQuestion], excluded: frozenset[str]) -> Summary:
    """Means and 95% intervals of a run.

    Args:
        questions: All questions of the run.
        excluded: Categories that are not scored.
    """
    kept = [question for question in questions if question.category not in excluded]
    return Summary(
        failed=sum(question.error is not None for question in kept),
        excluded=len(questions) - len(kept),
        overall=_group(kept),
        by_category=_grouped(kept, lambda question: question.category),
        by_case=_grouped(kept, lambda question: question.case or "failed"),
    )


def _grouped(
    questions: Sequence[ScoredQuestion], key: Callable[[ScoredQuestion], str]
) -> dict[str, Group]:
    names = sorted({key(question) for question in questions})
    return {name: _group([q for q in questions if key(q) == name]) for name in names}


def _group(questions: Sequence[ScoredQuestion]) -> Group:
    scored = [(q.dialogue_id, q.scores) for q in questions if q.scores is not None]
    clusters = [dialogue for dialogue, _ in scored]
    names = list(scored[0][1]) if scored else []
    return Group(
        questions=len(questions),
        with_evidence=len(scored),
        scores={
            name: _intervals([scores[name] for _, scores in scored], clusters) for name in names
        },
    )


def _intervals(values: Sequence[float], clusters: Sequence[str]) -> tuple[Interval, Interval]:
    return (
        bootstrap_mean(values, np.random.default_rng(SEED)),
        cluster_bootstrap_mean(values, clusters, np.random.default_rng(SEED)),
    )
