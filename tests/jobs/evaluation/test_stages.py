"""Answer and judge stages on the sample, with scripted models behind the real cache and ledger."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.evaluation.evaluate import drive, lines_planned
from jobs.evaluation.manifest import close_manifest, make_manifest, open_manifest, read_manifest
from jobs.evaluation.plan import Plan, read_planned
from jobs.evaluation.records import Stage
from jobs.evaluation.run_folder import RunFolder
from jobs.significance import summarise_run
from vmem.errors import BudgetError, InputError, ModelTimeoutError
from vmem.llm.fake import FakeChat
from vmem.llm.ledger import read_ledger
from vmem.ports import ChatRequest

QUESTIONS = 6
FINAL = ("answers", "judgements", "planted")

PLAN: dict[str, Any] = {
    "name": "test",
    "changes": {"encoders": {"text": {"kind": "fake"}, "image": {"kind": "fake"}}},
    "benchmarks": [{"name": "sample", "questions": QUESTIONS}],
    "systems": ["v-mem", "no-memory"],
    "backbones": [{"name": "b", "llm": {"provider": "fake"}, "concurrency": 2}],
    "judges": [{"name": "j", "llm": {"provider": "fake"}, "concurrency": 2, "planted": 2}],
    "draws": 100,
}


def _script(request: ChatRequest) -> str:
    if request.role == "judge":
        return json.dumps({"score": 0.5, "reasoning": "half of it"})
    return f"{request.role} of {len(request.prompt)} characters"


class Models:
    """The models of a run, made anew for each driver; all that they were asked is kept."""

    def __init__(self) -> None:
        self.script: Callable[[ChatRequest], str] = _script
        self.asked: list[ChatRequest] = []

    def make(self, _: object) -> FakeChat:
        def reply(request: ChatRequest) -> str:
            self.asked.append(request)
            return self.script(request)

        return FakeChat(reply)


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Models:
    made = Models()
    monkeypatch.setattr("jobs.evaluation.models.make_chat", made.make)
    return made


def _answer(plan: Plan, path: Path) -> None:
    drive(Stage.ANSWER, plan, plan.backbones[0], path)


def _judge(plan: Plan, path: Path) -> None:
    drive(Stage.JUDGE, plan, plan.judges[0], path)


def _final(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for stage in FINAL
        for file in sorted((path / stage).glob("*"))
    }


def test_all_stages_to_their_end(models: Models, tmp_path: Path) -> None:
    plan, run = Plan(**PLAN), RunFolder(tmp_path)
    open_manifest(plan, run)
    _answer(plan, tmp_path)
    _judge(plan, tmp_path)
    close_manifest(run, {"b": "fake", "j": "fake"})
    ids = [question.id for question in read_planned(plan.benchmarks[0]).questions]
    assert len(ids) == QUESTIONS == lines_planned(Stage.ANSWER, plan, run) / len(plan.systems)
    planted = 2 * plan.judges[0].planted
    assert lines_planned(Stage.JUDGE, plan, run) == QUESTIONS * len(plan.systems) + planted
    for cell in plan.cells():
        records = run.answers(cell).read()
        assert [record.question_id for record in records] == ids
        assert all(record.answer.startswith("answer of") for record in records)
        judged = run.judgements(f"{cell}.j.gallery").read()
        assert [(line.question_id, line.level, line.score) for line in judged] == [
            (each, 0.5, 0.5) for each in ids
        ]
        assert [timing.question_id for timing in run.timings(cell).read()] == ids
        assert all("answer" in timing.seconds for timing in run.timings(cell).read())
    planted = [line.question_id for line in run.planted("sample.j.gallery").read()]
    assert len(planted) == 4 and {each.partition("~")[2] for each in planted} == {
        "vague",
        "specific",
    }
    calls, broken = read_ledger(tmp_path / "ledger.jsonl")
    assert broken == 0 and len(calls) == len(models.asked)
    searched, bare = (run.answers(cell).read() for cell in plan.cells())
    assert all(record.ranked_rounds and record.context for record in searched)
    assert not any(record.ranked_rounds or record.context for record in bare)
    summary = summarise_run(run, read_manifest(run), plan.seed, plan.draws)
    assert [cell["valid"] for cell in summary["cells"]] == [True, True]


def _told(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Every line of the final files but its seconds: two caches hold two calls."""
    told = {
        name: [json.loads(line) for line in data.splitlines()]
        for name, data in _final(path).items()
    }
    for line in (line for lines in told.values() for line in lines):
        for cost in line["cost"].values() if "dialogue_id" in line else [line["cost"]]:
            cost.pop("seconds")
    return told


