"""Evidence recall of a setting on a benchmark, without a language model.

Every dialogue is encoded and searched exactly in process, on one thread, so that a question's
result does not depend on the number of workers or on their order.
"""

import asyncio
import json
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from vmem.build import hot_memory, make_parts
from vmem.config import Settings, replace
from vmem.datasets.parsing import read_text
from vmem.errors import DataError, VmemError
from vmem.metrics.retrieval import evidence_scores, gold_rounds
from vmem.pipeline import Parts, retrieve
from vmem.ports import SearchableMemory
from vmem.types import Benchmark, Dialogue, Question, Retrieval


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One question's retrieval.

    Attributes:
        question: What was asked.
        record: The line written for it.
        scores: Its evidence scores by name; None where it has no evidence or failed.
    """

    question: Question
    record: dict[str, Any]
    scores: dict[str, float] | None


def evaluate(
    benchmark: Benchmark,
    settings: Settings,
    *,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> list[Outcome]:
    """Search for every question's evidence, in the order of the benchmark's questions.

    Args:
        benchmark: Dialogues and questions.
        settings: The settings under test; no language model is used.
        workers: Processes.
        progress: Called with the number of questions done since the last call.
    """
    settings = _for_evaluation(settings)
    outcomes: dict[str, Outcome] = {}
    with ExitStack() as stack:
        if workers == 1:
            results: Iterator[list[Outcome]] = (
                _evaluate_dialogue(dialogue, questions, settings)
                for dialogue, questions in _by_dialogue(benchmark)
            )
        else:
            context = multiprocessing.get_context("spawn")
            pool = stack.enter_context(ProcessPoolExecutor(workers, mp_context=context))
            futures = [
                pool.submit(_evaluate_dialogue, dialogue, questions, settings)
                for dialogue, questions in _by_dialogue(benchmark)
            ]
            results = (future.result() for future in futures)
        for done in results:
            outcomes |= {outcome.question.id: outcome for outcome in done}
            if progress:
                progress(len(done))
    return [outcomes[question.id] for question in benchmark.questions]


def evaluate_memory(
    memory: SearchableMemory,
    dialogue: Dialogue,
    questions: Sequence[Question],
    settings: Settings,
    parts: Parts,
) -> list[Outcome]:
    """Search one memory for the evidence of its questions."""
    return asyncio.run(_evaluate_all(memory, dialogue, questions, settings, parts))


def _for_evaluation(settings: Settings) -> Settings:
    one_thread = {
        name: encoder.model_copy(update={"threads": 1}) for name, encoder in settings.encoders
    }
    return replace(settings, encoders=one_thread, llm={"provider": "none"})


def _by_dialogue(benchmark: Benchmark) -> Iterator[tuple[Dialogue, list[Question]]]:
    questions: dict[str, list[Question]] = {}
    for question in benchmark.questions:
        questions.setdefault(question.dialogue_id, []).append(question)
    for dialogue in benchmark.dialogues:
        if dialogue.id in questions:
            yield dialogue, questions[dialogue.id]


@lru_cache(maxsize=1)
def _parts(settings_json: str) -> Parts:
    """Encoders are loaded once a process, not once a dialogue."""
    return make_parts(Settings.model_validate_json(settings_json))


def _evaluate_dialogue(
    dialogue: Dialogue, questions: Sequence[Question], settings: Settings
) -> list[Outcome]:
    parts = _parts(settings.model_dump_json())
    memory = hot_memory(dialogue, settings, parts)
    return evaluate_memory(memory, dialogue, questions, settings, parts)


async def _evaluate_all(
    memory: SearchableMemory,
    dialogue: Dialogue,
    questions: Sequence[Question],
    settings: Settings,
    parts: Parts,
) -> list[Outcome]:
    return [
        await _evaluate_question(memory, dialogue, question, settings, parts)
        for question in questions
    ]


async def _evaluate_question(
    memory: SearchableMemory,
    dialogue: Dialogue,
    question: Question,
    settings: Settings,
    parts: Parts,
) -> Outcome:
    try:
        found = await retrieve(question.query, memory, parts, settings)
    except VmemError as error:
        record = _record(question, None, dialogue, f"{type(error).__name__}: {error}")
        return Outcome(question=question, record=record, scores=None)
    gold = gold_rounds(question, dialogue)
    ranked = list(dict.fromkeys(item.position for item in found.ranked))
    scores = evidence_scores(ranked, found.context.positions, gold).as_row() if gold else None
    return Outcome(
        question=question, record=_record(question, found, dialogue, None), scores=scores
    )


def _record(
    question: Question, found: Retrieval | None, dialogue: Dialogue, error: str | None
) -> dict[str, Any]:
    if found is None:
        return {"question_id": question.id, "case": None, "ranked_rounds": [],
                "context_rounds": [], "context_words": 0, "error": error}  # fmt: skip
    ranked = dict.fromkeys(item.position for item in found.ranked)
    return {
        "question_id": question.id,
        "case": found.route.case.value,
        "ranked_rounds": [list(dialogue.rounds[p].source_ids) for p in ranked],
        "context_rounds": [list(dialogue.rounds[p].source_ids) for p in found.context.positions],
        "context_words": found.context.words,
        "error": error,
    }


def read_run(path: Path, benchmark: Benchmark) -> dict[str, dict[str, float]]:
    """The scores of a run that was written, by question id; questions without evidence have none.

    Raises:
        DataError: The file is no run of this benchmark, or a question in it failed.
    """
    dialogues = {dialogue.id: dialogue for dialogue in benchmark.dialogues}
    questions = {question.id: question for question in benchmark.questions}
    scores = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        try:
            record = json.loads(line)
            question = questions[record["question_id"]]
            if record["error"]:
                raise DataError(f"{path} line {number}: {question.id} failed; run it again")
            dialogue = dialogues[question.dialogue_id]
            place = {round_.source_ids: round_.position for round_ in dialogue.rounds}
            ranked, context = (
                [place[tuple(ids)] for ids in record[name]]
                for name in ("ranked_rounds", "context_rounds")
            )
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise DataError(f"{path} line {number} is no record of {benchmark.name}") from error
        if gold := gold_rounds(question, dialogue):
            scores[question.id] = evidence_scores(ranked, context, gold).as_row()
    return scores
