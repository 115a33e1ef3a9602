"""Keys, tenants, rates: every route tried without a key and as another tenant."""

import copy
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from limits.aio.strategies import MovingWindowRateLimiter
from limits.errors import StorageError

from serve import auth
from vmem.errors import ConfigError

pytestmark = pytest.mark.anyio
OPEN = {"/livez", "/readyz", "/metrics", "/docs", "/docs/start.js", "/"}
"""Routes that ask for no key; /metrics does where `http.open_metrics` is off."""
MAKES = {("POST", "/v1/memories/{memory}/rounds"), ("POST", "/v1/memories/{memory}/import")}
"""Routes by which a tenant makes a memory of its own where it has none."""


def leaves(routes: Any) -> Iterator[Any]:
    """Every route that an app serves, those of the routers it includes among them."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        yield from leaves(inner.routes) if inner is not None else [route]


def routes_of(app: FastAPI) -> Any:
    """Every method of every API route of an app."""
    found = [route for route in leaves(app.routes) if isinstance(route, APIRoute)]
    return [(method, route) for route in found for method in sorted(route.methods)]


def request_of(route: Any, path: str) -> Any:
    """Arguments of a request that the route would take."""
    content = (route.openapi_extra or {}).get("requestBody", {}).get("content", {})
    if "application/json" in content:
        examples = content["application/json"]["examples"]
        return {"json": copy.deepcopy(next(iter(examples.values()))["value"])}
    if content:
        return {"files": {"archive": ("a.zip", b"")}}
    return {}


def path_of(route: Any, digest: str, memory: str = "trip") -> Any:
    values = {"memory": memory, "round_id:path": "D1:1", "digest": digest, "model": "vmem"}
    path = route.path
    for name, value in values.items():
        path = path.replace("{" + name + "}", value)
    assert "{" not in path
    return path


@pytest.fixture
async def filled(served: Any, client: httpx.AsyncClient, tent: dict[str, Any]) -> Any:
    """The tenant's memory, and the digest of its picture."""
    await client.post("/v1/memories/trip/rounds", json={"rounds": [tent]})
    round_ = (await client.get("/v1/memories/trip/rounds/D1:1")).json()
    return served, round_["turns"][0]["images"][0]["digest"]


async def state_of(client: httpx.AsyncClient) -> Any:
    memory = (await client.get("/v1/memories/trip")).json()
    return memory, (await client.get("/v1/memories/trip/rounds")).json()


async def test_the_app_has_no_route_beyond_those_tried(served: Any) -> None:
    rest = [route for route in leaves(served.app.routes) if not isinstance(route, APIRoute)]
    assert {route.path for route in rest} == {"/openapi.json", "/docs/assets", "/ui"}
    described = [len(methods) for methods in served.app.openapi()["paths"].values()]
    hidden = [route for _, route in routes_of(served.app) if not route.include_in_schema]
    assert len(routes_of(served.app)) == sum(described) + len(hidden)


async def test_no_route_opens_without_a_key_or_with_a_bad_one(filled: Any) -> None:
    served, digest = filled
    for key in (None, "vmem_0000000000000000_" + "x" * 43, "guess"):
        async with served.client(key) as stranger:
            for method, route in routes_of(served.app):
                path = path_of(route, digest)
                response = await stranger.request(method, path, **request_of(route, path))
                if route.path in OPEN:
                    assert response.status_code < 400, path
                    continue
                assert response.status_code == 401, (method, path)
                assert response.headers["www-authenticate"].startswith("Bearer")
                assert response.json()["error"]["code"] == "no_access"
                assert digest not in response.text
    assert "no_access" in served.metrics.reasons


async def test_no_route_shows_or_changes_anothers_memory(filled: Any) -> None:
    served, digest = filled
    async with served.client() as owner:
        before = await state_of(owner)
        _, secret = served.other_key()
        async with served.client(secret) as stranger:
            for method, route in routes_of(served.app):
                if route.path in OPEN:
                    continue
                path = path_of(route, digest)
                response = await stranger.request(method, path, **request_of(route, path))
                assert "tent by the lake" not in response.text.lower(), path
                assert served.tenant not in response.text
                if "{memory}" in route.path and (method, route.path) not in MAKES:
                    assert response.status_code == 404, (method, path)
                await stranger.delete("/v1/memories/trip")  # what it may have made of its own
        assert await state_of(owner) == before


