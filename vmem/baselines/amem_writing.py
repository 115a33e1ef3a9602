"""How A-Mem takes in a turn: a model describes it, then compares it with its neighbours."""

import asyncio
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from vmem.baselines.amem_notes import Evolution, Note, Notes, Rewrite, show_note
from vmem.baselines.building import Step
from vmem.baselines.forms import Form
from vmem.baselines.options import Options
from vmem.baselines.wording import Wording
from vmem.config import Settings
from vmem.ports import ChatRequest

MOST = 10
"""Words, links or rewrites that are kept of a reply: small models list without end."""


class AMemOptions(Options):
    """Hyperparameters; all defaults but `note_of` are the released code's.

    Attributes:
        note_of: What one note is made of: a turn, as released for LoCoMo, or a round. `auto` takes
            rounds where a user talks with an assistant: nothing is released for Mem-Gallery, and
            only so does a build come near the paper's 6.92M tokens (projected from a scripted
            model: 8.8M by rounds, 14.4M by turns).
        neighbours: Notes that a new one is compared with.
        notes: Notes that a question finds, before links are followed.
        reencode_every: After so many evolutions all notes are encoded anew.
        reply_tokens: Length of a reply at most, other than an answer.
    """

    note_of: Literal["auto", "turn", "round"] = "auto"
    neighbours: int = Field(default=5, ge=1)
    notes: int = Field(default=10, ge=1)
    reencode_every: int = Field(default=100, ge=1)
    reply_tokens: int = Field(default=1_000, ge=1)


def _first_words(words: list[str]) -> list[str]:
    return [word.strip() for word in words if word.strip()][:MOST]


def _at_least_one(words: list[str]) -> list[str]:
    if not words:
        raise ValueError("there is no keyword in it")
    return words


_Words = Annotated[
    list[str], Field(json_schema_extra={"maxItems": MOST}), AfterValidator(_first_words)
]
_Numbers = Annotated[list[int], Field(json_schema_extra={"maxItems": MOST})]


class NoteForm(Form):
    """What a model says of a message."""

    kept_cut = True

    keywords: Annotated[_Words, AfterValidator(_at_least_one)]
    context: str
    tags: _Words = Field(default_factory=list)


class RewriteForm(Form):
    """What it makes of an older note."""

    note: int
    context: str = ""
    tags: _Words = Field(default_factory=list)


_Rewrites = Annotated[list[RewriteForm], Field(json_schema_extra={"maxItems": MOST})]


class EvolutionForm(Form):
    """What a new note brings about."""

    kept_cut = True

    decision: Literal["none", "strengthen", "update", "both"]
    links: _Numbers = Field(default_factory=list)
    tags: _Words = Field(default_factory=list)
    rewrites: _Rewrites = Field(default_factory=list)

    def evolution(self) -> Evolution:
        """The same as the store takes it."""
        return Evolution(
            strengthens=self.decision in {"strengthen", "both"},
            updates=self.decision in {"update", "both"},
            links=tuple(self.links),
            tags=tuple(self.tags),
            rewrites=tuple(
                Rewrite(note=each.note, context=each.context.strip(), tags=tuple(each.tags))
                for each in self.rewrites
            ),
        )


class NoteWriter:
    """Takes turns into a memory, by two calls each.

    Args:
        settings: Temperature and prompts.
        options: Neighbours, and the length of replies.

    Raises:
        ConfigError: A prompt cannot be used.
    """

    def __init__(self, settings: Settings, options: AMemOptions) -> None:
        self._note = Wording(settings.prompts, "amem_note", "message")
        self._evolve = Wording(settings.prompts, "amem_evolve", "note", "neighbours")
        self._temperature = settings.answer.temperature
        self._options = options

    async def take_in(self, note: Note, notes: Notes, step: Step) -> None:
        """Describe a note, compare it with its neighbours and store it."""
        watch = step.building.watch
        await self._describe(note, step)
        with watch.time("encode"):
            near = await asyncio.to_thread(notes.nearest, note.content, self._options.neighbours)
        shown = [number for number, _ in near]
        evolution = await self._compare(note, notes.show(shown), step) if shown else Evolution()
        with watch.time("encode"):
            await asyncio.to_thread(notes.add, note, evolution, shown)

    async def _describe(self, note: Note, step: Step) -> None:
        """Keywords, context and tags; a model that could not leaves them empty."""
        prompt = self._note.fill(message=note.content)
        if form := await step.fill(self._request("amem_note", prompt), NoteForm):
            note.keywords, note.tags = tuple(form.keywords), tuple(form.tags)
            note.context = form.context.strip()

    async def _compare(self, note: Note, neighbours: str, step: Step) -> Evolution:
        """What a note changes; nothing, where the model could not say."""
        line = show_note("new", note)
        prompt = self._evolve.fill(note=line, neighbours=neighbours)
        form = await step.fill(self._request("amem_evolve", prompt), EvolutionForm)
        return form.evolution() if form else Evolution()

    def _request(self, role: str, prompt: str) -> ChatRequest:
        return ChatRequest(
            role=role,
            prompt=prompt,
            max_tokens=self._options.reply_tokens,
            temperature=self._temperature,
        )
