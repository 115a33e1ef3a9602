"""The first of M2A's two agents: it looks at messages and questions, and asks the second.

It never searches by itself: it tells the memory agent, in words, to find or to record something,
and reads what that one replies (section 3 of arXiv 2602.07624).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vmem.baselines.m2a_log import Message
from vmem.baselines.m2a_loop import Agent, Brief, Call, Line, Tools, Work, newest
from vmem.baselines.m2a_memory_agent import Levels, MemoryAgent
from vmem.baselines.m2a_options import M2AOptions
from vmem.baselines.wording import Wording
from vmem.config import Settings
from vmem.errors import QueryError
from vmem.pipeline import Parts
from vmem.prompts import NOT_FOUND
from vmem.types import Image


class TakeIn(Call):
    """What the chat agent does about a new message."""

    takes: ClassVar[Tools] = {
        "update_memory": ("text", "image"),
        "query_memory": ("text", "image"),
        "done": (),
    }


class Inquire(Call):
    """What it does about a question."""

    kept_cut = words = True
    takes: ClassVar[Tools] = {"query_memory": ("text", "image"), "answer": ("text",)}

    @classmethod
    def keeps(cls, cut: Mapping[str, Any]) -> bool:
        """An answer, as every system's; half a call of the memory is none."""
        return cut["tool"] == "answer" and bool(cut.get("text"))


@dataclass(slots=True, kw_only=True)
class ChatAgent:
    """Takes in the messages of a conversation, or answers one question about it.

    Attributes:
        levels: The memory.
        memory: The agent that it asks.
        speakers: Who talks, in words.
        settings: Temperature, prompts, the model's window.
        options: Hyperparameters.
        parts: The backbone.
        lines: Messages and calls that it remembers.
    """

    levels: Levels
    memory: MemoryAgent
    speakers: str
    settings: Settings
    options: M2AOptions
    parts: Parts
    lines: list[Line] = field(default_factory=list)

    async def take_in(self, message: Message, work: Work) -> None:
        """Have recorded what is worth it of the newest message."""
        agent = self._agent("m2a_take_in", "m2a_take_in", ("speakers",))
        self.lines.append(self.memory.show(message))
        self.lines = newest(self.lines, self.options.transcript_tokens)

        async def use(call: TakeIn) -> Line:
            image = self._image(call.image, call.text)
            if call.tool == "update_memory":
                return await self.memory.record(work, call.text, image)
            return await self.memory.find(work, call.text, image)

        await agent.run(work, TakeIn, use, self.lines, self._brief())

    async def answer(self, question: str, image: Image | None, now: str, work: Work) -> str | None:
        """Answer one sentence, after asking the memory; None where a reply was no call."""
        agent = self._agent("answer", "m2a_answer", ("speakers", "now", "not_found"))
        mark = f" {self.memory.mark(image)}" if image else ""
        self.lines = [
            Line(text=f"Question: {question}{mark}", images=(image,) if image else (), opens=True)
        ]

        async def use(call: Inquire) -> Line:
            return await self.memory.find(work, call.text, self._image(call.image, call.text))

        brief = self._brief(now=now, not_found=NOT_FOUND)
        ended = await agent.run(work, Inquire, use, self.lines, brief)
        if ended.refused:
            return await agent.close(work, self.lines, brief)
        return ended.call.text.strip() if ended.call else None

    def _image(self, token: str, text: str) -> Image | None:
        image = self.levels.pictures.named(token)
        if image is None and not text.strip():
            raise QueryError("the call needs a text")
        return image

    def _brief(self, **values: str) -> Brief:
        return Brief(values={"speakers": self.speakers, **values}, pictures=self.levels.pictures)

    def _agent(self, role: str, prompt: str, places: tuple[str, ...]) -> Agent:
        return Agent(
            role=role,
            wording=Wording(self.settings.prompts, prompt, *places, "transcript"),
            calls=self.options.chat_calls,
            settings=self.settings,
            options=self.options,
            parts=self.parts,
        )
