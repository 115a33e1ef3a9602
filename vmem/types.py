"""The nouns of sections 2 and 3: what a conversation is made of, and what a query turns into.

Positions start at 0, ranks at 1. Times are local ISO 8601 texts (`2023-05-08T13:56` or
`2023-05-08`), kept as the source gave them: a conversation knows no time zone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal


class Modality(StrEnum):
    """The modality of a unit, of a query and of the evidence it seeks; also names the lane."""

    TEXT = "text"
    IMAGE = "image"


class Case(StrEnum):
    """The four (query, target) modality pairs of section 3.3."""

    TEXT_TO_TEXT = "text->text"
    TEXT_TO_IMAGE = "text->image"
    IMAGE_TEXT_TO_TEXT = "image+text->text"
    IMAGE_TEXT_TO_IMAGE = "image+text->image"


class Signal(StrEnum):
    """The ways in which a lane scores its units (section 3.3, Scoring and fusion).

    The first two belong to the text lane, the others to the image lane. `VISUAL_BY_TEXT` matches
    the question with pictures through an image encoder's text tower; only vanilla uses it.
    """

    TEXT_DENSE = "text_dense"
    TEXT_SPARSE = "text_sparse"
    CAPTION_DENSE = "caption_dense"
    CAPTION_SPARSE = "caption_sparse"
    VISUAL = "visual"
    VISUAL_BY_TEXT = "visual_by_text"


TEXT_SIGNALS = (Signal.TEXT_DENSE, Signal.TEXT_SPARSE)
CAPTION_SIGNALS = (Signal.CAPTION_DENSE, Signal.CAPTION_SPARSE)
VISUAL_SIGNALS = (Signal.VISUAL, Signal.VISUAL_BY_TEXT)
SPARSE_SIGNALS = (Signal.TEXT_SPARSE, Signal.CAPTION_SPARSE)
"""BM25's: their anchor stays a text, the others' becomes a vector."""


class UnitKind(StrEnum):
    """What a unit is made from; a caption is a unit of its own beside its image."""

    TEXT = "text"
    AUDIO = "audio"
    CAPTION = "caption"
    IMAGE = "image"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A picture as the conversation knows it.

    Attributes:
        id: The name shown in contexts and given in answers, such as `D1:IMG_002`.
        uri: Where its bytes are (a path or any fsspec URL), or None where only the caption is.
        caption: What it shows, in words; may be empty.
        digest: SHA-256 of its bytes in hex, once it is in a store.
    """

    id: str
    uri: str | None = None
    caption: str = ""
    digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one speaker says at once: a text span, the images shared with it, a voice message.

    Attributes:
        source_id: The id that evidence refers to; turns of one round may share it.
        speaker: `user`, `assistant` or a name; names are written before the text.
        text: The span; may be empty where there is an image or a voice message.
        images: The images shared in this turn.
        audio: Where the voice message is, or None.
        transcript: The words of the voice message, once they are known.
    """

    source_id: str
    speaker: str
    text: str = ""
    images: tuple[Image, ...] = ()
    audio: str | None = None
    transcript: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One exchange r_t: the turns that belong together (section 3.2)."""

    id: str
    position: int
    session: str
    time: str
    turns: tuple[Turn, ...]

    @property
    def source_ids(self) -> tuple[str, ...]:
        """The source ids it holds, each once, in order."""
        return tuple(dict.fromkeys(turn.source_id for turn in self.turns))

    @property
    def images(self) -> tuple[Image, ...]:
        """All images shared in the round, in order."""
        return tuple(image for turn in self.turns for image in turn.images)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One text span or one image u of a round: what an index holds (section 3.2).

    Attributes:
        id: `<round id>/<kind>/<n>`, unique in its dialogue and the same on every build.
        round_id: The round it belongs to.
        position: That round's position.
        kind: What it is made from.
        text: What the text index holds; for an image unit its caption.
        image: The image of an image or caption unit.
    """

    id: str
    round_id: str
    position: int
    kind: UnitKind
    text: str
    image: Image | None = None

    @property
    def modality(self) -> Modality:
        """The index it is kept in: captions are text."""
        return Modality.IMAGE if self.kind is UnitKind.IMAGE else Modality.TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialogue:
    """A conversation C = (r_1, ..., r_T), in time order."""

    id: str
    rounds: tuple[Round, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A question q = (q^txt, q^img); the text is always there."""

    text: str
    image: Image | None = None

    @property
    def modality(self) -> Modality:
        """Image when a picture is attached."""
        return Modality.TEXT if self.image is None else Modality.IMAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What the wording of a query decides (section 3.3 and Appendix B).

    Attributes:
        case: The (query, target) pair.
        counts_images: It counts images, so no hypothetical caption stands for it.
        aggregates: It asks for a set of things scattered over the conversation.
        asks_conflict: It asks about a contradiction.
        reason: Why the target was chosen, in words for a reader.
    """

    case: Case
    counts_images: bool
    aggregates: bool
    asks_conflict: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one call of a language model cost."""

    role: str
    calls: int = 1
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A call of a language model that gave nothing that can be used.

    Attributes:
        role: What it was asked for: a `Role`.
        error: Name of the class of `vmem.errors` that says how it failed.
    """

    role: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchors:
    """What each active signal searches with: a_{c,l}(q) of Equation 3.

    Attributes:
        by_signal: Text or image for each active signal; its keys are J_c.
        hypo_caption: The generated caption, where one was made.
        keywords: What a vision model read off the query's image.
        query_caption: What the query's image shows, in words, for the attached-image note.
        notes: Why something that the case calls for was not done.
        usage: The model calls made.
        failures: Those that gave nothing, so that the search goes on without.
    """

    by_signal: Mapping[Signal, str | Image]
    hypo_caption: str | None = None
    keywords: tuple[str, ...] = ()
    query_caption: str | None = None
    notes: tuple[str, ...] = ()
    usage: tuple[Usage, ...] = ()
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedRound:
    """A round under the fused score of Equation 5.

    Attributes:
        position: Position of the round in its dialogue.
        score: The fused score.
        ranks: Its rank under each signal in whose pool it is.
        units: At the unit level, the ids of its units that were found; else empty.
    """

    position: int
    score: float
    ranks: Mapping[Signal, int]
    units: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A contiguous, time-ordered span of rounds as it is put before the model."""

    session: str
    time: str
    positions: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a query returns: the assembled content Pi_c(R) of Equation 3.

    Attributes:
        blocks: The blocks in the order shown.
        found: Positions of the rounds that were ranked into it, best first.
        dropped: Positions of ranked rounds that the token budget left out.
        note: The attached-image note, or empty.
        text: All of it as it is sent.
        tokens: Length of `text` as the backbone counts it.
    """

    blocks: tuple[Block, ...]
    found: tuple[int, ...]
    dropped: tuple[int, ...] = ()
    note: str = ""
    text: str = ""
    tokens: int = 0

    @property
    def positions(self) -> tuple[int, ...]:
        """Positions of all rounds shown, in the order shown."""
        return tuple(position for block in self.blocks for position in block.positions)

    @property
    def words(self) -> int:
        """Number of blank-separated words shown."""
        return len(self.text.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """A search without its answer: every step that led to the context."""

    query: Query
    route: Route
    anchors: Anchors
    ranked: tuple[RankedRound, ...]
    context: Context
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the backbone says, with everything it rests on."""

    text: str
    retrieval: Retrieval
    prompt: str
    usage: tuple[Usage, ...]
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A benchmark question; only `query` is shown to a system under test.

    Attributes:
        id: `<dialogue>#<index in its file, from 0>`.
        dialogue_id: The dialogue it is asked about.
        query: What is asked.
        reference: The gold answer, empty where there is none.
        category: The benchmark's category.
        evidence: Source ids of the gold evidence that exist in the dialogue.
    """

    id: str
    dialogue_id: str
    query: Query
    reference: str
    category: str
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """An oddity that a loader met, and what it did about it."""

    kind: str
    where: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """Dialogues with their questions, and every oddity met while reading them."""

    name: str
    dialogues: tuple[Dialogue, ...]
    questions: tuple[Question, ...]
    issues: tuple[Issue, ...]


Role = Literal["hypo_caption", "keywords", "answer", "judge"]
