"""Replies that end at their limit of tokens: what was said in full is kept, and the step marked."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from vmem.baselines.amem_writing import EvolutionForm, NoteForm, RewriteForm
from vmem.baselines.building import Building
from vmem.baselines.forms import AGAIN, Form
from vmem.baselines.m2a_chat_agent import Inquire
from vmem.baselines.m2a_loop import Closing
from vmem.baselines.m2a_memory_agent import Record
from vmem.baselines.omni_writing import Entities, Entity, Statements
from vmem.llm.fake import FakeChat
from vmem.ports import ChatReply, ChatRequest

STATEMENTS = '{"statements": ["One, of two", "Two \\"and\\" {three}", "Thr'
TWO = Statements(statements=("One, of two", 'Two "and" {three}'))


class Cut(FakeChat):
    """All of its replies end at their limit."""

    async def complete(self, request: ChatRequest) -> ChatReply:
        reply = await super().complete(request)
        return ChatReply(text=reply.text, usage=reply.usage, finish_reason="length")


def filled(form: type[Form], replies: Sequence[str]) -> tuple[Any, dict[str, int], list[str]]:
    async def fill() -> Any:
        with building.step("one") as step:
            return await step.fill(ChatRequest(role="x", prompt="List."), form)

    chat = Cut(replies)
    building = Building(chat, "d")
    value = asyncio.run(fill())
    counts = dict(building.cost({}).counts)
    return value, counts, [request.prompt for request in chat.requests]


@pytest.mark.parametrize(
    ("reply", "kept"),
    [
        (STATEMENTS, TWO),
        (f"Here they are: {STATEMENTS}", TWO),
        (STATEMENTS + "\\", TWO),
        (STATEMENTS.rpartition(",")[0], TWO.model_copy(update={"statements": ("One, of two",)})),
        (
            '{"entities": [{"name": "Ann", "type": "PERSON"}, {"name": "Bo',
            Entities(entities=(Entity(name="Ann", type="PERSON"),)),
        ),
        (
            '{"decision": "both", "links": [1, 12',  # of 123, perhaps
            EvolutionForm(decision="both", links=[1]),
        ),
        (
            '{"decision": "update", "rewrites": [{"note": 1, "tags": ["a"]}, {"note": 2, "tags": [',
            EvolutionForm(decision="update", rewrites=[RewriteForm(note=1, tags=["a"])]),
        ),
        (
            '{"keywords": ["a", "b"], "context": "c", "tags": ["d", "e',
            NoteForm(keywords=["a", "b"], context="c", tags=["d"]),
        ),
        ('{"text": "She went to Hvar, and th', Closing(text="She went to Hvar, and th")),
        ('{"tool": "answer", "text": "In May, I th', Inquire(tool="answer", text="In May, I th")),
    ],
)
def test_whole_entries_are_kept_without_asking_again(reply: str, kept: Form) -> None:
    value, counts, prompts = filled(type(kept), [reply])
    assert value == kept
    assert prompts == ["List."]
    assert (counts["steps_truncated"], counts["steps_failed"]) == (1, 0)


@pytest.mark.parametrize(
    ("reply", "form"),
    [
        ("Well, ", Statements),
        ('{"statements": [', Statements),
        ('{"statements": ["Not one in fu', Statements),
        ('{"statements": 3, "and": "', Statements),
        ('{"keywords": ["a"], "context": "c', NoteForm),
        ('{"keywords": [], "context": "c", "tags": ["d"', NoteForm),
        ('{"decision": "bo', EvolutionForm),
        ('{"tool": "add", "text": "half of wha', Record),  # half a call is none
        ('{"tool": "query_memory", "text": "When di', Inquire),
        ('{"tool": "answer", "text": "', Inquire),
        ('{"text": "', Closing),
    ],
)
def test_where_nothing_can_be_read_it_is_asked_for_once_again(reply: str, form: type[Form]) -> None:
    value, counts, prompts = filled(form, [reply, reply])
    assert value is None
    assert prompts == ["List.", f"List.{AGAIN}"]
    assert (counts["steps_truncated"], counts["steps_failed"]) == (0, 1)


def test_the_second_reply_may_be_a_cut_one_too() -> None:
    value, counts, prompts = filled(Statements, ['{"statements": [', STATEMENTS])
    assert (value, len(prompts)) == (TWO, 2)
    assert (counts["steps_truncated"], counts["steps_failed"]) == (1, 0)


def test_a_whole_reply_that_ends_just_at_the_limit_is_not_truncated() -> None:
    value, counts, _ = filled(Statements, ['{"statements": ["One, of two"]} and'])
    assert value is not None
    assert (counts["steps_truncated"], counts["steps_failed"]) == (0, 0)
