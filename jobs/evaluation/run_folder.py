"""The folder of an evaluation: files that stages add lines to, and that are whole once finished.

    RUN/manifest.json                                  what was run, on what, with what
    RUN/answers/BENCHMARK.SYSTEM.BACKBONE.jsonl        `Record`s, in the benchmark's order
    RUN/timings/BENCHMARK.SYSTEM.BACKBONE.jsonl        `Timing`s
    RUN/builds/BENCHMARK.SYSTEM.BACKBONE.jsonl         `Build`s
    RUN/judgements/CELL.JUDGE.KIND.jsonl               `Judgement`s of a cell's answers
    RUN/judgements/CELL.JUDGE.KIND.corrected.jsonl     those by corrected gold, where it differs
    RUN/planted/BENCHMARK.JUDGE.KIND.jsonl             `Judgement`s of planted wrong answers
    RUN/ledger.jsonl, RUN/replies.db                   every call, and the replies kept
    RUN/locks/                                         of processes at work on it
    RUN/served/NAME.log, NAME.yaml                     of a vLLM that the job served
    RUN/statistics.json, RUN/tables/, RUN/report.html  what the last two stages make of it

A stage adds lines to `NAME.partial.jsonl`; a killed one goes on from there. Once it has them all,
it writes them in order to `NAME.jsonl` at one stroke.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from jobs.evaluation.records import Build, Folder, Judgement, Record, Timing
from vmem.errors import DataError, StoreBusyError, StoreError

Line = TypeVar("Line", Record, Timing, Build, Judgement)
LOOK_S = 0.1
"""Seconds between two looks at a lock that another process has."""


class StageFile(Generic[Line]):
    """One file of a stage.

    Args:
        path: `NAME.jsonl`.
        kind: What a line holds.
        key: What tells lines apart: of two with one key, the later holds.
    """

    def __init__(self, path: Path, kind: type[Line], key: Callable[[Line], object]) -> None:
        self.path = path
        self.partial = path.with_name(f"{path.stem}.partial.jsonl")
        self._lines: TypeAdapter[Line] = TypeAdapter(kind)
        self._key: Callable[[Line], object] = key
        self._appends = False

    @property
    def paths(self) -> tuple[Path, Path]:
        """Where its lines may be: whole, or so far."""
        return self.path, self.partial

    @property
    def finished(self) -> bool:
        """Whether the file is whole."""
        return self.path.is_file()

    def read(self) -> list[Line]:
        """The lines of the finished file, or those that an unfinished stage has so far.

        Raises:
            DataError: A line is none of these.
        """
        if self.finished:
            return self._parse(self.path, last_may_be_cut=False)
        if self.partial.is_file():
            found = self._parse(self.partial, last_may_be_cut=True)
            return list({self._key(line): line for line in found}.values())
        return []

    def append(self, line: Line) -> None:
        """Add a line; it is with the system when this returns.

        Raises:
            StoreError: It cannot be written.
        """
        try:
            if not self._appends:
                self._begin()
            with self.partial.open("ab") as file:
                file.write(self._dump(line))
        except OSError as error:
            raise StoreError(f"{self.partial} cannot be written: {error.strerror}") from error

    def _begin(self) -> None:
        """Make the folder, and cut off a line that a killed process did not finish."""
        self.partial.parent.mkdir(parents=True, exist_ok=True)
        with self.partial.open("ab+") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
        self._appends = True

    def finish(self, order: Sequence[object]) -> None:
        """Write all lines in order, at one stroke.

        Args:
            order: The key of every line.

        Raises:
            DataError: A line is missing.
            StoreError: The file cannot be written.
        """
        by_key = {self._key(line): line for line in self.read()}
        if missing := [key for key in order if key not in by_key]:
            raise DataError(f"{self.path}: {len(missing)} lines are missing, first {missing[0]}")
        write_at_once(self.path, b"".join(self._dump(by_key[key]) for key in order))
        self.partial.unlink(missing_ok=True)

    def reopen(self, keep: Callable[[Line], bool]) -> None:
        """Make a finished file an unfinished one again, with some of its lines.

        Args:
            keep: Which lines stay.
        """
        lines = [line for line in self.read() if keep(line)]
        write_at_once(self.partial, b"".join(map(self._dump, lines)))
        self.path.unlink(missing_ok=True)

    def _dump(self, line: Line) -> bytes:
        return (
            json.dumps(line, ensure_ascii=False, default=_plain).encode(errors="surrogatepass")
            + b"\n"
        )

    def _parse(self, path: Path, *, last_may_be_cut: bool) -> list[Line]:
        lines = path.read_bytes().split(b"\n")
        if last_may_be_cut:  # the process was killed while it wrote
            lines = lines[:-1]
        found = []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                found.append(self._lines.validate_json(line))
            except ValidationError as error:
                first = error.errors()[0]["msg"]
                raise DataError(f"{path} line {number} cannot be read: {first}") from error
        return found


def _plain(record: Any) -> dict[str, Any]:  # noqa: ANN401
    """A dataclass as JSON takes it, what is in it not copied first."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


