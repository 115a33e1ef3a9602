"""The ledger's lines and sums, also after a machine stopped in the middle of one."""

import asyncio
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from vmem.errors import StoreError
from vmem.llm.ledger import Call, Ledger, Spent, calls_heard, read_ledger

PAID = Call(
    time="2026-01-02T03:04:05.678+00:00",
    role="answer",
    model="m7",
    key="a" * 64,
    cached=False,
    prompt_tokens=11,
    completion_tokens=3,
    cost_usd=0.25,
    seconds=1.5,
    error=None,
)
CACHED = replace(PAID, cached=True, cost_usd=0.0)
FAILED = replace(
    PAID, prompt_tokens=None, completion_tokens=None, cost_usd=None, error="ModelTimeoutError"
)
REFUSED = replace(FAILED, cost_usd=0.0, error="BudgetError")
UNCOUNTED = replace(PAID, prompt_tokens=None, completion_tokens=None, cost_usd=None)
UNPRICED = replace(PAID, cost_usd=None)
ALL = [PAID, CACHED, FAILED, REFUSED, UNCOUNTED, UNPRICED, PAID]
SUMS = Spent(
    calls=4, tokens=3 * (11 + 3), usd=0.25 * 2, uncounted=1, unpriced=2, failed=1, refused=1
)


def test_a_call_is_a_line_and_a_sum(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "run" / "ledger.jsonl")
    for number, call in enumerate(ALL, start=1):
        ledger.append(call)
        # Read before the ledger is closed: it is there already.
        lines = (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()
        assert [json.loads(line) for line in lines] == [asdict(each) for each in ALL[:number]]
    assert ledger.spent == SUMS
    ledger.close()
    assert read_ledger(tmp_path / "run" / "ledger.jsonl") == (ALL, 0)


def test_an_earlier_run_counts(tmp_path: Path) -> None:
    for call in ALL:
        ledger = Ledger(tmp_path / "ledger.jsonl")
        ledger.append(call)
        ledger.close()
    ledger = Ledger(tmp_path / "ledger.jsonl")
    assert ledger.spent == SUMS
    ledger.close()


@pytest.mark.parametrize("cut", ["{", '{"time": "2026"}', json.dumps(asdict(PAID))[:-1]])
def test_a_line_that_was_cut_off_is_counted(tmp_path: Path, cut: str) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text(f"{json.dumps(asdict(PAID))}\n{cut}")
    ledger = Ledger(path)
    assert ledger.spent == Spent(calls=1, tokens=11 + 3, usd=0.25, broken=1)
    ledger.append(CACHED)
    ledger.close()
    assert read_ledger(path) == ([PAID, CACHED], 1)


def test_two_writers_share_a_file(tmp_path: Path) -> None:
    one, two = Ledger(tmp_path / "ledger.jsonl"), Ledger(tmp_path / "ledger.jsonl")
    for _ in range(3):
        one.append(PAID)
        two.append(FAILED)
    assert (one.spent.calls, two.spent.failed) == (3, 3)
    assert read_ledger(tmp_path / "ledger.jsonl") == ([PAID, FAILED] * 3, 0)
    one.close()
    two.close()


def test_a_ledger_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened: Is a directory"):
        Ledger(tmp_path)
    with pytest.raises(StoreError, match="cannot be read: No such file"):
        read_ledger(tmp_path / "none.jsonl")
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.close()
    with pytest.raises(StoreError, match=r"ledger\.jsonl cannot be written"):
        ledger.append(PAID)


def test_each_question_hears_its_own_calls(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")

    async def question(role: str) -> list[str]:
        async def call() -> None:
            await asyncio.sleep(0)
            ledger.append(replace(PAID, role=role))

        with calls_heard() as calls:
            await asyncio.gather(call(), asyncio.create_task(call()))
        ledger.append(replace(PAID, role="outside"))
        return [call.role for call in calls]

    async def run() -> list[list[str]]:
        return await asyncio.gather(*(question(role) for role in "abc"))

    assert asyncio.run(run()) == [["a", "a"], ["b", "b"], ["c", "c"]]
    assert ledger.spent.calls == 3 * 3
    ledger.close()
