import asyncio

import pytest

from vmem.errors import ModelError, ModelFormatError
from vmem.llm.fake import FakeChat
from vmem.ports import ChatRequest


def ask(chat: FakeChat, prompt: str = "one two three") -> str:
    return asyncio.run(chat.complete(ChatRequest(role="answer", prompt=prompt))).text


def test_a_list_is_replied_in_turn_and_then_at_its_end() -> None:
    chat = FakeChat(["a", ModelFormatError("odd"), "b"])
    assert ask(chat) == "a"
    with pytest.raises(ModelFormatError, match="odd"):
        ask(chat)
    assert ask(chat) == "b"
    with pytest.raises(ModelError, match="has 3 replies, and call 4 came"):
        ask(chat)


def test_a_function_of_the_request_replies_and_requests_are_kept() -> None:
    chat = FakeChat(lambda request: request.prompt.upper(), name="loud", sees_images=True)
    assert [ask(chat, "x"), ask(chat, "y")] == ["X", "Y"]
    assert [request.prompt for request in chat.requests] == ["x", "y"]
    assert (chat.name, chat.sees_images) == ("loud", True)


def test_without_a_script_the_same_request_gets_the_same_reply() -> None:
    assert ask(FakeChat(), "x") == ask(FakeChat(), "x") != ask(FakeChat(), "y")


def test_tokens_are_words() -> None:
    chat = FakeChat(["four words of reply"])
    reply = asyncio.run(chat.complete(ChatRequest(role="judge", prompt="one two three")))
    assert (reply.usage.role, reply.usage.prompt_tokens, reply.usage.completion_tokens) == (
        "judge",
        3,
        4,
    )


def test_closing_is_noted() -> None:
    chat = FakeChat()
    asyncio.run(chat.close())
    assert chat.closed


def test_a_reply_is_streamed_word_by_word_and_then_whole() -> None:
    async def read(chat: FakeChat) -> list[object]:
        return [piece async for piece in chat.stream(ChatRequest(role="answer", prompt="x y"))]

    chat = FakeChat([" In  Rome, today.\n", ModelFormatError("odd")])
    *pieces, last = asyncio.run(read(chat))
    assert pieces == [" In  ", "Rome, ", "today.\n"]
    assert last == asyncio.run(FakeChat([" In  Rome, today.\n"]).complete(chat.requests[0]))
    with pytest.raises(ModelFormatError, match="odd"):
        asyncio.run(read(chat))
