"""A short body travels in the scope; whatever else is received stays what it was."""

import asyncio
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from serve.at_proxy import BODY, CARRIED_BYTES, Carried, Carrying

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
