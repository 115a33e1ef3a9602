"""What building memories of a whole benchmark would take, from what some of its dialogues took.

A build's calls and tokens grow with the messages that it takes in, so they are measured per message
and multiplied. A step by step build waits for each reply: its hours are those of its calls, one
after another. Beside them stand the paper's figures (Table 4, gpt-4o-mini; Table 8, a 32B model).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from jobs.backbone_speeds import Speed
from jobs.evaluation.manifest import read_manifest
from jobs.evaluation.plan import Plan, part_of, read_whole
from jobs.evaluation.records import Build, Cell, ModelCost
from jobs.evaluation.run_folder import RunFolder
from jobs.report.published import Places, PublishedTable, read_published
from vmem.errors import InputError
from vmem.llm.budget import cost_usd, load_prices
from vmem.systems.rows import SystemRow, read_rows
from vmem.types import Benchmark

TABLES = (4, 8)
"""The paper's tables of costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedBuild:
    """What the paper says that a build took.

    Attributes:
        table: The table's number.
        tokens: Of all calls.
        hours: Of the whole build.
    """

    table: int
    tokens: int
    hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectedBuild:
    """One system's build of a whole benchmark with one backbone.

    Attributes:
        benchmark: The benchmark.
        system: The row's name.
        backbone: The plan's name of the model that was asked.
        dialogues: Dialogues that were built.
        messages: Their messages.
        whole: Messages of the whole benchmark.
        measured: What the calls of those builds took.
        failed_steps: Steps among them that a model failed: they cost less or more than others.
        published: The paper's figures of the system that the row is a kind of, if it has any.
    """

    benchmark: str
    system: str
    backbone: str
    dialogues: int
    messages: int
    whole: int
    measured: ModelCost
    failed_steps: int
    published: tuple[PublishedBuild, ...] = ()

    @property
    def factor(self) -> float:
        """By how much the benchmark is longer than what was built."""
        return self.whole / self.messages

    @property
    def calls(self) -> int:
        """Calls of the whole build."""
        return round(self.measured.calls * self.factor)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of its prompts."""
        return round(self.measured.prompt_tokens * self.factor)

    @property
    def completion_tokens(self) -> int:
        """Tokens of its replies."""
        return round(self.measured.completion_tokens * self.factor)

    @property
    def tokens(self) -> int:
        """Both together."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def hours(self) -> float:
        """Of its calls, one after another, with the backbone that was asked."""
        return self.measured.seconds * self.factor / 3_600

    @property
    def seconds_a_call(self) -> float:
        """Of that backbone, as measured."""
        return self.measured.seconds / max(1, self.measured.calls)

    @property
    def tokens_a_second(self) -> float:
        """Of that backbone, as measured: prompts and replies together."""
        return self.tokens / (3_600 * self.hours) if self.hours else 0.0

    def hours_at(self, speed: Speed) -> float:
        """Of its calls, one after another, with a backbone of that speed."""
        return speed.hours(self.prompt_tokens, self.completion_tokens)

    def usd(self) -> dict[str, float]:
        """By model of the dated price list, what these tokens would cost there.

        Raises:
            ConfigError: The price list cannot be read.
        """
        found = {}
        for model, price in load_prices().items():
            cost = cost_usd(price, self.prompt_tokens, self.completion_tokens)
            if cost is not None and not price.self_hosted:
                found[model] = cost
        return found


def project_builds(run: RunFolder, data: Mapping[str, Path]) -> list[ProjectedBuild]:
    """Every build of a run that asked a model, projected to its whole benchmark.

    Args:
        run: The run; it need not be finished.
        data: Folders of benchmarks, where they are no longer where the run found them.

    Raises:
        InputError: The run has no manifest that can be read, or no build that asked a model.
        VmemError: A benchmark cannot be read.
    """
    try:
        plan = Plan.model_validate(read_manifest(run)["plan"])
    except (KeyError, ValidationError) as error:
        raise InputError(f"{run.path}: the plan in its manifest is not one of this vmem") from error
    rows, tables = read_rows(), read_published()
    found = []
    for benchmark in plan.benchmarks:
        folder = data.get(benchmark.name, benchmark.data)
        whole = read_whole(benchmark.model_copy(update={"data": folder}))
        messages, built = _messages(whole), _messages(part_of(whole, benchmark))
        for cell in plan.cells():
            builds = [build for build in run.builds(cell).read() if build.cost]
            if cell.benchmark == benchmark.name and builds:
                projected = _project(cell, builds, built, sum(messages.values()))
                row = _as_published(rows[cell.system], rows)
                published = tuple(_published(cell.benchmark, row, tables))
                found.append(replace(projected, published=published))
    if not found:
        raise InputError(f"{run.path}: no memory in it was built by a language model")
    return found


def _messages(read: Benchmark) -> dict[str, int]:
    return {d.id: sum(len(round_.turns) for round_ in d.rounds) for d in read.dialogues}


def _project(
    cell: Cell, builds: list[Build], messages: Mapping[str, int], whole: int
) -> ProjectedBuild:
    costs = [cost for build in builds for cost in build.cost.values()]
    return ProjectedBuild(
        benchmark=cell.benchmark,
        system=cell.system,
        backbone=cell.backbone,
        dialogues=len(builds),
        messages=sum(messages[build.dialogue_id] for build in builds),
        whole=whole,
        measured=ModelCost(
            calls=sum(cost.calls for cost in costs),
            failed=sum(cost.failed for cost in costs),
            prompt_tokens=sum(cost.prompt_tokens for cost in costs),
            completion_tokens=sum(cost.completion_tokens for cost in costs),
            seconds=sum(cost.seconds for cost in costs),
        ),
        failed_steps=sum(build.counts.get("steps_failed", 0) for build in builds),
    )


def _as_published(row: SystemRow, rows: Mapping[str, SystemRow]) -> SystemRow:
    """The row of the same kind whose figures the paper has."""
    same = [each for each in rows.values() if each.kind == row.kind and each.stands_for]
    return row if row in same or not same else same[0]


def _published(
    benchmark: str, row: SystemRow, tables: Mapping[int, PublishedTable]
) -> Iterator[PublishedBuild]:
    places = Places(rows={row.name: row})
    for number in TABLES:
        table = tables[number]
        metrics: dict[str, float] = {}
        for line in table.rows:
            about = str(line.get("benchmark") or table.benchmark)
            if line["phase"] != "build" or about != benchmark:
                continue
            for column in table.columns:
                if places.system(number, line, column) == row.name:
                    metrics[line["metric"]] = table.value(line, column)
        if metrics:
            yield PublishedBuild(
                table=number, tokens=int(metrics["tokens"]), hours=metrics["seconds"] / 3_600
            )
