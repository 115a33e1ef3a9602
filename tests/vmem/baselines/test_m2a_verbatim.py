"""M2A's stores and its search over the turns themselves; encoders are fakes."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from vmem.baselines.m2a_log import Pictures
from vmem.baselines.m2a_memory import MemoryStore, SearchSizes
from vmem.baselines.m2a_verbatim import M2AVerbatim, M2AVerbatimOptions
from vmem.config import Settings
from vmem.errors import QueryError
from vmem.pipeline import Parts
from vmem.ports import ChatModel
from vmem.types import Benchmark, Dialogue, Image, Query, Round, Turn

PartsWith = Callable[[ChatModel | None], Parts]


def test_ranks_of_both_texts_are_fused_before_the_picture_s(
    sample: Benchmark, parts_with: PartsWith
) -> None:
    pictures = [i for r in sample.dialogues[0].rounds for i in r.images if i.uri]
    store = MemoryStore(parts=parts_with(None), sizes=SearchSizes(text=1))
    store.add("ravens on the roof", None, "", [[1, 1]])
    store.add("a torn kite", pictures[0], "", [[2, 3]])
    both = store.search("ravens", pictures[0])
    assert [(memory.id, score) for memory, score in both] == [(1, 1 / 61), (2, 1 / 61)]
    store.delete(1)
    assert [memory.id for memory, _ in store.search("ravens", None)] == [2]
    assert store.add("more ravens", None, "", []).id == 3  # no id is used again
    with pytest.raises(QueryError, match="no memory 1"):
        store.delete(1)


def test_a_picture_has_one_token_and_a_copy_its_own_later_ones() -> None:
    first, second = Image(id="a", uri="a.jpg"), Image(id="b", uri="b.jpg")
    pictures = Pictures()
    assert [pictures.token(first), pictures.token(first)] == ["<image0>", "<image0>"]
    copy = pictures.copy()
    assert copy.token(second) == "<image1>" == pictures.copy().token(replace(second, id="c"))
    assert copy.named("<image1>") == second
    assert pictures.named("N/A") is None
    with pytest.raises(QueryError, match="no picture"):
        pictures.named("<image1>")


def test_turns_are_found_by_words_and_by_picture_without_a_model(
    sample: Benchmark, runtime: Settings, parts_with: PartsWith
) -> None:
    dialogue = sample.dialogues[0]
    system = M2AVerbatim(
        name="m2a-verbatim",
        settings=runtime,
        parts=parts_with(None),
        options=M2AVerbatimOptions(most=1),
    )
    memory = asyncio.run(system.build(dialogue))
    shared = next(r for r in dialogue.rounds if r.images and r.images[0].uri)
    found = asyncio.run(memory.search(Query(text="xyzzy", image=shared.images[0])))
    by_text, by_picture = found.ranked  # one of each path, the text's first
    assert by_picture.position == shared.position != by_text.position
    assert by_picture.units and found.context.text


def test_the_same_words_said_twice_are_two_turns(runtime: Settings, parts_with: PartsWith) -> None:
    turn = Turn(source_id="1", speaker="Ada", text="Thank you!")
    rounds = tuple(
        Round(id=f"D1:{n}", position=n, session="D1", time="2026-05-01", turns=(turn,))
        for n in range(2)
    )
    system = M2AVerbatim(name="m2a-verbatim", settings=runtime, parts=parts_with(None))
    memory = asyncio.run(system.build(Dialogue(id="d", rounds=rounds)))
    found = asyncio.run(memory.search(Query(text="thank you")))
    assert [item.position for item in found.ranked] == [0, 1]
