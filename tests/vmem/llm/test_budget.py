"""The price list, what calls cost by it, and when a budget stops them."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
import yaml

from vmem.errors import BudgetError, ConfigError, ModelError, VmemError
from vmem.llm.budget import SELF_HOSTED, Budget, Price, cost_usd, load_prices
from vmem.llm.ledger import Spent

MINI = Price(prompt_usd=0.15, completion_usd=0.6, source="a page", as_of=date(2024, 7, 18))


def test_the_price_list_holds_dated_facts() -> None:
    prices = load_prices()
    for model in ("gpt-4o-mini", "gpt-4o-mini-2024-07-18"):
        assert (prices[model].prompt_usd, prices[model].completion_usd) == (0.15, 0.6)
        assert prices[model].as_of == date(2024, 7, 18)
    assert prices["SmolLM2-135M-Instruct.Q4_1"].self_hosted
    assert all(price.source for price in prices.values())
    assert "gpt-9" not in prices


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompt_usd": -1}, "models.m.prompt_usd: Input should be greater than or equal to 0"),
        ({"completion_usd": float("nan")}, "models.m.completion_usd"),
        ({"prompt_usd": 0, "completion_usd": 0}, "a price is 0 where self_hosted is true"),
        ({"self_hosted": True}, "a price is 0 where self_hosted is true"),
        ({"as_of": None}, "a price needs as_of"),
        ({"source": ""}, "models.m.source"),
        ({"currency": "EUR"}, "there is no setting models.m.currency"),
    ],
)
def test_a_price_that_does_not_fit_is_told(
    tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(yaml.safe_dump({"models": {"m": {**MINI.model_dump(), **changes}}}))
    with pytest.raises(ConfigError) as caught:
        load_prices(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def test_a_price_list_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        load_prices(tmp_path / "none.yaml")


def test_costs_are_per_million_tokens_and_never_guessed() -> None:
    assert cost_usd(MINI, 1000, 10) == (1000 * 0.15 + 10 * 0.6) / 1e6
    assert cost_usd(SELF_HOSTED, 1000, 10) == 0
    assert cost_usd(SELF_HOSTED, None, None) == 0
    assert cost_usd(None, 1000, 10) is None
    assert cost_usd(MINI, None, None) is None


def test_a_budget_error_is_no_failed_call() -> None:
    assert issubclass(BudgetError, VmemError)
    assert not issubclass(BudgetError, ModelError)


def test_a_money_budget_needs_a_price() -> None:
    with pytest.raises(BudgetError, match="5 USD cannot be kept for model gpt-9, whose price is"):
        Budget(max_usd=5).check_price("gpt-9", None)
    Budget(max_usd=5).check_price("gpt-9", MINI)
    Budget(max_tokens=5).check_price("gpt-9", None)


SPENT = Spent(calls=7, tokens=999, usd=1.999)


@pytest.mark.parametrize(
    ("budget", "spent", "price"),
    [
        (Budget(), replace(SPENT, uncounted=1, unpriced=1), None),
        (Budget(max_tokens=1000), replace(SPENT, unpriced=1), None),
        (Budget(max_usd=2), replace(SPENT, uncounted=1), MINI),
        (Budget(max_usd=2), replace(SPENT, usd=3, unpriced=1), SELF_HOSTED),
        (Budget(max_tokens=1000, max_usd=2), SPENT, MINI),
        (Budget(max_calls=8), SPENT, MINI),
    ],
)
def test_what_is_within_the_budget_goes_on(
    budget: Budget, spent: Spent, price: Price | None
) -> None:
    budget.check(spent, price)


@pytest.mark.parametrize(
    ("budget", "spent", "words"),
    [
        (
            Budget(max_tokens=999),
            SPENT,
            r"the budget of 999 tokens is spent \(999 tokens by 7 calls",
        ),
        (Budget(max_tokens=0), Spent(), r"the budget of 0 tokens is spent"),
        (Budget(max_tokens=1000), replace(SPENT, uncounted=2), "2 replies came without token"),
        (Budget(max_usd=1.5), SPENT, r"the budget of 1\.5 USD is spent \(1\.9990 USD by 7 calls"),
        (Budget(max_usd=9), replace(SPENT, unpriced=3), "the cost of 3 calls in the ledger is"),
        (Budget(max_calls=7), SPENT, "the budget of 7 calls is spent"),
        (Budget(max_calls=8), replace(SPENT, failed=1), "the budget of 8 calls is spent"),
        (Budget(max_calls=0), Spent(), "the budget of 0 calls is spent"),
    ],
)
def test_a_spent_budget_stops_calls(budget: Budget, spent: Spent, words: str) -> None:
    with pytest.raises(BudgetError, match=words):
        budget.check(spent, MINI)
