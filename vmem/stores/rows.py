"""Units to rows of an index."""

import hashlib
from collections.abc import Sequence
from typing import Any

from vmem.ports import Vectors
from vmem.stores.unit_rows import UnitRow
from vmem.types import Round, Unit, UnitKind


def unit_digest(unit: Unit) -> str:
    """SHA-256 of what an encoder sees of a unit: its picture's content, or its text."""
    seen = unit.text
    if unit.kind is UnitKind.IMAGE and unit.image:
        seen = unit.image.digest or unit.image.uri or ""
    return hashlib.sha256(f"{unit.kind.value}\0{seen}".encode()).hexdigest()


def row_fields(dialogue_id: str, round_: Round, unit: Unit) -> dict[str, Any]:
    """All of a unit's row but its vector, by field of `UnitRow`."""
    return {
        "id": unit.id,
        "dialogue_id": dialogue_id,
        "round": unit.position,
        "session": round_.session,
        "time": round_.time,
        "kind": unit.kind.value,
        "source_id": round_.source_ids[0],
        "image_uri": (unit.image.uri or "") if unit.image else "",
        "digest": unit_digest(unit),
        "text": unit.text,
    }


def unit_rows(
    dialogue_id: str, rounds: Sequence[Round], units: Sequence[Unit], vectors_UD: Vectors
) -> list[UnitRow]:
    """Rows of units (U), each of one of the rounds, with their vectors."""
    by_id = {round_.id: round_ for round_ in rounds}
    return [
        UnitRow(**row_fields(dialogue_id, by_id[unit.round_id], unit), vector=vector)
        for unit, vector in zip(units, vectors_UD, strict=True)
    ]
