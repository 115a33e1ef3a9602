"""The dev overlay's application answers, and takes a new config while callers ask."""

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.timeout(1800)]


def test_it_answers_and_takes_a_new_config_while_callers_ask(
    dev_config: dict[str, Any],
    worker_cpus: int,
    deploy: Callable[..., Any],
    local_cluster: Callable[..., Any],
    pod_env: Callable[[str], dict[str, str]],
    milvus_server: str,
    wait_until: Callable[..., None],
) -> None:
    cluster = local_cluster(pod_env(milvus_server))
    cluster.add_node(worker_cpus)
    application = deploy(cluster, dev_config)
    with application.client() as client:
        answer = client.post(
            f"{application.memory}/answer", json={"query": "When does the ferry leave?"}
        )
    assert answer.status_code == 200, answer.text
    assert answer.json()["answer"]
    assert [each["round_id"] for each in answer.json()["citations"]] == ["1"]

    first = application.replicas()
    assert set(first) == {"Api", "Retriever", "Writer", "Backbone"}
    changed = copy.deepcopy(dev_config)
    changed["applications"][0]["args"]["memory"]["answer"]["max_tokens"] = 16
    asked = {f"{application.memory}/search": 3, f"{application.memory}/answer": 1}

    def replaced() -> bool:
        now = application.replicas()
        return application.state()["status"] == "RUNNING" and all(
            now[name] and not now[name] & before for name, before in first.items()
        )

    with application.asked_without_end(asked) as seen:
        wait_until(lambda: {path for path, _ in seen} == set(asked))
        cluster.ask("PUT", "/api/serve/applications/", changed)
        wait_until(replaced)
        done = Counter(path for path, _ in seen.elements())
        wait_until(lambda: all(Counter(p for p, _ in seen.elements())[x] > done[x] for x in asked))
    assert set(seen) == {(path, 200) for path in asked}, seen
    print(f"asked meanwhile: {dict(seen)}")  # noqa: T201
