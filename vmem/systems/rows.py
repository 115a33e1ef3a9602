"""The rows of Tables 1 to 14 as data: what each system is called and which settings it changes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from vmem.config import CONFIGS, Settings, first_fault, load_settings, read_mapping, replace
from vmem.errors import ConfigError

FOLDER = CONFIGS / "systems"

Kind = Literal[
    "v-mem",
    "full-context",
    "no-memory",
    "omni",
    "omni-verbatim",
    "murag",
    "a-mem",
    "m2a",
    "m2a-verbatim",
]
Changes = Mapping[Literal["units", "retrieval", "answer", "encoders"], Mapping[str, Any]]


class _Checked(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StandsFor(_Checked):
    """A place in `configs/published.yaml` that a row gives our figure for.

    Attributes:
        table: The table's number.
        figure: Or the id of a figure of the text.
        row: The values of the row's keys; keys left out match any.
        column: The one column, or the one key of a figure; None is all.
    """

    table: int | None = None
    figure: str | None = None
    row: Mapping[str, str] = Field(default_factory=dict)
    column: str | None = None

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if (self.table is None) == (self.figure is None):
            raise ValueError("name a table or a figure")
        return self


class SystemRow(_Checked):
    """One system as a plan names it.

    Attributes:
        name: Its name, unique among all rows.
        title: Its name in a table.
        kind: What builds and answers.
        settings: The named settings that it starts from.
        changes: The settings that it has otherwise, by section.
        options: What its kind has settings of its own for; `registry.py` names their class.
        stands_for: The places in the paper's tables that it gives figures for.
        oracle: It sees reference, category and evidence; only rows labelled so get them.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    title: str
    kind: Kind = "v-mem"
    settings: str = "paper"
    changes: Changes = Field(default_factory=dict)
    options: Mapping[str, Any] = Field(default_factory=dict)
    stands_for: tuple[StandsFor, ...] = ()
    oracle: bool = False


class _File(_Checked):
    systems: tuple[SystemRow, ...]


def read_rows(folder: Path = FOLDER) -> dict[str, SystemRow]:
    """All rows of a folder's YAML files by name, in the order of the files and of their lines.

    Raises:
        ConfigError: A file is no YAML or of another form, or a name is used twice.
    """
    rows: dict[str, SystemRow] = {}
    for path in sorted(folder.glob("*.yaml")):
        try:
            file = _File.model_validate(read_mapping(path))
        except ValidationError as error:
            raise ConfigError(f"{path}: {first_fault(error)}") from error
        for row in file.systems:
            if row.name in rows:
                raise ConfigError(f"{path}: a system {row.name!r} is there already; rename one")
            rows[row.name] = row
    return rows


def row_named(name: str, rows: Mapping[str, SystemRow] | None = None) -> SystemRow:
    """A row by its name.

    Args:
        name: The name, as a plan gives it.
        rows: The rows to choose from; None is those of `configs/systems/`.

    Raises:
        ConfigError: No row has that name.
    """
    known = read_rows() if rows is None else rows
    if name not in known:
        raise ConfigError(f"no system is named {name!r}; known: {', '.join(known)}")
    return known[name]


def row_settings(row: SystemRow, runtime: Settings) -> Settings:
    """The settings under which a row runs.

    What is retrieved comes from the row (its named settings, then its changes); what it runs on,
    that is encoders, backbone, prompts and lengths, from the run.

    Args:
        row: The row.
        runtime: The run's settings.

    Raises:
        ConfigError: The named settings are unknown, or a change names no setting or does not fit.
    """
    named = load_settings(row.settings)
    set_by_name = {key: getattr(named.answer, key) for key in named.answer.model_fields_set}
    base = replace(runtime, answer=set_by_name).model_copy(
        update={"name": row.name, "units": named.units, "retrieval": named.retrieval}
    )
    try:
        return lay_over(base, row.changes)
    except ConfigError as error:
        raise ConfigError(f"system {row.name!r}: {error}") from error


def lay_over(settings: Settings, changes: Mapping[Any, Mapping[str, Any]]) -> Settings:
    """Settings with single values changed at any depth; what is not named stays.

    Args:
        settings: The settings.
        changes: By section, the values that differ, nested as in a settings file.

    Raises:
        ConfigError: A section or key is unknown, or a value does not fit.
    """
    if unknown := sorted(changes.keys() - type(settings).model_fields.keys()):
        raise ConfigError(f"there is no section {unknown[0]}; vmem/config.py lists all")
    sections = {
        name: _merged(getattr(settings, name).model_dump(), change)
        for name, change in changes.items()
    }
    return replace(settings, **sections)


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for key, value in new.items():
        both = isinstance(value, Mapping) and isinstance(old.get(key), Mapping)
        merged[key] = _merged(old[key], value) if both else value
    return merged
