"""A dead, slow or lying backbone: searches go on, answers fail with a fixed sentence.

The backbone is a socket that misbehaves on purpose; what asks it is the real thing.
"""

import asyncio
import gc
import json
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    aclosing,
    asynccontextmanager,
    closing,
    nullcontext,
)
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from serve.service import Found, Options
from vmem.types import Query

pytestmark = [
    pytest.mark.anyio,
    # All replicas share this process: what the HTTP client leaves of a broken stream may be
    # collected by one thread while the event loop of another closes it.
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <async_generator:pytest.PytestUnraisableExceptionWarning"
    ),
]

KEY = "sk-123456789"
SECRET = f"Traceback: /srv/secret.py line 7, key {KEY}"
QUESTION = {"query": "Which picture shows the kite?"}
ROUTE = "/v1/memories/{memory}/answer"
PATIENT_S = 20.0
"""Seconds that a call has where its time is not to run out."""
SENTENCES = {
    502: ("model_failed", "The language model gave no usable answer."),
    503: ("model_unavailable", "The language model cannot be reached: try again later."),
    504: ("model_timeout", "The language model gave no answer in time."),
}
"""By status: the word and the sentence that a caller is told, whatever happened."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A port that stays this module's: bound, and nobody listens."""
    with closing(socket.socket()) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@dataclass(frozen=True)
class Asking:
    """An application whose backbone is at the port, with a memory of one round."""

    local: Any
    client: httpx.AsyncClient

    async def search(self) -> httpx.Response:
        return await self.client.post("/v1/memories/m/search", json=QUESTION)

    async def answers(self) -> list[httpx.Response]:
        """An answer as a whole and as a stream; at once, as what hangs takes its time."""
        bodies = (QUESTION, {**QUESTION, "stream": True})
        path = "/v1/memories/m/answer"
        return await asyncio.gather(*(self.client.post(path, json=body) for body in bodies))


@pytest.fixture(scope="module")
def start_asking(
    tmp_path_factory: pytest.TempPathFactory,
    served_settings: Callable[..., dict[str, Any]],
    start_local: Callable[..., Any],
    port: int,
) -> Callable[[float], AbstractAsyncContextManager[Asking]]:
    """Starts an application that gives its backbone so many seconds."""

    @asynccontextmanager
    async def start(timeout_s: float) -> AsyncIterator[Asking]:
        home = tmp_path_factory.mktemp("failing")
        settings = served_settings(home, 8000, backbone={"kind": "remote"})
        settings["memory"]["llm"] = {
            "provider": "openai",
            "base_url": f"http://127.0.0.1:{port}/v1",
            "model": "m",
            "api_key": KEY,
            "timeout_s": timeout_s,
            "anchor_timeout_s": timeout_s / 2,
            "attempts": 1,
        }
        with start_local(settings) as local:
            async with local.client() as client:
                round_ = {"id": "1", "user": "a red kite", "time": "2026-05-04", "session": "s"}
                reply = await client.post("/v1/memories/m/rounds", json={"rounds": [round_]})
                assert reply.status_code == 200, reply.text
                yield Asking(local, client)
        gc.collect()  # under this file's filter

    return start


@pytest.fixture(scope="module")
async def asking(start_asking: Callable[[float], Any]) -> AsyncIterator[Asking]:
    """An application with plenty of time."""
    async with start_asking(PATIENT_S) as started:
        yield started


@pytest.fixture(scope="module")
async def hasty(start_asking: Callable[[float], Any]) -> AsyncIterator[Asking]:
    """An application whose time is meant to run out; the tests of the other come before."""
    async with start_asking(1.0) as started:
        yield started


def _head(status: int, kind: str, length: int | None = None) -> bytes:
    size = "" if length is None else f"content-length: {length}\r\n"
    return (
        f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{size}connection: close\r\n\r\n".encode()
    )


def _reply(status: int, body: object, kind: str = "application/json") -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return _head(status, kind, len(content)) + content


def _error(message: str, code: str = "x") -> dict[str, Any]:
    return {"error": {"message": f"{message} {SECRET}", "code": code}}


