"""Two systems compared on the same questions, by question and by dialogue (Appendix I)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vmem.errors import InputError
from vmem.metrics.permutation import cluster_sign_flip, holm, sign_flip
from vmem.metrics.significance import RESAMPLES, Interval, bootstrap_mean, cluster_bootstrap_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedTest:
    """How sure a mean difference is.

    Attributes:
        low: 2.5 percentile of its bootstrap distribution.
        high: 97.5 percentile.
        p: Two-sided, of the sign-flip permutation test.
        p_holm: The same, corrected for all categories tested; None outside `compare_categories`.
    """

    low: float
    high: float
    p: float
    p_holm: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedComparison:
    """What two systems' scores of the same questions say about their difference.

    Attributes:
        difference: Mean of the first system's score minus the second's, over questions.
        by_question: Resamples and flips single questions, as the paper does.
        by_dialogue: Resamples and flips whole dialogues, whose questions are not independent;
            None where all questions are about one dialogue.
        questions: How many there are.
        dialogues: How many they are about.
    """

    difference: float
    by_question: PairedTest
    by_dialogue: PairedTest | None
    questions: int
    dialogues: int


def compare_paired(
    first: Mapping[str, float],
    second: Mapping[str, float],
    dialogue_of: Mapping[str, str],
    rng: np.random.Generator,
    draws: int = RESAMPLES,
) -> PairedComparison:
    """Compare two systems; the order of the mappings does not matter.

    Args:
        first: Score of each question by its id.
        second: The other system's scores of the same questions.
        dialogue_of: The dialogue of each question, and of any others.
        rng: Source of randomness.
        draws: Number of resamples and of permutations.

    Raises:
        InputError: The systems did not score the same questions, there are none, a score is not
            finite, or a question has no dialogue.
    """
    _require_same_questions(first, second)
    _require_all(first, dialogue_of, "dialogue")
    return _compare(sorted(first), first, second, dialogue_of, rng, draws)


def compare_categories(
    first: Mapping[str, float],
    second: Mapping[str, float],
    dialogue_of: Mapping[str, str],
    category_of: Mapping[str, str],
    rng: np.random.Generator,
    draws: int = RESAMPLES,
) -> dict[str, PairedComparison]:
    """Compare two systems within each category, with Holm's correction over the categories.

    The p values by question are one family and those by dialogue another. Arguments as in
    `compare_paired`; `category_of` gives each question's category.

    Raises:
        InputError: As in `compare_paired`, or a question has no category.
    """
    _require_same_questions(first, second)
    _require_all(first, dialogue_of, "dialogue")
    _require_all(first, category_of, "category")
    by_category: dict[str, list[str]] = {}
    for question in sorted(first):
        by_category.setdefault(category_of[question], []).append(question)
    found = {
        category: _compare(by_category[category], first, second, dialogue_of, rng, draws)
        for category in sorted(by_category)
    }
    by_question = _corrected({name: result.by_question for name, result in found.items()})
    by_dialogue = _corrected(
        {name: result.by_dialogue for name, result in found.items() if result.by_dialogue}
    )
    return {
        name: replace(result, by_question=by_question[name], by_dialogue=by_dialogue.get(name))
        for name, result in found.items()
    }


def _compare(
    questions: Sequence[str],
    first: Mapping[str, float],
    second: Mapping[str, float],
    dialogue_of: Mapping[str, str],
    rng: np.random.Generator,
    draws: int,
) -> PairedComparison:
    difference_N = np.array([first[name] - second[name] for name in questions], dtype=np.float64)
    dialogue_N = [dialogue_of[name] for name in questions]
    dialogues = len(set(dialogue_N))
    by_question = _test(
        bootstrap_mean(difference_N, rng, draws), sign_flip(difference_N, rng, draws)
    )
    by_dialogue = None
    if dialogues > 1:
        by_dialogue = _test(
            cluster_bootstrap_mean(difference_N, dialogue_N, rng, draws),
            cluster_sign_flip(difference_N, dialogue_N, rng, draws),
        )
    return PairedComparison(
        difference=float(difference_N.mean()),
        by_question=by_question,
        by_dialogue=by_dialogue,
        questions=len(questions),
        dialogues=dialogues,
    )


def _test(interval: Interval, p: float) -> PairedTest:
    return PairedTest(low=interval.low, high=interval.high, p=p)


def _corrected(tests: Mapping[str, PairedTest]) -> dict[str, PairedTest]:
    corrected = holm({name: test.p for name, test in tests.items()})
    return {name: replace(test, p_holm=corrected[name]) for name, test in tests.items()}


def _require_same_questions(first: Mapping[str, float], second: Mapping[str, float]) -> None:
    only_first, only_second = first.keys() - second.keys(), second.keys() - first.keys()
    if only_first or only_second:
        raise InputError(
            f"the systems must have scored the same questions: {len(only_first)} only the first "
            f"did, {len(only_second)} only the second, such as {min(only_first | only_second)}; "
            "finish or filter the runs first"
        )
    if not first:
        raise InputError("there is no question to compare two systems on; give their scores")
    for question in sorted(first):
        if not np.isfinite([first[question], second[question]]).all():
            raise InputError(f"{question} has a score that is not finite; judge it again")


def _require_all(questions: Mapping[str, float], known: Mapping[str, str], what: str) -> None:
    missing = questions.keys() - known.keys()
    if missing:
        raise InputError(
            f"{len(missing)} questions have no {what}, such as {min(missing)}; name it for each"
        )
