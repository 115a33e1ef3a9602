"""Limits that hold before anything is parsed: headers, body bytes, JSON nesting, rates."""

import math
import re
import time
from dataclasses import dataclass
from itertools import accumulate

from limits import parse as parse_rate
from limits.aio.storage import Storage
from limits.aio.strategies import MovingWindowRateLimiter
from limits.errors import ConfigurationError, StorageError
from limits.storage import storage_from_string
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.errors import (
    HeadersError,
    LimitError,
    RateError,
    RequestError,
    UnavailableError,
    problem_of,
)
from serve.observe import ApiMetrics
from serve.problems import problem_response
from serve.request_id import REQUEST_ID
from serve.settings import LimitSettings
from vmem.errors import ConfigError

NUMBER_DIGITS = 64
"""Longest number of a JSON body: longer ones mean nothing and cost much to read."""
MAX_VALUES = 50_000
"""Most values of a JSON body: a parser makes of two bytes an object of many times that."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NUMBER = re.compile(rb"[-+.\deE]{%d}" % (NUMBER_DIGITS + 1))
_OTHER = bytes(byte for byte in range(256) if byte not in b"[]{}")


@dataclass(frozen=True, slots=True)
class Limited:
    """Middleware that refuses long headers at once, and a long body before it is read whole.

    Args:
        app: What is inside; it answers a body that turns out too long.
        limits: The limits.
        metrics: Where refusals are counted.
    """

    app: ASGIApp
    limits: LimitSettings
    metrics: ApiMetrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        read = 0

        async def limited_receive() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self.limits.body_bytes:
                raise _too_long(self.limits)
            return message

        try:
            check_head(scope, self.limits)
        except LimitError as error:
            self.metrics.rejected("too_large")
            problem, close = problem_of(error), {"connection": "close"}
            refused = problem_response(problem, str(error), REQUEST_ID.get(), close)
            await refused(scope, receive, send)
            return
        await self.app(scope, limited_receive, send)


def check_head(scope: Scope, limits: LimitSettings) -> None:
    """Refuse a request by its headers alone.

    Raises:
        HeadersError: Headers and path are longer than allowed.
        LimitError: The body that they announce is.
    """
    size = sum(len(name) + len(value) for name, value in scope["headers"])
    size += len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
    if size > limits.header_bytes:
        raise HeadersError(f"Path and headers are over {limits.header_bytes:,} bytes.")
    announced = Headers(scope=scope).get("content-length", "0")
    if not announced.isdecimal() or len(announced) > 18:
        raise LimitError("The content-length is no length.")
    if int(announced) > limits.body_bytes:
        raise _too_long(limits)


def check_json(data: bytes, depth: int, where: str = "The body") -> None:
    """Refuse JSON that would be costly to parse: nested deeply, a very long number, many values.

    Args:
        data: The bytes.
        depth: Deepest nesting of lists and objects.
        where: What errors call it.

    Raises:
        RequestError: It is one of these.
    """
    bare, texts = _STRING.subn(b"", data, count=MAX_VALUES + 1)
    brackets = bare.translate(None, _OTHER)
    if max(texts, bare.count(b","), len(brackets) // 2) > MAX_VALUES:
        # An opening without end says more of what is wrong than its length does.
        if _depth(brackets[: depth + 1]) > depth:
            raise RequestError(f"{where} is nested more than {depth} deep.")
        raise RequestError(f"{where} holds over {MAX_VALUES:,} values.")
    if _depth(brackets) > depth:
        raise RequestError(f"{where} is nested more than {depth} deep.")
    if _NUMBER.search(bare):
        raise RequestError(f"{where} holds a number of over {NUMBER_DIGITS} digits.")


def _depth(brackets: bytes) -> int:
    """The deepest nesting of a row of brackets."""
    return max(accumulate(1 if bracket in b"[{" else -1 for bracket in brackets), default=0)


class Rates:
    """Requests a minute of each key, counted over the minute that just passed.

    Args:
        uri: Where they are counted, as `limits` writes it.

    Raises:
        ConfigError: There is no such storage, or its driver is not installed.
    """

    def __init__(self, uri: str) -> None:
        try:
            storage = storage_from_string(uri, wrap_exceptions=True)
        except (ConfigurationError, ValueError) as error:
            raise ConfigError(f"limits.rate_storage {uri} cannot be used: {error}") from error
        if not isinstance(storage, Storage):
            raise ConfigError(f"limits.rate_storage {uri} must begin with async+")
        self._window = MovingWindowRateLimiter(storage)

    async def count(self, name: str, per_minute: int) -> None:
        """Count one request.

        Raises:
            RateError: It is one too many.
            UnavailableError: The storage does not answer.
        """
        rate = parse_rate(f"{per_minute}/minute")
        try:
            if await self._window.hit(rate, name):
                return
            stats = await self._window.get_window_stats(rate, name)
        except StorageError as error:
            raise UnavailableError(f"the storage of rates does not answer: {error}") from error
        refused = RateError(f"This key may ask {per_minute:,} times a minute.")
        refused.retry_after_s = max(1, math.ceil(stats.reset_time - time.time()))
        raise refused


def _too_long(limits: LimitSettings) -> LimitError:
    return LimitError(f"The body is over {limits.body_bytes:,} bytes.")
