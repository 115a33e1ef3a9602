"""A-Mem on the sample conversation and a tiny one; the models are scripted."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from vmem.baselines.amem import AMem
from vmem.baselines.amem_notes import Evolution, Note, Notes, Rewrite, note_content
from vmem.baselines.amem_writing import AMemOptions
from vmem.baselines.forms import AGAIN
from vmem.config import Settings
from vmem.encoders.fake import FakeTextEncoder
from vmem.errors import ConfigError, ModelUnavailableError
from vmem.llm.fake import FakeChat
from vmem.llm.metered import MeteredChat
from vmem.pipeline import Parts
from vmem.ports import ChatModel, ChatReply, ChatRequest, MemorySystem, Oracle
from vmem.types import Benchmark, Dialogue, Image, Query, Round, Turn

PartsWith = Callable[[ChatModel | None], Parts]
SAID = ("I feed the ravens.", "The ravens are back.", "My kite is torn.", "The kite flies again.")


def talk(*texts: str) -> Dialogue:
    rounds = tuple(
        Round(
            id=f"D1:{number}",
            position=number,
            session="D1",
            time=f"2026-05-0{number + 1}",
            turns=(Turn(source_id=f"D1:{number}", speaker="Ada", text=text),),
        )
        for number, text in enumerate(texts)
    )
    return Dialogue(id="d", rounds=rounds)


def note_reply(*keywords: str) -> str:
    return json.dumps(
        {"keywords": keywords or ["bird"], "context": "of birds", "tags": ["animals"]}
    )


def scripted(request: ChatRequest) -> str:
    """Every note links to note 0 and rewrites it; questions are searched for by 'ravens'."""
    if request.role == "amem_note":
        return note_reply()
    if request.role == "amem_evolve":
        rewrite = {"note": 0, "context": "of a flock", "tags": ["flock"]}
        return json.dumps(
            {"decision": "both", "links": [0], "tags": ["again"], "rewrites": [rewrite]}
        )
    return "ravens" if request.role == "query_keywords" else "on Sunday"


def built(dialogue: Dialogue, parts: Parts, settings: Settings, **options: Any) -> Any:
    system = AMem(name="a-mem", settings=settings, parts=parts, options=AMemOptions(**options))
    return asyncio.run(system.build(dialogue))


@pytest.mark.parametrize("note_of", ["auto", "turn"])
def test_the_sample_is_taken_in_step_by_step_and_asked(
    note_of: str, sample: Benchmark, runtime: Settings, parts_with: PartsWith
) -> None:
    chat = FakeChat(scripted)
    dialogue = sample.dialogues[0]
    memory: MemorySystem = built(dialogue, parts_with(chat), runtime, note_of=note_of)
    # A user and an assistant: a note is made of their exchange, unless turns are asked for.
    parts = [r.turns for r in dialogue.rounds]
    if note_of == "turn":
        parts = [(turn,) for r in dialogue.rounds for turn in r.turns]
    told = [part for part in parts if any(note_content(turn) for turn in part)]
    counts = memory.cost.counts
    assert (counts["notes"], counts["steps"]) == (len(told), len(parts))
    assert counts["steps_skipped"] == len(parts) - len(told)
    assert counts["steps_failed"] == counts["steps_truncated"] == 0
    roles = [request.role for request in chat.requests]
    assert roles == ["amem_note"] + ["amem_note", "amem_evolve"] * (len(told) - 1)
    answer = asyncio.run(memory.answer(sample.questions[0].query))
    assert answer.text == "on Sunday"
    assert [usage.role for usage in answer.usage] == ["query_keywords", "answer"]
    assert answer.retrieval.context.positions
    assert answer.retrieval.context.text in answer.prompt


def test_only_notes_that_were_shown_are_linked_and_rewritten() -> None:
    notes = Notes(encoder=FakeTextEncoder(), reencode_every=100)
    for number, text in enumerate(SAID[:3]):
        notes.add(Note(position=number, time="2026-05-01", content=text), Evolution(), ())
    notes.notes[1].context, notes.notes[1].tags = "old", ("old",)
    evolution = Evolution(
        strengthens=True,
        updates=True,
        links=(1, 2, 7, 1),
        rewrites=(
            Rewrite(note=1, context="", tags=("new",)),
            Rewrite(note=2, context="not shown", tags=()),
        ),
    )
    notes.add(
        Note(position=3, time="2026-05-02", content=SAID[3], tags=("own",)), evolution, (0, 1)
    )
    assert (notes.notes[3].links, notes.notes[3].tags) == ((1,), ("own",))
    assert (notes.notes[1].context, notes.notes[1].tags) == ("old", ("new",))
    assert notes.notes[2].context == ""
    assert notes.unknown == 3  # links to 2 and 7, a rewrite of 2


def test_vectors_are_made_anew_after_so_many_evolutions_and_not_before() -> None:
    rewrite = Evolution(updates=True, rewrites=(Rewrite(note=0, context="zebra", tags=()),))
    for evolutions in (1, 2):
        notes = Notes(encoder=FakeTextEncoder(width=512), reencode_every=2)
        for number in range(evolutions + 1):
            note = Note(position=number, time="2026-05-01", content=SAID[number])
            notes.add(note, rewrite if number else Evolution(), range(number))
        ((found, score),) = notes.nearest("zebra", 1)
        assert notes.evolutions == evolutions
        # Where a text has the word, it has a share of 1 in about 12 words.
        assert (found == 0 and score > 0.15) == (evolutions == 2)


def test_a_question_sees_what_its_notes_link_to_each_note_once(
    runtime: Settings, parts_with: PartsWith
) -> None:
    def links_to_the_first(request: ChatRequest) -> str:
        if request.role == "amem_evolve":
            return json.dumps({"decision": "strengthen", "links": [0]})
        return SAID[2] if request.role == "query_keywords" else scripted(request)

    chat = FakeChat(links_to_the_first)
    memory = built(talk(*SAID), parts_with(chat), runtime, notes=4)
    found = asyncio.run(memory.search(Query(text="What flies?")))
    ranked = [item.position for item in found.ranked]
    assert ranked[:2] == [2, 0]  # the best, and what it links to
    assert sorted(ranked) == [0, 1, 2, 3]
    assert list(found.context.positions) == ranked


def test_a_reply_that_cannot_be_read_is_asked_for_twice_and_counted(
    runtime: Settings, parts_with: PartsWith
) -> None:
    def mumbles(request: ChatRequest) -> str:
        if request.role == "amem_note" and SAID[1] in request.prompt:
            return '{"keywords": []'
        return "no idea" if SAID[2] in request.prompt else scripted(request)

    chat = FakeChat(mumbles)
    memory = built(talk(*SAID[:3]), parts_with(chat), runtime)
    assert memory.cost.counts["steps_failed"] == 2
    assert memory.cost.counts["notes"] == 3
    assert memory.notes.notes[1].keywords == ()
    asked_again = [request.role for request in chat.requests if request.prompt.endswith(AGAIN)]
    assert asked_again == ["amem_note", "amem_note", "amem_evolve"]


def test_a_note_cut_inside_its_context_is_none_and_the_message_is_kept_as_it_is(
    runtime: Settings, parts_with: PartsWith
) -> None:
    class Short(FakeChat):
        """Notes of one message end at their limit, both times."""

        async def complete(self, request: ChatRequest) -> ChatReply:
            reply = await super().complete(request)
            cut = request.role == "amem_note" and SAID[1] in request.prompt
            return replace(reply, finish_reason="length") if cut else reply

    def cut_short(request: ChatRequest) -> str:
        if request.role == "amem_note" and SAID[1] in request.prompt:
            return '{"keywords": ["falcon"], "context": "Half of a sen'
        return scripted(request)

    memory = built(talk(*SAID[:3]), parts_with(Short(cut_short)), runtime)
    counts = memory.cost.counts
    assert (counts["notes"], counts["steps_failed"], counts["steps_truncated"]) == (3, 1, 0)
    note = memory.notes.notes[1]
    assert SAID[1] in note.content
    assert (note.keywords, note.context) == ((), "")


def test_a_killed_build_goes_on_and_pays_for_no_call_twice(
    runtime: Settings, parts_with: PartsWith, metered: Callable[[Any], MeteredChat]
) -> None:
    class Dying(FakeChat):
        left = 4

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
    calls = 2 * len(SAID) - 1
    assert (len(first.requests), len(second.requests)) == (4, calls - 4)
    assert again.notes.notes == whole.notes.notes
    assert again.cost.counts == whole.cost.counts


def test_pictures_are_their_captions_and_a_blank_turn_is_no_note() -> None:
    turn = Turn(
        source_id="1", speaker="Ada", text="Look.", images=(Image(id="i", caption="a dog"),)
    )
    assert note_content(turn) == "Speaker Ada says : [Image: a dog] Look."
    assert note_content(Turn(source_id="1", speaker="Ada", images=(Image(id="i"),))) == ""


def test_it_takes_no_oracle_and_needs_a_model(runtime: Settings, parts_with: PartsWith) -> None:
    memory = built(talk(SAID[0]), parts_with(FakeChat(scripted)), runtime)
    gold = Oracle(reference="Sunday", category="2", evidence=frozenset())
    with pytest.raises(ConfigError, match="no oracle run"):
        asyncio.run(memory.answer(Query(text="When?"), gold))
    with pytest.raises(ConfigError, match="needs a language model"):
        built(talk(SAID[0]), parts_with(None), runtime)


def test_who_answers_sees_the_ids_of_pictures(runtime: Settings, parts_with: PartsWith) -> None:
    turn = Turn(source_id="1", speaker="Ada", images=(Image(id="D1:IMG_001", caption="a dog"),))
    round_ = Round(id="D1:1", position=0, session="D1", time="2026-05-01", turns=(turn,))
    chat = FakeChat(scripted)
    memory = built(Dialogue(id="d", rounds=(round_,)), parts_with(chat), runtime)
    asyncio.run(memory.answer(Query(text="Which picture?")))
    assert ["D1:IMG_001" in request.prompt for request in chat.requests] == [False, False, True]
