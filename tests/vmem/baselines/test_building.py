"""Steps of a build: what counts, what ends it, and how a killed one goes on; scripted models."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from vmem.baselines.building import Building
from vmem.baselines.forms import AGAIN, Form, fill_form, read_form, strict_schema
from vmem.errors import ModelError, ModelFormatError, ModelUnavailableError, StoreError
from vmem.llm.fake import FakeChat
from vmem.llm.metered import MeteredChat
from vmem.ports import ChatReply, ChatRequest


class Item(Form):
    text: str
    tags: tuple[str, ...] = ()


class Note(Form):
    items: tuple[Item, ...]


GOOD = json.dumps({"items": [{"text": "a"}]})
ASK = ChatRequest(role="note", prompt="List them.")


def filled(*script: str | Exception) -> tuple[Any, FakeChat]:
    chat = FakeChat(script)
    return asyncio.run(fill_form(chat, ASK, Note)), chat


@pytest.mark.parametrize(
    "reply",
    [
        GOOD,
        f"Here you are:\n```json\n{GOOD}\n```",
        f'{{"thought": "none of these"}} {GOOD}',
        f"{GOOD} and so on and so",
        f'{{"note": {GOOD}}}',
    ],
)
def test_a_form_is_found_whatever_stands_around_it(reply: str) -> None:
    assert read_form(reply, Note) == Note(items=(Item(text="a"),))


@pytest.mark.parametrize("reply", ["", "none", '{"items": [{"text": "a"', '{"items": [{}]}', "[1]"])
def test_what_is_no_form_is_asked_for_once_more_and_not_a_third_time(reply: str) -> None:
    found, chat = filled(reply, GOOD)
    assert (found.value, found.asks) == (Note(items=(Item(text="a"),)), 2)
    found, chat = filled(reply, reply)
    assert (found.value, found.asks) == (None, 2) and found.error
    assert [request.prompt for request in chat.requests] == [ASK.prompt, ASK.prompt + AGAIN]
    assert len(found.usage) == 2


def test_a_number_may_stand_for_a_text() -> None:
    assert read_form('{"items": [{"text": 2}]}', Note) == Note(items=(Item(text="2"),))


def test_an_empty_reply_is_an_unreadable_one() -> None:
    found, _ = filled(ModelFormatError("nothing"), GOOD)
    assert found.value is not None and len(found.usage) == 1


def test_a_call_that_fails_otherwise_is_not_asked_again() -> None:
    with pytest.raises(ModelUnavailableError):
        filled(ModelUnavailableError("gone"), GOOD)


def test_a_schema_is_strict_all_the_way_down() -> None:
    schema = strict_schema(Note)
    assert (schema["required"], schema["additionalProperties"]) == (["items"], False)
    inner = schema["$defs"]["Item"]
    assert (inner["required"], inner["additionalProperties"]) == (["text", "tags"], False)
    assert "default" not in json.dumps(schema)


async def _take_in(building: Building, turns: Sequence[str]) -> list[str | None]:
    """A build whose every step reads what the step before it gave."""
    kept: list[str | None] = []
    for turn in turns:
        with building.step(turn) as step:
            said = await step.write(ChatRequest(role="note", prompt=f"{turn} after {kept[-1:]}"))
            note = await step.fill(ChatRequest(role="form", prompt=f"{said}"), Note)
            if turn.startswith("cut"):
                step.truncated()
            kept.append(said if note is None else note.items[0].text)
    return kept


def scripted(request: ChatRequest) -> str:
    if request.role == "note":
        return f"note {len(request.prompt)} {request.prompt[:3]}"
    return "no form" if "bad" in request.prompt else json.dumps({"items": [{"text": "it"}]})


def test_faults_are_counted_once_a_step() -> None:
    building = Building(FakeChat(scripted), "d")
    asyncio.run(_take_in(building, ["one", "bad", "cut", "cut bad", "bad again"]))
    cost = building.cost({"notes": 5})
    assert cost.counts == {
        "notes": 5,
        "steps": 5,
        "steps_failed": 2,
        "steps_truncated": 2,
        "steps_skipped": 0,
    }
    assert [usage.role for usage in cost.usage].count("form") == 5 + 2


def test_no_step_is_taken_in_twice() -> None:
    building = Building(FakeChat(scripted), "d")
    with pytest.raises(StoreError, match="dialogue d: step one was taken in before"):
        asyncio.run(_take_in(building, ["one", "two", "one"]))


def test_a_reply_cut_at_its_limit_is_truncated_and_an_empty_one_failed() -> None:
    class Cut(FakeChat):
        async def complete(self, request: ChatRequest) -> ChatReply:
            reply = await super().complete(request)
            return ChatReply(text=reply.text, usage=reply.usage, finish_reason="length")

    async def write(chat: FakeChat) -> Any:
        building = Building(chat, "d")
        with building.step("one") as step:
            said = await step.write(ASK)
        return said, building.cost({}).counts

    assert asyncio.run(write(Cut(["words"])))[1]["steps_truncated"] == 1
    said, counts = asyncio.run(write(FakeChat([ModelFormatError("empty")])))
    assert said is None and counts["steps_failed"] == 1


def test_a_rejected_call_fails_its_step_unless_all_are_rejected() -> None:
    async def take(*script: str | Exception) -> Any:
        building = Building(FakeChat(script), "d")
        for number in range(2):
            with building.step(f"{number}") as step:
                await step.write(ASK)
        return building.cost({}).counts["steps_failed"]

    assert asyncio.run(take("words", ModelError("filtered"))) == 1
    with pytest.raises(ModelError, match="no key"):
        asyncio.run(take(ModelError("no key"), "words"))
    with pytest.raises(ModelUnavailableError):
        asyncio.run(take("words", ModelUnavailableError("gone")))


class Killed(BaseException):
    """As if the process ended here."""


@pytest.mark.parametrize("after", range(9))
def test_a_killed_build_goes_on_and_pays_for_nothing_twice(
    metered: Callable[[Any], MeteredChat], after: int
) -> None:
    """A whole build, one killed at its call `after`, and the same one run again."""
    turns = ["one", "bad", "two", "three"]  # 2 calls a step, 3 of the one that fails
    whole = FakeChat(scripted)
    expected = asyncio.run(_take_in(Building(whole, "d"), turns))
    asked: list[ChatRequest] = []

    def dying(request: ChatRequest) -> str:
        if len(asked) == after:
            raise Killed
        asked.append(request)
        return scripted(request)

    def going_on(request: ChatRequest) -> str:
        asked.append(request)
        return scripted(request)

    with pytest.raises(Killed):
        asyncio.run(_take_in(Building(metered(FakeChat(dying)), "d"), turns))
    building = Building(metered(FakeChat(going_on)), "d")
    assert asyncio.run(_take_in(building, turns)) == expected
    assert asked == whole.requests
    replayed = [usage.cached for usage in building.usage]
    assert replayed == [True] * after + [False] * (9 - after)
    assert building.cost({}).counts["steps_failed"] == 1
