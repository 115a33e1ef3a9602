"""What an evaluation runs: benchmarks × systems × backbones × judges, from one YAML file."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from jobs.evaluation.records import Cell
from jobs.evaluation.served import ServePlan
from vmem.config import (
    CONFIGS,
    ModelSettings,
    Settings,
    first_fault,
    load_settings,
    read_mapping,
    secret_variable,
    settings_file,
)
from vmem.config import replace as replace_settings
from vmem.datasets import EXCLUDED, READERS, read_benchmark
from vmem.datasets.sample import SAMPLE, read_sample
from vmem.errors import ConfigError, InputError
from vmem.metrics.judge import MAX_TOKENS
from vmem.prompts.judge import JudgeKind
from vmem.systems.registry import SEARCHING
from vmem.systems.rows import SystemRow, lay_over, read_rows, row_named, row_settings
from vmem.types import Benchmark, Question, Round

NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
"""No point: points part the names of files."""
KINDS: Mapping[str, tuple[JudgeKind, ...]] = {"locomo": ("locomo", "binary")}
"""What a judge is asked for on each benchmark; on all others `gallery`."""
Changes = Mapping[str, Mapping[str, Any]]
"""Values that differ, by section of the settings."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BenchmarkPlan(_Section):
    """A benchmark, or a part of it.

    Attributes:
        name: `locomo`, `mem-gallery`, `photobench`, or `sample`, which comes with vmem.
        data: Its folder; a relative one starts at the working folder. `sample` needs none.
        dialogues: Only these; empty takes all.
        sessions: Of each dialogue only so many, the first ones, and the questions all of whose
            evidence lies in them; None takes all.
        questions: At most so many of each dialogue, the first ones; None takes all.
        corrections: A file of corrected gold answers, as `vmem.datasets.corrections` describes
            it: judges score the questions that it names by both references.
        changes: Values that systems have otherwise on it, by section; a row's own changes, which
            are what it is about, go before them.
    """

    name: str
    data: Path | None = None
    dialogues: tuple[str, ...] = ()
    sessions: int | None = Field(default=None, ge=1)
    questions: int | None = Field(default=None, ge=1)
    corrections: Path | None = None
    changes: Changes = Field(default_factory=dict)


class ModelPlan(_Section):
    """A language model by a name of the plan's.

    Attributes:
        name: Its name in files and tables.
        llm: Where it is; never its key. As a backbone, the provider `none` answers nothing: systems
            retrieve, and the evidence alone is scored.
        api_key_variable: The variable of the environment that holds its key.
        concurrency: Calls at once.
        self_hosted: It runs on one's own machines, so that its calls cost nothing.
        serve: The job serves it by vLLM: then `llm` has the provider `openai`, the model's name
            in requests, and no address.
    """

    name: str = Field(pattern=NAME)
    llm: ModelSettings
    api_key_variable: str = "VMEM_LLM__API_KEY"
    concurrency: int = Field(default=8, ge=1)
    self_hosted: bool = False
    serve: ServePlan | None = None

    @model_validator(mode="after")
    def _served_here_or_elsewhere(self) -> Self:
        if self.serve and (self.llm.provider != "openai" or self.llm.base_url):
            raise ValueError("what the job serves has llm.provider openai and no llm.base_url")
        if self.serve and not self.llm.model:
            raise ValueError("what the job serves needs a name for requests in llm.model")
        return self

    @property
    def answers(self) -> bool:
        """Whether there is a model at all."""
        return self.llm.provider != "none"

    def settings(self, base: Settings) -> Settings:
        """Settings with this model, and its key; the job itself gives one to what it serves."""
        key = self.llm.api_key if self.serve else secret_variable(self.api_key_variable)
        return replace_settings(base, llm={**dict(self.llm), "api_key": key})


class JudgePlan(ModelPlan):
    """A judge.

    Attributes:
        max_tokens: Length of its replies at most.
        repetitions: Times that each answer is judged.
        planted: Questions of each benchmark for which it judges planted wrong answers as well.
    """

    max_tokens: int = Field(default=MAX_TOKENS, ge=8)
    repetitions: int = Field(default=1, ge=1)
    planted: int = Field(default=0, ge=0)


