"""What keeps gold answers away from systems that are not labelled as oracle runs."""

from vmem.errors import ConfigError
from vmem.ports import Oracle


def refuse_oracle(name: str, oracle: Oracle | None) -> None:
    """Stop a run in which a system would see what only the harness may.

    Raises:
        ConfigError: An oracle is given.
    """
    if oracle is not None:
        raise ConfigError(f"system {name!r} is no oracle run: it takes no reference or category")
