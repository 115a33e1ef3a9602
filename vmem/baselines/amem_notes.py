"""A-Mem's store: notes with links, found by their vectors (Xu et al. 2025, section 3).

No model is called here: what a model says of a note comes in as values.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from vmem.ports import TextEncoder, Vectors
from vmem.types import Turn


@dataclass(slots=True, kw_only=True)
class Note:
    """One turn as A-Mem keeps it.

    Attributes:
        position: The position of the turn's round.
        time: When it was said, ISO 8601.
        content: The turn in words, speaker and captions among them.
        keywords: The model's, the most important first; they never change.
        context: One sentence of what it is about; later notes may rewrite it.
        tags: What kinds of thing it is about; later notes may rewrite them.
        links: Numbers of earlier notes that it was found to belong with.
        pictures: Ids of the turn's pictures; who answers sees them, nobody else does.
    """

    position: int
    time: str
    content: str
    keywords: tuple[str, ...] = ()
    context: str = ""
    tags: tuple[str, ...] = ()
    links: tuple[int, ...] = ()
    pictures: tuple[str, ...] = ()

    @property
    def encoded_text(self) -> str:
        """What its vector is made of."""
        words, tags = ", ".join(self.keywords), ", ".join(self.tags)
        return f"content:{self.content} context:{self.context} keywords: {words} tags: {tags}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """What an evolution makes of an older note; what is empty stays as it is."""

    note: int
    context: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """What a new note brings about.

    Attributes:
        strengthens: The new note gets links and tags.
        updates: Its neighbours are rewritten.
        links: Numbers of the notes it belongs with.
        tags: Its own new tags.
        rewrites: Its neighbours anew.
    """

    strengthens: bool = False
    updates: bool = False
    links: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()


@dataclass(slots=True, kw_only=True)
class Notes:
    """All notes of a conversation, in its order; a note's number is its index.

    Attributes:
        encoder: φ.
        reencode_every: After so many evolutions all notes are encoded anew.
        notes: The notes.
        evolutions: New notes that brought something about.
        unknown: Links to and rewrites of notes that the model was not shown; they are dropped.
    """

    encoder: TextEncoder
    reencode_every: int
    notes: list[Note] = field(default_factory=list)
    evolutions: int = 0
    unknown: int = 0
    _vectors: list[Vectors] = field(default_factory=list)

    def nearest(self, text: str, most: int) -> list[tuple[int, float]]:
        """The notes nearest to a text as (number, cosine), best first; ties by number."""
        if not self.notes:
            return []
        vector_D = self.encoder.encode([text])[0]
        score_N = np.stack(self._vectors) @ vector_D
        order = np.lexsort((np.arange(len(score_N)), -score_N))[:most]
        return [(int(number), float(score_N[number])) for number in order]

    def add(self, note: Note, evolution: Evolution, shown: Sequence[int]) -> None:
        """Take in a note, and let it change itself and its neighbours.

        A rewritten note keeps its vector until all are encoded anew.

        Args:
            note: The note.
            evolution: What the model says of it and its neighbours.
            shown: Numbers of the neighbours that the model saw.
        """
        if evolution.strengthens:
            known = [number for number in dict.fromkeys(evolution.links) if number in shown]
            self.unknown += len(set(evolution.links)) - len(known)
            note.links = tuple(known)
            note.tags = evolution.tags or note.tags
        if evolution.updates:
            for rewrite in evolution.rewrites:
                if rewrite.note not in shown:
                    self.unknown += 1
                    continue
                older = self.notes[rewrite.note]
                older.context = rewrite.context or older.context
                older.tags = rewrite.tags or older.tags
        self.notes.append(note)
        self._vectors.append(self.encoder.encode([note.encoded_text])[0])
        if evolution.strengthens or evolution.updates:
            self.evolutions += 1
            if self.evolutions % self.reencode_every == 0:
                self._vectors = list(self.encoder.encode([n.encoded_text for n in self.notes]))

    def with_links(self, found: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
        """Found notes, each followed by those it links to with its score; each note once."""
        first: dict[int, float] = {}
        for number, score in found:
            for each in (number, *self.notes[number].links):
                first.setdefault(each, score)
        return list(first.items())

    def show(self, numbers: Sequence[int]) -> str:
        """Notes as a model reads them, in the order given."""
        return "\n".join(show_note(str(number), self.notes[number]) for number in numbers)


def show_note(number: str, note: Note) -> str:
    """A note in one line, with its number."""
    return (
        f"[{number}] {note.time.replace('T', ' ')} | {note.content} | context: {note.context}"
        f" | keywords: {', '.join(note.keywords)} | tags: {', '.join(note.tags)}"
    )


def note_content(turn: Turn) -> str:
    """A turn as a note holds it: captions first, as in the released code; empty if it says nothing.

    The released code writes speaker and "says" without a blank between them; here it has one.
    """
    marks = [f"[Image: {image.caption}]" for image in turn.images if image.caption]
    heard = [f"[Audio: {turn.transcript.strip()}]"] if turn.transcript.strip() else []
    body = " ".join(part for part in (*marks, turn.text.strip(), *heard) if part)
    return f"Speaker {turn.speaker} says : {body}" if body else ""