def test_two_runs_give_the_same_files(models: Models, tmp_path: Path) -> None:
    plan = Plan(**PLAN)
    for name in ("one", "other"):
        _answer(plan, tmp_path / name)
        _judge(plan, tmp_path / name)
    assert _told(tmp_path / "one") == _told(tmp_path / "other")


class Killed(BaseException):
    """As if the process ended here."""


@pytest.mark.parametrize("stage", ["answer", "judge"])
@pytest.mark.parametrize("after", [3, 5, 9])
def test_cut_off_and_run_again_nothing_is_asked_twice(
    models: Models, tmp_path: Path, stage: str, after: int
) -> None:
    plan, whole, cut = Plan(**PLAN), tmp_path / "whole", tmp_path / "cut"
    _answer(plan, whole)
    _judge(plan, whole)
    asked = len(models.asked)
    models.asked.clear()

    gone: list[ChatRequest] = []

    def killed(request: ChatRequest) -> str:
        of_stage = [each for each in models.asked if (each.role == "judge") == (stage == "judge")]
        if gone:  # here it takes some turns of the loop to end
            models.asked.remove(request)
        elif len(of_stage) > after and of_stage[-1] is request:
            gone.append(request)
        else:
            return _script(request)
        raise Killed

    models.script = killed
    with pytest.raises((Killed, BaseExceptionGroup)):
        _answer(plan, cut)
        _judge(plan, cut)
    assert _final(cut).keys() != _final(whole).keys()
    models.script = _script
    _answer(plan, cut)
    _judge(plan, cut)
    assert asked < len(models.asked) <= asked + 2  # what was in flight, one for each place
    assert _told(cut) == _told(whole)
    assert not list(cut.rglob("*.partial.jsonl"))


def test_what_is_whole_is_not_asked_again(models: Models, tmp_path: Path) -> None:
    plan = Plan(**PLAN)
    _answer(plan, tmp_path)
    _judge(plan, tmp_path)
    before = _final(tmp_path)
    models.asked.clear()
    _answer(plan, tmp_path)
    _judge(plan, tmp_path)
    assert models.asked == []
    assert _final(tmp_path) == before


def test_a_torn_line_is_asked_anew_from_the_cache(models: Models, tmp_path: Path) -> None:
    plan, run = Plan(**PLAN), RunFolder(tmp_path)
    _answer(plan, tmp_path)
    before = _final(tmp_path)
    file = run.answers(plan.cells()[0])
    lines = file.path.read_bytes().splitlines(keepends=True)
    file.partial.write_bytes(b"".join(lines[:2]) + lines[2][:40])
    file.path.unlink()
    models.asked.clear()
    _answer(plan, tmp_path)
    assert models.asked == []
    assert _final(tmp_path) == before


def test_a_question_that_fails_is_a_line_and_is_tried_again_while_the_file_is_open(
    models: Models, tmp_path: Path
) -> None:
    plan, run = Plan(**PLAN), RunFolder(tmp_path)
    open_manifest(plan, run)

    def fails(request: ChatRequest) -> str:
        if request.role == "answer" and fails.left:
            fails.left -= 1
            raise ModelTimeoutError("no reply within 1 s")
        return _script(request)

    fails.left = 2
    models.script = fails
    _answer(plan, tmp_path)
    _judge(plan, tmp_path)
    failed = [r for cell in plan.cells() for r in run.answers(cell).read() if r.error]
    assert len(failed) == 2
    assert {record.error for record in failed} == {"ModelTimeoutError: no reply within 1 s"}
    assert all(record.answer == "" and record.cost["answer"].failed == 1 for record in failed)
    summary = summarise_run(run, read_manifest(run), plan.seed, plan.draws)
    assert sum(cell["failed"] for cell in summary["cells"]) == 2
    assert not all(cell["valid"] for cell in summary["cells"])


