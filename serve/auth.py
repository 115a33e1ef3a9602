"""Who calls: a key opens a tenant, and a tenant's memories are found under its name alone."""

import hashlib
import re
import time
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Protocol
from urllib.parse import urlsplit

import anyio.to_thread
from fastapi import Request
from fastapi.security import APIKeyHeader, HTTPBearer

from serve.errors import AccessError, OriginError, RequestError
from serve.request_schemas import NAME
from serve.settings import HttpSettings
from vmem.errors import UnknownMemoryError

CACHED_S = 2.0
"""Seconds that a key that was found is not looked up again: a revoked one ends that much later."""
CACHED_KEYS = 10_000
PLACEHOLDERS = frozenset({"", "none"})
"""Keys that are none: what a client that insists on a key sends where none is asked for."""

_NAME = re.compile(NAME)

bearer = HTTPBearer(auto_error=False, description="An API key, as `vmem keys create` prints it.")
header = APIKeyHeader(name="x-api-key", auto_error=False, description="The same key.")


class KeyInfo(Protocol):
    """What is known of a key."""

    @property
    def id(self) -> str:
        """Its public id."""

    @property
    def tenant(self) -> str:
        """Whose memories it opens."""

    @property
    def rate_per_minute(self) -> int | None:
        """Its own rate, or None."""


class Keys(Protocol):
    """Where keys are looked up."""

    def find(self, secret: str) -> KeyInfo | None:
        """The key of a secret, or None where it opens nothing (any more)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls. All that ties memories to tenants is here.

    Attributes:
        tenant: The tenant; empty is the nameless one of an open loopback.
        key_id: The key's id; None without a key.
        counted_as: Under which name its requests are counted.
        rate_per_minute: Its key's own rate, or None.
    """

    tenant: str
    key_id: str | None
    counted_as: str
    rate_per_minute: int | None = None

    @property
    def prefix(self) -> str:
        """What the full ids of its memories begin with; empty for the nameless tenant."""
        return f"{self.tenant}/" if self.tenant else ""

    def memory_id(self, name: str) -> str:
        """The full id of one of its memories.

        Raises:
            UnknownMemoryError: No memory can be named so.
        """
        if not _NAME.fullmatch(name):
            raise UnknownMemoryError("no memory can be named so")
        return self.prefix + name

    def new_memory_id(self, name: str) -> str:
        """The full id of a memory that may be made.

        Raises:
            RequestError: No memory can be named so.
        """
        try:
            return self.memory_id(name)
        except UnknownMemoryError as error:
            raise RequestError(
                "A memory's id takes 1 to 100 letters, digits and . _ -, with a letter or digit"
                " first."
            ) from error

    def owns(self, memory_id: str) -> bool:
        """Whether a full id is one of its memories'."""
        return memory_id.startswith(self.prefix) and "/" not in memory_id[len(self.prefix) :]

    def name(self, memory_id: str) -> str:
        """How the caller names a memory of its own."""
        return memory_id[len(self.prefix) :]


@dataclass(slots=True)
class Gate:
    """Lets callers in.

    Args:
        keys: Where keys are looked up.
        http: Whether callers without a key are let in, and which pages may call.
    """

    keys: Keys
    http: HttpSettings
    _found: dict[str, tuple[float, KeyInfo]] = field(default_factory=dict)

    async def caller(self, request: Request, secret: str) -> Caller:
        """Who sends a request.

        Raises:
            AccessError: There is no key, or it opens nothing.
            OriginError: A page of another site calls an open service.
        """
        if secret in PLACEHOLDERS:
            return self._nameless(request)
        info = await self._find(secret)
        if info is None:
            raise AccessError("This key opens nothing.")
        return Caller(
            tenant=info.tenant,
            key_id=info.id,
            counted_as=f"key:{info.id}",
            rate_per_minute=info.rate_per_minute,
        )

    def _nameless(self, request: Request) -> Caller:
        if not (self.http.open_on_loopback and is_loopback(self.http.host)):
            raise AccessError("Give an API key: Authorization: Bearer KEY.")
        self._check_origin(request)
        host = request.client.host if request.client else "unknown"
        return Caller(tenant="", key_id=None, counted_as=f"address:{host}")

    def _check_origin(self, request: Request) -> None:
        """Keep pages of other sites, which a browser lets call a loopback address, out."""
        host = request.headers.get("host", "")
        if not is_loopback(urlsplit(f"//{host}").hostname or ""):
            raise OriginError("Without a key this service is only called as localhost.")
        origin = request.headers.get("origin")
        own = origin is not None and urlsplit(origin).netloc == host
        if origin is not None and not own and origin not in self.http.cors_origins:
            raise OriginError("Pages of other sites may not call this service.")

    async def _find(self, secret: str) -> KeyInfo | None:
        digest = hashlib.sha256(secret.encode()).hexdigest()
        now = time.monotonic()
        kept = self._found.get(digest)
        if kept and now - kept[0] < CACHED_S:
            return kept[1]
        self._found.pop(digest, None)
        info = await anyio.to_thread.run_sync(self.keys.find, secret)
        if info is None:
            return None
        if len(self._found) >= CACHED_KEYS:
            self._found.clear()
        self._found[digest] = (now, info)
        return info


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
