"""What is seen of each request: its id, one log line, one count; and the headers that all get."""

import logging
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.errors import UNEXPECTED
from serve.problems import problem_response
from serve.request_id import REQUEST_ID, new_request_id

log = logging.getLogger("vmem.serve")
_STRICT = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'"
POLICIES: Mapping[str, str] = {
    "/ui": "default-src 'self'; img-src 'self' blob: data:; media-src 'self' blob: data:;"
    " object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    # Swagger UI sets styles inline; its scripts are files of ours.
    "/docs": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline';"
    " img-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'",
}
"""The content security policy of the pages below a path; everything else may load nothing."""


class ApiMetrics(Protocol):
    """Counts what the HTTP side does; every label has few values.

    A route is a route's template, a case one of `vmem.types.Case` or empty.
    """

    def request(self, route: str, case: str, status: int, seconds: float) -> None:
        """A request ended; a stream's seconds are those until its end."""

    def rejected(self, reason: str) -> None:
        """A request was refused: `overloaded`, `rate`, `draining`, `too_large` or `no_access`."""

    def under_way(self, kind: str, n: int) -> None:
        """So many requests of a kind (`serve.admission.Kind`) are under way in this replica."""


class NoMetrics:
    """Counts nothing."""

    def request(self, route: str, case: str, status: int, seconds: float) -> None:
        """See `ApiMetrics.request`."""

    def rejected(self, reason: str) -> None:
        """See `ApiMetrics.rejected`."""

    def under_way(self, kind: str, n: int) -> None:
        """See `ApiMetrics.under_way`."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The outermost middleware: request id, headers of every response, log line, count, 500.

    Args:
        app: What is inside.
        metrics: Where requests are counted.
        echo_request_id: Put the id on responses; a proxy that does so itself needs no second one.
    """

    app: ASGIApp
    metrics: ApiMetrics
    echo_request_id: bool = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = new_request_id(Headers(scope=scope).get("x-request-id", ""))
        scope.setdefault("state", {})
        token = REQUEST_ID.set(request_id)
        start, status = time.perf_counter(), 0

        async def dressed_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._dress(message, scope["path"], request_id)
            await send(message)

        try:
            await self.app(scope, receive, dressed_send)
        except Exception as error:  # the outermost: whatever it is, it counts as 500
            log.error("a request failed: %s", _trace(error, scope), extra={"event": "failed"})
            scope["state"]["failed"] = UNEXPECTED.status
            if status:
                raise  # half a response is out: only a broken connection says that it is no whole
            await problem_response(UNEXPECTED, "", request_id)(scope, receive, dressed_send)
        finally:
            self._note(scope, status or 499, time.perf_counter() - start)
            REQUEST_ID.reset(token)

    def _dress(self, message: Message, path: str, request_id: str) -> None:
        headers = MutableHeaders(scope=message)
        if self.echo_request_id:
            headers["x-request-id"] = request_id
        headers.setdefault("x-content-type-options", "nosniff")
        headers.setdefault("referrer-policy", "no-referrer")
        headers.setdefault("x-frame-options", "DENY")
        headers.setdefault("cross-origin-resource-policy", "same-origin")
        headers.setdefault("content-security-policy", _policy(path))
        if path.startswith("/v1/"):
            headers.setdefault("cache-control", "private, no-store")

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = _template(scope)
        state = scope["state"]
        status = state.get("failed", status)  # of a stream that had begun well
        self.metrics.request(route, state.get("case", ""), status, seconds)
        fields = {
            "event": "request",
            "method": scope["method"],
            "route": route,
            "status": status,
            "ms": round(seconds * 1000, 1),
            "key_id": state.get("key_id", ""),
        }
        log.info("%(method)s %(route)s %(status)s %(ms)s ms", fields, extra=fields)


def _template(scope: Scope) -> str:
    """The route's template, which has few values where paths have many."""
    path = getattr(scope.get("route"), "path", None)
    if path:
        return str(path)
    first = "/" + scope["path"].strip("/").split("/")[0]
    return first if first in POLICIES else "unmatched"


def _policy(path: str) -> str:
    page = next((page for page in POLICIES if path == page or path.startswith(f"{page}/")), None)
    return POLICIES[page] if page else _STRICT


def _trace(error: Exception, scope: Scope) -> str:
    """The traceback without the key that the caller gave."""
    text = "".join(traceback.format_exception(error))
    for secret in scope["state"].get("secrets", ()):
        text = text.replace(secret, "***")
    return text
