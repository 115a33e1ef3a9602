"""How M2A's agents work: one call after another, each naming a tool, until the agent has done.

A call is a form: a tool's name and what that tool takes. Servers that have native tool calls make
one, those that take JSON schemas are held to the form's, all others are asked in words; the client
makes one JSON of all three. A reply that is no form is asked for once more and then counted, as for
all systems here.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from pydantic import Field, GetJsonSchemaHandler, create_model, field_validator
from pydantic_core import CoreSchema

from vmem.baselines.forms import F, Form
from vmem.baselines.m2a_log import Pictures
from vmem.baselines.m2a_options import M2AOptions
from vmem.baselines.wording import Wording
from vmem.config import Settings
from vmem.errors import QueryError
from vmem.pipeline import Parts
from vmem.ports import ChatRequest
from vmem.types import Image

TOKEN = re.compile(r"<image\d+>")
"""What stands for a picture."""
TEMPLATE_TOKENS = 60
"""What a chat template takes around a prompt, at most."""
ENDS = frozenset({"answer", "done"})
"""What an agent chooses when it has done."""
CLOSING = 'No further call is allowed. Reply with JSON only: {"text": "..."}'


Tools = Mapping[str, tuple[str, ...]]
"""Tools by name, each with the fields that it takes."""


class Call(Form):
    """One call of an agent's.

    Attributes:
        takes: The agent's tools.
    """

    takes: ClassVar[Tools] = {}

    tool: str
    text: str = ""
    image: str = ""

    @field_validator("tool")
    @classmethod
    def _known(cls, tool: str) -> str:
        if tool not in cls.takes:
            raise ValueError(f"there is no {tool!r}")
        return tool

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """One object for each tool, with what that one takes and nothing else."""
        fields = handler.resolve_ref_schema(handler(core_schema))["properties"]
        return {
            "anyOf": [
                {
                    "type": "object",
                    "properties": {
                        "tool": {"type": "string", "enum": [tool]},
                        **{name: fields[name] for name in names},
                    },
                }
                for tool, names in cls.takes.items()
            ]
        }


C = TypeVar("C", bound=Call)


class Closing(Form):
    """What an agent says once no call is left to it."""

    kept_cut = words = True

    text: str


class Ask(Protocol):
    """Has a model fill in a form; None where it could not."""

    async def __call__(self, request: ChatRequest, form: type[F], /) -> F | None:
        """The form, filled in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of what an agent sees of its own work.

    Attributes:
        text: The line.
        images: The pictures that it names.
        opens: What came before may be forgotten up to here.
    """

    text: str
    images: tuple[Image, ...] = ()
    opens: bool = False

    @property
    def tokens(self) -> int:
        """Its length as the released code reckons: four characters a token."""
        return len(self.text) // 4 + 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """What an agent is given besides what it did so far.

    Attributes:
        values: The other placeholders of its prompt.
        images: The pictures that they name.
        pictures: The tokens of all pictures.
    """

    values: Mapping[str, str]
    images: tuple[Image, ...] = ()
    pictures: Pictures


@dataclass(slots=True, kw_only=True)
class Work:
    """One turn that is taken in, or one question: who is asked, and what is counted.

    Attributes:
        ask: Fills in a form.
        counts: Calls refused, calls of tools that made no sense, transcripts cut to the window.
        seen: Positions of the rounds whose memories or messages an agent looked at, in that order.
    """

    ask: Ask
    counts: Counter[str] = field(default_factory=Counter)
    seen: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[C]):
    """How an agent ended: with its last call, or with none, refused a further one or unreadable."""

    call: C | None
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """One agent with one task.

    Attributes:
        role: Its calls' in the ledger.
        wording: Its prompt; `transcript` is what it did so far.
        calls: Its call of this number is refused.
        forgets: Where the window is too short, its own earlier calls go one by one.
        settings: Temperature, and the model's window.
        options: Length of replies.
        parts: The backbone, and what reads pictures.
    """

    role: str
    wording: Wording
    calls: int
    forgets: bool = False
    settings: Settings
    options: M2AOptions
    parts: Parts

    async def run(
        self,
        work: Work,
        form: type[C],
        use: Callable[[C], Awaitable[Line]],
        lines: list[Line],
        brief: Brief,
    ) -> Outcome[C]:
        """Call tools until the agent has done, writing calls and what they gave below `lines`.

        Args:
            work: Who is asked.
            form: A call of this agent's.
            use: What a call gives; a `QueryError` is told to the agent.
            lines: What it sees of its work; grows.
            brief: What else it sees.
        """
        for number in range(1, self.calls + 1):
            shown = [*brief.values.values(), *(line.text for line in lines)]
            request = replace(self.request(work, lines, brief), calls_tool=True)
            call = await work.ask(request, naming(form, shown))
            if call is None or call.tool in ENDS:
                return Outcome(call=call)
            said = call.model_dump_json(exclude_defaults=True)
            lines.append(Line(text=f"You called {said}", opens=self.forgets))
            if number == self.calls:
                break
            try:
                lines.append(await use(call))
            except QueryError as error:
                work.counts["tool_faults"] += 1
                lines.append(Line(text=f"This does not work: {error}"))
        work.counts["calls_refused"] += 1
        lines.append(Line(text=CLOSING))
        return Outcome(call=None, refused=True)

    async def close(self, work: Work, lines: Sequence[Line], brief: Brief) -> str | None:
        """What an agent that was refused a call has to say."""
        closing = await work.ask(self.request(work, lines, brief), Closing)
        return closing.text.strip() if closing else None

    def request(self, work: Work, lines: Sequence[Line], brief: Brief) -> ChatRequest:
        """The next call; where it is longer than the model's window, the oldest lines go."""
        kept = list(lines)
        while True:
            shown = self._looked_at(kept, brief)
            prompt = self._prompt(kept, brief, shown)
            later = next((n for n, line in enumerate(kept) if n and line.opens), None)
            if later is None or self._fits(prompt):
                break
            kept = kept[later:]
            work.counts["transcripts_cut"] += 1
        return ChatRequest(
            role=self.role,
            prompt=prompt,
            images=tuple(self.parts.read_image(image.uri) for image in shown if image.uri),
            max_tokens=self.options.reply_tokens,
            temperature=self.settings.answer.temperature,
        )

    def _looked_at(self, lines: Sequence[Line], brief: Brief) -> list[Image]:
        """The pictures that go with a call, each once."""
        if not sees_pixels(self.settings, self.parts):
            return []
        images = [*brief.images, *(image for line in lines for image in line.images)]
        return list({image.uri: image for image in images if image.uri}.values())

    def _prompt(self, lines: Sequence[Line], brief: Brief, shown: Sequence[Image]) -> str:
        text = "\n".join(line.text for line in lines) or "(nothing yet)"
        if shown:
            tokens = " ".join(brief.pictures.token(image) for image in shown)
            text += f"\n(The pictures above this text are, in order: {tokens})"
        return self.wording.fill(**brief.values, transcript=text)

    def _fits(self, prompt: str) -> bool:
        window, chat = self.settings.llm.window, self.parts.chat
        if window is None or chat is None or self.settings.llm.provider == "none":
            return True
        return chat.count_tokens(prompt) + self.options.reply_tokens + TEMPLATE_TOKENS <= window


def naming(form: type[C], shown: Sequence[str]) -> type[C]:
    """A call's form whose schema allows no picture but those shown.

    Small models, held to a schema that wants a picture, else make one up in every call. A server
    without schemas may still name any: that is told to the agent, as in the released code.
    """
    tokens = dict.fromkeys(TOKEN.findall("\n".join(shown)))
    image = Field(default="", json_schema_extra={"enum": ["", *tokens]})
    return create_model(form.__name__, __base__=form, image=(str, image))


def sees_pixels(settings: Settings, parts: Parts) -> bool:
    """Whether the agents look at pictures; else they read captions."""
    return settings.answer.sees_pixels and parts.chat is not None and parts.chat.sees_images


def newest(lines: Sequence[Line], most_tokens: int) -> list[Line]:
    """The last lines that fit, from one that opens on; the last that opens always stays."""
    total, start = 0, len(lines)
    for number in range(len(lines) - 1, -1, -1):
        total += lines[number].tokens
        if total > most_tokens and any(line.opens for line in lines[start:]):
            break
        if lines[number].opens:
            start = number
    return list(lines[start:]) if start < len(lines) else list(lines)
