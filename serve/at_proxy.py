"""What stands around Serve's proxy: a good id for every request, a bound, and bodies sent along.

By itself the proxy takes on whatever comes, so that callers who ignore Retry-After wait in front of
admission; and it sends a request's head to a replica, which then calls back for the body: one more
exchange between processes before any work begins.
"""

import asyncio
import os
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.errors import OverloadedError, problem_of
from serve.problems import problem_response
from serve.request_id import WithGoodId
from serve.settings import ServeSettings
from serve.telemetry import ApiMetrics

PLACES, RETRY_AFTER = "VMEM_PROXY_PLACES", "VMEM_PROXY_RETRY_AFTER_S"
"""Variables that tell a proxy its bound; without the first it has none."""
BODY = "vmem.body"
"""Key of the scope under which a body travels."""
CARRIED_BYTES = 64 * 2**10
"""Longer bodies go the proxy's own way, in pieces."""
WAIT_S = 0.2
"""Seconds for a body to come; a slower one is left to the replica, which gives it up in time."""


class Bounded:
    """At the proxy: refuses work beyond what all Api replicas together would take on.

    What is refused here reaches no replica, so that a flood takes little from what was accepted.

    Args:
        app: What is inside.
        places: Requests that ask for work, under way at once in this proxy.
        retry_after_s: Seconds that a refused caller is asked to wait.
    """

    def __init__(self, app: ASGIApp, places: int, retry_after_s: int) -> None:
        self._app = app
        self._places = places
        self._retry_after_s = str(retry_after_s)
        self._metrics = ApiMetrics()
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on, or refuse it."""
        if scope["type"] != "http" or scope["method"] != "POST":  # reads have no bound
            await self._app(scope, receive, send)
            return
        if self._under_way >= self._places:
            self._metrics.rejected("overloaded")
            request_id = Headers(scope=scope)["x-request-id"]
            headers = {"retry-after": self._retry_after_s, "x-request-id": request_id}
            problem = problem_of(OverloadedError())
            await problem_response(problem, "", request_id, headers)(scope, receive, send)
            return
        self._under_way += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._under_way -= 1


@dataclass(frozen=True, slots=True)
class Carrying:
    """At the proxy: puts a short body into the scope, which goes to the replica as it is."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on; its messages stay what they are."""
        length = Headers(scope=scope).get("content-length", "") if scope["type"] == "http" else ""
        if not (length.isdecimal() and len(length) < 6 and 0 < int(length) <= CARRIED_BYTES):
            await self.app(scope, receive, send)
            return
        messages: list[Message] = []
        try:
            async with asyncio.timeout(WAIT_S):
                messages.append(await receive())
                while messages[-1].get("more_body", False):
                    messages.append(await receive())
            if messages[-1]["type"] == "http.request":
                scope[BODY] = b"".join(message.get("body", b"") for message in messages)
        except TimeoutError:
            pass

        async def again() -> Message:
            return messages.pop(0) if messages else await receive()

        await self.app(scope, again, send)


@dataclass(frozen=True, slots=True)
class Carried:
    """In the app: a body that came with the scope is what is received."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if BODY not in scope:
            await self.app(scope, receive, send)
            return
        body: bytes | None = scope.pop(BODY)
        comes_again = True

        async def carried() -> Message:
            nonlocal body, comes_again
            if body is not None:
                message: Message = {"type": "http.request", "body": body, "more_body": False}
                body = None
                return message
            message = await receive()
            while comes_again and message["type"] == "http.request":
                comes_again = message.get("more_body", False)
                message = await receive()
            return message

        await self.app(scope, carried, send)


def proxy_env(settings: ServeSettings) -> dict[str, str]:
    """The environment of the proxies' processes: of every node, where no Ray is started here."""
    admission, api = settings.admission, settings.api
    places = (api.max_replicas or api.replicas) * (
        admission.search + admission.answer + admission.append
    )
    return {
        "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "serve.at_proxy:proxy_middleware",
        PLACES: str(places),
        RETRY_AFTER: str(admission.retry_after_s),
    }


def proxy_middleware() -> list[Middleware]:
    """What Serve's proxies put around themselves, inmost first; `proxy_env` tells them of it."""
    bound = []
    if places := os.environ.get(PLACES):
        retry_after_s = int(os.environ.get(RETRY_AFTER, "1"))
        bound = [Middleware(Bounded, places=int(places), retry_after_s=retry_after_s)]
    return [Middleware(Carrying), *bound, Middleware(WithGoodId)]
