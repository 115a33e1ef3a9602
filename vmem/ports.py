"""What the stages need from the outside world, as protocols.

Arrays carry their axes in their names: U units, R rounds, N items, D dimensions.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from PIL.Image import Image as Picture

from vmem.types import Answer, Dialogue, Query, Round, Signal, Usage

Vectors = npt.NDArray[np.float32]
Scores = npt.NDArray[np.floating[Any]]
Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class TextEncoder(Protocol):
    """φ: texts to unit vectors."""

    @property
    def name(self) -> str:
        """Model and version; a bank refuses vectors of another name."""

    @property
    def width(self) -> int:
        """D, the number of dimensions."""

    @property
    def max_tokens(self) -> int:
        """Tokens of a text beyond this are not read."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Vectors (N, D), float32, of length 1."""

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The untruncated length of each text in tokens."""


class ImageEncoder(Protocol):
    """ψ: pictures to unit vectors."""

    @property
    def name(self) -> str:
        """Model and version; a bank refuses vectors of another name."""

    @property
    def width(self) -> int:
        """D, the number of dimensions."""

    def encode(self, images: Sequence[Picture]) -> Vectors:
        """Vectors (N, D), float32, of length 1, of RGB pictures of any size."""


@runtime_checkable
class TextTower(Protocol):
    """An image encoder that also places texts among its pictures."""

    def encode_text(self, texts: Sequence[str]) -> Vectors:
        """Vectors (N, D), float32, of length 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitScores:
    """Scores of units under one signal, in no order.

    Attributes:
        unit_ids: Ids of the units (U), an array of str; where rounds are scored as wholes, of
            the rounds.
        position_U: The position of each unit's round.
        score_U: The scores.
    """

    unit_ids: npt.NDArray[Any]
    position_U: Positions
    score_U: Scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Items under one signal, best first: S_j.

    Attributes:
        item_N: Positions of rounds, or at the unit level numbers into `Rankings.units`.
        score_N: Their scores, falling.
    """

    item_N: Positions
    score_N: Scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Rankings:
    """What the lanes found.

    Attributes:
        by_signal: One ranking a signal.
        units: At the unit level, (position, unit id) of each item, in that order; else empty.
        best_image: The stored image that matches the query's best, as (position, unit id).
    """

    by_signal: Mapping[Signal, Ranking]
    units: tuple[tuple[int, str], ...] = ()
    best_image: tuple[int, str] | None = None


class SearchableMemory(Protocol):
    """One memory, ready to be searched."""

    @property
    def rounds(self) -> Sequence[Round]:
        """All rounds; a round's position is its index."""

    @property
    def has_image_R(self) -> Mask:
        """For each round whether it holds an image."""

    def score(
        self,
        signal: Signal,
        anchor: str | Vectors,
        candidate_R: Mask | None,
        *,
        pool: int | None,
        with_captions: bool,
    ) -> UnitScores:
        """Score the signal's units of candidate rounds against an anchor.

        Args:
            signal: Which units, and how they are scored.
            anchor: A text for sparse signals, a vector (D,) for the others.
            candidate_R: The rounds that may be ranked; None is all of them.
            pool: The units of at least so many best rounds are returned, if there are so many;
                None asks for all.
            with_captions: Text signals also score caption units.

        Returns:
            All units, or the best ones; BM25 scores of 0 are left out.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One call of a language model.

    Attributes:
        role: What the call is for, as the ledger counts it.
        prompt: The user message.
        images: Encoded pictures (PNG, JPEG, ...) shown before the prompt.
        max_tokens: Length of the reply at most.
        temperature: Sampling temperature.
        json_schema: Ask for JSON of this schema where the server can.
        calls_tool: The schema is `anyOf` calls, each of the one tool that its `tool` may name: ask
            for a native call of one where the server can. The reply's text is the same JSON either
            way.
    """

    role: str
    prompt: str
    images: tuple[bytes, ...] = ()
    max_tokens: int = 256
    temperature: float = 0.0
    json_schema: dict[str, Any] | None = None
    calls_tool: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """What came back, and its cost."""

    text: str
    usage: Usage
    finish_reason: Literal["stop", "length", "other"] = "stop"


class ChatModel(Protocol):
    """A backbone, wherever it runs."""

    @property
    def name(self) -> str:
        """The model's name, as a table prints it."""

    @property
    def sees_images(self) -> bool:
        """Whether requests may carry pictures."""

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Answer one request.

        Raises:
            ModelTimeoutError: It gave no reply in time.
            ModelUnavailableError: The server cannot be reached or keeps refusing.
            ModelFormatError: The reply is empty or not of the form asked for.
            ModelError: The server rejects the request.
        """

    def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatReply, None]:
        """Answer one request piece by piece.

        Yields:
            The reply's text in pieces as they come, and last the whole reply with its cost.

        Raises:
            As `complete`. A call is only tried again while nothing of it was yielded.
        """

    async def check(self) -> None:
        """Find out whether the model answers, soon and at no cost in tokens.

        Raises:
            ModelError: It does not.
        """

    def count_tokens(self, text: str) -> int:
        """Length of a text in the model's tokens (an upper estimate where it has no counter)."""

    async def close(self) -> None:
        """Release the connection."""


@runtime_checkable
class Repeatable(Protocol):
    """A model behind a cache, which would give the same reply again unless told not to."""

    def repetition(self, number: int) -> ChatModel:
        """The same model, asked anew; number 0 is the model as it is."""


class Transcriber(Protocol):
    """Voice messages to words."""

    def transcribe(self, uri: str) -> str:
        """The words spoken in an audio file.

        Raises:
            AudioError: The file is missing or no audio.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Oracle:
    """What only rows labelled as oracle runs may see of a question."""

    reference: str
    category: str
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildCost:
    """What taking in one dialogue took (Tables 4 and 8).

    Attributes:
        usage: The model calls made.
        seconds: Seconds by stage.
        counts: What was taken in, and what of it could not be: units, truncated texts, ...
    """

    usage: tuple[Usage, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)


class MemorySystem(Protocol):
    """One dialogue's memory in a system under test: the door through which all are evaluated."""

    @property
    def name(self) -> str:
        """The row's name in a table."""

    @property
    def cost(self) -> BuildCost:
        """What building it took."""

    async def answer(self, query: Query, oracle: Oracle | None = None) -> Answer:
        """Answer a question from the memory.

        Args:
            query: The question.
            oracle: Given to rows labelled as oracle runs alone; any other system refuses it.

        Raises:
            ConfigError: An oracle is given to a system that takes none.
            VmemError: The question cannot be answered, and is to be counted as failed.
        """


class System(Protocol):
    """A row of a table: how dialogues become memories that answer."""

    @property
    def name(self) -> str:
        """The row's name in a table."""

    async def build(self, dialogue: Dialogue) -> MemorySystem:
        """Take in a dialogue.

        Raises:
            VmemError: Something of it cannot be taken in; nothing is skipped.
        """
