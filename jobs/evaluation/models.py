"""The models of a run: each behind the run's cache, its limit, its budget and its ledger."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from openai import DefaultAsyncHttpxClient

from jobs.evaluation.plan import BudgetPlan, ModelPlan
from jobs.evaluation.records import ModelCost
from jobs.evaluation.run_folder import RunFolder
from jobs.evaluation.served import VllmServer, served
from vmem.build import make_chat
from vmem.config import Settings
from vmem.errors import ConfigError
from vmem.llm.budget import SELF_HOSTED, Budget, load_prices
from vmem.llm.cache import ReplyCache
from vmem.llm.given_up import GivenUpChat
from vmem.llm.ledger import Call, Ledger
from vmem.llm.metered import MeteredChat
from vmem.llm.openai_chat import OpenAIChat
from vmem.ports import ChatModel

LEDGER, REPLIES, SERVED = "ledger.jsonl", "replies.db", "served"

Model = TypeVar("Model", bound=ModelPlan)
PATIENCE = 10
"""Calls in a row, or twice as many as go on at once, after which a server is held to be gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Makes models that share one cache and one ledger.

    Attributes:
        cache: The replies kept.
        ledger: Every call.
        budget: What all calls may spend.
    """

    cache: ReplyCache
    ledger: Ledger
    budget: Budget

    def make(self, plan: ModelPlan, settings: Settings) -> MeteredChat:
        """A model of the plan.

        Args:
            plan: The model.
            settings: Settings whose `llm` it takes the place of.

        Raises:
            ConfigError, ModelError: It cannot be reached or started.
            BudgetError: There is a budget in money, and its price is unknown.
        """
        chat = _chat(plan, plan.settings(settings))
        if chat is None:
            raise ConfigError(f"{plan.name} is no model: llm.provider is none")
        own = plan.self_hosted or plan.serve or plan.llm.provider in {"llama_cpp", "fake"}
        return MeteredChat(
            GivenUpChat(chat, max(PATIENCE, 2 * plan.concurrency)),
            self.cache,
            server=server_name(plan),
            concurrency=plan.concurrency,
            budget=self.budget,
            ledger=self.ledger,
            price=SELF_HOSTED if own else load_prices().get(chat.name),
        )


@contextmanager
def open_models(run: RunFolder, budget: BudgetPlan) -> Iterator[Models]:
    """The models of a run; its cache and ledger are closed with the with-block.

    Raises:
        StoreError: Cache or ledger cannot be opened.
    """
    cache = ReplyCache(run.path / REPLIES)
    ledger = Ledger(run.path / LEDGER)
    try:
        yield Models(
            cache=cache,
            ledger=ledger,
            budget=Budget(**budget.model_dump()),
        )
    finally:
        ledger.close()
        cache.close()


@contextmanager
def reached(plan: Model, run: RunFolder) -> Iterator[tuple[Model, VllmServer | None]]:
    """A plan's model where it can be asked; one that the job serves lives in the with-block.

    Yields:
        The plan with an address, and the server if the job's own.

    Raises:
        ConfigError, ModelUnavailableError: It cannot be served, as `served` says.
    """
    if plan.serve is None:
        yield plan, None
        return
    with served(plan.name, plan.serve, plan.llm, run.path / SERVED) as server:
        yield plan.model_copy(update={"llm": server.llm}), server


def server_name(plan: ModelPlan) -> str:
    """A server's name, the same in every run: the port of what runs here changes."""
    return plan.serve.server if plan.serve else plan.llm.base_url or plan.llm.provider


def _chat(plan: ModelPlan, settings: Settings) -> ChatModel | None:
    if plan.serve is None:
        return make_chat(settings)
    # A proxy named in the environment must not stand between this machine and itself.
    http = DefaultAsyncHttpxClient(timeout=settings.llm.timeout_s, trust_env=False)
    return OpenAIChat(settings.llm, http_client=http)


def cost_of(calls: Sequence[Call]) -> ModelCost:
    """Calls summed; those that came from the cache count as they did when they were made."""
    return ModelCost(
        calls=len(calls),
        failed=sum(call.error is not None for call in calls),
        prompt_tokens=sum(call.prompt_tokens or 0 for call in calls),
        completion_tokens=sum(call.completion_tokens or 0 for call in calls),
        seconds=round(sum(call.seconds for call in calls if call.error is None), 4),
    )


def costs_by_role(calls: Sequence[Call]) -> dict[str, ModelCost]:
    """Calls summed by what they were for, in the order of the roles' names."""
    roles = sorted({call.role for call in calls})
    return {role: cost_of([call for call in calls if call.role == role]) for role in roles}
