"""What stands around Serve's proxy: a good id for every request, and its body sent along with it.

By itself the proxy sends a request's head to a replica, which then calls back for the body: one
more exchange between processes before any work begins.
"""

import asyncio
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.request_id import WithGoodId

BODY = "vmem.body"
"""Key of the scope under which a body travels."""
CARRIED_BYTES = 64 * 2**10
"""Longer bodies go the proxy's own way, in pieces."""
WAIT_S = 0.2
"""Seconds for a body to come; a slower one is left to the replica, which gives it up in time."""


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


def proxy_middleware() -> list[Middleware]:
    """What Serve's proxies put around themselves; they are told of it by `PROXY_ENV`."""
    return [Middleware(WithGoodId), Middleware(Carrying)]


PROXY_ENV = {"RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "serve.at_proxy:proxy_middleware"}
"""Environment of the proxies' processes: of every node, where a cluster is not started here."""
