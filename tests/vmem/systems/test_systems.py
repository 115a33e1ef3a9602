"""Every registered system builds the sample conversation and answers; encoders are fakes."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace as with_
from typing import Any

import pytest
from PIL import Image as Pillow

from vmem.config import RetrievalSettings, Settings, replace
from vmem.datasets.sample import SampleQuestion, read_questions, read_sample
from vmem.encoders.fake import FakeImageEncoder, FakeTextEncoder
from vmem.errors import ConfigError, ModelError, QueryError
from vmem.images import read_image
from vmem.llm.fake import FakeChat
from vmem.pipeline import Parts
from vmem.ports import ChatRequest, MemorySystem, Oracle, Vectors
from vmem.prompts import Prompts
from vmem.rounds import show_round, to_units
from vmem.systems.registry import make_system
from vmem.systems.rows import read_rows, row_settings
from vmem.systems.v_mem import searched_signals
from vmem.types import (
    TEXT_SIGNALS,
    Answer,
    Benchmark,
    Case,
    Dialogue,
    Image,
    Query,
    Signal,
    UnitKind,
)

ROWS = read_rows()
OWN = {"v-mem", "full-context", "no-memory"}
"""Kinds that build without a model; `tests/vmem/baselines` tries the others."""
RUN = [name for name, row in ROWS.items() if row.kind in OWN]
ASKED = {question.case: question for question in read_questions() if question.demo}
RUNTIME = replace(
    Settings(),
    encoders={"text": {"kind": "fake"}, "image": {"kind": "fake"}},
    llm={"provider": "fake"},
)
ORACLE = Oracle(reference="Lamplighter", category="FR", evidence=frozenset({"D3:6"}))


def script(request: ChatRequest) -> str:
    if request.role == "keywords":
        return json.dumps({"keywords": ["rocket"], "caption": "a rocket on its pad"})
    return "a caption of a coin" if request.role == "hypo_caption" else "the answer"


class DeafText(FakeTextEncoder):
    """Must not be asked."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        raise AssertionError("the text encoder was called")

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        raise AssertionError("the text encoder was called")


class BlindImage(FakeImageEncoder):
    """Must not be asked."""

    def encode(self, images: Sequence[Pillow.Image]) -> Vectors:
        raise AssertionError("the image encoder was called")


def parts_of(chat: FakeChat | None, **changes: Any) -> Parts:
    parts = Parts(
        text_encoder=FakeTextEncoder(),
        image_encoder=FakeImageEncoder(),
        chat=chat,
        prompts=Prompts(RUNTIME.prompts),
        read_image=read_image,
    )
    return with_(parts, **changes)


@pytest.fixture
def chat() -> FakeChat:
    return FakeChat(script, sees_images=True)


@pytest.fixture(scope="module")
def sample() -> Benchmark:
    return read_sample()


@pytest.fixture(scope="module")
def dialogue(sample: Benchmark) -> Dialogue:
    return sample.dialogues[0]


def built(name: str, dialogue: Dialogue, parts: Parts, runtime: Settings = RUNTIME) -> MemorySystem:
    row = ROWS[name]
    return asyncio.run(make_system(row, row_settings(row, runtime), parts).build(dialogue))


def answered(system: MemorySystem, query: Query) -> Answer:
    return asyncio.run(system.answer(query))


def roles(answer: Answer) -> list[str]:
    return [usage.role for usage in answer.usage]


@pytest.mark.parametrize("name", RUN)
def test_a_registered_system_answers_a_question_of_each_case(
    name: str, dialogue: Dialogue, chat: FakeChat
) -> None:
    system = built(name, dialogue, parts_of(chat))
    assert system.name == name
    assert system.cost.usage == ()
    assert ASKED.keys() == set(Case)
    for case, question in ASKED.items():
        answer = answered(system, question.query)
        assert (answer.text, roles(answer)[-1]) == ("the answer", "answer")
        assert answer.retrieval.query == question.query
        assert answer.retrieval.route.case is case
        assert answer.retrieval.context.text in answer.prompt
        assert {"assemble", "answer"} <= answer.seconds.keys()
    assert sum(request.role == "answer" for request in chat.requests) == len(Case)


@pytest.mark.parametrize("name", ["v-mem", "bm25", "full-context", "no-memory"])
def test_no_system_takes_an_oracle(name: str, dialogue: Dialogue, chat: FakeChat) -> None:
    system = built(name, dialogue, parts_of(chat))
    with pytest.raises(ConfigError, match=f"{name!r} is no oracle run"):
        asyncio.run(system.answer(Query(text="Why?"), ORACLE))
    assert chat.requests == []


