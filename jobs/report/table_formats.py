"""A table as Markdown, as CSV, as LaTeX and as HTML."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

NOTHING = "–"
"""What stands where there is neither a value nor a reason."""

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "→": r"$\to$",
    "κ": r"$\kappa$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}
_TO_ESCAPE = re.compile("|".join(map(re.escape, _LATEX)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What stands in one place of a table.

    Attributes:
        value: The figure or words; None where there is none.
        interval: Its 95% interval, or None.
        mark: Why there is no value, or what must be known to read it.
        signed: A difference, printed with its sign.
        digits: Digits after the point of a number that is not whole.
    """

    value: float | str | None = None
    interval: tuple[float, float] | None = None
    mark: str = ""
    signed: bool = False
    digits: int = 3

    @property
    def text(self) -> str:
        """As a reader sees it."""
        parts = [] if self.value is None else [self._number(self.value)]
        if self.interval and self.value is not None:
            parts.append("[" + ", ".join(self._number(end) for end in self.interval) + "]")
        if self.mark:
            parts.append(f"({self.mark})" if parts else self.mark)
        return " ".join(parts) or NOTHING

    def _number(self, value: float | str) -> str:
        if isinstance(value, str):
            return value
        sign = "+" if self.signed else ""
        if isinstance(value, int):
            return f"{value:{sign},}"
        return f"{round(value, self.digits) + 0.0:{sign},.{self.digits}f}"  # + 0.0: never -0.000


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of a table.

    Attributes:
        keys: What the line is about, one for each of the table's keys.
        figure: Whose figures it holds: published, ours, their difference, ours of the evidence.
        entries: One for each column.
    """

    keys: tuple[str, ...]
    figure: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table.

    Attributes:
        name: Name of its files.
        title: What it shows.
        keys: Names of what tells its rows apart.
        columns: Names of its columns.
        lines: Its lines.
        caption: Sentences that say what made the figures.
    """

    name: str
    title: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    caption: tuple[str, ...] = ()

    @property
    def head(self) -> list[str]:
        """Names of all columns, as a reader sees them."""
        return [*self.keys, "figure", *self.columns]

    def rows(self) -> list[list[str]]:
        """All lines as a reader sees them; keys that repeat are left blank."""
        found, before = [], None
        for line in self.lines:
            keys = [""] * len(line.keys) if line.keys == before else [*line.keys]
            found.append([*keys, line.figure, *(entry.text for entry in line.entries)])
            before = line.keys
        return found


def to_markdown(grid: Grid) -> str:
    """A heading, a pipe table, and the caption."""

    def row(texts: Sequence[str]) -> str:
        cells = [" ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|") for text in texts]
        return "| " + " | ".join(cells) + " |"

    aligned = ["---"] * (len(grid.keys) + 1) + ["---:"] * len(grid.columns)
    lines = [f"## {grid.title}", "", row(grid.head), row(aligned), *map(row, grid.rows())]
    return "\n".join([*lines, "", " ".join(grid.caption), ""])


def to_csv(grid: Grid) -> str:
    """A row for each entry, with its numbers unrounded; the first row names the fields."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*grid.keys, "figure", "column", "value", "low", "high", "mark"])
    for line in grid.lines:
        for column, entry in zip(grid.columns, line.entries, strict=True):
            low, high = entry.interval or ("", "")
            value = "" if entry.value is None else entry.value
            writer.writerow([*line.keys, line.figure, column, value, low, high, entry.mark])
    return file.getvalue()


def to_latex(grid: Grid) -> str:
    """A `table` environment for the package booktabs."""

    def row(texts: Sequence[str]) -> str:
        return " & ".join(escape_latex(" ".join(text.split())) for text in texts) + r" \\"

    shape = "l" * (len(grid.keys) + 1) + "r" * len(grid.columns)
    caption = escape_latex(" ".join([f"{grid.title}.", *grid.caption]))
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{caption}}}",
            rf"\label{{tab:{grid.name}}}",
            rf"\begin{{tabular}}{{{shape}}}",
            r"\toprule",
            row(grid.head),
            r"\midrule",
            *map(row, grid.rows()),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def to_html(grid: Grid) -> Markup:
    """A `table` that scrolls by itself where it is too wide, and its caption; all is escaped."""
    head = [Markup('<th scope="col">{}</th>').format(name) for name in (*grid.keys, "figure")]
    head += [Markup('<th scope="col" class="value">{}</th>').format(name) for name in grid.columns]
    rows, before = [], None
    for line in grid.lines:
        again = " again" if line.keys == before else ""
        names = [(f"key{again}", key) for key in line.keys] + [("figure", line.figure)]
        cells = [Markup('<th scope="row" class="{}">{}</th>').format(*name) for name in names]
        cells += [_html_entry(entry) for entry in line.entries]
        kind = line.figure.partition(":")[0].partition(" ")[0]
        rows.append(Markup('<tr class="{}">{}</tr>').format(kind, Markup("").join(cells)))
        before = line.keys
    return Markup(
        '<div class="scroll" role="region" tabindex="0" aria-label="{title}"><table>'
        '<caption class="unseen">{title}</caption><thead><tr>{head}</tr></thead><tbody>\n{rows}\n'
        '</tbody></table></div><p class="caption">{caption}</p>'
    ).format(
        title=grid.title,
        caption=" ".join(grid.caption),
        head=Markup("").join(head),
        rows=Markup("\n").join(rows),
    )


def _html_entry(entry: Entry) -> Markup:
    if entry.value is None:
        return Markup('<td class="empty">{}</td>').format(entry.text)
    parts = [Markup("{}").format(replace(entry, interval=None, mark="").text)]
    if entry.interval:
        ends = replace(entry, mark="").text.removeprefix(parts[0].unescape()).strip()
        parts.append(Markup('<span class="interval">{}</span>').format(ends))
    if entry.mark:
        parts.append(Markup('<span class="mark">({})</span>').format(entry.mark))
    return Markup("<td>{}</td>").format(Markup(" ").join(parts))


def escape_latex(text: str) -> str:
    """A text that LaTeX sets as it is written here."""
    return _TO_ESCAPE.sub(lambda found: _LATEX[found[0]], text)
