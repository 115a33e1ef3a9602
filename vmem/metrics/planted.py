"""Answers that are wrong by construction, and how many of them a judge accepts.

A judge that gives credit to vague talk, or to any answer of the right kind, measures something
else than memory. Both are tried on it: a vague answer that fits the topic, and a specific one that
belongs to another question.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from bm25s.stopwords import STOPWORDS_EN
from scipy.stats import binomtest

from vmem.errors import InputError
from vmem.metrics.judge import Verdict
from vmem.types import Question

PlantKind = Literal["vague", "specific"]

ACCEPTED_FROM = 0.5
"""A score from which a wrong answer counts as accepted: half the credit or more."""
TOPIC_WORDS = 4

# Each claims that the matter came up, so that it is wrong also where the reference says it did not.
_VAGUE = (
    "Something to do with {topic}; it came up more than once.",
    "Various things about {topic} were said over time.",
    "That was talked about in connection with {topic}, in some way or other.",
    "There was a mention of {topic}, and it went much as anybody would expect.",
)
_NUMBERS = re.findall(r"\w+", "zero one two three four five six seven eight nine ten eleven twelve")
_DIGITS = {word: str(number) for number, word in enumerate(_NUMBERS)}
_ASKING = re.findall(
    r"\w+",
    "about been could does have many much please should that there these this those were what when"
    " where which whom whose will with would",
)
_STOP_WORDS = frozenset(STOPWORDS_EN)
_YEAR = re.compile(r"(?:19|20)\d\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedAnswer:
    """A wrong answer to a question.

    Attributes:
        question_id: The question.
        kind: `vague` commits to nothing, `specific` is another question's reference.
        answer: The answer.
        taken_from: The other question's id.
    """

    question_id: str
    kind: PlantKind
    answer: str
    taken_from: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """The wrong answers for a sample of questions.

    Attributes:
        answers: In the order of the questions, vague before specific.
        without: By kind, the ids of sampled questions for which none could be made.
    """

    answers: tuple[PlantedAnswer, ...]
    without: Mapping[PlantKind, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FalseAccepts:
    """How a judge takes answers that are wrong.

    Attributes:
        rate: Share that it accepts.
        low: Lower end of the 95% Wilson interval.
        high: Its upper end.
        accepted: Number that it accepts.
        judged: Number that it judged.
        mean_score: Mean score that it gives; 0 is right.
    """

    rate: float
    low: float
    high: float
    accepted: int
    judged: int
    mean_score: float


def planted_answers(
    questions: Sequence[Question], rng: np.random.Generator, sample: int | None = None
) -> Planted:
    """A vague and a specific wrong answer for each question of a sample.

    Args:
        questions: All questions of a benchmark; those without a reference are not sampled.
        rng: Source of randomness; the same seed gives the same answers.
        sample: How many questions at most; None takes all.
    """
    asked = [question for question in questions if question.reference.strip()]
    if sample is not None and sample < len(asked):
        picked = sorted(rng.choice(len(asked), size=sample, replace=False).tolist())
    else:
        picked = list(range(len(asked)))
    peers: dict[tuple[str, str], list[Question]] = {}
    for question in asked:
        peers.setdefault((question.dialogue_id, question.category), []).append(question)
    answers: list[PlantedAnswer] = []
    without: dict[PlantKind, list[str]] = {"vague": [], "specific": []}
    for index in picked:
        question = asked[index]
        made = {
            "vague": _vague(question, rng),
            "specific": _specific(question, peers[question.dialogue_id, question.category], rng),
        }
        answers.extend(answer for answer in made.values() if answer)
        for kind, missing in without.items():
            if made[kind] is None:
                missing.append(question.id)
    return Planted(
        answers=tuple(answers), without={kind: tuple(ids) for kind, ids in without.items()}
    )


def false_accept_rate(
    verdicts: Sequence[Verdict], accepted_from: float = ACCEPTED_FROM
) -> FalseAccepts:
    """The share of wrong answers that a judge accepts, with its Wilson interval.

    Args:
        verdicts: What it said of planted answers.
        accepted_from: A score of so much or more accepts.

    Raises:
        InputError: There is no verdict.
    """
    if not verdicts:
        raise InputError("no planted answer was judged: there is no rate of false accepts")
    accepted = sum(verdict.score >= accepted_from for verdict in verdicts)
    interval = binomtest(accepted, len(verdicts)).proportion_ci(0.95, method="wilson")
    return FalseAccepts(
        rate=accepted / len(verdicts),
        low=float(interval.low),
        high=float(interval.high),
        accepted=accepted,
        judged=len(verdicts),
        mean_score=float(np.mean([verdict.score for verdict in verdicts])),
    )


def shares_content(one: str, other: str, question: str = "") -> bool:
    """Whether one answer might earn credit where the other is right.

    It might where they have a word in common that carries meaning (stop words, the question's own
    words and years do not), or where all words of one are in the other. Case, punctuation and order
    do not count, nor whether a small number is spelled out.
    """
    first, second = _words(one), _words(other)
    if first <= second or second <= first:
        return True
    shared = (first & second) - _STOP_WORDS - _words(question)
    return any(not _YEAR.fullmatch(word) for word in shared)


def _vague(question: Question, rng: np.random.Generator) -> PlantedAnswer | None:
    gold = _words(question.reference)
    asked = question.query.text.partition("?")[0]
    words = [
        word
        for word in dict.fromkeys(re.findall(r"[^\W\d_]+", asked))
        if len(word) > 3 and word.lower() not in _ASKING and not _words(word) & gold
    ]
    topic = " ".join(words[:TOPIC_WORDS]) or "that"
    for index in rng.permutation(len(_VAGUE)).tolist():
        answer = _VAGUE[index].format(topic=topic)
        if not gold <= _words(answer):
            return PlantedAnswer(question_id=question.id, kind="vague", answer=answer)
    return None


def _specific(
    question: Question, peers: Sequence[Question], rng: np.random.Generator
) -> PlantedAnswer | None:
    asked = question.query.text
    others = [p for p in peers if not shares_content(p.reference, question.reference, asked)]
    if not others:
        return None
    other = others[int(rng.integers(len(others)))]
    return PlantedAnswer(
        question_id=question.id,
        kind="specific",
        answer=other.reference,
        taken_from=other.id,
    )


def _words(text: str) -> frozenset[str]:
    # An image id is one word: D1:IMG_002.
    found = re.findall(r"\w+(?::\w+)*", text.lower())
    return frozenset(_DIGITS.get(word, word) for word in found)
