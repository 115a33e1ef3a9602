"""Omni-SimpleMem with a scripted model and fake encoders: units, search, prompts, leaks, counts."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace as with_
from typing import Any

import pytest

from vmem.baselines.omni_released import ALL_PICTURES, MOST_EXPANDED, wanted_by_released_code
from vmem.config import Settings, replace
from vmem.errors import ConfigError
from vmem.llm.fake import FakeChat
from vmem.llm.metered import MeteredChat
from vmem.metrics.retrieval import evidence_scores, gold_rounds
from vmem.ports import ChatModel, ChatRequest, Oracle
from vmem.systems.registry import make_system
from vmem.systems.rows import read_rows, row_settings
from vmem.systems.search_only import SearchOnly
from vmem.types import Benchmark, Dialogue, Image, Query, Round, Turn

ROWS = read_rows()
ORACLE = Oracle(reference="Lamplighter", category="FR", evidence=frozenset({"D3:6"}))
QUERY = Query(text="What is the blend from Tidewater Roasters called?")


def scripted(request: ChatRequest) -> str:
    if request.role == "extract":
        lines = request.prompt.partition("<messages>")[2].partition("</messages>")[0].split("\n")
        told = [f"It is known that {line[19:]}" for line in lines if line.startswith("[")]
        return json.dumps({"statements": told})
    if request.role == "entities":
        return json.dumps({"entities": [{"name": "Bram"}], "relations": []})
    if request.role == "answer" and '"reasoning"' in request.prompt:
        return json.dumps({"reasoning": "it says so", "answer": "Lamplighter"})
    return f"{request.role} in words"


def two_people(rounds: int, turns: int = 2) -> Dialogue:
    """A conversation of Ann and Ben, every message of other words."""
    return Dialogue(
        id="c",
        rounds=tuple(
            Round(
                id=f"r{number}",
                position=number,
                session=f"s{number // 4}",
                time=f"2023-05-{1 + number // 4:02}T10:00",
                turns=tuple(
                    Turn(
                        source_id=f"D{number}:{each}",
                        speaker=("Ann", "Ben")[each % 2],
                        text=f"word{number}x{each} tells of thing{number}x{each}",
                    )
                    for each in range(turns)
                ),
            )
            for number in range(rounds)
        ),
    )


Built = Callable[..., Any]


@pytest.fixture
def built(runtime: Settings, parts_with: Callable[[ChatModel | None], Any]) -> Built:
    def build(
        dialogue: Dialogue,
        chat: ChatModel | None,
        row: str = "omni",
        settings: Settings = runtime,
        **options: Any,
    ) -> Any:
        named = ROWS[row].model_copy(update={"options": {**ROWS[row].options, **options}})
        system = make_system(named, row_settings(named, settings), parts_with(chat))
        return asyncio.run(system.build(dialogue))

    return build


def test_a_user_and_an_assistant_become_one_unit_an_exchange_and_no_call_is_made(
    sample: Benchmark, built: Built
) -> None:
    chat = FakeChat(scripted)
    dialogue = sample.dialogues[0]
    memory = built(dialogue, chat)
    assert chat.requests == []
    counts = memory.cost.counts
    kept = counts["turns"] + counts["dropped_short"] + counts["dropped_known"]
    assert kept == counts["rounds"] == len(dialogue.rounds)
    assert [item.positions for item in memory.items][:2] == [(0,), (1,)]
    shown = {item.id: item.text for item in memory.items}["D1:3"]
    assert "SESSION:D1 | TURN:D1:3" in shown
    assert "[Image D1:IMG_001: Painted shop board" in shown
    assert "user: " in shown and "\nassistant: " in shown


def test_windows_between_two_people_become_statements(built: Built) -> None:
    chat = FakeChat(scripted)
    memory = built(two_people(50), chat)
    asked = [request for request in chat.requests if request.role == "extract"]
    assert len(asked) == 3  # 100 messages in windows of 40
    assert "[2023-05-01 10:00] Ann: word0x0 tells" in asked[0].prompt
    assert memory.cost.counts["statements"] == 100
    assert memory.cost.counts["steps"] == 3 and memory.cost.counts["steps_failed"] == 0
    assert {item.positions for item in memory.items} == {()}
    earlier = [r.prompt.partition("<earlier>")[2].partition("</earlier>")[0] for r in asked]
    assert earlier[0].strip() == ""
    assert earlier[1].count("\n- ") == 3 and "word15x0" in earlier[1]  # of the last ten


def test_a_window_that_cannot_be_read_is_kept_as_it_was_and_counted(built: Built) -> None:
    def broken(request: ChatRequest) -> str:
        return "no JSON" if "word0x0" in request.prompt else scripted(request)

    chat = FakeChat(broken)
    memory = built(two_people(50), chat)
    assert memory.cost.counts["steps_failed"] == 1 and memory.cost.counts["steps_skipped"] == 0
    assert memory.items[0].text.startswith("[2023-05-01 10:00] Ann: word0x0")
    assert len(memory.items) == 100
    assert sum(r.role == "extract" for r in chat.requests) == 3 + 1  # asked again once


def test_a_window_without_statements_is_a_skipped_step(built: Built) -> None:
    memory = built(two_people(20), FakeChat(lambda _: '{"statements": []}'))
    assert memory.cost.counts["steps_skipped"] == 1
    assert memory.items == ()


def test_windows_shrink_where_the_model_holds_little(built: Built, runtime: Settings) -> None:
    chat = FakeChat(scripted)
    short = replace(runtime, llm={"provider": "fake", "context_window": 1000})
    built(two_people(50), chat, settings=short)
    asked = [request for request in chat.requests if request.role == "extract"]
    assert len(asked) > 3
    for request in asked:
        assert chat.count_tokens(request.prompt) + request.max_tokens <= 1000


def test_what_bm25_finds_comes_after_what_is_meant_and_nothing_twice(built: Built) -> None:
    memory = built(two_people(50), FakeChat(scripted), top_k=5, keyword_k=4)
    found = asyncio.run(memory.search(Query(text="thing3x0 thing3x1 thing4x0"))).context.blocks
    meant = sorted(
        range(100), key=lambda n: (-float(memory.vectors_ND[n] @ _vector(memory, 3)), n)
    )[:5]
    assert [block.text for block in found[:5]] == [memory.items[n].text for n in meant]
    texts = [block.text for block in found]
    assert len(set(texts)) == len(texts) <= 9
    for words in ("thing3x0", "thing3x1", "thing4x0"):
        assert any(words in text for text in texts)


def _vector(memory: Any, _: int) -> Any:
    encoder = memory.system.parts.text_encoder
    return encoder.encode(["thing3x0 thing3x1 thing4x0"])[0]


def test_the_blind_mode_takes_no_oracle_and_the_released_one_needs_it(
    sample: Benchmark, built: Built
) -> None:
    chat = FakeChat(scripted)
    blind = built(sample.dialogues[0], chat)
    with pytest.raises(ConfigError, match="'omni' is no oracle run"):
        asyncio.run(blind.answer(QUERY, ORACLE))
    released = built(sample.dialogues[0], chat, "omni-released", unused_calls=False)
    with pytest.raises(ConfigError, match="by the gold category"):
        asyncio.run(released.answer(QUERY))
    with pytest.raises(ConfigError, match="only answers"):
        asyncio.run(released.search(QUERY))
    assert chat.requests == []


def test_an_answer_is_what_stands_in_the_json(sample: Benchmark, built: Built) -> None:
    chat = FakeChat(scripted)
    answer = asyncio.run(built(sample.dialogues[0], chat).answer(QUERY))
    assert answer.text == "Lamplighter"
    assert answer.retrieval.context.text in answer.prompt
    assert len(answer.retrieval.context.blocks) <= 20 + 10
    assert [usage.role for usage in answer.usage] == ["answer"]


def test_an_answer_that_is_no_json_is_counted_and_its_first_words_are_taken(
    sample: Benchmark, built: Built
) -> None:
    chat = FakeChat(
        lambda _: "It is called Lamplighter, by the way and so on and on. More follows."
    )
    answer = asyncio.run(built(sample.dialogues[0], chat).answer(QUERY))
    assert answer.text == "It is called Lamplighter, by the way and so on and on."
    assert [(f.role, f.error) for f in answer.retrieval.anchors.failures] == [
        ("answer", "ModelFormatError")
    ]
    assert len(chat.requests) == 2


def test_blind_prompts_do_not_change_with_the_gold_and_released_ones_do(
    sample: Benchmark, built: Built
) -> None:
    prompts = {}
    for category in ("FR", "VS"):
        chat = FakeChat(scripted)
        memory = built(sample.dialogues[0], chat, "omni-released", unused_calls=False)
        oracle = with_(ORACLE, category=category)
        prompts[category] = asyncio.run(memory.answer(QUERY, oracle)).prompt
        assert ORACLE.reference not in prompts[category].partition("</memories>")[2]
    assert prompts["FR"] != prompts["VS"]
    assert "[Picture list 1]" in prompts["VS"] and "[Picture list 1]" not in prompts["FR"]


def test_released_code_on_locomo_asks_for_dates_and_drops_late_years(built: Built) -> None:
    def late(request: ChatRequest) -> str:
        if request.role == "answer":
            return json.dumps({"reasoning": "", "answer": "7 May 2026"})
        return scripted(request)

    memory = built(two_people(10), FakeChat(late), "omni-released", unused_calls=False)
    when = Query(text="When did Ann go?")
    temporal = asyncio.run(memory.answer(when, with_(ORACLE, category="temporal")))
    other = asyncio.run(memory.answer(when, with_(ORACLE, category="single-hop")))
    assert (temporal.text, other.text) == ("unknown", "7 May 2026")
    assert "approximate date" in temporal.prompt and "approximate date" not in other.prompt


@pytest.mark.parametrize(
    ("text", "top_k"),
    [
        ("Where does Bram bake?", 10),
        ("What exactly did Bram bake?", 5),
        ("What did Bram bake today?", 20),
        ("What did Bram bake yesterday?", 0),
        ("What happened on 2024-05-01?", 0),
        ("What did she say she had seen?", 0),  # "see" is taken for a wish to see pictures
        ("What is in the picture that she said she took?", 10),  # two hints cancel each other
        ("What does the message say?", 10),
    ],
)
def test_the_released_number_of_units_hangs_on_the_wording(text: str, top_k: int) -> None:
    wanted = wanted_by_released_code(text, "FR", from_windows=False)
    assert wanted.top_k == top_k
    assert bool(wanted.notes) == (top_k == 0)


def test_the_released_search_hangs_on_the_gold_category() -> None:
    text = "Which birds live there?"
    by_category = {c: wanted_by_released_code(text, c, False) for c in ("VR", "VS", "TR", "FR")}
    assert [w.pictures for w in by_category.values()] == [ALL_PICTURES, 30, 0, 0]
    assert [w.in_time_order for w in by_category.values()] == [False, False, True, False]
    assert {w.keyword_k for w in by_category.values()} == {MOST_EXPANDED}
    assert by_category["FR"].keyword_pool == 30
    assert wanted_by_released_code("Please list all birds", "FR", False).keyword_pool == 40


def test_calls_that_nothing_reads_are_made_where_they_are_wanted_and_change_nothing(
    sample: Benchmark, built: Built
) -> None:
    chat = FakeChat(scripted)
    dialogue = sample.dialogues[0]
    bare, paid = built(dialogue, chat), built(dialogue, chat, unused_calls=True)
    assert paid.items == bare.items
    assert (paid.vectors_ND == bare.vectors_ND).all()
    roles = [usage.role for usage in paid.cost.usage]
    assert roles.count("entities") == len(paid.items) == paid.cost.counts["steps"]
    assert roles.count("summary") > 0


def test_omni_verbatim_needs_no_model_and_finds_evidence(
    sample: Benchmark, built: Built, runtime: Settings, parts_with: Any
) -> None:
    row = ROWS["omni-verbatim"]
    system = SearchOnly(system=make_system(row, row_settings(row, runtime), parts_with(None)))
    memory = asyncio.run(system.build(sample.dialogues[0]))
    hits = 0.0
    asked = [q for q in sample.questions if q.evidence and q.query.image is None]
    for question in asked:
        found = asyncio.run(memory.answer(question.query)).retrieval
        ranked = [item.position for item in found.ranked]
        gold = gold_rounds(question, sample.dialogues[0])
        hits += evidence_scores(ranked, found.context.positions, gold).as_row()["recall+neighbours"]
    assert hits / len(asked) > 0.5
    with pytest.raises(ConfigError, match="needs a language model"):
        built(two_people(4), None)


def test_pictures_are_known_by_the_datasets_caption(sample: Benchmark, built: Built) -> None:
    query = Query(text="What is this?", image=Image(id="Q", uri=None, caption="a brass telescope"))
    found = asyncio.run(built(sample.dialogues[0], FakeChat(scripted)).search(query))
    assert found.anchors.query_caption == "a brass telescope"
    assert "a brass telescope" in found.context.note


class Killed(BaseException):
    """As if the process ended here."""


@pytest.mark.parametrize("after", [0, 1, 2, 4])
def test_a_build_killed_at_a_window_goes_on_there(
    built: Built, metered: Callable[[Any], MeteredChat], after: int
) -> None:
    dialogue = two_people(90)  # 180 messages: 5 windows
    whole = FakeChat(scripted)
    expected = built(dialogue, whole).items
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
        built(dialogue, metered(FakeChat(dying)))
    memory = built(dialogue, metered(FakeChat(going_on)))
    assert memory.items == expected
    assert asked == whole.requests
    assert [usage.cached for usage in memory.cost.usage] == [True] * after + [False] * (5 - after)
