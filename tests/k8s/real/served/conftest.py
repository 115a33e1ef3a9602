"""The dev overlay's application, deployed by Serve's REST API as KubeRay deploys it."""

import copy
import json
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import yaml

from serve.launch import free_port

PATIENCE_S = 300
APPLICATIONS = "/api/serve/applications/"
MEMORY = "/v1/memories/trip"
ROUND = {
    "id": "1",
    "session": "monday",
    "time": "2026-05-04T09:00",
    "user": "The ferry leaves at 7:40.",
    "assistant": "Noted.",
}
QUESTION = {"query": "When does the ferry leave?"}
Object = dict[str, Any]
Seen = Counter[tuple[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """An application on a cluster, with a memory of one round.

    Attributes:
        cluster: Where it runs.
        config: What was deployed, in Serve's own form.
        url: Its address.
        headers: Those of a caller with a key.
        memory: Path of the memory.
    """

    cluster: Any
    config: Object
    url: str
    headers: Mapping[str, str]
    memory: str = MEMORY

    def client(self) -> httpx.Client:
        """Calls it with its key."""
        return httpx.Client(
            base_url=self.url, headers=self.headers, timeout=PATIENCE_S, trust_env=False
        )

    def state(self) -> Object:
        """What Serve tells of it; empty while there is none."""
        told = self.cluster.ask("GET", APPLICATIONS)
        state: Object = told["applications"].get("vmem", {})
        assert state.get("status") != "DEPLOY_FAILED", state["message"]
        return state

    def replicas(self) -> dict[str, set[str]]:
        """Ids of each deployment's replicas."""
        return {
            name: {each["replica_id"] for each in deployment["replicas"]}
            for name, deployment in self.state()["deployments"].items()
        }

    @contextmanager
    def asked_without_end(self, paths: Mapping[str, int]) -> Iterator[Seen]:
        """Callers of each path that ask on and on; replies are counted by path and status."""
        ended, seen, lock = threading.Event(), Seen(), threading.Lock()

        def ask(path: str) -> None:
            with self.client() as client:
                while not ended.is_set():
                    try:
                        status: Any = client.post(path, json=QUESTION).status_code
                    except httpx.HTTPError as error:
                        status = repr(error)
                    with lock:
                        seen[path, status] += 1

        threads = [
            threading.Thread(target=ask, args=(path,))
            for path, n in paths.items()
            for _ in range(n)
        ]
        for thread in threads:
            thread.start()
        try:
            yield seen
        finally:
            ended.set()
            for thread in threads:
                thread.join()


@pytest.fixture
def dev_config(rendered: Callable[..., list[Object]]) -> Object:
    """The RayService's own, on a free port of loopback instead of the pod's address."""
    (service,) = [each for each in rendered("overlays/dev") if each["kind"] == "RayService"]
    config: Object = yaml.safe_load(service["spec"]["serveConfigV2"])
    here = {"host": "127.0.0.1", "port": free_port()}
    config["http_options"] |= here
    config["applications"][0]["args"]["http"] |= here
    return config


@pytest.fixture
def worker_cpus(rendered: Callable[..., list[Object]]) -> int:
    """Logical CPUs of the overlay's one worker."""
    (service,) = [each for each in rendered("overlays/dev") if each["kind"] == "RayService"]
    (group,) = service["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    return int(group["rayStartParams"]["num-cpus"])


@pytest.fixture
def deploy(wait_until: Callable[..., None]) -> Callable[[Any, Object], Deployed]:
    """Deploys a config on a cluster and appends a round; refused without token and without key."""

    def deployed(cluster: Any, config: Object) -> Deployed:
        refused = httpx.put(cluster.dashboard + APPLICATIONS, json=config, trust_env=False)
        assert refused.status_code == 401
        cluster.ask("PUT", APPLICATIONS, copy.deepcopy(config))
        url = f"http://127.0.0.1:{config['http_options']['port']}"
        made = subprocess.run(
            ["vmem", "keys", "create", "acme", "--name", "our app", "--json"],
            env=cluster.env, capture_output=True, text=True, check=True,
        )  # fmt: skip
        headers = {"authorization": f"Bearer {json.loads(made.stdout)['secret']}"}
        application = Deployed(cluster=cluster, config=config, url=url, headers=headers)
        wait_until(lambda: application.state().get("status") == "RUNNING")
        ready = httpx.get(f"{url}/readyz", timeout=PATIENCE_S, trust_env=False)
        assert ready.status_code == 200, ready.text
        refused = httpx.post(f"{url}{MEMORY}/answer", json=QUESTION, trust_env=False)
        assert refused.status_code == 401
        with application.client() as client:
            appended = client.post(f"{MEMORY}/rounds", json={"rounds": [ROUND]})
        assert appended.status_code == 200, appended.text
        return application

    return deployed
