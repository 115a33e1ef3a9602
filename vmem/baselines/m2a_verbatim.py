"""M2A's search over the turns themselves: what its memories would find, had no agent written them.

Each turn is a memory of its own; a question and its picture are searched for as the memory agent
would, and the answer is written from what was found. It needs no language model but for the answer,
so that M2A's search can be compared with others' evidence by evidence. Nobody published it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import Field

from vmem.answer import answer_query
from vmem.baselines.building import needs_chat
from vmem.baselines.found import Found, Item, Search, put_before_model, shown_query_caption
from vmem.baselines.m2a_memory import MemoryStore, SearchSizes
from vmem.baselines.options import Options
from vmem.config import Settings
from vmem.oracle import refuse_oracle
from vmem.pipeline import Parts, Stopwatch, check_query
from vmem.ports import BuildCost, MemorySystem, Oracle
from vmem.rounds import audio_text, turn_text
from vmem.types import Answer, Dialogue, Image, Query, Retrieval, Round, Turn


class M2AVerbatimOptions(Options):
    """How much a search gives; M2A's own 5 and 3 would end every list of rounds too soon.

    Attributes:
        most: Turns by each path, and by the text's two together.
        rrf_k: κ, as released.
    """

    most: int = Field(default=20, ge=1)
    rrf_k: int = Field(default=60, ge=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class M2AVerbatim:
    """M2A's search as a system.

    Attributes:
        name: The row's name.
        settings: Those of the answer call are used.
        parts: Encoders, backbone and prompts.
        options: How much is returned.
    """

    name: str
    settings: Settings
    parts: Parts
    options: M2AVerbatimOptions = field(default_factory=M2AVerbatimOptions)

    async def build(self, dialogue: Dialogue) -> MemorySystem:
        """Encode every turn; no model is called.

        Raises:
            ImageError: A picture cannot be used.
        """
        return await asyncio.to_thread(self._build, dialogue)

    def _build(self, dialogue: Dialogue) -> "M2AVerbatimMemory":
        watch = Stopwatch()
        most = self.options.most
        sizes = SearchSizes(
            dense=most, sparse=most, text=most, images=most, rrf_k=self.options.rrf_k
        )
        store = MemoryStore(parts=self.parts, sizes=sizes)
        items: dict[int, Item] = {}
        with watch.time("encode"):
            for round_ in dialogue.rounds:
                for number, turn in enumerate(round_.turns):
                    item = _item(f"{round_.id}/{number}", turn, round_)
                    text = _words(turn)
                    images: Sequence[Image | None] = turn.images or (None,)
                    for image in images:
                        caption = image.caption if image else ""
                        if text or caption or image:
                            made = store.add(text or caption or "a picture", image, caption, ())
                            items[made.id] = item
        counts = {"memories": store.made, "pictures_without_vector": store.without_pixels}
        return M2AVerbatimMemory(
            name=self.name,
            system=self,
            store=store,
            items=items,
            cost=BuildCost(seconds=watch.seconds, counts=counts),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class M2AVerbatimMemory:
    """A dialogue's turns as memories.

    Attributes:
        name: The row's name.
        system: Settings and parts.
        store: The memories.
        items: The turn of each, by its id.
        cost: What building it took.
    """

    name: str
    system: M2AVerbatim
    store: MemoryStore
    items: dict[int, Item]
    cost: BuildCost

    async def search(self, query: Query) -> Retrieval:
        """The turns found by text, BM25 and picture.

        Raises:
            QueryError: The query is empty or too long.
            ImageError: The query's picture cannot be used.
        """
        check_query(query)
        watch = Stopwatch()
        settings = self.system.settings
        caption, _ = shown_query_caption(query, settings)
        no_file = query.image is not None and not query.image.uri
        text = f"{query.text} {caption}" if caption and no_file else query.text
        with watch.time("search"):
            memories = await asyncio.to_thread(self.store.search, text, query.image)
        # A turn with several pictures is several memories, and is shown once.
        first: dict[str, Found] = {}
        for memory, score in memories:
            item = self.items[memory.id]
            first.setdefault(item.id, Found(item=item, score=score))
        search = Search(found=tuple(first.values()), seconds=watch.seconds)
        return put_before_model(query, search, self.system.parts, settings)

    async def answer(self, query: Query, oracle: Oracle | None = None) -> Answer:
        """Answer from the turns found, as text.

        Raises:
            ConfigError: An oracle is given, or no language model is configured.
            QueryError, ImageError: As `search`.
            ModelError: The call failed.
        """
        refuse_oracle(self.name, oracle)
        parts = self.system.parts
        chat = needs_chat(self.name, parts)
        retrieval = await self.search(query)
        return await answer_query(retrieval, chat, parts.prompts, self.system.settings.answer)


def _words(turn: Turn) -> str:
    heard = audio_text(turn) if turn.transcript.strip() else ""
    said = turn_text(turn, fold_captions=False)
    return " ".join(part for part in (said, heard) if part)


def _item(id_: str, turn: Turn, round_: Round) -> Item:
    shown = turn_text(turn, show_ids=True)
    heard = f" {audio_text(turn)}" if turn.transcript.strip() else ""
    return Item(
        id=id_,
        text=f"[{round_.time[:10]}] {shown}{heard}",
        positions=(round_.position,),
        session=round_.session,
        time=round_.time,
    )
