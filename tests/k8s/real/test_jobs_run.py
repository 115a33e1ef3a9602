"""The dev overlay's RayJobs on a head and workers, which die in the middle, with a real Milvus."""

import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from vmem.stores.milvus import MilvusStore

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.timeout(2400)]

ROUNDS, WORKER_CPUS = 400, 3
QUESTIONS, CELLS = 6, 2
SMALL_BATCHES = {"VMEM_BUILD__BATCH_ROWS": "16"}


@pytest.fixture
def many_rounds(tmp_path: Path) -> Path:
    """A conversation that takes many batches."""
    path = tmp_path / "rounds.jsonl"
    lines = [
        {
            "dialogue": "long",
            "id": f"r{n}",
            "session": f"D{n // 20}",
            "time": f"2026-03-{n // 20 + 1:02}T09:00",
            "user": f"Remember that crate {n} went to shelf {n * 7 % 101}.",
            "assistant": f"Crate {n} is noted.",
        }
        for n in range(ROUNDS)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def _with(entrypoint: str, option: str, value: object) -> str:
    """An entrypoint with another value of an option."""
    words = shlex.split(entrypoint)
    words[words.index(option) + 1] = str(value)
    return shlex.join(words)


def _rows(milvus: str, bank: str) -> dict[str, Any]:
    """What a bank's text collection holds: each row by its key."""
    store = MilvusStore(milvus)
    try:
        collection = store.alias_target(f"{bank}_text_current")
        assert collection
        return {row.id: row for row in store.fetch(collection, "long")}
    finally:
        store.close()


def _written(milvus: str, bank: str) -> int:
    """Rows that a build has written so far."""
    store = MilvusStore(milvus)
    try:
        names = [name for name in store.collections() if name.startswith(f"{bank}_text_")]
        return sum(store.count(name) for name in names)
    finally:
        store.close()


def _assert_same(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    assert len(ours) >= 2 * ROUNDS
    assert ours.keys() == theirs.keys()
    for key, row in ours.items():
        assert (row.text, row.round) == (theirs[key].text, theirs[key].round)
        # a batch's make-up changes the last bits of a vector
        np.testing.assert_allclose(row.vector, theirs[key].vector, atol=1e-5)


def test_a_build_survives_its_worker_and_its_head(
    local_cluster: Callable[..., Any],
    pod_env: Callable[[str], dict[str, str]],
    entrypoints: dict[str, str],
    milvus_server: str,
    many_rounds: Path,
    wait_until: Callable[..., None],
) -> None:
    build = _with(entrypoints["build"], "--rounds", many_rounds)
    env = pod_env(milvus_server)
    cluster = local_cluster(env)
    cluster.add_node(0)
    cluster.add_node(WORKER_CPUS)
    sample = cluster.submit(entrypoints["build"])
    assert cluster.ended(sample)[0] == "SUCCEEDED", cluster.said(sample)
    calm = cluster.submit(_with(build, "--bank", "calm"), SMALL_BATCHES)
    assert cluster.ended(calm)[0] == "SUCCEEDED", cluster.said(calm)
    undisturbed = _rows(milvus_server, "calm")

    wounded = cluster.submit(_with(build, "--bank", "wounded"), SMALL_BATCHES)
    wait_until(lambda: _written(milvus_server, "wounded") > 0)
    assert _written(milvus_server, "wounded") < len(undisturbed), "the build was over too soon"
    cluster.kill(cluster.nodes[1])
    cluster.add_node(WORKER_CPUS)  # as KubeRay brings another pod
    assert cluster.ended(wounded)[0] == "SUCCEEDED", cluster.said(wounded)
    _assert_same(_rows(milvus_server, "wounded"), undisturbed)

    cluster.submit(_with(build, "--bank", "headless"), SMALL_BATCHES)
    wait_until(lambda: _written(milvus_server, "headless") > 0)
    cluster.end()
    written = _written(milvus_server, "headless")
    assert 0 < written < len(undisturbed)
    second = local_cluster(env)
    second.add_node(0)
    second.add_node(WORKER_CPUS)
    again = second.submit(_with(build, "--bank", "headless") + " --json", SMALL_BATCHES)
    assert second.ended(again)[0] == "SUCCEEDED", second.said(again)
    said = second.said(again)
    report = json.loads(said[said.index("{\n") :])
    assert (report["kept"], report["encoded"]) == (written, len(undisturbed) - written)
    _assert_same(_rows(milvus_server, "headless"), undisturbed)


def _lines(run: Path, stage: str) -> dict[str, list[Any]]:
    """What a stage has written, without what no two runs share."""
    kept = ("question_id", "ranked_rounds", "answer", "repetition", "level", "score", "error")
    return {
        path.name: [
            {key: value for key, value in json.loads(line).items() if key in kept}
            for line in path.read_text(encoding="utf-8").splitlines()
        ]
        for path in sorted((run / stage).glob("*.jsonl"))
    }


def _answered(run: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in (run / "answers").glob("*.jsonl"))


def test_an_evaluation_survives_its_worker_and_its_head(
    local_cluster: Callable[..., Any],
    pod_env: Callable[[str], dict[str, str]],
    entrypoints: dict[str, str],
    milvus_server: str,
    wait_until: Callable[..., None],
    tmp_path: Path,
) -> None:
    files = tmp_path / "files"
    plan = yaml.safe_load((Path(__file__).parents[3] / "configs/benchmarks/demo.yaml").read_text())
    plan["benchmarks"][0]["questions"] = QUESTIONS
    plan["systems"] = ["v-mem", "bm25"]
    plan["backbones"][0] |= {"llm": {"provider": "llama_cpp", "threads": 1}, "concurrency": 1}
    plan["judges"][0] |= {"llm": {"provider": "llama_cpp", "threads": 1}, "planted": 2}
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    evaluate = _with(entrypoints["evaluate"], "--plan", tmp_path / "plan.yaml")
    env = pod_env(milvus_server)
    cluster = local_cluster(env)
    cluster.add_node(0)
    cluster.add_node(WORKER_CPUS)
    calm = cluster.submit(_with(evaluate, "--out", files / "runs/calm"))
    assert cluster.ended(calm)[0] == "SUCCEEDED", cluster.said(calm)

    def runs_until_answers(cluster: Any, run: Path) -> str:
        job: str = cluster.submit(_with(evaluate, "--out", run))
        wait_until(lambda: _answered(run) > 0)
        return job

    wounded = files / "runs/demo"  # what the overlay's `tables` reads
    assert f"--out {wounded} " in evaluate
    job = runs_until_answers(cluster, wounded)
    worker = cluster.nodes[1]
    cluster.add_node(WORKER_CPUS)  # as KubeRay brings another pod
    assert _answered(wounded) < CELLS * QUESTIONS, "the answers were all there too soon"
    cluster.kill(worker)
    assert cluster.ended(job)[0] == "SUCCEEDED", cluster.said(job)

    headless = files / "runs/headless"
    runs_until_answers(cluster, headless)
    cluster.end()
    assert 0 < _answered(headless) < CELLS * QUESTIONS
    second = local_cluster(env)
    second.add_node(0)
    second.add_node(WORKER_CPUS)
    job = second.submit(_with(evaluate, "--out", headless))
    assert second.ended(job)[0] == "SUCCEEDED", second.said(job)
    for stage in ("answers", "judgements"):
        undisturbed = _lines(files / "runs/calm", stage)
        assert len(undisturbed) >= CELLS
        assert _lines(wounded, stage) == _lines(headless, stage) == undisturbed
    tables = second.submit(entrypoints["tables"])
    assert second.ended(tables)[0] == "SUCCEEDED", second.said(tables)
    assert (files / "tables" / "report.html").is_file()
