"""The retriever deployment: router, encoders, hot memories, fusion, assembly, and the answer.

A replica reads; it never writes. Before each search it compares the version of the memory that
it holds with the log's, so that an acknowledged append is found whichever replica answers.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from ray.serve.handle import DeploymentHandle

from serve.backbone import HandleChat
from serve.service import Embedded, Found, Options
from serve.settings import BackboneSettings
from serve.telemetry import RetrieverMetrics
from serve.timed import timed_parts
from vmem.bank import Bank
from vmem.build import make_chat
from vmem.config import Settings
from vmem.config import replace as replace_settings
from vmem.errors import ModelError, VmemError
from vmem.pipeline import retrieve, stream_ask
from vmem.ports import ChatModel, SearchableMemory
from vmem.types import Answer, Query, Retrieval


class Retriever:
    """Searches the memories of a bank and answers from them.

    Args:
        settings: The memory's settings.
        backbone: Which backbone it asks.
        handle: The backbone's deployment, where it has one.

    Raises:
        VmemError: The bank cannot be opened, or an encoder not be loaded.
    """

    def __init__(
        self, settings: Settings, backbone: BackboneSettings, handle: DeploymentHandle[Any] | None
    ) -> None:
        self._settings = replace_settings(settings, retrieval={"on_model_failure": "query"})
        self._metrics = RetrieverMetrics()
        chat = _chat(settings, backbone, handle)
        parts = timed_parts(settings, self._metrics.encoded, chat)
        self._bank = Bank(settings, writes=False, parts=parts)
        self._parts = self._bank.parts
        self._tell_cache()

    async def search(self, memory_id: str, query: Query, options: Options) -> Found:
        """Retrieve without answering.

        Raises:
            UnknownMemoryError, QueryError, ImageError, StoreError.
        """
        settings = _with(self._settings, options)
        with self._metrics.call():
            memory, version = await self._memory(memory_id)
            retrieval = await retrieve(query, memory, self._parts, settings)
        self._metrics.retrieved(retrieval)
        return _found(retrieval, memory, version)

    async def answer(
        self, memory_id: str, query: Query, options: Options
    ) -> AsyncGenerator[Found | str | Answer, None]:
        """Retrieve, then answer piece by piece.

        Raises:
            UnknownMemoryError, QueryError, ImageError, StoreError, ConfigError, ModelError.
        """
        settings = _with(self._settings, options)
        start = time.perf_counter()
        with self._metrics.call():
            memory, version = await self._memory(memory_id)
            async with aclosing(self._told(query, memory, settings, start)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Retrieval):
                        yield _found(piece, memory, version)
                    else:
                        yield piece

    async def _told(
        self, query: Query, memory: SearchableMemory, settings: Settings, start: float
    ) -> AsyncGenerator[Retrieval | str | Answer, None]:
        """What `stream_ask` yields, told to the metrics; `start` is when the call came."""
        first_token_s = 0.0
        try:
            async with aclosing(stream_ask(query, memory, self._parts, settings)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Retrieval):
                        self._metrics.retrieved(piece)
                    elif isinstance(piece, Answer):
                        seconds = time.perf_counter() - start
                        self._metrics.answered(piece, first_token_s or seconds, seconds)
                    elif not first_token_s:
                        first_token_s = time.perf_counter() - start
                    yield piece
        except ModelError as error:
            self._metrics.model_failed("answer", type(error).__name__)
            raise

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Texts as vectors.

        Raises:
            EncoderError.
        """
        encoder = self._parts.text_encoder
        with self._metrics.call():
            vectors_ND = await asyncio.to_thread(encoder.encode, texts)
            tokens = sum(await asyncio.to_thread(encoder.count_tokens, texts))
        return Embedded(vectors_ND=vectors_ND, tokens=tokens, model=encoder.name)

    async def check(self) -> Mapping[str, str]:
        """Try encoders, store and backbone; each is "ok" or what is wrong with it."""
        encoder, chat = self._parts.text_encoder, self._parts.chat
        return {
            "encoders": await _state(asyncio.to_thread(encoder.encode, ["ready"])),
            "store": await _state(asyncio.to_thread(self._bank.check)),
            "backbone": await _state(chat.check()) if chat else "ok",
        }

    async def _memory(self, memory_id: str) -> tuple[SearchableMemory, int]:
        memory = await asyncio.to_thread(self._bank.versioned, memory_id)
        self._tell_cache()
        return memory

    def _tell_cache(self) -> None:
        cache, (memories, units) = self._bank.cache, self._bank.hot_counts()
        self._metrics.cache(cache.hits, cache.misses, cache.extensions, memories, units)


async def _state(attempt: Awaitable[object]) -> str:
    """What an attempt failed with, or "ok"."""
    try:
        await attempt
    except VmemError as error:
        return str(error)
    return "ok"


def _chat(
    settings: Settings, backbone: BackboneSettings, handle: DeploymentHandle[Any] | None
) -> ChatModel | None:
    if backbone.kind == "none":
        return None
    if backbone.kind == "remote" or handle is None:
        return make_chat(settings)
    if backbone.kind == "vllm":
        from serve.vllm import VllmChat

        return VllmChat(handle, settings.llm)
    return HandleChat(
        handle,
        name=settings.llm.model or settings.llm.provider,
        sees_images=settings.llm.sees_images,
        timeout_s=settings.llm.timeout_s,
    )


def _with(settings: Settings, options: Options) -> Settings:
    """The settings with what one request changes of them."""
    asked = options.model_dump(exclude_none=True)
    answer: dict[str, Any] = {
        name: asked.pop(name) for name in ("max_tokens", "temperature") if name in asked
    }
    if not asked and not answer:
        return settings
    return replace_settings(settings, retrieval=asked, answer=answer)


def _found(retrieval: Retrieval, memory: SearchableMemory, version: int) -> Found:
    shown = {ranked.position for ranked in retrieval.ranked} | set(retrieval.context.positions)
    rounds = {position: memory.rounds[position] for position in sorted(shown)}
    return Found(retrieval=retrieval, rounds=rounds, version=version)
