"""Context to answer: the choice of prompt, the call, and the attached-image note (Appendix C)."""

import time
from collections.abc import Sequence

from vmem.config import AnswerSettings
from vmem.ports import ChatModel, ChatRequest
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
    question, context = retrieval.query.text, retrieval.context.text
    ask = prompts.conflict_prompt if retrieval.route.asks_conflict else prompts.answer_prompt
    prompt = ask(context, question)
    shows_pictures = settings.sees_pixels and chat.sees_images
    reply = await chat.complete(
        ChatRequest(
            role="answer",
            prompt=prompt,
            images=tuple(images) if shows_pictures else (),
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
        )
    )
    return Answer(
        text=reply.text.strip(),
        retrieval=retrieval,
        prompt=prompt,
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
