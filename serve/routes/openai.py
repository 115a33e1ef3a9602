"""OpenAI's routes over a memory, for clients that know no other: chat, models, embeddings."""

import base64
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request, Response

from serve import examples
from serve.bodies import Files, read_json
from serve.chat import Writing, chat_options, picture, question
from serve.chat_schemas import (
    ChatCompletion,
    ChatCompletionRequest,
    Chunk,
    Embedding,
    EmbeddingList,
    EmbeddingsRequest,
    EmbeddingUsage,
    Model,
    ModelList,
)
from serve.errors import RequestError, UnknownModelError
from serve.here import CallerDep, Here, HereDep, TimedRoute, place
from serve.openapi import FAILURES, body, stream_response
from serve.questions import check_options, to_query
from serve.rounds_in import check_text
from serve.routes.questions import Piece, first_piece, told_to_the_end, whole_answer
from serve.service import Found
from serve.streams import EventStream, event
from vmem.errors import ModelError
from vmem.types import Answer, Query

router = APIRouter(prefix="/v1", tags=["openai"], route_class=TimedRoute)

CHAT_MODEL = "vmem"
EMBEDDING_MODEL = "vmem-embedding"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chat:
    """One question, ready to be asked."""

    here: Here
    asked: ChatCompletionRequest
    memory_id: str
    query: Query
    writing: Writing

    async def remember(self, answer: Answer) -> None:
        """Append question and answer, where that is asked for."""
        if self.asked.remember:
            round_ = self.writing.exchange(self.query, answer, self.asked.session)
            await self.here.service.append(self.memory_id, [round_])


@router.post(
    "/chat/completions",
    summary="Chat with a memory",
    dependencies=[Depends(place("answer"))],
    response_model=ChatCompletion,
    responses={**stream_response(examples.CHAT_STREAM), **FAILURES},
    openapi_extra=body(ChatCompletionRequest, examples.CHAT),
)
async def chat(
    request: Request,
    here: HereDep,
    caller: CallerDep,
    x_vmem_memory: Annotated[str | None, Header(description="The memory, by its id.")] = None,
) -> Response | ChatCompletion:
    """Answer the last message of the user, and its picture, from a memory.

    The memory is named by the header `x-vmem-memory` or the body's `memory`. Messages before the
    question are not read, which `vmem.notes` says: the memory is the context. With `remember`
    question and answer become a round of it before the last chunk is sent.
    """
    limits = here.settings.limits
    asked = await read_json(request, ChatCompletionRequest, limits)
    if asked.model != CHAT_MODEL:
        raise UnknownModelError(f"There is no such model here: use {CHAT_MODEL}.")
    name = asked.memory or x_vmem_memory
    if name is None:
        raise RequestError("Name the memory: header x-vmem-memory, or memory in the body.")
    memory_id = caller.memory_id(name)
    options = check_options(chat_options(asked), limits)
    message = question(asked.messages)
    media = here.media(memory_id, Files())
    query = await to_query(message.text, picture(message), media, limits)
    writing = Writing.of(asked, here.shown(caller, memory_id))
    pieces = here.service.answer(memory_id, query, options)
    ready = _Chat(here=here, asked=asked, memory_id=memory_id, query=query, writing=writing)
    if asked.stream:
        first = await first_piece(pieces, request)
        return EventStream(told_to_the_end(_chunks(first, pieces, ready), request))
    found, answer = await whole_answer(pieces, request)
    await ready.remember(answer)
    return writing.whole(found, answer, remembered=asked.remember)


@router.get(
    "/models",
    summary="List models",
    dependencies=[Depends(place("read"))],
    response_model=ModelList,
    responses=FAILURES,
)
async def models(_caller: CallerDep) -> ModelList:
    """The names that the field `model` may hold."""
    return ModelList(data=[Model(id=CHAT_MODEL), Model(id=EMBEDDING_MODEL)])


@router.get(
    "/models/{model}",
    summary="One model",
    dependencies=[Depends(place("read"))],
    response_model=Model,
    responses=FAILURES,
)
async def model(_caller: CallerDep, model: str) -> Model:
    """A name that the field `model` may hold."""
    if model not in {CHAT_MODEL, EMBEDDING_MODEL}:
        raise UnknownModelError(f"Models here: {CHAT_MODEL}, {EMBEDDING_MODEL}.")
    return Model(id=model)


@router.post(
    "/embeddings",
    summary="Embed texts",
    dependencies=[Depends(place("search"))],
    response_model=EmbeddingList,
    responses=FAILURES,
    openapi_extra=body(EmbeddingsRequest, examples.EMBEDDINGS),
)
async def embeddings(request: Request, here: HereDep) -> EmbeddingList:
    """Texts as vectors of the text encoder that memories are searched with."""
    limits = here.settings.limits
    asked = await read_json(request, EmbeddingsRequest, limits)
    if asked.model != EMBEDDING_MODEL:
        raise UnknownModelError(f"There is no such model here: use {EMBEDDING_MODEL}.")
    texts = [asked.input] if isinstance(asked.input, str) else list(asked.input)
    for number, text in enumerate(texts):
        check_text(text, f"input.{number}", limits.query_characters)
        if not text.strip():
            raise RequestError(f"input.{number} is empty.")
    embedded = await here.service.embed(texts)
    if asked.dimensions not in {None, embedded.vectors_ND.shape[1]}:
        raise RequestError(f"dimensions can only be {embedded.vectors_ND.shape[1]}.")
    vectors_ND = embedded.vectors_ND.astype("<f4")
    data = [
        Embedding(
            index=index,
            embedding=base64.b64encode(vector_D.tobytes()).decode("ascii")
            if asked.encoding_format == "base64"
            else vector_D.tolist(),
        )
        for index, vector_D in enumerate(vectors_ND)
    ]
    usage = EmbeddingUsage(prompt_tokens=embedded.tokens, total_tokens=embedded.tokens)
    return EmbeddingList(data=data, model=embedded.model, usage=usage)


async def _chunks(
    found: Found, pieces: AsyncGenerator[Piece, None], chat: _Chat
) -> AsyncGenerator[bytes, None]:
    writing = chat.writing
    async with aclosing(pieces):
        yield _event(writing.first())
        async for piece in pieces:
            if isinstance(piece, str):
                yield _event(writing.piece(piece))
            elif isinstance(piece, Answer):
                await chat.remember(piece)
                yield _event(writing.last(found, remembered=chat.asked.remember))
                if chat.asked.stream_options and chat.asked.stream_options.include_usage:
                    yield _event(writing.cost(piece))
                yield event("[DONE]")
                return
    raise ModelError("the answer did not come to its end")


def _event(chunk: Chunk) -> bytes:
    return event(chunk.model_dump_json(exclude_unset=True))
