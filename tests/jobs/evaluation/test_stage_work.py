"""How much is in work at once, in which order, and how far ahead."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator

import pytest

from jobs.evaluation.stage_work import Missing, each_at_once, in_work, one_ahead, use_cores

COUNT = 20


class Counted:
    """Numbers that are made one by one, and what was made and ended."""

    def __init__(self, count: int = COUNT) -> None:
        self.count = count
        self.made: list[int] = []
        self.closed = False

    async def numbers(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(self.count):
                await asyncio.sleep(0)
                self.made.append(number)
                yield number
        finally:
            self.closed = True


@pytest.mark.parametrize("at_once", [1, 3, COUNT + 5])
def test_so_many_are_in_work_and_begun_in_order(at_once: int) -> None:
    source = Counted()
    begun: list[int] = []
    now: set[int] = set()
    most = 0

    async def work(number: int) -> None:
        nonlocal most
        begun.append(number)
        now.add(number)
        most = max(most, len(now))
        for _ in range(1 + 3 * COUNT):  # longer than all others need to begin
            await asyncio.sleep(0)
        now.remove(number)

    asyncio.run(each_at_once(source.numbers(), work, at_once))
    assert begun == source.made == list(range(COUNT))
    assert most == min(at_once, COUNT)
    assert source.closed and not now


def test_no_more_is_taken_than_there_is_room_for() -> None:
    source = Counted()

    async def run() -> None:
        stays = asyncio.Event()

        async def work(_: int) -> None:
            await stays.wait()

        task = asyncio.create_task(each_at_once(source.numbers(), work, 4))
        for _ in range(10 * COUNT):
            await asyncio.sleep(0)
        assert source.made == [0, 1, 2, 3]
        stays.set()
        await task

    asyncio.run(run())
    assert len(source.made) == COUNT


def test_what_goes_wrong_ends_all() -> None:
    source = Counted()
    ended: list[int] = []

    async def work(number: int) -> None:
        if number == 2:
            raise LookupError
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    with pytest.raises(BaseExceptionGroup) as caught:
        asyncio.run(each_at_once(source.numbers(), work, 3))
    assert caught.group_contains(LookupError)
    assert sorted(ended) == [0, 1]
    assert source.closed and len(source.made) <= 3


def test_one_is_made_ahead_and_no_more() -> None:
    source = Counted()

    async def run() -> list[int]:
        seen = []
        async for number in one_ahead(source.numbers()):
            for _ in range(10):
                await asyncio.sleep(0)
            assert source.made == list(range(min(number + 2, COUNT)))
            seen.append(number)
        return seen

    assert asyncio.run(run()) == list(range(COUNT))
    assert source.closed


def test_what_cannot_be_made_is_told_in_its_turn() -> None:
    async def numbers() -> AsyncGenerator[int, None]:
        yield 0
        yield 1
        raise LookupError

    seen: list[int] = []

    async def run() -> None:
        async for number in one_ahead(numbers()):
            await asyncio.sleep(0)
            seen.append(number)

    with pytest.raises(LookupError):
        asyncio.run(run())
    assert seen == [0, 1]


def test_who_leaves_early_ends_what_is_made_ahead(caplog: pytest.LogCaptureFixture) -> None:
    source = Counted()

    async def run() -> None:
        ahead = one_ahead(source.numbers())
        assert await anext(ahead) == 0
        await ahead.aclose()
        assert source.closed

    asyncio.run(run())
    assert source.made == [0]
    assert not caplog.records


def test_files_are_finished_once_and_only_when_nothing_is_missing() -> None:
    finished: list[int] = []
    missing = Missing(["a", "b", "c"], lambda: finished.append(1))

    async def run() -> None:
        await missing.came()
        await asyncio.gather(missing.came("a"), missing.came("b"))
        assert not finished and "c" in missing and "a" not in missing
        await missing.came("c")

    asyncio.run(run())
    assert finished == [1]


def test_threads_are_as_many_as_cores() -> None:
    cores = max(2, os.cpu_count() or 1)
    together = threading.Barrier(cores)
    names: set[str] = set()

    def meet(number: int) -> None:
        if number < cores:
            together.wait(60)
        names.add(threading.current_thread().name)

    async def run() -> None:
        use_cores()
        await asyncio.gather(*(asyncio.to_thread(meet, n) for n in range(4 * cores)))

    asyncio.run(run())
    assert len(names) == cores


def test_more_is_in_work_than_may_be_called() -> None:
    assert all(in_work(concurrency) > concurrency for concurrency in (1, 8, 32))
