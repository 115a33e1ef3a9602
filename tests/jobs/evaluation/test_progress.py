"""How far a stage is, from files that grow while they are looked at."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jobs.evaluation.models import LEDGER
from jobs.evaluation.progress import Progress, SoFar, Tail
from vmem.llm.ledger import Call, Ledger


def a_call(**changes: Any) -> Call:
    values = {
        "time": "2026-03-01T00:00:00",
        "role": "answer",
        "model": "m",
        "key": "k",
        "cached": False,
        "prompt_tokens": 10,
        "completion_tokens": 2,
        "cost_usd": 0.0,
        "seconds": 0.1,
        "error": None,
    }
    return Call(**{**values, **changes})


def test_each_line_is_read_once_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    tail = Tail(path)
    assert tail.read() == []
    path.write_bytes(b"one\ntw")
    assert tail.read() == [b"one"]
    path.write_bytes(b"???\ntwo\nthree\n")  # what was read is not looked at again
    assert tail.read() == [b"two", b"three"]
    assert tail.read() == []
    path.unlink()
    assert tail.read() == []


def test_lines_failures_and_spending_add_up(make_run: Callable[[str], Any]) -> None:
    made = make_run("run")
    file, other = (made.folder.answers(name) for name in ("one", "other"))
    ledger = Ledger(made.folder.path / LEDGER)

    def told() -> tuple[int, int, int, int, int]:
        seen: SoFar = progress.look()
        spent = seen.spent
        assert spent == ledger.spent
        return seen.lines, seen.failed, spent.calls, spent.failed, spent.tokens

    progress = Progress(made.folder, [file, other])
    assert told() == (0, 0, 0, 0, 0)
    file.append(made.record(0))
    ledger.append(a_call())
    assert told() == (1, 0, 1, 0, 12)
    file.append(made.record(1, error="ModelError: no"))
    ledger.append(a_call(error="ModelError", prompt_tokens=None, completion_tokens=None))
    ledger.append(a_call(cached=True))
    assert told() == (2, 1, 1, 1, 12)
    file.append(made.record(1))  # asked again
    other.append(made.record(2))
    assert told() == (3, 0, 1, 1, 12)
    file.finish([made.record(n).question_id for n in range(2)])
    assert told() == (3, 0, 1, 1, 12)
    file.path.unlink()  # a finished file is not looked at again
    assert told() == (3, 0, 1, 1, 12)
    ledger.close()


def test_what_failed_before_is_still_to_be_done(make_run: Callable[[str], Any]) -> None:
    made = make_run("run")
    file, done = (made.folder.answers(name) for name in ("one", "done"))
    for number in range(3):
        file.append(made.record(number, error="ModelError: no" if number else None))
    done.append(made.record(7, error="ModelError: no"))
    done.finish([made.record(7).question_id])
    progress = Progress(made.folder, [file, done])
    assert (progress.look().lines, progress.look().failed) == (1 + 1, 1)
    file.append(made.record(1))
    file.append(made.record(2, error="ModelError: no"))
    assert (progress.look().lines, progress.look().failed) == (3 + 1, 1 + 1)


def test_judgements_are_told_apart_by_repetition(make_run: Callable[[str], Any]) -> None:
    made = make_run("run")
    file = made.folder.judgements("one.strict.gallery")
    progress = Progress(made.folder, [file])
    for repetition in range(2):
        file.append(made.judgement(made.record(0), 1.0, repetition=repetition))
    assert progress.look().lines == 2


def test_lines_of_the_ledger_that_are_none_are_counted(make_run: Callable[[str], Any]) -> None:
    made = make_run("run")
    lines = [json.dumps(asdict(a_call())), "no call"]
    (made.folder.path / LEDGER).write_text("".join(f"{line}\n" for line in lines))
    spent = Progress(made.folder, []).look().spent
    assert (spent.calls, spent.broken) == (1, 1)
