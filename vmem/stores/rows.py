"""Units to rows of an index, and the manifest of what a build must hold."""

import hashlib
from collections.abc import Sequence

from vmem.ports import Vectors
from vmem.stores.unit_rows import UnitRow
from vmem.types import Round, Unit, UnitKind


def unit_digest(unit: Unit) -> str:
    """SHA-256 of what an encoder sees of a unit: its picture's content, or its text."""
    seen = unit.text
    if unit.kind is UnitKind.IMAGE and unit.image:
        seen = unit.image.digest or unit.image.uri or ""
    return hashlib.sha256(f"{unit.kind.value}\0{seen}".encode()).hexdigest()


def unit_rows(
    dialogue_id: str, rounds: Sequence[Round], units: Sequence[Unit], vectors_UD: Vectors
) -> list[UnitRow]:
    """Rows of units (U) that belong to some of the rounds, with their vectors.

    Raises:
        KeyError: A unit belongs to none of the rounds.
    """
    by_id = {round_.id: round_ for round_ in rounds}
    return [
        UnitRow(
            id=unit.id,
            dialogue_id=dialogue_id,
            round=unit.position,
            session=by_id[unit.round_id].session,
            time=by_id[unit.round_id].time,
            kind=unit.kind,
            source_id=by_id[unit.round_id].source_ids[0],
            image_uri=(unit.image.uri or "") if unit.image else "",
            digest=unit_digest(unit),
            text=unit.text,
            vector=vector,
        )
        for unit, vector in zip(units, vectors_UD, strict=True)
    ]