class BudgetPlan(_Section):
    """What all calls of a run may spend together; None is no cap."""

    max_tokens: int | None = Field(default=None, ge=0)
    max_usd: float | None = Field(default=None, ge=0)
    max_calls: int | None = Field(default=None, ge=0)


class Plan(_Section):
    """An evaluation.

    Attributes:
        name: Its name.
        settings: Named settings that systems run on: encoders, lengths, prompts.
        changes: Values that all systems have otherwise, by section.
        benchmarks: What is asked.
        systems: Rows of `configs/systems/`, by name.
        left_out: Rows that are not run, by name, each with the reason that tables give.
        backbones: What answers.
        judges: What judges.
        budget: What may be spent.
        seed: Of resamples and planted answers.
        draws: Resamples and sign flips of each test.
    """

    name: str = Field(pattern=NAME)
    settings: str = "embedded"
    changes: Changes = Field(default_factory=dict)
    benchmarks: tuple[BenchmarkPlan, ...] = Field(min_length=1)
    systems: tuple[str, ...] = Field(min_length=1)
    left_out: Mapping[str, str] = Field(default_factory=dict)
    backbones: tuple[ModelPlan, ...] = Field(min_length=1)
    judges: tuple[JudgePlan, ...] = ()
    budget: BudgetPlan = BudgetPlan()
    seed: int = 20_260_301
    draws: int = Field(default=10_000, ge=100)

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        for what in ("benchmarks", "backbones", "judges"):
            names = [part.name for part in getattr(self, what)]
            if len(set(names)) < len(names):
                raise ValueError(f"two {what} have one name")
        if len(set(self.systems)) < len(self.systems):
            raise ValueError("a system is named twice")
        if both := sorted(self.left_out.keys() & set(self.systems)):
            raise ValueError(f"system {both[0]!r} is both run and left out")
        if mute := [judge.name for judge in self.judges if not judge.answers]:
            raise ValueError(f"judge {mute[0]!r} is no model: its llm.provider is none")
        if self.judges and not any(backbone.answers for backbone in self.backbones):
            raise ValueError("judges have nothing to judge: every backbone's llm.provider is none")
        for model in (*self.backbones, *self.judges):
            if model.llm.api_key.get_secret_value():
                raise ValueError(f"{model.name}: keys are read from the environment only")
        return self

    def cells(self, backbone: str | None = None) -> list[Cell]:
        """All files of answers, or those of one backbone, in the plan's order."""
        return [
            Cell(benchmark=benchmark.name, system=system, backbone=model.name)
            for model in self.backbones
            if backbone in (None, model.name)
            for benchmark in self.benchmarks
            for system in self.systems
        ]

    def rows(self) -> list[SystemRow]:
        """Its systems.

        Raises:
            ConfigError: One is unknown, or needs a model that a backbone of the plan is not.
        """
        known = read_rows()
        rows = [row_named(name, known) for name in self.systems]
        for name in self.left_out:
            row_named(name, known)
        mute = [backbone.name for backbone in self.backbones if not backbone.answers]
        needy = [row.name for row in rows if row.kind not in SEARCHING]
        if mute and needy:
            raise ConfigError(
                f"system {needy[0]!r} needs a language model, and backbone {mute[0]!r} is none:"
                " take one of them out of the plan"
            )
        return rows

    def settings_of(
        self, row: SystemRow, runtime: Settings, benchmark: BenchmarkPlan | None = None
    ) -> Settings:
        """The settings under which a system runs.

        Args:
            row: The system.
            runtime: The run's settings.
            benchmark: Where it runs; None leaves out what a benchmark changes.

        Raises:
            ConfigError: A change names no setting, or does not fit.
        """
        settings = row_settings(row, runtime)
        if benchmark and benchmark.changes:
            settings = lay_over(lay_over(settings, benchmark.changes), row.changes)
        return lay_over(settings, self.changes)

    def dump(self) -> dict[str, Any]:
        """As plain values; keys of servers are not among them."""
        no_key = {"__all__": {"llm": {"api_key"}}}
        return self.model_dump(mode="json", exclude={"backbones": no_key, "judges": no_key})


def load_plan(source: str | Path, data: Mapping[str, Path], systems: Sequence[str] = ()) -> Plan:
    """Read a plan.

    Args:
        source: A YAML file, or the name of one in `configs/benchmarks/`.
        data: Folders of benchmarks, which the file may leave open.
        systems: Rows of `configs/systems/` that take the place of the file's; none keeps those.

    Raises:
        ConfigError: The file is missing, a key is unknown, a value does not fit, a row is unknown.
    """
    path = settings_file(source, CONFIGS / "benchmarks")
    values = {"name": path.stem, **read_mapping(path)}
    if systems:
        known = read_rows()
        values["systems"] = [row_named(name, known).name for name in dict.fromkeys(systems)]
        values["left_out"] = {}  # nobody asked for those rows
    try:
        plan = Plan(**values)
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_fault(error)}") from error
    if unknown := sorted(data.keys() - {benchmark.name for benchmark in plan.benchmarks}):
        raise ConfigError(f"--data {unknown[0]}: the plan has no benchmark of that name")
    placed = tuple(
        one.model_copy(update={"data": data.get(one.name, one.data)}) for one in plan.benchmarks
    )
    plan = plan.model_copy(update={"benchmarks": placed})
    try:
        _check_settings(plan)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return plan


def _check_settings(plan: Plan) -> None:
    runtime = load_settings(plan.settings)
    for row in plan.rows():
        for benchmark in plan.benchmarks:
            plan.settings_of(row, runtime, benchmark)


def read_planned(plan: BenchmarkPlan) -> Benchmark:
    """A benchmark, or the part of it that is asked, without the categories that are not scored.

    Raises:
        ConfigError: It has no folder.
        DataError, InputError: It cannot be read, or a dialogue is unknown.
    """
    return part_of(read_whole(plan), plan)


def read_whole(plan: BenchmarkPlan) -> Benchmark:
    """A benchmark with all its questions, whatever part of it is asked; errors as above."""
    if plan.name == "sample":
        return read_sample()
    if plan.name not in READERS:
        raise ConfigError(
            f"no benchmark is named {plan.name!r}; known: sample, {', '.join(READERS)}"
        )
    if plan.data is None:
        raise ConfigError(f"benchmark {plan.name} has no folder: give --data {plan.name}=FOLDER")
    return read_benchmark(plan.name, plan.data)


def data_digest(plan: BenchmarkPlan) -> str:
    """SHA-256 over the names and contents of a benchmark's JSON files; pictures are not read."""
    folder = SAMPLE if plan.name == "sample" else plan.data or Path()
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.json*")) if folder.is_dir() else [folder]:
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def part_of(read: Benchmark, plan: BenchmarkPlan) -> Benchmark:
    """Of a whole benchmark what is asked.

    Raises:
        InputError: A dialogue is unknown.
    """
    known = {dialogue.id for dialogue in read.dialogues}
    if unknown := sorted(set(plan.dialogues) - known):
        raise InputError(f"{plan.name} has no dialogue {unknown[0]!r}; it has {sorted(known)}")
    kept = set(plan.dialogues) or known
    if plan.sessions is not None:
        read = _first_sessions(read, plan.sessions)
    asked: dict[str, list[Question]] = {}
    for question in read.questions:
        if question.dialogue_id in kept and question.category not in EXCLUDED:
            asked.setdefault(question.dialogue_id, []).append(question)
    return replace(
        read,
        dialogues=tuple(d for d in read.dialogues if d.id in asked),
        questions=tuple(q for questions in asked.values() for q in questions[: plan.questions]),
    )


def _first_sessions(read: Benchmark, most: int) -> Benchmark:
    """The beginnings of dialogues, and what can be answered from them."""
    dialogues = [replace(d, rounds=_begun(d.rounds, most)) for d in read.dialogues]
    ids = {d.id: {id_ for round_ in d.rounds for id_ in round_.source_ids} for d in dialogues}
    questions = [q for q in read.questions if q.evidence and q.evidence <= ids[q.dialogue_id]]
    return replace(read, dialogues=tuple(dialogues), questions=tuple(questions))


def _begun(rounds: Sequence[Round], most: int) -> tuple[Round, ...]:
    first = list(dict.fromkeys(round_.session for round_ in rounds))[:most]
    return tuple(round_ for round_ in rounds if round_.session in first)
