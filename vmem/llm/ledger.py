"""A line for every call of a language model, and what all of them spent."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from vmem.errors import BudgetError, StoreError


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call, as its line of the ledger holds it.

    Attributes:
        time: When it ended, UTC in ISO 8601.
        role: What it was for.
        model: Who was asked.
        key: The request's key in the cache of replies.
        cached: No call was made for it: its reply was kept, or came from one under way.
        prompt_tokens: Tokens of the prompt, those of the original call where `cached`; None where
            they are unknown, because the call failed or the server counts none.
        completion_tokens: Tokens of the reply, likewise.
        cost_usd: What it cost; 0 where `cached`, None where that is unknown.
        seconds: What the call took, all its tries together; that of the original where `cached`.
        error: Name of the class of its error, or None.
        waited: Seconds that it waited before for its turn, while as many as may be were under way.
    """

    time: str
    role: str
    model: str
    key: str
    cached: bool
    prompt_tokens: int | None
    completion_tokens: int | None
    cost_usd: float | None
    seconds: float
    error: str | None
    waited: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """The sums of a ledger, over calls that were made.

    Attributes:
        calls: Calls that gave a reply.
        tokens: Their tokens, of prompts and replies.
        usd: Their cost.
        uncounted: Those among them whose tokens are unknown.
        unpriced: Those among them whose cost is unknown.
        failed: Calls that gave none; what they cost is unknown and in no sum.
        refused: Calls that were not made, because the budget did not allow them.
        broken: Lines that cannot be read.
    """

    calls: int = 0
    tokens: int = 0
    usd: float = 0.0
    uncounted: int = 0
    unpriced: int = 0
    failed: int = 0
    refused: int = 0
    broken: int = 0

    def plus(self, call: Call) -> "Spent":
        """The sums with one more call."""
        if call.cached:
            return self
        if call.error == BudgetError.__name__:
            return replace(self, refused=self.refused + 1)
        if call.error is not None:
            return replace(self, failed=self.failed + 1)
        return replace(
            self,
            calls=self.calls + 1,
            tokens=self.tokens + (call.prompt_tokens or 0) + (call.completion_tokens or 0),
            usd=self.usd + (call.cost_usd or 0.0),
            uncounted=self.uncounted + (call.prompt_tokens is None),
            unpriced=self.unpriced + (call.cost_usd is None),
        )


_CALL = TypeAdapter(Call)
_heard: ContextVar[list[Call] | None] = ContextVar("heard", default=None)


@contextmanager
def calls_heard() -> Iterator[list[Call]]:
    """Gathers the calls that are made inside, also by tasks started there: one question's cost."""
    calls: list[Call] = []
    token = _heard.set(calls)
    try:
        yield calls
    finally:
        _heard.reset(token)


class Ledger:
    """A JSON Lines file that calls are appended to; goes on where an earlier run stopped.

    A line is handed to the system before `append` returns, so killing the process loses none.
    Several processes may append to one file; each sums what was there when it opened it, and its
    own.

    Args:
        path: The file; it and its folder are made where they are missing.

    Raises:
        StoreError: The file cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab", buffering=0)
            held = path.read_bytes()
            if held and not held.endswith(b"\n"):  # a machine stopped in the middle of a line
                self._file.write(b"\n")
        except OSError as error:
            raise StoreError(f"the ledger {path} cannot be opened: {error.strerror}") from error
        calls, broken = _parse(held)
        spent = Spent(broken=broken)
        for call in calls:
            spent = spent.plus(call)
        self._spent = spent

    @property
    def spent(self) -> Spent:
        """The sums so far."""
        return self._spent

    def append(self, call: Call) -> None:
        """Add a call's line.

        Raises:
            StoreError: It cannot be written.
        """
        if (heard := _heard.get()) is not None:
            heard.append(call)
        line = f"{json.dumps(asdict(call))}\n".encode()
        with self._lock:
            self._spent = self._spent.plus(call)
            try:
                written = os.write(self._file.fileno(), line)
            except (OSError, ValueError) as error:
                raise StoreError(f"the ledger {self._path} cannot be written: {error}") from error
        if written != len(line):
            raise StoreError(f"the ledger {self._path} cannot be written: the disk is full")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_ledger(path: Path) -> tuple[list[Call], int]:
    """The calls of a ledger in the order of its lines, and the number of lines that are none.

    Raises:
        StoreError: The file cannot be read.
    """
    try:
        return _parse(path.read_bytes())
    except OSError as error:
        raise StoreError(f"the ledger {path} cannot be read: {error.strerror}") from error


def _parse(held: bytes) -> tuple[list[Call], int]:
    calls: list[Call] = []
    broken = 0
    for line in held.splitlines():
        try:
            calls.append(_CALL.validate_json(line))
        except ValidationError:
            broken += 1
    return calls, broken
