import json
from pathlib import Path

import pytest

from jobs.retrieval import read_run
from vmem.errors import DataError
from vmem.types import Benchmark, Dialogue, Query, Question, Round, Turn


def a_benchmark() -> Benchmark:
    rounds = tuple(
        Round(
            id=f"r{n}",
            position=n,
            session="D1",
            time="2026-03-02",
            turns=(Turn(source_id=f"r{n}", speaker="user", text="x"),),
        )
        for n in range(3)
    )
    questions = tuple(
        Question(
            id=f"d#{n}",
            dialogue_id="d",
            query=Query(text="?"),
            reference="",
            category="FR",
            evidence=frozenset(evidence),
        )
        for n, evidence in enumerate([["r1"], []])
    )
    dialogue = Dialogue(id="d", rounds=rounds)
    return Benchmark(name="tiny", dialogues=(dialogue,), questions=questions, issues=())


def write(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def record(question: str, ranked: list[str], error: str | None = None) -> dict[str, object]:
    rounds = [[name] for name in ranked]
    return {
        "question_id": question,
        "case": "text->text",
        "ranked_rounds": rounds,
        "context_rounds": rounds,
        "context_words": 3,
        "error": error,
    }


def test_a_written_run_gives_its_scores_back(tmp_path: Path) -> None:
    run = write(tmp_path / "run.jsonl", record("d#0", ["r2", "r1"]), record("d#1", ["r0"]))
    scores = read_run(run, a_benchmark())
    assert scores.keys() == {"d#0"}
    assert scores["d#0"]["mrr"] == 1 / 2
    assert (scores["d#0"]["recall@1"], scores["d#0"]["recall@3"]) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([record("d#9", ["r1"])], "line 1 is no record of tiny"),
        ([record("d#0", ["r7"])], "line 1 is no record of tiny"),
        ([record("d#0", [], error="QueryError: empty")], r"line 1: d#0 failed"),
    ],
)
def test_a_run_of_something_else_is_refused(
    tmp_path: Path, records: list[object], said: str
) -> None:
    with pytest.raises(DataError, match=said):
        read_run(write(tmp_path / "run.jsonl", *records), a_benchmark())
