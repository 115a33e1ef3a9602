"""A metered model: what it asks, keeps, refuses and writes down, over a scripted model."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from vmem.errors import (
    BudgetError,
    ConfigError,
    ModelFormatError,
    ModelTimeoutError,
    StoreBusyError,
)
from vmem.llm import cache as cache_module
from vmem.llm.budget import SELF_HOSTED, Budget, Price
from vmem.llm.cache import KeptReply, ReplyCache
from vmem.llm.fake import FakeChat, echo_role
from vmem.llm.ledger import Call, Ledger, Spent, calls_heard, read_ledger
from vmem.llm.metered import MeteredChat
from vmem.ports import ChatModel, ChatReply, ChatRequest
from vmem.types import Usage

PRICE = Price(prompt_usd=2, completion_usd=8, source="a page", as_of=date(2026, 1, 2))


def ask(prompt: str = "where is it", **values: Any) -> ChatRequest:
    return ChatRequest(**{"role": "answer", "prompt": prompt, **values})


class SlowChat(FakeChat):
    """Replies when told to, and knows how many calls it had at once."""

    def __init__(self, script: Any = echo_role, **values: Any) -> None:
        super().__init__(script, **values)
        self.go = asyncio.Event()
        self.now = self.most = 0

    async def complete(self, request: ChatRequest) -> ChatReply:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.go.wait()
            return await super().complete(request)
        finally:
            self.now -= 1


@contextmanager
def metered(folder: Path, chat: ChatModel, **values: Any) -> Iterator[MeteredChat]:
    """A metered model with its files in a folder."""
    cache = ReplyCache(folder / "replies.sqlite3")
    ledger = Ledger(folder / "ledger.jsonl")
    settings = {"server": "s", "concurrency": 4, "budget": Budget(), "price": PRICE, **values}
    try:
        yield MeteredChat(chat, cache, ledger=ledger, **settings)
    finally:
        ledger.close()
        cache.close()


def run(folder: Path, chat: ChatModel, *requests: ChatRequest, **values: Any) -> list[Any]:
    """Replies or errors to requests one after the other."""

    async def ask_all(model: MeteredChat) -> list[Any]:
        results: list[Any] = []
        for request in requests:
            results += await asyncio.gather(model.complete(request), return_exceptions=True)
        return results

    with metered(folder, chat, **values) as model:
        return asyncio.run(ask_all(model))


def lines(folder: Path) -> list[Call]:
    calls, broken = read_ledger(folder / "ledger.jsonl")
    assert broken == 0
    return calls


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


def test_a_reply_is_asked_for_once(tmp_path: Path) -> None:
    chat = FakeChat()
    first, again = run(tmp_path, chat, ask(), ask())
    assert len(chat.requests) == 1
    assert first == asyncio.run(FakeChat().complete(ask()))
    assert not first.usage.cached
    assert again.usage == Usage(
        role="answer",
        prompt_tokens=first.usage.prompt_tokens,
        completion_tokens=first.usage.completion_tokens,
        cached=True,
    )
    assert (again.text, again.finish_reason) == (first.text, first.finish_reason)


def test_a_later_run_asks_nothing(tmp_path: Path) -> None:
    first = run(tmp_path, FakeChat(), ask())
    unused = FakeChat([])
    assert [reply.text for reply in run(tmp_path, unused, ask())] == [first[0].text]
    assert not unused.requests


def test_other_servers_models_and_repetitions_are_asked_anew(tmp_path: Path) -> None:
    chat = FakeChat(["one", "two", "three", "four"])

    async def ask_both(model: MeteredChat) -> list[str]:
        models = [model, model.repetition(1), model.repetition(0), model.repetition(1)]
        return [(await each.complete(ask())).text for each in models]

    with metered(tmp_path, chat) as model:
        assert asyncio.run(ask_both(model)) == ["one", "two", "one", "two"]
    assert run(tmp_path, chat, ask(), server="t")[0].text == "three"
    other = FakeChat(["five"], name="other")
    assert run(tmp_path, other, ask())[0].text == "five"
    assert (len(chat.requests), len(other.requests)) == (3, 1)


def test_the_ledger_holds_a_line_for_every_call(tmp_path: Path) -> None:
    chat = FakeChat(["it is here", ModelTimeoutError("late"), ModelFormatError("odd"), "ok"])
    judge = ask("is it so", role="judge")
    replies = run(tmp_path, chat, ask(), ask(), judge, judge, judge, judge)
    calls = lines(tmp_path)
    assert [(call.role, call.cached, call.error) for call in calls] == [
        ("answer", False, None),
        ("answer", True, None),
        ("judge", False, "ModelTimeoutError"),
        ("judge", False, "ModelFormatError"),
        ("judge", False, None),
        ("judge", True, None),
    ]
    usages = [reply.usage for reply in replies if isinstance(reply, ChatReply)]
    for name in ("prompt_tokens", "completion_tokens"):
        assert sum(getattr(call, name) or 0 for call in calls) == sum(
            getattr(usage, name) for usage in usages
        )
    assert [call.cost_usd for call in calls] == [
        (3 * 2 + 3 * 8) / 1e6,
        0,
        None,
        None,
        (3 * 2 + 1 * 8) / 1e6,
        0,
    ]
    assert [call.prompt_tokens for call in calls] == [3, 3, None, None, 3, 3]
    assert calls[0].seconds == calls[1].seconds
    assert {call.model for call in calls} == {"fake"}
    with metered(tmp_path, FakeChat()) as model:
        assert [call.key for call in calls] == [model.key(ask())] * 2 + [model.key(judge)] * 4
        assert model._ledger.spent == Spent(
            calls=2,
            tokens=3 + 3 + 3 + 1,
            usd=pytest.approx((6 * 2 + 4 * 8) / 1e6),
            failed=2,
        )
    for call in calls:
        assert datetime.fromisoformat(call.time).utcoffset() is not None


def test_a_cached_reply_keeps_the_seconds_of_its_call(tmp_path: Path) -> None:
    with metered(tmp_path, FakeChat([])) as model:
        reply = ChatReply(text="x", usage=Usage(role="answer", prompt_tokens=1))
        model._cache.put(
            model.key(ask()), KeptReply(reply=reply, seconds=61.5, kept_at="then")
        ).result()

        async def hear() -> list[Call]:
            with calls_heard() as calls:
                await model.complete(ask())
            return calls

        assert [call.seconds for call in asyncio.run(hear())] == [61.5]


def test_a_failed_call_is_not_kept(tmp_path: Path) -> None:
    chat = FakeChat([ModelTimeoutError("late"), "here"])
    failed, reply = run(tmp_path, chat, ask(), ask())
    assert isinstance(failed, ModelTimeoutError)
    assert (reply.text, reply.usage.cached) == ("here", False)


def test_a_stream_is_kept_too(tmp_path: Path) -> None:
    chat = FakeChat()

    async def read(model: MeteredChat) -> list[str | ChatReply]:
        return [piece async for piece in model.stream(ask())]

    with metered(tmp_path, chat) as model:
        first, again = (asyncio.run(read(model)) for _ in range(2))
    assert len(chat.requests) == 1
    for pieces in (first, again):
        assert isinstance(pieces[-1], ChatReply)
        assert "".join(map(str, pieces[:-1])) == pieces[-1].text
    assert [pieces[-1].usage.cached for pieces in (first, again)] == [False, True]  # type: ignore[union-attr]


def test_the_rest_of_the_port_is_the_models_own(tmp_path: Path) -> None:
    chat = FakeChat(name="m7", sees_images=True)
    with metered(tmp_path, chat) as model:
        assert (model.name, model.sees_images, model.count_tokens("a b c")) == ("m7", True, 3)
        asyncio.run(model.check())
        assert not chat.requests
        asyncio.run(model.close())
        assert chat.closed


@pytest.mark.parametrize("concurrency", [1, 3])
def test_calls_at_once_never_exceed_the_limit(tmp_path: Path, concurrency: int) -> None:
    async def ask_all() -> SlowChat:
        chat = SlowChat()
        with metered(tmp_path, chat, concurrency=concurrency) as model:
            asks = [
                asyncio.create_task(model.repetition(n % 2).complete(ask(str(n))))
                for n in range(12)
            ]
            await until(lambda: chat.now == concurrency)
            await asyncio.sleep(0.05)
            chat.go.set()
            await asyncio.gather(*asks)
            assert len(chat.requests) == 12
        return chat

    assert asyncio.run(ask_all()).most == concurrency


def test_a_limit_of_no_call_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match="concurrency of 0"),
        metered(tmp_path, FakeChat(), concurrency=0),
    ):
        pass


def test_the_same_request_at_the_same_time_is_one_call(tmp_path: Path) -> None:
    async def ask_all() -> None:
        chat = SlowChat()
        with metered(tmp_path, chat) as model:
            asks = [asyncio.create_task(model.complete(ask("same"))) for _ in range(5)]
            asks.append(asyncio.create_task(model.complete(ask("another"))))
            await until(lambda: chat.now == 2)
            chat.go.set()
            replies = await asyncio.gather(*asks)
        assert len(chat.requests) == 2
        assert len({reply.text for reply in replies[:5]}) == 1
        assert sorted(reply.usage.cached for reply in replies[:5]) == [False] + [True] * 4

    asyncio.run(ask_all())
    calls = lines(tmp_path)
    assert sorted(call.cached for call in calls) == [False] * 2 + [True] * 4
    assert sum(call.cost_usd > 0 for call in calls if call.cost_usd is not None) == 2


def test_who_shares_a_call_shares_its_failure(tmp_path: Path) -> None:
    async def ask_all() -> list[Any]:
        chat = SlowChat([ModelTimeoutError("late")])
        with metered(tmp_path, chat) as model:
            asks = [asyncio.create_task(model.complete(ask())) for _ in range(3)]
            await until(lambda: chat.now == 1)
            chat.go.set()
            return await asyncio.gather(*asks, return_exceptions=True)

    assert [type(error) for error in asyncio.run(ask_all())] == [ModelTimeoutError] * 3
    assert [(call.cached, call.error) for call in lines(tmp_path)] == [
        (False, "ModelTimeoutError"),
        (True, "ModelTimeoutError"),
        (True, "ModelTimeoutError"),
    ]
    assert [call.cost_usd for call in lines(tmp_path)] == [None, 0, 0]


def test_a_call_that_is_cancelled_is_written_down(tmp_path: Path) -> None:
    async def ask_and_leave() -> None:
        chat = SlowChat()
        with metered(tmp_path, chat, concurrency=1) as model:
            asked, waits = (asyncio.create_task(model.complete(ask(each))) for each in "ab")
            await until(lambda: chat.now == 1)
            asked.cancel()
            waits.cancel()
            await asyncio.gather(asked, waits, return_exceptions=True)
            await until(lambda: chat.now == 0)
            chat.go.set()
            assert not (await model.complete(ask("c"))).usage.cached

    asyncio.run(ask_and_leave())
    # The call that only waited for its place was none.
    assert [call.error for call in lines(tmp_path)] == ["CancelledError", None]


def test_what_was_paid_for_is_kept_when_the_run_is_interrupted(tmp_path: Path) -> None:
    """Interrupted while the replies wait to be written."""
    chat = FakeChat()
    requests = [ask(str(number)) for number in range(4)]

    async def ask_and_leave(model: MeteredChat) -> None:
        asks = [asyncio.create_task(model.complete(request)) for request in requests]
        await until(lambda: len(chat.requests) == len(requests))
        for each in asks:
            each.cancel()
        await asyncio.gather(*asks, return_exceptions=True)

    with metered(tmp_path, chat) as model:
        other = sqlite3.connect(tmp_path / "replies.sqlite3", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        asyncio.run(ask_and_leave(model))
        other.execute("ROLLBACK")
        other.close()
    unused = FakeChat([])
    assert all(reply.usage.cached for reply in run(tmp_path, unused, *requests))


def test_a_budget_of_tokens_stops_calls_and_not_kept_replies(tmp_path: Path) -> None:
    chat = FakeChat(lambda _: "one two three")
    requests = [ask(f"where is {number}") for number in range(5)]
    budget = Budget(max_tokens=3 * (3 + 3))
    results = run(tmp_path, chat, *requests, requests[0], budget=budget)
    assert [type(result).__name__ for result in results] == [
        *["ChatReply"] * 3,
        *["BudgetError"] * 2,
        "ChatReply",
    ]
    assert len(chat.requests) == 3
    assert str(results[3]) == (
        "the budget of 18 tokens is spent (18 tokens by 3 calls): raise it and run again,"
        " kept replies cost nothing"
    )
    assert [(call.error, call.cost_usd) for call in lines(tmp_path)[3:5]] == [
        ("BudgetError", 0)
    ] * 2
    # A later run does not begin anew.
    results = run(tmp_path, chat, *requests, budget=budget)
    assert [type(result).__name__ for result in results[3:]] == ["BudgetError"] * 2
    assert len(chat.requests) == 3


def test_a_budget_of_money_stops_calls(tmp_path: Path) -> None:
    chat = FakeChat(lambda _: "one two three")
    each_usd = (3 * 2 + 3 * 8) / 1e6
    requests = [ask(f"where is {number}") for number in range(4)]
    results = run(tmp_path, chat, *requests, budget=Budget(max_usd=1.5 * each_usd))
    assert [isinstance(result, BudgetError) for result in results] == [False, False, True, True]
    assert len(chat.requests) == 2


def test_calls_that_wait_for_their_place_see_what_was_spent(tmp_path: Path) -> None:
    async def ask_all() -> list[Any]:
        chat = FakeChat(lambda _: "one two three")
        with metered(tmp_path, chat, concurrency=2, budget=Budget(max_tokens=1)) as model:
            asks = [model.complete(ask(str(number))) for number in range(20)]
            results = await asyncio.gather(*asks, return_exceptions=True)
        assert len(chat.requests) <= 2
        return results

    assert sum(isinstance(result, BudgetError) for result in asyncio.run(ask_all())) >= 18


def test_a_money_budget_without_a_price_is_refused_at_once(tmp_path: Path) -> None:
    with (
        pytest.raises(BudgetError, match="model fake, whose price is unknown"),
        metered(tmp_path, FakeChat(), budget=Budget(max_usd=5), price=None),
    ):
        pass


class UncountedChat(FakeChat):
    """A server that counts no tokens."""

    async def complete(self, request: ChatRequest) -> ChatReply:
        await super().complete(request)
        return ChatReply(text="here", usage=Usage(role=request.role))


@pytest.mark.parametrize(
    ("budget", "price", "stops"),
    [
        (Budget(), PRICE, False),
        (Budget(max_tokens=99), PRICE, True),
        (Budget(max_usd=99), PRICE, True),
        (Budget(max_usd=99), SELF_HOSTED, False),
    ],
)
def test_replies_without_token_counts_have_no_known_cost(
    tmp_path: Path, budget: Budget, price: Price, stops: bool
) -> None:
    results = run(tmp_path, UncountedChat(), ask("a"), ask("b"), budget=budget, price=price)
    assert isinstance(results[0], ChatReply)
    assert isinstance(results[1], BudgetError) == stops
    first = lines(tmp_path)[0]
    assert (first.prompt_tokens, first.completion_tokens) == (None, None)
    assert first.cost_usd == (0 if price.self_hosted else None)


def test_an_unknown_price_is_an_unknown_cost(tmp_path: Path) -> None:
    run(tmp_path, FakeChat(), ask(), price=None)
    assert [call.cost_usd for call in lines(tmp_path)] == [None]


def test_a_cache_that_cannot_be_written_is_no_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "BUSY_TIMEOUT_S", 0.05)
    with metered(tmp_path, FakeChat()) as model:
        other = sqlite3.connect(tmp_path / "replies.sqlite3", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusyError, match="another process"):
            asyncio.run(model.complete(ask()))
        other.close()
    # It was paid for all the same.
    assert [call.error for call in lines(tmp_path)] == [None]
