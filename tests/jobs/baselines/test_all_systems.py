"""Every system on a small benchmark from building to tables, against a scripted server."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from jobs.evaluation.evaluate import drive
from jobs.evaluation.manifest import open_manifest
from jobs.evaluation.plan import Plan, read_planned
from jobs.evaluation.records import Stage
from jobs.evaluation.run_folder import RunFolder
from jobs.significance import FILE, summarise_run
from jobs.tables import REPORT, write_tables
from vmem.baselines.forms import AGAIN
from vmem.config import CONFIGS, read_mapping
from vmem.errors import ConfigError
from vmem.llm.ledger import read_ledger
from vmem.systems.rows import read_rows

OTHERS = [row["name"] for row in read_mapping(CONFIGS / "systems" / "baselines.yaml")["systems"]]
NEEDS_TEXT_TOWER = "m2a-three-path"
SYSTEMS = ["v-mem", *(name for name in OTHERS if name != NEEDS_TEXT_TOWER)]
QUESTIONS = 9
"""Of the sample, the first ones."""
BUILT_BY_MODEL = {"omni", "omni-released", "a-mem", "m2a"}
FAULTS = ("steps_failed", "steps_truncated", "steps_skipped")
UNREADABLE = "Clementine"
"""Of messages that hold this name, which no caption does, the failing server says nothing."""

pytestmark = [pytest.mark.baselines, pytest.mark.timeout(900)]


def planned(url: str, locomo: Path, systems: list[str], questions: int = QUESTIONS) -> Plan:
    def model(name: str) -> dict[str, Any]:
        llm = {"provider": "openai", "base_url": url, "model": name, "sees_images": True}
        return {"name": name, "llm": llm, "concurrency": 4}

    encoders = {"text": {"kind": "fake"}, "image": {"kind": "fake"}}
    return Plan.model_validate(
        {
            "name": "all-systems",
            "changes": {"encoders": encoders},
            "benchmarks": [
                {"name": "sample", "questions": questions},
                {"name": "locomo", "data": locomo},
            ],
            "systems": systems,
            "backbones": [{**model("backbone"), "self_hosted": True}],
            "judges": [{**model("judge"), "self_hosted": True}],
            "draws": 100,
        }
    )


def evaluated(plan: Plan, path: Path) -> tuple[RunFolder, dict[str, Any]]:
    """A whole evaluation in this process, and what its statistics say of each cell."""
    run = RunFolder(path)
    manifest = open_manifest(plan, run)
    drive(Stage.ANSWER, plan, plan.backbones[0], path)
    drive(Stage.JUDGE, plan, plan.judges[0], path)
    summarise_run(run, manifest, plan.seed, plan.draws)
    cells = json.loads((path / FILE).read_text())["cells"]
    return run, {f"{cell['benchmark']}.{cell['system']}": cell for cell in cells}


def test_every_system_builds_answers_is_judged_and_its_cost_is_counted(
    server: Any, small_locomo: Path, tmp_path: Path
) -> None:
    plan = planned(server.url, small_locomo, SYSTEMS)
    assert set(SYSTEMS) > BUILT_BY_MODEL and {row.name for row in plan.rows()} == set(SYSTEMS)
    run, cells = evaluated(plan, tmp_path)
    assert len(cells) == len(plan.cells()) == 2 * len(SYSTEMS)
    lines = 0
    for cell in plan.cells():
        named = cells[f"{cell.benchmark}.{cell.system}"]
        planned_part = next(one for one in plan.benchmarks if one.name == cell.benchmark)
        read = read_planned(planned_part)
        records = run.answers(cell).read()
        assert [record.question_id for record in records if record.error] == []
        assert len(records) == len(read.questions)
        assert all(record.answer.strip() for record in records), cell
        assert all(record.cost["answer"].calls for record in records), cell
        assert (named["valid"], named["failed"], named["unanswered"]) == (True, 0, 0), named
        assert [one["judged"] for one in named["judged"]] == [len(records)] * len(named["judged"])
        builds = run.builds(cell).read()
        assert [build.dialogue_id for build in builds] == [each.id for each in read.dialogues]
        # Omni has a model read windows of LoCoMo, and makes its unused calls as released.
        by_model = cell.system in BUILT_BY_MODEL and (
            cell.system != "omni" or cell.benchmark == "locomo"
        )
        for build in builds:
            assert (sum(cost.calls for cost in build.cost.values()) > 0) == by_model, cell
            assert (build.counts.get("steps", 0) > 0) == by_model, cell
            assert not any(build.counts.get(fault) for fault in FAULTS), (cell, build.counts)
            lines += sum(cost.calls for cost in build.cost.values())
        lines += sum(cost.calls for record in records for cost in record.cost.values())
        lines += sum(cost["calls"] for cost in named["cost"]["judge"].values())
    calls, broken = read_ledger(tmp_path / "ledger.jsonl")
    paid = [call for call in calls if not call.cached]
    assert (broken, len(calls)) == (0, lines)  # every call is some build's, question's, judgement's
    assert len(paid) == server.replies.total() < len(calls)
    assert sum((c.prompt_tokens or 0) + (c.completion_tokens or 0) for c in paid) == server.tokens
    tables = write_tables([run], tmp_path / "tables", {"locomo": small_locomo}, tmp_path / REPORT)
    said = tables[0].read_text() + (tmp_path / "tables" / "tables.md").read_text()
    rows = read_rows()
    assert [name for name in SYSTEMS if rows[name].title not in said] == []


def test_the_one_that_is_left_out_says_what_it_needs(
    server: Any, small_locomo: Path, tmp_path: Path
) -> None:
    plan = planned(server.url, small_locomo, [NEEDS_TEXT_TOWER], questions=1)
    with pytest.raises(ConfigError, match="it needs an image encoder with a text tower"):
        drive(Stage.ANSWER, plan, plan.backbones[0], tmp_path)
    assert server.replies.total() == 0


def test_a_second_run_over_the_same_replies_asks_nothing(
    server: Any, small_locomo: Path, tmp_path: Path
) -> None:
    plan = planned(server.url, small_locomo, ["a-mem", "m2a", "omni-released"], questions=1)
    drive(Stage.ANSWER, plan, plan.backbones[0], tmp_path / "one")
    asked = server.replies.total()
    (tmp_path / "two").mkdir()
    for file in (tmp_path / "one").glob("replies.db*"):
        (tmp_path / "two" / file.name).write_bytes(file.read_bytes())
    drive(Stage.ANSWER, plan, plan.backbones[0], tmp_path / "two")
    assert server.replies.total() == asked > 0
    for cell in plan.cells():
        one, two = (RunFolder(tmp_path / name) for name in ("one", "two"))
        assert one.answers(cell).read() == two.answers(cell).read()
        paid = [[(b.counts, b.cost) for b in run.builds(cell).read()] for run in (one, two)]
        assert paid[0] == paid[1]


def test_steps_that_a_model_fails_are_counted_and_mark_the_score(
    server: Any,
    small_locomo: Path,
    tmp_path: Path,
    play: Callable[[Mapping[str, Any]], str],
    wanted_by: Callable[[Mapping[str, Any]], tuple[str, dict[str, Any]]],
    newest: Callable[[str], str],
) -> None:
    twice = 0

    def taken_in(body: Mapping[str, Any]) -> str:
        """What a build takes in by this request; empty for all other requests."""
        prompt, wanted = wanted_by(body)
        if {"keywords", "context"} <= set(wanted):
            return prompt
        if "update_memory" in wanted.get("tool", {}).get("enum", ()):
            return newest(prompt)
        return ""

    def failing(body: Mapping[str, Any]) -> str:
        nonlocal twice
        if UNREADABLE not in taken_in(body):
            return play(body)
        twice += wanted_by(body)[0].endswith(AGAIN)
        return "I would rather not say."

    server.script = failing
    plan = planned(server.url, small_locomo, ["a-mem", "m2a"], questions=1)
    plan = plan.model_copy(update={"benchmarks": plan.benchmarks[:1]})
    run, cells = evaluated(plan, tmp_path)
    [dialogue] = read_planned(plan.benchmarks[0]).dialogues
    said = [[UNREADABLE in turn.text for turn in round_.turns] for round_ in dialogue.rounds]
    rounds, turns = sum(map(any, said)), sum(map(sum, said))
    assert turns > rounds > 0
    expected = {"a-mem": rounds, "m2a": turns}
    for cell in plan.cells():
        found, steps = cells[f"sample.{cell.system}"], expected[cell.system]
        assert found["cost"]["build"]["counts"]["steps_failed"] == steps, cell
        assert found["warnings"]["steps_failed"] == steps, cell
        assert not any(record.error for record in run.answers(cell).read())
    assert twice == sum(expected.values())  # each was asked for once more, and not a third time