def test_each_step_of_the_ladder_does_what_it_says(dialogue: Dialogue, chat: FakeChat) -> None:
    question = ASKED[Case.TEXT_TO_IMAGE].query
    steps = {
        name: answered(built(name, dialogue, parts_of(chat)), question)
        for name in ("vanilla", "routing", "rounds", "v-mem")
    }
    searched = {name: set(step.retrieval.anchors.by_signal) for name, step in steps.items()}
    routed = set(RetrievalSettings().signals[Case.TEXT_TO_IMAGE])
    assert searched["routing"] == searched["rounds"] == searched["v-mem"] == routed
    ranked = {name: step.retrieval.ranked for name, step in steps.items()}
    assert all(item.units for name in ("vanilla", "routing") for item in ranked[name])
    assert not any(item.units for name in ("rounds", "v-mem") for item in ranked[name])
    assert {name: roles(step) for name, step in steps.items()} == {
        "vanilla": ["answer"],
        "routing": ["answer"],
        "rounds": ["answer"],
        "v-mem": ["hypo_caption", "answer"],
    }


def test_vanilla_searches_captions_whatever_is_asked_and_routing_does_not(
    dialogue: Dialogue, chat: FakeChat
) -> None:
    question = ASKED[Case.TEXT_TO_TEXT].query
    vanilla, routing = (
        set(answered(built(name, dialogue, parts_of(chat)), question).retrieval.anchors.by_signal)
        for name in ("vanilla", "routing")
    )
    assert routing == set(TEXT_SIGNALS)
    assert vanilla - routing == {Signal.CAPTION_DENSE, Signal.CAPTION_SPARSE}


@pytest.mark.parametrize(("name", "most"), [("vanilla", 12), ("vanilla-threefold", 36)])
def test_a_unit_budget_is_filled(name: str, most: int, dialogue: Dialogue, chat: FakeChat) -> None:
    question = ASKED[Case.TEXT_TO_TEXT].query
    found = answered(built(name, dialogue, parts_of(chat)), question).retrieval
    shown = [unit for item in found.ranked[:most] for unit in item.units]
    texts = {unit.id: unit for r in dialogue.rounds for unit in to_units(r, RUNTIME.units)}
    assert len(shown) == len(set(shown)) == most
    bare = [texts[unit].text for unit in shown if texts[unit].kind is not UnitKind.CAPTION]
    assert bare
    assert all(text in found.context.text for text in bare)


def test_bm25_alone_never_calls_an_encoder(dialogue: Dialogue, chat: FakeChat) -> None:
    parts = parts_of(chat, text_encoder=DeafText(), image_encoder=BlindImage())
    system = built("bm25", dialogue, parts)
    for question in ASKED.values():
        answer = answered(system, question.query)
        assert set(answer.retrieval.anchors.by_signal) == {Signal.TEXT_SPARSE}
        assert roles(answer) == ["answer"]
    with pytest.raises(AssertionError, match="text encoder"):
        built("dense", dialogue, parts)


def test_dense_alone_never_looks_at_a_picture(dialogue: Dialogue, chat: FakeChat) -> None:
    system = built("dense", dialogue, parts_of(chat, image_encoder=BlindImage()))
    for question in ASKED.values():
        answer = answered(system, question.query)
        assert set(answer.retrieval.anchors.by_signal) == {Signal.TEXT_DENSE}
        assert roles(answer) == ["answer"]
    with pytest.raises(AssertionError, match="image encoder"):
        built("v-mem", dialogue, parts_of(chat, image_encoder=BlindImage()))


def test_bm25_ranks_as_the_sparse_signal_of_v_mem(dialogue: Dialogue, chat: FakeChat) -> None:
    question = ASKED[Case.TEXT_TO_TEXT].query
    alone = answered(built("bm25", dialogue, parts_of(chat)), question).retrieval
    fused = answered(built("v-mem", dialogue, parts_of(chat)), question).retrieval
    ranks = {r.position: r.ranks[Signal.TEXT_SPARSE] for r in alone.ranked}
    assert ranks == {
        r.position: r.ranks[Signal.TEXT_SPARSE]
        for r in fused.ranked
        if Signal.TEXT_SPARSE in r.ranks
    }
    assert len(ranks) == 20


def test_full_context_shows_every_round_once_in_time_order(
    dialogue: Dialogue, chat: FakeChat
) -> None:
    system = built("full-context", dialogue, parts_of(chat))
    answer = answered(system, ASKED[Case.TEXT_TO_TEXT].query)
    found = answer.retrieval
    assert found.context.positions == tuple(range(len(dialogue.rounds)))
    assert (found.ranked, found.context.found, found.context.dropped) == ((), (), ())
    places = [answer.prompt.index(show_round(round_)) for round_ in dialogue.rounds]
    assert places == sorted(places)
    assert all(answer.prompt.count(show_round(round_)) == 1 for round_ in dialogue.rounds)
    assert found.anchors.notes == ("nothing is searched",)
    assert found.context.tokens == chat.count_tokens(found.context.text)


