"""The `Service` on Ray Serve: reads from catalogue and pictures, the rest through handles."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar, cast

import ray
from grpc.aio import AioRpcError
from ray.exceptions import RayActorError, RayTaskError
from ray.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    ReplicaUnavailableError,
)
from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_random_exponential,
)

from serve.errors import OverloadedError, UnavailableError, UnknownFileError
from serve.handles import read
from serve.scrape import Scrape
from serve.service import Embedded, Found, Options, Readiness
from vmem.bank import database_url, images_url
from vmem.config import Settings
from vmem.errors import UnknownMemoryError, UnknownRoundError, VmemError
from vmem.stores.catalogue import Appended, Catalogue, MemoryInfo
from vmem.stores.images import ImageStore
from vmem.types import Answer, Query, Round

T = TypeVar("T")

RECOVERY_S = 30.0
"""Seconds that a call waits for a replica to come back, before it is given up with 503."""
READY_S = 2.0
"""Seconds that an answer to "are you ready" stands, so that asking often costs nothing."""

_GONE = (RayActorError, AioRpcError, DeploymentUnavailableError, ReplicaUnavailableError)


class Cluster:
    """Memories by their full id; every call but `answer` is tried again when a replica dies.

    Repeating is safe: a search changes nothing, and the same rounds again are no change.

    Args:
        settings: The memory's settings.
        writer: Handle of the `Writer`.
        retriever: Handle of the `Retriever`.

    Raises:
        ConfigError, StoreError: The catalogue or the pictures cannot be opened.
    """

    def __init__(
        self, settings: Settings, writer: DeploymentHandle[Any], retriever: DeploymentHandle[Any]
    ) -> None:
        self._bank = settings.store.bank
        self._catalogue = Catalogue(database_url(settings))
        self._media = ImageStore(images_url(settings))
        self._writer = writer
        self._retriever = retriever
        self._readiness: tuple[float, Readiness] | None = None
        self._scrape = Scrape(_nodes)

    async def create(self, memory_id: str) -> MemoryInfo:
        """See `Service.create`."""
        return await _call(lambda: self._writer.create.remote(memory_id))

    async def memories(self, prefix: str, after: str, limit: int) -> list[MemoryInfo]:
        """See `Service.memories`."""
        return await asyncio.to_thread(
            self._catalogue.memories_page, self._bank, prefix, after, limit
        )

    async def memory(self, memory_id: str) -> MemoryInfo:
        """See `Service.memory`."""
        return await asyncio.to_thread(self._catalogue.memory, self._bank, memory_id)

    async def delete(self, memory_id: str) -> None:
        """See `Service.delete`."""
        await self.memory(memory_id)
        try:
            await _call(lambda: self._writer.delete.remote(memory_id))
        except UnknownMemoryError:
            return  # a call that was tried again had erased it, or another caller just did

    async def append(self, memory_id: str, rounds: Sequence[Round]) -> Appended:
        """See `Service.append`."""
        return await _call(lambda: self._writer.append.remote(memory_id, rounds))

    async def rounds(self, memory_id: str, after_position: int, limit: int) -> tuple[Round, ...]:
        """See `Service.rounds`."""
        return await asyncio.to_thread(
            self._catalogue.rounds_page, self._bank, memory_id, after_position, limit
        )

    async def round(self, memory_id: str, round_id: str) -> Round:
        """See `Service.round`."""
        return await asyncio.to_thread(self._catalogue.round, self._bank, memory_id, round_id)

    async def erase_round(self, memory_id: str, round_id: str) -> int:
        """See `Service.erase_round`."""
        await self.round(memory_id, round_id)
        try:
            return await _call(lambda: self._writer.erase_round.remote(memory_id, round_id))
        except UnknownRoundError:
            return (await self.memory(memory_id)).version  # as in `delete`

    async def media(self, memory_id: str, digest: str) -> bytes:
        """See `Service.media`."""
        return await asyncio.to_thread(self._read_media, memory_id, digest)

    async def search(self, memory_id: str, query: Query, options: Options) -> Found:
        """See `Service.search`."""
        return await _call(lambda: self._retriever.search.remote(memory_id, query, options))

    async def answer(
        self, memory_id: str, query: Query, options: Options
    ) -> AsyncGenerator[Found | str | Answer, None]:
        """See `Service.answer`."""
        stream = self._retriever.options(stream=True)
        streamed = stream.answer.remote(memory_id, query, options)
        pieces = cast(DeploymentResponseGenerator[Found | str | Answer], streamed)
        try:
            async with aclosing(read(pieces)) as items:
                async for piece in items:
                    yield piece
        except (RayTaskError, BackPressureError, *_GONE) as error:
            raise told(error) from error

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """See `Service.embed`."""
        return await _call(lambda: self._retriever.embed.remote(texts))

    async def readiness(self) -> Readiness:
        """See `Service.readiness`."""
        if self._readiness is None or time.monotonic() - self._readiness[0] > READY_S:
            self._readiness = (time.monotonic(), await self._try_parts())
        return self._readiness[1]

    async def metrics(self) -> bytes:
        """See `Service.metrics`."""
        return await self._scrape.text()

    async def _try_parts(self) -> Readiness:
        parts = {"writer": "ok"}
        try:
            async with asyncio.timeout(READY_S):
                await _once(lambda: self._writer.check.remote())
        except (VmemError, TimeoutError) as error:
            parts["writer"] = str(error) or "no answer in time"
        try:
            async with asyncio.timeout(2 * READY_S):
                parts |= await _once(lambda: self._retriever.check.remote())
        except (VmemError, TimeoutError) as error:
            parts["retriever"] = str(error) or "no answer in time"
        return Readiness(parts=parts)

    def _read_media(self, memory_id: str, digest: str) -> bytes:
        self._catalogue.memory(self._bank, memory_id)
        if not self._catalogue.has_image(self._bank, memory_id, digest):
            raise UnknownFileError("no round of this memory holds that file")
        return self._media.get(digest)


async def _nodes() -> list[str]:
    """Where the nodes that are alive export metrics."""
    nodes = await asyncio.to_thread(ray.nodes)
    return [
        f"{node['NodeManagerAddress']}:{node['MetricsExportPort']}"
        for node in nodes
        if node["Alive"]
    ]


async def _call(call: Callable[[], Awaitable[T]]) -> T:
    """Call a replica, again where it died: Serve starts another."""
    try:
        return await _once(call)
    except UnavailableError:
        return await _retry(call)


async def _retry(call: Callable[[], Awaitable[T]]) -> T:
    retrying = AsyncRetrying(
        retry=retry_if_exception_type(UnavailableError),
        stop=stop_after_delay(RECOVERY_S),
        wait=wait_random_exponential(multiplier=0.1, max=2.0),
        reraise=True,
    )
    return await retrying(_once, call)


async def _once(call: Callable[[], Awaitable[T]]) -> T:
    try:
        return await call()
    except (RayTaskError, BackPressureError, *_GONE) as error:
        raise told(error) from error


def told(error: Exception) -> VmemError:
    """An error of Ray's as one of ours: the replica's own, or what became of the replica.

    Raises:
        Exception: The error that a replica raised and that is none of ours.
    """
    if isinstance(error, RayTaskError):
        cause: Any = error.cause
        if isinstance(cause, VmemError):
            return cause
        if isinstance(cause, _GONE):
            return UnavailableError("a replica behind the called one is gone")
        raise error
    if isinstance(error, BackPressureError):
        return OverloadedError("every replica has as many requests as it takes")
    return UnavailableError(f"the called replica is gone: {type(error).__name__}")
