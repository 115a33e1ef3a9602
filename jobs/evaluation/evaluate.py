"""An evaluation from plan to report: four stages, the first two by drivers on Ray."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray import ObjectRef
from ray.exceptions import RayTaskError

from jobs.answer import answer_all
from jobs.evaluation.models import LEDGER, open_models
from jobs.evaluation.plan import JudgePlan, ModelPlan, Plan, read_planned
from jobs.evaluation.records import Stage
from jobs.evaluation.run_folder import RunFolder, lines_in
from jobs.judge import judge_all, judgement_files, judgements_planned
from vmem.errors import VmemError
from vmem.llm.ledger import Spent, read_ledger

POLL_S = 2.0
"""Seconds between two looks at how far the drivers are: each reads the ledger whole."""


@contextmanager
def on_ray(address: str | None) -> Iterator[None]:
    """The cluster named, or a small one of this process."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address:
        ray.init(address=address, **options)
    else:
        ray.init(include_dashboard=False, _node_ip_address="127.0.0.1", **options)
    try:
        yield
    finally:
        ray.shutdown()


def run_stage(
    stage: Stage, plan: Plan, path: Path, progress: Callable[[int, Spent], None]
) -> dict[str, str]:
    """Run one driver for each backbone or judge, and tell how far they are.

    A driver's node must reach the run's folder and the benchmarks.

    Args:
        stage: Which.
        plan: What is run.
        path: The run's folder.
        progress: Told of the lines written and of the calls made, now and then.

    Returns:
        By the plan's name, what each server calls its model.

    Raises:
        VmemError: What a driver failed with; the others end first, and nothing of theirs is lost.
    """
    models: Sequence[ModelPlan] = plan.backbones if stage is Stage.ANSWER else plan.judges
    drivers = {
        model.name: _drive.options(num_cpus=1).remote(stage, plan, model, path.resolve())
        for model in models
    }
    waiting: list[ObjectRef[str]] = list(drivers.values())
    while waiting:
        _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=POLL_S)
        progress(*_so_far(stage, plan, RunFolder(path)))
    return {name: _told(driver) for name, driver in drivers.items()}


@ray.remote
def _drive(stage: Stage, plan: Plan, model: ModelPlan, path: Path) -> str:
    return drive(stage, plan, model, path)


def drive(stage: Stage, plan: Plan, model: ModelPlan, path: Path) -> str:
    """Do one backbone's or one judge's part of a stage; returns its server's name for the model.

    Raises:
        VmemError: A benchmark, a system or a prompt cannot be used, or the budget is spent.
    """
    run = RunFolder(path)
    with open_models(run, plan.budget) as models:
        try:
            if stage is Stage.JUDGE and isinstance(model, JudgePlan):
                return asyncio.run(judge_all(plan, model, run, models))
            return asyncio.run(answer_all(plan, model, run, models))
        except BaseExceptionGroup as group:
            raise _first(group) from None


def lines_planned(stage: Stage, plan: Plan, run: RunFolder) -> int:
    """Lines that a stage writes in all; of judgements those of answers that can be judged.

    Raises:
        VmemError: A benchmark or its corrections cannot be read, or answers are not finished.
    """
    if stage is Stage.JUDGE:
        return judgements_planned(plan, run)
    counts = {one.name: len(read_planned(one).questions) for one in plan.benchmarks}
    return sum(counts[cell.benchmark] for cell in plan.cells())


def _so_far(stage: Stage, plan: Plan, run: RunFolder) -> tuple[int, Spent]:
    if stage is Stage.ANSWER:
        paths = [p for cell in plan.cells() for p in run.answers(cell).paths]
    else:
        paths = [p for file in judgement_files(plan, run) for p in file.paths]
    spent = Spent()
    if (run.path / LEDGER).is_file():
        for call in read_ledger(run.path / LEDGER)[0]:
            spent = spent.plus(call)
    return lines_in(paths), spent


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
