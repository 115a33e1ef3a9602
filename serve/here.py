"""What every route stands on: the app's parts, the caller, and a place among what is under way."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request, Response, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials

from serve.admission import Admission, Kind
from serve.auth import Caller, Gate, bearer, header
from serve.bodies import Files
from serve.errors import TooSlowError, UnknownFileError
from serve.limits import Rates
from serve.media import Media
from serve.observe import ApiMetrics
from serve.request_id import REQUEST_ID
from serve.service import Service
from serve.settings import ServeSettings
from serve.shown import Shown
from vmem.errors import ImageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """The parts of an app.

    Attributes:
        service: Memories.
        settings: The application's settings.
        gate: Lets callers in.
        rates: Requests a minute.
        admission: What is under way.
        metrics: Counts.
        model: The backbone's name, as answers give it.
    """

    service: Service
    settings: ServeSettings
    gate: Gate
    rates: Rates
    admission: Admission
    metrics: ApiMetrics
    model: str

    def shown(self, caller: Caller, memory_id: str) -> Shown:
        """How a memory's contents are shown to its owner."""
        return Shown(
            memory=caller.name(memory_id),
            public_url=self.settings.http.public_url,
            request_id=REQUEST_ID.get(),
            model=self.model,
        )

    def media(self, memory_id: str, files: Files) -> Media:
        """What reads the files of one request."""

        async def by_digest(digest: str) -> bytes:
            return await self.file(memory_id, digest)

        return Media(urls=self.settings.image_urls, files=files, by_digest=by_digest)

    async def file(self, memory_id: str, digest: str) -> bytes:
        """A picture's or voice message's bytes.

        Raises:
            UnknownMemoryError, UnknownFileError.
        """
        try:
            return await self.service.media(memory_id, digest)
        except ImageError as error:
            raise UnknownFileError("no round of the memory holds it") from error


async def here(request: Request) -> Here:
    """The parts of the app that serves a request; async, as FastAPI gives others a thread."""
    parts = request.app.state.here
    assert isinstance(parts, Here)
    return parts


HereDep = Annotated[Here, Depends(here)]


async def key(
    token: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)],
    api_key: Annotated[str | None, Security(header)],
) -> str:
    """The key that a request brings, or an empty text."""
    return (token.credentials if token else api_key or "").strip()


KeyDep = Annotated[str, Depends(key)]


async def caller(request: Request, parts: HereDep, secret: KeyDep) -> Caller:
    """Who calls, and that they may: key, then rate."""
    if secret:
        request.state.secrets = (secret,)
    found = await parts.gate.caller(request, secret)
    request.state.tenant = found.tenant
    request.state.key_id = found.key_id or ""
    rate = found.rate_per_minute or parts.settings.limits.rate_per_minute
    await parts.rates.count(found.counted_as, rate)
    return found


CallerDep = Annotated[Caller, Depends(caller)]


async def known_memory(memory: str, found: CallerDep) -> str:
    """The full id of the memory that a path names."""
    return found.memory_id(memory)


MemoryDep = Annotated[str, Depends(known_memory)]


def place(kind: Kind) -> Callable[[Here, Caller], AsyncIterator[None]]:
    """A dependency that holds a place from before the body is read until the response is sent."""

    async def hold(parts: HereDep, _caller: CallerDep) -> AsyncIterator[None]:
        with parts.admission.slot(kind):
            yield

    return hold


class TimedRoute(APIRoute):
    """A route whose response has to begin in time; a stream may then take as long as it does."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, given up after `http.request_timeout_s`."""
        handler = super().get_route_handler()

        async def timed(request: Request) -> Response:
            try:
                limit_s = (await here(request)).settings.http.request_timeout_s
                async with asyncio.timeout(limit_s) as limit:
                    return await handler(request)
            except TimeoutError as error:
                if limit.expired():
                    raise TooSlowError("the request took too long") from error
                raise

        return timed
