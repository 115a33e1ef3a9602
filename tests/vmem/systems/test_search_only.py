"""Where nothing answers: what was found, an empty text, and no prompt."""

import asyncio
from dataclasses import dataclass, field

import pytest

from vmem.config import Settings, replace
from vmem.datasets.sample import read_sample
from vmem.encoders.fake import FakeTextEncoder
from vmem.errors import ConfigError
from vmem.images import read_image
from vmem.pipeline import Parts, retrieve
from vmem.ports import BuildCost, MemorySystem, Oracle, System
from vmem.prompts import Prompts
from vmem.systems.registry import FACTORIES, SEARCHING
from vmem.systems.search_only import SearchOnly
from vmem.systems.v_mem import VMem
from vmem.types import Answer, Dialogue, Query

SETTINGS = replace(
    Settings(),
    encoders={"text": {"kind": "fake"}, "image": {"kind": "none"}},
    retrieval={
        "signals": dict.fromkeys(Settings().retrieval.signals, ("text_dense", "text_sparse"))
    },
    llm={"provider": "none"},
)
PARTS = Parts(
    text_encoder=FakeTextEncoder(),
    image_encoder=None,
    chat=None,
    prompts=Prompts(SETTINGS.prompts),
    read_image=read_image,
)
QUERY = Query(text="Where is the lamp?")


@dataclass
class Mute:
    """A system that finds nothing by itself."""

    name: str = "mute"
    cost: BuildCost = field(default_factory=BuildCost)

    async def build(self, dialogue: Dialogue) -> MemorySystem:
        return self

    async def answer(self, query: Query, oracle: Oracle | None = None) -> Answer:
        raise AssertionError("nothing must be asked")


def built(system: System) -> MemorySystem:
    return asyncio.run(SearchOnly(system=system).build(read_sample().dialogues[0]))


def test_an_answer_is_empty_and_holds_what_was_found() -> None:
    memory = built(VMem(name="row", settings=SETTINGS, parts=PARTS))
    answer = asyncio.run(memory.answer(QUERY))
    assert (memory.name, answer.text, answer.prompt, answer.usage) == ("row", "", "", ())
    found = asyncio.run(retrieve(QUERY, memory.memory.memory, PARTS, SETTINGS))  # type: ignore[attr-defined]
    assert answer.retrieval.ranked == found.ranked
    assert answer.retrieval.context == found.context
    assert memory.cost.counts["rounds"] == len(read_sample().dialogues[0].rounds)


def test_gold_answers_are_kept_away() -> None:
    memory = built(VMem(name="row", settings=SETTINGS, parts=PARTS))
    oracle = Oracle(reference="on the shelf", category="FR", evidence=frozenset())
    with pytest.raises(ConfigError, match="'row' is no oracle run"):
        asyncio.run(memory.answer(QUERY, oracle))


def test_a_system_that_cannot_search_is_refused() -> None:
    with pytest.raises(ConfigError, match="'mute' finds nothing without a language model"):
        built(Mute())


def test_kinds_that_search_are_kinds() -> None:
    assert FACTORIES.keys() >= SEARCHING
