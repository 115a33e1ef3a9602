"""API keys: who may call the serving application, and for which tenant."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from vmem.errors import DataError, StoreError
from vmem.stores.database import Database
from vmem.stores.tables import API_KEYS

_TENANT = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_SECRET = re.compile(r"vmem_([0-9a-f]{16})_[A-Za-z0-9_-]{43}")
_NO_DIGEST = "0" * 64
"""The digest of no secret: what an unknown key is compared with, to take no less time."""
NAME_LENGTH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyInfo:
    """What is known of an API key; its secret is known to its holder alone.

    Attributes:
        id: Its id, which the secret begins with.
        tenant: Whose memories it opens.
        name: What it is for, in its maker's words.
        created_at: When it was made, in UTC.
        rotated_at: When it last got another secret, or None.
        revoked_at: When it was revoked, or None while it is good.
        rate_per_minute: Requests a minute that it may make; None is the application's own limit.
    """

    id: str
    tenant: str
    name: str
    created_at: datetime
    rotated_at: datetime | None
    revoked_at: datetime | None
    rate_per_minute: int | None


class KeyStore:
    """API keys in the catalogue's database; safe for several threads and processes.

    A secret is `vmem_<key id>_<256 random bits>`, and only its SHA-256 is kept. A slow hash is
    for what people think up: nobody tries 2^256 random secrets, however fast each try is, and a
    slow hash would delay every request. The id in the secret finds the row, so that one
    comparison, in constant time, decides.

    Every method may raise StoreBusyError and StoreError as `vmem.stores.catalogue.Catalogue` does.

    Args:
        url: The catalogue's SQLAlchemy URL.

    Raises:
        ConfigError: The URL cannot be used.
        StoreError: The database cannot be opened, or its tables are of another version.
    """

    def __init__(self, url: str) -> None:
        self._database = Database(url)

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def create(
        self, tenant: str, name: str = "", rate_per_minute: int | None = None
    ) -> tuple[KeyInfo, str]:
        """Make a key; returns it with its secret, which is told this once.

        Raises:
            DataError: The tenant, name or rate cannot be kept.
        """
        check_tenant(tenant)
        if len(name) > NAME_LENGTH or not name.isprintable():
            raise DataError(f"a key's name has at most {NAME_LENGTH} printable characters")
        if rate_per_minute is not None and not 1 <= rate_per_minute <= 10**9:
            raise DataError(f"a key's rate is 1 to a milliard a minute, not {rate_per_minute}")
        info = KeyInfo(
            id=secrets.token_hex(8),
            tenant=tenant,
            name=name,
            created_at=datetime.now(UTC),
            rotated_at=None,
            revoked_at=None,
            rate_per_minute=rate_per_minute,
        )
        secret = _new_secret(info.id)
        values = {field.name: getattr(info, field.name) for field in fields(info)}
        values |= {"digest": _digest(secret), "created_at": _naive(info.created_at)}
        with self._database.writing("make an API key") as connection:
            connection.execute(sa.insert(API_KEYS).values(values))
        return info, secret

    def list(self, tenant: str | None = None) -> tuple[KeyInfo, ...]:
        """All keys, or a tenant's, revoked ones too, in the order in which they were made."""
        query = sa.select(API_KEYS).order_by(API_KEYS.c.created_at, API_KEYS.c.id)
        if tenant is not None:
            query = query.where(API_KEYS.c.tenant == tenant)
        with self._database.reading("list API keys") as connection:
            return _infos(connection.execute(query).mappings().all())

    def rotate(self, key_id: str) -> tuple[KeyInfo, str]:
        """Give a key another secret; the old one stops at once.

        Raises:
            StoreError: There is no such key, or it is revoked.
        """
        secret = _new_secret(key_id)
        with self._database.writing("rotate an API key") as connection:
            if _find(connection, key_id).revoked_at is not None:
                raise StoreError(f"key {key_id} is revoked; create another one")
            changes = {"digest": _digest(secret), "rotated_at": _naive(datetime.now(UTC))}
            return _change(connection, key_id, changes), secret

    def revoke(self, key_id: str) -> KeyInfo:
        """Make a key good for nothing from now on; one that is revoked stays as it is.

        Raises:
            StoreError: There is no such key.
        """
        with self._database.writing("revoke an API key") as connection:
            info = _find(connection, key_id)
            if info.revoked_at is not None:
                return info
            changes = {"digest": _NO_DIGEST, "revoked_at": _naive(datetime.now(UTC))}
            return _change(connection, key_id, changes)

    def find(self, secret: str) -> KeyInfo | None:
        """The key that a secret belongs to; None where it is no key's, or the key is revoked."""
        form = _SECRET.fullmatch(secret)
        row = None
        if form:
            query = sa.select(API_KEYS).where(API_KEYS.c.id == form[1])
            with self._database.reading("look up an API key") as connection:
                row = connection.execute(query).mappings().one_or_none()
        held = row["digest"] if row else _NO_DIGEST
        is_same = hmac.compare_digest(_digest(secret), held)
        return _info(row) if row and is_same and row["revoked_at"] is None else None


def check_tenant(tenant: str) -> str:
    """The tenant itself, when it can be one.

    Raises:
        DataError: It holds other characters, or too many.
    """
    if not _TENANT.fullmatch(tenant):
        raise DataError(
            f"{tenant[:80]!r} cannot name a tenant; take 1 to 32 small letters, digits and -, "
            "with a letter or digit first"
        )
    return tenant


def _new_secret(key_id: str) -> str:
    return f"vmem_{key_id}_{secrets.token_urlsafe(32)}"


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _find(connection: sa.Connection, key_id: str) -> KeyInfo:
    query = sa.select(API_KEYS).where(API_KEYS.c.id == key_id)
    row = connection.execute(query.with_for_update()).mappings().one_or_none()
    if row is None:
        raise StoreError(f"there is no key {key_id[:80]!r}; `vmem keys list` shows all")
    return _info(row)


def _change(connection: sa.Connection, key_id: str, changes: dict[str, Any]) -> KeyInfo:
    connection.execute(sa.update(API_KEYS).where(API_KEYS.c.id == key_id).values(changes))
    return _find(connection, key_id)


def _infos(rows: Sequence[sa.RowMapping]) -> tuple[KeyInfo, ...]:
    return tuple(map(_info, rows))


def _info(row: sa.RowMapping) -> KeyInfo:
    values = {field.name: row[field.name] for field in fields(KeyInfo)}
    for name in ("created_at", "rotated_at", "revoked_at"):
        values[name] = values[name] and values[name].replace(tzinfo=UTC)
    return KeyInfo(**values)


def _naive(moment: datetime) -> datetime:
    """As the database keeps UTC, without saying so."""
    return moment.replace(tzinfo=None)
