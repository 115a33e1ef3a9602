"""What stands around Serve's proxy: a bound, and short bodies that travel in the scope."""

import asyncio
import json
from typing import Any

import pytest
from ray.serve._private.http_util import _apply_middlewares
from starlette.types import Message, Receive, Scope, Send

from serve.at_proxy import (
    BODY,
    CARRIED_BYTES,
    PLACES,
    Bounded,
    Carried,
    Carrying,
    proxy_env,
    proxy_middleware,
)
from serve.request_id import WithGoodId
from serve.settings import load_serve_settings

pytestmark = pytest.mark.anyio
DISCONNECT: Message = {"type": "http.disconnect"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def _body(data: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": data, "more_body": more}


class _Inside:
    """Keeps its scope and all that it receives up to the end of the connection."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.scope: Scope = {}
        self.received: list[Message] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.begun.set()
        while not self.received or self.received[-1] != DISCONNECT:
            self.received.append(await receive())


def _scope(length: str | None) -> dict[str, Any]:
    headers = [] if length is None else [(b"content-length", length.encode())]
    return {"type": "http", "headers": headers}


def _client(*messages: Message) -> Receive:
    left = list(messages)

    async def receive() -> Message:
        return left.pop(0)

    return receive


async def _send(_: Message) -> None:
    raise AssertionError("nothing is answered here")


async def test_a_short_body_is_carried_and_its_messages_come_again() -> None:
    inside = _Inside()
    messages = (_body(b"ab", more=True), _body(b"c"), DISCONNECT)
    await Carrying(inside)(_scope("3"), _client(*messages), _send)
    assert inside.scope[BODY] == b"abc"
    assert inside.received == list(messages)


@pytest.mark.parametrize("length", [None, "0", "x", "-1", str(CARRIED_BYTES + 1), "9" * 30])
async def test_any_other_body_goes_its_own_way(length: str | None) -> None:
    inside = _Inside()
    messages = (_body(b"abc"), DISCONNECT)
    await Carrying(inside)(_scope(length), _client(*messages), _send)
    assert BODY not in inside.scope
    assert inside.received == list(messages)


async def test_a_caller_who_leaves_in_the_middle_carries_nothing() -> None:
    inside = _Inside()
    messages = (_body(b"ab", more=True), DISCONNECT)
    await Carrying(inside)(_scope("3"), _client(*messages), _send)
    assert BODY not in inside.scope
    assert inside.received == list(messages)


async def test_a_slow_body_is_left_to_the_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve.at_proxy.WAIT_S", 0.01)
    rest: asyncio.Queue[Message] = asyncio.Queue()
    inside = _Inside()
    await rest.put(_body(b"ab", more=True))
    task = asyncio.create_task(Carrying(inside)(_scope("3"), rest.get, _send))
    await inside.begun.wait()
    assert BODY not in inside.scope
    await rest.put(_body(b"c"))
    await rest.put(DISCONNECT)
    await task
    assert inside.received == [_body(b"ab", more=True), _body(b"c"), DISCONNECT]


async def test_what_was_carried_is_received_once_and_then_the_end() -> None:
    inside = _Inside()
    scope = {**_scope("3"), BODY: b"abc"}
    again = (_body(b"ab", more=True), _body(b"c"), DISCONNECT)
    await Carried(inside)(scope, _client(*again), _send)
    assert inside.received == [_body(b"abc"), DISCONNECT]
    assert BODY not in inside.scope


async def test_without_a_carried_body_nothing_changes() -> None:
    inside = _Inside()
    messages = (_body(b"abc"), DISCONNECT)
    await Carried(inside)(_scope("3"), _client(*messages), _send)
    assert inside.received == list(messages)


class _Slow:
    """Takes requests on and answers them when it is told to."""

    def __init__(self) -> None:
        self.taken = 0
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.taken += 1
        await self.go_on.wait()


async def _asked(app: Bounded, method: str = "POST") -> list[Message]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "headers": [(b"x-request-id", b"abc")]}
    await app(scope, _client(), send)
    return sent


async def test_what_is_beyond_the_bound_is_refused_and_reaches_nobody() -> None:
    inside = _Slow()
    bounded = Bounded(inside, places=2, retry_after_s=3)
    tasks = [asyncio.create_task(_asked(bounded)) for _ in range(2)]
    await asyncio.sleep(0)
    start, body = await _asked(bounded)
    assert start["status"] == 429
    headers = dict(start["headers"])
    assert (headers[b"retry-after"], headers[b"x-request-id"]) == (b"3", b"abc")
    error = json.loads(body["body"])["error"]
    assert (error["code"], error["request_id"]) == ("overloaded", "abc")
    assert inside.taken == 2
    reading = asyncio.create_task(_asked(bounded, "GET"))  # reads have no bound
    await asyncio.sleep(0)
    assert inside.taken == 3
    inside.go_on.set()
    await asyncio.gather(*tasks, reading)
    assert await _asked(bounded) == []  # the places are free again
    assert inside.taken == 4


async def test_a_request_that_fails_gives_its_place_back() -> None:
    async def fails(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("boom")

    bounded = Bounded(fails, places=1, retry_after_s=1)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="boom"):
            await _asked(bounded)


def test_a_proxy_is_told_its_bound_by_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_serve_settings(
        {
            "name": "t",
            "admission": {"search": 3, "answer": 2, "append": 1, "retry_after_s": 7},
            "api": {"replicas": 2},
        }
    )
    for name, value in proxy_env(settings).items():
        monkeypatch.setenv(name, value)
    bound = [each for each in proxy_middleware() if each.cls is Bounded]
    assert [each.kwargs for each in bound] == [{"places": 12, "retry_after_s": 7}]
    monkeypatch.delenv(PLACES)
    assert [each.cls for each in proxy_middleware()] == [Carrying, WithGoodId]


async def test_a_caller_without_an_id_is_refused_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve puts the list around the proxy as `_apply_middlewares` does: the first is inmost."""
    monkeypatch.setenv(PLACES, "0")
    app = _apply_middlewares(_Slow(), proxy_middleware())
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await app({"type": "http", "method": "POST", "path": "/", "headers": []}, _client(), send)
    start, body = sent
    given = dict(start["headers"])[b"x-request-id"].decode()
    assert start["status"] == 429
    assert json.loads(body["body"])["error"]["request_id"] == given != ""
