"""The dev overlay's application on a real Ray, by Serve's REST API, as KubeRay deploys it."""

import copy
import json
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import yaml

from serve.launch import free_port

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.timeout(1800)]

PATIENCE_S = 300
APPLICATIONS = "/api/serve/applications/"
ROUND = {
    "id": "1",
    "session": "monday",
    "time": "2026-05-04T09:00",
    "user": "The ferry leaves at 7:40.",
    "assistant": "Noted.",
}
QUESTION = {"query": "When does the ferry leave?"}


def _config(rendered: Callable[..., list[dict[str, Any]]]) -> dict[str, Any]:
    """The RayService's own, on a free port of loopback instead of the pod's address."""
    (service,) = [each for each in rendered("overlays/dev") if each["kind"] == "RayService"]
    config: dict[str, Any] = yaml.safe_load(service["spec"]["serveConfigV2"])
    here = {"host": "127.0.0.1", "port": free_port()}
    config["http_options"] |= here
    config["applications"][0]["args"]["http"] |= here
    return config


def _cpus(rendered: Callable[..., list[dict[str, Any]]]) -> int:
    (service,) = [each for each in rendered("overlays/dev") if each["kind"] == "RayService"]
    (group,) = service["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    return int(group["rayStartParams"]["num-cpus"])


def _application(cluster: Any) -> dict[str, Any]:
    told = cluster.ask("GET", APPLICATIONS)
    application: dict[str, Any] = told["applications"].get("vmem", {})
    assert application.get("status") != "DEPLOY_FAILED", application["message"]
    return application


def _replicas(application: Mapping[str, Any]) -> dict[str, set[str]]:
    return {
        name: {each["replica_id"] for each in deployment["replicas"]}
        for name, deployment in application["deployments"].items()
    }


@contextmanager
def _asked_without_end(
    url: str, headers: Mapping[str, str], paths: Mapping[str, int]
) -> Iterator[Counter[tuple[str, Any]]]:
    """Callers that ask on and on; their replies are counted by path and status."""
    ended, seen, lock = threading.Event(), Counter[tuple[str, Any]](), threading.Lock()

    def ask(path: str) -> None:
        with httpx.Client(
            base_url=url, headers=headers, timeout=PATIENCE_S, trust_env=False
        ) as client:
            while not ended.is_set():
                try:
                    status: Any = client.post(path, json=QUESTION).status_code
                except httpx.HTTPError as error:
                    status = repr(error)
                with lock:
                    seen[path, status] += 1

    threads = [
        threading.Thread(target=ask, args=(path,)) for path, n in paths.items() for _ in range(n)
    ]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_it_answers_and_takes_a_new_config_while_callers_ask(
    rendered: Callable[..., list[dict[str, Any]]],
    local_cluster: Callable[..., Any],
    pod_env: Callable[[str], dict[str, str]],
    milvus_server: str,
    wait_until: Callable[..., None],
) -> None:
    config = _config(rendered)
    cluster = local_cluster(pod_env(milvus_server))
    cluster.add_node(_cpus(rendered))
    refused = httpx.put(cluster.dashboard + APPLICATIONS, json=config, trust_env=False)
    assert refused.status_code == 401
    cluster.ask("PUT", APPLICATIONS, config)
    wait_until(lambda: _application(cluster).get("status") == "RUNNING")

    url = f"http://127.0.0.1:{config['http_options']['port']}"
    ready = httpx.get(f"{url}/readyz", timeout=PATIENCE_S, trust_env=False)
    assert ready.status_code == 200, ready.text
    made = subprocess.run(
        ["vmem", "keys", "create", "acme", "--name", "our app", "--json"],
        env=cluster.env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    headers = {"authorization": f"Bearer {json.loads(made.stdout)['secret']}"}
    memory = "/v1/memories/trip"
    refused = httpx.post(f"{url}{memory}/answer", json=QUESTION, trust_env=False)
    assert refused.status_code == 401
    with httpx.Client(base_url=url, headers=headers, timeout=PATIENCE_S, trust_env=False) as client:
        assert client.post(f"{memory}/rounds", json={"rounds": [ROUND]}).status_code == 200
        answer = client.post(f"{memory}/answer", json=QUESTION)
    assert answer.status_code == 200, answer.text
    assert answer.json()["answer"]
    assert [each["round_id"] for each in answer.json()["citations"]] == ["1"]

    first = _replicas(_application(cluster))
    assert set(first) == {"Api", "Retriever", "Writer", "Backbone"}
    changed = copy.deepcopy(config)
    changed["applications"][0]["args"]["memory"]["answer"]["max_tokens"] = 16
    asked = {f"{memory}/search": 3, f"{memory}/answer": 1}

    def replaced() -> bool:
        application = _application(cluster)
        now = _replicas(application)
        return application["status"] == "RUNNING" and all(
            now[name] and not now[name] & before for name, before in first.items()
        )

    with _asked_without_end(url, headers, asked) as seen:
        wait_until(lambda: {path for path, _ in seen} == set(asked))
        cluster.ask("PUT", APPLICATIONS, changed)
        wait_until(replaced)
        done = Counter(path for path, _ in seen.elements())
        wait_until(lambda: all(Counter(p for p, _ in seen.elements())[x] > done[x] for x in asked))
    assert set(seen) == {(path, 200) for path in asked}, seen
    print(f"asked meanwhile: {dict(seen)}")  # noqa: T201
