"""The application as `serve.app.bind` makes it, its replicas in this process.

Serve's local testing mode differs from a real Ray in what matters here: a replica's error comes as
it is and not in a RayTaskError, and a time limit around a call through a handle ends in a
RequestCancelledError. What rests on either is tested on a real Ray.
"""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
)
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from ray import serve as ray_serve

from serve.app import bind
from serve.http import make_app
from serve.settings import load_serve_settings

HOURS = itertools.count(1)


@dataclass
class Counted:
    """`ApiMetrics` that keeps each request's route, case and status."""

    requests: list[tuple[str, str, int]] = field(default_factory=list)

    def request(self, route: str, case: str, status: int, seconds: float) -> None:
        self.requests.append((route, case, status))

    def rejected(self, reason: str) -> None:
        pass

    def under_way(self, kind: str, n: int) -> None:
        pass


@dataclass(frozen=True)
class Local:
    """An application, taken out of its ingress."""

    app: FastAPI
    counted: Counted

    def client(self) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.app, client=("127.0.0.1", 1))
        return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60)


@dataclass
class Backbone:
    """A server that sends the same to every request, whatever it asks.

    Attributes:
        stream: Sent to a request for a stream.
        whole: Sent to any other.
        stalls: Whether it then waits for the caller to go, where it closes the connection else.
        asked: Paths of the requests so far.
        left: Set once a caller that was waited for has gone.
    """

    stream: bytes
    whole: bytes
    stalls: bool
    asked: list[str] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
            body = json.loads(await reader.readexactly(length) or "{}")
            self.asked.append(head.split()[1])
            writer.write(self.stream if body.get("stream") else self.whole)
            await writer.drain()
            if self.stalls and (body.get("stream") or self.whole == self.stream):
                await reader.read()
                self.left.set()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def start_local() -> Callable[[dict[str, Any]], AbstractContextManager[Local]]:
    """Starts the application of some settings."""

    @contextmanager
    def start(settings: dict[str, Any]) -> Iterator[Local]:
        made: list[Local] = []

        def keep(service: Any, keys: Any, settings: Any, *_: Any, **__: Any) -> FastAPI:
            counted = Counted()
            # The request's id is put on replies by Serve's proxy, which is not here.
            app = make_app(service, keys, settings, counted, echo_request_id=True)
            made.append(Local(app, counted))
            return app

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("serve.app.make_app", keep)
            ray_serve.run(bind(load_serve_settings(settings)), _local_testing_mode=True)
            yield made[0]

    return start


@pytest.fixture(scope="session")
def start_backbone() -> Callable[..., AbstractAsyncContextManager[Backbone]]:
    """Starts a backbone on a port."""

    @asynccontextmanager
    async def start(
        port: int, stream: bytes, whole: bytes | None = None, stalls: bool = False
    ) -> AsyncIterator[Backbone]:
        backbone = Backbone(stream, stream if whole is None else whole, stalls)
        async with await asyncio.start_server(backbone.serve, "127.0.0.1", port):
            yield backbone

    return start


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock by which `Cluster` asks again whether its parts are ready; `now` is set by hand.

    It begins later than it ended in the test before, whose finding would stand otherwise.
    """
    told = SimpleNamespace(now=time.monotonic() + 3_600 * next(HOURS))
    monkeypatch.setattr("serve.cluster.time", SimpleNamespace(monotonic=lambda: told.now))
    return told


@pytest.fixture(scope="session")
def events() -> Callable[[str], list[tuple[str, Any]]]:
    """Reads a stream's events: name and data."""

    def read(text: str) -> list[tuple[str, Any]]:
        blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
        fields = [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]
        return [(one["event"], json.loads(one["data"])) for one in fields]

    return read
