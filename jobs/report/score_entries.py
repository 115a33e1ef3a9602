"""A score as an entry of a table, and a line of entries: what Tables 1 to 14 share."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jobs.report.published import PublishedTable
from jobs.report.table_formats import Entry

NOT_RUN = Entry(mark="not run")
LEXICAL = {"F1": "f1", "BLEU": "bleu", "EM": "exact"}
DELTA = {11: ("without", "with"), 14: ("siglip", "dinov2")}
"""Tables with a column of differences: second less first."""
VISUAL_SEARCH = "VS"

Row = Mapping[str, Any]
Group = tuple[str, str]
Measure = Callable[[str, Group, str], Entry]
"""System, group and column to an entry."""


def score_entry(
    scores: Mapping[str, Any] | None, invalid: Mapping[str, int], group: Group
) -> Entry:
    """A mean as an entry; a score that is invalid shows why instead.

    Args:
        scores: Means by group, as `statistics.json` has them; None where none was measured.
        invalid: What makes it invalid.
        group: Which mean: `("overall", "")`, or a kind of group and its name.
    """
    kind, name = group
    found = (scores or {}).get(kind, {})
    found = found if kind == "overall" else found.get(name)
    if invalid:
        return Entry(mark=invalid_mark(invalid))
    if not found or found["mean"] is None:
        return NOT_RUN if scores is None else Entry(mark="no such question")
    interval = found.get("by_question")
    return Entry(value=found["mean"], interval=tuple(interval) if interval else None)


def invalid_mark(invalid: Mapping[str, int]) -> str:
    """`invalid (2 failed, 1 unanswered)`; an unfinished file has no number."""
    counted = [
        name if name == "unfinished" else f"{count:,} {name}" for name, count in invalid.items()
    ]
    return f"invalid ({', '.join(counted)})"


def difference(ours: Entry, published: object) -> Entry:
    """Ours less the published figure, where both are numbers."""
    if isinstance(ours.value, int | float) and isinstance(published, int | float):
        return Entry(value=ours.value - published, signed=True, digits=ours.digits)
    return Entry()


def filled(
    table: PublishedTable, row: Row, systems: Mapping[str, str | None], measure: Measure
) -> tuple[Entry, ...]:
    """The entries of a line; a difference of two columns follows from them."""
    found: dict[str, Entry] = {}
    for column in table.columns:
        system = systems[column]
        if column == "delta":
            first, second = (found[name] for name in DELTA[table.number])
            found[column] = difference(second, first.value) if second.value is not None else second
        elif system is None:
            found[column] = NOT_RUN
        else:
            found[column] = measure(system, group_of(table, row, column), column)
    return tuple(found.values())


def group_of(table: PublishedTable, row: Row, column: str) -> Group:
    """The questions that a place of a table is about: all, or those of a case or category."""
    if table.number == 11:
        case = str(row["case"])
        every = case == "image+text->text"  # the others are counted over visual search alone
        return ("case", case) if every else ("case_and_category", f"{case}|{VISUAL_SEARCH}")
    if column in table.dialogues:
        return "dialogue", table.dialogues[column]
    name = str(row["category"]) if "category" in row else column
    overall = ("overall", "average", "judge", *LEXICAL)
    return ("overall", "") if name in overall else ("category", name)


def averaged(parts: Sequence[Entry]) -> Entry:
    """The mean of several entries, or why one of them has no value."""
    values = [part.value for part in parts if isinstance(part.value, float)]
    if len(values) < len(parts):
        return next(part for part in parts if not isinstance(part.value, float))
    marked = any(part.mark for part in parts)
    return Entry(value=sum(values) / len(values), mark="as marked" if marked else "")
