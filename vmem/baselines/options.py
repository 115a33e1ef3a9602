"""What a row sets of its own kind of system: `options` in `configs/systems/`."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from vmem.config import first_fault
from vmem.errors import ConfigError

O = TypeVar("O", bound="Options")  # noqa: E741


class Options(BaseModel):
    """A system's hyperparameters; each default is documented with its origin."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def read_options(form: type[O], values: Mapping[str, Any], system: str) -> O:
    """A row's options, checked.

    Raises:
        ConfigError: One is unknown or does not fit.
    """
    try:
        return form(**values)
    except ValidationError as error:
        said = first_fault(error, "options", form.__module__.replace(".", "/") + ".py")
        raise ConfigError(f"system {system!r}: {said}") from error
