"""MuRAG with fake encoders: one vector a round, pictures shown, what stands in for what."""

import asyncio
from collections.abc import Callable
from dataclasses import replace as with_
from typing import Any

import numpy as np
import pytest

from vmem.baselines.murag import STANDS_IN, MuRAGMemory
from vmem.config import Settings
from vmem.errors import ConfigError
from vmem.llm.fake import FakeChat
from vmem.ports import ChatModel, Oracle
from vmem.systems.registry import make_system
from vmem.systems.rows import read_rows, row_settings
from vmem.types import Benchmark, Dialogue, Query

ROW = read_rows()["murag"]


@pytest.fixture
def built(
    runtime: Settings, parts_with: Callable[[ChatModel | None], Any]
) -> Callable[..., MuRAGMemory]:
    def build(dialogue: Dialogue, chat: ChatModel | None = None, **options: Any) -> Any:
        row = ROW.model_copy(update={"options": options})
        return asyncio.run(
            make_system(row, row_settings(row, runtime), parts_with(chat)).build(dialogue)
        )

    return build


def test_each_round_has_one_vector_of_two_halves(sample: Benchmark, built: Any) -> None:
    dialogue = sample.dialogues[0]
    memory = built(dialogue)
    assert memory.vectors_RD.shape == (len(dialogue.rounds), 32 + 16)  # the fakes' widths
    lengths = np.linalg.norm(memory.vectors_RD[:, 32:], axis=1)
    has_image = np.array([bool(round_.images) for round_ in dialogue.rounds])
    assert lengths == pytest.approx(has_image.astype(float), abs=1e-5)
    assert memory.cost.usage == ()
    counts = memory.cost.counts
    assert counts["images"] == sum(len(round_.images) for round_ in dialogue.rounds)
    assert counts["images_without_pixels"] == 0


def test_a_rounds_own_words_and_picture_find_it(sample: Benchmark, built: Any) -> None:
    memory = built(sample.dialogues[0])
    with_picture = [round_ for round_ in memory.rounds if round_.images]
    assert with_picture
    for round_ in with_picture:
        query = Query(text=round_.turns[0].text, image=round_.images[0])
        assert asyncio.run(memory.search(query)).ranked[0].position == round_.position


def test_ten_rounds_are_found_and_the_note_says_what_stands_in(
    sample: Benchmark, built: Any
) -> None:
    found = asyncio.run(built(sample.dialogues[0]).search(Query(text="What about the coins?")))
    assert len(found.ranked) == 10 == len(found.context.blocks)
    assert STANDS_IN in found.anchors.notes
    fewer = asyncio.run(
        built(sample.dialogues[0], top_k=3).search(Query(text="What about the coins?"))
    )
    assert [r.position for r in fewer.ranked] == [r.position for r in found.ranked][:3]


def test_a_model_that_sees_gets_pictures_and_no_captions(sample: Benchmark, built: Any) -> None:
    asked = next(r for r in sample.dialogues[0].rounds if r.images)
    query = Query(text=asked.turns[0].text, image=asked.images[0])
    seeing, blind = FakeChat(lambda _: "yes", sees_images=True), FakeChat(lambda _: "yes")
    caption, name = asked.images[0].caption, asked.images[0].id
    seen = asyncio.run(built(sample.dialogues[0], seeing, max_images=2).answer(query))
    read = asyncio.run(built(sample.dialogues[0], blind).answer(query))
    assert len(seeing.requests[0].images) == 1 + 2 and blind.requests[0].images == ()
    assert f"[Image {name}]" in seen.prompt and caption not in seen.prompt
    assert caption in read.prompt


def test_a_picture_without_a_file_is_known_by_its_caption(sample: Benchmark, built: Any) -> None:
    whole = sample.dialogues[0]
    rounds = tuple(
        with_(
            round_,
            turns=tuple(
                with_(turn, images=tuple(with_(image, uri=None) for image in turn.images))
                for turn in round_.turns
            ),
        )
        for round_ in whole.rounds
    )
    memory = built(with_(whole, rounds=rounds))
    assert memory.cost.counts["images_without_pixels"] == memory.cost.counts["images"] > 0
    caption = next(r for r in rounds if r.images).images[0].caption
    best = asyncio.run(memory.search(Query(text=caption))).ranked[0]
    assert rounds[best.position].images[0].caption == caption


def test_murag_takes_no_oracle_and_only_searches_without_a_model(
    sample: Benchmark, built: Any
) -> None:
    oracle = Oracle(reference="x", category="FR", evidence=frozenset())
    with pytest.raises(ConfigError, match="'murag' is no oracle run"):
        asyncio.run(built(sample.dialogues[0]).answer(Query(text="Why?"), oracle))
    with pytest.raises(ConfigError, match="needs a language model"):
        asyncio.run(built(sample.dialogues[0]).answer(Query(text="Why?")))
