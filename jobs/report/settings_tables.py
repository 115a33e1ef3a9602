"""Tables 5 and 6 out of our own configuration and readers; both must equal the paper's."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jobs.report.merged_runs import MergedRuns
from jobs.report.published import PublishedTable
from jobs.report.table_formats import Entry, Grid, Line
from vmem.config import EncoderSettings, Settings, load_settings
from vmem.datasets import READERS, read_benchmark
from vmem.routing import route_query
from vmem.types import Query, Signal

ENCODERS = {
    "sentence-transformers/all-MiniLM-L6-v2": ("all-MiniLM-L6-v2", 384),
    "ViT-B-16-SigLIP2-384": ("SigLIP2-base-patch16-384", 768),
}
"""By the name that its library knows it by: the paper's name of an encoder, and its width."""
COUNTING = "How many photos show a bicycle?"
NOT_COUNTED = Entry(mark="not counted")


def settings_grid(table: PublishedTable) -> Grid:
    """Table 5: the settings `paper`, value by value.

    Raises:
        ConfigError: `configs/paper.yaml` cannot be read.
    """
    settings = load_settings("paper")
    rows = []
    for row in table.rows:
        ours = _setting(settings, str(row["parameter"]), row.get("setting"))
        rows.append((table.keys_of(row), row["values"][0], ours))
    return _grid(table, rows, ("Ours are the settings `paper` (configs/paper.yaml) as they load.",))


def counts_grid(table: PublishedTable, merged: MergedRuns, data: Mapping[str, Path]) -> Grid:
    """Table 6: the questions that our readers find, or those of the runs' manifests.

    Args:
        table: The table as published.
        merged: Our runs.
        data: Folders of benchmarks; without one, what the first run of it asked is counted.

    Raises:
        DataError: A folder cannot be read.
    """
    found, said = {}, []
    for benchmark, totals in table.totals.items():
        evaluated = [
            row["category"]
            for row in table.rows
            if row["benchmark"] == benchmark and row.get("evaluated", True)
        ]
        found[benchmark], where = _counts(benchmark, evaluated, merged, data)
        said.append(f"{benchmark}: {where}; the paper counts {totals['questions']:,}.")
    rows = [
        (table.keys_of(row), row["values"][0], found[row["benchmark"]].get(row["category"]))
        for row in table.rows
    ]
    for benchmark, totals in table.totals.items():
        for name, count in totals.items():
            ours = found[benchmark].get(f"all {name}")
            rows.append(((benchmark, f"all {name}"), count, ours))
    return _grid(table, rows, tuple(said))


def _grid(
    table: PublishedTable, rows: list[tuple[tuple[str, ...], Any, Any]], caption: tuple[str, ...]
) -> Grid:
    return table.grid(
        columns=("published", "ours", "difference"),
        lines=tuple(
            Line(keys=keys, figure="value", entries=_entries(published, ours))
            for keys, published, ours in rows
        ),
        caption=caption,
    )


def _entries(published: object, ours: object) -> tuple[Entry, ...]:
    return _entry(published), _entry(ours), _less(published, ours)


def _entry(value: object) -> Entry:
    if value is None:
        return NOT_COUNTED
    if isinstance(value, bool):
        return Entry(value="yes" if value else "no")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return Entry(value=value if isinstance(value, int | float) else str(value))


def _less(published: object, ours: object) -> Entry:
    """Whether the two are the same, and by how much they are not."""
    if ours is None:
        return Entry()
    if published == ours:
        return Entry(value="none")
    if isinstance(published, int | float) and isinstance(ours, int | float):
        return Entry(value=ours - published, signed=True)
    return Entry(value="differs")


def _setting(settings: Settings, parameter: str, path: str | None) -> Any:  # noqa: ANN401
    """Our value of a parameter of Table 5."""
    if path:
        found: Any = settings.model_dump()
        for part in path.split("."):
            found = found[part]
        return found
    text, image = settings.encoders.text, settings.encoders.image
    signals = {signal for active in settings.retrieval.signals.values() for signal in active}
    known = {
        "text encoder": _encoder(text)[0],
        "text encoder width": _encoder(text)[1],
        "image encoder": _encoder(image)[0],
        "image encoder width": _encoder(image)[1],
        "sparse signal": "BM25" if Signal.TEXT_SPARSE in signals else "none",
        # Anchors are written by the route: a query that counts pictures gets no caption.
        "hypothetical caption of a counting query": not _counts_pictures(settings),
    }
    return known.get(parameter)


def _encoder(encoder: EncoderSettings) -> tuple[str, int | None]:
    return ENCODERS.get(str(encoder.model), (str(encoder.model or encoder.kind), None))


def _counts_pictures(settings: Settings) -> bool:
    return route_query(Query(text=COUNTING), settings.retrieval).counts_images


def _counts(
    benchmark: str, categories: Sequence[str], merged: MergedRuns, data: Mapping[str, Path]
) -> tuple[dict[str, int], str]:
    """Questions by category, and of all of them; empty where nothing is known."""
    if benchmark in data and benchmark in READERS:
        read = read_benchmark(benchmark, data[benchmark])
        by_category = Counter(question.category for question in read.questions)
        totals = {
            "all dialogues": len(read.dialogues),
            "all questions": len(read.questions),
            "all evaluated": len(read.questions) - by_category["adversarial"],
        }
        return {**by_category, **totals}, "counted by our reader"
    for run in merged.runs:
        if described := run.get("benchmarks", {}).get(benchmark):
            totals = {
                "all dialogues": described["dialogues"],
                "all evaluated": described["questions"],
            }
            where = f"the questions that run {run['name']} asks, without adversarial ones"
            asked = dict.fromkeys(categories, 0) | described["categories"]
            return {**asked, **totals}, where
    return {}, "not read here"
