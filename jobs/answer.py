"""Stage 1: every system answers every question; a line a question, written as it is answered."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from jobs.evaluation.cell_files import CellFiles
from jobs.evaluation.models import Models, costs_by_role
from jobs.evaluation.plan import ModelPlan, Plan, read_planned
from jobs.evaluation.records import Build, Cell, Record, Timing
from jobs.evaluation.run_folder import RunFolder
from jobs.evaluation.stage_work import each_at_once, in_work, one_ahead, use_cores
from vmem.build import make_parts
from vmem.config import Settings, load_settings
from vmem.config import replace as replace_settings
from vmem.encoders.once import TextsOnce, pictures_once
from vmem.errors import BudgetError, ModelUnusableError, StoreError, VmemError
from vmem.llm.ledger import Call, calls_heard
from vmem.metrics.retrieval import evidence_scores, gold_rounds
from vmem.pipeline import Parts
from vmem.ports import ChatModel, MemorySystem, Oracle, System
from vmem.systems.registry import make_system
from vmem.systems.search_only import SearchOnly
from vmem.types import Answer, Dialogue, Question

FATAL = (BudgetError, StoreError, ModelUnusableError)
"""What ends a stage: no question's own failure."""


async def answer_all(plan: Plan, backbone: ModelPlan, run: RunFolder, models: Models) -> str:
    """Answer all cells of one backbone; what a finished file holds is not asked again.

    Where the backbone is no model, systems search and their answers are empty.

    Returns:
        What the server calls its model.

    Raises:
        VmemError: A benchmark cannot be read, a system not be built, the budget is spent.
    """
    runtime = backbone.settings(load_settings(plan.settings))
    chat = models.make(backbone, runtime) if backbone.answers else None
    use_cores()
    try:
        memories = one_ahead(_memories(plan, backbone, run, runtime, chat))
        at_once = in_work(backbone.concurrency)
        await each_at_once(_questions(memories), _ask, at_once)
        return chat.name if chat else backbone.llm.provider
    finally:
        if chat:
            await chat.close()


def reopen_failed(plan: Plan, run: RunFolder) -> int:
    """Reopen finished files of answers that hold errors, without those lines.

    Returns:
        Questions that are to be asked anew.

    Raises:
        DataError: A line cannot be read.
        StoreError: A file cannot be written.
    """
    return sum(_reopen(run, cell) for cell in plan.cells())


def _reopen(run: RunFolder, cell: Cell) -> int:
    answers, timings = run.answers(cell), run.timings(cell)
    records = answers.read() if answers.finished else []
    failed = {record.question_id for record in records if record.error is not None}
    if failed:  # the answers last: a crash before leaves them finished, and this is done anew
        timings.reopen(lambda line: line.question_id not in failed)
        answers.reopen(lambda record: record.question_id not in failed)
    return len(failed)


