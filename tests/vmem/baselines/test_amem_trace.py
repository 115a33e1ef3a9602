"""A-Mem against a recorded trace of the authors' code (WujiangXu/A-mem, commit 0c8039f).

The trace is numbers only: the notes shown as neighbours, links and notes retrieved, of the first
turns of our sample conversation with the packaged encoder, where a model answers by the script
below. The authors' module was given the `import re` that it lacks (without it every note stays
without keywords, context and tags), and turns in our wording, with a blank after the speaker.
"""

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vmem.baselines.amem import AMem
from vmem.baselines.amem_writing import AMemOptions
from vmem.build import make_text_encoder
from vmem.config import Settings
from vmem.llm.fake import FakeChat
from vmem.pipeline import Parts
from vmem.ports import ChatModel, ChatRequest
from vmem.types import Benchmark, Dialogue

pytest.importorskip("all_minilm_l6_v2", reason="the packaged encoder is missing: vmem[embedded]")
TRACE = json.loads((Path(__file__).parent / "amem_trace.json").read_text())
_WORDS = (
    "river lamp garden ticket violin harbour recipe mountain window letter bridge market engine"
    " forest candle mirror pepper island anchor blanket copper falcon ginger hammer jacket kettle"
    " ladder marble needle orchard"
)
WORDS = _WORDS.split()
DECISIONS = ("none", "strengthen", "update", "both", "strengthen")


def word(number: int) -> str:
    return WORDS[number % len(WORDS)]


def context(number: int) -> str:
    return f"Of the {word(number * 5)} and the {word(number * 7 + 2)}."


def tags(number: int) -> list[str]:
    return [word(number * 11 + 4), word(number * 13 + 1)]


class Script:
    """Answers by the turn's number; keeps which notes each turn was shown."""

    def __init__(self) -> None:
        self.turn = -1
        self.shown: dict[str, list[int]] = {}

    def __call__(self, request: ChatRequest) -> str:
        if request.role == "amem_note":
            self.turn += 1
            keywords = [word(self.turn * 3 + place) for place in range(3)]
            return json.dumps(
                {"keywords": keywords, "context": context(self.turn), "tags": tags(self.turn)}
            )
        notes = request.prompt.split("<earlier_notes>")[1]
        shown = [int(number) for number in re.findall(r"^\[(\d+)\]", notes, re.MULTILINE)]
        self.shown[str(self.turn)] = shown
        decision = DECISIONS[self.turn % len(DECISIONS)]
        rewrites = [
            {"note": note, "context": context(number), "tags": tags(number)}
            for number, note in enumerate(shown, self.turn * 7)
        ]
        strengthen = {
            "links": [shown[p] for p in (0, 2) if p < len(shown)],
            "tags": tags(self.turn + 100),
        }
        both = {**strengthen, "rewrites": rewrites}
        rest: dict[str, Any] = {
            "strengthen": strengthen,
            "update": {"rewrites": rewrites},
            "both": both,
        }
        return json.dumps({"decision": decision, **rest.get(decision, {})})


def first_turns(dialogue: Dialogue, most: int) -> Dialogue:
    rounds, left = [], most
    for round_ in dialogue.rounds:
        turns = round_.turns[:left]
        left -= len(turns)
        if turns:
            rounds.append(replace(round_, turns=turns))
    return replace(dialogue, rounds=tuple(rounds))


@pytest.mark.timeout(1200)  # loading the encoder alone takes minutes beside much other work
def test_notes_links_and_what_is_retrieved_are_those_of_the_authors_code(
    sample: Benchmark, runtime: Settings, parts_with: Callable[[ChatModel | None], Parts]
) -> None:
    script = Script()
    encoder = make_text_encoder(Settings().encoders.text)
    parts = replace(parts_with(FakeChat(script)), text_encoder=encoder)
    dialogue = first_turns(sample.dialogues[0], len(TRACE["notes"]))
    system = AMem(name="a-mem", settings=runtime, parts=parts, options=AMemOptions(note_of="turn"))
    memory: Any = asyncio.run(system.build(dialogue))
    assert script.shown == TRACE["shown"]
    for note, theirs in zip(memory.notes.notes, TRACE["notes"], strict=True):
        ours = {"keywords": note.keywords, "context": note.context, "tags": note.tags}
        assert {**ours, "links": note.links} == {
            key: tuple(value) if isinstance(value, list) else value for key, value in theirs.items()
        }
    for keywords, theirs in TRACE["retrieved"].items():
        found = [
            number for number, _ in memory.notes.with_links(memory.notes.nearest(keywords, 10))
        ]
        assert found == list(dict.fromkeys(theirs))  # theirs shows a note as often as it is linked