def test_no_memory_shows_no_round(dialogue: Dialogue, chat: FakeChat) -> None:
    system = built("no-memory", dialogue, parts_of(chat))
    answer = answered(system, ASKED[Case.TEXT_TO_TEXT].query)
    assert (answer.retrieval.context.text, answer.retrieval.context.positions) == ("", ())
    said = [turn.text for round_ in dialogue.rounds for turn in round_.turns if turn.text]
    assert len(said) > len(dialogue.rounds)
    assert not [text for text in said if text in answer.prompt]


@pytest.mark.parametrize("name", ["full-context", "no-memory"])
def test_systems_without_a_search_call_no_encoder(
    name: str, dialogue: Dialogue, chat: FakeChat
) -> None:
    parts = parts_of(chat, text_encoder=DeafText(), image_encoder=BlindImage())
    answer = answered(built(name, dialogue, parts), ASKED[Case.IMAGE_TEXT_TO_TEXT].query)
    assert answer.retrieval.anchors.by_signal == {}
    assert "[ATTACHED IMAGE]" in answer.retrieval.context.note
    assert answer.prompt.count(answer.retrieval.context.note) == 1
    assert any("not described" in note for note in answer.retrieval.anchors.notes)
    assert chat.requests[-1].images == ()


def test_systems_without_a_search_describe_the_picture_as_the_settings_say(
    dialogue: Dialogue, chat: FakeChat
) -> None:
    seeing = replace(RUNTIME, answer={"query_caption": "dataset", "sees_pixels": True})
    row = ROWS["no-memory"]
    settings = replace(row_settings(row, seeing), answer=dict(seeing.answer))
    system = asyncio.run(make_system(row, settings, parts_of(chat)).build(dialogue))
    question: SampleQuestion = ASKED[Case.IMAGE_TEXT_TO_TEXT]
    picture = question.query.image
    assert picture is not None
    captioned = with_(question.query, image=with_(picture, caption="a  striped\ncup"))
    answer = answered(system, captioned)
    assert answer.retrieval.anchors.query_caption == "a striped cup"
    assert "a striped cup" in answer.prompt
    assert chat.requests[-1].images == (read_image(str(picture.uri)),)


def test_a_conversation_longer_than_the_model_holds_is_an_error_not_cut(
    dialogue: Dialogue, chat: FakeChat
) -> None:
    short = replace(RUNTIME, llm={"provider": "fake", "context_window": 1024})
    system = built("full-context", dialogue, parts_of(chat), short)
    with pytest.raises(ModelError, match=r"'full-context': the conversation takes [\d,]+ tokens"):
        answered(system, ASKED[Case.TEXT_TO_TEXT].query)
    assert chat.requests == []
    assert answered(built("no-memory", dialogue, parts_of(chat), short), Query(text="Why?"))


@pytest.mark.parametrize("name", ["v-mem", "full-context"])
def test_an_empty_question_is_refused(name: str, dialogue: Dialogue, chat: FakeChat) -> None:
    with pytest.raises(QueryError, match="empty"):
        answered(built(name, dialogue, parts_of(chat)), Query(text=" "))


def test_the_cost_of_a_build_counts_what_was_taken_in(dialogue: Dialogue, chat: FakeChat) -> None:
    first = dialogue.rounds[0]
    (turn, *others) = first.turns
    lost = with_(turn, images=(Image(id="lost", caption="a lost picture"),))
    rounds = (with_(first, turns=(lost, *others)), *dialogue.rounds[1:])
    changed = Dialogue(id="d", rounds=rounds)
    images = sum(len(round_.images) for round_ in rounds)
    texts = [
        unit
        for round_ in rounds
        for unit in to_units(round_, RUNTIME.units)
        if unit.kind is not UnitKind.IMAGE
    ]
    counts = built("v-mem", changed, parts_of(chat)).cost.counts
    assert counts == {
        "rounds": len(rounds),
        "text_units": len(texts),
        "image_units": images - 1,
        "truncated_texts": 0,
        "images_without_pixels": 1,
    }
    bare = built("bm25", changed, parts_of(chat)).cost.counts
    assert bare == {**counts, "image_units": 0}


def test_without_a_model_nothing_answers(dialogue: Dialogue) -> None:
    with pytest.raises(ConfigError, match=r"llm\.provider"):
        built("no-memory", dialogue, parts_of(None))
    with pytest.raises(ConfigError, match=r"llm\.provider"):
        answered(built("v-mem", dialogue, parts_of(None)), Query(text="Why?"))


def test_a_case_of_pictures_alone_may_fall_back_on_the_text() -> None:
    sparse = dict.fromkeys(Case, (Signal.TEXT_SPARSE,))
    only = RetrievalSettings(signals=sparse)
    assert searched_signals(only) == {Signal.TEXT_SPARSE}
    pictures = RetrievalSettings(signals={**sparse, Case.IMAGE_TEXT_TO_IMAGE: (Signal.VISUAL,)})
    assert searched_signals(pictures) == {*TEXT_SIGNALS, Signal.VISUAL}
    assert searched_signals(RetrievalSettings(routing="uniform")) == set(Signal)
