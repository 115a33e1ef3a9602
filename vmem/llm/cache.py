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

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from vmem.errors import StoreBusyError, StoreError
from vmem.ports import ChatReply, ChatRequest
from vmem.types import Usage

BUSY_TIMEOUT_S = 30.0
"""Seconds to wait for another process that writes."""

_TABLE = """
CREATE TABLE IF NOT EXISTS replies (
    key VARCHAR(64) NOT NULL PRIMARY KEY,
    role TEXT NOT NULL,
    text JSON NOT NULL, -- half a surrogate pair is no text to SQLite
    finish_reason TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    seconds FLOAT NOT NULL,
    kept_at TEXT NOT NULL
)
"""
_INSERT = "INSERT INTO replies VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_SELECT = "SELECT * FROM replies WHERE key = ?"


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
    if request.calls_tool:
        values["calls_tool"] = True
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


class ReplyCache:
    """Replies by key in one SQLite file; safe for several threads and processes.

    The driver is used as it is: a reply is looked up in some microseconds, so that an event loop
    may do it by itself.

    Args:
        path: The file, on a local disk; it and its folder are made where they are missing.

    Raises:
        StoreError: The file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: list[_Pending] = []
        self._taking = threading.Lock()
        self._reading = threading.Lock()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="reply-cache")
        with self._told("be opened"):
            path.parent.mkdir(parents=True, exist_ok=True)
            # One that reads never waits for one that writes.
            self._reads = _connect(path)
            self._writes = _connect(path)
            self._writes.execute(_TABLE)

    def get(self, key: str) -> KeptReply | None:
        """The reply kept under a key, or None.

        Raises:
            StoreError: The file cannot be read.
        """
        with self._told("be read"), self._reading:
            row = self._reads.execute(_SELECT, (key,)).fetchone()
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
            if len(self._pending) == 1:  # else a turn of the writer is coming that takes it along
                self._writer.submit(self._write_pending)
        return future

    def close(self) -> None:
        """Wait for what is being written, and close all connections."""
        self._writer.shutdown()
        with self._reading:
            self._reads.close()
        self._writes.close()

    def _write_pending(self) -> None:
        with self._taking:
            batch, self._pending = self._pending, []
        try:
            held = self._write([(key, kept) for key, kept, _ in batch])
        except Exception as error:  # noqa: BLE001 - it is raised where the reply is waited for
            for _, _, future in batch:
                future.set_exception(error)
            return
        for (_, _, future), kept in zip(batch, held, strict=True):
            future.set_result(kept)

    def _write(self, replies: list[tuple[str, KeptReply]]) -> list[KeptReply]:
        """Keep replies; what was kept under a key before stays, and is read."""
        with self._told("be written"), self._transaction() as connection:
            written = connection.executemany(_INSERT, [_to_row(*item) for item in replies])
            if written.rowcount == len(replies):
                return [kept for _, kept in replies]
            rows = [connection.execute(_SELECT, (key,)).fetchone() for key, _ in replies]
        return [_from_row(row) for row in rows]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._writes.execute("BEGIN IMMEDIATE")
        try:
            yield self._writes
            self._writes.execute("COMMIT")
        except BaseException:
            if self._writes.in_transaction:
                self._writes.execute("ROLLBACK")
            raise

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            words = f"the cache {self._path} could not {what}"
            if _is_busy(error):
                raise StoreBusyError(
                    f"{words}: another process writes for too long; try again"
                ) from error
            raise StoreError(f"{words} ({error}): check the disk, or name another file") from error


def _is_busy(error: BaseException | None) -> bool:
    return getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def _connect(path: Path) -> sqlite3.Connection:
    # Transactions are begun where they are needed: the driver would begin them late.
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    try:
        # SQLite does not wait where two turn a new file to WAL at once: one is told it is busy.
        waiting = Retrying(
            retry=retry_if_exception(_is_busy),
            stop=stop_after_delay(5.0),
            wait=wait_random(0.0, 0.05),
            reraise=True,
        )
        waiting(connection.execute, "PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def _to_row(key: str, kept: KeptReply) -> tuple[Any, ...]:
    usage, reply = kept.reply.usage, kept.reply
    return (
        key,
        usage.role,
        json.dumps(reply.text),
        reply.finish_reason,
        usage.prompt_tokens,
        usage.completion_tokens,
        kept.seconds,
        kept.kept_at,
    )


def _from_row(row: tuple[Any, ...]) -> KeptReply:
    _, role, text, finish_reason, prompt_tokens, completion_tokens, seconds, kept_at = row
    usage = Usage(role=role, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)
    reply = ChatReply(text=json.loads(text), usage=usage, finish_reason=finish_reason)
    return KeptReply(reply=reply, seconds=seconds, kept_at=kept_at)
