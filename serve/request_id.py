"""One request id from the caller through every log line (`x-request-id`)."""

import logging
import re
import uuid
from contextvars import ContextVar
from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the request that the running code works for; empty outside of one."""

_GOOD = re.compile(r"[A-Za-z0-9._-]{1,128}")


def new_request_id(given: str) -> str:
    """The caller's id where it is one, else a new one."""
    return given if _GOOD.fullmatch(given) else uuid.uuid4().hex


class WithRequestId(logging.Filter):
    """Gives every record the id of the request that it belongs to, as `request_id`."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the id; let every record through."""
        record.request_id = REQUEST_ID.get()
        return True


@dataclass(frozen=True, slots=True)
class WithGoodId:
    """Gives every request at Serve's proxy a good id, before the proxy reads, logs and echoes it.

    By itself the proxy echoes whatever the caller sent, and fails where that is no UTF-8.
    """

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on."""
        if scope["type"] in {"http", "websocket"}:
            headers = MutableHeaders(scope=scope)
            headers["x-request-id"] = new_request_id(headers.get("x-request-id", ""))
        await self.app(scope, receive, send)
