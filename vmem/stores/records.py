"""What the catalogue knows of banks and memories, and what an append did (section 3.4)."""

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Literal, TypedDict

from pydantic import ValidationError
from sqlalchemy import RowMapping

from vmem.config import UnitSettings
from vmem.errors import EncoderMismatchError, StoreError
from vmem.types import Round


@dataclass(frozen=True, slots=True, kw_only=True)
class Bank:
    """A pair of collections with one encoder pair.

    Attributes:
        name: Its name.
        kind: Built from data sets by a job, or served and appended to.
        text_encoder: φ's name and version.
        text_width: Dimensions of its vectors.
        image_encoder: ψ's name and version; `none` where pictures are not searched.
        image_width: Dimensions of its vectors, or 0.
        text_collection: Where text units are.
        image_collection: Where image units are.
        units: How rounds become units.
        manifest_digest: The manifest of the last build, or None.
    """

    name: str
    kind: Literal["built", "served"]
    text_encoder: str
    text_width: int
    image_encoder: str
    image_width: int
    text_collection: str
    image_collection: str
    units: UnitSettings
    manifest_digest: str | None = None


class BankChanges(TypedDict, total=False):
    """What may change in a bank's record; its encoders and unit settings never do."""

    kind: Literal["built", "served"]
    text_collection: str
    image_collection: str
    manifest_digest: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryInfo:
    """What the catalogue knows of a memory.

    Attributes:
        bank: The bank it is in.
        id: Its id, unique in the bank.
        rounds: Number of positions: rounds, and gaps where rounds were erased.
        erased: Number of those gaps.
        images: Number of images shared in the rounds.
        version: Counts appends and erasures; never the same again, even after the memory was
            erased.
        indexed_version: The index is what the log was at this version.
        built_version: Rounds of higher versions were appended after the build that made it.
        created_at: When it was made, in UTC; two memories of one id that followed each other
            differ in it.
    """

    bank: str
    id: str
    rounds: int
    images: int
    version: int
    indexed_version: int
    built_version: int
    created_at: datetime
    erased: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """What an append did.

    Attributes:
        version: The memory's version after it.
        added: The new rounds, with their positions.
        unchanged: How many rounds were there before.
        behind: The index lacked something of the log even before the append.
    """

    version: int
    added: tuple[Round, ...]
    unchanged: int
    behind: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """What the erasure of a round did: the version it led to, and the round as it was."""

    version: int
    round: Round


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What happened to a memory after a version, as far as the index has followed.

    Attributes:
        info: The memory.
        rounds: By position, the rounds that were added since and those that became gaps; a gap
            has no turns.
    """

    info: MemoryInfo
    rounds: tuple[Round, ...]


def bank_values(bank: Bank) -> dict[str, Any]:
    """A bank's record as columns of its table."""
    values = {field.name: getattr(bank, field.name) for field in fields(bank)}
    units: UnitSettings = values.pop("units")
    return {**values, "settings": units.model_dump_json()}


def to_bank(row: RowMapping) -> Bank:
    """A bank's record from its table.

    Raises:
        StoreError: Its settings are those of another vmem.
    """
    values = {field.name: row[field.name] for field in fields(Bank) if field.name != "units"}
    try:
        return Bank(**values, units=UnitSettings.model_validate_json(row["settings"]))
    except ValidationError as error:
        raise StoreError(
            f"bank {row['name']} has unit settings {row['settings']}, which this vmem does not "
            "know; use the vmem that made it, or another bank"
        ) from error


def to_info(row: RowMapping) -> MemoryInfo:
    """A memory from its table, which keeps UTC without saying so."""
    values = {field.name: row[field.name] for field in fields(MemoryInfo)}
    return MemoryInfo(**{**values, "created_at": row["created_at"].replace(tzinfo=UTC)})


def check_same_encoders(held: Bank, asked: Bank) -> None:
    """Refuse to mix vectors, or units, that do not belong together.

    Raises:
        EncoderMismatchError: Encoders or unit settings differ.
    """
    differences = [
        f"{name} {getattr(held, name)} (not {getattr(asked, name)})"
        for name in ("text_encoder", "text_width", "image_encoder", "image_width", "units")
        if getattr(held, name) != getattr(asked, name)
    ]
    if differences:
        raise EncoderMismatchError(
            f"bank {held.name} was made with {', '.join(differences)}; "
            "configure what it was made with, or choose another bank"
        )
