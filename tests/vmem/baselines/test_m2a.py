"""M2A on the sample conversation and tiny ones; the models are scripted."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from vmem.baselines.forms import AGAIN, read_form, strict_schema
from vmem.baselines.m2a import M2A
from vmem.baselines.m2a_memory_agent import Recall, Record
from vmem.baselines.m2a_options import M2AOptions
from vmem.config import Settings, replace
from vmem.errors import ConfigError, ModelFormatError, ModelUnavailableError
from vmem.llm.fake import FakeChat
from vmem.llm.metered import MeteredChat
from vmem.pipeline import Parts
from vmem.ports import ChatModel, ChatRequest, MemorySystem, Oracle
from vmem.types import Benchmark, Dialogue, Image, Query, Round, Turn

PartsWith = Callable[[ChatModel | None], Parts]
SAID = ("I feed the ravens.", "The ravens are back.", "My kite is torn.")
DONE = {"tool": "done"}


def talk(*texts: str, images: Sequence[Image] = ()) -> Dialogue:
    rounds = tuple(
        Round(
            id=f"D1:{number}",
            position=number,
            session="D1",
            time=f"2026-05-0{number + 1}T09:00",
            turns=(
                Turn(
                    source_id=f"D1:{number}",
                    speaker="Ada",
                    text=text,
                    images=tuple(images) if number == 0 else (),
                ),
            ),
        )
        for number, text in enumerate(texts)
    )
    return Dialogue(id="d", rounds=rounds)


def done_lines(request: ChatRequest) -> list[str]:
    """What an agent did since its message, question or task."""
    tag = "done" if request.role == "m2a_memory" else "messages"
    inside = request.prompt.split(f"<{tag}>")[1].split(f"</{tag}>")[0].strip().splitlines()
    if tag == "done":
        return inside
    opened = [n for n, line in enumerate(inside) if line.startswith(("#", "Question:"))]
    return inside[opened[-1] + 1 :]


def scripted(request: ChatRequest) -> str:
    """Each message is recorded once, resting on itself; a question is looked up once."""
    called = [line for line in done_lines(request) if line.startswith("You called")]
    if request.role == "m2a_take_in":
        return json.dumps(DONE if called else {"tool": "update_memory", "text": "Note it."})
    if request.role == "answer":
        return json.dumps(
            {"tool": "answer", "text": "on Friday"}
            if called
            else {"tool": "query_memory", "text": "ravens"}
        )
    recent = request.prompt.split("<recent>")[1].split("</recent>")[0].strip().splitlines()
    number, words = recent[-1].split(" | ")[0].lstrip("#"), recent[-1].split(" | ")[2]
    if "<asked>" in request.prompt:
        steps = [
            {"tool": "search", "text": "ravens"},
            {"tool": "answer", "text": "Ada feeds them."},
        ]
    else:
        add = {"tool": "add", "text": words, "messages": [[int(number), int(number)]]}
        steps = [{"tool": "search", "text": words}, add, DONE]
    return json.dumps(steps[len(called)])


def built(dialogue: Dialogue, parts: Parts, settings: Settings, **options: int) -> Any:
    system = M2A(name="m2a", settings=settings, parts=parts, options=M2AOptions(**options))
    return asyncio.run(system.build(dialogue))


def test_the_sample_is_taken_in_turn_by_turn_and_asked(
    sample: Benchmark, runtime: Settings, parts_with: PartsWith
) -> None:
    chat = FakeChat(scripted, sees_images=True)
    dialogue = sample.dialogues[0]
    pixels = replace(runtime, answer={"sees_pixels": True})
    memory: MemorySystem = built(dialogue, parts_with(chat), pixels)
    turns = sum(len(r.turns) for r in dialogue.rounds)
    counts = memory.cost.counts
    assert counts["messages"] == counts["memories"] == counts["steps"] == turns
    assert counts["steps_failed"] == counts["steps_skipped"] == counts["calls_refused"] == 0
    roles = [request.role for request in chat.requests]
    assert roles == (["m2a_take_in"] + ["m2a_memory"] * 3 + ["m2a_take_in"]) * turns
    assert any(request.images for request in chat.requests)
    answer = asyncio.run(memory.answer(sample.questions[0].query))
    assert answer.text == "on Friday"
    assert [usage.role for usage in answer.usage] == [
        "answer",
        "m2a_memory",
        "m2a_memory",
        "answer",
    ]
    assert answer.retrieval.context.text.endswith("The memory says: Ada feeds them.")
    assert answer.retrieval.ranked


def test_a_memory_rests_on_messages_and_so_finds_their_rounds(
    runtime: Settings, parts_with: PartsWith
) -> None:
    memory = built(talk(*SAID), parts_with(FakeChat(scripted)), runtime, text=2)
    held = memory.levels.memories.memories
    assert [m.text for m in held.values()] == [f"Ada: {words}" for words in SAID]
    assert [m.evidence for m in held.values()] == [((n, n),) for n in (1, 2, 3)]
    answer = asyncio.run(memory.answer(Query(text="What do I feed?")))
    assert {item.position for item in answer.retrieval.ranked} == {0, 1}  # the two with ravens


def test_an_agent_s_last_call_is_refused_and_it_says_what_it_has(
    runtime: Settings, parts_with: PartsWith
) -> None:
    def never_ends(request: ChatRequest) -> str:
        if not request.calls_tool:
            return json.dumps({"text": "so far nothing"})
        if request.role == "answer":
            return json.dumps({"tool": "query_memory", "text": "ravens"})
        return json.dumps({"tool": "search", "text": "ravens"})

    memory = built(
        talk(SAID[0]), parts_with(FakeChat(scripted)), runtime, chat_calls=3, memory_calls=4
    )
    chat = FakeChat(never_ends)
    memory.parts, memory.chat = parts_with(chat), chat
    answer = asyncio.run(memory.answer(Query(text="What do I feed?")))
    assert answer.text == "so far nothing"
    one_search = ["m2a_memory"] * (4 + 1)  # the fourth is refused, then it says what it has
    assert [r.role for r in chat.requests] == [
        *("answer", *one_search, "answer", *one_search, "answer"),  # the third is refused
        "answer",
    ]
    assert "calls_refused: 3" in answer.retrieval.anchors.notes


def test_while_messages_are_taken_in_nothing_is_asked_after_a_refused_call(
    runtime: Settings, parts_with: PartsWith
) -> None:
    def records_for_ever(request: ChatRequest) -> str:
        if request.role == "m2a_take_in":
            return json.dumps({"tool": "update_memory", "text": "Note it."})
        return json.dumps(DONE)

    chat = FakeChat(records_for_ever)
    memory = built(talk(SAID[0]), parts_with(chat), runtime, chat_calls=3)
    roles = [request.role for request in chat.requests]
    assert roles == ["m2a_take_in", "m2a_memory"] * 2 + ["m2a_take_in"]
    assert memory.cost.counts["calls_refused"] == 1
    assert memory.cost.counts["steps_failed"] == 0


@pytest.mark.parametrize(
    "call",
    [
        {"tool": "add", "text": "x", "image": "<image7>"},
        {"tool": "add", "text": "x", "messages": [[5, 2]]},
        {"tool": "add"},
        {"tool": "delete", "memory": 9},
        {"tool": "search"},
        {"tool": "fetch_by_day", "start": "May", "end": "June"},
    ],
)
def test_a_call_that_makes_no_sense_is_told_to_the_agent_and_counted(
    call: dict[str, Any], runtime: Settings, parts_with: PartsWith
) -> None:
    def errs(request: ChatRequest) -> str:
        if request.role == "m2a_memory" and not done_lines(request)[1:]:
            return json.dumps(call)
        return json.dumps(DONE) if request.role == "m2a_memory" else scripted(request)

    chat = FakeChat(errs)
    memory = built(talk(SAID[0]), parts_with(chat), runtime)
    assert memory.cost.counts["tool_faults"] == 1
    assert memory.cost.counts["memories_made"] == 0
    assert sum("This does not work" in request.prompt for request in chat.requests) == 1


def test_a_reply_that_is_no_call_fails_the_step_or_the_question(
    runtime: Settings, parts_with: PartsWith
) -> None:
    def mumbles(request: ChatRequest) -> str:
        messages = [line for line in request.prompt.splitlines() if line.startswith("#")]
        lost = request.role == "m2a_take_in" and SAID[1] in messages[-1]
        return "Hm." if lost else scripted(request)

    chat = FakeChat(mumbles)
    memory = built(talk(*SAID), parts_with(chat), runtime)
    assert memory.cost.counts["steps_failed"] == 1
    assert (memory.cost.counts["messages"], memory.cost.counts["memories"]) == (3, 2)
    assert sum(request.prompt.endswith(AGAIN) for request in chat.requests) == 1
    mute = FakeChat(lambda request: "Hm.")
    memory.parts, memory.chat = parts_with(mute), mute
    with pytest.raises(ModelFormatError, match="answer"):
        asyncio.run(memory.answer(Query(text="What do I feed?")))
    assert len(mute.requests) == 2


def test_an_agent_is_offered_the_pictures_that_it_was_shown_and_no_other(
    runtime: Settings, parts_with: PartsWith
) -> None:
    chat = FakeChat(scripted)
    pictures = [Image(id=id_, caption=f"a {id_}") for id_ in ("kite", "raven")]
    built(talk(*SAID[:2], images=pictures), parts_with(chat), runtime)
    shown = {("", "<image0>", "<image1>")}  # both messages are recent in all calls
    assert [offered(request) for request in chat.requests] == [shown] * 10
    chat.requests.clear()
    built(talk(*SAID[:2]), parts_with(chat), runtime)
    assert [offered(request) for request in chat.requests] == [{("",)}] * 10


def offered(request: ChatRequest) -> set[tuple[str, ...]]:
    """The pictures that each tool may be called with."""
    assert request.json_schema is not None
    calls = [each["properties"] for each in request.json_schema["anyOf"]]
    return {tuple(takes["image"]["enum"]) for takes in calls if "image" in takes}


def test_each_tool_is_offered_with_what_it_takes_and_nothing_else() -> None:
    calls = [each["properties"] for each in strict_schema(Record)["anyOf"]]
    assert {call["tool"]["enum"][0]: list(call) for call in calls} == {
        "search": ["tool", "text", "image"],
        "fetch": ["tool", "messages"],
        "fetch_by_day": ["tool", "start", "end"],
        "add": ["tool", "text", "image", "caption", "messages"],
        "delete": ["tool", "memory"],
        "done": ["tool"],
    }


def test_a_tool_that_the_agent_has_not_is_no_call() -> None:
    with pytest.raises(ModelFormatError, match="there is no 'add'"):
        read_form('{"tool": "add", "text": "x"}', Recall)


def test_messages_are_fetched_by_number_and_by_day_no_more_than_allowed(
    runtime: Settings, parts_with: PartsWith
) -> None:
    calls = [
        {"tool": "fetch", "messages": [[1, 99]]},
        {"tool": "fetch_by_day", "start": "2026-05-03", "end": "2026-05-03"},
        {"tool": "answer", "text": "that"},
    ]

    def fetches(request: ChatRequest) -> str:
        called = [line for line in done_lines(request) if line.startswith("You called")]
        return json.dumps(calls[len(called)]) if request.role == "m2a_memory" else scripted(request)

    memory = built(talk(*SAID), parts_with(FakeChat(scripted)), runtime, fetched=2, beginning=4)
    chat = FakeChat(fetches)
    memory.parts, memory.chat = parts_with(chat), chat
    answer = asyncio.run(memory.answer(Query(text="What?")))
    seen = chat.requests[-2].prompt.split("<done>")[1]
    assert "#2 | 2026-05-02 09:00 | Ada: The ravens are back." in seen
    assert "(1 more were left out)" in seen
    assert "#3 | 2026-05-03 09:00 | Ada: My k\n" in seen
    assert [item.position for item in answer.retrieval.ranked] == [0, 1, 2]


def test_the_oldest_messages_go_where_the_window_is_short_and_the_turn_counts_as_cut(
    runtime: Settings, parts_with: PartsWith
) -> None:
    chat = FakeChat(lambda request: json.dumps(DONE))
    built(talk(SAID[0]), parts_with(chat), runtime)
    words = chat.count_tokens(chat.requests[0].prompt)
    longer = tuple(f"{words} word" * 60 for words in SAID)
    room = words + 60 + 60 + 150  # the reply, the template, and one long message but not two
    short = replace(runtime, llm={"context_window": max(256, room)})
    memory = built(talk(*longer), parts_with(chat), short, reply_tokens=60)
    assert memory.cost.counts["steps_truncated"] >= 1
    assert memory.cost.counts["steps_failed"] == 0


def test_a_killed_build_goes_on_and_pays_for_no_call_twice(
    runtime: Settings, parts_with: PartsWith, metered: Callable[[Any], MeteredChat]
) -> None:
    class Dying(FakeChat):
        left = 7

        async def complete(self, request: ChatRequest) -> Any:
            self.left -= 1
            if self.left < 0:
                raise ModelUnavailableError("gone")
            return await super().complete(request)

    whole = built(talk(*SAID), parts_with(FakeChat(scripted)), runtime)
    first, second = Dying(scripted), FakeChat(scripted)
    with pytest.raises(ModelUnavailableError):
        built(talk(*SAID), parts_with(metered(first)), runtime)
    again = built(talk(*SAID), parts_with(metered(second)), runtime)
    assert (len(first.requests), len(second.requests)) == (7, 5 * len(SAID) - 7)
    assert again.levels.memories.memories == whole.levels.memories.memories
    assert again.cost.counts == whole.cost.counts


def test_it_takes_no_oracle_and_texts_among_pictures_need_an_encoder_that_can(
    runtime: Settings, parts_with: PartsWith
) -> None:
    memory = built(talk(SAID[0]), parts_with(FakeChat(scripted)), runtime)
    gold = Oracle(reference="Sunday", category="2", evidence=frozenset())
    with pytest.raises(ConfigError, match="no oracle run"):
        asyncio.run(memory.answer(Query(text="When?"), gold))
    with pytest.raises(ConfigError, match="text tower"):
        built(talk(SAID[0]), parts_with(FakeChat(scripted)), runtime, text_to_image=5)
