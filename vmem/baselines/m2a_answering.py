"""A dialogue in M2A, asked: a fresh chat agent for each question."""

import time
from dataclasses import dataclass, field, replace

from vmem.baselines.forms import F, fill_form
from vmem.baselines.found import shown_query_caption
from vmem.baselines.m2a_chat_agent import ChatAgent
from vmem.baselines.m2a_loop import Work, sees_pixels
from vmem.baselines.m2a_memory_agent import Levels, MemoryAgent
from vmem.baselines.m2a_options import M2AOptions
from vmem.config import Settings
from vmem.errors import ModelFormatError
from vmem.oracle import refuse_oracle
from vmem.pipeline import Parts, check_query
from vmem.ports import BuildCost, ChatModel, ChatRequest, Oracle
from vmem.routing import route_query
from vmem.types import (
    Anchors,
    Answer,
    Block,
    Context,
    Query,
    RankedRound,
    Retrieval,
    Round,
    Usage,
)


@dataclass(slots=True, kw_only=True)
class M2AMemory:
    """A dialogue in M2A.

    Attributes:
        name: The row's name.
        settings: Temperature, prompts, the model's window.
        parts: Encoders and backbone.
        chat: The same backbone, known to be there.
        options: Hyperparameters.
        rounds: The dialogue's rounds.
        levels: Messages and memories.
        speakers: Who talks.
        cost: What building it took.
    """

    name: str
    settings: Settings
    parts: Parts
    chat: ChatModel
    options: M2AOptions
    rounds: tuple[Round, ...]
    levels: Levels
    speakers: str
    cost: BuildCost = field(default_factory=BuildCost)

    def chat_agent(self, levels: Levels) -> ChatAgent:
        """A fresh agent with nothing in mind."""
        return ChatAgent(
            levels=levels,
            memory=MemoryAgent(levels, self.settings, self.options, self.parts),
            speakers=self.speakers,
            settings=self.settings,
            options=self.options,
            parts=self.parts,
        )

    async def answer(self, query: Query, oracle: Oracle | None = None) -> Answer:
        """Have a fresh agent ask the memory and answer.

        Raises:
            ConfigError: An oracle is given.
            QueryError: The query is empty or too long.
            ImageError: The query's picture cannot be read.
            ModelFormatError: A reply could not be read, twice.
            ModelError: A call failed.
        """
        refuse_oracle(self.name, oracle)
        check_query(query)
        started = time.perf_counter()
        calls = _Calls(self.chat)
        work = Work(ask=calls.fill)
        # A question's picture has the same token whichever question comes first.
        levels = Levels(
            log=self.levels.log,
            memories=self.levels.memories,
            pictures=self.levels.pictures.copy(),
        )
        caption, _ = shown_query_caption(query, self.settings)
        image = query.image and replace(query.image, id="", caption=caption or "")
        agent = self.chat_agent(levels)
        now = self.rounds[-1].time.replace("T", " ") if self.rounds else "an unknown day"
        said = await agent.answer(query.text, image, now, work)
        if calls.cut:
            work.counts["replies_cut"] = calls.cut
        if not said:
            raise ModelFormatError(f"{self.chat.name} gave an empty answer")
        retrieval = self._retrieval(query, agent, work, calls.usage)
        return Answer(
            text=said,
            retrieval=retrieval,
            prompt=calls.prompt,
            usage=tuple(calls.usage),
            seconds={"agents": time.perf_counter() - started},
        )

    def _retrieval(
        self, query: Query, agent: ChatAgent, work: Work, usage: list[Usage]
    ) -> Retrieval:
        found = tuple(dict.fromkeys(work.seen))
        text = "\n".join(line.text for line in agent.lines[1:])
        counted = [f"{name}: {count}" for name, count in sorted(work.counts.items())]
        caption, left_out = shown_query_caption(query, self.settings)
        notes = () if sees_pixels(self.settings, self.parts) else left_out
        blocks = tuple(
            Block(session=r.session, time=r.time, positions=(p,), text="")
            for p in found
            for r in (self.rounds[p],)
        )
        return Retrieval(
            query=query,
            route=route_query(query, self.settings.retrieval),
            anchors=Anchors(
                by_signal={},
                query_caption=caption,
                notes=(*notes, *counted),
                usage=tuple(usage[:-1]),
            ),
            ranked=tuple(
                RankedRound(position=position, score=1.0 / rank, ranks={})
                for rank, position in enumerate(found, 1)
            ),
            context=Context(
                blocks=blocks, found=found, text=text, tokens=self.chat.count_tokens(text)
            ),
        )


class _Calls:
    """The calls of one question; one that stays unreadable fails the question."""

    def __init__(self, chat: ChatModel) -> None:
        self._chat = chat
        self.usage: list[Usage] = []
        self.prompt = ""
        self.cut = 0

    async def fill(self, request: ChatRequest, form: type[F], /) -> F:
        filled = await fill_form(self._chat, request, form)
        self.usage.extend(filled.usage)
        self.cut += filled.cut
        if filled.value is None:
            raise ModelFormatError(f"{self._chat.name}, {request.role}: {filled.error}")
        if request.role == "answer":
            self.prompt = request.prompt
        return filled.value
