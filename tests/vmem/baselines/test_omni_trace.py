"""Omni as released against a recorded trace of its public code (aiming-lab/SimpleMem, db80b6a).

The trace is numbers only: statements stored, calls made and units retrieved, of the first rounds of
our sample conversation as a talk of two people, with the packaged encoder, where a model answers
by the script below. What the public code finds by meaning is compared as a list. What its BM25 adds
is compared with its own formula in the place of the library's, which is the one difference.
"""

import asyncio
import json
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vmem.baselines.omni import Omni, OmniOptions
from vmem.baselines.omni_released import wanted_by_released_code
from vmem.build import make_text_encoder
from vmem.config import Settings
from vmem.llm.fake import FakeChat
from vmem.pipeline import Parts
from vmem.ports import ChatModel, ChatRequest
from vmem.types import Benchmark, Dialogue, Query

pytest.importorskip("all_minilm_l6_v2", reason="the packaged encoder is missing: vmem[embedded]")
TRACE = json.loads((Path(__file__).parent / "omni_trace.json").read_text())
ROUNDS = 24
NAMES = {"user": "Ida", "assistant": "Otto"}


def scripted(request: ChatRequest) -> str:
    if request.role == "extract":
        lines = request.prompt.partition("<messages>")[2].partition("</messages>")[0].split("\n")
        said = [line.partition("] ")[2].strip() for line in lines if line.startswith("[")]
        return json.dumps({"statements": [f"It is known that {each}" for each in said]})
    if request.role == "entities":
        return '{"entities": [], "relations": []}'
    return "A summary."


def of_two_people(dialogue: Dialogue) -> Dialogue:
    rounds = [
        replace(
            round_,
            turns=tuple(replace(t, speaker=NAMES[t.speaker], images=()) for t in round_.turns),
        )
        for round_ in dialogue.rounds[:ROUNDS]
    ]
    return replace(dialogue, rounds=tuple(rounds))


class Okapi:
    """BM25 as rank_bm25 has it: words of two letters at least, rare negative weights lifted."""

    def __init__(self, texts: list[str], k1: float = 1.5, b: float = 0.75) -> None:
        # The public code indexes a text's summary, which is the text itself or a sentence, with it.
        self._counts = [Counter(self._words(text)) for text in texts]
        length_N = np.array([count.total() for count in self._counts])
        self._norm_N = k1 * (1 - b + b * length_N / length_N.mean())
        self._k1 = k1
        in_texts = Counter(word for count in self._counts for word in count)
        size = len(texts)
        weights = {w: math.log(size - n + 0.5) - math.log(n + 0.5) for w, n in in_texts.items()}
        floor = 0.25 * sum(weights.values()) / len(weights)
        self._weights = {w: weight if weight >= 0 else floor for w, weight in weights.items()}

    @staticmethod
    def _words(text: str) -> list[str]:
        return [word for word in re.findall(r"[a-z0-9]+", text.lower()) if len(word) > 1]

    def scores(self, query: str) -> Any:
        score_N = np.zeros(len(self._counts))
        for word in self._words(query):
            often_N = np.array([count[word] for count in self._counts])
            share_N = often_N * (self._k1 + 1) / (often_N + self._norm_N)
            score_N += self._weights.get(word, 0.0) * share_N
        return score_N


def indexed(text: str) -> str:
    """What the public code indexes: a summary where the text is long, and 500 characters of it."""
    flat = " ".join(text.split())
    return f"{flat if len(flat) <= 200 else 'A summary.'} {flat[:500]}"


@pytest.mark.timeout(1200)  # loading the encoder alone takes minutes beside much other work
def test_statements_calls_and_what_is_retrieved_are_those_of_the_public_code(
    sample: Benchmark, runtime: Settings, parts_with: Callable[[ChatModel | None], Parts]
) -> None:
    chat = FakeChat(scripted)
    parts = replace(parts_with(chat), text_encoder=make_text_encoder(Settings().encoders.text))
    options = OmniOptions(mode="released", unused_calls=True)
    system = Omni(name="omni-released", settings=runtime, parts=parts, options=options)
    built: Any = asyncio.run(system.build(of_two_people(sample.dialogues[0])))
    assert Counter(request.role for request in chat.requests) == TRACE["calls"]
    assert len(built.items) == TRACE["stored"]
    texts = [item.text for item in built.items]
    memory = replace(built, words=Okapi([indexed(text) for text in texts]))
    number = {text: n for n, text in enumerate(texts)}
    assert len(number) == len(texts)
    for asked in TRACE["retrieved"]:
        wanted = wanted_by_released_code(asked["question"], asked["category"], True)
        found = asyncio.run(memory._search(Query(text=asked["question"]), wanted))
        ours = [number[block.text] for block in found.context.blocks]
        dense, theirs = asked["dense"], asked["numbers"]
        assert ours[:dense] == theirs[:dense], asked
        assert sorted(ours[dense:]) == sorted(theirs[dense:]), asked  # equal scores in any order
