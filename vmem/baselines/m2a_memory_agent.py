"""The second of M2A's two agents: it finds and records what the first one asks for.

It searches memories, reads messages, adds and deletes memories (section 3 of arXiv 2602.07624).
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pydantic import Field

from vmem.baselines.m2a_log import Message, MessageLog, Pictures
from vmem.baselines.m2a_loop import TOKEN, Agent, Brief, Call, Line, Tools, Work, sees_pixels
from vmem.baselines.m2a_memory import Memory, MemoryStore
from vmem.baselines.m2a_options import M2AOptions
from vmem.baselines.wording import Wording
from vmem.config import Settings
from vmem.errors import QueryError
from vmem.pipeline import Parts
from vmem.types import Image

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


_RANGE = {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2}
_RangesAsked = Annotated[list[list[int]], Field(json_schema_extra={"items": _RANGE, "maxItems": 5})]
"""Bounded for servers that take schemas: small models list without end."""

_LOOKS = {
    "search": ("text", "image"),
    "fetch": ("messages",),
    "fetch_by_day": ("start", "end"),
}


class Recall(Call):
    """What the memory agent does to find something."""

    takes: ClassVar[Tools] = {**_LOOKS, "answer": ("text",)}

    messages: _RangesAsked = Field(default_factory=list)
    start: str = ""
    end: str = ""


class Record(Call):
    """What it does to record something."""

    takes: ClassVar[Tools] = {
        **_LOOKS,
        "add": ("text", "image", "caption", "messages"),
        "delete": ("memory",),
        "done": (),
    }

    caption: str = ""
    messages: _RangesAsked = Field(default_factory=list)
    start: str = ""
    end: str = ""
    memory: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """The two levels of a memory, and the tokens of its pictures."""

    log: MessageLog
    memories: MemoryStore
    pictures: Pictures


class MemoryAgent:
    """Finds and records; the same for builds and questions.

    Args:
        levels: What it works on.
        settings: Temperature, prompts, the model's window, whether pixels are sent.
        options: Hyperparameters.
        parts: Backbone and encoders.

    Raises:
        ConfigError: A prompt cannot be used.
    """

    def __init__(
        self, levels: Levels, settings: Settings, options: M2AOptions, parts: Parts
    ) -> None:
        self._levels = levels
        self._options = options
        self._pixels = sees_pixels(settings, parts)
        places = ("recent", "request", "transcript")
        self._recall = Agent(
            role="m2a_memory",
            wording=Wording(settings.prompts, "m2a_recall", *places),
            calls=options.memory_calls,
            forgets=True,
            settings=settings,
            options=options,
            parts=parts,
        )
        self._record = replace(
            self._recall, wording=Wording(settings.prompts, "m2a_record", *places)
        )

    async def find(self, work: Work, request: str, image: Image | None) -> Line:
        """What is remembered of something, in words, with the pictures that they name."""
        lines: list[Line] = []
        brief = self._brief(request, image)

        async def use(call: Recall) -> Line:
            return await asyncio.to_thread(self._look, work, call)

        ended = await self._recall.run(work, Recall, use, lines, brief)
        if ended.refused:
            text = await self._recall.close(work, lines, brief)
        else:
            text = ended.call.text.strip() if ended.call else None
        return self._naming(text or "(the memory gave no answer)")

    async def record(self, work: Work, request: str, image: Image | None) -> Line:
        """Record something, as far as it is worth it and not recorded yet."""

        async def use(call: Record) -> Line:
            changed = await asyncio.to_thread(self._change, call)
            if changed is not None:
                return changed
            return await asyncio.to_thread(self._look, work, call)

        await self._record.run(work, Record, use, [], self._brief(request, image))
        return Line(text="The memory has dealt with it.")

    def show(self, message: Message) -> Line:
        """A message as agents see it: pictures by token, and by caption where nobody looks."""
        text = f"#{message.number} | {message.time.replace('T', ' ')} | {message.speaker}: "
        marks = [self.mark(image) for image in message.images]
        words = " ".join(part for part in (message.text, *marks) if part)
        return Line(text=f"{text}{words}", images=message.images, opens=True)

    def mark(self, image: Image) -> str:
        """A picture in a text: its token and id, and its caption where nobody looks at it."""
        token = self._levels.pictures.token(image)
        known = ": ".join(w for w in (image.id, "" if self._pixels else image.caption) if w)
        return f"{token} ({known})" if known else token

    def _brief(self, request: str, image: Image | None) -> Brief:
        recent = [self.show(m) for m in self._levels.log.messages[-self._options.recent :]]
        asked = " ".join(part for part in (request, self.mark(image) if image else "") if part)
        return Brief(
            values={"recent": "\n".join(line.text for line in recent), "request": asked},
            images=(*(i for line in recent for i in line.images), *([image] if image else [])),
            pictures=self._levels.pictures,
        )

    def _look(self, work: Work, call: Recall | Record) -> Line:
        image = self._levels.pictures.named(call.image)
        if call.tool == "search":
            if not call.text.strip() and image is None:
                raise QueryError("a search needs a text or a picture")
            found = [memory for memory, _ in self._levels.memories.search(call.text, image)]
            work.seen.extend(p for memory in found for p in self._positions(memory))
            text = "\n".join(map(self._memory, found)) or "No memory is like this."
            return Line(text=text, images=tuple(m.image for m in found if m.image))
        if call.tool == "fetch":
            messages = self._levels.log.by_number(call.messages)
        else:
            if not (_DAY.fullmatch(call.start) and _DAY.fullmatch(call.end)):
                raise QueryError("start and end are days: write YYYY-MM-DD")
            messages = self._levels.log.by_day(call.start, call.end)
        return self._fetched(work, messages, call.tool == "fetch_by_day")

    def _fetched(self, work: Work, messages: Sequence[Message], only_beginnings: bool) -> Line:
        shown = messages[: self._options.fetched]
        work.seen.extend(message.position for message in shown)
        lines = [self.show(message) for message in shown]
        if only_beginnings:
            length = self._options.beginning
            texts = [self.show(replace(m, text=m.text[:length], images=())).text for m in shown]
            return Line(text="\n".join(texts) or "No message is from those days.")
        left = len(messages) - len(shown)
        more = [f"({left} more were left out)"] if left else []
        return Line(
            text="\n".join([line.text for line in lines] + more) or "There are no such messages.",
            images=tuple(image for line in lines for image in line.images),
        )

    def _change(self, call: Record) -> Line | None:
        memories = self._levels.memories
        if call.tool == "add":
            image = self._levels.pictures.named(call.image)
            caption = call.caption
            if image is not None and not caption.strip() and not self._pixels:
                caption = image.caption
            added = memories.add(call.text, image, caption, call.messages)
            return Line(text=f"Memory {added.id} is added.")
        if call.tool == "delete":
            memories.delete(call.memory)
            return Line(text=f"Memory {call.memory} is deleted.")
        return None

    def _memory(self, memory: Memory) -> str:
        ranges = ", ".join(f"{first}-{last}" for first, last in memory.evidence) or "none"
        mark = f" {self.mark(memory.image)}" if memory.image else ""
        return f"memory {memory.id}: {memory.text}{mark} (messages {ranges})"

    def _positions(self, memory: Memory) -> list[int]:
        return [message.position for message in self._levels.log.by_number(memory.evidence)]

    def _naming(self, text: str) -> Line:
        tokens = dict.fromkeys(TOKEN.findall(text))
        images = []
        for token in tokens:
            try:
                images.append(self._levels.pictures.named(token))
            except QueryError:  # the model made it up; the text says so to who reads it
                continue
        return Line(text=f"The memory says: {text}", images=tuple(i for i in images if i))
