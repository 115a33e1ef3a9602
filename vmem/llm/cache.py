"""Replies that were paid for, kept in SQLite, so that no request is paid for twice."""

import hashlib
import json
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateTable
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from vmem.errors import StoreBusyError, StoreError
from vmem.ports import ChatReply, ChatRequest
from vmem.types import Usage

BUSY_TIMEOUT_S = 30.0
"""Seconds to wait for another process that writes."""

_REPLIES = sa.Table(
    "replies",
    sa.MetaData(),
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("text", sa.JSON, nullable=False),  # half a surrogate pair is no text to SQLite
    sa.Column("finish_reason", sa.Text, nullable=False),
    sa.Column("prompt_tokens", sa.Integer, nullable=False),
    sa.Column("completion_tokens", sa.Integer, nullable=False),
    sa.Column("seconds", sa.Float, nullable=False),
    sa.Column("kept_at", sa.Text, nullable=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptReply:
    """A reply as the cache holds it.

    Attributes:
        reply: As the model gave it, its usage not marked as cached.
        seconds: What the call took.
        kept_at: When it came, UTC in ISO 8601.
    """

    reply: ChatReply
    seconds: float
    kept_at: str


_Pending = tuple[str, KeptReply, Future[KeptReply]]


def reply_key(request: ChatRequest, *, server: str, model: str, repetition: int) -> str:
    """SHA-256 in hex over all that a reply depends on.

    A schema counts as it is written: models fill in its fields in their order.

    Args:
        request: What is asked.
        server: Where, by a name that is the same in every run.
        model: Who is asked.
        repetition: The same request asked anew has another number.
    """
    schema = None if request.json_schema is None else json.dumps(request.json_schema)
    values = {
        "server": server,
        "model": model,
        "role": request.role,
        "prompt": request.prompt,
        "images": [hashlib.sha256(image).hexdigest() for image in request.images],
        "max_tokens": request.max_tokens,
        "temperature": float(request.temperature),
        "json_schema": schema,
        "repetition": repetition,
    }
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


class ReplyCache:
    """Replies by key in one SQLite file; safe for several threads and processes.

    Args:
        path: The file, on a local disk; it and its folder are made where they are missing.

    Raises:
        StoreError: The file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: list[_Pending] = []
        self._taking = threading.Lock()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="reply-cache")
        with self._told("be opened"):
            path.parent.mkdir(parents=True, exist_ok=True)
            # Transactions are begun where they are needed: the driver would begin them late.
            self._engine = sa.create_engine(
                sa.URL.create("sqlite", database=str(path)),
                isolation_level="AUTOCOMMIT",
                hide_parameters=True,
                max_overflow=-1,  # as many connections as threads ask at once
                connect_args={"timeout": BUSY_TIMEOUT_S},
            )
            sa.event.listen(self._engine, "connect", _set_up)
            with self._engine.connect() as connection:
                connection.execute(CreateTable(_REPLIES, if_not_exists=True))

    def get(self, key: str) -> KeptReply | None:
        """The reply kept under a key, or None.

        Raises:
            StoreError: The file cannot be read.
        """
        query = sa.select(_REPLIES).where(_REPLIES.c.key == key)
        with self._told("be read"), self._engine.connect() as connection:
            row = connection.execute(query).mappings().first()
        return None if row is None else _from_row(row)

    def put(self, key: str, kept: KeptReply) -> Future[KeptReply]:
        """Keep a reply; it is on the disk when the future is done.

        One thread writes, and all that came while it wrote at once: it waits for the disk once.

        Returns:
            A future of what is kept then, because another process may have been first. It cannot
            be cancelled, and raises StoreBusyError where another process wrote for too long,
            StoreError where the reply cannot be written.
        """
        future: Future[KeptReply] = Future()
        future.set_running_or_notify_cancel()
        with self._taking:
            self._pending.append((key, kept, future))
        self._writer.submit(self._write_pending)
        return future

    def close(self) -> None:
        """Wait for what is being written, and close all connections."""
        self._writer.shutdown()
        self._engine.dispose()

    def _write_pending(self) -> None:
        with self._taking:
            batch, self._pending = self._pending, []
        if not batch:  # an earlier turn took it along
            return
        try:
            held = self._write({key: kept for key, kept, _ in reversed(batch)})
        except Exception as error:  # noqa: BLE001 - it is raised where the reply is waited for
            for _, _, future in batch:
                future.set_exception(error)
            return
        for key, _, future in batch:
            future.set_result(held[key])

    def _write(self, replies: dict[str, KeptReply]) -> dict[str, KeptReply]:
        """Keep replies, and read what is kept under their keys."""
        rows = [_to_row(*item) for item in replies.items()]
        query = sa.select(_REPLIES).where(_REPLIES.c.key.in_(replies))
        with self._told("be written"), self._engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            connection.execute(insert(_REPLIES).on_conflict_do_nothing(), rows)
            connection.exec_driver_sql("COMMIT")
            held = connection.execute(query).mappings()
            return {row["key"]: _from_row(row) for row in held}

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, sqlite3.Error, OSError) as error:
            fault = error.orig if isinstance(error, DBAPIError) else error
            words = f"the cache {self._path} could not {what}"
            if _is_busy(fault):
                raise StoreBusyError(
                    f"{words}: another process writes for too long; try again"
                ) from error
            raise StoreError(f"{words} ({fault}): check the disk, or name another file") from error


def _is_busy(error: BaseException | None) -> bool:
    return getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def _set_up(connection: Any, _: object) -> None:  # noqa: ANN401
    # SQLite does not wait where two turn a new file to WAL at once: one is told it is busy.
    waiting = Retrying(
        retry=retry_if_exception(_is_busy),
        stop=stop_after_delay(5.0),
        wait=wait_random(0.0, 0.05),
        reraise=True,
    )
    waiting(connection.execute, "PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


def _to_row(key: str, kept: KeptReply) -> dict[str, Any]:
    usage = kept.reply.usage
    return {
        "key": key,
        "role": usage.role,
        "text": kept.reply.text,
        "finish_reason": kept.reply.finish_reason,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "seconds": kept.seconds,
        "kept_at": kept.kept_at,
    }


def _from_row(row: sa.RowMapping) -> KeptReply:
    usage = Usage(
        role=row["role"],
        prompt_tokens=row["prompt_tokens"],
        completion_tokens=row["completion_tokens"],
    )
    reply = ChatReply(text=row["text"], usage=usage, finish_reason=row["finish_reason"])
    return KeptReply(reply=reply, seconds=row["seconds"], kept_at=row["kept_at"])
