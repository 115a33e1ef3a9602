"""The paper's tables of `configs/published.yaml`, and which of our systems stands where."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from jobs.report.table_formats import Entry, Grid, Line
from vmem.config import CONFIGS, first_fault, read_mapping
from vmem.errors import ConfigError
from vmem.systems.rows import SystemRow

PUBLISHED = CONFIGS / "published.yaml"


class PublishedTable(BaseModel):
    """A table of the paper.

    Attributes:
        number: Its number.
        title: What it shows.
        unit: What its figures count.
        keys: What tells its rows apart.
        columns: The columns of its figures.
        rows: Its rows: the keys, `values` in the order of the columns, and what else is known.
        benchmark: The one benchmark that it is about, or None.
        backbone: The one backbone that it is about, or None.
        notes: What a reader must know before comparing.
        dialogues: Dialogues by the names of the columns that are about one each.
        totals: What the counts of Table 6 add up to, by benchmark.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    number: int
    title: str
    unit: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]
    benchmark: str | None = None
    backbone: str | None = None
    notes: str = ""
    dialogues: Mapping[str, str] = Field(default_factory=dict)
    totals: Mapping[str, Mapping[str, int]] = Field(default_factory=dict)

    def keys_of(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        """A row's keys as texts."""
        return tuple(str(row[key]) for key in self.keys)

    def grid(
        self,
        lines: tuple[Line, ...],
        caption: tuple[str, ...],
        columns: tuple[str, ...] | None = None,
    ) -> Grid:
        """The table with lines of ours, under its number; None takes its own columns."""
        return Grid(
            name=f"table-{self.number:02}",
            title=f"Table {self.number}: {self.title}",
            keys=self.keys,
            columns=self.columns if columns is None else columns,
            lines=lines,
            caption=caption,
        )

    def value(self, row: Mapping[str, Any], column: str) -> Any:  # noqa: ANN401
        """What the paper prints; None in a column of ours."""
        values: Mapping[str, Any] = dict(zip(self.columns, row.get("values", ()), strict=False))
        return values.get(column)


class PublishedFigure(BaseModel):
    """Figures that stand in the paper's text only.

    Attributes:
        id: Their name.
        where: Their section.
        about: What they say.
        values: Figures by name; three in a row are a mean with the ends of its interval.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    id: str
    where: str
    about: str
    values: Mapping[str | int, int | float | tuple[float, float, float]]

    def entries(self) -> dict[str, Entry]:
        """The figures as entries of a table, by name."""
        return {
            str(name): Entry(value=value[0], interval=value[1:])
            if isinstance(value, tuple)
            else Entry(value=value)
            for name, value in self.values.items()
        }


def read_published(path: Path = PUBLISHED) -> dict[int, PublishedTable]:
    """All tables by number.

    Raises:
        ConfigError: The file is no YAML or of another form.
    """
    try:
        tables = TypeAdapter(list[PublishedTable]).validate_python(read_mapping(path).get("tables"))
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_fault(error, 'tables')}") from error
    return {table.number: table for table in tables}


def read_figures(path: Path = PUBLISHED) -> dict[str, PublishedFigure]:
    """All figures of the text by id.

    Raises:
        ConfigError: The file is no YAML or of another form.
    """
    try:
        values = read_mapping(path).get("figures")
        figures = TypeAdapter(list[PublishedFigure]).validate_python(values)
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_fault(error, 'figures')}") from error
    return {figure.id: figure for figure in figures}


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Which systems give our figures for the paper's places.

    Attributes:
        rows: All systems by name.
    """

    rows: Mapping[str, SystemRow]

    def system(self, table: int, row: Mapping[str, Any], column: str) -> str | None:
        """The system whose figure belongs into a row and column of a table, or None."""
        for name, system in self.rows.items():
            for place in system.stands_for:
                fits = all(str(row.get(key)) == value for key, value in place.row.items())
                if place.table == table and fits and place.column in (None, column):
                    return name
        return None

    def of_figure(self, figure: str, name: str) -> str | None:
        """The system whose score is a value of a figure of the text, or None."""
        for system, row in self.rows.items():
            if any(p.figure == figure and p.column in (None, name) for p in row.stands_for):
                return system
        return None

    def own(self, name: str) -> bool:
        """Whether a system is ours alone, so that no table of the paper has a place for it."""
        return name not in self.rows or not self.rows[name].stands_for
