"""Omni-SimpleMem: statements or turns in one pool, found by meaning and by words.

After Liu et al. 2026 (arXiv 2604.01007) and its public code (aiming-lab/SimpleMem, OmniSimpleMem/,
commit db80b6a), which has one adapter a benchmark. Between two people (LoCoMo) a model reads
windows of 40 messages and writes down self-contained statements, and those alone are kept. Between
a user and an assistant (Mem-Gallery) each exchange is one unit as it was said, pictures as their
captions. A question takes the nearest units by meaning, and after them those that BM25 finds
besides: a union, not ranked anew. Text only.

`blind`, the default, knows nothing of a question but its words. `released` is what the public code
does, flaws and leaks included; it sees gold categories, and is an oracle run (`omni_released.py`).
`omni-verbatim` keeps turns on both benchmarks, so that nothing of it needs a model but the answer.

Hyperparameters are those of `OmniOptions`, with their origin.

Deliberate differences, in both modes:

- Statements are all that a model is asked for; the released code also asks for keywords, persons,
  places and topics, and throws them away.
- A window shrinks where the model's own window is short, and its messages are kept as they are
  where no reply could be read; the released code then loses them without a word.
- Of each unit the model sees its text once; the released code shows it twice, beside the day on
  which the memory was built.
- The public code also has a model write a summary of each long unit and the entities of every unit.
  Nothing of either is ever shown or searched (a statement's summary is, beside its text), and
  both are most of what building costs. They are made where `unused_calls` is on, for the cost.
- BM25 is the library's (Lucene's variant), the temperature that of the run, 0.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from pydantic import Field

from vmem.baselines.building import Building, needs_chat
from vmem.baselines.found import Found, Item, Search, put_before_model, shown_query_caption
from vmem.baselines.omni_answer import OmniAnswers
from vmem.baselines.omni_released import Wanted, wanted_by_released_code
from vmem.baselines.omni_units import OmniUnit, kept_turns, message_lines
from vmem.baselines.omni_writing import Writer
from vmem.baselines.options import Options
from vmem.config import Settings
from vmem.errors import ConfigError
from vmem.memory import count_truncated
from vmem.oracle import refuse_oracle
from vmem.pipeline import Parts, Stopwatch, check_query
from vmem.ports import BuildCost, MemorySystem, Oracle, Vectors
from vmem.rounds import ROLES
from vmem.stores.lexical import LexicalIndex
from vmem.types import Answer, Dialogue, Query, Retrieval


class OmniOptions(Options):
    """How a memory is built and searched.

    Attributes:
        mode: `blind`, or `released`, which needs gold categories.
        ingest: `windows` of messages become statements, `turns` are kept; `auto` takes windows
            between two people by name, turns between a user and an assistant.
        window_turns: Messages a window (run_locomo.py).
        reply_tokens: Length of the statements of a window at most; the public code sets no limit.
        top_k: Units by meaning (`default_top_k` of both benchmarks' configurations).
        keyword_k: Units that BM25 may add (orchestrator.py: half of `top_k`, at least 10).
        unused_calls: Make the calls whose replies the public code never uses.
    """

    mode: Literal["blind", "released"] = "blind"
    ingest: Literal["auto", "windows", "turns"] = "auto"
    window_turns: int = Field(default=40, ge=1)
    reply_tokens: int = Field(default=4_096, ge=16)
    top_k: int = Field(default=20, ge=1)
    keyword_k: int = Field(default=10, ge=0)
    unused_calls: bool = False


class OmniVerbatimOptions(OmniOptions):
    """Those of a memory that is built without a model."""

    mode: Literal["blind"] = "blind"
    ingest: Literal["turns"] = "turns"
    unused_calls: Literal[False] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Omni:
    """Omni-SimpleMem under its options.

    Attributes:
        name: The row's name.
        settings: Those of BM25 and of the answer call are used.
        parts: The text encoder, the backbone, and prompts.
        options: How a memory is built and searched.
    """

    name: str
    settings: Settings
    parts: Parts
    options: OmniOptions = field(default_factory=OmniOptions)

    async def build(self, dialogue: Dialogue) -> MemorySystem:
        """Write statements, or keep turns; index them.

        Raises:
            ConfigError: A model is needed, and none is configured.
            ModelError, BudgetError, StoreError: As `vmem.baselines.building`.
        """
        from_windows = self._takes_windows(dialogue)
        counts = {"rounds": len(dialogue.rounds)}
        building = None
        if from_windows or self.options.unused_calls:
            building = Building(needs_chat(self.name, self.parts), dialogue.id)
        if from_windows and building:
            units = await self._statements(dialogue, building)
        else:
            units = kept_turns(dialogue, counts)
        if self.options.unused_calls and building:
            writer = Writer(self.settings)
            for unit in units:
                with building.step(f"unused calls about {unit.item.id}") as step:
                    await writer.write_what_nothing_reads(unit.searched, step)
        watch = building.watch if building else Stopwatch()
        texts = [unit.searched for unit in units]
        with watch.time("encode"):
            vectors_ND = await asyncio.to_thread(self.parts.text_encoder.encode, texts)
        counts |= {
            "statements" if from_windows else "turns": len(units),
            "truncated_texts": count_truncated(self.parts.text_encoder, texts),
        }
        return OmniMemory(
            name=self.name,
            system=self,
            items=tuple(unit.item for unit in units),
            vectors_ND=vectors_ND,
            words=LexicalIndex(texts, self.settings.retrieval.lexical),
            from_windows=from_windows,
            image_rounds=frozenset(r.position for r in dialogue.rounds if r.images),
            cost=building.cost(counts)
            if building
            else BuildCost(seconds=watch.seconds, counts=counts),
        )

    def _takes_windows(self, dialogue: Dialogue) -> bool:
        if self.options.ingest != "auto":
            return self.options.ingest == "windows"
        speakers = {turn.speaker for round_ in dialogue.rounds for turn in round_.turns}
        return not speakers <= ROLES

    async def _statements(self, dialogue: Dialogue, building: Building) -> list[OmniUnit]:
        writer = Writer(self.settings)
        units: list[OmniUnit] = []
        earlier: Sequence[str] = ()
        windows = writer.windows(message_lines(dialogue), self.options.window_turns, building.chat)
        for number, window in enumerate(windows, 1):
            with building.step(f"window {number}") as step:
                said = await writer.statements(window, earlier, self.options.reply_tokens, step)
                earlier = said or earlier
                texts = window if said is None else said
                if not texts:
                    step.skipped()
            for each, text in enumerate(texts, 1):
                item = Item(id=f"window {number}/{each}", text=text)
                units.append(OmniUnit(item=item, searched=text))
        return units


@dataclass(frozen=True, slots=True, kw_only=True)
class OmniMemory:
    """One dialogue's units.

    Attributes:
        name: The row's name.
        system: Settings, parts and options.
        items: The units (N), in the order of the conversation.
        vectors_ND: Their vectors.
        words: BM25 over them.
        from_windows: They are statements, which name no round, and not turns.
        image_rounds: Positions of the rounds that hold pictures.
        cost: What building it took.
    """

    name: str
    system: Omni
    items: tuple[Item, ...]
    vectors_ND: Vectors
    words: LexicalIndex
    from_windows: bool
    image_rounds: frozenset[int]
    cost: BuildCost

    async def search(self, query: Query) -> Retrieval:
        """Units by meaning, then those that BM25 adds.

        Raises:
            ConfigError: The mode is `released`, which needs a gold category.
            QueryError: The query is empty or too long.
        """
        if self.system.options.mode == "released":
            raise ConfigError(f"system {self.name!r} searches by gold category: it only answers")
        options = self.system.options
        wanted = Wanted(
            top_k=options.top_k, keyword_k=options.keyword_k, keyword_pool=options.keyword_k
        )
        return await self._search(query, wanted)

    async def answer(self, query: Query, oracle: Oracle | None = None) -> Answer:
        """Search and answer.

        Raises:
            ConfigError: An oracle is given to the blind mode or missing in the other, or no
                language model is configured.
            QueryError: The query is empty or too long.
            ModelError: The call failed.
        """
        chat = needs_chat(self.name, self.system.parts)
        answers = OmniAnswers(chat, self.system.settings)
        if self.system.options.mode == "blind":
            refuse_oracle(self.name, oracle)
            return await answers.answer(await self.search(query))
        if oracle is None:
            raise ConfigError(
                f"system {self.name!r} picks search and prompt by the gold category: label its row"
                " `oracle: true`"
            )
        wanted = wanted_by_released_code(query.text, oracle.category, self.from_windows)
        retrieval = await self._search(query, wanted)
        return await answers.answer_as_released(retrieval, oracle.category, self.from_windows)

    async def _search(self, query: Query, wanted: Wanted) -> Retrieval:
        check_query(query)
        watch = Stopwatch()
        caption, _ = shown_query_caption(query, self.system.settings)
        text = query.text + wanted.suffix + (f" image_caption: {caption}" if caption else "")
        with watch.time("encode"):
            encoder = self.system.parts.text_encoder
            vector_D = (await asyncio.to_thread(encoder.encode, [text]))[0]
        with watch.time("search"):
            meant = _best(self.vectors_ND @ vector_D, wanted.top_k)
            score_N = self.words.scores(text)
            worded = [n for n in _best(score_N, wanted.keyword_pool) if score_N[n] > 0]
            added = [n for n in worded if n not in set(meant)][: wanted.keyword_k]
            found = [Found(item=self.items[n], score=1 / r) for r, n in enumerate(meant + added, 1)]
            found += self._pictures(text, wanted)
        search = Search(
            found=tuple(found),
            in_time_order=wanted.in_time_order,
            notes=wanted.notes,
            seconds=watch.seconds,
        )
        with watch.time("assemble"):
            return put_before_model(query, search, self.system.parts, self.system.settings)

    def _pictures(self, text: str, wanted: Wanted) -> Iterator[Found]:
        """Units with pictures by BM25, put behind the others once more (the picture list)."""
        if wanted.pictures == 0:
            return
        score_N = self.words.scores(text)
        shown = [n for n in _best(score_N, len(self.items)) if score_N[n] > 0]
        with_picture = [n for n in shown if self.image_rounds.intersection(self.items[n].positions)]
        for number, n in enumerate(with_picture[: wanted.pictures], 1):
            item = self.items[n]
            yield Found(
                item=Item(
                    id=f"picture {number}/{item.id}",
                    text=f"[Picture list {number}] {item.text}",
                    positions=item.positions,
                    session=item.session,
                    time=item.time,
                ),
                score=0.0,
            )


def _best(score_N: np.typing.NDArray[np.floating], most: int) -> list[int]:
    """Numbers of the best items, ties by number."""
    order = np.lexsort((np.arange(len(score_N)), -score_N))[:most]
    numbers: list[int] = order.tolist()
    return numbers
