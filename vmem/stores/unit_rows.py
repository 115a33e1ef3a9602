"""What an index holds of a unit (section 3.2): a row, its key, and the filters that find it.

Neither Milvus Lite nor a 2.3 server knows filter parameters, their readings of escapes differ,
and pymilvus quotes primary keys without escaping. So ids are stored percent-encoded, and no quote
or backslash of a user's ever reaches a filter.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np

from vmem.errors import DataError, StoreError, VectorError
from vmem.ports import Vectors
from vmem.types import UnitKind

# Milvus servers count bytes and Lite does not count at all, so the limits are checked here.
MAX_BYTES = {
    "id": 4096,
    "dialogue_id": 1024,
    "session": 1024,
    "time": 64,
    "kind": 16,
    "source_id": 1024,
    "image_uri": 4096,
    "digest": 128,
    "text": 65_535,
}
_UNSAFE = re.compile(r"""[\x00-\x1f\x7f"'\\]""")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnitRow:
    """A unit as an index holds it.

    Attributes:
        id: The unit's id, unique in its dialogue.
        dialogue_id: The memory it belongs to.
        round: Position of its round.
        session: The round's session.
        time: The round's time.
        kind: What the unit is made from.
        source_id: The id that evidence refers to.
        image_uri: Where its image is, or empty.
        digest: Digest of what was encoded; an equal digest needs no new vector.
        text: The text searched, at most 65,535 bytes of UTF-8.
        vector: Its vector (D,), finite and not zero.
    """

    id: str
    dialogue_id: str
    round: int
    session: str
    time: str
    kind: UnitKind
    source_id: str
    image_uri: str
    digest: str
    text: str
    vector: Vectors

    @property
    def key(self) -> str:
        """Its primary key."""
        return unit_key(self.dialogue_id, self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A unit found: its id within the dialogue, its round's position, its cosine."""

    unit_id: str
    position: int
    score: float


def unit_key(dialogue_id: str, unit_id: str) -> str:
    """The primary key `<dialogue id>/<unit id>`, another one for every pair.

    Quotes, backslashes, control characters and `%` are percent-encoded, in the dialogue id
    slashes too: dialogue `a/b` with unit `c` is not dialogue `a` with unit `b/c`.
    """
    return f"{_encoded(dialogue_id).replace('/', '%2F')}/{_encoded(unit_id)}"


def check_key(key: str) -> str:
    """The key itself, when `unit_key` can have made it.

    Raises:
        StoreError: It holds what a filter would not take as part of a name.
    """
    if _UNSAFE.search(key) or "/" not in key:
        raise StoreError(f"{key!r} is no primary key of a unit; make keys with unit_key")
    return key


def check_vector(vector: Vectors, width: int, whose: str) -> Vectors:
    """The vector as float32 (D,).

    Raises:
        VectorError: It is not finite, is zero (no cosine exists) or has the wrong width.
    """
    if np.shape(vector) != (width,):
        raise VectorError(
            f"the vector of {whose} has shape {np.shape(vector)}, but the collection takes "
            f"({width},); was it made by another encoder?"
        )
    with np.errstate(over="ignore"):
        checked = np.asarray(vector, dtype=np.float32)
        norm = np.linalg.norm(checked)
    if not 0 < norm < np.inf:
        raise VectorError(f"the vector of {whose} has length {norm}; check what was encoded")
    return checked


def to_entity(row: UnitRow, width: int) -> dict[str, Any]:
    """The row as Milvus takes it.

    Raises:
        VectorError: As `check_vector`.
        DataError: A text is longer than its field, or is not Unicode.
    """
    entity = {
        "id": row.key,
        "dialogue_id": _encoded(row.dialogue_id),
        "session": row.session,
        "time": row.time,
        "kind": UnitKind(row.kind).value,
        "source_id": row.source_id,
        "image_uri": row.image_uri,
        "digest": row.digest,
        "text": row.text,
    }
    whose = f"unit {row.id!r} of {row.dialogue_id!r}"
    for name, limit in MAX_BYTES.items():
        try:
            size = len(entity[name].encode())
        except UnicodeEncodeError as error:
            raise DataError(f"{name} of {whose} is not Unicode; mend its source") from error
        if size > limit:
            raise DataError(
                f"{name} of {whose} has {size} bytes and at most {limit} fit; split or shorten it"
            )
    return {**entity, "round": int(row.round), "vector": check_vector(row.vector, width, whose)}


def from_entity(entity: Mapping[str, Any]) -> UnitRow:
    """The row that `to_entity` wrote."""
    return UnitRow(
        id=unit_id(entity["id"]),
        dialogue_id=unquote(entity["dialogue_id"]),
        round=int(entity["round"]),
        session=entity["session"],
        time=entity["time"],
        kind=UnitKind(entity["kind"]),
        source_id=entity["source_id"],
        image_uri=entity["image_uri"],
        digest=entity["digest"],
        text=entity["text"],
        vector=np.asarray(entity["vector"], dtype=np.float32),
    )


def unit_id(key: str) -> str:
    """The unit's id within its dialogue, from its primary key."""
    return unquote(key.partition("/")[2])


def filter_expression(
    dialogue_id: str | None,
    positions: Sequence[int] | None = None,
    kinds: Sequence[UnitKind] | None = None,
) -> str:
    """A filter for the units of a dialogue, of some rounds, of some kinds; None leaves one out."""
    parts = []
    if dialogue_id is not None:
        parts.append(f'dialogue_id == "{_encoded(dialogue_id)}"')
    if positions is not None:
        parts.append(f"round in {[int(position) for position in positions]}")
    if kinds is not None:
        parts.append(f"kind in {json.dumps([UnitKind(kind).value for kind in kinds])}")
    return " and ".join(parts)


def _encoded(text: str) -> str:
    return _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", text.replace("%", "%25"))
