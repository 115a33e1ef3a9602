"""What the HTTP routes ask of the cluster, and what comes back."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic_core import PydanticSerializationError

from vmem.ports import Vectors
from vmem.stores.catalogue import Appended, MemoryInfo
from vmem.types import Answer, Query, Retrieval, Round


class Options(BaseModel):
    """What one request may change of the settings; None keeps what is set.

    Attributes:
        target: What is sought, where the wording's rule is not to decide.
        top_k: Rounds returned.
        window: Neighbours on each side of a round.
        hypo_caption: Search captions with a generated one.
        keywords: Let the backbone read keywords off the attached picture.
        max_tokens: Longest answer.
        temperature: Sampling temperature of the answer.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: Literal["auto", "text", "image"] | None = None
    top_k: int | None = None
    window: int | None = None
    hypo_caption: bool | None = None
    keywords: bool | None = None
    max_tokens: int | None = None
    temperature: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A search and the rounds that it speaks of.

    Attributes:
        retrieval: Every step of the search.
        rounds: By position: the rounds ranked and those shown.
        version: The memory's version that was searched.
    """

    retrieval: Retrieval
    rounds: Mapping[int, Round]
    version: int

    def __reduce_ex__(self, protocol: Any) -> Any:  # noqa: ANN401
        """Go between processes as JSON: 150 small objects one by one take 4 times as long."""
        try:
            return _read_found, (_FOUND.dump_json(self),)
        except PydanticSerializationError:  # half a surrogate pair is no JSON
            return object.__reduce_ex__(self, protocol)


_FOUND = TypeAdapter(Found)


def _read_found(data: bytes) -> Found:
    return _FOUND.validate_json(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """Texts as φ's vectors.

    Attributes:
        vectors_ND: One of length 1 a text.
        tokens: Tokens of all texts together.
        model: φ's name.
    """

    vectors_ND: Vectors
    tokens: int
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Which parts answer: name to "ok" or to one sentence of what is wrong."""

    parts: Mapping[str, str]

    @property
    def ready(self) -> bool:
        """Whether all do."""
        return all(state == "ok" for state in self.parts.values())


class Service(Protocol):
    """Memories by their full id, `tenant/name`; errors are those of `vmem.errors`.

    Besides those named, every method may raise StoreError (a store cannot be reached) and
    `serve.errors.UnavailableError` (no replica answers now: the same call may succeed later).
    """

    async def create(self, memory_id: str) -> MemoryInfo:
        """Make an empty memory, or return the one that is there."""

    async def memories(self, prefix: str, after: str, limit: int) -> list[MemoryInfo]:
        """Memories of a tenant by id, those after one of them; an empty prefix: the nameless's."""

    async def memory(self, memory_id: str) -> MemoryInfo:
        """One memory.

        Raises:
            UnknownMemoryError.
        """

    async def delete(self, memory_id: str) -> None:
        """Erase a memory and all that was made of it.

        Raises:
            UnknownMemoryError.
        """

    async def append(self, memory_id: str, rounds: Sequence[Round]) -> Appended:
        """Add rounds; a memory that is missing is made. Pictures come as `data:` URIs.

        Raises:
            RoundConflictError, DataError, ImageError, AudioError, EncoderError.
        """

    async def rounds(self, memory_id: str, after_position: int, limit: int) -> tuple[Round, ...]:
        """Rounds by position, those after one of them; erased ones are left out.

        Raises:
            UnknownMemoryError.
        """

    async def round(self, memory_id: str, round_id: str) -> Round:
        """One round.

        Raises:
            UnknownMemoryError, UnknownRoundError.
        """

    async def erase_round(self, memory_id: str, round_id: str) -> int:
        """Erase a round, which leaves a gap; returns the memory's new version.

        Raises:
            UnknownMemoryError, UnknownRoundError.
        """

    async def media(self, memory_id: str, digest: str) -> bytes:
        """A picture's (or voice message's) bytes, where a round of the memory holds it.

        Raises:
            UnknownMemoryError, ImageError.
        """

    async def search(self, memory_id: str, query: Query, options: Options) -> Found:
        """Retrieve without answering; goes on without anchors where the backbone is down.

        Raises:
            UnknownMemoryError, QueryError, ImageError.
        """

    def answer(
        self, memory_id: str, query: Query, options: Options
    ) -> AsyncGenerator[Found | str | Answer, None]:
        """Retrieve, then answer: what was found, the answer's pieces, the answer.

        Raises:
            UnknownMemoryError, QueryError, ImageError, ConfigError, ModelError.
        """

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Texts as vectors.

        Raises:
            EncoderError.
        """

    async def readiness(self) -> Readiness:
        """Whether encoders, store and backbone answer."""

    async def metrics(self) -> bytes:
        """What every node exports, as one Prometheus text."""
