"""The same call at the same time is one call, and ends when nobody waits for it."""

import asyncio

import pytest

from vmem.llm.under_way import CallsUnderWay


class Caller:
    """Counts its calls; they end when told to."""

    def __init__(self) -> None:
        self.calls = 0
        self.cancelled = 0
        self.go = asyncio.Event()

    async def call(self) -> int:
        self.calls += 1
        number = self.calls
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if number == 13:
            raise ValueError("thirteen")
        return number


def test_who_comes_meanwhile_waits_for_the_same_call() -> None:
    async def run() -> None:
        caller, under_way = Caller(), CallsUnderWay[int]()
        tasks = [asyncio.create_task(under_way.join(key, caller.call)) for key in "aabab"]
        await asyncio.sleep(0)
        assert ("a" in under_way, "b" in under_way, "c" in under_way) == (True, True, False)
        caller.go.set()
        assert await asyncio.gather(*tasks) == [1, 1, 2, 1, 2]
        assert "a" not in under_way
        assert await under_way.join("a", caller.call) == 3

    asyncio.run(run())


def test_a_failure_reaches_all_who_wait_and_is_not_remembered() -> None:
    async def run() -> None:
        caller, under_way = Caller(), CallsUnderWay[int]()
        caller.calls = 12
        caller.go.set()
        joins = [under_way.join("a", caller.call) for _ in range(3)]
        results = await asyncio.gather(*joins, return_exceptions=True)
        assert [str(result) for result in results] == ["thirteen"] * 3
        assert await under_way.join("a", caller.call) == 14

    asyncio.run(run())


def test_a_call_goes_on_while_somebody_waits() -> None:
    async def run() -> None:
        caller, under_way = Caller(), CallsUnderWay[int]()
        first, second = (asyncio.create_task(under_way.join("a", caller.call)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        caller.go.set()
        assert await second == 1
        assert (caller.calls, caller.cancelled) == (1, 0)

    asyncio.run(run())


def test_a_call_ends_when_nobody_waits() -> None:
    async def run() -> None:
        caller, under_way = Caller(), CallsUnderWay[int]()
        tasks = [asyncio.create_task(under_way.join("a", caller.call)) for _ in range(2)]
        await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        # It comes while the call is being cancelled, and must not be told so.
        later = asyncio.create_task(under_way.join("a", caller.call))
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.01)
        assert (caller.calls, caller.cancelled) == (2, 1)
        caller.go.set()
        assert await later == 2

    asyncio.run(run())