def _event(data: object) -> bytes:
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def _piece(text: str | None, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return _event({"object": "chat.completion.chunk", "choices": [choice]})


def _whole(text: str) -> bytes:
    choice = {"index": 0, "message": {"content": text}, "finish_reason": "stop"}
    return _reply(200, {"object": "chat.completion", "choices": [choice]})


SSE = _head(200, "text/event-stream")
END = _piece(None, "stop") + b"data: [DONE]\n\n"
CAPTION = _whole("a kite in the sky")
GONE = "the language model cannot be reached"
LATE = "the language model gave no reply in time"
SENSELESS = "the language model gave a reply that makes no sense"
REJECTED = "the language model rejects the call"
OVERFLOW = _error("maximum context length is 8", "context_length_exceeded")
BROKEN = b'{"choices": [{'


@dataclass(frozen=True)
class Case:
    """What a backbone does, an answer's status, and why a search had no caption written.

    Attributes:
        stream: What it sends; None where nobody listens.
        whole: What it sends to a request for no stream, where that is something else.
    """

    stream: bytes | None
    status: int
    note: str
    whole: bytes | None = None


CASES = {
    "refuses": Case(None, 503, GONE),
    "hangs up": Case(b"", 503, GONE),
    "speaks no HTTP": Case(b"SSH-2.0-OpenSSH_9.2\r\n", 503, GONE),
    "429": Case(_reply(429, _error("slow down")), 503, GONE),
    "500": Case(_reply(500, _error("boom")), 503, GONE),
    "503 in HTML": Case(_reply(503, SECRET.encode(), "text/html"), 503, GONE),
    "wrong key": Case(_reply(401, _error("bad key")), 502, REJECTED),
    "over-long prompt": Case(_reply(400, OVERFLOW), 502, REJECTED),
    "no choices": Case(_reply(200, {}), 502, SENSELESS),
    "a page": Case(_reply(200, SECRET.encode(), "text/html"), 502, SENSELESS),
    "broken JSON": Case(SSE + _event(BROKEN), 502, SENSELESS, _reply(200, BROKEN)),
    "empty reply": Case(SSE + _piece("") + END, 502, SENSELESS, _whole("")),
    "blank reply": Case(SSE + _piece(" \n") + END, 502, SENSELESS, _whole(" \n")),
}


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])
async def test_searches_go_on_and_answers_fail_with_a_fixed_sentence(
    asking: Asking,
    port: int,
    start_backbone: Callable[..., Any],
    events: Callable[[str], Any],
    caplog: pytest.LogCaptureFixture,
    case: Case,
) -> None:
    started = nullcontext()
    if case.stream is not None:
        started = start_backbone(port, case.stream, case.whole)
    async with started as backbone:
        replies = (await asking.search(), *await asking.answers())
    _check_replies(*replies, case, events)
    _check_counts(asking, case.status)
    _check_log(caplog)
    assert backbone is None or backbone.asked == ["/v1/chat/completions"] * 5


def _check_replies(
    found: httpx.Response, whole: httpx.Response, streamed: httpx.Response, case: Case, events: Any
) -> None:
    assert found.status_code == 200, found.text
    assert [cited["round_id"] for cited in found.json()["citations"]] == ["1"]
    assert found.json()["notes"] == [f"hypothetical caption not usable: {case.note}"]
    assert SECRET not in found.text
    assert whole.status_code == case.status
    _check_told(whole.json(), case.status, whole)
    (first, shown), *tokens, (last, error) = events(streamed.text)
    assert (first, last) == ("found", "error")
    assert shown["citations"] == found.json()["citations"]
    assert "".join(token["text"] for _, token in tokens).strip() == ""
    _check_told(error, case.status, streamed)


def _check_told(body: Any, status: int, response: httpx.Response) -> None:
    """Nothing but the fixed sentence: no word of the server's is in it."""
    code, message = SENTENCES[status]
    told = {"code": code, "message": message, "type": "server_error", "param": None}
    assert body == {"error": {**told, "request_id": response.headers["x-request-id"]}}
    assert response.headers["x-request-id"]


def _check_counts(asking: Asking, status: int) -> None:
    """Both answers are counted by the error's status, the stream that began with 200 too."""
    assert asking.local.counted.requests[-2:] == [(ROUTE, "text->image", status)] * 2
    assert asking.local.app.state.admission.under_way() == 0


def _check_log(caplog: pytest.LogCaptureFixture) -> None:
    """What failed is in the log, as a sentence: no traceback, no key."""
    ours = [record for record in caplog.records if record.name.startswith("vmem")]
    assert [r.getMessage() for r in ours if r.exc_info or r.levelno >= logging.ERROR] == []
    assert sum(r.levelno == logging.WARNING for r in ours) >= 2
    assert not any(KEY in record.getMessage() for record in ours)


