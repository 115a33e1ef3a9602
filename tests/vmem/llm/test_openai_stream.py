"""Streamed replies: what servers send, in order or broken, against a scripted one."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from vmem.config import ModelSettings
from vmem.errors import (
    ModelError,
    ModelFormatError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from vmem.llm.openai_chat import OpenAIChat
from vmem.ports import ChatReply, ChatRequest
from vmem.types import Usage

REQUEST = ChatRequest(role="answer", prompt="Where?", json_schema=None)
ASKED = ChatRequest(role="answer", prompt="Where?", json_schema={"type": "object"})
DONE = b"data: [DONE]\n\n"
Part = bytes | Exception | float
"""Bytes to send, an error to break with, or seconds to be silent for."""


def event(content: Any = None, finish: str | None = None, **extra: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
    return line({"choices": [choice], **extra})


def line(values: Any) -> bytes:
    if isinstance(values, dict):
        values = {"id": "c1", "object": "chat.completion.chunk", "created": 1, **values}
    return f"data: {json.dumps(values)}\n\n".encode()


USAGE = line({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 3}})
WHOLE = [event(""), event("Ro"), event("me "), event(None, "stop"), USAGE, DONE]


class Parts(httpx2.AsyncByteStream):
    """A body that is sent part by part; knows whether it was let go."""

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts
        self.sent = 0
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self.parts:
            if isinstance(part, Exception):
                raise part
            if isinstance(part, float):
                await asyncio.sleep(part)
            else:
                self.sent += 1
                yield part

    async def aclose(self) -> None:
        self.closed = True


class Server:
    """Replies in turn: a streamed body's parts, or a whole response."""

    def __init__(self, *replies: list[Part] | httpx2.Response, **settings: Any) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.streams: list[Parts] = []
        self.pauses: list[float] = []
        self._replies = list(replies)
        self.chat = OpenAIChat(
            ModelSettings(base_url="http://models.example/v1", model="m7", **settings),
            http_client=httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer)),
            sleep=self._pause,
        )

    def read(self, request: ChatRequest = REQUEST, stop_after: int = 99) -> list[str | ChatReply]:
        return asyncio.run(self._read(request, stop_after, []))

    def read_until_broken(self, kind: type[ModelError]) -> tuple[list[str | ChatReply], str]:
        got: list[str | ChatReply] = []
        with pytest.raises(ModelError) as caught:
            asyncio.run(self._read(REQUEST, 99, got))
        assert type(caught.value) is kind
        return got, str(caught.value)

    async def _read(
        self, request: ChatRequest, stop_after: int, got: list[str | ChatReply]
    ) -> list[str | ChatReply]:
        pieces = self.chat.stream(request)
        async for piece in pieces:
            got.append(piece)
            if len(got) == stop_after:
                break
        await pieces.aclose()
        return got

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.bodies.append(json.loads(request.content))
        reply = self._replies[len(self.bodies) - 1]
        if isinstance(reply, httpx2.Response):
            return reply
        self.streams.append(Parts(reply))
        kind = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=kind, stream=self.streams[-1])

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


def refusal(status: int, message: str = "no") -> httpx2.Response:
    return httpx2.Response(status, json={"error": {"message": message, "code": None}})


def test_pieces_come_as_they_are_sent_and_last_the_whole_reply() -> None:
    server = Server(WHOLE)
    usage = Usage(role="answer", prompt_tokens=11, completion_tokens=3)
    assert server.read() == ["Ro", "me ", ChatReply(text="Rome ", usage=usage)]
    (body,) = server.bodies
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})
    assert server.streams[0].closed


def test_a_server_that_counts_nothing_leaves_the_usage_at_zero() -> None:
    reply = Server([event("Ro"), event("me", "length"), DONE]).read()[-1]
    assert reply == ChatReply(text="Rome", usage=Usage(role="answer"), finish_reason="length")


def test_usage_that_comes_with_the_text_is_read_too() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": None}
    reply = Server([event("Rome", "stop", usage=usage), DONE]).read()[-1]
    assert isinstance(reply, ChatReply)
    assert reply.usage == Usage(role="answer", prompt_tokens=5)


