"""What Omni-SimpleMem has a model write while it builds: statements, and what nothing reads."""

from collections.abc import Sequence

from vmem.baselines.building import Step
from vmem.baselines.forms import Form
from vmem.baselines.wording import Wording
from vmem.config import Settings
from vmem.ports import ChatModel, ChatRequest

EARLIER = 3
"""Statements of the window before that are shown (the first of its last ten; run_locomo.py)."""
KEPT_EARLIER = 10
SHORTEST_STATEMENT = 6
"""Characters; run_locomo.py drops what is shorter."""
LONG_TEXT = 200
"""Characters above which a unit gets a summary (text_processor.py)."""
SUMMARIZED_CHARACTERS = 2_000
SUMMARY_TOKENS, ENTITY_TOKENS = 1_000, 1_000
"""`max_tokens` of the public code's configuration."""
TEMPLATE_TOKENS = 64
"""What a chat template takes around a prompt, at most."""


class Statements(Form):
    """What a window tells."""

    kept_cut = True

    statements: tuple[str, ...]


class Entity(Form):
    """Something that a unit is about."""

    name: str
    type: str = "CONCEPT"
    confidence: float = 0.8


class Relation(Form):
    """How two of these belong together."""

    subject: str
    predicate: str = "related_to"
    object: str
    confidence: float = 0.8


class Entities(Form):
    """What a unit is about."""

    kept_cut = True

    entities: tuple[Entity, ...]
    relations: tuple[Relation, ...] = ()


class Writer:
    """The calls of a build.

    Args:
        settings: `prompts.dir` may replace the prompts; `answer.temperature` is that of the calls.

    Raises:
        ConfigError: A replaced prompt cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        self._window = settings.llm.window
        self._temperature = settings.answer.temperature
        self._extract = Wording(settings.prompts, "omni_extract", "earlier", "messages")
        self._summary = Wording(settings.prompts, "omni_summary", "text")
        self._entities = Wording(settings.prompts, "omni_entities", "text")

    def windows(self, lines: Sequence[str], turns: int, chat: ChatModel) -> list[list[str]]:
        """Messages in windows: so many, or fewer where the model holds less.

        A prompt may fill half of the model's window; the reply has the other half.
        """
        room = None
        if self._window is not None:
            room = self._window // 2 - TEMPLATE_TOKENS - chat.count_tokens(self._prompt([], []))
        windows: list[list[str]] = []
        left = 0
        for line in lines:
            tokens = chat.count_tokens(line) if room is not None else 0
            if not windows or len(windows[-1]) == turns or (room is not None and tokens > left):
                windows.append([])
                left = room or 0
            windows[-1].append(line)
            left -= tokens
        return windows

    async def statements(
        self, window: Sequence[str], earlier: Sequence[str], reply_tokens: int, step: Step
    ) -> list[str] | None:
        """What a window tells; None where no reply could be read.

        Args:
            window: Its messages.
            earlier: The statements of the window before.
            reply_tokens: Length of the reply at most.
            step: The step that takes the window in.
        """
        shown = list(earlier[-KEPT_EARLIER:][:EARLIER])
        prompt = self._prompt(window, shown)
        if self._window is not None:
            used = step.building.chat.count_tokens(prompt) + TEMPLATE_TOKENS
            reply_tokens = max(16, min(reply_tokens, self._window - used))
        request = ChatRequest(
            role="extract",
            prompt=prompt,
            max_tokens=reply_tokens,
            temperature=self._temperature,
        )
        found = await step.fill(request, Statements)
        if found is None:
            return None
        bare = (" ".join(each.split()) for each in found.statements)
        return [each for each in bare if len(each) >= SHORTEST_STATEMENT]

    async def write_what_nothing_reads(self, text: str, step: Step) -> None:
        """A long unit's summary and any unit's entities, for what they cost."""
        if len(text) > LONG_TEXT:
            said = await step.write(
                ChatRequest(
                    role="summary",
                    prompt=self._summary.fill(text=text[:SUMMARIZED_CHARACTERS]),
                    max_tokens=SUMMARY_TOKENS,
                    temperature=self._temperature,
                )
            )
            text = said or text[:LONG_TEXT]
        await step.fill(
            ChatRequest(
                role="entities",
                prompt=self._entities.fill(text=text),
                max_tokens=ENTITY_TOKENS,
                temperature=self._temperature,
            ),
            Entities,
        )

    def _prompt(self, window: Sequence[str], earlier: Sequence[str]) -> str:
        return self._extract.fill(
            earlier="\n".join(f"- {each}" for each in earlier), messages="\n".join(window)
        )
