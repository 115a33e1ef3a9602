"""Finished files that are reopened: for what failed, and for answers that are others by now."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.answer import reopen_failed
from jobs.evaluation.evaluate import drive
from jobs.evaluation.plan import Plan
from jobs.evaluation.records import Stage
from jobs.evaluation.run_folder import RunFolder
from jobs.judge import reopen_judgements
from vmem.errors import ModelTimeoutError
from vmem.llm.fake import FakeChat
from vmem.ports import ChatRequest

PLAN = Plan(
    name="reopened",
    changes={"encoders": {"text": {"kind": "fake"}, "image": {"kind": "fake"}}},
    benchmarks=[{"name": "sample", "questions": 6}],
    systems=["no-memory"],
    backbones=[{"name": "b", "llm": {"provider": "fake"}, "concurrency": 2}],
    judges=[{"name": "j", "llm": {"provider": "fake"}, "repetitions": 2, "planted": 2}],
)
CELL = PLAN.cells()[0]
JUDGED = f"{CELL}.j.gallery"


class Script:
    """What models say, and what they were asked."""

    def __init__(self) -> None:
        self.failing: Callable[[ChatRequest], bool] = lambda _: False
        self.asked: list[str] = []

    def __call__(self, request: ChatRequest) -> str:
        self.asked.append(request.role)
        if self.failing(request):
            raise ModelTimeoutError("no reply within 1 s")
        if request.role == "judge":
            return json.dumps({"score": 0.5, "reasoning": "half of it"})
        return f"an answer of {len(request.prompt)}"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    made = Script()
    monkeypatch.setattr("jobs.evaluation.models.make_chat", lambda _: FakeChat(made))
    return made


def to_the_end(path: Path) -> None:
    drive(Stage.ANSWER, PLAN, PLAN.backbones[0], path)
    reopen_judgements(PLAN, RunFolder(path), failed=False)
    drive(Stage.JUDGE, PLAN, PLAN.judges[0], path)


def counted(script: Script) -> tuple[int, int]:
    """Answers and judgements asked for since the last time."""
    asked, script.asked = script.asked, []
    return asked.count("answer"), asked.count("judge")


def test_nothing_is_reopened_where_nothing_failed_or_changed(
    script: Script, tmp_path: Path
) -> None:
    to_the_end(tmp_path)
    run = RunFolder(tmp_path)
    assert counted(script) == (6, 6 * 2 + 4 * 2)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.jsonl")}
    assert reopen_failed(PLAN, run) == 0
    assert reopen_judgements(PLAN, run, failed=True) == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.jsonl")} == before


def test_failed_answers_are_asked_again_and_then_judged(script: Script, tmp_path: Path) -> None:
    fails = iter([True, True])
    script.failing = lambda request: request.role == "answer" and next(fails, False)
    to_the_end(tmp_path)
    assert counted(script) == (6, 4 * 2 + 4 * 2)
    run = RunFolder(tmp_path)
    kept = [r for r in run.answers(CELL).read() if r.error is None]
    assert reopen_failed(PLAN, run) == 2
    assert not run.answers(CELL).finished and run.answers(CELL).read() == kept
    to_the_end(tmp_path)
    assert counted(script) == (2, 2 * 2)  # and none of the others' judgements
    assert [r.error for r in run.answers(CELL).read()] == [None] * 6
    assert len(run.timings(CELL).read()) == 6
    assert not [t for t in run.timings(CELL).read() if "failed" in t.seconds]
    assert len(run.judgements(JUDGED).read()) == 6 * 2
    assert not list(tmp_path.rglob("*.partial.jsonl"))


def test_failed_judgements_are_asked_again(script: Script, tmp_path: Path) -> None:
    fails = iter([True, True, True])
    script.failing = lambda request: request.role == "judge" and next(fails, False)
    to_the_end(tmp_path)
    counted(script)
    run = RunFolder(tmp_path)
    assert reopen_judgements(PLAN, run, failed=False) == 0
    assert reopen_judgements(PLAN, run, failed=True) == 3
    to_the_end(tmp_path)
    assert counted(script) == (0, 3)
    files = run.judgements(JUDGED), run.planted("sample.j.gallery")
    assert not [line for file in files for line in file.read() if line.error]


def test_answers_that_changed_are_judged_anew(script: Script, tmp_path: Path) -> None:
    to_the_end(tmp_path)
    counted(script)
    run = RunFolder(tmp_path)
    answers = run.answers(CELL)
    lines = answers.path.read_text().splitlines()
    changed = [{**json.loads(line), "answer": "another"} for line in lines[:1]]
    gone = [{**json.loads(line), "error": "ModelError: no", "answer": ""} for line in lines[1:2]]
    new = [json.dumps(line) for line in (*changed, *gone)] + lines[2:]
    answers.path.write_text("".join(f"{line}\n" for line in new))
    to_the_end(tmp_path)
    assert counted(script) == (0, 2)
    judged = run.judgements(JUDGED).read()
    assert len(judged) == 5 * 2
    assert json.loads(lines[1])["question_id"] not in {line.question_id for line in judged}


def test_judgements_of_older_runs_are_believed(script: Script, tmp_path: Path) -> None:
    to_the_end(tmp_path)
    file = RunFolder(tmp_path).judgements(JUDGED)
    lines = [json.loads(line) for line in file.path.read_text().splitlines()]
    assert all(len(line.pop("digest")) == 16 for line in lines)
    file.path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert reopen_judgements(PLAN, RunFolder(tmp_path), failed=True) == 0
