"""Pictures by URL: off by default; on, no address inside is ever connected to."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from ipaddress import ip_address
from typing import Any

import httpx
import pytest

from serve.fetching import fetch_image, is_public
from serve.settings import ImageUrlSettings
from vmem.errors import ImageError

pytestmark = pytest.mark.anyio
ON = ImageUrlSettings(enabled=True, timeout_s=0.5, max_bytes=1_000)
PUBLIC = "93.184.215.14"


async def body() -> AsyncIterator[Any]:
    yield b"pic"
    yield b"ture"


class Web(httpx.AsyncBaseTransport):
    """Answers every request and keeps it."""

    def __init__(self, answer: Any = lambda _: httpx.Response(200, content=body())) -> None:
        self.requests = []
        self._answer = answer

    async def handle_async_request(self, request: Any) -> Any:
        self.requests.append(request)
        return self._answer(request)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Names of hosts and their addresses, in place of the system's."""
    table = {"pictures.example": [PUBLIC]}
    asked = []

    async def getaddrinfo(_self: Any, host: str, port: Any, **options: Any) -> Any:
        asked.append(host)
        try:
            found = table[host]
        except KeyError:
            found = [str(ip_address(host))] if _is_address(host) else None
        if not found:
            raise socket.gaierror("no such host")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", getaddrinfo)
    table["asked"] = asked
    return table


def _is_address(host: str) -> Any:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


INSIDE = [
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1",
    "169.254.169.254", "224.0.0.1", "255.255.255.255", "240.0.0.1", "192.0.2.1", "198.18.0.1",
    "::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1",
    "::ffff:10.0.0.1", "::127.0.0.1", "2002:7f00:1::", "2002:a00:1::1", "64:ff9b::7f00:1",
    "64:ff9b::a00:1", "64:ff9b:1::a9fe:a9fe", "2001:db8::1", "2001::1",
]  # fmt: skip


@pytest.mark.parametrize("address", INSIDE)
async def test_no_address_inside_is_public_or_connected_to(
    names: dict[str, list[str]], address: str
) -> None:
    assert not is_public(ip_address(address))
    names["evil.example"] = [address]
    names["mixed.example"] = [PUBLIC, address]
    web = Web()
    literal = f"[{address}]" if ":" in address else address
    for host in ("evil.example", "mixed.example", literal):
        with pytest.raises(ImageError, match="not a public one"):
            await fetch_image(f"http://{host}/x.png", ON, web)
    assert web.requests == []


@pytest.mark.parametrize("address", [PUBLIC, "8.8.8.8", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"])
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(ip_address(address))


async def test_the_address_that_was_checked_is_the_one_connected_to(
    names: dict[str, list[str]],
) -> None:
    """A name that answers differently the second time is only asked once."""
    web = Web()
    data = await fetch_image("https://pictures.example:8443/a/b.png?c=d#e", ON, web)
    (request,) = web.requests
    assert data == b"picture"
    assert str(request.url) == f"https://{PUBLIC}:8443/a/b.png?c=d"
    assert request.headers["host"] == "pictures.example:8443"
    assert request.extensions["sni_hostname"] == "pictures.example"
    assert names["asked"] == ["pictures.example"]


async def test_an_address_of_version_six_is_connected_to(names: dict[str, list[str]]) -> None:
    names["six.example"] = ["2606:2800:21f:cb07:6820:80da:af6b:8b2c"]
    web = Web()
    await fetch_image("http://six.example/x", ON, web)
    assert web.requests[0].url.host == "2606:2800:21f:cb07:6820:80da:af6b:8b2c"
    assert web.requests[0].headers["host"] == "six.example"


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd", "ftp://pictures.example/x", "gopher://x", "//pictures.example/x",
        "http://", "http:///x", "http://user:pass@pictures.example/", "http://@pictures.example/",
        "http://[::1", "http://pictures.example:99999/", "http://pictures.example:0/",
        "javascript:1", "data:image/png;base64,AA",
        "http://2130706433/", "http://0x7f.1/", "http://unknown.example/",
        "http://pictures.example\\@127.0.0.1/", "http://127.0.0.1#@pictures.example/",
        "http://a b/", "http://pictures.example\r\nx: y/",
    ],
)  # fmt: skip
async def test_odd_urls_reach_nothing_inside(names: dict[str, list[str]], url: str) -> None:
    web = Web()
    with pytest.raises(ImageError):
        await fetch_image(url, ON, web)
    assert all(request.url.host == PUBLIC for request in web.requests)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_redirects_are_not_followed(names: dict[str, list[str]], status: int) -> None:
    web = Web(lambda _: httpx.Response(status, headers={"location": "http://127.0.0.1/"}))
    with pytest.raises(ImageError, match="no picture"):
        await fetch_image("http://pictures.example/x", ON, web)
    assert len(web.requests) == 1


async def test_what_is_too_long_or_too_slow_is_given_up(names: dict[str, list[str]]) -> None:
    pieces = []

    async def endless() -> AsyncIterator[Any]:
        while True:
            pieces.append(400)
            yield bytes(400)

    async def silent() -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield b""

    for stream, sentence in ((endless, "over 1,000 bytes"), (silent, "could not be fetched")):
        web = Web(lambda _, stream=stream: httpx.Response(200, content=stream()))
        with pytest.raises(ImageError, match=sentence):
            await fetch_image("http://pictures.example/x", ON, web)
    assert sum(pieces) <= 1_600


async def test_only_hosts_that_are_named_are_asked(names: dict[str, list[str]]) -> None:
    settings = ON.model_copy(update={"allowed_hosts": ("pictures.example",)})
    web = Web()
    assert await fetch_image("http://pictures.example/x", settings, web) == b"picture"
    with pytest.raises(ImageError, match="not among"):
        await fetch_image("http://other.example/x", settings, web)


async def test_proxies_of_the_environment_are_not_used(
    names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a real connection: to the address that the name has, not to the proxy."""
    asked = {"proxy": b"", "host": b""}

    async def listen(who: str) -> Any:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked[who] = await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\npicture")
            writer.close()

        return await asyncio.start_server(answer, "127.0.0.1", 0)

    async with await listen("proxy") as proxy, await listen("host") as host:
        ports = [server.sockets[0].getsockname()[1] for server in (proxy, host)]
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{ports[0]}")
        names["local.example"] = ["127.0.0.1"]
        monkeypatch.setattr("serve.fetching.is_public", lambda _: True)
        assert await fetch_image(f"http://local.example:{ports[1]}/x", ON) == b"picture"
    assert asked["proxy"] == b""
    assert f"local.example:{ports[1]}".encode() in asked["host"]


async def test_off_by_default_and_checked_as_a_picture_when_on(
    serve_app: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, picture: Callable[..., bytes]
) -> None:
    asked = {"query": "Where?", "image": {"url": "https://pictures.example/x.png"}}
    served = serve_app()
    async with served.client() as client:
        refused = await client.post("/v1/memories/trip/search", json=asked)
        assert (refused.status_code, "does not fetch" in refused.text) == (422, True)
    content = [b"<svg/>", picture()]

    async def fetched(url: str, settings: Any) -> Any:
        return content.pop(0)

    monkeypatch.setattr("serve.media.fetch_image", fetched)
    served = serve_app(image_urls={"enabled": True})
    async with served.client() as client:
        await client.post("/v1/memories", json={"id": "trip"})
        wrong = await client.post("/v1/memories/trip/search", json=asked)
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (422, "invalid_image")
        right = await client.post("/v1/memories/trip/search", json=asked)
        assert right.json()["route"]["query_modality"] == "image"
