"""The relational database behind the catalogue: SQLite in one folder, or PostgreSQL."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from vmem.errors import ConfigError, StoreBusyError, StoreError
from vmem.stores.tables import METADATA, SCHEMA_VERSION, VERSION

# What is at fault, and the mend: SQLite's error names and PostgreSQL's SQLSTATE codes.
_BUSY = {"SQLITE_BUSY", "SQLITE_LOCKED", "55P03", "40P01"}
_REASONS = {
    "SQLITE_FULL": "the disk is full; free some space and try again",
    "53100": "the disk is full; free some space and try again",
    "SQLITE_IOERR": "the disk fails or is full; free some space and try again",
    "SQLITE_READONLY": "it is read-only; change the file's permissions",
    "SQLITE_CANTOPEN": "the file cannot be opened; check the path and its permissions",
    "SQLITE_NOTADB": "the file is no SQLite database; move it away or restore a copy",
    "SQLITE_CORRUPT": "the file is damaged; restore a copy",
}
_CREATING = 0x766D656D


class Database:
    """Transactions on an engine, whose failures are told in one sentence.

    Args:
        url: A SQLAlchemy URL of SQLite or PostgreSQL.
        busy_timeout_s: Seconds to wait for another writer.

    Raises:
        ConfigError: The URL is of another database or cannot be read, or a driver is missing.
        StoreError: The database cannot be opened, or its tables are of another version.
    """

    def __init__(self, url: str, busy_timeout_s: float = 30.0) -> None:
        try:
            parsed = sa.make_url(url)
            self.place = _place(parsed)
            self.is_sqlite = parsed.get_backend_name() == "sqlite"
            self._engine = (_sqlite if self.is_sqlite else _postgresql)(parsed, busy_timeout_s)
        except (ArgumentError, NoSuchModuleError, ImportError) as error:
            raise ConfigError(
                "store.database_url is no usable SQLAlchemy URL; write sqlite:///<path>, or "
                "postgresql://<user>:<password>@<host>/<database> with vmem[postgres] installed"
            ) from error
        self._password = parsed.password
        try:
            self._open_tables()
        except StoreError:
            self.close()
            raise

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def by_code_point(self, column: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
        """A text column that is compared and sorted alike in every database."""
        return column if self.is_sqlite else sa.collate(column, "C")

    @contextmanager
    def reading(self, what: str) -> Iterator[sa.Connection]:
        """A transaction that only reads; `what` completes "could not" in an error."""
        with self._told(what), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self, what: str) -> Iterator[sa.Connection]:
        """A transaction that writes, in SQLite alone from its start: all of it or nothing.

        Raises:
            StoreBusyError: Another writer did not finish in time.
            StoreError: The database cannot be reached, its disk is full, its file is damaged.
        """
        with (
            self._told(what),
            self._engine.connect() as connection,
            connection.execution_options(writes=True).begin(),
        ):
            yield connection

    def _open_tables(self) -> None:
        query = sa.select(SCHEMA_VERSION.c.version)
        with self.reading("be opened") as connection:
            tables = set(sa.inspect(connection).get_table_names())
            version = connection.scalar(query) if SCHEMA_VERSION.name in tables else None
        if version is None or (version == VERSION and not tables >= METADATA.tables.keys()):
            with self.writing("create its tables") as connection:
                if not self.is_sqlite:  # where two may create the same table at once, and fail
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATING)))
                METADATA.create_all(connection)
                version = connection.scalar(query)
                if version is None:
                    version = VERSION
                    connection.execute(sa.insert(SCHEMA_VERSION).values(version=version))
        if version != VERSION:
            raise StoreError(f"{self.place} {_other_version(version)}")

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except PoolTimeoutError as error:
            raise StoreBusyError(
                f"{self.place} could not {what}: all connections are in use; try again"
            ) from error
        except (DBAPIError, sqlite3.Error) as error:
            code, reason = _fault(error)
            if code in _BUSY:
                raise StoreBusyError(
                    f"{self.place} could not {what}: another writer holds it; try again"
                ) from error
            if self._password:
                reason = reason.replace(self._password, "***")
            raise StoreError(f"{self.place} could not {what}: {reason}") from error


def _sqlite(url: sa.URL, busy_timeout_s: float) -> sa.Engine:
    if url.database and url.database != ":memory:":
        try:
            Path(url.database).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{url.database} cannot be created: {error.strerror}") from error
    engine = sa.create_engine(url, hide_parameters=True, connect_args={"timeout": busy_timeout_s})

    # The driver would begin transactions late, and let a read turn into a write that then fails.
    # Secure delete overwrites what is erased with zeros; in the journal beside the file it stays
    # until SQLite has written that back.
    @sa.event.listens_for(engine, "connect")
    def connect(connection: Any, _: object) -> None:  # noqa: ANN401
        connection.isolation_level = None
        # SQLite does not wait where two turn a new file to WAL at once: one is told it is busy.
        waiting = Retrying(
            retry=retry_if_exception(lambda error: _fault_code(error) in _BUSY),
            stop=stop_after_delay(busy_timeout_s),
            wait=wait_random(0.0, 0.05),
            reraise=True,
        )
        waiting(connection.execute, "PRAGMA journal_mode = WAL")
        for pragma in ("synchronous = FULL", "foreign_keys = ON", "secure_delete = ON"):
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgresql(url: sa.URL, busy_timeout_s: float) -> sa.Engine:
    if url.get_backend_name() != "postgresql":
        raise ArgumentError(f"{url.get_backend_name()} is not supported")
    engine = sa.create_engine(
        url.set(drivername="postgresql+psycopg"),
        hide_parameters=True,
        pool_pre_ping=True,
        connect_args={"connect_timeout": 10},
    )

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        if connection.get_execution_options().get("writes"):
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {int(1000 * busy_timeout_s)}")

    return engine


def _other_version(version: int) -> str:
    """What is wrong with tables of another version, and the mend."""
    told = f"has tables of version {version} and this vmem uses version {VERSION}: "
    if version > VERSION:
        return f"{told}use the newer vmem that made it, or another database"
    return (
        f"{told}with the vmem that made it, write each memory out (`vmem export MEMORY --out"
        " FOLDER`), then read it into another store.home or database with this one (`vmem import"
        " MEMORY FOLDER`), and make API keys anew"
    )


def _place(url: sa.URL) -> str:
    """The database's name in messages: nothing of the URL's user, password or options."""
    if url.get_backend_name() == "sqlite":
        return f"the catalogue {url.database or 'in memory'}"
    return f"the catalogue {url.database or ''} at {url.host or 'its socket'}"


def _fault_code(error: BaseException) -> str:
    """The database's code of an error; empty where it is none of the database's."""
    return _fault(error)[0] if isinstance(error, DBAPIError | sqlite3.Error) else ""


def _fault(error: DBAPIError | sqlite3.Error) -> tuple[str, str]:
    """The database's code of an error, and a reason in words."""
    fault = error.orig if isinstance(error, DBAPIError) else error
    code = ""
    if isinstance(fault, sqlite3.Error):
        code = getattr(fault, "sqlite_errorname", "")
    elif fault is not None:
        code = getattr(fault, "sqlstate", None) or ""
    for known in (*_BUSY, *_REASONS):
        if code.startswith(known):  # SQLite's extended codes: SQLITE_BUSY_SNAPSHOT
            return known, _REASONS.get(known, "")
    lines = str(fault).strip().splitlines() or ["no reason given"]
    return code, lines[0][:300]
