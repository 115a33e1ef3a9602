import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from vmem.answer import answer_query, attached_note, stream_answer
from vmem.config import AnswerSettings, PromptSettings
from vmem.errors import ModelUnavailableError
from vmem.llm.fake import FakeChat
from vmem.ports import ChatReply, ChatRequest
from vmem.prompts import Prompts
from vmem.types import (
    Anchors,
    Answer,
    Case,
    Context,
    Image,
    Query,
    Retrieval,
    Route,
    Signal,
    Usage,
)

PROMPTS = Prompts(PromptSettings())
PHOTO = Image(id="Q1", uri="q.png")
KEYWORDS_CALL = Usage(role="keywords", prompt_tokens=5, completion_tokens=2)


def retrieval(asks_conflict: bool = False) -> Retrieval:
    return Retrieval(
        query=Query(text="Who has a {terrier}?"),
        route=Route(
            case=Case.TEXT_TO_TEXT,
            counts_images=False,
            aggregates=False,
            asks_conflict=asks_conflict,
            reason="",
        ),
        anchors=Anchors(by_signal={Signal.TEXT_DENSE: "x"}, usage=(KEYWORDS_CALL,)),
        ranked=(),
        context=Context(blocks=(), found=(), text="Ann: my terrier\n\n[ATTACHED IMAGE] ..."),
        seconds={"route": 0.25, "search": 0.5},
    )


def answer(chat: FakeChat, found: Retrieval, images: list[bytes], **values: object) -> Answer:
    settings = AnswerSettings(**values)
    return asyncio.run(answer_query(found, chat, PROMPTS, settings, images))


def test_the_context_is_answered_from_and_every_call_counted() -> None:
    chat = FakeChat(["  Ann \n"])
    given = answer(chat, retrieval(), [], max_tokens=33, temperature=0.5)
    (sent,) = chat.requests
    assert given.text == "Ann"
    assert given.prompt == sent.prompt
    assert sent.prompt == PROMPTS.answer_prompt(
        "Ann: my terrier\n\n[ATTACHED IMAGE] ...", "Who has a {terrier}?"
    )
    assert (sent.role, sent.max_tokens, sent.temperature) == ("answer", 33, 0.5)
    assert given.retrieval == retrieval()
    assert [usage.role for usage in given.usage] == ["keywords", "answer"]
    assert given.usage[1].prompt_tokens == len(sent.prompt.split())


def test_the_seconds_of_the_answer_join_those_of_the_search() -> None:
    given = answer(FakeChat(["Ann"]), retrieval(), [])
    assert set(given.seconds) == {"route", "search", "answer"}
    assert given.seconds["search"] == 0.5
    assert given.seconds["answer"] >= 0


def test_a_question_about_a_contradiction_gets_its_own_prompt() -> None:
    chat = FakeChat(["Yes"])
    found = retrieval(asks_conflict=True)
    answer(chat, found, [])
    assert chat.requests[0].prompt == PROMPTS.conflict_prompt(found.context.text, found.query.text)


@pytest.mark.parametrize("model_sees", [False, True])
@pytest.mark.parametrize("sees_pixels", [False, True])
def test_pictures_go_only_to_a_model_that_sees_and_may(sees_pixels: bool, model_sees: bool) -> None:
    chat = FakeChat(["Ann"], sees_images=model_sees)
    answer(chat, retrieval(), [b"one", b"two"], sees_pixels=sees_pixels)
    expected = (b"one", b"two") if sees_pixels and model_sees else ()
    assert chat.requests[0].images == expected


def test_a_failed_call_is_an_error() -> None:
    with pytest.raises(ModelUnavailableError, match="gone"):
        answer(FakeChat([ModelUnavailableError("gone")]), retrieval(), [])


def test_a_streamed_answer_asks_the_same_and_ends_the_same() -> None:
    async def read(chat: FakeChat) -> list[str | Answer]:
        pieces = stream_answer(retrieval(True), chat, PROMPTS, AnswerSettings(max_tokens=9))
        return [piece async for piece in pieces]

    chat, plain = FakeChat([" It was  Ann.\n"]), FakeChat([" It was  Ann.\n"])
    *pieces, last = asyncio.run(read(chat))
    whole = answer(plain, retrieval(True), [], max_tokens=9)
    assert chat.requests == plain.requests
    assert isinstance(last, Answer)
    assert replace(last, seconds={}) == replace(whole, seconds={})
    assert last.seconds.keys() == whole.seconds.keys()
    assert pieces == [" It ", "was  ", "Ann.\n"]


class Endless(FakeChat):
    """Writes until it is told to stop."""

    ended = False

    async def stream(self, request: ChatRequest) -> AsyncIterator[str | ChatReply]:
        try:
            while True:
                yield "and "
        finally:
            self.ended = True


def test_a_reader_who_leaves_ends_the_call() -> None:
    async def read(chat: FakeChat) -> None:
        pieces = stream_answer(retrieval(), chat, PROMPTS, AnswerSettings())
        assert await anext(pieces) == "and "
        await pieces.aclose()

    chat = Endless()
    asyncio.run(read(chat))
    assert chat.ended


@pytest.mark.parametrize("query_caption", [None, "a dog"])
@pytest.mark.parametrize(
    "match", [None, Image(id="D1:IMG_002", caption="a pup"), Image(id="D1:IMG_003")]
)
def test_the_note_names_picture_and_match(query_caption: str | None, match: Image | None) -> None:
    anchors = Anchors(by_signal={Signal.VISUAL: PHOTO}, query_caption=query_caption)
    note = attached_note(Query(text="Who?", image=PHOTO), anchors, match, PROMPTS)
    expected = PROMPTS.attached_image_note(
        query_caption, match.id if match else None, (match.caption or None) if match else None
    )
    assert note == expected
    assert ("a dog" in note) == (query_caption is not None)
    assert (match is None) or match.id in note


def test_without_a_picture_there_is_no_note() -> None:
    anchors = replace(retrieval().anchors, query_caption="a dog")
    assert attached_note(Query(text="Who?"), anchors, Image(id="I1"), PROMPTS) == ""