def _parts(settings: Settings, made: dict[str, Parts], *, once: bool) -> Parts:
    """Encoders are loaded once, whatever systems share them.

    Where nothing answers, encoding is most of the time, and they share what is encoded as well;
    else each system encodes for itself, so that what its builds take is known.
    """
    without_model = replace_settings(settings, llm={"provider": "none"})
    key = without_model.encoders.model_dump_json() + without_model.prompts.model_dump_json()
    if key not in made:
        parts = make_parts(without_model)
        if once:
            parts = replace(
                parts,
                text_encoder=TextsOnce(parts.text_encoder),
                image_encoder=pictures_once(parts.image_encoder),
            )
        made[key] = parts
    return made[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Memory:
    """A dialogue taken in by a system, and what is to be asked about it."""

    files: CellFiles
    dialogue: Dialogue
    memory: MemorySystem
    todo: Sequence[Question]
    oracle: bool


async def _memories(
    plan: Plan, backbone: ModelPlan, run: RunFolder, runtime: Settings, chat: ChatModel | None
) -> AsyncGenerator[_Memory, None]:
    """Every dialogue that is not done yet, taken in by its system; cell by cell."""
    encoders: dict[str, Parts] = {}
    for benchmark in plan.benchmarks:
        cells = {
            Cell(benchmark=benchmark.name, system=row.name, backbone=backbone.name): row
            for row in plan.rows()
        }
        unfinished = {cell: row for cell, row in cells.items() if not run.answers(cell).finished}
        if not unfinished:
            continue
        read = await asyncio.to_thread(read_planned, benchmark)
        for cell, row in unfinished.items():
            settings = plan.settings_of(row, runtime, benchmark)
            parts = await asyncio.to_thread(_parts, settings, encoders, once=chat is None)
            system = make_system(row, settings, replace(parts, chat=chat))
            if chat is None:
                system = SearchOnly(system=system)
            files = await asyncio.to_thread(CellFiles, run, cell, read)
            async for memory in _built(system, files, oracle=row.oracle):
                yield memory


async def _built(
    system: System, files: CellFiles, *, oracle: bool
) -> AsyncGenerator[_Memory, None]:
    await files.finish_if_whole()
    for dialogue, todo in files.to_ask():
        with calls_heard() as calls:
            memory = await system.build(dialogue)
        await files.add_build(_build(dialogue, memory, calls))
        yield _Memory(files=files, dialogue=dialogue, memory=memory, todo=todo, oracle=oracle)


async def _questions(
    memories: AsyncGenerator[_Memory, None],
) -> AsyncGenerator[tuple[Question, _Memory], None]:
    async with aclosing(memories):
        async for memory in memories:
            for question in memory.todo:
                yield question, memory


async def _ask(asked: tuple[Question, _Memory]) -> None:
    question, about = asked
    record, timing = await _answer(question, about.dialogue, about.memory, oracle=about.oracle)
    await about.files.add(record, timing)


async def _answer(
    question: Question, dialogue: Dialogue, memory: MemorySystem, *, oracle: bool
) -> tuple[Record, Timing]:
    seen = None
    if oracle:
        seen = Oracle(
            reference=question.reference, category=question.category, evidence=question.evidence
        )
    gold = gold_rounds(question, dialogue)
    asked = _asked(question, dialogue, gold)
    started = time.perf_counter()
    with calls_heard() as calls:
        try:
            answer = await memory.answer(question.query, seen)
        except FATAL:
            raise
        except VmemError as error:
            record = replace(asked, error=f"{type(error).__name__}: {error}")
            seconds: Mapping[str, float] = {"failed": time.perf_counter() - started}
        else:
            record = _answered(asked, dialogue, answer, gold)
            waited = sum(call.waited for call in calls)
            seconds = {**answer.seconds, "waited": waited} if calls else answer.seconds
    record = replace(record, cost=costs_by_role(calls))
    return record, Timing(question_id=question.id, seconds=seconds)


def _asked(question: Question, dialogue: Dialogue, gold: frozenset[int]) -> Record:
    image = question.query.image
    return Record(
        question_id=question.id,
        dialogue_id=dialogue.id,
        category=question.category,
        question=question.query.text,
        image=image.id if image else None,
        image_uri=image.uri if image else None,
        reference=question.reference,
        gold_rounds=_ids(sorted(gold), dialogue),
    )


def _answered(asked: Record, dialogue: Dialogue, answer: Answer, gold: frozenset[int]) -> Record:
    found, anchors = answer.retrieval, answer.retrieval.anchors
    # At the unit level an item is a unit: the first k items may be fewer rounds.
    items = [item.position for item in found.ranked]
    ranked = list(dict.fromkeys(items))
    scores = evidence_scores(items, found.context.positions, gold).as_row() if gold else None
    return replace(
        asked,
        case=found.route.case.value,
        answer=answer.text,
        ranked_rounds=_ids(ranked, dialogue),
        context_rounds=_ids(found.context.positions, dialogue),
        dropped_rounds=_ids(found.context.dropped, dialogue),
        context_words=found.context.words,
        context=found.context.text if answer.prompt else "",
        hypo_caption=anchors.hypo_caption,
        keywords=anchors.keywords,
        query_caption=anchors.query_caption,
        notes=anchors.notes,
        anchor_failures=tuple(f"{failure.role}: {failure.error}" for failure in anchors.failures),
        scores=scores,
    )


def _build(dialogue: Dialogue, memory: MemorySystem, calls: Sequence[Call]) -> Build:
    return Build(
        dialogue_id=dialogue.id,
        counts=memory.cost.counts,
        cost=costs_by_role(calls),
        seconds=memory.cost.seconds,
    )


def _ids(positions: Sequence[int], dialogue: Dialogue) -> tuple[str, ...]:
    return tuple(dialogue.rounds[position].id for position in positions)
