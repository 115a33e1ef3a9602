"""A head whose state is in Redis dies: workers serve on, and the next head knows what was."""

import copy
import secrets
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from serve.launch import free_port

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.timeout(1800)]

SEARCHERS, ANSWERS_WITHOUT_HEAD = 3, 20


@pytest.fixture
def redis(tmp_path: Path, wait_until: Callable[..., None]) -> Iterator[dict[str, str]]:
    """A Redis with a password; gives the variables that KubeRay sets for `gcsFaultTolerance`.

    The overlays' command, but for the folder, the address, and the port.
    """
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("there is no redis-server: apt-get install redis-server")
    port, password = free_port(), secrets.token_hex(24)
    options = ["--requirepass", password, "--appendonly", "yes", "--dir", str(tmp_path)]
    options += ["--port", str(port), "--bind", "127.0.0.1"]
    with (tmp_path / "redis.log").open("wb") as log:
        process = subprocess.Popen([binary, *options], stdout=log, stderr=log)
    wait_until(lambda: b"Ready to accept" in (tmp_path / "redis.log").read_bytes(), 30)
    yield {
        "RAY_REDIS_ADDRESS": f"127.0.0.1:{port}",
        "REDIS_PASSWORD": password,
        "RAY_external_storage_namespace": "vmem",
        "RAY_gcs_rpc_server_reconnect_timeout_s": "600",
    }
    process.terminate()
    process.wait(30)


def _answered(seen: Mapping[tuple[str, Any], int]) -> Counter[str]:
    return Counter({path: n for (path, status), n in list(seen.items()) if status == 200})


def test_workers_serve_on_and_the_next_head_knows_what_was(
    dev_config: dict[str, Any],
    worker_cpus: int,
    deploy: Callable[..., Any],
    local_cluster: Callable[..., Any],
    pod_env: Callable[[str], dict[str, str]],
    milvus_server: str,
    redis: dict[str, str],
    wait_until: Callable[..., None],
) -> None:
    cluster = local_cluster({**pod_env(milvus_server), **redis})
    cluster.add_node(0)
    cluster.add_node(worker_cpus)
    application = deploy(cluster, dev_config)
    listed = cluster.submit("vmem keys list --json")
    assert cluster.ended(listed)[0] == "SUCCEEDED", cluster.said(listed)
    before = application.replicas()
    search = f"{application.memory}/search"

    with application.asked_without_end({search: SEARCHERS}) as seen:
        wait_until(lambda: _answered(seen)[search] > 0)
        cluster.kill(cluster.nodes[0])
        assert cluster.alive() == 0
        done = _answered(seen)[search]
        wait_until(lambda: _answered(seen)[search] >= done + ANSWERS_WITHOUT_HEAD)
        assert cluster.alive() == 0
        cluster.replace_head()
        wait_until(lambda: application.state().get("status") == "RUNNING")
        assert application.replicas() == before
        done = _answered(seen)[search]
        wait_until(lambda: _answered(seen)[search] >= done + ANSWERS_WITHOUT_HEAD)
    failed = [what for (_, what), n in seen.items() if what != 200 for _ in range(n)]
    # The RayService keeps its head out of the Service; here callers share an address, and those
    # whom the kernel gave the head's proxy lose that connection.
    assert all("Error(" in str(what) for what in failed), failed
    assert len(failed) <= SEARCHERS, failed
    assert cluster.job(listed)[0] == "SUCCEEDED"

    with application.client() as client:
        found = client.post(search, json={"query": "When does the ferry leave?"}).json()
        assert [each["round_id"] for each in found["citations"]] == ["1"]
    changed = copy.deepcopy(dev_config)
    changed["applications"][0]["args"]["memory"]["answer"]["max_tokens"] = 16
    cluster.ask("PUT", "/api/serve/applications/", changed)
    wait_until(
        lambda: (
            application.state()["status"] == "RUNNING"
            and not application.replicas()["Api"] & before["Api"]
        )
    )
