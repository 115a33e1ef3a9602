"""A real Prometheus scrapes two nodes as the monitors say; under load every expression finds data.

Labels that Kubernetes' service discovery gives are given by hand; what vLLM counts is left out,
since the dev overlay's backbone is none (tests/serve/vllm reads those from a real one).
"""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from serve.launch import free_port

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.timeout(1800)]

MONITORING = Path(__file__).parents[4] / "k8s" / "monitoring"
Object = dict[str, Any]
THRESHOLD = re.compile(r" [<>] [\d.]+")


def _scrape(monitor: str, targets: list[str], labels: Mapping[str, str]) -> Object:
    """The operator's scrape configuration of a monitor, for pods or a service of known address."""
    found = {
        each["metadata"]["name"]: each["spec"]
        for each in yaml.safe_load_all((MONITORING / "monitors.yaml").read_text(encoding="utf-8"))
    }
    spec = found[monitor]
    (endpoint,) = spec.get("podMetricsEndpoints") or spec["endpoints"]

    def relabelled(key: str) -> list[Object]:
        names = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
        return [
            {names.get(name, name): value for name, value in each.items()}
            for each in endpoint.get(key, ())
        ]

    return {
        "job_name": monitor,
        "scrape_interval": endpoint["interval"],
        "metrics_path": endpoint.get("path", "/metrics"),
        "static_configs": [{"targets": targets, "labels": dict(labels)}],
        "relabel_configs": relabelled("relabelings"),
        "metric_relabel_configs": relabelled("metricRelabelings"),
    }


@contextmanager
def _prometheus(folder: Path, scrapes: list[Object]) -> Iterator[Callable[..., Any]]:
    """A Prometheus with the alert rules; yields what asks its API."""
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("there is no prometheus: apt-get install prometheus")
    config = {"rule_files": [str(MONITORING / "alerts.yml")], "scrape_configs": scrapes}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    command = [binary, f"--config.file={folder}/prometheus.yml"]
    command += [f"--storage.tsdb.path={folder}/tsdb", f"--web.listen-address={address}"]

    def ask(path: str, **parameters: str) -> Any:
        reply = httpx.get(f"http://{address}/api/v1/{path}", params=parameters, trust_env=False)
        return reply.raise_for_status().json()["data"]

    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield ask
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def _load(application: Any) -> Iterator[Counter[tuple[str, Any]]]:
    """Callers of every kind: some are refused, some are in vain."""
    ended, seen = threading.Event(), Counter[tuple[str, Any]]()
    memory = application.memory
    picture = {"query": "Which picture shows the ferry?", "options": {"target": "image"}}

    def rounds(client: httpx.Client, n: int) -> None:
        one = {"id": f"r{n}", "session": "s", "time": "2026-05-04T09:00", "user": f"crate {n}"}
        seen["append", client.post(f"{memory}/rounds", json={"rounds": [one]}).status_code] += 1
        seen["erase", client.delete(f"{memory}/rounds/r{n}").status_code] += 1

    def asks(what: str, path: str, body: Object, headers: Mapping[str, str]) -> Any:
        def call(client: httpx.Client, _: int) -> None:
            reply = client.post(path, json=body, headers=headers)
            seen[what, reply.status_code] += 1

        return call

    def probes(client: httpx.Client, _: int) -> None:
        seen["ready", client.get("/readyz").status_code] += 1
        ended.wait(0.5)

    question = {"query": "When does the ferry leave?"}
    callers = [rounds, probes]
    callers += [asks("search", f"{memory}/search", question, {})]
    callers += [asks("picture", f"{memory}/search", picture, {})]
    callers += 2 * [asks("answer", f"{memory}/answer", question, {})]
    callers += [asks("no access", f"{memory}/search", question, {"authorization": "Bearer no"})]

    def run(caller: Callable[[httpx.Client, int], None]) -> None:
        with application.client() as client:
            n = 0
            while not ended.is_set():
                try:
                    caller(client, n)
                except httpx.HTTPError as error:
                    seen["lost", repr(error)] += 1
                n += 1
                ended.wait(0.2)

    threads = [threading.Thread(target=run, args=(caller,)) for caller in callers]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def _expressions() -> dict[str, str]:
    """Those of rules and dashboards, alerts without their thresholds, variables filled in."""
    found: list[str] = []

    def keep(entry: Object) -> Object:
        found.extend(
            entry[key] for key in ("expr", "definition") if isinstance(entry.get(key), str)
        )
        return entry

    for dashboard in (MONITORING / "grafana").glob("*.json"):
        json.loads(dashboard.read_text(encoding="utf-8"), object_hook=keep)
    rules = yaml.safe_load((MONITORING / "alerts.yml").read_text(encoding="utf-8"))
    json.loads(json.dumps(rules), object_hook=keep)
    return {
        text: THRESHOLD.sub("", re.sub(r"\$(route|case)\b", ".*", text))
        .replace("$__rate_interval", "1m")
        .replace("absent(vmem_build_info)", "vmem_build_info")
        for text in found
        if "ray_vllm_" not in text and not text.startswith("label_values")
    }


