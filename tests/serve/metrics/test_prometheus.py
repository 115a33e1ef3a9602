"""A real Prometheus scrapes the real application: two replicas, one of which dies.

Beside the application runs a second one, whose two replicas make every call of the metric classes,
so that every name exists; what the application itself tells is asserted on its own.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # read when Ray is imported
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(280)]

HERE = Path(__file__).parent
ALERTS = HERE.parents[2] / "k8s" / "monitoring" / "alerts.yml"
APPENDS, SEARCHES, ANSWERS, PROBES = 6, 30, 4, 40
ROUTE = "/v1/memories/{memory}"
WAIT_S = 60
OFTEN = {"RAY_metrics_report_interval_ms": "1000", "RAY_SERVE_STATUS_GAUGE_REPORT_INTERVAL_S": "1"}
"""What is not told again within two reports is forgotten, so Serve tells its gauges as often."""


@dataclass(frozen=True, kw_only=True)
class Scraped:
    """An application that a Prometheus scrapes.

    Attributes:
        url: The application's address.
        prometheus: Prometheus' address.
        probe: Handle of the second application.
    """

    url: str
    prometheus: str
    probe: Any

    def text(self) -> str:
        return httpx.get(f"{self.url}/metrics", trust_env=False).raise_for_status().text

    def total(self, name: str, **labels: str) -> float:
        return sum(
            sample.value
            for family in text_string_to_metric_families(self.text())
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def ask(self, path: str, **parameters: str) -> Any:
        reply = httpx.get(f"{self.prometheus}{path}", params=parameters, trust_env=False)
        return reply.raise_for_status().json()["data"]


def _until(value: Callable[[], object], expected: object) -> None:
    """Wait until replicas have exported what they counted, then compare."""
    deadline = time.monotonic() + WAIT_S
    while value() != expected and time.monotonic() < deadline:
        time.sleep(1)
    assert value() == expected


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"there is no {name}: apt-get install prometheus")
    return path


@pytest.fixture(scope="module")
def scraped(
    tmp_path_factory: pytest.TempPathFactory, served_settings: Callable[..., dict[str, Any]]
) -> Iterator[Scraped]:
    binary = _tool("prometheus")
    os.environ.update(OFTEN)
    from ray import serve as ray_serve

    from serve.launch import address, embedded_store, end, free_port, local_ray, start
    from serve.settings import load_serve_settings

    home = tmp_path_factory.mktemp("scraped")
    settings = load_serve_settings(served_settings(home, free_port()))
    with embedded_store(settings.memory_settings()) as memory, local_ray(settings):
        start(settings, memory)
        probe = ray_serve.run(_probe(), name="probe", route_prefix="/probe")
        process, prometheus = _start_prometheus(binary, home, address(settings), free_port())
        try:
            yield Scraped(url=address(settings), prometheus=prometheus, probe=probe)
        finally:
            process.terminate()
            process.wait(30)
            end()
            for name in OFTEN:
                os.environ.pop(name)


def _probe() -> Any:
    """An application of two replicas that make every call once when called."""
    from ray import serve as ray_serve

    class Probe:
        def __init__(self) -> None:
            from serve.telemetry import ApiMetrics, RetrieverMetrics, WriterMetrics

            self.api, self.retriever, self.writer = (
                ApiMetrics(),
                RetrieverMetrics(),
                WriterMetrics(),
            )
            self.calls = 0

        def tell(self, answer: Any) -> None:
            self.calls += 1
            self.api.request("/probe", "text->image", 200, 0.1)
            self.api.request("/probe", "", 504, 9.0)
            self.api.rejected("rate")
            self.api.under_way("search", 1)
            self.retriever.retrieved(answer.retrieval)
            self.retriever.answered(answer, 0.5, 1.0)
            self.retriever.model_failed("answer", "ModelTimeoutError")
            self.retriever.encoded("text", 4, 0.01)
            self.retriever.cache(self.calls, self.calls, self.calls, 1, 10)
            with self.retriever.call():
                pass
            self.writer.appended(rounds=2, batch=1, seconds=0.1, units=5)
            self.writer.encoded("image", 3, 0.1)
            self.writer.erased("round")
            self.writer.log(3, 20)

        def die(self) -> None:
            os.kill(os.getpid(), 9)

    deployment = ray_serve.deployment(Probe)
    options = {"num_replicas": 2, "ray_actor_options": {"num_cpus": 0.1}}
    return deployment.options(health_check_period_s=1, **options).bind()


def _answer() -> Any:
    from vmem.types import (
        Anchors,
        Answer,
        Case,
        Context,
        Failure,
        Query,
        Retrieval,
        Route,
        Usage,
    )

    case = Case.TEXT_TO_IMAGE
    failure = Failure(role="hypo_caption", error="ModelUnavailableError")
    retrieval = Retrieval(
        query=Query(text="which tent?"),
        route=Route(
            case=case, counts_images=False, aggregates=False, asks_conflict=False, reason=""
        ),
        anchors=Anchors(by_signal={}, failures=(failure,)),
        ranked=(),
        context=Context(blocks=(), found=()),
        seconds={"search": 0.02},
    )
    usage = (Usage(role="answer", prompt_tokens=11, completion_tokens=7),)
    return Answer(text="green", retrieval=retrieval, prompt="", usage=usage)


def _start_prometheus(
    binary: str, home: Path, url: str, port: int
) -> tuple[subprocess.Popen[bytes], str]:
    address = f"127.0.0.1:{port}"
    jobs = [("vmem", url.removeprefix("http://")), ("prometheus", address)]
    config = {
        "global": {"scrape_interval": "5s", "scrape_timeout": "5s", "evaluation_interval": "5s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [
            {"job_name": name, "static_configs": [{"targets": [target]}]} for name, target in jobs
        ],
    }
    (home / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = [binary, f"--config.file={home / 'prometheus.yml'}"]
    command += [f"--storage.tsdb.path={home / 'tsdb'}", f"--web.listen-address={address}"]
    with (home / "prometheus.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log), f"http://{address}"


@pytest.fixture(scope="module")
def used(scraped: Scraped) -> Scraped:
    """The application after a known number of calls."""
    with httpx.Client(base_url=scraped.url, timeout=60, trust_env=False) as client:
        for number in range(APPENDS):
            one = {"id": f"r{number}", "session": "s", "time": "2026-05-04T09:00", "user": "a tent"}
            client.post("/v1/memories/trip/rounds", json={"rounds": [one]}).raise_for_status()
        for _ in range(SEARCHES):
            reply = client.post("/v1/memories/trip/search", json={"query": "which tent?"})
            reply.raise_for_status()
        for _ in range(ANSWERS):
            reply = client.post("/v1/memories/trip/answer", json={"query": "which tent?"})
            reply.raise_for_status()
        assert client.get("/v1/memories/none").status_code == 404
        client.delete("/v1/memories/trip/rounds/r0").raise_for_status()
    return scraped


def test_sums_over_replicas_are_the_calls_made(used: Scraped) -> None:
    """Each total is waited for: what one call counts may be exported in two reports."""
    searches = SEARCHES + ANSWERS

    def become(expected: float, name: str, **labels: str) -> None:
        _until(lambda: used.total(f"ray_vmem_{name}", application="vmem", **labels), expected)

    become(searches, "searches_total")
    become(searches, "cache_lookups_total")
    become(searches, "stage_seconds_count", stage="search")
    become(ANSWERS, "answers_total")
    become(ANSWERS, "first_token_seconds_count")
    become(APPENDS, "appended_rounds_total")
    become(APPENDS, "appended_units_total")
    become(1, "erasures_total", what="round")
    become(1, "memories")
    become(APPENDS - 1, "rounds")
    become(0, "queue_length")
    become(SEARCHES, "requests_total", route=f"{ROUTE}/search", status="200")
    become(ANSWERS, "requests_total", route=f"{ROUTE}/answer", status="200")
    become(APPENDS, "requests_total", route=f"{ROUTE}/rounds", status="200")
    become(1, "requests_total", route=ROUTE, status="404")
    replicas = re.findall(r'ray_vmem_searches_total{[^}]*deployment="Retriever"[^}]*}', used.text())
    assert len(set(replicas)) == 2
    queues = re.findall(r'ray_vmem_queue_length{[^}]*deployment="(\w+)"[^}]*}', used.text())
    assert {"Retriever", "Writer"} <= set(queues)


def test_a_node_started_here_gives_metrics_to_this_machine_only(used: Scraped) -> None:
    (node,) = set(re.findall(r'node="([^"]*)"', used.text()))
    host, _, port = node.partition(":")
    assert host == "127.0.0.1"
    sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    heard = {local for _, local, _, state, *_ in sockets if state == "0A"}
    assert {local for local in heard if local.endswith(f":{int(port):04X}")} == {
        f"0100007F:{int(port):04X}"
    }


def test_counters_never_fall_when_a_replica_dies(used: Scraped) -> None:
    def become(expected: float, name: str, **labels: str) -> None:
        _until(lambda: used.total(f"ray_vmem_{name}", application="probe", **labels), expected)

    answer = _answer()
    for _ in range(PROBES):
        used.probe.tell.remote(answer).result()
    become(PROBES, "requests_total", status="200")
    become(PROBES * (11 + 7), "tokens_total")
    become(3 * PROBES, "cache_lookups_total")
    become(PROBES * (4 + 3), "encoded_items_total")
    become(PROBES, "model_failures_total", role="answer")
    become(PROBES, "model_failures_total", role="hypo_caption")
    become(PROBES, "degraded_searches_total")
    with pytest.raises(Exception, match=r"died|dead|unavailable|exit"):
        used.probe.die.remote().result()
    for _ in range(PROBES):
        used.probe.tell.remote(answer).result()
    become(2 * PROBES, "requests_total", status="200")


def test_gauges_stand_while_nothing_happens(used: Scraped) -> None:
    """Ray forgets a gauge that is not set for two report intervals."""
    _until(lambda: used.total("ray_vmem_hot_memories", application="vmem") >= 1, True)
    time.sleep(10)
    assert used.total("ray_vmem_hot_memories", application="vmem") >= 1


def test_prometheus_takes_every_sample(used: Scraped) -> None:
    (target,) = [
        target
        for target in used.ask("/api/v1/targets")["activeTargets"]
        if target["labels"]["job"] == "vmem"
    ]
    assert (target["health"], target["lastError"]) == ("up", "")
    refused = used.ask(
        "/api/v1/query",
        query='sum({__name__=~"prometheus_target_scrapes_(sample_.*|exceeded_.*)_total"})',
    )["result"]
    assert float(refused[0]["value"][1]) == 0


def test_every_metric_that_is_asked_for_exists(used: Scraped, names_used: set[str]) -> None:
    used.probe.tell.remote(_answer()).result()
    _until(lambda: _missing(used, names_used), set())


def _missing(used: Scraped, names: set[str]) -> set[str]:
    there = set(used.ask("/api/v1/label/__name__/values"))
    return {name for name in names - there if not name.startswith("ray_vllm_")}


def test_every_expression_finds_something(used: Scraped, expressions: dict[str, str]) -> None:
    """Calls go on meanwhile: a rate sees only what comes after a series' first value."""
    used.probe.tell.remote(_answer()).result()
    with httpx.Client(base_url=used.url, timeout=60, trust_env=False) as client:

        def found() -> list[str]:
            assert client.get("/v1/memories/none").status_code == 404
            return _fruitless(used, expressions)

        _until(found, [])


