"""Stages keep a server at its limit over the ends of dialogues, cells and files, never above it."""

import asyncio
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.evaluation.evaluate import drive
from jobs.evaluation.plan import Plan
from jobs.evaluation.records import Stage
from jobs.evaluation.run_folder import RunFolder
from vmem.datasets.sample import read_sample
from vmem.llm.fake import FakeChat
from vmem.llm.ledger import read_ledger
from vmem.ports import ChatReply, ChatRequest
from vmem.systems.registry import make_system
from vmem.types import Benchmark, Dialogue

DIALOGUES, QUESTIONS, LIMIT = 3, 5, 4
SYSTEMS = ["no-memory", "bm25"]
CELL = DIALOGUES * QUESTIONS
PLAN: dict[str, Any] = {
    "name": "test",
    "changes": {
        "encoders": {"text": {"kind": "fake"}, "image": {"kind": "none"}},
        "retrieval": {"hypo_caption": False, "keywords": False},
    },
    "benchmarks": [{"name": "sample"}],
    "systems": SYSTEMS,
    "backbones": [{"name": "b", "llm": {"provider": "fake"}, "concurrency": LIMIT}],
    "judges": [{"name": "j", "llm": {"provider": "fake"}, "concurrency": LIMIT}],
    "draws": 100,
}
"""Each question takes one call: no dialogue's, cell's or file's calls fill their last row."""


def _benchmark(_: object = None) -> Benchmark:
    sample = read_sample()
    asked = [q for q in sample.questions if q.query.image is None][:QUESTIONS]
    dialogues = [Dialogue(id=f"d{n}", rounds=sample.dialogues[0].rounds) for n in range(DIALOGUES)]
    questions = tuple(
        replace(
            question,
            id=f"{dialogue.id}#{place}",
            dialogue_id=dialogue.id,
            query=replace(question.query, text=f"{question.query.text} ({dialogue.id})"),
        )
        for dialogue in dialogues
        for place, question in enumerate(asked)
    )
    return replace(sample, dialogues=tuple(dialogues), questions=questions)


class RowsOfCalls(FakeChat):
    """Answers only once as many calls as may be, or all that are left, are under way."""

    def __init__(self, calls: int) -> None:
        super().__init__(self._say)
        self.left = calls
        self.waiting: list[asyncio.Event] = []
        self.now = self.most = 0

    @staticmethod
    def _say(request: ChatRequest) -> str:
        said = {"score": 0.5, "reasoning": "half of it"}
        return json.dumps(said) if request.role == "judge" else f"a reply {len(request.prompt)}"

    async def complete(self, request: ChatRequest) -> ChatReply:
        self.now += 1
        self.most = max(self.most, self.now)
        answered = asyncio.Event()
        self.waiting.append(answered)
        if len(self.waiting) == min(LIMIT, self.left):
            self.left -= len(self.waiting)
            for each in self.waiting:
                each.set()
            self.waiting.clear()
        try:
            async with asyncio.timeout(120):
                await answered.wait()
            return await super().complete(request)
        finally:
            self.now -= 1


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, str]]:
    """Builds by system and dialogue, of the stages on the benchmark above."""
    counted: Counter[tuple[str, str]] = Counter()

    class Counting:
        def __init__(self, system: Any) -> None:
            self.name, self._system = system.name, system

        async def build(self, dialogue: Dialogue) -> Any:
            counted[self.name, dialogue.id] += 1
            return await self._system.build(dialogue)

    monkeypatch.setattr("jobs.answer.read_planned", _benchmark)
    monkeypatch.setattr("jobs.answer.make_system", lambda *args: Counting(make_system(*args)))
    return counted


def _drive(stage: Stage, plan: Plan, path: Path, chat: FakeChat, patch: Any) -> None:
    patch.setattr("jobs.evaluation.models.make_chat", lambda _: chat)
    drive(stage, plan, (plan.judges if stage is Stage.JUDGE else plan.backbones)[0], path)


def test_the_limit_is_reached_to_the_last_call_and_never_passed(
    built: Counter[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, run = Plan(**PLAN), RunFolder(tmp_path)
    ids = [question.id for question in _benchmark().questions]
    assert len(ids) == CELL and QUESTIONS % LIMIT and CELL % LIMIT
    for stage in (Stage.ANSWER, Stage.JUDGE):
        chat = RowsOfCalls(CELL * len(SYSTEMS))
        _drive(stage, plan, tmp_path, chat, monkeypatch)
        assert len(chat.requests) == CELL * len(SYSTEMS)
        assert (chat.most, chat.left) == (LIMIT, 0)
    for cell in plan.cells():
        assert [record.question_id for record in run.answers(cell).read()] == ids
        assert [timing.question_id for timing in run.timings(cell).read()] == ids
        judged = run.judgements(f"{cell}.j.gallery").read()
        assert [line.question_id for line in judged] == ids
        builds = [build.dialogue_id for build in run.builds(cell).read()]
        assert builds == [dialogue.id for dialogue in _benchmark().dialogues]
    assert set(built.values()) == {1}
    assert len(built) == DIALOGUES * len(SYSTEMS)
    assert not list(tmp_path.rglob("*.partial.jsonl"))
    calls, broken = read_ledger(tmp_path / "ledger.jsonl")
    assert (len(calls), broken) == (2 * CELL * len(SYSTEMS), 0)


def test_memories_are_built_one_ahead(
    built: Counter[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more than three are there: one whose last answers come, one asked about, one ahead."""
    answered: Counter[str] = Counter()
    ahead: list[int] = []

    def say(request: ChatRequest) -> str:
        for dialogue in range(DIALOGUES):
            answered[f"d{dialogue}"] += f"(d{dialogue})" in request.prompt
        whole = sum(count // QUESTIONS for count in answered.values())
        ahead.append(sum(built.values()) - whole)
        return "a reply"

    plan = Plan(**{**PLAN, "systems": ["bm25"]})
    _drive(Stage.ANSWER, plan, tmp_path, FakeChat(say), monkeypatch)
    assert len(ahead) == CELL
    assert max(ahead) <= 3
