"""Builds projected to whole benchmarks: by messages, with prices and the paper's figures."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from jobs.backbone_speeds import load_speeds, speeds_given
from jobs.evaluation.plan import Plan
from jobs.evaluation.records import Build, Cell, ModelCost
from jobs.evaluation.run_folder import RunFolder, write_json
from jobs.projected_costs import project_builds
from jobs.scripted_costs import SYSTEMS, write_run
from vmem.cli import app
from vmem.datasets import read_benchmark
from vmem.errors import InputError
from vmem.llm.budget import cost_usd, load_prices

ONE = ModelCost(calls=10, failed=1, prompt_tokens=3_000, completion_tokens=500, seconds=36.0)
TWO = ModelCost(calls=4, failed=0, prompt_tokens=100, completion_tokens=20, seconds=4.0)
PAPER_A_MEM = {4: (7_800_000, 19_080 / 3_600)}
"""LoCoMo in Table 4."""


@pytest.fixture
def locomo(small_locomo: Path, tmp_path: Path) -> Path:
    """The small LoCoMo with a second conversation of one session, so half as long."""
    [long] = json.loads((small_locomo / "locomo10.json").read_text())
    talk = {k: v for k, v in long["conversation"].items() if not k.startswith("session_2")}
    short = {**long, "sample_id": "conv-2", "conversation": talk}
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "locomo10.json").write_text(json.dumps([long, short]))
    return folder


@pytest.fixture
def run(locomo: Path, tmp_path: Path) -> RunFolder:
    """A run of which one conversation was built, by A-Mem with a model and by MuRAG without."""
    llm = {"provider": "openai", "base_url": "http://127.0.0.1:9/v1", "model": "m"}
    plan = Plan.model_validate(
        {
            "name": "few",
            "benchmarks": [{"name": "locomo", "data": locomo, "dialogues": ["conv-1"]}],
            "systems": ["a-mem", "murag", "m2a"],
            "backbones": [{"name": "b", "llm": llm}],
        }
    )
    folder = RunFolder(tmp_path / "run")
    write_json(folder.path / "manifest.json", {"plan": plan.dump()})
    build = Build(
        dialogue_id="conv-1",
        counts={"steps": 48, "steps_failed": 2},
        cost={"amem_note": ONE, "amem_evolve": TWO},
        seconds={},
    )
    for system, each in (("a-mem", build), ("murag", replace(build, cost={}, counts={}))):
        cell = Cell(benchmark="locomo", system=system, backbone="b")
        folder.builds(cell).append(each)
        folder.builds(cell).finish(["conv-1"])
    return folder


def test_calls_tokens_and_hours_grow_with_the_messages(run: RunFolder, locomo: Path) -> None:
    read = read_benchmark("locomo", locomo)
    built, whole = (
        sum(len(round_.turns) for d in dialogues for round_ in d.rounds)
        for dialogues in (read.dialogues[:1], read.dialogues)
    )
    assert built * 3 == whole * 2
    [found] = project_builds(run, {})
    assert (found.system, found.backbone, found.dialogues) == ("a-mem", "b", 1)
    assert (found.messages, found.whole, found.failed_steps) == (built, whole, 2)
    assert found.calls == (10 + 4) * 3 / 2
    assert found.prompt_tokens == (3_000 + 100) * 3 / 2
    assert found.completion_tokens == (500 + 20) * 3 / 2
    assert found.tokens == found.prompt_tokens + found.completion_tokens
    assert found.hours == pytest.approx((36 + 4) * 3 / 2 / 3_600)
    assert {one.table: (one.tokens, one.hours) for one in found.published} == PAPER_A_MEM


def test_of_a_conversation_built_in_part_only_that_part_counts(run: RunFolder) -> None:
    [whole] = project_builds(run, {})
    manifest = run.path / "manifest.json"
    plan = json.loads(manifest.read_text())
    plan["plan"]["benchmarks"][0]["sessions"] = 1
    write_json(manifest, plan)
    [found] = project_builds(run, {})
    assert (found.messages * 2, found.whole) == (whole.messages, whole.whole)
    assert found.calls == 2 * whole.calls


def test_money_is_by_the_price_list_and_own_machines_have_no_price(run: RunFolder) -> None:
    [found] = project_builds(run, {})
    prices = load_prices()
    assert found.usd() == {
        model: cost_usd(price, found.prompt_tokens, found.completion_tokens)
        for model, price in prices.items()
        if not price.self_hosted
    }
    assert found.usd() and len(found.usd()) < len(prices)


def test_a_run_without_such_builds_says_so(run: RunFolder) -> None:
    for path in (run.path / "builds").glob("*.a-mem.*"):
        path.unlink()
    with pytest.raises(InputError, match="no memory in it was built by a language model"):
        project_builds(run, {})


def test_the_command_prints_it_and_tells_of_failed_steps(
    run: RunFolder, locomo: Path, tmp_path: Path
) -> None:
    def said(*words: str) -> Any:
        return CliRunner().invoke(app, ["eval", "cost", *words], env={"COLUMNS": "400"})

    table = said(str(run.path), "--data", f"locomo={locomo}")
    assert table.exit_code == 0, table.output
    [found] = project_builds(run, {})
    for figure in (f"{found.tokens / 1e6:.2f}M", "T4 7.80M, 5.3 h", "of 72", "gpt-4o-mini"):
        assert re.search(re.escape(figure), table.output), figure
    assert "2 steps of these builds failed" in table.output
    [as_json] = json.loads(said(str(run.path), "--json").output)
    assert as_json["projected"]["tokens"] == found.tokens
    assert as_json["published"][0]["table"] == 4
    by_hand = json.loads(said(str(run.path), "--json", "--speed", "mine=100,10").output)
    expected = (found.prompt_tokens / 100 + found.completion_tokens / 10) / 3_600
    assert by_hand[0]["projected"]["hours_by_speed"]["mine"] == pytest.approx(expected)
    assert "mine" in said(str(run.path), "--speed", "mine=100,10").output
    nowhere: Callable[..., Any] = said(str(tmp_path / "none")).exception
    assert isinstance(nowhere, InputError)


@pytest.mark.parametrize("given", ["mine", "mine=", "mine=5", "mine=5,", "mine=5,0", "mine=a,b"])
def test_a_speed_of_another_form_is_one_sentence(given: str) -> None:
    with pytest.raises(InputError, match=f"--speed {given}: give NAME=PROMPT,COMPLETION") as error:
        speeds_given([given])
    assert "\n" not in str(error.value)


def test_every_priced_backbone_has_a_speed_with_its_source() -> None:
    speeds = load_speeds()
    priced = {name for name, price in load_prices().items() if not price.self_hosted}
    assert priced <= speeds.keys()
    assert all("Table" in speed.source for speed in speeds.values())


def test_what_a_build_takes_by_script_is_a_run_that_is_projected(
    small_locomo: Path, tmp_path: Path
) -> None:
    run = RunFolder(tmp_path / "costs")
    write_run({"locomo": small_locomo}, run, SYSTEMS, {})
    found = {each.system: each for each in project_builds(run, {})}
    messages = found["omni"].messages
    windows = -(-messages // 40)
    calls = {system: found[system].measured.calls for system in SYSTEMS}
    assert calls["a-mem"] == 2 * messages - 1  # the first note has no neighbours
    assert calls["m2a"] == (2 + 4) * messages  # search, add, add and done are the memory agent's
    assert calls["omni"] == windows
    assert calls["omni-released"] > windows + messages / 2
    assert all(each.hours == each.failed_steps == 0 for each in found.values())
    assert all(each.measured.completion_tokens > 0 for each in found.values())
