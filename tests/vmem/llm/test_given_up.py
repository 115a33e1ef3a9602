import asyncio
from collections.abc import Callable

import pytest

from vmem.errors import (
    ModelError,
    ModelFormatError,
    ModelTimeoutError,
    ModelUnavailableError,
    ModelUnusableError,
)
from vmem.llm.fake import FakeChat
from vmem.llm.given_up import GivenUpChat
from vmem.ports import ChatRequest

AWAY = ModelUnavailableError("m cannot be reached")


def asked(script: list[Exception | str], patience: int) -> tuple[list[str], int]:
    """How calls one after the other end, and how many of them the model saw."""
    left = list(script)

    def reply(_: ChatRequest) -> str:
        made = left.pop(0)
        if isinstance(made, Exception):
            raise made
        return made

    chat = GivenUpChat(FakeChat(reply), patience)

    async def ask() -> str:
        try:
            return (await chat.complete(ChatRequest(role="answer", prompt="?"))).text
        except ModelError as error:
            return f"{type(error).__name__}: {error}"

    async def ask_all() -> list[str]:
        return [await ask() for _ in script]

    return asyncio.run(ask_all()), len(script) - len(left)


def test_a_server_that_stays_away_is_asked_no_more() -> None:
    said, calls = asked([AWAY, ModelTimeoutError("m gave no reply"), AWAY, "too late"], 3)
    why = "ModelUnusableError: m cannot be reached; 3 calls in a row ended so, and no more are made"
    assert said == [
        "ModelUnavailableError: m cannot be reached",
        "ModelTimeoutError: m gave no reply",
        why,
        why,
    ]
    assert calls == 3


@pytest.mark.parametrize("between", [lambda: "here", lambda: ModelFormatError("empty")])
def test_whoever_answers_is_not_away(between: Callable[[], Exception | str]) -> None:
    said, calls = asked([AWAY, AWAY, between(), AWAY, AWAY, "here"], 3)
    assert said[-1] == "here" and calls == 6
    assert not [each for each in said if each.startswith("ModelUnusable")]


def test_a_model_that_cannot_be_used_is_asked_once() -> None:
    said, calls = asked([ModelUnusableError("m rejects the key"), "too late"], 3)
    assert said == ["ModelUnusableError: m rejects the key"] * 2 and calls == 1


def test_a_stream_is_counted_as_any_call() -> None:
    chat = GivenUpChat(FakeChat(lambda _: "two words"), 1)

    async def pieces() -> list[str]:
        return [
            piece if isinstance(piece, str) else piece.text
            async for piece in chat.stream(ChatRequest(role="answer", prompt="?"))
        ]

    assert asyncio.run(pieces()) == ["two words", "two words"]
    with pytest.raises(ModelUnusableError):
        asyncio.run(_ask(GivenUpChat(FakeChat(_away), 1)))


def _away(_: ChatRequest) -> str:
    raise AWAY


async def _ask(chat: GivenUpChat) -> None:
    async for _ in chat.stream(ChatRequest(role="answer", prompt="?")):
        pass
