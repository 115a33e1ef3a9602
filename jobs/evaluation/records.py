"""What the stages of an evaluation write: a line a question, a line a judgement.

All of it is the same in two runs that share a cache of replies: what differs from run to run, the
seconds of this machine's own work, is in `Timing`, which has a file of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

Folder = Literal["answers", "timings", "builds", "judgements", "planted"]


class Stage(StrEnum):
    """The stages of an evaluation, in their order."""

    ANSWER = "answer"
    JUDGE = "judge"
    STATISTICS = "statistics"
    TABLES = "tables"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One system on one benchmark with one backbone: a file of answers."""

    benchmark: str
    system: str
    backbone: str

    def __str__(self) -> str:
        """Its name, as its files have it."""
        return f"{self.benchmark}.{self.system}.{self.backbone}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCost:
    """What the calls of one role took for one question.

    Attributes:
        calls: Calls, failed ones among them.
        failed: Calls that gave no reply.
        prompt_tokens: Tokens of their prompts, as the server counts them.
        completion_tokens: Tokens of their replies.
        seconds: What they took when they were made; a kept reply keeps its seconds.
    """

    calls: int
    failed: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One question and what a system made of it.

    Attributes:
        question_id: The question's id in its benchmark.
        dialogue_id: The dialogue it is about.
        category: The benchmark's category.
        question: Its text.
        image: The id of its attached picture, or None.
        image_uri: Where that picture is, or None.
        reference: The gold answer.
        gold_rounds: Ids of the rounds that hold its evidence.
        case: The routed case; None where the system routes nothing or failed before.
        answer: What was answered; may be empty.
        error: `CLASS: SENTENCE` of what failed, or None.
        ranked_rounds: Ids of the rounds ranked, best first.
        context_rounds: Ids of the rounds that the model saw, in their order.
        dropped_rounds: Ids of ranked rounds that did not fit into the context.
        context_words: Words of the context.
        context: The context as sent; empty where nothing answers.
        hypo_caption: The generated caption, or None.
        keywords: What was read off the attached picture.
        query_caption: Its description, or None.
        notes: What was not done that the case calls for, and why.
        anchor_failures: Roles whose call failed, with the error's class, as `ROLE: CLASS`.
        scores: Evidence scores by name; None without evidence.
        cost: By role, what its calls took.
    """

    question_id: str
    dialogue_id: str
    category: str
    question: str
    image: str | None = None
    image_uri: str | None = None
    reference: str
    gold_rounds: tuple[str, ...] = ()
    case: str | None = None
    answer: str = ""
    error: str | None = None
    ranked_rounds: tuple[str, ...] = ()
    context_rounds: tuple[str, ...] = ()
    dropped_rounds: tuple[str, ...] = ()
    context_words: int = 0
    context: str = ""
    hypo_caption: str | None = None
    keywords: tuple[str, ...] = ()
    query_caption: str | None = None
    notes: tuple[str, ...] = ()
    anchor_failures: tuple[str, ...] = ()
    scores: Mapping[str, float] | None = None
    cost: Mapping[str, ModelCost] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds of one question's stages on this machine, model calls among them.

    `waited` are those of them in which its calls were held back, because as many as are allowed
    were under way: more questions are in work than that, so that the server never waits.
    """

    question_id: str
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What building one dialogue's memory took.

    Attributes:
        dialogue_id: The dialogue.
        counts: Rounds, units, truncated texts, pictures without pixels.
        cost: By role, what calls of a language model took; empty for systems that make none.
        seconds: By step, on this machine.
    """

    dialogue_id: str
    counts: Mapping[str, int]
    cost: Mapping[str, ModelCost]
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What one judge says of one answer.

    Attributes:
        question_id: The question.
        repetition: Which judging of the same answer, from 0.
        level: The level as the judge gave it; None where it failed.
        score: What the benchmark makes of it, 0 to 1; None where it failed.
        reason: The judge's words.
        error: `CLASS: SENTENCE`, or None.
        asks: Times it was asked: 2 where its first reply could not be read.
        cost: What the calls took.
        digest: Of the question, the reference and the answer that were judged, so that judgements
            of other ones are known; None in lines of older runs.
    """

    question_id: str
    repetition: int
    level: float | None
    score: float | None
    reason: str
    error: str | None
    asks: int
    cost: ModelCost
    digest: str | None = None