async def test_a_tenant_is_not_in_a_memorys_name(filled: Any) -> None:
    served, digest = filled
    _, secret = served.other_key()
    async with served.client(secret) as stranger:
        for name in (f"{served.tenant}%2Ftrip", f"{served.tenant}/trip", "..%2Ftrip", "%2e%2e"):
            for method, route in routes_of(served.app):
                if "{memory}" not in route.path:
                    continue
                path = path_of(route, digest, memory=name)
                response = await stranger.request(method, path, **request_of(route, path))
                assert response.status_code in {404, 405, 422}, (method, path)
        asked = {"model": "vmem", "messages": [{"role": "user", "content": "tent?"}]}
        for name in (f"{served.tenant}/trip", "../trip", "trip"):
            response = await stranger.post(
                "/v1/chat/completions", json=asked, headers={"x-vmem-memory": name}
            )
            assert response.status_code == 404
        listed = await stranger.get("/v1/memories", params={"after": f"{served.tenant}/"})
        assert listed.status_code == 422
        assert (await stranger.get("/v1/memories")).json() == {"memories": [], "next": None}


async def test_a_tenant_whose_name_begins_anothers_sees_nothing_of_it(
    served: Any, canoe: dict[str, Any]
) -> None:
    _, short = served.keys.create("acme")
    _, long = served.keys.create("acme-two")
    async with served.client(long) as client:
        await client.post("/v1/memories/trip/rounds", json={"rounds": [canoe]})
    async with served.client(short) as client:
        assert (await client.get("/v1/memories")).json()["memories"] == []


async def test_an_error_about_a_memory_shows_its_bare_name(
    client: httpx.AsyncClient, served: Any
) -> None:
    await client.post("/v1/memories/trip/rounds", json={"rounds": [{"id": "a", "user": "x"}]})
    long = {"id": "b", "user": "é" * 50_000}
    refused = await client.post("/v1/memories/trip/rounds", json={"rounds": [long]})
    assert refused.status_code == 422
    assert "trip" in refused.json()["error"]["message"]
    assert served.tenant not in refused.text


async def test_the_key_may_come_as_x_api_key(served: Any) -> None:
    async with served.client(None, **{"x-api-key": served.secret}) as client:
        assert (await client.get("/v1/memories")).status_code == 200


async def test_a_revoked_key_ends_when_it_is_looked_up_again(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    info, secret = served.other_key()
    async with served.client(secret) as client:
        assert (await client.get("/v1/models")).status_code == 200
        served.keys.revoke(info.id)
        monkeypatch.setattr(auth, "CACHED_S", 0.0)
        assert (await client.get("/v1/models")).status_code == 401


async def test_a_key_that_was_found_is_not_looked_up_for_each_request(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(served.app.state.here.gate, "keys", Spy(served.keys, calls))
    monkeypatch.setattr(auth, "CACHED_S", 1e9)
    async with served.client() as client:
        for _ in range(3):
            await client.get("/v1/models")
    assert len(calls) == 1


class Spy:
    def __init__(self, keys: Any, calls: list[str]) -> None:
        self._keys, self._calls = keys, calls

    def find(self, secret: str) -> Any:
        self._calls.append(secret)
        return self._keys.find(secret)


async def test_an_open_loopback_lets_callers_in_as_the_nameless(
    serve_app: Callable[..., Any], canoe: dict[str, Any]
) -> None:
    served = serve_app(http={"open_on_loopback": True})
    async with served.client() as owner:
        await owner.post("/v1/memories/secret/rounds", json={"rounds": [canoe]})
    for key in (None, "none"):
        async with served.client(key) as client:
            await client.post("/v1/memories", json={"id": "open"})
            listed = (await client.get("/v1/memories")).json()["memories"]
            assert [memory["id"] for memory in listed] == ["open"]
            assert (await client.get(f"/v1/memories/{served.tenant}%2Fsecret")).status_code == 404
    async with served.client("wrong") as client:
        assert (await client.get("/v1/memories")).status_code == 401


async def test_only_a_loopback_address_can_be_open(serve_app: Callable[..., Any]) -> None:
    served = serve_app(http={"open_on_loopback": True, "host": "0.0.0.0"})
    async with served.client(None) as client:
        assert (await client.get("/v1/memories")).status_code == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://127.0.0.1"}, 200),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "evil.example"}, 403),
        ({"host": "localhost:8000"}, 200),
        ({"host": "[::1]:8000"}, 200),
    ],
)
async def test_pages_of_other_sites_cannot_use_an_open_loopback(
    serve_app: Callable[..., Any], headers: dict[str, str], status: int
) -> None:
    served = serve_app(http={"open_on_loopback": True})
    async with served.client(None) as client:
        assert (await client.get("/v1/memories", headers=headers)).status_code == status


