"""Stage 1: every system answers every question; a line a question, written as it is answered."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from jobs.evaluation.models import Models, costs_by_role
from jobs.evaluation.plan import ModelPlan, Plan, read_planned
from jobs.evaluation.records import Build, Cell, Record, Timing
from jobs.evaluation.run_folder import RunFolder
from vmem.build import make_parts
from vmem.config import Settings, load_settings
from vmem.config import replace as replace_settings
from vmem.encoders.once import TextsOnce, pictures_once
from vmem.errors import BudgetError, ModelUnusableError, StoreError, VmemError
from vmem.llm.ledger import Call, calls_heard
from vmem.metrics.retrieval import evidence_scores, gold_rounds
from vmem.pipeline import Parts
from vmem.ports import MemorySystem, Oracle
from vmem.systems.registry import make_system
from vmem.systems.rows import SystemRow
from vmem.systems.search_only import SearchOnly
from vmem.types import Answer, Benchmark, Dialogue, Question

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
    encoders: dict[str, Parts] = {}
    chat = models.make(backbone, runtime) if backbone.answers else None
    try:
        for benchmark in plan.benchmarks:
            read: Benchmark | None = None
            for row in plan.rows():
                cell = Cell(benchmark=benchmark.name, system=row.name, backbone=backbone.name)
                if run.answers(cell).finished:
                    continue
                read = read or read_planned(benchmark)
                settings = plan.settings_of(row, runtime, benchmark)
                parts = replace(_parts(settings, encoders, once=chat is None), chat=chat)
                await _answer_cell(run, cell, read, row, settings, parts, backbone.concurrency)
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


async def _answer_cell(
    run: RunFolder,
    cell: Cell,
    benchmark: Benchmark,
    row: SystemRow,
    settings: Settings,
    parts: Parts,
    concurrency: int,
) -> None:
    answers, timings, builds = run.answers(cell), run.timings(cell), run.builds(cell)
    done = {record.question_id for record in answers.read() if record.error is None}
    timed = {timing.question_id for timing in timings.read()}
    built = {build.dialogue_id for build in builds.read()}
    system = make_system(row, settings, parts)
    if parts.chat is None:
        system = SearchOnly(system=system)
    places = asyncio.Semaphore(concurrency)
    for dialogue in benchmark.dialogues:
        asked = [q for q in benchmark.questions if q.dialogue_id == dialogue.id]
        todo = [q for q in asked if q.id not in done or q.id not in timed]
        if not todo and dialogue.id in built:
            continue
        with calls_heard() as calls:
            memory = await system.build(dialogue)
        if dialogue.id not in built:
            builds.append(_build(dialogue, memory, calls))

        async def ask(question: Question, dialogue: Dialogue, memory: MemorySystem) -> None:
            async with places:
                record, timing = await _answer(question, dialogue, memory, oracle=row.oracle)
            timings.append(timing)
            answers.append(record)

        async with asyncio.TaskGroup() as tasks:
            for question in todo:
                tasks.create_task(ask(question, dialogue, memory))
    ids = [question.id for question in benchmark.questions]
    timings.finish(ids)
    builds.finish([dialogue.id for dialogue in benchmark.dialogues])
    answers.finish(ids)


async def _answer(
    question: Question, dialogue: Dialogue, memory: MemorySystem, *, oracle: bool
) -> tuple[Record, Timing]:
    seen = None
    if oracle:
        seen = Oracle(
            reference=question.reference, category=question.category, evidence=question.evidence
        )
    started = time.perf_counter()
    with calls_heard() as calls:
        try:
            answer = await memory.answer(question.query, seen)
        except FATAL:
            raise
        except VmemError as error:
            record = replace(_asked(question, dialogue), error=f"{type(error).__name__}: {error}")
            seconds: Mapping[str, float] = {"failed": time.perf_counter() - started}
        else:
            record = _answered(question, dialogue, answer)
            seconds = answer.seconds
    record = replace(record, cost=costs_by_role(calls))
    return record, Timing(question_id=question.id, seconds=seconds)


def _asked(question: Question, dialogue: Dialogue) -> Record:
    image = question.query.image
    gold = sorted(gold_rounds(question, dialogue))
    return Record(
        question_id=question.id,
        dialogue_id=dialogue.id,
        category=question.category,
        question=question.query.text,
        image=image.id if image else None,
        image_uri=image.uri if image else None,
        reference=question.reference,
        gold_rounds=_ids(gold, dialogue),
    )


def _answered(question: Question, dialogue: Dialogue, answer: Answer) -> Record:
    found, anchors = answer.retrieval, answer.retrieval.anchors
    # At the unit level an item is a unit: the first k items may be fewer rounds.
    items = [item.position for item in found.ranked]
    ranked = list(dict.fromkeys(items))
    gold = gold_rounds(question, dialogue)
    scores = evidence_scores(items, found.context.positions, gold).as_row() if gold else None
    return replace(
        _asked(question, dialogue),
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
