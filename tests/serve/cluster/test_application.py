"""What must hold of the running application, whichever replica answers and whatever dies."""

import asyncio
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.cluster, pytest.mark.timeout(280)]
SECONDS = float(os.environ.get("VMEM_TEST_LOAD_S", "10"))
"""Of concurrent load; `make test-cluster` asks for a minute."""


def _round(round_id: str, text: str) -> dict[str, Any]:
    return {"id": round_id, "session": "s", "time": "2026-05-04T09:00", "user": text}


async def _append(client: httpx.AsyncClient, memory: str, *rounds: dict[str, Any]) -> None:
    reply = await client.post(f"/v1/memories/{memory}/rounds", json={"rounds": rounds})
    assert reply.status_code == 200, reply.text


async def _best(client: httpx.AsyncClient, memory: str, query: str) -> str:
    reply = await client.post(f"/v1/memories/{memory}/search", json={"query": query})
    assert reply.status_code == 200, reply.text
    citations = reply.json()["citations"]
    return citations[0]["round_id"] if citations else ""


async def _round_ids(client: httpx.AsyncClient, memory: str) -> list[str]:
    ids: list[str] = []
    after: int | None = -1
    while after is not None:
        reply = await client.get(f"/v1/memories/{memory}/rounds", params={"after": after})
        page = reply.raise_for_status().json()
        ids += [round_["id"] for round_ in page["rounds"]]
        after = page["next"]
    return ids


async def test_200_appends_are_each_found_by_the_next_search(running: Any) -> None:
    async with running.client() as client:
        for number in range(200):
            await _append(client, "raw", _round(f"r{number}", f"the word of it is zq{number}"))
            assert await _best(client, "raw", f"zq{number}") == f"r{number}"
        metrics = (await client.get("/metrics")).text
    searched = re.findall(
        r'^ray_serve_deployment_request_counter\w*{[^}]*deployment="Retriever"[^}]*}', metrics, re.M
    )
    replicas = {re.search(r'replica="([^"]+)"', sample)[1] for sample in searched}  # type: ignore[index]
    assert len(replicas) == 2


async def test_32_clients_lose_nothing_and_keep_their_order(running: Any) -> None:
    kept: dict[int, list[str]] = {}

    async def client_of(number: int) -> None:
        kept[number] = []
        async with running.client() as client:
            deadline = time.monotonic() + SECONDS
            while time.monotonic() < deadline:
                name = f"c{number}n{len(kept[number])}"
                memory = "shared" if len(kept[number]) % 2 else f"own{number}"
                await _append(client, memory, _round(name, f"the word of it is {name}"))
                kept[number].append(name)
                reply = await client.post(f"/v1/memories/{memory}/search", json={"query": name})
                if reply.status_code != 429:
                    assert reply.status_code == 200, reply.text
                    found = [cited["round_id"] for cited in reply.json()["citations"]]
                    assert name in found

    await asyncio.gather(*(client_of(number) for number in range(32)))
    async with running.client() as client:
        shared = await _round_ids(client, "shared")
        assert len(shared) == len(set(shared))
        for number, names in kept.items():
            assert [n for n in shared if n.startswith(f"c{number}n")] == names[1::2]
            assert await _round_ids(client, f"own{number}") == names[::2]


async def test_ten_times_the_capacity_is_refused_with_429_and_then_all_is_well(
    running: Any,
) -> None:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=running.url, timeout=60, limits=limits) as client:
        await _append(client, "busy", _round("1", "a word"))

        async def search() -> httpx.Response:
            return await client.post("/v1/memories/busy/search", json={"query": "word"})

        replies = await asyncio.gather(*(search() for _ in range(160)))
        statuses = Counter(reply.status_code for reply in replies)
        assert set(statuses) == {200, 429}
        assert statuses[200] >= 16
        refused = [reply for reply in replies if reply.status_code == 429]
        assert all(int(reply.headers["retry-after"]) >= 1 for reply in refused)
        assert {reply.json()["error"]["code"] for reply in refused} == {"overloaded"}
        after = [(await search()).status_code for _ in range(32)]
        assert after == [200] * 32