def _kill_backbone(application: Any) -> None:
    for replica in application.state()["deployments"]["Backbone"]["replicas"]:
        if replica["state"] == "RUNNING":
            with suppress(ProcessLookupError):
                os.kill(replica["pid"], signal.SIGKILL)


def test_every_expression_finds_data_on_two_nodes_under_load(
    dev_config: Object,
    worker_cpus: int,
    deploy: Callable[..., Any],
    local_cluster: Callable[..., Any],
    pod_env: Callable[[str], dict[str, str]],
    milvus_server: str,
    wait_until: Callable[..., None],
    tmp_path: Path,
) -> None:
    args = dev_config["applications"][0]["args"]
    args["memory"]["llm"]["anchor_timeout_s"] = 0.05  # so that searches go on without it
    args["admission"]["answer"] = 1  # so that some are refused
    cluster = local_cluster(pod_env(milvus_server))
    cluster.add_node(0)
    cluster.add_node(worker_cpus)
    application = deploy(cluster, dev_config)
    pods = {
        "__meta_kubernetes_pod_label_ray_io_cluster": "vmem-raycluster",
        "__meta_kubernetes_pod_label_vmem_part": "serving",
    }
    scrapes = [
        _scrape("ray", cluster.metrics, pods),
        _scrape("application", [application.url.removeprefix("http://")], {}),
    ]
    expressions = _expressions()
    assert len(expressions) >= 60
    with _prometheus(tmp_path, scrapes) as ask, _load(application) as seen:
        fruitless: list[str] = []

        def all_found() -> bool:
            fruitless[:] = [
                text for text in expressions if not ask("query", query=expressions[text])["result"]
            ]
            return not fruitless

        try:
            kinds = (("answer", 200), ("answer", 429), ("picture", 200))
            wait_until(lambda: all(seen[kind] for kind in kinds), 120)

            def failed() -> bool:
                _kill_backbone(application)
                return bool(seen["ready", 503] and sum(seen["answer", n] for n in (502, 503, 504)))

            wait_until(failed, 200)
            wait_until(all_found, 300)
        except AssertionError:
            pytest.fail(f"no data for {fruitless}; callers saw {dict(seen)}")
        up = ask("query", query="up")["result"]
        assert Counter(each["metric"]["job"] for each in up) == {"ray": 2, "application": 1}
        assert {each["value"][1] for each in up} == {"1"}
        clusters = ask("query", query="count by (ray_io_cluster, part) (ray_vmem_searches_total)")
        (where,) = [each["metric"] for each in clusters["result"]]
        assert where == {"ray_io_cluster": "vmem-raycluster", "part": "serving"}
        rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
        assert {rule["lastError"] for rule in rules if rule["health"] == "err"} == set()
    print(f"{len(expressions)} expressions; callers saw {dict(seen)}")  # noqa: T201
