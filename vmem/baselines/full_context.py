"""The systems that search nothing: the whole conversation as context, its end, or none of it.

Full context writes the conversation out in time order and shows the same text for every question.
Uncapped it is the plain upper comparison for any memory. Capped at 4,096 tokens it is what
Mem-Gallery's paper (arXiv 2601.03515) calls the full memory, as text and, for a backbone that
sees, with pictures.

Hyperparameters and their origin: `max_tokens` 4,096, `max_images` 20 and 576 tokens a picture (256
for Qwen's models) are those of Mem-Gallery's MemEngine.

Deliberate differences from it: whole rounds are kept from the end backwards, where MemEngine cuts
inside a round; a picture that cannot be read ends the build, where MemEngine shows a white square;
rounds are written as everywhere here, with dates and captions. The answer prompt is vmem's own.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pydantic import Field

from vmem.answer import answer_query, attached_note
from vmem.assembly import assemble
from vmem.baselines.building import needs_chat
from vmem.baselines.found import shown_query_caption
from vmem.baselines.options import Options
from vmem.config import RetrievalSettings, Settings
from vmem.errors import ConfigError, ModelError
from vmem.oracle import refuse_oracle
from vmem.pipeline import PROMPT_TOKENS, Parts, check_query
from vmem.ports import BuildCost, ChatModel, MemorySystem, Oracle
from vmem.rounds import show_round
from vmem.routing import route_query
from vmem.types import (
    Anchors,
    Answer,
    Case,
    Context,
    Dialogue,
    Query,
    RankedRound,
    Retrieval,
    Round,
    Route,
)

_ANY_ROUTE = Route(
    case=Case.TEXT_TO_TEXT,
    counts_images=False,
    aggregates=False,
    asks_conflict=False,
    reason="no question is asked yet",
)


class FullContextOptions(Options):
    """What of a conversation is shown.

    Attributes:
        images: Pictures are shown too; the backbone must see.
        max_tokens: The last rounds up to so many tokens, pictures among them; None is all.
        max_images: At most so many pictures, the last ones; None is all.
        image_tokens: What a picture counts for.
    """

    images: bool = False
    max_tokens: int | None = Field(default=None, ge=1)
    max_images: int | None = Field(default=None, ge=1)
    image_tokens: int = Field(default=576, ge=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FullContext:
    """Full context, or no memory at all.

    Attributes:
        name: The row's name.
        settings: Those of the answer call are used.
        parts: The backbone and its prompts.
        options: What is shown.
        shows_all: The conversation is shown; else nothing is.
    """

    name: str
    settings: Settings
    parts: Parts
    options: FullContextOptions = field(default_factory=FullContextOptions)
    shows_all: bool = True

    async def build(self, dialogue: Dialogue) -> MemorySystem:
        """Write the conversation out once; nothing is encoded and no model called.

        Raises:
            ConfigError: No language model is configured, or pictures are to be shown to one that
                does not see.
            ImageError: A picture cannot be read.
        """
        chat = needs_chat(self.name, self.parts)
        sees = self.settings.answer.sees_pixels and chat.sees_images
        if self.options.images and not sees:
            raise ConfigError(
                f"system {self.name!r} shows pictures, and {chat.name} is shown none: set"
                " llm.sees_images and answer.sees_pixels, or leave the system out"
            )
        started = time.perf_counter()
        rounds = self._shown(dialogue.rounds, chat) if self.shows_all else ()
        context = await asyncio.to_thread(whole_context, rounds, self.settings, chat)
        pictures = [await self._read(uri) for uri in self._pictures(rounds)]
        return FullContextMemory(
            name=self.name,
            settings=self.settings,
            parts=self.parts,
            chat=chat,
            context=context,
            pictures=tuple(pictures),
            picture_tokens=len(pictures) * self.options.image_tokens,
            cost=BuildCost(
                seconds={"write": time.perf_counter() - started},
                counts={
                    "rounds": len(rounds),
                    "rounds_not_shown": len(dialogue.rounds) - len(rounds) if self.shows_all else 0,
                    "pictures": len(pictures),
                },
            ),
        )

    async def _read(self, uri: str) -> bytes:
        return await asyncio.to_thread(self.parts.read_image, uri)

    def _shown(self, rounds: Sequence[Round], chat: ChatModel) -> tuple[Round, ...]:
        """The last rounds that fit."""
        if self.options.max_tokens is None:
            return tuple(rounds)
        used, first = 0, len(rounds)
        for round_ in reversed(rounds):
            used += chat.count_tokens(show_round(round_))
            used += len(self._pictures([round_])) * self.options.image_tokens
            if used > self.options.max_tokens:
                break
            first -= 1
        return tuple(rounds[first:])

    def _pictures(self, rounds: Sequence[Round]) -> list[str]:
        if not self.options.images:
            return []
        uris = [image.uri for round_ in rounds for image in round_.images if image.uri]
        return uris if self.options.max_images is None else uris[-self.options.max_images :]


@dataclass(frozen=True, slots=True, kw_only=True)
class FullContextMemory:
    """A dialogue, shown whole, in part or not at all.

    Attributes:
        name: The row's name.
        settings: Those of the answer call.
        parts: The prompts, and what reads the query's picture.
        chat: The backbone.
        context: The same for every question.
        pictures: Shown with it, in time order.
        picture_tokens: What they count for.
        cost: What building it took.
    """

    name: str
    settings: Settings
    parts: Parts
    chat: ChatModel
    context: Context
    pictures: tuple[bytes, ...]
    picture_tokens: int
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
        caption, notes = shown_query_caption(query, self.settings)
        anchors = Anchors(
            by_signal={}, query_caption=caption, notes=("nothing is searched", *notes)
        )
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
        images = (*await self._picture(query), *self.pictures)
        return await answer_query(
            retrieval, self.chat, self.parts.prompts, self.settings.answer, images
        )

    def _check_length(self, context: Context, query: Query) -> None:
        # Some servers cut a prompt that is too long without a word.
        window = self.settings.llm.window
        needed = context.tokens + self.chat.count_tokens(query.text) + PROMPT_TOKENS
        needed += self.settings.answer.max_tokens + self.picture_tokens
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


def whole_context(rounds: Sequence[Round], settings: Settings, chat: ChatModel) -> Context:
    """Rounds in time order as one block; none counts as found, for none was searched."""
    # Windows of 1 around every round: they all merge into one block. Positions start anew.
    numbered = [replace(round_, position=number) for number, round_ in enumerate(rounds)]
    everything = RetrievalSettings(top_k=max(1, len(rounds)), window=1)
    context = assemble(
        [RankedRound(position=number, score=0.0, ranks={}) for number in range(len(rounds))],
        numbered,
        _ANY_ROUTE,
        everything,
        show=partial(show_round, settings=settings.units),
        count_tokens=chat.count_tokens,
        budget_tokens=sys.maxsize,
    )
    first = rounds[0].position if rounds else 0
    blocks = tuple(
        replace(block, positions=tuple(first + p for p in block.positions))
        for block in context.blocks
    )
    return replace(context, blocks=blocks, found=())