def test_a_spent_budget_ends_the_stage_and_more_lets_it_go_on(
    models: Models, tmp_path: Path
) -> None:
    capped = Plan(**{**PLAN, "budget": {"max_tokens": 500}})
    with pytest.raises(BudgetError, match="500 tokens is spent"):
        _answer(capped, tmp_path)
    paid = len(models.asked)
    assert paid > 0
    _answer(Plan(**PLAN), tmp_path)
    first = {(a.role, a.prompt) for a in models.asked[:paid]}
    again = {(a.role, a.prompt) for a in models.asked[paid:]}
    assert not first & again


def test_a_run_goes_on_only_with_what_it_was_begun_with(models: Models, tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    other = Plan(**{**PLAN, "seed": 7})
    open_manifest(other, run)
    with run.held("run"):  # refused before anything was asked
        assert open_manifest(Plan(**PLAN), run)["plan"]["seed"] == 20260301
    _answer(Plan(**PLAN), tmp_path)
    open_manifest(Plan(**PLAN), run)
    with pytest.raises(InputError, match=r"another plan\.seed: 20260301 then, 7 now"):
        open_manifest(other, run)


def test_the_manifest_knows_the_prompts_of_its_systems() -> None:
    def prompts(*systems: str) -> set[str]:
        return set(make_manifest(Plan(**{**PLAN, "systems": systems}))["prompts"]["answers"])

    own = prompts("v-mem")
    assert {"answer", "conflict", "hypo_caption", "keywords"} <= own
    assert prompts("m2a") - own == {"m2a_answer", "m2a_recall", "m2a_record", "m2a_take_in"}
    assert prompts("m2a-verbatim", "murag", "full-context") == own
    both = prompts("omni", "a-mem") - own
    assert {"omni_extract", "omni_answer", "amem_note", "amem_evolve"} <= both


def test_keys_are_in_no_plan_and_in_no_file(
    models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = {"name": "b", "llm": {"provider": "fake", "api_key": "sk-secret"}}
    with pytest.raises(ValueError, match="environment only"):
        Plan(**{**PLAN, "backbones": [backbone]})
    monkeypatch.setenv("VMEM_LLM__API_KEY", "sk-secret")
    plan = Plan(**PLAN)
    open_manifest(plan, RunFolder(tmp_path))
    _answer(plan, tmp_path)
    assert not [f for f in tmp_path.rglob("*.json*") if b"sk-secret" in f.read_bytes()]


def test_parts_of_a_benchmark() -> None:
    plan = Plan(**PLAN)
    some = read_planned(plan.benchmarks[0].model_copy(update={"questions": 2}))
    assert [question.id for question in some.questions] == ["sample#0", "sample#1"]
    with pytest.raises(InputError, match="no dialogue 'x'"):
        read_planned(plan.benchmarks[0].model_copy(update={"dialogues": ("x",)}))
    assert replace(some, questions=()).dialogues == some.dialogues


def test_the_first_sessions_and_what_can_be_answered_from_them() -> None:
    plan = Plan(**PLAN).benchmarks[0].model_copy(update={"questions": None})
    whole, begun = read_planned(plan), read_planned(plan.model_copy(update={"sessions": 2}))
    [long], [short] = whole.dialogues, begun.dialogues
    first = list(dict.fromkeys(round_.session for round_ in long.rounds))[:2]
    assert short.rounds == tuple(r for r in long.rounds if r.session in first) != long.rounds
    said = {id_ for round_ in short.rounds for id_ in round_.source_ids}
    answerable = [q for q in whole.questions if q.evidence and q.evidence <= said]
    assert list(begun.questions) == answerable and 0 < len(answerable) < len(whole.questions)
    all_of_it = read_planned(plan.model_copy(update={"sessions": 99}))
    assert all_of_it.dialogues == whole.dialogues
