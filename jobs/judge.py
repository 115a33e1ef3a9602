"""Stage 2: judges score answers, and wrong answers planted on purpose."""

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

import numpy as np

from jobs.answer import FATAL
from jobs.evaluation.corrected_gold import read_corrections
from jobs.evaluation.models import Models, cost_of
from jobs.evaluation.plan import KINDS, BenchmarkPlan, JudgePlan, Plan, read_planned
from jobs.evaluation.records import Cell, Judgement
from jobs.evaluation.run_folder import RunFolder, StageFile, judgement_key
from jobs.evaluation.stage_work import Missing, each_at_once, in_work, one_ahead
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

    @property
    def digest(self) -> str:
        """What tells whether a judgement is of this question, reference and answer."""
        held = json.dumps([self.question, self.reference, self.answer])
        return hashlib.sha256(held.encode()).hexdigest()[:16]


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

    def open_file(part: _Part) -> _JudgedFile:
        prompts = JudgePrompts(settings.prompts, part.benchmark.data)
        asked = Judge(chat, prompts, part.kind, max_tokens=judge.max_tokens)
        return _JudgedFile(asked, judge, part)

    async def files() -> AsyncGenerator[_JudgedFile, None]:
        for part in _parts(plan, judge, run):
            if not part.file.finished:
                yield await asyncio.to_thread(open_file, part)

    try:
        await each_at_once(_asks(one_ahead(files())), _ask, in_work(judge.concurrency))
        return chat.name
    finally:
        await chat.close()


def judgements_planned(plan: Plan, run: RunFolder) -> int:
    """Judgements that all judges give in all, of answers and of planted ones.

    Raises:
        DataError: An answer file is not finished, or a file of corrections cannot be used.
    """
    return sum(
        len(part.items()) * judge.repetitions
        for judge in plan.judges
        for part in _parts(plan, judge, run)
    )


def judgement_files(plan: Plan, run: RunFolder) -> list[StageFile[Judgement]]:
    """The files that hold them."""
    return [part.file for judge in plan.judges for part in _parts(plan, judge, run)]


def reopen_judgements(plan: Plan, run: RunFolder, *, failed: bool) -> int:
    """Reopen finished files whose answers or references are others by now.

    Args:
        plan: What is run.
        run: Its folder.
        failed: Reopen those with errors as well.

    Returns:
        Judgements that are to be asked for anew.

    Raises:
        DataError: An answer file is not finished, or a line cannot be read.
    """
    return sum(
        _reopen(part, judge, failed=failed)
        for judge in plan.judges
        for part in _parts(plan, judge, run)
        if part.file.finished
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One file of one judge, and what it is to judge."""

    benchmark: BenchmarkPlan
    kind: JudgeKind
    file: StageFile[Judgement]
    items: Callable[[], list[_Item]]


def _parts(plan: Plan, judge: JudgePlan, run: RunFolder) -> Iterator[_Part]:
    for benchmark in plan.benchmarks:
        references = _corrected(benchmark)
        for kind in kinds_of(benchmark.name):
            for cell in _cells(plan, benchmark):
                name = f"{cell}.{judge.name}.{kind}"
                files = {run.judgements(name): partial(_answers, run, cell)}
                if references:
                    files[run.corrected(name)] = partial(_answers, run, cell, references)
                for file, items in files.items():
                    yield _Part(benchmark=benchmark, kind=kind, file=file, items=items)
            if judge.planted:
                yield _Part(
                    benchmark=benchmark,
                    kind=kind,
                    file=run.planted(f"{benchmark.name}.{judge.name}.{kind}"),
                    items=partial(_planted, benchmark, judge.planted, plan.seed),
                )


def _reopen(part: _Part, judge: JudgePlan, *, failed: bool) -> int:
    items = {item.id: item for item in part.items()}
    order, lines = _order(items, judge), part.file.read()
    good = {
        judgement_key(line)
        for line in lines
        if _is_of(line, items) and (line.error is None or not failed)
    }
    good &= set(order)
    if len(good) < max(len(order), len(lines)):
        part.file.reopen(lambda line: judgement_key(line) in good)
    return len(order) - len(good)


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


def _order(items: Iterable[str], plan: JudgePlan) -> list[tuple[str, int]]:
    return [(item, repetition) for item in items for repetition in range(plan.repetitions)]


def _is_of(line: Judgement, items: Mapping[str, _Item]) -> bool:
    """Whether a judgement is of what is to be judged now; a line without a digest is believed."""
    item = items.get(line.question_id)
    return item is not None and line.digest in {None, item.digest}


class _JudgedFile:
    """A file of judgements, who judges, and what it still lacks."""

    def __init__(self, judge: Judge, plan: JudgePlan, part: _Part) -> None:
        self.judge = judge
        self._file = part.file
        self._items = {item.id: item for item in part.items()}
        self._order = _order(self._items, plan)
        done = {
            judgement_key(line)
            for line in self._file.read()
            if line.error is None and _is_of(line, self._items)
        }
        self._todo = [key for key in self._order if key not in done]
        self._missing = Missing(self._todo, self._finish)

    async def finish_if_whole(self) -> None:
        """There may be nothing to judge, or an earlier stage was killed just before its end."""
        await self._missing.came()

    def to_judge(self) -> Iterator[tuple[_Item, int]]:
        """What is to be judged, and which judging of it that is."""
        return ((self._items[item], repetition) for item, repetition in self._todo)

    async def add(self, line: Judgement) -> None:
        """Write down a judgement."""
        self._file.append(line)
        await self._missing.came(judgement_key(line))

    def _finish(self) -> None:
        self._file.finish(self._order)


async def _asks(
    files: AsyncGenerator[_JudgedFile, None],
) -> AsyncGenerator[tuple[_JudgedFile, _Item, int], None]:
    async with aclosing(files):
        async for file in files:
            await file.finish_if_whole()
            for item, repetition in file.to_judge():
                yield file, item, repetition


async def _ask(asked: tuple[_JudgedFile, _Item, int]) -> None:
    file, item, repetition = asked
    await file.add(await _judged(file.judge, item, repetition))


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
        digest=item.digest,
    )
