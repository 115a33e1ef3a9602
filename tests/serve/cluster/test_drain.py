"""SIGTERM under load: what was accepted is answered and kept, and the process ends well."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.cluster, pytest.mark.timeout(480)]


async def test_sigterm_under_load_loses_no_accepted_request(
    tmp_path: Path, serve_process: Callable[[Path], Any], connect: Callable[[str], Any]
) -> None:
    home = tmp_path / "home"
    process, url = await asyncio.to_thread(serve_process, home)
    acknowledged: list[str] = []
    odd: list[str] = []

    async def write(client: Any, number: int) -> None:
        for turn in range(10_000):
            name = f"w{number}n{turn}"
            try:
                reply = await client.post_rounds("drained", {name: name})
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

    async with connect(url) as client:
        writers = [asyncio.create_task(write(client, number)) for number in range(8)]
        await asyncio.sleep(3)
        process.send_signal(signal.SIGTERM)
        await asyncio.gather(*writers)
    assert odd == []
    assert acknowledged
    assert await asyncio.to_thread(process.wait, 60) == 0
    process, url = await asyncio.to_thread(serve_process, home)
    async with connect(url) as client:
        held = await client.round_ids("drained")
        assert len(held) == len(set(held))
        assert set(acknowledged) <= set(held)
        assert (await client.found("drained", acknowledged[-1]))[0] == acknowledged[-1]
