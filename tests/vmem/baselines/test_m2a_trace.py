"""M2A against a recorded trace of the authors' code (Little-Fridge/M2A, commit edd8c3b).

The trace is numbers only: calls made, memories with their evidence, and the memories that each
search found, by text and by picture, of the first rounds of our sample conversation as a talk of
two people, with the packaged text encoder, the fake image encoder and a model that answers by the
script below, by kind and ordinal of call. Their code was given a metric and a vector that today's
Milvus Lite asks for, and ours its k1 of BM25, which is 1.5 where Milvus itself takes 1.2.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from vmem.baselines.m2a import M2A
from vmem.baselines.m2a_memory import Memory, MemoryStore
from vmem.build import make_text_encoder
from vmem.config import LexicalSettings, Settings
from vmem.config import replace as replace_settings
from vmem.encoders.fake import FakeImageEncoder
from vmem.llm.fake import FakeChat
from vmem.pipeline import Parts
from vmem.ports import ChatModel, ChatRequest
from vmem.types import Benchmark, Dialogue, Image, Query

pytest.importorskip("all_minilm_l6_v2", reason="the packaged encoder is missing: vmem[embedded]")
TRACE = Path(__file__).parent / "m2a_trace.json"
ROUNDS = 24
NAMES = {"user": "Ida", "assistant": "Otto"}


def of_two_people(dialogue: Dialogue) -> Dialogue:
    """The first rounds, each message with one picture at most."""
    rounds = [
        replace(
            round_,
            turns=tuple(
                replace(t, speaker=NAMES[t.speaker], images=t.images[:1]) for t in round_.turns
            ),
        )
        for round_ in dialogue.rounds[:ROUNDS]
    ]
    return replace(dialogue, rounds=tuple(rounds))


def asked(sample: Benchmark) -> list[Query]:
    """Ten questions in words, then four with a picture."""
    queries = [question.query for question in sample.questions]
    in_words = [query for query in queries if query.image is None][:10]
    return in_words + [query for query in queries if query.image is not None][:4]


@dataclass(frozen=True, slots=True)
class Do:
    """A call that the script makes: what it names is translated for the code that is asked."""

    tool: str
    text: str = ""
    image: Image | None = None
    messages: tuple[int, int] | None = None
    memory: int = 0


class Script:
    """What a model replies, by kind of call."""

    def __init__(self, dialogue: Dialogue, queries: list[Query]) -> None:
        self._messages = [
            (turn.text, turn.images[0] if turn.images else None)
            for round_ in dialogue.rounds
            for turn in round_.turns
        ]
        self._number = 0
        self._wanted: Do = Do("none")
        self._replies = {
            "take_in": self._take_in(),
            "record": self._record(),
            "find": self._find(),
            "answer": self._answer(queries),
        }
        self.calls: Counter[str] = Counter()

    def reply(self, kind: str) -> Do:
        """The next call of a kind."""
        self.calls[kind] += 1
        return next(self._replies[kind])

    def _take_in(self) -> Iterator[Do]:
        for number, (text, image) in enumerate(self._messages, 1):
            self._number = number
            if number % 3 == 1:
                yield self._want(Do("query_memory", text[:60], image))
            if number % 3 or image:
                yield self._want(Do("update_memory", text, image))
            yield Do("done")

    def _record(self) -> Iterator[Do]:
        made = 0
        while True:
            text, image = self._wanted.text, self._wanted.image
            yield Do("search", text, image)
            yield Do("add", text, image, (max(1, self._number - 2), self._number))
            made += 1
            if made % 5 == 4:  # two memories of one message, and an older one goes
                yield Do("add", f"{text} {text[:20]}", None, (self._number, self._number))
                made += 1
                yield Do("delete", memory=made - 3)
            yield Do("done")

    def _find(self) -> Iterator[Do]:
        while True:
            yield Do("search", self._wanted.text, self._wanted.image)
            if self._number % 2:
                yield Do("fetch", messages=(1, 2))
            yield Do("answer", "It is so.")

    def _answer(self, queries: list[Query]) -> Iterator[Do]:
        for query in queries:
            yield self._want(Do("query_memory", query.text, query.image))
            yield Do("answer", "It is so.")

    def _want(self, do: Do) -> Do:
        self._wanted = do
        return do


class Replying:
    """The script as our agents' model."""

    def __init__(self, script: Script, pictures: list[str]) -> None:
        self._script, self._pictures = script, pictures

    def __call__(self, request: ChatRequest) -> str:
        schema: Any = request.json_schema
        kind = {"m2a_take_in": "take_in", "answer": "answer"}.get(request.role, "find")
        if any(call["properties"]["tool"]["enum"] == ["add"] for call in schema["anyOf"]):
            kind = "record"
        do = self._script.reply(kind)
        said: dict[str, Any] = {"tool": do.tool, "text": do.text}
        if do.image:  # a question's picture comes after all others
            is_asked = self._script.calls["answer"] > 0
            place = len(self._pictures) if is_asked else self._pictures.index(str(do.image.uri))
            said["image"] = f"<image{place}>"
        if do.messages:
            said["messages"] = [list(do.messages)]
        if do.memory:
            said["memory"] = do.memory
        return json.dumps(said)


@pytest.mark.timeout(1200)  # loading the encoder alone takes minutes beside much other work
def test_memories_and_what_is_found_are_those_of_the_authors_code(
    sample: Benchmark,
    runtime: Settings,
    parts_with: Callable[[ChatModel | None], Parts],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace = json.loads(TRACE.read_text())
    dialogue, queries = of_two_people(sample.dialogues[0]), asked(sample)
    script = Script(dialogue, queries)
    uris = [str(i.uri) for r in dialogue.rounds for turn in r.turns for i in turn.images]
    parts = replace(
        parts_with(FakeChat(Replying(script, uris), sees_images=True)),
        text_encoder=make_text_encoder(Settings().encoders.text),
        image_encoder=FakeImageEncoder(768),
    )
    pixels = replace_settings(runtime, answer={"sees_pixels": True})  # else captions are searched
    searched: list[list[int]] = []
    search = MemoryStore.search

    def heard(store: MemoryStore, text: str, image: Image | None) -> list[tuple[Memory, float]]:
        found = search(store, text, image)
        searched.append([memory.id for memory, _ in found])
        return found

    monkeypatch.setattr(MemoryStore, "search", heard)
    monkeypatch.setattr("vmem.baselines.m2a_memory._LEXICAL", LexicalSettings(k1=1.5, b=0.75))
    memory: Any = asyncio.run(M2A(name="m2a", settings=pixels, parts=parts).build(dialogue))
    for query in queries:
        assert asyncio.run(memory.answer(query)).text == "It is so."
    assert script.calls == trace["calls"]
    held = memory.levels.memories.memories.values()
    assert [[each.id, *map(list, each.evidence)] for each in held] == trace["memories"]
    assert searched == trace["searched"]