TOKENS = SSE + _piece("a ") + _piece("red ")
CUT = TOKENS.replace(SSE, _head(200, "text/event-stream", 9_999))
BREAKS = {
    "is cut": (CUT, 503),
    "ends without saying so": (TOKENS, 503),
    "says that it failed": (TOKENS + _event(_error("boom")), 503),
    "turns into nonsense": (TOKENS + _event(BROKEN), 502),
}


@pytest.mark.parametrize(
    ("stream", "status"), [pytest.param(*how, id=name) for name, how in BREAKS.items()]
)
async def test_a_reply_that_breaks_after_two_tokens_ends_its_stream_with_an_error(
    asking: Asking,
    port: int,
    start_backbone: Callable[..., Any],
    events: Callable[[str], Any],
    caplog: pytest.LogCaptureFixture,
    stream: bytes,
    status: int,
) -> None:
    async with start_backbone(port, stream, CAPTION):
        whole, streamed = await asking.answers()
    _check_broken(whole, streamed, status, events)
    _check_counts(asking, status)
    _check_log(caplog)


def _check_broken(
    whole: httpx.Response, streamed: httpx.Response, status: int, events: Any
) -> None:
    assert (whole.status_code, streamed.status_code) == (status, 200)
    _check_told(whole.json(), status, whole)
    (_, found), *tokens, (last, error) = events(streamed.text)
    assert found["notes"] == []
    assert tokens == [("token", {"text": "a "}), ("token", {"text": "red "})]
    assert last == "error"
    _check_told(error, status, streamed)


async def test_a_backbone_that_is_back_answers_again(
    asking: Asking, port: int, start_backbone: Callable[..., Any]
) -> None:
    assert [reply.status_code for reply in await asking.answers()] == [503, 200]
    async with start_backbone(port, TOKENS + _piece("kite") + END, CAPTION):
        whole, _ = await asking.answers()
    assert (whole.status_code, whole.json()["answer"]) == (200, "a red kite")


async def test_a_reader_that_leaves_ends_the_backbones_work(
    asking: Asking, port: int, start_backbone: Callable[..., Any]
) -> None:
    service = asking.local.app.state.here.service
    async with start_backbone(port, TOKENS, CAPTION, stalls=True) as backbone:
        async with aclosing(service.answer("m", Query(text=QUESTION["query"]), Options())) as said:
            assert isinstance(await anext(said), Found)
            assert await anext(said) == "a "
            assert not backbone.left.is_set()
        await asyncio.wait_for(backbone.left.wait(), PATIENT_S / 2)  # its own time is not over


PARTS = {"writer": "ok", "encoders": "ok", "store": "ok", "backbone": "ok"}


@pytest.mark.parametrize("name", ["refuses", "hangs up", "500", "wrong key"])
async def test_readiness_says_that_the_backbone_is_down_while_searches_go_on(
    asking: Asking,
    port: int,
    start_backbone: Callable[..., Any],
    clock: SimpleNamespace,
    name: str,
) -> None:
    down = CASES[name].stream
    async with nullcontext() if down is None else start_backbone(port, down) as backbone:
        unready = await asking.client.get("/readyz")
        found = await asking.search()
    assert (unready.status_code, found.status_code) == (503, 200)
    assert unready.json() == {"parts": PARTS | {"backbone": "unavailable"}}
    assert backbone is None or backbone.asked == ["/v1/models", "/v1/chat/completions"]
    clock.now += 3.0
    async with start_backbone(port, _reply(200, {"data": []})):
        ready = await asking.client.get("/readyz")
    assert (ready.status_code, ready.json()) == (200, {"parts": PARTS})


@pytest.mark.parametrize("sent", [b"", _head(200, "application/json", 9)], ids=["", "status"])
async def test_a_backbone_that_hangs_is_given_up_in_time(
    hasty: Asking,
    port: int,
    start_backbone: Callable[..., Any],
    events: Callable[[str], Any],
    caplog: pytest.LogCaptureFixture,
    sent: bytes,
) -> None:
    async with start_backbone(port, sent, stalls=True):
        replies = (await hasty.search(), *await hasty.answers())
    _check_replies(*replies, Case(sent, 504, LATE), events)
    _check_counts(hasty, 504)
    _check_log(caplog)


async def test_a_reply_that_stalls_after_two_tokens_is_given_up_in_time(
    hasty: Asking, port: int, start_backbone: Callable[..., Any], events: Callable[[str], Any]
) -> None:
    async with start_backbone(port, TOKENS, CAPTION, stalls=True):
        whole, streamed = await hasty.answers()
    _check_broken(whole, streamed, 504, events)
    _check_counts(hasty, 504)