def _fruitless(used: Scraped, expressions: dict[str, str]) -> list[str]:
    """Panels and recorded rules that give nothing; alerts give nothing when all is well."""
    found = []
    for where, expression in expressions.items():
        if where.startswith(("variable ", "rule Vmem")) or "ray_vllm_" in expression:
            continue
        query = re.sub(r"\$(route|case)\b", ".*", expression.replace("$__rate_interval", "1m"))
        if not used.ask("/api/v1/query", query=query)["result"]:
            found.append(where)
    return found


def test_prometheus_runs_every_rule(used: Scraped) -> None:
    groups = used.ask("/api/v1/rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == 18
    assert {rule["lastError"] for rule in rules if rule["health"] == "err"} == set()


def test_promtool_finds_fault_with_rays_names_only(used: Scraped) -> None:
    done = subprocess.run(
        [_tool("promtool"), "check", "metrics"], input=used.text(), capture_output=True, text=True
    )
    assert "error while linting" not in done.stderr
    faults = [line for line in done.stderr.splitlines() if not line.startswith("ray_serve_")]
    assert faults == []


@pytest.mark.parametrize("check", [["check", "rules", str(ALERTS)], ["test", "rules"]])
def test_promtool_takes_the_rules(check: list[str]) -> None:
    command = [_tool("promtool"), *check]
    if check[0] == "test":
        command.append(str(HERE / "alerts_test.yml"))
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
