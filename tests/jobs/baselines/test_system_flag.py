"""`vmem eval run --system`: any system on a plan, by its name."""

import re
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jobs.evaluation.plan import load_plan
from vmem.cli import app
from vmem.config import CONFIGS
from vmem.errors import ConfigError


def test_named_systems_take_the_place_of_the_plans() -> None:
    usual = load_plan("demo", {})
    plan = load_plan("demo", {}, ["a-mem", "murag", "a-mem"])
    assert plan.systems == ("a-mem", "murag") != usual.systems
    assert plan.model_copy(update={"systems": usual.systems}) == usual


def test_what_a_plan_left_out_may_be_named() -> None:
    assert "dense" in load_plan("evidence", {}).systems
    left_out = load_plan("evidence", {}).left_out
    assert "siglip" in left_out
    plan = load_plan("evidence", {}, ["murag"])
    assert (plan.systems, plan.left_out) == (("murag",), {})


def test_a_system_that_needs_a_model_is_refused_where_there_is_none() -> None:
    with pytest.raises(ConfigError, match="system 'a-mem' needs a language model"):
        load_plan("evidence", {}, ["a-mem"])


def test_an_unknown_system_is_one_sentence_before_anything_is_written(tmp_path: Path) -> None:
    words = ["eval", "run", "--plan", "demo", "--system", "nobody", "--out", str(tmp_path / "run")]
    error = CliRunner().invoke(app, words).exception
    assert isinstance(error, ConfigError)
    assert str(error).startswith("no system is named 'nobody'; known: ")
    assert "a-mem" in str(error) and "\n" not in str(error)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "path", sorted((CONFIGS / "benchmarks").glob("*.yaml")), ids=lambda path: path.stem
)
def test_every_plan_that_comes_with_vmem_can_be_read(path: Path) -> None:
    assert load_plan(path.stem, {}).name == path.stem


@pytest.mark.parametrize("system", ["omni", "a-mem", "m2a", "murag"])
def test_the_demonstration_of_a_system_takes_the_row_with_short_replies(system: str) -> None:
    line = subprocess.run(
        ["make", "--dry-run", "--always-make", "eval-demo", f"SYSTEM={system}"],
        cwd=CONFIGS.parent,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.replace("\\\n\t", "")
    [row] = re.findall(r"--plan demo-other --system (\S+) ", line)
    assert row == (system if system == "murag" else f"{system}-small")
    assert row in load_plan("demo-other", {}).systems
