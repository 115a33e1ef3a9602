"""Doubles of Ray's metrics that remember, and the names that dashboard and alerts ask for."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

import serve.telemetry

MONITORING = Path(__file__).parents[3] / "k8s" / "monitoring"
_BEYOND_NAMES = re.compile(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\b(by|on|without)\s*\([^)]*\)')


@dataclass
class Recorded:
    """What was told to metrics.

    Attributes:
        kinds: Every metric made, with its kind and its labels.
        told: Name, value and labels of each record, in order.
    """

    kinds: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    told: list[tuple[str, float, dict[str, str]]] = field(default_factory=list)

    def of(self, name: str) -> list[tuple[float, dict[str, str]]]:
        return [(value, labels) for told, value, labels in self.told if told == name]

    def total(self, name: str, **labels: str) -> float:
        return sum(value for value, found in self.of(name) if labels.items() <= found.items())

    def exported(self) -> set[str]:
        """The names under which Ray exports what was made."""
        suffixes = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_sum"]}
        return {
            f"ray_{name}{suffix}"
            for name, (kind, _) in self.kinds.items()
            for suffix in suffixes[kind]
        }

    def metric(self, kind: str) -> Callable[..., Any]:
        """The class of Ray's that this double stands for, with the checks that Ray makes."""
        recorded = self

        class Double:
            def __init__(self, name: str, text: str, *rest: Any) -> None:
                assert text
                *buckets, labels = rest
                assert all(b > 0 for bounds in buckets for b in bounds)
                recorded.kinds[name] = (kind, labels)
                self.name, self.labels = name, labels

            def inc(self, value: float, labels: dict[str, str] | None = None) -> None:
                assert kind != "counter" or value > 0
                labels = labels or {}
                assert tuple(sorted(labels)) == tuple(sorted(self.labels))
                assert all(isinstance(label, str) for label in labels.values())
                recorded.told.append((self.name, value, dict(labels)))

            set = observe = inc

        return Double


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Takes the place of Ray's metrics in what the test makes."""
    recorded = Recorded()
    for name in ("Counter", "Gauge", "Histogram"):
        monkeypatch.setattr(serve.telemetry, name, recorded.metric(name.lower()))
    return recorded


@pytest.fixture
def each_set_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gauges tell every value that is set, where else their keeper tells the last one."""

    def told(self: Any, value: float, **labels: str) -> None:
        self._gauge.set(value, labels)

    monkeypatch.setattr(serve.telemetry._KeptGauge, "set", told)


@pytest.fixture(scope="session")
def expressions() -> dict[str, str]:
    """Every PromQL expression of the dashboard and of the rules, by where it stands."""
    dashboard = json.loads((MONITORING / "grafana" / "vmem.json").read_text())
    found = {
        f"panel {panel['title']} {target['refId']}": target["expr"]
        for panel in _panels(dashboard)
        for target in panel.get("targets", ())
    }
    for rule in _rules():
        found[f"rule {rule.get('alert', rule.get('record'))}"] = rule["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            found[f"variable {variable['name']}"] = variable["definition"]
    return found


@pytest.fixture(scope="session")
def names_used(expressions: dict[str, str]) -> set[str]:
    """The metrics of those expressions, without those that the rules record."""
    bare = [_BEYOND_NAMES.sub(" ", expression) for expression in expressions.values()]
    names = {name for text in bare for name in re.findall(r"\b(?:ray_|vmem[_:])[\w:]*", text)}
    return names - {rule["record"] for rule in _rules() if "record" in rule}


def _panels(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", ())


def _rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]
