"""Chooses the fusion weights of `configs/tuned.yaml`, and says what they gain on unseen dialogues.

Weights are chosen per case by mean recall@12, each benchmark counting alike. For an honest figure
every dialogue is also scored with weights chosen on all the others. No language model is used.

    python -m jobs.tune --data locomo=DIR --data mem-gallery=DIR --data photobench=DIR
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.progress import track
from rich.table import Table

from jobs.retrieval import evaluate_memory
from vmem.build import hot_memory, make_parts
from vmem.config import Settings, load_settings
from vmem.config import replace as replace_settings
from vmem.datasets import read_benchmark
from vmem.metrics.significance import bootstrap_mean
from vmem.pipeline import Parts
from vmem.ports import SearchableMemory, TextEncoder, Vectors
from vmem.routing import route_query
from vmem.show import console, errors
from vmem.types import Case, Dialogue, Question, Signal

STEP = 0.1
METRIC = "recall@12"

Weights = tuple[float, ...]
"""One weight a signal, in the order of the case's signals; they add up to 1."""


@dataclass(slots=True)
class Remembering:
    """A text encoder that encodes each single text once: only weights change between trials."""

    encoder: TextEncoder
    known: dict[str, Vectors] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As the encoder's."""
        return self.encoder.name

    @property
    def width(self) -> int:
        """As the encoder's."""
        return self.encoder.width

    @property
    def max_tokens(self) -> int:
        """As the encoder's."""
        return self.encoder.max_tokens

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """As the encoder's."""
        return self.encoder.count_tokens(texts)

    def encode(self, texts: Sequence[str]) -> Vectors:
        """As the encoder's; a list of one text is remembered."""
        if len(texts) != 1:
            return self.encoder.encode(texts)
        if texts[0] not in self.known:
            self.known[texts[0]] = self.encoder.encode(texts)
        return self.known[texts[0]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The questions of one case about one dialogue, with the memory they search."""

    benchmark: str
    dialogue: Dialogue
    memory: SearchableMemory
    questions: tuple[Question, ...]


def main(
    data: Annotated[list[str], typer.Option("--data", help="NAME=FOLDER, once a benchmark.")],
    settings: Annotated[str, typer.Option("--settings")] = "tuned",
) -> None:
    """Choose weights per case and report them with their gain on unseen dialogues."""
    tuned = replace_settings(load_settings(settings), llm={"provider": "none"})
    parts = make_parts(tuned)
    parts = replace(parts, text_encoder=Remembering(parts.text_encoder))
    by_case = _parts_by_case(data, tuned, parts)
    table = Table(title=f"{METRIC} by case; weights chosen on all, and left out by dialogue")
    for column in ("case", "benchmark", "asked", "weights", "as set", "chosen", "left out", "gain"):
        table.add_column(column)
    for case, held in sorted(by_case.items()):
        _tune_case(case, held, tuned, parts, table)
    console.print(table)


def _parts_by_case(data: Sequence[str], settings: Settings, parts: Parts) -> dict[Case, list[Part]]:
    by_case: dict[Case, list[Part]] = defaultdict(list)
    for item in data:
        name, _, folder = item.partition("=")
        benchmark = read_benchmark(name, Path(folder))
        for dialogue in track(benchmark.dialogues, description=name, console=errors):
            memory = hot_memory(dialogue, settings, parts)
            asked: dict[Case, list[Question]] = defaultdict(list)
            for question in benchmark.questions:
                mine = question.dialogue_id == dialogue.id and question.evidence
                if mine and question.category != "adversarial":
                    case = route_query(question.query, settings.retrieval).case
                    asked[case].append(question)
            for case, questions in asked.items():
                part = Part(
                    benchmark=name, dialogue=dialogue, memory=memory, questions=tuple(questions)
                )
                by_case[case].append(part)
    return by_case


def _tune_case(
    case: Case, held: Sequence[Part], settings: Settings, parts: Parts, table: Table
) -> None:
    signals = settings.retrieval.signals[case]
    set_weights = settings.retrieval.fusion.weights.get(case, {})
    as_set = tuple(set_weights.get(signal, 1.0) for signal in signals)
    grid = [as_set, *_simplex(len(signals))]
    scores = {
        weights: [_scores(part, case, signals, weights, settings, parts) for part in held]
        for weights in track(grid, description=case.value, console=errors)
    }
    best = max(grid, key=lambda weights: _objective(held, scores[weights], None))
    chosen = [
        max(grid, key=lambda weights: _objective(held, scores[weights], left_out))
        for left_out in range(len(held))
    ]
    for name in sorted({part.benchmark for part in held}):
        mine = [index for index, part in enumerate(held) if part.benchmark == name]
        before = np.concatenate([scores[as_set][i] for i in mine])
        after = np.concatenate([scores[best][i] for i in mine])
        unseen = np.concatenate([scores[chosen[i]][i] for i in mine])
        gain = bootstrap_mean(unseen - before, np.random.default_rng(0))
        table.add_row(
            case.value,
            name,
            str(len(before)),
            ", ".join(f"{s.value} {w:.1f}" for s, w in zip(signals, best, strict=True)),
            f"{before.mean():.3f}",
            f"{after.mean():.3f}",
            f"{unseen.mean():.3f}",
            f"{gain.mean:+.3f} \\[{gain.low:+.3f}, {gain.high:+.3f}]",
        )


def _simplex(size: int) -> Iterator[Weights]:
    """All weights in steps of `STEP` that add up to 1."""
    steps = round(1 / STEP)
    for shares in itertools.product(range(steps + 1), repeat=size):
        if sum(shares) == steps:
            yield tuple(share * STEP for share in shares)


def _scores(
    part: Part,
    case: Case,
    signals: Sequence[Signal],
    weights: Weights,
    settings: Settings,
    parts: Parts,
) -> np.ndarray:
    by_case = {**settings.retrieval.fusion.weights, case: dict(zip(signals, weights, strict=True))}
    fusion = settings.retrieval.fusion.model_copy(update={"weights": by_case})
    tried = replace_settings(settings, retrieval={"fusion": fusion})
    outcomes = evaluate_memory(part.memory, part.dialogue, part.questions, tried, parts)
    return np.array([outcome.scores[METRIC] for outcome in outcomes if outcome.scores])


def _objective(held: Sequence[Part], scores: Sequence[np.ndarray], left_out: int | None) -> float:
    """Mean over benchmarks of the mean over questions, one dialogue apart."""
    by_benchmark = defaultdict(list)
    for index, (part, values) in enumerate(zip(held, scores, strict=True)):
        if index != left_out:
            by_benchmark[part.benchmark].extend(values.tolist())
    return float(np.mean([np.mean(values) for values in by_benchmark.values()]))


if __name__ == "__main__":
    typer.run(main)
