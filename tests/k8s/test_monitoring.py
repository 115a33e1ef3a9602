"""The Prometheus operator's objects say what the files beside them say."""

import json
from pathlib import Path

import yaml


def test_the_operators_rules_are_those_that_promtool_tests(k8s: Path) -> None:
    folder = k8s / "monitoring"
    rule = yaml.safe_load((folder / "prometheusrule.yaml").read_text(encoding="utf-8"))
    alerts = yaml.safe_load((folder / "alerts.yml").read_text(encoding="utf-8"))
    assert rule["kind"] == "PrometheusRule"
    assert rule["spec"] == alerts, "run k8s/monitoring/rule.sh"


def test_no_count_is_scraped_twice(k8s: Path) -> None:
    """Nodes give their own counts; of the application's merged ones only what it alone knows."""
    text = (k8s / "monitoring" / "monitors.yaml").read_text(encoding="utf-8")
    monitors = {m["metadata"]["name"]: m["spec"] for m in yaml.safe_load_all(text)}
    (endpoint,) = monitors["application"]["endpoints"]
    (kept,) = endpoint["metricRelabelings"]
    assert kept == {"sourceLabels": ["__name__"], "regex": "vmem_.*", "action": "keep"}
    (nodes,) = monitors["ray"]["podMetricsEndpoints"]
    assert "metricRelabelings" not in nodes


def test_dashboards_travel_in_a_config_map(k8s: Path) -> None:
    kustomization = yaml.safe_load((k8s / "monitoring" / "kustomization.yaml").read_text())
    (made,) = kustomization["configMapGenerator"]
    for name in made["files"]:
        path = k8s / "monitoring" / name
        assert json.loads(path.read_text(encoding="utf-8"))["uid"] == path.stem
        assert path.stat().st_size < 2**20  # the most that a ConfigMap holds
    assert made["options"]["labels"] == {"grafana_dashboard": "1"}
