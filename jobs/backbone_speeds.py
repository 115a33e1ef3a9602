"""How fast backbones are: by a list that comes with vmem, or as whoever asks says."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vmem.config import CONFIGS, first_fault, read_mapping
from vmem.errors import ConfigError, InputError

SPEEDS = CONFIGS / "speeds.yaml"
"""The list that comes with vmem."""
GIVEN = "as given"


class Speed(BaseModel):
    """One backbone's, on one call after another.

    Attributes:
        prompt_per_s: Tokens of prompts that it reads a second.
        completion_per_s: Tokens of replies that it writes a second.
        source: Who says so.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt_per_s: float = Field(gt=0, allow_inf_nan=False)
    completion_per_s: float = Field(gt=0, allow_inf_nan=False)
    source: str = Field(min_length=1)

    def hours(self, prompt_tokens: int, completion_tokens: int) -> float:
        """What calls of so many tokens in all take."""
        seconds = prompt_tokens / self.prompt_per_s + completion_tokens / self.completion_per_s
        return seconds / 3_600


class _SpeedList(BaseModel):
    model_config = ConfigDict(extra="forbid")

    models: dict[str, Speed]


def load_speeds(path: Path = SPEEDS) -> dict[str, Speed]:
    """Speeds by backbone.

    Raises:
        ConfigError: The file cannot be read, or an entry lacks something.
    """
    try:
        return _SpeedList(**read_mapping(path)).models
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_fault(error)}") from error


def speeds_given(given: Sequence[str]) -> dict[str, Speed]:
    """Speeds as NAME=PROMPT,COMPLETION in tokens a second.

    Raises:
        InputError: One is not of that form.
    """
    found = {}
    for each in given:
        name, _, figures = each.partition("=")
        prompt, _, completion = figures.partition(",")
        try:
            speed = Speed(
                prompt_per_s=float(prompt), completion_per_s=float(completion), source=GIVEN
            )
        except ValueError as error:
            raise InputError(
                f"--speed {each}: give NAME=PROMPT,COMPLETION in tokens a second, such as"
                " my-model=2000,60"
            ) from error
        found[name] = speed
    return found
