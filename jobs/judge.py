"""Stage 2: judges score answers, and wrong answers planted on purpose."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jobs.answer import FATAL
from jobs.evaluation.corrected_gold import read_corrections
from jobs.evaluation.models import Models, cost_of
from jobs.evaluation.plan import KINDS, BenchmarkPlan, JudgePlan, Plan, read_planned
from jobs.evaluation.records import Cell, Judgement
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
        DataError: An answer file is not finished, or a file of corrections cannot be used.
        VmemError: A prompt cannot be used, the budget is spent.
    """
    settings = load_settings(plan.settings)
    chat = models.make(judge, settings)
    try:
        for benchmark in plan.benchmarks:
            references = _corrected(benchmark)
            for kind in kinds_of(benchmark.name):
                prompts = JudgePrompts(settings.prompts, benchmark.data)
                asked = Judge(chat, prompts, kind, max_tokens=judge.max_tokens)
                for cell in _cells(plan, benchmark):
                    file = run.judgements(f"{cell}.{judge.name}.{kind}")
                    if not file.finished:
                        await _judge_items(asked, judge, file, _answers(run, cell))
                    again = run.corrected(f"{cell}.{judge.name}.{kind}")
                    if references and not again.finished:
                        await _judge_items(asked, judge, again, _answers(run, cell, references))
                planted = run.planted(f"{benchmark.name}.{judge.name}.{kind}")
                if judge.planted and not planted.finished:
                    items = _planted(benchmark, judge.planted, plan.seed)
                    await _judge_items(asked, judge, planted, items)
        return chat.name
    finally:
        await chat.close()


def judgements_planned(plan: Plan, run: RunFolder) -> int:
    """Judgements of answers that all judges give in all, those by corrected gold among them.

    Raises:
        DataError: An answer file is not finished, or a file of corrections cannot be used.
    """
    found = 0
    for benchmark in plan.benchmarks:
        references = _corrected(benchmark)
        for cell in _cells(plan, benchmark):
            answers = len(_answers(run, cell))
            if references:
                answers += len(_answers(run, cell, references))
            found += answers * len(kinds_of(benchmark.name))
    return found * sum(judge.repetitions for judge in plan.judges)


def judgement_files(plan: Plan, run: RunFolder) -> list[StageFile[Judgement]]:
    """The files that hold them."""
    names = [
        f"{cell}.{judge.name}.{kind}"
        for cell in plan.cells()
        for judge in plan.judges
        for kind in kinds_of(cell.benchmark)
    ]
    return [*map(run.judgements, names), *map(run.corrected, names)]


def _cells(plan: Plan, benchmark: BenchmarkPlan) -> Iterator[Cell]:
    return (cell for cell in plan.cells() if cell.benchmark == benchmark.name)


def _corrected(benchmark: BenchmarkPlan) -> Mapping[str, str]:
    corrections = read_corrections(benchmark)
    return corrections.references if corrections else {}


def _answers(run: RunFolder, cell: Cell, corrected: Mapping[str, str] | None = None) -> list[_Item]:
    """What of a cell's answers can be judged: neither failed nor empty, and with a reference.

    Args:
        run: The folder.
        cell: Whose answers.
        corrected: References by question: only those questions, by these; None takes all by their
            own.
    """
    file = run.answers(cell)
    if not file.finished:
        raise DataError(f"{file.path} is not there: run the answer stage first")
    records = [r for r in file.read() if r.error is None and not is_unanswered(r.answer)]
    own = {record.question_id: record.reference for record in records}
    references = own if corrected is None else corrected
    return [
        _Item(
            id=record.question_id,
            question=record.question,
            reference=references[record.question_id],
            answer=record.answer,
        )
        for record in records
        if references.get(record.question_id, "").strip()
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
