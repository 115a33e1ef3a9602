"""Servers that misbehave: questions end as answers or counted errors, and nothing hangs."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from jobs.evaluation.evaluate import check_models, drive
from jobs.evaluation.models import PATIENCE
from jobs.evaluation.plan import Plan, read_planned
from jobs.evaluation.records import Cell, Stage
from jobs.evaluation.run_folder import RunFolder
from jobs.significance import FILE
from vmem.errors import ModelUnusableError
from vmem.llm.ledger import read_ledger

KINDS: dict[str, str | None] = {
    # what the server does with every call about a question: the error it ends with
    "good": None,
    "busy once": None,
    "fails once": None,
    "silent once": None,
    "busy": "ModelUnavailableError",
    "fails": "ModelUnavailableError",
    "silent": "ModelTimeoutError",
    "broken": "ModelFormatError",
    "refuses": "ModelFormatError",
    "empty": "ModelFormatError",
}
ONCE = [kind for kind in KINDS if kind.endswith("once")]
FAILING = sum(error is not None for error in KINDS.values())
QUESTIONS = 2 * len(KINDS)
CELL = Cell(benchmark="sample", system="no-memory", backbone="b")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_600)]


def misbehaving(server: Any, send: Any, say: Any) -> Callable[[Mapping[str, Any], int], Any]:
    """The first questions' answers are of all kinds; so are the judgements of the others'."""
    plan = Plan(**PLAN, backbones=[FAKE])
    kinds = list(KINDS)
    texts = [question.query.text for question in read_planned(plan.benchmarks[0]).questions]
    assert len(set(texts)) == QUESTIONS
    good = server.script

    def script(body: Mapping[str, Any], earlier: int) -> Any:
        prompt = body["messages"][0]["content"]
        asked = max((text for text in texts if text in prompt), key=len)
        number = texts.index(asked)
        answers, judged = kinds + ["good"] * len(kinds), ["good"] * len(kinds) + kinds
        kind = (judged if body["model"] == "judge" else answers)[number]
        if kind == "good" or (kind in ONCE and earlier):
            return good(body, earlier)
        return {
            "busy": send(status=429, headers={"Retry-After": "1"}),
            "fails": send(status=500, body=b"oops"),
            "silent": send(silent=True),
            "broken": send(body=b'{"choices": ['),
            "refuses": say(None, refusal="I will not"),
            "empty": say(""),
        }[kind.removesuffix(" once")]

    return script


PLAN: dict[str, Any] = {
    "name": "bad",
    "changes": {"encoders": {"text": {"kind": "fake"}, "image": {"kind": "fake"}}},
    "benchmarks": [{"name": "sample", "questions": QUESTIONS}],
    "systems": ["no-memory"],
    "draws": 100,
}
FAKE = {"name": "b", "llm": {"provider": "fake"}}


def llm(url: str, model: str, **settings: Any) -> dict[str, Any]:
    return {"provider": "openai", "base_url": url, "model": model, **settings}


def models(url: str, concurrency: int = 8, **settings: Any) -> dict[str, Any]:
    def model(name: str, asked: str) -> dict[str, Any]:
        return {"name": name, "concurrency": concurrency, "llm": llm(url, asked, **settings)}

    return {"backbones": [model("b", "backbone")], "judges": [model("j", "judge")]}


def test_every_question_ends_and_what_failed_can_be_asked_again(
    evaluation: Callable[..., Any], server: Any, send: Any, say: Any
) -> None:
    runs = evaluation(address=True, **PLAN, **models(server.url, timeout_s=5, attempts=3))
    server.script = misbehaving(server, send, say)
    run = RunFolder(runs.path("bad"))
    runs.to_its_end("bad")

    records = run.answers(CELL).read()
    assert len(records) == QUESTIONS
    ends = [(r.error or "").partition(":")[0] for r in records]
    expected = [error or "" for error in KINDS.values()]
    assert ends == expected + [""] * len(KINDS)
    assert all(bool(r.answer) == (r.error is None) for r in records)
    judged = run.judgements(f"{CELL}.j.gallery").read()
    assert len(judged) == QUESTIONS - FAILING
    good_answers = len(KINDS) - FAILING
    assert [(j.error or "").partition(":")[0] for j in judged] == [""] * good_answers + expected
    assert all((j.score is None) == (j.error is not None) for j in judged)

    # Every call is in the ledger, and every line of the ledger is some question's.
    calls, broken = read_ledger(run.path / "ledger.jsonl")
    by_role = Counter(call.role for call in calls)
    assert broken == 0
    assert by_role["answer"] == QUESTIONS == sum(r.cost["answer"].calls for r in records)
    unreadable = sum(error == "ModelFormatError" for error in expected)  # a judge is asked again
    assert by_role["judge"] == len(judged) + unreadable == sum(j.cost.calls for j in judged)
    assert sum(call.error is None for call in calls) == sum(r.error is None for r in records) + sum(
        j.error is None for j in judged
    )

    # The score is invalid, and whoever reads the tables reads that first.
    statistics = _json(run.path / FILE)["cells"][0]
    assert not statistics["valid"]
    assert statistics["invalid"]["failed"] == statistics["invalid"]["unjudged"] == FAILING
    lead = (run.path / "tables" / "tables.md").read_text().splitlines()[:6]
    assert any("1 of 1 cells are invalid" in line for line in lead)
    assert any(f"{FAILING} failed" in line for line in lead)

    # The server is mended: what failed is asked again, and nothing else.
    before = Counter(server.answered)
    server.script = lambda body, earlier: _good(say, body)
    runs.to_its_end("bad", "--retry-failed")
    assert [r for r in run.answers(CELL).read() if r.error] == []
    again = run.judgements(f"{CELL}.j.gallery").read()
    assert len(again) == QUESTIONS and not [j for j in again if j.error]
    asked = server.answered - before
    assert asked.total() == FAILING + 2 * FAILING  # answers; their judgements, and those failed
    assert _json(run.path / FILE)["cells"][0]["valid"]
    assert "invalid" not in (run.path / "tables" / "tables.md").read_text().splitlines()[2]
    said = runs.to_its_end("bad", "--retry-failed")
    assert "asked again" not in said and (server.answered - before).total() == asked.total()


def _good(say: Any, body: Mapping[str, Any]) -> Any:
    return say('{"score": 1, "reasoning": "right"}' if body["model"] == "judge" else "well again")


def _json(path: Path) -> Any:
    return json.loads(path.read_text())


def test_a_server_that_is_not_there_ends_a_run_with_one_sentence(
    evaluation: Callable[..., Any],
) -> None:
    runs = evaluation(address=True, **PLAN, **models("http://127.0.0.1:9/v1"))
    said = runs.to_its_end("down", status=1)
    lines = [line for line in said.splitlines() if line.strip()]
    assert len(lines) == 1
    assert lines[0].startswith("error ModelUnavailableError: model backbone at 127.0.0.1:9 gave no")
    assert not (runs.path("down") / "answers").exists()


def test_all_servers_are_checked_before_the_first_question(
    local_ray: None, server: Any, tmp_path: Path
) -> None:
    plan = Plan(**PLAN, **models(server.url))
    check_models(list(Stage), plan, tmp_path)
    server.models_status = 401
    with pytest.raises(ModelUnusableError, match=r"rejects the key \(HTTP 401\)"):
        check_models([Stage.JUDGE], plan, tmp_path)
    check_models([Stage.STATISTICS, Stage.TABLES], plan, tmp_path)
    assert server.started.total() == 0


@pytest.mark.parametrize(
    ("status", "said"), [(401, "rejects the key"), (404, "is not known there: check llm.model")]
)
def test_what_fails_for_all_questions_ends_the_stage(
    server: Any, send: Any, tmp_path: Path, status: int, said: str
) -> None:
    plan = Plan(**PLAN, **models(server.url))
    server.script = lambda *_: send(status=status, body=b"{}")
    with pytest.raises(ModelUnusableError, match=said):
        drive(Stage.ANSWER, plan, plan.backbones[0], tmp_path)
    assert 1 <= server.started.total() <= plan.backbones[0].concurrency


def test_a_server_that_goes_away_ends_the_stage_and_what_it_gave_is_kept(
    server: Any, send: Any, tmp_path: Path
) -> None:
    concurrency, there, good = 2, 6, server.script
    plan = Plan(**PLAN, **models(server.url, concurrency, attempts=1))
    server.script = lambda body, earlier: (
        good(body, earlier) if server.replies["backbone"] < there else send(status=503)
    )
    with pytest.raises(ModelUnusableError, match="in a row ended so, and no more are made"):
        drive(Stage.ANSWER, plan, plan.backbones[0], tmp_path)
    asked = server.started.total()
    assert there + PATIENCE <= asked <= there + PATIENCE + 2 * concurrency
    server.script = good
    drive(Stage.ANSWER, plan, plan.backbones[0], tmp_path)
    assert server.started.total() == asked + QUESTIONS - there
    assert not [r for r in RunFolder(tmp_path).answers(CELL).read() if r.error]
