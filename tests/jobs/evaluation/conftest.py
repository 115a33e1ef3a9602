"""Small run folders made by hand, so that every figure can be worked out on paper."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.evaluation.records import Build, Cell, Judgement, ModelCost, Record
from jobs.evaluation.run_folder import RunFolder

BENCHMARK, SYSTEM, BACKBONE, JUDGE = "mem-gallery", "v-mem", "small", "strict"
FREE = ModelCost(calls=0, failed=0, prompt_tokens=0, completion_tokens=0, seconds=0.0)


def _cost(prompt: int, completion: int, seconds: float) -> ModelCost:
    return ModelCost(
        calls=1, failed=0, prompt_tokens=prompt, completion_tokens=completion, seconds=seconds
    )


class MadeRun:
    """A run folder, and the manifest that goes with what was put into it."""

    def __init__(self, path: Path) -> None:
        self.folder = RunFolder(path)
        self.systems: list[str] = []
        self.benchmarks: dict[str, int] = {}
        self.judges: list[str] = []

    @staticmethod
    def record(number: int, **changes: Any) -> Record:
        """A question answered as its reference says: two dialogues, its gold round in context."""
        record = Record(
            question_id=f"D{number % 2}#{number}",
            dialogue_id=f"D{number % 2}",
            category="FR",
            question="Where was it?",
            reference="in the red box",
            gold_rounds=("r1",),
            case="text->text",
            answer="in the red box",
            ranked_rounds=("r1", "r2"),
            context_rounds=("r1", "r2"),
            scores={"recall@12": 1.0, "recall+neighbours": 1.0, "mrr": 1.0},
            cost={"answer": _cost(100, 10, 0.5)},
        )
        return replace(record, **changes)

    @staticmethod
    def judgement(record: Record, score: float | None, **changes: Any) -> Judgement:
        """What a judge says of a record's answer; no score is a failure."""
        judgement = Judgement(
            question_id=record.question_id,
            repetition=0,
            level=score,
            score=score,
            reason="",
            error=None if score is not None else "ModelFormatError: no usable score",
            asks=1,
            cost=_cost(50, 5, 0.1),
        )
        return replace(judgement, **changes)

    def add(
        self,
        records: Sequence[Record],
        judgements: Mapping[str, Sequence[Judgement]] | None = None,
        *,
        system: str = SYSTEM,
        benchmark: str = BENCHMARK,
        backbone: str = BACKBONE,
        expected: int | None = None,
        build_seconds: Mapping[str, float] | None = None,
        build_counts: Mapping[str, int] | None = None,
    ) -> None:
        """Put a cell into the folder; judgements by `JUDGE.KIND`."""
        cell = Cell(benchmark=benchmark, system=system, backbone=backbone)
        file = self.folder.answers(cell)
        for record in records:
            file.append(record)
        file.finish([record.question_id for record in records])
        dialogues = sorted({record.dialogue_id for record in records})
        builds = self.folder.builds(cell)
        for dialogue in dialogues:
            builds.append(
                Build(
                    dialogue_id=dialogue,
                    counts=build_counts or {"rounds": 3},
                    cost={},
                    seconds=build_seconds or {},
                )
            )
        builds.finish(dialogues)
        for name, lines in (judgements or {}).items():
            marked = self.folder.judgements(f"{cell}.{name}")
            for line in lines:
                marked.append(line)
            marked.finish([(line.question_id, line.repetition) for line in lines])
            judge = name.partition(".")[0]
            self.judges += [judge] if judge not in self.judges else []
        self.systems += [system] if system not in self.systems else []
        asked = sum(record.category != "adversarial" for record in records)
        self.benchmarks[benchmark] = expected or asked

    def manifest(self, **more: Any) -> dict[str, Any]:
        """What stage 3 reads of a manifest."""
        return {
            "plan": {
                "name": "made",
                "settings": "embedded",
                "benchmarks": [{"name": name} for name in self.benchmarks],
                "systems": self.systems,
                "backbones": [{"name": BACKBONE}],
                "judges": [{"name": name} for name in self.judges],
            },
            "models": {BACKBONE: "small-model-1", **dict.fromkeys(self.judges, "judge-model-1")},
            "prompts": {"judges": {"mem-gallery.gallery": {"source": "ours", "sha256": "ab" * 32}}},
            "data": dict.fromkeys(self.benchmarks, "cd" * 32),
            "benchmarks": {
                name: {"dialogues": 2, "questions": count, "categories": {"FR": count}}
                for name, count in self.benchmarks.items()
            },
            "started": "now",
            **more,
        }


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[[str], MadeRun]:
    """Makes an empty run folder of a name."""
    return lambda name: MadeRun(tmp_path / name)


@pytest.fixture
def run(make_run: Callable[[str], MadeRun]) -> MadeRun:
    """An empty run folder."""
    return make_run("run")