class RunFolder:
    """The files of one run.

    Args:
        path: The folder; made where it is missing.

    Raises:
        StoreError: It cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{path} cannot be made: {error.strerror}") from error

    @contextmanager
    def held(self, what: str, wait_s: float = 0.0) -> Iterator[None]:
        """Do something in this folder that no other process does meanwhile.

        Args:
            what: Names it, and its lock's file.
            wait_s: Seconds to wait for another process that is at it.

        Raises:
            StoreBusyError: Another process still is.
            StoreError: The folder's disk has no locks.
        """
        path = self.path / "locks" / what
        deadline = time.monotonic() + wait_s
        with _opened(path) as file:
            while not _locked(file):
                if time.monotonic() > deadline:
                    raise StoreBusyError(
                        f"another process is at work on {self.path} ({what}): wait for it, or end"
                        " it"
                    )
                time.sleep(LOOK_S)
            yield

    def answers(self, cell: object) -> StageFile[Record]:
        """A cell's answers."""
        return StageFile(self._file("answers", cell), Record, lambda line: line.question_id)

    def timings(self, cell: object) -> StageFile[Timing]:
        """A cell's seconds."""
        return StageFile(self._file("timings", cell), Timing, lambda line: line.question_id)

    def builds(self, cell: object) -> StageFile[Build]:
        """A cell's builds."""
        return StageFile(self._file("builds", cell), Build, lambda line: line.dialogue_id)

    def judgements(self, name: object) -> StageFile[Judgement]:
        """The judgements of a cell's answers by one judge."""
        return StageFile(self._file("judgements", name), Judgement, judgement_key)

    def corrected(self, name: object) -> StageFile[Judgement]:
        """Those by corrected gold answers, of the questions that have one."""
        return self.judgements(f"{name}.corrected")

    def planted(self, name: object) -> StageFile[Judgement]:
        """The judgements of planted wrong answers by one judge."""
        return StageFile(self._file("planted", name), Judgement, judgement_key)

    def _file(self, folder: Folder, name: object) -> Path:
        return self.path / folder / f"{name}.jsonl"


def _opened(path: Path) -> IO[bytes]:
    try:
        path.parent.mkdir(exist_ok=True)
        return path.open("ab")
    except OSError as error:
        raise StoreError(f"{path} cannot be opened: {error.strerror}") from error


def _locked(file: IO[bytes]) -> bool:
    """Whether this process has the lock now; the system takes it back when the process ends."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise StoreError(f"{file.name} cannot be locked: {error.strerror}") from error
    return True


def judgement_key(line: Judgement) -> tuple[str, int]:
    """What tells judgements apart."""
    return line.question_id, line.repetition


def write_at_once(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all.

    Raises:
        StoreError: It cannot be written.
    """
    beside = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a value as JSON at one stroke; the same value gives the same bytes.

    Raises:
        StoreError: It cannot be written.
    """
    write_at_once(path, json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True).encode())
