"""Every alert fires in a test of promtool's, and stays silent in one."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

CASES = Path(__file__).parents[1] / "serve" / "metrics" / "alerts_test.yml"


def _alerts(k8s: Path) -> set[str]:
    groups = yaml.safe_load((k8s / "monitoring" / "alerts.yml").read_text())["groups"]
    return {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}


def test_every_alert_fires_in_one_case_and_is_silent_in_another(k8s: Path) -> None:
    tests: list[dict[str, Any]] = yaml.safe_load(CASES.read_text())["tests"]
    silent = {
        case["alertname"]
        for test in tests
        for case in test.get("alert_rule_test", ())
        if not case["exp_alerts"]
    }
    fired = str([case for test in tests for case in test.get("promql_expr_test", ())])
    alerts = _alerts(k8s)
    assert len(alerts) == 12
    assert silent == alerts
    assert {name for name in alerts if f'alertname="{name}"' in fired} == alerts


@pytest.mark.parametrize(
    "words",
    [["check", "rules", "--lint=all", "--lint-fatal"], ["test", "rules"]],
    ids=["check", "test"],
)
def test_promtool_agrees(k8s: Path, words: list[str]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool: apt-get install prometheus")
    path = CASES if words[0] == "test" else k8s / "monitoring" / "alerts.yml"
    done = subprocess.run([promtool, *words, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout
