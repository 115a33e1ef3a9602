"""A replica that is killed under load takes nothing with it, and another takes its place."""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.cluster, pytest.mark.timeout(280)]


@pytest.mark.parametrize("deployment", ["Writer", "Retriever"])
async def test_a_replica_killed_under_load_loses_no_acknowledged_append(
    running: Any, replica_pids: Callable[..., list[int]], deployment: str
) -> None:
    memory = f"killed-{deployment.lower()}"
    acknowledged: list[str] = []
    statuses: Counter[int] = Counter()

    async def write(client: Any, number: int, deadline: float) -> None:
        turn = 0
        while time.monotonic() < deadline:
            name = f"w{number}n{turn}"
            turn += 1
            reply = await client.post_rounds(memory, {name: f"word {name}"})
            statuses[reply.status_code] += 1
            if reply.status_code == 200:
                acknowledged.append(name)
            statuses[(await client.search(memory, name)).status_code] += 1

    async with running.client() as client:
        await client.append(memory, {"first": "word"})
        deadline = time.monotonic() + 12
        writers = [asyncio.create_task(write(client, number, deadline)) for number in range(4)]
        await asyncio.sleep(3)
        victims = replica_pids(deployment)
        assert victims
        os.kill(victims[0], signal.SIGKILL)
        await asyncio.gather(*writers)
        assert set(statuses) <= {200, 503}, statuses
        assert len(acknowledged) > 10
        held = await client.round_ids(memory)
        assert len(held) == len(set(held))
        assert set(acknowledged) <= set(held)
        assert (await client.found(memory, acknowledged[-1]))[0] == acknowledged[-1]
    assert victims[0] not in replica_pids(deployment)
