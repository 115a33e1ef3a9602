"""What calls cost, by a dated price list, and how much a run may spend."""

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from vmem.config import CONFIGS, first_fault, read_mapping
from vmem.errors import BudgetError, ConfigError
from vmem.llm.ledger import Spent

PRICES = CONFIGS / "prices.yaml"
"""The price list that comes with vmem."""


class Price(BaseModel):
    """What one model costs, by whom and when it was said.

    Attributes:
        prompt_usd: USD per million tokens of prompts.
        completion_usd: USD per million tokens of replies.
        source: Where the price stands.
        as_of: The day on which it held; a self-hosted model needs none.
        self_hosted: It runs on one's own machines, and only therefore costs 0.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt_usd: float = Field(ge=0, allow_inf_nan=False)
    completion_usd: float = Field(ge=0, allow_inf_nan=False)
    source: str = Field(min_length=1)
    as_of: date | None = None
    self_hosted: bool = False

    @model_validator(mode="after")
    def _says_why_it_is_free(self) -> "Price":
        is_free = self.prompt_usd == self.completion_usd == 0
        if is_free != self.self_hosted:
            raise ValueError("a price is 0 where self_hosted is true, and only there")
        if self.as_of is None and not self.self_hosted:
            raise ValueError("a price needs as_of, the day on which it held")
        return self


SELF_HOSTED = Price(
    prompt_usd=0, completion_usd=0, source="the model runs on the user's machines", self_hosted=True
)
"""The price of a model that the run itself serves, whatever its name."""


class _PriceList(BaseModel):
    model_config = ConfigDict(extra="forbid")

    models: dict[str, Price]


def load_prices(path: Path = PRICES) -> dict[str, Price]:
    """Prices by model; one that is not there has an unknown price.

    Raises:
        ConfigError: The file cannot be read, or an entry lacks something.
    """
    try:
        return _PriceList(**read_mapping(path)).models
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_fault(error)}") from error


def cost_usd(
    price: Price | None, prompt_tokens: int | None, completion_tokens: int | None
) -> float | None:
    """What a call cost; None where its price or its tokens are unknown."""
    if price is None:
        return None
    if price.self_hosted:
        return 0.0
    if prompt_tokens is None or completion_tokens is None:
        return None
    return (prompt_tokens * price.prompt_usd + completion_tokens * price.completion_usd) / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much all calls of one ledger may spend together; replies from the cache spend nothing.

    Calls are stopped once a cap is reached, so calls under way at that moment go over it: at most
    as many as are allowed at once. A cap of 0 allows the cache alone.

    Attributes:
        max_tokens: Tokens of prompts and replies; None is no cap.
        max_usd: Money; None is no cap.
        max_calls: Calls that were made, failed ones among them; None is no cap.
    """

    max_tokens: int | None = None
    max_usd: float | None = None
    max_calls: int | None = None

    def check_price(self, model: str, price: Price | None) -> None:
        """Refuse to keep a money budget for a model of unknown price.

        Raises:
            BudgetError: There is a cap on money and no price.
        """
        if self.max_usd is not None and price is None:
            raise BudgetError(
                f"a budget of {self.max_usd:g} USD cannot be kept for model {model}, whose price is"
                " unknown: add it to the price list, or set a budget in tokens"
            )

    def check(self, spent: Spent, price: Price | None) -> None:
        """Refuse a call at a price when what was spent leaves nothing for it.

        Raises:
            BudgetError: A cap is reached, or what was spent is not known.
        """
        made = spent.calls + spent.failed
        if self.max_calls is not None and made >= self.max_calls:
            raise BudgetError(
                f"the budget of {self.max_calls:,} calls is spent: raise it and run again, kept"
                " replies cost nothing"
            )
        if self.max_tokens is not None:
            if spent.uncounted:
                raise BudgetError(
                    f"a budget in tokens cannot be kept: {spent.uncounted} replies came without"
                    " token counts; use a server that counts, or set no budget"
                )
            if spent.tokens >= self.max_tokens:
                raise BudgetError(
                    f"the budget of {self.max_tokens:,} tokens is spent ({spent.tokens:,} tokens"
                    f" by {spent.calls:,} calls): raise it and run again, kept replies cost nothing"
                )
        if self.max_usd is not None and not (price and price.self_hosted):
            if spent.unpriced:
                raise BudgetError(
                    f"a budget in money cannot be kept: the cost of {spent.unpriced} calls in the"
                    " ledger is unknown; price their model, or set a budget in tokens"
                )
            if spent.usd >= self.max_usd:
                raise BudgetError(
                    f"the budget of {self.max_usd:g} USD is spent ({spent.usd:.4f} USD by"
                    f" {spent.calls:,} calls): raise it and run again, kept replies cost nothing"
                )
