"""M2A's third path, texts among pictures, from the messages to an answer; the model is scripted."""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Pixels

from vmem.config import Settings
from vmem.config import replace as replace_settings
from vmem.encoders.fake import FakeImageEncoder
from vmem.llm.fake import FakeChat
from vmem.pipeline import Parts
from vmem.ports import ChatModel, ChatRequest, Vectors
from vmem.systems.registry import make_system
from vmem.systems.rows import row_named, row_settings
from vmem.types import Dialogue, Image, Query, Round, Turn

COLOURS = ("red", "blue", "lime", "cyan", "black", "white", "yellow")
RED = 0  # the oldest, so that no agent sees it as a recent message
ASKED = "the red one"


class ColourTower(FakeImageEncoder):
    """A text is the picture of the colour that it names."""

    def encode_text(self, texts: Sequence[str]) -> Vectors:
        named = [next(colour for colour in COLOURS if colour in text) for text in texts]
        return self.encode([Pixels.new("RGB", (8, 8), colour) for colour in named])


@pytest.fixture
def gallery(tmp_path: Path) -> Dialogue:
    """One picture of one colour a message; no message says which."""
    rounds = []
    for number, colour in enumerate(COLOURS):
        path = tmp_path / f"{number}.png"
        Pixels.new("RGB", (8, 8), colour).save(path)
        image = Image(id=f"IMG_{number}", uri=str(path))
        turn = Turn(source_id=str(number), speaker="Ada", text="Look.", images=(image,))
        time = f"2026-05-0{number + 1}T09:00"
        rounds.append(Round(id=str(number), position=number, session="1", time=time, turns=(turn,)))
    return Dialogue(id="d", rounds=tuple(rounds))


def scripted(request: ChatRequest) -> str:
    """Every picture becomes a memory, the red one of the least fitting words; one search each."""
    said = request.prompt.rpartition("You called ")[2] if "You called " in request.prompt else ""
    if request.role == "m2a_take_in":
        newest = request.prompt.rpartition("\n#")[2]
        if "You called" in newest:
            return '{"tool": "done"}'
        token = re.findall(r"<image\d+>", newest)[0]
        return json.dumps({"tool": "update_memory", "text": "Keep it.", "image": token})
    if request.role == "answer":
        if said:
            return json.dumps(
                {"tool": "answer", "text": said.rpartition("says: ")[2].splitlines()[0]}
            )
        return json.dumps({"tool": "query_memory", "text": ASKED})
    if "<asked>" in request.prompt:
        if said:
            return json.dumps({"tool": "answer", "text": f"It is <image{RED}>."})
        return json.dumps({"tool": "search", "text": ASKED})
    if said:
        return '{"tool": "done"}'
    wanted = request.prompt.partition("<recent>")[2].partition("</recent>")[0]
    number, token = re.findall(r"#(\d+) .*(<image\d+>)", wanted)[-1]
    text = "Nothing." if int(number) == RED + 1 else ASKED.replace("red", "other")
    add = {"tool": "add", "text": text, "image": token, "messages": [[int(number)] * 2]}
    return json.dumps(add)


def asked(
    system: str, dialogue: Dialogue, runtime: Settings, parts: Parts, chat: FakeChat
) -> tuple[Any, ChatRequest]:
    """The answer, and the memory agent's prompt with what its search gave."""
    row = row_named(system)
    settings = replace_settings(
        row_settings(row, runtime), answer={"sees_pixels": True, "query_caption": "dataset"}
    )
    memory: Any = asyncio.run(make_system(row, settings, parts).build(dialogue))
    assert memory.cost.counts["memories"] == len(COLOURS)
    assert memory.cost.counts["steps_failed"] == memory.cost.counts["pictures_without_vector"] == 0
    chat.requests.clear()
    answer = asyncio.run(memory.answer(Query(text="Which picture is all red?")))
    return answer, [r for r in chat.requests if r.role == "m2a_memory"][-1]


def test_a_picture_is_found_by_words_that_only_its_pixels_match(
    gallery: Dialogue, runtime: Settings, parts_with: Callable[[ChatModel | None], Parts]
) -> None:
    chat = FakeChat(scripted, sees_images=True)
    parts = replace(parts_with(chat), image_encoder=ColourTower())
    seen = {
        system: asked(system, gallery, runtime, parts, chat) for system in ("m2a", "m2a-three-path")
    }
    red = Path(str(gallery.rounds[RED].turns[0].images[0].uri)).read_bytes()
    for system, (answer, request) in seen.items():
        found = {item.position for item in answer.retrieval.ranked}
        is_found = system == "m2a-three-path"
        assert (RED in found, red in request.images) == (is_found, is_found)
        assert answer.text == f"It is <image{RED}>."
    words_alone, three = (len(answer.retrieval.ranked) for answer, _ in seen.values())
    assert words_alone == 5 < three <= len(COLOURS)
