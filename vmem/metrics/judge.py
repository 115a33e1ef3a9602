"""The LLM judge: an answer and its reference become a score, or an error, never a silent 0."""

from dataclasses import dataclass

from vmem.errors import InputError, ModelFormatError
from vmem.ports import ChatModel, ChatReply, ChatRequest, Repeatable
from vmem.prompts.judge import (
    JudgeKind,
    JudgePrompt,
    JudgePrompts,
    Source,
    collapse,
    parse_judgement,
)
from vmem.types import Usage

MAX_TOKENS = 256
"""A level and a sentence; what is cut is the end of the sentence."""
AGAIN = "\n\nYour last reply could not be read. Reply with the JSON that was asked for, alone."
"""Put below the prompt of the second and last try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a judge says of one answer, and how it was asked.

    Attributes:
        kind: What the judge was asked for.
        level: The level as the model gave it: 0 to 1, of a binary judge 0 or 1.
        score: What the benchmark makes of it.
        reason: Why, in the model's words.
        model: The judge's name.
        prompt_source: Whose wording it was asked in.
        prompt_sha256: SHA-256 of that wording.
        repetition: Which judging of the same answer this is, from 0.
        asks: 1, or 2 where the first reply could not be read.
        usage: What the calls that gave a reply took.
    """

    kind: JudgeKind
    level: float
    score: float
    reason: str
    model: str
    prompt_source: Source
    prompt_sha256: str
    repetition: int
    asks: int
    usage: tuple[Usage, ...]


def is_unanswered(answer: str) -> bool:
    """Whether an answer is empty: it is counted as unanswered, and no judge is asked."""
    return not answer.strip()


class Judge:
    """A language model that compares answers with their references.

    Args:
        chat: The model.
        prompts: Where its prompt comes from.
        kind: What it is asked for.
        temperature: Sampling temperature.
        max_tokens: Length of its reply at most.

    Raises:
        ConfigError, DataError: The prompt cannot be used.
    """

    def __init__(
        self,
        chat: ChatModel,
        prompts: JudgePrompts,
        kind: JudgeKind,
        *,
        temperature: float = 0.0,
        max_tokens: int = MAX_TOKENS,
    ) -> None:
        self._chat = chat
        self._temperature = temperature
        self._max_tokens = max_tokens
        self.prompt: JudgePrompt = prompts.prompt(kind)

    async def judge(
        self, question: str, reference: str, answer: str, repetition: int = 0
    ) -> Verdict:
        """Judge one answer; a reply that cannot be read is asked for once more.

        Args:
            question: What was asked.
            reference: The gold answer.
            answer: The answer under test.
            repetition: Which judging of the same answer this is; a model behind a cache is asked
                anew for each.

        Raises:
            InputError: Answer or reference is empty.
            ModelFormatError: Both replies were empty or could not be read.
            ModelError: The call failed.
        """
        if is_unanswered(answer):
            raise InputError("an empty answer is not judged: count it as unanswered")
        if not reference.strip():
            raise InputError(f"there is no reference to judge by for the question {question!r}")
        chat = self._chat
        if isinstance(chat, Repeatable):
            chat = chat.repetition(repetition)
        prompt = self.prompt.fill(question, reference, answer)
        usage: list[Usage] = []
        try:
            level, reason = await self._ask(chat, prompt, usage)
            asks = 1
        except ModelFormatError:
            level, reason = await self._ask(chat, prompt + AGAIN, usage)
            asks = 2
        return Verdict(
            kind=self.prompt.kind,
            level=level,
            score=collapse(level, self.prompt.kind),
            reason=reason,
            model=chat.name,
            prompt_source=self.prompt.source,
            prompt_sha256=self.prompt.sha256,
            repetition=repetition,
            asks=asks,
            usage=tuple(usage),
        )

    async def _ask(self, chat: ChatModel, prompt: str, usage: list[Usage]) -> tuple[float, str]:
        reply: ChatReply = await chat.complete(
            ChatRequest(
                role="judge",
                prompt=prompt,
                max_tokens=self._max_tokens,
                temperature=self._temperature,
                json_schema=self.prompt.json_schema,
            )
        )
        usage.append(reply.usage)
        return parse_judgement(reply.text, self.prompt.kind, cut=reply.finish_reason == "length")
