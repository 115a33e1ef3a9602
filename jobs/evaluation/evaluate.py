"""An evaluation from plan to report: four stages, the first two by drivers on Ray."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
import uvloop
from ray import ObjectRef
from ray.exceptions import RayTaskError
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_fixed

from jobs.answer import answer_all
from jobs.evaluation.models import open_models, reached
from jobs.evaluation.plan import JudgePlan, ModelPlan, Plan, read_planned
from jobs.evaluation.progress import Progress, SoFar
from jobs.evaluation.records import Stage
from jobs.evaluation.run_folder import RunFolder, StageFile
from jobs.judge import judge_all, judgement_files, judgements_planned
from serve.loopback import loopback_options
from vmem.build import make_chat
from vmem.config import load_settings
from vmem.errors import ModelUnavailableError, VmemError

POLL_S = 1.0
"""Seconds between two looks at how far the drivers are."""
GRACE_S = 20.0
"""Seconds in which drivers that are to stop write down what they were at."""
ORPHAN_S = 60.0
"""Seconds in which a driver whose command was killed must have ended."""
CHECKS, CHECK_PAUSE_S = 4, 3.0
"""Times that a server is asked whether it is there, and the seconds between them."""


@contextmanager
def on_ray(address: str | None) -> Iterator[None]:
    """The cluster named, or a small one of this process."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address:
        ray.init(address=address, **options)
    else:
        ray.init(**loopback_options(), **options)
    try:
        yield
    finally:
        ray.shutdown()


def run_stage(
    stage: Stage, plan: Plan, path: Path, progress: Callable[[SoFar], None]
) -> dict[str, str]:
    """Run one driver for each backbone or judge, and tell how far they are.

    A driver's node must reach the run's folder and the benchmarks. Drivers do not outlive an
    interruption: they write down what they were at, and end.

    Args:
        stage: Which.
        plan: What is run.
        path: The run's folder.
        progress: Told how far they are, now and then.

    Returns:
        By the plan's name, what each server calls its model.

    Raises:
        VmemError: What a driver failed with; the others end first, and nothing of theirs is lost.
    """
    models: Sequence[ModelPlan] = plan.backbones if stage is Stage.ANSWER else plan.judges
    run = RunFolder(path)
    seen = Progress(run, _files(stage, plan, run))
    progress(seen.look())
    drivers = {
        model.name: _drive.options(**_resources(model)).remote(stage, plan, model, path.resolve())
        for model in models
    }
    waiting: list[ObjectRef[str]] = list(drivers.values())
    try:
        while waiting:
            _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=POLL_S)
            progress(seen.look())
    except BaseException:
        _stop(waiting)
        progress(seen.look())
        raise
    return {name: _told(driver) for name, driver in drivers.items()}


def _stop(drivers: Sequence["ObjectRef[str]"]) -> None:
    for driver in drivers:
        ray.cancel(driver, force=False)
    _, left = ray.wait(list(drivers), num_returns=len(drivers), timeout=GRACE_S)
    for driver in left:
        ray.cancel(driver, force=True)


def _resources(model: ModelPlan) -> dict[str, float]:
    """What a driver takes of its node: a model that it serves runs there, on its GPUs."""
    return {"num_cpus": 1, "num_gpus": model.serve.gpus if model.serve else 0}


@ray.remote
def _drive(stage: Stage, plan: Plan, model: ModelPlan, path: Path) -> str:
    return drive(stage, plan, model, path)


def drive(stage: Stage, plan: Plan, model: ModelPlan, path: Path) -> str:
    """Do one backbone's or one judge's part of a stage; returns its server's name for the model.

    Raises:
        VmemError: A benchmark, a system or a prompt cannot be used, the budget is spent, or a
            model cannot be served.
    """
    run = RunFolder(path)
    if model.serve and _is_whole(stage, plan, model, run):
        return str(model.llm.model)  # a server that takes minutes to start would not be asked
    with (
        run.held(f"{stage}.{model.name}", ORPHAN_S),
        open_models(run, plan.budget) as models,
        reached(model, run) as (asked, server),
    ):
        if stage is Stage.JUDGE and isinstance(asked, JudgePlan):
            work = judge_all(plan, asked, run, models)
        else:
            work = answer_all(plan, asked, run, models)
        try:
            return uvloop.run(server.watched(work) if server else work)
        except BaseExceptionGroup as group:
            raise _first(group) from None


def is_whole(stage: Stage, plan: Plan, run: RunFolder) -> bool:
    """Whether nothing of a stage is left to do for any backbone or judge."""
    models: Sequence[ModelPlan] = plan.backbones if stage is Stage.ANSWER else plan.judges
    return all(_is_whole(stage, plan, model, run) for model in models)


def _is_whole(stage: Stage, plan: Plan, model: ModelPlan, run: RunFolder) -> bool:
    if stage is Stage.ANSWER:
        return all(run.answers(cell).finished for cell in plan.cells(model.name))
    alone = plan.model_copy(update={"judges": (model,)})
    return all(file.finished for file in judgement_files(alone, run))


def lines_planned(stage: Stage, plan: Plan, run: RunFolder) -> int:
    """Lines that a stage writes in all; of judgements those of answers that can be judged.

    Raises:
        VmemError: A benchmark or its corrections cannot be read, or answers are not finished.
    """
    if stage is Stage.JUDGE:
        return judgements_planned(plan, run)
    counts = {one.name: len(read_planned(one).questions) for one in plan.benchmarks}
    return sum(counts[cell.benchmark] for cell in plan.cells())


def _files(stage: Stage, plan: Plan, run: RunFolder) -> Sequence[StageFile[Any]]:
    if stage is Stage.JUDGE:
        return judgement_files(plan, run)
    return [run.answers(cell) for cell in plan.cells()]


def check_models(stages: Sequence[Stage], plan: Plan, path: Path) -> None:
    """Find out that every server that is needed answers, before one of them is asked for hours.

    Args:
        stages: Those that are to be run.
        plan: What is run.
        path: The run's folder; servers of which all is there already are not needed.

    Raises:
        ModelError: One of them does not answer, or rejects the key.
    """
    run = RunFolder(path)
    of_stage: dict[Stage, Sequence[ModelPlan]] = {
        Stage.ANSWER: plan.backbones,
        Stage.JUDGE: plan.judges,
    }
    checks = [
        _check.remote(model, plan.settings)
        for stage, models in of_stage.items()
        for model in models
        if stage in stages and model.llm.base_url and not _is_whole(stage, plan, model, run)
    ]
    for check in checks:
        _told(check)


@ray.remote(num_cpus=0)
def _check(model: ModelPlan, settings: str) -> str:
    return asyncio.run(_name_checked(model, settings))


async def _name_checked(model: ModelPlan, settings: str) -> str:
    chat = make_chat(model.settings(load_settings(settings)))
    if chat is None:
        return ""
    trying = AsyncRetrying(
        retry=retry_if_exception_type(ModelUnavailableError),
        stop=stop_after_attempt(CHECKS),
        wait=wait_fixed(CHECK_PAUSE_S),
        reraise=True,
    )
    try:
        await trying(chat.check)
        return chat.name
    finally:
        await chat.close()


def _told(driver: "ObjectRef[str]") -> str:
    try:
        return str(ray.get(driver))
    except RayTaskError as error:
        if isinstance(error.cause, VmemError):
            raise error.cause from None
        raise


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What went wrong first among tasks that ended together."""
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
