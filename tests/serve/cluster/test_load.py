"""Many callers at once: nothing is lost, what is too much is refused, nothing piles up inside."""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.cluster, pytest.mark.timeout(480)]
SECONDS = float(os.environ.get("VMEM_TEST_LOAD_S", "10"))
"""Of concurrent load; `make test-cluster` asks for a minute."""
CLIENTS = 32
WARMING = 2
WAVES = 4
TURNS = 2
LONG = "word " * 3_200
"""16 kB to read and to encode: work that takes longer than to bring the next request."""
PADDING = b" " * 32 * 1024
"""Of each body: a request that were kept by mistake would weigh something."""
GROWTH_MIB = 40.0
CLOCK = timedelta(milliseconds=2)
"""How far a log's times may be off: they are rounded."""


async def test_32_clients_lose_nothing_and_keep_their_order(running: Any) -> None:
    """Each searches what it just appended; every other round goes into a memory of all."""
    kept: dict[int, list[str]] = {}

    async def client_of(number: int) -> None:
        kept[number] = []
        async with running.client() as client:
            deadline = time.monotonic() + SECONDS
            while time.monotonic() < deadline:
                name = f"c{number}n{len(kept[number])}"
                memory = "shared" if len(kept[number]) % 2 else f"own{number}"
                await client.append(memory, {name: f"the word of it is {name}"})
                kept[number].append(name)
                assert name in await client.found(memory, name)

    await asyncio.gather(*(client_of(number) for number in range(CLIENTS)))
    async with running.client() as client:
        shared = await client.round_ids("shared")
        assert len(shared) == len(set(shared)) == sum(len(names[1::2]) for names in kept.values())
        for number, names in kept.items():
            assert [n for n in shared if n.startswith(f"c{number}n")] == names[1::2]
            assert await client.round_ids(f"own{number}") == names[::2]


@pytest.mark.parametrize(("kind", "worker"), [("search", "Retriever"), ("append", "Writer")])
async def test_ten_times_the_capacity_is_refused_with_429_and_then_all_is_well(
    running: Any, resident_mib: Callable[[], float], kind: str, worker: str
) -> None:
    """Ten times as many callers as places, each of whom asks again as soon as it is answered.

    Steady latency, in counts: a refused request is never worked on (as many calls as replies of
    status 200), and replicas never have more calls at the same time than there are places. So what
    is accepted shares the replicas with a bounded number of others, however many callers there are.
    (Connections that wait in front of admission, for the proxy, are not counted here.)

    Memory: the first waves fill buffers and caches, by up to 52 MiB over all processes; the later
    two raised it by 3 to 20 MiB in six runs with bodies of 16 to 96 kB. Were their requests kept,
    the bodies alone would be 67 MiB.
    """
    memory = f"busy-{kind}"
    bodies = {
        "search": lambda name: {"query": f"{name} {LONG}"},
        "append": lambda name: {"rounds": [{"id": name, "session": "s", "user": LONG}]},
    }
    path = f"/v1/memories/{memory}/{'search' if kind == 'search' else 'rounds'}"

    async def call(name: str) -> httpx.Response:
        body = client.build_request("POST", path, json=bodies[kind](name)).content
        headers = {"content-type": "application/json", "x-request-id": f"{memory}-{name}"}
        return await client.post(path, content=body + PADDING, headers=headers)

    async def caller(name: str) -> list[str]:
        """Returns the names of its requests that were accepted."""
        replies = {turn: await call(f"{name}n{turn}") for turn in range(TURNS)}
        refused = [reply for reply in replies.values() if reply.status_code != 200]
        assert {reply.status_code for reply in refused} <= {429}
        assert {reply.json()["error"]["code"] for reply in refused} <= {"overloaded"}
        assert all(int(reply.headers["retry-after"]) >= 1 for reply in refused)
        return [f"{name}n{turn}" for turn, reply in replies.items() if reply.status_code == 200]

    async def wave(name: str, callers: int) -> list[str]:
        accepted = await asyncio.gather(*(caller(f"{name}c{each}") for each in range(callers)))
        return [each for names in accepted for each in names]

    async with running.client() as client:
        await client.append(memory, {"first": "a word"})
        accepted: list[str] = []
        sizes: list[float] = []
        for number in range(WAVES):
            taken = await wave(f"w{number}", 10 * running.capacity)
            assert len(taken) >= running.capacity
            accepted += taken
            sizes.append(resident_mib())
        assert len(accepted) < WAVES * 10 * running.capacity * TURNS
        assert max(sizes[WARMING:]) - sizes[WARMING - 1] < GROWTH_MIB, sizes

        after = await wave("after", CLIENTS)
        assert len(after) == CLIENTS * TURNS
        accepted += after
        if kind == "append":
            held = await client.round_ids(memory)
            assert sorted(held) == sorted(["first", *accepted])

    calls = running.calls(worker, memory)
    assert len(calls) == len(accepted)
    assert 1 < _most_at_once(calls) <= running.capacity


async def test_a_flood_of_callers_without_ids_gets_nothing_but_200_and_429(running: Any) -> None:
    """By the proxy or by the Api: every reply has an id, and a refusal says when to retry."""
    path, body = "/v1/memories/flood/search", {"query": LONG}
    async with running.client() as client:
        await client.append("flood", {"first": "a word"})
        calls = (client.post(path, json=body) for _ in range(10 * running.capacity))
        replies = await asyncio.gather(*calls)
        assert {reply.status_code for reply in replies} == {200, 429}
        assert len({reply.headers["x-request-id"] for reply in replies}) == len(replies)
        refused = [reply for reply in replies if reply.status_code == 429]
        assert {reply.json()["error"]["code"] for reply in refused} == {"overloaded"}
        assert all(int(reply.headers["retry-after"]) >= 1 for reply in refused)


def _most_at_once(spans: Sequence[tuple[datetime, datetime]]) -> int:
    """How many of some spans of time overlap, at most."""
    changes = [(start + CLOCK, 1) for start, end in spans if end - start > 2 * CLOCK]
    changes += [(end - CLOCK, -1) for start, end in spans if end - start > 2 * CLOCK]
    under_way = [0]
    for _, change in sorted(changes):
        under_way.append(under_way[-1] + change)
    return max(under_way)
