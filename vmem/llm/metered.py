"""A language model whose calls are kept, limited, paid from a budget and written down."""

import asyncio
import copy
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from vmem.errors import BudgetError, ConfigError
from vmem.llm.budget import Budget, Price, cost_usd
from vmem.llm.cache import KeptReply, ReplyCache, reply_key
from vmem.llm.ledger import Call, Ledger
from vmem.llm.under_way import CallsUnderWay
from vmem.ports import ChatModel, ChatReply, ChatRequest
from vmem.types import Usage


class MeteredChat:
    """Another model behind a cache; belongs to the event loop that first uses it.

    A request is looked up in the cache first; the same request meanwhile is no second call. What
    must be asked waits for its place among `concurrency` calls, and pauses between its tries keep
    that place, so that a server that is overloaded is not asked more. A reply is in the ledger,
    then in the cache, and then handed out; a failed call is in the ledger only.

    Args:
        chat: The model that is asked.
        cache: Replies of earlier calls; the caller closes it.
        server: The model's server, by a name that is the same in every run: part of the key.
        concurrency: Calls at once, at most.
        budget: What may be spent by all calls of the ledger.
        ledger: A line for every call; the caller closes it.
        price: The model's price; None is unknown.

    Raises:
        ConfigError: No call is allowed at once.
        BudgetError: There is a budget in money, and no price.
    """

    def __init__(
        self,
        chat: ChatModel,
        cache: ReplyCache,
        *,
        server: str,
        concurrency: int,
        budget: Budget,
        ledger: Ledger,
        price: Price | None = None,
    ) -> None:
        if concurrency < 1:
            raise ConfigError(f"a concurrency of {concurrency} calls nothing: set 1 or more")
        budget.check_price(chat.name, price)
        self._chat = chat
        self._cache = cache
        self._server = server
        self._places = asyncio.Semaphore(concurrency)
        self._budget = budget
        self._ledger = ledger
        self._price = price
        self._repetition = 0
        self._under_way: CallsUnderWay[tuple[KeptReply, bool]] = CallsUnderWay()

    @property
    def name(self) -> str:
        """The model's own name."""
        return self._chat.name

    @property
    def sees_images(self) -> bool:
        """Whether requests may carry pictures."""
        return self._chat.sees_images

    def repetition(self, number: int) -> "MeteredChat":
        """The same model, asked anew: its replies are kept apart; all limits are shared.

        Args:
            number: From 0, which is this model unless it is a repetition itself.
        """
        other = copy.copy(self)
        other._repetition = number
        return other

    def key(self, request: ChatRequest) -> str:
        """What a request's reply is kept under."""
        return reply_key(request, server=self._server, model=self.name, repetition=self._repetition)

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Answer from the cache, or ask.

        Raises:
            BudgetError: The budget is spent, or cannot be kept.
            StoreError: The cache or the ledger cannot be read or written.
            ModelError, ImageError: As the model's own `complete`.
        """
        key = self.key(request)
        shares = key in self._under_way
        try:
            kept, cached = await self._under_way.join(key, partial(self._fetch, request, key))
        except Exception as error:
            if shares:
                self._note(request, key, 0.0, error=error, cached=True)
            raise
        if shares:
            self._note(request, key, kept.seconds, usage=kept.reply.usage, cached=True)
        return replace(kept.reply, usage=replace(kept.reply.usage, cached=cached or shares))

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatReply, None]:
        """Answer as `complete` does, in one piece: only a whole reply can be kept.

        Yields:
            The reply's text, and last the reply with its cost.

        Raises:
            BudgetError, StoreError, ModelError, ImageError: As `complete`.
        """
        reply = await self.complete(request)
        yield reply.text
        yield reply

    async def check(self) -> None:
        """Find out whether the model answers.

        Raises:
            ModelError: It does not.
        """
        await self._chat.check()

    def count_tokens(self, text: str) -> int:
        """Length of a text in the model's tokens."""
        return self._chat.count_tokens(text)

    async def close(self) -> None:
        """Close the model; cache and ledger stay open."""
        await self._chat.close()

    async def _fetch(self, request: ChatRequest, key: str) -> tuple[KeptReply, bool]:
        """The reply, and whether it was kept."""
        kept = self._cache.get(key)  # takes less than the way to a thread and back
        if kept is not None:
            self._note(request, key, kept.seconds, usage=kept.reply.usage, cached=True)
            return kept, True
        ready = time.perf_counter()
        async with self._places:
            kept = await self._ask(request, key, time.perf_counter() - ready)
        # What was paid for is kept, also where nobody waits for it any more.
        return await asyncio.wrap_future(self._cache.put(key, kept)), False

    async def _ask(self, request: ChatRequest, key: str, waited: float) -> KeptReply:
        started = time.perf_counter()
        try:
            self._budget.check(self._ledger.spent, self._price)
            reply = await self._chat.complete(request)
        except BaseException as error:  # a call that was cancelled was made all the same
            seconds = time.perf_counter() - started
            self._note(request, key, seconds, error=error, waited=waited)
            raise
        seconds = time.perf_counter() - started
        self._note(request, key, seconds, usage=reply.usage, waited=waited)
        return KeptReply(reply=reply, seconds=seconds, kept_at=_now())

    def _note(
        self,
        request: ChatRequest,
        key: str,
        seconds: float,
        *,
        usage: Usage | None = None,
        error: BaseException | None = None,
        cached: bool = False,
        waited: float = 0.0,
    ) -> None:
        is_free = cached or isinstance(error, BudgetError)  # nothing was asked
        # No prompt has 0 tokens: a server that says so counts none.
        counts = usage if usage is not None and usage.prompt_tokens else None
        prompt = counts.prompt_tokens if counts else None
        completion = counts.completion_tokens if counts else None
        self._ledger.append(
            Call(
                time=_now(),
                role=request.role,
                model=self.name,
                key=key,
                cached=cached,
                prompt_tokens=prompt,
                completion_tokens=completion,
                cost_usd=0.0 if is_free else cost_usd(self._price, prompt, completion),
                seconds=round(seconds, 4),
                error=type(error).__name__ if error else None,
                waited=round(waited, 4),
            )
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
