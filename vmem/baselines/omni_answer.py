"""How Omni-SimpleMem answers: thoughts and a short phrase as JSON, or by the kind of question."""

import re
import time
from collections.abc import Mapping
from dataclasses import replace

from vmem.baselines.forms import Form, fill_form
from vmem.baselines.omni_released import ASKS_DATE, TASKS, is_temporal
from vmem.baselines.wording import Wording
from vmem.config import Settings
from vmem.ports import ChatModel, ChatRequest
from vmem.prompts import NOT_FOUND
from vmem.types import Answer, Failure, Retrieval

THOUGHT_TOKENS = 128
"""Tokens for the thoughts, beside those of the answer."""
MOST_WORDS = 12
"""Words of a reply's first sentence that are taken where it is no JSON (orchestrator.py)."""

_WRONG_YEAR = re.compile(r"\b202[5-9]\b")


class Reply(Form):
    """Thoughts, and the answer."""

    reasoning: str = ""
    answer: str


class OmniAnswers:
    """The answer calls.

    Args:
        chat: The backbone.
        settings: Length and temperature; `prompts.dir` may replace the prompts.

    Raises:
        ConfigError: A replaced prompt cannot be used.
    """

    def __init__(self, chat: ChatModel, settings: Settings) -> None:
        self._chat = chat
        self._settings = settings

    async def answer(self, retrieval: Retrieval) -> Answer:
        """Answer without knowing what kind of question it is.

        Raises:
            ModelError: The call failed.
        """
        return await self._as_json(retrieval, "omni_answer", {"not_found": NOT_FOUND})

    async def answer_as_released(
        self, retrieval: Retrieval, category: str, from_windows: bool
    ) -> Answer:
        """Answer with the prompt, and the corrections, that belong to the gold category.

        Raises:
            ModelError: The call failed.
        """
        if not from_windows:
            return await self._in_words(retrieval, TASKS.get(category, ""))
        answer = await self._as_json(retrieval, "omni_answer_locomo", {}, is_temporal(category))
        if is_temporal(category) and _WRONG_YEAR.search(answer.text):
            return replace(answer, text="unknown")
        return answer

    async def _as_json(
        self, retrieval: Retrieval, name: str, values: Mapping[str, str], asks_date: bool = False
    ) -> Answer:
        started = time.perf_counter()
        question = retrieval.query.text
        if asks_date:
            question += ASKS_DATE
        wording = Wording(self._settings.prompts, name, "context", "question", *values)
        request = ChatRequest(
            role="answer",
            prompt=wording.fill(context=retrieval.context.text, question=question, **values),
            max_tokens=self._settings.answer.max_tokens + THOUGHT_TOKENS,
            temperature=self._settings.answer.temperature,
        )
        filled = await fill_form(self._chat, request, Reply)
        text = _first_words(filled.reply) if filled.value is None else filled.value.answer.strip()
        if filled.value is None:
            failure = Failure(role="answer", error="ModelFormatError")
            anchors = retrieval.anchors
            retrieval = replace(
                retrieval, anchors=replace(anchors, failures=(*anchors.failures, failure))
            )
        return Answer(
            text=text,
            retrieval=retrieval,
            prompt=request.prompt,
            usage=(*retrieval.anchors.usage, *filled.usage),
            seconds={**retrieval.seconds, "answer": time.perf_counter() - started},
        )

    async def _in_words(self, retrieval: Retrieval, task: str) -> Answer:
        started = time.perf_counter()
        wording = Wording(
            self._settings.prompts, "omni_answer_gallery", "context", "question", "task"
        )
        request = ChatRequest(
            role="answer",
            prompt=wording.fill(
                context=retrieval.context.text, question=retrieval.query.text, task=task
            ),
            max_tokens=self._settings.answer.max_tokens,
            temperature=self._settings.answer.temperature,
        )
        reply = await self._chat.complete(request)
        return Answer(
            text=reply.text.strip(),
            retrieval=retrieval,
            prompt=request.prompt,
            usage=(*retrieval.anchors.usage, reply.usage),
            seconds={**retrieval.seconds, "answer": time.perf_counter() - started},
        )


def _first_words(reply: str) -> str:
    """The first sentence of a reply that is no JSON, at most twelve words of it."""
    first = re.split(r"(?<=[.!?])\s+", reply.strip())[0]
    return " ".join(first.split()[:MOST_WORDS])
