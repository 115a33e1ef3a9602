"""RayJobs that cannot work say why in one sentence; two builds of one bank leave one bank."""

import json
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from vmem.stores.milvus import MilvusStore

pytestmark = [pytest.mark.k8s, pytest.mark.slow, pytest.mark.timeout(1800)]

FAKE = {
    "VMEM_ENCODERS__TEXT": '{"kind": "fake"}',
    "VMEM_ENCODERS__IMAGE": '{"kind": "none"}',
    "VMEM_BUILD__BATCH_ROWS": "8",
}
UNKNOWN = '{"kind": "minilm", "model": "nobody/nothing"}'
ROUNDS = 60


def _rounds(folder: Path, word: str) -> Path:
    path = folder / f"{word}.jsonl"
    lines = [
        {"dialogue": "d", "id": f"r{n}", "session": "D1", "time": "2026-03-02T09:00",
         "user": f"{word} number {n}", "assistant": "Noted."}
        for n in range(ROUNDS)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def _build(rounds: Path, bank: str) -> str:
    words = ["vmem", "build", "--rounds", str(rounds), "--bank", bank, "--address", "auto"]
    return shlex.join(words)


def _evaluation(folder: Path) -> str:
    plan = yaml.safe_load((Path(__file__).parents[3] / "configs/benchmarks/demo.yaml").read_text())
    nobody = {"provider": "openai", "model": "nobody", "base_url": "http://127.0.0.1:9/v1"}
    plan["backbones"][0] |= {"llm": nobody}
    (folder / "plan.yaml").write_text(yaml.safe_dump(plan), encoding="utf-8")
    words = ["--plan", str(folder / "plan.yaml"), "--out", str(folder / "run"), "--address", "auto"]
    return shlex.join(["vmem", "eval", "run", *words])


def _collections(milvus: str, bank: str) -> list[str]:
    store = MilvusStore(milvus)
    try:
        return [name for name in store.collections() if name.startswith(f"{bank}_")]
    finally:
        store.close()


def _texts(milvus: str, bank: str) -> set[str]:
    store = MilvusStore(milvus)
    try:
        collection = store.alias_target(f"{bank}_text_current")
        assert collection
        return {row.text for row in store.fetch(collection, "d")}
    finally:
        store.close()


def test_jobs_that_cannot_work_and_builds_at_once(
    local_cluster: Callable[..., Any],
    pod_env: Callable[[str], dict[str, str]],
    milvus_server: str,
    tmp_path: Path,
) -> None:
    cluster = local_cluster(pod_env(milvus_server))
    cluster.add_node(0)
    cluster.add_node(6)
    first, second = _rounds(tmp_path, "first"), _rounds(tmp_path, "second")
    good = cluster.submit(_build(first, "bad"), FAKE)
    assert cluster.ended(good)[0] == "SUCCEEDED", cluster.said(good)
    before = _texts(milvus_server, "bad")

    wrong = {
        "bucket": (_build(second, "bad"), {"VMEM_STORE__IMAGES_URL": "nowhere://bucket"}),
        "encoder": (_build(second, "new"), {"VMEM_ENCODERS__TEXT": UNKNOWN}),
        "backbone": (_evaluation(tmp_path), {}),
        "collection": (_build(second, "bad"), {"VMEM_ENCODERS__TEXT": '{"kind": "minilm"}'}),
        "rounds": (_build(tmp_path / "none.jsonl", "bad"), {}),
        "bank": (_build(second, "no/bank"), {}),
        "run": (f"vmem eval tables {tmp_path}/none --out {tmp_path}/tables", {}),
        "plan": (f"vmem eval run --plan none --out {tmp_path}/run --address auto", {}),
    }
    named = {
        "bucket": "store.images_url",
        "encoder": "nobody/nothing",
        "backbone": "nobody",
        "collection": "encoder",
        "rounds": "none.jsonl",
        "bank": "store.bank",
        "run": f"{tmp_path}/none",
        "plan": "none",
    }
    for what, (text, env) in wrong.items():
        begin = time.monotonic()
        status, message = cluster.ended(cluster.submit(text, {**FAKE, **env}))
        print(f"wrong {what}: {time.monotonic() - begin:.0f} s, {message}")  # noqa: T201
        assert status == "FAILED", what
        told = " ".join(message.split())  # the terminal's width breaks lines
        assert "error " in told, (what, message)
        assert named[what].replace(" ", "") in message.replace("\n", "").replace(" ", ""), message
        assert "Traceback" not in message, (what, message)
    assert _texts(milvus_server, "bad") == before
    assert not _collections(milvus_server, "new")
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"locks", "manifest.json"}
    assert not (tmp_path / "tables").exists()

    for rounds in ((first, second), (first, first)):
        bank = f"twice_{rounds[1].stem}"
        both = [cluster.submit(_build(each, bank), FAKE) for each in rounds]
        ended = [cluster.ended(job) for job in both]
        assert "SUCCEEDED" in {status for status, _ in ended}, ended
        for _, message in ended:
            assert "Traceback" not in message, message
        held = {text.split()[0] for text in _texts(milvus_server, bank)} & {"first", "second"}
        assert len(held) == 1, held
        after = cluster.submit(_build(first, bank), FAKE)
        assert cluster.ended(after)[0] == "SUCCEEDED", cluster.said(after)
        assert _texts(milvus_server, bank) == before
