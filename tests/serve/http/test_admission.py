"""Back pressure and drain: exactly so many are taken on, the rest hear so, and all recovers."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import httpx
import pytest

from serve.admission import Admission
from serve.errors import DrainingError, OverloadedError
from serve.observe import NoMetrics
from serve.settings import AdmissionSettings

pytestmark = pytest.mark.anyio
LIMIT = 3
BODIES = {"search": {"query": "tent?"}, "answer": {"query": "tent?"}}


@pytest.fixture
async def small(serve_app: Callable[..., Any], tent: dict[str, Any]) -> Any:
    served = serve_app(admission={"search": LIMIT, "answer": LIMIT, "append": LIMIT})
    async with served.client() as client:
        await client.post("/v1/memories/trip/rounds", json={"rounds": [tent]})
    return served


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  # several parts change it
            await asyncio.sleep(0.005)


def are_done(tasks: list[asyncio.Task[Any]], count: int) -> bool:
    return sum(task.done() for task in tasks) == count


@pytest.mark.parametrize("kind", ["search", "answer", "stream"])
async def test_ten_times_the_limit_takes_on_exactly_the_limit(small: Any, kind: str) -> None:
    admission = small.app.state.admission
    route = "answer" if kind == "stream" else kind
    body = {**BODIES[route], **({"stream": True} if kind == "stream" else {})}
    for _ in range(2):  # the second time shows that the first left nothing behind
        small.service.hold = asyncio.Event()
        async with small.client() as client:
            path = f"/v1/memories/trip/{route}"
            tasks = [asyncio.create_task(client.post(path, json=body)) for _ in range(10 * LIMIT)]
            refused = 9 * LIMIT
            await wait_until(partial(are_done, tasks, refused))
            assert admission.under_way(route) == LIMIT
            others = await client.get("/v1/memories/trip")
            assert others.status_code == 200
            small.service.hold.set()
            responses = await asyncio.gather(*tasks)
        statuses = [response.status_code for response in responses]
        assert (statuses.count(200), statuses.count(429)) == (LIMIT, refused)
        for response in responses:
            if response.status_code == 429:
                assert response.headers["retry-after"] == "1"
                assert response.json()["error"]["code"] == "overloaded"
        assert (admission.under_way(), small.service.under_way) == (0, 0)
    assert small.metrics.most[route] == LIMIT
    assert small.metrics.now[route] == 0
    assert small.metrics.reasons == ["overloaded"] * (2 * refused)


async def test_a_place_is_taken_before_the_body_is_read(small: Any) -> None:
    """A request over the limit is refused although its body never comes."""
    small.service.hold = asyncio.Event()
    started = []

    async def slow() -> AsyncIterator[Any]:
        started.append(1)
        await asyncio.Event().wait()
        yield b""

    async with small.client() as client:
        path = "/v1/memories/trip/search"
        tasks = [
            asyncio.create_task(client.post(path, json=BODIES["search"])) for _ in range(LIMIT)
        ]
        await wait_until(lambda: small.app.state.admission.under_way("search") == LIMIT)
        async with asyncio.timeout(5):
            headers = {"content-type": "application/json"}
            response = await client.post(path, content=slow(), headers=headers)
        assert (response.status_code, started) == (429, [])
        small.service.hold.set()
        await asyncio.gather(*tasks)


async def test_a_failed_request_gives_its_place_back(small: Any) -> None:
    small.service.down["search"] = RuntimeError("boom")
    async with small.client() as client:
        for _ in range(2 * LIMIT):
            response = await client.post("/v1/memories/trip/search", json=BODIES["search"])
            assert response.status_code == 500
    assert small.app.state.admission.under_way() == 0


async def test_draining_ends_what_is_under_way_and_refuses_the_rest(small: Any) -> None:
    admission = small.app.state.admission
    small.service.hold = asyncio.Event()
    async with small.client() as client:
        asked = {"query": "tent?", "stream": True}
        task = asyncio.create_task(client.post("/v1/memories/trip/answer", json=asked))
        await wait_until(lambda: small.service.under_way == 1)
        assert (await client.get("/readyz")).status_code == 200
        admission.drain()
        assert not await admission.idle(0.05)
        ready, alive = await client.get("/readyz"), await client.get("/livez")
        assert (ready.status_code, ready.json()["parts"]["api"]) == (503, "draining")
        assert alive.status_code == 200
        refused = await client.get("/v1/memories")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
        assert refused.headers["connection"] == "close"
        assert refused.headers["retry-after"] == "1"
        small.service.hold.set()
        assert await admission.idle(10)
        done = await task
    assert done.text.count("event: done") == 1
    assert json.loads(done.text.rsplit("data: ", 1)[1])["answer"] == "A green tent."


async def test_an_unready_part_is_named_and_its_sentence_kept(
    served: Any, client: httpx.AsyncClient
) -> None:
    served.service.down["readiness"] = RuntimeError("milvus at 10.0.0.9 refuses")
    response = await client.get("/readyz")
    assert response.status_code == 503
    assert response.json() == {"parts": {"store": "unavailable", "encoders": "ok"}}


async def test_places_are_counted_by_kind() -> None:
    admission = Admission(AdmissionSettings(search=1, answer=1, append=1), NoMetrics())
    with admission.slot("search"):
        with pytest.raises(OverloadedError), admission.slot("search"):
            pass
        with admission.slot("answer"), admission.slot("read"), admission.slot("read"):
            assert admission.under_way() == 4
    assert await admission.idle(0)
    admission.drain()
    with pytest.raises(DrainingError), admission.slot("read"):
        pass