async def test_metrics_ask_for_a_key_where_they_are_not_open(serve_app: Callable[..., Any]) -> None:
    served = serve_app(http={"open_metrics": False})
    async with served.client(None) as stranger, served.client() as client:
        assert (await stranger.get("/metrics")).status_code == 401
        metrics = await client.get("/metrics")
    assert metrics.status_code == 200
    assert metrics.text.startswith("# TYPE")


async def test_each_key_has_a_rate_of_its_own(served: Any) -> None:
    _, slow = served.other_key(rate_per_minute=3)
    async with served.client(slow) as client:
        statuses = [(await client.get("/v1/models")).status_code for _ in range(4)]
        refused = await client.get("/v1/models")
    assert statuses == [200] * 3 + [429]
    assert refused.json()["error"]["code"] == "rate_limited"
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert served.metrics.reasons == ["rate"] * 2
    async with served.client() as other:
        assert (await other.get("/v1/models")).status_code == 200


async def test_callers_without_a_key_are_counted_by_their_address(
    serve_app: Callable[..., Any],
) -> None:
    served = serve_app(http={"open_on_loopback": True}, limits={"rate_per_minute": 2})
    async with served.client(None) as client:
        statuses = [(await client.get("/v1/models")).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]


async def test_a_storage_of_rates_that_is_down_is_no_open_door(
    served: Any, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hit(*_: object) -> bool:
        raise StorageError(ConnectionError("redis at 10.0.0.9"))

    monkeypatch.setattr(MovingWindowRateLimiter, "hit", hit)
    response = await client.get("/v1/models")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "unavailable")
    assert "10.0.0.9" not in response.text


@pytest.mark.parametrize("uri", ["memory://", "async+nothing://", "x"])
def test_a_storage_of_rates_that_cannot_be_is_refused(
    serve_app: Callable[..., Any], uri: str
) -> None:
    with pytest.raises(ConfigError, match="rate_storage"):
        serve_app(limits={"rate_storage": uri})


async def test_one_line_a_request_without_key_text_or_name(
    served: Any, client: httpx.AsyncClient, tent: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="vmem.serve")
    await client.post("/v1/memories/holiday/rounds", json={"rounds": [tent]})
    asked = {"query": "What colour was the tent?"}
    await client.post(
        "/v1/memories/holiday/search", json=asked, headers={"x-request-id": "from-caller.1"}
    )
    lines = [record for record in caplog.records if getattr(record, "event", "") == "request"]
    assert len(lines) == 2
    line = lines[-1].__dict__
    assert (line["method"], line["route"]) == ("POST", "/v1/memories/{memory}/search")
    assert (line["status"], line["request_id"]) == (200, "from-caller.1")
    assert line["key_id"] == served.key.id
    kept = {name: line[name] for name in ("msg", "args", "route", "key_id", "ms", "request_id")}
    text = json.dumps(kept) + "".join(record.getMessage() for record in lines)
    for secret in (served.secret, "holiday", "colour", served.tenant):
        assert secret not in text


async def test_a_failure_is_logged_without_the_key_and_told_without_the_trace(
    served: Any, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    served.service.down["memory"] = RuntimeError(f"boom with {served.secret}")
    response = await client.get("/v1/memories/trip")
    assert response.status_code == 500
    assert "boom" not in response.text
    assert response.json()["error"]["request_id"] == response.headers["x-request-id"]
    (line,) = [record for record in caplog.records if getattr(record, "event", "") == "failed"]
    assert "boom with ***" in line.getMessage()
    assert served.secret not in caplog.text


@pytest.mark.parametrize("hostile", ["", "a b", "x" * 129, "é", "<script>", "a\tb", "../x"])
async def test_a_hostile_request_id_is_replaced(client: httpx.AsyncClient, hostile: str) -> None:
    sent = {"x-request-id": hostile.encode()}
    response = await client.get("/v1/models", headers=sent)
    assert response.headers["x-request-id"] not in {"", hostile}
    assert len(response.headers["x-request-id"]) == 32


async def test_no_page_of_another_site_may_read_unless_it_is_named(
    serve_app: Callable[..., Any],
) -> None:
    asked = {"origin": "https://app.example", "access-control-request-method": "GET"}
    async with serve_app().client() as client:
        closed = await client.options("/v1/memories", headers=asked)
        assert "access-control-allow-origin" not in closed.headers
    served = serve_app(http={"cors_origins": ["https://app.example"]})
    async with served.client() as client:
        opened = await client.options("/v1/memories", headers=asked)
        assert opened.headers["access-control-allow-origin"] == "https://app.example"
        other = {**asked, "origin": "https://other.example"}
        refused = await client.options("/v1/memories", headers=other)
        assert "access-control-allow-origin" not in refused.headers
