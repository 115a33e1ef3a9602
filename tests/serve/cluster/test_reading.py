"""What was acknowledged is found, what was erased is not, whichever replica answers."""

import asyncio
import time
from typing import Any

import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.cluster, pytest.mark.timeout(280)]


async def test_200_appends_are_each_found_by_the_next_search(running: Any) -> None:
    async with running.client() as client:
        client.headers["x-request-id"] = "read-after-write"
        for number in range(200):
            await client.append("raw", {f"r{number}": f"the word of it is zq{number}"})
            assert (await client.found("raw", f"zq{number}"))[0] == f"r{number}"
    searches = [log.count("read-after-write") for log in running.logs_of("Retriever")]
    assert len([number for number in searches if number]) == 2


async def test_an_erased_memory_and_an_erased_round_are_found_by_no_replica(running: Any) -> None:
    async with running.client() as client:
        await client.append("gone", {"1": "alpha", "2": "beta"})
        assert (await client.found("gone", "alpha"))[0] == "1"
        erased = await client.delete("/v1/memories/gone/rounds/1")
        assert erased.status_code == 200
        for _ in range(20):
            reply = await client.search("gone", "alpha")
            assert "alpha" not in reply.json()["context"]["text"]
        assert (await client.delete("/v1/memories/gone")).status_code == 204
        for _ in range(20):
            assert (await client.search("gone", "beta")).status_code == 404


async def test_the_callers_request_id_is_on_the_reply_and_in_the_replicas_logs(
    running: Any,
) -> None:
    async with running.client() as client:
        client.headers["x-request-id"] = "trace-me-4711"
        await client.append("traced", {"1": "alpha"})
        reply = await client.search("traced", "alpha")
        assert reply.headers["x-request-id"] == "trace-me-4711"
        assert reply.json()["request_id"] == "trace-me-4711"
    deadline = time.monotonic() + 10
    every = {"Api", "Retriever", "Writer"}
    named: set[str] = set()
    while named != every and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
        named = {kind for kind in every if "trace-me-4711" in "".join(running.logs_of(kind))}
    assert named == every
