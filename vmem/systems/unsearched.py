"""The two systems that search nothing: the whole conversation as context, and none of it."""

import asyncio
import sys
import time
from dataclasses import dataclass, replace
from functools import partial

from vmem.answer import answer_query, attached_note
from vmem.assembly import assemble
from vmem.config import RetrievalSettings, Settings
from vmem.errors import ConfigError, ModelError
from vmem.pipeline import PROMPT_TOKENS, Parts, check_query
from vmem.ports import BuildCost, ChatModel, MemorySystem, Oracle
from vmem.rounds import show_round
from vmem.routing import route_query
from vmem.systems.oracle import refuse_oracle
from vmem.types import (
    Anchors,
    Answer,
    Case,
    Context,
    Dialogue,
    Query,
    RankedRound,
    Retrieval,
    Route,
)

_ANY_ROUTE = Route(
    case=Case.TEXT_TO_TEXT,
    counts_images=False,
    aggregates=False,
    asks_conflict=False,
    reason="no question is asked yet",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsearched:
    """Full context, as text and uncapped, or no memory at all.

    Attributes:
        name: The row's name.
        settings: Those of the answer call are used.
        parts: The backbone and its prompts.
        shows_all: The whole conversation is shown; else nothing is.
    """

    name: str
    settings: Settings
    parts: Parts
    shows_all: bool

    async def build(self, dialogue: Dialogue) -> MemorySystem:
        """Write the conversation out once; nothing is encoded and no model called.

        Raises:
            ConfigError: No language model is configured.
        """
        if self.parts.chat is None:
            raise ConfigError("answering needs a language model: set llm.provider")
        started = time.perf_counter()
        shown = dialogue if self.shows_all else replace(dialogue, rounds=())
        context = await asyncio.to_thread(whole_context, shown, self.settings, self.parts.chat)
        return UnsearchedMemory(
            name=self.name,
            settings=self.settings,
            parts=self.parts,
            chat=self.parts.chat,
            context=context,
            cost=BuildCost(
                seconds={"write": time.perf_counter() - started},
                counts={"rounds": len(shown.rounds)},
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsearchedMemory:
    """A dialogue, shown whole or not at all.

    Attributes:
        name: The row's name.
        settings: Those of the answer call.
        parts: The prompts, and what reads the query's picture.
        chat: The backbone.
        context: The same for every question.
        cost: What building it took.
    """

    name: str
    settings: Settings
    parts: Parts
    chat: ChatModel
    context: Context
    cost: BuildCost

    async def answer(self, query: Query, oracle: Oracle | None = None) -> Answer:
        """Answer from the fixed context.

        Raises:
            ConfigError: An oracle is given.
            QueryError: The query is empty or too long.
            ImageError: The query's picture cannot be read.
            ModelError: The call failed, or the conversation is longer than the model holds.
        """
        refuse_oracle(self.name, oracle)
        check_query(query)
        started = time.perf_counter()
        anchors = _no_anchors(query, self.settings)
        note = attached_note(query, anchors, None, self.parts.prompts)
        text = "\n\n".join(part for part in (self.context.text, note) if part)
        context = replace(self.context, note=note, text=text, tokens=self.chat.count_tokens(text))
        self._check_length(context, query)
        retrieval = Retrieval(
            query=query,
            route=route_query(query, self.settings.retrieval),
            anchors=anchors,
            ranked=(),
            context=context,
            seconds={"assemble": time.perf_counter() - started},
        )
        images = await self._picture(query)
        return await answer_query(
            retrieval, self.chat, self.parts.prompts, self.settings.answer, images
        )

    def _check_length(self, context: Context, query: Query) -> None:
        # Some servers cut a prompt that is too long without a word.
        window = self.settings.llm.window
        needed = context.tokens + self.chat.count_tokens(query.text) + PROMPT_TOKENS
        needed += self.settings.answer.max_tokens
        if window is not None and needed > window:
            raise ModelError(
                f"system {self.name!r}: the conversation takes {needed:,} tokens with question and"
                f" answer, over the {window:,} of {self.chat.name}: give it a longer"
                " llm.context_window"
            )

    async def _picture(self, query: Query) -> tuple[bytes, ...]:
        uri = query.image.uri if query.image else None
        if uri is None or not (self.settings.answer.sees_pixels and self.chat.sees_images):
            return ()
        return (await asyncio.to_thread(self.parts.read_image, uri),)


def whole_context(dialogue: Dialogue, settings: Settings, chat: ChatModel) -> Context:
    """All rounds in time order as one block; none counts as found, for none was searched."""
    # Windows of 1 around every round: they all merge into one block.
    everything = RetrievalSettings(top_k=max(1, len(dialogue.rounds)), window=1)
    context = assemble(
        [RankedRound(position=r.position, score=0.0, ranks={}) for r in dialogue.rounds],
        dialogue.rounds,
        _ANY_ROUTE,
        everything,
        show=partial(show_round, settings=settings.units),
        count_tokens=chat.count_tokens,
        budget_tokens=sys.maxsize,
    )
    return replace(context, found=())


def _no_anchors(query: Query, settings: Settings) -> Anchors:
    notes: tuple[str, ...] = ("nothing is searched",)
    caption = None
    if query.image is not None and settings.answer.query_caption == "dataset":
        caption = " ".join(query.image.caption.split()) or None
    if query.image is not None and caption is None:
        notes = (*notes, "the attached image is not described: no model looks at it")
    return Anchors(by_signal={}, query_caption=caption, notes=notes)
