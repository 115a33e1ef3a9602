"""The client of a vLLM backbone against a scripted handle. Needs no vLLM."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

from serve import vllm
from serve.vllm import VllmChat
from vmem.config import ModelSettings
from vmem.errors import (
    ConfigError,
    ModelError,
    ModelFormatError,
    ModelTimeoutError,
    ModelUnavailableError,
    ModelUnusableError,
)
from vmem.ports import ChatReply, ChatRequest
from vmem.types import Usage

REQUEST = ChatRequest(role="answer", prompt="Where?")


class Replies:
    """What a call yields: items, errors to raise, and seconds to wait."""

    def __init__(self, script: list[Any]) -> None:
        self._script = script
        self.cancelled = False

    async def __anext__(self) -> Any:
        while self._script:
            item = self._script.pop(0)
            if isinstance(item, Exception):
                raise item
            if not isinstance(item, float):
                return item
            await asyncio.sleep(item)
        raise StopAsyncIteration

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    def cancel(self) -> None:
        self.cancelled = True


class Handle:
    """A deployment handle whose `chat` yields a script."""

    def __init__(self, *script: Any) -> None:
        self.replies = Replies(list(script))
        self.asked: list[Any] = []
        self.chat = self

    def options(self, *, stream: bool) -> "Handle":
        assert stream
        return self

    def remote(self, request: Any) -> Replies:
        self.asked.append(request)
        return self.replies


@pytest.fixture(autouse=True)
def no_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm, "chat_request", lambda _, model, *, stream: (model, stream))


def read(handle: Handle, got: list[Any], timeout_s: float = 5.0) -> list[Any]:
    async def run() -> None:
        settings = ModelSettings(model="m7", timeout_s=timeout_s)
        async for piece in VllmChat(handle, settings).stream(REQUEST):  # type: ignore[arg-type]
            got.append(piece)

    asyncio.run(run())
    return got


def complete(handle: Handle) -> ChatReply:
    chat = VllmChat(handle, ModelSettings(model="m7", timeout_s=5.0))  # type: ignore[arg-type]
    return asyncio.run(chat.complete(REQUEST))


def refusal(message: str, code: int) -> Any:
    return SimpleNamespace(error=SimpleNamespace(message=message, code=code))


PIECE = ['data: {"choices": [{"delta": {"content": "Ro"}, "finish_reason": null}]}\n\n']
REST = [
    'data: {"choices": [{"delta": {"content": "me"}, "finish_reason": "stop"}]}\n\n'
    'data: {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 2}}\n\n',
    "data: [DONE]\n\n",
]


def test_batches_of_lines_become_pieces_and_the_reply() -> None:
    handle = Handle(PIECE, REST)
    usage = Usage(role="answer", prompt_tokens=11, completion_tokens=2)
    assert read(handle, []) == ["Ro", "me", ChatReply(text="Rome", usage=usage)]
    assert handle.asked == [("m7", True)]


def test_a_reply_as_a_whole_is_read() -> None:
    counts = {"prompt_tokens": 11, "completion_tokens": 2}
    choice = SimpleNamespace(message=SimpleNamespace(content="Rome"), finish_reason="length")
    usage = SimpleNamespace(model_dump=lambda: counts)
    handle = Handle(SimpleNamespace(choices=[choice], usage=usage))
    expected = Usage(role="answer", prompt_tokens=11, completion_tokens=2)
    assert complete(handle) == ChatReply(text="Rome", usage=expected, finish_reason="length")
    assert handle.asked == [("m7", False)]


def engine_is_dead() -> Exception:
    class EngineDeadError(Exception): ...

    return EngineDeadError("gone: /secret/path")


FAILURES = [
    ([refusal("maximum context length is 8", 400)], ModelError, "is too long for model m7: lower"),
    (refusal("at most 2 images\nat x", 400), ModelError, "(HTTP 400): at most 2 images"),
    (refusal("no such model", 404), ModelUnusableError, "is not known there"),
    (refusal("gone", 500), ModelUnavailableError, "keeps refusing (HTTP 500)"),
    (ActorDiedError(), ModelUnavailableError, "is down: ActorDiedError"),
    (
        BackPressureError(num_queued_requests=9, max_queued_requests=8),
        ModelUnavailableError,
        "more",
    ),
    (DeploymentUnavailableError("x"), ModelUnavailableError, "is down: DeploymentUnavailableErr"),
    (engine_is_dead(), ModelUnavailableError, "is down: EngineDeadError"),
    (
        RayTaskError("chat", "Traceback: /secret/path", engine_is_dead()),
        ModelUnavailableError,
        "is down: EngineDeadError",
    ),
    (KeyError("/secret/path"), ModelError, "failed: KeyError"),
    (
        RayTaskError("chat", "Traceback: /secret/path", KeyError("k")),
        ModelError,
        "failed: KeyError",
    ),
    (9.0, ModelTimeoutError, "gave no reply within 0.1 s"),
]


@pytest.mark.parametrize(("failure", "kind", "said"), FAILURES, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("before", [[], [PIECE]], ids=["at once", "after a piece"])
def test_a_failure_is_one_sentence_and_ends_the_call(
    failure: Any, kind: type[ModelError], said: str, before: list[Any]
) -> None:
    handle, got = Handle(*before, failure), []
    with pytest.raises(ModelError) as caught:
        read(handle, got, timeout_s=0.1)
    assert type(caught.value) is kind
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "/secret" not in str(caught.value)
    assert got == ["Ro"] * len(before)
    assert handle.replies.cancelled


def test_an_error_among_the_lines_is_one_too() -> None:
    line = 'data: {"error": {"message": "out of memory", "code": 500}}\n\n'
    with pytest.raises(ModelUnavailableError, match="HTTP 500"):
        read(Handle(PIECE, [line]), [])


def test_a_reply_without_an_end_is_broken_off() -> None:
    for script in ([PIECE], []):
        with pytest.raises(ModelUnavailableError, match="broke off its reply"):
            read(Handle(*script), [])
    with pytest.raises(ModelUnavailableError, match="broke off its reply"):
        complete(Handle())


def test_a_reply_of_blanks_is_empty() -> None:
    line = 'data: {"choices": [{"delta": {"content": " "}, "finish_reason": "stop"}]}\n\n'
    with pytest.raises(ModelFormatError, match="empty reply to the answer call"):
        read(Handle([line]), [])


def test_a_model_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"llm\.model"):
        VllmChat(Handle(), ModelSettings())  # type: ignore[arg-type]