@pytest.mark.parametrize("deployment", ["Writer", "Retriever"])
async def test_a_replica_killed_under_load_loses_no_acknowledged_append(
    running: Any, replica_pids: Callable[..., list[int]], deployment: str
) -> None:
    memory = f"killed-{deployment.lower()}"
    acknowledged: list[str] = []
    statuses: Counter[int] = Counter()

    async def write(client: httpx.AsyncClient, number: int, deadline: float) -> None:
        turn = 0
        while time.monotonic() < deadline:
            name = f"w{number}n{turn}"
            turn += 1
            reply = await client.post(
                f"/v1/memories/{memory}/rounds", json={"rounds": [_round(name, f"word {name}")]}
            )
            statuses[reply.status_code] += 1
            if reply.status_code == 200:
                acknowledged.append(name)
            found = await client.post(f"/v1/memories/{memory}/search", json={"query": name})
            statuses[found.status_code] += 1

    async with running.client() as client:
        await _append(client, memory, _round("first", "word"))
        deadline = time.monotonic() + 12
        writers = [asyncio.create_task(write(client, number, deadline)) for number in range(4)]
        await asyncio.sleep(3)
        victims = replica_pids(deployment)
        assert victims
        os.kill(victims[0], signal.SIGKILL)
        await asyncio.gather(*writers)
        assert set(statuses) <= {200, 429, 503}, statuses
        assert len(acknowledged) > 10
        held = await _round_ids(client, memory)
        assert len(held) == len(set(held))
        assert set(acknowledged) <= set(held)
        assert await _best(client, memory, acknowledged[-1]) == acknowledged[-1]
    assert victims[0] not in replica_pids(deployment)


async def test_an_erased_memory_and_an_erased_round_are_found_by_no_replica(running: Any) -> None:
    async with running.client() as client:
        await _append(client, "gone", _round("1", "alpha"), _round("2", "beta"))
        assert await _best(client, "gone", "alpha") == "1"
        erased = await client.delete("/v1/memories/gone/rounds/1")
        assert erased.status_code == 200
        for _ in range(20):
            reply = await client.post("/v1/memories/gone/search", json={"query": "alpha"})
            assert "alpha" not in reply.json()["context"]["text"]
        assert (await client.delete("/v1/memories/gone")).status_code == 204
        for _ in range(20):
            reply = await client.post("/v1/memories/gone/search", json={"query": "beta"})
            assert reply.status_code == 404


async def test_the_callers_request_id_is_on_the_reply_and_in_the_replicas_logs(
    running: Any,
) -> None:
    async with running.client() as client:
        await _append(client, "traced", _round("1", "alpha"))
        reply = await client.post(
            "/v1/memories/traced/search",
            json={"query": "alpha"},
            headers={"x-request-id": "trace-me-4711"},
        )
        assert reply.headers["x-request-id"] == "trace-me-4711"
        assert reply.json()["request_id"] == "trace-me-4711"
    deadline = time.monotonic() + 10
    named: set[str] = set()
    while not {"Api", "Retriever"} <= named and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
        named = {kind for kind in ("Api", "Retriever") if "trace-me-4711" in running.log_of(kind)}
    assert named == {"Api", "Retriever"}


async def test_sigterm_under_load_loses_no_accepted_request(
    tmp_path: Path, serve_process: Callable[[Path], Any]
) -> None:
    home = tmp_path / "home"
    process, url = await asyncio.to_thread(serve_process, home)
    acknowledged: list[str] = []
    odd: list[str] = []

    async def write(client: httpx.AsyncClient, number: int) -> None:
        for turn in range(10_000):
            name = f"w{number}n{turn}"
            try:
                reply = await client.post(
                    "/v1/memories/drained/rounds", json={"rounds": [_round(name, name)]}
                )
            except httpx.ConnectError:
                return
            except httpx.TransportError as error:
                odd.append(f"{name}: {type(error).__name__}")
                return
            if reply.status_code == 503:
                return
            if reply.status_code != 200:
                odd.append(f"{name}: {reply.status_code}")
                return
            acknowledged.append(name)

    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        writers = [asyncio.create_task(write(client, number)) for number in range(8)]
        await asyncio.sleep(3)
        process.send_signal(signal.SIGTERM)
        await asyncio.gather(*writers)
    assert odd == []
    assert await asyncio.to_thread(process.wait, 60) == 0
    process, url = await asyncio.to_thread(serve_process, home)
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        held = await _round_ids(client, "drained")
        assert set(acknowledged) <= set(held)
        assert await _best(client, "drained", acknowledged[-1]) == acknowledged[-1]
