"""What the memory routes give as JSON."""

from collections.abc import Mapping
from typing import Self

from pydantic import BaseModel

from vmem.stores.catalogue import Appended
from vmem.types import Case, Modality, Signal


class ErrorBody(BaseModel):
    """What went wrong: a word for programs, a sentence for people."""

    code: str
    message: str
    type: str
    param: str | None = None
    request_id: str


class Failure(BaseModel):
    """The body of every response that is no success."""

    error: ErrorBody


class Memory(BaseModel):
    """What is known of a memory.

    Attributes:
        erased: Rounds that were erased; they keep their positions and their ids.
        version: Grows with every change.
        created_at: In UTC.
    """

    id: str
    rounds: int
    erased: int
    images: int
    version: int
    created_at: str


class MemoryPage(BaseModel):
    """Memories by id; `next` is the `after` of the page that follows."""

    memories: list[Memory]
    next: str | None = None


class Picture(BaseModel):
    """A picture of a round; without `url` only its caption is there."""

    id: str
    caption: str = ""
    url: str | None = None
    digest: str | None = None


class TurnOut(BaseModel):
    """What one speaker said at once."""

    speaker: str
    text: str
    images: list[Picture]
    audio_url: str | None = None
    transcript: str = ""


class RoundOut(BaseModel):
    """A round as it is remembered."""

    id: str
    position: int
    session: str
    time: str
    turns: list[TurnOut]


class RoundPage(BaseModel):
    """Rounds by position; `next` is the `after` of the page that follows."""

    rounds: list[RoundOut]
    next: int | None = None


class AppendResponse(BaseModel):
    """The ids of the rounds that are new, how many were there already, the memory's version."""

    added: list[str]
    unchanged: int
    version: int

    @classmethod
    def of(cls, done: Appended) -> Self:
        """What an append did."""
        added = [round_.id for round_ in done.added]
        return cls(added=added, unchanged=done.unchanged, version=done.version)


class VersionResponse(BaseModel):
    """The memory's version after a change."""

    version: int


class Citation(BaseModel):
    """A round found; `shown` says whether the context holds it or the budget left it out."""

    rank: int
    position: int
    round_id: str
    session: str
    time: str
    score: float
    images: list[Picture]
    shown: bool


class RouteOut(BaseModel):
    """What the wording of the question decided."""

    case: Case
    query_modality: Modality
    target: Modality
    counts_images: bool
    aggregates: bool
    asks_conflict: bool
    reason: str


class BlockOut(BaseModel):
    """Rounds that follow each other, as the model sees them."""

    session: str
    time: str
    round_ids: list[str]
    text: str


class ContextOut(BaseModel):
    """What the search puts before the model; `dropped` are found rounds over the budget."""

    text: str
    tokens: int
    words: int
    note: str
    blocks: list[BlockOut]
    dropped: list[str]


class UsageOut(BaseModel):
    """What one call of a language model cost."""

    role: str
    prompt_tokens: int
    completion_tokens: int
    cached: bool


class ImageAnchor(BaseModel):
    """The picture that a signal searched with."""

    image: str


class AnchorsOut(BaseModel):
    """What each signal searched with."""

    by_signal: Mapping[Signal, str | ImageAnchor]
    hypo_caption: str | None
    keywords: list[str]
    query_caption: str | None


class LaneItem(BaseModel):
    """A round under one signal."""

    rank: int
    position: int
    round_id: str


class FusedItem(LaneItem):
    """A round under the fused score, with its rank under each signal."""

    score: float
    ranks: Mapping[Signal, int]


class SearchResponse(BaseModel):
    """What a search found; the last fields only with `explain`.

    Attributes:
        citations: The rounds found, best first.
        seconds: Time of each stage.
        rounds: All rounds that this response speaks of.
    """

    request_id: str
    memory: str
    version: int
    route: RouteOut
    context: ContextOut
    citations: list[Citation]
    notes: list[str]
    seconds: Mapping[str, float]
    anchors: AnchorsOut | None = None
    lanes: Mapping[Signal, list[LaneItem]] | None = None
    fused: list[FusedItem] | None = None
    usage: list[UsageOut] | None = None
    rounds: list[RoundOut] | None = None


class AnswerResponse(SearchResponse):
    """An answer with what it rests on; `prompt` only with `explain`."""

    answer: str
    usage: list[UsageOut] | None = None
    model: str
    prompt: str | None = None


class Token(BaseModel):
    """Event `token`: the next piece of the answer."""

    text: str


class Done(BaseModel):
    """Event `done`: the whole answer."""

    answer: str
    usage: list[UsageOut]
    model: str
    seconds: Mapping[str, float]
    request_id: str


class Ready(BaseModel):
    """Whether each part answers: `ok` or `unavailable`."""

    parts: Mapping[str, str]
