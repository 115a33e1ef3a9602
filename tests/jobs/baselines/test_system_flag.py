"""`vmem eval run --system`: any system on a plan, by its name."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from jobs.evaluation.plan import load_plan
from vmem.cli import app
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
