"""The manifest of a build: every unit that new collections must hold, fixed beforehand."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from vmem.config import UnitSettings
from vmem.errors import StoreError
from vmem.rounds import to_units
from vmem.stores.rows import row_fields
from vmem.stores.unit_rows import unit_key
from vmem.types import Dialogue, Modality, Round, Unit

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("modality", pa.string()),
        ("id", pa.string()),
        ("dialogue_id", pa.string()),
        ("round", pa.int64()),
        ("session", pa.string()),
        ("time", pa.string()),
        ("kind", pa.string()),
        ("source_id", pa.string()),
        ("image_uri", pa.string()),
        ("digest", pa.string()),
        ("text", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a build must hold.

    Attributes:
        table: One row a unit (`SCHEMA`), text units first, each in order of dialogues and rounds.
        digest: SHA-256 of the rows and of what encodes them; equal digests are equal builds.
        without_pixels: Image units left out, since only their captions are there.
    """

    table: pa.Table
    digest: str
    without_pixels: int

    def of(self, modality: Modality) -> pa.Table:
        """The rows of one index."""
        return self.table.filter(pc.equal(self.table["modality"], modality.value))

    def digests(self, modality: Modality) -> dict[str, str]:
        """Digest by primary key of one index."""
        rows = self.of(modality)
        return dict(zip(rows["key"].to_pylist(), rows["digest"].to_pylist(), strict=True))

    def write(self, path: Path) -> None:
        """Write it as Parquet, whole or not at all.

        Raises:
            StoreError: The folder cannot be written.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial")
            pq.write_table(self.table, partial)
            partial.rename(path)
        except OSError as error:
            raise StoreError(f"the manifest {path} cannot be written: {error}") from error


def make_manifest(
    dialogues: Sequence[Dialogue], settings: UnitSettings, encoders: Sequence[str], pictures: bool
) -> Manifest:
    """Fix what a build of some dialogues holds.

    Args:
        dialogues: The dialogues; their images have digests where they have files.
        settings: How rounds become units.
        encoders: Names of the encoders, part of the digest.
        pictures: Whether pictures are encoded.
    """
    rows = []
    without_pixels = 0
    for dialogue, round_, unit in _units(dialogues, settings):
        if unit.modality is Modality.IMAGE and not (unit.image and unit.image.uri):
            without_pixels += 1
        elif unit.modality is Modality.TEXT or pictures:
            key = {"key": unit_key(dialogue.id, unit.id), "modality": unit.modality.value}
            rows.append(key | row_fields(dialogue.id, round_, unit))
    rows.sort(key=lambda row: row["modality"] != Modality.TEXT.value)  # stable
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    seen = hashlib.sha256("\0".join([*encoders, settings.model_dump_json()]).encode())
    for row in rows:
        seen.update("\0".join(str(value) for value in row.values()).encode() + b"\n")
    return Manifest(table=table, digest=seen.hexdigest(), without_pixels=without_pixels)


def _units(
    dialogues: Sequence[Dialogue], settings: UnitSettings
) -> Iterator[tuple[Dialogue, Round, Unit]]:
    for dialogue in dialogues:
        for round_ in dialogue.rounds:
            for unit in to_units(round_, settings):
                yield dialogue, round_, unit
