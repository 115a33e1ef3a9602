"""Stage 2: judges score answers, and wrong answers planted on purpose."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jobs.answer import FATAL
from jobs.evaluation.models import Models, cost_of
from jobs.evaluation.plan import KINDS, BenchmarkPlan, JudgePlan, Plan, read_planned
from jobs.evaluation.records import Judgement
from jobs.evaluation.run_folder import RunFolder, StageFile, judgement_key
from vmem.config import load_settings
from vmem.errors import DataError, VmemError
from vmem.llm.ledger import calls_heard
from vmem.metrics.judge import Judge, is_unanswered
from vmem.metrics.planted import planted_answers
from vmem.prompts.judge import JudgeKind, JudgePrompts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """An answer to judge; its id is a question's, or `QUESTION~KIND` of a planted one."""

    id: str
    question: str
    reference: str
    answer: str


def kinds_of(benchmark: str) -> tuple[JudgeKind, ...]:
    """What judges are asked for on a benchmark."""
    return KINDS.get(benchmark, ("gallery",))


async def judge_all(plan: Plan, judge: JudgePlan, run: RunFolder, models: Models) -> str:
    """Judge all answers, and the planted ones; what a finished file holds is not asked again.

    Returns:
        What the server calls its model.

    Raises:
        DataError: An answer file is not finished.
        VmemError: A prompt cannot be used, the budget is spent.
    """
    settings = load_settings(plan.settings)
    chat = models.make(judge, settings)
    try:
        for benchmark in plan.benchmarks:
            for kind in kinds_of(benchmark.name):
                prompts = JudgePrompts(settings.prompts, benchmark.data)
                asked = Judge(chat, prompts, kind, max_tokens=judge.max_tokens)
                for cell in plan.cells():
                    if cell.benchmark == benchmark.name:
                        file = run.judgements(f"{cell}.{judge.name}.{kind}")
                        if not file.finished:
                            await _judge_items(asked, judge, file, _answers(run, cell))
                planted = run.planted(f"{benchmark.name}.{judge.name}.{kind}")
                if judge.planted and not planted.finished:
                    items = _planted(benchmark, judge.planted, plan.seed)
                    await _judge_items(asked, judge, planted, items)
        return chat.name
    finally:
        await chat.close()


def _answers(run: RunFolder, cell: object) -> list[_Item]:
    """What of a cell's answers can be judged: neither failed nor empty, and with a reference."""
    file = run.answers(cell)
    if not file.finished:
        raise DataError(f"{file.path} is not there: run the answer stage first")
    return [
        _Item(
            id=record.question_id,
            question=record.question,
            reference=record.reference,
            answer=record.answer,
        )
        for record in file.read()
        if record.error is None and not is_unanswered(record.answer) and record.reference.strip()
    ]


def _planted(benchmark: BenchmarkPlan, sample: int, seed: int) -> list[_Item]:
    questions = read_planned(benchmark).questions
    by_id = {question.id: question for question in questions}
    planted = planted_answers(questions, np.random.default_rng(seed), sample)
    return [
        _Item(
            id=f"{answer.question_id}~{answer.kind}",
            question=by_id[answer.question_id].query.text,
            reference=by_id[answer.question_id].reference,
            answer=answer.answer,
        )
        for answer in planted.answers
    ]


async def _judge_items(
    judge: Judge, plan: JudgePlan, file: StageFile[Judgement], items: Sequence[_Item]
) -> None:
    done = {judgement_key(line) for line in file.read() if line.error is None}
    order = [(item.id, repetition) for item in items for repetition in range(plan.repetitions)]
    by_id = {item.id: item for item in items}
    places = asyncio.Semaphore(plan.concurrency)

    async def ask(item: _Item, repetition: int) -> None:
        async with places:
            file.append(await _judged(judge, item, repetition))

    async with asyncio.TaskGroup() as tasks:
        for item_id, repetition in order:
            if (item_id, repetition) not in done:
                tasks.create_task(ask(by_id[item_id], repetition))
    file.finish(order)


async def _judged(judge: Judge, item: _Item, repetition: int) -> Judgement:
    with calls_heard() as calls:
        said: str | None = None
        try:
            verdict = await judge.judge(item.question, item.reference, item.answer, repetition)
        except FATAL:
            raise
        except VmemError as error:
            said = f"{type(error).__name__}: {error}"
            level, score, reason, asks = None, None, "", len(calls)
        else:
            level, score, reason = verdict.level, verdict.score, verdict.reason
            asks = verdict.asks
    return Judgement(
        question_id=item.id,
        repetition=repetition,
        level=level,
        score=score,
        reason=reason,
        error=said,
        asks=asks,
        cost=cost_of(calls),
    )
