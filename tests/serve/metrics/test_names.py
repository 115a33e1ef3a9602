"""Dashboard and alerts ask only for what is exported, and tell a reader what to do."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from serve.scrape import KEPT, merge_texts
from serve.telemetry import ApiMetrics, RetrieverMetrics, WriterMetrics

MONITORING = Path(__file__).parents[3] / "k8s" / "monitoring"


def test_our_metrics_are_those_that_replicas_export(recorded: Any, names_used: set[str]) -> None:
    ApiMetrics()
    RetrieverMetrics()
    WriterMetrics()
    own = {line.split()[2] for line in merge_texts({}).decode().splitlines() if "# TYPE" in line}
    ours = {name for name in names_used if name.startswith(("ray_vmem_", "vmem_"))}
    assert ours - recorded.exported() - own == set()
    shown = {name for name in recorded.exported() if not name.endswith("_sum")}
    assert shown - ours == set(), "counted, and shown nowhere"


def test_rays_metrics_are_kept_and_vllms_are_those_that_ray_shows(names_used: set[str]) -> None:
    theirs = {name for name in names_used if name.startswith("ray_")}
    assert all(name.startswith(KEPT) for name in theirs)
    panels = files("ray.dashboard.modules.metrics.dashboards") / "serve_llm_dashboard_panels.py"
    text = panels.read_text()
    vllm = {name for name in theirs if name.startswith("ray_vllm_")}
    assert len(vllm) == 8
    assert {name for name in vllm if name.removesuffix("_bucket") not in text} == set()


def test_no_mean_is_made_of_a_histograms_sum(expressions: dict[str, str]) -> None:
    """Ray makes sums up from the middles of buckets."""
    assert [
        where for where, text in expressions.items() if "_sum{" in text or "_sum[" in text
    ] == []


def test_every_alert_says_what_to_do() -> None:
    groups = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    assert len(alerts) == 12
    for alert in alerts:
        assert alert["labels"]["severity"] in {"critical", "warning"}
        assert set(alert["annotations"]) == {"summary", "description", "runbook"}
        assert len(alert["annotations"]["runbook"]) > 80


def test_the_dashboard_is_one_that_grafana_can_lay_out() -> None:
    dashboard = json.loads((MONITORING / "grafana" / "vmem.json").read_text())
    rows = [panel["title"] for panel in dashboard["panels"] if panel["type"] == "row"]
    assert rows == [
        "Traffic",
        "Latency",
        "Backbone",
        "Memories and cache",
        "Encoders",
        "Rejections and queues",
        "Ray and Serve",
        "vLLM",
    ]
    inner = [inner for panel in dashboard["panels"] for inner in panel.get("panels", ())]
    panels = [*dashboard["panels"], *inner]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [cell for panel in panels for cell in _cells(panel["gridPos"])]
    assert len(set(cells)) == len(cells), "panels lie over each other"
    assert max(x for x, _ in cells) < 24
    for panel in panels:
        if panel["type"] != "row":
            assert panel["description"]
            assert panel["datasource"]["uid"] == "${datasource}"


def _cells(place: dict[str, int]) -> list[tuple[int, int]]:
    return [
        (place["x"] + dx, place["y"] + dy) for dx in range(place["w"]) for dy in range(place["h"])
    ]
