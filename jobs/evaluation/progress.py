"""How far a stage is: what its drivers append is read once, from where the last look ended."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from jobs.evaluation.models import LEDGER
from jobs.evaluation.run_folder import RunFolder, StageFile
from vmem.llm.ledger import Call, Spent

_CALL = TypeAdapter(Call)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoFar:
    """How far a stage is.

    Attributes:
        lines: Lines that need not be asked for again in this run.
        failed: Those among them that hold an error.
        spent: What all calls of the run's ledger spent.
    """

    lines: int
    failed: int
    spent: Spent


class Progress:
    """Looks at the files of a stage and at the ledger, and reads only what is new in them.

    Args:
        run: The run.
        files: The stage's files. Lines with an error that are in an unfinished one now do not
            count: they are asked for again.
    """

    def __init__(self, run: RunFolder, files: Sequence[StageFile[Any]]) -> None:
        self._files = [_Lines(file) for file in files]
        self._ledger = Tail(run.path / LEDGER)
        self._spent = Spent()

    def look(self) -> SoFar:
        """How far it is now."""
        for line in self._ledger.read():
            try:
                self._spent = self._spent.plus(_CALL.validate_json(line))
            except ValidationError:
                self._spent = replace(self._spent, broken=self._spent.broken + 1)
        failed_of = [failed for file in self._files for failed in file.look().values()]
        return SoFar(lines=len(failed_of), failed=sum(failed_of), spent=self._spent)


class Tail:
    """The whole lines of a file that others append to, each of them once.

    Args:
        path: The file; it may not be there yet, or be gone.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> list[bytes]:
        """The lines that were ended since the last time."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
        except FileNotFoundError:
            return []
        whole = new[: new.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.splitlines()


class _Lines:
    """By the key of each line of one file of a stage, whether it holds an error."""

    def __init__(self, file: StageFile[Any]) -> None:
        self._file = file
        self._tail = Tail(file.partial)
        self._is_whole = False
        self._failed: dict[object, bool] = {}
        if not file.finished:
            self._failed = {key: failed for key, failed in self.look().items() if not failed}

    def look(self) -> dict[object, bool]:
        if self._is_whole:
            return self._failed
        if self._file.finished:  # the lines are all there, and the other file may be gone
            self._is_whole = True
            self._failed = {}
            lines = Tail(self._file.path).read()
        else:
            lines = self._tail.read()
        for line in lines:
            held = json.loads(line)
            key = held["question_id"], held.get("repetition")
            self._failed[key] = held["error"] is not None
        return self._failed
