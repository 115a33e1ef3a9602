"""What the scale benchmark found of one size, and how it is printed."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from rich.table import Table

from jobs.scale.stages import Built, Searched, Shape
from vmem.show import console


@dataclass(slots=True, kw_only=True)
class Measured:
    """One size.

    Attributes:
        store: `server`, `lite` or `none`.
        database: `postgresql`, `sqlite` or `none`.
        shape: What was built.
        built: How.
        searched: What searching took.
        log_bytes: Of the catalogue and round log, all tables with their indices.
        disk_bytes: Of Milvus, by part.
        resident: Of the Milvus server in bytes: `built`, then after a start `idle` and `loaded`.
        load_s: Seconds to the first count of each collection, none of them loaded before.
        milvus_cpu_s: Processor time of the Milvus server while it was built.
    """

    store: str
    database: str
    shape: Shape
    built: Built
    log_bytes: int = 0
    disk_bytes: dict[str, int] = field(default_factory=dict)
    searched: Searched = field(default_factory=Searched)
    resident: dict[str, int] = field(default_factory=dict)
    load_s: float = 0.0
    milvus_cpu_s: float = 0.0


def print_run(found: Measured) -> None:
    """Print one size: bytes, rates and times."""
    table = Table(title=_title(found), show_header=False)
    for name, told in _lines(found):
        table.add_row(name, told)
    console.print(table)


def _title(found: Measured) -> str:
    shape = found.shape
    return (
        f"{shape.memories:,} × {shape.rounds:,} rounds, Milvus {found.store}, {found.database}:"
        f" {found.built.text_units:,} text units, {found.built.image_units:,} image units"
    )


def _lines(found: Measured) -> list[tuple[str, str]]:
    built, searched = found.built, found.searched
    lines = [("log", f"{found.log_bytes / built.rounds:,.0f} B a round")]
    lines += [
        (f"disk: {part}", f"{size / built.units:,.0f} B a unit ({size / 1e6:,.0f} MB)")
        for part, size in found.disk_bytes.items()
    ]
    lines += [(f"Milvus {when}", f"{size / 1e6:,.0f} MB") for when, size in found.resident.items()]
    if found.resident:
        grown = found.resident["loaded"] - found.resident["idle"]
        lines.append(("Milvus loaded less idle", f"{grown / built.units:,.0f} B a unit"))
        lines.append(("load", f"{found.load_s:.1f} s"))
    lines += [
        (f"built: {stage}", f"{seconds:.1f} s, {built.appended / max(seconds, 1e-9):,.0f} rounds/s")
        for stage, seconds in built.seconds.items()
    ]
    lines.append(
        ("built: processor", f"writer {built.cpu_s:.0f} s, Milvus {found.milvus_cpu_s:.0f} s")
    )
    if searched.held_units:
        each = searched.resident / searched.held_units
        lines.append(("reader, each unit held", f"{each:,.0f} B of {searched.held_units:,}"))
    for name in ("cold", "cold_cpu", "hot", "hot_cpu", "hot_milvus", "append", "after_append"):
        lines.append((f"{name.replace('_', ' ')}, ms", _percentiles(getattr(searched, name))))
    lines += [
        (f"  cold: {stage}", f"{1000 * seconds / max(1, len(searched.cold)):,.1f} ms each")
        for stage, seconds in searched.cold_stages.items()
    ]
    lines.append(("verification reads", f"{searched.verify_s:.1f} s"))
    return lines


def _percentiles(values: Sequence[float]) -> str:
    if not values:
        return "-"
    low, high = np.percentile(values, [50, 95])
    return f"p50 {low:,.1f}, p95 {high:,.1f} of {len(values)}"