@pytest.mark.parametrize(
    "failure",
    [
        refusal(429),
        refusal(503),
        [httpx2.ReadError("gone")],
        [event(""), httpx2.ReadTimeout("late")],
        [event(""), 9.0, event("late")],
    ],
    ids=["429", "503", "broken", "late", "silent"],
)
def test_what_may_pass_is_tried_again_before_the_first_piece(failure: Any) -> None:
    server = Server(failure, WHOLE, timeout_s=0.2)
    assert server.read()[:-1] == ["Ro", "me "]
    assert (len(server.bodies), len(server.pauses)) == (2, 1)
    assert all(stream.closed for stream in server.streams)


@pytest.mark.parametrize(
    ("end", "kind", "words"),
    [
        (httpx2.ReadError("gone"), ModelUnavailableError, "cannot be reached"),
        (httpx2.ReadTimeout("late"), ModelTimeoutError, "within 0.2 s: raise llm.timeout_s"),
        (9.0, ModelTimeoutError, "within 0.2 s: raise llm.timeout_s"),
        (line({"error": {"message": "GPU lost\n at x"}}), ModelUnavailableError, "off: GPU lost"),
        (
            line({"error": {"message": "maximum context length is 8"}}),
            ModelError,
            "lower answer.context_tokens",
        ),
        (b"data: {broken\n\n", ModelFormatError, "answered with broken JSON"),
        (b"data: \xff\xfe\n\n", ModelFormatError, "answered with broken JSON"),
        (line({"choices": [7]}), ModelFormatError, "no chat completion"),
        (line({"choices": {"a": 1}}), ModelFormatError, "no chat completion"),
        (line([1]), ModelFormatError, "no chat completion"),
        (event({"a": 1}), ModelFormatError, "no chat completion"),
        (DONE, ModelUnavailableError, "broke off its reply"),
        (b"", ModelUnavailableError, "broke off its reply"),
    ],
    ids=repr,
)
def test_nothing_is_tried_again_after_the_first_piece(
    end: Part, kind: type[ModelError], words: str
) -> None:
    server = Server([event("Ro"), end], WHOLE, timeout_s=0.2)
    got, said = server.read_until_broken(kind)
    assert got == ["Ro"]
    assert words in said
    assert said.startswith(("model m7 at models.example", "the prompt of the answer call"))
    assert len(server.bodies) == 1
    assert server.streams[0].closed


def test_the_time_is_for_the_whole_reply_however_lively_it_is() -> None:
    drip: list[Part] = [part for n in range(50) for part in (event(f"{n} "), 0.05)]
    server = Server(drip, timeout_s=0.3)
    got, _ = server.read_until_broken(ModelTimeoutError)
    assert 1 <= len(got) <= 6
    assert server.streams[0].closed


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (httpx2.Response(200, html="<html>"), "llm.base_url must end in /v1"),
        (httpx2.Response(200, json={"choices": []}), "no chat completion"),
        ([DONE], "no chat completion"),
        ([b"data: {oops\n\n"], "broken JSON"),
        ([event("", "stop"), DONE], "gave an empty reply to the answer call (finish reason stop)"),
    ],
)
def test_a_reply_of_no_use_is_an_error(reply: Any, words: str) -> None:
    server = Server(reply, WHOLE)
    got, said = server.read_until_broken(ModelFormatError)
    assert (got, len(server.bodies)) == ([], 1)
    assert words in said


def test_a_prompt_over_the_window_names_the_mend() -> None:
    server = Server(refusal(400, "This model's maximum context length is 4096 tokens"))
    _, said = server.read_until_broken(ModelError)
    assert said.endswith("is too long for model m7 at models.example: lower answer.context_tokens")


def test_a_server_without_schemas_is_asked_plainly() -> None:
    server = Server(refusal(400, "unknown field"), WHOLE)
    assert server.read(ASKED)[:-1] == ["Ro", "me "]
    assert ["response_format" in body for body in server.bodies] == [True, False]


def test_a_reader_who_leaves_lets_the_connection_go() -> None:
    server = Server([event("Ro"), event("me"), event("!"), 9.0, DONE])
    assert server.read(stop_after=1) == ["Ro"]
    assert server.streams[0].closed
    assert server.streams[0].sent < 4


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_whole_reply_has_its_time_too(attempts: int) -> None:
    server = Server(*[[b"{", 9.0] for _ in range(attempts)], timeout_s=0.1, attempts=attempts)
    with pytest.raises(ModelTimeoutError, match=r"gave no reply within 0\.1 s"):
        asyncio.run(server.chat.complete(REQUEST))
    assert len(server.bodies) == attempts
