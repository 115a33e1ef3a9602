"""Context to answer: the choice of prompt, the call, and the attached-image note (Appendix C)."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from vmem.config import AnswerSettings
from vmem.ports import ChatModel, ChatReply, ChatRequest
from vmem.prompts import Prompts
from vmem.types import Anchors, Answer, Image, Query, Retrieval


async def answer_query(
    retrieval: Retrieval,
    chat: ChatModel,
    prompts: Prompts,
    settings: AnswerSettings,
    images: Sequence[bytes] = (),
) -> Answer:
    """Ask the backbone, which sees nothing but the context.

    Args:
        retrieval: The search; a question about a contradiction gets the prompt for those.
        chat: The backbone.
        prompts: The texts of the calls.
        settings: Length and temperature; `sees_pixels` lets a backbone that sees have `images`.
        images: Encoded pictures: the query's and those found.

    Raises:
        ModelError: The call failed.
    """
    started = time.perf_counter()
    request = _request(retrieval, chat, prompts, settings, images)
    return _answer(retrieval, request, await chat.complete(request), started)


async def stream_answer(
    retrieval: Retrieval,
    chat: ChatModel,
    prompts: Prompts,
    settings: AnswerSettings,
    images: Sequence[bytes] = (),
) -> AsyncGenerator[str | Answer, None]:
    """Ask the backbone as `answer_query` does, and pass its reply on as it comes.

    Yields:
        The reply's text in pieces, and last the answer; its text is that of the pieces without
        blanks at its ends.

    Raises:
        ModelError: The call failed, perhaps after some pieces.
    """
    started = time.perf_counter()
    request = _request(retrieval, chat, prompts, settings, images)
    # A reader who leaves early ends the call, now and not when memory is cleaned up.
    async with aclosing(chat.stream(request)) as pieces:
        async for piece in pieces:
            if isinstance(piece, ChatReply):
                yield _answer(retrieval, request, piece, started)
            else:
                yield piece


def _request(
    retrieval: Retrieval,
    chat: ChatModel,
    prompts: Prompts,
    settings: AnswerSettings,
    images: Sequence[bytes],
) -> ChatRequest:
    ask = prompts.conflict_prompt if retrieval.route.asks_conflict else prompts.answer_prompt
    shows_pictures = settings.sees_pixels and chat.sees_images
    return ChatRequest(
        role="answer",
        prompt=ask(retrieval.context.text, retrieval.query.text),
        images=tuple(images) if shows_pictures else (),
        max_tokens=settings.max_tokens,
        temperature=settings.temperature,
    )


def _answer(retrieval: Retrieval, request: ChatRequest, reply: ChatReply, started: float) -> Answer:
    return Answer(
        text=reply.text.strip(),
        retrieval=retrieval,
        prompt=request.prompt,
        usage=(*retrieval.anchors.usage, reply.usage),
        seconds={**retrieval.seconds, "answer": time.perf_counter() - started},
    )


def attached_note(
    query: Query, anchors: Anchors, best_match: Image | None, prompts: Prompts
) -> str:
    """The note that carries the query's picture into a context of text; empty without a picture.

    Args:
        query: The question.
        anchors: Holds the picture's description, where there is one.
        best_match: The stored image that the image lane puts first; None where it ran on nothing.
        prompts: The note's text.
    """
    if query.image is None:
        return ""
    if best_match is None:
        return prompts.attached_image_note(anchors.query_caption)
    return prompts.attached_image_note(
        anchors.query_caption, best_match.id, best_match.caption or None
    )
