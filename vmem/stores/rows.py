"""Units to rows of an index, and what no index could take."""

import hashlib
from collections.abc import Sequence
from typing import Any

from vmem.config import UnitSettings
from vmem.errors import DataError
from vmem.ports import Vectors
from vmem.rounds import to_units
from vmem.stores.unit_rows import MAX_BYTES, UnitRow
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


def check_units(memory_id: str, rounds: Sequence[Round], settings: UnitSettings) -> None:
    """Refuse before the log what the index could not take after it.

    Raises:
        DataError: A round has no content, or a span is too long for the index.
    """
    for round_ in rounds:
        units = to_units(round_, settings)
        if not units:
            raise DataError(f"round {round_.id} of {memory_id} has no text and no image")
        for unit in units:
            if (size := len(unit.text.encode())) > MAX_BYTES["text"]:
                raise DataError(
                    f"round {round_.id} of {memory_id} has a span of {size:,} bytes, over the"
                    f" limit of {MAX_BYTES['text']:,}: split it"
                )
