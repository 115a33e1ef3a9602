"""The description, the docs page and the page: whole, offline, and closed against script."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from serve.observe import POLICIES

pytestmark = pytest.mark.anyio
PLAIN = {"/livez", "/readyz", "/metrics"}


@pytest.fixture
async def described(client: httpx.AsyncClient) -> Any:
    return (await client.get("/openapi.json")).json()


def operations(document: dict[str, Any]) -> Any:
    return [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


async def test_every_route_says_what_it_takes_and_gives(described: dict[str, Any]) -> None:
    found = operations(described)
    assert len(found) == 21
    for path, method, operation in found:
        where = f"{method} {path}"
        assert operation["summary"], where
        assert operation["description"], where
        assert operation["tags"], where
        good = [code for code in operation["responses"] if code.startswith("2")]
        contents = [operation["responses"][code].get("content", {}) for code in good]
        assert any(contents) or "204" in good, where
        for content in contents:
            for kind in content.values():
                assert kind.get("schema") or kind.get("example"), where
        if method == "post":
            for kind in operation["requestBody"]["content"].values():
                assert kind.get("examples") or kind.get("example"), where
                assert kind["schema"], where
        if path not in PLAIN:
            assert "401" in operation["responses"], where
            assert operation["security"], where


async def test_every_reference_leads_somewhere(described: dict[str, Any]) -> None:
    def references(value: Any) -> Iterator[Any]:
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from [inner] if key == "$ref" else references(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from references(inner)

    found = set(references(described))
    assert len(found) > 20
    for reference in found:
        place = described
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]


async def test_every_example_works_as_it_stands(
    described: dict[str, Any], client: httpx.AsyncClient
) -> None:
    sent = 0
    for path, method, operation in operations(described):
        content = operation.get("requestBody", {}).get("content", {})
        for name, example in content.get("application/json", {}).get("examples", {}).items():
            url = path.replace("{memory}", "trip")
            response = await client.request(method, url, json=example["value"])
            assert response.status_code in {200, 201}, (url, name, response.text)
            sent += 1
    assert sent == 10


async def test_the_docs_page_needs_nothing_from_elsewhere(client: httpx.AsyncClient) -> None:
    page = await client.get("/docs")
    assert page.headers["content-security-policy"] == POLICIES["/docs"]
    places = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(places) == 4
    assert "<script>" not in page.text
    for place in places:
        if not place.startswith("data:"):
            response = await client.get(place)
            assert response.status_code == 200
            assert len(response.content) > 100
    start = await client.get("/docs/start.js")
    assert start.headers["content-type"].startswith("text/javascript")
    assert '"/openapi.json"' in start.text


async def test_the_page_has_a_strict_policy(client: httpx.AsyncClient) -> None:
    page = await client.get("/ui/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert policy == POLICIES["/ui"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    root = await client.get("/")
    assert root.headers["location"] == "/ui/"


async def test_without_the_page_the_root_leads_to_the_docs(serve_app: Callable[..., Any]) -> None:
    served = serve_app(http={"ui": False})
    async with served.client() as client:
        assert (await client.get("/")).headers["location"] == "/docs"
        assert (await client.get("/ui/")).status_code == 404


async def test_every_response_has_the_headers_that_keep_browsers_careful(
    client: httpx.AsyncClient,
) -> None:
    for path in (
        "/v1/memories",
        "/livez",
        "/nothing",
        "/docs",
        "/ui/",
        "/openapi.json",
        "/metrics",
    ):
        headers = (await client.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert re.fullmatch("[0-9a-f]{32}", headers["x-request-id"])
    assert (await client.get("/v1/memories")).headers["cache-control"] == "private, no-store"


async def test_labels_of_counts_are_templates(client: httpx.AsyncClient, served: Any) -> None:
    for path in ("/v1/memories/a", "/v1/memories/b", "/nothing/1", "/nothing/2", "/ui/style.css"):
        await client.get(path)
    routes = {route for route, _, _ in served.metrics.requests}
    assert routes == {"/v1/memories/{memory}", "unmatched", "/ui"}
